// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend of sparse_mla: which kernel computes a call (sparse_mla.cu on tensor cores,
// sparse_mla_float.cu), its tiles, into how many pieces a token's keys are cut, and where these
// leave their sums for sparse_mla_merge.cu:
//
//     | partial_o | partial_ml |          (with several pieces only)

#include <bolide/sparse_mla.h>

#include "core/context.h"
#include "cuda/cuda.h"
#include "ops/attention/sparse_mla.h"
#include "ops/attention/sparse_mla_sm90.h"

enum {
    WIDE = 1, /* the bits of the kernel's FLAGS */
    Q_WIDE = 2,
    AHEAD = 4,
    RESERVED = 1024, /* bytes of each block, by the driver */
    FLOAT_HEADS = 16,
    FLOAT_THREADS = 128,
    MERGE_THREADS = 128,
    MOST_PIECES = 64,
    PIECE_TILES = 2, /* tiles of keys that a piece has at least */
    OWN_PIECE = 512  /* keys of a piece where it may not depend on the other tokens */
};

typedef struct choice {
    int64_t t; /* dtype of the products; 0: the float32 kernel */
    int64_t rows, keys, tiles, pieces, shared;
    bool ahead; /* tiles are widened while the one before is at work */
    bool sm90;  /* sparse_mla_sm90.cu */
} choice;

/* ---- the kernel and its tiles -------------------------------------------------------------- */

static bool is_narrow(int64_t dtype) {
    return dtype & (BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2);
}

/* The type that q and keys are both taken to, without loss but for packed rows; 0: there is none.
 */
static int64_t product_type(const bolide__sparse_mla_params *p) {
    const int64_t halves = BOLIDE_F16 | BOLIDE_BF16;
    if (p->d_qk % 16 != 0 || p->d_vo % 32 != 0 || p->d_vo > 512)
        return 0;
    if (p->format != BOLIDE_MLA_KV_PLAIN)
        return p->q_dtype == BOLIDE_BF16 || is_narrow(p->q_dtype) ? BOLIDE_BF16 : 0;
    if (p->kv_dtype & halves)
        return p->q_dtype == p->kv_dtype || is_narrow(p->q_dtype) ? p->kv_dtype : 0;
    if (!is_narrow(p->kv_dtype))
        return 0;
    return is_narrow(p->q_dtype) ? BOLIDE_F16 : p->q_dtype & halves;
}

/* Warps of a block, of which two or four share 16 rows. */
static int64_t warps_of(const bolide__sparse_mla_params *p, int64_t rows) {
    return rows == 16 && p->d_vo % 64 == 0 ? 4 : rows / 8;
}

static bool is_raw(const bolide__sparse_mla_params *p) {
    return p->format != BOLIDE_MLA_KV_PLAIN || is_narrow(p->kv_dtype);
}

/* The arithmetic of the kernel's struct. */
static int64_t shared_bytes(const bolide__sparse_mla_params *p, int64_t rows, int64_t keys,
                            bool ahead) {
    const int64_t row = p->d_qk * 2 + 16;
    const int64_t raw = p->format == BOLIDE_MLA_KV_FP8_656
                            ? (p->d_qk > 512 ? BOLIDE__MLA_656 : BOLIDE__MLA_656_ROPE)
                        : p->format == BOLIDE_MLA_KV_FP8_584 ? BOLIDE__MLA_584_ROW + 16
                                                             : p->d_qk;
    const int64_t tiles =
        is_raw(p) ? 2 * keys * raw + (ahead ? 2 : 1) * keys * row : 2 * keys * row + 16;
    const int64_t parts = warps_of(p, rows) * (keys / 8) * 4 * 32 * 4;
    return rows * row + tiles + parts + 2 * keys * 16 + 16;
}

/* As many rows as there are heads, and 32 keys where they fit. A block of few rows has a second one
 * beside it, which works while it widens its tiles. */
static bool choose_tile(const bolide__cuda_limits *limits, const bolide__sparse_mla_params *p,
                        choice *c) {
    const int64_t most = p->h_q <= 16 ? 16 : p->h_q <= 32 ? 32 : 64;
    for (int64_t rows = most; rows >= 16; rows /= 2) {
        for (int64_t keys = 32; keys >= 16; keys /= 2) {
            c->shared = shared_bytes(p, rows, keys, false);
            if (c->shared > limits->shared_optin)
                continue;
            c->rows = rows;
            c->keys = keys;
            c->ahead = rows == 64 && is_raw(p) &&
                       shared_bytes(p, rows, keys, true) <= limits->shared_optin;
            if (c->ahead)
                c->shared = shared_bytes(p, rows, keys, true);
            return true;
        }
    }
    return false;
}

/* Whether every row of the caches can be copied in pieces of 16 bytes. */
static bool is_wide(const bolide__sparse_mla_params *p) {
    uint64_t bits = 0;
    for (int i = 0; i < 2; i++) {
        const bolide__mla_list *s = &p->list[i];
        const bool rows = p->format != BOLIDE_MLA_KV_FP8_584; /* its rows lie 576 bytes apart */
        bits |= (uintptr_t)s->cache | (uint64_t)s->page | (uint64_t)(rows ? s->row : 0);
    }
    return bits % 16 == 0;
}

static bool is_q_wide(const bolide__sparse_mla_params *p) {
    return (((uintptr_t)p->q | (uint64_t)((p->q_n | p->q_h) * 2)) & 15) == 0;
}

/* Whether every row of the result can be written in pieces of 16 bytes. */
static bool is_out_wide(const bolide__sparse_mla_params *p) {
    const int64_t size = bolide__dtype_bytes(p->o_dtype);
    return (((uintptr_t)p->out | (uint64_t)((p->out_n | p->out_h) * size)) & 15) == 0;
}

/* Whether sparse_mla_sm90.cu takes the call. */
static bool is_sm90(const bolide__call *call, const bolide__sparse_mla_params *p) {
    const int64_t halves = BOLIDE_F16 | BOLIDE_BF16;
    const bool packed = p->format != BOLIDE_MLA_KV_PLAIN;
    return bolide__cuda_has_wgmma(call->ctx) && is_wide(p) && is_q_wide(p) && is_out_wide(p) &&
           (p->d_vo == 512 || p->d_vo == 256) && (p->d_qk == p->d_vo || p->d_qk == p->d_vo + 64) &&
           (packed ? p->q_dtype == BOLIDE_BF16
                   : (p->q_dtype & halves) && p->kv_dtype == p->q_dtype);
}

/* Heads of its blocks; 0: the call is not for it. Blocks of 16 heads take keys faster, those of 64
 * read each of them for more heads: the former serve few tokens, of whose keys they are given
 * pieces. Packed rows, which every block has to widen, go by mma.sync between the two. */
static int64_t rows_sm90(const bolide__call *call, const bolide__cuda_limits *limits,
                         const bolide__sparse_mla_params *p) {
    const int64_t few = p->n * ((p->h_q + 15) / 16), many = p->n * ((p->h_q + 63) / 64);
    if (!is_sm90(call, p))
        return 0;
    if (p->h_q <= 16)
        return 16;
    if (call->ctx->batch_invariant)
        return 64;
    if (few * (p->format == BOLIDE_MLA_KV_PLAIN ? 2 : 8) <= limits->sm_count)
        return 16;
    return p->format == BOLIDE_MLA_KV_PLAIN || many * 9 >= limits->sm_count ? 64 : 0;
}

/* Whether two warpgroups load. */
static bool is_wide_loader(const bolide__sparse_mla_params *p, int64_t rows) {
    return rows == 16 && p->format != BOLIDE_MLA_KV_PLAIN;
}

/* The arithmetic of the kernel's struct: q, with few rows their weights, two tiles, two rotary
 * parts, and the rest. */
static int64_t shared_bytes_sm90(const bolide__sparse_mla_params *p, int64_t rows) {
    const int64_t keys = BOLIDE__SPARSE90_KEYS, q = p->d_qk / 64 + (rows == 16 ? 2 : 0);
    const int64_t slots = is_wide_loader(p, rows) ? 4 : 2;
    return q * rows * 128 + (2 * p->d_vo / 64 + 2) * keys * 128 + keys * (16 + slots * 24) +
           2 * 512 + 2 * 8 + 10 * 8;
}

/* So many that each multiprocessor has what it can hold. */
static int64_t pieces_of(const bolide__call *call, const bolide__cuda_limits *limits,
                         const bolide__sparse_mla_params *p, const choice *c) {
    const int64_t keys = p->list[0].count + p->list[1].count, blocks = p->n * c->tiles;
    const int64_t fitting = limits->shared_sm / (c->shared + RESERVED);
    const int64_t resident = limits->sm_count * (fitting < 1 ? 1 : fitting > 4 ? 4 : fitting);
    const int64_t room = (keys + c->keys * PIECE_TILES - 1) / (c->keys * PIECE_TILES);
    int64_t pieces = blocks > 0 ? resident / blocks : 1;
    if (pieces > room)
        pieces = room;
    if (call->ctx->batch_invariant)
        pieces = (keys + OWN_PIECE - 1) / OWN_PIECE;
    return pieces < 1 ? 1 : pieces > MOST_PIECES ? MOST_PIECES : pieces;
}

static choice choose(const bolide__call *call, const bolide__sparse_mla_params *p) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    choice c = {.t = limits->arch >= 80 ? product_type(p) : 0, .pieces = 1};
    c.rows = c.t ? rows_sm90(call, limits, p) : 0;
    c.sm90 = c.rows > 0;
    if (c.sm90) {
        c.keys = BOLIDE__SPARSE90_KEYS;
        c.shared = shared_bytes_sm90(p, c.rows);
    } else if (c.t && !choose_tile(limits, p, &c)) {
        c.t = 0;
    }
    if (!c.t) {
        c.rows = FLOAT_HEADS;
        /* q, a chunk of 64 by 65, weights, places, and three sums a head. */
        c.shared = p->d_qk * FLOAT_HEADS * 4 + 64 * 65 * 4 + 64 * FLOAT_HEADS * 4 + 64 * 16 +
                   3 * FLOAT_HEADS * 4;
    }
    c.tiles = (p->h_q + c.rows - 1) / c.rows;
    if (c.t)
        c.pieces = pieces_of(call, limits, p, &c);
    return c;
}

/* ---- scratch ------------------------------------------------------------------------------- */

typedef struct layout {
    int64_t partial_o, partial_ml, bytes;
} layout;

static int64_t take(int64_t *at, int64_t bytes) {
    const int64_t place = *at;
    *at += (bytes + 127) / 128 * 128;
    return place;
}

static layout layout_of(const bolide__sparse_mla_params *p, const choice *c) {
    const int64_t rows = p->n * c->pieces * p->h_q, size = (int64_t)sizeof(float);
    layout l = {0};
    if (c->pieces > 1) {
        l.partial_o = take(&l.bytes, rows * p->d_vo * size);
        l.partial_ml = take(&l.bytes, rows * 2 * size);
    }
    return l;
}

int64_t bolide__sparse_mla_cuda_bytes(const bolide__call *call,
                                      const bolide__sparse_mla_params *p) {
    const choice c = choose(call, p);
    return layout_of(p, &c).bytes;
}

/* ---- the launch ---------------------------------------------------------------------------- */

static void add_common(bolide__spec *s, const bolide__sparse_mla_params *p) {
    bolide__spec_add(s, "QT", p->q_dtype);    /* 5 values */
    bolide__spec_add(s, "KT", p->kv_dtype);   /* 6 values */
    bolide__spec_add(s, "OT", p->o_dtype);    /* 5 values */
    bolide__spec_add(s, "FORMAT", p->format); /* 3 values */
    bolide__spec_add(s, "D_QK", p->d_qk);     /* as models have them: 576, 512, 320 */
    bolide__spec_add(s, "D_VO", p->d_vo);     /* 512, 256 */
}

static bolide_status check_size(const bolide__call *call, const bolide__sparse_mla_params *p,
                                const choice *c) {
    const int64_t most_keys = INT32_MAX / 4, keys = p->list[0].count + p->list[1].count;
    const int64_t blocks = c->tiles * c->pieces > p->h_q ? c->tiles * c->pieces : p->h_q;
    if (keys > most_keys)
        return BOLIDE_FAIL_UNSUPPORTED(
            call, "indices", "shape",
            bolide__text("at most %lld keys a query", (long long)most_keys), "%lld",
            (long long)keys);
    if (blocks > 0 && p->n > INT32_MAX / blocks)
        return BOLIDE_FAIL_UNSUPPORTED(
            call, "q", "shape",
            bolide__text("at most %lld queries", (long long)(INT32_MAX / blocks)), "%lld",
            (long long)p->n);
    return BOLIDE_OK;
}

static bolide_status run_float(const bolide__call *call, const bolide__sparse_mla_params *p,
                               bolide__grid *g) {
    bolide__spec s = BOLIDE_SPEC("attention/sparse_mla_float.cu", "bolide_sparse_mla_float");
    add_common(&s, p);
    g->block = FLOAT_THREADS;
    return bolide__cuda_launch(call, &s, g, p, sizeof *p);
}

static bolide_status run_tiles(const bolide__call *call, const bolide__sparse_mla_params *p,
                               const choice *c, bolide__grid *g) {
    bolide__spec s = BOLIDE_SPEC("attention/sparse_mla.cu", "bolide_sparse_mla");
    add_common(&s, p);
    bolide__spec_add(&s, "T", c->t);       /* f16, bf16 */
    bolide__spec_add(&s, "ROWS", c->rows); /* 16, 32, 64 */
    bolide__spec_add(&s, "KEYS", c->keys); /* 32, 16: the chip */
    bolide__spec_add(&s, "FLAGS",
                     (is_wide(p) ? WIDE : 0) | (is_q_wide(p) ? Q_WIDE : 0) |
                         (c->ahead ? AHEAD : 0));
    g->block = (int32_t)(warps_of(p, c->rows) * 32);
    return bolide__cuda_launch(call, &s, g, p, sizeof *p);
}

static bolide_status run_sm90(const bolide__call *call, const bolide__sparse_mla_params *p,
                              const choice *c, bolide__grid *g) {
    bolide__spec s = BOLIDE_SPEC("attention/sparse_mla_sm90.cu", "bolide_sparse_mla_sm90");
    bolide__spec_add(&s, "T", p->q_dtype);     /* f16, bf16 */
    bolide__spec_add(&s, "OT", p->o_dtype);    /* 5 values */
    bolide__spec_add(&s, "FORMAT", p->format); /* 3 values */
    bolide__spec_add(&s, "D_QK", p->d_qk);     /* 576, 512, 320, 256 */
    bolide__spec_add(&s, "D_VO", p->d_vo);     /* 512, 256 */
    bolide__spec_add(&s, "ROWS", c->rows);     /* 16, 64 */
    g->block = is_wide_loader(p, c->rows) ? BOLIDE__SPARSE90_MOST : BOLIDE__SPARSE90_THREADS;
    /* A block holds a multiprocessor, and stays. Where packed rows are loaded, which takes longest,
     * the next Q is better left to another block. */
    const int64_t most = bolide__cuda_limits_of(call->ctx)->sm_count;
    if (c->rows == 64 && p->format == BOLIDE_MLA_KV_PLAIN && g->x > most)
        g->x = most;
    return bolide__cuda_launch(call, &s, g, p, sizeof *p);
}

static bolide_status run_merge(const bolide__call *call, const bolide__sparse_mla_params *p) {
    const bolide__grid g = {
        .x = p->n * p->h_q, .block = MERGE_THREADS, .dependent = BOLIDE__BEHIND_OWN};
    bolide__spec s = BOLIDE_SPEC("attention/sparse_mla_merge.cu", "bolide_sparse_mla_merge");
    bolide__spec_add(&s, "OT", p->o_dtype); /* 5 values */
    bolide__spec_add(&s, "D_VO", p->d_vo);  /* 512, 256 */
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

bolide_status bolide__sparse_mla_cuda_run(const bolide__call *call, bolide__sparse_mla_params *p,
                                          const bolide_workspace *workspace) {
    const choice c = choose(call, p);
    const layout l = layout_of(p, &c);
    BOLIDE_TRY(check_size(call, p, &c));
    p->tiles = c.tiles;
    p->pieces = c.pieces;
    bolide__grid g = {.x = p->n * c.tiles * c.pieces, .shared = (int32_t)c.shared, .dependent = 1};
    if (!c.t)
        return run_float(call, p, &g);
    if (c.pieces > 1) {
        char *scratch = workspace->device;
        p->partial_o = (float *)(scratch + l.partial_o);
        p->partial_ml = (float *)(scratch + l.partial_ml);
    }
    BOLIDE_TRY(c.sm90 ? run_sm90(call, p, &c, &g) : run_tiles(call, p, &c, &g));
    return c.pieces > 1 ? run_merge(call, p) : BOLIDE_OK;
}
