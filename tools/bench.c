// SPDX-License-Identifier: Apache-2.0
//
// A sample is a batch of calls long enough for the clock (200 us), each on the next instance; the
// time for the samples counts the ceilings between them. On a CUDA device it is a graph of calls,
// so that what is measured is the device and not the launches.

#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case.h"
#include "numeric.h"
#include "scratch.h"

enum { MAX_COPIES = 16384, MAX_SAMPLES = 4000, MIN_SAMPLES = 5, GRAPH_CALLS = 20, ALIGNMENT = 256 };
static const double sample_seconds = 200e-6;
/* Every instance is called once before anything is timed, so that its pages are there, unless that
 * takes longer than this: next to calls as long, new pages of workspaces are nothing. */
static const double first_calls_seconds = 1;

/* The args of one more call on memory of its own. */
typedef struct instance {
    unsigned char *args[2]; /* by phase */
    bolide_tensor *view;    /* [tensors] */
    const bolide_tensor **list;
    void *host;      /* the tensors that lie on the host, one behind the other */
    uint64_t device; /* the others; 0: none */
    driver_scratch scratch;
} instance;

struct bench {
    const bench_options *options;
    driver_case *c; /* values, shapes and args that every instance begins from */
    device *d;
    int32_t count;
    instance *copy;
    int32_t next;
    double first_calls; /* seconds that the first calls on new instances took so far */
    char *error;
};

/* ---- instances ---------------------------------------------------------------------------- */

static int fail(bench *b, const char *text) {
    (void)snprintf(b->error, DRIVER_ERROR, "%s", text);
    return -1;
}

static int is_on_device(const bench *b, const driver_tensor *t) {
    return b->d && !t->on_host;
}

/* Bytes of the tensors on one side; each is aligned. */
static int64_t side_bytes(const bench *b, int side) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < b->c->tensor_count; i++) {
        const driver_tensor *t = &b->c->tensor[i];
        if (t->host && is_on_device(b, t) == side)
            bytes += (t->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return bytes;
}

/* Gives every tensor its part of the instance's memory and copies the values there. */
static int place_tensors(bench *b, instance *n) {
    uint64_t at[2] = {(uint64_t)(uintptr_t)n->host, n->device};
    for (int32_t i = 0; i < b->c->tensor_count; i++) {
        const driver_tensor *t = &b->c->tensor[i];
        const int side = is_on_device(b, t);
        n->view[i] = t->view;
        n->view[i].device.type = side ? BOLIDE_CUDA : BOLIDE_CPU;
        if (!t->host)
            continue;
        n->view[i].data = (void *)(uintptr_t)at[side];
        if (!side)
            memcpy(n->view[i].data, t->host, (size_t)t->bytes);
        else if (device_put(b->d, at[1], t->host, t->bytes))
            return fail(b, "the copy to the device failed");
        at[side] += (uint64_t)((t->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }
    for (int32_t i = 0; i < b->c->tensor_count; i++)
        if (b->c->tensor[i].alias >= 0)
            n->view[i].data = n->view[b->c->tensor[i].alias].data;
    return 0;
}

/* Points the copied args to the views. */
static void point_args(const bench *b, instance *n) {
    for (int32_t i = 0; i < b->c->tensor_count; i++) {
        const driver_tensor *t = &b->c->tensor[i];
        const bolide_tensor *view = &n->view[i];
        const bolide_tensor **slots = &n->list[i];
        if (!t->present)
            continue;
        n->list[i] = view;
        if (t->list < 0)
            memcpy(n->args[t->phase] + t->row->offset, &view, sizeof view);
        else if (t->list == 0)
            memcpy(n->args[t->phase] + t->row->offset, &slots, sizeof slots);
    }
}

static int call(bench *b, instance *n, bolide_phase phase) {
    const bolide_status s =
        bolide_op_call(b->c->op, phase, b->options->ctx, n->args[phase], device_stream(b->d));
    return s == BOLIDE_OK ? 0 : fail(b, bolide_last_error()->message);
}

/* Workspace and plan; scratch_make writes into the args that the case holds. */
static int make_scratch(bench *b, instance *n) {
    bolide_status status;
    unsigned char *kept[2];
    for (int phase = 0; phase < 2; phase++) {
        kept[phase] = b->c->args[phase].bytes;
        b->c->args[phase].bytes = n->args[phase];
    }
    const int bad = scratch_make(b->c, b->options->ctx, b->d, &n->scratch, &status);
    for (int phase = 0; phase < 2; phase++)
        b->c->args[phase].bytes = kept[phase];
    if (bad)
        return fail(b, status == BOLIDE_OK ? b->c->error : bolide_last_error()->message);
    return b->c->args[BOLIDE_PLAN].entry ? call(b, n, BOLIDE_PLAN) : 0;
}

static int make_instance(bench *b, instance *n) {
    const size_t tensors = (size_t)b->c->tensor_count + 1;
    const int64_t near = side_bytes(b, 0), far = side_bytes(b, 1);
    n->view = calloc(tensors, sizeof *n->view);
    n->list = calloc(tensors, sizeof *n->list);
    n->host = aligned_alloc(ALIGNMENT, (size_t)near + ALIGNMENT);
    if (far)
        n->device = device_alloc(b->d, far);
    int bad = !n->view || !n->list || !n->host || (far && !n->device);
    for (int phase = 0; phase < 2; phase++) {
        const driver_args *a = &b->c->args[phase];
        if (!a->entry)
            continue;
        n->args[phase] = malloc(a->entry->args_size);
        bad |= !n->args[phase];
        if (n->args[phase])
            memcpy(n->args[phase], a->bytes, a->entry->args_size);
    }
    if (bad)
        return fail(b, "out of memory");
    if (place_tensors(b, n))
        return -1;
    point_args(b, n);
    if (make_scratch(b, n))
        return -1;
    if (b->first_calls > first_calls_seconds)
        return 0;
    const double start = roofline_now();
    const int failed = call(b, n, BOLIDE_RUN);
    b->first_calls += roofline_now() - start;
    return failed;
}

static void free_instance(bench *b, instance *n) {
    scratch_free(&n->scratch, b->d);
    if (n->device)
        device_free(b->d, n->device);
    free(n->host);
    free(n->view);
    free(n->list);
    free(n->args[0]);
    free(n->args[1]);
}

static int make_instances(bench *b) {
    const double bytes = (double)(side_bytes(b, b->d != NULL) + 1);
    const double half = 0.5 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const double wanted = ceil(fmin(4 * (double)b->options->cache, half) / bytes);
    const int32_t count = wanted < 1 ? 1 : wanted > MAX_COPIES ? MAX_COPIES : (int32_t)wanted;
    b->copy = calloc((size_t)count, sizeof *b->copy);
    if (!b->copy)
        return fail(b, "out of memory");
    while (b->count < count)
        if (make_instance(b, &b->copy[b->count++]))
            return -1;
    return 0;
}

/* ---- samples ------------------------------------------------------------------------------ */

static int call_next(bench *b) {
    instance *n = &b->copy[b->next];
    b->next = (b->next + 1) % b->count;
    return call(b, n, BOLIDE_RUN);
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

typedef struct series {
    double value[MAX_SAMPLES];
    int32_t count;
} series;

/* What was measured in turn. */
typedef struct samples {
    series seconds; /* of a call */
    series read;    /* bytes a second */
    series fma;     /* operations a second */
} samples;

static double median(series *s) {
    qsort(s->value, (size_t)s->count, sizeof *s->value, compare);
    return s->count ? s->value[s->count / 2] : 0;
}

static void add(series *s, double value) {
    s->value[s->count++] = value;
}

static void summarise(samples *s, const bench *b, bench_result *r) {
    const int32_t count = s->seconds.count;
    const double *seconds = s->seconds.value;
    r->us = median(&s->seconds) * 1e6;
    r->us_min = seconds[0] * 1e6;
    r->spread = 1e6 * (seconds[count * 9 / 10] - seconds[count / 10]) / r->us;
    r->limit = b->options->device_limit;
    if (b->options->meter)
        r->limit = (roofline){.read_bytes = median(&s->read), .flops = median(&s->fma)};
}

/* Whether the call's time at the last rate of reading, or of multiplying, comes near enough to the
 * other to be the ceiling. */
static int may_bind(const samples *s, const bench_result *r, int reading) {
    if (s->read.count < MIN_SAMPLES)
        return 1;
    const double read = r->bytes / s->read.value[s->read.count - 1];
    const double compute = r->flops / s->fma.value[s->fma.count - 1];
    return reading ? 1.5 * read > compute : 1.5 * compute > read;
}

/* The ceilings beside the sample that was just taken of so many calls. One that is far from binding
 * is left out soon: a chip that only multiplies for a while lowers the clock of its memory, and the
 * next sample would pay for it. */
static void take_ceilings(const bench *b, samples *s, const bench_result *r, int64_t calls) {
    bolide__roofline *meter = b->options->meter;
    if (!meter)
        return;
    const int fma = may_bind(s, r, 0), read = may_bind(s, r, 1);
    if (fma)
        add(&s->fma, bolide__roofline_fma(meter, r->flops * (double)calls));
    if (read)
        add(&s->read, bolide__roofline_read(meter, r->bytes * (double)calls));
}

/* Calls of a sample: enough for the clock; in a graph every instance, or the data would be in the
 * cache. Below 0 after an error. */
static int64_t calls_a_sample(bench *b) {
    const double one = time_batch(b, 1);
    if (one < 0)
        return -1;
    if (b->d)
        return b->count > GRAPH_CALLS ? b->count : GRAPH_CALLS;
    return one > 0 ? (int64_t)(sample_seconds / one) + 1 : 1000;
}

static int take_samples(bench *b, bench_result *r) {
    const int64_t calls = calls_a_sample(b);
    void *graph = b->d && calls > 0 ? capture(b, calls) : NULL;
    if (calls < 0 || (b->d && !graph))
        return -1;
    samples *s = calloc(1, sizeof *s);
    int bad = s ? 0 : fail(b, "out of memory");
    const double start = roofline_now();
    for (int32_t warm = 0; warm < 2 && !bad; warm++)
        bad = (b->d ? time_graph(b, graph) : time_batch(b, calls)) < 0;
    while (!bad && s->seconds.count < MAX_SAMPLES &&
           (s->seconds.count < MIN_SAMPLES || roofline_now() - start < b->options->seconds)) {
        const double took = b->d ? time_graph(b, graph) : time_batch(b, calls);
        bad = took < 0;
        add(&s->seconds, took / (double)calls);
        take_ceilings(b, s, r, calls);
    }
    device_graph_free(b->d, graph);
    if (!bad) {
        summarise(s, b, r);
        r->calls = s->seconds.count * calls;
    }
    free(s);
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

bench *bench_open(const problem *p, const bench_options *options, char *error) {
    bench *b = calloc(1, sizeof *b);
    int failed = 0;
    if (!b) {
        (void)snprintf(error, DRIVER_ERROR, "out of memory");
        return NULL;
    }
    b->options = options;
    b->error = error;
    b->c = driver_case_make(p, 1, error);
    b->d = b->c ? device_open(options->ctx, error, &failed) : NULL;
    if (b->c && !failed && !make_instances(b))
        return b;
    bench_close(b);
    return NULL;
}

int bench_measure(bench *b, bench_result *result, char *error) {
    *result = (bench_result){.us = 0, .copies = b->count};
    b->error = error;
    result->bytes = b->c->ref && b->c->ref->bytes ? b->c->ref->bytes(b->c) : moved_bytes(b->c);
    result->flops = b->c->ref && b->c->ref->flops ? b->c->ref->flops(b->c) : 0;
    return take_samples(b, result);
}

void bench_close(bench *b) {
    if (!b)
        return;
    for (int32_t i = 0; i < b->count; i++)
        free_instance(b, &b->copy[i]);
    free(b->copy);
    device_close(b->d);
    driver_case_free(b->c);
    free(b);
}

const char *bench_ceiling(const bench_result *result, double *us) {
    const roofline *limit = &result->limit;
    const double read = result->bytes / limit->read_bytes * 1e6;
    const double compute = limit->flops > 0 ? result->flops / limit->flops * 1e6 : 0;
    *us = compute > read ? compute : read;
    return compute > read ? "fma" : "read";
}
