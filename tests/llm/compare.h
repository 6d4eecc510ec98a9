// SPDX-License-Identifier: Apache-2.0
//
// Compares the engine's logits with those of the float64 reference, position by position.
#ifndef BOLIDE_TESTS_LLM_COMPARE_H
#define BOLIDE_TESTS_LLM_COMPARE_H

#include "../../examples/llm/engine.h"

typedef struct {
    size_t positions;
    double largest; // difference of a logit
    double spread;  // root mean square of the reference's logits
    double kl;      // sum over positions of KL(reference || engine)
    double worst_kl;
    size_t clear;    // positions where the reference's best token leads by more than 0.5
    size_t mistaken; // those of them where the engine's best token is another
} comparison;

// Adds positions [first, count) of a text of at most one chunk to the comparison of each of the n
// settings.
bool compare_logits(const llm_model *model, const int32_t *ids, size_t count, size_t first,
                    const llm_settings *settings, comparison *comparisons, size_t n,
                    llm_error *error);

#endif
