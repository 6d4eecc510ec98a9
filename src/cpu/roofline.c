// SPDX-License-Identifier: Apache-2.0
//
// Measures the ceilings of cpu/roofline.h. Both loops go through bolide__parallel_for, as the
// operators do, so they see the same threads.

#include "cpu/roofline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/roofline_internal.h"

enum { PASSES = 6 };

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

static int64_t slices(void) {
    const int64_t slice = (int64_t)BOLIDE__ROOFLINE_SLICE * 4;
    int64_t cache = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    int64_t count = 4 * cache / slice;
    const int64_t memory = (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) / slice;
    count = count < 256 ? 256 : count > 2048 ? 2048 : count;
    return count > memory / 2 ? memory / 2 : count;
}

double bolide__roofline_read(const bolide_context *ctx) {
    const int64_t count = slices();
    const double bytes = (double)count * BOLIDE__ROOFLINE_SLICE * 4.0;
    float *data = count > 0 ? malloc((size_t)bytes) : NULL;
    float *sink = count > 0 ? malloc((size_t)count * sizeof *sink) : NULL;
    double best = 0;
    if (data && sink) {
        bolide__roofline_sum_params params = {.data = data, .sink = sink};
        bolide__parallel_for(ctx, count, 1, fill, data);
        for (int pass = 0; pass < PASSES; pass++) {
            const double start = seconds();
            bolide__parallel_for(ctx, count, 1, BOLIDE_CPU_PICK(roofline_sum), &params);
            const double rate = bytes / (seconds() - start);
            best = rate > best ? rate : best;
        }
    }
    free(data);
    free(sink);
    return best;
}

double bolide__roofline_fma(const bolide_context *ctx) {
    const int threads = bolide__cpu_threads(ctx);
    const int64_t items = (int64_t)threads * 32;
    float *sink = malloc((size_t)items * sizeof *sink);
    double best = 0;
    if (!sink)
        return 0;
    bolide__roofline_chains_params params = {.factor = 0.5f, .sink = sink};
    for (int pass = 0; pass < PASSES; pass++) {
        const double start = seconds();
        bolide__parallel_for(ctx, items, 1, BOLIDE_CPU_PICK(roofline_chains), &params);
        const double steps = (double)items * BOLIDE__ROOFLINE_STEPS;
        const double rate = steps * params.operations_a_step / (seconds() - start);
        best = rate > best ? rate : best;
    }
    free(sink);
    return best;
}
