// SPDX-License-Identifier: Apache-2.0
//
// `bolide coverage`: what becomes of each parameter of FlashInfer's functions that an operator
// stands for, a line each, and of the rows that none stands for yet; with --json an object a line.
// The table is coverage.txt beside this file, embedded, where its form is described. Each row that
// it names must be one of the operator's, or the exit status is 1.

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "json.h"

__asm__(".section .rodata\n"
        "coverage_text:\n"
        ".incbin \"" BOLIDE_SOURCE_DIR "/tools/coverage.txt\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char coverage_text[];

static const char *const kinds[] = {"honoured", "python",  "always", "hint",
                                    "refused",  "missing", "later"};
enum { KINDS = sizeof kinds / sizeof kinds[0], HONOURED = 0, LINE = 2048 };

/* One parameter's entry, or that of a pattern (op NULL); texts may be empty. */
typedef struct entry {
    const char *name; /* of the function, or the pattern */
    const char *param;
    const bolide_op *op;
    int kind;
    const char *rows;   /* separated by blanks */
    const char *values; /* separated by blanks */
    const char *reason;
} entry;

typedef struct coverage {
    int as_json;
    int faults;
    int64_t count[KINDS];
    char names[LINE]; /* of the block, separated by ", " */
    const bolide_op *op;
} coverage;

static int has_row(const bolide_op *op, const char *name, size_t length) {
    for (int phase = BOLIDE_RUN; phase <= BOLIDE_PLAN; phase++) {
        const bolide_param *p;
        for (int64_t i = 0; (p = bolide_op_param(op, (bolide_phase)phase, i)); i++)
            if (strlen(p->name) == length && !memcmp(p->name, name, length))
                return 1;
    }
    return 0;
}

static void print_words(json *j, const char *key, const char *words) {
    json_open(j, key, '[');
    for (const char *at = words; *at; at += strspn(at, " ")) {
        char word[128];
        const size_t length = strcspn(at, " ");
        (void)snprintf(word, sizeof word, "%.*s", (int)length, at);
        json_string(j, NULL, word);
        at += length;
    }
    json_close(j, ']');
}

static void print_json(const entry *e) {
    json j = {.file = stdout};
    json_open(&j, NULL, '{');
    json_string(&j, e->op ? "name" : "pattern", e->name);
    if (e->op) {
        json_string(&j, "op", bolide_op_name(e->op));
        json_string(&j, "family", bolide_op_family(e->op));
        json_string(&j, "param", e->param);
    }
    json_string(&j, "status", kinds[e->kind]);
    if (*e->rows)
        print_words(&j, "rows", e->rows);
    if (*e->values)
        print_words(&j, "values", e->values);
    if (*e->reason)
        json_string(&j, "reason", e->reason);
    json_close(&j, '}');
    json_end(&j);
}

static void print_text(const entry *e) {
    printf("%s %s %s", e->name, e->param, kinds[e->kind]);
    if (*e->rows)
        printf(" by %s %s", bolide_op_name(e->op), e->rows);
    if (*e->values)
        printf(" [%s]", e->values);
    printf(*e->reason ? " (%s)\n" : "\n", e->reason);
}

static void fault(coverage *c, const char *what, const char *word) {
    (void)fprintf(stderr, "bolide coverage: %s: %s\n", what, word);
    c->faults++;
}

/* The entry for every function of the block. */
static void add(coverage *c, entry e) {
    char names[LINE];
    (void)snprintf(names, sizeof names, "%s", c->names);
    for (const char *row = e.rows; *row; row += strspn(row, " ")) {
        const size_t length = strcspn(row, " ");
        if (!has_row(c->op, row, length))
            fault(c, bolide_op_name(c->op), row);
        row += length;
    }
    e.op = c->op;
    char *rest = names;
    for (char *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
        e.name = name;
        c->count[e.kind]++;
        (c->as_json ? print_json : print_text)(&e);
    }
}

/* Reads "KIND [values] (reason)", or rows. Cuts the text into pieces. */
static void read_entry(entry *e, char *text) {
    e->rows = e->values = e->reason = "";
    e->kind = HONOURED;
    const size_t length = strcspn(text, " ");
    for (int i = 1; i < KINDS; i++)
        if (strlen(kinds[i]) == length && !memcmp(kinds[i], text, length))
            e->kind = i;
    if (e->kind == HONOURED) {
        e->rows = text;
        return;
    }
    char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    char *reason = strchr(close ? close : text, '(');
    if (close) {
        *close = 0;
        e->values = open + 1;
    }
    if (reason) {
        e->reason = reason + 1;
        reason[strlen(reason) - 1] = 0;
    }
}

static void read_params(coverage *c, char *line) {
    char *colon = strstr(line, ": ");
    entry e = {.param = line};
    if (colon) {
        *colon = 0;
        read_entry(&e, colon + 2);
        add(c, e);
        return;
    }
    char *rest = line;
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        add(c, (entry){.param = word, .kind = HONOURED, .rows = word, .values = "", .reason = ""});
}

static void read_line(coverage *c, char *line) {
    char *arrow = strstr(line, " -> "), *colon = strstr(line, ": ");
    if (!*line || *line == '#') {
        return;
    } else if (*line == ' ') {
        read_params(c, line + strspn(line, " "));
    } else if (arrow) {
        *arrow = 0;
        (void)snprintf(c->names, sizeof c->names, "%s", line);
        c->op = bolide_op_find(arrow + 4);
        if (!c->op)
            fault(c, "no operator", arrow + 4);
    } else if (colon && strncmp(line, "own: ", 5) != 0) {
        *colon = 0;
        entry e = {.name = line, .param = "(no operator)"};
        read_entry(&e, colon + 2);
        (c->as_json ? print_json : print_text)(&e);
    }
}

int command_coverage(int argc, char **argv) {
    command options;
    if (command_read(&options, "coverage", OPTION_JSON, argc, argv))
        return 2;
    if (options.word_count) {
        (void)fprintf(stderr, "bolide coverage: expected no %s\n", options.word[0]);
        return 2;
    }
    coverage c = {.as_json = options.json};
    for (const char *at = coverage_text; *at;) {
        char line[LINE];
        const size_t length = strcspn(at, "\n");
        if (length >= sizeof line)
            fault(&c, "a line is too long", at);
        (void)snprintf(line, sizeof line, "%.*s", (int)length, at);
        read_line(&c, line);
        at += length + (at[length] == '\n');
        if (!c.op && c.faults)
            return 1;
    }
    if (!c.as_json)
        for (int i = 0; i < KINDS; i++)
            printf("%s%lld %s", i ? ", " : "", (long long)c.count[i], kinds[i]);
    if (!c.as_json)
        printf("\n");
    return c.faults != 0;
}
