// SPDX-License-Identifier: Apache-2.0
//
// The driver's calls behind device.h. Everything runs on one stream of our own, in the context that
// the library holds for the device; a call that fails is told to the caller, who knows what it was.

#include "device.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/context.h"
#include "cuda/device.h"

struct device {
    const struct bolide__cuda_device *cuda;
    CUstream stream;
    CUevent mark[2];
};

typedef struct graph {
    CUgraph graph;
    CUgraphExec exec;
} graph;

static int enter(const device *d, bolide__scope *scope) {
    return bolide__scope_enter("driver", d->cuda, scope) == BOLIDE_OK ? 0 : -1;
}

/* ---- opening ------------------------------------------------------------------------------ */

static int make_stream(device *d) {
    const bolide__driver *cu = d->cuda->driver;
    return cu->cuStreamCreate(&d->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
           cu->cuEventCreate(&d->mark[0], 0) != CUDA_SUCCESS ||
           cu->cuEventCreate(&d->mark[1], 0) != CUDA_SUCCESS;
}

device *device_open(const bolide_context *ctx, char *error, int *failed) {
    bolide__scope scope;
    *failed = 0;
    if (!ctx || ctx->device.type == BOLIDE_CPU)
        return NULL;
    *failed = 1;
    (void)snprintf(error, 256, "the device has no driver, or no stream could be made");
    device *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->cuda = ctx->cuda;
    if (!d->cuda->driver || enter(d, &scope)) {
        free(d);
        return NULL;
    }
    *failed = make_stream(d);
    bolide__scope_leave(&scope);
    if (*failed) {
        device_close(d);
        return NULL;
    }
    return d;
}

void device_close(device *d) {
    bolide__scope scope;
    if (!d)
        return;
    if (!enter(d, &scope)) {
        const bolide__driver *cu = d->cuda->driver;
        for (int i = 0; i < 2; i++)
            if (d->mark[i])
                (void)cu->cuEventDestroy_v2(d->mark[i]);
        if (d->stream)
            (void)cu->cuStreamDestroy_v2(d->stream);
        bolide__scope_leave(&scope);
    }
    free(d);
}

bolide_stream device_stream(const device *d) {
    return d ? (bolide_stream)d->stream : NULL;
}

/* ---- memory ------------------------------------------------------------------------------- */

uint64_t device_alloc(device *d, int64_t bytes) {
    bolide__scope scope;
    CUdeviceptr memory = 0;
    if (enter(d, &scope))
        return 0;
    if (d->cuda->driver->cuMemAlloc_v2(&memory, (size_t)(bytes > 0 ? bytes : 1)) != CUDA_SUCCESS)
        memory = 0;
    bolide__scope_leave(&scope);
    return memory;
}

void device_free(device *d, uint64_t address) {
    bolide__scope scope;
    if (enter(d, &scope))
        return;
    (void)d->cuda->driver->cuMemFree_v2(address);
    bolide__scope_leave(&scope);
}

void *device_pinned(device *d, int64_t bytes) {
    bolide__scope scope;
    void *memory = NULL;
    if (enter(d, &scope))
        return NULL;
    if (d->cuda->driver->cuMemHostAlloc(&memory, (size_t)(bytes > 0 ? bytes : 1), 0) !=
        CUDA_SUCCESS)
        memory = NULL;
    bolide__scope_leave(&scope);
    return memory;
}

void device_pinned_free(device *d, void *memory) {
    bolide__scope scope;
    if (enter(d, &scope))
        return;
    (void)d->cuda->driver->cuMemFreeHost(memory);
    bolide__scope_leave(&scope);
}

int device_put(device *d, uint64_t to, const void *from, int64_t bytes) {
    bolide__scope scope;
    if (bytes == 0)
        return 0;
    if (enter(d, &scope))
        return -1;
    const bolide__driver *cu = d->cuda->driver;
    const int bad = cu->cuMemcpyHtoDAsync_v2(to, from, (size_t)bytes, d->stream) != CUDA_SUCCESS ||
                    cu->cuStreamSynchronize(d->stream) != CUDA_SUCCESS;
    bolide__scope_leave(&scope);
    return bad ? -1 : 0;
}

int device_get(device *d, void *to, uint64_t from, int64_t bytes) {
    bolide__scope scope;
    if (bytes == 0)
        return 0;
    if (enter(d, &scope))
        return -1;
    const bolide__driver *cu = d->cuda->driver;
    const int bad = cu->cuMemcpyDtoHAsync_v2(to, from, (size_t)bytes, d->stream) != CUDA_SUCCESS ||
                    cu->cuStreamSynchronize(d->stream) != CUDA_SUCCESS;
    bolide__scope_leave(&scope);
    return bad ? -1 : 0;
}

int device_wait(device *d, char *error) {
    bolide__scope scope;
    if (!d || enter(d, &scope))
        return d ? -1 : 0;
    const CUresult result = d->cuda->driver->cuStreamSynchronize(d->stream);
    if (result != CUDA_SUCCESS)
        (void)bolide__driver_text(d->cuda->driver, result, error, 256);
    bolide__scope_leave(&scope);
    return result == CUDA_SUCCESS ? 0 : -1;
}

/* ---- graphs ------------------------------------------------------------------------------- */

int device_capture_begin(device *d) {
    bolide__scope scope;
    if (enter(d, &scope))
        return -1;
    const CUresult result =
        d->cuda->driver->cuStreamBeginCapture_v2(d->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    bolide__scope_leave(&scope);
    return result == CUDA_SUCCESS ? 0 : -1;
}

void *device_capture_end(device *d) {
    bolide__scope scope;
    graph *g = calloc(1, sizeof *g);
    if (!g || enter(d, &scope)) {
        free(g);
        return NULL;
    }
    const bolide__driver *cu = d->cuda->driver;
    const int bad = cu->cuStreamEndCapture(d->stream, &g->graph) != CUDA_SUCCESS || !g->graph ||
                    cu->cuGraphInstantiateWithFlags(&g->exec, g->graph, 0) != CUDA_SUCCESS;
    bolide__scope_leave(&scope);
    if (bad) {
        device_graph_free(d, g);
        return NULL;
    }
    return g;
}

int device_graph_launch(device *d, void *captured) {
    bolide__scope scope;
    const graph *g = captured;
    if (enter(d, &scope))
        return -1;
    const CUresult result = d->cuda->driver->cuGraphLaunch(g->exec, d->stream);
    bolide__scope_leave(&scope);
    return result == CUDA_SUCCESS ? 0 : -1;
}

void device_graph_free(device *d, void *captured) {
    bolide__scope scope;
    graph *g = captured;
    if (!g)
        return;
    if (!enter(d, &scope)) {
        if (g->exec)
            (void)d->cuda->driver->cuGraphExecDestroy(g->exec);
        if (g->graph)
            (void)d->cuda->driver->cuGraphDestroy(g->graph);
        bolide__scope_leave(&scope);
    }
    free(g);
}

/* ---- time --------------------------------------------------------------------------------- */

int device_mark(device *d, int which) {
    bolide__scope scope;
    if (enter(d, &scope))
        return -1;
    const CUresult result = d->cuda->driver->cuEventRecord(d->mark[which], d->stream);
    bolide__scope_leave(&scope);
    return result == CUDA_SUCCESS ? 0 : -1;
}

double device_seconds(device *d) {
    bolide__scope scope;
    float milliseconds = -1;
    if (enter(d, &scope))
        return -1;
    if (d->cuda->driver->cuEventElapsedTime(&milliseconds, d->mark[0], d->mark[1]) != CUDA_SUCCESS)
        milliseconds = -1;
    bolide__scope_leave(&scope);
    return 1e-3 * (double)milliseconds;
}
