// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: bytes are a problem string. Whatever the parser takes must come back from its
// canonical form unchanged, and what is small enough is realised, run on the CPU and compared with
// its reference; so this target reaches operators with arguments that make sense. The first byte
// chooses an operator, so that the fuzzer need not spell its name.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { LARGEST = 48 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The problem, its canonical text, and that text as a problem again. */
static void round_trip(const problem *p) {
    static char first[PROBLEM_TEXT], second[PROBLEM_TEXT];
    char error[PROBLEM_ERROR] = "";
    static problem again;
    problem_format(p, first, sizeof first);
    if (strlen(first) + 1 == sizeof first)
        return;
    if (problem_parse_one(first, &again, error)) {
        (void)fprintf(stderr, "%s: %s\n", first, error);
        abort();
    }
    if (strcmp(problem_format(&again, second, sizeof second), first) != 0)
        abort();
}

/* Large numbers are fine, but would only cost time here. */
static int is_small(const problem *p) {
    for (int32_t i = 0; i < p->count; i++) {
        for (const char *c = p->key[i].value; *c;) {
            char *end;
            const double value = strtod(c, &end);
            if (end != c && !(value >= -LARGEST && value <= LARGEST))
                return 0;
            c = end == c ? c + 1 : end;
        }
    }
    return 1;
}

/* A refusal is fine, a difference from the reference or a broken guard is not. */
static void run(const problem *p) {
    char error[DRIVER_ERROR] = "";
    driver_case *c = driver_case_make(p, 1, error);
    if (!c) {
        if (!error[0])
            abort();
        return;
    }
    const int judged = c->ref != NULL;
    driver_case_free(c);
    if (!judged)
        return;
    static driver_report report;
    driver_check(p, &(driver_options){.device = BOLIDE_CPU, .seed = 1}, &report);
    if (report.verdict != DRIVER_FAIL || strncmp(report.text, "expected ", 9) == 0)
        return;
    for (int s = BOLIDE_INVALID_ARGUMENT; s <= BOLIDE_WORKSPACE_TOO_SMALL; s++) {
        const char *name = bolide_status_name((bolide_status)s);
        if (strncmp(report.text, name, strlen(name)) == 0)
            return;
    }
    (void)fprintf(stderr, "%s: %s\n", report.problem, report.text);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char text[PROBLEM_TEXT];
    static problem_set set;
    static problem p;
    if (size < 1 || size > 1000)
        return 0;
    const bolide_op *op = bolide_op_at(data[0] % (bolide_op_count() + 1));
    const int head = snprintf(text, sizeof text, "%s ", op ? bolide_op_name(op) : "");
    memcpy(text + head, data + 1, size - 1);
    text[(size_t)head + size - 1] = 0;
    char error[PROBLEM_ERROR] = "";
    if (problem_parse(text, &set, error)) {
        if (!error[0])
            abort();
        return 0;
    }
    for (int64_t i = 0; i < set.total && i < 4; i++) {
        problem_at(&set, i, &p);
        round_trip(&p);
        if (is_small(&p))
            run(&p);
    }
    return 0;
}
