// SPDX-License-Identifier: Apache-2.0
//
// A check from beginning to end: realise, plan, run, compare; then run again on other garbage, and
// on CUDA once more from a captured graph, which must all give the same bits; and beside that the
// guards, the inputs, the gaps between rows, and the count of allocations.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "buffer.h"
#include "case.h"
#include "numeric.h"
#include "scratch.h"

int64_t (*driver_allocations)(void);

/* What outputs hold before the first and the later runs. */
enum { FIRST_POISON = 0xff, LATER_POISON = 0x5a };

typedef struct attempt {
    const bolide_context *ctx;
    const driver_options *options;
    driver_report *report;
    driver_case *c;
    device *d;
    driver_scratch scratch;
    unsigned char *first[DRIVER_TENSORS]; /* outputs of the first run */
} attempt;

static int fail(attempt *a, driver_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(attempt *a, driver_verdict verdict, const char *format, ...) {
    va_list list;
    va_start(list, format);
    a->report->verdict = verdict;
    (void)vsnprintf(a->report->text, sizeof a->report->text, format, list);
    va_end(list);
    return -1;
}

/* ---- device mirrors ----------------------------------------------------------------------- */

static int is_mirrored(const driver_tensor *t) {
    return t->present && t->alias < 0 && !t->on_host;
}

static int make_mirrors(attempt *a) {
    for (int32_t i = 0; a->d && i < a->c->tensor_count; i++) {
        driver_tensor *t = &a->c->tensor[i];
        if (!is_mirrored(t))
            continue;
        const uint64_t base = device_alloc(a->d, buffer_total(t->bytes));
        if (!base)
            return fail(a, DRIVER_FAIL, "out of device memory for %s", t->name);
        t->device = base + BUFFER_GUARD;
    }
    case_bind(a->c);
    return 0;
}

static void free_mirrors(attempt *a) {
    for (int32_t i = 0; a->d && i < a->c->tensor_count; i++)
        if (a->c->tensor[i].device)
            device_free(a->d, a->c->tensor[i].device - BUFFER_GUARD);
}

/* Copies every buffer, guards included, to the device, or back. */
static int transfer(attempt *a, int to_device) {
    char error[256] = "";
    if (!a->d)
        return 0;
    if (device_wait(a->d, error))
        return fail(a, DRIVER_FAIL, "device fault: %s", error);
    for (int32_t i = 0; i < a->c->tensor_count; i++) {
        driver_tensor *t = &a->c->tensor[i];
        if (!t->device)
            continue;
        const uint64_t base = t->device - BUFFER_GUARD;
        const int64_t total = buffer_total(t->bytes);
        if (to_device ? device_put(a->d, base, buffer_begin(t->host), total)
                      : device_get(a->d, buffer_begin(t->host), base, total))
            return fail(a, DRIVER_FAIL, "%s: the copy to or from the device failed", t->name);
    }
    return 0;
}

/* ---- calls -------------------------------------------------------------------------------- */

/* A failed call, unless the problem expects exactly this failure; always -1. */
static int refused(attempt *a, bolide_status status) {
    const bolide_error *e = bolide_last_error();
    const char *expect = problem_get(&a->c->keys, "expect");
    char actual[PROBLEM_VALUE];
    if (!expect) {
        const int skip = status == BOLIDE_NO_DEVICE ||
                         (status == BOLIDE_UNSUPPORTED && a->options->device == BOLIDE_CUDA);
        return fail(a, skip ? DRIVER_SKIP : DRIVER_FAIL, "%s: %s", bolide_status_name(status),
                    e->message);
    }
    (void)snprintf(actual, sizeof actual, "%s:%s", bolide_status_name(status), e->arg);
    const size_t n = strchr(expect, ':') ? strlen(actual) : strcspn(actual, ":");
    if (strlen(expect) != n || strncasecmp(expect, actual, n) != 0)
        return fail(a, DRIVER_FAIL, "expected %s; got %s: %s", expect, bolide_status_name(status),
                    e->message);
    return fail(a, DRIVER_PASS, "refused as expected: %s", e->message);
}

static int call(attempt *a, bolide_phase phase) {
    const bolide_status status =
        bolide_op_call(a->c->op, phase, a->ctx, a->c->args[phase].bytes, device_stream(a->d));
    return status == BOLIDE_OK ? 0 : refused(a, status);
}

static int after_run(attempt *a) {
    char why[256];
    if (transfer(a, 0))
        return -1;
    if (case_untouched(a->c, why, sizeof why) || scratch_intact(&a->scratch, a->d, why, sizeof why))
        return fail(a, DRIVER_FAIL, "%s", why);
    return 0;
}

static int plan(attempt *a) {
    bolide_status status;
    if (scratch_make(a->c, a->ctx, a->d, &a->scratch, &status))
        return status == BOLIDE_OK ? fail(a, DRIVER_FAIL, "%s", a->c->error) : refused(a, status);
    return a->c->args[BOLIDE_PLAN].entry ? call(a, BOLIDE_PLAN) : 0;
}

/* ---- the same bits ------------------------------------------------------------------------ */

static int keep_first(attempt *a) {
    for (int32_t i = 0; i < a->c->tensor_count; i++) {
        const driver_tensor *t = &a->c->tensor[i];
        if (!case_is_written(t))
            continue;
        a->first[i] = malloc((size_t)t->bytes + 1);
        if (!a->first[i])
            return fail(a, DRIVER_FAIL, "out of memory");
        memcpy(a->first[i], case_host(a->c, t), (size_t)t->bytes);
    }
    return 0;
}

/* An element that holds the garbage of either run was not written in either. */
static int is_garbage(const driver_tensor *t, uint64_t first, uint64_t later) {
    const int bits = numeric_bits(t->dtype);
    const uint64_t mask = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    const uint64_t ones = UINT64_C(0x0101010101010101);
    return t->row->kind == BOLIDE_KIND_OUT && t->alias < 0 &&
           first == (FIRST_POISON * ones & mask) && later == (LATER_POISON * ones & mask);
}

static int same_bits(attempt *a, const char *which) {
    for (int32_t i = 0; i < a->c->tensor_count; i++) {
        driver_tensor *t = &a->c->tensor[i];
        if (!case_is_written(t))
            continue;
        const unsigned char *data = case_host(a->c, t);
        const ref_tensor *want = ref_out(a->c, t->name);
        for (int64_t k = 0; k < t->elems; k++) {
            const uint64_t first = case_bits(t, a->first[i], k), later = case_bits(t, data, k);
            if (first != later && !is_garbage(t, first, later) && !ref_is_any(want, k))
                return fail(a, DRIVER_FAIL,
                            "%s: element %lld: %s gave other bits: %llx, at first %llx", t->name,
                            (long long)k, which, (unsigned long long)later,
                            (unsigned long long)first);
        }
    }
    return 0;
}

static int prepare_again(attempt *a) {
    case_restore(a->c);
    case_poison(a->c, LATER_POISON);
    if (case_snapshot(a->c))
        return fail(a, DRIVER_FAIL, "%s", a->c->error);
    scratch_soil(&a->scratch, a->d);
    return transfer(a, 1);
}

static int run_again(attempt *a) {
    if (prepare_again(a))
        return -1;
    const int64_t before = driver_allocations ? driver_allocations() : 0;
    if (call(a, BOLIDE_RUN))
        return -1;
    const int64_t count = driver_allocations ? driver_allocations() - before : 0;
    if (count)
        return fail(a, DRIVER_FAIL, "the run allocated memory %lld times", (long long)count);
    return after_run(a) ? -1 : same_bits(a, "the second run");
}

static int run_captured(attempt *a) {
    if (prepare_again(a))
        return -1;
    if (device_capture_begin(a->d))
        return fail(a, DRIVER_FAIL, "capture could not begin");
    const int bad = call(a, BOLIDE_RUN);
    void *graph = device_capture_end(a->d);
    if (bad || !graph) {
        device_graph_free(a->d, graph);
        return bad ? -1 : fail(a, DRIVER_FAIL, "the run cannot be captured");
    }
    /* Replayed twice: the second replay starts from what the first left in the workspace. */
    int result = device_graph_launch(a->d, graph);
    if (!result && !after_run(a) && !same_bits(a, "the captured graph") && !prepare_again(a))
        result =
            device_graph_launch(a->d, graph) || after_run(a) || same_bits(a, "the replayed graph");
    else
        result = -1;
    device_graph_free(a->d, graph);
    return result && a->report->verdict == DRIVER_PASS
               ? fail(a, DRIVER_FAIL, "the captured graph could not be launched")
               : result;
}

/* ---- the whole check ---------------------------------------------------------------------- */

static int check(attempt *a) {
    case_poison(a->c, FIRST_POISON);
    if (case_snapshot(a->c))
        return fail(a, DRIVER_FAIL, "%s", a->c->error);
    if (make_mirrors(a) || transfer(a, 1) || plan(a) || call(a, BOLIDE_RUN) || after_run(a))
        return -1;
    if (problem_get(&a->c->keys, "expect"))
        return fail(a, DRIVER_FAIL, "expected %s; the call succeeded",
                    problem_get(&a->c->keys, "expect"));
    if (case_compare(a->c, a->report)) {
        a->report->verdict = DRIVER_FAIL;
        return -1;
    }
    if (keep_first(a) || run_again(a))
        return -1;
    return a->d && a->options->captured ? run_captured(a) : 0;
}

static void check_case(attempt *a) {
    char error[256] = "";
    int failed = 0;
    if (!a->c->ref) {
        fail(a, DRIVER_FAIL, "%s has no reference", a->c->op->name);
        return;
    }
    if (!bolide_op_supports(a->c->op, a->options->device)) {
        fail(a, DRIVER_SKIP, "%s has no implementation for this device", a->c->op->name);
        return;
    }
    a->c->device = a->options->device;
    a->d = device_open(a->ctx, error, &failed);
    if (failed)
        fail(a, DRIVER_FAIL, "%s", error);
    else
        (void)check(a);
    scratch_free(&a->scratch, a->d);
    free_mirrors(a);
    device_close(a->d);
    for (int32_t i = 0; i < a->c->tensor_count; i++)
        free(a->first[i]);
}

static int force_isa(const char *name, driver_report *report) {
    for (int isa = BOLIDE__BASELINE; name && isa <= BOLIDE__AVX512; isa++) {
        if (strcmp(bolide__isa_name((bolide__isa)isa), name) != 0)
            continue;
        if (bolide__cpu_force_isa((bolide__isa)isa))
            return 0;
        report->verdict = DRIVER_SKIP;
        (void)snprintf(report->text, sizeof report->text, "this machine has no %s", name);
        return -1;
    }
    if (!name)
        return 0;
    report->verdict = DRIVER_FAIL;
    (void)snprintf(report->text, sizeof report->text,
                   "isa: expected baseline, avx2, emu512 or avx512; got %.40s", name);
    return -1;
}

void driver_check_on(const bolide_context *ctx, const problem *p, const driver_options *options,
                     driver_report *report) {
    *report = (driver_report){.verdict = DRIVER_PASS};
    problem named = *p;
    char seed[24];
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)(options->seed >> 1));
    if (!problem_get(p, "seed"))
        (void)problem_put(&named, "seed", seed);
    problem_format(&named, report->problem, sizeof report->problem);
    if (options->device == BOLIDE_CPU && force_isa(options->isa, report))
        return;
    char error[DRIVER_ERROR];
    attempt a = {.ctx = ctx, .options = options, .report = report};
    a.c = driver_case_make(&named, 0, error);
    if (!a.c) {
        fail(&a, DRIVER_FAIL, "%s", error);
        return;
    }
    check_case(&a);
    driver_case_free(a.c);
}

void driver_check(const problem *p, const driver_options *options, driver_report *report) {
    bolide_context *ctx = NULL;
    const bolide_status s = bolide_context_create(options->device, 0, &ctx);
    if (s != BOLIDE_OK) {
        *report = (driver_report){.verdict = DRIVER_SKIP};
        (void)snprintf(report->text, sizeof report->text, "%s", bolide_last_error()->message);
        problem_format(p, report->problem, sizeof report->problem);
        return;
    }
    driver_check_on(ctx, p, options, report);
    bolide_context_destroy(ctx);
}
