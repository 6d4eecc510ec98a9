// SPDX-License-Identifier: Apache-2.0
//
// The steps of attention_dot.h for their common case: four rows of 16-bit heads of 128. An FMA
// takes four cycles and two of them start in each, so eight sums at once are just enough on paper
// and too few in fact; and an operand that comes from memory for each FMA leaves no time to load
// the next key. So as many sums as there are registers are kept: three keys (AVX2) or four times
// four rows, each query loaded once for all of them, half of the logical lanes after the other
// where a register holds half; three halves or four chunks of a value's columns times four rows.
// Each sum has the order that it has in attention_dot.h. Lines are fetched one at a time between
// the sums.

#ifndef BOLIDE_OPS_ATTENTION_DOT4_H
#define BOLIDE_OPS_ATTENTION_DOT4_H

#include "cpu/simd_dot.h"

#if defined(F32_PARTS)

enum {
    DOT4_ROWS = 4,
    DOT4_D = 128,
    DOT4_KEYS = 4,
    DOT4_VALUES = 8,
    DOT4_SUMS = F32_PARTS == 1 ? 4 : 3, /* of each row at once */
    DOT4_PARTS = DOT4_D / 16 * F32_PARTS,
    DOT4_LINES = DOT4_D * 2 / 64, /* cache lines of a key or value */
};

/* Part i of a row that lies in memory, in the order of load_row. */
BOLIDE_INLINE f32_part dot4_part(const char *row, int64_t dtype, int i) {
    const char *p = row + i / F32_PARTS * 32;
    return dtype == BOLIDE_BF16 ? part_of_bf16(p, i % F32_PARTS) : part_of_f16(p, i % F32_PARTS);
}

/* The rows of a step, and what is fetched meanwhile, a row for each of its rows: for the first
 * time, and once more shortly before use, since a chip whose second cache has its queue full drops
 * fetches. All are addresses of a first head, and the head at hand lies `head` bytes on: added
 * where an address is used, it costs nothing, while pointers of its own for each head outnumber the
 * registers, and the compiler would keep them in those of the vectors. */
typedef struct dot4_rows {
    const char *const *row, *const *next, *const *again;
    int64_t head;
} dot4_rows;

BOLIDE_INLINE void dot4_fetch(const dot4_rows *rows, int row, int line) {
    __builtin_prefetch(rows->next[row] + rows->head + 64 * line, 0, 2);
    __builtin_prefetch(rows->again[row] + rows->head + 64 * line, 0, 2);
}

/* Part `part` of the sums of `keys` keys from key `first` of the step on: sum[j][r]. q is
 * [8][4][16]. */
BOLIDE_INLINE void dot4_sums(int first, int keys, int64_t dtype, const dot4_rows *rows,
                             const float *q, int part, f32_part sum[][DOT4_ROWS]) {
    BOLIDE_UNROLL
    for (int c = 0; c < DOT4_D / 16; c++) {
        f32_part x[DOT4_SUMS];
        BOLIDE_UNROLL
        for (int j = 0; j < keys; j++)
            x[j] = dot4_part(rows->row[first + j] + rows->head, dtype, c * F32_PARTS + part);
        const int line = (c + part * 8) * 2 / F32_PARTS; /* of the lines of four rows */
        if (keys > 1)
            dot4_fetch(rows, line / DOT4_LINES, line % DOT4_LINES);
        if (keys > 1 && F32_PARTS == 1)
            dot4_fetch(rows, line / DOT4_LINES, line % DOT4_LINES + 1);
        BOLIDE_UNROLL
        for (int r = 0; r < DOT4_ROWS; r++) {
            f32_part a = part_load(q + (c * DOT4_ROWS + r) * 16 + 16 / F32_PARTS * part);
            if (keys > 1)
                PART_KEEP(a); /* else it is loaded again for each key */
            BOLIDE_UNROLL
            for (int j = 0; j < keys; j++)
                sum[j][r] = c ? part_fma(a, x[j], sum[j][r]) : part_mul(a, x[j]);
        }
    }
}

/* sum[r * DOT4_KEYS + j] = the folded lanes of q[r] . k[first + j] for `keys` keys. */
BOLIDE_INLINE void dot4_keys(int first, int keys, int64_t dtype, const dot4_rows *rows,
                             const float *q, f32_folded *sum) {
    f32_part s[DOT4_SUMS][DOT4_ROWS];
    BOLIDE_UNROLL
    for (int part = 0; part < F32_PARTS; part++) {
        dot4_sums(first, keys, dtype, rows, q, part, s);
        BOLIDE_UNROLL
        for (int j = 0; j < keys; j++) {
            BOLIDE_UNROLL
            for (int r = 0; r < DOT4_ROWS; r++) {
                f32_folded *to = &sum[r * DOT4_KEYS + j];
                *to = part == 0 ? part_begin_fold(s[j][r]) : part_fold(*to, s[j][r]);
            }
        }
        /* Else the parts are computed side by side, and half of the sums do not find a register. */
        __asm__("" : "+r"(q) : : "memory");
    }
}

/* Four keys against four rows. */
BOLIDE_INLINE void dot4_scores(int64_t dtype, const dot4_rows *rows, const float *q,
                               f32_folded *sum) {
    dot4_keys(0, DOT4_SUMS, dtype, rows, q, sum);
    if (DOT4_SUMS < DOT4_KEYS)
        dot4_keys(DOT4_SUMS, 1, dtype, rows, q, sum + DOT4_SUMS);
}

/* Parts [first, first + parts) of o[r] += sum of weights[r * stride + j] * row[j] over eight
 * values. `line` of each row is fetched, below 0 none, and with one part a register the line behind
 * it. */
BOLIDE_INLINE void dot4_columns(int parts, int64_t dtype, const dot4_rows *rows, int line,
                                const float *weights, int64_t stride, float *o, int first) {
    enum { LANES = 16 / F32_PARTS };
    f32_part sum[DOT4_SUMS][DOT4_ROWS];
    BOLIDE_UNROLL
    for (int r = 0; r < DOT4_ROWS; r++) {
        BOLIDE_UNROLL
        for (int i = 0; i < parts; i++)
            sum[i][r] = part_load(o + r * DOT4_D + (first + i) * LANES);
    }
    for (int j = 0; j < DOT4_VALUES; j++) {
        f32_part x[DOT4_SUMS];
        BOLIDE_UNROLL
        for (int i = 0; i < parts; i++)
            x[i] = dot4_part(rows->row[j] + rows->head, dtype, first + i);
        if (line >= 0)
            dot4_fetch(rows, j, line);
        if (line >= 0 && F32_PARTS == 1)
            dot4_fetch(rows, j, line + 1);
        BOLIDE_UNROLL
        for (int r = 0; r < DOT4_ROWS; r++) {
            const f32_part w = part_set(weights[r * stride + j]);
            BOLIDE_UNROLL
            for (int i = 0; i < parts; i++)
                sum[i][r] = part_fma(w, x[i], sum[i][r]);
        }
    }
    BOLIDE_UNROLL
    for (int r = 0; r < DOT4_ROWS; r++) {
        BOLIDE_UNROLL
        for (int i = 0; i < parts; i++)
            part_store(o + r * DOT4_D + (first + i) * LANES, sum[i][r]);
    }
}

/* Eight values for four rows. */
BOLIDE_INLINE void dot4_values(int64_t dtype, const dot4_rows *rows, const float *weights,
                               int64_t stride, float *o) {
    int first = 0;
    BOLIDE_UNROLL
    for (; first + DOT4_SUMS <= DOT4_PARTS; first += DOT4_SUMS) {
        const int line = first / DOT4_SUMS * 2 / F32_PARTS;
        dot4_columns(DOT4_SUMS, dtype, rows, line < DOT4_LINES ? line : -1, weights, stride, o,
                     first);
    }
    if (DOT4_PARTS % DOT4_SUMS)
        dot4_columns(DOT4_PARTS % DOT4_SUMS, dtype, rows, -1, weights, stride, o, first);
}

#endif

#endif
