// SPDX-License-Identifier: Apache-2.0
//
// Front of chain_speculative_sampling. A request is one unit of work; it reads two rows at most.

#include <bolide/sampling.h>

#include "ops/sampling/sampling_internal.h"

#define A bolide_chain_speculative_sampling_args
static const bolide_param speculative_rows[] = {
    BOLIDE_IN(A, draft_probs, "b n v", BOLIDE_F32, "probabilities under the draft model"),
    BOLIDE_IN(A, draft_token_ids, "b n", BOLIDE_I32 | BOLIDE_I64, "tokens drawn from them"),
    BOLIDE_IN(A, target_probs, "b n+1 v", BOLIDE_F32, "probabilities under the target model"),
    BOLIDE_INOUT(A, maybe_output_accepted_token_num, "b", BOLIDE_I32,
                 "added to: drafts that pass their own test", .flags = BOLIDE_OPTIONAL),
    BOLIDE_INOUT(A, maybe_output_emitted_draft_token_num, "b", BOLIDE_I32,
                 "added to: drafts accepted before the first rejection", .flags = BOLIDE_OPTIONAL),
    BOLIDE_I64_OR(A, seed, "1 | b", BOLIDE_I64 | BOLIDE_U64, BOLIDE_NO_INT,
                  "seed of the random numbers"),
    BOLIDE_I64_OR(A, offset, "1 | b", BOLIDE_I64 | BOLIDE_U64, 0, "offset of the random numbers"),
    BOLIDE_OUT(A, output_token_ids, "b n+1", BOLIDE_LIKE(draft_token_ids), "tokens; -1 behind"),
};
#undef A

static void *data_or_null(const bolide_tensor *t) {
    return t ? bolide__data(t) : NULL;
}

static bolide_status check(const bolide__call *call) {
    const bolide_chain_speculative_sampling_args *a = call->args;
    const int64_t v = a->draft_probs->shape[2];
    if (v >= 1 && v <= BOLIDE__SAMPLE_VOCAB)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, "draft_probs", "shape",
                           bolide__text("1 to %d columns", BOLIDE__SAMPLE_VOCAB), "%lld",
                           (long long)v);
}

static bolide__speculative_params fill(const bolide__call *call) {
    const bolide_chain_speculative_sampling_args *a = call->args;
    return (bolide__speculative_params){
        .draft = bolide__data(a->draft_probs),
        .target = bolide__data(a->target_probs),
        .ids = bolide__data(a->draft_token_ids),
        .out = bolide__data(a->output_token_ids),
        .accepted = data_or_null(a->maybe_output_accepted_token_num),
        .emitted = data_or_null(a->maybe_output_emitted_draft_token_num),
        .b = a->draft_probs->shape[0],
        .n = a->draft_probs->shape[1],
        .v = a->draft_probs->shape[2],
        .draft_b = bolide__stride(a->draft_probs, 0),
        .draft_n = bolide__stride(a->draft_probs, 1),
        .target_b = bolide__stride(a->target_probs, 0),
        .target_n = bolide__stride(a->target_probs, 1),
        .ids_b = bolide__stride(a->draft_token_ids, 0),
        .out_b = bolide__stride(a->output_token_ids, 0),
        .id_dtype = bolide__bit(a->draft_token_ids),
        .out_dtype = bolide__bit(a->output_token_ids),
        .seed = bolide__per_row_of(a->seed_tensor, 0, a->seed),
        .offset = bolide__per_row_of(a->offset_tensor, 0, a->offset),
    };
}

static bolide_status chain_speculative_sampling_cpu(const bolide__call *call) {
    bolide__speculative_params p = fill(call);
    bolide__parallel_for(call->ctx, p.b, bolide__row_grain(p.v), BOLIDE_CPU_PICK(speculative_rows),
                         &p);
    return BOLIDE_OK;
}

static bolide_status chain_speculative_sampling_cuda(const bolide__call *call) {
    const bolide__speculative_params p = fill(call);
    return bolide__speculative_launch(call, &p);
}

const bolide_op bolide_op_chain_speculative_sampling = {
    .name = "chain_speculative_sampling",
    .family = "sampling",
    .doc = "accepts a prefix of drafted tokens and emits one more",
    .run = BOLIDE_ENTRY(bolide_chain_speculative_sampling_args, speculative_rows),
    .check = check,
    .cpu = chain_speculative_sampling_cpu,
    .cuda = chain_speculative_sampling_cuda,
};

bolide_status bolide_chain_speculative_sampling(const bolide_context *ctx,
                                                const bolide_chain_speculative_sampling_args *args,
                                                bolide_stream stream) {
    return bolide_run(&bolide_op_chain_speculative_sampling, BOLIDE_RUN, ctx, args, stream);
}
