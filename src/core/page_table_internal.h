// SPDX-License-Identifier: Apache-2.0
//
// Where a token of a request lies in a paged cache, for operators that write there, on the host and
// on the device. A request, position or page that the table does not have gives -1, so a wrong
// table cannot lead outside the pool.

#ifndef BOLIDE_CORE_PAGE_TABLE_INTERNAL_H
#define BOLIDE_CORE_PAGE_TABLE_INTERNAL_H

#ifndef __CUDACC_RTC__
#include <stdint.h>
#define BOLIDE_PAGE_FN static inline
#else
#define BOLIDE_PAGE_FN __device__ inline
#endif

/* A page table: which page a token of a request lies in. */
typedef struct bolide__page_table {
    const int32_t *indices;       /* [index_count] */
    const int32_t *indptr;        /* [b + 1] */
    const int32_t *last_page_len; /* [b]; NULL: every page is full */
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
    const int64_t last = t->last_page_len ? t->last_page_len[r] : t->page_size;
    const int64_t length = count > 0 ? (count - 1) * t->page_size + last : 0;
    const int64_t at = first + position / t->page_size;
    if (position >= length || at < 0 || at >= t->index_count)
        return -1;
    const int64_t page = t->indices[at];
    *slot = position % t->page_size;
    return page >= 0 && page < t->pages ? page : -1;
}

#endif
