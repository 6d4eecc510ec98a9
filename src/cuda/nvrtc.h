// SPDX-License-Identifier: Apache-2.0
//
// NVRTC, NVIDIA's compiler as a library, opened at run time: version 12 or 13, wherever a toolkit,
// a Python environment or the loader has it. It works without a driver and without a GPU.

#ifndef BOLIDE_CUDA_NVRTC_H
#define BOLIDE_CUDA_NVRTC_H

#include <bolide/core.h>

enum { BOLIDE__NVRTC_ARCHS = 64, BOLIDE__NVRTC_SEEN = 48 };

typedef struct bolide__nvrtc {
    int major, minor;
    const char *path;
    int arch_count;
    int archs[BOLIDE__NVRTC_ARCHS]; /* 75, 80, …: what it can compile for */
} bolide__nvrtc;

/* The compiler of this process, searched at the first call; a failure is kept and given again with
 * the list of what was looked at. */
bolide_status bolide__nvrtc_open(const char *entry, const bolide__nvrtc **out);
/* The same without an error: NULL if there is none. */
const bolide__nvrtc *bolide__nvrtc_try(void);

/* Everything the search looked at, in order, for `bolide doctor`: path and verdict ("used" or the
 * reason why it was passed over). NULL behind the last. */
typedef struct bolide__nvrtc_place {
    char path[1024];
    char verdict[192];
} bolide__nvrtc_place;

const bolide__nvrtc_place *bolide__nvrtc_seen(int index);

/* One translation unit: root text, the headers it may include by name, options. */
typedef struct bolide__nvrtc_input {
    const char *name; /* for messages: "ops/norm/rmsnorm.cu" */
    const char *text;
    int header_count;
    const char *const *header_names;
    const char *const *header_texts;
    int option_count;
    const char *const *options;
    int ptx; /* 1: PTX, 0: cubin */
} bolide__nvrtc_input;

/* code (freed by the caller with free) is NULL when compilation fails; log is never NULL then. A
 * PTX result ends with a NUL that counts in bytes. */
typedef struct bolide__nvrtc_output {
    char *code;
    size_t bytes;
    char *log;
} bolide__nvrtc_output;

/* BOLIDE_COMPILE_FAILED with out->log for an error in the source; other errors are recorded here.
 * Safe from many threads. */
bolide_status bolide__nvrtc_compile(const char *entry, const bolide__nvrtc_input *in,
                                    bolide__nvrtc_output *out);

/* Used by the search alone: opens one file and fills the table of functions. Returns 1 if it is a
 * compiler that serves a driver of major version driver_major (0: no driver); writes the verdict.
 */
int bolide__nvrtc_load(const char *path, int driver_major, char *verdict, size_t bytes);
/* Calls load on each candidate until one serves. */
int bolide__nvrtc_search(void);

#endif
