// SPDX-License-Identifier: Apache-2.0
//
// Fronts of rope_quantize_fp8, mla_rope_quantize_fp8 and rope_quantize_fp8_append_paged_kv_cache.
// Each fills a list of parts (what to read, whether it turns, its factor, where it goes); one
// kernel a backend walks the list. Every element is read once and written once as a byte: bytes are
// the limit.

#include <bolide/rope.h>

#include <math.h>

#include "core/op.h"
#include "cuda/cuda.h"
#include "ops/rope/rope_quantize_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)
#define F8 (BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2)
#define KEYS(d) "n h_kv " d " | n " d
#define KV_CACHE(d) "kv_layout=NHD: p page_size h_kv " d "; HND: p h_kv page_size " d

#define TABLE_ROWS(A)                                                                              \
    BOLIDE_IN(A, cos_sin_cache, "max_pos d_rope", BOLIDE_F32, "cosines, then sines"),              \
        BOLIDE_IN(A, pos_ids, "n", BOLIDE_I32 | BOLIDE_I64, "position of each token")

#define SCALE_ROWS(A)                                                                              \
    BOLIDE_BOOL_ROW(A, is_neox, 1, "pairs (i, i + d_rope/2); 0: (2i, 2i+1)"),                      \
        BOLIDE_F64_ROW(A, quant_scale_q, 1.0, "multiplies q"),                                     \
        BOLIDE_F64_ROW(A, quant_scale_kv, 1.0, "multiplies k and v")

#define A bolide_rope_quantize_fp8_args
static const bolide_param quantize_rows[] = {
    BOLIDE_IN(A, q_rope, "n h_q d_rope", FLOATS, "channels of the queries that turn"),
    BOLIDE_IN(A, k_rope, KEYS("d_rope"), BOLIDE_LIKE(q_rope), "channels of the keys that turn"),
    BOLIDE_IN(A, q_nope, "n h_q d_nope", BOLIDE_LIKE(q_rope), "the queries' other channels",
              .flags = BOLIDE_OPTIONAL),
    BOLIDE_IN(A, k_nope, KEYS("d_nope"), BOLIDE_LIKE(q_rope), "the keys' other channels",
              .flags = BOLIDE_OPTIONAL),
    TABLE_ROWS(A),
    BOLIDE_OUT(A, q_rope_out, "n h_q d_rope", F8, "turned queries in 8 bits"),
    BOLIDE_OUT(A, k_rope_out, KEYS("d_rope"), BOLIDE_LIKE(q_rope_out), "turned keys in 8 bits"),
    BOLIDE_OUT(A, q_nope_out, "n h_q d_nope", BOLIDE_LIKE(q_rope_out), "q_nope in 8 bits",
               .flags = BOLIDE_OPTIONAL),
    BOLIDE_OUT(A, k_nope_out, KEYS("d_nope"), BOLIDE_LIKE(q_rope_out), "k_nope in 8 bits",
               .flags = BOLIDE_OPTIONAL),
    SCALE_ROWS(A),
};
#undef A

#define A bolide_mla_rope_quantize_fp8_args
static const bolide_param mla_rows[] = {
    BOLIDE_IN(A, q_rope, "n h_q d_rope", FLOATS, "channels of the queries that turn"),
    BOLIDE_IN(A, k_rope, "n d_rope", BOLIDE_LIKE(q_rope), "channels of the keys that turn"),
    BOLIDE_IN(A, q_nope, "n h_q d_nope", BOLIDE_LIKE(q_rope), "the queries' other channels"),
    BOLIDE_IN(A, k_nope, "n d_nope", BOLIDE_LIKE(q_rope), "the keys' other channels"),
    TABLE_ROWS(A),
    BOLIDE_OUT(A, q_rope_out, "n h_q d_rope", F8, "turned queries in 8 bits"),
    BOLIDE_OUT(A, k_rope_out, "n d_rope", BOLIDE_LIKE(q_rope_out), "turned keys in 8 bits"),
    BOLIDE_OUT(A, q_nope_out, "n h_q d_nope", BOLIDE_LIKE(q_rope_out), "q_nope in 8 bits"),
    BOLIDE_OUT(A, k_nope_out, "n d_nope", BOLIDE_LIKE(q_rope_out), "k_nope in 8 bits"),
    SCALE_ROWS(A),
};
#undef A

#define A bolide_rope_quantize_fp8_append_paged_kv_cache_args
static const bolide_param append_rows[] = {
    BOLIDE_IN(A, q_rope, "n h_q d_rope", FLOATS, "channels of the queries that turn"),
    BOLIDE_IN(A, k_rope, KEYS("d_rope"), BOLIDE_LIKE(q_rope), "channels of the keys that turn"),
    BOLIDE_IN(A, q_nope, "n h_q d_nope", BOLIDE_LIKE(q_rope), "the queries' other channels",
              .flags = BOLIDE_OPTIONAL),
    BOLIDE_IN(A, k_nope, KEYS("d_nope"), BOLIDE_LIKE(q_rope), "the keys' other channels",
              .flags = BOLIDE_OPTIONAL),
    BOLIDE_IN(A, v, "n h_kv d_vo", BOLIDE_LIKE(q_rope), "values; absent for MLA",
              .flags = BOLIDE_OPTIONAL),
    TABLE_ROWS(A),
    BOLIDE_INOUT(A, k_cache, KV_CACHE("d_qk"), F8, "key pages, d_qk = d_rope + d_nope",
                 .flags = BOLIDE_OPTIONAL),
    BOLIDE_INOUT(A, v_cache, KV_CACHE("d_vo"), F8, "value pages", .flags = BOLIDE_OPTIONAL),
    BOLIDE_INOUT(A, ckv_cache, "p page_size d_nope", F8, "MLA: pages of k_nope",
                 .flags = BOLIDE_OPTIONAL),
    BOLIDE_INOUT(A, kpe_cache, "p page_size d_rope", F8, "MLA: pages of k_rope",
                 .flags = BOLIDE_OPTIONAL),
    BOLIDE_IN(A, kv_indices, "_", BOLIDE_I32, "pages of all requests"),
    BOLIDE_IN(A, kv_indptr, "b+1", BOLIDE_I32, "range of each request in kv_indices"),
    BOLIDE_IN(A, batch_indices, "n", BOLIDE_I32, "request of each token; below 0: skipped"),
    BOLIDE_IN(A, positions, "n", BOLIDE_I32, "position of each token in its request"),
    BOLIDE_OUT(A, q_rope_out, "n h_q d_rope", F8, "turned queries in 8 bits"),
    BOLIDE_OUT(A, q_nope_out, "n h_q d_nope", BOLIDE_LIKE(q_rope_out), "q_nope in 8 bits",
               .flags = BOLIDE_OPTIONAL),
    SCALE_ROWS(A),
    BOLIDE_I64_ROW(A, page_size, BOLIDE_NO_INT, "tokens of a page; the caches' own if absent",
                   .flags = BOLIDE_OPTIONAL),
    BOLIDE_ENUM_ROW(A, kv_layout, "NHD HND", 0, "order of slots and heads in a page"),
};
#undef A

/* ---- the common part ------------------------------------------------------------------------ */

/* What the operators' argument structs have in common, by value. */
typedef struct quantize_args {
    const bolide_tensor *q_rope, *k_rope, *q_nope, *k_nope;
    const bolide_tensor *cos_sin_cache, *pos_ids;
    const bolide_tensor *q_rope_out, *k_rope_out, *q_nope_out, *k_nope_out;
    int64_t is_neox;
    double quant_scale_q, quant_scale_kv;
} quantize_args;

#define INPUTS(x)                                                                                  \
    .q_rope = (x)->q_rope, .k_rope = (x)->k_rope, .q_nope = (x)->q_nope, .k_nope = (x)->k_nope,    \
    .cos_sin_cache = (x)->cos_sin_cache, .pos_ids = (x)->pos_ids, .q_rope_out = (x)->q_rope_out,   \
    .q_nope_out = (x)->q_nope_out, .is_neox = (x)->is_neox, .quant_scale_q = (x)->quant_scale_q,   \
    .quant_scale_kv = (x)->quant_scale_kv
#define KEY_OUTPUTS(x) .k_rope_out = (x)->k_rope_out, .k_nope_out = (x)->k_nope_out

static bolide_status check_scale(const bolide__call *call, const char *name, double value) {
    if (isfinite(value))
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value", "a finite number", "%g", value);
}

/* An output is given exactly when its input is. */
static bolide_status check_both(const bolide__call *call, const char *out_name, const char *in_name,
                                const bolide_tensor *in, const bolide_tensor *out) {
    if (!in == !out)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, out_name, "pointer",
                           bolide__text("given exactly when %s is", in_name), "%s",
                           out ? "given" : "NULL");
}

static bolide_status check_inputs(const bolide__call *call, const quantize_args *a) {
    const int64_t d = a->cos_sin_cache->shape[1], limit = 2 * BOLIDE__ROPE_MAX_PAIRS;
    if (d < 2 || d % 2 || d > limit)
        return BOLIDE_FAIL_ARG(call, "q_rope", "shape",
                               bolide__text("an even d_rope of 2 to %lld", (long long)limit),
                               "%lld", (long long)d);
    if (a->k_nope && a->k_nope->ndim != a->k_rope->ndim)
        return BOLIDE_FAIL_ARG(call, "k_nope", "rank",
                               bolide__text("%d as k_rope has", (int)a->k_rope->ndim), "%d",
                               (int)a->k_nope->ndim);
    BOLIDE_TRY(check_both(call, "q_nope_out", "q_nope", a->q_nope, a->q_nope_out));
    BOLIDE_TRY(check_scale(call, "quant_scale_q", a->quant_scale_q));
    return check_scale(call, "quant_scale_kv", a->quant_scale_kv);
}

/* Keys without heads are one head that all share. */
static bolide__rope_part part_of(const bolide_tensor *in, const bolide_tensor *out, int64_t turns,
                                 double scale) {
    const bool heads = in->ndim == 3;
    return (bolide__rope_part){.in = bolide__data(in),
                               .out = bolide__data(out),
                               .h = heads ? in->shape[1] : 1,
                               .d = in->shape[in->ndim - 1],
                               .in_n = bolide__stride(in, 0),
                               .in_h = heads ? bolide__stride(in, 1) : 0,
                               .out_n = bolide__stride(out, 0),
                               .out_h = heads ? bolide__stride(out, 1) : 0,
                               .turns = turns,
                               .scale = (float)scale};
}

static void add(bolide__rope_quantize_params *p, bolide__rope_part part) {
    p->part[p->parts++] = part;
}

/* All but the keys and values. */
static bolide__rope_quantize_params fill_queries(const quantize_args *a) {
    bolide__rope_quantize_params p = {.n = a->q_rope->shape[0],
                                      .rotary_dim = a->q_rope->shape[2],
                                      .interleave = !a->is_neox,
                                      .dtype = bolide__bit(a->q_rope),
                                      .out_dtype = bolide__bit(a->q_rope_out),
                                      .pos_ids = bolide__data(a->pos_ids),
                                      .pos_is_i64 = bolide__bit(a->pos_ids) == BOLIDE_I64,
                                      .cos_sin_cache = bolide__data(a->cos_sin_cache),
                                      .max_pos = a->cos_sin_cache->shape[0],
                                      .cache_stride = bolide__stride(a->cos_sin_cache, 0)};
    add(&p, part_of(a->q_rope, a->q_rope_out, 1, a->quant_scale_q));
    if (a->q_nope)
        add(&p, part_of(a->q_nope, a->q_nope_out, 0, a->quant_scale_q));
    return p;
}

static bolide_status run_cpu(const bolide__call *call, bolide__rope_quantize_params *p) {
    int64_t row = 0;
    for (int64_t i = 0; i < p->parts; i++)
        row += p->part[i].h * p->part[i].d;
    bolide__parallel_for(call->ctx, p->n, bolide__row_grain(row),
                         BOLIDE_CPU_PICK(rope_quantize_tokens), p);
    return BOLIDE_OK;
}

/* Elements of a load: as many as 16 bytes hold and as divide every address, stride and part. */
static int64_t load_width(const bolide__rope_quantize_params *p) {
    const uint64_t bytes = (uint64_t)bolide__dtype_bytes(p->dtype);
    uint64_t bits = 16 / bytes;
    for (int64_t i = 0; i < p->parts; i++) {
        const bolide__rope_part *s = &p->part[i];
        bits |= (uint64_t)(s->turns && !p->interleave ? s->d / 2 : s->d);
        bits |= (uintptr_t)s->in / bytes | (uintptr_t)s->out;
        bits |= (uint64_t)(s->in_n | s->in_h | s->out_n | s->out_h | s->out_slot);
    }
    return (int64_t)(bits & -bits);
}

/* An item is two vectors of a head. */
static bolide_status run_cuda(const bolide__call *call, bolide__rope_quantize_params *p) {
    enum { THREADS = 256, PER = 2 };
    const int64_t width = load_width(p);
    int64_t items = 0, channels = 0;
    for (int64_t i = 0; i < p->parts; i++) {
        bolide__rope_part *s = &p->part[i];
        s->items = (s->d / width + 1) / 2;
        items += s->h * s->items;
        s->end = items;
        channels += s->h * s->d;
    }
    p->cache_vectors = (uintptr_t)p->cos_sin_cache % 16 == 0 && p->cache_stride % 4 == 0 &&
                       p->rotary_dim / 2 % 4 == 0;
    bolide__spec s = BOLIDE_SPEC("rope/rope_quantize.cu", "bolide_rope_quantize");
    bolide__spec_add(&s, "DT", p->dtype);     /* 3 values */
    bolide__spec_add(&s, "TO", p->out_dtype); /* 2 values */
    bolide__spec_add(&s, "VEC", width);       /* 4 values */
    bolide__spec_add(&s, "INTERLEAVE", p->interleave);
    bolide__spec_add(&s, "PAGED", p->positions != NULL);
    const bool few = bolide__is_few(p->n * channels * (bolide__dtype_bytes(p->dtype) + 1));
    const int64_t all = (few ? p->n : (p->n + PER - 1) / PER) * items;
    bolide__spec_add(&s, "FEW", few);
    bolide__spec_add(&s, "WIDE", bolide__is_wide(all));
    const bolide__grid g = {.x = (all + THREADS - 1) / THREADS, .block = THREADS, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

/* ---- rope_quantize_fp8, mla_rope_quantize_fp8 ----------------------------------------------- */

static quantize_args args_of(const bolide__call *call);

static bolide_status quantize_check(const bolide__call *call) {
    const quantize_args a = args_of(call);
    BOLIDE_TRY(check_inputs(call, &a));
    return check_both(call, "k_nope_out", "k_nope", a.k_nope, a.k_nope_out);
}

static bolide__rope_quantize_params quantize_fill(const bolide__call *call) {
    const quantize_args a = args_of(call);
    bolide__rope_quantize_params p = fill_queries(&a);
    add(&p, part_of(a.k_rope, a.k_rope_out, 1, a.quant_scale_kv));
    if (a.k_nope)
        add(&p, part_of(a.k_nope, a.k_nope_out, 0, a.quant_scale_kv));
    return p;
}

static bolide_status quantize_cpu(const bolide__call *call) {
    bolide__rope_quantize_params p = quantize_fill(call);
    return run_cpu(call, &p);
}

static bolide_status quantize_cuda(const bolide__call *call) {
    bolide__rope_quantize_params p = quantize_fill(call);
    return run_cuda(call, &p);
}

/* ---- rope_quantize_fp8_append_paged_kv_cache ------------------------------------------------ */

static bolide_status check_given(const bolide__call *call, const char *name, const bolide_tensor *t,
                                 bool wanted, const char *when) {
    if (wanted == (t != NULL))
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "pointer",
                           bolide__text("%s %s", wanted ? "given" : "NULL", when), "%s",
                           t ? "given" : "NULL");
}

static bolide_status check_cache_dtype(const bolide__call *call, const char *name,
                                       const bolide_tensor *cache, int64_t dtype) {
    if (!cache || bolide__bit(cache) == dtype)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "dtype",
                           bolide__text("%s as q_rope_out", bolide_dtype_name(dtype)), "%s",
                           bolide_dtype_name(bolide__bit(cache)));
}

static bolide_status check_caches(const bolide__call *call,
                                  const bolide_rope_quantize_fp8_append_paged_kv_cache_args *a) {
    const bool heads = a->k_rope->ndim == 3;
    const char *when = heads ? "with a k_rope that has heads" : "with a k_rope that has no heads";
    BOLIDE_TRY(check_given(call, "v", a->v, heads, when));
    BOLIDE_TRY(check_given(call, "k_cache", a->k_cache, heads, when));
    BOLIDE_TRY(check_given(call, "v_cache", a->v_cache, heads, when));
    BOLIDE_TRY(check_given(call, "ckv_cache", a->ckv_cache, !heads, when));
    BOLIDE_TRY(check_given(call, "kpe_cache", a->kpe_cache, !heads, when));
    if (!heads)
        BOLIDE_TRY(check_given(call, "k_nope", a->k_nope, true, when));
    const int64_t dtype = bolide__bit(a->q_rope_out);
    BOLIDE_TRY(check_cache_dtype(call, "k_cache", a->k_cache, dtype));
    BOLIDE_TRY(check_cache_dtype(call, "v_cache", a->v_cache, dtype));
    BOLIDE_TRY(check_cache_dtype(call, "ckv_cache", a->ckv_cache, dtype));
    return check_cache_dtype(call, "kpe_cache", a->kpe_cache, dtype);
}

static bolide_status append_check(const bolide__call *call) {
    const bolide_rope_quantize_fp8_append_paged_kv_cache_args *a = call->args;
    const quantize_args q = {INPUTS(a)};
    BOLIDE_TRY(check_inputs(call, &q));
    BOLIDE_TRY(check_caches(call, a));
    const bool heads = a->k_rope->ndim == 3;
    const bolide_tensor *cache = heads ? a->k_cache : a->kpe_cache;
    const int64_t page_size = cache->shape[heads && a->kv_layout ? 2 : 1];
    if (page_size < 1)
        return BOLIDE_FAIL_ARG(call, heads ? "k_cache" : "kpe_cache", "shape",
                               "a page_size of 1 or more", "%lld", (long long)page_size);
    if (!heads)
        return BOLIDE_OK;
    const int64_t d = a->k_rope->shape[2] + (a->k_nope ? a->k_nope->shape[2] : 0);
    if (cache->shape[3] == d)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(
        call, "k_cache", "shape",
        bolide__text("%lld channels, those of k_rope and k_nope together", (long long)d), "%lld",
        (long long)cache->shape[3]);
}

/* in to the channels [first, first + d) of a cache. */
static bolide__rope_part paged(const bolide_tensor *in, const bolide_tensor *cache, int64_t first,
                               int64_t layout, int64_t turns, double scale) {
    bolide__rope_part s = part_of(in, cache, turns, scale);
    const bool heads = cache->ndim == 4;
    const int32_t slot = heads && layout ? 2 : 1;
    s.out = (char *)s.out + first;
    s.is_paged = 1;
    s.out_slot = bolide__stride(cache, slot);
    s.out_h = heads ? bolide__stride(cache, 3 - slot) : 0;
    return s;
}

static bolide__rope_quantize_params append_fill(const bolide__call *call) {
    const bolide_rope_quantize_fp8_append_paged_kv_cache_args *a = call->args;
    const quantize_args q = {INPUTS(a)};
    bolide__rope_quantize_params p = fill_queries(&q);
    const bool heads = a->k_rope->ndim == 3;
    const bolide_tensor *cache = heads ? a->k_cache : a->kpe_cache;
    const double scale = a->quant_scale_kv;
    add(&p, paged(a->k_rope, cache, 0, a->kv_layout, 1, scale));
    if (a->k_nope && heads)
        add(&p, paged(a->k_nope, cache, p.rotary_dim, a->kv_layout, 0, scale));
    else if (a->k_nope)
        add(&p, paged(a->k_nope, a->ckv_cache, 0, a->kv_layout, 0, scale));
    if (a->v)
        add(&p, paged(a->v, a->v_cache, 0, a->kv_layout, 0, scale));
    p.table = (bolide__page_table){.indices = bolide__data(a->kv_indices),
                                   .indptr = bolide__data(a->kv_indptr),
                                   .index_count = a->kv_indices->shape[0],
                                   .b = a->kv_indptr->shape[0] - 1,
                                   .page_size = cache->shape[heads && a->kv_layout ? 2 : 1],
                                   .pages = cache->shape[0]};
    p.batch_indices = bolide__data(a->batch_indices);
    p.positions = bolide__data(a->positions);
    return p;
}

static bolide_status append_cpu(const bolide__call *call) {
    bolide__rope_quantize_params p = append_fill(call);
    return run_cpu(call, &p);
}

static bolide_status append_cuda(const bolide__call *call) {
    bolide__rope_quantize_params p = append_fill(call);
    return run_cuda(call, &p);
}

/* ---- the operators -------------------------------------------------------------------------- */

const bolide_op bolide_op_rope_quantize_fp8 = {
    .name = "rope_quantize_fp8",
    .family = "rope",
    .doc = "turn q and k by a table, multiply by a scale, round to 8 bits",
    .run = BOLIDE_ENTRY(bolide_rope_quantize_fp8_args, quantize_rows),
    .check = quantize_check,
    .cpu = quantize_cpu,
    .cuda = quantize_cuda,
};

const bolide_op bolide_op_mla_rope_quantize_fp8 = {
    .name = "mla_rope_quantize_fp8",
    .family = "rope",
    .doc = "rope_quantize_fp8 with keys that all heads share",
    .run = BOLIDE_ENTRY(bolide_mla_rope_quantize_fp8_args, mla_rows),
    .check = quantize_check,
    .cpu = quantize_cpu,
    .cuda = quantize_cuda,
};

const bolide_op bolide_op_rope_quantize_fp8_append_paged_kv_cache = {
    .name = "rope_quantize_fp8_append_paged_kv_cache",
    .family = "rope",
    .doc = "rope_quantize_fp8 with keys and values that go into the pages of their requests",
    .run = BOLIDE_ENTRY(bolide_rope_quantize_fp8_append_paged_kv_cache_args, append_rows),
    .check = append_check,
    .cpu = append_cpu,
    .cuda = append_cuda,
};

static quantize_args args_of(const bolide__call *call) {
    if (call->op == &bolide_op_mla_rope_quantize_fp8) {
        const bolide_mla_rope_quantize_fp8_args *a = call->args;
        return (quantize_args){INPUTS(a), KEY_OUTPUTS(a)};
    }
    const bolide_rope_quantize_fp8_args *a = call->args;
    return (quantize_args){INPUTS(a), KEY_OUTPUTS(a)};
}

bolide_status bolide_rope_quantize_fp8(const bolide_context *ctx,
                                       const bolide_rope_quantize_fp8_args *args,
                                       bolide_stream stream) {
    return bolide_run(&bolide_op_rope_quantize_fp8, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_mla_rope_quantize_fp8(const bolide_context *ctx,
                                           const bolide_mla_rope_quantize_fp8_args *args,
                                           bolide_stream stream) {
    return bolide_run(&bolide_op_mla_rope_quantize_fp8, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_rope_quantize_fp8_append_paged_kv_cache(
    const bolide_context *ctx, const bolide_rope_quantize_fp8_append_paged_kv_cache_args *args,
    bolide_stream stream) {
    return bolide_run(&bolide_op_rope_quantize_fp8_append_paged_kv_cache, BOLIDE_RUN, ctx, args,
                      stream);
}
