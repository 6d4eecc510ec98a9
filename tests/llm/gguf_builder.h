// SPDX-License-Identifier: Apache-2.0
//
// Writes GGUF files into memory, for tests: the pieces of the format one by one, so that a test can
// also write them wrongly.  Out of memory ends the program; this is test code.
#ifndef BOLIDE_TESTS_LLM_GGUF_BUILDER_H
#define BOLIDE_TESTS_LLM_GGUF_BUILDER_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    unsigned char *bytes; // aligned for any type
    size_t size;
    size_t capacity;
} gguf_builder;

void build_bytes(gguf_builder *b, const void *bytes, size_t size);
void build_u8(gguf_builder *b, uint8_t value);
void build_u32(gguf_builder *b, uint32_t value);
void build_u64(gguf_builder *b, uint64_t value);
void build_f32(gguf_builder *b, float value);
void build_string(gguf_builder *b, const char *text);

// Magic, version 3 and the two counts.
void build_head(gguf_builder *b, uint64_t n_tensors, uint64_t n_values);

// Key and kind of an entry; the value follows.
void build_key(gguf_builder *b, const char *key, uint32_t kind);
void build_key_u32(gguf_builder *b, const char *key, uint32_t value);
void build_key_string(gguf_builder *b, const char *key, const char *value);
void build_key_strings(gguf_builder *b, const char *key, const char *const *values, size_t n);

// Head of a tensor of one or two dimensions (second 0: one).
void build_tensor(gguf_builder *b, const char *name, uint64_t first, uint64_t second, uint32_t type,
                  uint64_t offset);

// Zeros up to a multiple of `alignment`.
void build_pad(gguf_builder *b, size_t alignment);

// A small complete file: every kind of value, a tensor of every type, a tokenizer of a few words.
void build_sample(gguf_builder *b);

// A complete llama model of random weights, with the tokenizer of the sample.  Matrices have the
// given type.  Sizes must suit it: width and hidden multiples of 32.
typedef struct {
    uint32_t blocks, width, hidden, h_q, h_kv;
    uint32_t type;
    uint64_t seed;
    int output;     // 1: an output.weight of its own; 0: the embedding serves
    uint32_t vocab; // 0: the tokens of the sample; more of them have no text
} build_llama_sizes;

void build_llama(gguf_builder *b, const build_llama_sizes *sizes);

void build_free(gguf_builder *b);

#endif
