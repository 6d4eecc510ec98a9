// SPDX-License-Identifier: Apache-2.0
//
// Writes one JSON object a line to a file: enough of JSON for the tool's output, with strings
// escaped and numbers that JSON cannot hold as null.

#ifndef BOLIDE_TOOLS_JSON_H
#define BOLIDE_TOOLS_JSON_H

#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *file;
    int comma; /* a member or element was written on this level */
} json;

/* An object is a line of its own on the outermost level. key is NULL inside an array. */
void json_open(json *j, const char *key, char bracket);
void json_close(json *j, char bracket);
void json_string(json *j, const char *key, const char *text);
void json_int(json *j, const char *key, int64_t value);
/* digits: significant ones; 0: as many as it takes to read the same number back. */
void json_double(json *j, const char *key, double value, int digits);
void json_bool(json *j, const char *key, int value);
void json_null(json *j, const char *key);
/* Ends a line. */
void json_end(json *j);

#endif
