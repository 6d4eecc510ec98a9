// SPDX-License-Identifier: Apache-2.0
//
// Reference of fused_qk_rmsnorm_rope, straight from the formulas in include/bolide/norm.h. A row is
// one token: all heads of q, k and v.

#include "ref.h"

#include <math.h>

static int64_t tokens(const ref_call *c) {
    const ref_tensor *x = ref_in(c, "qkv");
    return x->shape[0] * x->shape[1];
}

/* The angle of the pair that starts at channel 2j of a head, for token t of a video. */
static double angle(const ref_call *c, int64_t t, int64_t j) {
    const int64_t pph = ref_i64(c, "pph"), ppw = ref_i64(c, "ppw");
    const int64_t frame = ref_i64(c, "num_frame_channels");
    const int64_t height = ref_i64(c, "num_height_channels");
    int64_t first = 0, channels = frame, position = t / (pph * ppw);
    if (2 * j >= frame + height) {
        first = frame + height;
        channels = ref_i64(c, "num_width_channels");
        position = t % ppw;
    } else if (2 * j >= frame) {
        first = frame;
        channels = height;
        position = t / ppw % pph;
    }
    const double i = (double)j - (double)first / 2, factor = ref_f64(c, "factor");
    double f = pow(ref_f64(c, "base"), -2 * i / (double)channels);
    if (factor != 1) {
        const double low = ref_f64(c, "low");
        const double high = ref_f64(c, "high") + (fabs(low - ref_f64(c, "high")) <= 1e-6) * 0.001;
        double r = (i - low) / (high - low);
        r = r < 0 ? 0 : r > 1 ? 1 : r;
        f = f * (1 - r) + f / factor * r;
    }
    return (double)position * f;
}

/* q or k: x is its channels in the token. */
static void turned(const ref_call *c, int64_t row, const double *x, const char *weight,
                   const char *out) {
    const ref_tensor *w = ref_in(c, weight);
    ref_tensor *y = ref_out(c, out);
    const int64_t d = y->shape[3], h = y->shape[2], s = y->shape[1];
    double squares = 0, scale = 1;
    for (int64_t i = 0; i < h * d; i++)
        squares += x[i] * x[i];
    const int norm = (int)ref_i64(c, "is_qk_norm");
    if (norm)
        scale = 1 / sqrt(squares / (double)(h * d) + ref_f64(c, "eps"));
    const double factor = ref_f64(c, "attention_factor") * ref_f64(c, "output_quant_scale");
    const int interleave = (int)ref_i64(c, "interleave");
    for (int64_t k = 0; k < h; k++) {
        for (int64_t j = 0; j < d / 2; j++) {
            const int64_t ia = k * d + (interleave ? 2 * j : j);
            const int64_t ib = k * d + (interleave ? 2 * j + 1 : j + d / 2);
            const double a = x[ia] * scale * (norm ? w->f64[ia] : 1);
            const double b = x[ib] * scale * (norm ? w->f64[ib] : 1);
            const double t = angle(c, row % s, j);
            y->f64[row * h * d + ia] = ref_held((a * cos(t) - b * sin(t)) * factor, y->dtype);
            y->f64[row * h * d + ib] = ref_held((b * cos(t) + a * sin(t)) * factor, y->dtype);
        }
    }
}

static void fused_qk_rmsnorm_rope_ref(const ref_call *c, int64_t row) {
    const ref_tensor *x = ref_in(c, "qkv");
    const int64_t d = ref_i64(c, "head_dim");
    const double *token = x->f64 + row * x->shape[2];
    turned(c, row, token, "q_weight", "q_out");
    token += ref_i64(c, "num_heads_q") * d;
    turned(c, row, token, "k_weight", "k_out");
    token += ref_i64(c, "num_heads_k") * d;
    ref_tensor *v = ref_out(c, "v_out");
    const int64_t width = ref_i64(c, "num_heads_v") * d;
    for (int64_t i = 0; i < width; i++)
        v->f64[row * width + i] = ref_held(token[i] * ref_f64(c, "v_quant_scale"), v->dtype);
}

/* The outputs take the dtype of the input or what the flag asks for. */
static void dims(ref_call *c) {
    const char *given = ref_key_text(c, "qkv");
    const int64_t in = given ? bolide_dtype_parse(given) : BOLIDE_BF16;
    const int64_t out = ref_i64(c, "output_fp8") ? BOLIDE_F8_E4M3FN : in;
    ref_set_dtype(c, "qkv", in);
    ref_set_dtype(c, "q_out", out);
    ref_set_dtype(c, "k_out", out);
    ref_set_dtype(c, "v_out", out);
}

const ref_op ref_fused_qk_rmsnorm_rope = {
    .name = "fused_qk_rmsnorm_rope",
    .defaults = "b=2 ppf=2 pph=3 ppw=2 num_heads_q=2 num_heads_k=2 num_heads_v=1 head_dim=64 "
                "num_frame_channels=24 num_height_channels=20 num_width_channels=20",
    .dims = dims,
    .rows = tokens,
    .ref = fused_qk_rmsnorm_rope_ref};
