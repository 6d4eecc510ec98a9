// SPDX-License-Identifier: Apache-2.0
//
// What kernels read beside a row, numbers that may differ per row, and the draw: the first element
// at which the kept masses exceed u times their sum.

#ifndef BOLIDE_OPS_SAMPLING_ROW_DRAW_CUH
#define BOLIDE_OPS_SAMPLING_ROW_DRAW_CUH

#include "ops/sampling/row_view.cuh"

__forceinline__ float row_float(const bolide__per_row &p, int64_t row) {
    return p.data ? static_cast<const float *>(p.data)[row * p.step] : (float)p.number;
}

__forceinline__ int64_t id_at(const void *ids, int64_t dtype, int64_t i) {
    return dtype == I32 ? static_cast<const int32_t *>(ids)[i]
                        : static_cast<const int64_t *>(ids)[i];
}

__forceinline__ void put_id(void *ids, int64_t dtype, int64_t i, int64_t id) {
    if (dtype == I32)
        static_cast<int32_t *>(ids)[i] = (int32_t)id;
    else
        static_cast<int64_t *>(ids)[i] = id;
}

__forceinline__ void put_sample(const bolide__sample_params &p, int64_t out, int64_t id,
                                bool valid) {
    put_id(p.samples, p.id_dtype, out, id);
    if (p.valid)
        p.valid[out] = valid;
}

__forceinline__ int64_t row_int(const bolide__per_row &p, int64_t row) {
    return p.data ? id_at(p.data, p.dtype, row * p.step) : p.integer;
}

/* want of a share of a mass, rounded up; more than there can be if it does not fit. */
__forceinline__ uint64_t share_of(float share, double mass) {
    const double want = (double)share * mass;
    return want < 0x1p64 ? __double2ull_ru(want) : ~0ull;
}

/* u of draw n of a row, as an integer: u * 2^53. */
__forceinline__ uint64_t uniform53(const bolide__per_row &seed, const bolide__per_row &offset,
                                   int64_t row, uint32_t n) {
    const random4 w = philox((uint64_t)row_int(seed, row), (uint64_t)row << 32 | n,
                             (uint64_t)row_int(offset, row));
    return ((uint64_t)w.x << 32 | w.y) >> 11;
}

/* What softmax multiplies with, by temperature. */
__forceinline__ float slope_of(float temperature) {
    const float inverse = fmaxf(fminf(1.0f / temperature, LARGEST), bits_float(1));
    return fminf(inverse * LOG2E, LARGEST);
}

/* Softmax's e^((x - max) / temperature), the same bits wherever a row is softened; NaN counts for
 * nothing. Its relative error grows with the distance, but what is far is small beside the sum. */
__forceinline__ float softened(float x, float max, float slope) {
    return exp2_fast(fmaxf((x - max) * slope, -INFINITE));
}

/* Vector j of this warp, which another pass has read before. */
__forceinline__ void look_at(const row_view &r, int j, float (&x)[4]) {
    if constexpr (CACHED) {
        const float4 v = *cached_vector(r, j);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = element_at(r, 4 * j + i);
    }
}

__forceinline__ uint64_t vector_mass(const row_view &r, int j, float least, mass_unit u) {
    float x[4];
    uint64_t sum = 0;
    if (j >= r.last)
        return 0;
    look_at(r, j, x);
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += x[i] >= least ? mass_of(x[i], u) : 0;
    return sum;
}

__forceinline__ int find_in_vector(const row_view &r, int j, float least, mass_unit u, uint64_t sum,
                                   uint64_t goal) {
    float x[4];
    int id = -1;
    look_at(r, j, x);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum += x[i] >= least ? mass_of(x[i], u) : 0;
        if (sum > goal && id < 0)
            id = 4 * j + i - r.lead;
    }
    return id;
}

/* The element of this warp at which the sum of the masses of values >= least, begun with `sum`,
 * exceeds goal; -1 if it does not. The same in all lanes. */
__forceinline__ int find_mass(const row_view &r, float least, mass_unit u, uint64_t sum,
                              uint64_t goal) {
    /* First the vector, groups of 32 whose sums do not wait for each other. */
    constexpr int N = LOGITS ? 1 : 2;
    const int lane = lane_of_warp();
    for (int begin = r.first; begin < r.last; begin += 32 * N) {
        uint64_t upto[N];
#pragma unroll
        for (int n = 0; n < N; n++)
            upto[n] = warp_prefix(vector_mass(r, begin + 32 * n + lane, least, u));
        int vector = -1;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint64_t group = __shfl_sync(0xffffffffu, upto[n], 31);
            const uint32_t lanes = __ballot_sync(0xffffffffu, sum + upto[n] > goal);
            const int first = larger(__ffs(lanes) - 1, 0);
            const uint64_t below = __shfl_sync(0xffffffffu, upto[n], larger(first - 1, 0));
            const bool here = vector < 0 && lanes != 0;
            vector = here ? begin + 32 * n + first : vector;
            sum += here ? (first ? below : 0) : vector < 0 ? group : 0;
        }
        if (vector >= 0)
            return find_in_vector(r, vector, least, u, sum, goal);
    }
    return -1;
}

/* The first element of this warp that is >= least, or -1. The same in all lanes. */
__forceinline__ int find_value(const row_view &r, float least) {
    int found = -1;
    walk<1>(r, [&](const float(&x)[4], int j) {
        if (found >= 0)
            return;
        int id = -1;
#pragma unroll
        for (int i = 3; i >= 0; i--)
            id =
                x[i] >= least && 4 * j + i >= r.lead && 4 * j + i < r.end ? 4 * j + i - r.lead : id;
        const uint32_t lanes = __ballot_sync(0xffffffffu, id >= 0);
        if (lanes)
            found = __shfl_sync(0xffffffffu, id, __ffs(lanes) - 1);
    });
    return found;
}

/* The first element of the row that is >= least; length of the row if there is none. */
__forceinline__ int first_of_row(const row_view &r, exchange &e, float least) {
    const int own = find_value(r, least);
    const uint64_t none = (uint64_t)(r.end - r.lead);
    return (int)
        e.meet({own < 0 ? none : (uint64_t)own, 0}, {none, 0}, [](two_words x, two_words y) {
             return two_words{smaller(x.a, y.a), 0};
         }).all.a;
}

/* The sum of the numbers of the warps before this one. */
__forceinline__ uint64_t before_warp(boards *board, uint64_t mine) {
    const int lane = lane_of_warp(), warp = warp_of_block();
    if (lane == 0)
        board->part[warp] = mine;
    __syncthreads();
    return warp_total(lane < warp ? board->part[lane % WARPS] : 0);
}

/* The element of this part at which the masses of the parts exceed the goal, -1 in the other warps.
 * What is read once to add it up is still in registers as a rule when it is searched. */
__forceinline__ int find_part(const row_view &part, boards *board, float least, mass_unit u,
                              uint64_t goal) {
    constexpr int N = LOGITS && !SOLO ? 2 : 4;
    const bool once = part.last - part.first <= 32 * N;
    batch<N> b;
    uint64_t before = 0;
#pragma unroll 1
    for (int turn = 0; turn < 2; turn++) {
        uint64_t sum = before;
#pragma unroll 1
        for (int begin = part.first; begin < part.last; begin += 32 * N) {
            if (turn == 0 || !once)
                b.read(part, [&](int n) { return begin + 32 * n; });
#pragma unroll
            for (int n = 0; n < N; n++) {
                float x[4];
                uint64_t own = 0;
                b.unpack(part, n, x);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    own += x[i] >= least ? mass_of(x[i], u) : 0;
                const uint64_t upto = sum + warp_prefix(own);
                const uint32_t lanes = turn == 0 ? 0 : __ballot_sync(0xffffffffu, upto > goal);
                if (lanes) {
                    const int first = __ffs((int)lanes) - 1;
                    uint64_t all = upto - own;
                    int at = -1;
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        all += x[i] >= least ? mass_of(x[i], u) : 0;
                        at = at < 0 && all > goal ? i : at;
                    }
                    at = __shfl_sync(0xffffffffu, at, first);
                    return 4 * (begin + 32 * n + first) + at - part.lead;
                }
                sum = __shfl_sync(0xffffffffu, upto, 31);
            }
        }
        if (turn == 0) {
            before = board->before + before_warp(board, sum);
            if (before > goal || before + sum <= goal)
                return -1;
        }
    }
    return -1;
}

/* Draws from the masses of values >= least, of which this warp has `own` and others p: done(id) is
 * called by one thread of the cluster, unless there is no mass. The stretch that holds the goal is
 * shared out among the warps of its block. */
template <class F>
__forceinline__ void draw(const row_view &r, exchange &e, const place &p, float least, mass_unit u,
                          uint64_t own, uint64_t uniform, F done) {
    const uint64_t goal = __umul64hi(uniform << 11, p.total);
    const int lane = lane_of_warp(), warp = warp_of_block();
    boards *board = e.shared;
    if (threadIdx.x == 0)
        board->hit = -1;
    __syncthreads();
    if (lane == 0 && p.total > 0 && p.before <= goal && p.before + own > goal) {
        board->hit = warp;
        board->before = p.before;
    }
    __syncthreads();
    if (board->hit < 0)
        return;
    const shares s = shares_of(r.end);
    const int begin = smaller(s.first + s.stretch * board->hit, s.last);
    const int end = smaller(begin + s.stretch, s.last), a_warp = (s.stretch + WARPS - 1) / WARPS;
    row_view part = r;
    part.first = smaller(begin + a_warp * warp, end);
    part.last = smaller(part.first + a_warp, end);
    int id = -1;
    if constexpr (CACHED) {
        const uint64_t sum = sum_row(part, least, u);
        const uint64_t before = board->before + before_warp(board, sum);
        if (before <= goal && before + sum > goal)
            id = find_mass(part, least, u, before, goal);
    } else {
        id = find_part(part, board, least, u, goal);
    }
    if (id >= 0 && lane == 0)
        done(id);
}

#endif
