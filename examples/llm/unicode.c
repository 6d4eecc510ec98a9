// SPDX-License-Identifier: Apache-2.0
//
// See unicode.h.  Classes come from ranges in unicode_tables.h by binary search; ASCII, which most
// text is, is answered without it.
#include "unicode.h"

#include "unicode_tables.h"

// Well-formed sequences by first byte: how long, and the range of the second byte (which excludes
// overlong forms, surrogates and what lies above U+10FFFF).
static size_t lead(unsigned char first, unsigned char *low, unsigned char *high) {
    *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

utf8_status utf8_read(const char *at, size_t size, uint32_t *code, size_t *length) {
    unsigned char first = (unsigned char)at[0], low, high;
    size_t wanted = lead(first, &low, &high);
    *code = 0xfffd;
    *length = 1;
    if (wanted == 0) {
        return UTF8_INVALID;
    }
    uint32_t value = wanted == 1 ? first : first & (0x7fu >> wanted);
    for (size_t i = 1; i < wanted; i++) {
        if (i == size) {
            *length = i;
            return UTF8_INCOMPLETE;
        }
        unsigned char next = (unsigned char)at[i];
        if (next < low || next > high) {
            *length = i;
            return UTF8_INVALID;
        }
        value = value << 6 | (next & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *code = value;
    *length = wanted;
    return UTF8_VALID;
}

size_t utf8_write(char out[3], uint32_t code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    out[0] = (char)(0xe0 | code >> 12);
    out[1] = (char)(0x80 | (code >> 6 & 0x3f));
    out[2] = (char)(0x80 | (code & 0x3f));
    return 3;
}

static int within(const uint32_t (*ranges)[2], size_t count, uint32_t code) {
    size_t first = 0;
    while (count > 0) {
        size_t half = count / 2;
        if (code > ranges[first + half][1]) {
            first += half + 1;
            count -= half + 1;
        } else if (code < ranges[first + half][0]) {
            count = half;
        } else {
            return 1;
        }
    }
    return 0;
}

#define WITHIN(ranges, code) within(ranges, sizeof(ranges) / sizeof(ranges)[0], code)

unicode_class unicode_classify(uint32_t code) {
    if (code < 0x80) {
        if ((code | 0x20) >= 'a' && (code | 0x20) <= 'z') {
            return CLASS_LETTER;
        }
        if (code >= '0' && code <= '9') {
            return CLASS_NUMERIC;
        }
        return code == ' ' || (code >= '\t' && code <= '\r') ? CLASS_SPACE : CLASS_OTHER;
    }
    if (WITHIN(unicode_letters, code)) {
        return CLASS_LETTER;
    }
    if (WITHIN(unicode_numerics, code)) {
        return CLASS_NUMERIC;
    }
    return WITHIN(unicode_spaces, code) ? CLASS_SPACE : CLASS_OTHER;
}
