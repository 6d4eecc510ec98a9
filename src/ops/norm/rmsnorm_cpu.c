// SPDX-License-Identifier: Apache-2.0
//
// RMS norm on the CPU. A row is read twice: once from memory for the sum of its squares, once from
// cache to be scaled and stored. The sum runs in four groups of 16 lanes, which hides the latency
// of the addition, and is folded in a fixed order, so that neither the number of threads nor the
// instruction set changes a bit. Memory bandwidth is the limit.

#include "cpu/simd.h"
#include "ops/norm/norm_internal.h"

/* 1 / sqrt(mean(x^2) + eps). */
BOLIDE_INLINE float inverse_rms(const void *x, int64_t dtype, int64_t d, float eps) {
    f32x16 sum[4] = {f32_zero(), f32_zero(), f32_zero(), f32_zero()};
    int64_t i = 0;
    for (; i + 64 <= d; i += 64) {
        BOLIDE_UNROLL
        for (int k = 0; k < 4; k++) {
            const f32x16 v = lanes_load(x, dtype, i + 16 * k, 16);
            sum[k] = f32_fma(v, v, sum[k]);
        }
    }
    for (; i < d; i += 16) {
        const f32x16 v = lanes_load(x, dtype, i, d - i);
        sum[0] = f32_fma(v, v, sum[0]);
    }
    const f32x16 all = f32_add(f32_add(sum[0], sum[1]), f32_add(sum[2], sum[3]));
    return 1.0f / sqrtf(f32_sum(all) / (float)d + eps);
}

/* out = x * scale * (weight + bias) in lanes i ... i+15; left as for lanes_load. */
BOLIDE_INLINE void scale_lanes(void *out, const void *x, const void *weight, int64_t dtype,
                               f32x16 scale, f32x16 bias, int64_t i, int64_t left) {
    const f32x16 w = f32_add(lanes_load(weight, dtype, i, left), bias);
    const f32x16 v = f32_mul(lanes_load(x, dtype, i, left), scale);
    lanes_store(out, dtype, i, left, f32_mul(v, w));
}

/* dtype is a constant in each of the calls below. */
BOLIDE_INLINE void rows_of(const bolide__rmsnorm_params *p, int64_t begin, int64_t end,
                           int64_t dtype) {
    const f32x16 bias = f32_set(p->weight_bias);
    for (int64_t r = begin; r < end; r++) {
        const void *x = bolide__row_at(&p->input, r, p->h);
        void *out = bolide__row_at(&p->out, r, p->h);
        const f32x16 scale = f32_set(inverse_rms(x, dtype, p->d, p->eps));
        int64_t i = 0;
        for (; i + 16 <= p->d; i += 16)
            scale_lanes(out, x, p->weight, dtype, scale, bias, i, 16);
        if (i < p->d)
            scale_lanes(out, x, p->weight, dtype, scale, bias, i, p->d - i);
    }
}

void BOLIDE_ISA(rmsnorm_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__rmsnorm_params *p = arg;
    (void)worker;
    switch (p->input.dtype) {
    case BOLIDE_F16:
        rows_of(p, begin, end, BOLIDE_F16);
        break;
    case BOLIDE_BF16:
        rows_of(p, begin, end, BOLIDE_BF16);
        break;
    default:
        rows_of(p, begin, end, BOLIDE_F32);
        break;
    }
}
