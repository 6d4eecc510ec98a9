// SPDX-License-Identifier: Apache-2.0
//
// References of the page family. The lengths of requests come from the key len=3:0:17 (one number:
// for all b of them), else they are drawn from 0 … max; each appends its last `append` tokens, or
// some of them. Pages are a random permutation of the pool.

#include "page_ref.h"

#include <stdlib.h>

static int64_t pages_of(const ref_page_table *t, int64_t r) {
    return (t->len[r] + t->page_size - 1) / t->page_size;
}

ref_page_table *ref_page_draw(ref_call *c) {
    ref_page_table *t = ref_state(c, sizeof *t);
    const int64_t listed = ref_count_list(c, "len", t->len, REF_PAGE_REQUESTS);
    t->b = listed > 1 ? listed : ref_has_dim(c, "b") ? ref_dim(c, "b") : 3;
    if (t->b > REF_PAGE_REQUESTS) {
        ref_refuse(c, "b: expected at most %d; got %lld", REF_PAGE_REQUESTS, (long long)t->b);
        t->b = 0;
    }
    t->page_size = ref_count(c, "page", 4, 1);
    t->pages = t->tokens = 0;
    for (int64_t r = 0; r < t->b; r++) {
        if (listed == 1) /* one length for all */
            t->len[r] = t->len[0];
        else if (listed == 0)
            t->len[r] = ref_between(c, 1, (uint64_t)r, 0, ref_key(c, "max", 20));
        const int64_t most = ref_key(c, "append", t->len[r]);
        t->append[r] = ref_key(c, "append", -1) >= 0 && most <= t->len[r]
                           ? most
                           : ref_between(c, 2, (uint64_t)r, 0, t->len[r]);
        t->pages += pages_of(t, r);
        t->tokens += t->append[r];
    }
    ref_fix_dim(c, "b", t->b);
    return t;
}

static void write_i64(ref_call *c, const char *name, int64_t index, int64_t value) {
    ref_tensor *x = ref_values(c, name);
    if (x && index < x->elems)
        x->i64[index] = value;
}

static void fill_table(ref_call *c, const ref_page_table *t) {
    int64_t at = 0;
    for (int64_t r = 0; r < t->b; r++) {
        write_i64(c, "kv_indptr", r, at);
        at += pages_of(t, r);
        const int64_t last = t->len[r] % t->page_size;
        write_i64(c, "kv_last_page_len", r, last ? last : t->len[r] ? t->page_size : 0);
    }
    write_i64(c, "kv_indptr", t->b, at);
}

/* ---- get_seq_lens, get_batch_indices_positions -------------------------------------------- */

static void seq_lens_dims(ref_call *c) {
    const ref_page_table *t = ref_page_draw(c);
    ref_set_i64(c, "page_size", t->page_size);
}

static void seq_lens_fill(ref_call *c) {
    fill_table(c, ref_state(c, sizeof(ref_page_table)));
}

static int64_t requests(const ref_call *c) {
    return ref_dim(c, "b");
}

static void seq_lens_ref(const ref_call *c, int64_t r) {
    const ref_page_table *t = ref_state(c, sizeof *t);
    ref_out(c, "out")->i64[r] = t->len[r];
}

const ref_op ref_get_seq_lens = {.name = "get_seq_lens",
                                 .defaults = "b=3",
                                 .keys = "len max page",
                                 .dims = seq_lens_dims,
                                 .fill = seq_lens_fill,
                                 .rows = requests,
                                 .ref = seq_lens_ref};

/* nnz may be larger than needed, the rest is marked, or smaller, then it is cut. */
static void positions_dims(ref_call *c) {
    const ref_page_table *t = ref_page_draw(c);
    ref_set_dim(c, "nnz", t->tokens + ref_count(c, "spare", 0, 0));
}

static void positions_fill(ref_call *c) {
    const ref_page_table *t = ref_state(c, sizeof *t);
    int64_t at = 0;
    for (int64_t r = 0; r < t->b; r++) {
        write_i64(c, "append_indptr", r, at);
        write_i64(c, "seq_lens", r, t->len[r]);
        at += t->append[r];
    }
    write_i64(c, "append_indptr", t->b, at);
}

static int64_t tokens(const ref_call *c) {
    return ref_dim(c, "nnz");
}

static void positions_ref(const ref_call *c, int64_t row) {
    const ref_page_table *t = ref_state(c, sizeof *t);
    int64_t r = 0, first = 0;
    while (r < t->b && row >= first + t->append[r])
        first += t->append[r++];
    ref_out(c, "batch_indices")->i64[row] = r < t->b ? r : -1;
    ref_out(c, "positions")->i64[row] = r < t->b ? t->len[r] - t->append[r] + (row - first) : 0;
}

const ref_op ref_get_batch_indices_positions = {.name = "get_batch_indices_positions",
                                                .defaults = "b=3",
                                                .keys = "len max page spare append",
                                                .dims = positions_dims,
                                                .fill = positions_fill,
                                                .rows = tokens,
                                                .ref = positions_ref};

/* ---- appending ---------------------------------------------------------------------------- */

static void append_dims(ref_call *c) {
    const ref_page_table *t = ref_page_draw(c);
    ref_fix_dim(c, "nnz", t->tokens + REF_PAGE_SKIPPED);
    ref_set_dim(c, "page_size", t->page_size);
    ref_fix_dim(c, "p", t->pages + ref_count(c, "spare", 1, 0));
    ref_set_shape(c, "kv_indices", 1, (const int64_t[]){t->pages});
}

static void append_kv_dims(ref_call *c) {
    append_dims(c);
    const int64_t d = ref_key(c, "d", 16);
    ref_set_dim(c, "d_qk", d);
    ref_set_dim(c, "d_vo", d);
}

static void fill_indices(ref_call *c, const ref_page_table *t) {
    const int64_t pool = ref_dim(c, "p");
    int64_t *order = malloc((size_t)(pool + 1) * sizeof *order);
    for (int64_t i = 0; i < pool; i++)
        order[i] = i;
    for (int64_t i = pool - 1; i > 0; i--) {
        const int64_t k = ref_between(c, 3, (uint64_t)i, 0, i), swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    for (int64_t i = 0; i < t->pages; i++)
        write_i64(c, "kv_indices", i, order[i]);
    free(order);
}

void ref_page_fill(ref_call *c) {
    const ref_page_table *t = ref_state(c, sizeof *t);
    fill_table(c, t);
    fill_indices(c, t);
    int64_t at = 0;
    for (int64_t r = 0; r < t->b; r++) {
        for (int64_t i = 0; i < t->append[r]; i++, at++) {
            write_i64(c, "batch_indices", at, r);
            write_i64(c, "positions", at, t->len[r] - 1 - i);
        }
    }
    const int64_t request[REF_PAGE_SKIPPED] = {-1, t->b, 0, 0};
    const int64_t position[REF_PAGE_SKIPPED] = {0, 0, t->b ? t->len[0] : 0, -1};
    for (int64_t i = 0; i < REF_PAGE_SKIPPED; i++, at++) {
        write_i64(c, "batch_indices", at, request[i]);
        write_i64(c, "positions", at, position[i]);
    }
}

/* Element offset of (token row, head 0) in a cache of that shape; -1 for a token that is skipped.
 */
static int64_t place(const ref_call *c, const ref_tensor *cache, int64_t row, int hnd,
                     int64_t *head_step) {
    const int64_t r = ref_in(c, "batch_indices")->i64[row];
    const int64_t position = ref_in(c, "positions")->i64[row];
    const ref_page_table *t = ref_state(c, sizeof *t);
    if (r < 0 || r >= t->b || position < 0 || position >= t->len[r])
        return -1;
    const int64_t index = ref_in(c, "kv_indptr")->i64[r] + position / t->page_size;
    const int64_t page = ref_in(c, "kv_indices")->i64[index], slot = position % t->page_size;
    const int64_t d = cache->shape[cache->ndim - 1];
    const int64_t heads = cache->ndim == 3 ? 1 : cache->shape[hnd ? 1 : 2];
    *head_step = hnd ? t->page_size * d : d;
    return page * t->page_size * heads * d + slot * (hnd ? d : heads * d);
}

/* What has the cache's dtype is copied. */
static double stored(double x, int64_t from, int64_t to) {
    return from == to ? x : ref_held(x, to);
}

static void append_side(const ref_call *c, int64_t row, const char *source, const char *cache,
                        int hnd) {
    const ref_tensor *from = ref_in(c, source);
    ref_tensor *to = ref_out(c, cache);
    int64_t head_step;
    if (!from || !to)
        return;
    const int64_t at = place(c, to, row, hnd, &head_step);
    const int64_t d = from->shape[from->ndim - 1], heads = from->ndim == 3 ? from->shape[1] : 1;
    for (int64_t h = 0; at >= 0 && h < heads; h++) {
        for (int64_t i = 0; i < d; i++)
            to->f64[at + h * head_step + i] =
                stored(from->f64[(row * heads + h) * d + i], from->dtype, to->dtype);
    }
}

static void append_kv_ref(const ref_call *c, int64_t row) {
    const int hnd = ref_is(c, "kv_layout", "HND");
    append_side(c, row, "append_key", "k_cache", hnd);
    append_side(c, row, "append_value", "v_cache", hnd);
}

static void append_mla_ref(const ref_call *c, int64_t row) {
    append_side(c, row, "append_ckv", "ckv_cache", 0);
    append_side(c, row, "append_kpe", "kpe_cache", 0);
}

/* Read what is appended, write as much; the rest of the cache is not touched. */
static double append_bytes(const ref_call *c) {
    const char *const names[] = {"append_key", "append_value", "append_ckv", "append_kpe"};
    const char *const caches[] = {"k_cache", "v_cache", "ckv_cache", "kpe_cache"};
    double bytes = 0;
    for (int i = 0; i < 4; i++) {
        const int kv = ref_has_dim(c, "h_kv");
        if ((i < 2) != kv)
            continue;
        const ref_tensor *x = ref_in(c, names[i]), *y = ref_in(c, caches[i]);
        if (x && y)
            bytes += (double)x->elems *
                     (bolide_dtype_of(x->dtype).bits + bolide_dtype_of(y->dtype).bits) / 8.0;
    }
    return bytes;
}

const ref_op ref_append_paged_kv_cache = {.name = "append_paged_kv_cache",
                                          .defaults = "b=3 h_kv=2",
                                          .keys = "len max page spare append d",
                                          .dims = append_kv_dims,
                                          .fill = ref_page_fill,
                                          .rows = tokens,
                                          .ref = append_kv_ref,
                                          .bytes = append_bytes};

const ref_op ref_append_paged_mla_kv_cache = {
    .name = "append_paged_mla_kv_cache",
    .defaults = "b=3 d_ckv=64 d_kpe=16 append_ckv=given append_kpe=given ckv_cache=given "
                "kpe_cache=given",
    .keys = "len max page spare append",
    .dims = append_dims,
    .fill = ref_page_fill,
    .rows = tokens,
    .ref = append_mla_ref,
    .bytes = append_bytes};

/* ---- concat_mla_k ------------------------------------------------------------------------- */

static int64_t concat_rows(const ref_call *c) {
    return ref_dim(c, "n") * ref_dim(c, "h");
}

static void concat_ref(const ref_call *c, int64_t row) {
    const ref_tensor *nope = ref_in(c, "k_nope"), *rope = ref_in(c, "k_rope");
    const int64_t d_nope = nope->shape[2], d_rope = rope->shape[2], h = nope->shape[1];
    double *k = ref_out(c, "k")->f64 + row * (d_nope + d_rope);
    for (int64_t i = 0; i < d_nope; i++)
        k[i] = nope->f64[row * d_nope + i];
    for (int64_t i = 0; i < d_rope; i++)
        k[d_nope + i] = rope->f64[row / h * d_rope + i];
}

const ref_op ref_concat_mla_k = {.name = "concat_mla_k",
                                 .defaults = "n=4 h=3 d_nope=128 d_rope=64",
                                 .rows = concat_rows,
                                 .ref = concat_ref};
