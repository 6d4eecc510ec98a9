// SPDX-License-Identifier: Apache-2.0
//
// Rows of any dtype to f32 and back, and the rotary embedding of a row.

#ifndef BOLIDE_OPS_ATTENTION_LOAD_H
#define BOLIDE_OPS_ATTENTION_LOAD_H

#include "cpu/simd.h"
#include "ops/attention/attention_internal.h"

/* Any dtype as f32; n elements, the rest of the last 16 are 0. */
static void widen(const void *from, int64_t dtype, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i += 16) {
        const void *p = dtype_at(from, dtype, i);
        f32x16 x;
        switch (dtype) {
        case BOLIDE_F16:
            x = load16_n(p, BOLIDE_F16, n - i);
            break;
        case BOLIDE_BF16:
            x = load16_n(p, BOLIDE_BF16, n - i);
            break;
        case BOLIDE_F8_E4M3FN:
            x = load16_n(p, BOLIDE_F8_E4M3FN, n - i);
            break;
        case BOLIDE_F8_E5M2:
            x = load16_n(p, BOLIDE_F8_E5M2, n - i);
            break;
        default:
            x = load16_n(p, BOLIDE_F32, n - i);
            break;
        }
        f32_store(to + i, x);
    }
}

static void narrow(const float *from, void *to, int64_t dtype, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        void *p = dtype_at_mut(to, dtype, i);
        const f32x16 x = f32_load_n(from + i, n - i);
        switch (dtype) {
        case BOLIDE_F16:
            store16_n(p, BOLIDE_F16, x, n - i);
            break;
        case BOLIDE_BF16:
            store16_n(p, BOLIDE_BF16, x, n - i);
            break;
        case BOLIDE_F8_E4M3FN:
            store16_n(p, BOLIDE_F8_E4M3FN, x, n - i);
            break;
        case BOLIDE_F8_E5M2:
            store16_n(p, BOLIDE_F8_E5M2, x, n - i);
            break;
        default:
            store16_n(p, BOLIDE_F32, x, n - i);
            break;
        }
    }
}

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
