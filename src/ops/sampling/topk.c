// SPDX-License-Identifier: Apache-2.0
//
// Fronts of the top-k operators. They differ in the window of a row, in what an index becomes and
// in their names; one kernel serves all. A row is one unit of work and is read twice, the second
// time from cache.

#include <bolide/topk.h>

#include "ops/sampling/sampling_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)
#define IDS (BOLIDE_I32 | BOLIDE_I64)
#define K_TEXT "how many values are taken"
#define TIE_ROWS(A)                                                                                \
    BOLIDE_BOOL_ROW(A, deterministic, 0, "results are deterministic either way"),                  \
        BOLIDE_ENUM_ROW(A, tie_break, "none small large", BOLIDE_TIE_NONE,                         \
                        "which of equal values are taken")

#define A bolide_top_k_args
static const bolide_param top_k_rows[] = {
    BOLIDE_IN(A, input, "n v", FLOATS, "scores"),
    BOLIDE_I64_ROW(A, k, BOLIDE_NO_INT, K_TEXT),
    BOLIDE_BOOL_ROW(A, sorted, 0, "by descending value"),
    TIE_ROWS(A),
    BOLIDE_DTYPE_ROW(A, out_dtype, IDS, BOLIDE_I64, "dtype of indices"),
    BOLIDE_OUT(A, values, "n k", BOLIDE_LIKE(input), "the largest values"),
    BOLIDE_OUT(A, indices, "n k", BOLIDE_LIKE(out_dtype), "their columns"),
};
#undef A
#define A bolide_topk_clusters_exact_args
static const bolide_param clusters_rows[] = {
    BOLIDE_IN(A, logits, "n v", FLOATS, "scores"),
    BOLIDE_I64_ROW(A, top_k, BOLIDE_NO_INT, K_TEXT),
    BOLIDE_DTYPE_ROW(A, out_dtype, IDS, BOLIDE_I32, "dtype of indices"),
    BOLIDE_OUT(A, indices, "n top_k", BOLIDE_LIKE(out_dtype), "columns of the largest values"),
    BOLIDE_OUT(A, values, "n top_k", BOLIDE_LIKE(logits), "the values", .flags = BOLIDE_OPTIONAL),
};
#undef A
#define A bolide_top_k_page_table_transform_args
static const bolide_param paged_rows[] = {
    BOLIDE_IN(A, input, "n v", FLOATS, "scores"),
    BOLIDE_IN(A, src_page_table, "b pages", BOLIDE_I32, "pages of each request"),
    BOLIDE_IN(A, lengths, "n", BOLIDE_I32, "columns of each window"),
    BOLIDE_I64_ROW(A, k, BOLIDE_NO_INT, K_TEXT),
    BOLIDE_IN(A, row_to_batch, "n", BOLIDE_I32, "request of each row", .flags = BOLIDE_OPTIONAL),
    TIE_ROWS(A),
    BOLIDE_IN(A, row_starts, "n", BOLIDE_I32, "first column of each window",
              .flags = BOLIDE_OPTIONAL),
    BOLIDE_IN(A, page_table_row_starts, "n", BOLIDE_I32, "first page of each window",
              .flags = BOLIDE_OPTIONAL),
    BOLIDE_I64_ROW(A, page_size, 1, "columns a page, a power of two"),
    BOLIDE_OUT(A, out, "n k", BOLIDE_I32, "mapped indices; -1 behind the last"),
    BOLIDE_OUT(A, out_raw_indices, "n k", BOLIDE_I32, "the indices themselves",
               .flags = BOLIDE_OPTIONAL),
};
#undef A
#define A bolide_top_k_ragged_transform_args
static const bolide_param ragged_rows[] = {
    BOLIDE_IN(A, input, "n v", FLOATS, "scores"),
    BOLIDE_IN(A, offsets, "n", BOLIDE_I32, "added to the indices of a row"),
    BOLIDE_IN(A, lengths, "n", BOLIDE_I32, "columns of each window"),
    BOLIDE_I64_ROW(A, k, BOLIDE_NO_INT, K_TEXT),
    TIE_ROWS(A),
    BOLIDE_IN(A, row_starts, "n", BOLIDE_I32, "first column of each window",
              .flags = BOLIDE_OPTIONAL),
    BOLIDE_OUT(A, out, "n k", BOLIDE_I32, "mapped indices; -1 behind the last"),
};
#undef A
#define A bolide_topk_clusters_page_table_transform_args
static const bolide_param clusters_paged_rows[] = {
    BOLIDE_IN(A, logits, "n v", FLOATS, "scores"),
    BOLIDE_IN(A, seq_lens, "n", BOLIDE_I32, "columns of each window"),
    BOLIDE_IN(A, src_page_table, "n pages", BOLIDE_I32, "where each column lies"),
    BOLIDE_I64_ROW(A, top_k, BOLIDE_NO_INT, K_TEXT),
    BOLIDE_OUT(A, out, "n top_k", BOLIDE_I32, "mapped indices; -1 behind the last"),
};
#undef A
#define A bolide_topk_clusters_ragged_transform_args
static const bolide_param clusters_ragged_rows[] = {
    BOLIDE_IN(A, logits, "n v", FLOATS, "scores"),
    BOLIDE_IN(A, seq_lens, "n", BOLIDE_I32, "columns of each window"),
    BOLIDE_IN(A, offsets, "n", BOLIDE_I32, "added to the indices of a row"),
    BOLIDE_I64_ROW(A, top_k, BOLIDE_NO_INT, K_TEXT),
    BOLIDE_OUT(A, out, "n top_k", BOLIDE_I32, "mapped indices; -1 behind the last"),
};
#undef A
#define A bolide_top_k_varlen_args
static const bolide_param varlen_rows[] = {
    BOLIDE_IN(A, logits, "n v", FLOATS, "scores"),
    BOLIDE_IN(A, seq_lens, "n/next_n", BOLIDE_I32, "tokens of each request"),
    BOLIDE_I64_ROW(A, top_k, BOLIDE_NO_INT, K_TEXT),
    BOLIDE_IN(A, pre_idx, "n/next_n top_k", BOLIDE_I32, "columns that were largest a step before",
              .flags = BOLIDE_OPTIONAL),
    BOLIDE_I64_ROW(A, compress_ratio, 1, "tokens a column"),
    BOLIDE_I64_ROW(A, next_n, 1, "rows a request"),
    BOLIDE_ENUM_ROW(A, backend, "auto radix gvr radix_cutlass", BOLIDE_TOPK_AUTO,
                    "names of implementations; one serves all"),
    BOLIDE_OUT(A, out_indices, "n top_k", BOLIDE_I32, "columns; -1 behind the last"),
    BOLIDE_OUT(A, out_values, "n top_k", BOLIDE_LIKE(logits), "the values; -inf behind the last",
               .flags = BOLIDE_OPTIONAL),
};
#undef A

/* ---- parameters --------------------------------------------------------------------------- */

static void *data_or_null(const bolide_tensor *t) {
    return t ? bolide__data(t) : NULL;
}

static int64_t stride_or_zero(const bolide_tensor *t) {
    return t ? bolide__stride(t, 0) : 0;
}

static bolide__topk_params base(const bolide_tensor *input, int64_t k, const bolide_tensor *indices,
                                const bolide_tensor *values) {
    return (bolide__topk_params){.input = bolide__data(input),
                                 .input_n = bolide__stride(input, 0),
                                 .dtype = bolide__bit(input),
                                 .n = input->shape[0],
                                 .v = input->shape[1],
                                 .k = k,
                                 .indices = bolide__data(indices),
                                 .indices_n = bolide__stride(indices, 0),
                                 .indices_dtype = bolide__bit(indices),
                                 .values = data_or_null(values),
                                 .values_n = stride_or_zero(values),
                                 .next_n = 1,
                                 .compress_ratio = 1,
                                 .page_size = 1};
}

static void set_page_table(bolide__topk_params *p, const bolide_tensor *table) {
    p->form = BOLIDE__TOPK_PAGED;
    p->page_table = bolide__data(table);
    p->page_table_n = bolide__stride(table, 0);
    p->requests = table->shape[0];
    p->pages = table->shape[1];
}

static bolide_status run_cpu(const bolide__call *call, bolide__topk_params p) {
    bolide__parallel_for(call->ctx, p.n, bolide__row_grain(p.v), BOLIDE_CPU_PICK(topk_rows), &p);
    return BOLIDE_OK;
}

/* A backend for each device. */
#define BACKENDS(name)                                                                             \
    static bolide_status name##_cpu(const bolide__call *call) {                                    \
        return run_cpu(call, name##_fill(call));                                                   \
    }                                                                                              \
    static bolide_status name##_cuda(const bolide__call *call) {                                   \
        const bolide__topk_params p = name##_fill(call);                                           \
        return bolide__topk_launch(call, &p);                                                      \
    }                                                                                              \
    _Static_assert(1, "a semicolon follows")

static bolide__topk_params top_k_fill(const bolide__call *call) {
    const bolide_top_k_args *a = call->args;
    bolide__topk_params p = base(a->input, a->k, a->indices, a->values);
    p.sorted = a->sorted;
    p.tie_break = a->tie_break;
    return p;
}
BACKENDS(top_k);

static bolide__topk_params clusters_fill(const bolide__call *call) {
    const bolide_topk_clusters_exact_args *a = call->args;
    bolide__topk_params p = base(a->logits, a->top_k, a->indices, a->values);
    return p;
}
BACKENDS(clusters);

static bolide__topk_params paged_fill(const bolide__call *call) {
    const bolide_top_k_page_table_transform_args *a = call->args;
    bolide__topk_params p = base(a->input, a->k, a->out, NULL);
    set_page_table(&p, a->src_page_table);
    p.tie_break = a->tie_break;
    p.lengths = bolide__data(a->lengths);
    p.row_to_batch = data_or_null(a->row_to_batch);
    p.row_starts = data_or_null(a->row_starts);
    p.page_table_row_starts = data_or_null(a->page_table_row_starts);
    p.page_size = a->page_size;
    p.raw_indices = data_or_null(a->out_raw_indices);
    p.raw_indices_n = stride_or_zero(a->out_raw_indices);
    return p;
}
BACKENDS(paged);

static bolide__topk_params ragged_fill(const bolide__call *call) {
    const bolide_top_k_ragged_transform_args *a = call->args;
    bolide__topk_params p = base(a->input, a->k, a->out, NULL);
    p.form = BOLIDE__TOPK_RAGGED;
    p.tie_break = a->tie_break;
    p.lengths = bolide__data(a->lengths);
    p.row_starts = data_or_null(a->row_starts);
    p.offsets = bolide__data(a->offsets);
    return p;
}
BACKENDS(ragged);

static bolide__topk_params clusters_paged_fill(const bolide__call *call) {
    const bolide_topk_clusters_page_table_transform_args *a = call->args;
    bolide__topk_params p = base(a->logits, a->top_k, a->out, NULL);
    set_page_table(&p, a->src_page_table);
    p.lengths = bolide__data(a->seq_lens);
    return p;
}
BACKENDS(clusters_paged);

static bolide__topk_params clusters_ragged_fill(const bolide__call *call) {
    const bolide_topk_clusters_ragged_transform_args *a = call->args;
    bolide__topk_params p = base(a->logits, a->top_k, a->out, NULL);
    p.form = BOLIDE__TOPK_RAGGED;
    p.lengths = bolide__data(a->seq_lens);
    p.offsets = bolide__data(a->offsets);
    return p;
}
BACKENDS(clusters_ragged);

static bolide__topk_params varlen_fill(const bolide__call *call) {
    const bolide_top_k_varlen_args *a = call->args;
    bolide__topk_params p = base(a->logits, a->top_k, a->out_indices, a->out_values);
    p.lengths = bolide__data(a->seq_lens);
    p.next_n = a->next_n;
    p.compress_ratio = a->compress_ratio;
    p.pre_idx = data_or_null(a->pre_idx);
    p.pre_idx_n = stride_or_zero(a->pre_idx);
    return p;
}
BACKENDS(varlen);

/* ---- what rows cannot say ----------------------------------------------------------------- */

static bolide_status check_k(const bolide__call *call, const char *name, int64_t k, int64_t v) {
    if (v > INT32_MAX)
        return BOLIDE_FAIL_ARG(call, call->op->run.rows[0].name, "shape",
                               bolide__text("at most %d columns", INT32_MAX), "%lld", (long long)v);
    if (k <= v)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "value", bolide__text("at most %lld", (long long)v), "%lld",
                           (long long)k);
}

static bolide_status top_k_check(const bolide__call *call) {
    const bolide_top_k_args *a = call->args;
    return check_k(call, "k", a->k, a->input->shape[1]);
}

static bolide_status clusters_check(const bolide__call *call) {
    const bolide_topk_clusters_exact_args *a = call->args;
    return check_k(call, "top_k", a->top_k, a->logits->shape[1]);
}

/* Windows are measured in i32, so longer rows could not be used. */
static bolide_status windows_check(const bolide__call *call) {
    const bolide_top_k_ragged_transform_args *a = call->args; /* the scores come first everywhere */
    return check_k(call, "k", 0, a->input->shape[1]);
}

static bolide_status paged_check(const bolide__call *call) {
    const bolide_top_k_page_table_transform_args *a = call->args;
    const int64_t size = a->page_size;
    if (size < 1 || size > (int64_t)1 << 30 || (size & (size - 1)))
        return BOLIDE_FAIL_ARG(call, "page_size", "value", "a power of two from 1 to 2^30", "%lld",
                               (long long)size);
    if (size > 1 && a->row_starts && !a->page_table_row_starts)
        return BOLIDE_FAIL_ARG(call, "page_table_row_starts", "pointer",
                               "not NULL with row_starts and page_size > 1", "NULL");
    if (!a->row_to_batch && a->src_page_table->shape[0] != a->input->shape[0])
        return BOLIDE_FAIL_ARG(
            call, "src_page_table", "shape",
            bolide__text("%lld rows without row_to_batch", (long long)a->input->shape[0]), "%lld",
            (long long)a->src_page_table->shape[0]);
    return windows_check(call);
}

static bolide_status varlen_check(const bolide__call *call) {
    const bolide_top_k_varlen_args *a = call->args;
    if (a->compress_ratio < 1)
        return BOLIDE_FAIL_ARG(call, "compress_ratio", "value", "1 or more", "%lld",
                               (long long)a->compress_ratio);
    if (a->next_n < 1 || a->logits->shape[0] % a->next_n != 0)
        return BOLIDE_FAIL_ARG(
            call, "next_n", "value",
            bolide__text("a divisor of %lld rows", (long long)a->logits->shape[0]), "%lld",
            (long long)a->next_n);
    if (a->backend == BOLIDE_TOPK_GVR && !a->pre_idx)
        return BOLIDE_FAIL_ARG(call, "pre_idx", "pointer", "not NULL with backend gvr", "NULL");
    return windows_check(call);
}

/* ---- descriptors -------------------------------------------------------------------------- */

#define TOPK_OP(op, rows_of_it, checks, backend, text)                                             \
    const bolide_op bolide_op_##op = {                                                             \
        .name = #op,                                                                               \
        .family = "sampling",                                                                      \
        .doc = text,                                                                               \
        .run = BOLIDE_ENTRY(bolide_##op##_args, rows_of_it),                                       \
        .check = checks,                                                                           \
        .cpu = backend##_cpu,                                                                      \
        .cuda = backend##_cuda,                                                                    \
    };                                                                                             \
    bolide_status bolide_##op(const bolide_context *ctx, const bolide_##op##_args *args,           \
                              bolide_stream stream) {                                              \
        return bolide_run(&bolide_op_##op, BOLIDE_RUN, ctx, args, stream);                         \
    }                                                                                              \
    _Static_assert(1, "a semicolon follows")

TOPK_OP(top_k, top_k_rows, top_k_check, top_k, "the k largest of each row");
TOPK_OP(top_k_page_table_transform, paged_rows, paged_check, paged,
        "the k largest of each row, through a page table");
TOPK_OP(top_k_ragged_transform, ragged_rows, windows_check, ragged,
        "the k largest of each row, plus an offset");
TOPK_OP(top_k_varlen, varlen_rows, varlen_check, varlen,
        "the top_k largest of the columns that a decoding request has");
TOPK_OP(topk_clusters_exact, clusters_rows, clusters_check, clusters,
        "the top_k largest of each row");
TOPK_OP(topk_clusters_page_table_transform, clusters_paged_rows, windows_check, clusters_paged,
        "the top_k largest of each row, through a page table");
TOPK_OP(topk_clusters_ragged_transform, clusters_ragged_rows, windows_check, clusters_ragged,
        "the top_k largest of each row, plus an offset");
