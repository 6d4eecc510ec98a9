// SPDX-License-Identifier: Apache-2.0
//
// References of the operators that draw a sample from a row: sort, filter, add up, draw. A sample
// is judged equal to the reference's, or within 1e-5 of a boundary, where rounding may decide
// either way; at most one in a thousand may be of the second sort.

#include "ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sampling_ref.h"

void ref_philox(uint64_t seed, const uint32_t counter[4], uint32_t word[4]) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    memcpy(word, counter, 4 * sizeof *word);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = 0xD2511F53ull * word[0], b = 0xCD9E8D57ull * word[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ word[1] ^ key[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ word[3] ^ key[1], (uint32_t)a};
        memcpy(word, next, sizeof next);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

/* Element `row` of the seed or the offset, exactly: a double would lose bits. */
static uint64_t word_of(const ref_call *c, const char *name, int64_t row) {
    const ref_tensor *t = ref_in(c, name);
    return (uint64_t)(t ? t->i64[t->elems == 1 ? 0 : row] : ref_i64(c, name));
}

void ref_words(const ref_call *c, int64_t row, uint32_t n, uint32_t word[4]) {
    const uint64_t offset = word_of(c, "offset", row);
    const uint32_t counter[4] = {n, (uint32_t)row, (uint32_t)offset, (uint32_t)(offset >> 32)};
    ref_philox(word_of(c, "seed", row), counter, word);
}

double ref_unit(const ref_call *c, int64_t row, uint32_t n) {
    uint32_t word[4];
    ref_words(c, row, n, word);
    return ldexp((double)(((uint64_t)word[0] << 32 | word[1]) >> 11), -53);
}

/* ---- a row as a distribution -------------------------------------------------------------- */

static int larger_first(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

static double clean(double x, int logits) {
    if (isnan(x) || (!logits && x < 0))
        return logits ? -INFINITY : 0;
    return x > 3.4028234663852886e38 ? 3.4028234663852886e38 : x;
}

void ref_dist_free(ref_dist *d) {
    free(d->x);
    free(d->m);
    free(d->sorted);
}

/* The row's values, masses and values sorted; v of 0 for a row that does not exist. */
static ref_dist open_row(const double *values, int64_t v, int logits) {
    ref_dist d = {.v = v, .least = logits ? -INFINITY : 0};
    d.x = calloc((size_t)v + 1, sizeof *d.x);
    d.m = calloc((size_t)v + 1, sizeof *d.m);
    d.sorted = calloc((size_t)v + 1, sizeof *d.sorted);
    if (!d.x || !d.m || !d.sorted)
        abort();
    for (int64_t i = 0; i < v; i++)
        d.sorted[i] = d.x[i] = clean(values[i], logits);
    qsort(d.sorted, (size_t)v, sizeof *d.sorted, larger_first);
    double total = 0;
    for (int64_t i = 0; i < v; i++) {
        d.m[i] = !logits ? d.x[i] : d.x[i] == -INFINITY ? 0 : exp(d.x[i] - d.sorted[0]);
        total += d.m[i];
    }
    for (int64_t i = 0; i < v && logits && total > 0; i++)
        d.m[i] /= total;
    return d;
}

double ref_mass_above(const ref_dist *d, double x) {
    double sum = 0;
    for (int64_t i = 0; i < d->v; i++)
        sum += d->x[i] > x ? d->m[i] : 0;
    return sum;
}

double ref_mass_from(const ref_dist *d, double x) {
    double sum = 0;
    for (int64_t i = 0; i < d->v; i++)
        sum += d->x[i] >= x ? d->m[i] : 0;
    return sum;
}

/* The largest value x of the row with mass{>= x} >= target. */
static double least_by_mass(const ref_dist *d, double target) {
    int64_t low = 0, high = d->v - 1; /* positions in sorted; mass from it grows with it */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (ref_mass_from(d, d->sorted[middle]) >= target)
            high = middle;
        else
            low = middle + 1;
    }
    return d->sorted[low];
}

ref_dist ref_dist_of(const double *values, int64_t v, int logits, ref_filter f) {
    ref_dist d = open_row(values, v, logits);
    if (v == 0)
        return d;
    d.greedy = f.p <= 0;
    if (f.min_p > 0) {
        const double share = f.min_p > 1 ? 1 : (double)(float)f.min_p;
        d.least = (double)(float)(share * d.sorted[0]);
    }
    d.target = f.p < 1 ? (double)(float)f.p : INFINITY;
    if (f.k > 0 && f.k < v) {
        d.by_count = d.least = d.sorted[f.k - 1];
        d.counted = 1;
        if (!f.joint)
            d.target *= ref_mass_from(&d, d.least);
    }
    if (d.target < INFINITY && !d.greedy) {
        const double least = least_by_mass(&d, d.target);
        d.least = least > d.least ? least : d.least;
    }
    if (d.greedy)
        d.least = d.sorted[0];
    d.kept = ref_mass_from(&d, d.least);
    return d;
}

int64_t ref_dist_draw(const ref_dist *d, double u) {
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < d->v; i++) {
        if (d->x[i] < d->least || d->m[i] == 0)
            continue;
        last = i;
        sum += d->m[i];
        if (d->greedy || sum > u * d->kept)
            return i;
    }
    return last;
}

int ref_dist_near(const ref_dist *d, int64_t id, double u) {
    const double slack = 1e-5, x = d->x[id];
    if (d->greedy || d->m[id] == 0 || (d->counted && x < d->by_count))
        return 0;
    if (x < d->least && (d->target == INFINITY ? x < d->least * (1 - 1e-6)
                                               : ref_mass_above(d, x) > d->target + slack))
        return 0;
    const double least = x < d->least ? x : d->least;
    double before = 0;
    for (int64_t i = 0; i < id; i++)
        before += d->x[i] >= least ? d->m[i] : 0;
    const double all = ref_mass_from(d, least), at = u * all;
    return at >= before - 2 * slack * all && at <= before + d->m[id] + 2 * slack * all;
}

/* ---- the operators ------------------------------------------------------------------------ */

typedef enum filter_kind { NONE, TOP_P, TOP_K, MIN_P, BOTH } filter_kind;

static int64_t whole(double k) {
    return (int64_t)k;
}

static ref_filter filter_of(const ref_call *c, int64_t row, filter_kind kind) {
    ref_filter f = {.p = 1};
    if (kind == TOP_P || kind == BOTH)
        f.p = ref_number(c, "top_p", row, 1);
    if (kind == TOP_K || kind == BOTH)
        f.k = whole(ref_number(c, "top_k", row, 0));
    if (kind == MIN_P)
        f.min_p = ref_number(c, "min_p", row, 0);
    if (kind == BOTH)
        f.joint = ref_is(c, "filter_apply_order", "joint");
    return f;
}

static ref_dist dist_at(const ref_call *c, int64_t row, filter_kind kind, int logits) {
    const ref_tensor *in = ref_in(c, logits ? "logits" : "probs"), *map = ref_in(c, "indices");
    const int64_t from = map ? map->i64[row] : row, v = in->shape[1];
    const int outside = from < 0 || from >= in->shape[0];
    return ref_dist_of(in->f64 + (outside ? 0 : from) * v, outside ? 0 : v, logits,
                       filter_of(c, row, kind));
}

static void sample(const ref_call *c, int64_t row, filter_kind kind, int logits) {
    ref_dist d = dist_at(c, row, kind, logits);
    ref_out(c, "samples")->i64[row] = ref_dist_draw(&d, ref_unit(c, row, 0));
    if (!logits && ref_out(c, "valid"))
        ref_out(c, "valid")->i64[row] = d.kept > 0;
    ref_dist_free(&d);
}

static int64_t samples(const ref_call *c) {
    return ref_out(c, "samples")->elems;
}

ref_verdict ref_judge_ids(const ref_call *c, const char *output,
                          int (*near)(const ref_call *c, int64_t row, int64_t id), int64_t v,
                          char *why, size_t bytes) {
    const ref_tensor *want = ref_out(c, output), *got = ref_got(c, output);
    int64_t other = 0;
    for (int64_t i = 0; i < want->elems; i++) {
        const int64_t id = got->i64[i];
        if (id == want->i64[i])
            continue;
        if (id < 0 || id >= v || !near(c, i, id)) {
            (void)snprintf(why, bytes, "%s[%lld]: expected %lld; got %lld", output, (long long)i,
                           (long long)want->i64[i], (long long)id);
            return REF_FAIL;
        }
        other++;
    }
    if (other <= 1 + want->elems / 1000)
        return REF_PASS;
    (void)snprintf(why, bytes, "%s: %lld of %lld differ", output, (long long)other,
                   (long long)want->elems);
    return REF_FAIL;
}

#define NEAR(op, kind, is_logits)                                                                  \
    static int op##_near(const ref_call *c, int64_t row, int64_t id) {                             \
        ref_dist d = dist_at(c, row, kind, is_logits);                                             \
        const int near = id < d.v && ref_dist_near(&d, id, ref_unit(c, row, 0));                   \
        ref_dist_free(&d);                                                                         \
        return near;                                                                               \
    }

/* ---- inputs ------------------------------------------------------------------------------- */

/* What a row looks like, by the key kind: flat (peak=1: softmax of N(0, 1)), onehot, zero, nan,
 * ties (eight different values), sparse (most are 0), mixed (one after the other), some (NaN and
 * infinities strewn in), raw (not normalised). */
static const char *kind_of(const ref_call *c, int64_t row) {
    static const char *const all[] = {"flat", "onehot", "zero", "nan", "ties", "sparse", "some"};
    const char *kind = ref_key_text(c, "kind");
    return !kind ? "flat" : !strcmp(kind, "mixed") ? all[row % 7] : kind;
}

static double strange(const ref_call *c, uint64_t at, double x, int logits) {
    const double u = ref_uniform(c, 3, at);
    return u < 0.01    ? NAN
           : u < 0.02  ? (logits ? -INFINITY : -x)
           : u < 0.021 ? -0.0
           : u < 0.5   ? x
                       : x * 0.5;
}

void ref_fill_row(const ref_call *c, double *x, int64_t row, int64_t v, int logits) {
    const char *kind = kind_of(c, row);
    const double peak = ref_key_f64(c, "peak", 1), none = logits ? -INFINITY : 0;
    const int64_t hot = v ? ref_between(c, 2, (uint64_t)row, 0, v - 1) : 0;
    double total = 0;
    for (int64_t i = 0; i < v; i++) {
        const uint64_t at = (uint64_t)(row * v + i);
        double l = peak * ref_normal(c, 1, at);
        if (!strcmp(kind, "ties"))
            l = 0.5 * floor(8 * ref_uniform(c, 1, at));
        x[i] = logits ? l : exp(l);
        total += x[i];
    }
    for (int64_t i = 0; i < v; i++) {
        const uint64_t at = (uint64_t)(row * v + i);
        if (!logits && strcmp(kind, "raw") != 0)
            x[i] /= total;
        if (!strcmp(kind, "onehot"))
            x[i] = i == hot ? 1 : none;
        else if (!strcmp(kind, "zero") || (!strcmp(kind, "sparse") && i % 7 != hot % 7))
            x[i] = none;
        else if (!strcmp(kind, "nan"))
            x[i] = NAN;
        else if (!strcmp(kind, "some"))
            x[i] = strange(c, at, x[i], logits);
        else if (!strcmp(kind, "inf") && (i == hot || i == v - 1))
            x[i] = INFINITY;
    }
}

/* Limits of rows: usual ones and, one after the other, the edges. */
void ref_fill_limits(ref_call *c, int64_t v) {
    static const double p[] = {0.9, 0.5, 1, 0, 0.999, -1, 1e-9, 1.5, NAN, 0.1};
    const int64_t k[] = {1, v / 2, 0, v, 5, -3, v + 1, (int64_t)1 << 30, v - 1, 2};
    static const char *const name[] = {"top_p", "min_p", "top_k"};
    for (int n = 0; n < 3; n++) {
        ref_tensor *t = ref_values(c, name[n]);
        for (int64_t i = 0; t && i < t->elems; i++) {
            if (t->f64)
                t->f64[i] = p[i % 10];
            else
                t->i64[i] = k[i % 10];
        }
    }
}

/* With indices there are b output rows, and limits and seeds for each. */
static void dims(ref_call *c) {
    static const char *const name[] = {"samples", "valid", "top_p", "top_k",
                                       "min_p",   "seed",  "offset"};
    if (!ref_given(c, "indices") || !ref_has_dim(c, "b"))
        return;
    const int64_t b = ref_dim(c, "b");
    for (int i = 0; i < 7; i++)
        if (ref_given(c, name[i]))
            ref_set_shape(c, name[i], 1, &b);
}

static void fill(ref_call *c, int logits) {
    ref_tensor *x = ref_values(c, logits ? "logits" : "probs");
    for (int64_t r = 0; r < x->shape[0]; r++)
        ref_fill_row(c, x->f64 + r * x->shape[1], r, x->shape[1], logits);
    ref_tensor *map = ref_values(c, "indices");
    const int64_t out = ref_key(c, "outside", 0);
    for (int64_t i = 0; map && i < map->elems; i++)
        map->i64[i] = ref_between(c, 5, (uint64_t)i, -out, x->shape[0] - 1 + out);
    ref_fill_limits(c, x->shape[1]);
}

static void fill_probs(ref_call *c) {
    fill(c, 0);
}

static void fill_logits(ref_call *c) {
    fill(c, 1);
}

#define SAMPLING_REF(op, kind, is_logits, filler, numbers)                                         \
    NEAR(op, kind, is_logits)                                                                      \
    static void op##_ref(const ref_call *c, int64_t row) {                                         \
        sample(c, row, kind, is_logits);                                                           \
    }                                                                                              \
    static ref_verdict op##_compare(const ref_call *c, const char *output, char *why, size_t n) {  \
        const ref_tensor *in = ref_in(c, (is_logits) ? "logits" : "probs");                        \
        if (strcmp(output, "samples") != 0)                                                        \
            return REF_DEFAULT;                                                                    \
        return ref_judge_ids(c, output, op##_near, in->shape[1], why, n);                          \
    }                                                                                              \
    const ref_op ref_##op = {.name = #op,                                                          \
                             .defaults = "n=5 v=100 " numbers,                                     \
                             .keys = "kind peak outside",                                          \
                             .dims = dims,                                                         \
                             .fill = filler,                                                       \
                             .rows = samples,                                                      \
                             .ref = op##_ref,                                                      \
                             .compare = op##_compare}

SAMPLING_REF(sampling_from_probs, NONE, 0, fill_probs, "seed=1");
SAMPLING_REF(top_p_sampling_from_probs, TOP_P, 0, fill_probs, "seed=1 top_p=0.9");
SAMPLING_REF(top_k_sampling_from_probs, TOP_K, 0, fill_probs, "seed=1 top_k=10");
SAMPLING_REF(min_p_sampling_from_probs, MIN_P, 0, fill_probs, "seed=1 min_p=0.1");
SAMPLING_REF(top_k_top_p_sampling_from_probs, BOTH, 0, fill_probs, "seed=1 top_k=30 top_p=0.8");
SAMPLING_REF(top_k_top_p_sampling_from_logits, BOTH, 1, fill_logits, "seed=1 top_k=30 top_p=0.8");

/* ---- Gumbel noise ------------------------------------------------------------------------- */

static double score(const ref_call *c, int64_t row, int64_t i) {
    const ref_tensor *in = ref_in(c, "logits"), *map = ref_in(c, "indices");
    const int64_t from = map ? map->i64[row] : row;
    if (from < 0 || from >= in->shape[0])
        return -INFINITY;
    /* Elements 128 apart share a block: the upper halves of its words, the lower halves; a second
     * block has the other half of each. */
    const uint32_t block = (uint32_t)(i / 256 * 32 + i / 4 % 32);
    uint32_t upper[4], lower[4];
    ref_words(c, row, block, upper);
    ref_words(c, row, block | 0x80000000u, lower);
    const int shift = i / 128 % 2 ? 0 : 16;
    const uint32_t word = (upper[i % 4] >> shift & 0xffff) << 16 | (lower[i % 4] >> shift & 0xffff);
    const double v = ((double)word + 0.5) * 0x1p-32, most = 1 - 0x1p-24;
    return clean(in->f64[from * in->shape[1] + i], 1) - log(-log1p(-(v < most ? v : most)));
}

static void gumbel_ref(const ref_call *c, int64_t row) {
    const int64_t v = ref_in(c, "logits")->shape[1];
    double best = -INFINITY;
    int64_t id = 0;
    for (int64_t i = 0; i < v; i++) {
        const double s = score(c, row, i);
        if (s > best) {
            best = s;
            id = i;
        }
    }
    ref_out(c, "samples")->i64[row] = id;
}

static int gumbel_near(const ref_call *c, int64_t row, int64_t id) {
    const double best = score(c, row, ref_out(c, "samples")->i64[row]), s = score(c, row, id);
    return best - s <= 1e-5 * fmax(1, fabs(best));
}

static ref_verdict gumbel_compare(const ref_call *c, const char *output, char *why, size_t n) {
    return ref_judge_ids(c, output, gumbel_near, ref_in(c, "logits")->shape[1], why, n);
}

const ref_op ref_sampling_from_logits = {.name = "sampling_from_logits",
                                         .defaults = "n=5 v=100 seed=1",
                                         .keys = "kind peak outside",
                                         .dims = dims,
                                         .fill = fill_logits,
                                         .rows = samples,
                                         .ref = gumbel_ref,
                                         .compare = gumbel_compare};
