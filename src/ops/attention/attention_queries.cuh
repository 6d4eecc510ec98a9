// SPDX-License-Identifier: Apache-2.0
//
// Rows of Q on their way to shared memory, in the type of the products and the order that keys of 8
// bits ask for. Included by attention.cu and attention_stream.cu only, behind their constants and
// their shared memory.

#ifndef BOLIDE_OPS_ATTENTION_QUERIES_CUH
#define BOLIDE_OPS_ATTENTION_QUERIES_CUH

/* Eight neighbours of a row of q, as they lie in memory. */
using q_eight = pack<q_elem, 8>;
constexpr int Q_EIGHTS = (ROWS * DQ / 8 + THREADS - 1) / THREADS; /* of a thread */
/* Whether the next item's wait in registers while the last tile of an item is computed. */
constexpr bool Q_AHEAD = Q_EIGHTS <= 4;
/* Whether rows may come straight to shared memory. */
constexpr bool Q_DIRECT = !Q_AHEAD && same_type<q_elem, half> && KV_BYTES == 2 && STAGES == 2;

q_eight load_eight(const params &p, const work &w, int32_t rows, int i) {
    const int32_t row = i / (DQ / 8);
    const int d = i % (DQ / 8) * 8;
    q_eight x = {};
    if (row < rows && d < D_QK) {
        const int64_t at = ((int64_t)w.q_start + query_token(p, w, row)) * p.q_n +
                           query_head(p, w, row) * p.q_h + d;
        const q_elem *from = static_cast<const q_elem *>(p.q) + at;
        if (p.flags & BOLIDE__ATTN_Q_WIDE) {
            x = load<q_eight>(from);
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++)
                x.at[j] = from[j];
        }
    }
    return x;
}

uint32_t two_halves(const q_eight &x, int i, float factor) {
    if constexpr (FITTED)
        return floats_to_halves<half>(to_float(x.at[i]) * factor, to_float(x.at[i + 1]) * factor);
    else if constexpr (same_type<q_elem, half>)
        return x.at[i].bits | (uint32_t)x.at[i + 1].bits << 16;
    else
        return floats_to_halves<half>(to_float(x.at[i]), to_float(x.at[i + 1]));
}

/* Into its row of shared memory, if the tile has it; in the order that 8-bit keys ask for, see
 * attention_tile.cuh. */
void store_eight(shared_memory &s, const q_eight &x, int i) {
    const int row = i / (DQ / 8), d = i % (DQ / 8) * 8;
    if (row >= ROWS)
        return;
    const float factor = FITTED ? fit(s.tops[row]) : 1.0f;
    uint32_t y[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        y[j] = two_halves(x, 2 * j, factor);
    if constexpr (KV_BYTES == 2) {
        *reinterpret_cast<uint4 *>(s.q + spot<Q_PIECES>(row, d / 8)) = {y[0], y[1], y[2], y[3]};
    } else {
        const int first = d / 16 * 2, byte = d % 16;
        *reinterpret_cast<uint2 *>(s.q + spot<Q_PIECES>(row, first) + byte) = {y[0], y[2]};
        *reinterpret_cast<uint2 *>(s.q + spot<Q_PIECES>(row, first + 1) + byte) = {y[1], y[3]};
    }
}

/* Before it, where rows are FITTED: the largest element of each. */
void note_top(shared_memory &s, const q_eight &x, int i) {
    if constexpr (FITTED) {
        uint32_t top = 0;
#pragma unroll
        for (int j = 0; j < 8; j++)
            top = larger(top, (uint32_t)x.at[j].bits & 0x7fff);
        if (i < ROWS * DQ / 8)
            atomicMax(&s.tops[i / (DQ / 8)], top);
    }
}

/* Asks for all of them; a ring of two stages waits for everything before the next tile. */
void copy_queries(const params &p, const work &w, int32_t rows, shared_memory &s) {
#pragma unroll 4
    for (int j = 0; j < Q_EIGHTS; j++) {
        const int i = j * THREADS + threadIdx.x, row = i / (DQ / 8), d = i % (DQ / 8) * 8;
        if (row >= ROWS)
            break;
        const bool there = row < rows && d < D_QK;
        const int64_t at = ((int64_t)w.q_start + query_token(p, w, row)) * p.q_n +
                           query_head(p, w, row) * p.q_h + d;
        copy_16(s.q + spot<Q_PIECES>(row, d / 8),
                static_cast<const q_elem *>(p.q) + (there ? at : 0), there ? 16 : 0);
    }
    commit_copies();
}

/* FITTED: the tops are 0 before. */
void load_queries(const params &p, const work &w, shared_memory &s) {
    const int32_t rows = packed_rows(p, w, ROWS);
    if constexpr (Q_DIRECT) {
        if (p.flags & BOLIDE__ATTN_Q_WIDE) {
            copy_queries(p, w, rows, s);
            return;
        }
    }
    if constexpr (FITTED) {
#pragma unroll 1
        for (int i = threadIdx.x; i < ROWS * DQ / 8; i += THREADS)
            note_top(s, load_eight(p, w, rows, i), i);
        __syncthreads();
    }
    constexpr int AT_ONCE = MT > 1 ? 2 : smaller(Q_EIGHTS, 4);
#pragma unroll 1
    for (int j = 0; j < Q_EIGHTS; j += AT_ONCE) {
        q_eight x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            x[i] = load_eight(p, w, rows, (j + i) * THREADS + threadIdx.x);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            store_eight(s, x[i], (j + i) * THREADS + threadIdx.x);
    }
}

/* The rows of an item that wait in registers go to shared memory. */
void keep_queries(shared_memory &s, const q_eight (&q)[Q_AHEAD ? Q_EIGHTS : 1]) {
    if constexpr (Q_AHEAD && FITTED) {
#pragma unroll
        for (int i = 0; i < Q_EIGHTS; i++)
            note_top(s, q[i], i * THREADS + threadIdx.x);
        __syncthreads();
    }
    if constexpr (Q_AHEAD) {
#pragma unroll
        for (int i = 0; i < Q_EIGHTS; i++)
            store_eight(s, q[i], i * THREADS + threadIdx.x);
    }
}

void ask_for_queries(const params &p, const work &w, q_eight (&q)[Q_AHEAD ? Q_EIGHTS : 1]) {
    if constexpr (Q_AHEAD) {
#pragma unroll
        for (int i = 0; i < Q_EIGHTS; i++)
            q[i] = load_eight(p, w, packed_rows(p, w, ROWS), i * THREADS + threadIdx.x);
    }
}

#endif
