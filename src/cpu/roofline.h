// SPDX-License-Identifier: Apache-2.0
//
// What a CPU can do at most, as loops that do nothing else: reading memory and fused multiply-adds
// in f32. `bolide bench` times them under the instruction set in force; operators do not use them.

#ifndef BOLIDE_CPU_ROOFLINE_H
#define BOLIDE_CPU_ROOFLINE_H

#include "cpu/cpu.h"

enum {
    BOLIDE__ROOFLINE_BLOCK = 65536,         /* floats that an item of the read loop reads */
    BOLIDE__ROOFLINE_FLOPS = 24 * 32 * 4096 /* operations of an item of the multiply-add loop */
};

/* Both take a bolide__roofline; items are blocks of the buffer, or units of work. */
typedef struct bolide__roofline {
    const float *buffer; /* of the read loop */
    float *sink;         /* one element a worker, so that no loop can be left out */
} bolide__roofline;

BOLIDE_CPU_KERNEL(roofline_read, (void *arg, int64_t begin, int64_t end, int worker));
BOLIDE_CPU_KERNEL(roofline_fma, (void *arg, int64_t begin, int64_t end, int worker));

#endif
