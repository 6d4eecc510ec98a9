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
            c = STREAM ? load_stream<pack<T, CHUNK>>(row + i * CHUNK)
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

template <int CHUNK, int VEC, class T>
__forceinline__ void write_chunk(T *row, int64_t i, int64_t d, const pack<T, CHUNK> &c) {
    constexpr int PIECE = piece_of<T, VEC>;
#pragma unroll
    for (int k = 0; k < CHUNK; k += PIECE) {
        pack<T, PIECE> v;
#pragma unroll
        for (int j = 0; j < PIECE; j++)
            v.at[j] = c.at[k + j];
        if (i * CHUNK + k < d)
            store(row + i * CHUNK + k, v);
    }
}

/* Sum over the THREADS neighbours that have a row; all threads of a block call together. */
template <int THREADS> __forceinline__ float row_sum(float x, float *scratch) {
    if constexpr (THREADS < 32)
        return lanes_sum<THREADS>(x);
    else
        return group_sum<THREADS>(x, scratch);
}

#endif
