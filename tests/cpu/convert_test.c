// SPDX-License-Identifier: Apache-2.0
//
// Conversions of every dtype: all codes of the narrow ones, and for the way back the midpoints
// between neighbours, their own neighbours and random bit patterns. The reference works on values
// in double, not on bits.

#include <math.h>
#include <stdlib.h>

#include "cpu_test.h"
#include "simd_probe.h"

typedef struct format {
    const char *name;
    int64_t dtype;
    int bytes, fraction, bias, exponent_bits;
    int has_infinity; /* 0: the top codes are numbers but for the last, NaN */
    int saturates;
    uint32_t nan; /* stored for NaN, the payload apart */
} format;

static const format formats[] = {
    {"f16", BOLIDE_F16, 2, 10, 15, 5, 1, 0, 0},
    {"bf16", BOLIDE_BF16, 2, 7, 127, 8, 1, 0, 0},
    {"e4m3", BOLIDE_F8_E4M3FN, 1, 3, 7, 4, 0, 1, 0x7F},
    {"e5m2", BOLIDE_F8_E5M2, 1, 2, 15, 5, 1, 1, 0x7F},
};
enum { FORMATS = 4 };

static double decode(const format *f, uint32_t code) {
    const int width = 1 + f->exponent_bits + f->fraction;
    const int top = (1 << f->exponent_bits) - 1;
    const int exponent = (int)(code >> f->fraction) & top;
    const int fraction = (int)code & ((1 << f->fraction) - 1);
    const double sign = code >> (width - 1) & 1 ? -1.0 : 1.0;
    if (f->has_infinity && exponent == top)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (!f->has_infinity && exponent == top && fraction == (1 << f->fraction) - 1)
        return (double)NAN;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - f->bias - f->fraction);
    return sign * ldexp(fraction + (1 << f->fraction), exponent - f->bias - f->fraction);
}

/* What lies below infinity, or below the one NaN of a format without infinity. */
static double largest(const format *f) {
    const uint32_t end = 1u << (f->exponent_bits + f->fraction);
    return decode(f, f->has_infinity ? end - (1u << f->fraction) - 1u : end - 2u);
}

/* The value that x is stored as. */
static double nearest(const format *f, float x) {
    if (isnan(x))
        return (double)NAN;
    if (isinf(x))
        return f->saturates ? copysign(largest(f), x) : x;
    int exponent;
    frexp(x, &exponent);
    const int least = 1 - f->bias;
    const int unit = (exponent - 1 < least ? least : exponent - 1) - f->fraction;
    const double r = copysign(ldexp(nearbyint(ldexp(fabs((double)x), -unit)), unit), x);
    if (fabs(r) <= largest(f))
        return r;
    return copysign(f->saturates ? largest(f) : (double)INFINITY, x);
}

static int same_value(double x, double y) {
    return (isnan(x) && isnan(y)) || (x == y && signbit(x) == signbit(y));
}

static uint32_t code_at(const format *f, const uint8_t *p, int i) {
    return f->bytes == 1 ? p[i] : (uint32_t)p[2 * i] | (uint32_t)p[2 * i + 1] << 8;
}

enum { CHUNK = 65536 };
static uint8_t codes[2 * CHUNK];
static float values[CHUNK], first_values[FORMATS][CHUNK];

static void test_decode(bolide__isa isa, int which) {
    const format *f = &formats[which];
    const int count = f->bytes == 1 ? 256 : CHUNK;
    int wrong = 0, differs = 0;
    for (int i = 0; i < count; i++) {
        codes[f->bytes * i] = (uint8_t)i;
        if (f->bytes == 2)
            codes[2 * i + 1] = (uint8_t)(i >> 8);
    }
    for (int piece = 16; piece >= 5; piece -= 11) {
        memset(values, 0x55, sizeof values);
        BOLIDE_CPU_PICK(probe_convert)(codes, f->dtype, values, BOLIDE_F32, count, piece);
        for (int i = 0; i < count; i++)
            wrong += !same_value((double)values[i], decode(f, (uint32_t)i));
        if (isa == BOLIDE__BASELINE)
            memcpy(first_values[which], values, sizeof values);
        differs += memcmp(first_values[which], values, (size_t)count * 4) != 0;
    }
    expect(wrong == 0, "%s %s: %d codes read wrong", bolide__isa_name(isa), f->name, wrong);
    expect(differs == 0, "%s %s: codes read as other bits than on baseline", bolide__isa_name(isa),
           f->name);
}

/* Checks the conversion of values[0 .. CHUNK) and, on the first set, remembers the codes. */
static int encode_chunk(const format *f, uint32_t *hash) {
    int wrong = 0;
    BOLIDE_CPU_PICK(probe_convert)
    (values, BOLIDE_F32, codes, f->dtype, CHUNK, values[0] > 0 ? 16 : 13);
    for (int i = 0; i < CHUNK; i++) {
        const uint32_t code = code_at(f, codes, i);
        const double want = nearest(f, values[i]);
        wrong += !same_value(decode(f, code), want);
        if (isnan(want) && f->nan)
            wrong += code != f->nan;
        *hash = (*hash ^ code) * 0x01000193u;
    }
    return wrong;
}

static float neighbour(float x, int steps) {
    return float_of(bits_of(x) + (uint32_t)steps);
}

static void test_encode(bolide__isa isa, int which) {
    static uint32_t first_hash[FORMATS];
    const format *f = &formats[which];
    const uint32_t positive = 1u << (f->exponent_bits + f->fraction);
    uint32_t hash = 0x811C9DC5u;
    int wrong = 0;
    uint64_t mix = 88172645463325252u;
    /* Midpoints between positive codes, the codes themselves, and 2 patterns around each. */
    for (int step = -2; step <= 2; step++) {
        for (uint32_t i = 0; i < CHUNK; i++) {
            const uint32_t code = i / 2 % positive;
            const double low = decode(f, code);
            const double high = decode(f, code + 1 < positive ? code + 1 : code);
            const double mid = isfinite(low) && isfinite(high) ? (low + high) / 2 : largest(f);
            const float x = neighbour((float)(i % 2 ? mid : low), step);
            values[i] = i / 2 / positive % 2 ? -x : x;
        }
        wrong += encode_chunk(f, &hash);
    }
    /* Bit patterns; the same ones on each set. */
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < CHUNK; i++) {
            mix = mix * 6364136223846793005u + 1442695040888963407u;
            const uint32_t u = (uint32_t)(mix >> 32);
            /* Every other one in or near the range of the format. */
            const uint32_t near = (uint32_t)(127 - f->bias - 12) << 23;
            values[i] = float_of(i % 2 || f->bias == 127 ? u : near + u % (40u << 23));
        }
        wrong += encode_chunk(f, &hash);
    }
    if (isa == BOLIDE__BASELINE)
        first_hash[which] = hash;
    expect(wrong == 0, "%s %s: %d values stored wrong", bolide__isa_name(isa), f->name, wrong);
    expect(hash == first_hash[which], "%s %s: stored bits differ from baseline",
           bolide__isa_name(isa), f->name);
}

static void test_integers(bolide__isa isa) {
    static const float x[16] = {0.5f,    1.5f,   -0.5f,     -2.5f,   127.4f, 127.6f,
                                -128.6f, 300.0f, -1e30f,    1e30f,   255.5f, 2147483e3f,
                                42.0f,   NAN,    -INFINITY, INFINITY};
    static const int8_t want8[16] = {0,    2,   0,   -2,  127, 127, -128, 127,
                                     -128, 127, 127, 127, 42,  0,   -128, 127};
    static const uint8_t want_u8[16] = {0, 2,   0,   0,   127, 128, 0, 255,
                                        0, 255, 255, 255, 42,  0,   0, 255};
    int8_t i8[16];
    uint8_t u8[16];
    int32_t i32[16];
    float back[16];
    BOLIDE_CPU_PICK(probe_convert)(x, BOLIDE_F32, i8, BOLIDE_I8, 16, 16);
    BOLIDE_CPU_PICK(probe_convert)(x, BOLIDE_F32, u8, BOLIDE_U8, 16, 16);
    BOLIDE_CPU_PICK(probe_convert)(x, BOLIDE_F32, i32, BOLIDE_I32, 16, 16);
    expect(memcmp(i8, want8, 16) == 0, "%s store i8", bolide__isa_name(isa));
    expect(memcmp(u8, want_u8, 16) == 0, "%s store u8", bolide__isa_name(isa));
    int ok = i32[1] == 2 && i32[3] == -2 && i32[8] == INT32_MIN && i32[9] == INT32_MIN &&
             i32[13] == INT32_MIN && i32[12] == 42;
    expect(ok, "%s store i32", bolide__isa_name(isa));
    for (int signs = 0; signs < 2; signs++) {
        for (int i = 0; i < 256; i++)
            codes[i] = (uint8_t)i;
        BOLIDE_CPU_PICK(probe_convert)
        (codes, signs ? BOLIDE_I8 : BOLIDE_U8, values, BOLIDE_F32, 256, signs ? 16 : 7);
        ok = 1;
        for (int i = 0; i < 256; i++)
            ok &= values[i] == (float)(signs ? (int8_t)i : i);
        expect(ok, "%s load %s", bolide__isa_name(isa), signs ? "i8" : "u8");
    }
    BOLIDE_CPU_PICK(probe_convert)(i32, BOLIDE_I32, back, BOLIDE_F32, 16, 16);
    expect(back[12] == 42.0f && back[8] == -2147483648.0f, "%s load i32", bolide__isa_name(isa));
}

static void test_all(bolide__isa isa) {
    for (int f = 0; f < FORMATS; f++) {
        test_decode(isa, f);
        test_encode(isa, f);
    }
    test_integers(isa);
}

void test_convert(void) {
    on_each_isa(test_all);
}
