// SPDX-License-Identifier: Apache-2.0
//
// The primitives of simd.h against one-lane definitions in plain C, on bit patterns of every kind.
// Results must be equal to the bit; only which NaN an arithmetic operation gives is left open.

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu_test.h"
#include "simd_probe.h"

enum { N = 16 * 1024 };

static float a[N], b[N], c[N], out[N];
static bolide__isa current;

static int same(float x, float y) {
    return bits_of(x) == bits_of(y) || (isnan(x) && isnan(y));
}

/* ---- one lane ----------------------------------------------------------------------------- */

static float truth1(int condition) {
    return float_of(condition ? 1u : 0u);
}
static float min1(float x, float y) {
    return x < y ? x : y;
}
static float max1(float x, float y) {
    return x > y ? x : y;
}
static float fma1(float x, float y, float z) {
    if (current == BOLIDE__BASELINE) {
        const volatile float product = x * y;
        return product + z;
    }
    return fmaf(x, y, z);
}
static int32_t int1(float x) {
    return x >= -2147483648.0f && x < 2147483648.0f ? (int32_t)x : INT32_MIN;
}

static float float_lane(int id, float x, float y, float z) {
    switch (id) {
    case PROBE_ADD:
        return x + y;
    case PROBE_SUB:
        return x - y;
    case PROBE_MUL:
        return x * y;
    case PROBE_DIV:
        return x / y;
    case PROBE_SQRT:
        return sqrtf(x);
    case PROBE_RSQRT:
        return 1.0f / sqrtf(x);
    case PROBE_FMA:
        return fma1(x, y, z);
    case PROBE_FNMA:
        return fma1(-x, y, z);
    case PROBE_MIN:
        return min1(x, y);
    case PROBE_MAX:
        return max1(x, y);
    case PROBE_MIN_NAN:
        return isnan(x) || isnan(y) ? NAN : min1(x, y);
    case PROBE_MAX_NAN:
        return isnan(x) || isnan(y) ? NAN : max1(x, y);
    case PROBE_CLAMP:
        return isnan(x) ? x : x < -2.0f ? -2.0f : x > 3.0f ? 3.0f : x;
    case PROBE_ABS:
        return float_of(bits_of(x) & 0x7FFFFFFFu);
    case PROBE_NEG:
        return float_of(bits_of(x) ^ 0x80000000u);
    case PROBE_COPYSIGN:
        return float_of((bits_of(x) & 0x7FFFFFFFu) | (bits_of(y) & 0x80000000u));
    case PROBE_ROUND:
        return nearbyintf(x);
    case PROBE_FLOOR:
        return floorf(x);
    case PROBE_SELECT:
        return x < y ? x : z;
    default:
        return 0.0f;
    }
}

static float truth_lane(int id, float x, float y) {
    const int32_t i = (int32_t)bits_of(x), j = (int32_t)bits_of(y);
    switch (id) {
    case PROBE_LT:
        return truth1(x < y);
    case PROBE_LE:
        return truth1(x <= y);
    case PROBE_GT:
        return truth1(x > y);
    case PROBE_GE:
        return truth1(x >= y);
    case PROBE_EQ:
        return truth1(x == y);
    case PROBE_ISNAN:
        return truth1(x != x);
    case PROBE_IEQ:
        return truth1(i == j);
    case PROBE_IGT:
        return truth1(i > j);
    case PROBE_IGE:
        return truth1(i >= j);
    case PROBE_ILE:
        return truth1(i <= j);
    default:
        return truth1(bits_of(x) > bits_of(y));
    }
}

static uint32_t int_lane(int id, uint32_t i, uint32_t j) {
    switch (id) {
    case PROBE_IADD:
        return i + j;
    case PROBE_ISUB:
        return i - j;
    case PROBE_IMUL:
    case PROBE_UMULLO:
        return i * j;
    case PROBE_IAND:
        return i & j;
    case PROBE_IOR:
        return i | j;
    case PROBE_IXOR:
        return i ^ j;
    case PROBE_SHL7:
        return i << 7;
    case PROBE_SHR7:
        return i >> 7;
    case PROBE_SAR7:
        return (uint32_t)((int32_t)i >> 7);
    case PROBE_IMIN:
        return (int32_t)i < (int32_t)j ? i : j;
    case PROBE_IMAX:
        return (int32_t)i > (int32_t)j ? i : j;
    case PROBE_UMULHI:
        return (uint32_t)((uint64_t)i * j >> 32);
    case PROBE_TO_I32:
        return (uint32_t)int1(float_of(i));
    case PROBE_TO_I32_ROUND:
        return (uint32_t)int1(nearbyintf(float_of(i)));
    case PROBE_FROM_I32:
        return bits_of((float)(int32_t)i);
    default: { /* PROBE_UNIT: two roundings, of the conversion and of the sum */
        const volatile float scaled = (float)i * 0x1p-32f;
        return bits_of(scaled + 0x1p-33f);
    }
    }
}

/* Lane k of 16, for what moves or combines lanes. */
static float lanes(int id, const float *x, int k) {
    float t[16];
    memcpy(t, x, sizeof t);
    switch (id) {
    case PROBE_SHIFT1:
        return k >= 1 ? x[k - 1] : 0.0f;
    case PROBE_SHIFT2:
        return k >= 2 ? x[k - 2] : 0.0f;
    case PROBE_SHIFT4:
        return k >= 4 ? x[k - 4] : 0.0f;
    case PROBE_SHIFT8:
        return k >= 8 ? x[k - 8] : 0.0f;
    case PROBE_SWAP_PAIRS:
        return x[k ^ 1];
    case PROBE_DUP_EVEN:
        return x[k & ~1];
    case PROBE_DUP_ODD:
        return x[k | 1];
    case PROBE_SCAN:
        for (int step = 1; step < 16; step *= 2)
            for (int i = 15; i >= 0; i--)
                t[i] = t[i] + (i >= step ? t[i - step] : 0.0f);
        return t[k];
    case PROBE_SUM:
        for (int step = 8; step > 0; step /= 2)
            for (int i = 0; i < step; i++)
                t[i] = t[i] + t[i + step];
        return t[0];
    default:
        for (int i = 1; i < 16; i++) {
            if (isnan(x[i]) || isnan(t[0]))
                t[0] = NAN;
            else if (id == PROBE_HMAX ? x[i] > t[0] : x[i] < t[0])
                t[0] = x[i];
        }
        return t[0];
    }
}

static float int_reduce(int id, const float *x) {
    uint32_t sum = 0;
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (int i = 0; i < 16; i++) {
        const int32_t v = (int32_t)bits_of(x[i]);
        sum += (uint32_t)v;
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    return float_of(id == PROBE_ISUM ? sum : (uint32_t)(id == PROBE_IHMAX ? most : least));
}

static float expected(int id, int n) {
    const int first = n & ~15;
    if (id >= PROBE_LT && id <= PROBE_ISNAN)
        return truth_lane(id, a[n], b[n]);
    if (id >= PROBE_IEQ && id <= PROBE_UGT)
        return truth_lane(id, a[n], b[n]);
    if (id <= PROBE_SELECT)
        return float_lane(id, a[n], b[n], c[n]);
    if (id >= PROBE_SUM && id <= PROBE_DUP_ODD)
        return lanes(id, a + first, n - first);
    if (id >= PROBE_ISUM && id <= PROBE_IHMIN)
        return int_reduce(id, a + first);
    return float_of(int_lane(id, bits_of(a[n]), bits_of(b[n])));
}

/* ---- the tests ---------------------------------------------------------------------------- */

static float special(void) {
    static const uint32_t values[] = {
        0,          0x80000000, 1,          0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000,
        0xBF800000, 0x3F000000, 0xBF000000, 0x3FC00000, 0xC0200000, 0x4B000000, 0xCB000001,
        0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
        0xFF800000, 0x7FC00000, 0x7FA00001, 0xFFC12345, 0x4F7FFFFF, 0x4AFFFFFF, 0xCAFFFFFF};
    return float_of(values[random_u32() % (sizeof values / sizeof values[0])]);
}

/* A third bit patterns, a third moderate numbers, a third special values. */
static float any(void) {
    const uint32_t kind = random_u32() % 3;
    return kind == 0 ? random_bits() : kind == 1 ? random_float(-8.0f, 8.0f) : special();
}

static void test_lanes(bolide__isa isa) {
    static const char *const names[] = {
#define PROBE_NAME(name, expression) #name,
        PROBES(PROBE_NAME)};
    current = isa;
    for (int id = 0; id < PROBE_COUNT; id++) {
        if ((id >= PROBE_TO_BF16 && id <= PROBE_TO_E5M2) || id > PROBE_UNIT)
            continue;
        int wrong = 0, at = 0;
        BOLIDE_CPU_PICK(probe)(id, a, b, c, out, N);
        for (int n = 0; n < N; n++) {
            if (!same(out[n], expected(id, n)) && wrong++ == 0)
                at = n;
        }
        expect(wrong == 0, "%s %s: %d lanes, first %a (%08x) of %a %a %a; expected %a",
               bolide__isa_name(isa), names[id], wrong, out[at], bits_of(out[at]), a[at], b[at],
               c[at], expected(id, at));
    }
}

static void test_moves(bolide__isa isa) {
    float x[256], y[256];
    int ok[3] = {1, 1, 1};
    for (int i = 0; i < 256; i++)
        x[i] = random_bits();
    BOLIDE_CPU_PICK(probe_shapes)(SHAPE_TRANSPOSE, x, y, 0);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            ok[0] &= bits_of(y[16 * i + j]) == bits_of(x[16 * j + i]);
    BOLIDE_CPU_PICK(probe_shapes)(SHAPE_DEINTERLEAVE, x, y, 0);
    for (int i = 0; i < 32; i++)
        ok[1] &= bits_of(y[i]) == bits_of(x[i < 16 ? 2 * i : 2 * (i - 16) + 1]);
    BOLIDE_CPU_PICK(probe_shapes)(SHAPE_INTERLEAVE, x, y, 0);
    for (int i = 0; i < 32; i++)
        ok[2] &= bits_of(y[i]) == bits_of(x[i / 2 + 16 * (i % 2)]);
    expect(ok[0], "%s transpose", bolide__isa_name(isa));
    expect(ok[1], "%s deinterleave", bolide__isa_name(isa));
    expect(ok[2], "%s interleave", bolide__isa_name(isa));
}

/* Sixteen sums at once have the bits of each alone. */
static void test_sum16(bolide__isa isa) {
    float x[256], y[32];
    int ok = 1;
    for (int i = 0; i < 256; i++)
        x[i] = random_float(-1.0f, 1.0f);
    BOLIDE_CPU_PICK(probe_shapes)(SHAPE_SUM16, x, y, 0);
    for (int i = 0; i < 16; i++)
        ok &= bits_of(y[i]) == bits_of(y[16 + i]);
    expect(ok, "%s sum16", bolide__isa_name(isa));
}

static void test_split(bolide__isa isa) {
    float x[8], y[16];
    int ok = 1;
    for (int i = 0; i < 8; i++)
        x[i] = random_bits();
    BOLIDE_CPU_PICK(probe_shapes)(SHAPE_SPLIT, x, y, 0);
    for (int i = 0; i < 8; i++)
        ok &=
            bits_of(y[i]) == bits_of(x[i]) << 16 && bits_of(y[8 + i]) == (bits_of(x[i]) & ~0xFFFFu);
    expect(ok, "%s bf16_load_split", bolide__isa_name(isa));
}

static int compress_ok(int shape, uint32_t bits, const float *x) {
    float y[32];
    int count = 0, ok = 1;
    for (int i = 0; i < 32; i++)
        y[i] = float_of(0xABCD0000u + (uint32_t)i);
    BOLIDE_CPU_PICK(probe_shapes)(shape, x, y, bits);
    for (int i = 0; i < 16; i++)
        if (bits >> i & 1u)
            ok &= bits_of(y[count++]) == bits_of(x[i]);
    for (int i = count; i < 31; i++)
        ok &= bits_of(y[i]) == 0xABCD0000u + (uint32_t)i;
    return ok && y[31] == (float)count;
}

static int masked_memory_ok(uint32_t bits, const float *x) {
    float y[32];
    int ok = 1;
    BOLIDE_CPU_PICK(probe_shapes)(SHAPE_LOAD_MASK, x, y, bits);
    for (int i = 0; i < 32; i++)
        ok &= bits_of(y[i]) == (bits >> (i % 16) & 1u ? bits_of(x[i % 16]) : 0u);
    for (int i = 0; i < 32; i++)
        y[i] = float_of(0xABCD0000u + (uint32_t)i);
    BOLIDE_CPU_PICK(probe_shapes)(SHAPE_STORE_MASK, x, y, bits);
    for (int i = 0; i < 32; i++)
        ok &= bits_of(y[i]) ==
              (bits >> (i % 16) & 1u ? bits_of(x[i % 16]) : 0xABCD0000u + (uint32_t)i);
    return ok;
}

static int mask_words_ok(uint32_t bits) {
    const uint32_t p = bits & 0xFFFFu, q = bits >> 16;
    float y[16];
    BOLIDE_CPU_PICK(probe_shapes)(SHAPE_MASKS, NULL, y, bits);
    const uint32_t want[] = {p & q,
                             p | q,
                             ~p & 0xFFFFu,
                             p != 0,
                             p == 0xFFFFu,
                             (uint32_t)__builtin_popcount(p),
                             p ? (uint32_t)__builtin_ctz(p) : 16u};
    for (int i = 0; i < 7; i++)
        if (y[i] != (float)want[i])
            return 0;
    return 1;
}

static void test_masks(bolide__isa isa) {
    float x[16], y[32];
    int compress = 1, words = 1, memory = 1, gather = 1, range = 1, doubles = 1;
    for (int round = 0; round < 500; round++) {
        const uint32_t bits = round == 0 ? 0 : round == 1 ? ~0u : random_u32();
        for (int i = 0; i < 16; i++)
            x[i] = random_bits();
        compress &= compress_ok(SHAPE_COMPRESS, bits & 0xFFFFu, x);
        compress &= compress_ok(SHAPE_COMPRESS_I32, bits & 0xFFFFu, x);
        words &= mask_words_ok(bits);
        memory &= masked_memory_ok(bits & 0xFFFFu, x);
        for (int masked = 0; masked < 2; masked++) {
            BOLIDE_CPU_PICK(probe_shapes)(masked ? SHAPE_GATHER_MASK : SHAPE_GATHER, x, y, bits);
            for (int i = 0; i < 16; i++)
                gather &=
                    bits_of(y[i]) == (masked && !(bits >> i & 1u) ? 0u : bits_of(x[7 * i & 15]));
        }
        const int first = (int)(bits % 21u) - 2, end = (int)((bits >> 8) % 21u) - 2;
        uint32_t want = 0;
        for (int i = 0; i < 16; i++)
            want |= (uint32_t)(i >= first && i < end) << i;
        BOLIDE_CPU_PICK(probe_shapes)
        (SHAPE_RANGE, NULL, y, (uint32_t)(uint8_t)first | (uint32_t)(uint8_t)end << 8);
        range &= y[0] == (float)want;
        for (int i = 0; i < 16; i++)
            x[i] = (float)i + 1.5f;
        BOLIDE_CPU_PICK(probe_shapes)(SHAPE_LOAD_F64, x, y, bits % 17u);
        for (uint32_t i = 0; i < 16; i++)
            doubles &= y[i] == (i < bits % 17u ? x[i] : 0.0f);
    }
    expect(compress, "%s compress_store", bolide__isa_name(isa));
    expect(words, "%s mask words", bolide__isa_name(isa));
    expect(memory, "%s masked load and store", bolide__isa_name(isa));
    expect(gather, "%s gathers", bolide__isa_name(isa));
    expect(range, "%s mask_range", bolide__isa_name(isa));
    expect(doubles, "%s f64_load_n", bolide__isa_name(isa));
}

/* Pieces of n < 16 elements that end, then begin, at a page that cannot be touched. */
static void test_tails(bolide__isa isa) {
    static const int64_t dtypes[] = {BOLIDE_F32,     BOLIDE_F16, BOLIDE_BF16, BOLIDE_F8_E4M3FN,
                                     BOLIDE_F8_E5M2, BOLIDE_I8,  BOLIDE_U8,   BOLIDE_I32};
    static const int64_t sizes[] = {4, 2, 2, 1, 1, 1, 1, 4};
    const int64_t page = sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, (size_t)(6 * page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *in = map + page, *to = map + 4 * page;
    int ok = map != MAP_FAILED && mprotect(in, (size_t)page, PROT_READ | PROT_WRITE) == 0 &&
             mprotect(to, (size_t)page, PROT_READ | PROT_WRITE) == 0;
    expect(ok, "pages for the tails");
    for (int d = 0; ok && d < 8; d++) {
        int good = 1;
        for (int64_t n = 0; n <= 16; n++) {
            for (int at_end = 0; at_end < 2; at_end++) {
                const int64_t bytes = n * sizes[d], shift = at_end ? page - bytes : 0;
                /* Of an i32 only the lowest byte is set: it has to fit into an f32. */
                for (int64_t i = 0; i < page; i++) {
                    in[i] = (char)(dtypes[d] == BOLIDE_I32 && i % 4 ? 0 : i * 7 % 60);
                    to[i] = (char)0xA5;
                }
                BOLIDE_CPU_PICK(probe_convert)(in + shift, dtypes[d], to + shift, dtypes[d], n, 17);
                for (int64_t i = 0; i < page; i++) {
                    const int inside = i >= shift && i < shift + bytes;
                    good &= to[i] == (inside ? in[i] : (char)0xA5);
                }
            }
        }
        expect(good, "%s tails of dtype %d", bolide__isa_name(isa), d);
    }
    if (map != MAP_FAILED)
        munmap(map, (size_t)(6 * page));
}

static void test_all(bolide__isa isa) {
    test_lanes(isa);
    test_moves(isa);
    test_sum16(isa);
    test_split(isa);
    test_masks(isa);
    test_tails(isa);
}

void test_simd(void) {
    for (int n = 0; n < N; n++) {
        a[n] = any();
        b[n] = random_u32() % 4 == 0 ? a[n] : any();
        c[n] = any();
    }
    /* Groups without NaN, so that the reductions have something to say. */
    for (int n = 0; n < N / 2; n++)
        a[n] = random_float(-100.0f, 100.0f);
    on_each_isa(test_all);
}
