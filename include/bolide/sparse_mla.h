// SPDX-License-Identifier: Apache-2.0
//
// Multi-head latent attention over lists of keys: each query token names the rows of the cache that
// it attends to, as the indexers of DeepSeek V3.2 and V4 choose them. There is no plan: lists and
// their lengths are read where they lie when the call executes, so a captured call follows them.
//
//     bolide_sparse_mla_workspace(ctx, &args, &sizes);
//     bolide_sparse_mla(ctx, &args, stream);
//
// All heads share one key a row: a latent, which begins with the value, and a rotary part behind
// it. Logits are (q . k) * bmm1_scale, the result is multiplied by bmm2_scale. A query without keys
// is 0 with an lse of -inf (of its sink where there are sinks). A key that a list names twice
// counts twice. An out of 8 bits is held in its finite range as in attention.h.

#ifndef BOLIDE_SPARSE_MLA_H
#define BOLIDE_SPARSE_MLA_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a cache holds a key.
 *
 *   PLAIN     d_qk elements of the cache's dtype.
 *   FP8_656   656 bytes: 512 e4m3; 4 f32, each the scale of 128 of them; 64 bf16, the rotary part,
 *             which is not read where d_qk is 512.
 *   FP8_584   a page of bytes: rows of 576 (448 e4m3, then 64 bf16), and behind the last of them
 *             rows of 8 (7 e8m0, each the scale of 64 e4m3; 1 unused). d_qk = d_vo = 512.
 */
typedef enum bolide_mla_kv_format {
    BOLIDE_MLA_KV_PLAIN,
    BOLIDE_MLA_KV_FP8_656,
    BOLIDE_MLA_KV_FP8_584
} bolide_mla_kv_format;

/* Keys come from two lists, the second of which is optional, with a cache of its own. Row i of a
 * cache lies on page i / page_size. An entry below 0, or behind the cache's last row, names no key,
 * wherever in a list it stands. */
typedef struct bolide_sparse_mla_args {
    bolide_args_head head;
    const bolide_tensor *q;         /* [n, h_q, d_qk]: f16, bf16, f32, f8_e4m3fn, f8_e5m2 */
    const bolide_tensor *kv_cache;  /* [p, page_size, d_qk] of the same set; or u8 with 656 or 584
                                       in place of d_qk; pages and rows may be strided */
    int64_t kv_format;              /* bolide_mla_kv_format, default PLAIN; of both caches */
    const bolide_tensor *indices;   /* [n, k] i32: rows of kv_cache */
    const bolide_tensor *topk_lens; /* [n] i32: entries of indices that count; NULL: all */
    /* The keys of each request, [b] i32, or NULL: the query at position p of its request then
     * counts no more than p + 1 entries of indices. A request's queries are its last tokens:
     * qo_indptr, [b+1] i32, says which; NULL: each has n / b. */
    const bolide_tensor *seq_lens;
    const bolide_tensor *qo_indptr;
    const bolide_tensor *extra_kv_cache;     /* [p_x, page_size_x, d_qk] like kv_cache, or NULL */
    const bolide_tensor *extra_indices;      /* [n, k_x] i32: its rows; this or the next */
    const bolide_tensor *extra_block_tables; /* [n, m_x] i32: its pages, each with all its rows */
    const bolide_tensor *extra_topk_lens;    /* [n] i32: rows that count; NULL: all */
    int64_t extra_topk_lens_offset;          /* taken off each of extra_topk_lens; default 0 */
    const bolide_tensor *sinks;              /* [h_q] f32: a logit that joins each row's sum */
    double bmm1_scale, bmm2_scale;           /* default 1 */
    const bolide_tensor *bmm1_scale_tensor;  /* [] or [1] f32 */
    const bolide_tensor *bmm2_scale_tensor;  /* [] or [1] f32 */
    int64_t return_lse_base_on_e;            /* default 0: lse is a log2 */
    const bolide_tensor *out; /* [n, h_q, d_vo]: the dtypes of q; d_vo is at most d_qk */
    const bolide_tensor *lse; /* [n, h_q] f32, or NULL */
    const bolide_workspace *workspace;
} bolide_sparse_mla_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_sparse_mla_workspace(
    const bolide_context *ctx, const bolide_sparse_mla_args *args, bolide_sizes *sizes);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_sparse_mla(const bolide_context *ctx,
                                                           const bolide_sparse_mla_args *args,
                                                           bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
