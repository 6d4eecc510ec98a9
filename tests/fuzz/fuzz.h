// SPDX-License-Identifier: Apache-2.0
//
// What every fuzz target defines.

#ifndef BOLIDE_TESTS_FUZZ_H
#define BOLIDE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Returns 0; aborts, or is stopped by a sanitizer, when it finds a fault. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
