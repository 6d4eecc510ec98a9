// SPDX-License-Identifier: Apache-2.0
//
// References of the gated activations. A row is one vector of the last dimension. At minus infinity
// the functions have their limit, 0.

#include "ref.h"

#include <float.h>
#include <math.h>

static double silu(double x) {
    return x == -INFINITY ? 0 : x / (1 + exp(-x));
}

/* x Phi(x), without the cancellation of 1 + erf. */
static double gelu(double x) {
    return x == -INFINITY ? 0 : x / 2 * erfc(-x / sqrt(2));
}

/* x/2 (1 + tanh u) = x / (1 + exp(-2u)). */
static double gelu_tanh(double x) {
    const double u = sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x);
    return x == -INFINITY ? 0 : x / (1 + exp(-2 * u));
}

static double held(double v, int64_t dtype, int bounded) {
    const double limit = !bounded               ? INFINITY
                         : dtype == BOLIDE_F16  ? 65504
                         : dtype == BOLIDE_BF16 ? 0x1.FEp127
                                                : (double)FLT_MAX;
    return ref_held(v > limit ? limit : v < -limit ? -limit : v, dtype);
}

/* Writes y[i] = gate * up, gate after its function. Where gate is too small for f32, gate *
 * infinity may be NaN instead. */
static void put(ref_tensor *y, int64_t i, double gate, double up, double factor, int bounded) {
    y->f64[i] = held(gate * up * factor, y->dtype, bounded);
    if (isinf(up) && gate != 0 && fabs(gate) < FLT_MIN)
        ref_any(y, i);
}

static int64_t vectors(const ref_call *c) {
    const ref_tensor *y = ref_out(c, "out");
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < y->ndim; i++)
        rows *= y->shape[i];
    return rows;
}

static int64_t reduction(const ref_call *c) {
    (void)c;
    return 1;
}

static void activate(const ref_call *c, int64_t row, double (*f)(double)) {
    const ref_tensor *x = ref_in(c, "input");
    ref_tensor *y = ref_out(c, "out");
    const int64_t d = y->shape[y->ndim - 1];
    for (int64_t i = 0; i < d; i++)
        put(y, row * d + i, f(x->f64[row * 2 * d + i]), x->f64[row * 2 * d + d + i], 1, 0);
}

static void silu_and_mul_ref(const ref_call *c, int64_t row) {
    activate(c, row, silu);
}

const ref_op ref_silu_and_mul = {.name = "silu_and_mul",
                                 .defaults = "n=4 d=64",
                                 .rows = vectors,
                                 .ref = silu_and_mul_ref,
                                 .reduction = reduction};

static void gelu_and_mul_ref(const ref_call *c, int64_t row) {
    activate(c, row, gelu);
}

const ref_op ref_gelu_and_mul = {.name = "gelu_and_mul",
                                 .defaults = "n=4 d=64",
                                 .rows = vectors,
                                 .ref = gelu_and_mul_ref,
                                 .reduction = reduction};

static void gelu_tanh_and_mul_ref(const ref_call *c, int64_t row) {
    activate(c, row, gelu_tanh);
}

const ref_op ref_gelu_tanh_and_mul = {.name = "gelu_tanh_and_mul",
                                      .defaults = "n=4 d=64",
                                      .rows = vectors,
                                      .ref = gelu_tanh_and_mul_ref,
                                      .reduction = reduction};

static void silu_and_mul_scaled_ref(const ref_call *c, int64_t row) {
    const ref_tensor *x = ref_in(c, "x");
    ref_tensor *y = ref_out(c, "out");
    const int64_t d = y->shape[y->ndim - 1];
    const double in = ref_number(c, "x_scale", 0, 1), out = ref_number(c, "o_scale", 0, 1);
    const int bounded = !isnan(ref_number(c, "o_scale", 0, NAN));
    for (int64_t i = 0; i < d; i++) {
        const double gate = x->f64[row * 2 * d + i] * in, up = x->f64[row * 2 * d + d + i] * in;
        put(y, row * d + i, silu(gate), up, out, bounded);
    }
}

const ref_op ref_silu_and_mul_scaled = {.name = "silu_and_mul_scaled",
                                        .defaults = "n=4 d=64",
                                        .rows = vectors,
                                        .ref = silu_and_mul_scaled_ref,
                                        .reduction = reduction};
