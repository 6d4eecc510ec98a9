// SPDX-License-Identifier: Apache-2.0
//
// One quick pass over the rows of a call that is as calls usually are: tensors with elements, with
// positive strides, of sizes far from any limit, on the context's device. It says yes or nothing.
// Whatever it does not know (empty tensors, broadcasts, lists) and whatever is wrong goes to the
// full checks, which look again, in the order of the messages. So a test may ask of any call that
// what passes here passes there, with the same names bound.

#include <math.h>
#include <string.h>

#include "core/check.h"
#include "core/check_parts.h"
#include "core/context.h"
#include "core/dtype_bit.h"

static const bolide__entry *entry_of(const bolide__call *call) {
    return call->phase == BOLIDE_PLAN ? &call->op->plan : &call->op->run;
}

/* ---- scalars ------------------------------------------------------------------------------ */

static bool integer_holds(bolide__call *call, const bolide_param *r, const bolide__row *row,
                          int64_t value) {
    if (value == BOLIDE_NO_INT)
        return r->flags & BOLIDE_OPTIONAL;
    if ((r->kind == BOLIDE_KIND_BOOL && value >> 1 != 0) ||
        (r->kind == BOLIDE_KIND_ENUM && (value < 0 || value >= row->choices)) ||
        (row->is_size && value < 0) ||
        (r->kind == BOLIDE_KIND_DTYPE && ((value & (value - 1)) != 0 || !(value & r->dtypes))))
        return false;
    if (row->own_slot >= 0)
        call->dims[row->own_slot] = value;
    return true;
}

static bool scalar_holds(bolide__call *call, const bolide_param *r, const bolide__row *row) {
    const char *field = (const char *)call->args + r->offset;
    const bool optional = r->flags & BOLIDE_OPTIONAL;
    switch (r->kind) {
    case BOLIDE_KIND_F64:
        return optional || !isnan(bolide__read_f64(field));
    case BOLIDE_KIND_I64:
    case BOLIDE_KIND_BOOL:
    case BOLIDE_KIND_ENUM:
    case BOLIDE_KIND_DTYPE:
        return integer_holds(call, r, row, bolide__read_i64(field));
    case BOLIDE_KIND_WORKSPACE:
    case BOLIDE_KIND_PLAN:
    case BOLIDE_KIND_VARIANT:
    case BOLIDE_KIND_COMM:
        return optional || bolide__read_pointer(field);
    default:
        return false; /* tuples and lists */
    }
}

/* ---- tensors ------------------------------------------------------------------------------ */

static bool device_holds(const bolide__call *call, const bolide_param *r, bolide_device d) {
    const bolide_device here = call->ctx->device;
    if (d.type == BOLIDE_CPU)
        return here.type == BOLIDE_CPU || r->flags & BOLIDE_HOST;
    return d.type == here.type && d.index == here.index && !(r->flags & BOLIDE_HOST);
}

static bool dtype_holds(const bolide__call *call, const bolide_param *rows, const bolide_param *r,
                        const bolide__row *row, bolide_dtype d) {
    if (row->like_row >= 0) {
        const bolide_param *like = &rows[row->like_row];
        const char *field = (const char *)call->args + like->offset;
        if (like->kind == BOLIDE_KIND_DTYPE)
            return bolide__read_i64(field) == BOLIDE_NO_INT ||
                   bolide__read_i64(field) == bolide__quick_dtype_bit(d);
        const bolide_tensor *t = like->kind <= BOLIDE_KIND_INOUT
                                     ? (const bolide_tensor *)bolide__read_pointer(field)
                                     : NULL;
        return t && memcmp(&t->dtype, &d, sizeof d) == 0;
    }
    if (row->like_slot < 0 && memcmp(&row->usual, &d, sizeof d) == 0)
        return true;
    const int64_t set = row->like_slot >= 0 ? call->dims[row->like_slot] : r->dtypes;
    return set == 0 || set & bolide__quick_dtype_bit(d);
}

/* Whether a dimension is what its word says; an expression is looked at when all names are bound.
 * Binds a name. */
static inline bool word_holds(bolide__call *call, const bolide__word *w, int64_t size) {
    if (w->kind != BOLIDE__NAME)
        return w->kind != BOLIDE__CONST || w->value == size;
    int64_t *bound = &call->dims[w->slot];
    if (*bound == size)
        return true;
    if (*bound != INT64_MIN)
        return false;
    *bound = size;
    return true;
}

/* Sizes and strides in one walk. No product overflows: a size has at most 26 bits, and numel and
 * stride as it is taken have at most 31, or a division has shown that the product stays below 2^57;
 * a sum of eight such products does not overflow either. */
static bool layout_holds(bolide__call *call, const bolide_param *r, const bolide__word *words,
                         int ndim, bolide__seen *s) {
    const bolide_tensor *t = s->t;
    const int64_t *shape = t->shape, *strides = t->strides;
    const int64_t small = INT32_MAX, most = (int64_t)1 << 57;
    const uint64_t longest = (uint64_t)1 << 26;
    int64_t numel = 1, span = 0;
    bool dense = true, one_apart = true, nested = true;
    for (int i = ndim - 1; i >= 0; i--) {
        const int64_t size = shape[i];
        if ((uint64_t)size - 1 >= longest || !word_holds(call, &words[i], size))
            return false;
        if (size == 1)
            continue;
        const int64_t stride = strides ? strides[i] : numel;
        if (stride != numel) {
            if (stride <= 0 || (stride > small && stride > most / size))
                return false;
            dense = false;
            one_apart &= i < ndim - 1;
        }
        if (numel > small && numel > most / size)
            return false;
        nested &= stride > span; /* so no two elements lie in one place */
        span += (size - 1) * stride;
        numel *= size;
    }
    s->written = r->kind == BOLIDE_KIND_OUT || r->kind == BOLIDE_KIND_INOUT;
    if (!dense && (r->flags & BOLIDE_DENSE || !(one_apart || r->flags & BOLIDE_STRIDED) ||
                   (s->written && !nested)))
        return false;
    const uintptr_t address = (uintptr_t)bolide__data(t);
    const uintptr_t bytes = (uintptr_t)bolide__elem_bytes(t);
    const uintptr_t align = r->flags & BOLIDE_ALIGN16 ? 16 : bytes;
    s->low = address;
    s->high = address + ((uintptr_t)span + 1) * bytes;
    return span <= most && t->data && ((address | align) & (align - 1)) == 0;
}

/* As bolide__row_form, which need not be asked where ranks tell the forms apart. */
static const bolide__form *form_of(const bolide__call *call, const bolide__program *p,
                                   const bolide__row *row, const bolide_tensor *t) {
    if (row->same_rank)
        return bolide__row_form(call, (int)(row - p->rows), t);
    const bolide__form *f = &p->forms[row->first_form];
    for (const bolide__form *end = f + row->form_count; f < end; f++)
        if (f->choice >= 0 ? f->choice == call->dims[row->choice_slot] : f->ndim == t->ndim)
            return f;
    return NULL;
}

static bool tensor_holds(bolide__call *call, const bolide__program *p, const bolide_param *rows,
                         const bolide_param *r, bolide__seen *s) {
    const bolide__row *row = &p->rows[s->row];
    const bolide_tensor *t = s->t;
    if (!device_holds(call, r, t->device) || t->ndim < 0 || t->ndim > BOLIDE__MAX_NDIM ||
        (t->ndim > 0 && !t->shape))
        return false;
    const bolide__form *f = form_of(call, p, row, t);
    if (!f || f->ndim != t->ndim)
        return false;
    if (row->twin_row >= 0) {
        const bolide_tensor *twin = (const bolide_tensor *)bolide__read_pointer(
            (const char *)call->args + rows[row->twin_row].offset);
        if (!twin || twin->ndim != t->ndim)
            return false;
    }
    return dtype_holds(call, rows, r, row, t->dtype) &&
           layout_holds(call, r, &p->words[f->first], f->ndim, s);
}

/* Of a row that takes a number or a tensor: not both, and one of them unless it may lack both. */
static bool number_holds(const bolide__call *call, const bolide_param *r, const void *tensor) {
    const bool optional = r->flags & BOLIDE_OPTIONAL;
    const char *number = (const char *)call->args + r->offset2;
    if (r->kind == BOLIDE_KIND_F64_OR_TENSOR) {
        const double x = bolide__read_f64(number);
        return tensor ? isnan(x) || x == r->f64 : !isnan(x) || optional;
    }
    const int64_t x = bolide__read_i64(number);
    return tensor ? x == BOLIDE_NO_INT || x == r->i64 : x != BOLIDE_NO_INT || optional;
}

/* The dimensions that are expressions, in the order of the full checks. */
static bool expressions_hold(bolide__call *call, const bolide__seen *all, int count) {
    const bolide__program *p = call->program;
    for (int k = 0; k < count; k++) {
        const bolide_tensor *t = all[k].t;
        if (!p->rows[all[k].row].has_expr)
            continue;
        const bolide__form *f = bolide__row_form(call, all[k].row, t);
        for (int i = 0; i < f->ndim; i++) {
            const bolide__word *w = &p->words[f->first + i];
            if (w->kind == BOLIDE__NAME && !word_holds(call, w, t->shape[i]))
                return false;
            if (w->kind != BOLIDE__EXPR)
                continue;
            if (!bolide__solve(p, call->dims, w, t->shape[i]))
                return false;
            const int64_t want = bolide__eval(p, call->dims, w->code);
            if (want != INT64_MIN && want != t->shape[i])
                return false;
        }
    }
    return true;
}

int bolide__check_usual(bolide__call *call, const void *plan, bolide__seen *all) {
    const bolide__program *p = call->program;
    const bolide_param *rows = entry_of(call)->rows;
    int count = 0;
    bolide__begin_dims(call, plan);
    for (int i = 0; i < p->scalar_count; i++) {
        const int index = p->scalars[i];
        if (!scalar_holds(call, &rows[index], &p->rows[index]))
            return -1;
    }
    const char *args = call->args;
    for (const bolide__tensor_row *at = p->tensors, *end = at + p->tensor_count; at < end; at++) {
        const void *t = bolide__read_pointer(args + at->offset);
        if (!t && at->may_lack)
            continue; /* most rows of most calls */
        const bolide_param *r = &rows[at->row];
        if (at->or_number ? !number_holds(call, r, t) : !t)
            return -1;
        if (!t)
            continue;
        all[count] = (bolide__seen){.t = t, .row = at->row};
        if (!tensor_holds(call, p, rows, r, &all[count++]))
            return -1;
    }
    return p->expressions && !expressions_hold(call, all, count) ? -1 : count;
}
