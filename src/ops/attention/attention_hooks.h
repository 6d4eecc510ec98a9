// SPDX-License-Identifier: Apache-2.0
//
// Where the CPU kernel calls the functions of a custom variant. With one, a unit has one key head,
// keys and values of a block are copied to f32 and changed there, and a row's logits pass through
// the variant before they become weights.

#ifndef BOLIDE_OPS_ATTENTION_HOOKS_H
#define BOLIDE_OPS_ATTENTION_HOOKS_H

#include "ops/attention/attention_block.h"
#include "ops/attention/attention_load.h"

/* What the variant is told of packed row r of the unit, at the block's first key. */
static bolide__variant_at variant_at(const unit *u, int64_t r) {
    const int64_t row = u->place.row + r, token = row / u->place.group;
    return (bolide__variant_at){
        .request = (int32_t)u->place.request_index,
        .q_len = u->place.request->q_len,
        .kv_len = u->place.request->kv_len,
        .query = (int32_t)token,
        .position = (int32_t)(u->place.shift + token),
        .head = (int32_t)(u->head * u->place.group + row % u->place.group),
        .kv_head = (int32_t)u->head,
        .key = (int32_t)u->key,
    };
}

static void change_query(const unit *u, int64_t r, float *q) {
    const bolide__variant_hooks *hooks = u->p->hooks;
    const bolide__variant_at at = variant_at(u, r);
    if (hooks && hooks->query)
        hooks->query(q, (int)u->p->d_qk, &at, u->p->extra);
}

/* Rows of the block to f32, changed; row[] then has the copies. */
static void change_rows(const unit *u, bolide__variant_row *hook, int64_t d, const char **row,
                        float *to, int64_t step) {
    bolide__variant_at at = variant_at(u, 0);
    for (int j = 0; j < u->n; j++, to += step) {
        widen(row[j], u->p->kv_dtype, d, to);
        at.key = (int32_t)(u->key + j);
        if (hook)
            hook(to, (int)d, &at, u->p->extra);
        row[j] = (const char *)to;
    }
}

static void change_block(unit *u) {
    const bolide__attention_params *p = u->p;
    change_rows(u, p->hooks->key, p->d_qk, u->row, u->own_k, u->dq);
    change_rows(u, p->hooks->value, p->d_vo, u->v, u->own_v, u->dv);
}

/* Takes the keys that the variant's mask hides out of what the rows see. */
static void mask_block(unit *u) {
    const bolide__variant_hooks *hooks = u->p->hooks;
    uint64_t any = 0;
    if (!hooks->mask)
        return;
    for (int64_t r = 0; r < u->place.rows; r++) {
        const bolide__variant_at at = variant_at(u, r);
        const uint64_t seen = u->view == VIEW_OPEN ? low_bits(u->n) : u->visible[r];
        u->visible[r] = seen ? seen & hooks->mask(u->n, &at, u->p->extra) : 0;
        any |= u->visible[r];
    }
    u->view = any ? VIEW_SOME : VIEW_NONE;
}

/* A row's logits, in base 2, through the variant; keys that are not seen have -inf before and
 * behind. */
static void change_logits(const unit *u, int64_t r, uint64_t seen, float *x) {
    const bolide__variant_hooks *hooks = u->p->hooks;
    const bolide__variant_at at = variant_at(u, r);
    const f32x16 to_e = f32_set(0.693147181f), to_2 = f32_set(1.44269504f);
    for (int c = 0; c < BLOCK; c += 16)
        f32_store(x + c, f32_mul(f32_load(x + c), to_e));
    if (hooks->logits)
        hooks->logits(x, u->n, &at, u->p->extra);
    for (int c = 0; c < BLOCK; c += 16) {
        const mask16 mask = mask_of_bits((uint32_t)(seen >> c) & 0xFFFFu);
        const f32x16 y = f32_load(x + c);
        f32_store(x + c, hooks->no_softmax
                             ? f32_select(mask, y, f32_zero())
                             : f32_select(mask, f32_mul(y, to_2), f32_set(-INFINITY)));
    }
}

/* A finished row, before o_scale divides it. */
static void change_output(const bolide__attention_params *p, int64_t index, int64_t token,
                          int64_t head, float o_scale, float *o) {
    const bolide__attention_request *request = &p->requests[index];
    const bolide__variant_at at = {
        .request = (int32_t)index,
        .q_len = request->q_len,
        .kv_len = request->kv_len,
        .query = (int32_t)token,
        .position = (int32_t)(request->kv_len - request->q_len + token),
        .head = (int32_t)head,
        .kv_head = (int32_t)(head / p->group),
    };
    p->hooks->output(o, (int)p->d_vo, &at, p->extra);
    for (int64_t c = 0; c < p->d_vo; c += 16) {
        const int64_t n = p->d_vo - c;
        f32_store_n(o + c, f32_div(f32_load_n(o + c, n), f32_set(o_scale)), n);
    }
}

#endif
