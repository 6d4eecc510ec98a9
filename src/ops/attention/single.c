// SPDX-License-Identifier: Apache-2.0
//
// Fronts of single_decode_with_kv_cache and single_prefill_with_kv_cache: one request whose lengths
// are its tensors' shapes. They are thin: the call makes a plan of one request in its own
// workspace and runs it.

#include "ops/attention/attention_rows.h"

#define SINGLE_KV_ROWS(A)                                                                          \
    BOLIDE_IN(A, k, "kv_layout=NHD: s h_kv d_qk; HND: h_kv s d_qk", BOLIDE__ATTN_DTYPES, "keys"),  \
        BOLIDE_IN(A, v, "kv_layout=NHD: s h_kv d_vo; HND: h_kv s d_vo", BOLIDE_LIKE(k), "values"), \
        BOLIDE_ENUM_ROW(A, kv_layout, "NHD HND", BOLIDE_NHD, "order of tokens and heads in k, v"), \
        BOLIDE_IN(A, sinks, "h_q", BOLIDE_F32, "logit that joins each row's sum",                  \
                  BOLIDE__ATTN_OPTION)

#define A bolide_single_decode_with_kv_cache_args
static const bolide_param decode_rows[] = {
    BOLIDE_IN(A, q, "h_q d_qk", BOLIDE__ATTN_DTYPES, "the query"),
    SINGLE_KV_ROWS(A),
    BOLIDE__ATTN_ENCODING_ROW(A),
    BOLIDE__ATTN_LOGIT_ROWS(A),
    BOLIDE__ATTN_SCALE_ROWS(A),
    BOLIDE_OUT(A, out, "h_q d_vo", BOLIDE__ATTN_DTYPES, "result"),
    BOLIDE_OUT(A, lse, "h_q", BOLIDE_F32, "log2 of each head's sum of exp", BOLIDE__ATTN_OPTION),
    BOLIDE_WORKSPACE_ROW(A, workspace, "scratch; NULL where none is needed", BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_VARIANT_ROW(A),
};
#undef A

#define A bolide_single_prefill_with_kv_cache_args
static const bolide_param prefill_rows[] = {
    BOLIDE_IN(A, q, "n h_q d_qk", BOLIDE__ATTN_DTYPES, "queries, the last tokens of the request"),
    SINGLE_KV_ROWS(A),
    BOLIDE_IN(A, custom_mask, "n s", BOLIDE_BOOL, "which keys each query sees",
              .flags = BOLIDE_OPTIONAL | BOLIDE_DENSE),
    BOLIDE_IN(A, packed_custom_mask, "ceil(n*s/8)", BOLIDE_U8, "the same in bits",
              BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_ENCODING_ROW(A),
    BOLIDE_BOOL_ROW(A, causal, 0, "whether a query sees no key behind its own position"),
    BOLIDE__ATTN_LOGIT_ROWS(A),
    BOLIDE__ATTN_SCALE_ROWS(A),
    BOLIDE_OUT(A, out, "n h_q d_vo", BOLIDE__ATTN_DTYPES, "result"),
    BOLIDE_OUT(A, lse, "n h_q", BOLIDE_F32, "log2 of each row's sum of exp", BOLIDE__ATTN_OPTION),
    BOLIDE_WORKSPACE_ROW(A, workspace, "scratch; NULL where none is needed", BOLIDE__ATTN_OPTION),
    BOLIDE__ATTN_VARIANT_ROW(A),
};
#undef A

enum { MAGIC = 0x42534e47 };

/* One call in terms of the planned operators; the arrays that tensors point to live here. */
typedef struct single {
    bolide__attention_problem pr;
    bolide__attention_run_args args;
    bolide__attention_plan plan;
    int32_t qo_indptr[2], kv_indptr[2];
    int64_t two;
    bolide_tensor qo, kv;
    bolide_tensor q, out, lse; /* of decode, with a dimension of one token in front */
    int64_t q_shape[3], q_strides[3], out_shape[3], out_strides[3], lse_shape[2], lse_strides[2];
} single;

static bolide_tensor indptr(int32_t *values, int64_t *two) {
    return (bolide_tensor){.data = values,
                           .device = {BOLIDE_CPU, 0},
                           .ndim = 1,
                           .dtype = bolide_dtype_of(BOLIDE_I32),
                           .shape = two};
}

/* The same tensor with one token in front. */
static bolide_tensor one_token(const bolide_tensor *t, int64_t *shape, int64_t *strides) {
    bolide_tensor r = *t;
    shape[0] = 1;
    strides[0] = 0;
    for (int32_t i = 0; i < t->ndim; i++) {
        shape[i + 1] = t->shape[i];
        strides[i + 1] = bolide__stride(t, i);
    }
    r.ndim = t->ndim + 1;
    r.shape = shape;
    r.strides = strides;
    return r;
}

/* What both have: heads and lengths from shapes. */
static bolide_status describe(const bolide__call *call, single *s) {
    const bolide_tensor *q = s->args.q, *k = s->args.k, *v = s->args.v;
    const bool hnd = s->pr.kv_layout == BOLIDE_HND;
    const int64_t tokens = k->shape[hnd ? 1 : 0];
    if (tokens > INT32_MAX || q->shape[0] > INT32_MAX)
        return BOLIDE_FAIL_ARG(call, tokens > INT32_MAX ? "k" : "q", "shape",
                               "at most 2147483647 tokens", "%lld",
                               (long long)(tokens > INT32_MAX ? tokens : q->shape[0]));
    s->two = 2;
    s->qo_indptr[1] = (int32_t)q->shape[0];
    s->kv_indptr[1] = (int32_t)tokens;
    s->qo = indptr(s->qo_indptr, &s->two);
    s->kv = indptr(s->kv_indptr, &s->two);
    s->pr.h_q = q->shape[1];
    s->pr.h_kv = k->shape[hnd ? 0 : 1];
    s->pr.d_qk = q->shape[2];
    s->pr.d_vo = v->shape[2];
    s->pr.q_dtype = bolide__bit(q);
    s->pr.kv_dtype = bolide__bit(k);
    s->pr.o_dtype = s->args.out ? bolide__bit(s->args.out) : BOLIDE_NO_INT;
    s->pr.fixed_split_size = s->pr.max_batch = s->pr.max_rows = BOLIDE_NO_INT;
    s->pr.max_kv_len = s->pr.max_q_len = BOLIDE_NO_INT;
    s->pr.batch = 1;
    s->pr.single = 1;
    s->pr.qo_indptr = &s->qo;
    s->pr.kv_indptr = &s->kv;
    s->pr.workspace = s->args.workspace;
    s->pr.plan = &s->plan.head;
    s->pr.magic = MAGIC;
    s->pr.name.qo_indptr = "q";
    s->pr.name.kv_indptr = "k";
    s->pr.name.d_qk = "q";
    s->pr.name.d_vo = "v";
    s->pr.name.h_q = "q";
    s->pr.name.h_kv = "k";
    s->pr.name.max_rows = "q";
    s->args.plan = &s->plan.head;
    return BOLIDE_OK;
}

static bolide_status describe_decode(const bolide__call *call, single *s) {
    const bolide_single_decode_with_kv_cache_args *a = call->args;
    *s = (single){.pr = {BOLIDE__ATTN_LOGIT_FIELDS(a), .q_len_per_req = 1},
                  .args = {BOLIDE__ATTN_SCALE_FIELDS(a), .k = a->k, .v = a->v}};
    s->q = one_token(a->q, s->q_shape, s->q_strides);
    s->args.q = &s->q;
    if (a->out) {
        s->out = one_token(a->out, s->out_shape, s->out_strides);
        s->args.out = &s->out;
    }
    if (a->lse) {
        s->lse = one_token(a->lse, s->lse_shape, s->lse_strides);
        s->args.lse = &s->lse;
    }
    return describe(call, s);
}

static bolide_status describe_prefill(const bolide__call *call, single *s) {
    const bolide_single_prefill_with_kv_cache_args *a = call->args;
    *s = (single){.pr = {BOLIDE__ATTN_LOGIT_FIELDS(a), .causal = a->causal,
                         .use_custom_mask = a->custom_mask || a->packed_custom_mask},
                  .args = {BOLIDE__ATTN_SCALE_FIELDS(a), .q = a->q, .k = a->k, .v = a->v,
                           .custom_mask = a->custom_mask,
                           .packed_custom_mask = a->packed_custom_mask}};
    return describe(call, s);
}

typedef bolide_status describe_fn(const bolide__call *call, single *s);

static bolide_status check(const bolide__call *call, describe_fn *describe_it) {
    single s;
    BOLIDE_TRY(describe_it(call, &s));
    BOLIDE_TRY(bolide__attention_check_plan(call, &s.pr));
    return bolide__attention_check_args(call, &s.args, s.pr.h_q, s.pr.h_kv);
}

static bolide_status sizes(const bolide__call *call, describe_fn *describe_it,
                           bolide_sizes *result) {
    single s;
    BOLIDE_TRY(describe_it(call, &s));
    BOLIDE_TRY(bolide__attention_sizes(call, &s.pr, result));
    result->plan_bytes = 0;
    return BOLIDE_OK;
}

static bolide_status run_cpu(const bolide__call *call, describe_fn *describe_it) {
    single s;
    BOLIDE_TRY(describe_it(call, &s));
    BOLIDE_TRY(bolide__attention_make_plan(call, &s.pr));
    bolide__attention_params p = bolide__attention_fill(&s.args);
    return bolide__attention_cpu_run(call, &p);
}

/* The schedule is a rule that the kernel follows, so nothing is copied and a captured graph holds
 * all there is. */
static bolide_status run_cuda(const bolide__call *call, describe_fn *describe_it) {
    static const bolide_workspace none = {0};
    single s;
    BOLIDE_TRY(describe_it(call, &s));
    BOLIDE_TRY(bolide__attention_make_rule(call, &s.pr));
    s.args.workspace = s.args.workspace ? s.args.workspace : &none;
    bolide__attention_params p = bolide__attention_fill(&s.args);
    p.rule = (bolide__attention_rule){
        .request = {.q_len = s.qo_indptr[1], .kv_len = s.kv_indptr[1]},
        .tiles = (int32_t)s.plan.frozen.rule_tiles,
        .pieces = (int32_t)s.plan.frozen.rule_pieces,
    };
    return bolide__attention_cuda_run(call, &s.plan, &p);
}

/* ---- single_decode_with_kv_cache ---------------------------------------------------------- */

static bolide_status decode_check(const bolide__call *call) {
    return check(call, describe_decode);
}

static bolide_status decode_sizes(const bolide__call *call, bolide_sizes *result) {
    return sizes(call, describe_decode, result);
}

static bolide_status decode_cpu(const bolide__call *call) {
    return run_cpu(call, describe_decode);
}

static bolide_status decode_cuda(const bolide__call *call) {
    return run_cuda(call, describe_decode);
}

const bolide_op bolide_op_single_decode_with_kv_cache = {
    .name = "single_decode_with_kv_cache",
    .family = "attention",
    .doc = "attention of one query token over its keys and values",
    .run = BOLIDE_ENTRY(bolide_single_decode_with_kv_cache_args, decode_rows),
    .check = decode_check,
    .cpu = decode_cpu,
    .cuda = decode_cuda,
    .workspace = decode_sizes,
};

bolide_status
bolide_single_decode_with_kv_cache(const bolide_context *ctx,
                                   const bolide_single_decode_with_kv_cache_args *args,
                                   bolide_stream stream) {
    return bolide_run(&bolide_op_single_decode_with_kv_cache, BOLIDE_RUN, ctx, args, stream);
}

/* ---- single_prefill_with_kv_cache --------------------------------------------------------- */

static bolide_status prefill_check(const bolide__call *call) {
    return check(call, describe_prefill);
}

static bolide_status prefill_sizes(const bolide__call *call, bolide_sizes *result) {
    return sizes(call, describe_prefill, result);
}

static bolide_status prefill_cpu(const bolide__call *call) {
    return run_cpu(call, describe_prefill);
}

static bolide_status prefill_cuda(const bolide__call *call) {
    return run_cuda(call, describe_prefill);
}

const bolide_op bolide_op_single_prefill_with_kv_cache = {
    .name = "single_prefill_with_kv_cache",
    .family = "attention",
    .doc = "attention of the new tokens of one request over its keys and values",
    .run = BOLIDE_ENTRY(bolide_single_prefill_with_kv_cache_args, prefill_rows),
    .check = prefill_check,
    .cpu = prefill_cpu,
    .cuda = prefill_cuda,
    .workspace = prefill_sizes,
};

bolide_status
bolide_single_prefill_with_kv_cache(const bolide_context *ctx,
                                    const bolide_single_prefill_with_kv_cache_args *args,
                                    bolide_stream stream) {
    return bolide_run(&bolide_op_single_prefill_with_kv_cache, BOLIDE_RUN, ctx, args, stream);
}
