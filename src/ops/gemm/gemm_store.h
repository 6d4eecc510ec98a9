// SPDX-License-Identifier: Apache-2.0
//
// The last step of every product on the CPU: bias, rounding, store. For kernel files only.

#ifndef BOLIDE_OPS_GEMM_STORE_H
#define BOLIDE_OPS_GEMM_STORE_H

#include "cpu/simd.h"
#include "ops/gemm/gemm_internal.h"

/* Columns [col, col + count) of a row, count at most 16. */
BOLIDE_INLINE void gemm_store(const bolide__gemm_out *o, int64_t row, int64_t col, int64_t count,
                              f32x16 v) {
    if (o->bias) {
        const void *bias = dtype_at(o->bias, o->bias_dtype, col);
        v = f32_add(v, o->bias_dtype == BOLIDE_F32   ? f32_load_n(bias, count)
                       : o->bias_dtype == BOLIDE_F16 ? f16_load_n(bias, count)
                                                     : bf16_load_n(bias, count));
    }
    void *to = dtype_at_mut(o->data, o->dtype, row * o->row + col);
    if (o->dtype == BOLIDE_F32)
        f32_store_n(to, v, count);
    else if (o->dtype == BOLIDE_F16)
        f16_store_n(to, v, count);
    else
        bf16_store_n(to, v, count);
}

#endif
