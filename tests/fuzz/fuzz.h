// SPDX-License-Identifier: Apache-2.0
//
// What every fuzz target defines, and the context that those on operators share.

#ifndef BOLIDE_TESTS_FUZZ_H
#define BOLIDE_TESTS_FUZZ_H

#include <stdlib.h>

#include <bolide/core.h>

/* Returns 0; aborts, or is stopped by a sanitizer, when it finds a fault. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One thread: a team for a tensor of this size would cost more than the call. */
static inline bolide_context *fuzz_context(void) {
    static bolide_context *ctx;
    if (!ctx && (bolide_context_create(BOLIDE_CPU, 0, &ctx) != BOLIDE_OK ||
                 bolide_context_set(ctx, BOLIDE_THREADS, 1) != BOLIDE_OK))
        abort();
    return ctx;
}

#endif
