// SPDX-License-Identifier: Apache-2.0
//
// Requests and their pages, drawn once for a problem: what the references of all operators that
// write into a paged cache share. The keys are those of tests/ref/page_ref.c.

#ifndef BOLIDE_TESTS_PAGE_REF_H
#define BOLIDE_TESTS_PAGE_REF_H

#include "ref.h"

enum { REF_PAGE_REQUESTS = 4096 };

/* Tokens behind the appended ones that must be skipped: no request, a request too many, a position
 * at the length, a negative position. */
enum { REF_PAGE_SKIPPED = 4 };

/* What dims draws and fill and ref read again. */
typedef struct ref_page_table {
    int64_t len[REF_PAGE_REQUESTS], append[REF_PAGE_REQUESTS];
    int64_t b, page_size, pages, tokens;
} ref_page_table;

/* In dims: lengths, and with them the dimension b. */
ref_page_table *ref_page_draw(ref_call *c);
/* In fill: kv_indptr, kv_last_page_len, kv_indices, and batch_indices and positions of the appended
 * tokens and of those that must be skipped. Tensors that the operator lacks are left out. */
void ref_page_fill(ref_call *c);

#endif
