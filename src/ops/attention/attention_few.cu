// SPDX-License-Identifier: Apache-2.0
//
// Decode of few short requests on Hopper, where time is the steps to memory that follow each other.
// A block has a multiprocessor of its own and asks for all of its keys and values at once, 16 a
// warp. The blocks of a cluster share a request: each ends with a part of the result and is sent
// what the others have of it, so nothing goes to memory and back.
//
//     plan -> pages -> keys and values -> products -> warps join -> blocks join -> out
//
// attention.cu understands the same plan. docs/kernels/attention.md has what was tried.

#include "cuda/device/base.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/attention_internal.h"

#if !defined(SPEC_T) || !defined(SPEC_OT) || !defined(SPEC_D_QK) || !defined(SPEC_D_VO) ||         \
    !defined(SPEC_WARPS) || !defined(SPEC_CLUSTER) || !defined(SPEC_FLAGS)
#error "T, OT: dtypes; D_QK, D_VO: sizes; WARPS: of a block; CLUSTER: blocks; FLAGS"
#endif
constexpr int64_t T = SPEC_T;         /* F16, BF16 */
constexpr int64_t OT = SPEC_OT;       /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_QK = SPEC_D_QK;       /* 64, 128 */
constexpr int D_VO = SPEC_D_VO;       /* the same */
constexpr int WARPS = SPEC_WARPS;     /* 8, 16 */
constexpr int CLUSTER = SPEC_CLUSTER; /* 1 to 16 */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = true;
constexpr bool MASKED = FLAGS & 2; /* causal, window or chunks */
constexpr bool CAPPED = FLAGS & 4;
constexpr bool ALIBI = FLAGS & 8;
constexpr bool CHUNKED = FLAGS & 1024;
constexpr bool SPECIAL = false, RULED = false, V_PAGES = false, VARIANT = false, FITTED = false;
static_assert((D_QK == 64 || D_QK == 128) && (D_VO == 64 || D_VO == 128), "head sizes");
static_assert(CLUSTER >= 1 && CLUSTER <= 16 && (CLUSTER & (CLUSTER - 1)) == 0, "of a cluster");

using q_elem = element<T>::type;
using kv_elem = q_elem;
using half = q_elem;
using out_elem = element<OT>::type;

constexpr bool SHARED_ROWS = true, OWN_TILES = false, BENT = CAPPED || ALIBI;
constexpr int BLOCK_ROWS = 0;
constexpr int ROWS = 16, KEYS = 16 * WARPS, THREADS = 32 * WARPS;
constexpr int MT = 1, NT = 2;
constexpr int DQ = D_QK, DV = D_VO, KV_BYTES = 2;
constexpr int Q_PIECES = DQ / 8, K_PIECES = DQ / 8, V_PIECES = DV / 8;
constexpr int MERGED_AT_ONCE = 2, MERGED_ROWS = 1; /* of attention_device.cuh, not used */

#include "ops/attention/attention_plain.cuh"

#include "ops/attention/attention_device.cuh"
#include "ops/attention/attention_tile.cuh"

#include "ops/attention/attention_join.cuh"

constexpr int Q_ROW = row_bytes<Q_PIECES>(), K_ROW = row_bytes<K_PIECES>();
constexpr int V_ROW = row_bytes<V_PIECES>();

struct operands {
    alignas(128) unsigned char k[KEYS * K_ROW], v[KEYS * V_ROW], q[ROWS * Q_ROW];
};

struct shared_memory {
    union {
        operands in;
        float hand[WARPS][ROWS][D_VO + 4]; /* sums of the warps, when all are done with those */
    };
    portion got[ROWS * FOURS]; /* [CLUSTER][this block's part of the rows] */
    alignas(16) work item;
    float warp_ml[WARPS][ROWS][2];
    row_facts facts[ROWS];
    uint32_t in_at[2]; /* shared addresses of k and v, see copy_16_once */
    int32_t count;
};

extern __shared__ __align__(128) unsigned char dynamic[];

/* ---- keys, their pages and their rows ---------------------------------------------------------
 */

/* This lane's key, which two lanes share. */
int32_t lane_key(const work &w) {
    return w.kv_begin + (int32_t)(threadIdx.x / 32 * 16 + threadIdx.x % 16);
}

/* Its page, past the first cache; −1 for none. */
int32_t page_of(const params &p, const shared_memory &s) {
    const work &w = s.item;
    int32_t page = -1;
    if (s.count > 0 && lane_key(w) < w.kv_end)
        asm volatile("ld.global.cg.s32 %0, [%1];"
                     : "=r"(page)
                     : "l"(page_entry(p, w, lane_key(w)))
                     : "memory");
    return page;
}

/* Bytes from the key head's first row to that of this lane's key; −1 for none. */
int64_t place_of(const params &p, const work &w, int32_t page, int64_t page_step, int64_t step) {
    const int32_t key = lane_key(w);
    const int64_t row = p.page_shift >= 0 ? (uint32_t)key & ((1u << p.page_shift) - 1)
                                          : (uint32_t)key % (uint32_t)p.page_size;
    return page < 0 ? -1 : (page * page_step + row * step) * KV_BYTES;
}

const char *own_head(const void *cache, int64_t step) {
    return static_cast<const char *>(cache) + blockIdx.y * step * KV_BYTES;
}

/* To L2, while the previous kernel ends: rows of K by one half of the lanes, of V by the other. */
void prefetch_rows(const params &p, const work &w, int32_t page) {
    const bool values = threadIdx.x % 32 >= 16;
    const char *head = values ? own_head(p.v, p.v_h) : own_head(p.k, p.k_h);
    const int64_t at = place_of(p, w, page, values ? p.v_page : p.k_page, values ? p.v_n : p.k_n);
#pragma unroll
    for (int j = 0; j < larger(D_QK, D_VO) * KV_BYTES; j += 128) {
        if (at >= 0 && j < (values ? D_VO : D_QK) * KV_BYTES)
            prefetch(head + at + j);
    }
}

/* The warp's 16 rows of one side, whose places lanes have. Rows that are not there become zeros. */
template <int D, int PIECES> void copy_rows(uint32_t to, const char *from, int64_t place) {
    constexpr int WHOLE = D / 8, STEP = 32 / WHOLE;
    const int lane = threadIdx.x % 32, piece = lane % WHOLE;
#pragma unroll
    for (int j = 0; j < 16 / STEP; j++) {
        const int row = j * STEP + lane / WHOLE;
        const int64_t at = __shfl_sync(0xffffffffu, place, row);
        copy_16_once(to + spot<PIECES>(row, piece), from + (at < 0 ? 0 : at) + piece * 16,
                     at < 0 ? 0 : 16);
    }
}

void copy_tile(const params &p, const shared_memory &s, int32_t page) {
    const int warp = threadIdx.x / 32;
    copy_rows<D_QK, K_PIECES>(s.in_at[0] + warp * 16 * K_ROW, own_head(p.k, p.k_h),
                              place_of(p, s.item, page, p.k_page, p.k_n));
    commit_copies();
    copy_rows<D_VO, V_PIECES>(s.in_at[1] + warp * 16 * V_ROW, own_head(p.v, p.v_h),
                              place_of(p, s.item, page, p.v_page, p.v_n));
    commit_copies();
}

void copy_queries(const params &p, const work &w, int32_t rows, unsigned char *q) {
    const int row = threadIdx.x / Q_PIECES, piece = threadIdx.x % Q_PIECES;
    static_assert(ROWS * Q_PIECES <= THREADS, "a piece a thread");
    if (row < ROWS) {
        const int64_t at = ((int64_t)w.q_start + query_token(p, w, row)) * p.q_n +
                           query_head(p, w, row) * p.q_h + piece * 8;
        copy_16(q + spot<Q_PIECES>(row, piece),
                static_cast<const q_elem *>(p.q) + (row < rows ? at : 0), row < rows ? 16 : 0);
    }
    commit_copies();
}

/* ---- results ----------------------------------------------------------------------------------
 */

/* The warps have sums over their keys of the same rows. */
void hand_over(int32_t rows, const rows_state &r, shared_memory &s) {
    const int warp = threadIdx.x / 32;
    leave_rows(rows, r, s.warp_ml[warp],
               [&](int row, int column) -> void * { return &s.hand[warp][row][column]; });
}

/* Each block has a part of the rows, and is sent what the others have of it. */
void write_rows(const params &p, int32_t rows, shared_memory &s) {
    const work &w = s.item;
    const int32_t each = rows * FOURS / CLUSTER, count = (w.kv_end - w.kv_begin + 15) / 16;
    const int own = cluster_rank<CLUSTER>();
    cluster_wait<CLUSTER>(); /* all have begun */
#pragma unroll 1
    for (int32_t at = threadIdx.x; at < rows * FOURS; at += THREADS) {
        const int row = at / FOURS, c = at % FOURS * 4;
        const portion x = join_warps(s.warp_ml, count, row,
                                     [&](int i) -> const void * { return &s.hand[i][row][c]; });
        if constexpr (CLUSTER == 1)
            put_out(finish(p, w, row, x.m, x.l, c == 0), c, x.sum);
        else
            send_portion(s, own, each, at, x);
    }
    if constexpr (CLUSTER > 1)
        put_portions(p, w, s, own, each);
}

/* The list of pages may be the previous kernel's work: what is read before its end is a guess, kept
 * within the cache, by which the rows are copied. Pages are looked up again behind those copies. A
 * plan is never that kernel's work. */
extern "C" __global__ void __launch_bounds__(THREADS, WARPS == 8 ? 2 : 1)
    bolide_attention_few(const __grid_constant__ bolide__attention_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    const bolide__attention_head &head = p.heads[blockIdx.x];
    cluster_arrive<CLUSTER>();
    if (threadIdx.x < 5)
        reinterpret_cast<uint4 *>(&s.item)[threadIdx.x] =
            reinterpret_cast<const uint4 *>(&head.first)[threadIdx.x];
    if (threadIdx.x == 5)
        s.count = head.count;
    if (threadIdx.x == 32) {
        s.in_at[0] = shared_address(s.in.k);
        s.in_at[1] = shared_address(s.in.v);
    }
    __syncthreads();
    const work &w = s.item;
    int32_t page = page_of(p, s);
    page = page < p.pages ? larger(page, -1) : 0;
    prefetch_rows(p, w, page);
    wait_for_previous_kernel();
    release_next_kernel();
    if (s.count == 0)
        return;
    const int32_t rows = packed_rows(p, w, ROWS);
    const bool busy = w.kv_begin + own_keys() < w.kv_end;
    copy_queries(p, w, rows, s.in.q);
    if (busy)
        copy_tile(p, s, page);
    const int32_t true_page = page_of(p, s);
    if (busy && __any_sync(0xffffffffu, true_page != page)) {
        wait_copies<0>();
        __syncwarp();
        copy_tile(p, s, true_page);
    }
    rows_state r;
    const uint32_t no_tops[ROWS] = {};
    begin_rows(p, w, r, s.facts, no_tops);
    if (busy)
        wait_copies<2>();
    else
        wait_copies<0>();
    __syncthreads(); /* queries and facts are there */
    if (busy) {
        float x[MT][NT][4];
        const int32_t first = w.kv_begin + own_keys();
        wait_copies<1>();
        __syncwarp();
        products(s.in.q, s.in.k, x);
        if (p.flags & BOLIDE__ATTN_SIGNED)
            turn_signs(s.facts, x);
        if constexpr (BENT)
            bend(p, w, first, nullptr, s.facts, x);
        if (!open_tile(p, w, w.kv_begin, rows))
            mask(p, w, first, nullptr, s.facts, x);
        soften(r, s.facts, x, [](int) {});
        wait_copies<0>();
        __syncwarp();
        add_values(r, x, s.in.v);
    }
    __syncthreads(); /* all are done with keys, values and queries */
    hand_over(rows, r, s);
    __syncthreads();
    write_rows(p, rows, s);
}
