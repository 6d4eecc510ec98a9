// SPDX-License-Identifier: Apache-2.0
//
// Rows of any dtype to f32 and back.

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

#endif
