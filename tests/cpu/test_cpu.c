// SPDX-License-Identifier: Apache-2.0
//
// Tests of src/cpu: detection, the 16-lane vocabulary on every instruction set of the machine,
// parallel loops, limits. Prints a line for each failure and the counts at the end.
//
//     test_cpu [--verbose | --bench] [SEED]

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu_test.h"

int verbose;

static int passed, failed, skipped;

void expect(int ok, const char *format, ...) {
    if (ok) {
        passed++;
        return;
    }
    va_list list;
    va_start(list, format);
    printf("FAILED: ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
    failed++;
}

void skip(const char *why) {
    printf("skipped: %s\n", why);
    skipped++;
}

static uint64_t state = 0x9E3779B97F4A7C15u;

uint32_t random_u32(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

float random_bits(void) {
    return float_of(random_u32());
}

float random_float(float lo, float hi) {
    return lo + (hi - lo) * ((float)(random_u32() >> 8) * 0x1p-24f);
}

void on_each_isa(void (*test)(bolide__isa isa)) {
    const bolide__isa before = bolide__cpu_isa();
    for (int i = BOLIDE__BASELINE; i <= BOLIDE__AVX512; i++) {
        const bolide__isa isa = (bolide__isa)i;
        if (bolide__cpu_force_isa(isa))
            test(isa);
        else
            skip(bolide__isa_name(isa));
    }
    bolide__cpu_force_isa(before);
}

void test_isa(void) {
    const bolide__isa best = bolide__cpu_isa();
    expect(bolide__cpu_force_isa(BOLIDE__BASELINE), "every machine has baseline");
    expect(bolide__cpu_isa() == BOLIDE__BASELINE, "a forced set is in force");
    expect(!bolide__cpu_force_isa((bolide__isa)17), "a set that does not exist is refused");
    expect(!bolide__cpu_force_isa((bolide__isa)-1), "a negative set is refused");
    expect(bolide__cpu_isa() == BOLIDE__BASELINE, "a refused set changes nothing");
    expect(bolide__cpu_force_isa(best), "the best set can be forced");
    expect(strcmp(bolide__isa_name(BOLIDE__EMU512), "emu512") == 0, "name of emu512");
    expect(strcmp(bolide__isa_name((bolide__isa)99), "?") == 0, "name of no set");
    const bolide__cpu_features *f = bolide__cpu_features_get();
    expect(!(f->amx_refused && f->amx_bf16), "tiles are granted or refused, not both");
    printf("isa: best %s; avx512_bf16 %d, vnni %d, fp16 %d, amx_bf16 %d, amx_int8 %d, refused %d\n",
           bolide__isa_name(best), f->avx512_bf16, f->avx512_vnni, f->avx512_fp16, f->amx_bf16,
           f->amx_int8, f->amx_refused);
}

int main(int argc, char **argv) {
    int bench = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0)
            verbose = 1;
        else if (strcmp(argv[i], "--bench") == 0)
            bench = 1;
        else
            state ^= strtoull(argv[i], NULL, 0) * 0xD1342543DE82EF95u;
    }
    if (bench) {
        bench_cpu();
        return 0;
    }
    test_isa();
    test_simd();
    test_convert();
    test_math();
    test_limit();
    test_microkernel();
    test_parallel();
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed > 0;
}
