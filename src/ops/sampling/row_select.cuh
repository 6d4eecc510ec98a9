// SPDX-License-Identifier: Apache-2.0
//
// Selection on a row_view: the largest value t for which the values >= t are at least so many, or
// have at least so much mass. Exact, without rejection, in a fixed number of passes:
//
//   1 guess    every fourth element goes into 1,024 bins, from which a narrow range follows that
//              holds t but for bad luck
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

#include "ops/sampling/row_view.cuh"

constexpr int BINS = BOLIDE__ROW_BINS, POOL = BOLIDE__ROW_POOL;
constexpr int GUESS_BINS = 2 * THREADS, OWN_POOL = POOL / WARPS, SLOTS = POOL / CLUSTER;
/* Up to so many values in a row, or kept so far, everything is set aside. */
constexpr int FEW = 3840, FEW_KEPT = 2048;
constexpr float LEAST_PROB = __builtin_bit_cast(float, 1u);
static_assert(BINS == 4 * THREADS && GUESS_BINS <= BINS && POOL == 2 * BINS, "four bins a thread");

/* Shared memory of a selection, behind the cache: 32 KB. */
struct alignas(16) select_room {
    union {
        struct {
            uint32_t low[BINS], high[BINS]; /* 64-bit sums, in two words that carry */
        } fine; /* named, for NVRTC 12.4 finds no members of a struct without a name in a union */
        float own[WARPS][OWN_POOL]; /* what each warp has set aside */
        struct {
            uint32_t guess[GUESS_BINS];                           /* of this block */
            uint32_t part[GUESS_BINS / CLUSTER], sum[GUESS_BINS]; /* of all: some bins, all bins */
        } coarse;
    };
    float pool[CLUSTER][SLOTS]; /* what all have set aside, pushed by each */
};

struct select_state {
    two_words head[CLUSTER]; /* weight above the range and values in the pool, pushed by each */
    two_words tally[WARPS];
    uint64_t part[WARPS], above;
    float mass_part[WARPS];
    int bin, low_bin, high_bin;
    /* Of each warp: the weight above the range, its values in this block's part of the pool. */
    uint64_t own_above[WARPS];
    int count[WARPS], first[WARPS];
};

/* ---- descend ------------------------------------------------------------------------------ */

template <bool MASS>
__forceinline__ void put(select_room *room, uint32_t bin, float x, mass_unit u) {
    if constexpr (MASS) {
        const uint64_t m = mass_of(x, u);
        const uint32_t low = (uint32_t)m;
        const uint32_t old = atomicAdd(&room->fine.low[bin], low);
        const uint32_t high = (uint32_t)(m >> 32) + (old + low < old);
        if (high)
            atomicAdd(&room->fine.high[bin], high);
    } else {
        atomicAdd(&room->fine.low[bin], 1u);
    }
}

/* Sums of this thread's four bins, the highest first; of all blocks if WIDE. */
template <bool WIDE> __forceinline__ void read_bins(select_room *room, uint64_t (&sum)[4]) {
    const int at = BINS - 4 - 4 * (int)threadIdx.x;
    sum[0] = sum[1] = sum[2] = sum[3] = 0;
#pragma unroll 1
    for (int rank = 0; rank < (WIDE ? CLUSTER : 1); rank++) {
        const two_words *l = reinterpret_cast<const two_words *>(&room->fine.low[at]);
        const two_words *h = reinterpret_cast<const two_words *>(&room->fine.high[at]);
        const two_words low = WIDE ? load_peer<CLUSTER>(l, rank) : *l;
        const two_words high = WIDE ? load_peer<CLUSTER>(h, rank) : *h;
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

/* The largest key in [first, last] at which `above`, what lies over the range, plus the weights
 * from there up reaches want. each(f) calls f(x) for the values of this block. */
template <bool MASS, bool WIDE, class E>
__forceinline__ bool descend(select_room *room, select_state *state, E each, uint32_t first,
                             uint32_t last, uint64_t above, uint64_t want, mass_unit u,
                             uint32_t &key) {
    for (;;) {
        int shift = 0;
        while ((last >> shift) - (first >> shift) >= (uint32_t)BINS)
            shift++;
        const uint32_t base = first >> shift;
        reinterpret_cast<uint4 *>(room->fine.low)[threadIdx.x] = uint4{0, 0, 0, 0};
        reinterpret_cast<uint4 *>(room->fine.high)[threadIdx.x] = uint4{0, 0, 0, 0};
        __syncthreads();
        each([&](float x) {
            const uint32_t k = key_of(x);
            if (k >= first && k <= last)
                put<MASS>(room, (k >> shift) - base, x, u);
        });
        if constexpr (WIDE)
            cluster_sync<CLUSTER>();
        else
            __syncthreads();
        uint64_t sum[4];
        read_bins<WIDE>(room, sum);
        find_bin(state, sum, above, want);
        const int bin = state->bin;
        above = state->above;
        if constexpr (WIDE)
            cluster_sync<CLUSTER>();
        else
            __syncthreads();
        if (bin < 0)
            return false;
        const uint32_t begin = (base + (uint32_t)bin) << shift;
        const uint32_t end = begin + ((1u << shift) - 1);
        first = larger(first, begin);
        last = smaller(last, end);
        if (shift == 0) {
            key = first;
            return true;
        }
    }
}

/* ---- guess -------------------------------------------------------------------------------- */

/* Values that are set aside, both included; what is larger than high lies above. */
struct span {
    float low, high;
};

/* Bins of a guess, from the largest value down: equal steps of the value for logits and scores, 32
 * to a power of two where values are masses. */
template <bool LINEAR> struct guess_scale {
    float max, step, inverse;

    __forceinline__ int bin(float x) const {
        if constexpr (LINEAR)
            return smaller(larger((int)((max - x) * inverse), 0), GUESS_BINS - 1);
        else
            return (int)smaller((float_bits(max) - float_bits(x)) >> 18, (uint32_t)GUESS_BINS);
    }
    /* The least and the largest value of a bin, and one between; a linear bin may reach over the
     * edge by rounding. */
    __forceinline__ float least(int b) const {
        if constexpr (LINEAR)
            return max - (float)(b + 2) * step;
        const uint32_t down = (uint32_t)(b + 1) << 18;
        return down < float_bits(max) ? bits_float(float_bits(max) - down + 1) : 0.0f;
    }
    __forceinline__ float most(int b) const {
        if constexpr (LINEAR)
            return max - (float)(b - 1) * step;
        const uint32_t down = (uint32_t)b << 18;
        return down < float_bits(max) ? bits_float(float_bits(max) - down) : 0.0f;
    }
    __forceinline__ float middle(int b) const {
        const uint32_t down = ((uint32_t)b << 18) + (1u << 17);
        return down < float_bits(max) ? bits_float(float_bits(max) - down) : 0.0f;
    }
};

/* Fills the bins and gives the share of the elements in them, 1 to so many. Neighbouring lanes look
 * at different places of their vectors, which lie in different banks. */
template <class S>
__forceinline__ int take_sample(const row_view &r, select_room *room, const S &scale, float floor) {
    auto offer = [&](float x) {
        if (x >= floor) {
            const int b = scale.bin(x);
            if (b < GUESS_BINS)
                atomicAdd(&room->coarse.guess[b], 1u);
        }
    };
    if (r.end - r.lead < 32768) {
        walk<1>(r, [&](const float(&x)[4], int) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                offer(x[i]);
        });
        return 1;
    }
#pragma unroll 4
    for (int j = r.first + lane_of_warp(); j < r.last; j += 32) {
        const int at = j - r.block_first;
        const int place = 4 * at + (at >> 3 & 3);
        offer(CACHED ? r.cache[place] : element_at(r, 4 * r.block_first + place));
    }
    return 4;
}

/* Adds up the bins of all blocks: each block the same few bins of its peers, which it then pushes
 * to them. */
__forceinline__ void add_bins(select_room *room) {
    cluster_sync<CLUSTER>();
    if constexpr (CLUSTER > 1) {
        constexpr int VECTORS = GUESS_BINS / 4, OWN = VECTORS / CLUSTER;
        const int peer = (int)threadIdx.x / OWN, at = (int)threadIdx.x % OWN;
        const int first = cluster_rank<CLUSTER>() * OWN + at;
        if (threadIdx.x < VECTORS) {
            const two_words w =
                load_peer<CLUSTER>(reinterpret_cast<two_words *>(room->coarse.guess) + first, peer);
            atomicAdd(&room->coarse.part[4 * at], (uint32_t)w.a);
            atomicAdd(&room->coarse.part[4 * at + 1], (uint32_t)(w.a >> 32));
            atomicAdd(&room->coarse.part[4 * at + 2], (uint32_t)w.b);
            atomicAdd(&room->coarse.part[4 * at + 3], (uint32_t)(w.b >> 32));
        }
        __syncthreads();
        if (threadIdx.x < VECTORS)
            store_peer<CLUSTER>(reinterpret_cast<two_words *>(room->coarse.sum) + first, peer,
                                reinterpret_cast<two_words *>(room->coarse.part)[at]);
        cluster_sync<CLUSTER>();
    }
}

/* Which bins hold the target: state->low_bin, and high_bin above which everything counts; 1,024
 * and -1 if the sample cannot tell. */
template <bool MASS, class S>
__forceinline__ void judge_sample(const select_room *room, select_state *state, const S &scale,
                                  int share, float target) {
    const bool here = threadIdx.x < GUESS_BINS / 4;
    const uint32_t *bins = CLUSTER > 1 ? room->coarse.sum : room->coarse.guess;
    uint32_t count[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
        count[i] = here ? bins[4 * threadIdx.x + i] : 0;
    float weight[4], own = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        weight[i] = (float)count[i] * (MASS ? scale.middle(4 * (int)threadIdx.x + i) : 1.0f);
        own += weight[i];
    }
    const float upto = warp_prefix(own);
    if (lane_of_warp() == 31)
        state->mass_part[warp_of_block()] = upto;
    if (threadIdx.x == 0) {
        state->low_bin = GUESS_BINS;
        state->high_bin = -1;
    }
    __syncthreads();
    const int lane = lane_of_warp();
    const float part = lane < WARPS ? state->mass_part[lane] : 0.0f;
    const float total = warp_total(part);
    int low = GUESS_BINS, high = -1;
    float sum = warp_total(lane < warp_of_block() ? part : 0.0f) + upto - own;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int b = 4 * (int)threadIdx.x + i;
        sum += weight[i];
        bool under, over;
        if constexpr (MASS) {
            /* The mass below is what a sample knows well: no single value there is large. */
            const float below = (float)share * fmaxf(total - sum, 0.0f);
            const float slack =
                3.0f * sqrtf((float)(share - 1) * scale.middle(b) * below) + 0.003f * below;
            under = below + slack <= target;
            over = below - slack > target;
        } else {
            const float wanted = target / (float)share;
            const float slack = share == 1 ? 0.0f : 3.0f * sqrtf(wanted) + 4.0f;
            under = sum >= wanted + slack;
            over = sum < wanted - slack;
        }
        low = here && under ? smaller(low, b) : low;
        high = here && over ? b : high;
    }
    /* One atomic a warp: all on one address would wait for each other. */
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        low = smaller(low, __shfl_xor_sync(0xffffffffu, low, step));
        high = larger(high, __shfl_xor_sync(0xffffffffu, high, step));
    }
    if (lane == 0) {
        atomicMin(&state->low_bin, low);
        atomicMax(&state->high_bin, high);
    }
    __syncthreads();
}

/* target: a count, or the mass that lies below. */
template <bool MASS>
__forceinline__ span guess(const row_view &r, select_room *room, select_state *state,
                           const row_stats &s, float target, float floor) {
    constexpr bool LINEAR = !MASS && (LOGITS || SCORES || RANKED);
    guess_scale<LINEAR> scale = {s.max, 0.0f, 0.0f};
    if constexpr (LINEAR) {
        scale.step = (s.max - s.low) * (1.0f / (GUESS_BINS - 1));
        scale.inverse = 1.0f / scale.step;
        floor = fmaxf(floor, s.low);
    }
    for (int i = threadIdx.x; i < GUESS_BINS; i += THREADS)
        room->coarse.guess[i] = 0;
    if (threadIdx.x < GUESS_BINS / CLUSTER)
        room->coarse.part[threadIdx.x] = 0;
    __syncthreads();
    const int share = take_sample(r, room, scale, floor);
    add_bins(room);
    judge_sample<MASS>(room, state, scale, share, target);
    const int low = state->low_bin, high = state->high_bin;
    /* Infinite values spoil a linear scale; then there is no guess. */
    const float most = high < 0 ? INFINITE : scale.most(high + 1);
    return {low < GUESS_BINS ? fmaxf(scale.least(low), floor) : floor,
            is_nan(most) ? INFINITE : most};
}

/* ---- gather ------------------------------------------------------------------------------- */

/* Sets aside the values of the span, and gives their number and the weight above them, both of
 * this warp. */
template <bool MASS>
__forceinline__ uint64_t gather(const row_view &r, select_room *room, span s, mass_unit u,
                                int &count) {
    float *own = room->own[warp_of_block()];
    const uint32_t earlier = (1u << lane_of_warp()) - 1;
    mass_sum sum;
    uint32_t above = 0;
    count = 0;
    walk(r, [&](const float(&x)[4], int) {
        bool in[4];
        float over[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            in[i] = x[i] >= s.low && x[i] <= s.high;
            over[i] = x[i] > s.high ? x[i] : 0.0f;
            if constexpr (!MASS)
                above += x[i] > s.high;
        }
        if constexpr (MASS)
            sum.add4(over, u);
        if (!__any_sync(0xffffffffu, in[0] || in[1] || in[2] || in[3]))
            return;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t lanes = __ballot_sync(0xffffffffu, in[i]);
            const int slot = count + __popc(lanes & earlier);
            if (in[i] && slot < OWN_POOL)
                own[slot] = x[i];
            count += __popc(lanes);
        }
    });
    sum.carry();
    return MASS ? warp_total(sum.total) : warp_total(above);
}

/* ---- what all have set aside -------------------------------------------------------------- */

/* Pushes this warp's values and weight to all blocks. Gives whether all fit, and with them the
 * weight above the range. */
__forceinline__ bool share_gathered(select_room *room, select_state *state, uint64_t own_above,
                                    int count, uint64_t &above) {
    const int lane = lane_of_warp(), warp = warp_of_block(), rank = cluster_rank<CLUSTER>();
    if (lane == 0) {
        state->own_above[warp] = own_above;
        state->count[warp] = count <= OWN_POOL ? count : 2 * POOL;
    }
    __syncthreads();
    const int counts = lane < WARPS ? state->count[lane] : 0;
    const int all = warp_total(counts), first = warp_total(lane < warp ? counts : 0);
    const bool fits = all <= SLOTS;
    if (lane == 0)
        state->first[warp] = first;
#pragma unroll 1
    for (int peer = 0; fits && peer < CLUSTER; peer++)
        for (int i = lane; i < count; i += 32)
            store_peer<CLUSTER>(&room->pool[rank][first + i], peer, room->own[warp][i]);
    const uint64_t block_above = warp_total(lane < WARPS ? state->own_above[lane] : 0);
    if (warp == 0 && lane < CLUSTER)
        store_peer<CLUSTER>(&state->head[rank], lane,
                            {block_above, (uint64_t)(fits ? all : 2 * POOL)});
    cluster_sync<CLUSTER>();
    const two_words head = lane < CLUSTER ? state->head[lane] : two_words{0, 0};
    above = warp_total(head.a);
    return warp_total((int)head.b) <= POOL;
}

/* f(x, block) for the values of the pool, one thread each. */
template <class F>
__forceinline__ void each_listed(const select_room *room, const select_state *state, F f) {
#pragma unroll 1
    for (int i = threadIdx.x; i < POOL; i += THREADS) {
        const int block = i / SLOTS, slot = i % SLOTS;
        if (slot < (int)state->head[block].b)
            f(room->pool[block][slot], block);
    }
}

/* Largest listed value in [low, high] at which the weight reaches want, as descend. */
template <bool MASS>
__forceinline__ bool find_listed(select_room *room, select_state *state, float low, float high,
                                 uint64_t above, uint64_t want, mass_unit u, uint32_t &key) {
    return descend<MASS, false>(
        room, state, [&](auto f) { each_listed(room, state, [&](float x, int) { f(x); }); },
        key_of(low), key_of(high), above, want, u, key);
}

/* Adds up weigh(x) of the listed values, and `scale` times the weights above them: of the row, of
 * the warps before this one, of this warp. */
template <class W>
__forceinline__ place tally_listed(const select_room *room, select_state *state, uint64_t scale,
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

/* The largest t such that the values >= t, none below floor, are at least `want` or have that mass.
 * floor if there is none. few: little is above floor, as it seems. listed: the pool and the heads
 * account for all values from the range up, over which lies the weight `above`. */
template <bool MASS>
__forceinline__ float select(const row_view &r, select_room *room, select_state *state,
                             const row_stats &s, mass_unit u, uint64_t want, float floor, bool few,
                             bool &listed, uint64_t &above) {
    listed = false;
    above = 0;
    if (!(s.max >= floor))
        return floor;
    const bool is_short = r.end - r.lead <= FEW;
    uint32_t key = 0;
    for (bool all = few || is_short;; all = false) {
        span range = {floor, INFINITE};
        /* What an earlier selection has set aside is not read any more. */
        if (all) {
            cluster_sync<CLUSTER>();
        } else {
            __syncthreads();
            const double unit = MASS ? power_of_two(u.exponent - 42) : 1.0;
            const float target = (float)((double)want * unit);
            range = guess<MASS>(r, room, state, s, MASS ? s.total - target : target, floor);
        }
        int count;
        const uint64_t own_above = gather<MASS>(r, room, range, u, count);
        listed = share_gathered(room, state, own_above, count, above);
        const float high = fminf(range.high, s.max);
        if (listed && above < want && range.low <= high) {
            const bool found = find_listed<MASS>(room, state, range.low, high, above, want, u, key);
            if (found || range.low <= floor)
                return found ? value_of(key) : floor;
        }
        listed = false;
        if (!all || is_short)
            break;
    }
    const bool found = descend<MASS, true>(
        room, state,
        [&](auto f) {
            walk<1>(r, [&](const float(&x)[4], int) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    f(x[i]);
            });
        },
        key_of(floor), key_of(s.max), 0, want, u, key);
    return found ? value_of(key) : floor;
}

/* want of a share of a mass, rounded up; more than there can be if it does not fit. */
__forceinline__ uint64_t share_of(float share, double mass) {
    const double want = (double)share * mass;
    return want < 0x1p64 ? __double2ull_ru(want) : ~0ull;
}

#endif
