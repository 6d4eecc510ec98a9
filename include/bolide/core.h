// SPDX-License-Identifier: Apache-2.0
//
// The frame of the public ABI: status, tensor view, context, stream, workspace and plan memory,
// reflection. The operators are declared in one header a family; <bolide/bolide.h> includes all.
//
// Using an operator takes three steps:
//
//     bolide_rmsnorm_args a;
//     bolide_args_init("rmsnorm", &a, sizeof a);       // size, ABI tag, every default
//     a.input = &x; a.weight = &w; a.out = &y;
//     bolide_status s = bolide_rmsnorm(ctx, &a, stream);
//     if (s != BOLIDE_OK) puts(bolide_last_error()->message);
//
// Nothing here allocates behind the caller's back except bolide_context_create.

#ifndef BOLIDE_CORE_H
#define BOLIDE_CORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BOLIDE_API __attribute__((visibility("default")))
#define BOLIDE_MUST_USE __attribute__((warn_unused_result))
#else
#define BOLIDE_API
#define BOLIDE_MUST_USE
#endif

#define BOLIDE_VERSION_MAJOR 0
#define BOLIDE_VERSION_MINOR 1
#define BOLIDE_VERSION_PATCH 0

/* "0.1.0" */
BOLIDE_API const char *bolide_version(void);

/* ---- status ------------------------------------------------------------------------------- */

/* Every status and its text, one list. */
#define BOLIDE_STATUS_LIST(X)                                                                      \
    X(OK, "success")                                                                               \
    X(INVALID_ARGUMENT, "an argument is wrong")                                                    \
    X(UNSUPPORTED, "the combination is valid but not supported")                                   \
    X(WORKSPACE_TOO_SMALL, "the workspace or plan memory is too small")                            \
    X(NOT_PLANNED, "the plan memory holds no plan of this operator")                               \
    X(BUSY, "every staging slot is still in use; wait for the stream and plan again")              \
    X(NOT_WARM, "a kernel was first met during stream capture")                                    \
    X(NO_DEVICE, "the device, its driver or its compiler is missing")                              \
    X(COMPILE_FAILED, "a kernel did not compile")                                                  \
    X(DEVICE_FAULT, "the device reported a fault")                                                 \
    X(OUT_OF_MEMORY, "memory could not be allocated")                                              \
    X(NOT_FOUND, "no operator or parameter of that name")                                          \
    X(INTERNAL, "a broken invariant of the library")

typedef enum bolide_status {
#define BOLIDE_STATUS_ENUM(name, text) BOLIDE_##name,
    BOLIDE_STATUS_LIST(BOLIDE_STATUS_ENUM)
#undef BOLIDE_STATUS_ENUM
} bolide_status;

/* "INVALID_ARGUMENT"; "?" for a number that is no status. */
BOLIDE_API const char *bolide_status_name(bolide_status status);
/* The sentence beside the name in the list above. */
BOLIDE_API const char *bolide_status_text(bolide_status status);

/* What the last failed call on this thread said. The strings live until the next failed call on
 * the same thread; they are empty, never NULL, where they do not apply. */
typedef struct bolide_error {
    bolide_status status;
    const char *op;       /* "batch_decode_run" */
    const char *arg;      /* "k_cache" */
    const char *what;     /* "dtype" */
    const char *expected; /* "f16, bf16 or f8_e4m3fn" */
    const char *actual;   /* "f32" */
    const char *message;  /* "batch_decode_run: k_cache: dtype: expected …; got f32" */
} bolide_error;

BOLIDE_API const bolide_error *bolide_last_error(void);

/* ---- tensors ------------------------------------------------------------------------------ */

/* Memory layout, device codes and type codes are DLPack's (DLTensor, DLDevice, DLDataType), so a
 * framework's tensor is passed without a copy. */
typedef struct bolide_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} bolide_dtype;

typedef struct bolide_device {
    int32_t type; /* bolide_device_type */
    int32_t index;
} bolide_device;

typedef enum bolide_device_type {
    BOLIDE_CPU = 1,
    BOLIDE_CUDA = 2,
    BOLIDE_CUDA_HOST = 3,    /* pinned host memory */
    BOLIDE_CUDA_MANAGED = 13 /* managed memory, reachable from both sides */
} bolide_device_type;

typedef struct bolide_tensor {
    void *data;
    bolide_device device;
    int32_t ndim;
    bolide_dtype dtype;
    int64_t *shape;   /* ndim elements */
    int64_t *strides; /* ndim elements, in elements; NULL means contiguous */
    uint64_t byte_offset;
} bolide_tensor;

/* One bit a dtype: rows take a set of them, a dtype argument exactly one. */
#define BOLIDE_F64 ((int64_t)1 << 0)
#define BOLIDE_F32 ((int64_t)1 << 1)
#define BOLIDE_F16 ((int64_t)1 << 2)
#define BOLIDE_BF16 ((int64_t)1 << 3)
#define BOLIDE_F8_E4M3FN ((int64_t)1 << 4)
#define BOLIDE_F8_E5M2 ((int64_t)1 << 5)
#define BOLIDE_F8_E8M0 ((int64_t)1 << 6)
#define BOLIDE_F4_E2M1 ((int64_t)1 << 7) /* two a byte, the even column in the low nibble */
#define BOLIDE_BOOL ((int64_t)1 << 8)
#define BOLIDE_U8 ((int64_t)1 << 9)
#define BOLIDE_I8 ((int64_t)1 << 10)
#define BOLIDE_U16 ((int64_t)1 << 11)
#define BOLIDE_I16 ((int64_t)1 << 12)
#define BOLIDE_U32 ((int64_t)1 << 13)
#define BOLIDE_I32 ((int64_t)1 << 14)
#define BOLIDE_U64 ((int64_t)1 << 15)
#define BOLIDE_I64 ((int64_t)1 << 16)

/* DLPack's triple of one of the bits above, and back; 0 for a triple that has no bit. */
BOLIDE_API bolide_dtype bolide_dtype_of(int64_t bit);
BOLIDE_API int64_t bolide_dtype_bit(bolide_dtype dtype);
/* "bf16" and back (0 if unknown). Names: f64 f32 f16 bf16 f8_e4m3fn f8_e5m2 f8_e8m0 f4_e2m1 bool
 * u8 i8 u16 i16 u32 i32 u64 i64; parsing also takes e4m3, e5m2, fp16, fp32 and torch's names. */
BOLIDE_API const char *bolide_dtype_name(int64_t bit);
BOLIDE_API int64_t bolide_dtype_parse(const char *name);

/* ---- context and stream ------------------------------------------------------------------- */

/* A CUstream for a CUDA context (NULL is the legacy default stream); ignored on the CPU. */
typedef void *bolide_stream;

/* Settings of one device. Safe to use from many threads; settings are changed while no call on
 * the context runs. NULL stands for a CPU context with every setting at its default. */
typedef struct bolide_context bolide_context;

typedef enum bolide_setting {
    BOLIDE_BATCH_INVARIANT, /* 0|1: a request gives the same bits alone and in any batch */
    BOLIDE_THREADS          /* CPU threads of a call; 0: affinity, cgroup quota, OMP_NUM_THREADS */
} bolide_setting;

/* type: BOLIDE_CPU or BOLIDE_CUDA. A CUDA context opens the driver; if it or the device is
 * missing the status is BOLIDE_NO_DEVICE and the error names what was looked for. */
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_context_create(bolide_device_type type,
                                                               int32_t index, bolide_context **out);
/* Waits for nothing; work in flight must have ended. NULL is allowed. */
BOLIDE_API void bolide_context_destroy(bolide_context *ctx);
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_context_set(bolide_context *ctx,
                                                            bolide_setting setting, int64_t value);
BOLIDE_API int64_t bolide_context_get(const bolide_context *ctx, bolide_setting setting);

/* ---- arguments, workspace, plan ----------------------------------------------------------- */

/* Every args struct opens with this head; bolide_args_init writes it. Every other field has eight
 * bytes: a pointer, an int64_t (also for bool, enum and dtype) or a double. An absent tensor is
 * NULL, an absent optional double NaN, an absent optional integer INT64_MIN. */
typedef struct bolide_args_head {
    uint32_t size; /* sizeof the struct that the caller was compiled with */
    uint32_t tag;  /* names the struct and the ABI */
} bolide_args_head;

#define BOLIDE_NO_INT INT64_MIN

/* Writes head and defaults. entry is the operator's name, with _plan or _run behind it for a
 * planned operator: "rmsnorm", "batch_decode_plan". */
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_args_init(const char *entry, void *args,
                                                          size_t size);

/* What an operator needs for the arguments at hand; each field may be 0. */
typedef struct bolide_sizes {
    int64_t device_bytes;     /* scratch on the device */
    int64_t device_int_bytes; /* the plan's live part, on the device */
    int64_t pinned_bytes;     /* staging in pinned host memory; plain memory for a CPU context */
    int64_t plan_bytes;       /* memory of the plan itself, on the host */
} bolide_sizes;

/* The caller's memory, each part at least as large as bolide_sizes says and aligned to 16 bytes.
 * Contents need no initialisation. A workspace serves one stream at a time; between plan and run
 * device_int must stay as it is. On the CPU all parts are host memory. */
typedef struct bolide_workspace {
    void *device;
    int64_t device_bytes;
    void *device_int;
    int64_t device_int_bytes;
    void *pinned;
    int64_t pinned_bytes;
} bolide_workspace;

/* A plan lies in caller's memory of sizes.plan_bytes, movable by memcpy. The caller sets size to
 * the bytes at hand before the plan call; the rest is the library's. */
typedef struct bolide_plan {
    int64_t size;
    int64_t magic;
} bolide_plan;

/* ---- reflection --------------------------------------------------------------------------- */

typedef struct bolide_op bolide_op;

typedef enum bolide_phase { BOLIDE_RUN, BOLIDE_PLAN } bolide_phase;

typedef enum bolide_kind {
    BOLIDE_KIND_IN,            /* const bolide_tensor *, read */
    BOLIDE_KIND_OUT,           /* const bolide_tensor *, written */
    BOLIDE_KIND_INOUT,         /* const bolide_tensor *, read and written */
    BOLIDE_KIND_F64,           /* double */
    BOLIDE_KIND_I64,           /* int64_t */
    BOLIDE_KIND_BOOL,          /* int64_t, 0 or 1 */
    BOLIDE_KIND_ENUM,          /* int64_t, index into choices */
    BOLIDE_KIND_DTYPE,         /* int64_t, one dtype bit of dtypes; BOLIDE_NO_INT if optional */
    BOLIDE_KIND_F64_OR_TENSOR, /* double and const bolide_tensor *: at most one of the two */
    BOLIDE_KIND_I64_OR_TENSOR, /* int64_t and const bolide_tensor *: at most one of the two */
    BOLIDE_KIND_TENSOR_LIST,   /* const bolide_tensor *const * and an int64_t count */
    BOLIDE_KIND_INT_TUPLE,     /* const int64_t * and an int64_t count */
    BOLIDE_KIND_WORKSPACE,     /* const bolide_workspace * */
    BOLIDE_KIND_PLAN,          /* bolide_plan * */
    BOLIDE_KIND_VARIANT,       /* const bolide_variant * */
    BOLIDE_KIND_COMM           /* bolide_comm * */
} bolide_kind;

enum bolide_param_flags {
    BOLIDE_OPTIONAL = 1,    /* may be absent */
    BOLIDE_HOST = 2,        /* the tensor lies in host memory, whatever the context */
    BOLIDE_EITHER = 4,      /* host or device */
    BOLIDE_DENSE = 8,       /* no strided dimension */
    BOLIDE_STRIDED = 16,    /* the last dimension may be strided too */
    BOLIDE_ALIGN16 = 32,    /* data must be aligned to 16 bytes, not only to the element */
    BOLIDE_ZERO_STRIDE = 64 /* a stride of 0 (broadcast) is fine for an output or in-out */
};

/* One row of the operator table. dims is a list of words, one a dimension: a name (bound at first
 * sight, compared after), a number, an expression such as b+1, d/2, ceil(k/128), pad(m,4)*n, or _
 * for any; "n d | n h d" gives two accepted ranks; "kv_layout=NHD: p s h d; HND: p h s d" one
 * form for each value of an enum. Every dimension but the last may be strided unless flags say
 * otherwise. */
typedef struct bolide_param {
    const char *name;
    const char *doc;
    bolide_kind kind;
    uint32_t flags;
    uint32_t offset;     /* of the field, or of the tensor in …_OR_TENSOR */
    uint32_t offset2;    /* of the number in …_OR_TENSOR, of the count in lists and tuples */
    const char *dims;    /* tensors */
    int64_t dtypes;      /* set of accepted dtypes; 0 with like */
    const char *like;    /* dtype is that of this tensor or DTYPE row, set before it */
    const char *alias;   /* the input whose memory it may share exactly; NULL: none */
    const char *choices; /* enums: names separated by blanks */
    double f64;          /* default of F64 and F64_OR_TENSOR; NaN: absent */
    int64_t i64;         /* default of integer kinds; BOLIDE_NO_INT: absent */
} bolide_param;

BOLIDE_API int64_t bolide_op_count(void);
/* In table order; NULL outside 0 … count-1. */
BOLIDE_API const bolide_op *bolide_op_at(int64_t index);
/* By bare name ("batch_decode"); NULL if there is none. */
BOLIDE_API const bolide_op *bolide_op_find(const char *name);
BOLIDE_API const char *bolide_op_name(const bolide_op *op);
BOLIDE_API const char *bolide_op_family(const bolide_op *op);
BOLIDE_API const char *bolide_op_doc(const bolide_op *op);
/* 1 if the operator has plan and run. */
BOLIDE_API int bolide_op_planned(const bolide_op *op);
/* 1 if it has an implementation for the device type. */
BOLIDE_API int bolide_op_supports(const bolide_op *op, bolide_device_type type);
/* Bytes of the args struct of a phase; 0 if the operator does not have the phase. */
BOLIDE_API size_t bolide_op_args_size(const bolide_op *op, bolide_phase phase);
/* Rows of a phase in order; NULL behind the last. */
BOLIDE_API const bolide_param *bolide_op_param(const bolide_op *op, bolide_phase phase,
                                               int64_t index);
/* Shape and dtype that output row `index` must have for the tensors and numbers already in args;
 * outputs themselves may still be NULL. shape takes 8 elements. BOLIDE_UNSUPPORTED if the row
 * cannot be computed from the inputs. */
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_op_output(const bolide_op *op, bolide_phase phase,
                                                          int64_t index, const void *args,
                                                          int32_t *ndim, int64_t *shape,
                                                          int64_t *dtype);
/* The generic door: what every typed call is one line of. */
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_op_call(const bolide_op *op, bolide_phase phase,
                                                        const bolide_context *ctx, const void *args,
                                                        bolide_stream stream);
/* Sizes for the plan arguments of a planned operator, else for the run arguments. Pure. */
BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_op_workspace(const bolide_op *op,
                                                             const bolide_context *ctx,
                                                             const void *args, bolide_sizes *sizes);

#ifdef __cplusplus
}
#endif

#endif
