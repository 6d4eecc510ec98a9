// SPDX-License-Identifier: Apache-2.0
//
// Dtypes by bit, DLPack triple and name, from one list; and the contiguity test.

#include "core/tensor.h"

#include <string.h>

#include "core/dtype_bit.h"

typedef struct dtype_line {
    const char *name;
    const char *other[3]; /* further spellings that parsing accepts */
    bolide_dtype dtype;
} dtype_line;

/* In the order of the bits. Codes are DLPack's DLDataTypeCode. */
static const dtype_line lines[] = {
    {"f64", {"float64", "fp64", NULL}, {2, 64, 1}},
    {"f32", {"float32", "fp32", "float"}, {2, 32, 1}},
    {"f16", {"float16", "fp16", "half"}, {2, 16, 1}},
    {"bf16", {"bfloat16", NULL, NULL}, {4, 16, 1}},
    {"f8_e4m3fn", {"float8_e4m3fn", "e4m3", "f8_e4m3"}, {10, 8, 1}},
    {"f8_e5m2", {"float8_e5m2", "e5m2", NULL}, {12, 8, 1}},
    {"f8_e8m0", {"float8_e8m0fnu", "e8m0", NULL}, {14, 8, 1}},
    {"f4_e2m1", {"float4_e2m1fn_x2", "e2m1", NULL}, {17, 4, 1}},
    {"bool", {NULL, NULL, NULL}, {6, 8, 1}},
    {"u8", {"uint8", NULL, NULL}, {1, 8, 1}},
    {"i8", {"int8", NULL, NULL}, {0, 8, 1}},
    {"u16", {"uint16", NULL, NULL}, {1, 16, 1}},
    {"i16", {"int16", NULL, NULL}, {0, 16, 1}},
    {"u32", {"uint32", NULL, NULL}, {1, 32, 1}},
    {"i32", {"int32", NULL, NULL}, {0, 32, 1}},
    {"u64", {"uint64", NULL, NULL}, {1, 64, 1}},
    {"i64", {"int64", NULL, NULL}, {0, 64, 1}},
};

enum { LINES = sizeof lines / sizeof lines[0] };

bolide_dtype bolide_dtype_of(int64_t bit) {
    for (int i = 0; i < LINES; i++) {
        if (bit == (int64_t)1 << i)
            return lines[i].dtype;
    }
    return (bolide_dtype){0, 0, 0};
}

const uint8_t bolide__bit_by_code[18][5] = {
    [0] = {0, 11, 13, 15, 17}, [1] = {0, 10, 12, 14, 16}, [2] = {0, 0, 3, 2, 1},
    [4] = {0, 0, 4, 0, 0},     [6] = {0, 9, 0, 0, 0},     [10] = {0, 5, 0, 0, 0},
    [12] = {0, 6, 0, 0, 0},    [14] = {0, 7, 0, 0, 0},    [17] = {8, 0, 0, 0, 0},
};

int64_t bolide_dtype_bit(bolide_dtype d) {
    return bolide__quick_dtype_bit(d);
}

const char *bolide_dtype_name(int64_t bit) {
    for (int i = 0; i < LINES; i++) {
        if (bit == (int64_t)1 << i)
            return lines[i].name;
    }
    return "?";
}

int64_t bolide_dtype_parse(const char *name) {
    if (!name)
        return 0;
    for (int i = 0; i < LINES; i++) {
        if (strcmp(name, lines[i].name) == 0)
            return (int64_t)1 << i;
        for (int k = 0; k < 3 && lines[i].other[k]; k++) {
            if (strcmp(name, lines[i].other[k]) == 0)
                return (int64_t)1 << i;
        }
    }
    return 0;
}

bool bolide__is_contiguous(const bolide_tensor *t) {
    if (!t->strides || bolide__numel(t) == 0)
        return true;
    int64_t want = 1;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != want)
            return false;
        want *= t->shape[i];
    }
    return true;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

bool bolide__meets_itself(const bolide_tensor *t) {
    if (bolide__is_contiguous(t))
        return false;
    for (int32_t i = 0; i < t->ndim; i++) {
        for (int32_t k = i + 1; t->shape[i] > 1 && k < t->ndim; k++) {
            const int64_t a = t->strides[i], b = t->strides[k], c = common_divisor(a, b);
            /* |b/c| steps of one are |a/c| steps of the other. */
            if (t->shape[k] > 1 && c != 0 && (b < 0 ? -b : b) / c < t->shape[i] &&
                (a < 0 ? -a : a) / c < t->shape[k])
                return true;
        }
    }
    return false;
}
