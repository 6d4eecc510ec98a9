// SPDX-License-Identifier: Apache-2.0
//
// Front of batch_decode: a few query tokens of each request against its paged cache. Each key and
// value is read once for all query heads that share it, so memory bandwidth is the limit. Plan and
// run are those of all attention operators (plan.c, attention_run.c); this file says what the
// arguments are called.

#include "ops/attention/attention_rows.h"

#define A bolide_batch_decode_plan_args
static const bolide_param plan_rows[] = {
    BOLIDE_IN(A, indptr, "b+1", BOLIDE_I32, "first page entry of each request",
              BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, last_page_len, "b", BOLIDE_I32, "keys in each request's last page",
              BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, seq_lens, "b", BOLIDE_I32, "keys of each request", BOLIDE__ATTN_LENGTHS),
    BOLIDE__ATTN_HEAD_ROWS(A),
    BOLIDE_I64_ROW(A, head_dim, BOLIDE_NO_INT, "of q and k: a multiple of 8 up to 576"),
    BOLIDE_I64_ROW(A, head_dim_vo, BOLIDE_NO_INT, "of v and out; default head_dim",
                   BOLIDE__ATTN_OPTION),
    BOLIDE_I64_ROW(A, page_size, BOLIDE_NO_INT, "keys of a page"),
    BOLIDE__ATTN_DTYPE_ROWS(A),
    BOLIDE_I64_ROW(A, q_len_per_req, 1, "query tokens of each request"),
    BOLIDE__ATTN_ENCODING_ROW(A),
    BOLIDE_BOOL_ROW(A, causal, 1, "whether a query sees no key behind its own position"),
    BOLIDE__ATTN_LOGIT_ROWS(A),
    BOLIDE__ATTN_SPLIT_ROWS(A, "pages"),
    BOLIDE__ATTN_VARIANT_ROW(A),
    BOLIDE__ATTN_DEVICE_ROW(A),
};
#undef A

#define A bolide_batch_decode_run_args
static const bolide_param run_rows[] = {
    BOLIDE_IN(A, q, "n h_q d_qk", BOLIDE_LIKE(q_data_type), "queries"),
    BOLIDE__ATTN_PAGE_ROWS(A, indices),
    BOLIDE__ATTN_MASK_ROWS(A),
    BOLIDE__ATTN_SCALE_ROWS(A),
    BOLIDE__ATTN_OUT_ROWS(A, "n"),
    BOLIDE__ATTN_VARIANT_ROW(A),
    BOLIDE__ATTN_DRAFT_ROWS(A),
};
#undef A

enum { MAGIC = 0x42444543 };

/* ---- plan --------------------------------------------------------------------------------- */

static bolide__attention_problem problem_of(const bolide__call *call) {
    const bolide_batch_decode_plan_args *a = call->args;
    const bolide_tensor *lens = a->seq_lens ? a->seq_lens : a->last_page_len;
    return (bolide__attention_problem){
        BOLIDE__ATTN_OPTION_FIELDS(a),
        .on_device = a->plan_on_device,
        .d_qk = a->head_dim,
        .d_vo = a->head_dim_vo == BOLIDE_NO_INT ? a->head_dim : a->head_dim_vo,
        .page_size = a->page_size,
        .q_len_per_req = a->q_len_per_req,
        .max_rows = BOLIDE_NO_INT,
        .max_q_len = BOLIDE_NO_INT,
        .batch = lens ? lens->shape[0] : 0,
        .kv_indptr = a->indptr,
        .last_page_len = a->last_page_len,
        .kv_len = a->seq_lens,
        .name = {.qo_indptr = "q_len_per_req",
                 .kv_indptr = "indptr",
                 .last_page_len = "last_page_len",
                 .kv_len = "seq_lens",
                 .d_qk = "head_dim",
                 .d_vo = "head_dim_vo",
                 .h_q = "num_qo_heads",
                 .h_kv = "num_kv_heads",
                 .max_rows = "max_batch_size"},
        .magic = MAGIC,
    };
}

static bolide_status check_plan(const bolide__call *call) {
    const bolide__attention_problem pr = problem_of(call);
    if (pr.q_len_per_req < 1)
        return BOLIDE_FAIL_ARG(call, "q_len_per_req", "value", "at least 1", "%lld",
                               (long long)pr.q_len_per_req);
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
    const bolide_batch_decode_run_args *a = call->args;
    return (bolide__attention_run_args){
        BOLIDE__ATTN_RUN_FIELDS(a),
        BOLIDE__ATTN_DRAFT_FIELDS(a),
        .k = a->k_cache,
        .v = a->v_cache,
        .indices = a->indices,
        .block_tables = a->block_tables,
        .indices_name = "indices",
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

BOLIDE__ATTN_PLANNED(batch_decode,
                     "attention of a few new tokens of each request over its paged cache")
