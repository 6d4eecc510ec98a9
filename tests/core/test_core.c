// SPDX-License-Identifier: Apache-2.0
//
// The frame without any real operator: a toy operator with every row kind goes through the door,
// and each refusal must name the operator, the argument and both values.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/op.h"
#include "core/problem_log.h"
#include "core/workspace.h"

static int passed, failed;

static void check(int ok, const char *what) {
    if (ok) {
        passed++;
        return;
    }
    failed++;
    printf("FAILED: %s (last error: %s)\n", what, bolide_last_error()->message);
}

/* ---- a toy operator ----------------------------------------------------------------------- */

typedef struct toy_plan_args {
    bolide_args_head head;
    const bolide_tensor *indptr;
    int64_t page_size;
    int64_t kv_layout;
    int64_t q_data_type;
    const bolide_workspace *workspace;
    bolide_plan *plan;
} toy_plan_args;

typedef struct toy_plan {
    bolide_plan head;
    int64_t page_size, kv_layout, b, q_data_type;
} toy_plan;

typedef struct toy_args {
    bolide_args_head head;
    const bolide_tensor *q;
    const bolide_tensor *cache;
    const bolide_tensor *mask;
    double scale;
    const bolide_tensor *scale_tensor;
    int64_t seed;
    const bolide_tensor *seed_tensor;
    const bolide_tensor *const *parts;
    int64_t parts_count;
    const int64_t *tuple;
    int64_t tuple_count;
    int64_t flag;
    double extra;
    const bolide_tensor *out;
    bolide_plan *plan;
    const bolide_tensor *residual;
    const bolide_tensor *sum;
} toy_args;

#define A toy_plan_args
static const bolide_param toy_plan_rows[] = {
    BOLIDE_IN(A, indptr, "b+1", BOLIDE_I32, "page ranges", .flags = BOLIDE_HOST),
    BOLIDE_I64_ROW(A, page_size, BOLIDE_NO_INT, "tokens of a page"),
    BOLIDE_ENUM_ROW(A, kv_layout, "NHD HND", 0, "layout"),
    BOLIDE_DTYPE_ROW(A, q_data_type, BOLIDE_F32 | BOLIDE_F16, BOLIDE_F32, "dtype of q"),
    BOLIDE_WORKSPACE_ROW(A, workspace, "scratch"),
    BOLIDE_PLAN_ROW(A, plan, "the plan"),
};
#undef A

#define A toy_args
static const bolide_param toy_rows[] = {
    BOLIDE_IN(A, q, "b d | b h d", BOLIDE_LIKE(q_data_type), "queries"),
    BOLIDE_IN(A, cache, "kv_layout=NHD: p page_size h_kv d; HND: p h_kv page_size d",
              BOLIDE_F32 | BOLIDE_F16, "pages"),
    BOLIDE_IN(A, mask, "ceil(b*d/8)", BOLIDE_U8, "bits", .flags = BOLIDE_OPTIONAL),
    BOLIDE_F64_OR(A, scale, " | 1 | b", BOLIDE_F32, 1.0, "scale"),
    BOLIDE_I64_OR(A, seed, "1", BOLIDE_U64, BOLIDE_NO_INT, "seed"),
    BOLIDE_TENSOR_LIST_ROW(A, parts, "m d", BOLIDE_F32, "parts", .flags = BOLIDE_OPTIONAL),
    BOLIDE_INT_TUPLE_ROW(A, tuple, "numbers", .flags = BOLIDE_OPTIONAL),
    BOLIDE_BOOL_ROW(A, flag, 0, "flag"),
    BOLIDE_F64_ROW(A, extra, NAN, "optional number", .flags = BOLIDE_OPTIONAL),
    BOLIDE_OUT(A, out, "b d | b h d", BOLIDE_LIKE(q), "result", .alias = "q"),
    BOLIDE_PLAN_ROW(A, plan, "the plan"),
    BOLIDE_IN(A, residual, "b d", BOLIDE_LIKE(q), "addend", .flags = BOLIDE_OPTIONAL),
    BOLIDE_OUT(A, sum, "b d", BOLIDE_LIKE(residual), "result", .flags = BOLIDE_OPTIONAL),
};
#undef A

static int runs;

static bolide_status toy_run(const bolide__call *call) {
    (void)call;
    runs++;
    return BOLIDE_OK;
}

static bolide_status toy_workspace(const bolide__call *call, bolide_sizes *sizes) {
    sizes->device_bytes = 64 * (bolide__dim(call, "b") == INT64_MIN ? 1 : bolide__dim(call, "b"));
    sizes->plan_bytes = sizeof(toy_plan);
    return BOLIDE_OK;
}

enum { TOY_MAGIC = 0x70790001 };

static bolide_status toy_make_plan(const bolide__call *call) {
    const toy_plan_args *a = call->args;
    toy_plan *p = (toy_plan *)(void *)a->plan;
    const bolide_plan head = {.size = p->head.size, .magic = TOY_MAGIC};
    *p = (toy_plan){.head = head,
                    .page_size = a->page_size,
                    .kv_layout = a->kv_layout,
                    .b = a->indptr->shape[0] - 1,
                    .q_data_type = a->q_data_type};
    return BOLIDE_OK;
}

static const bolide__plan_dim toy_plan_dims[] = {
    {"page_size", offsetof(toy_plan, page_size)},
    {"kv_layout", offsetof(toy_plan, kv_layout)},
    {"b", offsetof(toy_plan, b)},
    {"q_data_type", offsetof(toy_plan, q_data_type)},
    {NULL, 0},
};

static const bolide_op toy = {
    .name = "toy",
    .family = "test",
    .doc = "for tests",
    .run = BOLIDE_ENTRY(toy_args, toy_rows),
    .plan = BOLIDE_ENTRY(toy_plan_args, toy_plan_rows),
    .cpu = toy_run,
    .make_plan = toy_make_plan,
    .plan_magic = TOY_MAGIC,
    .plan_min_bytes = sizeof(toy_plan),
    .plan_dims = toy_plan_dims,
    .workspace = toy_workspace,
};

/* ---- helpers ------------------------------------------------------------------------------ */

typedef struct box {
    bolide_tensor t;
    int64_t shape[8], strides[8];
    _Alignas(16) float data[256];
} box;

static bolide_tensor *tensor(box *b, int64_t dtype, int ndim, const int64_t *shape) {
    for (int i = 0; i < ndim; i++)
        b->shape[i] = shape[i];
    b->t = (bolide_tensor){.data = b->data,
                           .device = {BOLIDE_CPU, 0},
                           .ndim = ndim,
                           .dtype = bolide_dtype_of(dtype),
                           .shape = b->shape};
    return &b->t;
}

#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {                 \
        __VA_ARGS__                                                                                \
    }

/* The last call must have failed so: status, argument, and a text inside the message. */
static void refused(bolide_status got, bolide_status want, const char *arg, const char *text) {
    const bolide_error *e = bolide_last_error();
    char what[400];
    snprintf(what, sizeof what, "expected %s about %s with \"%s\"; got %s",
             bolide_status_name(want), arg, text, bolide_status_name(got));
    check(got == want && e->status == want && strcmp(e->arg, arg) == 0 &&
              strstr(e->message, text) != NULL && strstr(e->message, e->op) == e->message,
          what);
}

typedef struct fixture {
    box indptr, q, cache, mask, scale, seed, part[2], out;
    const bolide_tensor *list[2];
    int64_t tuple[2];
    toy_plan plan;
    toy_plan_args pa;
    toy_args ra;
    bolide_workspace ws;
    _Alignas(16) char scratch[512];
} fixture;

static void init(const bolide_op *op, bolide_phase phase, void *args) {
    memcpy(args, bolide__program_of(op, phase)->defaults, bolide_op_args_size(op, phase));
}

static void set_up(fixture *f) {
    memset(f, 0, sizeof *f);
    init(&toy, BOLIDE_PLAN, &f->pa);
    f->plan.head.size = sizeof f->plan;
    f->ws = (bolide_workspace){.device = f->scratch, .device_bytes = sizeof f->scratch};
    f->pa.indptr = tensor(&f->indptr, BOLIDE_I32, SHAPE(4));
    f->pa.page_size = 16;
    f->pa.workspace = &f->ws;
    f->pa.plan = &f->plan.head;
    init(&toy, BOLIDE_RUN, &f->ra);
    f->ra.q = tensor(&f->q, BOLIDE_F32, SHAPE(3, 4));
    f->ra.cache = tensor(&f->cache, BOLIDE_F32, SHAPE(1, 16, 2, 4));
    f->ra.seed = 7;
    f->ra.out = tensor(&f->out, BOLIDE_F32, SHAPE(3, 4));
    f->ra.plan = &f->plan.head;
}

static bolide_status plan(fixture *f) {
    return bolide_run(&toy, BOLIDE_PLAN, NULL, &f->pa, NULL);
}

static bolide_status run(fixture *f) {
    return bolide_run(&toy, BOLIDE_RUN, NULL, &f->ra, NULL);
}

/* ---- tests -------------------------------------------------------------------------------- */

static void test_success(void) {
    fixture f;
    set_up(&f);
    check(plan(&f) == BOLIDE_OK, "plan");
    runs = 0;
    check(run(&f) == BOLIDE_OK && runs == 1, "run");
    f.ra.q = tensor(&f.q, BOLIDE_F32, SHAPE(3, 2, 4));
    f.ra.out = tensor(&f.out, BOLIDE_F32, SHAPE(3, 2, 4));
    check(run(&f) == BOLIDE_OK && runs == 2, "run with heads");
    f.ra.out = f.ra.q;
    check(run(&f) == BOLIDE_OK && runs == 3, "run in place");
    f.ra.mask = tensor(&f.mask, BOLIDE_U8, SHAPE(2));
    check(run(&f) == BOLIDE_OK && runs == 4, "expression ceil(b*d/8)");
    f.list[0] = tensor(&f.part[0], BOLIDE_F32, SHAPE(5, 4));
    f.list[1] = tensor(&f.part[1], BOLIDE_F32, SHAPE(6, 4));
    f.ra.parts = f.list;
    f.ra.parts_count = 2;
    check(run(&f) == BOLIDE_OK && runs == 5, "list binds m for each element");
    f.ra.scale_tensor = tensor(&f.scale, BOLIDE_F32, SHAPE(3));
    check(run(&f) == BOLIDE_OK && runs == 6, "scale as a tensor");
    f.scale.t.ndim = 0;
    check(run(&f) == BOLIDE_OK && runs == 7, "scale as a tensor without dimensions");
    f.ra.scale_tensor = tensor(&f.scale, BOLIDE_F32, SHAPE(2));
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "scale", "expected [3]; got [2]");
}

static void test_empty(void) {
    fixture f;
    set_up(&f);
    f.pa.indptr = tensor(&f.indptr, BOLIDE_I32, SHAPE(1));
    check(plan(&f) == BOLIDE_OK, "plan of no request");
    runs = 0;
    f.ra.q = tensor(&f.q, BOLIDE_F32, SHAPE(0, 4));
    f.ra.out = tensor(&f.out, BOLIDE_F32, SHAPE(0, 4));
    f.q.t.data = f.out.t.data = NULL;
    check(run(&f) == BOLIDE_OK && runs == 0, "nothing to write launches nothing");
}

static void test_struct(void) {
    fixture f;
    set_up(&f);
    refused(bolide_run(&toy, BOLIDE_RUN, NULL, NULL, NULL), BOLIDE_INVALID_ARGUMENT, "args",
            "NULL");
    f.pa.head.tag ^= 1;
    refused(plan(&f), BOLIDE_INVALID_ARGUMENT, "args", "bolide_args_init");
    memset(&f.pa, 0, sizeof f.pa);
    refused(plan(&f), BOLIDE_INVALID_ARGUMENT, "args", "not initialised");
    set_up(&f);
    f.pa.head.size = sizeof f.pa + 8;
    refused(plan(&f), BOLIDE_INVALID_ARGUMENT, "args", "a multiple of 8 from 8 to");
    f.pa.head.size = 12;
    refused(plan(&f), BOLIDE_INVALID_ARGUMENT, "args", "a multiple of 8 from 8 to");
    refused(bolide_args_init("rmsnorm", &f.pa, 3), BOLIDE_INVALID_ARGUMENT, "rmsnorm",
            "a multiple of 8 from 8 to 40 bytes; got 3");
    f.pa.head.size = offsetof(toy_plan_args, plan);
    refused(plan(&f), BOLIDE_INVALID_ARGUMENT, "plan", "NULL");
    set_up(&f);
    refused(run(&f), BOLIDE_NOT_PLANNED, "plan", "toy_plan filled");
    f.ra.plan = NULL;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "plan", "NULL");
}

static void test_shorter_struct(void) {
    fixture f;
    set_up(&f);
    check(plan(&f) == BOLIDE_OK, "plan");
    struct {
        toy_args args;
    } old;
    memset(&old, 0xff, sizeof old);
    memcpy(&old, &f.ra, offsetof(toy_args, flag));
    old.args.head.size = offsetof(toy_args, flag);
    /* out lies behind the cut, so its default, absent, must be found, not the garbage. */
    refused(bolide_run(&toy, BOLIDE_RUN, NULL, &old, NULL), BOLIDE_INVALID_ARGUMENT, "plan",
            "NULL");
}

static void test_scalars(void) {
    fixture f;
    set_up(&f);
    f.pa.page_size = BOLIDE_NO_INT;
    refused(plan(&f), BOLIDE_INVALID_ARGUMENT, "page_size", "expected a value; got none");
    set_up(&f);
    f.pa.kv_layout = 2;
    refused(plan(&f), BOLIDE_INVALID_ARGUMENT, "kv_layout", "one of NHD HND");
    set_up(&f);
    f.pa.q_data_type = BOLIDE_BF16;
    refused(plan(&f), BOLIDE_INVALID_ARGUMENT, "q_data_type", "expected f32 or f16; got bf16");
    set_up(&f);
    check(plan(&f) == BOLIDE_OK, "plan");
    f.ra.flag = 2;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "flag", "expected 0 or 1; got 2");
    f.ra.flag = 0;
    f.ra.scale = NAN;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "scale", "neither");
    f.ra.scale = 2.0;
    f.ra.scale_tensor = tensor(&f.scale, BOLIDE_F32, SHAPE(1));
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "scale", "both");
    f.ra.scale_tensor = NULL;
    f.ra.seed = BOLIDE_NO_INT;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "seed", "neither");
    f.ra.seed = 1;
    f.ra.tuple_count = 2;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "tuple", "2 at");
}

static void test_tensors(void) {
    fixture f;
    set_up(&f);
    check(plan(&f) == BOLIDE_OK, "plan");
    f.ra.q = NULL;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "q", "NULL");
    f.ra.q = tensor(&f.q, BOLIDE_F16, SHAPE(3, 4));
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "q", "dtype: expected f32; got f16");
    f.ra.q = tensor(&f.q, BOLIDE_F32, SHAPE(2, 4));
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "q", "expected [3, d]; got [2, 4]");
    f.ra.q = tensor(&f.q, BOLIDE_F32, SHAPE(4));
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "q", "rank: expected 2 or 3; got 1");
    f.ra.q = tensor(&f.q, BOLIDE_F32, SHAPE(3, 4));
    f.q.t.device = (bolide_device){BOLIDE_CUDA, 1};
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "q", "expected cpu; got cuda:1");
    f.q.t.device = (bolide_device){BOLIDE_CUDA_HOST, 0};
    check(run(&f) == BOLIDE_OK, "pinned memory on the CPU");
    f.ra.cache = tensor(&f.cache, BOLIDE_F32, SHAPE(1, 8, 2, 4));
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "cache",
            "expected [1, 16, h_kv, 4]; got [1, 8, 2, 4]");
    f.ra.cache = tensor(&f.cache, BOLIDE_F32, SHAPE(1, 16, 2, 4));
    f.ra.mask = tensor(&f.mask, BOLIDE_U8, SHAPE(3));
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "mask", "expected [2]; got [3]");
    f.ra.mask = NULL;
    f.ra.out = tensor(&f.out, BOLIDE_F32, SHAPE(3, 1, 4));
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "out", "rank: expected 2 as q has; got 3");
}

static void test_memory(void) {
    fixture f;
    set_up(&f);
    check(plan(&f) == BOLIDE_OK, "plan");
    f.q.t.strides = f.q.strides;
    f.q.strides[0] = 8;
    f.q.strides[1] = 2;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "q", "expected 1 in the last dimension; got 2");
    f.q.strides[1] = 1;
    check(run(&f) == BOLIDE_OK, "strided rows");
    f.q.strides[0] = INT64_MAX / 2;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "q", "2^62");
    f.q.t.strides = NULL;
    f.cache.t.strides = f.cache.strides;
    f.cache.strides[0] = INT64_MIN;
    f.cache.strides[1] = 8;
    f.cache.strides[2] = 4;
    f.cache.strides[3] = 1;
    check(run(&f) == BOLIDE_OK, "no step along one element, by the quick pass");
    f.q.t.device.type = BOLIDE_CUDA_HOST;
    check(run(&f) == BOLIDE_OK, "no step along one element, by the full checks");
    f.q.t.device.type = BOLIDE_CPU;
    f.cache.t.strides = NULL;
    f.q.t.data = NULL;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "q", "data: expected not NULL");
    f.q.t.data = (char *)f.q.data + 2;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "q", "alignment: expected 4 bytes");
    f.q.t.data = f.q.data;
    f.q.t.byte_offset = 4;
    check(run(&f) == BOLIDE_OK, "byte_offset");
    f.out.t.data = f.q.data;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "out", "no overlap with q");
    f.q.t.byte_offset = 0;
    check(run(&f) == BOLIDE_OK, "exactly in place");
    f.out.t.data = f.cache.data;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "out", "no overlap with cache");
    f.out.t.data = f.out.data;
    f.out.t.strides = f.out.strides;
    f.out.strides[0] = 0;
    f.out.strides[1] = 1;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "out", "no stride of 0");
    f.out.strides[0] = 3; /* of rows of 4 */
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "out", "no two elements in one place");
    f.out.strides[0] = 4;
    f.out.strides[1] = -1;
    f.out.t.data = f.out.data + 3;
    f.out.t.strides = f.out.strides;
    refused(run(&f), BOLIDE_INVALID_ARGUMENT, "out", "1 in the last dimension; got -1");
}

/* q is three rows of 4 in rows of 8; out begins `first` elements into the same memory. */
static bolide_status run_in_q(fixture *f, int64_t first, int64_t stride) {
    f->out.t.data = f->q.data + first;
    f->out.strides[0] = stride;
    return run(f);
}

/* Views that interleave pass, those that share a byte do not, whatever their strides are. */
static void test_views_of_one_buffer(void) {
    fixture f;
    set_up(&f);
    check(plan(&f) == BOLIDE_OK, "plan");
    f.q.t.strides = f.q.strides;
    f.out.t.strides = f.out.strides;
    f.q.strides[0] = 8;
    f.q.strides[1] = f.out.strides[1] = 1;
    static const int64_t apart[][2] = {{4, 8}, {20, 8}, {4, 16}, {20, -8}, {24, 4}};
    for (int i = 0; i < 5; i++)
        check(run_in_q(&f, apart[i][0], apart[i][1]) == BOLIDE_OK, "rows that interleave");
    static const int64_t shared[][2] = {{8, 8}, {3, 8}, {5, 8}, {16, -8}, {4, 12}, {19, 4}, {4, 6}};
    for (int i = 0; i < 7; i++)
        refused(run_in_q(&f, shared[i][0], shared[i][1]), BOLIDE_INVALID_ARGUMENT, "out",
                "no overlap with q");
    check(run_in_q(&f, 0, 8) == BOLIDE_OK, "strided rows in place");
}

static void test_interleaved_views(void) {
    fixture f;
    set_up(&f);
    check(plan(&f) == BOLIDE_OK, "plan");
    for (int i = 0; i < 2; i++) {
        box *b = i ? &f.out : &f.q;
        b->t.strides = b->strides;
        b->strides[0] = 8;
        b->strides[1] = 1;
        b->t.data = f.q.data + 4 * i;
    }
    check(run(&f) == BOLIDE_OK, "views of one fused buffer interleave");
}

static void test_workspace(void) {
    fixture f;
    set_up(&f);
    bolide_sizes s;
    check(bolide_op_workspace(&toy, NULL, &f.pa, &s) == BOLIDE_OK && s.device_bytes == 192,
          "workspace query");
    f.ws.device_bytes = 191;
    refused(plan(&f), BOLIDE_WORKSPACE_TOO_SMALL, "workspace", "at least 192 bytes; got 191");
    f.pa.workspace = NULL;
    refused(plan(&f), BOLIDE_INVALID_ARGUMENT, "workspace", "NULL");
    set_up(&f);
    f.plan.head.size = 8;
    refused(plan(&f), BOLIDE_WORKSPACE_TOO_SMALL, "plan", "plan_bytes");
    bolide__carver c = bolide__carve_begin(f.scratch, sizeof f.scratch);
    check(bolide__carve(&c, 3, 4) == f.scratch, "first part");
    check(bolide__carve_offset(&c) % 256 == 0, "parts are aligned");
    check(bolide__carve(&c, INT64_MAX, 8) == NULL && bolide__carve_offset(&c) > INT64_MAX / 4,
          "a product that wraps saturates");
}

static void test_output_inference(void) {
    fixture f;
    set_up(&f);
    check(plan(&f) == BOLIDE_OK, "plan");
    f.ra.out = NULL;
    int32_t ndim = 0;
    int64_t shape[8] = {0}, dtype = 0;
    check(bolide_op_output(&toy, BOLIDE_RUN, 9, &f.ra, &ndim, shape, &dtype) == BOLIDE_OK &&
              ndim == 2 && shape[0] == 3 && shape[1] == 4 && dtype == BOLIDE_F32,
          "output of two dimensions");
    f.ra.q = tensor(&f.q, BOLIDE_F32, SHAPE(3, 2, 4));
    check(bolide_op_output(&toy, BOLIDE_RUN, 9, &f.ra, &ndim, shape, &dtype) == BOLIDE_OK &&
              ndim == 3 && shape[1] == 2,
          "output of three dimensions");
    check(bolide_op_output(&toy, BOLIDE_RUN, 0, &f.ra, &ndim, shape, &dtype) == BOLIDE_NOT_FOUND,
          "an input is no output");
    f.ra.q = tensor(&f.q, BOLIDE_F16, SHAPE(3, 4));
    check(bolide_op_output(&toy, BOLIDE_RUN, 12, &f.ra, &ndim, shape, &dtype) == BOLIDE_OK &&
              ndim == 2 && dtype == BOLIDE_F16,
          "like an absent tensor that is like a given one");
}

/* A backend that is missing is told before a workspace that would be of no use. */
static void test_no_backend(void) {
    const bolide_context gpu = {.device = {BOLIDE_CUDA, 0}};
    fixture f;
    set_up(&f);
    f.ws.device_bytes = 0;
    refused(bolide_op_call(&toy, BOLIDE_PLAN, &gpu, &f.pa, NULL), BOLIDE_UNSUPPORTED, "",
            "no CUDA implementation; it runs on the CPU");
}

static void test_dtypes_and_names(void) {
    for (int i = 0; i < 17; i++) {
        const int64_t bit = (int64_t)1 << i;
        check(bolide_dtype_bit(bolide_dtype_of(bit)) == bit, "dtype there and back");
        check(bolide_dtype_parse(bolide_dtype_name(bit)) == bit, "dtype name there and back");
    }
    check(bolide_dtype_parse("float8_e4m3fn") == BOLIDE_F8_E4M3FN, "torch's name");
    check(bolide_dtype_parse("f33") == 0 && bolide_dtype_bit((bolide_dtype){2, 32, 2}) == 0,
          "unknown dtypes");
    check(strcmp(bolide_status_name(BOLIDE_BUSY), "BUSY") == 0, "status name");
    check(strcmp(bolide_status_name((bolide_status)999), "?") == 0, "unknown status");
    check(bolide_op_find("no such") == NULL && bolide_op_at(-1) == NULL &&
              bolide_op_at(bolide_op_count()) == NULL,
          "lookups outside the table");
    for (int64_t i = 0; i < bolide_op_count(); i++)
        check(bolide_op_find(bolide_op_name(bolide_op_at(i))) == bolide_op_at(i), "found by name");
    int64_t unaligned[2];
    check(bolide_args_init("nothing", unaligned, 16) == BOLIDE_NOT_FOUND, "unknown entry");
}

static void test_problem_text(void) {
    fixture f;
    set_up(&f);
    check(plan(&f) == BOLIDE_OK, "plan");
    f.ra.flag = 1;
    f.ra.scale = 0.5;
    bolide__call call = {.op = &toy,
                         .phase = BOLIDE_RUN,
                         .args = &f.ra,
                         .program = bolide__program_of(&toy, BOLIDE_RUN)};
    for (int i = 0; i < call.program->name_count; i++)
        call.dims[i] = INT64_MIN;
    call.dims[bolide__slot(call.program, "b", 1)] = 3;
    char text[200], small[8];
    const int n = bolide__problem_text(&call, text, sizeof text);
    check(strcmp(text, "toy b=3 cache=f32 scale=0.5 seed=7 flag=1") == 0, text);
    check(bolide__problem_text(&call, small, sizeof small) == n && strlen(small) == 7,
          "a short buffer is filled and no more");
}

static void test_context(void) {
    bolide_context *ctx = NULL;
    check(bolide_context_create(BOLIDE_CPU, 0, &ctx) == BOLIDE_OK, "create");
    check(bolide_context_set(ctx, BOLIDE_THREADS, 3) == BOLIDE_OK &&
              bolide_context_get(ctx, BOLIDE_THREADS) == 3,
          "threads");
    refused(bolide_context_set(ctx, BOLIDE_BATCH_INVARIANT, 2), BOLIDE_INVALID_ARGUMENT,
            "BOLIDE_BATCH_INVARIANT", "0 or 1");
    refused(bolide_context_set(NULL, BOLIDE_THREADS, 2), BOLIDE_INVALID_ARGUMENT, "ctx", "NULL");
    bolide_context_destroy(ctx);
    bolide_context_destroy(NULL);
    refused(bolide_context_create((bolide_device_type)9, 0, &ctx), BOLIDE_INVALID_ARGUMENT, "type",
            "got 9");
    refused(bolide_context_create(BOLIDE_CPU, 1, &ctx), BOLIDE_INVALID_ARGUMENT, "index", "got 1");
}

int main(void) {
    test_success();
    test_empty();
    test_struct();
    test_shorter_struct();
    test_scalars();
    test_tensors();
    test_memory();
    test_views_of_one_buffer();
    test_interleaved_views();
    test_workspace();
    test_output_inference();
    test_no_backend();
    test_dtypes_and_names();
    test_problem_text();
    test_context();
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0;
}
