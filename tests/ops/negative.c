// SPDX-License-Identifier: Apache-2.0
//
// Tests that follow from the rows of an operator. Its args struct is covered by them, byte by
// byte; and a valid call, spoilt in one field at a time, is refused with the right status and a
// message that names that argument, before a single byte is written. Numbers are set to extremes as
// well, where any status will do.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "dims.h"
#include "ops_test.h"
#include "scratch.h"
#include "spoil.h"

/* ---- rows cover the struct ------------------------------------------------------------------ */

static int has_second_field(bolide_kind kind) {
    return case_is_or_tensor(kind) || kind == BOLIDE_KIND_TENSOR_LIST ||
           kind == BOLIDE_KIND_INT_TUPLE;
}

static void check_coverage(unit *u, const bolide_op *op, const bolide__entry *e) {
    unsigned char *count = calloc(1, e->args_size);
    if (!count) {
        unit_fail(u, __FILE__, __LINE__, "out of memory");
        return;
    }
    for (int32_t i = 0; i < e->row_count; i++) {
        const uint32_t offsets[] = {e->rows[i].offset, e->rows[i].offset2};
        for (int k = 0; k < 1 + has_second_field(e->rows[i].kind); k++)
            for (uint32_t b = offsets[k]; b < offsets[k] + 8 && b < e->args_size; b++)
                count[b]++;
    }
    for (uint32_t b = 0; b < e->args_size; b++) {
        const int want = b >= sizeof(bolide_args_head);
        UNIT_EXPECT(u, count[b] == want, "%s: byte %u of the args struct is named by %d rows",
                    op->name, b, count[b]);
    }
    free(count);
}

/* ---- one spoilt call ------------------------------------------------------------------------ */

/* Calls with poisoned outputs. A refused call may have written nothing, another one no byte beside
 * its outputs and its scratch. */
static bolide_status call_watched(spoil *s, const char *arg, const char *what) {
    const char *entry = s->c->args[s->phase].entry->program->entry_name;
    char why[256];
    case_poison(s->c, 0xff);
    if (case_snapshot(s->c)) {
        unit_fail(s->u, __FILE__, __LINE__, "out of memory");
        return BOLIDE_OUT_OF_MEMORY;
    }
    const bolide_status got =
        bolide_op_call(s->c->op, s->phase, NULL, s->c->args[s->phase].bytes, NULL);
    for (int32_t i = 0; i < s->c->tensor_count; i++) {
        const driver_tensor *t = &s->c->tensor[i];
        if (t->present && t->alias < 0 && got != BOLIDE_OK)
            UNIT_EXPECT(s->u, !memcmp(t->host, t->before + BUFFER_GUARD, (size_t)t->bytes),
                        "%s: %s: %s: %s was written", entry, arg, what, t->name);
    }
    UNIT_EXPECT(s->u,
                got != BOLIDE_OK || (!case_untouched(s->c, why, sizeof why) &&
                                     !scratch_intact(s->scratch, NULL, why, sizeof why)),
                "%s: %s: %s: %s", entry, arg, what, why);
    return got;
}

void spoil_expect(spoil *s, bolide_status status, const char *arg, const char *what) {
    const bolide_status got = call_watched(s, arg, what);
    const bolide_error *e = bolide_last_error();
    const char *entry = s->c->args[s->phase].entry->program->entry_name;
    UNIT_EXPECT(s->u, got == status, "%s: %s: %s: expected %s; got %s (%s)", entry, arg, what,
                bolide_status_name(status), bolide_status_name(got),
                got == BOLIDE_OK ? "" : e->message);
    if (got != BOLIDE_OK && got == status)
        UNIT_EXPECT(s->u, spoil_names(s, arg, e->arg), "%s: %s: %s: the message names %s: %s",
                    entry, arg, what, e->arg, e->message);
}

/* ---- numbers and handles -------------------------------------------------------------------- */

static void spoil_number(spoil *s, const bolide_param *row, const void *value, const char *what) {
    unsigned char kept[8];
    unsigned char *field = s->c->args[s->phase].bytes + case_number_offset(row);
    memcpy(kept, field, sizeof kept);
    memcpy(field, value, sizeof kept);
    spoil_expect(s, BOLIDE_INVALID_ARGUMENT, row->name, what);
    memcpy(field, kept, sizeof kept);
}

static void spoil_integer(spoil *s, const bolide_param *row, int64_t value, const char *what) {
    spoil_number(s, row, &value, what);
}

/* A number that may be good or bad: the query and the call give any status. */
static void spoil_freely(spoil *s, const bolide_param *row, const void *value, const char *what) {
    const bolide_phase first = s->c->args[BOLIDE_PLAN].entry ? BOLIDE_PLAN : BOLIDE_RUN;
    unsigned char kept[8];
    unsigned char *field = s->c->args[s->phase].bytes + case_number_offset(row);
    bolide_sizes sizes;
    memcpy(kept, field, sizeof kept);
    memcpy(field, value, sizeof kept);
    if (s->phase == first &&
        bolide_op_workspace(s->c->op, NULL, s->c->args[first].bytes, &sizes) == BOLIDE_OK)
        UNIT_EXPECT(s->u,
                    sizes.device_bytes >= 0 && sizes.device_int_bytes >= 0 &&
                        sizes.pinned_bytes >= 0 && sizes.plan_bytes >= 0,
                    "%s: %s: %s: a workspace of less than 0 bytes", s->c->op->name, row->name,
                    what);
    if (call_watched(s, row->name, what) == BOLIDE_OK)
        case_restore(s->c);
    memcpy(field, kept, sizeof kept);
}

static void spoil_with_integers(spoil *s, const bolide_param *row) {
    static const int64_t values[] = {INT64_MAX,
                                     INT64_MIN + 1,
                                     (int64_t)1 << 62,
                                     (int64_t)1 << 32,
                                     INT32_MAX,
                                     INT32_MIN,
                                     (int64_t)1 << 20,
                                     129,
                                     3,
                                     2,
                                     1,
                                     0,
                                     -1,
                                     -2};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char what[32];
        (void)snprintf(what, sizeof what, "%lld", (long long)values[i]);
        spoil_freely(s, row, &values[i], what);
    }
}

static void spoil_with_numbers(spoil *s, const bolide_param *row) {
    static const double values[] = {INFINITY, -INFINITY, 0.0, -1.0, 1e300, -1e300, 5e-324, 1e-30};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char what[32];
        (void)snprintf(what, sizeof what, "%g", values[i]);
        spoil_freely(s, row, &values[i], what);
    }
}

static int64_t choices(const char *names) {
    int64_t n = *names != 0;
    for (; *names; names++)
        n += *names == ' ' && names[1] && names[1] != ' ';
    return n;
}

static int64_t dtype_outside(int64_t set) {
    for (int bit = 0; bit < 17; bit++)
        if (!(set >> bit & 1))
            return (int64_t)1 << bit;
    return 0;
}

static void spoil_scalar(spoil *s, const bolide_param *row) {
    const double nan = NAN;
    const int optional = (row->flags & BOLIDE_OPTIONAL) != 0;
    if (row->kind == BOLIDE_KIND_F64) {
        if (!optional)
            spoil_number(s, row, &nan, "NaN");
        return;
    }
    if (!optional)
        spoil_integer(s, row, BOLIDE_NO_INT, "absent");
    if (row->kind == BOLIDE_KIND_BOOL) {
        spoil_integer(s, row, 2, "2");
        spoil_integer(s, row, -1, "-1");
    } else if (row->kind == BOLIDE_KIND_ENUM) {
        spoil_integer(s, row, choices(row->choices), "one past the last choice");
        spoil_integer(s, row, -1, "-1");
    } else if (row->kind == BOLIDE_KIND_DTYPE) {
        spoil_integer(s, row, 0, "no dtype");
        if (dtype_outside(row->dtypes))
            spoil_integer(s, row, dtype_outside(row->dtypes), "a dtype outside the set");
        spoil_integer(s, row, row->dtypes | BOLIDE_F64 | BOLIDE_I64, "several dtypes");
    }
}

static void spoil_plan(spoil *s, const bolide_param *row) {
    bolide_plan *plan = (bolide_plan *)(void *)s->scratch->plan;
    unsigned char *field = s->c->args[s->phase].bytes + row->offset;
    const void *none = NULL;
    memcpy(field, &none, sizeof none);
    spoil_expect(s, BOLIDE_INVALID_ARGUMENT, row->name, "NULL");
    memcpy(field, &plan, sizeof plan);
    if (s->phase == BOLIDE_RUN) {
        plan->magic ^= 1;
        spoil_expect(s, BOLIDE_NOT_PLANNED, row->name, "another magic number");
        plan->magic ^= 1;
    } else {
        plan->size -= 1;
        spoil_expect(s, BOLIDE_WORKSPACE_TOO_SMALL, row->name, "one byte short");
        plan->size += 1;
    }
}

static void spoil_workspace(spoil *s, const bolide_param *row) {
    bolide_workspace *w = &s->scratch->workspace;
    struct {
        void **pointer;
        int64_t *bytes;
    } parts[] = {{&w->device, &w->device_bytes},
                 {&w->device_int, &w->device_int_bytes},
                 {&w->pinned, &w->pinned_bytes}};
    for (int i = 0; i < 3; i++) {
        /* A run takes nothing from staging. */
        if (*parts[i].bytes == 0 || (i == 2 && s->phase == BOLIDE_RUN))
            continue;
        void *pointer = *parts[i].pointer;
        *parts[i].bytes -= 1;
        spoil_expect(s, BOLIDE_WORKSPACE_TOO_SMALL, row->name, "one byte short");
        *parts[i].bytes += 1;
        *parts[i].pointer = NULL;
        spoil_expect(s, BOLIDE_WORKSPACE_TOO_SMALL, row->name, "no memory");
        *parts[i].pointer = (char *)pointer + 8;
        spoil_expect(s, BOLIDE_INVALID_ARGUMENT, row->name, "misaligned");
        *parts[i].pointer = pointer;
    }
}

static void spoil_tuple(spoil *s, const bolide_param *row) {
    unsigned char *field = s->c->args[s->phase].bytes + row->offset2;
    int64_t count = -1, kept;
    memcpy(&kept, field, sizeof kept);
    memcpy(field, &count, sizeof count);
    spoil_expect(s, BOLIDE_INVALID_ARGUMENT, row->name, "a count of -1");
    memcpy(field, &kept, sizeof kept);
}

static void spoil_row(spoil *s, const bolide_param *row) {
    switch (row->kind) {
    case BOLIDE_KIND_F64:
        spoil_with_numbers(s, row);
        spoil_scalar(s, row);
        break;
    case BOLIDE_KIND_I64:
    case BOLIDE_KIND_BOOL:
    case BOLIDE_KIND_ENUM:
    case BOLIDE_KIND_DTYPE:
        spoil_with_integers(s, row);
        spoil_scalar(s, row);
        break;
    case BOLIDE_KIND_PLAN:
        spoil_plan(s, row);
        break;
    case BOLIDE_KIND_WORKSPACE:
        spoil_workspace(s, row);
        break;
    case BOLIDE_KIND_INT_TUPLE:
    case BOLIDE_KIND_TENSOR_LIST:
        spoil_tuple(s, row);
        break;
    case BOLIDE_KIND_IN:
    case BOLIDE_KIND_OUT:
    case BOLIDE_KIND_INOUT:
        spoil_tensor(s, row);
        break;
    case BOLIDE_KIND_F64_OR_TENSOR:
        spoil_with_numbers(s, row);
        spoil_tensor(s, row);
        break;
    case BOLIDE_KIND_I64_OR_TENSOR:
        spoil_with_integers(s, row);
        spoil_tensor(s, row);
        break;
    case BOLIDE_KIND_VARIANT:
    case BOLIDE_KIND_COMM:
        break; /* a pointer to anything that its operator describes */
    }
}

static void spoil_head(spoil *s) {
    bolide_args_head *head = (bolide_args_head *)(void *)s->c->args[s->phase].bytes;
    const bolide_args_head kept = *head;
    head->tag = 0;
    spoil_expect(s, BOLIDE_INVALID_ARGUMENT, "args", "no tag");
    head->tag = kept.tag ^ 0x100;
    spoil_expect(s, BOLIDE_INVALID_ARGUMENT, "args", "another tag");
    *head = kept;
    static const int32_t sizes[] = {0, 4, 7};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        head->size = (uint32_t)sizes[i];
        spoil_expect(s, BOLIDE_INVALID_ARGUMENT, "args", "too small a size");
    }
    head->size = kept.size + 8;
    spoil_expect(s, BOLIDE_INVALID_ARGUMENT, "args", "a size beyond the struct");
    *head = kept;
    UNIT_EXPECT(s->u,
                bolide_op_call(s->c->op, s->phase, NULL, NULL, NULL) == BOLIDE_INVALID_ARGUMENT,
                "%s: NULL args were not refused", s->c->op->name);
}

/* ---- a whole operator ----------------------------------------------------------------------- */

static void spoil_phase(spoil *s, bolide_phase phase) {
    const bolide__entry *e = s->c->args[phase].entry;
    if (!e)
        return;
    s->phase = phase;
    spoil_head(s);
    for (int32_t i = 0; i < e->row_count; i++)
        spoil_row(s, &e->rows[i]);
    /* Everything was put back: the call is good again. */
    const bolide_status status =
        bolide_op_call(s->c->op, phase, NULL, s->c->args[phase].bytes, NULL);
    UNIT_EXPECT(s->u, status == BOLIDE_OK, "%s: the valid call is refused: %s", s->c->op->name,
                bolide_last_error()->message);
}

static void spoil_case(unit *u, driver_case *c) {
    driver_scratch scratch;
    spoil s = {.u = u, .c = c, .scratch = &scratch};
    bolide_status status;
    if (scratch_make(c, NULL, NULL, &scratch, &status)) {
        unit_fail(u, __FILE__, __LINE__, "%s: %s", c->op->name,
                  status == BOLIDE_OK ? c->error : bolide_last_error()->message);
    } else {
        spoil_phase(&s, BOLIDE_PLAN);
        spoil_phase(&s, BOLIDE_RUN);
    }
    scratch_free(&scratch, NULL);
}

void op_test_derived(unit *u, const bolide_op *op) {
    char error[DRIVER_ERROR];
    problem p = {.count = 0};
    (void)snprintf(p.op, sizeof p.op, "%s", op->name);
    check_coverage(u, op, &op->run);
    if (op->plan.args_size)
        check_coverage(u, op, &op->plan);
    if (!op->cpu) {
        unit_skip(u, "no CPU implementation to refuse arguments");
        return;
    }
    if (!ref_find(op->name)) {
        unit_fail(u, __FILE__, __LINE__, "%s has no reference in tests/ref", op->name);
        return;
    }
    driver_case *c = driver_case_make(&p, unit_seed(u), error);
    if (!c) {
        unit_fail(u, __FILE__, __LINE__, "the default problem: %s", error);
        return;
    }
    spoil_case(u, c);
    op_test_optional(u, c);
    op_test_views(u, c);
    driver_case_free(c);
}
