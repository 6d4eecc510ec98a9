// SPDX-License-Identifier: Apache-2.0
//
// Opening and closing GPUs, copies and waits. A GPU is opened once for each (index, target) and
// shared by its contexts; its primary context, the one that frameworks use as well, is retained
// meanwhile. Nothing is touched on any other GPU.

#include "cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/env.h"
#include "cuda/nvrtc.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bolide__cuda_device *devices;
static const char context_create[] = "context_create";

struct bolide__cuda_device *bolide__device_new(void) {
    struct bolide__cuda_device *device = calloc(1, sizeof *device);
    if (!device)
        return NULL;
    if (pthread_mutex_init(&device->lock, NULL) != 0) {
        free(device);
        return NULL;
    }
    if (pthread_cond_init(&device->built, NULL) != 0) {
        pthread_mutex_destroy(&device->lock);
        free(device);
        return NULL;
    }
    device->references = 1;
    return device;
}

void bolide__device_free(struct bolide__cuda_device *device) {
    bolide__kernel_free_all(device);
    for (bolide__job_node *job = device->jobs, *next; job; job = next) {
        next = job->next;
        bolide__spec_free(&job->spec);
        free(job);
    }
    pthread_cond_destroy(&device->built);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* ---- current context ---------------------------------------------------------------------- */

bolide_status bolide__scope_enter(const char *entry, const struct bolide__cuda_device *device,
                                  bolide__scope *scope) {
    const bolide__driver *d = device->driver;
    CUcontext current = NULL;
    *scope = (bolide__scope){.driver = d};
    CUresult r = d->cuCtxGetCurrent(&current);
    if (r != CUDA_SUCCESS)
        return bolide__device_fail(device, entry, "cuCtxGetCurrent", r);
    if (current == device->context)
        return BOLIDE_OK;
    r = d->cuCtxPushCurrent_v2(device->context);
    if (r != CUDA_SUCCESS)
        return bolide__device_fail(device, entry, "cuCtxPushCurrent", r);
    scope->pushed = 1;
    return BOLIDE_OK;
}

void bolide__scope_leave(const bolide__scope *scope) {
    CUcontext popped = NULL;
    if (scope->pushed)
        scope->driver->cuCtxPopCurrent_v2(&popped);
}

int bolide__stream_capturing(const struct bolide__cuda_device *device, CUstream stream) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    bolide__scope scope;
    if (bolide__scope_enter(NULL, device, &scope) != BOLIDE_OK)
        return 0;
    const CUresult r = device->driver->cuStreamIsCapturing(stream, &status);
    bolide__scope_leave(&scope);
    return r == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* "rmsnorm n=3 d=128, norm/rmsnorm.cu bolide_rmsnorm DT=8 …, grid 3 x 1 x 1 of 128 threads". The
 * arguments of that call are gone; its bound dimensions were kept. */
static void describe_last(const bolide__last_launch *last, const bolide_op *op, char *text,
                          size_t bytes) {
    const bolide__program *program = atomic_load_explicit(&last->program, memory_order_relaxed);
    const bolide__kernel *k = atomic_load_explicit(&last->kernel, memory_order_relaxed);
    size_t used = (size_t)snprintf(text, bytes, "%s", op->name);
    for (int i = 0; program && i < program->name_count && used < bytes; i++) {
        const int64_t value = atomic_load_explicit(&last->dims[i], memory_order_relaxed);
        if (value != INT64_MIN)
            used += (size_t)snprintf(text + used, bytes - used, " %.*s=%lld",
                                     (int)program->names[i].length, program->names[i].text,
                                     (long long)value);
    }
    char spec[BOLIDE__SPEC_TEXT];
    if (used < bytes)
        snprintf(text + used, bytes - used, ", %s, grid %lld x %lld x %lld of %d threads",
                 bolide__spec_text(&k->spec, spec),
                 (long long)atomic_load_explicit(&last->grid_x, memory_order_relaxed),
                 (long long)atomic_load_explicit(&last->grid_y, memory_order_relaxed),
                 (long long)atomic_load_explicit(&last->grid_z, memory_order_relaxed),
                 atomic_load_explicit(&last->block, memory_order_relaxed));
}

bolide_status bolide__device_fail(const struct bolide__cuda_device *device, const char *entry,
                                  const char *what, CUresult result) {
    const bolide_op *op = atomic_load_explicit(&device->last.op, memory_order_acquire);
    if (!op)
        return bolide__driver_fail(device->driver, entry, what, result);
    char words[512], last[2 * BOLIDE__SPEC_TEXT];
    describe_last(&device->last, op, last, sizeof last);
    return bolide__fail(
        bolide__driver_status(result), entry, "%s: %s; on device %d, last launched: %s", what,
        bolide__driver_text(device->driver, result, words, sizeof words), device->index, last);
}

/* ---- opening ------------------------------------------------------------------------------ */

static bolide_status read_limits(struct bolide__cuda_device *device) {
    const bolide__driver *d = device->driver;
    int major = 0, minor = 0, sms = 0, optin = 0, shared = 0, l2 = 0;
    const struct {
        int attribute;
        int *value;
    } wanted[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &optin},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &shared},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const CUresult r =
            d->cuDeviceGetAttribute(wanted[i].value, wanted[i].attribute, device->handle);
        if (r != CUDA_SUCCESS)
            return bolide__driver_fail(d, context_create, "cuDeviceGetAttribute", r);
    }
    device->limits = (bolide__cuda_limits){.arch = major * 10 + minor,
                                           .sm_count = sms,
                                           .shared_optin = optin,
                                           .shared_sm = shared,
                                           .l2_bytes = l2};
    if (d->cuDeviceGetName(device->name, (int)sizeof device->name, device->handle) != CUDA_SUCCESS)
        device->name[0] = '\0';
    device->name[sizeof device->name - 1] = '\0';
    if (!bolide__target_of(device->limits.arch, &device->target))
        return bolide__fail(BOLIDE_UNSUPPORTED, context_create,
                            "device %d (%s) has compute capability %d.%d; 7.5 or higher is needed",
                            device->index, device->name, major, minor);
    return BOLIDE_OK;
}

/* Runs this device as another chip: its PTX, its limits, the real number of multiprocessors. */
static void pretend(struct bolide__cuda_device *device, bolide__target as) {
    bolide__cuda_limits limits;
    bolide__target_limits(as, &limits);
    limits.sm_count = device->limits.sm_count;
    limits.l2_bytes = device->limits.l2_bytes;
    device->limits = limits;
    device->target = as;
}

static bolide_status find_handle(struct bolide__cuda_device *device) {
    const bolide__driver *d = device->driver;
    int count = 0;
    CUresult r = d->cuDeviceGetCount(&count);
    if (r != CUDA_SUCCESS)
        return bolide__driver_fail(d, context_create, "cuDeviceGetCount", r);
    if (device->index < 0 || device->index >= count)
        return bolide__fail_arg(BOLIDE_NO_DEVICE, context_create, "index", "device index",
                                count == 0   ? "a CUDA device; the driver sees none"
                                : count == 1 ? "0, the only CUDA device"
                                             : bolide__text("0 to %d", count - 1),
                                "%d", device->index);
    r = d->cuDeviceGet(&device->handle, device->index);
    return r == CUDA_SUCCESS ? BOLIDE_OK : bolide__driver_fail(d, context_create, "cuDeviceGet", r);
}

static bolide_status open_new(int32_t index, const bolide__target *as,
                              struct bolide__cuda_device **out) {
    const bolide__driver *driver = NULL;
    *out = NULL;
    BOLIDE_TRY(bolide__driver_open(context_create, &driver));
    struct bolide__cuda_device *device = bolide__device_new();
    if (!device)
        return bolide__fail(BOLIDE_OUT_OF_MEMORY, context_create, "no memory for a device");
    device->driver = driver;
    device->index = index;
    bolide_status status = find_handle(device);
    if (status == BOLIDE_OK)
        status = read_limits(device);
    if (status == BOLIDE_OK && as)
        pretend(device, *as);
    if (status == BOLIDE_OK) {
        const CUresult r = driver->cuDevicePrimaryCtxRetain(&device->context, device->handle);
        if (r != CUDA_SUCCESS)
            status = bolide__driver_fail(driver, context_create, "cuDevicePrimaryCtxRetain", r);
    }
    if (status != BOLIDE_OK) {
        bolide__device_free(device);
        return status;
    }
    bolide__log(BOLIDE__LOG_DISPATCH, "device %d: %s, compute capability %d.%d, %d multiprocessors",
                index, device->name, device->limits.arch / 10, device->limits.arch % 10,
                device->limits.sm_count);
    *out = device;
    return BOLIDE_OK;
}

static int same_target(bolide__target a, bolide__target b) {
    return a.arch == b.arch && a.suffix == b.suffix && a.ptx == b.ptx;
}

static bolide_status open_shared(int32_t index, const bolide__target *as,
                                 struct bolide__cuda_device **out) {
    bolide_status status = BOLIDE_OK;
    pthread_mutex_lock(&lock);
    struct bolide__cuda_device *device = devices;
    while (device && !(device->index == index &&
                       (as ? same_target(device->target, *as) : !device->pretended)))
        device = device->next;
    if (device) {
        device->references++;
    } else {
        status = open_new(index, as, &device);
        if (device) {
            device->pretended = as != NULL;
            device->next = devices;
            devices = device;
        }
    }
    pthread_mutex_unlock(&lock);
    *out = status == BOLIDE_OK ? device : NULL;
    return status;
}

bolide_status bolide__cuda_device_open(int32_t index, struct bolide__cuda_device **out) {
    return open_shared(index, NULL, out);
}

void bolide__cuda_device_close(struct bolide__cuda_device *device) {
    if (!device)
        return;
    if (!device->driver) {
        bolide__device_free(device);
        return;
    }
    pthread_mutex_lock(&lock);
    if (--device->references == 0) {
        struct bolide__cuda_device **at = &devices;
        while (*at != device)
            at = &(*at)->next;
        *at = device->next;
        bolide__scope scope;
        if (bolide__scope_enter(NULL, device, &scope) == BOLIDE_OK) {
            bolide__kernel_free_all(device);
            bolide__scope_leave(&scope);
        }
        device->driver->cuDevicePrimaryCtxRelease_v2(device->handle);
        bolide__device_free(device);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- contexts of tests and of the tool ---------------------------------------------------- */

static bolide_status make_context(int32_t index, struct bolide__cuda_device *device,
                                  bolide_context **out) {
    bolide_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx) {
        bolide__cuda_device_close(device);
        return bolide__fail(BOLIDE_OUT_OF_MEMORY, context_create, "no memory for a context");
    }
    ctx->device = (bolide_device){.type = BOLIDE_CUDA, .index = index};
    ctx->cuda = device;
    *out = ctx;
    return BOLIDE_OK;
}

static bolide_status parse_target(const char *text, bolide__target *target) {
    if (bolide__target_parse(text, target))
        return BOLIDE_OK;
    return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, context_create, "target", "name",
                            "sm_75 or higher, such as sm_90a, or compute_80", "%s", text);
}

bolide_status bolide__cuda_context_as(int32_t index, const char *text, bolide_context **out) {
    bolide__target target;
    struct bolide__cuda_device *device = NULL;
    *out = NULL;
    BOLIDE_TRY(parse_target(text, &target));
    BOLIDE_TRY(open_shared(index, &target, &device));
    return make_context(index, device, out);
}

bolide_status bolide__cuda_context_dry(const char *text, bolide_context **out) {
    bolide__target target;
    *out = NULL;
    BOLIDE_TRY(parse_target(text, &target));
    struct bolide__cuda_device *device = bolide__device_new();
    if (!device)
        return bolide__fail(BOLIDE_OUT_OF_MEMORY, context_create, "no memory for a device");
    device->target = target;
    bolide__target_limits(target, &device->limits);
    return make_context(0, device, out);
}

const bolide__cuda_limits *bolide__cuda_limits_of(const bolide_context *ctx) {
    return &ctx->cuda->limits;
}

/* ---- copies and waits --------------------------------------------------------------------- */

static bolide_status finish(const bolide__call *call, const char *what, CUresult r) {
    return r == CUDA_SUCCESS ? BOLIDE_OK
                             : bolide__device_fail(call->ctx->cuda, call->entry_name, what, r);
}

bolide_status bolide__cuda_copy_to_device(const bolide__call *call, void *to, const void *from,
                                          int64_t bytes) {
    const struct bolide__cuda_device *device = call->ctx->cuda;
    if (!device->driver || bytes <= 0)
        return BOLIDE_OK;
    bolide__scope scope;
    BOLIDE_TRY(bolide__scope_enter(call->entry_name, device, &scope));
    const CUresult r = device->driver->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, from,
                                                            (size_t)bytes, (CUstream)call->stream);
    bolide__scope_leave(&scope);
    return finish(call, "cuMemcpyHtoDAsync", r);
}

bolide_status bolide__cuda_copy_to_host(const bolide__call *call, void *to, const void *from,
                                        int64_t bytes) {
    const struct bolide__cuda_device *device = call->ctx->cuda;
    if (bytes <= 0)
        return BOLIDE_OK;
    if (!device->driver) {
        /* Defined numbers for whatever front reads them next. */
        memset(to, 0, (size_t)bytes);
        return BOLIDE_OK;
    }
    bolide__scope scope;
    BOLIDE_TRY(bolide__scope_enter(call->entry_name, device, &scope));
    const CUresult r = device->driver->cuMemcpyDtoHAsync_v2(to, (CUdeviceptr)(uintptr_t)from,
                                                            (size_t)bytes, (CUstream)call->stream);
    bolide__scope_leave(&scope);
    return finish(call, "cuMemcpyDtoHAsync", r);
}

bolide_status bolide__cuda_clear(const bolide__call *call, void *memory, int64_t bytes) {
    const struct bolide__cuda_device *device = call->ctx->cuda;
    if (!device->driver || bytes <= 0)
        return BOLIDE_OK;
    bolide__scope scope;
    BOLIDE_TRY(bolide__scope_enter(call->entry_name, device, &scope));
    const CUresult r = device->driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)memory, 0,
                                                       (size_t)bytes, (CUstream)call->stream);
    bolide__scope_leave(&scope);
    return finish(call, "cuMemsetD8Async", r);
}

bolide_status bolide__cuda_wait(const bolide__call *call) {
    const struct bolide__cuda_device *device = call->ctx->cuda;
    if (!device->driver)
        return BOLIDE_OK;
    /* Waiting would invalidate the capture. */
    if (bolide__stream_capturing(device, (CUstream)call->stream))
        return bolide__fail(BOLIDE_UNSUPPORTED, call->entry_name,
                            "the call waits for its stream, which is being captured");
    bolide__scope scope;
    BOLIDE_TRY(bolide__scope_enter(call->entry_name, device, &scope));
    const CUresult r = device->driver->cuStreamSynchronize((CUstream)call->stream);
    bolide__scope_leave(&scope);
    return finish(call, "cuStreamSynchronize", r);
}

int bolide__cuda_capturing(const bolide__call *call) {
    const struct bolide__cuda_device *device = call->ctx->cuda;
    return device->driver && bolide__stream_capturing(device, (CUstream)call->stream);
}
