// SPDX-License-Identifier: Apache-2.0
//
// Fronts of the RMS norms of a sum: fused_add_rmsnorm, its Gemma, quantised and scaled forms, and
// the one that quantises in blocks. They fill the parameters of rmsnorm, with a residual, and take
// other instances of its kernel.

#include <bolide/norm.h>

#include <math.h>

#include "core/op.h"
#include "ops/norm/norm_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)
#define F8 (BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2)

/* ---- in place ------------------------------------------------------------------------------- */

#define A bolide_fused_add_rmsnorm_args
static const bolide_param add_rows[] = {
    BOLIDE_INOUT(A, input, "n d | n h d", FLOATS, "one term; becomes the norm"),
    BOLIDE_INOUT(A, residual, "n d | n h d", BOLIDE_LIKE(input), "the other; becomes the sum"),
    BOLIDE_IN(A, weight, "d", BOLIDE_LIKE(input), "weight of each column"),
    BOLIDE_F64_ROW(A, eps, 1e-6, "added to the mean square"),
};
#undef A

static bolide__rmsnorm_params add_params(const bolide__call *call, float weight_bias) {
    const bolide_fused_add_rmsnorm_args *a = call->args;
    bolide__rmsnorm_params p =
        bolide__rmsnorm_fill(a->input, a->residual, a->weight, a->input, a->eps);
    p.weight_bias = weight_bias;
    return p;
}

static bolide_status add_cpu(const bolide__call *call, float weight_bias) {
    bolide__rmsnorm_params p = add_params(call, weight_bias);
    bolide__parallel_for(call->ctx, p.rows, bolide__long_grain(p.rows, p.d),
                         BOLIDE_CPU_PICK(fused_add_rmsnorm_rows), &p);
    return BOLIDE_OK;
}

static bolide_status fused_add_rmsnorm_cpu(const bolide__call *call) {
    return add_cpu(call, -0.0f);
}

static bolide_status gemma_fused_add_rmsnorm_cpu(const bolide__call *call) {
    return add_cpu(call, 1.0f);
}

static bolide_status fused_add_rmsnorm_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = add_params(call, -0.0f);
    return bolide__rmsnorm_launch(call, &p, 0);
}

static bolide_status gemma_fused_add_rmsnorm_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = add_params(call, 1.0f);
    return bolide__rmsnorm_launch(call, &p, 0);
}

const bolide_op bolide_op_fused_add_rmsnorm = {
    .name = "fused_add_rmsnorm",
    .family = "norm",
    .doc = "residual += input; input = rmsnorm(residual, weight)",
    .run = BOLIDE_ENTRY(bolide_fused_add_rmsnorm_args, add_rows),
    .cpu = fused_add_rmsnorm_cpu,
    .cuda = fused_add_rmsnorm_cuda,
};

const bolide_op bolide_op_gemma_fused_add_rmsnorm = {
    .name = "gemma_fused_add_rmsnorm",
    .family = "norm",
    .doc = "fused_add_rmsnorm with 1 + weight in the place of weight",
    .run = BOLIDE_ENTRY(bolide_gemma_fused_add_rmsnorm_args, add_rows),
    .cpu = gemma_fused_add_rmsnorm_cpu,
    .cuda = gemma_fused_add_rmsnorm_cuda,
};

bolide_status bolide_fused_add_rmsnorm(const bolide_context *ctx,
                                       const bolide_fused_add_rmsnorm_args *args,
                                       bolide_stream stream) {
    return bolide_run(&bolide_op_fused_add_rmsnorm, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_gemma_fused_add_rmsnorm(const bolide_context *ctx,
                                             const bolide_gemma_fused_add_rmsnorm_args *args,
                                             bolide_stream stream) {
    return bolide_run(&bolide_op_gemma_fused_add_rmsnorm, BOLIDE_RUN, ctx, args, stream);
}

/* ---- quantised ------------------------------------------------------------------------------ */

#define A bolide_fused_add_rmsnorm_quant_args
static const bolide_param quant_rows[] = {
    BOLIDE_IN(A, input, "n d | n h d", FLOATS, "one term"),
    BOLIDE_INOUT(A, residual, "n d | n h d", BOLIDE_LIKE(input), "the other; becomes the sum"),
    BOLIDE_IN(A, weight, "d", BOLIDE_LIKE(input), "weight of each column"),
    BOLIDE_F64_OR(A, scale, " | 1", BOLIDE_F32, NAN, "divides the result; not 0"),
    BOLIDE_OUT(A, out, "n d | n h d", F8, "quantised norm"),
    BOLIDE_F64_ROW(A, eps, 1e-6, "added to the mean square"),
};
#undef A

static bolide_status quant_check(const bolide__call *call) {
    const bolide_fused_add_rmsnorm_quant_args *a = call->args;
    return bolide__check_divisor(call, a->scale);
}

static bolide__rmsnorm_params quant_params(const bolide__call *call) {
    const bolide_fused_add_rmsnorm_quant_args *a = call->args;
    bolide__rmsnorm_params p =
        bolide__rmsnorm_fill(a->input, a->residual, a->weight, a->out, a->eps);
    p.out_scale = bolide__scalar_of(a->scale, a->scale_tensor, 1.0f);
    p.out_divides = 1;
    return p;
}

static bolide_status fused_add_rmsnorm_quant_cpu(const bolide__call *call) {
    bolide__rmsnorm_params p = quant_params(call);
    bolide__parallel_for(call->ctx, p.rows, bolide__long_grain(p.rows, p.d),
                         BOLIDE_CPU_PICK(rmsnorm_scaled_rows), &p);
    return BOLIDE_OK;
}

static bolide_status fused_add_rmsnorm_quant_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = quant_params(call);
    return bolide__rmsnorm_launch(call, &p, BOLIDE__RMSNORM_SCALED);
}

const bolide_op bolide_op_fused_add_rmsnorm_quant = {
    .name = "fused_add_rmsnorm_quant",
    .family = "norm",
    .doc = "residual += input; out = rmsnorm(residual, weight) / scale in 8 bits",
    .run = BOLIDE_ENTRY(bolide_fused_add_rmsnorm_quant_args, quant_rows),
    .check = quant_check,
    .cpu = fused_add_rmsnorm_quant_cpu,
    .cuda = fused_add_rmsnorm_quant_cuda,
};

bolide_status bolide_fused_add_rmsnorm_quant(const bolide_context *ctx,
                                             const bolide_fused_add_rmsnorm_quant_args *args,
                                             bolide_stream stream) {
    return bolide_run(&bolide_op_fused_add_rmsnorm_quant, BOLIDE_RUN, ctx, args, stream);
}

/* ---- quantised in blocks -------------------------------------------------------------------- */

#define A bolide_fused_add_rmsnorm_fp8_block_quant_args
static const bolide_param block_quant_rows[] = {
    BOLIDE_IN(A, input, "n d", FLOATS, "one term"),
    BOLIDE_INOUT(A, residual, "n d", BOLIDE_LIKE(input), "the other; becomes the sum"),
    BOLIDE_IN(A, weight, "d", BOLIDE_LIKE(input), "weight of each column"),
    BOLIDE_OUT(A, out, "n d", BOLIDE_F8_E4M3FN, "normed_out / block_scale"),
    BOLIDE_OUT(A, block_scale, "d/128 pad(n,4)", BOLIDE_F32, "scale of each 128 values",
               .flags = BOLIDE_STRIDED),
    BOLIDE_OUT(A, normed_out, "n d", BOLIDE_LIKE(input), "norm; may be input", .alias = "input"),
    BOLIDE_F64_ROW(A, eps, 1e-6, "added to the mean square"),
};
#undef A

static bolide_status block_quant_check(const bolide__call *call) {
    const bolide_fused_add_rmsnorm_fp8_block_quant_args *a = call->args;
    const int64_t d = a->input->shape[1];
    if (d % BOLIDE__QUANT_BLOCK == 0)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, "input", "shape", "rows of a multiple of 128 values", "%lld",
                           (long long)d);
}

static bolide__rmsnorm_params block_quant_params(const bolide__call *call) {
    const bolide_fused_add_rmsnorm_fp8_block_quant_args *a = call->args;
    bolide__rmsnorm_params p =
        bolide__rmsnorm_fill(a->input, a->residual, a->weight, a->out, a->eps);
    p.normed = bolide__rows_of(a->normed_out);
    p.block_scale = bolide__data(a->block_scale);
    p.block_scale_b = bolide__stride(a->block_scale, 0);
    p.block_scale_n = bolide__stride(a->block_scale, 1);
    return p;
}

static bolide_status block_quant_cpu(const bolide__call *call) {
    bolide__rmsnorm_params p = block_quant_params(call);
    bolide__parallel_for(call->ctx, p.rows, bolide__long_grain(p.rows, p.d),
                         BOLIDE_CPU_PICK(rmsnorm_block_quant_rows), &p);
    return BOLIDE_OK;
}

static bolide_status block_quant_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = block_quant_params(call);
    return bolide__rmsnorm_launch(call, &p, BOLIDE__RMSNORM_BLOCKS);
}

const bolide_op bolide_op_fused_add_rmsnorm_fp8_block_quant = {
    .name = "fused_add_rmsnorm_fp8_block_quant",
    .family = "norm",
    .doc = "residual += input; normed_out = rmsnorm(residual, weight); out is normed_out in 8 bits "
           "with a scale for each 128 values",
    .run = BOLIDE_ENTRY(bolide_fused_add_rmsnorm_fp8_block_quant_args, block_quant_rows),
    .check = block_quant_check,
    .cpu = block_quant_cpu,
    .cuda = block_quant_cuda,
};

bolide_status
bolide_fused_add_rmsnorm_fp8_block_quant(const bolide_context *ctx,
                                         const bolide_fused_add_rmsnorm_fp8_block_quant_args *args,
                                         bolide_stream stream) {
    return bolide_run(&bolide_op_fused_add_rmsnorm_fp8_block_quant, BOLIDE_RUN, ctx, args, stream);
}

/* ---- scaled --------------------------------------------------------------------------------- */

#define A bolide_rms_norm_add_residual_args
static const bolide_param scaled_rows[] = {
    BOLIDE_IN(A, x, "n d | n h d", FLOATS | F8, "one term"),
    BOLIDE_INOUT(A, residual, "n d | n h d", FLOATS, "the other; becomes the sum"),
    BOLIDE_IN(A, weight, "d", FLOATS, "weight of each column"),
    BOLIDE_OUT(A, x_out, "n d | n h d", FLOATS | F8, "norm; may be x", .alias = "x"),
    BOLIDE_F64_ROW(A, eps, NAN, "added to the mean square"),
    BOLIDE_F64_OR(A, x_in_scale, " | 1", BOLIDE_F32, NAN, "multiplies x", .flags = BOLIDE_OPTIONAL),
    BOLIDE_F64_OR(A, x_out_scale, " | 1", BOLIDE_F32, NAN,
                  "multiplies the norm, which is then held in the range of x_out's dtype",
                  .flags = BOLIDE_OPTIONAL),
};
#undef A

static bolide__rmsnorm_params scaled_params(const bolide__call *call) {
    const bolide_rms_norm_add_residual_args *a = call->args;
    bolide__rmsnorm_params p = bolide__rmsnorm_fill(a->x, a->residual, a->weight, a->x_out, a->eps);
    p.in_scale = bolide__scalar_of(a->x_in_scale, a->x_in_scale_tensor, 1.0f);
    p.out_scale = bolide__scalar_of(a->x_out_scale, a->x_out_scale_tensor, 1.0f);
    p.out_bounded = a->x_out_scale_tensor || !isnan(a->x_out_scale);
    return p;
}

static bolide_status rms_norm_add_residual_cpu(const bolide__call *call) {
    bolide__rmsnorm_params p = scaled_params(call);
    bolide__parallel_for(call->ctx, p.rows, bolide__long_grain(p.rows, p.d),
                         BOLIDE_CPU_PICK(rmsnorm_scaled_rows), &p);
    return BOLIDE_OK;
}

static bolide_status rms_norm_add_residual_cuda(const bolide__call *call) {
    const bolide__rmsnorm_params p = scaled_params(call);
    return bolide__rmsnorm_launch(call, &p, BOLIDE__RMSNORM_SCALED);
}

const bolide_op bolide_op_rms_norm_add_residual = {
    .name = "rms_norm_add_residual",
    .family = "norm",
    .doc = "residual += x * x_in_scale; x_out = rmsnorm(residual, weight) * x_out_scale, each "
           "tensor of its own dtype",
    .run = BOLIDE_ENTRY(bolide_rms_norm_add_residual_args, scaled_rows),
    .cpu = rms_norm_add_residual_cpu,
    .cuda = rms_norm_add_residual_cuda,
};

bolide_status bolide_rms_norm_add_residual(const bolide_context *ctx,
                                           const bolide_rms_norm_add_residual_args *args,
                                           bolide_stream stream) {
    return bolide_run(&bolide_op_rms_norm_add_residual, BOLIDE_RUN, ctx, args, stream);
}
