// SPDX-License-Identifier: Apache-2.0
//
// Chunks of a row for the norm kernels: a chunk is CHUNK elements side by side in one thread, read
// and written VEC at a time, as the row's alignment allows, and at most 16 bytes in one
// instruction. Elements past the end of a row are zeros and are not written.

#ifndef BOLIDE_OPS_NORM_ROW_CHUNKS_CUH
#define BOLIDE_OPS_NORM_ROW_CHUNKS_CUH

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/reduce.cuh"

/* Elements of T in an instruction. */
template <class T, int VEC> constexpr int piece_of = smaller(VEC, 16 / (int)sizeof(T));

/* Chunk i of a row of d elements. STREAM: it is read once. */
template <int CHUNK, int VEC, bool STREAM, class T>
__forceinline__ pack<T, CHUNK> read_chunk(const T *row, int64_t i, int64_t d) {
    constexpr int PIECE = piece_of<T, VEC>;
    pack<T, CHUNK> c = {};
    if constexpr (PIECE == CHUNK) {
        if (i * CHUNK < d)
            c = STREAM ? load_once<pack<T, CHUNK>>(row + i * CHUNK)
                       : load<pack<T, CHUNK>>(row + i * CHUNK);
    } else {
#pragma unroll
        for (int k = 0; k < CHUNK; k += PIECE) {
            if (i * CHUNK + k < d) {
                const pack<T, PIECE> v = load<pack<T, PIECE>>(row + i * CHUNK + k);
#pragma unroll
                for (int j = 0; j < PIECE; j++)
                    c.at[k + j] = v.at[j];
            }
        }
    }
    return c;
}

/* STREAM: the output as a whole does not fit in L2, so none of it need stay there. */
template <int CHUNK, int VEC, bool STREAM, class T>
__forceinline__ void write_chunk(T *row, int64_t i, int64_t d, const pack<T, CHUNK> &c) {
    constexpr int PIECE = piece_of<T, VEC>;
#pragma unroll
    for (int k = 0; k < CHUNK; k += PIECE) {
        pack<T, PIECE> v;
#pragma unroll
        for (int j = 0; j < PIECE; j++)
            v.at[j] = c.at[k + j];
        if (i * CHUNK + k < d)
            store_to<STREAM>(row + i * CHUNK + k, v);
    }
}

/* Sum over the THREADS neighbours that have a row; all threads of a block call together. */
template <int THREADS> __forceinline__ float row_sum(float x, float *scratch) {
    if constexpr (THREADS < 32)
        return lanes_sum<THREADS>(x);
    else
        return group_sum<THREADS>(x, scratch);
}

/* The same of N chunks a thread, THREADS apart. Up to 32 warps of chunks are summed one by one and
 * then as a tree of 32, so that the bits do not depend on how many of them are one thread's. */
template <int THREADS, int N> __forceinline__ float sliced_sum(float (&x)[N], float *scratch) {
    constexpr int WARPS = THREADS / 32;
    if constexpr (WARPS > 1 && WARPS * N <= 32) {
        const int warp = threadIdx.x / 32 % WARPS, lane = threadIdx.x % 32;
        float *group = scratch + threadIdx.x / THREADS * 32;
#pragma unroll
        for (int k = 0; k < N; k++) {
            x[k] = lanes_sum<32>(x[k]);
            if (lane == 0)
                group[warp + k * WARPS] = x[k];
        }
        __syncthreads();
        return lanes_sum<32>(lane < WARPS * N ? group[lane] : 0.0f);
    } else {
        float sum = x[0];
#pragma unroll
        for (int k = 1; k < N; k++)
            sum += x[k];
        return row_sum<THREADS>(sum, scratch);
    }
}

#endif
