// SPDX-License-Identifier: Apache-2.0
//
// References of softmax, renormalisation, masking and speculative sampling.

#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sampling_ref.h"

static int64_t first_dim(const ref_call *c) {
    const ref_tensor *in = ref_in(c, "probs");
    in = in ? in : ref_in(c, "logits");
    return in->shape[0];
}

static int64_t sum_length(const ref_call *c) {
    (void)c;
    return 1; /* sums run in double */
}

static void fill_rows(ref_call *c, const char *name, int logits) {
    ref_tensor *x = ref_values(c, name);
    const int64_t v = x->shape[x->ndim - 1];
    for (int64_t r = 0; r * v < x->elems; r++)
        ref_fill_row(c, x->f64 + r * v, r, v, logits);
    ref_fill_limits(c, v);
}

static void fill_probs(ref_call *c) {
    fill_rows(c, "probs", 0);
}

static void fill_logits(ref_call *c) {
    static const double t[] = {1, 0.7, 0, -2, 3, 1e-20, NAN, 1e20};
    fill_rows(c, "logits", 1);
    ref_tensor *temperature = ref_values(c, "temperature");
    for (int64_t i = 0; temperature && i < temperature->elems; i++)
        temperature->f64[i] = t[i % 8];
}

static void one_hot(double *y, const ref_dist *d) {
    for (int64_t i = 0; i < d->v; i++) {
        y[i] = d->x[i] == d->sorted[0] && d->m[i] > 0;
        if (y[i] != 0)
            return;
    }
}

/* ---- softmax ------------------------------------------------------------------------------ */

static void softmax_ref(const ref_call *c, int64_t row) {
    const ref_tensor *in = ref_in(c, "logits");
    ref_tensor *out = ref_out(c, "out");
    const int64_t v = in->shape[1];
    double *y = out->f64 + row * v, sum = 0;
    const ref_tensor *each = ref_in(c, "temperature");
    const double given = each ? each->f64[each->elems == 1 ? 0 : row]
                              : (double)(float)ref_number(c, "temperature", row, 1);
    const double t = given > 3.4028234663852886e38 ? 3.4028234663852886e38 : given;
    ref_dist d = ref_dist_of(in->f64 + row * v, v, 1, (ref_filter){.p = 1});
    memset(y, 0, (size_t)v * sizeof *y);
    if (v && !(t > 0))
        one_hot(y, &d);
    for (int64_t i = 0; i < v && t > 0 && d.sorted[0] > -INFINITY; i++)
        sum += y[i] = exp((d.x[i] - d.sorted[0]) / t);
    for (int64_t i = 0; i < v && sum > 0; i++)
        y[i] /= sum;
    ref_dist_free(&d);
}

/* The argument of exp is rounded to f32, and its error counts as often as the argument is large:
 * below -20 the result is too small to matter beside the sum. */
static double softmax_slack(const ref_call *c) {
    (void)c;
    return 0x1p-20;
}

/* ---- renormalisation and mask ------------------------------------------------------------- */

static void renorm(const ref_call *c, int64_t row, ref_filter f) {
    const ref_tensor *in = ref_in(c, "probs");
    const int64_t v = in->shape[1];
    double *y = ref_out(c, "out")->f64 + row * v;
    f.joint = 1;
    ref_dist d = ref_dist_of(in->f64 + row * v, v, 0, f);
    memset(y, 0, (size_t)v * sizeof *y);
    if (d.greedy)
        one_hot(y, &d);
    for (int64_t i = 0; i < v && !d.greedy; i++)
        y[i] = d.x[i] >= d.least && d.kept > 0 ? d.x[i] / d.kept : 0;
    ref_dist_free(&d);
}

static void top_p_renorm_ref(const ref_call *c, int64_t row) {
    renorm(c, row, (ref_filter){.p = ref_number(c, "top_p", row, 1)});
}

static void top_k_renorm_ref(const ref_call *c, int64_t row) {
    renorm(c, row, (ref_filter){.p = 1, .k = (int64_t)ref_number(c, "top_k", row, 0)});
}

static int larger_first(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

static void mask_ref(const ref_call *c, int64_t row) {
    const ref_tensor *in = ref_in(c, "logits");
    const int64_t v = in->shape[1], k = (int64_t)ref_number(c, "top_k", row, 0);
    const double *x = in->f64 + row * v;
    double *y = ref_out(c, "out")->f64 + row * v, *sorted = calloc((size_t)v + 1, sizeof *sorted);
    int64_t numbers = 0;
    for (int64_t i = 0; sorted && i < v; i++)
        if (!isnan(x[i]))
            sorted[numbers++] = x[i];
    qsort(sorted, (size_t)numbers, sizeof *sorted, larger_first);
    const double least = k > 0 && k < v && k <= numbers ? sorted[k - 1] : -INFINITY;
    for (int64_t i = 0; i < v; i++)
        y[i] = x[i] >= least ? x[i] : -INFINITY;
    free(sorted);
}

#define ROWS_REF(op, numbers, filler, function, ...)                                               \
    const ref_op ref_##op = {.name = #op,                                                          \
                             .defaults = "n=5 v=100 " numbers,                                     \
                             .keys = "kind peak",                                                  \
                             .fill = filler,                                                       \
                             .rows = first_dim,                                                    \
                             .ref = function,                                                      \
                             .reduction = sum_length,                                              \
                             __VA_ARGS__}

ROWS_REF(softmax, "", fill_logits, softmax_ref, .slack = softmax_slack);
ROWS_REF(top_p_renorm_probs, "top_p=0.9", fill_probs, top_p_renorm_ref, );
ROWS_REF(top_k_renorm_probs, "top_k=10", fill_probs, top_k_renorm_ref, );
ROWS_REF(top_k_mask_logits, "top_k=10", fill_logits, mask_ref, );

/* ---- speculative sampling ----------------------------------------------------------------- */

/* The key close is the share of the draft's distribution in the target's: 1 accepts all. */
static void speculative_fill(ref_call *c) {
    ref_tensor *draft = ref_values(c, "draft_probs"), *target = ref_values(c, "target_probs");
    ref_tensor *ids = ref_values(c, "draft_token_ids");
    const int64_t b = draft->shape[0], n = draft->shape[1], v = draft->shape[2];
    const int64_t out = ref_key(c, "outside", 0);
    const double close = ref_key_f64(c, "close", 0.7);
    for (int64_t r = 0; r < b * n; r++)
        ref_fill_row(c, draft->f64 + r * v, r, v, 0);
    for (int64_t r = 0; r < b * (n + 1); r++) {
        const int64_t i = r % (n + 1);
        double *x = target->f64 + r * v;
        ref_fill_row(c, x, b * n + r, v, 0);
        for (int64_t j = 0; j < v && i < n; j++)
            x[j] += close * (draft->f64[(r / (n + 1) * n + i) * v + j] - x[j]);
    }
    for (int64_t i = 0; i < b * n; i++)
        ids->i64[i] = ref_between(c, 9, (uint64_t)i, -out, v - 1 + out);
    static const char *const counter[] = {"maybe_output_accepted_token_num",
                                          "maybe_output_emitted_draft_token_num"};
    for (int k = 0; k < 2; k++) {
        ref_tensor *t = ref_values(c, counter[k]);
        for (int64_t i = 0; t && i < t->elems; i++)
            t->i64[i] = ref_between(c, 10, (uint64_t)i, 0, 1000);
    }
}

static double scrub(double x) {
    return !(x > 0) ? 0 : x > 3.4028234663852886e38 ? 3.4028234663852886e38 : x;
}

/* The distribution of the token behind `count` accepted drafts. */
static ref_dist emission(const ref_call *c, int64_t row, int64_t count) {
    const ref_tensor *draft = ref_in(c, "draft_probs"), *target = ref_in(c, "target_probs");
    const int64_t n = draft->shape[1], v = draft->shape[2];
    const double *q = target->f64 + (row * (n + 1) + count) * v;
    const double *p = draft->f64 + (row * n + count) * v;
    const ref_filter all = {.p = 1};
    if (count < n) {
        double *x = calloc((size_t)v + 1, sizeof *x);
        for (int64_t i = 0; x && i < v; i++)
            x[i] = fmax(0, scrub(q[i]) - scrub(p[i]));
        ref_dist d = ref_dist_of(x, v, 0, all);
        free(x);
        if (d.kept > 0)
            return d;
        ref_dist_free(&d);
    }
    return ref_dist_of(q, v, 0, all);
}

static int accepts(const ref_call *c, int64_t row, int64_t i) {
    const ref_tensor *draft = ref_in(c, "draft_probs"), *target = ref_in(c, "target_probs");
    const int64_t n = draft->shape[1], v = draft->shape[2];
    const int64_t id = ref_in(c, "draft_token_ids")->i64[row * n + i];
    if (id < 0 || id >= v)
        return 0;
    const double p = scrub(draft->f64[(row * n + i) * v + id]);
    const double q = scrub(target->f64[(row * (n + 1) + i) * v + id]);
    return ref_unit(c, row, (uint32_t)i) * p < q;
}

static void add_to(const ref_call *c, const char *name, int64_t row, int64_t count) {
    if (ref_out(c, name))
        ref_out(c, name)->i64[row] = ref_in(c, name)->i64[row] + count;
}

static void speculative_ref(const ref_call *c, int64_t row) {
    const ref_tensor *ids = ref_in(c, "draft_token_ids");
    const int64_t n = ids->shape[1];
    int64_t *out = ref_out(c, "output_token_ids")->i64 + row * (n + 1), emitted = 0, accepted = 0;
    while (emitted < n && accepts(c, row, emitted)) {
        out[emitted] = ids->i64[row * n + emitted];
        emitted++;
    }
    for (int64_t i = 0; i < n; i++)
        accepted += accepts(c, row, i);
    ref_dist d = emission(c, row, emitted);
    out[emitted] = ref_dist_draw(&d, ref_unit(c, row, (uint32_t)n));
    ref_dist_free(&d);
    for (int64_t i = emitted + 1; i <= n; i++)
        out[i] = -1;
    add_to(c, "maybe_output_accepted_token_num", row, accepted);
    add_to(c, "maybe_output_emitted_draft_token_num", row, emitted);
}

/* Only the emitted token may lie within a boundary. */
static int speculative_near(const ref_call *c, int64_t at, int64_t id) {
    const int64_t n = ref_in(c, "draft_token_ids")->shape[1], row = at / (n + 1);
    int64_t emitted = 0;
    while (emitted < n && accepts(c, row, emitted))
        emitted++;
    ref_dist d = emission(c, row, emitted);
    const int near =
        at % (n + 1) == emitted && ref_dist_near(&d, id, ref_unit(c, row, (uint32_t)n));
    ref_dist_free(&d);
    return near;
}

static ref_verdict speculative_compare(const ref_call *c, const char *output, char *why, size_t n) {
    if (strcmp(output, "output_token_ids") != 0)
        return REF_DEFAULT;
    return ref_judge_ids(c, output, speculative_near, ref_in(c, "draft_probs")->shape[2], why, n);
}

static int64_t requests(const ref_call *c) {
    return ref_in(c, "draft_probs")->shape[0];
}

const ref_op ref_chain_speculative_sampling = {.name = "chain_speculative_sampling",
                                               .defaults = "b=5 n=3 v=100 seed=1",
                                               .keys = "kind peak close outside",
                                               .fill = speculative_fill,
                                               .rows = requests,
                                               .ref = speculative_ref,
                                               .compare = speculative_compare};
