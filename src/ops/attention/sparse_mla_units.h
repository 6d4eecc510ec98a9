// SPDX-License-Identifier: Apache-2.0
//
// The CPU kernel of sparse_mla. A unit of work is a token and some of its heads. It walks over the
// keys that its lists name in blocks of 64, gaps left out, so that no block has a mask: scores,
// online softmax in base 2, weighted values. Rows of a plain cache are read where they lie, packed
// ones are widened to f32 a block at a time; the addresses of a block are known, and its rows
// fetched, while the block before is at work. Few heads read the rows in place (attention_dot.h),
// more share a packed block (attention_tile.h), by the heads of the call and not of the unit, so
// that a head's bits do not depend on how the work is cut. A part of attention_cpu.c, since the
// passes of both are large and the same.

#ifndef BOLIDE_OPS_SPARSE_MLA_UNITS_H
#define BOLIDE_OPS_SPARSE_MLA_UNITS_H

#include <bolide/sparse_mla.h>
#include <math.h>

#include "ops/attention/attention_load.h"
#include "ops/attention/attention_soften.h"
#include "ops/attention/attention_tile.h"
#include "ops/attention/sparse_mla.h"

enum { UNIT_HEADS = 128 };

/* Where the next key of a token stands. */
typedef struct list_walk {
    int list;
    int64_t next, end; /* keys of the list */
} list_walk;

/* Where a block of keys lies. */
typedef struct list_block {
    int n;
    const char *row[BLOCK];
    const char *scales[BLOCK]; /* of FP8_584 */
} list_block;

typedef struct list_unit {
    const bolide__sparse_mla_params *p;
    int64_t token, head, heads;
    int64_t dq, dv; /* d_qk and d_vo padded to 16: row strides of q and o */
    int64_t dtype;  /* of the rows at work */
    bool dot, split;
    /* scratch of the lane, a row a head for the first three */
    float *q, *o, *scores, *m, *l, *alpha, *keys, *values, *wide;
    list_walk walk;
    list_block block[2];
} list_unit;

/* The order of bolide__sparse_mla_lane_floats. */
static void list_spread_scratch(list_unit *u, unsigned char *lane) {
    const bolide__sparse_mla_params *p = u->p;
    const int64_t h = p->unit_heads;
    u->dq = pad16(p->d_qk);
    u->dv = pad16(p->d_vo);
    u->q = take(&lane, h * u->dq);
    u->o = take(&lane, h * u->dv);
    u->scores = take(&lane, h * BLOCK);
    u->m = take(&lane, h);
    u->l = take(&lane, h);
    u->alpha = take(&lane, h);
    u->keys = take(&lane, BLOCK * u->dq);
    u->values = take(&lane, BLOCK * u->dv);
    u->wide = take(&lane, 0);
}

/* ---- the keys of a token ------------------------------------------------------------------- */

/* The position of a token in its request plus one: how many keys it may count. */
static int64_t keys_before(const bolide__sparse_mla_params *p, int64_t token) {
    int64_t r = 0, end = p->b, start, stop;
    if (end == 0)
        return 0;
    if (!p->qo_indptr) {
        const int64_t each = p->n / p->b;
        r = token / each;
        start = r * each;
        stop = start + each;
    } else {
        while (end - r > 1) { /* the last request that starts at or before the token */
            const int64_t middle = (r + end) / 2;
            if (p->qo_indptr[middle * p->qo_indptr_b] <= token)
                r = middle;
            else
                end = middle;
        }
        start = p->qo_indptr[r * p->qo_indptr_b];
        stop = p->qo_indptr[(r + 1) * p->qo_indptr_b];
    }
    return p->seq_lens[r * p->seq_lens_b] - (stop - start) + (token - start) + 1;
}

static int64_t list_keys_of(const bolide__sparse_mla_params *p, int list, int64_t token) {
    const bolide__mla_list *s = &p->list[list];
    int64_t count = s->count;
    if (s->lens) {
        const int64_t len = s->lens[token * s->lens_n] - s->lens_offset;
        count = len < count ? len : count;
    }
    if (list == 0 && p->seq_lens) {
        const int64_t before = keys_before(p, token);
        count = before < count ? before : count;
    }
    return count;
}

/* The row of the cache behind key `key` of a list; -1: there is none. */
static int64_t row_of(const bolide__mla_list *s, int64_t token, int64_t key) {
    const int32_t *entries = s->entries + token * s->entries_n;
    if (!s->paged)
        return entries[key];
    const int64_t page = entries[key / s->page_size];
    return page < 0 ? -1 : page * s->page_size + key % s->page_size;
}

static void fetch(const char *row, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(row + i, 0, 2);
}

static int64_t row_bytes(const bolide__sparse_mla_params *p) {
    return p->format == BOLIDE_MLA_KV_FP8_656   ? BOLIDE__MLA_656
           : p->format == BOLIDE_MLA_KV_FP8_584 ? BOLIDE__MLA_584_ROW
                                                : p->d_qk * dtype_bytes(p->kv_dtype);
}

/* Addresses of the next keys, up to a block of them. */
static void next_block(list_unit *u, list_block *b) {
    const bolide__sparse_mla_params *p = u->p;
    const int64_t bytes = row_bytes(p);
    list_walk *w = &u->walk;
    b->n = 0;
    while (b->n < BLOCK && w->list < 2) {
        const bolide__mla_list *s = &p->list[w->list];
        if (w->next >= w->end) {
            w->list++;
            w->next = 0;
            w->end = w->list < 2 ? list_keys_of(p, w->list, u->token) : 0;
            continue;
        }
        const int64_t row = row_of(s, u->token, w->next++);
        if (row < 0 || row >= s->pages * s->page_size)
            continue;
        const int64_t page = row / s->page_size, in_page = row % s->page_size;
        const char *at = (const char *)s->cache + page * s->page;
        b->scales[b->n] =
            at + s->page_size * BOLIDE__MLA_584_ROW + in_page * BOLIDE__MLA_584_SCALES;
        at += in_page * (p->format == BOLIDE_MLA_KV_FP8_584 ? BOLIDE__MLA_584_ROW : s->row);
        fetch(at, bytes);
        b->row[b->n++] = at;
    }
}

/* ---- packed rows --------------------------------------------------------------------------- */

/* Values of e4m3 times one scale. */
static void widen_tile(const char *from, int64_t n, float scale, float *to) {
    for (int64_t c = 0; c < n; c += 16)
        f32_store(to + c, f32_mul(load16(from + c, BOLIDE_F8_E4M3FN), f32_set(scale)));
}

static void widen_656(const char *row, int64_t d, float *to) {
    enum { LATENT = BOLIDE__MLA_656_SCALES, TILE = BOLIDE__MLA_656_TILE };
    for (int64_t c = 0; c < LATENT; c += TILE) {
        float scale;
        memcpy(&scale, row + LATENT + c / TILE * (int64_t)sizeof scale, sizeof scale);
        widen_tile(row + c, TILE, scale, to + c);
    }
    widen(row + BOLIDE__MLA_656_ROPE, BOLIDE_BF16, d - LATENT, to + LATENT);
}

/* 2^(code - 127); 255 is NaN. */
static float e8m0(unsigned char code) {
    const uint32_t bits = code == 255 ? 0x7FC00000u
                          : code == 0 ? 0x00400000u
                                      : (uint32_t)code << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void widen_584(const char *row, const char *scales, int64_t d, float *to) {
    enum { OWN = BOLIDE__MLA_584_ROPE, TILE = BOLIDE__MLA_584_TILE };
    for (int64_t c = 0; c < OWN; c += TILE)
        widen_tile(row + c, TILE, e8m0((unsigned char)scales[c / TILE]), to + c);
    widen(row + OWN, BOLIDE_BF16, d - OWN, to + OWN);
}

/* A block's keys in f32 where they are packed. */
static void widen_block(list_unit *u, list_block *b) {
    const bolide__sparse_mla_params *p = u->p;
    for (int j = 0; j < b->n; j++) {
        float *to = u->wide + j * u->dq;
        if (p->format == BOLIDE_MLA_KV_FP8_656)
            widen_656(b->row[j], p->d_qk, to);
        else
            widen_584(b->row[j], b->scales[j], p->d_qk, to);
        b->row[j] = (const char *)to;
    }
}

/* ---- queries ------------------------------------------------------------------------------- */

static float list_scale_of(const float *tensor, double number) {
    return tensor ? *tensor : (float)number;
}

/* In f32, scaled so that scores come out in base 2. */
static void list_load_query(const list_unit *u, int64_t r, float *q) {
    const bolide__sparse_mla_params *p = u->p;
    const double bmm1 = p->bmm1_tensor ? (double)*p->bmm1_tensor : p->bmm1;
    const f32x16 scale = f32_set((float)(bmm1 * 1.4426950408889634));
    widen(dtype_at(p->q, p->q_dtype, u->token * p->q_n + (u->head + r) * p->q_h), p->q_dtype,
          p->d_qk, q);
    for (int64_t c = 0; c < u->dq; c += 16)
        f32_store(q + c, f32_mul(f32_load(q + c), scale));
    if (u->split)
        split_order(q, p->d_qk);
}

/* Regrouped by strips for tiles, else by groups of 4, 2 or 1. */
static void list_load_queries(list_unit *u) {
    for (int64_t r = 0; r < u->heads;) {
        const int n = u->dot ? 1 << dot_step(u->heads - r) : strip_rows(u->heads - r);
        for (int m = 0; m < n; m++)
            list_load_query(u, r + m, u->keys + m * u->dq);
        if (u->dot)
            pack_dot_queries(n, u->keys, u->dq, u->q + r * u->dq);
        else
            pack_queries(n, u->keys, u->dq, u->p->d_qk, u->q + r * u->p->d_qk);
        r += n;
    }
    for (int64_t c = 0; c < u->heads * u->dv; c += 16)
        f32_store(u->o + c, f32_zero());
    for (int64_t r = 0; r < u->heads; r++) {
        u->m[r] = -INFINITY;
        u->l[r] = 0;
    }
}

/* ---- a block ------------------------------------------------------------------------------- */

/* Scores of n keys become weights. */
static void soften_heads(list_unit *u, int n) {
    for (int64_t r = 0; n < BLOCK && r < u->heads; r++) {
        float *row = u->scores + r * BLOCK;
        for (int c = n / 16 * 16; c < BLOCK; c += 16) {
            const mask16 there = mask_first(n < c ? 0 : n - c);
            f32_store(row + c, f32_select(there, f32_load(row + c), f32_set(-INFINITY)));
        }
    }
    soften_together(u->heads, u->scores, NULL, u->m, u->l, u->alpha);
}

static void run_in_place(list_unit *u, const list_block *b) {
    const bolide__sparse_mla_params *p = u->p;
    dot_pass pass = {
        .row = b->row, .n = b->n, .heads = 1, .d = p->d_qk, .d_stride = u->dq, .rows = u->heads};
    dot_all_scores(u->dtype, &pass, u->q, u->scores);
    soften_heads(u, b->n);
    pass.d = p->d_vo;
    pass.d_stride = u->dv;
    dot_all_values(u->dtype, &pass, u->scores, u->alpha, u->o);
}

static void run_by_tiles(list_unit *u, const list_block *b) {
    const bolide__sparse_mla_params *p = u->p;
    strip strips[UNIT_HEADS];
    int count = 0;
    for (int64_t r = 0; r < u->heads; r += strips[count++].rows)
        strips[count] =
            (strip){.row = (int)r, .rows = strip_rows(u->heads - r), .first = 0, .end = b->n};
    key_packer(u->dtype)(b->row, b->n, p->d_qk, u->keys);
    tile_scores(strips, count, u->q, u->keys, b->n, p->d_qk, u->scores);
    soften_heads(u, b->n);
    value_packer(u->dtype)(b->row, b->n, p->d_vo, u->values);
    tile_values(strips, count, u->scores, u->alpha, u->values, p->d_vo, u->o, u->dv);
}

static void list_run_block(list_unit *u, list_block *b) {
    if (u->p->format != BOLIDE_MLA_KV_PLAIN)
        widen_block(u, b);
    if (u->dot)
        run_in_place(u, b);
    else
        run_by_tiles(u, b);
}

/* ---- results ------------------------------------------------------------------------------- */

/* Sink, division, scale, store. */
static void write_head(list_unit *u, int64_t r) {
    const bolide__sparse_mla_params *p = u->p;
    const int64_t head = u->head + r;
    float m = u->m[r], l = u->l[r];
    float *o = u->o + r * u->dv;
    if (u->split)
        natural_order(o, p->d_vo);
    const float weight = p->sinks ? join_sink(p->sinks[head * p->sink_h] * log2_e, &m, &l) : 1;
    divide_row(o, p->d_vo, weight, l, list_scale_of(p->bmm2_tensor, p->bmm2));
    narrow(o, dtype_at_mut(p->out, p->o_dtype, u->token * p->out_n + head * p->out_h), p->o_dtype,
           p->d_vo);
    if (p->lse)
        p->lse[u->token * p->lse_n + head * p->lse_h] = lse_of(m, l, p->base_e);
}

static void list_run_unit(list_unit *u, int64_t index) {
    const bolide__sparse_mla_params *p = u->p;
    u->token = index / p->units_a_token;
    u->head = index % p->units_a_token * p->unit_heads;
    u->heads = p->h_q - u->head < p->unit_heads ? p->h_q - u->head : p->unit_heads;
    list_load_queries(u);
    u->walk = (list_walk){.end = list_keys_of(p, 0, u->token)};
    next_block(u, &u->block[0]);
    for (int now = 0; u->block[now].n > 0; now = !now) {
        next_block(u, &u->block[!now]);
        list_run_block(u, &u->block[now]);
    }
    for (int64_t r = 0; r < u->heads; r++)
        write_head(u, r);
}

void BOLIDE_ISA(sparse_mla_units)(void *arg, int64_t begin, int64_t end, int worker) {
    list_unit u = {.p = arg};
    const bool plain = u.p->format == BOLIDE_MLA_KV_PLAIN;
    list_spread_scratch(&u, u.p->lanes + worker * u.p->lane_bytes);
    u.dtype = plain ? u.p->kv_dtype : BOLIDE_F32;
    u.dot = u.p->h_q <= BOLIDE__ATTN_DOT_ROWS;
    u.split = u.dot && dot_is_split(u.dtype);
    for (int64_t index = begin; index < end; index++)
        list_run_unit(&u, index);
}

#endif
