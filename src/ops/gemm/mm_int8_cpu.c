// SPDX-License-Identifier: Apache-2.0
//
// Products of activations rounded to 8 or 16 bits with quantised weights. 16 bits are two planes of
// bytes, q = 255 high + low. The sum of a block of 32 products is an exact integer s; an output
// element is one chain over the blocks in order:
//
//     acc = fma(s, d * scale, acc)                    d, min: of the weight's block
//     acc = fma(min, scale * (sum of q), acc)         q4_1 only
//
// so its bits depend on nothing but its row and column: not on m, threads or instruction set.
// 16 rows of the weight are 16 lanes. With one row of activations the weights are read once, in
// place: the limit is memory. With more, a piece of the weight is regrouped into a panel in L1 that
// all rows of activations share: the limit is the multiplier.

#include "core/tensor.h"
#include "cpu/simd_block.h"
#include "ops/gemm/gemm_store.h"

enum {
    ROWS = 4, /* of activations in a tile */
    DEPTH = 8 /* blocks of k in a panel: 4 KB of weights, 5 KB in all */
};

/* ---- activations -------------------------------------------------------------------------- */

/* Below this a block counts as 0: largest / max would overflow long before max is 0. */
static const float least = 0x1p-110f;

/* 16 of a block: all of q in one plane, or high and low in two. 255 is odd, so no q lies halfway
 * between two multiples of it, and |low| <= 127. */
BOLIDE_INLINE void store_rounded(const bolide__int8_params *p, int8_t *to, i32x16 q) {
    if (p->planes == 1) {
        u8_store(to, q);
        return;
    }
    const i32x16 high = f32_to_i32_round(f32_mul(i32_to_f32(q), f32_set(1.0f / 255)));
    u8_store(to, high);
    u8_store(to + p->plane, i32_sub(q, i32_sub(i32_shl(high, 8), high)));
}

BOLIDE_INLINE void quantize_block(const bolide__int8_params *p, const void *x, int64_t dtype,
                                  int64_t row, int64_t block) {
    const f32x16 a = load16(x, dtype), b = load16(dtype_at(x, dtype, 16), dtype);
    const float max = f32_hmax(f32_max_nan(f32_abs(a), f32_abs(b)));
    const float largest = p->planes == 1 ? 127.0f : 255.0f * 127 + 127;
    const bool usable = max >= least && max <= 3.4028234e38f;
    const f32x16 inverse = f32_set(usable ? largest / max : 0.0f);
    const i32x16 qa = usable ? f32_to_i32_round(f32_mul(a, inverse)) : i32_zero();
    const i32x16 qb = usable ? f32_to_i32_round(f32_mul(b, inverse)) : i32_zero();
    int8_t *q = p->q + (row * p->kb + block) * BLOCK_SIZE;
    store_rounded(p, q, qa);
    store_rounded(p, q + 16, qb);
    const float scale = usable ? max / largest : max < least ? 0.0f : NAN;
    const float sum = f32_sum(i32_to_f32(i32_add(qa, qb))); /* exact */
    p->scale[row * p->kb + block] = scale;
    p->sum[row * p->kb + block] = scale * sum;
    p->offset[row * p->kb + block] = (int32_t)sum * (int32_t)p->taken_off;
}

BOLIDE_INLINE void quantize_row(const bolide__int8_params *p, int64_t row, int64_t dtype) {
    const void *x = dtype_at(p->input, dtype, row * p->input_row);
    for (int64_t block = 0; block < p->kb; block++)
        quantize_block(p, dtype_at(x, dtype, block * BLOCK_SIZE), dtype, row, block);
}

void BOLIDE_ISA(quantize_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__int8_params *p = arg;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        if (p->input_dtype == BOLIDE_F32)
            quantize_row(p, row, BOLIDE_F32);
        else if (p->input_dtype == BOLIDE_F16)
            quantize_row(p, row, BOLIDE_F16);
        else
            quantize_row(p, row, BOLIDE_BF16);
    }
}

/* ---- weights ------------------------------------------------------------------------------ */

/* What a format is made of, constants after inlining. */
typedef struct layout {
    int64_t bytes; /* of a block */
    int64_t first; /* where its numbers begin */
    int kind;
    bool has_min;
} layout;

BOLIDE_INLINE layout layout_of(int64_t format) {
    if (format == BOLIDE_WEIGHT_Q4_1)
        return (layout){20, 4, BLOCK_NIBBLES, true};
    if (format == BOLIDE_WEIGHT_Q4_0)
        return (layout){18, 2, BLOCK_NIBBLES, false};
    return (layout){34, 2, BLOCK_SIGNED, false};
}

/* Sixteen rows of the weight, among them those that make columns [col, col + count) of the output;
 * lane[i] says where the i-th of these is. A panel at the edge takes rows before col, too, and in a
 * weight of fewer than 16 rows some twice. */
typedef struct strip {
    block_rows rows;
    int64_t col, count;
    int lane[PANEL_ROWS];
} strip;

BOLIDE_INLINE strip find_strip(const bolide__int8_params *p, int64_t col) {
    strip s = {.col = col, .count = p->n - col < PANEL_ROWS ? p->n - col : PANEL_ROWS};
    const int64_t first = p->n < PANEL_ROWS ? 0 : col + s.count - PANEL_ROWS;
    s.rows.step = p->n < 4 ? 0 : p->weight_n;
    for (int j = 0; j < 4; j++) {
        const int64_t last = p->n < 4 ? p->n - 1 : p->n - 4;
        const int64_t want = p->n < 4 ? j : first + 4 * j;
        s.rows.base[j] = p->weight + (want < last ? want : last) * p->weight_n;
    }
    for (int i = 0; i < s.count; i++) {
        const int at = (int)(col - first) + i; /* a lane, unless the weight has few rows */
        const int behind = at - (int)(p->n - 4);
        s.lane[i] = p->n < 4                                     ? 4 * at
                    : p->n < PANEL_ROWS && at / 4 * 4 > p->n - 4 ? at / 4 * 4 + behind
                                                                 : at;
    }
    return s;
}

BOLIDE_INLINE void store_strip(const bolide__int8_params *p, int64_t row, const strip *s,
                               f32x16 v) {
    if (s->count == PANEL_ROWS) {
        gemm_store(&p->out, row, s->col, PANEL_ROWS, v);
        return;
    }
    float t[PANEL_ROWS], to[PANEL_ROWS] = {0};
    f32_store(t, v);
    for (int i = 0; i < s->count; i++)
        to[i] = t[s->lane[i]];
    gemm_store(&p->out, row, s->col, s->count, f32_load(to));
}

/* The chain of one block, as the head of this file says. */
BOLIDE_INLINE f32x16 add_block(const bolide__int8_params *p, int64_t at, f32x16 acc, i32x16 sum,
                               f32x16 d, f32x16 min, bool has_min) {
    const f32x16 s = i32_to_f32(i32_sub(sum, i32_set(p->offset[at])));
    acc = f32_fma(s, f32_mul(d, f32_set(p->scale[at])), acc);
    return has_min ? f32_fma(min, f32_set(p->sum[at]), acc) : acc;
}

/* ---- one row of activations --------------------------------------------------------------- */

BOLIDE_INLINE void vector_strip(const bolide__int8_params *p, int64_t col, int64_t format,
                                int planes, int vnni) {
    const layout l = layout_of(format);
    const strip s = find_strip(p, col);
    const uint8_t *here = p->weight + col * p->weight_n;
    f32x16 acc = f32_zero();
    for (int64_t b = 0; b < p->kb; b++) {
        const int64_t at = b * l.bytes;
        gemm_fetch_ahead(here + at * PANEL_ROWS, l.bytes * PANEL_ROWS);
        const i32x16 head = block_heads(&s.rows, at);
        const i32x16 sum = block_dot_rows(&s.rows, at + l.first, p->q + b * BLOCK_SIZE, p->plane,
                                          planes, l.kind, vnni);
        const f32x16 min = l.has_min ? f16_of_lanes(i32_shr(head, 16)) : f32_zero();
        acc = add_block(p, b, acc, sum, f16_of_lanes(head), min, l.has_min);
    }
    store_strip(p, 0, &s, acc);
}

/* ---- several rows of activations ---------------------------------------------------------- */

typedef struct panel {
    _Alignas(64) uint8_t w[DEPTH][PANEL_BYTES];
    float d[DEPTH][PANEL_ROWS], min[DEPTH][PANEL_ROWS];
} panel;

BOLIDE_INLINE void fill_panel(panel *to, const block_rows *rows, int64_t block, int64_t count,
                              layout l, int vnni) {
    for (int64_t b = 0; b < count; b++) {
        const int64_t at = (block + b) * l.bytes;
        const i32x16 head = block_heads(rows, at);
        f32_store(to->d[b], f16_of_lanes(head));
        if (l.has_min)
            f32_store(to->min[b], f16_of_lanes(i32_shr(head, 16)));
        block_interleave(to->w[b], rows, at + l.first, l.kind, vnni);
    }
}

/* Blocks of `count` rows of activations with one of the panel. */
BOLIDE_INLINE void panel_products(const bolide__int8_params *p, const uint8_t *w,
                                  const int8_t *const *x, int64_t offset, int count, int kind,
                                  int planes, int vnni, i32x16 *sum) {
    panel_dot(w, x, offset, count, kind, vnni, sum);
    if (planes == 1)
        return;
    i32x16 low[ROWS];
    panel_dot(w, x, p->plane + offset, count, kind, vnni, low);
    BOLIDE_UNROLL
    for (int i = 0; i < count; i++)
        sum[i] = i32_add(i32_sub(i32_shl(sum[i], 8), sum[i]), low[i]);
}

/* acc[i] takes the panel's blocks for `count` rows of activations from `first` on. */
BOLIDE_INLINE void panel_tile(const bolide__int8_params *p, const panel *w, int64_t first,
                              int64_t block, int64_t blocks, int count, layout l, int planes,
                              int vnni, float (*acc)[PANEL_ROWS]) {
    const int8_t *x[ROWS];
    f32x16 s[ROWS];
    BOLIDE_UNROLL
    for (int i = 0; i < count; i++) {
        x[i] = p->q + ((first + i) * p->kb + block) * BLOCK_SIZE;
        s[i] = f32_load(acc[i]);
    }
    for (int64_t b = 0; b < blocks; b++) {
        i32x16 sum[ROWS];
        panel_products(p, w->w[b], x, b * BLOCK_SIZE, count, l.kind, planes, vnni, sum);
        const f32x16 d = f32_load(w->d[b]), min = l.has_min ? f32_load(w->min[b]) : f32_zero();
        BOLIDE_UNROLL
        for (int i = 0; i < count; i++)
            s[i] = add_block(p, (first + i) * p->kb + block + b, s[i], sum[i], d, min, l.has_min);
    }
    BOLIDE_UNROLL
    for (int i = 0; i < count; i++)
        f32_store(acc[i], s[i]);
}

BOLIDE_INLINE void matrix_strip(const bolide__int8_params *p, int64_t col, int64_t first,
                                int64_t count, int64_t format, int planes, int vnni) {
    const layout l = layout_of(format);
    const strip s = find_strip(p, col);
    float acc[BOLIDE__INT8_ROWS][PANEL_ROWS];
    panel w;
    memset(acc, 0, (size_t)count * sizeof acc[0]);
    for (int64_t block = 0; block < p->kb; block += DEPTH) {
        const int64_t blocks = p->kb - block < DEPTH ? p->kb - block : DEPTH;
        fill_panel(&w, &s.rows, block, blocks, l, vnni);
        int64_t i = 0;
        for (; i + ROWS <= count; i += ROWS)
            panel_tile(p, &w, first + i, block, blocks, ROWS, l, planes, vnni, acc + i);
        for (; i < count; i++)
            panel_tile(p, &w, first + i, block, blocks, 1, l, planes, vnni, acc + i);
    }
    for (int64_t i = 0; i < count; i++)
        store_strip(p, first + i, &s, f32_load(acc[i]));
}

/* ---- pieces ------------------------------------------------------------------------------- */

BOLIDE_INLINE void piece(const bolide__int8_params *p, int64_t item, int64_t format, int planes,
                         int vnni) {
    const int64_t col = item / p->m_pieces * BOLIDE__INT8_COLS;
    const int64_t first = item % p->m_pieces * BOLIDE__INT8_ROWS;
    const int64_t left = p->m - first, count = left < BOLIDE__INT8_ROWS ? left : BOLIDE__INT8_ROWS;
    if (p->m == 1)
        vector_strip(p, col, format, planes, vnni);
    else
        matrix_strip(p, col, first, count, format, planes, vnni);
}

BOLIDE_INLINE void piece_of_format(const bolide__int8_params *p, int64_t item, int planes,
                                   int vnni) {
    if (p->format == BOLIDE_WEIGHT_Q4_1)
        piece(p, item, BOLIDE_WEIGHT_Q4_1, planes, vnni);
    else if (p->format == BOLIDE_WEIGHT_Q4_0)
        piece(p, item, BOLIDE_WEIGHT_Q4_0, planes, vnni);
    else
        piece(p, item, BOLIDE_WEIGHT_Q8_0, planes, vnni);
}

BOLIDE_INLINE void piece_of_planes(const bolide__int8_params *p, int64_t item, int vnni) {
    if (p->planes == 1)
        piece_of_format(p, item, 1, vnni);
    else
        piece_of_format(p, item, 2, vnni);
}

void BOLIDE_ISA(int8_pieces)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__int8_params *p = arg;
    (void)worker;
    for (int64_t item = begin; item < end; item++) {
#if defined(BOLIDE_ISA_AVX512)
        if (p->vnni) {
            piece_of_planes(p, item, 1);
            continue;
        }
#endif
        piece_of_planes(p, item, 0);
    }
}
