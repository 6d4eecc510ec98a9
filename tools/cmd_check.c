// SPDX-License-Identifier: Apache-2.0
//
// `bolide check PROBLEM...`: the driver's check, a line for each problem, and how many passed; or
// with --json an object for each and nothing else.

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "driver.h"
#include "json.h"
#include "numeric.h"

typedef struct checker {
    const command *c;
    bolide_context *ctx;
    uint64_t seed;
    int64_t passed, failed, skipped;
} checker;

static void print_line(const driver_report *r, const char *where) {
    static const char *const words[] = {"ok", "FAILED", "skipped"};
    printf("%-8s %-8s %s", words[r->verdict], where, r->problem);
    if (r->verdict == DRIVER_PASS && r->compared)
        printf("  (%lld elements, worst error %.2g of the tolerance)", (long long)r->compared,
               r->worst);
    if (r->text[0])
        printf("\n         %s", r->text);
    printf("\n");
}

static void print_json(const driver_report *r, const char *where) {
    static const char *const words[] = {"passed", "failed", "skipped"};
    json j = {.file = stdout};
    json_open(&j, NULL, '{');
    json_string(&j, "problem", r->problem);
    json_string(&j, "isa", where);
    json_string(&j, "verdict", words[r->verdict]);
    json_int(&j, "elements", r->compared);
    json_double(&j, "worst", r->worst, 4);
    json_string(&j, "text", r->text);
    json_close(&j, '}');
    json_end(&j);
}

static void check_under(checker *k, const problem *p, const char *isa) {
    const driver_options options = {
        .device = k->c->device, .isa = isa, .captured = 1, .seed = k->seed};
    driver_report report;
    driver_check_on(k->ctx, p, &options, &report);
    const char *where = k->c->device == BOLIDE_CUDA ? "cuda" : bolide__isa_name(bolide__cpu_isa());
    (k->c->json ? print_json : print_line)(&report, where);
    (void)fflush(stdout);
    k->passed += report.verdict == DRIVER_PASS;
    k->failed += report.verdict == DRIVER_FAIL;
    k->skipped += report.verdict == DRIVER_SKIP;
}

static int check(void *user, const problem *p) {
    checker *k = user;
    k->seed = numeric_mix(k->seed, 3, 4);
    if (!k->c->isa || strcmp(k->c->isa, "all") != 0) {
        check_under(k, p, k->c->isa);
        return 0;
    }
    for (int isa = BOLIDE__BASELINE; isa <= BOLIDE__AVX512; isa++)
        if (bolide__cpu_force_isa((bolide__isa)isa))
            check_under(k, p, bolide__isa_name((bolide__isa)isa));
    return 0;
}

int command_check(int argc, char **argv) {
    command c;
    if (command_read(&c, "check",
                     OPTION_JSON | OPTION_BACKEND | OPTION_ISA | OPTION_SEED | OPTION_THREADS, argc,
                     argv))
        return 2;
    checker k = {.c = &c, .seed = c.seed < 0 ? (uint64_t)time(NULL) : (uint64_t)c.seed};
    if (bolide_context_create(c.device, 0, &k.ctx) != BOLIDE_OK ||
        (c.threads && bolide_context_set(k.ctx, BOLIDE_THREADS, c.threads) != BOLIDE_OK)) {
        (void)fprintf(stderr, "bolide check: %s\n", bolide_last_error()->message);
        bolide_context_destroy(k.ctx);
        return 1;
    }
    const int result = command_problems(&c, check, &k);
    bolide_context_destroy(k.ctx);
    if (result)
        return 2;
    if (!c.json && k.passed + k.failed + k.skipped > 1)
        printf("%lld passed, %lld failed, %lld skipped\n", (long long)k.passed, (long long)k.failed,
               (long long)k.skipped);
    return k.failed > 0;
}
