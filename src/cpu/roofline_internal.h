// SPDX-License-Identifier: Apache-2.0
//
// Between roofline.c and its kernels.

#ifndef BOLIDE_CPU_ROOFLINE_INTERNAL_H
#define BOLIDE_CPU_ROOFLINE_INTERNAL_H

#include "cpu/cpu.h"

/* Steps of an item of the chains (some 60 us); floats of an item of the sum (256 KiB). */
enum { BOLIDE__ROOFLINE_STEPS = 1 << 13, BOLIDE__ROOFLINE_SLICE = 1 << 16 };

typedef struct bolide__roofline_chains_params {
    float factor;
    float *sink; /* [items]: keeps the compiler from dropping the work */
    _Atomic int operations_a_step;
} bolide__roofline_chains_params;

typedef struct bolide__roofline_sum_params {
    const float *data; /* [items * BOLIDE__ROOFLINE_SLICE] */
    float *sink;       /* [items] */
} bolide__roofline_sum_params;

BOLIDE_CPU_KERNEL(roofline_chains, (void *arg, int64_t begin, int64_t end, int worker));
BOLIDE_CPU_KERNEL(roofline_sum, (void *arg, int64_t begin, int64_t end, int worker));

#endif
