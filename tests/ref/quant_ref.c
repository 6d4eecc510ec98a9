// SPDX-License-Identifier: Apache-2.0
//
// References of the quant family. packbits: a row is a byte. segment_packbits: a row is a segment,
// whose lengths are the key len; the first begins
// at the key first. indptr ends beyond the values by the key beyond, and out has room bytes more.

#include "ref.h"

/* Byte `byte` of a segment that is x[first] … x[stop-1]. */
static int64_t packed(const ref_call *c, int64_t first, int64_t stop, int64_t byte) {
    const ref_tensor *x = ref_in(c, "x");
    const int little = ref_is(c, "bitorder", "little");
    int64_t bits = 0;
    for (int k = 0; k < 8; k++) {
        const int64_t i = first + 8 * byte + k;
        if (i < stop && x->i64[i] != 0)
            bits |= little ? 1 << k : 128 >> k;
    }
    return bits;
}

static int64_t bytes_of(const ref_call *c) {
    return ref_out(c, "out")->elems;
}

static void packbits_ref(const ref_call *c, int64_t row) {
    ref_out(c, "out")->i64[row] = packed(c, 0, ref_in(c, "x")->elems, row);
}

const ref_op ref_packbits = {
    .name = "packbits", .defaults = "n=104", .rows = bytes_of, .ref = packbits_ref};

/* ---- segments ------------------------------------------------------------------------------- */

enum { MAX_SEGMENTS = 64 };

static void segment_dims(ref_call *c) {
    int64_t len[MAX_SEGMENTS], n = ref_key(c, "first", 0), m = ref_key(c, "room", 0);
    const int64_t b = ref_key_list(c, "len", len, MAX_SEGMENTS);
    for (int64_t i = 0; i < b; i++) {
        n += len[i];
        m += (len[i] + 7) / 8;
    }
    ref_fix_dim(c, "b", b);
    ref_fix_dim(c, "n", n > 0 ? n : 0);
    ref_fix_dim(c, "m", m);
}

static void segment_fill(ref_call *c) {
    int64_t len[MAX_SEGMENTS], at = ref_key(c, "first", 0);
    const int64_t b = ref_key_list(c, "len", len, MAX_SEGMENTS);
    ref_tensor *indptr = ref_values(c, "indptr");
    for (int64_t i = 0; i < b; i++) {
        indptr->i64[i] = at;
        at += len[i];
    }
    indptr->i64[b] = at + ref_key(c, "beyond", 0);
}

static int64_t segments(const ref_call *c) {
    return ref_in(c, "indptr")->elems;
}

/* The last row has no segment, only the end of the others. */
static void segment_packbits_ref(const ref_call *c, int64_t row) {
    const ref_tensor *indptr = ref_in(c, "indptr");
    ref_tensor *y = ref_out(c, "out"), *out_indptr = ref_out(c, "out_indptr");
    int64_t at = 0;
    for (int64_t i = 0; i < row; i++)
        at += (indptr->i64[i + 1] - indptr->i64[i] + 7) / 8;
    out_indptr->i64[row] = at;
    if (row + 1 == indptr->elems)
        return;
    const int64_t first = indptr->i64[row], stop = indptr->i64[row + 1];
    for (int64_t i = 0; i < (stop - first + 7) / 8; i++)
        y->i64[at + i] = packed(c, first, stop, i);
}

const ref_op ref_segment_packbits = {.name = "segment_packbits",
                                     .defaults = "len=5:0:20",
                                     .keys = "len first beyond room",
                                     .dims = segment_dims,
                                     .fill = segment_fill,
                                     .rows = segments,
                                     .ref = segment_packbits_ref};
