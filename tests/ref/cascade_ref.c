// SPDX-License-Identifier: Apache-2.0
//
// References of the cascade family. Some states are empty: s is -inf and v is NaN, which must not
// matter. A row is one (n, h) pair.

#include "ref.h"

#include <math.h>

enum { MAX_ROWS = 4096 };

typedef struct lengths {
    int64_t n, start[MAX_ROWS + 1];
} lengths;

/* One state among several: its value row and its s. */
typedef struct state {
    const double *v;
    double s;
} state;

typedef state state_fn(const ref_call *c, int64_t row, int64_t i);

static void merge(const ref_call *c, int64_t row, int64_t count, state_fn *at, const char *v_name,
                  const char *s_name) {
    ref_tensor *v = ref_out(c, v_name), *s = ref_out(c, s_name);
    const int64_t d = v->shape[2];
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++)
        top = fmax(top, at(c, row, i).s);
    for (int64_t e = 0; e < d; e++)
        v->f64[row * d + e] = 0;
    for (int64_t i = 0; i < count; i++) {
        const state x = at(c, row, i);
        const double w = x.s == -INFINITY ? 0 : exp2(x.s - top);
        sum += w;
        for (int64_t e = 0; w != 0 && e < d; e++)
            v->f64[row * d + e] += w * x.v[e];
    }
    for (int64_t e = 0; sum != 0 && e < d; e++)
        v->f64[row * d + e] /= sum;
    s->f64[row] = sum != 0 ? top + log2(sum) : -INFINITY;
}

/* Every fifth state is of no keys, and so are all states of every seventh row. */
static void empty_some(ref_call *c, const char *v_name, const char *s_name, int64_t period) {
    ref_tensor *v = ref_values(c, v_name), *s = ref_values(c, s_name);
    if (!v || !s || v->elems == 0)
        return;
    const int64_t d = v->shape[v->ndim - 1];
    for (int64_t i = 0; i < s->elems && (i + 1) * d <= v->elems; i++) {
        if (i % period != 3)
            continue;
        s->f64[i] = -INFINITY;
        for (int64_t e = 0; e < d; e++)
            v->f64[i * d + e] = NAN;
    }
}

static state value_of(const ref_call *c, const char *v_name, const char *s_name, int64_t index) {
    const ref_tensor *v = ref_in(c, v_name);
    return (state){v->f64 + index * v->shape[v->ndim - 1], ref_in(c, s_name)->f64[index]};
}

static double largest_of(const ref_tensor *s) {
    double largest = 0;
    for (int64_t i = 0; s && i < s->elems; i++)
        largest = isfinite(s->f64[i]) ? fmax(largest, fabs(s->f64[i])) : largest;
    return largest;
}

/* s is top + log2(sum), terms that may cancel: its rounding is theirs, of which a few results near
 * 0 do not show the size. */
static double cancelled(const ref_tensor *merged, double largest) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; merged && i < merged->elems; i++) {
        if (isfinite(merged->f64[i]) && merged->f64[i] != 0) {
            sum += merged->f64[i] * merged->f64[i];
            count++;
        }
    }
    const double rms = count ? sqrt(sum / (double)count) : 1;
    return rms < 0.5 ? ldexp(1, -22) * (1 + largest) / rms : 0;
}

static double pair_slack(const ref_call *c) {
    return cancelled(ref_out(c, "s_merged"),
                     fmax(largest_of(ref_in(c, "s_a")), largest_of(ref_in(c, "s_b"))));
}

static double in_place_slack(const ref_call *c) {
    return cancelled(ref_out(c, "s"),
                     fmax(largest_of(ref_in(c, "s")), largest_of(ref_in(c, "s_other"))));
}

static double states_slack(const ref_call *c) {
    return cancelled(ref_out(c, "s_merged"), largest_of(ref_in(c, "s")));
}

static int64_t rows_of(const ref_call *c) {
    return ref_dim(c, "n") * ref_dim(c, "h");
}

/* ---- two states --------------------------------------------------------------------------- */

static void pair_fill(ref_call *c) {
    empty_some(c, "v_a", "s_a", 5);
    empty_some(c, "v_b", "s_b", 7);
}

static state pair_at(const ref_call *c, int64_t row, int64_t i) {
    return i ? value_of(c, "v_b", "s_b", row) : value_of(c, "v_a", "s_a", row);
}

static void pair_ref(const ref_call *c, int64_t row) {
    merge(c, row, 2, pair_at, "v_merged", "s_merged");
}

const ref_op ref_merge_state = {.name = "merge_state",
                                .defaults = "n=40 h=2 d=64",
                                .fill = pair_fill,
                                .rows = rows_of,
                                .ref = pair_ref,
                                .slack = pair_slack};

static void in_place_fill(ref_call *c) {
    empty_some(c, "v", "s", 5);
    empty_some(c, "v_other", "s_other", 7);
}

static state in_place_at(const ref_call *c, int64_t row, int64_t i) {
    return i ? value_of(c, "v_other", "s_other", row) : value_of(c, "v", "s", row);
}

static void in_place_ref(const ref_call *c, int64_t row) {
    const ref_tensor *mask = ref_in(c, "mask");
    if (!mask || mask->i64[row / ref_dim(c, "h")])
        merge(c, row, 2, in_place_at, "v", "s");
}

const ref_op ref_merge_state_in_place = {.name = "merge_state_in_place",
                                         .defaults = "n=40 h=2 d=64",
                                         .fill = in_place_fill,
                                         .rows = rows_of,
                                         .ref = in_place_ref,
                                         .slack = in_place_slack};

/* ---- many states -------------------------------------------------------------------------- */

static void states_fill(ref_call *c) {
    empty_some(c, "v", "s", 4);
}

static state states_at(const ref_call *c, int64_t row, int64_t i) {
    const int64_t h = ref_dim(c, "h"), k = ref_dim(c, "k");
    return value_of(c, "v", "s", (row / h * k + i) * h + row % h);
}

static void states_ref(const ref_call *c, int64_t row) {
    merge(c, row, ref_dim(c, "k"), states_at, "v_merged", "s_merged");
}

static int64_t states_sum(const ref_call *c) {
    return ref_dim(c, "k");
}

const ref_op ref_merge_states = {.name = "merge_states",
                                 .defaults = "n=12 k=5 h=2 d=64",
                                 .fill = states_fill,
                                 .rows = rows_of,
                                 .ref = states_ref,
                                 .reduction = states_sum,
                                 .slack = states_slack};

static void variable_dims(ref_call *c) {
    lengths *t = ref_state(c, sizeof *t);
    t->n = ref_has_dim(c, "n") ? ref_dim(c, "n") : 9;
    if (t->n > MAX_ROWS) {
        ref_refuse(c, "n: expected at most %d; got %lld", MAX_ROWS, (long long)t->n);
        t->n = 0;
    }
    for (int64_t i = 0; i < t->n; i++)
        t->start[i + 1] = t->start[i] + ref_between(c, 1, (uint64_t)i, 0, 6);
    ref_fix_dim(c, "n", t->n);
    ref_fix_dim(c, "m", t->start[t->n]);
}

static void variable_fill(ref_call *c) {
    const lengths *t = ref_state(c, sizeof *t);
    ref_tensor *indptr = ref_values(c, "indptr");
    for (int64_t i = 0; indptr && i <= t->n && i < indptr->elems; i++)
        indptr->i64[i] = t->start[i];
    empty_some(c, "v", "s", 4);
}

static state variable_at(const ref_call *c, int64_t row, int64_t i) {
    const lengths *t = ref_state(c, sizeof *t);
    const int64_t h = ref_dim(c, "h");
    return value_of(c, "v", "s", (t->start[row / h] + i) * h + row % h);
}

static void variable_ref(const ref_call *c, int64_t row) {
    const lengths *t = ref_state(c, sizeof *t);
    const int64_t n = row / ref_dim(c, "h");
    merge(c, row, t->start[n + 1] - t->start[n], variable_at, "v_merged", "s_merged");
}

const ref_op ref_variable_length_merge_states = {.name = "variable_length_merge_states",
                                                 .defaults = "h=2 d=64",
                                                 .dims = variable_dims,
                                                 .fill = variable_fill,
                                                 .rows = rows_of,
                                                 .ref = variable_ref,
                                                 .slack = states_slack};
