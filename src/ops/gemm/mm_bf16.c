// SPDX-License-Identifier: Apache-2.0
//
// Fronts of mm_bf16 and bmm_bf16. Few rows meet a column-major b, a weight [n, k], as it lies in
// memory (mm_dot_cpu.c); many rows go through the register tiles of the CPU layer (mm_tile_cpu.c),
// which also take a row-major b. The workspace holds a in the form that the kernel reads, once for
// all members of a batch.

#include <bolide/gemm.h>

#include "core/context.h"
#include "core/op.h"
#include "core/workspace.h"
#include "ops/gemm/gemm_device.h"
#include "ops/gemm/gemm_internal.h"

#define HALVES (BOLIDE_F16 | BOLIDE_BF16)
#define FLOATS (HALVES | BOLIDE_F32)

#define A bolide_mm_bf16_args
static const bolide_param mm_rows[] = {
    BOLIDE_IN(A, a, "m k", HALVES, "left operand"),
    BOLIDE_IN(A, b, "k n", BOLIDE_LIKE(a), "right operand, column-major for speed",
              .flags = BOLIDE_STRIDED),
    BOLIDE_IN(A, bias, "n", FLOATS, "added to each row", .flags = BOLIDE_OPTIONAL),
    BOLIDE_DTYPE_ROW(A, out_dtype, FLOATS, BOLIDE_BF16, "dtype of out"),
    BOLIDE_OUT(A, out, "m n", BOLIDE_LIKE(out_dtype), "a b + bias"),
    BOLIDE_WORKSPACE_ROW(A, workspace, "scratch for the operands", .flags = BOLIDE_OPTIONAL),
};
#undef A

#define ARGS bolide_bmm_bf16_args
static const bolide_param bmm_rows[] = {
    BOLIDE_IN(ARGS, A, "b m k", HALVES, "left operands"),
    BOLIDE_IN(ARGS, B, "b k n", BOLIDE_LIKE(A), "right operands, column-major for speed",
              .flags = BOLIDE_STRIDED),
    BOLIDE_DTYPE_ROW(ARGS, out_dtype, FLOATS, BOLIDE_BF16, "dtype of out"),
    BOLIDE_OUT(ARGS, out, "b m n", BOLIDE_LIKE(out_dtype), "A B, one by one"),
    BOLIDE_WORKSPACE_ROW(ARGS, workspace, "scratch for the operands", .flags = BOLIDE_OPTIONAL),
};
#undef ARGS

/* ---- one product -------------------------------------------------------------------------- */

/* The operands of either operator; the last two dimensions of each tensor are the matrix. */
typedef struct product {
    const bolide_tensor *a, *b, *bias, *out;
    const bolide_workspace *workspace;
} product;

enum { FEW_ROWS = 8 }; /* up to so many, b is read once as it lies */

/* The tile of a product, or NULL where the dot kernel serves it: few rows, or a b without a
 * contiguous dimension. A batch-invariant product asks the layout of b only, and no unit of another
 * class of results. */
static const bolide__gemm_kernel *tile_for(const bolide__call *call, const bolide_tensor *a,
                                           const bolide_tensor *b) {
    const int32_t row = a->ndim - 2, col = row + 1;
    const int units = bolide__units_allowed(call->ctx);
    const bool by_column = bolide__stride(b, row) == 1 || a->shape[col] <= 1;
    if (by_column ? !units || a->shape[row] <= FEW_ROWS : bolide__stride(b, col) != 1)
        return NULL;
    return bolide__bit(a) == BOLIDE_BF16 ? bolide__gemm_bf16(units) : bolide__gemm_f32();
}

static void *carve(bolide__carver *c, const bolide__gemm_kernel *tile, const bolide_tensor *a) {
    const int32_t row = a->ndim - 2;
    const int64_t m = a->shape[row], k = a->shape[row + 1];
    if (tile)
        return k ? bolide__carve(c, bolide__gemm_tile_bytes(tile, m, k), 1) : NULL;
    return bolide__carve(c, m, bolide__gemm_depth(k) * (int64_t)sizeof(float));
}

static bolide__dot_params dot_params(const product *x) {
    const int32_t row = x->a->ndim - 2, col = row + 1;
    bolide__dot_params p = {
        .input = bolide__data(x->a),
        .weight = bolide__data(x->b),
        .input_row = bolide__stride(x->a, row),
        .input_dtype = bolide__bit(x->a),
        .weight_n = bolide__stride(x->b, col) * 2,
        .weight_k = bolide__stride(x->b, row) * 2,
        .format = bolide__bit(x->a) == BOLIDE_F16 ? BOLIDE_WEIGHT_F16 : BOLIDE_WEIGHT_BF16,
        .m = x->a->shape[row],
        .n = x->b->shape[col],
        .k = x->a->shape[col],
        .out = bolide__gemm_results(x->out, x->bias),
    };
    p.gathered = p.weight_k != 2 && p.k > 1;
    return p;
}

static bolide__tile_params tile_params(const product *x, const bolide__gemm_kernel *tile) {
    const int32_t row = x->a->ndim - 2, col = row + 1;
    return (bolide__tile_params){
        .kernel = tile,
        .input = bolide__data(x->a),
        .weight = bolide__data(x->b),
        .input_row = bolide__stride(x->a, row),
        .weight_n = bolide__stride(x->b, col),
        .weight_k = x->a->shape[col] > 1 ? bolide__stride(x->b, row) : 1,
        .dtype = bolide__bit(x->a),
        .m = x->a->shape[row],
        .n = x->b->shape[col],
        .k = x->a->shape[col],
        .out = bolide__gemm_results(x->out, x->bias),
    };
}

static bolide_status sizes_of(const bolide__call *call, const bolide_tensor *a,
                              const bolide_tensor *b, bolide_sizes *sizes) {
    bolide__carver c = bolide__carve_begin(NULL, 0);
    if (call->ctx->device.type != BOLIDE_CPU)
        return BOLIDE_OK;
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] == 0 || b->shape[i] == 0)
            return BOLIDE_OK;
    (void)carve(&c, tile_for(call, a, b), a);
    sizes->device_bytes = c.used;
    return BOLIDE_OK;
}

/* Elements to bytes of the i-th matrix of a batch. */
static int64_t place(const bolide_tensor *t, int64_t i) {
    return i * bolide__stride(t, 0) * bolide__elem_bytes(t);
}

/* The i-th matrix of a batch. */
static void run_one(const bolide__call *call, const product *x, const bolide__gemm_kernel *tile,
                    int64_t i) {
    static const bolide_workspace none = {0};
    const bolide_workspace *w = x->workspace ? x->workspace : &none;
    bolide__carver c = bolide__carve_begin(w->device, w->device_bytes);
    const int64_t a = i ? place(x->a, i) : 0, b = i ? place(x->b, i) : 0;
    const int64_t out = i ? place(x->out, i) : 0;
    if (tile) {
        bolide__tile_params p = tile_params(x, tile);
        p.a = carve(&c, tile, x->a);
        p.input = (const char *)p.input + a;
        p.weight = (const char *)p.weight + b;
        p.out.data = (char *)p.out.data + out;
        bolide__gemm_tile(call->ctx, &p);
    } else {
        bolide__dot_params p = dot_params(x);
        p.widened = carve(&c, NULL, x->a);
        p.input = (const char *)p.input + a;
        p.weight += b;
        p.out.data = (char *)p.out.data + out;
        bolide__gemm_dot(call->ctx, &p);
    }
}

static bolide_status run(const bolide__call *call, const product *x) {
    const int64_t batch = x->a->ndim == 3 ? x->a->shape[0] : 1;
    const int64_t k = x->a->shape[x->a->ndim - 1];
    const bolide__gemm_kernel *tile = k ? tile_for(call, x->a, x->b) : NULL;
    for (int64_t i = 0; i < batch; i++)
        run_one(call, x, tile, i);
    return BOLIDE_OK;
}

/* ---- the operators ------------------------------------------------------------------------ */

static bolide_status mm_workspace(const bolide__call *call, bolide_sizes *sizes) {
    const bolide_mm_bf16_args *a = call->args;
    return sizes_of(call, a->a, a->b, sizes);
}

static bolide_status mm_cpu(const bolide__call *call) {
    const bolide_mm_bf16_args *a = call->args;
    return run(call, &(product){a->a, a->b, a->bias, a->out, a->workspace});
}

static bolide_status mm_cuda(const bolide__call *call) {
    const bolide_mm_bf16_args *a = call->args;
    return bolide__mm_cuda(call, a->a, a->b, a->bias, a->out);
}

static bolide_status bmm_workspace(const bolide__call *call, bolide_sizes *sizes) {
    const bolide_bmm_bf16_args *a = call->args;
    return sizes_of(call, a->A, a->B, sizes);
}

static bolide_status bmm_cpu(const bolide__call *call) {
    const bolide_bmm_bf16_args *a = call->args;
    return run(call, &(product){a->A, a->B, NULL, a->out, a->workspace});
}

static bolide_status bmm_cuda(const bolide__call *call) {
    const bolide_bmm_bf16_args *a = call->args;
    return bolide__mm_cuda(call, a->A, a->B, NULL, a->out);
}

const bolide_op bolide_op_mm_bf16 = {
    .name = "mm_bf16",
    .family = "gemm",
    .doc = "out = a b (+ bias), f16 or bf16 operands, b column-major",
    .run = BOLIDE_ENTRY(bolide_mm_bf16_args, mm_rows),
    .workspace = mm_workspace,
    .cpu = mm_cpu,
    .cuda = mm_cuda,
};

const bolide_op bolide_op_bmm_bf16 = {
    .name = "bmm_bf16",
    .family = "gemm",
    .doc = "out[i] = A[i] B[i] for each i, f16 or bf16 operands, B column-major",
    .run = BOLIDE_ENTRY(bolide_bmm_bf16_args, bmm_rows),
    .workspace = bmm_workspace,
    .cpu = bmm_cpu,
    .cuda = bmm_cuda,
};

bolide_status bolide_mm_bf16(const bolide_context *ctx, const bolide_mm_bf16_args *args,
                             bolide_stream stream) {
    return bolide_run(&bolide_op_mm_bf16, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_bmm_bf16(const bolide_context *ctx, const bolide_bmm_bf16_args *args,
                              bolide_stream stream) {
    return bolide_run(&bolide_op_bmm_bf16, BOLIDE_RUN, ctx, args, stream);
}
