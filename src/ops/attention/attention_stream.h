// SPDX-License-Identifier: Apache-2.0
//
// What attention_stream.cu takes: the parameters that all attention kernels share, and maps of keys
// and values for its copy engine. Also the numbers that host and kernel must agree on.

#ifndef BOLIDE_OPS_ATTENTION_STREAM_H
#define BOLIDE_OPS_ATTENTION_STREAM_H

#include "cuda/tensor_map_internal.h"
#include "ops/attention/attention_internal.h"

/* What a block reads before its first copy, in one line of the parameters' cache. */
typedef struct bolide__attention_stream_first {
    const bolide__attention_head *heads;
    const int32_t *indices;
    int64_t table_row;
    int64_t list_lines; /* of 128 bytes at the beginning of the list of pages, asked for at once */
    int32_t page_shift, page_mask;
    int32_t unused[6];
} bolide__attention_stream_first;

typedef struct bolide__attention_stream_params {
    bolide__attention_stream_first first;
    bolide__tensor_map k; /* [pages, h_kv, blocks of 128 bytes of a row, rows of a page, these] */
    bolide__tensor_map v; /* the same */
    bolide__attention_params p;
} bolide__attention_stream_params;

/* Keys that a warp takes at a time, by the bytes of an element. */
#define BOLIDE__STREAM_KEYS(size) ((size) == 1 ? 32 : 16)

/* Bytes at which kv_start to kv_begin and, behind them, kv_end to request lie in a worker's head,
 * and begin and count. */
enum { BOLIDE__STREAM_LOW = 32, BOLIDE__STREAM_LIST = 80 };

/* A bit of its FLAGS beside those of attention.cu: there is a kernel ahead that may still run. */
enum { BOLIDE__STREAM_EDGE = 16384 };

#ifndef __CUDACC_RTC__

/* Runs it, with the FLAGS of attention.cu; *served is false where the plan or the arguments of this
 * run are not for it. */
bolide_status bolide__attention_stream_run(const bolide__call *call,
                                           const struct bolide__attention_frozen *f,
                                           const bolide__attention_params *p, int64_t flags,
                                           bool *served);

#endif

#endif
