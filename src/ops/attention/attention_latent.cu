// SPDX-License-Identifier: Apache-2.0
//
// Multi-head latent attention by mma.sync, over the items of a plan. A tile of KEYS latents lies in
// shared memory once and serves as keys and as values; the next one is on its way meanwhile. Caches
// of 8 bits are copied as they are, and a tile is widened by all threads before it is at work.
//
// Two warps, or four where there are no more rows, share 16 packed rows. Each multiplies a part of
// the columns of q and k, they hand their products to each other, and all then have the same logits
// and weights; each multiplies these with a part of the columns of the values. So no row is
// softened by parts, the sums of 512 columns fit into registers, and weights never leave them.
//
// Rows behind the last key are zeros in shared memory. Products of the rotary part are summed
// apart, as it has a scale of its own.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/attention_internal.h"

#if !defined(SPEC_T) || !defined(SPEC_QT) || !defined(SPEC_KT) || !defined(SPEC_OT) ||             \
    !defined(SPEC_D_CKV) || !defined(SPEC_D_KPE) || !defined(SPEC_ROWS) || !defined(SPEC_KEYS) ||  \
    !defined(SPEC_FLAGS)
#error "T, QT, KT, OT: dtypes; D_CKV, D_KPE: sizes; ROWS, KEYS: of a tile; FLAGS"
#endif
constexpr int64_t T = SPEC_T;      /* F16, BF16: of the products */
constexpr int64_t QT = SPEC_QT;    /* T, F8_E4M3FN, F8_E5M2 */
constexpr int64_t KT = SPEC_KT;    /* T, F8_E4M3FN, F8_E5M2 */
constexpr int64_t OT = SPEC_OT;    /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_VO = SPEC_D_CKV;   /* multiples of 32 up to 512 */
constexpr int D_TAIL = SPEC_D_KPE; /* multiples of 16 */
constexpr int ROWS = SPEC_ROWS;    /* 16, 32, 64 */
constexpr int KEYS = SPEC_KEYS;    /* 16, 32 */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = true;
constexpr bool MASKED = FLAGS & 2; /* causal or window */
constexpr bool CAPPED = FLAGS & 4;
constexpr bool WIDE = FLAGS & 16;     /* rows of the caches allow copies of 16 bytes */
constexpr bool SPECIAL = FLAGS & 32;  /* custom mask */
constexpr bool SCALED = FLAGS & 2048; /* row_scales */
constexpr bool RULED = false;
constexpr bool V_PAGES = false;
constexpr bool CHUNKED = false;
constexpr bool VARIANT = false;
constexpr int D_QK = D_VO + D_TAIL;
static_assert(D_VO % 32 == 0 && D_VO <= 512 && D_TAIL % 16 == 0 && D_QK <= 576, "head sizes");

using elem = element<T>::type;
using q_elem = element<QT>::type;
using kv_elem = element<KT>::type;
using out_elem = element<OT>::type;

constexpr int TEAM = ROWS == 16 && D_VO % 64 == 0 ? 4 : 2;
constexpr int WARPS = ROWS / 16 * TEAM, THREADS = 32 * WARPS;
constexpr int NT = KEYS / 8;                    /* tiles of logits */
constexpr int OWN = D_VO / TEAM;                /* columns of the values of a warp */
constexpr int STEPS = D_QK / 16;                /* of a product */
constexpr int TURN = (STEPS + TEAM - 1) / TEAM; /* steps of a warp of a team */
constexpr int ROW = D_QK * 2 + 16; /* bytes: an odd number of 16-byte pieces, so that eight rows
                                      meet every bank once */
constexpr int PIECES = D_QK / 8, CKV_PIECES = D_VO / 8;
/* Rows as they are copied, 16 bytes at a time: of 8 bits with room for their scales behind them. */
constexpr bool RAW = sizeof(kv_elem) == 1;
constexpr int EACH = 16 / sizeof(kv_elem), STAGE_ROW = RAW ? D_QK + 16 : ROW;
static_assert(!SCALED || (RAW && D_VO % BOLIDE__ATTN_SCALED == 0), "scales of parts of a row");
constexpr int MERGED_AT_ONCE = 4, MERGED_ROWS = 1;

#include "ops/attention/attention_plain.cuh"

#include "ops/attention/attention_device.cuh"
#include "ops/attention/latent_tile.cuh"

struct shared_memory {
    alignas(16) unsigned char q[ROWS * ROW];
    alignas(16) unsigned char stage[2][KEYS * STAGE_ROW];
    alignas(16) unsigned char tile[RAW ? KEYS * ROW : 16]; /* what was raw, widened */
    float parts[WARPS][NT * 4][32];                        /* products that a warp hands over */
    alignas(16) work item;
    int64_t ckv_at[2][KEYS], kpe_at[2][KEYS]; /* first elements of each key's rows */
    int64_t scales_at[SCALED ? 2 : 1][SCALED ? KEYS : 1];
};

extern __shared__ __align__(16) unsigned char dynamic[];

/* ---- loading ----------------------------------------------------------------------------------
 */

void load_queries(const params &p, const work &w, int32_t rows, shared_memory &s) {
    for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
        const int row = i / PIECES, piece = i % PIECES;
        pack<elem, 8> x = {};
        if (row < rows) {
            const int64_t n = (int64_t)w.q_start + query_token(p, w, row);
            const int64_t h = query_head(p, w, row);
            const q_elem *from =
                piece < CKV_PIECES
                    ? static_cast<const q_elem *>(p.q) + n * p.q_n + h * p.q_h + piece * 8
                    : static_cast<const q_elem *>(p.q_tail) + n * p.q_tail_n + h * p.q_tail_h +
                          (piece - CKV_PIECES) * 8;
            if (same_type<q_elem, elem> && p.flags & BOLIDE__ATTN_Q_WIDE) {
                x = load<pack<elem, 8>>(from);
            } else {
#pragma unroll
                for (int j = 0; j < 8; j++)
                    x.at[j] = from_float<elem>(to_float(from[j]));
            }
        }
        *reinterpret_cast<pack<elem, 8> *>(s.q + row * ROW + piece * 16) = x;
    }
}

/* Looks up where the keys of a tile lie. */
void find_tile(const params &p, const work &w, int32_t first, int stage, shared_memory &s) {
    if (threadIdx.x >= KEYS)
        return;
    const int32_t key = first + (int32_t)threadIdx.x;
    const int32_t page = look_up(p, w, key);
    s.ckv_at[stage][threadIdx.x] = locate(p, w, key, page).k;
    const uint32_t row = (uint32_t)key % (uint32_t)p.page_size;
    s.kpe_at[stage][threadIdx.x] = page < 0 ? 0 : page * p.k_tail_page + row * p.k_tail_n;
    if constexpr (SCALED)
        s.scales_at[stage][threadIdx.x] =
            page < 0 ? 0 : page * p.row_scales_page + row * p.row_scales_n;
}

/* Copies of a tile of which `count` keys are there. */
void load_tile(const params &p, int32_t count, int stage, shared_memory &s) {
    constexpr int A_ROW = D_QK / EACH, CKV_OF_ROW = D_VO / EACH;
    const kv_elem *ckv = static_cast<const kv_elem *>(p.k);
    const kv_elem *kpe = static_cast<const kv_elem *>(p.k_tail);
    unsigned char *to = s.stage[stage];
#pragma unroll 4
    for (int i = threadIdx.x; i < KEYS * A_ROW; i += THREADS) {
        const int row = i / A_ROW, piece = i % A_ROW;
        const kv_elem *from = piece < CKV_OF_ROW
                                  ? ckv + s.ckv_at[stage][row] + piece * EACH
                                  : kpe + s.kpe_at[stage][row] + (piece - CKV_OF_ROW) * EACH;
        if constexpr (WIDE) {
            copy_16(to + row * STAGE_ROW + piece * 16, from, row < count ? 16 : 0);
        } else {
            pack<kv_elem, EACH> x = {};
            if (row < count) {
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    x.at[j] = from[j];
            }
            *reinterpret_cast<pack<kv_elem, EACH> *>(to + row * STAGE_ROW + piece * 16) = x;
        }
    }
    if constexpr (SCALED) {
        constexpr int PARTS = D_VO / BOLIDE__ATTN_SCALED;
        for (int i = threadIdx.x; i < KEYS * PARTS; i += THREADS) {
            const int row = i / PARTS, part = i % PARTS;
            reinterpret_cast<float *>(to + row * STAGE_ROW + D_QK)[part] =
                row < count ? p.row_scales[s.scales_at[stage][row] + part] : 0.0f;
        }
    }
}

/* Raw rows to a tile, eight elements a thread. */
void widen_tile(const unsigned char *raw, unsigned char *tile) {
    for (int i = threadIdx.x; i < KEYS * PIECES; i += THREADS) {
        const int piece = i % PIECES;
        const unsigned char *row = raw + i / PIECES * STAGE_ROW;
        float x[8];
        unpack(*reinterpret_cast<const pack<kv_elem, 8> *>(row + piece * 8), x);
        if (SCALED && piece < CKV_PIECES) {
            const float scale =
                reinterpret_cast<const float *>(row + D_QK)[piece * 8 / BOLIDE__ATTN_SCALED];
#pragma unroll
            for (int j = 0; j < 8; j++)
                x[j] *= scale;
        }
        *reinterpret_cast<pack<elem, 8> *>(tile + i / PIECES * ROW + piece * 16) =
            pack_floats<elem>(x);
    }
}

/* ---- one tile ---------------------------------------------------------------------------------
 */

/* Of the rows lane / 4 and lane / 4 + 8 of the team; l is a lane's part. */
struct rows_state {
    float m[2], l[2], scale[2];
    sight seen[2];
    int32_t token[2];
    float o[OWN / 8][4];
};

/* The products of all columns, scaled by the caches' scales, in every warp of a team. */
void products(shared_memory &s, const unsigned char *k, float ckv_scale, float kpe_scale,
              float (&x)[NT][4]) {
    constexpr int CKV_STEPS = D_VO / 16;
    const int first = smaller((int)threadIdx.x / 32 % TEAM * TURN, STEPS);
    const int end = smaller(first + TURN, STEPS);
#pragma unroll
    for (int n = 0; n < NT; n++)
        x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
    multiply(s.q, k, first, smaller(end, CKV_STEPS), x);
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[n][e] *= ckv_scale;
    }
    if (D_TAIL > 0 && end > CKV_STEPS) {
        float tail[NT][4] = {};
        multiply(s.q, k, larger(first, CKV_STEPS), end, tail);
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[n][e] = fmaf(tail[n][e], kpe_scale, x[n][e]);
        }
    }
    join_products(s.parts, x);
}

/* Products to logits to weights, and the state to the new maximum. */
void soften(const params &p, const work &w, int32_t first, bool open, rows_state &r,
            float (&x)[NT][4]) {
    const int32_t key = first + (int32_t)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = r.m[i];
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int e = 2 * i; e < 2 * i + 2; e++) {
                const int32_t at = key + n * 8 + e % 2;
                float y = x[n][e] * r.scale[i];
                if constexpr (CAPPED)
                    y = tanh_exact(y) * ((float)p.soft_cap * LOG2E);
                bool visible = open || (at >= r.seen[i].low && at < r.seen[i].high);
                if constexpr (SPECIAL)
                    visible = visible && in_mask(p, w, r.token[i], at);
                x[n][e] = visible ? y : -INFINITE;
                top = fmaxf(top, x[n][e]);
            }
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float base = top == -INFINITE ? 0.0f : top, weight = exp2_fast(r.m[i] - base);
        if (__any_sync(0xffffffffu, top != r.m[i])) {
            r.l[i] *= weight;
            r.m[i] = top;
#pragma unroll
            for (int n = 0; n < OWN / 8; n++) {
                r.o[n][2 * i] *= weight;
                r.o[n][2 * i + 1] *= weight;
            }
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int e = 2 * i; e < 2 * i + 2; e++) {
                x[n][e] = exp2_fast(x[n][e] - base);
                r.l[i] += x[n][e];
            }
        }
    }
}

/* ---- an item ----------------------------------------------------------------------------------
 */

void begin_rows(const params &p, const work &w, rows_state &r) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = team_row() + lane / 4 + 8 * i;
        r.m[i] = -INFINITE;
        r.l[i] = 0;
        r.token[i] = query_token(p, w, row);
        r.seen[i] = sight_of(p, w, r.token[i]);
        r.scale[i] = logit_scale(p, query_head(p, w, row), 1.0f);
    }
#pragma unroll
    for (int n = 0; n < OWN / 8; n++)
        r.o[n][0] = r.o[n][1] = r.o[n][2] = r.o[n][3] = 0;
}

void write_item(const params &p, const work &w, int32_t rows, rows_state &r) {
    const int lane = threadIdx.x % 32, part = (int)threadIdx.x / 32 % TEAM;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = team_row() + lane / 4 + 8 * i;
        const float l = lanes_sum<4>(r.l[i]);
        if (row >= rows)
            continue;
        const bool first = part == 0 && lane % 4 == 0;
        const int64_t at = slot_row_of(p, w.slot, (int32_t)blockIdx.z * ROWS + row);
        place to = {};
        if (w.slot < 0)
            to = finish(p, w, row, r.m[i], l, first);
        else if (first)
            put_slot_ml(p, at, r.m[i], l);
#pragma unroll
        for (int n = 0; n < OWN / 8; n++) {
            const int column = part * OWN + n * 8 + lane % 4 * 2;
            if (w.slot < 0)
                put_out(to, column, {r.o[n][2 * i], r.o[n][2 * i + 1]});
            else
                put_slot(p, at, column, r.o[n][2 * i], r.o[n][2 * i + 1]);
        }
    }
}

void run_item(const params &p, const work &w, int32_t rows, rows_state &r, shared_memory &s) {
    const float ckv_scale = scale_of(p.k_scale, 0), kpe_scale = scale_of(p.tail_scale, 0);
    find_tile(p, w, w.kv_begin, 0, s);
    find_tile(p, w, w.kv_begin + KEYS, 1, s);
    __syncthreads();
    load_tile(p, w.kv_end - w.kv_begin, 0, s);
    commit_copies();
    for (int32_t key = w.kv_begin, stage = 0; key < w.kv_end; key += KEYS, stage ^= 1) {
        wait_copies<0>();
        __syncthreads(); /* the tile is there; all are done with the one before */
        if (key + KEYS < w.kv_end)
            load_tile(p, w.kv_end - key - KEYS, stage ^ 1, s);
        commit_copies();
        find_tile(p, w, key + 2 * KEYS, stage, s);
        const unsigned char *tile = s.stage[stage];
        if constexpr (RAW) {
            widen_tile(tile, s.tile);
            tile = s.tile;
            __syncthreads();
        }
        float x[NT][4];
        products(s, tile, ckv_scale, kpe_scale, x);
        soften(p, w, key, open_tile(p, w, key, rows), r, x);
        add_values(r.o, x, tile);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_attention_latent(const __grid_constant__ bolide__attention_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    wait_for_previous_kernel();
    release_next_kernel();
    const int32_t count = work_count(p);
    for (int32_t k = 0; k < count; k++) {
        __syncthreads(); /* all are done with the item before */
        if (threadIdx.x < 5)
            fetch_work(p, k, threadIdx.x, &s.item);
        commit_copies();
        wait_copies<0>();
        __syncthreads();
        const work &w = s.item;
        if (blockIdx.z > 0) { /* a share of the item's rows */
            if (threadIdx.x == 0)
                s.item.row += (int32_t)blockIdx.z * ROWS;
            __syncthreads();
        }
        const int32_t rows = packed_rows(p, w, ROWS);
        if (rows <= 0)
            continue;
        rows_state r;
        begin_rows(p, w, r);
        load_queries(p, w, rows, s);
        run_item(p, w, rows, r, s);
        write_item(p, w, rows, r);
    }
}
