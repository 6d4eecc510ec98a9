// SPDX-License-Identifier: Apache-2.0
//
// The inner kernels of matrix products, a table an instruction set. GEMM and attention are written
// over them; what a chip can do (BF16 dot products, AMX tiles, VNNI) is an entry, not an #if.
//
//     tile   C[mr x nr] += A panel * B panel      many rows: mm, bmm, prefill attention
//     dot    C[m][n] = sum over k of A[m][k] * B[n][k], B read as it lies       few rows
//     quant  the same with blocks of 4 or 8 bits as GGUF stores them, f32 or int8 arithmetic
//
// Bits: an element of the f32 tile is one chain of FMA over k in order, whatever the tile, the
// split of k or the other rows. An element of a dot is 16 chains, lane k mod 16, added by the tree
// of f32_sum. An element of quant int8 is one chain over blocks with an exact integer dot product
// inside. So each gives the same bits alone and in any batch, and on avx2, emu512 and avx512 alike.
// The entries marked `unit` are classes of their own, left out in batch-invariant mode.
//
//     panel of A   mr rows, k elements        [k / g][mr][g]     g = k_group
//     panel of B   nr columns, k elements     [k / g][nr][g]     (AMX differs: see its file)
//
// A consumer cuts k into slices (some 256 to 512 elements), packs panels of B of a slice for as
// many columns as the second cache holds, panels of A for some rows, and runs tiles with
// accumulate = 0 on the first slice and 1 on the others.

#ifndef BOLIDE_CPU_MICROKERNEL_H
#define BOLIDE_CPU_MICROKERNEL_H

#include <bolide/core.h>

#include "cpu/cpu.h"

/* ---- tile --------------------------------------------------------------------------------- */

typedef struct bolide__gemm_kernel {
    const char *name;
    int mr, nr;     /* rows and columns of a tile */
    int k_group;    /* panels are padded with zeros to a multiple of this in k */
    int elem_bytes; /* of an element in a panel */
    int unit;       /* 1: arithmetic of another class than f32 FMA */

    /* Packs m <= mr rows of A; rows[i] points at k contiguous elements of dtype F32, F16, BF16,
     * F8_E4M3FN or F8_E5M2. Rows m to mr become zeros. */
    void (*pack_a)(void *panel, const void *const *rows, int64_t dtype, int m, int64_t k);
    /* Packs n <= nr columns of B. Columns contiguous (weights [n][k], keys): rows[j] is column j
     * with k elements. */
    void (*pack_bt)(void *panel, const void *const *rows, int64_t dtype, int n, int64_t k);
    /* Rows contiguous ([k][n], values): rows[p] is row p with n elements, k pointers in all. */
    void (*pack_b)(void *panel, const void *const *rows, int64_t dtype, int n, int64_t k);
    /* C[i * ldc + j] = (accumulate ? C : 0) + sum over k, for i < m, j < n; m in [1, mr], n in
     * [1, nr]. Panels lie at multiples of 64 bytes for speed; nothing depends on it. */
    void (*run)(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int m, int n,
                int accumulate);
} bolide__gemm_kernel;

/* Bytes of a panel of k elements a row. */
static inline int64_t bolide__panel_bytes(const bolide__gemm_kernel *g, int width, int64_t k) {
    return (k + g->k_group - 1) / g->k_group * g->k_group * width * g->elem_bytes;
}

/* The f32 tile of the set in force. */
const bolide__gemm_kernel *bolide__gemm_f32(void);
/* For two operands of bf16 that may use units of another class: AMX where granted, BF16 dot
 * products where they are faster than f32 (AMD; on Intel's server cores they are not), else the
 * f32 tile. Callers pass bolide__units_allowed(ctx). */
const bolide__gemm_kernel *bolide__gemm_bf16(int units_allowed);
/* All entries that can run on this machine with the set in force, for tests; NULL ends. */
const bolide__gemm_kernel *bolide__gemm_entry(int index);

/* 1 unless the context asks for batch-invariant results. */
int bolide__units_allowed(const bolide_context *ctx);

/* ---- dot ---------------------------------------------------------------------------------- */

/* C[i * ldc + j] = sum over k of a[i][k] * b[j][k], i < m, j < n, any m and n. a[i] are rows of
 * f32; b[j] rows of dtype (those of pack_a). Made for few rows, where B is read once from memory;
 * at m above about 16 the tile is faster. */
typedef void bolide__dot_fn(const float *const *a, int m, const void *const *b, int64_t dtype,
                            int n, int64_t k, float *c, int64_t ldc);
bolide__dot_fn *bolide__dot(void);

/* x[0..n) of dtype to f32. */
typedef void bolide__widen_fn(float *out, const void *x, int64_t dtype, int64_t n);
bolide__widen_fn *bolide__widen(void);

/* ---- quant -------------------------------------------------------------------------------- */

/* Blocks of 32 along k, as GGUF stores them; d and m are f16.
 *     Q4_0  d, 16 bytes          w = d (q - 8)      byte i holds element i low, i + 16 high
 *     Q4_1  d, m, 16 bytes       w = d q + m
 *     Q8_0  d, 32 signed bytes   w = d q */
typedef enum bolide__block_format { BOLIDE__Q4_0, BOLIDE__Q4_1, BOLIDE__Q8_0 } bolide__block_format;

enum { BOLIDE__BLOCK = 32 };

static inline int64_t bolide__block_bytes(bolide__block_format format) {
    return format == BOLIDE__Q4_0 ? 18 : format == BOLIDE__Q4_1 ? 20 : 34;
}

/* A row of activations in blocks of 32: x = scale * q, q in [-127, 127]; sum is that of the q of a
 * block. */
typedef struct bolide__q8_row {
    const int8_t *q;    /* [32 * blocks] */
    const float *scale; /* [blocks] */
    const int32_t *sum; /* [blocks] */
} bolide__q8_row;

typedef struct bolide__quant_kernel {
    const char *name;
    int mr, nr;

    /* One row of k = 32 * blocks elements: scale = max|x| / 127. NaN makes the block NaN. */
    void (*quantize)(const void *x, int64_t dtype, int64_t blocks, int8_t *q, float *scale,
                     int32_t *sum);

    /* int8, one row of activations, weights as they lie: c[j] for j < n, any n. */
    void (*row)(const bolide__q8_row *a, const void *const *b, bolide__block_format format, int n,
                int64_t blocks, float *c);

    /* int8, tiles: n <= nr rows of weights to a panel of panel_block_bytes a block; then
     * C[i * ldc + j] for i < m <= mr, j < n, the same bits as `row`. */
    int64_t panel_block_bytes;
    void (*pack)(void *panel, const void *const *b, bolide__block_format format, int n,
                 int64_t blocks);
    void (*run)(const bolide__q8_row *a, const void *panel, bolide__block_format format,
                int64_t blocks, float *c, int64_t ldc, int m, int n);

    /* f32: rows of activations in f32 times weights as they lie; any m and n. */
    void (*dot)(const float *const *a, int m, const void *const *b, bolide__block_format format,
                int n, int64_t blocks, float *c, int64_t ldc);
    /* A row of weights to f32; dot on such rows gives the bits of this dot. */
    void (*dequantize)(const void *b, bolide__block_format format, int64_t blocks, float *out);
} bolide__quant_kernel;

const bolide__quant_kernel *bolide__quant(void);
/* All entries that can run on this machine with the set in force, for tests; NULL ends. */
const bolide__quant_kernel *bolide__quant_entry(int index);

#endif
