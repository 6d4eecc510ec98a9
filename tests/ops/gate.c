// SPDX-License-Identifier: Apache-2.0
//
// Makes the calls of all cases on one dry context a target and compiles what they noted; what is in
// the cache with the same hash is not compiled again, so a gate that ran out of time goes on where
// it stopped. On sm_90a under NVRTC 13, where kernels are
// tuned, spills, local arrays and serialised wgmma are failures but for those that
// tests/cuda/spills.txt lists with their reasons; elsewhere they are told.

#include "gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/compile.h"
#include "cuda/nvrtc.h"
#include "driver.h"

enum { MAX_TARGETS = 16, MAX_EXCEPTIONS = 32 };

typedef struct exception {
    char words[96];
    int bytes, used;
} exception;

typedef struct gate {
    bolide_context *ctx[MAX_TARGETS];
    int count;
    int64_t passed, failed, skipped;
    int64_t compiled, present, spilling;
    double seconds;
    time_t end; /* of the time for the target at hand; 0: no limit */
    int tuned;  /* whether kernels are tuned for this compiler */
    exception exceptions[MAX_EXCEPTIONS];
    int exception_count;
} gate;

static const char exceptions_file[] = "tests/cuda/spills.txt";
static const char all_targets[] = "sm_75,sm_80,sm_86,sm_89,sm_90a,sm_100a,sm_103a,sm_120a";

static int knows(const bolide__nvrtc *nvrtc, const char *target) {
    bolide__target t;
    if (!bolide__target_parse(target, &t))
        return 0;
    for (int i = 0; i < nvrtc->arch_count; i++) {
        if (nvrtc->archs[i] == t.arch)
            return 1;
    }
    return 0;
}

static int open_targets(gate *g, const bolide__nvrtc *nvrtc, const char *targets) {
    for (const char *at = targets; *at;) {
        char name[32];
        const int n = (int)strcspn(at, ",");
        (void)snprintf(name, sizeof name, "%.*s", n, at);
        at += n + (at[n] == ',');
        if (!knows(nvrtc, name)) {
            printf("skipped: %s: nvrtc %d.%d does not know it\n", name, nvrtc->major, nvrtc->minor);
            g->skipped++;
        } else if (g->count == MAX_TARGETS ||
                   bolide__cuda_context_dry(name, &g->ctx[g->count]) != BOLIDE_OK) {
            printf("FAILED: %s: %s\n", name, bolide_last_error()->message);
            return -1;
        } else {
            g->count++;
        }
    }
    return 0;
}

/* What the operator refuses, for the target or on purpose, needs no kernel. */
static void note(void *user, const problem *p) {
    gate *g = user;
    driver_report report;
    driver_note(g->ctx, g->count, p, &report);
    if (report.verdict == DRIVER_FAIL) {
        printf("FAILED: %s: %s\n", report.problem, report.text);
        g->failed++;
    }
}

/* ---- exceptions ---------------------------------------------------------------------------- */

/* Reads the kernels that may spill: "WORD...: BYTES: REASON" a line. A kernel is meant if its spec
 * has all words; what it has on the stack and what it spills may not be more bytes than that. */
static int read_exceptions(gate *g) {
    FILE *f = fopen(exceptions_file, "r");
    char line[256];
    if (!f) {
        printf("FAILED: %s cannot be read\n", exceptions_file);
        return -1;
    }
    int valid = 1;
    while (valid && fgets(line, sizeof line, f)) {
        exception *e = &g->exceptions[g->exception_count];
        if (line[0] == '#' || line[0] == '\n')
            continue;
        valid = g->exception_count < MAX_EXCEPTIONS &&
                sscanf(line, "%95[^:]: %d: %*c", e->words, &e->bytes) == 2;
        g->exception_count += valid;
        if (!valid)
            printf("FAILED: %s: %s", exceptions_file, line);
    }
    (void)fclose(f);
    return valid ? 0 : -1;
}

/* 1 if each word of `words` is a word of `spec`. */
static int has_words(const char *spec, const char *words) {
    char padded[1024], word[98];
    (void)snprintf(padded, sizeof padded, " %s ", spec);
    for (const char *at = words; *at;) {
        const int n = (int)strcspn(at, " ");
        (void)snprintf(word, sizeof word, " %.*s ", n, at);
        if (n > 0 && !strstr(padded, word))
            return 0;
        at += n + (at[n] == ' ');
    }
    return 1;
}

static int may_spill(gate *g, const bolide__compile_report *r) {
    for (int i = 0; i < g->exception_count; i++) {
        exception *e = &g->exceptions[i];
        if (!has_words(r->spec, e->words))
            continue;
        e->used = 1;
        return !r->resources.serialized && r->resources.spill_bytes <= e->bytes &&
               r->resources.stack_bytes <= e->bytes;
    }
    return 0;
}

/* An exception that nothing needs any more is a failure where all kernels were judged. */
static void judge_exceptions(gate *g) {
    for (int i = 0; i < g->exception_count; i++) {
        if (!g->exceptions[i].used) {
            printf("FAILED: %s: %s: no such kernel spills\n", exceptions_file,
                   g->exceptions[i].words);
            g->failed++;
        }
    }
}

/* ---- verdicts ------------------------------------------------------------------------------ */

static bool judge(void *user, const bolide__compile_report *r) {
    gate *g = user;
    const bolide__resources *u = &r->resources;
    const int untidy = u->spill_bytes > 0 || u->stack_bytes > 0 || u->serialized;
    g->compiled += r->status == BOLIDE_OK && r->origin == BOLIDE__COMPILED;
    g->present += r->status == BOLIDE_OK && r->origin == BOLIDE__FROM_DISK;
    g->seconds += r->seconds;
    if (r->status != BOLIDE_OK) {
        printf("FAILED: %s: %s: %s\n", r->target, r->entry, r->message);
        g->failed++;
    } else if (untidy && g->tuned && strcmp(r->target, "sm_90a") == 0 && !may_spill(g, r)) {
        printf("FAILED: %s: %s: %d bytes of stack, %d bytes spilled%s\n", r->target, r->spec,
               u->stack_bytes, u->spill_bytes, u->serialized ? ", wgmma serialised" : "");
        g->failed++;
    } else {
        if (untidy)
            printf("noted: %s: %s: %d bytes of stack, %d bytes spilled\n", r->target, r->spec,
                   u->stack_bytes, u->spill_bytes);
        g->spilling += untidy;
        g->passed++;
    }
    (void)fflush(stdout);
    return g->end == 0 || time(NULL) < g->end;
}

/* Compiles what target i has noted, within an equal share of the time that is left. */
static void compile_target(gate *g, int i, const gate_options *o, time_t end) {
    if (!o->full)
        bolide__cuda_keep_one_each(g->ctx[i]);
    if (o->shards > 1)
        bolide__cuda_keep_shard(g->ctx[i], o->shard, o->shards);
    const time_t now = time(NULL);
    const int64_t judged = g->passed + g->failed, noted = bolide__cuda_noted(g->ctx[i]);
    char target[BOLIDE__TARGET_TEXT];
    g->end = o->seconds ? now + (end - now) / (g->count - i) : 0;
    /* Failures are counted one by one in judge. */
    (void)!bolide__cuda_compile_noted(g->ctx[i], 0, judge, g);
    const int64_t left = noted - (g->passed + g->failed - judged);
    if (left > 0)
        printf("skipped: %s: the time was up before %lld of %lld kernels; the next run goes on\n",
               bolide__cuda_target_name(g->ctx[i], target), (long long)left, (long long)noted);
    g->skipped += left;
    bolide_context_destroy(g->ctx[i]);
}

int gate_run(const gate_options *o) {
    const time_t start = time(NULL);
    gate g = {0};
    const bolide__nvrtc *nvrtc = bolide__nvrtc_try();
    if (!nvrtc) {
        printf("skipped: there is no NVRTC; see `bolide doctor`\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    g.tuned = nvrtc->major >= 13;
    printf("nvrtc %d.%d at %s\n", nvrtc->major, nvrtc->minor, nvrtc->path);
    const int all = strcmp(o->targets, "all") == 0;
    if (read_exceptions(&g) || open_targets(&g, nvrtc, all ? all_targets : o->targets))
        return 2;
    op_test_each(o->filter, note, &g);
    const int64_t unknown = g.skipped;
    for (int i = 0; i < g.count; i++)
        compile_target(&g, i, o, start + (time_t)o->seconds);
    if (o->full && all && !o->filter && g.tuned && o->shards <= 1 && g.skipped == unknown)
        judge_exceptions(&g);
    printf("%lld kernels compiled in %.0f s of thread time, %lld as they were, %lld that spill\n",
           (long long)g.compiled, g.seconds, (long long)g.present, (long long)g.spilling);
    printf("%lld passed, %lld failed, %lld skipped\n", (long long)g.passed, (long long)g.failed,
           (long long)g.skipped);
    return g.failed > 0;
}
