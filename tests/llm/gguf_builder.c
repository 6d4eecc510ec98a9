// SPDX-License-Identifier: Apache-2.0
//
// See gguf_builder.h.
#include "gguf_builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/llm/gguf.h"
#include "harness.h"

void build_bytes(gguf_builder *b, const void *bytes, size_t size) {
    if (size > b->capacity - b->size) {
        b->capacity = (b->size + size) * 2;
        b->bytes = realloc(b->bytes, b->capacity);
        if (b->bytes == NULL) {
            fputs("out of memory\n", stderr);
            exit(1);
        }
    }
    if (size != 0) {
        memcpy(b->bytes + b->size, bytes, size);
        b->size += size;
    }
}

void build_u8(gguf_builder *b, uint8_t value) {
    build_bytes(b, &value, 1);
}

void build_u64(gguf_builder *b, uint64_t value) {
    for (int i = 0; i < 8; i++) {
        build_u8(b, (uint8_t)(value >> (8 * i)));
    }
}

void build_u32(gguf_builder *b, uint32_t value) {
    for (int i = 0; i < 4; i++) {
        build_u8(b, (uint8_t)(value >> (8 * i)));
    }
}

void build_f32(gguf_builder *b, float value) {
    uint32_t raw;
    memcpy(&raw, &value, sizeof raw);
    build_u32(b, raw);
}

void build_string(gguf_builder *b, const char *text) {
    build_u64(b, strlen(text));
    build_bytes(b, text, strlen(text));
}

void build_head(gguf_builder *b, uint64_t n_tensors, uint64_t n_values) {
    build_bytes(b, "GGUF", 4);
    build_u32(b, 3);
    build_u64(b, n_tensors);
    build_u64(b, n_values);
}

void build_key(gguf_builder *b, const char *key, uint32_t kind) {
    build_string(b, key);
    build_u32(b, kind);
}

void build_key_u32(gguf_builder *b, const char *key, uint32_t value) {
    build_key(b, key, GGUF_UINT32);
    build_u32(b, value);
}

void build_key_string(gguf_builder *b, const char *key, const char *value) {
    build_key(b, key, GGUF_STRING);
    build_string(b, value);
}

void build_key_strings(gguf_builder *b, const char *key, const char *const *values, size_t n) {
    build_key(b, key, GGUF_ARRAY);
    build_u32(b, GGUF_STRING);
    build_u64(b, n);
    for (size_t i = 0; i < n; i++) {
        build_string(b, values[i]);
    }
}

void build_tensor(gguf_builder *b, const char *name, uint64_t first, uint64_t second, uint32_t type,
                  uint64_t offset) {
    build_string(b, name);
    build_u32(b, second == 0 ? 1 : 2);
    build_u64(b, first);
    if (second != 0) {
        build_u64(b, second);
    }
    build_u32(b, type);
    build_u64(b, offset);
}

void build_pad(gguf_builder *b, size_t alignment) {
    while (b->size % alignment != 0) {
        build_u8(b, 0);
    }
}

static void build_scalars(gguf_builder *b) {
    build_key(b, "v.uint8", GGUF_UINT8);
    build_u8(b, 200);
    build_key(b, "v.int8", GGUF_INT8);
    build_u8(b, 0xfe);
    build_key(b, "v.uint16", GGUF_UINT16);
    build_bytes(b, "\x34\x12", 2);
    build_key(b, "v.int16", GGUF_INT16);
    build_bytes(b, "\xff\xff", 2);
    build_key_u32(b, "v.uint32", 4000000000u);
    build_key(b, "v.int32", GGUF_INT32);
    build_u32(b, (uint32_t)-7);
    build_key(b, "v.float32", GGUF_FLOAT32);
    build_f32(b, 1.5f);
    build_key(b, "v.bool", GGUF_BOOL);
    build_u8(b, 1);
    build_key_string(b, "v.string", "text");
    build_key(b, "v.uint64", GGUF_UINT64);
    build_u64(b, 1ull << 40);
    build_key(b, "v.int64", GGUF_INT64);
    build_u64(b, (uint64_t)-9);
    build_key(b, "v.float64", GGUF_FLOAT64);
    build_u64(b, 0x4004000000000000u); // 2.5
}

static void build_arrays(gguf_builder *b) {
    build_key(b, "a.int32", GGUF_ARRAY);
    build_u32(b, GGUF_INT32);
    build_u64(b, 3);
    for (int i = -1; i < 2; i++) {
        build_u32(b, (uint32_t)i);
    }
    build_key(b, "a.empty", GGUF_ARRAY);
    build_u32(b, GGUF_STRING);
    build_u64(b, 0);
    build_key(b, "a.nested", GGUF_ARRAY);
    build_u32(b, GGUF_ARRAY);
    build_u64(b, 2);
    build_u32(b, GGUF_STRING);
    build_u64(b, 2);
    build_string(b, "x");
    build_string(b, "yz");
    build_u32(b, GGUF_FLOAT32);
    build_u64(b, 1);
    build_f32(b, 0.25f);
}

// Single letters, two merges and one control token.
static void build_tokenizer(gguf_builder *b) {
    static const char *const tokens[] = {"<|im_end|>", "a", "b", "c", "\xc4\xa0", "ab", "abc", "1"};
    static const char *const merges[] = {"a b", "ab c"};
    build_key_string(b, "tokenizer.ggml.model", "gpt2");
    build_key_string(b, "tokenizer.ggml.pre", "smollm");
    build_key_strings(b, "tokenizer.ggml.tokens", tokens, 8);
    build_key_strings(b, "tokenizer.ggml.merges", merges, 2);
    build_key(b, "tokenizer.ggml.token_type", GGUF_ARRAY);
    build_u32(b, GGUF_INT32);
    build_u64(b, 8);
    for (int i = 0; i < 8; i++) {
        build_u32(b, i == 0 ? 3 : 1);
    }
    build_key_u32(b, "tokenizer.ggml.eos_token_id", 0);
}

void build_sample(gguf_builder *b) {
    build_head(b, 6, 12 + 3 + 6 + 1);
    build_key_u32(b, "general.alignment", 64);
    build_scalars(b);
    build_arrays(b);
    build_tokenizer(b);
    build_tensor(b, "t.f32", 3, 0, GGUF_F32, 0);      // 12 bytes
    build_tensor(b, "t.f16", 5, 2, GGUF_F16, 64);     // 20
    build_tensor(b, "t.bf16", 4, 0, GGUF_BF16, 128);  // 8
    build_tensor(b, "t.q4_0", 64, 1, GGUF_Q4_0, 192); // 36
    build_tensor(b, "t.q4_1", 32, 2, GGUF_Q4_1, 256); // 40
    build_tensor(b, "t.q8_0", 32, 3, GGUF_Q8_0, 320); // 102
    build_pad(b, 64);
    for (int i = 0; i < 320 + 102; i++) {
        build_u8(b, (uint8_t)i);
    }
}

// ---- a whole model -------------------------------------------------------------------------

// Two passes write the model: the first the heads of the tensors, the second their data.
typedef struct {
    gguf_builder *b;
    const build_llama_sizes *sizes;
    bool data;
    uint64_t offset;
    llm_random random;
} llama_writer;

static double uniform(llama_writer *w) {
    return (double)llm_random_below(&w->random, 2001) / 1000 - 1;
}

// The upper half of a float32: bfloat16, cut off.
static void build_bf16(gguf_builder *b, double value) {
    float single = (float)value;
    uint32_t raw;
    memcpy(&raw, &single, sizeof raw);
    build_u8(b, (uint8_t)(raw >> 16));
    build_u8(b, (uint8_t)(raw >> 24));
}

// A float16 between 2^power and 2^(power + 1), of either sign unless it has to be positive.
static void build_f16(llama_writer *w, int power, bool positive) {
    uint64_t random = llm_random_next(&w->random);
    uint64_t sign = positive ? 0 : random >> 10 & 1;
    uint64_t raw = sign << 15 | (uint64_t)(power + 15) << 10 | (random & 1023);
    build_u8(w->b, (uint8_t)raw);
    build_u8(w->b, (uint8_t)(raw >> 8));
}

static void build_bytes_at_random(llama_writer *w, int n) {
    for (int i = 0; i < n; i++) {
        build_u8(w->b, (uint8_t)llm_random_next(&w->random));
    }
}

// One block of weights, of 1 or 32 elements.
static void build_weights(llama_writer *w, uint32_t type) {
    switch (type) {
    case GGUF_F32:
        build_f32(w->b, (float)(uniform(w) / 4));
        break;
    case GGUF_F16:
        build_f16(w, -3, false);
        break;
    case GGUF_BF16:
        build_bf16(w->b, uniform(w) / 4);
        break;
    case GGUF_Q4_1:
        build_f16(w, -5, true);
        build_f16(w, -2, false);
        build_bytes_at_random(w, 16);
        break;
    case GGUF_Q4_0:
        build_f16(w, -5, true);
        build_bytes_at_random(w, 16);
        break;
    default: // Q8_0, whose values are up to 127 times the scale
        build_bytes(w->b, "\0\x12", 2);
        build_bytes_at_random(w, 32);
    }
}

static void write_tensor(llama_writer *w, const char *name, uint32_t columns, uint32_t rows,
                         uint32_t type) {
    size_t elements, bytes;
    gguf_type_block((gguf_type)type, &elements, &bytes);
    uint64_t blocks = (uint64_t)columns * (rows == 0 ? 1 : rows) / elements;
    if (w->data) {
        build_pad(w->b, 32);
        for (uint64_t i = 0; i < blocks; i++) {
            build_weights(w, type);
        }
    } else {
        build_tensor(w->b, name, columns, rows, type, w->offset);
        w->offset = (w->offset + blocks * bytes + 31) / 32 * 32;
    }
}

static void write_tensors(llama_writer *w) {
    const build_llama_sizes *s = w->sizes;
    uint32_t kv = s->width / s->h_q * s->h_kv;
    const struct {
        const char *name;
        uint32_t columns, rows, type;
    } parts[] = {
        {"attn_norm", s->width, 0, GGUF_F32},
        {"attn_q", s->width, s->width, s->type},
        {"attn_k", s->width, kv, s->type},
        {"attn_v", s->width, kv, s->type},
        {"attn_output", s->width, s->width, s->type},
        {"ffn_norm", s->width, 0, GGUF_F32},
        {"ffn_gate", s->width, s->hidden, s->type},
        {"ffn_up", s->width, s->hidden, s->type},
        {"ffn_down", s->hidden, s->width, s->type},
    };
    const uint32_t vocab = s->vocab ? s->vocab : 8;
    write_tensor(w, "token_embd.weight", s->width, vocab, s->type);
    write_tensor(w, "output_norm.weight", s->width, 0, GGUF_F32);
    if (s->output) {
        write_tensor(w, "output.weight", s->width, vocab, s->type);
    }
    for (uint32_t block = 0; block < s->blocks; block++) {
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s.weight", block, parts[i].name);
            write_tensor(w, name, parts[i].columns, parts[i].rows, parts[i].type);
        }
    }
}

void build_llama(gguf_builder *b, const build_llama_sizes *s) {
    llama_writer w = {.b = b, .sizes = s, .random = {s->seed}};
    build_head(b, 2 + (s->output != 0) + 9 * (uint64_t)s->blocks, 10 + 6);
    build_key_string(b, "general.architecture", "llama");
    build_key_u32(b, "llama.block_count", s->blocks);
    build_key_u32(b, "llama.context_length", 512);
    build_key_u32(b, "llama.embedding_length", s->width);
    build_key_u32(b, "llama.feed_forward_length", s->hidden);
    build_key_u32(b, "llama.attention.head_count", s->h_q);
    build_key_u32(b, "llama.attention.head_count_kv", s->h_kv);
    build_key_u32(b, "llama.rope.dimension_count", s->width / s->h_q);
    build_key(b, "llama.rope.freq_base", GGUF_FLOAT32);
    build_f32(b, 10000);
    build_key(b, "llama.attention.layer_norm_rms_epsilon", GGUF_FLOAT32);
    build_f32(b, 1e-5f);
    build_tokenizer(b);
    write_tensors(&w);
    build_pad(b, 32);
    w.data = true;
    write_tensors(&w);
}

void build_free(gguf_builder *b) {
    free(b->bytes);
    *b = (gguf_builder){.size = 0};
}
