// SPDX-License-Identifier: Apache-2.0
//
// Joining attention states. A state is the result of attention over some keys, v, with the log2 of
// its sum of exp, s (the lse of the attention operators). Joining the states of disjoint sets of
// keys gives the state of their union:
//
//     s = log2(sum of 2^s_i)        v = sum of 2^(s_i - s) v_i
//
// A state of no keys is v = anything, s = -inf; joining only such states gives 0 and -inf. v is
// f16, bf16 or f32, s f32; sums run in f32 with one rounding at the store. Any number of heads and
// any head size.

#ifndef BOLIDE_CASCADE_H
#define BOLIDE_CASCADE_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bolide_merge_state_args {
    bolide_args_head head;
    const bolide_tensor *v_a;      /* [n, h, d]: f16, bf16, f32 */
    const bolide_tensor *s_a;      /* [n, h] f32 */
    const bolide_tensor *v_b;      /* shape and dtype of v_a */
    const bolide_tensor *s_b;      /* [n, h] f32 */
    const bolide_tensor *v_merged; /* shape and dtype of v_a */
    const bolide_tensor *s_merged; /* [n, h] f32 */
} bolide_merge_state_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_merge_state(const bolide_context *ctx,
                                                            const bolide_merge_state_args *args,
                                                            bolide_stream stream);

/* Joins the other state into v and s. */
typedef struct bolide_merge_state_in_place_args {
    bolide_args_head head;
    const bolide_tensor *v;       /* [n, h, d]: f16, bf16, f32; changed */
    const bolide_tensor *s;       /* [n, h] f32; changed */
    const bolide_tensor *v_other; /* shape and dtype of v */
    const bolide_tensor *s_other; /* [n, h] f32 */
    const bolide_tensor *mask;    /* [n] bool: rows to change; NULL: all */
} bolide_merge_state_in_place_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_merge_state_in_place(
    const bolide_context *ctx, const bolide_merge_state_in_place_args *args, bolide_stream stream);

/* Joins k states of each row. */
typedef struct bolide_merge_states_args {
    bolide_args_head head;
    const bolide_tensor *v;        /* [n, k, h, d]: f16, bf16, f32 */
    const bolide_tensor *s;        /* [n, k, h] f32 */
    const bolide_tensor *v_merged; /* [n, h, d]: dtype of v */
    const bolide_tensor *s_merged; /* [n, h] f32 */
} bolide_merge_states_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_merge_states(const bolide_context *ctx,
                                                             const bolide_merge_states_args *args,
                                                             bolide_stream stream);

/* Joins the states indptr[i] … indptr[i+1]-1 into row i. The values of indptr are the caller's
 * promise: they do not fall and stay within v. */
typedef struct bolide_variable_length_merge_states_args {
    bolide_args_head head;
    const bolide_tensor *v;        /* [m, h, d]: f16, bf16, f32 */
    const bolide_tensor *s;        /* [m, h] f32 */
    const bolide_tensor *indptr;   /* [n+1] i32 */
    const bolide_tensor *v_merged; /* [n, h, d]: dtype of v */
    const bolide_tensor *s_merged; /* [n, h] f32 */
} bolide_variable_length_merge_states_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_variable_length_merge_states(
    const bolide_context *ctx, const bolide_variable_length_merge_states_args *args,
    bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
