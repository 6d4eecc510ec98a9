// SPDX-License-Identifier: Apache-2.0
//
// References of the rope operators that round to fp8, straight from include/bolide/rope.h. A row is
// one token. Positions in the table are drawn, some of them outside it.

#include "page_ref.h"

#include <math.h>

/* The token's rows of x, turned or not, times scale, at y; at < 0 skips the token. y has heads
 * `step` apart. */
static void quantize(const ref_call *c, const char *input, ref_tensor *y, int64_t row, int64_t at,
                     int64_t step, const char *scale, int turns) {
    const ref_tensor *x = ref_in(c, input), *cache = ref_in(c, "cos_sin_cache");
    if (!x || !y || at < 0)
        return;
    const int64_t position = ref_in(c, "pos_ids")->i64[row];
    const int64_t d = x->shape[x->ndim - 1], h = x->ndim == 3 ? x->shape[1] : 1;
    const int found = turns && position >= 0 && position < cache->shape[0];
    const int halves = (int)ref_i64(c, "is_neox");
    const double factor = (double)(float)ref_f64(c, scale);
    for (int64_t head = 0; head < h; head++) {
        const double *in = x->f64 + (row * h + head) * d;
        for (int64_t i = 0; i < d; i++) {
            double value = in[i];
            if (found) {
                const int64_t pair = halves ? i % (d / 2) : i / 2;
                const int second = halves ? i >= d / 2 : i % 2 == 1;
                const double *factors = cache->f64 + position * d;
                const double cosine = factors[pair], sine = factors[d / 2 + pair];
                const double a = in[halves ? pair : 2 * pair];
                const double b = in[halves ? pair + d / 2 : 2 * pair + 1];
                value = second ? b * cosine + a * sine : a * cosine - b * sine;
            }
            y->f64[at + head * step + i] = ref_held(value * factor, y->dtype);
        }
    }
}

/* To a tensor of the shape of its input. */
static void to_tensor(const ref_call *c, const char *input, const char *output, int64_t row,
                      const char *scale, int turns) {
    ref_tensor *y = ref_out(c, output);
    const int64_t d = y ? y->shape[y->ndim - 1] : 0;
    quantize(c, input, y, row, y ? row * (y->elems / (y->shape[0] + !y->shape[0])) : 0, d, scale,
             turns);
}

static void queries(const ref_call *c, int64_t row) {
    to_tensor(c, "q_rope", "q_rope_out", row, "quant_scale_q", 1);
    to_tensor(c, "q_nope", "q_nope_out", row, "quant_scale_q", 0);
}

static void quantize_ref(const ref_call *c, int64_t row) {
    queries(c, row);
    to_tensor(c, "k_rope", "k_rope_out", row, "quant_scale_kv", 1);
    to_tensor(c, "k_nope", "k_nope_out", row, "quant_scale_kv", 0);
}

static int64_t tokens(const ref_call *c) {
    return ref_dim(c, "n");
}

static void table_fill(ref_call *c) {
    ref_tensor *p = ref_values(c, "pos_ids"), *cache = ref_values(c, "cos_sin_cache");
    const int64_t rows = cache->shape[0], d = cache->shape[1];
    for (int64_t i = 0; i < p->elems; i++)
        p->i64[i] = ref_between(c, 7, (uint64_t)i, -1, rows);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < d / 2; i++) {
            const double angle = (double)r * pow(1e4, -2.0 * (double)i / (double)d);
            cache->f64[r * d + i] = cos(angle);
            cache->f64[r * d + d / 2 + i] = sin(angle);
        }
    }
}

/* Two products and a sum, in float32, stand behind an element. */
static int64_t two(const ref_call *c) {
    (void)c;
    return 2;
}

/* Every input read once, a byte written for each element, a row of the table a token. */
static double bytes(const ref_call *c) {
    const char *const names[] = {"q_rope", "k_rope", "q_nope", "k_nope"};
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        const ref_tensor *x = ref_in(c, names[i]);
        sum += x ? (double)x->elems * (bolide_dtype_of(x->dtype).bits / 8.0 + 1) : 0;
    }
    return sum + (double)ref_dim(c, "n") * (4.0 * (double)ref_dim(c, "d_rope") + 4);
}

#define PARTS "q_nope=given k_nope=given q_nope_out=given k_nope_out=given"

const ref_op ref_rope_quantize_fp8 = {.name = "rope_quantize_fp8",
                                      .defaults =
                                          "n=5 h_q=4 h_kv=2 d_rope=64 d_nope=64 max_pos=100 " PARTS,
                                      .fill = table_fill,
                                      .rows = tokens,
                                      .ref = quantize_ref,
                                      .reduction = two,
                                      .bytes = bytes};

const ref_op ref_mla_rope_quantize_fp8 = {.name = "mla_rope_quantize_fp8",
                                          .defaults = "n=5 h_q=4 d_rope=64 d_nope=512 max_pos=100",
                                          .fill = table_fill,
                                          .rows = tokens,
                                          .ref = quantize_ref,
                                          .reduction = two,
                                          .bytes = bytes};

/* ---- rope_quantize_fp8_append_paged_kv_cache ------------------------------------------------ */

/* The key mla=1 asks for keys without heads and the caches that go with them; stated=0 leaves the
 * number page_size to the caches. */
static void append_dims(ref_call *c) {
    const ref_page_table *t = ref_page_draw(c);
    ref_fix_dim(c, "n", t->tokens + REF_PAGE_SKIPPED);
    if (ref_key(c, "stated", 1))
        ref_set_i64(c, "page_size", t->page_size);
    ref_set_dim(c, "page_size", t->page_size);
    ref_fix_dim(c, "p", t->pages + ref_count(c, "spare", 1, 0));
    ref_set_shape(c, "kv_indices", 1, (const int64_t[]){t->pages});
    if (ref_key(c, "mla", 0)) {
        ref_give(c, "ckv_cache");
        ref_give(c, "kpe_cache");
        return;
    }
    ref_set_dim(c, "h_kv", 2);
    const int64_t nope = ref_given(c, "k_nope") ? ref_dim(c, "d_nope") : 0;
    ref_set_dim(c, "d_qk", ref_dim(c, "d_rope") + nope);
    ref_set_dim(c, "d_vo", 64);
    ref_give(c, "v");
    ref_give(c, "k_cache");
    ref_give(c, "v_cache");
}

static void append_fill(ref_call *c) {
    ref_page_fill(c);
    table_fill(c);
}

/* Element of (the token, head 0, channel 0) in a cache; -1 for a token that is skipped. Every page
 * of a request is taken as full. */
static int64_t place(const ref_call *c, const ref_tensor *cache, int64_t row, int hnd,
                     int64_t *head_step) {
    const ref_page_table *t = ref_state(c, sizeof *t);
    const int64_t r = ref_in(c, "batch_indices")->i64[row];
    const int64_t position = ref_in(c, "positions")->i64[row];
    const ref_tensor *indptr = ref_in(c, "kv_indptr");
    if (!cache || r < 0 || r >= t->b || position < 0)
        return -1;
    const int64_t index = indptr->i64[r] + position / t->page_size;
    if (index >= indptr->i64[r + 1])
        return -1;
    const int64_t page = ref_in(c, "kv_indices")->i64[index], slot = position % t->page_size;
    const int64_t d = cache->shape[cache->ndim - 1];
    const int64_t heads = cache->ndim == 3 ? 1 : cache->shape[hnd ? 1 : 2];
    *head_step = hnd ? t->page_size * d : d;
    return page * t->page_size * heads * d + slot * (hnd ? d : heads * d);
}

/* To the channels behind `first` of a cache. */
static void to_cache(const ref_call *c, const char *input, const char *output, int64_t row,
                     int64_t first, int turns) {
    ref_tensor *y = ref_out(c, output);
    int64_t step = 0;
    const int64_t at = place(c, y, row, ref_is(c, "kv_layout", "HND"), &step);
    quantize(c, input, y, row, at < 0 ? -1 : at + first, step, "quant_scale_kv", turns);
}

static void append_ref(const ref_call *c, int64_t row) {
    queries(c, row);
    to_cache(c, "k_rope", "k_cache", row, 0, 1);
    to_cache(c, "k_nope", "k_cache", row, ref_dim(c, "d_rope"), 0);
    to_cache(c, "v", "v_cache", row, 0, 0);
    to_cache(c, "k_rope", "kpe_cache", row, 0, 1);
    to_cache(c, "k_nope", "ckv_cache", row, 0, 0);
}

static double append_bytes(const ref_call *c) {
    const ref_tensor *v = ref_in(c, "v");
    return bytes(c) + (v ? (double)v->elems * (bolide_dtype_of(v->dtype).bits / 8.0 + 1) : 0);
}

const ref_op ref_rope_quantize_fp8_append_paged_kv_cache = {
    .name = "rope_quantize_fp8_append_paged_kv_cache",
    .defaults = "b=3 h_q=4 d_rope=64 d_nope=64 max_pos=100 q_nope=given k_nope=given "
                "q_nope_out=given",
    .keys = "len max page spare append mla stated",
    .dims = append_dims,
    .fill = append_fill,
    .rows = tokens,
    .ref = append_ref,
    .reduction = two,
    .bytes = append_bytes};
