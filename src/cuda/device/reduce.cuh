// SPDX-License-Identifier: Apache-2.0
//
// Reductions over a warp, a part of a warp, or a block. The order of additions is a fixed tree over
// lane and warp numbers, so the same inputs give the same bits; there are no float atomics. All
// lanes get the result.

#ifndef BOLIDE_CUDA_DEVICE_REDUCE_CUH
#define BOLIDE_CUDA_DEVICE_REDUCE_CUH

#include "cuda/device/base.cuh"

/* Partners exchange and both add the same two numbers, so all lanes end with equal bits. LANES is a
 * power of two up to 32; groups of so many neighbours reduce on their own. All 32 lanes call. */
template <int LANES> __forceinline__ float lanes_sum(float x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* NaN wins: fmaxf would drop it. */
__forceinline__ float max_nan(float a, float b) {
    return is_nan(a) || is_nan(b) ? bits_float(0x7fc00000) : fmaxf(a, b);
}

template <int LANES> __forceinline__ float lanes_max(float x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* Over groups of THREADS neighbours of a block, a multiple of 32 up to 1024. scratch has a float a
 * warp of the block and may be used again only after another barrier. */
template <int THREADS> __forceinline__ float group_sum(float x, float *scratch) {
    constexpr int WARPS = THREADS / 32;
    x = lanes_sum<32>(x);
    if constexpr (WARPS > 1) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (lane == 0)
            scratch[warp] = x;
        __syncthreads();
        const int first = warp / WARPS * WARPS;
        x = lanes_sum<32>(lane < WARPS ? scratch[first + lane] : 0.0f);
    }
    return x;
}

template <int THREADS> __forceinline__ float group_max(float x, float *scratch) {
    constexpr int WARPS = THREADS / 32;
    x = lanes_max<32>(x);
    if constexpr (WARPS > 1) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (lane == 0)
            scratch[warp] = x;
        __syncthreads();
        const int first = warp / WARPS * WARPS;
        x = lanes_max<32>(scratch[first + (lane < WARPS ? lane : 0)]);
    }
    return x;
}

#endif
