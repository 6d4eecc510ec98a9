// SPDX-License-Identifier: Apache-2.0
//
// Front of rmsnorm: its rows and its two backends. One row is one unit of work; a kernel reads it
// once, keeps it in registers or cache and writes it once, so memory bandwidth is the limit.

#include <bolide/norm.h>

#include "core/op.h"
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

const bolide_op bolide_op_rmsnorm = {
    .name = "rmsnorm",
    .family = "norm",
    .doc = "out = input / sqrt(mean(input^2) + eps) * weight, row by row",
    .run = BOLIDE_ENTRY(bolide_rmsnorm_args, rmsnorm_rows),
    .cpu = rmsnorm_cpu,
};

bolide_status bolide_rmsnorm(const bolide_context *ctx, const bolide_rmsnorm_args *args,
                             bolide_stream stream) {
    return bolide_run(&bolide_op_rmsnorm, BOLIDE_RUN, ctx, args, stream);
}
