// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a problem string: they are parsed or refused with a sentence; what is parsed prints
// as a string that parses to the same problem; and small problems are realised and called, which
// gives a status or a result.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "fuzz.h"
#include "scratch.h"

enum { MAX_TEXT = 2000, MAX_PROBLEMS = 4 };

static void expect(int condition, const char *what) {
    if (!condition) {
        (void)fprintf(stderr, "fuzz_problem: %s\n", what);
        abort();
    }
}

static int same(const problem *a, const problem *b) {
    int equal = a->count == b->count && !strcmp(a->op, b->op);
    for (int32_t i = 0; equal && i < a->count; i++)
        equal =
            !strcmp(a->key[i].name, b->key[i].name) && !strcmp(a->key[i].value, b->key[i].value);
    return equal;
}

static void print_and_parse(const problem *p) {
    static problem again;
    char text[2 * MAX_TEXT], error[PROBLEM_ERROR];
    problem_format(p, text, sizeof text);
    expect(problem_parse_one(text, &again, error) == 0, "a printed problem is refused");
    expect(same(p, &again), "a printed problem is another one");
}

static void call(driver_case *c) {
    driver_scratch scratch;
    bolide_status status;
    if (!scratch_make(c, fuzz_context(), NULL, &scratch, &status)) {
        status = c->args[BOLIDE_PLAN].entry ? bolide_op_call(c->op, BOLIDE_PLAN, fuzz_context(),
                                                             c->args[BOLIDE_PLAN].bytes, NULL)
                                            : BOLIDE_OK;
        if (status == BOLIDE_OK)
            status =
                bolide_op_call(c->op, BOLIDE_RUN, fuzz_context(), c->args[BOLIDE_RUN].bytes, NULL);
    }
    if (status != BOLIDE_OK)
        expect(bolide_last_error()->message[0] != 0, "an error without a message");
    scratch_free(&scratch, NULL);
}

static void realise(const problem *p) {
    char error[DRIVER_ERROR] = "";
    driver_case *c = driver_case_make(p, 1, error);
    expect(c || error[0], "a problem was refused without a sentence");
    if (c && c->op->cpu)
        call(c);
    driver_case_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static problem_set set;
    static problem p;
    char text[MAX_TEXT + 1], error[PROBLEM_ERROR] = "";
    if (size > MAX_TEXT)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    driver_memory_limit = 1 << 20;
    if (problem_parse(text, &set, error)) {
        expect(error[0] != 0, "a string was refused without a sentence");
        return 0;
    }
    for (int64_t i = 0; i < MAX_PROBLEMS && i < set.total; i++) {
        problem_at(&set, i, &p);
        print_and_parse(&p);
        realise(&p);
    }
    return 0;
}
