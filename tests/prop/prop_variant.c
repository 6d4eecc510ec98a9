// SPDX-License-Identifier: Apache-2.0
//
// Custom variants of attention against float64 loops that have the same formulas as C functions:
// sigmoid attention, a dilated mask, a bias a head, and changes of q, k, v and out, on the CPU and,
// where there is one, on a GPU. Then what must be refused. With --gate their kernels are compiled
// for every target instead.

#include <bolide/bolide.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/compile.h"
#include "cuda/nvrtc.h"
#include "device.h"
#include "prop_variant.h"

static int passed, failed, skipped;

static void check(int ok, const char *what) {
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED: %s (last error: %s)\n", what, bolide_last_error()->message);
}

/* ---- running one ----------------------------------------------------------------------------- */

/* A context with its memory: that of the host, or of a device. */
typedef struct place {
    bolide_context *ctx;
    device *gpu; /* NULL: the CPU */
    int dry;     /* a CUDA context without a device: calls note their kernels only */
    void *held[32];
    int count;
} place;

/* n bytes where the context computes, with what is at `from`. */
static void *bring(place *p, const void *from, int64_t n) {
    void *to;
    if (p->gpu) {
        to = (void *)(uintptr_t)device_alloc(p->gpu, n + 256);
        if (to && from)
            (void)device_put(p->gpu, (uintptr_t)to, from, n);
    } else {
        to = aligned_alloc(256, (size_t)(n + 511) / 256 * 256);
        if (to && from)
            memcpy(to, from, (size_t)n);
    }
    return p->held[p->count++] = to;
}

static void release(place *p) {
    while (p->count > 0) {
        void *memory = p->held[--p->count];
        if (p->gpu)
            device_free(p->gpu, (uintptr_t)memory);
        else
            free(memory);
    }
}

static bolide_tensor at_place(const place *p, void *memory, int64_t dtype, int32_t ndim,
                              int64_t *shape) {
    bolide_tensor t = tensor(memory, dtype, ndim, shape);
    t.device.type = p->gpu || p->dry ? BOLIDE_CUDA : BOLIDE_CPU;
    return t;
}

/* Everything that a call points to. */
typedef struct call {
    bolide_tensor q, k, v, out, lse, indices, qo, kv, pages, last;
    bolide_tensor slope, step, gain;
    int64_t q_shape[3], kv_shape[4], lse_shape[2], list, counts[2], six, four, columns;
    bolide_variant_param params[4];
    bolide_variant variant;
    bolide_workspace w;
    bolide_plan *plan;
} call;

static void fill_variant(place *p, const formula *f, call *c) {
    c->six = H_Q, c->four = MAX_B, c->columns = D;
    c->slope = at_place(p, bring(p, slope, sizeof slope), BOLIDE_F32, 1, &c->six);
    c->step = at_place(p, bring(p, step_of, sizeof step_of), BOLIDE_I32, 1, &c->four);
    c->gain = at_place(p, bring(p, gain, sizeof gain), BOLIDE_F32, 1, &c->columns);
    c->params[0] = (bolide_variant_param){.name = "slope", .tensor = &c->slope};
    c->params[1] = (bolide_variant_param){.name = "shift", .number = shift};
    c->params[2] = (bolide_variant_param){.name = "step_of", .tensor = &c->step};
    c->params[3] = (bolide_variant_param){.name = "gain", .tensor = &c->gain};
    c->variant = (bolide_variant){.size = sizeof c->variant,
                                  .logits = f->texts[0],
                                  .mask = f->texts[1],
                                  .query = f->texts[2],
                                  .key = f->texts[3],
                                  .value = f->texts[4],
                                  .output = f->texts[5],
                                  .no_softmax = f->no_softmax,
                                  .params = c->params,
                                  .param_count = 4};
}

static void fill(place *p, const data *t, const formula *f, call *c) {
    const int64_t dtype = t->bf16 ? BOLIDE_BF16 : BOLIDE_F32, size = t->bf16 ? 2 : 4;
    const int paged = t->form >= PAGED, flat = t->form == SINGLE_DECODE;
    const int64_t q_shape[3] = {t->rows, H_Q, D};
    const int64_t kv_shape[4] = {paged ? t->pool / PAGE : t->keys, paged ? PAGE : H_KV,
                                 paged ? H_KV : D, D};
    memcpy(c->q_shape, q_shape, sizeof q_shape);
    memcpy(c->kv_shape, kv_shape, sizeof kv_shape);
    c->lse_shape[0] = t->rows, c->lse_shape[1] = H_Q;
    c->list = t->pages[t->b];
    c->counts[0] = t->b, c->counts[1] = t->b + 1;
    void *q = stored(t, t->q, t->rows * H_Q * D, 0, 0);
    void *k = stored(t, t->k, t->keys * H_KV * D, t->pool, paged);
    void *v = stored(t, t->v, t->keys * H_KV * D, t->pool, paged);
    const int64_t kv_bytes = t->pool * H_KV * D * size;
    c->q =
        at_place(p, bring(p, q, t->rows * H_Q * D * size), dtype, flat ? 2 : 3, c->q_shape + flat);
    c->k = at_place(p, bring(p, k, kv_bytes), dtype, paged ? 4 : 3, c->kv_shape);
    c->v = at_place(p, bring(p, v, kv_bytes), dtype, paged ? 4 : 3, c->kv_shape);
    c->out = at_place(p, bring(p, t->out, t->rows * H_Q * D * 4), BOLIDE_F32, flat ? 2 : 3,
                      c->q_shape + flat);
    c->lse = at_place(p, bring(p, t->lse, t->rows * H_Q * 4), BOLIDE_F32, flat ? 1 : 2,
                      c->lse_shape + flat);
    c->indices = at_place(p, bring(p, t->indices, c->list * 4), BOLIDE_I32, 1, &c->list);
    c->qo = tensor((void *)t->qo, BOLIDE_I32, 1, &c->counts[1]);
    c->kv = tensor((void *)t->kv, BOLIDE_I32, 1, &c->counts[1]);
    c->pages = tensor((void *)t->pages, BOLIDE_I32, 1, &c->counts[1]);
    c->last = tensor((void *)t->last, BOLIDE_I32, 1, &c->counts[0]);
    free(q);
    free(k);
    free(v);
    fill_variant(p, f, c);
}

static int reserve(place *p, const bolide_op *op, const void *args, call *c) {
    bolide_sizes s;
    if (bolide_op_workspace(op, p->ctx, args, &s) != BOLIDE_OK)
        return 0;
    c->w =
        (bolide_workspace){.device = bring(p, NULL, s.device_bytes),
                           .device_bytes = s.device_bytes,
                           .device_int = bring(p, NULL, s.device_int_bytes),
                           .device_int_bytes = s.device_int_bytes,
                           .pinned = aligned_alloc(256, (size_t)(s.pinned_bytes + 511) / 256 * 256),
                           .pinned_bytes = s.pinned_bytes};
    c->plan = calloc(1, (size_t)s.plan_bytes + sizeof(bolide_plan));
    if (c->plan)
        c->plan->size = s.plan_bytes;
    return 1;
}

#define OPTIONS(a, t)                                                                              \
    do {                                                                                           \
        (a).logits_soft_cap = (t)->cap;                                                            \
        (a).window_left = (t)->window_left;                                                        \
        (a).pos_encoding_mode = (t)->rope    ? BOLIDE_POS_ROPE_LLAMA                               \
                                : (t)->alibi ? BOLIDE_POS_ALIBI                                    \
                                             : BOLIDE_POS_NONE;                                    \
    } while (0)

#define PLAN_FIELDS(a, t)                                                                          \
    do {                                                                                           \
        OPTIONS(a, t);                                                                             \
        (a).num_qo_heads = H_Q;                                                                    \
        (a).num_kv_heads = H_KV;                                                                   \
        (a).q_data_type = (t)->bf16 ? BOLIDE_BF16 : BOLIDE_F32;                                    \
        (a).o_data_type = BOLIDE_F32;                                                              \
        (a).causal = (t)->causal;                                                                  \
        (a).variant = &c->variant;                                                                 \
    } while (0)

#define RUN_FIELDS(a, t, f)                                                                        \
    do {                                                                                           \
        (a).q = &c->q;                                                                             \
        (a).out = &c->out;                                                                         \
        (a).lse = (f)->no_softmax ? NULL : &c->lse;                                                \
        (a).v_scale = (t)->v_scale;                                                                \
        (a).o_scale = (t)->o_scale;                                                                \
        (a).variant = &c->variant;                                                                 \
        (a).workspace = &c->w;                                                                     \
    } while (0)

/* A planned operator: its plan's arguments are ready but for memory. */
static int plan_it(place *p, const char *name, void *args, const bolide_workspace **w,
                   bolide_plan **plan, call *c) {
    const bolide_op *op = bolide_op_find(name);
    const bolide_stream stream = device_stream(p->gpu);
    if (!reserve(p, op, args, c))
        return 0;
    *w = &c->w;
    *plan = c->plan;
    return bolide_op_call(op, BOLIDE_PLAN, p->ctx, args, stream) == BOLIDE_OK;
}

static bolide_status run_single(place *p, const data *t, const formula *f, call *c) {
    const bolide_stream stream = device_stream(p->gpu);
    bolide_single_decode_with_kv_cache_args d;
    bolide_single_prefill_with_kv_cache_args a;
    int bad = bolide_args_init(form_names[SINGLE_DECODE], &d, sizeof d) ||
              bolide_args_init(form_names[SINGLE_PREFILL], &a, sizeof a);
    OPTIONS(a, t);
    OPTIONS(d, t);
    RUN_FIELDS(a, t, f);
    RUN_FIELDS(d, t, f);
    a.causal = t->causal;
    a.k = d.k = &c->k;
    a.v = d.v = &c->v;
    a.workspace = d.workspace = NULL;
    const int decode = t->form == SINGLE_DECODE;
    bad |= !reserve(p, bolide_op_find(form_names[t->form]), decode ? (void *)&d : (void *)&a, c);
    a.workspace = d.workspace = &c->w;
    return bad      ? BOLIDE_INTERNAL
           : decode ? bolide_single_decode_with_kv_cache(p->ctx, &d, stream)
                    : bolide_single_prefill_with_kv_cache(p->ctx, &a, stream);
}

static bolide_status run_ragged(place *p, const data *t, const formula *f, call *c) {
    bolide_batch_prefill_ragged_plan_args a;
    bolide_batch_prefill_ragged_run_args r;
    int bad = bolide_args_init("batch_prefill_ragged_plan", &a, sizeof a) ||
              bolide_args_init("batch_prefill_ragged_run", &r, sizeof r);
    PLAN_FIELDS(a, t);
    a.qo_indptr = &c->qo;
    a.kv_indptr = &c->kv;
    a.head_dim_qk = D;
    bad |= !plan_it(p, "batch_prefill_ragged", &a, &a.workspace, &a.plan, c);
    RUN_FIELDS(r, t, f);
    r.k = &c->k;
    r.v = &c->v;
    r.plan = c->plan;
    return bad ? BOLIDE_INTERNAL
               : bolide_batch_prefill_ragged_run(p->ctx, &r, device_stream(p->gpu));
}

static bolide_status run_paged(place *p, const data *t, const formula *f, call *c) {
    bolide_batch_prefill_paged_plan_args a;
    bolide_batch_prefill_paged_run_args r;
    int bad = bolide_args_init("batch_prefill_paged_plan", &a, sizeof a) ||
              bolide_args_init("batch_prefill_paged_run", &r, sizeof r);
    PLAN_FIELDS(a, t);
    a.qo_indptr = &c->qo;
    a.paged_kv_indptr = &c->pages;
    a.paged_kv_last_page_len = &c->last;
    a.head_dim_qk = D;
    a.page_size = PAGE;
    bad |= !plan_it(p, "batch_prefill_paged", &a, &a.workspace, &a.plan, c);
    RUN_FIELDS(r, t, f);
    r.k_cache = &c->k;
    r.v_cache = &c->v;
    r.paged_kv_indices = &c->indices;
    r.plan = c->plan;
    return bad ? BOLIDE_INTERNAL
               : bolide_batch_prefill_paged_run(p->ctx, &r, device_stream(p->gpu));
}

static bolide_status run_decode(place *p, const data *t, const formula *f, call *c) {
    bolide_batch_decode_plan_args a;
    bolide_batch_decode_run_args r;
    int bad = bolide_args_init("batch_decode_plan", &a, sizeof a) ||
              bolide_args_init("batch_decode_run", &r, sizeof r);
    PLAN_FIELDS(a, t);
    a.indptr = &c->pages;
    a.last_page_len = &c->last;
    a.head_dim = D;
    a.page_size = PAGE;
    bad |= !plan_it(p, "batch_decode", &a, &a.workspace, &a.plan, c);
    RUN_FIELDS(r, t, f);
    r.k_cache = &c->k;
    r.v_cache = &c->v;
    r.indices = &c->indices;
    r.plan = c->plan;
    return bad ? BOLIDE_INTERNAL : bolide_batch_decode_run(p->ctx, &r, device_stream(p->gpu));
}

/* Runs a problem and leaves out and lse in it. */
static bolide_status run(place *p, data *t, const formula *f) {
    call c = {.plan = NULL};
    char error[256];
    fill(p, t, f, &c);
    const bolide_status s = t->form < RAGGED    ? run_single(p, t, f, &c)
                            : t->form == RAGGED ? run_ragged(p, t, f, &c)
                            : t->form == PAGED  ? run_paged(p, t, f, &c)
                                                : run_decode(p, t, f, &c);
    if (p->gpu) {
        (void)device_wait(p->gpu, error);
        (void)device_get(p->gpu, t->out, (uintptr_t)c.out.data, t->rows * H_Q * D * 4);
        (void)device_get(p->gpu, t->lse, (uintptr_t)c.lse.data, t->rows * H_Q * 4);
    } else {
        memcpy(t->out, c.out.data, (size_t)(t->rows * H_Q * D) * sizeof *t->out);
        memcpy(t->lse, c.lse.data, (size_t)(t->rows * H_Q) * sizeof *t->lse);
    }
    release(p);
    free(c.w.pinned);
    free(c.plan);
    return s;
}

static void all_formulas(place *p, const char *where) {
    const int rounds = p->gpu ? 4 : 6;
    double worst = 0;
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        for (int n = 0; n < FORMS * rounds; n++) {
            data t;
            char what[256];
            draw(&t, (form)(n % FORMS), p->gpu != NULL);
            const uint64_t seed = state;
            const bolide_status s = run(p, &t, &formulas[i]);
            const double error = s == BOLIDE_OK ? error_of(&t, &formulas[i]) : INFINITY;
            worst = error > worst ? error : worst;
            snprintf(what, sizeof what,
                     "%s: %s by %s is off by %.3g (bf16 %d causal %d window %d rope %d alibi %d "
                     "cap %g, state %llu)",
                     where, formulas[i].name, form_names[t.form], error, t.bf16, t.causal,
                     t.window_left, t.rope, t.alibi, t.cap, (unsigned long long)seed);
            check(error <= 2e-4, what);
            drop(&t);
        }
    }
    printf("%s: within %.2g\n", where, worst);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void refused(place *p, const formula *f, bolide_status status, const char *text) {
    data t;
    char what[256];
    draw(&t, SINGLE_PREFILL, 1);
    const bolide_status s = run(p, &t, f);
    snprintf(what, sizeof what, "expected %s with '%s'", bolide_status_name(status), text);
    check(s == status && strstr(bolide_last_error()->message, text) != NULL, what);
    drop(&t);
}

/* One request of one token with a variant that `spoil` has changed. */
static void refused_variant(void (*spoil)(call *c), bolide_status status, const char *text) {
    place p = {0};
    data t;
    call c = {.plan = NULL};
    bolide_single_decode_with_kv_cache_args d;
    draw(&t, SINGLE_DECODE, 1);
    fill(&p, &t, &formulas[0], &c);
    int ok = bolide_args_init(form_names[SINGLE_DECODE], &d, sizeof d) == BOLIDE_OK;
    d.q = &c.q, d.k = &c.k, d.v = &c.v, d.out = &c.out, d.variant = &c.variant;
    spoil(&c);
    if (!strcmp(text, "lse"))
        d.lse = &c.lse;
    ok = ok && bolide_single_decode_with_kv_cache(NULL, &d, NULL) == status &&
         strstr(bolide_last_error()->message, text) != NULL;
    check(ok, text);
    release(&p);
    drop(&t);
}

static void no_size(call *c) {
    c->variant.size = 0;
}

static void taken_name(call *c) {
    c->params[1].name = "head";
}

static void name_twice(call *c) {
    c->params[1].name = "slope";
}

static void broken_name(call *c) {
    c->params[1].name = "a b";
}

static void many_params(call *c) {
    c->variant.param_count = 9;
}

static void wide_dtype(call *c) {
    c->slope.dtype = bolide_dtype_of(BOLIDE_F64);
}

static void cpp_of_the_gpu(call *c) {
    c->variant.declarations = "struct nothing {};";
}

static void nothing(call *c) {
    (void)c;
}

static void refusals(place *p) {
    const formula broken = {.texts = {"return x +;"}};
    const formula unknown = {.texts = {"return x * scale_of_nobody;"}};
    const formula hidden = {.texts = {NULL, NULL, "return x * key;"}};
    refused_variant(no_size, BOLIDE_INVALID_ARGUMENT, "size");
    refused_variant(taken_name, BOLIDE_INVALID_ARGUMENT, "not taken");
    refused_variant(name_twice, BOLIDE_INVALID_ARGUMENT, "not taken");
    refused_variant(broken_name, BOLIDE_INVALID_ARGUMENT, "a name of C");
    refused_variant(many_params, BOLIDE_INVALID_ARGUMENT, "param_count");
    refused_variant(wide_dtype, BOLIDE_INVALID_ARGUMENT, "f32, i32 or u8");
    refused_variant(cpp_of_the_gpu, BOLIDE_UNSUPPORTED, "declarations");
    refused_variant(nothing, BOLIDE_INVALID_ARGUMENT, "lse");
    refused(p, &broken, BOLIDE_COMPILE_FAILED, "logits");
    refused(p, &unknown, BOLIDE_COMPILE_FAILED, "scale_of_nobody");
    refused(p, &hidden, BOLIDE_COMPILE_FAILED, "key");
    if (!p->gpu) {
        const formula fresh = {.texts = {"return x + 0.125f;"}};
        char *path = getenv("PATH") ? strdup(getenv("PATH")) : NULL;
        (void)setenv("PATH", "/nowhere", 1);
        refused(p, &fresh, BOLIDE_UNSUPPORTED, "`cc` in PATH");
        if (path)
            (void)setenv("PATH", path, 1);
        free(path);
    }
}

/* ---- the compile gate ----------------------------------------------------------------------- */

static bool judge(void *arg, const bolide__compile_report *r) {
    const bolide__resources *u = &r->resources;
    const int untidy = !strcmp(r->target, "sm_90a") && (u->spill_bytes > 0 || u->stack_bytes > 0);
    (void)arg;
    passed += r->status == BOLIDE_OK && !untidy;
    failed += r->status != BOLIDE_OK || untidy;
    if (r->status != BOLIDE_OK || untidy)
        printf("FAILED: %s: %s: %d bytes spilled %s\n", r->target, r->spec, u->spill_bytes,
               r->message);
    return true;
}

static int knows(const bolide__nvrtc *nvrtc, const char *name) {
    bolide__target target;
    int known = 0;
    for (int i = 0; bolide__target_parse(name, &target) && i < nvrtc->arch_count; i++)
        known |= nvrtc->archs[i] == target.arch;
    return known;
}

/* Compiles every formula for every target that the NVRTC at hand knows, without a GPU. */
static void gate(void) {
    static const char *const targets[] = {"sm_75",  "sm_80",   "sm_86",   "sm_89",
                                          "sm_90a", "sm_100a", "sm_103a", "sm_120a"};
    const bolide__nvrtc *nvrtc = bolide__nvrtc_try();
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        place p = {.dry = 1};
        if (!nvrtc || !knows(nvrtc, targets[i])) {
            skipped++;
            printf("skipped: %s: no NVRTC that knows it\n", targets[i]);
            continue;
        }
        check(bolide__cuda_context_dry(targets[i], &p.ctx) == BOLIDE_OK, targets[i]);
        for (size_t f = 0; f < sizeof formulas / sizeof formulas[0]; f++) {
            data t;
            draw(&t, PAGED, 1);
            t.bf16 = 0, t.causal = 1;
            check(run(&p, &t, &formulas[f]) == BOLIDE_OK, formulas[f].name);
            drop(&t);
        }
        (void)!bolide__cuda_compile_noted(p.ctx, 0, judge, NULL);
        bolide_context_destroy(p.ctx);
    }
}

/* ---- the program ---------------------------------------------------------------------------- */

static int has_compiler(place *p) {
    data t;
    draw(&t, SINGLE_PREFILL, 1);
    const bolide_status s = run(p, &t, &formulas[0]);
    drop(&t);
    return s != BOLIDE_UNSUPPORTED;
}

static void skip(const char *why) {
    skipped++;
    printf("skipped: %s\n", why);
}

static void both_backends(void) {
    place cpu = {0}, gpu = {0};
    char error[256];
    int bad;
    if (has_compiler(&cpu)) {
        all_formulas(&cpu, "CPU");
        refusals(&cpu);
    } else {
        skip(bolide_last_error()->message);
    }
    if (bolide_context_create(BOLIDE_CUDA, 0, &gpu.ctx) == BOLIDE_OK &&
        (gpu.gpu = device_open(gpu.ctx, error, &bad)) != NULL) {
        all_formulas(&gpu, "GPU");
        refusals(&gpu);
    } else {
        skip(bolide_last_error()->message);
    }
    device_close(gpu.gpu);
    bolide_context_destroy(gpu.ctx);
}

int main(int argc, char **argv) {
    const int is_gate = argc > 1 && !strcmp(argv[1], "--gate");
    state = 0x9e3779b97f4a7c15u ^ (uint64_t)time(NULL);
    if (argc > 1 && !is_gate)
        state = strtoull(argv[1], NULL, 10);
    printf("state %llu\n", (unsigned long long)state);
    if (is_gate)
        gate();
    else
        both_backends();
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed > 0;
}
