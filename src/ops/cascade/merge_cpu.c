// SPDX-License-Identifier: Apache-2.0
//
// CPU kernel of the operators that join attention states: the weights of a row's states first, then
// a weighted sum over 16 columns at a time, a block of columns after the other. Reads every state
// once, so memory bandwidth is the limit.

#include "ops/cascade/cascade_internal.h"

#include <math.h>

#include "cpu/simd.h"

enum { COLUMNS = 256 }; /* of a block: the sums stay in the first cache */

typedef struct state {
    const char *v;
    float s;
} state;

static state state_at(const bolide__merge_params *p, int64_t n, int64_t i, int64_t h) {
    if (p->v_b && i == 1)
        return (state){dtype_at(p->v_b, p->dtype, n * p->v_b_n + h * p->v_b_h),
                       p->s_b[n * p->s_b_n + h * p->s_b_h]};
    const int64_t first = p->indptr ? p->indptr[n] : 0;
    const int64_t row = p->indptr ? 0 : n;
    return (state){dtype_at(p->v, p->dtype, row * p->v_n + (first + i) * p->v_i + h * p->v_h),
                   p->s[row * p->s_n + (first + i) * p->s_i + h * p->s_h]};
}

static float exp2_of(float x) {
    return f32_lane(f32_exp2_neg(f32_set(x)), 0);
}

/* Adds one state's columns [c, c + n) to the sums. */
BOLIDE_INLINE void add_state(int64_t dtype, const state *x, float weight, int64_t c, int64_t n,
                             float *sums) {
    const f32x16 w = f32_set(weight);
    for (int64_t k = 0; k < n; k += 16) {
        const f32x16 v = load16_n(dtype_at(x->v, dtype, c + k), dtype, n - k);
        f32_store(sums + k, f32_fma(w, v, f32_load(sums + k)));
    }
}

BOLIDE_INLINE void merge_row(const bolide__merge_params *p, int64_t dtype, int64_t n, int64_t h) {
    const int64_t count = p->indptr ? p->indptr[n + 1] - p->indptr[n] : p->states;
    float top = -INFINITY, sum = 0;
    float sums[COLUMNS];
    for (int64_t i = 0; i < count; i++) {
        const float s = state_at(p, n, i, h).s;
        top = top > s ? top : s;
    }
    for (int64_t i = 0; i < count; i++) {
        const float s = state_at(p, n, i, h).s;
        sum += s == -INFINITY ? 0 : exp2_of(s - top);
    }
    for (int64_t c = 0; c < p->d; c += COLUMNS) {
        const int64_t width = p->d - c < COLUMNS ? p->d - c : COLUMNS;
        for (int64_t k = 0; k < width; k += 16)
            f32_store(sums + k, f32_zero());
        for (int64_t i = 0; i < count; i++) {
            const state x = state_at(p, n, i, h);
            if (x.s != -INFINITY)
                add_state(dtype, &x, exp2_of(x.s - top) / sum, c, width, sums);
        }
        for (int64_t k = 0; k < width; k += 16)
            store16_n(dtype_at_mut(p->v_merged, dtype, n * p->out_n + h * p->out_h + c + k), dtype,
                      f32_load(sums + k), width - k);
    }
    p->s_merged[n * p->s_out_n + h * p->s_out_h] =
        sum == 0 ? -INFINITY : top + f32_lane(f32_log2(f32_set(sum)), 0);
}

void BOLIDE_ISA(merge_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__merge_params *p = arg;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const int64_t n = row / p->h, h = row % p->h;
        if (p->mask && !p->mask[n * p->mask_n])
            continue;
        if (p->dtype == BOLIDE_F16)
            merge_row(p, BOLIDE_F16, n, h);
        else if (p->dtype == BOLIDE_BF16)
            merge_row(p, BOLIDE_BF16, n, h);
        else
            merge_row(p, BOLIDE_F32, n, h);
    }
}
