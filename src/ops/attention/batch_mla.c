// SPDX-License-Identifier: Apache-2.0
//
// Front of batch_mla: multi-head latent attention. To the kernels it is attention with one key head
// whose keys lie in two caches, the second of which is the tail of a key, and whose values are the
// first.

#include "core/context.h"
#include "ops/attention/attention_rows.h"

#define A bolide_batch_mla_plan_args
static const bolide_param plan_rows[] = {
    BOLIDE_IN(A, qo_indptr, "b1", BOLIDE_I32, "first row of each request", .flags = BOLIDE_EITHER),
    BOLIDE_IN(A, kv_indptr, "b1", BOLIDE_I32, "first page entry of each request",
              BOLIDE__ATTN_LENGTHS),
    BOLIDE_IN(A, kv_len_arr, "b1-1", BOLIDE_I32, "keys of each request", .flags = BOLIDE_EITHER),
    BOLIDE_I64_ROW(A, num_heads, BOLIDE_NO_INT, "heads of q and out"),
    BOLIDE_I64_ROW(A, head_dim_ckv, BOLIDE_NO_INT, "of the latent: a multiple of 16"),
    BOLIDE_I64_ROW(A, head_dim_kpe, BOLIDE_NO_INT, "of the rotary part: a multiple of 8, or 0"),
    BOLIDE_I64_ROW(A, page_size, BOLIDE_NO_INT, "keys of a page"),
    BOLIDE__ATTN_DTYPE_ROWS(A),
    BOLIDE_BOOL_ROW(A, causal, 0, "whether a query sees no key behind its own position"),
    BOLIDE__ATTN_CAP_ROWS(A),
    BOLIDE_F64_ROW(A, sm_scale, NAN, "of the logits"),
    BOLIDE_I64_ROW(A, max_num_rows, BOLIDE_NO_INT, "declared maximum of rows", BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_SPLIT_ROWS(A, "pages"),
    BOLIDE__ATTN_DEVICE_ROW(A),
};
#undef A

#define A bolide_batch_mla_run_args
static const bolide_param run_rows[] = {
    BOLIDE_IN(A, q_nope, "n h_q d_vo", BOLIDE_LIKE(q_data_type), "queries in the latent's space"),
    BOLIDE_IN(A, q_pe, "n h_q d_tail", BOLIDE_LIKE(q_data_type), "their rotary part",
              BOLIDE__ATTN_OPTION),
    BOLIDE_IN(A, ckv_cache, "p page_size d_vo", BOLIDE_LIKE(kv_data_type), "pages of latents"),
    BOLIDE_IN(A, kpe_cache, "p page_size d_tail", BOLIDE_LIKE(kv_data_type),
              "pages of the keys' rotary part", BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_LIST_ROWS(A, kv_indices),
    BOLIDE__ATTN_MASK_ROWS(A),
    BOLIDE_F64_OR(A, q_scale, " | _", BOLIDE_F32, 1, "what a stored 1.0 of q stands for"),
    BOLIDE_F64_OR(A, ckv_scale, " | _", BOLIDE_F32, 1, "the same of ckv_cache"),
    BOLIDE_F64_OR(A, kpe_scale, " | _", BOLIDE_F32, 1, "the same of kpe_cache"),
    BOLIDE_F64_OR(A, o_scale, " | _", BOLIDE_F32, 1, "the same of out"),
    BOLIDE_BOOL_ROW(A, return_lse_base_on_e, 0, "whether lse is a natural logarithm"),
    BOLIDE__ATTN_OUT_ROWS(A, "n"),
    BOLIDE_IN(A, ckv_scale_arr, "p page_size n_tiles", BOLIDE_F32,
              "of each 128 elements of a row of ckv_cache", BOLIDE__ATTN_OPTION),
};
#undef A

enum { MAGIC = 0x424d4c41 };

/* ---- plan --------------------------------------------------------------------------------- */

static bolide__attention_problem problem_of(const bolide__call *call) {
    const bolide_batch_mla_plan_args *a = call->args;
    return (bolide__attention_problem){
        BOLIDE__ATTN_SPLIT_FIELDS(a),
        .on_device = a->plan_on_device,
        .pos_encoding_mode = BOLIDE_POS_NONE,
        .window_left = a->window_left,
        .logits_soft_cap = a->logits_soft_cap,
        .sm_scale = a->sm_scale,
        .rope_scale = NAN,
        .rope_theta = NAN,
        .h_q = a->num_heads,
        .h_kv = 1,
        .d_qk = a->head_dim_ckv + a->head_dim_kpe,
        .d_vo = a->head_dim_ckv,
        .d_tail = a->head_dim_kpe,
        .latent = 1,
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
                 .d_qk = "head_dim_ckv",
                 .d_vo = "head_dim_ckv",
                 .h_q = "num_heads",
                 .h_kv = "num_heads",
                 .max_rows = "max_num_rows"},
        .magic = MAGIC,
    };
}

static bolide_status check_plan(const bolide__call *call) {
    const bolide_batch_mla_plan_args *a = call->args;
    const int64_t ckv = a->head_dim_ckv, kpe = a->head_dim_kpe;
    if (ckv < 16 || ckv > BOLIDE__ATTN_HEAD_DIM || ckv % 16 != 0)
        return BOLIDE_FAIL_UNSUPPORTED(
            call, "head_dim_ckv", "head size",
            bolide__text("a multiple of 16 from 16 to %d", BOLIDE__ATTN_HEAD_DIM), "%lld",
            (long long)ckv);
    if (kpe < 0 || kpe % 8 != 0 || kpe > BOLIDE__ATTN_HEAD_DIM - ckv)
        return BOLIDE_FAIL_UNSUPPORTED(call, "head_dim_kpe", "head size",
                                       bolide__text("a multiple of 8 from 0 to %lld",
                                                    (long long)(BOLIDE__ATTN_HEAD_DIM - ckv)),
                                       "%lld", (long long)kpe);
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
    const bolide_batch_mla_run_args *a = call->args;
    return (bolide__attention_run_args){
        .q = a->q_nope,
        .k = a->ckv_cache,
        .v = a->ckv_cache,
        .q_tail = a->q_pe,
        .k_tail = a->kpe_cache,
        .indices = a->kv_indices,
        .block_tables = a->block_tables,
        .custom_mask = a->custom_mask,
        .packed_custom_mask = a->packed_custom_mask,
        .sinks = a->sinks,
        .q_scale = a->q_scale,
        .k_scale = a->ckv_scale,
        .v_scale = a->ckv_scale,
        .o_scale = a->o_scale,
        .tail_scale = a->kpe_scale,
        .row_scales = a->ckv_scale_arr,
        .q_scale_tensor = a->q_scale_tensor,
        .k_scale_tensor = a->ckv_scale_tensor,
        .v_scale_tensor = a->ckv_scale_tensor,
        .o_scale_tensor = a->o_scale_tensor,
        .tail_scale_tensor = a->kpe_scale_tensor,
        .lse_base_e = a->return_lse_base_on_e,
        .out = a->out,
        .lse = a->lse,
        .workspace = a->workspace,
        .plan = a->plan,
        .indices_name = "kv_indices",
    };
}

/* The rotary part is there if the plan has one. */
static bolide_status check_tail(const bolide__call *call, const char *name, const bolide_tensor *t,
                                int64_t d_tail) {
    if (!t == !d_tail)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "pointer",
                           d_tail ? "a tensor, as planned with head_dim_kpe > 0"
                                  : "NULL, as planned with head_dim_kpe = 0",
                           d_tail ? "NULL" : "a tensor");
}

/* Scales of parts of a row, as caches of 8 bits have them. */
static bolide_status check_row_scales(const bolide__call *call, const bolide_tensor *t,
                                      const bolide__attention_plan *plan) {
    const int64_t d = plan->frozen.d_vo;
    if (!t)
        return BOLIDE_OK;
    if (bolide__dtype_bytes(plan->frozen.kv_dtype) != 1)
        return BOLIDE_FAIL_UNSUPPORTED(call, "ckv_scale_arr", "pointer",
                                       "NULL but for caches of 8 bits", "a tensor");
    if (t->shape[2] * BOLIDE__ATTN_SCALED != d)
        return BOLIDE_FAIL_ARG(call, "ckv_scale_arr", "shape",
                               bolide__text("a scale of each 128 of %lld elements", (long long)d),
                               "%lld", (long long)t->shape[2]);
    return BOLIDE_OK;
}

static bolide_status check_run(const bolide__call *call) {
    const bolide_batch_mla_run_args *args = call->args;
    const bolide__attention_run_args a = run_args(call);
    const bolide__attention_plan *plan = (const bolide__attention_plan *)a.plan;
    BOLIDE_TRY(check_tail(call, "q_pe", args->q_pe, plan->frozen.d_tail));
    BOLIDE_TRY(check_tail(call, "kpe_cache", args->kpe_cache, plan->frozen.d_tail));
    BOLIDE_TRY(check_row_scales(call, args->ckv_scale_arr, plan));
    BOLIDE_TRY(bolide__attention_check_scale(call, "ckv_scale", args->ckv_scale_tensor, 1));
    BOLIDE_TRY(bolide__attention_check_scale(call, "kpe_scale", args->kpe_scale_tensor, 1));
    return bolide__attention_check_run(call, &a);
}

static bolide_status run(const bolide__call *call) {
    const bolide__attention_run_args a = run_args(call);
    return bolide__attention_run(call, &a);
}

BOLIDE__ATTN_PLANNED(batch_mla, "multi-head latent attention over paged caches of latents")
