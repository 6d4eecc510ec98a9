// SPDX-License-Identifier: Apache-2.0
//
// How often the program and the library have allocated memory.

#ifndef BOLIDE_TESTS_ALLOC_COUNT_H
#define BOLIDE_TESTS_ALLOC_COUNT_H

#include <stdint.h>

int64_t alloc_count(void);

#endif
