// SPDX-License-Identifier: Apache-2.0
//
// Memory, copies, captured graphs and timing on a CUDA device, through the driver that the library
// opens. A NULL device is the CPU: it has no stream, nothing to wait for and no graph to free, and
// is given to no other function.

#ifndef BOLIDE_TOOLS_DEVICE_H
#define BOLIDE_TOOLS_DEVICE_H

#include <bolide/core.h>

typedef struct device device;

/* For a CUDA context; NULL for a CPU context, or with an error sentence (256 bytes) on failure,
 * when *failed is 1. */
device *device_open(const bolide_context *ctx, char *error, int *failed);
void device_close(device *d);
bolide_stream device_stream(const device *d);

/* Device memory; 0 on failure. */
uint64_t device_alloc(device *d, int64_t bytes);
void device_free(device *d, uint64_t address);
/* Pinned host memory; NULL on failure. */
void *device_pinned(device *d, int64_t bytes);
void device_pinned_free(device *d, void *memory);
/* Synchronous. 0 on success. */
int device_put(device *d, uint64_t to, const void *from, int64_t bytes);
int device_get(device *d, void *to, uint64_t from, int64_t bytes);
/* Waits for everything; -1 with the driver's words (256 bytes) after a fault. */
int device_wait(device *d, char *error);

/* A graph of the calls between begin and end. */
int device_capture_begin(device *d);
void *device_capture_end(device *d); /* NULL on failure */
int device_graph_launch(device *d, void *graph);
void device_graph_free(device *d, void *graph);

/* Seconds on the device between two marks in the stream. */
int device_mark(device *d, int which); /* 0 or 1 */
double device_seconds(device *d);

#endif
