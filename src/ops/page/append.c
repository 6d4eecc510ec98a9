// SPDX-License-Identifier: Apache-2.0
//
// Fronts of append_paged_kv_cache and append_paged_mla_kv_cache: one parameter struct with two
// sides serves both. A token is a unit of work; bytes are the limit.

#include <bolide/page.h>

#include "core/op.h"
#include "cuda/cuda.h"
#include "ops/page/page_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32 | BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2)
#define KV_CACHE(d) "kv_layout=NHD: p page_size h_kv " d "; HND: p h_kv page_size " d

#define A bolide_append_paged_kv_cache_args
static const bolide_param append_kv_rows[] = {
    BOLIDE_IN(A, append_key, "nnz h_kv d_qk", FLOATS, "keys to append"),
    BOLIDE_IN(A, append_value, "nnz h_kv d_vo", BOLIDE_LIKE(append_key), "values to append"),
    BOLIDE_IN(A, batch_indices, "nnz", BOLIDE_I32, "request of each token; below 0: skipped"),
    BOLIDE_IN(A, positions, "nnz", BOLIDE_I32, "position of each token in its request"),
    BOLIDE_INOUT(A, k_cache, KV_CACHE("d_qk"), FLOATS, "key pages"),
    BOLIDE_INOUT(A, v_cache, KV_CACHE("d_vo"), BOLIDE_LIKE(k_cache), "value pages"),
    BOLIDE_IN(A, kv_indices, "_", BOLIDE_I32, "pages of all requests"),
    BOLIDE_IN(A, kv_indptr, "b+1", BOLIDE_I32, "range of each request in kv_indices"),
    BOLIDE_IN(A, kv_last_page_len, "b", BOLIDE_I32, "tokens in each last page"),
    BOLIDE_ENUM_ROW(A, kv_layout, "NHD HND", 0, "order of slots and heads in a page"),
};
#undef A

#define A bolide_append_paged_mla_kv_cache_args
static const bolide_param append_mla_rows[] = {
    BOLIDE_IN(A, append_ckv, "nnz d_ckv", FLOATS, "compressed rows to append",
              .flags = BOLIDE_OPTIONAL),
    BOLIDE_IN(A, append_kpe, "nnz d_kpe", FLOATS, "RoPE rows to append", .flags = BOLIDE_OPTIONAL),
    BOLIDE_IN(A, batch_indices, "nnz", BOLIDE_I32, "request of each token; below 0: skipped"),
    BOLIDE_IN(A, positions, "nnz", BOLIDE_I32, "position of each token in its request"),
    BOLIDE_INOUT(A, ckv_cache, "p page_size d_ckv", FLOATS, "pages of compressed rows",
                 .flags = BOLIDE_OPTIONAL),
    BOLIDE_INOUT(A, kpe_cache, "p page_size d_kpe", FLOATS, "pages of RoPE rows",
                 .flags = BOLIDE_OPTIONAL),
    BOLIDE_IN(A, kv_indices, "_", BOLIDE_I32, "pages of all requests"),
    BOLIDE_IN(A, kv_indptr, "b+1", BOLIDE_I32, "range of each request in kv_indices"),
    BOLIDE_IN(A, kv_last_page_len, "b", BOLIDE_I32, "tokens in each last page"),
};
#undef A

/* ---- checks ------------------------------------------------------------------------------- */

/* The cache takes what is appended as it is, or rounded to fewer bits. */
static bolide_status check_pair(const bolide__call *call, const char *cache_name,
                                const bolide_tensor *source, const bolide_tensor *cache) {
    const int64_t from = bolide__bit(source), to = bolide__bit(cache);
    if (from == to || bolide__dtype_bytes(to) < bolide__dtype_bytes(from))
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(
        call, cache_name, "dtype",
        bolide__text("%s%s", bolide_dtype_name(from),
                     bolide__dtype_bytes(from) > 1 ? " or a type of fewer bits" : ""),
        "%s", bolide_dtype_name(to));
}

static bolide_status check_page_size(const bolide__call *call, const char *cache_name) {
    if (bolide__dim(call, "page_size") >= 1)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, cache_name, "shape", "a page_size of 1 or more", "%lld",
                           (long long)bolide__dim(call, "page_size"));
}

static bolide_status append_kv_check(const bolide__call *call) {
    const bolide_append_paged_kv_cache_args *a = call->args;
    BOLIDE_TRY(check_page_size(call, "k_cache"));
    return check_pair(call, "k_cache", a->append_key, a->k_cache);
}

static bolide_status append_mla_check(const bolide__call *call) {
    const bolide_append_paged_mla_kv_cache_args *a = call->args;
    if (!a->append_ckv != !a->ckv_cache)
        return BOLIDE_FAIL_ARG(call, "ckv_cache", "pointer", "given exactly when append_ckv is",
                               a->ckv_cache ? "given" : "NULL");
    if (!a->append_kpe != !a->kpe_cache)
        return BOLIDE_FAIL_ARG(call, "kpe_cache", "pointer", "given exactly when append_kpe is",
                               a->kpe_cache ? "given" : "NULL");
    if (!a->ckv_cache && !a->kpe_cache)
        return BOLIDE_FAIL_ARG(call, "ckv_cache", "pointer", "ckv_cache or kpe_cache", "neither");
    BOLIDE_TRY(check_page_size(call, a->ckv_cache ? "ckv_cache" : "kpe_cache"));
    if (a->ckv_cache)
        BOLIDE_TRY(check_pair(call, "ckv_cache", a->append_ckv, a->ckv_cache));
    if (a->kpe_cache)
        BOLIDE_TRY(check_pair(call, "kpe_cache", a->append_kpe, a->kpe_cache));
    if (a->ckv_cache && a->kpe_cache) {
        if (bolide__bit(a->append_ckv) != bolide__bit(a->append_kpe))
            return BOLIDE_FAIL_ARG(call, "append_kpe", "dtype",
                                   bolide_dtype_name(bolide__bit(a->append_ckv)), "%s",
                                   bolide_dtype_name(bolide__bit(a->append_kpe)));
        if (bolide__bit(a->ckv_cache) != bolide__bit(a->kpe_cache))
            return BOLIDE_FAIL_ARG(call, "kpe_cache", "dtype",
                                   bolide_dtype_name(bolide__bit(a->ckv_cache)), "%s",
                                   bolide_dtype_name(bolide__bit(a->kpe_cache)));
    }
    return BOLIDE_OK;
}

/* ---- parameters --------------------------------------------------------------------------- */

static bolide__page_table page_table(const bolide_tensor *indices, const bolide_tensor *indptr,
                                     const bolide_tensor *last_page_len) {
    return (bolide__page_table){.indices = bolide__data(indices),
                                .indptr = bolide__data(indptr),
                                .last_page_len = bolide__data(last_page_len),
                                .index_count = indices->shape[0],
                                .b = last_page_len->shape[0]};
}

static bolide__append_side kv_side(const bolide_tensor *source, const bolide_tensor *cache,
                                   int64_t layout) {
    const int32_t slot = layout == 0 ? 1 : 2;
    return (bolide__append_side){.source = bolide__data(source),
                                 .cache = bolide__data(cache),
                                 .d = source->shape[2],
                                 .source_n = bolide__stride(source, 0),
                                 .source_h = bolide__stride(source, 1),
                                 .cache_page = bolide__stride(cache, 0),
                                 .cache_slot = bolide__stride(cache, slot),
                                 .cache_head = bolide__stride(cache, 3 - slot)};
}

static bolide__append_side mla_side(const bolide_tensor *source, const bolide_tensor *cache) {
    if (!source)
        return (bolide__append_side){0};
    return (bolide__append_side){.source = bolide__data(source),
                                 .cache = bolide__data(cache),
                                 .d = source->shape[1],
                                 .source_n = bolide__stride(source, 0),
                                 .cache_page = bolide__stride(cache, 0),
                                 .cache_slot = bolide__stride(cache, 1)};
}

static bolide__append_params append_kv_fill(const bolide__call *call) {
    const bolide_append_paged_kv_cache_args *a = call->args;
    bolide__append_params p = {
        .table = page_table(a->kv_indices, a->kv_indptr, a->kv_last_page_len),
        .batch_indices = bolide__data(a->batch_indices),
        .positions = bolide__data(a->positions),
        .nnz = a->positions->shape[0],
        .h = a->append_key->shape[1],
        .source_dtype = bolide__bit(a->append_key),
        .cache_dtype = bolide__bit(a->k_cache),
        .side = {kv_side(a->append_key, a->k_cache, a->kv_layout),
                 kv_side(a->append_value, a->v_cache, a->kv_layout)},
    };
    p.table.pages = a->k_cache->shape[0];
    p.table.page_size = a->k_cache->shape[a->kv_layout == 0 ? 1 : 2];
    return p;
}

static bolide__append_params append_mla_fill(const bolide__call *call) {
    const bolide_append_paged_mla_kv_cache_args *a = call->args;
    const bolide_tensor *source = a->append_ckv ? a->append_ckv : a->append_kpe;
    const bolide_tensor *cache = a->ckv_cache ? a->ckv_cache : a->kpe_cache;
    bolide__append_params p = {
        .table = page_table(a->kv_indices, a->kv_indptr, a->kv_last_page_len),
        .batch_indices = bolide__data(a->batch_indices),
        .positions = bolide__data(a->positions),
        .nnz = a->positions->shape[0],
        .h = 1,
        .source_dtype = bolide__bit(source),
        .cache_dtype = bolide__bit(cache),
        .side = {mla_side(a->append_ckv, a->ckv_cache), mla_side(a->append_kpe, a->kpe_cache)},
    };
    p.table.pages = cache->shape[0];
    p.table.page_size = cache->shape[1];
    return p;
}

/* ---- backends ----------------------------------------------------------------------------- */

static bolide_status append_cpu(const bolide__call *call, bolide__append_params *p) {
    const int64_t row = p->h * (p->side[0].d + p->side[1].d);
    bolide__parallel_for(call->ctx, p->nnz, bolide__row_grain(row), BOLIDE_CPU_PICK(append_tokens),
                         p);
    return BOLIDE_OK;
}

static bolide_status append_kv_cpu(const bolide__call *call) {
    bolide__append_params p = append_kv_fill(call);
    return append_cpu(call, &p);
}

static bolide_status append_mla_cpu(const bolide__call *call) {
    bolide__append_params p = append_mla_fill(call);
    return append_cpu(call, &p);
}

/* Elements of a load: as many as 16 bytes of the source hold and as divide every address, stride
 * and row. */
static int64_t load_width(const bolide__append_params *p) {
    const uint64_t from = (uint64_t)bolide__dtype_bytes(p->source_dtype);
    const uint64_t to = (uint64_t)bolide__dtype_bytes(p->cache_dtype);
    uint64_t bits = 16 / from;
    for (int i = 0; i < 2; i++) {
        const bolide__append_side *s = &p->side[i];
        if (!s->source)
            continue;
        bits |= (uintptr_t)s->source / from | (uintptr_t)s->cache / to | (uint64_t)s->d;
        bits |= (uint64_t)(s->source_n | s->source_h);
        bits |= (uint64_t)(s->cache_page | s->cache_slot | s->cache_head);
    }
    return (int64_t)(bits & -bits);
}

static bolide_status append_cuda(const bolide__call *call, bolide__append_params *p) {
    enum { THREADS = 256 };
    const int64_t width = load_width(p), vecs = p->h * (p->side[0].d + p->side[1].d) / width;
    const int64_t bytes =
        bolide__dtype_bytes(p->source_dtype) + bolide__dtype_bytes(p->cache_dtype);
    const int few = bolide__cuda_few(p->nnz * vecs * width * bytes);
    const int64_t per = few ? 1 : 2;
    const int64_t sides = !few && p->side[0].d == p->side[1].d && vecs % 4 == 0 ? 2 : 1;
    p->threads = (vecs / sides + per - 1) / per;
    bolide__spec s = BOLIDE_SPEC("page/append.cu", "bolide_append");
    bolide__spec_add(&s, "FROM", p->source_dtype); /* 5 values */
    bolide__spec_add(&s, "TO", p->cache_dtype);    /* FROM or 2 values */
    bolide__spec_add(&s, "VEC", width);            /* 5 values */
    bolide__spec_add(&s, "FEW", few);
    bolide__spec_add(&s, "PER", per); /* follows from FEW */
    bolide__spec_add(&s, "WIDE", bolide__is_wide(p->nnz * p->threads));
    const bolide__grid g = {.x = (p->nnz * p->threads + THREADS - 1) / THREADS,
                            .y = sides,
                            .block = THREADS,
                            .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

static bolide_status append_kv_cuda(const bolide__call *call) {
    bolide__append_params p = append_kv_fill(call);
    return append_cuda(call, &p);
}

static bolide_status append_mla_cuda(const bolide__call *call) {
    bolide__append_params p = append_mla_fill(call);
    return append_cuda(call, &p);
}

const bolide_op bolide_op_append_paged_kv_cache = {
    .name = "append_paged_kv_cache",
    .family = "page",
    .doc = "write tokens of keys and values into the pages of their requests",
    .run = BOLIDE_ENTRY(bolide_append_paged_kv_cache_args, append_kv_rows),
    .check = append_kv_check,
    .cpu = append_kv_cpu,
    .cuda = append_kv_cuda,
};

const bolide_op bolide_op_append_paged_mla_kv_cache = {
    .name = "append_paged_mla_kv_cache",
    .family = "page",
    .doc = "write compressed and RoPE rows of MLA into the pages of their requests",
    .run = BOLIDE_ENTRY(bolide_append_paged_mla_kv_cache_args, append_mla_rows),
    .check = append_mla_check,
    .cpu = append_mla_cpu,
    .cuda = append_mla_cuda,
};

bolide_status bolide_append_paged_kv_cache(const bolide_context *ctx,
                                           const bolide_append_paged_kv_cache_args *args,
                                           bolide_stream stream) {
    return bolide_run(&bolide_op_append_paged_kv_cache, BOLIDE_RUN, ctx, args, stream);
}

bolide_status bolide_append_paged_mla_kv_cache(const bolide_context *ctx,
                                               const bolide_append_paged_mla_kv_cache_args *args,
                                               bolide_stream stream) {
    return bolide_run(&bolide_op_append_paged_mla_kv_cache, BOLIDE_RUN, ctx, args, stream);
}
