// SPDX-License-Identifier: Apache-2.0
//
// Front of block_sparse_attention. To the kernels a row block is a request, a column block a page
// of C keys and the list of blocks a page table, so that what is not seen costs nothing. What is
// particular are positions: they are places in the matrix, not in a request's list
// (BOLIDE__ATTN_PLACED).

#include <bolide/sparse.h>

#include "ops/attention/attention_rows.h"

#define A bolide_block_sparse_attention_plan_args
static const bolide_param plan_rows[] = {
    BOLIDE_IN(A, qo_indptr, "b1", BOLIDE_I32, "first row of each row block",
              .flags = BOLIDE_EITHER),
    BOLIDE_IN(A, indptr, "b1", BOLIDE_I32, "first entry of each row block", .flags = BOLIDE_EITHER),
    BOLIDE_I64_ROW(A, M, BOLIDE_NO_INT, "rows of the matrix"),
    BOLIDE_I64_ROW(A, N, BOLIDE_NO_INT, "its columns: a multiple of C"),
    BOLIDE_I64_ROW(A, C, BOLIDE_NO_INT, "keys of a column block"),
    BOLIDE__ATTN_HEAD_ROWS(A),
    BOLIDE_I64_ROW(A, head_dim, BOLIDE_NO_INT, "of q and k: a multiple of 8 up to 576"),
    BOLIDE_I64_ROW(A, head_dim_vo, BOLIDE_NO_INT, "of v and out; default head_dim",
                   BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_DTYPE_ROWS(A),
    BOLIDE__ATTN_ENCODING_ROW(A),
    BOLIDE_BOOL_ROW(A, causal, 0, "whether a query sees no key behind its own position"),
    BOLIDE__ATTN_LOGIT_ROWS(A),
    BOLIDE_I64_ROW(A, max_num_rows, BOLIDE_NO_INT, "declared maximum of rows", BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_SPLIT_ROWS(A, "column blocks"),
};
#undef A

#define A bolide_block_sparse_attention_run_args
static const bolide_param run_rows[] = {
    BOLIDE_IN(A, q, "n h_q d_qk", BOLIDE_LIKE(q_data_type), "queries"),
    BOLIDE_IN(A, k, "kv_layout=NHD: n_kv h_kv d_qk; HND: h_kv n_kv d_qk", BOLIDE_LIKE(kv_data_type),
              "keys"),
    BOLIDE_IN(A, v, "kv_layout=NHD: n_kv h_kv d_vo; HND: h_kv n_kv d_vo", BOLIDE_LIKE(kv_data_type),
              "values"),
    BOLIDE_IN(A, indices, "n_indices", BOLIDE_I32, "column blocks, row block behind row block"),
    BOLIDE__ATTN_MASK_ROWS(A),
    BOLIDE__ATTN_SCALE_ROWS(A),
    BOLIDE__ATTN_OUT_ROWS(A, "n"),
};
#undef A

enum { MAGIC = 0x42535041 };

/* ---- plan --------------------------------------------------------------------------------- */

/* Whether anything goes by positions. */
static bool is_placed(const bolide_block_sparse_attention_plan_args *a) {
    return (a->causal && !a->use_custom_mask) || a->pos_encoding_mode != BOLIDE_POS_NONE ||
           a->window_left >= 0;
}

static bolide__attention_problem problem_of(const bolide__call *call) {
    const bolide_block_sparse_attention_plan_args *a = call->args;
    return (bolide__attention_problem){
        BOLIDE__ATTN_SPLIT_FIELDS(a),
        .kv_layout = a->kv_layout,
        .pos_encoding_mode = a->pos_encoding_mode,
        .window_left = a->window_left,
        .logits_soft_cap = a->logits_soft_cap,
        .sm_scale = a->sm_scale,
        .rope_scale = a->rope_scale,
        .rope_theta = a->rope_theta,
        .h_q = a->num_qo_heads,
        .h_kv = a->num_kv_heads,
        .d_qk = a->head_dim,
        .d_vo = a->head_dim_vo == BOLIDE_NO_INT ? a->head_dim : a->head_dim_vo,
        .page_size = a->C,
        .fold_q = a->M > 0 ? a->M : 1,
        .fold_kv = a->N > 0 ? a->N : 1,
        .placed = is_placed(a),
        .max_rows = a->max_num_rows,
        .max_q_len = BOLIDE_NO_INT,
        .batch = a->qo_indptr->shape[0] - 1,
        .qo_indptr = a->qo_indptr,
        .kv_indptr = a->indptr,
        .name = {.qo_indptr = "qo_indptr",
                 .kv_indptr = "indptr",
                 .last_page_len = "indptr",
                 .kv_len = "indptr",
                 .d_qk = "head_dim",
                 .d_vo = "head_dim_vo",
                 .h_q = "num_qo_heads",
                 .h_kv = "num_kv_heads",
                 .max_rows = "max_num_rows"},
        .magic = MAGIC,
    };
}

static bolide_status check_size(const bolide__call *call, const char *name, int64_t value,
                                int64_t least) {
    if (value >= least && value <= INT32_MAX)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value",
                           bolide__text("%lld to 2147483647", (long long)least), "%lld",
                           (long long)value);
}

static bolide_status check_plan(const bolide__call *call) {
    const bolide_block_sparse_attention_plan_args *a = call->args;
    bolide__attention_problem pr = problem_of(call);
    BOLIDE_TRY(check_size(call, "M", a->M, 0));
    BOLIDE_TRY(check_size(call, "N", a->N, 0));
    BOLIDE_TRY(check_size(call, "C", a->C, 1));
    if (a->N % a->C != 0)
        return BOLIDE_FAIL_ARG(call, "N", "value",
                               bolide__text("a multiple of C = %lld", (long long)a->C), "%lld",
                               (long long)a->N);
    pr.kv_len = pr.kv_indptr; /* every block is whole, so that indptr says all */
    return bolide__attention_check_plan(call, &pr);
}

/* Row blocks lie within one part of M rows each, where positions matter and the host can see. */
static bolide_status check_parts(const bolide__call *call, const bolide__attention_problem *pr) {
    const bolide_tensor *t = pr->qo_indptr;
    if (!pr->placed || !t->data || t->device.type == BOLIDE_CUDA)
        return BOLIDE_OK;
    const int32_t *start = bolide__data(t);
    for (int64_t r = 0; r < pr->batch; r++) {
        const int64_t rows = (int64_t)start[r + 1] - start[r];
        if (rows > 0 && start[r] % pr->fold_q + rows > pr->fold_q)
            return BOLIDE_FAIL_ARG(
                call, "qo_indptr", "value",
                bolide__text("row blocks within parts of M = %lld rows", (long long)pr->fold_q),
                "rows %lld to %lld in block %lld", (long long)start[r], (long long)start[r + 1],
                (long long)r);
    }
    return BOLIDE_OK;
}

static bolide_status sizes_of(const bolide__call *call, bolide_sizes *sizes) {
    const bolide__attention_problem pr = problem_of(call);
    return bolide__attention_sizes(call, &pr, sizes);
}

static bolide_status make_plan(const bolide__call *call) {
    const bolide__attention_problem pr = problem_of(call);
    BOLIDE_TRY(check_parts(call, &pr));
    return bolide__attention_make_plan(call, &pr);
}

/* ---- run ---------------------------------------------------------------------------------- */

/* k or v in pages of C keys. */
typedef struct pages {
    bolide_tensor tensor;
    int64_t shape[4], strides[4];
} pages;

static const bolide_tensor *to_pages(const bolide_tensor *t, const bolide__attention_plan *plan,
                                     pages *out) {
    const bool hnd = plan->frozen.kv_layout == BOLIDE_HND;
    const int64_t c = plan->frozen.page_size;
    const int token = hnd ? 2 : 1, head = hnd ? 1 : 2;
    out->tensor = *t;
    out->tensor.ndim = 4;
    out->tensor.shape = out->shape;
    out->tensor.strides = out->strides;
    out->shape[0] = t->shape[hnd ? 1 : 0] / c;
    out->shape[token] = c;
    out->shape[head] = t->shape[hnd ? 0 : 1];
    out->shape[3] = t->shape[2];
    out->strides[token] = bolide__stride(t, hnd ? 1 : 0);
    out->strides[0] = out->strides[token] * c;
    out->strides[head] = bolide__stride(t, hnd ? 0 : 1);
    out->strides[3] = bolide__stride(t, 2);
    return &out->tensor;
}

static bolide__attention_run_args run_args(const bolide__call *call, pages *k, pages *v) {
    const bolide_block_sparse_attention_run_args *a = call->args;
    const bolide__attention_plan *plan = (const bolide__attention_plan *)a->plan;
    return (bolide__attention_run_args){
        .q = a->q,
        .k = to_pages(a->k, plan, k),
        .v = to_pages(a->v, plan, v),
        .indices = a->indices,
        .custom_mask = a->custom_mask,
        .packed_custom_mask = a->packed_custom_mask,
        .sinks = a->sinks,
        .q_scale = a->q_scale,
        .k_scale = a->k_scale,
        .v_scale = a->v_scale,
        .o_scale = a->o_scale,
        .q_scale_tensor = a->q_scale_tensor,
        .k_scale_tensor = a->k_scale_tensor,
        .v_scale_tensor = a->v_scale_tensor,
        .o_scale_tensor = a->o_scale_tensor,
        .lse_base_e = a->return_lse_base_on_e,
        .out = a->out,
        .lse = a->lse,
        .workspace = a->workspace,
        .plan = a->plan,
        .indices_name = "indices",
    };
}

static bolide_status check_run(const bolide__call *call) {
    const bolide_block_sparse_attention_run_args *args = call->args;
    pages k, v;
    const bolide__attention_run_args a = run_args(call, &k, &v);
    const bolide__attention_plan *plan = (const bolide__attention_plan *)a.plan;
    const int64_t tokens = args->k->shape[plan->frozen.kv_layout == BOLIDE_HND ? 1 : 0];
    if (tokens % plan->frozen.fold_kv != 0)
        return BOLIDE_FAIL_ARG(call, "k", "shape",
                               bolide__text("a multiple of N = %lld keys, as planned",
                                            (long long)plan->frozen.fold_kv),
                               "%lld", (long long)tokens);
    return bolide__attention_check_run(call, &a);
}

static bolide_status run(const bolide__call *call) {
    pages k, v;
    const bolide__attention_run_args a = run_args(call, &k, &v);
    return bolide__attention_run(call, &a);
}

BOLIDE__ATTN_PLANNED(block_sparse_attention,
                     "attention over some blocks of the matrix of queries and keys")
