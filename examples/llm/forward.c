// SPDX-License-Identifier: Apache-2.0
//
// The forward pass of a step on Bolide's operators: activations are f32, weights stay as they are
// in the file, keys and values go into pages.

#include <string.h>

#include "call.h"
#include "engine_internal.h"

enum { PRODUCT_F32 = 0, PRODUCT_INT16 = 2 }; // of mm_block_quant's compute

// The default mode multiplies blocks with activations of 16 bits. With one row, memory is the limit
// and they cost what 8 bits cost, whose rounding would pass through 30 layers: mean KL of
// SmolLM2-135M against float64 is 0.003 with 8 bits, in equal parts from every kind of weight, and
// below 0.00001 with 16. Weights that are not in blocks are multiplied in f32 in every mode.
static int64_t arithmetic(const llm_engine *e, const llm_weight *w) {
    const bool blocks = w->format == BOLIDE_WEIGHT_Q4_0 || w->format == BOLIDE_WEIGHT_Q4_1 ||
                        w->format == BOLIDE_WEIGHT_Q8_0;
    return blocks && !e->settings.exact ? PRODUCT_INT16 : PRODUCT_F32;
}

// out = x weight^T for `rows` rows; out may be a part of wider rows.
static bool product(llm_engine *e, const llm_weight *w, const float *x, int64_t rows, float *out,
                    int64_t out_stride, llm_error *error) {
    view in = view_2d(x, BOLIDE_F32, rows, w->columns, w->columns);
    view weight = view_2d(w->data, BOLIDE_U8, w->rows, w->row_bytes, w->row_bytes);
    view result = view_2d(out, BOLIDE_F32, rows, w->rows, out_stride);
    bolide_mm_block_quant_args a;
    if (!llm_ok(bolide_args_init("mm_block_quant", &a, sizeof a), error))
        return false;
    a.input = view_ready(&in);
    a.weight = view_ready(&weight);
    a.out = view_ready(&result);
    a.format = w->format;
    a.compute = arithmetic(e, w);
    bolide_sizes sizes;
    if (!llm_ok(bolide_op_workspace(bolide_op_find("mm_block_quant"), e->ctx, &a, &sizes), error))
        return false;
    void *scratch = llm_need(&e->scratch, sizes.device_bytes, 1, error);
    if (!scratch)
        return false;
    const bolide_workspace workspace = {.device = scratch,
                                        .device_bytes = (int64_t)e->scratch.bytes};
    a.workspace = &workspace;
    return llm_ok(bolide_mm_block_quant(e->ctx, &a, NULL), error);
}

static bool norm(llm_engine *e, const float *x, const float *weight, int64_t rows, float *out,
                 llm_error *error) {
    const int64_t d = e->model->d;
    view in = view_2d(x, BOLIDE_F32, rows, d, d), w = view_1d(weight, BOLIDE_F32, d);
    view result = view_2d(out, BOLIDE_F32, rows, d, d);
    bolide_rmsnorm_args a;
    if (!llm_ok(bolide_args_init("rmsnorm", &a, sizeof a), error))
        return false;
    a.input = view_ready(&in);
    a.weight = view_ready(&w);
    a.out = view_ready(&result);
    a.eps = e->model->eps;
    return llm_ok(bolide_rmsnorm(e->ctx, &a, NULL), error);
}

// Turns q and k in place.  llama files have their heads permuted for neighbouring pairs.
static bool turn(llm_engine *e, float *qkv, int64_t width, llm_error *error) {
    const llm_model *m = e->model;
    view q = view_heads(qkv, BOLIDE_F32, e->rows, m->h_q, m->head_dim, width);
    view k =
        view_heads(qkv + m->h_q * m->head_dim, BOLIDE_F32, e->rows, m->h_kv, m->head_dim, width);
    view positions = view_1d(e->positions.data, BOLIDE_I32, e->rows);
    bolide_apply_rope_pos_ids_args a;
    if (!llm_ok(bolide_args_init("apply_rope_pos_ids", &a, sizeof a), error))
        return false;
    a.q = a.q_rope_out = view_ready(&q);
    a.k = a.k_rope_out = view_ready(&k);
    a.pos_ids = view_ready(&positions);
    a.interleave = 1;
    a.rope_theta = m->rope_theta;
    return llm_ok(bolide_apply_rope_pos_ids(e->ctx, &a, NULL), error);
}

static view cache_of(const llm_engine *e, unsigned char *pool, int64_t layer) {
    const llm_model *m = e->model;
    const int64_t elems = e->pages * e->settings.page_size * m->h_kv * m->head_dim;
    const int64_t bytes = elems * (e->kv_dtype == BOLIDE_F32 ? 4 : 2);
    return view_4d(pool + layer * bytes, e->kv_dtype, e->pages, e->settings.page_size, m->h_kv,
                   m->head_dim);
}

static bool append(llm_engine *e, const float *qkv, int64_t width, int64_t layer, int64_t requests,
                   llm_error *error) {
    const llm_model *m = e->model;
    const float *k = qkv + m->h_q * m->head_dim;
    view key = view_heads(k, BOLIDE_F32, e->rows, m->h_kv, m->head_dim, width);
    view value =
        view_heads(k + m->h_kv * m->head_dim, BOLIDE_F32, e->rows, m->h_kv, m->head_dim, width);
    view k_cache = cache_of(e, e->k, layer), v_cache = cache_of(e, e->v, layer);
    view batch = view_1d(e->batch_indices.data, BOLIDE_I32, e->rows);
    view positions = view_1d(e->positions.data, BOLIDE_I32, e->rows);
    const int32_t *indptr = e->kv_indptr.data;
    view indices = view_1d(e->kv_indices.data, BOLIDE_I32, indptr[requests]);
    view ranges = view_1d(indptr, BOLIDE_I32, requests + 1);
    view last = view_1d(e->last_page_len.data, BOLIDE_I32, requests);
    bolide_append_paged_kv_cache_args a;
    if (!llm_ok(bolide_args_init("append_paged_kv_cache", &a, sizeof a), error))
        return false;
    a.append_key = view_ready(&key);
    a.append_value = view_ready(&value);
    a.batch_indices = view_ready(&batch);
    a.positions = view_ready(&positions);
    a.k_cache = view_ready(&k_cache);
    a.v_cache = view_ready(&v_cache);
    a.kv_indices = view_ready(&indices);
    a.kv_indptr = view_ready(&ranges);
    a.kv_last_page_len = view_ready(&last);
    return llm_ok(bolide_append_paged_kv_cache(e->ctx, &a, NULL), error);
}

// The workspace that plan and runs of the step share.
static bolide_workspace workspace_of(const llm_engine *e) {
    return (bolide_workspace){.device = e->scratch.data,
                              .device_bytes = (int64_t)e->scratch.bytes,
                              .device_int = e->plan_live.data,
                              .device_int_bytes = (int64_t)e->plan_live.bytes};
}

static bool plan(llm_engine *e, int64_t requests, llm_error *error) {
    const llm_model *m = e->model;
    view rows = view_1d(e->qo_indptr.data, BOLIDE_I32, requests + 1);
    view ranges = view_1d(e->kv_indptr.data, BOLIDE_I32, requests + 1);
    view last = view_1d(e->last_page_len.data, BOLIDE_I32, requests);
    bolide_batch_prefill_paged_plan_args a;
    if (!llm_ok(bolide_args_init("batch_prefill_paged_plan", &a, sizeof a), error))
        return false;
    a.qo_indptr = view_ready(&rows);
    a.paged_kv_indptr = view_ready(&ranges);
    a.paged_kv_last_page_len = view_ready(&last);
    a.num_qo_heads = m->h_q;
    a.num_kv_heads = m->h_kv;
    a.head_dim_qk = m->head_dim;
    a.page_size = e->settings.page_size;
    a.q_data_type = BOLIDE_F32;
    a.kv_data_type = e->kv_dtype;
    a.causal = 1;
    bolide_sizes sizes;
    if (!llm_ok(bolide_op_workspace(bolide_op_find("batch_prefill_paged"), e->ctx, &a, &sizes),
                error))
        return false;
    bolide_plan *p = llm_need(&e->plan, sizes.plan_bytes, 1, error);
    if (!p || !llm_need(&e->scratch, sizes.device_bytes, 1, error) ||
        !llm_need(&e->plan_live, sizes.device_int_bytes, 1, error))
        return false;
    p->size = (int64_t)e->plan.bytes;
    const bolide_workspace workspace = workspace_of(e);
    a.workspace = &workspace;
    a.plan = p;
    return llm_ok(bolide_batch_prefill_paged_plan(e->ctx, &a, NULL), error);
}

static bool attend(llm_engine *e, const float *qkv, int64_t width, int64_t layer, float *out,
                   int64_t requests, llm_error *error) {
    const llm_model *m = e->model;
    view q = view_heads(qkv, BOLIDE_F32, e->rows, m->h_q, m->head_dim, width);
    view k_cache = cache_of(e, e->k, layer), v_cache = cache_of(e, e->v, layer);
    const int32_t *indptr = e->kv_indptr.data;
    view indices = view_1d(e->kv_indices.data, BOLIDE_I32, indptr[requests]);
    view result = view_heads(out, BOLIDE_F32, e->rows, m->h_q, m->head_dim, m->h_q * m->head_dim);
    bolide_batch_prefill_paged_run_args a;
    if (!llm_ok(bolide_args_init("batch_prefill_paged_run", &a, sizeof a), error))
        return false;
    const bolide_workspace workspace = workspace_of(e);
    a.q = view_ready(&q);
    a.k_cache = view_ready(&k_cache);
    a.v_cache = view_ready(&v_cache);
    a.paged_kv_indices = view_ready(&indices);
    a.out = view_ready(&result);
    a.workspace = &workspace;
    a.plan = e->plan.data;
    return llm_ok(bolide_batch_prefill_paged_run(e->ctx, &a, NULL), error);
}

static void add(float *x, const float *y, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        x[i] += y[i];
}

static bool feed_forward(llm_engine *e, const llm_layer *l, llm_error *error) {
    const int64_t ff = e->model->d_ff, d = e->model->d;
    float *pair = e->ffn.data, *gated = e->gated.data, *normed = e->normed.data;
    if (!norm(e, e->x.data, l->ffn_norm, e->rows, normed, error) ||
        !product(e, &l->gate, normed, e->rows, pair, 2 * ff, error) ||
        !product(e, &l->up, normed, e->rows, pair + ff, 2 * ff, error))
        return false;
    view in = view_2d(pair, BOLIDE_F32, e->rows, 2 * ff, 2 * ff);
    view out = view_2d(gated, BOLIDE_F32, e->rows, ff, ff);
    bolide_silu_and_mul_args a;
    if (!llm_ok(bolide_args_init("silu_and_mul", &a, sizeof a), error))
        return false;
    a.input = view_ready(&in);
    a.out = view_ready(&out);
    if (!llm_ok(bolide_silu_and_mul(e->ctx, &a, NULL), error) ||
        !product(e, &l->down, gated, e->rows, normed, d, error))
        return false;
    add(e->x.data, normed, e->rows * d);
    return true;
}

static bool layer(llm_engine *e, int64_t index, int64_t requests, llm_error *error) {
    const llm_model *m = e->model;
    const llm_layer *l = &m->layers[index];
    const int64_t q = m->h_q * m->head_dim, kv = m->h_kv * m->head_dim, width = q + 2 * kv;
    float *qkv = e->qkv.data, *normed = e->normed.data, *attention = e->attention.data;
    if (!norm(e, e->x.data, l->attention_norm, e->rows, normed, error) ||
        !product(e, &l->q, normed, e->rows, qkv, width, error) ||
        !product(e, &l->k, normed, e->rows, qkv + q, width, error) ||
        !product(e, &l->v, normed, e->rows, qkv + q + kv, width, error) ||
        !turn(e, qkv, width, error) || !append(e, qkv, width, index, requests, error) ||
        !attend(e, qkv, width, index, attention, requests, error) ||
        !product(e, &l->o, attention, e->rows, normed, m->d, error))
        return false;
    add(e->x.data, normed, e->rows * m->d);
    return feed_forward(e, l, error);
}

static bool make_room(llm_engine *e, llm_error *error) {
    const llm_model *m = e->model;
    const int64_t q = m->h_q * m->head_dim, n = e->rows;
    const int64_t width = q + 2 * m->h_kv * m->head_dim;
    return llm_need(&e->x, n * m->d, sizeof(float), error) &&
           llm_need(&e->normed, n * m->d, sizeof(float), error) &&
           llm_need(&e->qkv, n * width, sizeof(float), error) &&
           llm_need(&e->attention, n * q, sizeof(float), error) &&
           llm_need(&e->ffn, n * 2 * m->d_ff, sizeof(float), error) &&
           llm_need(&e->gated, n * m->d_ff, sizeof(float), error);
}

// Takes the last row of each request that has no prompt left, or all rows of the step, for their
// logits.
static bool take_rows(llm_engine *e, llm_error *error) {
    const int64_t d = e->model->d;
    const int32_t *indptr = e->qo_indptr.data;
    const bool all = e->settings.all_logits;
    float *rows = llm_need(&e->last, all ? e->rows * d : e->n_requests * d, sizeof(float), error);
    e->logits_rows = 0;
    for (int64_t r = 0; rows && r < e->n_requests; r++) {
        llm_request *request = &e->requests[r];
        request->logits_row = -1;
        if (request->done + request->chunk < request->tokens.count || request->max_new == 0)
            continue;
        const int64_t begin = all ? indptr[r] : indptr[r + 1] - 1, count = indptr[r + 1] - begin;
        memcpy(rows + e->logits_rows * d, (float *)e->x.data + begin * d,
               (size_t)(count * d) * sizeof(float));
        e->logits_rows += count;
        request->logits_row = e->logits_rows - 1;
    }
    return rows != NULL;
}

static bool make_logits(llm_engine *e, llm_error *error) {
    if (!take_rows(e, error))
        return false;
    if (e->logits_rows == 0)
        return true;
    float *rows = e->last.data;
    float *logits = llm_need(&e->logits, e->logits_rows * e->model->vocab, sizeof(float), error);
    return logits && norm(e, rows, e->model->output_norm, e->logits_rows, rows, error) &&
           product(e, &e->model->output, rows, e->logits_rows, logits, e->model->vocab, error);
}

bool llm_forward(llm_engine *e, llm_error *error) {
    const int32_t *ids = e->ids.data;
    if (!make_room(e, error) || !plan(e, e->n_requests, error))
        return false;
    for (int64_t i = 0; i < e->rows; i++)
        llm_weight_row(&e->model->embedding, ids[i], (float *)e->x.data + i * e->model->d);
    for (int64_t i = 0; i < e->model->n_layers; i++) {
        if (!layer(e, i, e->n_requests, error))
            return false;
    }
    e->rows_run += e->rows;
    return make_logits(e, error);
}
