// SPDX-License-Identifier: Apache-2.0
//
// Types of device code and their conversions, without any toolkit header: fixed-width integers,
// the 16-, 8- and 4-bit floats, dtype numbers as the host has them. Conversions round to nearest,
// ties to even; NaN stays NaN; stores to 8 and 4 bits saturate to the largest finite value. Where
// the chip has an instruction it is used, elsewhere the same result comes from integer arithmetic:
// bf16 by hand below 8.0, e4m3 and e5m2 below 8.9, e8m0 and e2m1 everywhere.

#ifndef BOLIDE_CUDA_DEVICE_BASE_CUH
#define BOLIDE_CUDA_DEVICE_BASE_CUH

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;

/* 90 on a chip of capability 9.0; 0 in the host's view of a file. */
#ifdef __CUDA_ARCH__
constexpr int ARCH = __CUDA_ARCH__ / 10;
#else
constexpr int ARCH = 0;
#endif

/* Threads that a multiprocessor holds at once; with 32 registers each they all fit. */
constexpr int RESIDENT_THREADS = ARCH < 80                                  ? 1024
                                 : ARCH == 80 || (ARCH >= 90 && ARCH < 110) ? 2048
                                                                            : 1536;

/* The bits of include/bolide/core.h, as specs pass them. */
constexpr int64_t F64 = 1 << 0, F32 = 1 << 1, F16 = 1 << 2, BF16 = 1 << 3, F8_E4M3FN = 1 << 4,
                  F8_E5M2 = 1 << 5, F8_E8M0 = 1 << 6, F4_E2M1 = 1 << 7, BOOL = 1 << 8, U8 = 1 << 9,
                  I8 = 1 << 10, U16 = 1 << 11, I16 = 1 << 12, U32 = 1 << 13, I32 = 1 << 14,
                  U64 = 1 << 15, I64 = 1 << 16;

constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000);

/* ---- types ------------------------------------------------------------------------------------
 */

struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};
struct e4m3 {
    uint8_t bits;
};
struct e5m2 {
    uint8_t bits;
};
struct e8m0 {
    uint8_t bits;
};
/* Two values; the even column is in the low nibble. */
struct e2m1x2 {
    uint8_t bits;
};
struct float2_t {
    float x, y;
};

/* The type of a dtype's elements in memory: element<BF16>::type. */
template <int64_t DT> struct element;
template <> struct element<F64> { using type = double; };
template <> struct element<F32> { using type = float; };
template <> struct element<F16> { using type = f16; };
template <> struct element<BF16> { using type = bf16; };
template <> struct element<F8_E4M3FN> { using type = e4m3; };
template <> struct element<F8_E5M2> { using type = e5m2; };
template <> struct element<F8_E8M0> { using type = e8m0; };
template <> struct element<F4_E2M1> { using type = e2m1x2; };
template <> struct element<BOOL> { using type = uint8_t; };
template <> struct element<U8> { using type = uint8_t; };
template <> struct element<I8> { using type = int8_t; };
template <> struct element<U16> { using type = uint16_t; };
template <> struct element<I16> { using type = int16_t; };
template <> struct element<U32> { using type = uint32_t; };
template <> struct element<I32> { using type = int32_t; };
template <> struct element<U64> { using type = uint64_t; };
template <> struct element<I64> { using type = int64_t; };

template <class A, class B> constexpr bool same_type = false;
template <class A> constexpr bool same_type<A, A> = true;

/* ---- bits -------------------------------------------------------------------------------------
 */

__forceinline__ uint32_t float_bits(float x) {
    return __float_as_uint(x);
}

__forceinline__ float bits_float(uint32_t x) {
    return __uint_as_float(x);
}

__forceinline__ bool is_nan(float x) {
    return x != x;
}

template <class T> constexpr __forceinline__ T smaller(T a, T b) {
    return a < b ? a : b;
}

template <class T> constexpr __forceinline__ T larger(T a, T b) {
    return a > b ? a : b;
}

constexpr __forceinline__ int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* ---- to float ---------------------------------------------------------------------------------
 */

__forceinline__ float to_float(float x) {
    return x;
}

__forceinline__ float to_float(double x) {
    return (float)x;
}

__forceinline__ float to_float(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__forceinline__ float to_float(bf16 x) {
    return bits_float((uint32_t)x.bits << 16);
}

/* Exponent and mantissa in float's place; the power of two makes up for the bias, and brings
 * subnormals into float's normal range. */
__forceinline__ float to_float(e4m3 x) {
    const uint32_t sign = (uint32_t)(x.bits & 0x80) << 24;
    const uint32_t rest = x.bits & 0x7f;
    const float y = bits_float(rest << 20) * bits_float(0x7b800000); /* 2^120 */
    return bits_float(sign | (rest == 0x7f ? 0x7fc00000u : float_bits(y)));
}

/* An e5m2 is the upper half of an f16. */
__forceinline__ float to_float(e5m2 x) {
    return to_float(f16{(uint16_t)(x.bits << 8)});
}

__forceinline__ float to_float(e8m0 x) {
    return bits_float(x.bits == 0xff ? 0x7fc00000u
                      : x.bits == 0  ? 0x00400000u
                                     : (uint32_t)x.bits << 23);
}

/* One nibble. */
__forceinline__ float e2m1_to_float(uint32_t nibble) {
    const float y = bits_float((nibble & 7) << 22) * bits_float(0x7e800000); /* 2^126 */
    return bits_float((nibble & 8) << 28 | float_bits(y));
}

__forceinline__ float2_t to_floats(e2m1x2 x) {
    return {e2m1_to_float(x.bits & 15u), e2m1_to_float((uint32_t)x.bits >> 4)};
}

/* Two of a 32-bit word, the lower first. */
__forceinline__ float2_t bf16x2_to_floats(uint32_t x) {
    return {bits_float(x << 16), bits_float(x & 0xffff0000u)};
}

__forceinline__ float2_t f16x2_to_floats(uint32_t x) {
    return {to_float(f16{(uint16_t)x}), to_float(f16{(uint16_t)(x >> 16)})};
}

/* Two e4m3 as two f16 in a word. */
__forceinline__ uint32_t e4m3x2_to_f16x2(uint16_t x) {
    uint32_t y;
    if constexpr (ARCH >= 89) {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(x));
    } else {
        /* In f16's place the exponent is short by 8: times 256, exact, also for subnormals. */
        const uint32_t wide = ((uint32_t)x & 0xff) | ((uint32_t)x & 0xff00) << 8;
        const uint32_t rest = (wide & 0x007f007fu) << 7;
        asm("mul.f16x2 %0, %1, %2;" : "=r"(y) : "r"(rest), "r"(0x5c005c00u));
        y |= (wide & 0x00800080u) << 8;
        if ((wide & 0x7fu) == 0x7fu)
            y |= 0x7fffu;
        if ((wide & 0x7f0000u) == 0x7f0000u)
            y |= 0x7fff0000u;
    }
    return y;
}

__forceinline__ float2_t e4m3x2_to_floats(uint16_t x) {
    return f16x2_to_floats(e4m3x2_to_f16x2(x));
}

__forceinline__ float2_t e5m2x2_to_floats(uint16_t x) {
    return f16x2_to_floats(((uint32_t)x & 0xff) << 8 | ((uint32_t)x & 0xff00) << 16);
}

/* ---- from float -------------------------------------------------------------------------------
 */

/* from_float<T>(x) for every type above. */
template <class T> T from_float(float x);

template <> __forceinline__ float from_float<float>(float x) {
    return x;
}

template <> __forceinline__ double from_float<double>(float x) {
    return x;
}

template <> __forceinline__ f16 from_float<f16>(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

template <> __forceinline__ bf16 from_float<bf16>(float x) {
    bf16 y;
    if constexpr (ARCH >= 80) {
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    } else {
        const uint32_t u = float_bits(x);
        const uint32_t even = u >> 16 & 1;
        y.bits = is_nan(x) ? 0x7fff : (uint16_t)((u + 0x7fffu + even) >> 16);
    }
    return y;
}

/* Rounds |x| to a float with MANTISSA bits and an exponent of the given bias, as an integer; below
 * the smallest normal number the spacing stays that of the subnormals. |x| must be in range. */
template <int MANTISSA, int BIAS> __forceinline__ uint32_t round_small(float x) {
    const uint32_t u = float_bits(x) & 0x7fffffffu;
    constexpr int drop = 23 - MANTISSA;
    constexpr uint32_t smallest_normal = (uint32_t)(128 - BIAS) << 23;
    if (u < smallest_normal) {
        /* Scaled so that one unit is 1; adding 2^23 rounds to an integer, ties to even. */
        const float scaled = bits_float(u) * bits_float((uint32_t)(126 + BIAS + MANTISSA) << 23);
        return float_bits(scaled + 8388608.0f) & 0x7fffffu;
    }
    const uint32_t even = u >> drop & 1;
    const uint32_t rounded = (u + ((1u << (drop - 1)) - 1) + even) >> drop;
    return rounded - ((uint32_t)(127 - BIAS) << MANTISSA);
}

/* Two values to two bytes, the first in the low one. */
__forceinline__ uint16_t floats_to_e4m3x2(float x, float y) {
    uint16_t r;
    if constexpr (ARCH >= 89) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(y), "f"(x));
    } else {
        const float v[2] = {x, y};
        r = 0;
        for (int i = 0; i < 2; i++) {
            const float a = fabsf(v[i]);
            const uint32_t code = is_nan(a) ? 0x7f : a >= 448.0f ? 0x7e : round_small<3, 7>(a);
            r |= (uint16_t)((code | (is_nan(a) ? 0 : float_bits(v[i]) >> 24 & 0x80)) << (8 * i));
        }
    }
    return r;
}

__forceinline__ uint16_t floats_to_e5m2x2(float x, float y) {
    uint16_t r;
    if constexpr (ARCH >= 89) {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(y), "f"(x));
    } else {
        const float v[2] = {x, y};
        r = 0;
        for (int i = 0; i < 2; i++) {
            const float a = fabsf(v[i]);
            const uint32_t code = is_nan(a) ? 0x7f : a >= 57344.0f ? 0x7b : round_small<2, 15>(a);
            r |= (uint16_t)((code | (is_nan(a) ? 0 : float_bits(v[i]) >> 24 & 0x80)) << (8 * i));
        }
    }
    return r;
}

template <> __forceinline__ e4m3 from_float<e4m3>(float x) {
    return {(uint8_t)floats_to_e4m3x2(x, 0.0f)};
}

template <> __forceinline__ e5m2 from_float<e5m2>(float x) {
    return {(uint8_t)floats_to_e5m2x2(x, 0.0f)};
}

/* One nibble; 4 bits have no NaN, which becomes the largest value, as the instruction has it. */
__forceinline__ uint32_t float_to_e2m1(float x) {
    const float a = fabsf(x);
    if (is_nan(a))
        return 7;
    const uint32_t code = a >= 6.0f ? 7 : round_small<1, 1>(a);
    return code | (float_bits(x) >> 28 & 8);
}

__forceinline__ e2m1x2 floats_to_e2m1x2(float x, float y) {
    return {(uint8_t)(float_to_e2m1(x) | float_to_e2m1(y) << 4)};
}

/* The power of two at or below |x|, and at or above it; 2^-127 for 0, NaN for NaN, the largest
 * power for infinity. */
__forceinline__ e8m0 e8m0_below(float x) {
    const uint32_t u = float_bits(x) & 0x7fffffffu;
    return {(uint8_t)(u > 0x7f800000u ? 0xff : smaller(u >> 23, 0xfeu))};
}

__forceinline__ e8m0 e8m0_above(float x) {
    const uint32_t u = float_bits(x) & 0x7fffffffu;
    /* 2^-127 itself is the subnormal with the upper mantissa bit alone. */
    const uint32_t up = u <= 0x00400000u ? 0 : (u + 0x7fffffu) >> 23;
    return {(uint8_t)(u > 0x7f800000u ? 0xff : smaller(up, 0xfeu))};
}

/* Pairs for vector stores, the first in the low half. */
__forceinline__ uint32_t floats_to_bf16x2(float x, float y) {
    uint32_t r;
    if constexpr (ARCH >= 80)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    else
        r = from_float<bf16>(x).bits | (uint32_t)from_float<bf16>(y).bits << 16;
    return r;
}

__forceinline__ uint32_t floats_to_f16x2(float x, float y) {
    uint32_t r;
    if constexpr (ARCH >= 80)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    else
        r = from_float<f16>(x).bits | (uint32_t)from_float<f16>(y).bits << 16;
    return r;
}

/* ---- programmatic dependent launch ------------------------------------------------------------
 */

/* First thing in a kernel that is launched with .dependent = 1: nothing that an earlier kernel has
 * written may be read, and nothing it reads be written, before. */
__forceinline__ void wait_for_previous_kernel() {
    if constexpr (ARCH >= 90)
        asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* Lets the next kernel of the stream begin its own preparation. */
__forceinline__ void release_next_kernel() {
    if constexpr (ARCH >= 90)
        asm volatile("griddepcontrol.launch_dependents;");
}

#endif
