// SPDX-License-Identifier: Apache-2.0
//
// What the norm kernels share: the parameter structs, taken by CPU and device kernels alike, and
// on the host the functions that fill them.

#ifndef BOLIDE_OPS_NORM_INTERNAL_H
#define BOLIDE_OPS_NORM_INTERNAL_H

#ifndef __CUDACC_RTC__
#include "core/op.h"
#include "cpu/cpu.h"
#endif

#include "core/rows_internal.h"

/* The RMS norm and its relatives. For each row of d values
 *
 *     x   = input * in_scale + residual;  residual = x
 *     y   = x / sqrt(mean(x^2) + eps) * (weight + weight_bias)
 *     out = silu(y) * out_scale
 *
 * where an operator leaves out what it does not have. x is not rounded before it is normalised. */
typedef struct bolide__rmsnorm_params {
    bolide__rows input; /* [n, h, d] */
    const void *weight; /* [d] */
    int64_t d;
    float eps;
    float weight_bias;     /* 1 for Gemma; else -0, which changes nothing, not even a sign */
    int64_t rows;          /* n * h */
    bolide__rows out;      /* [n, h, d]; may be input */
    bolide__rows residual; /* [n, h, d] */
    int64_t h;
    int64_t weight_dtype;

    bolide__scalar in_scale, out_scale;
    int32_t out_divides; /* 1: by out_scale; 0: times out_scale */
    int32_t out_bounded; /* 1: held in the finite range of out's dtype, as f8 always is */

    bolide__rows normed; /* [n, d]: out before it is quantised in blocks; may be input */
    float *block_scale;  /* [d/128, n] */
    int64_t block_scale_b, block_scale_n; /* its strides */
} bolide__rmsnorm_params;

/* Block quantisation: values of a row that share a scale, and the least magnitude that is scaled
 * to the largest code. */
#define BOLIDE__QUANT_BLOCK 128
#define BOLIDE__QUANT_FLOOR 1e-4f

/* The layer norm and its relatives. For each row of d values, with h the tokens of a video in the
 * fused_dit operators,
 *
 *     x   = input * ((gate + gate_bias) * in_scale) + residual;  residual_out = x
 *     y   = (x - mean) / sqrt(variance + eps)
 *     out = y * gamma + beta                                       or
 *           y * (1 + scale + scale_bias) + (shift + shift_bias)
 *     out = out / out_scale
 *
 * where an operator leaves out what it does not have. x is not rounded before it is normalised. */
typedef struct bolide__layernorm_params {
    bolide__rows input, residual, gate, scale, shift; /* [n, h, d] */
    bolide__rows residual_out, out;                   /* [n, h, d] */
    const float *gamma, *beta;                        /* [d] */
    const float *gate_bias, *scale_bias, *shift_bias; /* [d]; NULL: 0 */
    bolide__scalar in_scale, out_scale;
    int64_t rows; /* n * h */
    int64_t h, d;
    float eps;
} bolide__layernorm_params;

/* What the device kernel of an operator has: x is more than input, and which terms it has; a factor
 * and a term of the norm for each token. */
enum bolide__layernorm_flags {
    BOLIDE__LAYERNORM_FUSED = 1,
    BOLIDE__LAYERNORM_RESIDUAL = 2,
    BOLIDE__LAYERNORM_GATE = 4,
    BOLIDE__LAYERNORM_MODULATED = 8,
    BOLIDE__LAYERNORM_GATE_BIAS = 16,
    BOLIDE__LAYERNORM_SCALE_BIAS = 32,
    BOLIDE__LAYERNORM_SHIFT_BIAS = 64
};

/* What the device kernel does besides: the last two steps of the formula, block quantisation. */
enum bolide__rmsnorm_flags {
    BOLIDE__RMSNORM_SILU = 1,
    BOLIDE__RMSNORM_SCALED = 2,
    BOLIDE__RMSNORM_BLOCKS = 4
};

#define BOLIDE__QK_ROPE_MAX_PAIRS 128

/* q, k or v of fused_qk_rmsnorm_rope. Strides are in elements, the last dimension is contiguous. */
typedef struct bolide__qk_rope_side {
    const void *weight; /* [heads * d]; NULL: copied, neither normalised nor turned */
    void *out;          /* [b, s, heads, d] */
    int64_t out_b, out_s, out_h;
    int64_t first; /* channel of a token of qkv at which it begins */
    int64_t heads;
    float factor; /* of the result */
} bolide__qk_rope_side;

typedef struct bolide__qk_rope_params {
    const void *qkv; /* [b, s, (heads of q, k and v) * d] */
    int64_t qkv_b, qkv_s;
    int64_t dtype, out_dtype;
    bolide__qk_rope_side side[3]; /* q, k, v */
    int64_t b, s, d;              /* s = frames * pph * ppw */
    int64_t pph, ppw;
    int64_t frame_pairs, height_pairs; /* pairs of a head that these turn; the width the rest */
    int32_t interleave;
    int32_t normalise; /* 0: q and k are only turned */
    float eps;
    double freq[BOLIDE__QK_ROPE_MAX_PAIRS]; /* radians a position, d/2 of them */
} bolide__qk_rope_params;

#ifndef __CUDACC_RTC__
/* The number of a quantised norm's scale; a tensor's value is read by the kernel alone. */
static inline bolide_status bolide__check_divisor(const bolide__call *call, double scale) {
    return scale == 0 ? BOLIDE_FAIL_ARG(call, "scale", "value", "a number other than 0", "0")
                      : BOLIDE_OK;
}

static inline bolide__rmsnorm_params bolide__rmsnorm_fill(const bolide_tensor *input,
                                                          const bolide_tensor *residual,
                                                          const bolide_tensor *weight,
                                                          const bolide_tensor *out, double eps) {
    const int64_t h = bolide__rows_heads(input);
    return (bolide__rmsnorm_params){.input = bolide__rows_of(input),
                                    .residual = bolide__rows_of(residual),
                                    .out = bolide__rows_of(out),
                                    .weight = bolide__data(weight),
                                    .weight_dtype = bolide__bit(weight),
                                    .rows = input->shape[0] * h,
                                    .h = h,
                                    .d = weight->shape[0],
                                    .eps = (float)eps,
                                    .weight_bias = -0.0f,
                                    .in_scale.number = 1.0f,
                                    .out_scale.number = 1.0f};
}

static inline bolide__layernorm_params
bolide__layernorm_fill(const bolide_tensor *input, const bolide_tensor *out, double eps) {
    const int64_t h = bolide__rows_heads(input);
    return (bolide__layernorm_params){.input = bolide__rows_of(input),
                                      .out = bolide__rows_of(out),
                                      .rows = input->shape[0] * h,
                                      .h = h,
                                      .d = input->shape[input->ndim - 1],
                                      .eps = (float)eps,
                                      .in_scale.number = 1.0f,
                                      .out_scale.number = 1.0f};
}

/* arg is a bolide__rmsnorm_params; items are rows. The first two take one dtype for all tensors,
 * the third no residual, the fourth any dtypes; the last has fused_add's tensors and its own. */
#define ROWS (void *arg, int64_t begin, int64_t end, int worker)
BOLIDE_CPU_KERNEL(rmsnorm_rows, ROWS);
BOLIDE_CPU_KERNEL(fused_add_rmsnorm_rows, ROWS);
BOLIDE_CPU_KERNEL(rmsnorm_silu_rows, ROWS);
BOLIDE_CPU_KERNEL(rmsnorm_scaled_rows, ROWS);
BOLIDE_CPU_KERNEL(rmsnorm_block_quant_rows, ROWS);

/* arg is a bolide__layernorm_params; items are rows. */
BOLIDE_CPU_KERNEL(layernorm_rows, ROWS);
BOLIDE_CPU_KERNEL(layernorm_quant_rows, ROWS);
BOLIDE_CPU_KERNEL(dit_layernorm_rows, ROWS);

/* arg is a bolide__qk_rope_params; items are tokens of all requests. */
BOLIDE_CPU_KERNEL(qk_rmsnorm_rope_tokens, ROWS);
#undef ROWS

/* How a row of so many chunks is spread on the device: threads a row, chunks a thread (0: the row
 * is read again), rows a block. It depends on the row alone, so that a row has the same bits in
 * every batch. */
typedef struct bolide__norm_layout {
    int32_t threads, per, rows;
} bolide__norm_layout;

bolide__norm_layout bolide__norm_layout_of(int64_t chunks);
/* A tensor's address and strides in units of its element: the lowest set bit bounds a load. */
uint64_t bolide__norm_alignment(const bolide__rows *t);

bolide_status bolide__layernorm_launch(const bolide__call *call, const bolide__layernorm_params *p);
bolide_status bolide__rmsnorm_launch(const bolide__call *call, const bolide__rmsnorm_params *p,
                                     int64_t flags);
#endif

#endif
