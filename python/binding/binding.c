// SPDX-License-Identifier: Apache-2.0
//
// The call itself: fill the args struct, find device and stream, let the framework allocate the
// outputs that Python left out, bring scratch, pass the one door. Errors become Python exceptions
// with the library's own sentence; nothing is checked here that the door checks.

#include "binding.h"

#include <stdio.h>
#include <string.h>

#include <tvm/ffi/extra/c_env_api.h>

static const char *kind_of(bolide_status status) {
    switch (status) {
    case BOLIDE_INVALID_ARGUMENT:
    case BOLIDE_WORKSPACE_TOO_SMALL:
    case BOLIDE_NOT_FOUND:
        return "ValueError";
    case BOLIDE_UNSUPPORTED:
        return "NotImplementedError";
    case BOLIDE_BUSY:
        return "bolide.BusyError";
    default:
        return "RuntimeError";
    }
}

int raise_status(bolide_status status) {
    TVMFFIErrorSetRaisedFromCStr(kind_of(status), bolide_last_error()->message);
    return -1;
}

int raise_value(const char *entry, const char *arg, const char *text) {
    char message[512];
    snprintf(message, sizeof message, "%s: %s: %s", entry, arg, text);
    TVMFFIErrorSetRaisedFromCStr("ValueError", message);
    return -1;
}

static void release_outputs(frame *f) {
    for (int i = 0; i < f->output_count; i++)
        if (f->outputs[i])
            TVMFFIObjectDecRef(f->outputs[i]);
}

/* An output whose shape the inputs do not decide: most often because one of them is wrong, and then
 * the door names it. It is asked for sizes alone, so that nothing runs. */
static int raise_for_output(frame *f, const slot *s, bolide_status status) {
    const bolide_context *ctx;
    bolide_sizes sizes;
    if (context_of(f->device, &ctx) != 0)
        return -1;
    if (!bolide_op_planned(f->binding->op) &&
        bolide_op_workspace(f->binding->op, ctx, f->args, &sizes) != BOLIDE_OK)
        return raise_status(bolide_last_error()->status);
    char message[256];
    snprintf(message, sizeof message, "%s: %s: shape: expected one that the inputs decide",
             f->binding->entry, s->row->name);
    TVMFFIErrorSetRaisedFromCStr(kind_of(status), message);
    return -1;
}

/* One output in the memory of the framework whose tensors were passed. */
static int allocate_output(frame *f, int i) {
    const slot *s = f->wanted[i];
    int64_t *dims = f->dims[f->tensor_count];
    bolide_tensor prototype = {.device = f->device, .shape = dims};
    int64_t bit = 0;
    const bolide_status status = bolide_op_output(f->binding->op, f->binding->phase, s->index,
                                                  f->args, &prototype.ndim, dims, &bit);
    if (status != BOLIDE_OK)
        return raise_for_output(f, s, status);
    prototype.dtype = bolide_dtype_of(bit);
    for (int64_t k = prototype.ndim - 1, step = 1; k >= 0; k--) {
        dims[MAX_NDIM + k] = step;
        step *= dims[k];
    }
    prototype.strides = dims + MAX_NDIM;
    if (TVMFFIEnvTensorAlloc((DLTensor *)&prototype, &f->outputs[i]) != 0)
        return -1;
    bolide_tensor *t = &f->tensors[f->tensor_count++];
    memcpy(t, (const char *)f->outputs[i] + sizeof(TVMFFIObject), sizeof *t);
    memcpy(f->args + s->row->offset, &t, sizeof t);
    return 0;
}

static int allocate_outputs(frame *f) {
    for (int i = 0; i < f->output_count; i++)
        if (allocate_output(f, i) != 0)
            return -1;
    return 0;
}

/* An array of tvm-ffi, which takes a reference of its own to each element. */
static int make_array(TVMFFIAny *elements, int32_t count, TVMFFIAny *result) {
    static _Atomic(TVMFFIObjectHandle) maker;
    TVMFFIObjectHandle make = maker;
    if (!make) {
        const TVMFFIByteArray name = {.data = "ffi.Array", .size = 9};
        if (TVMFFIFunctionGetGlobal(&name, &make) != 0)
            return -1;
        maker = make;
    }
    return TVMFFIFunctionCall(make, elements, count, result);
}

/* What Python gets: nothing, the one allocated output, or an array of them. */
static int give_outputs(frame *f, TVMFFIAny *result) {
    if (f->output_count == 0)
        return 0;
    if (f->output_count == 1) {
        *result = (TVMFFIAny){.type_index = kTVMFFITensor, .v_obj = f->outputs[0]};
        return 0;
    }
    TVMFFIAny elements[MAX_OUTPUTS];
    for (int i = 0; i < f->output_count; i++)
        elements[i] = (TVMFFIAny){.type_index = kTVMFFITensor, .v_obj = f->outputs[i]};
    const int rc = make_array(elements, f->output_count, result);
    release_outputs(f);
    return rc;
}

static int give_sizes(const frame *f, const bolide_context *ctx, TVMFFIAny *result) {
    bolide_sizes sizes;
    const bolide_status status = bolide_op_workspace(f->binding->op, ctx, f->args, &sizes);
    if (status != BOLIDE_OK)
        return raise_status(status);
    TVMFFIAny elements[4];
    const int64_t values[4] = {sizes.device_bytes, sizes.device_int_bytes, sizes.pinned_bytes,
                               sizes.plan_bytes};
    for (int i = 0; i < 4; i++)
        elements[i] = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = values[i]};
    return make_array(elements, 4, result);
}

static int run_frame(frame *f, TVMFFIAny *result) {
    const bolide_context *ctx;
    if (f->device.type == 0)
        f->device.type = BOLIDE_CPU;
    if (context_of(f->device, &ctx) != 0)
        return -1;
    if (f->binding->purpose == QUERY)
        return give_sizes(f, ctx, result);
    if (!f->stream_known && f->device.type == BOLIDE_CUDA)
        f->stream = TVMFFIEnvGetStream(f->device.type, f->device.index);
    if (allocate_outputs(f) != 0)
        return -1;
    if (f->binding->scratch_offset >= 0 && !f->workspace_given && bring_scratch(f, ctx) != 0)
        return -1;
    const bolide_status status =
        bolide_op_call(f->binding->op, f->binding->phase, ctx, f->args, f->stream);
    return status == BOLIDE_OK ? 0 : raise_status(status);
}

int invoke(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
    const binding *b = self;
    frame f;
    f.binding = b;
    f.device = (bolide_device){0};
    f.device_fixed = f.stream_known = f.workspace_given = false;
    f.scratch.device = NULL;
    f.stream = NULL;
    f.tensor_count = f.list_count = f.integer_count = f.output_count = 0;
    memcpy(f.args, b->defaults, b->args_size);
    if (count != b->count)
        return raise_value(b->entry, "arguments", "another number than was bound");
    for (int32_t i = 0; i < count; i++)
        if (set_slot(&f, &b->slots[i], &args[i]) != 0)
            return -1;
    for (int i = 0; i < f.output_count; i++)
        f.outputs[i] = NULL;
    if (run_frame(&f, result) != 0) {
        release_outputs(&f);
        return -1;
    }
    return b->purpose == QUERY ? 0 : give_outputs(&f, result);
}
