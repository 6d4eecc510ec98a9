// SPDX-License-Identifier: Apache-2.0
//
// Lengths, page tables, masks, scales and cache contents of a batch. Everything that must not
// matter (unused page tails, pages of nobody, gaps between requests) is NaN.

#include "attention_batch.h"

#include <math.h>
#include <stdlib.h>

/* ---- drawing a batch ---------------------------------------------------------------------- */

void attention_draw_lengths(ref_call *c, batch *t) {
    int64_t len[MAX_REQUESTS];
    const int64_t listed = ref_count_list(c, "len", len, MAX_REQUESTS);
    t->b = listed > 1 ? listed : ref_count(c, "b", 3, 0);
    if (t->b > MAX_REQUESTS) {
        ref_refuse(c, "b: expected at most %d; got %lld", MAX_REQUESTS, (long long)t->b);
        t->b = 0;
    }
    for (int64_t r = 0; r < t->b; r++)
        t->kv_len[r] = listed > 1    ? len[r]
                       : listed == 1 ? len[0]
                                     : ref_between(c, 1, (uint64_t)r, 0, ref_key(c, "max", 150));
}

void attention_add_up(batch *t) {
    for (int64_t r = 0; r < t->b; r++) {
        const int64_t pages = t->page_size ? (t->kv_len[r] + t->page_size - 1) / t->page_size : 0;
        const int64_t elems = t->q_len[r] * t->kv_len[r];
        t->q_start[r + 1] = t->q_start[r] + t->q_len[r];
        t->page_start[r + 1] = t->page_start[r] + pages;
        t->k_start[r + 1] = t->k_start[r] + t->kv_len[r];
        t->v_start[r + 1] = t->v_start[r] + t->kv_len[r];
        t->o_start[r + 1] = t->o_start[r] + t->q_len[r];
        t->mask_elem[r + 1] = t->mask_elem[r] + elems;
        t->mask_byte[r + 1] = t->mask_byte[r] + (elems + 7) / 8;
    }
    t->pages = t->page_start[t->b];
}

/* The dtype of q, also when it comes from x=. */
static int64_t query_dtype(const ref_call *c) {
    const char *x = ref_key_text(c, "x");
    return x && !ref_key_text(c, "q_data_type") ? bolide_dtype_parse(x) : ref_i64(c, "q_data_type");
}

void attention_scale_dims(ref_call *c, int64_t h_q, int64_t h_kv) {
    ref_set_shape(c, "q_scale", 1, (const int64_t[]){h_q});
    ref_set_shape(c, "ckv_scale", 1, (const int64_t[]){1});
    ref_set_shape(c, "kpe_scale", 1, (const int64_t[]){1});
    ref_set_shape(c, "k_scale", 1, (const int64_t[]){h_kv});
    ref_set_shape(c, "v_scale", 1, (const int64_t[]){h_kv});
    ref_set_shape(c, "o_scale", 1, (const int64_t[]){1});
}

/* Sizes as dimensions, from d= or d_qk=, d_vo=. */
void attention_head_dims(ref_call *c) {
    const int64_t d = ref_key(c, "d", 64);
    ref_set_dim(c, "h_q", ref_key(c, "h_q", 4));
    ref_set_dim(c, "h_kv", ref_key(c, "h_kv", 2));
    ref_set_dim(c, "d_qk", ref_key(c, "d_qk", d));
    ref_set_dim(c, "d_vo", ref_key(c, "d_vo", ref_key(c, "d_qk", d)));
    attention_scale_dims(c, ref_dim(c, "h_q"), ref_dim(c, "h_kv"));
}

/* Rows of whole words for the most query tokens of a request. */
static void draft_dims(ref_call *c, const batch *t) {
    int64_t most = 1;
    for (int64_t r = 0; r < t->b; r++)
        most = t->q_len[r] > most ? t->q_len[r] : most;
    const char *dtype = ref_key_text(c, "draft_mask.dtype");
    const int64_t given = dtype ? bolide_dtype_of(bolide_dtype_parse(dtype)).bits : 0;
    const int64_t bits = given ? given : 8; /* what is no dtype is refused later */
    ref_fix_dim(c, "w", (most + bits - 1) / bits);
}

/* Dtypes of keys, values and out, masks and rows. */
void attention_typed_dims(ref_call *c, batch *t, const char *k, const char *v) {
    const int64_t dtype = query_dtype(c);
    const int narrow = dtype == BOLIDE_F8_E4M3FN || dtype == BOLIDE_F8_E5M2;
    if (ref_i64(c, "kv_data_type") == BOLIDE_NO_INT) {
        ref_set_dtype(c, k, dtype);
        ref_set_dtype(c, v, dtype);
    }
    if (ref_i64(c, "o_data_type") == BOLIDE_NO_INT)
        ref_set_dtype(c, "out", narrow ? BOLIDE_BF16 : dtype);
    if (ref_given(c, "custom_mask") || ref_given(c, "packed_custom_mask"))
        ref_set_i64(c, "use_custom_mask", 1);
    t->causal = ref_i64(c, "causal") != 0;
    ref_fix_dim(c, "n", t->q_start[t->b]);
    ref_fix_dim(c, "n_mask", t->mask_elem[t->b]);
    ref_fix_dim(c, "n_mask_bytes", t->mask_byte[t->b]);
    draft_dims(c, t);
}

/* Those, heads and sizes: the same for all planned operators but MLA. */
void attention_common_dims(ref_call *c, batch *t, const char *d_qk, const char *k, const char *v) {
    attention_head_dims(c);
    ref_set_i64(c, "num_qo_heads", ref_dim(c, "h_q"));
    ref_set_i64(c, "num_kv_heads", ref_dim(c, "h_kv"));
    ref_set_i64(c, d_qk, ref_dim(c, "d_qk"));
    if (ref_dim(c, "d_vo") != ref_dim(c, "d_qk"))
        ref_set_i64(c, "head_dim_vo", ref_dim(c, "d_vo"));
    attention_typed_dims(c, t, k, v);
}

/* Lists or block tables, last_page_len or seq_lens. */
void attention_paged_dims(ref_call *c, batch *t, const char *indptr, const char *indices,
                          const char *last_page_len) {
    int64_t width = 1;
    t->list = indices;
    for (int64_t r = 0; r < t->b; r++) {
        const int64_t pages = t->page_start[r + 1] - t->page_start[r];
        width = pages > width ? pages : width;
    }
    if (!ref_given(c, "block_tables")) {
        ref_give(c, indices);
        ref_give(c, indptr);
    } else if (last_page_len) {
        ref_give(c, "seq_lens");
    }
    if (last_page_len && !ref_given(c, "seq_lens"))
        ref_give(c, last_page_len);
    ref_set_i64(c, "page_size", t->page_size);
    ref_fix_dim(c, "p", t->pages + ref_count(c, "spare", 2, 0));
    ref_fix_dim(c, "n_indices", t->pages);
    ref_fix_dim(c, "m", width);
    ref_fix_dim(c, "m_v", width);
    ref_fix_dim(c, "b", t->b);
}

/* ---- values ------------------------------------------------------------------------------- */

void attention_write_i64(ref_call *c, const char *name, int64_t index, int64_t value) {
    ref_tensor *x = ref_values(c, name);
    if (x && index < x->elems)
        x->i64[index] = value;
}

/* Rows of a custom mask are full, empty, sparse or half full. */
static int mask_bit(const ref_call *c, const batch *t, int64_t r, int64_t at) {
    const int64_t row = at / t->kv_len[r];
    const int64_t kind = ref_between(c, 21, (uint64_t)(t->mask_elem[r] + row), 0, 4);
    const double share = kind == 0 ? 1 : kind == 1 ? 0 : kind == 2 ? 0.05 : 0.5;
    return ref_uniform(c, 22, (uint64_t)(t->mask_elem[r] + at)) < share;
}

/* The bits behind a request's last, which nobody may look at, are set. */
void attention_fill_mask(ref_call *c, const batch *t) {
    ref_tensor *bools = ref_values(c, "custom_mask"), *bits = ref_values(c, "packed_custom_mask");
    for (int64_t i = 0; bits && i < bits->elems; i++)
        bits->i64[i] = 0;
    for (int64_t r = 0; r < t->b; r++) {
        const int64_t used = t->q_len[r] * t->kv_len[r], end = t->mask_byte[r] + used / 8;
        if (bits && used % 8 && end < bits->elems)
            bits->i64[end] = 0xff << used % 8 & 0xff;
        for (int64_t at = 0; at < t->q_len[r] * t->kv_len[r]; at++) {
            const int64_t set = mask_bit(c, t, r, at), byte = t->mask_byte[r] + at / 8;
            if (bools && t->mask_elem[r] + at < bools->elems)
                bools->i64[t->mask_elem[r] + at] = set;
            if (bits && byte < bits->elems)
                bits->i64[byte] |= set << (at % 8);
        }
    }
}

/* Bits over query tokens, set or not by chance; those behind the last token are set. */
void attention_fill_draft(ref_call *c, const batch *t) {
    ref_tensor *words = ref_values(c, "draft_mask");
    const int64_t bits = words ? bolide_dtype_of(words->dtype).bits : 8;
    for (int64_t r = 0; words && r < t->b; r++) {
        for (int64_t at = 0; at < t->q_len[r] * words->shape[1]; at++) {
            const int64_t first = at % words->shape[1] * bits;
            int64_t word = 0;
            for (int64_t k = 0; k < bits; k++) {
                const uint64_t number = (uint64_t)(t->q_start[r] * words->shape[1] + at);
                if (first + k >= t->q_len[r] ||
                    ref_uniform(c, 23, number * (uint64_t)bits + (uint64_t)k) < 0.5)
                    word |= (int64_t)1 << k;
            }
            attention_write_i64(c, "draft_mask", t->q_start[r] * words->shape[1] + at, word);
        }
    }
}

/* Scales between 1/2 and 3/2. */
void attention_fill_scales(ref_call *c) {
    static const char *const names[] = {"q_scale",   "k_scale",   "v_scale",      "o_scale",
                                        "ckv_scale", "kpe_scale", "ckv_scale_arr"};
    for (int k = 0; k < 7; k++) {
        ref_tensor *x = ref_values(c, names[k]);
        for (int64_t i = 0; x && i < x->elems; i++)
            x->f64[i] = 0.5 + ref_uniform(c, 30 + (uint64_t)k, (uint64_t)i);
    }
}

/* Page number `index` of the batch, in a random order of the pool: p must be odd or even alike, so
 * the order comes from sorting by drawn numbers. */
static int64_t *page_order(const ref_call *c, int64_t pages) {
    int64_t *order = malloc((size_t)(pages + 1) * sizeof *order);
    for (int64_t i = 0; order && i < pages; i++)
        order[i] = i;
    for (int64_t i = pages - 1; order && i > 0; i--) {
        const int64_t k = ref_between(c, 11, (uint64_t)i, 0, i), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    return order;
}

static int64_t *reversed_order(const int64_t *order, int64_t pages) {
    int64_t *other = malloc((size_t)(pages + 1) * sizeof *other);
    for (int64_t i = 0; order && other && i < pages; i++)
        other[i] = order[pages - 1 - i];
    return other;
}

/* NaN in every row of d elements that is not marked. The others keep the values they were drawn. */
static void poison_unmarked(ref_tensor *x, int64_t d, const unsigned char *marked) {
    for (int64_t i = 0; i < x->elems; i++)
        if (!marked[i / d])
            x->f64[i] = NAN;
}

static unsigned char *no_marks(const ref_tensor *x, int64_t d) {
    return calloc((size_t)(x->elems / (d ? d : 1) + 1), 1);
}

/* First element of a head's row on a page. */
int64_t attention_page_offset(const ref_call *c, const ref_tensor *x, int64_t page, int64_t slot,
                              int64_t head) {
    if (x->ndim == 3) /* one head for all */
        return (page * x->shape[1] + slot) * x->shape[2];
    const int64_t a = x->shape[1], b = x->shape[2], d = x->shape[3];
    const int hnd = ref_is(c, "kv_layout", "HND");
    return ((page * a + (hnd ? head : slot)) * b + (hnd ? slot : head)) * d;
}

/* NaN where no request has a key. */
static void fill_pages(ref_call *c, const batch *t, const char *name, const int64_t *order) {
    ref_tensor *x = ref_values(c, name);
    if (!x || (x->ndim != 4 && x->ndim != 3) || !x->elems)
        return;
    const int64_t heads = x->ndim == 3 ? 1 : ref_dim(c, "h_kv"), d = x->shape[x->ndim - 1];
    unsigned char *marked = no_marks(x, d);
    for (int64_t r = 0; marked && r < t->b; r++) {
        for (int64_t j = 0; j < t->kv_len[r] * heads; j++) {
            const int64_t key = j / heads, entry = t->page_start[r] + key / t->page_size;
            const int64_t at =
                attention_page_offset(c, x, order[entry], key % t->page_size, j % heads);
            if (at + d <= x->elems)
                marked[at / d] = 1;
        }
    }
    if (marked)
        poison_unmarked(x, d, marked);
    free(marked);
}

void attention_fill_paged(ref_call *c, const batch *t, const char *indptr,
                          const char *last_page_len, const char *lens) {
    const char *indices = t->list;
    int64_t *order = page_order(c, ref_dim(c, "p"));
    int64_t *reversed =
        reversed_order(order, ref_dim(c, "p")); /* of values on pages of their own */
    const ref_tensor *table = ref_in(c, "block_tables"), *values = ref_in(c, "v_block_tables");
    for (int64_t r = 0; order && reversed && r < t->b; r++) {
        const int64_t last = t->kv_len[r] % t->page_size;
        attention_write_i64(c, indptr, r, t->page_start[r]);
        attention_write_i64(c, lens, r, t->kv_len[r]);
        if (last_page_len)
            attention_write_i64(c, last_page_len, r, last ? last : t->kv_len[r] ? t->page_size : 0);
        for (int64_t e = t->page_start[r]; e < t->page_start[r + 1]; e++) {
            attention_write_i64(c, indices, e, order[e]);
            if (table)
                attention_write_i64(c, "block_tables", r * table->shape[1] + e - t->page_start[r],
                                    order[e]);
            if (values)
                attention_write_i64(c, "v_block_tables",
                                    r * values->shape[1] + e - t->page_start[r], reversed[e]);
        }
    }
    attention_write_i64(c, indptr, t->b, t->pages);
    static const char *const caches[] = {"k_cache", "v_cache", "ckv_cache", "kpe_cache"};
    for (int k = 0; order && reversed && k < 4; k++)
        fill_pages(c, t, caches[k], values && k == 1 ? reversed : order);
    free(order);
    free(reversed);
}

/* Entries behind a request's pages in a block table are read by nobody. */
void attention_fill_table_tails(ref_call *c, const batch *t) {
    static const char *const names[] = {"block_tables", "v_block_tables"};
    for (int k = 0; k < 2; k++) {
        ref_tensor *table = ref_values(c, names[k]);
        for (int64_t r = 0; table && r < t->b; r++)
            for (int64_t e = t->page_start[r + 1] - t->page_start[r]; e < table->shape[1]; e++)
                table->i64[r * table->shape[1] + e] = -1;
    }
}

/* Rows of each request from q_len=3:1:8 (one number for all), else drawn from 0 … qmax; never
 * more than there are keys, unless q_len says so. */
void attention_draw_queries(ref_call *c, batch *t) {
    int64_t len[MAX_REQUESTS];
    const int64_t listed = ref_count_list(c, "q_len", len, MAX_REQUESTS);
    for (int64_t r = 0; r < t->b; r++) {
        const int64_t most = ref_key(c, "qmax", t->kv_len[r]);
        t->q_len[r] = listed > 1    ? r < listed ? len[r] : 0
                      : listed == 1 ? len[0]
                                    : ref_between(c, 2, (uint64_t)r, 0,
                                                  most < t->kv_len[r] ? most : t->kv_len[r]);
    }
}

/* Items of 1 to 6 tokens with a delimiter before each, from the prefix on. */
void attention_item_dims(ref_call *c, batch *t) {
    int64_t longest = 0;
    if (!ref_given(c, "token_pos_in_items_ptr"))
        return;
    ref_give(c, "prefix_len_ptr");
    for (int64_t r = 0; r < t->b; r++) {
        t->prefix[r] = ref_between(c, 40, (uint64_t)r, 0, t->kv_len[r]);
        const int64_t rest = t->kv_len[r] - t->prefix[r];
        longest = rest > longest ? rest : longest;
    }
    ref_set_i64(c, "token_pos_in_items_len", longest);
    ref_fix_dim(c, "n_token_pos", longest * t->b);
}

void attention_fill_items(ref_call *c, const batch *t) {
    ref_tensor *places = ref_values(c, "token_pos_in_items_ptr");
    const int64_t len = places ? ref_i64(c, "token_pos_in_items_len") : 0;
    for (int64_t r = 0; r < t->b; r++) {
        int64_t step = 0, item = 0;
        for (int64_t i = 0; i < len; i++) {
            places->i64[r * len + i] = step++;
            if (step > ref_between(c, 41, (uint64_t)item, 1, 6)) {
                step = 0;
                item++;
            }
        }
        attention_write_i64(c, "prefix_len_ptr", r, t->prefix[r]);
        attention_write_i64(c, "max_item_len_ptr", r, 6);
    }
}

int64_t attention_packed_offset(const ref_call *c, const ref_tensor *x, int64_t token,
                                int64_t head) {
    const int hnd = ref_is(c, "kv_layout", "HND");
    return ((hnd ? head : token) * x->shape[1] + (hnd ? token : head)) * x->shape[2];
}

void attention_fill_packed(ref_call *c, const batch *t, const char *name, const int64_t *start) {
    ref_tensor *x = ref_values(c, name);
    const int64_t heads = ref_dim(c, "h_kv");
    if (!x || x->ndim != 3 || !x->elems)
        return;
    const int64_t d = x->shape[2];
    unsigned char *marked = no_marks(x, d);
    for (int64_t r = 0; marked && r < t->b; r++) {
        for (int64_t j = 0; j < t->kv_len[r] * heads; j++) {
            const int64_t at = attention_packed_offset(c, x, start[r] + j / heads, j % heads);
            if (at + d <= x->elems)
                marked[at / d] = 1;
        }
    }
    if (marked)
        poison_unmarked(x, d, marked);
    free(marked);
}

/* ---- what is seen -------------------------------------------------------------------------- */

static int in_custom_mask(const ref_call *c, const batch *t, int64_t r, int64_t i, int64_t j) {
    const int64_t at = i * t->kv_len[r] + j;
    const ref_tensor *bools = ref_in(c, "custom_mask"), *bits = ref_in(c, "packed_custom_mask");
    if (bools)
        return bools->i64[t->mask_elem[r] + at] != 0;
    return (int)(bits->i64[t->mask_byte[r] + at / 8] >> (at % 8) & 1);
}

/* Multi-item scoring: the prefix, or the own item as far as its delimiter. */
static int in_item(const ref_call *c, const batch *t, int64_t r, int64_t position, int64_t j) {
    const ref_tensor *places = ref_in(c, "token_pos_in_items_ptr");
    if (!places || position < t->prefix[r])
        return 1;
    const int64_t len = ref_i64(c, "token_pos_in_items_len"), i = position - t->prefix[r];
    return j < t->prefix[r] || j > position - (i < len ? places->i64[r * len + i] : 0);
}

/* Bits over the request's query tokens; the keys before them are all seen. */
static int in_draft(const ref_call *c, const batch *t, int64_t r, int64_t i, int64_t j) {
    const ref_tensor *words = ref_in(c, "draft_mask");
    const int64_t token = j - (t->kv_len[r] - t->q_len[r]);
    const int64_t bits = bolide_dtype_of(words->dtype).bits;
    if (token < 0)
        return 1;
    const int64_t at = (t->q_start[r] + i) * words->shape[1] + token / bits;
    return (int)(words->i64[at] >> (token % bits) & 1);
}

/* Whether query token i of request r sees key j. */
int attention_sees(const ref_call *c, const batch *t, int64_t r, int64_t i, int64_t j) {
    const int64_t position = t->kv_len[r] - t->q_len[r] + i;
    const int64_t window = ref_i64(c, "window_left");
    if (window >= 0 && j < position - window)
        return 0;
    if (t->chunk > 0 && position > 0 && j < position - position % t->chunk)
        return 0;
    if (ref_in(c, "draft_mask"))
        return in_draft(c, t, r, i, j);
    if (ref_in(c, "custom_mask") || ref_in(c, "packed_custom_mask"))
        return in_custom_mask(c, t, r, i, j);
    return !t->causal || (j <= position && in_item(c, t, r, position, j));
}

/* Whether a kernel for Hopper may round the weights to e4m3. */
static int has_e4m3_weights(const ref_call *c, const batch *t) {
    const ref_tensor *q = ref_in(c, "q"), *packed = ref_in(c, "k"), *paged = ref_in(c, "k_cache");
    const ref_tensor *k = packed ? packed : paged;
    return q && k && q->dtype == BOLIDE_F8_E4M3FN && k->dtype == BOLIDE_F8_E4M3FN &&
           ref_dim(c, "d_qk") == 128 && ref_dim(c, "d_vo") == 128 &&
           ref_out(c, "out")->dtype & (BOLIDE_F16 | BOLIDE_BF16) && !ref_in(c, "custom_mask") &&
           !ref_in(c, "packed_custom_mask") &&
           t->q_start[t->b] * ref_dim(c, "h_q") > 64 * t->b * ref_dim(c, "h_kv");
}

/* Of normal data a row that sees n keys has outputs of sqrt(e / n), at most 1. Errors of rows that
 * see few stand out where others see many, for slack is relative to the root mean square of all. */
typedef struct {
    double mean;    /* of the rows' squares, 0 if no row sees a key */
    double largest; /* of the squares, as far as weights are rounded */
    double fewest;  /* keys of a row that sees more than one */
} key_counts;

static key_counts count_keys(const ref_call *c, const batch *t) {
    key_counts counts = {.fewest = INFINITY};
    double sum = 0, rows = 0;
    for (int64_t r = 0; r < t->b; r++) {
        for (int64_t i = 0; i < t->q_len[r]; i++) {
            int64_t n = 0;
            for (int64_t j = 0; j < t->kv_len[r]; j++)
                n += attention_sees(c, t, r, i, j);
            const double square = n > 0 ? fmin(1, 2.718 / (double)n) : 0;
            sum += square;
            rows += n > 0;
            if (n < 2)
                continue; /* its weight is exact */
            /* With few keys the largest weight, a power of two and exact, is half of their sum. */
            counts.largest = fmax(counts.largest, n <= 8 ? 0.25 * square : square);
            counts.fewest = fmin(counts.fewest, (double)n);
        }
    }
    counts.mean = rows > 0 ? sum / rows : 0;
    return counts;
}

/* The slack where weights are in e4m3, or 0. Each is off by up to 2^-4 of itself, by 0.026 on
 * average, and so is an output of a row that sees many keys: 0.2 is 7 times that, for the largest
 * of millions. */
double attention_e4m3_slack(const ref_call *c, const batch *t) {
    if (!has_e4m3_weights(c, t))
        return 0;
    const key_counts counts = count_keys(c, t);
    return counts.mean > 0 ? 0.2 * fmax(1, sqrt(counts.largest / counts.mean)) : 0.2;
}

/* The slack where weights have 16 bits and are off by up to `unit` of themselves. Ten times that
 * covers the largest of many outputs. In rows of five keys the largest of 10^5 outputs was off by
 * two units of a normal value; with more than eight keys errors cancel. */
double attention_half_slack(const ref_call *c, const batch *t, double unit) {
    const key_counts counts = count_keys(c, t);
    const double few = 3 * sqrt(fmin(1, 8 / counts.fewest));
    return unit * fmax(10, counts.mean > 0 ? few / sqrt(counts.mean) : 0);
}
