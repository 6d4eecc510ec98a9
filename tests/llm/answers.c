// SPDX-License-Identifier: Apache-2.0
//
// See answers.h.
#include "answers.h"

#include <math.h>
#include <string.h>

#include "harness.h"

typedef struct {
    llm_engine *engine;
    size_t vocab, n;
    answer *answers;
} audience;

static uint64_t hash(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    return h;
}

static void note(answer *to, const float *logits, size_t n) {
    double best = -INFINITY, second = -INFINITY, square = 0;
    for (size_t i = 0; i < n; i++) {
        const double x = (double)logits[i];
        square += x * x;
        second = x > best ? best : fmax(second, x);
        best = fmax(best, x);
    }
    to->lead[to->count] = best - second;
    to->size = fmax(to->size, sqrt(square / (double)n));
    to->bits = hash(to->bits, logits, n * sizeof *logits);
}

static bool hear(void *arg, int64_t request, int32_t token) {
    audience *a = arg;
    for (size_t i = 0; i < a->n; i++) {
        answer *to = &a->answers[i];
        if (to->number == request && to->count < to->limit) {
            const float *logits = llm_engine_logits(a->engine, request);
            CHECK(logits != NULL);
            if (logits != NULL) {
                note(to, logits, a->vocab);
            }
            to->ids[to->count++] = token;
            return to->count < to->limit;
        }
    }
    CHECK_MSG(false, "a token of request %lld, which is none", (long long)request);
    return false;
}

void run_answers(const llm_model *model, const llm_settings *settings, const token_list *shared,
                 const token_list *prompts, const llm_sampler *sampler, size_t n, size_t apart,
                 answer *answers, graph_count *graphs) {
    llm_error error = {""};
    graph_count unwanted;
    graphs = graphs != NULL ? graphs : &unwanted;
    *graphs = (graph_count){0, 0};
    llm_settings own = *settings;
    own.max_requests = (int64_t)n;
    own.max_tokens = (int64_t)(shared != NULL ? shared->count : 0);
    for (size_t i = 0; i < n; i++) {
        own.max_tokens += (int64_t)(prompts[i].count + answers[i].limit);
        answers[i] = (answer){.number = -1, .limit = answers[i].limit};
    }
    llm_engine *e = llm_engine_create(model, &own, &error);
    CHECK_MSG(e != NULL, "%s", error.text);
    audience a = {.engine = e, .vocab = (size_t)model->vocab, .n = n, .answers = answers};
    bool ok =
        e != NULL && (shared == NULL || llm_engine_share(e, shared->ids, shared->count, &error));
    int64_t before = 0, after = 0, all;
    if (ok) {
        llm_engine_pages(e, &before, &all);
    }
    size_t joined = 0;
    bool busy = true;
    for (size_t step = 0; ok && (busy || joined < n); step++) {
        while (ok && joined < n && step >= joined * apart) {
            answers[joined].number =
                llm_engine_add(e, prompts[joined].ids, prompts[joined].count,
                               (int64_t)answers[joined].limit, sampler, &error);
            ok = answers[joined++].number >= 0;
        }
        ok = ok && llm_engine_step(e, hear, &a, &busy, &error);
    }
    CHECK_MSG(ok, "%s", error.text);
    if (ok) {
        llm_engine_pages(e, &after, &all);
        CHECK_MSG(after == before, "%lld pages in use before, %lld after", (long long)before,
                  (long long)after);
    }
    if (e != NULL) {
        llm_engine_graphs(e, &graphs->captured, &graphs->replayed);
    }
    llm_engine_destroy(e);
}

void expect_same(const answer *want, const answer *got, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++) {
        CHECK_MSG(want[i].count == want[i].limit && got[i].count == got[i].limit,
                  "%s: request %zu: %zu and %zu tokens", what, i, want[i].count, got[i].count);
        CHECK_MSG(memcmp(want[i].ids, got[i].ids, want[i].count * sizeof want[i].ids[0]) == 0,
                  "%s: request %zu writes other tokens", what, i);
        CHECK_MSG(want[i].bits == got[i].bits, "%s: request %zu has other bits", what, i);
    }
}
