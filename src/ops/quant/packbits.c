// SPDX-License-Identifier: Apache-2.0
//
// Fronts of packbits and segment_packbits. A byte of out is one unit of work; where the segments
// begin is summed up first.

#include <bolide/quant.h>

#include "core/op.h"
#include "cuda/cuda.h"
#include "ops/quant/quant_internal.h"

enum { PIECE_BYTES = 4096 };

#define A bolide_packbits_args
static const bolide_param packbits_rows[] = {
    BOLIDE_IN(A, x, "n", BOLIDE_BOOL | BOLIDE_U8, "values; 0 or not"),
    BOLIDE_ENUM_ROW(A, bitorder, "big little", BOLIDE_BITORDER_BIG,
                    "bit of the first value: the highest or the lowest"),
    BOLIDE_OUT(A, out, "ceil(n/8)", BOLIDE_U8, "packed values"),
};
#undef A

static bolide__packbits_params packbits_fill(const bolide__call *call) {
    const bolide_packbits_args *a = call->args;
    return (bolide__packbits_params){.x = bolide__data(a->x),
                                     .out = bolide__data(a->out),
                                     .n = a->x->shape[0],
                                     .m = a->out->shape[0],
                                     .little = a->bitorder == BOLIDE_BITORDER_LITTLE};
}

static bolide_status packbits_cpu(const bolide__call *call) {
    bolide__packbits_params p = packbits_fill(call);
    bolide__parallel_for(call->ctx, p.m, PIECE_BYTES, BOLIDE_CPU_PICK(packbits_bytes), &p);
    return BOLIDE_OK;
}

/* index: dtype of the segments' indptr; 0 without segments. */
static bolide__spec spec_of(const char *function, const bolide__packbits_params *p, int64_t index) {
    bolide__spec s = BOLIDE_SPEC("quant/packbits.cu", function);
    bolide__spec_add(&s, "LITTLE", p->little);
    bolide__spec_add(&s, "WORDS", index == 0 && (uintptr_t)p->x % 8 == 0);
    bolide__spec_add(&s, "INDEX", index); /* 3 values */
    return s;
}

/* A thread a byte of out. */
static bolide_status pack_cuda(const bolide__call *call, const bolide__packbits_params *p,
                               int64_t index) {
    const bolide__spec s = spec_of("bolide_packbits", p, index);
    const bolide__grid g = {
        .x = (p->m + 255) / 256, .block = 256, .dependent = index ? BOLIDE__BEHIND_OWN : 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

static bolide_status packbits_cuda(const bolide__call *call) {
    const bolide__packbits_params p = packbits_fill(call);
    return pack_cuda(call, &p, 0);
}

const bolide_op bolide_op_packbits = {
    .name = "packbits",
    .family = "quant",
    .doc = "packs eight values into a byte, a bit each",
    .run = BOLIDE_ENTRY(bolide_packbits_args, packbits_rows),
    .cpu = packbits_cpu,
    .cuda = packbits_cuda,
};

bolide_status bolide_packbits(const bolide_context *ctx, const bolide_packbits_args *args,
                              bolide_stream stream) {
    return bolide_run(&bolide_op_packbits, BOLIDE_RUN, ctx, args, stream);
}

/* ---- segments ------------------------------------------------------------------------------- */

#define A bolide_segment_packbits_args
static const bolide_param segment_rows[] = {
    BOLIDE_IN(A, x, "n", BOLIDE_BOOL | BOLIDE_U8, "values; 0 or not"),
    BOLIDE_IN(A, indptr, "b+1", BOLIDE_I32 | BOLIDE_I64, "first value of each segment"),
    BOLIDE_ENUM_ROW(A, bitorder, "big little", BOLIDE_BITORDER_BIG,
                    "bit of the first value: the highest or the lowest"),
    BOLIDE_OUT(A, out, "m", BOLIDE_U8, "packed values; at least out_indptr[b] bytes"),
    BOLIDE_OUT(A, out_indptr, "b+1", BOLIDE_LIKE(indptr), "first byte of each segment"),
};
#undef A

static int64_t index_at(const void *p, bool index64, int64_t i) {
    return index64 ? ((const int64_t *)p)[i] : ((const int32_t *)p)[i];
}

/* Checks indptr, and out against the *total of bytes. */
static bolide_status check_segments(const bolide__call *call, bool index64, int64_t *total) {
    const bolide_segment_packbits_args *a = call->args;
    const int64_t n = a->x->shape[0], points = a->indptr->shape[0];
    const void *indptr = bolide__data(a->indptr);
    int64_t last = 0, bytes = 0;
    for (int64_t i = 0; i < points; i++) {
        const int64_t next = index_at(indptr, index64, i);
        if (next < last || next > n)
            return BOLIDE_FAIL_ARG(call, "indptr", "value",
                                   bolide__text("%lld to %lld in element %lld", (long long)last,
                                                (long long)n, (long long)i),
                                   "%lld", (long long)next);
        bytes += i == 0 ? 0 : (next - last + 7) / 8;
        last = next;
    }
    *total = bytes;
    if (bytes <= a->out->shape[0])
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, "out", "shape", bolide__text("[%lld] or more", (long long)bytes),
                           "[%lld]", (long long)a->out->shape[0]);
}

static void write_out_indptr(const bolide_segment_packbits_args *a, bool index64) {
    const void *from = bolide__data(a->indptr);
    void *to = bolide__data(a->out_indptr);
    int64_t bytes = 0;
    for (int64_t i = 0; i < a->indptr->shape[0]; i++) {
        if (i > 0)
            bytes += (index_at(from, index64, i) - index_at(from, index64, i - 1) + 7) / 8;
        if (index64)
            ((int64_t *)to)[i] = bytes;
        else
            ((int32_t *)to)[i] = (int32_t)bytes; /* at most the last value of indptr */
    }
}

static bolide__packbits_params segment_fill(const bolide__call *call) {
    const bolide_segment_packbits_args *a = call->args;
    return (bolide__packbits_params){.x = bolide__data(a->x),
                                     .out = bolide__data(a->out),
                                     .indptr = bolide__data(a->indptr),
                                     .out_indptr = bolide__data(a->out_indptr),
                                     .n = a->x->shape[0],
                                     .b = a->indptr->shape[0] - 1,
                                     .m = a->out->shape[0],
                                     .index64 = bolide__bit(a->indptr) == BOLIDE_I64,
                                     .little = a->bitorder == BOLIDE_BITORDER_LITTLE};
}

static bolide_status segment_packbits_cpu(const bolide__call *call) {
    const bolide_segment_packbits_args *a = call->args;
    const bool index64 = bolide__bit(a->indptr) == BOLIDE_I64;
    int64_t total = 0;
    BOLIDE_TRY(check_segments(call, index64, &total));
    write_out_indptr(a, index64);
    bolide__packbits_params p = segment_fill(call);
    bolide__parallel_for(call->ctx, total, PIECE_BYTES, BOLIDE_CPU_PICK(packbits_bytes), &p);
    return BOLIDE_OK;
}

static bolide_status segment_packbits_cuda(const bolide__call *call) {
    const bolide__packbits_params p = segment_fill(call);
    const int64_t index = p.index64 ? BOLIDE_I64 : BOLIDE_I32;
    const bolide__spec s = spec_of("bolide_packbits_segments", &p, index);
    const bolide__grid g = {.x = 1, .block = 1024, .dependent = 1};
    BOLIDE_TRY(bolide__cuda_launch(call, &s, &g, &p, sizeof p));
    return pack_cuda(call, &p, index);
}

const bolide_op bolide_op_segment_packbits = {
    .name = "segment_packbits",
    .family = "quant",
    .doc = "packbits of each segment into whole bytes, and where they begin",
    .run = BOLIDE_ENTRY(bolide_segment_packbits_args, segment_rows),
    .cpu = segment_packbits_cpu,
    .cuda = segment_packbits_cuda,
};

bolide_status bolide_segment_packbits(const bolide_context *ctx,
                                      const bolide_segment_packbits_args *args,
                                      bolide_stream stream) {
    return bolide_run(&bolide_op_segment_packbits, BOLIDE_RUN, ctx, args, stream);
}
