// SPDX-License-Identifier: Apache-2.0
//
// What dot products of many short rows need beside simd.h: sums of sixteen vectors at once, with
// the bits of f32_sum, their largest lanes, and loads of bf16 that need no shuffle.

#ifndef BOLIDE_CPU_SIMD_DOT_H
#define BOLIDE_CPU_SIMD_DOT_H

#include "cpu/simd.h"

/* f32_sum16: lane i is the f32_sum of the vector that r[i] is the fold of. A fold is as much of the
 * sum as needs no other vector; the rest is folded in pairs, a blend, a shuffle and an addition
 * each, so that the number of vectors halves as the lanes to add do.
 *
 * f32_max16: lane i is the largest lane of the vector that r[i] is the f32_fold_max of, without
 * respect to NaN.
 *
 * bf16_load_split: 16 elements as f32, those with an even place in lanes 0 to 7, those with an odd
 * one in lanes 8 to 15. */

/* f32_part: as much of an f32x16 as a register holds, F32_PARTS of them, where kernels are to be
 * laid out by registers; not for baseline. part_of_bf16 is part i of bf16_load_split, part_of_f16
 * of f16_load; the fold of the parts of a vector is begun with the first. PART_KEEP keeps a value
 * in its register. */

#if defined(BOLIDE_ISA_AVX512)

typedef f32x16 f32_folded;

BOLIDE_INLINE f32_folded f32_fold(f32x16 a) {
    return a;
}
BOLIDE_INLINE f32_folded f32_fold_max(f32x16 a) {
    return a;
}
BOLIDE_INLINE __m512 simd_join(bool max, __m512 a, __m512 b) {
    return max ? _mm512_max_ps(a, b) : _mm512_add_ps(a, b);
}
BOLIDE_INLINE f32x16 simd_join16(bool max, const f32_folded r[16]) {
    const __m512i quarters =
        _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    __m512 a[8], b[4], c[2];
    BOLIDE_UNROLL
    for (int i = 0; i < 8; i++)
        a[i] = simd_join(max, _mm512_mask_blend_ps(0xFF00, r[i].v, r[i + 8].v),
                         _mm512_shuffle_f32x4(r[i].v, r[i + 8].v, 0x4E));
    BOLIDE_UNROLL
    for (int i = 0; i < 4; i++)
        b[i] = simd_join(max, _mm512_mask_blend_ps(0xF0F0, a[i], a[i + 4]),
                         _mm512_permutex2var_ps(a[i], quarters, a[i + 4]));
    BOLIDE_UNROLL
    for (int i = 0; i < 2; i++)
        c[i] = simd_join(max, _mm512_mask_blend_ps(0xCCCC, b[i], b[i + 2]),
                         _mm512_shuffle_ps(b[i], b[i + 2], 0x4E));
    const __m512 crossed = _mm512_permute_ps(_mm512_mask_blend_ps(0x5555, c[0], c[1]), 0xB1);
    return (f32x16){simd_join(max, _mm512_mask_blend_ps(0xAAAA, c[0], c[1]), crossed)};
}

BOLIDE_INLINE f32x16 bf16_load_split(const void *p) {
    const __m128i even = _mm_setr_epi8(-1, -1, 0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1, 12, 13);
    const __m128i odd = _mm_setr_epi8(-1, -1, 2, 3, -1, -1, 6, 7, -1, -1, 10, 11, -1, -1, 14, 15);
    const __m512i pick = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(even, even)),
                                            _mm256_set_m128i(odd, odd), 1);
    const __m512i twice = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
    return (f32x16){_mm512_castsi512_ps(_mm512_shuffle_epi8(twice, pick))};
}

#define F32_PARTS 1
#define PART_KEEP(a) __asm__("" : "+v"(a))
typedef __m512 f32_part;

BOLIDE_INLINE f32_part part_load(const float *p) {
    return _mm512_loadu_ps(p);
}
BOLIDE_INLINE void part_store(float *p, f32_part a) {
    _mm512_storeu_ps(p, a);
}
BOLIDE_INLINE f32_part part_set(float x) {
    return _mm512_set1_ps(x);
}
BOLIDE_INLINE f32_part part_mul(f32_part a, f32_part b) {
    return _mm512_mul_ps(a, b);
}
BOLIDE_INLINE f32_part part_fma(f32_part a, f32_part b, f32_part c) {
    return _mm512_fmadd_ps(a, b, c);
}
BOLIDE_INLINE f32_part part_of_bf16(const void *p, int i) {
    (void)i;
    return bf16_load_split(p).v;
}
BOLIDE_INLINE f32_part part_of_f16(const void *p, int i) {
    (void)i;
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
BOLIDE_INLINE f32_folded part_begin_fold(f32_part a) {
    return (f32x16){a};
}
BOLIDE_INLINE f32_folded part_fold(f32_folded begun, f32_part a) {
    (void)a;
    return begun;
}

#elif defined(BOLIDE_ISA_AVX2) || defined(BOLIDE_ISA_EMU512)

typedef __m256 f32_folded;

BOLIDE_INLINE f32_folded f32_fold(f32x16 a) {
    return _mm256_add_ps(a.lo, a.hi);
}
BOLIDE_INLINE f32_folded f32_fold_max(f32x16 a) {
    return _mm256_max_ps(a.lo, a.hi);
}
BOLIDE_INLINE __m256 simd_join(bool max, __m256 a, __m256 b) {
    return max ? _mm256_max_ps(a, b) : _mm256_add_ps(a, b);
}
BOLIDE_INLINE __m256 simd_join8(bool max, const f32_folded *a) {
    __m256 b[4], c[2];
    BOLIDE_UNROLL
    for (int i = 0; i < 4; i++)
        b[i] = simd_join(max, _mm256_blend_ps(a[i], a[i + 4], 0xF0),
                         _mm256_permute2f128_ps(a[i], a[i + 4], 0x21));
    BOLIDE_UNROLL
    for (int i = 0; i < 2; i++)
        c[i] = simd_join(max, _mm256_blend_ps(b[i], b[i + 2], 0xCC),
                         _mm256_shuffle_ps(b[i], b[i + 2], 0x4E));
    const __m256 crossed = _mm256_permute_ps(_mm256_blend_ps(c[0], c[1], 0x55), 0xB1);
    return simd_join(max, _mm256_blend_ps(c[0], c[1], 0xAA), crossed);
}
BOLIDE_INLINE f32x16 simd_join16(bool max, const f32_folded r[16]) {
    return (f32x16){simd_join8(max, r), simd_join8(max, r + 8)};
}

BOLIDE_INLINE f32x16 bf16_load_split(const void *p) {
    const __m256i words = _mm256_loadu_si256((const __m256i *)p);
    const __m256 high = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xFFFF0000u));
    /* Loaded as floats once more: gcc passes the words to a second user through the stack. */
    const __m256 odd = _mm256_and_ps(_mm256_loadu_ps((const float *)p), high);
    return (f32x16){_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), odd};
}

#define F32_PARTS 2
#define PART_KEEP(a) __asm__("" : "+x"(a))
typedef __m256 f32_part;

BOLIDE_INLINE f32_part part_load(const float *p) {
    return _mm256_loadu_ps(p);
}
BOLIDE_INLINE void part_store(float *p, f32_part a) {
    _mm256_storeu_ps(p, a);
}
BOLIDE_INLINE f32_part part_set(float x) {
    return _mm256_set1_ps(x);
}
BOLIDE_INLINE f32_part part_mul(f32_part a, f32_part b) {
    return _mm256_mul_ps(a, b);
}
BOLIDE_INLINE f32_part part_fma(f32_part a, f32_part b, f32_part c) {
    return _mm256_fmadd_ps(a, b, c);
}
BOLIDE_INLINE f32_part part_of_bf16(const void *p, int i) {
    static const uint32_t high[8] = {0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u,
                                     0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u, 0xFFFF0000u};
    __m256 words = _mm256_loadu_ps((const float *)p);
    if (i == 0)
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(words), 16));
    /* The mask stays in memory: kernels that are laid out by registers have none to spare. */
    __asm__("vandps %1, %0, %0" : "+x"(words) : "m"(high));
    return words;
}
BOLIDE_INLINE f32_part part_of_f16(const void *p, int i) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + i));
}
BOLIDE_INLINE f32_folded part_begin_fold(f32_part a) {
    return a;
}
BOLIDE_INLINE f32_folded part_fold(f32_folded begun, f32_part a) {
    return _mm256_add_ps(begun, a);
}

#else

typedef float f32_folded;

BOLIDE_INLINE f32_folded f32_fold(f32x16 a) {
    return f32_sum(a);
}
BOLIDE_INLINE f32_folded f32_fold_max(f32x16 a) {
    return f32_hmax_tree(a);
}
BOLIDE_INLINE f32x16 simd_join16(bool max, const f32_folded r[16]) {
    (void)max;
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

BOLIDE_INLINE f32x16 f32_sum16(const f32_folded r[16]) {
    return simd_join16(false, r);
}
BOLIDE_INLINE f32x16 f32_max16(const f32_folded r[16]) {
    return simd_join16(true, r);
}

#endif
