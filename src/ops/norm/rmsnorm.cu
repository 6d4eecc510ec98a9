// SPDX-License-Identifier: Apache-2.0
//
// RMS norm and its relatives on the GPU (norm_internal.h has the formula). A group of THREADS
// neighbours holds a whole row in registers, PER chunks of up to 16 bytes each, so memory sees one
// read and one write; that traffic is the limit. A block has ROWS such groups and is gone after
// them: as blocks come and go, some read while others write. Rows too long for registers (PER 0)
// are read twice, the second time mostly from L2. docs/kernels/norm.md tells what was tried.
//
// The order of additions depends on d and the dtypes alone, not on the number of rows, which only
// changes how many threads share a row, and not on their alignment, which changes how wide a load
// is: a row gives the same bits in any batch.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/walk.cuh"
#include "ops/norm/norm_internal.h"
#include "ops/norm/row_chunks.cuh"

#if !defined(SPEC_INPUT) || !defined(SPEC_RESIDUAL) || !defined(SPEC_WEIGHT) ||                    \
    !defined(SPEC_OUT) || !defined(SPEC_FLAGS) || !defined(SPEC_VEC) || !defined(SPEC_THREADS) ||  \
    !defined(SPEC_PER) || !defined(SPEC_ROWS) || !defined(SPEC_FEW)
#error "INPUT RESIDUAL WEIGHT OUT: dtype bits; FLAGS; VEC THREADS PER ROWS FEW: the layout"
#endif
constexpr int64_t INPUT = SPEC_INPUT;
constexpr int64_t RESIDUAL = SPEC_RESIDUAL; /* 0: none */
constexpr int64_t WEIGHT = SPEC_WEIGHT;
constexpr int64_t OUT = SPEC_OUT;
constexpr bool SILU = SPEC_FLAGS & BOLIDE__RMSNORM_SILU;
constexpr bool SCALED = SPEC_FLAGS & BOLIDE__RMSNORM_SCALED;
constexpr bool BLOCKS = SPEC_FLAGS & BOLIDE__RMSNORM_BLOCKS;
constexpr int VEC = SPEC_VEC;         /* elements a load: a power of two that divides d */
constexpr int THREADS = SPEC_THREADS; /* of a row: 8, 16 or a multiple of 32 up to 1024 */
constexpr int PER = SPEC_PER;         /* chunks a thread: 1, 2, 4; 0: read twice */
constexpr int ROWS = SPEC_ROWS;       /* of a block: 1, 4, 8, 16 */
constexpr bool FEW = SPEC_FEW;        /* rows without heads: the time to the first byte counts */
constexpr bool EARLY = SPEC_FEW == 2;
static_assert(THREADS * ROWS <= 1024 && THREADS * ROWS % 32 == 0, "whole warps");
static_assert(!BLOCKS || RESIDUAL == INPUT, "block quantisation adds a residual of one dtype");

using input_t = element<INPUT>::type;
using residual_t = element<RESIDUAL ? RESIDUAL : INPUT>::type;
using weight_t = element<WEIGHT>::type;
using out_t = element<OUT>::type;

/* Elements that a thread holds side by side: 16 bytes of the widest type. */
constexpr int WIDEST = larger(larger((int)sizeof(input_t), (int)sizeof(residual_t)),
                              larger((int)sizeof(weight_t), (int)sizeof(out_t)));
constexpr int CHUNK = 16 / WIDEST;
static_assert(VEC >= 1 && CHUNK % VEC == 0, "whole loads");
constexpr int BLOCK = THREADS * ROWS;
/* What is loaded of a row, still in the types of memory. */
struct loaded {
    pack<input_t, CHUNK> input;
    pack<residual_t, CHUNK> residual; /* not used without one */
};

/* Numbers that are the same for all rows. */
struct constants {
    float in_scale, out_scale, limit, bias, eps, d;
};

constants read_constants(const bolide__rmsnorm_params &p) {
    constants c = {1.0f, 1.0f, INFINITE, p.weight_bias, p.eps, (float)p.d};
    if constexpr (SCALED) {
        c.in_scale = p.in_scale.tensor ? *p.in_scale.tensor : p.in_scale.number;
        const float out = p.out_scale.tensor ? *p.out_scale.tensor : p.out_scale.number;
        c.out_scale = p.out_divides ? 1.0f / out : out;
        if (p.out_bounded)
            c.limit = OUT == F16 ? 65504.0f : OUT == BF16 ? 0x1.fep127f : 0x1.fffffep127f;
    }
    return c;
}

/* input * in_scale + residual. */
void sum_of(const loaded &l, const constants &c, float (&x)[CHUNK]) {
    unpack(l.input, x);
    if constexpr (SCALED) {
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            x[i] *= c.in_scale;
    }
    if constexpr (RESIDUAL != 0) {
        float r[CHUNK];
        unpack(l.residual, r);
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            x[i] += r[i];
    }
}

/* Four sums side by side, for an addition waits four cycles for the one before. */
struct square_sum {
    float part[4] = {};

    void add(const float (&x)[CHUNK]) {
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            part[i % 4] = fmaf(x[i], x[i], part[i % 4]);
    }

    float total() const {
        return (part[0] + part[1]) + (part[2] + part[3]);
    }
};

float silu(float x) {
    const float y = x * rcp_fast(1.0f + exp2_fast(-LOG2E * x));
    return x == -INFINITE ? -0.0f : y;
}

float bounded(float x, float limit) {
    return is_nan(x) ? x : fminf(fmaxf(x, -limit), limit);
}

/* The pointers of one row. */
struct row_pointers {
    const input_t *input;
    residual_t *residual;
    out_t *out;
    input_t *normed;
};

row_pointers row_at(const bolide__rmsnorm_params &p, int64_t row) {
    const int64_t n = FEW || p.h == 1 ? row : quotient(row, p.h), h = FEW ? 0 : row - n * p.h;
    return {static_cast<const input_t *>(p.input.data) + n * p.input.n + h * p.input.h,
            static_cast<residual_t *>(p.residual.data) + n * p.residual.n + h * p.residual.h,
            static_cast<out_t *>(p.out.data) + n * p.out.n + h * p.out.h,
            static_cast<input_t *>(p.normed.data) + n * p.normed.n};
}

loaded read_row(const row_pointers &row, int64_t i, int64_t d) {
    loaded l = {};
    l.input = read_chunk<CHUNK, VEC, true>(row.input, i, d);
    if constexpr (RESIDUAL != 0)
        l.residual = read_chunk<CHUNK, VEC, true>(row.residual, i, d);
    return l;
}

using weight_chunk = pack<weight_t, CHUNK>;

/* Unlike a row, the weight is read by every block and stays in L1. */
weight_chunk read_weight(const bolide__rmsnorm_params &p, int64_t i) {
    return read_chunk<CHUNK, VEC, false>(static_cast<const weight_t *>(p.weight), i, p.d);
}

template <class T> void write_row(T *row, int64_t i, int64_t d, const pack<T, CHUNK> &c) {
    write_chunk<CHUNK, VEC, !FEW>(row, i, d, c);
}

/* Stores chunk i of a row, x in floats. All threads call, for block quantisation takes a maximum
 * over neighbours; d is 0 where there is no row, and then nothing is stored. */
void finish_chunk(const bolide__rmsnorm_params &p, const row_pointers &row, int64_t number,
                  int64_t i, int64_t d, const constants &c, float scale, const weight_chunk &weight,
                  float (&x)[CHUNK]) {
    if constexpr (RESIDUAL != 0)
        write_row(row.residual, i, d, pack_floats<residual_t>(x));
    float w[CHUNK];
    unpack(weight, w);
#pragma unroll
    for (int k = 0; k < CHUNK; k++) {
        x[k] = x[k] * scale * (w[k] + c.bias);
        if constexpr (SILU)
            x[k] = silu(x[k]);
        if constexpr (SCALED)
            x[k] = bounded(x[k] * c.out_scale, c.limit);
    }
    if constexpr (BLOCKS) {
        /* Values are quantised as they were stored. NaN does not count for the scale. */
        const pack<input_t, CHUNK> normed = pack_floats<input_t>(x);
        write_row(row.normed, i, d, normed);
        unpack(normed, x);
        float most = BOLIDE__QUANT_FLOOR;
#pragma unroll
        for (int k = 0; k < CHUNK; k++)
            most = fmaxf(most, fabsf(x[k]));
        constexpr int NEIGHBOURS = BOLIDE__QUANT_BLOCK / CHUNK;
        static_assert(NEIGHBOURS <= 32, "a block of values lies in one warp");
        const float block_scale = lanes_max<NEIGHBOURS>(most) / 448.0f;
        if (i % NEIGHBOURS == 0 && i * CHUNK < d)
            p.block_scale[i / NEIGHBOURS * p.block_scale_b + number * p.block_scale_n] =
                block_scale;
#pragma unroll
        for (int k = 0; k < CHUNK; k++)
            x[k] = x[k] / block_scale;
    }
    write_row(row.out, i, d, pack_floats<out_t>(x));
}

/* Asks for a row and the weight ahead of time. */
void prefetch_row(const bolide__rmsnorm_params &p, const row_pointers &row, int thread) {
#pragma unroll
    for (int k = 0; k < PER; k++) {
        const int64_t at = (int64_t)(thread + k * THREADS) * CHUNK;
        if (at < p.d) {
            prefetch(row.input + at);
            prefetch(static_cast<const weight_t *>(p.weight) + at);
            if constexpr (RESIDUAL != 0)
                prefetch(row.residual + at);
        }
    }
}

/* A row past the end is zeros: whole blocks work together, for the reduction has a barrier. Few
 * rows have the weight on its way together with them; many find it in L1, and their registers hold
 * more rows at a time instead. */
void row_in_registers(const bolide__rmsnorm_params &p, float *scratch) {
    constexpr int N = larger(PER, 1);
    const int thread = threadIdx.x % THREADS;
    const int64_t number = (int64_t)blockIdx.x * ROWS + threadIdx.x / THREADS;
    const row_pointers row = row_at(p, number < p.rows ? number : 0);
    const int64_t d = number < p.rows ? p.d : 0;
    if constexpr (EARLY)
        prefetch_row(p, row, thread);
    wait_for_previous_kernel();

    loaded now[N];
    weight_chunk weight[N];
#pragma unroll
    for (int k = 0; k < N; k++)
        now[k] = read_row(row, thread + k * THREADS, d);
    if constexpr (FEW) {
#pragma unroll
        for (int k = 0; k < N; k++)
            weight[k] = read_weight(p, thread + k * THREADS);
    }
    const constants c = read_constants(p);
    float x[N][CHUNK], squares[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        sum_of(now[k], c, x[k]);
        square_sum sum;
        sum.add(x[k]);
        squares[k] = sum.total();
    }
    const float scale = rsqrt_fast(sliced_sum<THREADS>(squares, scratch) / c.d + c.eps);
#pragma unroll
    for (int k = 0; k < N; k++) {
        /* Without a residual the types of memory are the smaller state to keep. */
        if constexpr (RESIDUAL == 0) {
            forget_origin(now[k].input);
            sum_of(now[k], c, x[k]);
        }
        if constexpr (!FEW)
            weight[k] = read_weight(p, thread + k * THREADS);
        finish_chunk(p, row, number, thread + k * THREADS, d, c, scale, weight[k], x[k]);
    }
}

/* One row a block. Each element is read a second time by the thread that writes it, so the output
 * may be the input. */
void row_read_twice(const bolide__rmsnorm_params &p, float *scratch) {
    const int64_t chunks = ceil_div(p.d, CHUNK);
    const row_pointers row = row_at(p, blockIdx.x);
    wait_for_previous_kernel();
    const constants c = read_constants(p);
    square_sum sum;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < chunks; i += THREADS) {
        float x[CHUNK];
        sum_of(read_row(row, i, p.d), c, x);
        sum.add(x);
    }
    const float scale = rsqrt_fast(row_sum<THREADS>(sum.total(), scratch) / c.d + c.eps);
    /* All threads make the same number of turns. */
#pragma unroll 2
    for (int64_t first = 0; first < chunks; first += THREADS) {
        const int64_t i = first + threadIdx.x;
        float x[CHUNK];
        sum_of(read_row(row, i, p.d), c, x);
        finish_chunk(p, row, blockIdx.x, i, p.d, c, scale, read_weight(p, i), x);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    bolide_rmsnorm(const __grid_constant__ bolide__rmsnorm_params p) {
    __shared__ float scratch[BLOCK];
    release_next_kernel();
    if constexpr (PER > 0)
        row_in_registers(p, scratch);
    else
        row_read_twice(p, scratch);
}
