// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend of the sampling and top-k operators: over how many blocks a row is spread, what
// of it fits in shared memory, and the launches.

#include "cuda/cuda.h"
#include "ops/sampling/sampling_internal.h"

/* Blocks of a row, and whether they hold it in shared memory. */
typedef struct layout {
    int32_t blocks, cached;
    int32_t shared; /* bytes */
    int32_t solo;   /* a multiprocessor has one block of a selection */
} layout;

enum {
    RESERVED = 1024 /* of each block, by the driver */,
    STATIC = 3072 /* bound of the kernels */,
    /* Elements that a block keeps in registers. */
    WALK_BLOCK = 4 * BOLIDE__ROW_GROUPS * BOLIDE__ROW_THREADS
};

/* The part of a row that a block holds, in bytes: vectors of four floats, and one more where the
 * row begins inside the first. */
static int64_t part_bytes(int64_t v, int32_t blocks) {
    const int64_t vectors = (v + 3) / 4 + 1;
    return (vectors + blocks - 1) / blocks * 16;
}

static int32_t most_blocks(const bolide__cuda_limits *limits) {
    /* Clusters of 16 exist on chips of data centres alone. */
    return limits->arch < 90 ? 1 : limits->arch < 110 ? BOLIDE__ROW_BLOCKS : 8;
}

/* Whether a block has shared memory for a ring of vectors: 227 KB. */
static int has_ring(const bolide__cuda_limits *limits) {
    return limits->arch >= 90 && limits->arch < 120;
}

/* For rows that are kept in shared memory. Two blocks share a multiprocessor, so that one reads
 * while the other computes. A row goes over as few blocks as hold it in half of the shared memory;
 * with few rows over more of them, as long as there are multiprocessors without work. The result
 * has the same bits for every choice. */
static layout keeping_layout(const bolide__call *call, int64_t rows, int64_t v) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int64_t half = limits->shared_sm / 2 - RESERVED - STATIC;
    const int64_t whole = limits->shared_optin - STATIC;
    const int32_t most = most_blocks(limits);
    int32_t blocks = 1;
    while (blocks < most && (part_bytes(v, blocks) > half ||
                             (rows * blocks * 2 <= limits->sm_count && v > 4096 * blocks)))
        blocks *= 2;
    const int64_t part = part_bytes(v, blocks);
    const int32_t cached = part <= whole;
    return (layout){blocks, cached, (int32_t)(cached ? part : 0), 0};
}

/* For a selection: as many blocks as the chip holds at once, two on a multiprocessor, but for the
 * most blocks a row, of which a multiprocessor holds one. A row that is
 * read again as it is written could go over so many that the rows under way fit in L2; but what
 * blocks do together then costs more than that spares. Rows that go over at most `solo_blocks` may
 * have half as many with a multiprocessor each, which read as fast and have less to tell each
 * other. Without a ring, who writes rows or adds up masses is better off with two. */
static layout selecting_layout(const bolide__call *call, int64_t rows, int64_t v,
                               bolide__row_kind kind, int32_t solo_blocks) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int64_t slots = 2 * limits->sm_count;
    const int32_t most = most_blocks(limits);
    const int indexed = kind == BOLIDE__ROW_RANKED;
    int32_t blocks = 1;
    while (blocks < most && v > 4096 * blocks &&
           rows * blocks * 2 <= (2 * blocks == BOLIDE__ROW_BLOCKS ? slots * 3 / 8 : slots))
        blocks *= 2;
    /* One block instead of two, where that leaves no more than a quarter of the chip idle. */
    const int32_t solo =
        blocks > 1 && blocks <= solo_blocks && 2 * rows * blocks >= 3 * (int64_t)limits->sm_count;
    blocks = solo ? blocks / 2 : blocks;
    /* As the kernels see it. */
    const int large = limits->arch == 80 || (limits->arch >= 90 && limits->arch < 120);
    const int ringed = has_ring(limits) && blocks <= 2 &&
                       (kind == BOLIDE__ROW_PROBS || kind == BOLIDE__ROW_SCORES);
    const int32_t room = limits->arch < 80 ? BOLIDE__ROW_ROOM_SMALL
                         : ringed && solo  ? BOLIDE__ROW_ROOM_INDEXED + BOLIDE__ROW_RING
                         : ringed || (large && (indexed || (blocks == 1 && limits->arch >= 90)))
                             ? BOLIDE__ROW_ROOM_INDEXED
                         : limits->arch == 80 ? BOLIDE__ROW_ROOM_80
                                              : BOLIDE__ROW_ROOM;
    return (layout){blocks, 0, room, solo};
}

/* For rows that are read once and not kept: spread for the sake of balance alone, or one block a
 * row that has a multiprocessor for itself, where that leaves no more than a quarter of the chip
 * idle. */
static layout streaming_layout(const bolide__call *call, int64_t rows, int64_t v, int may_be_solo) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int32_t most = most_blocks(limits);
    int32_t blocks = 1;
    if (may_be_solo && rows <= limits->sm_count && 4 * rows >= 3 * (int64_t)limits->sm_count)
        return (layout){1, 0, 0, 1};
    while (blocks < most && rows * blocks <= limits->sm_count && v > 4096 * blocks)
        blocks *= 2;
    return (layout){blocks, 0, 0, 0};
}

/* Vectors are counted in 32 bits. */
static bolide_status check_columns(const bolide__call *call, int64_t v) {
    if (v <= INT32_MAX - 64)
        return BOLIDE_OK;
    return BOLIDE_FAIL_UNSUPPORTED(call, call->op->run.rows[0].name, "shape",
                                   bolide__text("at most %d columns on the GPU", INT32_MAX - 64),
                                   "%lld", (long long)v);
}

static bolide__spec spec_of(const char *source, const char *function, int64_t dtype,
                            bolide__row_kind kind, layout l) {
    bolide__spec s = BOLIDE_SPEC(source, function);
    bolide__spec_add(&s, "INPUT", dtype);      /* 3 values for logits and scores */
    bolide__spec_add(&s, "KIND", kind);        /* follows from the operator */
    bolide__spec_add(&s, "CLUSTER", l.blocks); /* 1, 2, 4, 8, 16 */
    bolide__spec_add(&s, "CACHED", l.cached);  /* for softmax and speculative sampling */
    bolide__spec_add(&s, "SOLO", l.solo);      /* with CLUSTER 1 and 2 */
    return s;
}

static bolide__grid grid_of(int64_t rows, layout l) {
    return (bolide__grid){.x = rows * l.blocks,
                          .block = BOLIDE__ROW_THREADS,
                          .shared = l.shared,
                          .cluster = l.blocks,
                          .dependent = 1};
}

bolide_status bolide__gumbel_launch(const bolide__call *call, const bolide__sample_params *p) {
    BOLIDE_TRY(check_columns(call, p->v));
    const layout l = streaming_layout(call, p->b, p->v, 0);
    const bolide__spec s =
        spec_of("sampling/gumbel.cu", "bolide_gumbel", p->dtype, BOLIDE__ROW_LOGITS, l);
    const bolide__grid g = grid_of(p->b, l);
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

/* Softmax of many long rows, which clusters take one after another. The copy engine takes 16 bytes
 * at a time. */
static int walks(const bolide__call *call, const bolide__renorm_params *p) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int64_t bytes = p->dtype == BOLIDE_F32 ? 4 : 2;
    return p->kind == BOLIDE__SOFTMAX && limits->arch >= 90 && limits->arch < 120 &&
           p->n * BOLIDE__ROW_BLOCKS > limits->sm_count && p->v > WALK_BLOCK &&
           p->v <= 8 * WALK_BLOCK && p->v % 8 == 0 && p->input_n * bytes % 16 == 0 &&
           p->out_n % 4 == 0 && ((uintptr_t)p->input | (uintptr_t)p->out) % 16 == 0;
}

static bolide_status launch_walk(const bolide__call *call, const bolide__renorm_params *p) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int32_t blocks = p->v <= 2 * WALK_BLOCK ? 2 : p->v <= 4 * WALK_BLOCK ? 4 : 8;
    const layout l = {blocks, 0, WALK_BLOCK * (p->dtype == BOLIDE_F32 ? 4 : 2), 0};
    const bolide__spec s =
        spec_of("sampling/softmax.cu", "bolide_softmax", p->dtype, BOLIDE__ROW_LOGITS, l);
    /* Parts of a chip that hold no multiple of them leave some multiprocessors without: of 33
     * clusters that would fit an H200 by number 30 do. More would take their turn when the first
     * are through. */
    const int64_t clusters = (int64_t)limits->sm_count * 10 / (11 * blocks);
    const bolide__grid g = grid_of(p->n < clusters ? p->n : clusters, l);
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

bolide_status bolide__sample_launch(const bolide__call *call, const bolide__sample_params *p) {
    BOLIDE_TRY(check_columns(call, p->v));
    const int min_p = p->filter == BOLIDE__FILTER_MIN_P;
    const int none = p->filter == BOLIDE__FILTER_NONE;
    const int counted = !min_p && !none && (p->top_k.data || p->top_k.integer > 0);
    const int summed = !min_p && !none && (p->top_p.data || !counted || !(p->top_p.number >= 1.0));
    const int ringed = has_ring(bolide__cuda_limits_of(call->ctx));
    const int32_t solo_blocks = !p->logits && (counted || min_p || ringed) ? 2 : 0;
    const bolide__row_kind kind = p->logits ? BOLIDE__ROW_LOGITS : BOLIDE__ROW_PROBS;
    layout l = none ? streaming_layout(call, p->b, p->v, !p->logits)
                    : selecting_layout(call, p->b, p->v, kind, solo_blocks);
    if (min_p && l.solo && ringed)
        l.shared = BOLIDE__ROW_ROOM_INDEXED; /* without a ring */
    bolide__spec s = spec_of("sampling/sample.cu", "bolide_sample", p->dtype, kind, l);
    bolide__spec_add(&s, "FILTERS", counted + 2 * summed + 4 * min_p); /* 0 to 4 */
    const bolide__grid g = grid_of(p->b, l);
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

bolide_status bolide__renorm_launch(const bolide__call *call, const bolide__renorm_params *p) {
    BOLIDE_TRY(check_columns(call, p->v));
    const bolide__row_kind kind = p->kind == BOLIDE__SOFTMAX      ? BOLIDE__ROW_LOGITS
                                  : p->kind == BOLIDE__MASK_TOP_K ? BOLIDE__ROW_SCORES
                                                                  : BOLIDE__ROW_PROBS;
    if (walks(call, p))
        return launch_walk(call, p);
    /* Of a flat row top-p keeps much, which two blocks read again side by side. */
    const int32_t solo_blocks =
        p->kind != BOLIDE__RENORM_TOP_P && has_ring(bolide__cuda_limits_of(call->ctx)) ? 2 : 0;
    const layout l = p->kind == BOLIDE__SOFTMAX
                         ? keeping_layout(call, p->n, p->v)
                         : selecting_layout(call, p->n, p->v, kind, solo_blocks);
    const bolide__spec s = spec_of("sampling/renorm.cu", "bolide_renorm", p->dtype, kind, l);
    const bolide__grid g = grid_of(p->n, l);
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

bolide_status bolide__speculative_launch(const bolide__call *call,
                                         const bolide__speculative_params *p) {
    BOLIDE_TRY(check_columns(call, p->v));
    const layout l = keeping_layout(call, p->b, p->v);
    const bolide__spec s = spec_of("sampling/speculative.cu", "bolide_speculative", BOLIDE_F32,
                                   BOLIDE__ROW_RESIDUAL, l);
    const bolide__grid g = grid_of(p->b, l);
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

bolide_status bolide__topk_launch(const bolide__call *call, const bolide__topk_params *p) {
    BOLIDE_TRY(check_columns(call, p->v));
    if (p->k == 0)
        return BOLIDE_OK;
    const layout l = selecting_layout(call, p->n, p->v, BOLIDE__ROW_RANKED, 4);
    bolide__spec s = spec_of("sampling/topk.cu", "bolide_topk", p->dtype, BOLIDE__ROW_RANKED, l);
    bolide__spec_add(&s, "FORM", p->form); /* 3 values */
    bolide__spec_add(&s, "SORTED", p->sorted);
    const bolide__grid g = grid_of(p->n, l);
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}
