// SPDX-License-Identifier: Apache-2.0
//
// Selection on a row_view: the largest value t for which the values >= t are at least so many, or
// have at least so much mass. Exact, without rejection, and memory is read once as a rule:
//
//   1 guess    4 vectors a lane, spread over the row, go into 1,024 bins by their leading bits: a
//              narrow range follows that holds t but for bad luck
//   2 gather   one pass adds up what lies above the range and sets aside what lies in it
//   3 descend  every block gets what all have set aside and finds t by radix: 2,048 bins a step,
//              each with the exact sum of its values
//
// As every block then knows the values about t of all, it knows without another pass what each of
// them keeps. Where the guess was wrong, or too many values are equal, step 3 runs over the whole
// row with the bins of all blocks added up. Sums are integers, so nothing depends on the order of
// the atomics.

#ifndef BOLIDE_OPS_SAMPLING_ROW_SELECT_CUH
#define BOLIDE_OPS_SAMPLING_ROW_SELECT_CUH

#include "ops/sampling/row_guess.cuh"

/* ---- descend ------------------------------------------------------------------------------ */

__forceinline__ void put(fine_bins *bins, uint32_t bin, uint64_t m) {
    const uint32_t low = (uint32_t)m;
    const uint32_t old = atomicAdd(&bins->low[bin], low);
    const uint32_t high = (uint32_t)(m >> 32) + (old + low < old);
    if (high)
        atomicAdd(&bins->high[bin], high);
}

/* The same for so few values that no word runs over: 20 bits in the lower one. Nobody waits. */
constexpr int SPLIT = 20;
__forceinline__ void put_split(fine_bins *bins, uint32_t bin, uint64_t m) {
    atomicAdd(&bins->low[bin], (uint32_t)m & ((1u << SPLIT) - 1));
    atomicAdd(&bins->high[bin], (uint32_t)(m >> SPLIT));
}

/* Adds four bins, the highest first. */
__forceinline__ void add_bins(uint64_t (&sum)[4], two_words low, two_words high, int shift) {
    sum[3] += (low.a & 0xffffffffu) + ((high.a & 0xffffffffu) << shift);
    sum[2] += (low.a >> 32) + (high.a >> 32 << shift);
    sum[1] += (low.b & 0xffffffffu) + ((high.b & 0xffffffffu) << shift);
    sum[0] += (low.b >> 32) + (high.b >> 32 << shift);
}

/* Sums of this thread's four bins, the highest first; of all blocks if `wide`. */
__forceinline__ void read_bins(const fine_bins *bins, bool wide, int shift, uint64_t (&sum)[4]) {
    const int at = BINS - 4 - 4 * (int)threadIdx.x;
    const two_words *low = reinterpret_cast<const two_words *>(&bins->low[at]);
    const two_words *high = reinterpret_cast<const two_words *>(&bins->high[at]);
    sum[0] = sum[1] = sum[2] = sum[3] = 0;
    if (!wide)
        add_bins(sum, *low, *high, shift);
#pragma unroll 1
    for (int i = 0; wide && i < CLUSTER; i++)
        add_bins(sum, load_peer<CLUSTER>(low, i), load_peer<CLUSTER>(high, i), shift);
}

/* The bin, from the top, at which `above` plus the sums reaches `want`, into state->bin, and what
 * lies over it into state->above; -1 if none. */
__forceinline__ void find_bin(select_state *state, const uint64_t (&sum)[4], uint64_t above,
                              uint64_t want) {
    const uint64_t own = sum[0] + sum[1] + sum[2] + sum[3], upto = warp_prefix(own);
    if (lane_of_warp() == 31)
        state->part[warp_of_block()] = upto;
    if (threadIdx.x == 0)
        state->bin = -1;
    __syncthreads();
    const int lane = lane_of_warp();
    above += warp_total(lane < warp_of_block() ? state->part[lane % WARPS] : 0) + upto - own;
    if (above < want && above + own >= want) {
        int bin = BINS - 1 - 4 * (int)threadIdx.x;
        bool here = true;
#pragma unroll
        for (int i = 0; i < 3; i++) {
            here = here && above + sum[i] < want;
            above += here ? sum[i] : 0;
            bin -= here;
        }
        state->bin = bin;
        state->above = above;
    }
    __syncthreads();
}

__forceinline__ void meet_blocks(bool wide) {
    if (wide)
        cluster_sync<CLUSTER>();
    else
        __syncthreads();
}

/* The largest key among the last values at which `above` plus the weights from there up reaches
 * q.want, 0 if there is none. Four threads have one value. */
__forceinline__ uint32_t resolve(select_state *state, uint64_t above, const goal &q) {
    const int at = (int)threadIdx.x / 4, count = state->rest_count;
    if (THREADS / WARPS / 4 * warp_of_block() < count) {
        const uint32_t key = at < count ? state->rest_key[at] : 0;
        uint64_t upto = 0;
#pragma unroll 4
        for (int i = (int)threadIdx.x % 4; i < count; i += 4)
            upto += state->rest_key[i] >= key ? state->rest_weight[i] : 0;
#pragma unroll
        for (int step = 1; step < 4; step *= 2)
            upto += __shfl_xor_sync(0xffffffffu, upto, step);
        const uint32_t best = warp_max(at < count && above + upto >= q.want ? key : 0);
        if (lane_of_warp() == 0)
            atomicMax(&state->best, best);
    }
    __syncthreads();
    return state->best;
}

/* Keys of values that differ do so above their last bits, which are 0, or 1 for negative ones. */
constexpr int GRAIN = !(RANKED || SCORES) ? 0 : INPUT == BF16 ? 16 : INPUT == F16 ? 13 : 0;

/* The largest key in [first, last] at which `above`, what lies over the range, plus the weights
 * from there up reaches q.want. each(f) calls f(x) for the values of this block, whose weights
 * those of the other blocks come to if `wide`, and else are all `count` of them; `few` if there may
 * be room for all in the last step. */
template <class E>
__forceinline__ bool descend(fine_bins *bins, select_state *state, bool wide, bool few, int count,
                             E each, uint32_t first, uint32_t last, uint64_t above, const goal &q,
                             uint32_t &key) {
    /* By turns values are added up in bins, and those of one bin are taken aside. */
    bool binned = !few;
    const bool split = !wide && count < 4096 &&
                       (mass_of(value_of(last), q.unit) >> SPLIT) * (uint64_t)count < 1ull << 32;
#pragma unroll 1
    for (;;) {
        const int shift = larger(32 - __clz((int)(last - first)) - 11, 0);
        const int finer = shift + ((last >> shift) - (first >> shift) >= (uint32_t)BINS);
        const uint32_t base = first >> finer;
        if (binned) {
            reinterpret_cast<uint4 *>(bins->low)[threadIdx.x] = uint4{0, 0, 0, 0};
            reinterpret_cast<uint4 *>(bins->high)[threadIdx.x] = uint4{0, 0, 0, 0};
        } else if (threadIdx.x == 0) {
            state->rest_count = 0;
            state->best = 0;
        }
        __syncthreads();
        each([&](float x) {
            const uint32_t k = key_of(x);
            if (k < first || k > last)
                return;
            if (binned && q.counted) {
                atomicAdd(&bins->low[(k >> finer) - base], 1u);
            } else if (binned && split) {
                put_split(bins, (k >> finer) - base, mass_of(x, q.unit));
            } else if (binned) {
                put(bins, (k >> finer) - base, mass_of(x, q.unit));
            } else {
                const int at = atomicAdd(&state->rest_count, 1);
                if (at < REST) {
                    state->rest_key[at] = k;
                    state->rest_weight[at] = q.counted ? 1 : mass_of(x, q.unit);
                }
            }
        });
        meet_blocks(wide);
        if (!binned) {
            binned = true;
            if (state->rest_count > REST)
                continue;
            key = resolve(state, above, q);
            return key != 0;
        }
        uint64_t sum[4];
        read_bins(bins, wide, split ? SPLIT : 32, sum);
        find_bin(state, sum, above, q.want);
        const int bin = state->bin;
        above = state->above;
        /* Peers read these bins. */
        if (wide)
            cluster_sync<CLUSTER>();
        if (bin < 0)
            return false;
        const uint32_t begin = (base + (uint32_t)bin) << finer;
        const uint32_t end = begin + ((1u << finer) - 1);
        first = larger(first, begin);
        last = smaller(last, end);
        if (finer <= GRAIN) {
            key = begin >> 31 ? first : last;
            return true;
        }
        binned = wide;
    }
}

/* ---- gather ------------------------------------------------------------------------------- */

/* What a warp finds. */
struct harvest {
    uint64_t above; /* weight above the range */
    int count;      /* values in it, set aside as long as there is room; of the lane or the warp */
    float max;      /* of all; per lane */
};

/* Adds up what lies above the span. */
template <int N>
__forceinline__ void add_above(mass_sum &sum, const float (&x)[N][4], float top, bool counted,
                               mass_unit unit) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float over[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            over[i] = x[n][i] >= top ? (counted ? 1.0f : x[n][i]) : 0.0f;
        sum.add4(over, unit);
    }
    sum.carry_in_time();
}

/* Sets aside N vectors of each lane, 32 apart, what of them is in the span, by column, behind
 * `first` others of this warp, and gives how many there are then. Behind the end of the pool
 * nothing is written, and the list will not be used. */
template <int N>
__forceinline__ int set_aside(const float (&x)[N][4], span s, float *own, int *columns, int column,
                              int first) {
    static_assert(N <= 4, "a byte for each vector's count in the warp, up to 128");
    uint32_t mask[N], counts = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        mask[n] = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            mask[n] |= (uint32_t)(x[n][i] >= s.low && !(x[n][i] >= s.top)) << i;
        counts |= (uint32_t)__popc(mask[n]) << 8 * n;
    }
    const uint32_t upto = warp_prefix(counts), all = __shfl_sync(0xffffffffu, upto, 31);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int behind = first + (int)(all >> 8 * n & 0xff);
        int slot = first + (int)((upto - counts) >> 8 * n & 0xff);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (mask[n] >> i & 1 && behind <= OWN_POOL) {
                own[slot] = x[n][i];
                columns[slot] = column + 128 * n + i;
                slot++;
            }
        }
        first = behind;
    }
    return first;
}

/* Sets aside a vector in the list of this lane, whose places are 32 apart: no lane waits for
 * another. `next` is an address in shared memory; from `full` on there is no room for a vector, and
 * nothing is written. Said in instructions, for the compiler makes a branch for each value. */
__forceinline__ uint32_t put_aside(const float (&x)[4], span s, uint32_t next, uint32_t full) {
    /* NaN: none of them. */
    const float low = next < full ? s.low : NAN_VALUE;
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("{\n"
                     ".reg .pred above, here;\n"
                     "setp.ge.f32 above, %1, %3;\n"
                     "setp.ge.and.f32 here, %1, %2, !above;\n"
                     "@here st.shared.f32 [%0], %1;\n"
                     "@here add.u32 %0, %0, 128;\n"
                     "}"
                     : "+r"(next)
                     : "f"(x[i]), "f"(low), "f"(s.top)
                     : "memory");
    return next;
}

/* What lies below a share of the largest value that the block has seen need not be set aside.
 * Others may have seen more by now; then there is a bit more than there need be. */
__forceinline__ float raise(select_state *state, float low, float share, float most) {
    const uint32_t largest = warp_max(float_bits(most));
    const uint32_t seen = *const_cast<volatile uint32_t *>(&state->largest);
    if (largest > seen && lane_of_warp() == 0)
        atomicMax(&state->largest, largest);
    return fmaxf(low, share * bits_float(larger(largest, seen)));
}

/* What else is done as a row is read: nothing as a rule. */
struct bystander {
    /* While the sample is judged. */
    __forceinline__ void guess(const row_view &, const goal &) {
    }
    /* Before a pass that looks for values of the span. */
    __forceinline__ void open(const row_view &, span, const goal &) {
    }
    /* Before a batch from vector `begin` on. */
    __forceinline__ void go(const row_view &, int) {
    }
    /* Whether the vector of this lane in the group from `group` on has values from the span up. */
    __forceinline__ void see(const row_view &, int, bool) {
    }
    /* Behind the last batch. */
    __forceinline__ void close(const row_view &) {
    }
};

/* Reads a batch, unless it is what has been looked at. */
template <class B, class L>
__forceinline__ void read_batch(const row_view &r, int begin, B &b, const L &look, bool looked) {
    if constexpr (LONE) {
        if (looked) {
            b = look;
            return;
        }
    }
    b.read(r, [&](int n) { return begin + 32 * n; });
}

/* Sets aside the values of the span, which begins at `share` of the largest if that is not 0. */
template <class S>
__forceinline__ harvest gather(const row_view &row, select_room *room, select_state *state, span s,
                               const goal &q, float share, S &beside, const batch<LOOK> &look,
                               bool looked) {
    const int warp = warp_of_block();
    const row_view r = here(row);
    float *own = reinterpret_cast<float *>(room->own[warp]);
    uint32_t next = shared_address(own) + 4 * (uint32_t)lane_of_warp();
    uint32_t full = next + 128 * (LANE_POOL - 3);
    /* A number of its own, which is kept. */
    asm volatile("" : "+r"(full));
    int *columns = columns_of(room, warp);
    const bool bounded = !is_nan(s.top), counted = q.counted;
    const mass_unit unit = q.unit;
    mass_sum sum;
    harvest h = {0, 0, NONE};
    gather_ring ring;
    if constexpr (RINGED)
        ring.open(ring_of(room));
    beside.open(r, s, q);
#pragma unroll 1
    for (int begin = r.first; begin < r.last; begin += 32 * GATHER) {
        batch<GATHER> b;
        float x[GATHER][4], max[GATHER], most = NONE;
        beside.go(r, begin);
        if constexpr (RINGED)
            ring.take(b.raw);
        else
            read_batch(r, begin, b, look, looked);
#pragma unroll
        for (int n = 0; n < GATHER; n++) {
            b.template unpack<true>(r, n, x[n]);
            max[n] = fmaxf(fmaxf(x[n][0], x[n][1]), fmaxf(x[n][2], x[n][3]));
            most = fmaxf(most, max[n]);
        }
        h.max = fmaxf(h.max, most);
        if constexpr (RINGED)
            ring.next(r, begin);
        if (share != 0.0f)
            s.low = raise(state, s.low, share, most);
        if (bounded)
            add_above(sum, x, s.top, counted, unit);
        if (!__any_sync(0xffffffffu, most >= s.low))
            continue;
        if constexpr (INDEXED) {
            h.count = set_aside(x, s, own, columns, 4 * (begin + lane_of_warp()) - r.lead, h.count);
        } else {
#pragma unroll
            for (int n = 0; n < GATHER; n++) {
                next = put_aside(x[n], s, next, full);
                beside.see(r, begin + 32 * n, max[n] >= s.low);
            }
        }
    }
    beside.close(r);
    sum.carry();
    h.above = warp_total(sum.total);
    if constexpr (INDEXED)
        h.count = h.count <= OWN_POOL ? h.count : OVERFULL;
    else
        h.count = next < full ? LANE_POOL - 3 - (int)((full - next) / 128) : OVERFULL;
    return h;
}

/* ---- what all have set aside -------------------------------------------------------------- */

/* Puts what this warp has set aside behind the `first` values of its block in the pool. */
template <class R> __forceinline__ void pool_values(R *room, int count, int first) {
    const int lane = lane_of_warp(), warp = warp_of_block();
    float *to = room->pool[cluster_rank<CLUSTER>()] + first;
    if constexpr (INDEXED) {
#pragma unroll 1
        for (int i = lane; i < count; i += 32)
            to[i] = room->own[warp][i];
    } else {
        to += warp_prefix(count) - count;
#pragma unroll 1
        for (int i = 0; i < count; i++)
            to[i] = room->own[warp][i][lane];
    }
}

/* Pushes what this block has in the pool to the others, by vectors, and gives their bytes. */
template <class R> __forceinline__ uint32_t push_pool(R *room, select_state *state, int count) {
    constexpr int A_PEER = THREADS / CLUSTER;
    const int rank = cluster_rank<CLUSTER>(), peer = (int)threadIdx.x / A_PEER;
    const int vectors = (count + 3) / 4;
    two_words *pool = reinterpret_cast<two_words *>(room->pool[rank]);
    if (peer != rank) {
#pragma unroll 1
        for (int i = (int)threadIdx.x % A_PEER; i < vectors; i += A_PEER)
            send_peer(pool + i, peer, pool[i], state->found_come);
    }
    return (uint32_t)(vectors * sizeof(two_words));
}

/* Pushes this warp's values and weight to all blocks. Whether all fit shows in g.listed. */
template <class R>
__forceinline__ void share_gathered(R *room, select_state *state, const harvest &h, gathered &g) {
    const int lane = lane_of_warp(), warp = warp_of_block(), rank = cluster_rank<CLUSTER>();
    const float own_max = warp_max(h.max);
    const int warp_count = INDEXED ? h.count : warp_total(h.count);
    if constexpr (IN_PLACE)
        room->listed[threadIdx.x] = (uint8_t)h.count;
    if (lane == 0) {
        state->own_above[warp] = h.above;
        state->count[warp] = warp_count;
        state->max_part[warp] = own_max;
    }
    __syncthreads();
    const int counts = lane < WARPS ? state->count[lane] : 0;
    const int all = warp_total(counts), first = warp_total(lane < warp ? counts : 0);
    const bool fits = all <= SLOTS;
    if (lane == 0)
        state->first[warp] = first;
    uint32_t pushed = 0;
    if constexpr (!IN_PLACE) {
        if (fits)
            pool_values(room, h.count, first);
        __syncthreads();
        if constexpr (MAILED)
            pushed = fits ? push_pool(room, state, all) : 0;
    }
    const uint64_t block_above = warp_total(lane < WARPS ? state->own_above[lane] : 0);
    const float block_max = warp_max(lane < WARPS ? state->max_part[lane] : NONE);
    const two_words own_head = {block_above, (uint64_t)float_bits(block_max) << 32 |
                                                 (uint32_t)(fits ? all : OVERFULL)};
    if constexpr (MAILED) {
        const uint32_t phase = next_phase(state->found_phase);
        if (warp == 0 && lane < CLUSTER) {
            announce_peer(state->found_come, lane,
                          (uint32_t)sizeof own_head + (lane == rank ? 0 : pushed));
            send_peer(&state->head[rank], lane, own_head, state->found_come);
        }
        wait_peers(state->found_come, phase);
    } else {
        if (threadIdx.x == 0)
            state->head[0] = own_head;
        __syncthreads();
    }
    const two_words head =
        lane < CLUSTER ? state->head[lane] : two_words{0, (uint64_t)float_bits(NONE) << 32};
    g.whole = !__any_sync(0xffffffffu, head.a != 0);
    g.max = warp_max(upper(head.b));
    g.count = warp_total((int)(uint32_t)head.b);
    g.listed = g.count <= POOL;
    g.passed = true;
}

/* The weight above the range. */
__forceinline__ uint64_t above_pool(const select_state *state) {
    return warp_total(lane_of_warp() < CLUSTER ? state->head[lane_of_warp() % CLUSTER].a : 0);
}

/* f(x, block) for the values of the pool, one thread each. */
template <class R, class F>
__forceinline__ void each_listed(R *room, const select_state *state, F f) {
    if constexpr (IN_PLACE) {
        const int count = room->listed[threadIdx.x];
        float *values = &room->own[warp_of_block()][0][lane_of_warp()];
#pragma unroll 1
        for (int i = 0; i < count; i++)
            f(values[32 * i], 0);
    } else {
        constexpr int A_BLOCK = THREADS / CLUSTER;
        const int block = (int)threadIdx.x / A_BLOCK, count = (int)(uint32_t)state->head[block].b;
        float *values = room->pool[block];
#pragma unroll 1
        for (int slot = (int)threadIdx.x % A_BLOCK; slot < count; slot += A_BLOCK)
            f(values[slot], block);
    }
}

/* Adds up weigh(x) of the listed values, and `scale` times the weights above them: of the row, of
 * the warps before this one, of this warp. */
template <class R, class W>
__forceinline__ place tally_listed(R *room, select_state *state, uint64_t scale, uint64_t &own,
                                   W weigh) {
    const int lane = lane_of_warp(), warp = warp_of_block(), rank = cluster_rank<CLUSTER>();
    uint64_t all = 0, before = 0, mine = 0;
    each_listed(room, state, [&](float x, int block) {
        const uint64_t w = weigh(x);
        all += w;
        before += block < rank ? w : 0;
    });
    if constexpr (IN_PLACE) {
        mine = all;
    } else {
        for (int i = lane; i < state->count[warp]; i += 32)
            mine += weigh(room->pool[rank][state->first[warp] + i]);
    }
    own = warp_total(mine) + state->own_above[warp] * scale;
    all = warp_total(all);
    before = warp_total(before);
    if (lane == 0) {
        state->tally[warp] = {all, before};
        state->part[warp] = own;
    }
    __syncthreads();
    const two_words t = lane < WARPS ? state->tally[lane] : two_words{0, 0};
    const uint64_t head = lane < CLUSTER ? state->head[lane].a * scale : 0;
    const uint64_t ahead = lane < warp ? state->part[lane % WARPS] : 0;
    const place p = {warp_total(t.b + ahead + (lane < rank ? head : 0)), warp_total(t.a + head)};
    __syncthreads();
    return p;
}

/* ---- all together ------------------------------------------------------------------------- */

/* Says what to look for next; it waits in shared memory while others need the registers. */
__forceinline__ void aim(select_state *state, const goal &q) {
    __syncthreads();
    if (threadIdx.x == 0)
        state->next = q;
    __syncthreads();
}

/* Looks for what was aimed at. */
template <class S>
__forceinline__ float select(const row_view &r, exchange &e, select_room *room, select_state *state,
                             gathered &g, S &beside) {
    const goal &q = state->next;
    const bool is_short = r.end - r.lead <= FEW;
    uint32_t key = 0;
    const bool seen = LONE && groups_of(r) <= LOOK;
    const bool largest = seen && q.counted && q.want <= OF_LANES && !q.few && !is_short;
    /* A range that is narrow, one that is guessed, the whole row. */
    const int first_turn = q.listed ? -1 : q.few || is_short || largest ? 0 : 1;
#pragma unroll 1
    for (int turn = first_turn; turn < 3; turn += is_short ? 2 : 1) {
        span range = {q.floor, NAN_VALUE};
        if (turn == 0 || turn == 1) {
            /* What an earlier selection has set aside is not read any more. */
            if (q.again || turn != first_turn)
                cluster_sync<CLUSTER>();
            batch<LOOK> look;
            bool looked = seen && turn == 1;
            if (turn == 1) {
                range = guess(r, e, room, state, q, beside, look);
            } else if (largest) {
                if constexpr (LONE)
                    range = guess_largest(r, e, room, state, q, look);
                looked = true;
            } else {
                begin_ring(r, room);
                e.wait();
            }
            share_gathered(room, state,
                           gather(r, room, state, range, q, 0.0f, beside, look, looked), g);
            if (!(g.max >= q.floor))
                break;
        }
        const bool wide = turn == 2;
        g.listed = !wide && g.listed;
        const uint32_t first = key_of(range.low);
        const uint32_t last = is_nan(range.top) ? key_of(g.max) : key_of(range.top) - 1;
        const uint64_t above = wide || q.listed ? 0 : above_pool(state);
        if ((!wide && !g.listed) || above >= q.want || first > last)
            continue;
        const bool found = descend(
            &room->fine, state, wide, !wide && (g.count <= REST || (q.listed && q.kept <= REST)),
            g.count,
            [&](auto f) {
                if (wide)
                    walk_memory<4>(r, [&](const float(&x)[4], int) {
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            f(x[i]);
                    });
                else
                    each_listed(room, state, [&](float x, int) { f(x); });
            },
            first, last, above, q, key);
        if (found)
            return value_of(key);
        if (range.low <= q.floor)
            return q.floor;
    }
    g.listed = false;
    return q.floor;
}

__forceinline__ float select(const row_view &r, exchange &e, select_room *room, select_state *state,
                             gathered &g) {
    bystander nobody;
    return select(r, e, room, state, g, nobody);
}

#endif
