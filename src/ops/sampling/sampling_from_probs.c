// SPDX-License-Identifier: Apache-2.0
//
// Fronts of the operators that draw one sample a row: from probabilities under top-p, top-k, min-p
// or none, and from logits under top-k and top-p. They differ in their filter only, and one kernel
// serves all. A row is one unit of work and is read once from memory.

#include <bolide/sampling.h>

#include <math.h>
#include <string.h>

#include "ops/sampling/sampling_internal.h"

/* Rows and fields that all of them have. */
#define DRAW_ROWS(A)                                                                               \
    BOLIDE_IN(A, indices, "b", BOLIDE_I32 | BOLIDE_I64, "row of the input for each output row",    \
              .flags = BOLIDE_OPTIONAL),                                                           \
        BOLIDE_I64_OR(A, seed, "1 | n | b", BOLIDE_I64 | BOLIDE_U64, BOLIDE_NO_INT,                \
                      "seed of the random numbers"),                                               \
        BOLIDE_I64_OR(A, offset, "1 | n | b", BOLIDE_I64 | BOLIDE_U64, 0,                          \
                      "offset of the random numbers"),                                             \
        BOLIDE_OUT(A, samples, "n | b", BOLIDE_LIKE(indices), "ids drawn")
#define VALID_ROW(A)                                                                               \
    BOLIDE_OUT(A, valid, "n | b", BOLIDE_BOOL, "false where a row had nothing to draw",            \
               .flags = BOLIDE_OPTIONAL)
#define PROBS_ROW(A) BOLIDE_IN(A, probs, "n v", BOLIDE_F32, "probabilities")
#define TOP_P_ROW(A)                                                                               \
    BOLIDE_F64_OR(A, top_p, "1 | n | b", BOLIDE_F32, NAN, "sum that the kept values reach")
#define TOP_K_ROW(A)                                                                               \
    BOLIDE_I64_OR(A, top_k, "1 | n | b", BOLIDE_I32 | BOLIDE_I64, BOLIDE_NO_INT,                   \
                  "how many values are kept")
#define ORDER_ROW(A)                                                                               \
    BOLIDE_ENUM_ROW(A, filter_apply_order, "top_k_first joint", BOLIDE_TOP_K_FIRST,                \
                    "what top-p is measured on")

#define A bolide_sampling_from_probs_args
static const bolide_param none_rows[] = {PROBS_ROW(A), DRAW_ROWS(A), VALID_ROW(A)};
#undef A
#define A bolide_top_p_sampling_from_probs_args
static const bolide_param top_p_rows[] = {PROBS_ROW(A), TOP_P_ROW(A), DRAW_ROWS(A), VALID_ROW(A)};
#undef A
#define A bolide_top_k_sampling_from_probs_args
static const bolide_param top_k_rows[] = {PROBS_ROW(A), TOP_K_ROW(A), DRAW_ROWS(A), VALID_ROW(A)};
#undef A
#define A bolide_min_p_sampling_from_probs_args
static const bolide_param min_p_rows[] = {
    PROBS_ROW(A),
    BOLIDE_F64_OR(A, min_p, "1 | n | b", BOLIDE_F32, NAN, "least share of the largest"),
    DRAW_ROWS(A),
    VALID_ROW(A),
};
#undef A
#define A bolide_top_k_top_p_sampling_from_probs_args
static const bolide_param both_rows[] = {PROBS_ROW(A), TOP_K_ROW(A), TOP_P_ROW(A),
                                         ORDER_ROW(A), DRAW_ROWS(A), VALID_ROW(A)};
#undef A
#define A bolide_top_k_top_p_sampling_from_logits_args
static const bolide_param both_logits_rows[] = {
    BOLIDE_IN(A, logits, "n v", BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32, "logits"),
    TOP_K_ROW(A),
    TOP_P_ROW(A),
    ORDER_ROW(A),
    DRAW_ROWS(A),
};
#undef A
#define A bolide_sampling_from_logits_args
static const bolide_param gumbel_rows[] = {
    BOLIDE_IN(A, logits, "n v", BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32, "logits"), DRAW_ROWS(A)};
#undef A

/* ---- what rows cannot say ----------------------------------------------------------------- */

static const bolide_tensor *tensor_at(const bolide__call *call, const bolide_param *r) {
    const bolide_tensor *t;
    memcpy(&t, (const char *)call->args + r->offset, sizeof t);
    return t;
}

/* Output rows are counted by indices, or else by the input; and a row may not be too long. */
static bolide_status check(const bolide__call *call) {
    const bolide_param *rows = call->op->run.rows;
    const bolide_tensor *input = tensor_at(call, &rows[0]), *indices = NULL;
    for (int32_t i = 1; i < call->op->run.row_count; i++)
        if (rows[i].kind == BOLIDE_KIND_IN)
            indices = tensor_at(call, &rows[i]);
    if (input->shape[1] < 1 || input->shape[1] > BOLIDE__SAMPLE_VOCAB)
        return BOLIDE_FAIL_ARG(call, rows[0].name, "shape",
                               bolide__text("1 to %d columns", BOLIDE__SAMPLE_VOCAB), "%lld",
                               (long long)input->shape[1]);
    const int64_t b = indices ? indices->shape[0] : input->shape[0];
    for (int32_t i = 1; i < call->op->run.row_count; i++) {
        const bool output = rows[i].kind == BOLIDE_KIND_OUT;
        const bolide_tensor *t = rows[i].dims ? tensor_at(call, &rows[i]) : NULL;
        if (t && t->shape[0] != b && (output || t->shape[0] != 1))
            return BOLIDE_FAIL_ARG(call, rows[i].name, "shape",
                                   bolide__text(output ? "[%lld]" : "[1] or [%lld]", (long long)b),
                                   "[%lld]", (long long)t->shape[0]);
    }
    return BOLIDE_OK;
}

/* ---- parameters --------------------------------------------------------------------------- */

/* The part that all args structs share by name. */
#define FILL(a, in)                                                                                \
    .input = bolide__data(a->in), .input_n = bolide__stride(a->in, 0),                             \
    .dtype = bolide__bit(a->in), .n = a->in->shape[0], .v = a->in->shape[1],                       \
    .b = a->samples->shape[0], .indices = a->indices ? bolide__data(a->indices) : NULL,            \
    .indices_dtype = a->indices ? bolide__bit(a->indices) : 0,                                     \
    .id_dtype = bolide__bit(a->samples), .samples = bolide__data(a->samples),                      \
    .seed = bolide__per_row_of(a->seed_tensor, 0, a->seed),                                        \
    .offset = bolide__per_row_of(a->offset_tensor, 0, a->offset)
#define VALID(a) .valid = a->valid ? bolide__data(a->valid) : NULL

/* A backend for each device from the expression that fills the parameters from the args `a`. */
#define BACKENDS(name, op, ...)                                                                    \
    static bolide__sample_params name##_fill(const bolide__call *call) {                           \
        const bolide_##op##_args *a = call->args;                                                  \
        return (bolide__sample_params){__VA_ARGS__};                                               \
    }                                                                                              \
    static bolide_status name##_cpu(const bolide__call *call) {                                    \
        bolide__sample_params p = name##_fill(call);                                               \
        return run_cpu(call, &p);                                                                  \
    }                                                                                              \
    static bolide_status name##_cuda(const bolide__call *call) {                                   \
        const bolide__sample_params p = name##_fill(call);                                         \
        return bolide__sample_launch(call, &p);                                                    \
    }                                                                                              \
    _Static_assert(1, "a semicolon follows")

static bolide_status run_cpu(const bolide__call *call, bolide__sample_params *p) {
    bolide__parallel_for(call->ctx, p->b, bolide__row_grain(p->v), BOLIDE_CPU_PICK(sample_rows), p);
    return BOLIDE_OK;
}

static bolide__sample_filter filter_of(int64_t order) {
    return order == BOLIDE_JOINT ? BOLIDE__FILTER_JOINT : BOLIDE__FILTER_FIRST;
}

BACKENDS(none, sampling_from_probs, FILL(a, probs), VALID(a));
BACKENDS(top_p, top_p_sampling_from_probs, FILL(a, probs), VALID(a), .filter = BOLIDE__FILTER_JOINT,
         .top_p = bolide__per_row_of(a->top_p_tensor, a->top_p, 0));
BACKENDS(top_k, top_k_sampling_from_probs, FILL(a, probs), VALID(a), .filter = BOLIDE__FILTER_JOINT,
         .top_k = bolide__per_row_of(a->top_k_tensor, 0, a->top_k), .top_p.number = 1);
BACKENDS(min_p, min_p_sampling_from_probs, FILL(a, probs), VALID(a), .filter = BOLIDE__FILTER_MIN_P,
         .top_p = bolide__per_row_of(a->min_p_tensor, a->min_p, 0));
BACKENDS(both, top_k_top_p_sampling_from_probs, FILL(a, probs), VALID(a),
         .filter = filter_of(a->filter_apply_order),
         .top_k = bolide__per_row_of(a->top_k_tensor, 0, a->top_k),
         .top_p = bolide__per_row_of(a->top_p_tensor, a->top_p, 0));
BACKENDS(both_logits, top_k_top_p_sampling_from_logits, FILL(a, logits), .logits = 1,
         .filter = filter_of(a->filter_apply_order),
         .top_k = bolide__per_row_of(a->top_k_tensor, 0, a->top_k),
         .top_p = bolide__per_row_of(a->top_p_tensor, a->top_p, 0));

static bolide__sample_params gumbel_fill(const bolide__call *call) {
    const bolide_sampling_from_logits_args *a = call->args;
    return (bolide__sample_params){FILL(a, logits), .logits = 1};
}

static bolide_status gumbel_cpu(const bolide__call *call) {
    bolide__sample_params p = gumbel_fill(call);
    bolide__parallel_for(call->ctx, p.b, bolide__row_grain(4 * p.v), BOLIDE_CPU_PICK(gumbel_rows),
                         &p);
    return BOLIDE_OK;
}

static bolide_status gumbel_cuda(const bolide__call *call) {
    const bolide__sample_params p = gumbel_fill(call);
    return bolide__gumbel_launch(call, &p);
}

/* ---- descriptors -------------------------------------------------------------------------- */

#define SAMPLING_OP(op, rows_of_it, backend, text)                                                 \
    const bolide_op bolide_op_##op = {                                                             \
        .name = #op,                                                                               \
        .family = "sampling",                                                                      \
        .doc = text,                                                                               \
        .run = BOLIDE_ENTRY(bolide_##op##_args, rows_of_it),                                       \
        .check = check,                                                                            \
        .cpu = backend##_cpu,                                                                      \
        .cuda = backend##_cuda,                                                                    \
    };                                                                                             \
    bolide_status bolide_##op(const bolide_context *ctx, const bolide_##op##_args *args,           \
                              bolide_stream stream) {                                              \
        return bolide_run(&bolide_op_##op, BOLIDE_RUN, ctx, args, stream);                         \
    }                                                                                              \
    _Static_assert(1, "a semicolon follows")

SAMPLING_OP(sampling_from_probs, none_rows, none, "a sample from each row");
SAMPLING_OP(top_p_sampling_from_probs, top_p_rows, top_p,
            "a sample from the largest probabilities whose sum reaches top_p");
SAMPLING_OP(top_k_sampling_from_probs, top_k_rows, top_k,
            "a sample from the top_k largest probabilities");
SAMPLING_OP(min_p_sampling_from_probs, min_p_rows, min_p,
            "a sample from the probabilities of at least min_p times the largest");
SAMPLING_OP(top_k_top_p_sampling_from_probs, both_rows, both,
            "a sample from the probabilities that pass top-k and top-p");
SAMPLING_OP(top_k_top_p_sampling_from_logits, both_logits_rows, both_logits,
            "a sample from the softmax of logits that pass top-k and top-p");
SAMPLING_OP(sampling_from_logits, gumbel_rows, gumbel,
            "a sample from softmax(logits): the largest logit + Gumbel noise");
