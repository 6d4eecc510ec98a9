// SPDX-License-Identifier: Apache-2.0
//
// Compaction without branches: the selected lanes of a vector one behind the other. Beside
// f32_compress_store, which writes nothing behind them, for buffers that have room for 16.

#ifndef BOLIDE_CPU_SIMD_COMPRESS_H
#define BOLIDE_CPU_SIMD_COMPRESS_H

#include "cpu/simd.h"

#if defined(BOLIDE_ISA_AVX2) || defined(BOLIDE_ISA_EMU512)
/* For each mask of eight lanes the numbers of the lanes set, one a byte, the lowest first. */
#define SIMD_LANE(m, i)                                                                            \
    ((m) >> (i)&1 ? (uint64_t)(i) << 8 * __builtin_popcount((m) & ((1u << (i)) - 1)) : 0)
#define SIMD_MASK(m)                                                                               \
    SIMD_LANE(m, 1) | SIMD_LANE(m, 2) | SIMD_LANE(m, 3) | SIMD_LANE(m, 4) | SIMD_LANE(m, 5) |      \
        SIMD_LANE(m, 6) | SIMD_LANE(m, 7)
#define SIMD_MASKS4(m) SIMD_MASK(m), SIMD_MASK((m) + 1), SIMD_MASK((m) + 2), SIMD_MASK((m) + 3)
#define SIMD_MASKS16(m)                                                                            \
    SIMD_MASKS4(m), SIMD_MASKS4((m) + 4), SIMD_MASKS4((m) + 8), SIMD_MASKS4((m) + 12)
#define SIMD_MASKS64(m)                                                                            \
    SIMD_MASKS16(m), SIMD_MASKS16((m) + 16), SIMD_MASKS16((m) + 32), SIMD_MASKS16((m) + 48)
static const uint64_t simd_front[256] = {SIMD_MASKS64(0u), SIMD_MASKS64(64u), SIMD_MASKS64(128u),
                                         SIMD_MASKS64(192u)};
#undef SIMD_MASKS64
#undef SIMD_MASKS16
#undef SIMD_MASKS4
#undef SIMD_MASK
#undef SIMD_LANE

BOLIDE_INLINE int simd_front8(float *p, uint32_t bits, __m256 a) {
    const __m128i order = _mm_loadl_epi64((const __m128i *)&simd_front[bits]);
    _mm256_storeu_ps(p, _mm256_permutevar8x32_ps(a, _mm256_cvtepu8_epi32(order)));
    return __builtin_popcount(bits);
}
#endif

/* Writes the lanes of v that m selects to p and gives their number; p[0] … p[15] may change. */
BOLIDE_INLINE int f32_compress_loose(float *p, mask16 m, f32x16 v) {
#if defined(BOLIDE_ISA_AVX512)
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(m.k, v.v));
    return mask_count(m);
#elif defined(BOLIDE_ISA_AVX2) || defined(BOLIDE_ISA_EMU512)
    const uint32_t bits = mask_bits(m);
    const int n = simd_front8(p, bits & 255u, v.lo);
    return n + simd_front8(p + n, bits >> 8, v.hi);
#else
    return f32_compress_store(p, m, v);
#endif
}

#endif
