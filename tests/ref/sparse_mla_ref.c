// SPDX-License-Identifier: Apache-2.0
//
// Reference of sparse_mla, straight from include/bolide/sparse_mla.h. A row is a query token and a
// head. Rows of the caches that no list names hold NaN, lists have gaps, entries behind the cache
// and lengths beyond their ends.
//
// Keys: n tokens, h heads, d_qk and d_vo, k entries a token over pages= pages of page= rows; b
// requests where seq_lens is given; k_x, pages_x, page_x of the second list, m_x where it has
// pages; gaps=1 for lists of nothing but gaps.

#include "ref.h"

#include <bolide/sparse_mla.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The two lists under their names. */
typedef struct list {
    const char *cache, *indices, *tables, *lens;
    uint64_t stream; /* of random numbers */
} list;

static const list lists[2] = {
    {"kv_cache", "indices", NULL, "topk_lens", 100},
    {"extra_kv_cache", "extra_indices", "extra_block_tables", "extra_topk_lens", 200},
};

/* ---- shapes ------------------------------------------------------------------------------- */

static int64_t query_dtype(const ref_call *c) {
    const char *x = ref_key_text(c, "x");
    return x ? bolide_dtype_parse(x) : BOLIDE_F16;
}

static int is_packed(const ref_call *c) {
    return !ref_is(c, "kv_format", "PLAIN");
}

static void dims(ref_call *c) {
    const int packed = is_packed(c);
    const int64_t dtype = query_dtype(c);
    const int narrow = dtype == BOLIDE_F8_E4M3FN || dtype == BOLIDE_F8_E5M2;
    const int64_t d = !packed ? 192 : ref_is(c, "kv_format", "FP8_656") ? 576 : 512;
    ref_set_dim(c, "n", ref_key(c, "n", 3));
    ref_set_dim(c, "h_q", ref_key(c, "h", 4));
    ref_set_dim(c, "d_qk", ref_key(c, "d_qk", d));
    ref_set_dim(c, "d_vo", ref_key(c, "d_vo", packed ? 512 : 128));
    ref_set_dim(c, "k", ref_key(c, "k", 40));
    ref_set_dim(c, "p", ref_key(c, "pages", 30));
    ref_set_dim(c, "page_size", ref_count(c, "page", 4, 0));
    ref_set_dim(c, "b", ref_key(c, "b", 1));
    ref_set_dtype(c, "kv_cache", packed ? BOLIDE_U8 : dtype);
    ref_set_dtype(c, "out", narrow ? BOLIDE_BF16 : dtype);
    ref_set_shape(c, "bmm1_scale", 1, (const int64_t[]){1});
    ref_set_shape(c, "bmm2_scale", 1, (const int64_t[]){1});
    ref_set_dim(c, "p_x", ref_key(c, "pages_x", 20));
    ref_set_dim(c, "page_size_x", ref_key(c, "page_x", 3));
    ref_set_dim(c, "k_x", ref_key(c, "k_x", 30));
    ref_set_dim(c, "m_x", ref_key(c, "m_x", 7));
    if (ref_given(c, "extra_kv_cache") && !ref_given(c, "extra_block_tables"))
        ref_give(c, "extra_indices");
}

/* ---- the keys of a token ------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* How many keys the request's length lets a token count. */
static int64_t keys_before(const ref_call *c, int64_t token) {
    const ref_tensor *lens = ref_in(c, "seq_lens"), *indptr = ref_in(c, "qo_indptr");
    const int64_t b = lens->shape[0], each = ref_dim(c, "n") / b;
    for (int64_t r = 0; r < b; r++) {
        const int64_t start = indptr ? indptr->i64[r] : r * each;
        const int64_t stop = indptr ? indptr->i64[r + 1] : start + each;
        if (token >= start && token < stop)
            return lens->i64[r] - (stop - token) + 1;
    }
    return 0;
}

/* Keys that a list has for a token, gaps among them. */
static int64_t count_of(const ref_call *c, int which, int64_t token) {
    const list *s = &lists[which];
    const ref_tensor *entries = ref_in(c, s->indices), *lens = ref_in(c, s->lens);
    const ref_tensor *tables = s->tables ? ref_in(c, s->tables) : NULL;
    if (!entries && !tables)
        return 0;
    int64_t count = tables ? tables->shape[1] * ref_in(c, s->cache)->shape[1] : entries->shape[1];
    if (lens)
        count = least(count, lens->i64[token] - (which ? ref_i64(c, "extra_topk_lens_offset") : 0));
    return which == 0 && ref_in(c, "seq_lens") ? least(count, keys_before(c, token)) : count;
}

/* The row of the cache behind a key; -1: none. */
static int64_t row_of(const ref_call *c, int which, int64_t token, int64_t key) {
    const list *s = &lists[which];
    const ref_tensor *cache = ref_in(c, s->cache), *entries = ref_in(c, s->indices);
    const ref_tensor *tables = s->tables ? ref_in(c, s->tables) : NULL;
    const int64_t size = cache->shape[1], rows = cache->shape[0] * size;
    int64_t row;
    if (tables) {
        const int64_t page = tables->i64[token * tables->shape[1] + key / size];
        row = page < 0 ? -1 : page * size + key % size;
    } else {
        row = entries->i64[token * entries->shape[1] + key];
    }
    return row < rows ? row : -1;
}

/* ---- values ------------------------------------------------------------------------------- */

/* Lists with gaps, repetitions and entries behind the cache. */
static void fill_entries(ref_call *c, const list *s, ref_tensor *x, int64_t rows) {
    const int gaps = ref_key(c, "gaps", 0) != 0;
    for (int64_t i = 0; x && i < x->elems; i++) {
        const double die = ref_uniform(c, s->stream, (uint64_t)i);
        x->i64[i] = die < 0.12 || gaps ? -1
                    : die < 0.14       ? INT32_MIN
                    : die < 0.16       ? rows
                    : die < 0.18       ? INT32_MAX
                    : rows > 0         ? ref_between(c, s->stream + 1, (uint64_t)i, 0, rows - 1)
                                       : -1;
    }
}

/* From below 0 to beyond the list. */
static void fill_lens(ref_call *c, const char *name, uint64_t stream, int64_t low, int64_t high) {
    ref_tensor *x = ref_values(c, name);
    for (int64_t i = 0; x && i < x->elems; i++)
        x->i64[i] = ref_between(c, stream, (uint64_t)i, low, high);
}

static void fill_requests(ref_call *c) {
    ref_tensor *indptr = ref_values(c, "qo_indptr");
    const int64_t n = ref_dim(c, "n"), b = ref_dim(c, "b");
    for (int64_t r = 0, at = 0; indptr && r <= b && r < indptr->elems; r++) {
        indptr->i64[r] = r == b ? n : at;
        at = ref_between(c, 300, (uint64_t)r, at, n);
    }
    fill_lens(c, "seq_lens", 301, 0, 2 * ref_dim(c, "k"));
}

/* A random key of the packed formats; NaN in all of it where nobody may look. */
static void fill_packed_key(ref_call *c, const list *s, ref_tensor *x, int64_t row, int wanted) {
    const int is_656 = ref_is(c, "kv_format", "FP8_656");
    const int64_t size = x->shape[1], width = x->shape[2], page = row / size, at = row % size;
    int64_t *values = x->i64 + page * size * width + at * (is_656 ? width : 576);
    int64_t *scales = is_656 ? values + 512 : x->i64 + page * size * width + size * 576 + at * 8;
    const int64_t narrow = is_656 ? 512 : 448;
    int64_t *rope = is_656 ? values + 528 : values + 448;
    for (int64_t i = 0; i < narrow; i++) {
        const uint64_t bits = ref_random(c, s->stream + 2, (uint64_t)(row * 1024 + i));
        values[i] = wanted ? (int64_t)((bits & 0x87) | (5 + (bits >> 8) % 4) << 3) : 0x7F;
    }
    for (int64_t i = 0; i < 4 && is_656; i++) {
        const float scale = (float)(0.2 + ref_uniform(c, s->stream + 3, (uint64_t)(row * 4 + i)));
        unsigned char bytes[4];
        memcpy(bytes, &scale, sizeof bytes);
        for (int k = 0; k < 4; k++)
            scales[4 * i + k] = bytes[k];
    }
    for (int64_t i = 0; i < 8 && !is_656; i++)
        scales[i] = !wanted || i == 7
                        ? 255
                        : 123 + ref_between(c, s->stream + 3, (uint64_t)(row * 8 + i), 0, 3);
    for (int64_t i = 0; i < 64; i++) {
        const uint64_t bits = ref_random(c, s->stream + 4, (uint64_t)(row * 64 + i));
        rope[2 * i] = (int64_t)(bits & 255);
        rope[2 * i + 1] = wanted ? 0x3F | (int64_t)(bits >> 8 & 128) : 0x7F;
        if (!wanted)
            rope[2 * i] = 0xFF;
    }
}

static void fill_cache(ref_call *c, int which) {
    const list *s = &lists[which];
    ref_tensor *x = ref_values(c, s->cache);
    if (!x || !x->elems)
        return;
    const int64_t rows = x->shape[0] * x->shape[1], width = x->shape[2];
    unsigned char *wanted = calloc((size_t)rows, 1);
    for (int64_t token = 0; wanted && token < ref_dim(c, "n"); token++) {
        for (int64_t key = 0; key < count_of(c, which, token); key++) {
            const int64_t row = row_of(c, which, token, key);
            if (row >= 0)
                wanted[row] = 1;
        }
    }
    for (int64_t row = 0; wanted && row < rows; row++) {
        if (x->i64)
            fill_packed_key(c, s, x, row, wanted[row]);
        for (int64_t i = 0; x->f64 && !wanted[row] && i < width; i++)
            x->f64[row * width + i] = NAN;
    }
    free(wanted);
}

/* Whether a tensor, if it is there, has n rows of integers; not so where it is wrong on purpose. */
static int has_rows(const ref_call *c, const char *name, int32_t ndim, int64_t n) {
    const ref_tensor *x = name ? ref_in(c, name) : NULL;
    return !x || (x->i64 && x->ndim == ndim && x->shape[0] == n);
}

static int is_sound(const ref_call *c) {
    const int64_t n = ref_dim(c, "n"), b = ref_dim(c, "b");
    const int64_t width = ref_is(c, "kv_format", "FP8_656")   ? 656
                          : ref_is(c, "kv_format", "FP8_584") ? 584
                                                              : ref_dim(c, "d_qk");
    int sound = has_rows(c, "seq_lens", 1, b) && has_rows(c, "qo_indptr", 1, b + 1) &&
                (!ref_in(c, "seq_lens") || b > 0);
    for (int which = 0; which < 2; which++) {
        const list *s = &lists[which];
        const ref_tensor *cache = ref_in(c, s->cache);
        sound = sound && has_rows(c, s->indices, 2, n) && has_rows(c, s->tables, 2, n) &&
                has_rows(c, s->lens, 1, n) &&
                (!cache ||
                 (cache->ndim == 3 && cache->shape[2] == width && !cache->i64 == !is_packed(c)));
    }
    return sound;
}

static void fill(ref_call *c) {
    if (!is_sound(c))
        return;
    fill_requests(c);
    for (int which = 0; which < 2; which++) {
        const list *s = &lists[which];
        const ref_tensor *cache = ref_in(c, s->cache);
        ref_tensor *tables = s->tables ? ref_values(c, s->tables) : NULL;
        ref_tensor *entries = ref_values(c, s->indices);
        const ref_tensor *any = tables ? tables : entries;
        if (!cache || !any)
            continue;
        const int64_t offset = which ? ref_i64(c, "extra_topk_lens_offset") : 0;
        const int64_t most = any->shape[1] * (tables ? cache->shape[1] : 1);
        fill_entries(c, s, entries, cache->shape[0] * cache->shape[1]);
        fill_entries(c, s, tables, cache->shape[0]);
        fill_lens(c, s->lens, s->stream + 5, offset - 2, offset + most + 5);
    }
    fill_cache(c, 0);
    fill_cache(c, 1);
}

/* ---- reading a key ------------------------------------------------------------------------- */

static double e4m3(int64_t code) {
    const int64_t e = code >> 3 & 15, m = code & 7;
    const double x = e ? ldexp(8 + (double)m, (int)e - 10) : ldexp((double)m, -9);
    return (code & 127) == 127 ? NAN : code & 128 ? -x : x;
}

static double float_of(const int64_t *bytes, int count) {
    unsigned char b[4] = {0};
    float x;
    for (int i = 0; i < count; i++)
        b[4 - count + i] = (unsigned char)bytes[i];
    memcpy(&x, b, sizeof x);
    return x;
}

/* Element i of a row of a cache. */
static double key_element(const ref_call *c, const ref_tensor *x, int64_t row, int64_t i) {
    const int64_t size = x->shape[1], width = x->shape[2], page = row / size, at = row % size;
    if (x->f64)
        return x->f64[row * width + i];
    const int64_t *bytes = x->i64 + page * size * width;
    if (ref_is(c, "kv_format", "FP8_656")) {
        bytes += at * width;
        return i < 512 ? e4m3(bytes[i]) * float_of(bytes + 512 + i / 128 * 4, 4)
                       : float_of(bytes + 528 + 2 * (i - 512), 2);
    }
    const int64_t *values = bytes + at * 576, *scales = bytes + size * 576 + at * 8;
    return i < 448 ? e4m3(values[i]) * ldexp(1, (int)scales[i / 64] - 127)
                   : float_of(values + 448 + 2 * (i - 448), 2);
}

/* ---- one row ------------------------------------------------------------------------------ */

/* The logit of a key; -inf where there is none. */
static double logit_of(const ref_call *c, int64_t index, int which, int64_t key) {
    const ref_tensor *q = ref_in(c, "q"), *cache = ref_in(c, lists[which].cache);
    const int64_t d = q->shape[2], row = row_of(c, which, index / q->shape[1], key);
    double sum = 0;
    for (int64_t i = 0; row >= 0 && i < d; i++)
        sum += q->f64[index * d + i] * key_element(c, cache, row, i);
    return row < 0 ? -INFINITY : sum * ref_number(c, "bmm1_scale", 0, 1);
}

static void ref(const ref_call *c, int64_t index) {
    const ref_tensor *q = ref_in(c, "q"), *sinks = ref_in(c, "sinks");
    ref_tensor *out = ref_out(c, "out"), *lse = ref_out(c, "lse");
    const int64_t token = index / q->shape[1], d = out->shape[2];
    int64_t count[2], at = 0;
    for (int which = 0; which < 2; which++) {
        const int64_t n = count_of(c, which, token);
        count[which] = n > 0 ? n : 0;
    }
    double *logits = calloc((size_t)(count[0] + count[1] + 1), sizeof *logits);
    double *o = out->f64 + index * d, top = sinks ? sinks->f64[index % q->shape[1]] : -INFINITY;
    double sum = sinks ? 1 : 0;
    const double sink = top;
    for (int which = 0; logits && which < 2; which++)
        for (int64_t key = 0; key < count[which]; key++, at++) {
            logits[at] = logit_of(c, index, which, key);
            top = isnan(logits[at]) || isnan(top) ? NAN : fmax(top, logits[at]);
        }
    for (int64_t i = 0; i < d; i++)
        o[i] = 0;
    sum = sinks ? exp(sink - top) : 0;
    at = 0;
    for (int which = 0; logits && top != -INFINITY && which < 2; which++) {
        for (int64_t key = 0; key < count[which]; key++) {
            const double weight = exp(logits[at++] - top);
            const int64_t row = weight == 0 ? -1 : row_of(c, which, token, key);
            sum += weight;
            for (int64_t i = 0; row >= 0 && i < d; i++)
                o[i] += weight * key_element(c, ref_in(c, lists[which].cache), row, i);
        }
    }
    for (int64_t i = 0; i < d; i++)
        o[i] = ref_held(sum == 0 ? 0 : o[i] / sum * ref_number(c, "bmm2_scale", 0, 1), out->dtype);
    const double natural = sum == 0 ? -INFINITY : top + log(sum);
    if (lse)
        lse->f64[index] = ref_i64(c, "return_lse_base_on_e") ? natural : natural / log(2.0);
    free(logits);
}

/* ---- what it costs ------------------------------------------------------------------------ */

static int64_t rows(const ref_call *c) {
    return ref_dim(c, "n") * ref_dim(c, "h_q");
}

static double keys(const ref_call *c) {
    double sum = 0;
    for (int64_t token = 0; token < ref_dim(c, "n"); token++)
        for (int which = 0; which < 2; which++)
            sum += fmax(0, (double)count_of(c, which, token));
    return sum;
}

static int64_t reduction(const ref_call *c) {
    int64_t most = 0;
    for (int64_t token = 0; token < ref_dim(c, "n"); token++) {
        const int64_t count = count_of(c, 0, token) + count_of(c, 1, token);
        most = count > most ? count : most;
    }
    return most + ref_dim(c, "d_qk");
}

/* Logits come out of float32 sums with an error that grows with their size, which grows with the
 * length of the products; exp passes it on. */
static double slack(const ref_call *c) {
    const int64_t q = ref_in(c, "q")->dtype, kv = ref_in(c, "kv_cache")->dtype;
    const int narrow = q == BOLIDE_F8_E4M3FN || q == BOLIDE_F8_E5M2;
    if (ref_on_cuda(c) && q != BOLIDE_F32) {
        /* Tensor cores take weights in 16 bits, off by up to 2^-9 or 2^-12 of themselves; ten times
         * that covers the largest of many outputs. Packed keys are rounded to bf16 besides, which
         * moves a logit by 2^-10 of their usual size and weights by several times that. */
        if (is_packed(c) && (q == BOLIDE_BF16 || narrow))
            return 40 * 0x1p-9;
        return 10 * (q == BOLIDE_BF16 || kv == BOLIDE_BF16 ? 0x1p-9 : 0x1p-12);
    }
    return 1.6e-5 * (1 + (double)ref_dim(c, "d_qk") / 96);
}

static double flops(const ref_call *c) {
    return 2 * keys(c) * (double)ref_dim(c, "h_q") *
           (double)(ref_dim(c, "d_qk") + ref_dim(c, "d_vo"));
}

/* Each key once, also where several tokens name it. */
static double bytes(const ref_call *c) {
    const ref_tensor *cache = ref_in(c, "kv_cache"), *q = ref_in(c, "q");
    const double key = (double)cache->shape[2] * bolide_dtype_of(cache->dtype).bits / 8;
    const double row = (double)(ref_dim(c, "d_qk") + ref_dim(c, "d_vo"));
    return keys(c) * key + (double)rows(c) * row * bolide_dtype_of(q->dtype).bits / 8;
}

const ref_op ref_sparse_mla = {.name = "sparse_mla",
                               .defaults = "bmm1_scale=0.1",
                               .keys = "h pages page k_x pages_x page_x gaps",
                               .dims = dims,
                               .fill = fill,
                               .rows = rows,
                               .ref = ref,
                               .reduction = reduction,
                               .slack = slack,
                               .bytes = bytes,
                               .flops = flops};
