// SPDX-License-Identifier: Apache-2.0
//
// Fronts of the gated activations. Three of them differ in the function only; the scaled one takes
// and gives quantised values. Every output is one evaluation on two inputs, so either bytes or the
// exponential is the limit.

#include <bolide/activation.h>

#include <math.h>

#include "core/op.h"
#include "cuda/cuda.h"
#include "ops/activation/activation_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)
#define F8 (BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2)

#define A bolide_silu_and_mul_args
static const bolide_param plain_rows[] = {
    BOLIDE_IN(A, input, "n d*2 | n h d*2", FLOATS, "gate, then what it multiplies"),
    BOLIDE_OUT(A, out, "n d | n h d", BOLIDE_LIKE(input), "result"),
};
#undef A

#define A bolide_silu_and_mul_scaled_args
static const bolide_param scaled_rows[] = {
    BOLIDE_IN(A, x, "n d*2 | n h d*2", FLOATS | F8, "gate, then what it multiplies"),
    BOLIDE_F64_OR(A, x_scale, " | 1", BOLIDE_F32, NAN, "multiplies x", .flags = BOLIDE_OPTIONAL),
    BOLIDE_F64_OR(A, o_scale, " | 1", BOLIDE_F32, NAN,
                  "multiplies the result, which is then held in the range of out's dtype",
                  .flags = BOLIDE_OPTIONAL),
    BOLIDE_OUT(A, out, "n d | n h d", FLOATS | F8, "result"),
};
#undef A

static bolide__activation_params fill(const bolide_tensor *input, const bolide_tensor *out) {
    const int64_t h = bolide__rows_heads(input), d = out->shape[out->ndim - 1];
    return (bolide__activation_params){
        .input = bolide__rows_of(input),
        .out = bolide__rows_of(out),
        .rows = out->shape[0] * h,
        .h = h,
        .d = d,
        .pieces = (d + BOLIDE__ACTIVATION_PIECE - 1) / BOLIDE__ACTIVATION_PIECE,
    };
}

static bolide_status run_cpu(const bolide__call *call, bolide__activation_params p,
                             bolide__loop_body body) {
    const int64_t piece = p.d < BOLIDE__ACTIVATION_PIECE ? p.d : BOLIDE__ACTIVATION_PIECE;
    bolide__parallel_for(call->ctx, p.rows * p.pieces, bolide__row_grain(4 * piece), body, &p);
    return BOLIDE_OK;
}

static bolide_status plain_cpu(const bolide__call *call, bolide__loop_body body) {
    const bolide_silu_and_mul_args *a = call->args;
    return run_cpu(call, fill(a->input, a->out), body);
}

static bolide_status silu_and_mul_cpu(const bolide__call *call) {
    return plain_cpu(call, BOLIDE_CPU_PICK(silu_and_mul_pieces));
}

static bolide_status gelu_and_mul_cpu(const bolide__call *call) {
    return plain_cpu(call, BOLIDE_CPU_PICK(gelu_and_mul_pieces));
}

static bolide_status gelu_tanh_and_mul_cpu(const bolide__call *call) {
    return plain_cpu(call, BOLIDE_CPU_PICK(gelu_tanh_and_mul_pieces));
}

static bolide__activation_params fill_scaled(const bolide__call *call) {
    const bolide_silu_and_mul_scaled_args *a = call->args;
    bolide__activation_params p = fill(a->x, a->out);
    p.x_scale = bolide__scalar_of(a->x_scale, a->x_scale_tensor, 1.0f);
    p.o_scale = bolide__scalar_of(a->o_scale, a->o_scale_tensor, 1.0f);
    p.out_bounded = a->o_scale_tensor || !isnan(a->o_scale);
    return p;
}

static bolide_status silu_and_mul_scaled_cpu(const bolide__call *call) {
    return run_cpu(call, fill_scaled(call), BOLIDE_CPU_PICK(silu_and_mul_scaled_pieces));
}

/* ---- CUDA ----------------------------------------------------------------------------------- */

/* Outputs a load: as many as 16 bytes of the wider tensor hold and as divide every address, stride
 * and half. */
static int64_t load_width(const bolide__activation_params *p) {
    const int64_t widest = p->input.bytes > p->out.bytes ? p->input.bytes : p->out.bytes;
    const uint64_t bits = (uint64_t)(16 / widest) | (uint64_t)p->d |
                          (uintptr_t)p->input.data / (uint64_t)p->input.bytes |
                          (uintptr_t)p->out.data / (uint64_t)p->out.bytes |
                          (uint64_t)(p->input.n | p->input.h | p->out.n | p->out.h);
    return (int64_t)(bits & -bits);
}

/* One token is spread over many small blocks. */
enum { FEW_ITEMS = 1 << 15 };

static bolide_status run_cuda(const bolide__call *call, bolide__activation_params p,
                              int64_t function, int64_t scaled) {
    const int64_t width = load_width(&p), items = p.rows * (p.d / width);
    const int32_t threads = items <= FEW_ITEMS ? 64 : 256;
    p.columns = p.d / width;
    bolide__spec s = BOLIDE_SPEC("activation/activation.cu", "bolide_activation");
    bolide__spec_add(&s, "INPUT", p.input.dtype); /* 3 values; scaled 5 */
    bolide__spec_add(&s, "OUT", p.out.dtype);     /* INPUT; scaled 5 values */
    bolide__spec_add(&s, "FUNCTION", function);
    bolide__spec_add(&s, "SCALED", scaled);
    bolide__spec_add(&s, "VEC", width);       /* 4 values for 16-bit types */
    bolide__spec_add(&s, "THREADS", threads); /* 2 values, with FEW 3 */
    bolide__spec_add(&s, "FEW", bolide__is_few(p.rows * p.d * (2 * p.input.bytes + p.out.bytes)));
    bolide__spec_add(&s, "WIDE", bolide__is_wide(items));
    const bolide__grid g = {.x = (items + threads - 1) / threads, .block = threads, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, &p, sizeof p);
}

static bolide_status plain_cuda(const bolide__call *call, int64_t function) {
    const bolide_silu_and_mul_args *a = call->args;
    return run_cuda(call, fill(a->input, a->out), function, 0);
}

static bolide_status silu_and_mul_cuda(const bolide__call *call) {
    return plain_cuda(call, BOLIDE__SILU);
}

static bolide_status gelu_and_mul_cuda(const bolide__call *call) {
    return plain_cuda(call, BOLIDE__GELU);
}

static bolide_status gelu_tanh_and_mul_cuda(const bolide__call *call) {
    return plain_cuda(call, BOLIDE__GELU_TANH);
}

static bolide_status silu_and_mul_scaled_cuda(const bolide__call *call) {
    return run_cuda(call, fill_scaled(call), BOLIDE__SILU, 1);
}

/* ---- the operators -------------------------------------------------------------------------- */

const bolide_op bolide_op_silu_and_mul = {
    .name = "silu_and_mul",
    .family = "activation",
    .doc = "out = silu(gate) * up, the two halves of the last dimension of input",
    .run = BOLIDE_ENTRY(bolide_silu_and_mul_args, plain_rows),
    .cpu = silu_and_mul_cpu,
    .cuda = silu_and_mul_cuda,
};

const bolide_op bolide_op_gelu_and_mul = {
    .name = "gelu_and_mul",
    .family = "activation",
    .doc = "out = gelu(gate) * up, the two halves of the last dimension of input",
    .run = BOLIDE_ENTRY(bolide_gelu_and_mul_args, plain_rows),
    .cpu = gelu_and_mul_cpu,
    .cuda = gelu_and_mul_cuda,
};

const bolide_op bolide_op_gelu_tanh_and_mul = {
    .name = "gelu_tanh_and_mul",
    .family = "activation",
    .doc = "out = gelu(gate) * up with the tanh form of gelu",
    .run = BOLIDE_ENTRY(bolide_gelu_tanh_and_mul_args, plain_rows),
    .cpu = gelu_tanh_and_mul_cpu,
    .cuda = gelu_tanh_and_mul_cuda,
};

const bolide_op bolide_op_silu_and_mul_scaled = {
    .name = "silu_and_mul_scaled",
    .family = "activation",
    .doc = "out = silu_and_mul(x * x_scale) * o_scale, x and out each of its own dtype",
    .run = BOLIDE_ENTRY(bolide_silu_and_mul_scaled_args, scaled_rows),
    .cpu = silu_and_mul_scaled_cpu,
    .cuda = silu_and_mul_scaled_cuda,
};

bolide_status bolide_silu_and_mul(const bolide_context *ctx, const bolide_silu_and_mul_args *args,
                                  bolide_stream stream) {
    return bolide_run(&bolide_op_silu_and_mul, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_gelu_and_mul(const bolide_context *ctx, const bolide_gelu_and_mul_args *args,
                                  bolide_stream stream) {
    return bolide_run(&bolide_op_gelu_and_mul, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_gelu_tanh_and_mul(const bolide_context *ctx,
                                       const bolide_gelu_tanh_and_mul_args *args,
                                       bolide_stream stream) {
    return bolide_run(&bolide_op_gelu_tanh_and_mul, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_silu_and_mul_scaled(const bolide_context *ctx,
                                         const bolide_silu_and_mul_scaled_args *args,
                                         bolide_stream stream) {
    return bolide_run(&bolide_op_silu_and_mul_scaled, BOLIDE_RUN, ctx, args, stream);
}
