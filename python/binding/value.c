// SPDX-License-Identifier: Apache-2.0
//
// From a value of Python to the field of an args struct, by the kind of its row. None leaves the
// default in place; for a required output it means that the framework allocates it, as True does
// for any output.

#include "binding.h"

#include <stdio.h>
#include <string.h>

static const char *name_of(const slot *s) {
    return s->row ? s->row->name : STREAM_ARGUMENT;
}

static int wrong(const frame *f, const slot *s, const char *expected) {
    char text[256];
    snprintf(text, sizeof text, "value: expected %s; got another type", expected);
    return raise_value(f->binding->entry, name_of(s), text);
}

static void store(frame *f, uint32_t offset, const void *value) {
    memcpy(f->args + offset, value, 8);
}

/* ---- tensors ------------------------------------------------------------------------------ */

/* The device of a call is that of its first tensor that must lie there; of tensors that may lie on
 * either side one on a GPU counts as long as nothing else has spoken. */
static void note_device(frame *f, const bolide_param *row, bolide_device device) {
    if (f->device_fixed || (row->flags & BOLIDE_HOST))
        return;
    if (device.type == BOLIDE_CUDA_HOST)
        device = (bolide_device){.type = BOLIDE_CPU};
    if (device.type == BOLIDE_CUDA_MANAGED)
        device.type = BOLIDE_CUDA;
    if (row->flags & BOLIDE_EITHER) {
        if (device.type == BOLIDE_CUDA)
            f->device = device;
        return;
    }
    f->device = device;
    f->device_fixed = true;
}

/* A tensor that Python packed into bytes. */
static const bolide_tensor *unpack(frame *f, const slot *s, const char *data, size_t size) {
    packed_tensor p;
    if (size < sizeof p)
        return NULL;
    memcpy(&p, data, sizeof p);
    if (p.ndim < 0 || p.ndim > MAX_NDIM || size != sizeof p + 16 * (size_t)p.ndim) {
        raise_value(f->binding->entry, name_of(s), "rank: expected at most 8 dimensions");
        return NULL;
    }
    int64_t *dims = f->dims[f->tensor_count];
    memcpy(dims, data + sizeof p, 8 * (size_t)p.ndim);
    memcpy(dims + MAX_NDIM, data + sizeof p + 8 * (size_t)p.ndim, 8 * (size_t)p.ndim);
    bolide_tensor *t = &f->tensors[f->tensor_count++];
    *t = (bolide_tensor){.data = (void *)(uintptr_t)p.data,
                         .device = p.device,
                         .ndim = p.ndim,
                         .dtype = p.dtype,
                         .shape = dims,
                         .strides = dims + MAX_NDIM};
    if (p.device.type == BOLIDE_CUDA && !f->stream_known) {
        f->stream = (bolide_stream)(uintptr_t)p.stream;
        f->stream_known = true;
    }
    return t;
}

/* The tensor in a value, NULL if it holds none. Two values of torch that are one here: a pair of
 * four-bit numbers as one element, and pairs of them as elements. */
static const bolide_tensor *tensor_of(frame *f, const slot *s, const TVMFFIAny *v) {
    if (f->tensor_count == MAX_SLOTS)
        return NULL;
    switch (v->type_index) {
    case kTVMFFITensor:
        return (const bolide_tensor *)((const char *)v->v_obj + sizeof(TVMFFIObject));
    case kTVMFFIDLTensorPtr:
        return v->v_ptr;
    case kTVMFFIByteArrayPtr: {
        const TVMFFIByteArray *bytes = v->v_ptr;
        return unpack(f, s, bytes->data, bytes->size);
    }
    case kTVMFFIBytes: {
        const TVMFFIByteArray *bytes =
            (const TVMFFIByteArray *)((const char *)v->v_obj + sizeof(TVMFFIObject));
        return unpack(f, s, bytes->data, bytes->size);
    }
    default:
        return NULL;
    }
}

static int set_tensor(frame *f, const slot *s, const TVMFFIAny *v) {
    const bool output = s->row->kind == BOLIDE_KIND_OUT;
    const bool asked = v->type_index == kTVMFFIBool && v->v_int64;
    const bool absent =
        v->type_index == kTVMFFINone || (output && v->type_index == kTVMFFIBool && !v->v_int64);
    if (output && (asked || (absent && !(s->row->flags & BOLIDE_OPTIONAL)))) {
        if (f->output_count == MAX_OUTPUTS)
            return raise_value(f->binding->entry, s->row->name, "too many outputs");
        f->wanted[f->output_count++] = s;
        return 0;
    }
    if (absent)
        return 0;
    const bolide_tensor *t = tensor_of(f, s, v);
    if (!t)
        return wrong(f, s, "a tensor");
    note_device(f, s->row, t->device);
    store(f, s->row->offset, &t);
    return 0;
}

/* Strides of a tensor that DLPack gives without any. */
static void compact(const bolide_tensor *t, int64_t *strides) {
    int64_t step = 1;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        strides[i] = t->strides ? t->strides[i] : step;
        step *= t->shape[i];
    }
}

/* Two rows by one tensor: its second axis has two places. */
static int set_halves(frame *f, const slot *s, const TVMFFIAny *v) {
    const bolide_tensor *t = tensor_of(f, s, v);
    if (!t)
        return wrong(f, s, "a tensor");
    if (t->ndim < 2 || t->ndim > MAX_NDIM || f->tensor_count + 2 > MAX_SLOTS)
        return wrong(f, s, "2 to 8 dimensions");
    if (t->shape[1] != 2) {
        char text[96];
        snprintf(text, sizeof text,
                 "shape: expected 2 on the second axis, keys and values; got %lld",
                 (long long)t->shape[1]);
        return raise_value(f->binding->entry, name_of(s), text);
    }
    note_device(f, s->row, t->device);
    int64_t strides[MAX_NDIM];
    compact(t, strides);
    for (int half = 0; half < 2; half++) {
        int64_t *dims = f->dims[f->tensor_count];
        bolide_tensor *part = &f->tensors[f->tensor_count++];
        *part = *t;
        part->ndim = t->ndim - 1;
        part->shape = dims;
        part->strides = dims + MAX_NDIM;
        part->byte_offset += (uint64_t)(half * strides[1] * t->dtype.bits * t->dtype.lanes / 8);
        for (int32_t i = 0, to = 0; i < t->ndim; i++) {
            if (i == 1)
                continue;
            dims[to] = t->shape[i];
            dims[MAX_NDIM + to++] = strides[i];
        }
        store(f, (half ? s->half : s->row)->offset, &part);
    }
    return 0;
}

/* Elements of an array, list or shape of tvm-ffi. */
static bool elements_of(const TVMFFIAny *v, const TVMFFIAny **elements, int64_t *count) {
    if (v->type_index != kTVMFFIArray && v->type_index != kTVMFFIList)
        return false;
    const TVMFFISeqCell *cell =
        (const TVMFFISeqCell *)((const char *)v->v_obj + sizeof(TVMFFIObject));
    *elements = cell->data;
    *count = cell->size;
    return true;
}

static int set_tensor_list(frame *f, const slot *s, const TVMFFIAny *v) {
    const TVMFFIAny *elements;
    int64_t count;
    if (!elements_of(v, &elements, &count))
        return wrong(f, s, "a list of tensors");
    if (f->list_count + count > MAX_LIST)
        return raise_value(f->binding->entry, s->row->name, "length: expected at most 64 tensors");
    const bolide_tensor *const *first = &f->list[f->list_count];
    for (int64_t i = 0; i < count; i++) {
        const bolide_tensor *t = tensor_of(f, s, &elements[i]);
        if (!t)
            return wrong(f, s, "a list of tensors");
        note_device(f, s->row, t->device);
        f->list[f->list_count++] = t;
    }
    store(f, s->row->offset, &first);
    store(f, s->row->offset2, &count);
    return 0;
}

/* ---- numbers, names, dtypes --------------------------------------------------------------- */

static bool number_of(const TVMFFIAny *v, double *out) {
    if (v->type_index == kTVMFFIFloat)
        *out = v->v_float64;
    else if (v->type_index == kTVMFFIInt || v->type_index == kTVMFFIBool)
        *out = (double)v->v_int64;
    else
        return false;
    return true;
}

static bool integer_of(const TVMFFIAny *v, int64_t *out) {
    *out = v->v_int64;
    return v->type_index == kTVMFFIInt || v->type_index == kTVMFFIBool;
}

static int set_f64(frame *f, const slot *s, uint32_t offset, const TVMFFIAny *v) {
    double x;
    if (!number_of(v, &x))
        return wrong(f, s, s->row->kind == BOLIDE_KIND_F64 ? "a number" : "a number or a tensor");
    store(f, offset, &x);
    return 0;
}

static int set_i64(frame *f, const slot *s, uint32_t offset, const TVMFFIAny *v) {
    int64_t x;
    if (!integer_of(v, &x))
        return wrong(f, s,
                     s->row->kind == BOLIDE_KIND_I64_OR_TENSOR ? "an integer or a tensor"
                                                               : "an integer");
    store(f, offset, &x);
    return 0;
}

static int set_tuple(frame *f, const slot *s, const TVMFFIAny *v) {
    const TVMFFIAny *elements;
    int64_t count;
    if (!elements_of(v, &elements, &count))
        return wrong(f, s, "a list of integers");
    if (f->integer_count + count > MAX_LIST)
        return raise_value(f->binding->entry, s->row->name, "length: expected at most 64 integers");
    const int64_t *first = &f->integers[f->integer_count];
    for (int64_t i = 0; i < count; i++)
        if (!integer_of(&elements[i], &f->integers[f->integer_count++]))
            return wrong(f, s, "a list of integers");
    store(f, s->row->offset, &first);
    store(f, s->row->offset2, &count);
    return 0;
}

static bool text_of(const TVMFFIAny *v, const char **text, size_t *length) {
    if (v->type_index == kTVMFFISmallStr) {
        *text = v->v_bytes;
        *length = v->small_str_len;
        return true;
    }
    if (v->type_index == kTVMFFIRawStr) {
        *text = v->v_c_str;
        *length = strlen(v->v_c_str);
        return true;
    }
    if (v->type_index != kTVMFFIStr)
        return false;
    const TVMFFIByteArray *bytes =
        (const TVMFFIByteArray *)((const char *)v->v_obj + sizeof(TVMFFIObject));
    *text = bytes->data;
    *length = bytes->size;
    return true;
}

/* A name that is none of the choices cannot be handed to the door, so it is refused here. */
static int set_enum(frame *f, const slot *s, const TVMFFIAny *v) {
    const char *text;
    size_t length;
    if (!text_of(v, &text, &length))
        return set_i64(f, s, s->row->offset, v);
    int64_t index = 0;
    for (const char *c = s->row->choices; *c; index++) {
        const size_t n = strcspn(c, " ");
        if (n == length && memcmp(c, text, n) == 0) {
            store(f, s->row->offset, &index);
            return 0;
        }
        c += n + (c[n] == ' ');
    }
    char message[256];
    snprintf(message, sizeof message, "value: expected one of %s; got %.*s", s->row->choices,
             (int)(length < 64 ? length : 64), text);
    return raise_value(f->binding->entry, s->row->name, message);
}

/* A dtype of the framework, a name, or a bit of the library's. */
static int set_dtype(frame *f, const slot *s, const TVMFFIAny *v) {
    const char *text;
    size_t length;
    int64_t bit = 0;
    if (v->type_index == kTVMFFIDataType) {
        const bolide_dtype dtype = {v->v_dtype.code, v->v_dtype.bits, v->v_dtype.lanes};
        bit = bolide_dtype_bit(dtype);
    } else if (text_of(v, &text, &length)) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)(length < 31 ? length : 31), text);
        bit = bolide_dtype_parse(name);
    } else if (!integer_of(v, &bit)) {
        return wrong(f, s, "a dtype");
    }
    if (!bit)
        return raise_value(f->binding->entry, s->row->name,
                           "dtype: expected one that the library has; got another");
    store(f, s->row->offset, &bit);
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------- */

static bool address_of(const TVMFFIAny *v, void **out) {
    *out = v->type_index == kTVMFFIInt ? (void *)(uintptr_t)v->v_int64 : v->v_ptr;
    return v->type_index == kTVMFFIInt || v->type_index == kTVMFFIOpaquePtr;
}

/* A tensor of bytes serves as scratch; an address is of a workspace with all its parts. */
static int set_workspace(frame *f, const slot *s, const TVMFFIAny *v) {
    void *address;
    if (!address_of(v, &address)) {
        const bolide_tensor *t = tensor_of(f, s, v);
        if (!t || f->binding->scratch_offset < 0)
            return wrong(f, s, "an address");
        int64_t bytes = (t->dtype.bits * t->dtype.lanes + 7) / 8;
        for (int32_t i = 0; i < t->ndim; i++)
            bytes *= t->shape[i];
        f->scratch.device = bytes ? (char *)t->data + t->byte_offset : NULL;
        f->scratch.device_bytes = bytes;
        return 0;
    }
    f->workspace_given = true;
    const placed_workspace *placed = address;
    store(f, s->row->offset, &address);
    f->device = placed->device;
    f->device_fixed = true;
    return 0;
}

static int set_memory(frame *f, const slot *s, const TVMFFIAny *v) {
    void *address;
    if (!address_of(v, &address))
        return wrong(f, s, "an address");
    store(f, s->row->offset, &address);
    return 0;
}

static int set_stream(frame *f, const slot *s, const TVMFFIAny *v) {
    void *stream;
    if (v->type_index == kTVMFFINone)
        return 0;
    if (!address_of(v, &stream))
        return wrong(f, s, "the address of a stream");
    f->stream = stream;
    f->stream_known = true;
    return 0;
}

static bool is_tensor(const TVMFFIAny *v) {
    return v->type_index == kTVMFFITensor || v->type_index == kTVMFFIDLTensorPtr ||
           v->type_index == kTVMFFIBytes || v->type_index == kTVMFFIByteArrayPtr;
}

int set_slot(frame *f, const slot *s, const TVMFFIAny *v) {
    if (!s->row)
        return s->unread ? 0 : set_stream(f, s, v);
    if (s->half)
        return set_halves(f, s, v);
    if (v->type_index == kTVMFFINone && s->row->kind != BOLIDE_KIND_OUT)
        return 0;
    switch (s->row->kind) {
    case BOLIDE_KIND_IN:
    case BOLIDE_KIND_OUT:
    case BOLIDE_KIND_INOUT:
        return set_tensor(f, s, v);
    case BOLIDE_KIND_F64:
        return set_f64(f, s, s->row->offset, v);
    case BOLIDE_KIND_I64:
    case BOLIDE_KIND_BOOL:
        return set_i64(f, s, s->row->offset, v);
    case BOLIDE_KIND_ENUM:
        return set_enum(f, s, v);
    case BOLIDE_KIND_DTYPE:
        return set_dtype(f, s, v);
    case BOLIDE_KIND_F64_OR_TENSOR:
        return is_tensor(v) ? set_tensor(f, s, v) : set_f64(f, s, s->row->offset2, v);
    case BOLIDE_KIND_I64_OR_TENSOR:
        return is_tensor(v) ? set_tensor(f, s, v) : set_i64(f, s, s->row->offset2, v);
    case BOLIDE_KIND_TENSOR_LIST:
        return set_tensor_list(f, s, v);
    case BOLIDE_KIND_INT_TUPLE:
        return set_tuple(f, s, v);
    case BOLIDE_KIND_WORKSPACE:
        return set_workspace(f, s, v);
    default:
        return set_memory(f, s, v);
    }
}
