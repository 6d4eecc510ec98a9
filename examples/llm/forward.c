// SPDX-License-Identifier: Apache-2.0
//
// The forward pass of a step on Bolide's operators, the same calls on the CPU and on a GPU:
// activations are f32, weights stay as they are in the file, keys and values go into pages.

#include "call.h"
#include "engine_internal.h"

enum { PRODUCT_F32 = 0, PRODUCT_INT8 = 1, PRODUCT_INT16 = 2 }; // of mm_block_quant's compute

// The default mode multiplies blocks with activations of 16 bits. With one row, memory is the limit
// and they cost what 8 bits cost, whose rounding would pass through 30 layers: mean KL of
// SmolLM2-135M against float64 is 0.003 with 8 bits, in equal parts from every kind of weight, and
// below 0.00001 with 16. Weights that are not in blocks are multiplied in f32 in every mode.
static int64_t arithmetic(const llm_engine *e, const llm_weight *w) {
    const bool blocks = w->format == BOLIDE_WEIGHT_Q4_0 || w->format == BOLIDE_WEIGHT_Q4_1 ||
                        w->format == BOLIDE_WEIGHT_Q8_0;
    static const int64_t kinds[] = {
        [LLM_INT16] = PRODUCT_INT16, [LLM_INT8] = PRODUCT_INT8, [LLM_F32] = PRODUCT_F32};
    return blocks && !e->settings.exact ? kinds[e->settings.compute] : PRODUCT_F32;
}

// out = x weight^T for `rows` rows; out may be a part of wider rows.
static bool product(llm_engine *e, const llm_weight *w, const float *x, int64_t rows, float *out,
                    int64_t out_stride, llm_error *error) {
    const bolide_device at = e->device.place;
    view in = view_2d(at, x, BOLIDE_F32, rows, w->columns, w->columns);
    view weight =
        view_2d(at, llm_weight_at(e, w->data), BOLIDE_U8, w->rows, w->row_bytes, w->row_bytes);
    view result = view_2d(at, out, BOLIDE_F32, rows, w->rows, out_stride);
    bolide_mm_block_quant_args a;
    if (!llm_ok(bolide_args_init("mm_block_quant", &a, sizeof a), error))
        return false;
    a.input = view_ready(&in);
    a.weight = view_ready(&weight);
    a.out = view_ready(&result);
    a.format = w->format;
    a.compute = arithmetic(e, w);
    bolide_sizes sizes;
    if (!llm_ok(bolide_op_workspace(bolide_op_find("mm_block_quant"), e->device.ctx, &a, &sizes),
                error))
        return false;
    void *scratch = llm_need(e, &e->scratch, sizes.device_bytes, 1, error);
    if (!scratch)
        return false;
    const bolide_workspace workspace = {.device = scratch,
                                        .device_bytes = (int64_t)e->scratch.bytes};
    a.workspace = &workspace;
    return llm_ok(bolide_mm_block_quant(e->device.ctx, &a, e->device.stream), error);
}

static bool norm(llm_engine *e, const float *x, const float *weight, float *out, llm_error *error) {
    const int64_t d = e->model->d, rows = e->step.rows;
    const bolide_device at = e->device.place;
    view in = view_2d(at, x, BOLIDE_F32, rows, d, d);
    view w = view_1d(at, llm_weight_at(e, weight), BOLIDE_F32, d);
    view result = view_2d(at, out, BOLIDE_F32, rows, d, d);
    bolide_rmsnorm_args a;
    if (!llm_ok(bolide_args_init("rmsnorm", &a, sizeof a), error))
        return false;
    a.input = view_ready(&in);
    a.weight = view_ready(&w);
    a.out = view_ready(&result);
    a.eps = e->model->eps;
    return llm_ok(bolide_rmsnorm(e->device.ctx, &a, e->device.stream), error);
}

// x += normed; normed = norm of x.
static bool add_and_norm(llm_engine *e, const float *weight, llm_error *error) {
    const int64_t d = e->model->d, rows = e->step.rows;
    const bolide_device at = e->device.place;
    view in = view_2d(at, e->normed.data, BOLIDE_F32, rows, d, d);
    view sum = view_2d(at, e->x.data, BOLIDE_F32, rows, d, d);
    view w = view_1d(at, llm_weight_at(e, weight), BOLIDE_F32, d);
    bolide_fused_add_rmsnorm_args a;
    if (!llm_ok(bolide_args_init("fused_add_rmsnorm", &a, sizeof a), error))
        return false;
    a.input = view_ready(&in);
    a.residual = view_ready(&sum);
    a.weight = view_ready(&w);
    a.eps = e->model->eps;
    return llm_ok(bolide_fused_add_rmsnorm(e->device.ctx, &a, e->device.stream), error);
}

// Turns q and k in place.  llama files have their heads permuted for neighbouring pairs.
static bool turn(llm_engine *e, float *qkv, int64_t width, llm_error *error) {
    const llm_model *m = e->model;
    const int64_t rows = e->step.rows;
    const bolide_device at = e->device.place;
    const float *second = qkv + m->h_q * m->head_dim;
    view q = view_heads(at, qkv, BOLIDE_F32, rows, m->h_q, m->head_dim, width);
    view k = view_heads(at, second, BOLIDE_F32, rows, m->h_kv, m->head_dim, width);
    view positions = view_1d(at, e->step.device.positions, BOLIDE_I32, rows);
    bolide_apply_rope_pos_ids_args a;
    if (!llm_ok(bolide_args_init("apply_rope_pos_ids", &a, sizeof a), error))
        return false;
    a.q = a.q_rope_out = view_ready(&q);
    a.k = a.k_rope_out = view_ready(&k);
    a.pos_ids = view_ready(&positions);
    a.interleave = 1;
    a.rope_theta = m->rope_theta;
    return llm_ok(bolide_apply_rope_pos_ids(e->device.ctx, &a, e->device.stream), error);
}

static view cache_of(const llm_engine *e, unsigned char *pool, int64_t layer) {
    const llm_model *m = e->model;
    const int64_t elems = e->pages * e->settings.page_size * m->h_kv * m->head_dim;
    const int64_t bytes = elems * (e->kv_dtype == BOLIDE_F32 ? 4 : 2);
    return view_4d(e->device.place, pool + layer * bytes, e->kv_dtype, e->pages,
                   e->settings.page_size, m->h_kv, m->head_dim);
}

static bool append(llm_engine *e, const float *qkv, int64_t width, int64_t layer,
                   llm_error *error) {
    const llm_model *m = e->model;
    const llm_step *s = &e->step;
    const bolide_device at = e->device.place;
    const float *k = qkv + m->h_q * m->head_dim, *v = k + m->h_kv * m->head_dim;
    view key = view_heads(at, k, BOLIDE_F32, s->rows, m->h_kv, m->head_dim, width);
    view value = view_heads(at, v, BOLIDE_F32, s->rows, m->h_kv, m->head_dim, width);
    view k_cache = cache_of(e, e->k, layer), v_cache = cache_of(e, e->v, layer);
    view batch = view_1d(at, s->device.batch_indices, BOLIDE_I32, s->rows);
    view positions = view_1d(at, s->device.positions, BOLIDE_I32, s->rows);
    view indices = view_1d(at, s->device.kv_indices, BOLIDE_I32, s->entries);
    view ranges = view_1d(at, s->device.kv_indptr, BOLIDE_I32, s->batch + 1);
    view last = view_1d(at, s->device.last_page_len, BOLIDE_I32, s->batch);
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
    return llm_ok(bolide_append_paged_kv_cache(e->device.ctx, &a, e->device.stream), error);
}

// The workspace that plan and runs of the step share.
static bolide_workspace workspace_of(const llm_engine *e) {
    return (bolide_workspace){.device = e->scratch.data,
                              .device_bytes = (int64_t)e->scratch.bytes,
                              .device_int = e->plan_live.data,
                              .device_int_bytes = (int64_t)e->plan_live.bytes,
                              .pinned = e->plan_staging.data,
                              .pinned_bytes = (int64_t)e->plan_staging.bytes};
}

// Memory that moves makes a plan in it void, so that the next one starts afresh.
static bolide_plan *plan_memory(llm_engine *e, const bolide_sizes *sizes, llm_error *error) {
    const void *before = e->plan_staging.data;
    const size_t bytes = e->plan.bytes;
    bolide_plan *p = llm_need_host(e, &e->plan, sizes->plan_bytes, 1, error);
    if (!p || !llm_need_host(e, &e->plan_staging, sizes->pinned_bytes, 1, error) ||
        !llm_need(e, &e->scratch, sizes->device_bytes, 1, error) ||
        !llm_need(e, &e->plan_live, sizes->device_int_bytes, 1, error))
        return NULL;
    if (e->plan.bytes != bytes || e->plan_staging.data != before)
        *p = (bolide_plan){0};
    p->size = (int64_t)e->plan.bytes;
    return p;
}

bool llm_plan(llm_engine *e, llm_error *error) {
    const llm_model *m = e->model;
    const llm_step *s = &e->step;
    view rows = view_1d(on_host, e->qo_indptr.data, BOLIDE_I32, s->batch + 1);
    view ranges = view_1d(on_host, s->host.kv_indptr, BOLIDE_I32, s->batch + 1);
    view last = view_1d(on_host, s->host.last_page_len, BOLIDE_I32, s->batch);
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
    /* What a graph keeps of the plan depends on these only, not on lengths. */
    a.max_batch_size = s->batch;
    a.max_num_rows = s->rows;
    bolide_sizes sizes;
    if (!llm_ok(
            bolide_op_workspace(bolide_op_find("batch_prefill_paged"), e->device.ctx, &a, &sizes),
            error))
        return false;
    a.plan = plan_memory(e, &sizes, error);
    const bolide_workspace workspace = workspace_of(e);
    a.workspace = &workspace;
    return a.plan &&
           llm_ok(bolide_batch_prefill_paged_plan(e->device.ctx, &a, e->device.stream), error);
}

static bool attend(llm_engine *e, const float *qkv, int64_t width, int64_t layer, float *out,
                   llm_error *error) {
    const llm_model *m = e->model;
    const llm_step *s = &e->step;
    const bolide_device at = e->device.place;
    view q = view_heads(at, qkv, BOLIDE_F32, s->rows, m->h_q, m->head_dim, width);
    view k_cache = cache_of(e, e->k, layer), v_cache = cache_of(e, e->v, layer);
    view indices = view_1d(at, s->device.kv_indices, BOLIDE_I32, s->entries);
    view result =
        view_heads(at, out, BOLIDE_F32, s->rows, m->h_q, m->head_dim, m->h_q * m->head_dim);
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
    return llm_ok(bolide_batch_prefill_paged_run(e->device.ctx, &a, e->device.stream), error);
}

static bool feed_forward(llm_engine *e, const llm_layer *l, llm_error *error) {
    const int64_t ff = e->model->d_ff, rows = e->step.rows;
    const bolide_device at = e->device.place;
    float *pair = e->ffn.data, *gated = e->gated.data, *normed = e->normed.data;
    if (!product(e, &l->gate, normed, rows, pair, 2 * ff, error) ||
        !product(e, &l->up, normed, rows, pair + ff, 2 * ff, error))
        return false;
    view in = view_2d(at, pair, BOLIDE_F32, rows, 2 * ff, 2 * ff);
    view out = view_2d(at, gated, BOLIDE_F32, rows, ff, ff);
    bolide_silu_and_mul_args a;
    if (!llm_ok(bolide_args_init("silu_and_mul", &a, sizeof a), error))
        return false;
    a.input = view_ready(&in);
    a.out = view_ready(&out);
    return llm_ok(bolide_silu_and_mul(e->device.ctx, &a, e->device.stream), error) &&
           product(e, &l->down, gated, rows, normed, e->model->d, error);
}

// From the normed input to what the next norm adds to x, in the place of the input.
static bool layer(llm_engine *e, int64_t index, llm_error *error) {
    const llm_model *m = e->model;
    const llm_layer *l = &m->layers[index];
    const int64_t q = m->h_q * m->head_dim, kv = m->h_kv * m->head_dim, width = q + 2 * kv;
    const int64_t rows = e->step.rows;
    float *qkv = e->qkv.data, *normed = e->normed.data, *attention = e->attention.data;
    return product(e, &l->q, normed, rows, qkv, width, error) &&
           product(e, &l->k, normed, rows, qkv + q, width, error) &&
           product(e, &l->v, normed, rows, qkv + q + kv, width, error) &&
           turn(e, qkv, width, error) && append(e, qkv, width, index, error) &&
           attend(e, qkv, width, index, attention, error) &&
           product(e, &l->o, attention, rows, normed, m->d, error) &&
           add_and_norm(e, l->ffn_norm, error) && feed_forward(e, l, error);
}

bool llm_make_room(llm_engine *e, llm_error *error) {
    const llm_model *m = e->model;
    const int64_t q = m->h_q * m->head_dim, n = e->step.rows;
    const int64_t width = q + 2 * m->h_kv * m->head_dim;
    return llm_need(e, &e->x, n * m->d, sizeof(float), error) &&
           llm_need(e, &e->normed, n * m->d, sizeof(float), error) &&
           llm_need(e, &e->qkv, n * width, sizeof(float), error) &&
           llm_need(e, &e->attention, n * q, sizeof(float), error) &&
           llm_need(e, &e->ffn, n * 2 * m->d_ff, sizeof(float), error) &&
           llm_need(e, &e->gated, n * m->d_ff, sizeof(float), error);
}

// The rows whose logits are wanted: all of a decode step as they lie, else the last row of each
// request that has no prompt left, or all its rows.
static const float *wanted_rows(llm_engine *e, llm_error *error) {
    const int64_t d = e->model->d;
    const int32_t *indptr = e->qo_indptr.data;
    const float *normed = e->normed.data;
    if (e->step.decode)
        return normed;
    float *rows = llm_need(e, &e->last, e->step.logits_rows * d, sizeof(float), error);
    int64_t at = 0;
    for (int64_t r = 0; rows && r < e->n_requests; r++) {
        const int64_t count = e->requests[r].logits_row + 1 - at;
        if (e->requests[r].logits_row < 0)
            continue;
        if (!llm_device_move(&e->device, rows + at * d, normed + (indptr[r + 1] - count) * d,
                             (size_t)(count * d) * sizeof(float), error))
            return NULL;
        at += count;
    }
    return rows;
}

static bool make_logits(llm_engine *e, llm_error *error) {
    const int64_t rows = e->step.logits_rows, vocab = e->model->vocab;
    if (rows == 0)
        return true;
    const float *from = wanted_rows(e, error);
    float *logits = llm_need(e, &e->logits, rows * vocab, sizeof(float), error);
    return from && logits && product(e, &e->model->output, from, rows, logits, vocab, error);
}

bool llm_forward(llm_engine *e, llm_error *error) {
    const llm_model *m = e->model;
    if (!norm(e, e->x.data, m->layers[0].attention_norm, e->normed.data, error))
        return false;
    for (int64_t i = 0; i < m->n_layers; i++) {
        const float *next = i + 1 < m->n_layers ? m->layers[i + 1].attention_norm : m->output_norm;
        if (!layer(e, i, error) || !add_and_norm(e, next, error))
            return false;
    }
    return make_logits(e, error);
}
