// SPDX-License-Identifier: Apache-2.0
//
// A run of any planned attention operator: what its rows cannot say, the parameter struct, and the
// two loops of the CPU backend.

#include "ops/attention/attention_internal.h"

#include <bolide/attention.h>
#include <math.h>

#include "core/context.h"
#include "cpu/microkernel.h"

/* ---- checks ------------------------------------------------------------------------------- */

/* A scale has one value or one a head. */
bolide_status bolide__attention_check_scale(const bolide__call *call, const char *name,
                                            const bolide_tensor *t, int64_t heads) {
    if (!t || bolide__numel(t) == 1 || bolide__numel(t) == heads)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "shape",
                           heads == 1 ? "1 element"
                                      : bolide__text("1 or %lld elements", (long long)heads),
                           "%lld", (long long)bolide__numel(t));
}

static bolide_status check_count(const bolide__call *call, const char *name, const bolide_tensor *t,
                                 int64_t least, const char *what) {
    if (!t || t->shape[0] >= least)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "shape",
                           bolide__text("at least [%lld]: %s", (long long)least, what), "[%lld]",
                           (long long)t->shape[0]);
}

/* k or v without pages: as many tokens as the plan's lengths reach. */
static bolide_status check_tokens(const bolide__call *call, const char *name,
                                  const bolide_tensor *t, int64_t layout, int64_t least) {
    const int64_t tokens = t->shape[layout == BOLIDE_HND ? 1 : 0];
    if (tokens >= least)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "shape",
                           bolide__text("at least %lld tokens, as planned", (long long)least),
                           "%lld", (long long)tokens);
}

static bolide_status check_mask(const bolide__call *call, const bolide__attention_run_args *a,
                                const bolide__attention_plan *plan) {
    const bool masks = a->custom_mask || a->packed_custom_mask;
    if (masks && !plan->frozen.use_custom_mask)
        return BOLIDE_FAIL_ARG(call, a->custom_mask ? "custom_mask" : "packed_custom_mask",
                               "pointer", "NULL, as planned with use_custom_mask = 0", "a mask");
    if (!masks && plan->frozen.use_custom_mask)
        return BOLIDE_FAIL_ARG(call, "custom_mask", "pointer",
                               "this or packed_custom_mask, as planned with use_custom_mask = 1",
                               "neither");
    BOLIDE_TRY(check_count(call, "custom_mask", a->custom_mask, plan->now.mask_elems,
                           "q_len * kv_len of every request"));
    return check_count(call, "packed_custom_mask", a->packed_custom_mask, plan->now.mask_bytes,
                       "q_len * kv_len bits of every request, in whole bytes");
}

/* Bits over query tokens are a mask of their own. */
static bolide_status check_draft(const bolide__call *call, const bolide__attention_run_args *a,
                                 const bolide__attention_plan *plan) {
    const bolide_tensor *t = a->draft_mask;
    if (!t)
        return BOLIDE_OK;
    if (plan->frozen.use_custom_mask || plan->frozen.flags & BOLIDE__ATTN_CAUSAL)
        return BOLIDE_FAIL_ARG(
            call, "draft_mask", "pointer",
            bolide__text("NULL, as planned with %s = 1",
                         plan->frozen.use_custom_mask ? "use_custom_mask" : "causal"),
            "a tensor");
    const int64_t bits = t->shape[1] * 8 * bolide__elem_bytes(t);
    if (bits < plan->now.most_rows)
        return BOLIDE_FAIL_ARG(
            call, "draft_mask", "shape",
            bolide__text("rows of at least %lld bits, the most query tokens of a request",
                         (long long)plan->now.most_rows),
            "%lld bits", (long long)bits);
    return BOLIDE_OK;
}

static bolide_status check_v_table(const bolide__call *call, const bolide__attention_run_args *a) {
    if (!a->v_block_tables || a->block_tables)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, "v_block_tables", "pointer", "NULL without block_tables",
                           "a tensor");
}

static bolide_status check_pages(const bolide__call *call, const bolide__attention_run_args *a,
                                 const bolide__attention_plan *plan) {
    if (!plan->frozen.paged)
        return BOLIDE_OK;
    if (!a->indices == !a->block_tables)
        return BOLIDE_FAIL_ARG(call, a->indices_name, "pointer", "this or block_tables",
                               a->indices ? "both" : "neither");
    if (a->indices && !plan->frozen.use_indptr)
        return BOLIDE_FAIL_ARG(call, a->indices_name, "pointer",
                               "NULL with block_tables, as planned without indptr", "a list");
    return check_count(call, a->indices_name, a->indices, plan->now.index_count,
                       "the last indptr of the plan");
}

static bolide_status check_items(const bolide__call *call, const bolide__attention_run_args *a,
                                 const bolide__attention_plan *plan) {
    if (!a->prefix_len != !a->token_pos)
        return BOLIDE_FAIL_ARG(call, a->prefix_len ? "token_pos_in_items_ptr" : "prefix_len_ptr",
                               "pointer", "both prefix_len_ptr and token_pos_in_items_ptr, or none",
                               "NULL");
    if (a->prefix_len && plan->frozen.use_custom_mask)
        return BOLIDE_FAIL_ARG(call, "prefix_len_ptr", "pointer",
                               "NULL, as planned with use_custom_mask = 1", "a tensor");
    if (a->prefix_len && !(plan->frozen.flags & BOLIDE__ATTN_CAUSAL))
        return BOLIDE_FAIL_ARG(call, "prefix_len_ptr", "pointer",
                               "NULL, as planned with causal = 0", "a tensor");
    if (a->max_item_len && !a->prefix_len)
        return BOLIDE_FAIL_ARG(call, "max_item_len_ptr", "pointer", "NULL without prefix_len_ptr",
                               "a tensor");
    if (a->token_pos_len < 0 || (a->token_pos_len > 0 && !a->token_pos) ||
        a->token_pos_len > INT32_MAX)
        return BOLIDE_FAIL_ARG(call, "token_pos_in_items_len", "value",
                               "the entries of a request in token_pos_in_items_ptr", "%lld",
                               (long long)a->token_pos_len);
    return check_count(call, "token_pos_in_items_ptr", a->token_pos,
                       plan->now.batch * a->token_pos_len,
                       "token_pos_in_items_len of each request");
}

static bolide_status check_part(const bolide__call *call, const char *part, const void *pointer,
                                int64_t have, int64_t need) {
    if (need > 0 && (!pointer || have < need))
        return bolide__fail_arg(BOLIDE_WORKSPACE_TOO_SMALL, call->entry_name, "workspace", part,
                                bolide__text("at least %lld bytes", (long long)need), "%lld bytes",
                                pointer ? (long long)have : 0LL);
    if (need > 0 && (uintptr_t)pointer % 16 != 0)
        return BOLIDE_FAIL_ARG(call, "workspace", part, "an address aligned to 16 bytes", "%p",
                               pointer);
    return BOLIDE_OK;
}

static bolide_status check_memory(const bolide__call *call, const bolide__attention_run_args *a,
                                  const bolide__attention_plan *plan) {
    const struct bolide__attention_frozen *f = &plan->frozen;
    const bolide_workspace *w = a->workspace;
    if (f->device_type != call->ctx->device.type)
        return BOLIDE_FAIL_ARG(call, "plan", "device", "a plan made with the same kind of context",
                               "a plan for the %s", f->device_type == BOLIDE_CUDA ? "GPU" : "CPU");
    BOLIDE_TRY(check_part(call, "device_bytes", w->device, w->device_bytes, f->device_bytes));
    return check_part(call, "device_int_bytes", w->device_int, w->device_int_bytes,
                      f->device_int_bytes);
}

/* Without a softmax a row has no sum that a sink could join or an lse could tell. */
static bolide_status check_weights(const bolide__call *call, const bolide__attention_run_args *a) {
    if (!a->variant || !a->variant->no_softmax || (!a->sinks && !a->lse))
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, a->sinks ? "sinks" : "lse", "pointer",
                           "NULL with a variant of no_softmax", "a tensor");
}

bolide_status bolide__attention_check_args(const bolide__call *call,
                                           const bolide__attention_run_args *a, int64_t h_q,
                                           int64_t h_kv) {
    BOLIDE_TRY(bolide__attention_check_variant(call, a->variant));
    BOLIDE_TRY(check_weights(call, a));
    if (a->custom_mask && a->packed_custom_mask)
        return BOLIDE_FAIL_ARG(call, "custom_mask", "pointer", "this or packed_custom_mask",
                               "both");
    if (a->soft_cap && (*a->soft_cap < 0 || isinf(*a->soft_cap)))
        return BOLIDE_FAIL_ARG(call, "logits_soft_cap", "value", "a finite number, at least 0",
                               "%g", *a->soft_cap);
    BOLIDE_TRY(bolide__attention_check_scale(call, "q_scale", a->q_scale_tensor, h_q));
    BOLIDE_TRY(bolide__attention_check_scale(call, "k_scale", a->k_scale_tensor, h_kv));
    BOLIDE_TRY(bolide__attention_check_scale(call, "v_scale", a->v_scale_tensor, h_kv));
    return bolide__attention_check_scale(call, "o_scale", a->o_scale_tensor, 1);
}

bolide_status bolide__attention_check_run(const bolide__call *call,
                                          const bolide__attention_run_args *a) {
    const bolide__attention_plan *plan = (const bolide__attention_plan *)a->plan;
    BOLIDE_TRY(check_memory(call, a, plan));
    BOLIDE_TRY(bolide__attention_check_args(call, a, plan->frozen.h_q, plan->frozen.h_kv));
    if (!a->variant != !(plan->frozen.flags & BOLIDE__ATTN_VARIANT))
        return BOLIDE_FAIL_ARG(call, "variant", "pointer",
                               a->variant ? "NULL, as planned" : "a variant, as planned", "%s",
                               a->variant ? "a variant" : "NULL");
    BOLIDE_TRY(check_pages(call, a, plan));
    BOLIDE_TRY(check_v_table(call, a));
    BOLIDE_TRY(check_mask(call, a, plan));
    BOLIDE_TRY(check_draft(call, a, plan));
    BOLIDE_TRY(check_items(call, a, plan));
    if (plan->frozen.paged)
        return BOLIDE_OK;
    BOLIDE_TRY(check_tokens(call, "k", a->k, plan->frozen.kv_layout, plan->now.kv_rows));
    return check_tokens(call, "v", a->v, plan->frozen.kv_layout, plan->now.v_rows);
}

/* ---- parameters --------------------------------------------------------------------------- */

static bolide__attention_scale scale_of(const bolide_tensor *t, double number) {
    bolide__attention_scale s = {.number = isnan(number) ? 1 : number};
    if (t) {
        s.tensor = bolide__data(t);
        s.step = bolide__numel(t) > 1 ? bolide__stride(t, 0) : 0;
    }
    return s;
}

static const void *data_or_null(const bolide_tensor *t) {
    return t ? bolide__data(t) : NULL;
}

/* Page, token and head stride of a cache or of a packed tensor; a cache of one head may leave out
 * that dimension. */
static void kv_strides(const bolide_tensor *t, bool paged, bool hnd, int64_t *page, int64_t *n,
                       int64_t *h) {
    const int first = paged ? 1 : 0;
    *page = paged ? bolide__stride(t, 0) : 0;
    *n = bolide__stride(t, hnd ? first + 1 : first);
    *h = t->ndim == first + 3 ? bolide__stride(t, hnd ? first : first + 1) : 0;
}

/* A cap as kernels divide by it in f32. Below 1e-20 all logits are 0, beyond 1e30 none is capped,
 * so the ends stand for what lies behind them. */
static double held_cap(double cap) {
    return cap == 0 ? 0 : fmin(fmax(cap, 1e-20), 1e30);
}

static void fill_plan(bolide__attention_params *p, const bolide__attention_run_args *a) {
    const bolide__attention_plan *plan = (const bolide__attention_plan *)a->plan;
    const struct bolide__attention_frozen *f = &plan->frozen;
    const char *live = a->workspace->device_int;
    char *scratch = a->workspace->device;
    p->counts = (const bolide__schedule_counts *)live;
    p->worker_start = (const int32_t *)(live + f->worker_start_at);
    p->requests = (const bolide__attention_request *)(live + f->requests_at);
    p->items = (const bolide__attention_item *)(live + f->items_at);
    p->merges = (const bolide__attention_merge *)(live + f->merges_at);
    p->heads = (const bolide__attention_head *)(live + f->heads_at);
    p->works = (const bolide__attention_work *)(live + f->works_at);
    p->arrivals = (int32_t *)(a->workspace->device_int) + f->arrivals_at / (int64_t)sizeof(int32_t);
    p->partial_o = (float *)(scratch + f->partial_o_at);
    p->partial_ml = (float *)(scratch + f->partial_ml_at);
    p->rope_frequency = (const double *)(scratch + f->frequency_at);
    p->lanes = (unsigned char *)(scratch + f->lanes_at);
    p->lane_count = f->lane_count;
    p->lane_bytes = f->lane_bytes;
    p->unit_heads = f->unit_heads;
    p->h_q = f->h_q;
    p->h_kv = f->h_kv;
    p->group = f->h_q / f->h_kv;
    p->d_qk = f->d_qk;
    p->d_vo = f->d_vo;
    p->d_tail = f->d_tail;
    p->page_size = f->page_size;
    p->tile_rows = f->tile_rows;
    p->workers = f->workers;
    p->q_dtype = f->q_dtype;
    p->kv_dtype = f->kv_dtype;
    p->o_dtype = f->o_dtype;
    p->flags = f->flags;
    p->window_left = f->window_left;
    p->chunk = f->chunk;
    p->sm_scale = f->sm_scale;
    p->soft_cap = f->soft_cap;
    p->rope_scale = f->rope_scale;
    p->rope_theta = f->rope_theta;
    p->fold_q = f->fold_q;
    p->fold_kv = f->fold_kv;
}

static void fill_tail(bolide__attention_params *p, const bolide__attention_run_args *a) {
    if (a->row_scales) {
        p->row_scales = bolide__data(a->row_scales);
        p->row_scales_page = bolide__stride(a->row_scales, 0);
        p->row_scales_n = bolide__stride(a->row_scales, 1);
    }
    if (!a->q_tail)
        return;
    p->q_tail = bolide__data(a->q_tail);
    p->k_tail = bolide__data(a->k_tail);
    p->q_tail_n = bolide__stride(a->q_tail, 0);
    p->q_tail_h = bolide__stride(a->q_tail, 1);
    p->k_tail_page = bolide__stride(a->k_tail, 0);
    p->k_tail_n = bolide__stride(a->k_tail, 1);
    p->tail_scale = scale_of(a->tail_scale_tensor, a->tail_scale);
}

static void fill_draft(bolide__attention_params *p, const bolide__attention_run_args *a) {
    if (a->v_block_tables) {
        p->v_indices = bolide__data(a->v_block_tables);
        p->v_table_row = bolide__stride(a->v_block_tables, 0);
    }
    if (!a->draft_mask)
        return;
    const int64_t bytes = bolide__elem_bytes(a->draft_mask);
    p->draft = bolide__data(a->draft_mask);
    p->draft_row = bolide__stride(a->draft_mask, 0) * bytes;
    p->draft_bytes = a->draft_mask->shape[1] * bytes;
    p->flags |= BOLIDE__ATTN_DRAFT;
}

static int64_t list_count(const bolide__attention_run_args *a) {
    if (a->indices)
        return a->indices->shape[0];
    const bolide_tensor *t = a->block_tables;
    return t && t->shape[0] > 0 ? (t->shape[0] - 1) * bolide__stride(t, 0) + t->shape[1] : 0;
}

bolide__attention_params bolide__attention_fill(const bolide__attention_run_args *a) {
    const bolide__attention_plan *plan = (const bolide__attention_plan *)a->plan;
    const bool paged = plan->frozen.paged != 0, hnd = plan->frozen.kv_layout == BOLIDE_HND;
    bolide__attention_params p = {
        .q = bolide__data(a->q),
        .k = bolide__data(a->k),
        .v = bolide__data(a->v),
        .out = bolide__data(a->out),
        .lse = (float *)data_or_null(a->lse),
        .indices = data_or_null(a->indices ? a->indices : a->block_tables),
        .mask = data_or_null(a->custom_mask ? a->custom_mask : a->packed_custom_mask),
        .sinks = data_or_null(a->sinks),
        .prefix_len = data_or_null(a->prefix_len),
        .token_pos = data_or_null(a->token_pos),
        .max_item_len = data_or_null(a->max_item_len),
        .token_pos_len = a->token_pos_len,
        .q_n = bolide__stride(a->q, 0),
        .q_h = bolide__stride(a->q, 1),
        .out_n = bolide__stride(a->out, 0),
        .out_h = bolide__stride(a->out, 1),
        .lse_n = a->lse ? bolide__stride(a->lse, 0) : 0,
        .lse_h = a->lse ? bolide__stride(a->lse, 1) : 0,
        .sink_h = a->sinks ? bolide__stride(a->sinks, 0) : 0,
        .table_row = a->block_tables ? bolide__stride(a->block_tables, 0) : 0,
        .q_scale = scale_of(a->q_scale_tensor, a->q_scale),
        .k_scale = scale_of(a->k_scale_tensor, a->k_scale),
        .v_scale = scale_of(a->v_scale_tensor, a->v_scale),
        .o_scale = scale_of(a->o_scale_tensor, a->o_scale),
        .variant = a->variant,
    };
    const int rows = hnd ? paged + 1 : paged; /* dimension of the tokens of a page */
    p.q_rows = a->q->shape[0];
    p.pages = paged ? a->k->shape[0] : 1;
    p.list_count = list_count(a);
    p.k_rows = a->k->shape[rows];
    p.v_rows = a->v->shape[rows];
    kv_strides(a->k, paged, hnd, &p.k_page, &p.k_n, &p.k_h);
    kv_strides(a->v, paged, hnd, &p.v_page, &p.v_n, &p.v_h);
    fill_tail(&p, a);
    fill_plan(&p, a);
    fill_draft(&p, a);
    if (a->soft_cap && !isnan(*a->soft_cap))
        p.soft_cap = *a->soft_cap;
    p.soft_cap = held_cap(p.soft_cap);
    p.flags |= a->custom_mask ? BOLIDE__ATTN_MASK_BYTES : 0;
    p.flags |= a->packed_custom_mask ? BOLIDE__ATTN_MASK_BITS : 0;
    p.flags |= a->prefix_len ? BOLIDE__ATTN_ITEMS : 0;
    p.flags |= a->lse_base_e ? BOLIDE__ATTN_LSE_BASE_E : 0;
    return p;
}

/* ---- the CPU backend ---------------------------------------------------------------------- */

static int64_t pad16(int64_t x) {
    return (x + 15) / 16 * 16;
}

/* The order of spread_scratch in attention_cpu.c. Lanes keep apart by whole cache lines. */
int64_t bolide__attention_lane_bytes(const struct bolide__attention_frozen *f) {
    const int64_t block = 64, rows = f->unit_heads * f->tile_rows;
    const int64_t dq = pad16(f->d_qk), dv = pad16(f->d_vo);
    const int64_t scores = bolide__attention_score_rows(f->unit_heads, f->tile_rows) * block;
    int64_t floats = rows * dq + rows * dv + 2 * pad16(rows) + scores + block * dq + block * dv;
    if (f->flags & (BOLIDE__ATTN_ROPE | BOLIDE__ATTN_TAIL))
        floats += block * dq;
    if (f->flags & BOLIDE__ATTN_ROPE)
        floats += 2 * block * pad16(f->d_qk / 2);
    if (f->flags & BOLIDE__ATTN_VARIANT)
        floats += block * dq + block * dv;
    if (bolide__attention_may_scale_rows(f->flags, f->kv_dtype))
        floats += block * dv;
    return (floats * (int64_t)sizeof(float) + 127) / 128 * 128;
}

static void fill_frequencies(const bolide__attention_params *p) {
    double *f = (double *)p->rope_frequency;
    for (int64_t i = 0; i < p->d_qk / 2; i++)
        f[i] = pow(p->rope_theta, -2.0 * (double)i / (double)p->d_qk) / p->rope_scale;
}

/* The tiles for bf16 beside the base set, where all is bf16 and of whole tiles, so that what is
 * packed fits the scratch of f32. The out that rounds to bf16 hides that of the weights. */
static const bolide__gemm_kernel *units_of(const bolide__call *call,
                                           const bolide__attention_params *p) {
    const bolide__gemm_kernel *g = bolide__gemm_bf16(bolide__units_allowed(call->ctx));
    const bool bf16 = p->q_dtype == BOLIDE_BF16 && p->kv_dtype == BOLIDE_BF16 &&
                      p->o_dtype == BOLIDE_BF16 &&
                      !(p->flags & (BOLIDE__ATTN_ROPE | BOLIDE__ATTN_TAIL));
    const bool whole = p->d_qk % 32 == 0 && p->d_vo % 32 == 0;
    const bool plain = p->tile_rows >= 32 && p->unit_heads == 1 && !p->hooks;
    return g->unit && bf16 && whole && plain ? g : NULL;
}

bolide_status bolide__attention_cpu_run(const bolide__call *call, bolide__attention_params *p) {
    int64_t next_unit = 0;
    bolide__variant_hooks hooks;
    if (p->variant)
        BOLIDE_TRY(bolide__attention_variant_hooks(call, p->variant, p, &hooks));
    const int64_t units = p->counts->items * (p->h_kv / p->unit_heads);
    const int64_t lanes = p->lane_count < units ? p->lane_count : units;
    p->next_unit = &next_unit;
    p->units = units_of(call, p);
    if (p->flags & BOLIDE__ATTN_ROPE)
        fill_frequencies(p);
    bolide__parallel_for(call->ctx, lanes, 1, BOLIDE_CPU_PICK(attention_lane), p);
    bolide__parallel_for(call->ctx, p->counts->merges * p->h_kv, 1,
                         BOLIDE_CPU_PICK(attention_merge), p);
    return BOLIDE_OK;
}

bolide_status bolide__attention_run(const bolide__call *call, const bolide__attention_run_args *a) {
    bolide__attention_params p = bolide__attention_fill(a);
    if (call->ctx->device.type == BOLIDE_CUDA)
        return bolide__attention_cuda_run(call, (const bolide__attention_plan *)a->plan, &p);
    return bolide__attention_cpu_run(call, &p);
}
