// SPDX-License-Identifier: Apache-2.0
//
// Ceilings of the machine, measured in the same run as what is held against them; on the CPU by
// cpu/roofline.h, between the samples of what they are held against.

#ifndef BOLIDE_TOOLS_ROOFLINE_H
#define BOLIDE_TOOLS_ROOFLINE_H

#include <stdint.h>

typedef struct roofline {
    double read_bytes; /* a second, from memory */
    double flops;      /* a second; 0: not measured */
} roofline;

/* Bytes of the last cache of the CPU. */
int64_t roofline_cache(void);
/* Seconds of a clock that does not jump. */
double roofline_now(void);

#endif
