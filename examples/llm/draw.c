// SPDX-License-Identifier: Apache-2.0
//
// Draws a token from each row of the logits, where the logits are: the most likely one, or softmax
// with the request's temperature, then its filters in the order top-k, top-p, min-p.  The most
// likely ones are found for all rows at once, since they belong to the graph of a step.  Each row
// that is drawn is a call of its own, and the random number is that of the request's seed at the
// position of the new token, so a draw does not depend on the batch.

#include "call.h"
#include "engine_internal.h"

bool llm_most_likely(llm_engine *e, llm_error *error) {
    const int64_t rows = e->step.logits_rows, vocab = e->model->vocab;
    void *best = llm_need(e, &e->best, rows, sizeof(float), error);
    void *ids = llm_need(e, &e->draws, rows, sizeof(int32_t), error);
    bolide_top_k_args a;
    if (!best || !ids || !llm_ok(bolide_args_init("top_k", &a, sizeof a), error))
        return false;
    view in = view_2d(e->device.place, e->logits.data, BOLIDE_F32, rows, vocab, vocab);
    view values = view_2d(e->device.place, best, BOLIDE_F32, rows, 1, 1);
    view indices = view_2d(e->device.place, ids, BOLIDE_I32, rows, 1, 1);
    a.input = view_ready(&in);
    a.k = 1;
    a.out_dtype = BOLIDE_I32;
    a.values = view_ready(&values);
    a.indices = view_ready(&indices);
    return llm_ok(bolide_top_k(e->device.ctx, &a, e->device.stream), error);
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
    const llm_device *d = &e->device;
    if (s->top_k > 0 && !llm_ok(bolide_top_k_renorm_probs(d->ctx, &k, d->stream), error))
        return false;
    return s->top_p >= 1 || llm_ok(bolide_top_p_renorm_probs(d->ctx, &p, d->stream), error);
}

static bool draw_row(llm_engine *e, const llm_request *request, const float *logits, float *probs,
                     int32_t *token, llm_error *error) {
    const int64_t n = e->model->vocab;
    const llm_sampler *s = &request->sampler;
    const llm_device *d = &e->device;
    view in = view_2d(d->place, logits, BOLIDE_F32, 1, n, n);
    view out = view_2d(d->place, probs, BOLIDE_F32, 1, n, n);
    view id = view_1d(d->place, token, BOLIDE_I32, 1);
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
    return llm_ok(bolide_softmax(d->ctx, &soft, d->stream), error) && filter(e, s, &out.t, error) &&
           llm_ok(bolide_min_p_sampling_from_probs(d->ctx, &sample, d->stream), error);
}

bool llm_draw(llm_engine *e, int32_t *tokens, llm_error *error) {
    const int64_t vocab = e->model->vocab;
    for (int64_t r = 0; r < e->n_requests; r++) {
        const llm_request *request = &e->requests[r];
        if (request->logits_row < 0 || request->sampler.temperature <= 0)
            continue;
        float *probs = llm_need(e, &e->probs, vocab, sizeof(float), error);
        const float *logits = (float *)e->logits.data + request->logits_row * vocab;
        int32_t *token = (int32_t *)e->draws.data + request->logits_row;
        if (!probs || !draw_row(e, request, logits, probs, token, error))
            return false;
    }
    return llm_device_get(&e->device, tokens, e->draws.data,
                          (size_t)e->step.logits_rows * sizeof *tokens, error) &&
           llm_device_wait(&e->device, error);
}
