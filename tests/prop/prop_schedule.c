// SPDX-License-Identifier: Apache-2.0
//
// The schedule of attention as a pure function: every key that a tile can see lies in exactly one
// of its items, slots and merges fit together, workers are balanced, capacities hold, and equal
// input gives equal output. Shapes are random and change from run to run with the seed.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ops/attention/schedule.h"

enum { MAX_BATCH = 64, ROUNDS = 3000 };

static int passed, failed;
static uint64_t state;

static int64_t between(int64_t low, int64_t high) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return low + (int64_t)(state % (uint64_t)(high - low + 1));
}

typedef struct plan {
    bolide__schedule_rules rules;
    bolide__attention_request requests[MAX_BATCH];
    int32_t batch;
    bolide__schedule_capacity cap;
    bolide__schedule_lists lists;
    bolide__schedule_counts counts;
} plan;

static void draw(plan *p) {
    static const int32_t groups[] = {1, 2, 3, 4, 6, 8, 16};
    const int64_t shape = between(0, 4);
    bolide__schedule_maxima maxima = {0};
    memset(p, 0, sizeof *p);
    p->rules =
        (bolide__schedule_rules){.split = (bolide__split)between(0, 3),
                                 .group = groups[between(0, 6)],
                                 .tile_rows = (int32_t)between(1, 128),
                                 .workers = (int32_t)between(1, 70),
                                 .min_chunk = 64 << between(1, 4),
                                 .granule = 64,
                                 .least_busy = (int32_t)between(0, 40),
                                 .chunk = (int32_t)between(1, 700),
                                 .own_pieces = 16,
                                 .causal = (int32_t)between(0, 1),
                                 .window_left = (int32_t)(between(0, 2) ? -1 : between(0, 900))};
    p->batch = (int32_t)between(0, MAX_BATCH);
    maxima.batch = p->batch;
    for (int32_t r = 0; r < p->batch; r++) {
        bolide__attention_request *q = &p->requests[r];
        q->kv_len = (int32_t)between(0, shape == 0 ? 10 : shape == 1 ? 300 : 5000);
        if (shape == 3 && r == 0)
            q->kv_len = (int32_t)between(10000, 200000);
        q->q_len = (int32_t)(shape == 4 ? between(0, 400) : between(0, 3));
        maxima.rows += q->q_len;
        maxima.kv_len = q->kv_len > maxima.kv_len ? q->kv_len : maxima.kv_len;
    }
    p->cap = bolide__schedule_capacity_of(&p->rules, &maxima);
}

static int make(plan *p) {
    p->lists = (bolide__schedule_lists){
        .items = calloc((size_t)p->cap.items + 1, sizeof *p->lists.items),
        .merges = calloc((size_t)p->cap.merges + 1, sizeof *p->lists.merges),
        .worker_start = calloc((size_t)p->rules.workers + 1, sizeof *p->lists.worker_start)};
    if (!p->lists.items || !p->lists.merges || !p->lists.worker_start)
        return 0;
    p->counts = bolide__schedule_make(&p->rules, p->requests, p->batch, &p->lists);
    return p->counts.items <= p->cap.items && p->counts.merges <= p->cap.merges &&
           p->counts.slots <= p->cap.slots;
}

static void drop(plan *p) {
    free(p->lists.items);
    free(p->lists.merges);
    free(p->lists.worker_start);
}

/* Walks the items tile by tile in the order that the schedule promises. */
static int covers(const plan *p) {
    int32_t at = 0, merge = 0, slot = 0;
    for (int32_t r = 0; r < p->batch; r++) {
        const int64_t rows = (int64_t)p->requests[r].q_len * p->rules.group;
        for (int64_t row = 0; row < rows; row += p->rules.tile_rows) {
            int32_t begin, end;
            bolide__schedule_range(&p->rules, &p->requests[r], (int32_t)row, &begin, &end);
            const int32_t first = at;
            int32_t key = begin;
            do {
                const bolide__attention_item *i = &p->lists.items[at];
                if (at >= p->counts.items || i->request != r || i->row != row ||
                    i->kv_begin != key || i->kv_end > end || (i->kv_end == key && begin != end))
                    return 0;
                key = i->kv_end;
                at++;
            } while (key < end);
            if (at - first == 1 && p->lists.items[first].slot != -1)
                return 0;
            if (at - first == 1)
                continue;
            const bolide__attention_merge *m = &p->lists.merges[merge++];
            if (m->request != r || m->row != row || m->slot != slot || m->count != at - first)
                return 0;
            for (int32_t i = first; i < at; i++)
                if (p->lists.items[i].slot != slot++)
                    return 0;
        }
    }
    return at == p->counts.items && merge == p->counts.merges && slot == p->counts.slots;
}

static int64_t cost(const bolide__attention_item *i) {
    return i->kv_end > i->kv_begin ? i->kv_end - i->kv_begin : 1;
}

/* Longest worker <= 1.1 mean + one minimal chunk where splitting is free, else <= mean + the
 * largest item. */
static int balanced(const plan *p) {
    int64_t total = 0, longest = 0, largest = 0;
    if (p->lists.worker_start[0] != 0 || p->lists.worker_start[p->rules.workers] != p->counts.items)
        return 0;
    for (int32_t w = 0; w < p->rules.workers; w++) {
        int64_t load = 0;
        if (p->lists.worker_start[w] > p->lists.worker_start[w + 1])
            return 0;
        for (int32_t i = p->lists.worker_start[w]; i < p->lists.worker_start[w + 1]; i++) {
            load += cost(&p->lists.items[i]);
            largest = cost(&p->lists.items[i]) > largest ? cost(&p->lists.items[i]) : largest;
        }
        total += load;
        longest = load > longest ? load : longest;
    }
    const int64_t mean = total / p->rules.workers + 1;
    return p->rules.split == BOLIDE__SPLIT_BALANCED
               ? longest * 10 <= mean * 11 + 10 * p->rules.min_chunk
               : longest <= mean + largest;
}

static void expect(int ok, const char *what, const plan *p, uint64_t seed) {
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED: %s: split %d, batch %d, tile %d, workers %d, seed %llu\n", what,
               (int)p->rules.split, p->batch, p->rules.tile_rows, p->rules.workers,
               (unsigned long long)seed);
}

/* A request's pieces with the splits that promise it are the same alone and in a batch. */
static int own_pieces_only(const plan *p, int32_t r) {
    plan alone = *p;
    int same = 1;
    alone.batch = 1;
    alone.requests[0] = p->requests[r];
    if (!make(&alone))
        same = 0;
    int32_t at = 0;
    while (at < p->counts.items && p->lists.items[at].request != r)
        at++;
    for (int32_t i = 0; same && i < alone.counts.items; i++, at++) {
        const bolide__attention_item *a = &alone.lists.items[i], *b = &p->lists.items[at];
        same = at < p->counts.items && b->request == r && a->row == b->row &&
               a->kv_begin == b->kv_begin && a->kv_end == b->kv_end;
    }
    drop(&alone);
    return same;
}

/* EVEN: every tile has its number of pieces, a worker each, in the order of their keys; none is
 * longer than an equal share rounded up to a granule, and empty ones come last. */
static int evenly(const plan *p) {
    const int32_t pieces = p->rules.pieces;
    int32_t at = 0, merge = 0;
    for (int32_t r = 0; r < p->batch; r++) {
        const int64_t rows = (int64_t)p->requests[r].q_len * p->rules.group;
        for (int64_t row = 0; row < rows; row += p->rules.tile_rows) {
            int32_t begin, end;
            bolide__schedule_range(&p->rules, &p->requests[r], (int32_t)row, &begin, &end);
            const int32_t most =
                ((end - begin + pieces - 1) / pieces / p->rules.granule + 1) * p->rules.granule;
            int32_t key = begin;
            for (int32_t i = 0; i < pieces; i++, at++) {
                const bolide__attention_item *x = &p->lists.items[at];
                const int empty = x->kv_begin == 0 && x->kv_end == 0;
                if (x->request != r || x->row != row || p->lists.worker_start[at] != at ||
                    x->slot != (pieces > 1 ? at : -1) || (empty && key < end) ||
                    (!empty && (x->kv_begin != key || x->kv_end - key > most)))
                    return 0;
                key = empty ? key : x->kv_end;
            }
            const bolide__attention_merge *m = &p->lists.merges[merge];
            if (key != end || (pieces > 1 && (m->request != r || m->row != row ||
                                              m->slot != at - pieces || m->count != pieces)))
                return 0;
            merge += pieces > 1;
        }
    }
    for (int32_t w = at; w <= p->rules.workers; w++)
        if (p->lists.worker_start[w] != at)
            return 0;
    return at == p->counts.items && merge == p->counts.merges;
}

/* The shape of p with EVEN, and more workers than it needs. */
static int even_capacities(plan *p) {
    bolide__schedule_maxima maxima = {.batch = p->batch};
    int64_t tiles = 0;
    for (int32_t r = 0; r < p->batch; r++) {
        maxima.rows += p->requests[r].q_len;
        tiles += ((int64_t)p->requests[r].q_len * p->rules.group + p->rules.tile_rows - 1) /
                 p->rules.tile_rows;
    }
    p->rules.split = BOLIDE__SPLIT_EVEN;
    p->rules.pieces = 1 << between(0, 4);
    p->rules.granule = 16;
    p->rules.workers = (int32_t)(tiles * p->rules.pieces + between(0, 5));
    p->cap = bolide__schedule_capacity_of(&p->rules, &maxima);
    return make(p);
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        static plan p, again;
        const uint64_t seed =
            (uint64_t)time(NULL) * 2654435761u + (uint64_t)round * 0x9e3779b97f4a7c15u + 1;
        state = seed;
        draw(&p);
        const int fits = make(&p);
        expect(fits, "capacities", &p, seed);
        if (fits) {
            again = p;
            expect(make(&again) && !memcmp(again.lists.items, p.lists.items,
                                           (size_t)p.counts.items * sizeof *p.lists.items),
                   "equal input, equal output", &p, seed);
            drop(&again);
            expect(covers(&p), "each key once", &p, seed);
            expect(balanced(&p), "balance", &p, seed);
            if (p.batch > 0 && p.rules.split != BOLIDE__SPLIT_BALANCED)
                expect(own_pieces_only(&p, p.batch / 2), "own pieces", &p, seed);
        }
        drop(&p);
        const int even_fits = even_capacities(&p);
        expect(even_fits, "capacities of even pieces", &p, seed);
        if (even_fits)
            expect(evenly(&p), "even pieces", &p, seed);
        drop(&p);
    }
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0;
}
