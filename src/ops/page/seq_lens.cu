// SPDX-License-Identifier: Apache-2.0
//
// get_seq_lens and get_batch_indices_positions on the GPU: a thread a request, and a thread a token
// that looks for its request in the ranges. The latency of a few dependent loads is the limit.

#include "cuda/device/base.cuh"
#include "ops/page/page_internal.h"

constexpr int THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_seq_lens(const __grid_constant__ bolide__seq_lens_params p) {
    release_next_kernel();
    const int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    wait_for_previous_kernel();
    if (r >= p.b)
        return;
    const int64_t pages = (int64_t)p.indptr[r + 1] - p.indptr[r];
    p.out[r] = pages > 0 ? (int32_t)((pages - 1) * p.page_size + p.last_page_len[r]) : 0;
}

/* The request of a token is the first whose range ends behind it. */
extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_positions(const __grid_constant__ bolide__positions_params p) {
    release_next_kernel();
    const int64_t token = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    wait_for_previous_kernel();
    if (token >= p.nnz)
        return;
    int64_t low = 0, high = p.b;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (p.append_indptr[middle + 1] > token)
            high = middle;
        else
            low = middle + 1;
    }
    const bool found = low < p.b;
    p.batch_indices[token] = found ? (int32_t)low : -1;
    p.positions[token] =
        found ? (int32_t)(p.seq_lens[low] - (p.append_indptr[low + 1] - token)) : 0;
}
