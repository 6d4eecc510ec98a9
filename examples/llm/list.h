// SPDX-License-Identifier: Apache-2.0
//
// Growing lists: one function that makes room, and the two lists that travel between the parts of
// the language-model example.  A zeroed list is empty.
#ifndef BOLIDE_LLM_LIST_H
#define BOLIDE_LLM_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

// Makes room for `extra` items after the `count` in use, at least doubling.  *items stays valid on
// failure.
bool llm_grow(void **items, size_t count, size_t extra, size_t *capacity, size_t item_bytes,
              llm_error *error);

// Token ids.
typedef struct {
    int32_t *ids;
    size_t count;
    size_t capacity;
} token_list;

bool token_list_add(token_list *list, int32_t id, llm_error *error);
void token_list_free(token_list *list);

// Bytes of text; not closed by a zero.
typedef struct {
    char *bytes;
    size_t count;
    size_t capacity;
} text_list;

bool text_list_add(text_list *list, const char *bytes, size_t count, llm_error *error);
void text_list_free(text_list *list);

#endif
