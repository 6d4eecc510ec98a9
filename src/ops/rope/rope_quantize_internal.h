// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of rope_quantize share: one parameter struct for all its forms, taken by CPU and
// device kernels alike. A call is a list of parts: the turned and the other channels of q and k,
// and v, each with a factor, to a tensor of its own or to the pages of a cache.

#ifndef BOLIDE_OPS_ROPE_QUANTIZE_INTERNAL_H
#define BOLIDE_OPS_ROPE_QUANTIZE_INTERNAL_H

#include "core/page_table_internal.h"
#include "ops/rope/rope_internal.h"

enum { BOLIDE__ROPE_PARTS = 5 };

/* Strides are in elements, the last dimension is contiguous. */
typedef struct bolide__rope_part {
    const void *in; /* [n, h, d] */
    void *out;      /* [n, h, d], or pages, slots, heads, d by the strides below */
    int64_t h, d;   /* h 1 for keys that all heads share */
    int64_t in_n, in_h;
    int64_t out_n, out_h; /* out_n: of a token, or of a page */
    int64_t out_slot;
    int64_t is_paged;
    int64_t turns; /* 1: the channels turn */
    int64_t items; /* of the device kernel: of a head */
    int64_t end;   /* likewise: items of a token up to the end of this part */
    float scale;
} bolide__rope_part;

typedef struct bolide__rope_quantize_params {
    bolide__rope_part part[BOLIDE__ROPE_PARTS];
    int64_t parts;
    int64_t n;
    int64_t rotary_dim; /* d of the parts that turn, even */
    int64_t interleave; /* 1: pairs (2i, 2i + 1); 0: (i, i + rotary_dim/2) */
    int64_t dtype, out_dtype;
    const void *pos_ids; /* [n]: i32 or i64 */
    int64_t pos_is_i64;
    const float *cos_sin_cache; /* [max_pos, rotary_dim]: cosines, then sines */
    int64_t max_pos;
    int64_t cache_stride;  /* elements between rows of the table */
    int64_t cache_vectors; /* 1: rows and their halves lie at multiples of 16 bytes */

    /* For parts that are paged. */
    bolide__page_table table;
    const int32_t *batch_indices; /* [n] */
    const int32_t *positions;     /* [n] */
} bolide__rope_quantize_params;

#ifndef __CUDACC_RTC__
/* arg is a bolide__rope_quantize_params; items are tokens. */
BOLIDE_CPU_KERNEL(rope_quantize_tokens, (void *arg, int64_t begin, int64_t end, int worker));
#endif

#endif
