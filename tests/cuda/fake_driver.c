// SPDX-License-Identifier: Apache-2.0
//
// A libcuda for tests. Device memory is host memory, a module is a copy of its image, a launch is
// recorded. Any call can be made to fail, and calls that a real driver would punish during a
// capture are counted.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "fake.h"

/* NVIDIA's names, as the library looks them up. NOLINTBEGIN(readability-identifier-naming) */

#define EXPORT __attribute__((visibility("default")))

extern fake_driver fake;
EXPORT fake_driver fake = {.version = 13000, .devices = 2, .arch = {90, 80, 75, 70}};

enum { MAX_DEPTH = 16, CAPTURE_NOT_ALLOWED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED };

static _Thread_local CUcontext stack[MAX_DEPTH];
static _Thread_local int depth;
static _Thread_local int mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static struct CUctx_st { int device; } contexts[FAKE_DEVICES];

struct CUfunc_st {
    char name[128];
};

struct CUmod_st {
    struct CUfunc_st function;
};

/* Counts the call; nonzero is the injected failure. */
static int enter(const char *name) {
    atomic_fetch_add(&fake.calls, 1);
    if (fake.fail_name && strcmp(fake.fail_name, name) == 0)
        return fake.fail_code;
    if (fake.fail_at > 0 && --fake.fail_at == 0)
        return fake.fail_code;
    return 0;
}

#define ENTER(name)                                                                                \
    do {                                                                                           \
        const int failed = enter(#name);                                                           \
        if (failed)                                                                                \
            return failed;                                                                         \
    } while (0)

/* For calls that a capture in global mode does not allow. */
#define ENTER_UNSAFE(name)                                                                         \
    do {                                                                                           \
        ENTER(name);                                                                               \
        if (fake.capturing && mode != CU_STREAM_CAPTURE_MODE_RELAXED) {                            \
            atomic_fetch_add(&fake.broken, 1);                                                     \
            return CAPTURE_NOT_ALLOWED;                                                            \
        }                                                                                          \
    } while (0)

/* Declares every function of the list with its exact type. */
#define DECLARE(required, name, params) EXPORT CUresult name params;
BOLIDE__DRIVER_LIST(DECLARE)
EXPORT CUresult cuCtxSetCurrent(CUcontext context);

CUresult cuInit(unsigned flags) {
    ENTER(cuInit);
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    ENTER(cuDriverGetVersion);
    *version = fake.version;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                                : "an injected failure";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    ENTER(cuDeviceGetCount);
    *count = fake.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int index) {
    ENTER(cuDeviceGet);
    *device = index;
    return index < fake.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
    ENTER(cuDeviceGetName);
    snprintf(name, (size_t)bytes, "Fake %d", fake.arch[device]);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER(cuDeviceGetAttribute);
    const int arch = fake.arch[device];
    const int shared = (arch == 90 ? 228 : arch == 80 ? 164 : 100) * 1024; /* as those chips have */
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR               ? arch / 10
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR             ? arch % 10
             : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                 ? 4
             : attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN    ? shared - 1024
             : attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR ? shared
                                                                                     : 1 << 20;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER(cuDeviceTotalMem_v2);
    *bytes = (size_t)(device + 1) << 30;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    contexts[device].device = device;
    fake.used_devices |= 1u << device;
    atomic_fetch_add(&fake.retained, 1);
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    (void)device;
    atomic_fetch_sub(&fake.retained, 1);
    ENTER(cuDevicePrimaryCtxRelease_v2);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER(cuCtxGetCurrent);
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER(cuCtxPushCurrent_v2);
    if (depth == MAX_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    atomic_fetch_add(&fake.depth, 1);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (!depth)
        return CUDA_ERROR_INVALID_VALUE;
    *context = stack[--depth];
    atomic_fetch_sub(&fake.depth, 1);
    ENTER(cuCtxPopCurrent_v2);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    ENTER_UNSAFE(cuCtxSynchronize);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER_UNSAFE(cuModuleLoadData);
    if (fake.refuse_images > 0) {
        fake.refuse_images--;
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (strncmp(image, "fake code", 9) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    *module = calloc(1, sizeof **module);
    atomic_fetch_add(&fake.modules, 1);
    return *module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleUnload(CUmodule module) {
    free(module);
    atomic_fetch_sub(&fake.modules, 1);
    ENTER(cuModuleUnload);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER(cuModuleGetFunction);
    snprintf(module->function.name, sizeof module->function.name, "%s", name);
    *function = &module->function;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    (void)function;
    ENTER(cuFuncGetAttribute);
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    (void)function, (void)attribute, (void)value;
    ENTER(cuFuncSetAttribute);
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
    (void)function;
    ENTER(cuFuncGetParamInfo);
    if (index || !fake.params_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    *bytes = (size_t)fake.params_bytes;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra) {
    (void)extra;
    ENTER(cuLaunchKernelEx);
    if (atomic_fetch_add(&fake.launches, 1) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* The record is of single-threaded tests; others count launches only. */
    if (!fake.params_bytes)
        return CUDA_SUCCESS;
    const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    memcpy(fake.grid, grid, sizeof grid);
    fake.block = config->blockDimX;
    fake.shared = config->sharedMemBytes;
    fake.stream = config->hStream;
    fake.context = depth ? stack[depth - 1] : NULL;
    fake.cluster = 0;
    fake.dependent = 0;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];
        if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            fake.cluster = a->value.clusterDim.x;
        if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            fake.dependent = a->value.programmaticStreamSerializationAllowed;
    }
    memcpy(fake.params, params[0], (size_t)fake.params_bytes);
    snprintf(fake.function, sizeof fake.function, "%s", function->name);
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    ENTER(cuStreamIsCapturing);
    if (!stream && fake.capturing)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = fake.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(int *other) {
    ENTER(cuThreadExchangeStreamCaptureMode);
    const int old = mode;
    mode = *other;
    *other = old;
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    ENTER_UNSAFE(cuStreamSynchronize);
    atomic_fetch_add(&fake.waits, 1);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    (void)stream;
    ENTER(cuMemcpyHtoDAsync_v2);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    (void)stream;
    ENTER(cuMemcpyDtoHAsync_v2);
    if (!fake.late_copies)
        memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

/* ---- what programs call beside the library: memory, a stream, graphs ------------------------ */

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    (void)stream;
    ENTER(cuMemcpyDtoDAsync_v2);
    memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    (void)stream;
    ENTER(cuMemsetD8Async);
    memset((void *)(uintptr_t)to, value, bytes);
    return CUDA_SUCCESS;
}

/* Memory that nobody has written is 0, so that what a kernel should have left there is an id. */
static CUresult allocate(void **memory, size_t bytes) {
    *memory = bytes ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    if (!*memory)
        return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    memset(*memory, 0, bytes);
    atomic_fetch_add(&fake.held, 1);
    return CUDA_SUCCESS;
}

static CUresult release(void *memory) {
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    free(memory);
    atomic_fetch_sub(&fake.held, 1);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes) {
    void *at;
    ENTER_UNSAFE(cuMemAlloc_v2);
    const CUresult result = allocate(&at, bytes);
    *memory = (CUdeviceptr)(uintptr_t)at;
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
    (void)enter("cuMemFree_v2"); /* a failure there frees all the same */
    return release((void *)(uintptr_t)memory);
}

CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    ENTER_UNSAFE(cuMemHostAlloc);
    return flags ? CUDA_ERROR_INVALID_VALUE : allocate(memory, bytes);
}

CUresult cuMemFreeHost(void *memory) {
    (void)enter("cuMemFreeHost");
    return release(memory);
}

static CUresult new_handle(void **handle) {
    return allocate(handle, 1);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER(cuStreamCreate);
    (void)flags;
    return new_handle((void **)stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    (void)enter("cuStreamDestroy_v2");
    return release(stream);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int how) {
    ENTER(cuStreamBeginCapture_v2);
    (void)stream, (void)how;
    if (fake.capturing)
        return CUDA_ERROR_INVALID_VALUE;
    fake.capturing = 1;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    (void)stream;
    *graph = NULL;
    if (!fake.capturing)
        return CUDA_ERROR_INVALID_VALUE;
    fake.capturing = 0;
    ENTER(cuStreamEndCapture);
    return new_handle((void **)graph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    ENTER(cuGraphInstantiateWithFlags);
    (void)flags;
    *exec = NULL;
    return graph ? new_handle((void **)exec) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphLaunch);
    (void)stream;
    atomic_fetch_add(&fake.graph_launches, 1);
    return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    (void)enter("cuGraphExecDestroy");
    return release(exec);
}

CUresult cuGraphDestroy(CUgraph graph) {
    (void)enter("cuGraphDestroy");
    return release(graph);
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER(cuCtxSetCurrent);
    depth += depth == 0;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

/* What only tools call: present, so that the table fills, and refused. */
#define REFUSED(name, params, ...)                                                                 \
    CUresult name params {                                                                         \
        __VA_ARGS__;                                                                               \
        return CUDA_ERROR_INVALID_VALUE;                                                           \
    }

REFUSED(cuMemGetInfo_v2, (size_t * a, size_t *b), (void)a, (void)b)
REFUSED(cuStreamWaitEvent, (CUstream s, CUevent e, unsigned f), (void)s, (void)e, (void)f)
REFUSED(cuEventCreate, (CUevent * e, unsigned f), (void)e, (void)f)
REFUSED(cuEventRecord, (CUevent e, CUstream s), (void)e, (void)s)
REFUSED(cuEventQuery, (CUevent e), (void)e)
REFUSED(cuEventSynchronize, (CUevent e), (void)e)
REFUSED(cuEventElapsedTime, (float *t, CUevent a, CUevent b), (void)t, (void)a, (void)b)
REFUSED(cuEventDestroy_v2, (CUevent e), (void)e)
/* NOLINTEND(readability-identifier-naming) */
