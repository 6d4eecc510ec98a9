// SPDX-License-Identifier: Apache-2.0
//
// From a spec to machine code: the cache on disk, else the compiler.

#ifndef BOLIDE_CUDA_BUILD_H
#define BOLIDE_CUDA_BUILD_H

#include "cuda/cache.h"
#include "cuda/spec.h"

typedef enum bolide__origin { BOLIDE__COMPILED, BOLIDE__FROM_DISK } bolide__origin;

/* What build may do. */
enum bolide__build_flags {
    BOLIDE__BUILD_DISK_ONLY = 1, /* no compilation: BOLIDE_NOT_WARM without a message on a miss */
    BOLIDE__BUILD_FRESH = 2      /* do not read the disk: what is there did not load */
};

typedef struct bolide__build_info {
    bolide__origin origin;
    double seconds;
    char hash[33];
    char target[BOLIDE__TARGET_TEXT]; /* where the compiler does not know the wanted one */
} bolide__build_info;

/* out->code is the caller's. info may be NULL. Safe from many threads. */
bolide_status bolide__build(const char *entry, bolide__target target, const bolide__spec *s,
                            uint32_t flags, bolide__binary *out, bolide__build_info *info);

#endif
