// SPDX-License-Identifier: Apache-2.0
//
// Runs the tables of all families:
//
//     bolide_op_tests [--backend cpu|cuda] [--isa NAME] [--filter TEXT] [--shard I/N] [--seed N]
//                     [--sample N] [--list]
//     bolide_op_tests --target compute_80 ...    the GPU as another chip, through the driver's PTX
//     bolide_op_tests --gate TARGET,...|all [--full] [--filter TEXT] [--shard I/N] [--time SECONDS]
//
// Every failure is printed with a problem string that `bolide check` repeats. Inputs are fresh in
// each run unless --seed is given. A sample is every N-th test from one on that the seed picks.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc_count.h"
#include "cuda/cuda.h"
#include "gate.h"
#include "numeric.h"
#include "ops_test.h"

typedef struct runner {
    bolide_device_type backend;
    const char *isa, *filter, *gate, *target;
    int full;
    int64_t shard, shards, sample, seconds;
    uint64_t seed;
    int list;
    bolide_context *ctx;
    int64_t index; /* of the next test, over all */
    int64_t passed, failed, skipped;
} runner;

struct unit {
    const char *name;
    uint64_t seed;
    int failed, skipped;
};

static op_test *tests;

void op_test_add(op_test *test) {
    test->next = tests;
    tests = test;
}

/* ---- units -------------------------------------------------------------------------------- */

void unit_fail(unit *u, const char *file, int line, const char *format, ...) {
    va_list list;
    printf("FAILED: %s: %s:%d: ", u->name, file, line);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf(" (--seed %llu)\n", (unsigned long long)u->seed);
    u->failed = 1;
}

void unit_skip(unit *u, const char *reason) {
    printf("skipped: %s: %s\n", u->name, reason);
    u->skipped = 1;
}

uint64_t unit_seed(const unit *u) {
    return u->seed;
}

/* 1 if the next test is wanted: it contains the filter, is in the sample and there in the shard. */
static int is_wanted(runner *r, const char *text) {
    if (r->filter && !strstr(text, r->filter))
        return 0;
    const int64_t index = r->index++, nth = index / r->sample;
    const int sampled = index % r->sample == (int64_t)(r->seed % (uint64_t)r->sample);
    const int wanted = sampled && nth % r->shards == r->shard;
    if (wanted && r->list)
        puts(text);
    return wanted && !r->list;
}

static void count_unit(runner *r, const unit *u) {
    r->failed += u->failed;
    r->skipped += !u->failed && u->skipped;
    r->passed += !u->failed && !u->skipped;
}

static void run_derived(runner *r) {
    for (int64_t i = 0; r->backend == BOLIDE_CPU && i < bolide_op_count(); i++) {
        char name[96];
        (void)snprintf(name, sizeof name, "rows of %s", bolide_op_name(bolide_op_at(i)));
        if (!is_wanted(r, name))
            continue;
        unit u = {.name = name, .seed = r->seed};
        op_test_derived(&u, bolide_op_at(i));
        count_unit(r, &u);
    }
}

/* ---- cases -------------------------------------------------------------------------------- */

static void run_problem(runner *r, const problem *p, const char *isa) {
    char text[PROBLEM_TEXT + 32];
    const int n = snprintf(text, sizeof text, "%s ", isa ? isa : "cuda");
    problem_format(p, text + n, sizeof text - (size_t)n);
    if (!is_wanted(r, text))
        return;
    driver_options options = {.device = r->backend,
                              .isa = isa,
                              .captured = 1,
                              .seed = numeric_mix(r->seed, 1, (uint64_t)r->index)};
    driver_report report;
    driver_check_on(r->ctx, p, &options, &report);
    r->passed += report.verdict == DRIVER_PASS;
    r->failed += report.verdict == DRIVER_FAIL;
    r->skipped += report.verdict == DRIVER_SKIP;
    const char *where = isa ? isa : "cuda";
    if (report.verdict == DRIVER_FAIL)
        printf("FAILED: %s: %s\n    bolide check --%s %s \"%s\"\n", where, report.text,
               isa ? "isa" : "backend", where, report.problem);
    if (report.verdict == DRIVER_SKIP)
        printf("skipped: %s: %s: %s\n", where, report.problem, report.text);
    (void)fflush(stdout);
}

static void run_string(runner *r, const char *text, const char *isa) {
    problem_set *set = malloc(sizeof *set);
    char error[PROBLEM_ERROR];
    if (!set || problem_parse(text, set, error)) {
        printf("FAILED: \"%s\": %s\n", text, set ? error : "out of memory");
        r->failed++;
        free(set);
        return;
    }
    for (int64_t i = 0; i < set->total; i++) {
        problem p;
        problem_at(set, i, &p);
        run_problem(r, &p, isa);
    }
    free(set);
}

static void run_test(runner *r, op_test *t, const char *isa, int first) {
    for (int64_t i = 0; i < t->count; i++)
        run_string(r, t->cases[i], isa);
    if (!t->run || !first || !is_wanted(r, t->name))
        return;
    unit u = {.name = t->name, .seed = r->seed};
    t->run(&u);
    count_unit(r, &u);
}

/* All tables under one instruction set; NULL on CUDA. */
static void run_tables(runner *r, const char *isa, int first) {
    for (op_test *t = tests; t; t = t->next)
        if (!t->gpu || !isa)
            run_test(r, t, isa, first);
}

static void run_cpu(runner *r) {
    int first = 1;
    for (int isa = BOLIDE__BASELINE; isa <= BOLIDE__AVX512; isa++) {
        const char *name = bolide__isa_name((bolide__isa)isa);
        if (r->isa && strcmp(r->isa, name) != 0)
            continue;
        if (!bolide__cpu_force_isa((bolide__isa)isa)) {
            printf("skipped: %s: this machine does not have it\n", name);
            r->skipped++;
            continue;
        }
        run_tables(r, name, first);
        first = 0;
    }
}

/* ---- the compile gate ---------------------------------------------------------------------- */

static void visit_string(const char *text, const char *filter,
                         void (*visit)(void *user, const problem *p), void *user) {
    problem_set *set = malloc(sizeof *set);
    char error[PROBLEM_ERROR], line[PROBLEM_TEXT];
    if (!set || problem_parse(text, set, error)) {
        free(set); /* the tests themselves tell */
        return;
    }
    for (int64_t i = 0; i < set->total; i++) {
        problem p;
        problem_at(set, i, &p);
        problem_format(&p, line, sizeof line);
        if (!filter || strstr(line, filter))
            visit(user, &p);
    }
    free(set);
}

void op_test_each(const char *filter, void (*visit)(void *user, const problem *p), void *user) {
    for (const op_test *t = tests; t; t = t->next)
        for (int64_t i = 0; i < t->count; i++)
            visit_string(t->cases[i], filter, visit, user);
}

/* ---- start -------------------------------------------------------------------------------- */

/* Sorted by name, so that shards do not depend on the order of linking. */
static void sort_tests(void) {
    op_test *sorted = NULL;
    while (tests) {
        op_test *t = tests, **at = &sorted;
        tests = t->next;
        while (*at && strcmp((*at)->name, t->name) < 0)
            at = &(*at)->next;
        t->next = *at;
        *at = t;
    }
    tests = sorted;
}

static int usage(void) {
    (void)fprintf(stderr,
                  "usage: bolide_op_tests [--backend cpu|cuda] [--isa NAME] [--filter TEXT] "
                  "[--shard I/N] [--seed N] [--sample N] [--list]\n"
                  "       bolide_op_tests --target compute_NN ...\n"
                  "       bolide_op_tests --gate TARGET,...|all [--full] [--filter TEXT] "
                  "[--shard I/N] [--time SECONDS]\n");
    return 2;
}

static int read_option(runner *r, const char *name, const char *value) {
    long long shard, shards;
    int64_t seed;
    if (!strcmp(name, "--backend") && (!strcmp(value, "cpu") || !strcmp(value, "cuda")))
        r->backend = !strcmp(value, "cuda") ? BOLIDE_CUDA : BOLIDE_CPU;
    else if (!strcmp(name, "--isa"))
        r->isa = value;
    else if (!strcmp(name, "--filter"))
        r->filter = value;
    else if (!strcmp(name, "--gate"))
        r->gate = value;
    else if (!strcmp(name, "--target")) {
        r->backend = BOLIDE_CUDA;
        r->target = value;
    } else if (!strcmp(name, "--shard") && sscanf(value, "%lld/%lld", &shard, &shards) == 2 &&
               shard >= 0 && shard < shards) {
        r->shard = shard;
        r->shards = shards;
    } else if (!strcmp(name, "--seed") && problem_int(value, &seed))
        r->seed = (uint64_t)seed;
    else if (!strcmp(name, "--sample"))
        return problem_int(value, &r->sample) && r->sample > 0 ? 0 : -1;
    else if (!strcmp(name, "--time"))
        return problem_int(value, &r->seconds) && r->seconds > 0 ? 0 : -1;
    else
        return -1;
    return 0;
}

int main(int argc, char **argv) {
    runner r = {.backend = BOLIDE_CPU, .shards = 1, .sample = 1, .seed = (uint64_t)time(NULL)};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--list"))
            r.list = 1;
        else if (!strcmp(argv[i], "--full"))
            r.full = 1;
        else if (i + 1 == argc || read_option(&r, argv[i], argv[i + 1]))
            return usage();
        else
            i++;
    }
    driver_allocations = alloc_count;
    sort_tests();
    if (r.gate)
        return gate_run(&(gate_options){r.gate, r.filter, r.full, r.shard, r.shards, r.seconds});
    const bolide_status status = r.target ? bolide__cuda_context_as(0, r.target, &r.ctx)
                                          : bolide_context_create(r.backend, 0, &r.ctx);
    if (status != BOLIDE_OK) {
        const int missing = status == BOLIDE_NO_DEVICE;
        printf("%s: %s\n0 passed, %d failed, %d skipped\n", missing ? "skipped" : "FAILED",
               bolide_last_error()->message, !missing, missing);
        return !missing;
    }
    if (r.sample > 1)
        printf("a sample of 1 in %lld (--seed %llu)\n", (long long)r.sample,
               (unsigned long long)r.seed);
    run_derived(&r);
    if (r.backend == BOLIDE_CPU)
        run_cpu(&r);
    else
        run_tables(&r, NULL, 1);
    bolide_context_destroy(r.ctx);
    printf("%lld passed, %lld failed, %lld skipped\n", (long long)r.passed, (long long)r.failed,
           (long long)r.skipped);
    return r.failed > 0;
}
