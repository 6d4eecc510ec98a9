// SPDX-License-Identifier: Apache-2.0
//
// Fronts of the five operators that rotate q and k. They differ in where positions and frequencies
// come from; one parameter struct and one kernel a backend serve them all. A token's cosines and
// sines are computed once and used for every head, so bytes are the limit.

#include <bolide/rope.h>

#include <math.h>

#include "core/op.h"
#include "cuda/cuda.h"
#include "ops/rope/rope_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)

#define QK_ROWS(A)                                                                                 \
    BOLIDE_IN(A, q, "n h_q d", FLOATS, "queries"),                                                 \
        BOLIDE_IN(A, k, "n h_kv d", BOLIDE_LIKE(q), "keys"),                                       \
        BOLIDE_OUT(A, q_rope_out, "n h_q d", BOLIDE_LIKE(q), "turned queries; may be q",           \
                   .alias = "q"),                                                                  \
        BOLIDE_OUT(A, k_rope_out, "n h_kv d", BOLIDE_LIKE(q), "turned keys; may be k",             \
                   .alias = "k"),                                                                  \
        BOLIDE_I64_ROW(A, rotary_dim, BOLIDE_NO_INT, "leading channels that turn; all if absent",  \
                       .flags = BOLIDE_OPTIONAL),                                                  \
        BOLIDE_BOOL_ROW(A, interleave, 0, "pairs (2i, 2i+1) instead of (i, i + rotary_dim/2)")

#define RAGGED_ROWS(A)                                                                             \
    BOLIDE_IN(A, indptr, "b+1", BOLIDE_I32, "range of each request in the tokens"),                \
        BOLIDE_IN(A, offsets, "b", BOLIDE_I32, "position of each request's first token")

#define POS_IDS_ROWS(A)                                                                            \
    BOLIDE_IN(A, pos_ids, "n", BOLIDE_I32 | BOLIDE_I64, "position of each token")

#define FREQ_ROWS(A, scale, theta)                                                                 \
    BOLIDE_F64_ROW(A, rope_scale, scale, "divides the frequencies"),                               \
        BOLIDE_F64_ROW(A, rope_theta, theta, "base of the frequencies")

#define LLAMA31_ROWS(A)                                                                            \
    FREQ_ROWS(A, 8.0, 500000.0),                                                                   \
        BOLIDE_F64_ROW(A, low_freq_factor, 1.0, "turns in old_context_len below which to scale"),  \
        BOLIDE_F64_ROW(A, high_freq_factor, 4.0, "turns above which not to scale"),                \
        BOLIDE_I64_ROW(A, old_context_len, 8192, "context length before scaling")

static const bolide_param rope_rows[] = {QK_ROWS(bolide_apply_rope_args),
                                         RAGGED_ROWS(bolide_apply_rope_args),
                                         FREQ_ROWS(bolide_apply_rope_args, 1.0, 10000.0)};

static const bolide_param rope_pos_ids_rows[] = {
    QK_ROWS(bolide_apply_rope_pos_ids_args), POS_IDS_ROWS(bolide_apply_rope_pos_ids_args),
    FREQ_ROWS(bolide_apply_rope_pos_ids_args, 1.0, 10000.0)};

static const bolide_param llama31_rows[] = {QK_ROWS(bolide_apply_llama31_rope_args),
                                            RAGGED_ROWS(bolide_apply_llama31_rope_args),
                                            LLAMA31_ROWS(bolide_apply_llama31_rope_args)};

static const bolide_param llama31_pos_ids_rows[] = {
    QK_ROWS(bolide_apply_llama31_rope_pos_ids_args),
    POS_IDS_ROWS(bolide_apply_llama31_rope_pos_ids_args),
    LLAMA31_ROWS(bolide_apply_llama31_rope_pos_ids_args)};

#define A bolide_apply_rope_with_cos_sin_cache_args
static const bolide_param cache_rows[] = {
    BOLIDE_IN(A, positions, "n", BOLIDE_I32 | BOLIDE_I64, "position of each token"),
    BOLIDE_IN(A, query, "n h_q d", FLOATS, "queries"),
    BOLIDE_IN(A, key, "n h_kv d", BOLIDE_LIKE(query), "keys"),
    BOLIDE_IN(A, cos_sin_cache, "max_pos rotary_dim", BOLIDE_F32, "cosines, then sines"),
    BOLIDE_OUT(A, query_out, "n h_q d", BOLIDE_LIKE(query), "turned queries; may be query",
               .alias = "query"),
    BOLIDE_OUT(A, key_out, "n h_kv d", BOLIDE_LIKE(query), "turned keys; may be key",
               .alias = "key"),
    BOLIDE_BOOL_ROW(A, is_neox, 1, "pairs (i, i + rotary_dim/2); 0: (2i, 2i+1)"),
};
#undef A

/* ---- the common part ---------------------------------------------------------------------- */

/* What the operators' argument structs have in common, by value. */
typedef struct rope_args {
    const bolide_tensor *q, *k, *q_out, *k_out;
    const bolide_tensor *pos_ids, *indptr, *offsets; /* one or the other two */
    const bolide_tensor *cos_sin_cache;              /* or frequencies from what follows */
    int64_t rotary_dim, interleave;
    double rope_scale, rope_theta;
    double low, high; /* both 0: no Llama 3.1 smoothing */
    int64_t old_context_len;
} rope_args;

/* x: an args struct with q and k; the members of the Llama 3.1 forms are added by the caller. */
#define ROPE_ARGS(x)                                                                               \
    .q = (x)->q, .k = (x)->k, .q_out = (x)->q_rope_out, .k_out = (x)->k_rope_out,                  \
    .rotary_dim = (x)->rotary_dim == BOLIDE_NO_INT ? (x)->q->shape[2] : (x)->rotary_dim,           \
    .interleave = (x)->interleave, .rope_scale = (x)->rope_scale, .rope_theta = (x)->rope_theta

#define LLAMA31_ARGS(x)                                                                            \
    .low = (x)->low_freq_factor, .high = (x)->high_freq_factor,                                    \
    .old_context_len = (x)->old_context_len

static rope_args args_of(const bolide__call *call);

static bolide_status check_number(const bolide__call *call, const char *name, double value) {
    if (value > 0 && isfinite(value))
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value", "a number above 0", "%g", value);
}

static bolide_status check(const bolide__call *call) {
    const rope_args a = args_of(call);
    const int64_t d = a.q->shape[2], limit = 2 * BOLIDE__ROPE_MAX_PAIRS;
    if (a.rotary_dim < 2 || a.rotary_dim % 2 || a.rotary_dim > d || a.rotary_dim > limit)
        return BOLIDE_FAIL_ARG(
            call, a.cos_sin_cache ? "cos_sin_cache" : "rotary_dim",
            a.cos_sin_cache ? "shape" : "value",
            bolide__text("an even rotary_dim of 2 to %lld", (long long)(d < limit ? d : limit)),
            "%lld", (long long)a.rotary_dim);
    if (a.cos_sin_cache)
        return BOLIDE_OK;
    BOLIDE_TRY(check_number(call, "rope_scale", a.rope_scale));
    BOLIDE_TRY(check_number(call, "rope_theta", a.rope_theta));
    if (a.high == 0 && a.low == 0)
        return BOLIDE_OK;
    if (!(a.high > a.low) || !isfinite(a.high) || !isfinite(a.low))
        return BOLIDE_FAIL_ARG(call, "high_freq_factor", "value",
                               bolide__text("above low_freq_factor, %g", a.low), "%g", a.high);
    return check_number(call, "old_context_len", (double)a.old_context_len);
}

static void fill_freq(const rope_args *a, double *freq) {
    const double pi = 3.14159265358979323846;
    for (int64_t i = 0; i < a->rotary_dim / 2; i++) {
        const double f = pow(a->rope_theta, -2.0 * (double)i / (double)a->rotary_dim);
        freq[i] = f / a->rope_scale;
        if (a->high == 0 && a->low == 0)
            continue;
        const double turns = (double)a->old_context_len * f / (2 * pi);
        const double s = fmin(fmax((turns - a->low) / (a->high - a->low), 0.0), 1.0);
        freq[i] = (1 - s) * f / a->rope_scale + s * f;
    }
}

static bolide__rope_side side(const bolide_tensor *in, const bolide_tensor *out) {
    return (bolide__rope_side){.in = bolide__data(in),
                               .out = bolide__data(out),
                               .h = in->shape[1],
                               .in_n = bolide__stride(in, 0),
                               .in_h = bolide__stride(in, 1),
                               .out_n = bolide__stride(out, 0),
                               .out_h = bolide__stride(out, 1)};
}

/* freq: room for the frequencies. */
static void fill(const bolide__call *call, bolide__rope_params *p, double *freq) {
    const rope_args a = args_of(call);
    *p = (bolide__rope_params){.side = {side(a.q, a.q_out), side(a.k, a.k_out)},
                               .n = a.q->shape[0],
                               .d = a.q->shape[2],
                               .rotary_dim = a.rotary_dim,
                               .interleave = a.interleave,
                               .dtype = bolide__bit(a.q)};
    if (a.pos_ids) {
        p->pos_ids = bolide__data(a.pos_ids);
        p->pos_is_i64 = bolide__bit(a.pos_ids) == BOLIDE_I64;
    } else {
        p->indptr = bolide__data(a.indptr);
        p->offsets = bolide__data(a.offsets);
        p->b = a.offsets->shape[0];
    }
    if (a.cos_sin_cache) {
        p->cos_sin_cache = bolide__data(a.cos_sin_cache);
        p->max_pos = a.cos_sin_cache->shape[0];
        p->cache_stride = bolide__stride(a.cos_sin_cache, 0);
    } else {
        fill_freq(&a, freq);
        p->freq = freq;
    }
}

static bolide_status rope_cpu(const bolide__call *call) {
    double freq[BOLIDE__ROPE_MAX_PAIRS];
    bolide__rope_params p;
    fill(call, &p, freq);
    const int64_t row = (p.side[0].h + p.side[1].h) * p.d;
    bolide__parallel_for(call->ctx, p.n, bolide__long_grain(p.n, row), BOLIDE_CPU_PICK(rope_tokens),
                         &p);
    return BOLIDE_OK;
}

/* Elements of a load: as many as 16 bytes hold and as divide every address, stride and part. */
static int64_t load_width(const bolide__rope_params *p) {
    const uint64_t bytes = (uint64_t)bolide__dtype_bytes(p->dtype);
    const uint64_t part = (uint64_t)(p->interleave ? p->rotary_dim : p->rotary_dim / 2);
    uint64_t bits = 16 / bytes | part | (uint64_t)(p->d - p->rotary_dim);
    for (int i = 0; i < 2; i++) {
        const bolide__rope_side *s = &p->side[i];
        bits |= (uintptr_t)s->in / bytes | (uintptr_t)s->out / bytes;
        bits |= (uint64_t)(s->in_n | s->in_h | s->out_n | s->out_h);
    }
    return (int64_t)(bits & -bits);
}

/* With a table a thread has one head: the angles are near. Angles that are made are shared by the
 * tokens and heads of a block, of which there are few where there are few tokens. Few tokens with a
 * table have a row of blocks each, which spares a division. */
static bolide_status rope_cuda(const bolide__call *call) {
    enum { MANY_TOKENS = 1024, MOST_ROWS = 65535 };
    bolide__rope_made_params made;
    bolide__rope_params *p = &made.rope;
    fill(call, p, made.freq);
    p->freq = NULL;
    const int64_t heads = p->side[0].h + p->side[1].h, width = load_width(p);
    const int64_t parts = p->interleave && width > 1 ? 1 : 2;
    const int64_t tokens = p->cos_sin_cache ? 0 : p->n >= MANY_TOKENS ? 4 : 1;
    const int64_t per = tokens < 4 ? 1 : heads % 5 == 0 ? 5 : 4;
    p->items = p->rotary_dim / (parts * width) + (p->d - p->rotary_dim) / width;
    p->threads = (heads + per - 1) / per * p->items;
    p->cache_vectors = (uintptr_t)p->cos_sin_cache % 16 == 0 && p->cache_stride % 4 == 0 &&
                       p->rotary_dim / 2 % 4 == 0;
    const int64_t bytes = 2 * p->n * heads * p->d * bolide__dtype_bytes(p->dtype);
    const int few = tokens || p->n <= MOST_ROWS ? bolide__cuda_few(bytes) : 0;
    const int32_t threads = tokens ? BOLIDE__ROPE_THREADS
                            : few  ? BOLIDE__ROPE_FEW_THREADS
                                   : BOLIDE__ROPE_TABLE_THREADS;
    bolide__spec s = BOLIDE_SPEC("rope/rope.cu", "bolide_rope");
    bolide__spec_add(&s, "DT", p->dtype);   /* 3 values */
    bolide__spec_add(&s, "VEC", width);     /* 4 values */
    bolide__spec_add(&s, "HEADS", per);     /* 3 values */
    bolide__spec_add(&s, "TOKENS", tokens); /* 3 values */
    bolide__spec_add(&s, "INTERLEAVE", p->interleave);
    bolide__spec_add(&s, "FEW", few); /* 3 values */
    bolide__spec_add(&s, "WIDE", bolide__is_wide(p->n * p->threads));
    bolide__grid g = {.block = threads, .dependent = 1};
    const int64_t of_token = (p->threads + threads - 1) / threads;
    if (tokens) {
        g.x = (p->n + tokens - 1) / tokens;
        g.y = (tokens * p->threads + threads - 1) / threads;
        return bolide__cuda_launch(call, &s, &g, &made, sizeof made);
    }
    g.x = few ? of_token : (p->n * p->threads + threads - 1) / threads;
    g.y = few ? p->n : 1;
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

/* ---- the operators ------------------------------------------------------------------------ */

#define ROPE_OP(op_name, rows, text)                                                               \
    const bolide_op bolide_op_##op_name = {                                                        \
        .name = #op_name,                                                                          \
        .family = "rope",                                                                          \
        .doc = text,                                                                               \
        .run = BOLIDE_ENTRY(bolide_##op_name##_args, rows),                                        \
        .check = check,                                                                            \
        .cpu = rope_cpu,                                                                           \
        .cuda = rope_cuda,                                                                         \
    };                                                                                             \
    bolide_status bolide_##op_name(const bolide_context *ctx, const bolide_##op_name##_args *args, \
                                   bolide_stream stream) {                                         \
        return bolide_run(&bolide_op_##op_name, BOLIDE_RUN, ctx, args, stream);                    \
    }

ROPE_OP(apply_rope, rope_rows, "turn q and k by their position in ragged requests")
ROPE_OP(apply_rope_pos_ids, rope_pos_ids_rows, "turn q and k by the position of each token")
ROPE_OP(apply_llama31_rope, llama31_rows, "apply_rope with the frequencies of Llama 3.1")
ROPE_OP(apply_llama31_rope_pos_ids, llama31_pos_ids_rows,
        "apply_rope_pos_ids with the frequencies of Llama 3.1")
ROPE_OP(apply_rope_with_cos_sin_cache, cache_rows, "turn q and k by a table of cosines and sines")

static rope_args args_of(const bolide__call *call) {
    if (call->op == &bolide_op_apply_rope) {
        const bolide_apply_rope_args *a = call->args;
        return (rope_args){ROPE_ARGS(a), .indptr = a->indptr, .offsets = a->offsets};
    }
    if (call->op == &bolide_op_apply_rope_pos_ids) {
        const bolide_apply_rope_pos_ids_args *a = call->args;
        return (rope_args){ROPE_ARGS(a), .pos_ids = a->pos_ids};
    }
    if (call->op == &bolide_op_apply_llama31_rope) {
        const bolide_apply_llama31_rope_args *a = call->args;
        return (rope_args){ROPE_ARGS(a), LLAMA31_ARGS(a), .indptr = a->indptr,
                           .offsets = a->offsets};
    }
    if (call->op == &bolide_op_apply_llama31_rope_pos_ids) {
        const bolide_apply_llama31_rope_pos_ids_args *a = call->args;
        return (rope_args){ROPE_ARGS(a), LLAMA31_ARGS(a), .pos_ids = a->pos_ids};
    }
    const bolide_apply_rope_with_cos_sin_cache_args *a = call->args;
    return (rope_args){.q = a->query,
                       .k = a->key,
                       .q_out = a->query_out,
                       .k_out = a->key_out,
                       .pos_ids = a->positions,
                       .cos_sin_cache = a->cos_sin_cache,
                       .rotary_dim = a->cos_sin_cache->shape[1],
                       .interleave = !a->is_neox};
}
