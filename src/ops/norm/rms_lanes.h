// SPDX-License-Identifier: Apache-2.0
//
// The first half of an RMS norm on the CPU: 1 / rms of a row. The sum of squares runs in four
// groups of 16 lanes, which hides the latency of the addition, and is folded in a fixed order, so
// that neither the number of threads nor the instruction set changes a bit.

#ifndef BOLIDE_OPS_NORM_RMS_LANES_H
#define BOLIDE_OPS_NORM_RMS_LANES_H

#include <stdbool.h>

#include "cpu/simd.h"
#include "ops/norm/norm_internal.h"

/* What an instance of the body below works on: the dtype of each tensor, and the steps. They are
 * constants after inlining, so what an operator does not have costs nothing. Instances for any
 * dtypes read those from the parameters and choose conversions 16 values at a time. */
typedef struct form {
    int64_t input, residual, weight, out; /* no residual: 0 */
    bool scaled, silu;
    bool paired; /* input, and residual if there is one, are bf16 and may be taken in pairs */
} form;

/* One row, and what is the same for all rows of a call. */
typedef struct row {
    const void *input, *weight;
    void *residual, *out;
    f32x16 in_scale, out_scale, bias;
    float limit;
} row;

/* x in lanes i ... i+15, of which left exist. */
BOLIDE_INLINE f32x16 x_lanes(form f, const row *r, int64_t i, int64_t left) {
    f32x16 x = lanes_load(r->input, f.input, i, left);
    if (f.scaled)
        x = f32_mul(x, r->in_scale);
    return f.residual ? f32_add(x, lanes_load(r->residual, f.residual, i, left)) : x;
}

/* x of elements i ... i+31, in an order that depends on f alone. */
BOLIDE_INLINE void x_pair(form f, const row *r, int64_t i, f32x16 x[2]) {
    if (!f.paired) {
        x[0] = x_lanes(f, r, i, 16);
        x[1] = x_lanes(f, r, i + 16, 16);
        return;
    }
    f32x16 residual[2];
    bf16_load_pair(dtype_at(r->input, BOLIDE_BF16, i), x);
    if (f.residual)
        bf16_load_pair(dtype_at(r->residual, BOLIDE_BF16, i), residual);
    BOLIDE_UNROLL
    for (int k = 0; k < 2; k++) {
        if (f.scaled)
            x[k] = f32_mul(x[k], r->in_scale);
        if (f.residual)
            x[k] = f32_add(x[k], residual[k]);
    }
}

/* 1 / sqrt(mean(x^2) + eps). */
BOLIDE_INLINE float inverse_rms(form f, const row *r, int64_t d, float eps) {
    f32x16 sum[4] = {f32_zero(), f32_zero(), f32_zero(), f32_zero()};
    int64_t i = 0;
    for (; i + 64 <= d; i += 64) {
        f32x16 x[4];
        x_pair(f, r, i, x);
        x_pair(f, r, i + 32, x + 2);
        BOLIDE_UNROLL
        for (int k = 0; k < 4; k++)
            sum[k] = f32_fma(x[k], x[k], sum[k]);
    }
    for (; i < d; i += 16) {
        const f32x16 x = x_lanes(f, r, i, d - i);
        sum[0] = f32_fma(x, x, sum[0]);
    }
    const f32x16 all = f32_add(f32_add(sum[0], sum[1]), f32_add(sum[2], sum[3]));
    return 1.0f / sqrtf(f32_sum(all) / (float)d + eps);
}

#endif
