// SPDX-License-Identifier: Apache-2.0
//
// Continuous batching: what a request writes does not depend, in a single bit of its logits, on the
// requests beside it, the size of pages, the number of threads, or on where its beginning is
// stored; pages come back; the sampling options do what they say.  The real model answers several
// questions alone and all of them together; small random models serve for the rest.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/llm/chat.h"
#include "answers.h"
#include "gguf_builder.h"
#include "harness.h"

enum { MAX_REQUESTS = LLM_EMULATED ? 2 : LLM_SLOW ? 4 : 16 };

// ---- the real model ------------------------------------------------------------------------

static const char *const questions[] = {
    "What is the capital of France?",
    "Tell me a story about a fox.",
    "Why is the sky blue?",
    "Name three rivers and say where they are.",
    "Write a C function that adds two numbers.",
    "Who wrote Hamlet?",
    "What is 12 + 30?",
    "Describe a meteor in one sentence.",
    "How do I boil an egg?",
    "Translate 'good morning' to German.",
    "List five animals that can fly, and for each of them one that eats it.",
    "What is a prime number?",
    "Write a poem about rain.",
    "What does HTTP stand for?",
    "Explain gravity to a child.",
    "Hi",
};

typedef struct {
    llm_model model;
    tokenizer *tokenizer;
    token_list system, prompts[MAX_REQUESTS];
} talk;

static bool begin_talk(talk *k) {
    const chat_message system = {"system", chat_default_system, strlen(chat_default_system)};
    const char *path = llm_model_path();
    llm_error error = {""};
    *k = (talk){.tokenizer = NULL};
    if (path == NULL) {
        return false;
    }
    bool ok = llm_model_open(&k->model, path, &error) &&
              (k->tokenizer = tokenizer_create(&k->model.file, &error)) != NULL &&
              chat_encode(k->tokenizer, &system, 1, false, &k->system, NULL, &error);
    for (size_t i = 0; ok && i < MAX_REQUESTS; i++) {
        const chat_message user = {"user", questions[i], strlen(questions[i])};
        ok = chat_encode(k->tokenizer, &user, 1, true, &k->prompts[i], NULL, &error);
    }
    CHECK_MSG(ok, "%s", error.text);
    return ok;
}

static void end_talk(talk *k) {
    for (size_t i = 0; i < MAX_REQUESTS; i++) {
        token_list_free(&k->prompts[i]);
    }
    token_list_free(&k->system);
    tokenizer_destroy(k->tokenizer);
    llm_model_close(&k->model);
}

// One request of 64 tokens alone under `ways` settings; then it and 15 more in a batch, joining one
// by one, three of which are compared with their own runs alone, with pages of 1 and then of 16 up
// to last_pages. Slow builds compare fewer tokens, and an emulated processor the least that
// compares anything.
static void check_mode(const talk *k, llm_settings s, const char *name, size_t ways,
                       int64_t last_pages) {
    enum { FEW = LLM_SLOW ? 2 : 12, ALONE = LLM_EMULATED ? 2 : 3 };
    static const struct {
        int64_t page_size, threads;
    } way[] = {{16, 1}, {1, 3}, {16, 2}, {1, 1}, {16, 3}, {1, 2}};
    const llm_sampler greedy = {.top_p = 1};
    answer alone[ALONE], other, together[MAX_REQUESTS];
    char what[64];
    s.page_size = 16;
    s.threads = 1;
    for (size_t i = 0; i < ALONE; i++) {
        alone[i].limit = i == 0 ? MAX_NEW : FEW;
        run_answers(&k->model, &s, NULL, &k->prompts[i], &greedy, 1, 1, &alone[i], NULL);
    }
    for (size_t i = 1; i < ways; i++) {
        s.page_size = way[i].page_size;
        s.threads = way[i].threads;
        other.limit = MAX_NEW;
        run_answers(&k->model, &s, i % 2 == 0 ? &k->system : NULL, k->prompts, &greedy, 1, 1,
                    &other, NULL);
        snprintf(what, sizeof what, "%s, alone", name);
        expect_same(alone, &other, 1, what);
    }
    for (int64_t pages = 1; pages <= last_pages; pages += 15) {
        s.page_size = pages;
        s.threads = pages == 1 ? 3 : 2;
        for (size_t i = 0; i < MAX_REQUESTS; i++) {
            together[i].limit = i == 0 ? MAX_NEW : i < ALONE ? FEW : LLM_SLOW ? 1 : 4 + i;
        }
        run_answers(&k->model, &s, pages == 1 ? &k->system : NULL, k->prompts, &greedy,
                    MAX_REQUESTS, (size_t)(pages == 1), together, NULL);
        snprintf(what, sizeof what, "%s, together", name);
        expect_same(alone, together, ALONE, what);
    }
}

enum { WAYS = LLM_EMULATED ? 2 : LLM_SLOW ? 3 : 6, LAST_PAGES = LLM_EMULATED ? 1 : 16 };

static void same_text_in_any_batch(void) {
    talk k;
    if (begin_talk(&k)) {
        check_mode(&k, (llm_settings){.max_requests = 0}, "default", WAYS, LAST_PAGES);
        end_talk(&k);
    }
}

static void same_text_in_any_batch_int8(void) {
    talk k;
    if (begin_talk(&k)) {
        check_mode(&k, (llm_settings){.compute = LLM_INT8}, "int8", 2, 1);
        end_talk(&k);
    }
}

static void same_text_in_any_batch_exact(void) {
    talk k;
    if (begin_talk(&k)) {
        check_mode(&k, (llm_settings){.exact = true}, "exact", WAYS, LAST_PAGES);
        end_talk(&k);
    }
}

// ---- small models --------------------------------------------------------------------------

enum { SMALL_VOCAB = 8 };

static void with_small_model(void (*use)(const llm_model *model)) {
    gguf_builder b = {.size = 0};
    llm_error error = {""};
    gguf_file file;
    llm_model model;
    build_llama(&b, &(build_llama_sizes){2, 64, 96, 4, 2, GGUF_Q4_1, 11, 0, 0});
    bool ok =
        gguf_open_memory(&file, b.bytes, b.size, &error) && llm_model_of(&model, file, &error);
    CHECK_MSG(ok, "%s", error.text);
    if (ok) {
        use(&model);
        llm_model_close(&model);
    }
    build_free(&b);
}

static token_list small_prompt(size_t count, uint64_t seed) {
    token_list ids = {.count = 0};
    llm_error error;
    llm_random random = {seed};
    for (size_t i = 0; i < count; i++) {
        CHECK(token_list_add(&ids, (int32_t)llm_random_below(&random, SMALL_VOCAB), &error));
    }
    return ids;
}

// Prompts longer than a chunk, and draws with every filter.
static void long_prompts(const llm_model *model) {
    static const size_t lengths[] = {700, 1, 256, 257, 15};
    enum { N = 5 };
    const llm_sampler sampler = {
        .temperature = 0.8, .top_k = 6, .top_p = 0.95, .min_p = 0.01, .seed = 7};
    token_list prompts[N];
    answer alone[N], together[N];
    for (size_t i = 0; i < N; i++) {
        prompts[i] = small_prompt(lengths[i], i);
        alone[i].limit = together[i].limit = LLM_SLOW ? 2 : 20 + i;
        const llm_settings s = {.page_size = 16, .threads = 1};
        run_answers(model, &s, NULL, &prompts[i], &sampler, 1, 1, &alone[i], NULL);
    }
    for (int64_t page = 1; page <= 7; page += 3) {
        const llm_settings s = {.page_size = page, .threads = 2};
        run_answers(model, &s, NULL, prompts, &sampler, N, 2, together, NULL);
        expect_same(alone, together, N, "long prompts");
    }
    for (size_t i = 0; i < N; i++) {
        token_list_free(&prompts[i]);
    }
}

static void chunks_and_draws(void) {
    with_small_model(long_prompts);
}

static bool nobody(void *arg, int64_t request, int32_t token) {
    (void)arg, (void)token;
    CHECK_MSG(false, "a token of request %lld, which wants none", (long long)request);
    return false;
}

// Pages that hold 32 shared tokens are counted once, however many requests begin with them.
static void shared_pages(const llm_model *model) {
    const llm_sampler greedy = {.top_p = 1};
    const llm_settings s = {.page_size = 8, .max_tokens = 400, .max_requests = 4};
    llm_error error = {""};
    token_list ids = small_prompt(40, 3);
    llm_engine *e = llm_engine_create(model, &s, &error);
    int64_t used, all;
    bool busy;
    CHECK_MSG(e != NULL && llm_engine_share(e, ids.ids, 37, &error), "%s", error.text);
    llm_engine_pages(e, &used, &all);
    CHECK_MSG(used == 4, "%lld pages hold 32 tokens of 8 a page", (long long)used);
    for (int i = 0; i < 4; i++) {
        CHECK(llm_engine_add(e, ids.ids, ids.count, 0, &greedy, &error) >= 0);
    }
    CHECK(llm_engine_add(e, ids.ids, ids.count, 0, &greedy, &error) < 0);
    llm_engine_pages(e, &used, &all);
    CHECK_MSG(used == 4, "%lld pages for the beginning of four requests", (long long)used);
    CHECK(!llm_engine_share(e, ids.ids, 37, &error));
    CHECK_MSG(llm_engine_step(e, nobody, NULL, &busy, &error), "%s", error.text);
    CHECK(!busy); // nothing was to be drawn
    llm_engine_pages(e, &used, &all);
    CHECK(used == 4);
    llm_engine_destroy(e);
    token_list_free(&ids);
}

static void the_beginning_is_stored_once(void) {
    with_small_model(shared_pages);
}

static answer draw(const llm_model *model, llm_sampler sampler) {
    token_list prompt = small_prompt(9, 1);
    const llm_settings s = {.page_size = 16};
    answer a = {.limit = MAX_NEW};
    run_answers(model, &s, NULL, &prompt, &sampler, 1, 1, &a, NULL);
    token_list_free(&prompt);
    return a;
}

static bool same_ids(const answer *a, const answer *b) {
    return memcmp(a->ids, b->ids, sizeof a->ids) == 0;
}

// A filter that leaves one token gives the greedy text; a seed gives its text again, and another
// seed another one.
static void sampling(const llm_model *model) {
    const answer greedy = draw(model, (llm_sampler){.top_p = 1});
    const llm_sampler narrow[] = {
        {.temperature = 1, .top_p = 1, .top_k = 1, .seed = 1},
        {.temperature = 1, .top_p = 1e-6, .seed = 1},
        {.temperature = 1, .top_p = 1, .min_p = 1, .seed = 1},
        {.temperature = 1e-4, .top_p = 1, .seed = 1},
    };
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) {
        const answer a = draw(model, narrow[i]);
        CHECK_MSG(same_ids(&a, &greedy), "filter %zu lets other tokens through", i);
    }
    const answer one = draw(model, (llm_sampler){.temperature = 5, .top_p = 1, .seed = 1});
    const answer again = draw(model, (llm_sampler){.temperature = 5, .top_p = 1, .seed = 1});
    const answer two = draw(model, (llm_sampler){.temperature = 5, .top_p = 1, .seed = 2});
    CHECK(same_ids(&one, &again));
    CHECK(!same_ids(&one, &two) && !same_ids(&one, &greedy));
}

static void sampling_options(void) {
    with_small_model(sampling);
}

int main(int argc, char **argv) {
    static const llm_test tests[] = {
        LLM_TEST(chunks_and_draws),
        LLM_TEST(the_beginning_is_stored_once),
        LLM_TEST(sampling_options),
        LLM_TEST(same_text_in_any_batch),
        LLM_TEST(same_text_in_any_batch_int8),
        LLM_TEST(same_text_in_any_batch_exact),
    };
    return llm_run_tests(tests, sizeof tests / sizeof tests[0], argc, argv);
}
