// SPDX-License-Identifier: Apache-2.0
//
// A pool of threads over the specs that a dry context has noted. Compilations differ by a factor of
// ten in time, so threads take the next spec as they come free.

#include "cuda/compile.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "cuda/device.h"

enum { MAX_THREADS = 64, MESSAGE_BYTES = 4096 };

typedef struct pool {
    const struct bolide__cuda_device *device;
    const bolide__job_node *next;
    int32_t done, total;
    bolide__compile_progress *progress;
    void *arg;
    pthread_mutex_t lock;
    bolide_status status; /* of the first failure */
    char message[MESSAGE_BYTES];
} pool;

int32_t bolide__cuda_noted(const bolide_context *ctx) {
    int32_t count = 0;
    for (const bolide__job_node *job = ctx->cuda->jobs; job; job = job->next)
        count++;
    return count;
}

const char *bolide__cuda_target_name(const bolide_context *ctx, char text[BOLIDE__TARGET_TEXT]) {
    return bolide__target_text(ctx->cuda->target, text);
}

/* Drops the job at hand. */
static void drop(bolide__job_node **at) {
    bolide__job_node *job = *at;
    *at = job->next;
    bolide__spec_free(&job->spec);
    free(job);
}

/* Jobs lie newest first, so a job goes if an older one is of the same operator and kernel. */
void bolide__cuda_keep_one_each(bolide_context *ctx) {
    bolide__job_node **at = &ctx->cuda->jobs;
    while (*at) {
        const bolide__job_node *job = *at, *older = job->next;
        while (older && (strcmp(older->entry, job->entry) != 0 ||
                         strcmp(older->spec.function, job->spec.function) != 0 ||
                         strcmp(older->spec.source, job->spec.source) != 0))
            older = older->next;
        if (older)
            drop(at);
        else
            at = &(*at)->next;
    }
}

void bolide__cuda_keep_shard(bolide_context *ctx, int64_t shard, int64_t shards) {
    bolide__job_node **at = &ctx->cuda->jobs;
    for (int64_t i = 0; *at; i++) {
        if (i % shards != shard)
            drop(at);
        else
            at = &(*at)->next;
    }
}

static void report(pool *p, const bolide__job_node *job, bolide_status status,
                   const bolide__binary *binary, const bolide__build_info *info) {
    char spec[BOLIDE__SPEC_TEXT], target[BOLIDE__TARGET_TEXT];
    const bolide__resources none = {0};
    const int built = status == BOLIDE_OK;
    bolide__compile_report r = {.entry = job->entry,
                                .spec = bolide__spec_text(&job->spec, spec),
                                .target = bolide__target_text(p->device->target, target),
                                .hash = built ? info->hash : "",
                                .status = status,
                                .message = built ? "" : bolide_last_error()->message,
                                .origin = built ? info->origin : BOLIDE__COMPILED,
                                .seconds = built ? info->seconds : 0,
                                .resources = built ? binary->resources : none,
                                .shared_bytes = job->shared_bytes,
                                .shared_limit = p->device->limits.shared_optin,
                                .total = p->total};
    r.shared_bytes += r.resources.shared_bytes;
    if (built && r.shared_bytes > r.shared_limit) {
        r.status = bolide__fail(BOLIDE_UNSUPPORTED, job->entry,
                                "%s needs %d bytes of shared memory a block; %s has %d", r.spec,
                                r.shared_bytes, r.target, r.shared_limit);
        r.message = bolide_last_error()->message;
    }
    pthread_mutex_lock(&p->lock);
    r.done = ++p->done;
    if (r.status != BOLIDE_OK && p->status == BOLIDE_OK) {
        p->status = r.status;
        snprintf(p->message, sizeof p->message, "%s", r.message);
    }
    if (p->progress && !p->progress(p->arg, &r))
        p->next = NULL;
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg) {
    pool *p = (pool *)arg;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        const bolide__job_node *job = p->next;
        if (job)
            p->next = job->next;
        pthread_mutex_unlock(&p->lock);
        if (!job)
            return NULL;
        bolide__binary binary;
        bolide__build_info info;
        const bolide_status status =
            bolide__build(job->entry, p->device->target, &job->spec, 0, &binary, &info);
        report(p, job, status, &binary, &info);
        free(binary.code);
    }
}

static int32_t cpus_at_hand(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

bolide_status bolide__cuda_compile_noted(bolide_context *ctx, int32_t threads,
                                         bolide__compile_progress *progress, void *arg) {
    pool p = {.device = ctx->cuda,
              .next = ctx->cuda->jobs,
              .total = bolide__cuda_noted(ctx),
              .progress = progress,
              .arg = arg,
              .lock = PTHREAD_MUTEX_INITIALIZER};
    if (threads <= 0)
        threads = cpus_at_hand();
    if (threads > p.total)
        threads = p.total;
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    pthread_t pool_threads[MAX_THREADS];
    int32_t started = 0;
    /* This thread works as well, so a machine that gives no thread still compiles. */
    while (started + 1 < threads && pthread_create(&pool_threads[started], NULL, work, &p) == 0)
        started++;
    work(&p);
    for (int32_t i = 0; i < started; i++)
        pthread_join(pool_threads[i], NULL);
    pthread_mutex_destroy(&p.lock);
    return p.status == BOLIDE_OK ? BOLIDE_OK : bolide__fail(p.status, NULL, "%s", p.message);
}
