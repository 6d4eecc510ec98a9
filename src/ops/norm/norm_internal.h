// SPDX-License-Identifier: Apache-2.0
//
// What the norm kernels share: the parameter structs, taken by CPU and device kernels alike, and
// on the host the functions that fill them.

#ifndef BOLIDE_OPS_NORM_INTERNAL_H
#define BOLIDE_OPS_NORM_INTERNAL_H

#ifndef __CUDACC_RTC__
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
    bolide__rows input;    /* [n, h, d] */
    bolide__rows residual; /* [n, h, d] */
    bolide__rows out;      /* [n, h, d]; may be input */
    const void *weight;    /* [d] */
    int64_t weight_dtype;
    int64_t rows; /* n * h */
    int64_t h, d;
    float eps;
    float weight_bias; /* 1 for Gemma; else -0, which changes nothing, not even a sign */
} bolide__rmsnorm_params;

#ifndef __CUDACC_RTC__
static inline bolide__rmsnorm_params bolide__rmsnorm_fill(const bolide_tensor *input,
                                                          const bolide_tensor *weight,
                                                          const bolide_tensor *out, double eps) {
    const int64_t h = bolide__rows_heads(input);
    return (bolide__rmsnorm_params){.input = bolide__rows_of(input),
                                    .out = bolide__rows_of(out),
                                    .weight = bolide__data(weight),
                                    .weight_dtype = bolide__bit(weight),
                                    .rows = input->shape[0] * h,
                                    .h = h,
                                    .d = weight->shape[0],
                                    .eps = (float)eps,
                                    .weight_bias = -0.0f};
}

/* arg is a bolide__rmsnorm_params; items are rows. */
BOLIDE_CPU_KERNEL(rmsnorm_rows, (void *arg, int64_t begin, int64_t end, int worker));
#endif

#endif
