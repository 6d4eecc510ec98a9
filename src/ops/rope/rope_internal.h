// SPDX-License-Identifier: Apache-2.0
//
// What the rope kernels share: one parameter struct for every form of positions and frequencies,
// taken by CPU and device kernels alike.

#ifndef BOLIDE_OPS_ROPE_INTERNAL_H
#define BOLIDE_OPS_ROPE_INTERNAL_H

#include "core/rows_internal.h"

#ifndef __CUDACC_RTC__
#include "cpu/cpu.h"
#include <stdint.h>
#endif

enum {
    BOLIDE__ROPE_MAX_PAIRS = 256,
    BOLIDE__ROPE_THREADS = 256,       /* of a block of the device kernel that makes its angles */
    BOLIDE__ROPE_TABLE_THREADS = 128, /* where they come from a table */
    BOLIDE__ROPE_FEW_THREADS = 64,    /* and there are few tokens */
};

/* q or k: where its heads lie. Strides are in elements, the last dimension is contiguous. */
typedef struct bolide__rope_side {
    const void *in; /* [n, h, d] */
    void *out;      /* [n, h, d] */
    int64_t h;
    int64_t in_n, in_h, out_n, out_h;
} bolide__rope_side;

typedef struct bolide__rope_params {
    int64_t items;             /* of the device kernel: vectors, or pairs of them, of a head */
    int64_t threads;           /* of a token */
    bolide__rope_side side[2]; /* q, k */
    int64_t n, d;
    int64_t rotary_dim; /* even, at most d */
    int64_t interleave; /* 1: pairs (2i, 2i + 1); 0: (i, i + rotary_dim/2) */
    int64_t dtype;      /* of q, k and the outputs */

    /* Positions: pos_ids, or indptr and offsets. */
    const void *pos_ids; /* [n]: i32 or i64; NULL: ragged */
    int64_t pos_is_i64;
    const int32_t *indptr;  /* [b + 1] */
    const int32_t *offsets; /* [b] */
    int64_t b;

    /* Angles: the table, or frequencies. */
    const float *cos_sin_cache; /* [max_pos, rotary_dim]: cosines, then sines; NULL: freq */
    int64_t max_pos;
    int64_t cache_stride;  /* elements between rows of the table */
    int64_t cache_vectors; /* 1: rows and their halves lie at multiples of 16 bytes */
    const double *freq;    /* radians a position, rotary_dim/2 of them; on the host alone */
} bolide__rope_params;

/* Without a table the device kernel takes the frequencies behind the rest. */
typedef struct bolide__rope_made_params {
    bolide__rope_params rope;
    double freq[BOLIDE__ROPE_MAX_PAIRS];
} bolide__rope_made_params;

#ifndef __CUDACC_RTC__
/* arg is a bolide__rope_params; items are tokens. */
BOLIDE_CPU_KERNEL(rope_tokens, (void *arg, int64_t begin, int64_t end, int worker));
#endif

#endif
