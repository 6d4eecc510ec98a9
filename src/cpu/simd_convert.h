// SPDX-License-Identifier: Apache-2.0
//
// Elements of every dtype as 16 lanes of f32. Rounding is to nearest even everywhere. Included by
// simd.h only.
//
//     f16   overflow gives infinity; NaN keeps its sign and the top of its payload, and is quiet
//     bf16  likewise; loading is exact for signalling NaN too
//     e4m3  (e4m3fn: no infinity, 0x7F and 0xFF are NaN) and e5m2 store saturating, as the
//           quantisers need: values beyond the range and infinities give the largest finite
//           number, NaN gives 0x7F. This is what the GPU's saturating conversion does.
//     i8    rounded, held in [-128, 127], NaN gives 0; u8 and bool likewise in [0, 255]
//     i32   rounded, INT32_MIN for NaN and outside the range; loading rounds to f32

#ifndef BOLIDE_CPU_SIMD_CONVERT_H
#define BOLIDE_CPU_SIMD_CONVERT_H

#include <bolide/core.h>
#include <stdbool.h>

/* ---- bf16 --------------------------------------------------------------------------------- */

BOLIDE_INLINE f32x16 bf16_load(const void *p) {
    return i32_as_f32(i32_shl(u16_load(p), 16));
}
BOLIDE_INLINE f32x16 bf16_load_n(const void *p, int64_t n) {
    return i32_as_f32(i32_shl(u16_load_n(p, n), 16));
}
/* The 16 bits in the low half of each lane. Integer arithmetic, because the chip's instruction
 * takes denormals for zero. */
BOLIDE_INLINE i32x16 f32_to_bf16(f32x16 a) {
    const i32x16 u = f32_bits(a);
    const i32x16 high = i32_shr(u, 16);
    const i32x16 bias = i32_add(i32_and(high, i32_set(1)), i32_set(0x7FFF));
    return i32_select(f32_isnan(a), i32_or(high, i32_set(0x40)), i32_shr(i32_add(u, bias), 16));
}
BOLIDE_INLINE void bf16_store(void *p, f32x16 a) {
    u16_store(p, f32_to_bf16(a));
}
BOLIDE_INLINE void bf16_store_n(void *p, f32x16 a, int64_t n) {
    u16_store_n(p, f32_to_bf16(a), n);
}

/* 32 elements: those with an even place in v[0], those with an odd one in v[1]. Cheaper than two
 * loads or stores in order, for work whose lanes may lie in any. */
BOLIDE_INLINE void bf16_load_pair(const void *p, f32x16 v[2]) {
    const i32x16 words = i32_load((const int32_t *)p);
    v[0] = i32_as_f32(i32_shl(words, 16));
    v[1] = i32_as_f32(i32_and(words, i32_set((int32_t)0xFFFF0000)));
}
/* The rounded element in the high half of each lane, anything in the low one. */
BOLIDE_INLINE i32x16 simd_round_bf16(f32x16 a) {
    const i32x16 u = f32_bits(a);
    const i32x16 bias = i32_add(i32_and(i32_shr(u, 16), i32_set(1)), i32_set(0x7FFF));
    return i32_select(f32_isnan(a), i32_or(u, i32_set(0x400000)), i32_add(u, bias));
}
BOLIDE_INLINE i32x16 simd_bf16_pair(const f32x16 v[2]) {
    const i32x16 even = i32_shr(simd_round_bf16(v[0]), 16);
    const i32x16 odd = i32_and(simd_round_bf16(v[1]), i32_set((int32_t)0xFFFF0000));
    return i32_or(even, odd);
}
BOLIDE_INLINE void bf16_store_pair(void *p, const f32x16 v[2]) {
    i32_store((int32_t *)p, simd_bf16_pair(v));
}
/* Past the caches, to 64 bytes at an address that is a multiple of 64. */
BOLIDE_INLINE void bf16_stream_pair(void *p, const f32x16 v[2]) {
    i32_stream((int32_t *)p, simd_bf16_pair(v));
}

/* ---- small floats with integers ----------------------------------------------------------- */

/* Magnitude bits `em` of a format with `fraction` bits and exponent bias `bias`; the caller deals
 * with infinity and NaN. Denormals go through the integer, which no flush-to-zero mode touches. */
BOLIDE_INLINE f32x16 simd_widen_float(i32x16 em, int fraction, int bias) {
    const i32x16 normal =
        i32_add(i32_shl(em, 23 - fraction), i32_set((int32_t)((uint32_t)(127 - bias) << 23)));
    const int32_t unit = (int32_t)((uint32_t)(127 - bias + 1 - fraction) << 23);
    const f32x16 small = f32_mul(i32_to_f32(em), i32_as_f32(i32_set(unit)));
    return f32_select(i32_gt(i32_set(1 << fraction), em), small, i32_as_f32(normal));
}
/* Rounds the magnitude bits of an f32 that the format can hold (after rounding) to its bits. In
 * the range of its denormals the addition of a number whose last place is the format's does it. */
BOLIDE_INLINE i32x16 simd_narrow_float(i32x16 magnitude, int fraction, int bias) {
    const int drop = 23 - fraction;
    const i32x16 odd = i32_and(i32_shr(magnitude, drop), i32_set(1));
    const i32x16 rebias = i32_set((int32_t)((uint32_t)(127 - bias) << 23));
    const i32x16 half = i32_add(odd, i32_set((1 << (drop - 1)) - 1));
    const i32x16 normal = i32_shr(i32_add(i32_sub(magnitude, rebias), half), drop);
    const i32x16 anchor = i32_set((int32_t)((uint32_t)(127 - bias + 1 + drop) << 23));
    const i32x16 small =
        i32_sub(f32_bits(f32_add(i32_as_f32(magnitude), i32_as_f32(anchor))), anchor);
    const i32x16 least = i32_set((int32_t)((uint32_t)(127 - bias + 1) << 23));
    return i32_select(i32_gt(least, magnitude), small, normal);
}
/* fp8: saturates at the magnitude bits `largest` of an f32. */
BOLIDE_INLINE i32x16 simd_narrow_fp8(f32x16 a, int fraction, int bias, int32_t largest) {
    const i32x16 u = f32_bits(a);
    const i32x16 magnitude = i32_min(i32_and(u, i32_set(0x7FFFFFFF)), i32_set(largest));
    const i32x16 sign = i32_and(i32_shr(u, 24), i32_set(0x80));
    const i32x16 code = i32_or(simd_narrow_float(magnitude, fraction, bias), sign);
    return i32_select(f32_isnan(a), i32_set(0x7F), code);
}
/* The code in the low byte of each lane. */
BOLIDE_INLINE i32x16 f32_to_e4m3(f32x16 a) {
    return simd_narrow_fp8(a, 3, 7, 0x43E00000);
}
BOLIDE_INLINE i32x16 f32_to_e5m2(f32x16 a) {
    return simd_narrow_fp8(a, 2, 15, 0x47600000);
}
BOLIDE_INLINE void e4m3_store(void *p, f32x16 a) {
    u8_store(p, f32_to_e4m3(a));
}
BOLIDE_INLINE void e4m3_store_n(void *p, f32x16 a, int64_t n) {
    u8_store_n(p, f32_to_e4m3(a), n);
}
BOLIDE_INLINE void e5m2_store(void *p, f32x16 a) {
    u8_store(p, f32_to_e5m2(a));
}
BOLIDE_INLINE void e5m2_store_n(void *p, f32x16 a, int64_t n) {
    u8_store_n(p, f32_to_e5m2(a), n);
}

#if !BOLIDE_SIMD_HAS_F16

/* NaN comes out quiet, as from the chips' conversions. */
BOLIDE_INLINE f32x16 simd_f16_bits_to_f32(i32x16 h) {
    const i32x16 em = i32_and(h, i32_set(0x7FFF));
    const i32x16 sign = i32_shl(i32_and(h, i32_set(0x8000)), 16);
    const i32x16 finite = f32_bits(simd_widen_float(em, 10, 15));
    const i32x16 special = i32_or(i32_shl(em, 13), i32_set(0x7F800000));
    const i32x16 quiet =
        i32_select(i32_gt(em, i32_set(0x7C00)), i32_or(special, i32_set(0x400000)), special);
    return i32_as_f32(i32_or(i32_select(i32_gt(i32_set(0x7C00), em), finite, quiet), sign));
}
BOLIDE_INLINE i32x16 simd_f32_to_f16_bits(f32x16 a) {
    const i32x16 u = f32_bits(a);
    const i32x16 magnitude = i32_and(u, i32_set(0x7FFFFFFF));
    const i32x16 sign = i32_and(i32_shr(u, 16), i32_set(0x8000));
    /* From 65520 on the nearest is infinity. */
    const i32x16 held = i32_min(magnitude, i32_set(0x477FF000));
    const i32x16 nan = i32_or(i32_and(i32_shr(u, 13), i32_set(0x3FF)), i32_set(0x7E00));
    const i32x16 code = i32_select(f32_isnan(a), nan, simd_narrow_float(held, 10, 15));
    return i32_or(code, sign);
}
BOLIDE_INLINE f32x16 simd_e4m3_bits_to_f32(i32x16 b) {
    const i32x16 em = i32_and(b, i32_set(0x7F));
    const i32x16 sign = i32_shl(i32_and(b, i32_set(0x80)), 24);
    const i32x16 value = f32_bits(simd_widen_float(em, 3, 7));
    const i32x16 nan = i32_set(0x7FF00000);
    return i32_as_f32(i32_or(i32_select(i32_eq(em, i32_set(0x7F)), nan, value), sign));
}
BOLIDE_INLINE f32x16 f16_load(const void *p) {
    return simd_f16_bits_to_f32(u16_load(p));
}
BOLIDE_INLINE f32x16 f16_load_n(const void *p, int64_t n) {
    return simd_f16_bits_to_f32(u16_load_n(p, n));
}
BOLIDE_INLINE void f16_store(void *p, f32x16 a) {
    u16_store(p, simd_f32_to_f16_bits(a));
}
BOLIDE_INLINE void f16_store_n(void *p, f32x16 a, int64_t n) {
    u16_store_n(p, simd_f32_to_f16_bits(a), n);
}
BOLIDE_INLINE f32x16 e4m3_load(const void *p) {
    return simd_e4m3_bits_to_f32(u8_load(p));
}
BOLIDE_INLINE f32x16 e4m3_load_n(const void *p, int64_t n) {
    return simd_e4m3_bits_to_f32(u8_load_n(p, n));
}
BOLIDE_INLINE f32x16 e5m2_load(const void *p) {
    return simd_f16_bits_to_f32(i32_shl(u8_load(p), 8));
}
BOLIDE_INLINE f32x16 e5m2_load_n(const void *p, int64_t n) {
    return simd_f16_bits_to_f32(i32_shl(u8_load_n(p, n), 8));
}

#endif

/* ---- integers ----------------------------------------------------------------------------- */

BOLIDE_INLINE i32x16 f32_to_bounded(f32x16 a, float lo, float hi) {
    return f32_to_i32_round(f32_clamp(f32_keep(f32_eq(a, a), a), lo, hi));
}

/* ---- any dtype ---------------------------------------------------------------------------- */

/* Bytes of an element. */
BOLIDE_INLINE int64_t dtype_bytes(int64_t dtype) {
    switch (dtype) {
    case BOLIDE_F16:
    case BOLIDE_BF16:
        return 2;
    case BOLIDE_F8_E4M3FN:
    case BOLIDE_F8_E5M2:
    case BOLIDE_I8:
    case BOLIDE_U8:
    case BOLIDE_BOOL:
        return 1;
    default:
        return 4;
    }
}
/* Address of element i. */
BOLIDE_INLINE const void *dtype_at(const void *p, int64_t dtype, int64_t i) {
    return (const char *)p + i * dtype_bytes(dtype);
}
BOLIDE_INLINE void *dtype_at_mut(void *p, int64_t dtype, int64_t i) {
    return (char *)p + i * dtype_bytes(dtype);
}

/* dtype must be a constant after inlining: one of F32 F16 BF16 F8_E4M3FN F8_E5M2 I8 U8 BOOL I32.
 * The kernel is an always-inline generic function with a thin instance a dtype. */
BOLIDE_INLINE f32x16 load16(const void *p, int64_t dtype) {
    switch (dtype) {
    case BOLIDE_F16:
        return f16_load(p);
    case BOLIDE_BF16:
        return bf16_load(p);
    case BOLIDE_F8_E4M3FN:
        return e4m3_load(p);
    case BOLIDE_F8_E5M2:
        return e5m2_load(p);
    case BOLIDE_I8:
        return i32_to_f32(i8_load(p));
    case BOLIDE_U8:
    case BOLIDE_BOOL:
        return i32_to_f32(u8_load(p));
    case BOLIDE_I32:
        return i32_to_f32(i32_load((const int32_t *)p));
    default:
        return f32_load((const float *)p);
    }
}
BOLIDE_INLINE f32x16 load16_n(const void *p, int64_t dtype, int64_t n) {
    switch (dtype) {
    case BOLIDE_F16:
        return f16_load_n(p, n);
    case BOLIDE_BF16:
        return bf16_load_n(p, n);
    case BOLIDE_F8_E4M3FN:
        return e4m3_load_n(p, n);
    case BOLIDE_F8_E5M2:
        return e5m2_load_n(p, n);
    case BOLIDE_I8:
        return i32_to_f32(i8_load_n(p, n));
    case BOLIDE_U8:
    case BOLIDE_BOOL:
        return i32_to_f32(u8_load_n(p, n));
    case BOLIDE_I32:
        return i32_to_f32(i32_load_n((const int32_t *)p, n));
    default:
        return f32_load_n((const float *)p, n);
    }
}
BOLIDE_INLINE void store16(void *p, int64_t dtype, f32x16 a) {
    switch (dtype) {
    case BOLIDE_F16:
        f16_store(p, a);
        break;
    case BOLIDE_BF16:
        bf16_store(p, a);
        break;
    case BOLIDE_F8_E4M3FN:
        e4m3_store(p, a);
        break;
    case BOLIDE_F8_E5M2:
        e5m2_store(p, a);
        break;
    case BOLIDE_I8:
        u8_store(p, f32_to_bounded(a, -128.0f, 127.0f));
        break;
    case BOLIDE_U8:
    case BOLIDE_BOOL:
        u8_store(p, f32_to_bounded(a, 0.0f, 255.0f));
        break;
    case BOLIDE_I32:
        i32_store((int32_t *)p, f32_to_i32_round(a));
        break;
    default:
        f32_store((float *)p, a);
        break;
    }
}
BOLIDE_INLINE void store16_n(void *p, int64_t dtype, f32x16 a, int64_t n) {
    switch (dtype) {
    case BOLIDE_F16:
        f16_store_n(p, a, n);
        break;
    case BOLIDE_BF16:
        bf16_store_n(p, a, n);
        break;
    case BOLIDE_F8_E4M3FN:
        e4m3_store_n(p, a, n);
        break;
    case BOLIDE_F8_E5M2:
        e5m2_store_n(p, a, n);
        break;
    case BOLIDE_I8:
        u8_store_n(p, f32_to_bounded(a, -128.0f, 127.0f), n);
        break;
    case BOLIDE_U8:
    case BOLIDE_BOOL:
        u8_store_n(p, f32_to_bounded(a, 0.0f, 255.0f), n);
        break;
    case BOLIDE_I32:
        i32_store_n((int32_t *)p, f32_to_i32_round(a), n);
        break;
    default:
        f32_store_n((float *)p, a, n);
        break;
    }
}
static __attribute__((noinline, unused)) f32x16 simd_load_some(const void *p, int64_t dtype,
                                                               int64_t n) {
    return n >= BOLIDE_LANES ? load16(p, dtype) : load16_n(p, dtype, n);
}
static __attribute__((noinline, unused)) void simd_store_some(void *p, int64_t dtype, f32x16 a,
                                                              int64_t n) {
    if (n >= BOLIDE_LANES)
        store16(p, dtype, a);
    else
        store16_n(p, dtype, a, n);
}

/* Whether a conversion is short enough to stand at every use: without the chip's own instructions
 * those of the small formats are not. */
BOLIDE_INLINE bool simd_short(int64_t dtype) {
#if defined(BOLIDE_ISA_BASELINE)
    return dtype == BOLIDE_F32;
#else
    return dtype != 0;
#endif
}

/* Elements i … i+15 of a row in which `left` are left from i on: behind the end nothing is read
 * and lanes are 0, nothing is written. Where dtype and left (16) are constants this is one plain
 * load or store, else a call; so a loop over full groups shares its body with the rest of the row,
 * and an instance for one dtype with the one for any, without repeating every conversion. */
BOLIDE_INLINE f32x16 lanes_load(const void *row, int64_t dtype, int64_t i, int64_t left) {
    const void *p = dtype_at(row, dtype, i);
    if (__builtin_constant_p(dtype) && __builtin_constant_p(left) && left == BOLIDE_LANES &&
        simd_short(dtype))
        return load16(p, dtype);
    return simd_load_some(p, dtype, left);
}
BOLIDE_INLINE void lanes_store(void *row, int64_t dtype, int64_t i, int64_t left, f32x16 a) {
    void *p = dtype_at_mut(row, dtype, i);
    if (__builtin_constant_p(dtype) && __builtin_constant_p(left) && left == BOLIDE_LANES &&
        simd_short(dtype))
        store16(p, dtype, a);
    else
        simd_store_some(p, dtype, a, left);
}

/* What a value becomes when it is stored as dtype and loaded again. */
BOLIDE_INLINE f32x16 f32_through(f32x16 a, int64_t dtype) {
    if (dtype == BOLIDE_F32)
        return a;
    if (dtype == BOLIDE_BF16)
        return i32_as_f32(i32_shl(f32_to_bf16(a), 16));
    float t[BOLIDE_LANES];
    store16(t, dtype, a);
    return load16(t, dtype);
}

#endif
