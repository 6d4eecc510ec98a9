// SPDX-License-Identifier: Apache-2.0
//
// See harness.h.  State is global: one program runs its tests one after the other.
#include "harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures; // in the running test
static const char *skipped;

void llm_check_failed(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    failures++;
}

void llm_skip(const char *reason) {
    skipped = reason;
}

int llm_run_tests(const llm_test *tests, size_t count, int argc, char **argv) {
    int passed = 0, failed = 0, skips = 0;
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strstr(tests[i].name, argv[1]) == NULL) {
            continue;
        }
        failures = 0;
        skipped = NULL;
        tests[i].run();
        if (failures != 0) {
            printf("FAIL %s\n", tests[i].name);
            failed++;
        } else if (skipped != NULL) {
            printf("skip %s: %s\n", tests[i].name, skipped);
            skips++;
        } else {
            passed++;
        }
        fflush(stdout);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skips);
    return failed != 0;
}

const char *llm_model_path(void) {
    static char path[4096];
    const char *given = getenv("BOLIDE_LLM_MODEL");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (given != NULL && given[0] != '\0') {
        snprintf(path, sizeof path, "%s", given);
    } else if (cache != NULL && cache[0] == '/') {
        snprintf(path, sizeof path, "%s/bolide/models/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    } else {
        snprintf(path, sizeof path, "%s/.cache/bolide/models/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home != NULL ? home : "");
    }
    if (access(path, R_OK) != 0) {
        llm_skip("the model file is not there; examples/llm/fetch.py fetches it");
        return NULL;
    }
    return path;
}

// splitmix64
uint64_t llm_random_next(llm_random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t llm_random_below(llm_random *random, uint64_t n) {
    return llm_random_next(random) % n;
}
