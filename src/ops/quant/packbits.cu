// SPDX-License-Identifier: Apache-2.0
//
// packbits on the GPU: a thread makes a byte of the result from eight values, read as one word
// where they lie so. For segments a block first sums up where each begins; a byte then looks for
// its segment there. Bytes are the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "ops/quant/quant_internal.h"

#if !defined(SPEC_LITTLE) || !defined(SPEC_WORDS) || !defined(SPEC_INDEX)
#error "LITTLE: 1: the first value is the lowest bit; WORDS: 1: aligned; INDEX: dtype, 0: none"
#endif
constexpr bool LITTLE = SPEC_LITTLE;
constexpr bool WORDS = SPEC_WORDS;    /* x lies at a multiple of 8 */
constexpr int64_t INDEX = SPEC_INDEX; /* I32, I64 for segments */
constexpr int THREADS = 256;
constexpr int SCAN_THREADS = 1024;

using index_t = element<INDEX ? INDEX : I32>::type;

/* A bit for each byte of a word that is not 0, in the order of the bytes. */
uint32_t bits_of(uint32_t x) {
    const uint32_t high = (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7 & 0x01010101u;
    return high * 0x10204080u >> 28;
}

/* Up to eight values. */
uint8_t byte_of(const uint8_t *x, int64_t count, bool aligned) {
    uint32_t low = 0, high = 0;
    if (aligned && count >= 8) {
        const words<8> w = load_stream<words<8>>(x);
        low = w.a;
        high = w.b;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            low |= i < count ? (uint32_t)x[i] << (8 * i) : 0;
            high |= i + 4 < count ? (uint32_t)x[i + 4] << (8 * i) : 0;
        }
    }
    const uint32_t bits = bits_of(low) | bits_of(high) << 4;
    return (uint8_t)(LITTLE ? bits : __brev(bits) >> 24);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_packbits(const __grid_constant__ bolide__packbits_params p) {
    release_next_kernel();
    const int64_t byte = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    wait_for_previous_kernel();
    if constexpr (INDEX == 0) {
        if (8 * byte < p.n)
            p.out[byte] = byte_of(p.x + 8 * byte, p.n - 8 * byte, WORDS);
    } else {
        const index_t *indptr = static_cast<const index_t *>(p.indptr);
        const index_t *first = static_cast<const index_t *>(p.out_indptr);
        if (byte >= p.m || byte >= first[p.b])
            return;
        int64_t low = 0, high = p.b;
        while (high - low > 1) {
            const int64_t middle = (low + high) / 2;
            if (first[middle] <= byte)
                low = middle;
            else
                high = middle;
        }
        const int64_t at = indptr[low] + 8 * (byte - first[low]);
        p.out[byte] = byte_of(p.x + at, indptr[low + 1] - at, ((uintptr_t)(p.x + at) & 7) == 0);
    }
}

/* Sums of a block's values up to each thread, itself included. */
int64_t scan(int64_t x, int64_t *scratch) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int64_t other = __shfl_up_sync(0xffffffffu, x, step);
        x += lane >= step ? other : 0;
    }
    if (lane == 31)
        scratch[warp] = x;
    __syncthreads();
    for (int i = 0; i < warp; i++)
        x += scratch[i];
    return x;
}

/* One block writes out_indptr. */
extern "C" __global__ void __launch_bounds__(SCAN_THREADS)
    bolide_packbits_segments(const __grid_constant__ bolide__packbits_params p) {
    __shared__ int64_t scratch[SCAN_THREADS / 32], total;
    release_next_kernel();
    wait_for_previous_kernel();
    const index_t *indptr = static_cast<const index_t *>(p.indptr);
    index_t *out = static_cast<index_t *>(p.out_indptr);
    int64_t before = 0;
    if (threadIdx.x == 0)
        out[0] = 0;
    for (int64_t first = 0; first < p.b; first += SCAN_THREADS) {
        const int64_t i = first + threadIdx.x;
        const int64_t bytes = i < p.b ? ((int64_t)indptr[i + 1] - indptr[i] + 7) / 8 : 0;
        const int64_t sum = before + scan(bytes, scratch);
        if (i < p.b)
            out[i + 1] = (index_t)sum;
        if (threadIdx.x == SCAN_THREADS - 1)
            total = sum;
        __syncthreads();
        before = total;
    }
}
