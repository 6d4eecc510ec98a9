// SPDX-License-Identifier: Apache-2.0
//
// Compaction without branches: the selected lanes of a vector one behind the other. Beside
// f32_compress_store, which writes nothing behind them, for buffers that have room for 16.

#ifndef BOLIDE_CPU_SIMD_COMPRESS_H
#define BOLIDE_CPU_SIMD_COMPRESS_H

#include "cpu/simd.h"

#if defined(BOLIDE_ISA_AVX2) || defined(BOLIDE_ISA_EMU512)
/* Byte shuffles that move the lanes of four bits to the front. */
#define SIMD_LANE(i) 4 * (i), 4 * (i) + 1, 4 * (i) + 2, 4 * (i) + 3
#define SIMD_PACK(a, b, c, d)                                                                      \
    { SIMD_LANE(a), SIMD_LANE(b), SIMD_LANE(c), SIMD_LANE(d) }
static const uint8_t simd_front[16][16] = {
    SIMD_PACK(0, 0, 0, 0), SIMD_PACK(0, 0, 0, 0), SIMD_PACK(1, 0, 0, 0), SIMD_PACK(0, 1, 0, 0),
    SIMD_PACK(2, 0, 0, 0), SIMD_PACK(0, 2, 0, 0), SIMD_PACK(1, 2, 0, 0), SIMD_PACK(0, 1, 2, 0),
    SIMD_PACK(3, 0, 0, 0), SIMD_PACK(0, 3, 0, 0), SIMD_PACK(1, 3, 0, 0), SIMD_PACK(0, 1, 3, 0),
    SIMD_PACK(2, 3, 0, 0), SIMD_PACK(0, 2, 3, 0), SIMD_PACK(1, 2, 3, 0), SIMD_PACK(0, 1, 2, 3)};
#undef SIMD_PACK
#undef SIMD_LANE

BOLIDE_INLINE int simd_front4(float *p, uint32_t bits, __m128 a) {
    const __m128i order = _mm_loadu_si128((const __m128i *)simd_front[bits & 15u]);
    _mm_storeu_ps(p, _mm_castsi128_ps(_mm_shuffle_epi8(_mm_castps_si128(a), order)));
    return __builtin_popcount(bits & 15u);
}
#endif

/* Writes the lanes of v that m selects to p and gives their number; p[0] … p[15] may change. */
BOLIDE_INLINE int f32_compress_loose(float *p, mask16 m, f32x16 v) {
#if defined(BOLIDE_ISA_AVX512)
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(m.k, v.v));
    return mask_count(m);
#elif defined(BOLIDE_ISA_AVX2) || defined(BOLIDE_ISA_EMU512)
    const uint32_t bits = mask_bits(m);
    int n = simd_front4(p, bits, _mm256_castps256_ps128(v.lo));
    n += simd_front4(p + n, bits >> 4, _mm256_extractf128_ps(v.lo, 1));
    n += simd_front4(p + n, bits >> 8, _mm256_castps256_ps128(v.hi));
    return n + simd_front4(p + n, bits >> 12, _mm256_extractf128_ps(v.hi, 1));
#else
    return f32_compress_store(p, m, v);
#endif
}

#endif
