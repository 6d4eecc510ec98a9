// SPDX-License-Identifier: Apache-2.0
//
// Reference of block_sparse_attention, from the matrix: a row looks at every column, sees those
// whose block is in its row block's list, and then counts positions in the matrix.
//
// Keys: M= and N= of the matrix, R= rows of a row block (0: drawn for each), C= keys of a column
// block, parts= how many matrices lie behind one another, kept= per cent of the blocks that are
// seen, row=7:0:3 the numbers of blocks seen by each row block instead.

#include <math.h>
#include <stdlib.h>

#include "attention_batch.h"
#include "cpu/microkernel.h"

typedef struct matrix {
    batch lists; /* a row block as a request, a column block as a page */
    int64_t m, n, c, parts;
} matrix;

/* ---- drawing ------------------------------------------------------------------------------ */

/* Row blocks of one part after the other. */
static void draw_rows(ref_call *c, matrix *x) {
    const int64_t r = ref_key(c, "R", 16);
    batch *t = &x->lists;
    for (int64_t part = 0; part < x->parts; part++) {
        for (int64_t row = 0; row < x->m && t->b < MAX_REQUESTS - 1; t->b++) {
            const int64_t rows = r ? r : ref_between(c, 60, (uint64_t)t->b, 0, 40);
            t->q_len[t->b] = rows < x->m - row ? rows : x->m - row;
            row += t->q_len[t->b];
        }
    }
}

/* Column blocks are drawn as the first of a shuffled list, so that they are distinct and in no
 * order; which of them stays the same from dims to fill. */
static void draw_lists(ref_call *c, matrix *x) {
    batch *t = &x->lists;
    int64_t listed[MAX_REQUESTS];
    const int64_t count = ref_key_list(c, "row", listed, MAX_REQUESTS), all = x->n / x->c;
    const double kept = (double)ref_key(c, "kept", 40) / 100;
    for (int64_t r = 0; r < t->b; r++) {
        int64_t blocks = 0;
        for (int64_t k = 0; k < all; k++)
            blocks += ref_uniform(c, 61, (uint64_t)(r * all + k)) < kept;
        if (count)
            blocks = listed[r % count] < all ? listed[r % count] : all;
        t->kv_len[r] = blocks * x->c;
    }
}

static int64_t part_of(const matrix *x, int64_t row) {
    return x->m ? row / x->m : 0;
}

static void fill_lists(ref_call *c, const matrix *x) {
    const batch *t = &x->lists;
    const int64_t all = x->n / x->c;
    int64_t *order = malloc((size_t)(all + 1) * sizeof *order);
    for (int64_t r = 0; order && r < t->b; r++) {
        for (int64_t i = 0; i < all; i++)
            order[i] = i;
        for (int64_t i = all - 1; i > 0; i--) {
            const int64_t k = ref_between(c, 62, (uint64_t)(r * all + i), 0, i), old = order[i];
            order[i] = order[k];
            order[k] = old;
        }
        for (int64_t e = 0; e < t->page_start[r + 1] - t->page_start[r]; e++)
            attention_write_i64(c, "indices", t->page_start[r] + e,
                                part_of(x, t->q_start[r]) * all + order[e]);
    }
    free(order);
}

/* NaN in the keys that no row block lists. */
static void poison_unseen(ref_call *c, const matrix *x, const char *name) {
    const ref_tensor *list = ref_in(c, "indices");
    ref_tensor *k = ref_values(c, name);
    const int64_t tokens = x->parts * x->n, heads = ref_dim(c, "h_kv");
    char *seen = calloc((size_t)(tokens / x->c + 1), 1);
    if (!k || k->ndim != 3 || !seen || !k->elems || !list) {
        free(seen);
        return;
    }
    for (int64_t i = 0; i < list->elems; i++)
        if (list->i64[i] >= 0 && list->i64[i] < tokens / x->c)
            seen[list->i64[i]] = 1;
    for (int64_t key = 0; key < tokens; key++) {
        for (int64_t i = 0; !seen[key / x->c] && i < heads * k->shape[2]; i++) {
            const int64_t at =
                attention_packed_offset(c, k, key, i / k->shape[2]) + i % k->shape[2];
            if (at < k->elems)
                k->f64[at] = NAN;
        }
    }
    free(seen);
}

static void sparse_dims(ref_call *c) {
    matrix *x = ref_state(c, sizeof *x);
    batch *t = &x->lists;
    x->c = ref_i64(c, "C") == BOLIDE_NO_INT ? 16 : ref_i64(c, "C");
    x->m = ref_i64(c, "M") == BOLIDE_NO_INT ? 64 : ref_i64(c, "M");
    x->n = ref_i64(c, "N") == BOLIDE_NO_INT ? 96 : ref_i64(c, "N");
    x->parts = ref_key(c, "parts", 1);
    if (x->c < 1 || x->m < 0 || x->n < 0) { /* a refusal is being tested */
        x->c = x->c < 1 ? 1 : x->c;
        x->m = x->m < 0 ? 0 : x->m;
        x->n = x->n < 0 ? 0 : x->n;
    }
    draw_rows(c, x);
    draw_lists(c, x);
    t->page_size = x->c;
    attention_add_up(t);
    ref_set_i64(c, "M", x->m);
    ref_set_i64(c, "N", x->n);
    ref_set_i64(c, "C", x->c);
    attention_common_dims(c, t, "head_dim", "k", "v");
    ref_fix_dim(c, "b1", t->b + 1);
    ref_fix_dim(c, "n_kv", x->parts * x->n);
    ref_fix_dim(c, "n_indices", t->pages);
}

static void sparse_fill(ref_call *c) {
    const matrix *x = ref_state(c, sizeof *x);
    const batch *t = &x->lists;
    for (int64_t r = 0; r <= t->b; r++) {
        attention_write_i64(c, "qo_indptr", r, t->q_start[r]);
        attention_write_i64(c, "indptr", r, t->page_start[r]);
    }
    fill_lists(c, x);
    poison_unseen(c, x, "k");
    poison_unseen(c, x, "v");
    attention_fill_mask(c, t);
    attention_fill_scales(c);
}

/* ---- one row ------------------------------------------------------------------------------ */

static double number(const ref_call *c, const char *name, double absent) {
    const double x = ref_f64(c, name);
    return isnan(x) ? absent : x;
}

/* ALiBi's slopes: those of the largest power of two of heads, then every other one of twice it. */
static double slope_of(int64_t head, int64_t heads) {
    int64_t n = 1;
    while (n * 2 <= heads)
        n *= 2;
    const double step = head < n ? 8.0 * (double)(head + 1) : 4.0 * (double)(2 * (head - n) + 1);
    return exp2(-step / (double)n);
}

/* q . k, both turned by their places. */
static double product(const ref_call *c, const double *q, const double *k, int64_t d,
                      double apart) {
    const double theta = number(c, "rope_theta", 1e4), scale = number(c, "rope_scale", 1);
    const int turned = ref_is(c, "pos_encoding_mode", "ROPE_LLAMA");
    double sum = 0;
    for (int64_t i = 0; i < d / 2; i++) {
        const double a = turned ? apart * pow(theta, -2.0 * (double)i / (double)d) / scale : 0;
        const int64_t j = i + d / 2;
        sum += cos(a) * (q[i] * k[i] + q[j] * k[j]) + sin(a) * (q[i] * k[j] - q[j] * k[i]);
    }
    return sum;
}

/* Place of a column in row block r's list of keys; -1 if it is not seen. */
static int64_t place_in_list(const ref_call *c, const matrix *x, int64_t r, int64_t key) {
    const ref_tensor *list = ref_in(c, "indices");
    for (int64_t e = x->lists.page_start[r]; e < x->lists.page_start[r + 1]; e++)
        if (list->i64[e] == key / x->c)
            return (e - x->lists.page_start[r]) * x->c + key % x->c;
    return -1;
}

static int sees(const ref_call *c, const matrix *x, int64_t r, int64_t row, int64_t key) {
    const int64_t place = place_in_list(c, x, r, key), window = ref_i64(c, "window_left");
    const int64_t apart = key % x->n - (row % x->m + x->n - x->m);
    const ref_tensor *bools = ref_in(c, "custom_mask"), *bits = ref_in(c, "packed_custom_mask");
    const batch *t = &x->lists;
    if (place < 0 || (window >= 0 && apart < -window))
        return 0;
    const int64_t at = (row - t->q_start[r]) * t->kv_len[r] + place;
    if (bools)
        return bools->i64[t->mask_elem[r] + at] != 0;
    if (bits)
        return (int)(bits->i64[t->mask_byte[r] + at / 8] >> at % 8 & 1);
    return !t->causal || apart <= 0;
}

static int64_t block_of(const matrix *x, int64_t row) {
    const batch *t = &x->lists;
    int64_t r = 0;
    while (r + 1 < t->b && t->q_start[r + 1] <= row)
        r++;
    return r;
}

static void sparse_ref(const ref_call *c, int64_t index) {
    const matrix *x = ref_state(c, sizeof *x);
    const int64_t h_q = ref_dim(c, "h_q"), h_kv = ref_dim(c, "h_kv");
    const int64_t d = ref_dim(c, "d_qk"), d_vo = ref_dim(c, "d_vo");
    const int64_t row = index / h_q, h = index % h_q, g = h / (h_q / h_kv), r = block_of(x, row);
    const int64_t first = part_of(x, row) * x->n;
    const ref_tensor *q = ref_in(c, "q"), *k = ref_in(c, "k"), *v = ref_in(c, "v");
    const ref_tensor *sinks = ref_in(c, "sinks");
    const double cap = number(c, "logits_soft_cap", 0);
    const double scale = number(c, "sm_scale", 1 / sqrt((double)d)) *
                         ref_number(c, "q_scale", h, 1) * ref_number(c, "k_scale", g, 1);
    const double slope = slope_of(part_of(x, row) * h_q + h, x->parts * h_q);
    ref_tensor *out = ref_out(c, "out"), *lse = ref_out(c, "lse");
    double *o = out->f64 + index * d_vo;
    double *logits = malloc((size_t)(x->n + 1) * sizeof *logits);
    double top = sinks ? sinks->f64[h] : -INFINITY;
    for (int64_t j = 0; logits && j < x->n; j++) {
        logits[j] = -INFINITY;
        if (!sees(c, x, r, row, first + j))
            continue;
        const double apart = (double)(j - (row % x->m + x->n - x->m));
        const double *key = k->f64 + attention_packed_offset(c, k, first + j, g);
        const double s = scale * product(c, q->f64 + index * d, key, d, -apart);
        logits[j] = (cap > 0 ? cap * tanh(s / cap) : s) +
                    (ref_is(c, "pos_encoding_mode", "ALIBI") ? slope * apart : 0);
        top = fmax(top, logits[j]);
    }
    double sum = sinks && top != -INFINITY ? exp(sinks->f64[h] - top) : 0;
    for (int64_t e = 0; e < d_vo; e++)
        o[e] = 0;
    for (int64_t j = 0; logits && j < x->n; j++) {
        if (logits[j] == -INFINITY)
            continue;
        const double w = exp(logits[j] - top);
        const double *value = v->f64 + attention_packed_offset(c, v, first + j, g);
        sum += w;
        for (int64_t e = 0; e < d_vo; e++)
            o[e] += w * value[e];
    }
    const double last = ref_number(c, "v_scale", g, 1) / ref_number(c, "o_scale", 0, 1);
    for (int64_t e = 0; e < d_vo; e++)
        o[e] = ref_held(sum == 0 ? 0 : o[e] / sum * last, out->dtype);
    const double natural = sum == 0 ? -INFINITY : top + log(sum);
    if (lse)
        lse->f64[index] = ref_i64(c, "return_lse_base_on_e") ? natural : natural / log(2.0);
    free(logits);
}

/* ---- what they cost ----------------------------------------------------------------------- */

static int64_t sparse_rows(const ref_call *c) {
    return ref_dim(c, "n") * ref_dim(c, "h_q");
}

static int64_t longest_sum(const ref_call *c) {
    const matrix *x = ref_state(c, sizeof *x);
    return x->n + ref_dim(c, "d_qk");
}

/* As in attention_ref.c. */
static double logit_slack(const ref_call *c) {
    const int64_t q = ref_in(c, "q")->dtype;
    const int bf16 = q == BOLIDE_BF16, cuda = ref_on_cuda(c);
    const int units = !cuda && bf16 && bolide__gemm_bf16(1)->unit;
    if ((!cuda && !units) || q == BOLIDE_F32)
        return cuda ? 3.2e-5 : 1.6e-5;
    return units ? 12 * 0x1p-9 : bf16 ? 10 * 0x1p-9 : 10 * 0x1p-12;
}

static double pairs_of(const matrix *x) {
    double pairs = 0;
    for (int64_t r = 0; r < x->lists.b; r++)
        pairs += (double)x->lists.q_len[r] * (double)x->lists.kv_len[r];
    return pairs;
}

static double flops_of(const ref_call *c) {
    const matrix *x = ref_state(c, sizeof *x);
    return 2 * pairs_of(x) * (double)ref_dim(c, "h_q") *
           (double)(ref_dim(c, "d_qk") + ref_dim(c, "d_vo"));
}

const ref_op ref_block_sparse_attention = {.name = "block_sparse_attention",
                                           .defaults = "R=16",
                                           .keys = "R parts kept row d h_q h_kv d_qk d_vo",
                                           .dims = sparse_dims,
                                           .fill = sparse_fill,
                                           .rows = sparse_rows,
                                           .ref = sparse_ref,
                                           .reduction = longest_sum,
                                           .slack = logit_slack,
                                           .flops = flops_of};
