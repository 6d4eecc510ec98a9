// SPDX-License-Identifier: Apache-2.0
//
// Draws a token from each row of the logits: the most likely one, or softmax with the request's
// temperature, then its filters in the order top-k, top-p, min-p.  Each row is a call of its own,
// and the random number is that of the request's seed at the position of the new token, so a draw
// does not depend on the batch.

#include "call.h"
#include "engine_internal.h"

static int32_t most_likely(const float *logits, int64_t count) {
    int32_t best = 0;
    for (int64_t i = 1; i < count; i++) {
        if (logits[i] > logits[best])
            best = (int32_t)i;
    }
    return best;
}

static bool filter(llm_engine *e, const llm_sampler *s, const bolide_tensor *probs,
                   llm_error *error) {
    bolide_top_k_renorm_probs_args k;
    bolide_top_p_renorm_probs_args p;
    if (!llm_ok(bolide_args_init("top_k_renorm_probs", &k, sizeof k), error) ||
        !llm_ok(bolide_args_init("top_p_renorm_probs", &p, sizeof p), error))
        return false;
    k.probs = k.out = p.probs = p.out = probs;
    k.top_k = s->top_k;
    p.top_p = s->top_p;
    if (s->top_k > 0 && !llm_ok(bolide_top_k_renorm_probs(e->ctx, &k, NULL), error))
        return false;
    return s->top_p >= 1 || llm_ok(bolide_top_p_renorm_probs(e->ctx, &p, NULL), error);
}

static bool draw_row(llm_engine *e, const llm_request *request, const float *logits, float *probs,
                     int32_t *token, llm_error *error) {
    const int64_t n = e->model->vocab;
    const llm_sampler *s = &request->sampler;
    view in = view_2d(logits, BOLIDE_F32, 1, n, n), out = view_2d(probs, BOLIDE_F32, 1, n, n);
    view id = view_1d(token, BOLIDE_I32, 1);
    bolide_softmax_args soft;
    bolide_min_p_sampling_from_probs_args sample;
    if (!llm_ok(bolide_args_init("softmax", &soft, sizeof soft), error) ||
        !llm_ok(bolide_args_init("min_p_sampling_from_probs", &sample, sizeof sample), error))
        return false;
    soft.logits = view_ready(&in);
    soft.out = sample.probs = view_ready(&out);
    soft.temperature = s->temperature;
    sample.min_p = s->min_p;
    sample.seed = (int64_t)s->seed;
    sample.offset = (int64_t)request->tokens.count;
    sample.samples = view_ready(&id);
    return llm_ok(bolide_softmax(e->ctx, &soft, NULL), error) && filter(e, s, &out.t, error) &&
           llm_ok(bolide_min_p_sampling_from_probs(e->ctx, &sample, NULL), error);
}

bool llm_draw(llm_engine *e, int32_t *tokens, llm_error *error) {
    const int64_t vocab = e->model->vocab;
    float *probs = llm_need(&e->probs, vocab, sizeof(float), error);
    for (int64_t r = 0; probs && r < e->n_requests; r++) {
        const llm_request *request = &e->requests[r];
        if (request->logits_row < 0)
            continue;
        const float *logits = (float *)e->logits.data + request->logits_row * vocab;
        int32_t *token = &tokens[request->logits_row];
        if (request->sampler.temperature <= 0)
            *token = most_likely(logits, vocab);
        else if (!draw_row(e, request, logits, probs, token, error))
            return false;
    }
    return probs != NULL;
}
