// SPDX-License-Identifier: Apache-2.0
//
// The primitives of simd.h on the compiler's generic vectors, four of 4 lanes: SSE2 on x86-64, Neon
// or plain code elsewhere. It is the fallback of every machine, so it is kept short: what SSE2 has
// no instruction for is a loop over lanes. f32_fma multiplies, rounds, adds and rounds, which makes
// this set its own class of results. Included by simd.h only; the names are explained there.

#ifndef BOLIDE_CPU_SIMD_BASELINE_H
#define BOLIDE_CPU_SIMD_BASELINE_H

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

typedef float simd_f32v __attribute__((vector_size(16)));
typedef int32_t simd_i32v __attribute__((vector_size(16)));
typedef uint32_t simd_u32v __attribute__((vector_size(16)));

typedef struct f32x16 {
    simd_f32v v[4];
} f32x16;
typedef struct i32x16 {
    simd_i32v v[4];
} i32x16;
typedef struct f64x16 {
    double v[16];
} f64x16;
/* All ones or all zeros a lane. */
typedef struct mask16 {
    simd_i32v v[4];
} mask16;

/* One expression for each of the four parts i. */
#define SIMD_PARTS(type, expr)                                                                     \
    type r;                                                                                        \
    BOLIDE_UNROLL                                                                                  \
    for (int i = 0; i < 4; i++)                                                                    \
        r.v[i] = (expr);                                                                           \
    return r

/* ---- i32: loads first, the masks need them ------------------------------------------------ */

BOLIDE_INLINE i32x16 i32_set(int32_t x) {
    SIMD_PARTS(i32x16, ((simd_i32v){x, x, x, x}));
}
BOLIDE_INLINE i32x16 i32_iota(void) {
    SIMD_PARTS(i32x16, ((simd_i32v){4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3}));
}
BOLIDE_INLINE i32x16 i32_load(const int32_t *p) {
    i32x16 r;
    memcpy(&r, p, sizeof r);
    return r;
}
BOLIDE_INLINE void i32_store(int32_t *p, i32x16 a) {
    memcpy(p, &a, sizeof a);
}
BOLIDE_INLINE void i32_stream(int32_t *p, i32x16 a) {
    i32_store(p, a);
}
BOLIDE_INLINE void simd_stream_end(void) {
}

/* ---- masks -------------------------------------------------------------------------------- */

BOLIDE_INLINE mask16 mask_of_bits(uint32_t bits) {
    int32_t t[BOLIDE_LANES];
    mask16 r;
    for (int i = 0; i < BOLIDE_LANES; i++)
        t[i] = -(int32_t)(bits >> i & 1u);
    memcpy(&r, t, sizeof r);
    return r;
}
BOLIDE_INLINE uint32_t mask_bits(mask16 m) {
    uint32_t bits = 0;
#if defined(__SSE2__)
    for (int i = 0; i < 4; i++)
        bits |= (uint32_t)_mm_movemask_ps((__m128)m.v[i]) << (4 * i);
#else
    for (int i = 0; i < BOLIDE_LANES; i++)
        bits |= (uint32_t)(m.v[i / 4][i % 4] & 1) << i;
#endif
    return bits;
}
BOLIDE_INLINE mask16 mask_first(int64_t n) {
    const i32x16 iota = i32_iota(), count = i32_set(simd_count(n));
    SIMD_PARTS(mask16, iota.v[i] < count.v[i]);
}
BOLIDE_INLINE mask16 mask_and(mask16 a, mask16 b) {
    SIMD_PARTS(mask16, a.v[i] & b.v[i]);
}
BOLIDE_INLINE mask16 mask_or(mask16 a, mask16 b) {
    SIMD_PARTS(mask16, a.v[i] | b.v[i]);
}
BOLIDE_INLINE mask16 mask_not(mask16 a) {
    SIMD_PARTS(mask16, ~a.v[i]);
}

/* ---- i32 ---------------------------------------------------------------------------------- */

BOLIDE_INLINE i32x16 i32_add(i32x16 a, i32x16 b) {
    SIMD_PARTS(i32x16, (simd_i32v)((simd_u32v)a.v[i] + (simd_u32v)b.v[i]));
}
BOLIDE_INLINE i32x16 i32_sub(i32x16 a, i32x16 b) {
    SIMD_PARTS(i32x16, (simd_i32v)((simd_u32v)a.v[i] - (simd_u32v)b.v[i]));
}
BOLIDE_INLINE i32x16 i32_mul(i32x16 a, i32x16 b) {
    SIMD_PARTS(i32x16, (simd_i32v)((simd_u32v)a.v[i] * (simd_u32v)b.v[i]));
}
BOLIDE_INLINE i32x16 i32_and(i32x16 a, i32x16 b) {
    SIMD_PARTS(i32x16, a.v[i] & b.v[i]);
}
BOLIDE_INLINE i32x16 i32_or(i32x16 a, i32x16 b) {
    SIMD_PARTS(i32x16, a.v[i] | b.v[i]);
}
BOLIDE_INLINE i32x16 i32_xor(i32x16 a, i32x16 b) {
    SIMD_PARTS(i32x16, a.v[i] ^ b.v[i]);
}
BOLIDE_INLINE i32x16 i32_shl(i32x16 a, int bits) {
    SIMD_PARTS(i32x16, (simd_i32v)((simd_u32v)a.v[i] << bits));
}
BOLIDE_INLINE i32x16 i32_shr(i32x16 a, int bits) {
    SIMD_PARTS(i32x16, (simd_i32v)((simd_u32v)a.v[i] >> bits));
}
BOLIDE_INLINE i32x16 i32_sar(i32x16 a, int bits) {
    SIMD_PARTS(i32x16, a.v[i] >> bits);
}
BOLIDE_INLINE mask16 i32_eq(i32x16 a, i32x16 b) {
    SIMD_PARTS(mask16, a.v[i] == b.v[i]);
}
BOLIDE_INLINE mask16 i32_gt(i32x16 a, i32x16 b) {
    SIMD_PARTS(mask16, a.v[i] > b.v[i]);
}
BOLIDE_INLINE i32x16 i32_select(mask16 m, i32x16 a, i32x16 b) {
    SIMD_PARTS(i32x16, (m.v[i] & a.v[i]) | (~m.v[i] & b.v[i]));
}
BOLIDE_INLINE i32x16 i32_load_mask(mask16 m, const int32_t *p) {
    int32_t t[BOLIDE_LANES] = {0};
    const uint32_t bits = mask_bits(m);
    for (int i = 0; i < BOLIDE_LANES; i++)
        if (bits >> i & 1u)
            t[i] = p[i];
    return i32_load(t);
}
BOLIDE_INLINE void i32_store_mask(int32_t *p, mask16 m, i32x16 a) {
    int32_t t[BOLIDE_LANES];
    const uint32_t bits = mask_bits(m);
    i32_store(t, a);
    for (int i = 0; i < BOLIDE_LANES; i++)
        if (bits >> i & 1u)
            p[i] = t[i];
}
BOLIDE_INLINE i32x16 i32_load_n(const int32_t *p, int64_t n) {
    int32_t t[BOLIDE_LANES] = {0};
    const int count = simd_count(n);
    for (int i = 0; i < count; i++)
        t[i] = p[i];
    return i32_load(t);
}
BOLIDE_INLINE void i32_store_n(int32_t *p, i32x16 a, int64_t n) {
    int32_t t[BOLIDE_LANES];
    const int count = simd_count(n);
    i32_store(t, a);
    for (int i = 0; i < count; i++)
        p[i] = t[i];
}
BOLIDE_INLINE void u32_mul_wide(i32x16 a, i32x16 b, i32x16 *hi, i32x16 *lo) {
    int32_t x[BOLIDE_LANES], y[BOLIDE_LANES];
    i32_store(x, a);
    i32_store(y, b);
    for (int i = 0; i < BOLIDE_LANES; i++) {
        const uint64_t product = (uint64_t)(uint32_t)x[i] * (uint32_t)y[i];
        x[i] = (int32_t)(uint32_t)(product >> 32);
        y[i] = (int32_t)(uint32_t)product;
    }
    *hi = i32_load(x);
    *lo = i32_load(y);
}

/* ---- f32 ---------------------------------------------------------------------------------- */

BOLIDE_INLINE f32x16 f32_set(float x) {
    SIMD_PARTS(f32x16, ((simd_f32v){x, x, x, x}));
}
BOLIDE_INLINE i32x16 f32_bits(f32x16 a) {
    SIMD_PARTS(i32x16, (simd_i32v)a.v[i]);
}
BOLIDE_INLINE f32x16 i32_as_f32(i32x16 a) {
    SIMD_PARTS(f32x16, (simd_f32v)a.v[i]);
}
BOLIDE_INLINE f32x16 f32_load(const float *p) {
    f32x16 r;
    memcpy(&r, p, sizeof r);
    return r;
}
BOLIDE_INLINE void f32_store(float *p, f32x16 a) {
    memcpy(p, &a, sizeof a);
}
BOLIDE_INLINE f32x16 f32_load_mask(mask16 m, const float *p) {
    float t[BOLIDE_LANES] = {0};
    const uint32_t bits = mask_bits(m);
    for (int i = 0; i < BOLIDE_LANES; i++)
        if (bits >> i & 1u)
            t[i] = p[i];
    return f32_load(t);
}
BOLIDE_INLINE void f32_store_mask(float *p, mask16 m, f32x16 a) {
    float t[BOLIDE_LANES];
    const uint32_t bits = mask_bits(m);
    f32_store(t, a);
    for (int i = 0; i < BOLIDE_LANES; i++)
        if (bits >> i & 1u)
            p[i] = t[i];
}
BOLIDE_INLINE f32x16 f32_load_n(const float *p, int64_t n) {
    float t[BOLIDE_LANES] = {0};
    const int count = simd_count(n);
    for (int i = 0; i < count; i++)
        t[i] = p[i];
    return f32_load(t);
}
BOLIDE_INLINE void f32_store_n(float *p, f32x16 a, int64_t n) {
    float t[BOLIDE_LANES];
    const int count = simd_count(n);
    f32_store(t, a);
    for (int i = 0; i < count; i++)
        p[i] = t[i];
}
BOLIDE_INLINE f32x16 f32_add(f32x16 a, f32x16 b) {
    SIMD_PARTS(f32x16, a.v[i] + b.v[i]);
}
BOLIDE_INLINE f32x16 f32_sub(f32x16 a, f32x16 b) {
    SIMD_PARTS(f32x16, a.v[i] - b.v[i]);
}
BOLIDE_INLINE f32x16 f32_mul(f32x16 a, f32x16 b) {
    SIMD_PARTS(f32x16, a.v[i] * b.v[i]);
}
BOLIDE_INLINE f32x16 f32_div(f32x16 a, f32x16 b) {
    SIMD_PARTS(f32x16, a.v[i] / b.v[i]);
}
BOLIDE_INLINE f32x16 f32_sqrt(f32x16 a) {
#if defined(__SSE2__)
    SIMD_PARTS(f32x16, (simd_f32v)_mm_sqrt_ps((__m128)a.v[i]));
#else
    SIMD_PARTS(f32x16, ((simd_f32v){sqrtf(a.v[i][0]), sqrtf(a.v[i][1]), sqrtf(a.v[i][2]),
                                    sqrtf(a.v[i][3])}));
#endif
}
BOLIDE_INLINE f32x16 f32_fma(f32x16 a, f32x16 b, f32x16 c) {
    SIMD_PARTS(f32x16, a.v[i] * b.v[i] + c.v[i]);
}
BOLIDE_INLINE f32x16 f32_fnma(f32x16 a, f32x16 b, f32x16 c) {
    SIMD_PARTS(f32x16, c.v[i] - a.v[i] * b.v[i]);
}
BOLIDE_INLINE mask16 f32_lt(f32x16 a, f32x16 b) {
    SIMD_PARTS(mask16, a.v[i] < b.v[i]);
}
BOLIDE_INLINE mask16 f32_le(f32x16 a, f32x16 b) {
    SIMD_PARTS(mask16, a.v[i] <= b.v[i]);
}
BOLIDE_INLINE mask16 f32_eq(f32x16 a, f32x16 b) {
    SIMD_PARTS(mask16, a.v[i] == b.v[i]);
}
BOLIDE_INLINE f32x16 f32_select(mask16 m, f32x16 a, f32x16 b) {
    return i32_as_f32(i32_select(m, f32_bits(a), f32_bits(b)));
}
BOLIDE_INLINE f32x16 f32_min(f32x16 a, f32x16 b) {
#if defined(__SSE2__)
    SIMD_PARTS(f32x16, (simd_f32v)_mm_min_ps((__m128)a.v[i], (__m128)b.v[i]));
#else
    return f32_select(f32_lt(a, b), a, b);
#endif
}
BOLIDE_INLINE f32x16 f32_max(f32x16 a, f32x16 b) {
#if defined(__SSE2__)
    SIMD_PARTS(f32x16, (simd_f32v)_mm_max_ps((__m128)a.v[i], (__m128)b.v[i]));
#else
    return f32_select(f32_lt(b, a), a, b);
#endif
}
/* Adding 2^23 leaves no bits of a fraction; larger numbers and NaN have none already. */
BOLIDE_INLINE f32x16 f32_round(f32x16 a) {
    const i32x16 sign = i32_and(f32_bits(a), i32_set(INT32_MIN));
    const f32x16 magnitude = i32_as_f32(i32_xor(f32_bits(a), sign));
    const f32x16 big = f32_set(8388608.0f);
    const f32x16 r = f32_sub(f32_add(magnitude, big), big);
    return i32_as_f32(i32_or(f32_bits(f32_select(f32_lt(magnitude, big), r, magnitude)), sign));
}
BOLIDE_INLINE f32x16 f32_floor(f32x16 a) {
    const f32x16 r = f32_round(a);
    return f32_sub(r, f32_select(f32_lt(a, r), f32_set(1.0f), f32_set(0.0f)));
}
BOLIDE_INLINE i32x16 f32_to_i32(f32x16 a) {
    const f32x16 limit = f32_set(2147483648.0f);
    const mask16 fits = mask_and(f32_lt(a, limit), f32_le(f32_sub(f32_set(0.0f), limit), a));
    const f32x16 safe = f32_select(fits, a, f32_set(0.0f));
    i32x16 r;
    for (int i = 0; i < 4; i++)
        r.v[i] = __builtin_convertvector(safe.v[i], simd_i32v);
    return i32_select(fits, r, i32_set(INT32_MIN));
}
BOLIDE_INLINE i32x16 f32_to_i32_round(f32x16 a) {
    return f32_to_i32(f32_round(a));
}
BOLIDE_INLINE f32x16 i32_to_f32(i32x16 a) {
    SIMD_PARTS(f32x16, __builtin_convertvector(a.v[i], simd_f32v));
}

/* ---- narrow elements ---------------------------------------------------------------------- */

#define SIMD_NARROW_LOAD(name, type)                                                               \
    BOLIDE_INLINE i32x16 name##_n(const void *p, int64_t n) {                                      \
        type e[BOLIDE_LANES] = {0};                                                                \
        int32_t t[BOLIDE_LANES];                                                                   \
        memcpy(e, p, (size_t)simd_count(n) * sizeof(type));                                        \
        for (int i = 0; i < BOLIDE_LANES; i++)                                                     \
            t[i] = e[i];                                                                           \
        return i32_load(t);                                                                        \
    }                                                                                              \
    BOLIDE_INLINE i32x16 name(const void *p) {                                                     \
        return name##_n(p, BOLIDE_LANES);                                                          \
    }
#define SIMD_NARROW_STORE(name, type)                                                              \
    BOLIDE_INLINE void name##_n(void *p, i32x16 a, int64_t n) {                                    \
        type e[BOLIDE_LANES];                                                                      \
        int32_t t[BOLIDE_LANES];                                                                   \
        i32_store(t, a);                                                                           \
        for (int i = 0; i < BOLIDE_LANES; i++)                                                     \
            e[i] = (type)t[i];                                                                     \
        memcpy(p, e, (size_t)simd_count(n) * sizeof(type));                                        \
    }                                                                                              \
    BOLIDE_INLINE void name(void *p, i32x16 a) {                                                   \
        name##_n(p, a, BOLIDE_LANES);                                                              \
    }
SIMD_NARROW_LOAD(u8_load, uint8_t)
SIMD_NARROW_LOAD(i8_load, int8_t)
SIMD_NARROW_LOAD(u16_load, uint16_t)
SIMD_NARROW_STORE(u8_store, uint8_t)
SIMD_NARROW_STORE(u16_store, uint16_t)

/* No f16 unit: simd_convert.h converts with integers. */
#define BOLIDE_SIMD_HAS_F16 0

/* ---- permutations, reductions, gathers ---------------------------------------------------- */

BOLIDE_INLINE i32x16 i32_swap_pairs(i32x16 a) {
    SIMD_PARTS(i32x16, ((simd_i32v){a.v[i][1], a.v[i][0], a.v[i][3], a.v[i][2]}));
}
BOLIDE_INLINE f32x16 f32_dup_even(f32x16 a) {
    SIMD_PARTS(f32x16, ((simd_f32v){a.v[i][0], a.v[i][0], a.v[i][2], a.v[i][2]}));
}
BOLIDE_INLINE f32x16 f32_dup_odd(f32x16 a) {
    SIMD_PARTS(f32x16, ((simd_f32v){a.v[i][1], a.v[i][1], a.v[i][3], a.v[i][3]}));
}
BOLIDE_INLINE void f32_deinterleave(f32x16 a, f32x16 b, f32x16 *even, f32x16 *odd) {
    float t[2 * BOLIDE_LANES], e[BOLIDE_LANES], o[BOLIDE_LANES];
    f32_store(t, a);
    f32_store(t + BOLIDE_LANES, b);
    for (int i = 0; i < BOLIDE_LANES; i++) {
        e[i] = t[2 * i];
        o[i] = t[2 * i + 1];
    }
    *even = f32_load(e);
    *odd = f32_load(o);
}
BOLIDE_INLINE void f32_interleave(f32x16 even, f32x16 odd, f32x16 *a, f32x16 *b) {
    float t[2 * BOLIDE_LANES], e[BOLIDE_LANES], o[BOLIDE_LANES];
    f32_store(e, even);
    f32_store(o, odd);
    for (int i = 0; i < BOLIDE_LANES; i++) {
        t[2 * i] = e[i];
        t[2 * i + 1] = o[i];
    }
    *a = f32_load(t);
    *b = f32_load(t + BOLIDE_LANES);
}
/* Lane i of the result is lane i - k of a, 0 below k; k is 1, 2, 4 or 8. */
BOLIDE_INLINE f32x16 f32_shift_up(f32x16 a, int k) {
    float t[2 * BOLIDE_LANES] = {0};
    f32_store(t + BOLIDE_LANES, a);
    return f32_load(t + BOLIDE_LANES - k);
}
BOLIDE_INLINE float f32_sum(f32x16 a) {
    const simd_f32v s4 = (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
    return (s4[0] + s4[2]) + (s4[1] + s4[3]);
}
BOLIDE_INLINE float simd_max1(float a, float b) {
    return a > b ? a : b;
}
BOLIDE_INLINE float f32_hmax_tree(f32x16 a) {
    float t[BOLIDE_LANES];
    f32_store(t, a);
    for (int step = 8; step > 0; step /= 2)
        for (int i = 0; i < step; i++)
            t[i] = simd_max1(t[i], t[i + step]);
    return t[0];
}
BOLIDE_INLINE f32x16 f32_gather(const float *p, i32x16 index) {
    int32_t at[BOLIDE_LANES];
    float t[BOLIDE_LANES];
    i32_store(at, index);
    for (int i = 0; i < BOLIDE_LANES; i++)
        t[i] = p[at[i]];
    return f32_load(t);
}
BOLIDE_INLINE f32x16 f32_gather_mask(mask16 m, const float *p, i32x16 index) {
    const uint32_t bits = mask_bits(m);
    int32_t at[BOLIDE_LANES];
    float t[BOLIDE_LANES] = {0};
    i32_store(at, index);
    for (int i = 0; i < BOLIDE_LANES; i++)
        if (bits >> i & 1u)
            t[i] = p[at[i]];
    return f32_load(t);
}
/* r[i] lane j and r[j] lane i change places. */
BOLIDE_INLINE void f32_transpose16(f32x16 r[16]) {
    float t[BOLIDE_LANES][BOLIDE_LANES], u[BOLIDE_LANES];
    for (int i = 0; i < BOLIDE_LANES; i++)
        f32_store(t[i], r[i]);
    for (int i = 0; i < BOLIDE_LANES; i++) {
        for (int j = 0; j < BOLIDE_LANES; j++)
            u[j] = t[j][i];
        r[i] = f32_load(u);
    }
}

/* ---- f64: what the reduction of large angles needs ---------------------------------------- */

#define SIMD_DOUBLES(expr)                                                                         \
    f64x16 r;                                                                                      \
    for (int i = 0; i < BOLIDE_LANES; i++)                                                         \
        r.v[i] = (expr);                                                                           \
    return r

BOLIDE_INLINE f64x16 f64_set(double x) {
    SIMD_DOUBLES(x);
}
BOLIDE_INLINE f64x16 f64_load(const double *p) {
    SIMD_DOUBLES(p[i]);
}
BOLIDE_INLINE f64x16 f64_load_n(const double *p, int64_t n) {
    const int count = simd_count(n);
    SIMD_DOUBLES(i < count ? p[i] : 0.0);
}
BOLIDE_INLINE f64x16 f64_add(f64x16 a, f64x16 b) {
    SIMD_DOUBLES(a.v[i] + b.v[i]);
}
BOLIDE_INLINE f64x16 f64_sub(f64x16 a, f64x16 b) {
    SIMD_DOUBLES(a.v[i] - b.v[i]);
}
BOLIDE_INLINE f64x16 f64_mul(f64x16 a, f64x16 b) {
    SIMD_DOUBLES(a.v[i] * b.v[i]);
}
BOLIDE_INLINE f64x16 f32_to_f64(f32x16 a) {
    float t[BOLIDE_LANES];
    f32_store(t, a);
    SIMD_DOUBLES((double)t[i]);
}
BOLIDE_INLINE f32x16 f64_to_f32(f64x16 a) {
    float t[BOLIDE_LANES];
    for (int i = 0; i < BOLIDE_LANES; i++)
        t[i] = (float)a.v[i];
    return f32_load(t);
}
/* The low 32 bits of each double. */
BOLIDE_INLINE i32x16 f64_low_bits(f64x16 a) {
    int32_t t[BOLIDE_LANES];
    for (int i = 0; i < BOLIDE_LANES; i++) {
        uint64_t bits;
        memcpy(&bits, &a.v[i], sizeof bits);
        t[i] = (int32_t)(uint32_t)bits;
    }
    return i32_load(t);
}

#endif
