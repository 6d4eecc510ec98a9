// SPDX-License-Identifier: Apache-2.0
//
// The online softmax of blocks that are seen whole, sixteen rows at a time. A row alone is a chain
// of three dependent reductions: its largest logit, what its sums shrink by, the sum of its
// weights. Sixteen rows share each of them, lane i being row i, so that what is left of a row is
// its 64 exponentials. The bits are those of a row alone: the sum of weights has one tree, and the
// largest of some numbers has no order.

#ifndef BOLIDE_OPS_ATTENTION_SOFTEN_H
#define BOLIDE_OPS_ATTENTION_SOFTEN_H

#include <math.h>

#include "ops/attention/attention_dot.h"

enum { SOFTEN_ROWS = 16 };

/* Part c of a row's logits. */
BOLIDE_INLINE f32x16 logits16(const float *scores, const float *scale, int c) {
    const f32x16 x = f32_load(scores + 16 * c);
    return scale ? f32_mul(x, f32_set(*scale)) : x;
}

/* Up to sixteen rows of scores, [rows][BLOCK], become weights; scale, m, l and alpha have a value a
 * row. */
BOLIDE_INLINE void soften_group(int rows, float *scores, const float *scale, float *m, float *l,
                                float *alpha) {
    f32_folded part[SOFTEN_ROWS];
    float base[SOFTEN_ROWS];
    for (int r = rows; r < SOFTEN_ROWS; r++)
        part[r] = f32_fold(f32_zero());
    for (int r = 0; r < rows; r++) {
        const float *row = scores + r * BLOCK, *s = scale ? scale + r : NULL;
        const f32x16 a = f32_max(logits16(row, s, 0), logits16(row, s, 1));
        const f32x16 b = f32_max(logits16(row, s, 2), logits16(row, s, 3));
        part[r] = f32_fold_max(f32_max(a, b));
    }
    const f32x16 old = f32_load_n(m, rows), top = f32_max(f32_max16(part), old);
    const f32x16 from = f32_select(f32_eq(top, f32_set(-INFINITY)), f32_zero(), top);
    const f32x16 shrink =
        f32_select(f32_eq(top, old), f32_set(1), f32_exp2_neg(f32_sub(old, from)));
    f32_store(base, from);
    for (int r = 0; r < rows; r++) {
        float *row = scores + r * BLOCK;
        f32x16 x[4];
        BOLIDE_UNROLL
        for (int c = 0; c < 4; c++) {
            const f32x16 logit = logits16(row, scale ? scale + r : NULL, c);
            x[c] = f32_exp2_neg(f32_sub(logit, f32_set(base[r])));
            f32_store(row + 16 * c, x[c]);
        }
        part[r] = f32_fold(f32_add(f32_add(x[0], x[1]), f32_add(x[2], x[3])));
    }
    f32_store_n(l, f32_add(f32_mul(f32_load_n(l, rows), shrink), f32_sum16(part)), rows);
    f32_store_n(m, top, rows);
    f32_store_n(alpha, shrink, rows);
}

/* A row alone, which has nothing to share. */
static void soften_one(float *scores, const float *scale, float *m, float *l, float *alpha) {
    f32x16 x[4];
    BOLIDE_UNROLL
    for (int c = 0; c < 4; c++)
        x[c] = logits16(scores, scale, c);
    const float most = f32_hmax_tree(f32_max(f32_max(x[0], x[1]), f32_max(x[2], x[3])));
    const float old = *m, top = most > old ? most : old;
    const f32x16 base = f32_set(top == -INFINITY ? 0 : top);
    BOLIDE_UNROLL
    for (int c = 0; c < 4; c++) {
        x[c] = f32_exp2_neg(f32_sub(x[c], base));
        f32_store(scores + 16 * c, x[c]);
    }
    const float sum = f32_sum(f32_add(f32_add(x[0], x[1]), f32_add(x[2], x[3])));
    *alpha = top == old ? 1 : f32_lane(f32_exp2_neg(f32_sub(f32_set(old), base)), 0);
    *l = *l * *alpha + sum;
    *m = top;
}

/* Any number of rows. scale, of each row's scores, may be NULL. */
static void soften_together(int64_t rows, float *scores, const float *scale, float *m, float *l,
                            float *alpha) {
    if (rows == 1) {
        soften_one(scores, scale, m, l, alpha);
        return;
    }
    for (int64_t r = 0; r < rows; r += SOFTEN_ROWS) {
        const int n = rows - r < SOFTEN_ROWS ? (int)(rows - r) : SOFTEN_ROWS;
        if (scale)
            soften_group(n, scores + r * BLOCK, scale + r, m + r, l + r, alpha + r);
        else
            soften_group(n, scores + r * BLOCK, NULL, m + r, l + r, alpha + r);
    }
}

#endif
