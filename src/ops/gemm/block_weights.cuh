// SPDX-License-Identifier: Apache-2.0
//
// What the products with weights in GGUF's formats have in common: the parts of a block of 32
// numbers, loads of weights of whatever alignment, and activations rounded to integers.

#ifndef BOLIDE_OPS_GEMM_BLOCK_WEIGHTS_CUH
#define BOLIDE_OPS_GEMM_BLOCK_WEIGHTS_CUH

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/gemm/gemm_device.h"

#if !defined(SPEC_FORMAT) || !defined(SPEC_PLANES) || !defined(SPEC_IN) || !defined(SPEC_ALIGN)
#error "FORMAT PLANES; IN: dtype bit; ALIGN: bytes of a load of weights"
#endif
enum { W_F32, W_F16, W_BF16, W_Q4_0, W_Q4_1, W_Q8_0 }; /* bolide_weight_format */
constexpr int FORMAT = SPEC_FORMAT;
constexpr int PLANES = SPEC_PLANES; /* of rounded activations, for blocks only; 0: floats */
constexpr bool ROUNDED = PLANES > 0;
constexpr int64_t IN = SPEC_IN;
constexpr int ALIGN = SPEC_ALIGN; /* 1, 2, 4 */
constexpr int BLOCK = 32;
constexpr bool DENSE = FORMAT <= W_BF16;
constexpr int HEAD = FORMAT == W_Q4_1 ? 4 : DENSE ? 0 : 2; /* bytes before the numbers */
constexpr int BYTES = FORMAT == W_Q4_0   ? 18
                      : FORMAT == W_Q4_1 ? 20
                      : FORMAT == W_Q8_0 ? 34
                      : FORMAT == W_F32  ? 128
                                         : 64;
constexpr int PIECE = 8; /* numbers that are worked on at a time */

using in_t = element<IN>::type;

/* A word at an address of which so much is known. */
template <int ALIGNED = ALIGN> uint32_t word_at(const uint8_t *p) {
    if constexpr (ALIGNED >= 4)
        return *reinterpret_cast<const uint32_t *>(p);
    else if constexpr (ALIGNED == 2)
        return reinterpret_cast<const uint16_t *>(p)[0] |
               (uint32_t) reinterpret_cast<const uint16_t *>(p)[1] << 16;
    else
        return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

float f16_at(const uint8_t *p) {
    if constexpr (ALIGN >= 2)
        return to_float(f16{*reinterpret_cast<const uint16_t *>(p)});
    else
        return to_float(f16{(uint16_t)(p[0] | p[1] << 8)});
}

float input_at(const bolide__blocks_params &p, int64_t row, int64_t k) {
    return row < p.m && k < p.k
               ? to_float(static_cast<const in_t *>(p.input)[row * p.input_row + k])
               : 0.0f;
}

/* Eight neighbours; those past the end are 0. */
void read_piece(const bolide__blocks_params &p, int64_t row, int64_t k, float (&x)[PIECE]) {
    constexpr int HALF = 16 / (int)sizeof(in_t); /* of a load */
    const in_t *from = static_cast<const in_t *>(p.input) + row * p.input_row + k;
    if (row < p.m && k + PIECE <= p.k && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
#pragma unroll
        for (int i = 0; i < PIECE; i += HALF) {
            const pack<in_t, HALF> v = load<pack<in_t, HALF>>(from + i);
#pragma unroll
            for (int j = 0; j < HALF; j++)
                x[i + j] = to_float(v.at[j]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        x[i] = input_at(p, row, k + i);
}

/* A piece in integers; scale and sum are of its block. */
struct rounded {
    uint2 plane[larger(PLANES, 1)];
    float scale;
    int sum;
};

/* Four lanes have a block. Below the least magnitude it counts as 0: MOST / max would overflow. Two
 * planes are q = 255 high + low; 255 is odd, so no q lies halfway between two multiples of it. */
rounded round_piece(const float (&x)[PIECE]) {
    constexpr float least = 0x1p-110f, largest = PLANES == 2 ? 255.0f * 127 + 127 : 127.0f;
    float most = 0;
#pragma unroll
    for (int j = 0; j < PIECE; j++)
        most = max_nan(most, fabsf(x[j]));
    most = max_nan(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = max_nan(most, __shfl_xor_sync(0xffffffffu, most, 2));
    const bool usable = most >= least && most <= 0x1.fffffep127f;
    const float inverse = usable ? largest / most : 0.0f;
    uint32_t word[larger(PLANES, 1)][2] = {};
    int sum = 0;
#pragma unroll
    for (int j = 0; j < PIECE; j++) {
        const int q = usable ? __float2int_rn(x[j] * inverse) : 0;
        sum += q;
        const int high = PLANES == 2 ? __float2int_rn((float)q * (1.0f / 255)) : q;
        word[0][j / 4] |= (uint32_t)(high & 0xff) << (j % 4 * 8);
        if constexpr (PLANES == 2)
            word[1][j / 4] |= (uint32_t)((q - 255 * high) & 0xff) << (j % 4 * 8);
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    rounded r = {};
#pragma unroll
    for (int i = 0; i < PLANES; i++)
        r.plane[i] = uint2{word[i][0], word[i][1]};
    r.scale = usable ? most / largest : most < least ? 0.0f : bits_float(0x7fc00000);
    r.sum = sum;
    return r;
}

#endif
