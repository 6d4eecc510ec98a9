// SPDX-License-Identifier: Apache-2.0
//
// Bytes as arguments of any operator on the CPU: a valid call, with the tensors that an operator
// must have or with all it can have, is spoilt in up to 24 places that the bytes choose, and must
// give a status or a result, never a crash. What a caller promises is kept: every tensor that
// passes the checks has the memory that its shape and strides reach, and index tensors hold the
// values of the valid call.

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "case.h"
#include "core/check.h"
#include "core/check_parts.h"
#include "fuzz.h"
#include "numeric.h"
#include "scratch.h"

enum { OPERATORS = 256, SLACK = 1 << 18, PLACES = 24 };

/* A tensor as it is spoilt. */
typedef struct view {
    bolide_tensor t;
    int64_t shape[16], strides[16];
} view;

typedef struct target {
    driver_case *c;
    driver_scratch scratch;
    unsigned char *memory[DRIVER_TENSORS]; /* floating tensors with slack on both sides */
    int broken;
} target;

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

static uint8_t take(input *in) {
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

static int64_t take_number(input *in) {
    static const int64_t special[] = {
        0,  1,  2,   -1,        -2,        3,         7,         8,       16,
        64, 65, 127, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 20, (int64_t)1 << 40};
    const uint8_t kind = take(in);
    if (kind < 200)
        return special[kind % (sizeof special / sizeof special[0])];
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | take(in);
    return (int64_t)value;
}

/* ---- the valid call ----------------------------------------------------------------------- */

static int make_case(target *t, const bolide_op *op, const problem *p) {
    char error[DRIVER_ERROR];
    bolide_status status;
    t->c = op->cpu ? driver_case_make(p, 1, error) : NULL;
    return t->c ? scratch_make(t->c, fuzz_context(), NULL, &t->scratch, &status) : -1;
}

static bolide_status call_valid(const target *t, bolide_phase phase) {
    const driver_args *args = &t->c->args[phase];
    return args->entry ? bolide_op_call(t->c->op, phase, fuzz_context(), args->bytes, NULL)
                       : BOLIDE_OK;
}

/* 1 if the problem is a good call. */
static int is_good(const bolide_op *op, const problem *p) {
    target t = {.broken = 0};
    const int good = !make_case(&t, op, p) && call_valid(&t, BOLIDE_PLAN) == BOLIDE_OK &&
                     call_valid(&t, BOLIDE_RUN) == BOLIDE_OK;
    scratch_free(&t.scratch, NULL);
    driver_case_free(t.c);
    return good;
}

/* Passes every optional tensor that goes along with those before it. */
static void pass_optional(problem *p, const bolide_op *op) {
    for (int phase = 0; phase < 2; phase++) {
        const bolide__entry *e = phase == BOLIDE_PLAN ? &op->plan : &op->run;
        for (int32_t i = 0; e->args_size && i < e->row_count; i++) {
            const int either = case_is_or_tensor(e->rows[i].kind);
            if (case_is_tensor(e->rows[i].kind) && (either || e->rows[i].flags & BOLIDE_OPTIONAL) &&
                !problem_get(p, e->rows[i].name) &&
                !problem_put(p, e->rows[i].name, either ? "tensor" : "given") && !is_good(op, p))
                p->count--;
        }
    }
}

static int prepare(target *t, const bolide_op *op, int full) {
    static problem p;
    p.count = 0;
    memcpy(p.op, op->name, strlen(op->name) + 1);
    if (full && op->cpu)
        pass_optional(&p, op);
    if (make_case(t, op, &p))
        return -1;
    for (int32_t i = 0; i < t->c->tensor_count; i++) {
        const driver_tensor *tensor = &t->c->tensor[i];
        if (!tensor->host || !numeric_is_float(tensor->dtype))
            continue;
        t->memory[i] = calloc(1, (size_t)(tensor->bytes + 2 * SLACK));
        if (!t->memory[i])
            return -1;
        memcpy(t->memory[i] + SLACK, tensor->host, (size_t)tensor->bytes);
    }
    return 0;
}

/* ---- spoiling ----------------------------------------------------------------------------- */

static void spoil_view(input *in, view *v, const driver_tensor *tensor) {
    const int i = take(in) % 9;
    const int64_t old = v->shape[i];
    switch (take(in) % 9) {
    case 0:
        v->t.ndim = take(in) % 12 - 1;
        break;
    case 1:
        v->shape[i] = take_number(in);
        break;
    case 2:
        v->shape[i] = (int64_t)((uint64_t)old + take(in) % 3 - 1);
        break;
    case 3:
        v->strides[i] = take_number(in);
        break;
    case 4:
        v->t.strides = NULL;
        break;
    case 5:
        v->t.byte_offset += take(in) % 9;
        break;
    case 6:
        v->t.device.type = take(in) % 16;
        break;
    case 7:
        v->t.shape = take(in) % 4 ? v->t.shape : NULL;
        v->t.data = take(in) % 4 ? v->t.data : NULL;
        break;
    default:
        /* Another width of an index would change its values. */
        if (numeric_is_float(tensor->dtype))
            v->t.dtype = take(in) % 8 ? bolide_dtype_of((int64_t)1 << take(in) % 8)
                                      : (bolide_dtype){take(in), take(in), take(in)};
        break;
    }
}

static void spoil_field(input *in, unsigned char *args, const bolide__entry *e) {
    const bolide_param *row = &e->rows[take(in) % e->row_count];
    switch (row->kind) {
    case BOLIDE_KIND_F64:
    case BOLIDE_KIND_I64:
    case BOLIDE_KIND_BOOL:
    case BOLIDE_KIND_ENUM:
    case BOLIDE_KIND_DTYPE:
    case BOLIDE_KIND_F64_OR_TENSOR:
    case BOLIDE_KIND_I64_OR_TENSOR: {
        const int64_t value = take_number(in);
        memcpy(args + case_number_offset(row), &value, sizeof value);
        break;
    }
    case BOLIDE_KIND_INT_TUPLE:
    case BOLIDE_KIND_TENSOR_LIST: {
        int64_t count;
        memcpy(&count, args + row->offset2, sizeof count);
        count = take(in) % 3 ? count - 1 : -1;
        memcpy(args + row->offset2, &count, sizeof count);
        break;
    }
    default:
        memset(args + row->offset, 0, 8); /* absent */
        break;
    }
}

/* ---- the caller's promise ----------------------------------------------------------------- */

static int grow(int64_t *low, int64_t *high, int64_t extent, int64_t stride) {
    int64_t reach;
    if (__builtin_mul_overflow(extent - 1, stride, &reach))
        return 0;
    return !__builtin_add_overflow(reach < 0 ? *low : *high, reach, reach < 0 ? low : high);
}

/* 1 if every element of the view lies between first and last bytes around its data. */
static int fits(const view *v, int64_t before, int64_t behind) {
    const bolide_tensor *t = &v->t;
    int64_t low = 0, high = 0, step = 1;
    if (t->ndim < 0 || t->ndim > 8 || !t->shape)
        return 1; /* refused, whatever it holds */
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] <= 0)
            return 1;
        if (!grow(&low, &high, t->shape[i], t->strides ? t->strides[i] : step) ||
            __builtin_mul_overflow(step, t->shape[i], &step))
            return 0;
    }
    const int64_t bytes = (t->dtype.bits + 7) / 8 * (t->dtype.lanes ? t->dtype.lanes : 1);
    const int64_t offset = (int64_t)t->byte_offset;
    return low > -(1 << 30) && high < 1 << 30 && low * bytes + offset >= -before &&
           (high + 1) * bytes + offset <= behind;
}

static void keep_promise(const target *t, view *views) {
    for (int32_t i = 0; i < t->c->tensor_count; i++) {
        const driver_tensor *tensor = &t->c->tensor[i];
        const driver_tensor *owner = tensor->alias >= 0 ? &t->c->tensor[tensor->alias] : tensor;
        const int64_t slack = t->memory[owner - t->c->tensor] ? SLACK : 0;
        if (tensor->present && !fits(&views[i], slack, owner->bytes + slack))
            views[i].t.data = NULL;
    }
}

/* The quick pass over the rows says nothing or what the full checks say, and binds the same. */
static void compare_checks(const bolide_op *op, bolide_phase phase, const unsigned char *args) {
    const bolide__program *p = bolide__program_of(op, phase);
    const bolide_args_head *head = (const bolide_args_head *)args;
    const bolide__entry *e = phase == BOLIDE_PLAN ? &op->plan : &op->run;
    bolide__seen all[BOLIDE__MAX_ROWS];
    bolide__call quick = {.op = op,
                          .phase = phase,
                          .ctx = fuzz_context(),
                          .args = args,
                          .entry_name = p->entry_name,
                          .program = p};
    bolide__call full = quick;
    const void *plan = NULL;
    if (phase == BOLIDE_RUN && op->plan.args_size)
        memcpy(&plan, args + e->rows[p->plan_row].offset, sizeof plan);
    if (head->size != e->args_size || (phase == BOLIDE_RUN && op->plan.args_size && !plan))
        return;
    const int count = bolide__check_usual(&quick, plan, all);
    if (count < 0)
        return;
    if (bolide__check_overlaps(&quick, all, count) != bolide__check_every_row(&full, plan, 0))
        abort();
    for (int i = 0; i < p->name_count; i++)
        if (quick.dims[i] != full.dims[i])
            abort();
}

/* ---- a call ------------------------------------------------------------------------------- */

static void make_views(const target *t, view *views) {
    for (int32_t i = 0; i < t->c->tensor_count; i++) {
        const driver_tensor *tensor = &t->c->tensor[i];
        view *v = &views[i];
        memset(v, 0, sizeof *v);
        if (!tensor->present)
            continue;
        const int64_t owner = tensor->alias >= 0 ? tensor->alias : i;
        v->t = tensor->view;
        if (t->memory[owner])
            v->t.data = t->memory[owner] + SLACK;
        memcpy(v->shape, tensor->shape, sizeof tensor->shape);
        memcpy(v->strides, tensor->strides, sizeof tensor->strides);
        for (int k = tensor->ndim; k < 16; k++)
            v->shape[k] = v->strides[k] = 1;
        v->t.shape = v->shape;
        v->t.strides = v->strides;
    }
}

static void call_spoilt(target *t, input *in, bolide_phase phase) {
    static view views[DRIVER_TENSORS];
    static _Alignas(8) unsigned char args[4096];
    static const bolide_tensor *list[DRIVER_TENSORS];
    const bolide__entry *e = t->c->args[phase].entry;
    make_views(t, views);
    memcpy(args, t->c->args[phase].bytes, e->args_size);
    for (int32_t i = 0; i < t->c->tensor_count; i++) {
        const driver_tensor *tensor = &t->c->tensor[i];
        const bolide_tensor *address = &views[i].t;
        const bolide_tensor **slots = &list[i];
        if (tensor->phase != phase || !tensor->present)
            continue;
        list[i] = address;
        if (tensor->list < 0)
            memcpy(args + tensor->row->offset, &address, sizeof address);
        else if (tensor->list == 0)
            memcpy(args + tensor->row->offset, &slots, sizeof slots);
    }
    const int places = take(in) % PLACES;
    for (int k = 0; k < places && in->size; k++) {
        const int32_t i = take(in) % (t->c->tensor_count ? t->c->tensor_count : 1);
        if (take(in) % 3 && t->c->tensor[i].present)
            spoil_view(in, &views[i], &t->c->tensor[i]);
        else if (take(in) % 16)
            spoil_field(in, args, e);
        else
            args[take(in) % 8] ^= take(in); /* the head */
    }
    keep_promise(t, views);
    compare_checks(t->c->op, phase, args);
    if (bolide_op_call(t->c->op, phase, fuzz_context(), args, NULL) != BOLIDE_OK &&
        !bolide_last_error()->message[0])
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static target targets[OPERATORS][2];
    input in = {data, size};
    const int64_t which = take(&in), index = which % bolide_op_count();
    const int full = (int)(which / bolide_op_count() % 2);
    target *t = &targets[index][full];
    if (!t->c && !t->broken)
        t->broken = prepare(t, bolide_op_at(index), full) != 0;
    if (t->broken)
        return 0;
    if (t->c->args[BOLIDE_PLAN].entry) {
        /* A run needs a plan; every other input spoils the plan instead. */
        if (take(&in) % 2)
            call_spoilt(t, &in, BOLIDE_PLAN);
        if (call_valid(t, BOLIDE_PLAN) != BOLIDE_OK)
            return 0;
    }
    call_spoilt(t, &in, BOLIDE_RUN);
    return 0;
}
