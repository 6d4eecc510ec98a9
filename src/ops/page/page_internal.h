// SPDX-License-Identifier: Apache-2.0
//
// What the page kernels share: the parameter structs, taken by CPU and device kernels alike.

#ifndef BOLIDE_OPS_PAGE_INTERNAL_H
#define BOLIDE_OPS_PAGE_INTERNAL_H

#include "core/page_table_internal.h"
#include "core/rows_internal.h"

#ifndef __CUDACC_RTC__
#include "cpu/cpu.h"
#include <stdint.h>
#endif

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
