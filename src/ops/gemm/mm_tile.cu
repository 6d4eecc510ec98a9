// SPDX-License-Identifier: Apache-2.0
//
// Dense products of 16-bit operands on tensor cores: a block makes a tile of BM x BN, a warp 16s of
// rows times 32 columns of it, from slices of 32 of k that pass through STAGES buffers of shared
// memory. An element is one chain over k in steps of 16, so its bits depend on neither m nor the
// size of the tile. Operands that cannot be copied 16 bytes at a time are gathered one by one.
//
// Shared memory, a stage; 16-byte pieces are permuted so that eight rows of a matrix never meet in
// a bank:
//
//     a   BM rows of 32 k                       piece c of row r lies at c ^ (r / 2 % 4)
//     b   BN rows of 32 k                       likewise
//         or, where n is contiguous, 32 rows    piece c of row k lies at c ^ (k % 8)
//         of BN
//
// The multiplier is the limit for many rows, memory for few.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/mma.cuh"
#include "ops/gemm/gemm_device.h"
#include "ops/gemm/gemm_store.cuh"

#if !defined(SPEC_DT) || !defined(SPEC_OUT) || !defined(SPEC_BIAS) || !defined(SPEC_FAST_A) ||     \
    !defined(SPEC_FAST_B) || !defined(SPEC_BY_N) || !defined(SPEC_PAIRS) || !defined(SPEC_BM) ||   \
    !defined(SPEC_BN)
#error "DT OUT BIAS: dtype bits; FAST_A FAST_B BY_N PAIRS: memory; BM BN: the tile"
#endif
constexpr int64_t DT = SPEC_DT;      /* F16, BF16 */
constexpr int64_t OUT = SPEC_OUT;    /* F16, BF16, F32 */
constexpr int64_t BIAS = SPEC_BIAS;  /* the same; 0: none */
constexpr bool FAST_A = SPEC_FAST_A; /* rows of a can be copied 16 bytes at a time */
constexpr bool FAST_B = SPEC_FAST_B; /* and columns of b, or its rows */
constexpr bool BY_N = SPEC_BY_N;     /* n of b is contiguous; only with FAST_B */
constexpr bool PAIRS = SPEC_PAIRS;   /* out takes two columns in a store */
constexpr int BM = SPEC_BM;          /* 64, 128 */
constexpr int BN = SPEC_BN;          /* 64, 128 */
constexpr int BK = 32;
constexpr int STAGES = 4;
constexpr int WARPS_M = 2, WARPS_N = BN / 32, THREADS = WARPS_M * WARPS_N * 32;
constexpr int ROWS = BM / WARPS_M / 16; /* matrices of 16 rows a warp */
constexpr int STAGE_A = BM * BK * 2, STAGE_B = BN * BK * 2, STAGE = STAGE_A + STAGE_B; /* bytes */
static_assert(FAST_B || !BY_N, "what is gathered is stored by k");

using elem = element<DT>::type;
using out_t = element<OUT>::type;

extern __shared__ __align__(128) uint8_t shared[];

/* Where piece c of a row of 64 bytes lies. */
int by_k(int row, int c) {
    return row * 64 + ((c ^ (row >> 1 & 3)) << 4);
}

/* Where piece c of row k of BN columns lies. */
int by_n(int k, int c) {
    return k * BN * 2 + ((c ^ (k & 7)) << 4);
}

/* Eight numbers of k, `step` apart, from `left` that exist. */
uint4 gather(const elem *from, int64_t step, int64_t left) {
    pack<elem, 8> v = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i < left)
            v.at[i] = from[i * step];
    }
    return bits_as<uint4>(v);
}

/* Rows [first, first + COUNT) of an operand, k from k0 on, into a stage. Neighbouring threads take
 * neighbouring pieces of a row, or of a column where k is not contiguous. */
template <int COUNT, bool FAST>
void load_by_k(uint8_t *stage, const elem *from, int64_t first, int64_t rows, int64_t row_step,
               int64_t k_step, int64_t k0, int64_t k) {
#pragma unroll
    for (int i = threadIdx.x; i < COUNT * 4; i += THREADS) {
        const bool along = FAST || k_step == 1;
        const int row = along ? i / 4 : i % COUNT, c = along ? i % 4 : i / COUNT;
        const int64_t at = k0 + c * 8, left = first + row < rows ? k - at : 0;
        const elem *source = from + (left > 0 ? (first + row) * row_step + at * k_step : 0);
        if constexpr (FAST)
            copy_16(stage + by_k(row, c), source, left > 0 ? 16 : 0);
        else
            *reinterpret_cast<uint4 *>(stage + by_k(row, c)) = gather(source, k_step, left);
    }
}

void load_by_n(uint8_t *stage, const bolide__mm_params &p, const elem *b, int64_t first,
               int64_t k0) {
#pragma unroll
    for (int i = threadIdx.x; i < BK * BN / 8; i += THREADS) {
        const int row = i / (BN / 8), c = i % (BN / 8);
        const bool there = k0 + row < p.k && first + c * 8 < p.n;
        const elem *source = b + (there ? (k0 + row) * p.b_k + first + c * 8 : 0);
        copy_16(stage + by_n(row, c), source, there ? 16 : 0);
    }
}

/* The tile of a block. */
struct tile {
    const elem *a, *b;
    out_t *out;
    int64_t m, n; /* its first row and column */
};

void load_stage(const bolide__mm_params &p, const tile &t, int stage, int64_t k0) {
    uint8_t *to = shared + stage * STAGE;
    load_by_k<BM, FAST_A>(to, t.a, t.m, p.m, p.a_row, 1, k0, p.k);
    if constexpr (BY_N)
        load_by_n(to + STAGE_A, p, t.b, t.n, k0);
    else
        load_by_k<BN, FAST_B>(to + STAGE_A, t.b, t.n, p.n, p.b_n, p.b_k, k0, p.k);
}

/* Both halves of 16 of k in a stage. */
void multiply(const uint8_t *stage, int row, int column, float (&sum)[ROWS][4][4]) {
    const int lane = threadIdx.x % 32, matrix = lane / 8, line = lane % 8;
    /* Below 8.0 a product is hundreds of instructions, which would take minutes to compile. */
#pragma unroll(ARCH >= 80 ? 2 : 1)
    for (int step = 0; step < 2; step++) {
        uint32_t a[ROWS][4], b[2][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            load_matrices<false>(a[i],
                                 stage + by_k(row + i * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int high_n = matrix / 2 * 8, high_k = matrix % 2;
            const int n = column + j * 16 + high_n;
            if constexpr (BY_N)
                load_matrices<true>(b[j],
                                    stage + STAGE_A + by_n(step * 16 + high_k * 8 + line, n / 8));
            else
                load_matrices<false>(b[j], stage + STAGE_A + by_k(n + line, step * 2 + high_k));
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++)
                mma_16x8x16<elem>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

void store_pair(const bolide__mm_params &p, const tile &t, int64_t row, int64_t column, float x,
                float y) {
    if (row >= p.m || column >= p.n)
        return;
    out_t *to = t.out + row * p.out_row;
    if constexpr (PAIRS) {
        const float2_t z = {BIAS ? x + bias_of<BIAS>(p.bias, column) : x,
                            BIAS ? y + bias_of<BIAS>(p.bias, column + 1) : y};
        store(to + column, pair<out_t>(z.x, z.y));
    } else {
        store_sum<BIAS>(to, column, x, p.bias);
        if (column + 1 < p.n)
            store_sum<BIAS>(to, column + 1, y, p.bias);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_mm_tile(const __grid_constant__ bolide__mm_params p) {
    release_next_kernel();
    const int64_t batch = blockIdx.y, across = blockIdx.x / p.tiles_m;
    const tile t = {static_cast<const elem *>(p.a) + batch * p.a_batch,
                    static_cast<const elem *>(p.b) + batch * p.b_batch,
                    static_cast<out_t *>(p.out) + batch * p.out_batch,
                    (blockIdx.x - across * p.tiles_m) * BM, across * BN};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / WARPS_N * (BM / WARPS_M), column = warp % WARPS_N * 32;
    const int slices = (int)ceil_div(p.k, BK);
    wait_for_previous_kernel();

    float sum[ROWS][4][4] = {};
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < slices)
            load_stage(p, t, i, (int64_t)i * BK);
        commit_copies();
    }
    for (int i = 0; i < slices; i++) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        if (i + STAGES - 1 < slices)
            load_stage(p, t, (i + STAGES - 1) % STAGES, (int64_t)(i + STAGES - 1) * BK);
        commit_copies();
        multiply(shared + i % STAGES * STAGE, row, column, sum);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t r = t.m + row + i * 16 + lane / 4;
            const int64_t c = t.n + column + j * 8 + lane % 4 * 2;
            store_pair(p, t, r, c, sum[i][j][0], sum[i][j][1]);
            store_pair(p, t, r + 8, c, sum[i][j][2], sum[i][j][3]);
        }
    }
}
