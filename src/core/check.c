// SPDX-License-Identifier: Apache-2.0
//
// The checks that rows imply, for every argument of every operator: scalars, then each tensor's
// presence, device, rank, dtype and plain dimensions, then dimensions that are expressions,
// strides, alignment and overlap. The order is fixed, so the first message is the same everywhere.
// A usual call, with nothing to complain of, is seen through by check_usual.c and never comes here.

#include "core/check.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/check_parts.h"
#include "core/check_text.h"
#include "core/context.h"

typedef struct row_view {
    const bolide_param *param;
    const bolide__row *row;
    const char *field;  /* in args, at offset */
    const char *field2; /* at offset2 */
    int index;
} row_view;

static row_view view(const bolide__call *call, int i) {
    const bolide__entry *e = call->phase == BOLIDE_PLAN ? &call->op->plan : &call->op->run;
    const char *args = call->args;
    return (row_view){.param = &e->rows[i],
                      .row = &call->program->rows[i],
                      .field = args + e->rows[i].offset,
                      .field2 = args + e->rows[i].offset2,
                      .index = i};
}

static int row_count(const bolide__call *call) {
    return call->phase == BOLIDE_PLAN ? call->op->plan.row_count : call->op->run.row_count;
}

static int is_written(bolide_kind k) {
    return k == BOLIDE_KIND_OUT || k == BOLIDE_KIND_INOUT;
}

/* ---- scalars ------------------------------------------------------------------------------ */

static bolide_status check_enum(const bolide__call *call, const row_view *v, int64_t value) {
    int count = 1;
    for (const char *c = v->param->choices; *c; c++)
        count += *c == ' ';
    if (value >= 0 && value < count)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, v->param->name, "value",
                           bolide__text("one of %s (0 to %d)", v->param->choices, count - 1),
                           "%lld", (long long)value);
}

static bolide_status check_integer(bolide__call *call, const row_view *v) {
    const bolide_param *r = v->param;
    const int64_t value = bolide__read_i64(v->field);
    if (value == BOLIDE_NO_INT) {
        if (r->flags & BOLIDE_OPTIONAL)
            return BOLIDE_OK;
        return BOLIDE_FAIL_ARG(call, r->name, "value", "a value", "none");
    }
    if (r->kind == BOLIDE_KIND_BOOL && value != 0 && value != 1)
        return BOLIDE_FAIL_ARG(call, r->name, "value", "0 or 1", "%lld", (long long)value);
    if (r->kind == BOLIDE_KIND_ENUM)
        BOLIDE_TRY(check_enum(call, v, value));
    if (v->row->is_size && value < 0)
        return BOLIDE_FAIL_ARG(call, r->name, "value", "at least 0", "%lld", (long long)value);
    if (r->kind == BOLIDE_KIND_DTYPE &&
        (__builtin_popcountll((unsigned long long)value) != 1 || !(value & r->dtypes)))
        return BOLIDE_FAIL_ARG(call, r->name, "dtype", bolide__dtypes_text(r->dtypes), "%s",
                               __builtin_popcountll((unsigned long long)value) == 1
                                   ? bolide_dtype_name(value)
                                   : bolide__text("%lld", (long long)value));
    if (v->row->own_slot >= 0)
        call->dims[v->row->own_slot] = value;
    return BOLIDE_OK;
}

static bolide_status check_handle(const bolide__call *call, const row_view *v, int sizes_only) {
    const bolide_param *r = v->param;
    const void *pointer = bolide__read_pointer(v->field);
    if (!pointer && !(r->flags & BOLIDE_OPTIONAL) && !sizes_only)
        return BOLIDE_FAIL_ARG(call, r->name, "pointer", "not NULL", "NULL");
    return BOLIDE_OK;
}

static bolide_status check_scalar(bolide__call *call, const row_view *v, int sizes_only) {
    const bolide_param *r = v->param;
    switch (r->kind) {
    case BOLIDE_KIND_F64:
        if (isnan(bolide__read_f64(v->field)) && !(r->flags & BOLIDE_OPTIONAL))
            return BOLIDE_FAIL_ARG(call, r->name, "value", "a number", "NaN");
        return BOLIDE_OK;
    case BOLIDE_KIND_I64:
    case BOLIDE_KIND_BOOL:
    case BOLIDE_KIND_ENUM:
    case BOLIDE_KIND_DTYPE:
        return check_integer(call, v);
    case BOLIDE_KIND_INT_TUPLE: {
        const int64_t count = bolide__read_i64(v->field2);
        if (count < 0 || (count > 0 && !bolide__read_pointer(v->field)))
            return BOLIDE_FAIL_ARG(call, r->name, "count", "0 or more integers", "%lld at %p",
                                   (long long)count, bolide__read_pointer(v->field));
        if (count == 0 && !(r->flags & BOLIDE_OPTIONAL))
            return BOLIDE_FAIL_ARG(call, r->name, "count", "at least 1", "0");
        return BOLIDE_OK;
    }
    case BOLIDE_KIND_WORKSPACE:
    case BOLIDE_KIND_PLAN:
    case BOLIDE_KIND_VARIANT:
    case BOLIDE_KIND_COMM:
        return check_handle(call, v, sizes_only);
    default:
        return BOLIDE_OK;
    }
}

/* ---- one tensor --------------------------------------------------------------------------- */

/* Whether the numbers and the names bound so far agree with the shape. */
static bool agrees(const bolide__call *call, const bolide__form *f, const bolide_tensor *t) {
    for (int i = 0; i < f->ndim; i++) {
        const bolide__word *w = &call->program->words[f->first + i];
        const int64_t want = w->kind == BOLIDE__CONST  ? w->value
                             : w->kind == BOLIDE__NAME ? call->dims[w->slot]
                                                       : INT64_MIN;
        if (want != INT64_MIN && want != t->shape[i])
            return false;
    }
    return true;
}

const bolide__form *bolide__row_form(const bolide__call *call, int index, const bolide_tensor *t) {
    const bolide__program *p = call->program;
    const bolide__row *row = &p->rows[index];
    const bolide__form *near = NULL;
    if (row->form_count == 1 && p->forms[row->first_form].choice < 0)
        return p->forms[row->first_form].ndim == t->ndim ? &p->forms[row->first_form] : NULL;
    for (int i = 0; i < row->form_count; i++) {
        const bolide__form *f = &p->forms[row->first_form + i];
        if (f->choice >= 0 ? call->dims[row->choice_slot] != f->choice : f->ndim != t->ndim)
            continue;
        if (f->choice >= 0 || agrees(call, f, t))
            return f;
        near = f;
    }
    return near;
}

static bolide_status fail_rank(const bolide__call *call, const row_view *v,
                               const bolide_tensor *t) {
    char buffer[120];
    int n = 0;
    const bolide__program *p = call->program;
    for (int i = 0; i < v->row->form_count && n < 100; i++) {
        const bolide__form *f = &p->forms[v->row->first_form + i];
        if (f->choice >= 0 ? f->choice != call->dims[v->row->choice_slot]
                           : i > 0 && f->ndim == f[-1].ndim)
            continue;
        n += snprintf(buffer + n, sizeof buffer - (size_t)n, "%s%d", n ? " or " : "", f->ndim);
    }
    return BOLIDE_FAIL_ARG(call, v->param->name, "rank", bolide__text("%.*s", n, buffer), "%d",
                           (int)t->ndim);
}

static bool device_ok(const bolide__call *call, const bolide_param *r, bolide_device d) {
    if (d.type == BOLIDE_CPU && call->ctx->device.type == BOLIDE_CPU)
        return true;
    const bool host =
        d.type == BOLIDE_CPU || d.type == BOLIDE_CUDA_HOST || d.type == BOLIDE_CUDA_MANAGED;
    const bolide_device want = call->ctx->device;
    const bool here = want.type == BOLIDE_CPU
                          ? host
                          : d.type == BOLIDE_CUDA_HOST || d.type == BOLIDE_CUDA_MANAGED ||
                                (d.type == BOLIDE_CUDA && d.index == want.index);
    if (r->flags & BOLIDE_HOST)
        return host;
    return here || (r->flags & BOLIDE_EITHER && host);
}

static int64_t row_dtypes(const bolide__call *call, const row_view *v) {
    if (v->row->like_slot >= 0)
        return call->dims[v->row->like_slot];
    if (v->row->like_row < 0)
        return v->param->dtypes;
    const row_view other = view(call, v->row->like_row);
    if (other.param->kind == BOLIDE_KIND_DTYPE) {
        const int64_t d = bolide__read_i64(other.field);
        return d == BOLIDE_NO_INT ? 0 : d;
    }
    const bolide_tensor *t = bolide__read_pointer(other.field);
    const int64_t bit = t ? bolide_dtype_bit(t->dtype) : 0;
    const int64_t set = other.param->like ? 0 : other.param->dtypes;
    /* A wrong dtype of the other row is told of that row, which may come later. */
    return t && (!set || set & bit) ? bit : row_dtypes(call, &other);
}

/* Whether the row that this one is like has a tensor of that dtype: the usual case. Whether it is
 * one of that row's dtypes is told of that row. */
static bool same_dtype(const bolide__call *call, const row_view *v, const bolide_tensor *t) {
    if (v->row->like_slot >= 0 || v->row->like_row < 0)
        return false;
    const row_view other = view(call, v->row->like_row);
    const bolide_tensor *o =
        bolide__is_tensor_kind(other.param->kind) ? bolide__read_pointer(other.field) : NULL;
    return o && o->dtype.code == t->dtype.code && o->dtype.bits == t->dtype.bits &&
           o->dtype.lanes == t->dtype.lanes;
}

static bolide_status check_dtype(const bolide__call *call, const row_view *v,
                                 const bolide_tensor *t) {
    if (same_dtype(call, v, t))
        return BOLIDE_OK;
    const int64_t set = row_dtypes(call, v), bit = bolide_dtype_bit(t->dtype);
    if (set == 0 || set & bit)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, v->param->name, "dtype", bolide__dtypes_text(set), "%s",
                           bit ? bolide_dtype_name(bit)
                               : bolide__text("code %d, %d bits, %d lanes", t->dtype.code,
                                              t->dtype.bits, t->dtype.lanes));
}

/* Binds plain names and compares what is bound already. Expressions wait for the second pass. */
static bolide_status check_shape(bolide__call *call, const row_view *v, const bolide_tensor *t,
                                 const bolide__form *f, bool expressions) {
    const bolide__program *p = call->program;
    for (int i = 0; i < f->ndim; i++) {
        const bolide__word *w = &p->words[f->first + i];
        const int64_t got = t->shape[i];
        int64_t want = got;
        if (w->kind == BOLIDE__NAME && call->dims[w->slot] == INT64_MIN)
            call->dims[w->slot] = got;
        if (w->kind == BOLIDE__NAME && call->dims[w->slot] == got && got >= 0)
            continue;
        if (w->kind == BOLIDE__CONST)
            want = w->value;
        if (w->kind == BOLIDE__NAME)
            want = call->dims[w->slot];
        else if (w->kind == BOLIDE__EXPR && expressions)
            want = bolide__solve(p, call->dims, w, got) ? bolide__eval(p, call->dims, w->code) : -1;
        want = want == INT64_MIN ? got : want; /* a name that nothing binds constrains nothing */
        if (want != got || got < 0)
            return BOLIDE_FAIL_ARG(call, v->param->name, "shape", bolide__form_text(call, f), "%s",
                                   bolide__shape_text(t));
    }
    return BOLIDE_OK;
}

/* Sizes and strides that leave no doubt: fewer than 2^57 elements, and a span of at most 2^58. */
static bool is_small(const bolide_tensor *t) {
    uint64_t sizes = 0, strides = 0;
    double numel = 1;
    for (int32_t i = 0; i < t->ndim; i++) {
        sizes |= (uint64_t)t->shape[i];
        strides |= t->strides ? (uint64_t)t->strides[i] : 0;
    }
    if (sizes >= (uint64_t)1 << 23 || strides >= (uint64_t)1 << 32)
        return false;
    for (int32_t i = 0; t->ndim > 2 && i < t->ndim; i++)
        numel *= (double)t->shape[i];
    return numel < 0x1p57;
}

/* Whether every offset into the view fits 62 bits, so that later products cannot overflow. */
static bool addressable(const bolide_tensor *t) {
    const int64_t limit = (int64_t)1 << 58; /* elements of at most 8 bytes, with room for a sum */
    int64_t numel = 1, span = 0, step;
    if (is_small(t))
        return true;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            return true;
    }
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        const int64_t stride = t->strides ? t->strides[i] : numel;
        if (t->shape[i] == 1)
            continue; /* no step is ever taken there */
        if (stride == INT64_MIN ||
            __builtin_mul_overflow(t->shape[i] - 1, stride < 0 ? -stride : stride, &step) ||
            step > limit || (span += step) > limit ||
            __builtin_mul_overflow(numel, t->shape[i], &numel) || numel > limit)
            return false;
    }
    return true;
}

static bolide_status check_tensor(bolide__call *call, const row_view *v, const bolide_tensor *t) {
    const bolide_param *r = v->param;
    if (!device_ok(call, r, t->device))
        return BOLIDE_FAIL_ARG(call, r->name, "device",
                               r->flags & BOLIDE_HOST ? "host memory"
                                                      : bolide__device_text(call->ctx->device),
                               "%s", bolide__device_text(t->device));
    if (t->ndim > 0 && !t->shape)
        return BOLIDE_FAIL_ARG(call, r->name, "shape", "not NULL", "NULL");
    const bolide__form *f =
        t->ndim < 0 || t->ndim > BOLIDE__MAX_NDIM ? NULL : bolide__row_form(call, v->index, t);
    if (!f || f->ndim != t->ndim)
        return fail_rank(call, v, t);
    if (v->row->twin_row >= 0) {
        const row_view twin = view(call, v->row->twin_row);
        const bolide_tensor *other = bolide__read_pointer(twin.field);
        if (other && other->ndim != t->ndim)
            return BOLIDE_FAIL_ARG(call, r->name, "rank",
                                   bolide__text("%d as %s has", (int)other->ndim, twin.param->name),
                                   "%d", (int)t->ndim);
    }
    BOLIDE_TRY(check_dtype(call, v, t));
    BOLIDE_TRY(check_shape(call, v, t, f, false));
    if (!addressable(t))
        return BOLIDE_FAIL_ARG(call, r->name, "shape", "a view that spans fewer than 2^62 bytes",
                               "%s", bolide__shape_text(t));
    return BOLIDE_OK;
}

/* The tensor of a row, or NULL with *s set when its absence is an error. */
static const bolide_tensor *present(const bolide__call *call, const row_view *v, int sizes_only,
                                    bolide_status *s) {
    const bolide_param *r = v->param;
    const bolide_tensor *t = bolide__read_pointer(v->field);
    *s = BOLIDE_OK;
    if (r->kind == BOLIDE_KIND_F64_OR_TENSOR) {
        const double x = bolide__read_f64(v->field2);
        const bool given = !isnan(x) && !(x == r->f64);
        if (t && given)
            *s = BOLIDE_FAIL_ARG(call, r->name, "value", "a number or a tensor", "both");
        else if (!t && isnan(x) && !(r->flags & BOLIDE_OPTIONAL))
            *s = BOLIDE_FAIL_ARG(call, r->name, "value", "a number or a tensor", "neither");
    } else if (r->kind == BOLIDE_KIND_I64_OR_TENSOR) {
        const int64_t x = bolide__read_i64(v->field2);
        if (t && x != BOLIDE_NO_INT && x != r->i64)
            *s = BOLIDE_FAIL_ARG(call, r->name, "value", "a number or a tensor", "both");
        else if (!t && x == BOLIDE_NO_INT && !(r->flags & BOLIDE_OPTIONAL))
            *s = BOLIDE_FAIL_ARG(call, r->name, "value", "a number or a tensor", "neither");
    } else if (!t && !(r->flags & BOLIDE_OPTIONAL) && !(sizes_only && is_written(r->kind))) {
        *s = BOLIDE_FAIL_ARG(call, r->name, "pointer", "not NULL", "NULL");
    }
    return *s == BOLIDE_OK ? t : NULL;
}

/* ---- memory ------------------------------------------------------------------------------- */

static bolide_status check_strides(const bolide__call *call, const row_view *v,
                                   const bolide_tensor *t) {
    const bolide_param *r = v->param;
    if (!t->strides)
        return BOLIDE_OK;
    if (r->flags & BOLIDE_DENSE) {
        if (bolide__is_contiguous(t))
            return BOLIDE_OK;
        return BOLIDE_FAIL_ARG(
            call, r->name, "strides", "a contiguous tensor", "shape %s, %s", bolide__shape_text(t),
            bolide__text("last stride %lld", t->ndim ? (long long)t->strides[t->ndim - 1] : 0LL));
    }
    if (bolide__numel(t) == 0)
        return BOLIDE_OK;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 1)
            continue;
        const bool last = i == t->ndim - 1 && !(r->flags & BOLIDE_STRIDED);
        if (last && t->strides[i] != 1)
            return BOLIDE_FAIL_ARG(call, r->name, "strides", "1 in the last dimension", "%lld",
                                   (long long)t->strides[i]);
        if (is_written(r->kind) && t->strides[i] == 0 && !(r->flags & BOLIDE_ZERO_STRIDE))
            return BOLIDE_FAIL_ARG(call, r->name, "strides", "no stride of 0 in an output",
                                   "0 in dimension %d", (int)i);
    }
    if (is_written(r->kind) && !(r->flags & BOLIDE_ZERO_STRIDE) && bolide__meets_itself(t))
        return BOLIDE_FAIL_ARG(call, r->name, "strides", "no two elements in one place",
                               "shape %s, last strides %lld, %lld", bolide__shape_text(t),
                               (long long)t->strides[t->ndim - 2],
                               (long long)t->strides[t->ndim - 1]);
    return BOLIDE_OK;
}

static bolide_status check_data(const bolide__call *call, const row_view *v,
                                const bolide_tensor *t) {
    const bolide_param *r = v->param;
    const uintptr_t address = (uintptr_t)bolide__data(t);
    const uintptr_t align = r->flags & BOLIDE_ALIGN16 ? 16 : (uintptr_t)bolide__elem_bytes(t);
    /* Elements have 1, 2, 4 or 8 bytes but in rows that take any dtype. */
    const uintptr_t off =
        (align & (align - 1)) == 0 ? address & (align ? align - 1 : 0) : address % align;
    if ((t->data && off == 0) || bolide__numel(t) == 0)
        return BOLIDE_OK;
    if (!t->data)
        return BOLIDE_FAIL_ARG(call, r->name, "data", "not NULL", "NULL");
    return BOLIDE_FAIL_ARG(call, r->name, "alignment", bolide__text("%d bytes", (int)align),
                           "address %% %d = %d", (int)align, (int)off);
}

static void find_reach(bolide__seen *s) {
    const bolide_tensor *t = s->t;
    const int64_t bytes = bolide__elem_bytes(t);
    int64_t down = 0, up = 1, numel = 1;
    s->low = s->high = 0;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] == 0)
            return;
        const int64_t span = (t->shape[i] - 1) * (t->strides ? t->strides[i] : numel);
        *(span < 0 ? &down : &up) += span;
        numel *= t->shape[i];
    }
    s->low = (uintptr_t)bolide__data(t) + (uintptr_t)(down * bytes);
    s->high = (uintptr_t)bolide__data(t) + (uintptr_t)(up * bytes);
}

/* ---- lists -------------------------------------------------------------------------------- */

/* Names that a list binds first are bound anew for each element. */
static bolide_status check_list(bolide__call *call, const row_view *v) {
    const bolide_param *r = v->param;
    const int64_t count = bolide__read_i64(v->field2);
    const bolide_tensor *const *list = bolide__read_pointer(v->field);
    if (count < 0 || (count > 0 && !list) || (count == 0 && !(r->flags & BOLIDE_OPTIONAL)))
        return BOLIDE_FAIL_ARG(call, r->name, "count",
                               r->flags & BOLIDE_OPTIONAL ? "0 or more tensors"
                                                          : "1 or more tensors",
                               "%lld", (long long)count);
    int64_t before[BOLIDE__MAX_NAMES];
    memcpy(before, call->dims, sizeof before);
    for (int64_t i = 0; i < count; i++) {
        memcpy(call->dims, before, sizeof before);
        if (!list[i])
            return BOLIDE_FAIL_ARG(call, r->name, "pointer", "not NULL", "NULL in element %lld",
                                   (long long)i);
        BOLIDE_TRY(check_tensor(call, v, list[i]));
        const bolide__form *f = bolide__row_form(call, v->index, list[i]);
        BOLIDE_TRY(check_shape(call, v, list[i], f, true));
        BOLIDE_TRY(check_strides(call, v, list[i]));
        BOLIDE_TRY(check_data(call, v, list[i]));
    }
    memcpy(call->dims, before, sizeof before);
    return BOLIDE_OK;
}

/* ---- all rows ----------------------------------------------------------------------------- */

static bolide_status check_memory(bolide__call *call, const row_view *v, const bolide_tensor *t,
                                  int sizes_only) {
    if (v->row->has_expr) {
        const bolide__form *f = bolide__row_form(call, v->index, t);
        BOLIDE_TRY(check_shape(call, v, t, f, true));
    }
    BOLIDE_TRY(check_strides(call, v, t));
    return sizes_only ? BOLIDE_OK : check_data(call, v, t);
}

/* All that is no tensor. Plain numbers are most of it. */
static bolide_status check_scalars(bolide__call *call, int sizes_only) {
    const int n = row_count(call);
    for (int i = 0; i < n; i++) {
        const row_view v = view(call, i);
        if (bolide__is_tensor_kind(v.param->kind) ||
            (v.param->kind == BOLIDE_KIND_F64 && !isnan(bolide__read_f64(v.field))))
            continue;
        BOLIDE_TRY(check_scalar(call, &v, sizes_only));
    }
    return BOLIDE_OK;
}

/* Lists of tensors, then whatever needs more than one tensor. */
static bolide_status check_together(bolide__call *call, bolide__seen *all, int count,
                                    int sizes_only) {
    const int n = row_count(call);
    for (int i = 0; i < count; i++) {
        const row_view v = view(call, all[i].row);
        BOLIDE_TRY(check_memory(call, &v, all[i].t, sizes_only));
        find_reach(&all[i]);
    }
    for (int i = 0; call->program->list_count && i < n; i++) {
        const row_view v = view(call, i);
        if (v.param->kind == BOLIDE_KIND_TENSOR_LIST)
            BOLIDE_TRY(check_list(call, &v));
    }
    return sizes_only ? BOLIDE_OK : bolide__check_overlaps(call, all, count);
}

/* The tensors that are only written, or all others. */
static bolide_status check_tensors(bolide__call *call, bool outputs, int sizes_only,
                                   bolide__seen *all, int *count) {
    const int n = row_count(call);
    for (int i = 0; i < n; i++) {
        const row_view v = view(call, i);
        bolide_status s;
        if (!bolide__is_tensor_kind(v.param->kind) || (v.param->kind == BOLIDE_KIND_OUT) != outputs)
            continue;
        const bolide_tensor *t = present(call, &v, sizes_only, &s);
        if (t) {
            s = check_tensor(call, &v, t);
            all[(*count)++] = (bolide__seen){
                .t = t, .row = i, .written = outputs || v.param->kind == BOLIDE_KIND_INOUT};
        }
        BOLIDE_TRY(s);
    }
    return BOLIDE_OK;
}

/* Names that are found in expressions only, such as the d of an input of 2*d columns. */
static void solve_expressions(bolide__call *call, const bolide__seen *all, int count) {
    for (int i = 0; i < count; i++) {
        if (!call->program->rows[all[i].row].has_expr)
            continue;
        const bolide__form *f = bolide__row_form(call, all[i].row, all[i].t);
        for (int k = 0; k < f->ndim; k++)
            (void)bolide__solve(call->program, call->dims, &call->program->words[f->first + k],
                                all[i].t->shape[k]);
    }
}

/* Outputs come last: where they do not fit, the inputs have said what is expected. */
bolide_status bolide__check_every_row(bolide__call *call, const void *plan, int sizes_only) {
    bolide__seen all[BOLIDE__MAX_ROWS];
    int count = 0;
    bolide__begin_dims(call, plan);
    BOLIDE_TRY(check_scalars(call, sizes_only));
    BOLIDE_TRY(check_tensors(call, false, sizes_only, all, &count));
    solve_expressions(call, all, count);
    BOLIDE_TRY(check_tensors(call, true, sizes_only, all, &count));
    return check_together(call, all, count, sizes_only);
}

bolide_status bolide__check_rows(bolide__call *call, const void *plan, int sizes_only) {
    bolide__seen all[BOLIDE__MAX_ROWS];
    const int count = sizes_only ? -1 : bolide__check_usual(call, plan, all);
    return count < 0 ? bolide__check_every_row(call, plan, sizes_only)
                     : bolide__check_overlaps(call, all, count);
}

void bolide__bind_loosely(bolide__call *call, const void *plan) {
    const int n = row_count(call);
    bolide__begin_dims(call, plan);
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < n; i++) {
            const row_view v = view(call, i);
            if (pass == 0 && v.row->own_slot >= 0)
                call->dims[v.row->own_slot] = bolide__read_i64(v.field);
            if (pass == 0 || !bolide__is_tensor_kind(v.param->kind) ||
                v.param->kind == BOLIDE_KIND_OUT)
                continue;
            const bolide_tensor *t = bolide__read_pointer(v.field);
            if (!t || !t->shape || t->ndim < 0 || t->ndim > BOLIDE__MAX_NDIM)
                continue;
            const bolide__form *f = bolide__row_form(call, i, t);
            for (int k = 0; f && f->ndim == t->ndim && k < f->ndim; k++) {
                const bolide__word *w = &call->program->words[f->first + k];
                if (pass == (w->kind == BOLIDE__NAME ? 1 : 2))
                    (void)bolide__solve(call->program, call->dims, w, t->shape[k]);
            }
        }
    }
}
