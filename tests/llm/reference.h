// SPDX-License-Identifier: Apache-2.0
//
// The llama architecture in float64 and plain loops, read from the same GGUF file as the engine:
// the standard that the engine's logits are compared with.  It shares nothing with the engine: the
// file has a reader of its own (reference_file.h), which turns weights into doubles row by row.
#ifndef BOLIDE_TESTS_LLM_REFERENCE_H
#define BOLIDE_TESTS_LLM_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../examples/llm/error.h"

typedef struct reference reference;

// The bytes of the file must outlive the reference.  At most `max_tokens` tokens are remembered.
reference *reference_create(const unsigned char *bytes, size_t max_tokens, llm_error *error);
void reference_destroy(reference *r);

size_t reference_vocab(const reference *r);

// Forgets all tokens.
void reference_reset(reference *r);

// Runs n more tokens of one text.  logits, if not NULL, is [wanted, vocab] and receives the logits
// of the last `wanted` of them.
bool reference_forward(reference *r, const int32_t *tokens, size_t n, size_t wanted, double *logits,
                       llm_error *error);

#endif
