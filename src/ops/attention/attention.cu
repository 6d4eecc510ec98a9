// SPDX-License-Identifier: Apache-2.0
//
// Attention by mma.sync on every chip, over the items of a plan (schedule.h). A block walks through
// the items of one worker for one key head. Tiles of KEYS keys and values pass through a ring of
// STAGES in shared memory; the copies of the next tiles run while one is computed, and they run on
// into the next item, so the memory never waits for the end of one. Which pages the rows of a tile
// lie on is looked up one tile ahead of its copies.
//
//     ROWS 16 (decode): the warps share the 16 packed rows and take 16 keys of each tile; their
//                       results are joined once an item. Reading the cache is the limit.
//     ROWS 64 and more: each warp has 16 or 32 rows of its own and takes all keys. Products are
//                       the limit.
//
// Rows behind the last key are zeros in shared memory, so what lies in a page's tail never counts.
// Sums are f32; weights are rounded to the type of the products before they meet V. Fixed order
// throughout: the bits depend on the plan alone. docs/kernels/attention.md says what was tried.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/attention_internal.h"

#if !defined(SPEC_QT) || !defined(SPEC_KT) || !defined(SPEC_OT) || !defined(SPEC_D_QK) ||          \
    !defined(SPEC_D_VO) || !defined(SPEC_ROWS) || !defined(SPEC_KEYS) || !defined(SPEC_STAGES) ||  \
    !defined(SPEC_FLAGS) || !defined(SPEC_BLOCKS)
#error "QT, KT, OT: dtypes; D_QK, D_VO: sizes; ROWS, KEYS: of a tile; STAGES; FLAGS; BLOCKS"
#endif
constexpr int64_t QT = SPEC_QT; /* F16, BF16, F8_E4M3FN, F8_E5M2 */
constexpr int64_t KT = SPEC_KT; /* the same; 16-bit only if QT is the same */
constexpr int64_t OT = SPEC_OT; /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_QK = SPEC_D_QK; /* multiples of 8 up to 256 */
constexpr int D_VO = SPEC_D_VO;
constexpr int ROWS = SPEC_ROWS;     /* 16, 64, 128 */
constexpr int KEYS = SPEC_KEYS;     /* 16, 32, 64 */
constexpr int STAGES = SPEC_STAGES; /* 2, 3, 4 */
constexpr int FLAGS = SPEC_FLAGS;
constexpr int BLOCKS = SPEC_BLOCKS; /* that must fit a multiprocessor; 0: the compiler's choice */
constexpr bool PAGED = FLAGS & 1;
constexpr bool MASKED = FLAGS & 2; /* causal or window */
constexpr bool CAPPED = FLAGS & 4;
constexpr bool ALIBI = FLAGS & 8;
constexpr bool WIDE = FLAGS & 16;    /* rows of K and V allow copies of 16 bytes */
constexpr bool SPECIAL = FLAGS & 32; /* custom mask or multi-item scoring */
static_assert(D_QK % 8 == 0 && D_VO % 8 == 0 && D_QK <= 256 && D_VO <= 256, "head sizes");
static_assert(ROWS == 16 || ROWS == 64 || ROWS == 128, "rows of a tile");
static_assert(KEYS == 16 || KEYS == 32 || KEYS == 64, "keys of a tile");
static_assert(STAGES >= 2 && STAGES <= 4, "stages of the ring");

using q_elem = element<QT>::type;
using kv_elem = element<KT>::type;
using out_elem = element<OT>::type;
/* The products run in the 16-bit type of q; fp8 values are exact in either. */
template <bool BRAIN> struct choose { using type = f16; };
template <> struct choose<true> { using type = bf16; };
using half = choose<QT == BF16>::type;

constexpr bool SHARED_ROWS = ROWS == 16;
constexpr int WARPS = SHARED_ROWS ? KEYS / 16 : 4;
constexpr int THREADS = 32 * WARPS;
constexpr int MT = SHARED_ROWS ? 1 : ROWS / (16 * WARPS); /* 16-row tiles of a warp */
constexpr int NT = (SHARED_ROWS ? 16 : KEYS) / 8;         /* 8-key tiles of a warp's logits */
constexpr int DQ = (D_QK + 15) / 16 * 16;                 /* padded to whole products */
constexpr int DV = (D_VO + 15) / 16 * 16;
constexpr int KV_BYTES = sizeof(kv_elem);
constexpr int Q_PIECES = DQ / 8; /* of 16 bytes in a row */
constexpr int K_PIECES = DQ * KV_BYTES / 16;
constexpr int V_PIECES = DV * KV_BYTES / 16;
constexpr bool BENT = CAPPED || ALIBI; /* logits are more than products times a scale */
/* Addresses of copies under way at once: where sums fill the registers, few. */
constexpr int COPIES = MT > 1 ? 2 : 4;
constexpr int RING = STAGES < 4 ? 4 : 8; /* of places: more than STAGES */
/* Items at hand: those that the ring reaches back to, and LEAD ahead of the look-ups. */
constexpr int WINDOW = 16, LEAD = 8;
static_assert(WINDOW >= LEAD + STAGES + 2,
              "no item is overwritten while a tile of it is in flight");

#include "ops/attention/attention_device.cuh"
#include "ops/attention/attention_tile.cuh"

constexpr int Q_ROW = row_bytes<Q_PIECES>();
constexpr int K_ROW = row_bytes<K_PIECES>();
constexpr int V_ROW = row_bytes<V_PIECES>();
/* What warps with shared rows hand over at the end of an item lies in the stage just used, as many
 * columns at a time as fit. */
constexpr int hand_bytes(int columns) {
    return WARPS * 16 * (columns + 4) * (int)sizeof(float);
}
constexpr int STAGE =
    larger(KEYS * (K_ROW + V_ROW), SHARED_ROWS ? (hand_bytes(16) + 15) / 16 * 16 : 0);
constexpr int hand_columns() {
    for (int columns = DV; columns > 16; columns -= 16)
        if (hand_bytes(columns) <= STAGE)
            return columns;
    return 16;
}
constexpr int HAND = hand_columns();

struct shared_memory {
    alignas(16) unsigned char q[ROWS * Q_ROW];
    alignas(16) unsigned char stage[STAGES][STAGE]; /* KEYS rows of K, as many of V */
    alignas(16) work works[WINDOW];
    int64_t k_at[RING][KEYS]; /* element of each key's row; −1: no key */
    int64_t v_at[RING][KEYS];
    float warp_ml[WARPS][16][2]; /* of shared rows */
    float rows_ml[ROWS][2];      /* of a merge */
    row_facts facts[ROWS];
    int32_t count; /* items of the worker */
    int32_t is_last;
};

extern __shared__ __align__(16) unsigned char dynamic[];

/* ---- loading ----------------------------------------------------------------------------------
 */

/* Eight neighbours of a row of q, as they lie in memory. */
using q_eight = pack<q_elem, 8>;
constexpr int Q_EIGHTS = (ROWS * DQ / 8 + THREADS - 1) / THREADS; /* of a thread */
/* Whether the next item's wait in registers while the last tile of an item is computed. */
constexpr bool Q_AHEAD = Q_EIGHTS <= 4;

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

uint32_t two_halves(const q_eight &x, int i) {
    if constexpr (same_type<q_elem, half>)
        return x.at[i].bits | (uint32_t)x.at[i + 1].bits << 16;
    else
        return floats_to_halves<half>(to_float(x.at[i]), to_float(x.at[i + 1]));
}

/* Into its row of shared memory; in the order that 8-bit keys ask for, see attention_tile.cuh. */
void store_eight(shared_memory &s, const q_eight &x, int i) {
    const int row = i / (DQ / 8), d = i % (DQ / 8) * 8;
    uint32_t y[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        y[j] = two_halves(x, 2 * j);
    if constexpr (KV_BYTES == 2) {
        *reinterpret_cast<uint4 *>(s.q + spot<Q_PIECES>(row, d / 8)) = {y[0], y[1], y[2], y[3]};
    } else {
        const int first = d / 16 * 2, byte = d % 16;
        *reinterpret_cast<uint2 *>(s.q + spot<Q_PIECES>(row, first) + byte) = {y[0], y[2]};
        *reinterpret_cast<uint2 *>(s.q + spot<Q_PIECES>(row, first + 1) + byte) = {y[1], y[3]};
    }
}

void load_queries(const params &p, const work &w, shared_memory &s) {
    const int32_t rows = packed_rows(p, w, ROWS);
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * DQ / 8; i += THREADS)
        store_eight(s, load_eight(p, w, rows, i), i);
}

/* One side of a tile: rows of D elements. */
template <int D, int PIECES>
void copy_rows(unsigned char *to, const void *from, const int64_t *at) {
    const kv_elem *base = static_cast<const kv_elem *>(from);
    if constexpr (WIDE) {
        constexpr int WHOLE = D * KV_BYTES / 16;
#pragma unroll COPIES
        for (int i = threadIdx.x; i < KEYS * WHOLE; i += THREADS) {
            const int row = i / WHOLE, piece = i % WHOLE;
            const int64_t start = at[row];
            const kv_elem *address = start < 0 ? base : base + start + piece * (16 / KV_BYTES);
            copy_16(to + spot<PIECES>(row, piece), address, start < 0 ? 0 : 16);
        }
    } else {
        for (int i = threadIdx.x; i < KEYS * D; i += THREADS) {
            const int row = i / D, d = i % D;
            constexpr int IN_PIECE = 16 / KV_BYTES;
            kv_elem x = {};
            if (at[row] >= 0)
                x = base[at[row] + d];
            unsigned char *piece = to + spot<PIECES>(row, d / IN_PIECE);
            reinterpret_cast<kv_elem *>(piece)[d % IN_PIECE] = x;
        }
    }
}

void load_tile(const params &p, shared_memory &s, int stage, int slot) {
    copy_rows<D_QK, K_PIECES>(s.stage[stage], p.k, s.k_at[slot]);
    copy_rows<D_VO, V_PIECES>(s.stage[stage] + KEYS * K_ROW, p.v, s.v_at[slot]);
}

/* Columns between the head size and whole products are zero. */
template <int D, int PIECES> void clear_columns(unsigned char *rows) {
    constexpr int IN_PIECE = 16 / KV_BYTES;
    if constexpr (D % 16 != 0) {
        for (int i = threadIdx.x; i < KEYS * 8; i += THREADS) {
            const int row = i / 8, d = D + i % 8;
            unsigned char *piece = rows + spot<PIECES>(row, d / IN_PIECE);
            reinterpret_cast<kv_elem *>(piece)[d % IN_PIECE] = {};
        }
    }
}

void clear_padding(unsigned char *stage) {
    clear_columns<D_QK, K_PIECES>(stage);
    clear_columns<D_VO, V_PIECES>(stage + KEYS * K_ROW);
}

/* ---- the tiles of a worker --------------------------------------------------------------------
 */

/* A tile: which item of the worker, and its first key. An item without keys has one tile. */
struct cursor {
    int32_t item, key;
};

void advance(const params &p, shared_memory &s, cursor &c) {
    if (c.item >= s.count)
        return;
    c.key += KEYS;
    if (c.key < s.works[c.item % WINDOW].kv_end)
        return;
    c.item++;
    c.key = c.item < s.count ? s.works[c.item % WINDOW].kv_begin : 0;
    if (threadIdx.x < 5 && c.item + LEAD < s.count)
        fetch_work(p, c.item + LEAD, threadIdx.x, &s.works[(c.item + LEAD) % WINDOW]);
}

int32_t look_up_own(const params &p, const shared_memory &s, const cursor &c) {
    return c.item < s.count && threadIdx.x < KEYS
               ? look_up(p, s.works[c.item % WINDOW], c.key + (int32_t)threadIdx.x)
               : -1;
}

void store_location(const params &p, shared_memory &s, const cursor &c, int slot, int32_t page) {
    if (threadIdx.x >= KEYS)
        return;
    const location at = locate(p, s.works[c.item % WINDOW], c.key + (int32_t)threadIdx.x, page);
    s.k_at[slot][threadIdx.x] = at.k;
    s.v_at[slot][threadIdx.x] = at.v;
}

#include "ops/attention/attention_write.cuh"

/* Fills the window, looks up the first tiles and starts their copies. Behind the last tile come
 * some without keys, which copy nothing. */
void begin_stream(const params &p, shared_memory &s, cursor &ahead) {
    for (int i = threadIdx.x; i < 5 * (LEAD + 1) && i / 5 < s.count; i += THREADS)
        fetch_work(p, i / 5, i % 5, &s.works[i / 5]);
    for (int i = 0; i < STAGES; i++)
        clear_padding(s.stage[i]);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    ahead = {0, s.works[0].kv_begin};
    cursor at[STAGES];
    int32_t page[STAGES];
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        at[i] = ahead;
        page[i] = look_up_own(p, s, ahead);
        advance(p, s, ahead);
    }
#pragma unroll
    for (int i = 0; i < STAGES; i++)
        store_location(p, s, at[i], i, page[i]);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        load_tile(p, s, i, i);
        commit_copies();
    }
    load_queries(p, s.works[0], s);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    bolide_attention(const __grid_constant__ bolide__attention_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    if (work_count(p) == 0)
        return;
    if (threadIdx.x == 0)
        s.count = work_count(p);
    __syncthreads();
    cursor ahead, now = {0, 0};
    begin_stream(p, s, ahead);
    now.key = s.works[0].kv_begin;
    uint32_t n = 0; /* of the tile at hand */
    rows_state r;
    begin_rows(p, s.works[0], r, s.facts);
    while (now.item < s.count) {
        wait_copies<STAGES - 2>();
        __syncthreads(); /* the tile at hand is there for all, and all are done with the last one */
        load_tile(p, s, (n + STAGES - 1) % STAGES, (n + STAGES - 1) % RING);
        commit_copies();
        int32_t page = PAGED ? look_up_own(p, s, ahead) : 0;

        const work &w = s.works[now.item % WINDOW];
        const work &then = s.works[(now.item + 1) % WINDOW];
        const bool last = now.key + KEYS >= w.kv_end, next = last && now.item + 1 < s.count;
        q_eight q_next[Q_AHEAD ? Q_EIGHTS : 1];
        if constexpr (Q_AHEAD) {
#pragma unroll
            for (int i = 0; i < Q_EIGHTS; i++) {
                const int at = i * THREADS + threadIdx.x;
                if (next && at < ROWS * DQ / 8)
                    q_next[i] = load_eight(p, then, packed_rows(p, then, ROWS), at);
            }
        }
        unsigned char *k = s.stage[n % STAGES], *v = k + KEYS * K_ROW;
        const int32_t rows = packed_rows(p, w, ROWS);
        if (first_row() < rows && !hidden_tile(p, w, now.key))
            compute_tile(p, w, rows, now.key, s.facts, r, s.q, k, v);

        if constexpr (!PAGED)
            page = look_up_own(p, s, ahead);
        store_location(p, s, ahead, (n + STAGES) % RING, page);
        advance(p, s, ahead);
        now.key += KEYS;
        n++;
        if (!last)
            continue;
        write_item(p, w, packed_rows(p, w, ROWS), r, k, s);
        now.item++;
        if (!next)
            break;
        now.key = then.kv_begin;
        __syncthreads(); /* all are done with Q */
        if constexpr (Q_AHEAD) {
#pragma unroll
            for (int i = 0; i < Q_EIGHTS; i++) {
                const int at = i * THREADS + threadIdx.x;
                if (at < ROWS * DQ / 8)
                    store_eight(s, q_next[i], at);
            }
        } else {
            load_queries(p, then, s);
        }
        begin_rows(p, then, r, s.facts);
    }
    wait_copies<0>();
}
