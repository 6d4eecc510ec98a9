// SPDX-License-Identifier: Apache-2.0
//
// The part of the CUDA driver's interface that Bolide and its tools use, declared here so that no
// toolkit is needed to build. Names, numbers and layouts are the driver's own, so its manual
// applies. The library is opened at first need, never when libbolide is loaded.

#ifndef BOLIDE_CUDA_DRIVER_H
#define BOLIDE_CUDA_DRIVER_H

#include <bolide/core.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum bolide__cu_numbers {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,

    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,

    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9, /* percent */
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,

    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,

    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    CU_STREAM_NON_BLOCKING = 1
};

typedef struct CUlaunchAttribute {
    int id;
    int pad;
    union {
        char bytes[64];
        struct {
            unsigned x, y, z;
        } clusterDim;
        int programmaticStreamSerializationAllowed;
    } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

/* X(required, name, parameters). The symbol is the name; a _v2 behind it is part of the driver's
 * stable interface. What is not required is NULL in older drivers. */
#define BOLIDE__DRIVER_LIST(X)                                                                     \
    X(1, cuInit, (unsigned flags))                                                                 \
    X(1, cuDriverGetVersion, (int *version))                                                       \
    X(1, cuGetErrorName, (CUresult error, const char **text))                                      \
    X(1, cuGetErrorString, (CUresult error, const char **text))                                    \
    X(1, cuDeviceGetCount, (int *count))                                                           \
    X(1, cuDeviceGet, (CUdevice * device, int index))                                              \
    X(1, cuDeviceGetName, (char *name, int bytes, CUdevice device))                                \
    X(1, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                       \
    X(1, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                   \
    X(1, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                         \
    X(1, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                          \
    X(1, cuCtxGetCurrent, (CUcontext * context))                                                   \
    X(1, cuCtxPushCurrent_v2, (CUcontext context))                                                 \
    X(1, cuCtxPopCurrent_v2, (CUcontext * context))                                                \
    X(1, cuCtxSynchronize, (void))                                                                 \
    X(1, cuModuleLoadData, (CUmodule * module, const void *image))                                 \
    X(1, cuModuleUnload, (CUmodule module))                                                        \
    X(1, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))          \
    X(1, cuFuncGetAttribute, (int *value, int attribute, CUfunction function))                     \
    X(1, cuFuncSetAttribute, (CUfunction function, int attribute, int value))                      \
    X(0, cuFuncGetParamInfo, (CUfunction function, size_t index, size_t * offset, size_t * bytes)) \
    X(1, cuLaunchKernelEx,                                                                         \
      (const CUlaunchConfig *config, CUfunction function, void **params, void **extra))            \
    X(1, cuStreamIsCapturing, (CUstream stream, int *status))                                      \
    X(1, cuThreadExchangeStreamCaptureMode, (int *mode))                                           \
    X(1, cuStreamSynchronize, (CUstream stream))                                                   \
    X(1, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))  \
    X(1, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))        \
    X(1, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))  \
    X(1, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))    \
    X(1, cuMemAlloc_v2, (CUdeviceptr * memory, size_t bytes))                                      \
    X(1, cuMemFree_v2, (CUdeviceptr memory))                                                       \
    X(1, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                            \
    X(1, cuMemFreeHost, (void *memory))                                                            \
    X(1, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                             \
    X(1, cuStreamCreate, (CUstream * stream, unsigned flags))                                      \
    X(1, cuStreamDestroy_v2, (CUstream stream))                                                    \
    X(1, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                      \
    X(1, cuEventCreate, (CUevent * event, unsigned flags))                                         \
    X(1, cuEventRecord, (CUevent event, CUstream stream))                                          \
    X(1, cuEventQuery, (CUevent event))                                                            \
    X(1, cuEventSynchronize, (CUevent event))                                                      \
    X(1, cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))                    \
    X(1, cuEventDestroy_v2, (CUevent event))                                                       \
    X(1, cuStreamBeginCapture_v2, (CUstream stream, int mode))                                     \
    X(1, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                   \
    X(1, cuGraphInstantiateWithFlags,                                                              \
      (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                               \
    X(1, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                       \
    X(1, cuGraphExecDestroy, (CUgraphExec exec))                                                   \
    X(1, cuGraphDestroy, (CUgraph graph))                                                          \
    X(0, cuTensorMapEncodeTiled,                                                                   \
      (void *map, int type, uint32_t rank, void *address, const uint64_t *dims,                    \
       const uint64_t *strides, const uint32_t *box, const uint32_t *elem_strides, int interleave, \
       int swizzle, int l2_promotion, int oob_fill))

typedef struct bolide__driver {
    int version; /* 12080 for CUDA 12.8 */
/* A name cannot stand in parentheses where it is declared. */
/* NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define BOLIDE__DRIVER_FIELD(required, name, params) CUresult(*name) params;
    BOLIDE__DRIVER_LIST(BOLIDE__DRIVER_FIELD)
#undef BOLIDE__DRIVER_FIELD
} bolide__driver;

/* The driver, opened and initialised on the first call of the process; a failure is kept and
 * given again. entry names the caller in the message. */
bolide_status bolide__driver_open(const char *entry, const bolide__driver **out);

/* Like the above without an error: NULL and a sentence that says why. */
const bolide__driver *bolide__driver_try(const char **why);

bolide_status bolide__driver_status(CUresult result);
/* Status and message of a failed driver call. */
bolide_status bolide__driver_fail(const bolide__driver *driver, const char *entry, const char *what,
                                  CUresult result);

/* The driver's words for a result: "an illegal memory access was encountered
 * (CUDA_ERROR_ILLEGAL_ADDRESS, 700)". Writes into text and returns it. */
const char *bolide__driver_text(const bolide__driver *driver, CUresult result, char *text,
                                size_t bytes);

/* For tests: opens this file instead of libcuda.so.1; to be called before the first use. */
void bolide__driver_override(const char *path);

#endif
