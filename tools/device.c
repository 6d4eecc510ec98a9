// SPDX-License-Identifier: Apache-2.0
//
// The CPU's side: no mirrors, pinned memory is plain memory, nothing to wait for.

#include "device.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/context.h"

device *device_open(const bolide_context *ctx, char *error, int *failed) {
    *failed = ctx && ctx->device.type != BOLIDE_CPU;
    if (*failed)
        (void)snprintf(error, 256, "the driver runs on the CPU only");
    return NULL;
}
void device_close(device *d) {
    (void)d;
}
bolide_stream device_stream(const device *d) {
    (void)d;
    return NULL;
}
uint64_t device_alloc(device *d, int64_t bytes) {
    (void)d;
    (void)bytes;
    return 0;
}
void device_free(device *d, uint64_t address) {
    (void)d;
    (void)address;
}
void *device_pinned(device *d, int64_t bytes) {
    (void)d;
    return malloc((size_t)bytes);
}
void device_pinned_free(device *d, void *memory) {
    (void)d;
    free(memory);
}
int device_put(device *d, uint64_t to, const void *from, int64_t bytes) {
    (void)d;
    (void)to;
    (void)from;
    (void)bytes;
    return -1;
}
int device_get(device *d, void *to, uint64_t from, int64_t bytes) {
    (void)d;
    (void)to;
    (void)from;
    (void)bytes;
    return -1;
}
int device_wait(device *d, char *error) {
    (void)d;
    (void)error;
    return 0;
}
int device_capture_begin(device *d) {
    (void)d;
    return -1;
}
void *device_capture_end(device *d) {
    (void)d;
    return NULL;
}
int device_graph_launch(device *d, void *graph) {
    (void)d;
    (void)graph;
    return -1;
}
void device_graph_free(device *d, void *graph) {
    (void)d;
    (void)graph;
}
int device_mark(device *d, int which) {
    (void)d;
    (void)which;
    return -1;
}
double device_seconds(device *d) {
    (void)d;
    return -1;
}
