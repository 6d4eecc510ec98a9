// SPDX-License-Identifier: Apache-2.0
//
// Decode on Hopper by warps that go their own way: one block a multiprocessor, whose shared memory
// is all ring. Each warp has SLOTS units of 8 KB of it, a unit being the keys and values of a page
// or of a part of one, which it asks the copy engine for by itself, waits for by itself, and asks
// for anew as soon as it has computed the last one there. No thread spends time on copies, no warp
// waits for another before the end of an item, and nearly all of the shared memory is on its way
// from the first moment on.
//
//     plan -> pages -> | units of a warp, SLOTS on their way | -> warps join -> pieces join -> out
//
// With CLUSTER above 1 the blocks of a cluster share a request, and send each other what they have
// of it; else items are those of a plan for attention.cu. docs/kernels/attention.md has more.

#include "cuda/device/base.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/tma.cuh"
#include "ops/attention/attention_stream.h"

#if !defined(SPEC_QT) || !defined(SPEC_KT) || !defined(SPEC_OT) || !defined(SPEC_D) ||             \
    !defined(SPEC_BOX) || !defined(SPEC_WARPS) || !defined(SPEC_SLOTS) ||                          \
    !defined(SPEC_CLUSTER) || !defined(SPEC_FLAGS)
#error "QT, KT, OT: dtypes; D: size; BOX: keys; WARPS; SLOTS: of a warp; CLUSTER: blocks; FLAGS"
#endif
constexpr int64_t QT = SPEC_QT;       /* F16, BF16; with 8-bit keys F8_E4M3FN, F8_E5M2 too */
constexpr int64_t KT = SPEC_KT;       /* the same as QT, or 8-bit */
constexpr int64_t OT = SPEC_OT;       /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_QK = SPEC_D;          /* 64, 128; of 8 bits 128 */
constexpr int BOX = SPEC_BOX;         /* 16, of 8 bits 32 too */
constexpr int WARPS = SPEC_WARPS;     /* 8, 12, 16 */
constexpr int SLOTS = SPEC_SLOTS;     /* 1, 2 */
constexpr int CLUSTER = SPEC_CLUSTER; /* 1 to 16 */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = true;
constexpr bool MASKED = FLAGS & 2; /* causal */
constexpr bool CAPPED = FLAGS & 4;
constexpr bool ALIBI = FLAGS & 8;
constexpr bool EDGE = FLAGS & BOLIDE__STREAM_EDGE;
constexpr bool SPECIAL = false, RULED = false, V_PAGES = false, VARIANT = false, CHUNKED = false;
constexpr bool ALONE = CLUSTER > 1; /* a block has one item */
static_assert(CLUSTER >= 1 && CLUSTER <= 16 && (CLUSTER & (CLUSTER - 1)) == 0, "of a cluster");

#include "ops/attention/attention_types.cuh"

constexpr int KV_BYTES = sizeof(kv_elem);
constexpr bool SHARED_ROWS = true, OWN_TILES = true, BENT = CAPPED || ALIBI;
constexpr int ROWS = 16, KEYS = BOLIDE__STREAM_KEYS(KV_BYTES), THREADS = 32 * WARPS;
constexpr int MT = 1, NT = KEYS / 8, STAGES = 2;
constexpr int D_VO = D_QK, DQ = D_QK, DV = D_VO;
constexpr int Q_PIECES = DQ / 8, K_PIECES = DQ * KV_BYTES / 16, V_PIECES = DV * KV_BYTES / 16;
constexpr int BLOCK_ROWS = 16;
constexpr int MERGED_AT_ONCE = 8, MERGED_ROWS = 1; /* slots of a thread */
static_assert(D_QK == 128 || (D_QK == 64 && KV_BYTES == 2), "rows of 128 bytes or twice as many");
static_assert(KEYS == BLOCK_ROWS || K_PIECES == 8, "blocks of a unit follow each other");
static_assert(BOX == 16 || BOX == KEYS, "of a page");

#include "ops/attention/attention_plain.cuh"

#include "ops/attention/attention_device.cuh"
#include "ops/attention/attention_tile.cuh"

#include "ops/attention/attention_join.cuh"

constexpr int UNIT_K = KEYS * D_QK * KV_BYTES, UNIT = 2 * UNIT_K;
constexpr int BOXES = KEYS / BOX, BOX_BYTES = BOX * D_QK * KV_BYTES;
constexpr int STEP = WARPS * KEYS; /* keys from a warp's unit to its next */
static_assert(UNIT >= ROWS * D_VO * (int)sizeof(float), "a unit's place holds a warp's sums");

struct shared_memory {
    alignas(1024) unsigned char ring[WARPS][SLOTS][UNIT]; /* keys, then values */
    alignas(128) unsigned char q[ROWS * DQ * 2];
    /* [CLUSTER][this block's part of the rows]; of a merge, what half of the threads have */
    portion got[CLUSTER > 1 ? ROWS *FOURS : THREADS / 2];
    alignas(16) work works[2];
    float warp_ml[WARPS][ROWS][2];
    row_facts facts[ROWS];
    barrier full[WARPS][SLOTS];
    uint32_t tops[ROWS];
    int32_t hand[WARPS]; /* where a warp has left its sums */
    int32_t is_last;
};

extern __shared__ __align__(1024) unsigned char dynamic[];

#include "ops/attention/attention_queries.cuh"

using stream_params = bolide__attention_stream_params;

#include "ops/attention/attention_stream_load.cuh"

/* ---- results ----------------------------------------------------------------------------------
 */

/* Byte of four columns of a row of a warp's sums; neighbouring rows meet other banks. */
int hand_spot(int row, int column) {
    return (row * D_VO + (column ^ (row & 3) * 8)) * (int)sizeof(float);
}

/* The warp leaves its sums where its last unit of the item was. */
void hand_over(int32_t rows, const rows_state &r, shared_memory &s, int slot) {
    unsigned char *to = s.ring[warp_of()][slot];
    __syncwarp(); /* all lanes are done with it */
    if (lane_of() == 0)
        s.hand[warp_of()] = slot;
    leave_rows(rows, r, s.warp_ml[warp_of()],
               [&](int row, int column) -> void * { return to + hand_spot(row, column); });
}

/* Four columns of a row over all warps, of which `count` have keys. */
portion join_rows(const shared_memory &s, int32_t count, int row, int c) {
    return join_warps(s.warp_ml, count, row, [&](int i) -> const void * {
        return s.ring[i][s.hand[i]] + hand_spot(row, c);
    });
}

/* Joins the pieces of a tile. Of few rows a half of the threads takes every second slot. */
void merge_slots(const params &p, const work &w, int32_t rows, shared_memory &s) {
    const int32_t count = rows * FOURS, groups = 2 * count <= THREADS && count % 32 == 0 ? 2 : 1;
    const int32_t own = groups == 2 ? (int32_t)threadIdx.x / (THREADS / 2) : 0;
    const int32_t begin = groups == 2 ? (int32_t)threadIdx.x % (THREADS / 2) : threadIdx.x;
    const int64_t step = p.h_kv * p.tile_rows; /* rows from slot to slot */
#pragma unroll 1
    for (int32_t at = begin; at < count; at += THREADS) {
        const int64_t first = slot_row_of(p, w.merge_slot, at / FOURS);
        merged x = {-INFINITE, 0, {}};
#pragma unroll 1
        for (int32_t j = own; j < w.merge_count; j += MERGED_AT_ONCE * groups) {
            pack<float, 2> ml[MERGED_AT_ONCE];
            pack<float, 4> part[MERGED_AT_ONCE];
            int32_t left = 0;
#pragma unroll
            for (int k = 0; k < MERGED_AT_ONCE; k++) {
                const int32_t slot = j + k * groups;
                ml[k] = {-INFINITE, 0};
                part[k] = {};
                if (slot >= w.merge_count)
                    continue;
                const int64_t row = first + slot * step;
                ml[k] = load_written<pack<float, 2>>(p.partial_ml + 2 * row);
                part[k] = load_written<pack<float, 4>>(p.partial_o + row * D_VO + at % FOURS * 4);
                left = k + 1;
            }
            add_slots(ml, part, left, x);
        }
        if (own == 1)
            s.got[at] = {{x.sum[0], x.sum[1], x.sum[2], x.sum[3]}, x.m, x.l, {}};
        if (groups == 2)
            named_sync(1, 2 * count);
        if (own == 1)
            continue;
        if (groups == 2) {
            const pack<float, 2> ml[1] = {{s.got[at].m, s.got[at].l}};
            const pack<float, 4> part[1] = {load<pack<float, 4>>(s.got[at].sum)};
            add_slots(ml, part, 1, x);
        }
        put_out(finish(p, w, at / FOURS, x.m, x.l, at % FOURS == 0), at % FOURS * 4, x.sum);
    }
}

/* Counts the block in for a tile in several pieces, whose last one joins them, see
 * attention_device.cuh. */
void arrive_piece(const params &p, const work &w, int32_t rows, shared_memory &s) {
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t *arrived = p.arrivals + w.merge * p.h_kv + blockIdx.y;
        s.is_last = count_in(arrived) == w.merge_count - 1;
        if (s.is_last)
            *arrived = 0; /* for the next run */
    }
    __syncthreads();
    if (s.is_last)
        merge_slots(p, w, rows, s);
}

/* The item's rows, finished or into a slot. */
void write_rows(const params &p, const work &w, int32_t rows, shared_memory &s) {
    const int32_t count = smaller((w.kv_end - w.kv_begin + KEYS - 1) / KEYS, WARPS);
#pragma unroll 1
    for (int32_t at = threadIdx.x; at < rows * FOURS; at += THREADS) {
        const int32_t row = at / FOURS, c = at % FOURS * 4;
        const portion x = join_rows(s, count, row, c);
        if (w.slot < 0) {
            put_out(finish(p, w, row, x.m, x.l, c == 0), c, x.sum);
            continue;
        }
        const int64_t slot_row = slot_row_of(p, w.slot, row);
        if (c == 0)
            put_slot_ml(p, slot_row, x.m, x.l);
        store(p.partial_o + slot_row * D_VO + c,
              pack<float, 4>{x.sum[0], x.sum[1], x.sum[2], x.sum[3]});
    }
    if (w.slot >= 0 && !(p.flags & BOLIDE__ATTN_APART))
        arrive_piece(p, w, rows, s);
}

/* Each block of the cluster has a part of the rows, and is sent what the others have of it. */
void write_cluster_rows(const params &p, const work &w, int32_t rows, shared_memory &s) {
    const int32_t count = smaller((w.kv_end - w.kv_begin + KEYS - 1) / KEYS, WARPS);
    const int32_t each = rows * FOURS / CLUSTER;
    const int own = cluster_rank<CLUSTER>();
    cluster_wait<CLUSTER>(); /* all have begun */
#pragma unroll 1
    for (int32_t at = threadIdx.x; at < rows * FOURS; at += THREADS)
        send_portion(s, own, each, at, join_rows(s, count, at / FOURS, at % FOURS * 4));
    put_portions(p, w, s, own, each);
}

/* ---- items ------------------------------------------------------------------------------------
 */

/* Rows of values behind the last key are zeros: nothing that lies there counts. */
void clear_tail(unsigned char *v, int32_t keys) {
    constexpr int WHOLE = V_PIECES;
    for (int i = lane_of() + keys * WHOLE; i < KEYS * WHOLE; i += 32)
        *reinterpret_cast<uint4 *>(v + spot<V_PIECES>(i / WHOLE, i % WHOLE)) = {0, 0, 0, 0};
    __syncwarp();
}

/* compute_tile of a unit: its values are asked for while weights are computed. */
void compute_unit(const params &p, const work &w, int32_t rows, int32_t first, rows_state &r,
                  const shared_memory &s, const unsigned char *k, const unsigned char *v) {
    float x[MT][NT][4];
    constexpr int LOADS = NT / 2 * V_LOADS, EARLY = THREADS == 256 && SLOTS > 1 ? LOADS : LOADS / 4;
    uint32_t raw[NT / 2][V_LOADS][4], a[4];
    products(s.q, k, x);
    const walk<V_PIECES> v_at = v_walk(v, 0);
#pragma unroll
    for (int i = 0; i < EARLY; i++)
        load_along<true>(raw[i / V_LOADS][i % V_LOADS], v_at, i / V_LOADS * 16, i % V_LOADS);
    if (p.flags & BOLIDE__ATTN_SIGNED)
        turn_signs(s.facts, x);
    if constexpr (BENT)
        bend(p, w, first, nullptr, s.facts, x);
    if (!open_tile(p, w, first, rows))
        mask(p, w, first, nullptr, s.facts, x);
    soften(r, s.facts, x, [](int) {});
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[j] =
                floats_to_halves<half>(x[0][n + j / 2][j % 2 * 2], x[0][n + j / 2][j % 2 * 2 + 1]);
#pragma unroll
        for (int i = 0; i < V_LOADS * PARTS; i++) {
            const int ahead = n / 2 * V_LOADS + i / PARTS + larger(EARLY, 1);
            uint32_t b[4];
            if (i % PARTS == 0 && ahead < LOADS)
                load_along<true>(raw[ahead / V_LOADS][ahead % V_LOADS], v_at, ahead / V_LOADS * 16,
                                 ahead % V_LOADS);
            v_operand(b, raw[n / 2][i / PARTS], i % PARTS);
            mma_16x8x16<half>(r.o[0][2 * i], a, b[0], b[1]);
            mma_16x8x16<half>(r.o[0][2 * i + 1], a, b[2], b[3]);
        }
    }
}

/* Whose turn it is in a warp's ring, and the phase of its barrier. */
struct turn {
    int slot;
    uint32_t phase;
};

void next_turn(turn &t) {
    if (++t.slot == SLOTS) {
        t.slot = 0;
        t.phase ^= 1;
    }
}

/* All of the warp's units of an item; the place of the last is asked for again by the caller, as
 * sums are handed over there. Whether there were any. */
bool compute_units(const stream_params &a, const work &w, int32_t rows, int32_t begin,
                   int32_t count, loader &x, rows_state &r, shared_memory &s, turn &t) {
    const int32_t first = w.kv_begin + warp_of() * KEYS;
    bool left = false; /* a place to ask for */
#pragma unroll 1
    for (int32_t key = first; key < w.kv_end; key += STEP) {
        if (left) {
            __syncwarp(); /* all lanes are done with it */
            ask_unit(a, begin, count, x, s, t.slot);
            next_turn(t);
        }
        left = true;
        unsigned char *k = s.ring[warp_of()][t.slot], *v = k + UNIT_K;
        barrier_wait(s.full[warp_of()][t.slot], t.phase);
        if (w.kv_end - key < KEYS)
            clear_tail(v, w.kv_end - key);
        compute_unit(a.p, w, rows, key, r, s, k, v);
    }
    return left;
}

/* An item to shared memory, by copies that the caller waits for. */
void fetch_item(const work &from, work &to) {
    if (threadIdx.x < 5)
        copy_16(reinterpret_cast<char *>(&to) + threadIdx.x * 16,
                reinterpret_cast<const char *>(&from) + threadIdx.x * 16, 16);
    commit_copies();
}

/* The next item's rows of Q and what is the same for all of its units. */
void begin_item(const params &p, const work &w, const q_eight (&q)[1], rows_state &r,
                shared_memory &s) {
    keep_queries(s, q);
    begin_rows(p, w, r, s.facts, s.tops);
    __syncthreads();
}

/* The list of pages may be the previous kernel's work: what is read before its end is a guess, by
 * which the first units are asked for; one outside of the cache brings zeros. Pages are looked up
 * again behind that. A plan is never that kernel's work. */
extern "C" __global__ void __launch_bounds__(THREADS, WARPS == 8 && SLOTS == 1 ? 2 : 1)
    bolide_attention_stream(const __grid_constant__ stream_params a) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    const params &p = a.p;
    const bolide__attention_head &head = a.first.heads[blockIdx.x];
    const int warp = warp_of();
    if ((int64_t)threadIdx.x < a.first.list_lines)
        prefetch(a.first.indices + 32 * threadIdx.x);
    cluster_arrive<CLUSTER>();
    /* What the first copies need of the first item, asked for in one step, ahead of the barriers:
     * list, -, -, keys from; to, -, request, -; items from, how many. */
    const auto *line = reinterpret_cast<const float *>(&head);
    const auto low = load_written<pack<int32_t, 4>>(line + BOLIDE__STREAM_LOW / 4);
    const auto high = load_written<pack<int32_t, 4>>(line + BOLIDE__STREAM_LOW / 4 + 4);
    const auto list = load_written<pack<int32_t, 2>>(line + BOLIDE__STREAM_LIST / 4);
    if (lane_of() == 0) {
        for (int i = 0; i < SLOTS; i++)
            barrier_init(s.full[warp][i], 1);
        fence_barrier_init();
        prefetch_map(warp % 2 ? a.v : a.k);
    }
    const int32_t begin = list.at[0], count = list.at[1];
    loader x = {};
    x.list = a.first.table_row ? high.at[2] * a.first.table_row : (int64_t)low.at[0];
    if (count > 0) {
        x.key = low.at[3] + warp * KEYS;
        x.end = high.at[0];
    }
    look_up_pages(a, x.list, x.key, x.end, x.page);
    fetch_item(head.first, s.works[0]);
    if (FITTED && threadIdx.x < ROWS)
        s.tops[threadIdx.x] = 0;
    __syncwarp();
    if constexpr (EDGE)
        prefetch_unit(a, x);
    wait_for_previous_kernel();
    release_next_kernel();
    if (count == 0)
        return;
    const loader guess = x;
    const int filled = fill(a, begin, count, x, s);
    q_eight q[1];
    ask_for_queries(p, head.first, q);
    turn t = {0, 0};
    if (EDGE && is_wrong(a, guess, x)) {
        for (int i = 0; i < filled; i++)
            barrier_wait(s.full[warp][i], 0);
        __syncwarp(); /* no lane waits for a phase any more that is over once and begins again */
        fill(a, begin, count, x, s);
        t.phase = 1;
    }
    rows_state r;
    wait_copies<0>();
    __syncthreads(); /* the first item and tops are there */
    begin_item(p, s.works[0], q, r, s);
#pragma unroll 1
    for (int32_t item = 0; item < count; item++) {
        const work &w = s.works[item % 2];
        const work *then = p.works + begin + item + 1; /* in global memory */
        const int32_t rows = packed_rows(p, w, ROWS);
        const bool next = !ALONE && item + 1 < count;
        if (next) {
            fetch_item(*then, s.works[(item + 1) % 2]);
            ask_for_queries(p, *then, q);
        }
        const bool left = compute_units(a, w, rows, begin, count, x, r, s, t);
        if (left)
            hand_over(rows, r, s, t.slot);
        if (next) {
            fence_async_shared(); /* a later copy overwrites the sums */
            wait_copies<0>();
        }
        __syncthreads(); /* sums are there, all are done with Q */
        if constexpr (CLUSTER > 1)
            write_cluster_rows(p, w, rows, s);
        else
            write_rows(p, w, rows, s);
        if (!next)
            break;
        if constexpr (FITTED) {
            if (threadIdx.x < ROWS)
                s.tops[threadIdx.x] = 0;
            __syncthreads();
        }
        begin_item(p, s.works[(item + 1) % 2], q, r, s);
        if (left) {
            ask_unit(a, begin, count, x, s, t.slot);
            next_turn(t);
        }
    }
}
