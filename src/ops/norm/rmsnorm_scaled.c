// SPDX-License-Identifier: Apache-2.0
//
// Fronts of the operators that normalise a row and then quantise, scale or activate it:
// rmsnorm_quant, fused_rmsnorm_silu and rms_norm. They fill the parameters of rmsnorm and take
// other instances of its kernel.

#include <bolide/norm.h>

#include <math.h>

#include "core/op.h"
#include "ops/norm/norm_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)
#define F8 (BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2)

/* ---- rmsnorm_quant -------------------------------------------------------------------------- */

#define A bolide_rmsnorm_quant_args
static const bolide_param quant_rows[] = {
    BOLIDE_IN(A, input, "n d | n h d", FLOATS, "rows"),
    BOLIDE_IN(A, weight, "d", BOLIDE_LIKE(input), "weight of each column"),
    BOLIDE_F64_OR(A, scale, " | 1", BOLIDE_F32, NAN, "divides the result; not 0"),
    BOLIDE_OUT(A, out, "n d | n h d", F8, "quantised result"),
    BOLIDE_F64_ROW(A, eps, 1e-6, "added to the mean square"),
};
#undef A

static bolide_status quant_check(const bolide__call *call) {
    const bolide_rmsnorm_quant_args *a = call->args;
    return bolide__check_divisor(call, a->scale);
}

static bolide__rmsnorm_params quant_params(const bolide__call *call) {
    const bolide_rmsnorm_quant_args *a = call->args;
    bolide__rmsnorm_params p = bolide__rmsnorm_fill(a->input, NULL, a->weight, a->out, a->eps);
    p.out_scale = bolide__scalar_of(a->scale, a->scale_tensor, 1.0f);
    p.out_divides = 1;
    return p;
}

static bolide_status rmsnorm_quant_cpu(const bolide__call *call) {
    bolide__rmsnorm_params p = quant_params(call);
    bolide__parallel_for(call->ctx, p.rows, bolide__row_grain(p.d),
                         BOLIDE_CPU_PICK(rmsnorm_scaled_rows), &p);
    return BOLIDE_OK;
}

static bolide_status rmsnorm_quant_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = quant_params(call);
    return bolide__rmsnorm_launch(call, &p, BOLIDE__RMSNORM_SCALED);
}

const bolide_op bolide_op_rmsnorm_quant = {
    .name = "rmsnorm_quant",
    .family = "norm",
    .doc = "out = rmsnorm(input, weight) / scale in 8 bits",
    .run = BOLIDE_ENTRY(bolide_rmsnorm_quant_args, quant_rows),
    .check = quant_check,
    .cpu = rmsnorm_quant_cpu,
    .cuda = rmsnorm_quant_cuda,
};

bolide_status bolide_rmsnorm_quant(const bolide_context *ctx, const bolide_rmsnorm_quant_args *args,
                                   bolide_stream stream) {
    return bolide_run(&bolide_op_rmsnorm_quant, BOLIDE_RUN, ctx, args, stream);
}

/* ---- fused_rmsnorm_silu --------------------------------------------------------------------- */

#define A bolide_fused_rmsnorm_silu_args
static const bolide_param silu_rows[] = {
    BOLIDE_IN(A, input, "n d | n h d", FLOATS, "rows"),
    BOLIDE_IN(A, weight, "d", BOLIDE_LIKE(input), "weight of each column"),
    BOLIDE_OUT(A, out, "n d | n h d", FLOATS | BOLIDE_F8_E4M3FN, "result; may be input",
               .alias = "input"),
    BOLIDE_F64_ROW(A, eps, 1e-6, "added to the mean square"),
};
#undef A

static bolide__rmsnorm_params silu_params(const bolide__call *call) {
    const bolide_fused_rmsnorm_silu_args *a = call->args;
    bolide__rmsnorm_params p = bolide__rmsnorm_fill(a->input, NULL, a->weight, a->out, a->eps);
    return p;
}

static bolide_status fused_rmsnorm_silu_cpu(const bolide__call *call) {
    bolide__rmsnorm_params p = silu_params(call);
    bolide__parallel_for(call->ctx, p.rows, bolide__row_grain(p.d),
                         BOLIDE_CPU_PICK(rmsnorm_silu_rows), &p);
    return BOLIDE_OK;
}

static bolide_status fused_rmsnorm_silu_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = silu_params(call);
    return bolide__rmsnorm_launch(call, &p, BOLIDE__RMSNORM_SILU);
}

const bolide_op bolide_op_fused_rmsnorm_silu = {
    .name = "fused_rmsnorm_silu",
    .family = "norm",
    .doc = "out = silu(rmsnorm(input, weight))",
    .run = BOLIDE_ENTRY(bolide_fused_rmsnorm_silu_args, silu_rows),
    .cpu = fused_rmsnorm_silu_cpu,
    .cuda = fused_rmsnorm_silu_cuda,
};

bolide_status bolide_fused_rmsnorm_silu(const bolide_context *ctx,
                                        const bolide_fused_rmsnorm_silu_args *args,
                                        bolide_stream stream) {
    return bolide_run(&bolide_op_fused_rmsnorm_silu, BOLIDE_RUN, ctx, args, stream);
}

/* ---- rms_norm ------------------------------------------------------------------------------- */

#define A bolide_rms_norm_args
static const bolide_param rms_norm_rows[] = {
    BOLIDE_IN(A, x, "n d | n h d", FLOATS | F8, "rows"),
    BOLIDE_IN(A, weight, "d", FLOATS, "weight of each column"),
    BOLIDE_OUT(A, out, "n d | n h d", FLOATS | F8, "result; may be x", .alias = "x"),
    BOLIDE_F64_ROW(A, eps, NAN, "added to the mean square"),
    BOLIDE_F64_OR(A, in_scale, " | 1", BOLIDE_F32, NAN, "multiplies x", .flags = BOLIDE_OPTIONAL),
    BOLIDE_F64_OR(A, out_scale, " | 1", BOLIDE_F32, NAN,
                  "multiplies the result, which is then held in the range of out's dtype",
                  .flags = BOLIDE_OPTIONAL),
};
#undef A

static bolide__rmsnorm_params rms_norm_params(const bolide__call *call) {
    const bolide_rms_norm_args *a = call->args;
    bolide__rmsnorm_params p = bolide__rmsnorm_fill(a->x, NULL, a->weight, a->out, a->eps);
    p.in_scale = bolide__scalar_of(a->in_scale, a->in_scale_tensor, 1.0f);
    p.out_scale = bolide__scalar_of(a->out_scale, a->out_scale_tensor, 1.0f);
    p.out_bounded = a->out_scale_tensor || !isnan(a->out_scale);
    return p;
}

static bolide_status rms_norm_cpu(const bolide__call *call) {
    bolide__rmsnorm_params p = rms_norm_params(call);
    bolide__parallel_for(call->ctx, p.rows, bolide__row_grain(p.d),
                         BOLIDE_CPU_PICK(rmsnorm_scaled_rows), &p);
    return BOLIDE_OK;
}

static bolide_status rms_norm_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = rms_norm_params(call);
    return bolide__rmsnorm_launch(call, &p, BOLIDE__RMSNORM_SCALED);
}

const bolide_op bolide_op_rms_norm = {
    .name = "rms_norm",
    .family = "norm",
    .doc = "out = rmsnorm(x * in_scale, weight) * out_scale, each tensor of its own dtype",
    .run = BOLIDE_ENTRY(bolide_rms_norm_args, rms_norm_rows),
    .cpu = rms_norm_cpu,
    .cuda = rms_norm_cuda,
};

bolide_status bolide_rms_norm(const bolide_context *ctx, const bolide_rms_norm_args *args,
                              bolide_stream stream) {
    return bolide_run(&bolide_op_rms_norm, BOLIDE_RUN, ctx, args, stream);
}
