// SPDX-License-Identifier: Apache-2.0
//
// Attention without a custom variant: the functions that a variant's texts become elsewhere
// (attention_variant.c), none of which changes anything.

#ifndef BOLIDE_OPS_ATTENTION_PLAIN_CUH
#define BOLIDE_OPS_ATTENTION_PLAIN_CUH

enum { bolide__variant_softmax = 1 };

using variant_at = bolide__variant_at;
using variant_extra = bolide__variant_extra;

float bolide__variant_logits(float x, const variant_at *, const variant_extra *) {
    return x;
}

int bolide__variant_mask(const variant_at *, const variant_extra *) {
    return 1;
}

float bolide__variant_query(float x, const variant_at *, const variant_extra *) {
    return x;
}

float bolide__variant_key(float x, const variant_at *, const variant_extra *) {
    return x;
}

float bolide__variant_value(float x, const variant_at *, const variant_extra *) {
    return x;
}

float bolide__variant_output(float x, const variant_at *, const variant_extra *) {
    return x;
}

#endif
