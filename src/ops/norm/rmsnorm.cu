// SPDX-License-Identifier: Apache-2.0
//
// rmsnorm on the GPU: a group of THREADS neighbours holds a whole row in registers, PER chunks of
// 16 bytes each, so memory sees one read and one write; that traffic is the limit. A block has ROWS
// groups and walks over the rows; the next row is loaded before the present one is reduced. Rows
// too long for registers (PER 0) are read twice, the second time mostly from L2.
//
// Which thread holds which element depends on d alone, not on the number of rows and not on their
// alignment, which only changes how wide a load is: a row gives the same bits in any batch.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/norm/norm_internal.h"

#if !defined(SPEC_DT) || !defined(SPEC_VEC) || !defined(SPEC_THREADS) || !defined(SPEC_PER) ||     \
    !defined(SPEC_ROWS)
#error "DT: dtype bit, VEC: elements a load, THREADS: of a row, PER: chunks a thread, ROWS: a block"
#endif
constexpr int64_t DT = SPEC_DT;       /* F16, BF16, F32 */
constexpr int VEC = SPEC_VEC;         /* 1, 2, 4, 8; divides d */
constexpr int THREADS = SPEC_THREADS; /* 8, 16, 32, 128, 256, 512, 1024 */
constexpr int PER = SPEC_PER;         /* 1, 2, 4, 8; 0: read twice */
constexpr int ROWS = SPEC_ROWS;       /* 1, 4, 8, 16 */
static_assert(DT == F16 || DT == BF16 || DT == F32, "a float type");
static_assert(THREADS * ROWS <= 1024 && THREADS * ROWS % 32 == 0, "whole warps");

using elem = element<DT>::type;
constexpr int CHUNK = 16 / sizeof(elem);
static_assert(VEC >= 1 && CHUNK % VEC == 0, "whole loads");
constexpr int BLOCK = THREADS * ROWS;
/* Two rows at once need twice the registers. */
constexpr bool AHEAD = PER <= 4;
using chunk = pack<elem, CHUNK>;
using vec = pack<elem, VEC>;

/* Chunk i of a row; elements past the end are zeros. */
chunk read_chunk(const elem *row, int64_t i, int64_t d) {
    if constexpr (VEC == CHUNK) {
        return i * CHUNK < d ? load_stream<chunk>(row + i * CHUNK) : chunk{};
    } else {
        chunk c = {};
#pragma unroll
        for (int k = 0; k < CHUNK; k += VEC) {
            if (i * CHUNK + k < d) {
                const vec v = load<vec>(row + i * CHUNK + k);
#pragma unroll
                for (int j = 0; j < VEC; j++)
                    c.at[k + j] = v.at[j];
            }
        }
        return c;
    }
}

chunk read_weight(const elem *weight, int64_t i, int64_t d) {
    if constexpr (VEC == CHUNK)
        return i * CHUNK < d ? load<chunk>(weight + i * CHUNK) : chunk{};
    else
        return read_chunk(weight, i, d);
}

void write_chunk(elem *row, int64_t i, int64_t d, const chunk &c) {
#pragma unroll
    for (int k = 0; k < CHUNK; k += VEC) {
        vec v;
#pragma unroll
        for (int j = 0; j < VEC; j++)
            v.at[j] = c.at[k + j];
        if (i * CHUNK + k < d)
            store(row + i * CHUNK + k, v);
    }
}

/* Four sums side by side, for an addition waits four cycles for the one before. */
struct square_sum {
    float part[4] = {};

    void add(const chunk &c) {
        float x[CHUNK];
        unpack(c, x);
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            part[i % 4] = fmaf(x[i], x[i], part[i % 4]);
    }

    float total() const {
        return (part[0] + part[1]) + (part[2] + part[3]);
    }
};

chunk scaled(const chunk &c, const chunk &weight, float scale) {
    float x[CHUNK], w[CHUNK];
    unpack(c, x);
    unpack(weight, w);
#pragma unroll
    for (int i = 0; i < CHUNK; i++)
        x[i] = x[i] * scale * w[i];
    return pack_floats<elem>(x);
}

/* Sum over the threads of a row; all groups of a block call together. */
float row_sum(float x, float *scratch) {
    if constexpr (THREADS < 32)
        return lanes_sum<THREADS>(x);
    else
        return group_sum<THREADS>(x, scratch);
}

int64_t row_offset(const bolide__rmsnorm_params &p, int64_t row, int64_t stride_n,
                   int64_t stride_h) {
    if (p.h == 1)
        return row * stride_n;
    /* A 64-bit division costs as much as the rest of a short row. */
    if (p.rows <= 0xffffffffll) {
        const int64_t n = (uint32_t)row / (uint32_t)p.h;
        return n * stride_n + (row - n * p.h) * stride_h;
    }
    return row / p.h * stride_n + row % p.h * stride_h;
}

const elem *input_row(const bolide__rmsnorm_params &p, int64_t row) {
    return static_cast<const elem *>(p.input) + row_offset(p, row, p.input_n, p.input_h);
}

elem *output_row(const bolide__rmsnorm_params &p, int64_t row) {
    return static_cast<elem *>(p.out) + row_offset(p, row, p.out_n, p.out_h);
}

void rows_in_registers(const bolide__rmsnorm_params &p, float *scratch) {
    constexpr int N = PER > 0 ? PER : 1;
    const int thread = threadIdx.x % THREADS;
    const int group = threadIdx.x / THREADS;
    const int64_t step = (int64_t)gridDim.x * ROWS;
    const float eps = (float)p.eps, d = (float)p.d;
    const elem *weight = static_cast<const elem *>(p.weight);
    chunk next[N];

    /* A row past the end is zeros: whole blocks walk together, for the reduction has a barrier. */
    auto read = [&](int64_t row) {
#pragma unroll
        for (int k = 0; k < N; k++)
            next[k] =
                row < p.rows ? read_chunk(input_row(p, row), thread + k * THREADS, p.d) : chunk{};
    };

    int64_t first = (int64_t)blockIdx.x * ROWS;
    if (AHEAD)
        read(first + group);
    for (; first < p.rows; first += step) {
        const int64_t row = first + group;
        if (!AHEAD)
            read(row);
        chunk now[N];
        square_sum sum;
#pragma unroll
        for (int k = 0; k < N; k++) {
            now[k] = next[k];
            sum.add(now[k]);
        }
        if (AHEAD && first + step < p.rows)
            read(row + step);
        const float scale = rsqrt_fast(row_sum(sum.total(), scratch) / d + eps);
        if (row < p.rows) {
            elem *to = output_row(p, row);
#pragma unroll
            for (int k = 0; k < N; k++) {
                const int i = thread + k * THREADS;
                write_chunk(to, i, p.d, scaled(now[k], read_weight(weight, i, p.d), scale));
            }
        }
        if constexpr (THREADS > 32)
            __syncthreads();
    }
}

/* One row a block. Each element is read a second time by the thread that writes it, so the output
 * may be the input. */
void rows_read_twice(const bolide__rmsnorm_params &p, float *scratch) {
    const int64_t chunks = ceil_div(p.d, CHUNK);
    const elem *weight = static_cast<const elem *>(p.weight);
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const elem *from = input_row(p, row);
        elem *to = output_row(p, row);
        square_sum sum;
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < chunks; i += THREADS)
            sum.add(read_chunk(from, i, p.d));
        const float total = row_sum(sum.total(), scratch);
        const float scale = rsqrt_fast(total / (float)p.d + (float)p.eps);
#pragma unroll 4
        for (int64_t i = threadIdx.x; i < chunks; i += THREADS)
            write_chunk(to, i, p.d,
                        scaled(read_chunk(from, i, p.d), read_weight(weight, i, p.d), scale));
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    bolide_rmsnorm(const __grid_constant__ bolide__rmsnorm_params p) {
    __shared__ float scratch[BLOCK / 32];
    if constexpr (PER > 0)
        rows_in_registers(p, scratch);
    else
        rows_read_twice(p, scratch);
}
