// SPDX-License-Identifier: Apache-2.0
//
// A sample is a batch of calls long enough for the clock (200 us), each on the next instance. On a
// CUDA device it is a graph of calls, so that what is measured is the device and not the launches.

#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "case.h"
#include "numeric.h"
#include "scratch.h"

enum { MAX_COPIES = 4096, MAX_SAMPLES = 4000, MIN_SAMPLES = 9, GRAPH_CALLS = 20 };
static const double sample_seconds = 200e-6;

typedef struct instance {
    driver_case *c;
    driver_scratch scratch;
} instance;

typedef struct bench {
    const bench_options *options;
    device *d;
    int32_t count;
    instance *copy;
    int32_t next;
    char *error;
} bench;

/* ---- instances ---------------------------------------------------------------------------- */

static int fail(bench *b, const char *text) {
    (void)snprintf(b->error, DRIVER_ERROR, "%s", text);
    return -1;
}

/* A case with memory of its own and the values of another one. */
static driver_case *clone(const driver_case *c) {
    driver_case *n = malloc(sizeof *n);
    if (!n)
        return NULL;
    *n = *c;
    n->state = NULL;
    int bad = 0;
    for (int phase = 0; phase < 2; phase++) {
        driver_args *a = &n->args[phase];
        if (!a->entry)
            continue;
        a->bytes = malloc(a->entry->args_size);
        a->list = calloc(DRIVER_TENSORS, sizeof *a->list);
        if (a->bytes)
            memcpy(a->bytes, c->args[phase].bytes, a->entry->args_size);
        bad |= !a->bytes || !a->list;
    }
    for (int32_t i = 0; i < n->tensor_count; i++) {
        driver_tensor *t = &n->tensor[i];
        t->before = NULL;
        t->in = t->want = t->got = (ref_tensor){.name = t->name};
        if (!t->host)
            continue;
        t->host = buffer_make(t->bytes);
        if (t->host)
            memcpy(t->host, c->tensor[i].host, (size_t)t->bytes);
        bad |= !t->host;
    }
    if (bad) {
        driver_case_free(n);
        return NULL;
    }
    return n;
}

/* Memory of the device for every tensor, with its values. */
static int upload(bench *b, driver_case *c) {
    for (int32_t i = 0; b->d && i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        if (!t->host || t->on_host)
            continue;
        t->device = device_alloc(b->d, t->bytes + 256);
        if (!t->device || device_put(b->d, t->device, t->host, t->bytes))
            return fail(b, "out of device memory");
    }
    case_bind(c);
    return 0;
}

static int call(bench *b, instance *i, bolide_phase phase) {
    const bolide_status s = bolide_op_call(i->c->op, phase, b->options->ctx,
                                           i->c->args[phase].bytes, device_stream(b->d));
    return s == BOLIDE_OK ? 0 : fail(b, bolide_last_error()->message);
}

static int prepare(bench *b, instance *i) {
    bolide_status status;
    if (upload(b, i->c))
        return -1;
    if (scratch_make(i->c, b->options->ctx, b->d, &i->scratch, &status))
        return fail(b, status == BOLIDE_OK ? i->c->error : bolide_last_error()->message);
    if (i->c->args[BOLIDE_PLAN].entry && call(b, i, BOLIDE_PLAN))
        return -1;
    return call(b, i, BOLIDE_RUN);
}

static int64_t case_bytes(const driver_case *c) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->tensor_count; i++)
        if (c->tensor[i].host)
            bytes += c->tensor[i].bytes;
    return bytes;
}

static int32_t copies_for(const bench *b, const driver_case *c) {
    const double bytes = (double)case_bytes(c) + 1;
    const double half = 0.5 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const double wanted = fmin(4 * (double)b->options->cache, half) / bytes;
    return wanted < 1 ? 1 : wanted > MAX_COPIES ? MAX_COPIES : (int32_t)ceil(wanted);
}

static int make_copies(bench *b, driver_case *first) {
    const int32_t count = copies_for(b, first);
    b->copy = calloc((size_t)count, sizeof *b->copy);
    if (!b->copy) {
        driver_case_free(first);
        return fail(b, "out of memory");
    }
    for (b->count = 0; b->count < count; b->count++) {
        instance *i = &b->copy[b->count];
        i->c = b->count ? clone(first) : first;
        if (!i->c)
            return fail(b, "out of memory");
    }
    for (int32_t i = 0; i < count; i++)
        if (prepare(b, &b->copy[i]))
            return -1;
    return 0;
}

static void free_copies(bench *b) {
    /* The first goes last: tuples of the others point into it. */
    for (int32_t i = b->count - 1; i >= 0; i--) {
        driver_case *c = b->copy[i].c;
        scratch_free(&b->copy[i].scratch, b->d);
        for (int32_t k = 0; c && k < c->tensor_count; k++)
            if (c->tensor[k].device)
                device_free(b->d, c->tensor[k].device);
        driver_case_free(c);
    }
    free(b->copy);
}

/* ---- samples ------------------------------------------------------------------------------ */

static int call_next(bench *b) {
    instance *i = &b->copy[b->next];
    b->next = (b->next + 1) % b->count;
    return call(b, i, BOLIDE_RUN);
}

/* Seconds of a batch; below 0 after an error. */
static double time_batch(bench *b, int64_t calls) {
    const double start = roofline_now();
    for (int64_t i = 0; i < calls; i++)
        if (call_next(b))
            return -1;
    return roofline_now() - start;
}

static double time_graph(bench *b, void *graph) {
    char error[256];
    if (device_mark(b->d, 0) || device_graph_launch(b->d, graph) || device_mark(b->d, 1) ||
        device_wait(b->d, error))
        return fail(b, "the graph could not be run");
    return device_seconds(b->d);
}

static void *capture(bench *b, int64_t calls) {
    if (device_capture_begin(b->d)) {
        (void)fail(b, "capture could not begin");
        return NULL;
    }
    int bad = 0;
    for (int64_t i = 0; i < calls && !bad; i++)
        bad = call_next(b);
    void *graph = device_capture_end(b->d);
    if (!graph && !bad)
        (void)fail(b, "the calls cannot be captured");
    if (bad) {
        device_graph_free(b->d, graph);
        return NULL;
    }
    return graph;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(double *sample, int32_t count, bench_result *r) {
    qsort(sample, (size_t)count, sizeof *sample, compare);
    r->us = sample[count / 2] * 1e6;
    r->us_min = sample[0] * 1e6;
    r->spread = (sample[count * 9 / 10] - sample[count / 10]) / sample[count / 2];
}

static int take_samples(bench *b, bench_result *r) {
    double *sample = calloc(MAX_SAMPLES, sizeof *sample);
    double one = sample ? time_batch(b, 1) : -1;
    if (one < 0) {
        free(sample);
        return sample ? -1 : fail(b, "out of memory");
    }
    int64_t calls = b->d ? GRAPH_CALLS : one > 0 ? (int64_t)(sample_seconds / one) + 1 : 1000;
    if (b->d && calls < b->count && b->count < 200)
        calls = b->count; /* every instance is in the graph */
    void *graph = b->d ? capture(b, calls) : NULL;
    if (b->d && !graph) {
        free(sample);
        return -1;
    }
    int32_t count = 0;
    int bad = 0;
    const double start = roofline_now();
    for (int32_t warm = 0; warm < 2 && !bad; warm++)
        bad = (b->d ? time_graph(b, graph) : time_batch(b, calls)) < 0;
    while (!bad && count < MAX_SAMPLES &&
           (count < MIN_SAMPLES || roofline_now() - start < b->options->seconds)) {
        const double s = b->d ? time_graph(b, graph) : time_batch(b, calls);
        bad = s < 0;
        sample[count++] = s / (double)calls;
    }
    device_graph_free(b->d, graph);
    if (!bad)
        summarise(sample, count, r);
    r->calls = count * calls;
    free(sample);
    return bad ? -1 : 0;
}

/* ---- a problem ---------------------------------------------------------------------------- */

/* Every tensor of the run once, an in-out tensor twice. */
static double moved_bytes(const driver_case *c) {
    double bytes = 0;
    for (int32_t i = 0; i < c->tensor_count; i++) {
        const driver_tensor *t = &c->tensor[i];
        if (t->present && t->phase == BOLIDE_RUN)
            bytes += (double)t->elems * numeric_bits(t->dtype) / 8 *
                     (t->row->kind == BOLIDE_KIND_INOUT ? 2 : 1);
    }
    return bytes;
}

int bench_run(const problem *p, const bench_options *options, bench_result *result, char *error) {
    bench b = {.options = options, .error = error};
    int failed = 0;
    *result = (bench_result){.us = 0};
    driver_case *c = driver_case_make(p, 1, error);
    if (!c)
        return -1;
    result->bytes = c->ref && c->ref->bytes ? c->ref->bytes(c) : moved_bytes(c);
    result->flops = c->ref && c->ref->flops ? c->ref->flops(c) : 0;
    b.d = device_open(options->ctx, error, &failed);
    if (failed) {
        driver_case_free(c);
        return -1;
    }
    failed = make_copies(&b, c) || take_samples(&b, result);
    result->copies = b.count;
    free_copies(&b);
    device_close(b.d);
    return failed ? -1 : 0;
}

const char *bench_ceiling(const bench_result *result, const roofline *r, double *us) {
    const double read = result->bytes / r->read_bytes * 1e6;
    const double compute = r->flops > 0 ? result->flops / r->flops * 1e6 : 0;
    *us = compute > read ? compute : read;
    return compute > read ? "fma" : "read";
}
