// SPDX-License-Identifier: Apache-2.0
//
// The primitives of simd.h on AVX2 with FMA, F16C and BMI2: two registers of 8 lanes. It serves two
// sets. On avx2 a mask is two vectors, which the blends take as they are. On emu512 a mask is 16
// bits, as in the k registers of AVX-512, and is spread into vectors at each use; that set is for
// running the 512-bit code path on machines without it. Included by simd.h only; the names are
// explained there.

#ifndef BOLIDE_CPU_SIMD_AVX2_H
#define BOLIDE_CPU_SIMD_AVX2_H

#include <immintrin.h>

typedef struct f32x16 {
    __m256 lo, hi;
} f32x16;
typedef struct i32x16 {
    __m256i lo, hi;
} i32x16;
typedef struct f64x16 {
    __m256d v[4];
} f64x16;

/* A masked store takes dozens of steps on some chips. */
#define BOLIDE_SIMD_FREE_MASKS 0

/* ---- masks -------------------------------------------------------------------------------- */

BOLIDE_INLINE __m256i simd_spread(uint32_t bits) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), lane), lane);
}
BOLIDE_INLINE uint32_t simd_gather_bits(__m256i lo, __m256i hi) {
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(lo)) |
           (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(hi)) << 8;
}

#if BOLIDE_SIMD_512

typedef struct mask16 {
    uint16_t k;
} mask16;

BOLIDE_INLINE mask16 mask_of_bits(uint32_t bits) {
    return (mask16){(uint16_t)(bits & 0xFFFFu)};
}
BOLIDE_INLINE uint32_t mask_bits(mask16 m) {
    return (uint32_t)m.k;
}
BOLIDE_INLINE mask16 mask_first(int64_t n) {
    return mask_of_bits((1u << simd_count(n)) - 1u);
}
BOLIDE_INLINE mask16 mask_and(mask16 a, mask16 b) {
    return (mask16){(uint16_t)(a.k & b.k)};
}
BOLIDE_INLINE mask16 mask_or(mask16 a, mask16 b) {
    return (mask16){(uint16_t)(a.k | b.k)};
}
BOLIDE_INLINE mask16 mask_not(mask16 a) {
    return mask_of_bits(~mask_bits(a));
}
BOLIDE_INLINE __m256i simd_mask_lo(mask16 m) {
    return simd_spread(m.k & 0xFFu);
}
BOLIDE_INLINE __m256i simd_mask_hi(mask16 m) {
    return simd_spread((uint32_t)m.k >> 8);
}
BOLIDE_INLINE mask16 simd_mask(__m256i lo, __m256i hi) {
    return mask_of_bits(simd_gather_bits(lo, hi));
}

#else

typedef struct mask16 {
    __m256i lo, hi;
} mask16;

BOLIDE_INLINE mask16 mask_of_bits(uint32_t bits) {
    return (mask16){simd_spread(bits & 0xFFu), simd_spread(bits >> 8)};
}
BOLIDE_INLINE uint32_t mask_bits(mask16 m) {
    return simd_gather_bits(m.lo, m.hi);
}
BOLIDE_INLINE mask16 mask_first(int64_t n) {
    const __m256i count = _mm256_set1_epi32(simd_count(n));
    return (mask16){_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                    _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
BOLIDE_INLINE mask16 mask_and(mask16 a, mask16 b) {
    return (mask16){_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
BOLIDE_INLINE mask16 mask_or(mask16 a, mask16 b) {
    return (mask16){_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
BOLIDE_INLINE mask16 mask_not(mask16 a) {
    const __m256i ones = _mm256_set1_epi32(-1);
    return (mask16){_mm256_xor_si256(a.lo, ones), _mm256_xor_si256(a.hi, ones)};
}
BOLIDE_INLINE __m256i simd_mask_lo(mask16 m) {
    return m.lo;
}
BOLIDE_INLINE __m256i simd_mask_hi(mask16 m) {
    return m.hi;
}
BOLIDE_INLINE mask16 simd_mask(__m256i lo, __m256i hi) {
    return (mask16){lo, hi};
}

#endif

/* ---- f32 ---------------------------------------------------------------------------------- */

BOLIDE_INLINE f32x16 f32_set(float x) {
    return (f32x16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
BOLIDE_INLINE f32x16 f32_load(const float *p) {
    return (f32x16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
BOLIDE_INLINE void f32_store(float *p, f32x16 a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
BOLIDE_INLINE f32x16 f32_load_mask(mask16 m, const float *p) {
    return (f32x16){_mm256_maskload_ps(p, simd_mask_lo(m)),
                    _mm256_maskload_ps(p + 8, simd_mask_hi(m))};
}
BOLIDE_INLINE void f32_store_mask(float *p, mask16 m, f32x16 a) {
    _mm256_maskstore_ps(p, simd_mask_lo(m), a.lo);
    _mm256_maskstore_ps(p + 8, simd_mask_hi(m), a.hi);
}
BOLIDE_INLINE f32x16 f32_add(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
BOLIDE_INLINE f32x16 f32_sub(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
BOLIDE_INLINE f32x16 f32_mul(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
BOLIDE_INLINE f32x16 f32_div(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
BOLIDE_INLINE f32x16 f32_sqrt(f32x16 a) {
    return (f32x16){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
BOLIDE_INLINE f32x16 f32_fma(f32x16 a, f32x16 b, f32x16 c) {
    return (f32x16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
BOLIDE_INLINE f32x16 f32_fnma(f32x16 a, f32x16 b, f32x16 c) {
    return (f32x16){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
BOLIDE_INLINE f32x16 f32_min(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
BOLIDE_INLINE f32x16 f32_max(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
BOLIDE_INLINE mask16 f32_lt(f32x16 a, f32x16 b) {
    return simd_mask(_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
                     _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)));
}
BOLIDE_INLINE mask16 f32_le(f32x16 a, f32x16 b) {
    return simd_mask(_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, _CMP_LE_OQ)),
                     _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, _CMP_LE_OQ)));
}
BOLIDE_INLINE mask16 f32_eq(f32x16 a, f32x16 b) {
    return simd_mask(_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ)),
                     _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)));
}
BOLIDE_INLINE f32x16 f32_select(mask16 m, f32x16 a, f32x16 b) {
    return (f32x16){_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(simd_mask_lo(m))),
                    _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(simd_mask_hi(m)))};
}
BOLIDE_INLINE f32x16 f32_round(f32x16 a) {
    return (f32x16){_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                    _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
BOLIDE_INLINE f32x16 f32_floor(f32x16 a) {
    return (f32x16){_mm256_floor_ps(a.lo), _mm256_floor_ps(a.hi)};
}
BOLIDE_INLINE i32x16 f32_bits(f32x16 a) {
    return (i32x16){_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
BOLIDE_INLINE f32x16 i32_as_f32(i32x16 a) {
    return (f32x16){_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
BOLIDE_INLINE i32x16 f32_to_i32(f32x16 a) {
    return (i32x16){_mm256_cvttps_epi32(a.lo), _mm256_cvttps_epi32(a.hi)};
}
BOLIDE_INLINE i32x16 f32_to_i32_round(f32x16 a) {
    return (i32x16){_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
BOLIDE_INLINE f32x16 i32_to_f32(i32x16 a) {
    return (f32x16){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

/* ---- i32 ---------------------------------------------------------------------------------- */

BOLIDE_INLINE i32x16 i32_set(int32_t x) {
    return (i32x16){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
BOLIDE_INLINE i32x16 i32_iota(void) {
    return (i32x16){_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                    _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
BOLIDE_INLINE i32x16 i32_load(const int32_t *p) {
    return (i32x16){_mm256_loadu_si256((const __m256i *)p),
                    _mm256_loadu_si256((const __m256i *)(p + 8))};
}
BOLIDE_INLINE void i32_store(int32_t *p, i32x16 a) {
    _mm256_storeu_si256((__m256i *)p, a.lo);
    _mm256_storeu_si256((__m256i *)(p + 8), a.hi);
}
BOLIDE_INLINE void i32_stream(int32_t *p, i32x16 a) {
    _mm256_stream_si256((__m256i *)p, a.lo);
    _mm256_stream_si256((__m256i *)(p + 8), a.hi);
}
BOLIDE_INLINE void simd_stream_end(void) {
    _mm_sfence();
}
BOLIDE_INLINE i32x16 i32_load_mask(mask16 m, const int32_t *p) {
    return (i32x16){_mm256_maskload_epi32(p, simd_mask_lo(m)),
                    _mm256_maskload_epi32(p + 8, simd_mask_hi(m))};
}
BOLIDE_INLINE void i32_store_mask(int32_t *p, mask16 m, i32x16 a) {
    _mm256_maskstore_epi32(p, simd_mask_lo(m), a.lo);
    _mm256_maskstore_epi32(p + 8, simd_mask_hi(m), a.hi);
}
BOLIDE_INLINE i32x16 i32_add(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
BOLIDE_INLINE i32x16 i32_sub(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
BOLIDE_INLINE i32x16 i32_mul(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}
BOLIDE_INLINE i32x16 i32_and(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
BOLIDE_INLINE i32x16 i32_or(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
BOLIDE_INLINE i32x16 i32_xor(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
BOLIDE_INLINE i32x16 i32_shl(i32x16 a, int bits) {
    return (i32x16){_mm256_slli_epi32(a.lo, bits), _mm256_slli_epi32(a.hi, bits)};
}
BOLIDE_INLINE i32x16 i32_shr(i32x16 a, int bits) {
    return (i32x16){_mm256_srli_epi32(a.lo, bits), _mm256_srli_epi32(a.hi, bits)};
}
BOLIDE_INLINE i32x16 i32_sar(i32x16 a, int bits) {
    return (i32x16){_mm256_srai_epi32(a.lo, bits), _mm256_srai_epi32(a.hi, bits)};
}
BOLIDE_INLINE mask16 i32_eq(i32x16 a, i32x16 b) {
    return simd_mask(_mm256_cmpeq_epi32(a.lo, b.lo), _mm256_cmpeq_epi32(a.hi, b.hi));
}
BOLIDE_INLINE mask16 i32_gt(i32x16 a, i32x16 b) {
    return simd_mask(_mm256_cmpgt_epi32(a.lo, b.lo), _mm256_cmpgt_epi32(a.hi, b.hi));
}
BOLIDE_INLINE i32x16 i32_select(mask16 m, i32x16 a, i32x16 b) {
    return (i32x16){_mm256_blendv_epi8(b.lo, a.lo, simd_mask_lo(m)),
                    _mm256_blendv_epi8(b.hi, a.hi, simd_mask_hi(m))};
}
BOLIDE_INLINE void simd_mul_wide8(__m256i a, __m256i b, __m256i *hi, __m256i *lo) {
    const __m256i even = _mm256_mul_epu32(a, b);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    *hi = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *lo = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
BOLIDE_INLINE void u32_mul_wide(i32x16 a, i32x16 b, i32x16 *hi, i32x16 *lo) {
    simd_mul_wide8(a.lo, b.lo, &hi->lo, &lo->lo);
    simd_mul_wide8(a.hi, b.hi, &hi->hi, &lo->hi);
}

/* ---- narrow elements ---------------------------------------------------------------------- */

/* The first n of 16 bytes, from pieces that overlap instead of reaching past the end. */
BOLIDE_INLINE __m128i simd_load_bytes(const void *p, int n) {
    const char *c = (const char *)p;
    uint64_t lo = 0, hi = 0;
    if (n >= 16)
        return _mm_loadu_si128((const __m128i *)p);
    if (n >= 8) {
        memcpy(&lo, c, 8);
        if (n > 8) {
            memcpy(&hi, c + n - 8, 8);
            hi >>= 8 * (16 - n);
        }
    } else if (n >= 4) {
        uint32_t first, last;
        memcpy(&first, c, 4);
        memcpy(&last, c + n - 4, 4);
        lo = first | (uint64_t)last << (8 * (n - 4));
    } else if (n > 0) {
        const uint8_t first = (uint8_t)c[0], mid = (uint8_t)c[n / 2], last = (uint8_t)c[n - 1];
        lo = first | (uint64_t)mid << (8 * (n / 2)) | (uint64_t)last << (8 * (n - 1));
    }
    return _mm_set_epi64x((long long)hi, (long long)lo);
}
BOLIDE_INLINE void simd_store_bytes(void *p, __m128i v, int n) {
    char *c = (char *)p;
    if (n >= 16) {
        _mm_storeu_si128((__m128i *)p, v);
        return;
    }
    uint64_t lo = (uint64_t)_mm_cvtsi128_si64(v), hi = (uint64_t)_mm_extract_epi64(v, 1);
    if (n >= 8) {
        memcpy(c, &lo, 8);
        lo = hi;
        c += 8;
        n -= 8;
    }
    if (n & 4) {
        memcpy(c, &lo, 4);
        lo >>= 32;
        c += 4;
    }
    if (n & 2) {
        memcpy(c, &lo, 2);
        lo >>= 16;
        c += 2;
    }
    if (n & 1)
        memcpy(c, &lo, 1);
}
BOLIDE_INLINE __m256i simd_load_halves(const void *p, int n) {
    const __m128i lo = simd_load_bytes(p, n >= 8 ? 16 : 2 * n);
    const __m128i hi =
        n > 8 ? simd_load_bytes((const char *)p + 16, 2 * n - 16) : _mm_setzero_si128();
    return _mm256_set_m128i(hi, lo);
}
BOLIDE_INLINE void simd_store_halves(void *p, __m256i v, int n) {
    simd_store_bytes(p, _mm256_castsi256_si128(v), n >= 8 ? 16 : 2 * n);
    if (n > 8)
        simd_store_bytes((char *)p + 16, _mm256_extracti128_si256(v, 1), 2 * n - 16);
}

BOLIDE_INLINE i32x16 simd_widen_u8(__m128i v) {
    return (i32x16){_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))};
}
BOLIDE_INLINE i32x16 simd_widen_i8(__m128i v) {
    return (i32x16){_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))};
}
BOLIDE_INLINE i32x16 simd_widen_u16(__m256i v) {
    return (i32x16){_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                    _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1))};
}
/* The low halves of 16 lanes: masked, so that the saturating pack keeps them. */
BOLIDE_INLINE __m256i simd_narrow16(i32x16 a) {
    const __m256i low = _mm256_set1_epi32(0xFFFF);
    const __m256i packed =
        _mm256_packus_epi32(_mm256_and_si256(a.lo, low), _mm256_and_si256(a.hi, low));
    return _mm256_permute4x64_epi64(packed, 0xD8);
}
BOLIDE_INLINE __m128i simd_narrow8(i32x16 a) {
    const __m256i h = _mm256_and_si256(simd_narrow16(a), _mm256_set1_epi16(0xFF));
    return _mm_packus_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
BOLIDE_INLINE i32x16 u8_load(const void *p) {
    return simd_widen_u8(_mm_loadu_si128((const __m128i *)p));
}
BOLIDE_INLINE i32x16 u8_load_n(const void *p, int64_t n) {
    return simd_widen_u8(simd_load_bytes(p, simd_count(n)));
}
BOLIDE_INLINE i32x16 i8_load(const void *p) {
    return simd_widen_i8(_mm_loadu_si128((const __m128i *)p));
}
BOLIDE_INLINE i32x16 i8_load_n(const void *p, int64_t n) {
    return simd_widen_i8(simd_load_bytes(p, simd_count(n)));
}
BOLIDE_INLINE i32x16 u16_load(const void *p) {
    return simd_widen_u16(_mm256_loadu_si256((const __m256i *)p));
}
BOLIDE_INLINE i32x16 u16_load_n(const void *p, int64_t n) {
    return simd_widen_u16(simd_load_halves(p, simd_count(n)));
}
BOLIDE_INLINE void u8_store(void *p, i32x16 a) {
    _mm_storeu_si128((__m128i *)p, simd_narrow8(a));
}
BOLIDE_INLINE void u8_store_n(void *p, i32x16 a, int64_t n) {
    simd_store_bytes(p, simd_narrow8(a), simd_count(n));
}
BOLIDE_INLINE void u16_store(void *p, i32x16 a) {
    _mm256_storeu_si256((__m256i *)p, simd_narrow16(a));
}
BOLIDE_INLINE void u16_store_n(void *p, i32x16 a, int64_t n) {
    simd_store_halves(p, simd_narrow16(a), simd_count(n));
}

/* ---- f16 and fp8 through the chip's f16 conversion ---------------------------------------- */

#define BOLIDE_SIMD_HAS_F16 1

BOLIDE_INLINE f32x16 simd_f16_to_f32(__m256i v) {
    return (f32x16){_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))};
}
BOLIDE_INLINE __m256i simd_f32_to_f16(f32x16 a) {
    return _mm256_set_m128i(_mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
}
BOLIDE_INLINE f32x16 f16_load(const void *p) {
    return simd_f16_to_f32(_mm256_loadu_si256((const __m256i *)p));
}
BOLIDE_INLINE f32x16 f16_load_n(const void *p, int64_t n) {
    return simd_f16_to_f32(simd_load_halves(p, simd_count(n)));
}
BOLIDE_INLINE void f16_store(void *p, f32x16 a) {
    _mm256_storeu_si256((__m256i *)p, simd_f32_to_f16(a));
}
BOLIDE_INLINE void f16_store_n(void *p, f32x16 a, int64_t n) {
    simd_store_halves(p, simd_f32_to_f16(a), simd_count(n));
}
/* e4m3 is f16 with the exponent bias 8 smaller and 7 fewer bits of fraction; 0x7F is NaN. */
BOLIDE_INLINE f32x16 simd_e4m3_to_f32(__m128i bytes) {
    const __m256i b = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7);
    const __m256i magnitude = _mm256_and_si256(b, _mm256_set1_epi16(0x3F80));
    const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3F80)),
                                         _mm256_set1_epi16(0x7F80));
    const __m256i sign =
        _mm256_and_si256(_mm256_slli_epi16(b, 1), _mm256_set1_epi16((short)0x8000));
    const f32x16 f = simd_f16_to_f32(_mm256_or_si256(_mm256_or_si256(magnitude, nan), sign));
    return (f32x16){_mm256_mul_ps(f.lo, _mm256_set1_ps(256.0f)),
                    _mm256_mul_ps(f.hi, _mm256_set1_ps(256.0f))};
}
BOLIDE_INLINE f32x16 simd_e5m2_to_f32(__m128i bytes) {
    return simd_f16_to_f32(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8));
}
BOLIDE_INLINE f32x16 e4m3_load(const void *p) {
    return simd_e4m3_to_f32(_mm_loadu_si128((const __m128i *)p));
}
BOLIDE_INLINE f32x16 e4m3_load_n(const void *p, int64_t n) {
    return simd_e4m3_to_f32(simd_load_bytes(p, simd_count(n)));
}
BOLIDE_INLINE f32x16 e5m2_load(const void *p) {
    return simd_e5m2_to_f32(_mm_loadu_si128((const __m128i *)p));
}
BOLIDE_INLINE f32x16 e5m2_load_n(const void *p, int64_t n) {
    return simd_e5m2_to_f32(simd_load_bytes(p, simd_count(n)));
}

/* ---- permutations, reductions, gathers ---------------------------------------------------- */

BOLIDE_INLINE i32x16 i32_swap_pairs(i32x16 a) {
    return (i32x16){_mm256_shuffle_epi32(a.lo, 0xB1), _mm256_shuffle_epi32(a.hi, 0xB1)};
}
BOLIDE_INLINE f32x16 f32_dup_even(f32x16 a) {
    return (f32x16){_mm256_moveldup_ps(a.lo), _mm256_moveldup_ps(a.hi)};
}
BOLIDE_INLINE f32x16 f32_dup_odd(f32x16 a) {
    return (f32x16){_mm256_movehdup_ps(a.lo), _mm256_movehdup_ps(a.hi)};
}
BOLIDE_INLINE __m256 simd_pick_pairs(__m256 a, __m256 b, int odd) {
    const __m256 s = odd ? _mm256_shuffle_ps(a, b, 0xDD) : _mm256_shuffle_ps(a, b, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(s), 0xD8));
}
BOLIDE_INLINE void f32_deinterleave(f32x16 a, f32x16 b, f32x16 *even, f32x16 *odd) {
    *even = (f32x16){simd_pick_pairs(a.lo, a.hi, 0), simd_pick_pairs(b.lo, b.hi, 0)};
    *odd = (f32x16){simd_pick_pairs(a.lo, a.hi, 1), simd_pick_pairs(b.lo, b.hi, 1)};
}
BOLIDE_INLINE f32x16 simd_zip(__m256 even, __m256 odd) {
    const __m256 lo = _mm256_unpacklo_ps(even, odd), hi = _mm256_unpackhi_ps(even, odd);
    return (f32x16){_mm256_permute2f128_ps(lo, hi, 0x20), _mm256_permute2f128_ps(lo, hi, 0x31)};
}
BOLIDE_INLINE void f32_interleave(f32x16 even, f32x16 odd, f32x16 *a, f32x16 *b) {
    *a = simd_zip(even.lo, odd.lo);
    *b = simd_zip(even.hi, odd.hi);
}
/* Lane i of the result is lane i - k of a, 0 below k; k is 1, 2, 4 or 8. */
BOLIDE_INLINE f32x16 f32_shift_up(f32x16 a, int k) {
    if (k == 8)
        return (f32x16){_mm256_setzero_ps(), a.lo};
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i from = _mm256_sub_epi32(lane, _mm256_set1_epi32(k));
    const __m256 low = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(k), lane));
    const __m256 lo = _mm256_permutevar8x32_ps(a.lo, from);
    const __m256 hi = _mm256_permutevar8x32_ps(a.hi, from);
    return (f32x16){_mm256_andnot_ps(low, lo), _mm256_blendv_ps(hi, lo, low)};
}
BOLIDE_INLINE float f32_sum(f32x16 a) {
    const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
BOLIDE_INLINE float f32_hmax_tree(f32x16 a) {
    const __m256 s8 = _mm256_max_ps(a.lo, a.hi);
    const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}
BOLIDE_INLINE f32x16 f32_gather(const float *p, i32x16 index) {
    return (f32x16){_mm256_i32gather_ps(p, index.lo, 4), _mm256_i32gather_ps(p, index.hi, 4)};
}
BOLIDE_INLINE f32x16 f32_gather_mask(mask16 m, const float *p, i32x16 index) {
    const __m256 zero = _mm256_setzero_ps();
    return (f32x16){
        _mm256_mask_i32gather_ps(zero, p, index.lo, _mm256_castsi256_ps(simd_mask_lo(m)), 4),
        _mm256_mask_i32gather_ps(zero, p, index.hi, _mm256_castsi256_ps(simd_mask_hi(m)), 4)};
}

BOLIDE_INLINE void simd_transpose8(__m256 r[8]) {
    __m256 a[8], b[8];
    BOLIDE_UNROLL
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    BOLIDE_UNROLL
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xEE);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
    }
    BOLIDE_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}
/* r[i] lane j and r[j] lane i change places. */
BOLIDE_INLINE void f32_transpose16(f32x16 r[16]) {
    __m256 q[4][8];
    BOLIDE_UNROLL
    for (int i = 0; i < 8; i++) {
        q[0][i] = r[i].lo;
        q[1][i] = r[i].hi;
        q[2][i] = r[i + 8].lo;
        q[3][i] = r[i + 8].hi;
    }
    simd_transpose8(q[0]);
    simd_transpose8(q[1]);
    simd_transpose8(q[2]);
    simd_transpose8(q[3]);
    BOLIDE_UNROLL
    for (int i = 0; i < 8; i++) {
        r[i] = (f32x16){q[0][i], q[2][i]};
        r[i + 8] = (f32x16){q[1][i], q[3][i]};
    }
}

/* ---- f64: what the reduction of large angles needs ---------------------------------------- */

BOLIDE_INLINE f64x16 f64_set(double x) {
    const __m256d v = _mm256_set1_pd(x);
    return (f64x16){{v, v, v, v}};
}
BOLIDE_INLINE f64x16 f64_load(const double *p) {
    return (f64x16){{_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4), _mm256_loadu_pd(p + 8),
                     _mm256_loadu_pd(p + 12)}};
}
BOLIDE_INLINE f64x16 f64_load_n(const double *p, int64_t n) {
    double t[BOLIDE_LANES] = {0};
    const int count = simd_count(n);
    for (int i = 0; i < count; i++)
        t[i] = p[i];
    return f64_load(t);
}
BOLIDE_INLINE f64x16 f64_add(f64x16 a, f64x16 b) {
    for (int i = 0; i < 4; i++)
        a.v[i] = _mm256_add_pd(a.v[i], b.v[i]);
    return a;
}
BOLIDE_INLINE f64x16 f64_sub(f64x16 a, f64x16 b) {
    for (int i = 0; i < 4; i++)
        a.v[i] = _mm256_sub_pd(a.v[i], b.v[i]);
    return a;
}
BOLIDE_INLINE f64x16 f64_mul(f64x16 a, f64x16 b) {
    for (int i = 0; i < 4; i++)
        a.v[i] = _mm256_mul_pd(a.v[i], b.v[i]);
    return a;
}
BOLIDE_INLINE f64x16 f32_to_f64(f32x16 a) {
    return (f64x16){{_mm256_cvtps_pd(_mm256_castps256_ps128(a.lo)),
                     _mm256_cvtps_pd(_mm256_extractf128_ps(a.lo, 1)),
                     _mm256_cvtps_pd(_mm256_castps256_ps128(a.hi)),
                     _mm256_cvtps_pd(_mm256_extractf128_ps(a.hi, 1))}};
}
BOLIDE_INLINE f32x16 f64_to_f32(f64x16 a) {
    return (f32x16){_mm256_set_m128(_mm256_cvtpd_ps(a.v[1]), _mm256_cvtpd_ps(a.v[0])),
                    _mm256_set_m128(_mm256_cvtpd_ps(a.v[3]), _mm256_cvtpd_ps(a.v[2]))};
}
/* The low 32 bits of each double. */
BOLIDE_INLINE i32x16 f64_low_bits(f64x16 a) {
    return (i32x16){
        _mm256_castps_si256(simd_pick_pairs(_mm256_castpd_ps(a.v[0]), _mm256_castpd_ps(a.v[1]), 0)),
        _mm256_castps_si256(
            simd_pick_pairs(_mm256_castpd_ps(a.v[2]), _mm256_castpd_ps(a.v[3]), 0))};
}

#endif
