// SPDX-License-Identifier: Apache-2.0
//
// What attention.cu takes: the parameters of all kernels, and a map of each cache where the copy
// engine brings rows of pages in boxes.

#ifndef BOLIDE_OPS_ATTENTION_BOXES_H
#define BOLIDE_OPS_ATTENTION_BOXES_H

#include "cuda/tensor_map_internal.h"
#include "ops/attention/attention_internal.h"

/* A box is as many rows of a page as fit, of 128 bytes each. */
enum { BOLIDE__BOX_ROWS = 64, BOLIDE__BOX_ROW_BYTES = 128 };

typedef struct bolide__attention_boxed {
    bolide__attention_params p;
    bolide__tensor_map k, v; /* [pages, h_kv, page_size, d]: boxes of [1, 1, rows, 128 bytes] */
} bolide__attention_boxed;

#endif
