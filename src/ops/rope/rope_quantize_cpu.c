// SPDX-License-Identifier: Apache-2.0
//
// Turning and quantising q, k and v on the CPU. Arithmetic is f32 from the load to the one rounding
// to fp8, whose conversion is what costs where the machine has no instruction for it.

#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/rope/rope_quantize_internal.h"

/* Factors of one token. Halves: of pair i at [i]. Interleaved: channel c is x[c] * cosine[c] +
 * x[c ^ 1] * sine[c], the sign of the first member's sine folded in. */
typedef struct factors {
    const float *cosine, *sine;
    float cosine_pairs[2 * BOLIDE__ROPE_MAX_PAIRS];
    float sine_pairs[2 * BOLIDE__ROPE_MAX_PAIRS];
} factors;

/* False if the token's position lies outside the table. */
static bool find_factors(const bolide__rope_quantize_params *p, int64_t token, factors *f) {
    const int64_t position =
        p->pos_is_i64 ? ((const int64_t *)p->pos_ids)[token] : ((const int32_t *)p->pos_ids)[token];
    const int64_t pairs = p->rotary_dim / 2;
    if (position < 0 || position >= p->max_pos)
        return false;
    f->cosine = p->cos_sin_cache + position * p->cache_stride;
    f->sine = f->cosine + pairs;
    if (!p->interleave)
        return true;
    for (int64_t i = 0; i < pairs; i++) {
        f->cosine_pairs[2 * i] = f->cosine_pairs[2 * i + 1] = f->cosine[i];
        f->sine_pairs[2 * i] = -f->sine[i];
        f->sine_pairs[2 * i + 1] = f->sine[i];
    }
    f->cosine = f->cosine_pairs;
    f->sine = f->sine_pairs;
    return true;
}

BOLIDE_INLINE void scaled_row(const char *in, char *out, int64_t d, float scale, int64_t dtype,
                              int64_t out_dtype) {
    const int64_t bytes = bolide__dtype_bytes(dtype);
    const f32x16 factor = f32_set(scale);
    for (int64_t i = 0; i < d; i += BOLIDE_LANES)
        store16_n(out + i, out_dtype, f32_mul(load16_n(in + i * bytes, dtype, d - i), factor),
                  d - i);
}

BOLIDE_INLINE void turned_halves(const char *in, char *out, int64_t pairs, const factors *f,
                                 float scale, int64_t dtype, int64_t out_dtype) {
    const int64_t bytes = bolide__dtype_bytes(dtype);
    const f32x16 factor = f32_set(scale);
    for (int64_t i = 0; i < pairs; i += BOLIDE_LANES) {
        const int64_t left = pairs - i;
        const f32x16 c = f32_load_n(f->cosine + i, left), s = f32_load_n(f->sine + i, left);
        const f32x16 a = load16_n(in + i * bytes, dtype, left);
        const f32x16 b = load16_n(in + (pairs + i) * bytes, dtype, left);
        const f32x16 x = f32_sub(f32_mul(a, c), f32_mul(b, s));
        const f32x16 y = f32_add(f32_mul(b, c), f32_mul(a, s));
        store16_n(out + i, out_dtype, f32_mul(x, factor), left);
        store16_n(out + pairs + i, out_dtype, f32_mul(y, factor), left);
    }
}

BOLIDE_INLINE void turned_pairs(const char *in, char *out, int64_t channels, const factors *f,
                                float scale, int64_t dtype, int64_t out_dtype) {
    const int64_t bytes = bolide__dtype_bytes(dtype);
    const f32x16 factor = f32_set(scale);
    for (int64_t i = 0; i < channels; i += BOLIDE_LANES) {
        const int64_t left = channels - i;
        const f32x16 c = f32_load_n(f->cosine + i, left), s = f32_load_n(f->sine + i, left);
        const f32x16 x = load16_n(in + i * bytes, dtype, left);
        const f32x16 y = f32_add(f32_mul(x, c), f32_mul(f32_swap_pairs(x), s));
        store16_n(out + i, out_dtype, f32_mul(y, factor), left);
    }
}

/* Where the token's part begins; NULL if it has no place in the cache. */
static char *place(const bolide__rope_quantize_params *p, const bolide__rope_part *s,
                   int64_t token) {
    if (!s->is_paged)
        return (char *)s->out + token * s->out_n;
    int64_t slot;
    const int64_t page =
        bolide__page_of(&p->table, p->batch_indices[token], p->positions[token], &slot);
    return page < 0 ? NULL : (char *)s->out + page * s->out_n + slot * s->out_slot;
}

/* One part of one token; both dtypes are constants. */
BOLIDE_INLINE void quantize_part(const bolide__rope_quantize_params *p, const bolide__rope_part *s,
                                 int64_t token, const factors *f, int64_t dtype,
                                 int64_t out_dtype) {
    const int64_t bytes = bolide__dtype_bytes(dtype);
    const char *in = (const char *)s->in + token * s->in_n * bytes;
    char *out = place(p, s, token);
    for (int64_t h = 0; out && h < s->h; h++) {
        if (!f || !s->turns)
            scaled_row(in, out, s->d, s->scale, dtype, out_dtype);
        else if (p->interleave)
            turned_pairs(in, out, s->d, f, s->scale, dtype, out_dtype);
        else
            turned_halves(in, out, s->d / 2, f, s->scale, dtype, out_dtype);
        in += s->in_h * bytes;
        out += s->out_h;
    }
}

BOLIDE_INLINE void quantize_tokens(const bolide__rope_quantize_params *p, int64_t begin,
                                   int64_t end, int64_t dtype, int64_t out_dtype) {
    for (int64_t i = begin; i < end; i++) {
        factors f;
        const bool turns = find_factors(p, i, &f);
        for (int64_t part = 0; part < p->parts; part++)
            quantize_part(p, &p->part[part], i, turns ? &f : NULL, dtype, out_dtype);
    }
}

void BOLIDE_ISA(rope_quantize_tokens)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__rope_quantize_params *p = arg;
    (void)worker;
    if (p->out_dtype == BOLIDE_F8_E4M3FN) {
        if (p->dtype == BOLIDE_BF16)
            quantize_tokens(p, begin, end, BOLIDE_BF16, BOLIDE_F8_E4M3FN);
        else if (p->dtype == BOLIDE_F16)
            quantize_tokens(p, begin, end, BOLIDE_F16, BOLIDE_F8_E4M3FN);
        else
            quantize_tokens(p, begin, end, BOLIDE_F32, BOLIDE_F8_E4M3FN);
    } else if (p->dtype == BOLIDE_BF16) {
        quantize_tokens(p, begin, end, BOLIDE_BF16, BOLIDE_F8_E5M2);
    } else if (p->dtype == BOLIDE_F16) {
        quantize_tokens(p, begin, end, BOLIDE_F16, BOLIDE_F8_E5M2);
    } else {
        quantize_tokens(p, begin, end, BOLIDE_F32, BOLIDE_F8_E5M2);
    }
}
