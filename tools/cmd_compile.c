// SPDX-License-Identifier: Apache-2.0
//
// `bolide compile PROBLEM... [--arch sm_90a]`: compiles the kernels that problems need into the
// cache, ahead of their first call. With --arch no GPU is needed.

#include <stdio.h>
#include <string.h>

#include "case.h"
#include "command.h"
#include "core/context.h"
#include "cuda/compile.h"
#include "cuda/device.h"
#include "scratch.h"

typedef struct compiler {
    const command *c;
    bolide_context *dry;
    int failed;
} compiler;

/* The tensors stay in host memory and say that they are on the device: a dry context reads none. */
static void pretend(driver_case *c) {
    case_bind(c);
    for (int32_t i = 0; i < c->tensor_count; i++)
        if (!c->tensor[i].on_host)
            c->tensor[i].view.device.type = BOLIDE_CUDA;
}

static bolide_status note(compiler *k, driver_case *c) {
    driver_scratch scratch;
    bolide_status s;
    pretend(c);
    if (!scratch_make(c, k->dry, NULL, &scratch, &s) && c->args[BOLIDE_PLAN].entry)
        s = bolide_op_call(c->op, BOLIDE_PLAN, k->dry, c->args[BOLIDE_PLAN].bytes, NULL);
    if (s == BOLIDE_OK)
        s = bolide_op_call(c->op, BOLIDE_RUN, k->dry, c->args[BOLIDE_RUN].bytes, NULL);
    scratch_free(&scratch, NULL);
    return s;
}

static int note_problem(void *user, const problem *p) {
    compiler *k = user;
    char error[DRIVER_ERROR], text[PROBLEM_TEXT];
    driver_case *c = driver_case_make(p, 1, error);
    if (c && note(k, c) != BOLIDE_OK)
        (void)snprintf(error, sizeof error, "%s", bolide_last_error()->message);
    else if (c)
        error[0] = 0;
    driver_case_free(c);
    if (error[0]) {
        (void)fprintf(stderr, "bolide compile: %s: %s\n", problem_format(p, text, sizeof text),
                      error);
        k->failed = 1;
    }
    return 0;
}

static void print_kernel(void *arg, const bolide__compile_report *r) {
    (void)arg;
    printf("[%d/%d] %-8s %s %s: ", r->done, r->total, r->target, r->entry, r->spec);
    if (r->status == BOLIDE_OK)
        printf("%s, %.2f s, %d registers, %d bytes spilled\n",
               r->origin == BOLIDE__FROM_DISK ? "was there" : "compiled", r->seconds,
               r->resources.registers, r->resources.spill_bytes);
    else
        printf("FAILED: %s\n", r->message);
    (void)fflush(stdout);
}

/* The target named, or that of the GPU in this machine. */
static bolide_status open_dry(const command *c, bolide_context **out) {
    char text[BOLIDE__TARGET_TEXT];
    bolide_context *real = NULL;
    if (c->arch)
        return bolide__cuda_context_dry(c->arch, out);
    const bolide_status s = bolide_context_create(BOLIDE_CUDA, 0, &real);
    if (s != BOLIDE_OK)
        return s;
    bolide__target_text(real->cuda->target, text);
    bolide_context_destroy(real);
    return bolide__cuda_context_dry(text, out);
}

int command_compile(int argc, char **argv) {
    command c;
    if (command_read(&c, "compile", OPTION_ARCH | OPTION_THREADS, argc, argv))
        return 2;
    compiler k = {.c = &c};
    if (open_dry(&c, &k.dry) != BOLIDE_OK) {
        (void)fprintf(stderr, "bolide compile: %s%s\n", bolide_last_error()->message,
                      c.arch ? "" : "; without a GPU, name one: --arch sm_90a");
        return 1;
    }
    int result = command_problems(&c, note_problem, &k) ? 2 : k.failed;
    if (result != 2 &&
        bolide__cuda_compile_noted(k.dry, (int32_t)c.threads, print_kernel, NULL) != BOLIDE_OK) {
        (void)fprintf(stderr, "bolide compile: %s\n", bolide_last_error()->message);
        result = 1;
    }
    bolide_context_destroy(k.dry);
    return result;
}
