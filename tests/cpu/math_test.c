// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions against libm in double: the largest error in units in the last place over
// the range, limits, equal bits on the sets with FMA; angles of rotary positions; known answers of
// Philox.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_test.h"
#include "simd_probe.h"

enum { N = 16 * 2048, ROUNDS = 6 };

static double exp_neg_ref(double x) {
    return x < -86.6 ? 0.0 : exp(x);
}
static double exp2_neg_ref(double x) {
    return x < -125.0 ? 0.0 : exp2(x);
}
static double sigmoid_ref(double x) {
    return 1.0 / (1.0 + exp(-x));
}
static double silu_ref(double x) {
    return x / (1.0 + exp(-x));
}
static double gelu_ref(double x) {
    return 0.5 * x * erfc(-x * sqrt(0.5));
}
static double gelu_tanh_ref(double x) {
    return x / (1.0 + exp(-2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/* Largest errors allowed in ulp; slack is an absolute error that also counts as right. */
typedef struct function {
    const char *name;
    int id;
    double (*reference)(double);
    float lo, hi;
    int by_exponent; /* arguments spread over all binades of the range instead of evenly */
    double ulp, slack;
    float at_minus, at_plus, at_zero; /* limits at -inf, +inf, 0 */
} function;

static const function functions[] = {
    {"exp", PROBE_EXP, exp, -104, 88.7f, 0, 1.5, 0, 0, INFINITY, 1},
    {"exp2", PROBE_EXP2, exp2, -150, 127.9f, 0, 1.5, 0, 0, INFINITY, 1},
    {"exp small", PROBE_EXP, exp, -1, 1, 1, 1.5, 0, 0, INFINITY, 1},
    {"exp_neg", PROBE_EXP_NEG, exp_neg_ref, -87, 0, 0, 2, 0, 0, NAN, 1},
    {"exp2_neg", PROBE_EXP2_NEG, exp2_neg_ref, -126, 0, 0, 2, 0, 0, NAN, 1},
    {"log", PROBE_LOG, log, 0, 3e38f, 1, 2, 0, NAN, INFINITY, -INFINITY},
    {"log near 1", PROBE_LOG, log, 0.5f, 2, 0, 2, 0, NAN, INFINITY, -INFINITY},
    {"log2", PROBE_LOG2, log2, 0, 3e38f, 1, 2, 0, NAN, INFINITY, -INFINITY},
    {"sin", PROBE_SIN, sin, -7, 7, 0, 2, 1e-7, NAN, NAN, 0},
    {"sin far", PROBE_SIN, sin, -1e9f, 1e9f, 1, 2, 1e-7, NAN, NAN, 0},
    {"cos", PROBE_COS, cos, -7, 7, 0, 2, 1e-7, NAN, NAN, 1},
    {"cos far", PROBE_COS, cos, -1e9f, 1e9f, 1, 2, 1e-7, NAN, NAN, 1},
    {"tanh", PROBE_TANH, tanh, -10, 10, 0, 2, 0, -1, 1, 0},
    {"tanh small", PROBE_TANH, tanh, -1, 1, 1, 2, 0, -1, 1, 0},
    {"sigmoid", PROBE_SIGMOID, sigmoid_ref, -87, 30, 0, 3, 0, 0, 1, 0.5f},
    {"erf", PROBE_ERF, erf, -5, 5, 0, 2, 0, -1, 1, 0},
    {"erf small", PROBE_ERF, erf, -1, 1, 1, 2, 0, -1, 1, 0},
    {"erfc", PROBE_ERFC, erfc, -5, 9, 0, 5, 0, 2, 0, 1},
    {"silu", PROBE_SILU, silu_ref, -85, 100, 0, 4, 0, -0.0f, INFINITY, 0},
    {"gelu", PROBE_GELU, gelu_ref, -12, 20, 0, 8, 0, -0.0f, INFINITY, 0},
    {"gelu_tanh", PROBE_GELU_TANH, gelu_tanh_ref, 0, 20, 0, 6, 0, -0.0f, INFINITY, 0},
    {"gelu_tanh tail", PROBE_GELU_TANH, gelu_tanh_ref, -9, 0, 0, 200, 0, -0.0f, INFINITY, 0},
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static float x[N], y[N];
static uint32_t hashes[FUNCTIONS];
static bolide__isa current;

static double error_ulp(float got, double want, double slack) {
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0.0 : 1e9;
    if ((double)got == want || fabs((double)got - want) <= slack)
        return 0.0;
    if (fabs(want) > 3.4028235677973366e38)
        return isinf(got) ? 0.0 : 1e9;
    int exponent;
    frexp(want, &exponent);
    const double unit = ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
    return fabs((double)got - want) / unit;
}

/* One generator with a fixed seed a function, so that every set sees the same arguments. */
static float argument(const function *f, uint64_t *s) {
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    const uint32_t u = (uint32_t)(*s >> 32);
    if (!f->by_exponent)
        return f->lo + (f->hi - f->lo) * ((float)(u >> 8) * 0x1p-24f);
    const float v = float_of(u % (bits_of(f->hi) + 1u));
    return f->lo < 0 && *s & 0x1000000u ? -v : v;
}

static void test_function(int which) {
    const function *f = &functions[which];
    double worst = 0;
    float worst_at = 0;
    uint32_t hash = 0x811C9DC5u;
    uint64_t s = 0x1234567u + (uint64_t)which;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            x[i] = argument(f, &s);
        BOLIDE_CPU_PICK(probe)(f->id, x, x, x, y, N);
        for (int i = 0; i < N; i++) {
            const double e = error_ulp(y[i], f->reference((double)x[i]), f->slack);
            hash = (hash ^ bits_of(y[i])) * 0x01000193u;
            if (e > worst) {
                worst = e;
                worst_at = x[i];
            }
        }
    }
    const int baseline = current == BOLIDE__BASELINE;
    /* Without a fused product the square in the exponent of erfc keeps its rounding error. */
    const int square = f->id == PROBE_ERFC || f->id == PROBE_GELU;
    const double bound = f->ulp + (baseline ? (square ? 90.0 : 1.0) : 0.0);
    expect(worst <= bound, "%s %s: %.2f ulp at %a; at most %.1f", bolide__isa_name(current),
           f->name, worst, worst_at, bound);
    if (verbose)
        printf("%-9s %-10s %.3f ulp at %g\n", bolide__isa_name(current), f->name, worst, worst_at);
    if (current == BOLIDE__AVX2)
        hashes[which] = hash;
    if (current > BOLIDE__AVX2)
        expect(hash == hashes[which], "%s %s: other bits than avx2", bolide__isa_name(current),
               f->name);
}

static void test_limits(const function *f) {
    /* NaN of several kinds: no arithmetic on its bits may make a number of it. */
    static const uint32_t odd_nans[4] = {0xFFFFFFFFu, 0x7FC00001u, 0x7F800001u, 0xFFC00123u};
    float in[8] = {-INFINITY, INFINITY, 0.0f, NAN};
    const float want[8] = {f->at_minus, f->at_plus, f->at_zero, NAN, NAN, NAN, NAN, NAN};
    memcpy(in + 4, odd_nans, sizeof odd_nans);
    for (int i = 0; i < 16; i++)
        x[i] = in[i % 8];
    BOLIDE_CPU_PICK(probe)(f->id, x, x, x, y, 16);
    for (int i = 0; i < 8; i++) {
        if (i == 1 && (f->id == PROBE_EXP_NEG || f->id == PROBE_EXP2_NEG))
            continue; /* not in the domain */
        const int ok = isnan(want[i]) ? isnan(y[i]) : y[i] == want[i];
        expect(ok, "%s %s(%g): expected %g; got %g", bolide__isa_name(current), f->name, in[i],
               want[i], y[i]);
    }
}

static void test_edges(void) {
    static const struct {
        int id;
        float x, want;
    } edges[] = {
        {PROBE_EXP, 88.8f, INFINITY},
        {PROBE_EXP, 3e38f, INFINITY},
        {PROBE_EXP, -104.5f, 0},
        {PROBE_EXP2, 128, INFINITY},
        {PROBE_EXP2, 127, 0x1p127f},
        {PROBE_EXP2, -149, 0x1p-149f},
        {PROBE_EXP2, -151, 0},
        {PROBE_EXP2, -1e30f, 0},
        {PROBE_LOG, -1, NAN},
        {PROBE_LOG, -0.0f, -INFINITY},
        {PROBE_LOG2, 0x1p-149f, -149},
        {PROBE_LOG2, 8, 3},
        {PROBE_LOG, 1, 0},
        {PROBE_EXP_NEG, -1e30f, 0},
        {PROBE_EXP2_NEG, -1, 0.5f},
        {PROBE_TANH, 100, 1},
        {PROBE_SILU, -1e30f, -0.0f},
        {PROBE_GELU, -1e30f, -0.0f},
        {PROBE_GELU_TANH, -1e30f, -0.0f},
    };
    for (size_t e = 0; e < sizeof edges / sizeof edges[0]; e++) {
        for (int i = 0; i < 16; i++)
            x[i] = edges[e].x;
        BOLIDE_CPU_PICK(probe)(edges[e].id, x, x, x, y, 16);
        const int ok = isnan(edges[e].want) ? isnan(y[3]) : y[3] == edges[e].want;
        expect(ok, "%s edge %zu at %g: expected %g; got %g", bolide__isa_name(current), e,
               edges[e].x, edges[e].want, y[3]);
    }
}

static void test_angles(void) {
    static const double positions[] = {0, 1, 2, 1000, 131071, 524287, 1048575, 1048576, 16777216};
    double worst = 0;
    for (size_t p = 0; p < sizeof positions / sizeof positions[0]; p++) {
        for (int base = 0; base < 4; base++) {
            double frequency[16];
            float s[16], c[16];
            for (int i = 0; i < 16; i++)
                frequency[i] = pow(10000.0, -(16 * base + i) / 64.0);
            BOLIDE_CPU_PICK(probe_angles)(positions[p], frequency, s, c);
            for (int i = 0; i < 16; i++) {
                const double es = fabs((double)s[i] - sin(positions[p] * frequency[i]));
                const double ec = fabs((double)c[i] - cos(positions[p] * frequency[i]));
                worst = es > worst ? es : worst;
                worst = ec > worst ? ec : worst;
            }
        }
    }
    expect(worst <= 1.5e-7, "%s angles: off by %g", bolide__isa_name(current), worst);
}

static void test_philox(void) {
    /* The vectors published with the generator; the counter is (block, row), the key the seed. */
    static const struct {
        uint64_t seed, row, block;
        uint32_t want[4];
    } known[] = {
        {0, 0, 0, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}},
        {~0ull, ~0ull, ~0ull, {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}},
        {0x299F31D0A4093822u,
         0x0370734413198A2Eu,
         0x85A308D3243F6A88u,
         {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}},
    };
    for (int k = 0; k < 3; k++) {
        uint32_t out[128];
        BOLIDE_CPU_PICK(probe_philox)(known[k].seed, known[k].row, known[k].block, out);
        int ok = 1;
        for (int w = 0; w < 4; w++)
            ok &= out[16 * w] == known[k].want[w];
        expect(ok, "%s philox vector %d", bolide__isa_name(current), k);
        /* A draw's offset is four times the block: the other blocks are past its range. */
        if (k == 0)
            expect(memcmp(out, out + 64, 256) == 0, "%s philox lanes equal draws, vector %d",
                   bolide__isa_name(current), k);
    }
    uint32_t out[128];
    BOLIDE_CPU_PICK(probe_philox)(7, 3, 0xFFFFFFF8u, out);
    expect(memcmp(out, out + 64, 256) == 0, "%s philox carry", bolide__isa_name(current));
}

static void test_all(bolide__isa isa) {
    current = isa;
    for (int f = 0; f < FUNCTIONS; f++) {
        test_function(f);
        test_limits(&functions[f]);
    }
    test_edges();
    test_angles();
    test_philox();
}

void test_math(void) {
    on_each_isa(test_all);
}
