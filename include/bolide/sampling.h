// SPDX-License-Identifier: Apache-2.0
//
// Sampling tokens from probabilities or logits, and the filters beside it.
//
// Rows. probs and logits are [n, v]; the vocabulary v is at most 4,194,303. With indices [b],
// output row i samples from row indices[i]; without, b = n and row i from row i. Numbers that may
// differ per row (top_p, top_k, min_p, temperature, seed, offset) are either a number or a tensor
// in device memory with 1 or b elements, b counting output rows.
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

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_p_sampling_from_probs(
    const bolide_context *ctx, const bolide_top_p_sampling_from_probs_args *args,
    bolide_stream stream);

/* A sample from each row; a row that does not sum to 1 is renormalised. */
typedef struct bolide_sampling_from_probs_args {
    bolide_args_head head;
    const bolide_tensor *probs;         /* [n, v]: f32; v contiguous */
    const bolide_tensor *indices;       /* [b]: i32, i64; NULL: row i samples from row i */
    const bolide_tensor *seed_tensor;   /* [1] or [b]: i64, u64; or */
    int64_t seed;                       /* one number for all */
    const bolide_tensor *offset_tensor; /* [1] or [b]: i64, u64; or */
    int64_t offset;                     /* one number for all; default 0 */
    const bolide_tensor *samples;       /* [b]: dtype of indices; i32 or i64 without */
    const bolide_tensor *valid;         /* [b]: bool; NULL: not wanted */
} bolide_sampling_from_probs_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_sampling_from_probs(
    const bolide_context *ctx, const bolide_sampling_from_probs_args *args, bolide_stream stream);

/* A sample from the top_k largest probabilities, renormalised. */
typedef struct bolide_top_k_sampling_from_probs_args {
    bolide_args_head head;
    const bolide_tensor *probs;         /* [n, v]: f32; v contiguous */
    const bolide_tensor *top_k_tensor;  /* [1] or [b]: i32, i64; or */
    int64_t top_k;                      /* one number for all */
    const bolide_tensor *indices;       /* [b]: i32, i64; NULL: row i samples from row i */
    const bolide_tensor *seed_tensor;   /* [1] or [b]: i64, u64; or */
    int64_t seed;                       /* one number for all */
    const bolide_tensor *offset_tensor; /* [1] or [b]: i64, u64; or */
    int64_t offset;                     /* one number for all; default 0 */
    const bolide_tensor *samples;       /* [b]: dtype of indices; i32 or i64 without */
    const bolide_tensor *valid;         /* [b]: bool; NULL: not wanted */
} bolide_top_k_sampling_from_probs_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_k_sampling_from_probs(
    const bolide_context *ctx, const bolide_top_k_sampling_from_probs_args *args,
    bolide_stream stream);

/* A sample from the probabilities of at least min_p times the largest, renormalised; the largest
 * stays for any min_p. */
typedef struct bolide_min_p_sampling_from_probs_args {
    bolide_args_head head;
    const bolide_tensor *probs;         /* [n, v]: f32; v contiguous */
    const bolide_tensor *min_p_tensor;  /* [1] or [b]: f32; or */
    double min_p;                       /* one number for all */
    const bolide_tensor *indices;       /* [b]: i32, i64; NULL: row i samples from row i */
    const bolide_tensor *seed_tensor;   /* [1] or [b]: i64, u64; or */
    int64_t seed;                       /* one number for all */
    const bolide_tensor *offset_tensor; /* [1] or [b]: i64, u64; or */
    int64_t offset;                     /* one number for all; default 0 */
    const bolide_tensor *samples;       /* [b]: dtype of indices; i32 or i64 without */
    const bolide_tensor *valid;         /* [b]: bool; NULL: not wanted */
} bolide_min_p_sampling_from_probs_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_min_p_sampling_from_probs(
    const bolide_context *ctx, const bolide_min_p_sampling_from_probs_args *args,
    bolide_stream stream);

/* Which test top-p makes when both filters are set. */
typedef enum bolide_filter_order {
    BOLIDE_TOP_K_FIRST, /* the sum reaches top_p of what top-k has left, renormalised */
    BOLIDE_JOINT        /* both tests on the row as it is */
} bolide_filter_order;

/* A sample from the probabilities that pass top-k and top-p, renormalised. */
typedef struct bolide_top_k_top_p_sampling_from_probs_args {
    bolide_args_head head;
    const bolide_tensor *probs;         /* [n, v]: f32; v contiguous */
    const bolide_tensor *top_k_tensor;  /* [1] or [b]: i32, i64; or */
    int64_t top_k;                      /* one number for all */
    const bolide_tensor *top_p_tensor;  /* [1] or [b]: f32; or */
    double top_p;                       /* one number for all */
    int64_t filter_apply_order;         /* bolide_filter_order; default TOP_K_FIRST */
    const bolide_tensor *indices;       /* [b]: i32, i64; NULL: row i samples from row i */
    const bolide_tensor *seed_tensor;   /* [1] or [b]: i64, u64; or */
    int64_t seed;                       /* one number for all */
    const bolide_tensor *offset_tensor; /* [1] or [b]: i64, u64; or */
    int64_t offset;                     /* one number for all; default 0 */
    const bolide_tensor *samples;       /* [b]: dtype of indices; i32 or i64 without */
    const bolide_tensor *valid;         /* [b]: bool; NULL: not wanted */
} bolide_top_k_top_p_sampling_from_probs_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_k_top_p_sampling_from_probs(
    const bolide_context *ctx, const bolide_top_k_top_p_sampling_from_probs_args *args,
    bolide_stream stream);

/* The same for softmax(logits), which is never stored. */
typedef struct bolide_top_k_top_p_sampling_from_logits_args {
    bolide_args_head head;
    const bolide_tensor *logits;        /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *top_k_tensor;  /* [1] or [b]: i32, i64; or */
    int64_t top_k;                      /* one number for all */
    const bolide_tensor *top_p_tensor;  /* [1] or [b]: f32; or */
    double top_p;                       /* one number for all */
    int64_t filter_apply_order;         /* bolide_filter_order; default TOP_K_FIRST */
    const bolide_tensor *indices;       /* [b]: i32, i64; NULL: row i samples from row i */
    const bolide_tensor *seed_tensor;   /* [1] or [b]: i64, u64; or */
    int64_t seed;                       /* one number for all */
    const bolide_tensor *offset_tensor; /* [1] or [b]: i64, u64; or */
    int64_t offset;                     /* one number for all; default 0 */
    const bolide_tensor *samples;       /* [b]: dtype of indices; i32 or i64 without */
} bolide_top_k_top_p_sampling_from_logits_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_k_top_p_sampling_from_logits(
    const bolide_context *ctx, const bolide_top_k_top_p_sampling_from_logits_args *args,
    bolide_stream stream);

/* A sample from softmax(logits) by the Gumbel-max trick: the lowest index of the largest
 * logit + noise, in f32, with noise = -log(-log1p(-v)) and v = min(w 2^-32 + 2^-33, 1 - 2^-24).
 * For element i word i % 4 of two Philox blocks with key (seed low, seed high) and counter (n,
 * output row, offset low, offset high), n = i / 256 * 32 + i / 4 % 32 and n + 2^31, gives the upper
 * and the lower half of w: its own upper half if i / 128 is even, else its lower one. */
typedef struct bolide_sampling_from_logits_args {
    bolide_args_head head;
    const bolide_tensor *logits;        /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *indices;       /* [b]: i32, i64; NULL: row i samples from row i */
    const bolide_tensor *seed_tensor;   /* [1] or [b]: i64, u64; or */
    int64_t seed;                       /* one number for all */
    const bolide_tensor *offset_tensor; /* [1] or [b]: i64, u64; or */
    int64_t offset;                     /* one number for all; default 0 */
    const bolide_tensor *samples;       /* [b]: dtype of indices; i32 or i64 without */
} bolide_sampling_from_logits_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_sampling_from_logits(
    const bolide_context *ctx, const bolide_sampling_from_logits_args *args, bolide_stream stream);

/* out = exp(x / t - max) / sum, in f32. A temperature <= 0 (or NaN) gives a row with 1 at the
 * largest logit, of equals the lowest index; a row without a logit above -inf gives zeros. */
typedef struct bolide_softmax_args {
    bolide_args_head head;
    const bolide_tensor *logits;             /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *temperature_tensor; /* [1] or [n]: f32; or */
    double temperature;                      /* one number for all; NaN: none, the same as 1 */
    const bolide_tensor *out;                /* [n, v]: f32; v contiguous; may be logits */
} bolide_softmax_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_softmax(const bolide_context *ctx,
                                                        const bolide_softmax_args *args,
                                                        bolide_stream stream);

/* Keeps the smallest set of largest probabilities whose sum reaches top_p, divided by their sum; 0
 * elsewhere. A row without a probability above 0 gives zeros. */
typedef struct bolide_top_p_renorm_probs_args {
    bolide_args_head head;
    const bolide_tensor *probs;        /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *top_p_tensor; /* [1] or [n]: f32; or */
    double top_p;                      /* one number for all */
    const bolide_tensor *out;          /* shape and dtype of probs; may be probs */
} bolide_top_p_renorm_probs_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_p_renorm_probs(
    const bolide_context *ctx, const bolide_top_p_renorm_probs_args *args, bolide_stream stream);

/* The same for the top_k largest. */
typedef struct bolide_top_k_renorm_probs_args {
    bolide_args_head head;
    const bolide_tensor *probs;        /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *top_k_tensor; /* [1] or [n]: i32, i64; or */
    int64_t top_k;                     /* one number for all */
    const bolide_tensor *out;          /* shape and dtype of probs; may be probs */
} bolide_top_k_renorm_probs_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_k_renorm_probs(
    const bolide_context *ctx, const bolide_top_k_renorm_probs_args *args, bolide_stream stream);

/* Keeps the top_k largest logits as they are; -inf elsewhere and for NaN. */
typedef struct bolide_top_k_mask_logits_args {
    bolide_args_head head;
    const bolide_tensor *logits;       /* [n, v]: f16, bf16, f32; v contiguous */
    const bolide_tensor *top_k_tensor; /* [1] or [n]: i32, i64; or */
    int64_t top_k;                     /* one number for all */
    const bolide_tensor *out;          /* shape and dtype of logits; may be logits */
} bolide_top_k_mask_logits_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_top_k_mask_logits(
    const bolide_context *ctx, const bolide_top_k_mask_logits_args *args, bolide_stream stream);

/* Speculative sampling of a chain of n drafts (Leviathan et al., arXiv:2211.17192). Draft i with
 * probability p under the draft model and q under the target is accepted while u p < q. The first
 * rejected one is replaced by a sample from max(0, target - draft) renormalised (from the target,
 * should that be empty); behind n accepted ones comes a sample from the target's last row. The rest
 * of a row is -1. A draft id outside [0, v) is rejected. Philox counter (i, row, offset low, offset
 * high) decides on draft i, (n, …) the emitted sample. */
typedef struct bolide_chain_speculative_sampling_args {
    bolide_args_head head;
    const bolide_tensor *draft_probs;     /* [b, n, v]: f32; v contiguous */
    const bolide_tensor *draft_token_ids; /* [b, n]: i32, i64; n contiguous */
    const bolide_tensor *target_probs;    /* [b, n+1, v]: f32; v contiguous */
    /* [b]: i32; NULL: not wanted. Added to: drafts that pass their own test, wherever they stand.
     */
    const bolide_tensor *maybe_output_accepted_token_num;
    /* [b]: i32; NULL: not wanted. Added to: drafts accepted before the first rejection. */
    const bolide_tensor *maybe_output_emitted_draft_token_num;
    const bolide_tensor *seed_tensor;      /* [1] or [b]: i64, u64; or */
    int64_t seed;                          /* one number for all */
    const bolide_tensor *offset_tensor;    /* [1] or [b]: i64, u64; or */
    int64_t offset;                        /* one number for all; default 0 */
    const bolide_tensor *output_token_ids; /* [b, n+1]: dtype of draft_token_ids */
} bolide_chain_speculative_sampling_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_chain_speculative_sampling(
    const bolide_context *ctx, const bolide_chain_speculative_sampling_args *args,
    bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
