// SPDX-License-Identifier: Apache-2.0
//
// The environment and the log. Values are copied at first use, so a later setenv by the process
// changes nothing and nobody reads a string that was freed.

#include "core/env.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 8192 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bolide__env env;

static const char *take(char *buffer, const char *name) {
    const char *value = getenv(name);
    if (!value || !*value)
        return NULL;
    if (strlen(value) >= PATH_BYTES) {
        fprintf(stderr, "bolide: error: %s: expected fewer than %d bytes; got %zu, ignored\n", name,
                PATH_BYTES, strlen(value));
        return NULL;
    }
    return strcpy(buffer, value);
}

static uint32_t parse_topics(const char *text) {
    static const struct {
        const char *name;
        uint32_t bits;
    } topics[] = {
        {"error", BOLIDE__LOG_ERROR},       {"call", BOLIDE__LOG_CALL},
        {"dispatch", BOLIDE__LOG_DISPATCH}, {"compile", BOLIDE__LOG_COMPILE},
        {"time", BOLIDE__LOG_TIME},         {"all", ~0u},
    };
    uint32_t bits = 0;
    while (text && *text) {
        size_t n = strcspn(text, ",");
        int known = n == 0;
        for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
            if (strlen(topics[i].name) == n && strncmp(topics[i].name, text, n) == 0) {
                bits |= topics[i].bits;
                known = 1;
            }
        }
        if (!known)
            fprintf(stderr,
                    "bolide: error: BOLIDE_LOG: expected error, call, dispatch, compile, time or "
                    "all; got %.*s\n",
                    (int)n, text);
        text += n + (text[n] == ',');
    }
    return bits;
}

/* 1 for "0"; "1" is what holds anyway. */
static int32_t parse_overlap(const char *text) {
    if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
        fprintf(stderr, "bolide: error: BOLIDE_OVERLAP: expected 0 or 1; got %s, ignored\n", text);
    return text && strcmp(text, "0") == 0;
}

static void read_once(void) {
    static char log[PATH_BYTES], isa[PATH_BYTES], cache[PATH_BYTES], kernels[PATH_BYTES];
    static char nvrtc[PATH_BYTES], xdg[PATH_BYTES], home[PATH_BYTES], home_cache[PATH_BYTES + 16];
    static char cuda_home[PATH_BYTES], venv[PATH_BYTES], overlap[PATH_BYTES];
    env.log = parse_topics(take(log, "BOLIDE_LOG"));
    env.isa = take(isa, "BOLIDE_ISA");
    env.cache_dir = take(cache, "BOLIDE_CACHE_DIR");
    env.kernel_dir = take(kernels, "BOLIDE_KERNEL_DIR");
    env.nvrtc = take(nvrtc, "BOLIDE_NVRTC");
    env.apart = parse_overlap(take(overlap, "BOLIDE_OVERLAP"));
    env.cuda_home = take(cuda_home, "CUDA_HOME");
    if (!env.cuda_home)
        env.cuda_home = take(cuda_home, "CUDA_PATH");
    env.virtual_env = take(venv, "VIRTUAL_ENV");
    if (take(xdg, "XDG_CACHE_HOME")) {
        snprintf(home_cache, sizeof home_cache, "%s/bolide", xdg);
        env.home_cache = home_cache;
    } else if (take(home, "HOME")) {
        snprintf(home_cache, sizeof home_cache, "%s/.cache/bolide", home);
        env.home_cache = home_cache;
    }
}

const bolide__env *bolide__environment(void) {
    static _Atomic int ready; /* spares each call the function behind pthread_once */
    if (!atomic_load_explicit(&ready, memory_order_acquire)) {
        pthread_once(&once, read_once);
        atomic_store_explicit(&ready, 1, memory_order_release);
    }
    return &env;
}

void bolide__report(const char *format, ...) {
    char line[LINE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    fprintf(stderr, "bolide: error: %s\n", line);
}

void bolide__log(uint32_t topic, const char *format, ...) {
    if (!bolide__log_on(topic))
        return;
    const char *name = topic == BOLIDE__LOG_ERROR      ? "error"
                       : topic == BOLIDE__LOG_CALL     ? "call"
                       : topic == BOLIDE__LOG_DISPATCH ? "dispatch"
                       : topic == BOLIDE__LOG_COMPILE  ? "compile"
                                                       : "time";
    char line[LINE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    fprintf(stderr, "bolide: %s: %s\n", name, line);
}

char *const *bolide__process_environment(void) {
    return environ;
}
