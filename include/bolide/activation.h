// SPDX-License-Identifier: Apache-2.0
//
// Gated activations. The last dimension of the input holds two halves of d values each, the gate
// and what it multiplies:
//
//     out[…, i] = act(input[…, i]) * input[…, d + i],   0 <= i < d
//
// in f32, with one rounding at the store. Shapes are [n, 2d] and [n, d] or [n, h, 2d] and
// [n, h, d]; d may be any number, rows may be strided, the last dimension is contiguous.

#ifndef BOLIDE_ACTIVATION_H
#define BOLIDE_ACTIVATION_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* act(x) = silu(x) = x / (1 + exp(-x)); the gate of SwiGLU (Shazeer, arXiv:2002.05202). silu of
 * minus infinity is 0. */
typedef struct bolide_silu_and_mul_args {
    bolide_args_head head;
    const bolide_tensor *input; /* [n, 2d] or [n, h, 2d]: f16, bf16, f32 */
    const bolide_tensor *out;   /* [n, d] or [n, h, d]: dtype of input */
} bolide_silu_and_mul_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_silu_and_mul(const bolide_context *ctx,
                                                             const bolide_silu_and_mul_args *args,
                                                             bolide_stream stream);

/* act(x) = gelu(x) = x Phi(x) = x/2 (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel,
 * arXiv:1606.08415). */
typedef bolide_silu_and_mul_args bolide_gelu_and_mul_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_gelu_and_mul(const bolide_context *ctx,
                                                             const bolide_gelu_and_mul_args *args,
                                                             bolide_stream stream);

/* act(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the approximation of gelu from the same
 * paper. */
typedef bolide_silu_and_mul_args bolide_gelu_tanh_and_mul_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_gelu_tanh_and_mul(
    const bolide_context *ctx, const bolide_gelu_tanh_and_mul_args *args, bolide_stream stream);

/* out = silu(x * x_scale) * (x * x_scale) * o_scale, each of the two x its half: x may be
 * quantised, and so may out. With o_scale the result is held in the finite range of out's dtype;
 * without it only f8 dtypes are. */
typedef struct bolide_silu_and_mul_scaled_args {
    bolide_args_head head;
    const bolide_tensor *x;              /* [n, 2d] or [n, h, 2d]: f16, bf16, f32, f8_e4m3fn,
                                          * f8_e5m2 */
    double x_scale;                      /* absent: 1 */
    const bolide_tensor *x_scale_tensor; /* [] or [1]: f32 */
    double o_scale;                      /* absent: 1 */
    const bolide_tensor *o_scale_tensor; /* [] or [1]: f32 */
    const bolide_tensor *out;            /* [n, d] or [n, h, d]: the same dtypes */
} bolide_silu_and_mul_scaled_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_silu_and_mul_scaled(
    const bolide_context *ctx, const bolide_silu_and_mul_scaled_args *args, bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
