// SPDX-License-Identifier: Apache-2.0
//
// Softmax of many long rows, one after another: memory sees one read and one write, which is the
// limit. A cluster takes row after row, and each warp has the same stretch of all of them. The copy
// engine brings it to the warp's shared memory, from which it goes to registers at once, so that
// the next row is on its way while this one is worked on. Warps of a row tell each other their
// largest values and their sums by stores that their receivers wait for; no barrier of a block or
// of the cluster stops anybody.

#include "ops/sampling/row_draw.cuh"

constexpr int GROUPS = BOLIDE__ROW_GROUPS;
static_assert(LOGITS && CLUSTER > 1 && !CACHED && PARTS % 32 == 0, "a cluster has a row");

using params = bolide__renorm_params;

/* A lane's part of a row. */
using values = float[GROUPS][4];

struct walk_room {
    uint64_t number[2][PARTS]; /* of each warp, by turns */
    barrier number_come[2], row_come[WARPS];
};

struct walker {
    walk_room *room;
    raw_t *stage;     /* this warp's */
    int first, count; /* vectors of this warp */
    uint32_t row_phase, number_phase[2];
    int turn; /* which numbers are next */
};

/* Ahead of the first barrier of the cluster. */
__forceinline__ walker open_walk(walk_room *room, unsigned char *memory, int64_t v) {
    const int vectors = (int)(v / 4);
    /* Of 16-bit types a pair of vectors makes the 16 bytes of a copy. */
    const int a_warp = ((vectors + PARTS - 1) / PARTS + 1) / 2 * 2;
    walker w = {};
    w.room = room;
    w.stage = reinterpret_cast<raw_t *>(memory) + 32 * GROUPS * warp_of_block();
    w.first = smaller(a_warp * (cluster_rank<CLUSTER>() * WARPS + warp_of_block()), vectors);
    w.count = smaller(a_warp, vectors - w.first);
    if (threadIdx.x == 0) {
        barrier_init(room->number_come[0], 1);
        barrier_init(room->number_come[1], 1);
        for (int i = 0; i < WARPS; i++)
            barrier_init(room->row_come[i], 1);
        fence_barrier_init();
    }
    __syncthreads();
    return w;
}

/* Asks for this warp's stretch of a row. */
__forceinline__ void fetch_row(const walker &w, const params &p, int64_t row) {
    if (lane_of_warp() != 0 || row >= p.n || w.count == 0)
        return;
    barrier &come = w.room->row_come[warp_of_block()];
    const uint32_t bytes = (uint32_t)(w.count * sizeof(raw_t));
    const input_t *from = static_cast<const input_t *>(p.input) + row * p.input_n + 4 * w.first;
    barrier_expect(come, bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(w.stage)),
                 "l"(from), "r"(bytes), "r"(shared_address(&come))
                 : "memory");
}

/* This warp's stretch, what is too large cut; NaN stays, behind the end all are NONE. */
__forceinline__ void take_row(walker &w, values &x) {
    if (w.count > 0)
        barrier_wait(w.room->row_come[warp_of_block()], w.row_phase);
    w.row_phase ^= 1;
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
        const int j = 32 * n + lane_of_warp();
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[n][i] = NONE;
        if (j < w.count) {
            const raw_t raw = w.stage[j];
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[n][i] = clean_above(to_float(raw.at[i]));
        }
    }
    /* Read before the copy engine writes there again. */
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
}

/* Sends a number of each warp to all, and gives where those of the row are. They stay until all
 * have taken part in the next exchange. */
__forceinline__ const uint64_t *tell(walker &w, uint64_t mine) {
    const int turn = w.turn, lane = lane_of_warp();
    barrier &come = w.room->number_come[turn];
    if (threadIdx.x == 0)
        barrier_expect(come, sizeof w.room->number[0]);
    if (lane < CLUSTER)
        send_peer(&w.room->number[turn][cluster_rank<CLUSTER>() * WARPS + warp_of_block()], lane,
                  mine, come);
    wait_peers(come, turn ? w.number_phase[1] : w.number_phase[0]);
    if (turn)
        w.number_phase[1] ^= 1;
    else
        w.number_phase[0] ^= 1;
    w.turn = turn ^ 1;
    return w.room->number[turn];
}

/* Writes f(x, index) for all elements of this warp. */
template <class F>
__forceinline__ void put_row(const walker &w, const params &p, int64_t row, const values &x, F f) {
    float *out = static_cast<float *>(p.out) + row * p.out_n + 4 * w.first;
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
        const int j = 32 * n + lane_of_warp();
        float y[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[i] = f(x[n][i], 4 * (w.first + j) + i);
        if (j < w.count)
            store_stream(out + 4 * j, pack_floats<float>(y));
    }
}

/* The row's largest value. */
__forceinline__ float agree_largest(walker &w, const values &x) {
    float max = NONE, best = NONE;
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
        max = fmaxf(fmaxf(max, fmaxf(x[n][0], x[n][1])), fmaxf(x[n][2], x[n][3]));
    const uint64_t *number = tell(w, float_bits(warp_max(max)));
#pragma unroll
    for (int i = 0; i < PARTS; i += 32)
        best = fmaxf(best, lower(number[i + lane_of_warp()]));
    return warp_max(best);
}

/* A 1 at the first of the largest values, if there is one, and zeros. */
__forceinline__ void put_one_hot(walker &w, const params &p, int64_t row, const values &x,
                                 float max) {
    uint32_t first = ~0u, all = ~0u;
#pragma unroll
    for (int n = GROUPS - 1; n >= 0; n--)
#pragma unroll
        for (int i = 3; i >= 0; i--)
            first = max > -INFINITE && x[n][i] == max
                        ? (uint32_t)(4 * (w.first + 32 * n + lane_of_warp()) + i)
                        : first;
    const uint64_t *number = tell(w, ~warp_max(~first));
#pragma unroll
    for (int i = 0; i < PARTS; i += 32)
        all = smaller(all, (uint32_t)number[i + lane_of_warp()]);
    all = ~warp_max(~all);
    put_row(w, p, row, x, [&](float, int i) { return (uint32_t)i == all ? 1.0f : 0.0f; });
}

__forceinline__ void soften(walker &w, const params &p, int64_t row, values &x) {
    float t = row_float(p.limit, row);
    if (!p.limit.data && is_nan(t))
        t = 1.0f;
    const float max = agree_largest(w, x);
    if (max == -INFINITE || !(t > 0.0f)) {
        put_one_hot(w, p, row, x, max);
        return;
    }
    const mass_unit u = unit_of(1.0f, (int)p.v);
    const float slope = slope_of(t);
    mass_sum sum;
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[n][i] = softened(x[n][i], max, slope);
        sum.add4(x[n], u);
    }
    sum.carry();
    const uint64_t *number = tell(w, warp_total(sum.total));
    uint64_t all = 0;
#pragma unroll
    for (int i = 0; i < PARTS; i += 32)
        all += number[i + lane_of_warp()];
    const float scale = (float)(1.0 / ((double)warp_total(all) * power_of_two(u.exponent - 42)));
    put_row(w, p, row, x, [&](float y, int) { return y * scale; });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bolide_softmax(const __grid_constant__ params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ __align__(16) walk_room room;
    walker w = open_walk(&room, memory, p.v);
    cluster_arrive<CLUSTER>();
    wait_for_previous_kernel();
    const int64_t step = gridDim.x / CLUSTER;
    int64_t row = blockIdx.x / CLUSTER;
    fetch_row(w, p, row);
    cluster_wait<CLUSTER>();
    for (; row < p.n; row += step) {
        values x;
        take_row(w, x);
        fetch_row(w, p, row + step);
        soften(w, p, row, x);
    }
}
