// SPDX-License-Identifier: Apache-2.0
//
// Host memory between guards. Guards and gaps hold a pattern that is NaN as f16, bf16 and f32, so
// that a read outside shows in the result and a write outside shows in the guard.

#ifndef BOLIDE_TOOLS_BUFFER_H
#define BOLIDE_TOOLS_BUFFER_H

#include <stdint.h>

enum { BUFFER_GUARD = 256 };

/* `bytes` of memory aligned to 64 with a guard on each side, all of it the pattern. NULL when
 * memory is short. The address is that of the data. */
unsigned char *buffer_make(int64_t bytes);
/* The same with nothing in it, for memory that nobody looks at: pages then cost nothing. */
unsigned char *buffer_untouched(int64_t bytes);
void buffer_free(unsigned char *data);
/* Bytes with the guards, and where they begin. */
int64_t buffer_total(int64_t bytes);
unsigned char *buffer_begin(unsigned char *data);
/* 1 if both guards still hold the pattern. */
int buffer_intact(const unsigned char *data, int64_t bytes);
/* The pattern at an even address. */
void buffer_pattern(unsigned char *to, int64_t bytes);

#endif
