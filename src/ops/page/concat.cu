// SPDX-License-Identifier: Apache-2.0
//
// concat_mla_k on the GPU: a thread copies VEC bytes of a head from the part of its own or from the
// shared one; bytes are the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/walk.cuh"
#include "ops/page/page_internal.h"

#if !defined(SPEC_VEC)
#error "VEC: bytes a load"
#endif
constexpr int VEC = SPEC_VEC; /* 1, 2, 4, 8, 16 */
constexpr int THREADS = 256;

using vec = pack<uint8_t, VEC>;

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_concat(const __grid_constant__ bolide__concat_params p) {
    release_next_kernel();
    const int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const place at = place_of(p.columns, item);
    const int64_t n = quotient(at.row, p.h), h = at.row - n * p.h;
    const int64_t c = (int64_t)at.column * VEC, nope = p.d_nope * p.elem_bytes;
    const uint8_t *from = c < nope ? static_cast<const uint8_t *>(p.k_nope) +
                                         (n * p.nope_n + h * p.nope_h) * p.elem_bytes + c
                                   : static_cast<const uint8_t *>(p.k_rope) +
                                         n * p.rope_n * p.elem_bytes + (c - nope);
    wait_for_previous_kernel();
    if (n < p.n)
        store(static_cast<uint8_t *>(p.k) + (n * p.k_n + h * p.k_h) * p.elem_bytes + c,
              load<vec>(from));
}
