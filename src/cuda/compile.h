// SPDX-License-Identifier: Apache-2.0
//
// Compiling ahead of time, for `bolide compile` and for the gate: open a dry context for a target,
// make the calls (nothing is launched, their specs are noted), then compile what was noted, several
// at once, into the cache. No GPU and no driver are needed.

#ifndef BOLIDE_CUDA_COMPILE_H
#define BOLIDE_CUDA_COMPILE_H

#include <stdbool.h>

#include "cuda/build.h"

/* One kernel that is done. */
typedef struct bolide__compile_report {
    int32_t done, total;
    const char *entry;  /* operator that asked for it first */
    const char *spec;   /* "norm/rmsnorm.cu bolide_rmsnorm D=4096" */
    const char *target; /* "sm_90a" */
    const char *hash;
    bolide_status status;
    const char *message; /* of a failure, else "" */
    bolide__origin origin;
    double seconds;
    bolide__resources resources;
    int32_t shared_bytes; /* static and the most dynamic shared memory of the calls */
    int32_t shared_limit; /* of the target */
} bolide__compile_report;

/* "sm_90a": what kernels of a context are compiled for. */
const char *bolide__cuda_target_name(const bolide_context *ctx, char text[BOLIDE__TARGET_TEXT]);

/* Number of distinct specs that the calls on a dry context have met so far. */
int32_t bolide__cuda_noted(const bolide_context *ctx);

/* Drops all but the first of each operator and kernel function. */
void bolide__cuda_keep_one_each(bolide_context *ctx);

/* Drops all but every shards-th from the shard-th on; with the same calls, every spec is in exactly
 * one of the shards 0 … shards-1. */
void bolide__cuda_keep_shard(bolide_context *ctx, int64_t shard, int64_t shards);

/* Is told each kernel that is done, by one thread at a time; false: no further one is begun. */
typedef bool bolide__compile_progress(void *arg, const bolide__compile_report *report);

/* Compiles them on `threads` threads (0: one for each CPU at hand). progress may be NULL. All are
 * tried; the status and message are those of the first that failed. A kernel that needs more shared
 * memory than the target has fails. */
bolide_status bolide__cuda_compile_noted(bolide_context *ctx, int32_t threads,
                                         bolide__compile_progress *progress, void *arg);

/* Driver, devices, compiler and cache, a line each, for `bolide doctor`. */
void bolide__cuda_doctor(void (*line)(void *arg, const char *text), void *arg);

#endif
