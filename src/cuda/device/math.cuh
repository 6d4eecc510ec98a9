// SPDX-License-Identifier: Apache-2.0
//
// Fast scalar functions by their instructions, with the accuracy that the PTX manual states, and
// the counter-based random numbers of sampling.

#ifndef BOLIDE_CUDA_DEVICE_MATH_CUH
#define BOLIDE_CUDA_DEVICE_MATH_CUH

#include "cuda/device/base.cuh"

constexpr float LOG2E = 1.44269504088896340736f;
constexpr float LN2 = 0.69314718055994530942f;

/* 2^x within 2 ulp; subnormal results become 0. exp2(-inf) is 0. */
__forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* log2(x), absolute error below 2^-22 near 1. */
__forceinline__ float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1/x within 1 ulp. */
__forceinline__ float rcp_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1/sqrt(x), relative error below 2^-22.4; subnormals are honoured. */
__forceinline__ float rsqrt_fast(float x) {
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* tanh(x), relative error below 2^-11: for 16-bit results only. */
__forceinline__ float tanh_fast(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* tanh(x) with the accuracy of float. For small |x| the series avoids the cancellation in
 * 1 - 2/(e^2x + 1). */
__forceinline__ float tanh_exact(float x) {
    const float a = fabsf(x);
    const float square = x * x;
    const float series =
        x * (1.0f + square * (-0.333333333f + square * (0.133333333f - square * 0.0539682540f)));
    const float e = exp2f(a * (2.0f * LOG2E));
    const float rest = copysignf(1.0f - 2.0f / (e + 1.0f), x);
    return a < 0.1f ? series : rest;
}

/* Philox 4x32 with ten rounds (Salmon et al., SC 2011): four random words for a 128-bit counter
 * and a 64-bit key. */
struct random4 {
    uint32_t x, y, z, w;
};

__forceinline__ random4 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    random4 c = {(uint32_t)counter_low, (uint32_t)(counter_low >> 32), (uint32_t)counter_high,
                 (uint32_t)(counter_high >> 32)};
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c.x;
        const uint64_t b = (uint64_t)0xcd9e8d57u * c.z;
        c = {(uint32_t)(b >> 32) ^ c.y ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c.w ^ k1,
             (uint32_t)a};
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c;
}

/* Uniform in [0, 1), a multiple of 2^-24. */
__forceinline__ float uniform(uint32_t bits) {
    return (float)(bits >> 8) * 0x1p-24f;
}

#endif
