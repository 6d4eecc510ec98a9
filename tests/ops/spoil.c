// SPDX-License-Identifier: Apache-2.0
//
// Spoilt tensors: absent, of another dtype, rank, shape, device, alignment or with strides that
// their row does not allow.

#include "spoil.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "case.h"
#include "core/tensor.h"
#include "dims.h"
#include "numeric.h"

/* A copy of a tensor that can be changed freely. */
typedef struct changed {
    bolide_tensor view;
    int64_t shape[REF_RANK + 1], strides[REF_RANK + 1];
} changed;

static void copy(changed *to, const driver_tensor *t) {
    memset(to, 0, sizeof *to);
    to->view = t->view;
    memcpy(to->shape, t->shape, sizeof t->shape);
    memcpy(to->strides, t->strides, sizeof t->strides);
    to->view.shape = to->shape;
    to->view.strides = to->strides;
}

static void expect_with(spoil *s, const driver_tensor *t, const bolide_tensor *view,
                        const char *arg, const char *what) {
    const bolide_tensor *kept = &t->view;
    case_put(s->c, s->phase, t->row->offset, &view);
    spoil_expect(s, BOLIDE_INVALID_ARGUMENT, arg, what);
    case_put(s->c, s->phase, t->row->offset, &kept);
}

int spoil_names(const spoil *s, const char *arg, const char *named) {
    (void)s;
    const size_t n = strlen(named);
    for (const char *at = arg; at && *at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (!strncmp(at, named, n) && (at[n] == '|' || at[n] == 0))
            return 1;
    return 0;
}

/* ---- dtype, rank, device, memory --------------------------------------------------------------
 */

/* dtypes that the row could take, those of the row it is like included. */
static int64_t accepted(const spoil *s, const driver_tensor *t) {
    int64_t set = t->row->dtypes | t->dtype;
    const bolide_param *like = t->row->like ? case_any_row(s->c, t->row->like, NULL) : NULL;
    return like ? set | like->dtypes : set;
}

static void spoil_dtype(spoil *s, const driver_tensor *t) {
    changed x;
    if (!t->row->dtypes && !t->row->like)
        return;
    for (int bit = 0; bit < 17; bit++) {
        const int64_t dtype = (int64_t)1 << bit;
        if (accepted(s, t) & dtype)
            continue;
        copy(&x, t);
        x.view.dtype = bolide_dtype_of(dtype);
        expect_with(s, t, &x.view, t->name, "another dtype");
        break;
    }
    copy(&x, t);
    x.view.dtype.lanes = 3;
    expect_with(s, t, &x.view, t->name, "three lanes");
}

static void spoil_rank(spoil *s, const driver_tensor *t) {
    dims_row row;
    changed x;
    dims_parse(t->row->dims, &row);
    int32_t low = REF_RANK, high = 0;
    for (int32_t i = 0; i < row.count; i++) {
        low = row.form[i].ndim < low ? row.form[i].ndim : low;
        high = row.form[i].ndim > high ? row.form[i].ndim : high;
    }
    copy(&x, t);
    x.view.ndim = high + 1;
    for (int32_t i = t->ndim; i <= high; i++)
        x.shape[i] = x.strides[i] = 1;
    expect_with(s, t, &x.view, t->name, "one dimension more");
    if (low > 0) {
        copy(&x, t);
        x.view.ndim = low - 1;
        expect_with(s, t, &x.view, t->name, "one dimension less");
    }
    copy(&x, t);
    x.view.ndim = -1;
    expect_with(s, t, &x.view, t->name, "a rank of -1");
}

static void spoil_memory(spoil *s, const driver_tensor *t) {
    changed x;
    const int64_t bytes = numeric_bytes(t->dtype, 1);
    copy(&x, t);
    x.view.device.type = BOLIDE_CUDA;
    expect_with(s, t, &x.view, t->name, "memory of another device");
    copy(&x, t);
    x.view.shape = NULL;
    if (t->ndim > 0)
        expect_with(s, t, &x.view, t->name, "no shape");
    if (t->elems == 0)
        return;
    copy(&x, t);
    x.view.data = NULL;
    expect_with(s, t, &x.view, t->name, "no data");
    copy(&x, t);
    x.view.byte_offset += t->row->flags & BOLIDE_ALIGN16 ? (uint64_t)(bytes > 8 ? 8 : bytes) : 1;
    if (bytes > 1 || t->row->flags & BOLIDE_ALIGN16)
        expect_with(s, t, &x.view, t->name, "misaligned data");
}

static void spoil_strides(spoil *s, const driver_tensor *t) {
    changed x;
    const int32_t last = t->ndim - 1;
    const uint32_t flags = t->row->flags;
    if (t->elems == 0 || t->ndim == 0)
        return;
    if (t->shape[last] > 1 && !(flags & BOLIDE_STRIDED)) {
        copy(&x, t);
        x.strides[last] = 2;
        expect_with(s, t, &x.view, t->name, "a strided last dimension");
    }
    if (t->shape[0] > 1) {
        copy(&x, t);
        x.strides[0] = INT64_MIN;
        expect_with(s, t, &x.view, t->name, "a stride of -2^63");
        x.strides[0] = INT64_MAX / 2;
        expect_with(s, t, &x.view, t->name, "a stride of 2^62");
    }
    if (t->ndim < 2 || t->shape[0] < 2)
        return;
    if (flags & BOLIDE_DENSE) {
        copy(&x, t);
        x.strides[0] += 1;
        expect_with(s, t, &x.view, t->name, "a gap between rows");
    }
    if (case_is_written(t) && !(flags & BOLIDE_ZERO_STRIDE)) {
        copy(&x, t);
        x.strides[0] = 0;
        expect_with(s, t, &x.view, t->name, "a stride of 0 in an output");
        x.strides[0] = x.strides[last];
        if (t->shape[last] > 1)
            expect_with(s, t, &x.view, t->name, "rows of an output that overlap");
    }
}

/* ---- shape ------------------------------------------------------------------------------------
 */

typedef struct names {
    const char *name[8];
    int32_t length[8];
    int count;
} names;

static void collect(void *user, const char *name, int32_t length) {
    names *n = user;
    if (n->count < 8) {
        n->name[n->count] = name;
        n->length[n->count++] = length;
    }
}

typedef struct search {
    const names *wanted;
    int found;
} search;

static void match(void *user, const char *name, int32_t length) {
    search *s = user;
    for (int i = 0; i < s->wanted->count; i++)
        s->found |=
            s->wanted->length[i] == length && !memcmp(s->wanted->name[i], name, (size_t)length);
}

static int shares(const bolide_param *row, const names *wanted) {
    search s = {wanted, 0};
    if (row->dims)
        dims_names(row->dims, match, &s);
    match(&s, row->name, (int32_t)strlen(row->name));
    return s.found;
}

/* Rows of the phase, passed and beside t, that speak of one of the names: "a|b". Empty: none, so
 * that another size of t is no contradiction. */
static void others(const spoil *s, const driver_tensor *t, const names *wanted, char *text,
                   size_t bytes) {
    const bolide__entry *e = s->c->args[s->phase].entry;
    size_t used = 0;
    text[0] = 0;
    for (int32_t i = 0; i < e->row_count; i++) {
        const bolide_param *row = &e->rows[i];
        const int tensor = case_is_tensor(row->kind);
        const int scalar = row->kind == BOLIDE_KIND_I64 || row->kind == BOLIDE_KIND_ENUM;
        if (row == t->row || !(tensor || scalar) || !shares(row, wanted) ||
            (tensor && !driver_tensor_of(s->c, s->phase, row->name)))
            continue;
        used += (size_t)snprintf(text + used, bytes > used ? bytes - used : 0, "%s%s",
                                 used ? "|" : "", row->name);
    }
    const bolide__plan_dim *d = s->phase == BOLIDE_RUN ? s->c->op->plan_dims : NULL;
    for (; d && d->name && !used; d++) {
        search found = {wanted, 0};
        match(&found, d->name, (int32_t)strlen(d->name));
        if (found.found)
            used += (size_t)snprintf(text, bytes, "%s", t->name);
    }
}

/* The form that the tensor has; NULL where several of its rank could be meant. */
static const dims_form *form_of(const spoil *s, const driver_tensor *t, const dims_row *row) {
    const dims_form *found = NULL;
    bolide_phase phase;
    const bolide_param *selector =
        row->selector[0] ? case_any_row(s->c, row->selector, &phase) : NULL;
    for (int32_t i = 0; i < row->count; i++) {
        const dims_form *f = &row->form[i];
        if (f->ndim != t->ndim ||
            (selector && case_choice(selector->choices, f->choice, strlen(f->choice)) !=
                             case_get_i64(s->c, phase, selector->offset)))
            continue;
        if (found)
            return NULL;
        found = f;
    }
    return found;
}

/* Names in one word. */
static names names_in(const char *word, int32_t length) {
    char text[128];
    names found = {.count = 0}, result = {.count = 0};
    const int32_t n = length < 127 ? length : 127;
    memcpy(text, word, (size_t)n);
    text[n] = 0;
    dims_names(text, collect, &found);
    for (int i = 0; i < found.count; i++)
        collect(&result, word + (found.name[i] - text), found.length[i]);
    return result;
}

/* A size that no memory has, where the tensor itself or one of the others must be refused. */
static void spoil_size(spoil *s, const driver_tensor *t, int32_t i, const char *others) {
    char arg[600];
    changed x;
    (void)snprintf(arg, sizeof arg, "%s%s%s", others, others[0] ? "|" : "", t->name);
    copy(&x, t);
    x.shape[i] = INT64_MAX;
    if (t->elems > 0)
        expect_with(s, t, &x.view, arg, "a size of 2^63 - 1");
    x.shape[i] = (int64_t)1 << 40;
    if (t->elems > 0 && others[0])
        expect_with(s, t, &x.view, arg, "a size of 2^40");
}

static void spoil_shape(spoil *s, const driver_tensor *t) {
    dims_row row;
    dims_parse(t->row->dims, &row);
    const dims_form *form = form_of(s, t, &row);
    for (int32_t i = 0; form && i < t->ndim; i++) {
        changed x;
        char arg[512];
        const char *word = form->word[i];
        const names wanted = names_in(word, form->length[i]);
        others(s, t, &wanted, arg, sizeof arg);
        spoil_size(s, t, i, arg);
        if (form->length[i] == 1 && *word == '_')
            continue;
        if (wanted.count && !arg[0])
            continue;
        const size_t used = strlen(arg);
        (void)snprintf(arg + used, sizeof arg - used, "%s%s", used ? "|" : "", t->name);
        copy(&x, t);
        x.shape[i] += 1;
        expect_with(s, t, &x.view, arg, "a dimension off by one");
        copy(&x, t);
        x.shape[i] = -1;
        expect_with(s, t, &x.view, arg, "a dimension below 0");
    }
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static void spoil_absence(spoil *s, const driver_tensor *t) {
    if (t->row->flags & BOLIDE_OPTIONAL)
        return;
    if (!case_is_or_tensor(t->row->kind)) {
        expect_with(s, t, NULL, t->name, "NULL");
        return;
    }
    /* The tensor is there: a number beside it is one too many. */
    const double number = isnan(t->row->f64) ? 1 : t->row->f64 + 1;
    const int64_t integer = t->row->i64 == BOLIDE_NO_INT ? 1 : t->row->i64 + 1;
    unsigned char *field = s->c->args[s->phase].bytes + t->row->offset2;
    unsigned char kept[8];
    memcpy(kept, field, sizeof kept);
    if (t->row->kind == BOLIDE_KIND_F64_OR_TENSOR)
        memcpy(field, &number, sizeof number);
    else
        memcpy(field, &integer, sizeof integer);
    spoil_expect(s, BOLIDE_INVALID_ARGUMENT, t->name, "a number and a tensor");
    memcpy(field, kept, sizeof kept);
}

/* An output that begins within another tensor. Two dense ranges that meet are always refused; what
 * lies behind that tensor may be met as well, so any output may be named. */
static void spoil_overlap(spoil *s, const driver_tensor *t) {
    char outputs[512] = "";
    for (int32_t i = 0; i < s->c->tensor_count; i++) {
        const size_t used = strlen(outputs);
        if (case_is_written(&s->c->tensor[i]))
            (void)snprintf(outputs + used, sizeof outputs - used, "%s%s", used ? "|" : "",
                           s->c->tensor[i].name);
    }
    for (int32_t i = 0; case_is_written(t) && i < s->c->tensor_count; i++) {
        const driver_tensor *o = &s->c->tensor[i];
        changed x;
        if (o == t || !o->present || o->phase != s->phase || t->elems == 0 ||
            numeric_bytes(o->dtype, o->elems) <= 16 || !bolide__is_contiguous(&t->view) ||
            !bolide__is_contiguous(&o->view))
            continue;
        copy(&x, t);
        x.view.data = (char *)bolide__data(&o->view) + 16;
        x.view.byte_offset = 0;
        expect_with(s, t, &x.view, outputs, "memory within another tensor");
    }
}

void spoil_tensor(spoil *s, const bolide_param *row) {
    const driver_tensor *t = driver_tensor_of(s->c, s->phase, row->name);
    if (!t)
        return;
    spoil_absence(s, t);
    spoil_dtype(s, t);
    spoil_rank(s, t);
    spoil_memory(s, t);
    spoil_strides(s, t);
    spoil_shape(s, t);
    spoil_overlap(s, t);
}
