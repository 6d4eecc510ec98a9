// SPDX-License-Identifier: Apache-2.0
//
// Ceilings of the machine, measured in the same run as what is held against them.

#ifndef BOLIDE_TOOLS_ROOFLINE_H
#define BOLIDE_TOOLS_ROOFLINE_H

#include <bolide/core.h>

typedef struct roofline {
    double read_bytes; /* a second, from memory */
    double flops;      /* a second; 0: not measured */
} roofline;

/* On the CPU: the threads of the context, the instruction set in force. 0, or -1 when memory is
 * short. */
int roofline_cpu(const bolide_context *ctx, roofline *out);

/* Bytes of the last cache of the CPU. */
int64_t roofline_cache(void);
/* Seconds of a clock that does not jump. */
double roofline_now(void);

#endif
