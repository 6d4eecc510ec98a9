// SPDX-License-Identifier: Apache-2.0
//
// References of the norm family. A row is one vector of the last dimension, whether the tensor is
// [n, d] or [n, h, d].

#include "ref.h"

#include <math.h>

/* Vectors of the last dimension. */
static int64_t vectors(const ref_call *c) {
    const ref_tensor *x = ref_in(c, "input");
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < x->ndim; i++)
        rows *= x->shape[i];
    return rows;
}

static void rmsnorm_ref(const ref_call *c, int64_t row) {
    const ref_tensor *x = ref_in(c, "input"), *w = ref_in(c, "weight");
    ref_tensor *y = ref_out(c, "out");
    const int64_t d = x->shape[x->ndim - 1];
    const double *in = x->f64 + row * d;
    double sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += in[i] * in[i];
    const double scale = 1 / sqrt(sum / (double)d + ref_f64(c, "eps"));
    for (int64_t i = 0; i < d; i++)
        y->f64[row * d + i] = in[i] * scale * w->f64[i];
}

const ref_op ref_rmsnorm = {
    .name = "rmsnorm", .defaults = "n=4 d=64", .rows = vectors, .ref = rmsnorm_ref};
