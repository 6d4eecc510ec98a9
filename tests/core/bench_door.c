// SPDX-License-Identifier: Apache-2.0
//
// bench_door [PROBLEM...]: what stands between a caller and a kernel. For each problem the least
// time of the public call, of the operator's own CPU function with a call that is already checked,
// and the difference, which is the door: at most 60 ns + 8 ns a row. Of a planned operator the
// plan, too. Without problems: rmsnorm and batch_decode, and the plans of a large batch.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/check.h"
#include "scratch.h"

static const char *const usual[] = {
    "rmsnorm n=1 d=16 input=f32",
    "batch_decode b=1 len=1 page=16 h_q=1 h_kv=1 d=16 x=f32",
};
/* Decode: at most 50 us. Prefill: at most 50 us + 30 ns an item. */
static const char *const plans[] = {
    "batch_decode b=1024 max=2000 page=16 h_q=4 h_kv=1 d=16 x=bf16",
    "batch_prefill_paged b=256 max=2000 page=16 h_q=4 h_kv=1 d=16 x=bf16 causal=1",
};
enum { ROUNDS = 400, CALLS = 200 };

typedef struct job {
    driver_case *c;
    bolide_context *ctx;
    bolide__call call; /* as the door hands it on */
    bolide_status status;
} job;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void call_door(job *j) {
    j->status = bolide_run(j->c->op, BOLIDE_RUN, j->ctx, j->c->args[BOLIDE_RUN].bytes, NULL);
}

static void call_kernel(job *j) {
    j->status = j->c->op->cpu(&j->call);
}

static void call_plan(job *j) {
    j->status = bolide_run(j->c->op, BOLIDE_PLAN, j->ctx, j->c->args[BOLIDE_PLAN].bytes, NULL);
}

/* Least time of a call in ns, over rounds of several. */
static double least(job *j, void (*run)(job *), int calls) {
    double best = 1e30;
    for (int round = 0; round < ROUNDS; round++) {
        const double start = now_ns();
        for (int i = 0; i < calls; i++)
            run(j);
        const double taken = (now_ns() - start) / calls;
        best = taken < best ? taken : best;
    }
    return best;
}

/* The call as it stands behind the checks. */
static int open_call(job *j) {
    const driver_case *c = j->c;
    const bolide_plan *plan = NULL;
    for (int32_t i = 0; i < c->op->run.row_count; i++)
        if (c->op->run.rows[i].kind == BOLIDE_KIND_PLAN)
            memcpy(&plan, c->args[BOLIDE_RUN].bytes + c->op->run.rows[i].offset, sizeof plan);
    j->call = (bolide__call){.op = c->op,
                             .phase = BOLIDE_RUN,
                             .ctx = j->ctx,
                             .args = c->args[BOLIDE_RUN].bytes,
                             .program = bolide__program_of(c->op, BOLIDE_RUN)};
    j->call.entry_name = j->call.program->entry_name;
    return bolide__check_rows(&j->call, plan, 0) == BOLIDE_OK;
}

static void measure(job *j, const char *text, int plan_only) {
    if (!plan_only && open_call(j)) {
        const double kernel = least(j, call_kernel, CALLS), all = least(j, call_door, CALLS);
        const int rows = j->c->op->run.row_count;
        printf("%s: %.0f ns, kernel %.0f ns, door %.0f ns, aim %d ns (%d rows)\n", text, all,
               kernel, all - kernel, 60 + 8 * rows, rows);
    }
    if (j->c->op->plan.args_size)
        printf("%s: plan %.1f us\n", text, 1e-3 * least(j, call_plan, 1));
    if (j->status != BOLIDE_OK)
        printf("%s: %s\n", text, bolide_last_error()->message);
}

static int one(const char *text, int plan_only) {
    problem_set set;
    problem p;
    driver_scratch s;
    bolide_status status = BOLIDE_OK;
    char error[DRIVER_ERROR];
    job j = {.c = NULL};
    if (problem_parse(text, &set, error) || bolide_context_create(BOLIDE_CPU, 0, &j.ctx)) {
        printf("%s: %s\n", text, error);
        return 1;
    }
    problem_at(&set, 0, &p);
    j.c = driver_case_make(&p, 1, error);
    if (!j.c || bolide_context_set(j.ctx, BOLIDE_THREADS, 1) ||
        scratch_make(j.c, j.ctx, NULL, &s, &status) || status != BOLIDE_OK) {
        printf("%s: %s\n", text, j.c ? bolide_last_error()->message : error);
        return 1;
    }
    if (j.c->op->plan.args_size)
        call_plan(&j);
    measure(&j, text, plan_only);
    scratch_free(&s, NULL);
    driver_case_free(j.c);
    bolide_context_destroy(j.ctx);
    return j.status != BOLIDE_OK;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++)
        failed |= one(argv[i], 0);
    for (size_t i = 0; argc == 1 && i < sizeof usual / sizeof usual[0]; i++)
        failed |= one(usual[i], 0);
    for (size_t i = 0; argc == 1 && i < sizeof plans / sizeof plans[0]; i++)
        failed |= one(plans[i], 1);
    return failed;
}
