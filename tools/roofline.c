// SPDX-License-Identifier: Apache-2.0
//
// Times the loops of cpu/roofline.h: the best of several passes, each through a buffer that no
// cache holds.

#include "roofline.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/roofline.h"

double roofline_now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int64_t roofline_cache(void) {
    static const int names[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE,
                                _SC_LEVEL2_CACHE_SIZE};
    for (int i = 0; i < 3; i++) {
        const long bytes = sysconf(names[i]);
        if (bytes > 0)
            return bytes;
    }
    return (int64_t)32 << 20; /* unknown: as large as most */
}

/* Half of the memory at most, so that a large cache does not drive the machine into swapping. */
static int64_t buffer_bytes(int64_t cache) {
    const int64_t half = (int64_t)sysconf(_SC_PHYS_PAGES) / 2 * sysconf(_SC_PAGESIZE);
    const int64_t block = BOLIDE__ROOFLINE_BLOCK * (int64_t)sizeof(float);
    const int64_t wanted = 4 * cache < half ? 4 * cache : half;
    return (wanted + block - 1) / block * block;
}

static void touch(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const bolide__roofline *r = arg;
    const int64_t block = BOLIDE__ROOFLINE_BLOCK * (int64_t)sizeof(float);
    memset((char *)(uintptr_t)r->buffer + begin * block, 0, (size_t)((end - begin) * block));
}

static double read_rate(const bolide_context *ctx, bolide__roofline *r, int64_t bytes) {
    double best = 0;
    const int64_t blocks = bytes / (BOLIDE__ROOFLINE_BLOCK * (int64_t)sizeof(float));
    const double until = roofline_now() + 1;
    for (int pass = 0; pass < 3 || (pass < 20 && roofline_now() < until); pass++) {
        const double start = roofline_now();
        bolide__parallel_for(ctx, blocks, 4, BOLIDE_CPU_PICK(roofline_read), r);
        const double rate = (double)bytes / (roofline_now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static double fma_rate(const bolide_context *ctx, bolide__roofline *r) {
    double best = 0;
    const int64_t items = 8 * bolide__cpu_threads(ctx);
    for (int pass = 0; pass < 10; pass++) {
        const double start = roofline_now();
        bolide__parallel_for(ctx, items, 1, BOLIDE_CPU_PICK(roofline_fma), r);
        const double rate = (double)items * BOLIDE__ROOFLINE_FLOPS / (roofline_now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

int roofline_cpu(const bolide_context *ctx, int64_t cache, roofline *out) {
    const int64_t bytes = buffer_bytes(cache);
    float *buffer = aligned_alloc(64, (size_t)bytes);
    float *sink = calloc((size_t)bolide__cpu_threads(ctx), sizeof *sink);
    bolide__roofline r = {.buffer = buffer, .sink = sink};
    const int bad = !buffer || !sink;
    if (!bad) {
        bolide__parallel_for(ctx, bytes / (BOLIDE__ROOFLINE_BLOCK * (int64_t)sizeof(float)), 4,
                             touch, &r);
        out->read_bytes = read_rate(ctx, &r, bytes);
        out->flops = fma_rate(ctx, &r);
    }
    free(buffer);
    free(sink);
    return bad ? -1 : 0;
}
