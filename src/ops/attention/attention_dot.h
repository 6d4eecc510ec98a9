// SPDX-License-Identifier: Apache-2.0
//
// Scores and weighted values for few rows: keys and values are read where they lie, converted in
// registers and used for up to four rows at once. For more rows attention_tile.h is faster. Each
// score is a sum over 16 lanes; each output element is a sum in the order of the keys.
//
// The limit is to be memory, so its order rules: a few keys are taken at a time, all key heads of
// them one after the other, and with each key what lies a few steps ahead is fetched into the
// second cache, so that several pages stream at once. docs/kernels/cpu.md has the figures.

#ifndef BOLIDE_OPS_ATTENTION_DOT_H
#define BOLIDE_OPS_ATTENTION_DOT_H

#include "ops/attention/attention_dot4.h"

enum {
    BLOCK = 64,                 /* keys of a block, and the row stride of scores */
    STEP = 4,                   /* keys taken at a time */
    VALUE_STEP = 8,             /* values taken at a time, where they are small */
    VALUE_STEP_BYTES = 2 << 10, /* of all heads: a step of larger ones outgrows the first cache */
    AHEAD_BYTES = 24 << 10,     /* between fetch and use */
    AHEAD_MAX = 60,             /* the same in rows: what follows a block has its own rows */
    FAR_BYTES = 32 << 10,       /* between the first touch of a row and that fetch */
};

/* A pass over the keys or the values of a block. The rows behind row[n] are those that are read
 * after this pass; where any is fetched there are BLOCK of them. */
typedef struct dot_pass {
    const char *const *row; /* [n + BLOCK]: of the first head */
    int n, heads;
    int64_t head_step;   /* bytes from a head's row to the next head's */
    int64_t d, d_stride; /* elements of a row; floats of a row of q or o */
    int64_t rows;        /* query rows of a head */
    int ahead;           /* rows between fetch and use; 0: nothing is fetched */
    int again;           /* rows between the second fetch and use */
} dot_pass;

/* Rows between fetch and use for rows of this many bytes over all heads. */
BOLIDE_INLINE int ahead_rows(int64_t bytes) {
    const int64_t rows = bytes > 0 ? AHEAD_BYTES / bytes : STEP;
    return rows < STEP ? STEP : rows > AHEAD_MAX ? AHEAD_MAX : (int)rows;
}

/* And between the second fetch and use: half of it, but not rows of the step at hand. */
BOLIDE_INLINE int again_rows(int ahead, int step) {
    const int rows = ahead / 2 < step ? step : ahead / 2;
    return rows < ahead ? rows : ahead;
}

/* Touches the row that is fetched some rows later: where caches of pages lie in no order, the chip
 * then knows the address of its memory page by that time. */
BOLIDE_INLINE void touch_far(const dot_pass *p, int j, int64_t bytes) {
    const int64_t far = p->ahead + FAR_BYTES / (p->heads * bytes);
    __builtin_prefetch(p->row[j + (far < BLOCK ? far : BLOCK)], 0, 2);
}

/* Fetches what head h of row j makes room for, of `d` elements. The rows of a step are fetched side
 * by side, and the chip follows each of them. Twice, since a fetch is dropped where the second
 * cache's queue is full; but rows of 8 bits are bound by their conversion. */
BOLIDE_INLINE void fetch_ahead(const dot_pass *p, int j, int h, int64_t d, int64_t dtype) {
    const int64_t bytes = d * dtype_bytes(dtype);
    const bool twice = dtype_bytes(dtype) > 1 && p->again < p->ahead;
    const char *next = p->row[j + p->ahead] + h * p->head_step;
    const char *again = p->row[j + p->again] + h * p->head_step;
    if (h == 0)
        touch_far(p, j, bytes);
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(next + i, 0, 2);
        if (twice)
            __builtin_prefetch(again + i, 0, 2);
    }
}

/* ---- elements ----------------------------------------------------------------------------- */

/* bf16 comes in the order that costs least, even elements first (bf16_load_split); queries are put
 * into that order too and outputs taken out of it. */
BOLIDE_INLINE f32x16 load_row(const void *p, int64_t dtype) {
    return dtype == BOLIDE_BF16 ? bf16_load_split(p) : load16(p, dtype);
}

static bool dot_is_split(int64_t dtype) {
    return dtype == BOLIDE_BF16;
}

/* Whole groups of 16 floats into the order of bf16_load_split, or back. */
static void split_order(float *x, int64_t d) {
    for (float *end = x + (d & ~(int64_t)15); x < end; x += 16) {
        f32x16 even, odd;
        const f32x16 all = f32_load(x);
        f32_deinterleave(all, all, &even, &odd);
        f32_store(x, f32_select(mask_first(8), even, odd));
    }
}

static void natural_order(float *x, int64_t d) {
    for (float *end = x + (d & ~(int64_t)15); x < end; x += 16) {
        f32x16 first, rest;
        f32_interleave(f32_load(x), f32_load_n(x + 8, 8), &first, &rest);
        f32_store(x, first);
    }
}

/* ---- scores ------------------------------------------------------------------------------- */

/* sum[r * STEP] = the folded lanes of q[r] . k for `rows` rows. q is [d / 16][rows][16]. */
BOLIDE_INLINE void dot_key(int rows, int64_t dtype, const char *k, const float *q, int64_t d,
                           f32_folded *sum) {
    f32x16 s[4];
    /* Else the compiler loads all of q once for the keys of a step, and spills it; and k would be
     * the sum of two registers in each of its uses, which costs a step more. */
    __asm__("" : "+r"(q), "+r"(k));
    const int64_t whole = d & ~(int64_t)15;
    const f32x16 start = whole ? load_row(k, dtype) : load16_n(k, dtype, d);
    BOLIDE_UNROLL
    for (int r = 0; r < rows; r++)
        s[r] = f32_mul(f32_load(q + 16 * r), start);
    q += 16 * rows;
    for (int64_t c = 16; c < whole; c += 16, q += 16 * rows) {
        const f32x16 x = load_row(dtype_at(k, dtype, c), dtype);
        BOLIDE_UNROLL
        for (int r = 0; r < rows; r++)
            s[r] = f32_fma(f32_load(q + 16 * r), x, s[r]);
    }
    if (whole && whole < d) {
        const f32x16 x = load16_n(dtype_at(k, dtype, whole), dtype, d - whole);
        BOLIDE_UNROLL
        for (int r = 0; r < rows; r++)
            s[r] = f32_fma(f32_load(q + 16 * r), x, s[r]);
    }
    BOLIDE_UNROLL
    for (int r = 0; r < rows; r++)
        sum[r * STEP] = f32_fold(s[r]);
}

/* scores[(h * p->rows + r) * BLOCK + j] = q[r] . k[j] for keys j from first on, one step, and
 * `rows` rows. Sixteen sums are reduced together: STEP keys, the rows, and as many heads as that
 * leaves room for. d is p->d, a constant where that is worth an instance. */
BOLIDE_INLINE void dot_scores(int rows, int64_t dtype, int64_t d, const dot_pass *p, int first,
                              bool fetch, const float *q, float *scores) {
    const int count = p->n - first < STEP ? p->n - first : STEP;
    const int together = 16 / (STEP * rows);
    f32_folded sum[16];
    if (count < STEP || p->heads % together != 0)
        for (int i = 0; i < 16; i++)
            sum[i] = f32_fold(f32_zero());
    for (int h = 0; h < p->heads; h++, q += p->rows * p->d_stride) {
        const int place = h % together;
        for (int j = 0; j < count; j++) {
            if (fetch)
                fetch_ahead(p, first + j, h, d, dtype);
            dot_key(rows, dtype, p->row[first + j] + h * p->head_step, q, d,
                    sum + place * rows * STEP + j);
        }
        if (place < together - 1 && h < p->heads - 1)
            continue;
        float t[16];
        f32_store(t, f32_sum16(sum));
        for (int i = 0; i <= place; i++)
            for (int r = 0; r < rows; r++)
                memcpy(scores + ((h - place + i) * p->rows + r) * BLOCK + first,
                       t + (i * rows + r) * STEP, STEP * sizeof *t);
    }
}

/* ---- values ------------------------------------------------------------------------------- */

/* o[r] += sum over `count` keys of weights[r * BLOCK + j] * v[j], `chunks` times 16 columns from
 * column c on; the last chunk has `last` columns. */
BOLIDE_INLINE void dot_columns(int rows, int chunks, int64_t dtype, const char *const *v, int count,
                               const float *weights, float *o, int64_t o_stride, int64_t c,
                               int64_t last) {
    f32x16 sum[8];
    BOLIDE_UNROLL
    for (int r = 0; r < rows; r++) {
        BOLIDE_UNROLL
        for (int i = 0; i < chunks; i++)
            sum[r * chunks + i] = f32_load(o + r * o_stride + c + 16 * i);
    }
    for (int j = 0; j < count; j++) {
        BOLIDE_UNROLL
        for (int i = 0; i < chunks; i++) {
            const void *at = dtype_at(v[j], dtype, c + 16 * i);
            const f32x16 x = last == 16 ? load_row(at, dtype) : load16_n(at, dtype, last);
            BOLIDE_UNROLL
            for (int r = 0; r < rows; r++)
                sum[r * chunks + i] =
                    f32_fma(f32_set(weights[r * BLOCK + j]), x, sum[r * chunks + i]);
        }
    }
    BOLIDE_UNROLL
    for (int r = 0; r < rows; r++) {
        BOLIDE_UNROLL
        for (int i = 0; i < chunks; i++)
            f32_store(o + r * o_stride + c + 16 * i, sum[r * chunks + i]);
    }
}

/* One step of `count` values from first on, for all heads. */
BOLIDE_INLINE void dot_values(int rows, int64_t dtype, int64_t d, int count, const dot_pass *p,
                              int first, bool fetch, const float *weights, float *o) {
    const int at_once = 4 / rows * (BOLIDE_SIMD_512 && rows > 1 ? 2 : 1);
    const int64_t whole = d & ~(int64_t)15, main = whole - whole % (16 * at_once);
    const int64_t share = (main / (16 * at_once) + count - 1) / count * 16 * at_once;
    for (int h = 0; h < p->heads; h++) {
        const float *w = weights + h * p->rows * BLOCK + first;
        const char *v[VALUE_STEP];
        for (int j = 0; j < count; j++)
            v[j] = p->row[first + j] + h * p->head_step;
        int64_t c = 0;
        for (int j = 0; j < count; j++) {
            if (fetch)
                fetch_ahead(p, first + j, h, d, dtype);
            for (const int64_t end = c + share < main ? c + share : main; c < end;
                 c += 16 * at_once)
                dot_columns(rows, at_once, dtype, v, count, w, o, p->d_stride, c, 16);
        }
        for (; c < whole; c += 16)
            dot_columns(rows, 1, dtype, v, count, w, o, p->d_stride, c, 16);
        if (whole < d)
            dot_columns(rows, 1, dtype, v, count, w, o, p->d_stride, c, d - whole);
        o += p->rows * p->d_stride;
    }
}

/* ---- four rows of 16-bit heads of 128 ------------------------------------------------------ */

#if defined(F32_PARTS)

/* The rows of a step, and those that are fetched meanwhile: where none are to be, the same. */
BOLIDE_INLINE dot4_rows rows_of_step(const dot_pass *p, int first, int count, bool fetch) {
    const char *const *row = p->row + first;
    for (int j = 0; fetch && j < count; j++)
        touch_far(p, first + j, DOT4_D * 2);
    return (dot4_rows){row, fetch ? row + p->ahead : row, fetch ? row + p->again : row, 0};
}

BOLIDE_INLINE void common_scores(int64_t dtype, const dot_pass *p, int first, bool fetch,
                                 const float *q, float *scores) {
    dot4_rows rows = rows_of_step(p, first, STEP, fetch);
    for (int h = 0; h < p->heads; h++, q += p->rows * p->d_stride, rows.head += p->head_step) {
        f32_folded sum[16];
        float t[16];
        dot4_scores(dtype, &rows, q, sum);
        f32_store(t, f32_sum16(sum));
        for (int r = 0; r < DOT4_ROWS; r++)
            memcpy(scores + (h * p->rows + r) * BLOCK + first, t + r * STEP, STEP * sizeof *t);
    }
}

BOLIDE_INLINE void common_values(int64_t dtype, const dot_pass *p, int first, bool fetch,
                                 const float *weights, float *o) {
    dot4_rows rows = rows_of_step(p, first, VALUE_STEP, fetch);
    weights += first;
    for (int h = 0; h < p->heads; h++, rows.head += p->head_step) {
        dot4_values(dtype, &rows, weights, BLOCK, o);
        weights += p->rows * BLOCK;
        o += p->rows * p->d_stride;
    }
}

#endif

/* ---- instances ---------------------------------------------------------------------------- */

typedef void dot_scores_fn(const dot_pass *p, int first, bool fetch, const float *q, float *scores);
typedef void dot_values_fn(const dot_pass *p, int first, int count, bool fetch,
                           const float *weights, float *o);

/* The common case has a text of its own. */
#if defined(F32_PARTS)
#define DOT_COMMON(dtype, rows, d)                                                                 \
    (((dtype) == BOLIDE_BF16 || (dtype) == BOLIDE_F16) && (rows) == DOT4_ROWS && (d) == DOT4_D)
#define COMMON_SCORES common_scores
#define COMMON_VALUES common_values
#else
#define DOT_COMMON(dtype, rows, d) 0
#define COMMON_SCORES(...) ((void)0)
#define COMMON_VALUES(...) ((void)0)
#endif

#define DOT_INSTANCES(name, dtype, rows)                                                           \
    static void scores_##name##_##rows(const dot_pass *p, int first, bool fetch, const float *q,   \
                                       float *scores) {                                            \
        if (DOT_COMMON(dtype, rows, p->d) && p->n - first >= STEP)                                 \
            COMMON_SCORES(dtype, p, first, fetch, q, scores);                                      \
        else                                                                                       \
            dot_scores(rows, dtype, p->d, p, first, fetch, q, scores);                             \
    }                                                                                              \
    static void values_##name##_##rows(const dot_pass *p, int first, int count, bool fetch,        \
                                       const float *weights, float *o) {                           \
        if (DOT_COMMON(dtype, rows, p->d) && count == VALUE_STEP)                                  \
            COMMON_VALUES(dtype, p, first, fetch, weights, o);                                     \
        else                                                                                       \
            dot_values(rows, dtype, p->d, count, p, first, fetch, weights, o);                     \
    }
#define DOT_ROWS(name, dtype)                                                                      \
    DOT_INSTANCES(name, dtype, 1)                                                                  \
    DOT_INSTANCES(name, dtype, 2)                                                                  \
    DOT_INSTANCES(name, dtype, 4)
DOT_ROWS(f32, BOLIDE_F32)
DOT_ROWS(f16, BOLIDE_F16)
DOT_ROWS(bf16, BOLIDE_BF16)
DOT_ROWS(e4m3, BOLIDE_F8_E4M3FN)
DOT_ROWS(e5m2, BOLIDE_F8_E5M2)

/* By dtype, then rows 1, 2, 4. */
typedef struct dot_kernels {
    dot_scores_fn *scores[3];
    dot_values_fn *values[3];
} dot_kernels;

#define DOT_TABLE(name)                                                                            \
    {                                                                                              \
        {scores_##name##_1, scores_##name##_2, scores_##name##_4}, {                               \
            values_##name##_1, values_##name##_2, values_##name##_4                                \
        }                                                                                          \
    }

static const dot_kernels *dot_kernels_of(int64_t dtype) {
    static const dot_kernels f32 = DOT_TABLE(f32), f16 = DOT_TABLE(f16), bf16 = DOT_TABLE(bf16),
                             e4m3 = DOT_TABLE(e4m3), e5m2 = DOT_TABLE(e5m2);
    return dtype == BOLIDE_F16         ? &f16
           : dtype == BOLIDE_BF16      ? &bf16
           : dtype == BOLIDE_F8_E4M3FN ? &e4m3
           : dtype == BOLIDE_F8_E5M2   ? &e5m2
                                       : &f32;
}
#undef DOT_INSTANCES
#undef DOT_ROWS
#undef DOT_TABLE
#undef DOT_COMMON
#undef COMMON_SCORES
#undef COMMON_VALUES

/* Largest of the three row counts that does not exceed rows, as an index. */
BOLIDE_INLINE int dot_step(int64_t rows) {
    return rows >= 4 ? 2 : rows >= 2 ? 1 : 0;
}

/* A group of rows, [rows][stride], to [d / 16][rows][16] as dot_key reads it. */
static void pack_dot_queries(int rows, const float *q, int64_t stride, float *to) {
    for (int64_t c = 0; c < stride; c += 16)
        for (int r = 0; r < rows; r++, to += 16)
            f32_store(to, f32_load(q + r * stride + c));
}

/* The first group of rows fetches; by the next one everything is under way. dtype is that of the
 * keys. */
static void dot_all_scores(int64_t dtype, dot_pass *p, const float *q, float *scores) {
    const dot_kernels *kernels = dot_kernels_of(dtype);
    p->again = again_rows(p->ahead, STEP);
    for (int first = 0; first < p->n; first += STEP) {
        for (int64_t r = 0; r < p->rows;) {
            const int step = dot_step(p->rows - r);
            kernels->scores[step](p, first, p->ahead && r == 0, q + r * p->d_stride,
                                  scores + r * BLOCK);
            r += (int64_t)1 << step;
        }
    }
}

/* A row's sums so far, once its largest logit has grown. */
static void rescale(float *o, int64_t d, float alpha) {
    if (alpha == 1)
        return;
    for (int64_t c = 0; c < d; c += 16)
        f32_store(o + c, f32_mul(f32_load(o + c), f32_set(alpha)));
}

/* dtype is that of the values. */
static void dot_all_values(int64_t dtype, dot_pass *p, const float *weights, const float *alpha,
                           float *o) {
    const dot_kernels *kernels = dot_kernels_of(dtype);
    const int64_t bytes = dtype_bytes(dtype);
    for (int64_t r = 0; r < p->heads * p->rows; r++)
        rescale(o + r * p->d_stride, p->d_stride, alpha[r]);
    const int at_once = p->heads * p->d * bytes <= VALUE_STEP_BYTES ? VALUE_STEP : STEP;
    p->again = again_rows(p->ahead, at_once);
    for (int first = 0; first < p->n; first += at_once) {
        const int count = p->n - first < at_once ? p->n - first : at_once;
        for (int64_t r = 0; r < p->rows;) {
            const int step = dot_step(p->rows - r);
            kernels->values[step](p, first, count, p->ahead && r == 0, weights + r * BLOCK,
                                  o + r * p->d_stride);
            r += (int64_t)1 << step;
        }
    }
}

#endif
