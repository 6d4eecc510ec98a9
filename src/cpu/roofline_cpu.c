// SPDX-License-Identifier: Apache-2.0
//
// The two loops of cpu/roofline.h, with enough independent sums in flight to cover the latency of
// an addition or of a multiply-add on two ports, and few enough to stay in registers.

#include "cpu/roofline.h"

#include "cpu/simd.h"

void BOLIDE_ISA(roofline_read)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__roofline *r = arg;
    f32x16 sum[8];
    BOLIDE_UNROLL
    for (int i = 0; i < 8; i++)
        sum[i] = f32_zero();
    const float *stop = r->buffer + end * BOLIDE__ROOFLINE_BLOCK;
    for (const float *p = r->buffer + begin * BOLIDE__ROOFLINE_BLOCK; p < stop; p += 8 * 16) {
        BOLIDE_UNROLL
        for (int i = 0; i < 8; i++)
            sum[i] = f32_add(sum[i], f32_load(p + i * 16));
    }
    BOLIDE_UNROLL
    for (int i = 1; i < 8; i++)
        sum[0] = f32_add(sum[0], sum[i]);
    r->sink[worker] += f32_sum(sum[0]);
}

/* Logical vectors that fit the registers, two spared for the factors. */
#if defined(BOLIDE_ISA_AVX512)
enum { CHAINS = 24 };
#elif defined(BOLIDE_ISA_BASELINE)
enum { CHAINS = 3 };
#else
enum { CHAINS = 6 };
#endif

void BOLIDE_ISA(roofline_fma)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__roofline *r = arg;
    f32x16 sum[CHAINS];
    BOLIDE_UNROLL
    for (int i = 0; i < CHAINS; i++)
        sum[i] = f32_set((float)i);
    /* The factors come from memory, lest the compiler knows the result. */
    const f32x16 a = f32_set(r->buffer[0]), b = f32_set(r->buffer[1]);
    const int64_t steps = (end - begin) * (24 * 4096 / CHAINS);
    for (int64_t k = 0; k < steps; k++) {
        BOLIDE_UNROLL
        for (int i = 0; i < CHAINS; i++)
            sum[i] = f32_fma(sum[i], a, b);
    }
    BOLIDE_UNROLL
    for (int i = 1; i < CHAINS; i++)
        sum[0] = f32_add(sum[0], sum[i]);
    r->sink[worker] += f32_sum(sum[0]);
}
