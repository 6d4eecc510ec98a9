// SPDX-License-Identifier: Apache-2.0
//
// Launches the dense products: few rows over columns that lie side by side in k go to mm_few.cu,
// which reads b at the speed of memory; everything else goes to mm_tile.cu. A batch-invariant
// context takes the tiles always, as the two add up in different orders. Neither needs a workspace.

#include "core/context.h"
#include "cuda/cuda.h"
#include "ops/gemm/gemm_device.h"
#include "ops/gemm/gemm_internal.h"

enum { FEW_ROWS = 16, MOST_BATCH = 65535, STAGES = 4 };

/* What the memory of the operands and the result allows. */
typedef struct access {
    int fast_a, fast_b, by_n, pairs;
} access;

static int64_t batch_stride(const bolide_tensor *t) {
    return t->ndim == 3 && t->shape[0] > 1 ? bolide__stride(t, 0) : 0;
}

static bolide__mm_params params_of(const bolide_tensor *a, const bolide_tensor *b,
                                   const bolide_tensor *bias, const bolide_tensor *out) {
    const int32_t row = a->ndim - 2, col = row + 1;
    return (bolide__mm_params){
        .a = bolide__data(a),
        .b = bolide__data(b),
        .bias = bias ? bolide__data(bias) : NULL,
        .out = bolide__data(out),
        .m = a->shape[row],
        .n = b->shape[col],
        .k = a->shape[col],
        .a_batch = batch_stride(a),
        .a_row = bolide__stride(a, row),
        .b_batch = batch_stride(b),
        .b_k = bolide__stride(b, row),
        .b_n = bolide__stride(b, col),
        .out_batch = batch_stride(out),
        .out_row = bolide__stride(out, row),
    };
}

/* 1 if rows of 16-bit numbers with these strides and this length are made of aligned 16 bytes. */
static int in_pieces(const void *data, int64_t batch, int64_t row, int64_t length) {
    return (uintptr_t)data % 16 == 0 && (batch | row | length) % 8 == 0;
}

static access access_of(const bolide__mm_params *p, int64_t out_bytes) {
    access x = {.fast_a = in_pieces(p->a, p->a_batch, p->a_row, p->k)};
    x.fast_b = p->b_k == 1 && in_pieces(p->b, p->b_batch, p->b_n, p->k);
    x.by_n = !x.fast_b && p->b_n == 1 && in_pieces(p->b, p->b_batch, p->b_k, p->n);
    x.fast_b |= x.by_n;
    x.pairs = (uintptr_t)p->out % (uintptr_t)(2 * out_bytes) == 0 &&
              (p->out_batch | p->out_row | p->n) % 2 == 0;
    return x;
}

static void add_dtypes(bolide__spec *s, const bolide_tensor *a, const bolide_tensor *bias,
                       const bolide_tensor *out) {
    bolide__spec_add(s, "DT", bolide__bit(a));                 /* 2 values */
    bolide__spec_add(s, "OUT", bolide__bit(out));              /* 3 values */
    bolide__spec_add(s, "BIAS", bias ? bolide__bit(bias) : 0); /* 4 values */
}

static bolide_status launch_few(const bolide__call *call, const bolide__spec *dtypes,
                                const bolide__mm_params *p, int64_t batch) {
    bolide__spec s = *dtypes;
    s.source = "gemm/mm_few.cu";
    s.function = "bolide_mm_few";
    bolide__spec_add(&s, "HALVES", p->m > 8 ? 2 : 1);
    const bolide__grid g = {.x = (p->n + 15) / 16, .y = batch, .block = 256, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

/* Large tiles where they fill the chip. */
static bolide_status launch_tiles(const bolide__call *call, const bolide__spec *dtypes, access x,
                                  bolide__mm_params *p, int64_t batch) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int64_t large = ((p->m + 127) / 128) * ((p->n + 127) / 128) * batch;
    const int32_t tile = large >= limits->sm_count && limits->arch >= 80 ? 128 : 64;
    bolide__spec s = *dtypes;
    s.source = "gemm/mm_tile.cu";
    s.function = "bolide_mm_tile";
    bolide__spec_add(&s, "FAST_A", x.fast_a);
    bolide__spec_add(&s, "FAST_B", x.fast_b);
    bolide__spec_add(&s, "BY_N", x.by_n);
    bolide__spec_add(&s, "PAIRS", x.pairs);
    bolide__spec_add(&s, "BM", tile); /* 2 values, as BN */
    bolide__spec_add(&s, "BN", tile);
    p->tiles_m = (p->m + tile - 1) / tile;
    const bolide__grid g = {.x = p->tiles_m * ((p->n + tile - 1) / tile),
                            .y = batch,
                            .block = tile * 2,
                            .shared = STAGES * 2 * tile * 64,
                            .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

bolide_status bolide__mm_cuda(const bolide__call *call, const bolide_tensor *a,
                              const bolide_tensor *b, const bolide_tensor *bias,
                              const bolide_tensor *out) {
    bolide__mm_params p = params_of(a, b, bias, out);
    const access x = access_of(&p, bolide__elem_bytes(out));
    const int few = p.m <= FEW_ROWS && x.fast_a && x.fast_b && !x.by_n && p.k > 0 &&
                    !call->ctx->batch_invariant;
    bolide__spec s = BOLIDE_SPEC(NULL, NULL);
    add_dtypes(&s, a, bias, out);
    for (int64_t batch = a->ndim == 3 ? a->shape[0] : 1; batch > 0; batch -= MOST_BATCH) {
        const int64_t count = batch < MOST_BATCH ? batch : MOST_BATCH;
        BOLIDE_TRY(few ? launch_few(call, &s, &p, count) : launch_tiles(call, &s, x, &p, count));
        p.a = (const char *)p.a + count * p.a_batch * 2;
        p.b = (const char *)p.b + count * p.b_batch * 2;
        p.out = (char *)p.out + count * p.out_batch * bolide__elem_bytes(out);
    }
    return BOLIDE_OK;
}
