// SPDX-License-Identifier: Apache-2.0
//
// The work of one block of sparse_mla.cu or sparse_mla_sm90.cu: a token, up to ROWS of its heads, a
// piece of its keys in tiles of KEYS. Included behind these constants and sparse_mla.cuh.

#ifndef BOLIDE_OPS_ATTENTION_SPARSE_MLA_ITEM_CUH
#define BOLIDE_OPS_ATTENTION_SPARSE_MLA_ITEM_CUH

/* The part of the work that a block has. */
struct item {
    int32_t token, head, heads, tile, piece;
    int32_t first, begin, end; /* keys of the first list; of the piece, over both lists */
};

item item_of(const params &p, uint32_t index) {
    item w;
    const uint32_t a_token = (uint32_t)(p.tiles * p.pieces);
    w.token = (int32_t)(index / a_token);
    w.tile = (int32_t)(index % a_token / (uint32_t)p.pieces);
    w.piece = (int32_t)(index % (uint32_t)p.pieces);
    w.head = w.tile * ROWS;
    w.heads = smaller((int32_t)p.h_q - w.head, ROWS);
    w.first = count_of(p, 0, w.token);
    const int32_t total = w.first + count_of(p, 1, w.token), pieces = (int32_t)p.pieces;
    const int32_t tiles = total / KEYS + (total % KEYS > 0), each = (tiles + pieces - 1) / pieces;
    w.begin = (int32_t)smaller((int64_t)w.piece * each * KEYS, (int64_t)total);
    w.end = (int32_t)smaller((int64_t)w.begin + (int64_t)each * KEYS, (int64_t)total);
    return w;
}

/* The end of row `row` of a block, `m` its base and `l` the sum of its weights: what its sums are
 * multiplied by, 0 where it has no key. */
float end_row(const params &p, const item &w, int32_t row, float m, float l, bool first) {
    if (p.pieces == 1)
        return finish(p, w.token, w.head + row, m, l, first);
    const int64_t at = ((int64_t)w.token * p.pieces + w.piece) * p.h_q + w.head + row;
    if (first)
        store(p.partial_ml + 2 * at, pack<float, 2>{m, l});
    return l != 0;
}

/* N neighbours of a row's sums: to the output, or to the slot of a piece. */
template <int N>
void put_columns(const params &p, const item &w, int32_t row, int32_t column, float factor,
                 const float (&x)[N]) {
    const int64_t at = ((int64_t)w.token * p.pieces + w.piece) * p.h_q + w.head + row;
    if (p.pieces == 1)
        put_out(p, w.token, w.head + row, column, factor, x);
    else if (factor != 0)
        store(p.partial_o + at * D_VO + column, bits_as<pack<float, N>>(x));
}

#endif
