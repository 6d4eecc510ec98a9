// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: bytes are opened as a GGUF file; if that succeeds, everything the reader hands out
// is read, a tokenizer is made of it and used, and where the file is a model, it writes two tokens.
// A status or a result is expected, never a crash.
//
// Built with clang's -fsanitize=fuzzer it is driven by libFuzzer.  Built with FUZZ_STANDALONE it
// has a main of its own, which mutates small valid files: with any compiler, under any sanitizer.
//
//     fuzz_gguf [ROUNDS [SEED]]
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/llm/chat.h"
#include "../../examples/llm/engine.h"
#include "../../examples/llm/gguf.h"
#include "../../examples/llm/tokenizer.h"

// What was read, added up and kept, so that no read is optimised away.
static volatile uint64_t total;

static void read_string(gguf_string s) {
    for (size_t i = 0; i < s.length; i++) {
        total += (unsigned char)s.data[i];
    }
}

static void read_array(const gguf_value *array) {
    gguf_cursor cursor = gguf_begin(array);
    gguf_string string;
    gguf_value nested;
    int64_t integer;
    double real;
    while (gguf_next_int(&cursor, &integer)) {
        total += (uint64_t)integer;
    }
    while (gguf_next_float(&cursor, &real)) {
        total += real > 0;
    }
    while (gguf_next_string(&cursor, &string)) {
        read_string(string);
    }
    while (gguf_next_array(&cursor, &nested)) {
        read_array(&nested);
    }
    if (array->kind == GGUF_ARRAY && cursor.index != array->count) {
        abort();
    }
}

static void read_value(const gguf_file *file, const gguf_value *value) {
    char key[128];
    llm_error error;
    uint64_t integer;
    double real;
    bool flag;
    gguf_string string;
    read_string(value->key);
    read_array(value);
    if (value->key.length >= sizeof key || memchr(value->key.data, 0, value->key.length) != NULL) {
        return;
    }
    memcpy(key, value->key.data, value->key.length);
    key[value->key.length] = '\0';
    if (gguf_find(file, key) != value) {
        abort();
    }
    total += gguf_get_uint(file, key, &integer, &error) + gguf_get_bool(file, key, &flag, &error);
    total += gguf_get_float(file, key, &real, &error);
    if (gguf_get_string(file, key, &string, &error)) {
        read_string(string);
    }
}

static void use_tokenizer(const gguf_file *file) {
    static const char text[] = "abc ab 1 a\xff\xe2\x82 b'll  \n";
    llm_error error;
    tokenizer *t = tokenizer_create(file, &error);
    if (t == NULL) {
        return;
    }
    token_list ids = {.count = 0};
    text_list out = {.count = 0};
    text_stream stream = {.n_held = 0};
    chat_message message = {"user", text, sizeof text};
    if (!chat_encode(t, &message, 1, true, &ids, NULL, &error)) {
        ids.count = 0;
        total += tokenizer_encode(t, text, sizeof text, &ids, NULL, &error);
    }
    for (size_t i = 0; i < ids.count; i++) {
        total += text_stream_put(&stream, tokenizer_piece(t, ids.ids[i]), &out, &error);
    }
    total += text_stream_end(&stream, &out, &error);
    text_list_free(&out);
    token_list_free(&ids);
    tokenizer_destroy(t);
}

static bool count_token(void *arg, int64_t request, int32_t token) {
    (void)arg;
    total += (uint64_t)request + (uint64_t)token;
    return true;
}

// Takes the file over.
static void use_model(gguf_file file) {
    static const int32_t prompt[] = {0, 1, 2};
    const llm_settings settings = {
        .page_size = 4, .max_tokens = 8, .max_requests = 1, .threads = 1};
    const llm_sampler sampler = {.temperature = 1, .top_p = 0.9, .top_k = 3};
    llm_error error;
    llm_model model;
    if (!llm_model_of(&model, file, &error)) {
        return;
    }
    llm_engine *e = llm_engine_create(&model, &settings, &error);
    bool busy = e != NULL && llm_engine_add(e, prompt, 3, 2, &sampler, &error) >= 0;
    while (busy && llm_engine_step(e, count_token, NULL, &busy, &error)) {
    }
    llm_engine_destroy(e);
    llm_model_close(&model);
}

// The name is libFuzzer's.
// NOLINTNEXTLINE(readability-identifier-naming)
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// NOLINTNEXTLINE(readability-identifier-naming)
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gguf_file file;
    llm_error error = {""};
    if (!gguf_open_memory(&file, data, size, &error)) {
        if (error.text[0] == '\0') {
            abort();
        }
        return 0;
    }
    for (size_t i = 0; i < file.n_values; i++) {
        read_value(&file, &file.values[i]);
    }
    for (size_t i = 0; i < file.n_tensors; i++) {
        const gguf_tensor *t = &file.tensors[i];
        read_string(t->name);
        total += t->data[0];
        total += t->data[t->bytes - 1];
    }
    use_tokenizer(&file);
    use_model(file);
    return 0;
}

#ifdef FUZZ_STANDALONE
#include <stdio.h>

#include "../llm/gguf_builder.h"
#include "../llm/harness.h"

// Overwrites a few places of the file; now and then with a number that overflows things.
static void mutate(llm_random *random, unsigned char *bytes, size_t size) {
    static const uint64_t evil[] = {0,          1,         0x7fffffff, 0xffffffff,
                                    1ull << 60, INT64_MAX, UINT64_MAX};
    for (uint64_t n = 1 + llm_random_below(random, 4); n > 0; n--) {
        size_t at = (size_t)llm_random_below(random, size);
        size_t width = (size_t)1 << llm_random_below(random, 4);
        uint64_t value = llm_random_next(random);
        if (llm_random_below(random, 2) == 0) {
            value = evil[llm_random_below(random, sizeof evil / sizeof evil[0])];
        }
        for (size_t i = 0; i < width && at + i < size; i++) {
            bytes[at + i] = (unsigned char)(value >> (8 * i));
        }
    }
}

int main(int argc, char **argv) {
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    llm_random random = {argc > 2 ? strtoull(argv[2], NULL, 10) : 1};
    gguf_builder samples[2] = {{.size = 0}, {.size = 0}};
    build_sample(&samples[0]);
    build_llama(&samples[1], &(build_llama_sizes){1, 32, 32, 2, 1, GGUF_Q4_1, 1, 0, 0});
    for (unsigned long i = 0; i < rounds; i++) {
        const gguf_builder sample = samples[i % 2];
        // A copy of the exact size lets the address sanitizer see a read past the end.
        size_t size = sample.size;
        if (llm_random_below(&random, 4) == 0) {
            size = (size_t)llm_random_below(&random, sample.size + 1);
        }
        unsigned char *bytes = malloc(size != 0 ? size : 1);
        if (bytes == NULL) {
            return 1;
        }
        memcpy(bytes, sample.bytes, size);
        if (size != 0 && i > 1) {
            mutate(&random, bytes, size);
        }
        LLVMFuzzerTestOneInput(bytes, size);
        free(bytes);
    }
    build_free(&samples[0]);
    build_free(&samples[1]);
    printf("1 passed, 0 failed, 0 skipped\n");
    return 0;
}
#endif
