// SPDX-License-Identifier: Apache-2.0
//
// The Python binding: one generic entry point over the operator table. `bind` compiles an operator,
// a phase and the names of its arguments, in the order in which Python will pass them, into a
// binding; what it returns is a function of tvm-ffi that fills the operator's args struct from
// those values and makes the call. Nothing here knows any operator by name.

#ifndef BOLIDE_PYTHON_BINDING_H
#define BOLIDE_PYTHON_BINDING_H

#include <stdbool.h>

#include <bolide/core.h>
#include <tvm/ffi/c_api.h>

enum {
    MAX_SLOTS = 60,        /* arguments of one call */
    MAX_LIST = 64,         /* tensors, or integers, of one list */
    MAX_NDIM = 8,          /* dimensions of one tensor */
    MAX_ARGS_BYTES = 1024, /* of an args struct */
    MAX_OUTPUTS = 8        /* outputs that one call allocates */
};

/* Values that are no rows: the stream of a call whose tensors all lie on the host, and one that
 * nothing reads. "k_cache|v_cache" is two rows, by one tensor with both on its second axis. */
#define STREAM_ARGUMENT "stream"
#define UNREAD_ARGUMENT "-"

typedef enum purpose { CALL, QUERY } purpose;

/* One argument of a bound call. */
typedef struct slot {
    const bolide_param *row;  /* NULL: no row */
    const bolide_param *half; /* the second row of one tensor for two */
    int64_t index;            /* of the row */
    bool unread;
} slot;

typedef struct binding {
    const bolide_op *op;
    bolide_phase phase;
    purpose purpose; /* QUERY: the sizes of the workspace in place of the call */
    int32_t count;
    int32_t scratch_offset; /* of a workspace that the binding brings; −1: none */
    char entry[64];         /* "batch_decode_run", for messages */
    size_t args_size;
    slot slots[MAX_SLOTS];
    _Alignas(8) unsigned char defaults[MAX_ARGS_BYTES];
} binding;

/* A tensor of a framework without the DLPack exchange API, as Python packs it into bytes: this
 * head, then ndim sizes, then ndim strides in elements. */
typedef struct packed_tensor {
    uint64_t data;
    uint64_t stream; /* current one of the framework; 0 on the host */
    bolide_device device;
    bolide_dtype dtype;
    int32_t ndim;
} packed_tensor;

/* A workspace as Python passes it, by address: its parts, and where and when they are used. */
typedef struct placed_workspace {
    bolide_workspace workspace;
    bolide_device device;
} placed_workspace;

/* The storage of one call. */
typedef struct frame {
    const binding *binding;
    _Alignas(8) unsigned char args[MAX_ARGS_BYTES];
    bolide_workspace scratch; /* with one part: what a tensor in its place offered */
    bolide_device device;     /* of the call; type 0: none found yet */
    bool device_fixed;        /* by a device tensor or a workspace */
    bool stream_known;
    bool workspace_given; /* by its address */
    bolide_stream stream;

    int32_t tensor_count, list_count, integer_count, output_count;
    bolide_tensor tensors[MAX_SLOTS];
    int64_t dims[MAX_SLOTS][2 * MAX_NDIM]; /* of packed tensors and of outputs */
    const bolide_tensor *list[MAX_LIST];
    int64_t integers[MAX_LIST];
    const slot *wanted[MAX_OUTPUTS]; /* outputs to allocate */
    TVMFFIObjectHandle outputs[MAX_OUTPUTS];
} frame;

/* Raises what the library's last error says; always -1. */
int raise_status(bolide_status status);
/* Raises ValueError with "entry: arg: text"; always -1. */
int raise_value(const char *entry, const char *arg, const char *text);

/* Writes the value of a slot into the args struct of the frame. */
int set_slot(frame *f, const slot *s, const TVMFFIAny *value);

/* The context of a device, made at first use and kept. *ctx is NULL for the CPU as it is. */
int context_of(bolide_device device, const bolide_context **ctx);

/* Brings scratch for a call whose Python form has no workspace argument. */
int bring_scratch(frame *f, const bolide_context *ctx);

/* The functions of the module. */
int invoke(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result);

#endif
