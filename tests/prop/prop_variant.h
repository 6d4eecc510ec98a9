// SPDX-License-Identifier: Apache-2.0
//
// The variants that prop_variant.c runs, as texts and as C functions; problems with random sizes
// and options; and a problem's result in float64 loops.

#ifndef BOLIDE_TESTS_PROP_VARIANT_H
#define BOLIDE_TESTS_PROP_VARIANT_H

#include <bolide/bolide.h>

#include <stdlib.h>
#include <string.h>

#include "prop_attention.h"

enum { H_Q = 6, H_KV = 2, GROUP = H_Q / H_KV, D = 24, MAX_B = 4, PAGE = 5 };

/* ---- variants ----------------------------------------------------------------------------- */

typedef struct spot {
    int request, query, key, position, head, kv_head, q_len, kv_len, dim;
} spot;

static const float slope[H_Q] = {0.5f, -0.25f, 0.125f, 1, 0, -1};
static const int32_t step_of[MAX_B] = {1, 2, 3, 5};
static const float gain[D] = {1, 2, 0.5f, 1, 1, -1, 1, 1, 1, 1, 1, 1,
                              1, 1, 3,    1, 1, 1,  1, 1, 1, 1, 1, 0.25f};
static const double shift = -1.5;

static double same(double x, const spot *s) {
    (void)s;
    return x;
}

static int all(const spot *s) {
    (void)s;
    return 1;
}

static double sigmoid(double x, const spot *s) {
    (void)s;
    return 1 / (1 + exp(-(x + shift)));
}

static double bias(double x, const spot *s) {
    return x + (double)slope[s->head] * (s->key - s->position) / 8;
}

static int dilated(const spot *s) {
    return (s->position - s->key) % step_of[s->request] == 0;
}

static int own_half(const spot *s) {
    return s->key < s->kv_len - s->q_len + s->query - s->kv_head;
}

static double scaled_query(double x, const spot *s) {
    return x * (double)gain[s->dim] + 0.01 * s->head;
}

static double scaled_key(double x, const spot *s) {
    return x * (double)gain[D - 1 - s->dim] + 0.001 * s->key;
}

static double bent_value(double x, const spot *s) {
    return tanh(x) + (s->kv_head == 1 ? 0.5 : 0) + 0.001 * s->key;
}

static double gated(double x, const spot *s) {
    return x * (1 + s->query) / (double)(s->q_len + s->dim);
}

typedef struct formula {
    const char *name;
    const char *texts[6]; /* logits mask query key value output */
    int no_softmax;
    double (*logits)(double, const spot *);
    int (*mask)(const spot *);
    double (*query)(double, const spot *), (*key)(double, const spot *);
    double (*value)(double, const spot *), (*output)(double, const spot *);
} formula;

static const formula formulas[] = {
    {.name = "sigmoid attention",
     .texts = {"return 1.0f / (1.0f + expf(-(x + shift)));"},
     .no_softmax = 1,
     .logits = sigmoid},
    {.name = "a dilated mask",
     .texts = {NULL, "return (position - key) % step_of[request] == 0;"},
     .mask = dilated},
    {.name = "a bias a head",
     .texts = {"return x + slope[head] * (float)(key - position) / 8;"},
     .logits = bias},
    {.name = "a mask that hides whole rows",
     .texts = {NULL, "const int first = kv_len - q_len;\nreturn key < first + query - kv_head;"},
     .mask = own_half},
    {.name = "changes of q, k, v and out",
     .texts = {"x += slope[head] * (float)(key - position) / 8;\nreturn x;", NULL,
               "return x * gain[dim] + 0.01f * head;", "return x * gain[23 - dim] + 0.001f * key;",
               "return tanhf(x) + (kv_head == 1 ? 0.5f : 0) + 0.001f * key;",
               "return x * (1 + query) / (q_len + dim);"},
     .logits = bias,
     .query = scaled_query,
     .key = scaled_key,
     .value = bent_value,
     .output = gated},
};

/* ---- problems ------------------------------------------------------------------------------ */

typedef enum form { SINGLE_DECODE, SINGLE_PREFILL, RAGGED, PAGED, DECODE, FORMS } form;

static const char *const form_names[] = {"single_decode_with_kv_cache",
                                         "single_prefill_with_kv_cache", "batch_prefill_ragged",
                                         "batch_prefill_paged", "batch_decode"};

typedef struct data {
    form form;
    int b, q_len[MAX_B], kv_len[MAX_B];
    int bf16, causal, window_left, rope, alibi;
    double cap, v_scale, o_scale;
    int32_t qo[MAX_B + 1], kv[MAX_B + 1], pages[MAX_B + 1], last[MAX_B], *indices;
    int64_t rows, keys, pool; /* rows of k and v as stored */
    float *q, *k, *v;         /* values; k and v in the order of kv */
    float *out, *lse;
} data;

static float rounded(float x, int bf16) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = bf16 ? bits & 0xffff0000u : bits;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float *random_floats(int64_t n, int bf16) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = rounded(normal(), bf16);
    return x;
}

/* Options at random; or few of them, since each is a kernel to compile on a GPU. */
static void draw(data *t, form f, int few) {
    const int plain = few && between(0, 1), full = few && !plain;
    *t = (data){.form = f,
                .b = f < RAGGED ? 1 : MAX_B,
                .bf16 = plain  ? 0
                        : full ? 1
                               : (int)between(0, 1),
                .causal = plain  ? 0
                          : full ? 1
                                 : (int)between(0, 1),
                .window_left = plain || between(0, 2) ? -1 : (int)between(0, 90),
                .rope = !few && between(0, 3) == 0,
                .cap = !full && (few || between(0, 1)) ? 0 : 5,
                .v_scale = 1.25,
                .o_scale = 0.5};
    t->alibi = full || (!few && !t->rope && between(0, 3) == 0);
    for (int r = 0; r < t->b; r++) {
        t->kv_len[r] = (int)between(r == 2 ? 0 : 1, r == 1 ? 1500 : 150);
        t->q_len[r] = f == SINGLE_DECODE || f == DECODE ? 1 : (int)between(1, 40);
        t->qo[r + 1] = t->qo[r] + t->q_len[r];
        t->kv[r + 1] = t->kv[r] + t->kv_len[r];
        t->pages[r + 1] = t->pages[r] + (t->kv_len[r] + PAGE - 1) / PAGE;
        t->last[r] = t->kv_len[r] ? (t->kv_len[r] - 1) % PAGE + 1 : 0;
    }
    t->rows = t->qo[t->b];
    t->keys = t->kv[t->b];
    t->pool = f >= PAGED ? (int64_t)t->pages[t->b] * PAGE : t->keys;
    t->indices = malloc((size_t)(t->pages[t->b] + 1) * sizeof *t->indices);
    for (int32_t i = 0; i < t->pages[t->b]; i++)
        t->indices[i] = t->pages[t->b] - 1 - i;
    t->q = random_floats(t->rows * H_Q * D, t->bf16);
    t->k = random_floats(t->keys * H_KV * D, t->bf16);
    t->v = random_floats(t->keys * H_KV * D, t->bf16);
    t->out = random_floats(t->rows * H_Q * D, 0);
    t->lse = random_floats(t->rows * H_Q, 0);
}

static void drop(data *t) {
    float *floats[] = {t->q, t->k, t->v, t->out, t->lse};
    for (int i = 0; i < 5; i++)
        free(floats[i]);
    free(t->indices);
}

/* Keys or values as they are stored, in their dtype. */
static void *stored(const data *t, const float *x, int64_t count, int64_t pool, int paged) {
    const int64_t row = paged ? H_KV * D : count;
    float *f = calloc((size_t)(paged ? pool * row : count) + 1, sizeof *f);
    for (int r = 0; paged && r < t->b; r++) {
        for (int j = 0; j < t->kv_len[r]; j++) {
            const int64_t to = (int64_t)t->indices[t->pages[r] + j / PAGE] * PAGE + j % PAGE;
            memcpy(f + to * row, x + (t->kv[r] + j) * row, (size_t)row * sizeof *f);
        }
    }
    if (!paged)
        memcpy(f, x, (size_t)count * sizeof *f);
    for (int64_t i = 0; t->bf16 && i < (paged ? pool * row : count); i++) {
        uint32_t bits;
        memcpy(&bits, &f[i], sizeof bits);
        ((uint16_t *)f)[i] = (uint16_t)(bits >> 16);
    }
    return f;
}

/* ---- the reference ------------------------------------------------------------------------- */

static double slope_of(int head) {
    return exp2(-(head < 4 ? 8.0 * (head + 1) / 4 : 4.0 * (2 * (head - 4) + 1) / 4));
}

static void turn(double *x, int position) {
    for (int i = 0; i < D / 2; i++) {
        const double angle = position * pow(1e4, -2.0 * i / D);
        const double a = x[i], b = x[i + D / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + D / 2] = b * cos(angle) + a * sin(angle);
    }
}

static void changed(double *to, const float *from, double (*change)(double, const spot *), spot s) {
    for (s.dim = 0; s.dim < D; s.dim++)
        to[s.dim] = (change ? change : same)((double)from[s.dim], &s);
}

/* One row; the largest difference from what is in out. */
static double row_error(const data *t, const formula *f, int r, int token, int head) {
    spot s = {r,           token,        0, t->kv_len[r] - t->q_len[r] + token, head, head / GROUP,
              t->q_len[r], t->kv_len[r], 0};
    const int64_t row = t->qo[r] + token;
    double q[D], k[D], v[D], sums[D] = {0}, total = 0, top = -INFINITY, worst = 0;
    changed(q, t->q + (row * H_Q + head) * D, f->query, s);
    if (t->rope)
        turn(q, s.position);
    double *logits = malloc((size_t)(t->kv_len[r] + 1) * sizeof *logits);
    for (s.key = 0; s.key < t->kv_len[r]; s.key++) {
        double x = 0;
        changed(k, t->k + ((t->kv[r] + s.key) * H_KV + s.kv_head) * D, f->key, s);
        if (t->rope)
            turn(k, s.key);
        for (int i = 0; i < D; i++)
            x += q[i] * k[i];
        x /= sqrt(D);
        x = t->cap > 0 ? t->cap * tanh(x / t->cap) : x;
        x += t->alibi ? slope_of(head) * (s.key - s.position) : 0;
        const int seen = (!t->causal || s.key <= s.position) &&
                         (t->window_left < 0 || s.key >= s.position - t->window_left) &&
                         (f->mask ? f->mask : all)(&s);
        logits[s.key] = seen ? (f->logits ? f->logits : same)(x, &s) : -INFINITY;
        top = fmax(top, logits[s.key]);
    }
    for (s.key = 0; s.key < t->kv_len[r]; s.key++) {
        if (isinf(logits[s.key]))
            continue;
        const double weight = f->no_softmax ? logits[s.key] : exp(logits[s.key] - top);
        changed(v, t->v + ((t->kv[r] + s.key) * H_KV + s.kv_head) * D, f->value, s);
        total += weight;
        for (int i = 0; i < D; i++)
            sums[i] += weight * v[i];
    }
    free(logits);
    for (s.dim = 0; s.dim < D; s.dim++) {
        double y = sums[s.dim] / (f->no_softmax ? 1 : total) * t->v_scale;
        y = isinf(top) ? 0 : (f->output ? f->output : same)(y, &s) / t->o_scale;
        const double error = fabs(y - (double)t->out[(row * H_Q + head) * D + s.dim]);
        worst = error / (1 + fabs(y)) > worst || isnan(error) ? error / (1 + fabs(y)) : worst;
    }
    const double lse = (top + log(total)) / log(2);
    const double got = (double)t->lse[row * H_Q + head];
    if (!f->no_softmax && (isinf(top) ? got != -INFINITY : !(fabs(lse - got) <= 1e-4)))
        return INFINITY;
    return worst;
}

static double error_of(const data *t, const formula *f) {
    double worst = 0;
    for (int r = 0; r < t->b; r++) {
        for (int token = 0; token < t->q_len[r]; token++) {
            for (int head = 0; head < H_Q; head++) {
                const double error = row_error(t, f, r, token, head);
                worst = error > worst || isnan(error) ? error : worst;
            }
        }
    }
    return worst;
}

#endif
