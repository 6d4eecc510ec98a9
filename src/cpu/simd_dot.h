// SPDX-License-Identifier: Apache-2.0
//
// What dot products of many short rows need beside simd.h: sums of sixteen vectors at once, with
// the bits of f32_sum, and loads of bf16 that need no shuffle.

#ifndef BOLIDE_CPU_SIMD_DOT_H
#define BOLIDE_CPU_SIMD_DOT_H

#include "cpu/simd.h"

/* f32_sum16: lane i is the f32_sum of the vector that r[i] is the fold of. A fold is as much of the
 * sum as needs no other vector; the rest is folded in pairs, a blend, a shuffle and an addition
 * each, so that the number of vectors halves as the lanes to add do.
 *
 * bf16_load_split: 16 elements as f32, those with an even place in lanes 0 to 7, those with an odd
 * one in lanes 8 to 15. */

#if defined(BOLIDE_ISA_AVX512)

typedef f32x16 f32_folded;

BOLIDE_INLINE f32_folded f32_fold(f32x16 a) {
    return a;
}
BOLIDE_INLINE f32x16 f32_sum16(const f32_folded r[16]) {
    const __m512i quarters =
        _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    __m512 a[8], b[4], c[2];
    BOLIDE_UNROLL
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, r[i].v, r[i + 8].v),
                             _mm512_shuffle_f32x4(r[i].v, r[i + 8].v, 0x4E));
    BOLIDE_UNROLL
    for (int i = 0; i < 4; i++)
        b[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xF0F0, a[i], a[i + 4]),
                             _mm512_permutex2var_ps(a[i], quarters, a[i + 4]));
    BOLIDE_UNROLL
    for (int i = 0; i < 2; i++)
        c[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xCCCC, b[i], b[i + 2]),
                             _mm512_shuffle_ps(b[i], b[i + 2], 0x4E));
    const __m512 crossed = _mm512_permute_ps(_mm512_mask_blend_ps(0x5555, c[0], c[1]), 0xB1);
    return (f32x16){_mm512_add_ps(_mm512_mask_blend_ps(0xAAAA, c[0], c[1]), crossed)};
}

BOLIDE_INLINE f32x16 bf16_load_split(const void *p) {
    const __m128i even = _mm_setr_epi8(-1, -1, 0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1, 12, 13);
    const __m128i odd = _mm_setr_epi8(-1, -1, 2, 3, -1, -1, 6, 7, -1, -1, 10, 11, -1, -1, 14, 15);
    const __m512i pick = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(even, even)),
                                            _mm256_set_m128i(odd, odd), 1);
    const __m512i twice = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
    return (f32x16){_mm512_castsi512_ps(_mm512_shuffle_epi8(twice, pick))};
}

#elif defined(BOLIDE_ISA_AVX2) || defined(BOLIDE_ISA_EMU512)

typedef __m256 f32_folded;

BOLIDE_INLINE f32_folded f32_fold(f32x16 a) {
    return _mm256_add_ps(a.lo, a.hi);
}
BOLIDE_INLINE __m256 simd_sums8(const f32_folded *a) {
    __m256 b[4], c[2];
    BOLIDE_UNROLL
    for (int i = 0; i < 4; i++)
        b[i] = _mm256_add_ps(_mm256_blend_ps(a[i], a[i + 4], 0xF0),
                             _mm256_permute2f128_ps(a[i], a[i + 4], 0x21));
    BOLIDE_UNROLL
    for (int i = 0; i < 2; i++)
        c[i] = _mm256_add_ps(_mm256_blend_ps(b[i], b[i + 2], 0xCC),
                             _mm256_shuffle_ps(b[i], b[i + 2], 0x4E));
    const __m256 crossed = _mm256_permute_ps(_mm256_blend_ps(c[0], c[1], 0x55), 0xB1);
    return _mm256_add_ps(_mm256_blend_ps(c[0], c[1], 0xAA), crossed);
}
BOLIDE_INLINE f32x16 f32_sum16(const f32_folded r[16]) {
    return (f32x16){simd_sums8(r), simd_sums8(r + 8)};
}

BOLIDE_INLINE f32x16 bf16_load_split(const void *p) {
    const __m256i words = _mm256_loadu_si256((const __m256i *)p);
    const __m256 high = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xFFFF0000u));
    /* Loaded as floats once more: gcc passes the words to a second user through the stack. */
    const __m256 odd = _mm256_and_ps(_mm256_loadu_ps((const float *)p), high);
    return (f32x16){_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), odd};
}

#else

typedef float f32_folded;

BOLIDE_INLINE f32_folded f32_fold(f32x16 a) {
    return f32_sum(a);
}
BOLIDE_INLINE f32x16 f32_sum16(const f32_folded r[16]) {
    return f32_load(r);
}

BOLIDE_INLINE f32x16 bf16_load_split(const void *p) {
    simd_u32v words[2];
    f32x16 r;
    memcpy(words, p, sizeof words);
    for (int i = 0; i < 2; i++) {
        r.v[i] = (simd_f32v)(words[i] << 16);
        r.v[2 + i] = (simd_f32v)(words[i] & 0xFFFF0000u);
    }
    return r;
}

#endif

#endif
