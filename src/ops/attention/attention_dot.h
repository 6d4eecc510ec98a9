// SPDX-License-Identifier: Apache-2.0
//
// Scores and weighted values for few rows: keys and values are read where they lie, converted in
// registers and used for up to four rows at once. For more rows attention_tile.h is faster. Each
// score is a sum over 16 lanes; each output element is a sum in the order of the keys.

#ifndef BOLIDE_OPS_ATTENTION_DOT_H
#define BOLIDE_OPS_ATTENTION_DOT_H

#include "cpu/simd.h"

enum { BLOCK = 64 }; /* keys of a block, and the row stride of scores */

/* Rows that will be read next, in the order of their addresses: fetched while this block is
 * computed, so that memory never waits for arithmetic. */
typedef struct read_ahead {
    const char *row[BLOCK];
    int64_t bytes; /* of a row; 0: nothing to fetch */
} read_ahead;

BOLIDE_INLINE void fetch_rows(const read_ahead *ahead, int64_t first, int64_t end) {
    for (int64_t j = first; j < end; j++) {
        for (int64_t i = 0; i < ahead->bytes; i += 64)
            __builtin_prefetch(ahead->row[j] + i);
    }
}

/* scores[r * BLOCK + j] = q[r] . k[j] for `rows` rows of q, keys_at_once keys at a time. */
BOLIDE_INLINE void dot_keys(int rows, int keys_at_once, int64_t dtype, const char *const *k,
                            const float *q, int64_t q_stride, int64_t d, float *scores) {
    f32x16 sum[8];
    BOLIDE_UNROLL
    for (int i = 0; i < rows * keys_at_once; i++)
        sum[i] = f32_zero();
    const int64_t whole = d & ~(int64_t)15;
    for (int64_t c = 0; c < whole; c += 16) {
        BOLIDE_UNROLL
        for (int j = 0; j < keys_at_once; j++) {
            const f32x16 x = load16(dtype_at(k[j], dtype, c), dtype);
            BOLIDE_UNROLL
            for (int r = 0; r < rows; r++)
                sum[j * rows + r] = f32_fma(f32_load(q + r * q_stride + c), x, sum[j * rows + r]);
        }
    }
    if (whole < d) {
        BOLIDE_UNROLL
        for (int j = 0; j < keys_at_once; j++) {
            const f32x16 x = load16_n(dtype_at(k[j], dtype, whole), dtype, d - whole);
            BOLIDE_UNROLL
            for (int r = 0; r < rows; r++)
                sum[j * rows + r] =
                    f32_fma(f32_load(q + r * q_stride + whole), x, sum[j * rows + r]);
        }
    }
    BOLIDE_UNROLL
    for (int j = 0; j < keys_at_once; j++) {
        BOLIDE_UNROLL
        for (int r = 0; r < rows; r++)
            scores[r * BLOCK + j] = f32_sum(sum[j * rows + r]);
    }
}

BOLIDE_INLINE void dot_scores(int rows, int64_t dtype, const char *const *k, int n, const float *q,
                              int64_t q_stride, int64_t d, float *scores, const read_ahead *ahead) {
    const int at_once = BOLIDE_SIMD_512 || rows < 4 ? 2 : 1; /* as many sums as registers hold */
    int j = 0;
    for (; j + at_once <= n; j += at_once) {
        fetch_rows(ahead, j, ahead->bytes ? j + at_once : j);
        dot_keys(rows, at_once, dtype, k + j, q, q_stride, d, scores + j);
    }
    if (j < n)
        dot_keys(rows, 1, dtype, k + j, q, q_stride, d, scores + j);
}

/* o[r] = o[r] * alpha[r] + sum over j of weights[r * BLOCK + j] * v[j], `chunks` times 16 columns
 * from column c on; the last chunk has `last` columns. */
BOLIDE_INLINE void dot_columns(int rows, int chunks, int64_t dtype, const char *const *v, int n,
                               const float *weights, const float *alpha, float *o, int64_t o_stride,
                               int64_t c, int64_t last) {
    f32x16 sum[8];
    BOLIDE_UNROLL
    for (int r = 0; r < rows; r++) {
        BOLIDE_UNROLL
        for (int i = 0; i < chunks; i++)
            sum[r * chunks + i] =
                f32_mul(f32_load(o + r * o_stride + c + 16 * i), f32_set(alpha[r]));
    }
    for (int j = 0; j < n; j++) {
        BOLIDE_UNROLL
        for (int i = 0; i < chunks; i++) {
            const void *p = dtype_at(v[j], dtype, c + 16 * i);
            const f32x16 x = last == 16 ? load16(p, dtype) : load16_n(p, dtype, last);
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

BOLIDE_INLINE void dot_values(int rows, int64_t dtype, const char *const *v, int n,
                              const float *weights, const float *alpha, float *o, int64_t o_stride,
                              int64_t d, const read_ahead *ahead) {
    const int at_once = 4 / rows * (BOLIDE_SIMD_512 && rows > 1 ? 2 : 1);
    const int64_t whole = d & ~(int64_t)15;
    const int64_t steps = whole / (16 * at_once);
    int64_t c = 0;
    for (int64_t step = 0; step < steps; step++, c += 16 * at_once) {
        if (ahead->bytes)
            fetch_rows(ahead, n * step / steps, n * (step + 1) / steps);
        dot_columns(rows, at_once, dtype, v, n, weights, alpha, o, o_stride, c, 16);
    }
    for (; c < whole; c += 16)
        dot_columns(rows, 1, dtype, v, n, weights, alpha, o, o_stride, c, 16);
    if (whole < d)
        dot_columns(rows, 1, dtype, v, n, weights, alpha, o, o_stride, c, d - whole);
}

/* ---- instances ---------------------------------------------------------------------------- */

typedef void dot_scores_fn(const char *const *k, int n, const float *q, int64_t q_stride, int64_t d,
                           float *scores, const read_ahead *ahead);
typedef void dot_values_fn(const char *const *v, int n, const float *weights, const float *alpha,
                           float *o, int64_t o_stride, int64_t d, const read_ahead *ahead);

#define DOT_INSTANCES(name, dtype, rows)                                                           \
    static void scores_##name##_##rows(const char *const *k, int n, const float *q,                \
                                       int64_t q_stride, int64_t d, float *scores,                 \
                                       const read_ahead *ahead) {                                  \
        dot_scores(rows, dtype, k, n, q, q_stride, d, scores, ahead);                              \
    }                                                                                              \
    static void values_##name##_##rows(const char *const *v, int n, const float *weights,          \
                                       const float *alpha, float *o, int64_t o_stride, int64_t d,  \
                                       const read_ahead *ahead) {                                  \
        dot_values(rows, dtype, v, n, weights, alpha, o, o_stride, d, ahead);                      \
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

/* Largest of the three row counts that does not exceed rows, as an index. */
BOLIDE_INLINE int dot_step(int64_t rows) {
    return rows >= 4 ? 2 : rows >= 2 ? 1 : 0;
}

/* The first group of rows reads ahead; by the next one everything is under way. */
static void dot_all_scores(const dot_kernels *kernels, const char *const *k, int n, const float *q,
                           int64_t q_stride, int64_t d, int64_t rows, float *scores,
                           const read_ahead *ahead) {
    static const read_ahead nothing = {.bytes = 0};
    for (int64_t r = 0; r < rows;) {
        const int step = dot_step(rows - r);
        kernels->scores[step](k, n, q + r * q_stride, q_stride, d, scores + r * BLOCK,
                              r ? &nothing : ahead);
        r += (int64_t)1 << step;
    }
}

static void dot_all_values(const dot_kernels *kernels, const char *const *v, int n,
                           const float *weights, const float *alpha, float *o, int64_t o_stride,
                           int64_t d, int64_t rows, const read_ahead *ahead) {
    static const read_ahead nothing = {.bytes = 0};
    for (int64_t r = 0; r < rows;) {
        const int step = dot_step(rows - r);
        kernels->values[step](v, n, weights + r * BLOCK, alpha + r, o + r * o_stride, o_stride, d,
                              r ? &nothing : ahead);
        r += (int64_t)1 << step;
    }
}

#endif
