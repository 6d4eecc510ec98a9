// SPDX-License-Identifier: Apache-2.0
//
// Makes the calls of a problem on dry CUDA contexts, which note the kernels that they would launch
// (cuda/compile.h). `bolide compile` and the compile gate work this way, without a GPU.

#include <stdio.h>
#include <string.h>

#include "case.h"
#include "scratch.h"

/* Tensors keep their host addresses, which are aligned as device memory would be, and claim to lie
 * on the device; no one reads them. */
static void pretend(driver_case *c) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        if (t->present && t->alias < 0 && !t->on_host)
            t->device = (uint64_t)(uintptr_t)t->host;
    }
    case_bind(c);
}

static bolide_status note(driver_case *c, const bolide_context *ctx) {
    driver_scratch scratch;
    bolide_status status = BOLIDE_OK;
    if (scratch_make(c, ctx, NULL, &scratch, &status))
        status = status == BOLIDE_OK ? BOLIDE_OUT_OF_MEMORY : status;
    else if (c->args[BOLIDE_PLAN].entry)
        status = bolide_op_call(c->op, BOLIDE_PLAN, ctx, c->args[BOLIDE_PLAN].bytes, NULL);
    if (status == BOLIDE_OK)
        status = bolide_op_call(c->op, BOLIDE_RUN, ctx, c->args[BOLIDE_RUN].bytes, NULL);
    scratch_free(&scratch, NULL);
    return status;
}

void driver_note(bolide_context *const *contexts, int count, const problem *p,
                 driver_report *report) {
    *report = (driver_report){.verdict = DRIVER_SKIP};
    problem_format(p, report->problem, sizeof report->problem);
    const bolide_op *op = bolide_op_find(p->op);
    if (op && !bolide_op_supports(op, BOLIDE_CUDA)) {
        (void)snprintf(report->text, sizeof report->text, "%s has no CUDA implementation", p->op);
        return;
    }
    driver_case *c = driver_case_make_dry(p, report->text);
    if (!c) {
        report->verdict = DRIVER_FAIL;
        return;
    }
    pretend(c);
    for (int i = 0; i < count; i++) {
        if (note(c, contexts[i]) == BOLIDE_OK)
            report->verdict = DRIVER_PASS;
        else
            (void)snprintf(report->text, sizeof report->text, "%s", bolide_last_error()->message);
    }
    driver_case_free(c);
}
