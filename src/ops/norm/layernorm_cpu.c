// SPDX-License-Identifier: Apache-2.0
//
// Layer norm and its relatives on the CPU. A row is read three times: once from memory for its
// mean, then from cache for the variance around that mean, which keeps its accuracy whatever the
// mean is, and for the result. Sums run in groups of 16 lanes and are folded in a fixed order,
// so that neither the number of threads nor the instruction set changes a bit. Memory bandwidth is
// the limit.

#include <stdbool.h>

#include "cpu/simd.h"
#include "ops/norm/norm_internal.h"

/* What an instance of the body below works on: the dtype of its inputs, that of out, and the
 * steps. They are constants after inlining, so what an operator does not have costs nothing. */
typedef struct form {
    int64_t dtype, out;
    bool fused; /* x is more than input, and is stored; which tensors there are shows at run time */
    bool scaled; /* times out_scale */
} form;

/* One row, and what is the same for all rows of a call. */
typedef struct row {
    const void *input, *residual, *gate, *scale, *shift;
    void *residual_out, *out;
    const float *gamma, *beta, *gate_bias, *scale_bias, *shift_bias;
    f32x16 in_scale, out_scale;
} row;

/* a + bias in lanes i ... i+15, of which left exist. */
BOLIDE_INLINE f32x16 biased(const void *a, int64_t dtype, const float *bias, int64_t i,
                            int64_t left) {
    const f32x16 v = lanes_load(a, dtype, i, left);
    return bias ? f32_add(v, lanes_load(bias, BOLIDE_F32, i, left)) : v;
}

BOLIDE_INLINE f32x16 x_lanes(form f, const row *r, int64_t i, int64_t left) {
    const f32x16 x = lanes_load(r->input, f.dtype, i, left);
    if (!f.fused)
        return x;
    f32x16 factor = r->in_scale;
    if (r->gate)
        factor = f32_mul(biased(r->gate, f.dtype, r->gate_bias, i, left), factor);
    return r->residual ? f32_fma(x, factor, lanes_load(r->residual, f.dtype, i, left))
                       : f32_mul(x, factor);
}

/* x of elements i ... i+31, in an order that depends on f alone. */
BOLIDE_INLINE void x_pair(form f, const row *r, int64_t i, f32x16 x[2]) {
    if (f.dtype == BOLIDE_BF16 && !f.fused) {
        bf16_load_pair(dtype_at(r->input, BOLIDE_BF16, i), x);
    } else {
        x[0] = x_lanes(f, r, i, 16);
        x[1] = x_lanes(f, r, i + 16, 16);
    }
}

/* The sum of x - mean, or of its square. */
BOLIDE_INLINE float row_sum(form f, const row *r, int64_t d, float mean, bool square) {
    const f32x16 center = f32_set(mean);
    f32x16 sum[4] = {f32_zero(), f32_zero(), f32_zero(), f32_zero()};
    const int groups = f.fused ? 2 : 4; /* what computes x hides the latency, too */
    int64_t i = 0;
    for (; i + 16 * groups <= d; i += 16 * groups) {
        BOLIDE_UNROLL
        for (int k = 0; k < groups; k += 2) {
            f32x16 x[2];
            x_pair(f, r, i + 16 * k, x);
            x[0] = f32_sub(x[0], center);
            x[1] = f32_sub(x[1], center);
            sum[k] = square ? f32_fma(x[0], x[0], sum[k]) : f32_add(sum[k], x[0]);
            sum[k + 1] = square ? f32_fma(x[1], x[1], sum[k + 1]) : f32_add(sum[k + 1], x[1]);
        }
    }
    for (; i < d; i += 16) {
        const f32x16 x = f32_keep(mask_first(d - i), f32_sub(x_lanes(f, r, i, d - i), center));
        sum[0] = square ? f32_fma(x, x, sum[0]) : f32_add(sum[0], x);
    }
    return f32_sum(f32_add(f32_add(sum[0], sum[1]), f32_add(sum[2], sum[3])));
}

BOLIDE_INLINE void finish(form f, const row *r, f32x16 mean, f32x16 scale, int64_t i,
                          int64_t left) {
    const f32x16 x = x_lanes(f, r, i, left);
    f32x16 factor, term;
    if (f.fused && r->scale) {
        factor = f32_add(f32_set(1.0f), biased(r->scale, f.dtype, r->scale_bias, i, left));
        term = biased(r->shift, f.dtype, r->shift_bias, i, left);
    } else {
        factor = lanes_load(r->gamma, BOLIDE_F32, i, left);
        term = lanes_load(r->beta, BOLIDE_F32, i, left);
    }
    f32x16 y = f32_fma(f32_mul(f32_sub(x, mean), scale), factor, term);
    if (f.scaled)
        y = f32_mul(y, r->out_scale);
    if (f.fused)
        lanes_store(r->residual_out, f.dtype, i, left, x);
    lanes_store(r->out, f.out, i, left, y);
}

static row first_row(const bolide__layernorm_params *p) {
    return (row){.gamma = p->gamma,
                 .beta = p->beta,
                 .gate_bias = p->gate_bias,
                 .scale_bias = p->scale_bias,
                 .shift_bias = p->shift_bias,
                 .in_scale = f32_set(bolide__scalar_read(p->in_scale)),
                 .out_scale = f32_set(1.0f / bolide__scalar_read(p->out_scale))};
}

static const void *row_or_null(const bolide__rows *t, int64_t k, int64_t h) {
    return t->data ? bolide__row_at(t, k, h) : NULL;
}

BOLIDE_INLINE void rows(const bolide__layernorm_params *p, int64_t begin, int64_t end, form f) {
    row r = first_row(p);
    for (int64_t k = begin; k < end; k++) {
        r.input = bolide__row_at(&p->input, k, p->h);
        r.out = bolide__row_at(&p->out, k, p->h);
        if (f.fused) {
            r.residual = row_or_null(&p->residual, k, p->h);
            r.gate = row_or_null(&p->gate, k, p->h);
            r.scale = row_or_null(&p->scale, k, p->h);
            r.shift = row_or_null(&p->shift, k, p->h);
            r.residual_out = bolide__row_at(&p->residual_out, k, p->h);
        }
        const float mean = row_sum(f, &r, p->d, 0.0f, false) / (float)p->d;
        const float variance = row_sum(f, &r, p->d, mean, true) / (float)p->d;
        const f32x16 center = f32_set(mean), scale = f32_set(1.0f / sqrtf(variance + p->eps));
        int64_t i = 0;
        for (; i + 16 <= p->d; i += 16)
            finish(f, &r, center, scale, i, 16);
        if (i < p->d)
            finish(f, &r, center, scale, i, p->d - i);
    }
}

/* ---- instances ------------------------------------------------------------------------------ */

/* Where the conversions of the narrow dtypes are calls anyway, one instance does for both. */
void BOLIDE_ISA(layernorm_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__layernorm_params *p = arg;
    const int64_t t = p->input.dtype;
    (void)worker;
    if (t == BOLIDE_F32)
        rows(p, begin, end, (form){.dtype = BOLIDE_F32, .out = BOLIDE_F32});
    else if (!BOLIDE_SIMD_HAS_F16)
        rows(p, begin, end, (form){.dtype = t, .out = t});
    else if (t == BOLIDE_F16)
        rows(p, begin, end, (form){.dtype = BOLIDE_F16, .out = BOLIDE_F16});
    else
        rows(p, begin, end, (form){.dtype = BOLIDE_BF16, .out = BOLIDE_BF16});
}

/* What follows has an instance for the dtypes that models use; others choose their conversions as
 * they go, 16 values at a time. */

void BOLIDE_ISA(layernorm_quant_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__layernorm_params *p = arg;
    const int64_t in = p->input.dtype, out = p->out.dtype;
    (void)worker;
    if (BOLIDE_SIMD_HAS_F16 && in == BOLIDE_BF16 && out == BOLIDE_F8_E4M3FN)
        rows(p, begin, end, (form){BOLIDE_BF16, BOLIDE_F8_E4M3FN, .scaled = true});
    else
        rows(p, begin, end, (form){in, out, .scaled = true});
}

void BOLIDE_ISA(dit_layernorm_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__layernorm_params *p = arg;
    const int64_t in = p->input.dtype;
    (void)worker;
    if (BOLIDE_SIMD_HAS_F16 && in == BOLIDE_BF16)
        rows(p, begin, end, (form){BOLIDE_BF16, BOLIDE_BF16, .fused = true});
    else
        rows(p, begin, end, (form){in, in, .fused = true});
}
