// SPDX-License-Identifier: Apache-2.0
//
// References of the rope family, straight from the formulas in include/bolide/rope.h. A row is one
// token: all heads of q and k. Positions are drawn from 0 … the key pos.

#include "ref.h"

#include <math.h>

static double frequency(const ref_call *c, int64_t i, int64_t rotary_dim, int llama31) {
    const double scale = ref_f64(c, "rope_scale");
    const double f = pow(ref_f64(c, "rope_theta"), -2.0 * (double)i / (double)rotary_dim);
    if (!llama31)
        return f / scale;
    const double low = ref_f64(c, "low_freq_factor"), high = ref_f64(c, "high_freq_factor");
    const double turns = (double)ref_i64(c, "old_context_len") * f / (2 * acos(-1.0));
    double s = (turns - low) / (high - low);
    s = s < 0 ? 0 : s > 1 ? 1 : s;
    return (1 - s) * f / scale + s * f;
}

static void turn(const ref_tensor *x, ref_tensor *y, int64_t row, int64_t rotary_dim,
                 int interleave, const double *cosine, const double *sine) {
    const int64_t h = x->shape[1], d = x->shape[2], pairs = rotary_dim / 2;
    for (int64_t head = 0; head < h; head++) {
        const double *in = x->f64 + (row * h + head) * d;
        double *out = y->f64 + (row * h + head) * d;
        for (int64_t i = 0; i < d; i++)
            out[i] = in[i];
        for (int64_t i = 0; cosine && i < pairs; i++) {
            const int64_t a = interleave ? 2 * i : i, b = interleave ? 2 * i + 1 : i + pairs;
            out[a] = in[a] * cosine[i] - in[b] * sine[i];
            out[b] = in[b] * cosine[i] + in[a] * sine[i];
        }
    }
}

static int64_t tokens(const ref_call *c) {
    return ref_dim(c, "n");
}

/* ---- frequencies -------------------------------------------------------------------------- */

static void turn_row(const ref_call *c, int64_t row, int64_t position, int turns, int llama31) {
    double cosine[512], sine[512];
    int64_t rotary_dim = ref_i64(c, "rotary_dim");
    if (rotary_dim == BOLIDE_NO_INT)
        rotary_dim = ref_in(c, "q")->shape[2];
    for (int64_t i = 0; i < rotary_dim / 2; i++) {
        const double angle = (double)position * frequency(c, i, rotary_dim, llama31);
        cosine[i] = cos(angle);
        sine[i] = sin(angle);
    }
    const int interleave = (int)ref_i64(c, "interleave");
    turn(ref_in(c, "q"), ref_out(c, "q_rope_out"), row, rotary_dim, interleave,
         turns ? cosine : NULL, sine);
    turn(ref_in(c, "k"), ref_out(c, "k_rope_out"), row, rotary_dim, interleave,
         turns ? cosine : NULL, sine);
}

static void pos_ids_fill(ref_call *c) {
    ref_tensor *p = ref_values(c, "pos_ids");
    const int64_t first = ref_key(c, "from", 0), last = ref_key(c, "pos", 5000);
    for (int64_t i = 0; i < p->elems; i++)
        p->i64[i] = ref_between(c, 1, (uint64_t)i, first, last);
}

static void pos_ids_ref(const ref_call *c, int64_t row) {
    turn_row(c, row, ref_in(c, "pos_ids")->i64[row], 1, 0);
}

static void pos_ids_llama31_ref(const ref_call *c, int64_t row) {
    turn_row(c, row, ref_in(c, "pos_ids")->i64[row], 1, 1);
}

/* Lengths from the key len; tokens behind them belong to no request. */
static void ragged_dims(ref_call *c) {
    int64_t len[256], n = 0;
    const int64_t b = ref_count_list(c, "len", len, 256);
    for (int64_t r = 0; r < b; r++)
        n += len[r];
    ref_fix_dim(c, "b", b);
    ref_fix_dim(c, "n", n + ref_count(c, "spare", 0, 0));
}

static void ragged_fill(ref_call *c) {
    int64_t len[256], at = 0;
    const int64_t listed = ref_count_list(c, "len", len, 256);
    ref_tensor *indptr = ref_values(c, "indptr"), *offsets = ref_values(c, "offsets");
    const int64_t b = offsets->elems < listed ? offsets->elems : listed; /* b=0 wins over len */
    for (int64_t r = 0; r < b; r++) {
        indptr->i64[r] = at;
        offsets->i64[r] = ref_between(c, 1, (uint64_t)r, 0, ref_key(c, "pos", 5000));
        at += len[r];
    }
    indptr->i64[b] = at;
}

static void ragged_row(const ref_call *c, int64_t row, int llama31) {
    const ref_tensor *indptr = ref_in(c, "indptr"), *offsets = ref_in(c, "offsets");
    for (int64_t r = 0; r < offsets->elems; r++) {
        if (row >= indptr->i64[r] && row < indptr->i64[r + 1]) {
            turn_row(c, row, offsets->i64[r] + row - indptr->i64[r], 1, llama31);
            return;
        }
    }
    turn_row(c, row, 0, 0, llama31);
}

static void ragged_ref(const ref_call *c, int64_t row) {
    ragged_row(c, row, 0);
}

static void ragged_llama31_ref(const ref_call *c, int64_t row) {
    ragged_row(c, row, 1);
}

#define POS_IDS_REF(op, row)                                                                       \
    const ref_op ref_##op = {.name = #op,                                                          \
                             .defaults = "n=5 h_q=4 h_kv=2 d=64",                                  \
                             .keys = "pos from",                                                   \
                             .fill = pos_ids_fill,                                                 \
                             .rows = tokens,                                                       \
                             .ref = row}
#define RAGGED_REF(op, row)                                                                        \
    const ref_op ref_##op = {.name = #op,                                                          \
                             .defaults = "len=3:0:2 h_q=4 h_kv=2 d=64",                            \
                             .keys = "len pos spare",                                              \
                             .dims = ragged_dims,                                                  \
                             .fill = ragged_fill,                                                  \
                             .rows = tokens,                                                       \
                             .ref = row}

POS_IDS_REF(apply_rope_pos_ids, pos_ids_ref);
POS_IDS_REF(apply_llama31_rope_pos_ids, pos_ids_llama31_ref);
RAGGED_REF(apply_rope, ragged_ref);
RAGGED_REF(apply_llama31_rope, ragged_llama31_ref);

/* ---- the table ---------------------------------------------------------------------------- */

static void cache_fill(ref_call *c) {
    ref_tensor *p = ref_values(c, "positions"), *cache = ref_values(c, "cos_sin_cache");
    const int64_t rows = cache->shape[0], rotary_dim = cache->shape[1];
    /* Some positions lie outside the table on purpose. */
    for (int64_t i = 0; i < p->elems; i++)
        p->i64[i] = ref_between(c, 1, (uint64_t)i, -1, rows);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < rotary_dim / 2; i++) {
            const double angle = (double)r * pow(1e4, -2.0 * (double)i / (double)rotary_dim);
            cache->f64[r * rotary_dim + i] = cos(angle);
            cache->f64[r * rotary_dim + rotary_dim / 2 + i] = sin(angle);
        }
    }
}

static void cache_ref(const ref_call *c, int64_t row) {
    const ref_tensor *cache = ref_in(c, "cos_sin_cache");
    const int64_t position = ref_in(c, "positions")->i64[row], rotary_dim = cache->shape[1];
    const double *cosine =
        position >= 0 && position < cache->shape[0] ? cache->f64 + position * rotary_dim : NULL;
    const int interleave = !ref_i64(c, "is_neox");
    const double *sine = cosine ? cosine + rotary_dim / 2 : NULL;
    turn(ref_in(c, "query"), ref_out(c, "query_out"), row, rotary_dim, interleave, cosine, sine);
    turn(ref_in(c, "key"), ref_out(c, "key_out"), row, rotary_dim, interleave, cosine, sine);
}

/* q and k in and out; a row of the table a token. */
static double cache_bytes(const ref_call *c) {
    const ref_tensor *q = ref_in(c, "query"), *k = ref_in(c, "key");
    return (double)(q->elems + k->elems) * 2 * bolide_dtype_of(q->dtype).bits / 8.0 +
           (double)ref_dim(c, "n") * (4.0 * (double)ref_dim(c, "rotary_dim") + 4);
}

const ref_op ref_apply_rope_with_cos_sin_cache = {
    .name = "apply_rope_with_cos_sin_cache",
    .defaults = "n=5 h_q=4 h_kv=2 d=64 rotary_dim=64 max_pos=100",
    .fill = cache_fill,
    .rows = tokens,
    .ref = cache_ref,
    .bytes = cache_bytes};
