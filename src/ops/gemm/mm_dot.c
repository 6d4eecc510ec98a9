// SPDX-License-Identifier: Apache-2.0
//
// What the fronts of products in f32 share: activations become f32 rows once, then pieces of
// 8 columns times 36 rows are handed out, neighbours in memory of the weight first.

#include "core/tensor.h"
#include "ops/gemm/gemm_internal.h"

bolide__gemm_out bolide__gemm_results(const bolide_tensor *out, const bolide_tensor *bias) {
    return (bolide__gemm_out){.data = bolide__data(out),
                              .bias = bias ? bolide__data(bias) : NULL,
                              .row = bolide__stride(out, out->ndim - 2),
                              .dtype = bolide__bit(out),
                              .bias_dtype = bias ? bolide__bit(bias) : 0};
}

void bolide__gemm_dot(const bolide_context *ctx, bolide__dot_params *p) {
    p->depth = bolide__gemm_depth(p->k);
    p->a = p->widened ? p->widened : p->input;
    p->a_row = p->widened ? p->depth : p->input_row;
    if (p->widened)
        bolide__parallel_for(ctx, p->m, bolide__row_grain(p->k), BOLIDE_CPU_PICK(widen_rows), p);
    const int64_t strips = (p->n + BOLIDE__DOT_COLS - 1) / BOLIDE__DOT_COLS;
    p->m_pieces = p->m <= BOLIDE__DOT_FEW ? 1 : (p->m + BOLIDE__DOT_ROWS - 1) / BOLIDE__DOT_ROWS;
    const int64_t row_bytes = p->depth * bolide__weight_block_bytes(p->format) / 32;
    const int64_t grain = p->m <= BOLIDE__DOT_FEW
                              ? bolide__gemm_grain(strips, row_bytes * BOLIDE__DOT_COLS)
                              : bolide__row_grain(p->depth * BOLIDE__DOT_COLS * 8);
    bolide__parallel_for(ctx, strips * p->m_pieces, grain, BOLIDE_CPU_PICK(dot_pieces), p);
}
