// SPDX-License-Identifier: Apache-2.0
//
// What a call needs beside its tensors: workspace, staging and plan, each exactly as large as the
// operator asks for, between guards, and full of garbage.

#ifndef BOLIDE_TOOLS_SCRATCH_H
#define BOLIDE_TOOLS_SCRATCH_H

#include "case.h"
#include "device.h"

typedef struct driver_scratch {
    bolide_sizes sizes;
    bolide_workspace workspace;
    unsigned char *part[3]; /* device, device_int and pinned; host memory on the CPU */
    uint64_t mirror[2];     /* device and device_int on a CUDA device */
    unsigned char *plan;
} driver_scratch;

/* Asks for the sizes, allocates, and points the workspace and plan rows of c there. 0, or -1 with
 * c->error set or, if the query failed, with *status and the library's own error. */
int scratch_make(driver_case *c, const bolide_context *ctx, device *d, driver_scratch *s,
                 bolide_status *status);
void scratch_free(driver_scratch *s, device *d);
/* Fills the parts that carry nothing from one run to the next with garbage. */
void scratch_soil(driver_scratch *s, device *d);
/* 0, or -1 with the name of the part whose guard was written. */
int scratch_intact(driver_scratch *s, device *d, char *why, size_t bytes);

#endif
