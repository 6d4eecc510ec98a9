// SPDX-License-Identifier: Apache-2.0
//
// Paged KV caches: lengths, positions and appending.
//
// A cache is a pool of pages. Request r owns the pages kv_indices[kv_indptr[r] … kv_indptr[r+1]-1];
// all are full but the last, which holds kv_last_page_len[r] tokens, 1 to page_size. No page means
// length 0. Token t of the request lies in slot t % page_size of its page number t / page_size.
// Layouts: NHD [pages, page_size, heads, head_dim], HND [pages, heads, page_size, head_dim]. Every
// dimension of a cache but the last may be strided, so a layer of a larger cache, or K and V in one
// tensor, are views. Index tensors are int32 and lie where the cache lies; offsets are 64-bit.

#ifndef BOLIDE_PAGE_H
#define BOLIDE_PAGE_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[r] = tokens of request r: 0 without pages, else (pages - 1) * page_size + last_page_len. */
typedef struct bolide_get_seq_lens_args {
    bolide_args_head head;
    const bolide_tensor *kv_indptr;        /* [b+1]: i32, not decreasing */
    const bolide_tensor *kv_last_page_len; /* [b]: i32 */
    int64_t page_size;                     /* tokens of a page, at least 1 */
    const bolide_tensor *out;              /* [b]: i32 */
} bolide_get_seq_lens_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_get_seq_lens(const bolide_context *ctx,
                                                             const bolide_get_seq_lens_args *args,
                                                             bolide_stream stream);

/* For each appended token its request and its position in that request. Request r appends
 * append_indptr[r+1] - append_indptr[r] tokens, the last ones of its seq_lens[r] (the length after
 * the append). Elements of the outputs behind append_indptr[b] become -1 and 0, which
 * append_paged_kv_cache skips, so outputs may be longer than needed (graphs). */
typedef struct bolide_get_batch_indices_positions_args {
    bolide_args_head head;
    const bolide_tensor *append_indptr; /* [b+1]: i32, from 0, not decreasing */
    const bolide_tensor *seq_lens;      /* [b]: i32 */
    const bolide_tensor *batch_indices; /* [nnz]: i32 */
    const bolide_tensor *positions;     /* [nnz]: i32 */
} bolide_get_batch_indices_positions_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_get_batch_indices_positions(
    const bolide_context *ctx, const bolide_get_batch_indices_positions_args *args,
    bolide_stream stream);

/* Writes token i of append_key and append_value into the caches, as token positions[i] of request
 * batch_indices[i]. Skipped, with nothing written: a request outside 0 … b-1, a position outside
 * the request's length, a page outside the pool. The dtype of a cache is that of what is appended,
 * or one of fewer bits: then values are rounded to nearest even, for fp8 also clamped to the
 * format's finite range; NaN stays NaN. Two tokens must not name the same slot. */
typedef struct bolide_append_paged_kv_cache_args {
    bolide_args_head head;
    const bolide_tensor *append_key;       /* [nnz, h_kv, d_qk]: f16, bf16, f32, fp8 */
    const bolide_tensor *append_value;     /* [nnz, h_kv, d_vo]: dtype of append_key */
    const bolide_tensor *batch_indices;    /* [nnz]: i32 */
    const bolide_tensor *positions;        /* [nnz]: i32 */
    const bolide_tensor *k_cache;          /* NHD [p, page_size, h_kv, d_qk], HND: see above */
    const bolide_tensor *v_cache;          /* the same with d_vo; dtype of k_cache */
    const bolide_tensor *kv_indices;       /* [any]: i32 */
    const bolide_tensor *kv_indptr;        /* [b+1]: i32 */
    const bolide_tensor *kv_last_page_len; /* [b]: i32 */
    int64_t kv_layout;                     /* 0 NHD (default), 1 HND */
} bolide_append_paged_kv_cache_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_append_paged_kv_cache(
    const bolide_context *ctx, const bolide_append_paged_kv_cache_args *args, bolide_stream stream);

/* The same for a latent (MLA) cache: one compressed row and one RoPE row a token, no heads. Either
 * cache may be absent, together with what is appended to it. */
typedef struct bolide_append_paged_mla_kv_cache_args {
    bolide_args_head head;
    const bolide_tensor *append_ckv;       /* [nnz, d_ckv]: f16, bf16, f32, fp8; optional */
    const bolide_tensor *append_kpe;       /* [nnz, d_kpe]; optional */
    const bolide_tensor *batch_indices;    /* [nnz]: i32 */
    const bolide_tensor *positions;        /* [nnz]: i32 */
    const bolide_tensor *ckv_cache;        /* [p, page_size, d_ckv]; optional */
    const bolide_tensor *kpe_cache;        /* [p, page_size, d_kpe]; optional */
    const bolide_tensor *kv_indices;       /* [any]: i32 */
    const bolide_tensor *kv_indptr;        /* [b+1]: i32 */
    const bolide_tensor *kv_last_page_len; /* [b]: i32 */
} bolide_append_paged_mla_kv_cache_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_append_paged_mla_kv_cache(
    const bolide_context *ctx, const bolide_append_paged_mla_kv_cache_args *args,
    bolide_stream stream);

/* k[i, h, :] = (k_nope[i, h, :], k_rope[i, 0, :]): the keys of expanded multi-head latent
 * attention, the RoPE part shared by all heads (DeepSeek-V2, arXiv:2405.04434, equation 16). */
typedef struct bolide_concat_mla_k_args {
    bolide_args_head head;
    const bolide_tensor *k;      /* [n, h, d_nope + d_rope], written */
    const bolide_tensor *k_nope; /* [n, h, d_nope]: f16, bf16, f32, fp8 */
    const bolide_tensor *k_rope; /* [n, 1, d_rope]: dtype of k_nope */
} bolide_concat_mla_k_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_concat_mla_k(const bolide_context *ctx,
                                                             const bolide_concat_mla_k_args *args,
                                                             bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
