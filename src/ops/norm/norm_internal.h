// SPDX-License-Identifier: Apache-2.0
//
// What the norm kernels share: the parameter structs, taken by CPU and device kernels alike.

#ifndef BOLIDE_OPS_NORM_INTERNAL_H
#define BOLIDE_OPS_NORM_INTERNAL_H

#ifndef __CUDACC_RTC__
#include "cpu/cpu.h"
#include <stdint.h>
#endif

/* Row r is token r / h, head r % h; h is 1 for two dimensions. Strides are in elements and the
 * last dimension is contiguous. */
typedef struct bolide__rmsnorm_params {
    const void *input;  /* [n, h, d] */
    const void *weight; /* [d] */
    void *out;          /* [n, h, d] */
    int64_t rows;       /* n * h */
    int64_t h;
    int64_t d;
    int64_t input_n, input_h; /* strides of n and h */
    int64_t out_n, out_h;
    int64_t dtype; /* of input, weight and out */
    double eps;
} bolide__rmsnorm_params;

#ifndef __CUDACC_RTC__
/* arg is a bolide__rmsnorm_params; items are rows. */
BOLIDE_CPU_KERNEL(rmsnorm_rows, (void *arg, int64_t begin, int64_t end, int worker));
#endif

#endif
