// SPDX-License-Identifier: Apache-2.0
//
// sparse_mla on Hopper: a block has a token, 64 of its heads and a piece of its keys. Two
// warpgroups compute by wgmma (latent_sm90.cuh), a third gathers the rows that the lists name.
// 16-bit rows are copied by cp.async, a row of 128 bytes by eight lanes, so that all copies of four
// rows have one address and constant offsets. Rows of 8 bits come through registers, which are
// loaded for one half of a tile while the half before is widened into shared memory.
// A block of many heads stays and takes one such piece of work after another: the next one's Q and
// first tiles come while the rows of the last are written.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mbarrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/wgmma.cuh"
#include "ops/attention/sparse_mla.h"
#include "ops/attention/sparse_mla_sm90.h"

#if !defined(SPEC_T) || !defined(SPEC_OT) || !defined(SPEC_FORMAT) || !defined(SPEC_D_QK) ||       \
    !defined(SPEC_D_VO) || !defined(SPEC_ROWS)
#error "T, OT: dtypes; FORMAT: of the caches; D_QK, D_VO: sizes; ROWS: heads of a block"
#endif
constexpr int64_t T = SPEC_T;       /* F16, BF16: of q, and of plain caches */
constexpr int64_t OT = SPEC_OT;     /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int FORMAT = SPEC_FORMAT; /* bolide_mla_kv_format */
constexpr int D_QK = SPEC_D_QK;     /* D_VO or 64 more */
constexpr int D_VO = SPEC_D_VO;     /* 256, 512 */
constexpr int ROWS = SPEC_ROWS;     /* 16, 64 */
constexpr int TAILS = (D_QK - D_VO) / 64;
static_assert((D_VO == 256 || D_VO == 512) && (D_QK == D_VO || D_QK == D_VO + 64), "head sizes");

using half = element<T>::type;
using out_elem = element<OT>::type;

#include "ops/attention/sparse_mla.cuh"

constexpr bool RAW = FORMAT != PLAIN;
static_assert(!RAW || (T == BF16 && D_VO == 512), "what packed rows widen to");

constexpr int KEYS = 64;
constexpr bool FEW = ROWS == 16;
constexpr int BLOCKS = D_VO / 64; /* blocks of 64 columns of a tile of latents */
constexpr int HALF = BLOCKS / 2;  /* of them, one warpgroup's values */
constexpr int BLOCK = 64 * 128;   /* bytes of a block of 64 rows */
constexpr int Q_BLOCK = ROWS * 128;
constexpr int OWN = D_VO / 2;  /* columns of a warpgroup's sums */
constexpr int COMPUTING = 256; /* threads */
/* Warpgroups that load: with few rows those that compute leave registers for a second one. */
constexpr int LOADERS = FEW && RAW ? 2 : 1;
constexpr int THREADS = COMPUTING + 128 * LOADERS;

#include "ops/attention/sparse_mla_item.cuh"

/* Part 0 of tile w of a pair is half w of its columns, part 1 the other half and the rotary part.
 */
struct shared_memory {
    alignas(
        1024) unsigned char q[BLOCKS + TAILS + (FEW ? 2 : 0)][Q_BLOCK]; /* few: weights behind */
    alignas(1024) unsigned char k[2][BLOCKS][BLOCK];
    alignas(1024) unsigned char tail[2][BLOCK]; /* of keys, then weights */
    float base[2][64];                          /* that tile w's weights have */
    float sum[2][64];
    float top[2][4][4][4], parts[2][4][16]; /* few: of a warp's keys, by head */
    alignas(8) uint16_t there[2][4];        /* a bit a key, by the warp that loads it */
    barrier full_q, empty_q;
    barrier full[2][2], empty[2][2];
    /* Of packed rows only: their scales, and where they lie. */
    alignas(16) uint32_t scales[2 * LOADERS][KEYS][4];
    const char *row[2 * LOADERS][KEYS];
};

extern __shared__ __align__(1024) unsigned char dynamic[];

/* What a warpgroup that computes knows of its item. */
struct context {
    float scale;
};

/* Products to logits; a key that no entry names has none. */
template <int W>
void finish_logits(const context &c, const shared_memory &s, int32_t, float (&x)[KEYS / 2]) {
    const uint2 there = *reinterpret_cast<const uint2 *>(s.there[W]);
#pragma unroll
    for (int e = 0; e < KEYS / 2; e++)
        x[e] *= c.scale;
    if ((there.x & there.y) != 0xffffffffu) {
        const int column = threadIdx.x % 4 * 2;
        const uint32_t low = there.x >> column, high = there.y >> column;
#pragma unroll
        for (int e = 0; e < KEYS / 2; e++) {
            const int key = e / 4 * 8 + e % 2;
            if (!((key < 32 ? low : high) >> key % 32 & 1))
                x[e] = -INFINITE;
        }
    }
}

/* The same of turned products: a thread has two keys. */
template <int W> void finish_logits_few(const context &c, const shared_memory &s, float (&x)[8]) {
    const uint32_t there = (uint32_t)s.there[W][threadIdx.x % 128 / 32] >> threadIdx.x % 32 / 4;
#pragma unroll
    for (int e = 0; e < 8; e++)
        x[e] = there >> e / 2 % 2 * 8 & 1 ? x[e] * c.scale : -INFINITE;
}

/* Blocks of many heads are as many as there is room for: each takes every gridDim-th item. */
uint32_t items_of(const params &p) {
    return FEW ? gridDim.x : (uint32_t)(p.n * p.tiles * p.pieces);
}

int32_t tiles_of(const item &w) {
    return (w.end - w.begin + KEYS - 1) / KEYS;
}

/* Asks for the rows of Q, by COUNT threads. Heads that are not there are zeros. */
template <int COUNT>
void copy_queries(const params &p, const item &w, int thread, shared_memory &s) {
    constexpr int PIECES = D_QK / 8; /* of 16 bytes */
    const half *q = static_cast<const half *>(p.q) + w.token * p.q_n + w.head * p.q_h;
#pragma unroll 6
    for (int i = thread; i < ROWS * PIECES; i += COUNT) {
        const int row = i / PIECES, piece = i % PIECES;
        const bool is = row < w.heads;
        copy_16(s.q[piece / 8] + row * 128 + ((piece ^ row) & 7) * 16,
                q + (is ? row * p.q_h + piece * 8 : 0), is ? 16 : 0);
    }
}

#include "ops/attention/latent_sm90.cuh"

#include "ops/attention/latent_sm90_few.cuh"

#include "ops/attention/sparse_mla_sm90_load.cuh"

/* ---- a warpgroup that computes -----------------------------------------------------------------
 */

/* Few: by both of them. */
void load_queries_few(const params &p, const item &w, shared_memory &s) {
    copy_queries<COMPUTING>(p, w, (int)threadIdx.x, s);
    commit_copies();
    wait_copies<0>();
    fence_async_shared(); /* wgmma reads what these threads have copied */
    named_sync(BOTH, COMPUTING);
}

template <int W>
void write_item(const params &p, const item &w, const rows_state &r, const float (&o)[OWN / 2],
                shared_memory &s) {
    float l[2];
    join_sums<W>(s, r, l);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = row_of(i), head = w.head + row;
        const bool is = row < w.heads;
        const float factor =
            is ? end_row(p, w, row, r.m[i], l[i], W == 0 && threadIdx.x % 4 == 0) : 0.0f;
        if (p.pieces == 1) {
            write_row(static_cast<out_elem *>(p.out) + w.token * p.out_n + head * p.out_h + W * OWN,
                      i, is, factor, o);
        } else if (factor != 0) {
            float *to =
                p.partial_o + (((int64_t)w.token * p.pieces + w.piece) * p.h_q + head) * D_VO;
#pragma unroll
            for (int j = 0; j < OWN / 8; j++)
                store(to + W * OWN + j * 8 + threadIdx.x % 4 * 2,
                      pack<float, 2>{o[4 * j + 2 * i], o[4 * j + 2 * i + 1]});
        }
    }
    named_sync(BOTH, COMPUTING); /* before the sums are written again */
}

template <int W> void compute_few(const params &p, shared_memory &s) {
    const context c = {number_of(p.bmm1_tensor, p.bmm1) * LOG2E};
    const item w = item_of(p, blockIdx.x);
    load_queries_few(p, w, s);
    few_state r;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        r.m[j] = -INFINITE;
        r.l[j] = 0;
    }
#pragma unroll
    for (int i = 0; i < BLOCKS * 8; i++)
        r.o[i / 8][i % 8] = 0;
    run_few<W>(c, tiles_of(w), s, r);
    leave_few<W>(s, r);
    write_few(p, w, s);
}

template <int W> void compute(const params &p, shared_memory &s) {
    const context c = {number_of(p.bmm1_tensor, p.bmm1) * LOG2E};
    course at = {};
#pragma unroll 1
    for (uint32_t i = blockIdx.x; i < items_of(p); i += gridDim.x) {
        const int32_t count = of_warp(tiles_of(item_of(p, i)));
        rows_state r = {{-INFINITE, -INFINITE}, {0, 0}};
        float o[OWN / 2];
#pragma unroll
        for (int j = 0; j < OWN / 2; j++)
            o[j] = 0;
        if (count > 0) {
            wait_full(s.full_q, at.of(2));
            at.turn(2);
            run_tiles<W>(c, count, s, at, r, o);
        }
        asm volatile("" : "+r"(i)); /* nothing of the item is kept in registers */
        write_item<W>(p, item_of(p, i), r, o, s);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bolide_sparse_mla_sm90(const __grid_constant__ bolide__sparse_mla_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    if (threadIdx.x == 0) {
        barrier_init(s.full_q, 128);
        barrier_init(s.empty_q, 8);
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < 2; j++) {
                barrier_init(s.full[i][j], full_arrivals(i, j));
                barrier_init(s.empty[i][j], 4);
            }
        }
        fence_barrier_init();
    }
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();
    const int group = (int)threadIdx.x / 128;
    if (group >= 2) {
        if constexpr (LOADERS == 2)
            take_registers<144>();
        else if constexpr (!FEW)
            give_registers<RAW ? 88 : 56>();
        if (LOADERS == 2 && group == 3)
            load_all<1>(p, s);
        else
            load_all<0>(p, s);
    } else {
        if constexpr (LOADERS == 2)
            give_registers<112>();
        else if constexpr (!FEW)
            take_registers<RAW ? 208 : 224>();
        if constexpr (FEW) {
            if (group == 0)
                compute_few<0>(p, s);
            else
                compute_few<1>(p, s);
        } else {
            if (group == 0)
                compute<0>(p, s);
            else
                compute<1>(p, s);
        }
    }
}
