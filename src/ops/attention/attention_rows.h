// SPDX-License-Identifier: Apache-2.0
//
// Rows and fields that every attention operator has under the same names, so that an option is
// described once. A is the args struct of the operator at hand.

#ifndef BOLIDE_OPS_ATTENTION_ROWS_H
#define BOLIDE_OPS_ATTENTION_ROWS_H

#include <bolide/attention.h>
#include <math.h>

#include "ops/attention/attention_internal.h"

#define BOLIDE__ATTN_DTYPES                                                                        \
    (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32 | BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2)
#define BOLIDE__ATTN_LENGTHS .flags = BOLIDE_EITHER | BOLIDE_OPTIONAL
#define BOLIDE__ATTN_OPTION .flags = BOLIDE_OPTIONAL

#define BOLIDE__ATTN_VARIANT_ROW(A)                                                                \
    BOLIDE_VARIANT_ROW(A, variant, "texts that change logits, mask, q, k, v, out",                 \
                       BOLIDE__ATTN_OPTION)

/* ---- plan --------------------------------------------------------------------------------- */

#define BOLIDE__ATTN_HEAD_ROWS(A)                                                                  \
    BOLIDE_I64_ROW(A, num_qo_heads, BOLIDE_NO_INT, "heads of q and out"),                          \
        BOLIDE_I64_ROW(A, num_kv_heads, BOLIDE_NO_INT, "heads of k and v; divides num_qo_heads"),  \
        BOLIDE_ENUM_ROW(A, kv_layout, "NHD HND", BOLIDE_NHD, "order of tokens and heads in k, v")

#define BOLIDE__ATTN_DTYPE_ROWS(A)                                                                 \
    BOLIDE_DTYPE_ROW(A, q_data_type, BOLIDE__ATTN_DTYPES, BOLIDE_F16, "dtype of q"),               \
        BOLIDE_DTYPE_ROW(A, kv_data_type, BOLIDE__ATTN_DTYPES, BOLIDE_NO_INT,                      \
                         "of k and v; default q's", BOLIDE__ATTN_OPTION),                          \
        BOLIDE_DTYPE_ROW(A, o_data_type, BOLIDE__ATTN_DTYPES, BOLIDE_NO_INT,                       \
                         "of out; default q's, bf16 for 8 bits", BOLIDE__ATTN_OPTION)

#define BOLIDE__ATTN_ENCODING_ROW(A)                                                               \
    BOLIDE_ENUM_ROW(A, pos_encoding_mode, "NONE ROPE_LLAMA ALIBI", BOLIDE_POS_NONE,                \
                    "positions inside the kernel")

#define BOLIDE__ATTN_CAP_ROWS(A)                                                                   \
    BOLIDE_I64_ROW(A, window_left, -1, "keys visible before the query's own; -1: all"),            \
        BOLIDE_F64_ROW(A, logits_soft_cap, NAN, "cap * tanh(s / cap); 0: off",                     \
                       BOLIDE__ATTN_OPTION)

#define BOLIDE__ATTN_LOGIT_ROWS(A)                                                                 \
    BOLIDE__ATTN_CAP_ROWS(A),                                                                      \
        BOLIDE_F64_ROW(A, sm_scale, NAN, "of the logits; default 1/sqrt of the head size",         \
                       BOLIDE__ATTN_OPTION),                                                       \
        BOLIDE_F64_ROW(A, rope_scale, 1, "divides positions in ROPE_LLAMA"),                       \
        BOLIDE_F64_ROW(A, rope_theta, 1e4, "base of the frequencies in ROPE_LLAMA")

#define BOLIDE__ATTN_SPLIT_ROWS(A, unit)                                                           \
    BOLIDE_BOOL_ROW(A, use_custom_mask, 0, "whether run gets a mask, which replaces causal"),      \
        BOLIDE_I64_ROW(A, fixed_split_size, BOLIDE_NO_INT, unit " of a piece; 0, -1: balanced",    \
                       BOLIDE__ATTN_OPTION),                                                       \
        BOLIDE_BOOL_ROW(A, disable_split_kv, 0, "whether each tile stays in one piece"),           \
        BOLIDE_I64_ROW(A, max_batch_size, BOLIDE_NO_INT, "declared maximum of requests",           \
                       BOLIDE__ATTN_OPTION),                                                       \
        BOLIDE_I64_ROW(A, max_sequence_kv, BOLIDE_NO_INT, "declared maximum of a length",          \
                       BOLIDE__ATTN_OPTION),                                                       \
        BOLIDE_WORKSPACE_ROW(A, workspace, "memory of the plan's live part and of runs"),          \
        BOLIDE_PLAN_ROW(A, plan, "memory of the plan")

#define BOLIDE__ATTN_DEVICE_ROW(A)                                                                 \
    BOLIDE_BOOL_ROW(A, plan_on_device, 0, "whether lengths stay on the GPU, where a kernel plans")

#define BOLIDE__ATTN_CHUNK_ROW(A)                                                                  \
    BOLIDE_I64_ROW(A, chunked_attention_size, 0, "keys of a chunk, the first a query sees; 0: off")

/* The fields behind the rows above, from arguments to bolide__attention_problem. */
#define BOLIDE__ATTN_LOGIT_FIELDS(a)                                                               \
    .kv_layout = (a)->kv_layout, .pos_encoding_mode = (a)->pos_encoding_mode,                      \
    .window_left = (a)->window_left, .logits_soft_cap = (a)->logits_soft_cap,                      \
    .sm_scale = (a)->sm_scale, .rope_scale = (a)->rope_scale, .rope_theta = (a)->rope_theta,       \
    .variant = (a)->variant

#define BOLIDE__ATTN_SPLIT_FIELDS(a)                                                               \
    .q_dtype = (a)->q_data_type, .kv_dtype = (a)->kv_data_type, .o_dtype = (a)->o_data_type,       \
    .causal = (a)->causal, .use_custom_mask = (a)->use_custom_mask,                                \
    .fixed_split_size = (a)->fixed_split_size, .disable_split_kv = (a)->disable_split_kv,          \
    .max_batch = (a)->max_batch_size, .max_kv_len = (a)->max_sequence_kv,                          \
    .workspace = (a)->workspace, .plan = (a)->plan

#define BOLIDE__ATTN_OPTION_FIELDS(a)                                                              \
    BOLIDE__ATTN_LOGIT_FIELDS(a), BOLIDE__ATTN_SPLIT_FIELDS(a), .h_q = (a)->num_qo_heads,          \
                                                                .h_kv = (a)->num_kv_heads

/* ---- run ---------------------------------------------------------------------------------- */

#define BOLIDE__ATTN_LIST_ROWS(A, list)                                                            \
    BOLIDE_IN(A, list, "n_indices", BOLIDE_I32, "page ids, request behind request",                \
              BOLIDE__ATTN_OPTION),                                                                \
        BOLIDE_IN(A, block_tables, "b m", BOLIDE_I32, "page ids, one row a request",               \
                  BOLIDE__ATTN_OPTION)

#define BOLIDE__ATTN_PAGE_ROWS(A, list)                                                            \
    BOLIDE_IN(A, k_cache, "kv_layout=NHD: p page_size h_kv d_qk; HND: p h_kv page_size d_qk",      \
              BOLIDE_LIKE(kv_data_type), "pages of keys"),                                         \
        BOLIDE_IN(A, v_cache, "kv_layout=NHD: p page_size h_kv d_vo; HND: p h_kv page_size d_vo",  \
                  BOLIDE_LIKE(kv_data_type), "pages of values"),                                   \
        BOLIDE__ATTN_LIST_ROWS(A, list)

#define BOLIDE__ATTN_SCALE_ROWS(A)                                                                 \
    BOLIDE_F64_OR(A, q_scale, " | _", BOLIDE_F32, 1, "what a stored 1.0 of q stands for"),         \
        BOLIDE_F64_OR(A, k_scale, " | _", BOLIDE_F32, 1, "the same of k"),                         \
        BOLIDE_F64_OR(A, v_scale, " | _", BOLIDE_F32, 1, "the same of v"),                         \
        BOLIDE_F64_OR(A, o_scale, " | _", BOLIDE_F32, 1, "the same of out"),                       \
        BOLIDE_BOOL_ROW(A, return_lse_base_on_e, 0, "whether lse is a natural logarithm")

#define BOLIDE__ATTN_MASK_ROWS(A)                                                                  \
    BOLIDE_IN(A, custom_mask, "n_mask", BOLIDE_BOOL, "q_len * kv_len a request",                   \
              BOLIDE__ATTN_OPTION),                                                                \
        BOLIDE_IN(A, packed_custom_mask, "n_mask_bytes", BOLIDE_U8, "the same in bits",            \
                  BOLIDE__ATTN_OPTION),                                                            \
        BOLIDE_IN(A, sinks, "h_q", BOLIDE_F32, "logit that joins each row's sum",                  \
                  BOLIDE__ATTN_OPTION)

#define BOLIDE__ATTN_DRAFT_ROWS(A)                                                                 \
    BOLIDE_IN(A, draft_mask, "n w", BOLIDE_U8 | BOLIDE_U16 | BOLIDE_U32,                           \
              "bits over the request's query tokens", BOLIDE__ATTN_OPTION),                        \
        BOLIDE_IN(A, v_block_tables, "b m_v", BOLIDE_I32, "page ids of values where they differ",  \
                  BOLIDE__ATTN_OPTION)

#define BOLIDE__ATTN_ITEM_ROWS(A)                                                                  \
    BOLIDE_IN(A, prefix_len_ptr, "b", BOLIDE_U32 | BOLIDE_I32, "keys that all items share",        \
              BOLIDE__ATTN_OPTION),                                                                \
        BOLIDE_IN(A, token_pos_in_items_ptr, "n_token_pos", BOLIDE_U16,                            \
                  "each token's place in its item, 0 a delimiter", BOLIDE__ATTN_OPTION),           \
        BOLIDE_I64_ROW(A, token_pos_in_items_len, 0, "entries of a request in the above"),         \
        BOLIDE_IN(A, max_item_len_ptr, "b", BOLIDE_U16, "longest item of each request",            \
                  BOLIDE__ATTN_OPTION)

#define BOLIDE__ATTN_OUT_ROWS(A, out_rows)                                                         \
    BOLIDE_OUT(A, out, out_rows " h_q d_vo", BOLIDE_LIKE(o_data_type), "result"),                  \
        BOLIDE_OUT(A, lse, "n h_q", BOLIDE_F32, "log2 of each row's sum of exp",                   \
                   BOLIDE__ATTN_OPTION),                                                           \
        BOLIDE_WORKSPACE_ROW(A, workspace, "the plan's"),                                          \
        BOLIDE_PLAN_ROW(A, plan, "made by the plan call")

#define BOLIDE__ATTN_SCALE_FIELDS(a)                                                               \
    .q_scale = (a)->q_scale, .k_scale = (a)->k_scale, .v_scale = (a)->v_scale,                     \
    .o_scale = (a)->o_scale, .q_scale_tensor = (a)->q_scale_tensor,                                \
    .k_scale_tensor = (a)->k_scale_tensor, .v_scale_tensor = (a)->v_scale_tensor,                  \
    .o_scale_tensor = (a)->o_scale_tensor, .lse_base_e = (a)->return_lse_base_on_e,                \
    .sinks = (a)->sinks, .out = (a)->out, .lse = (a)->lse, .workspace = (a)->workspace,            \
    .variant = (a)->variant

#define BOLIDE__ATTN_RUN_FIELDS(a)                                                                 \
    BOLIDE__ATTN_SCALE_FIELDS(a), .q = (a)->q, .custom_mask = (a)->custom_mask,                    \
                                  .packed_custom_mask = (a)->packed_custom_mask, .plan = (a)->plan

#define BOLIDE__ATTN_DRAFT_FIELDS(a)                                                               \
    .draft_mask = (a)->draft_mask, .v_block_tables = (a)->v_block_tables

#define BOLIDE__ATTN_ITEM_FIELDS(a)                                                                \
    .prefix_len = (a)->prefix_len_ptr, .token_pos = (a)->token_pos_in_items_ptr,                   \
    .token_pos_len = (a)->token_pos_in_items_len, .max_item_len = (a)->max_item_len_ptr

/* ---- the operator ------------------------------------------------------------------------- */

/* The operator with a plan, and its three public calls, of a front that has plan_rows and run_rows,
 * check_plan, sizes_of and make_plan, check_run and run, and its MAGIC. */
#define BOLIDE__ATTN_PLANNED(op, text)                                                             \
    const bolide_op bolide_op_##op = {                                                             \
        .name = #op,                                                                               \
        .family = "attention",                                                                     \
        .doc = text,                                                                               \
        .run = BOLIDE_ENTRY(bolide_##op##_run_args, run_rows),                                     \
        .plan = BOLIDE_ENTRY(bolide_##op##_plan_args, plan_rows),                                  \
        .check = check_run,                                                                        \
        .check_plan = check_plan,                                                                  \
        .cpu = run,                                                                                \
        .cuda = run,                                                                               \
        .make_plan = make_plan,                                                                    \
        .plan_magic = MAGIC,                                                                       \
        .plan_min_bytes = sizeof(bolide__attention_plan),                                          \
        .plan_dims = bolide__attention_plan_dims,                                                  \
        .workspace = sizes_of,                                                                     \
    };                                                                                             \
    bolide_status bolide_##op##_workspace(                                                         \
        const bolide_context *ctx, const bolide_##op##_plan_args *args, bolide_sizes *sizes) {     \
        return bolide_op_workspace(&bolide_op_##op, ctx, args, sizes);                             \
    }                                                                                              \
    bolide_status bolide_##op##_plan(const bolide_context *ctx,                                    \
                                     const bolide_##op##_plan_args *args, bolide_stream stream) {  \
        return bolide_run(&bolide_op_##op, BOLIDE_PLAN, ctx, args, stream);                        \
    }                                                                                              \
    bolide_status bolide_##op##_run(const bolide_context *ctx, const bolide_##op##_run_args *args, \
                                    bolide_stream stream) {                                        \
        return bolide_run(&bolide_op_##op, BOLIDE_RUN, ctx, args, stream);                         \
    }

#endif
