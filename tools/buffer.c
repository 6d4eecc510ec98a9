// SPDX-License-Identifier: Apache-2.0
//
// Guarded host buffers.

#include "buffer.h"

#include <stdlib.h>
#include <string.h>

/* Bytes A5 FF: as f16, bf16 and f32 a NaN with a payload that no operation makes. */
void buffer_pattern(unsigned char *to, int64_t bytes) {
    memset(to, 0xff, (size_t)bytes);
    for (int64_t i = 0; i < bytes; i += 2)
        to[i] = 0xa5;
}

int64_t buffer_total(int64_t bytes) {
    return bytes + 2 * BUFFER_GUARD;
}

unsigned char *buffer_begin(unsigned char *data) {
    return data - BUFFER_GUARD;
}

/* aligned_alloc wants a multiple of the alignment. */
static int64_t rounded_total(int64_t bytes) {
    return (buffer_total(bytes) + 63) / 64 * 64;
}

unsigned char *buffer_untouched(int64_t bytes) {
    unsigned char *base = bytes < 0 ? NULL : aligned_alloc(64, (size_t)rounded_total(bytes));
    return base ? base + BUFFER_GUARD : NULL;
}

unsigned char *buffer_make(int64_t bytes) {
    unsigned char *data = buffer_untouched(bytes);
    if (data)
        buffer_pattern(buffer_begin(data), rounded_total(bytes));
    return data;
}

void buffer_free(unsigned char *data) {
    if (data)
        free(data - BUFFER_GUARD);
}

static int is_pattern(const unsigned char *from, int64_t first, int64_t bytes) {
    for (int64_t i = first; i < first + bytes; i++)
        if (from[i] != (i % 2 ? 0xff : 0xa5))
            return 0;
    return 1;
}

int buffer_intact(const unsigned char *data, int64_t bytes) {
    const unsigned char *base = data - BUFFER_GUARD;
    return is_pattern(base, 0, BUFFER_GUARD) &&
           is_pattern(base, BUFFER_GUARD + bytes, BUFFER_GUARD);
}
