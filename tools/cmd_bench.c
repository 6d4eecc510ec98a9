// SPDX-License-Identifier: Apache-2.0
//
// `bolide bench PROBLEM...`: measures each problem, and the ceilings of the machine in turn with it
// (on a CUDA device before it); a line each, or with --json an object each, as kept in
// bench/results.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "command.h"
#include "json.h"
#include "machine.h"

typedef struct bencher {
    const command *c;
    bench_options options;
    char device[128];
    char commit[48];
    bench *last; /* kept for as long as the same problem comes again */
    char last_text[PROBLEM_TEXT];
    int failed;
} bencher;

static void print_json(const bencher *b, const char *text, const bench_result *r) {
    char date[16];
    const time_t now = time(NULL);
    struct tm day;
    double ceiling_us;
    const char *ceiling = bench_ceiling(r, &ceiling_us);
    (void)strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    json j = {.file = stdout};
    json_open(&j, NULL, '{');
    json_string(&j, "problem", text);
    json_string(&j, "device", b->device);
    json_string(&j, "isa",
                b->c->device == BOLIDE_CUDA ? "cuda" : bolide__isa_name(bolide__cpu_isa()));
    json_int(&j, "threads", b->c->device == BOLIDE_CUDA ? 1 : bolide__cpu_threads(b->options.ctx));
    json_string(&j, "date", date);
    json_string(&j, "commit", b->commit);
    json_double(&j, "us", r->us, 6);
    json_double(&j, "us_min", r->us_min, 6);
    json_double(&j, "spread", r->spread, 3);
    json_double(&j, "bytes", r->bytes, 15);
    json_double(&j, "flops", r->flops, 15);
    json_string(&j, "ceiling", ceiling);
    json_double(&j, "share", ceiling_us / r->us, 4);
    json_close(&j, '}');
    json_end(&j);
}

/* Measures the problem with the instances of the last one if that was the same. */
static int measure_problem(bencher *b, const problem *p, const char *text, bench_result *r,
                           char *error) {
    if (!b->last || strcmp(text, b->last_text) != 0) {
        bench_close(b->last);
        b->last = bench_open(p, &b->options, error);
        (void)snprintf(b->last_text, sizeof b->last_text, "%s", text);
    }
    return b->last ? bench_measure(b->last, r, error) : -1;
}

static int bench_problem(void *user, const problem *p) {
    bencher *b = user;
    char error[DRIVER_ERROR], text[PROBLEM_TEXT];
    bench_result r;
    problem_format(p, text, sizeof text);
    if (measure_problem(b, p, text, &r, error)) {
        (void)fprintf(stderr, "bolide bench: %s: %s\n", text, error);
        b->failed = 1;
        return 0;
    }
    if (b->c->json) {
        print_json(b, text, &r);
    } else {
        double ceiling_us;
        const char *ceiling = bench_ceiling(&r, &ceiling_us);
        printf("%12.3f us  min %12.3f  spread %5.1f %%  %8.2f of %7.1f GB/s %9.2f of %8.1f GFLOP/s"
               "  %5.1f %% of %-4s  %s\n",
               r.us, r.us_min, 100 * r.spread, 1e-3 * r.bytes / r.us, 1e-9 * r.limit.read_bytes,
               1e-3 * r.flops / r.us, 1e-9 * r.limit.flops, 100 * ceiling_us / r.us, ceiling, text);
    }
    (void)fflush(stdout);
    return 0;
}

/* On the CPU only what it takes to measure them. */
static int measure_ceilings(bencher *b) {
    if (b->c->device == BOLIDE_CUDA)
        return machine_cuda_ceilings(b->options.ctx, &b->options.cache, &b->options.device_limit);
    b->options.cache = roofline_cache();
    b->options.meter = bolide__roofline_open(b->options.ctx);
    return b->options.meter ? 0 : -1;
}

static int bench_all(bencher *b) {
    if (measure_ceilings(b)) {
        (void)fprintf(stderr, "bolide bench: the ceilings cannot be measured: %s\n",
                      b->c->device == BOLIDE_CUDA ? bolide_last_error()->message : "out of memory");
        return 1;
    }
    machine_name(b->options.ctx, b->device, sizeof b->device);
    machine_commit(b->commit, sizeof b->commit);
    if (!b->c->json)
        printf("%s, %s, %d threads\n", b->device,
               b->c->device == BOLIDE_CUDA ? "cuda" : bolide__isa_name(bolide__cpu_isa()),
               b->c->device == BOLIDE_CUDA ? 1 : bolide__cpu_threads(b->options.ctx));
    const int unread = command_problems(b->c, bench_problem, b);
    bench_close(b->last);
    bolide__roofline_close(b->options.meter);
    return unread ? 2 : b->failed;
}

int command_bench(int argc, char **argv) {
    command c;
    if (command_read(&c, "bench",
                     OPTION_JSON | OPTION_BACKEND | OPTION_ISA | OPTION_THREADS | OPTION_SECONDS,
                     argc, argv) ||
        command_isa(&c))
        return 2;
    /* A time holds for one call: none begins while the one ahead of it ends. */
    (void)setenv("BOLIDE_OVERLAP", "0", 0);
    bolide_context *ctx = NULL;
    if (bolide_context_create(c.device, 0, &ctx) != BOLIDE_OK ||
        (c.threads && bolide_context_set(ctx, BOLIDE_THREADS, c.threads) != BOLIDE_OK)) {
        (void)fprintf(stderr, "bolide bench: %s\n", bolide_last_error()->message);
        bolide_context_destroy(ctx);
        return 1;
    }
    bencher b = {.c = &c, .options = {.ctx = ctx, .seconds = c.seconds}};
    const int result = bench_all(&b);
    bolide_context_destroy(ctx);
    return result;
}
