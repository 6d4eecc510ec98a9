// SPDX-License-Identifier: Apache-2.0
//
// The one way in which the parts of the language-model example report failure: a function that
// can fail takes an llm_error, writes one sentence into it and returns false.  The caller decides
// where the sentence is printed.  Bytes that came from a file are made printable on the way in, so
// that a hostile file cannot drive the terminal.
#ifndef BOLIDE_LLM_ERROR_H
#define BOLIDE_LLM_ERROR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char text[384];
} llm_error;

// Writes the sentence, cut to fit, and returns false.
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
bool llm_fail(llm_error *error, const char *format, ...);

#endif
