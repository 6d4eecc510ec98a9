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

/* Requests of many rows and of few are planned apart where two kernels take them at the same time:
 * the second plan lies behind the first, and so do its parts of the workspace. */

static int64_t behind(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

static void *shifted(void *memory, int64_t bytes) {
    return memory ? (char *)memory + behind(bytes) : NULL;
}

static bolide_workspace second_workspace(const bolide_workspace *w, const bolide_sizes *first) {
    return (bolide_workspace){
        .device = shifted(w->device, first->device_bytes),
        .device_bytes = w->device_bytes - behind(first->device_bytes),
        .device_int = shifted(w->device_int, first->device_int_bytes),
        .device_int_bytes = w->device_int_bytes - behind(first->device_int_bytes),
        .pinned = shifted(w->pinned, first->pinned_bytes),
        .pinned_bytes = w->pinned_bytes - behind(first->pinned_bytes),
    };
}

static bolide_status sizes_of(const bolide__call *call, bolide_sizes *sizes) {
    bolide__attention_problem pr = problem_of(call);
    if (!bolide__attention_has_parts(call, &pr))
        return bolide__attention_sizes(call, &pr, sizes);
    bolide_sizes few;
    pr.part = BOLIDE__PART_MANY;
    BOLIDE_TRY(bolide__attention_sizes(call, &pr, sizes));
    pr.part = BOLIDE__PART_FEW;
    BOLIDE_TRY(bolide__attention_sizes(call, &pr, &few));
    sizes->device_bytes = behind(sizes->device_bytes) + few.device_bytes;
    sizes->device_int_bytes = behind(sizes->device_int_bytes) + few.device_int_bytes;
    sizes->pinned_bytes = behind(sizes->pinned_bytes) + few.pinned_bytes;
    sizes->plan_bytes += few.plan_bytes;
    return BOLIDE_OK;
}

static bolide_status make_plan(const bolide__call *call) {
    bolide__attention_problem pr = problem_of(call);
    if (!bolide__attention_has_parts(call, &pr))
        return bolide__attention_make_plan(call, &pr);
    bolide_sizes many;
    pr.part = BOLIDE__PART_MANY;
    BOLIDE_TRY(bolide__attention_sizes(call, &pr, &many));
    BOLIDE_TRY(bolide__attention_make_plan(call, &pr));
    const bolide_workspace second = second_workspace(pr.workspace, &many);
    pr.part = BOLIDE__PART_FEW;
    pr.workspace = &second;
    pr.plan = (bolide_plan *)((bolide__attention_plan *)pr.plan + 1);
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

/* The same of the second plan, if there is one. */
static bool run_args_of_few(bolide__attention_run_args *a, bolide_workspace *second) {
    const bolide__attention_plan *many = (const bolide__attention_plan *)a->plan;
    const bolide_sizes sizes = {.device_bytes = many->frozen.device_bytes,
                                .device_int_bytes = many->frozen.device_int_bytes,
                                .pinned_bytes = many->frozen.pinned_bytes};
    if (many->frozen.part != BOLIDE__PART_MANY)
        return false;
    *second = second_workspace(a->workspace, &sizes);
    a->plan = (const bolide_plan *)(many + 1);
    a->workspace = second;
    return true;
}

static bolide_status check_run(const bolide__call *call) {
    bolide__attention_run_args a = run_args(call);
    bolide_workspace second;
    BOLIDE_TRY(bolide__attention_check_run(call, &a));
    return run_args_of_few(&a, &second) ? bolide__attention_check_run(call, &a) : BOLIDE_OK;
}

static bolide_status run(const bolide__call *call) {
    bolide__attention_run_args a = run_args(call);
    bolide_workspace second;
    BOLIDE_TRY(bolide__attention_run(call, &a));
    return run_args_of_few(&a, &second) ? bolide__attention_run(call, &a) : BOLIDE_OK;
}

BOLIDE__ATTN_PLANNED(batch_attention,
                     "attention of prefill and decode requests mixed over paged caches")
