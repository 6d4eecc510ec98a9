// SPDX-License-Identifier: Apache-2.0
//
// The k largest of each row, plain or mapped to where a sparse attention finds them. All selections
// are exact and deterministic, whatever the flag deterministic says: which values are taken and the
// order in which they are written follow from the row alone.
//
//   order       ascending index; sorted: descending value, equal values as tie_break prefers them
//   ties        of values equal to the k-th: tie_break SMALL and NONE take the lowest indices,
//               LARGE the highest
//   NaN         ranks below -inf
//   windows     row i looks at columns [start, start + length), start and length clamped to the
//   row;
//               indices are relative to start. A window of at most k columns gives 0, 1, 2, … as
//               they stand, then index -1 (and value -inf)
//
// Numbers in tensors (lengths, starts, page tables) lie in device memory. Those that point outside
// are harmless: a window is clamped, and a page that the table does not have gives -1.

#ifndef BOLIDE_TOPK_H
#define BOLIDE_TOPK_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum bolide_topk_tie_break {
    BOLIDE_TIE_NONE,  /* any; Bolide takes the lowest indices */
    BOLIDE_TIE_SMALL, /* the lowest indices */
    BOLIDE_TIE_LARGE  /* the highest indices */
} bolide_topk_tie_break;

/* The k largest of each row: values and indices. */
typedef struct bolide_top_k_args {
    bolide_args_head head;
    const bolide_tensor *input;   /* [n, v]: f16, bf16, f32; v contiguous */
    int64_t k;                    /* 0 to v */
    int64_t sorted;               /* default 0: ascending index */
    int64_t deterministic;        /* default 0; results are deterministic either way */
    int64_t tie_break;            /* bolide_topk_tie_break; default NONE */
    int64_t out_dtype;            /* of indices: i64 (default) or i32 */
    const bolide_tensor *values;  /* [n, k]: dtype of input */
    const bolide_tensor *indices; /* [n, k]: out_dtype */
} bolide_top_k_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_k(const bolide_context *ctx,
                                                      const bolide_top_k_args *args,
                                                      bolide_stream stream);

/* The k largest of a window of each row, through a page table. With idx relative to the window,
 * page = src_page_table[request, page_start + idx / page_size] and
 * out = page * page_size + idx % page_size. request is row_to_batch[i], or i; page_start is
 * page_table_row_starts[i], or row_starts[i], or 0. */
typedef struct bolide_top_k_page_table_transform_args {
    bolide_args_head head;
    const bolide_tensor *input;          /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *src_page_table; /* [b, pages]: i32; pages contiguous */
    const bolide_tensor *lengths;        /* [n]: i32, length of the window */
    int64_t k;                           /* 0 or more */
    const bolide_tensor *row_to_batch;   /* [n]: i32; NULL: row i is request i */
    int64_t deterministic;               /* default 0; results are deterministic either way */
    int64_t tie_break;                   /* bolide_topk_tie_break; default NONE */
    const bolide_tensor *row_starts;     /* [n]: i32; NULL: 0 */
    const bolide_tensor *page_table_row_starts; /* [n]: i32, in pages; NULL: row_starts */
    int64_t page_size;                          /* columns a page: a power of two; default 1 */
    const bolide_tensor *out;                   /* [n, k]: i32 */
    const bolide_tensor *out_raw_indices;       /* [n, k]: i32, idx itself; NULL: not wanted */
} bolide_top_k_page_table_transform_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_k_page_table_transform(
    const bolide_context *ctx, const bolide_top_k_page_table_transform_args *args,
    bolide_stream stream);

/* The k largest of a window of each row: out = offsets[i] + index relative to the window. */
typedef struct bolide_top_k_ragged_transform_args {
    bolide_args_head head;
    const bolide_tensor *input;      /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *offsets;    /* [n]: i32 */
    const bolide_tensor *lengths;    /* [n]: i32, length of the window */
    int64_t k;                       /* 0 or more */
    int64_t deterministic;           /* default 0; results are deterministic either way */
    int64_t tie_break;               /* bolide_topk_tie_break; default NONE */
    const bolide_tensor *row_starts; /* [n]: i32; NULL: 0 */
    const bolide_tensor *out;        /* [n, k]: i32 */
} bolide_top_k_ragged_transform_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status
bolide_top_k_ragged_transform(const bolide_context *ctx,
                              const bolide_top_k_ragged_transform_args *args, bolide_stream stream);

/* Names of implementations elsewhere: one exact selection serves all. */
typedef enum bolide_topk_backend {
    BOLIDE_TOPK_AUTO,
    BOLIDE_TOPK_RADIX,
    BOLIDE_TOPK_GVR, /* refused without pre_idx, which it is about */
    BOLIDE_TOPK_RADIX_CUTLASS
} bolide_topk_backend;

/* The top_k largest for decoding: next_n rows a request. Row t of request r looks at its first
 * max(0, seq_lens[r] - next_n + t + 1) / compress_ratio columns, rounded down. */
typedef struct bolide_top_k_varlen_args {
    bolide_args_head head;
    const bolide_tensor *logits;      /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *seq_lens;    /* [n/next_n]: i32, in tokens before compression */
    int64_t top_k;                    /* 0 or more */
    const bolide_tensor *pre_idx;     /* [n/next_n, top_k]: i32, what the step before found, a */
                                      /* guess that shortens the search; NULL: none */
    int64_t compress_ratio;           /* tokens a column; default 1 */
    int64_t next_n;                   /* rows a request; default 1 */
    int64_t backend;                  /* bolide_topk_backend; default AUTO */
    const bolide_tensor *out_indices; /* [n, top_k]: i32 */
    const bolide_tensor *out_values;  /* [n, top_k]: dtype of logits; NULL: not wanted */
} bolide_top_k_varlen_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_k_varlen(const bolide_context *ctx,
                                                             const bolide_top_k_varlen_args *args,
                                                             bolide_stream stream);

/* The top_k largest of each row: indices, and values if wanted. */
typedef struct bolide_topk_clusters_exact_args {
    bolide_args_head head;
    const bolide_tensor *logits;  /* [n, v]: f16, bf16, f32; v contiguous */
    int64_t top_k;                /* 0 to v */
    int64_t out_dtype;            /* of indices: i32 (default) or i64 */
    const bolide_tensor *indices; /* [n, top_k]: out_dtype */
    const bolide_tensor *values;  /* [n, top_k]: dtype of logits; NULL: not wanted */
} bolide_topk_clusters_exact_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_topk_clusters_exact(
    const bolide_context *ctx, const bolide_topk_clusters_exact_args *args, bolide_stream stream);

/* out = src_page_table[i, index] of the top_k largest among the first seq_lens[i] columns. */
typedef struct bolide_topk_clusters_page_table_transform_args {
    bolide_args_head head;
    const bolide_tensor *logits;         /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *seq_lens;       /* [n]: i32 */
    const bolide_tensor *src_page_table; /* [n, pages]: i32; pages contiguous */
    int64_t top_k;                       /* 0 or more */
    const bolide_tensor *out;            /* [n, top_k]: i32 */
} bolide_topk_clusters_page_table_transform_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_topk_clusters_page_table_transform(
    const bolide_context *ctx, const bolide_topk_clusters_page_table_transform_args *args,
    bolide_stream stream);

/* out = offsets[i] + index of the top_k largest among the first seq_lens[i] columns. */
typedef struct bolide_topk_clusters_ragged_transform_args {
    bolide_args_head head;
    const bolide_tensor *logits;   /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *seq_lens; /* [n]: i32 */
    const bolide_tensor *offsets;  /* [n]: i32 */
    int64_t top_k;                 /* 0 or more */
    const bolide_tensor *out;      /* [n, top_k]: i32 */
} bolide_topk_clusters_ragged_transform_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_topk_clusters_ragged_transform(
    const bolide_context *ctx, const bolide_topk_clusters_ragged_transform_args *args,
    bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
