// SPDX-License-Identifier: Apache-2.0
//
// References of the layer norms. A row is one vector of the last dimension.

#include "ref.h"

#include <math.h>

/* ---- the common part ------------------------------------------------------------------------ */

static int64_t vectors(const ref_call *c) {
    const ref_tensor *x = ref_in(c, "input");
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < x->ndim; i++)
        rows *= x->shape[i];
    return rows;
}

/* In place: (x - mean) / sqrt(variance + eps). */
static void normalise(double *x, int64_t d, double eps) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < d; i++)
        mean += x[i] / (double)d;
    for (int64_t i = 0; i < d; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)d;
    for (int64_t i = 0; i < d; i++)
        x[i] = (x[i] - mean) / sqrt(variance + eps);
}

/* Element i of a row of an optional tensor that all rows share. */
static double shared(const ref_tensor *t, int64_t i) {
    return t ? t->f64[i] : 0;
}

/* ---- plain ---------------------------------------------------------------------------------- */

static void plain_row(const ref_call *c, int64_t row, double factor) {
    const ref_tensor *x = ref_in(c, "input"), *gemma = ref_in(c, "gemma"),
                     *beta = ref_in(c, "beta");
    ref_tensor *y = ref_out(c, "out");
    const int64_t d = x->shape[x->ndim - 1];
    double *out = y->f64 + row * d;
    for (int64_t i = 0; i < d; i++)
        out[i] = x->f64[row * d + i];
    normalise(out, d, ref_f64(c, "eps"));
    for (int64_t i = 0; i < d; i++)
        out[i] = (out[i] * gemma->f64[i] + beta->f64[i]) * factor;
}

static void layernorm_ref(const ref_call *c, int64_t row) {
    plain_row(c, row, 1);
}

const ref_op ref_layernorm = {
    .name = "layernorm", .defaults = "n=4 d=64", .rows = vectors, .ref = layernorm_ref};

static void layernorm_quant_ref(const ref_call *c, int64_t row) {
    plain_row(c, row, 1 / ref_number(c, "scale", 0, 1));
    ref_tensor *y = ref_out(c, "out");
    const int64_t d = y->shape[y->ndim - 1];
    for (int64_t i = row * d; i < (row + 1) * d; i++)
        y->f64[i] = ref_held(y->f64[i], y->dtype);
}

const ref_op ref_layernorm_quant = {.name = "layernorm_quant",
                                    .defaults = "n=4 d=64 scale=0.02",
                                    .rows = vectors,
                                    .ref = layernorm_quant_ref};

/* ---- of a diffusion transformer ------------------------------------------------------------- */

static void dit_row(const ref_call *c, int64_t row, int gated, int modulated) {
    const ref_tensor *x = ref_in(c, "input"), *residual = ref_in(c, "residual");
    const ref_tensor *gate = gated ? ref_in(c, "gate") : NULL;
    const ref_tensor *gate_bias = gated ? ref_in(c, "gate_bias") : NULL;
    const int64_t d = x->shape[2], at = row * d;
    double *sum = ref_out(c, "residual_out")->f64 + at, *norm = ref_out(c, "norm_out")->f64 + at;
    for (int64_t i = 0; i < d; i++) {
        double factor = ref_number(c, "input_global_scaling_factor", 0, 1);
        if (gate)
            factor *= gate->f64[at + i] + shared(gate_bias, i);
        sum[i] = x->f64[at + i] * factor + (residual ? residual->f64[at + i] : 0);
        norm[i] = sum[i];
    }
    normalise(norm, d, ref_f64(c, "epsilon"));
    for (int64_t i = 0; i < d; i++) {
        if (modulated)
            norm[i] = norm[i] * (1 + ref_in(c, "scale")->f64[at + i] +
                                 shared(ref_in(c, "scale_bias"), i)) +
                      ref_in(c, "shift")->f64[at + i] + shared(ref_in(c, "shift_bias"), i);
        else
            norm[i] = norm[i] * ref_in(c, "gamma")->f64[i] + ref_in(c, "beta")->f64[i];
    }
}

static void fused_dit_gate_residual_layernorm_gamma_beta_ref(const ref_call *c, int64_t row) {
    dit_row(c, row, 1, 0);
}

const ref_op ref_fused_dit_gate_residual_layernorm_gamma_beta = {
    .name = "fused_dit_gate_residual_layernorm_gamma_beta",
    .defaults = "b=2 s=3 d=64",
    .rows = vectors,
    .ref = fused_dit_gate_residual_layernorm_gamma_beta_ref};

static void fused_dit_gate_residual_layernorm_scale_shift_ref(const ref_call *c, int64_t row) {
    dit_row(c, row, 1, 1);
}

const ref_op ref_fused_dit_gate_residual_layernorm_scale_shift = {
    .name = "fused_dit_gate_residual_layernorm_scale_shift",
    .defaults = "b=2 s=3 d=64",
    .rows = vectors,
    .ref = fused_dit_gate_residual_layernorm_scale_shift_ref};

static void fused_dit_residual_layernorm_scale_shift_ref(const ref_call *c, int64_t row) {
    dit_row(c, row, 0, 1);
}

const ref_op ref_fused_dit_residual_layernorm_scale_shift = {
    .name = "fused_dit_residual_layernorm_scale_shift",
    .defaults = "b=2 s=3 d=64",
    .rows = vectors,
    .ref = fused_dit_residual_layernorm_scale_shift_ref};
