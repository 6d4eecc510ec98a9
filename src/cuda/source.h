// SPDX-License-Identifier: Apache-2.0
//
// The device sources inside the library. The set is closed: a kernel compiles from these strings
// alone. With BOLIDE_KERNEL_DIR they are read from a checkout instead, once per process.

#ifndef BOLIDE_CUDA_SOURCE_H
#define BOLIDE_CUDA_SOURCE_H

#include <bolide/core.h>

#include "cuda/hash.h"

/* One embedded file; the text ends with a NUL that does not count in bytes. */
typedef struct bolide__embedded {
    const char *name; /* path below src */
    const char *text;
    const char *end;
} bolide__embedded;

/* The table that the build generates, in order of names. */
extern const bolide__embedded bolide__embedded_sources[];
extern const int bolide__embedded_count;

enum { BOLIDE__MAX_HEADERS = 40 };

/* A kernel file with every file it includes, directly or not. */
typedef struct bolide__source_set {
    const char *name; /* path of the kernel file below src */
    const char *text;
    int header_count;
    const char *header_names[BOLIDE__MAX_HEADERS];
    const char *header_texts[BOLIDE__MAX_HEADERS];
    bolide__hash128 hash; /* of all names and texts */
} bolide__source_set;

/* path is that of a spec: below src/ops or below src/cuda. The set lives as long as the process. */
bolide_status bolide__source_find(const char *entry, const char *path,
                                  const bolide__source_set **out);

#endif
