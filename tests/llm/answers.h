// SPDX-License-Identifier: Apache-2.0
//
// Runs prompts through an engine and keeps what each request wrote, for tests that compare runs.
#ifndef BOLIDE_TESTS_LLM_ANSWERS_H
#define BOLIDE_TESTS_LLM_ANSWERS_H

#include "../../examples/llm/engine.h"
#include "harness.h"

enum { MAX_NEW = LLM_SLOW ? 4 : 64 };

// What a request wrote, and a hash of the bits of all its logits.
typedef struct {
    int64_t number;
    size_t count, limit;
    int32_t ids[MAX_NEW];
    double lead[MAX_NEW]; // by how much the largest logit exceeds the next
    double size;          // the largest root mean square of the logits
    uint64_t bits;
} answer;

typedef struct {
    int64_t captured, replayed;
} graph_count;

// Runs n prompts to their answers' limits; every `apart` steps one joins.  graphs may be NULL.
void run_answers(const llm_model *model, const llm_settings *settings, const token_list *shared,
                 const token_list *prompts, const llm_sampler *sampler, size_t n, size_t apart,
                 answer *answers, graph_count *graphs);

// The same tokens, and the same bits of the logits.
void expect_same(const answer *want, const answer *got, size_t n, const char *what);

#endif
