// SPDX-License-Identifier: Apache-2.0
//
// Selection on a row_view: the largest value t for which the values >= t are at least so many, or
// have at least so much mass. Exact, without rejection, and memory is read once as a rule:
//
//   1 guess    4 vectors a lane, spread over the row, go into 1,024 bins by their leading bits,
//   from
//              which a narrow range follows that holds t but for bad luck
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

/* Sums of this thread's four bins, the highest first; of all blocks if `wide`. */
__forceinline__ void read_bins(const fine_bins *bins, bool wide, uint64_t (&sum)[4]) {
    const int at = BINS - 4 - 4 * (int)threadIdx.x, rank = cluster_rank<CLUSTER>();
    sum[0] = sum[1] = sum[2] = sum[3] = 0;
#pragma unroll 1
    for (int i = 0; i < (wide ? CLUSTER : 1); i++) {
        const int from = wide ? i : rank;
        const two_words low =
            load_peer<CLUSTER>(reinterpret_cast<const two_words *>(&bins->low[at]), from);
        const two_words high =
            load_peer<CLUSTER>(reinterpret_cast<const two_words *>(&bins->high[at]), from);
        sum[3] += (low.a & 0xffffffffu) + (high.a << 32);
        sum[2] += (low.a >> 32) + (high.a & 0xffffffff00000000u);
        sum[1] += (low.b & 0xffffffffu) + (high.b << 32);
        sum[0] += (low.b >> 32) + (high.b & 0xffffffff00000000u);
    }
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

/* Of up to 32 values, the largest key at which `above` plus the weights from there up reaches
 * q.want. Every warp does the same. */
__forceinline__ uint32_t resolve(const select_state *state, uint64_t above, const goal &q) {
    const int lane = lane_of_warp(), count = state->rest_count;
    const float x = lane < count ? state->rest[lane] : 0.0f;
    const uint32_t key = lane < count ? key_of(x) : 0;
    const uint64_t weight = lane >= count ? 0 : q.counted ? 1 : mass_of(x, q.unit);
    uint64_t upto = above;
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        const uint64_t other = __shfl_sync(0xffffffffu, weight, i);
        upto += __shfl_sync(0xffffffffu, key, i) >= key ? other : 0;
    }
    uint32_t best = lane < count && upto >= q.want ? key : 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        best = larger(best, __shfl_xor_sync(0xffffffffu, best, step));
    return best;
}

/* The largest key in [first, last] at which `above`, what lies over the range, plus the weights
 * from there up reaches q.want. each(f) calls f(x) for the values of this block, whose weights
 * those of the other blocks come to if `wide`. */
template <class E>
__forceinline__ bool descend(fine_bins *bins, select_state *state, bool wide, E each,
                             uint32_t first, uint32_t last, uint64_t above, const goal &q,
                             uint32_t &key) {
    /* By turns values are added up in bins, and those of one bin are taken aside. */
    bool binned = true;
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
        }
        __syncthreads();
        each([&](float x) {
            const uint32_t k = key_of(x);
            if (k < first || k > last)
                return;
            if (binned) {
                put(bins, (k >> finer) - base, q.counted ? 1 : mass_of(x, q.unit));
            } else {
                const int at = atomicAdd(&state->rest_count, 1);
                if (at < 32)
                    state->rest[at] = x;
            }
        });
        meet_blocks(wide);
        if (!binned) {
            binned = true;
            if (state->rest_count > 32)
                continue;
            key = resolve(state, above, q);
            return true;
        }
        uint64_t sum[4];
        read_bins(bins, wide, sum);
        find_bin(state, sum, above, q.want);
        const int bin = state->bin;
        above = state->above;
        meet_blocks(wide);
        if (bin < 0)
            return false;
        const uint32_t begin = (base + (uint32_t)bin) << finer;
        const uint32_t end = begin + ((1u << finer) - 1);
        first = larger(first, begin);
        last = smaller(last, end);
        if (finer == 0) {
            key = first;
            return true;
        }
        binned = wide;
    }
}

/* ---- gather ------------------------------------------------------------------------------- */

/* What a warp finds. */
struct harvest {
    uint64_t above; /* weight above the range */
    int count;      /* values in it, set aside as long as there is room */
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
}

/* Sets aside N values of each lane, those that are in the span, and gives how many there are in the
 * warp. With columns they are by column if N is 4, for then they are neighbours. Behind the end of
 * the pool nothing is written, and the list will not be used. */
template <int N>
__forceinline__ int set_aside(const float (&x)[N], span s, float *own, int *columns, int column,
                              int room) {
    uint32_t mask = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        mask |= (uint32_t)(x[i] >= s.low && !(x[i] >= s.top)) << i;
    const int count = __popc(mask), upto = warp_prefix(count);
    const int all = __shfl_sync(0xffffffffu, upto, 31);
    if (all <= room) {
        int slot = upto - count;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (mask >> i & 1) {
                own[slot] = x[i];
                if (INDEXED)
                    columns[slot] = column + i;
                slot++;
            }
        }
    }
    return all;
}

/* Sets aside the values of the span, by column if their columns are kept. */
__forceinline__ harvest gather(const row_view &row, select_room *room, span s, const goal &q) {
    const int warp = warp_of_block();
    const row_view r = here(row);
    float *own = room->own[warp];
    int *columns = columns_of(room, warp);
    const bool bounded = !is_nan(s.top), counted = q.counted;
    const mass_unit unit = q.unit;
    mass_sum sum;
    harvest h = {0, 0, NONE};
#pragma unroll 1
    for (int begin = r.first; begin < r.last; begin += 32 * GATHER) {
        batch<GATHER> b;
        union {
            float by_vector[GATHER][4], all[4 * GATHER];
        } x;
        float max[GATHER], most = NONE;
        b.read(r, [&](int n) { return begin + 32 * n; });
#pragma unroll
        for (int n = 0; n < GATHER; n++) {
            float(&y)[4] = x.by_vector[n];
            b.unpack(r, n, y);
            max[n] = fmaxf(fmaxf(y[0], y[1]), fmaxf(y[2], y[3]));
            most = fmaxf(most, max[n]);
        }
        h.max = fmaxf(h.max, most);
        if (bounded)
            add_above(sum, x.by_vector, s.top, counted, unit);
        if (!__any_sync(0xffffffffu, most >= s.low))
            continue;
        if constexpr (INDEXED) {
#pragma unroll
            for (int n = 0; n < GATHER; n++)
                if (__any_sync(0xffffffffu, max[n] >= s.low))
                    h.count += set_aside(x.by_vector[n], s, own + h.count, columns + h.count,
                                         4 * (begin + 32 * n + lane_of_warp()) - r.lead,
                                         OWN_POOL - h.count);
        } else {
            h.count += set_aside(x.all, s, own + h.count, columns, 0, OWN_POOL - h.count);
        }
    }
    sum.carry();
    h.above = warp_total(sum.total);
    return h;
}

/* ---- what all have set aside -------------------------------------------------------------- */

/* Pushes this warp's values and weight to all blocks. Whether all fit shows in g.listed. */
__forceinline__ void share_gathered(select_room *room, select_state *state, const harvest &h,
                                    gathered &g) {
    const int lane = lane_of_warp(), warp = warp_of_block(), rank = cluster_rank<CLUSTER>();
    const float own_max = lanes_max<32>(h.max);
    if (lane == 0) {
        state->own_above[warp] = h.above;
        state->count[warp] = h.count <= OWN_POOL ? h.count : 2 * POOL;
        state->max_part[warp] = own_max;
    }
    __syncthreads();
    const int counts = lane < WARPS ? state->count[lane] : 0;
    const int all = warp_total(counts), first = warp_total(lane < warp ? counts : 0);
    const bool fits = all <= SLOTS;
    if (lane == 0)
        state->first[warp] = first;
    for (int i = lane; fits && i < h.count; i += 32) {
        const float x = room->own[warp][i];
#pragma unroll
        for (int peer = 0; peer < CLUSTER; peer++)
            store_peer<CLUSTER>(&room->pool[rank][first + i], peer, x);
    }
    const uint64_t block_above = warp_total(lane < WARPS ? state->own_above[lane] : 0);
    const float block_max = lanes_max<32>(lane < WARPS ? state->max_part[lane] : NONE);
    if (warp == 0 && lane < CLUSTER)
        store_peer<CLUSTER>(&state->head[rank], lane,
                            {block_above, (uint64_t)float_bits(block_max) << 32 |
                                              (uint32_t)(fits ? all : 2 * POOL)});
    cluster_sync<CLUSTER>();
    const two_words head =
        lane < CLUSTER ? state->head[lane] : two_words{0, (uint64_t)float_bits(NONE) << 32};
    g.whole = !__any_sync(0xffffffffu, head.a != 0);
    g.max = lanes_max<32>(upper(head.b));
    g.listed = warp_total((int)(uint32_t)head.b) <= POOL;
}

/* The weight above the range. */
__forceinline__ uint64_t above_pool(const select_state *state) {
    return warp_total(lane_of_warp() < CLUSTER ? state->head[lane_of_warp() % CLUSTER].a : 0);
}

/* f(x, block) for the values of the pool, one thread each. */
template <class F>
__forceinline__ void each_listed(select_room *room, const select_state *state, F f) {
    constexpr int A_BLOCK = THREADS / CLUSTER;
    const int block = (int)threadIdx.x / A_BLOCK, count = (int)(uint32_t)state->head[block].b;
    float *values = room->pool[block];
#pragma unroll 1
    for (int slot = (int)threadIdx.x % A_BLOCK; slot < count; slot += A_BLOCK)
        f(values[slot], block);
}

/* Adds up weigh(x) of the listed values, and `scale` times the weights above them: of the row, of
 * the warps before this one, of this warp. */
template <class W>
__forceinline__ place tally_listed(select_room *room, select_state *state, uint64_t scale,
                                   uint64_t &own, W weigh) {
    const int lane = lane_of_warp(), warp = warp_of_block(), rank = cluster_rank<CLUSTER>();
    uint64_t all = 0, before = 0, mine = 0;
    each_listed(room, state, [&](float x, int block) {
        const uint64_t w = weigh(x);
        all += w;
        before += block < rank ? w : 0;
    });
    for (int i = lane; i < state->count[warp]; i += 32)
        mine += weigh(room->pool[rank][state->first[warp] + i]);
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
__forceinline__ float select(const row_view &r, exchange &e, select_room *room, select_state *state,
                             gathered &g) {
    const goal &q = state->next;
    const bool is_short = r.end - r.lead <= FEW;
    uint32_t key = 0;
    /* A range that is narrow, one that is guessed, the whole row. */
    const int first_turn = q.listed ? -1 : q.few || is_short ? 0 : 1;
#pragma unroll 1
    for (int turn = first_turn; turn < 3; turn += is_short ? 2 : 1) {
        span range = {q.floor, NAN_VALUE};
        if (turn == 0 || turn == 1) {
            /* What an earlier selection has set aside is not read any more. */
            if (q.again || turn != first_turn)
                cluster_sync<CLUSTER>();
            e.wait();
            if (turn == 1)
                range = guess(r, room, state, q);
            share_gathered(room, state, gather(r, room, range, q), g);
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
            &room->fine, state, wide,
            [&](auto f) {
                if (wide)
                    walk_memory<1>(r, [&](const float(&x)[4], int) {
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

/* want of a share of a mass, rounded up; more than there can be if it does not fit. */
__forceinline__ uint64_t share_of(float share, double mass) {
    const double want = (double)share * mass;
    return want < 0x1p64 ? __double2ull_ru(want) : ~0ull;
}

#endif
