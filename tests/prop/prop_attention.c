// SPDX-License-Identifier: Apache-2.0
//
// What attention must keep whatever the numbers: paged equals packed, a permuted batch gives the
// permuted result, threads and instruction sets change no bit, the future does not matter, a
// request alone equals itself in a batch, garbage in the workspace has no effect, a plan's frozen
// part depends on the declared maxima only, offsets are 64-bit.

#include <bolide/bolide.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ops/attention/attention_internal.h"
#include "prop_attention.h"

enum { MAX_B = 16, H_Q = 4, H_KV = 2, D = 32, PAGE_MAX = 128 };

static int passed, failed, skipped;

static void check(int ok, const char *what) {
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED: %s (last error: %s)\n", what, bolide_last_error()->message);
}

/* ---- a batch of requests with their own keys and values ---------------------------------------
 */

typedef struct batch {
    int32_t b, q_len[MAX_B], kv_len[MAX_B];
    float *q[MAX_B], *k[MAX_B], *v[MAX_B]; /* [len, heads, D] of each request */
    int64_t rows;
    float *out, *lse; /* [rows, H_Q, D], [rows, H_Q] */
} batch;

typedef struct options {
    int64_t page_size; /* 0: packed */
    int64_t causal, fixed, disable, window_left, threads, batch_invariant;
    int garbage; /* fill the workspace with it */
} options;

static float *random_floats(int64_t n) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = normal();
    return x;
}

static void outputs(batch *t) {
    t->rows = 0;
    for (int32_t r = 0; r < t->b; r++)
        t->rows += t->q_len[r];
    t->out = malloc((size_t)(t->rows * H_Q * D + 1) * sizeof *t->out);
    t->lse = malloc((size_t)(t->rows * H_Q + 1) * sizeof *t->lse);
    for (int64_t i = 0; i < t->rows * H_Q * D; i++)
        t->out[i] = NAN;
    for (int64_t i = 0; i < t->rows * H_Q; i++)
        t->lse[i] = NAN;
}

static void draw(batch *t, int32_t b, int32_t longest, int32_t most_rows) {
    memset(t, 0, sizeof *t);
    t->b = b;
    for (int32_t r = 0; r < b; r++) {
        t->kv_len[r] = (int32_t)between(0, longest);
        t->q_len[r] = (int32_t)between(1, most_rows);
        t->q[r] = random_floats((int64_t)t->q_len[r] * H_Q * D);
        t->k[r] = random_floats((int64_t)t->kv_len[r] * H_KV * D);
        t->v[r] = random_floats((int64_t)t->kv_len[r] * H_KV * D);
    }
    outputs(t);
}

static void drop(batch *t) {
    for (int32_t r = 0; r < t->b; r++) {
        free(t->q[r]);
        free(t->k[r]);
        free(t->v[r]);
    }
    free(t->out);
    free(t->lse);
}

/* The request order[i] of `from` as request i; the values are shared. */
static batch pick(const batch *from, const int32_t *order, int32_t b) {
    batch t = {.b = b};
    for (int32_t i = 0; i < b; i++) {
        t.q_len[i] = from->q_len[order[i]];
        t.kv_len[i] = from->kv_len[order[i]];
        t.q[i] = from->q[order[i]];
        t.k[i] = from->k[order[i]];
        t.v[i] = from->v[order[i]];
    }
    outputs(&t);
    return t;
}

static void drop_results(batch *t) {
    free(t->out);
    free(t->lse);
}

/* ---- running one -------------------------------------------------------------------------------
 */

typedef struct memory {
    bolide_workspace w;
    bolide_plan *plan;
} memory;

static memory reserve(const bolide_sizes *s, int garbage) {
    memory m = {0};
    m.w.device_bytes = s->device_bytes;
    m.w.device_int_bytes = s->device_int_bytes;
    m.w.device = aligned_alloc(256, (size_t)(s->device_bytes + 255) / 256 * 256 + 256);
    m.w.device_int = aligned_alloc(256, (size_t)(s->device_int_bytes + 255) / 256 * 256 + 256);
    m.plan = calloc(1, (size_t)s->plan_bytes);
    memset(m.w.device, garbage ? 0xff : 0, (size_t)s->device_bytes);
    memset(m.w.device_int, garbage ? 0xff : 0, (size_t)s->device_int_bytes);
    if (m.plan)
        m.plan->size = s->plan_bytes;
    return m;
}

static void release(memory *m) {
    free(m->w.device);
    free(m->w.device_int);
    free(m->plan);
}

typedef struct packed {
    int32_t qo[MAX_B + 1], kv[MAX_B + 1], pages[MAX_B + 1], last[MAX_B], *indices;
    float *q, *k, *v;
    int64_t rows, keys, page_count;
} packed;

/* Copies a request's keys to their pages, or packs them. */
static void place(packed *p, float *to, const float *from, int32_t r, int32_t len, int64_t page) {
    for (int32_t j = 0; j < len; j++) {
        const int64_t at =
            page ? p->indices[p->pages[r] + j / page] * page + j % page : p->kv[r] + j;
        memcpy(to + at * H_KV * D, from + (int64_t)j * H_KV * D, H_KV * D * sizeof *to);
    }
}

static packed pack(const batch *t, int64_t page) {
    packed p = {0};
    for (int32_t r = 0; r < t->b; r++) {
        const int32_t n = page ? (int32_t)((t->kv_len[r] + page - 1) / page) : 0;
        p.qo[r + 1] = p.qo[r] + t->q_len[r];
        p.kv[r + 1] = p.kv[r] + t->kv_len[r];
        p.pages[r + 1] = p.pages[r] + n;
        p.last[r] = n ? (int32_t)(t->kv_len[r] - (n - 1) * page) : 0;
    }
    p.rows = p.qo[t->b];
    p.page_count = p.pages[t->b];
    p.keys = page ? p.page_count * page : p.kv[t->b];
    p.indices = malloc((size_t)(p.page_count + 1) * sizeof *p.indices);
    for (int64_t i = 0; i < p.page_count; i++)
        p.indices[i] = (int32_t)(p.page_count - 1 - i);
    p.q = malloc((size_t)(p.rows * H_Q * D + 1) * sizeof *p.q);
    p.k = calloc((size_t)(p.keys * H_KV * D + 1), sizeof *p.k);
    p.v = calloc((size_t)(p.keys * H_KV * D + 1), sizeof *p.v);
    for (int32_t r = 0; r < t->b; r++) {
        memcpy(p.q + (int64_t)p.qo[r] * H_Q * D, t->q[r],
               (size_t)t->q_len[r] * H_Q * D * sizeof *p.q);
        place(&p, p.k, t->k[r], r, t->kv_len[r], page);
        place(&p, p.v, t->v[r], r, t->kv_len[r], page);
    }
    return p;
}

static void unpack(packed *p) {
    free(p->indices);
    free(p->q);
    free(p->k);
    free(p->v);
}

#define COMMON(a, o)                                                                               \
    ((a).num_qo_heads = H_Q, (a).num_kv_heads = H_KV, (a).head_dim_qk = D,                         \
     (a).q_data_type = BOLIDE_F32, (a).causal = (o)->causal, (a).window_left = (o)->window_left,   \
     (a).disable_split_kv = (o)->disable,                                                          \
     (a).fixed_split_size = (o)->fixed ? (o)->fixed : BOLIDE_NO_INT)

static int run_paged(batch *t, packed *p, const options *o, bolide_context *ctx) {
    bolide_batch_prefill_paged_plan_args a;
    bolide_batch_prefill_paged_run_args r;
    bolide_sizes sizes;
    int64_t b1[] = {t->b + 1}, b[] = {t->b}, n[] = {p->page_count}, rows[] = {p->rows, H_Q, D};
    int64_t cache[] = {p->page_count, o->page_size, H_KV, D}, lse[] = {p->rows, H_Q};
    bolide_tensor qo = tensor(p->qo, BOLIDE_I32, 1, b1), kv = tensor(p->pages, BOLIDE_I32, 1, b1);
    bolide_tensor last = tensor(p->last, BOLIDE_I32, 1, b);
    bolide_tensor list = tensor(p->indices, BOLIDE_I32, 1, n);
    bolide_tensor q = tensor(p->q, BOLIDE_F32, 3, rows), out = tensor(t->out, BOLIDE_F32, 3, rows);
    bolide_tensor k = tensor(p->k, BOLIDE_F32, 4, cache), v = tensor(p->v, BOLIDE_F32, 4, cache);
    bolide_tensor l = tensor(t->lse, BOLIDE_F32, 2, lse);
    if (bolide_args_init("batch_prefill_paged_plan", &a, sizeof a) ||
        bolide_args_init("batch_prefill_paged_run", &r, sizeof r))
        return 0;
    COMMON(a, o);
    a.qo_indptr = &qo;
    a.paged_kv_indptr = &kv;
    a.paged_kv_last_page_len = &last;
    a.page_size = o->page_size;
    if (bolide_batch_prefill_paged_workspace(ctx, &a, &sizes))
        return 0;
    memory m = reserve(&sizes, o->garbage);
    a.workspace = r.workspace = &m.w;
    a.plan = r.plan = m.plan;
    r.q = &q;
    r.k_cache = &k;
    r.v_cache = &v;
    r.paged_kv_indices = &list;
    r.out = &out;
    r.lse = &l;
    const int ok = bolide_batch_prefill_paged_plan(ctx, &a, NULL) == BOLIDE_OK &&
                   bolide_batch_prefill_paged_run(ctx, &r, NULL) == BOLIDE_OK;
    release(&m);
    return ok;
}

static int run_packed(batch *t, packed *p, const options *o, bolide_context *ctx) {
    bolide_batch_prefill_ragged_plan_args a;
    bolide_batch_prefill_ragged_run_args r;
    bolide_sizes sizes;
    int64_t b1[] = {t->b + 1}, rows[] = {p->rows, H_Q, D}, keys[] = {p->keys, H_KV, D};
    int64_t lse[] = {p->rows, H_Q};
    bolide_tensor qo = tensor(p->qo, BOLIDE_I32, 1, b1), kv = tensor(p->kv, BOLIDE_I32, 1, b1);
    bolide_tensor q = tensor(p->q, BOLIDE_F32, 3, rows), out = tensor(t->out, BOLIDE_F32, 3, rows);
    bolide_tensor k = tensor(p->k, BOLIDE_F32, 3, keys), v = tensor(p->v, BOLIDE_F32, 3, keys);
    bolide_tensor l = tensor(t->lse, BOLIDE_F32, 2, lse);
    if (bolide_args_init("batch_prefill_ragged_plan", &a, sizeof a) ||
        bolide_args_init("batch_prefill_ragged_run", &r, sizeof r))
        return 0;
    COMMON(a, o);
    a.qo_indptr = &qo;
    a.kv_indptr = &kv;
    if (bolide_batch_prefill_ragged_workspace(ctx, &a, &sizes))
        return 0;
    memory m = reserve(&sizes, o->garbage);
    a.workspace = r.workspace = &m.w;
    a.plan = r.plan = m.plan;
    r.q = &q;
    r.k = &k;
    r.v = &v;
    r.out = &out;
    r.lse = &l;
    const int ok = bolide_batch_prefill_ragged_plan(ctx, &a, NULL) == BOLIDE_OK &&
                   bolide_batch_prefill_ragged_run(ctx, &r, NULL) == BOLIDE_OK;
    release(&m);
    return ok;
}

static int run(batch *t, const options *o) {
    bolide_context *ctx;
    packed p = pack(t, o->page_size);
    if (bolide_context_create(BOLIDE_CPU, 0, &ctx) ||
        bolide_context_set(ctx, BOLIDE_THREADS, o->threads) ||
        bolide_context_set(ctx, BOLIDE_BATCH_INVARIANT, o->batch_invariant))
        return 0;
    const int ok = o->page_size ? run_paged(t, &p, o, ctx) : run_packed(t, &p, o, ctx);
    bolide_context_destroy(ctx);
    unpack(&p);
    return ok;
}

static int same_bits(const batch *a, const batch *b) {
    return a->rows == b->rows &&
           !memcmp(a->out, b->out, (size_t)(a->rows * H_Q * D) * sizeof *a->out) &&
           !memcmp(a->lse, b->lse, (size_t)(a->rows * H_Q) * sizeof *a->lse);
}

static int close_to(const batch *a, const batch *b) {
    for (int64_t i = 0; i < a->rows * H_Q * D; i++)
        if (!(fabsf(a->out[i] - b->out[i]) < 1e-5f))
            return 0;
    for (int64_t i = 0; i < a->rows * H_Q; i++)
        if (!(a->lse[i] == b->lse[i] || fabsf(a->lse[i] - b->lse[i]) < 1e-4f))
            return 0;
    return 1;
}

static const int32_t in_order[MAX_B] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const options plain = {.causal = 1, .window_left = -1, .threads = 2};

/* Runs the same requests in another way. */
static batch again(const batch *t, const options *o) {
    batch r = pick(t, in_order, t->b);
    check(run(&r, o), "runs");
    return r;
}

static void expect_same(const batch *t, const options *o, const char *what) {
    batch r = again(t, o);
    check(same_bits(t, &r), what);
    drop_results(&r);
}

/* ---- properties ---------------------------------------------------------------------------------
 */

static void other_ways(batch *t) {
    options o = plain;
    check(run(t, &plain), "runs");
    static const int64_t pages[] = {1, 3, 16, 19, 128};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        o.page_size = pages[i];
        expect_same(t, &o, "paged equals packed, bit for bit");
    }
    o = plain;
    for (o.threads = 1; o.threads <= 7; o.threads += 3)
        expect_same(t, &o, "no bit depends on threads");
    o = plain;
    o.garbage = 1;
    expect_same(t, &o, "garbage in the workspace has no effect");
    o = plain;
    o.disable = 1;
    batch whole = again(t, &o);
    check(close_to(t, &whole), "split equals unsplit");
    drop_results(&whole);
}

static void instruction_sets(batch *t) {
    static const bolide__isa sets[] = {BOLIDE__AVX2, BOLIDE__EMU512, BOLIDE__AVX512};
    const bolide__isa kept = bolide__cpu_isa();
    batch first = {0};
    for (int i = 0; i < 3; i++) {
        if (!bolide__cpu_force_isa(sets[i]))
            continue;
        batch r = again(t, &plain);
        if (first.b == 0) {
            first = r;
            continue;
        }
        check(same_bits(&first, &r), "no bit depends on the instruction set");
        drop_results(&r);
    }
    if (first.b)
        drop_results(&first);
    (void)bolide__cpu_force_isa(kept);
}

static void permuted(const batch *t) {
    int32_t order[MAX_B];
    for (int32_t i = 0; i < t->b; i++)
        order[i] = t->b - 1 - i;
    options o = plain;
    o.fixed = 100;
    batch straight = again(t, &o), turned = pick(t, order, t->b);
    check(run(&turned, &o), "runs");
    int64_t a = 0, b = turned.rows;
    for (int32_t r = 0; r < t->b; r++) {
        b -= t->q_len[r];
        check(!memcmp(straight.out + a * H_Q * D, turned.out + b * H_Q * D,
                      (size_t)t->q_len[r] * H_Q * D * sizeof *t->out),
              "permuted batch, permuted result");
        a += t->q_len[r];
    }
    drop_results(&straight);
    drop_results(&turned);
}

static void alone(const batch *t, const options *o, const char *what) {
    batch all = again(t, o);
    int64_t row = 0;
    for (int32_t r = 0; r < t->b; r++) {
        batch one = pick(t, &r, 1);
        check(run(&one, o), "runs");
        check(
            !memcmp(one.out, all.out + row * H_Q * D, (size_t)one.rows * H_Q * D * sizeof *one.out),
            what);
        row += t->q_len[r];
        drop_results(&one);
    }
    drop_results(&all);
}

static void invariant(const batch *t) {
    options o = plain;
    o.batch_invariant = 1;
    alone(t, &o, "batch_invariant: a request alone and in a batch");
    o.window_left = 40;
    alone(t, &o, "batch_invariant with a window");
    o = plain;
    o.fixed = 70;
    alone(t, &o, "fixed_split_size: a request alone and in a batch");
    o.page_size = 16;
    o.fixed = 3;
    alone(t, &o, "fixed_split_size over pages");
    o = plain;
    o.disable = 1;
    alone(t, &o, "disable_split_kv: a request alone and in a batch");
}

/* Garbage in the last key, which only the last token sees. */
static void future(const batch *t) {
    options o = plain;
    o.disable = 1;
    batch before = again(t, &o);
    for (int32_t r = 0; r < t->b; r++) {
        const int64_t last = ((int64_t)t->kv_len[r] - 1) * H_KV * D;
        for (int64_t e = 0; last >= 0 && e < H_KV * D; e++) {
            t->k[r][last + e] = e % 3 ? NAN : 1e30f;
            t->v[r][last + e] = e % 2 ? NAN : INFINITY;
        }
    }
    batch after = again(t, &o);
    int64_t row = 0;
    for (int32_t r = 0; r < t->b; r++) {
        const size_t rows = t->kv_len[r] ? (size_t)t->q_len[r] - 1 : (size_t)t->q_len[r];
        check(!memcmp(before.out + row * H_Q * D, after.out + row * H_Q * D,
                      rows * H_Q * D * sizeof *before.out),
              "causal output does not depend on the future");
        row += t->q_len[r];
    }
    drop_results(&before);
    drop_results(&after);
}

static void empty_rows(const batch *t) {
    int64_t row = 0;
    for (int32_t r = 0; r < t->b; r++) {
        for (int32_t i = 0; i < t->q_len[r]; i++, row++) {
            const int visible = t->kv_len[r] - t->q_len[r] + i >= 0;
            const float lse = t->lse[row * H_Q];
            int zero = 1;
            for (int64_t e = 0; e < H_Q * D; e++)
                zero &= t->out[row * H_Q * D + e] == 0;
            check(visible ? isfinite(lse) && !zero : isinf(lse) && lse < 0 && zero,
                  "rows without a key are 0 and -inf, no others");
        }
    }
}

/* ---- plans
 * ---------------------------------------------------------------------------------------- */

static void frozen_part(void) {
    bolide_batch_decode_plan_args a;
    bolide_sizes sizes;
    int32_t indptr[] = {0, 64, 128}, last[] = {16, 16}, long_indptr[] = {0, 6250, 6251};
    int64_t b1[] = {3}, b[] = {2};
    bolide_tensor p = tensor(indptr, BOLIDE_I32, 1, b1), l = tensor(last, BOLIDE_I32, 1, b);
    check(!bolide_args_init("batch_decode_plan", &a, sizeof a), "init");
    a.indptr = &p;
    a.last_page_len = &l;
    a.num_qo_heads = H_Q;
    a.num_kv_heads = H_KV;
    a.head_dim = D;
    a.page_size = 16;
    a.max_batch_size = 4;
    a.max_sequence_kv = 131072;
    check(!bolide_batch_decode_workspace(NULL, &a, &sizes), "sizes");
    memory m = reserve(&sizes, 1);
    a.workspace = &m.w;
    a.plan = m.plan;
    check(!bolide_batch_decode_plan(NULL, &a, NULL), "plan of 1,024 keys");
    bolide__attention_plan first, *plan = (bolide__attention_plan *)(void *)m.plan;
    memcpy(&first, plan, sizeof first);
    p.data = long_indptr;
    check(!bolide_batch_decode_plan(NULL, &a, NULL), "plan of 100,000 keys");
    check(!memcmp(&first.frozen, &plan->frozen, sizeof first.frozen),
          "the frozen part depends on the declared maxima only");
    check(!memcmp(&first.head, &plan->head, sizeof first.head), "the head stays");
    release(&m);
}

/* Pages 2^31 elements apart in memory that is not there until it is touched. */
static void far_pages(void) {
    const int64_t apart = (int64_t)1 << 31, bytes = 3 * apart * (int64_t)sizeof(float);
    float *k = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (k == MAP_FAILED) {
        printf("skipped: far pages: no address space\n");
        skipped++;
        return;
    }
    float q[8] = {1, 0, 0, 0, 0, 0, 0, 0}, out[8], *v = k + 8;
    int32_t indptr[] = {0, 1}, last[] = {1}, list[] = {2};
    int64_t b1[] = {2}, b[] = {1}, rows[] = {1, 1, 8}, cache[] = {3, 1, 1, 8};
    int64_t strides[] = {apart, 8, 8, 1};
    for (int i = 0; i < 8; i++) {
        k[2 * apart + i] = 1;
        v[2 * apart + i] = (float)i;
    }
    bolide_tensor p = tensor(indptr, BOLIDE_I32, 1, b1), l = tensor(last, BOLIDE_I32, 1, b);
    bolide_tensor n = tensor(list, BOLIDE_I32, 1, b), tq = tensor(q, BOLIDE_F32, 3, rows);
    bolide_tensor to = tensor(out, BOLIDE_F32, 3, rows), tk = tensor(k, BOLIDE_F32, 4, cache);
    bolide_tensor tv = tensor(v, BOLIDE_F32, 4, cache);
    tk.strides = tv.strides = strides;
    bolide_batch_decode_plan_args a;
    bolide_batch_decode_run_args r;
    bolide_sizes sizes;
    check(!bolide_args_init("batch_decode_plan", &a, sizeof a), "init");
    check(!bolide_args_init("batch_decode_run", &r, sizeof r), "init");
    a.indptr = &p;
    a.last_page_len = &l;
    a.num_qo_heads = a.num_kv_heads = a.page_size = 1;
    a.head_dim = 8;
    a.q_data_type = BOLIDE_F32;
    check(!bolide_batch_decode_workspace(NULL, &a, &sizes), "sizes");
    memory m = reserve(&sizes, 1);
    a.workspace = r.workspace = &m.w;
    a.plan = r.plan = m.plan;
    r.q = &tq;
    r.k_cache = &tk;
    r.v_cache = &tv;
    r.indices = &n;
    r.out = &to;
    check(!bolide_batch_decode_plan(NULL, &a, NULL) && !bolide_batch_decode_run(NULL, &r, NULL),
          "far pages run");
    check(!memcmp(out, v + 2 * apart, sizeof out), "64-bit offsets into the cache");
    release(&m);
    (void)munmap(k, (size_t)bytes);
}

/* More requests than a 16-bit count holds, every third one empty. */
static void many_requests(void) {
    enum { B = 70000 };
    int32_t *lens = malloc(B * sizeof *lens), *table = calloc(B, sizeof *table);
    float *q = calloc((size_t)B * 8, sizeof *q), *out = malloc((size_t)B * 8 * sizeof *out);
    float k[8] = {0}, v[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t b[] = {B}, rows[] = {B, 1, 8}, cache[] = {1, 1, 1, 8}, list[] = {B, 1};
    int right = 1;
    for (int32_t r = 0; r < B; r++)
        lens[r] = r % 3 != 0;
    memset(out, 0xff, (size_t)B * 8 * sizeof *out);
    bolide_tensor l = tensor(lens, BOLIDE_I32, 1, b), n = tensor(table, BOLIDE_I32, 2, list);
    bolide_tensor tq = tensor(q, BOLIDE_F32, 3, rows), to = tensor(out, BOLIDE_F32, 3, rows);
    bolide_tensor tk = tensor(k, BOLIDE_F32, 4, cache), tv = tensor(v, BOLIDE_F32, 4, cache);
    bolide_batch_decode_plan_args a;
    bolide_batch_decode_run_args r;
    bolide_sizes sizes;
    check(!bolide_args_init("batch_decode_plan", &a, sizeof a), "init");
    check(!bolide_args_init("batch_decode_run", &r, sizeof r), "init");
    a.seq_lens = &l;
    a.num_qo_heads = a.num_kv_heads = a.page_size = 1;
    a.head_dim = 8;
    a.q_data_type = BOLIDE_F32;
    check(!bolide_batch_decode_workspace(NULL, &a, &sizes), "sizes");
    memory m = reserve(&sizes, 1);
    a.workspace = r.workspace = &m.w;
    a.plan = r.plan = m.plan;
    r.q = &tq;
    r.k_cache = &tk;
    r.v_cache = &tv;
    r.block_tables = &n;
    r.out = &to;
    check(!bolide_batch_decode_plan(NULL, &a, NULL) && !bolide_batch_decode_run(NULL, &r, NULL),
          "70,000 requests run");
    for (int64_t i = 0; i < (int64_t)B * 8; i++)
        right &= out[i] == (i / 8 % 3 ? v[i % 8] : 0.0f);
    check(right, "70,000 requests, each its own result");
    release(&m);
    free(lens);
    free(table);
    free(q);
    free(out);
}

int main(void) {
    const uint64_t seed = (uint64_t)time(NULL) * 2654435761u + 88172645463325252u;
    state = seed;
    for (int round = 0; round < 3; round++) {
        batch t;
        draw(&t, round == 0 ? 1 : 7, round == 1 ? 120 : 1500, round == 2 ? 2 : 60);
        other_ways(&t);
        empty_rows(&t);
        instruction_sets(&t);
        permuted(&t);
        invariant(&t);
        future(&t);
        drop(&t);
    }
    frozen_part();
    far_pages();
    many_requests();
    if (failed)
        printf("seed %llu\n", (unsigned long long)seed);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
