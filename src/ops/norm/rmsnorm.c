// SPDX-License-Identifier: Apache-2.0
//
// Front of rmsnorm: its rows and its two backends. One row is one unit of work; a kernel reads it
// once, keeps it in registers or cache and writes it once, so memory bandwidth is the limit.

#include <bolide/norm.h>

#include "core/op.h"
#include "cuda/cuda.h"
#include "ops/norm/norm_internal.h"

#define A bolide_rmsnorm_args
static const bolide_param rmsnorm_rows[] = {
    BOLIDE_IN(A, input, "n d | n h d", BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32, "rows"),
    BOLIDE_IN(A, weight, "d", BOLIDE_LIKE(input), "weight of each column"),
    BOLIDE_OUT(A, out, "n d | n h d", BOLIDE_LIKE(input), "result; may be input", .alias = "input"),
    BOLIDE_F64_ROW(A, eps, 1e-6, "added to the mean square"),
};
#undef A

/* A strided weight is refused by its row, so every pointer below has a last stride of 1. */
static bolide__rmsnorm_params fill(const bolide__call *call) {
    const bolide_rmsnorm_args *a = call->args;
    const bool heads = a->input->ndim == 3;
    const int64_t h = heads ? a->input->shape[1] : 1;
    return (bolide__rmsnorm_params){
        .input = bolide__data(a->input),
        .weight = bolide__data(a->weight),
        .out = bolide__data(a->out),
        .rows = a->input->shape[0] * h,
        .h = h,
        .d = a->weight->shape[0],
        .input_n = bolide__stride(a->input, 0),
        .input_h = heads ? bolide__stride(a->input, 1) : 0,
        .out_n = bolide__stride(a->out, 0),
        .out_h = heads ? bolide__stride(a->out, 1) : 0,
        .dtype = bolide__bit(a->input),
        .eps = a->eps,
    };
}

static bolide_status rmsnorm_cpu(const bolide__call *call) {
    bolide__rmsnorm_params p = fill(call);
    bolide__parallel_for(call->ctx, p.rows, bolide__row_grain(p.d), BOLIDE_CPU_PICK(rmsnorm_rows),
                         &p);
    return BOLIDE_OK;
}

/* Elements of a load: as many as 16 bytes hold and every address and stride allow. The strides
 * count even where there is one row. */
static int64_t load_width(const bolide__rmsnorm_params *p, int64_t elem_bytes) {
    const int64_t strides = p->d | p->input_n | p->input_h | p->out_n | p->out_h;
    const uint64_t bits = (uintptr_t)p->input | (uintptr_t)p->weight | (uintptr_t)p->out |
                          (uint64_t)strides * (uint64_t)elem_bytes | 16;
    return (int64_t)(bits & -bits) / elem_bytes;
}

/* How a row of so many 16-byte chunks is spread: threads a row, chunks a thread, rows a block. */
static const struct layout {
    int32_t chunks, threads, per, rows;
} layouts[] = {
    {8, 8, 1, 16},     {16, 16, 1, 8},     {32, 32, 1, 4},     {64, 32, 2, 4},
    {128, 32, 4, 4},   {256, 128, 2, 1},   {512, 256, 2, 1},   {1024, 256, 4, 1},
    {2048, 512, 4, 1}, {4096, 1024, 4, 1}, {8192, 1024, 8, 1}, {INT32_MAX, 1024, 0, 1},
};

static bolide_status rmsnorm_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = fill(call);
    const int64_t elem_bytes = p.dtype == BOLIDE_F32 ? 4 : 2;
    const int64_t chunks = (p.d * elem_bytes + 15) / 16;
    const struct layout *l = layouts;
    while (chunks > l->chunks && l->chunks != INT32_MAX)
        l++;
    bolide__spec s = BOLIDE_SPEC("norm/rmsnorm.cu", "bolide_rmsnorm");
    bolide__spec_add(&s, "DT", p.dtype);                     /* 3 values */
    bolide__spec_add(&s, "VEC", load_width(&p, elem_bytes)); /* 4 values */
    bolide__spec_add(&s, "THREADS", l->threads);             /* 12 pairs with PER and ROWS */
    bolide__spec_add(&s, "PER", l->per);
    bolide__spec_add(&s, "ROWS", l->rows);
    /* Enough blocks for 1,536 threads a multiprocessor, each with the same number of rows. */
    const int32_t block = l->threads * l->rows;
    const int64_t blocks = (p.rows + l->rows - 1) / l->rows;
    const int64_t resident =
        bolide__cuda_limits_of(call->ctx)->sm_count * (int64_t)(block < 1536 ? 1536 / block : 1);
    const int64_t turns = (blocks + resident - 1) / resident;
    const bolide__grid g = {.x = (blocks + turns - 1) / turns, .block = block};
    return bolide__cuda_launch(call, &s, &g, &p, sizeof p);
}

const bolide_op bolide_op_rmsnorm = {
    .name = "rmsnorm",
    .family = "norm",
    .doc = "out = input / sqrt(mean(input^2) + eps) * weight, row by row",
    .run = BOLIDE_ENTRY(bolide_rmsnorm_args, rmsnorm_rows),
    .cpu = rmsnorm_cpu,
    .cuda = rmsnorm_cuda,
};

bolide_status bolide_rmsnorm(const bolide_context *ctx, const bolide_rmsnorm_args *args,
                             bolide_stream stream) {
    return bolide_run(&bolide_op_rmsnorm, BOLIDE_RUN, ctx, args, stream);
}
