// SPDX-License-Identifier: Apache-2.0
//
// Calls into NVRTC. One compiler serves the whole process; programs are independent of each other
// and may be compiled by several threads at once.

#include "cuda/nvrtc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/env.h"
#include "core/error.h"

typedef struct nvrtc_program nvrtc_program;
enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6, OLDEST_MAJOR = 12, LIST_BYTES = 4096 };

#define NVRTC_LIST(X)                                                                              \
    X(int, nvrtcVersion, (int *major, int *minor))                                                 \
    X(const char *, nvrtcGetErrorString, (int result))                                             \
    X(int, nvrtcGetNumSupportedArchs, (int *count))                                                \
    X(int, nvrtcGetSupportedArchs, (int *archs))                                                   \
    X(int, nvrtcCreateProgram,                                                                     \
      (nvrtc_program * *program, const char *text, const char *name, int headers,                  \
       const char *const *header_texts, const char *const *header_names))                          \
    X(int, nvrtcCompileProgram, (nvrtc_program * program, int count, const char *const *options))  \
    X(int, nvrtcDestroyProgram, (nvrtc_program * *program))                                        \
    X(int, nvrtcGetProgramLogSize, (nvrtc_program * program, size_t * bytes))                      \
    X(int, nvrtcGetProgramLog, (nvrtc_program * program, char *log))                               \
    X(int, nvrtcGetCUBINSize, (nvrtc_program * program, size_t * bytes))                           \
    X(int, nvrtcGetCUBIN, (nvrtc_program * program, char *code))                                   \
    X(int, nvrtcGetPTXSize, (nvrtc_program * program, size_t * bytes))                             \
    X(int, nvrtcGetPTX, (nvrtc_program * program, char *code))

static struct functions {
/* NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define NVRTC_FIELD(type, name, params) type(*name) params;
    NVRTC_LIST(NVRTC_FIELD)
#undef NVRTC_FIELD
} f;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int state; /* 0 not searched, 1 found, 2 not found */
static bolide__nvrtc compiler;
static char path_of_compiler[1024];

static int fill_table(void *library, char *verdict, size_t bytes) {
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
#define NVRTC_SYMBOL(type, name, params) {#name, offsetof(struct functions, name)},
        NVRTC_LIST(NVRTC_SYMBOL)
#undef NVRTC_SYMBOL
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address) {
            snprintf(verdict, bytes, "passed over: it lacks %s", symbols[i].name);
            return 0;
        }
        memcpy((char *)&f + symbols[i].offset, &address, sizeof address);
    }
    return 1;
}

static int read_numbers(int driver_major, char *verdict, size_t bytes) {
    int major = 0, minor = 0, count = 0;
    if (f.nvrtcVersion(&major, &minor) != NVRTC_SUCCESS) {
        snprintf(verdict, bytes, "passed over: it does not tell its version");
        return 0;
    }
    if (major < OLDEST_MAJOR) {
        snprintf(verdict, bytes, "passed over: version %d.%d is older than %d.0", major, minor,
                 OLDEST_MAJOR);
        return 0;
    }
    if (driver_major && major > driver_major) {
        snprintf(verdict, bytes,
                 "passed over: version %d.%d is newer than the driver, which supports CUDA %d",
                 major, minor, driver_major);
        return 0;
    }
    if (f.nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count < 1 ||
        count > BOLIDE__NVRTC_ARCHS || f.nvrtcGetSupportedArchs(compiler.archs) != NVRTC_SUCCESS) {
        snprintf(verdict, bytes, "passed over: it does not tell its architectures");
        return 0;
    }
    compiler.major = major;
    compiler.minor = minor;
    compiler.arch_count = count;
    snprintf(verdict, bytes, "used: version %d.%d", major, minor);
    return 1;
}

int bolide__nvrtc_load(const char *path, int driver_major, char *verdict, size_t bytes) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(verdict, bytes, "not loaded: %s", why ? why : "no reason given");
        return 0;
    }
    /* A library that is passed over stays open: NVRTC loses memory when it is closed. */
    if (!fill_table(library, verdict, bytes) || !read_numbers(driver_major, verdict, bytes))
        return 0;
    /* The file behind a bare name, for messages. */
    Dl_info info;
    void *address = NULL;
    memcpy(&address, &f.nvrtcVersion, sizeof address);
    if (dladdr(address, &info) && info.dli_fname)
        path = info.dli_fname;
    snprintf(path_of_compiler, sizeof path_of_compiler, "%s", path);
    compiler.path = path_of_compiler;
    return 1;
}

static bolide_status fail_missing(const char *entry) {
    char list[LIST_BYTES];
    size_t used = 0;
    list[0] = '\0';
    for (int i = 0; bolide__nvrtc_seen(i); i++) {
        const bolide__nvrtc_place *place = bolide__nvrtc_seen(i);
        const int n =
            snprintf(list + used, sizeof list - used, "\n    %s: %s", place->path, place->verdict);
        if (n < 0 || (size_t)n >= sizeof list - used)
            break;
        used += (size_t)n;
    }
    return bolide__fail(
        BOLIDE_NO_DEVICE, entry,
        "NVRTC 12 or 13 is missing; set BOLIDE_NVRTC to the path of libnvrtc.so, or "
        "install the Python package nvidia-cuda-nvrtc; looked at:%s",
        list);
}

const bolide__nvrtc *bolide__nvrtc_try(void) {
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == 0) {
        pthread_mutex_lock(&lock);
        now = atomic_load_explicit(&state, memory_order_relaxed);
        if (now == 0) {
            now = bolide__nvrtc_search() ? 1 : 2;
            atomic_store_explicit(&state, now, memory_order_release);
            if (now == 1)
                bolide__log(BOLIDE__LOG_COMPILE, "nvrtc %d.%d at %s", compiler.major,
                            compiler.minor, compiler.path);
        }
        pthread_mutex_unlock(&lock);
    }
    return now == 1 ? &compiler : NULL;
}

bolide_status bolide__nvrtc_open(const char *entry, const bolide__nvrtc **out) {
    *out = bolide__nvrtc_try();
    return *out ? BOLIDE_OK : fail_missing(entry);
}

static bolide_status fail_call(const char *entry, const char *what, int result) {
    return bolide__fail(BOLIDE_COMPILE_FAILED, entry, "%s: %s", what,
                        f.nvrtcGetErrorString(result));
}

static char *read_log(nvrtc_program *program) {
    size_t bytes = 0;
    if (f.nvrtcGetProgramLogSize(program, &bytes) != NVRTC_SUCCESS)
        bytes = 0;
    char *log = calloc(bytes + 1, 1);
    if (log && bytes && f.nvrtcGetProgramLog(program, log) != NVRTC_SUCCESS)
        log[0] = '\0';
    return log;
}

static bolide_status read_code(const char *entry, nvrtc_program *program, int ptx,
                               bolide__nvrtc_output *out) {
    size_t bytes = 0;
    int r = ptx ? f.nvrtcGetPTXSize(program, &bytes) : f.nvrtcGetCUBINSize(program, &bytes);
    if (r != NVRTC_SUCCESS || bytes == 0)
        return fail_call(entry, "the size of the compiled code", r);
    out->code = malloc(bytes);
    if (!out->code)
        return bolide__fail(BOLIDE_OUT_OF_MEMORY, entry, "no memory for %zu bytes of code", bytes);
    r = ptx ? f.nvrtcGetPTX(program, out->code) : f.nvrtcGetCUBIN(program, out->code);
    if (r != NVRTC_SUCCESS)
        return fail_call(entry, "the compiled code", r);
    out->bytes = bytes;
    return BOLIDE_OK;
}

bolide_status bolide__nvrtc_compile(const char *entry, const bolide__nvrtc_input *in,
                                    bolide__nvrtc_output *out) {
    *out = (bolide__nvrtc_output){0};
    nvrtc_program *program = NULL;
    int r = f.nvrtcCreateProgram(&program, in->text, in->name, in->header_count, in->header_texts,
                                 in->header_names);
    if (r != NVRTC_SUCCESS)
        return fail_call(entry, "nvrtcCreateProgram", r);
    bolide_status status = BOLIDE_OK;
    r = f.nvrtcCompileProgram(program, in->option_count, in->options);
    out->log = read_log(program);
    if (!out->log)
        status = bolide__fail(BOLIDE_OUT_OF_MEMORY, entry, "no memory for the compiler's log");
    else if (r == NVRTC_ERROR_COMPILATION)
        status = BOLIDE_COMPILE_FAILED;
    else if (r != NVRTC_SUCCESS)
        status = fail_call(entry, out->log[0] ? out->log : "nvrtcCompileProgram", r);
    else
        status = read_code(entry, program, in->ptx, out);
    f.nvrtcDestroyProgram(&program);
    if (status != BOLIDE_OK) {
        free(out->code);
        out->code = NULL;
        /* The log of a failed compilation goes to the caller, who knows the spec. */
        if (!(status == BOLIDE_COMPILE_FAILED && r == NVRTC_ERROR_COMPILATION)) {
            free(out->log);
            out->log = NULL;
        }
    }
    return status;
}
