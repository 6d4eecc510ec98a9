// SPDX-License-Identifier: Apache-2.0
//
// The one door. Every call of every operator passes here: size and tag of the struct, the plan and
// workspace it names, all rows, the operator's own check, the log, the backend. What a row can say
// is checked by core/check.c from the table.

#include <string.h>

#include "core/check.h"
#include "core/context.h"
#include "core/env.h"
#include "core/problem_log.h"

static const bolide_context default_context = {.device = {.type = BOLIDE_CPU, .index = 0}};

static const bolide__entry *entry_of(const bolide_op *op, bolide_phase phase) {
    return phase == BOLIDE_PLAN ? &op->plan : &op->run;
}

/* ---- the struct itself -------------------------------------------------------------------- */

/* Storage for the full struct when the caller was compiled with an older, shorter one. */
typedef struct full_args {
    _Alignas(8) unsigned char bytes[BOLIDE__MAX_ARGS_BYTES];
} full_args;

static bolide_status check_head(bolide__call *call, const void *args) {
    if (!args)
        return BOLIDE_FAIL_ARG(call, "args", "pointer", "not NULL", "NULL");
    const bolide_args_head *head = args;
    if (head->tag != call->program->tag)
        return BOLIDE_FAIL_ARG(
            call, "args", "tag", bolide__text("bolide_args_init(\"%s\", …)", call->entry_name),
            head->tag ? "another struct or another ABI" : "a struct that was not initialised");
    const uint32_t full = entry_of(call->op, call->phase)->args_size;
    if (head->size < sizeof *head || head->size > full || head->size % 8 != 0)
        return BOLIDE_FAIL_ARG(call, "args", "size",
                               bolide__text("a multiple of 8 from 8 to %u bytes", full), "%u",
                               head->size);
    return BOLIDE_OK;
}

static bolide_status open_args(bolide__call *call, const void *args, full_args *full) {
    BOLIDE_TRY(check_head(call, args));
    const uint32_t have = ((const bolide_args_head *)args)->size;
    const uint32_t want = entry_of(call->op, call->phase)->args_size;
    call->args = args;
    if (have < want) {
        memcpy(full->bytes, call->program->defaults, want);
        memcpy(full->bytes, args, have);
        call->args = full->bytes;
    }
    return BOLIDE_OK;
}

static bolide_status begin(bolide__call *call, const bolide_op *op, bolide_phase phase,
                           const bolide_context *ctx, bolide_stream stream) {
    if (!op)
        return bolide__fail_arg(BOLIDE_NOT_FOUND, "op_call", "op", "pointer", "not NULL", "NULL");
    /* Field by field: the names are bound later, and clearing all of them would cost more. */
    call->op = op;
    call->phase = phase;
    call->ctx = ctx ? ctx : &default_context;
    call->args = NULL;
    call->stream = stream;
    call->entry_name = op->name;
    call->program = bolide__program_of(op, phase);
    if (!call->program)
        return bolide__fail(BOLIDE_NOT_FOUND, op->name, "the operator has no %s phase",
                            phase == BOLIDE_PLAN ? "plan" : "run");
    call->entry_name = call->program->entry_name;
    return BOLIDE_OK;
}

/* ---- plan and workspace ------------------------------------------------------------------- */

/* The pointer of a row, and its name; NULL for a row of -1. */
static const void *pointer_of(const bolide__call *call, int32_t row, const char **name) {
    const bolide__entry *e = entry_of(call->op, call->phase);
    const void *pointer;
    *name = NULL;
    if (row < 0)
        return NULL;
    memcpy(&pointer, (const char *)call->args + e->rows[row].offset, sizeof pointer);
    *name = e->rows[row].name;
    return pointer;
}

/* A run must name a plan of this operator, whole. */
static bolide_status find_plan(const bolide__call *call, const void **plan) {
    const char *name;
    const bolide_plan *p = pointer_of(call, call->program->plan_row, &name);
    *plan = NULL;
    if (!name || call->phase != BOLIDE_RUN || !call->op->plan.args_size)
        return BOLIDE_OK;
    if (!p)
        return BOLIDE_FAIL_ARG(call, name, "pointer", "not NULL", "NULL");
    if (p->magic != call->op->plan_magic || p->size < call->op->plan_min_bytes)
        return bolide__fail_arg(BOLIDE_NOT_PLANNED, call->entry_name, name, "plan",
                                bolide__text("one that %s_plan filled", call->op->name),
                                "magic %llx, %lld bytes", (unsigned long long)p->magic,
                                (long long)p->size);
    *plan = p;
    return BOLIDE_OK;
}

static bolide_status check_part(const bolide__call *call, const char *name, const char *part,
                                const void *pointer, int64_t have, int64_t need) {
    if (need == 0)
        return BOLIDE_OK;
    if (!pointer || have < need)
        return bolide__fail_arg(BOLIDE_WORKSPACE_TOO_SMALL, call->entry_name, name, part,
                                bolide__text("at least %lld bytes", (long long)need), "%lld bytes",
                                pointer ? (long long)have : 0LL);
    if ((uintptr_t)pointer % 16 != 0)
        return BOLIDE_FAIL_ARG(call, name, part, "an address aligned to 16 bytes", "%p", pointer);
    return BOLIDE_OK;
}

/* The workspace of a call is held against the operator's own query. A run of a planned operator
 * checks against its plan in the front, since only the plan knows. */
static bolide_status check_workspace(const bolide__call *call) {
    if (!call->op->workspace || (call->op->plan.args_size && call->phase == BOLIDE_RUN))
        return BOLIDE_OK;
    bolide_sizes need = {0};
    BOLIDE_TRY(call->op->workspace(call, &need));
    const char *name;
    if (need.plan_bytes) {
        const bolide_plan *p = pointer_of(call, call->program->plan_row, &name);
        BOLIDE_TRY(check_part(call, name, "plan_bytes", p, p ? p->size : 0, need.plan_bytes));
    }
    static const bolide_workspace none = {0};
    const bolide_workspace *w = pointer_of(call, call->program->workspace_row, &name);
    w = w ? w : &none;
    BOLIDE_TRY(
        check_part(call, name, "device_bytes", w->device, w->device_bytes, need.device_bytes));
    BOLIDE_TRY(check_part(call, name, "device_int_bytes", w->device_int, w->device_int_bytes,
                          need.device_int_bytes));
    return check_part(call, name, "pinned_bytes", w->pinned, w->pinned_bytes, need.pinned_bytes);
}

/* ---- dispatch ----------------------------------------------------------------------------- */

/* Nothing to do when there are outputs and none has an element. */
static bool nothing_to_write(const bolide__call *call) {
    const bolide__program *p = call->program;
    int outputs = 0;
    for (int i = 0; i < p->output_count; i++) {
        const bolide_tensor *t;
        memcpy(&t, (const char *)call->args + p->outputs[i], sizeof t);
        if (!t)
            continue;
        if (bolide__numel(t) != 0)
            return false;
        outputs++;
    }
    return outputs > 0;
}

typedef bolide_status (*backend_fn)(const bolide__call *call);

/* The operator on the context's device. A plan is made for a run, so it needs one, too. */
static bolide_status find_backend(const bolide__call *call, backend_fn *run) {
    const bolide_op *op = call->op;
    const bool cuda = call->ctx->device.type == BOLIDE_CUDA;
    *run = cuda ? op->cuda : op->cpu;
    if (*run)
        return BOLIDE_OK;
    return bolide__fail(BOLIDE_UNSUPPORTED, call->entry_name, "no %s implementation; it runs on %s",
                        cuda ? "CUDA" : "CPU", cuda ? "the CPU" : "CUDA");
}

static bolide_status dispatch(const bolide__call *call, backend_fn run) {
    if (call->phase == BOLIDE_PLAN)
        return call->op->make_plan(call);
    if (nothing_to_write(call) || (call->op->is_empty && call->op->is_empty(call)))
        return BOLIDE_OK;
    return run(call);
}

bolide_status bolide_run(const bolide_op *op, bolide_phase phase, const bolide_context *ctx,
                         const void *args, bolide_stream stream) {
    bolide__call call;
    full_args full;
    const void *plan;
    backend_fn run;
    BOLIDE_TRY(begin(&call, op, phase, ctx, stream));
    BOLIDE_TRY(open_args(&call, args, &full));
    BOLIDE_TRY(find_plan(&call, &plan));
    BOLIDE_TRY(bolide__check_rows(&call, plan, 0));
    bolide_status (*check)(const bolide__call *) =
        phase == BOLIDE_PLAN ? op->check_plan : op->check;
    if (check)
        BOLIDE_TRY(check(&call));
    BOLIDE_TRY(find_backend(&call, &run));
    BOLIDE_TRY(check_workspace(&call));
    if (bolide__log_on(BOLIDE__LOG_CALL))
        bolide__log_call(&call);
    return dispatch(&call, run);
}

/* ---- the public generic calls ------------------------------------------------------------- */

bolide_status bolide_op_call(const bolide_op *op, bolide_phase phase, const bolide_context *ctx,
                             const void *args, bolide_stream stream) {
    return bolide_run(op, phase, ctx, args, stream);
}

bolide_status bolide_op_workspace(const bolide_op *op, const bolide_context *ctx, const void *args,
                                  bolide_sizes *sizes) {
    bolide__call call;
    full_args full;
    if (op && !sizes)
        return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, op->name, "sizes", "pointer", "not NULL",
                                "NULL");
    const bool planned = op && op->plan.args_size;
    BOLIDE_TRY(begin(&call, op, planned ? BOLIDE_PLAN : BOLIDE_RUN, ctx, NULL));
    *sizes = (bolide_sizes){0};
    BOLIDE_TRY(open_args(&call, args, &full));
    BOLIDE_TRY(bolide__check_rows(&call, NULL, 1));
    bolide_status (*check)(const bolide__call *) = planned ? op->check_plan : op->check;
    if (check)
        BOLIDE_TRY(check(&call));
    return op->workspace ? op->workspace(&call, sizes) : BOLIDE_OK;
}

int64_t bolide__dim(const bolide__call *call, const char *name) {
    const int slot = bolide__slot(call->program, name, (int32_t)strlen(name));
    return slot < 0 ? INT64_MIN : call->dims[slot];
}

/* Dtype of an output row: its single dtype, or that of the row it is like. Where that tensor is
 * absent, what it would have: the dtype of the row that it is like itself, or its first one. */
static int64_t output_dtype(const bolide__call *call, const bolide_param *rows, int index) {
    const bolide__row *row = &call->program->rows[index];
    const int64_t set = rows[index].dtypes;
    if (row->like_slot >= 0)
        return call->dims[row->like_slot];
    if (row->like_row < 0)
        return set & (set - 1) ? 0 : set;
    const bolide_param *like = &rows[row->like_row];
    const char *field = (const char *)call->args + like->offset;
    if (like->kind == BOLIDE_KIND_DTYPE) {
        int64_t bit;
        memcpy(&bit, field, sizeof bit);
        return bit == BOLIDE_NO_INT ? 0 : bit;
    }
    const bolide_tensor *t;
    memcpy(&t, field, sizeof t);
    if (t)
        return bolide_dtype_bit(t->dtype);
    return like->like ? output_dtype(call, rows, row->like_row) : like->dtypes & -like->dtypes;
}

/* The form of an output that the inputs decide: the only one, or the one whose dimensions are all
 * known. */
static bool output_shape(const bolide__call *call, const bolide__form *f, int64_t *shape) {
    const bolide__program *p = call->program;
    for (int i = 0; i < f->ndim; i++) {
        const bolide__word *w = &p->words[f->first + i];
        shape[i] = w->kind == BOLIDE__CONST  ? w->value
                   : w->kind == BOLIDE__NAME ? call->dims[w->slot]
                   : w->kind == BOLIDE__EXPR ? bolide__eval(p, call->dims, w->code)
                                             : INT64_MIN;
        if (shape[i] < 0)
            return false;
    }
    return true;
}

bolide_status bolide_op_output(const bolide_op *op, bolide_phase phase, int64_t index,
                               const void *args, int32_t *ndim, int64_t *shape, int64_t *dtype) {
    bolide__call call;
    full_args full;
    const void *plan;
    BOLIDE_TRY(begin(&call, op, phase, NULL, NULL));
    const bolide_param *r = bolide_op_param(op, phase, index);
    if (!r || !ndim || !shape || !dtype || r->kind != BOLIDE_KIND_OUT)
        return bolide__fail_arg(BOLIDE_NOT_FOUND, call.entry_name, "index", "row",
                                "an output row and non-NULL results", "row %lld", (long long)index);
    BOLIDE_TRY(open_args(&call, args, &full));
    BOLIDE_TRY(find_plan(&call, &plan));
    bolide__bind_loosely(&call, plan);
    *dtype = output_dtype(&call, entry_of(op, phase)->rows, (int)index);
    const bolide__row *row = &call.program->rows[index];
    for (int i = row->form_count - 1; i >= 0; i--) { /* the longest form comes last in a row */
        const bolide__form *f = &call.program->forms[row->first_form + i];
        if (f->choice >= 0 && call.dims[row->choice_slot] != f->choice)
            continue;
        if (output_shape(&call, f, shape) && *dtype) {
            *ndim = f->ndim;
            return BOLIDE_OK;
        }
    }
    return bolide__fail_arg(BOLIDE_UNSUPPORTED, call.entry_name, r->name, "shape",
                            "a shape and dtype that the inputs decide", "neither");
}
