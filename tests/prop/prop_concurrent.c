// SPDX-License-Identifier: Apache-2.0
//
// What a serving engine does around a call: it plans again for other lengths and replays a graph
// that it captured before, keeps two streams busy at once, and calls from two host threads on one
// context. On the CPU there is no graph and no stream, but plans are made again and threads share a
// context there too. Where there is a GPU, all of it is done on the GPU as well.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffer.h"
#include "case.h"
#include "device.h"
#include "driver.h"
#include "scratch.h"

enum { POISON = 0xff, LATER_POISON = 0x5a, ROUNDS = 40 };

static int passed, failed, skipped;
static uint64_t seed;

static void verdict(int ok, const char *what, const char *text, const char *why) {
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED: %s: %s: %s (seed %llu)\n", what, text, why, (unsigned long long)seed);
    (void)fflush(stdout);
}

/* ---- a call with its memory ------------------------------------------------------------------ */

typedef struct unit {
    const bolide_context *ctx;
    driver_case *c;
    device *d; /* NULL: the CPU; each has a stream of its own */
    driver_scratch scratch;
    char error[DRIVER_ERROR];
} unit;

static int is_mirrored(const unit *u, const driver_tensor *t) {
    return u->d && t->present && t->alias < 0 && !t->on_host;
}

/* Copies every tensor to the device, or back, guards included. */
static int transfer(unit *u, int to_device) {
    for (int32_t i = 0; i < u->c->tensor_count; i++) {
        driver_tensor *t = &u->c->tensor[i];
        if (!is_mirrored(u, t))
            continue;
        const uint64_t base = t->device - BUFFER_GUARD;
        const int64_t total = buffer_total(t->bytes);
        if (to_device ? device_put(u->d, base, buffer_begin(t->host), total)
                      : device_get(u->d, buffer_begin(t->host), base, total))
            return snprintf(u->error, sizeof u->error, "a copy to or from the device failed");
    }
    return 0;
}

static int call(unit *u, bolide_phase phase) {
    if (phase == BOLIDE_PLAN && !u->c->args[BOLIDE_PLAN].entry)
        return 0;
    const bolide_status s =
        bolide_op_call(u->c->op, phase, u->ctx, u->c->args[phase].bytes, device_stream(u->d));
    if (s == BOLIDE_OK)
        return 0;
    return snprintf(u->error, sizeof u->error, "%s", bolide_last_error()->message);
}

static int make_memory(unit *u) {
    bolide_status status;
    case_poison(u->c, POISON);
    for (int32_t i = 0; i < u->c->tensor_count; i++) {
        driver_tensor *t = &u->c->tensor[i];
        if (!is_mirrored(u, t))
            continue;
        const uint64_t base = device_alloc(u->d, buffer_total(t->bytes));
        t->device = base ? base + BUFFER_GUARD : 0;
        if (!base)
            return snprintf(u->error, sizeof u->error, "out of device memory");
    }
    case_bind(u->c);
    if (case_snapshot(u->c))
        return snprintf(u->error, sizeof u->error, "%s", u->c->error);
    if (!scratch_make(u->c, u->ctx, u->d, &u->scratch, &status))
        return transfer(u, 1);
    return snprintf(u->error, sizeof u->error, "%s",
                    status == BOLIDE_OK ? u->c->error : bolide_last_error()->message);
}

/* 0 if it is ready to plan; close_unit in any case. */
static int open_unit(unit *u, const bolide_context *ctx, const char *text, uint64_t values) {
    problem_set set;
    problem p;
    int bad = 0;
    *u = (unit){.ctx = ctx};
    if (problem_parse(text, &set, u->error))
        return -1;
    problem_at(&set, 0, &p);
    u->c = driver_case_make(&p, values, u->error);
    if (!u->c)
        return -1;
    u->d = device_open(ctx, u->error, &bad);
    u->c->device = u->d ? BOLIDE_CUDA : BOLIDE_CPU;
    return bad ? -1 : make_memory(u);
}

static void close_unit(unit *u) {
    if (!u->c)
        return;
    scratch_free(&u->scratch, u->d);
    for (int32_t i = 0; i < u->c->tensor_count; i++)
        if (u->c->tensor[i].device)
            device_free(u->d, u->c->tensor[i].device - BUFFER_GUARD);
    device_close(u->d);
    driver_case_free(u->c);
}

/* Waits for the stream and brings the results; the case's buffers then hold them. */
static int finish(unit *u) {
    char text[256] = "";
    if (device_wait(u->d, text))
        return snprintf(u->error, sizeof u->error, "device fault: %s", text);
    return transfer(u, 0);
}

/* ---- planned again --------------------------------------------------------------------------- */

/* Lengths to which a captured graph must follow its plan; the maxima say how far. */
static const char *const planned[] = {
    "batch_decode len=900:33:0:2000 max_sequence_kv=2048 seq_lens=given x=f16 lse=given",
    "batch_decode len=40000:1:70:9 max_sequence_kv=65536 seq_lens=given x=bf16 h_q=8 h_kv=1 d=128 "
    "page=16",
    "batch_decode len=300:4000 max_sequence_kv=4096 seq_lens=given x=f16 kv_data_type=f8_e4m3fn "
    "d=128 page=16 lse=given",
    "batch_decode len=500:2:77 max_sequence_kv=512 block_tables=given seq_lens=given x=bf16",
    "batch_prefill_paged len=900:300:64 q_len=15:1:64 max_sequence_kv=1024 max_num_rows=80 "
    "causal=1 seq_lens=given x=f16 d=128 page=16 lse=given",
    "batch_prefill_paged len=200:300 q_len=200:100 max_sequence_kv=512 max_num_rows=300 causal=1 "
    "seq_lens=given x=bf16 lse=given",
    "batch_prefill_ragged len=200:300:17 q_len=100:200:17 max_sequence_kv=512 max_num_rows=320 "
    "causal=1 x=bf16 d=128 lse=given",
    "batch_attention len=900:33:1:600 q_len=1:33:1:1 max_sequence_kv=1024 max_num_rows=36 x=bf16 "
    "causal=1 lse=given",
    "batch_mla ckv=512 kpe=64 len=900:33:600 q_len=1:1:1 h=16 max_sequence_kv=1024 max_num_rows=3 "
    "x=bf16 lse=given",
};

/* Other lengths in the same memory: a third of the keys, and all rows but one for the first
 * request, so that requests that were long are short and the other way round. */
static void other_lengths(unit *u) {
    for (int32_t i = 0; i < u->c->tensor_count; i++) {
        const driver_tensor *t = &u->c->tensor[i];
        int32_t *v = (int32_t *)(void *)t->host;
        if (!t->present || t->phase != BOLIDE_PLAN)
            continue;
        if (!strcmp(t->name, "seq_lens") || !strcmp(t->name, "kv_len_arr"))
            for (int64_t r = 0; r < t->elems; r++)
                v[r] /= 3;
        if (!strcmp(t->name, "qo_indptr"))
            for (int64_t r = 1; r + 1 < t->elems; r++)
                v[r] = v[t->elems - 1] - (int32_t)(t->elems - 1 - r);
    }
}

static int run_other_lengths(unit *u, void **graph) {
    other_lengths(u);
    if (call(u, BOLIDE_PLAN) || call(u, BOLIDE_RUN))
        return -1;
    if (!u->d)
        return 0;
    if (device_capture_begin(u->d))
        return snprintf(u->error, sizeof u->error, "capture could not begin");
    const int bad = call(u, BOLIDE_RUN);
    *graph = device_capture_end(u->d);
    if (bad || !*graph)
        return bad ? -1 : snprintf(u->error, sizeof u->error, "the run cannot be captured");
    return device_graph_launch(u->d, *graph)
               ? snprintf(u->error, sizeof u->error, "the graph could not be launched")
               : finish(u);
}

/* The case's own lengths: planned in the same memory, run by the graph of the other plan. */
static int run_own_lengths(unit *u, void *graph) {
    driver_report report = {.verdict = DRIVER_PASS};
    case_restore(u->c);
    case_poison(u->c, LATER_POISON);
    if (case_snapshot(u->c))
        return snprintf(u->error, sizeof u->error, "%s", u->c->error);
    if (transfer(u, 1) || call(u, BOLIDE_PLAN))
        return -1;
    if (u->d ? device_graph_launch(u->d, graph) : call(u, BOLIDE_RUN))
        return -1;
    if (finish(u))
        return -1;
    if (case_untouched(u->c, u->error, sizeof u->error) ||
        scratch_intact(&u->scratch, u->d, u->error, sizeof u->error))
        return -1;
    return case_compare(u->c, &report) ? snprintf(u->error, sizeof u->error, "%s", report.text) : 0;
}

static void planned_again(const bolide_context *ctx) {
    for (size_t i = 0; i < sizeof planned / sizeof planned[0]; i++) {
        unit u;
        void *graph = NULL;
        const int bad = open_unit(&u, ctx, planned[i], seed + i) || run_other_lengths(&u, &graph) ||
                        run_own_lengths(&u, graph);
        verdict(!bad, u.d ? "a graph after a new plan" : "a new plan", planned[i], u.error);
        if (graph)
            device_graph_free(u.d, graph);
        close_unit(&u);
    }
}

/* ---- two streams ----------------------------------------------------------------------------- */

/* Operators whose inputs stay as they are, among them all that have a workspace or meet in memory
 * that blocks share. */
static const char *const calls[] = {
    "rmsnorm n=300 d=4096 input=bf16",
    "apply_rope_with_cos_sin_cache n=64 query=bf16",
    "softmax n=16 v=32000 logits=f32",
    "top_k n=3 v=131072 k=2048 sorted=1 input=f32",
    "top_k n=64 v=20000 k=50 input=bf16",
    "top_p_renorm_probs n=2 v=128256 top_p=0.9",
    "top_k_top_p_sampling_from_logits n=3 v=128256 filter_apply_order=joint",
    "sampling_from_probs n=8 v=50000",
    "batch_decode len=900:33:0:5000 x=bf16 h_q=8 h_kv=1 d=128 page=16 lse=given",
    "single_decode_with_kv_cache len=3000 q=f16 k=f16 v=f16 out=f16 lse=given",
    "batch_prefill_paged len=300:700 q_len=100:31 causal=1 x=bf16 d=128 page=16 lse=given",
    "batch_prefill_ragged len=150:300 causal=1 x=f16 lse=given",
    "batch_mla ckv=512 kpe=64 len=900:33 q_len=1 h=16 x=bf16 lse=given",
    "merge_states n=37 k=5 d=128 x=bf16",
    "mm_bf16 m=1 n=512 k=2048",
    "mm_bf16 m=200 n=384 k=1024",
};

static int alone(unit *u, unsigned char **kept) {
    if (call(u, BOLIDE_PLAN) || call(u, BOLIDE_RUN) || finish(u))
        return -1;
    for (int32_t i = 0; i < u->c->tensor_count; i++) {
        const driver_tensor *t = &u->c->tensor[i];
        if (!t->present || !case_is_written(t))
            continue;
        kept[i] = malloc((size_t)t->bytes + 1);
        if (!kept[i])
            return snprintf(u->error, sizeof u->error, "out of memory");
        memcpy(kept[i], case_host(u->c, t), (size_t)t->bytes);
    }
    case_restore(u->c);
    return transfer(u, 1);
}

static int as_alone(unit *u, unsigned char *const *kept) {
    if (finish(u))
        return -1;
    for (int32_t i = 0; i < u->c->tensor_count; i++) {
        const driver_tensor *t = &u->c->tensor[i];
        if (kept[i] && memcmp(kept[i], case_host(u->c, t), (size_t)t->bytes) != 0)
            return snprintf(u->error, sizeof u->error, "%s: other bits than alone", t->name);
    }
    return scratch_intact(&u->scratch, u->d, u->error, sizeof u->error);
}

/* Two calls of the same shapes, each on its own stream and memory, sent in turns without a wait. */
static int in_turns(unit *u) {
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++)
            if (call(&u[i], BOLIDE_RUN))
                return -1;
    return 0;
}

static void two_streams(const bolide_context *ctx) {
    for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++) {
        unit u[2];
        unsigned char *kept[2][DRIVER_TENSORS];
        int bad = 0;
        memset(u, 0, sizeof u);
        memset(kept, 0, sizeof kept);
        for (int i = 0; i < 2 && !bad; i++)
            bad = open_unit(&u[i], ctx, calls[k], seed + (uint64_t)(100 + i)) ||
                  alone(&u[i], kept[i]);
        bad = bad || in_turns(u) || as_alone(&u[0], kept[0]) || as_alone(&u[1], kept[1]);
        verdict(!bad, "two streams", calls[k], u[0].error[0] ? u[0].error : u[1].error);
        for (int i = 0; i < 2; i++) {
            close_unit(&u[i]);
            for (int t = 0; t < DRIVER_TENSORS; t++)
                free(kept[i][t]);
        }
    }
}

/* ---- two host threads ------------------------------------------------------------------------ */

enum { CALLS = sizeof calls / sizeof calls[0] };

typedef struct worker {
    const bolide_context *ctx;
    bolide_device_type device;
    int first;
    driver_report report[CALLS];
} worker;

/* The driver's whole check of each call, first run, second run and graph, on a stream of its own.
 */
static void *check_all(void *user) {
    worker *w = user;
    for (int i = 0; i < CALLS; i++) {
        const int k = (w->first + i) % CALLS;
        driver_options options = {
            .device = w->device, .captured = 1, .seed = seed + (uint64_t)(w->first + 200 + i)};
        problem_set set;
        problem p;
        w->report[k].verdict = DRIVER_FAIL;
        if (problem_parse(calls[k], &set, w->report[k].text))
            continue;
        problem_at(&set, 0, &p);
        driver_check_on(w->ctx, &p, &options, &w->report[k]);
    }
    return NULL;
}

static void two_threads(const bolide_context *ctx, bolide_device_type type) {
    worker *w = calloc(2, sizeof *w);
    pthread_t thread;
    if (!w)
        exit(1);
    for (int i = 0; i < 2; i++) {
        w[i].ctx = ctx;
        w[i].device = type;
        w[i].first = i * CALLS / 2;
    }
    if (pthread_create(&thread, NULL, check_all, &w[1]) != 0)
        exit(1);
    check_all(&w[0]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < CALLS; k++)
            verdict(w[i].report[k].verdict == DRIVER_PASS, "two host threads", calls[k],
                    w[i].report[k].text);
    free(w);
}

int main(void) {
    bolide_context *ctx = NULL;
    seed = (uint64_t)time(NULL);
    if (bolide_context_create(BOLIDE_CPU, 0, &ctx) != BOLIDE_OK)
        return 1;
    planned_again(ctx);
    two_threads(ctx, BOLIDE_CPU);
    bolide_context_destroy(ctx);
    if (bolide_context_create(BOLIDE_CUDA, 0, &ctx) == BOLIDE_OK) {
        planned_again(ctx);
        two_streams(ctx);
        two_threads(ctx, BOLIDE_CUDA);
        bolide_context_destroy(ctx);
    } else {
        printf("skipped: on the GPU: %s\n", bolide_last_error()->message);
        skipped++;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed > 0;
}
