// SPDX-License-Identifier: Apache-2.0
//
// test_cpu --bench: the ceilings of the machine and how near the micro-kernels come to them on one
// thread, from packed panels in the caches.

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cpu/microkernel.h"
#include "cpu/roofline.h"
#include "cpu/roofline_internal.h"
#include "cpu_test.h"

enum { K = 256, TILES = 8 };

/* The thread's own time, so that other programs on the machine disturb little. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The best rate of work items a second over rounds of about 5 ms. */
typedef void work(void *arg);
static double best_rate(work *do_it, void *arg, double items) {
    double best = 0;
    for (int round = 0; round < 30; round++) {
        const double start = now();
        int64_t count = 0;
        double taken;
        do {
            do_it(arg);
            count++;
            taken = now() - start;
        } while (taken < 0.005);
        const double rate = items * (double)count / taken;
        best = rate > best ? rate : best;
    }
    return best;
}

typedef struct tile_bench {
    const bolide__gemm_kernel *g;
    char *a, *b;
    float *c;
    const void *rows[64];
    float *source;
} tile_bench;

/* One panel of B against TILES panels of A: what a GEMM does from its second cache. */
static void run_tiles(void *arg) {
    const tile_bench *t = arg;
    const int64_t step = bolide__panel_bytes(t->g, t->g->mr, K);
    for (int i = 0; i < TILES; i++)
        t->g->run(K, t->a + i * step, t->b, t->c, t->g->nr, t->g->mr, t->g->nr, 1);
}
static void run_pack(void *arg) {
    const tile_bench *t = arg;
    t->g->pack_bt(t->b, t->rows, BOLIDE_BF16, t->g->nr, K);
}

static void bench_tile(const bolide__gemm_kernel *g, double peak) {
    tile_bench t = {.g = g};
    const size_t a_bytes = (size_t)bolide__panel_bytes(g, g->mr, K) * TILES;
    const size_t b_bytes = (size_t)bolide__panel_bytes(g, g->nr, K);
    const size_t c_bytes = (size_t)(g->mr * g->nr) * sizeof(float);
    t.a = aligned_alloc(64, (a_bytes + 63) / 64 * 64);
    t.b = aligned_alloc(64, (b_bytes + 63) / 64 * 64);
    t.c = aligned_alloc(64, (c_bytes + 63) / 64 * 64);
    t.source = calloc((size_t)K * 64, sizeof(float));
    if (t.a && t.b && t.c && t.source) {
        memset(t.a, 0, a_bytes);
        memset(t.c, 0, c_bytes);
        for (int j = 0; j < 64; j++)
            t.rows[j] = t.source + j * K;
        const double pack = best_rate(run_pack, &t, (double)K * g->nr);
        const double rate = best_rate(run_tiles, &t, 2.0 * K * g->mr * g->nr * TILES);
        printf("  %-9s %2d x %2d   %7.1f GFLOP/s  %5.1f %% of f32 FMA   pack %.2f G/s\n", g->name,
               g->mr, g->nr, rate * 1e-9, 100 * rate / peak, pack * 1e-9);
    }
    free(t.a);
    free(t.b);
    free(t.c);
    free(t.source);
}

static void run_chains(void *arg) {
    BOLIDE_CPU_PICK(roofline_chains)(arg, 0, 1, 0);
}

static void bench_all(bolide__isa isa) {
    float sink;
    bolide__roofline_chains_params chains = {.factor = 0.5f, .sink = &sink};
    const double steps = best_rate(run_chains, &chains, BOLIDE__ROOFLINE_STEPS);
    const double peak = steps * chains.operations_a_step;
    printf("%s: f32 FMA %.1f GFLOP/s on one thread\n", bolide__isa_name(isa), peak * 1e-9);
    for (int e = 0; bolide__gemm_entry(e); e++)
        bench_tile(bolide__gemm_entry(e), peak);
}

void bench_cpu(void) {
    bolide__roofline *r = bolide__roofline_open(NULL);
    if (r)
        printf("read %.1f GB/s, f32 FMA %.1f GFLOP/s on %d threads\n",
               bolide__roofline_read(r, 1e9) * 1e-9, bolide__roofline_fma(r, 1e10) * 1e-9,
               bolide__cpu_threads(NULL));
    bolide__roofline_close(r);
    on_each_isa(bench_all);
}
