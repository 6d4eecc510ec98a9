// SPDX-License-Identifier: Apache-2.0
//
// Layer norm and its relatives on the GPU (norm_internal.h has the formula). A group of THREADS
// neighbours holds a whole row in registers, PER chunks each, so that the mean and the variance
// around it cost no further read; bytes are the limit. Rows too long for registers (PER 0) are read
// three times, the last two mostly from L2.
//
// Which thread holds which element depends on d and the dtypes alone: a row gives the same bits in
// any batch.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/walk.cuh"
#include "ops/norm/norm_internal.h"
#include "ops/norm/row_chunks.cuh"

#if !defined(SPEC_INPUT) || !defined(SPEC_OUT) || !defined(SPEC_FLAGS) || !defined(SPEC_VEC) ||    \
    !defined(SPEC_THREADS) || !defined(SPEC_PER) || !defined(SPEC_ROWS) || !defined(SPEC_SETS)
#error "INPUT OUT: dtype bits; FLAGS; VEC THREADS PER ROWS SETS: the layout"
#endif
constexpr int64_t INPUT = SPEC_INPUT;
constexpr int64_t OUT = SPEC_OUT; /* INPUT or fp8 */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool FUSED = FLAGS & BOLIDE__LAYERNORM_FUSED;
constexpr bool RESIDUAL = FLAGS & BOLIDE__LAYERNORM_RESIDUAL;
constexpr bool GATE = FLAGS & BOLIDE__LAYERNORM_GATE;
constexpr bool MODULATED = FLAGS & BOLIDE__LAYERNORM_MODULATED;
constexpr int VEC = SPEC_VEC;         /* elements a load: a power of two that divides d */
constexpr int THREADS = SPEC_THREADS; /* of a row: 8, 16 or a multiple of 32 up to 1024 */
constexpr int PER = SPEC_PER;         /* chunks a thread: 1, 2, 4; 0: read again */
constexpr int ROWS = SPEC_ROWS;       /* of a block: 1, 4, 8, 16 */
constexpr int SETS = SPEC_SETS;       /* rows of a thread, one below the other: 1, 2 */
constexpr int BLOCK = THREADS * ROWS;
static_assert(SETS == 1 || (PER > 0 && !FUSED && !MODULATED), "rows that share gamma and beta");
static_assert(BLOCK <= 1024 && BLOCK % 32 == 0, "whole warps");

using input_t = element<INPUT>::type;
using out_t = element<OUT>::type;
constexpr int CHUNK = 16 / (int)sizeof(input_t);
static_assert(VEC >= 1 && CHUNK % VEC == 0, "whole loads");

/* One row. */
struct row {
    const input_t *input, *residual, *gate, *scale, *shift;
    input_t *residual_out;
    out_t *out;
    int64_t d; /* 0 where there is no row: nothing is read or written */
};

template <class T> T *start(const bolide__rows &t, int64_t r, int64_t h) {
    return static_cast<T *>(t.data) + row_offset(t, r, h);
}

row row_at(const bolide__layernorm_params &p, int64_t number) {
    const bool there = number < p.rows;
    const int64_t r = there ? number : 0;
    row x = {};
    x.d = there ? p.d : 0;
    x.input = start<const input_t>(p.input, r, p.h);
    x.out = start<out_t>(p.out, r, p.h);
    if constexpr (RESIDUAL)
        x.residual = start<const input_t>(p.residual, r, p.h);
    if constexpr (GATE)
        x.gate = start<const input_t>(p.gate, r, p.h);
    if constexpr (MODULATED) {
        x.scale = start<const input_t>(p.scale, r, p.h);
        x.shift = start<const input_t>(p.shift, r, p.h);
    }
    if constexpr (FUSED)
        x.residual_out = start<input_t>(p.residual_out, r, p.h);
    return x;
}

void read(const input_t *from, int64_t i, int64_t d, float (&to)[CHUNK]) {
    unpack(read_chunk<CHUNK, VEC, true>(from, i, d), to);
}

/* Of a vector that all rows share. */
void read_shared(const float *from, int64_t i, int64_t d, float (&to)[CHUNK]) {
    unpack(read_chunk<CHUNK, VEC, false>(from, i, d), to);
}

template <int FLAG> void add_bias(const float *bias, int64_t i, int64_t d, float (&to)[CHUNK]) {
    if constexpr (FLAGS & FLAG) {
        float b[CHUNK];
        read_shared(bias, i, d, b);
#pragma unroll
        for (int k = 0; k < CHUNK; k++)
            to[k] += b[k];
    }
}

/* Chunk i of what is normalised. */
void sum_of(const bolide__layernorm_params &p, const row &r, int64_t i, float in_scale,
            float (&x)[CHUNK]) {
    read(r.input, i, r.d, x);
    if constexpr (FUSED) {
        float gate[CHUNK], residual[CHUNK] = {};
        if constexpr (GATE) {
            read(r.gate, i, r.d, gate);
            add_bias<BOLIDE__LAYERNORM_GATE_BIAS>(p.gate_bias, i, r.d, gate);
        }
        if constexpr (RESIDUAL)
            read(r.residual, i, r.d, residual);
#pragma unroll
        for (int k = 0; k < CHUNK; k++) {
            const float factor = GATE ? gate[k] * in_scale : in_scale;
            x[k] = RESIDUAL ? fmaf(x[k], factor, residual[k]) : x[k] * factor;
        }
    }
}

/* As it waits in registers: as it came, where that is all there is to it. */
template <bool FLOATS> struct held_type { using type = pack<input_t, CHUNK>; };
template <> struct held_type<true> { using type = pack<float, CHUNK>; };
using held = held_type<FUSED>::type;

template <bool FLOATS, class T>
void take(const bolide__layernorm_params &p, const row &r, int64_t i, float in_scale,
          pack<T, CHUNK> &to) {
    if constexpr (FLOATS)
        sum_of(p, r, i, in_scale, to.at);
    else
        to = read_chunk<CHUNK, VEC, true>(r.input, i, r.d);
}

/* It stays as it came: left to itself the compiler keeps the floats, twice as many registers. */
template <class T> void keep(T &x) {
    if constexpr (sizeof(T) == 16) {
        words<16> w = bits_as<words<16>>(x);
        asm volatile("" : "+r"(w.a), "+r"(w.b), "+r"(w.c), "+r"(w.d));
        x = bits_as<T>(w);
    }
}

/* Adds up x, or the squares of its distance from the mean. */
template <bool SQUARES> float chunk_sum(const float (&x)[CHUNK], int64_t i, int64_t d, float mean) {
    float part[2] = {};
#pragma unroll
    for (int k = 0; k < CHUNK; k++) {
        const float y = VEC == CHUNK || i * CHUNK + k < d ? x[k] - mean : 0.0f;
        part[k % 2] = SQUARES ? fmaf(y, y, part[k % 2]) : part[k % 2] + y;
    }
    /* A chunk that is one load is inside the row as a whole or not at all. */
    return VEC == CHUNK && i * CHUNK >= d ? 0.0f : part[0] + part[1];
}

/* What chunk i is multiplied by, and what is added. Without modulation all rows share them. */
void terms_of(const bolide__layernorm_params &p, const row &r, int64_t i, float (&factor)[CHUNK],
              float (&term)[CHUNK]) {
    if constexpr (MODULATED) {
        read(r.scale, i, r.d, factor);
        read(r.shift, i, r.d, term);
        add_bias<BOLIDE__LAYERNORM_SCALE_BIAS>(p.scale_bias, i, r.d, factor);
        add_bias<BOLIDE__LAYERNORM_SHIFT_BIAS>(p.shift_bias, i, r.d, term);
#pragma unroll
        for (int k = 0; k < CHUNK; k++)
            factor[k] += 1.0f;
    } else {
        read_shared(p.gamma, i, p.d, factor);
        read_shared(p.beta, i, p.d, term);
    }
}

void finish(const row &r, int64_t i, float mean, float inverse, float out_scale, float (&x)[CHUNK],
            const float (&factor)[CHUNK], const float (&term)[CHUNK]) {
    if constexpr (FUSED)
        write_chunk<CHUNK, VEC, false>(r.residual_out, i, r.d, pack_floats<input_t>(x));
#pragma unroll
    for (int k = 0; k < CHUNK; k++)
        x[k] = fmaf((x[k] - mean) * inverse, factor[k], term[k]) * out_scale;
    write_chunk<CHUNK, VEC, (SETS > 1)>(r.out, i, r.d, pack_floats<out_t>(x));
}

/* Rows of which registers have nothing: read three times. */
void long_row(const bolide__layernorm_params &p, const row &r, float in_scale, float out_scale,
              float *scratch, float *other) {
    const float d = (float)p.d;
    const int64_t chunks = ceil_div(r.d, CHUNK);
    float x[CHUNK], factor[CHUNK], term[CHUNK], sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < chunks; i += THREADS) {
        sum_of(p, r, i, in_scale, x);
        sum += chunk_sum<false>(x, i, r.d, 0.0f);
    }
    const float mean = row_sum<THREADS>(sum, scratch) / d;
    for (int64_t i = threadIdx.x; i < chunks; i += THREADS) {
        sum_of(p, r, i, in_scale, x);
        squares += chunk_sum<true>(x, i, r.d, mean);
    }
    const float inverse = 1.0f / sqrtf(row_sum<THREADS>(squares, other) / d + p.eps);
    for (int64_t i = threadIdx.x; i < chunks; i += THREADS) {
        sum_of(p, r, i, in_scale, x);
        terms_of(p, r, i, factor, term);
        finish(r, i, mean, inverse, out_scale, x, factor, term);
    }
}

/* Sums over the rows that a thread has parts of, with one barrier for all. */
void row_sums(float (&x)[SETS], float (*scratch)[SETS]) {
    constexpr int WARPS = THREADS / 32;
    if constexpr (SETS == 1 || WARPS <= 1) {
#pragma unroll
        for (int s = 0; s < SETS; s++)
            x[s] = row_sum<THREADS>(x[s], &scratch[0][0]);
    } else {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            x[s] = lanes_sum<32>(x[s]);
            if (lane == 0)
                scratch[warp][s] = x[s];
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < SETS; s++)
            x[s] = lanes_sum<32>(lane < WARPS ? scratch[lane][s] : 0.0f);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK,
                                             FUSED || MODULATED ? 1 : larger(1024 / BLOCK, 1))
    bolide_layernorm(const __grid_constant__ bolide__layernorm_params p) {
    __shared__ float scratch[2][BLOCK / 32][SETS];
    release_next_kernel();
    const int thread = threadIdx.x % THREADS;
    row r[SETS];
#pragma unroll
    for (int s = 0; s < SETS; s++)
        r[s] = row_at(p, ((int64_t)blockIdx.x * SETS + s) * ROWS + threadIdx.x / THREADS);
    wait_for_previous_kernel();
    const float in_scale = p.in_scale.tensor ? *p.in_scale.tensor : p.in_scale.number;
    const float out_scale = 1.0f / (p.out_scale.tensor ? *p.out_scale.tensor : p.out_scale.number);
    if constexpr (PER == 0) {
        long_row(p, r[0], in_scale, out_scale, &scratch[0][0][0], &scratch[1][0][0]);
    } else {
        held held_x[SETS][larger(PER, 1)];
        float x[CHUNK], sum[SETS] = {}, squares[SETS] = {}, inverse[SETS];
        const float d = (float)p.d;
#pragma unroll
        for (int s = 0; s < SETS; s++) {
#pragma unroll
            for (int k = 0; k < PER; k++)
                take<FUSED>(p, r[s], thread + k * THREADS, in_scale, held_x[s][k]);
        }
#pragma unroll
        for (int s = 0; s < SETS; s++) {
#pragma unroll
            for (int k = 0; k < PER; k++) {
                unpack(held_x[s][k], x);
                sum[s] += chunk_sum<false>(x, thread + k * THREADS, r[s].d, 0.0f);
            }
        }
        row_sums(sum, scratch[0]);
#pragma unroll
        for (int s = 0; s < SETS; s++) {
            sum[s] /= d;
#pragma unroll
            for (int k = 0; k < PER; k++) {
                keep(held_x[s][k]);
                unpack(held_x[s][k], x);
                squares[s] += chunk_sum<true>(x, thread + k * THREADS, r[s].d, sum[s]);
            }
        }
        row_sums(squares, scratch[1]);
#pragma unroll
        for (int s = 0; s < SETS; s++)
            inverse[s] = 1.0f / sqrtf(squares[s] / d + p.eps);
#pragma unroll
        for (int k = 0; k < PER; k++) {
            float factor[CHUNK], term[CHUNK];
            terms_of(p, r[0], thread + k * THREADS, factor, term);
#pragma unroll
            for (int s = 0; s < SETS; s++) {
                keep(held_x[s][k]);
                unpack(held_x[s][k], x);
                finish(r[s], thread + k * THREADS, sum[s], inverse[s], out_scale, x, factor, term);
            }
        }
    }
}
