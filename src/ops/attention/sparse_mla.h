// SPDX-License-Identifier: Apache-2.0
//
// What the front and the kernels of sparse_mla share: one parameter struct. A unit of work is a
// query token and some of its heads, which read the same keys.

#ifndef BOLIDE_OPS_ATTENTION_SPARSE_MLA_H
#define BOLIDE_OPS_ATTENTION_SPARSE_MLA_H

#include "ops/attention/attention_internal.h"

/* Bytes of the packed formats. */
enum {
    BOLIDE__MLA_656 = 656,
    BOLIDE__MLA_656_SCALES = 512, /* where they begin in a row */
    BOLIDE__MLA_656_ROPE = 528,
    BOLIDE__MLA_656_TILE = 128, /* values of a scale */
    BOLIDE__MLA_584 = 584,
    BOLIDE__MLA_584_ROW = 576, /* of a page's values; its scales follow behind them */
    BOLIDE__MLA_584_ROPE = 448,
    BOLIDE__MLA_584_TILE = 64,
    BOLIDE__MLA_584_SCALES = 8 /* bytes of a row's scales */
};

/* One of the two lists of keys and its cache. */
typedef struct bolide__mla_list {
    const void *cache;      /* [pages, page_size, …] */
    const int32_t *entries; /* [n, …]: rows of the cache, or pages */
    const int32_t *lens;    /* [n]; NULL: all entries count */
    int64_t pages, page_size;
    int64_t page, row; /* strides in bytes */
    int64_t entries_n, lens_n;
    int64_t lens_offset;
    int64_t count; /* keys that the entries of a token name */
    int64_t paged; /* 1: entries are pages */
} bolide__mla_list;

typedef struct bolide__sparse_mla_params {
    const void *q;            /* [n, h_q, d_qk] */
    void *out;                /* [n, h_q, d_vo] */
    float *lse;               /* [n, h_q]; NULL: not wanted */
    const float *sinks;       /* [h_q], natural logits; NULL: none */
    const int32_t *seq_lens;  /* [b]; NULL: lists are not cut */
    const int32_t *qo_indptr; /* [b + 1]; NULL: n / b tokens each */
    bolide__mla_list list[2]; /* the second may be empty */
    int64_t q_n, q_h, out_n, out_h, lse_n, lse_h, sink_h, seq_lens_b, qo_indptr_b;
    int64_t n, b, h_q, d_qk, d_vo;
    int64_t q_dtype, kv_dtype, o_dtype;
    int64_t format; /* bolide_mla_kv_format */
    int64_t base_e;
    const float *bmm1_tensor, *bmm2_tensor; /* [1]; NULL: the numbers */
    double bmm1, bmm2;

    /* CUDA only; with one piece a token nothing of the last two is read */
    int64_t tiles, pieces; /* of heads, and of a token's keys */
    float *partial_o;      /* [n, pieces, h_q, d_vo]: sums of p v, not divided */
    float *partial_ml;     /* [n, pieces, h_q, 2]: largest logit (base 2), sum of p */

    /* CPU only */
    int64_t unit_heads, units_a_token; /* heads of a unit of work */
    unsigned char *lanes;              /* one for each worker */
    int64_t lane_bytes;
} bolide__sparse_mla_params;

#ifndef __CUDACC_RTC__
/* Floats of a lane's scratch. */
int64_t bolide__sparse_mla_lane_floats(const bolide__sparse_mla_params *p);

/* Scratch of a run on a GPU, and the run. */
int64_t bolide__sparse_mla_cuda_bytes(const bolide__call *call, const bolide__sparse_mla_params *p);
bolide_status bolide__sparse_mla_cuda_run(const bolide__call *call, bolide__sparse_mla_params *p,
                                          const bolide_workspace *workspace);

/* arg is a bolide__sparse_mla_params; items are units of work, token by token. */
BOLIDE_CPU_KERNEL(sparse_mla_units, (void *arg, int64_t begin, int64_t end, int worker));
#endif

#endif
