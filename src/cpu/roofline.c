// SPDX-License-Identifier: Apache-2.0
//
// Measures the ceilings of cpu/roofline.h. Both loops go through bolide__parallel_for, as the
// operators do, so they see the same threads and pay the same for waking them.

#include "cpu/roofline.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cpu/roofline_internal.h"

/* Slices of a sweep, and items of chains a thread, at least and at most. */
enum { FEWEST_SLICES = 32, FEWEST_ITEMS = 4, MOST_ITEMS = 512 };

struct bolide__roofline {
    const bolide_context *ctx;
    int64_t slices; /* of the buffer */
    int64_t next;   /* the slice that the next sweep begins with */
    float *data;    /* [slices * BOLIDE__ROOFLINE_SLICE] */
    float *sink;    /* [slices], for the chains [threads * MOST_ITEMS] */
    double item_operations;
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fill(void *arg, int64_t begin, int64_t end, int worker) {
    float *data = arg;
    (void)worker;
    for (int64_t i = begin * BOLIDE__ROOFLINE_SLICE; i < end * BOLIDE__ROOFLINE_SLICE; i++)
        data[i] = 1.0f;
}

static int64_t clamp(double count, int64_t least, int64_t most) {
    return count > (double)most ? most : count < (double)least ? least : (int64_t)count;
}

static int64_t slices(void) {
    const int64_t slice = (int64_t)BOLIDE__ROOFLINE_SLICE * 4, mib = 1 << 20;
    int64_t cache = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    const int64_t bytes = clamp(4 * (double)cache, 256 * mib, 2048 * mib);
    const int64_t memory = (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return (bytes > memory / 4 ? memory / 4 : bytes) / slice;
}

/* Seconds of the items; also sets what an item of them is worth. */
static double time_chains(bolide__roofline *r, int64_t items) {
    bolide__roofline_chains_params params = {.factor = 0.5f, .sink = r->sink};
    const double start = seconds();
    bolide__parallel_for(r->ctx, items, 1, BOLIDE_CPU_PICK(roofline_chains), &params);
    const double took = seconds() - start;
    r->item_operations = (double)params.operations_a_step * BOLIDE__ROOFLINE_STEPS;
    return took;
}

bolide__roofline *bolide__roofline_open(const bolide_context *ctx) {
    bolide__roofline *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    const int threads = bolide__cpu_threads(ctx);
    r->ctx = ctx;
    r->slices = slices();
    const size_t items = (size_t)clamp((double)r->slices, (int64_t)threads * MOST_ITEMS, INT32_MAX);
    r->data = malloc((size_t)r->slices * BOLIDE__ROOFLINE_SLICE * sizeof *r->data);
    r->sink = malloc(items * sizeof *r->sink);
    if (r->slices < FEWEST_SLICES || !r->data || !r->sink) {
        bolide__roofline_close(r);
        return NULL;
    }
    bolide__parallel_for(ctx, r->slices, 1, fill, r->data);
    (void)time_chains(r, threads);
    return r;
}

double bolide__roofline_read(bolide__roofline *r, double bytes) {
    const double slice = BOLIDE__ROOFLINE_SLICE * 4.0;
    const int64_t count = clamp(bytes / slice + 0.5, FEWEST_SLICES, r->slices);
    if (count > r->slices - r->next)
        r->next = 0;
    bolide__roofline_sum_params params = {.data = r->data + r->next * BOLIDE__ROOFLINE_SLICE,
                                          .sink = r->sink};
    r->next += count;
    const double start = seconds();
    bolide__parallel_for(r->ctx, count, 1, BOLIDE_CPU_PICK(roofline_sum), &params);
    return (double)count * slice / (seconds() - start);
}

double bolide__roofline_fma(bolide__roofline *r, double operations) {
    const int64_t threads = bolide__cpu_threads(r->ctx);
    const int64_t items =
        clamp(operations / r->item_operations + 0.5, threads * FEWEST_ITEMS, threads * MOST_ITEMS);
    return (double)items * r->item_operations / time_chains(r, items);
}

void bolide__roofline_close(bolide__roofline *r) {
    if (!r)
        return;
    free(r->data);
    free(r->sink);
    free(r);
}
