// SPDX-License-Identifier: Apache-2.0
//
// Products of many rows with weights in GGUF's blocks, activations rounded to 8 or 16 bits, on the
// tensor cores. A slab is two blocks of 32 numbers of BM rows of activations and BN of the weight,
// as bytes in shared memory; while one is multiplied the next is on its way into registers, from
// where it goes into the other buffer. The products of a block are an exact integer, as in
// mm_block_quant.cu: sums begin at the bits of 1.5 * 2^23, so that what comes out is a float with
// the integer in its last places, and no conversion is needed. Rounding and scaling on the ordinary
// units are the limit.

#include "cuda/device/mma.cuh"
#include "ops/gemm/block_weights.cuh"
#include "ops/gemm/gemm_store.cuh"

#if !defined(SPEC_OUT) || !defined(SPEC_BIAS)
#error "OUT BIAS: dtype bits"
#endif
constexpr int64_t OUT = SPEC_OUT, BIAS = SPEC_BIAS;
static_assert(ROUNDED && !DENSE && ARCH >= 80, "integers of blocks");
constexpr int BM = BOLIDE__BLOCK_TILE_M, BN = BOLIDE__BLOCK_TILE_N;
constexpr int BLOCKS = 2; /* of a slab */
constexpr int WARPS_M = BM / 32, WARPS_N = BN / 32, THREADS = WARPS_M * WARPS_N * 32;
constexpr int UNITS_M = BM * BLOCKS * 4 / THREADS, UNITS_N = BN * BLOCKS * 4 / THREADS;
/* Every second block of 18 or 34 bytes begins in the middle of a word. */
constexpr int WORD_ALIGN = FORMAT == W_Q4_1 ? ALIGN : smaller(ALIGN, 2);
static_assert(THREADS == BOLIDE__BLOCK_TILE_THREADS && UNITS_N >= 1, "what the host asks for");

using out_t = element<OUT>::type;

struct alignas(16) slab {
    uint8_t a[PLANES][BM * 64], b[BN * 64];
    float scale[BLOCKS][BM], d[BLOCKS][BN];
    float sum[BLOCKS][FORMAT == W_Q4_1 ? BM : 1]; /* scale times the sum of q */
    float min[BLOCKS][FORMAT == W_Q4_1 ? BN : 1];
};

/* Where piece c of 16 bytes of a row of 64 lies: without conflicts for eight rows. */
int place_of(int row, int c) {
    return row * 64 + ((c ^ (row >> 1 & 3)) << 4);
}

/* A quarter of a block of weights. */
struct quarter {
    uint32_t word[FORMAT == W_Q8_0 ? 2 : 1];
    float d, min;
};

/* What a thread has on its way. Four neighbours have a block. */
struct arriving {
    float x[UNITS_M][PIECE];
    quarter w[UNITS_N];
};

void fetch(const bolide__blocks_params &p, int64_t m, int64_t n, int64_t k, arriving &to) {
#pragma unroll
    for (int i = 0; i < UNITS_M; i++) {
        const int unit = threadIdx.x + i * THREADS;
        read_piece(p, m + unit / 8, k + unit % 8 * PIECE, to.x[i]);
    }
#pragma unroll
    for (int i = 0; i < UNITS_N; i++) {
        const int unit = threadIdx.x + i * THREADS, part = unit % 4;
        const int64_t row = smaller(n + unit / 8, p.n - 1), at = k + unit / 4 % 2 * BLOCK;
        quarter &w = to.w[i];
        w = {};
        if (at < p.k) {
            const uint8_t *block = p.weight + row * p.weight_n + at / BLOCK * BYTES;
            w.d = f16_at(block);
            if constexpr (FORMAT == W_Q4_1)
                w.min = f16_at(block + 2);
            if constexpr (FORMAT == W_Q8_0) {
                w.word[0] = word_at<WORD_ALIGN>(block + HEAD + part * 8);
                w.word[FORMAT == W_Q8_0] = word_at<WORD_ALIGN>(block + HEAD + part * 8 + 4);
            } else {
                w.word[0] = word_at<WORD_ALIGN>(block + HEAD + part * 4);
            }
        }
    }
}

void put(const arriving &from, slab &s) {
#pragma unroll
    for (int i = 0; i < UNITS_M; i++) {
        const int unit = threadIdx.x + i * THREADS, row = unit / 8, piece = unit % 8;
        const rounded r = round_piece(from.x[i]);
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++)
            *reinterpret_cast<uint2 *>(s.a[plane] + place_of(row, piece / 2) + piece % 2 * 8) =
                r.plane[plane];
        if (piece % 4 == 0) {
            s.scale[piece / 4][row] = r.scale;
            if constexpr (FORMAT == W_Q4_1)
                s.sum[piece / 4][row] = r.scale * (float)r.sum;
        }
    }
#pragma unroll
    for (int i = 0; i < UNITS_N; i++) {
        const int unit = threadIdx.x + i * THREADS, row = unit / 8, part = unit % 4;
        const int block = unit / 4 % 2;
        const quarter &w = from.w[i];
        if constexpr (FORMAT == W_Q8_0) {
            *reinterpret_cast<uint2 *>(s.b + place_of(row, block * 2 + part / 2) + part % 2 * 8) =
                uint2{w.word[0], w.word[FORMAT == W_Q8_0]};
        } else {
            /* Low halves of bytes are the first 16 numbers. Bytes of 0 to 15 less 8 each: no byte
             * borrows from the next where its highest bit is set before and turned after. */
            uint32_t low = w.word[0] & 0x0f0f0f0fu, high = w.word[0] >> 4 & 0x0f0f0f0fu;
            if constexpr (FORMAT == W_Q4_0) {
                low = ((low | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
                high = ((high | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
            }
            *reinterpret_cast<uint32_t *>(s.b + place_of(row, block * 2) + part * 4) = low;
            *reinterpret_cast<uint32_t *>(s.b + place_of(row, block * 2 + 1) + part * 4) = high;
        }
        if (part == 0) {
            s.d[block][row] = w.d;
            if constexpr (FORMAT == W_Q4_1)
                s.min[block][row] = w.min;
        }
    }
}

/* c += a b of 32 numbers of 8 bits. */
void mma_int8(uint32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The products of both blocks of a slab, for 32 rows and 32 columns of a warp. */
void multiply(const slab &s, int row, int column, float (&acc)[2][4][4]) {
    constexpr float ZERO = 0x1.8p23f;
    const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    const int g = lane / 4, t = lane % 4 * 2;
    /* Two planes at a time are all that registers have room for. */
#pragma unroll(PLANES == 1 ? BLOCKS : 1)
    for (int block = 0; block < BLOCKS; block++) {
        uint32_t a[PLANES][2][4], b[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++)
                load_matrices<false>(a[plane][i], s.a[plane] + place_of(row + i * 16 + lane % 16,
                                                                        block * 2 + lane / 16));
            load_matrices<false>(b[i], s.b + place_of(column + i * 16 + matrix / 2 * 8 + line,
                                                      block * 2 + matrix % 2));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int first = row + i * 16 + g;
            const float scale[2] = {s.scale[block][first], s.scale[block][first + 8]};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t c[PLANES][4];
#pragma unroll
                for (int plane = 0; plane < PLANES; plane++) {
                    c[plane][0] = c[plane][1] = c[plane][2] = c[plane][3] = float_bits(ZERO);
                    mma_int8(c[plane], a[plane][i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
                }
                const int n = column + j * 8 + t;
                const float2_t d = {s.d[block][n], s.d[block][n + 1]};
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float dot = bits_float(c[0][e]) - ZERO;
                    if constexpr (PLANES == 2)
                        dot = fmaf(255.0f, dot, bits_float(c[PLANES - 1][e]) - ZERO);
                    acc[i][j][e] = fmaf(dot, (e % 2 ? d.y : d.x) * scale[e / 2], acc[i][j][e]);
                    if constexpr (FORMAT == W_Q4_1)
                        acc[i][j][e] = fmaf(s.min[block][n + e % 2],
                                            s.sum[block][first + e / 2 * 8], acc[i][j][e]);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_mm_block_tile(const __grid_constant__ bolide__blocks_params p) {
    __shared__ slab s[2];
    release_next_kernel();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t across = blockIdx.x / p.tiles_m, m = (blockIdx.x - across * p.tiles_m) * BM;
    const int64_t n = across * BN;
    const int row = warp / WARPS_N * 32, column = warp % WARPS_N * 32;
    wait_for_previous_kernel();
    float acc[2][4][4] = {};
    arriving next;
    fetch(p, m, n, 0, next);
    put(next, s[0]);
    __syncthreads();
    int turn = 0;
    for (int64_t k = 0; k < p.k; k += BLOCKS * BLOCK, turn ^= 1) {
        const bool more = k + BLOCKS * BLOCK < p.k;
        if (more)
            fetch(p, m, n, k + BLOCKS * BLOCK, next);
        multiply(s[turn], row, column, acc);
        if (more)
            put(next, s[turn ^ 1]);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int64_t r = m + row + i * 16 + lane / 4 + e / 2 * 8;
                const int64_t c = n + column + j * 8 + lane % 4 * 2 + e % 2;
                if (r < p.m && c < p.n)
                    store_sum<BIAS>(static_cast<out_t *>(p.out) + r * p.out_row, c, acc[i][j][e],
                                    p.bias);
            }
        }
    }
}
