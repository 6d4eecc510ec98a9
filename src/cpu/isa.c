// SPDX-License-Identifier: Apache-2.0
//
// Which instruction set the kernels run on. The chip is asked once (cpuid for what it has, xgetbv
// for which registers the system saves), BOLIDE_ISA may ask for less, and a test may force any set
// that the machine has. The choice is one atomic integer, read at each kernel pick.

#include "cpu/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/env.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bolide__isa best;
static bolide__cpu_features features;
static atomic_int in_force;

const char *bolide__isa_name(bolide__isa isa) {
    static const char *const names[] = {"baseline", "avx2", "emu512", "avx512"};
    return (unsigned)isa < sizeof names / sizeof names[0] ? names[isa] : "?";
}

#if defined(__x86_64__)

/* Registers that the system saves: the low half of extended control register 0. */
static uint32_t saved_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int has(uint32_t word, uint32_t bits) {
    return (word & bits) == bits;
}

/* Tile data is granted to a process only when it asks (Linux 5.16 and later); 1 if granted. */
static int request_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static void detect_tiles(uint32_t edx7, uint32_t saved) {
    const uint32_t amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
    const uint32_t tile_state = 3u << 17;
    if (!has(edx7, amx_tile) || !(edx7 & (amx_bf16 | amx_int8)))
        return;
    if (!has(saved, tile_state) || !request_tiles()) {
        features.amx_refused = 1;
        return;
    }
    features.amx_bf16 = has(edx7, amx_bf16);
    features.amx_int8 = has(edx7, amx_int8);
}

static int made_by_amd(void) {
    uint32_t a = 0, b = 0, c = 0, d = 0; /* set where the call succeeds */
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx &&
           d == signature_AMD_edx;
}

static void detect(void) {
    uint32_t a, b, c, d, a7, b7, c7, d7, a71 = 0, b71, c71, d71;
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    const uint32_t avx2 = 1u << 5, bmi2 = 1u << 8;
    const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    const uint32_t ymm_state = 0x6, zmm_state = 0xE6;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, fma | osxsave | avx | f16c) ||
        !__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7))
        return;
    const uint32_t saved = saved_state();
    if (!has(saved, ymm_state) || !has(b7, avx2 | bmi2))
        return;
    best = BOLIDE__AVX2;
    if (!has(saved, zmm_state) || !has(b7, avx512))
        return;
    best = BOLIDE__AVX512;
    if (a7 >= 1)
        __get_cpuid_count(7, 1, &a71, &b71, &c71, &d71);
    features.avx512_vnni = has(c7, 1u << 11);
    features.avx512_fp16 = has(d7, 1u << 23);
    features.avx512_bf16 = has(a71, 1u << 5);
    features.fast_bf16_dot = features.avx512_bf16 && made_by_amd();
    detect_tiles(d7, saved);
}

#else

static void detect(void) {
    best = BOLIDE__BASELINE;
}

#endif

static int machine_has(bolide__isa isa) {
    return isa == BOLIDE__EMU512 ? best >= BOLIDE__AVX2 : isa <= best;
}

static void choose(void) {
    const char *wanted = bolide__environment()->isa;
    detect();
    bolide__isa chosen = best;
    if (wanted && *wanted) {
        int isa = BOLIDE__BASELINE;
        while (isa <= BOLIDE__AVX512 && strcmp(bolide__isa_name((bolide__isa)isa), wanted) != 0)
            isa++;
        if (isa <= BOLIDE__AVX512 && machine_has((bolide__isa)isa))
            chosen = (bolide__isa)isa;
        else
            bolide__report("BOLIDE_ISA: expected %s; got %.80s; using %s",
                           best == BOLIDE__AVX512 ? "baseline, avx2, emu512 or avx512"
                           : best == BOLIDE__AVX2 ? "baseline, avx2 or emu512"
                                                  : "baseline",
                           wanted, bolide__isa_name(best));
    }
    atomic_store(&in_force, (int)chosen);
}

bolide__isa bolide__cpu_isa(void) {
    pthread_once(&once, choose);
    return (bolide__isa)atomic_load_explicit(&in_force, memory_order_relaxed);
}

const bolide__cpu_features *bolide__cpu_features_get(void) {
    pthread_once(&once, choose);
    return &features;
}

int bolide__cpu_force_isa(bolide__isa isa) {
    pthread_once(&once, choose);
    if (isa < BOLIDE__BASELINE || isa > BOLIDE__AVX512 || !machine_has(isa))
        return 0;
    atomic_store(&in_force, (int)isa);
    return 1;
}
