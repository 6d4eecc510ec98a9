// SPDX-License-Identifier: Apache-2.0
//
// See compare.h.
#include "compare.h"

#include <math.h>
#include <stdlib.h>

#include "reference.h"

static double largest_of(const double *x, size_t n) {
    double top = x[0];
    for (size_t i = 1; i < n; i++) {
        top = fmax(top, x[i]);
    }
    return top;
}

// log(sum(exp(x)))
static double log_sum(const double *x, size_t n) {
    double top = largest_of(x, n), sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += exp(x[i] - top);
    }
    return top + log(sum);
}

static void add_position(comparison *c, const double *wanted, const double *got, size_t n) {
    double wanted_sum = log_sum(wanted, n), got_sum = log_sum(got, n);
    double kl = 0, square = 0, best = -INFINITY, second = -INFINITY;
    size_t wanted_top = 0, got_top = 0;
    for (size_t i = 0; i < n; i++) {
        double p = wanted[i] - wanted_sum, difference = fabs(wanted[i] - got[i]);
        kl += exp(p) * (p - (got[i] - got_sum));
        square += wanted[i] * wanted[i];
        c->largest = difference > c->largest || isnan(difference) ? difference : c->largest;
        got_top = got[i] > got[got_top] ? i : got_top;
        if (wanted[i] > best) {
            second = best;
            best = wanted[i];
            wanted_top = i;
        } else if (wanted[i] > second) {
            second = wanted[i];
        }
    }
    c->positions++;
    c->kl += kl;
    c->worst_kl = kl > c->worst_kl || isnan(kl) ? kl : c->worst_kl;
    c->spread = fmax(c->spread, sqrt(square / (double)n));
    if (best - second > 0.5) {
        c->clear++;
        c->mistaken += wanted_top != got_top;
    }
}

static bool keep(void *arg, int64_t request, int32_t token) {
    (void)arg;
    (void)request;
    (void)token;
    return true;
}

// Runs the text in one step; the logits of positions [first, count) are [count - first, vocab].
static bool run_engine(const llm_model *model, const llm_settings *settings, const int32_t *ids,
                       size_t count, size_t first, double *out, llm_error *error) {
    size_t n = (count - first) * (size_t)model->vocab;
    llm_settings own = *settings;
    own.max_requests = 1;
    own.max_tokens = (int64_t)count + 2;
    own.all_logits = true;
    llm_engine *e = llm_engine_create(model, &own, error);
    const llm_sampler greedy = {.top_p = 1};
    int64_t request = e != NULL ? llm_engine_add(e, ids, count, 2, &greedy, error) : -1;
    bool busy, ok = request >= 0 && llm_engine_step(e, keep, NULL, &busy, error);
    const float *last = ok ? llm_engine_logits(e, request) : NULL;
    ok = ok && (last != NULL || llm_fail(error, "the text has no logits"));
    for (size_t i = 0; ok && i < n; i++) {
        out[i] = (last + model->vocab - n)[i];
    }
    llm_engine_destroy(e);
    return ok;
}

bool compare_logits(const llm_model *model, const int32_t *ids, size_t count, size_t first,
                    const llm_settings *settings, comparison *comparisons, size_t n,
                    llm_error *error) {
    size_t positions = count - first, vocab = (size_t)model->vocab;
    reference *r = reference_create(model->file.bytes, count, error);
    double *wanted = calloc(positions * vocab, sizeof *wanted);
    double *got = calloc(positions * vocab, sizeof *got);
    bool ok = wanted != NULL && got != NULL && r != NULL &&
              reference_forward(r, ids, count, positions, wanted, error);
    for (size_t i = 0; ok && i < n; i++) {
        ok = run_engine(model, &settings[i], ids, count, first, got, error);
        for (size_t j = 0; ok && j < positions; j++) {
            add_position(&comparisons[i], wanted + j * vocab, got + j * vocab, vocab);
        }
    }
    free(wanted);
    free(got);
    reference_destroy(r);
    return ok;
}
