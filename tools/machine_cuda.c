// SPDX-License-Identifier: Apache-2.0
//
// The CUDA side of machine.h: the name of the device and its read ceiling, as the median of several
// passes over a buffer of at least 2 GB or four times the cache, in a replayed graph.

#include "machine.h"

#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "cuda/device.h"
#include "cuda/read_ceiling_internal.h"
#include "device.h"

const char *machine_cuda_name(const bolide_context *ctx) {
    return ctx->cuda->name;
}

static bolide_status launch(const bolide_context *ctx, device *d, uint64_t data, uint64_t sink,
                            int64_t bytes) {
    const bolide__call call = {.ctx = ctx, .stream = device_stream(d), .entry_name = "bench"};
    const bolide__read_params p = {.data = (const void *)(uintptr_t)data,
                                   .sink = (uint32_t *)(uintptr_t)sink,
                                   .vectors = bytes / 16};
    const bolide__spec s = BOLIDE_SPEC("read_ceiling.cu", "bolide_read_ceiling");
    const bolide__grid g = {.x = bolide__cuda_limits_of(ctx)->sm_count * (int64_t)4,
                            .block = BOLIDE__READ_THREADS};
    return bolide__cuda_launch(&call, &s, &g, &p, sizeof p);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of one pass; below 0 on failure. */
static double time_pass(const bolide_context *ctx, device *d, uint64_t data, uint64_t sink,
                        int64_t bytes) {
    enum { PASSES = 15, WARM = 3 };
    double seconds[PASSES];
    char error[256];
    for (int i = -WARM; i < PASSES; i++) {
        if (device_mark(d, 0) || launch(ctx, d, data, sink, bytes) != BOLIDE_OK ||
            device_mark(d, 1) || device_wait(d, error))
            return -1;
        if (i >= 0)
            seconds[i] = device_seconds(d);
    }
    qsort(seconds, PASSES, sizeof seconds[0], compare);
    return seconds[PASSES / 2];
}

int machine_cuda_ceilings(const bolide_context *ctx, int64_t *cache, roofline *out) {
    char error[256];
    int failed;
    *out = (roofline){.flops = 0};
    *cache = bolide__cuda_limits_of(ctx)->l2_bytes;
    device *d = device_open(ctx, error, &failed);
    if (failed)
        return -1;
    const int64_t bytes = 4 * *cache > (int64_t)2 << 30 ? 4 * *cache : (int64_t)2 << 30;
    const uint64_t data = device_alloc(d, bytes), sink = device_alloc(d, 256);
    const double seconds = data && sink ? time_pass(ctx, d, data, sink, bytes) : -1;
    if (data)
        device_free(d, data);
    if (sink)
        device_free(d, sink);
    device_close(d);
    out->read_bytes = seconds > 0 ? (double)bytes / seconds : 0;
    return seconds > 0 ? 0 : -1;
}
