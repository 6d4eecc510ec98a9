// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer's tables, shared by loading (tokenizer.c) and encoding (bpe.c).
#ifndef BOLIDE_LLM_TOKENIZER_INTERNAL_H
#define BOLIDE_LLM_TOKENIZER_INTERNAL_H

#include "tokenizer.h"

// Two neighbouring tokens that may become one.  Lower rank goes first.
typedef struct {
    uint64_t pair; // left id in the upper half, right id in the lower
    int32_t rank;
    int32_t result;
} bpe_merge;

static inline uint64_t bpe_pair(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

struct tokenizer {
    int32_t n_tokens;
    size_t *offsets; // [n_tokens + 1], into bytes
    char *bytes;     // what each id stands for, one after the other
    bool *control;   // [n_tokens]
    size_t n_merges;
    bpe_merge *merges;    // [n_merges], sorted by pair
    int32_t of_byte[256]; // id of a single byte, or -1
    int32_t eos;
    int32_t bos;
};

// Scratch of one encoding; grown as needed, freed by bpe_scratch_free.  A zeroed one is empty.
typedef struct {
    void *symbols;
    size_t symbol_capacity;
    void *heap;
    size_t heap_capacity;
} bpe_scratch;

// Adds the ids of one piece of text, which merges never cross.
bool bpe_encode(const tokenizer *t, bpe_scratch *scratch, const char *piece, size_t size,
                token_list *ids, llm_error *error);
void bpe_scratch_free(bpe_scratch *scratch);

#endif
