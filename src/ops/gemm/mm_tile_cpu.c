// SPDX-License-Identifier: Apache-2.0
//
// One piece of a product over register tiles: one or a few panels of nr columns of b times up to
// 192 rows of a. The sums stay on the stack as f32 until the last slice of k is done, so that out
// is written once and rounded once. A slice of the rows of a stays in the second cache while the
// panels pass by; with one panel a piece, all of a would come from further away for every panel.

#include "core/tensor.h"
#include "ops/gemm/gemm_store.h"

typedef struct piece {
    int64_t col, columns; /* of b */
    int64_t row, rows;    /* of the chunk of a */
} piece;

typedef struct scratch {
    _Alignas(64) char panel[BOLIDE__TILE_PANEL];
    _Alignas(64) float sum[BOLIDE__TILE_ROWS][BOLIDE__TILE_COLS];
    const void *rows[BOLIDE__TILE_PANEL / 32]; /* the longest slice: 16 columns of 2 bytes */
} scratch;

/* One slice of the panel of columns from col on, of either layout of b. */
static void pack_slice(const bolide__tile_params *p, int64_t col, int64_t columns, int64_t k,
                       int64_t depth, scratch *s) {
    const int64_t bytes = bolide__dtype_bytes(p->dtype);
    const char *b = (const char *)p->weight + (col * p->weight_n + k * p->weight_k) * bytes;
    const int64_t step = (p->weight_k == 1 ? p->weight_n : p->weight_k) * bytes;
    const int64_t count = p->weight_k == 1 ? columns : depth;
    for (int64_t i = 0; i < count; i++)
        s->rows[i] = b + i * step;
    if (p->weight_k == 1)
        p->kernel->pack_bt(s->panel, s->rows, p->dtype, (int)columns, depth);
    else
        p->kernel->pack_b(s->panel, s->rows, p->dtype, (int)columns, depth);
}

static void run_piece(const bolide__tile_params *p, const piece *x, scratch *s) {
    const bolide__gemm_kernel *g = p->kernel;
    const int64_t bytes = bolide__panel_bytes(g, g->mr, p->slice);
    const int64_t tiles = (p->rows + g->mr - 1) / g->mr;
    for (int64_t k = 0; k < p->k; k += p->slice) {
        const int64_t depth = p->k - k < p->slice ? p->k - k : p->slice;
        for (int64_t j = 0; j < x->columns; j += g->nr) {
            const int64_t columns = x->columns - j < g->nr ? x->columns - j : g->nr;
            const char *a = p->a + (k / p->slice * tiles + x->row / g->mr) * bytes;
            pack_slice(p, x->col + j, columns, k, depth, s);
            for (int64_t i = 0; i < x->rows; i += g->mr, a += bytes)
                g->run(depth, a, s->panel, s->sum[i] + j, BOLIDE__TILE_COLS,
                       (int)(x->rows - i < g->mr ? x->rows - i : g->mr), (int)columns, k > 0);
        }
    }
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j += BOLIDE_LANES)
            gemm_store(&p->out, p->first + x->row + i, x->col + j, x->columns - j,
                       f32_load_n(s->sum[i] + j, x->columns - j));
}

void BOLIDE_ISA(tile_pieces)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__tile_params *p = arg;
    scratch s;
    (void)worker;
    for (int64_t item = begin; item < end; item++) {
        const int64_t col = item / p->m_pieces * p->columns;
        const int64_t row = item % p->m_pieces * BOLIDE__TILE_ROWS;
        const piece x = {
            .col = col,
            .columns = p->n - col < p->columns ? p->n - col : p->columns,
            .row = row,
            .rows = p->rows - row < BOLIDE__TILE_ROWS ? p->rows - row : BOLIDE__TILE_ROWS,
        };
        run_piece(p, &x, &s);
    }
}
