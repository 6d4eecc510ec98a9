// SPDX-License-Identifier: Apache-2.0
//
// Dense products of at most 16 rows of 16-bit numbers with columns of b that are contiguous in k. A
// block has 16 columns; its warps share out k and meet in shared memory at the end, in a fixed
// order. Operands go from memory to the tensor cores without a stop: as the order of k inside a
// product is free as long as both operands have the same, a lane keeps the 16 bytes that it loads.
// Every byte of b is read once; memory is the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/mma.cuh"
#include "ops/gemm/gemm_device.h"
#include "ops/gemm/gemm_store.cuh"

#if !defined(SPEC_DT) || !defined(SPEC_OUT) || !defined(SPEC_BIAS) || !defined(SPEC_HALVES)
#error "DT OUT BIAS: dtype bits; HALVES: 1 for up to 8 rows, 2 for up to 16"
#endif
constexpr int64_t DT = SPEC_DT;     /* F16, BF16 */
constexpr int64_t OUT = SPEC_OUT;   /* F16, BF16, F32 */
constexpr int64_t BIAS = SPEC_BIAS; /* the same; 0: none */
constexpr int HALVES = SPEC_HALVES;
constexpr int WARPS = 8, THREADS = WARPS * 32;
constexpr int COLUMNS = 16, ROWS = 16;
constexpr int STEP = 64;                           /* of k: two loads of a lane */
constexpr int AHEAD = ARCH >= 80 ? 4 / HALVES : 1; /* steps whose loads are under way together */

using elem = element<DT>::type;
using out_t = element<OUT>::type;
using vec = pack<elem, 8>;

/* Two loads of a row; zeros past its end or without a row. */
struct lane_part {
    words<16> at[2];
};

template <bool STREAM> lane_part read(const elem *row, bool there, int64_t k, int64_t end) {
    lane_part v = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (there && k + i * 32 < end)
            v.at[i] = STREAM ? load_stream<words<16>>(row + k + i * 32)
                             : load<words<16>>(row + k + i * 32);
    }
    return v;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    bolide_mm_few(const __grid_constant__ bolide__mm_params p) {
    __shared__ float part[WARPS][ROWS][COLUMNS + 1];
    release_next_kernel();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, line = lane / 4;
    const int64_t batch = blockIdx.y, first = (int64_t)blockIdx.x * COLUMNS;
    const elem *a = static_cast<const elem *>(p.a) + batch * p.a_batch + line * p.a_row;
    const elem *columns = static_cast<const elem *>(p.b) + batch * p.b_batch + first * p.b_n;
    const elem *b = columns + line * p.b_n;
    const bool left = first + line < p.n, right = first + line + 8 < p.n;
    wait_for_previous_kernel();

    float sum[2][4] = {};
    for (int64_t k0 = warp * STEP; k0 < p.k; k0 += AHEAD * WARPS * STEP) {
        lane_part b0[AHEAD], b1[AHEAD], a0[AHEAD], a1[AHEAD];
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            const int64_t k = k0 + s * WARPS * STEP + lane % 4 * 8;
            b0[s] = read<true>(b, left, k, p.k);
            b1[s] = read<true>(b + 8 * p.b_n, right, k, p.k);
        }
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            const int64_t k = k0 + s * WARPS * STEP + lane % 4 * 8;
            a0[s] = read<false>(a, line < p.m, k, p.k);
            a1[s] = {};
            if constexpr (HALVES == 2)
                a1[s] = read<false>(a + 8 * p.a_row, line + 8 < p.m, k, p.k);
        }
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const words<16> x = a0[s].at[i], y = a1[s].at[i], v = b0[s].at[i], w = b1[s].at[i];
                const uint32_t low[4] = {x.a, y.a, x.b, y.b}, high[4] = {x.c, y.c, x.d, y.d};
                mma_16x8x16<elem>(sum[0], low, v.a, v.b);
                mma_16x8x16<elem>(sum[1], low, w.a, w.b);
                mma_16x8x16<elem>(sum[0], high, v.c, v.d);
                mma_16x8x16<elem>(sum[1], high, w.c, w.d);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            part[warp][line + i / 2 * 8][j * 8 + lane % 4 * 2 + i % 2] = sum[j][i];
    }
    __syncthreads();
    const int row = threadIdx.x / COLUMNS, column = threadIdx.x % COLUMNS;
    if (row >= p.m || first + column >= p.n)
        return;
    float total = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        total += part[i][row][column];
    out_t *out = static_cast<out_t *>(p.out) + batch * p.out_batch + row * p.out_row;
    store_sum<BIAS>(out, first + column, total, p.bias);
}
