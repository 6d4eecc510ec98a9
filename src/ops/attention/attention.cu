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
    !defined(SPEC_FLAGS)
#error "QT, KT, OT: dtypes; D_QK, D_VO: sizes; ROWS, KEYS: of a tile; STAGES; FLAGS"
#endif
constexpr int64_t QT = SPEC_QT; /* F16, BF16, F8_E4M3FN, F8_E5M2 */
constexpr int64_t KT = SPEC_KT; /* the same; 16-bit only if QT is the same */
constexpr int64_t OT = SPEC_OT; /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_QK = SPEC_D_QK; /* multiples of 8 up to 256 */
constexpr int D_VO = SPEC_D_VO;
constexpr int ROWS = SPEC_ROWS;     /* 16, 64, 128 */
constexpr int KEYS = SPEC_KEYS;     /* 16, 32, 64, 128 */
constexpr int STAGES = SPEC_STAGES; /* 2, 3, 4 */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = FLAGS & 1;
constexpr bool MASKED = FLAGS & 2; /* causal, window or chunks */
constexpr bool CAPPED = FLAGS & 4;
constexpr bool ALIBI = FLAGS & 8;
constexpr bool WIDE = FLAGS & 16;     /* rows of K and V allow copies of 16 bytes */
constexpr bool SPECIAL = FLAGS & 32;  /* custom mask, draft or multi-item scoring */
constexpr bool RULED = FLAGS & 128;   /* the schedule is a rule */
constexpr bool V_PAGES = FLAGS & 512; /* values lie on pages of their own */
constexpr bool CHUNKED = FLAGS & 1024;
constexpr bool VARIANT = false; /* those go to attention_float.cu */
static_assert(D_QK % 8 == 0 && D_VO % 8 == 0 && D_QK <= 256 && D_VO <= 256, "head sizes");
static_assert(ROWS == 16 || ROWS == 64 || ROWS == 128, "rows of a tile");
static_assert(KEYS == 16 || KEYS == 32 || KEYS == 64 || KEYS == 128, "keys of a tile");
static_assert(STAGES >= 2 && STAGES <= 4, "stages of the ring");

using q_elem = element<QT>::type;
using kv_elem = element<KT>::type;
using out_elem = element<OT>::type;
/* The products run in the 16-bit type of q. 8-bit values are exact in either, but come to f16 by
 * one instruction: with them the products are in f16, and rows of q are fitted to it. */
template <bool BRAIN> struct choose { using type = f16; };
template <> struct choose<true> { using type = bf16; };
constexpr bool FITTED = QT == BF16 && sizeof(kv_elem) == 1;
using half = choose<QT == BF16 && !FITTED>::type;

constexpr bool SHARED_ROWS = ROWS == 16;
constexpr int WARPS = SHARED_ROWS ? smaller(KEYS / 16, 4) : 4;
constexpr int THREADS = 32 * WARPS;
constexpr int MT = SHARED_ROWS ? 1 : ROWS / (16 * WARPS); /* 16-row tiles of a warp */
constexpr int NT = KEYS / (SHARED_ROWS ? WARPS : 1) / 8;  /* 8-key tiles of a warp's logits */
constexpr int DQ = (D_QK + 15) / 16 * 16;                 /* padded to whole products */
constexpr int DV = (D_VO + 15) / 16 * 16;
constexpr int KV_BYTES = sizeof(kv_elem);
constexpr int Q_PIECES = DQ / 8; /* of 16 bytes in a row */
constexpr int K_PIECES = DQ * KV_BYTES / 16;
constexpr int V_PIECES = DV * KV_BYTES / 16;
/* Blocks of a multiprocessor that the registers are shared out for. */
constexpr int BLOCKS = SHARED_ROWS && DV <= 128 ? 3 : 2;
constexpr bool BENT = CAPPED || ALIBI;   /* logits are more than products times a scale */
constexpr int RING = STAGES < 4 ? 4 : 8; /* of places: more than STAGES */
/* Slots and rows that a thread reads at once in a merge: of few rows there are many slots. */
constexpr int MERGED_AT_ONCE = SHARED_ROWS ? 17 : 2, MERGED_ROWS = SHARED_ROWS ? 1 : 4;
/* Items at hand: those that the ring reaches back to, and LEAD ahead of the look-ups. */
constexpr int WINDOW = 16, LEAD = 8;
static_assert(WINDOW >= LEAD + STAGES + 2,
              "no item is overwritten while a tile of it is in flight");

#include "ops/attention/attention_plain.cuh"

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
    int64_t k_at[RING][KEYS]; /* byte of each key's row; 0 behind the last key */
    int64_t v_at[RING][KEYS];
    int32_t keys[RING];          /* of a tile */
    uint32_t stage_at[STAGES];   /* shared addresses, see copy_16_once */
    float warp_ml[WARPS][16][2]; /* of shared rows */
    row_facts facts[ROWS];
    uint32_t tops[ROWS]; /* of FITTED rows of Q: bits of the largest element without its sign */
    int32_t count;       /* items of the worker */
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

/* One side of a tile by copies of 16 bytes: KEYS rows of D elements, of which the first `count` are
 * there, or all. The loop has a length that the compiler knows, and `at` has bytes, so that a copy
 * costs a sum and little more. */
template <int D, int PIECES, bool ALL>
void copy_pieces(unsigned char *to, uint32_t to_at, const char *from, const int64_t *at,
                 int32_t count) {
    constexpr int WHOLE = D * KV_BYTES / 16;
    constexpr int COPIES = (KEYS * WHOLE + THREADS - 1) / THREADS;
    constexpr int UNROLL = MT > 1 ? 2 : 16; /* where sums fill the registers, few */
    /* Where a round of all threads is whole rows, a thread's piece stays the same. */
    constexpr bool EVEN = THREADS % WHOLE == 0;
    constexpr int STEP = EVEN ? THREADS / WHOLE : 0;
    const int own_row = threadIdx.x / WHOLE, own_piece = threadIdx.x % WHOLE;
    if constexpr (EVEN)
        from += own_piece * 16;
#pragma unroll UNROLL
    for (int j = 0; j < COPIES; j++) {
        const int i = j * THREADS + threadIdx.x;
        if (KEYS * WHOLE % THREADS != 0 && i >= KEYS * WHOLE)
            break;
        const int row = EVEN ? own_row + j * STEP : i / WHOLE;
        const int piece = EVEN ? own_piece : i % WHOLE;
        const int place = EVEN && STEP % 8 == 0
                              ? spot<PIECES>(own_row, piece) + j * STEP * row_bytes<PIECES>()
                              : spot<PIECES>(row, piece);
        const char *address = from + at[row] + (EVEN ? 0 : piece * 16);
        const int bytes = ALL || row < count ? 16 : 0;
        if constexpr (SHARED_ROWS)
            copy_16_once(to_at + place, address, bytes);
        else
            copy_16(to + place, address, bytes);
    }
}

template <int D, int PIECES>
void copy_rows(unsigned char *to, uint32_t to_at, const void *from, const int64_t *at,
               int32_t count) {
    const char *base = static_cast<const char *>(from);
    if constexpr (WIDE) {
        if (count >= KEYS)
            copy_pieces<D, PIECES, true>(to, to_at, base, at, count);
        else
            copy_pieces<D, PIECES, false>(to, to_at, base, at, count);
    } else {
#pragma unroll 4
        for (int j = 0; j < KEYS * D / THREADS; j++) {
            const int i = j * THREADS + threadIdx.x;
            const int row = i / D, d = i % D;
            constexpr int IN_PIECE = 16 / KV_BYTES;
            kv_elem x = {};
            if (row < count)
                x = reinterpret_cast<const kv_elem *>(base + at[row])[d];
            unsigned char *piece = to + spot<PIECES>(row, d / IN_PIECE);
            reinterpret_cast<kv_elem *>(piece)[d % IN_PIECE] = x;
        }
    }
}

void load_tile(const params &p, shared_memory &s, int stage, int slot) {
    unsigned char *to = s.stage[stage];
    const uint32_t at = SHARED_ROWS ? s.stage_at[stage] : 0;
    copy_rows<D_QK, K_PIECES>(to, at, p.k, s.k_at[slot], s.keys[slot]);
    copy_rows<D_VO, V_PIECES>(to + KEYS * K_ROW, at + KEYS * K_ROW, p.v, s.v_at[slot],
                              s.keys[slot]);
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

/* Page of this thread's key of a tile; −1 if it has none. */
int32_t look_up_own(const params &p, const shared_memory &s, const cursor &c) {
    return c.item < s.count && threadIdx.x < KEYS
               ? look_up(p, s.works[c.item % WINDOW], c.key + (int32_t)threadIdx.x)
               : -1;
}

void store_location(const params &p, shared_memory &s, const cursor &c, int slot, int32_t page) {
    if (threadIdx.x >= KEYS)
        return;
    const work &w = s.works[c.item % WINDOW];
    const location at = locate(p, w, c.key + (int32_t)threadIdx.x, page);
    s.k_at[slot][threadIdx.x] = at.k * KV_BYTES;
    s.v_at[slot][threadIdx.x] = at.v * KV_BYTES;
    if (threadIdx.x == 0)
        s.keys[slot] = c.item < s.count ? w.kv_end - c.key : 0;
}

#include "ops/attention/attention_write.cuh"

/* Fills the window and looks up the first tiles. Behind the last tile come some without keys, which
 * copy nothing. */
void begin_stream(const params &p, shared_memory &s, cursor &ahead) {
    if (threadIdx.x < 5)
        fetch_work(p, 0, threadIdx.x, &s.works[0]);
    commit_copies();
    if (threadIdx.x == 0)
        s.count = work_count(p);
    for (int i = 0; i < STAGES; i++)
        clear_padding(s.stage[i]);
    if (FITTED && threadIdx.x < ROWS)
        s.tops[threadIdx.x] = 0;
    if (threadIdx.x < STAGES)
        s.stage_at[threadIdx.x] = shared_address(s.stage[threadIdx.x]);
    wait_copies<0>();
    __syncthreads();
    if (s.count == 0)
        return;
    for (int i = 5 + threadIdx.x; i < 5 * (LEAD + 1) && i / 5 < s.count; i += THREADS)
        fetch_work(p, i / 5, i % 5, &s.works[i / 5]);
    commit_copies();
    if (s.works[0].kv_end - s.works[0].kv_begin <= STAGES * KEYS) {
        wait_copies<0>(); /* else not before the first tile is there */
        __syncthreads();
    }
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
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    bolide_attention(const __grid_constant__ bolide__attention_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    cursor ahead, now = {0, 0};
    wait_for_previous_kernel();
    release_next_kernel();
    begin_stream(p, s, ahead);
    if (s.count == 0)
        return;
    now.key = s.works[0].kv_begin;
    rows_state r;
    for (uint32_t i = 0; now.item < s.count; i++) { /* i: of the tile to copy */
        if (i >= STAGES - 1) {
            wait_copies<STAGES - 2>();
            /* The tile at hand is there for all, and all are done with the last one. */
            __syncthreads();
        }
        load_tile(p, s, i % STAGES, i % RING);
        commit_copies();
        if (i < STAGES - 1) {
            if (i == STAGES - 2) {
                load_queries(p, s.works[0], s);
                begin_rows(p, s.works[0], r, s.facts, s.tops);
            }
            continue;
        }
        const uint32_t n = i - (STAGES - 1); /* of the tile at hand */
        int32_t page = PAGED ? look_up_own(p, s, ahead) : 0;

        const work &w = s.works[now.item % WINDOW];
        const work &then = s.works[(now.item + 1) % WINDOW];
        const bool last = now.key + KEYS >= w.kv_end, next = last && now.item + 1 < s.count;
        q_eight q_next[Q_AHEAD ? Q_EIGHTS : 1];
        if constexpr (Q_AHEAD) {
#pragma unroll
            for (int i = 0; i < Q_EIGHTS; i++) {
                if (next)
                    q_next[i] =
                        load_eight(p, then, packed_rows(p, then, ROWS), i * THREADS + threadIdx.x);
            }
        }
        unsigned char *k = s.stage[n % STAGES], *v = k + KEYS * K_ROW;
        const int32_t rows = packed_rows(p, w, ROWS);
        if (first_row() < rows && !hidden_tile(p, w, now.key))
            compute_tile(p, w, rows, now.key, s.facts, r, s.q, k, v);

        if constexpr (!PAGED)
            page = look_up_own(p, s, ahead);
        store_location(p, s, ahead, (i + 1) % RING, page);
        advance(p, s, ahead);
        now.key += KEYS;
        if (!last)
            continue;
        write_item(p, w, packed_rows(p, w, ROWS), r, k, s);
        now.item++;
        if (!next)
            break;
        now.key = then.kv_begin;
        if (FITTED && threadIdx.x < ROWS)
            s.tops[threadIdx.x] = 0;
        __syncthreads(); /* all are done with Q */
        if constexpr (Q_AHEAD && FITTED) {
#pragma unroll
            for (int i = 0; i < Q_EIGHTS; i++)
                note_top(s, q_next[i], i * THREADS + threadIdx.x);
            __syncthreads();
        }
        if constexpr (Q_AHEAD) {
#pragma unroll
            for (int i = 0; i < Q_EIGHTS; i++)
                store_eight(s, q_next[i], i * THREADS + threadIdx.x);
        } else {
            load_queries(p, then, s);
        }
        begin_rows(p, then, r, s.facts, s.tops);
    }
    wait_copies<0>();
}
