// SPDX-License-Identifier: Apache-2.0
//
// What the quant kernels share: the parameter struct, taken by CPU and device kernels alike.

#ifndef BOLIDE_OPS_QUANT_INTERNAL_H
#define BOLIDE_OPS_QUANT_INTERNAL_H

#ifndef __CUDACC_RTC__
#include "cpu/cpu.h"
#include <stdint.h>
#endif

typedef struct bolide__packbits_params {
    const uint8_t *x;   /* [n] */
    uint8_t *out;       /* [m] */
    const void *indptr; /* [b + 1]: first value of each segment; NULL: one segment, all of x */
    void *out_indptr;   /* [b + 1]: its first byte */
    int64_t n, b;
    int64_t m;       /* bytes of out */
    int32_t index64; /* 1: the two above are i64; 0: i32 */
    int32_t little;  /* 1: the first value is the lowest bit */
} bolide__packbits_params;

#ifndef __CUDACC_RTC__
/* arg is a bolide__packbits_params; items are bytes of out. */
BOLIDE_CPU_KERNEL(packbits_bytes, (void *arg, int64_t begin, int64_t end, int worker));
#endif

#endif
