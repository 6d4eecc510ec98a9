// SPDX-License-Identifier: Apache-2.0
//
// Parameters of the matrix products on the GPU, filled by the fronts and taken by the kernels.

#ifndef BOLIDE_OPS_GEMM_DEVICE_H
#define BOLIDE_OPS_GEMM_DEVICE_H

#include "cuda/tensor_map_internal.h"

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

/* The same for mm_sm90.cu: b is columns that lie side by side in k. */
typedef struct bolide__mm_sm90_params {
    bolide__tensor_map a; /* [batch or 1, m, k]: boxes of up to BM rows of 64 k */
    bolide__tensor_map b; /* [batch or 1, n, k]: boxes of BN rows */
    bolide__mm_params mm;
    int32_t tiles, tiles_n;
    int32_t slices;         /* of 64 of k */
    int32_t step_a, step_b; /* 0: one for the whole batch */
    int32_t a_bytes;        /* of a box of a, which has at most BM rows */
    int32_t b_once;         /* what a tile reads of b is read by no other */
} bolide__mm_sm90_params;

enum {
    BOLIDE__MM_SM90_BK = 64,
    BOLIDE__MM_SM90_THREADS = 384,
    BOLIDE__MM_SM90_BYTES = 192 << 10, /* of the ring of stages */
    BOLIDE__MM_SM90_BARRIERS = 1024    /* bytes behind it */
};

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

/* Of mm_block_tile.cu. */
enum { BOLIDE__BLOCK_TILE_M = 128, BOLIDE__BLOCK_TILE_N = 64, BOLIDE__BLOCK_TILE_THREADS = 256 };

#ifndef __CUDACC_RTC__
/* The product of mm_bf16 and bmm_bf16 on a CUDA device; bias may be NULL. */
bolide_status bolide__mm_cuda(const bolide__call *call, const bolide_tensor *a,
                              const bolide_tensor *b, const bolide_tensor *bias,
                              const bolide_tensor *out);
#endif

#endif
