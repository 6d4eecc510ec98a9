// SPDX-License-Identifier: Apache-2.0
//
// Attention over caches of keys and values. The batch operators take three calls:
//
//     bolide_batch_decode_workspace(ctx, &plan_args, &sizes);   // what to bring
//     bolide_batch_decode_plan(ctx, &plan_args, stream);        // when lengths change
//     bolide_batch_decode_run(ctx, &run_args, stream);          // once a layer
//
// What all of them share:
//
// - Query head h reads key head h / (num_qo_heads / num_kv_heads). Softmax and sums run in f32.
// - A request's queries are its last tokens: query i of q_len has position kv_len - q_len + i, and
//   with `causal` sees the keys up to its own position.
// - Logits: (q . k) * sm_scale * q_scale * k_scale, then logits_soft_cap * tanh(s / cap), then the
//   ALiBi bias, then the mask. sm_scale is 1/sqrt(head_dim_qk) unless given.
// - window_left = w >= 0 leaves the keys from w before the query on, on top of any other mask.
// - A row that sees no key is 0 with an lse of -inf (of the sink where there are sinks).
// - lse is log2 of the sum of exp over the visible keys and the sink; with
//   return_lse_base_on_e the natural logarithm.
// - A scale is a number or an f32 tensor of one element or of one a head. q_scale, k_scale and
//   v_scale say what a stored 1.0 stands for; what is stored in out is the result / o_scale.
// - An out of 8 bits is held in its finite range, infinite results too: +-448 for f8_e4m3fn,
//   +-57344 for f8_e5m2. NaN stays NaN.
// - Keys behind a request's length are never read, so unused page tails may hold anything.
//
// A plan is a function of lengths and options only. It lies in the caller's memory, holds no
// pointer, and stays valid while workspace.device_int is left alone. Its frozen part depends on
// the declared maxima only, so that a captured run stays right when the plan is made again; the
// maxima, at most 2^31 - 1 each, default to the plan's own values, rounded up. Page ids are read
// when a run or a replay executes, lengths are those of the last plan: pages may be exchanged
// without a new plan, a request that has grown needs one, and none can make a replay hang.

#ifndef BOLIDE_ATTENTION_H
#define BOLIDE_ATTENTION_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Order of a cache's dimensions: [page, token, head, dim] or [page, head, token, dim]; without
 * pages [token, head, dim] or [head, token, dim]. Strides are honoured in either. */
typedef enum bolide_kv_layout { BOLIDE_NHD, BOLIDE_HND } bolide_kv_layout;

/* Positions inside the kernel: none; rotary embedding of queries and keys in halves (pairs i and
 * i + head_dim/2, angle position / rope_scale * rope_theta^(-2i/head_dim)); or the linear bias of
 * ALiBi, slope_h * (key position - query position), with the paper's slopes for any head count. */
typedef enum bolide_pos_encoding_mode {
    BOLIDE_POS_NONE,
    BOLIDE_POS_ROPE_LLAMA,
    BOLIDE_POS_ALIBI
} bolide_pos_encoding_mode;

/* ---- custom variants ------------------------------------------------------------------------ */

/* A number or an array that the texts of a variant use by its name. */
typedef struct bolide_variant_param {
    const char *name;            /* a C name */
    double number;               /* const float in the texts, if tensor is NULL */
    const bolide_tensor *tensor; /* contiguous f32, i32 or u8 where the context computes: a const
                                    float *, int32_t * or uint8_t * in the texts, as they lie */
} bolide_variant_param;

/* Attention changed by texts of C, compiled at first use: for the GPU with the kernel, for the CPU
 * by the system's compiler `cc`; where there is none the call is refused. Each text is the body of
 * a function that returns its value, written so that it is C11 and C++17, and may call what
 * <math.h> has in f32. It sees the parameters, and of these ints what its place has:
 *
 *     request, q_len, kv_len, kv_head     everywhere
 *     query, position, head               in logits, mask, query, output: token among the
 *                                         request's queries, its position, head of q
 *     key                                 in logits, mask, key, value: position of the key
 *     dim                                 in query, key, value, output: column of the head
 *
 *     variant.logits = "return x + slope[head] * (key - position);";
 *     variant.mask = "return (position - key) % step == 0;";
 *
 * A text that is NULL changes nothing. What the parameters hold may change from run to run, the
 * texts and the names may not: a plan counts on nothing but the presence of a variant. */
typedef struct bolide_variant {
    int64_t size;       /* sizeof the struct that the caller was compiled with */
    const char *logits; /* float x, after scales, soft cap and ALiBi: the logit, natural base */
    const char *mask;   /* whether the key is seen, on top of any other mask */
    const char *query;  /* float x, an element of q as stored, before scales and RoPE */
    const char *key;    /* the same of k */
    const char *value;  /* float x, an element of v as stored, before v_scale */
    const char *output; /* float x, an element of the result, before o_scale */
    int64_t no_softmax; /* 1: what logits returns is the weight itself; sums are not divided, and
                           there are no sinks and no lse */
    const bolide_variant_param *params;
    int64_t param_count;      /* at most 8 */
    const char *declarations; /* C++ in front of the texts, for the GPU alone: types and functions
                                 that they use. With it a text may also name `at` and `extra`, what
                                 the names above are taken from */
} bolide_variant;

/* ---- batch_decode: a few new tokens of each request against its paged cache ----------------- */

typedef struct bolide_batch_decode_plan_args {
    bolide_args_head head;
    /* Lengths; each tensor on the host or on the device. On the device they cost one copy back
     * and one wait on the stream. */
    const bolide_tensor *indptr; /* [b+1] i32: request i owns entries indptr[i] … indptr[i+1]-1 of
                                    indices; NULL when run gets block_tables */
    const bolide_tensor *last_page_len; /* [b] i32: keys in the last page, 1 … page_size */
    const bolide_tensor *seq_lens;      /* [b] i32: keys of each request; either this or
                                           last_page_len */
    int64_t num_qo_heads;
    int64_t num_kv_heads; /* divides num_qo_heads */
    int64_t head_dim;     /* of q and k: a multiple of 8, at most 576 */
    int64_t head_dim_vo;  /* of v and out, likewise; default head_dim */
    int64_t page_size;
    int64_t kv_layout;         /* bolide_kv_layout, default NHD */
    int64_t q_data_type;       /* f16 (default), bf16, f32, f8_e4m3fn, f8_e5m2 */
    int64_t kv_data_type;      /* the same set; default q_data_type */
    int64_t o_data_type;       /* the same set; default q_data_type, bf16 if that has 8 bits */
    int64_t pos_encoding_mode; /* bolide_pos_encoding_mode, default NONE */
    int64_t q_len_per_req;     /* query tokens of each request, default 1 */
    int64_t causal;            /* among a request's own query tokens, default 1 */
    int64_t use_custom_mask; /* run gets custom_mask or packed_custom_mask, which replaces causal */
    int64_t window_left;     /* default -1: no limit */
    double logits_soft_cap;  /* absent or 0: off */
    double sm_scale;         /* absent: 1/sqrt(head_dim) */
    double rope_scale;       /* default 1 */
    double rope_theta;       /* default 10000 */
    int64_t fixed_split_size; /* pages in a piece of a request; absent, 0, -1: balanced. With it a
                                 request has the same bits alone and in any batch */
    int64_t disable_split_kv; /* 1: one piece a request */
    int64_t max_batch_size;   /* declared maxima, see above */
    int64_t max_sequence_kv;
    const bolide_workspace *workspace;
    bolide_plan *plan;
    const bolide_variant *variant; /* or NULL; the same texts as in run */
    int64_t plan_on_device; /* 1: lengths stay on the GPU and a kernel plans there: no wait, and a
                               capture may hold it. Needs seq_lens, and no custom mask; the split
                               is balanced. On the CPU like 0; default 0 */
} bolide_batch_decode_plan_args;

typedef struct bolide_batch_decode_run_args {
    bolide_args_head head;
    const bolide_tensor *q;       /* [b * q_len_per_req, h_q, d_qk], tokens of a request together */
    const bolide_tensor *k_cache; /* [p, page_size, h_kv, d_qk] or [p, h_kv, page_size, d_qk] */
    const bolide_tensor *v_cache; /* the same with d_vo */
    const bolide_tensor *indices; /* [n] i32: page ids, request behind request */
    const bolide_tensor *block_tables; /* [b, m] i32: page ids a request; in place of indices */
    const bolide_tensor *custom_mask;  /* [n] bool: q_len * kv_len a request, row by row; 1: seen */
    const bolide_tensor *packed_custom_mask;   /* [n] u8: the same in bits, lowest first, each
                                                  request from a new byte */
    const bolide_tensor *sinks;                /* [h_q] f32: a logit that joins each row's sum */
    double q_scale, k_scale, v_scale, o_scale; /* default 1 */
    const bolide_tensor *q_scale_tensor;       /* [], [1] or [h_q] f32 */
    const bolide_tensor *k_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *v_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *o_scale_tensor;       /* [] or [1] f32 */
    int64_t return_lse_base_on_e;              /* default 0 */
    const bolide_tensor *out;                  /* [b * q_len_per_req, h_q, d_vo] */
    const bolide_tensor *lse;                  /* [b * q_len_per_req, h_q] f32, or NULL */
    const bolide_workspace *workspace;         /* the plan's */
    bolide_plan *plan;
    const bolide_variant *variant;       /* or NULL; as planned */
    const bolide_tensor *draft_mask;     /* [n, w] u8, u16 or u32: a row of bits for each row of q,
                                            lowest first. Bit i: whether the request's query token i
                                            is seen; all keys before its query tokens are. Needs
                                            causal = 0 in the plan */
    const bolide_tensor *v_block_tables; /* [b, m_v] i32: page ids of values, where block_tables
                                            holds those of keys alone */
} bolide_batch_decode_run_args;

/* Pure. Lengths are not read, except for fixed_split_size without max_sequence_kv. */
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_decode_workspace(
    const bolide_context *ctx, const bolide_batch_decode_plan_args *args, bolide_sizes *sizes);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_decode_plan(
    const bolide_context *ctx, const bolide_batch_decode_plan_args *args, bolide_stream stream);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_decode_run(
    const bolide_context *ctx, const bolide_batch_decode_run_args *args, bolide_stream stream);

/* ---- batch_prefill_paged: any number of query tokens against paged caches ------------------- */

typedef struct bolide_batch_prefill_paged_plan_args {
    bolide_args_head head;
    /* Lengths; each tensor on the host or on the device. */
    const bolide_tensor *qo_indptr;       /* [b+1] i32: request i owns rows qo_indptr[i] … of q */
    const bolide_tensor *paged_kv_indptr; /* [b+1] i32: and entries … of paged_kv_indices; NULL when
                                             run gets block_tables */
    const bolide_tensor *paged_kv_last_page_len; /* [b] i32: keys in the last page */
    const bolide_tensor *seq_lens;   /* [b] i32: keys; either this or paged_kv_last_page_len */
    const bolide_tensor *seq_lens_q; /* [b] i32: rows, where qo_indptr leaves more; or NULL */
    int64_t num_qo_heads;
    int64_t num_kv_heads; /* divides num_qo_heads */
    int64_t head_dim_qk;  /* a multiple of 8, at most 576 */
    int64_t head_dim_vo;  /* likewise; default head_dim_qk */
    int64_t page_size;
    int64_t kv_layout;         /* bolide_kv_layout, default NHD */
    int64_t q_data_type;       /* f16 (default), bf16, f32, f8_e4m3fn, f8_e5m2 */
    int64_t kv_data_type;      /* the same set; default q_data_type */
    int64_t o_data_type;       /* the same set; default q_data_type, bf16 if that has 8 bits */
    int64_t pos_encoding_mode; /* bolide_pos_encoding_mode, default NONE */
    int64_t causal;            /* default 0 */
    int64_t use_custom_mask; /* run gets custom_mask or packed_custom_mask, which replaces causal */
    int64_t window_left;     /* default -1: no limit */
    double logits_soft_cap;  /* absent or 0: off */
    double sm_scale;         /* absent: 1/sqrt(head_dim_qk) */
    double rope_scale;       /* default 1 */
    double rope_theta;       /* default 10000 */
    int64_t fixed_split_size; /* pages in a piece; absent, 0, -1: balanced. With it a request has
                                 the same bits alone and in any batch */
    int64_t disable_split_kv; /* 1: one piece a tile, again the same bits in any batch */
    int64_t max_batch_size;   /* declared maxima, see above */
    int64_t max_num_rows;     /* of q; needed when qo_indptr lies on the device */
    int64_t max_sequence_kv;
    int64_t max_token_per_sequence; /* a request with more rows is refused; absent: no limit */
    const bolide_workspace *workspace;
    bolide_plan *plan;
    const bolide_variant *variant;  /* or NULL; the same texts as in run */
    int64_t chunked_attention_size; /* c > 0: a query at position p sees no key before c * floor(p /
                                       c), the first of its chunk; default 0: off */
    const bolide_tensor *o_indptr;  /* [b+1] i32: rows of out; default qo_indptr */
    int64_t plan_on_device; /* 1: lengths stay on the GPU and a kernel plans there: no wait, and a
                               capture may hold it. Needs seq_lens and max_num_rows; the split is
                               balanced, and rows of out behind o_indptr are not checked. On the
                               CPU like 0; default 0 */
} bolide_batch_prefill_paged_plan_args;

typedef struct bolide_batch_prefill_paged_run_args {
    bolide_args_head head;
    const bolide_tensor *q;       /* [n, h_q, d_qk] */
    const bolide_tensor *k_cache; /* [p, page_size, h_kv, d_qk] or [p, h_kv, page_size, d_qk] */
    const bolide_tensor *v_cache; /* the same with d_vo */
    const bolide_tensor *paged_kv_indices; /* [n] i32: page ids, request behind request */
    const bolide_tensor *block_tables;     /* [b, m] i32: page ids a request; in place of these */
    const bolide_tensor *custom_mask; /* [n] bool: q_len * kv_len a request, row by row; 1: seen */
    const bolide_tensor *packed_custom_mask;   /* [n] u8: the same in bits, lowest first, each
                                                  request from a new byte */
    const bolide_tensor *sinks;                /* [h_q] f32: a logit that joins each row's sum */
    double q_scale, k_scale, v_scale, o_scale; /* default 1 */
    const bolide_tensor *q_scale_tensor;       /* [], [1] or [h_q] f32 */
    const bolide_tensor *k_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *v_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *o_scale_tensor;       /* [] or [1] f32 */
    int64_t return_lse_base_on_e;              /* default 0 */
    /* Multi-item scoring, causal only: a token behind the prefix sees the prefix and the tokens of
     * its own item, not its delimiter. */
    const bolide_tensor *prefix_len_ptr;         /* [b] u32 or i32: keys of the shared prefix */
    const bolide_tensor *token_pos_in_items_ptr; /* [b * len] u16: from the prefix on, each token's
                                                    place in its item; 0: a delimiter */
    int64_t token_pos_in_items_len;              /* len: entries of a request in the above */
    const bolide_tensor *max_item_len_ptr;       /* [b] u16: bound of the places, or NULL */
    const bolide_tensor *out;                    /* [n_o, h_q, d_vo]; n_o is n without o_indptr */
    const bolide_tensor *lse;                    /* [n, h_q] f32, or NULL */
    const bolide_workspace *workspace;           /* the plan's */
    bolide_plan *plan;
    const bolide_variant *variant;       /* or NULL; as planned */
    const bolide_tensor *draft_mask;     /* [n, w] u8, u16 or u32: a row of bits for each row of q,
                                            lowest first. Bit i: whether the request's query token i
                                            is seen; all keys before its query tokens are. Needs
                                            causal = 0 in the plan */
    const bolide_tensor *v_block_tables; /* [b, m_v] i32: page ids of values, where block_tables
                                            holds those of keys alone */
} bolide_batch_prefill_paged_run_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_prefill_paged_workspace(
    const bolide_context *ctx, const bolide_batch_prefill_paged_plan_args *args,
    bolide_sizes *sizes);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_prefill_paged_plan(
    const bolide_context *ctx, const bolide_batch_prefill_paged_plan_args *args,
    bolide_stream stream);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_prefill_paged_run(
    const bolide_context *ctx, const bolide_batch_prefill_paged_run_args *args,
    bolide_stream stream);

/* ---- batch_prefill_ragged: keys and values packed request behind request --------------------- */

typedef struct bolide_batch_prefill_ragged_plan_args {
    bolide_args_head head;
    /* Lengths; each tensor on the host or on the device. */
    const bolide_tensor *qo_indptr; /* [b+1] i32: request i owns rows qo_indptr[i] … of q and lse */
    const bolide_tensor *kv_indptr;  /* [b+1] i32: and rows … of k */
    const bolide_tensor *v_indptr;   /* [b+1] i32: and rows … of v; default kv_indptr */
    const bolide_tensor *o_indptr;   /* [b+1] i32: and rows … of out; default qo_indptr */
    const bolide_tensor *seq_lens;   /* [b] i32: keys, where kv_indptr leaves more; or NULL */
    const bolide_tensor *seq_lens_q; /* [b] i32: rows, where qo_indptr leaves more; or NULL */
    int64_t num_qo_heads;
    int64_t num_kv_heads;      /* divides num_qo_heads */
    int64_t head_dim_qk;       /* a multiple of 8, at most 576 */
    int64_t head_dim_vo;       /* likewise; default head_dim_qk */
    int64_t kv_layout;         /* bolide_kv_layout, default NHD */
    int64_t q_data_type;       /* f16 (default), bf16, f32, f8_e4m3fn, f8_e5m2 */
    int64_t kv_data_type;      /* the same set; default q_data_type */
    int64_t o_data_type;       /* the same set; default q_data_type, bf16 if that has 8 bits */
    int64_t pos_encoding_mode; /* bolide_pos_encoding_mode, default NONE */
    int64_t causal;            /* default 0 */
    int64_t use_custom_mask; /* run gets custom_mask or packed_custom_mask, which replaces causal */
    int64_t window_left;     /* default -1: no limit */
    double logits_soft_cap;  /* absent or 0: off */
    double sm_scale;         /* absent: 1/sqrt(head_dim_qk) */
    double rope_scale;       /* default 1 */
    double rope_theta;       /* default 10000 */
    int64_t fixed_split_size; /* keys in a piece; absent, 0, -1: balanced. With it a request has the
                                 same bits alone and in any batch */
    int64_t disable_split_kv; /* 1: one piece a tile, again the same bits in any batch */
    int64_t max_batch_size;   /* declared maxima, see above */
    int64_t max_num_rows;     /* of q; needed when qo_indptr lies on the device */
    int64_t max_sequence_kv;
    int64_t max_token_per_sequence; /* a request with more rows is refused; absent: no limit */
    const bolide_workspace *workspace;
    bolide_plan *plan;
    const bolide_variant *variant;  /* or NULL; the same texts as in run */
    int64_t chunked_attention_size; /* c > 0: a query at position p sees no key before c * floor(p /
                                       c), the first of its chunk; default 0: off */
    int64_t plan_on_device; /* 1: lengths stay on the GPU and a kernel plans there: no wait, and a
                               capture may hold it. Needs max_num_rows; the split is balanced, and
                               rows of out behind o_indptr are not checked. On the CPU like 0;
                               default 0 */
} bolide_batch_prefill_ragged_plan_args;

typedef struct bolide_batch_prefill_ragged_run_args {
    bolide_args_head head;
    const bolide_tensor *q;           /* [n, h_q, d_qk] */
    const bolide_tensor *k;           /* [n_kv, h_kv, d_qk], HND: [h_kv, n_kv, d_qk] */
    const bolide_tensor *v;           /* [n_v, h_kv, d_vo], HND: [h_kv, n_v, d_vo] */
    const bolide_tensor *custom_mask; /* [n] bool: q_len * kv_len a request, row by row; 1: seen */
    const bolide_tensor *packed_custom_mask;   /* [n] u8: the same in bits, lowest first, each
                                                  request from a new byte */
    const bolide_tensor *sinks;                /* [h_q] f32: a logit that joins each row's sum */
    double q_scale, k_scale, v_scale, o_scale; /* default 1 */
    const bolide_tensor *q_scale_tensor;       /* [], [1] or [h_q] f32 */
    const bolide_tensor *k_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *v_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *o_scale_tensor;       /* [] or [1] f32 */
    int64_t return_lse_base_on_e;              /* default 0 */
    /* Multi-item scoring, causal only: a token behind the prefix sees the prefix and the tokens of
     * its own item, not its delimiter. */
    const bolide_tensor *prefix_len_ptr;         /* [b] u32 or i32: keys of the shared prefix */
    const bolide_tensor *token_pos_in_items_ptr; /* [b * len] u16: from the prefix on, each token's
                                                    place in its item; 0: a delimiter */
    int64_t token_pos_in_items_len;              /* len: entries of a request in the above */
    const bolide_tensor *max_item_len_ptr;       /* [b] u16: bound of the places, or NULL */
    const bolide_tensor *out;                    /* [n_o, h_q, d_vo]; n_o is n without o_indptr */
    const bolide_tensor *lse;                    /* [n, h_q] f32, or NULL */
    const bolide_workspace *workspace;           /* the plan's */
    bolide_plan *plan;
    const bolide_variant *variant; /* or NULL; as planned */
} bolide_batch_prefill_ragged_run_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_prefill_ragged_workspace(
    const bolide_context *ctx, const bolide_batch_prefill_ragged_plan_args *args,
    bolide_sizes *sizes);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_prefill_ragged_plan(
    const bolide_context *ctx, const bolide_batch_prefill_ragged_plan_args *args,
    bolide_stream stream);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_prefill_ragged_run(
    const bolide_context *ctx, const bolide_batch_prefill_ragged_run_args *args,
    bolide_stream stream);

/* ---- batch_attention: prefill and decode requests mixed ----------------------------------------
 */

typedef struct bolide_batch_attention_plan_args {
    bolide_args_head head;
    /* Lengths; each tensor on the host or on the device. */
    const bolide_tensor *qo_indptr;  /* [b+1] i32: request i owns rows qo_indptr[i] … of q */
    const bolide_tensor *kv_indptr;  /* [b+1] i32: and entries … of kv_indices; NULL when run gets
                                        block_tables */
    const bolide_tensor *kv_len_arr; /* [b] i32: keys of each request */
    int64_t num_qo_heads;
    int64_t num_kv_heads; /* divides num_qo_heads */
    int64_t head_dim_qk;  /* a multiple of 8, at most 576 */
    int64_t head_dim_vo;  /* likewise; default head_dim_qk */
    int64_t page_size;
    int64_t kv_layout;         /* bolide_kv_layout, default NHD */
    int64_t q_data_type;       /* f16 (default), bf16, f32, f8_e4m3fn, f8_e5m2 */
    int64_t kv_data_type;      /* the same set; default q_data_type */
    int64_t o_data_type;       /* the same set; default q_data_type, bf16 if that has 8 bits */
    int64_t pos_encoding_mode; /* bolide_pos_encoding_mode, default NONE */
    int64_t causal;            /* default 0 */
    int64_t use_custom_mask; /* run gets custom_mask or packed_custom_mask, which replaces causal */
    int64_t window_left;     /* default -1: no limit */
    double logits_soft_cap;  /* absent or 0: off */
    double sm_scale;         /* absent: 1/sqrt(head_dim_qk) */
    double rope_scale;       /* default 1 */
    double rope_theta;       /* default 10000 */
    int64_t fixed_split_size; /* pages in a piece; absent, 0, -1: balanced. With it a request has
                                 the same bits alone and in any batch */
    int64_t disable_split_kv; /* 1: one piece a tile, again the same bits in any batch */
    int64_t max_batch_size;   /* declared maxima, see above */
    int64_t max_num_rows;     /* of q; needed when qo_indptr lies on the device */
    int64_t max_sequence_kv;
    const bolide_workspace *workspace;
    bolide_plan *plan;
    const bolide_variant *variant; /* or NULL; the same texts as in run */
} bolide_batch_attention_plan_args;

typedef struct bolide_batch_attention_run_args {
    bolide_args_head head;
    const bolide_tensor *q;          /* [n, h_q, d_qk] */
    const bolide_tensor *k_cache;    /* [p, page_size, h_kv, d_qk] or [p, h_kv, page_size, d_qk] */
    const bolide_tensor *v_cache;    /* the same with d_vo */
    const bolide_tensor *kv_indices; /* [n] i32: page ids, request behind request */
    const bolide_tensor *block_tables; /* [b, m] i32: page ids a request; in place of these */
    const bolide_tensor *custom_mask;  /* [n] bool: q_len * kv_len a request, row by row; 1: seen */
    const bolide_tensor *packed_custom_mask;   /* [n] u8: the same in bits, lowest first, each
                                                  request from a new byte */
    const bolide_tensor *sinks;                /* [h_q] f32: a logit that joins each row's sum */
    double q_scale, k_scale, v_scale, o_scale; /* default 1 */
    const bolide_tensor *q_scale_tensor;       /* [], [1] or [h_q] f32 */
    const bolide_tensor *k_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *v_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *o_scale_tensor;       /* [] or [1] f32 */
    int64_t return_lse_base_on_e;              /* default 0 */
    double logits_soft_cap;                    /* of this run; absent: the plan's */
    const bolide_tensor *out;                  /* [n, h_q, d_vo] */
    const bolide_tensor *lse;                  /* [n, h_q] f32, or NULL */
    const bolide_workspace *workspace;         /* the plan's */
    bolide_plan *plan;
    const bolide_variant *variant; /* or NULL; as planned */
} bolide_batch_attention_run_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_attention_workspace(
    const bolide_context *ctx, const bolide_batch_attention_plan_args *args, bolide_sizes *sizes);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_attention_plan(
    const bolide_context *ctx, const bolide_batch_attention_plan_args *args, bolide_stream stream);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_attention_run(
    const bolide_context *ctx, const bolide_batch_attention_run_args *args, bolide_stream stream);

/* ---- batch_mla: multi-head latent attention over paged caches of latents -----------------------
 */

/* DeepSeek's multi-head latent attention (arXiv 2405.04434, 2.1) with the up-projections absorbed
 * into q and out: all heads share one key a token, whose first head_dim_ckv columns are the latent
 * and also the value, and whose last head_dim_kpe carry the rotary position. */
typedef struct bolide_batch_mla_plan_args {
    bolide_args_head head;
    /* Lengths; each tensor on the host or on the device. */
    const bolide_tensor *qo_indptr;  /* [b+1] i32: request i owns rows qo_indptr[i] … of q */
    const bolide_tensor *kv_indptr;  /* [b+1] i32: and entries … of kv_indices; NULL when run gets
                                        block_tables */
    const bolide_tensor *kv_len_arr; /* [b] i32: keys of each request */
    int64_t num_heads;               /* of q and out */
    int64_t head_dim_ckv;            /* of the latent: a multiple of 16 */
    int64_t head_dim_kpe; /* of the rotary part: 0 or a multiple of 8; both at most 576 */
    int64_t page_size;
    int64_t q_data_type;     /* f16 (default), bf16, f32, f8_e4m3fn, f8_e5m2 */
    int64_t kv_data_type;    /* the same set; default q_data_type */
    int64_t o_data_type;     /* the same set; default q_data_type, bf16 if that has 8 bits */
    int64_t causal;          /* default 0 */
    int64_t use_custom_mask; /* run gets custom_mask or packed_custom_mask, which replaces causal */
    int64_t window_left;     /* default -1: no limit */
    double logits_soft_cap;  /* absent or 0: off */
    double sm_scale;         /* of the logits; needed, since it follows from the head size before
                                absorption:         1/sqrt(128 + 64) for DeepSeek-V3 */
    int64_t fixed_split_size; /* pages in a piece; absent, 0, -1: balanced. With it a request has
                                 the same bits alone and in any batch */
    int64_t disable_split_kv; /* 1: one piece a tile, again the same bits in any batch */
    int64_t max_batch_size;   /* declared maxima, see above */
    int64_t max_num_rows;     /* of q; needed when qo_indptr lies on the device */
    int64_t max_sequence_kv;
    const bolide_workspace *workspace;
    bolide_plan *plan;
    int64_t plan_on_device; /* 1: lengths stay on the GPU and a kernel plans there: no wait, and a
                               capture may hold it. Needs max_num_rows; the split is balanced. On
                               the CPU like 0; default 0 */
} bolide_batch_mla_plan_args;

typedef struct bolide_batch_mla_run_args {
    bolide_args_head head;
    const bolide_tensor *q_nope;             /* [n, h, d_ckv]: multiplied into the latent's space */
    const bolide_tensor *q_pe;               /* [n, h, d_kpe]; NULL if head_dim_kpe is 0 */
    const bolide_tensor *ckv_cache;          /* [p, page_size, d_ckv] */
    const bolide_tensor *kpe_cache;          /* [p, page_size, d_kpe]; NULL if head_dim_kpe is 0 */
    const bolide_tensor *kv_indices;         /* [n_indices] i32: page ids, request behind request */
    const bolide_tensor *block_tables;       /* [b, m] i32: page ids a request; in place of these */
    const bolide_tensor *custom_mask;        /* [n_mask] bool: q_len * kv_len a request; 1: seen */
    const bolide_tensor *packed_custom_mask; /* [n_mask_bytes] u8: the same in bits, lowest first,
                                                each request from a new byte */
    const bolide_tensor *sinks;              /* [h] f32: a logit that joins each row's sum */
    double q_scale, ckv_scale, kpe_scale, o_scale; /* default 1; ckv_scale counts as k_scale and as
                                                      v_scale */
    const bolide_tensor *q_scale_tensor;           /* [], [1] or [h] f32 */
    const bolide_tensor *ckv_scale_tensor;         /* [] or [1] f32 */
    const bolide_tensor *kpe_scale_tensor;         /* [] or [1] f32 */
    const bolide_tensor *o_scale_tensor;           /* [] or [1] f32 */
    int64_t return_lse_base_on_e;                  /* default 0 */
    const bolide_tensor *out;                      /* [n, h, d_ckv] */
    const bolide_tensor *lse;                      /* [n, h] f32, or NULL */
    const bolide_workspace *workspace;             /* the plan's */
    bolide_plan *plan;
    const bolide_tensor *ckv_scale_arr; /* [p, page_size, d_ckv/128] f32 or NULL: of each 128
                                           elements of a row of a ckv_cache of 8 bits, on top of
                                           ckv_scale; on the CPU */
} bolide_batch_mla_run_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_mla_workspace(
    const bolide_context *ctx, const bolide_batch_mla_plan_args *args, bolide_sizes *sizes);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_mla_plan(
    const bolide_context *ctx, const bolide_batch_mla_plan_args *args, bolide_stream stream);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_batch_mla_run(const bolide_context *ctx,
                                                              const bolide_batch_mla_run_args *args,
                                                              bolide_stream stream);

/* ---- one request, no plan -------------------------------------------------------------------- */

/* One query token. */
typedef struct bolide_single_decode_with_kv_cache_args {
    bolide_args_head head;
    const bolide_tensor *q;     /* [h_q, d_qk]: f16, bf16, f32, f8_e4m3fn, f8_e5m2 */
    const bolide_tensor *k;     /* [s, h_kv, d_qk], HND: [h_kv, s, d_qk]; the same set of dtypes */
    const bolide_tensor *v;     /* the same with d_vo; dtype of k */
    int64_t kv_layout;          /* bolide_kv_layout, default NHD */
    int64_t pos_encoding_mode;  /* bolide_pos_encoding_mode, default NONE */
    int64_t window_left;        /* default -1: no limit */
    double logits_soft_cap;     /* absent or 0: off */
    double sm_scale;            /* absent: 1/sqrt(d_qk) */
    double rope_scale;          /* default 1 */
    double rope_theta;          /* default 10000 */
    const bolide_tensor *sinks; /* [h_q] f32: a logit that joins each row's sum */
    double q_scale, k_scale, v_scale, o_scale; /* default 1 */
    const bolide_tensor *q_scale_tensor;       /* [], [1] or [h_q] f32 */
    const bolide_tensor *k_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *v_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *o_scale_tensor;       /* [] or [1] f32 */
    int64_t return_lse_base_on_e;              /* default 0 */
    const bolide_tensor *out;                  /* [h_q, d_vo]: the same set of dtypes */
    const bolide_tensor *lse;                  /* [h_q] f32, or NULL */
    const bolide_workspace *workspace;
    const bolide_variant *variant; /* or NULL */
} bolide_single_decode_with_kv_cache_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_single_decode_with_kv_cache(
    const bolide_context *ctx, const bolide_single_decode_with_kv_cache_args *args,
    bolide_stream stream);

/* Any number of query tokens. */
typedef struct bolide_single_prefill_with_kv_cache_args {
    bolide_args_head head;
    const bolide_tensor *q;           /* [n, h_q, d_qk]: f16, bf16, f32, f8_e4m3fn, f8_e5m2 */
    const bolide_tensor *k;           /* [s, h_kv, d_qk], HND: [h_kv, s, d_qk]; the same dtypes */
    const bolide_tensor *v;           /* the same with d_vo; dtype of k */
    const bolide_tensor *custom_mask; /* [n, s] bool; replaces causal */
    const bolide_tensor *packed_custom_mask; /* [ceil(n*s/8)] u8: the same in bits, lowest first */
    int64_t kv_layout;                       /* bolide_kv_layout, default NHD */
    int64_t pos_encoding_mode;               /* bolide_pos_encoding_mode, default NONE */
    int64_t causal;                          /* default 0 */
    int64_t window_left;                     /* default -1: no limit */
    double logits_soft_cap;                  /* absent or 0: off */
    double sm_scale;                         /* absent: 1/sqrt(d_qk) */
    double rope_scale;                       /* default 1 */
    double rope_theta;                       /* default 10000 */
    const bolide_tensor *sinks;              /* [h_q] f32: a logit that joins each row's sum */
    double q_scale, k_scale, v_scale, o_scale; /* default 1 */
    const bolide_tensor *q_scale_tensor;       /* [], [1] or [h_q] f32 */
    const bolide_tensor *k_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *v_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *o_scale_tensor;       /* [] or [1] f32 */
    int64_t return_lse_base_on_e;              /* default 0 */
    const bolide_tensor *out;                  /* [n, h_q, d_vo]: the same set of dtypes */
    const bolide_tensor *lse;                  /* [n, h_q] f32, or NULL */
    const bolide_workspace *workspace;
    const bolide_variant *variant; /* or NULL */
} bolide_single_prefill_with_kv_cache_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_single_prefill_with_kv_cache(
    const bolide_context *ctx, const bolide_single_prefill_with_kv_cache_args *args,
    bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
