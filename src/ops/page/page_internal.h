// SPDX-License-Identifier: Apache-2.0
//
// What the page kernels share: the parameter structs, taken by CPU and device kernels alike, and
// the address of a token.

#ifndef BOLIDE_OPS_PAGE_INTERNAL_H
#define BOLIDE_OPS_PAGE_INTERNAL_H

#ifndef __CUDACC_RTC__
#include "cpu/cpu.h"
#include <stdint.h>
#define BOLIDE_PAGE_FN static inline
#else
#define BOLIDE_PAGE_FN __device__ inline
#endif

#include "core/rows_internal.h"

/* A page table: which page a token of a request lies in. */
typedef struct bolide__page_table {
    const int32_t *indices;       /* [index_count] */
    const int32_t *indptr;        /* [b + 1] */
    const int32_t *last_page_len; /* [b] */
    int64_t index_count;
    int64_t b;
    int64_t page_size;
    int64_t pages; /* in the pool */
} bolide__page_table;

/* Page of token `position` of request r, and its slot there; -1 where there is none. */
BOLIDE_PAGE_FN int64_t bolide__page_of(const bolide__page_table *t, int64_t r, int64_t position,
                                       int64_t *slot) {
    if (r < 0 || r >= t->b || position < 0)
        return -1;
    const int64_t first = t->indptr[r], count = t->indptr[r + 1] - first;
    const int64_t length = count > 0 ? (count - 1) * t->page_size + t->last_page_len[r] : 0;
    const int64_t at = first + position / t->page_size;
    if (position >= length || at < 0 || at >= t->index_count)
        return -1;
    const int64_t page = t->indices[at];
    *slot = position % t->page_size;
    return page >= 0 && page < t->pages ? page : -1;
}

/* One side of an append: rows of d elements to slots of a cache. Strides are in elements; the last
 * dimension is contiguous. data NULL: the side is absent. */
typedef struct bolide__append_side {
    const void *source; /* [nnz, h, d] */
    void *cache;        /* pages, slots, heads, d by the strides below */
    int64_t d;
    int64_t source_n, source_h;
    int64_t cache_page, cache_slot, cache_head;
} bolide__append_side;

typedef struct bolide__append_params {
    bolide__page_table table;
    const int32_t *batch_indices; /* [nnz] */
    const int32_t *positions;     /* [nnz] */
    int64_t nnz;
    int64_t h;
    int64_t source_dtype, cache_dtype;
    bolide__append_side side[2]; /* key and value, or ckv and kpe */
    int64_t threads;             /* of the device kernel: of a token */
} bolide__append_params;

typedef struct bolide__concat_params {
    void *k;            /* [n, h, d_nope + d_rope] */
    const void *k_nope; /* [n, h, d_nope] */
    const void *k_rope; /* [n, d_rope] */
    int64_t n, h, d_nope, d_rope;
    int64_t k_n, k_h, nope_n, nope_h, rope_n; /* strides in elements */
    int64_t elem_bytes;
    int64_t columns; /* of the device kernel: vectors of a head */
} bolide__concat_params;

typedef struct bolide__seq_lens_params {
    const int32_t *indptr;        /* [b + 1] */
    const int32_t *last_page_len; /* [b] */
    int32_t *out;                 /* [b] */
    int64_t b;
    int64_t page_size;
} bolide__seq_lens_params;

typedef struct bolide__positions_params {
    const int32_t *append_indptr; /* [b + 1] */
    const int32_t *seq_lens;      /* [b] */
    int32_t *batch_indices;       /* [nnz] */
    int32_t *positions;           /* [nnz] */
    int64_t b;
    int64_t nnz;
} bolide__positions_params;

#ifndef __CUDACC_RTC__
/* arg is a bolide__append_params; items are tokens. */
BOLIDE_CPU_KERNEL(append_tokens, (void *arg, int64_t begin, int64_t end, int worker));
#endif

#endif
