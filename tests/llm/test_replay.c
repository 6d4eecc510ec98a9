// SPDX-License-Identifier: Apache-2.0
//
// The engine's way with a GPU on stand-ins for the driver and the compiler, where nothing is
// computed: which steps are captured and repeated, that all memory is given back, and that each
// failing call of the driver ends in one sentence.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cuda/fake.h"
#include "answers.h"
#include "cuda/driver.h"
#include "gguf_builder.h"
#include "harness.h"

static fake_driver *driver;
static llm_model model;

static bool keep(void *arg, int64_t request, int32_t token) {
    (void)request, (void)token;
    ++*(int64_t *)arg;
    return true;
}

static llm_engine *open_engine(int64_t requests, llm_error *error) {
    const llm_settings settings = {
        .page_size = 4, .max_tokens = 100 * requests, .max_requests = requests, .gpu = true};
    return llm_engine_create(&model, &settings, error);
}

static bool add(llm_engine *e, int64_t max_new, llm_error *error) {
    static const int32_t ids[] = {1, 2, 3};
    const llm_sampler greedy = {.top_p = 1};
    return llm_engine_add(e, ids, 3, max_new, &greedy, error) >= 0;
}

static void nothing_is_held(const char *what) {
    CHECK_MSG(driver->held == 0, "%s: %d pieces of memory are held", what, driver->held);
    CHECK_MSG(driver->retained == 0, "%s: %d contexts are held", what, driver->retained);
    CHECK_MSG(driver->modules == 0, "%s: %d modules are held", what, driver->modules);
    CHECK_MSG(driver->broken == 0, "%s: %d calls that a capture does not allow", what,
              driver->broken);
    CHECK_MSG(!driver->capturing, "%s: a capture is left open", what);
}

// Three requests in a batch of four rows, then two, then one: a graph for each size, whatever the
// lengths.
static void one_graph_a_size(void) {
    llm_error error = {""};
    llm_engine *e = open_engine(3, &error);
    int64_t tokens = 0, captured, replayed;
    bool busy = true, ok = e != NULL;
    driver->graph_launches = 0;
    for (int64_t i = 1; ok && i <= 3; i++) {
        ok = add(e, 20 * i, &error);
    }
    while (ok && busy) {
        ok = llm_engine_step(e, keep, &tokens, &busy, &error);
    }
    CHECK_MSG(ok, "%s", error.text);
    if (ok) {
        llm_engine_graphs(e, &captured, &replayed);
        CHECK_MSG(tokens == 120, "%lld tokens", (long long)tokens);
        CHECK_MSG(captured == 3, "%lld graphs", (long long)captured);
        /* 59 decode steps, the first of each size without a graph. */
        CHECK_MSG(replayed == 56, "%lld replays", (long long)replayed);
        CHECK(driver->graph_launches == 56);
    }
    llm_engine_destroy(e);
    nothing_is_held("after the requests");
}

// A prompt so long that buffers move makes the graphs before it void; they are captured again.
static void buffers_that_move(void) {
    llm_error error = {""};
    llm_engine *e = open_engine(2, &error);
    int64_t tokens = 0, before, after, replayed;
    bool busy, ok = e != NULL && add(e, 60, &error);
    for (int i = 0; ok && i < 10; i++) {
        ok = llm_engine_step(e, keep, &tokens, &busy, &error);
    }
    CHECK_MSG(ok, "%s", error.text);
    if (ok) {
        int32_t ids[64] = {0};
        const llm_sampler greedy = {.top_p = 1};
        llm_engine_graphs(e, &before, &replayed);
        CHECK_MSG(llm_engine_add(e, ids, 64, 1, &greedy, &error) >= 0, "%s", error.text);
        for (int i = 0; i < 10; i++) {
            CHECK_MSG(llm_engine_step(e, keep, &tokens, &busy, &error), "%s", error.text);
        }
        llm_engine_graphs(e, &after, &replayed);
        CHECK_MSG(before == 1 && after == 2, "%lld graphs, then %lld", (long long)before,
                  (long long)after);
        CHECK(tokens == 21);
    }
    llm_engine_destroy(e);
    nothing_is_held("after buffers moved");
}

// Some steps of every kind; false with a sentence.
static bool try_all(llm_error *error) {
    llm_engine *e = open_engine(2, error);
    int64_t tokens = 0;
    bool busy = true, ok = e != NULL && add(e, 4, error) && add(e, 5, error);
    while (ok && busy) {
        ok = llm_engine_step(e, keep, &tokens, &busy, error);
    }
    llm_engine_destroy(e);
    return ok;
}

static void each_call_fails_in_turn(void) {
    llm_error error = {""};
    CHECK_MSG(try_all(&error), "%s", error.text);
    const int before = driver->calls;
    CHECK(try_all(&error));
    const int calls = driver->calls - before;
    int refused = 0;
    CHECK_MSG(calls > 100, "%d calls", calls);
    for (int i = 1; i <= calls; i += LLM_SLOW ? 7 : 1) {
        error.text[0] = '\0';
        driver->fail_at = i;
        driver->fail_code = CUDA_ERROR_OUT_OF_MEMORY;
        const bool ok = try_all(&error);
        driver->fail_at = 0;
        CHECK_MSG(ok || error.text[0] != '\0', "call %d fails without a sentence", i);
        refused += !ok;
        nothing_is_held(error.text);
    }
    /* What only frees memory fails unseen. */
    CHECK_MSG(refused > calls / (LLM_SLOW ? 14 : 2), "%d of %d failures were seen", refused, calls);
}

static bool load_stand_ins(void) {
    static const char path[] = FAKES "/fake_cuda.so";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    driver = library != NULL ? dlsym(library, "fake") : NULL;
    setenv("BOLIDE_NVRTC", FAKES "/fake_nvrtc13.so", 1);
    bolide__driver_override(path);
    return driver != NULL;
}

int main(int argc, char **argv) {
    static const llm_test tests[] = {
        LLM_TEST(one_graph_a_size),
        LLM_TEST(buffers_that_move),
        LLM_TEST(each_call_fails_in_turn),
    };
    char folder[] = "/tmp/bolide-test-XXXXXX";
    gguf_builder b = {.size = 0};
    llm_error error = {"the stand-ins cannot be loaded"};
    gguf_file file;
    build_llama(&b, &(build_llama_sizes){2, 64, 96, 4, 2, GGUF_Q4_1, 11, 0, 0});
    if (mkdtemp(folder) == NULL || setenv("BOLIDE_CACHE_DIR", folder, 1) != 0 ||
        !load_stand_ins() || !gguf_open_memory(&file, b.bytes, b.size, &error) ||
        !llm_model_of(&model, file, &error)) {
        printf("FAIL %s\n0 passed, 1 failed, 0 skipped\n", error.text);
        return 1;
    }
    const int result = llm_run_tests(tests, sizeof tests / sizeof tests[0], argc, argv);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    llm_model_close(&model);
    build_free(&b);
    return system(command) != 0 || result;
}
