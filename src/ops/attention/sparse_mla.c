// SPDX-License-Identifier: Apache-2.0
//
// Front of sparse_mla. What the lists hold lies in the caller's memory and is read by the kernel
// alone; here are shapes, formats and the layout of the scratch.

#include <bolide/sparse_mla.h>

#include "core/context.h"
#include "core/rows_internal.h"
#include "ops/attention/attention_rows.h"
#include "ops/attention/sparse_mla.h"

#define CACHE(p, size)                                                                             \
    "kv_format=PLAIN: " p " " size " d_qk; FP8_656: " p " " size " 656; FP8_584: " p " " size " 5" \
    "84"

#define A bolide_sparse_mla_args
static const bolide_param rows[] = {
    BOLIDE_IN(A, q, "n h_q d_qk", BOLIDE__ATTN_DTYPES, "queries in the latent's space"),
    BOLIDE_IN(A, kv_cache, CACHE("p", "page_size"), BOLIDE__ATTN_DTYPES | BOLIDE_U8,
              "pages of latents with their rotary part"),
    BOLIDE_ENUM_ROW(A, kv_format, "PLAIN FP8_656 FP8_584", BOLIDE_MLA_KV_PLAIN,
                    "how the caches hold a key"),
    BOLIDE_IN(A, indices, "n k", BOLIDE_I32, "rows of kv_cache; below 0: none"),
    BOLIDE_IN(A, topk_lens, "n", BOLIDE_I32, "entries of indices that count; default all",
              BOLIDE__ATTN_OPTION),
    BOLIDE_IN(A, seq_lens, "b", BOLIDE_I32, "keys of each request, which cut the lists",
              BOLIDE__ATTN_OPTION),
    BOLIDE_IN(A, qo_indptr, "b+1", BOLIDE_I32, "first query of each request; default n/b each",
              BOLIDE__ATTN_OPTION),
    BOLIDE_IN(A, extra_kv_cache, CACHE("p_x", "page_size_x"), BOLIDE_LIKE(kv_cache),
              "pages of the second list", BOLIDE__ATTN_OPTION),
    BOLIDE_IN(A, extra_indices, "n k_x", BOLIDE_I32, "rows of extra_kv_cache; below 0: none",
              BOLIDE__ATTN_OPTION),
    BOLIDE_IN(A, extra_block_tables, "n m_x", BOLIDE_I32, "or its pages; below 0: none",
              BOLIDE__ATTN_OPTION),
    BOLIDE_IN(A, extra_topk_lens, "n", BOLIDE_I32, "rows of the second list that count",
              BOLIDE__ATTN_OPTION),
    BOLIDE_I64_ROW(A, extra_topk_lens_offset, 0, "taken off each of extra_topk_lens"),
    BOLIDE_IN(A, sinks, "h_q", BOLIDE_F32, "logit that joins each row's sum", BOLIDE__ATTN_OPTION),
    BOLIDE_F64_OR(A, bmm1_scale, " | _", BOLIDE_F32, 1, "of the logits"),
    BOLIDE_F64_OR(A, bmm2_scale, " | _", BOLIDE_F32, 1, "of the result"),
    BOLIDE_BOOL_ROW(A, return_lse_base_on_e, 0, "whether lse is a natural logarithm"),
    BOLIDE_OUT(A, out, "n h_q d_vo", BOLIDE__ATTN_DTYPES, "result"),
    BOLIDE_OUT(A, lse, "n h_q", BOLIDE_F32, "log2 of each row's sum of exp", BOLIDE__ATTN_OPTION),
    BOLIDE_WORKSPACE_ROW(A, workspace, "scratch; NULL where none is needed", BOLIDE__ATTN_OPTION),
};
#undef A

/* ---- checks ------------------------------------------------------------------------------- */

static bolide_status check_sizes(const bolide__call *call) {
    const bolide_sparse_mla_args *a = call->args;
    const int64_t d_qk = a->q->shape[2], d_vo = a->out->shape[2];
    const bool packed = a->kv_format != BOLIDE_MLA_KV_PLAIN;
    const bool wide = packed && a->kv_format == BOLIDE_MLA_KV_FP8_656 && d_qk == 576;
    if (packed && d_qk != 512 && !wide)
        return BOLIDE_FAIL_UNSUPPORTED(call, "q", "head size",
                                       a->kv_format == BOLIDE_MLA_KV_FP8_656
                                           ? "512 or 576 with kv_format FP8_656"
                                           : "512 with kv_format FP8_584",
                                       "%lld", (long long)d_qk);
    if (packed && d_vo != 512)
        return BOLIDE_FAIL_UNSUPPORTED(call, "out", "head size", "512 with a packed kv_format",
                                       "%lld", (long long)d_vo);
    if (d_qk < 8 || d_qk % 8 != 0 || d_qk > BOLIDE__ATTN_HEAD_DIM)
        return BOLIDE_FAIL_UNSUPPORTED(
            call, "q", "head size",
            bolide__text("a multiple of 8 from 8 to %d", BOLIDE__ATTN_HEAD_DIM), "%lld",
            (long long)d_qk);
    if (d_vo < 8 || d_vo % 8 != 0 || d_vo > d_qk)
        return BOLIDE_FAIL_UNSUPPORTED(
            call, "out", "head size",
            bolide__text("a multiple of 8 from 8 to q's %lld", (long long)d_qk), "%lld",
            (long long)d_vo);
    return BOLIDE_OK;
}

/* Scales and bf16 of packed rows are read as such, and the pages of FP8_584 are whole. */
static bolide_status check_cache(const bolide__call *call, const char *name,
                                 const bolide_tensor *t) {
    const bolide_sparse_mla_args *a = call->args;
    const bool bytes = bolide__bit(t) == BOLIDE_U8, packed = a->kv_format != BOLIDE_MLA_KV_PLAIN;
    const int64_t page = bolide__stride(t, 0), row = bolide__stride(t, 1);
    if (bytes != packed)
        return BOLIDE_FAIL_ARG(call, name, "dtype",
                               packed ? "u8 with a packed kv_format" : "no u8 with kv_format PLAIN",
                               "%s", bolide_dtype_name(bolide__bit(t)));
    if (!packed)
        return BOLIDE_OK;
    const int64_t align = a->kv_format == BOLIDE_MLA_KV_FP8_656 ? 4 : 2;
    if (a->kv_format == BOLIDE_MLA_KV_FP8_584 && t->shape[1] > 1 && row != BOLIDE__MLA_584)
        return BOLIDE_FAIL_ARG(call, name, "strides", "584 bytes between the rows of a page",
                               "%lld", (long long)row);
    if ((uintptr_t)bolide__data(t) % (uintptr_t)align != 0 || page % align != 0 ||
        (t->shape[1] > 1 && row % align != 0))
        return BOLIDE_FAIL_ARG(call, name, "alignment",
                               bolide__text("address and strides of %lld bytes", (long long)align),
                               "%p, %lld and %lld", bolide__data(t), (long long)page,
                               (long long)row);
    return BOLIDE_OK;
}

static bolide_status check_lists(const bolide__call *call) {
    const bolide_sparse_mla_args *a = call->args;
    const bool extra = a->extra_kv_cache != NULL;
    if (extra && !a->extra_indices == !a->extra_block_tables)
        return BOLIDE_FAIL_ARG(call, "extra_indices", "pointer",
                               "this or extra_block_tables with extra_kv_cache",
                               a->extra_indices ? "both" : "neither");
    const char *without = extra                   ? NULL
                          : a->extra_indices      ? "extra_indices"
                          : a->extra_block_tables ? "extra_block_tables"
                          : a->extra_topk_lens    ? "extra_topk_lens"
                                                  : NULL;
    if (without)
        return BOLIDE_FAIL_ARG(call, without, "pointer", "NULL without extra_kv_cache", "a tensor");
    if (a->extra_topk_lens_offset < 0 || a->extra_topk_lens_offset > INT32_MAX)
        return BOLIDE_FAIL_ARG(call, "extra_topk_lens_offset", "value", "0 to 2147483647", "%lld",
                               (long long)a->extra_topk_lens_offset);
    if (a->qo_indptr && !a->seq_lens)
        return BOLIDE_FAIL_ARG(call, "qo_indptr", "pointer", "NULL without seq_lens", "a tensor");
    const int64_t n = a->q->shape[0], b = a->seq_lens ? a->seq_lens->shape[0] : 1;
    if (!a->qo_indptr && a->seq_lens && (b == 0 ? n > 0 : n % b != 0))
        return BOLIDE_FAIL_ARG(
            call, "seq_lens", "shape",
            bolide__text("a length that divides the %lld queries, or qo_indptr", (long long)n),
            "%lld", (long long)b);
    return extra ? check_cache(call, "extra_kv_cache", a->extra_kv_cache) : BOLIDE_OK;
}

/* ---- parameters --------------------------------------------------------------------------- */

static bolide__mla_list list_of(const bolide_tensor *cache, const bolide_tensor *entries,
                                const bolide_tensor *lens, bool paged) {
    const int64_t bytes = bolide__elem_bytes(cache);
    return (bolide__mla_list){
        .cache = bolide__data(cache),
        .entries = bolide__data(entries),
        .lens = lens ? bolide__data(lens) : NULL,
        .pages = cache->shape[0],
        .page_size = cache->shape[1],
        .page = bolide__stride(cache, 0) * bytes,
        .row = bolide__stride(cache, 1) * bytes,
        .entries_n = bolide__stride(entries, 0),
        .lens_n = lens ? bolide__stride(lens, 0) : 0,
        .count = entries->shape[1] * (paged ? cache->shape[1] : 1),
        .paged = paged,
    };
}

static void fill_options(const bolide_sparse_mla_args *a, bolide__sparse_mla_params *p) {
    const bolide__scalar bmm1 = bolide__scalar_of(a->bmm1_scale, a->bmm1_scale_tensor, 1);
    const bolide__scalar bmm2 = bolide__scalar_of(a->bmm2_scale, a->bmm2_scale_tensor, 1);
    p->bmm1_tensor = bmm1.tensor;
    p->bmm2_tensor = bmm2.tensor;
    p->bmm1 = bmm1.tensor ? 1 : a->bmm1_scale;
    p->bmm2 = bmm2.tensor ? 1 : a->bmm2_scale;
    if (a->lse) {
        p->lse = bolide__data(a->lse);
        p->lse_n = bolide__stride(a->lse, 0);
        p->lse_h = bolide__stride(a->lse, 1);
    }
    if (a->sinks) {
        p->sinks = bolide__data(a->sinks);
        p->sink_h = bolide__stride(a->sinks, 0);
    }
    if (a->seq_lens) {
        p->seq_lens = bolide__data(a->seq_lens);
        p->seq_lens_b = bolide__stride(a->seq_lens, 0);
        p->b = a->seq_lens->shape[0];
    }
    if (a->qo_indptr) {
        p->qo_indptr = bolide__data(a->qo_indptr);
        p->qo_indptr_b = bolide__stride(a->qo_indptr, 0);
    }
}

/* Heads of a unit of work: with few tokens fewer, so that all threads have some. A head's bits do
 * not depend on it. */
static int64_t unit_heads(int64_t n, int64_t h_q) {
    const int64_t most = n >= 16 ? 128 : n >= 4 ? 32 : 16;
    return h_q < most ? h_q : most;
}

static bolide__sparse_mla_params params_of(const bolide__call *call) {
    const bolide_sparse_mla_args *a = call->args;
    bolide__sparse_mla_params p = {
        .q = bolide__data(a->q),
        .out = bolide__data(a->out),
        .q_n = bolide__stride(a->q, 0),
        .q_h = bolide__stride(a->q, 1),
        .out_n = bolide__stride(a->out, 0),
        .out_h = bolide__stride(a->out, 1),
        .n = a->q->shape[0],
        .h_q = a->q->shape[1],
        .d_qk = a->q->shape[2],
        .d_vo = a->out->shape[2],
        .q_dtype = bolide__bit(a->q),
        .kv_dtype = bolide__bit(a->kv_cache),
        .o_dtype = bolide__bit(a->out),
        .format = a->kv_format,
        .base_e = a->return_lse_base_on_e,
    };
    p.list[0] = list_of(a->kv_cache, a->indices, a->topk_lens, false);
    if (a->extra_kv_cache) {
        const bool paged = a->extra_block_tables != NULL;
        p.list[1] = list_of(a->extra_kv_cache, paged ? a->extra_block_tables : a->extra_indices,
                            a->extra_topk_lens, paged);
        p.list[1].lens_offset = a->extra_topk_lens_offset;
    }
    fill_options(a, &p);
    p.unit_heads = p.h_q > 0 ? unit_heads(p.n, p.h_q) : 1;
    p.units_a_token = (p.h_q + p.unit_heads - 1) / p.unit_heads;
    return p;
}

/* ---- scratch ------------------------------------------------------------------------------ */

static int64_t pad16(int64_t x) {
    return (x + 15) / 16 * 16;
}

/* The order of list_spread_scratch in sparse_mla_units.h. */
int64_t bolide__sparse_mla_lane_floats(const bolide__sparse_mla_params *p) {
    const int64_t block = 64, h = p->unit_heads, dq = pad16(p->d_qk), dv = pad16(p->d_vo);
    const int64_t wide = p->format == BOLIDE_MLA_KV_PLAIN ? 0 : block * dq;
    return h * (dq + dv + block) + 3 * pad16(h) + block * (dq + dv) + wide;
}

static int64_t lane_bytes(const bolide__sparse_mla_params *p) {
    return (bolide__sparse_mla_lane_floats(p) * (int64_t)sizeof(float) + 127) / 128 * 128;
}

static int64_t scratch_bytes(const bolide__call *call, const bolide__sparse_mla_params *p) {
    if (call->ctx->device.type == BOLIDE_CUDA)
        return bolide__sparse_mla_cuda_bytes(call, p);
    const int64_t units = p->n * p->units_a_token, threads = bolide__cpu_threads(call->ctx);
    return lane_bytes(p) * (units < threads ? units : threads);
}

static bolide_status sizes_of(const bolide__call *call, bolide_sizes *sizes) {
    const bolide__sparse_mla_params p = params_of(call);
    *sizes = (bolide_sizes){.device_bytes = scratch_bytes(call, &p)};
    return BOLIDE_OK;
}

static bolide_status check(const bolide__call *call) {
    const bolide_sparse_mla_args *a = call->args;
    BOLIDE_TRY(check_sizes(call));
    BOLIDE_TRY(check_cache(call, "kv_cache", a->kv_cache));
    BOLIDE_TRY(check_lists(call));
    BOLIDE_TRY(bolide__attention_check_scale(call, "bmm1_scale", a->bmm1_scale_tensor, 1));
    return bolide__attention_check_scale(call, "bmm2_scale", a->bmm2_scale_tensor, 1);
}

static bolide_status run_cpu(const bolide__call *call) {
    const bolide_sparse_mla_args *a = call->args;
    bolide__sparse_mla_params p = params_of(call);
    p.lanes = a->workspace ? a->workspace->device : NULL;
    p.lane_bytes = lane_bytes(&p);
    bolide__parallel_for(call->ctx, p.n * p.units_a_token, 1, BOLIDE_CPU_PICK(sparse_mla_units),
                         &p);
    return BOLIDE_OK;
}

static bolide_status run_cuda(const bolide__call *call) {
    const bolide_sparse_mla_args *a = call->args;
    bolide__sparse_mla_params p = params_of(call);
    return bolide__sparse_mla_cuda_run(call, &p, a->workspace);
}

const bolide_op bolide_op_sparse_mla = {
    .name = "sparse_mla",
    .family = "attention",
    .doc = "multi-head latent attention over lists of keys",
    .run = BOLIDE_ENTRY(bolide_sparse_mla_args, rows),
    .check = check,
    .cpu = run_cpu,
    .cuda = run_cuda,
    .workspace = sizes_of,
};

bolide_status bolide_sparse_mla_workspace(const bolide_context *ctx,
                                          const bolide_sparse_mla_args *args, bolide_sizes *sizes) {
    return bolide_op_workspace(&bolide_op_sparse_mla, ctx, args, sizes);
}

bolide_status bolide_sparse_mla(const bolide_context *ctx, const bolide_sparse_mla_args *args,
                                bolide_stream stream) {
    return bolide_run(&bolide_op_sparse_mla, BOLIDE_RUN, ctx, args, stream);
}
