// SPDX-License-Identifier: Apache-2.0
//
// Fronts of mm_bf16 and bmm_bf16: a product is one or several of the same kernel call. The
// column-major b is a weight [n, k] whose rows lie in memory as the kernel wants them; any other b
// is gathered. The workspace holds a as f32 [m, pad(k, 32)], once for all members of a batch.

#include <bolide/gemm.h>

#include "core/op.h"
#include "core/workspace.h"
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

static float *carve(bolide__carver *c, const bolide_tensor *a) {
    const int32_t row = a->ndim - 2;
    return bolide__carve(c, a->shape[row],
                         bolide__gemm_depth(a->shape[row + 1]) * (int64_t)sizeof(float));
}

static bolide__dot_params fill(const product *x) {
    const int32_t row = x->a->ndim - 2, col = row + 1;
    bolide__dot_params p = {
        .input = bolide__data(x->a),
        .weight = bolide__data(x->b),
        .input_row = bolide__stride(x->a, row),
        .input_dtype = bolide__bit(x->a),
        .weight_n = bolide__stride(x->b, col) * 2,
        .format = bolide__bit(x->a) == BOLIDE_F16 ? BOLIDE_WEIGHT_F16 : BOLIDE_WEIGHT_BF16,
        .m = x->a->shape[row],
        .n = x->b->shape[col],
        .k = x->a->shape[col],
        .out = bolide__gemm_results(x->out, x->bias),
    };
    const int64_t weight_k = bolide__stride(x->b, row);
    p.gathered = weight_k != 1 && p.k > 1;
    p.weight_k = weight_k * 2;
    return p;
}

static bolide_status sizes_of(const bolide_tensor *a, const bolide_tensor *b, bolide_sizes *sizes) {
    bolide__carver c = bolide__carve_begin(NULL, 0);
    for (int32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] == 0 || b->shape[i] == 0)
            return BOLIDE_OK;
    (void)carve(&c, a);
    sizes->device_bytes = c.used;
    return BOLIDE_OK;
}

/* Elements to bytes of the i-th matrix of a batch. */
static int64_t place(const bolide_tensor *t, int64_t i) {
    return i * bolide__stride(t, 0) * bolide__elem_bytes(t);
}

static bolide_status run(const bolide__call *call, const product *x) {
    const int64_t batch = x->a->ndim == 3 ? x->a->shape[0] : 1;
    const bolide__dot_params first = fill(x);
    for (int64_t i = 0; i < batch; i++) {
        bolide__carver c =
            x->workspace ? bolide__carve_begin(x->workspace->device, x->workspace->device_bytes)
                         : bolide__carve_begin(NULL, 0);
        bolide__dot_params p = first;
        p.widened = carve(&c, x->a);
        if (i > 0) {
            p.input = (const char *)p.input + place(x->a, i);
            p.weight += place(x->b, i);
            p.out.data = (char *)p.out.data + place(x->out, i);
        }
        bolide__gemm_dot(call->ctx, &p);
    }
    return BOLIDE_OK;
}

/* ---- the operators ------------------------------------------------------------------------ */

static bolide_status mm_workspace(const bolide__call *call, bolide_sizes *sizes) {
    const bolide_mm_bf16_args *a = call->args;
    return sizes_of(a->a, a->b, sizes);
}

static bolide_status mm_cpu(const bolide__call *call) {
    const bolide_mm_bf16_args *a = call->args;
    return run(call, &(product){a->a, a->b, a->bias, a->out, a->workspace});
}

static bolide_status bmm_workspace(const bolide__call *call, bolide_sizes *sizes) {
    const bolide_bmm_bf16_args *a = call->args;
    return sizes_of(a->A, a->B, sizes);
}

static bolide_status bmm_cpu(const bolide__call *call) {
    const bolide_bmm_bf16_args *a = call->args;
    return run(call, &(product){a->A, a->B, NULL, a->out, a->workspace});
}

const bolide_op bolide_op_mm_bf16 = {
    .name = "mm_bf16",
    .family = "gemm",
    .doc = "out = a b (+ bias), f16 or bf16 operands, b column-major",
    .run = BOLIDE_ENTRY(bolide_mm_bf16_args, mm_rows),
    .workspace = mm_workspace,
    .cpu = mm_cpu,
};

const bolide_op bolide_op_bmm_bf16 = {
    .name = "bmm_bf16",
    .family = "gemm",
    .doc = "out[i] = A[i] B[i] for each i, f16 or bf16 operands, B column-major",
    .run = BOLIDE_ENTRY(bolide_bmm_bf16_args, bmm_rows),
    .workspace = bmm_workspace,
    .cpu = bmm_cpu,
};

bolide_status bolide_mm_bf16(const bolide_context *ctx, const bolide_mm_bf16_args *args,
                             bolide_stream stream) {
    return bolide_run(&bolide_op_mm_bf16, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_bmm_bf16(const bolide_context *ctx, const bolide_bmm_bf16_args *args,
                              bolide_stream stream) {
    return bolide_run(&bolide_op_bmm_bf16, BOLIDE_RUN, ctx, args, stream);
}
