// SPDX-License-Identifier: Apache-2.0
//
// RMS norm and its relatives on the CPU. A row is read twice: once from memory for the sum of its
// squares (rms_lanes.h), once from cache to be scaled and stored. Memory bandwidth is the limit, so
// the next row is fetched while this one is finished, and large results go past the caches.

#include <float.h>

#include "ops/norm/rms_lanes.h"

/* y, for the given 1 / rms; the residual is updated on the way. */
BOLIDE_INLINE f32x16 y_lanes(form f, const row *r, f32x16 rms, int64_t i, int64_t left) {
    const f32x16 x = x_lanes(f, r, i, left);
    if (f.residual)
        lanes_store(r->residual, f.residual, i, left, x);
    const f32x16 w = f32_add(lanes_load(r->weight, f.weight, i, left), r->bias);
    return f32_mul(f32_mul(x, rms), w);
}

BOLIDE_INLINE void finish(form f, const row *r, f32x16 rms, int64_t i, int64_t left) {
    f32x16 y = y_lanes(f, r, rms, i, left);
    if (f.silu)
        y = f32_silu(y);
    if (f.scaled)
        y = f32_clamp(f32_mul(y, r->out_scale), -r->limit, r->limit);
    lanes_store(r->out, f.out, i, left, y);
}

/* The same for elements i ... i+31 where all tensors are bf16. */
BOLIDE_INLINE void finish_pair(form f, const row *r, f32x16 rms, int64_t i, bool stream) {
    f32x16 x[2], w[2];
    x_pair(f, r, i, x);
    if (f.residual)
        bf16_store_pair(dtype_at_mut(r->residual, BOLIDE_BF16, i), x);
    bf16_load_pair(dtype_at(r->weight, BOLIDE_BF16, i), w);
    BOLIDE_UNROLL
    for (int k = 0; k < 2; k++) {
        x[k] = f32_mul(f32_mul(x[k], rms), f32_add(w[k], r->bias));
        if (f.silu)
            x[k] = f32_silu(x[k]);
    }
    if (stream)
        bf16_stream_pair(dtype_at_mut(r->out, BOLIDE_BF16, i), x);
    else
        bf16_store_pair(dtype_at_mut(r->out, BOLIDE_BF16, i), x);
}

/* The largest finite number of out's dtype where the result is bounded. */
static float limit_of(const bolide__rmsnorm_params *p) {
    if (!p->out_bounded)
        return INFINITY;
    return p->out.dtype == BOLIDE_F16    ? 65504.0f
           : p->out.dtype == BOLIDE_BF16 ? 0x1.FEp127f
                                         : FLT_MAX;
}

static row first_row(const bolide__rmsnorm_params *p) {
    const float in = bolide__scalar_read(p->in_scale), out = bolide__scalar_read(p->out_scale);
    return (row){.weight = p->weight,
                 .in_scale = f32_set(in),
                 .out_scale = f32_set(p->out_divides ? 1.0f / out : out),
                 .bias = f32_set(p->weight_bias),
                 .limit = limit_of(p)};
}

BOLIDE_INLINE void rows(const bolide__rmsnorm_params *p, int64_t begin, int64_t end, form f) {
    row r = first_row(p);
    const bool large = p->rows * p->d * p->out.bytes >= BOLIDE_STREAM_BYTES;
    for (int64_t k = begin; k < end; k++) {
        r.input = bolide__row_at(&p->input, k, p->h);
        r.residual = f.residual ? bolide__row_at(&p->residual, k, p->h) : NULL;
        r.out = bolide__row_at(&p->out, k, p->h);
        const f32x16 rms = f32_set(inverse_rms(f, &r, p->d, p->eps));
        int64_t i = 0;
        const bool stream = large && (uintptr_t)r.out % 64 == 0 && r.out != r.input;
        const int64_t next = k + 1 < end ? k + 1 : k;
        const char *input = bolide__row_at(&p->input, next, p->h);
        const char *residual = f.residual ? bolide__row_at(&p->residual, next, p->h) : input;
        for (; f.paired && f.out == BOLIDE_BF16 && i + 32 <= p->d; i += 32) {
            __builtin_prefetch(input + 2 * i);
            if (f.residual)
                __builtin_prefetch(residual + 2 * i);
            finish_pair(f, &r, rms, i, stream);
        }
        for (; i + 16 <= p->d; i += 16)
            finish(f, &r, rms, i, 16);
        if (i < p->d)
            finish(f, &r, rms, i, p->d - i);
    }
    if (large)
        simd_stream_end();
}

/* ---- instances ------------------------------------------------------------------------------ */

/* In a form: the dtype of input, which the weight then has too. */
enum { SAME = -1 };

BOLIDE_INLINE form with_dtype(form f, int64_t t) {
    f.input = f.weight = t;
    f.residual = f.residual == SAME ? t : f.residual;
    f.out = f.out == SAME ? t : f.out;
    f.paired = t == BOLIDE_BF16;
    return f;
}

/* Where the conversions of the narrow dtypes are calls anyway, one instance does for all. */
BOLIDE_INLINE void by_dtype(const bolide__rmsnorm_params *p, int64_t begin, int64_t end, form f) {
    if (p->input.dtype == BOLIDE_F32)
        rows(p, begin, end, with_dtype(f, BOLIDE_F32));
    else if (!BOLIDE_SIMD_HAS_F16)
        rows(p, begin, end, with_dtype(f, p->input.dtype));
    else if (p->input.dtype == BOLIDE_F16)
        rows(p, begin, end, with_dtype(f, BOLIDE_F16));
    else
        rows(p, begin, end, with_dtype(f, BOLIDE_BF16));
}

void BOLIDE_ISA(rmsnorm_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    by_dtype(arg, begin, end, (form){.out = SAME});
}

void BOLIDE_ISA(fused_add_rmsnorm_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    by_dtype(arg, begin, end, (form){.residual = SAME, .out = SAME});
}

/* What follows has instances for the dtypes that models use; others choose their conversions as
 * they go, 16 values at a time. */

void BOLIDE_ISA(rmsnorm_silu_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__rmsnorm_params *p = arg;
    (void)worker;
    if (BOLIDE_SIMD_HAS_F16 && p->input.dtype == BOLIDE_BF16 && p->out.dtype == BOLIDE_BF16)
        rows(p, begin, end, with_dtype((form){.out = SAME, .silu = true}, BOLIDE_BF16));
    else
        rows(p, begin, end, with_dtype((form){.out = p->out.dtype, .silu = true}, p->input.dtype));
}

void BOLIDE_ISA(rmsnorm_scaled_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__rmsnorm_params *p = arg;
    const int64_t in = p->input.dtype, residual = p->residual.data ? p->residual.dtype : 0;
    const form f = {.out = BOLIDE_F8_E4M3FN, .scaled = true};
    const form sum = {.residual = SAME, .out = BOLIDE_F8_E4M3FN, .scaled = true};
    const bool usual = BOLIDE_SIMD_HAS_F16 && (in == BOLIDE_F16 || in == BOLIDE_BF16) &&
                       p->weight_dtype == in && p->out.dtype == BOLIDE_F8_E4M3FN;
    (void)worker;
    if (usual && residual == 0 && in == BOLIDE_BF16)
        rows(p, begin, end, with_dtype(f, BOLIDE_BF16));
    else if (usual && residual == 0)
        rows(p, begin, end, with_dtype(f, BOLIDE_F16));
    else if (usual && residual == in && in == BOLIDE_BF16)
        rows(p, begin, end, with_dtype(sum, BOLIDE_BF16));
    else if (usual && residual == in)
        rows(p, begin, end, with_dtype(sum, BOLIDE_F16));
    else
        rows(p, begin, end, (form){in, residual, p->weight_dtype, p->out.dtype, .scaled = true});
}

/* ---- block quantisation --------------------------------------------------------------------- */

/* Normalises one block, quantises it as it was stored and returns its scale. A NaN does not count
 * for the scale. */
BOLIDE_INLINE float quantise_block(const row *r, void *normed, int64_t dtype, f32x16 rms,
                                   int64_t first) {
    const form f = {dtype, dtype, dtype, dtype, .silu = false};
    f32x16 largest = f32_set(BOLIDE__QUANT_FLOOR);
    for (int64_t i = first; i < first + BOLIDE__QUANT_BLOCK; i += 16) {
        const f32x16 y = y_lanes(f, r, rms, i, 16);
        lanes_store(normed, dtype, i, 16, y);
        largest = f32_max(f32_abs(lanes_load(normed, dtype, i, 16)), largest);
    }
    const float scale = f32_hmax(largest) / 448.0f;
    for (int64_t i = first; i < first + BOLIDE__QUANT_BLOCK; i += 16)
        lanes_store(r->out, BOLIDE_F8_E4M3FN, i, 16,
                    f32_div(lanes_load(normed, dtype, i, 16), f32_set(scale)));
    return scale;
}

BOLIDE_INLINE void block_quant_rows(const bolide__rmsnorm_params *p, int64_t begin, int64_t end,
                                    int64_t dtype) {
    const form f = {dtype, dtype, dtype, dtype, .silu = false};
    row r = first_row(p);
    for (int64_t k = begin; k < end; k++) {
        void *normed = bolide__row_at(&p->normed, k, 1);
        r.input = bolide__row_at(&p->input, k, 1);
        r.residual = bolide__row_at(&p->residual, k, 1);
        r.out = bolide__row_at(&p->out, k, 1);
        const f32x16 rms = f32_set(inverse_rms(f, &r, p->d, p->eps));
        for (int64_t b = 0; b < p->d / BOLIDE__QUANT_BLOCK; b++)
            p->block_scale[b * p->block_scale_b + k * p->block_scale_n] =
                quantise_block(&r, normed, dtype, rms, b * BOLIDE__QUANT_BLOCK);
    }
}

void BOLIDE_ISA(rmsnorm_block_quant_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__rmsnorm_params *p = arg;
    (void)worker;
    if (BOLIDE_SIMD_HAS_F16 && p->input.dtype == BOLIDE_BF16)
        block_quant_rows(p, begin, end, BOLIDE_BF16);
    else
        block_quant_rows(p, begin, end, p->input.dtype);
}
