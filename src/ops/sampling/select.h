// SPDX-License-Identifier: Apache-2.0
//
// One row as the sampling kernels see it, and the selection engine on it: thresholds by count or by
// mass, sums of what is kept, the draw. For kernel files only; sampling_internal.h has the
// definition that all of this computes.
//
// Passes run over tiles of 1,024 values that lie widened and cleaned in the first-level cache, so
// dtypes and replaced values are the concern of one function.

#ifndef BOLIDE_OPS_SAMPLING_SELECT_H
#define BOLIDE_OPS_SAMPLING_SELECT_H

#include <float.h>
#include <stdbool.h>

#include "cpu/simd.h"
#include "ops/sampling/sampling_internal.h"

enum {
    TILE = BOLIDE__SAMPLE_TILE,
    TILES = BOLIDE__SAMPLE_VOCAB / TILE + 1,
    BINS = 2048,
    SAMPLE = 4096, /* values that guess the first range of a selection */
    POOL = 32768   /* values that are set aside by the first pass */
};

typedef enum row_kind {
    ROW_PROBS,
    ROW_LOGITS,
    ROW_SCORES,
    ROW_RESIDUAL /* max(0, data - minus), both f32 */
} row_kind;

typedef struct select_row {
    const void *data;
    const float *minus;
    int64_t dtype; /* F32, F16, BF16 */
    int64_t v;
    row_kind kind;
    float max;    /* of LOGITS, for their mass */
    double total; /* mass of the row as far as it is known ahead; 1 for PROBS */
} select_row;

/* Working memory of a selection, on the stack of the kernel. */
typedef struct selector {
    uint64_t bins[2][BINS];
    float pool[POOL + BOLIDE_LANES];
    float x[TILE];
    int32_t key[BOLIDE_LANES];
    float mass[BOLIDE_LANES];
} selector;

/* Values [begin, begin + n) of the row, n <= TILE, cleaned; up to the next multiple of 16 follow
 * values that rank last and have no mass. */
void BOLIDE_ISA(select_tile)(const select_row *r, int64_t begin, int64_t n, float *x);

/* The largest value; 0, -inf or NaN if there is none. */
float BOLIDE_ISA(select_max)(const select_row *r);
/* The first index of a value >= least; v if there is none. */
int64_t BOLIDE_ISA(select_first)(const select_row *r, float least);

/* A t that keeps the k largest and the ties of the k-th, for 0 < k <= v. *above + *ties values are
 * kept; if they are more than k, *above are larger than t and *ties equal to it. NaN is left out
 * and so are values below floor; if fewer than k remain, *above + *ties is their number and t means
 * nothing. */
float BOLIDE_ISA(select_by_count)(selector *s, const select_row *r, int64_t k, float floor,
                                  int64_t *above, int64_t *ties);
/* The filters of sampling.h: what is kept with 0 < p and any k. */
float BOLIDE_ISA(select_by_mass)(selector *s, const select_row *r, int64_t k, float p, bool joint);

/* Sum of the kept masses; tile[i] gets that of tile i if tile is not NULL. */
double BOLIDE_ISA(select_sum)(const select_row *r, float least, double *tile);
/* The sample for u in [0, 1); 0 with *valid = false if nothing has mass. */
int64_t BOLIDE_ISA(select_draw)(const select_row *r, float least, double u, bool *valid);

#define select_tile BOLIDE_ISA(select_tile)
#define select_max BOLIDE_ISA(select_max)
#define select_first BOLIDE_ISA(select_first)
#define select_by_count BOLIDE_ISA(select_by_count)
#define select_by_mass BOLIDE_ISA(select_by_mass)
#define select_sum BOLIDE_ISA(select_sum)
#define select_draw BOLIDE_ISA(select_draw)

/* The least value that keeps everything with mass. */
BOLIDE_INLINE float select_all(const select_row *r) {
    return r->kind == ROW_LOGITS ? -INFINITY : FLT_TRUE_MIN;
}

BOLIDE_INLINE i32x16 key16(f32x16 x) {
    const i32x16 b = f32_bits(x);
    return i32_xor(b, i32_or(i32_sar(b, 31), i32_set(INT32_MIN)));
}

BOLIDE_INLINE float key_value(uint32_t key) {
    const uint32_t bits = key & 0x80000000u ? key ^ 0x80000000u : ~key;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

BOLIDE_INLINE uint32_t value_key(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* Masses of 16 cleaned values. */
BOLIDE_INLINE f32x16 mass16(const select_row *r, f32x16 x) {
    return r->kind == ROW_LOGITS ? f32_exp_neg(f32_sub(x, f32_set(r->max))) : x;
}

BOLIDE_INLINE void lanes_of(f64x16 a, double t[BOLIDE_LANES]) {
    memcpy(t, &a, sizeof a);
}

/* The lanes in one fixed tree: i and i+8, then +4, +2, +1. */
BOLIDE_INLINE double sum16(f64x16 a) {
    double t[BOLIDE_LANES];
    lanes_of(a, t);
    for (int step = 8; step > 0; step /= 2) {
        for (int i = 0; i < step; i++)
            t[i] += t[i + step];
    }
    return t[0];
}

/* u of 53 bits from draw n of a row. */
BOLIDE_INLINE double uniform53(uint64_t seed, uint64_t offset, uint64_t row, uint64_t n) {
    uint32_t w[4];
    philox(seed, offset, row << 32 | n, w);
    return (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-53;
}

#endif
