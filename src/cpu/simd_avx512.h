// SPDX-License-Identifier: Apache-2.0
//
// The primitives of simd.h on AVX-512 (F, BW, DQ, VL): one register of 16 lanes, masks in the k
// registers. Included by simd.h only; the names are explained there.

#ifndef BOLIDE_CPU_SIMD_AVX512_H
#define BOLIDE_CPU_SIMD_AVX512_H

#include <immintrin.h>

typedef struct f32x16 {
    __m512 v;
} f32x16;
typedef struct i32x16 {
    __m512i v;
} i32x16;
typedef struct f64x16 {
    __m512d lo, hi;
} f64x16;
typedef struct mask16 {
    __mmask16 k;
} mask16;

/* Masked loads and stores cost what plain ones do. */
#define BOLIDE_SIMD_FREE_MASKS 1

/* ---- masks -------------------------------------------------------------------------------- */

BOLIDE_INLINE mask16 mask_of_bits(uint32_t bits) {
    return (mask16){(__mmask16)(bits & 0xFFFFu)};
}
BOLIDE_INLINE uint32_t mask_bits(mask16 m) {
    return (uint32_t)m.k;
}
BOLIDE_INLINE mask16 mask_first(int64_t n) {
    return mask_of_bits((1u << simd_count(n)) - 1u);
}
BOLIDE_INLINE mask16 mask_and(mask16 a, mask16 b) {
    return (mask16){(__mmask16)(a.k & b.k)};
}
BOLIDE_INLINE mask16 mask_or(mask16 a, mask16 b) {
    return (mask16){(__mmask16)(a.k | b.k)};
}
BOLIDE_INLINE mask16 mask_not(mask16 a) {
    return mask_of_bits(~mask_bits(a));
}

/* ---- f32 ---------------------------------------------------------------------------------- */

BOLIDE_INLINE f32x16 f32_set(float x) {
    return (f32x16){_mm512_set1_ps(x)};
}
BOLIDE_INLINE f32x16 f32_load(const float *p) {
    return (f32x16){_mm512_loadu_ps(p)};
}
BOLIDE_INLINE void f32_store(float *p, f32x16 a) {
    _mm512_storeu_ps(p, a.v);
}
BOLIDE_INLINE f32x16 f32_load_mask(mask16 m, const float *p) {
    return (f32x16){_mm512_maskz_loadu_ps(m.k, p)};
}
BOLIDE_INLINE void f32_store_mask(float *p, mask16 m, f32x16 a) {
    _mm512_mask_storeu_ps(p, m.k, a.v);
}
BOLIDE_INLINE f32x16 f32_add(f32x16 a, f32x16 b) {
    return (f32x16){_mm512_add_ps(a.v, b.v)};
}
BOLIDE_INLINE f32x16 f32_sub(f32x16 a, f32x16 b) {
    return (f32x16){_mm512_sub_ps(a.v, b.v)};
}
BOLIDE_INLINE f32x16 f32_mul(f32x16 a, f32x16 b) {
    return (f32x16){_mm512_mul_ps(a.v, b.v)};
}
BOLIDE_INLINE f32x16 f32_div(f32x16 a, f32x16 b) {
    return (f32x16){_mm512_div_ps(a.v, b.v)};
}
BOLIDE_INLINE f32x16 f32_sqrt(f32x16 a) {
    return (f32x16){_mm512_sqrt_ps(a.v)};
}
BOLIDE_INLINE f32x16 f32_fma(f32x16 a, f32x16 b, f32x16 c) {
    return (f32x16){_mm512_fmadd_ps(a.v, b.v, c.v)};
}
BOLIDE_INLINE f32x16 f32_fnma(f32x16 a, f32x16 b, f32x16 c) {
    return (f32x16){_mm512_fnmadd_ps(a.v, b.v, c.v)};
}
BOLIDE_INLINE f32x16 f32_min(f32x16 a, f32x16 b) {
    return (f32x16){_mm512_min_ps(a.v, b.v)};
}
BOLIDE_INLINE f32x16 f32_max(f32x16 a, f32x16 b) {
    return (f32x16){_mm512_max_ps(a.v, b.v)};
}
BOLIDE_INLINE mask16 f32_lt(f32x16 a, f32x16 b) {
    return (mask16){_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
BOLIDE_INLINE mask16 f32_le(f32x16 a, f32x16 b) {
    return (mask16){_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)};
}
BOLIDE_INLINE mask16 f32_eq(f32x16 a, f32x16 b) {
    return (mask16){_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
BOLIDE_INLINE f32x16 f32_select(mask16 m, f32x16 a, f32x16 b) {
    return (f32x16){_mm512_mask_blend_ps(m.k, b.v, a.v)};
}
BOLIDE_INLINE f32x16 f32_round(f32x16 a) {
    return (f32x16){_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
BOLIDE_INLINE f32x16 f32_floor(f32x16 a) {
    return (f32x16){_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}
BOLIDE_INLINE i32x16 f32_bits(f32x16 a) {
    return (i32x16){_mm512_castps_si512(a.v)};
}
BOLIDE_INLINE f32x16 i32_as_f32(i32x16 a) {
    return (f32x16){_mm512_castsi512_ps(a.v)};
}
BOLIDE_INLINE i32x16 f32_to_i32(f32x16 a) {
    return (i32x16){_mm512_cvttps_epi32(a.v)};
}
BOLIDE_INLINE i32x16 f32_to_i32_round(f32x16 a) {
    return (i32x16){_mm512_cvtps_epi32(a.v)};
}
BOLIDE_INLINE f32x16 i32_to_f32(i32x16 a) {
    return (f32x16){_mm512_cvtepi32_ps(a.v)};
}

/* ---- i32 ---------------------------------------------------------------------------------- */

/* The shift intrinsics want a literal count, which an unoptimised build does not see through an
 * inline function; the vector operators take any. */
typedef uint32_t simd_u32v __attribute__((vector_size(64)));
typedef int32_t simd_i32v __attribute__((vector_size(64)));

BOLIDE_INLINE i32x16 i32_set(int32_t x) {
    return (i32x16){_mm512_set1_epi32(x)};
}
BOLIDE_INLINE i32x16 i32_iota(void) {
    return (i32x16){_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
BOLIDE_INLINE i32x16 i32_load(const int32_t *p) {
    return (i32x16){_mm512_loadu_si512(p)};
}
BOLIDE_INLINE void i32_store(int32_t *p, i32x16 a) {
    _mm512_storeu_si512(p, a.v);
}
BOLIDE_INLINE void i32_stream(int32_t *p, i32x16 a) {
    _mm512_stream_si512((__m512i *)p, a.v);
}
BOLIDE_INLINE void simd_stream_end(void) {
    _mm_sfence();
}
BOLIDE_INLINE i32x16 i32_load_mask(mask16 m, const int32_t *p) {
    return (i32x16){_mm512_maskz_loadu_epi32(m.k, p)};
}
BOLIDE_INLINE void i32_store_mask(int32_t *p, mask16 m, i32x16 a) {
    _mm512_mask_storeu_epi32(p, m.k, a.v);
}
BOLIDE_INLINE i32x16 i32_add(i32x16 a, i32x16 b) {
    return (i32x16){_mm512_add_epi32(a.v, b.v)};
}
BOLIDE_INLINE i32x16 i32_sub(i32x16 a, i32x16 b) {
    return (i32x16){_mm512_sub_epi32(a.v, b.v)};
}
BOLIDE_INLINE i32x16 i32_mul(i32x16 a, i32x16 b) {
    return (i32x16){_mm512_mullo_epi32(a.v, b.v)};
}
BOLIDE_INLINE i32x16 i32_and(i32x16 a, i32x16 b) {
    return (i32x16){_mm512_and_si512(a.v, b.v)};
}
BOLIDE_INLINE i32x16 i32_or(i32x16 a, i32x16 b) {
    return (i32x16){_mm512_or_si512(a.v, b.v)};
}
BOLIDE_INLINE i32x16 i32_xor(i32x16 a, i32x16 b) {
    return (i32x16){_mm512_xor_si512(a.v, b.v)};
}
BOLIDE_INLINE i32x16 i32_shl(i32x16 a, int bits) {
    return (i32x16){(__m512i)((simd_u32v)a.v << bits)};
}
BOLIDE_INLINE i32x16 i32_shr(i32x16 a, int bits) {
    return (i32x16){(__m512i)((simd_u32v)a.v >> bits)};
}
BOLIDE_INLINE i32x16 i32_sar(i32x16 a, int bits) {
    return (i32x16){(__m512i)((simd_i32v)a.v >> bits)};
}
BOLIDE_INLINE mask16 i32_eq(i32x16 a, i32x16 b) {
    return (mask16){_mm512_cmpeq_epi32_mask(a.v, b.v)};
}
BOLIDE_INLINE mask16 i32_gt(i32x16 a, i32x16 b) {
    return (mask16){_mm512_cmpgt_epi32_mask(a.v, b.v)};
}
BOLIDE_INLINE i32x16 i32_select(mask16 m, i32x16 a, i32x16 b) {
    return (i32x16){_mm512_mask_blend_epi32(m.k, b.v, a.v)};
}
BOLIDE_INLINE void u32_mul_wide(i32x16 a, i32x16 b, i32x16 *hi, i32x16 *lo) {
    const __m512i even = _mm512_mul_epu32(a.v, b.v);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), _mm512_srli_epi64(b.v, 32));
    hi->v = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    lo->v = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
}

/* ---- narrow elements ---------------------------------------------------------------------- */

BOLIDE_INLINE i32x16 u8_load(const void *p) {
    return (i32x16){_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p))};
}
BOLIDE_INLINE i32x16 u8_load_n(const void *p, int64_t n) {
    return (i32x16){_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask_first(n).k, p))};
}
BOLIDE_INLINE i32x16 i8_load(const void *p) {
    return (i32x16){_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))};
}
BOLIDE_INLINE i32x16 i8_load_n(const void *p, int64_t n) {
    return (i32x16){_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask_first(n).k, p))};
}
BOLIDE_INLINE i32x16 u16_load(const void *p) {
    return (i32x16){_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p))};
}
BOLIDE_INLINE i32x16 u16_load_n(const void *p, int64_t n) {
    return (i32x16){_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask_first(n).k, p))};
}
BOLIDE_INLINE void u8_store(void *p, i32x16 a) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a.v));
}
BOLIDE_INLINE void u8_store_n(void *p, i32x16 a, int64_t n) {
    _mm_mask_storeu_epi8(p, mask_first(n).k, _mm512_cvtepi32_epi8(a.v));
}
BOLIDE_INLINE void u16_store(void *p, i32x16 a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(a.v));
}
BOLIDE_INLINE void u16_store_n(void *p, i32x16 a, int64_t n) {
    _mm256_mask_storeu_epi16(p, mask_first(n).k, _mm512_cvtepi32_epi16(a.v));
}

/* ---- f16 and fp8 through the chip's f16 conversion ---------------------------------------- */

#define BOLIDE_SIMD_HAS_F16 1

BOLIDE_INLINE f32x16 f16_load(const void *p) {
    return (f32x16){_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p))};
}
BOLIDE_INLINE f32x16 f16_load_n(const void *p, int64_t n) {
    return (f32x16){_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask_first(n).k, p))};
}
BOLIDE_INLINE void f16_store(void *p, f32x16 a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
BOLIDE_INLINE void f16_store_n(void *p, f32x16 a, int64_t n) {
    _mm256_mask_storeu_epi16(p, mask_first(n).k, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
/* e4m3 is f16 with the exponent bias 8 smaller and 7 fewer bits of fraction; 0x7F is NaN. */
BOLIDE_INLINE f32x16 simd_e4m3_to_f32(__m128i bytes) {
    const __m256i b = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7);
    const __m256i magnitude = _mm256_and_si256(b, _mm256_set1_epi16(0x3F80));
    const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3F80)),
                                         _mm256_set1_epi16(0x7F80));
    const __m256i sign =
        _mm256_and_si256(_mm256_slli_epi16(b, 1), _mm256_set1_epi16((short)0x8000));
    const __m256i half = _mm256_or_si256(_mm256_or_si256(magnitude, nan), sign);
    return (f32x16){_mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f))};
}
BOLIDE_INLINE f32x16 simd_e5m2_to_f32(__m128i bytes) {
    return (f32x16){_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8))};
}
BOLIDE_INLINE f32x16 e4m3_load(const void *p) {
    return simd_e4m3_to_f32(_mm_loadu_si128((const __m128i *)p));
}
BOLIDE_INLINE f32x16 e4m3_load_n(const void *p, int64_t n) {
    return simd_e4m3_to_f32(_mm_maskz_loadu_epi8(mask_first(n).k, p));
}
BOLIDE_INLINE f32x16 e5m2_load(const void *p) {
    return simd_e5m2_to_f32(_mm_loadu_si128((const __m128i *)p));
}
BOLIDE_INLINE f32x16 e5m2_load_n(const void *p, int64_t n) {
    return simd_e5m2_to_f32(_mm_maskz_loadu_epi8(mask_first(n).k, p));
}

/* ---- permutations, reductions, gathers ---------------------------------------------------- */

BOLIDE_INLINE i32x16 i32_swap_pairs(i32x16 a) {
    return (i32x16){_mm512_shuffle_epi32(a.v, _MM_PERM_CDAB)};
}
BOLIDE_INLINE f32x16 f32_dup_even(f32x16 a) {
    return (f32x16){_mm512_moveldup_ps(a.v)};
}
BOLIDE_INLINE f32x16 f32_dup_odd(f32x16 a) {
    return (f32x16){_mm512_movehdup_ps(a.v)};
}
BOLIDE_INLINE void f32_deinterleave(f32x16 a, f32x16 b, f32x16 *even, f32x16 *odd) {
    const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even->v = _mm512_permutex2var_ps(a.v, e, b.v);
    odd->v = _mm512_permutex2var_ps(a.v, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b.v);
}
BOLIDE_INLINE void f32_interleave(f32x16 even, f32x16 odd, f32x16 *a, f32x16 *b) {
    const __m512i e = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    a->v = _mm512_permutex2var_ps(even.v, e, odd.v);
    b->v = _mm512_permutex2var_ps(even.v, _mm512_add_epi32(e, _mm512_set1_epi32(8)), odd.v);
}
/* Lane i of the result is lane i - k of a, 0 below k; k is 1, 2, 4 or 8. */
BOLIDE_INLINE f32x16 f32_shift_up(f32x16 a, int k) {
    const __m512i from = _mm512_sub_epi32(i32_iota().v, _mm512_set1_epi32(k));
    const __mmask16 keep = (__mmask16)(0xFFFFu << k);
    return (f32x16){_mm512_maskz_permutexvar_ps(keep, from, a.v)};
}
BOLIDE_INLINE float f32_sum(f32x16 a) {
    const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
BOLIDE_INLINE float f32_hmax_tree(f32x16 a) {
    const __m256 s8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}
BOLIDE_INLINE f32x16 f32_gather(const float *p, i32x16 index) {
    return (f32x16){_mm512_i32gather_ps(index.v, p, 4)};
}
BOLIDE_INLINE f32x16 f32_gather_mask(mask16 m, const float *p, i32x16 index) {
    return (f32x16){_mm512_mask_i32gather_ps(_mm512_setzero_ps(), m.k, index.v, p, 4)};
}

/* r[i] lane j and r[j] lane i change places. */
BOLIDE_INLINE void f32_transpose16(f32x16 r[16]) {
    __m512 a[16], b[16];
    BOLIDE_UNROLL
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
        a[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
    }
    BOLIDE_UNROLL
    for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 2; j++) {
            const __m512d x = _mm512_castps_pd(a[i + j]), y = _mm512_castps_pd(a[i + j + 2]);
            b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    }
    BOLIDE_UNROLL
    for (int j = 0; j < 4; j++) {
        a[j] = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88);
        a[4 + j] = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xDD);
        a[8 + j] = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
        a[12 + j] = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xDD);
    }
    BOLIDE_UNROLL
    for (int j = 0; j < 4; j++) {
        r[j].v = _mm512_shuffle_f32x4(a[j], a[8 + j], 0x88);
        r[8 + j].v = _mm512_shuffle_f32x4(a[j], a[8 + j], 0xDD);
        r[4 + j].v = _mm512_shuffle_f32x4(a[4 + j], a[12 + j], 0x88);
        r[12 + j].v = _mm512_shuffle_f32x4(a[4 + j], a[12 + j], 0xDD);
    }
}

/* ---- f64: what the reduction of large angles needs ---------------------------------------- */

BOLIDE_INLINE f64x16 f64_set(double x) {
    return (f64x16){_mm512_set1_pd(x), _mm512_set1_pd(x)};
}
BOLIDE_INLINE f64x16 f64_load(const double *p) {
    return (f64x16){_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)};
}
BOLIDE_INLINE f64x16 f64_load_n(const double *p, int64_t n) {
    const uint32_t bits = mask_bits(mask_first(n));
    return (f64x16){_mm512_maskz_loadu_pd((__mmask8)(bits & 0xFFu), p),
                    _mm512_maskz_loadu_pd((__mmask8)(bits >> 8), p + 8)};
}
BOLIDE_INLINE f64x16 f64_add(f64x16 a, f64x16 b) {
    return (f64x16){_mm512_add_pd(a.lo, b.lo), _mm512_add_pd(a.hi, b.hi)};
}
BOLIDE_INLINE f64x16 f64_sub(f64x16 a, f64x16 b) {
    return (f64x16){_mm512_sub_pd(a.lo, b.lo), _mm512_sub_pd(a.hi, b.hi)};
}
BOLIDE_INLINE f64x16 f64_mul(f64x16 a, f64x16 b) {
    return (f64x16){_mm512_mul_pd(a.lo, b.lo), _mm512_mul_pd(a.hi, b.hi)};
}
BOLIDE_INLINE f64x16 f32_to_f64(f32x16 a) {
    return (f64x16){_mm512_cvtps_pd(_mm512_castps512_ps256(a.v)),
                    _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1))};
}
BOLIDE_INLINE f32x16 f64_to_f32(f64x16 a) {
    return (f32x16){_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a.lo)),
                                       _mm512_cvtpd_ps(a.hi), 1)};
}
/* The low 32 bits of each double. */
BOLIDE_INLINE i32x16 f64_low_bits(f64x16 a) {
    const __m256i lo = _mm512_cvtepi64_epi32(_mm512_castpd_si512(a.lo));
    const __m256i hi = _mm512_cvtepi64_epi32(_mm512_castpd_si512(a.hi));
    return (i32x16){_mm512_inserti32x8(_mm512_castsi256_si512(lo), hi, 1)};
}

#endif
