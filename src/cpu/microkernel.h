// SPDX-License-Identifier: Apache-2.0
//
// The tiles of matrix products, a table an instruction set: C[mr x nr] += A panel * B panel, packed
// with conversion from any float dtype, summed in f32. What a chip can do (BF16 dot products, AMX)
// is an entry, not an #if. Products of few rows, which read B where it lies, and of quantised
// blocks (cpu/simd_block.h) need no panel and are kernels of their operators.
//
// An element of the f32 tile is one chain of FMA over k in order, whatever the tile, the split of k
// or the other rows: the same bits alone and in any batch, and on avx2, emu512 and avx512. Entries
// marked `unit` are classes of their own, left out in batch-invariant mode.
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

#endif
