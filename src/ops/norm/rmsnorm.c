// SPDX-License-Identifier: Apache-2.0
//
// Front of rmsnorm and gemma_rmsnorm: their rows and backends. One row is one unit of work; a
// kernel reads it once, keeps it in registers or cache and writes it once, so memory bandwidth is
// the limit.

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

static bolide__rmsnorm_params fill(const bolide__call *call, int gemma) {
    const bolide_rmsnorm_args *a = call->args;
    bolide__rmsnorm_params p = bolide__rmsnorm_fill(a->input, NULL, a->weight, a->out, a->eps);
    if (gemma)
        p.weight_bias = 1.0f;
    return p;
}

static bolide_status run_cpu(const bolide__call *call, bolide__rmsnorm_params p) {
    bolide__parallel_for(call->ctx, p.rows, bolide__long_grain(p.rows, p.d),
                         BOLIDE_CPU_PICK(rmsnorm_rows), &p);
    return BOLIDE_OK;
}

static bolide_status rmsnorm_cpu(const bolide__call *call) {
    return run_cpu(call, fill(call, 0));
}

static bolide_status gemma_rmsnorm_cpu(const bolide__call *call) {
    return run_cpu(call, fill(call, 1));
}

static bolide_status rmsnorm_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = fill(call, 0);
    return bolide__rmsnorm_launch(call, &p, 0);
}

static bolide_status gemma_rmsnorm_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = fill(call, 1);
    return bolide__rmsnorm_launch(call, &p, 0);
}

const bolide_op bolide_op_rmsnorm = {
    .name = "rmsnorm",
    .family = "norm",
    .doc = "out = input / sqrt(mean(input^2) + eps) * weight, row by row",
    .run = BOLIDE_ENTRY(bolide_rmsnorm_args, rmsnorm_rows),
    .cpu = rmsnorm_cpu,
    .cuda = rmsnorm_cuda,
};

const bolide_op bolide_op_gemma_rmsnorm = {
    .name = "gemma_rmsnorm",
    .family = "norm",
    .doc = "rmsnorm with 1 + weight in the place of weight",
    .run = BOLIDE_ENTRY(bolide_gemma_rmsnorm_args, rmsnorm_rows),
    .cpu = gemma_rmsnorm_cpu,
    .cuda = gemma_rmsnorm_cuda,
};

bolide_status bolide_rmsnorm(const bolide_context *ctx, const bolide_rmsnorm_args *args,
                             bolide_stream stream) {
    return bolide_run(&bolide_op_rmsnorm, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_gemma_rmsnorm(const bolide_context *ctx, const bolide_gemma_rmsnorm_args *args,
                                   bolide_stream stream) {
    return bolide_run(&bolide_op_gemma_rmsnorm, BOLIDE_RUN, ctx, args, stream);
}
