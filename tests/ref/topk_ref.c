// SPDX-License-Identifier: Apache-2.0
//
// References of the top-k operators: all columns of the window sorted by rank, the first k taken.

#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct column {
    double x;
    int64_t index;
    int large; /* of equal values the highest index comes first */
} column;

static int by_rank(const void *pa, const void *pb) {
    const column *a = pa, *b = pb;
    if (isnan(a->x) != isnan(b->x))
        return isnan(a->x) ? 1 : -1;
    if (!isnan(a->x) && a->x != b->x)
        return a->x > b->x ? -1 : 1;
    return (a->index < b->index) != a->large ? -1 : 1;
}

static int by_index(const void *pa, const void *pb) {
    const column *a = pa, *b = pb;
    return a->index < b->index ? -1 : 1;
}

typedef struct window {
    int64_t start, length;
} window;

static window clamp(const ref_tensor *in, int64_t start, int64_t length) {
    const int64_t v = in->shape[1];
    start = start < 0 ? 0 : start > v ? v : start;
    length = length < 0 ? 0 : length > v - start ? v - start : length;
    return (window){start, length};
}

/* The taken columns in order, relative to the window; index -1 behind the last. */
static column *take(const ref_tensor *in, int64_t row, window w, int64_t k, int large, int sorted) {
    column *c = calloc((size_t)(w.length + k) + 1, sizeof *c);
    if (!c)
        abort();
    const double *x = in->f64 + row * in->shape[1] + w.start;
    for (int64_t i = 0; i < w.length; i++)
        c[i] = (column){x[i], i, large};
    if (w.length > k || sorted)
        qsort(c, (size_t)w.length, sizeof *c, by_rank);
    const int64_t n = w.length < k ? w.length : k;
    if (!sorted)
        qsort(c, (size_t)n, sizeof *c, by_index);
    for (int64_t i = n; i < k; i++)
        c[i] = (column){-INFINITY, -1, 0};
    return c;
}

static int64_t element(const ref_call *c, const char *name, int64_t i, int64_t absent) {
    const ref_tensor *t = ref_in(c, name);
    return t ? t->i64[i] : absent;
}

static int64_t score_rows(const ref_call *c) {
    const ref_tensor *in = ref_in(c, "input");
    return (in ? in : ref_in(c, "logits"))->shape[0];
}

/* ---- plain -------------------------------------------------------------------------------- */

static void put_plain(const ref_call *c, int64_t row, const column *t, int64_t k,
                      const char *indices, const char *values) {
    for (int64_t i = 0; i < k; i++) {
        ref_out(c, indices)->i64[row * k + i] = t[i].index;
        if (ref_out(c, values))
            ref_out(c, values)->f64[row * k + i] = t[i].x;
    }
}

static void top_k_ref(const ref_call *c, int64_t row) {
    const ref_tensor *in = ref_in(c, "input");
    const int64_t k = ref_i64(c, "k");
    column *t = take(in, row, (window){0, in->shape[1]}, k, ref_is(c, "tie_break", "large"),
                     (int)ref_i64(c, "sorted"));
    put_plain(c, row, t, k, "indices", "values");
    free(t);
}

static void topk_clusters_exact_ref(const ref_call *c, int64_t row) {
    const ref_tensor *in = ref_in(c, "logits");
    const int64_t k = ref_i64(c, "top_k");
    column *t = take(in, row, (window){0, in->shape[1]}, k, 0, 0);
    put_plain(c, row, t, k, "indices", "values");
    free(t);
}

static void top_k_varlen_ref(const ref_call *c, int64_t row) {
    const ref_tensor *in = ref_in(c, "logits");
    const int64_t k = ref_i64(c, "top_k"), next = ref_i64(c, "next_n");
    const int64_t tokens = ref_in(c, "seq_lens")->i64[row / next] - next + row % next + 1;
    const int64_t length = tokens < 0 ? 0 : tokens / ref_i64(c, "compress_ratio");
    column *t = take(in, row, clamp(in, 0, length), k, 0, 0);
    put_plain(c, row, t, k, "out_indices", "out_values");
    free(t);
}

/* ---- mapped ------------------------------------------------------------------------------- */

static void put_ragged(const ref_call *c, int64_t row, const ref_tensor *in, window w, int64_t k,
                       int large) {
    column *t = take(in, row, w, k, large, 0);
    for (int64_t i = 0; i < k; i++)
        ref_out(c, "out")->i64[row * k + i] =
            t[i].index < 0 ? -1 : t[i].index + ref_in(c, "offsets")->i64[row];
    free(t);
}

static void top_k_ragged_transform_ref(const ref_call *c, int64_t row) {
    const ref_tensor *in = ref_in(c, "input");
    put_ragged(c, row, in,
               clamp(in, element(c, "row_starts", row, 0), element(c, "lengths", row, 0)),
               ref_i64(c, "k"), ref_is(c, "tie_break", "large"));
}

static void topk_clusters_ragged_transform_ref(const ref_call *c, int64_t row) {
    const ref_tensor *in = ref_in(c, "logits");
    put_ragged(c, row, in, clamp(in, 0, element(c, "seq_lens", row, 0)), ref_i64(c, "top_k"), 0);
}

static int64_t page_of(const ref_tensor *table, int64_t request, int64_t page) {
    if (request < 0 || request >= table->shape[0] || page < 0 || page >= table->shape[1])
        return -1;
    return table->i64[request * table->shape[1] + page];
}

static void put_paged(const ref_call *c, int64_t row, const column *t, int64_t k, int64_t size) {
    const int64_t request = element(c, "row_to_batch", row, row);
    const int64_t first =
        element(c, "page_table_row_starts", row, element(c, "row_starts", row, 0));
    ref_tensor *raw = ref_out(c, "out_raw_indices");
    for (int64_t i = 0; i < k; i++) {
        int64_t *out = &ref_out(c, "out")->i64[row * k + i];
        const int64_t page =
            page_of(ref_in(c, "src_page_table"), request, first + t[i].index / size);
        *out = t[i].index < 0 || page < 0 ? -1 : page * size + t[i].index % size;
        if (raw)
            raw->i64[row * k + i] = t[i].index;
    }
}

static void top_k_page_table_transform_ref(const ref_call *c, int64_t row) {
    const ref_tensor *in = ref_in(c, "input");
    const int64_t k = ref_i64(c, "k");
    const window w = clamp(in, element(c, "row_starts", row, 0), element(c, "lengths", row, 0));
    column *t = take(in, row, w, k, ref_is(c, "tie_break", "large"), 0);
    put_paged(c, row, t, k, ref_i64(c, "page_size"));
    free(t);
}

static void topk_clusters_page_table_transform_ref(const ref_call *c, int64_t row) {
    const ref_tensor *in = ref_in(c, "logits");
    const int64_t k = ref_i64(c, "top_k");
    column *t = take(in, row, clamp(in, 0, element(c, "seq_lens", row, 0)), k, 0, 0);
    put_paged(c, row, t, k, 1);
    free(t);
}

/* ---- inputs ------------------------------------------------------------------------------- */

/* Rows by the key kind: normal, ties (few values), winners (100 large, the rest equal), close
 * (neighbours in f32), few (three numbers, the rest -inf), none (all -inf), nan (a third is NaN),
 * zeros (of both signs). */
static double score(const ref_call *c, const char *kind, uint64_t at, int64_t i, int64_t v) {
    const double u = ref_uniform(c, 21, at);
    if (!strcmp(kind, "ties"))
        return floor(6 * u);
    if (!strcmp(kind, "winners"))
        return i % (v / 100 + 1) == 7 ? 1 + u : 0.5;
    if (!strcmp(kind, "close"))
        return 1 + floor(u * 4096) * 0x1p-23;
    if (!strcmp(kind, "few"))
        return i % (v / 3 + 1) == 1 ? u : -INFINITY;
    if (!strcmp(kind, "none"))
        return -INFINITY;
    if (!strcmp(kind, "nan") && u < 0.34)
        return NAN;
    if (!strcmp(kind, "zeros"))
        return u < 0.5 ? -0.0 : 0.0;
    return ref_normal(c, 22, at);
}

static void fill_between(ref_call *c, const char *name, int64_t low, int64_t high) {
    ref_tensor *t = ref_values(c, name);
    for (int64_t i = 0; t && i < t->elems; i++)
        t->i64[i] = ref_between(c, 23 + (uint64_t)name[0], (uint64_t)i, low, high);
}

static void fill(ref_call *c) {
    static const char *const all[] = {"normal", "ties", "few", "nan", "none", "close", "zeros"};
    ref_tensor *in = ref_values(c, "input");
    in = in ? in : ref_values(c, "logits");
    const int64_t v = in->shape[1], wide = ref_key(c, "wide", 0);
    const char *key = ref_key_text(c, "kind"), *kind = key ? key : "normal";
    for (int64_t at = 0; at < in->elems; at++)
        in->f64[at] =
            score(c, !strcmp(kind, "mixed") ? all[at / v % 7] : kind, (uint64_t)at, at % v, v);
    const int64_t ratio = ref_key(c, "compress_ratio", 1);
    fill_between(c, "lengths", -wide, v + wide);
    fill_between(c, "seq_lens", -wide, v * ratio + wide);
    fill_between(c, "row_starts", -wide, v / 2 + wide);
    fill_between(c, "page_table_row_starts", -wide, 3 + wide);
    fill_between(c, "offsets", 0, 1000000);
    fill_between(c, "src_page_table", -wide, 500);
    fill_between(c, "pre_idx", -wide, v ? v - 1 : 0);
    if (ref_values(c, "src_page_table"))
        fill_between(c, "row_to_batch", -wide,
                     ref_values(c, "src_page_table")->shape[0] - 1 + wide);
}

#define TOPK_REF(op, numbers)                                                                      \
    const ref_op ref_##op = {.name = #op,                                                          \
                             .defaults = "n=5 v=100 " numbers,                                     \
                             .keys = "kind wide",                                                  \
                             .fill = fill,                                                         \
                             .rows = score_rows,                                                   \
                             .ref = op##_ref}

TOPK_REF(top_k, "k=10");
TOPK_REF(topk_clusters_exact, "top_k=10");
TOPK_REF(top_k_varlen, "top_k=10");
TOPK_REF(top_k_page_table_transform, "k=10 b=5 pages=100");
TOPK_REF(topk_clusters_page_table_transform, "top_k=10 pages=100");
TOPK_REF(top_k_ragged_transform, "k=10");
TOPK_REF(topk_clusters_ragged_transform, "top_k=10");
