// SPDX-License-Identifier: Apache-2.0
//
// The parser of problem strings. It works on fixed buffers, refuses what does not fit, and is
// fuzzed: any bytes give a set of problems or one sentence that says what is wrong.

#include "problem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail(char *error, const char *format, ...) {
    va_list list;
    va_start(list, format);
    (void)vsnprintf(error, PROBLEM_ERROR, format, list);
    va_end(list);
    return -1;
}

static int is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Letters, digits and what names of tensors and their properties are made of. */
static int is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '[' || c == ']';
}

static int is_value(char c) {
    return is_name(c) || c == '+' || c == '-' || c == ':' || c == '/';
}

/* The value with the given index of a comma list; its length through `bytes`. */
static const char *list_item(const char *list, int64_t index, size_t *bytes) {
    for (; index > 0; index--)
        list = strchr(list, ',') + 1;
    *bytes = strcspn(list, ",");
    return list;
}

/* Copies a name of `bytes` characters if it is one. */
static int copy_name(char *to, const char *from, size_t bytes) {
    if (bytes == 0 || bytes >= PROBLEM_NAME)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        if (!is_name(from[i]))
            return 0;
    memcpy(to, from, bytes);
    to[bytes] = 0;
    return 1;
}

/* What is printed of a word that may be long or hold anything: its printable beginning. */
typedef struct excerpt {
    char text[40];
} excerpt;

static excerpt excerpt_of(const char *word, size_t bytes) {
    excerpt e;
    size_t n = bytes < sizeof e.text - 1 ? bytes : sizeof e.text - 1;
    for (size_t i = 0; i < n; i++)
        e.text[i] = word[i] >= 0x20 && word[i] < 0x7f ? word[i] : '?';
    e.text[n] = 0;
    return e;
}

static int parse_values(problem_set *set, const char *text, size_t bytes, char *error) {
    const char *name = set->key[set->count].name;
    if (bytes == 0)
        return fail(error, "problem: %s has no value after the =", name);
    if (bytes >= PROBLEM_LIST)
        return fail(error, "problem: %s has more than %d bytes of values", name, PROBLEM_LIST - 1);
    int32_t options = 1;
    size_t start = 0;
    for (size_t i = 0; i <= bytes; i++) {
        if (i < bytes && text[i] != ',') {
            if (!is_value(text[i]))
                return fail(error, "problem: %s has a character that no value has: %s", name,
                            excerpt_of(text, bytes).text);
            continue;
        }
        if (i == start)
            return fail(error, "problem: %s has an empty value in its list", name);
        if (i - start >= PROBLEM_VALUE)
            return fail(error, "problem: %s has a value of more than %d bytes", name,
                        PROBLEM_VALUE - 1);
        start = i + 1;
        options += i < bytes;
    }
    memcpy(set->key[set->count].values, text, bytes);
    set->key[set->count].values[bytes] = 0;
    set->key[set->count].options = options;
    set->total *= options;
    if (set->total > PROBLEM_CASES)
        return fail(error, "problem: the lists stand for more than %d problems", PROBLEM_CASES);
    set->count++;
    return 0;
}

static int parse_key(problem_set *set, const char *word, size_t bytes, char *error) {
    const char *equals = memchr(word, '=', bytes);
    if (!equals)
        return fail(error, "problem: expected key=value; got '%s'", excerpt_of(word, bytes).text);
    if (set->count == PROBLEM_KEYS)
        return fail(error, "problem: more than %d keys", PROBLEM_KEYS);
    const size_t name_bytes = (size_t)(equals - word);
    char *name = set->key[set->count].name;
    if (!copy_name(name, word, name_bytes))
        return fail(error, "problem: '%s' is no name of a key", excerpt_of(word, name_bytes).text);
    for (int32_t i = 0; i < set->count; i++)
        if (!strcmp(set->key[i].name, name))
            return fail(error, "problem: %s is given twice", name);
    return parse_values(set, equals + 1, bytes - name_bytes - 1, error);
}

int problem_parse(const char *text, problem_set *set, char *error) {
    set->op[0] = 0;
    set->count = 0;
    set->total = 1;
    for (;;) {
        while (is_blank(*text))
            text++;
        if (!*text)
            break;
        size_t bytes = 0;
        while (text[bytes] && !is_blank(text[bytes]))
            bytes++;
        if (!set->op[0]) {
            if (!copy_name(set->op, text, bytes))
                return fail(error, "problem: '%s' is no name of an operator",
                            excerpt_of(text, bytes).text);
        } else if (parse_key(set, text, bytes, error)) {
            return -1;
        }
        text += bytes;
    }
    return set->op[0] ? 0 : fail(error, "problem: the string is empty; it begins with an operator");
}

void problem_at(const problem_set *set, int64_t index, problem *out) {
    memcpy(out->op, set->op, sizeof out->op);
    out->count = set->count;
    for (int32_t i = set->count - 1; i >= 0; i--) {
        size_t bytes;
        const char *value = list_item(set->key[i].values, index % set->key[i].options, &bytes);
        index /= set->key[i].options;
        memcpy(out->key[i].name, set->key[i].name, sizeof out->key[i].name);
        memcpy(out->key[i].value, value, bytes);
        out->key[i].value[bytes] = 0;
    }
}

int problem_parse_one(const char *text, problem *out, char *error) {
    problem_set set;
    if (problem_parse(text, &set, error))
        return -1;
    if (set.total != 1)
        return fail(error, "problem: expected one problem; the lists stand for %lld",
                    (long long)set.total);
    problem_at(&set, 0, out);
    return 0;
}

static int32_t find(const problem *p, const char *name) {
    for (int32_t i = 0; i < p->count; i++)
        if (!strcmp(p->key[i].name, name))
            return i;
    return -1;
}

const char *problem_get(const problem *p, const char *name) {
    const int32_t i = find(p, name);
    return i < 0 ? NULL : p->key[i].value;
}

int problem_put(problem *p, const char *name, const char *value) {
    int32_t i = find(p, name);
    if (strlen(name) >= PROBLEM_NAME || strlen(value) >= PROBLEM_VALUE)
        return -1;
    if (i < 0) {
        if (p->count == PROBLEM_KEYS)
            return -1;
        i = p->count++;
        memcpy(p->key[i].name, name, strlen(name) + 1);
    }
    memmove(p->key[i].value, value, strlen(value) + 1);
    return 0;
}

char *problem_format(const problem *p, char *text, size_t bytes) {
    size_t used = (size_t)snprintf(text, bytes, "%s", p->op);
    for (int32_t i = 0; i < p->count && used < bytes; i++)
        used +=
            (size_t)snprintf(text + used, bytes - used, " %s=%s", p->key[i].name, p->key[i].value);
    return text;
}

int problem_int(const char *text, int64_t *value) {
    const char first = text[0] == '-' || text[0] == '+' ? text[1] : text[0];
    if (first < '0' || first > '9')
        return 0;
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (*end || errno)
        return 0;
    *value = v;
    return 1;
}

int problem_double(const char *text, double *value) {
    if (!*text || is_blank(*text))
        return 0;
    char *end;
    *value = strtod(text, &end);
    return *end == 0;
}

int64_t problem_ints(const char *text, int64_t *values, int64_t limit) {
    int64_t count = 0;
    for (;;) {
        char word[24];
        const size_t bytes = strcspn(text, ":");
        if (bytes >= sizeof word || count == limit)
            return -1;
        memcpy(word, text, bytes);
        word[bytes] = 0;
        if (!problem_int(word, &values[count++]))
            return -1;
        if (!text[bytes])
            return count;
        text += bytes + 1;
    }
}
