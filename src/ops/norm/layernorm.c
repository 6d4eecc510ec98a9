// SPDX-License-Identifier: Apache-2.0
//
// Fronts of layernorm and layernorm_quant. A row is one unit of work, as in rmsnorm.

#include <bolide/norm.h>

#include <math.h>

#include "core/op.h"
#include "ops/norm/norm_internal.h"

/* ---- layernorm ------------------------------------------------------------------------------ */

#define A bolide_layernorm_args
static const bolide_param layernorm_rows[] = {
    BOLIDE_IN(A, input, "n d | n h d", BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32, "rows"),
    BOLIDE_IN(A, gemma, "d", BOLIDE_F32, "factor of each column"),
    BOLIDE_IN(A, beta, "d", BOLIDE_F32, "term of each column"),
    BOLIDE_OUT(A, out, "n d | n h d", BOLIDE_LIKE(input), "result; may be input", .alias = "input"),
    BOLIDE_F64_ROW(A, eps, 1e-6, "added to the variance"),
};
#undef A

static bolide__layernorm_params layernorm_fill(const bolide__call *call) {
    const bolide_layernorm_args *a = call->args;
    bolide__layernorm_params p = bolide__layernorm_fill(a->input, a->out, a->eps);
    p.gamma = bolide__data(a->gemma);
    p.beta = bolide__data(a->beta);
    return p;
}

static bolide_status layernorm_cpu(const bolide__call *call) {
    bolide__layernorm_params p = layernorm_fill(call);
    bolide__parallel_for(call->ctx, p.rows, bolide__row_grain(p.d), BOLIDE_CPU_PICK(layernorm_rows),
                         &p);
    return BOLIDE_OK;
}

static bolide_status layernorm_cuda(const bolide__call *call) {
    const bolide__layernorm_params p = layernorm_fill(call);
    return bolide__layernorm_launch(call, &p);
}

const bolide_op bolide_op_layernorm = {
    .name = "layernorm",
    .family = "norm",
    .doc = "out = (input - mean) / sqrt(variance + eps) * gemma + beta, row by row",
    .run = BOLIDE_ENTRY(bolide_layernorm_args, layernorm_rows),
    .cpu = layernorm_cpu,
    .cuda = layernorm_cuda,
};

bolide_status bolide_layernorm(const bolide_context *ctx, const bolide_layernorm_args *args,
                               bolide_stream stream) {
    return bolide_run(&bolide_op_layernorm, BOLIDE_RUN, ctx, args, stream);
}

/* ---- layernorm_quant ------------------------------------------------------------------------ */

#define A bolide_layernorm_quant_args
static const bolide_param quant_rows[] = {
    BOLIDE_IN(A, input, "n d | n h d", BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32, "rows"),
    BOLIDE_IN(A, gemma, "d", BOLIDE_F32, "factor of each column"),
    BOLIDE_IN(A, beta, "d", BOLIDE_F32, "term of each column"),
    BOLIDE_F64_OR(A, scale, " | 1", BOLIDE_F32, NAN, "divides the result; not 0"),
    BOLIDE_OUT(A, out, "n d | n h d", BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2, "quantised result"),
    BOLIDE_F64_ROW(A, eps, 1e-6, "added to the variance"),
};
#undef A

static bolide_status quant_check(const bolide__call *call) {
    const bolide_layernorm_quant_args *a = call->args;
    return bolide__check_divisor(call, a->scale);
}

static bolide__layernorm_params quant_fill(const bolide__call *call) {
    const bolide_layernorm_quant_args *a = call->args;
    bolide__layernorm_params p = bolide__layernorm_fill(a->input, a->out, a->eps);
    p.gamma = bolide__data(a->gemma);
    p.beta = bolide__data(a->beta);
    p.out_scale = bolide__scalar_of(a->scale, a->scale_tensor, 1.0f);
    return p;
}

static bolide_status layernorm_quant_cpu(const bolide__call *call) {
    bolide__layernorm_params p = quant_fill(call);
    bolide__parallel_for(call->ctx, p.rows, bolide__row_grain(p.d),
                         BOLIDE_CPU_PICK(layernorm_quant_rows), &p);
    return BOLIDE_OK;
}

static bolide_status layernorm_quant_cuda(const bolide__call *call) {
    const bolide__layernorm_params p = quant_fill(call);
    return bolide__layernorm_launch(call, &p);
}

const bolide_op bolide_op_layernorm_quant = {
    .name = "layernorm_quant",
    .family = "norm",
    .doc = "out = layernorm(input, gemma, beta) / scale in 8 bits",
    .run = BOLIDE_ENTRY(bolide_layernorm_quant_args, quant_rows),
    .check = quant_check,
    .cpu = layernorm_quant_cpu,
    .cuda = layernorm_quant_cuda,
};

bolide_status bolide_layernorm_quant(const bolide_context *ctx,
                                     const bolide_layernorm_quant_args *args,
                                     bolide_stream stream) {
    return bolide_run(&bolide_op_layernorm_quant, BOLIDE_RUN, ctx, args, stream);
}
