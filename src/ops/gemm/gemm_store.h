// SPDX-License-Identifier: Apache-2.0
//
// What the products on the CPU share: fetching weights ahead, and the last step, bias, rounding,
// store. For kernel files only.

#ifndef BOLIDE_OPS_GEMM_STORE_H
#define BOLIDE_OPS_GEMM_STORE_H

#include "cpu/simd.h"
#include "ops/gemm/gemm_internal.h"

/* Asks for `bytes` of weights that lie a little behind `here`. A strip of rows is read by column,
 * block by block, which the chip's own prefetching does not follow, while strips lie one behind the
 * other: a line for each line that a step reads keeps the memory busy. An address behind the weight
 * does no harm. */
BOLIDE_INLINE void gemm_fetch_ahead(const uint8_t *here, int64_t bytes) {
    enum { LINE = 64, AHEAD = 6144 };
    for (int64_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch((const void *)((uintptr_t)here + (uintptr_t)(at + AHEAD)));
}

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
