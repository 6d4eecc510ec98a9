// SPDX-License-Identifier: Apache-2.0
//
// Operators that write a row for each row: renormalised probabilities, masked logits, softmax. The
// least value that stays is found as for sampling; writing reads the row once more from cache.

#include "ops/sampling/select.h"

typedef bolide__renorm_params params;

BOLIDE_INLINE void store_tile(void *out, int64_t dtype, int64_t begin, int64_t n, const float *y) {
    int64_t i = 0;
    for (; i + BOLIDE_LANES <= n; i += BOLIDE_LANES)
        store16(dtype_at_mut(out, dtype, begin + i), dtype, f32_load(y + i));
    if (i < n)
        store16_n(dtype_at_mut(out, dtype, begin + i), dtype, f32_load(y + i), n - i);
}

static void put_tile(void *out, int64_t dtype, int64_t begin, int64_t n, const float *y) {
    if (dtype == BOLIDE_F32)
        store_tile(out, BOLIDE_F32, begin, n, y);
    else if (dtype == BOLIDE_F16)
        store_tile(out, BOLIDE_F16, begin, n, y);
    else
        store_tile(out, BOLIDE_BF16, begin, n, y);
}

static select_row row_at(const params *p, int64_t i, row_kind kind) {
    return (select_row){.data = dtype_at(p->input, p->dtype, i * p->input_n),
                        .dtype = p->dtype,
                        .v = p->v,
                        .kind = kind,
                        .total = 1.0};
}

static void *out_at(const params *p, int64_t i) {
    return dtype_at_mut(p->out, p->out_dtype, i * p->out_n);
}

/* Zeros but for one 1; all zeros for an index of v. */
static void put_one_hot(const params *p, int64_t i, int64_t hot) {
    float y[TILE];
    for (int64_t begin = 0; begin < p->v; begin += TILE) {
        const int64_t n = p->v - begin < TILE ? p->v - begin : TILE;
        memset(y, 0, sizeof y);
        if (hot >= begin && hot < begin + n)
            y[hot - begin] = 1.0f;
        put_tile(out_at(p, i), p->out_dtype, begin, n, y);
    }
}

/* ---- renormalisation ---------------------------------------------------------------------- */

static void renorm_row(const params *p, int64_t i) {
    const select_row r = row_at(p, i, ROW_PROBS);
    const bool by_count = p->kind == BOLIDE__RENORM_TOP_K;
    const int64_t k = by_count ? bolide__row_int(&p->limit, i) : 0;
    const float top_p = by_count ? 1.0f : bolide__row_float(&p->limit, i);
    if (top_p <= 0.0f) {
        const float max = select_max(&r);
        put_one_hot(p, i, max > 0.0f ? select_first(&r, max) : p->v);
        return;
    }
    selector s;
    const float least = select_by_mass(&s, &r, k, top_p, true);
    const double sum = select_sum(&r, least, NULL);
    /* Infinite entries may add up to more than f32 holds. */
    const float shrink = sum > (double)FLT_MAX ? 0x1p-32f : 1.0f;
    const f32x16 scale = f32_set(sum > 0 ? (float)(sum * (double)shrink) : 1.0f);
    const f32x16 keep = f32_set(least);
    for (int64_t begin = 0; begin < p->v; begin += TILE) {
        const int64_t n = p->v - begin < TILE ? p->v - begin : TILE;
        select_tile(&r, begin, n, s.x);
        for (int64_t j = 0; j < n; j += BOLIDE_LANES) {
            const f32x16 x = f32_load(s.x + j);
            const f32x16 y = f32_div(f32_mul(x, f32_set(shrink)), scale);
            f32_store(s.x + j, f32_keep(f32_ge(x, keep), y));
        }
        put_tile(out_at(p, i), p->out_dtype, begin, n, s.x);
    }
}

/* ---- masking ------------------------------------------------------------------------------ */

/* Values that stay are stored as they came, bit for bit: widening and back changes nothing. */
BOLIDE_INLINE void mask_pass(const params *p, int64_t i, int64_t dtype, float least) {
    const void *in = dtype_at(p->input, dtype, i * p->input_n);
    const f32x16 none = f32_set(-INFINITY), keep = f32_set(least);
    for (int64_t j = 0; j < p->v; j += BOLIDE_LANES) {
        const int64_t n = p->v - j;
        const f32x16 x = load16_n(dtype_at(in, dtype, j), dtype, n);
        const f32x16 y = f32_select(f32_ge(x, keep), x, none);
        store16_n(dtype_at_mut(out_at(p, i), dtype, j), dtype, y, n);
    }
}

static void mask_row(const params *p, int64_t i) {
    const select_row r = row_at(p, i, ROW_SCORES);
    const int64_t k = bolide__row_int(&p->limit, i);
    int64_t above, ties;
    selector s;
    float least = -INFINITY;
    if (k > 0 && k < p->v)
        least = select_by_count(&s, &r, k, -INFINITY, &above, &ties);
    if (p->dtype == BOLIDE_F32)
        mask_pass(p, i, BOLIDE_F32, least);
    else if (p->dtype == BOLIDE_F16)
        mask_pass(p, i, BOLIDE_F16, least);
    else
        mask_pass(p, i, BOLIDE_BF16, least);
}

void BOLIDE_ISA(renorm_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const params *p = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        if (p->kind == BOLIDE__MASK_TOP_K)
            mask_row(p, i);
        else
            renorm_row(p, i);
    }
}

/* ---- softmax ------------------------------------------------------------------------------ */

/* exp((x - max) / t) to out, and the sum of it. */
static double put_exp(const params *p, const select_row *r, float *out, f32x16 max, f32x16 t) {
    float x[TILE];
    f64x16 sum = f64_set(0.0);
    for (int64_t begin = 0; begin < p->v; begin += TILE) {
        const int64_t n = p->v - begin < TILE ? p->v - begin : TILE;
        select_tile(r, begin, n, x);
        for (int64_t j = 0; j < n; j += BOLIDE_LANES) {
            const f32x16 e = f32_exp_neg(f32_div(f32_sub(f32_load(x + j), max), t));
            sum = f64_add(sum, f32_to_f64(e));
            f32_store_n(out + begin + j, e, n - j);
        }
    }
    return sum16(sum);
}

static void softmax_row(const params *p, int64_t i) {
    select_row r = row_at(p, i, ROW_LOGITS);
    float t = bolide__row_float(&p->limit, i);
    r.max = select_max(&r);
    if (!p->limit.data && isnan(t))
        t = 1.0f;
    t = t > FLT_MAX ? FLT_MAX : t; /* -inf divided by infinity would be NaN */
    if (r.max == -INFINITY || !(t > 0.0f)) {
        put_one_hot(p, i, r.max == -INFINITY ? p->v : select_first(&r, r.max));
        return;
    }
    float *out = out_at(p, i);
    const double sum = put_exp(p, &r, out, f32_set(r.max), f32_set(t));
    const f32x16 scale = f32_set((float)(1.0 / sum));
    for (int64_t j = 0; j < p->v; j += BOLIDE_LANES)
        f32_store_n(out + j, f32_mul(f32_load_n(out + j, p->v - j), scale), p->v - j);
}

void BOLIDE_ISA(softmax_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        softmax_row(arg, i);
}
