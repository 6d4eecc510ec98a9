// SPDX-License-Identifier: Apache-2.0
//
// Carves a caller's workspace into aligned parts. The same sequence of calls serves the size query
// (base NULL: pointers come out NULL, only the total counts) and the plan or run, so the two
// cannot disagree. Sanitizer builds put a red zone behind each part.

#ifndef BOLIDE_CORE_WORKSPACE_H
#define BOLIDE_CORE_WORKSPACE_H

#include <stdint.h>

typedef struct bolide__carver {
    char *base;    /* NULL: count only */
    int64_t bytes; /* at hand */
    int64_t used;  /* so far, also past bytes */
} bolide__carver;

static inline bolide__carver bolide__carve_begin(void *base, int64_t bytes) {
    return (bolide__carver){.base = (char *)base, .bytes = bytes, .used = 0};
}

/* The next part, aligned to 256 bytes; NULL when counting or when it does not fit. A count below
 * 0 or a product past 2^62 saturates, so that the size check fails instead of wrapping. */
void *bolide__carve(bolide__carver *c, int64_t count, int64_t elem_bytes);

/* Offset that the next part will have: plans store offsets, never pointers. */
int64_t bolide__carve_offset(const bolide__carver *c);

#endif
