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

#ifdef __cplusplus
}
#endif

#endif
