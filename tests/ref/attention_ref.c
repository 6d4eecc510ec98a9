// SPDX-License-Identifier: Apache-2.0
//
// References of the attention family, straight from the rules in include/bolide/attention.h. One
// function computes one query head of one token; the operators differ in where its keys lie. A row
// is a query token and a head. Everything that must not matter (unused page tails, pages of nobody)
// is filled with NaN.
//
// Keys of every problem: len=5:0:17 the keys of each request (one number for all b of them; else
// drawn from 0 … max), d= for head sizes, mask_rows= how a custom mask is drawn.

#include "attention_batch.h"

#include <math.h>
#include <stdlib.h>

#include "cpu/microkernel.h"

/* Where the key and value of one position lie, as first elements of k->f64 and v->f64, and of
 * k_tail->f64 where a key is in two tensors. */
typedef struct place {
    int64_t k, v, tail;
} place;

typedef struct view {
    const ref_tensor *q, *k, *v;
    const ref_tensor *q_tail, *k_tail; /* or NULL: q and k have all columns */
    const char *k_scale, *v_scale;     /* names */
    int latent;                        /* MLA, which has no positions inside the kernel */
    int64_t h_q, h_kv, d_qk, d_vo;
    place (*at)(const ref_call *c, const batch *t, int64_t r, int64_t j, int64_t head);
} view;

/* ---- one row ------------------------------------------------------------------------------ */

static double number(const ref_call *c, const char *name, double absent) {
    const double x = ref_f64(c, name);
    return isnan(x) ? absent : x;
}

static double slope(int64_t head, int64_t heads) {
    int64_t n = 1;
    while (n * 2 <= heads)
        n *= 2;
    return head < n ? exp2(-8.0 * (double)(head + 1) / (double)n)
                    : exp2(-4.0 * (double)(2 * (head - n) + 1) / (double)n);
}

static int is_encoded(const ref_call *c, const view *w, const char *mode) {
    return !w->latent && ref_is(c, "pos_encoding_mode", mode);
}

/* x . y, each turned to its position where there is rotary embedding. */
static double product(const ref_call *c, const view *w, const double *x, const double *y,
                      int64_t x_position, int64_t y_position) {
    const int64_t d = w->d_qk;
    double sum = 0;
    if (!is_encoded(c, w, "ROPE_LLAMA")) {
        for (int64_t i = 0; i < d; i++)
            sum += x[i] * y[i];
        return sum;
    }
    const double theta = number(c, "rope_theta", 1e4), scale = number(c, "rope_scale", 1);
    for (int64_t i = 0; i < d / 2; i++) {
        const double f = pow(theta, -2.0 * (double)i / (double)d) / scale;
        const double angle = (double)(x_position - y_position) * f;
        const double a = x[i], b = x[i + d / 2], p = y[i], q = y[i + d / 2];
        sum += cos(angle) * (a * p + b * q) + sin(angle) * (a * q - b * p);
    }
    return sum;
}

/* Of the part of a key that is in a tensor of its own. */
static double tail_product(const ref_call *c, const view *w, int64_t row, int64_t at) {
    const int64_t d = w->k_tail->shape[w->k_tail->ndim - 1];
    double sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += w->q_tail->f64[row * d + i] * w->k_tail->f64[at + i];
    return sum * ref_number(c, "kpe_scale", 0, 1);
}

static void attend(const ref_call *c, const batch *t, const view *w, int64_t r, int64_t i,
                   int64_t h) {
    const int64_t len = t->kv_len[r], group = w->h_q / w->h_kv, kv_head = h / group;
    const int64_t position = len - t->q_len[r] + i, row = (t->q_start[r] + i) * w->h_q + h;
    const double cap = number(c, "logits_soft_cap", 0); /* the run's, else the plan's */
    const double q_scale =
        number(c, "sm_scale", 1 / sqrt((double)w->d_qk)) * ref_number(c, "q_scale", h, 1);
    const double scale = q_scale * ref_number(c, w->k_scale, kv_head, 1);
    const ref_tensor *sinks = ref_in(c, "sinks");
    ref_tensor *out = ref_out(c, "out"), *lse = ref_out(c, "lse");
    double *logits = malloc((size_t)(len + 1) * sizeof *logits);
    double *o = out->f64 + ((t->o_start[r] + i) * w->h_q + h) * w->d_vo;
    double top = sinks ? sinks->f64[h] : -INFINITY, sum = 0;
    for (int64_t j = 0; logits && j < len; j++) {
        const double *key = w->k->f64 + w->at(c, t, r, j, kv_head).k;
        double s = -INFINITY;
        if (attention_sees(c, t, r, i, j)) {
            s = scale * product(c, w, w->q->f64 + row * w->d_qk, key, position, j);
            if (w->k_tail)
                s += q_scale * tail_product(c, w, row, w->at(c, t, r, j, kv_head).tail);
            s = cap > 0 ? cap * tanh(s / cap) : s;
            if (is_encoded(c, w, "ALIBI"))
                s += slope(h, w->h_q) * (double)(j - position);
        }
        logits[j] = s;
        top = isnan(s) || isnan(top) ? NAN : fmax(top, s);
    }
    for (int64_t e = 0; e < w->d_vo; e++)
        o[e] = 0;
    for (int64_t j = 0; logits && top != -INFINITY && j < len; j++) {
        const double weight = logits[j] == -INFINITY ? 0 : exp(logits[j] - top);
        const double *value = w->v->f64 + w->at(c, t, r, j, kv_head).v;
        sum += weight;
        for (int64_t e = 0; weight != 0 && e < w->d_vo; e++)
            o[e] += weight * value[e];
    }
    if (sinks && top != -INFINITY)
        sum += exp(sinks->f64[h] - top);
    const double last = ref_number(c, w->v_scale, kv_head, 1) / ref_number(c, "o_scale", 0, 1);
    for (int64_t e = 0; e < w->d_vo; e++)
        o[e] = ref_held(sum == 0 ? 0 : o[e] / sum * last, out->dtype);
    const double natural = sum == 0 ? -INFINITY : top + log(sum);
    if (lse)
        lse->f64[row] = ref_i64(c, "return_lse_base_on_e") ? natural : natural / log(2.0);
    free(logits);
}

/* Row number to request, token and head. */
static void attend_row(const ref_call *c, const view *w, int64_t row) {
    const batch *t = ref_state(c, sizeof *t);
    const int64_t n = row / w->h_q;
    int64_t r = 0, end = t->b;
    while (end - r > 1) { /* the last request that starts at or before n */
        const int64_t middle = (r + end) / 2;
        if (t->q_start[middle] <= n)
            r = middle;
        else
            end = middle;
    }
    const int64_t i = n - t->q_start[r];
    if (r < t->b && i < t->q_len[r])
        attend(c, t, w, r, i, row % w->h_q);
}

/* ---- what they cost ----------------------------------------------------------------------- */

static int64_t rows_of(const ref_call *c) {
    return ref_dim(c, "n") * ref_dim(c, "h_q");
}

static int64_t longest_sum(const ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    int64_t most = 0;
    for (int64_t r = 0; r < t->b; r++)
        most = t->kv_len[r] > most ? t->kv_len[r] : most;
    return most + ref_dim(c, "d_qk");
}

/* Logits come out of float32 sums with an error that grows with their size, and exp passes it on;
 * with normal data they reach about 6, with scales and fp8 values somewhat more. */
static double f32_slack(const ref_call *c) {
    return ref_on_cuda(c) ? 3.2e-5 : 1.6e-5;
}

static double logit_slack(const ref_call *c) {
    const ref_tensor *whole = ref_in(c, "q");
    const int64_t q = (whole ? whole : ref_in(c, "q_nope"))->dtype;
    const int bf16 = q == BOLIDE_BF16, cuda = ref_on_cuda(c);
    if (cuda && q != BOLIDE_F32 && ref_in(c, "ckv_scale_arr")) /* keys are rounded as well */
        return 40 * (q == BOLIDE_F16 ? 0x1p-12 : 0x1p-9);
    const int units = !cuda && bf16 && whole && bolide__gemm_bf16(1)->unit;
    if ((cuda && q == BOLIDE_F32) || (!cuda && !units))
        return f32_slack(c);
    if (cuda && attention_e4m3_slack(c, ref_state(c, sizeof(batch))) > 0)
        return attention_e4m3_slack(c, ref_state(c, sizeof(batch)));
    /* Tensor cores take weights in 16 bits: bf16 with bf16 queries, else f16. The CPU's units round
     * the same way, with more room for small problems. */
    return (units ? 1.2 : 1) *
           attention_half_slack(c, ref_state(c, sizeof(batch)), bf16 ? 0x1p-9 : 0x1p-12);
}

static double flops_of(const ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    double pairs = 0;
    for (int64_t r = 0; r < t->b; r++) {
        const double q = (double)t->q_len[r], k = (double)t->kv_len[r];
        pairs += t->causal && k >= q ? q * (k - q) + q * (q + 1) / 2 : q * k;
    }
    return 2 * pairs * (double)ref_dim(c, "h_q") *
           (double)(ref_dim(c, "d_qk") + ref_dim(c, "d_vo"));
}

static double elem_bytes(const ref_call *c, const char *tensor) {
    const ref_tensor *x = ref_in(c, tensor);
    return x ? bolide_dtype_of(x->dtype).bits / 8.0 : 2;
}

static double bytes_of(const ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    double keys = 0;
    for (int64_t r = 0; r < t->b; r++)
        keys += (double)t->kv_len[r];
    const double d = (double)(ref_dim(c, "d_qk") + ref_dim(c, "d_vo"));
    const char *k = t->page_size ? "k_cache" : "k";
    double rows = 0;
    for (int64_t r = 0; r < t->b; r++)
        rows += (double)t->q_len[r];
    return keys * (double)ref_dim(c, "h_kv") * d * elem_bytes(c, k) +
           rows * (double)ref_dim(c, "h_q") * d * elem_bytes(c, "q");
}

/* ---- batch_decode ------------------------------------------------------------------------- */

static place paged_place(const ref_call *c, const batch *t, int64_t r, int64_t j, int64_t head) {
    const ref_tensor *k = ref_in(c, "k_cache"), *v = ref_in(c, "v_cache");
    const ref_tensor *table = ref_in(c, "block_tables");
    const ref_tensor *list = ref_in(c, t->list);
    const int64_t entry = j / t->page_size, slot = j % t->page_size;
    const ref_tensor *values = ref_in(c, "v_block_tables");
    const int64_t page =
        table ? table->i64[r * table->shape[1] + entry] : list->i64[t->page_start[r] + entry];
    const int64_t v_page = values ? values->i64[r * values->shape[1] + entry] : page;
    return (place){.k = attention_page_offset(c, k, page, slot, head),
                   .v = attention_page_offset(c, v, v_page, slot, head)};
}

static void decode_dims(ref_call *c) {
    batch *t = ref_state(c, sizeof *t);
    attention_draw_lengths(c, t);
    t->page_size = ref_count(c, "page", 8, 1);
    for (int64_t r = 0; r < t->b; r++)
        t->q_len[r] = ref_i64(c, "q_len_per_req");
    attention_add_up(t);
    attention_common_dims(c, t, "head_dim", "k_cache", "v_cache");
    attention_paged_dims(c, t, "indptr", "indices", "last_page_len");
}

static void decode_fill(ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    attention_fill_paged(c, t, "indptr", "last_page_len", "seq_lens");
    attention_fill_table_tails(c, t);
    attention_fill_mask(c, t);
    attention_fill_draft(c, t);
    attention_fill_scales(c);
}

static view paged_view(const ref_call *c) {
    return (view){.q = ref_in(c, "q"),
                  .k = ref_in(c, "k_cache"),
                  .v = ref_in(c, "v_cache"),
                  .k_scale = "k_scale",
                  .v_scale = "v_scale",
                  .h_q = ref_dim(c, "h_q"),
                  .h_kv = ref_dim(c, "h_kv"),
                  .d_qk = ref_dim(c, "d_qk"),
                  .d_vo = ref_dim(c, "d_vo"),
                  .at = paged_place};
}

static void decode_ref(const ref_call *c, int64_t row) {
    const view w = paged_view(c);
    attend_row(c, &w, row);
}

const ref_op ref_batch_decode = {.name = "batch_decode",
                                 .defaults = "page=8",
                                 .keys = "len max page d b h_q h_kv d_qk d_vo spare",
                                 .dims = decode_dims,
                                 .fill = decode_fill,
                                 .rows = rows_of,
                                 .ref = decode_ref,
                                 .reduction = longest_sum,
                                 .slack = logit_slack,
                                 .bytes = bytes_of,
                                 .flops = flops_of};

/* ---- prefill ------------------------------------------------------------------------------ */

static void fill_rows(ref_call *c, const batch *t) {
    for (int64_t r = 0; r <= t->b; r++)
        attention_write_i64(c, "qo_indptr", r, t->q_start[r]);
}

static void prefill_paged_dims(ref_call *c) {
    batch *t = ref_state(c, sizeof *t);
    attention_draw_lengths(c, t);
    attention_draw_queries(c, t);
    t->page_size = ref_count(c, "page", 8, 1);
    attention_add_up(t);
    t->chunk = ref_i64(c, "chunked_attention_size");
    if (ref_given(c, "o_indptr"))
        for (int64_t r = 0; r < t->b; r++)
            t->o_start[r + 1] = t->o_start[r] + t->q_len[r] + r % 3;
    attention_common_dims(c, t, "head_dim_qk", "k_cache", "v_cache");
    attention_paged_dims(c, t, "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len");
    attention_item_dims(c, t);
    ref_fix_dim(c, "b1", t->b + 1);
    ref_fix_dim(c, "n_o", t->o_start[t->b]);
}

static void prefill_paged_fill(ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    fill_rows(c, t);
    attention_fill_paged(c, t, "paged_kv_indptr", "paged_kv_last_page_len", "seq_lens");
    for (int64_t r = 0; r < t->b; r++)
        attention_write_i64(c, "seq_lens_q", r, t->q_len[r]);
    for (int64_t r = 0; r <= t->b; r++)
        attention_write_i64(c, "o_indptr", r, t->o_start[r]);
    attention_fill_table_tails(c, t);
    attention_fill_mask(c, t);
    attention_fill_draft(c, t);
    attention_fill_items(c, t);
    attention_fill_scales(c);
}

#define PREFILL_KEYS "len max q_len qmax d b h_q h_kv d_qk d_vo "

const ref_op ref_batch_prefill_paged = {.name = "batch_prefill_paged",
                                        .defaults = "page=8",
                                        .keys = PREFILL_KEYS "page spare",
                                        .dims = prefill_paged_dims,
                                        .fill = prefill_paged_fill,
                                        .rows = rows_of,
                                        .ref = decode_ref,
                                        .reduction = longest_sum,
                                        .slack = logit_slack,
                                        .bytes = bytes_of,
                                        .flops = flops_of};

/* gap= leaves that many rows of nobody behind each request, in q, k, v and out alike. */
static void prefill_ragged_dims(ref_call *c) {
    batch *t = ref_state(c, sizeof *t);
    const int64_t gap = ref_key(c, "gap", 0);
    t->chunk = ref_i64(c, "chunked_attention_size");
    attention_draw_lengths(c, t);
    attention_draw_queries(c, t);
    attention_add_up(t);
    for (int64_t r = 0; r < t->b; r++) {
        t->q_start[r + 1] = t->q_start[r] + t->q_len[r] + gap;
        t->k_start[r + 1] = t->k_start[r] + t->kv_len[r] + gap;
        t->v_start[r + 1] =
            t->v_start[r] + t->kv_len[r] + (ref_given(c, "v_indptr") ? 2 * gap : gap);
        t->o_start[r + 1] =
            t->o_start[r] + t->q_len[r] + (ref_given(c, "o_indptr") ? 3 * gap : gap);
    }
    if (gap) {
        ref_give(c, "seq_lens");
        ref_give(c, "seq_lens_q");
    }
    attention_common_dims(c, t, "head_dim_qk", "k", "v");
    attention_item_dims(c, t);
    ref_fix_dim(c, "b", t->b);
    ref_fix_dim(c, "b1", t->b + 1);
    ref_fix_dim(c, "n_kv", t->k_start[t->b]);
    ref_fix_dim(c, "n_v", t->v_start[t->b]);
    ref_fix_dim(c, "n_o", t->o_start[t->b]);
}

static void prefill_ragged_fill(ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    fill_rows(c, t);
    for (int64_t r = 0; r <= t->b; r++) {
        attention_write_i64(c, "kv_indptr", r, t->k_start[r]);
        attention_write_i64(c, "v_indptr", r, t->v_start[r]);
        attention_write_i64(c, "o_indptr", r, t->o_start[r]);
    }
    for (int64_t r = 0; r < t->b; r++) {
        attention_write_i64(c, "seq_lens", r, t->kv_len[r]);
        attention_write_i64(c, "seq_lens_q", r, t->q_len[r]);
    }
    attention_fill_packed(c, t, "k", t->k_start);
    attention_fill_packed(c, t, "v", t->v_start);
    attention_fill_mask(c, t);
    attention_fill_items(c, t);
    attention_fill_scales(c);
}

static place packed_place(const ref_call *c, const batch *t, int64_t r, int64_t j, int64_t head) {
    return (place){.k = attention_packed_offset(c, ref_in(c, "k"), t->k_start[r] + j, head),
                   .v = attention_packed_offset(c, ref_in(c, "v"), t->v_start[r] + j, head)};
}

static void prefill_ragged_ref(const ref_call *c, int64_t row) {
    view w = {.q = ref_in(c, "q"),
              .k = ref_in(c, "k"),
              .v = ref_in(c, "v"),
              .k_scale = "k_scale",
              .v_scale = "v_scale",
              .h_q = ref_dim(c, "h_q"),
              .h_kv = ref_dim(c, "h_kv"),
              .d_qk = ref_dim(c, "d_qk"),
              .d_vo = ref_dim(c, "d_vo"),
              .at = packed_place};
    attend_row(c, &w, row);
}

const ref_op ref_batch_prefill_ragged = {.name = "batch_prefill_ragged",
                                         .defaults = "b=3",
                                         .keys = PREFILL_KEYS "gap",
                                         .dims = prefill_ragged_dims,
                                         .fill = prefill_ragged_fill,
                                         .rows = rows_of,
                                         .ref = prefill_ragged_ref,
                                         .reduction = longest_sum,
                                         .slack = logit_slack,
                                         .bytes = bytes_of,
                                         .flops = flops_of};

/* ---- batch_attention ---------------------------------------------------------------------- */

static void batch_attention_dims(ref_call *c) {
    batch *t = ref_state(c, sizeof *t);
    attention_draw_lengths(c, t);
    attention_draw_queries(c, t);
    t->page_size = ref_count(c, "page", 8, 1);
    attention_add_up(t);
    attention_common_dims(c, t, "head_dim_qk", "k_cache", "v_cache");
    attention_paged_dims(c, t, "kv_indptr", "kv_indices", NULL);
    ref_fix_dim(c, "b1", t->b + 1);
}

static void batch_attention_fill(ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    fill_rows(c, t);
    attention_fill_paged(c, t, "kv_indptr", NULL, "kv_len_arr");
    attention_fill_table_tails(c, t);
    attention_fill_mask(c, t);
    attention_fill_scales(c);
}

const ref_op ref_batch_attention = {.name = "batch_attention",
                                    .defaults = "page=8",
                                    .keys = PREFILL_KEYS "page spare",
                                    .dims = batch_attention_dims,
                                    .fill = batch_attention_fill,
                                    .rows = rows_of,
                                    .ref = decode_ref,
                                    .reduction = longest_sum,
                                    .slack = logit_slack,
                                    .bytes = bytes_of,
                                    .flops = flops_of};

/* ---- batch_mla ---------------------------------------------------------------------------- */

static place latent_place(const ref_call *c, const batch *t, int64_t r, int64_t j, int64_t head) {
    const ref_tensor *ckv = ref_in(c, "ckv_cache"), *kpe = ref_in(c, "kpe_cache");
    const ref_tensor *table = ref_in(c, "block_tables"), *list = ref_in(c, "kv_indices");
    const int64_t entry = j / t->page_size, slot = j % t->page_size;
    const int64_t page =
        table ? table->i64[r * table->shape[1] + entry] : list->i64[t->page_start[r] + entry];
    const int64_t at = attention_page_offset(c, ckv, page, slot, head);
    return (place){at, at, kpe ? attention_page_offset(c, kpe, page, slot, head) : 0};
}

/* ckv= and kpe= are the head sizes; h= the heads. */
static void mla_dims(ref_call *c) {
    batch *t = ref_state(c, sizeof *t);
    const int64_t h = ref_key(c, "h", 4), ckv = ref_key(c, "ckv", 128), kpe = ref_key(c, "kpe", 64);
    attention_draw_lengths(c, t);
    attention_draw_queries(c, t);
    t->page_size = ref_count(c, "page", 8, 1);
    attention_add_up(t);
    ref_set_i64(c, "num_heads", h);
    ref_set_i64(c, "head_dim_ckv", ckv);
    ref_set_i64(c, "head_dim_kpe", kpe);
    ref_set_dim(c, "h_q", h);
    ref_set_dim(c, "h_kv", 1);
    ref_set_dim(c, "d_vo", ckv);
    ref_set_dim(c, "d_qk", ckv + kpe);
    ref_set_dim(c, "d_tail", kpe);
    ref_set_dim(c, "n_tiles", ckv / 128);
    attention_scale_dims(c, h, 1);
    if (kpe > 0) {
        ref_give(c, "q_pe");
        ref_give(c, "kpe_cache");
    }
    attention_typed_dims(c, t, "ckv_cache", "kpe_cache");
    attention_paged_dims(c, t, "kv_indptr", "kv_indices", NULL);
    ref_fix_dim(c, "b1", t->b + 1);
}

static void mla_fill(ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    fill_rows(c, t);
    attention_fill_paged(c, t, "kv_indptr", NULL, "kv_len_arr");
    attention_fill_table_tails(c, t);
    attention_fill_mask(c, t);
    attention_fill_scales(c);
}

/* The latents with the scales of their parts, if there are any: a copy that the caller frees. */
static ref_tensor scaled_latents(const ref_call *c) {
    const ref_tensor *scales = ref_in(c, "ckv_scale_arr");
    ref_tensor x = *ref_in(c, "ckv_cache");
    const double *from = x.f64;
    x.f64 = scales ? malloc((size_t)x.elems * sizeof *x.f64) : NULL;
    for (int64_t i = 0; x.f64 && i < x.elems; i++)
        x.f64[i] = from[i] * scales->f64[i / 128];
    return x;
}

static void mla_ref(const ref_call *c, int64_t row) {
    const ref_tensor scaled = scaled_latents(c);
    const ref_tensor *ckv = scaled.f64 ? &scaled : ref_in(c, "ckv_cache");
    const view w = {.q = ref_in(c, "q_nope"),
                    .k = ckv,
                    .v = ckv,
                    .q_tail = ref_in(c, "q_pe"),
                    .k_tail = ref_in(c, "kpe_cache"),
                    .k_scale = "ckv_scale",
                    .v_scale = "ckv_scale",
                    .latent = 1,
                    .h_q = ref_dim(c, "h_q"),
                    .h_kv = 1,
                    .d_qk = ref_dim(c, "d_vo"),
                    .d_vo = ref_dim(c, "d_vo"),
                    .at = latent_place};
    attend_row(c, &w, row);
    free(scaled.f64);
}

/* A latent is read once, as key and as value. */
static double mla_bytes(const ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    const double rows = (double)t->q_start[t->b] * (double)ref_dim(c, "h_q");
    return (double)t->k_start[t->b] * (double)ref_dim(c, "d_qk") * elem_bytes(c, "ckv_cache") +
           rows * (double)(ref_dim(c, "d_qk") + ref_dim(c, "d_vo")) * elem_bytes(c, "q_nope");
}

const ref_op ref_batch_mla = {.name = "batch_mla",
                              .defaults = "sm_scale=0.1",
                              .keys = "len max q_len qmax b h ckv kpe page spare",
                              .dims = mla_dims,
                              .fill = mla_fill,
                              .rows = rows_of,
                              .ref = mla_ref,
                              .reduction = longest_sum,
                              .slack = logit_slack,
                              .bytes = mla_bytes,
                              .flops = flops_of};

/* ---- single requests ---------------------------------------------------------------------- */

static void single_dims(ref_call *c, int64_t rows, int causal) {
    batch *t = ref_state(c, sizeof *t);
    t->b = 1;
    t->kv_len[0] = ref_has_dim(c, "s") ? ref_dim(c, "s") : ref_key(c, "len", 100);
    t->q_len[0] = rows;
    t->causal = causal;
    attention_add_up(t);
    attention_head_dims(c);
    ref_set_dim(c, "s", t->kv_len[0]);
}

static void single_decode_dims(ref_call *c) {
    single_dims(c, 1, 0);
}

static void single_prefill_dims(ref_call *c) {
    const int64_t rows = ref_has_dim(c, "n") ? ref_dim(c, "n") : ref_key(c, "n", 20);
    single_dims(c, rows, ref_i64(c, "causal") != 0);
    ref_set_dim(c, "n", rows);
}

static void single_fill(ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    attention_fill_packed(c, t, "k", t->k_start);
    attention_fill_packed(c, t, "v", t->v_start);
    attention_fill_mask(c, t);
    attention_fill_scales(c);
}

static int64_t single_rows(const ref_call *c) {
    const batch *t = ref_state(c, sizeof *t);
    return t->q_len[0] * ref_dim(c, "h_q");
}

const ref_op ref_single_decode_with_kv_cache = {.name = "single_decode_with_kv_cache",
                                                .defaults = "len=100",
                                                .keys = "len d h_q h_kv d_qk d_vo",
                                                .dims = single_decode_dims,
                                                .fill = single_fill,
                                                .rows = single_rows,
                                                .ref = prefill_ragged_ref,
                                                .reduction = longest_sum,
                                                .slack = logit_slack,
                                                .bytes = bytes_of,
                                                .flops = flops_of};

const ref_op ref_single_prefill_with_kv_cache = {.name = "single_prefill_with_kv_cache",
                                                 .defaults = "len=100",
                                                 .keys = "len d h_q h_kv d_qk d_vo",
                                                 .dims = single_prefill_dims,
                                                 .fill = single_fill,
                                                 .rows = single_rows,
                                                 .ref = prefill_ragged_ref,
                                                 .reduction = longest_sum,
                                                 .slack = logit_slack,
                                                 .bytes = bytes_of,
                                                 .flops = flops_of};
