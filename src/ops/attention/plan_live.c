// SPDX-License-Identifier: Apache-2.0
//
// What kernels for CUDA read of a plan: the items with their requests and what each worker begins
// with. And how multiprocessors are shared out where requests of many rows and of few are computed
// by two kernels at the same time; these estimates decide about time alone.

#include <string.h>

#include "cuda/cuda.h"
#include "ops/attention/attention_internal.h"
#include "ops/attention/attention_sm90.h"

typedef struct bolide__attention_frozen frozen_part;

enum {
    SHARED_RATE = 45, /* bytes that one of them reads in a nanosecond beside a prefill */
    FEW_ROWS = 16,
    PREFILL_RATE = 4000 /* operations of a multiprocessor in a nanosecond */
};

static int64_t row_bytes(const frozen_part *f) {
    return (f->d_qk + f->d_vo) * bolide__dtype_bytes(f->kv_dtype);
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Leaves the requests of the plan's part with rows, and gives the other part room: blocks of the
 * kernel of many rows are at work, one a multiprocessor, or the workers of the other kernel that
 * the rest of the multiprocessors has room for. */
int32_t bolide__attention_take_part(const bolide__call *call, const frozen_part *f,
                                    bolide__attention_request *requests, int32_t batch,
                                    bolide__schedule_rules *rules) {
    double many = 0, few = 0; /* multiprocessors times nanoseconds */
    if (!f->part)
        return 0;
    const int32_t all = (int32_t)bolide__cuda_limits_of(call->ctx)->sm_count;
    for (int32_t r = 0; r < batch; r++) {
        bolide__attention_request *q = &requests[r];
        const bool own_few = q->q_len * (int64_t)rules->group <= FEW_ROWS;
        const double keys = f->flags & BOLIDE__ATTN_CAUSAL && q->kv_len > q->q_len / 2
                                ? q->kv_len - q->q_len / 2.0
                                : q->kv_len;
        if (own_few)
            few += (double)(q->kv_len * f->h_kv * row_bytes(f)) / SHARED_RATE;
        else
            many += 2 * keys * (double)(q->q_len * f->h_q * (f->d_qk + f->d_vo)) / PREFILL_RATE;
        if (own_few != (f->part == BOLIDE__PART_FEW))
            q->q_len = 0;
    }
    int32_t blocks = many + few > 0 ? (int32_t)(all * many / (many + few) + 0.5) : 0;
    if (many > 0 && blocks < 1)
        blocks = 1;
    if (f->part == BOLIDE__PART_FEW && few > 0)
        rules->workers = (int32_t)larger(f->workers * (all - blocks) / all, 1);
    return blocks;
}

/* ---- the live part ------------------------------------------------------------------------ */

bolide__attention_work bolide__attention_work_of(const bolide__attention_request *r,
                                                 const bolide__attention_item *item) {
    return (bolide__attention_work){
        .mask_elem = r->mask_elem,
        .mask_byte = r->mask_byte,
        .q_start = r->q_start,
        .o_start = r->o_start,
        .q_len = r->q_len,
        .kv_len = r->kv_len,
        .kv_start = r->kv_start,
        .v_start = r->v_start,
        .row = item->row,
        .kv_begin = item->kv_begin,
        .kv_end = item->kv_end,
        .slot = item->slot,
        .request = item->request,
        .merge = -1,
    };
}

/* What each worker begins with, behind the works. */
static void write_heads(const frozen_part *f, char *live) {
    const int32_t *start = (const int32_t *)(live + f->worker_start_at);
    const bolide__attention_work *works = (const bolide__attention_work *)(live + f->works_at);
    bolide__attention_head *heads = (bolide__attention_head *)(live + f->heads_at);
    for (int64_t w = 0; w < f->workers; w++) {
        heads[w] = (bolide__attention_head){.begin = start[w], .count = start[w + 1] - start[w]};
        if (heads[w].count > 0)
            heads[w].first = works[start[w]];
    }
}

/* The items with their requests, and counters at 0; `blocks` of a part's kernel are at work: what
 * the kernels for CUDA read. */
void bolide__attention_write_works(const frozen_part *f, const bolide__schedule_counts *counts,
                                   int32_t blocks, char *live) {
    const bolide__attention_request *requests =
        (const bolide__attention_request *)(live + f->requests_at);
    const bolide__attention_item *items = (const bolide__attention_item *)(live + f->items_at);
    const bolide__attention_merge *merges = (const bolide__attention_merge *)(live + f->merges_at);
    bolide__attention_work *works = (bolide__attention_work *)(live + f->works_at);
    memset(live + f->free_at, 0, sizeof(int64_t));
    memset(live + f->arrivals_at, 0, (size_t)(f->max_merges * f->h_kv) * sizeof(int32_t));
    if (f->sm90) {
        int32_t *tickets = (int32_t *)(live + f->tickets_at);
        tickets[0] = tickets[1] = 0;
        tickets[2] = blocks;
        bolide__attention_sm90_list(f, counts, live);
        write_heads(f, live);
        return;
    }
    int32_t *first_items = (int32_t *)(live + f->arrivals_at);
    int32_t merge = 0; /* slots rise with the items, and so do the merges that own them */
    for (int32_t i = 0; i < counts->items; i++) {
        const bolide__attention_item *item = &items[i];
        works[i] = bolide__attention_work_of(&requests[item->request], item);
        if (item->slot < 0)
            continue;
        while (item->slot >= merges[merge].slot + merges[merge].count)
            merge++;
        works[i].merge = merge;
        works[i].merge_slot = merges[merge].slot;
        works[i].merge_count = merges[merge].count;
        if (f->merged_apart && item->slot == merges[merge].slot)
            first_items[merge] = i;
    }
    write_heads(f, live);
}
