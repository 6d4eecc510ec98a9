// SPDX-License-Identifier: Apache-2.0
//
// Tests that follow from what rows allow: every tensor of a valid call, in turn, as a padded view,
// with every second element of a vector, from its last row to its first, at an odd offset, and in
// the memory of the tensor that its row says it may share. Each gives the right result, or is
// refused by name.

#include <stdio.h>
#include <string.h>

#include "ops_test.h"

/* 1 if the report tells of a refusal that names the tensor: of what is not supported, or of its
 * strides. */
static int is_refusal_of(const driver_report *report, const char *tensor) {
    char name[PROBLEM_NAME + 4], strides[PROBLEM_NAME + 16];
    (void)snprintf(name, sizeof name, ": %s: ", tensor);
    (void)snprintf(strides, sizeof strides, ": %s: strides: ", tensor);
    return (!strncmp(report->text, "UNSUPPORTED: ", 13) && strstr(report->text, name) != NULL) ||
           (!strncmp(report->text, "INVALID_ARGUMENT: ", 18) && strstr(report->text, strides));
}

static void expect_view(unit *u, const bolide_op *op, const char *tensor, const char *suffix,
                        const char *value) {
    char key[2 * PROBLEM_NAME];
    problem p = {.count = 0};
    driver_report report;
    const driver_options options = {.device = BOLIDE_CPU, .seed = unit_seed(u)};
    (void)snprintf(p.op, sizeof p.op, "%s", op->name);
    (void)snprintf(key, sizeof key, "%s%s", tensor, suffix);
    if (problem_put(&p, key, value))
        return;
    driver_check_on(NULL, &p, &options, &report);
    UNIT_EXPECT(u, report.verdict == DRIVER_PASS || is_refusal_of(&report, tensor),
                "%s\n    bolide check \"%s\"", report.text, report.problem);
}

/* 1 if another tensor lies in the same shape and dtype, so that they may share memory. */
static int can_share(const driver_case *c, const driver_tensor *t) {
    const driver_tensor *other =
        t->row->alias ? driver_tensor_of(c, t->phase, t->row->alias) : NULL;
    int same = other && t->alias < 0 && other->alias < 0 && other->dtype == t->dtype &&
               other->ndim == t->ndim;
    for (int32_t i = 0; same && i < t->ndim; i++)
        same = other->shape[i] == t->shape[i];
    return same;
}

void op_test_views(unit *u, const driver_case *c) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        const driver_tensor *t = &c->tensor[i];
        char already[2 * PROBLEM_NAME];
        (void)snprintf(already, sizeof already, "%s.order", t->name);
        if (!t->present || t->list >= 0 || t->alias >= 0 || problem_get(&c->keys, already))
            continue;
        if (t->ndim >= 2 && !(t->row->flags & BOLIDE_DENSE))
            expect_view(u, c->op, t->name, ".pad", "5");
        if (t->ndim == 1 && t->elems > 1)
            expect_view(u, c->op, t->name, ".stride0", "2");
        if (t->ndim > 0 && t->shape[0] > 1) {
            char back[24];
            (void)snprintf(back, sizeof back, "%lld", -(long long)t->strides[0]);
            expect_view(u, c->op, t->name, ".stride0", back);
        }
        if (!(t->row->flags & BOLIDE_ALIGN16))
            expect_view(u, c->op, t->name, ".offset", "1");
        else
            expect_view(u, c->op, t->name, ".offset", "16");
        if (t->row->kind == BOLIDE_KIND_OUT && can_share(c, t))
            expect_view(u, c->op, t->name, "", t->row->alias);
    }
}
