// SPDX-License-Identifier: Apache-2.0
//
// Two passes over the requests: the first adds up the tape, the second cuts it. The cost of a tile
// is the number of keys it can see, at least 1, so that empty tiles are spread as well. Everything
// is integer arithmetic without a division per item, so that a plan costs nanoseconds a request
// and is the same everywhere.

#include "ops/attention/schedule.h"

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* ---- capacities --------------------------------------------------------------------------- */

static int64_t saturate(double x) {
    return x < 1099511627776.0 ? (int64_t)x : (int64_t)1 << 40;
}

bolide__schedule_capacity bolide__schedule_capacity_of(const bolide__schedule_rules *rules,
                                                       const bolide__schedule_maxima *maxima) {
    /* A request of r packed rows has at most r / tile_rows + 1 tiles, and never more than r. */
    const double packed = (double)maxima->rows * rules->group;
    const double batch = (double)min64(maxima->batch, (int64_t)1 << 40);
    const int64_t works = saturate(packed / rules->tile_rows + batch);
    bolide__schedule_capacity c = {.items = works};
    if (rules->split == BOLIDE__SPLIT_BALANCED) {
        /* Each cut makes one item more; a divided tile has at least one cut, and one slot more
         * than cuts. */
        c.items = works + rules->workers;
        c.merges = min64(rules->workers, works);
        c.slots = 2 * (int64_t)rules->workers;
    } else if (rules->split == BOLIDE__SPLIT_FIXED) {
        const int64_t pieces = ceil_div(max64(maxima->kv_len, 1), rules->chunk);
        c.items = saturate((double)works * (double)pieces);
        c.merges = pieces > 1 ? works : 0;
        c.slots = pieces > 1 ? c.items : 0;
    } else if (rules->split == BOLIDE__SPLIT_OWN) {
        c.slots = saturate(batch * rules->own_pieces);
        c.items = works + c.slots;
        c.merges = c.slots / 2;
    } else if (rules->split == BOLIDE__SPLIT_EVEN) {
        c.items = saturate((double)works * rules->pieces);
        c.merges = rules->pieces > 1 ? works : 0;
        c.slots = rules->pieces > 1 ? c.items : 0;
    }
    return c;
}

/* ---- tiles -------------------------------------------------------------------------------- */

void bolide__schedule_range(const bolide__schedule_rules *rules,
                            const bolide__attention_request *request, int32_t row, int32_t *begin,
                            int32_t *end) {
    const int64_t q_len = request->q_len, kv_len = request->kv_len;
    const int64_t first = row / rules->group;
    const int64_t last = min64(q_len - 1, (row + (int64_t)rules->tile_rows - 1) / rules->group);
    int64_t low = 0, high = kv_len;
    if (rules->causal)
        high = min64(high, kv_len - q_len + last + 1);
    if (rules->window_left >= 0)
        low = max64(low, kv_len - q_len + first - rules->window_left);
    if (rules->span > 0 && kv_len - q_len + first > 0)
        low = max64(low, (kv_len - q_len + first) / rules->span * rules->span);
    const int empty = low >= high;
    *begin = empty ? 0 : (int32_t)low;
    *end = empty ? 0 : (int32_t)high;
}

static int64_t packed_rows(const bolide__schedule_rules *rules,
                           const bolide__attention_request *request) {
    return (int64_t)request->q_len * rules->group;
}

/* What a tile takes of the tape. */
static int64_t cost_of(const bolide__schedule_rules *rules, int64_t begin, int64_t end) {
    return max64(end - begin, 1) + rules->tile_cost;
}

static int64_t tape_length(const bolide__schedule_rules *rules,
                           const bolide__attention_request *requests, int32_t batch) {
    int64_t total = 0;
    for (int32_t r = 0; r < batch; r++) {
        const int64_t rows = packed_rows(rules, &requests[r]);
        for (int64_t row = 0; row < rows; row += rules->tile_rows) {
            int32_t begin, end;
            bolide__schedule_range(rules, &requests[r], (int32_t)row, &begin, &end);
            total += cost_of(rules, begin, end);
        }
    }
    return total;
}

/* ---- cutting ------------------------------------------------------------------------------ */

typedef struct cutter {
    const bolide__schedule_rules *rules;
    const bolide__schedule_lists *lists;
    bolide__schedule_counts counts;
    int64_t stretches; /* workers that get a stretch */
    int64_t whole;     /* length of a stretch: whole + rest / stretches */
    int64_t rest;
    int64_t position; /* of the current tile on the tape */
    int32_t worker;   /* whose stretch is being filled */
    int64_t boundary; /* end of that stretch on the tape */
    int64_t carried;  /* of rest, in parts of a stretch */
} cutter;

/* The next worker's stretch begins at the item to come. Boundary w is floor(w * total /
 * stretches), kept up by whole steps and a running remainder. */
static void next_worker(cutter *c) {
    c->worker++;
    c->lists->worker_start[c->worker] = c->counts.items;
    c->boundary += c->whole;
    c->carried += c->rest;
    if (c->carried >= c->stretches) {
        c->carried -= c->stretches;
        c->boundary++;
    }
    if (c->worker + 1 >= c->stretches)
        c->boundary = INT64_MAX; /* the last one takes what is left */
}

static void begin_tape(cutter *c, int64_t total) {
    const bolide__schedule_rules *rules = c->rules;
    c->stretches = rules->workers;
    if (rules->split == BOLIDE__SPLIT_BALANCED) {
        const int64_t busy = min64(rules->least_busy, total / rules->granule);
        const int64_t most = max64(ceil_div(total, rules->min_chunk / 2), busy);
        c->stretches = max64(1, min64(rules->workers, most));
    }
    c->whole = total / c->stretches;
    c->rest = total % c->stretches;
    c->worker = -1;
    next_worker(c);
}

static void add_item(cutter *c, int32_t request, int32_t row, int64_t begin, int64_t end,
                     int32_t slot) {
    c->lists->items[c->counts.items++] = (bolide__attention_item){.request = request,
                                                                  .row = row,
                                                                  .kv_begin = (int32_t)begin,
                                                                  .kv_end = (int32_t)end,
                                                                  .slot = slot};
}

/* A tile in one piece that belongs to the worker in whose stretch it starts. */
static void place_whole(cutter *c, int32_t request, int32_t row, int32_t begin, int32_t end) {
    while (c->position >= c->boundary)
        next_worker(c);
    add_item(c, request, row, begin, end, -1);
}

static void add_merge(cutter *c, int32_t request, int32_t row, int32_t slot) {
    if (c->counts.slots == slot)
        return;
    c->lists->merges[c->counts.merges++] = (bolide__attention_merge){
        .request = request, .row = row, .slot = slot, .count = c->counts.slots - slot};
}

/* Cuts at the ends of the stretches, moved to a multiple of the granule. A cut that would leave
 * less than an eighth of a minimal chunk on one side moves to that end of the tile instead. With
 * both, no stretch is longer than its share by more than a minimal chunk. */
static void place_balanced(cutter *c, int32_t request, int32_t row, int32_t begin, int32_t end) {
    const int64_t tile_end = c->position + cost_of(c->rules, begin, end);
    const int64_t least = max64(1, c->rules->min_chunk / 8);
    const int32_t slot = c->counts.slots;
    int64_t at = begin;
    while (c->boundary < tile_end) {
        int64_t cut = begin + max64(c->boundary - c->position - c->rules->tile_cost, 0);
        cut = (cut + c->rules->granule / 2) / c->rules->granule * c->rules->granule;
        const int64_t before = cut - at, after = end - cut;
        if (after < least && after <= before)
            break; /* the rest of the tile stays with this worker */
        if (before >= least) {
            add_item(c, request, row, at, cut, c->counts.slots++);
            at = cut;
        }
        next_worker(c);
    }
    if (at == begin) {
        add_item(c, request, row, begin, end, -1);
    } else {
        add_item(c, request, row, at, end, c->counts.slots++);
        add_merge(c, request, row, slot);
    }
    while (c->boundary <= tile_end)
        next_worker(c);
}

/* Cuts at multiples of chunk, counted from key 0. */
static void place_fixed(cutter *c, int32_t request, int32_t row, int32_t begin, int32_t end,
                        int64_t chunk) {
    if (begin / chunk == max64(end - 1, 0) / chunk) {
        place_whole(c, request, row, begin, end);
        return;
    }
    const int32_t slot = c->counts.slots;
    for (int64_t at = begin; at < end;) {
        const int64_t to = min64(end, (at / chunk + 1) * chunk);
        while (c->position + at - begin >= c->boundary)
            next_worker(c);
        add_item(c, request, row, at, to, c->counts.slots++);
        at = to;
    }
    add_merge(c, request, row, slot);
}

/* Pieces of whole granules, the last of which may be empty; each begins a worker's stretch. */
static void place_even(cutter *c, int32_t request, int32_t row, int32_t begin, int32_t end) {
    const int64_t pieces = c->rules->pieces, granule = c->rules->granule;
    const int64_t share = ceil_div(ceil_div(end - begin, granule), pieces) * granule;
    const int32_t slot = c->counts.slots;
    int64_t at = begin;
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t to = min64(end, at + share);
        c->worker++;
        c->lists->worker_start[c->worker] = c->counts.items;
        add_item(c, request, row, at < to ? at : 0, at < to ? to : 0,
                 pieces > 1 ? c->counts.slots++ : -1);
        at = to;
    }
    add_merge(c, request, row, slot);
}

/* The chunk of SPLIT_OWN: pieces are shared out among the request's tiles, so that their number
 * stays below own_pieces. One piece is kept in hand for a window that starts inside a chunk. */
static int64_t own_chunk(const bolide__schedule_rules *rules,
                         const bolide__attention_request *request) {
    const int64_t tiles = ceil_div(packed_rows(rules, request), rules->tile_rows);
    const int64_t pieces =
        rules->own_pieces / max64(tiles, 1) - (rules->window_left >= 0 || rules->span > 0);
    if (pieces <= 1)
        return INT64_MAX;
    const int64_t chunk = max64(rules->min_chunk, ceil_div(request->kv_len, pieces));
    return ceil_div(chunk, rules->granule) * rules->granule;
}

static void place_request(cutter *c, const bolide__attention_request *request, int32_t index) {
    const bolide__schedule_rules *rules = c->rules;
    const int64_t rows = packed_rows(rules, request);
    const int64_t chunk =
        rules->split == BOLIDE__SPLIT_OWN ? own_chunk(rules, request) : rules->chunk;
    for (int64_t row = 0; row < rows; row += rules->tile_rows) {
        int32_t begin, end;
        bolide__schedule_range(rules, request, (int32_t)row, &begin, &end);
        if (rules->split == BOLIDE__SPLIT_BALANCED)
            place_balanced(c, index, (int32_t)row, begin, end);
        else if (rules->split == BOLIDE__SPLIT_NONE)
            place_whole(c, index, (int32_t)row, begin, end);
        else if (rules->split == BOLIDE__SPLIT_EVEN)
            place_even(c, index, (int32_t)row, begin, end);
        else
            place_fixed(c, index, (int32_t)row, begin, end, chunk);
        c->position += cost_of(rules, begin, end);
    }
}

bolide__schedule_counts bolide__schedule_make(const bolide__schedule_rules *rules,
                                              const bolide__attention_request *requests,
                                              int32_t batch, const bolide__schedule_lists *lists) {
    cutter c = {.rules = rules, .lists = lists, .counts = {.requests = batch}};
    if (rules->split == BOLIDE__SPLIT_EVEN)
        c.worker = -1;
    else
        begin_tape(&c, tape_length(rules, requests, batch));
    for (int32_t r = 0; r < batch; r++)
        place_request(&c, &requests[r], r);
    for (int32_t w = c.worker + 1; w <= rules->workers; w++)
        lists->worker_start[w] = c.counts.items;
    return c.counts;
}
