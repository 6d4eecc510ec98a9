// SPDX-License-Identifier: Apache-2.0
//
// From numbers and dimensions to tensors: which are passed, their dtypes, shapes, strides and
// shared memory.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "dims.h"
#include "numeric.h"

static const int64_t too_far = (int64_t)1 << 40; /* elements of a tensor, and between two */

/* ---- the list of tensors ------------------------------------------------------------------ */

static driver_tensor *add_tensor(driver_case *c, bolide_phase phase, const bolide_param *row,
                                 int32_t list) {
    if (c->tensor_count == DRIVER_TENSORS) {
        case_fail(c, "%s: more than %d tensors", c->op->name, DRIVER_TENSORS);
        return NULL;
    }
    driver_tensor *t = &c->tensor[c->tensor_count++];
    memset(t, 0, sizeof *t);
    t->row = row;
    t->phase = phase;
    t->list = list;
    t->alias = -1;
    t->ndim = -1;
    if (list < 0)
        (void)snprintf(t->name, sizeof t->name, "%s", row->name);
    else
        (void)snprintf(t->name, sizeof t->name, "%.48s[%d]", row->name, (int)list);
    return t;
}

int case_add_list(driver_case *c, bolide_phase phase, const bolide_param *row, int64_t count) {
    for (int32_t i = 0; i < c->tensor_count; i++)
        if (c->tensor[i].row == row)
            return 0;
    for (int64_t i = 0; i < count; i++) {
        driver_tensor *t = add_tensor(c, phase, row, (int32_t)i);
        if (!t)
            return -1;
        t->present = 1;
    }
    return 0;
}

int case_has_property(const driver_case *c, const char *name) {
    char prefix[PROBLEM_NAME + 1];
    const size_t n = (size_t)snprintf(prefix, sizeof prefix, "%.60s.", name);
    for (int32_t i = 0; i < c->keys.count; i++)
        if (!strncmp(c->keys.key[i].name, prefix, n))
            return 1;
    return 0;
}

/* Passed: what must be, and optional ones that a key gives. */
static int is_passed(const driver_case *c, const bolide_param *row) {
    const char *value = problem_get(&c->keys, row->name);
    double number;
    if (value && !strcmp(value, "none"))
        return 0;
    if (case_is_or_tensor(row->kind))
        return (value && !problem_double(value, &number)) || case_has_property(c, row->name);
    return !(row->flags & BOLIDE_OPTIONAL) || value || case_has_property(c, row->name);
}

int case_add_tensors(driver_case *c) {
    for (int phase = 1; phase >= 0; phase--) {
        const bolide__entry *e = c->args[phase].entry;
        for (int32_t i = 0; e && i < e->row_count; i++) {
            const bolide_param *row = &e->rows[i];
            const char *count = case_property(c, row->name, "count");
            int64_t n = 0;
            if (count && (!problem_int(count, &n) || n < 0 || n > DRIVER_TENSORS))
                return case_fail(c, "%s: %s.count: expected at most %d; got %.80s", c->op->name,
                                 row->name, DRIVER_TENSORS, count);
            if (row->kind == BOLIDE_KIND_TENSOR_LIST) {
                if (count && case_add_list(c, (bolide_phase)phase, row, n))
                    return -1;
            } else if (case_is_tensor(row->kind)) {
                driver_tensor *t = add_tensor(c, (bolide_phase)phase, row, -1);
                if (!t)
                    return -1;
                t->present = is_passed(c, row);
            }
        }
    }
    return 0;
}

/* ---- dtype -------------------------------------------------------------------------------- */

static const int64_t floats = BOLIDE_F64 | BOLIDE_F32 | BOLIDE_F16 | BOLIDE_BF16 |
                              BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2 | BOLIDE_F8_E8M0 | BOLIDE_F4_E2M1;

/* The first of these that a row takes, where nothing says which. */
static int64_t preferred(int64_t set) {
    static const int64_t order[] = {BOLIDE_F16, BOLIDE_F32, BOLIDE_BF16, BOLIDE_I32, BOLIDE_U8};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (set & order[i])
            return order[i];
    return set & -set;
}

/* The row whose dtype x= sets: the first floating input, or what it is like. */
static const bolide_param *main_row(const driver_case *c, bolide_phase *phase) {
    for (int p = 0; p < 2; p++) {
        const bolide__entry *e = c->args[p].entry;
        for (int32_t i = 0; e && i < e->row_count; i++) {
            const bolide_param *row = &e->rows[i];
            if (row->kind != BOLIDE_KIND_IN && row->kind != BOLIDE_KIND_INOUT)
                continue;
            *phase = (bolide_phase)p;
            if (!row->like && row->dtypes & floats)
                return row;
            const bolide_param *like = row->like ? case_any_row(c, row->like, phase) : NULL;
            if (like && like->kind == BOLIDE_KIND_DTYPE && like->dtypes & floats)
                return like;
        }
    }
    return NULL;
}

/* Value of x=, 0 without it; and puts it into the dtype row that it stands for. */
static int64_t read_x(driver_case *c) {
    const char *x = problem_get(&c->keys, "x");
    bolide_phase phase;
    const bolide_param *row = main_row(c, &phase);
    const int64_t dtype = x ? bolide_dtype_parse(x) : 0;
    if (!x)
        return 0;
    if (!row && case_any_row(c, "x", NULL)) /* a tensor of that name, which is no float */
        return 0;
    if (!dtype || !row) {
        case_fail(c, "%s: x: expected the dtype of a floating input; got %.80s", c->op->name, x);
        return 0;
    }
    if (!(row->dtypes & dtype)) {
        case_fail(c, "%s: x: expected a dtype that %s takes; got %.80s", c->op->name, row->name, x);
        return 0;
    }
    for (int p = 0; p < 2; p++) {
        const bolide_param *r = case_row(c, (bolide_phase)p, row->name);
        if (r && r->kind == BOLIDE_KIND_DTYPE && !problem_get(&c->keys, r->name))
            case_put(c, (bolide_phase)p, r->offset, &dtype);
    }
    return dtype;
}

/* A dtype by name, or that of another tensor by its name; 0 if the text is neither. */
static int64_t named_dtype(const driver_case *c, const char *text) {
    for (int32_t i = 0; i < c->tensor_count; i++)
        if (!strcmp(c->tensor[i].name, text))
            return c->tensor[i].dtype;
    return bolide_dtype_parse(text);
}

/* The dtype a key states: input=f16 or input.dtype=f16; of a list, that of all its members. */
static int64_t stated_dtype(driver_case *c, const driver_tensor *t) {
    const char *value = problem_get(&c->keys, t->row->name);
    const char *properties[] = {case_property(c, t->row->name, "dtype"),
                                case_property(c, t->name, "dtype")};
    int64_t dtype = value ? bolide_dtype_parse(value) : 0;
    for (int i = 0; i < 2; i++) {
        if (!properties[i])
            continue;
        dtype = named_dtype(c, properties[i]);
        if (!dtype)
            case_fail(c, "%s: %s.dtype: expected a dtype or a tensor before it; got %.80s",
                      c->op->name, t->name, properties[i]);
    }
    return dtype;
}

static void resolve_dtype(driver_case *c, driver_tensor *t, int64_t x, int depth);

/* dtype of the row that this one is like; 0 if that is absent. */
static int64_t like_dtype(driver_case *c, const driver_tensor *t, int64_t x, int depth) {
    bolide_phase phase = t->phase;
    const bolide_param *like = case_row(c, phase, t->row->like);
    if (!like)
        like = case_any_row(c, t->row->like, &phase);
    if (!like)
        return 0;
    if (like->kind == BOLIDE_KIND_DTYPE) {
        const int64_t d = case_get_i64(c, phase, like->offset);
        return d == BOLIDE_NO_INT ? 0 : d;
    }
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *other = &c->tensor[i];
        if (other->row != like)
            continue;
        if (!other->dtype && depth < 8) /* it comes later */
            resolve_dtype(c, other, x, depth + 1);
        return other->dtype;
    }
    return 0;
}

static void resolve_dtype(driver_case *c, driver_tensor *t, int64_t x, int depth) {
    const int64_t stated = stated_dtype(c, t);
    const int64_t set = t->row->dtypes;
    if (stated)
        t->dtype = stated;
    else if (t->dtype) /* by the reference's dims */
        return;
    else if (t->row->like && like_dtype(c, t, x, depth))
        t->dtype = like_dtype(c, t, x, depth);
    else if (x && (set == 0 || set & x) && !case_is_or_tensor(t->row->kind))
        t->dtype = x;
    else
        t->dtype = set ? preferred(set) : BOLIDE_F16;
}

/* ---- shape -------------------------------------------------------------------------------- */

static int64_t lookup(const void *user, const char *name, int32_t length) {
    return case_find_dim(user, name, length);
}

/* How many of a form's words are bound names; -1 if one of them has no value. */
static int bound_words(const driver_case *c, const dims_form *form) {
    int bound = 0;
    for (int32_t i = 0; i < form->ndim; i++) {
        if (dims_value(form->word[i], form->length[i], lookup, c) == INT64_MIN)
            return -1;
        bound += dims_is_name(form->word[i], form->length[i]);
    }
    return bound;
}

static const dims_form *choose_form(driver_case *c, const driver_tensor *t, const dims_row *row) {
    const char *wanted = case_property(c, t->name, "form");
    int64_t index;
    if (wanted && problem_int(wanted, &index) && index >= 0 && index < row->count)
        return &row->form[index];
    if (wanted) {
        case_fail(c, "%s: %s.form: expected 0 to %d; got %.80s", c->op->name, t->name,
                  (int)row->count - 1, wanted);
        return &row->form[0];
    }
    bolide_phase phase;
    const bolide_param *selector = row->selector[0] ? case_any_row(c, row->selector, &phase) : NULL;
    int best = -1, best_bound = -1;
    for (int32_t i = 0; i < row->count; i++) {
        const char *choice = row->form[i].choice;
        if (selector && case_choice(selector->choices, choice, strlen(choice)) !=
                            case_get_i64(c, phase, selector->offset))
            continue;
        const int bound = bound_words(c, &row->form[i]);
        if (best < 0 || bound > best_bound) {
            best = i;
            best_bound = bound;
        }
    }
    return &row->form[best < 0 ? 0 : best];
}

static int shape_from_row(driver_case *c, driver_tensor *t) {
    dims_row row;
    dims_parse(t->row->dims ? t->row->dims : "", &row);
    const dims_form *form = choose_form(c, t, &row);
    t->ndim = form->ndim;
    for (int32_t i = 0; i < form->ndim; i++) {
        const int64_t v = dims_value(form->word[i], form->length[i], lookup, c);
        if (v == INT64_MIN)
            return case_fail(c, "%s: %s: dimension %.*s has no value; give it as a key",
                             c->op->name, t->name, (int)form->length[i], form->word[i]);
        t->shape[i] = v;
    }
    return 0;
}

/* Remembers what the reference or the row says of a tensor that a key gives another shape of `rank`
 * dimensions. */
static void keep_own_shape(driver_case *c, driver_tensor *t, int64_t rank) {
    driver_tensor own = *t;
    dims_row row;
    dims_parse(t->row->dims ? t->row->dims : "", &row);
    if (t->ndim < 0 && (bound_words(c, choose_form(c, t, &row)) < 0 || shape_from_row(c, &own)))
        return;
    int64_t elems = 1;
    for (int32_t i = 0; i < own.ndim; i++)
        if (own.shape[i] < 0 || __builtin_mul_overflow(elems, own.shape[i], &elems) ||
            elems > too_far)
            return;
    t->room = elems;
    t->own_rank = own.ndim;
    memcpy(t->own_shape, own.shape, sizeof own.shape);
    for (int32_t i = 0; i < row.count; i++)
        if (row.form[i].ndim == rank)
            t->own_rank = 0;
}

static int resolve_shape(driver_case *c, driver_tensor *t) {
    const char *shape = case_property(c, t->name, "shape");
    if (shape) {
        int64_t given[REF_RANK];
        const int64_t n = !strcmp(shape, "scalar") ? 0 : problem_ints(shape, given, REF_RANK);
        if (n < 0)
            return case_fail(c, "%s: %s.shape: expected a list as 3:4 or scalar; got %.80s",
                             c->op->name, t->name, shape);
        keep_own_shape(c, t, n);
        memcpy(t->shape, given, (size_t)n * sizeof *given);
        t->ndim = (int32_t)n;
    } else if (t->ndim < 0 && shape_from_row(c, t)) {
        return -1;
    }
    t->elems = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow(t->elems, t->shape[i], &t->elems) ||
            t->elems > too_far)
            return case_fail(c, "%s: %s: dimension %d is below 0 or the tensor is too large",
                             c->op->name, t->name, (int)i);
    return 0;
}

/* ---- strides ------------------------------------------------------------------------------ */

/* A property that is a number; `absent` without it. */
static int64_t property_int(driver_case *c, const driver_tensor *t, const char *name,
                            int64_t absent) {
    const char *text = case_property(c, t->name, name);
    int64_t v = absent;
    if (text && (!problem_int(text, &v) || v < -too_far || v > too_far))
        case_fail(c, "%s: %s.%s: expected a number of elements; got %.80s", c->op->name, t->name,
                  name, text);
    return v;
}

/* Order of the dimensions in memory, outermost first. */
static int read_order(driver_case *c, const driver_tensor *t, int64_t *order) {
    const char *text = case_property(c, t->name, "order");
    int seen = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        order[i] = i;
    if (text && problem_ints(text, order, REF_RANK) != t->ndim)
        seen = -1;
    for (int32_t i = 0; seen >= 0 && i < t->ndim; i++)
        seen =
            order[i] < 0 || order[i] >= t->ndim || seen >> order[i] & 1 ? -1 : seen | 1 << order[i];
    if (seen < 0)
        return case_fail(c, "%s: %s.order: expected each of %d dimensions once; got %.80s",
                         c->op->name, t->name, (int)t->ndim, text);
    return 0;
}

/* Elements from the first to the last of a dimension, at most a little above too_far. */
static int64_t reach(const driver_tensor *t, int32_t i) {
    int64_t far;
    if (t->shape[i] < 2)
        return 0;
    if (__builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &far))
        return t->strides[i] < 0 ? -2 * too_far : 2 * too_far;
    return far < -2 * too_far ? -2 * too_far : far > 2 * too_far ? 2 * too_far : far;
}

/* Elements below the first one that strides below 0 reach. */
static int64_t lowest(const driver_tensor *t) {
    int64_t below = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        below -= t->strides[i] < 0 ? reach(t, i) : 0;
    return below;
}

static int resolve_strides(driver_case *c, driver_tensor *t) {
    int64_t order[REF_RANK];
    if (read_order(c, t, order))
        return -1;
    const int64_t pad = property_int(c, t, "pad", 0);
    t->offset = property_int(c, t, "offset", 0);
    if (pad < 0 || t->offset < 0 || (pad && t->ndim < 2))
        return case_fail(c, "%s: %s.pad and .offset: expected 0 or more, and two dimensions to pad",
                         c->op->name, t->name);
    int64_t step = 1;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        const int64_t k = order[i];
        char name[16] = "stride";
        if (k != t->ndim - 2 || !case_property(c, t->name, name))
            (void)snprintf(name, sizeof name, "stride%d", (int)k);
        t->strides[k] = property_int(c, t, name, step);
        int64_t next;
        if (__builtin_mul_overflow(step, t->shape[k] > 1 ? t->shape[k] : 1, &next) ||
            next > too_far)
            return case_fail(c, "%s: %s: the tensor is too large", c->op->name, t->name);
        step = next + (i == t->ndim - 1 ? pad : 0);
    }
    t->offset += lowest(t);
    return c->error[0] ? -1 : 0;
}

/* Elements from the first to the highest, both included. */
static int resolve_span(driver_case *c, driver_tensor *t) {
    int64_t highest = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        highest += t->strides[i] > 0 ? reach(t, i) : 0;
    if (highest > too_far || t->offset > too_far || t->offset < lowest(t))
        return case_fail(c, "%s: %s: its strides reach too far", c->op->name, t->name);
    t->span = t->elems ? highest + 1 : 0;
    t->bytes = numeric_bytes(t->dtype, t->offset + t->span);
    return 0;
}

/* ---- shared memory ------------------------------------------------------------------------ */

static int resolve_alias(driver_case *c, driver_tensor *t) {
    const char *value = problem_get(&c->keys, t->row->name);
    for (int32_t i = 0; value && i < c->tensor_count; i++) {
        driver_tensor *other = &c->tensor[i];
        if (other == t || other->phase != t->phase || strcmp(other->name, value) != 0)
            continue;
        if (!other->present || other->alias >= 0)
            return case_fail(c, "%s: %s=%s: that tensor has no memory of its own", c->op->name,
                             t->name, value);
        t->alias = i;
        t->offset = other->offset;
        if (t->ndim == other->ndim)
            memcpy(t->strides, other->strides, sizeof t->strides);
        if (resolve_span(c, t))
            return -1;
        if (t->bytes > other->bytes)
            return case_fail(c, "%s: %s=%s: it needs %lld bytes; there are %lld", c->op->name,
                             t->name, value, (long long)t->bytes, (long long)other->bytes);
        return 0;
    }
    double number;
    if (value && case_is_or_tensor(t->row->kind) &&
        (problem_double(value, &number) || !strcmp(value, "tensor")))
        return 0;
    if (!value || !strcmp(value, "given") || !strcmp(value, "none") || bolide_dtype_parse(value))
        return 0;
    return case_fail(c, "%s: %s: expected a dtype, given, none or another tensor; got %.80s",
                     c->op->name, t->name, value);
}

static int resolve_device(driver_case *c, driver_tensor *t) {
    const char *on = case_property(c, t->name, "on");
    t->on_host = (t->row->flags & BOLIDE_HOST) != 0;
    if (on && strcmp(on, "host") != 0 && strcmp(on, "device") != 0)
        return case_fail(c, "%s: %s.on: expected host or device; got %.80s", c->op->name, t->name,
                         on);
    if (on)
        t->on_host = !strcmp(on, "host");
    else if (t->row->flags & BOLIDE_EITHER)
        t->on_host = t->phase == BOLIDE_PLAN;
    return 0;
}

int case_resolve_tensors(driver_case *c) {
    const int64_t x = read_x(c);
    for (int32_t i = 0; i < c->tensor_count; i++)
        resolve_dtype(c, &c->tensor[i], x, 0);
    for (int32_t i = 0; i < c->tensor_count && !c->error[0]; i++) {
        driver_tensor *t = &c->tensor[i];
        if (!t->present)
            continue;
        if (resolve_shape(c, t) || resolve_strides(c, t) || resolve_span(c, t) ||
            resolve_device(c, t))
            return -1;
    }
    for (int32_t i = 0; i < c->tensor_count && !c->error[0]; i++)
        if (c->tensor[i].present && resolve_alias(c, &c->tensor[i]))
            return -1;
    return c->error[0] ? -1 : 0;
}
