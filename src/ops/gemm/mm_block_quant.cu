// SPDX-License-Identifier: Apache-2.0
//
// Products with weights in GGUF's formats. A warp has TM rows of activations times TN rows of the
// weight; a lane takes every 32nd block of 32 numbers, and the lanes meet in a fixed tree at the
// end. So an element of the result has the same bits in any batch, and weights go from memory to
// the multiplier without a stop. Activations pass through shared memory, CHUNKS times 32 blocks at
// a time, as floats or rounded to 8 or 16 bits, each block on banks of its own:
//
//     f32    x [TM][32 blocks][32 + 4] float
//     8, 16  q [1 or 2 planes][TM][32 blocks][32 + 16] bytes, scale and sum [TM][32 blocks]
//     bits
//
// Few rows are limited by memory, many by the multiplier. Rows of the weight need no alignment:
// ALIGN says how many bytes a load may have. Blocks of 18 and 34 bytes begin in the middle of every
// second word; with ALIGN 4 a lane reads whole words and shifts.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/gemm/block_weights.cuh"
#include "ops/gemm/gemm_store.cuh"

#if !defined(SPEC_FORMAT) || !defined(SPEC_PLANES) || !defined(SPEC_IN) || !defined(SPEC_OUT) ||   \
    !defined(SPEC_BIAS) || !defined(SPEC_ALIGN) || !defined(SPEC_TM) || !defined(SPEC_TN) ||       \
    !defined(SPEC_CHUNKS)
#error "FORMAT PLANES; IN OUT BIAS: dtype bits; ALIGN: bytes of a load of weights; TM TN CHUNKS"
#endif
constexpr int64_t OUT = SPEC_OUT, BIAS = SPEC_BIAS;
constexpr int TM = SPEC_TM;         /* 1, 4, 8 */
constexpr int TN = SPEC_TN;         /* 1, 2, 4 */
constexpr int CHUNKS = SPEC_CHUNKS; /* of 32 blocks in shared memory: 1, 4 */
constexpr int WARPS = TM == 1 ? 8 : 4, THREADS = WARPS * 32;
constexpr int CHUNK = 32 * BLOCK; /* numbers that a warp's lanes have at a time */
/* Words of a block that a lane keeps; dense numbers are loaded as they are needed. */
constexpr int WORDS = DENSE ? 1 : FORMAT == W_Q8_0 ? 8 : 4;
/* Chunks of weights on their way: all of a round where there is one row of activations. */
constexpr int AHEAD = TM == 1 ? CHUNKS : 1;
/* Blocks of an odd number of halves, read by words: those of even number begin with a word. */
constexpr bool SHIFTED = ALIGN == 4 && (FORMAT == W_Q4_0 || FORMAT == W_Q8_0);

using out_t = element<OUT>::type;
constexpr int ROW_F32 = BLOCK + 4, ROW_INT8 = BLOCK + 16;

struct activations {
    union {
        float x[ROUNDED ? 1 : TM][32][ROW_F32];
        alignas(16) uint8_t q[larger(PLANES, 1)][ROUNDED ? TM : 1][32][ROW_INT8];
    };
    float scale[ROUNDED ? TM : 1][32];
    int sum[ROUNDED ? TM : 1][32]; /* of q */
};

/* ---- weights --------------------------------------------------------------------------------- */

/* A block of one row. Where there is none all is zero. */
struct weights {
    const uint8_t *at;
    uint32_t word[WORDS];
    float d, min;
};

weights read_weights(const uint8_t *at, bool there) {
    weights w = {at, {}, 0.0f, 0.0f};
    if constexpr (SHIFTED) {
        /* Chunks begin with a block of even number. */
        const bool odd = threadIdx.x & 1;
        const uint32_t *words = reinterpret_cast<const uint32_t *>(at - (odd ? 2 : 0));
        uint32_t got[WORDS + 1] = {};
        if (there) {
#pragma unroll
            for (int i = 0; i <= WORDS; i++)
                got[i] = words[i];
        }
        w.d = to_float(f16{(uint16_t)(odd ? got[0] >> 16 : got[0])});
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            w.word[i] = __funnelshift_r(odd ? got[i + 1] : got[i], got[i + 1], odd ? 0 : 16);
    } else if constexpr (!DENSE) {
        if (there) {
            w.d = f16_at(at);
            if constexpr (FORMAT == W_Q4_1)
                w.min = f16_at(at + 2);
#pragma unroll
            for (int i = 0; i < WORDS; i++)
                w.word[i] = word_at(at + HEAD + 4 * i);
        }
    }
    return w;
}

/* A byte as a float: in the last place of 2^23 it is the number itself. */
float byte_float(uint32_t bytes, int i) {
    return bits_float(__byte_perm(bytes, 0x4b000000u, 0x7440 | i)) - 8388608.0f;
}

/* Numbers [8 piece, 8 piece + 8) of a block, of which `left` exist. */
void decode(const weights &w, int piece, int64_t left, float (&to)[PIECE]) {
    if constexpr (FORMAT == W_Q8_0) {
#pragma unroll
        for (int i = 0; i < PIECE; i++)
            to[i] = w.d * (byte_float(w.word[piece * 2 + i / 4] ^ 0x80808080u, i % 4) - 128.0f);
    } else if constexpr (!DENSE) {
#pragma unroll
        for (int i = 0; i < PIECE; i++) {
            const uint32_t nibbles =
                (w.word[piece % 2 * 2 + i / 4] >> (piece / 2 * 4)) & 0x0f0f0f0fu;
            const float q = byte_float(nibbles, i % 4);
            to[i] = FORMAT == W_Q4_0 ? w.d * (q - 8.0f) : fmaf(w.d, q, w.min);
        }
    } else {
        constexpr int SIZE = FORMAT == W_F32 ? 4 : 2;
        const uint8_t *at = w.at + piece * PIECE * SIZE;
#pragma unroll
        for (int i = 0; i < PIECE; i++) {
            const bool there = piece * PIECE + i < left;
            if constexpr (FORMAT == W_F32) {
                to[i] = there ? bits_float(word_at(at + 4 * i)) : 0.0f;
            } else if constexpr (FORMAT == W_F16) {
                to[i] = there ? f16_at(at + 2 * i) : 0.0f;
            } else {
                const uint32_t low = !there       ? 0
                                     : ALIGN >= 2 ? *reinterpret_cast<const uint16_t *>(at + 2 * i)
                                                  : at[2 * i] | (uint32_t)at[2 * i + 1] << 8;
                to[i] = bits_float(low << 16);
            }
        }
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

void store_shared(float *to, float a, float b, float c, float d) {
    *reinterpret_cast<float4 *>(to) = float4{a, b, c, d};
}

void stage_f32(const bolide__blocks_params &p, activations (&s)[CHUNKS], int64_t m, int64_t k) {
#pragma unroll 2
    for (int i = threadIdx.x; i < CHUNKS * TM * 128; i += THREADS) {
        const int row = i / 128 % TM, chunk = i / 128 / TM, block = i % 128 / 4, part = i % 4;
        float x[PIECE];
        read_piece(p, m + row, k + ((chunk * 32 + block) * 4 + part) * PIECE, x);
        float *to = &s[chunk].x[row][block][part * PIECE];
        store_shared(to, x[0], x[1], x[2], x[3]);
        store_shared(to + 4, x[4], x[5], x[6], x[7]);
    }
}

void stage_rounded(const bolide__blocks_params &p, activations (&s)[CHUNKS], int64_t m, int64_t k) {
#pragma unroll 2
    for (int i = threadIdx.x; i < CHUNKS * TM * 128; i += THREADS) {
        const int row = i / 128 % TM, chunk = i / 128 / TM, block = i % 128 / 4, part = i % 4;
        float x[PIECE];
        read_piece(p, m + row, k + ((chunk * 32 + block) * 4 + part) * PIECE, x);
        const rounded r = round_piece(x);
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++)
            *reinterpret_cast<uint2 *>(&s[chunk].q[plane][row][block][part * PIECE]) =
                r.plane[plane];
        if (part == 0) {
            s[chunk].scale[row][block] = r.scale;
            s[chunk].sum[row][block] = r.sum;
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

void multiply_f32(const activations &s, const weights (&w)[TN], int64_t left,
                  float (&acc)[TM][TN]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int piece = 0; piece < BLOCK / PIECE; piece++) {
        float number[TN][PIECE];
#pragma unroll
        for (int j = 0; j < TN; j++)
            decode(w[j], piece, left, number[j]);
#pragma unroll
        for (int i = 0; i < TM; i++) {
            const pack<float, 4> low = load<pack<float, 4>>(&s.x[i][lane][piece * PIECE]);
            const pack<float, 4> high = load<pack<float, 4>>(&s.x[i][lane][piece * PIECE + 4]);
#pragma unroll
            for (int j = 0; j < TN; j++) {
#pragma unroll
                for (int k = 0; k < 4; k++)
                    acc[i][j] = fmaf(low.at[k], number[j][k], acc[i][j]);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    acc[i][j] = fmaf(high.at[k], number[j][k + 4], acc[i][j]);
            }
        }
    }
}

/* Products of a block of weights with 32 numbers of a plane. */
int dot_of(const weights &w, const uint8_t *q) {
    const pack<int, 4> low = load<pack<int, 4>>(q), high = load<pack<int, 4>>(q + 16);
    int dot = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if constexpr (FORMAT == W_Q8_0) {
            dot = __dp4a((int)w.word[k], low.at[k], dot);
            dot = __dp4a((int)w.word[(k + 4) % WORDS], high.at[k], dot);
        } else {
            dot = __dp4a((int)(w.word[k % WORDS] & 0x0f0f0f0fu), low.at[k], dot);
            dot = __dp4a((int)(w.word[k % WORDS] >> 4 & 0x0f0f0f0fu), high.at[k], dot);
        }
    }
    return dot;
}

/* The products of a block are an exact integer; it is combined with the scales in float. */
void multiply_rounded(const activations &s, const weights (&w)[TN], float (&acc)[TM][TN]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const float scale = s.scale[i][lane];
        const int sum = s.sum[i][lane];
#pragma unroll
        for (int j = 0; j < TN; j++) {
            int dot = dot_of(w[j], s.q[0][i][lane]);
            if constexpr (PLANES == 2)
                dot = 255 * dot + dot_of(w[j], s.q[PLANES - 1][i][lane]);
            dot -= FORMAT == W_Q4_0 ? 8 * sum : 0;
            acc[i][j] = fmaf((float)dot, w[j].d * scale, acc[i][j]);
            if constexpr (FORMAT == W_Q4_1)
                acc[i][j] = fmaf(w[j].min, scale * (float)sum, acc[i][j]);
        }
    }
}

/* The 32 blocks of TN rows from k on that this warp's lanes have. */
void read_blocks(const bolide__blocks_params &p, int64_t n, int64_t k, weights (&w)[TN]) {
    const int64_t at = k + threadIdx.x % 32 * BLOCK;
#pragma unroll
    for (int j = 0; j < TN; j++) {
        const int64_t row = smaller(n + j, p.n - 1);
        w[j] = read_weights(p.weight + row * p.weight_n + at / BLOCK * BYTES, at < p.k);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, TM > 1 ? 1 : 2)
    bolide_mm_blocks(const __grid_constant__ bolide__blocks_params p) {
    __shared__ activations s[CHUNKS];
    release_next_kernel();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t across = blockIdx.x / p.tiles_m, m = (blockIdx.x - across * p.tiles_m) * TM;
    const int64_t n = (across * WARPS + warp) * TN;
    float acc[TM][TN] = {};
    wait_for_previous_kernel();
    /* The weights of AHEAD chunks are under way while the activations are prepared. */
    weights w[AHEAD][TN];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        read_blocks(p, n, i * CHUNK, w[i]);
    for (int64_t k = 0; k < p.k; k += CHUNKS * CHUNK) {
        if (k > 0)
            __syncthreads();
        if constexpr (ROUNDED)
            stage_rounded(p, s, m, k);
        else
            stage_f32(p, s, m, k);
        __syncthreads();
#pragma unroll(AHEAD)
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            const int64_t first = k + chunk * CHUNK, left = p.k - first - lane * BLOCK;
            weights(&now)[TN] = w[chunk % AHEAD];
            if (left > 0) {
                if constexpr (ROUNDED)
                    multiply_rounded(s[chunk], now, acc);
                else
                    multiply_f32(s[chunk], now, left, acc);
            }
            read_blocks(p, n, first + AHEAD * CHUNK, now);
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
#pragma unroll
        for (int j = 0; j < TN; j++) {
            const float sum = lanes_sum<32>(acc[i][j]);
            if (lane == (i * TN + j) % 32 && m + i < p.m && n + j < p.n)
                store_sum<BIAS>(static_cast<out_t *>(p.out) + (m + i) * p.out_row, n + j, sum,
                                p.bias);
        }
    }
}
