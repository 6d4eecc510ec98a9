// SPDX-License-Identifier: Apache-2.0
//
// The ChatML template of SmolLM2-Instruct.  A conversation becomes
//
//     <|im_start|>ROLE\nTEXT<|im_end|>\n        for each message
//     <|im_start|>assistant\n                   where an answer is wanted
//
// and begins with SmolLM2's own system message unless it brings one.  <|im_start|> and <|im_end|>
// are inserted as control tokens here and nowhere else; in the text of a message they are text.
#ifndef BOLIDE_LLM_CHAT_H
#define BOLIDE_LLM_CHAT_H

#include "tokenizer.h"

typedef struct {
    const char *role; // "system", "user" or "assistant"
    const char *text;
    size_t size;
} chat_message;

extern const char chat_default_system[];

// Adds the ids of the conversation to the list.  With `answer` it ends where the assistant begins.
// *replaced, if not NULL, counts the ill-formed pieces of UTF-8 that were read as U+FFFD.
bool chat_encode(const tokenizer *t, const chat_message *messages, size_t count, bool answer,
                 token_list *ids, size_t *replaced, llm_error *error);

// Whether the answer ends with this id: <|im_end|> or the end of the text.
bool chat_ends(const tokenizer *t, int32_t id);

#endif
