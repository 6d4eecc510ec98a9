// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the CPU test share: counting, random numbers, the instruction sets at hand.

#ifndef TESTS_CPU_TEST_H
#define TESTS_CPU_TEST_H

#include <stdint.h>
#include <string.h>

#include "cpu/cpu.h"

/* Counts one check; prints a line if it failed. */
void expect(int ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts one check that cannot run here. */
void skip(const char *why);

/* Set by --verbose: prints what was measured, too. */
extern int verbose;

uint32_t random_u32(void);
/* Any bit pattern: NaN, denormals and infinities come up. */
float random_bits(void);
/* Uniform in [lo, hi). */
float random_float(float lo, float hi);

static inline uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Calls test once for each instruction set of the machine, with the set forced. */
void on_each_isa(void (*test)(bolide__isa isa));

void test_isa(void);
void test_simd(void);
void test_convert(void);
void test_math(void);
void test_parallel(void);
void test_limit(void);
void test_microkernel(void);
void bench_cpu(void);

#endif
