// SPDX-License-Identifier: Apache-2.0
//
// The schedule of attention: which piece of which request each worker computes. It is a pure
// function of lengths, shared by every backend; nothing in it knows a device.
//
// A tile is up to tile_rows consecutive packed rows of one request, where packed row r is query
// token r / group, query head r % group of the key head at hand. The keys that a tile can see are
// one range. All tiles of all requests, laid end to end, form a tape of keys; the tape is cut into
// one stretch a worker. A tile that lies in one stretch is one item and writes its output. A tile
// that a cut divides becomes several items, each of which writes an unfinished result into a slot;
// the slots of a tile are consecutive, and one entry of the merge list joins them.
//
//     tape     |--- tile 0 ---|- tile 1 -|------- tile 2 -------|-- tile 3 --|
//     workers  |       0        |       1        |       2        |    3     |
//     items     [0            ] [1][2   ] [3     ][4           ][5][6        ]
//
// Key heads are not part of the schedule: every item is computed once for each of them.

#ifndef BOLIDE_OPS_ATTENTION_SCHEDULE_H
#define BOLIDE_OPS_ATTENTION_SCHEDULE_H

#ifndef __CUDACC_RTC__
#include <stdint.h>
#endif

/* One request as kernels see it. */
typedef struct bolide__attention_request {
    int64_t mask_elem; /* first element of its part of custom_mask */
    int64_t mask_byte; /* first byte of its part of packed_custom_mask */
    int32_t q_start;   /* first row of q */
    int32_t o_start;   /* first row of out and lse */
    int32_t q_len;
    int32_t kv_len;
    int32_t kv_start; /* first entry of its page list, without pages first row of k */
    int32_t v_start;  /* without pages first row of v */
} bolide__attention_request;

/* Packed rows [row, row + tile_rows) of a request against keys [kv_begin, kv_end). */
typedef struct bolide__attention_item {
    int32_t request;
    int32_t row;
    int32_t kv_begin, kv_end;
    int32_t slot; /* −1: the item is the whole tile and writes the output */
} bolide__attention_item;

/* The slots [slot, slot + count) of a tile, in the order of their keys. */
typedef struct bolide__attention_merge {
    int32_t request;
    int32_t row;
    int32_t slot, count;
} bolide__attention_merge;

typedef struct bolide__schedule_counts {
    int32_t items, merges, slots, requests;
} bolide__schedule_counts;

#ifndef __CUDACC_RTC__

typedef enum bolide__split {
    BOLIDE__SPLIT_BALANCED, /* cuts where worker stretches end */
    BOLIDE__SPLIT_NONE,     /* whole tiles only */
    BOLIDE__SPLIT_FIXED,    /* cuts at multiples of chunk: a function of the own length */
    BOLIDE__SPLIT_OWN,      /* like FIXED with a chunk that the own length chooses */
    BOLIDE__SPLIT_EVEN      /* every tile in the same number of pieces, a worker each */
} bolide__split;

typedef struct bolide__schedule_rules {
    bolide__split split;
    int32_t group;       /* query heads of a key head */
    int32_t tile_rows;   /* packed rows of a tile */
    int32_t workers;     /* stretches; at least 1 */
    int32_t min_chunk;   /* BALANCED: no stretch has fewer than about half as many keys, nor more
                            than this many beyond its share; OWN: the smallest chunk */
    int32_t least_busy;  /* BALANCED: stretches that are worth fewer keys, down to a granule each */
    int32_t granule;     /* BALANCED, OWN: cuts lie at multiples of it */
    int32_t tile_cost;   /* of beginning and ending a tile, in keys */
    int32_t chunk;       /* FIXED */
    int32_t pieces;      /* EVEN */
    int32_t own_pieces;  /* OWN: most pieces of a request, over its tiles */
    int32_t causal;      /* keys behind the last row's own position are not visible */
    int32_t window_left; /* −1: no limit */
    int32_t span;        /* keys of a chunk of chunked attention, the first visible one; 0: off */
} bolide__schedule_rules;

/* Maxima that the capacities below are a function of. */
typedef struct bolide__schedule_maxima {
    int64_t batch, rows, kv_len; /* rows: query tokens of all requests; kv_len: of one request */
} bolide__schedule_maxima;

/* Upper bounds of what any plan within the maxima needs. Saturates at 2^40. */
typedef struct bolide__schedule_capacity {
    int64_t items, merges, slots;
} bolide__schedule_capacity;

bolide__schedule_capacity bolide__schedule_capacity_of(const bolide__schedule_rules *rules,
                                                       const bolide__schedule_maxima *maxima);

/* Where the schedule is written: capacity elements each, worker_start workers + 1. */
typedef struct bolide__schedule_lists {
    bolide__attention_item *items;
    bolide__attention_merge *merges;
    int32_t *worker_start; /* items [worker_start[w], worker_start[w + 1]) belong to worker w */
} bolide__schedule_lists;

/* Fills the lists from q_len and kv_len of the requests. */
bolide__schedule_counts bolide__schedule_make(const bolide__schedule_rules *rules,
                                              const bolide__attention_request *requests,
                                              int32_t batch, const bolide__schedule_lists *lists);

/* Keys [begin, end) that some row of the tile may see; empty as 0, 0. */
void bolide__schedule_range(const bolide__schedule_rules *rules,
                            const bolide__attention_request *request, int32_t row, int32_t *begin,
                            int32_t *end);

#endif

#endif
