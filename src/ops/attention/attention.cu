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
constexpr int ROWS = SPEC_ROWS;     /* 16, 64, 128, 192 */
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
constexpr bool BESIDE = FLAGS & 8192;   /* the kernel ahead of it, whose end is this one's, too */
constexpr bool LINEAR = !PAGED && WIDE; /* rows of keys lie one behind the other */
constexpr bool VARIANT = false;         /* those go to attention_float.cu */
static_assert(D_QK % 8 == 0 && D_VO % 8 == 0 && D_QK <= 256 && D_VO <= 256, "head sizes");
static_assert(ROWS == 16 || ROWS == 64 || ROWS == 128 || ROWS == 192, "rows of a tile");
static_assert(KEYS == 16 || KEYS == 32 || KEYS == 64 || KEYS == 128, "keys of a tile");
static_assert(STAGES >= 2 && STAGES <= 4, "stages of the ring");

#include "ops/attention/attention_types.cuh"

constexpr bool SHARED_ROWS = ROWS == 16, OWN_TILES = false;
constexpr int BLOCK_ROWS = 0;
constexpr int WARPS = SHARED_ROWS ? smaller(KEYS / 16, 4) : larger(ROWS / 32, 4);
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
constexpr bool BENT = CAPPED || ALIBI; /* logits are more than products times a scale */
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
    for (int rounds = 1; rounds < DV / 16; rounds++) {
        const int columns = (DV / 16 + rounds - 1) / rounds * 16;
        if (hand_bytes(columns) <= STAGE)
            return columns;
    }
    return 16;
}
constexpr int HAND = hand_columns();

struct shared_memory {
    alignas(16) unsigned char q[ROWS * Q_ROW];
    alignas(16) unsigned char stage[STAGES][STAGE]; /* KEYS rows of K, as many of V */
    alignas(16) work works[WINDOW];
    /* Byte of each key's row, in the order of share::entry; 0 behind the last key. */
    alignas(16) int64_t k_at[STAGES][KEYS];
    int64_t v_at[STAGES][KEYS];
    int32_t columns[PLACED ? STAGES : 1][PLACED ? KEYS : 1]; /* where keys stand, in their order */
    int32_t keys[STAGES];                                    /* of a tile */
    uint32_t stage_at[STAGES];   /* shared addresses, see copy_16_once */
    float warp_ml[WARPS][16][2]; /* of shared rows */
    row_facts facts[ROWS];
    uint32_t tops[ROWS]; /* of FITTED rows of Q: bits of the largest element without its sign */
    int32_t count;       /* items of the worker */
    int32_t is_last;
};

extern __shared__ __align__(16) unsigned char dynamic[];

#include "ops/attention/attention_copy.cuh"
#include "ops/attention/attention_queries.cuh"
#include "ops/attention/attention_write.cuh"

/* The first tiles, and the page of this thread's key of each. */
struct beginning {
    cursor at[STAGES];
    int32_t page[STAGES];
};

/* The first item, and how many there are. */
void begin_items(const params &p, shared_memory &s) {
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
}

/* Fills the window and finds the first tiles. Behind the last tile come some without keys, which
 * copy nothing. */
void find_tiles(const params &p, shared_memory &s, cursor &ahead, beginning &first) {
    for (int i = 5 + threadIdx.x; i < 5 * (LEAD + 1) && i / 5 < s.count; i += THREADS)
        fetch_work(p, i / 5, i % 5, &s.works[i / 5]);
    commit_copies();
    if (s.works[0].kv_end - s.works[0].kv_begin <= STAGES * KEYS) {
        wait_copies<0>(); /* else not before the first tile is there */
        __syncthreads();
    }
    ahead = {0, s.works[0].kv_begin};
    if constexpr (!LINEAR) {
#pragma unroll
        for (int i = 0; i < STAGES; i++) {
            first.at[i] = ahead;
            first.page[i] = EARLY ? guess_own(p, s, ahead) : look_up_own(p, s, ahead);
            advance(p, s, ahead);
        }
#pragma unroll
        for (int i = 0; i < STAGES; i++) {
            store_location(p, s, first.at[i], i, first.page[i]);
            if constexpr (EARLY)
                prefetch_own(p, s, first.at[i], first.page[i]);
        }
        __syncthreads();
    }
}

void ask_for_tiles(const params &p, shared_memory &s, cursor &ahead) {
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) {
        load_tile(p, s, ahead, i);
        if constexpr (LINEAR)
            advance(p, s, ahead);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    bolide_attention(const __grid_constant__ bolide__attention_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    cursor ahead, now = {0, 0};
    q_eight q_next[Q_AHEAD ? Q_EIGHTS : 1];
    rows_state r;
    beginning first;
    begin_items(p, s);
    if constexpr (EARLY)
        find_tiles(p, s, ahead, first);
    if constexpr (!BESIDE)
        wait_for_previous_kernel();
    release_next_kernel();
    if (s.count == 0) {
        /* One of those without work stays for the other kernel; more would be in decode's way. */
        if (BESIDE && blockIdx.x + blockIdx.y == 0)
            wait_for_previous_kernel();
        return;
    }
    now.key = s.works[0].kv_begin;
    /* Before the tiles: behind them they would wait for all their bytes. */
    if constexpr (Q_DIRECT)
        load_queries(p, s.works[0], s);
    ask_for_queries(p, s.works[0], q_next);
    if constexpr (!EARLY)
        find_tiles(p, s, ahead, first);
    ask_for_tiles(p, s, ahead);
    if (EARLY && correct_guess(p, s, first.at, first.page))
        ask_for_tiles(p, s, ahead);
    if constexpr (Q_AHEAD)
        keep_queries(s, q_next);
    else if constexpr (!Q_DIRECT)
        load_queries(p, s.works[0], s);
    begin_rows(p, s.works[0], r, s.facts, s.tops);
    for (int stage = 0;; stage = stage + 1 < STAGES ? stage + 1 : 0) {
        wait_copies<STAGES - 2>();
        /* The tile at hand is there for all, and all are done with the last one. */
        __syncthreads();
        const int then_stage = stage == 0 ? STAGES - 1 : stage - 1; /* of the tile to ask for */
        if constexpr (!BETWEEN)
            load_tile(p, s, ahead, then_stage);
        int32_t page = PAGED && !BETWEEN ? look_up_own(p, s, ahead) : 0;
        const work &w = s.works[now.item % WINDOW];
        const work &then = s.works[(now.item + 1) % WINDOW];
        const bool last = now.key + KEYS >= w.kv_end, next = last && now.item + 1 < s.count;
        if (next)
            ask_for_queries(p, then, q_next);
        unsigned char *k = s.stage[stage], *v = k + KEYS * K_ROW;
        const int32_t rows = packed_rows(p, w, ROWS);
        tile_copies copies;
        const auto ask = [&](int step) {
            if constexpr (BETWEEN) {
                if (step == 0) {
                    page = look_up_own(p, s, ahead); /* behind the products, which need registers */
                    copies.begin(p, s, ahead, then_stage);
                }
                copies.some(step);
            }
        };
        if (first_row() < rows && !hidden_tile(p, w, now.key)) {
            compute_tile(p, w, rows, now.key, s.facts, r, s.q, k, v, s.columns[PLACED ? stage : 0],
                         ask);
        } else {
#pragma unroll
            for (int i = 0; i < MT * NT; i++)
                ask(i);
        }

        if constexpr (PLACED)
            __syncthreads(); /* all are done with the columns */
        if constexpr (!LINEAR) {
            if constexpr (!PAGED)
                page = look_up_own(p, s, ahead);
            store_location(p, s, ahead, stage, page);
        }
        advance(p, s, ahead);
        now.key += KEYS;
        if (last) {
            if constexpr (SHARED_ROWS)
                write_item(p, w, rows, r, k, s);
            if (FITTED && threadIdx.x < ROWS)
                s.tops[threadIdx.x] = 0;
            if (next) {
                __syncthreads(); /* all are done with Q */
                if constexpr (Q_AHEAD)
                    keep_queries(s, q_next);
                else
                    load_queries(p, then, s);
            }
            if constexpr (!SHARED_ROWS)
                write_item(p, w, rows, r, k, s);
            now.item++;
            if (!next)
                break;
            now.key = then.kv_begin;
            begin_rows(p, then, r, s.facts, s.tops);
        }
    }
    wait_copies<0>();
    /* Who waits for this kernel waits for both. */
    if constexpr (BESIDE)
        wait_for_previous_kernel();
}
