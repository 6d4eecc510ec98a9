// SPDX-License-Identifier: Apache-2.0
//
// What the activation kernels share: the parameter struct, taken by CPU and device kernels alike.

#ifndef BOLIDE_OPS_ACTIVATION_INTERNAL_H
#define BOLIDE_OPS_ACTIVATION_INTERNAL_H

#ifndef __CUDACC_RTC__
#include "cpu/cpu.h"
#endif

#include "core/rows_internal.h"

/* Outputs of a row that are one item of the CPU kernel, so that few long rows keep all threads
 * busy, too. */
#define BOLIDE__ACTIVATION_PIECE 4096

enum bolide__activation_function { BOLIDE__SILU, BOLIDE__GELU, BOLIDE__GELU_TANH };

typedef struct bolide__activation_params {
    bolide__rows input; /* [n, h, 2d] */
    bolide__rows out;   /* [n, h, d] */
    int64_t rows;       /* n * h */
    int64_t h, d;
    int64_t pieces;                  /* of a row */
    bolide__scalar x_scale, o_scale; /* of the scaled form */
    int32_t out_bounded;             /* 1: held in the finite range of out's dtype */
    int64_t columns;                 /* of the device kernel: vectors of a row */
} bolide__activation_params;

#ifndef __CUDACC_RTC__
/* arg is a bolide__activation_params; item i is piece i % pieces of row i / pieces. The first three
 * take one dtype for both tensors, the last any two. */
#define ITEMS (void *arg, int64_t begin, int64_t end, int worker)
BOLIDE_CPU_KERNEL(silu_and_mul_pieces, ITEMS);
BOLIDE_CPU_KERNEL(gelu_and_mul_pieces, ITEMS);
BOLIDE_CPU_KERNEL(gelu_tanh_and_mul_pieces, ITEMS);
BOLIDE_CPU_KERNEL(silu_and_mul_scaled_pieces, ITEMS);
#undef ITEMS
#endif

#endif
