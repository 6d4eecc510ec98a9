// SPDX-License-Identifier: Apache-2.0
//
// What the operators that join attention states share: one parameter struct for CPU and device.

#ifndef BOLIDE_OPS_CASCADE_INTERNAL_H
#define BOLIDE_OPS_CASCADE_INTERNAL_H

#ifndef __CUDACC_RTC__
#include "cpu/cpu.h"
#include <stdint.h>
#endif

/* State i of row (n, h) lies at n * v_n + i * v_i + h * v_h of v; with indptr it is state
 * indptr[n] + i of m packed ones. With v_b there are two: state 0 in v, state 1 in v_b. The last
 * dimension is contiguous, other strides are in elements. */
typedef struct bolide__merge_params {
    const void *v;
    const float *s;
    const void *v_b; /* NULL: all states lie in v */
    const float *s_b;
    const int32_t *indptr; /* [n + 1]; NULL: `states` states a row */
    const uint8_t *mask;   /* [n]; rows with 0 are left alone; NULL: none is */
    void *v_merged;
    float *s_merged;
    int64_t rows, h, d; /* rows: n * h */
    int64_t states;
    int64_t v_n, v_i, v_h, s_n, s_i, s_h;
    int64_t v_b_n, v_b_h, s_b_n, s_b_h;
    int64_t out_n, out_h, s_out_n, s_out_h;
    int64_t mask_n;
    int64_t dtype;
} bolide__merge_params;

#ifndef __CUDACC_RTC__
/* arg is a bolide__merge_params; items are rows. */
BOLIDE_CPU_KERNEL(merge_rows, (void *arg, int64_t begin, int64_t end, int worker));
#endif

#endif
