// SPDX-License-Identifier: Apache-2.0
//
// What operators ask of the CUDA backend: describe a specialisation, launch it. The driver and
// NVRTC are opened at run time; nothing here needs a toolkit header.
//
//     bolide__spec s = BOLIDE_SPEC("norm/rmsnorm.cu", "bolide_rmsnorm");
//     bolide__spec_add(&s, "D", d);
//     return bolide__cuda_launch(call, &s, &(bolide__grid){.x = n, .block = 256}, &p, sizeof p);

#ifndef BOLIDE_CUDA_CUDA_H
#define BOLIDE_CUDA_CUDA_H

#include "core/op.h"
#include "cuda/tensor_map_internal.h"

enum { BOLIDE__SPEC_KEYS = 24, BOLIDE__BEHIND_OWN = 2 };

/* A kernel file, a function in it, and the integer definitions that specialise it: the cache key.
 * Names are string literals and are compared as pointers first. */
typedef struct bolide__spec {
    const char *source;   /* path below src/ops, or below src/cuda for shared kernels */
    const char *function; /* extern "C" name */
    int32_t count;
    const char *key[BOLIDE__SPEC_KEYS];
    int64_t value[BOLIDE__SPEC_KEYS];
    const char *user_source; /* text of a custom variant, which the kernel includes as
                              * "variant.cuh"; NULL: none */
} bolide__spec;

#define BOLIDE_SPEC(path, fn) ((bolide__spec){.source = (path), .function = (fn)})

void bolide__spec_add(bolide__spec *s, const char *key, int64_t value);

typedef struct bolide__grid {
    int64_t x, y, z;   /* blocks; 0 in y or z counts as 1; an x of 0 launches nothing */
    int32_t block;     /* threads a block */
    int32_t shared;    /* dynamic shared memory, bytes */
    int32_t cluster;   /* blocks of x in a cluster; 0 or 1: none */
    int32_t dependent; /* 1: programmatic dependent launch behind the previous kernel;
                        * BOLIDE__BEHIND_OWN: which is one of the same call */
} bolide__grid;

/* Looks the kernel up or compiles it, then launches it on call->stream with params as its single
 * by-value argument. */
bolide_status bolide__cuda_launch(const bolide__call *call, const bolide__spec *s,
                                  const bolide__grid *g, const void *params, size_t params_bytes);

/* A tensor of 16- or 8-bit elements, the fastest dimension first, whose stride is 1; strides count
 * elements. A copy takes a box of it into rows of 128 bytes of shared memory, with their 16-byte
 * pieces exchanged by the row's number; box[0] is 64. */
typedef struct bolide__tensor_box {
    const void *data;
    int64_t dtype; /* BOLIDE_F16, BOLIDE_BF16, one of 8 bits */
    int32_t rank;
    int32_t box[5];
    int64_t shape[5], stride[5];
    bool lines; /* the L2 fetches lines of 128 bytes for it, not two at a time */
} bolide__tensor_box;

/* Encodes maps; *encoded is false if the copy engine cannot take one of the tensors. */
bolide_status bolide__cuda_tensor_maps(const bolide__call *call, int count,
                                       const bolide__tensor_box *boxes,
                                       bolide__tensor_map *const *maps, bool *encoded);

/* The FEW of kernels: 0, or for so few bytes (core/rows_internal.h) 2: inputs are asked for before
 * the wait for the kernel ahead; 1 where there is nothing to wait for (BOLIDE_OVERLAP=0), as a load
 * right behind such a request comes 0.1 us later than alone. */
int bolide__cuda_few(int64_t bytes);

/* Numbers of the call's device, read once per context. */
typedef struct bolide__cuda_limits {
    int32_t arch; /* 90 for compute capability 9.0 */
    int32_t sm_count;
    int32_t shared_optin; /* bytes a block may opt in to */
    int32_t shared_sm;    /* bytes of one multiprocessor */
    int64_t l2_bytes;
} bolide__cuda_limits;

const bolide__cuda_limits *bolide__cuda_limits_of(const bolide_context *ctx);

/* Whether kernels may use wgmma and setmaxnreg, which only sm_90a has. */
bool bolide__cuda_has_wgmma(const bolide_context *ctx);

/* Asynchronous copies and a wait on the call's stream, for plans. */
bolide_status bolide__cuda_copy_to_device(const bolide__call *call, void *device, const void *host,
                                          int64_t bytes);
bolide_status bolide__cuda_copy_to_host(const bolide__call *call, void *host, const void *device,
                                        int64_t bytes);
/* Sets device memory to 0 on the call's stream. */
bolide_status bolide__cuda_clear(const bolide__call *call, void *device, int64_t bytes);
bolide_status bolide__cuda_wait(const bolide__call *call);
/* 1 if the call's stream is being captured. */
int bolide__cuda_capturing(const bolide__call *call);

/* Contexts for tests and tools, ended by bolide_context_destroy. The first runs the GPU as if it
 * were another chip: target "compute_80" has the driver compile PTX of that architecture, under the
 * chip's shared-memory limits. The second needs no GPU: calls on it launch and copy nothing, and
 * their specs can be compiled ahead with cuda/compile.h. */
bolide_status bolide__cuda_context_as(int32_t index, const char *target, bolide_context **out);
bolide_status bolide__cuda_context_dry(const char *target, bolide_context **out);

#endif
