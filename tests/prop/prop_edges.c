// SPDX-License-Identifier: Apache-2.0
//
// Edges that need memory or values of their own: appending to and reading from pages 2^30 bytes
// apart and more, scores that 16 bits cannot hold, more requests than 16 bits count.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "prop_attention.h"

static int passed, failed, skipped;

static void check(int ok, const char *what) {
    passed += ok != 0;
    failed += !ok;
    if (!ok)
        printf("FAILED: %s: %s\n", what, bolide_last_error()->message);
}

/* ---- appending far away ------------------------------------------------------------------------
 */

enum { PAGES = 3, D = 8 };
static const int64_t apart = (int64_t)1 << 30;

/* A layer of a cache of many layers: pages `apart` elements of one byte from each other, in memory
 * that is not there until it is touched. */
typedef struct far_cache {
    uint8_t *data;
    int64_t shape[4], strides[4];
    bolide_tensor tensor;
} far_cache;

static int64_t far_bytes(void) {
    return PAGES * apart;
}

static int make_far(far_cache *f, int32_t ndim) {
    f->data = mmap(NULL, (size_t)far_bytes(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->data == MAP_FAILED)
        return 0;
    const int64_t shape[2][4] = {{PAGES, 1, D, 0}, {PAGES, 1, 1, D}};
    const int64_t strides[2][4] = {{apart, D, 1, 0}, {apart, D, D, 1}};
    memcpy(f->shape, shape[ndim == 4], sizeof f->shape);
    memcpy(f->strides, strides[ndim == 4], sizeof f->strides);
    f->tensor = tensor(f->data, BOLIDE_F8_E4M3FN, ndim, f->shape);
    f->tensor.strides = f->strides;
    return 1;
}

static void drop_far(far_cache *f) {
    (void)munmap(f->data, (size_t)far_bytes());
}

/* The row of the last page holds 1.0 everywhere, and nothing else was written: neither the rows
 * before and behind it nor where 32-bit offsets would have led. */
static int only_last_page(const far_cache *f) {
    const int64_t at = (PAGES - 1) * apart;
    int ok = 1;
    for (int64_t i = 0; i < D; i++) {
        ok &= f->data[at + i] == 0x38;
        ok &= f->data[at + D + i] == 0 && f->data[at - D + i] == 0 && f->data[i] == 0;
    }
    return ok && f->data[apart] == 0;
}

static void far_appends(void) {
    far_cache k, v, ckv, kpe;
    if (!make_far(&k, 4) || !make_far(&v, 4) || !make_far(&ckv, 3) || !make_far(&kpe, 3)) {
        printf("skipped: far pages: no address space\n");
        skipped++;
        return;
    }
    float row[D];
    int32_t zero[] = {0}, list[] = {PAGES - 1}, bounds[] = {0, 1}, one[] = {1};
    int64_t d3[] = {1, 1, D}, d2[] = {1, D}, d1[] = {1}, b1[] = {2};
    for (int i = 0; i < D; i++)
        row[i] = 1;
    bolide_tensor heads = tensor(row, BOLIDE_F32, 3, d3), plain = tensor(row, BOLIDE_F32, 2, d2);
    bolide_tensor index = tensor(zero, BOLIDE_I32, 1, d1), pages = tensor(list, BOLIDE_I32, 1, d1);
    bolide_tensor indptr = tensor(bounds, BOLIDE_I32, 1, b1), last = tensor(one, BOLIDE_I32, 1, d1);

    bolide_append_paged_kv_cache_args a;
    check(!bolide_args_init("append_paged_kv_cache", &a, sizeof a), "init");
    a.append_key = a.append_value = &heads;
    a.batch_indices = a.positions = &index;
    a.k_cache = &k.tensor, a.v_cache = &v.tensor;
    a.kv_indices = &pages, a.kv_indptr = &indptr, a.kv_last_page_len = &last;
    check(!bolide_append_paged_kv_cache(NULL, &a, NULL), "append_paged_kv_cache runs");
    check(only_last_page(&k) && only_last_page(&v), "append_paged_kv_cache over 2^31 elements");

    bolide_append_paged_mla_kv_cache_args m;
    check(!bolide_args_init("append_paged_mla_kv_cache", &m, sizeof m), "init");
    m.append_ckv = m.append_kpe = &plain;
    m.batch_indices = m.positions = &index;
    m.ckv_cache = &ckv.tensor, m.kpe_cache = &kpe.tensor;
    m.kv_indices = &pages, m.kv_indptr = &indptr, m.kv_last_page_len = &last;
    check(!bolide_append_paged_mla_kv_cache(NULL, &m, NULL), "append_paged_mla_kv_cache runs");
    check(only_last_page(&ckv) && only_last_page(&kpe),
          "append_paged_mla_kv_cache over 2^31 elements");
    drop_far(&k), drop_far(&v), drop_far(&ckv), drop_far(&kpe);
}

/* The same through rope_quantize_fp8_append_paged_kv_cache, which turns by an angle of 0 here. */
static void far_rope_append(void) {
    far_cache k, v;
    if (!make_far(&k, 4) || !make_far(&v, 4)) {
        printf("skipped: far pages: no address space\n");
        skipped++;
        return;
    }
    float row[D], table[D];
    uint8_t out[D];
    int32_t zero[] = {0}, list[] = {PAGES - 1}, bounds[] = {0, 1};
    int64_t d3[] = {1, 1, D}, d2[] = {1, D}, d1[] = {1}, b1[] = {2};
    for (int i = 0; i < D; i++) {
        row[i] = 1;
        table[i] = i < D / 2;
    }
    bolide_tensor heads = tensor(row, BOLIDE_F32, 3, d3), to = tensor(out, BOLIDE_F8_E4M3FN, 3, d3);
    bolide_tensor turn = tensor(table, BOLIDE_F32, 2, d2), index = tensor(zero, BOLIDE_I32, 1, d1);
    bolide_tensor pages = tensor(list, BOLIDE_I32, 1, d1),
                  indptr = tensor(bounds, BOLIDE_I32, 1, b1);
    bolide_rope_quantize_fp8_append_paged_kv_cache_args a;
    check(!bolide_args_init("rope_quantize_fp8_append_paged_kv_cache", &a, sizeof a), "init");
    a.q_rope = a.k_rope = a.v = &heads;
    a.cos_sin_cache = &turn;
    a.pos_ids = a.batch_indices = a.positions = &index;
    a.k_cache = &k.tensor, a.v_cache = &v.tensor;
    a.kv_indices = &pages, a.kv_indptr = &indptr;
    a.q_rope_out = &to;
    check(!bolide_rope_quantize_fp8_append_paged_kv_cache(NULL, &a, NULL), "rope append runs");
    check(only_last_page(&k) && only_last_page(&v), "rope append over 2^31 elements");
    drop_far(&k), drop_far(&v);
}

/* ---- memory of a call -------------------------------------------------------------------------
 */

typedef struct scratch {
    bolide_workspace w;
    bolide_plan *plan;
} scratch;

static void *part(int64_t bytes) {
    return aligned_alloc(64, (size_t)bytes / 64 * 64 + 64);
}

static scratch take(const bolide_sizes *s) {
    scratch m = {.w = {part(s->device_bytes), s->device_bytes, part(s->device_int_bytes),
                       s->device_int_bytes, part(s->pinned_bytes), s->pinned_bytes},
                 .plan = part(s->plan_bytes)};
    m.plan->size = s->plan_bytes;
    return m;
}

static void give(scratch *m) {
    free(m->w.device), free(m->w.device_int), free(m->w.pinned), free(m->plan);
}

/* ---- scores over 65504 --------------------------------------------------------------------------
 */

/* q and k of 100 in 80 channels: every score is 800,000 before it is scaled, and all are equal, so
 * the result is the mean of V. f16 sums would be infinite. As many rows as a tile has. */
enum { KEYS = 3, SIZE = 80, QUERIES = 20 };

typedef struct wide {
    uint16_t q[QUERIES][SIZE], k[KEYS][SIZE], v[KEYS][SIZE], out[QUERIES][SIZE];
    float lse[QUERIES];
} wide;

static void fill_wide(wide *w) {
    for (int i = 0; i < SIZE; i++) {
        for (int r = 0; r < QUERIES; r++)
            w->q[r][i] = 0x5640; /* 100 */
        for (int j = 0; j < KEYS; j++) {
            w->k[j][i] = 0x5640;
            w->v[j][i] = j == 0 ? 0x3c00 : j == 1 ? 0x4000 : 0x4200; /* 1, 2, 3 */
        }
    }
    memset(w->out, 0xff, sizeof w->out);
}

static void check_wide(const wide *w, int rows) {
    int mean = 1, sum = 1;
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < SIZE; i++)
            mean &= w->out[r][i] == 0x4000;
        /* 8 in natural units, and three equal keys. */
        sum &= fabs((double)w->lse[r] - (8 + log(3)) / log(2)) < 1e-4;
    }
    check(mean, "scores beyond 16 bits: the mean of V");
    check(sum, "scores beyond 16 bits: the lse");
}

/* Memory for an operator without a plan. */
static scratch take_for(const char *op, const void *args) {
    bolide_sizes sizes;
    check(!bolide_op_workspace(bolide_op_find(op), NULL, args, &sizes), "sizes");
    sizes.plan_bytes = sizeof(bolide_plan);
    return take(&sizes);
}

static void wide_scores(void) {
    static wide w;
    int64_t one[] = {1, SIZE}, some[] = {QUERIES, 1, SIZE}, keys[] = {KEYS, 1, SIZE};
    int64_t h[] = {1}, rows[] = {QUERIES, 1};
    const bolide_tensor tk = tensor(w.k, BOLIDE_F16, 3, keys),
                        tv = tensor(w.v, BOLIDE_F16, 3, keys);
    const bolide_tensor q1 = tensor(w.q, BOLIDE_F16, 2, one),
                        o1 = tensor(w.out, BOLIDE_F16, 2, one);
    const bolide_tensor l1 = tensor(w.lse, BOLIDE_F32, 1, h),
                        l = tensor(w.lse, BOLIDE_F32, 2, rows);
    const bolide_tensor q = tensor(w.q, BOLIDE_F16, 3, some),
                        o = tensor(w.out, BOLIDE_F16, 3, some);

    bolide_single_decode_with_kv_cache_args a;
    check(!bolide_args_init("single_decode_with_kv_cache", &a, sizeof a), "init");
    a.q = &q1, a.k = &tk, a.v = &tv, a.out = &o1, a.lse = &l1;
    a.sm_scale = 1e-5;
    scratch m = take_for("single_decode_with_kv_cache", &a);
    a.workspace = &m.w;
    fill_wide(&w);
    check(!bolide_single_decode_with_kv_cache(NULL, &a, NULL), "wide scores of a row run");
    check_wide(&w, 1);
    give(&m);

    bolide_single_prefill_with_kv_cache_args p;
    check(!bolide_args_init("single_prefill_with_kv_cache", &p, sizeof p), "init");
    p.q = &q, p.k = &tk, p.v = &tv, p.out = &o, p.lse = &l;
    p.sm_scale = 1e-5;
    m = take_for("single_prefill_with_kv_cache", &p);
    p.workspace = &m.w;
    fill_wide(&w);
    check(!bolide_single_prefill_with_kv_cache(NULL, &p, NULL), "wide scores of a tile run");
    check_wide(&w, QUERIES);
    give(&m);
}

/* ---- NaN of every kind
 * ---------------------------------------------------------------------------
 */

/* A key with one NaN makes its row NaN, whatever bits that has. */
static void odd_nans(void) {
    static const uint32_t bits[] = {0x7FC00000u, 0xFFFFFFFFu, 0x7FC00001u, 0x7F800001u,
                                    0xFFC00123u};
    enum { N = 70 };
    float q[D], k[N][D], v[N][D], out[D], lse;
    int64_t one[] = {1, D}, keys[] = {N, 1, D}, h[] = {1};
    for (int c = 0; c < D; c++) {
        q[c] = normal();
        for (int j = 0; j < N; j++) {
            k[j][c] = normal();
            v[j][c] = normal();
        }
    }
    const bolide_tensor tq = tensor(q, BOLIDE_F32, 2, one), tk = tensor(k, BOLIDE_F32, 3, keys),
                        tv = tensor(v, BOLIDE_F32, 3, keys), to = tensor(out, BOLIDE_F32, 2, one),
                        tl = tensor(&lse, BOLIDE_F32, 1, h);
    bolide_single_decode_with_kv_cache_args a;
    check(!bolide_args_init("single_decode_with_kv_cache", &a, sizeof a), "init");
    a.q = &tq, a.k = &tk, a.v = &tv, a.out = &to, a.lse = &tl;
    scratch m = take_for("single_decode_with_kv_cache", &a);
    a.workspace = &m.w;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        memcpy(&k[i * 15][3], &bits[i], sizeof *bits);
        check(!bolide_single_decode_with_kv_cache(NULL, &a, NULL), "a key with NaN runs");
        int all = isnan(lse) != 0;
        for (int c = 0; c < D; c++)
            all &= isnan(out[c]) != 0;
        check(all, "a key with NaN makes its row NaN");
        k[i * 15][3] = 1;
    }
    give(&m);
}

/* ---- reading far away ---------------------------------------------------------------------------
 */

enum { C = 16, ROWS = 20 };

/* A cache of f32 like far_cache, with one key on the last page: 1, 2, … in its d channels. */
static int make_far_keys(far_cache *f, int32_t ndim, int64_t d) {
    if (!make_far(f, ndim))
        return 0;
    float *row = (float *)(void *)(f->data + (PAGES - 1) * apart);
    for (int i = 0; i < d; i++)
        row[i] = (float)(i + 1);
    f->shape[ndim - 1] = d;
    f->strides[0] = apart / (int64_t)sizeof *row;
    f->strides[1] = f->strides[ndim - 2] = d;
    f->tensor.dtype = bolide_dtype_of(BOLIDE_F32);
    return 1;
}

/* Whether every row of d results is that key. */
static int all_last(const float *out, int rows, int64_t d) {
    int ok = 1;
    for (int64_t i = 0; i < rows * d; i++)
        ok &= out[i] == (float)(i % d + 1);
    return ok;
}

/* What all of the next three share: the page list, lengths, queries of 0. */
typedef struct far_call {
    float q[ROWS][C], out[ROWS][C];
    int32_t bounds[2], rows[2], one[1], list[ROWS];
} far_call;

static far_call far_values(void) {
    far_call f = {.bounds = {0, 1}, .rows = {0, ROWS}, .one = {1}};
    for (int i = 0; i < ROWS; i++)
        f.list[i] = PAGES - 1;
    memset(f.out, 0xff, sizeof f.out);
    return f;
}

static void far_prefill(far_cache *k, far_cache *v) {
    far_call f = far_values();
    int64_t b1[] = {2}, b[] = {1}, d3[] = {ROWS, 1, C};
    const bolide_tensor qo = tensor(f.rows, BOLIDE_I32, 1, b1),
                        kv = tensor(f.bounds, BOLIDE_I32, 1, b1),
                        last = tensor(f.one, BOLIDE_I32, 1, b),
                        list = tensor(f.list, BOLIDE_I32, 1, b), q = tensor(f.q, BOLIDE_F32, 3, d3),
                        out = tensor(f.out, BOLIDE_F32, 3, d3);
    bolide_batch_prefill_paged_plan_args a;
    bolide_batch_prefill_paged_run_args r;
    bolide_sizes sizes;
    check(!bolide_args_init("batch_prefill_paged_plan", &a, sizeof a), "init");
    check(!bolide_args_init("batch_prefill_paged_run", &r, sizeof r), "init");
    a.qo_indptr = &qo, a.paged_kv_indptr = &kv, a.paged_kv_last_page_len = &last;
    a.num_qo_heads = a.num_kv_heads = a.page_size = 1;
    a.head_dim_qk = C;
    a.q_data_type = BOLIDE_F32;
    check(!bolide_batch_prefill_paged_workspace(NULL, &a, &sizes), "sizes");
    scratch m = take(&sizes);
    a.workspace = r.workspace = &m.w;
    a.plan = r.plan = m.plan;
    r.q = &q, r.k_cache = &k->tensor, r.v_cache = &v->tensor;
    r.paged_kv_indices = &list, r.out = &out;
    check(!bolide_batch_prefill_paged_plan(NULL, &a, NULL), "prefill over far pages plans");
    check(!bolide_batch_prefill_paged_run(NULL, &r, NULL), "prefill over far pages runs");
    check(all_last(f.out[0], ROWS, C), "batch_prefill_paged reads over 2^31 bytes");
    give(&m);
}

static void far_latents(far_cache *ckv, far_cache *kpe) {
    far_call f = far_values();
    int64_t b1[] = {2}, b[] = {1}, d3[] = {ROWS, 1, C}, p3[] = {ROWS, 1, D};
    const bolide_tensor qo = tensor(f.rows, BOLIDE_I32, 1, b1),
                        kv = tensor(f.bounds, BOLIDE_I32, 1, b1),
                        len = tensor(f.one, BOLIDE_I32, 1, b),
                        list = tensor(f.list, BOLIDE_I32, 1, b), q = tensor(f.q, BOLIDE_F32, 3, d3),
                        pe = tensor(f.q, BOLIDE_F32, 3, p3), out = tensor(f.out, BOLIDE_F32, 3, d3);
    bolide_batch_mla_plan_args a;
    bolide_batch_mla_run_args r;
    bolide_sizes sizes;
    check(!bolide_args_init("batch_mla_plan", &a, sizeof a), "init");
    check(!bolide_args_init("batch_mla_run", &r, sizeof r), "init");
    a.qo_indptr = &qo, a.kv_indptr = &kv, a.kv_len_arr = &len;
    a.num_heads = a.page_size = 1;
    a.head_dim_ckv = C, a.head_dim_kpe = D;
    a.q_data_type = BOLIDE_F32;
    a.sm_scale = 1;
    check(!bolide_batch_mla_workspace(NULL, &a, &sizes), "sizes");
    scratch m = take(&sizes);
    a.workspace = r.workspace = &m.w;
    a.plan = r.plan = m.plan;
    r.q_nope = &q, r.q_pe = &pe, r.ckv_cache = &ckv->tensor, r.kpe_cache = &kpe->tensor;
    r.kv_indices = &list, r.out = &out;
    check(!bolide_batch_mla_plan(NULL, &a, NULL), "latents on far pages plan");
    check(!bolide_batch_mla_run(NULL, &r, NULL), "latents on far pages run");
    check(all_last(f.out[0], ROWS, C), "batch_mla reads over 2^31 bytes");
    give(&m);
}

static void far_lists(far_cache *cache) {
    far_call f = far_values();
    int64_t d3[] = {ROWS, 1, C}, d2[] = {ROWS, 1};
    const bolide_tensor q = tensor(f.q, BOLIDE_F32, 3, d3), out = tensor(f.out, BOLIDE_F32, 3, d3),
                        list = tensor(f.list, BOLIDE_I32, 2, d2);
    bolide_sparse_mla_args a;
    check(!bolide_args_init("sparse_mla", &a, sizeof a), "init");
    a.q = &q, a.kv_cache = &cache->tensor, a.indices = &list, a.out = &out;
    scratch m = take_for("sparse_mla", &a);
    a.workspace = &m.w;
    check(!bolide_sparse_mla(NULL, &a, NULL), "lists of far rows run");
    check(all_last(f.out[0], ROWS, C), "sparse_mla reads over 2^31 bytes");
    give(&m);
}

static void far_reads(void) {
    far_cache k, v, ckv, kpe;
    if (!make_far_keys(&k, 4, C) || !make_far_keys(&v, 4, C) || !make_far_keys(&ckv, 3, C) ||
        !make_far_keys(&kpe, 3, D)) {
        printf("skipped: far pages: no address space\n");
        skipped++;
        return;
    }
    far_prefill(&k, &v);
    far_latents(&ckv, &kpe);
    far_lists(&ckv);
    drop_far(&k), drop_far(&v), drop_far(&ckv), drop_far(&kpe);
}

/* ---- more requests than 16 bits count
 * ------------------------------------------------------------
 */

/* One query token a request; every third request has no key. */
static void many_prefills(void) {
    enum { B = 70000 };
    int32_t *q_ends = malloc((B + 1) * sizeof *q_ends), *k_ends = malloc((B + 1) * sizeof *k_ends);
    float *q = calloc((size_t)B * D, sizeof *q), *out = malloc((size_t)B * D * sizeof *out);
    float *v = malloc((size_t)B * D * sizeof *v);
    int64_t bounds[] = {B + 1}, rows[] = {B, 1, D}, keys[] = {0, 1, D};
    int right = 1;
    for (int32_t r = 0; r <= B; r++) {
        q_ends[r] = r;
        k_ends[r] = r - (r + 2) / 3;
    }
    keys[0] = k_ends[B];
    for (int64_t i = 0; i < (int64_t)B * D; i++)
        v[i] = (float)(i % 1000);
    memset(out, 0xff, (size_t)B * D * sizeof *out);
    bolide_tensor qi = tensor(q_ends, BOLIDE_I32, 1, bounds),
                  ki = tensor(k_ends, BOLIDE_I32, 1, bounds);
    bolide_tensor tq = tensor(q, BOLIDE_F32, 3, rows), to = tensor(out, BOLIDE_F32, 3, rows);
    bolide_tensor tk = tensor(q, BOLIDE_F32, 3, keys), tv = tensor(v, BOLIDE_F32, 3, keys);
    bolide_batch_prefill_ragged_plan_args a;
    bolide_batch_prefill_ragged_run_args r;
    bolide_sizes sizes;
    check(!bolide_args_init("batch_prefill_ragged_plan", &a, sizeof a), "init");
    check(!bolide_args_init("batch_prefill_ragged_run", &r, sizeof r), "init");
    a.qo_indptr = &qi, a.kv_indptr = &ki;
    a.num_qo_heads = a.num_kv_heads = 1;
    a.head_dim_qk = D;
    a.q_data_type = BOLIDE_F32;
    check(!bolide_batch_prefill_ragged_workspace(NULL, &a, &sizes), "sizes");
    scratch m = take(&sizes);
    a.workspace = r.workspace = &m.w;
    a.plan = r.plan = m.plan;
    r.q = &tq, r.k = &tk, r.v = &tv, r.out = &to;
    check(!bolide_batch_prefill_ragged_plan(NULL, &a, NULL), "70,000 prefills plan");
    check(!bolide_batch_prefill_ragged_run(NULL, &r, NULL), "70,000 prefills run");
    for (int64_t i = 0; i < (int64_t)B * D; i++) {
        const int64_t request = i / D, has = k_ends[request + 1] - k_ends[request];
        right &= out[i] == (has ? v[k_ends[request] * D + i % D] : 0.0f);
    }
    check(right, "70,000 prefills, each its own result");
    give(&m);
    free(q_ends), free(k_ends), free(q), free(out), free(v);
}

int main(void) {
    state = (uint64_t)time(NULL) | 1;
    (void)between;
    far_appends();
    far_rope_append();
    wide_scores();
    odd_nans();
    far_reads();
    many_prefills();
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
