// SPDX-License-Identifier: Apache-2.0
//
// concat_mla_k: two copies a head, whatever the dtype; bytes are the limit.

#include <bolide/page.h>

#include <string.h>

#include "core/op.h"
#include "cuda/cuda.h"
#include "ops/page/page_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32 | BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2)

#define A bolide_concat_mla_k_args
static const bolide_param concat_rows[] = {
    BOLIDE_IN(A, k_nope, "n h d_nope", FLOATS, "part of each head"),
    BOLIDE_IN(A, k_rope, "n 1 d_rope", BOLIDE_LIKE(k_nope), "part that all heads share"),
    BOLIDE_OUT(A, k, "n h d_nope+d_rope", BOLIDE_LIKE(k_nope), "keys"),
};
#undef A

static bolide__concat_params fill(const bolide__call *call) {
    const bolide_concat_mla_k_args *a = call->args;
    return (bolide__concat_params){.k = bolide__data(a->k),
                                   .k_nope = bolide__data(a->k_nope),
                                   .k_rope = bolide__data(a->k_rope),
                                   .n = a->k->shape[0],
                                   .h = a->k->shape[1],
                                   .d_nope = a->k_nope->shape[2],
                                   .d_rope = a->k_rope->shape[2],
                                   .k_n = bolide__stride(a->k, 0),
                                   .k_h = bolide__stride(a->k, 1),
                                   .nope_n = bolide__stride(a->k_nope, 0),
                                   .nope_h = bolide__stride(a->k_nope, 1),
                                   .rope_n = bolide__stride(a->k_rope, 0),
                                   .elem_bytes = bolide__elem_bytes(a->k)};
}

static void concat_tokens(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__concat_params *p = arg;
    const int64_t bytes = p->elem_bytes;
    const size_t nope = (size_t)(p->d_nope * bytes), rope = (size_t)(p->d_rope * bytes);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const char *shared = (const char *)p->k_rope + i * p->rope_n * bytes;
        for (int64_t h = 0; h < p->h; h++) {
            char *to = (char *)p->k + (i * p->k_n + h * p->k_h) * bytes;
            memcpy(to, (const char *)p->k_nope + (i * p->nope_n + h * p->nope_h) * bytes, nope);
            memcpy(to + nope, shared, rope);
        }
    }
}

static bolide_status concat_cpu(const bolide__call *call) {
    bolide__concat_params p = fill(call);
    bolide__parallel_for(call->ctx, p.n, bolide__row_grain(p.h * (p.d_nope + p.d_rope)),
                         concat_tokens, &p);
    return BOLIDE_OK;
}

/* Bytes of a load: as many of 16 as divide every address, stride and part. */
static int64_t load_width(const bolide__concat_params *p) {
    const uint64_t elems =
        (uint64_t)(p->k_n | p->k_h | p->nope_n | p->nope_h | p->rope_n | p->d_nope | p->d_rope);
    const uint64_t bits = 16 | (uintptr_t)p->k | (uintptr_t)p->k_nope | (uintptr_t)p->k_rope |
                          elems * (uint64_t)p->elem_bytes;
    return (int64_t)(bits & -bits);
}

static bolide_status concat_cuda(const bolide__call *call) {
    enum { THREADS = 256 };
    bolide__concat_params p = fill(call);
    const int64_t width = load_width(&p);
    p.columns = (p.d_nope + p.d_rope) * p.elem_bytes / width;
    const int64_t items = p.n * p.h * p.columns;
    bolide__spec s = BOLIDE_SPEC("page/concat.cu", "bolide_concat");
    bolide__spec_add(&s, "VEC", width); /* 5 values */
    bolide__spec_add(&s, "WIDE", bolide__is_wide(items));
    const bolide__grid g = {.x = (items + THREADS - 1) / THREADS, .block = THREADS, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, &p, sizeof p);
}

const bolide_op bolide_op_concat_mla_k = {
    .name = "concat_mla_k",
    .family = "page",
    .doc = "k = (k_nope, k_rope) in each head, k_rope shared by the heads",
    .run = BOLIDE_ENTRY(bolide_concat_mla_k_args, concat_rows),
    .cpu = concat_cpu,
    .cuda = concat_cuda,
};

bolide_status bolide_concat_mla_k(const bolide_context *ctx, const bolide_concat_mla_k_args *args,
                                  bolide_stream stream) {
    return bolide_run(&bolide_op_concat_mla_k, BOLIDE_RUN, ctx, args, stream);
}
