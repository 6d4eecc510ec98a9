// SPDX-License-Identifier: Apache-2.0
//
// The reference itself: a text in one call and token by token gives the same logits bit for bit,
// for weights of every type; the logits depend on the order of the tokens; and with the real model
// a known question has its known answer, which a wrong RoPE layout or head grouping would not
// survive.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/llm/chat.h"
#include "gguf_builder.h"
#include "harness.h"
#include "reference.h"

enum { VOCAB = 8, TOKENS = 7 };

static void check_steps(reference *r, const char *type) {
    static const int32_t ids[TOKENS] = {1, 5, 3, 3, 7, 0, 2};
    static const int32_t swapped[TOKENS] = {5, 1, 3, 3, 7, 0, 2};
    double whole[TOKENS * VOCAB], steps[TOKENS * VOCAB], other[VOCAB];
    llm_error error;
    CHECK(reference_vocab(r) == VOCAB);
    CHECK(reference_forward(r, ids, TOKENS, TOKENS, whole, &error));
    CHECK(!reference_forward(r, ids, 1, 1, other, &error)); // no room for one more
    reference_reset(r);
    for (size_t i = 0; i < TOKENS; i++) {
        CHECK(reference_forward(r, ids + i, 1, 1, steps + i * VOCAB, &error));
    }
    for (size_t i = 0; i < TOKENS * VOCAB; i++) {
        CHECK_MSG(whole[i] == steps[i], "%s: logit %zu: %g in one call, %g in steps", type, i,
                  whole[i], steps[i]);
    }
    reference_reset(r);
    CHECK(reference_forward(r, swapped, TOKENS, 1, other, &error));
    double *last = whole + (size_t)(TOKENS - 1) * VOCAB;
    double change = 0;
    for (size_t i = 0; i < VOCAB; i++) {
        CHECK_MSG(isfinite(last[i]), "%s: logit %zu is %g", type, i, last[i]);
        change = fmax(change, fabs(last[i] - other[i]));
    }
    CHECK_MSG(change > 1e-3, "%s: the order of tokens changes logits by %g only", type, change);
}

static void steps_equal_the_whole(void) {
    static const gguf_type types[] = {GGUF_F32,  GGUF_F16,  GGUF_BF16,
                                      GGUF_Q4_0, GGUF_Q4_1, GGUF_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        gguf_builder b = {.size = 0};
        gguf_file file;
        llm_error error = {""};
        build_llama(&b, &(build_llama_sizes){2, 64, 96, 4, 2, (uint32_t)types[i], 5, 0, 0});
        CHECK_MSG(gguf_open_memory(&file, b.bytes, b.size, &error), "%s", error.text);
        reference *r = reference_create(file.bytes, TOKENS, &error);
        CHECK_MSG(r != NULL, "%s", error.text);
        if (r != NULL) {
            check_steps(r, gguf_type_name(types[i]));
        }
        reference_destroy(r);
        gguf_close(&file);
        build_free(&b);
    }
}

// Answers greedily; false where something failed.
static bool answer(const gguf_file *file, const char *question, text_list *out, llm_error *error) {
    enum { LIMIT = 8 };
    chat_message message = {"user", question, strlen(question)};
    token_list ids = {.count = 0};
    tokenizer *t = tokenizer_create(file, error);
    bool ok = t != NULL && chat_encode(t, &message, 1, true, &ids, NULL, error);
    reference *r = ok ? reference_create(file->bytes, ids.count + LIMIT, error) : NULL;
    double *logits = r != NULL ? malloc(reference_vocab(r) * sizeof *logits) : NULL;
    ok = logits != NULL && reference_forward(r, ids.ids, ids.count, 1, logits, error);
    for (int i = 0; ok && i < LIMIT; i++) {
        int32_t top = 0;
        for (int32_t j = 1; j < tokenizer_count(t); j++) {
            top = logits[j] > logits[top] ? j : top;
        }
        gguf_string piece = tokenizer_piece(t, top);
        ok = text_list_add(out, piece.data, piece.length, error) &&
             reference_forward(r, &top, 1, 1, logits, error);
    }
    free(logits);
    reference_destroy(r);
    token_list_free(&ids);
    tokenizer_destroy(t);
    return ok;
}

static void knows_a_capital(void) {
    static const char expected[] = "The capital of France is Paris.<|im_end|>";
    const char *path = llm_model_path();
    text_list out = {.count = 0};
    llm_error error = {"out of memory"};
    gguf_file file;
    if (path == NULL) {
        return;
    }
    CHECK_MSG(gguf_open(&file, path, &error), "%s", error.text);
    CHECK_MSG(answer(&file, "What is the capital of France?", &out, &error), "%s", error.text);
    CHECK_MSG(out.count == strlen(expected) && memcmp(out.bytes, expected, out.count) == 0,
              "expected '%s'; got '%.*s'", expected, (int)out.count, out.bytes);
    text_list_free(&out);
    gguf_close(&file);
}

int main(int argc, char **argv) {
    static const llm_test tests[] = {
        LLM_TEST(steps_equal_the_whole),
        LLM_TEST(knows_a_capital),
    };
    return llm_run_tests(tests, sizeof tests / sizeof tests[0], argc, argv);
}
