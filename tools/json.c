// SPDX-License-Identifier: Apache-2.0
//
// The JSON writer. Text is taken as UTF-8 and passed through; what is no valid UTF-8 becomes the
// replacement character, so the output is always valid JSON.

#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the UTF-8 sequence at s; 0 if it is malformed. */
static int sequence(const unsigned char *s) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const int n = s[0] < 0x80             ? 1
                  : (s[0] & 0xe0) == 0xc0 ? 2
                  : (s[0] & 0xf0) == 0xe0 ? 3
                  : (s[0] & 0xf8) == 0xf0 ? 4
                                          : 0;
    uint32_t code = n > 1 ? s[0] & (0x7fu >> n) : s[0];
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    if (n > 1 && (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)))
        return 0;
    return n;
}

static void put_text(FILE *f, const char *text) {
    (void)fputc('"', f);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        const int n = sequence(s);
        if (n == 0)
            (void)fputs("\\ufffd", f);
        else if (*s == '"' || *s == '\\')
            (void)fprintf(f, "\\%c", *s);
        else if (*s == '\n')
            (void)fputs("\\n", f);
        else if (*s < 0x20 || *s == 0x7f)
            (void)fprintf(f, "\\u%04x", *s);
        else
            (void)fwrite(s, 1, (size_t)n, f);
        s += n ? n : 1;
    }
    (void)fputc('"', f);
}

static void begin(json *j, const char *key) {
    if (j->comma)
        (void)fputs(", ", j->file);
    j->comma = 1;
    if (key) {
        put_text(j->file, key);
        (void)fputs(": ", j->file);
    }
}

void json_open(json *j, const char *key, char bracket) {
    begin(j, key);
    (void)fputc(bracket, j->file);
    j->comma = 0;
}

void json_close(json *j, char bracket) {
    (void)fputc(bracket, j->file);
    j->comma = 1;
}

void json_string(json *j, const char *key, const char *text) {
    begin(j, key);
    put_text(j->file, text);
}

void json_int(json *j, const char *key, int64_t value) {
    begin(j, key);
    (void)fprintf(j->file, "%lld", (long long)value);
}

void json_double(json *j, const char *key, double value, int digits) {
    begin(j, key);
    if (!isfinite(value)) {
        (void)fputs("null", j->file);
        return;
    }
    char text[32];
    (void)snprintf(text, sizeof text, "%.*g", digits ? digits : 15, value);
    for (int n = 16; digits == 0 && n <= 17 && strtod(text, NULL) != value; n++)
        (void)snprintf(text, sizeof text, "%.*g", n, value);
    (void)fputs(text, j->file);
}

void json_bool(json *j, const char *key, int value) {
    begin(j, key);
    (void)fputs(value ? "true" : "false", j->file);
}

void json_null(json *j, const char *key) {
    begin(j, key);
    (void)fputs("null", j->file);
}

void json_end(json *j) {
    (void)fputc('\n', j->file);
    j->comma = 0;
}
