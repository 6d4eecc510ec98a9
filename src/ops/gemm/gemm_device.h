// SPDX-License-Identifier: Apache-2.0
//
// Parameters of the matrix products on the GPU, filled by the fronts and taken by the kernels.

#ifndef BOLIDE_OPS_GEMM_DEVICE_H
#define BOLIDE_OPS_GEMM_DEVICE_H

#ifndef __CUDACC_RTC__
#include "core/op.h"
#endif

/* out[i] = a[i] b[i] (+ bias) for each i of a batch; strides in elements, n of out and k of a are
 * contiguous. */
typedef struct bolide__mm_params {
    const void *a;    /* [batch, m, k] */
    const void *b;    /* [batch, k, n] */
    const void *bias; /* [n]; NULL: none */
    void *out;        /* [batch, m, n] */
    int64_t m, n, k;
    int64_t a_batch, a_row;
    int64_t b_batch, b_k, b_n;
    int64_t out_batch, out_row;
    int64_t tiles_m; /* rows of tiles */
} bolide__mm_params;

/* out = input weight^T (+ bias), the weight in GGUF's formats. */
typedef struct bolide__blocks_params {
    const void *input;     /* [m, k] */
    const uint8_t *weight; /* [n] rows of bytes */
    const void *bias;      /* [n]; NULL: none */
    void *out;             /* [m, n] */
    int64_t m, n, k;
    int64_t input_row, out_row; /* in elements */
    int64_t weight_n;           /* in bytes */
    int64_t tiles_m;            /* rows of tiles */
} bolide__blocks_params;

#ifndef __CUDACC_RTC__
/* The product of mm_bf16 and bmm_bf16 on a CUDA device; bias may be NULL. */
bolide_status bolide__mm_cuda(const bolide__call *call, const bolide_tensor *a,
                              const bolide_tensor *b, const bolide_tensor *bias,
                              const bolide_tensor *out);
#endif

#endif
