// SPDX-License-Identifier: Apache-2.0
//
// Every floating dtype is a record (exponent bits, mantissa bits, bias, whether it has infinities),
// and one encoder and one decoder serve all of them. Whole tensors of 16-bit elements go through a
// table of all 65,536 values.

#include "numeric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct format {
    int bits, exponent, mantissa, bias;
    int infinities; /* 1: IEEE style; 0: no infinities, NaN is the code with all bits set */
    int nan;        /* 0: the dtype has neither */
} format;

static const format *format_of(int64_t dtype) {
    static const format f64 = {64, 11, 52, 1023, 1, 1}, f32 = {32, 8, 23, 127, 1, 1},
                        f16 = {16, 5, 10, 15, 1, 1}, bf16 = {16, 8, 7, 127, 1, 1},
                        e4m3 = {8, 4, 3, 7, 0, 1}, e5m2 = {8, 5, 2, 15, 1, 1},
                        e8m0 = {8, 8, 0, 127, 0, 1}, e2m1 = {4, 2, 1, 1, 0, 0};
    switch (dtype) {
    case BOLIDE_F64:
        return &f64;
    case BOLIDE_F32:
        return &f32;
    case BOLIDE_F16:
        return &f16;
    case BOLIDE_BF16:
        return &bf16;
    case BOLIDE_F8_E4M3FN:
        return &e4m3;
    case BOLIDE_F8_E5M2:
        return &e5m2;
    case BOLIDE_F8_E8M0:
        return &e8m0;
    case BOLIDE_F4_E2M1:
        return &e2m1;
    default:
        return NULL;
    }
}

int numeric_is_float(int64_t dtype) {
    return format_of(dtype) != NULL;
}

int numeric_bits(int64_t dtype) {
    return bolide_dtype_of(dtype).bits;
}

int64_t numeric_bytes(int64_t dtype, int64_t elems) {
    return (elems * numeric_bits(dtype) + 7) / 8;
}

/* A power of two without sign or zero: the code is its biased exponent. */
static double decode_e8m0(uint64_t code) {
    return code == 255 ? NAN : ldexp(1, (int)code - 127);
}

static uint64_t encode_e8m0(double value) {
    if (!(value > 0) || isinf(value))
        return 255;
    const double e = nearbyint(log2(value)) + 127;
    return (uint64_t)(e < 0 ? 0 : e > 254 ? 254 : e);
}

static double decode(const format *f, uint64_t code) {
    const int e_max = (1 << f->exponent) - 1;
    const int e = (int)(code >> f->mantissa) & e_max;
    const uint64_t m = code & ((UINT64_C(1) << f->mantissa) - 1);
    const double sign = code >> (f->bits - 1) & 1 ? -1 : 1;
    if (f->infinities && e == e_max)
        return m ? NAN : sign * INFINITY;
    if (!f->infinities && f->nan && e == e_max && m == (UINT64_C(1) << f->mantissa) - 1)
        return NAN;
    if (e == 0)
        return sign * ldexp((double)m, 1 - f->bias - f->mantissa);
    return sign * ldexp((double)(m + (UINT64_C(1) << f->mantissa)), e - f->bias - f->mantissa);
}

/* Largest finite code without its sign. */
static uint64_t largest(const format *f) {
    const uint64_t top = ((UINT64_C(1) << f->exponent) - 1) << f->mantissa;
    if (f->infinities)
        return top - 1;
    return top + (UINT64_C(1) << f->mantissa) - 1 - (uint64_t)f->nan;
}

/* The usual case, by the bits of the double: a size that is normal in f and below its largest. */
static int encode_normal(const format *f, double size, uint64_t *code) {
    const int drop = 52 - f->mantissa;
    uint64_t bits;
    memcpy(&bits, &size, sizeof bits);
    if ((int)(bits >> 52) - 1023 < 1 - f->bias)
        return 0;
    bits += (UINT64_C(1) << (drop - 1)) - 1 + (bits >> drop & 1); /* half to even */
    *code = (bits >> drop) - ((uint64_t)(1023 - f->bias) << f->mantissa);
    return *code < largest(f);
}

static uint64_t encode(const format *f, double value) {
    const uint64_t sign = (uint64_t)(signbit(value) != 0) << (f->bits - 1);
    const uint64_t top = ((UINT64_C(1) << f->exponent) - 1) << f->mantissa;
    const uint64_t nan = f->infinities ? top | UINT64_C(1) << (f->mantissa - 1)
                                       : top + (UINT64_C(1) << f->mantissa) - 1;
    if (isnan(value))
        return f->nan ? nan : 0;
    const double size = fabs(value);
    if (size == 0)
        return sign;
    uint64_t quick;
    if (encode_normal(f, size, &quick))
        return sign | quick;
    int e;
    (void)frexp(size, &e); /* size < 2^e */
    const int unit = (e - 1 < 1 - f->bias ? 1 - f->bias : e - 1) - f->mantissa;
    /* Whole units, rounded to even; a carry into the next exponent comes out right by itself. */
    const double units = isinf(size) ? 0 : nearbyint(ldexp(size, -unit));
    const double limit = decode(f, largest(f));
    if (isinf(size) || ldexp(units, unit) > limit) {
        if (f->infinities)
            return sign | top;
        return f->nan ? sign | nan : sign | largest(f);
    }
    /* The implicit bit of a normal number adds one to the exponent field below it. */
    const uint64_t field = (uint64_t)(unit + f->mantissa - (1 - f->bias));
    return sign | ((field << f->mantissa) + (uint64_t)units);
}

/* All values of the 16-bit dtypes, made at first use. */
static const double *table16(int64_t dtype) {
    static double *tables[2];
    double **t = &tables[dtype == BOLIDE_BF16];
    if (!*t) {
        *t = malloc(65536 * sizeof **t);
        if (!*t)
            abort();
        for (uint64_t i = 0; i < 65536; i++)
            (*t)[i] = decode(format_of(dtype), i);
    }
    return *t;
}

uint64_t numeric_load_bits(int64_t dtype, const void *data, int64_t index) {
    const char *p = data;
    const int bits = numeric_bits(dtype);
    if (bits == 4)
        return (uint64_t)(p[index / 2] >> (index % 2 * 4)) & 15;
    uint64_t code = 0;
    memcpy(&code, p + index * (bits / 8), (size_t)bits / 8);
    return code;
}

void numeric_store_bits(int64_t dtype, void *data, int64_t index, uint64_t code) {
    unsigned char *p = data;
    const int bits = numeric_bits(dtype);
    if (bits == 4) {
        const int shift = (int)(index % 2) * 4;
        p[index / 2] = (unsigned char)((p[index / 2] & ~(15 << shift)) | (int)(code << shift));
        return;
    }
    memcpy(p + index * (bits / 8), &code, (size_t)bits / 8);
}

double numeric_load(int64_t dtype, const void *data, int64_t index) {
    if (dtype == BOLIDE_F64)
        return ((const double *)data)[index];
    if (dtype == BOLIDE_F32)
        return (double)((const float *)data)[index];
    if (dtype == BOLIDE_F16 || dtype == BOLIDE_BF16)
        return table16(dtype)[((const uint16_t *)data)[index]];
    const uint64_t code = numeric_load_bits(dtype, data, index);
    return dtype == BOLIDE_F8_E8M0 ? decode_e8m0(code) : decode(format_of(dtype), code);
}

static uint64_t code_of(int64_t dtype, double value) {
    if (dtype == BOLIDE_F64) {
        uint64_t code;
        memcpy(&code, &value, sizeof code);
        return code;
    }
    if (dtype == BOLIDE_F32) {
        const float narrow = (float)value;
        uint32_t code;
        memcpy(&code, &narrow, sizeof code);
        return code;
    }
    return dtype == BOLIDE_F8_E8M0 ? encode_e8m0(value) : encode(format_of(dtype), value);
}

void numeric_store(int64_t dtype, void *data, int64_t index, double value) {
    numeric_store_bits(dtype, data, index, code_of(dtype, value));
}

int64_t numeric_load_int(int64_t dtype, const void *data, int64_t index) {
    const uint64_t code = numeric_load_bits(dtype, data, index);
    switch (dtype) {
    case BOLIDE_I8:
        return (int8_t)code;
    case BOLIDE_I16:
        return (int16_t)code;
    case BOLIDE_I32:
        return (int32_t)code;
    default:
        return (int64_t)code;
    }
}

void numeric_store_int(int64_t dtype, void *data, int64_t index, int64_t value) {
    numeric_store_bits(dtype, data, index, (uint64_t)value);
}

double numeric_round(double value, int64_t dtype) {
    if (!numeric_is_float(dtype))
        return nearbyint(value);
    uint64_t code = 0;
    numeric_store_bits(dtype, &code, 0, code_of(dtype, value));
    return numeric_load(dtype, &code, 0);
}

double numeric_ulp(int64_t dtype) {
    return ldexp(1, -format_of(dtype)->mantissa);
}

double numeric_smallest(int64_t dtype) {
    const format *f = format_of(dtype);
    return ldexp(1, 1 - f->bias - f->mantissa);
}

/* The finaliser of splitmix64 over a combination that keeps the three numbers apart. */
uint64_t numeric_mix(uint64_t seed, uint64_t stream, uint64_t index) {
    uint64_t z = seed * UINT64_C(0x9e3779b97f4a7c15) + stream * UINT64_C(0xd1b54a32d192ed03) +
                 index * UINT64_C(0x8cb92ba72f3d8dd7) + UINT64_C(0x2545f4914f6cdd1d);
    for (int round = 0; round < 2; round++) {
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
    }
    return z;
}

double numeric_uniform(uint64_t bits) {
    return ldexp((double)(bits >> 11), -53);
}

/* Box-Muller on two halves of one hash; 32 bits each reach 6.6 standard deviations. */
double numeric_normal(uint64_t bits) {
    const double u = ((double)(bits >> 32) + 0.5) / 4294967296.0;
    const double v = (double)(bits & 0xffffffff) / 4294967296.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
