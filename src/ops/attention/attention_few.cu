// SPDX-License-Identifier: Apache-2.0
//
// Decode of few requests on Hopper, where each step to memory is a good part of the time. A block
// has a multiprocessor of its own and nearly all of its shared memory in flight; its warps have 16
// keys each of a tile and a ring of their own, and wait for nobody before the end of an item. The
// pieces of a request are joined by a cluster: each block has a part of the result and is sent
// what the others have of it, so nothing goes to memory and back.
//
//     plan -> pages -> keys and values -> products -> warps join -> blocks join -> out
//
// Where lengths differ much the plan cuts its tape instead (schedule.h), and pieces are joined
// through slots as in attention.cu, which takes the same plan. docs/kernels/attention.md has what
// was tried.

#include "cuda/device/base.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/attention_internal.h"

#if !defined(SPEC_T) || !defined(SPEC_OT) || !defined(SPEC_D_QK) || !defined(SPEC_D_VO) ||         \
    !defined(SPEC_WARPS) || !defined(SPEC_STAGES) || !defined(SPEC_CLUSTER) ||                     \
    !defined(SPEC_FLAGS)
#error "T, OT: dtypes; D_QK, D_VO: sizes; WARPS; STAGES: of the ring; CLUSTER: blocks; FLAGS"
#endif
constexpr int64_t T = SPEC_T;       /* F16, BF16 */
constexpr int64_t OT = SPEC_OT;     /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_QK = SPEC_D_QK;     /* 64, 128 */
constexpr int D_VO = SPEC_D_VO;     /* the same */
constexpr int WARPS = SPEC_WARPS;   /* 8, 12 */
constexpr int STAGES = SPEC_STAGES; /* 2, 3 */
constexpr int CLUSTER = SPEC_CLUSTER;
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = true;
constexpr bool MASKED = FLAGS & 2; /* causal, window or chunks */
constexpr bool CAPPED = FLAGS & 4;
constexpr bool ALIBI = FLAGS & 8;
constexpr bool CHUNKED = FLAGS & 1024;
constexpr bool SPECIAL = false, RULED = false, V_PAGES = false, VARIANT = false, FITTED = false;
static_assert((D_QK == 64 || D_QK == 128) && (D_VO == 64 || D_VO == 128), "head sizes");
static_assert(CLUSTER == 1 || CLUSTER == 2 || CLUSTER == 4 || CLUSTER == 8 || CLUSTER == 16,
              "blocks of a cluster");

using q_elem = element<T>::type;
using kv_elem = q_elem;
using half = q_elem;
using out_elem = element<OT>::type;

constexpr bool SHARED_ROWS = true, BENT = CAPPED || ALIBI;
constexpr int ROWS = 16, KEYS = 16 * WARPS, THREADS = 32 * WARPS;
constexpr int MT = 1, NT = 2;
constexpr int DQ = D_QK, DV = D_VO, KV_BYTES = 2;
constexpr int Q_PIECES = DQ / 8, K_PIECES = DQ / 8, V_PIECES = DV / 8;
constexpr int MERGED_AT_ONCE = 17, MERGED_ROWS = 1;
constexpr int MOST_ITEMS = 16; /* of a worker */

#include "ops/attention/attention_plain.cuh"

#include "ops/attention/attention_device.cuh"
#include "ops/attention/attention_tile.cuh"

constexpr int Q_ROW = row_bytes<Q_PIECES>(), K_ROW = row_bytes<K_PIECES>();
constexpr int V_ROW = row_bytes<V_PIECES>();
constexpr int Q_BUFFERS = STAGES + 1; /* items whose tiles the ring reaches */
constexpr int PARTS_OF_ROW = D_VO / 4;

/* What a block sends of four columns of a row. */
struct alignas(16) portion {
    float sum[4];
    float m, l, unused[2];
};

/* Columns that the warps hand over at once: all behind the last tile, through the ring; else those
 * that a place of their own has room for. */
constexpr int LITTLE = 16;
template <int COLUMNS> using handover = float[WARPS][16][COLUMNS + 4];

struct shared_memory {
    alignas(128) unsigned char stage[STAGES][KEYS * (K_ROW + V_ROW)];
    alignas(16) unsigned char q[Q_BUFFERS][ROWS * Q_ROW];
    union {
        handover<LITTLE> hand;
        portion got[ROWS * PARTS_OF_ROW]; /* [CLUSTER][this block's part of the rows] */
    } join;
    alignas(16) work works[MOST_ITEMS];
    float warp_ml[WARPS][16][2];
    row_facts facts[ROWS];
    uint32_t stage_at[STAGES]; /* shared addresses, see copy_16_once */
    int32_t count;
    int32_t is_last;
};
static_assert(sizeof(handover<D_VO>) <= sizeof(unsigned char[STAGES][KEYS * (K_ROW + V_ROW)]),
              "the ring has room for what the warps hand over");

extern __shared__ __align__(128) unsigned char dynamic[];

/* ---- the tiles of a worker --------------------------------------------------------------------
 */

/* A tile: which item of the worker, and its first key. An item without keys has one tile. */
struct cursor {
    int32_t item, key;
};

void advance(const shared_memory &s, cursor &c) {
    if (c.item >= s.count)
        return;
    c.key += KEYS;
    if (c.key < s.works[c.item].kv_end)
        return;
    c.item++;
    c.key = c.item < s.count ? s.works[c.item].kv_begin : 0;
}

/* The plan's part, in one step to memory where there is one item. */
void begin_items(const params &p, shared_memory &s) {
    const bolide__attention_head &head = p.heads[blockIdx.x];
    if (threadIdx.x < 5)
        reinterpret_cast<uint4 *>(&s.works[0])[threadIdx.x] =
            reinterpret_cast<const uint4 *>(&head.first)[threadIdx.x];
    if (threadIdx.x == 5)
        s.count = head.count;
    if (threadIdx.x < STAGES)
        s.stage_at[threadIdx.x] = shared_address(s.stage[threadIdx.x]);
    __syncthreads();
    if (s.count <= 1)
        return;
    for (int i = threadIdx.x; i < 5 * (s.count - 1); i += THREADS)
        reinterpret_cast<uint4 *>(&s.works[1])[i] =
            reinterpret_cast<const uint4 *>(p.works + head.begin + 1)[i];
    __syncthreads();
}

/* This lane's key of the warp's part of a tile, which two lanes share. */
int32_t lane_key(const cursor &c) {
    return c.key + (int32_t)(threadIdx.x / 32 * 16 + threadIdx.x % 16);
}

/* Its page, past the first cache; −1 for none. */
int32_t page_of(const params &p, const shared_memory &s, const cursor &c) {
    int32_t page = -1;
    if (c.item >= s.count)
        return page;
    const work &w = s.works[c.item];
    if (lane_key(c) < w.kv_end)
        asm volatile("ld.global.cg.s32 %0, [%1];"
                     : "=r"(page)
                     : "l"(page_entry(p, w, lane_key(c)))
                     : "memory");
    return page;
}

/* ---- copies -----------------------------------------------------------------------------------
 */

/* 16 rows of D elements, of which lanes have the places in bytes; −1: none. */
template <int D, int PIECES> void copy_side(uint32_t to_at, const char *from, int64_t place) {
    constexpr int WHOLE = D / 8, STEP = 32 / WHOLE;
    const int lane = threadIdx.x % 32, piece = lane % WHOLE;
#pragma unroll
    for (int j = 0; j < 16 / STEP; j++) {
        const int row = j * STEP + lane / WHOLE;
        const int64_t at = __shfl_sync(0xffffffffu, place, row);
        copy_16_once(to_at + spot<PIECES>(row, piece), from + (at < 0 ? 0 : at) + piece * 16,
                     at < 0 ? 0 : 16);
    }
}

/* This thread's share of an item's queries. */
void copy_queries(const params &p, const work &w, unsigned char *q) {
    const int32_t rows = packed_rows(p, w, ROWS);
#pragma unroll
    for (int first = 0; first < ROWS * Q_PIECES; first += THREADS) {
        const int i = first + (int)threadIdx.x, row = i / Q_PIECES, piece = i % Q_PIECES;
        if (row >= ROWS)
            break;
        const int64_t at = ((int64_t)w.q_start + query_token(p, w, row)) * p.q_n +
                           query_head(p, w, row) * p.q_h + piece * 8;
        copy_16(q + spot<Q_PIECES>(row, piece),
                static_cast<const q_elem *>(p.q) + (row < rows ? at : 0), row < rows ? 16 : 0);
    }
}

/* Bytes from the key head's first row to that of this lane's key. */
int64_t place_of_key(const params &p, int32_t key, int32_t page, int64_t page_step, int64_t step) {
    const int64_t row = p.page_shift >= 0 ? (uint32_t)key & ((1u << p.page_shift) - 1)
                                          : (uint32_t)key % (uint32_t)p.page_size;
    return page < 0 ? -1 : (page * page_step + row * step) * KV_BYTES;
}

const char *own_head(const void *cache, int64_t step) {
    return static_cast<const char *>(cache) + blockIdx.y * step * KV_BYTES;
}

/* The warp's part of a tile, and with the first of an item its queries. Rows behind the last key
 * are zeros; where there are none at all, nothing reads them. */
void load_tile(const params &p, shared_memory &s, const cursor &c, int stage, int32_t page) {
    if (c.item < s.count) {
        const work &w = s.works[c.item];
        const int warp = threadIdx.x / 32;
        if (c.key == w.kv_begin)
            copy_queries(p, w, s.q[c.item % Q_BUFFERS]);
        if (c.key + warp * 16 < w.kv_end) {
            const int32_t key = lane_key(c);
            const uint32_t to = s.stage_at[stage];
            copy_side<D_QK, K_PIECES>(to + warp * 16 * K_ROW, own_head(p.k, p.k_h),
                                      place_of_key(p, key, page, p.k_page, p.k_n));
            copy_side<D_VO, V_PIECES>(to + KEYS * K_ROW + warp * 16 * V_ROW, own_head(p.v, p.v_h),
                                      place_of_key(p, key, page, p.v_page, p.v_n));
        }
    }
    commit_copies();
}

/* ---- the end of an item -----------------------------------------------------------------------
 */

/* The warps have parts of the same rows: joined COLUMNS at a time, four a thread, and handed to
 * put(row, column, m, l, sums). */
template <int COLUMNS, class F>
void join_warps(int32_t rows, const rows_state &r, shared_memory &s, handover<COLUMNS> &h,
                const F &put) {
    constexpr int PARTS = COLUMNS / 4;
    constexpr int AT_ONCE = COLUMNS == DV ? WARPS : 2; /* else sums fill the registers */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float l = lanes_sum<4>(r.l[0][i]);
        if (lane % 4 == 0) {
            s.warp_ml[warp][lane / 4 + 8 * i][0] = r.m[0][i];
            s.warp_ml[warp][lane / 4 + 8 * i][1] = l;
        }
    }
#pragma unroll 1
    for (int first = 0; first < DV; first += COLUMNS) {
        __syncthreads(); /* all are done with what lay there */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (lane / 4 + 8 * i >= rows)
                continue;
#pragma unroll
            for (int j = 0; j < DV / 8; j++) {
                const int column = column_of(j) - first;
                const float2_t x = pair_of(r, 0, i, j);
                if (COLUMNS == DV || (column >= 0 && column < COLUMNS))
                    *reinterpret_cast<float2 *>(&h[warp][lane / 4 + 8 * i][column]) = {x.x, x.y};
            }
        }
        __syncthreads();
#pragma unroll 1
        for (int32_t at = threadIdx.x; at < rows * PARTS; at += THREADS) {
            const int32_t row = at / PARTS;
            const int c = at % PARTS * 4;
            float m = -INFINITE, l = 0, x[4] = {};
#pragma unroll AT_ONCE
            for (int i = 0; i < WARPS; i++)
                m = fmaxf(m, s.warp_ml[i][row][0]);
#pragma unroll AT_ONCE
            for (int i = 0; i < WARPS; i++) {
                const float own = s.warp_ml[i][row][0];
                const float weight = own == -INFINITE ? 0.0f : exp2_fast(own - m);
                const float4 part = *reinterpret_cast<const float4 *>(&h[i][row][c]);
                l += s.warp_ml[i][row][1] * weight;
                x[0] = fmaf(part.x, weight, x[0]);
                x[1] = fmaf(part.y, weight, x[1]);
                x[2] = fmaf(part.z, weight, x[2]);
                x[3] = fmaf(part.w, weight, x[3]);
            }
            put(row, first + c, m, l, x);
        }
    }
}

/* Writes the result or a slot. */
template <int COLUMNS>
void write_item(const params &p, const work &w, int32_t rows, const rows_state &r, shared_memory &s,
                handover<COLUMNS> &h) {
    join_warps<COLUMNS>(
        rows, r, s, h, [&](int32_t row, int c, float m, float l, const float(&x)[4]) {
            if (w.slot < 0) {
                put_out(finish(p, w, row, m, l, c == 0), c, x);
                return;
            }
            const int64_t slot_row = slot_row_of(p, w.slot, row);
            if (c == 0)
                put_slot_ml(p, slot_row, m, l);
            store(p.partial_o + slot_row * D_VO + c, pack<float, 4>{x[0], x[1], x[2], x[3]});
        });
    if (w.slot >= 0)
        arrive(p, w, rows, s.is_last);
}

/* Each block of the cluster has a part of the rows, and adds what all have of it in the order of
 * their keys. */
void join_cluster(const params &p, const work &w, int32_t rows, const rows_state &r,
                  shared_memory &s) {
    const int own = cluster_rank<CLUSTER>();
    const int32_t each = rows * PARTS_OF_ROW / CLUSTER;
    cluster_wait<CLUSTER>(); /* all have begun */
    join_warps<D_VO>(rows, r, s, *reinterpret_cast<handover<D_VO> *>(s.stage[0]),
                     [&](int32_t row, int c, float m, float l, const float(&x)[4]) {
                         const int32_t at = row * PARTS_OF_ROW + c / 4;
                         const portion mine = {{x[0], x[1], x[2], x[3]}, m, l, {}};
                         const auto *from = reinterpret_cast<const two_words *>(&mine);
                         auto *to =
                             reinterpret_cast<two_words *>(&s.join.got[own * each + at % each]);
                         store_peer<CLUSTER>(to, at / each, from[0]);
                         store_peer<CLUSTER>(to + 1, at / each, from[1]);
                     });
    cluster_sync<CLUSTER>();
    if ((int32_t)threadIdx.x >= each)
        return;
    portion got[CLUSTER];
    float m = -INFINITE, l = 0, x[4] = {};
#pragma unroll
    for (int i = 0; i < CLUSTER; i++) {
        got[i] = s.join.got[i * each + threadIdx.x];
        m = fmaxf(m, got[i].m);
    }
#pragma unroll
    for (int i = 0; i < CLUSTER; i++) {
        const float weight = got[i].m == -INFINITE ? 0.0f : exp2_fast(got[i].m - m);
        l = fmaf(got[i].l, weight, l);
#pragma unroll
        for (int c = 0; c < 4; c++)
            x[c] = fmaf(got[i].sum[c], weight, x[c]);
    }
    const int32_t at = own * each + (int32_t)threadIdx.x, column = at % PARTS_OF_ROW * 4;
    put_out(finish(p, w, at / PARTS_OF_ROW, m, l, column == 0), column, x);
}

/* ---- while the previous kernel ends -----------------------------------------------------------
 *
 * The list of pages may be that kernel's work: what is read before its end is a guess, kept within
 * the cache, by which the first tiles are copied. Pages are looked up again behind those copies. A
 * plan is never that kernel's work.
 */

struct beginning {
    cursor at[STAGES];
    int32_t page[STAGES];
};

void guess_tiles(const params &p, const shared_memory &s, cursor &ahead, beginning &first) {
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        first.at[i] = ahead;
        first.page[i] = page_of(p, s, ahead);
        advance(s, ahead);
    }
#pragma unroll
    for (int i = 0; i < STAGES; i++)
        first.page[i] = first.page[i] < p.pages ? larger(first.page[i], -1) : 0;
}

/* The rows of a lane's key, to L2: those of K by one half of the lanes. */
void prefetch_tiles(const params &p, const beginning &first) {
    const bool values = threadIdx.x % 32 >= 16;
    const char *head = values ? own_head(p.v, p.v_h) : own_head(p.k, p.k_h);
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        const int64_t at = place_of_key(p, lane_key(first.at[i]), first.page[i],
                                        values ? p.v_page : p.k_page, values ? p.v_n : p.k_n);
#pragma unroll
        for (int j = 0; j < larger(D_QK, D_VO) * KV_BYTES; j += 128) {
            if (at >= 0 && j < (values ? D_VO : D_QK) * KV_BYTES)
                prefetch(head + at + j);
        }
    }
}

/* One piece of code for all of them, and for both times that they are asked for. */
void ask_for_tiles(const params &p, shared_memory &s, const beginning &first) {
#pragma unroll 1
    for (int stage = 0; stage < STAGES; stage++) {
        cursor at = first.at[0];
        int32_t page = first.page[0];
#pragma unroll
        for (int i = 1; i < STAGES; i++) {
            if (i == stage) {
                at = first.at[i];
                page = first.page[i];
            }
        }
        load_tile(p, s, at, stage, page);
    }
}

void correct_guess(const params &p, shared_memory &s, beginning &first) {
    bool wrong = false;
    int32_t page[STAGES];
#pragma unroll
    for (int i = 0; i < STAGES; i++)
        page[i] = page_of(p, s, first.at[i]);
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        wrong = wrong || page[i] != first.page[i];
        first.page[i] = page[i];
    }
    if (!__any_sync(0xffffffffu, wrong))
        return;
    wait_copies<0>();
    __syncwarp();
    ask_for_tiles(p, s, first);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bolide_attention_few(const __grid_constant__ bolide__attention_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    const int32_t own = (int32_t)threadIdx.x / 32 * 16;
    const uint32_t none[ROWS] = {};
    rows_state r;
    beginning first;
    cluster_arrive<CLUSTER>();
    begin_items(p, s);
    cursor ahead = {0, s.works[0].kv_begin}, now = ahead;
    guess_tiles(p, s, ahead, first);
    prefetch_tiles(p, first);
    wait_for_previous_kernel();
    release_next_kernel();
    if (s.count == 0)
        return;
    ask_for_tiles(p, s, first);
    correct_guess(p, s, first);
    int32_t page = page_of(p, s, ahead);
    for (int stage = 0;; stage = stage + 1 < STAGES ? stage + 1 : 0) {
        const work &w = s.works[now.item];
        const int32_t rows = packed_rows(p, w, ROWS);
        if (now.key == w.kv_begin)
            begin_rows(p, w, r, s.facts, none);
        wait_copies<STAGES - 1>();
        __syncwarp();
        if (now.key == w.kv_begin)
            __syncthreads(); /* queries and facts of all */
        const unsigned char *k = s.stage[stage], *v = k + KEYS * K_ROW;
        if (now.key + own < w.kv_end)
            compute_tile(p, w, rows, now.key, s.facts, r, s.q[now.item % Q_BUFFERS], k, v, nullptr,
                         [](int) {});
        __syncwarp(); /* all lanes are done with the stage */
        load_tile(p, s, ahead, stage, page);
        advance(s, ahead);
        page = page_of(p, s, ahead);
        now.key += KEYS;
        if (now.key < w.kv_end)
            continue;
        const bool last = now.item + 1 == s.count;
        if (last)
            wait_copies<0>();
        if (CLUSTER > 1 && last && w.joined)
            join_cluster(p, w, rows, r, s);
        else if (last)
            write_item<D_VO>(p, w, rows, r, s, *reinterpret_cast<handover<D_VO> *>(s.stage[0]));
        else
            write_item<LITTLE>(p, w, rows, r, s, s.join.hand);
        if (last)
            break;
        now.item++;
        now.key = s.works[now.item].kv_begin;
    }
}
