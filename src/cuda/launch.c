// SPDX-License-Identifier: Apache-2.0
//
// The last step of every operator on the GPU: find the kernel, launch it. On a warm cache this is a
// table lookup, one check of the current context and cuLaunchKernelEx; nothing is allocated,
// queried or waited for, so the call can be captured in a graph.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/env.h"
#include "core/rows_internal.h"
#include "cuda/device.h"

enum { MAX_GRID_YZ = 65535, MAX_PARAMS = 4096, MUCH_SHARED = 32768 };

static bolide_status fail_grid(const bolide__call *call, const bolide__kernel *k,
                               const bolide__grid *g, size_t params_bytes) {
    char spec[BOLIDE__SPEC_TEXT];
    bolide__spec_text(&k->spec, spec);
    if (g->shared > k->shared_dynamic)
        return bolide__fail(BOLIDE_UNSUPPORTED, call->entry_name,
                            "%s needs %d bytes of dynamic shared memory a block; this device has "
                            "%d",
                            spec, g->shared, k->shared_dynamic);
    if (g->block > k->max_threads || g->block < 1)
        return bolide__fail(BOLIDE_UNSUPPORTED, call->entry_name,
                            "%s with %d threads a block; 1 to %d can run", spec, g->block,
                            k->max_threads);
    if (k->params_bytes && k->params_bytes != params_bytes)
        return bolide__fail(BOLIDE_INTERNAL, call->entry_name,
                            "%s takes %zu bytes of parameters; the host passes %zu", spec,
                            k->params_bytes, params_bytes);
    return bolide__fail(BOLIDE_UNSUPPORTED, call->entry_name,
                        "%s with a grid of %lld x %lld x %lld blocks and %zu bytes of parameters; "
                        "at most 2147483647 x 65535 x 65535 and %d can run",
                        spec, (long long)g->x, (long long)g->y, (long long)g->z, params_bytes,
                        MAX_PARAMS);
}

static int fits(const bolide__kernel *k, const bolide__grid *g, size_t params_bytes) {
    return g->x <= INT32_MAX && g->y <= MAX_GRID_YZ && g->z <= MAX_GRID_YZ && g->y >= 0 &&
           g->z >= 0 && g->block >= 1 && g->block <= k->max_threads && g->shared >= 0 &&
           g->shared <= k->shared_dynamic && params_bytes <= MAX_PARAMS &&
           (!k->params_bytes || k->params_bytes == params_bytes);
}

/* A kernel for a chip below 9.0 has no instruction that waits for its predecessor, so there the
 * attribute would be a race. */
static int is_dependent(const struct bolide__cuda_device *device, const bolide__grid *g) {
    return g->dependent && device->target.arch >= 90 &&
           (g->dependent == BOLIDE__BEHIND_OWN || !bolide__environment()->apart);
}

int bolide__cuda_few(int64_t bytes) {
    return !bolide__is_few(bytes) ? 0 : bolide__environment()->apart ? 1 : 2;
}

static void log_launch(const bolide__call *call, const bolide__kernel *k, const bolide__grid *g) {
    char spec[BOLIDE__SPEC_TEXT];
    bolide__log(BOLIDE__LOG_DISPATCH,
                "%s: %s: grid %lld x %lld x %lld, block %d, shared %d, cluster %d%s",
                call->entry_name, bolide__spec_text(&k->spec, spec), (long long)g->x,
                (long long)(g->y ? g->y : 1), (long long)(g->z ? g->z : 1), g->block, g->shared,
                g->cluster ? g->cluster : 1, is_dependent(call->ctx->cuda, g) ? ", dependent" : "");
}

static void remember(struct bolide__cuda_device *device, const bolide__call *call,
                     const bolide__kernel *k, const bolide__grid *g) {
    bolide__last_launch *last = &device->last;
    const int names = call->program ? call->program->name_count : 0;
    for (int i = 0; i < names; i++)
        atomic_store_explicit(&last->dims[i], call->dims[i], memory_order_relaxed);
    atomic_store_explicit(&last->program, call->program, memory_order_relaxed);
    atomic_store_explicit(&last->kernel, k, memory_order_relaxed);
    atomic_store_explicit(&last->grid_x, g->x, memory_order_relaxed);
    atomic_store_explicit(&last->grid_y, g->y ? g->y : 1, memory_order_relaxed);
    atomic_store_explicit(&last->grid_z, g->z ? g->z : 1, memory_order_relaxed);
    atomic_store_explicit(&last->block, g->block, memory_order_relaxed);
    atomic_store_explicit(&last->op, call->op, memory_order_release);
}

static CUresult launch(const struct bolide__cuda_device *device, const bolide__call *call,
                       const bolide__kernel *k, const bolide__grid *g, const void *params) {
    CUlaunchAttribute attributes[2];
    unsigned count = 0;
    if (g->cluster > 1) {
        attributes[count] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
        attributes[count].value.clusterDim.x = (unsigned)g->cluster;
        attributes[count].value.clusterDim.y = 1;
        attributes[count].value.clusterDim.z = 1;
        count++;
    }
    if (is_dependent(device, g)) {
        attributes[count] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
        attributes[count].value.programmaticStreamSerializationAllowed = 1;
        count++;
    }
    const CUlaunchConfig config = {.gridDimX = (unsigned)g->x,
                                   .gridDimY = g->y ? (unsigned)g->y : 1,
                                   .gridDimZ = g->z ? (unsigned)g->z : 1,
                                   .blockDimX = (unsigned)g->block,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = (unsigned)g->shared,
                                   .hStream = (CUstream)call->stream,
                                   .attrs = attributes,
                                   .numAttrs = count};
    void *list[] = {(void *)(uintptr_t)params};
    return device->driver->cuLaunchKernelEx(&config, k->function, list, NULL);
}

/* A dry device notes the spec, once, with the most shared memory it is asked for. */
static bolide_status gather(const bolide__call *call, struct bolide__cuda_device *device,
                            const bolide__spec *s, const bolide__grid *g) {
    bolide_status status = BOLIDE_OK;
    pthread_mutex_lock(&device->lock);
    bolide__job_node *job = device->jobs;
    while (job && !bolide__spec_same(&job->spec, s))
        job = job->next;
    if (!job) {
        job = calloc(1, sizeof *job);
        if (!job || !bolide__spec_copy(&job->spec, s)) {
            free(job);
            job = NULL;
            status = bolide__fail(BOLIDE_OUT_OF_MEMORY, call->entry_name, "no memory for a spec");
        } else {
            snprintf(job->entry, sizeof job->entry, "%s", call->entry_name);
            job->next = device->jobs;
            device->jobs = job;
        }
    }
    if (job && g->shared > job->shared_bytes)
        job->shared_bytes = g->shared;
    pthread_mutex_unlock(&device->lock);
    return status;
}

bolide_status bolide__cuda_launch(const bolide__call *call, const bolide__spec *s,
                                  const bolide__grid *g, const void *params, size_t params_bytes) {
    struct bolide__cuda_device *device = call->ctx->cuda;
    if (g->x == 0)
        return BOLIDE_OK;
    if (s->count > BOLIDE__SPEC_KEYS)
        return bolide__fail(BOLIDE_INTERNAL, call->entry_name, "%s: %d keys; at most %d fit",
                            s->function, s->count, BOLIDE__SPEC_KEYS);
    if (!device->driver)
        return gather(call, device, s, g);
    bolide__kernel *k = bolide__kernel_find(device, s);
    if (!k) {
        BOLIDE_TRY(bolide__kernel_make(call, device, s, &k));
        if (g->shared >= MUCH_SHARED)
            BOLIDE_TRY(bolide__kernel_prefer_shared(call->entry_name, device, k));
    }
    if (!fits(k, g, params_bytes))
        return fail_grid(call, k, g, params_bytes);
    if (bolide__log_on(BOLIDE__LOG_DISPATCH))
        log_launch(call, k, g);
    bolide__scope scope;
    BOLIDE_TRY(bolide__scope_enter(call->entry_name, device, &scope));
    const CUresult r = launch(device, call, k, g, params);
    bolide__scope_leave(&scope);
    if (r != CUDA_SUCCESS)
        return bolide__device_fail(device, call->entry_name, "cuLaunchKernelEx", r);
    remember(device, call, k, g);
    return BOLIDE_OK;
}
