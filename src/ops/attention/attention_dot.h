// SPDX-License-Identifier: Apache-2.0
//
// Scores and weighted values for few rows: keys and values are read where they lie, converted in
// registers and used for up to four rows at once. For more rows attention_tile.h is faster. Each
// score is a sum over 16 lanes; each output element is a sum in the order of the keys.
//
// The limit is to be memory, so its order rules: four keys are taken at a time, all key heads of
// one after the other, and what follows is fetched twice, far ahead into the second cache and
// shortly before its use into the first. docs/kernels/cpu.md has the figures behind this.

#ifndef BOLIDE_OPS_ATTENTION_DOT_H
#define BOLIDE_OPS_ATTENTION_DOT_H

#include "cpu/simd_dot.h"

enum {
    BLOCK = 64,                 /* keys of a block, and the row stride of scores */
    STEP = 4,                   /* keys taken at a time */
    AHEAD_MAX = 60,             /* rows between use and the far fetch; divides into three */
    AHEAD_NEAR_BYTES = 8 << 10, /* between use and the near fetch: fits the first cache twice */
};

/* A pass over the keys or the values of a block. The rows behind row[n] are those that are read
 * after this pass; where it fetches, there are 3 * near of them. */
typedef struct dot_pass {
    const char *const *row; /* [n + 3 * near]: of the first head */
    int n, heads;
    int64_t head_step;   /* bytes from a head's row to the next head's */
    int64_t d, d_stride; /* elements of a row; floats of a row of q or o */
    int64_t rows;        /* query rows of a head */
    int near;            /* rows between use and the near fetch; 0: nothing is fetched */
} dot_pass;

/* Rows between use and near fetch for rows of this many bytes over all heads. */
BOLIDE_INLINE int near_rows(int64_t bytes) {
    const int64_t rows = bytes > 0 ? AHEAD_NEAR_BYTES / bytes : STEP;
    return rows < STEP ? STEP : rows > AHEAD_MAX / 3 ? AHEAD_MAX / 3 : (int)rows;
}

/* The next (row, head) to be fetched. */
typedef struct fetcher {
    const char *const *row;
    int head;
} fetcher;

BOLIDE_INLINE void fetch_next(const dot_pass *p, fetcher *f, int64_t bytes) {
    const char *near = f->row[p->near] + f->head * p->head_step;
    const char *far = f->row[3 * p->near] + f->head * p->head_step;
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(far + i, 0, 2);
        __builtin_prefetch(near + i, 0, 3);
    }
    if (++f->head == p->heads) {
        f->head = 0;
        f->row++;
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
        float t[16];
        memcpy(t, x, sizeof t);
        for (int i = 0; i < 8; i++) {
            x[i] = t[2 * i];
            x[8 + i] = t[2 * i + 1];
        }
    }
}

static void natural_order(float *x, int64_t d) {
    for (float *end = x + (d & ~(int64_t)15); x < end; x += 16) {
        float t[16];
        memcpy(t, x, sizeof t);
        for (int i = 0; i < 8; i++) {
            x[2 * i] = t[i];
            x[2 * i + 1] = t[8 + i];
        }
    }
}

/* ---- scores ------------------------------------------------------------------------------- */

/* sum[r * STEP] = the 16 lanes of q[r] . k for `rows` rows. q is [d / 16][rows][16]. */
BOLIDE_INLINE void dot_key(int rows, int64_t dtype, const char *k, const float *q, int64_t d,
                           f32x16 *sum) {
    f32x16 s[4];
    /* Else the compiler loads all of q once for the keys of a step, and spills it. */
    __asm__("" : "+r"(q));
    BOLIDE_UNROLL
    for (int r = 0; r < rows; r++)
        s[r] = f32_zero();
    const int64_t whole = d & ~(int64_t)15;
    for (int64_t c = 0; c < whole; c += 16, q += 16 * rows) {
        const f32x16 x = load_row(dtype_at(k, dtype, c), dtype);
        BOLIDE_UNROLL
        for (int r = 0; r < rows; r++)
            s[r] = f32_fma(f32_load(q + 16 * r), x, s[r]);
    }
    if (whole < d) {
        const f32x16 x = load16_n(dtype_at(k, dtype, whole), dtype, d - whole);
        BOLIDE_UNROLL
        for (int r = 0; r < rows; r++)
            s[r] = f32_fma(f32_load(q + 16 * r), x, s[r]);
    }
    BOLIDE_UNROLL
    for (int r = 0; r < rows; r++)
        sum[r * STEP] = s[r];
}

/* scores[(h * p->rows + r) * BLOCK + j] = q[r] . k[j] for keys j from first on, one step, and
 * `rows` rows. Sixteen sums are reduced together: STEP keys, the rows, and as many heads as that
 * leaves room for. d is p->d, a constant where that is worth an instance. */
BOLIDE_INLINE void dot_scores(int rows, int64_t dtype, int64_t d, const dot_pass *p, int first,
                              bool fetch, const float *q, float *scores) {
    const int count = p->n - first < STEP ? p->n - first : STEP;
    const int together = 16 / (STEP * rows);
    fetcher f = {.row = p->row + first};
    f32x16 sum[16];
    for (int i = 0; i < 16; i++)
        sum[i] = f32_zero();
    for (int h = 0; h < p->heads; h++, q += p->rows * p->d_stride) {
        const int place = h % together;
        for (int j = 0; j < count; j++) {
            if (fetch)
                fetch_next(p, &f, d * dtype_bytes(dtype));
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

/* One step of `count` keys from first on, for all heads. */
BOLIDE_INLINE void dot_values(int rows, int64_t dtype, int64_t d, int count, const dot_pass *p,
                              int first, bool fetch, const float *weights, float *o) {
    const int at_once = 4 / rows * (BOLIDE_SIMD_512 && rows > 1 ? 2 : 1);
    const int64_t whole = d & ~(int64_t)15, steps = whole / (16 * at_once);
    fetcher f = {.row = p->row + first};
    for (int h = 0; h < p->heads; h++) {
        const float *w = weights + h * p->rows * BLOCK + first;
        const char *v[STEP];
        for (int j = 0; j < STEP; j++)
            v[j] = p->row[first + (j < count ? j : 0)] + h * p->head_step;
        int fetched = fetch ? 0 : STEP;
        int64_t c = 0;
        for (int64_t step = 0; step < steps; step++, c += 16 * at_once) {
            for (; fetched < STEP && fetched * steps <= step * STEP; fetched++)
                fetch_next(p, &f, d * dtype_bytes(dtype));
            dot_columns(rows, at_once, dtype, v, count, w, o, p->d_stride, c, 16);
        }
        for (; c < whole; c += 16)
            dot_columns(rows, 1, dtype, v, count, w, o, p->d_stride, c, 16);
        if (whole < d)
            dot_columns(rows, 1, dtype, v, count, w, o, p->d_stride, c, d - whole);
        o += p->rows * p->d_stride;
    }
}

/* ---- instances ---------------------------------------------------------------------------- */

typedef void dot_scores_fn(const dot_pass *p, int first, bool fetch, const float *q, float *scores);
typedef void dot_values_fn(const dot_pass *p, int first, bool fetch, const float *weights,
                           float *o);

/* Four rows of 16-bit heads of 128 are the common case, and worth instances of their own. */
#if defined(BOLIDE_ISA_BASELINE)
#define DOT_COMMON(dtype, rows, d) 0
#else
#define DOT_COMMON(dtype, rows, d)                                                                 \
    (((dtype) == BOLIDE_BF16 || (dtype) == BOLIDE_F16) && (rows) == 4 && (d) == COMMON_D)
#endif
enum { COMMON_D = 128 };

#define DOT_INSTANCES(name, dtype, rows)                                                           \
    static void scores_##name##_##rows(const dot_pass *p, int first, bool fetch, const float *q,   \
                                       float *scores) {                                            \
        if (DOT_COMMON(dtype, rows, p->d))                                                         \
            dot_scores(rows, dtype, COMMON_D, p, first, fetch, q, scores);                         \
        else                                                                                       \
            dot_scores(rows, dtype, p->d, p, first, fetch, q, scores);                             \
    }                                                                                              \
    static void values_##name##_##rows(const dot_pass *p, int first, bool fetch,                   \
                                       const float *weights, float *o) {                           \
        const int count = p->n - first < STEP ? p->n - first : STEP;                               \
        if (DOT_COMMON(dtype, rows, p->d) && count == STEP)                                        \
            dot_values(rows, dtype, COMMON_D, STEP, p, first, fetch, weights, o);                  \
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

/* The first group of rows fetches; by the next one everything is under way. */
static void dot_all_scores(const dot_kernels *kernels, const dot_pass *p, const float *q,
                           float *scores) {
    for (int first = 0; first < p->n; first += STEP) {
        for (int64_t r = 0; r < p->rows;) {
            const int step = dot_step(p->rows - r);
            kernels->scores[step](p, first, p->near && r == 0, q + r * p->d_stride,
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

static void dot_all_values(const dot_kernels *kernels, const dot_pass *p, const float *weights,
                           const float *alpha, float *o) {
    for (int64_t r = 0; r < p->heads * p->rows; r++)
        rescale(o + r * p->d_stride, p->d_stride, alpha[r]);
    for (int first = 0; first < p->n; first += STEP) {
        for (int64_t r = 0; r < p->rows;) {
            const int step = dot_step(p->rows - r);
            kernels->values[step](p, first, p->near && r == 0, weights + r * BLOCK,
                                  o + r * p->d_stride);
            r += (int64_t)1 << step;
        }
    }
}

#endif
