// SPDX-License-Identifier: Apache-2.0
//
// Products over the register tiles of cpu/microkernel.h, after BLIS (Van Zee and van de Geijn,
// 2015): both operands are regrouped so that a tile reads them in order. All of a is packed once
// (it is the smaller one); a slice of one panel of b is packed where it is used and stays in L1
// while the panels of a pass by.
//
//     workspace   slice 0: tile 0 | tile 1 | …      slice 1: tile 0 | …       tile = mr rows of a

#include "core/tensor.h"
#include "ops/gemm/gemm_internal.h"

static int64_t slice_of(const bolide__gemm_kernel *g, int64_t k) {
    const int64_t most = BOLIDE__TILE_PANEL / (g->nr * g->elem_bytes) / 64 * 64;
    return k < most ? k : most;
}

static int64_t tiles_of(const bolide__gemm_kernel *g, int64_t rows) {
    return (rows + g->mr - 1) / g->mr;
}

int64_t bolide__gemm_tile_bytes(const bolide__gemm_kernel *kernel, int64_t m, int64_t k) {
    const int64_t rows = m < BOLIDE__TILE_CHUNK ? m : BOLIDE__TILE_CHUNK;
    const int64_t slice = slice_of(kernel, k), slices = (k + slice - 1) / slice;
    return slices * tiles_of(kernel, rows) * bolide__panel_bytes(kernel, kernel->mr, slice);
}

/* Items are tiles of the chunk at hand. */
static void pack_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__tile_params *p = arg;
    const bolide__gemm_kernel *g = p->kernel;
    const int64_t bytes = bolide__panel_bytes(g, g->mr, p->slice);
    (void)worker;
    for (int64_t tile = begin; tile < end; tile++) {
        const int64_t row = tile * g->mr;
        const int count = (int)(p->rows - row < g->mr ? p->rows - row : g->mr);
        for (int64_t k = 0; k < p->k; k += p->slice) {
            const void *rows[BOLIDE__TILE_COLS];
            for (int i = 0; i < count; i++)
                rows[i] = (const char *)p->input +
                          ((p->first + row + i) * p->input_row + k) * bolide__dtype_bytes(p->dtype);
            g->pack_a(p->a + (k / p->slice * tiles_of(g, p->rows) + tile) * bytes, rows, p->dtype,
                      count, p->k - k < p->slice ? p->k - k : p->slice);
        }
    }
}

/* Several panels a piece where the packed rows of a outgrow the second cache and there are pieces
 * enough. A sum runs over k in the same order either way. */
static int64_t columns_of(const bolide_context *ctx, const bolide__tile_params *p) {
    const bolide__gemm_kernel *g = p->kernel;
    const int64_t pieces = p->n / BOLIDE__TILE_COLS * p->m_pieces;
    const bool large = p->rows * p->k * g->elem_bytes > BOLIDE__TILE_FAR;
    return large && pieces >= 8 * bolide__cpu_threads(ctx) ? BOLIDE__TILE_COLS : g->nr;
}

void bolide__gemm_tile(const bolide_context *ctx, bolide__tile_params *p) {
    const bolide__gemm_kernel *g = p->kernel;
    p->slice = slice_of(g, p->k);
    for (p->first = 0; p->first < p->m; p->first += BOLIDE__TILE_CHUNK) {
        const int64_t left = p->m - p->first;
        p->rows = left < BOLIDE__TILE_CHUNK ? left : BOLIDE__TILE_CHUNK;
        p->m_pieces = (p->rows + BOLIDE__TILE_ROWS - 1) / BOLIDE__TILE_ROWS;
        bolide__parallel_for(ctx, tiles_of(g, p->rows), bolide__row_grain(p->k * g->mr), pack_tiles,
                             p);
        p->columns = columns_of(ctx, p);
        const int64_t pieces = (p->n + p->columns - 1) / p->columns * p->m_pieces;
        const int64_t work = p->k * p->columns * (p->rows < 16 ? 1 : 16);
        bolide__parallel_for(ctx, pieces, bolide__row_grain(work), BOLIDE_CPU_PICK(tile_pieces), p);
    }
}
