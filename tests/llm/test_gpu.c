// SPDX-License-Identifier: Apache-2.0
//
// The engine on a GPU: its logits against the float64 reference, its text against the CPU's, a
// request alone against the same request among sixteen, and steps that a graph repeats against
// steps that are run call by call.  Small models of random weights in every format, one with the
// sizes of a real one, and the real model where its file is there.  Without a GPU all are skipped.
#include <bolide/core.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/llm/chat.h"
#include "answers.h"
#include "compare.h"
#include "gguf_builder.h"
#include "harness.h"

enum { REQUESTS = 16 };

// The context is kept, so that engines that come and go find the kernels loaded.
static bool has_gpu(void) {
    static char why[512];
    static bolide_context *kept;
    if (kept != NULL || bolide_context_create(BOLIDE_CUDA, 0, &kept) == BOLIDE_OK) {
        return true;
    }
    snprintf(why, sizeof why, "%s", bolide_last_error()->message);
    llm_skip(why);
    return false;
}

// ---- models ------------------------------------------------------------------------------------

static const build_llama_sizes small = {2, 64, 96, 4, 2, GGUF_Q4_1, 11, 0, 0};
// The sizes of SmolLM2-135M with fewer blocks.
static const build_llama_sizes wide = {3, 576, 1536, 9, 3, GGUF_Q4_1, 3, 0, 49152};

static void with_model(const build_llama_sizes *sizes, const char *name,
                       void (*use)(const llm_model *model, const char *name)) {
    gguf_builder b = {.size = 0};
    llm_error error = {""};
    gguf_file file;
    llm_model model;
    if (!has_gpu()) {
        return;
    }
    build_llama(&b, sizes);
    bool ok =
        gguf_open_memory(&file, b.bytes, b.size, &error) && llm_model_of(&model, file, &error);
    CHECK_MSG(ok, "%s: %s", name, error.text);
    if (ok) {
        use(&model, name);
        llm_model_close(&model);
    }
    build_free(&b);
}

static void random_prompts(const llm_model *model, token_list *prompts, size_t n) {
    llm_random random = {n};
    llm_error error;
    for (size_t i = 0; i < n; i++) {
        const size_t count = i == 1 ? 300 : 1 + 7 * i;
        prompts[i] = (token_list){.count = 0};
        for (size_t j = 0; j < count; j++) {
            const uint64_t id = llm_random_below(&random, (uint64_t)model->vocab);
            CHECK(token_list_add(&prompts[i], (int32_t)id, &error));
        }
    }
}

static void free_prompts(token_list *prompts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        token_list_free(&prompts[i]);
    }
}

// ---- logits ------------------------------------------------------------------------------------

// Logits of random models spread widely, so the bounds are parts of their size; a width of 576 adds
// up more roundings than the small ones.
static void check_logits(const llm_model *model, const char *name) {
    enum { N = 12 };
    const llm_settings settings[] = {{.page_size = 4, .gpu = true, .exact = true},
                                     {.page_size = 4, .gpu = true}};
    comparison c[2] = {{.positions = 0}};
    llm_error error = {""};
    llm_random random = {7};
    int32_t ids[N];
    for (size_t i = 0; i < N; i++) {
        ids[i] = (int32_t)llm_random_below(&random, (uint64_t)model->vocab);
    }
    CHECK_MSG(compare_logits(model, ids, N, 0, settings, c, 2, &error), "%s: %s", name, error.text);
    CHECK(c[0].positions == N && c[1].positions == N);
    const double bound = model->d > 128 ? 1e-4 : 1e-5;
    CHECK_MSG(c[0].largest <= bound * c[0].spread, "%s, exact: logits of size %g differ by %g",
              name, c[0].spread, c[0].largest);
    CHECK_MSG(c[1].largest <= 1e-2 * c[1].spread, "%s, default: logits of size %g differ by %g",
              name, c[1].spread, c[1].largest);
    printf("%s: exact within %.2g, default within %.2g of logits of size 1\n", name,
           c[0].largest / c[0].spread, c[1].largest / c[1].spread);
}

static void every_format(void) {
    static const gguf_type types[] = {GGUF_F32,  GGUF_F16,  GGUF_BF16,
                                      GGUF_Q4_0, GGUF_Q4_1, GGUF_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const build_llama_sizes sizes = {2, 128, 96, 4, 2, (uint32_t)types[i], 5 + i, i % 2, 0};
        with_model(&sizes, gguf_type_name(types[i]), check_logits);
    }
    with_model(&wide, "sizes of a real model", check_logits);
}

// ---- the CPU's text ----------------------------------------------------------------------------

// Equal tokens, up to the first that the CPU itself takes with a lead within the tolerance, which
// is twice what the default mode's logits may be off.
static void expect_text(const answer *cpu, const answer *gpu, size_t n, double part,
                        const char *what) {
    size_t equal = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        while (same < cpu[i].count && cpu[i].ids[same] == gpu[i].ids[same]) {
            same++;
        }
        equal += same;
        all += cpu[i].count;
        CHECK(cpu[i].count == cpu[i].limit && gpu[i].count == gpu[i].limit);
        CHECK_MSG(same == cpu[i].count || cpu[i].lead[same] <= part * cpu[i].size,
                  "%s: request %zu: token %zu is %d, and %d on the CPU with a lead of %g", what, i,
                  same, (int)gpu[i].ids[same], (int)cpu[i].ids[same], cpu[i].lead[same]);
    }
    CHECK_MSG(2 * equal >= all, "%s: %zu of %zu tokens are the CPU's", what, equal, all);
    printf("%s: %zu of %zu tokens are the CPU's\n", what, equal, all);
}

static void check_text(const llm_model *model, const char *name) {
    enum { N = 3 };
    const llm_sampler greedy = {.top_p = 1};
    token_list prompts[N];
    answer cpu[N], gpu[N];
    random_prompts(model, prompts, N);
    for (int exact = 0; exact <= 1; exact++) {
        const llm_settings on_cpu = {.page_size = 16, .threads = 2, .exact = exact};
        const llm_settings on_gpu = {.page_size = 16, .exact = exact, .gpu = true};
        for (size_t i = 0; i < N; i++) {
            cpu[i].limit = gpu[i].limit = MAX_NEW / 2;
        }
        run_answers(model, &on_cpu, NULL, prompts, &greedy, N, 1, cpu, NULL);
        run_answers(model, &on_gpu, NULL, prompts, &greedy, N, 1, gpu, NULL);
        expect_text(cpu, gpu, N, exact ? 2e-4 : 2e-2, name);
    }
    free_prompts(prompts, N);
}

static void the_text_of_the_cpu(void) {
    with_model(&small, "a small model", check_text);
    with_model(&wide, "sizes of a real model", check_text);
}

// ---- batches and graphs ------------------------------------------------------------------------

// Sixteen requests alone, call by call; then together, by graphs, joining at once and one by one.
static void check_batches(const llm_model *model, const char *name) {
    const llm_sampler sampler[] = {
        {.top_p = 1}, {.temperature = 0.8, .top_k = 6, .top_p = 0.95, .min_p = 0.01, .seed = 7}};
    token_list prompts[REQUESTS];
    answer alone[REQUESTS], together[REQUESTS];
    graph_count graphs;
    random_prompts(model, prompts, REQUESTS);
    for (size_t way = 0; way < 4; way++) {
        const llm_settings eager = {.page_size = 16, .gpu = true, .eager = true};
        const llm_settings replay = {.page_size = way < 2 ? 16 : 5, .gpu = true};
        for (size_t i = 0; i < REQUESTS; i++) {
            alone[i].limit = together[i].limit = 20 + i;
            run_answers(model, &eager, NULL, &prompts[i], &sampler[way % 2], 1, 1, &alone[i],
                        &graphs);
            CHECK(graphs.captured == 0 && graphs.replayed == 0);
        }
        /* The last way stores the beginning of the longest prompt once, for it to share. */
        run_answers(model, &replay, way == 3 ? &prompts[1] : NULL, prompts, &sampler[way % 2],
                    REQUESTS, way / 2 * 3, together, &graphs);
        expect_same(alone, together, REQUESTS, name);
        CHECK(graphs.captured > 0 && graphs.replayed > 0);
    }
    free_prompts(prompts, REQUESTS);
}

// One graph of a batch size serves every length: after the step that warms it and its capture, all
// decode steps of the run are replays of it, over many pages.
static void check_lengths(const llm_model *model, const char *name) {
    enum { N = 4, TOKENS = MAX_NEW };
    const llm_sampler greedy = {.top_p = 1};
    const llm_settings settings = {.page_size = 4, .gpu = true};
    const llm_settings eager = {.page_size = 4, .gpu = true, .eager = true};
    token_list prompts[N];
    answer by_call[N], by_graph[N];
    graph_count graphs;
    random_prompts(model, prompts, N);
    for (size_t n = 1; n <= N; n += 3) {
        for (size_t i = 0; i < n; i++) {
            by_call[i].limit = by_graph[i].limit = TOKENS;
        }
        run_answers(model, &eager, NULL, prompts, &greedy, n, 0, by_call, NULL);
        run_answers(model, &settings, NULL, prompts, &greedy, n, 0, by_graph, &graphs);
        expect_same(by_call, by_graph, n, name);
        /* The first token of all comes with the prompt, the second warms the size. A prompt of 300
         * tokens takes two steps, so that its request starts one step later. */
        const int64_t steps = TOKENS - 2 - 2 * (n > 1);
        CHECK_MSG(graphs.captured == 1, "%zu requests: %lld graphs", n, (long long)graphs.captured);
        CHECK_MSG(graphs.replayed >= steps, "%zu requests: %lld replays in %lld steps", n,
                  (long long)graphs.replayed, (long long)steps);
    }
    free_prompts(prompts, N);
}

static void any_batch_and_graph(void) {
    with_model(&small, "a small model", check_batches);
}

static void one_graph_for_all_lengths(void) {
    with_model(&small, "a small model", check_lengths);
    with_model(&wide, "sizes of a real model", check_lengths);
}

// ---- drawing -----------------------------------------------------------------------------------

// A filter that leaves one token gives the greedy text.
static void check_filters(const llm_model *model, const char *name) {
    static const llm_sampler sampler[] = {
        {.top_p = 1},
        {.temperature = 1, .top_p = 1, .top_k = 1, .seed = 1},
        {.temperature = 1, .top_p = 1e-6, .seed = 1},
        {.temperature = 1, .top_p = 1, .min_p = 1, .seed = 1},
    };
    enum { WAYS = sizeof sampler / sizeof sampler[0] };
    const llm_settings settings = {.page_size = 16, .gpu = true};
    token_list prompts[3];
    answer a[WAYS];
    random_prompts(model, prompts, 3);
    for (size_t i = 0; i < WAYS; i++) {
        a[i].limit = MAX_NEW / 2;
        run_answers(model, &settings, NULL, &prompts[2], &sampler[i], 1, 1, &a[i], NULL);
        expect_same(&a[0], &a[i], 1, name);
    }
    free_prompts(prompts, 3);
}

static void filters(void) {
    with_model(&small, "a small model", check_filters);
}

// ---- the real model ----------------------------------------------------------------------------

static void check_answer(const llm_model *model, const tokenizer *t) {
    static const char question[] = "What is the capital of France?";
    const chat_message message = {"user", question, strlen(question)};
    const llm_settings on_cpu = {.page_size = 16, .threads = 2};
    const llm_settings on_gpu = {.page_size = 16, .gpu = true};
    const llm_settings modes[] = {{.page_size = 16, .gpu = true, .exact = true}, on_gpu};
    const llm_sampler greedy = {.top_p = 1};
    comparison c[2] = {{.positions = 0}};
    answer cpu = {.limit = MAX_NEW}, gpu = {.limit = MAX_NEW};
    llm_error error = {""};
    token_list ids = {.count = 0};
    CHECK_MSG(chat_encode(t, &message, 1, true, &ids, NULL, &error), "%s", error.text);
    run_answers(model, &on_cpu, NULL, &ids, &greedy, 1, 1, &cpu, NULL);
    run_answers(model, &on_gpu, NULL, &ids, &greedy, 1, 1, &gpu, NULL);
    expect_text(&cpu, &gpu, 1, 2e-2, "the real model");
    CHECK_MSG(compare_logits(model, ids.ids, ids.count, 0, modes, c, 2, &error), "%s", error.text);
    CHECK_MSG(c[0].largest <= 1e-2, "exact: logits differ by %g", c[0].largest);
    const double mean = c[1].kl / (double)c[1].positions;
    CHECK_MSG(mean <= 0.01, "default: mean KL is %g", mean);
    CHECK(c[1].mistaken == 0);
    printf("the real model: exact within %.2g; default: mean KL %.2g\n", c[0].largest, mean);
    token_list_free(&ids);
}

static void the_real_model(void) {
    const char *path = has_gpu() ? llm_model_path() : NULL;
    llm_error error = {""};
    llm_model model;
    if (path == NULL) {
        return;
    }
    const bool open = llm_model_open(&model, path, &error);
    tokenizer *t = open ? tokenizer_create(&model.file, &error) : NULL;
    CHECK_MSG(t != NULL, "%s", error.text);
    if (t != NULL) {
        check_answer(&model, t);
    }
    tokenizer_destroy(t);
    if (open) {
        llm_model_close(&model);
    }
}

int main(int argc, char **argv) {
    static const llm_test tests[] = {
        LLM_TEST(every_format),
        LLM_TEST(the_text_of_the_cpu),
        LLM_TEST(any_batch_and_graph),
        LLM_TEST(one_graph_for_all_lengths),
        LLM_TEST(filters),
        LLM_TEST(the_real_model),
    };
    return llm_run_tests(tests, sizeof tests / sizeof tests[0], argc, argv);
}
