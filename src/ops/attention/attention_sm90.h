// SPDX-License-Identifier: Apache-2.0
//
// What the kernel for Hopper takes: the parameters that all attention kernels share, and maps of q,
// k and v for its copy engine. Also the few numbers that host and kernel must agree on.

#ifndef BOLIDE_OPS_ATTENTION_SM90_H
#define BOLIDE_OPS_ATTENTION_SM90_H

#include "cuda/tensor_map_internal.h"
#include "ops/attention/attention_internal.h"

enum {
    BOLIDE__SM90_ROWS = 128,      /* packed rows of a tile: 64 for each of two warpgroups */
    BOLIDE__SM90_TALL_ROWS = 192, /* three warpgroups, head sizes up to 64 */
    BOLIDE__SM90_THREADS = 384,   /* two warpgroups that compute, and one that loads */
    BOLIDE__SM90_STAGES = 2
};

/* The same for so many rows of a tile. */
#define BOLIDE__SM90_THREADS_OF(rows) (2 * (rows) + 128)

/* Buffers of Q, from the rows of a tile, the blocks of 64 columns of a row of q and k and of v, and
 * the keys of a tile: two where shared memory has room for them, so that the next item's is there
 * in time. */
#define BOLIDE__SM90_Q_STAGES(rows, q_blocks, v_blocks, keys)                                      \
    (128 * (2 * (rows) * (q_blocks) + BOLIDE__SM90_STAGES * (keys) * ((q_blocks) + (v_blocks))) <= \
             200 * 1024                                                                            \
         ? 2                                                                                       \
         : 1)

/* Whether there is room for rows of out, in whole blocks, on their way to memory. */
#define BOLIDE__SM90_STORES(rows, q_blocks, v_blocks, keys, d_vo)                                  \
    ((d_vo) == 64 * (v_blocks) &&                                                                  \
     128 * ((rows) * (v_blocks) +                                                                  \
            BOLIDE__SM90_Q_STAGES(rows, q_blocks, v_blocks, keys) * (rows) * (q_blocks) +          \
            BOLIDE__SM90_STAGES * (keys) * ((q_blocks) + (v_blocks))) <=                           \
         224 * 1024)

/* Bits of its FLAGS. */
enum {
    BOLIDE__SM90_PAGED = 1,
    BOLIDE__SM90_CAPPED = 2,
    BOLIDE__SM90_SIGNED = 8, /* what logits are scaled by may be below 0 */
    BOLIDE__SM90_Q_BOX = 4,  /* the rows of a tile of q are one box: the group divides them */
    BOLIDE__SM90_WIDE = 16, /* a copy brings whole rows of a page, 8 rows of each block at a time */
    BOLIDE__SM90_PLACED = 32, /* positions are places in a matrix, see fold_q */
    BOLIDE__SM90_PIECES = 64  /* items may be pieces of a tile */
};

/* With PLACED, a column behind all. */
enum { BOLIDE__SM90_NO_COLUMN = 0x7fffff00 };

/* An item in shared memory, of which the kernels have a ring of SLOTS. */
enum { BOLIDE__SM90_SLOTS = 4 };

typedef struct bolide__sm90_item {
    bolide__attention_work w;
    int32_t head;        /* of keys; −1: there are no more */
    int32_t first, last; /* tiles of keys, last < first: none */
    int32_t seen; /* with PLACED: so many of them are seen by some row, and only these come */
    int32_t tail; /* keys of the tile that comes first */
    int32_t unused[3];
} bolide__sm90_item;

/* Of attention_sm90_fp8.cu: head size, keys of a tile, stages of keys and values, turned tiles. */
enum {
    BOLIDE__FP8_SM90_D = 128,
    BOLIDE__FP8_SM90_KEYS = 128,
    BOLIDE__FP8_SM90_STAGES = 3,
    BOLIDE__FP8_SM90_TURNED = 2
};

/* Of attention_latent_sm90.cu. */
enum { BOLIDE__LATENT90_ROWS = 64, BOLIDE__LATENT90_KEYS = 64 };

typedef struct bolide__attention_latent90_params {
    bolide__tensor_map q;      /* [q_rows * h_q, d_vo] */
    bolide__tensor_map q_tail; /* [q_rows * h_q, d_tail] */
    bolide__tensor_map ckv;    /* [pages, rows of a page, d_vo] */
    bolide__tensor_map kpe;    /* [pages, rows of a page, d_tail] */
    bolide__attention_params p;
    int64_t stream; /* 1: every latent is read once */
} bolide__attention_latent90_params;

typedef struct bolide__attention_sm90_params {
    bolide__tensor_map q;   /* [q_rows, h_kv, group, d_qk] */
    bolide__tensor_map k;   /* [pages, h_kv, rows of a page, d_qk]; without pages one of all rows */
    bolide__tensor_map v;   /* the same with d_vo */
    bolide__tensor_map out; /* where `stores`: [rows, h_kv, group, d_vo] */
    bolide__attention_params p;
    int32_t *tickets;      /* [3]: next item, blocks that are done, and with ATTN_SHARED that are at
                              work; NULL: dealt by number */
    int64_t section_bytes; /* of keys and values that should stay in the L2 together */
    int32_t stores;        /* whole rows of out go by the copy engine */
    int32_t wide;          /* rows of out are whole pieces of 16 bytes */
    int32_t plain;       /* no scales in tensors, sinks and lse: what follows holds for all rows */
    float in, out_scale; /* what products and sums are multiplied by */
} bolide__attention_sm90_params;

#ifndef __CUDACC_RTC__

/* Whether a plan is for this kernel: sets sm90 of the frozen part. usual_rows are the packed rows
 * of a request, all_rows those of the batch. */
void bolide__attention_sm90_choose(const bolide__call *call, struct bolide__attention_frozen *f,
                                   int64_t usual_rows, int64_t all_rows);
/* What the schedule may do at most, for capacities. */
void bolide__attention_sm90_rules(const struct bolide__attention_frozen *f,
                                  bolide__schedule_rules *rules);
/* Whether the tiles of a batch are cut, and into how many stretches. */
void bolide__attention_sm90_split(const struct bolide__attention_frozen *f,
                                  const bolide__attention_request *requests, int64_t batch,
                                  bolide__schedule_rules *rules);
/* Into how many pieces `tiles` tiles of so many keys are cut, each. */
int64_t bolide__attention_sm90_pieces(const struct bolide__attention_frozen *f, int64_t tiles,
                                      int64_t keys);
/* Puts the list of items into this kernel's order, from what the schedule has left in `live`; of
 * tiles in several pieces the works are there. */
void bolide__attention_sm90_list(const struct bolide__attention_frozen *f,
                                 const bolide__schedule_counts *counts, char *live);
/* Runs it; *served is false where the arguments of this run are not for it. */
bolide_status bolide__attention_sm90_run(const bolide__call *call,
                                         const struct bolide__attention_frozen *f,
                                         const bolide__attention_params *p, bool *served);

/* Whether attention_latent_sm90.cu computes a plan of latents whose requests usually have so many
 * packed rows: sets latent90 of the frozen part. */
void bolide__attention_latent90_choose(const bolide__call *call, struct bolide__attention_frozen *f,
                                       int64_t rows);
/* Runs it; *served is false where the arguments of this run are not for it. */
bolide_status bolide__attention_latent90_run(const bolide__call *call,
                                             const struct bolide__attention_frozen *f,
                                             const bolide__attention_params *p, int64_t flags,
                                             bool *served);

#endif

#endif
