// SPDX-License-Identifier: Apache-2.0
//
// Dimension strings of rows, evaluated the other way round: from values of names to shapes. The
// grammar is at bolide_param in core.h. This reader is apart from the library's own, so that the
// two check each other.

#ifndef BOLIDE_TOOLS_DIMS_H
#define BOLIDE_TOOLS_DIMS_H

#include <stdint.h>

/* Value of a name of the given length; INT64_MIN if it has none. */
typedef int64_t (*dims_lookup)(const void *user, const char *name, int32_t length);

typedef struct dims_form {
    char choice[32]; /* enum choice that it belongs to; empty: none */
    int32_t ndim;
    const char *word[8]; /* each ends at a blank, | ; or the end */
    int32_t length[8];
} dims_form;

enum { DIMS_FORMS = 16 };

typedef struct dims_row {
    char selector[32]; /* enum that selects the form; empty: none */
    int32_t count;
    dims_form form[DIMS_FORMS];
} dims_row;

void dims_parse(const char *text, dims_row *row);
/* Value of a word; INT64_MIN when a name in it has none, or for _. */
int64_t dims_value(const char *word, int32_t length, dims_lookup lookup, const void *user);
/* Calls visit for every name in the string, enum selectors excepted. */
void dims_names(const char *text, void (*visit)(void *user, const char *name, int32_t length),
                void *user);
/* 1 if the word is nothing but a name. */
int dims_is_name(const char *word, int32_t length);

#endif
