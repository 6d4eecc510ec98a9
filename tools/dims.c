// SPDX-License-Identifier: Apache-2.0
//
// A recursive reader that evaluates as it goes. Rows are short and this is no hot path.

#include "dims.h"

#include <stdlib.h>
#include <string.h>

static int is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int32_t name_length(const char *text) {
    int32_t n = 0;
    if (is_letter(text[0]))
        while (is_letter(text[n]) || is_digit(text[n]))
            n++;
    return n;
}

static int ends_word(char c) {
    return c == 0 || c == ' ' || c == '|' || c == ';';
}

static void parse_form(const char **at, dims_form *form) {
    form->ndim = 0;
    for (;;) {
        while (**at == ' ')
            (*at)++;
        if (**at == 0 || **at == '|' || **at == ';' || form->ndim == 8)
            return;
        int32_t n = 0;
        while (!ends_word((*at)[n]))
            n++;
        form->word[form->ndim] = *at;
        form->length[form->ndim++] = n;
        *at += n;
    }
}

static void copy_word(char to[32], const char *from, int32_t length) {
    const int32_t n = length < 31 ? length : 31;
    memcpy(to, from, (size_t)n);
    to[n] = 0;
}

void dims_parse(const char *text, dims_row *row) {
    memset(row, 0, sizeof *row);
    const char *equals = strchr(text, '=');
    if (equals) {
        copy_word(row->selector, text, (int32_t)(equals - text));
        text = equals + 1;
    }
    while (row->count < DIMS_FORMS) {
        dims_form *form = &row->form[row->count++];
        while (*text == ' ')
            text++;
        if (equals) {
            const int32_t n = (int32_t)strcspn(text, ":");
            copy_word(form->choice, text, n);
            text += n + (text[n] == ':');
        }
        parse_form(&text, form);
        if (*text != '|' && *text != ';')
            return;
        text++;
    }
}

typedef struct reader {
    const char *at, *end;
    dims_lookup lookup;
    const void *user;
    int unknown; /* a name had no value, or a division was by zero */
} reader;

static int64_t read_sum(reader *r);

static int peek(const reader *r, char c) {
    return r->at < r->end && *r->at == c;
}

static int64_t ceil_divide(reader *r, int64_t a, int64_t b) {
    if (b <= 0) {
        r->unknown = 1;
        return 0;
    }
    return a <= 0 ? 0 : (a - 1) / b + 1;
}

/* ceil(a/b) and pad(a,b); the opening parenthesis has been read. */
static int64_t read_function(reader *r, int pad) {
    /* In ceil the division is the outermost one, so a product before it is its numerator. */
    const char *slash = r->at;
    for (int depth = 0; slash < r->end; slash++) {
        depth += (*slash == '(') - (*slash == ')');
        if (depth < 0 || (depth == 0 && *slash == (pad ? ',' : '/')))
            break;
    }
    reader left = *r;
    left.end = slash;
    const int64_t a = read_sum(&left);
    r->unknown |= left.unknown;
    r->at = slash + 1;
    const int64_t b = read_sum(r);
    r->at++; /* the closing parenthesis */
    int64_t v = ceil_divide(r, a, b);
    if (pad && __builtin_mul_overflow(v, b, &v))
        r->unknown = 1;
    return v;
}

static int64_t read_atom(reader *r) {
    if (peek(r, '(')) {
        r->at++;
        const int64_t v = read_sum(r);
        r->at++;
        return v;
    }
    if (r->at < r->end && is_digit(*r->at)) {
        char *end;
        const int64_t v = strtoll(r->at, &end, 10);
        r->at = end;
        return v;
    }
    const char *name = r->at;
    const int32_t n = name_length(name);
    r->at += n ? n : 1;
    if (peek(r, '(') && n) {
        r->at++;
        return read_function(r, *name == 'p');
    }
    const int64_t v = r->lookup(r->user, name, n);
    r->unknown |= v == INT64_MIN;
    return v == INT64_MIN ? 0 : v;
}

static int64_t read_product(reader *r) {
    int64_t v = read_atom(r);
    while (peek(r, '*') || peek(r, '/')) {
        const char op = *r->at++;
        const int64_t b = read_atom(r);
        if (op == '/' && b == 0)
            r->unknown = 1;
        else if (op == '/')
            v /= b;
        else if (__builtin_mul_overflow(v, b, &v))
            r->unknown = 1;
    }
    return v;
}

static int64_t read_sum(reader *r) {
    int64_t v = read_product(r);
    while (peek(r, '+') || peek(r, '-')) {
        const char op = *r->at++;
        const int64_t b = read_product(r);
        if (op == '+' ? __builtin_add_overflow(v, b, &v) : __builtin_sub_overflow(v, b, &v))
            r->unknown = 1;
    }
    return v;
}

int64_t dims_value(const char *word, int32_t length, dims_lookup lookup, const void *user) {
    if (length == 1 && *word == '_')
        return INT64_MIN;
    reader r = {.at = word, .end = word + length, .lookup = lookup, .user = user};
    const int64_t v = read_sum(&r);
    return r.unknown ? INT64_MIN : v;
}

int dims_is_name(const char *word, int32_t length) {
    return name_length(word) == length && !(length == 1 && *word == '_');
}

void dims_names(const char *text, void (*visit)(void *user, const char *name, int32_t length),
                void *user) {
    dims_row row;
    dims_parse(text, &row);
    for (int32_t f = 0; f < row.count; f++) {
        for (int32_t i = 0; i < row.form[f].ndim; i++) {
            const char *at = row.form[f].word[i], *end = at + row.form[f].length[i];
            for (; at < end; at++) {
                const int32_t n = name_length(at);
                if (n && at[n] != '(' && !(n == 1 && *at == '_'))
                    visit(user, at, n);
                at += n ? n - 1 : is_digit(*at) ? (int32_t)strspn(at, "0123456789") - 1 : 0;
            }
        }
    }
}
