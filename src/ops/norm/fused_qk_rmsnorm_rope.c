// SPDX-License-Identifier: Apache-2.0
//
// Front of fused_qk_rmsnorm_rope. The frequencies of the d/2 pairs of a head are computed here in
// double precision and travel in the parameters; a token is one unit of work, and bytes are the
// limit.

#include <bolide/norm.h>

#include <math.h>

#include "core/op.h"
#include "cuda/cuda.h"
#include "ops/norm/norm_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)
#define NUMBER(name, doc) BOLIDE_I64_ROW(A, name, BOLIDE_NO_INT, doc)

#define A bolide_fused_qk_rmsnorm_rope_args
static const bolide_param rows[] = {
    NUMBER(ppf, "frames of a video"),
    NUMBER(pph, "rows of patches in a frame"),
    NUMBER(ppw, "patches in a row"),
    NUMBER(num_frame_channels, "channels of a head that the frame turns; even"),
    NUMBER(num_height_channels, "channels that the row turns; even"),
    NUMBER(num_width_channels, "channels that the place in the row turns; even"),
    NUMBER(num_heads_q, "heads of q"),
    NUMBER(num_heads_k, "heads of k"),
    NUMBER(num_heads_v, "heads of v"),
    NUMBER(head_dim, "channels of a head, the sum of the three above"),
    BOLIDE_IN(A, qkv, "b ppf*pph*ppw (num_heads_q+num_heads_k+num_heads_v)*head_dim", FLOATS,
              "packed projection"),
    BOLIDE_IN(A, q_weight, "num_heads_q*head_dim", BOLIDE_LIKE(qkv), "weight of q's norm"),
    BOLIDE_IN(A, k_weight, "num_heads_k*head_dim", BOLIDE_LIKE(qkv), "weight of k's norm"),
    BOLIDE_F64_ROW(A, eps, 1e-6, "added to the mean square"),
    BOLIDE_F64_ROW(A, base, 10000.0, "base of the frequencies"),
    BOLIDE_BOOL_ROW(A, interleave, 1, "pairs (2j, 2j+1) instead of (j, j + head_dim/2)"),
    BOLIDE_F64_ROW(A, factor, 1.0, "divides frequencies with an index from high on"),
    BOLIDE_F64_ROW(A, low, 0.0, "index of a frequency up to which factor does not count"),
    BOLIDE_F64_ROW(A, high, 0.0, "index from which it counts in full"),
    BOLIDE_F64_ROW(A, attention_factor, 1.0, "multiplies the turned q and k"),
    BOLIDE_BOOL_ROW(A, is_qk_norm, 1, "0: q and k are not normalised"),
    BOLIDE_BOOL_ROW(A, output_fp8, 0, "the outputs are f8_e4m3fn"),
    BOLIDE_F64_ROW(A, output_quant_scale, 1.0, "multiplies q and k in f8_e4m3fn"),
    BOLIDE_F64_ROW(A, v_quant_scale, 1.0, "multiplies v in f8_e4m3fn"),
    BOLIDE_OUT(A, q_out, "b ppf*pph*ppw num_heads_q head_dim", FLOATS | BOLIDE_F8_E4M3FN,
               "normalised and turned q"),
    BOLIDE_OUT(A, k_out, "b ppf*pph*ppw num_heads_k head_dim", FLOATS | BOLIDE_F8_E4M3FN,
               "normalised and turned k"),
    BOLIDE_OUT(A, v_out, "b ppf*pph*ppw num_heads_v head_dim", FLOATS | BOLIDE_F8_E4M3FN, "v"),
};
#undef A

/* ---- checks --------------------------------------------------------------------------------- */

static bolide_status check_count(const bolide__call *call, const char *name, int64_t value) {
    if (value >= 0)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value", "0 or more", "%lld", (long long)value);
}

static bolide_status check_channels(const bolide__call *call, const char *name, int64_t value) {
    if (value >= 0 && value % 2 == 0)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value", "an even number, 0 or more", "%lld",
                           (long long)value);
}

static bolide_status check_positive(const bolide__call *call, const char *name, double value) {
    if (value > 0 && isfinite(value))
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value", "a number above 0", "%g", value);
}

static bolide_status check_out(const bolide__call *call, const char *name, const bolide_tensor *out,
                               int64_t dtype) {
    if (bolide__bit(out) == dtype)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "dtype", bolide_dtype_name(dtype), "%s",
                           bolide_dtype_name(bolide__bit(out)));
}

static bolide_status check_head(const bolide__call *call) {
    const bolide_fused_qk_rmsnorm_rope_args *a = call->args;
    BOLIDE_TRY(check_count(call, "ppf", a->ppf));
    BOLIDE_TRY(check_count(call, "pph", a->pph));
    BOLIDE_TRY(check_count(call, "ppw", a->ppw));
    BOLIDE_TRY(check_count(call, "num_heads_q", a->num_heads_q));
    BOLIDE_TRY(check_count(call, "num_heads_k", a->num_heads_k));
    BOLIDE_TRY(check_count(call, "num_heads_v", a->num_heads_v));
    if (a->head_dim > 2 * BOLIDE__QK_ROPE_MAX_PAIRS)
        return BOLIDE_FAIL_UNSUPPORTED(call, "head_dim", "value", "at most 256", "%lld",
                                       (long long)a->head_dim);
    BOLIDE_TRY(check_channels(call, "num_frame_channels", a->num_frame_channels));
    BOLIDE_TRY(check_channels(call, "num_height_channels", a->num_height_channels));
    BOLIDE_TRY(check_channels(call, "num_width_channels", a->num_width_channels));
    const int64_t left = a->head_dim - a->num_frame_channels - a->num_height_channels;
    if (a->num_width_channels == left)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, "num_width_channels", "value",
                           bolide__text("%lld, what head_dim leaves", (long long)left), "%lld",
                           (long long)a->num_width_channels);
}

static bolide_status check(const bolide__call *call) {
    const bolide_fused_qk_rmsnorm_rope_args *a = call->args;
    BOLIDE_TRY(check_head(call));
    BOLIDE_TRY(check_positive(call, "base", a->base));
    BOLIDE_TRY(check_positive(call, "factor", a->factor));
    const int64_t dtype = a->output_fp8 ? BOLIDE_F8_E4M3FN : bolide__bit(a->qkv);
    BOLIDE_TRY(check_out(call, "q_out", a->q_out, dtype));
    BOLIDE_TRY(check_out(call, "k_out", a->k_out, dtype));
    BOLIDE_TRY(check_out(call, "v_out", a->v_out, dtype));
    if (!a->output_fp8 && a->output_quant_scale != 1)
        return BOLIDE_FAIL_ARG(call, "output_quant_scale", "value", "1 without output_fp8", "%g",
                               a->output_quant_scale);
    if (!a->output_fp8 && a->v_quant_scale != 1)
        return BOLIDE_FAIL_ARG(call, "v_quant_scale", "value", "1 without output_fp8", "%g",
                               a->v_quant_scale);
    return BOLIDE_OK;
}

/* ---- parameters ----------------------------------------------------------------------------- */

/* The pairs of one coordinate. Where low and high coincide the step from one to the other is steep
 * instead of infinite. */
static double *fill_freq(const bolide_fused_qk_rmsnorm_rope_args *a, int64_t channels,
                         double *freq) {
    const double high = fabs(a->low - a->high) <= 1e-6 ? a->high + 0.001 : a->high;
    for (int64_t i = 0; i < channels / 2; i++) {
        const double f = pow(a->base, -2.0 * (double)i / (double)channels);
        const double ramp = fmin(fmax(((double)i - a->low) / (high - a->low), 0.0), 1.0);
        *freq++ = a->factor == 1 ? f : f * (1 - ramp) + f / a->factor * ramp;
    }
    return freq;
}

static bolide__qk_rope_side side(const bolide_tensor *out, const bolide_tensor *weight,
                                 int64_t first, double factor) {
    return (bolide__qk_rope_side){.weight = weight ? bolide__data(weight) : NULL,
                                  .out = bolide__data(out),
                                  .out_b = bolide__stride(out, 0),
                                  .out_s = bolide__stride(out, 1),
                                  .out_h = bolide__stride(out, 2),
                                  .first = first,
                                  .heads = out->shape[2],
                                  .factor = (float)factor};
}

static bolide__qk_rope_params fill(const bolide__call *call) {
    const bolide_fused_qk_rmsnorm_rope_args *a = call->args;
    const int64_t k_first = a->num_heads_q * a->head_dim;
    const int64_t v_first = k_first + a->num_heads_k * a->head_dim;
    const double turned = a->attention_factor * a->output_quant_scale;
    bolide__qk_rope_params p = {.qkv = bolide__data(a->qkv),
                                .qkv_b = bolide__stride(a->qkv, 0),
                                .qkv_s = bolide__stride(a->qkv, 1),
                                .dtype = bolide__bit(a->qkv),
                                .out_dtype = bolide__bit(a->q_out),
                                .side = {side(a->q_out, a->q_weight, 0, turned),
                                         side(a->k_out, a->k_weight, k_first, turned),
                                         side(a->v_out, NULL, v_first, a->v_quant_scale)},
                                .b = a->qkv->shape[0],
                                .s = a->qkv->shape[1],
                                .d = a->head_dim,
                                .pph = a->pph,
                                .ppw = a->ppw,
                                .frame_pairs = a->num_frame_channels / 2,
                                .height_pairs = a->num_height_channels / 2,
                                .interleave = a->interleave != 0,
                                .normalise = a->is_qk_norm != 0,
                                .eps = (float)a->eps};
    double *freq = fill_freq(a, a->num_frame_channels, p.freq);
    freq = fill_freq(a, a->num_height_channels, freq);
    fill_freq(a, a->num_width_channels, freq);
    return p;
}

static bolide_status fused_qk_rmsnorm_rope_cpu(const bolide__call *call) {
    bolide__qk_rope_params p = fill(call);
    const int64_t token = p.side[2].first + p.side[2].heads * p.d;
    bolide__parallel_for(call->ctx, p.b * p.s, bolide__row_grain(token),
                         BOLIDE_CPU_PICK(qk_rmsnorm_rope_tokens), &p);
    return BOLIDE_OK;
}

/* Elements of a load: as many as 16 bytes hold and as divide every address, stride and part. */
static int64_t load_width(const bolide__qk_rope_params *p) {
    const uint64_t bytes = (uint64_t)bolide__dtype_bytes(p->dtype);
    const uint64_t out_bytes = (uint64_t)bolide__dtype_bytes(p->out_dtype);
    uint64_t bits = 16 / bytes | (uintptr_t)p->qkv / bytes | (uint64_t)(p->qkv_b | p->qkv_s) |
                    (uint64_t)(p->interleave ? p->d : p->d / 2);
    for (int i = 0; i < 3; i++) {
        const bolide__qk_rope_side *s = &p->side[i];
        if (s->heads)
            bits |= (uintptr_t)s->weight / bytes | (uintptr_t)s->out / out_bytes |
                    (uint64_t)(s->out_b | s->out_s | s->out_h);
    }
    return (int64_t)(bits & -bits);
}

static bolide_status fused_qk_rmsnorm_rope_cuda(const bolide__call *call) {
    const bolide__qk_rope_params p = fill(call);
    bolide__spec s = BOLIDE_SPEC("norm/fused_qk_rmsnorm_rope.cu", "bolide_qk_rmsnorm_rope");
    bolide__spec_add(&s, "DT", p.dtype);         /* 3 values */
    bolide__spec_add(&s, "OUT", p.out_dtype);    /* DT or f8_e4m3fn */
    bolide__spec_add(&s, "VEC", load_width(&p)); /* 4 values */
    bolide__spec_add(&s, "WIDE", bolide__is_wide(p.b * p.s));
    bolide__spec_add(&s, "INTERLEAVE", p.interleave);
    const bolide__grid g = {.x = p.b * p.s, .y = 3, .block = 256, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, &p, sizeof p);
}

const bolide_op bolide_op_fused_qk_rmsnorm_rope = {
    .name = "fused_qk_rmsnorm_rope",
    .family = "norm",
    .doc =
        "q and k of a packed projection: RMS norm over all heads, then rotation by frame, height "
        "and width; v is copied",
    .run = BOLIDE_ENTRY(bolide_fused_qk_rmsnorm_rope_args, rows),
    .check = check,
    .cpu = fused_qk_rmsnorm_rope_cpu,
    .cuda = fused_qk_rmsnorm_rope_cuda,
};

bolide_status bolide_fused_qk_rmsnorm_rope(const bolide_context *ctx,
                                           const bolide_fused_qk_rmsnorm_rope_args *args,
                                           bolide_stream stream) {
    return bolide_run(&bolide_op_fused_qk_rmsnorm_rope, BOLIDE_RUN, ctx, args, stream);
}
