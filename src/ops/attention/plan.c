// SPDX-License-Identifier: Apache-2.0
//
// The plan of every attention operator, for both backends. First the layout: maxima, tiles,
// workers and offsets, which is also the workspace query. Then the lengths (lengths.c) and the
// schedule. On the CPU the live part is written in place; for CUDA it is written into pinned
// staging and copied on the stream.

#include "ops/attention/attention_internal.h"

#include <bolide/attention.h>
#include <math.h>
#include <string.h>

#include "core/context.h"
#include "core/workspace.h"
#include "cuda/cuda.h"
#include "ops/attention/attention_sm90.h"

typedef struct bolide__attention_frozen frozen_part;
typedef struct bolide__attention_now now_part;

enum {
    MAX_HEAD_DIM = BOLIDE__ATTN_HEAD_DIM,
    STAGING_SLOTS = 2,
    STAGING_HEAD = 256,
    CPU_TILE_ROWS = BOLIDE__ATTN_TILE_ROWS, /* packed rows of a prefill tile: amortises the packing
                                               of K and V */
    CPU_LEAST_TILE_ROWS = 64,               /* packing K and V anew for these costs a twentieth */
    CPU_TILES = 32,                         /* of all key heads that a small problem has */
    CPU_UNIT_STRETCHES = 64, /* stretches over all key heads; fixed, so threads change no bits */
    MIN_CHUNK = 512,
    MIN_PIECE = 256,  /* keys of a single request that are worth a block */
    GRANULE = 64,     /* keys of a kernel's block */
    TILE_COST = 160,  /* keys that take as long as a tile's queries and output */
    FEW_GRANULE = 16, /* of a warp of attention_few.cu */
    OWN_PIECES = 16,
    MANY_ROWS = 128, /* of a request of BOLIDE__PART_MANY */
    SOME_TOKENS = 8  /* of a request on average: below, there may be no prefill among them */
};

const bolide__plan_dim bolide__attention_plan_dims[] = {
    {"b", offsetof(bolide__attention_plan, now.batch)},
    {"n", offsetof(bolide__attention_plan, now.rows)},
    {"n_o", offsetof(bolide__attention_plan, now.out_rows)},
    {"h_q", offsetof(bolide__attention_plan, frozen.h_q)},
    {"h_kv", offsetof(bolide__attention_plan, frozen.h_kv)},
    {"d_qk", offsetof(bolide__attention_plan, frozen.d_qk)},
    {"d_vo", offsetof(bolide__attention_plan, frozen.d_vo)},
    {"d_tail", offsetof(bolide__attention_plan, frozen.d_tail)},
    {"page_size", offsetof(bolide__attention_plan, frozen.page_size)},
    {"kv_layout", offsetof(bolide__attention_plan, frozen.kv_layout)},
    {"q_data_type", offsetof(bolide__attention_plan, frozen.q_dtype)},
    {"kv_data_type", offsetof(bolide__attention_plan, frozen.kv_dtype)},
    {"o_data_type", offsetof(bolide__attention_plan, frozen.o_dtype)},
    {NULL, 0},
};

static bool given(int64_t x) {
    return x != BOLIDE_NO_INT;
}

/* ---- checks without lengths --------------------------------------------------------------- */

static bolide_status check_at_least(const bolide__call *call, const char *name, int64_t value,
                                    int64_t least) {
    if (!given(value) || value >= least)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value", bolide__text("at least %lld", (long long)least),
                           "%lld", (long long)value);
}

/* A bound of what 32 bits count: requests, rows, keys. */
static bolide_status check_bound(const bolide__call *call, const char *name, int64_t value,
                                 int64_t least) {
    BOLIDE_TRY(check_at_least(call, name, value, least));
    if (!given(value) || value <= INT32_MAX)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value", "at most 2147483647", "%lld", (long long)value);
}

static bolide_status check_head_dim(const bolide__call *call, const char *name, int64_t d) {
    if (d >= 8 && d <= MAX_HEAD_DIM && d % 8 == 0)
        return BOLIDE_OK;
    return BOLIDE_FAIL_UNSUPPORTED(call, name, "head size",
                                   bolide__text("a multiple of 8 from 8 to %d", MAX_HEAD_DIM),
                                   "%lld", (long long)d);
}

static bolide_status check_number(const bolide__call *call, const char *name, double x,
                                  bool positive) {
    if (isnan(x) || (isfinite(x) && (positive ? x > 0 : x >= 0)))
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value",
                           positive ? "a positive finite number" : "a finite number, at least 0",
                           "%g", x);
}

static bolide_status check_heads(const bolide__call *call, const bolide__attention_problem *pr) {
    BOLIDE_TRY(check_at_least(call, pr->name.h_kv, pr->h_kv, 1));
    BOLIDE_TRY(check_at_least(call, pr->name.h_q, pr->h_q, 1));
    if (pr->h_q % pr->h_kv == 0 && pr->h_q <= 65536)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(
        call, pr->name.h_q, "heads",
        bolide__text("a multiple of the %lld key heads, at most 65536", (long long)pr->h_kv),
        "%lld", (long long)pr->h_q);
}

bolide_status bolide__attention_check_page_size(const bolide__call *call, int64_t page_size) {
    if (page_size >= 1 && page_size <= INT32_MAX)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, "page_size", "value", "1 to 2147483647", "%lld",
                           (long long)page_size);
}

bolide_status bolide__attention_check_plan(const bolide__call *call,
                                           const bolide__attention_problem *pr) {
    BOLIDE_TRY(bolide__attention_check_variant(call, pr->variant));
    BOLIDE_TRY(check_heads(call, pr));
    BOLIDE_TRY(check_head_dim(call, pr->name.d_qk, pr->d_qk));
    BOLIDE_TRY(check_head_dim(call, pr->name.d_vo, pr->d_vo));
    BOLIDE_TRY(check_at_least(call, pr->name.qo_indptr, pr->batch + 1, 1));
    BOLIDE_TRY(check_at_least(call, "window_left", pr->window_left, -1));
    BOLIDE_TRY(check_at_least(call, "chunked_attention_size", pr->chunk, 0));
    BOLIDE_TRY(check_at_least(call, "fixed_split_size", pr->fixed_split_size, -1));
    BOLIDE_TRY(check_bound(call, "max_batch_size", pr->max_batch, pr->batch));
    BOLIDE_TRY(check_bound(call, pr->name.max_rows, pr->max_rows, 0));
    BOLIDE_TRY(check_bound(call, "max_sequence_kv", pr->max_kv_len, 0));
    BOLIDE_TRY(check_bound(call, "max_token_per_sequence", pr->max_q_len, 0));
    BOLIDE_TRY(check_number(call, "logits_soft_cap", pr->logits_soft_cap, false));
    BOLIDE_TRY(check_number(call, "rope_scale", pr->rope_scale, true));
    BOLIDE_TRY(check_number(call, "rope_theta", pr->rope_theta, true));
    if (isinf(pr->sm_scale))
        return BOLIDE_FAIL_ARG(call, "sm_scale", "value", "a finite number", "%g", pr->sm_scale);
    const int64_t q_len = pr->q_len_per_req;
    if (q_len < 0 || q_len > INT32_MAX / pr->h_q)
        return BOLIDE_FAIL_ARG(call, "q_len_per_req", "value", "from 1 to 2^31 rows", "%lld",
                               (long long)q_len);
    BOLIDE_TRY(bolide__attention_check_on_device(call, pr));
    if (pr->page_size && !pr->kv_len && !pr->last_page_len)
        return BOLIDE_FAIL_ARG(call, pr->name.last_page_len, "pointer",
                               bolide__text("this or %s", pr->name.kv_len), "neither");
    if (pr->page_size && pr->kv_len && pr->last_page_len)
        return BOLIDE_FAIL_ARG(call, pr->name.last_page_len, "pointer",
                               bolide__text("this or %s", pr->name.kv_len), "both");
    if (!pr->kv_indptr && !pr->kv_len)
        return BOLIDE_FAIL_ARG(call, pr->name.kv_indptr, "pointer",
                               bolide__text("not NULL without %s", pr->name.kv_len), "NULL");
    return BOLIDE_OK;
}

/* ---- layout ------------------------------------------------------------------------------- */

/* Host values of a length array; NULL if they lie on the device or are not there (a query). */
static const int32_t *on_host(const bolide_tensor *t) {
    if (!t || !t->data || t->device.type == BOLIDE_CUDA)
        return NULL;
    return bolide__data(t);
}

static int64_t power_of_two(int64_t x) {
    int64_t p = 1;
    while (p < x)
        p *= 2;
    return p;
}

/* The longest request, read from the lengths. */
static bolide_status longest(const bolide__call *call, const bolide__attention_problem *pr,
                             int64_t *out) {
    const int32_t *lens = on_host(pr->kv_len), *indptr = on_host(pr->kv_indptr);
    if (!lens && !indptr && pr->batch > 0)
        return BOLIDE_FAIL_ARG(call, "max_sequence_kv", "value",
                               "a bound, as fixed_split_size needs one and the lengths are not "
                               "on the host",
                               "none");
    int64_t most = 0;
    for (int64_t r = 0; r < pr->batch; r++) {
        const int64_t own =
            lens ? lens[r]
                 : ((int64_t)indptr[r + 1] - indptr[r]) * (pr->page_size ? pr->page_size : 1);
        most = own > most ? own : most;
    }
    *out = power_of_two(most);
    return BOLIDE_OK;
}

static bolide_status maxima_of(const bolide__call *call, const bolide__attention_problem *pr,
                               bool need_kv_len, bolide__schedule_maxima *m) {
    m->batch = given(pr->max_batch) ? pr->max_batch : power_of_two(pr->batch);
    m->kv_len = given(pr->max_kv_len) ? pr->max_kv_len : 0;
    if (pr->q_len_per_req) {
        m->rows = m->batch * pr->q_len_per_req;
    } else if (given(pr->max_rows)) {
        m->rows = pr->max_rows;
    } else {
        const int32_t *indptr = on_host(pr->qo_indptr);
        if (!indptr)
            return BOLIDE_FAIL_ARG(
                call, pr->name.max_rows, "value",
                bolide__text("a bound, as %s is not on the host", pr->name.qo_indptr), "none");
        m->rows = power_of_two(indptr[pr->batch]);
    }
    if (need_kv_len && !given(pr->max_kv_len))
        BOLIDE_TRY(longest(call, pr, &m->kv_len));
    return BOLIDE_OK;
}

static bolide__split split_of(const bolide__call *call, const bolide__attention_problem *pr) {
    if (pr->disable_split_kv)
        return BOLIDE__SPLIT_NONE;
    if (given(pr->fixed_split_size) && pr->fixed_split_size > 0)
        return BOLIDE__SPLIT_FIXED;
    return call->ctx->batch_invariant && !pr->on_device ? BOLIDE__SPLIT_OWN
                                                        : BOLIDE__SPLIT_BALANCED;
}

static int64_t largest_divisor(int64_t x, int64_t limit) {
    int64_t d = x < limit ? x : limit;
    while (x % d != 0)
        d--;
    return d;
}

/* Rows of a tile: fewer in a small causal problem, whose whole ones would leave threads without
 * work and hold keys that half of their rows do not see. Not where a request is to have the same
 * bits in any batch. */
static int64_t cpu_tile_rows(const bolide__call *call, const bolide__attention_problem *pr,
                             const bolide__schedule_maxima *m) {
    const int64_t own = pr->q_len_per_req * (pr->h_q / pr->h_kv);
    int64_t rows = CPU_TILE_ROWS;
    if (pr->causal && split_of(call, pr) == BOLIDE__SPLIT_BALANCED)
        while (rows > CPU_LEAST_TILE_ROWS && m->rows * pr->h_q < rows * CPU_TILES)
            rows /= 2;
    return own && own < rows ? own : rows;
}

/* Tiles, workers and units. A small tile on a cache with heads inside tokens takes several heads
 * at once, so that memory is read from end to end. */
static void choose_cpu(const bolide__call *call, const bolide__attention_problem *pr,
                       frozen_part *f, const bolide__schedule_maxima *m) {
    f->tile_rows = cpu_tile_rows(call, pr, m);
    const bool together = pr->kv_layout == BOLIDE_NHD && f->tile_rows <= 16 && !pr->variant;
    f->unit_heads = together ? largest_divisor(f->h_kv, 16) : 1;
    const int64_t units = f->h_kv / f->unit_heads;
    f->workers = CPU_UNIT_STRETCHES > units ? CPU_UNIT_STRETCHES / units : 1;
    f->lane_count = bolide__cpu_threads(call->ctx);
    f->lane_bytes = bolide__attention_lane_bytes(f);
}

static bolide__schedule_rules rules_of(const bolide__call *call,
                                       const bolide__attention_problem *pr, const frozen_part *f) {
    const int64_t pages = given(pr->fixed_split_size) ? pr->fixed_split_size : 0;
    const int64_t size = pr->page_size ? pr->page_size : 1;
    int64_t chunk = pages > 0 && pages <= INT32_MAX / size ? pages * size : INT32_MAX;
    const int64_t window = pr->window_left < INT32_MAX ? pr->window_left : INT32_MAX;
    return (bolide__schedule_rules){
        .split = split_of(call, pr),
        .group = (int32_t)(pr->h_q / pr->h_kv),
        .tile_rows = (int32_t)f->tile_rows,
        .workers = (int32_t)f->workers,
        .min_chunk = MIN_CHUNK,
        .granule = GRANULE,
        .least_busy = (int32_t)f->least_busy,
        .tile_cost = f->device_type == BOLIDE_CUDA && f->tile_rows > 16 ? TILE_COST : 0,
        .chunk = (int32_t)chunk,
        .own_pieces = OWN_PIECES,
        .causal = pr->causal && !pr->use_custom_mask && !pr->placed,
        .window_left = pr->placed ? -1 : (int32_t)window,
        .span = (int32_t)(pr->chunk < INT32_MAX ? pr->chunk : INT32_MAX),
    };
}

static int64_t default_out(int64_t q_dtype) {
    const bool narrow = q_dtype == BOLIDE_F8_E4M3FN || q_dtype == BOLIDE_F8_E5M2;
    return narrow ? BOLIDE_BF16 : q_dtype;
}

static int64_t flags_of(const bolide__attention_problem *pr) {
    return (pr->causal && !pr->use_custom_mask ? BOLIDE__ATTN_CAUSAL : 0) |
           (pr->pos_encoding_mode == BOLIDE_POS_ROPE_LLAMA ? BOLIDE__ATTN_ROPE : 0) |
           (pr->pos_encoding_mode == BOLIDE_POS_ALIBI ? BOLIDE__ATTN_ALIBI : 0) |
           (pr->d_tail ? BOLIDE__ATTN_TAIL : 0) | (pr->latent ? BOLIDE__ATTN_LATENT : 0) |
           (pr->variant ? BOLIDE__ATTN_VARIANT : 0) | (pr->placed ? BOLIDE__ATTN_PLACED : 0);
}

/* What a plan on the GPU works with. */
static void carve_planner(frozen_part *f, bolide__carver *c) {
    const int64_t tiles = f->on_device ? f->max_items - f->workers : 0;
    f->tile_start_at = bolide__carve_offset(c);
    bolide__carve(c, f->on_device ? f->max_batch : 0, sizeof(int32_t));
    f->tiles_at = bolide__carve_offset(c);
    bolide__carve(c, tiles, sizeof(bolide__attention_tile));
    f->place_at = bolide__carve_offset(c);
    bolide__carve(c, tiles, sizeof(int64_t));
    f->cuts_at = bolide__carve_offset(c);
    bolide__carve(c, f->on_device ? f->workers + 1 : 0, sizeof(bolide__attention_cut));
}

/* Counters of the pieces of so many tiles; on Hopper each warp counts its own 16 rows. */
static int64_t arrivals_of(const frozen_part *f, int64_t tiles) {
    return tiles * f->h_kv * (f->sm90 ? f->tile_rows / 16 : 1);
}

/* Offsets of the live part and of the scratch; the order of the drawing in attention_internal.h. */
static void carve_live(frozen_part *f, bool cuda) {
    bolide__carver c = bolide__carve_begin(NULL, 0);
    bolide__carve(&c, 1, sizeof(bolide__schedule_counts));
    if (cuda) {
        f->free_at = bolide__carve_offset(&c);
        bolide__carve(&c, 1, sizeof(int64_t));
        f->tickets_at = bolide__carve_offset(&c);
        bolide__carve(&c, f->sm90 ? 3 : 0, sizeof(int32_t));
        f->arrivals_at = bolide__carve_offset(&c);
        bolide__carve(&c, arrivals_of(f, f->max_merges), sizeof(int32_t));
        f->heads_at = bolide__carve_offset(&c);
        bolide__carve(&c, f->workers, sizeof(bolide__attention_head));
        f->works_at = bolide__carve_offset(&c);
        bolide__carve(&c, f->max_items, sizeof(bolide__attention_work));
        carve_planner(f, &c);
        f->device_int_bytes = bolide__carve_offset(&c);
    }
    f->worker_start_at = bolide__carve_offset(&c);
    bolide__carve(&c, f->workers + 1, sizeof(int32_t));
    f->requests_at = bolide__carve_offset(&c);
    bolide__carve(&c, f->max_batch, sizeof(bolide__attention_request));
    f->items_at = bolide__carve_offset(&c);
    bolide__carve(&c, f->max_items, sizeof(bolide__attention_item));
    f->merges_at = bolide__carve_offset(&c);
    bolide__carve(&c, f->max_merges, sizeof(bolide__attention_merge));
    f->order_at = bolide__carve_offset(&c);
    bolide__carve(&c, f->sm90 ? 3 * f->max_items : 0, sizeof(int32_t));
    f->live_bytes = bolide__carve_offset(&c);
    if (!cuda)
        f->device_int_bytes = f->live_bytes;
}

static void carve_scratch(frozen_part *f) {
    bolide__carver c = bolide__carve_begin(NULL, 0);
    const int64_t rows = f->max_slots * f->h_kv * f->tile_rows;
    f->partial_o_at = bolide__carve_offset(&c);
    bolide__carve(&c, rows * f->d_vo, sizeof(float));
    f->partial_ml_at = bolide__carve_offset(&c);
    bolide__carve(&c, rows * 2, sizeof(float));
    f->frequency_at = bolide__carve_offset(&c);
    bolide__carve(&c, f->lane_count ? f->d_qk / 2 : 0, sizeof(double));
    f->lanes_at = bolide__carve_offset(&c);
    bolide__carve(&c, f->lane_count, f->lane_bytes);
    f->device_bytes = bolide__carve_offset(&c);
}

/* The tiles of a single request on CUDA. If there are fewer than workers, each is cut into pieces
 * that fill one wave of blocks. */
static void lay_out_rule(const bolide__attention_problem *pr, frozen_part *f, int64_t tokens,
                         int64_t kv_len) {
    const int64_t rows = tokens * (pr->h_q / pr->h_kv);
    const int64_t tiles = (rows + f->tile_rows - 1) / f->tile_rows;
    int64_t pieces = tiles ? f->workers / tiles : 1;
    const int64_t most = (kv_len + MIN_PIECE - 1) / MIN_PIECE;
    pieces = pieces < most ? pieces : most;
    if (f->sm90)
        pieces = pr->disable_split_kv ? 1 : bolide__attention_sm90_pieces(f, tiles, kv_len);
    f->ruled = 1;
    f->rule_tiles = tiles;
    f->rule_pieces = pieces > 1 ? pieces : 1;
    f->max_slots = f->rule_pieces > 1 ? tiles * f->rule_pieces : 0;
    f->device_int_bytes = f->rule_pieces > 1 ? arrivals_of(f, tiles) * (int64_t)sizeof(int32_t) : 0;
}

/* Packed rows that a request has on average at the maxima. */
static int64_t usual_rows(const bolide__attention_problem *pr, const bolide__schedule_maxima *m) {
    const int64_t tokens = m->batch > 0 ? (m->rows + m->batch - 1) / m->batch : 1;
    return tokens * (pr->h_q / pr->h_kv);
}

/* The kernel for Hopper takes whole tiles and pieces that a batch chooses. */
static void choose_cuda(const bolide__call *call, const bolide__attention_problem *pr,
                        frozen_part *f, const bolide__schedule_maxima *m) {
    const bolide__split split = split_of(call, pr);
    const int64_t rows = pr->part == BOLIDE__PART_MANY  ? MANY_ROWS
                         : pr->part == BOLIDE__PART_FEW ? 1
                                                        : usual_rows(pr, m);
    bolide__attention_cuda_choose(call, f, rows, m->batch);
    if (split == BOLIDE__SPLIT_BALANCED && !pr->single && !pr->part && given(pr->max_kv_len))
        bolide__attention_few_choose(call, f, m->batch, m->kv_len);
    if (!pr->single && !pr->part)
        bolide__attention_stream_choose(call, f, m->batch, given(pr->max_kv_len) ? m->kv_len : 0,
                                        split == BOLIDE__SPLIT_BALANCED);
    if (!f->on_device && !pr->chunk && pr->part != BOLIDE__PART_FEW &&
        (split == BOLIDE__SPLIT_BALANCED || split == BOLIDE__SPLIT_NONE))
        bolide__attention_sm90_choose(call, f, rows, m->rows * (pr->h_q / pr->h_kv));
    if (pr->part)
        f->sm90_cuts = 0;
}

static void keep_maxima(frozen_part *f, const bolide__schedule_maxima *m,
                        const bolide__schedule_capacity *cap) {
    f->max_batch = m->batch;
    f->max_rows = m->rows;
    f->max_items = cap->items;
    f->max_merges = cap->merges;
    f->max_slots = cap->slots;
}

/* Everything of the frozen part; also the size query. */
static bolide_status lay_out(const bolide__call *call, const bolide__attention_problem *pr,
                             frozen_part *f, bolide__schedule_rules *rules) {
    const bool cuda = call->ctx->device.type == BOLIDE_CUDA;
    *f = (frozen_part){
        .h_q = pr->h_q,
        .h_kv = pr->h_kv,
        .d_qk = pr->d_qk,
        .d_vo = pr->d_vo,
        .d_tail = pr->d_tail,
        .page_size = pr->page_size,
        .kv_layout = pr->kv_layout,
        .q_dtype = pr->q_dtype,
        .kv_dtype = given(pr->kv_dtype) ? pr->kv_dtype : pr->q_dtype,
        .o_dtype = given(pr->o_dtype) ? pr->o_dtype : default_out(pr->q_dtype),
        .flags = flags_of(pr),
        .window_left = pr->window_left,
        .chunk = pr->chunk,
        .use_custom_mask = pr->use_custom_mask,
        .use_indptr = pr->kv_indptr != NULL,
        .paged = pr->page_size != 0,
        .sm_scale = isnan(pr->sm_scale) ? 1 / sqrt((double)pr->d_qk) : pr->sm_scale,
        .soft_cap = isnan(pr->logits_soft_cap) ? 0 : pr->logits_soft_cap,
        .rope_scale = isnan(pr->rope_scale) ? 1 : pr->rope_scale,
        .rope_theta = isnan(pr->rope_theta) ? 1e4 : pr->rope_theta,
        .device_type = call->ctx->device.type,
        .q_len = pr->q_len_per_req,
        .on_device = cuda && pr->on_device,
        .fold_q = pr->fold_q,
        .fold_kv = pr->fold_kv,
        .part = pr->part,
    };
    bolide__schedule_maxima maxima = {0};
    BOLIDE_TRY(maxima_of(call, pr, split_of(call, pr) == BOLIDE__SPLIT_FIXED, &maxima));
    if (cuda)
        choose_cuda(call, pr, f, &maxima);
    else
        choose_cpu(call, pr, f, &maxima);
    if (cuda && pr->single) {
        lay_out_rule(pr, f, on_host(pr->qo_indptr)[1], on_host(pr->kv_indptr)[1]);
        carve_scratch(f);
        return BOLIDE_OK;
    }
    *rules = rules_of(call, pr, f);
    if (f->sm90)
        bolide__attention_sm90_rules(f, rules);
    const bolide__schedule_capacity cap = bolide__schedule_capacity_of(rules, &maxima);
    keep_maxima(f, &maxima, &cap);
    if (cap.items > INT32_MAX || cap.slots > INT32_MAX)
        return BOLIDE_FAIL_ARG(call, pr->name.max_rows, "value", "a plan of at most 2^31 items",
                               "%lld items", (long long)cap.items);
    carve_live(f, cuda);
    carve_scratch(f);
    /* Whether each slot of staging is in use, the slots, and room for the lengths that come back
     * from the device. */
    if (cuda && !f->on_device)
        f->pinned_bytes = STAGING_HEAD + STAGING_SLOTS * f->live_bytes + 7 * 4 * (f->max_batch + 1);
    return BOLIDE_OK;
}

bolide_status bolide__attention_sizes(const bolide__call *call, const bolide__attention_problem *pr,
                                      bolide_sizes *sizes) {
    frozen_part f;
    bolide__schedule_rules rules;
    BOLIDE_TRY(lay_out(call, pr, &f, &rules));
    *sizes = (bolide_sizes){.device_bytes = f.device_bytes,
                            .device_int_bytes = f.device_int_bytes,
                            .pinned_bytes = f.pinned_bytes,
                            .plan_bytes = sizeof(bolide__attention_plan)};
    return BOLIDE_OK;
}

/* ---- making it ---------------------------------------------------------------------------- */

/* The words at the head of pinned memory that say whether a slot is in use: 1 from the moment that
 * its copy is asked for, until the copy of a 0 that follows it on the stream arrives here. */
static int64_t *slot_word(const bolide__attention_problem *pr, int64_t slot) {
    return (int64_t *)pr->workspace->pinned + slot;
}

/* Where the live part is written: in place, or in the next slot of pinned staging. */
static bolide_status live_memory(const bolide__call *call, const bolide__attention_problem *pr,
                                 const frozen_part *f, int64_t *slot, char **live) {
    const bolide__attention_plan *old = (const bolide__attention_plan *)pr->plan;
    *slot = 0;
    *live = pr->workspace->device_int;
    if (f->device_type != BOLIDE_CUDA)
        return BOLIDE_OK;
    if (old->head.magic != pr->magic) {
        for (int64_t i = 0; i < STAGING_SLOTS; i++)
            *slot_word(pr, i) = 0;
    } else {
        *slot = (old->now.staging_slot + 1) % STAGING_SLOTS;
    }
    if (__atomic_load_n(slot_word(pr, *slot), __ATOMIC_ACQUIRE))
        return bolide__fail(BOLIDE_BUSY, call->entry_name,
                            "both staging slots of the workspace are still being copied; wait for "
                            "the stream and plan again");
    *live = (char *)pr->workspace->pinned + STAGING_HEAD + *slot * f->live_bytes;
    return BOLIDE_OK;
}

/* Copies the live part to the device and, behind it, the word that frees its slot. */
static bolide_status send(const bolide__call *call, const bolide__attention_problem *pr,
                          const frozen_part *f, int64_t slot, const char *live) {
    char *device = pr->workspace->device_int;
    *slot_word(pr, slot) = 1;
    BOLIDE_TRY(bolide__cuda_copy_to_device(call, device, live, f->device_int_bytes));
    return bolide__cuda_copy_to_host(call, slot_word(pr, slot), device + f->free_at,
                                     sizeof(int64_t));
}

bolide_status bolide__attention_make_plan(const bolide__call *call,
                                          const bolide__attention_problem *pr) {
    frozen_part f;
    now_part now;
    bolide__schedule_rules rules;
    int64_t slot;
    char *live;
    BOLIDE_TRY(lay_out(call, pr, &f, &rules));
    if (f.on_device)
        return bolide__attention_plan_on_device(call, pr, &f, &rules);
    BOLIDE_TRY(live_memory(call, pr, &f, &slot, &live));
    bolide__attention_request *requests = (bolide__attention_request *)(live + f.requests_at);
    int32_t *returned = NULL; /* where lengths come back to */
    if (f.device_type == BOLIDE_CUDA)
        returned = (int32_t *)((char *)pr->workspace->pinned + STAGING_HEAD +
                               STAGING_SLOTS * f.live_bytes);
    BOLIDE_TRY(bolide__attention_requests(call, pr, returned, &now, requests));
    const bolide__schedule_lists lists = {
        .items = (bolide__attention_item *)(live + f.items_at),
        .merges = (bolide__attention_merge *)(live + f.merges_at),
        .worker_start = (int32_t *)(live + f.worker_start_at),
    };
    const int32_t blocks =
        bolide__attention_take_part(call, &f, requests, (int32_t)pr->batch, &rules);
    if (f.few) {
        rules.split = BOLIDE__SPLIT_EVEN;
        rules.pieces = (int32_t)f.few;
        rules.granule = FEW_GRANULE;
    }
    if (f.device_type == BOLIDE_CUDA)
        bolide__attention_cuda_rules(&f, requests, pr->batch, &rules);
    const bolide__schedule_counts counts =
        bolide__schedule_make(&rules, requests, (int32_t)pr->batch, &lists);
    for (int64_t w = rules.workers + 1; w <= f.workers; w++)
        lists.worker_start[w] = counts.items;
    memcpy(live, &counts, sizeof counts);
    now.staging_slot = slot;
    if (f.device_type == BOLIDE_CUDA) {
        bolide__attention_write_works(&f, &counts, blocks, live);
        BOLIDE_TRY(send(call, pr, &f, slot, live));
    }
    bolide__attention_plan *plan = (bolide__attention_plan *)pr->plan;
    plan->frozen = f;
    plan->now = now;
    plan->head.magic = pr->magic;
    return BOLIDE_OK;
}

bool bolide__attention_has_parts(const bolide__call *call, const bolide__attention_problem *pr) {
    bolide__attention_problem many = *pr;
    frozen_part f;
    bolide__schedule_rules rules;
    many.part = BOLIDE__PART_MANY;
    return call->ctx->device.type == BOLIDE_CUDA && lay_out(call, &many, &f, &rules) == BOLIDE_OK &&
           f.sm90 && f.kv_dtype != BOLIDE_F8_E4M3FN && f.max_batch > 1 &&
           f.max_rows >= f.max_batch + MANY_ROWS && f.max_rows >= f.max_batch * SOME_TOKENS;
}

bolide_status bolide__attention_make_rule(const bolide__call *call,
                                          const bolide__attention_problem *pr) {
    bolide__attention_plan *plan = (bolide__attention_plan *)pr->plan;
    bolide__schedule_rules rules;
    BOLIDE_TRY(lay_out(call, pr, &plan->frozen, &rules));
    plan->head.magic = pr->magic;
    return BOLIDE_OK;
}
