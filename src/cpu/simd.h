// SPDX-License-Identifier: Apache-2.0
//
// The vocabulary of the CPU kernels: 16 logical lanes of f32 or i32 and a mask of 16 lanes, on
// every instruction set. A kernel is written once with these names and compiled once a set; the
// set decides how 16 lanes lie in registers:
//
//     baseline  4 x 4 lanes   generic vectors (SSE2 on x86-64, portable elsewhere); no fused FMA
//     avx2      2 x 8 lanes   masks are vectors
//     emu512    2 x 8 lanes   masks are 16 bits, as on AVX-512, and BOLIDE_SIMD_512 is 1
//     avx512    1 x 16 lanes
//
// Every function gives the same bits on avx2, emu512 and avx512, NaN payloads of arithmetic apart;
// baseline differs only where f32_fma is not fused. The primitives stand in simd_<set>.h, one file
// a representation; what follows from them is below and in
//     simd_convert.h   f16, bf16, fp8, integers: load16 and store16 of any dtype
//     simd_math.h      exp, log, sin, tanh, erf and the activations
//     simd_philox.h    the counter-based random numbers
//
// Conventions
//   x_load, x_store      16 elements, no alignment asked for
//   x_load_n, x_store_n  the first n of 16 (n below 0 is 0, above 16 is 16); memory behind them is
//                        neither read nor written; lanes behind them load as 0
//   f32_min, f32_max     min(a, b) = a < b ? a : b: the second operand if either is NaN. So
//                        f32_max(x, acc) skips a NaN x and f32_max(acc, x) takes it.
//   f32_round            to nearest even
//   f32_to_i32           towards zero, f32_to_i32_round to nearest even; INT32_MIN for NaN and
//                        for values outside int32
//   i32_stream           a store past the caches, to a multiple of 64 bytes; simd_stream_end()
//   comes
//                        behind the last. For results too large to be found in a cache later.
//   f32_sum, _hmax, _hmin  one fixed tree: lanes i and i+8, then +4, +2, +1

#ifndef BOLIDE_CPU_SIMD_H
#define BOLIDE_CPU_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define BOLIDE_INLINE static inline __attribute__((always_inline))

#if defined(BOLIDE_ISA_AVX512)
#define BOLIDE_ISA(name) bolide__##name##_avx512
#define BOLIDE_SIMD_512 1
#elif defined(BOLIDE_ISA_EMU512)
#define BOLIDE_ISA(name) bolide__##name##_emu512
#define BOLIDE_SIMD_512 1
#elif defined(BOLIDE_ISA_AVX2)
#define BOLIDE_ISA(name) bolide__##name##_avx2
#define BOLIDE_SIMD_512 0
#elif defined(BOLIDE_ISA_BASELINE)
#define BOLIDE_ISA(name) bolide__##name##_baseline
#define BOLIDE_SIMD_512 0
#else
#error "cpu/simd.h is for files named *_cpu.c, which the build compiles once an instruction set"
#endif

/* Full unrolling of the next loop, so that an array of vectors lives in registers. */
#if defined(__clang__)
#define BOLIDE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define BOLIDE_UNROLL _Pragma("GCC unroll 64")
#endif

enum { BOLIDE_LANES = 16 };

/* A result of at least so many bytes is stored past the caches: it is as large as the second cache
 * of today's cores, and a store into a cache would first read the line. */
enum { BOLIDE_STREAM_BYTES = 2 << 20 };

/* n as a count of lanes. */
BOLIDE_INLINE int simd_count(int64_t n) {
    return n < 0 ? 0 : n > BOLIDE_LANES ? BOLIDE_LANES : (int)n;
}

#if defined(BOLIDE_ISA_AVX512)
#include "cpu/simd_avx512.h"
#elif defined(BOLIDE_ISA_AVX2) || defined(BOLIDE_ISA_EMU512)
#include "cpu/simd_avx2.h"
#else
#include "cpu/simd_baseline.h"
#endif

/* ---- derived: masks ----------------------------------------------------------------------- */

BOLIDE_INLINE int mask_any(mask16 m) {
    return mask_bits(m) != 0;
}
BOLIDE_INLINE int mask_all(mask16 m) {
    return mask_bits(m) == 0xFFFFu;
}
BOLIDE_INLINE int mask_count(mask16 m) {
    return __builtin_popcount(mask_bits(m));
}
/* Number of the first lane set; 16 if there is none. */
BOLIDE_INLINE int mask_first_lane(mask16 m) {
    return __builtin_ctz(mask_bits(m) | 0x10000u);
}
/* The lanes with first <= lane < end. */
BOLIDE_INLINE mask16 mask_range(int64_t first, int64_t end) {
    return mask_and(mask_first(end), mask_not(mask_first(first)));
}

/* ---- derived: the first n elements -------------------------------------------------------- */

#if !defined(BOLIDE_ISA_BASELINE)

BOLIDE_INLINE f32x16 f32_load_n(const float *p, int64_t n) {
    if (!BOLIDE_SIMD_FREE_MASKS && n >= BOLIDE_LANES)
        return f32_load(p);
    return f32_load_mask(mask_first(n), p);
}
BOLIDE_INLINE void f32_store_n(float *p, f32x16 a, int64_t n) {
    if (!BOLIDE_SIMD_FREE_MASKS && n >= BOLIDE_LANES)
        f32_store(p, a);
    else
        f32_store_mask(p, mask_first(n), a);
}
BOLIDE_INLINE i32x16 i32_load_n(const int32_t *p, int64_t n) {
    if (!BOLIDE_SIMD_FREE_MASKS && n >= BOLIDE_LANES)
        return i32_load(p);
    return i32_load_mask(mask_first(n), p);
}
BOLIDE_INLINE void i32_store_n(int32_t *p, i32x16 a, int64_t n) {
    if (!BOLIDE_SIMD_FREE_MASKS && n >= BOLIDE_LANES)
        i32_store(p, a);
    else
        i32_store_mask(p, mask_first(n), a);
}

#endif

/* ---- derived: f32 ------------------------------------------------------------------------- */

BOLIDE_INLINE f32x16 f32_zero(void) {
    return f32_set(0.0f);
}
BOLIDE_INLINE mask16 f32_gt(f32x16 a, f32x16 b) {
    return f32_lt(b, a);
}
BOLIDE_INLINE mask16 f32_ge(f32x16 a, f32x16 b) {
    return f32_le(b, a);
}
BOLIDE_INLINE mask16 f32_isnan(f32x16 a) {
    return mask_not(f32_eq(a, a));
}
/* Lanes of a where m is set, else 0. */
BOLIDE_INLINE f32x16 f32_keep(mask16 m, f32x16 a) {
    return f32_select(m, a, f32_zero());
}
/* NaN if either is NaN. */
BOLIDE_INLINE f32x16 f32_max_nan(f32x16 a, f32x16 b) {
    return f32_select(f32_isnan(a), a, f32_max(a, b));
}
BOLIDE_INLINE f32x16 f32_min_nan(f32x16 a, f32x16 b) {
    return f32_select(f32_isnan(a), a, f32_min(a, b));
}
/* x held in [lo, hi]; NaN stays NaN. */
BOLIDE_INLINE f32x16 f32_clamp(f32x16 x, float lo, float hi) {
    return f32_min(f32_set(hi), f32_max(f32_set(lo), x));
}
BOLIDE_INLINE f32x16 f32_abs(f32x16 a) {
    return i32_as_f32(i32_and(f32_bits(a), i32_set(0x7FFFFFFF)));
}
BOLIDE_INLINE f32x16 f32_neg(f32x16 a) {
    return i32_as_f32(i32_xor(f32_bits(a), i32_set(INT32_MIN)));
}
/* The magnitude of a with the sign of s. */
BOLIDE_INLINE f32x16 f32_copysign(f32x16 a, f32x16 s) {
    return i32_as_f32(i32_or(i32_and(f32_bits(a), i32_set(0x7FFFFFFF)),
                             i32_and(f32_bits(s), i32_set(INT32_MIN))));
}
/* 1/sqrt(a) from the two correctly rounded steps: at most 1.5 ulp. */
BOLIDE_INLINE f32x16 f32_rsqrt(f32x16 a) {
    return f32_div(f32_set(1.0f), f32_sqrt(a));
}
BOLIDE_INLINE float f32_lane(f32x16 a, int lane) {
    float t[BOLIDE_LANES];
    f32_store(t, a);
    return t[lane];
}
/* Largest lane, smallest lane; NaN if a lane is NaN. */
BOLIDE_INLINE float f32_hmax(f32x16 a) {
    return mask_any(f32_isnan(a)) ? NAN : f32_hmax_tree(a);
}
BOLIDE_INLINE float f32_hmin(f32x16 a) {
    return mask_any(f32_isnan(a)) ? NAN : -f32_hmax_tree(f32_neg(a));
}
/* Inclusive prefix sum over the lanes, in a fixed order (steps of 1, 2, 4, 8). */
BOLIDE_INLINE f32x16 f32_scan(f32x16 a) {
    a = f32_add(a, f32_shift_up(a, 1));
    a = f32_add(a, f32_shift_up(a, 2));
    a = f32_add(a, f32_shift_up(a, 4));
    return f32_add(a, f32_shift_up(a, 8));
}
/* Lanes 2i and 2i+1 change places. */
BOLIDE_INLINE f32x16 f32_swap_pairs(f32x16 a) {
    return i32_as_f32(i32_swap_pairs(f32_bits(a)));
}

/* Writes the lanes of v that m selects to p, one behind the other, and nothing behind them; gives
 * their number. */
BOLIDE_INLINE int f32_compress_store(float *p, mask16 m, f32x16 v) {
    float t[BOLIDE_LANES];
    int count = 0;
    f32_store(t, v);
    for (uint32_t bits = mask_bits(m); bits; bits &= bits - 1)
        p[count++] = t[__builtin_ctz(bits)];
    return count;
}

/* ---- derived: i32 ------------------------------------------------------------------------- */

BOLIDE_INLINE i32x16 i32_zero(void) {
    return i32_set(0);
}
BOLIDE_INLINE mask16 i32_lt(i32x16 a, i32x16 b) {
    return i32_gt(b, a);
}
BOLIDE_INLINE mask16 i32_ge(i32x16 a, i32x16 b) {
    return mask_not(i32_gt(b, a));
}
BOLIDE_INLINE mask16 i32_le(i32x16 a, i32x16 b) {
    return mask_not(i32_gt(a, b));
}
/* As unsigned numbers. */
BOLIDE_INLINE mask16 u32_gt(i32x16 a, i32x16 b) {
    const i32x16 flip = i32_set(INT32_MIN);
    return i32_gt(i32_xor(a, flip), i32_xor(b, flip));
}
BOLIDE_INLINE i32x16 i32_min(i32x16 a, i32x16 b) {
    return i32_select(i32_gt(a, b), b, a);
}
BOLIDE_INLINE i32x16 i32_max(i32x16 a, i32x16 b) {
    return i32_select(i32_gt(a, b), a, b);
}
BOLIDE_INLINE int32_t i32_lane(i32x16 a, int lane) {
    int32_t t[BOLIDE_LANES];
    i32_store(t, a);
    return t[lane];
}
/* Wraps around. */
BOLIDE_INLINE int32_t i32_sum(i32x16 a) {
    int32_t t[BOLIDE_LANES];
    uint32_t s = 0;
    i32_store(t, a);
    for (int i = 0; i < BOLIDE_LANES; i++)
        s += (uint32_t)t[i];
    return (int32_t)s;
}
BOLIDE_INLINE int32_t i32_hmax(i32x16 a) {
    int32_t t[BOLIDE_LANES];
    i32_store(t, a);
    int32_t m = t[0];
    for (int i = 1; i < BOLIDE_LANES; i++)
        m = t[i] > m ? t[i] : m;
    return m;
}
BOLIDE_INLINE int32_t i32_hmin(i32x16 a) {
    int32_t t[BOLIDE_LANES];
    i32_store(t, a);
    int32_t m = t[0];
    for (int i = 1; i < BOLIDE_LANES; i++)
        m = t[i] < m ? t[i] : m;
    return m;
}
BOLIDE_INLINE int i32_compress_store(int32_t *p, mask16 m, i32x16 v) {
    int32_t t[BOLIDE_LANES];
    int count = 0;
    i32_store(t, v);
    for (uint32_t bits = mask_bits(m); bits; bits &= bits - 1)
        p[count++] = t[__builtin_ctz(bits)];
    return count;
}

#include "cpu/simd_convert.h"
#include "cpu/simd_math.h"
#include "cpu/simd_philox.h"

#endif
