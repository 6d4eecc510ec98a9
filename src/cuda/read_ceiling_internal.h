// SPDX-License-Identifier: Apache-2.0
//
// Parameters of the kernel that measures how fast a device reads its memory.

#ifndef BOLIDE_CUDA_READ_CEILING_INTERNAL_H
#define BOLIDE_CUDA_READ_CEILING_INTERNAL_H

#ifndef __CUDACC_RTC__
#include <stdint.h>
#endif

enum { BOLIDE__READ_THREADS = 512 };

typedef struct bolide__read_params {
    const void *data; /* [vectors] of 16 bytes */
    uint32_t *sink;   /* one word, written if the data has a certain sum: so no load is left out */
    int64_t vectors;
} bolide__read_params;

#endif
