// SPDX-License-Identifier: Apache-2.0
//
// A file is walked from its beginning for each key and tensor that is asked for; nothing is kept.
//
//     "GGUF" u32 version | u64 tensors | u64 values
//     values:   string key | u32 kind | value
//     tensors:  string name | u32 n | n u64 sizes, the fastest first | u32 type | u64 offset
//     padding to general.alignment (32), then the tensors' data
#include "reference_file.h"

#include <math.h>
#include <string.h>

// ---- numbers in the file -------------------------------------------------------------------

static uint64_t little(const unsigned char *at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = bytes; i > 0; i--) {
        value = value << 8 | at[i - 1];
    }
    return value;
}

static double single(uint32_t raw) {
    float value;
    memcpy(&value, &raw, sizeof value);
    return value;
}

static double half(const unsigned char *at) {
    unsigned raw = (unsigned)little(at, 2);
    unsigned exponent = raw >> 10 & 31, fraction = raw & 1023;
    double value = exponent == 0    ? ldexp(fraction, -24)
                   : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                    : ldexp(1024 + fraction, (int)exponent - 25);
    return raw & 0x8000 ? -value : value;
}

// ---- metadata ------------------------------------------------------------------------------

enum { FLOAT32 = 6, STRING = 8, ARRAY = 9, FLOAT64 = 12 };

// Bytes of a value by its kind; strings and arrays are walked.
static const size_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static size_t value_bytes(const unsigned char *at, uint32_t kind) {
    if (kind == STRING) {
        return 8 + (size_t)little(at, 8);
    }
    if (kind != ARRAY) {
        return widths[kind];
    }
    uint32_t element = (uint32_t)little(at, 4);
    uint64_t count = little(at + 4, 8);
    size_t bytes = 12;
    if (element != STRING && element != ARRAY) {
        return bytes + (size_t)count * widths[element];
    }
    for (uint64_t i = 0; i < count; i++) {
        bytes += value_bytes(at + bytes, element);
    }
    return bytes;
}

static double number(const unsigned char *at, uint32_t kind) {
    uint64_t raw = little(at, widths[kind]);
    double value = (double)raw;
    if (kind == FLOAT64) {
        memcpy(&value, &raw, sizeof value);
    }
    return kind == FLOAT32 ? single((uint32_t)raw) : value;
}

static bool is(const unsigned char *at, const char *text) {
    size_t length = strlen(text);
    return little(at, 8) == length && memcmp(at + 8, text, length) == 0;
}

// Where the value of `key` begins, or 0; *end is where the walk ended.
static size_t find(const reference_file *f, const char *key, uint32_t *kind, size_t *end) {
    size_t at = 24;
    for (uint64_t i = 0; i < f->n_values; i++) {
        bool found = key != NULL && is(f->bytes + at, key);
        at += value_bytes(f->bytes + at, STRING);
        *kind = (uint32_t)little(f->bytes + at, 4);
        at += 4;
        if (found) {
            return at;
        }
        at += value_bytes(f->bytes + at, *kind);
    }
    *end = at;
    return 0;
}

bool reference_file_number(const reference_file *f, const char *key, double *out) {
    uint32_t kind;
    size_t end, at = find(f, key, &kind, &end);
    if (at == 0 || kind == STRING || kind == ARRAY) {
        return false;
    }
    *out = number(f->bytes + at, kind);
    return true;
}

// ---- tensors -------------------------------------------------------------------------------

// Reads the head of a tensor at `at`, whose data begins at f->tensors + *offset; where the next
// one begins.
static size_t read_info(const reference_file *f, size_t at, reference_tensor *out,
                        uint64_t *offset) {
    const unsigned char *p = f->bytes + at + value_bytes(f->bytes + at, STRING);
    uint32_t n = (uint32_t)little(p, 4);
    out->columns = (size_t)little(p + 4, 8);
    out->rows = 1;
    for (uint32_t i = 1; i < n; i++) {
        out->rows *= (size_t)little(p + 4 + 8 * i, 8);
    }
    p += 4 + 8 * (size_t)n;
    out->type = (uint32_t)little(p, 4);
    *offset = little(p + 4, 8);
    return (size_t)(p + 12 - f->bytes);
}

bool reference_file_tensor(const reference_file *f, const char *name, reference_tensor *out) {
    size_t at = f->infos;
    for (uint64_t i = 0; i < f->n_tensors; i++) {
        bool found = is(f->bytes + at, name);
        uint64_t offset;
        at = read_info(f, at, out, &offset);
        out->data = f->bytes + f->tensors + offset;
        if (found) {
            return true;
        }
    }
    return false;
}

void reference_file_open(reference_file *f, const unsigned char *bytes) {
    uint32_t kind;
    double alignment = 32;
    *f = (reference_file){
        .bytes = bytes, .n_tensors = little(bytes + 8, 8), .n_values = little(bytes + 16, 8)};
    find(f, NULL, &kind, &f->infos);
    reference_file_number(f, "general.alignment", &alignment);
    size_t end = f->infos;
    for (uint64_t i = 0; i < f->n_tensors; i++) {
        reference_tensor unused;
        uint64_t offset;
        end = read_info(f, end, &unused, &offset);
    }
    f->tensors = (end + (size_t)alignment - 1) / (size_t)alignment * (size_t)alignment;
}

// ---- weights -------------------------------------------------------------------------------

// The formats, numbered as in the file, with the numbers and the bytes of a block.
enum { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q8_0 = 8, BF16 = 30 };

static size_t block_bytes(uint32_t type) {
    switch (type) {
    case F32:
        return 4;
    case Q4_0:
        return 18;
    case Q4_1:
        return 20;
    case Q8_0:
        return 34;
    default:
        return 2;
    }
}

// The low halves of 16 bytes come first, then their high halves.
static void four_bit(const unsigned char *packed, double scale, double offset, double *out) {
    for (int i = 0; i < 16; i++) {
        out[i] = scale * (packed[i] & 15) + offset;
        out[i + 16] = scale * (packed[i] >> 4) + offset;
    }
}

static void read_block(const unsigned char *at, uint32_t type, double *out) {
    switch (type) {
    case F32:
        *out = single((uint32_t)little(at, 4));
        break;
    case F16:
        *out = half(at);
        break;
    case BF16:
        *out = single((uint32_t)little(at, 2) << 16);
        break;
    case Q4_0:
        four_bit(at + 2, half(at), -8 * half(at), out);
        break;
    case Q4_1:
        four_bit(at + 4, half(at), half(at + 2), out);
        break;
    default:
        for (size_t j = 0; j < 32; j++) {
            out[j] = half(at) * (signed char)at[2 + j];
        }
        break;
    }
}

void reference_file_row(const reference_tensor *t, size_t index, double *out) {
    size_t elements = t->type == Q4_0 || t->type == Q4_1 || t->type == Q8_0 ? 32 : 1;
    size_t bytes = block_bytes(t->type);
    const unsigned char *at = t->data + index * (t->columns / elements) * bytes;
    for (size_t i = 0; i < t->columns; i += elements, at += bytes) {
        read_block(at, t->type, out + i);
    }
}
