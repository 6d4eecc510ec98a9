// SPDX-License-Identifier: Apache-2.0
//
// The CPU kernel of every attention operator. A lane takes units (an item of the schedule and a
// few key heads) until none is left. A unit walks over its keys in blocks of 64: scores, online
// softmax in base 2, weighted values. Few rows read keys and values where they lie
// (attention_dot.h) and are bound by memory; many rows pack the block once and are bound by
// multiply-adds (attention_tile.h), or use the chip's units for bf16 (attention_unit.h). A unit
// writes its rows, or their unfinished state into a slot that the merge joins afterwards. Which
// thread runs a unit changes nothing.

#include "ops/attention/attention_internal.h"

#include <math.h>

#include "ops/attention/attention_block.h"
#include "ops/attention/attention_hooks.h"
#include "ops/attention/attention_load.h"
#include "ops/attention/attention_rope.h"
#include "ops/attention/attention_soften.h"
#include "ops/attention/attention_tile.h"
#include "ops/attention/attention_unit.h"

static const float log2_e = 1.44269504f, ln_2 = 0.693147181f;

static float scale_value(const bolide__attention_scale *s, int64_t head) {
    return s->tensor ? s->tensor[head * s->step] : (float)s->number;
}

/* ---- keys that are not used as they lie ---------------------------------------------------- */

/* The block's keys of a head in scratch, as f32 rows, where they do not lie ready in memory: turned
 * to their positions, or joined from two tensors. The head is `offset` bytes behind the rows at
 * hand. */
static void change_keys(const unit *u, int64_t offset, const char **changed) {
    const bolide__attention_params *p = u->p;
    const int64_t step = pad16(p->d_qk / 2), own = p->d_qk - p->d_tail;
    const char *tails[BLOCK];
    if (p->flags & BOLIDE__ATTN_TAIL)
        find_rows(u, tails_of(u), u->key, u->n, tails);
    for (int j = 0; j < u->n; j++) {
        float *row = u->changed + j * u->dq;
        widen(u->row[j] + offset, u->k_dtype, own, row);
        if (p->flags & BOLIDE__ATTN_TAIL)
            widen(tails[j], p->kv_dtype, p->d_tail, row + own);
        if (p->flags & BOLIDE__ATTN_ROPE)
            rotate(row, p->d_qk, u->cosine + j * step, u->sine + j * step);
        changed[j] = (const char *)row;
    }
}

static bool keys_change(const bolide__attention_params *p) {
    return (p->flags & (BOLIDE__ATTN_ROPE | BOLIDE__ATTN_TAIL)) != 0;
}

/* ---- queries ------------------------------------------------------------------------------ */

static int64_t row_token(const unit *u, int64_t r) {
    return (u->place.row + r) / u->place.group;
}

static int64_t row_head(const unit *u, int64_t i, int64_t r) {
    return (u->head + i) * u->place.group + (u->place.row + r) % u->place.group;
}

/* What a query is multiplied by: the scores then come out in units of the softmax's base, or
 * divided by the soft cap. */
static float query_scale(const bolide__attention_params *p, int64_t q_head, float key_scale) {
    const double s = p->sm_scale * (double)scale_value(&p->q_scale, q_head) * (double)key_scale;
    return (float)(p->soft_cap > 0 ? s / p->soft_cap : s * 1.4426950408889634);
}

static const void *query_at(const unit *u, int64_t i, int64_t r) {
    const bolide__attention_params *p = u->p;
    const int64_t token = u->place.request->q_start + row_token(u, r);
    return dtype_at(p->q, p->q_dtype, token * p->q_n + row_head(u, i, r) * p->q_h);
}

/* One query in f32, turned to its position and scaled. */
static void load_query(unit *u, int64_t i, int64_t r, float *q) {
    const bolide__attention_params *p = u->p;
    const int64_t token = row_token(u, r), head = row_head(u, i, r);
    const int64_t own = p->d_qk - p->d_tail;
    widen(query_at(u, i, r), p->q_dtype, own, q);
    if (p->flags & BOLIDE__ATTN_TAIL) {
        const int64_t row = u->place.request->q_start + token;
        widen(dtype_at(p->q_tail, p->q_dtype, row * p->q_tail_n + head * p->q_tail_h), p->q_dtype,
              p->d_tail, q + own);
    }
    change_query(u, r, q);
    if (p->flags & BOLIDE__ATTN_ROPE) {
        if (r == 0 || row_token(u, r - 1) != token)
            rope_angles(p, u->place.shift + token, u->cosine, u->sine);
        rotate(q, p->d_qk, u->cosine, u->sine);
    }
    const f32x16 scale = f32_set(query_scale(p, head, scale_value(&p->k_scale, u->head + i)));
    const f32x16 tail = f32_set(query_scale(p, head, scale_value(&p->tail_scale, 0)));
    for (int64_t c = 0; c < u->dq; c += 16)
        f32_store(q + c, f32_mul(f32_load(q + c), c < own ? scale : tail));
}

/* The queries of a head, regrouped by strips for tiles, else by groups of 4, 2 or 1. */
static void pack_rows(unit *u, int64_t i) {
    const bolide__attention_params *p = u->p;
    const int64_t rows = u->place.rows;
    const bool split = u->split && !keys_change(p);
    float *q = u->q + i * rows * u->dq;
    for (int64_t r = 0; r < rows;) {
        const int n = u->dot ? 1 << dot_step(rows - r) : strip_rows(rows - r);
        for (int m = 0; m < n; m++) {
            load_query(u, i, r + m, u->keys + m * u->dq);
            if (split)
                split_order(u->keys + m * u->dq, p->d_qk);
        }
        if (u->dot)
            pack_dot_queries(n, u->keys, u->dq, q + r * u->dq);
        else
            pack_queries(n, u->keys, u->dq, p->d_qk, q + r * p->d_qk);
        r += n;
    }
}

static void load_queries(unit *u, int64_t i) {
    const int64_t rows = u->place.rows;
    if (u->unit)
        unit_pack_queries(u, query_at);
    else
        pack_rows(u, i);
    for (int64_t r = 0; u->unit && r < rows; r++)
        u->row_scale[r] =
            query_scale(u->p, row_head(u, 0, r), scale_value(&u->p->k_scale, u->head));
    for (int64_t c = 0; c < rows * u->dv; c += 16)
        f32_store(u->o + i * rows * u->dv + c, f32_zero());
    for (int64_t r = 0; r < rows; r++) {
        u->m[i * rows + r] = -INFINITY;
        u->l[i * rows + r] = 0;
    }
}

/* ---- a block ------------------------------------------------------------------------------ */

/* Cuts the tile into strips and says which keys of the block each of them needs. */
static int make_strips(const unit *u, strip *strips) {
    int count = 0;
    for (int64_t r = 0; r < u->place.rows; count++) {
        const int rows = strip_rows(u->place.rows - r);
        uint64_t any = u->view == VIEW_OPEN ? low_bits(u->n) : 0;
        for (int64_t i = 0; u->view != VIEW_OPEN && i < rows; i++)
            any |= u->visible[r + i];
        strips[count] = (strip){.row = (int)r,
                                .rows = rows,
                                .first = any ? __builtin_ctzll(any) : 0,
                                .end = any ? 64 - __builtin_clzll(any) : 0};
        r += rows;
    }
    return count;
}

/* Few rows: the scores of all heads. */
static void scores_in_place(unit *u) {
    const bolide__attention_params *p = u->p;
    const int64_t rows = u->place.rows, bytes = dtype_bytes(p->kv_dtype);
    dot_pass pass = {.row = u->row,
                     .n = u->n,
                     .heads = (int)u->heads,
                     .head_step = p->k_h * bytes,
                     .d = p->d_qk,
                     .d_stride = u->dq,
                     .rows = rows,
                     .ahead = p->hooks ? 0 : ahead_rows(u->heads * p->d_qk * bytes)};
    if (!keys_change(p)) {
        dot_all_scores(u->k_dtype, &pass, u->q, u->scores);
        return;
    }
    const char *changed[BLOCK];
    pass.row = changed;
    pass.heads = 1;
    pass.ahead = 0;
    for (int64_t i = 0; i < u->heads; i++) {
        change_keys(u, i * p->k_h * bytes, changed);
        dot_all_scores(BOLIDE_F32, &pass, u->q + i * rows * u->dq, u->scores + i * rows * BLOCK);
    }
}

/* Many rows: the scores of a head. */
static void scores_by_tiles(unit *u, int64_t i) {
    const bolide__attention_params *p = u->p;
    const char *const *k = u->row;
    const char *changed[BLOCK];
    int64_t dtype = u->k_dtype;
    if (keys_change(p)) {
        change_keys(u, 0, changed);
        k = changed;
        dtype = BOLIDE_F32;
    }
    key_packer(dtype)(k, u->n, p->d_qk, u->keys);
    strip strips[TILE_ROWS_MAX];
    const int count = make_strips(u, strips);
    tile_scores(strips, count, u->q + i * u->place.rows * u->dq, u->keys, u->n, p->d_qk, u->scores);
}

/* ALiBi's slope of a query head, in base 2. With n the largest power of two up to the head count,
 * the first n heads have 2^(-8 (h + 1) / n), the others the odd steps of 2n. */
static float alibi_slope(int64_t head, int64_t heads) {
    int64_t n = 1;
    while (2 * n <= heads)
        n *= 2;
    const double steps = head < n ? 8.0 * (double)(head + 1) / (double)n
                                  : 4.0 * (double)(2 * (head - n) + 1) / (double)n;
    return (float)(exp2(-steps) * 1.4426950408889634);
}

/* The slope of a packed row's head. In a matrix that lies in several parts, the heads of all of
 * them count one after the other. */
static float slope_of_row(const unit *u, int64_t i, int64_t r) {
    const bolide__attention_params *p = u->p;
    const int64_t head = row_head(u, i, r);
    if (!(p->flags & BOLIDE__ATTN_PLACED))
        return alibi_slope(head, p->h_q);
    const int64_t part = u->place.request->q_start / p->fold_q, parts = p->q_rows / p->fold_q;
    return alibi_slope(part * p->h_q + head, parts * p->h_q);
}

/* Logits of the 16 keys from key c of the block on from their scores, of the query at a position:
 * cap, bias, mask. */
BOLIDE_INLINE f32x16 finish_logits(const unit *u, f32x16 x, float slope, int64_t position, int c,
                                   mask16 seen) {
    const bolide__attention_params *p = u->p;
    if (p->soft_cap > 0)
        x = f32_mul(f32_tanh(x), f32_set((float)(p->soft_cap * 1.4426950408889634)));
    if (p->flags & BOLIDE__ATTN_ALIBI) {
        const i32x16 at = u->place.key_at ? i32_load(u->key_at + c)
                                          : i32_add(i32_iota(), i32_set((int32_t)(u->key + c)));
        const i32x16 distance = i32_sub(at, i32_set((int32_t)position));
        x = f32_fma(f32_set(slope), i32_to_f32(distance), x);
    }
    return f32_select(seen, x, f32_set(-INFINITY));
}

/* A row's scores become logits; gives which keys of the block it sees. */
static uint64_t finish_row(const unit *u, int64_t i, int64_t r, float *scores) {
    const uint64_t bits = u->view == VIEW_OPEN ? low_bits(u->n) : u->visible[r];
    const float slope = u->p->flags & BOLIDE__ATTN_ALIBI ? slope_of_row(u, i, r) : 0;
    const int64_t position = u->place.shift + row_token(u, r);
    const f32x16 scale = f32_set(u->unit ? u->row_scale[r] : 1);
    for (int c = 0; c < BLOCK; c += 16) {
        const mask16 seen = mask_of_bits((uint32_t)(bits >> c) & 0xFFFFu);
        const f32x16 x = f32_mul(f32_load(scores + c), scale);
        f32_store(scores + c, finish_logits(u, x, slope, position, c, seen));
    }
    return bits;
}

/* Whether every row sees the whole block, and scores are logits but for the query's scale. */
static bool is_plain(const unit *u) {
    const bolide__attention_params *p = u->p;
    return u->view == VIEW_OPEN && u->n == BLOCK && p->soft_cap == 0 &&
           !(p->flags & BOLIDE__ATTN_ALIBI) && !p->hooks;
}

/* The rows of `heads` heads from head i on become weights; alpha is what each row's sums so far are
 * to be multiplied by. A variant without a softmax has its weights already. */
static void soften_block(unit *u, int64_t i, int64_t heads, float *scores, float *alpha) {
    const int64_t rows = u->place.rows, first = i * rows;
    const bool plain = is_plain(u), none = u->p->hooks && u->p->hooks->no_softmax;
    for (int64_t at = 0; !plain && at < heads * rows; at++) {
        const int64_t r = at % rows;
        const uint64_t seen = finish_row(u, i + at / rows, r, scores + at * BLOCK);
        if (u->p->hooks)
            change_logits(u, r, seen, scores + at * BLOCK);
        if (!none)
            continue;
        alpha[at] = 1;
        u->m[first + at] = 0;
        u->l[first + at] = seen ? 1 : u->l[first + at]; /* whether there is a key */
    }
    if (!none)
        soften_together(heads * rows, scores, plain && u->unit ? u->row_scale : NULL, u->m + first,
                        u->l + first, alpha);
}

/* Whether an infinity or NaN stands among the block's values of a head. */
static bool any_nonfinite(const unit *u, int64_t offset) {
    const bolide__attention_params *p = u->p;
    float row[BOLIDE_LANES];
    mask16 bad = mask_of_bits(0);
    for (int j = 0; j < u->n; j++) {
        for (int64_t c = 0; c < p->d_vo; c += 16) {
            const int64_t n = p->d_vo - c < 16 ? p->d_vo - c : 16;
            widen(dtype_at(u->v[j] + offset, u->v_dtype, c), u->v_dtype, n, row);
            const f32x16 x = f32_load(row);
            bad = mask_or(bad, f32_isnan(f32_sub(x, x)));
        }
    }
    return mask_any(bad);
}

/* Row by row over the keys that the row sees: a weight of 0 must not meet an infinity. */
static void careful_values(unit *u, int64_t offset, const float *weights, const float *alpha,
                           float *o) {
    const bolide__attention_params *p = u->p;
    for (int j = 0; j < u->n; j++) {
        widen(u->v[j] + offset, u->v_dtype, p->d_vo, u->values + j * u->dv);
        if (u->split)
            split_order(u->values + j * u->dv, p->d_vo);
    }
    for (int64_t r = 0; r < u->place.rows; r++, o += u->dv, weights += BLOCK) {
        for (int64_t c = 0; c < u->dv; c += 16) {
            f32x16 sum = f32_mul(f32_load(o + c), f32_set(alpha[r]));
            for (uint64_t bits = u->visible[r]; bits; bits &= bits - 1) {
                const int j = __builtin_ctzll(bits);
                sum = f32_fma(f32_set(weights[j]), f32_load(u->values + j * u->dv + c), sum);
            }
            f32_store(o + c, sum);
        }
    }
}

/* Few rows: all heads at once, or where a row does not see all keys a head at a time. */
static void values_in_place(unit *u, const float *alpha) {
    const bolide__attention_params *p = u->p;
    const int64_t rows = u->place.rows, bytes = dtype_bytes(p->kv_dtype);
    dot_pass pass = {.row = u->v,
                     .n = u->n,
                     .heads = (int)u->heads,
                     .head_step = p->v_h * bytes,
                     .d = p->d_vo,
                     .d_stride = u->dv,
                     .rows = rows,
                     .ahead = p->hooks ? 0 : ahead_rows(u->heads * p->d_vo * bytes)};
    bool bad = false;
    for (int64_t i = 0; u->view == VIEW_SOME && i < u->heads; i++)
        bad |= any_nonfinite(u, i * pass.head_step);
    if (!bad) {
        dot_all_values(u->v_dtype, &pass, u->scores, alpha, u->o);
        return;
    }
    for (int64_t i = 0; i < u->heads; i++)
        careful_values(u, i * pass.head_step, u->scores + i * rows * BLOCK, alpha + i * rows,
                       u->o + i * rows * u->dv);
}

static void values_by_tiles(unit *u, int64_t i, const float *alpha) {
    const bolide__attention_params *p = u->p;
    float *o = u->o + i * u->place.rows * u->dv;
    if (u->view == VIEW_SOME && any_nonfinite(u, 0)) {
        careful_values(u, 0, u->scores, alpha, o);
        return;
    }
    if (u->unit) {
        unit_values(u, alpha);
        return;
    }
    value_packer(u->v_dtype)(u->v, u->n, p->d_vo, u->values);
    strip strips[TILE_ROWS_MAX];
    const int count = make_strips(u, strips);
    tile_values(strips, count, u->scores, alpha, u->values, p->d_vo, o, u->dv);
}

static void run_block(unit *u) {
    const bolide__attention_params *p = u->p;
    float alpha[TILE_ROWS_MAX];
    u->view = look(&u->place, u->key, u->n, u->visible);
    if (p->hooks && u->view != VIEW_NONE)
        mask_block(u);
    if (u->view == VIEW_NONE)
        return;
    if (p->hooks)
        change_block(u);
    else if (p->row_scales)
        scale_latents(u);
    if (p->flags & BOLIDE__ATTN_ROPE) {
        const int64_t step = pad16(p->d_qk / 2);
        for (int j = 0; j < u->n; j++)
            rope_angles(p, key_position(u, j), u->cosine + j * step, u->sine + j * step);
    }
    if (u->dot) {
        scores_in_place(u);
        soften_block(u, 0, u->heads, u->scores, alpha);
        values_in_place(u, alpha);
        return;
    }
    for (int64_t i = 0; i < u->heads; i++) {
        if (i > 0)
            next_head(u);
        if (u->unit)
            unit_scores(u);
        else
            scores_by_tiles(u, i);
        soften_block(u, i, 1, u->scores, alpha);
        values_by_tiles(u, i, alpha);
    }
}

/* ---- results ------------------------------------------------------------------------------ */

/* Lets a sink, whose logit has base 2, join a row with the largest logit m and the sum l; gives
 * what the row so far is to be multiplied by. */
static float join_sink(float sink, float *m, float *l) {
    const float top = *m > sink ? *m : sink;
    if (top == -INFINITY)
        return 1;
    const f32x16 e =
        f32_exp2_neg(f32_sub(f32_select(mask_first(1), f32_set(*m), f32_set(sink)), f32_set(top)));
    const float weight = f32_lane(e, 0);
    *l = *l * weight + f32_lane(e, 1);
    *m = top;
    return weight;
}

/* A row of sums of weighted values becomes their mean, times scale; 0 where no key was seen. */
static void divide_row(float *o, int64_t d, float weight, float l, float scale) {
    const f32x16 w = f32_set(weight), sum = f32_set(l), s = f32_set(scale);
    for (int64_t c = 0; c < d; c += 16) {
        const f32x16 x = f32_div(f32_mul(f32_load_n(o + c, d - c), w), sum);
        f32_store_n(o + c, l == 0 ? f32_zero() : f32_mul(x, s), d - c);
    }
}

static float lse_of(float m, float l, bool base_e) {
    const float lse = m + f32_lane(f32_log2(f32_set(l)), 0);
    return base_e ? lse * ln_2 : lse;
}

/* Sink, division, scales, store; m and l are the row's largest logit and sum. o is changed. */
static void write_row(const bolide__attention_params *p, int64_t index, int64_t token, int64_t head,
                      float m, float l, float *o) {
    const bolide__attention_request *request = &p->requests[index];
    const float weight = p->sinks ? join_sink(p->sinks[head * p->sink_h] * log2_e, &m, &l) : 1;
    if (p->hooks && p->hooks->no_softmax && l > 0)
        l = 1;
    const double v_scale = (double)scale_value(&p->v_scale, head / p->group);
    const double o_scale = (double)scale_value(&p->o_scale, 0);
    const bool change = p->hooks && p->hooks->output && l != 0;
    divide_row(o, p->d_vo, weight, l, (float)(change ? v_scale : v_scale / o_scale));
    if (change)
        change_output(p, index, token, head, (float)o_scale, o);
    const int64_t at = (request->o_start + token) * p->out_n + head * p->out_h;
    narrow(o, dtype_at_mut(p->out, p->o_dtype, at), p->o_dtype, p->d_vo);
    if (p->lse)
        p->lse[(request->q_start + token) * p->lse_n + head * p->lse_h] =
            lse_of(m, l, p->flags & BOLIDE__ATTN_LSE_BASE_E);
}

/* Index of a row in the slots. */
static int64_t slot_row(const bolide__attention_params *p, int64_t slot, int64_t head, int64_t r) {
    return (slot * p->h_kv + head) * p->tile_rows + r;
}

static void finish_unit(unit *u) {
    const bolide__attention_params *p = u->p;
    const int64_t rows = u->place.rows;
    for (int64_t i = 0; i < u->heads; i++) {
        for (int64_t r = 0; r < rows; r++) {
            float *o = u->o + (i * rows + r) * u->dv;
            if (u->split)
                natural_order(o, p->d_vo);
            const float m = u->m[i * rows + r], l = u->l[i * rows + r];
            if (u->item->slot < 0) {
                write_row(p, u->item->request, row_token(u, r), row_head(u, i, r), m, l, o);
                continue;
            }
            const int64_t at = slot_row(p, u->item->slot, u->head + i, r);
            memcpy(p->partial_o + at * p->d_vo, o, (size_t)p->d_vo * sizeof *o);
            p->partial_ml[2 * at] = m;
            p->partial_ml[2 * at + 1] = l;
        }
    }
}

static int64_t tile_rows_of(const bolide__attention_params *p,
                            const bolide__attention_request *request, int64_t row) {
    const int64_t left = request->q_len * p->group - row;
    return left < p->tile_rows ? left : p->tile_rows;
}

static void run_unit(unit *u, int64_t index) {
    const bolide__attention_params *p = u->p;
    const int64_t parts = p->h_kv / p->unit_heads;
    u->item = &p->items[index / parts];
    u->head = index % parts * p->unit_heads;
    u->heads = p->unit_heads;
    const bolide__attention_request *request = &p->requests[u->item->request];
    u->place = (tile_place){.p = p,
                            .request = request,
                            .request_index = u->item->request,
                            .row = u->item->row,
                            .rows = tile_rows_of(p, request, u->item->row),
                            .group = p->group,
                            .shift = (int64_t)request->kv_len - request->q_len};
    if (p->flags & BOLIDE__ATTN_PLACED)
        u->place.shift = request->q_start % p->fold_q + p->fold_kv - p->fold_q;
    u->dot = u->place.rows <= DOT_ROWS_MAX;
    u->unit = !u->dot && p->units;
    u->split = u->dot && dot_is_split(u->v_dtype);
    for (int64_t i = 0; i < u->heads; i++)
        load_queries(u, i);
    for (int64_t key = u->item->kv_begin; key < u->item->kv_end; key += BLOCK) {
        step_block(u, key);
        run_block(u);
    }
    finish_unit(u);
}

void BOLIDE_ISA(attention_lane)(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    unit u = {.p = arg};
    const int64_t units = u.p->counts->items * (u.p->h_kv / u.p->unit_heads);
    for (int64_t lane = begin; lane < end; lane++) {
        spread_scratch(&u, u.p->lanes + lane * u.p->lane_bytes);
        for (;;) {
            const int64_t next = __atomic_fetch_add(u.p->next_unit, 1, __ATOMIC_RELAXED);
            if (next >= units)
                break;
            run_unit(&u, next);
        }
    }
}

/* ---- merge -------------------------------------------------------------------------------- */

/* Joins the slots of one row in their order. */
static void merge_row(const bolide__attention_params *p, const bolide__attention_merge *merge,
                      int64_t kv_head, int64_t r) {
    float o[(576 + 15) / 16 * 16];
    float top = -INFINITY, l = 0;
    for (int64_t s = 0; s < merge->count; s++) {
        const float m = p->partial_ml[2 * slot_row(p, merge->slot + s, kv_head, r)];
        top = m > top ? m : top;
    }
    for (int64_t c = 0; c < p->d_vo; c += 16)
        f32_store(o + c, f32_zero());
    for (int64_t s = 0; s < merge->count; s++) {
        const int64_t at = slot_row(p, merge->slot + s, kv_head, r);
        const float m = p->partial_ml[2 * at];
        const float w = m == -INFINITY ? 0 : f32_lane(f32_exp2_neg(f32_set(m - top)), 0);
        l += p->partial_ml[2 * at + 1] * w;
        for (int64_t c = 0; c < p->d_vo; c += 16) {
            const f32x16 part = f32_load_n(p->partial_o + at * p->d_vo + c, p->d_vo - c);
            f32_store(o + c, f32_fma(part, f32_set(w), f32_load(o + c)));
        }
    }
    const int64_t row = merge->row + r;
    write_row(p, merge->request, row / p->group, kv_head * p->group + row % p->group, top, l, o);
}

void BOLIDE_ISA(attention_merge)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__attention_params *p = arg;
    (void)worker;
    for (int64_t index = begin; index < end; index++) {
        const bolide__attention_merge *merge = &p->merges[index / p->h_kv];
        const int64_t rows = tile_rows_of(p, &p->requests[merge->request], merge->row);
        for (int64_t r = 0; r < rows; r++)
            merge_row(p, merge, index % p->h_kv, r);
    }
}

/* The units of sparse_mla, of the same passes. */
#include "ops/attention/sparse_mla_units.h"
