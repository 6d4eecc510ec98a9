// SPDX-License-Identifier: Apache-2.0
//
// One GPU as the process uses it: the primary context, its numbers, its loaded kernels. Contexts of
// the same GPU share it. A dry device has a target but no driver: launches only gather or compile
// specs, so that kernels can be compiled for a chip that is not there.

#ifndef BOLIDE_CUDA_DEVICE_H
#define BOLIDE_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda/driver.h"
#include "cuda/spec.h"

/* A kernel in memory, ready to launch. */
typedef struct bolide__kernel {
    bolide__spec spec; /* owns copies of its texts */
    int ready;         /* under the device's lock; 0: being built */
    CUmodule module;
    CUfunction function;
    int32_t shared_static;
    int32_t shared_dynamic; /* bytes a launch may ask for */
    int32_t max_threads;
    size_t params_bytes; /* 0: the driver does not tell */
    struct bolide__kernel *next;
} bolide__kernel;

/* One call site of a kernel, an entry of the table that launches read without a lock. */
typedef struct bolide__site {
    bolide__spec spec;
    uint64_t hash;
    bolide__kernel *kernel;
    struct bolide__site *next; /* all sites of a device, to be freed */
} bolide__site;

typedef struct bolide__table {
    uint64_t mask;
    uint64_t used;
    struct bolide__table *older; /* readers may still be in it, so it lives on */
    _Atomic(bolide__site *) slots[];
} bolide__table;

/* What was launched, for the message of a fault that comes to light later. */
typedef struct bolide__last_launch {
    _Atomic(const bolide_op *) op; /* NULL: nothing yet */
    _Atomic(const bolide__program *) program;
    _Atomic int64_t dims[BOLIDE__MAX_NAMES];
    _Atomic(const bolide__kernel *) kernel;
    _Atomic int64_t grid_x, grid_y, grid_z;
    _Atomic int32_t block;
} bolide__last_launch;

/* A spec met by a dry device. */
typedef struct bolide__job_node {
    bolide__spec spec; /* owns copies of its texts */
    char entry[64];
    int32_t shared_bytes; /* the largest dynamic shared memory that was asked for */
    struct bolide__job_node *next;
} bolide__job_node;

struct bolide__cuda_device {
    const bolide__driver *driver; /* NULL: dry */
    int32_t index;
    int32_t references;
    int32_t pretended; /* 1: runs as another chip than it is */
    CUdevice handle;
    CUcontext context;
    bolide__target target;
    bolide__cuda_limits limits;
    char name[128];
    _Atomic(bolide__table *) table;
    pthread_mutex_t lock; /* of everything below and of writing the table */
    pthread_cond_t built;
    bolide__kernel *kernels;
    bolide__site *sites;
    bolide__job_node *jobs; /* dry: newest first */
    bolide__last_launch last;
    struct bolide__cuda_device *next;
};

/* Makes the device's context current for one block of driver calls and restores what was there. */
typedef struct bolide__scope {
    const bolide__driver *driver;
    int pushed;
} bolide__scope;

bolide_status bolide__scope_enter(const char *entry, const struct bolide__cuda_device *device,
                                  bolide__scope *scope);
void bolide__scope_leave(const bolide__scope *scope);

/* 1 if work on the stream is being captured, also where asking is itself refused because another
 * stream's capture covers the legacy default stream. */
int bolide__stream_capturing(const struct bolide__cuda_device *device, CUstream stream);

/* A failed call's status and message, with the operator that was last launched. */
bolide_status bolide__device_fail(const struct bolide__cuda_device *device, const char *entry,
                                  const char *what, CUresult result);

/* The kernel of a call site's spec if it is in the table: no lock, no text compared. */
bolide__kernel *bolide__kernel_find(const struct bolide__cuda_device *device,
                                    const bolide__spec *s);
/* Finds it by content, or builds and loads it. While the stream of the call is captured nothing is
 * compiled, and BOLIDE_NOT_WARM says how to warm it. */
bolide_status bolide__kernel_make(const bolide__call *call, struct bolide__cuda_device *device,
                                  const bolide__spec *s, bolide__kernel **out);
/* For a kernel whose blocks share a multiprocessor only with its shared memory at the largest,
 * which the driver would otherwise cut to what one block needs. */
bolide_status bolide__kernel_prefer_shared(const char *entry, struct bolide__cuda_device *device,
                                           const bolide__kernel *k);
void bolide__kernel_free_all(struct bolide__cuda_device *device);

/* Copies a spec with its texts; 0 without memory. */
int bolide__spec_copy(bolide__spec *to, const bolide__spec *from);
void bolide__spec_free(bolide__spec *s);

/* An empty device with its lock; NULL without memory. */
struct bolide__cuda_device *bolide__device_new(void);
void bolide__device_free(struct bolide__cuda_device *device);

#endif
