// SPDX-License-Identifier: Apache-2.0
//
// Front of batch_prefill_ragged: any number of query tokens of each request against keys and values
// that are packed request behind request. The kernel is that of prefill_paged.c without pages.

#include "ops/attention/attention_rows.h"

#define A bolide_batch_prefill_ragged_plan_args
static const bolide_param plan_rows[] = {
    BOLIDE_IN(A, qo_indptr, "b1", BOLIDE_I32, "first row of each request", .flags = BOLIDE_EITHER),
    BOLIDE_IN(A, kv_indptr, "b1", BOLIDE_I32, "first key of each request", .flags = BOLIDE_EITHER),
    BOLIDE_IN(A, v_indptr, "b1", BOLIDE_I32, "first value of each request", BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, o_indptr, "b1", BOLIDE_I32, "first row of out of each request",
              BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, seq_lens, "b1-1", BOLIDE_I32, "keys of each request", BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, seq_lens_q, "b1-1", BOLIDE_I32, "rows of each request", BOLIDE__ATTN_LENGTHS),
    BOLIDE__ATTN_HEAD_ROWS(A),
    BOLIDE_I64_ROW(A, head_dim_qk, BOLIDE_NO_INT, "of q and k: a multiple of 8 up to 576"),
    BOLIDE_I64_ROW(A, head_dim_vo, BOLIDE_NO_INT, "of v and out; default head_dim_qk",
                   BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_DTYPE_ROWS(A),
    BOLIDE__ATTN_ENCODING_ROW(A),
    BOLIDE_BOOL_ROW(A, causal, 0, "whether a query sees no key behind its own position"),
    BOLIDE__ATTN_LOGIT_ROWS(A),
    BOLIDE_I64_ROW(A, max_num_rows, BOLIDE_NO_INT, "declared maximum of rows", BOLIDE__ATTN_OPTION),
    BOLIDE_I64_ROW(A, max_token_per_sequence, BOLIDE_NO_INT, "most rows of a request",
                   BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_SPLIT_ROWS(A, "keys"),
    BOLIDE__ATTN_VARIANT_ROW(A),
    BOLIDE__ATTN_CHUNK_ROW(A),
    BOLIDE__ATTN_DEVICE_ROW(A),
};
#undef A

#define A bolide_batch_prefill_ragged_run_args
static const bolide_param run_rows[] = {
    BOLIDE_IN(A, q, "n h_q d_qk", BOLIDE_LIKE(q_data_type), "queries"),
    BOLIDE_IN(A, k, "kv_layout=NHD: n_kv h_kv d_qk; HND: h_kv n_kv d_qk", BOLIDE_LIKE(kv_data_type),
              "keys"),
    BOLIDE_IN(A, v, "kv_layout=NHD: n_v h_kv d_vo; HND: h_kv n_v d_vo", BOLIDE_LIKE(kv_data_type),
              "values"),
    BOLIDE__ATTN_MASK_ROWS(A),
    BOLIDE__ATTN_SCALE_ROWS(A),
    BOLIDE__ATTN_ITEM_ROWS(A),
    BOLIDE__ATTN_OUT_ROWS(A, "n_o"),
    BOLIDE__ATTN_VARIANT_ROW(A),
};
#undef A

enum { MAGIC = 0x42505247 };

/* ---- plan --------------------------------------------------------------------------------- */

static bolide__attention_problem problem_of(const bolide__call *call) {
    const bolide_batch_prefill_ragged_plan_args *a = call->args;
    return (bolide__attention_problem){
        BOLIDE__ATTN_OPTION_FIELDS(a),
        .on_device = a->plan_on_device,
        .d_qk = a->head_dim_qk,
        .d_vo = a->head_dim_vo == BOLIDE_NO_INT ? a->head_dim_qk : a->head_dim_vo,
        .max_rows = a->max_num_rows,
        .max_q_len = a->max_token_per_sequence,
        .batch = a->qo_indptr->shape[0] - 1,
        .qo_indptr = a->qo_indptr,
        .kv_indptr = a->kv_indptr,
        .kv_len = a->seq_lens,
        .q_len = a->seq_lens_q,
        .chunk = a->chunked_attention_size,
        .v_indptr = a->v_indptr,
        .o_indptr = a->o_indptr,
        .name = {.qo_indptr = "qo_indptr",
                 .kv_indptr = "kv_indptr",
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
    const bolide_batch_prefill_ragged_run_args *a = call->args;
    return (bolide__attention_run_args){
        BOLIDE__ATTN_RUN_FIELDS(a),
        BOLIDE__ATTN_ITEM_FIELDS(a),
        .k = a->k,
        .v = a->v,
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

BOLIDE__ATTN_PLANNED(batch_prefill_ragged,
                     "attention of the new tokens of each request over packed keys and values")
