// SPDX-License-Identifier: Apache-2.0
//
// The little of Unicode that the tokenizer needs: reading UTF-8 one character at a time, and the
// class of a character.
#ifndef BOLIDE_LLM_UNICODE_H
#define BOLIDE_LLM_UNICODE_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    UTF8_VALID,     // a character
    UTF8_INVALID,   // bytes that no continuation could make a character
    UTF8_INCOMPLETE // the beginning of a character, and then the text ends
} utf8_status;

// Reads at most `size` bytes (at least one).  *length is the number of bytes of the character, or
// of the ill-formed piece that one replacement character stands for (the longest beginning of a
// well-formed sequence, as the Unicode standard recommends).
utf8_status utf8_read(const char *at, size_t size, uint32_t *code, size_t *length);

// U+FFFD, the replacement character, in UTF-8.
#define UTF8_REPLACEMENT "\xef\xbf\xbd"
enum { UTF8_REPLACEMENT_SIZE = 3 };

// Writes a character of at most U+FFFF that is no surrogate; returns the number of bytes.
size_t utf8_write(char out[3], uint32_t code);

typedef enum { CLASS_OTHER, CLASS_LETTER, CLASS_NUMERIC, CLASS_SPACE } unicode_class;

unicode_class unicode_classify(uint32_t code);

#endif
