// SPDX-License-Identifier: Apache-2.0
//
// `bolide compile PROBLEM...`: notes the kernels that the problems would launch and compiles them
// into the cache, several at once, for the GPU at hand or for a target that is named.

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "cuda/compile.h"
#include "driver.h"

typedef struct compiler {
    bolide_context *ctx;
    int64_t noted, failed;
} compiler;

static int note(void *user, const problem *p) {
    compiler *k = user;
    driver_report report;
    driver_note(&k->ctx, 1, p, &report);
    if (report.verdict == DRIVER_PASS) {
        k->noted++;
        return 0;
    }
    k->failed++;
    printf("%-8s %s\n         %s\n", report.verdict == DRIVER_SKIP ? "refused" : "FAILED",
           report.problem, report.text);
    return 0;
}

static bool show(void *user, const bolide__compile_report *r) {
    (void)user;
    const bolide__resources *u = &r->resources;
    printf("[%d/%d] %s %s: ", r->done, r->total, r->target, r->spec);
    if (r->status != BOLIDE_OK)
        printf("FAILED\n%s\n", r->message);
    else if (r->origin == BOLIDE__FROM_DISK)
        printf("is there\n");
    else
        printf("%.2f s, %d registers, %d B spilled, %d B shared%s\n", r->seconds, u->registers,
               u->spill_bytes, r->shared_bytes, u->serialized ? ", wgmma serialised" : "");
    (void)fflush(stdout);
    return true;
}

/* The dry context of the named target, or of the first GPU. */
static bolide_status open_target(const char *arch, bolide_context **out) {
    bolide_context *real = NULL;
    char target[BOLIDE__TARGET_TEXT];
    if (arch)
        return bolide__cuda_context_dry(arch, out);
    const bolide_status status = bolide_context_create(BOLIDE_CUDA, 0, &real);
    if (status != BOLIDE_OK)
        return status;
    bolide__cuda_target_name(real, target);
    bolide_context_destroy(real);
    return bolide__cuda_context_dry(target, out);
}

int command_compile(int argc, char **argv) {
    command c;
    compiler k = {0};
    if (command_read(&c, "compile", OPTION_ARCH | OPTION_THREADS, argc, argv))
        return 2;
    if (open_target(c.arch, &k.ctx) != BOLIDE_OK) {
        (void)fprintf(stderr, "bolide compile: %s%s\n", bolide_last_error()->message,
                      c.arch ? "" : "; --arch names a target, such as sm_90a");
        return 1;
    }
    const int result = command_problems(&c, note, &k);
    bolide_status status = BOLIDE_OK;
    if (!result) {
        status = bolide__cuda_compile_noted(k.ctx, (int32_t)c.threads, show, NULL);
        const char *dir = bolide__cache_dir();
        printf("%lld problems, %d kernels in %s\n", (long long)k.noted, bolide__cuda_noted(k.ctx),
               dir ? dir : "no cache: set BOLIDE_CACHE_DIR");
    }
    bolide_context_destroy(k.ctx);
    return result ? 2 : status != BOLIDE_OK || k.failed > 0;
}
