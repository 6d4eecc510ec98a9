// SPDX-License-Identifier: Apache-2.0
//
// Front of batch_decode: a few query tokens of each request against its paged cache. Each key and
// value is read once for all query heads that share it, so memory bandwidth is the limit. Plan and
// run are those of all attention operators (plan.c, attention_run.c); this file says what the
// arguments are called.

#include <bolide/attention.h>

#include <math.h>

#include "ops/attention/attention_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32 | BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2)
#define LENGTHS .flags = BOLIDE_EITHER | BOLIDE_OPTIONAL
#define OPTION .flags = BOLIDE_OPTIONAL

#define A bolide_batch_decode_plan_args
static const bolide_param plan_rows[] = {
    BOLIDE_IN(A, indptr, "b+1", BOLIDE_I32, "first page entry of each request", LENGTHS),
    BOLIDE_IN(A, last_page_len, "b", BOLIDE_I32, "keys in each request's last page", LENGTHS),
    BOLIDE_IN(A, seq_lens, "b", BOLIDE_I32, "keys of each request", LENGTHS),
    BOLIDE_I64_ROW(A, num_qo_heads, BOLIDE_NO_INT, "heads of q and out"),
    BOLIDE_I64_ROW(A, num_kv_heads, BOLIDE_NO_INT, "heads of the cache; divides num_qo_heads"),
    BOLIDE_I64_ROW(A, head_dim, BOLIDE_NO_INT, "of q and k: a multiple of 8 up to 576"),
    BOLIDE_I64_ROW(A, head_dim_vo, BOLIDE_NO_INT, "of v and out; default head_dim", OPTION),
    BOLIDE_I64_ROW(A, page_size, BOLIDE_NO_INT, "keys of a page"),
    BOLIDE_ENUM_ROW(A, kv_layout, "NHD HND", BOLIDE_NHD, "order of a page's dimensions"),
    BOLIDE_DTYPE_ROW(A, q_data_type, FLOATS, BOLIDE_F16, "dtype of q"),
    BOLIDE_DTYPE_ROW(A, kv_data_type, FLOATS, BOLIDE_NO_INT, "of the cache; default q's", OPTION),
    BOLIDE_DTYPE_ROW(A, o_data_type, FLOATS, BOLIDE_NO_INT, "of out; default q's or bf16", OPTION),
    BOLIDE_ENUM_ROW(A, pos_encoding_mode, "NONE ROPE_LLAMA ALIBI", BOLIDE_POS_NONE,
                    "positions inside the kernel"),
    BOLIDE_I64_ROW(A, q_len_per_req, 1, "query tokens of each request"),
    BOLIDE_BOOL_ROW(A, causal, 1, "whether a query sees no key behind its own position"),
    BOLIDE_BOOL_ROW(A, use_custom_mask, 0, "whether run gets a mask, which replaces causal"),
    BOLIDE_I64_ROW(A, window_left, -1, "keys visible before the query's own; -1: all"),
    BOLIDE_F64_ROW(A, logits_soft_cap, NAN, "cap * tanh(s / cap); 0: off", OPTION),
    BOLIDE_F64_ROW(A, sm_scale, NAN, "of the logits; default 1/sqrt(head_dim)", OPTION),
    BOLIDE_F64_ROW(A, rope_scale, 1, "divides positions in ROPE_LLAMA"),
    BOLIDE_F64_ROW(A, rope_theta, 1e4, "base of the frequencies in ROPE_LLAMA"),
    BOLIDE_I64_ROW(A, fixed_split_size, BOLIDE_NO_INT, "pages of a piece; 0, -1: balanced", OPTION),
    BOLIDE_BOOL_ROW(A, disable_split_kv, 0, "whether each request stays in one piece"),
    BOLIDE_I64_ROW(A, max_batch_size, BOLIDE_NO_INT, "declared maximum of b", OPTION),
    BOLIDE_I64_ROW(A, max_sequence_kv, BOLIDE_NO_INT, "declared maximum of a length", OPTION),
    BOLIDE_WORKSPACE_ROW(A, workspace, "memory of the plan's live part and of runs"),
    BOLIDE_PLAN_ROW(A, plan, "memory of the plan"),
};
#undef A

#define A bolide_batch_decode_run_args
static const bolide_param run_rows[] = {
    BOLIDE_IN(A, q, "n h_q d_qk", BOLIDE_LIKE(q_data_type), "queries"),
    BOLIDE_IN(A, k_cache, "kv_layout=NHD: p page_size h_kv d_qk; HND: p h_kv page_size d_qk",
              BOLIDE_LIKE(kv_data_type), "pages of keys"),
    BOLIDE_IN(A, v_cache, "kv_layout=NHD: p page_size h_kv d_vo; HND: p h_kv page_size d_vo",
              BOLIDE_LIKE(kv_data_type), "pages of values"),
    BOLIDE_IN(A, indices, "n_indices", BOLIDE_I32, "page ids, request behind request", OPTION),
    BOLIDE_IN(A, block_tables, "b m", BOLIDE_I32, "page ids, one row a request", OPTION),
    BOLIDE_IN(A, custom_mask, "n_mask", BOLIDE_BOOL, "q_len * kv_len a request", OPTION),
    BOLIDE_IN(A, packed_custom_mask, "n_mask_bytes", BOLIDE_U8, "the same in bits", OPTION),
    BOLIDE_IN(A, sinks, "h_q", BOLIDE_F32, "logit that joins each row's sum", OPTION),
    BOLIDE_F64_OR(A, q_scale, " | _", BOLIDE_F32, 1, "what a stored 1.0 of q stands for"),
    BOLIDE_F64_OR(A, k_scale, " | _", BOLIDE_F32, 1, "the same of k"),
    BOLIDE_F64_OR(A, v_scale, " | _", BOLIDE_F32, 1, "the same of v"),
    BOLIDE_F64_OR(A, o_scale, " | _", BOLIDE_F32, 1, "the same of out"),
    BOLIDE_BOOL_ROW(A, return_lse_base_on_e, 0, "whether lse is a natural logarithm"),
    BOLIDE_OUT(A, out, "n h_q d_vo", BOLIDE_LIKE(o_data_type), "result"),
    BOLIDE_OUT(A, lse, "n h_q", BOLIDE_F32, "log2 of each row's sum of exp", OPTION),
    BOLIDE_WORKSPACE_ROW(A, workspace, "the plan's"),
    BOLIDE_PLAN_ROW(A, plan, "made by batch_decode_plan"),
};
#undef A

enum { MAGIC = 0x42444543 };

/* ---- plan --------------------------------------------------------------------------------- */

static bolide__attention_problem problem_of(const bolide__call *call) {
    const bolide_batch_decode_plan_args *a = call->args;
    const bolide_tensor *lens = a->seq_lens ? a->seq_lens : a->last_page_len;
    return (bolide__attention_problem){
        .h_q = a->num_qo_heads,
        .h_kv = a->num_kv_heads,
        .d_qk = a->head_dim,
        .d_vo = a->head_dim_vo == BOLIDE_NO_INT ? a->head_dim : a->head_dim_vo,
        .page_size = a->page_size,
        .kv_layout = a->kv_layout,
        .q_dtype = a->q_data_type,
        .kv_dtype = a->kv_data_type,
        .o_dtype = a->o_data_type,
        .pos_encoding_mode = a->pos_encoding_mode,
        .causal = a->causal,
        .use_custom_mask = a->use_custom_mask,
        .window_left = a->window_left,
        .logits_soft_cap = a->logits_soft_cap,
        .sm_scale = a->sm_scale,
        .rope_scale = a->rope_scale,
        .rope_theta = a->rope_theta,
        .fixed_split_size = a->fixed_split_size,
        .disable_split_kv = a->disable_split_kv,
        .q_len_per_req = a->q_len_per_req,
        .max_batch = a->max_batch_size,
        .max_rows = BOLIDE_NO_INT,
        .max_kv_len = a->max_sequence_kv,
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
                 .max_rows = "max_batch_size",
                 .max_kv_len = "max_sequence_kv"},
        .workspace = a->workspace,
        .plan = a->plan,
        .magic = MAGIC,
    };
}

static bolide_status check_plan(const bolide__call *call) {
    const bolide__attention_problem pr = problem_of(call);
    if (pr.q_len_per_req < 1 || pr.page_size < 1)
        return BOLIDE_FAIL_ARG(call, pr.page_size < 1 ? "page_size" : "q_len_per_req", "value",
                               "at least 1", "%lld",
                               (long long)(pr.page_size < 1 ? pr.page_size : pr.q_len_per_req));
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
        .q = a->q,
        .k = a->k_cache,
        .v = a->v_cache,
        .indices = a->indices,
        .block_tables = a->block_tables,
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
    const bolide__attention_run_args a = run_args(call);
    return bolide__attention_check_run(call, &a);
}

static bolide_status decode_cpu(const bolide__call *call) {
    const bolide__attention_run_args a = run_args(call);
    bolide__attention_params p = bolide__attention_fill(&a);
    return bolide__attention_cpu_run(call, &p);
}

const bolide_op bolide_op_batch_decode = {
    .name = "batch_decode",
    .family = "attention",
    .doc = "attention of a few new tokens of each request over its paged cache",
    .run = BOLIDE_ENTRY(bolide_batch_decode_run_args, run_rows),
    .plan = BOLIDE_ENTRY(bolide_batch_decode_plan_args, plan_rows),
    .check = check_run,
    .check_plan = check_plan,
    .cpu = decode_cpu,
    .make_plan = make_plan,
    .plan_magic = MAGIC,
    .plan_min_bytes = sizeof(bolide__attention_plan),
    .plan_dims = bolide__attention_plan_dims,
    .workspace = sizes_of,
};

bolide_status bolide_batch_decode_workspace(const bolide_context *ctx,
                                            const bolide_batch_decode_plan_args *args,
                                            bolide_sizes *sizes) {
    return bolide_op_workspace(&bolide_op_batch_decode, ctx, args, sizes);
}

bolide_status bolide_batch_decode_plan(const bolide_context *ctx,
                                       const bolide_batch_decode_plan_args *args,
                                       bolide_stream stream) {
    return bolide_run(&bolide_op_batch_decode, BOLIDE_PLAN, ctx, args, stream);
}

bolide_status bolide_batch_decode_run(const bolide_context *ctx,
                                      const bolide_batch_decode_run_args *args,
                                      bolide_stream stream) {
    return bolide_run(&bolide_op_batch_decode, BOLIDE_RUN, ctx, args, stream);
}
