// SPDX-License-Identifier: Apache-2.0
//
// The rotary embedding of a row in f32.

#ifndef BOLIDE_OPS_ATTENTION_ROPE_H
#define BOLIDE_OPS_ATTENTION_ROPE_H

#include "cpu/simd.h"
#include "ops/attention/attention_internal.h"

/* Cosines and sines of all frequencies at a position; the angle is a double until reduced. */
static void rope_angles(const bolide__attention_params *p, int64_t position, float *cosine,
                        float *sine) {
    const int64_t half = p->d_qk / 2;
    for (int64_t i = 0; i < half; i += 16) {
        f32x16 s, c;
        const f64x16 f = f64_load_n(p->rope_frequency + i, half - i);
        f64_sincos(f64_mul(f64_set((double)position), f), &s, &c);
        f32_store(cosine + i, c);
        f32_store(sine + i, s);
    }
}

/* In place: pairs (i, i + half). */
static void rotate(float *x, int64_t d, const float *cosine, const float *sine) {
    const int64_t half = d / 2;
    for (int64_t i = 0; i < half; i += 16) {
        const f32x16 a = f32_load_n(x + i, half - i), b = f32_load_n(x + half + i, half - i);
        const f32x16 c = f32_load(cosine + i), s = f32_load(sine + i);
        f32_store_n(x + i, f32_sub(f32_mul(a, c), f32_mul(b, s)), half - i);
        f32_store_n(x + half + i, f32_add(f32_mul(b, c), f32_mul(a, s)), half - i);
    }
}

#endif
