// SPDX-License-Identifier: Apache-2.0
//
// Byte-level BPE from the vocabulary and the merges of a GGUF file (tokenizer.ggml.model = gpt2,
// tokenizer.ggml.pre = smollm).
//
// Text becomes ids as the PyPI package `tokenizers` does it with the pre-tokenizers Digits(single)
// and ByteLevel(no prefix space, its regular expression) and the file's vocabulary and merges:
//   - Text that is not UTF-8 is not refused: each ill-formed piece counts as U+FFFD, as Python's
//     errors="replace" does it, and the number of pieces is reported.
//   - Names of control tokens in the text, such as <|im_end|>, are text like any other.  Encoding
//     never gives a control token; the chat template alone inserts them.
//   - A byte for which the vocabulary has no token (SmolLM2 lacks 21, such as U+0004) is left out.
// The cost is n log n in the length of the text, whatever the text is.
//
// Ids become bytes again with tokenizer_piece, and text for a terminal with a text_stream, which
// holds back the beginning of a character until the rest of it comes.
#ifndef BOLIDE_LLM_TOKENIZER_H
#define BOLIDE_LLM_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "gguf.h"
#include "list.h"

typedef struct tokenizer tokenizer;

// Needs the file only while it runs.  NULL on failure.
tokenizer *tokenizer_create(const gguf_file *file, llm_error *error);
void tokenizer_destroy(tokenizer *t);

// Adds the ids of the text to the list.  *replaced, if not NULL, is the number of ill-formed pieces
// that were read as U+FFFD.
bool tokenizer_encode(const tokenizer *t, const char *text, size_t size, token_list *ids,
                      size_t *replaced, llm_error *error);

int32_t tokenizer_count(const tokenizer *t);

// The bytes that an id stands for; of a control token, its name.  An id outside the vocabulary has
// none.  The bytes live as long as the tokenizer.
gguf_string tokenizer_piece(const tokenizer *t, int32_t id);
bool tokenizer_is_control(const tokenizer *t, int32_t id);

// The control token of that name, or -1.
int32_t tokenizer_find_control(const tokenizer *t, const char *name);

// tokenizer.ggml.eos_token_id; the token that begins a text if the file asks for one; else -1.
int32_t tokenizer_eos(const tokenizer *t);
int32_t tokenizer_bos(const tokenizer *t);

// Output that arrives in pieces.  A zeroed stream is fresh.
typedef struct {
    char held[4]; // the beginning of a character
    size_t n_held;
} text_stream;

// Adds to `out` all text that is complete after these bytes; ill-formed pieces become U+FFFD.
bool text_stream_put(text_stream *stream, gguf_string bytes, text_list *out, llm_error *error);

// Ends the text: what is held back becomes U+FFFD.
bool text_stream_end(text_stream *stream, text_list *out, llm_error *error);

#endif
