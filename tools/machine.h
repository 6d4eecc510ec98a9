// SPDX-License-Identifier: Apache-2.0
//
// Names of what a measurement was made on, and its CUDA ceilings.

#ifndef BOLIDE_TOOLS_MACHINE_H
#define BOLIDE_TOOLS_MACHINE_H

#include <bolide/core.h>

#include "roofline.h"

/* Name of the device of a context: "Intel(R) Xeon(R) Platinum 8481C", "NVIDIA H200". */
void machine_name(const bolide_context *ctx, char *text, size_t bytes);
/* Short hash of the checkout that the tool was built from, with + behind it if it has changes that
 * are not committed; "unknown" without one. */
void machine_commit(char *text, size_t bytes);
/* The CUDA part of machine_name. */
const char *machine_cuda_name(const bolide_context *ctx);
/* Size of the last cache and the rate of reading memory. 0, or -1 with the library's error. */
int machine_cuda_ceilings(const bolide_context *ctx, int64_t *cache, roofline *out);

#endif
