// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of sparse_mla share: how many keys a token has, where a key lies, the last step
// of a row. Included behind their constants.

#ifndef BOLIDE_OPS_ATTENTION_SPARSE_MLA_CUH
#define BOLIDE_OPS_ATTENTION_SPARSE_MLA_CUH

using params = bolide__sparse_mla_params;
using list = bolide__mla_list;

enum { PLAIN, FP8_656, FP8_584 }; /* bolide_mla_kv_format */

/* ---- keys -------------------------------------------------------------------------------------
 */

/* The position of a token in its request plus one. */
int32_t keys_before(const params &p, int32_t token) {
    int32_t r = 0, end = (int32_t)p.b, start, stop;
    if (end == 0)
        return 0;
    if (!p.qo_indptr) {
        const int32_t each = (int32_t)p.n / end;
        r = token / each;
        start = r * each;
        stop = start + each;
    } else {
        while (end - r > 1) { /* the last request that starts at or before the token */
            const int32_t middle = (r + end) / 2;
            if (p.qo_indptr[middle * p.qo_indptr_b] <= token)
                r = middle;
            else
                end = middle;
        }
        start = p.qo_indptr[r * p.qo_indptr_b];
        stop = p.qo_indptr[(r + 1) * p.qo_indptr_b];
    }
    return p.seq_lens[r * p.seq_lens_b] - (stop - start) + (token - start) + 1;
}

/* Keys that list `which` has for a token, gaps among them. */
int32_t count_of(const params &p, int which, int32_t token) {
    const list &s = p.list[which];
    int64_t count = s.count;
    if (s.lens)
        count = smaller(count, (int64_t)s.lens[token * s.lens_n] - s.lens_offset);
    if (which == 0 && p.seq_lens)
        count = smaller(count, (int64_t)keys_before(p, token));
    return (int32_t)larger(count, (int64_t)0);
}

/* Where a key lies; NULL: there is none. */
struct location {
    const char *row, *scales;
};

/* What list `which` says of a key: a row of its cache, or a page. */
int32_t entry_of(const list &s, int32_t token, int32_t key) {
    return s.entries[token * s.entries_n +
                     (s.paged ? (uint32_t)key / (uint32_t)s.page_size : (uint32_t)key)];
}

location locate(const list &s, int32_t key, int32_t entry) {
    const uint32_t size = (uint32_t)s.page_size;
    int64_t page, in_page;
    if (s.paged) {
        page = entry;
        in_page = (uint32_t)key % size;
    } else {
        page = entry < 0 || size == 0 ? -1 : (int64_t)((uint32_t)entry / size);
        in_page = size == 0 ? 0 : (uint32_t)entry % size;
    }
    if (page < 0 || page >= s.pages)
        return {nullptr, nullptr};
    const char *at = static_cast<const char *>(s.cache) + page * s.page;
    return {at + in_page * (FORMAT == FP8_584 ? (int64_t)BOLIDE__MLA_584_ROW : s.row),
            at + s.page_size * BOLIDE__MLA_584_ROW + in_page * BOLIDE__MLA_584_SCALES};
}

/* Key `key` of both lists one behind the other, the first of which has `first`. */
int32_t entry_of_any(const params &p, int32_t token, int32_t first, int32_t key) {
    return key < first ? entry_of(p.list[0], token, key) : entry_of(p.list[1], token, key - first);
}

location locate_entry(const params &p, int32_t first, int32_t key, int32_t entry) {
    return key < first ? locate(p.list[0], key, entry) : locate(p.list[1], key - first, entry);
}

location locate_any(const params &p, int32_t token, int32_t first, int32_t key) {
    return locate_entry(p, first, key, entry_of_any(p, token, first, key));
}

/* ---- the end of a row -------------------------------------------------------------------------
 */

float number_of(const float *tensor, double number) {
    return tensor ? *tensor : (float)number;
}

/* What sums of p v are multiplied by: sink, division, scale. The lse is written by the caller that
 * is `first` of its row. */
float finish(const params &p, int32_t token, int32_t head, float m, float l, bool first) {
    float weight = 1;
    if (p.sinks) {
        const float sink = p.sinks[head * p.sink_h] * LOG2E;
        const float top = fmaxf(m, sink);
        if (top != -INFINITE) {
            weight = exp2_fast(m - top);
            l = l * weight + exp2_fast(sink - top);
            m = top;
        }
    }
    if (first && p.lse) {
        const float lse = m + log2f(l);
        p.lse[token * p.lse_n + head * p.lse_h] = p.base_e ? lse * LN2 : lse;
    }
    return l == 0 ? 0.0f : weight / l * number_of(p.bmm2_tensor, p.bmm2);
}

/* N neighbours of a row of the output. A row without a key is 0 whatever its sums are. */
template <int N>
void put_out(const params &p, int32_t token, int32_t head, int32_t column, float factor,
             const float (&x)[N]) {
    float y[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        y[i] = factor == 0 ? 0.0f : x[i] * factor;
    const pack<out_elem, N> value = pack_floats<out_elem>(y);
    out_elem *at = static_cast<out_elem *>(p.out) + token * p.out_n + head * p.out_h + column;
    if (reinterpret_cast<uintptr_t>(at) % sizeof value == 0) {
        store(at, value);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            at[i] = value.at[i];
    }
}

#endif
