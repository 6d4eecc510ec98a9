// SPDX-License-Identifier: Apache-2.0
//
// References of the RMS norms. A row is one vector of the last dimension, whether the tensor is
// [n, d] or [n, h, d].

#include "ref.h"

#include <float.h>
#include <math.h>

/* ---- the common part ------------------------------------------------------------------------ */

/* What differs from plain rmsnorm; names of tensors, NULL for its own. */
typedef struct rms_form {
    const char *input, *residual, *out;
    double in_scale, out_scale, weight_bias;
    int bounded, silu;
} rms_form;

static int64_t vectors_of(const ref_tensor *x) {
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < x->ndim; i++)
        rows *= x->shape[i];
    return rows;
}

static int64_t vectors(const ref_call *c) {
    return vectors_of(ref_in(c, "input"));
}

static int64_t x_vectors(const ref_call *c) {
    return vectors_of(ref_in(c, "x"));
}

/* Held in the finite range of the dtype, as 8-bit results always are. NaN stays. */
static double bounded(double v, int64_t dtype, int always) {
    const double limit = !always                ? INFINITY
                         : dtype == BOLIDE_F16  ? 65504
                         : dtype == BOLIDE_BF16 ? 0x1.FEp127
                                                : (double)FLT_MAX;
    return ref_held(v > limit ? limit : v < -limit ? -limit : v, dtype);
}

static double silu(double x) {
    return x == -INFINITY ? 0 : x / (1 + exp(-x));
}

static void rms_row(const ref_call *c, int64_t row, const rms_form *f) {
    const ref_tensor *x = ref_in(c, f->input ? f->input : "input"), *w = ref_in(c, "weight");
    const ref_tensor *r = f->residual ? ref_in(c, f->residual) : NULL;
    ref_tensor *y = ref_out(c, f->out ? f->out : "out");
    ref_tensor *sum_out = f->residual ? ref_out(c, f->residual) : NULL;
    const int64_t d = x->shape[x->ndim - 1], at = row * d;
    double squares = 0;
    for (int64_t i = 0; i < d; i++) {
        const double s = x->f64[at + i] * f->in_scale + (r ? r->f64[at + i] : 0);
        squares += s * s;
    }
    const double scale = 1 / sqrt(squares / (double)d + ref_f64(c, "eps"));
    for (int64_t i = 0; i < d; i++) {
        const double s = x->f64[at + i] * f->in_scale + (r ? r->f64[at + i] : 0);
        const double v = s * scale * (w->f64[i] + f->weight_bias);
        if (r)
            sum_out->f64[at + i] = s;
        y->f64[at + i] = bounded((f->silu ? silu(v) : v) * f->out_scale, y->dtype, f->bounded);
    }
}

/* ---- one input ------------------------------------------------------------------------------ */

static void rmsnorm_ref(const ref_call *c, int64_t row) {
    rms_row(c, row, &(rms_form){.in_scale = 1, .out_scale = 1});
}

const ref_op ref_rmsnorm = {
    .name = "rmsnorm", .defaults = "n=4 d=64", .rows = vectors, .ref = rmsnorm_ref};

static void gemma_rmsnorm_ref(const ref_call *c, int64_t row) {
    rms_row(c, row, &(rms_form){.in_scale = 1, .out_scale = 1, .weight_bias = 1});
}

const ref_op ref_gemma_rmsnorm = {
    .name = "gemma_rmsnorm", .defaults = "n=4 d=64", .rows = vectors, .ref = gemma_rmsnorm_ref};

static void rmsnorm_quant_ref(const ref_call *c, int64_t row) {
    rms_row(c, row, &(rms_form){.in_scale = 1, .out_scale = 1 / ref_number(c, "scale", 0, 1)});
}

const ref_op ref_rmsnorm_quant = {.name = "rmsnorm_quant",
                                  .defaults = "n=4 d=64 scale=0.02",
                                  .rows = vectors,
                                  .ref = rmsnorm_quant_ref};

static void fused_rmsnorm_silu_ref(const ref_call *c, int64_t row) {
    rms_row(c, row, &(rms_form){.in_scale = 1, .out_scale = 1, .silu = 1});
}

const ref_op ref_fused_rmsnorm_silu = {.name = "fused_rmsnorm_silu",
                                       .defaults = "n=4 d=64",
                                       .rows = vectors,
                                       .ref = fused_rmsnorm_silu_ref};

static int is_given(const ref_call *c, const char *number) {
    return !isnan(ref_number(c, number, 0, NAN));
}

static void rms_norm_ref(const ref_call *c, int64_t row) {
    rms_row(c, row,
            &(rms_form){.input = "x",
                        .in_scale = ref_number(c, "in_scale", 0, 1),
                        .out_scale = ref_number(c, "out_scale", 0, 1),
                        .bounded = is_given(c, "out_scale")});
}

const ref_op ref_rms_norm = {
    .name = "rms_norm", .defaults = "n=4 d=64 eps=1e-6", .rows = x_vectors, .ref = rms_norm_ref};

/* ---- the sum of two ------------------------------------------------------------------------- */

static void fused_add_rmsnorm_ref(const ref_call *c, int64_t row) {
    rms_row(c, row,
            &(rms_form){.residual = "residual", .out = "input", .in_scale = 1, .out_scale = 1});
}

const ref_op ref_fused_add_rmsnorm = {.name = "fused_add_rmsnorm",
                                      .defaults = "n=4 d=64",
                                      .rows = vectors,
                                      .ref = fused_add_rmsnorm_ref};

static void gemma_fused_add_rmsnorm_ref(const ref_call *c, int64_t row) {
    rms_row(c, row,
            &(rms_form){.residual = "residual",
                        .out = "input",
                        .in_scale = 1,
                        .out_scale = 1,
                        .weight_bias = 1});
}

const ref_op ref_gemma_fused_add_rmsnorm = {.name = "gemma_fused_add_rmsnorm",
                                            .defaults = "n=4 d=64",
                                            .rows = vectors,
                                            .ref = gemma_fused_add_rmsnorm_ref};

static void fused_add_rmsnorm_quant_ref(const ref_call *c, int64_t row) {
    rms_row(c, row,
            &(rms_form){.residual = "residual",
                        .in_scale = 1,
                        .out_scale = 1 / ref_number(c, "scale", 0, 1)});
}

const ref_op ref_fused_add_rmsnorm_quant = {.name = "fused_add_rmsnorm_quant",
                                            .defaults = "n=4 d=64 scale=0.02",
                                            .rows = vectors,
                                            .ref = fused_add_rmsnorm_quant_ref};

static void rms_norm_add_residual_ref(const ref_call *c, int64_t row) {
    rms_row(c, row,
            &(rms_form){.input = "x",
                        .residual = "residual",
                        .out = "x_out",
                        .in_scale = ref_number(c, "x_in_scale", 0, 1),
                        .out_scale = ref_number(c, "x_out_scale", 0, 1),
                        .bounded = is_given(c, "x_out_scale")});
}

const ref_op ref_rms_norm_add_residual = {.name = "rms_norm_add_residual",
                                          .defaults = "n=4 d=64 eps=1e-6",
                                          .rows = x_vectors,
                                          .ref = rms_norm_add_residual_ref};

/* The blocks are those of normed_out as the library stored it, whose last place may differ from
 * ours; normed_out itself is compared as any output. */
static void fused_add_rmsnorm_fp8_block_quant_ref(const ref_call *c, int64_t row) {
    rms_row(
        c, row,
        &(rms_form){.residual = "residual", .out = "normed_out", .in_scale = 1, .out_scale = 1});
    const ref_tensor *normed = ref_got(c, "normed_out");
    ref_tensor *y = ref_out(c, "out"), *scales = ref_out(c, "block_scale");
    const int64_t d = normed->shape[1];
    for (int64_t b = 0; b < d / 128; b++) {
        const double *in = normed->f64 + row * d + b * 128;
        double largest = 1e-4;
        for (int64_t i = 0; i < 128; i++)
            largest = fabs(in[i]) > largest ? fabs(in[i]) : largest;
        const double scale = largest / 448;
        scales->f64[b * scales->shape[1] + row] = scale;
        for (int64_t i = 0; i < 128; i++)
            y->f64[row * d + b * 128 + i] = bounded(in[i] / scale, y->dtype, 1);
    }
}

const ref_op ref_fused_add_rmsnorm_fp8_block_quant = {.name = "fused_add_rmsnorm_fp8_block_quant",
                                                      .defaults = "n=4 d=128",
                                                      .rows = vectors,
                                                      .ref = fused_add_rmsnorm_fp8_block_quant_ref};
