// SPDX-License-Identifier: Apache-2.0
//
// Which plans attention_stream.cu takes, and its launch: decode on Hopper from pages of 16 rows, or
// twice as many, and so on. A block has a multiprocessor to itself.

#include "ops/attention/attention_stream.h"

#include <stddef.h>

#include "core/context.h"
#include "cuda/cuda.h"

typedef struct bolide__attention_frozen frozen_part;

#define WORK(field) offsetof(bolide__attention_work, field)
_Static_assert(WORK(kv_start) == BOLIDE__STREAM_LOW && WORK(kv_begin) == BOLIDE__STREAM_LOW + 12 &&
                   WORK(kv_end) == BOLIDE__STREAM_LOW + 16 &&
                   WORK(request) == BOLIDE__STREAM_LOW + 24 &&
                   offsetof(bolide__attention_head, begin) == BOLIDE__STREAM_LIST &&
                   offsetof(bolide__attention_head, count) == BOLIDE__STREAM_LIST + 4,
               "what the kernel reads in one step");
#undef WORK

/* Of the FLAGS of attention.cu. */
enum { MASKED = 2, CAPPED = 4, ALIBI = 8, WIDE = 16, SPECIAL = 32, V_PAGES = 512 };

enum {
    BOX_ROWS = 16,
    STREAM_WARPS = 12,
    STREAM_SLOTS = 2,
    MOST_KEYS = 1024,   /* of a multiprocessor */
    MOST_SHARED = 8192, /* keys of a request that a cluster shares */
    MOST_ITEMS = 4,     /* of a multiprocessor: between items a block waits for all its warps */
    MOST_PIECES = 40,   /* of a request, as one block joins them */
    MERGE_PIECES = 17,  /* that are read at once */
    LIST_LINES = 256,
    SPARE = 256
};

static int64_t size_of(const frozen_part *f) {
    return bolide__dtype_bytes(f->kv_dtype);
}

static bool is_served(const bolide__call *call, const frozen_part *f) {
    const int64_t halves = BOLIDE_F16 | BOLIDE_BF16, fp8 = BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2;
    const bool types =
        f->kv_dtype & fp8 ? f->d_qk == 128 : f->q_dtype & halves && f->kv_dtype == f->q_dtype;
    return bolide__cuda_limits_of(call->ctx)->arch >= 90 && f->stages && f->tile_rows == 16 &&
           !f->on_device && f->paged && f->page_size % BOX_ROWS == 0 &&
           (f->page_size & (f->page_size - 1)) == 0 && !f->use_custom_mask &&
           !(f->flags & BOLIDE__ATTN_PLACED) && types && f->d_qk == f->d_vo &&
           (f->d_qk == 64 || f->d_qk == 128) && f->window_left < 0 && !f->chunk && !f->latent90;
}

/* Blocks of a cluster for each request and key head, on a half of the chip, which holds clusters of
 * any size; 0 where a block would have too many keys. */
static int64_t cluster_of(int64_t sms, int64_t requests, int64_t kv_len) {
    int64_t blocks = 16;
    while (blocks > 1 && blocks * requests > sms / 2)
        blocks /= 2;
    const bool few = kv_len > 0 && kv_len <= MOST_SHARED && kv_len <= MOST_KEYS * blocks;
    return blocks > 1 && few ? blocks : 0;
}

/* A plan's form must not depend on lengths, but may on a bound for them that is declared. Above
 * MOST_KEYS attention.cu is as fast, unless keys are of 8 bits. */
static bool has_workers(const frozen_part *f, int64_t sms, int64_t requests, int64_t kv_len) {
    return requests <= MOST_ITEMS * sms && sms <= MOST_PIECES * requests &&
           (size_of(f) == 1 || (kv_len > 0 && kv_len <= MOST_KEYS * sms / requests));
}

void bolide__attention_stream_choose(const bolide__call *call, frozen_part *f, int64_t batch,
                                     int64_t kv_len, bool balanced) {
    const int64_t sms = bolide__cuda_limits_of(call->ctx)->sm_count;
    f->stream = 0;
    f->stream_slots = STREAM_SLOTS;
    if (!is_served(call, f) || batch < 1)
        return;
    const int64_t requests = batch * f->h_kv;
    /* Pieces of a request that a cluster shares begin at multiples of 16 keys. */
    const bool one_tile = size_of(f) == 2 && f->q_len >= 1 && f->q_len * (f->h_q / f->h_kv) <= 16;
    const int64_t cluster = balanced && one_tile ? cluster_of(sms, requests, kv_len) : 0;
    if (f->few) {
        f->stream = f->few;
        f->stream_slots = f->few > 1 ? 1 : STREAM_SLOTS; /* all keys have room */
    } else if (cluster) {
        f->stream = f->few = cluster;
        f->few_warps = STREAM_WARPS;
    } else if (has_workers(f, sms, requests, kv_len)) {
        f->stream = 1;
        f->workers = sms > f->h_kv ? sms / f->h_kv : 1;
        f->merged_apart = 0;
        f->least_busy = f->workers < MERGE_PIECES ? f->workers : MERGE_PIECES;
    }
}

static int64_t shared_bytes(const frozen_part *f, int64_t warps, int64_t slots) {
    const int64_t unit = 2 * BOLIDE__STREAM_KEYS(size_of(f)) * f->d_qk * size_of(f);
    return warps * slots * unit + 16 * f->d_qk * 2 +
           (f->stream > 1 ? 16 * f->d_qk * 8 : warps * 512) +
           2 * (int64_t)sizeof(bolide__attention_work) + warps * (16 * 8 + slots * 8 + 4) +
           16 * 16 + SPARE;
}

typedef struct side {
    const void *data;
    int64_t rows, n, h, page;
} side;

/* 128 bytes of the rows of a page, then the next 128. */
static bolide__tensor_box pages_of(const bolide__attention_params *p, const side *s, int64_t box) {
    const int64_t size = bolide__dtype_bytes(p->kv_dtype), columns = 128 / size;
    const int64_t blocks = p->d_qk / columns;
    return (bolide__tensor_box){
        .data = s->data,
        .dtype = p->kv_dtype,
        .rank = 5,
        .lines = blocks == 1,
        .box = {(int32_t)columns, (int32_t)box, (int32_t)blocks, 1, 1},
        .shape = {columns, s->rows, blocks, p->h_kv, p->pages},
        .stride = {1, s->n, columns, s->h, s->page},
    };
}

static bolide__spec spec_of(const frozen_part *f, const bolide__attention_params *p, int64_t box,
                            int64_t warps, int64_t slots, int64_t flags) {
    bolide__spec s = BOLIDE_SPEC("attention/attention_stream.cu", "bolide_attention_stream");
    bolide__spec_add(&s, "QT", p->q_dtype);     /* 4 values */
    bolide__spec_add(&s, "KT", p->kv_dtype);    /* 4 values */
    bolide__spec_add(&s, "OT", p->o_dtype);     /* 5 values */
    bolide__spec_add(&s, "D", p->d_qk);         /* 64, 128 */
    bolide__spec_add(&s, "BOX", box);           /* 16, 32 */
    bolide__spec_add(&s, "WARPS", warps);       /* 8, 12, 16 */
    bolide__spec_add(&s, "SLOTS", slots);       /* 1, 2 */
    bolide__spec_add(&s, "CLUSTER", f->stream); /* 1, 2, 4, 8, 16 */
    bolide__spec_add(&s, "FLAGS",
                     (flags & (MASKED | CAPPED | ALIBI)) |
                         (bolide__cuda_few(1) == 2 ? BOLIDE__STREAM_EDGE : 0));
    return s;
}

bolide_status bolide__attention_stream_run(const bolide__call *call, const frozen_part *f,
                                           const bolide__attention_params *p, int64_t flags,
                                           bool *served) {
    const int64_t keys = BOLIDE__STREAM_KEYS(size_of(f));
    const int64_t box = p->page_size % keys == 0 ? keys : BOX_ROWS;
    const int64_t warps = f->stream > 1 ? f->few_warps : STREAM_WARPS, slots = f->stream_slots;
    *served = f->stream && f->tile_rows == 16 && flags & WIDE && !(flags & (SPECIAL | V_PAGES));
    if (!*served)
        return BOLIDE_OK;
    const int64_t lines = (p->list_count + 31) / 32;
    bolide__attention_stream_params a = {
        .first = {.heads = p->heads,
                  .indices = p->indices,
                  .table_row = p->table_row,
                  .list_lines = lines < LIST_LINES ? lines : LIST_LINES,
                  .page_shift = (int32_t)p->page_shift,
                  .page_mask = (int32_t)(p->page_size - 1)},
        .p = *p,
    };
    const side sides[] = {{p->k, p->k_rows, p->k_n, p->k_h, p->k_page},
                          {p->v, p->v_rows, p->v_n, p->v_h, p->v_page}};
    const bolide__tensor_box boxes[] = {pages_of(p, &sides[0], box), pages_of(p, &sides[1], box)};
    bolide__tensor_map *const maps[] = {&a.k, &a.v};
    BOLIDE_TRY(bolide__cuda_tensor_maps(call, 2, boxes, maps, served));
    if (!*served)
        return BOLIDE_OK;
    const bolide__spec s = spec_of(f, p, box, warps, slots, flags);
    const bolide__grid g = {.x = f->stream > 1 ? f->max_batch * f->stream : f->workers,
                            .y = f->h_kv,
                            .block = (int32_t)(32 * warps),
                            .shared = (int32_t)shared_bytes(f, warps, slots),
                            .cluster = (int32_t)f->stream,
                            .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, &a, sizeof a);
}
