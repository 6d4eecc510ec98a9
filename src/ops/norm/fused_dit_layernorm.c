// SPDX-License-Identifier: Apache-2.0
//
// Fronts of the three layer norms of a diffusion transformer, which add a gated residual first and
// may modulate the result for each token. They share the parameters and the kernel of layernorm.

#include <bolide/norm.h>

#include <math.h>

#include "core/op.h"
#include "ops/norm/norm_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)

/* ---- rows ----------------------------------------------------------------------------------- */

#define TOKEN_ROW(A, name, doc, ...)                                                               \
    BOLIDE_IN(A, name, "b s d", BOLIDE_LIKE(input), doc, __VA_ARGS__)
#define BIAS_ROW(A, name)                                                                          \
    BOLIDE_IN(A, name, "d | 1 d", BOLIDE_F32, "added to it", .flags = BOLIDE_OPTIONAL)
#define MODULATION_ROWS(A)                                                                         \
    TOKEN_ROW(A, scale, "1 + scale is the factor of the norm", .flags = 0),                        \
        TOKEN_ROW(A, shift, "term of the norm", .flags = 0), BIAS_ROW(A, scale_bias),              \
        BIAS_ROW(A, shift_bias)
#define COMMON_ROWS(A)                                                                             \
    BOLIDE_F64_ROW(A, epsilon, 1e-6, "added to the variance"),                                     \
        BOLIDE_F64_OR(A, input_global_scaling_factor, " | 1", BOLIDE_F32, NAN, "multiplies input", \
                      .flags = BOLIDE_OPTIONAL),                                                   \
        BOLIDE_OUT(A, residual_out, "b s d", BOLIDE_LIKE(input), "the sum; may be residual",       \
                   .alias = "residual"),                                                           \
        BOLIDE_OUT(A, norm_out, "b s d", BOLIDE_LIKE(input), "the norm; may be input",             \
                   .alias = "input")

#define A bolide_fused_dit_gate_residual_layernorm_gamma_beta_args
static const bolide_param gamma_beta_rows[] = {
    BOLIDE_IN(A, input, "b s d", FLOATS, "output of a projection"),
    TOKEN_ROW(A, residual, "added to it", .flags = 0),
    TOKEN_ROW(A, gate, "multiplies input", .flags = 0),
    BIAS_ROW(A, gate_bias),
    BOLIDE_IN(A, gamma, "d", BOLIDE_F32, "factor of the norm"),
    BOLIDE_IN(A, beta, "d", BOLIDE_F32, "term of the norm"),
    COMMON_ROWS(A),
};
#undef A

#define A bolide_fused_dit_gate_residual_layernorm_scale_shift_args
static const bolide_param gate_scale_shift_rows[] = {
    BOLIDE_IN(A, input, "b s d", FLOATS, "output of a projection"),
    TOKEN_ROW(A, residual, "added to it", .flags = 0),
    TOKEN_ROW(A, gate, "multiplies input", .flags = 0),
    BIAS_ROW(A, gate_bias),
    MODULATION_ROWS(A),
    COMMON_ROWS(A),
};
#undef A

#define A bolide_fused_dit_residual_layernorm_scale_shift_args
static const bolide_param scale_shift_rows[] = {
    BOLIDE_IN(A, input, "b s d", FLOATS, "output of a projection"),
    TOKEN_ROW(A, residual, "added to it", .flags = BOLIDE_OPTIONAL),
    MODULATION_ROWS(A),
    COMMON_ROWS(A),
};
#undef A

/* ---- parameters ----------------------------------------------------------------------------- */

static const float *floats_of(const bolide_tensor *t) {
    return t ? (const float *)bolide__data(t) : NULL;
}

/* What all three have; a is the args struct of any. */
#define FILL(a)                                                                                    \
    fill((a)->input, (a)->residual, (a)->residual_out, (a)->norm_out, (a)->epsilon,                \
         bolide__scalar_of((a)->input_global_scaling_factor,                                       \
                           (a)->input_global_scaling_factor_tensor, 1.0f))

static bolide__layernorm_params fill(const bolide_tensor *input, const bolide_tensor *residual,
                                     const bolide_tensor *residual_out,
                                     const bolide_tensor *norm_out, double epsilon,
                                     bolide__scalar in_scale) {
    bolide__layernorm_params p = bolide__layernorm_fill(input, norm_out, epsilon);
    p.residual = bolide__rows_of(residual);
    p.residual_out = bolide__rows_of(residual_out);
    p.in_scale = in_scale;
    return p;
}

static bolide__layernorm_params fill_gamma_beta(const bolide__call *call) {
    const bolide_fused_dit_gate_residual_layernorm_gamma_beta_args *a = call->args;
    bolide__layernorm_params p = FILL(a);
    p.gate = bolide__rows_of(a->gate);
    p.gate_bias = floats_of(a->gate_bias);
    p.gamma = floats_of(a->gamma);
    p.beta = floats_of(a->beta);
    return p;
}

static bolide__layernorm_params fill_gate_scale_shift(const bolide__call *call) {
    const bolide_fused_dit_gate_residual_layernorm_scale_shift_args *a = call->args;
    bolide__layernorm_params p = FILL(a);
    p.gate = bolide__rows_of(a->gate);
    p.gate_bias = floats_of(a->gate_bias);
    p.scale = bolide__rows_of(a->scale);
    p.scale_bias = floats_of(a->scale_bias);
    p.shift = bolide__rows_of(a->shift);
    p.shift_bias = floats_of(a->shift_bias);
    return p;
}

static bolide__layernorm_params fill_scale_shift(const bolide__call *call) {
    const bolide_fused_dit_residual_layernorm_scale_shift_args *a = call->args;
    bolide__layernorm_params p = FILL(a);
    p.scale = bolide__rows_of(a->scale);
    p.scale_bias = floats_of(a->scale_bias);
    p.shift = bolide__rows_of(a->shift);
    p.shift_bias = floats_of(a->shift_bias);
    return p;
}

/* ---- backends ------------------------------------------------------------------------------- */

static bolide_status run_cpu(const bolide__call *call, bolide__layernorm_params p) {
    bolide__parallel_for(call->ctx, p.rows, bolide__row_grain(p.d),
                         BOLIDE_CPU_PICK(dit_layernorm_rows), &p);
    return BOLIDE_OK;
}

static bolide_status gamma_beta_cpu(const bolide__call *call) {
    return run_cpu(call, fill_gamma_beta(call));
}

static bolide_status gamma_beta_cuda(const bolide__call *call) {
    const bolide__layernorm_params p = fill_gamma_beta(call);
    return bolide__layernorm_launch(call, &p);
}

static bolide_status gate_scale_shift_cpu(const bolide__call *call) {
    return run_cpu(call, fill_gate_scale_shift(call));
}

static bolide_status gate_scale_shift_cuda(const bolide__call *call) {
    const bolide__layernorm_params p = fill_gate_scale_shift(call);
    return bolide__layernorm_launch(call, &p);
}

static bolide_status scale_shift_cpu(const bolide__call *call) {
    return run_cpu(call, fill_scale_shift(call));
}

static bolide_status scale_shift_cuda(const bolide__call *call) {
    const bolide__layernorm_params p = fill_scale_shift(call);
    return bolide__layernorm_launch(call, &p);
}

const bolide_op bolide_op_fused_dit_gate_residual_layernorm_gamma_beta = {
    .name = "fused_dit_gate_residual_layernorm_gamma_beta",
    .family = "norm",
    .doc = "residual_out = residual + input * (gate + gate_bias); "
           "norm_out = layernorm(residual_out) * gamma + beta",
    .run = BOLIDE_ENTRY(bolide_fused_dit_gate_residual_layernorm_gamma_beta_args, gamma_beta_rows),
    .cpu = gamma_beta_cpu,
    .cuda = gamma_beta_cuda,
};

const bolide_op bolide_op_fused_dit_gate_residual_layernorm_scale_shift = {
    .name = "fused_dit_gate_residual_layernorm_scale_shift",
    .family = "norm",
    .doc = "residual_out = residual + input * (gate + gate_bias); norm_out = "
           "layernorm(residual_out) * (1 + scale + scale_bias) + (shift + shift_bias)",
    .run = BOLIDE_ENTRY(bolide_fused_dit_gate_residual_layernorm_scale_shift_args,
                        gate_scale_shift_rows),
    .cpu = gate_scale_shift_cpu,
    .cuda = gate_scale_shift_cuda,
};

const bolide_op bolide_op_fused_dit_residual_layernorm_scale_shift = {
    .name = "fused_dit_residual_layernorm_scale_shift",
    .family = "norm",
    .doc = "residual_out = residual + input; norm_out = layernorm(residual_out) * "
           "(1 + scale + scale_bias) + (shift + shift_bias)",
    .run = BOLIDE_ENTRY(bolide_fused_dit_residual_layernorm_scale_shift_args, scale_shift_rows),
    .cpu = scale_shift_cpu,
    .cuda = scale_shift_cuda,
};

bolide_status bolide_fused_dit_gate_residual_layernorm_gamma_beta(
    const bolide_context *ctx, const bolide_fused_dit_gate_residual_layernorm_gamma_beta_args *args,
    bolide_stream stream) {
    return bolide_run(&bolide_op_fused_dit_gate_residual_layernorm_gamma_beta, BOLIDE_RUN, ctx,
                      args, stream);
}

bolide_status bolide_fused_dit_gate_residual_layernorm_scale_shift(
    const bolide_context *ctx,
    const bolide_fused_dit_gate_residual_layernorm_scale_shift_args *args, bolide_stream stream) {
    return bolide_run(&bolide_op_fused_dit_gate_residual_layernorm_scale_shift, BOLIDE_RUN, ctx,
                      args, stream);
}

bolide_status bolide_fused_dit_residual_layernorm_scale_shift(
    const bolide_context *ctx, const bolide_fused_dit_residual_layernorm_scale_shift_args *args,
    bolide_stream stream) {
    return bolide_run(&bolide_op_fused_dit_residual_layernorm_scale_shift, BOLIDE_RUN, ctx, args,
                      stream);
}
