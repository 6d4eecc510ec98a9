// SPDX-License-Identifier: Apache-2.0
//
// Sampling tokens from probabilities or logits, and the filters beside it.
//
// Rows. probs and logits are [n, v]; the vocabulary v is at most 4,194,303. With indices [b], output
// row i samples from row indices[i]; without, b = n and row i from row i. Numbers that may differ
// per row (top_p, top_k, min_p, temperature, seed, offset) are either a number or a tensor in device
// memory with 1 or b elements, b counting output rows.
//
// Random numbers are Philox 4x32-10 of (seed, offset, output row): the same on every device, and
// nothing else enters, so a call is repeated exactly by the same seed and offset, and a captured
// graph draws anew when the values in device memory change. A call must not use an offset that an
// earlier call with the same seed has used. Every operator is deterministic: same inputs, same
// bits, for any number of threads. Filters are exact, nothing is rejected and drawn again, and the
// sample follows from one uniform number (sampling_from_logits: one for each logit).
//
// Edges, the same everywhere:
//   top_k <= 0 or >= v, top_p >= 1 (or NaN), min_p <= 0 (or NaN)   no limit
//   top_p <= 0                           the largest value, of equals the lowest index
//   values equal to the smallest kept one   all stay
//   NaN or negative probability          counts as 0; infinite as the largest finite number
//   NaN logit                            counts as -inf
//   no probability above 0, no logit above -inf   id 0, valid = false
//   an id in indices outside [0, n)      id 0, valid = false
// Ids are always inside [0, v), and a value of probability 0 is never drawn.

#ifndef BOLIDE_SAMPLING_H
#define BOLIDE_SAMPLING_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A sample from the smallest set of largest probabilities whose sum reaches top_p, renormalised.
 * top_p is compared with the row's own sums: a row is expected to sum to 1. */
typedef struct bolide_top_p_sampling_from_probs_args {
    bolide_args_head head;
    const bolide_tensor *probs;         /* [n, v]: f32; v contiguous */
    const bolide_tensor *top_p_tensor;  /* [1] or [b]: f32; or */
    double top_p;                       /* one number for all */
    const bolide_tensor *indices;       /* [b]: i32, i64; NULL: row i samples from row i */
    const bolide_tensor *seed_tensor;   /* [1] or [b]: i64, u64; or */
    int64_t seed;                       /* one number for all */
    const bolide_tensor *offset_tensor; /* [1] or [b]: i64, u64; or */
    int64_t offset;                     /* one number for all; default 0 */
    const bolide_tensor *samples;       /* [b]: dtype of indices; i32 or i64 without */
    const bolide_tensor *valid;         /* [b]: bool; NULL: not wanted */
} bolide_top_p_sampling_from_probs_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status
bolide_top_p_sampling_from_probs(const bolide_context *ctx,
                                 const bolide_top_p_sampling_from_probs_args *args,
                                 bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
