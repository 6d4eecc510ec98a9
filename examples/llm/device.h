// SPDX-License-Identifier: Apache-2.0
//
// Memory, copies and graphs where the engine computes: on the CPU, or on a CUDA device.  Bolide
// leaves memory to its callers, so an engine that has no toolkit takes it from the driver, which is
// opened at run time; this file is all that takes.  On the CPU memory is the host's, a copy is a
// memcpy, and there are no graphs.
//
// Work on a CUDA device is ordered by one stream.  Host memory that takes part in a copy must stay
// as it is until llm_device_wait.
#ifndef BOLIDE_LLM_DEVICE_H
#define BOLIDE_LLM_DEVICE_H

#include <bolide/bolide.h>

#include "error.h"

typedef struct llm_driver llm_driver;

typedef struct {
    bolide_device place;  // of tensors that the device reads
    bolide_context *ctx;  // of Bolide, for the same device
    bolide_stream stream; // NULL on the CPU
    void *cuda_context;   // the primary context, which Bolide shares
    int cuda_device;
    const llm_driver *api; // NULL: the CPU
} llm_device;

// index -1: the CPU; else that CUDA device.  On failure nothing is left open.
bool llm_device_open(llm_device *d, int64_t index, llm_error *error);
// All memory and graphs have been freed.
void llm_device_close(llm_device *d);
// Makes the device current for the calling thread.
bool llm_device_enter(const llm_device *d, llm_error *error);

static inline bool llm_on_gpu(const llm_device *d) {
    return d->api != NULL;
}

typedef enum {
    LLM_MEMORY_DEVICE,
    LLM_MEMORY_HOST // pinned for a CUDA device, so that copies need not wait
} llm_memory;

// At least one byte, aligned to 256; NULL with a sentence on failure.
void *llm_device_alloc(const llm_device *d, llm_memory kind, size_t bytes, llm_error *error);
void llm_device_free(const llm_device *d, llm_memory kind, void *memory);

bool llm_device_put(const llm_device *d, void *to, const void *from, size_t bytes,
                    llm_error *error);
bool llm_device_get(const llm_device *d, void *to, const void *from, size_t bytes,
                    llm_error *error);
bool llm_device_move(const llm_device *d, void *to, const void *from, size_t bytes,
                     llm_error *error);
// Waits for the stream.
bool llm_device_wait(const llm_device *d, llm_error *error);

// The calls between begin and end become a graph instead of being run; end gives NULL with a
// sentence where they could not.  Only on a CUDA device.
typedef struct llm_graph llm_graph;
bool llm_graph_begin(const llm_device *d, llm_error *error);
llm_graph *llm_graph_end(const llm_device *d, llm_error *error);
bool llm_graph_launch(const llm_device *d, const llm_graph *graph, llm_error *error);
void llm_graph_free(const llm_device *d, llm_graph *graph);

#endif
