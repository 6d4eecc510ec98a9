// SPDX-License-Identifier: Apache-2.0
//
// Options and problems of the command line.

#include "command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"

static int wrong(const command *c, const char *format, const char *text) {
    (void)fprintf(stderr, "bolide %s: ", c->name);
    (void)fprintf(stderr, format, text);
    (void)fputc('\n', stderr);
    return -1;
}

/* ---- options ------------------------------------------------------------------------------ */

static int read_backend(command *c, const char *value) {
    if (strcmp(value, "cpu") != 0 && strcmp(value, "cuda") != 0)
        return wrong(c, "--backend: expected cpu or cuda; got %s", value);
    c->device = !strcmp(value, "cuda") ? BOLIDE_CUDA : BOLIDE_CPU;
    return 0;
}

static int read_value(command *c, unsigned option, const char *value) {
    switch (option) {
    case OPTION_BACKEND:
        return read_backend(c, value);
    case OPTION_ISA:
        c->isa = value;
        return 0;
    case OPTION_ARCH:
        c->arch = value;
        return 0;
    case OPTION_THREADS:
        if (!problem_int(value, &c->threads) || c->threads < 1)
            return wrong(c, "--threads: expected a number of threads; got %s", value);
        return 0;
    case OPTION_SEED:
        if (!problem_int(value, &c->seed) || c->seed < 0)
            return wrong(c, "--seed: expected a number of 0 or more; got %s", value);
        return 0;
    default:
        if (!problem_double(value, &c->seconds) || !(c->seconds > 0 && c->seconds < 1e6))
            return wrong(c, "--seconds: expected a number above 0; got %s", value);
        return 0;
    }
}

int command_read(command *c, const char *name, unsigned options, int argc, char **argv) {
    static const struct {
        const char *name;
        unsigned option;
    } known[] = {{"--json", OPTION_JSON}, {"--backend", OPTION_BACKEND},
                 {"--isa", OPTION_ISA},   {"--threads", OPTION_THREADS},
                 {"--seed", OPTION_SEED}, {"--seconds", OPTION_SECONDS},
                 {"--arch", OPTION_ARCH}};
    *c = (command){.name = name, .device = BOLIDE_CPU, .seed = -1, .seconds = 1, .word = argv};
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] != '-' || !argv[i][1]) {
            c->word[c->word_count++] = argv[i]; /* words move up over the options */
            continue;
        }
        unsigned option = 0;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (!strcmp(argv[i], known[k].name) && options & known[k].option)
                option = known[k].option;
        if (!option)
            return wrong(c, "there is no option %s; see `bolide help`", argv[i]);
        if (option == OPTION_JSON)
            c->json = 1;
        else if (i + 1 == argc)
            return wrong(c, "%s needs a value", argv[i]);
        else if (read_value(c, option, argv[++i]))
            return -1;
    }
    return 0;
}

int command_isa(const command *c) {
    if (!c->isa)
        return 0;
    for (int isa = BOLIDE__BASELINE; isa <= BOLIDE__AVX512; isa++) {
        if (strcmp(bolide__isa_name((bolide__isa)isa), c->isa) != 0)
            continue;
        if (bolide__cpu_force_isa((bolide__isa)isa))
            return 0;
        return wrong(c, "--isa: this machine has no %s", c->isa);
    }
    return wrong(c, "--isa: expected baseline, avx2, emu512 or avx512; got %s", c->isa);
}

/* ---- problems ----------------------------------------------------------------------------- */

typedef struct reader {
    const command *c;
    int (*each)(void *user, const problem *p);
    void *user;
    int64_t count;
} reader;

static int read_string(reader *r, const char *text) {
    char error[PROBLEM_ERROR];
    problem_set *set = malloc(sizeof *set);
    if (!set)
        return wrong(r->c, "%s", "out of memory");
    int result = problem_parse(text, set, error) ? wrong(r->c, "%s", error) : 0;
    for (int64_t i = 0; result == 0 && i < set->total; i++) {
        problem p;
        problem_at(set, i, &p);
        result = r->each(r->user, &p);
        r->count++;
    }
    free(set);
    return result;
}

/* One problem a line; blank lines and lines that begin with # are skipped. */
static int read_lines(reader *r) {
    static char line[PROBLEM_TEXT];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        const size_t blank = strspn(line, " \t\r");
        const int result = line[blank] && line[blank] != '#' ? read_string(r, line) : 0;
        if (result)
            return result;
    }
    return 0;
}

/* A word of one problem; "a b=1" in quotes is several at once. */
static int starts_problem(const char *word) {
    return !strchr(word, '=') || strchr(word, ' ') != NULL;
}

int command_problems(const command *c, int (*each)(void *user, const problem *p), void *user) {
    reader r = {c, each, user, 0};
    char text[PROBLEM_TEXT];
    size_t used = 0;
    for (int i = 0; i < c->word_count; i++) {
        int result = 0;
        if (!strcmp(c->word[i], "-")) {
            result = read_lines(&r);
        } else {
            const int n =
                snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "", c->word[i]);
            used += (size_t)n;
            if (used >= sizeof text)
                return wrong(c, "a problem has more than %s bytes", "4095");
            if (i + 1 < c->word_count && !starts_problem(c->word[i + 1]))
                continue;
            result = read_string(&r, text);
            used = 0;
        }
        if (result)
            return result;
    }
    return r.count ? 0 : wrong(c, "expected %s", "problems, such as \"rmsnorm n=7 d=4096\"");
}
