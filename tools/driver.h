// SPDX-License-Identifier: Apache-2.0
//
// The driver turns a problem into a call and judges it; tests, `bolide check` and `bolide bench`
// are thin users of it. A realised problem (driver_case) holds the args of the run, and of the
// plan if there is one, with a tensor for each tensor row, all in guarded host memory and, for a
// CUDA context, mirrored on the device.
//
// Keys of a problem, beside those that the operator's reference adds (ref_op.keys):
//
//     n=7                  a dimension name of the rows
//     eps=1e-5 causal=1    a number, bool (0 1), enum (by name), dtype (by name) or tuple (3:5:7)
//     input=f16            the dtype of a tensor; passes it if it is optional
//     lse=given lse=none   passes or omits an optional tensor
//     out=input            the memory of another tensor, in place
//     k_scale=tensor       a number-or-tensor as a tensor; k_scale=0.5 as a number; a property of
//                          the tensor (seed.dtype=i64) also makes it one
//     x=bf16               the dtype of the first floating input
//     seed=1               of the random values
//     input.pad=8          elements behind each row of the last dimension
//     input.offset=4       elements before the first one, as byte_offset
//     input.stride0=0      a stride in elements, 0 and below as well; stride= is that of the last
//                          dimension but one
//     input.order=0:2:1:3  order of the dimensions in memory, outermost first
//     input.shape=3:4      the shape, whatever the rows say
//     input.form=1         which of the accepted shapes of the row
//     input.dtype=f32      the dtype, beside =tensor; that of another tensor by its name
//     input.on=host        where a tensor lies that may be on the host or the device
//     input.values=inf     zero one normal uniform nan inf mix large tiny
//     xs.count=3           length of a list of tensors
//     expect=unsupported:causal  check expects this status, and this argument in the error

#ifndef BOLIDE_TOOLS_DRIVER_H
#define BOLIDE_TOOLS_DRIVER_H

#include "core/op.h"
#include "cpu/cpu.h"

#include "problem.h"
#include "ref.h"

enum { DRIVER_TENSORS = 96, DRIVER_DIMS = 64, DRIVER_ERROR = 512 };

typedef struct driver_tensor {
    const bolide_param *row;
    bolide_phase phase;
    char name[PROBLEM_NAME]; /* the row's, or "name[3]" in a list */
    int32_t list;            /* index in its list; -1 outside lists */
    int present;
    int on_host;   /* stays in host memory with a CUDA context */
    int32_t alias; /* the tensor whose memory it shares; -1: its own */
    int64_t dtype;
    int32_t ndim;
    int64_t shape[REF_RANK], strides[REF_RANK];
    int64_t elems; /* logical */
    /* Where a key gives another shape: the elements that whoever fills the tensor counts on, and
     * the shape, if the key's has a rank that the row does not have. */
    int64_t room;
    int32_t own_rank; /* 0: as it is */
    int64_t own_shape[REF_RANK];
    int64_t offset; /* elements before the first, as byte_offset */
    int64_t span;   /* elements from there to the last, both included */

    unsigned char *host;   /* guarded buffer, see buffer.h; NULL for an alias */
    unsigned char *before; /* its bytes as they were before the call */
    int64_t bytes;         /* between the guards */
    uint64_t device;       /* address of the mirror's data; 0: none */
    bolide_tensor view;    /* what the args point to */

    int edited; /* .fill has the values in hand */
    ref_tensor in, want, got;
} driver_tensor;

typedef struct driver_args {
    const bolide__entry *entry; /* NULL: the operator has no such phase */
    unsigned char *bytes;
    const bolide_tensor **list; /* what a list row points to */
} driver_args;

typedef struct driver_dim {
    char name[32];
    int64_t value;
} driver_dim;

/* A realised problem. */
typedef struct ref_call {
    const bolide_op *op;
    const ref_op *ref; /* NULL: none */
    problem p;         /* as given, before defaults */
    problem keys;      /* with defaults */
    uint64_t seed;
    driver_args args[2]; /* by bolide_phase */
    int32_t tensor_count;
    driver_tensor tensor[DRIVER_TENSORS];
    int32_t dim_count;
    driver_dim dim[DRIVER_DIMS];
    int64_t tuple[8][16];
    int32_t tuple_count;
    int filling;               /* the reference's fill is running */
    bolide_device_type device; /* where the calls run */
    int dry;                   /* nobody reads floats: they are left as they are */
    void *state;
    char error[DRIVER_ERROR];
} driver_case;

/* Bytes of all tensors that a case may take; 0: three quarters of the machine's memory. */
extern int64_t driver_memory_limit;

/* Realises a problem in host memory; NULL with a sentence in error (DRIVER_ERROR bytes). */
driver_case *driver_case_make(const problem *p, uint64_t seed, char *error);
/* The same without values in floating-point tensors, for calls that launch nothing. */
driver_case *driver_case_make_dry(const problem *p, char *error);
void driver_case_free(driver_case *c);
/* The tensor of that name of a phase, or the index of it; NULL, -1 if there is none or absent. */
driver_tensor *driver_tensor_of(const driver_case *c, bolide_phase phase, const char *name);

typedef struct driver_options {
    bolide_device_type device;
    const char *isa; /* NULL: what is in force */
    int captured;    /* CUDA: also run from a captured and replayed graph */
    uint64_t seed;   /* used where the problem has no seed= */
} driver_options;

typedef enum driver_verdict { DRIVER_PASS, DRIVER_FAIL, DRIVER_SKIP } driver_verdict;

typedef struct driver_report {
    driver_verdict verdict;
    char text[DRIVER_ERROR];    /* why it failed or was skipped */
    char problem[PROBLEM_TEXT]; /* with its seed: `bolide check` repeats it */
    double worst;               /* largest error in units of the tolerance */
    int64_t compared;           /* elements */
} driver_report;

/* Realises, plans, runs twice and compares. */
void driver_check(const problem *p, const driver_options *options, driver_report *report);
/* The same with a context at hand. */
void driver_check_on(const bolide_context *ctx, const problem *p, const driver_options *options,
                     driver_report *report);

/* Makes the calls of a problem on dry CUDA contexts (bolide__cuda_context_dry). DRIVER_SKIP with
 * the reason if every one refuses them. */
void driver_note(bolide_context *const *contexts, int count, const problem *p,
                 driver_report *report);

/* Counts calls of malloc and its relatives; NULL where nothing counts (test binaries set it). */
extern int64_t (*driver_allocations)(void);

#endif
