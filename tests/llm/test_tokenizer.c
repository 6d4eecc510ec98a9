// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer, chat template and streamed text.  Equality with the package `tokenizers` on thousands
// of strings is check_tokenizer.py's part; here are the properties that need no package: bad
// vocabularies are refused, decoding undoes encoding, control tokens cannot be typed, characters
// are never cut, and the cost of one long word grows like n log n.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../examples/llm/chat.h"
#include "../../examples/llm/unicode.h"
#include "gguf_builder.h"
#include "harness.h"

// The tokenizer of the sample file that the builder writes.
static tokenizer *sample(void) {
    gguf_builder b = {.size = 0};
    gguf_file file;
    llm_error error;
    build_sample(&b);
    tokenizer *t = NULL;
    if (gguf_open_memory(&file, b.bytes, b.size, &error)) {
        t = tokenizer_create(&file, &error);
        gguf_close(&file);
    }
    CHECK_MSG(t != NULL, "%s", error.text);
    build_free(&b);
    return t;
}

static tokenizer *of_model(void) {
    const char *path = llm_model_path();
    gguf_file file;
    llm_error error;
    tokenizer *t = NULL;
    if (path == NULL) {
        return NULL;
    }
    if (gguf_open(&file, path, &error)) {
        t = tokenizer_create(&file, &error);
        gguf_close(&file);
    }
    CHECK_MSG(t != NULL, "%s", error.text);
    return t;
}

static void expect_ids(const tokenizer *t, const char *text, const int32_t *ids, size_t n) {
    token_list list = {.count = 0};
    llm_error error;
    CHECK(tokenizer_encode(t, text, strlen(text), &list, NULL, &error));
    CHECK_MSG(list.count == n && (n == 0 || memcmp(list.ids, ids, n * sizeof *ids) == 0),
              "'%s': expected %zu ids, got %zu or others", text, n, list.count);
    token_list_free(&list);
}

static void merges_by_rank(void) {
    tokenizer *t = sample();
    if (t == NULL) {
        return;
    }
    // 1 a, 2 b, 3 c, 4 blank, 5 ab, 6 abc, 7 the digit one; z has no token and is left out.
    expect_ids(t, "abc", (int32_t[]){6}, 1);
    expect_ids(t, "aabcb", (int32_t[]){1, 6, 2}, 3);
    expect_ids(t, "ab abc", (int32_t[]){5, 4, 6}, 3);
    expect_ids(t, "ab1c", (int32_t[]){5, 7, 3}, 3);
    expect_ids(t, "azb", (int32_t[]){5}, 1);
    expect_ids(t, "zzz", NULL, 0);
    expect_ids(t, "", NULL, 0);
    CHECK(tokenizer_count(t) == 8 && tokenizer_eos(t) == 0 && tokenizer_bos(t) == -1);
    CHECK(gguf_string_is(tokenizer_piece(t, 4), " "));
    CHECK(gguf_string_is(tokenizer_piece(t, 6), "abc"));
    CHECK(tokenizer_piece(t, 8).length == 0 && tokenizer_piece(t, -1).length == 0);
    CHECK(tokenizer_find_control(t, "<|im_end|>") == 0 && tokenizer_find_control(t, "abc") == -1);
    tokenizer_destroy(t);
}

// A file whose tokenizer differs from the good one in one entry.
typedef struct {
    const char *model, *pre;
    const char *const *tokens;
    size_t n_tokens, n_types;
    const char *merge;
    uint32_t eos;
    const char *expected; // in the message
} bad_file;

static void expect_bad(const bad_file *bad) {
    gguf_builder b = {.size = 0};
    gguf_file file;
    llm_error error = {""};
    build_head(&b, 0, 6);
    build_key_string(&b, "tokenizer.ggml.model", bad->model);
    build_key_string(&b, "tokenizer.ggml.pre", bad->pre);
    build_key_strings(&b, "tokenizer.ggml.tokens", bad->tokens, bad->n_tokens);
    build_key(&b, "tokenizer.ggml.token_type", GGUF_ARRAY);
    build_u32(&b, GGUF_INT32);
    build_u64(&b, bad->n_types);
    for (size_t i = 0; i < bad->n_types; i++) {
        build_u32(&b, 1);
    }
    build_key_strings(&b, "tokenizer.ggml.merges", &bad->merge, 1);
    build_key_u32(&b, "tokenizer.ggml.eos_token_id", bad->eos);
    CHECK_MSG(gguf_open_memory(&file, b.bytes, b.size, &error), "%s", error.text);
    tokenizer *t = tokenizer_create(&file, &error);
    CHECK_MSG(t == NULL, "accepted although '%s' was expected", bad->expected);
    CHECK_MSG(strstr(error.text, bad->expected) != NULL, "expected '%s' in '%s'", bad->expected,
              error.text);
    tokenizer_destroy(t);
    gguf_close(&file);
    build_free(&b);
}

static void refuses_bad_vocabularies(void) {
    static const char *const good[] = {"a", "b", "ab"};
    static const char *const twice[] = {"a", "ab", "a"};
    static const bad_file bad[] = {
        {"llama", "smollm", good, 3, 3, "a b", 0, "expected gpt2; got llama"},
        {"gpt2", "qwen2", good, 3, 3, "a b", 0, "expected smollm; got qwen2"},
        {"gpt2", "smollm", twice, 3, 3, "a b", 0, "got 0 and 2 alike"},
        {"gpt2", "smollm", good, 0, 0, "a b", 0, "count: expected 1 to"},
        {"gpt2", "smollm", good, 3, 2, "a b", 0, "expected an array of 3 integers"},
        {"gpt2", "smollm", good, 3, 3, "ab", 0, "merge 0: expected two tokens; got 'ab'"},
        {"gpt2", "smollm", good, 3, 3, " b", 0, "expected two tokens"},
        {"gpt2", "smollm", good, 3, 3, "a ", 0, "expected two tokens"},
        {"gpt2", "smollm", good, 3, 3, "", 0, "expected two tokens"},
        {"gpt2", "smollm", good, 3, 3, "b a", 0, "expected tokens of the vocabulary"},
        {"gpt2", "smollm", good, 3, 3, "a c", 0, "expected tokens of the vocabulary"},
        {"gpt2", "smollm", good, 3, 3, "a b", 3, "eos_token_id': expected less than 3; got 3"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        expect_bad(&bad[i]);
    }
}

// Random text of whole characters, most of them rare.
static void random_text(llm_random *random, text_list *text) {
    llm_error error;
    size_t n = llm_random_below(random, 60);
    text->count = 0;
    for (size_t i = 0; i < n; i++) {
        static const char usual[] = "  \n\t'sterdll09AZaz,.<|im_end|>";
        char out[3];
        uint32_t code = 0x80 + (uint32_t)llm_random_below(random, 0xd780);
        size_t size = utf8_write(out, code);
        if (llm_random_below(random, 2) == 0) {
            out[0] = usual[llm_random_below(random, sizeof usual - 1)];
            size = 1;
        }
        CHECK(text_list_add(text, out, size, &error));
    }
}

static void decoding_undoes_encoding(void) {
    tokenizer *t = of_model();
    llm_random random = {(uint64_t)time(NULL)};
    uint64_t seed = random.state;
    text_list text = {.count = 0}, back = {.count = 0};
    token_list ids = {.count = 0};
    llm_error error;
    for (int round = 0; t != NULL && round < 500; round++) {
        text_stream stream = {.n_held = 0};
        random_text(&random, &text);
        ids.count = back.count = 0;
        CHECK(tokenizer_encode(t, text.bytes, text.count, &ids, NULL, &error));
        for (size_t i = 0; i < ids.count; i++) {
            CHECK(!tokenizer_is_control(t, ids.ids[i]));
            CHECK(text_stream_put(&stream, tokenizer_piece(t, ids.ids[i]), &back, &error));
        }
        CHECK(text_stream_end(&stream, &back, &error));
        CHECK_MSG(back.count == text.count &&
                      (text.count == 0 || memcmp(back.bytes, text.bytes, text.count) == 0),
                  "round %d, seed %llu: text came back changed", round, (unsigned long long)seed);
    }
    token_list_free(&ids);
    text_list_free(&text);
    text_list_free(&back);
    tokenizer_destroy(t);
}

static void control_tokens_cannot_be_typed(void) {
    static const char text[] = "<|im_end|><|im_start|>system<|endoftext|>";
    tokenizer *t = of_model();
    token_list ids = {.count = 0};
    llm_error error;
    if (t == NULL) {
        return;
    }
    CHECK(tokenizer_encode(t, text, strlen(text), &ids, NULL, &error));
    CHECK(ids.count > 3);
    for (size_t i = 0; i < ids.count; i++) {
        CHECK(!tokenizer_is_control(t, ids.ids[i]));
    }
    token_list_free(&ids);
    tokenizer_destroy(t);
}

static void ill_formed_text_is_replaced(void) {
    static const struct {
        const char *text;
        size_t replaced;
        const char *same_as;
    } cases[] = {
        {"a\xff z", 1, "a\ufffd z"},
        {"\xe2\x82", 1, "\ufffd"},                 // cut at the end
        {"\xe2\x82z", 1, "\ufffdz"},               // cut in the middle
        {"\xc0\xaf", 2, "\ufffd\ufffd"},           // overlong
        {"\xed\xa0\x80", 3, "\ufffd\ufffd\ufffd"}, // surrogate
        {"\xf4\x90\x80\x80", 4, "\ufffd\ufffd\ufffd\ufffd"},
        {"\xf0\x9f\x98 ok", 1, "\ufffd ok"},
    };
    tokenizer *t = of_model();
    for (size_t i = 0; t != NULL && i < sizeof cases / sizeof cases[0]; i++) {
        token_list got = {.count = 0}, expected = {.count = 0};
        llm_error error;
        size_t replaced = 0;
        CHECK(tokenizer_encode(t, cases[i].text, strlen(cases[i].text), &got, &replaced, &error));
        CHECK_MSG(replaced == cases[i].replaced, "case %zu: %zu replaced", i, replaced);
        CHECK(tokenizer_encode(t, cases[i].same_as, strlen(cases[i].same_as), &expected, &replaced,
                               &error));
        CHECK(replaced == 0 && got.count == expected.count &&
              memcmp(got.ids, expected.ids, got.count * sizeof *got.ids) == 0);
        token_list_free(&got);
        token_list_free(&expected);
    }
    tokenizer_destroy(t);
}

static double seconds_for(const tokenizer *t, size_t n) {
    char *text = malloc(n);
    token_list ids = {.count = 0};
    llm_error error;
    CHECK(text != NULL);
    if (text == NULL) {
        return 0;
    }
    llm_random random = {7};
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)('a' + llm_random_below(&random, 26));
    }
    clock_t start = clock();
    CHECK(tokenizer_encode(t, text, n, &ids, NULL, &error));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    token_list_free(&ids);
    free(text);
    return seconds;
}

// Sixteen times the text may cost sixteen times and a little; a quadratic cost would be 256 times.
static void long_words_are_not_quadratic(void) {
    tokenizer *t = of_model();
    if (t == NULL) {
        return;
    }
    double small = seconds_for(t, 1 << 15);
    double large = seconds_for(t, 1 << 19);
    CHECK_MSG(large < 80 * small + 0.05, "2^15 letters: %g s, 2^19: %g s", small, large);
    tokenizer_destroy(t);
}

static void put(text_stream *stream, const char *bytes, text_list *out) {
    llm_error error;
    CHECK(text_stream_put(stream, (gguf_string){bytes, strlen(bytes)}, out, &error));
}

static void streams_hold_back_half_characters(void) {
    text_stream stream = {.n_held = 0};
    text_list out = {.count = 0};
    llm_error error;
    put(&stream, "a\xf0\x9f", &out);
    CHECK(out.count == 1);
    put(&stream, "\x98", &out);
    CHECK(out.count == 1);
    put(&stream, "\x80z", &out);
    CHECK(out.count == 6 && memcmp(out.bytes, "a\xf0\x9f\x98\x80z", 6) == 0);
    out.count = 0;
    put(&stream, "\xe2\x82", &out); // spoiled by what follows
    put(&stream, "\xe2\x82\xac\x80!", &out);
    CHECK(out.count == 10 && memcmp(out.bytes, "\ufffd\u20ac\ufffd!", 10) == 0);
    out.count = 0;
    put(&stream, "\xe2", &out);
    CHECK(out.count == 0);
    CHECK(text_stream_end(&stream, &out, &error) && out.count == 3);
    CHECK(text_stream_end(&stream, &out, &error) && out.count == 3);
    text_list_free(&out);
}

// The ids were made with the package `tokenizers` from the rendered template, with <|im_start|> and
// <|im_end|> as special tokens.
static void chat_follows_the_template(void) {
    static const int32_t with_default[] = {
        1,   9690, 198, 2683, 359,   253,  5356, 5646, 11173, 3365, 3511, 308,  34519,
        28,  7018, 411, 407,  19712, 8182, 2,    198,  1,     4093, 198,  1780, 314,
        216, 34,   27,  34,   47,    2,    198,  1,    520,   9531, 1116, 36,   30,
        2,   198,  1,   4093, 1116,  4896, 47,   2,    198,   1,    520,  9531, 198};
    static const int32_t with_own[] = {1,   9690, 198,  6077, 5453,  30, 2,
                                       198, 1,    4093, 198,  26843, 2,  198};
    static const chat_message talk[] = {
        {"user", "What is 2+2?", 12}, {"assistant", "\n4.", 3}, {"user", "\n Why?", 6}};
    static const chat_message own[] = {{"system", "Be brief.", 9}, {"user", "Hi", 2}};
    static const chat_message wrong[] = {{"tool", "x", 1}};
    tokenizer *t = of_model();
    token_list ids = {.count = 0};
    llm_error error;
    if (t == NULL) {
        return;
    }
    CHECK(chat_encode(t, talk, 3, true, &ids, NULL, &error));
    CHECK(ids.count == sizeof with_default / sizeof with_default[0] &&
          memcmp(ids.ids, with_default, sizeof with_default) == 0);
    ids.count = 0;
    CHECK(chat_encode(t, own, 2, false, &ids, NULL, &error));
    CHECK(ids.count == sizeof with_own / sizeof with_own[0] &&
          memcmp(ids.ids, with_own, sizeof with_own) == 0);
    CHECK(!chat_encode(t, wrong, 1, true, &ids, NULL, &error));
    CHECK(strstr(error.text, "role: expected system, user or assistant; got tool") != NULL);
    CHECK(chat_ends(t, 2) && !chat_ends(t, 1) && !chat_ends(t, 198));
    token_list_free(&ids);
    tokenizer_destroy(t);
}

static void chat_needs_its_control_tokens(void) {
    tokenizer *t = sample();
    token_list ids = {.count = 0};
    llm_error error;
    chat_message hi = {"user", "a", 1};
    CHECK(t != NULL && !chat_encode(t, &hi, 1, true, &ids, NULL, &error));
    CHECK(strstr(error.text, "no ChatML model") != NULL);
    token_list_free(&ids);
    tokenizer_destroy(t);
}

int main(int argc, char **argv) {
    static const llm_test tests[] = {
        LLM_TEST(merges_by_rank),
        LLM_TEST(refuses_bad_vocabularies),
        LLM_TEST(decoding_undoes_encoding),
        LLM_TEST(control_tokens_cannot_be_typed),
        LLM_TEST(ill_formed_text_is_replaced),
        LLM_TEST(long_words_are_not_quadratic),
        LLM_TEST(streams_hold_back_half_characters),
        LLM_TEST(chat_follows_the_template),
        LLM_TEST(chat_needs_its_control_tokens),
    };
    return llm_run_tests(tests, sizeof tests / sizeof tests[0], argc, argv);
}
