// SPDX-License-Identifier: Apache-2.0
//
// A problem made real, and what a reference sees of it: the functions of tests/ref/ref.h.

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "case.h"
#include "numeric.h"

/* Two values that no operator computes: an element the reference left alone, and one that may
 * hold anything. */
#define UNSET_BITS UINT64_C(0x7ff4b01deb01de01)
#define ANY_BITS UINT64_C(0x7ff4b01deb01de02)

/* ---- making a case ------------------------------------------------------------------------ */

driver_tensor *driver_tensor_of(const driver_case *c, bolide_phase phase, const char *name) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        const driver_tensor *t = &c->tensor[i];
        /* References ask for every element, so a name that begins otherwise is no call. */
        if (t->phase == phase && t->present && *t->name == *name && !strcmp(t->name, name))
            return (driver_tensor *)t;
    }
    return NULL;
}

static int open_args(driver_case *c, bolide_phase phase) {
    driver_args *a = &c->args[phase];
    const bolide__entry *e = phase == BOLIDE_PLAN ? &c->op->plan : &c->op->run;
    if (!e->args_size)
        return 0;
    char entry[2 * PROBLEM_NAME];
    (void)snprintf(entry, sizeof entry, "%s%s", c->op->name,
                   !c->op->plan.args_size ? ""
                   : phase == BOLIDE_PLAN ? "_plan"
                                          : "_run");
    a->entry = e;
    a->bytes = calloc(1, e->args_size);
    a->list = calloc(DRIVER_TENSORS, sizeof *a->list);
    if (!a->bytes || !a->list)
        return case_fail(c, "%s: out of memory", c->op->name);
    if (bolide_args_init(entry, a->bytes, e->args_size) != BOLIDE_OK)
        return case_fail(c, "%s", bolide_last_error()->message);
    return 0;
}

/* Keys of the problem, and after them the reference's defaults for those that it lacks. */
static int merge_defaults(driver_case *c) {
    char text[PROBLEM_TEXT], error[PROBLEM_ERROR];
    problem defaults;
    c->keys = c->p;
    if (!c->ref || !c->ref->defaults)
        return 0;
    (void)snprintf(text, sizeof text, "%s %s", c->op->name, c->ref->defaults);
    if (problem_parse_one(text, &defaults, error))
        return case_fail(c, "%s: defaults of the reference: %s", c->op->name, error);
    for (int32_t i = 0; i < defaults.count; i++)
        if (!problem_get(&c->keys, defaults.key[i].name) &&
            problem_put(&c->keys, defaults.key[i].name, defaults.key[i].value))
            return case_fail(c, "%s: too many keys", c->op->name);
    return 0;
}

static int realise(driver_case *c) {
    if (merge_defaults(c) || open_args(c, BOLIDE_PLAN) || open_args(c, BOLIDE_RUN) ||
        case_read_keys(c) || case_add_tensors(c))
        return -1;
    if (c->ref && c->ref->dims)
        c->ref->dims(c);
    if (c->error[0] || case_resolve_tensors(c) || case_fill(c))
        return -1;
    case_bind(c);
    return 0;
}

static driver_case *make(const problem *p, uint64_t seed, int dry, char *error) {
    driver_case *c = calloc(1, sizeof *c);
    if (!c) {
        (void)snprintf(error, DRIVER_ERROR, "%s: out of memory", p->op);
        return NULL;
    }
    c->p = *p;
    c->seed = seed;
    c->dry = dry;
    c->op = bolide_op_find(p->op);
    c->ref = ref_find(p->op);
    if (!c->op)
        case_fail(c, "problem: there is no operator %s; see `bolide ops`", p->op);
    if (c->op && !realise(c) && !c->error[0])
        return c;
    (void)snprintf(error, DRIVER_ERROR, "%s", c->error);
    driver_case_free(c);
    return NULL;
}

driver_case *driver_case_make(const problem *p, uint64_t seed, char *error) {
    return make(p, seed, 0, error);
}

driver_case *driver_case_make_dry(const problem *p, char *error) {
    return make(p, 0, 1, error);
}

void driver_case_free(driver_case *c) {
    if (!c)
        return;
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        buffer_free(t->host);
        free(t->before);
        case_drop(&t->in);
        case_drop(&t->want);
        case_drop(&t->got);
    }
    for (int phase = 0; phase < 2; phase++) {
        free(c->args[phase].bytes);
        free(c->args[phase].list);
    }
    free(c->state);
    free(c);
}

/* ---- tensors ------------------------------------------------------------------------------ */

static driver_tensor *any_tensor(const ref_call *c, const char *name) {
    driver_tensor *t = driver_tensor_of(c, BOLIDE_RUN, name);
    return t ? t : driver_tensor_of(c, BOLIDE_PLAN, name);
}

static void out_of_memory(const ref_call *c) {
    (void)fprintf(stderr, "%s: out of memory for the reference\n", c->op->name);
    abort();
}

/* Decoded at first use; run.c takes care that what it decodes is the state before the call. */
const ref_tensor *ref_in(const ref_call *c, const char *name) {
    driver_tensor *t = any_tensor(c, name);
    if (!t)
        return NULL;
    if (!t->in.f64 && !t->in.i64) {
        driver_tensor source = *t;
        const driver_tensor *owner = t->alias >= 0 ? &c->tensor[t->alias] : t;
        if (owner->before) { /* after the run: the snapshot of the whole buffer, with guards */
            source.alias = -1;
            source.host = owner->before + BUFFER_GUARD;
        }
        if (case_decode(c, &source, &t->in))
            out_of_memory(c);
    }
    return &t->in;
}

static void fill_unset(ref_tensor *t) {
    const uint64_t code = UNSET_BITS;
    for (int64_t i = 0; i < t->elems; i++)
        memcpy(t->f64 ? (void *)&t->f64[i] : (void *)&t->i64[i], &code, sizeof code);
}

ref_tensor *ref_out(const ref_call *c, const char *name) {
    driver_tensor *t = any_tensor(c, name);
    if (!t)
        return NULL;
    if (!t->want.f64 && !t->want.i64) {
        if (case_decode(c, t, &t->want))
            out_of_memory(c);
        fill_unset(&t->want);
    }
    return &t->want;
}

const ref_tensor *ref_got(const ref_call *c, const char *name) {
    driver_tensor *t = any_tensor(c, name);
    if (!t)
        return NULL;
    if (!t->got.f64 && !t->got.i64 && case_decode(c, t, &t->got))
        out_of_memory(c);
    return &t->got;
}

ref_tensor *ref_values(ref_call *c, const char *name) {
    driver_tensor *t = any_tensor(c, name);
    if (!t || !c->filling)
        return NULL;
    const int in_hand = t->in.f64 || t->in.i64; /* ref_in may have been here */
    if (!in_hand && case_decode(c, t, &t->in))
        out_of_memory(c);
    t->edited = 1;
    return &t->in;
}

static uint64_t element_bits(const ref_tensor *t, int64_t index) {
    uint64_t code;
    memcpy(&code, t->f64 ? (const void *)&t->f64[index] : (const void *)&t->i64[index],
           sizeof code);
    return code;
}

void ref_any(ref_tensor *t, int64_t index) {
    const uint64_t code = ANY_BITS;
    memcpy(t->f64 ? (void *)&t->f64[index] : (void *)&t->i64[index], &code, sizeof code);
}

int ref_unset(const ref_tensor *t, int64_t index) {
    return element_bits(t, index) == UNSET_BITS;
}

int ref_is_any(const ref_tensor *t, int64_t index) {
    return element_bits(t, index) == ANY_BITS;
}

double ref_round(double value, int64_t dtype) {
    return numeric_round(value, dtype);
}

double ref_held(double value, int64_t dtype) {
    const double limit = dtype == BOLIDE_F8_E4M3FN ? 448
                         : dtype == BOLIDE_F8_E5M2 ? 57344
                                                   : INFINITY;
    return value > limit ? limit : value < -limit ? -limit : value;
}

/* ---- numbers ------------------------------------------------------------------------------ */

/* A reference that asks for a row that does not exist is a mistake in our own tests. */
static const bolide_param *row_of(const ref_call *c, const char *name, bolide_phase *phase) {
    const bolide_param *row = case_any_row(c, name, phase);
    if (!row) {
        (void)fprintf(stderr, "reference of %s: there is no row %s\n", c->op->name, name);
        abort();
    }
    return row;
}

double ref_f64(const ref_call *c, const char *name) {
    bolide_phase phase;
    const bolide_param *row = row_of(c, name, &phase);
    return case_get_f64(c, phase, case_number_offset(row));
}

int64_t ref_i64(const ref_call *c, const char *name) {
    bolide_phase phase;
    const bolide_param *row = row_of(c, name, &phase);
    return case_get_i64(c, phase, case_number_offset(row));
}

int ref_is(const ref_call *c, const char *name, const char *choice) {
    bolide_phase phase;
    const bolide_param *row = row_of(c, name, &phase);
    return row->choices && case_choice(row->choices, choice, strlen(choice)) == ref_i64(c, name);
}

double ref_number(const ref_call *c, const char *name, int64_t index, double absent) {
    bolide_phase phase;
    const bolide_param *row = row_of(c, name, &phase);
    const ref_tensor *t = ref_in(c, name);
    if (t) {
        const int64_t i = t->elems == 1 ? 0 : index;
        return t->f64 ? t->f64[i] : (double)t->i64[i];
    }
    if (row->kind == BOLIDE_KIND_I64_OR_TENSOR || row->kind == BOLIDE_KIND_I64) {
        const int64_t v = ref_i64(c, name);
        return v == BOLIDE_NO_INT ? absent : (double)v;
    }
    const double v = ref_f64(c, name);
    return isnan(v) ? absent : v;
}

const int64_t *ref_tuple(const ref_call *c, const char *name, int64_t *count) {
    bolide_phase phase;
    const bolide_param *row = row_of(c, name, &phase);
    const int64_t *values;
    memcpy(&values, c->args[phase].bytes + row->offset, sizeof values);
    *count = case_get_i64(c, phase, row->offset2);
    return values;
}

int ref_has_dim(const ref_call *c, const char *name) {
    return case_find_dim(c, name, (int32_t)strlen(name)) != INT64_MIN;
}

int ref_on_cuda(const ref_call *c) {
    return c->device == BOLIDE_CUDA;
}

int64_t ref_dim(const ref_call *c, const char *name) {
    const int64_t v = case_find_dim(c, name, (int32_t)strlen(name));
    if (v != INT64_MIN)
        return v;
    /* References run only when every tensor has a shape; dims may ask before that. */
    case_fail((driver_case *)c, "%s: dimension %s has no value; give it as a key", c->op->name,
              name);
    return 0;
}

/* ---- free keys ---------------------------------------------------------------------------- */

const char *ref_key_text(const ref_call *c, const char *key) {
    return problem_get(&c->keys, key);
}

static void bad_key(const ref_call *c, const char *key, const char *expected) {
    case_fail((driver_case *)c, "%s: %s: expected %s; got %.80s", c->op->name, key, expected,
              ref_key_text(c, key));
}

int64_t ref_key(const ref_call *c, const char *key, int64_t absent) {
    const char *text = ref_key_text(c, key);
    int64_t v = absent;
    if (text && !problem_int(text, &v)) {
        bad_key(c, key, "an integer");
        return absent;
    }
    return v;
}

double ref_key_f64(const ref_call *c, const char *key, double absent) {
    const char *text = ref_key_text(c, key);
    double v = absent;
    if (text && !problem_double(text, &v)) {
        bad_key(c, key, "a number");
        return absent;
    }
    return v;
}

int64_t ref_key_list(const ref_call *c, const char *key, int64_t *values, int64_t limit) {
    const char *text = ref_key_text(c, key);
    const int64_t count = text && strcmp(text, "none") != 0 ? problem_ints(text, values, limit) : 0;
    if (count < 0)
        bad_key(c, key, "a list as 3:5:7, or none");
    return count < 0 ? 0 : count;
}

int64_t ref_count(const ref_call *c, const char *key, int64_t absent, int64_t least) {
    const int64_t v = ref_key(c, key, absent);
    if (v < least)
        bad_key(c, key, least ? "at least 1" : "at least 0");
    return v < least ? least : v;
}

int64_t ref_count_list(const ref_call *c, const char *key, int64_t *values, int64_t limit) {
    const int64_t count = ref_key_list(c, key, values, limit);
    for (int64_t i = 0; i < count; i++) {
        if (values[i] < 0)
            bad_key(c, key, "lengths of at least 0");
        values[i] = values[i] < 0 ? 0 : values[i];
    }
    return count;
}

/* ---- for dims ----------------------------------------------------------------------------- */

void ref_refuse(ref_call *c, const char *format, ...) {
    char text[DRIVER_ERROR / 2];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    case_fail(c, "%s: %s", c->op->name, text);
}

/* 1 if a key was given by the problem itself, not by the defaults of the reference. */
static int is_explicit(const ref_call *c, const char *name) {
    return problem_get(&c->p, name) != NULL;
}

void ref_set_dim(ref_call *c, const char *name, int64_t value) {
    if (!is_explicit(c, name))
        case_set_dim(c, name, value);
}

void ref_fix_dim(ref_call *c, const char *name, int64_t value) {
    int64_t given;
    const char *text = problem_get(&c->p, name);
    if (text && problem_int(text, &given) && given != value)
        case_fail(c, "%s: %s=%s contradicts the other keys, by which it is %lld", c->op->name, name,
                  text, (long long)value);
    case_set_dim(c, name, value);
}

static void set_number(ref_call *c, const char *name, const void *value) {
    for (int phase = 0; phase < 2; phase++) {
        const bolide_param *row = case_row(c, (bolide_phase)phase, name);
        if (row && !is_explicit(c, name))
            case_put(c, (bolide_phase)phase, case_number_offset(row), value);
    }
}

void ref_set_i64(ref_call *c, const char *row, int64_t value) {
    set_number(c, row, &value);
}

void ref_set_f64(ref_call *c, const char *row, double value) {
    set_number(c, row, &value);
}

/* Calls below change the tensor of that name in both phases, passed or not. */
static driver_tensor *next_named(ref_call *c, const char *name, driver_tensor *after) {
    for (driver_tensor *t = after ? after + 1 : c->tensor; t < c->tensor + c->tensor_count; t++)
        if (!strcmp(t->name, name))
            return t;
    return NULL;
}

void ref_set_shape(ref_call *c, const char *tensor, int32_t ndim, const int64_t *shape) {
    for (driver_tensor *t = NULL; (t = next_named(c, tensor, t));) {
        t->ndim = ndim;
        memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    }
}

void ref_set_dtype(ref_call *c, const char *tensor, int64_t dtype) {
    for (driver_tensor *t = NULL; (t = next_named(c, tensor, t));)
        t->dtype = dtype;
}

void ref_give(ref_call *c, const char *tensor) {
    const char *value = problem_get(&c->p, tensor);
    for (driver_tensor *t = NULL; (t = next_named(c, tensor, t));)
        t->present |= !value;
}

int ref_given(const ref_call *c, const char *tensor) {
    return any_tensor(c, tensor) != NULL;
}

void ref_set_count(ref_call *c, const char *list, int64_t count) {
    for (int phase = 0; phase < 2; phase++) {
        const bolide_param *row = case_row(c, (bolide_phase)phase, list);
        if (row)
            case_add_list(c, (bolide_phase)phase, row, count);
    }
}

/* ---- random numbers and memory --------------------------------------------------------------- */

uint64_t ref_random(const ref_call *c, uint64_t stream, uint64_t index) {
    return numeric_mix(c->seed, stream + (UINT64_C(1) << 32), index);
}

double ref_uniform(const ref_call *c, uint64_t stream, uint64_t index) {
    return numeric_uniform(ref_random(c, stream, index));
}

double ref_normal(const ref_call *c, uint64_t stream, uint64_t index) {
    return numeric_normal(ref_random(c, stream, index));
}

int64_t ref_between(const ref_call *c, uint64_t stream, uint64_t index, int64_t low, int64_t high) {
    if (high <= low)
        return low;
    return low + (int64_t)(ref_random(c, stream, index) % (uint64_t)(high - low + 1));
}

void *ref_state(const ref_call *c, size_t bytes) {
    driver_case *own = (driver_case *)c;
    if (!own->state)
        own->state = calloc(1, bytes ? bytes : 1);
    if (!own->state)
        out_of_memory(c);
    return own->state;
}
