// SPDX-License-Identifier: Apache-2.0
//
// Fronts of merge_state, merge_state_in_place, merge_states and variable_length_merge_states: four
// ways to say where the states of a row lie, one kernel.

#include <bolide/cascade.h>

#include "core/op.h"
#include "core/rows_internal.h"
#include "cuda/cuda.h"
#include "ops/cascade/cascade_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)

/* s and v of the result, and what both have in common. */
static bolide__merge_params begin(const bolide_tensor *v_merged, const bolide_tensor *s_merged) {
    return (bolide__merge_params){
        .v_merged = bolide__data(v_merged),
        .s_merged = bolide__data(s_merged),
        .rows = v_merged->shape[0] * v_merged->shape[1],
        .h = v_merged->shape[1],
        .d = v_merged->shape[2],
        .out_n = bolide__stride(v_merged, 0),
        .out_h = bolide__stride(v_merged, 1),
        .s_out_n = bolide__stride(s_merged, 0),
        .s_out_h = bolide__stride(s_merged, 1),
        .dtype = bolide__bit(v_merged),
    };
}

static bolide_status run_cpu(const bolide__call *call, bolide__merge_params *p) {
    bolide__parallel_for(call->ctx, p->rows, bolide__row_grain(p->d * (p->states + 1)),
                         BOLIDE_CPU_PICK(merge_rows), p);
    return BOLIDE_OK;
}

/* Columns of a load: as many as 16 bytes hold and as divide every address, stride and row. */
static int64_t load_width(const bolide__merge_params *p) {
    const uint64_t bytes = (uint64_t)bolide__dtype_bytes(p->dtype);
    const uint64_t bits = 16 / bytes | (uintptr_t)p->v / bytes | (uintptr_t)p->v_b / bytes |
                          (uintptr_t)p->v_merged / bytes |
                          (uint64_t)(p->d | p->v_n | p->v_i | p->v_h) |
                          (uint64_t)(p->v_b_n | p->v_b_h | p->out_n | p->out_h);
    return (int64_t)(bits & -bits);
}

static bolide_status run_cuda(const bolide__call *call, const bolide__merge_params *p) {
    enum { THREADS = 128 };
    const int64_t width = load_width(p), chunks = p->d / width;
    int64_t lanes = 1;
    while (lanes < 32 && lanes < chunks)
        lanes *= 2;
    bolide__spec s = BOLIDE_SPEC("cascade/merge.cu", "bolide_merge");
    bolide__spec_add(&s, "DT", p->dtype); /* 3 values */
    bolide__spec_add(&s, "VEC", width);   /* 4 values for 16-bit types */
    bolide__spec_add(&s, "LANES", lanes); /* 6 values, 16 for a head of 128 */
    bolide__spec_add(&s, "ONE", chunks <= lanes);
    bolide__spec_add(&s, "WIDE", bolide__is_wide(p->rows * lanes));
    bolide__spec_add(&s, "TWO", p->v_b != NULL);
    bolide__spec_add(&s, "FEW", bolide__is_few(p->rows * p->d * bolide__dtype_bytes(p->dtype) * 3));
    const int64_t tile = THREADS / lanes;
    const bolide__grid g = {.x = (p->rows + tile - 1) / tile, .block = THREADS, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

/* An operator's entries differ in how they fill the parameters only. */
#define BACKENDS(name)                                                                             \
    static bolide_status name##_cpu(const bolide__call *call) {                                    \
        bolide__merge_params p = name##_fill(call);                                                \
        return run_cpu(call, &p);                                                                  \
    }                                                                                              \
    static bolide_status name##_cuda(const bolide__call *call) {                                   \
        const bolide__merge_params p = name##_fill(call);                                          \
        return run_cuda(call, &p);                                                                 \
    }

static void two_states(bolide__merge_params *p, const bolide_tensor *v_a, const bolide_tensor *s_a,
                       const bolide_tensor *v_b, const bolide_tensor *s_b) {
    p->v = bolide__data(v_a);
    p->s = bolide__data(s_a);
    p->v_b = bolide__data(v_b);
    p->s_b = bolide__data(s_b);
    p->states = 2;
    p->v_n = bolide__stride(v_a, 0);
    p->v_h = bolide__stride(v_a, 1);
    p->s_n = bolide__stride(s_a, 0);
    p->s_h = bolide__stride(s_a, 1);
    p->v_b_n = bolide__stride(v_b, 0);
    p->v_b_h = bolide__stride(v_b, 1);
    p->s_b_n = bolide__stride(s_b, 0);
    p->s_b_h = bolide__stride(s_b, 1);
}

/* ---- merge_state -------------------------------------------------------------------------- */

#define A bolide_merge_state_args
static const bolide_param merge_state_rows[] = {
    BOLIDE_IN(A, v_a, "n h d", FLOATS, "values of the first state"),
    BOLIDE_IN(A, s_a, "n h", BOLIDE_F32, "log2 of its sum of exp"),
    BOLIDE_IN(A, v_b, "n h d", BOLIDE_LIKE(v_a), "values of the second state"),
    BOLIDE_IN(A, s_b, "n h", BOLIDE_F32, "log2 of its sum of exp"),
    BOLIDE_OUT(A, v_merged, "n h d", BOLIDE_LIKE(v_a), "values of both together"),
    BOLIDE_OUT(A, s_merged, "n h", BOLIDE_F32, "log2 of the joint sum of exp"),
};
#undef A

static bolide__merge_params merge_state_fill(const bolide__call *call) {
    const bolide_merge_state_args *a = call->args;
    bolide__merge_params p = begin(a->v_merged, a->s_merged);
    two_states(&p, a->v_a, a->s_a, a->v_b, a->s_b);
    return p;
}
BACKENDS(merge_state)

const bolide_op bolide_op_merge_state = {
    .name = "merge_state",
    .family = "cascade",
    .doc = "the attention state of two sets of keys from the state of each",
    .run = BOLIDE_ENTRY(bolide_merge_state_args, merge_state_rows),
    .cpu = merge_state_cpu,
    .cuda = merge_state_cuda,
};

bolide_status bolide_merge_state(const bolide_context *ctx, const bolide_merge_state_args *args,
                                 bolide_stream stream) {
    return bolide_run(&bolide_op_merge_state, BOLIDE_RUN, ctx, args, stream);
}

/* ---- merge_state_in_place ----------------------------------------------------------------- */

#define A bolide_merge_state_in_place_args
static const bolide_param in_place_rows[] = {
    BOLIDE_INOUT(A, v, "n h d", FLOATS, "values of the state that is extended"),
    BOLIDE_INOUT(A, s, "n h", BOLIDE_F32, "log2 of its sum of exp"),
    BOLIDE_IN(A, v_other, "n h d", BOLIDE_LIKE(v), "values of the other state"),
    BOLIDE_IN(A, s_other, "n h", BOLIDE_F32, "log2 of its sum of exp"),
    BOLIDE_IN(A, mask, "n", BOLIDE_BOOL, "rows to change; default all",
              .flags = BOLIDE_OPTIONAL | BOLIDE_STRIDED),
};
#undef A

static bolide__merge_params in_place_fill(const bolide__call *call) {
    const bolide_merge_state_in_place_args *a = call->args;
    bolide__merge_params p = begin(a->v, a->s);
    two_states(&p, a->v, a->s, a->v_other, a->s_other);
    p.mask = a->mask ? bolide__data(a->mask) : NULL;
    p.mask_n = a->mask ? bolide__stride(a->mask, 0) : 0;
    return p;
}
BACKENDS(in_place)

const bolide_op bolide_op_merge_state_in_place = {
    .name = "merge_state_in_place",
    .family = "cascade",
    .doc = "an attention state extended by another one",
    .run = BOLIDE_ENTRY(bolide_merge_state_in_place_args, in_place_rows),
    .cpu = in_place_cpu,
    .cuda = in_place_cuda,
};

bolide_status bolide_merge_state_in_place(const bolide_context *ctx,
                                          const bolide_merge_state_in_place_args *args,
                                          bolide_stream stream) {
    return bolide_run(&bolide_op_merge_state_in_place, BOLIDE_RUN, ctx, args, stream);
}

/* ---- merge_states ------------------------------------------------------------------------- */

#define A bolide_merge_states_args
static const bolide_param states_rows[] = {
    BOLIDE_IN(A, v, "n k h d", FLOATS, "values of k states a row"),
    BOLIDE_IN(A, s, "n k h", BOLIDE_F32, "log2 of their sums of exp"),
    BOLIDE_OUT(A, v_merged, "n h d", BOLIDE_LIKE(v), "values of all together"),
    BOLIDE_OUT(A, s_merged, "n h", BOLIDE_F32, "log2 of the joint sum of exp"),
};
#undef A

static bolide__merge_params states_fill(const bolide__call *call) {
    const bolide_merge_states_args *a = call->args;
    bolide__merge_params p = begin(a->v_merged, a->s_merged);
    p.v = bolide__data(a->v);
    p.s = bolide__data(a->s);
    p.states = a->v->shape[1];
    p.v_n = bolide__stride(a->v, 0);
    p.v_i = bolide__stride(a->v, 1);
    p.v_h = bolide__stride(a->v, 2);
    p.s_n = bolide__stride(a->s, 0);
    p.s_i = bolide__stride(a->s, 1);
    p.s_h = bolide__stride(a->s, 2);
    return p;
}
BACKENDS(states)

const bolide_op bolide_op_merge_states = {
    .name = "merge_states",
    .family = "cascade",
    .doc = "the attention state of k sets of keys from the state of each",
    .run = BOLIDE_ENTRY(bolide_merge_states_args, states_rows),
    .cpu = states_cpu,
    .cuda = states_cuda,
};

bolide_status bolide_merge_states(const bolide_context *ctx, const bolide_merge_states_args *args,
                                  bolide_stream stream) {
    return bolide_run(&bolide_op_merge_states, BOLIDE_RUN, ctx, args, stream);
}

/* ---- variable_length_merge_states --------------------------------------------------------- */

#define A bolide_variable_length_merge_states_args
static const bolide_param variable_rows[] = {
    BOLIDE_IN(A, v, "m h d", FLOATS, "values of the states, row behind row"),
    BOLIDE_IN(A, s, "m h", BOLIDE_F32, "log2 of their sums of exp"),
    BOLIDE_IN(A, indptr, "n+1", BOLIDE_I32, "first state of each row"),
    BOLIDE_OUT(A, v_merged, "n h d", BOLIDE_LIKE(v), "values of all states of a row together"),
    BOLIDE_OUT(A, s_merged, "n h", BOLIDE_F32, "log2 of the joint sum of exp"),
};
#undef A

static bolide__merge_params variable_fill(const bolide__call *call) {
    const bolide_variable_length_merge_states_args *a = call->args;
    bolide__merge_params p = begin(a->v_merged, a->s_merged);
    p.v = bolide__data(a->v);
    p.s = bolide__data(a->s);
    p.indptr = bolide__data(a->indptr);
    p.v_i = bolide__stride(a->v, 0);
    p.v_h = bolide__stride(a->v, 1);
    p.s_i = bolide__stride(a->s, 0);
    p.s_h = bolide__stride(a->s, 1);
    return p;
}
BACKENDS(variable)

const bolide_op bolide_op_variable_length_merge_states = {
    .name = "variable_length_merge_states",
    .family = "cascade",
    .doc = "attention states of any number a row joined into one",
    .run = BOLIDE_ENTRY(bolide_variable_length_merge_states_args, variable_rows),
    .cpu = variable_cpu,
    .cuda = variable_cuda,
};

bolide_status
bolide_variable_length_merge_states(const bolide_context *ctx,
                                    const bolide_variable_length_merge_states_args *args,
                                    bolide_stream stream) {
    return bolide_run(&bolide_op_variable_length_merge_states, BOLIDE_RUN, ctx, args, stream);
}
