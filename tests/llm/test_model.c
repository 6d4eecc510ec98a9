// SPDX-License-Identifier: Apache-2.0
//
// The engine against the float64 reference: the real model on three texts, in all modes, and small
// models of random weights in every format.
#include <stdio.h>
#include <string.h>

#include "../../examples/llm/chat.h"
#include "compare.h"
#include "gguf_builder.h"
#include "harness.h"

enum { TEXTS = LLM_SLOW ? 1 : 3, POSITIONS = 32, MODES = 3 };

// A question with the beginning of its answer: all of the template is in the text.
static bool encode(const tokenizer *t, const char *question, const char *start, token_list *ids,
                   llm_error *error) {
    const chat_message message = {"user", question, strlen(question)};
    return chat_encode(t, &message, 1, true, ids, NULL, error) &&
           tokenizer_encode(t, start, strlen(start), ids, NULL, error);
}

static bool add_texts(const llm_model *model, const tokenizer *t,
                      const llm_settings settings[MODES], comparison c[MODES], llm_error *error) {
    static const char *const texts[][2] = {
        {"What is the capital of France?", "The capital of France is Paris."},
        {"Write a C function that adds 12 to a number.",
         "```c\nint add(int n) {\n    return n + 12;\n}\n```"},
        {"Why is the sky blue?", "Der Himmel ist blau, weil 日光 in der Luft gestreut wird; 空"},
    };
    bool ok = true;
    for (size_t i = 0; ok && i < TEXTS; i++) {
        token_list ids = {.count = 0};
        ok = encode(t, texts[i][0], texts[i][1], &ids, error) &&
             compare_logits(model, ids.ids, ids.count, ids.count - POSITIONS, settings, c, MODES,
                            error);
        token_list_free(&ids);
    }
    return ok;
}

// A mode with rounded activations says what it says within a hundredth of KL, and takes the same
// token wherever the reference is sure of one.
static void check_rounded(const comparison *c, const char *name) {
    const double mean = c->kl / (double)c->positions;
    CHECK_MSG(mean <= 0.01, "%s: mean KL is %g", name, mean);
    CHECK_MSG(c->mistaken == 0, "%s: %zu of %zu clear tokens differ", name, c->mistaken, c->clear);
    CHECK(c->clear > TEXTS * POSITIONS / 3);
    printf("%s: mean KL %.2g, at most %.2g, logits within %.2g\n", name, mean, c->worst_kl,
           c->largest);
}

// All modes on the real model.
static void check_modes(const llm_model *model, const tokenizer *t) {
    const llm_settings settings[MODES] = {{.page_size = 16, .exact = true},
                                          {.page_size = 16},
                                          {.page_size = 16, .compute = LLM_INT8}};
    comparison c[MODES] = {{.positions = 0}};
    llm_error error = {"out of memory"};
    CHECK_MSG(add_texts(model, t, settings, c, &error), "%s", error.text);
    for (size_t i = 0; i < MODES; i++)
        CHECK(c[i].positions == TEXTS * POSITIONS);
    CHECK_MSG(c[0].largest <= 1e-2, "exact: logits differ by %g", c[0].largest);
    printf("exact: logits within %.2g\n", c[0].largest);
    check_rounded(&c[1], "default");
    check_rounded(&c[2], "int8");
}

static void agrees_with_float64(void) {
    const char *path = llm_model_path();
    llm_error error = {""};
    llm_model model;
    if (path == NULL) {
        return;
    }
    bool open = llm_model_open(&model, path, &error);
    tokenizer *t = open ? tokenizer_create(&model.file, &error) : NULL;
    CHECK_MSG(t != NULL, "%s", error.text);
    if (t != NULL) {
        check_modes(&model, t);
    }
    tokenizer_destroy(t);
    if (open) {
        llm_model_close(&model);
    }
}

// Logits of random models spread widely, so the bounds are parts of their size.  f16 keys and
// values are what the default mode loses.
static void check_format(const gguf_builder *b, const char *name) {
    static const int32_t ids[] = {1, 5, 3, 3, 7, 0, 2, 6, 4, 4, 1, 2};
    const llm_settings settings[] = {{.page_size = 4, .exact = true}, {.page_size = 4}};
    comparison c[2] = {{.positions = 0}};
    llm_error error = {""};
    gguf_file file;
    llm_model model;
    bool ok =
        gguf_open_memory(&file, b->bytes, b->size, &error) && llm_model_of(&model, file, &error);
    CHECK_MSG(ok, "%s: %s", name, error.text);
    if (!ok) {
        return;
    }
    ok = compare_logits(&model, ids, sizeof ids / sizeof ids[0], 0, settings, c, 2, &error);
    CHECK_MSG(ok, "%s: %s", name, error.text);
    CHECK_MSG(c[0].largest <= 1e-5 * c[0].spread, "%s, exact: logits of size %g differ by %g", name,
              c[0].spread, c[0].largest);
    CHECK_MSG(c[1].largest <= 1e-2 * c[1].spread, "%s, default: logits of size %g differ by %g",
              name, c[1].spread, c[1].largest);
    llm_model_close(&model);
}

static void every_format(void) {
    static const gguf_type types[] = {GGUF_F32,  GGUF_F16,  GGUF_BF16,
                                      GGUF_Q4_0, GGUF_Q4_1, GGUF_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        gguf_builder b = {.size = 0};
        for (int output = 0; output <= 1; output++) {
            build_llama(
                &b, &(build_llama_sizes){2, 128, 96, 4, 2, (uint32_t)types[i], 5 + i, output, 0});
            check_format(&b, gguf_type_name(types[i]));
            build_free(&b);
        }
    }
}

int main(int argc, char **argv) {
    static const llm_test tests[] = {
        LLM_TEST(every_format),
        LLM_TEST(agrees_with_float64),
    };
    return llm_run_tests(tests, sizeof tests / sizeof tests[0], argc, argv);
}
