// SPDX-License-Identifier: Apache-2.0
//
// Reads memory and does nothing else: the ceiling that `bolide bench` holds operators against. A
// block reads whole tiles of UNROLL vectors a thread, all loads of a tile in flight at once.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/read_ceiling_internal.h"

constexpr int THREADS = BOLIDE__READ_THREADS;
constexpr int UNROLL = 8;
constexpr int64_t TILE = (int64_t)THREADS * UNROLL;

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_read_ceiling(const __grid_constant__ bolide__read_params p) {
    const char *data = static_cast<const char *>(p.data);
    uint32_t sum = 0;
    for (int64_t tile = blockIdx.x; (tile + 1) * TILE <= p.vectors; tile += gridDim.x) {
        words<16> v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
            v[i] = load_stream<words<16>>(data + (tile * TILE + i * THREADS + threadIdx.x) * 16);
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
            sum += v[i].a ^ v[i].b ^ v[i].c ^ v[i].d;
    }
    if (sum == 0x9e3779b9u)
        *p.sink = sum;
}
