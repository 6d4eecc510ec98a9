// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: bytes are the arguments of any operator, on the CPU: tensors of any dtype, rank,
// shape and stride, numbers of any value, sizes and tags now and then broken. The answer must be a
// status, with a message where it is an error. The size query and the shapes of outputs are asked
// for all operators. The call itself is made for those without integer inputs, since the values of
// such tensors are the caller's promise and nobody could keep it here. Tensors' memory is exactly
// as large as their strides reach, so that the address sanitizer sees a step outside.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/op.h"

enum { TENSORS = 64, RANK = 6, ARGS_BYTES = 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes of the input, then zeros. */
typedef struct source {
    const uint8_t *data;
    size_t size;
} source;

static uint8_t take(source *s) {
    if (s->size == 0)
        return 0;
    s->size--;
    return *s->data++;
}

static uint64_t take_word(source *s) {
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word = word << 8 | take(s);
    return word;
}

typedef struct fuzz_tensor {
    bolide_tensor view;
    int64_t shape[RANK], strides[RANK];
    void *memory;
} fuzz_tensor;

typedef struct fuzz_call {
    fuzz_tensor tensor[TENSORS];
    const bolide_tensor *list[4];
    int32_t count;
    _Alignas(16) unsigned char args[ARGS_BYTES];
    _Alignas(16) unsigned char memory[4096]; /* of plan and workspace */
    bolide_workspace workspace;
} fuzz_call;

static int64_t dimension(source *s) {
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64, -1, 128};
    return sizes[take(s) % 16];
}

/* Shape and strides; a large tensor would only cost time. */
static void make_shape(fuzz_tensor *t, source *s, int contiguous) {
    int64_t dense = 1;
    if (contiguous)
        t->view.strides = take(s) % 2 ? NULL : t->view.strides;
    for (int i = t->view.ndim - 1; i >= 0; i--) {
        t->shape[i] = dimension(s);
        if (dense * t->shape[i] > 1 << 16)
            t->shape[i] = 1;
        t->strides[i] = contiguous ? dense : dimension(s);
        dense *= t->shape[i] > 0 ? t->shape[i] : 1;
    }
}

/* A tensor that row could mean, or nearly. NULL: none. */
static const bolide_tensor *make_tensor(fuzz_call *c, source *s, const bolide_param *row) {
    const uint8_t form = take(s);
    if (form % 8 == 7 || c->count == TENSORS)
        return NULL;
    fuzz_tensor *t = &c->tensor[c->count++];
    /* Mostly a dtype of the row; without one of its own, of the first tensor. */
    int64_t bit = (int64_t)1 << take(s) % 17;
    for (int i = 0; i < 17 && row->dtypes && form & 16 && !(bit & row->dtypes); i++)
        bit = bit == BOLIDE_I64 ? 1 : bit << 1;
    t->view = (bolide_tensor){.device = {.type = form & 32 ? BOLIDE_CPU : take(s) % 16 + 1},
                              .ndim = take(s) % (RANK + 1),
                              .dtype = row->like && form & 16 ? c->tensor[0].view.dtype
                                                              : bolide_dtype_of(bit),
                              .shape = t->shape,
                              .strides = t->strides,
                              .byte_offset = form & 128 ? take(s) : 0};
    make_shape(t, s, form & 8);
    int64_t low = 0, high = 0, empty = 0;
    for (int i = 0; i < t->view.ndim; i++) {
        const int64_t reach = (t->shape[i] - 1) * t->strides[i];
        *(reach < 0 ? &low : &high) += reach;
        empty |= t->shape[i] <= 0;
    }
    const int64_t elems = empty ? 0 : high - low + 1;
    const int64_t element = (t->view.dtype.bits + 7) / 8;
    if (form == 255)
        return &t->view;
    t->memory = calloc((size_t)(elems * element) + t->view.byte_offset + 1, 1);
    t->view.data = (char *)t->memory - (empty ? 0 : low * element);
    return &t->view;
}

static void put(fuzz_call *c, uint32_t offset, const void *value) {
    memcpy(c->args + offset, value, 8);
}

static int64_t make_integer(source *s, const bolide_param *row) {
    const uint8_t form = take(s);
    if (form < 128)
        return row->i64;
    return form < 240 ? dimension(s) : (int64_t)take_word(s);
}

static double make_number(source *s, const bolide_param *row) {
    static const double special[] = {0, 1, -1, 0.5, 1e-6, 1e30, (double)INFINITY, (double)NAN};
    const uint8_t form = take(s);
    return form < 128 ? row->f64 : special[form % 8];
}

static void make_field(fuzz_call *c, source *s, const bolide_param *row) {
    const void *pointer = NULL;
    int64_t integer = take(s) % 4;
    double number;
    switch (row->kind) {
    case BOLIDE_KIND_IN:
    case BOLIDE_KIND_OUT:
    case BOLIDE_KIND_INOUT:
        pointer = make_tensor(c, s, row);
        put(c, row->offset, &pointer);
        break;
    case BOLIDE_KIND_F64_OR_TENSOR:
        pointer = take(s) % 2 ? make_tensor(c, s, row) : NULL;
        put(c, row->offset, &pointer);
        number = pointer && take(s) % 4 ? (double)NAN : make_number(s, row);
        put(c, row->offset2, &number);
        break;
    case BOLIDE_KIND_I64_OR_TENSOR:
        pointer = take(s) % 2 ? make_tensor(c, s, row) : NULL;
        put(c, row->offset, &pointer);
        integer = pointer && take(s) % 4 ? BOLIDE_NO_INT : make_integer(s, row);
        put(c, row->offset2, &integer);
        break;
    case BOLIDE_KIND_TENSOR_LIST:
        for (int64_t i = 0; i < integer; i++)
            c->list[i] = make_tensor(c, s, row);
        pointer = c->list;
        put(c, row->offset, &pointer);
        put(c, row->offset2, &integer);
        break;
    case BOLIDE_KIND_INT_TUPLE:
        pointer = c->memory;
        put(c, row->offset, &pointer);
        put(c, row->offset2, &integer);
        break;
    case BOLIDE_KIND_F64:
        number = make_number(s, row);
        put(c, row->offset, &number);
        break;
    case BOLIDE_KIND_WORKSPACE:
    case BOLIDE_KIND_PLAN:
        pointer = row->kind == BOLIDE_KIND_PLAN ? (const void *)c->memory : &c->workspace;
        pointer = integer ? pointer : NULL;
        put(c, row->offset, &pointer);
        break;
    case BOLIDE_KIND_VARIANT:
    case BOLIDE_KIND_COMM:
        break;
    default:
        integer = make_integer(s, row);
        put(c, row->offset, &integer);
    }
}

/* 1 if the values of an input could be a promise that the fuzzer breaks. */
static int reads_integers(const bolide_op *op, bolide_phase phase) {
    const int64_t integers = BOLIDE_U8 | BOLIDE_I8 | BOLIDE_U16 | BOLIDE_I16 | BOLIDE_U32 |
                             BOLIDE_I32 | BOLIDE_U64 | BOLIDE_I64;
    for (int64_t i = 0; bolide_op_param(op, phase, i); i++) {
        const bolide_param *row = bolide_op_param(op, phase, i);
        if (row->kind != BOLIDE_KIND_OUT && row->dtypes & integers)
            return 1;
    }
    return 0;
}

static void expect_message(bolide_status status) {
    if (status != BOLIDE_OK && !bolide_last_error()->message[0])
        abort();
}

static void use(fuzz_call *c, const bolide_op *op, bolide_phase phase) {
    bolide_sizes sizes;
    expect_message(bolide_op_workspace(op, NULL, c->args, &sizes));
    for (int64_t i = 0; bolide_op_param(op, phase, i); i++) {
        int32_t ndim = 0;
        int64_t shape[8], dtype = 0;
        const bolide_kind kind = bolide_op_param(op, phase, i)->kind;
        if (kind == BOLIDE_KIND_OUT || kind == BOLIDE_KIND_INOUT)
            expect_message(bolide_op_output(op, phase, i, c->args, &ndim, shape, &dtype));
        if (ndim < 0 || ndim > 8)
            abort();
    }
    if (!bolide_op_planned(op) && !reads_integers(op, phase))
        expect_message(bolide_op_call(op, phase, NULL, c->args, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    source s = {data, size};
    static fuzz_call c;
    memset(&c, 0, sizeof c);
    const bolide_op *op = bolide_op_at(take(&s) % bolide_op_count());
    const bolide_phase phase = bolide_op_planned(op) && take(&s) % 2 ? BOLIDE_PLAN : BOLIDE_RUN;
    const char *suffix = !bolide_op_planned(op) ? "" : phase == BOLIDE_PLAN ? "_plan" : "_run";
    char entry[128] = "";
    strncat(entry, bolide_op_name(op), sizeof entry - 8);
    strcat(entry, suffix);
    const size_t bytes = bolide_op_args_size(op, phase);
    if (bytes > sizeof c.args || bolide_args_init(entry, c.args, bytes) != BOLIDE_OK)
        abort();
    c.workspace = (bolide_workspace){c.memory, 1024, c.memory + 1024, 1024, c.memory + 2048, 1024};
    for (int64_t i = 0; bolide_op_param(op, phase, i); i++)
        make_field(&c, &s, bolide_op_param(op, phase, i));
    if (take(&s) == 255) {
        bolide_args_head head = {(uint32_t)take_word(&s), (uint32_t)take_word(&s)};
        memcpy(c.args, &head, sizeof head);
    }
    use(&c, op, phase);
    for (int32_t i = 0; i < c.count; i++)
        free(c.tensor[i].memory);
    return 0;
}
