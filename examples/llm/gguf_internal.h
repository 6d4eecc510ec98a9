// SPDX-License-Identifier: Apache-2.0
//
// What the two halves of the GGUF reader share: gguf.c walks and checks a file, gguf_access.c looks
// things up in one that was checked.
#ifndef BOLIDE_LLM_GGUF_INTERNAL_H
#define BOLIDE_LLM_GGUF_INTERNAL_H

#include "gguf.h"

// A place in the file and the end that it must not pass.
typedef struct {
    const unsigned char *at;
    const unsigned char *end;
    llm_error *error;
} gguf_reader;

// A little-endian number of 1 to 8 bytes.
uint64_t gguf_load(const unsigned char *at, size_t bytes);

// Bytes of one value of that kind; 0 where they vary.
size_t gguf_kind_bytes(gguf_kind kind);

// Order of two table entries, whose first member is a gguf_string.
int gguf_compare_entries(const void *a, const void *b);

// Reads the head of an array into `value` and steps over its elements.
bool gguf_skip_array(gguf_reader *r, gguf_value *value, int depth);

#endif
