// SPDX-License-Identifier: Apache-2.0
//
// Keys of a problem against the rows of its operator: which exist, and the numbers they set. A
// number or enum that plan and run both have is set in both.

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "dims.h"

int case_fail(driver_case *c, const char *format, ...) {
    if (c->error[0])
        return -1;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(c->error, sizeof c->error, format, list);
    va_end(list);
    return -1;
}

/* ---- rows --------------------------------------------------------------------------------- */

int case_is_or_tensor(bolide_kind kind) {
    return kind == BOLIDE_KIND_F64_OR_TENSOR || kind == BOLIDE_KIND_I64_OR_TENSOR;
}

int case_is_tensor(bolide_kind kind) {
    return kind == BOLIDE_KIND_IN || kind == BOLIDE_KIND_OUT || kind == BOLIDE_KIND_INOUT ||
           kind == BOLIDE_KIND_TENSOR_LIST || case_is_or_tensor(kind);
}

const bolide_param *case_row(const driver_case *c, bolide_phase phase, const char *name) {
    const bolide__entry *e = c->args[phase].entry;
    for (int32_t i = 0; e && i < e->row_count; i++)
        if (*e->rows[i].name == *name && !strcmp(e->rows[i].name, name))
            return &e->rows[i];
    return NULL;
}

const bolide_param *case_any_row(const driver_case *c, const char *name, bolide_phase *phase) {
    static const bolide_phase order[] = {BOLIDE_RUN, BOLIDE_PLAN};
    for (int i = 0; i < 2; i++) {
        const bolide_param *row = case_row(c, order[i], name);
        if (row) {
            if (phase)
                *phase = order[i];
            return row;
        }
    }
    return NULL;
}

const char *case_property(const driver_case *c, const char *name, const char *suffix) {
    char key[2 * PROBLEM_NAME];
    (void)snprintf(key, sizeof key, "%s.%s", name, suffix);
    return problem_get(&c->keys, key);
}

uint32_t case_number_offset(const bolide_param *row) {
    return case_is_or_tensor(row->kind) ? row->offset2 : row->offset;
}

int64_t case_get_i64(const driver_case *c, bolide_phase phase, uint32_t offset) {
    int64_t v;
    memcpy(&v, c->args[phase].bytes + offset, sizeof v);
    return v;
}

double case_get_f64(const driver_case *c, bolide_phase phase, uint32_t offset) {
    double v;
    memcpy(&v, c->args[phase].bytes + offset, sizeof v);
    return v;
}

void case_put(driver_case *c, bolide_phase phase, uint32_t offset, const void *value) {
    memcpy(c->args[phase].bytes + offset, value, 8);
}

int64_t case_choice(const char *choices, const char *name, size_t length) {
    for (int64_t i = 0; *choices; i++) {
        const size_t n = strcspn(choices, " ");
        if (n == length && !memcmp(choices, name, n))
            return i;
        choices += n + strspn(choices + n, " ");
    }
    return -1;
}

/* ---- dimensions --------------------------------------------------------------------------- */

int64_t case_find_dim(const driver_case *c, const char *name, int32_t length) {
    char text[PROBLEM_NAME];
    if (length >= PROBLEM_NAME)
        return INT64_MIN;
    memcpy(text, name, (size_t)length);
    text[length] = 0;
    for (int32_t i = 0; i < c->dim_count; i++)
        if (!strcmp(c->dim[i].name, text))
            return c->dim[i].value;
    bolide_phase phase;
    const bolide_param *row = case_any_row(c, text, &phase);
    if (row && (row->kind == BOLIDE_KIND_I64 || row->kind == BOLIDE_KIND_ENUM))
        return case_get_i64(c, phase, row->offset);
    return INT64_MIN;
}

void case_set_dim(driver_case *c, const char *name, int64_t value) {
    for (int32_t i = 0; i < c->dim_count; i++) {
        if (!strcmp(c->dim[i].name, name)) {
            c->dim[i].value = value;
            return;
        }
    }
    if (c->dim_count == DRIVER_DIMS || strlen(name) >= sizeof c->dim[0].name) {
        case_fail(c, "%s: too many dimensions, or a name too long: %s", c->op->name, name);
        return;
    }
    memcpy(c->dim[c->dim_count].name, name, strlen(name) + 1);
    c->dim[c->dim_count++].value = value;
}

typedef struct search {
    const char *name;
    int found;
} search;

static void match_name(void *user, const char *name, int32_t length) {
    search *s = user;
    s->found |= (int32_t)strlen(s->name) == length && !memcmp(s->name, name, (size_t)length);
}

static int is_dim(const driver_case *c, const char *name) {
    search s = {name, 0};
    for (int phase = 0; phase < 2; phase++) {
        const bolide__entry *e = c->args[phase].entry;
        for (int32_t i = 0; e && i < e->row_count; i++)
            if (e->rows[i].dims)
                dims_names(e->rows[i].dims, match_name, &s);
    }
    for (const bolide__plan_dim *d = c->op->plan_dims; d && d->name; d++)
        s.found |= !strcmp(d->name, name);
    return s.found;
}

/* ---- numbers ------------------------------------------------------------------------------ */

static int bad_value(driver_case *c, const problem_key *key, const char *expected) {
    return case_fail(c, "%s: %s: expected %s; got %.80s", c->op->name, key->name, expected,
                     key->value);
}

static int read_double(driver_case *c, bolide_phase phase, const bolide_param *row,
                       const problem_key *key) {
    double v;
    if (!strcmp(key->value, "none"))
        v = NAN;
    else if (!problem_double(key->value, &v))
        return bad_value(c, key, "a number");
    case_put(c, phase, case_number_offset(row), &v);
    return 0;
}

static int read_integer(driver_case *c, bolide_phase phase, const bolide_param *row,
                        const problem_key *key) {
    int64_t v;
    const int64_t choice = row->kind == BOLIDE_KIND_ENUM
                               ? case_choice(row->choices, key->value, strlen(key->value))
                               : -1;
    if (choice >= 0)
        v = choice;
    else if (!strcmp(key->value, "none"))
        v = BOLIDE_NO_INT;
    else if (row->kind == BOLIDE_KIND_DTYPE && bolide_dtype_parse(key->value))
        v = bolide_dtype_parse(key->value);
    else if (row->kind == BOLIDE_KIND_BOOL && !strcmp(key->value, "true"))
        v = 1;
    else if (row->kind == BOLIDE_KIND_BOOL && !strcmp(key->value, "false"))
        v = 0;
    else if (row->kind == BOLIDE_KIND_DTYPE || !problem_int(key->value, &v))
        return bad_value(c, key,
                         row->kind == BOLIDE_KIND_ENUM    ? row->choices
                         : row->kind == BOLIDE_KIND_DTYPE ? "a dtype"
                         : row->kind == BOLIDE_KIND_BOOL  ? "0 or 1"
                                                          : "an integer");
    case_put(c, phase, case_number_offset(row), &v);
    return 0;
}

static int read_tuple(driver_case *c, bolide_phase phase, const bolide_param *row,
                      const problem_key *key) {
    if (c->tuple_count == 8)
        return case_fail(c, "%s: more than 8 tuples", c->op->name);
    int64_t *values = c->tuple[c->tuple_count++];
    const int64_t count = problem_ints(key->value, values, 16);
    if (count < 0)
        return bad_value(c, key, "at most 16 integers as 3:5:7");
    case_put(c, phase, row->offset, &values);
    case_put(c, phase, row->offset2, &count);
    return 0;
}

/* A key that bears the name of a row. Tensors take theirs in shape.c. */
static int read_row(driver_case *c, bolide_phase phase, const bolide_param *row,
                    const problem_key *key) {
    double number;
    switch (row->kind) {
    case BOLIDE_KIND_F64:
        return read_double(c, phase, row, key);
    case BOLIDE_KIND_F64_OR_TENSOR:
    case BOLIDE_KIND_I64_OR_TENSOR:
        if (case_has_property(c, row->name) ||
            (!problem_double(key->value, &number) && strcmp(key->value, "none") != 0))
            return 0;
        return row->kind == BOLIDE_KIND_F64_OR_TENSOR ? read_double(c, phase, row, key)
                                                      : read_integer(c, phase, row, key);
    case BOLIDE_KIND_I64:
    case BOLIDE_KIND_BOOL:
    case BOLIDE_KIND_ENUM:
    case BOLIDE_KIND_DTYPE:
        return read_integer(c, phase, row, key);
    case BOLIDE_KIND_INT_TUPLE:
        return read_tuple(c, phase, row, key);
    case BOLIDE_KIND_WORKSPACE:
    case BOLIDE_KIND_PLAN:
    case BOLIDE_KIND_VARIANT:
    case BOLIDE_KIND_COMM:
        return case_fail(c, "%s: %s is made by the driver and takes no key", c->op->name,
                         key->name);
    default:
        return 0;
    }
}

static int is_property(const char *suffix) {
    static const char *const all[] = {"pad",   "offset", "order", "shape",  "form",
                                      "dtype", "on",     "count", "values", NULL};
    for (int i = 0; all[i]; i++)
        if (!strcmp(all[i], suffix))
            return 1;
    return !strncmp(suffix, "stride", 6) &&
           (!suffix[6] || (suffix[6] >= '0' && suffix[6] < '0' + REF_RANK && !suffix[7]));
}

/* "input.pad" or "xs[2].pad": a property of a tensor row. */
static int is_tensor_property(const driver_case *c, const char *key) {
    char base[PROBLEM_NAME];
    const size_t n = strcspn(key, ".");
    memcpy(base, key, n);
    base[n] = 0;
    base[strcspn(base, "[")] = 0;
    const bolide_param *row = case_any_row(c, base, NULL);
    return key[n] == '.' && row && case_is_tensor(row->kind) && is_property(key + n + 1);
}

static int is_free_key(const driver_case *c, const char *key) {
    if (!strcmp(key, "seed") || !strcmp(key, "x") || !strcmp(key, "expect"))
        return 1;
    const char *keys = c->ref && c->ref->keys ? c->ref->keys : "";
    return case_choice(keys, key, strlen(key)) >= 0;
}

static int read_key(driver_case *c, const problem_key *key) {
    int known = 0;
    for (int phase = 0; phase < 2; phase++) {
        const bolide_param *row = case_row(c, (bolide_phase)phase, key->name);
        if (row && read_row(c, (bolide_phase)phase, row, key))
            return -1;
        known |= row != NULL;
    }
    if (!known && is_dim(c, key->name)) {
        int64_t v;
        if (!problem_int(key->value, &v) || v < 0)
            return bad_value(c, key, "a dimension");
        case_set_dim(c, key->name, v);
        known = 1;
    }
    if (known || is_free_key(c, key->name) || is_tensor_property(c, key->name))
        return 0;
    return case_fail(c, "%s: unknown key %s; see `bolide describe %s`", c->op->name, key->name,
                     c->op->name);
}

int case_read_keys(driver_case *c) {
    for (int32_t i = 0; i < c->keys.count; i++)
        if (read_key(c, &c->keys.key[i]))
            return -1;
    const char *seed = problem_get(&c->keys, "seed");
    int64_t v;
    if (seed && !problem_int(seed, &v))
        return case_fail(c, "%s: seed: expected an integer; got %.80s", c->op->name, seed);
    if (seed)
        c->seed = (uint64_t)v;
    return c->error[0] ? -1 : 0;
}
