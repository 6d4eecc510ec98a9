// SPDX-License-Identifier: Apache-2.0
//
// The kernels of a device in memory. Launches find theirs in a hash table that is read without a
// lock: slots are published once and never change, and a table that has grown leaves its
// predecessor behind for readers still in it. Making a kernel is serialised per spec, not per
// device: different specs compile side by side, and a second thread waits for the first.

#include <stdlib.h>
#include <string.h>

#include "core/env.h"
#include "core/problem_log.h"
#include "cuda/build.h"
#include "cuda/device.h"

enum { FIRST_SLOTS = 256 };

int bolide__spec_copy(bolide__spec *to, const bolide__spec *from) {
    *to = (bolide__spec){.count = from->count};
    to->source = strdup(from->source);
    to->function = strdup(from->function);
    int ok = to->source && to->function;
    for (int32_t i = 0; i < from->count; i++) {
        to->key[i] = strdup(from->key[i]);
        to->value[i] = from->value[i];
        ok = ok && to->key[i];
    }
    if (from->user_source) {
        to->user_source = strdup(from->user_source);
        ok = ok && to->user_source;
    }
    if (!ok)
        bolide__spec_free(to);
    return ok;
}

void bolide__spec_free(bolide__spec *s) {
    free((char *)s->source);
    free((char *)s->function);
    free((char *)s->user_source);
    for (int32_t i = 0; i < s->count; i++)
        free((char *)s->key[i]);
    *s = (bolide__spec){0};
}

bolide__kernel *bolide__kernel_find(const struct bolide__cuda_device *device,
                                    const bolide__spec *s) {
    const bolide__table *table = atomic_load_explicit(&device->table, memory_order_acquire);
    if (!table)
        return NULL;
    const uint64_t hash = bolide__spec_hash(s);
    for (uint64_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        const bolide__site *site = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (!site)
            return NULL;
        if (site->hash == hash && bolide__spec_identical(&site->spec, s))
            return site->kernel;
    }
}

static void put(bolide__table *table, bolide__site *site) {
    uint64_t i = site->hash & table->mask;
    while (atomic_load_explicit(&table->slots[i], memory_order_relaxed))
        i = (i + 1) & table->mask;
    atomic_store_explicit(&table->slots[i], site, memory_order_release);
    table->used++;
}

/* A table with room for one more, at most half full so that a search always ends. */
static bolide__table *table_with_room(struct bolide__cuda_device *device) {
    bolide__table *old = atomic_load_explicit(&device->table, memory_order_relaxed);
    if (old && 2 * (old->used + 1) <= old->mask + 1)
        return old;
    const uint64_t size = old ? 2 * (old->mask + 1) : FIRST_SLOTS;
    bolide__table *table = calloc(1, sizeof *table + size * sizeof table->slots[0]);
    if (!table)
        return NULL;
    table->mask = size - 1;
    table->older = old;
    for (bolide__site *site = device->sites; site; site = site->next)
        put(table, site);
    atomic_store_explicit(&device->table, table, memory_order_release);
    return table;
}

/* Under the lock. Without memory the kernel still works, found through the slow path. */
static void add_slot(struct bolide__cuda_device *device, const bolide__spec *s,
                     bolide__kernel *kernel) {
    if (bolide__kernel_find(device, s))
        return;
    bolide__table *table = table_with_room(device);
    bolide__site *site = table ? malloc(sizeof *site) : NULL;
    if (!site)
        return;
    site->spec = *s;
    /* The custom text is the caller's; the kernel's copy has the same content and stays. */
    site->spec.user_source = kernel->spec.user_source;
    site->hash = bolide__spec_hash(s);
    site->kernel = kernel;
    site->next = device->sites;
    device->sites = site;
    put(table, site);
}

/* ---- loading ------------------------------------------------------------------------------ */

static bolide_status read_attributes(const char *entry, struct bolide__cuda_device *device,
                                     bolide__kernel *k) {
    const bolide__driver *d = device->driver;
    int shared = 0, threads = 0;
    CUresult r = d->cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, k->function);
    if (r == CUDA_SUCCESS)
        r = d->cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k->function);
    if (r != CUDA_SUCCESS)
        return bolide__device_fail(device, entry, "cuFuncGetAttribute", r);
    k->shared_static = shared;
    k->shared_dynamic = device->limits.shared_optin - shared;
    k->max_threads = threads;
    if (k->shared_dynamic < 0)
        return bolide__fail(BOLIDE_UNSUPPORTED, entry,
                            "%s uses %d bytes of static shared memory; a block of this device has "
                            "%d",
                            k->spec.function, shared, device->limits.shared_optin);
    /* Once for the life of the function, so that no launch has to ask. */
    r = d->cuFuncSetAttribute(k->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              k->shared_dynamic);
    if (r == CUDA_SUCCESS && device->target.arch >= 90 && !device->target.ptx)
        r = d->cuFuncSetAttribute(k->function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                                  1);
    if (r != CUDA_SUCCESS)
        return bolide__device_fail(device, entry, "cuFuncSetAttribute", r);
    size_t offset = 0, bytes = 0;
    if (d->cuFuncGetParamInfo &&
        d->cuFuncGetParamInfo(k->function, 0, &offset, &bytes) == CUDA_SUCCESS)
        k->params_bytes = bytes;
    return BOLIDE_OK;
}

bolide_status bolide__kernel_prefer_shared(const char *entry, struct bolide__cuda_device *device,
                                           const bolide__kernel *k) {
    bolide__scope scope;
    BOLIDE_TRY(bolide__scope_enter(entry, device, &scope));
    const CUresult r = device->driver->cuFuncSetAttribute(
        k->function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
    bolide__scope_leave(&scope);
    return r == CUDA_SUCCESS ? BOLIDE_OK
                             : bolide__device_fail(device, entry, "cuFuncSetAttribute", r);
}

static CUresult load_module(struct bolide__cuda_device *device, const bolide__binary *binary,
                            bolide__kernel *k) {
    const bolide__driver *d = device->driver;
    CUresult r = d->cuModuleLoadData(&k->module, binary->code);
    if (r != CUDA_SUCCESS)
        return r;
    r = d->cuModuleGetFunction(&k->function, k->module, k->spec.function);
    if (r != CUDA_SUCCESS) {
        d->cuModuleUnload(k->module);
        k->module = NULL;
    }
    return r;
}

static bolide_status fail_capture(const bolide__call *call, const bolide__spec *s) {
    char spec[BOLIDE__SPEC_TEXT], problem[BOLIDE__SPEC_TEXT];
    bolide__problem_text(call, problem, sizeof problem);
    return bolide__fail(BOLIDE_NOT_WARM, call->entry_name,
                        "a kernel is first met while the stream is being captured: %s; run the "
                        "call once before the capture, or warm the cache with: bolide compile "
                        "\"%s\"",
                        bolide__spec_text(s, spec), problem);
}

/* Building and loading, with the context current. */
static bolide_status load(const bolide__call *call, struct bolide__cuda_device *device,
                          bolide__kernel *k, int capturing) {
    const char *entry = call->entry_name;
    bolide__binary binary;
    bolide__build_info info;
    bolide_status status = bolide__build(entry, device->target, &k->spec,
                                         capturing ? BOLIDE__BUILD_DISK_ONLY : 0, &binary, &info);
    if (status == BOLIDE_NOT_WARM)
        return fail_capture(call, &k->spec);
    BOLIDE_TRY(status);
    CUresult r = load_module(device, &binary, k);
    free(binary.code);
    if (r != CUDA_SUCCESS && info.origin == BOLIDE__FROM_DISK && !capturing) {
        bolide__log(BOLIDE__LOG_COMPILE, "%s: the cached code does not load; compiling again",
                    info.hash);
        BOLIDE_TRY(
            bolide__build(entry, device->target, &k->spec, BOLIDE__BUILD_FRESH, &binary, &info));
        r = load_module(device, &binary, k);
        free(binary.code);
    }
    if (r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && r <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        return fail_capture(call, &k->spec);
    if (r != CUDA_SUCCESS)
        return bolide__device_fail(device, entry, "loading the compiled kernel", r);
    return read_attributes(entry, device, k);
}

static bolide_status load_in_context(const bolide__call *call, struct bolide__cuda_device *device,
                                     bolide__kernel *k) {
    const int capturing = bolide__stream_capturing(device, (CUstream)call->stream);
    bolide__scope scope;
    BOLIDE_TRY(bolide__scope_enter(call->entry_name, device, &scope));
    /* Loading allocates, which a capture in global mode forbids to every thread; in relaxed mode
     * this thread may do it, and no capture is invalidated. */
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const int relaxed = device->driver->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    const bolide_status status = load(call, device, k, capturing);
    if (relaxed)
        device->driver->cuThreadExchangeStreamCaptureMode(&mode);
    if (status != BOLIDE_OK && k->module) {
        device->driver->cuModuleUnload(k->module);
        k->module = NULL;
    }
    bolide__scope_leave(&scope);
    return status;
}

static bolide__kernel *find_same(struct bolide__cuda_device *device, const bolide__spec *s) {
    for (bolide__kernel *k = device->kernels; k; k = k->next) {
        if (bolide__spec_same(&k->spec, s))
            return k;
    }
    return NULL;
}

static void remove_kernel(struct bolide__cuda_device *device, bolide__kernel *k) {
    bolide__kernel **at = &device->kernels;
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    bolide__spec_free(&k->spec);
    free(k);
}

bolide_status bolide__kernel_make(const bolide__call *call, struct bolide__cuda_device *device,
                                  const bolide__spec *s, bolide__kernel **out) {
    pthread_mutex_lock(&device->lock);
    bolide__kernel *k = find_same(device, s);
    while (k && !k->ready) {
        pthread_cond_wait(&device->built, &device->lock);
        k = find_same(device, s);
    }
    if (k) {
        add_slot(device, s, k);
        pthread_mutex_unlock(&device->lock);
        *out = k;
        return BOLIDE_OK;
    }
    k = calloc(1, sizeof *k);
    if (!k || !bolide__spec_copy(&k->spec, s)) {
        free(k);
        pthread_mutex_unlock(&device->lock);
        return bolide__fail(BOLIDE_OUT_OF_MEMORY, call->entry_name, "no memory for a kernel");
    }
    k->next = device->kernels;
    device->kernels = k;
    pthread_mutex_unlock(&device->lock);

    const bolide_status status = load_in_context(call, device, k);

    pthread_mutex_lock(&device->lock);
    if (status == BOLIDE_OK) {
        k->ready = 1;
        add_slot(device, s, k);
        *out = k;
    } else {
        remove_kernel(device, k);
    }
    pthread_cond_broadcast(&device->built);
    pthread_mutex_unlock(&device->lock);
    return status;
}

void bolide__kernel_free_all(struct bolide__cuda_device *device) {
    for (bolide__kernel *k = device->kernels, *next; k; k = next) {
        next = k->next;
        if (k->module && device->driver)
            device->driver->cuModuleUnload(k->module);
        bolide__spec_free(&k->spec);
        free(k);
    }
    for (bolide__site *site = device->sites, *next; site; site = next) {
        next = site->next;
        free(site);
    }
    bolide__table *table = atomic_load_explicit(&device->table, memory_order_relaxed);
    for (bolide__table *older; table; table = older) {
        older = table->older;
        free(table);
    }
    device->kernels = NULL;
    device->sites = NULL;
    atomic_store_explicit(&device->table, NULL, memory_order_relaxed);
}
