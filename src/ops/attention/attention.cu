// SPDX-License-Identifier: Apache-2.0
//
// Attention by mma.sync on every chip, over the items of a plan (schedule.h). A block walks through
// the items of one worker for one key head. Tiles of 64 keys and values pass through a ring of
// STAGES in shared memory; the copies of the next tiles run while one is computed. Which pages the
// rows of a tile lie on is looked up one tile ahead of its copies.
//
//     ROWS 16 (decode): four warps share the 16 packed rows and take 16 keys of each tile; their
//                       results are joined once an item. Reading the cache is the limit.
//     ROWS 64 (longer): each warp has 16 rows of its own and takes all 64 keys.
//
// Rows behind the last key are zeros in shared memory, so what lies in a page's tail never counts.
// Sums are f32; weights are rounded to the type of the products before they meet V. Fixed order
// throughout: the bits depend on the plan alone.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/attention_internal.h"

#if !defined(SPEC_QT) || !defined(SPEC_KT) || !defined(SPEC_OT) || !defined(SPEC_D_QK) ||          \
    !defined(SPEC_D_VO) || !defined(SPEC_ROWS) || !defined(SPEC_STAGES) || !defined(SPEC_FLAGS)
#error "QT, KT, OT: dtypes; D_QK, D_VO: head sizes; ROWS: of a tile; STAGES: of the ring; FLAGS"
#endif
constexpr int64_t QT = SPEC_QT; /* F16, BF16, F8_E4M3FN, F8_E5M2 */
constexpr int64_t KT = SPEC_KT; /* the same; 16-bit only if QT is the same */
constexpr int64_t OT = SPEC_OT; /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_QK = SPEC_D_QK; /* multiples of 8 up to 256 */
constexpr int D_VO = SPEC_D_VO;
constexpr int ROWS = SPEC_ROWS;     /* 16, 64 */
constexpr int STAGES = SPEC_STAGES; /* 2, 3, 4 */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = FLAGS & 1;
constexpr bool MASKED = FLAGS & 2; /* causal, window or custom mask */
constexpr bool CAPPED = FLAGS & 4;
constexpr bool ALIBI = FLAGS & 8;
constexpr bool WIDE = FLAGS & 16; /* rows of K and V allow copies of 16 bytes */
static_assert(D_QK % 8 == 0 && D_VO % 8 == 0 && D_QK <= 256 && D_VO <= 256, "head sizes");
static_assert(ROWS == 16 || ROWS == 64, "rows of a tile");
static_assert(STAGES >= 2 && STAGES <= 4, "stages of the ring");

using q_elem = element<QT>::type;
using kv_elem = element<KT>::type;
using out_elem = element<OT>::type;
/* The products run in the 16-bit type of q; fp8 values are exact in either. */
template <bool BRAIN> struct choose { using type = f16; };
template <> struct choose<true> { using type = bf16; };
using half = choose<QT == BF16>::type;

constexpr int KEYS = 64;
constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr bool SHARED_ROWS = ROWS == 16;
constexpr int WARP_KEYS = SHARED_ROWS ? KEYS / WARPS : KEYS;
constexpr int NT = WARP_KEYS / 8;         /* 8-key tiles of a warp's logits */
constexpr int DQ = (D_QK + 15) / 16 * 16; /* padded to whole products */
constexpr int DV = (D_VO + 15) / 16 * 16;
constexpr int KV_BYTES = sizeof(kv_elem);
/* A row takes an odd number of 16-byte pieces, so that 8 rows meet all banks. */
constexpr int odd_pieces(int bytes) {
    return ((bytes + 15) / 16 | 1) * 16;
}
constexpr int Q_ROW = odd_pieces(DQ * 2);
constexpr int K_ROW = odd_pieces(DQ * KV_BYTES);
constexpr int V_ROW = odd_pieces(DV * KV_BYTES);
constexpr int STAGE = KEYS * (K_ROW + V_ROW);
constexpr int RING = STAGES + 1;

struct shared_memory {
    alignas(16) unsigned char q[ROWS * Q_ROW];
    alignas(16) unsigned char stage[STAGES][STAGE];
    int64_t k_at[RING][KEYS]; /* element of each key's row; −1: no key */
    int64_t v_at[RING][KEYS];
};
/* What the warps hand over at the end of an item lies where the ring was. */
struct handover {
    float m[WARPS][16], l[WARPS][16];
    float o[WARPS][16][DV + 4];
};
static_assert(!SHARED_ROWS || sizeof(handover) <= sizeof(shared_memory::stage), "fits the ring");

extern __shared__ __align__(16) unsigned char dynamic[];

struct tile {
    const bolide__attention_request *request;
    int32_t row, rows;  /* packed rows of the item */
    int32_t begin, end; /* keys */
    int32_t shift;      /* kv_len - q_len */
    int32_t head;       /* key head */
};

float scale_of(const bolide__attention_scale &s, int64_t head) {
    return s.tensor ? s.tensor[head * s.step] : (float)s.number;
}

int64_t query_head(const bolide__attention_params &p, const tile &t, int32_t row) {
    return t.head * p.group + (t.row + row) % (int32_t)p.group;
}

int32_t query_token(const bolide__attention_params &p, const tile &t, int32_t row) {
    return (t.row + row) / (int32_t)p.group;
}

/* ---- loading ----------------------------------------------------------------------------------
 */

void load_queries(const bolide__attention_params &p, const tile &t, shared_memory &s) {
    for (int i = threadIdx.x; i < ROWS * DQ; i += THREADS) {
        const int row = i / DQ, d = i % DQ;
        float x = 0;
        if (row < t.rows && d < D_QK) {
            const int64_t at = (t.request->q_start + (int64_t)query_token(p, t, row)) * p.q_n +
                               query_head(p, t, row) * p.q_h + d;
            x = to_float(static_cast<const q_elem *>(p.q)[at]);
        }
        reinterpret_cast<half *>(s.q + row * Q_ROW)[d] = from_float<half>(x);
    }
}

/* Page entry of the tile's key `first` + threadIdx.x, for the first 64 threads; −1: none. */
int32_t look_up(const bolide__attention_params &p, const tile &t, int32_t first) {
    const int32_t key = first + (int32_t)threadIdx.x;
    if (threadIdx.x >= KEYS || key >= t.end)
        return -1;
    if constexpr (PAGED) {
        const int64_t list =
            p.table_row ? (t.request - p.requests) * p.table_row : (int64_t)t.request->kv_start;
        return p.indices[list + (uint32_t)key / (uint32_t)p.page_size];
    }
    return 0;
}

void store_places(const bolide__attention_params &p, const tile &t, shared_memory &s, int slot,
                  int32_t first, int32_t page) {
    if (threadIdx.x >= KEYS)
        return;
    const int32_t key = first + (int32_t)threadIdx.x;
    int64_t k = -1, v = -1;
    if (key < t.end) {
        const int64_t row = PAGED ? (uint32_t)key % (uint32_t)p.page_size : key;
        k = page * p.k_page + ((PAGED ? 0 : t.request->kv_start) + row) * p.k_n + t.head * p.k_h;
        v = page * p.v_page + ((PAGED ? 0 : t.request->v_start) + row) * p.v_n + t.head * p.v_h;
    }
    s.k_at[slot][threadIdx.x] = k;
    s.v_at[slot][threadIdx.x] = v;
}

/* One side of a tile: rows of D elements. */
template <int D, int ROW> void copy_rows(unsigned char *to, const void *from, const int64_t *at) {
    const kv_elem *base = static_cast<const kv_elem *>(from);
    if constexpr (WIDE) {
        constexpr int PIECES = D * KV_BYTES / 16;
#pragma unroll 4
        for (int i = threadIdx.x; i < KEYS * PIECES; i += THREADS) {
            const int row = i / PIECES, piece = i % PIECES;
            const int64_t start = at[row];
            const kv_elem *address = start < 0 ? base : base + start + piece * (16 / KV_BYTES);
            copy_16(to + row * ROW + piece * 16, address, start < 0 ? 0 : 16);
        }
    } else {
        for (int i = threadIdx.x; i < KEYS * D; i += THREADS) {
            const int row = i / D, d = i % D;
            kv_elem x = {};
            if (at[row] >= 0)
                x = base[at[row] + d];
            reinterpret_cast<kv_elem *>(to + row * ROW)[d] = x;
        }
    }
}

void load_tile(const bolide__attention_params &p, shared_memory &s, int stage, int slot) {
    copy_rows<D_QK, K_ROW>(s.stage[stage], p.k, s.k_at[slot]);
    copy_rows<D_VO, V_ROW>(s.stage[stage] + KEYS * K_ROW, p.v, s.v_at[slot]);
}

/* Columns between the head size and whole products stay zero for the life of the block. */
void clear_padding(shared_memory &s) {
    if constexpr (DQ != D_QK || DV != D_VO) {
        for (int i = threadIdx.x; i < STAGES * KEYS; i += THREADS) {
            unsigned char *stage = s.stage[i / KEYS];
            const int row = i % KEYS;
            for (int d = D_QK; d < DQ; d++)
                reinterpret_cast<kv_elem *>(stage + row * K_ROW)[d] = {};
            for (int d = D_VO; d < DV; d++)
                reinterpret_cast<kv_elem *>(stage + KEYS * K_ROW + row * V_ROW)[d] = {};
        }
    }
}

/* ---- operands ---------------------------------------------------------------------------------
 */

/* Rows of Q for 16 of its columns. */
void q_operand(uint32_t (&a)[4], const unsigned char *q, int column) {
    const int lane = threadIdx.x % 32;
    load_matrices<false>(a, q + lane % 16 * Q_ROW + (column + lane / 16 * 8) * 2);
}

template <class T> uint32_t to_halves(const T *x) {
    return floats_to_halves<half>(to_float(x[0]), to_float(x[1]));
}

/* 16 keys by 16 columns of K: b[0], b[1] of the first 8 keys, b[2], b[3] of the others. */
void k_operand(uint32_t (&b)[4], const unsigned char *k, int column) {
    const int lane = threadIdx.x % 32;
    if constexpr (KV_BYTES == 2) {
        load_matrices<false>(b, k + (lane % 8 + lane / 16 * 8) * K_ROW +
                                    (column + lane / 8 % 2 * 8) * 2);
    } else {
        const int g = lane / 4, c = column + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++)
            b[i] = to_halves(reinterpret_cast<const kv_elem *>(k + (g + i / 2 * 8) * K_ROW) + c +
                             i % 2 * 8);
    }
}

/* 16 keys by 16 columns of V: b[0], b[1] of the first 8 columns, b[2], b[3] of the others. */
void v_operand(uint32_t (&b)[4], const unsigned char *v, int column) {
    const int lane = threadIdx.x % 32;
    if constexpr (KV_BYTES == 2) {
        load_matrices<true>(b, v + lane % 16 * V_ROW + (column + lane / 16 * 8) * 2);
    } else {
        const int c = column + lane / 4, key = lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const unsigned char *row = v + (key + i % 2 * 8) * V_ROW;
            const kv_elem *x = reinterpret_cast<const kv_elem *>(row) + c + i / 2 * 8;
            const kv_elem *y = reinterpret_cast<const kv_elem *>(row + V_ROW) + c + i / 2 * 8;
            b[i] = floats_to_halves<half>(to_float(*x), to_float(*y));
        }
    }
}

/* ---- one tile ---------------------------------------------------------------------------------
 */

/* What a thread knows of its two rows, g and g + 8 of its warp's 16. */
struct rows_state {
    float scale[2]; /* of the logits, base 2 (with a cap: before it) */
    float slope[2];
    int32_t position[2]; /* of the query token among the keys */
    int32_t token[2];
    float m[2], l[2];
    float o[DV / 8][4];
};

bool visible(const bolide__attention_params &p, const tile &t, const rows_state &r, int i,
             int32_t key) {
    bool yes = key < t.end;
    if constexpr (MASKED) {
        if (p.flags & BOLIDE__ATTN_CAUSAL)
            yes = yes && key <= r.position[i];
        if (p.window_left >= 0)
            yes = yes && key >= r.position[i] - p.window_left;
        if (yes && r.token[i] < t.request->q_len) {
            const int64_t at = (int64_t)r.token[i] * t.request->kv_len + key;
            if (p.flags & BOLIDE__ATTN_MASK_BYTES)
                yes = p.mask[t.request->mask_elem + at] != 0;
            if (p.flags & BOLIDE__ATTN_MASK_BITS)
                yes = p.mask[t.request->mask_byte + at / 8] >> at % 8 & 1;
        }
    }
    return yes;
}

/* Whether every row sees every key of [first, first + KEYS). */
bool open_tile(const bolide__attention_params &p, const tile &t, int32_t first) {
    bool open = first + KEYS <= t.end;
    if constexpr (MASKED) {
        const int32_t top = t.shift + query_token(p, t, 0);
        const int32_t bottom = t.shift + query_token(p, t, t.rows - 1);
        if (p.flags & BOLIDE__ATTN_CAUSAL)
            open = open && first + KEYS <= top + 1;
        if (p.window_left >= 0)
            open = open && first >= bottom - p.window_left;
        open = open && !(p.flags & (BOLIDE__ATTN_MASK_BYTES | BOLIDE__ATTN_MASK_BITS));
    }
    return open;
}

/* Logits of the warp's keys; cap, bias and mask applied. */
void logits(const bolide__attention_params &p, const tile &t, const rows_state &r,
            const unsigned char *q, const unsigned char *k, int32_t first, bool open,
            float (&x)[NT][4]) {
#pragma unroll
    for (int n = 0; n < NT; n++)
        x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
#pragma unroll
    for (int d = 0; d < DQ; d += 16) {
        uint32_t a[4], b[4];
        q_operand(a, q, d);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            k_operand(b, k + n * 8 * K_ROW, d);
            mma_16x8x16<half>(x[n], a, b[0], b[1]);
            mma_16x8x16<half>(x[n + 1], a, b[2], b[3]);
        }
    }
    const int32_t key = first + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = e / 2;
            float y = x[n][e] * r.scale[i];
            if constexpr (CAPPED)
                y = tanh_exact(y) * ((float)p.soft_cap * LOG2E);
            if constexpr (ALIBI)
                y += r.slope[i] * (float)(key + n * 8 + e % 2 - r.position[i]);
            if (!open && !visible(p, t, r, i, key + n * 8 + e % 2))
                y = -INFINITE;
            x[n][e] = y;
        }
    }
}

/* Turns logits into weights and brings the state to the new maximum. */
void soften(rows_state &r, float (&x)[NT][4]) {
    float top[2] = {r.m[0], r.m[1]};
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            top[e / 2] = x[n][e] > top[e / 2] ? x[n][e] : top[e / 2];
    }
    float base[2], weight[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 1));
        top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 2));
        base[i] = top[i] == -INFINITE ? 0.0f : top[i];
        weight[i] = exp2_fast(r.m[i] - base[i]);
        r.l[i] *= weight[i];
    }
    /* Most tiles do not raise the maximum. */
    if (__any_sync(0xffffffffu, top[0] != r.m[0] || top[1] != r.m[1])) {
#pragma unroll
        for (int n = 0; n < DV / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                r.o[n][e] *= weight[e / 2];
        }
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            x[n][e] = exp2_fast(x[n][e] - base[e / 2]);
            r.l[e / 2] += x[n][e];
        }
    }
    r.m[0] = top[0];
    r.m[1] = top[1];
}

void add_values(rows_state &r, const float (&x)[NT][4], const unsigned char *v) {
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
        const uint32_t a[4] = {floats_to_halves<half>(x[n][0], x[n][1]),
                               floats_to_halves<half>(x[n][2], x[n][3]),
                               floats_to_halves<half>(x[n + 1][0], x[n + 1][1]),
                               floats_to_halves<half>(x[n + 1][2], x[n + 1][3])};
#pragma unroll
        for (int d = 0; d < DV; d += 16) {
            uint32_t b[4];
            v_operand(b, v + n * 8 * V_ROW, d);
            mma_16x8x16<half>(r.o[d / 8], a, b[0], b[1]);
            mma_16x8x16<half>(r.o[d / 8 + 1], a, b[2], b[3]);
        }
    }
}

#include "ops/attention/attention_write.cuh"

/* ---- items ------------------------------------------------------------------------------------
 */

float alibi_slope(int64_t head, int64_t heads) {
    int64_t n = 1;
    while (2 * n <= heads)
        n *= 2;
    const float steps = head < n ? 8.0f * (float)(head + 1) / (float)n
                                 : 4.0f * (float)(2 * (head - n) + 1) / (float)n;
    return exp2f(-steps) * LOG2E;
}

void begin_rows(const bolide__attention_params &p, const tile &t, rows_state &r) {
    const float k = (float)p.sm_scale * scale_of(p.k_scale, t.head) *
                    (CAPPED ? 1.0f / (float)p.soft_cap : LOG2E);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row =
            (SHARED_ROWS ? 0 : threadIdx.x / 32 * 16) + threadIdx.x % 32 / 4 + 8 * i;
        const int64_t head = query_head(p, t, row);
        r.scale[i] = k * scale_of(p.q_scale, head);
        r.slope[i] = ALIBI ? alibi_slope(head, p.h_q) : 0.0f;
        r.token[i] = query_token(p, t, row);
        r.position[i] = t.shift + r.token[i];
        r.m[i] = -INFINITE;
        r.l[i] = 0;
    }
#pragma unroll
    for (int n = 0; n < DV / 8; n++)
        r.o[n][0] = r.o[n][1] = r.o[n][2] = r.o[n][3] = 0;
}

void run_item(const bolide__attention_params &p, const tile &t, int32_t slot, shared_memory &s) {
    const int32_t tiles = (t.end - t.begin + KEYS - 1) / KEYS;
    const int warp = threadIdx.x / 32;
    rows_state r;
    begin_rows(p, t, r);
    load_queries(p, t, s);
    for (int i = 0; i < STAGES && i < tiles; i++)
        store_places(p, t, s, i, t.begin + i * KEYS, look_up(p, t, t.begin + i * KEYS));
    __syncthreads();
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < tiles)
            load_tile(p, s, i, i);
        commit_copies();
    }
    for (int32_t i = 0; i < tiles; i++) {
        wait_copies<STAGES - 2>();
        __syncthreads(); /* tile i is there for all, and all are done with tile i - 1 */
        if (i + STAGES - 1 < tiles)
            load_tile(p, s, (i + STAGES - 1) % STAGES, (i + STAGES - 1) % RING);
        commit_copies();
        const int32_t ahead = t.begin + (i + STAGES) * KEYS;
        const int32_t page = look_up(p, t, ahead);
        const unsigned char *k = s.stage[i % STAGES];
        const unsigned char *v = k + KEYS * K_ROW;
        const int own = SHARED_ROWS ? warp * WARP_KEYS : 0;
        const int32_t first = t.begin + i * KEYS;
        float x[NT][4];
        logits(p, t, r, s.q + (SHARED_ROWS ? 0 : warp * 16 * Q_ROW), k + own * K_ROW, first + own,
               open_tile(p, t, first), x);
        soften(r, x);
        add_values(r, x, v + own * V_ROW);
        store_places(p, t, s, (i + STAGES) % RING, ahead, page);
    }
    wait_copies<0>();
    __syncthreads(); /* the ring is free for what follows */
#pragma unroll
    for (int i = 0; i < 2; i++)
        r.l[i] = lanes_sum<4>(r.l[i]);
    if constexpr (SHARED_ROWS)
        write_shared_rows(p, t, slot, r, *reinterpret_cast<handover *>(s.stage));
    else
        write_own_rows(p, t, slot, r);
    __syncthreads();
    if constexpr (SHARED_ROWS && (DQ != D_QK || DV != D_VO)) {
        clear_padding(s);
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_attention(const __grid_constant__ bolide__attention_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    clear_padding(s);
    const int32_t last = p.worker_start[blockIdx.x + 1];
    for (int32_t i = p.worker_start[blockIdx.x]; i < last; i++) {
        const bolide__attention_item item = p.items[i];
        tile t;
        t.request = &p.requests[item.request];
        t.row = item.row;
        t.rows = smaller(t.request->q_len * (int32_t)p.group - item.row, (int32_t)ROWS);
        t.begin = item.kv_begin;
        t.end = item.kv_end;
        t.shift = t.request->kv_len - t.request->q_len;
        t.head = blockIdx.y;
        run_item(p, t, item.slot, s);
    }
}

/* Joins the slots of a tile, in their order; a block an entry of the merge list and key head, a
 * warp a row. */
extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_attention_merge(const __grid_constant__ bolide__attention_params p) {
    if ((int32_t)blockIdx.x >= p.counts->merges)
        return;
    const bolide__attention_merge merge = p.merges[blockIdx.x];
    tile t;
    t.request = &p.requests[merge.request];
    t.row = merge.row;
    t.rows = smaller(t.request->q_len * (int32_t)p.group - merge.row, (int32_t)ROWS);
    t.head = blockIdx.y;
    const int lane = threadIdx.x % 32;
    for (int32_t row = threadIdx.x / 32; row < t.rows; row += WARPS) {
        float m = -INFINITE, l = 0;
        for (int32_t i = 0; i < merge.count; i++)
            m = fmaxf(m, p.partial_ml[2 * slot_row_of(p, t, merge.slot + i, row)]);
        constexpr int COLUMNS = (D_VO / 2 + 31) / 32;
        float x[COLUMNS] = {}, y[COLUMNS] = {};
        for (int32_t i = 0; i < merge.count; i++) {
            const int64_t at = slot_row_of(p, t, merge.slot + i, row);
            const float own = p.partial_ml[2 * at];
            const float weight = own == -INFINITE ? 0.0f : exp2_fast(own - m);
            l += p.partial_ml[2 * at + 1] * weight;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const int column = (c * 32 + lane) * 2;
                if (column < D_VO) {
                    x[c] = fmaf(p.partial_o[at * D_VO + column], weight, x[c]);
                    y[c] = fmaf(p.partial_o[at * D_VO + column + 1], weight, y[c]);
                }
            }
        }
        const place to = finish(p, t, row, m, l, lane == 0);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            put(p, to, -1, (c * 32 + lane) * 2, x[c], y[c]);
    }
}
