// SPDX-License-Identifier: Apache-2.0
//
// The carver. Alignment of 256 bytes suits device loads and keeps parts of different workers on
// different cache lines.

#include "core/workspace.h"

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define BOLIDE_RED_ZONES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BOLIDE_RED_ZONES 1
#endif
#endif

#ifdef BOLIDE_RED_ZONES
#include <sanitizer/asan_interface.h>
#endif

enum { ALIGN = 256, RED_ZONE = 256 };

static const int64_t saturated = (int64_t)1 << 62;

int64_t bolide__carve_offset(const bolide__carver *c) {
    return c->used;
}

void *bolide__carve(bolide__carver *c, int64_t count, int64_t elem_bytes) {
    if (count < 0 || elem_bytes < 0 || (elem_bytes > 0 && count > saturated / elem_bytes) ||
        c->used >= saturated) {
        c->used = saturated;
        return NULL;
    }
    const int64_t start = c->used;
    const int64_t bytes = (count * elem_bytes + ALIGN - 1) / ALIGN * ALIGN;
    c->used += bytes;
#ifdef BOLIDE_RED_ZONES
    c->used += RED_ZONE;
#endif
    if (!c->base || c->used > c->bytes)
        return NULL;
#ifdef BOLIDE_RED_ZONES
    ASAN_UNPOISON_MEMORY_REGION(c->base + start, (size_t)(count * elem_bytes));
#endif
    return c->base + start;
}
