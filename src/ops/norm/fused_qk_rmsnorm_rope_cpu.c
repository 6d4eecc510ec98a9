// SPDX-License-Identifier: Apache-2.0
//
// Norm and rotation of q and k on the CPU. The cosines and sines of a token are computed once for
// all its heads, with the factor of the result folded in; a side's channels are read once for the
// sum of their squares and once, from cache, to be normalised, turned and stored.

#include "ops/norm/rms_lanes.h"

/* Of one token. */
typedef struct turn {
    float cosine[BOLIDE__QK_ROPE_MAX_PAIRS];
    float sine[BOLIDE__QK_ROPE_MAX_PAIRS];
} turn;

static void fill_turn(const bolide__qk_rope_params *p, int64_t token, turn *t) {
    const int64_t pairs = p->d / 2;
    double angle[BOLIDE__QK_ROPE_MAX_PAIRS];
    const double frame = (double)(token / (p->pph * p->ppw));
    const double height = (double)(token / p->ppw % p->pph), width = (double)(token % p->ppw);
    for (int64_t j = 0; j < pairs; j++)
        angle[j] = p->freq[j] * (j < p->frame_pairs                     ? frame
                                 : j < p->frame_pairs + p->height_pairs ? height
                                                                        : width);
    const f32x16 factor = f32_set(p->side[0].factor); /* the same for q and k */
    for (int64_t j = 0; j < pairs; j += 16) {
        f32x16 s, c;
        f64_sincos(f64_load_n(angle + j, pairs - j), &s, &c);
        f32_store_n(t->cosine + j, f32_mul(c, factor), pairs - j);
        f32_store_n(t->sine + j, f32_mul(s, factor), pairs - j);
    }
}

/* One side of a token. Dtypes are constants after inlining. */
typedef struct heads {
    const void *x, *weight;
    void *out;
    int64_t dtype, out_dtype;
    f32x16 scale;   /* 1 / rms, or 1 */
    bool normalise; /* with the weight */
} heads;

/* Normalised channels i ... i+15 of a side, of which left exist. */
BOLIDE_INLINE f32x16 y_lanes(heads h, int64_t i, int64_t left) {
    const f32x16 x = lanes_load(h.x, h.dtype, i, left);
    if (!h.normalise)
        return x;
    return f32_mul(f32_mul(x, h.scale), lanes_load(h.weight, h.dtype, i, left));
}

/* Pairs j ... j+15 of the head whose channels begin at first in x and at to in out; left of the
 * pairs exist. */
BOLIDE_INLINE void turn_lanes(heads h, const turn *t, int64_t first, int64_t to, int64_t pairs,
                              bool interleave, int64_t j, int64_t left) {
    const f32x16 c = f32_load_n(t->cosine + j, left), s = f32_load_n(t->sine + j, left);
    f32x16 a, b;
    if (interleave) {
        const f32x16 low = y_lanes(h, first + 2 * j, left == 16 ? 16 : 2 * left);
        const f32x16 high = y_lanes(h, first + 2 * j + 16, left == 16 ? 16 : 2 * left - 16);
        f32_deinterleave(low, high, &a, &b);
    } else {
        a = y_lanes(h, first + j, left);
        b = y_lanes(h, first + pairs + j, left);
    }
    const f32x16 turned_a = f32_fnma(b, s, f32_mul(a, c));
    const f32x16 turned_b = f32_fma(a, s, f32_mul(b, c));
    if (interleave) {
        f32_interleave(turned_a, turned_b, &a, &b);
        lanes_store(h.out, h.out_dtype, to + 2 * j, left == 16 ? 16 : 2 * left, a);
        lanes_store(h.out, h.out_dtype, to + 2 * j + 16, left == 16 ? 16 : 2 * left - 16, b);
    } else {
        lanes_store(h.out, h.out_dtype, to + j, left, turned_a);
        lanes_store(h.out, h.out_dtype, to + pairs + j, left, turned_b);
    }
}

BOLIDE_INLINE void turn_heads(const bolide__qk_rope_params *p, const bolide__qk_rope_side *side,
                              heads h, const turn *t, bool interleave) {
    const int64_t pairs = p->d / 2;
    for (int64_t k = 0; k < side->heads; k++) {
        int64_t j = 0;
        for (; j + 16 <= pairs; j += 16)
            turn_lanes(h, t, k * p->d, k * side->out_h, pairs, interleave, j, 16);
        if (j < pairs)
            turn_lanes(h, t, k * p->d, k * side->out_h, pairs, interleave, j, pairs - j);
    }
}

BOLIDE_INLINE void copy_heads(const bolide__qk_rope_params *p, const bolide__qk_rope_side *side,
                              heads h) {
    const f32x16 factor = f32_set(side->factor);
    for (int64_t k = 0; k < side->heads; k++) {
        for (int64_t i = 0; i < p->d; i += 16)
            lanes_store(h.out, h.out_dtype, k * side->out_h + i, p->d - i,
                        f32_mul(lanes_load(h.x, h.dtype, k * p->d + i, p->d - i), factor));
    }
}

BOLIDE_INLINE void token_side(const bolide__qk_rope_params *p, const bolide__qk_rope_side *side,
                              int64_t b, int64_t s, const turn *t, int64_t dtype,
                              int64_t out_dtype) {
    const int64_t width = side->heads * p->d;
    const int64_t at = b * p->qkv_b + s * p->qkv_s + side->first;
    heads h = {.x = dtype_at(p->qkv, dtype, at),
               .weight = side->weight,
               .out = dtype_at_mut(side->out, out_dtype, b * side->out_b + s * side->out_s),
               .dtype = dtype,
               .out_dtype = out_dtype};
    if (!side->weight) {
        copy_heads(p, side, h);
        return;
    }
    h.normalise = p->normalise;
    if (h.normalise) {
        const row r = {.input = h.x};
        h.scale = f32_set(inverse_rms((form){.input = dtype}, &r, width, p->eps));
    }
    if (p->interleave)
        turn_heads(p, side, h, t, true);
    else
        turn_heads(p, side, h, t, false);
}

BOLIDE_INLINE void tokens(const bolide__qk_rope_params *p, int64_t begin, int64_t end,
                          int64_t dtype, int64_t out_dtype) {
    turn t;
    for (int64_t k = begin; k < end; k++) {
        fill_turn(p, k % p->s, &t);
        for (int i = 0; i < 3; i++)
            token_side(p, &p->side[i], k / p->s, k % p->s, &t, dtype, out_dtype);
    }
}

/* Instances for what models use; other dtypes choose their conversions as they go, 16 values at a
 * time. */
void BOLIDE_ISA(qk_rmsnorm_rope_tokens)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__qk_rope_params *p = arg;
    (void)worker;
    if (BOLIDE_SIMD_HAS_F16 && p->dtype == BOLIDE_BF16 && p->out_dtype == BOLIDE_BF16)
        tokens(p, begin, end, BOLIDE_BF16, BOLIDE_BF16);
    else
        tokens(p, begin, end, p->dtype, p->out_dtype);
}
