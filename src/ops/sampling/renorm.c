// SPDX-License-Identifier: Apache-2.0
//
// Fronts of the operators that write a row for each row: renormalised probabilities, masked logits
// and softmax. A row is one unit of work; memory bandwidth is the limit.

#include <bolide/sampling.h>

#include <math.h>

#include "ops/sampling/sampling_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)
#define TOP_K_ROW(A)                                                                               \
    BOLIDE_I64_OR(A, top_k, "1 | n", BOLIDE_I32 | BOLIDE_I64, BOLIDE_NO_INT,                       \
                  "how many values are kept")

#define A bolide_softmax_args
static const bolide_param softmax_rows[] = {
    BOLIDE_IN(A, logits, "n v", FLOATS, "logits"),
    BOLIDE_F64_OR(A, temperature, "1 | n", BOLIDE_F32, NAN, "divides the logits",
                  .flags = BOLIDE_OPTIONAL),
    BOLIDE_OUT(A, out, "n v", BOLIDE_F32, "probabilities; may be logits", .alias = "logits"),
};
#undef A
#define A bolide_top_p_renorm_probs_args
static const bolide_param top_p_rows[] = {
    BOLIDE_IN(A, probs, "n v", FLOATS, "probabilities"),
    BOLIDE_F64_OR(A, top_p, "1 | n", BOLIDE_F32, NAN, "sum that the kept values reach"),
    BOLIDE_OUT(A, out, "n v", BOLIDE_LIKE(probs), "result; may be probs", .alias = "probs"),
};
#undef A
#define A bolide_top_k_renorm_probs_args
static const bolide_param top_k_rows[] = {
    BOLIDE_IN(A, probs, "n v", FLOATS, "probabilities"),
    TOP_K_ROW(A),
    BOLIDE_OUT(A, out, "n v", BOLIDE_LIKE(probs), "result; may be probs", .alias = "probs"),
};
#undef A
#define A bolide_top_k_mask_logits_args
static const bolide_param mask_rows[] = {
    BOLIDE_IN(A, logits, "n v", FLOATS, "logits"),
    TOP_K_ROW(A),
    BOLIDE_OUT(A, out, "n v", BOLIDE_LIKE(logits), "result; may be logits", .alias = "logits"),
};
#undef A

static bolide__renorm_params fill(const bolide_tensor *input, const bolide_tensor *out,
                                  bolide__renorm_kind kind, bolide__per_row limit) {
    return (bolide__renorm_params){.input = bolide__data(input),
                                   .out = bolide__data(out),
                                   .input_n = bolide__stride(input, 0),
                                   .out_n = bolide__stride(out, 0),
                                   .dtype = bolide__bit(input),
                                   .out_dtype = bolide__bit(out),
                                   .n = input->shape[0],
                                   .v = input->shape[1],
                                   .kind = kind,
                                   .limit = limit};
}

static bolide_status run_cpu(const bolide__call *call, bolide__renorm_params *p) {
    const bolide__loop_body body =
        p->kind == BOLIDE__SOFTMAX ? BOLIDE_CPU_PICK(softmax_rows) : BOLIDE_CPU_PICK(renorm_rows);
    bolide__parallel_for(call->ctx, p->n, bolide__row_grain(p->v), body, p);
    return BOLIDE_OK;
}

/* A backend for each device from the expression that gives the parameters for the args `a`. */
#define BACKENDS(name, op, ...)                                                                    \
    static bolide_status name##_cpu(const bolide__call *call) {                                    \
        const bolide_##op##_args *a = call->args;                                                  \
        bolide__renorm_params p = fill(__VA_ARGS__);                                               \
        return run_cpu(call, &p);                                                                  \
    }                                                                                              \
    static bolide_status name##_cuda(const bolide__call *call) {                                   \
        const bolide_##op##_args *a = call->args;                                                  \
        const bolide__renorm_params p = fill(__VA_ARGS__);                                         \
        return bolide__renorm_launch(call, &p);                                                    \
    }                                                                                              \
    _Static_assert(1, "a semicolon follows")

BACKENDS(softmax, softmax, a->logits, a->out, BOLIDE__SOFTMAX,
         bolide__per_row_of(a->temperature_tensor, a->temperature, 0));
BACKENDS(top_p, top_p_renorm_probs, a->probs, a->out, BOLIDE__RENORM_TOP_P,
         bolide__per_row_of(a->top_p_tensor, a->top_p, 0));
BACKENDS(top_k, top_k_renorm_probs, a->probs, a->out, BOLIDE__RENORM_TOP_K,
         bolide__per_row_of(a->top_k_tensor, 0, a->top_k));
BACKENDS(mask, top_k_mask_logits, a->logits, a->out, BOLIDE__MASK_TOP_K,
         bolide__per_row_of(a->top_k_tensor, 0, a->top_k));

/* Counts have 22 bits where masses are summed beside them. */
static bolide_status check_vocab(const bolide__call *call) {
    const bolide_top_p_renorm_probs_args *a = call->args; /* probs comes first in both structs */
    if (a->probs->shape[1] <= BOLIDE__SAMPLE_VOCAB)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, "probs", "shape",
                           bolide__text("at most %d columns", BOLIDE__SAMPLE_VOCAB), "%lld",
                           (long long)a->probs->shape[1]);
}

#define ROW_OP(op, rows_of_it, checks, backend, text)                                              \
    const bolide_op bolide_op_##op = {                                                             \
        .name = #op,                                                                               \
        .family = "sampling",                                                                      \
        .doc = text,                                                                               \
        .run = BOLIDE_ENTRY(bolide_##op##_args, rows_of_it),                                       \
        .check = checks,                                                                           \
        .cpu = backend##_cpu,                                                                      \
        .cuda = backend##_cuda,                                                                    \
    };                                                                                             \
    bolide_status bolide_##op(const bolide_context *ctx, const bolide_##op##_args *args,           \
                              bolide_stream stream) {                                              \
        return bolide_run(&bolide_op_##op, BOLIDE_RUN, ctx, args, stream);                         \
    }                                                                                              \
    _Static_assert(1, "a semicolon follows")

ROW_OP(softmax, softmax_rows, NULL, softmax, "out = softmax(logits / temperature), row by row");
ROW_OP(top_p_renorm_probs, top_p_rows, check_vocab, top_p,
       "the largest probabilities whose sum reaches top_p, divided by their sum");
ROW_OP(top_k_renorm_probs, top_k_rows, check_vocab, top_k,
       "the top_k largest probabilities, divided by their sum");
ROW_OP(top_k_mask_logits, mask_rows, NULL, mask, "the top_k largest logits; -inf elsewhere");
