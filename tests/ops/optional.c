// SPDX-License-Identifier: Apache-2.0
//
// The derived negative tests of tensors that the default problem leaves out. For each such row a
// valid call that passes it is looked for: the default problem with NAME=given, then the family's
// own cases. A row that no case passes is a failure, since nothing would test it at all.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "gate.h"
#include "ops_test.h"
#include "scratch.h"
#include "spoil.h"

enum { SMALL_ELEMS = 1 << 21 }; /* of a tensor: each refusal compares all of them */

typedef struct hunt {
    unit *u;
    const bolide_op *op;
    const bolide_param *row;
    bolide_phase phase;
    int done;
} hunt;

static int is_single_tensor(bolide_kind kind) {
    return case_is_tensor(kind) && kind != BOLIDE_KIND_TENSOR_LIST;
}

static int is_small(const driver_case *c) {
    for (int32_t i = 0; i < c->tensor_count; i++)
        if (c->tensor[i].present && c->tensor[i].elems > SMALL_ELEMS)
            return 0;
    return 1;
}

static int call(const driver_case *c, bolide_phase phase) {
    return c->args[phase].entry &&
           bolide_op_call(c->op, phase, NULL, c->args[phase].bytes, NULL) != BOLIDE_OK;
}

/* Spoils the tensor in the call of this problem, if the call is small, good and passes it. */
static void try_problem(hunt *h, const problem *p) {
    char error[DRIVER_ERROR];
    driver_scratch scratch;
    bolide_status status;
    driver_case *c = driver_case_make(p, unit_seed(h->u), error);
    if (!c)
        return;
    memset(&scratch, 0, sizeof scratch);
    if (driver_tensor_of(c, h->phase, h->row->name) && is_small(c) &&
        !scratch_make(c, NULL, NULL, &scratch, &status) && !call(c, BOLIDE_PLAN) &&
        !call(c, BOLIDE_RUN)) {
        spoil s = {.u = h->u, .c = c, .scratch = &scratch, .phase = h->phase};
        spoil_tensor(&s, h->row);
        h->done = 1;
    }
    scratch_free(&scratch, NULL);
    driver_case_free(c);
}

static void visit(void *user, const problem *p) {
    hunt *h = user;
    char error[DRIVER_ERROR];
    if (h->done || strcmp(p->op, h->op->name) != 0 || problem_get(p, "expect"))
        return;
    driver_case *dry = driver_case_make_dry(p, error);
    const int passes = dry && driver_tensor_of(dry, h->phase, h->row->name) && is_small(dry);
    driver_case_free(dry);
    if (passes)
        try_problem(h, p);
}

static void spoil_optional(hunt *h) {
    problem p = {.count = 0};
    (void)snprintf(p.op, sizeof p.op, "%s", h->op->name);
    if (!problem_put(&p, h->row->name, case_is_or_tensor(h->row->kind) ? "tensor" : "given"))
        try_problem(h, &p);
    if (!h->done)
        op_test_each(h->op->name, visit, h);
    UNIT_EXPECT(h->u, h->done, "%s: no small case passes %s", h->op->name, h->row->name);
}

void op_test_optional(unit *u, const driver_case *usual) {
    for (int phase = 0; phase < 2; phase++) {
        const bolide__entry *e = usual->args[phase].entry;
        for (int32_t i = 0; e && i < e->row_count; i++) {
            hunt h = {.u = u, .op = usual->op, .row = &e->rows[i], .phase = (bolide_phase)phase};
            if (is_single_tensor(h.row->kind) && !driver_tensor_of(usual, h.phase, h.row->name))
                spoil_optional(&h);
        }
    }
}
