// SPDX-License-Identifier: Apache-2.0
//
// get_seq_lens and get_batch_indices_positions: integer work of a few nanoseconds a request, so
// the CPU side is a plain loop here and has no kernel file.

#include <bolide/page.h>

#include "core/op.h"
#include "cuda/cuda.h"
#include "ops/page/page_internal.h"

#define A bolide_get_seq_lens_args
static const bolide_param seq_lens_rows[] = {
    BOLIDE_IN(A, kv_indptr, "b+1", BOLIDE_I32, "range of each request in kv_indices"),
    BOLIDE_IN(A, kv_last_page_len, "b", BOLIDE_I32, "tokens in each last page"),
    BOLIDE_I64_ROW(A, page_size, BOLIDE_NO_INT, "tokens of a page"),
    BOLIDE_OUT(A, out, "b", BOLIDE_I32, "tokens of each request"),
};
#undef A

#define A bolide_get_batch_indices_positions_args
static const bolide_param positions_rows[] = {
    BOLIDE_IN(A, append_indptr, "b+1", BOLIDE_I32, "range of each request in the appended tokens"),
    BOLIDE_IN(A, seq_lens, "b", BOLIDE_I32, "length of each request after the append"),
    BOLIDE_OUT(A, batch_indices, "nnz", BOLIDE_I32, "request of each token, -1 behind the last"),
    BOLIDE_OUT(A, positions, "nnz", BOLIDE_I32, "position of each token, 0 behind the last"),
};
#undef A

static bolide_status seq_lens_check(const bolide__call *call) {
    const bolide_get_seq_lens_args *a = call->args;
    if (a->page_size >= 1 && a->page_size <= INT32_MAX)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, "page_size", "value", "1 to 2147483647", "%lld",
                           (long long)a->page_size);
}

static bolide__seq_lens_params seq_lens_fill(const bolide__call *call) {
    const bolide_get_seq_lens_args *a = call->args;
    return (bolide__seq_lens_params){.indptr = bolide__data(a->kv_indptr),
                                     .last_page_len = bolide__data(a->kv_last_page_len),
                                     .out = bolide__data(a->out),
                                     .b = a->out->shape[0],
                                     .page_size = a->page_size};
}

static bolide_status seq_lens_cpu(const bolide__call *call) {
    const bolide__seq_lens_params p = seq_lens_fill(call);
    for (int64_t r = 0; r < p.b; r++) {
        const int64_t pages = (int64_t)p.indptr[r + 1] - p.indptr[r];
        p.out[r] = pages > 0 ? (int32_t)((pages - 1) * p.page_size + p.last_page_len[r]) : 0;
    }
    return BOLIDE_OK;
}

static bolide__positions_params positions_fill(const bolide__call *call) {
    const bolide_get_batch_indices_positions_args *a = call->args;
    return (bolide__positions_params){.append_indptr = bolide__data(a->append_indptr),
                                      .seq_lens = bolide__data(a->seq_lens),
                                      .batch_indices = bolide__data(a->batch_indices),
                                      .positions = bolide__data(a->positions),
                                      .b = a->seq_lens->shape[0],
                                      .nnz = a->positions->shape[0]};
}

/* Ranges are cut to the outputs, so a wrong append_indptr cannot write outside them. */
static bolide_status positions_cpu(const bolide__call *call) {
    const bolide__positions_params p = positions_fill(call);
    int64_t next = 0;
    for (int64_t r = 0; r < p.b; r++) {
        const int64_t end = p.append_indptr[r + 1];
        for (; next < end && next < p.nnz; next++) {
            p.batch_indices[next] = (int32_t)r;
            p.positions[next] = (int32_t)(p.seq_lens[r] - (end - next));
        }
    }
    for (; next < p.nnz; next++) {
        p.batch_indices[next] = -1;
        p.positions[next] = 0;
    }
    return BOLIDE_OK;
}

/* A thread a request or a token. */
static bolide__grid threads(int64_t count) {
    return (bolide__grid){.x = (count + 127) / 128, .block = 128, .dependent = 1};
}

static bolide_status seq_lens_cuda(const bolide__call *call) {
    const bolide__seq_lens_params p = seq_lens_fill(call);
    const bolide__spec s = BOLIDE_SPEC("page/seq_lens.cu", "bolide_seq_lens");
    const bolide__grid g = threads(p.b);
    return bolide__cuda_launch(call, &s, &g, &p, sizeof p);
}

static bolide_status positions_cuda(const bolide__call *call) {
    const bolide__positions_params p = positions_fill(call);
    const bolide__spec s = BOLIDE_SPEC("page/seq_lens.cu", "bolide_positions");
    const bolide__grid g = threads(p.nnz);
    return bolide__cuda_launch(call, &s, &g, &p, sizeof p);
}

const bolide_op bolide_op_get_seq_lens = {
    .name = "get_seq_lens",
    .family = "page",
    .doc = "tokens of each request, from its page range and the fill of its last page",
    .run = BOLIDE_ENTRY(bolide_get_seq_lens_args, seq_lens_rows),
    .check = seq_lens_check,
    .cpu = seq_lens_cpu,
    .cuda = seq_lens_cuda,
};

const bolide_op bolide_op_get_batch_indices_positions = {
    .name = "get_batch_indices_positions",
    .family = "page",
    .doc = "request and position of each appended token",
    .run = BOLIDE_ENTRY(bolide_get_batch_indices_positions_args, positions_rows),
    .cpu = positions_cpu,
    .cuda = positions_cuda,
};

bolide_status bolide_get_seq_lens(const bolide_context *ctx, const bolide_get_seq_lens_args *args,
                                  bolide_stream stream) {
    return bolide_run(&bolide_op_get_seq_lens, BOLIDE_RUN, ctx, args, stream);
}

bolide_status
bolide_get_batch_indices_positions(const bolide_context *ctx,
                                   const bolide_get_batch_indices_positions_args *args,
                                   bolide_stream stream) {
    return bolide_run(&bolide_op_get_batch_indices_positions, BOLIDE_RUN, ctx, args, stream);
}
