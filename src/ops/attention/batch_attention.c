// SPDX-License-Identifier: Apache-2.0
//
// Front of batch_attention: prefill and decode requests in one batch over paged caches. The
// schedule lays all tiles on one tape, so a mixed batch is balanced like any other.

#include "ops/attention/attention_rows.h"

#define A bolide_batch_attention_plan_args
static const bolide_param plan_rows[] = {
    BOLIDE_IN(A, qo_indptr, "b1", BOLIDE_I32, "first row of each request", .flags = BOLIDE_EITHER),
    BOLIDE_IN(A, kv_indptr, "b1", BOLIDE_I32, "first page entry of each request",
              BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, kv_len_arr, "b1-1", BOLIDE_I32, "keys of each request", .flags = BOLIDE_EITHER),
    BOLIDE__ATTN_HEAD_ROWS(A),
    BOLIDE_I64_ROW(A, head_dim_qk, BOLIDE_NO_INT, "of q and k: a multiple of 8 up to 576"),
    BOLIDE_I64_ROW(A, head_dim_vo, BOLIDE_NO_INT, "of v and out; default head_dim_qk",
                   BOLIDE__ATTN_OPTION),
    BOLIDE_I64_ROW(A, page_size, BOLIDE_NO_INT, "keys of a page"),
    BOLIDE__ATTN_DTYPE_ROWS(A),
    BOLIDE__ATTN_ENCODING_ROW(A),
    BOLIDE_BOOL_ROW(A, causal, 0, "whether a query sees no key behind its own position"),
    BOLIDE__ATTN_LOGIT_ROWS(A),
    BOLIDE_I64_ROW(A, max_num_rows, BOLIDE_NO_INT, "declared maximum of rows", BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_SPLIT_ROWS(A, "pages"),
    BOLIDE__ATTN_VARIANT_ROW(A),
};
#undef A

#define A bolide_batch_attention_run_args
static const bolide_param run_rows[] = {
    BOLIDE_IN(A, q, "n h_q d_qk", BOLIDE_LIKE(q_data_type), "queries"),
    BOLIDE__ATTN_PAGE_ROWS(A, kv_indices),
    BOLIDE__ATTN_MASK_ROWS(A),
    BOLIDE__ATTN_SCALE_ROWS(A),
    BOLIDE_F64_ROW(A, logits_soft_cap, NAN, "of this run; default the plan's", BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_OUT_ROWS(A, "n"),
    BOLIDE__ATTN_VARIANT_ROW(A),
};
#undef A

enum { MAGIC = 0x42415454 };

/* ---- plan --------------------------------------------------------------------------------- */

static bolide__attention_problem problem_of(const bolide__call *call) {
    const bolide_batch_attention_plan_args *a = call->args;
    return (bolide__attention_problem){
        BOLIDE__ATTN_OPTION_FIELDS(a),
        .d_qk = a->head_dim_qk,
        .d_vo = a->head_dim_vo == BOLIDE_NO_INT ? a->head_dim_qk : a->head_dim_vo,
        .page_size = a->page_size,
        .max_rows = a->max_num_rows,
        .max_q_len = BOLIDE_NO_INT,
        .batch = a->qo_indptr->shape[0] - 1,
        .qo_indptr = a->qo_indptr,
        .kv_indptr = a->kv_indptr,
        .kv_len = a->kv_len_arr,
        .name = {.qo_indptr = "qo_indptr",
                 .kv_indptr = "kv_indptr",
                 .last_page_len = "kv_len_arr",
                 .kv_len = "kv_len_arr",
                 .d_qk = "head_dim_qk",
                 .d_vo = "head_dim_vo",
                 .h_q = "num_qo_heads",
                 .h_kv = "num_kv_heads",
                 .max_rows = "max_num_rows"},
        .magic = MAGIC,
    };
}

static bolide_status check_plan(const bolide__call *call) {
    const bolide__attention_problem pr = problem_of(call);
    BOLIDE_TRY(bolide__attention_check_page_size(call, pr.page_size));
    return bolide__attention_check_plan(call, &pr);
}

static bolide_status sizes_of(const bolide__call *call, bolide_sizes *sizes) {
    const bolide__attention_problem pr = problem_of(call);
    return bolide__attention_sizes(call, &pr, sizes);
}

static bolide_status make_plan(const bolide__call *call) {
    const bolide__attention_problem pr = problem_of(call);
    return bolide__attention_make_plan(call, &pr);
}

/* ---- run ---------------------------------------------------------------------------------- */

static bolide__attention_run_args run_args(const bolide__call *call) {
    const bolide_batch_attention_run_args *a = call->args;
    return (bolide__attention_run_args){
        BOLIDE__ATTN_RUN_FIELDS(a),
        .soft_cap = &a->logits_soft_cap,
        .k = a->k_cache,
        .v = a->v_cache,
        .indices = a->kv_indices,
        .block_tables = a->block_tables,
        .indices_name = "kv_indices",
    };
}

static bolide_status check_run(const bolide__call *call) {
    const bolide__attention_run_args a = run_args(call);
    return bolide__attention_check_run(call, &a);
}

static bolide_status run(const bolide__call *call) {
    const bolide__attention_run_args a = run_args(call);
    return bolide__attention_run(call, &a);
}

BOLIDE__ATTN_PLANNED(batch_attention,
                     "attention of prefill and decode requests mixed over paged caches")
