// SPDX-License-Identifier: Apache-2.0
//
// A batch of the attention references: lengths drawn from the keys of a problem, and the values
// that follow from them (attention_batch.c).

#ifndef BOLIDE_TESTS_ATTENTION_BATCH_H
#define BOLIDE_TESTS_ATTENTION_BATCH_H

#include "ref.h"

enum { MAX_REQUESTS = 4096 };

/* What dims draws and fill and ref read again. */
typedef struct batch {
    int64_t b, page_size, pages;
    int64_t chunk; /* of chunked attention; 0: off */
    int causal;
    int64_t q_len[MAX_REQUESTS], kv_len[MAX_REQUESTS];
    int64_t q_start[MAX_REQUESTS + 1], page_start[MAX_REQUESTS + 1];
    int64_t mask_elem[MAX_REQUESTS + 1], mask_byte[MAX_REQUESTS + 1];
    int64_t k_start[MAX_REQUESTS + 1], v_start[MAX_REQUESTS + 1], o_start[MAX_REQUESTS + 1];
    int64_t prefix[MAX_REQUESTS]; /* of multi-item scoring */
    const char *list;             /* name of the list of pages */
} batch;

void attention_draw_lengths(ref_call *c, batch *t);
void attention_draw_queries(ref_call *c, batch *t);
void attention_add_up(batch *t);
void attention_head_dims(ref_call *c);
void attention_scale_dims(ref_call *c, int64_t h_q, int64_t h_kv);
void attention_typed_dims(ref_call *c, batch *t, const char *k, const char *v);
void attention_common_dims(ref_call *c, batch *t, const char *d_qk, const char *k, const char *v);
void attention_paged_dims(ref_call *c, batch *t, const char *indptr, const char *indices,
                          const char *last_page_len);
void attention_fill_mask(ref_call *c, const batch *t);
void attention_fill_draft(ref_call *c, const batch *t);
int attention_sees(const ref_call *c, const batch *t, int64_t r, int64_t i, int64_t j);
double attention_e4m3_slack(const ref_call *c, const batch *t);
double attention_half_slack(const ref_call *c, const batch *t, double unit);
void attention_fill_scales(ref_call *c);
void attention_fill_paged(ref_call *c, const batch *t, const char *indptr,
                          const char *last_page_len, const char *lens);
void attention_fill_table_tails(ref_call *c, const batch *t);
void attention_fill_packed(ref_call *c, const batch *t, const char *name, const int64_t *start);
void attention_item_dims(ref_call *c, batch *t);
void attention_fill_items(ref_call *c, const batch *t);
void attention_write_i64(ref_call *c, const char *name, int64_t index, int64_t value);
int64_t attention_page_offset(const ref_call *c, const ref_tensor *x, int64_t page, int64_t slot,
                              int64_t head);
int64_t attention_packed_offset(const ref_call *c, const ref_tensor *x, int64_t token,
                                int64_t head);

#endif
