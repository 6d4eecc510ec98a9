// SPDX-License-Identifier: Apache-2.0
//
// Front of batch_prefill_paged: any number of query tokens of each request against its paged cache.
// Tiles of query rows share a block of keys that is converted once, so multiply-adds are the limit;
// tiles of a few rows fall back to the way of decode.

#include "ops/attention/attention_rows.h"

#define A bolide_batch_prefill_paged_plan_args
static const bolide_param plan_rows[] = {
    BOLIDE_IN(A, qo_indptr, "b1", BOLIDE_I32, "first row of each request", .flags = BOLIDE_EITHER),
    BOLIDE_IN(A, paged_kv_indptr, "b1", BOLIDE_I32, "first page entry of each request",
              BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, paged_kv_last_page_len, "b1-1", BOLIDE_I32, "keys in each request's last page",
              BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, seq_lens, "b1-1", BOLIDE_I32, "keys of each request", BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, seq_lens_q, "b1-1", BOLIDE_I32, "rows of each request", BOLIDE__ATTN_LENGTHS),
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
    BOLIDE_I64_ROW(A, max_token_per_sequence, BOLIDE_NO_INT, "most rows of a request",
                   BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_SPLIT_ROWS(A, "pages"),
    BOLIDE__ATTN_VARIANT_ROW(A),
    BOLIDE__ATTN_CHUNK_ROW(A),
    BOLIDE_IN(A, o_indptr, "b1", BOLIDE_I32, "first row of out of each request",
              BOLIDE__ATTN_LENGTHS),
    BOLIDE__ATTN_DEVICE_ROW(A),
};
#undef A

#define A bolide_batch_prefill_paged_run_args
static const bolide_param run_rows[] = {
    BOLIDE_IN(A, q, "n h_q d_qk", BOLIDE_LIKE(q_data_type), "queries"),
    BOLIDE__ATTN_PAGE_ROWS(A, paged_kv_indices),
    BOLIDE__ATTN_MASK_ROWS(A),
    BOLIDE__ATTN_SCALE_ROWS(A),
    BOLIDE__ATTN_ITEM_ROWS(A),
    BOLIDE__ATTN_OUT_ROWS(A, "n_o"),
    BOLIDE__ATTN_VARIANT_ROW(A),
    BOLIDE__ATTN_DRAFT_ROWS(A),
};
#undef A

enum { MAGIC = 0x42505047 };

/* ---- plan --------------------------------------------------------------------------------- */

static bolide__attention_problem problem_of(const bolide__call *call) {
    const bolide_batch_prefill_paged_plan_args *a = call->args;
    return (bolide__attention_problem){
        BOLIDE__ATTN_OPTION_FIELDS(a),
        .on_device = a->plan_on_device,
        .d_qk = a->head_dim_qk,
        .d_vo = a->head_dim_vo == BOLIDE_NO_INT ? a->head_dim_qk : a->head_dim_vo,
        .page_size = a->page_size,
        .max_rows = a->max_num_rows,
        .max_q_len = a->max_token_per_sequence,
        .batch = a->qo_indptr->shape[0] - 1,
        .qo_indptr = a->qo_indptr,
        .kv_indptr = a->paged_kv_indptr,
        .last_page_len = a->paged_kv_last_page_len,
        .kv_len = a->seq_lens,
        .q_len = a->seq_lens_q,
        .o_indptr = a->o_indptr,
        .chunk = a->chunked_attention_size,
        .name = {.qo_indptr = "qo_indptr",
                 .kv_indptr = "paged_kv_indptr",
                 .last_page_len = "paged_kv_last_page_len",
                 .kv_len = "seq_lens",
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
    const bolide_batch_prefill_paged_run_args *a = call->args;
    return (bolide__attention_run_args){
        BOLIDE__ATTN_RUN_FIELDS(a),
        BOLIDE__ATTN_ITEM_FIELDS(a),
        BOLIDE__ATTN_DRAFT_FIELDS(a),
        .k = a->k_cache,
        .v = a->v_cache,
        .indices = a->paged_kv_indices,
        .block_tables = a->block_tables,
        .indices_name = "paged_kv_indices",
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

BOLIDE__ATTN_PLANNED(batch_prefill_paged,
                     "attention of the new tokens of each request over its paged cache")
