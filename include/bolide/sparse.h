// SPDX-License-Identifier: Apache-2.0
//
// Attention where queries and keys are the rows and columns of a matrix of M x N, of which only
// some blocks are seen. Row block i is the rows qo_indptr[i] … qo_indptr[i + 1] - 1 of q; it sees
// the column blocks indices[indptr[i]] … indices[indptr[i + 1] - 1], in any order; column block c
// is the keys c * C … c * C + C - 1. Time goes with the blocks that are seen. A row block without
// any gives 0 and an lse of -inf.
//
// Positions are places in the matrix, aligned at the bottom right: row x of q stands at position
// x + N - M, column y at y. `causal`, window_left, ROPE_LLAMA and ALIBI go by these.
//
// Where key heads see different blocks, lay the heads behind one another: q of f * M rows and k of
// f * N keys, each with the heads that one of the f parts has. Positions then begin again in each
// part, and a row block lies within one; the slopes of ALIBI are those of f * num_qo_heads heads,
// part behind part.
//
// Blocks of other sizes within one matrix: take a C that divides all of them, and list each block
// as several.
//
// Scales, logits, lse and plans are those of attention.h.

#ifndef BOLIDE_SPARSE_H
#define BOLIDE_SPARSE_H

#include <bolide/attention.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bolide_block_sparse_attention_plan_args {
    bolide_args_head head;
    /* Each tensor on the host or on the device. */
    const bolide_tensor *qo_indptr; /* [b+1] i32: first row of each row block */
    const bolide_tensor *indptr;    /* [b+1] i32: first entry of each row block in indices */
    int64_t M;                      /* rows of the matrix */
    int64_t N;                      /* its columns: a multiple of C */
    int64_t C;                      /* keys of a column block */
    int64_t num_qo_heads;
    int64_t num_kv_heads;      /* divides num_qo_heads */
    int64_t head_dim;          /* of q and k: a multiple of 8, at most 576 */
    int64_t head_dim_vo;       /* of v and out, likewise; default head_dim */
    int64_t kv_layout;         /* bolide_kv_layout, default NHD */
    int64_t q_data_type;       /* f16 (default), bf16, f32, f8_e4m3fn, f8_e5m2 */
    int64_t kv_data_type;      /* the same set; default q_data_type */
    int64_t o_data_type;       /* the same set; default q_data_type, bf16 if that has 8 bits */
    int64_t pos_encoding_mode; /* bolide_pos_encoding_mode, default NONE */
    int64_t causal;            /* default 0 */
    int64_t use_custom_mask; /* run gets custom_mask or packed_custom_mask, which replaces causal */
    int64_t window_left;     /* default -1: no limit */
    double logits_soft_cap;  /* absent or 0: off */
    double sm_scale;         /* absent: 1/sqrt(head_dim) */
    double rope_scale;       /* default 1 */
    double rope_theta;       /* default 10000 */
    int64_t fixed_split_size; /* column blocks in a piece; absent, 0, -1: balanced. With it a row
                                 block has the same bits alone and among any others */
    int64_t disable_split_kv; /* 1: one piece a tile, again the same bits in any company */
    int64_t max_batch_size;   /* declared maxima, see above: of row blocks, */
    int64_t max_num_rows;     /* of rows; needed when qo_indptr lies on the device, */
    int64_t max_sequence_kv;  /* of keys that a row block sees */
    const bolide_workspace *workspace;
    bolide_plan *plan;
} bolide_block_sparse_attention_plan_args;

typedef struct bolide_block_sparse_attention_run_args {
    bolide_args_head head;
    const bolide_tensor *q;       /* [n, h_q, d_qk] */
    const bolide_tensor *k;       /* [n_kv, h_kv, d_qk], HND: [h_kv, n_kv, d_qk] */
    const bolide_tensor *v;       /* the same with d_vo */
    const bolide_tensor *indices; /* [n_indices] i32: column blocks, row block behind row block */
    /* The mask of row block i has a row for each of its rows, and in it an element for each key of
     * its column blocks, in the order of indices. */
    const bolide_tensor *custom_mask;          /* [n_mask] bool: 1: seen */
    const bolide_tensor *packed_custom_mask;   /* [n_mask_bytes] u8: the same in bits, lowest first,
                                                  each row block from a new byte */
    const bolide_tensor *sinks;                /* [h_q] f32: a logit that joins each row's sum */
    double q_scale, k_scale, v_scale, o_scale; /* default 1 */
    const bolide_tensor *q_scale_tensor;       /* [], [1] or [h_q] f32 */
    const bolide_tensor *k_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *v_scale_tensor;       /* [], [1] or [h_kv] f32 */
    const bolide_tensor *o_scale_tensor;       /* [] or [1] f32 */
    int64_t return_lse_base_on_e;              /* default 0 */
    const bolide_tensor *out;                  /* [n, h_q, d_vo] */
    const bolide_tensor *lse;                  /* [n, h_q] f32, or NULL */
    const bolide_workspace *workspace;         /* the plan's */
    bolide_plan *plan;
} bolide_block_sparse_attention_run_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_block_sparse_attention_workspace(
    const bolide_context *ctx, const bolide_block_sparse_attention_plan_args *args,
    bolide_sizes *sizes);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_block_sparse_attention_plan(
    const bolide_context *ctx, const bolide_block_sparse_attention_plan_args *args,
    bolide_stream stream);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_block_sparse_attention_run(
    const bolide_context *ctx, const bolide_block_sparse_attention_run_args *args,
    bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
