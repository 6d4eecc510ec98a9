// SPDX-License-Identifier: Apache-2.0
//
// Prints a call as a problem string, from rows alone. Page tables and other structured inputs are
// told by their dimensions; their contents, which may lie on the device, are not read.

#include "core/problem_log.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/env.h"

typedef struct sink {
    char *to;
    size_t bytes;
    int used;
} sink;

__attribute__((format(printf, 2, 3))) static void put(sink *s, const char *format, ...) {
    const size_t at = (size_t)s->used < s->bytes ? (size_t)s->used : s->bytes;
    va_list list;
    va_start(list, format);
    s->used += vsnprintf(s->to + at, s->bytes - at, format, list);
    va_end(list);
}

static void put_choice(sink *s, const bolide_param *r, int64_t value) {
    const char *c = r->choices;
    for (int64_t i = 0; i < value && *c; i++) {
        c += strcspn(c, " ");
        c += *c == ' ';
    }
    put(s, " %s=%.*s", r->name, (int)strcspn(c, " "), c);
}

static void put_integer(sink *s, const bolide_param *r, int64_t value) {
    if (value == r->i64)
        return;
    if (r->kind == BOLIDE_KIND_ENUM)
        put_choice(s, r, value);
    else if (r->kind == BOLIDE_KIND_DTYPE)
        put(s, " %s=%s", r->name, bolide_dtype_name(value));
    else
        put(s, " %s=%lld", r->name, (long long)value);
}

static void put_strides(sink *s, const bolide_param *r, const bolide_tensor *t) {
    int64_t step = 1;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] > 1 && bolide__stride(t, i) != step)
            put(s, " %s.stride%d=%lld", r->name, (int)i, (long long)bolide__stride(t, i));
        step *= t->shape[i] > 1 ? t->shape[i] : 1;
    }
}

/* The tensor whose memory an output shares; NULL: none. */
static const char *shared_with(const bolide__entry *e, const bolide_param *r,
                               const bolide_tensor *t, const char *args) {
    for (int i = 0; r->alias && i < e->row_count; i++) {
        const bolide_tensor *other = NULL;
        if (strcmp(e->rows[i].name, r->alias) != 0)
            continue;
        memcpy(&other, args + e->rows[i].offset, sizeof other);
        if (other && bolide__data(other) == bolide__data(t))
            return r->alias;
    }
    return NULL;
}

static void put_tensor(sink *s, const bolide__entry *e, const bolide_param *r, const char *args) {
    const bolide_tensor *t = NULL;
    memcpy(&t, args + r->offset, sizeof t);
    if (!t)
        return;
    const char *shared = shared_with(e, r, t, args);
    if (shared) {
        put(s, " %s=%s", r->name, shared);
        return;
    }
    if (!r->like)
        put(s, " %s=%s", r->name, bolide_dtype_name(bolide_dtype_bit(t->dtype)));
    else if (r->flags & BOLIDE_OPTIONAL)
        put(s, " %s=given", r->name);
    put_strides(s, r, t);
}

static void put_row(sink *s, const bolide__entry *e, const bolide_param *r, const char *args) {
    const bolide_tensor *t = NULL;
    int64_t i64 = 0;
    double f64 = 0;
    switch (r->kind) {
    case BOLIDE_KIND_F64:
        memcpy(&f64, args + r->offset, sizeof f64);
        if (f64 != r->f64 && !isnan(f64))
            put(s, " %s=%.17g", r->name, f64);
        break;
    case BOLIDE_KIND_I64:
    case BOLIDE_KIND_BOOL:
    case BOLIDE_KIND_ENUM:
    case BOLIDE_KIND_DTYPE:
        memcpy(&i64, args + r->offset, sizeof i64);
        put_integer(s, r, i64);
        break;
    case BOLIDE_KIND_IN:
    case BOLIDE_KIND_OUT:
    case BOLIDE_KIND_INOUT:
        put_tensor(s, e, r, args);
        break;
    case BOLIDE_KIND_F64_OR_TENSOR:
        memcpy(&t, args + r->offset, sizeof(void *));
        memcpy(&f64, args + r->offset2, sizeof f64);
        if (t)
            put(s, " %s=tensor", r->name);
        else if (f64 != r->f64 && !isnan(f64))
            put(s, " %s=%.17g", r->name, f64);
        break;
    case BOLIDE_KIND_I64_OR_TENSOR:
        memcpy(&t, args + r->offset, sizeof(void *));
        memcpy(&i64, args + r->offset2, sizeof i64);
        if (t)
            put(s, " %s=tensor", r->name);
        else if (i64 != r->i64)
            put(s, " %s=%lld", r->name, (long long)i64);
        break;
    default:
        break;
    }
}

/* A dimension; or what a run takes from its plan, which may be a dtype or a choice. */
static void put_name(sink *s, const bolide_op *op, const char *name, int32_t length,
                     int64_t value) {
    for (int i = 0; i < op->plan.row_count; i++) {
        const bolide_param *r = &op->plan.rows[i];
        if ((int32_t)strlen(r->name) != length || memcmp(r->name, name, (size_t)length) != 0)
            continue;
        if (r->kind == BOLIDE_KIND_DTYPE || r->kind == BOLIDE_KIND_ENUM) {
            put_integer(s, r, value);
            return;
        }
    }
    put(s, " %.*s=%lld", (int)length, name, (long long)value);
}

int bolide__problem_text(const bolide__call *call, char *to, size_t bytes) {
    const bolide__entry *e = call->phase == BOLIDE_PLAN ? &call->op->plan : &call->op->run;
    const bolide__program *p = call->program;
    sink s = {.to = to, .bytes = bytes};
    put(&s, "%s", call->op->name);
    for (int i = 0; i < p->name_count; i++) {
        int scalar = 0;
        for (int k = 0; k < e->row_count; k++)
            scalar |= p->rows[k].own_slot == i || p->rows[k].choice_slot == i;
        if (!scalar && call->dims[i] != INT64_MIN)
            put_name(&s, call->op, p->names[i].text, p->names[i].length, call->dims[i]);
    }
    for (int i = 0; i < e->row_count; i++)
        put_row(&s, e, &e->rows[i], call->args);
    return s.used;
}

void bolide__log_call(const bolide__call *call) {
    char line[2048];
    bolide__problem_text(call, line, sizeof line);
    bolide__log(BOLIDE__LOG_CALL, "%s%s", line, call->phase == BOLIDE_PLAN ? " (plan)" : "");
}
