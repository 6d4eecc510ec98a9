// SPDX-License-Identifier: Apache-2.0
//
// Softmax of many long rows: memory sees one read and one write. A cluster of eight blocks takes row
// after row, and each warp has the same stretch of all of them. The copy engine brings it to the
// warp's shared memory, from which it goes to registers at once, so that the next row is on its way
// while this one is worked on. Warps of a row tell each other their largest values and their sums
// by stores that their receivers wait for; no barrier of a block or of the cluster stops anybody.

#include "ops/sampling/row_draw.cuh"

#if !defined(SPEC_GROUPS)
#error "GROUPS: vectors of a lane, 4, 8 or 16"
#endif
constexpr int GROUPS = SPEC_GROUPS;
static_assert(LOGITS && CLUSTER == 8 && !CACHED, "eight blocks have a row");

using params = bolide__renorm_params;

/* What the warps of a row send each other. */
struct exchange_room {
    float largest[PARTS];
    uint64_t sum[PARTS];
    barrier largest_come, sums_come;
    barrier row_come[WARPS];
};

struct walker {
    exchange_room *room;
    raw_t *stage; /* this warp's */
    int first, count; /* vectors of this warp */
    uint32_t phase;
};

/* Asks for this warp's stretch of a row. */
__forceinline__ void fetch(const walker &w, const params &p, int64_t row) {
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

/* This warp's stretch; NaN stays, and behind its end -inf. */
__forceinline__ void take(const walker &w, float (&x)[GROUPS][4]) {
    if (w.count > 0)
        barrier_wait(w.room->row_come[warp_of_block()], w.phase);
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
        const int j = 32 * n + lane_of_warp();
        if (j < w.count) {
            const raw_t raw = w.stage[j];
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[n][i] = clean_above(to_float(raw.at[i]));
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[n][i] = -INFINITE;
        }
    }
    /* Read before the copy engine writes there again. */
    __syncwarp();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The row's largest value. */
__forceinline__ float agree_largest(const walker &w, const float (&x)[GROUPS][4]) {
    constexpr int PER = PARTS / 32;
    const int lane = lane_of_warp();
    float max = -INFINITE;
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
        max = fmaxf(fmaxf(max, fmaxf(x[n][0], x[n][1])), fmaxf(x[n][2], x[n][3]));
    max = warp_max(max);
    if (lane < CLUSTER)
        send_peer(&w.room->largest[cluster_rank<CLUSTER>() * WARPS + warp_of_block()], lane, max,
                  w.room->largest_come);
    wait_peers(w.room->largest_come, w.phase);
    const float4 all = reinterpret_cast<const float4 *>(w.room->largest)[lane];
    static_assert(PER == 4, "a vector a lane");
    return warp_max(fmaxf(fmaxf(all.x, all.y), fmaxf(all.z, all.w)));
}

/* A number of each warp goes to all. */
__forceinline__ void send_number(const walker &w, uint64_t mine) {
    if (lane_of_warp() < CLUSTER)
        send_peer(&w.room->sum[cluster_rank<CLUSTER>() * WARPS + warp_of_block()], lane_of_warp(),
                  mine, w.room->sums_come);
    wait_peers(w.room->sums_come, w.phase);
}

__forceinline__ void put_row(const walker &w, const params &p, int64_t row,
                             const float (&y)[GROUPS][4], float scale) {
    float *out = static_cast<float *>(p.out) + row * p.out_n + 4 * w.first;
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
        const int j = 32 * n + lane_of_warp();
        if (j < w.count)
            store_stream(out + 4 * j, float4{y[n][0] * scale, y[n][1] * scale, y[n][2] * scale,
                                             y[n][3] * scale});
    }
}

/* A 1 at the first of the largest values, if there is one, and zeros. */
__forceinline__ void put_one_hot(const walker &w, const params &p, int64_t row,
                                 float (&x)[GROUPS][4], float max) {
    const int lane = lane_of_warp();
    uint32_t first = ~0u;
#pragma unroll
    for (int n = GROUPS - 1; n >= 0; n--)
#pragma unroll
        for (int i = 3; i >= 0; i--)
            first = max > -INFINITE && x[n][i] == max
                        ? (uint32_t)(4 * (w.first + 32 * n + lane) + i)
                        : first;
    send_number(w, ~warp_max(~first));
    uint32_t all = ~0u;
#pragma unroll
    for (int i = 0; i < PARTS / 32; i++)
        all = smaller(all, (uint32_t)w.room->sum[32 * i + lane]);
    all = ~warp_max(~all);
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[n][i] = (uint32_t)(4 * (w.first + 32 * n + lane) + i) == all ? 1.0f : 0.0f;
    put_row(w, p, row, x, 1.0f);
}

__forceinline__ void soften(walker &w, const params &p, int64_t row, int64_t next) {
    float x[GROUPS][4], t = row_float(p.limit, row);
    if (!p.limit.data && is_nan(t))
        t = 1.0f;
    take(w, x);
    fetch(w, p, next);
    const float max = agree_largest(w, x);
    if (max == -INFINITE || !(t > 0.0f)) {
        put_one_hot(w, p, row, x, max);
        return;
    }
    const mass_unit u = unit_of(1.0f, (int)p.v);
    const float inverse = fmaxf(fminf(1.0f / t, LARGEST), bits_float(1));
    const float slope = fminf(inverse * LOG2E, LARGEST);
    mass_sum sum;
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            /* NaN counts for nothing. */
            x[n][i] = exp2_fast(fmaxf((x[n][i] - max) * slope, -INFINITE));
        sum.add4(x[n], u);
    }
    sum.carry();
    send_number(w, warp_total(sum.total));
    uint64_t all = 0;
#pragma unroll
    for (int i = 0; i < PARTS / 32; i++)
        all += w.room->sum[32 * i + lane_of_warp()];
    put_row(w, p, row, x,
            (float)(1.0 / ((double)warp_total(all) * power_of_two(u.exponent - 42))));
}

extern "C" __global__ void __launch_bounds__(THREADS, GROUPS > 8 ? 1 : 2)
    bolide_softmax(const __grid_constant__ params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ __align__(16) exchange_room room;
    const int vectors = (int)(p.v / 4), a_warp = (vectors + PARTS - 1) / PARTS;
    walker w = {};
    w.room = &room;
    w.stage = reinterpret_cast<raw_t *>(memory) + 32 * GROUPS * warp_of_block();
    /* Of 16-bit types a pair of vectors makes the 16 bytes of a copy. */
    const int whole = (a_warp + 1) / 2 * 2;
    w.first = smaller(whole * (cluster_rank<CLUSTER>() * WARPS + warp_of_block()), vectors);
    w.count = smaller(whole, vectors - w.first);
    if (threadIdx.x == 0) {
        barrier_init(room.largest_come, 1);
        barrier_init(room.sums_come, 1);
        for (int i = 0; i < WARPS; i++)
            barrier_init(room.row_come[i], 1);
        fence_barrier_init();
    }
    __syncthreads();
    cluster_arrive<CLUSTER>();
    release_next_kernel();
    wait_for_previous_kernel();
    const int64_t step = gridDim.x / CLUSTER;
    int64_t row = blockIdx.x / CLUSTER;
    fetch(w, p, row);
    cluster_wait<CLUSTER>();
    for (; row < p.n; row += step) {
        if (threadIdx.x == 0) {
            barrier_expect(room.largest_come, sizeof room.largest);
            barrier_expect(room.sums_come, sizeof room.sum);
        }
        soften(w, p, row, row + step);
        w.phase ^= 1;
    }
}
