// SPDX-License-Identifier: Apache-2.0
//
// A row of the sampling kernels as the blocks of a cluster see it. A cluster has one row, and each
// warp of a block owns a stretch of neighbouring elements. With CACHED 0 passes read memory (or L2)
// again; with CACHED 1 each block keeps its part of the row in shared memory, widened to f32 and
// cleaned.
//
// Vectors of four elements are aligned in memory whatever the row's address is: the row begins
// `lead` elements into the first one, and elements outside the row are NONE, which has no mass and
// is never counted.
//
//     row      |lead| 0 1 2 ...                                                  v-1 |
//     vectors   [0   ][1   ][2   ] ...
//     blocks    <------ rank 0 ------><------ rank 1 ------><-- ...
//     warps     < 0 ><  1  >< ...
//
// Sums of masses are integers: a mass counts in steps of 2^-42 of the power of two above the row's
// largest, so a sum has the same bits in whatever order and over however many blocks it is taken.

#ifndef BOLIDE_OPS_SAMPLING_ROW_VIEW_CUH
#define BOLIDE_OPS_SAMPLING_ROW_VIEW_CUH

#include "cuda/device/base.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/sampling/sampling_internal.h"

#if !defined(SPEC_INPUT) || !defined(SPEC_KIND) || !defined(SPEC_CLUSTER) ||                       \
    !defined(SPEC_CACHED) || !defined(SPEC_SOLO)
#error                                                                                             \
    "INPUT: dtype bit; KIND: row_kind; CLUSTER: blocks a row; CACHED: 1 if they hold the row; SOLO"
#endif
constexpr int64_t INPUT = SPEC_INPUT;
constexpr int KIND = SPEC_KIND;
constexpr int CLUSTER = SPEC_CLUSTER; /* 1, or a power of two up to 16 from 9.0 on */
constexpr bool CACHED = SPEC_CACHED;
constexpr bool SOLO = SPEC_SOLO; /* a multiprocessor has one block, with twice the registers */
static_assert(CLUSTER == 1 || ARCH == 0 || ARCH >= 90, "clusters need 9.0");

constexpr bool PROBS = KIND == BOLIDE__ROW_PROBS, LOGITS = KIND == BOLIDE__ROW_LOGITS,
               SCORES = KIND == BOLIDE__ROW_SCORES, RANKED = KIND == BOLIDE__ROW_RANKED,
               RESIDUAL = KIND == BOLIDE__ROW_RESIDUAL;
constexpr int THREADS = BOLIDE__ROW_THREADS, WARPS = THREADS / 32;
constexpr int PARTS = CLUSTER * WARPS; /* warps of a row */
/* NaN compares with nothing. */
constexpr float NONE = RANKED             ? __builtin_bit_cast(float, 0x7fc00000)
                       : LOGITS || SCORES ? -INFINITE
                                          : 0.0f;
constexpr float LARGEST = __builtin_bit_cast(float, 0x7f7fffff);

using input_t = element<INPUT>::type;
using raw_t = pack<input_t, 4>;

/* How logits become masses: exp((x - max) * inverse) where x >= keep, else 0. */
struct weighing {
    float keep, max, inverse;
};

struct row_view {
    const input_t *base;  /* aligned to a vector; the row is [lead, end) of it */
    const input_t *minus; /* RESIDUAL: what is subtracted, in the same places */
    int lead, end;
    int first, last; /* vectors of this warp */
    int block_first; /* first vector of this block, at the beginning of the cache */
    float *cache;
    /* Once weighed, values are masses: in the cache, which is rewritten, or as they are read. */
    const weighing *weights;
    bool weighed;
};

/* Numbers whose order is that of the values. */
__forceinline__ uint32_t key_of(float x) {
    const uint32_t bits = float_bits(x + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__forceinline__ float value_of(uint32_t key) {
    return bits_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

/* ---- opening ------------------------------------------------------------------------------ */

__forceinline__ int warp_of_block() {
    return threadIdx.x / 32;
}

__forceinline__ int lane_of_warp() {
    return threadIdx.x % 32;
}

/* How the vectors of a row are shared out. */
struct shares {
    int first, last; /* vectors of this block */
    int stretch;     /* vectors of a warp, but for the last ones */
};

__forceinline__ shares shares_of(int end) {
    const int vectors = (int)ceil_div(end, 4);
    const int a_block = (vectors + CLUSTER - 1) / CLUSTER,
              first = a_block * cluster_rank<CLUSTER>();
    /* Whole groups of 32, and of 128 where there are many: their loads take no branch. */
    int stretch = (a_block + WARPS - 1) / WARPS;
    stretch = stretch > 512  ? (stretch + 127) / 128 * 128
              : stretch > 96 ? (stretch + 31) / 32 * 32
                             : stretch;
    return {first, larger(first, smaller(first + a_block, vectors)), stretch};
}

row_view open_row(const input_t *row, const input_t *minus, int64_t v, float *cache) {
    row_view r = {};
    r.lead = (int)((uintptr_t)row / sizeof(input_t) % 4);
    /* Kept as it is, not computed anew from an address that would be kept. */
    asm volatile("" : "+r"(r.lead));
    r.base = row - r.lead;
    /* One number from here on, not the two that it is the sum of. */
    asm volatile("" : "+l"(r.base));
    r.minus = minus ? minus - r.lead : nullptr;
    r.end = r.lead + (int)v;
    r.cache = cache;
    const shares s = shares_of(r.end);
    r.block_first = s.first;
    r.first = smaller(s.first + s.stretch * warp_of_block(), s.last);
    r.last = smaller(r.first + s.stretch, s.last);
    return r;
}

/* How a kernel begins, ahead of all it reads. One row leaves multiprocessors for the next kernel;
 * beside many its blocks would come to lie unevenly. */
__forceinline__ void begin_kernel() {
    if constexpr (CLUSTER == BOLIDE__ROW_BLOCKS)
        release_next_kernel();
    wait_for_previous_kernel();
}

/* ---- elements ----------------------------------------------------------------------------- */

__forceinline__ float clean(float x) {
    if constexpr (LOGITS)
        return fminf(fmaxf(x, -INFINITE), LARGEST) + 0.0f;
    else if constexpr (SCORES)
        return fmaxf(x, -INFINITE);
    else if constexpr (RANKED)
        return x;
    else
        return fminf(fmaxf(x, 0.0f), LARGEST);
}

/* For comparisons with a bound that is above what counts for nothing: NaN and what is negative may
 * stay as they are, for they are not above it. Half the instructions. */
__forceinline__ float clean_above(float x) {
    if constexpr (ARCH < 80 || RESIDUAL) {
        return clean(x);
    } else if constexpr (PROBS || LOGITS) {
        float y;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(LARGEST));
        return y;
    } else {
        return x;
    }
}

/* Vector j as it lies in memory; elements outside the row are NONE. */
__forceinline__ raw_t read_raw(const row_view &r, const input_t *base, int j) {
    const int at = 4 * j;
    raw_t raw;
    if (at >= r.lead && at + 4 <= r.end) {
        raw = load<raw_t>(base + at);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            raw.at[i] =
                at + i >= r.lead && at + i < r.end ? base[at + i] : from_float<input_t>(NONE);
    }
    return raw;
}

/* The same for a row whose vectors are not aligned. */
__forceinline__ raw_t read_unaligned(const row_view &r, const input_t *base, int j) {
    const int at = 4 * j;
    raw_t raw;
#pragma unroll
    for (int i = 0; i < 4; i++)
        raw.at[i] = at + i >= r.lead && at + i < r.end ? base[at + i] : from_float<input_t>(NONE);
    return raw;
}

/* e^y of y <= 0 within 3 ulp; 0 where it is below 2^-125. */
__forceinline__ float exp_down(float y) {
    constexpr float LOG2E_REST = 1.925963033e-8f;
    const float z = fmaf(y, LOG2E, 0x1.8p23f), whole = z - 0x1.8p23f;
    const float part = fmaf(y, LOG2E_REST, fmaf(y, LOG2E, -whole));
    const float e = bits_float(float_bits(exp2_fast(part)) + (float_bits(z) << 23));
    return y < -86.0f ? 0.0f : e;
}

__forceinline__ float weight_of(const weighing &w, float x) {
    return x >= w.keep ? exp_down((x - w.max) * w.inverse) : 0.0f;
}

/* N vectors of this lane; behind the last of the warp they are NONE. */
template <int N> struct batch {
    raw_t raw[N], other[RESIDUAL ? N : 1];

    /* at(n): the first vector of group n, of which there is one for each lane; it grows with n.
     * Loads without branches between them are under way together. */
    template <class A> __forceinline__ void read(const row_view &r, A at) {
        const int lane = lane_of_warp(), last = at(N - 1) + 32;
        if (!RESIDUAL && 4 * at(0) >= r.lead && last <= r.last && 4 * last <= r.end) {
#pragma unroll
            for (int n = 0; n < N; n++)
                raw[n] = load<raw_t>(r.base + 4 * (int64_t)(at(n) + lane));
            return;
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int j = at(n) + lane;
#pragma unroll
            for (int i = 0; i < 4; i++)
                raw[n].at[i] = from_float<input_t>(NONE);
            if constexpr (RESIDUAL)
                other[n] = raw[n];
            if (j < r.last) {
                raw[n] = read_raw(r, r.base, j);
                if constexpr (RESIDUAL) {
                    if (r.minus)
                        other[n] = read_unaligned(r, r.minus, j);
                }
            }
        }
    }

    /* ABOVE: for comparisons with such a bound. */
    template <bool ABOVE = false>
    __forceinline__ void unpack(const row_view &r, int n, float (&x)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float y = to_float(raw[n].at[i]);
            x[i] = ABOVE ? clean_above(y) : clean(y);
            if constexpr (RESIDUAL)
                x[i] = fmaxf(x[i] - clean(to_float(other[n].at[i])), 0.0f);
            if constexpr (LOGITS && !CACHED) {
                if (r.weighed)
                    x[i] = weight_of(*r.weights, x[i]);
            }
        }
    }
};

/* The same row. Addresses in it are then computed where they are used, and not kept in registers
 * through everything that comes before. */
__forceinline__ row_view here(row_view r) {
    asm volatile("" : "+l"(r.base));
    return r;
}

/* Passes all vectors of this warp to f(x, j), from memory, N loads at a time, after which done() is
 * called. All lanes call f equally often; behind the last vector x is NONE. */
template <int N, bool ABOVE = false, class F, class D>
__forceinline__ void walk_memory(const row_view &row, F f, D done) {
    const row_view r = here(row);
    for (int begin = r.first; begin < r.last; begin += 32 * N) {
        batch<N> now;
        now.read(r, [&](int n) { return begin + 32 * n; });
#pragma unroll
        for (int n = 0; n < N; n++) {
            float x[4];
            now.template unpack<ABOVE>(r, n, x);
            f(x, begin + 32 * n + lane_of_warp());
        }
        done();
    }
}

template <int N, bool ABOVE = false, class F>
__forceinline__ void walk_memory(const row_view &row, F f) {
    walk_memory<N, ABOVE>(row, f, [] {});
}

/* One element of a vector without a cache. */
__forceinline__ float element_at(const row_view &r, int at) {
    if (at < r.lead || at >= r.end)
        return r.weighed ? 0.0f : NONE;
    float x = clean(to_float(r.base[at]));
    if constexpr (RESIDUAL)
        x = r.minus ? fmaxf(x - clean(to_float(r.minus[at])), 0.0f) : x;
    if constexpr (LOGITS)
        x = r.weighed ? weight_of(*r.weights, x) : x;
    return x;
}

__forceinline__ float4 *cached_vector(const row_view &r, int j) {
    return reinterpret_cast<float4 *>(r.cache) + (j - r.block_first);
}

/* The same for every pass but the first; N of 1 where it is rare and should be little code. */
template <int N = 2, class F, class D> __forceinline__ void walk(const row_view &r, F f, D done) {
    if constexpr (!CACHED) {
        walk_memory<N == 1 ? 1 : RESIDUAL ? 2 : 4>(r, f, done);
    } else {
        const int lane = lane_of_warp();
        const float none = r.weighed ? 0.0f : NONE;
        for (int begin = r.first; begin < r.last; begin += 32 * N) {
            float4 v[N];
#pragma unroll
            for (int n = 0; n < N; n++) {
                const int j = begin + 32 * n + lane;
                v[n] = j < r.last ? *cached_vector(r, j) : float4{none, none, none, none};
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float x[4] = {v[n].x, v[n].y, v[n].z, v[n].w};
                f(x, begin + 32 * n + lane);
            }
            done();
        }
    }
}

template <int N = 2, class F> __forceinline__ void walk(const row_view &r, F f) {
    walk<N>(r, f, [] {});
}

__forceinline__ void keep_vector(const row_view &r, int j, const float (&x)[4]) {
    if (CACHED && j < r.last)
        *cached_vector(r, j) = float4{x[0], x[1], x[2], x[3]};
}

/* ---- what warps of a row have in common ---------------------------------------------------- */

/* One instruction for the warp, where five exchanges would wait for each other. */
__forceinline__ uint32_t redux_add(uint32_t x) {
    uint32_t sum;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(sum) : "r"(x));
    return sum;
}

template <class T> __forceinline__ T warp_total(T x) {
    constexpr bool REDUX = ARCH >= 80 && T(0.5f) == T(0);
    if constexpr (REDUX && sizeof(T) == 4) {
        return (T)redux_add((uint32_t)x);
    } else if constexpr (REDUX && sizeof(T) == 8) {
        /* Three parts whose sums fit a word each. */
        const uint64_t low = redux_add((uint32_t)x & 0x3fffff),
                       middle = redux_add((uint32_t)(x >> 22) & 0x3fffff),
                       high = redux_add((uint32_t)(x >> 44));
        return (T)(low + (middle << 22) + (high << 44));
    } else {
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            x += __shfl_xor_sync(0xffffffffu, x, step);
        return x;
    }
}

__forceinline__ uint32_t warp_max(uint32_t x) {
    if constexpr (ARCH >= 80) {
        uint32_t max;
        asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(max) : "r"(x));
        return max;
    } else {
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            x = larger(x, __shfl_xor_sync(0xffffffffu, x, step));
        return x;
    }
}

/* The largest value; NaN counts as none. */
__forceinline__ float warp_max(float x) {
    if constexpr (PROBS || RESIDUAL)
        return bits_float(warp_max(float_bits(x)));
    return value_of(warp_max(RANKED && is_nan(x) ? 0u : key_of(x)));
}

/* Sum over this lane and those before it. */
template <class T> __forceinline__ T warp_prefix(T x) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const T below = __shfl_up_sync(0xffffffffu, x, step);
        x += lane_of_warp() >= step ? below : 0;
    }
    return x;
}

/* Two boards take turns: who writes the one has seen all arrive at the barrier behind which the
 * other was read. */
struct boards {
    two_words warp[2][WARPS];    /* of this block */
    two_words block[2][CLUSTER]; /* of all, pushed by each */
    int turn[WARPS];             /* which of them is next, each warp knows for itself */
    /* Of a draw in this block: whose stretch holds the goal, -1 if nobody's, and the masses before
     * it and of its parts. */
    int hit;
    uint64_t before, part[WARPS];
};

/* What the warps of a row have in common, and what those before this one have. */
struct joined {
    two_words all, before;
};

/* A block may not be written to before it runs: all arrive when they open the exchange, and wait at
 * its first use, or at last before they leave. What peers push has arrived at the barrier behind
 * it, so nobody waits there for others. */
struct exchange {
    boards *shared;
    bool waited;

    __forceinline__ void open(boards *b) {
        *this = {b, false};
        if (lane_of_warp() == 0)
            b->turn[warp_of_block()] = 0;
        __syncwarp();
        cluster_arrive<CLUSTER>();
    }

    __forceinline__ void wait() {
        if (!waited)
            cluster_wait<CLUSTER>();
        waited = true;
    }

    /* Joins two words of each warp, the same in all its lanes; join is associative and does not
     * depend on the order. */
    template <class J> __forceinline__ joined meet(two_words mine, two_words none, J join) {
        const int lane = lane_of_warp(), warp = warp_of_block(), turn = shared->turn[warp];
        __syncwarp();
        if (lane == 0) {
            shared->warp[turn][warp] = mine;
            shared->turn[warp] = turn ^ 1;
        }
        __syncthreads();
        const two_words own = lane < WARPS ? shared->warp[turn][lane] : none;
        joined j = {over_lanes(own, join), over_lanes(lane < warp ? own : none, join)};
        if constexpr (CLUSTER > 1) {
            const int rank = cluster_rank<CLUSTER>();
            wait();
            if (warp == 0 && lane < CLUSTER)
                store_peer<CLUSTER>(&shared->block[turn][rank], lane, j.all);
            cluster_sync<CLUSTER>();
            const two_words peer = lane < CLUSTER ? shared->block[turn][lane] : none;
            j.all = over_lanes(peer, join);
            j.before = join(j.before, over_lanes(lane < rank ? peer : none, join));
        }
        return j;
    }

    template <class J> __forceinline__ static two_words over_lanes(two_words x, J join) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            x = join(x, two_words{__shfl_xor_sync(0xffffffffu, x.a, step),
                                  __shfl_xor_sync(0xffffffffu, x.b, step)});
        return x;
    }
};

/* The floats in a word. */
__forceinline__ float lower(uint64_t x) {
    return bits_float((uint32_t)x);
}

__forceinline__ float upper(uint64_t x) {
    return bits_float((uint32_t)(x >> 32));
}

/* The largest of a number of each warp, the same in all lanes. */
__forceinline__ float join_max(exchange &e, float mine) {
    const uint64_t none = float_bits(NONE);
    return lower(e.meet({float_bits(mine), 0}, {none, 0}, [](two_words x, two_words y) {
                      return two_words{float_bits(fmaxf(lower(x.a), lower(y.a))), 0};
                  }).all.a);
}

struct place {
    uint64_t before, total; /* of the warps before this one, and of all */
};

/* Adds up a number of each warp, the same in all lanes, over the row. */
__forceinline__ place add_up(exchange &e, uint64_t mine) {
    const joined j = e.meet({mine, 0}, {0, 0}, [](two_words x, two_words y) {
        return two_words{x.a + y.a, 0};
    });
    return {j.before.a, j.all.a};
}

/* ---- mass --------------------------------------------------------------------------------- */

/* The unit of masses: 2^exponent is above the largest one. */
struct mass_unit {
    int exponent;
    float scale; /* 2^(20 - exponent) */
};

/* Sums of 2^22 elements fit 64 bits; a longer row has a larger unit. */
__forceinline__ mass_unit unit_of(float largest, int length) {
    int exponent = (int)(float_bits(largest) >> 23) - 126;
    if (length > 1 << 22)
        exponent += 10 - __clz(length - 1);
    exponent = smaller(larger(exponent, -107), 140);
    return {exponent, bits_float((uint32_t)(147 - exponent) << 23)};
}

/* Whether a row with this largest value may be summed in these units. */
__forceinline__ bool suits(mass_unit u, float max) {
    const int exponent = (int)(float_bits(max) >> 23) - 126;
    return exponent <= u.exponent && exponent > u.exponent - 21;
}

__forceinline__ double power_of_two(int e) {
    return __longlong_as_double((long long)(1023 + e) << 52);
}

/* x in units, rounded to the nearest: 20 bits through the first sum, 22 below through the second.
 */
__forceinline__ uint64_t mass_of(float x, mass_unit u) {
    const float high = fmaf(x, u.scale, 0x1p23f);
    const float rest = fmaf(x, u.scale, -(high - 0x1p23f));
    const float low = fmaf(rest, 0x1p22f, 0x1.8p23f);
    return (uint64_t)(int64_t)(int32_t)(float_bits(high) - 0x4b000000u) * (1u << 22) +
           (uint64_t)(int64_t)(int32_t)(float_bits(low) - 0x4b400000u);
}

/* The same added up over elements of a thread, in 32-bit words that are carried in time. */
struct mass_sum {
    uint32_t high = 0, low = 0, count = 0;
    uint64_t total = 0;

    __forceinline__ void add(float x, mass_unit u) {
        const float h = fmaf(x, u.scale, 0x1p23f);
        const float rest = fmaf(x, u.scale, -(h - 0x1p23f));
        high += float_bits(h);
        low += float_bits(fmaf(rest, 0x1p22f, 0x1.8p23f));
        count++;
    }

    /* After 1,024 elements at the latest. */
    __forceinline__ void carry() {
        total += (uint64_t)(high - count * 0x4b000000u) << 22;
        total += (uint64_t)(int64_t)(int32_t)(low - count * 0x4b400000u);
        high = low = count = 0;
    }

    __forceinline__ void add4(const float (&x)[4], mass_unit u) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            add(x[i], u);
    }

    /* After every 16 elements or fewer. */
    __forceinline__ void carry_in_time() {
        if (count > 1008)
            carry();
    }
};

/* ---- the first pass ----------------------------------------------------------------------- */

/* Reads the row and gives its largest value, NONE if there is none. */
__forceinline__ float read_row(const row_view &r, exchange &e) {
    float max = NONE;
    walk_memory<!LOGITS  ? 2
                : CACHED ? 4
                         : 1>(r, [&](const float(&x)[4], int j) {
        keep_vector(r, j, x);
        max = fmaxf(max, fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])));
    });
    return join_max(e, warp_max(max));
}

/* This warp's sum of the masses of values >= least. */
__forceinline__ uint64_t sum_row(const row_view &r, float least, mass_unit u) {
    mass_sum sum;
    auto add = [&](const float(&x)[4], int) {
        float y[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[i] = x[i] >= least ? x[i] : 0.0f;
        sum.add4(y, u);
    };
    auto carry = [&] { sum.carry_in_time(); };
    if constexpr (CACHED)
        walk(r, add, carry);
    else
        walk_memory<LOGITS ? 1 : 2>(r, add, carry);
    sum.carry();
    return warp_total(sum.total);
}

#endif
