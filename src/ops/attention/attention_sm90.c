// SPDX-License-Identifier: Apache-2.0
//
// The host's side of attention_sm90.cu, attention_sm90_fp8.cu and attention_latent_sm90.cu: which
// plans are for them, the list of items in the order in which blocks take them, specialisations and
// launches. A run whose arguments are not for them (a view that the copy engine cannot take,
// multi-item scoring) goes to attention.cu or attention_latent.cu, which understand the same lists.

#include "ops/attention/attention_sm90.h"

#include "core/context.h"
#include "cuda/cuda.h"

typedef struct bolide__attention_frozen frozen_part;

enum {
    ITEM_BYTES = BOLIDE__SM90_SLOTS * sizeof(bolide__sm90_item),
    BARRIER_BYTES = 28 * 8, /* its barriers, with three warpgroups */
    FP8_BARRIER_BYTES = 32 * 8,
    COLUMN_BYTES = 2 * 16 * 4, /* a number for each box */
    SECTION_BYTES = 32 * 1024 * 1024,
    MOST_ROUNDS = 4, /* of whole tiles, from which on they are not cut */
    OWN_COST = 64    /* keys that take as long as a tile's beginning and end */
};

/* ---- the choice -------------------------------------------------------------------------------
 */

static int64_t blocks_of(int64_t d) {
    return (d + 63) / 64;
}

/* Blocks of the sums' columns, as many as there are instructions for. */
static int64_t value_blocks(int64_t d) {
    return d <= 64 ? 1 : d <= 128 ? 2 : 4;
}

/* Keys of a tile: what fits twice beside Q. */
static int64_t keys_of(const frozen_part *f) {
    return f->d_vo > 128 || f->d_qk > 192 ? 80 : 128;
}

/* Whether attention_sm90_fp8.cu computes it. */
static bool is_fp8(const frozen_part *f) {
    return f->q_dtype == BOLIDE_F8_E4M3FN;
}

static int64_t fp8_bytes(void) {
    enum { STAGES = BOLIDE__FP8_SM90_STAGES, TURNED = BOLIDE__FP8_SM90_TURNED };
    return 128 * (2 * BOLIDE__SM90_ROWS + (2 * STAGES + TURNED) * BOLIDE__FP8_SM90_KEYS) +
           ITEM_BYTES + FP8_BARRIER_BYTES + COLUMN_BYTES;
}

static int64_t shared_bytes(const frozen_part *f, int64_t rows) {
    const int64_t q = blocks_of(f->d_qk), v = value_blocks(f->d_vo), keys = keys_of(f);
    if (is_fp8(f))
        return fp8_bytes();
    const int64_t out = BOLIDE__SM90_STORES(rows, q, v, keys, f->d_vo) ? v : 0;
    return 128 * (BOLIDE__SM90_Q_STAGES(rows, q, v, keys) * rows * q + rows * out +
                  BOLIDE__SM90_STAGES * keys * (q + v)) +
           ITEM_BYTES + BARRIER_BYTES + COLUMN_BYTES;
}

/* Keys that one copy brings: those of a page where it is smaller than a tile. 1: tiles do not
 * consist of whole pages, and rows are copied one by one. */
static int64_t box_of(const frozen_part *f) {
    const int64_t keys = keys_of(f);
    if (!f->paged || f->page_size % keys == 0)
        return keys;
    return f->page_size % 8 == 0 && keys % f->page_size == 0 ? f->page_size : 1;
}

/* Types and sizes that one of the kernels has. */
static bool is_known(const frozen_part *f) {
    if (f->flags & BOLIDE__ATTN_PLACED &&
        (is_fp8(f) || box_of(f) == 1 || f->fold_kv > BOLIDE__SM90_NO_COLUMN))
        return false;
    const int64_t out = f->o_dtype & (BOLIDE_F16 | BOLIDE_BF16);
    if (is_fp8(f))
        return f->kv_dtype == f->q_dtype && out && f->d_qk == BOLIDE__FP8_SM90_D &&
               f->d_vo == BOLIDE__FP8_SM90_D && box_of(f) > 1;
    return f->q_dtype & (BOLIDE_F16 | BOLIDE_BF16) && f->kv_dtype == f->q_dtype &&
           f->o_dtype == f->q_dtype;
}

static int64_t padded(int64_t rows, int64_t tile) {
    return (rows + tile - 1) / tile * tile;
}

/* Packed rows of a tile. Three warpgroups are a seventh faster than two where head sizes leave them
 * the registers, if there are tiles for all multiprocessors, and requests fill them as well. */
static int64_t rows_of(const bolide__cuda_limits *limits, const frozen_part *f, int64_t usual_rows,
                       int64_t all_rows) {
    enum { ROWS = BOLIDE__SM90_ROWS, TALL_ROWS = BOLIDE__SM90_TALL_ROWS };
    const bool narrow = !is_fp8(f) && !(f->flags & BOLIDE__ATTN_PLACED) && f->d_qk <= 64 &&
                        f->d_vo <= 64 && box_of(f) > 1;
    const bool enough = padded(all_rows, TALL_ROWS) / TALL_ROWS * f->h_kv >= limits->sm_count;
    const bool full = 7 * padded(usual_rows, TALL_ROWS) <= 8 * padded(usual_rows, ROWS);
    return narrow && enough && full ? TALL_ROWS : ROWS;
}

void bolide__attention_sm90_choose(const bolide__call *call, frozen_part *f, int64_t usual_rows,
                                   int64_t all_rows) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int64_t rows = rows_of(limits, f, usual_rows, all_rows);
    const int64_t units = padded(all_rows, rows) / rows * f->h_kv;
    const int64_t others =
        BOLIDE__ATTN_ALIBI | BOLIDE__ATTN_ROPE | BOLIDE__ATTN_TAIL | BOLIDE__ATTN_VARIANT;
    const bool served = bolide__cuda_has_wgmma(call->ctx) && f->keys && f->stages &&
                        !f->use_custom_mask && !(f->flags & others) && is_known(f) &&
                        shared_bytes(f, rows) <= limits->shared_optin && usual_rows > 64 &&
                        (!f->part || 3 * units >= limits->sm_count) &&
                        bolide__attention_cuda_rows(call, f, rows);
    const int64_t own = limits->sm_count / f->h_kv;
    f->sm90 = !served ? 0 : own > 1 ? own : 1;
    f->sm90_cuts = served && rows == BOLIDE__SM90_ROWS && units < MOST_ROUNDS * limits->sm_count;
}

/* ---- pieces -----------------------------------------------------------------------------------
 *
 * Joining costs as much as some five tiles of keys, and about half of one for each piece, since a
 * block takes them one after the other; so many tiles of keys are worth the square root of twice as
 * many pieces.
 */

static bool pays(int64_t whole, int64_t share) {
    enum { JOINING = 640 }; /* in keys */
    return 8 * whole > 9 * (share + JOINING);
}

static int64_t most_pieces(const frozen_part *f, int64_t keys) {
    const int64_t tiles = keys / keys_of(f);
    int64_t n = 1;
    while (n * n < 2 * tiles)
        n++;
    return n;
}

int64_t bolide__attention_sm90_pieces(const frozen_part *f, int64_t tiles, int64_t keys) {
    const int64_t most = most_pieces(f, keys);
    int64_t pieces = tiles ? f->sm90 / tiles : 1;
    pieces = pieces < most ? pieces : most;
    return pieces > 1 && pays(keys, keys / pieces) ? pieces : 1;
}

void bolide__attention_sm90_rules(const frozen_part *f, bolide__schedule_rules *rules) {
    rules->workers = (int32_t)f->sm90;
    rules->granule = (int32_t)keys_of(f);
    rules->least_busy = 0;
    rules->tile_cost = OWN_COST;
    if (!f->sm90_cuts)
        rules->split = BOLIDE__SPLIT_NONE;
}

/* Whole tiles take at least as long as the longest, and as many rounds as there are tiles for each
 * block. */
void bolide__attention_sm90_split(const frozen_part *f, const bolide__attention_request *requests,
                                  int64_t batch, bolide__schedule_rules *rules) {
    int64_t tiles = 0, total = 0, longest = 0;
    if (rules->split != BOLIDE__SPLIT_BALANCED)
        return;
    rules->split = BOLIDE__SPLIT_NONE;
    for (int64_t r = 0; r < batch; r++)
        tiles +=
            ((int64_t)requests[r].q_len * rules->group + rules->tile_rows - 1) / rules->tile_rows;
    if (tiles == 0 || tiles >= MOST_ROUNDS * f->sm90)
        return;
    for (int64_t r = 0; r < batch; r++) {
        const int64_t rows = (int64_t)requests[r].q_len * rules->group;
        for (int64_t row = 0; row < rows; row += rules->tile_rows) {
            int32_t begin, end;
            bolide__schedule_range(rules, &requests[r], (int32_t)row, &begin, &end);
            const int64_t keys = end - begin + rules->tile_cost;
            total += keys;
            longest = keys > longest ? keys : longest;
        }
    }
    const int64_t rounds = (tiles + f->sm90 - 1) / f->sm90 * (total / tiles);
    const int64_t whole = longest > rounds ? longest : rounds;
    const int64_t workers = tiles * most_pieces(f, longest);
    if (pays(whole, total / f->sm90)) {
        rules->split = BOLIDE__SPLIT_BALANCED;
        rules->workers = (int32_t)(workers < f->sm90 ? workers : f->sm90);
    }
}

/* ---- the list ---------------------------------------------------------------------------------
 */

/* Whether number a comes after b: the one with more keys is first. */
static bool is_after(const int32_t *keys, int32_t a, int32_t b) {
    return keys[a] != keys[b] ? keys[a] < keys[b] : a > b;
}

static void sift_down(const int32_t *keys, int32_t *order, int32_t at, int32_t n) {
    for (int32_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        if (child + 1 < n && is_after(keys, order[child + 1], order[child]))
            child++;
        if (!is_after(keys, order[child], order[at]))
            return;
        const int32_t t = order[at];
        order[at] = order[child];
        order[child] = t;
    }
}

static void sort(const int32_t *keys, int32_t *order, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        order[i] = i;
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(keys, order, i, n);
    for (int32_t end = n - 1; end > 0; end--) {
        const int32_t t = order[0];
        order[0] = order[end];
        order[end] = t;
        sift_down(keys, order, 0, end);
    }
}

/* Stretches of about the same length, for attention.cu. */
static void cut_stretches(const frozen_part *f, const bolide__attention_work *works, int32_t items,
                          int32_t *worker_start) {
    int64_t total = 0, sum = 0, w = 0;
    for (int32_t i = 0; i < items; i++)
        total += works[i].kv_end - works[i].kv_begin + 1;
    for (int32_t i = 0; i < items; i++) {
        while (w < f->workers && sum >= (total * w + f->workers - 1) / f->workers)
            worker_start[w++] = i;
        sum += works[i].kv_end - works[i].kv_begin + 1;
    }
    for (; w <= f->workers; w++)
        worker_start[w] = items;
}

/* Whole tiles, request by request. */
static void list_requests(const frozen_part *f, const bolide__schedule_counts *counts, char *live,
                          bolide__attention_work *works) {
    const bolide__attention_request *requests =
        (const bolide__attention_request *)(live + f->requests_at);
    const bolide__attention_item *items = (const bolide__attention_item *)(live + f->items_at);
    int32_t *order = (int32_t *)(live + f->order_at), *keys = order + f->max_items;
    int32_t *first = keys + f->max_items, n = 0;
    for (int32_t r = 0, i = 0; r < counts->requests; r++) {
        first[r] = i;
        keys[r] = requests[r].kv_len;
        while (i < counts->items && items[i].request == r)
            i++;
    }
    sort(keys, order, counts->requests);
    for (int32_t k = 0; k < counts->requests; k++) {
        const int32_t r = order[k];
        const int32_t end = r + 1 < counts->requests ? first[r + 1] : counts->items;
        const int32_t begin = n, tiles = end - first[r];
        for (int32_t i = end - 1; i >= first[r]; i--) {
            works[n] = bolide__attention_work_of(&requests[r], &items[i]);
            works[n].list_begin = begin;
            works[n++].list_count = tiles;
        }
    }
}

/* Whole tiles and pieces, by their lengths; there are few, and all run at the same time. */
static void list_pieces(const frozen_part *f, int32_t n, char *live,
                        bolide__attention_work *works) {
    int32_t *order = (int32_t *)(live + f->order_at), *keys = order + f->max_items;
    int32_t *place = keys + f->max_items;
    for (int32_t i = 0; i < n; i++)
        keys[i] = works[i].kv_end - works[i].kv_begin;
    sort(keys, order, n);
    for (int32_t i = 0; i < n; i++)
        place[order[i]] = i;
    for (int32_t i = 0; i < n; i++) {
        while (place[i] != i) { /* the work here belongs elsewhere: it goes there */
            const int32_t to = place[i];
            const bolide__attention_work w = works[to];
            works[to] = works[i];
            works[i] = w;
            place[i] = place[to];
            place[to] = to;
        }
        works[i].list_begin = i;
        works[i].list_count = 1;
    }
}

void bolide__attention_sm90_list(const frozen_part *f, const bolide__schedule_counts *counts,
                                 char *live) {
    bolide__attention_work *works = (bolide__attention_work *)(live + f->works_at);
    if (counts->merges)
        list_pieces(f, counts->items, live, works);
    else
        list_requests(f, counts, live, works);
    cut_stretches(f, works, counts->items, (int32_t *)(live + f->worker_start_at));
}

/* ---- the launch -------------------------------------------------------------------------------
 */

/* Columns in the 128 bytes of a row of a block. */
static int32_t columns_of(int64_t dtype) {
    return 128 / (int32_t)bolide__dtype_bytes(dtype);
}

/* q, out, or one side of the cache, as its copies see it. */
typedef struct side {
    const void *data;
    int64_t d, rows, n, h, page;
} side;

/* So many packed rows of q or out. */
static bolide__tensor_box packed_rows(const bolide__attention_params *p, int64_t dtype,
                                      const side *s, int64_t count) {
    return (bolide__tensor_box){
        .data = s->data,
        .dtype = dtype,
        .rank = 4,
        .box = {columns_of(dtype), (int32_t)p->group, 1, (int32_t)(count / p->group)},
        .shape = {s->d, p->group, p->h_kv, s->rows},
        .stride = {1, s->h, s->h * p->group, s->n},
    };
}

static bolide__tensor_box cache(const bolide__attention_params *p, const side *s, int64_t box) {
    return (bolide__tensor_box){
        .data = s->data,
        .dtype = p->kv_dtype,
        .rank = 4,
        .box = {columns_of(p->kv_dtype), (int32_t)box, 1, 1},
        .shape = {s->d, s->rows, p->h_kv, p->pages},
        .stride = {1, s->n, s->h, s->page},
    };
}

/* Pages of a few rows: a box of one has 64 columns of 8 rows, then the next 64, then the next 8
 * rows. Heads are reached through the columns: a head's begin a multiple of 64 behind the last's.
 */
static bolide__tensor_box whole_rows(const bolide__attention_params *p, const side *s,
                                     int64_t box) {
    return (bolide__tensor_box){
        .data = s->data,
        .dtype = p->kv_dtype,
        .rank = 5,
        .box = {64, 8, (int32_t)(s->d / 64), (int32_t)(box / 8), 1},
        .shape = {64, 8, ((p->h_kv - 1) * s->h + s->d) / 64, box / 8, p->pages},
        .stride = {1, s->n, 64, 8 * s->n, s->page},
    };
}

/* Whether copies are of whole rows: pages are smaller than a tile, and columns make whole blocks.
 */
static bool is_wide_copy(const frozen_part *f, const bolide__attention_params *p) {
    const int64_t box = box_of(f);
    return !is_fp8(f) && f->paged && box > 1 && box == f->page_size && box < keys_of(f) &&
           f->d_qk % 64 == 0 && value_blocks(f->d_vo) * 64 == f->d_vo && p->k_h % 64 == 0 &&
           p->v_h % 64 == 0;
}

/* Whether rows of a tensor can be read 16 bytes at a time. */
static bool is_wide(int64_t dtype, const void *data, int64_t strides) {
    return (((uintptr_t)data | (uint64_t)(strides * bolide__dtype_bytes(dtype))) & 15) == 0;
}

/* The maps of what is copied in boxes; the rest only has to be aligned. */
static bolide_status encode(const bolide__call *call, const frozen_part *f,
                            const bolide__attention_params *p, bool q_box,
                            bolide__attention_sm90_params *a, bool *served) {
    bolide__tensor_box boxes[3];
    bolide__tensor_map *maps[3];
    const int64_t box = box_of(f);
    int count = 0;
    *served = is_wide(p->q_dtype, p->q, p->q_n | p->q_h) &&
              is_wide(p->kv_dtype, p->k, p->k_page | p->k_n | p->k_h) &&
              is_wide(p->kv_dtype, p->v, p->v_page | p->v_n | p->v_h);
    if (!*served)
        return BOLIDE_OK;
    if (q_box) {
        const side q = {p->q, p->d_qk, p->q_rows, p->q_n, p->q_h, 0};
        boxes[count] = packed_rows(p, p->q_dtype, &q, 64); /* of a warpgroup */
        maps[count++] = &a->q;
    }
    if (box > 1) {
        const side sides[] = {{p->k, p->d_qk, p->k_rows, p->k_n, p->k_h, p->k_page},
                              {p->v, p->d_vo, p->v_rows, p->v_n, p->v_h, p->v_page}};
        const bool wide = is_wide_copy(f, p);
        maps[count] = &a->k;
        maps[count + 1] = &a->v;
        for (int i = 0; i < 2; i++)
            boxes[count++] = wide ? whole_rows(p, &sides[i], box) : cache(p, &sides[i], box);
    }
    return bolide__cuda_tensor_maps(call, count, boxes, maps, served);
}

static bool may_be_signed(const bolide__attention_params *p) {
    return p->q_scale.tensor || p->k_scale.tensor ||
           p->sm_scale * p->q_scale.number * p->k_scale.number < 0;
}

/* How rows of out are written (the map has no end: all that are stored are there), and factors. */
static bolide_status describe_rows(const bolide__call *call, const frozen_part *f,
                                   const bolide__attention_params *p, bool q_box,
                                   bolide__attention_sm90_params *a) {
    bool stores = false;
    a->wide = is_wide(p->o_dtype, p->out, p->out_n | p->out_h);
    a->plain = !p->q_scale.tensor && !p->k_scale.tensor && !p->v_scale.tensor &&
               !p->o_scale.tensor && !p->sinks && !p->lse;
    a->in = (float)p->sm_scale * (float)p->k_scale.number *
            (p->soft_cap > 0 ? 1.0f / (float)p->soft_cap : 1.4426950408889634f) *
            (float)p->q_scale.number;
    a->out_scale = (float)(p->v_scale.number / p->o_scale.number);
    if (!is_fp8(f) && a->wide && q_box && 16 % p->group == 0) {
        const side out = {p->out, p->d_vo, INT32_MAX, p->out_n, p->out_h, 0};
        const bolide__tensor_box box = packed_rows(p, p->o_dtype, &out, 16); /* of a warp */
        bolide__tensor_map *map = &a->out;
        BOLIDE_TRY(bolide__cuda_tensor_maps(call, 1, &box, &map, &stores));
    }
    a->stores = stores;
    return BOLIDE_OK;
}

static bolide__spec spec_of(const frozen_part *f, const bolide__attention_params *p, bool q_box) {
    const int64_t flags =
        (f->paged ? BOLIDE__SM90_PAGED : 0) | (p->soft_cap > 0 ? BOLIDE__SM90_CAPPED : 0) |
        (may_be_signed(p) ? BOLIDE__SM90_SIGNED : 0) | (q_box ? BOLIDE__SM90_Q_BOX : 0) |
        (is_wide_copy(f, p) ? BOLIDE__SM90_WIDE : 0) |
        (p->flags & BOLIDE__ATTN_PLACED ? BOLIDE__SM90_PLACED : 0) |
        (f->max_slots > 0 ? BOLIDE__SM90_PIECES : 0);
    bolide__spec s = BOLIDE_SPEC("attention/attention_sm90.cu", "bolide_attention_sm90");
    if (is_fp8(f)) {
        s.source = "attention/attention_sm90_fp8.cu";
        s.function = "bolide_attention_sm90_fp8";
        bolide__spec_add(&s, "OT", p->o_dtype); /* f16, bf16 */
    } else {
        bolide__spec_add(&s, "T", p->q_dtype); /* f16, bf16 */
        bolide__spec_add(&s, "D_QK", p->d_qk); /* as models have them */
        bolide__spec_add(&s, "D_VO", p->d_vo);
        bolide__spec_add(&s, "ROWS", f->tile_rows); /* 128, 192 */
        bolide__spec_add(&s, "KEYS", keys_of(f));   /* 80, 128 */
    }
    bolide__spec_add(&s, "BOX", box_of(f)); /* 1, 8 to 128 */
    bolide__spec_add(&s, "FLAGS", flags);
    return s;
}

bolide_status bolide__attention_sm90_run(const bolide__call *call, const frozen_part *f,
                                         const bolide__attention_params *p, bool *served) {
    const bool q_box = 64 % p->group == 0;
    bolide__attention_sm90_params a = {.p = *p, .section_bytes = SECTION_BYTES};
    *served = false;
    if (p->flags & BOLIDE__ATTN_ITEMS)
        return BOLIDE_OK;
    BOLIDE_TRY(encode(call, f, p, q_box, &a, served));
    if (!*served)
        return BOLIDE_OK;
    BOLIDE_TRY(describe_rows(call, f, p, q_box, &a));
    if (!f->ruled)
        a.tickets = p->arrivals + (f->tickets_at - f->arrivals_at) / (int64_t)sizeof(int32_t);
    else if (f->rule_pieces > 1)
        BOLIDE_TRY(bolide__cuda_clear(call, p->arrivals, f->device_int_bytes));
    const bolide__spec s = spec_of(f, p, q_box);
    const bolide__grid g = {.x = bolide__cuda_limits_of(call->ctx)->sm_count,
                            .block = BOLIDE__SM90_THREADS_OF((int32_t)f->tile_rows),
                            .shared = (int32_t)shared_bytes(f, f->tile_rows)};
    return bolide__cuda_launch(call, &s, &g, &a, sizeof a);
}

/* ---- latents ----------------------------------------------------------------------------------
 */

enum {
    LATENT_ROWS = BOLIDE__LATENT90_ROWS,
    LATENT_KEYS = BOLIDE__LATENT90_KEYS,
    MOST_SHARES = 4,
    LATENT_BLOCK = 64 * 128,
    LATENT_BASES = 10 * LATENT_ROWS * 4 + 64, /* bases, sums, limits, scales of two warpgroups */
    LATENT_BARRIERS = 24 * 8
};

/* Blocks that take the rows of an item between them, and so read the same latents at the same time:
 * as many as leave the fewest without rows. */
static int64_t shares_of(int64_t rows) {
    const int64_t units = (rows + LATENT_ROWS - 1) / LATENT_ROWS;
    int64_t best = 1, least = INT64_MAX;
    for (int64_t n = units < 1 ? 1 : units < MOST_SHARES ? units : MOST_SHARES; n > 0; n--) {
        const int64_t all = (units + n - 1) / n * n;
        if (all < least) {
            best = n;
            least = all;
        }
    }
    return best;
}

void bolide__attention_latent90_choose(const bolide__call *call, frozen_part *f, int64_t rows) {
    const bool served = bolide__cuda_has_wgmma(call->ctx) && (f->d_vo == 256 || f->d_vo == 512) &&
                        (f->d_tail == 0 || f->d_tail == 64);
    f->latent90 = served ? shares_of(rows) : 0;
}

/* Keys that one copy brings; 1: rows are copied one by one. */
static int64_t latent_box(const frozen_part *f) {
    if (f->page_size % LATENT_KEYS == 0)
        return LATENT_KEYS;
    return f->page_size % 8 == 0 && LATENT_KEYS % f->page_size == 0 ? f->page_size : 1;
}

static bolide__tensor_box latent_queries(const bolide__attention_params *p, const void *data,
                                         int64_t d, int64_t h) {
    return (bolide__tensor_box){
        .data = data,
        .dtype = p->q_dtype,
        .lines = true,
        .rank = 4,
        .box = {64, LATENT_ROWS, 1, 1},
        .shape = {d, p->q_rows * p->h_q, 1, 1},
        .stride = {1, h, h, h},
    };
}

/* Tiles have all columns of a row, so that the line beside a box's is asked for anyway: fetching
 * two at a time made 16 heads of 128 x 8192 tokens 7 % slower. */
static bolide__tensor_box latents(const bolide__attention_params *p, const void *data, int64_t d,
                                  int64_t n, int64_t page, int64_t box) {
    return (bolide__tensor_box){
        .data = data,
        .dtype = p->kv_dtype,
        .lines = true,
        .rank = 4,
        .box = {64, (int32_t)box, 1, 1},
        .shape = {d, p->k_rows, 1, p->pages},
        .stride = {1, n, n, page},
    };
}

/* What a run brings that the kernel takes: heads of q that lie side by side, one scale for both
 * parts of a key, rows that can be copied 16 bytes at a time. */
static bool is_latent_plain(const bolide__attention_params *p) {
    const bool tail = p->d_tail > 0;
    return p->q_n == p->h_q * p->q_h && (!tail || p->q_tail_n == p->h_q * p->q_tail_h) &&
           !p->k_scale.tensor &&
           (!tail || (!p->tail_scale.tensor && p->tail_scale.number == p->k_scale.number)) &&
           is_wide(p->q_dtype, p->q, p->q_h) && is_wide(p->kv_dtype, p->k, p->k_page | p->k_n) &&
           is_wide(p->o_dtype, p->out, p->out_n | p->out_h) &&
           (!tail || (is_wide(p->q_dtype, p->q_tail, p->q_tail_h) &&
                      is_wide(p->kv_dtype, p->k_tail, p->k_tail_page | p->k_tail_n)));
}

static bolide_status encode_latent(const bolide__call *call, const bolide__attention_params *p,
                                   int64_t box, bolide__attention_latent90_params *a,
                                   bool *served) {
    const struct {
        const void *q, *k;
        int64_t d, q_h, k_n, k_page;
        bolide__tensor_map *q_map, *k_map;
    } parts[] = {
        {p->q, p->k, p->d_vo, p->q_h, p->k_n, p->k_page, &a->q, &a->ckv},
        {p->q_tail, p->k_tail, p->d_tail, p->q_tail_h, p->k_tail_n, p->k_tail_page, &a->q_tail,
         &a->kpe},
    };
    bolide__tensor_box boxes[4];
    bolide__tensor_map *maps[4];
    int count = 0;
    for (int i = 0; i < (p->d_tail ? 2 : 1); i++) {
        boxes[count] = latent_queries(p, parts[i].q, parts[i].d, parts[i].q_h);
        maps[count++] = parts[i].q_map;
        if (box > 1) {
            boxes[count] = latents(p, parts[i].k, parts[i].d, parts[i].k_n, parts[i].k_page, box);
            maps[count++] = parts[i].k_map;
        }
    }
    return bolide__cuda_tensor_maps(call, count, boxes, maps, served);
}

bolide_status bolide__attention_latent90_run(const bolide__call *call, const frozen_part *f,
                                             const bolide__attention_params *p, int64_t flags,
                                             bool *served) {
    const int64_t box = latent_box(f);
    bolide__attention_latent90_params a = {.p = *p,
                                           .stream = f->q_len == 1 && p->group <= LATENT_ROWS};
    *served = is_latent_plain(p);
    if (!*served)
        return BOLIDE_OK;
    BOLIDE_TRY(encode_latent(call, p, box, &a, served));
    if (!*served)
        return BOLIDE_OK;
    bolide__spec s =
        BOLIDE_SPEC("attention/attention_latent_sm90.cu", "bolide_attention_latent_sm90");
    bolide__spec_add(&s, "T", p->q_dtype);    /* f16, bf16 */
    bolide__spec_add(&s, "OT", p->o_dtype);   /* 5 values */
    bolide__spec_add(&s, "D_CKV", p->d_vo);   /* 512, 256 */
    bolide__spec_add(&s, "D_KPE", p->d_tail); /* 64, 0 */
    bolide__spec_add(&s, "BOX", box);         /* 1, 8 to 64 */
    bolide__spec_add(&s, "FLAGS", flags);
    const int64_t blocks = 3 * (p->d_vo / 64) + p->d_tail / 64 + 2;
    const bolide__grid g = {.x = f->workers,
                            .z = f->latent90,
                            .block = BOLIDE__SM90_THREADS,
                            .dependent = !f->on_device, /* as in attention_cuda.c */
                            .shared =
                                (int32_t)(blocks * LATENT_BLOCK + LATENT_BASES + LATENT_BARRIERS)};
    return bolide__cuda_launch(call, &s, &g, &a, sizeof a);
}
