// SPDX-License-Identifier: Apache-2.0
//
// The two kernels behind cpu/roofline.h: FMA chains that never leave the registers, and the sum of
// a slice of memory.

#include "cpu/roofline_internal.h"
#include "cpu/simd.h"

/* Twelve registers of sums: at least latency times units on every chip of the set. */
#if defined(BOLIDE_ISA_AVX512)
enum { CHAINS = 12 };
#elif defined(BOLIDE_ISA_BASELINE)
enum { CHAINS = 3 };
#else
enum { CHAINS = 6 };
#endif

void BOLIDE_ISA(roofline_chains)(void *arg, int64_t begin, int64_t end, int worker) {
    bolide__roofline_chains_params *p = arg;
    f32x16 sum[CHAINS];
    const f32x16 x = f32_set(p->factor), y = f32_set(1.0f - p->factor);
    (void)worker;
    for (int i = 0; i < CHAINS; i++)
        sum[i] = f32_set((float)i);
    for (int64_t step = 0; step < (end - begin) * BOLIDE__ROOFLINE_STEPS; step++) {
        BOLIDE_UNROLL
        for (int i = 0; i < CHAINS; i++)
            sum[i] = f32_fma(sum[i], x, y);
    }
    for (int i = 1; i < CHAINS; i++)
        sum[0] = f32_add(sum[0], sum[i]);
    p->sink[begin] = f32_sum(sum[0]);
    p->operations_a_step = CHAINS * BOLIDE_LANES * 2;
}

void BOLIDE_ISA(roofline_sum)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__roofline_sum_params *p = arg;
    f32x16 sum[4];
    (void)worker;
    for (int i = 0; i < 4; i++)
        sum[i] = f32_zero();
    for (const float *q = p->data + begin * BOLIDE__ROOFLINE_SLICE,
                     *last = p->data + end * BOLIDE__ROOFLINE_SLICE;
         q < last; q += 4 * BOLIDE_LANES) {
        BOLIDE_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = f32_add(sum[i], f32_load(q + i * BOLIDE_LANES));
    }
    p->sink[begin] = f32_sum(f32_add(f32_add(sum[0], sum[1]), f32_add(sum[2], sum[3])));
}
