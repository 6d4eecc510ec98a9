// SPDX-License-Identifier: Apache-2.0
//
// The state of a unit of work of the CPU kernel: the scratch of its lane, and where the keys and
// values of the block at hand lie.

#ifndef BOLIDE_OPS_ATTENTION_BLOCK_H
#define BOLIDE_OPS_ATTENTION_BLOCK_H

#include "ops/attention/attention_load.h"
#include "ops/attention/attention_mask.h"

enum { DOT_ROWS_MAX = BOLIDE__ATTN_DOT_ROWS, TILE_ROWS_MAX = BOLIDE__ATTN_TILE_ROWS };

/* ---- a lane's scratch and a unit's state -------------------------------------------------- */

typedef struct unit {
    tile_place place;
    const bolide__attention_params *p;
    const bolide__attention_item *item;
    int64_t head, heads; /* key heads [head, head + heads) */
    int64_t dq, dv;      /* d_qk and d_vo padded to 16: row strides of q and o */
    bool dot;            /* few rows, read in place; else tiles */
    bool unit;           /* tiles of bf16 on p->units */
    bool split;          /* o has the order of bf16_load_split */
    /* scratch of the lane: [heads][rows][…] for q, o, m, l; of scores a head for tiles */
    float *q, *o, *m, *l, *scores, *keys, *values, *changed, *cosine, *sine;
    float *own_k, *own_v; /* rows of a block as a variant has them; latents with their scales */
    /* of the block at hand */
    int64_t key;
    int n;
    block_view view;
    int64_t k_dtype, v_dtype; /* of the rows below */
    uint64_t visible[TILE_ROWS_MAX];
    float row_scale[TILE_ROWS_MAX]; /* of each row's scores, with unit */
    /* n keys, n values, then the keys of the next block and copies of the last: of the unit's
     * first head, or with tiles of the head at hand */
    const char *row[3 * BLOCK];
    const char **v;        /* row + n */
    int32_t key_at[BLOCK]; /* positions of the block's keys, with ATTN_PLACED */
} unit;

static int64_t pad16(int64_t x) {
    return (x + 15) / 16 * 16;
}

static float *take(unsigned char **at, int64_t floats) {
    float *p = (float *)*at;
    *at += pad16(floats) * (int64_t)sizeof(float);
    return p;
}

/* The order of bolide__attention_lane_bytes. */
static void spread_scratch(unit *u, unsigned char *lane) {
    const bolide__attention_params *p = u->p;
    const int64_t rows = p->unit_heads * p->tile_rows;
    u->dq = pad16(p->d_qk);
    u->dv = pad16(p->d_vo);
    u->q = take(&lane, rows * u->dq);
    u->o = take(&lane, rows * u->dv);
    u->m = take(&lane, rows);
    u->l = take(&lane, rows);
    u->scores = take(&lane, bolide__attention_score_rows(p->unit_heads, p->tile_rows) * BLOCK);
    u->keys = take(&lane, BLOCK * u->dq);
    u->values = take(&lane, BLOCK * u->dv);
    if (p->flags & (BOLIDE__ATTN_ROPE | BOLIDE__ATTN_TAIL))
        u->changed = take(&lane, BLOCK * u->dq);
    if (p->flags & BOLIDE__ATTN_ROPE) {
        u->cosine = take(&lane, BLOCK * pad16(p->d_qk / 2));
        u->sine = take(&lane, BLOCK * pad16(p->d_qk / 2));
    }
    u->k_dtype = u->v_dtype = p->kv_dtype;
    if (p->hooks) {
        u->own_k = take(&lane, BLOCK * u->dq);
        u->own_v = take(&lane, BLOCK * u->dv);
    } else if (p->row_scales) {
        u->own_v = take(&lane, BLOCK * u->dv);
    }
    if (p->hooks || p->row_scales)
        u->k_dtype = u->v_dtype = BOLIDE_F32;
}

/* ---- rows of a block ----------------------------------------------------------------------- */

/* How to find rows of one tensor. */
typedef struct row_source {
    const char *base; /* of the unit's first head */
    int64_t page, row, start;
    const int32_t *indices; /* page ids; NULL: no pages */
    int64_t table_row;      /* entries of a request in them; 0: they begin at its kv_start */
} row_source;

static row_source keys_of(const unit *u) {
    const bolide__attention_params *p = u->p;
    return (row_source){dtype_at(p->k, p->kv_dtype, u->head * p->k_h),
                        p->k_page,
                        p->k_n,
                        u->place.request->kv_start,
                        p->indices,
                        p->table_row};
}

/* The rows of the last d_tail columns, which all heads share. */
static row_source tails_of(const unit *u) {
    const bolide__attention_params *p = u->p;
    return (row_source){p->k_tail,  p->k_tail_page, p->k_tail_n, u->place.request->kv_start,
                        p->indices, p->table_row};
}

static row_source values_of(const unit *u) {
    const bolide__attention_params *p = u->p;
    return (row_source){dtype_at(p->v, p->kv_dtype, u->head * p->v_h),
                        p->v_page,
                        p->v_n,
                        u->place.request->v_start,
                        p->v_indices ? p->v_indices : p->indices,
                        p->v_indices ? p->v_table_row : p->table_row};
}

/* The page ids of the request in a list or a table. */
static const int32_t *list_of(const unit *u, const int32_t *indices, int64_t table_row) {
    const int64_t start =
        table_row ? u->place.request_index * table_row : (int64_t)u->place.request->kv_start;
    return indices + start;
}

/* Addresses of n rows from key `key` on. */
static void find_rows(const unit *u, row_source s, int64_t key, int n, const char **to) {
    const bolide__attention_params *p = u->p;
    const int64_t bytes = dtype_bytes(p->kv_dtype);
    if (!s.indices) {
        for (int j = 0; j < n; j++)
            to[j] = s.base + (s.start + key + j) * s.row * bytes;
        return;
    }
    const int32_t *list = list_of(u, s.indices, s.table_row);
    int64_t entry = key / p->page_size, in_page = key % p->page_size;
    for (int j = 0; j < n;) {
        const char *page = s.base + list[entry++] * s.page * bytes;
        for (; j < n && in_page < p->page_size; j++, in_page++)
            to[j] = page + in_page * s.row * bytes;
        in_page = 0;
    }
}

static int block_size(const unit *u, int64_t key) {
    const int64_t left = u->item->kv_end - key;
    return left < BLOCK ? (int)left : BLOCK;
}

/* The columns of the matrix that the block's keys are; behind them a column behind all. */
static void place_keys(unit *u) {
    const bolide__attention_params *p = u->p;
    const int32_t *list = list_of(u, p->indices, p->table_row);
    int64_t entry = u->key / p->page_size, in_page = u->key % p->page_size;
    u->place.key_at = u->key_at;
    u->place.least = INT32_MAX;
    u->place.most = 0;
    for (int j = 0; j < BLOCK; j++) {
        int32_t at = INT32_MAX;
        if (j < u->n) {
            at = (int32_t)((list[entry] * p->page_size + in_page) % p->fold_kv);
            u->place.least = at < u->place.least ? at : u->place.least;
            u->place.most = at > u->place.most ? at : u->place.most;
            in_page++;
        }
        if (in_page == p->page_size) {
            in_page = 0;
            entry++;
        }
        u->key_at[j] = at;
    }
}

/* Position of key j of the block. */
static int64_t key_position(const unit *u, int j) {
    return u->place.key_at ? u->key_at[j] : u->key + j;
}

/* Looks the block's rows up. With tiles, or where the block before was shorter, its keys are not
 * known yet. */
static void step_block(unit *u, int64_t key) {
    const bool known = u->dot && key > u->item->kv_begin;
    const char *const *next = u->row + 2 * BLOCK;
    u->key = key;
    u->n = block_size(u, key);
    u->v = u->row + u->n;
    if (u->p->flags & BOLIDE__ATTN_PLACED)
        place_keys(u);
    if (known)
        memmove(u->row, next, (size_t)u->n * sizeof *u->row);
    else
        find_rows(u, keys_of(u), key, u->n, u->row);
    find_rows(u, values_of(u), key, u->n, u->v);
    if (!u->dot)
        return;
    const char **rest = u->v + u->n;
    const int n = block_size(u, key + u->n);
    find_rows(u, keys_of(u), key + u->n, n, rest);
    for (int j = n; j < BLOCK; j++)
        rest[j] = u->v[u->n - 1];
}

/* The block's latents, which are keys and values, in f32 with the scales of their parts. */
static void scale_latents(unit *u) {
    const bolide__attention_params *p = u->p;
    const int64_t bytes = (int64_t)sizeof *p->row_scales; /* find_rows counts elements of 8 bits */
    const char *scales[BLOCK];
    find_rows(u,
              (row_source){(const char *)p->row_scales, p->row_scales_page * bytes,
                           p->row_scales_n * bytes, u->place.request->kv_start, p->indices,
                           p->table_row},
              u->key, u->n, scales);
    for (int j = 0; j < u->n; j++) {
        float *to = u->own_v + j * u->dv;
        widen(u->row[j], p->kv_dtype, p->d_vo, to);
        for (int64_t c = 0; c < p->d_vo; c += BOLIDE_LANES) {
            const f32x16 scale = f32_set(((const float *)scales[j])[c / BOLIDE__ATTN_SCALED]);
            f32_store(to + c, f32_mul(f32_load(to + c), scale));
        }
        u->row[j] = u->v[j] = (const char *)to;
    }
}

static void next_head(unit *u) {
    const bolide__attention_params *p = u->p;
    const int64_t bytes = dtype_bytes(p->kv_dtype);
    for (int j = 0; j < u->n; j++) {
        u->row[j] += p->k_h * bytes;
        u->v[j] += p->v_h * bytes;
    }
}

#endif
