// SPDX-License-Identifier: Apache-2.0
//
// See device.h.  The driver's functions are declared here as its manual has them, and looked up by
// name, so neither building nor running needs more than the driver's own library.

#include "device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

typedef unsigned long long device_pointer;

enum { STREAM_NON_BLOCKING = 1, CAPTURE_THREAD_LOCAL = 1 };

// X(result and parameters).  Every function returns 0 or the number of an error.
#define DRIVER_LIST(X)                                                                             \
    X(cuDeviceGet, (int *device, int index))                                                       \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                      \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                                                  \
    X(cuCtxSetCurrent, (void *context))                                                            \
    X(cuGetErrorString, (int error, const char **text))                                            \
    X(cuStreamCreate, (void **stream, unsigned flags))                                             \
    X(cuStreamDestroy_v2, (void *stream))                                                          \
    X(cuStreamSynchronize, (void *stream))                                                         \
    X(cuStreamBeginCapture_v2, (void *stream, int mode))                                           \
    X(cuStreamEndCapture, (void *stream, void **graph))                                            \
    X(cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags))           \
    X(cuGraphLaunch, (void *exec, void *stream))                                                   \
    X(cuGraphExecDestroy, (void *exec))                                                            \
    X(cuGraphDestroy, (void *graph))                                                               \
    X(cuMemAlloc_v2, (device_pointer * memory, size_t bytes))                                      \
    X(cuMemFree_v2, (device_pointer memory))                                                       \
    X(cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                               \
    X(cuMemFreeHost, (void *memory))                                                               \
    X(cuMemcpyHtoDAsync_v2, (device_pointer to, const void *from, size_t bytes, void *stream))     \
    X(cuMemcpyDtoHAsync_v2, (void *to, device_pointer from, size_t bytes, void *stream))           \
    X(cuMemcpyDtoDAsync_v2, (device_pointer to, device_pointer from, size_t bytes, void *stream))

struct llm_driver {
#define DRIVER_FIELD(name, params) int(*name) params;
    DRIVER_LIST(DRIVER_FIELD)
#undef DRIVER_FIELD
};

struct llm_graph {
    void *graph, *exec;
};

static device_pointer address(const void *memory) {
    return (device_pointer)(uintptr_t)memory;
}

static bool worked(const llm_driver *api, int result, const char *what, llm_error *error) {
    const char *text = NULL;
    if (result == 0)
        return true;
    if (api->cuGetErrorString(result, &text) != 0 || !text)
        text = "an error that the driver has no words for";
    return llm_fail(error, "%s: %s (%d)", what, text, result);
}

// ---- opening ----------------------------------------------------------------------------------

// Opened once and kept, as the driver cannot be unloaded.  Bolide has found it before, so the
// places are those where Bolide looks.
static llm_driver table;
static const char *missing = "no driver";

static void open_driver(void) {
    static const char *const places[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
                                         "/run/opengl-driver/lib/libcuda.so.1"};
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
#define DRIVER_SYMBOL(name, params) {#name, offsetof(llm_driver, name)},
        DRIVER_LIST(DRIVER_SYMBOL)
#undef DRIVER_SYMBOL
    };
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof places / sizeof places[0]; i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    missing = library ? NULL : "libcuda.so.1";
    for (size_t i = 0; library && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *function = dlsym(library, symbols[i].name);
        if (!function)
            missing = symbols[i].name;
        memcpy((char *)&table + symbols[i].offset, &function, sizeof function);
    }
}

static bool open_gpu(llm_device *d, llm_error *error) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_driver);
    if (missing)
        return llm_fail(error, "the CUDA driver lacks %s", missing);
    if (!worked(&table, table.cuDeviceGet(&d->cuda_device, d->place.index), "cuDeviceGet", error) ||
        !worked(&table, table.cuDevicePrimaryCtxRetain(&d->cuda_context, d->cuda_device),
                "cuDevicePrimaryCtxRetain", error))
        return false;
    d->api = &table;
    return llm_device_enter(d, error) &&
           worked(&table, table.cuStreamCreate(&d->stream, STREAM_NON_BLOCKING), "cuStreamCreate",
                  error);
}

bool llm_device_open(llm_device *d, int64_t index, llm_error *error) {
    const bolide_device_type type = index < 0 ? BOLIDE_CPU : BOLIDE_CUDA;
    *d = (llm_device){.place = {type, index < 0 ? 0 : (int32_t)index}};
    if (llm_ok(bolide_context_create(type, d->place.index, &d->ctx), error) &&
        (type == BOLIDE_CPU || open_gpu(d, error)))
        return true;
    llm_device_close(d);
    return false;
}

void llm_device_close(llm_device *d) {
    if (d->stream)
        (void)d->api->cuStreamDestroy_v2(d->stream);
    if (d->api)
        (void)d->api->cuDevicePrimaryCtxRelease_v2(d->cuda_device);
    bolide_context_destroy(d->ctx);
    *d = (llm_device){.place = {BOLIDE_CPU, 0}};
}

bool llm_device_enter(const llm_device *d, llm_error *error) {
    return !d->api ||
           worked(d->api, d->api->cuCtxSetCurrent(d->cuda_context), "cuCtxSetCurrent", error);
}

// ---- memory -----------------------------------------------------------------------------------

void *llm_device_alloc(const llm_device *d, llm_memory kind, size_t bytes, llm_error *error) {
    const size_t whole = (bytes + 255) / 256 * 256 + (bytes ? 0 : 256);
    void *memory = NULL;
    if (!d->api) {
        memory = aligned_alloc(256, whole);
        if (!memory)
            llm_fail(error, "no memory for %zu bytes", bytes);
    } else if (kind == LLM_MEMORY_HOST) {
        if (!worked(d->api, d->api->cuMemHostAlloc(&memory, whole, 0), "pinned memory", error))
            return NULL;
    } else {
        device_pointer at = 0;
        if (!worked(d->api, d->api->cuMemAlloc_v2(&at, whole), "memory of the GPU", error))
            return NULL;
        memory = (void *)(uintptr_t)at;
    }
    return memory;
}

void llm_device_free(const llm_device *d, llm_memory kind, void *memory) {
    if (!d->api)
        free(memory);
    else if (memory && kind == LLM_MEMORY_HOST)
        (void)d->api->cuMemFreeHost(memory);
    else if (memory)
        (void)d->api->cuMemFree_v2(address(memory));
}

// ---- copies -----------------------------------------------------------------------------------

static void copy_on_host(void *to, const void *from, size_t bytes) {
    if (to != from && bytes > 0)
        memcpy(to, from, bytes);
}

bool llm_device_put(const llm_device *d, void *to, const void *from, size_t bytes,
                    llm_error *error) {
    if (!d->api)
        copy_on_host(to, from, bytes);
    return !d->api || bytes == 0 ||
           worked(d->api, d->api->cuMemcpyHtoDAsync_v2(address(to), from, bytes, d->stream),
                  "a copy to the GPU", error);
}

bool llm_device_get(const llm_device *d, void *to, const void *from, size_t bytes,
                    llm_error *error) {
    if (!d->api)
        copy_on_host(to, from, bytes);
    return !d->api || bytes == 0 ||
           worked(d->api, d->api->cuMemcpyDtoHAsync_v2(to, address(from), bytes, d->stream),
                  "a copy from the GPU", error);
}

bool llm_device_move(const llm_device *d, void *to, const void *from, size_t bytes,
                     llm_error *error) {
    if (!d->api)
        copy_on_host(to, from, bytes);
    return !d->api || bytes == 0 ||
           worked(d->api,
                  d->api->cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, d->stream),
                  "a copy on the GPU", error);
}

bool llm_device_wait(const llm_device *d, llm_error *error) {
    return !d->api || worked(d->api, d->api->cuStreamSynchronize(d->stream), "the GPU", error);
}

// ---- graphs -----------------------------------------------------------------------------------

bool llm_graph_begin(const llm_device *d, llm_error *error) {
    return worked(d->api, d->api->cuStreamBeginCapture_v2(d->stream, CAPTURE_THREAD_LOCAL),
                  "the capture of a step", error);
}

llm_graph *llm_graph_end(const llm_device *d, llm_error *error) {
    llm_graph *g = calloc(1, sizeof *g);
    void *graph = NULL;
    /* The capture ends in any case, as the stream could not be used otherwise. */
    bool ok =
        worked(d->api, d->api->cuStreamEndCapture(d->stream, &graph), "the captured step", error) &&
        (g || llm_fail(error, "no memory for a graph"));
    if (g)
        g->graph = graph;
    else if (graph)
        (void)d->api->cuGraphDestroy(graph);
    if (ok && worked(d->api, d->api->cuGraphInstantiateWithFlags(&g->exec, graph, 0),
                     "the graph of a step", error))
        return g;
    llm_graph_free(d, g);
    return NULL;
}

bool llm_graph_launch(const llm_device *d, const llm_graph *graph, llm_error *error) {
    return worked(d->api, d->api->cuGraphLaunch(graph->exec, d->stream), "the graph of a step",
                  error);
}

void llm_graph_free(const llm_device *d, llm_graph *graph) {
    if (!graph)
        return;
    if (graph->exec)
        (void)d->api->cuGraphExecDestroy(graph->exec);
    if (graph->graph)
        (void)d->api->cuGraphDestroy(graph->graph);
    free(graph);
}
