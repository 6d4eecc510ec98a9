// SPDX-License-Identifier: Apache-2.0
//
// Normalisation of rows. Inputs are f16, bf16 or f32; sums run in f32 over 16 fixed lanes, and
// there is one rounding, at the store. Shapes are [n, d] or, where a row says so, [n, h, d].

#ifndef BOLIDE_NORM_H
#define BOLIDE_NORM_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- RMS norm ------------------------------------------------------------------------------ */

/* out[i, :] = input[i, :] / sqrt(mean(input[i, :]^2) + eps) * weight
 *
 * Root mean square layer normalisation (Zhang and Sennrich, arXiv:1910.07467, equation 4). With
 * three dimensions each of the n*h rows of d values is normalised on its own, as the norm of q
 * and k per head needs. */
typedef struct bolide_rmsnorm_args {
    bolide_args_head head;
    const bolide_tensor *input;  /* [n, d] or [n, h, d]: f16, bf16, f32; d contiguous */
    const bolide_tensor *weight; /* [d]: dtype of input */
    const bolide_tensor *out;    /* shape and dtype of input; may be input */
    double eps;                  /* added to the mean square; default 1e-6 */
} bolide_rmsnorm_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_rmsnorm(const bolide_context *ctx,
                                                        const bolide_rmsnorm_args *args,
                                                        bolide_stream stream);

/* rmsnorm with 1 + weight in the place of weight, as the Gemma models store it. The sum 1 + weight
 * is formed in f32. */
typedef bolide_rmsnorm_args bolide_gemma_rmsnorm_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_gemma_rmsnorm(const bolide_context *ctx,
                                                              const bolide_gemma_rmsnorm_args *args,
                                                              bolide_stream stream);

/* out = rmsnorm(input, weight) / scale, held in the range of out's dtype: +-448 for f8_e4m3fn,
 * +-57344 for f8_e5m2. NaN stays NaN. The quotient is the product with the f32 reciprocal of
 * scale; scale must not be 0. */
typedef struct bolide_rmsnorm_quant_args {
    bolide_args_head head;
    const bolide_tensor *input;        /* [n, d] or [n, h, d]: f16, bf16, f32; d contiguous */
    const bolide_tensor *weight;       /* [d]: dtype of input */
    double scale;                      /* a number … */
    const bolide_tensor *scale_tensor; /* … or [], [1]: f32, read when the kernel runs */
    const bolide_tensor *out;          /* shape of input: f8_e4m3fn, f8_e5m2 */
    double eps;                        /* default 1e-6 */
} bolide_rmsnorm_quant_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_rmsnorm_quant(const bolide_context *ctx,
                                                              const bolide_rmsnorm_quant_args *args,
                                                              bolide_stream stream);

/* out = silu(rmsnorm(input, weight)), silu(x) = x / (1 + exp(-x)), of the f32 value before any
 * rounding. In f8_e4m3fn values beyond +-448 become +-448. */
typedef struct bolide_fused_rmsnorm_silu_args {
    bolide_args_head head;
    const bolide_tensor *input;  /* [n, d] or [n, h, d]: f16, bf16, f32; d contiguous */
    const bolide_tensor *weight; /* [d]: dtype of input */
    const bolide_tensor *out;    /* shape of input: f16, bf16, f32, f8_e4m3fn; may be input */
    double eps;                  /* default 1e-6 */
} bolide_fused_rmsnorm_silu_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_fused_rmsnorm_silu(
    const bolide_context *ctx, const bolide_fused_rmsnorm_silu_args *args, bolide_stream stream);

/* out = rmsnorm(x * in_scale, weight) * out_scale: x may be quantised, and so may out. With
 * out_scale the result is held in the finite range of out's dtype; without it only f8 dtypes are.
 * x, weight and out each have a dtype of their own. */
typedef struct bolide_rms_norm_args {
    bolide_args_head head;
    const bolide_tensor *x;      /* [n, d] or [n, h, d]: f16, bf16, f32, f8_e4m3fn, f8_e5m2 */
    const bolide_tensor *weight; /* [d]: f16, bf16, f32 */
    const bolide_tensor *out;    /* shape of x: f16, bf16, f32, f8_e4m3fn, f8_e5m2; may be x */
    double eps;                  /* no default: give it */
    double in_scale;             /* absent: 1 */
    const bolide_tensor *in_scale_tensor;  /* [] or [1]: f32 */
    double out_scale;                      /* absent: 1 */
    const bolide_tensor *out_scale_tensor; /* [] or [1]: f32 */
} bolide_rms_norm_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_rms_norm(const bolide_context *ctx,
                                                         const bolide_rms_norm_args *args,
                                                         bolide_stream stream);

/* ---- RMS norm of a sum --------------------------------------------------------------------- */

/* residual += input; input = rmsnorm(residual, weight), both in place. What is normalised is the
 * f32 sum before it is rounded into residual. */
typedef struct bolide_fused_add_rmsnorm_args {
    bolide_args_head head;
    const bolide_tensor *input;    /* [n, d] or [n, h, d]: f16, bf16, f32; becomes the norm */
    const bolide_tensor *residual; /* shape and dtype of input; becomes the sum */
    const bolide_tensor *weight;   /* [d]: dtype of input */
    double eps;                    /* default 1e-6 */
} bolide_fused_add_rmsnorm_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_fused_add_rmsnorm(
    const bolide_context *ctx, const bolide_fused_add_rmsnorm_args *args, bolide_stream stream);

/* fused_add_rmsnorm with 1 + weight in the place of weight. */
typedef bolide_fused_add_rmsnorm_args bolide_gemma_fused_add_rmsnorm_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_gemma_fused_add_rmsnorm(
    const bolide_context *ctx, const bolide_gemma_fused_add_rmsnorm_args *args,
    bolide_stream stream);

/* residual += input; out = rmsnorm(residual, weight) / scale, the quotient and its range as in
 * rmsnorm_quant. input is only read. */
typedef struct bolide_fused_add_rmsnorm_quant_args {
    bolide_args_head head;
    const bolide_tensor *input;        /* [n, d] or [n, h, d]: f16, bf16, f32; d contiguous */
    const bolide_tensor *residual;     /* shape and dtype of input; becomes the sum */
    const bolide_tensor *weight;       /* [d]: dtype of input */
    double scale;                      /* a number … */
    const bolide_tensor *scale_tensor; /* … or [], [1]: f32, read when the kernel runs */
    const bolide_tensor *out;          /* shape of input: f8_e4m3fn, f8_e5m2 */
    double eps;                        /* default 1e-6 */
} bolide_fused_add_rmsnorm_quant_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_fused_add_rmsnorm_quant(
    const bolide_context *ctx, const bolide_fused_add_rmsnorm_quant_args *args,
    bolide_stream stream);

/* residual += input; normed_out = rmsnorm(residual, weight); and of each 128 values of a row of
 * normed_out, as they are stored,
 *
 *     block_scale = max(largest magnitude, 1e-4) / 448;  out = normed_out / block_scale
 *
 * which is what FP8 GEMMs with groupwise scales take: block_scale lies with the tokens innermost,
 * [d/128, pad(n, 4)]. The columns that pad it are left as they are. */
typedef struct bolide_fused_add_rmsnorm_fp8_block_quant_args {
    bolide_args_head head;
    const bolide_tensor *input;       /* [n, d]: f16, bf16, f32; d contiguous, a multiple of 128 */
    const bolide_tensor *residual;    /* [n, d]: dtype of input; becomes the sum */
    const bolide_tensor *weight;      /* [d]: dtype of input */
    const bolide_tensor *out;         /* [n, d]: f8_e4m3fn */
    const bolide_tensor *block_scale; /* [d/128, pad(n, 4)]: f32 */
    const bolide_tensor *normed_out;  /* [n, d]: dtype of input; may be input */
    double eps;                       /* default 1e-6 */
} bolide_fused_add_rmsnorm_fp8_block_quant_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_fused_add_rmsnorm_fp8_block_quant(
    const bolide_context *ctx, const bolide_fused_add_rmsnorm_fp8_block_quant_args *args,
    bolide_stream stream);

/* residual += x * x_in_scale; x_out = rmsnorm(residual, weight) * x_out_scale; scales and range as
 * in rms_norm. */
typedef struct bolide_rms_norm_add_residual_args {
    bolide_args_head head;
    const bolide_tensor *x;        /* [n, d] or [n, h, d]: f16, bf16, f32, f8_e4m3fn, f8_e5m2 */
    const bolide_tensor *residual; /* shape of x: f16, bf16, f32; becomes the sum */
    const bolide_tensor *weight;   /* [d]: f16, bf16, f32 */
    const bolide_tensor *x_out;    /* shape of x: f16, bf16, f32, f8_e4m3fn, f8_e5m2; may be x */
    double eps;                    /* no default: give it */
    double x_in_scale;             /* absent: 1 */
    const bolide_tensor *x_in_scale_tensor;  /* [] or [1]: f32 */
    double x_out_scale;                      /* absent: 1 */
    const bolide_tensor *x_out_scale_tensor; /* [] or [1]: f32 */
} bolide_rms_norm_add_residual_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_rms_norm_add_residual(
    const bolide_context *ctx, const bolide_rms_norm_add_residual_args *args, bolide_stream stream);

/* ---- RMS norm of q and k with video rotary embedding --------------------------------------- */

/* From the packed projection qkv of a diffusion transformer: q and k are RMS-normalised over all
 * their heads together, rotated, and stored; v is copied. Token t of the s = ppf*pph*ppw of a video
 * is at frame t / (pph*ppw), height t / ppw % pph, width t % ppw. The head_dim channels are split
 * in num_frame_, num_height_ and num_width_channels, of which each part has frequencies of its own,
 * base^(-2i/channels), i = 0 ... channels/2 - 1, and is rotated by its own coordinate. Pair j of a
 * head is the channels (2j, 2j+1) with interleave, else (j, j + head_dim/2); channel 2j says
 * to which part it belongs.
 *
 * With factor other than 1 a frequency f with index i becomes f * (1 - r) + f / factor * r,
 * r = (i - low) / (high - low) held in [0, 1] (YaRN). The rotated q and k are multiplied by
 * attention_factor and, for f8_e4m3fn outputs, by output_quant_scale, v by v_quant_scale, and held
 * in +-448. Nothing is rounded between norm and rotation. */
typedef struct bolide_fused_qk_rmsnorm_rope_args {
    bolide_args_head head;
    const bolide_tensor *qkv;      /* [b, s, (num_heads_q + num_heads_k + num_heads_v) * head_dim]:
                                    * f16, bf16, f32 */
    const bolide_tensor *q_weight; /* [num_heads_q * head_dim]: dtype of qkv */
    const bolide_tensor *k_weight; /* [num_heads_k * head_dim]: dtype of qkv */
    int64_t ppf, pph, ppw;         /* frames, rows and columns of patches */
    int64_t num_frame_channels, num_height_channels, num_width_channels; /* even; sum head_dim */
    int64_t num_heads_q, num_heads_k, num_heads_v;
    int64_t head_dim;           /* even, at most 256 */
    double eps;                 /* default 1e-6 */
    double base;                /* default 10000 */
    int64_t interleave;         /* default 1 */
    double factor;              /* default 1 */
    double low, high;           /* default 0 */
    double attention_factor;    /* default 1 */
    int64_t is_qk_norm;         /* default 1; 0: q and k are not normalised */
    int64_t output_fp8;         /* default 0; 1: the outputs are f8_e4m3fn */
    double output_quant_scale;  /* default 1; other values need output_fp8 */
    double v_quant_scale;       /* default 1; other values need output_fp8 */
    const bolide_tensor *q_out; /* [b, s, num_heads_q, head_dim]: dtype of qkv, or f8_e4m3fn */
    const bolide_tensor *k_out; /* [b, s, num_heads_k, head_dim]: likewise */
    const bolide_tensor *v_out; /* [b, s, num_heads_v, head_dim]: likewise */
} bolide_fused_qk_rmsnorm_rope_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_fused_qk_rmsnorm_rope(
    const bolide_context *ctx, const bolide_fused_qk_rmsnorm_rope_args *args, bolide_stream stream);

/* ---- layer norm ---------------------------------------------------------------------------- */

/* out[i, :] = (input[i, :] - mean) / sqrt(variance + eps) * gemma + beta
 *
 * Layer normalisation (Ba, Kiros and Hinton, arXiv:1607.06450) with the mean and the variance of
 * the row, divided by d; the variance is taken around the mean, in a pass of its own. */
typedef struct bolide_layernorm_args {
    bolide_args_head head;
    const bolide_tensor *input; /* [n, d] or [n, h, d]: f16, bf16, f32; d contiguous */
    const bolide_tensor *gemma; /* [d]: f32, the factor */
    const bolide_tensor *beta;  /* [d]: f32, the term */
    const bolide_tensor *out;   /* shape and dtype of input; may be input */
    double eps;                 /* added to the variance; default 1e-6 */
} bolide_layernorm_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_layernorm(const bolide_context *ctx,
                                                          const bolide_layernorm_args *args,
                                                          bolide_stream stream);

/* out = layernorm(input, gemma, beta) / scale, the quotient and its range as in rmsnorm_quant. */
typedef struct bolide_layernorm_quant_args {
    bolide_args_head head;
    const bolide_tensor *input;        /* [n, d] or [n, h, d]: f16, bf16, f32; d contiguous */
    const bolide_tensor *gemma;        /* [d]: f32, the factor */
    const bolide_tensor *beta;         /* [d]: f32, the term */
    double scale;                      /* a number … */
    const bolide_tensor *scale_tensor; /* … or [], [1]: f32, read when the kernel runs */
    const bolide_tensor *out;          /* shape of input: f8_e4m3fn, f8_e5m2 */
    double eps;                        /* default 1e-6 */
} bolide_layernorm_quant_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_layernorm_quant(
    const bolide_context *ctx, const bolide_layernorm_quant_args *args, bolide_stream stream);

/* The block of a diffusion transformer between two projections, with
 *
 *     x            = residual + input * input_global_scaling_factor * (gate + gate_bias)
 *     residual_out = x
 *     norm_out     = layernorm(x) * gamma + beta
 *
 * x is normalised before it is rounded. gate may be a view into [b, s, 6, d]: its strides are its
 * own. Absent biases are 0, an absent factor is 1. */
typedef struct bolide_fused_dit_gate_residual_layernorm_gamma_beta_args {
    bolide_args_head head;
    const bolide_tensor *input;     /* [b, s, d]: f16, bf16, f32; d contiguous */
    const bolide_tensor *residual;  /* [b, s, d]: dtype of input */
    const bolide_tensor *gate;      /* [b, s, d]: dtype of input */
    const bolide_tensor *gamma;     /* [d]: f32 */
    const bolide_tensor *beta;      /* [d]: f32 */
    const bolide_tensor *gate_bias; /* [d] or [1, d]: f32; optional */
    double epsilon;                 /* added to the variance; default 1e-6 */
    double input_global_scaling_factor;
    const bolide_tensor *input_global_scaling_factor_tensor; /* [] or [1]: f32 */
    const bolide_tensor *residual_out; /* [b, s, d]: dtype of input; may be residual */
    const bolide_tensor *norm_out;     /* [b, s, d]: dtype of input; may be input */
} bolide_fused_dit_gate_residual_layernorm_gamma_beta_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_fused_dit_gate_residual_layernorm_gamma_beta(
    const bolide_context *ctx, const bolide_fused_dit_gate_residual_layernorm_gamma_beta_args *args,
    bolide_stream stream);

/* The same with norm_out = layernorm(x) * (1 + scale + scale_bias) + (shift + shift_bias), scale
 * and shift for each token. */
typedef struct bolide_fused_dit_gate_residual_layernorm_scale_shift_args {
    bolide_args_head head;
    const bolide_tensor *input;      /* [b, s, d]: f16, bf16, f32; d contiguous */
    const bolide_tensor *residual;   /* [b, s, d]: dtype of input */
    const bolide_tensor *gate;       /* [b, s, d]: dtype of input */
    const bolide_tensor *scale;      /* [b, s, d]: dtype of input */
    const bolide_tensor *shift;      /* [b, s, d]: dtype of input */
    const bolide_tensor *gate_bias;  /* [d] or [1, d]: f32; optional */
    const bolide_tensor *scale_bias; /* [d] or [1, d]: f32; optional */
    const bolide_tensor *shift_bias; /* [d] or [1, d]: f32; optional */
    double epsilon;                  /* added to the variance; default 1e-6 */
    double input_global_scaling_factor;
    const bolide_tensor *input_global_scaling_factor_tensor; /* [] or [1]: f32 */
    const bolide_tensor *residual_out; /* [b, s, d]: dtype of input; may be residual */
    const bolide_tensor *norm_out;     /* [b, s, d]: dtype of input; may be input */
} bolide_fused_dit_gate_residual_layernorm_scale_shift_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_fused_dit_gate_residual_layernorm_scale_shift(
    const bolide_context *ctx,
    const bolide_fused_dit_gate_residual_layernorm_scale_shift_args *args, bolide_stream stream);

/* The same without a gate: x = residual + input * input_global_scaling_factor, or without the
 * residual if that is absent. */
typedef struct bolide_fused_dit_residual_layernorm_scale_shift_args {
    bolide_args_head head;
    const bolide_tensor *input;      /* [b, s, d]: f16, bf16, f32; d contiguous */
    const bolide_tensor *scale;      /* [b, s, d]: dtype of input */
    const bolide_tensor *shift;      /* [b, s, d]: dtype of input */
    const bolide_tensor *residual;   /* [b, s, d]: dtype of input; optional */
    const bolide_tensor *scale_bias; /* [d] or [1, d]: f32; optional */
    const bolide_tensor *shift_bias; /* [d] or [1, d]: f32; optional */
    double epsilon;                  /* added to the variance; default 1e-6 */
    double input_global_scaling_factor;
    const bolide_tensor *input_global_scaling_factor_tensor; /* [] or [1]: f32 */
    const bolide_tensor *residual_out; /* [b, s, d]: dtype of input; may be residual */
    const bolide_tensor *norm_out;     /* [b, s, d]: dtype of input; may be input */
} bolide_fused_dit_residual_layernorm_scale_shift_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_fused_dit_residual_layernorm_scale_shift(
    const bolide_context *ctx, const bolide_fused_dit_residual_layernorm_scale_shift_args *args,
    bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
