// SPDX-License-Identifier: Apache-2.0
//
// The environment, read once per process. No other file calls getenv; docs/env.md lists the same
// variables, and a test keeps the two in step.

#ifndef BOLIDE_CORE_ENV_H
#define BOLIDE_CORE_ENV_H

#include <stdint.h>

enum bolide__log_topic {
    BOLIDE__LOG_ERROR = 1,
    BOLIDE__LOG_CALL = 2,
    BOLIDE__LOG_DISPATCH = 4,
    BOLIDE__LOG_COMPILE = 8,
    BOLIDE__LOG_TIME = 16
};

typedef struct bolide__env {
    uint32_t log;            /* BOLIDE_LOG: set of topics */
    const char *isa;         /* BOLIDE_ISA: baseline|avx2|emu512|avx512, NULL: best */
    const char *cache_dir;   /* BOLIDE_CACHE_DIR: cubin cache, NULL: XDG_CACHE_HOME or ~/.cache */
    const char *kernel_dir;  /* BOLIDE_KERNEL_DIR: read device sources from a checkout */
    const char *nvrtc;       /* BOLIDE_NVRTC: path of libnvrtc, NULL: search */
    int32_t apart;           /* BOLIDE_OVERLAP=0: calls on a GPU begin behind one another */
    const char *home_cache;  /* folder derived from XDG_CACHE_HOME or HOME, NULL: neither is set */
    const char *cuda_home;   /* CUDA_HOME or CUDA_PATH */
    const char *virtual_env; /* VIRTUAL_ENV, where nvidia/<component>/lib may lie */
} bolide__env;

const bolide__env *bolide__environment(void);

/* The environment as the process has it, for programs that it starts. */
char *const *bolide__process_environment(void);

/* One line "bolide: error: text" to standard error, whatever the topics: for variables of the
 * environment that cannot be followed, which would otherwise be ignored without a word. */
void bolide__report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line "bolide: topic: text" to standard error if the topic is on. */
void bolide__log(uint32_t topic, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline int bolide__log_on(uint32_t topic) {
    return (bolide__environment()->log & topic) != 0;
}

#endif
