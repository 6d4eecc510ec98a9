// SPDX-License-Identifier: Apache-2.0
//
// A libnvrtc for tests, of version FAKE_MAJOR.FAKE_MINOR. Its code is a text that names the unit
// and the options, so that a test can see what was compiled; it can fail and take its time.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

/* NVIDIA's names, as the library looks them up. NOLINTBEGIN(readability-identifier-naming) */

#define EXPORT __attribute__((visibility("default")))

extern fake_nvrtc fake_compiler;
EXPORT fake_nvrtc fake_compiler;

typedef struct program {
    char *code, *log;
    char name[128];
} program;

EXPORT int nvrtcVersion(int *major, int *minor);
EXPORT const char *nvrtcGetErrorString(int result);
EXPORT int nvrtcGetNumSupportedArchs(int *count);
EXPORT int nvrtcGetSupportedArchs(int *archs);
EXPORT int nvrtcCreateProgram(program **p, const char *text, const char *name, int headers,
                              const char *const *texts, const char *const *names);
EXPORT int nvrtcCompileProgram(program *p, int count, const char *const *options);
EXPORT int nvrtcDestroyProgram(program **p);
EXPORT int nvrtcGetProgramLogSize(program *p, size_t *bytes);
EXPORT int nvrtcGetProgramLog(program *p, char *log);
EXPORT int nvrtcGetCUBINSize(program *p, size_t *bytes);
EXPORT int nvrtcGetCUBIN(program *p, char *code);
EXPORT int nvrtcGetPTXSize(program *p, size_t *bytes);
EXPORT int nvrtcGetPTX(program *p, char *code);

int nvrtcVersion(int *major, int *minor) {
    *major = FAKE_MAJOR;
    *minor = FAKE_MINOR;
    return 0;
}

const char *nvrtcGetErrorString(int result) {
    return result == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_FAKE";
}

static const int known[] = {75, 80, 86, 89, 90};

int nvrtcGetNumSupportedArchs(int *count) {
    *count = sizeof known / sizeof known[0];
    return 0;
}

int nvrtcGetSupportedArchs(int *archs) {
    memcpy(archs, known, sizeof known);
    return 0;
}

int nvrtcCreateProgram(program **p, const char *text, const char *name, int headers,
                       const char *const *texts, const char *const *names) {
    for (int i = 0; i < headers; i++) {
        if (!texts[i] || !names[i])
            return 3;
    }
    *p = calloc(1, sizeof **p);
    if (!*p || !text)
        return 1;
    snprintf((*p)->name, sizeof(*p)->name, "%s", name);
    return 0;
}

int nvrtcCompileProgram(program *p, int count, const char *const *options) {
    atomic_fetch_add(&fake_compiler.compiled, 1);
    const struct timespec pause = {.tv_nsec = 1000000L * fake_compiler.milliseconds};
    nanosleep(&pause, NULL);
    p->log = malloc(512);
    p->code = malloc(8192);
    if (!p->log || !p->code)
        return 1;
    if (fake_compiler.fail) {
        snprintf(p->log, 512, "note: nothing yet\n%s(7): error: a fake mistake\n1 error\n",
                 p->name);
        return 6;
    }
    snprintf(p->log, 512,
             "ptxas info    : Compiling entry function 'bolide_rmsnorm' for 'sm_90a'\n"
             "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
             "ptxas info    : Used 33 registers, used 1 barriers, %d bytes smem\n",
             fake_compiler.shared_bytes);
    int n = snprintf(p->code, 8192, "fake code of %s", p->name);
    for (int i = 0; i < count; i++)
        n += snprintf(p->code + n, (size_t)(8192 - n), " %s", options[i]);
    return 0;
}

int nvrtcDestroyProgram(program **p) {
    free((*p)->log);
    free((*p)->code);
    free(*p);
    *p = NULL;
    return 0;
}

int nvrtcGetProgramLogSize(program *p, size_t *bytes) {
    *bytes = strlen(p->log) + 1;
    return 0;
}

int nvrtcGetProgramLog(program *p, char *log) {
    strcpy(log, p->log);
    return 0;
}

int nvrtcGetCUBINSize(program *p, size_t *bytes) {
    *bytes = strlen(p->code) + 1;
    return 0;
}

int nvrtcGetCUBIN(program *p, char *code) {
    strcpy(code, p->code);
    return 0;
}

int nvrtcGetPTXSize(program *p, size_t *bytes) {
    return nvrtcGetCUBINSize(p, bytes);
}

int nvrtcGetPTX(program *p, char *code) {
    return nvrtcGetCUBIN(p, code);
}
/* NOLINTEND(readability-identifier-naming) */
