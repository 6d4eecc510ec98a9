// SPDX-License-Identifier: Apache-2.0
//
// What the module exports to tvm-ffi: `bind`, and three settings. The contexts and the scratch that
// calls share lie here. Contexts are made at first use and kept until the process ends. Scratch of
// the CPU belongs to the thread, so that two threads never share it; scratch of a GPU belongs to
// the stream, whose order protects it, and comes from Python, so that the framework's allocator
// owns it.

#include "binding.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tvm/ffi/extra/c_env_api.h>

/* tvm-ffi finds the functions of a module by symbols with this prefix. */
#define EXPORTED(name) __asm__("__tvm_ffi_" name) __attribute__((visibility("default")))
int set_batch_invariant(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result)
    EXPORTED("set_batch_invariant");
int set_grow(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result)
    EXPORTED("set_grow");
int bind_call(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) EXPORTED("bind");

enum { MAX_DEVICES = 64, MAX_STREAMS = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- contexts ----------------------------------------------------------------------------- */

static _Thread_local int batch_invariant;
static _Atomic(bolide_context *) contexts[2][2][MAX_DEVICES]; /* invariant, CUDA, index */

static int make_context(bolide_device device, _Atomic(bolide_context *) *place) {
    bolide_context *made = NULL;
    bolide_status status = BOLIDE_OK;
    pthread_mutex_lock(&lock);
    if (!atomic_load(place)) {
        status = bolide_context_create((bolide_device_type)device.type, device.index, &made);
        if (status == BOLIDE_OK && batch_invariant)
            status = bolide_context_set(made, BOLIDE_BATCH_INVARIANT, 1);
        if (status == BOLIDE_OK)
            atomic_store(place, made);
    }
    pthread_mutex_unlock(&lock);
    return status == BOLIDE_OK ? 0 : raise_status(status);
}

int context_of(bolide_device device, const bolide_context **ctx) {
    const bool cuda = device.type == BOLIDE_CUDA;
    *ctx = NULL;
    if (!cuda && device.type != BOLIDE_CPU) {
        TVMFFIErrorSetRaisedFromCStr("ValueError",
                                     "device: expected a CPU or CUDA tensor; got another device");
        return -1;
    }
    if (!cuda && !batch_invariant)
        return 0;
    if (device.index < 0 || device.index >= MAX_DEVICES) {
        TVMFFIErrorSetRaisedFromCStr("ValueError", "device: expected an index below 64");
        return -1;
    }
    _Atomic(bolide_context *) *place = &contexts[batch_invariant][cuda][cuda ? device.index : 0];
    if (!atomic_load(place) && make_context(device, place) != 0)
        return -1;
    *ctx = atomic_load(place);
    return 0;
}

/* set_batch_invariant(flag): sets it for this thread and returns what it was. */
int set_batch_invariant(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
    (void)self;
    if (count != 1)
        return raise_value("set_batch_invariant", "arguments", "expected one");
    *result = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = batch_invariant};
    batch_invariant = args[0].v_int64 != 0;
    return 0;
}

/* ---- scratch ------------------------------------------------------------------------------ */

typedef struct buffer {
    void *data;
    int64_t bytes;
} buffer;

static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void free_buffer(void *p) {
    free(((buffer *)p)->data);
    free(p);
}

static void make_key(void) {
    pthread_key_create(&own_key, free_buffer);
}

/* This thread's scratch on the CPU, grown to at least bytes. */
static void *own_scratch(int64_t bytes) {
    pthread_once(&own_once, make_key);
    buffer *b = pthread_getspecific(own_key);
    if (!b) {
        b = calloc(1, sizeof *b);
        if (!b || pthread_setspecific(own_key, b) != 0) {
            free(b);
            return NULL;
        }
    }
    if (b->bytes < bytes) {
        const size_t rounded = ((size_t)bytes * 5 / 4 + 4095) / 4096 * 4096;
        void *grown = aligned_alloc(4096, rounded);
        if (!grown)
            return NULL;
        free(b->data);
        *b = (buffer){.data = grown, .bytes = (int64_t)rounded};
    }
    return b->data;
}

static struct {
    int32_t device;
    bolide_stream stream;
    buffer buffer;
} streams[MAX_STREAMS];
static int stream_count;
static TVMFFIObjectHandle grow; /* grow(device, stream, bytes) gives an address */

/* The place of a stream, a new one if it has none yet; −1 where all are taken. */
static int place_of(int32_t device, bolide_stream stream) {
    for (int i = 0; i < stream_count; i++)
        if (streams[i].device == device && streams[i].stream == stream)
            return i;
    if (stream_count == MAX_STREAMS)
        return -1;
    streams[stream_count].device = device;
    streams[stream_count].stream = stream;
    return stream_count++;
}

static int call_grow(int32_t device, bolide_stream stream, int64_t bytes, void **data) {
    TVMFFIAny args[3] = {{.type_index = kTVMFFIInt, .v_int64 = device},
                         {.type_index = kTVMFFIInt, .v_int64 = (int64_t)(uintptr_t)stream},
                         {.type_index = kTVMFFIInt, .v_int64 = bytes}};
    TVMFFIAny address = {.type_index = kTVMFFINone};
    if (!grow) {
        TVMFFIErrorSetRaisedFromCStr("RuntimeError", "scratch: no allocator was set");
        return -1;
    }
    const int rc = TVMFFIFunctionCall(grow, args, 3, &address);
    *data = (void *)(uintptr_t)address.v_int64;
    return rc;
}

static int stream_scratch(int32_t device, bolide_stream stream, int64_t bytes, void **data) {
    pthread_mutex_lock(&lock);
    const int i = place_of(device, stream);
    const buffer found = i >= 0 ? streams[i].buffer : (buffer){0};
    pthread_mutex_unlock(&lock);
    *data = found.data;
    if (i >= 0 && found.bytes >= bytes)
        return 0;
    if (i < 0) {
        TVMFFIErrorSetRaisedFromCStr("RuntimeError",
                                     "scratch: more than 256 streams have used some");
        return -1;
    }
    if (call_grow(device, stream, bytes, data) != 0)
        return -1;
    pthread_mutex_lock(&lock);
    if (streams[i].buffer.bytes < bytes)
        streams[i].buffer = (buffer){.data = *data, .bytes = bytes};
    pthread_mutex_unlock(&lock);
    return 0;
}

static int place_scratch(frame *f, char *at, int64_t first, int64_t second, int64_t host) {
    f->scratch = (bolide_workspace){.device = at,
                                    .device_bytes = first,
                                    .device_int = at + first,
                                    .device_int_bytes = second,
                                    .pinned = at + first + second,
                                    .pinned_bytes = host};
    const bolide_workspace *w = &f->scratch;
    memcpy(f->args + f->binding->scratch_offset, &w, sizeof w);
    return 0;
}

static int raise_small(const frame *f, int64_t bytes) {
    char text[96];
    snprintf(text, sizeof text, "size: expected at least %lld bytes; got %lld", (long long)bytes,
             (long long)f->scratch.device_bytes);
    return raise_value(f->binding->entry, "workspace", text);
}

int bring_scratch(frame *f, const bolide_context *ctx) {
    bolide_sizes sizes;
    const bolide_status status = bolide_op_workspace(f->binding->op, ctx, f->args, &sizes);
    if (status != BOLIDE_OK)
        return raise_status(status);
    if (!bolide_op_supports(f->binding->op, (bolide_device_type)f->device.type)) {
        /* Without scratch the door would complain about that first. */
        TVMFFIErrorSetRaisedFromCStrParts(
            "NotImplementedError", (const char *[]){f->binding->entry, ": not on this device yet"},
            2);
        return -1;
    }
    const int64_t first = (sizes.device_bytes + 255) / 256 * 256;
    const int64_t second = (sizes.device_int_bytes + 255) / 256 * 256;
    const bool cuda = f->device.type == BOLIDE_CUDA;
    const int64_t host = cuda ? 0 : sizes.pinned_bytes;
    if (first + second + host == 0)
        return 0;
    void *data = f->scratch.device;
    if (data && f->scratch.device_bytes < first + second + host)
        return raise_small(f, first + second + host);
    if (data)
        return place_scratch(f, data, first, second, host);
    if (cuda && stream_scratch(f->device.index, f->stream, first + second, &data) != 0)
        return -1;
    if (!cuda && !(data = own_scratch(first + second + host))) {
        TVMFFIErrorSetRaisedFromCStr("RuntimeError", "scratch: memory could not be allocated");
        return -1;
    }
    return place_scratch(f, data, first, second, host);
}
/* set_grow(function): who allocates scratch on a GPU. */
int set_grow(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
    (void)self;
    (void)result;
    if (count != 1 || args[0].type_index != kTVMFFIFunction)
        return raise_value("set_grow", "arguments", "expected one function");
    TVMFFIObjectIncRef(args[0].v_obj);
    if (grow)
        TVMFFIObjectDecRef(grow);
    grow = args[0].v_obj;
    return 0;
}

/* ---- bind --------------------------------------------------------------------------------- */

static int64_t row_named(const bolide_op *op, bolide_phase phase, const char *name, size_t length) {
    const bolide_param *row;
    for (int64_t i = 0; (row = bolide_op_param(op, phase, i)); i++)
        if (strlen(row->name) == length && memcmp(row->name, name, length) == 0)
            return i;
    return -1;
}

static bool is_word(const char *text, size_t length, const char *word) {
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* One word of the names: a row, two rows, or a value that is no row. */
static int parse_name(binding *b, const char *name, size_t length) {
    const char *const bar = memchr(name, '|', length);
    const size_t first = bar ? (size_t)(bar - name) : length;
    slot s = {.index = row_named(b->op, b->phase, name, first)};
    s.row = s.index >= 0 ? bolide_op_param(b->op, b->phase, s.index) : NULL;
    s.unread = is_word(name, length, UNREAD_ARGUMENT);
    if (bar) {
        const int64_t half = row_named(b->op, b->phase, bar + 1, length - first - 1);
        s.half = half >= 0 ? bolide_op_param(b->op, b->phase, half) : NULL;
    }
    const bool two =
        s.row && s.half && s.row->kind == BOLIDE_KIND_IN && s.half->kind == BOLIDE_KIND_IN;
    if (bar ? !two : !s.row && !s.unread && !is_word(name, length, STREAM_ARGUMENT))
        return raise_value(b->entry, name, "no such argument");
    if (b->count == MAX_SLOTS)
        return raise_value(b->entry, name, "too many arguments");
    b->slots[b->count++] = s;
    return 0;
}

/* Names separated by blanks, in the order of the values. */
static int parse_names(binding *b, const char *names) {
    for (const char *c = names; *c;) {
        const size_t n = strcspn(c, " ");
        if (n > 0 && parse_name(b, c, n) != 0)
            return -1;
        c += n + (c[n] == ' ');
    }
    return 0;
}

/* An operator that is not planned gets scratch where Python does not pass a workspace, or passes a
 * tensor in its place. */
static void find_scratch(binding *b) {
    const bolide_param *row;
    b->scratch_offset = -1;
    if (bolide_op_planned(b->op) || b->purpose == QUERY)
        return;
    for (int64_t i = 0; (row = bolide_op_param(b->op, b->phase, i)); i++)
        if (row->kind == BOLIDE_KIND_WORKSPACE)
            b->scratch_offset = (int32_t)row->offset;
}

static int fill_binding(binding *b, const char *op, const char *phase, const char *names) {
    b->op = bolide_op_find(op);
    if (!b->op)
        return raise_value("bind", op, "no such operator");
    const bool planned = bolide_op_planned(b->op);
    b->purpose = strcmp(phase, "workspace") == 0 ? QUERY : CALL;
    b->phase =
        strcmp(phase, "plan") == 0 || (b->purpose == QUERY && planned) ? BOLIDE_PLAN : BOLIDE_RUN;
    b->args_size = bolide_op_args_size(b->op, b->phase);
    if (b->args_size == 0 || b->args_size > sizeof b->defaults)
        return raise_value("bind", phase, "no such phase");
    snprintf(b->entry, sizeof b->entry, "%.50s%s", op,
             !planned                  ? ""
             : b->phase == BOLIDE_PLAN ? "_plan"
                                       : "_run");
    const bolide_status status = bolide_args_init(b->entry, b->defaults, b->args_size);
    if (status != BOLIDE_OK)
        return raise_status(status);
    if (parse_names(b, names) != 0)
        return -1;
    find_scratch(b);
    return 0;
}

/* A zero-terminated copy of a string argument. */
static int copy_text(const TVMFFIAny *v, char *out, size_t size) {
    const TVMFFIByteArray *cell =
        (const TVMFFIByteArray *)((const char *)v->v_obj + sizeof(TVMFFIObject));
    const TVMFFIByteArray text =
        v->type_index == kTVMFFISmallStr ? (TVMFFIByteArray){v->v_bytes, v->small_str_len}
        : v->type_index == kTVMFFIRawStr ? (TVMFFIByteArray){v->v_c_str, strlen(v->v_c_str)}
        : v->type_index == kTVMFFIStr    ? *cell
                                         : (TVMFFIByteArray){NULL, size};
    if (text.size >= size)
        return raise_value("bind", "arguments", "expected three strings");
    memcpy(out, text.data, text.size);
    out[text.size] = '\0';
    return 0;
}

/* Values that are given with the names are of the last of them, and are the same in every call:
 * they go into the defaults. Numbers, names, dtypes and what is absent; anything else may not live
 * on. */
static int fix_values(binding *b, const TVMFFIAny *values, int32_t count) {
    frame f = {.binding = b};
    if (count > b->count)
        return raise_value("bind", b->entry, "expected no more values than names");
    memcpy(f.args, b->defaults, b->args_size);
    for (int32_t i = 0; i < count; i++) {
        const slot *s = &b->slots[b->count - count + i];
        const int32_t kind = values[i].type_index;
        if (kind == kTVMFFIDLTensorPtr || kind == kTVMFFIByteArrayPtr ||
            (kind >= kTVMFFIStaticObjectBegin && kind != kTVMFFIStr))
            return raise_value(b->entry, s->row ? s->row->name : STREAM_ARGUMENT,
                               "value: expected a number, a name or a dtype to bind");
        if (set_slot(&f, s, &values[i]) != 0)
            return -1;
    }
    if (f.output_count > 0 || f.workspace_given || f.stream_known)
        return raise_value("bind", b->entry, "expected values that are no memory");
    memcpy(b->defaults, f.args, b->args_size);
    b->count -= count;
    return 0;
}

/* bind(operator, phase, names, values...): a function of the values of those names but for the last
 * of them, whose values are given. phase is "run", "plan" or "workspace". */
int bind_call(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
    (void)self;
    char op[64], phase[16], names[2048];
    if (count < 3)
        return raise_value("bind", "arguments", "expected three strings");
    if (copy_text(&args[0], op, sizeof op) != 0 || copy_text(&args[1], phase, sizeof phase) != 0 ||
        copy_text(&args[2], names, sizeof names) != 0)
        return -1;
    binding *b = calloc(1, sizeof *b);
    if (!b)
        return raise_value("bind", op, "memory could not be allocated");
    TVMFFIObjectHandle function;
    if (fill_binding(b, op, phase, names) != 0 || fix_values(b, args + 3, count - 3) != 0 ||
        TVMFFIFunctionCreate(b, invoke, free, &function) != 0) {
        free(b);
        return -1;
    }
    *result = (TVMFFIAny){.type_index = kTVMFFIFunction, .v_obj = function};
    return 0;
}
