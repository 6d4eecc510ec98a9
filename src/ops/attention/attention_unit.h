// SPDX-License-Identifier: Apache-2.0
//
// Scores and weighted values for many rows of bf16 on the units beside the base set (AMX, BF16 dot
// products), through the table of cpu/microkernel.h. Queries and keys enter as they lie and the
// scale meets the scores, so the products are exact; weights are rounded to bf16 before they meet
// the values, as they are on the GPU. attention_run.c says where this is done.
//
//     u->q       tiles of mr queries          u->keys    panels of nr keys of the block
//     weights    tiles of mr rows, on the     u->values  panels of nr columns
//                stack, one at a time

#ifndef BOLIDE_OPS_ATTENTION_UNIT_H
#define BOLIDE_OPS_ATTENTION_UNIT_H

#include "cpu/microkernel.h"
#include "ops/attention/attention_block.h"

enum { UNIT_SIDE = 32 }; /* the largest mr and nr */

/* Rows of the next tile from r on. */
static int unit_rows(const unit *u, int64_t r) {
    const int64_t left = u->place.rows - r;
    return left < u->p->units->mr ? (int)left : u->p->units->mr;
}

/* at says where row r of the unit's only head lies. */
static void unit_pack_queries(unit *u, const void *(*at)(const unit *u, int64_t i, int64_t r)) {
    const bolide__gemm_kernel *g = u->p->units;
    char *panel = (char *)u->q;
    for (int64_t r = 0; r < u->place.rows; r += g->mr) {
        const void *rows[UNIT_SIDE];
        const int count = unit_rows(u, r);
        for (int i = 0; i < count; i++)
            rows[i] = at(u, 0, r + i);
        g->pack_a(panel, rows, BOLIDE_BF16, count, u->p->d_qk);
        panel += bolide__panel_bytes(g, g->mr, u->p->d_qk);
    }
}

/* Whether a row of the tile sees one of the n keys from `key` of the block on. */
static bool unit_sees(const unit *u, int64_t r, int count, int key, int n) {
    uint64_t any = u->view == VIEW_OPEN ? ~(uint64_t)0 : 0;
    for (int i = 0; u->view != VIEW_OPEN && i < count; i++)
        any |= u->visible[r + i];
    return (any >> key & low_bits(n)) != 0;
}

static void unit_scores(unit *u) {
    const bolide__gemm_kernel *g = u->p->units;
    const int64_t d = u->p->d_qk;
    const int64_t tile_bytes = bolide__panel_bytes(g, g->mr, d);
    for (int key = 0; key < u->n; key += g->nr) {
        const int n = u->n - key < g->nr ? u->n - key : g->nr;
        const void *rows[UNIT_SIDE];
        for (int j = 0; j < n; j++)
            rows[j] = u->row[key + j];
        g->pack_bt(u->keys, rows, BOLIDE_BF16, n, d);
        const char *tile = (const char *)u->q;
        for (int64_t r = 0; r < u->place.rows; r += g->mr, tile += tile_bytes) {
            const int count = unit_rows(u, r);
            if (unit_sees(u, r, count, key, n))
                g->run(d, tile, u->keys, u->scores + r * BLOCK + key, BLOCK, count, n, 0);
        }
    }
}

static void unit_pack_values(unit *u) {
    const bolide__gemm_kernel *g = u->p->units;
    char *panel = (char *)u->values;
    for (int64_t c = 0; c < u->p->d_vo; c += g->nr) {
        const void *rows[BLOCK];
        for (int j = 0; j < u->n; j++)
            rows[j] = dtype_at(u->v[j], BOLIDE_BF16, c);
        g->pack_b(panel, rows, BOLIDE_BF16, g->nr, u->n);
        panel += bolide__panel_bytes(g, g->nr, u->n);
    }
}

static void unit_values(unit *u, const float *alpha) {
    const bolide__gemm_kernel *g = u->p->units;
    const int64_t panel_bytes = bolide__panel_bytes(g, g->nr, u->n);
    _Alignas(64) char weights[UNIT_SIDE * BLOCK * 2];
    unit_pack_values(u);
    for (int64_t r = 0; r < u->place.rows; r += g->mr) {
        const void *rows[UNIT_SIDE];
        const int count = unit_rows(u, r);
        for (int i = 0; i < count; i++) {
            rows[i] = u->scores + (r + i) * BLOCK;
            rescale(u->o + (r + i) * u->dv, u->dv, alpha[r + i]);
        }
        if (!unit_sees(u, r, count, 0, u->n))
            continue;
        g->pack_a(weights, rows, BOLIDE_F32, count, u->n);
        const char *panel = (const char *)u->values;
        for (int64_t c = 0; c < u->p->d_vo; c += g->nr, panel += panel_bytes)
            g->run(u->n, weights, panel, u->o + r * u->dv + c, u->dv, count, g->nr, 1);
    }
}

#endif
