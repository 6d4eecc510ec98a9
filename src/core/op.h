// SPDX-License-Identifier: Apache-2.0
//
// The operator table and the one door, as the operators see them. An operator is one descriptor:
// rows for its arguments, an optional check for what rows cannot say, and a function a backend.
// Everything that happens at each call (size and tag, every tensor's device, rank, shape, dtype,
// strides, alignment, aliasing, scalars, log, dispatch) happens in bolide_run, driven by the rows.

#ifndef BOLIDE_CORE_OP_H
#define BOLIDE_CORE_OP_H

#include <bolide/core.h>

#include "core/error.h"
#include "core/tensor.h"

#include "core/table.h"

/* A dimension name whose value a run takes from the plan: the offset of an int64_t in the plan's
 * memory. The name may also be that of an enum row ("kv_layout"), for layout choices. */
typedef struct bolide__plan_dim {
    const char *name;
    uint32_t offset;
} bolide__plan_dim;

typedef struct bolide__entry {
    const bolide_param *rows;
    int32_t row_count;
    uint32_t args_size;       /* 0: the operator has no such phase */
    bolide__program *program; /* the rows compiled at first use: the one mutable part */
} bolide__entry;

/* One call on its way from the door to a kernel. */
typedef struct bolide__call {
    const bolide_op *op;
    bolide_phase phase;
    const bolide_context *ctx; /* never NULL here */
    const void *args;          /* checked; of the full present size */
    bolide_stream stream;
    const char *entry_name; /* "batch_decode_run", for messages */
    const bolide__program *program;
    int64_t dims[BOLIDE__MAX_NAMES]; /* values of the bound names, see bolide__dim */
} bolide__call;

struct bolide_op {
    const char *name;
    const char *family;
    const char *doc;
    bolide__entry run;
    bolide__entry plan;

    /* What rows cannot say. NULL: nothing. Called after all rows hold. */
    bolide_status (*check)(const bolide__call *call);
    bolide_status (*check_plan)(const bolide__call *call);

    /* The run on each backend; NULL: the backend lacks the operator. */
    bolide_status (*cpu)(const bolide__call *call);
    bolide_status (*cuda)(const bolide__call *call);

    /* Planned operators: one plan function for both backends (call->ctx says which), the bytes of
     * the plan struct that opens with bolide_plan, its magic number, and the names that a run
     * takes from it (up to a NULL name). */
    bolide_status (*make_plan)(const bolide__call *call);
    int64_t plan_magic;
    int64_t plan_min_bytes;
    const bolide__plan_dim *plan_dims;

    /* Sizes from checked arguments (tensors' data pointers may be NULL). NULL: all zero. */
    bolide_status (*workspace)(const bolide__call *call, bolide_sizes *sizes);

    /* 1: nothing to do for these arguments, so no backend is called (an output without elements
     * is found by the door itself). NULL: never. */
    int (*is_empty)(const bolide__call *call);
};

/* ---- rows --------------------------------------------------------------------------------- */

#define BOLIDE__FIELD(A, f) .name = #f, .offset = offsetof(A, f)

/* dt is a set of dtypes or BOLIDE_LIKE(row). The last argument is the doc string, after which
 * more members may follow: .flags = BOLIDE_OPTIONAL, .alias = "input". */
#define BOLIDE_LIKE(row) 0, .like = #row

#define BOLIDE_IN(A, f, dm, dt, ...)                                                               \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_IN, .dims = dm, .dtypes = dt, .doc = __VA_ARGS__ }
#define BOLIDE_OUT(A, f, dm, dt, ...)                                                              \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_OUT, .dims = dm, .dtypes = dt, .doc = __VA_ARGS__ }
#define BOLIDE_INOUT(A, f, dm, dt, ...)                                                            \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_INOUT, .dims = dm, .dtypes = dt, .doc = __VA_ARGS__ }
#define BOLIDE_F64_ROW(A, f, def, ...)                                                             \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_F64, .f64 = def, .doc = __VA_ARGS__ }
#define BOLIDE_I64_ROW(A, f, def, ...)                                                             \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_I64, .i64 = def, .doc = __VA_ARGS__ }
#define BOLIDE_BOOL_ROW(A, f, def, ...)                                                            \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_BOOL, .i64 = def, .doc = __VA_ARGS__ }
#define BOLIDE_ENUM_ROW(A, f, names, def, ...)                                                     \
    {                                                                                              \
        BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_ENUM, .choices = names, .i64 = def,               \
                             .doc = __VA_ARGS__                                                    \
    }
#define BOLIDE_DTYPE_ROW(A, f, set, def, ...)                                                      \
    {                                                                                              \
        BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_DTYPE, .dtypes = set, .i64 = def,                 \
                             .doc = __VA_ARGS__                                                    \
    }
/* A number in the field f or a device tensor in f_tensor. */
#define BOLIDE_F64_OR(A, f, dm, dt, def, ...)                                                      \
    {                                                                                              \
        .name = #f, .kind = BOLIDE_KIND_F64_OR_TENSOR, .offset = offsetof(A, f##_tensor),          \
        .offset2 = offsetof(A, f), .dims = dm, .dtypes = dt, .f64 = def, .doc = __VA_ARGS__        \
    }
#define BOLIDE_I64_OR(A, f, dm, dt, def, ...)                                                      \
    {                                                                                              \
        .name = #f, .kind = BOLIDE_KIND_I64_OR_TENSOR, .offset = offsetof(A, f##_tensor),          \
        .offset2 = offsetof(A, f), .dims = dm, .dtypes = dt, .i64 = def, .doc = __VA_ARGS__        \
    }
/* A pointer in f and its length in f_count. */
#define BOLIDE_TENSOR_LIST_ROW(A, f, dm, dt, ...)                                                  \
    {                                                                                              \
        BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_TENSOR_LIST, .offset2 = offsetof(A, f##_count),   \
                             .dims = dm, .dtypes = dt, .doc = __VA_ARGS__                          \
    }
#define BOLIDE_INT_TUPLE_ROW(A, f, ...)                                                            \
    {                                                                                              \
        BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_INT_TUPLE, .offset2 = offsetof(A, f##_count),     \
                             .doc = __VA_ARGS__                                                    \
    }
#define BOLIDE_WORKSPACE_ROW(A, f, ...)                                                            \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_WORKSPACE, .doc = __VA_ARGS__ }
#define BOLIDE_PLAN_ROW(A, f, ...)                                                                 \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_PLAN, .doc = __VA_ARGS__ }
#define BOLIDE_VARIANT_ROW(A, f, ...)                                                              \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_VARIANT, .doc = __VA_ARGS__ }
#define BOLIDE_COMM_ROW(A, f, ...)                                                                 \
    { BOLIDE__FIELD(A, f), .kind = BOLIDE_KIND_COMM, .doc = __VA_ARGS__ }

/* The entry of a phase: .run = BOLIDE_ENTRY(bolide_rmsnorm_args, rmsnorm_rows). The compound
 * literal has static storage at file scope. */
#define BOLIDE_ENTRY(A, r)                                                                         \
    {                                                                                              \
        .rows = r, .row_count = (int32_t)(sizeof(r) / sizeof((r)[0])), .args_size = sizeof(A),     \
        .program = &(bolide__program) {                                                            \
            0                                                                                      \
        }                                                                                          \
    }

/* ---- the door ----------------------------------------------------------------------------- */

/* Checks, logs, dispatches. ctx NULL: the CPU with default settings. */
bolide_status bolide_run(const bolide_op *op, bolide_phase phase, const bolide_context *ctx,
                         const void *args, bolide_stream stream);

/* Value of a bound dimension name; the name must occur in the rows (an invariant of ours). It
 * searches by text, so kernels that are called often read shapes from the tensors instead. */
int64_t bolide__dim(const bolide__call *call, const char *name);

/* Table order: src/ops/op_table.c. */
extern const bolide_op *const bolide__ops[];
extern const int64_t bolide__op_count;

#endif
