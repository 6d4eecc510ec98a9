// SPDX-License-Identifier: Apache-2.0
//
// sparse_mla by mma.sync. A block has a token, up to ROWS of its heads and a piece of its keys,
// which it gathers row by row: a tile of KEYS rows lies in shared memory once and serves as keys
// and as values (latent_tile.cuh). Rows that no entry names are zeros, and have no weight.
//
//     16-bit caches      tile t+1 | tile t                 copied while tile t is at work
//     8-bit caches       raw t+1 | raw t -> tile t         copied as bytes, widened by all threads
//     and where it fits  raw t+2 | raw t+1 -> tile t+1 | tile t    one half of the warps widens
//                                      before, the other behind its products, so that both go on
//
// Where the blocks of one piece a token would leave multiprocessors idle there are several, each
// of which leaves its sums in a slot for sparse_mla_merge.cu.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/sparse_mla.h"

#if !defined(SPEC_T) || !defined(SPEC_QT) || !defined(SPEC_KT) || !defined(SPEC_OT) ||             \
    !defined(SPEC_FORMAT) || !defined(SPEC_D_QK) || !defined(SPEC_D_VO) || !defined(SPEC_ROWS) ||  \
    !defined(SPEC_KEYS) || !defined(SPEC_FLAGS)
#error                                                                                             \
    "T, QT, KT, OT: dtypes; FORMAT: of the caches; D_QK, D_VO: sizes; ROWS, KEYS: of a tile; FLAGS"
#endif
constexpr int64_t T = SPEC_T;       /* F16, BF16: of the products; with a packed format BF16 */
constexpr int64_t QT = SPEC_QT;     /* T, F8_E4M3FN, F8_E5M2 */
constexpr int64_t KT = SPEC_KT;     /* T, F8_E4M3FN, F8_E5M2; U8 with a packed format */
constexpr int64_t OT = SPEC_OT;     /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int FORMAT = SPEC_FORMAT; /* bolide_mla_kv_format */
constexpr int D_QK = SPEC_D_QK;     /* a multiple of 16 up to 576 */
constexpr int D_VO = SPEC_D_VO;     /* a multiple of 32 up to 512 */
constexpr int ROWS = SPEC_ROWS;     /* 16, 32, 64 */
constexpr int KEYS = SPEC_KEYS;     /* 16, 32 */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool WIDE = FLAGS & 1;   /* rows of the caches allow copies of 16 bytes */
constexpr bool Q_WIDE = FLAGS & 2; /* rows of q allow loads of 8 elements */
constexpr bool AHEAD = FLAGS & 4;  /* a tile is widened while the one before is at work */
static_assert(D_QK % 16 == 0 && D_QK <= 576 && D_VO % 32 == 0 && D_VO <= D_QK && D_VO <= 512,
              "head sizes");

using elem = element<T>::type;
using q_elem = element<QT>::type;
using kv_elem = element<KT == U8 ? F8_E4M3FN : KT>::type; /* of what bytes hold */
using out_elem = element<OT>::type;

#include "ops/attention/sparse_mla.cuh"

/* Warps that share 16 rows; with few rows more of them, so that there are enough. */
constexpr int TEAM = ROWS == 16 && D_VO % 64 == 0 ? 4 : 2;
constexpr int WARPS = ROWS / 16 * TEAM, THREADS = 32 * WARPS;
constexpr int NT = KEYS / 8;                    /* tiles of logits */
constexpr int OWN = D_VO / TEAM;                /* columns of the values of a warp */
constexpr int STEPS = D_QK / 16;                /* of a product */
constexpr int TURN = (STEPS + TEAM - 1) / TEAM; /* steps of a warp of a team */
constexpr int ROW = D_QK * 2 + 16; /* bytes: an odd number of 16-byte pieces, so that eight rows
                                      meet every bank once */
constexpr int PIECES = D_QK / 8;   /* of 8 elements */

#include "ops/attention/latent_tile.cuh"

/* Rows as they are copied, where they are widened afterwards. */
constexpr bool RAW = sizeof(kv_elem) == 1;
constexpr int RAW_BYTES = FORMAT == FP8_656 ? (D_QK > 512 ? BOLIDE__MLA_656 : BOLIDE__MLA_656_ROPE)
                          : FORMAT == FP8_584 ? BOLIDE__MLA_584_ROW
                                              : D_QK;
constexpr int RAW_ROW = RAW_BYTES + (FORMAT == FP8_584 ? 16 : 0); /* behind it its scales */
constexpr int STAGE = KEYS * (RAW ? RAW_ROW : ROW), COPIED = RAW ? RAW_BYTES : D_QK * 2;
static_assert(!AHEAD || RAW, "what is widened");

struct shared_memory {
    alignas(16) unsigned char q[ROWS * ROW];
    alignas(16) unsigned char stage[2][STAGE];
    alignas(16) unsigned char tile[AHEAD ? 2 : 1][RAW ? KEYS * ROW : 16]; /* raw rows, widened */
    float parts[WARPS][NT * 4][32]; /* products that a warp hands over */
    location at[2][KEYS];
    uint32_t there[4]; /* a bit a key of the tile at work and of the next three */
};

extern __shared__ __align__(16) unsigned char dynamic[];

#include "ops/attention/sparse_mla_item.cuh"

/* ---- loading ----------------------------------------------------------------------------------
 */

void load_queries(const params &p, const item &w, shared_memory &s) {
    const q_elem *q = static_cast<const q_elem *>(p.q) + w.token * p.q_n + w.head * p.q_h;
    for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
        const int row = i / PIECES, piece = i % PIECES;
        pack<elem, 8> x = {};
        if (row < w.heads) {
            const q_elem *from = q + row * p.q_h + piece * 8;
            if constexpr (Q_WIDE && same_type<q_elem, elem>) {
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

/* Looks up where the keys of tile `index`, from `key` on, lie. */
void find_tile(const params &p, const item &w, int32_t key, int index, shared_memory &s) {
    const int lane = threadIdx.x;
    if (lane >= 32)
        return;
    location at = {nullptr, nullptr};
    if (lane < KEYS && key + lane < w.end)
        at = locate_any(p, w.token, w.first, key + lane);
    if (lane < KEYS)
        s.at[index % 2][lane] = at;
    const uint32_t there = __ballot_sync(0xffffffffu, at.row != nullptr);
    if (lane == 0)
        s.there[index % 4] = there;
}

void copy_piece(unsigned char *to, const char *from, bool there) {
    if constexpr (WIDE) {
        copy_16(to, from, there ? 16 : 0);
    } else {
        pack<uint8_t, 16> x = {};
        if (there) {
#pragma unroll
            for (int j = 0; j < 16; j++)
                x.at[j] = (uint8_t)from[j];
        }
        *reinterpret_cast<pack<uint8_t, 16> *>(to) = x;
    }
}

void load_tile(const params &p, int index, shared_memory &s) {
    constexpr int A_ROW = COPIED / 16, STEP = RAW ? RAW_ROW : ROW;
    const char *any = static_cast<const char *>(p.list[0].cache);
    unsigned char *to = s.stage[index % 2];
#pragma unroll 4
    for (int i = threadIdx.x; i < KEYS * A_ROW; i += THREADS) {
        const int row = i / A_ROW, piece = i % A_ROW;
        const char *from = s.at[index % 2][row].row;
        copy_piece(to + row * STEP + piece * 16, (from ? from : any) + piece * 16, from != nullptr);
    }
    if constexpr (FORMAT == FP8_584) {
        for (int i = threadIdx.x; i < KEYS * 8; i += THREADS) {
            const location at = s.at[index % 2][i / 8];
            to[i / 8 * RAW_ROW + RAW_BYTES + i % 8] = at.row ? (uint8_t)at.scales[i % 8] : 0;
        }
    }
}

/* The scale of column c of a raw row. */
float raw_scale(const unsigned char *row, int c) {
    if constexpr (FORMAT == FP8_656)
        return reinterpret_cast<const float *>(row +
                                               BOLIDE__MLA_656_SCALES)[c / BOLIDE__MLA_656_TILE];
    if constexpr (FORMAT == FP8_584)
        return to_float(e8m0{row[BOLIDE__MLA_584_ROW + c / BOLIDE__MLA_584_TILE]});
    return 1;
}

/* Raw rows to a tile, eight elements a thread. */
void widen_tile(const unsigned char *raw, unsigned char *tile) {
    constexpr int NARROW = FORMAT == FP8_656   ? BOLIDE__MLA_656_SCALES
                           : FORMAT == FP8_584 ? BOLIDE__MLA_584_ROPE
                                               : D_QK;
    constexpr int ROPE = FORMAT == FP8_656 ? BOLIDE__MLA_656_ROPE : BOLIDE__MLA_584_ROPE;
    for (int i = threadIdx.x; i < KEYS * PIECES; i += THREADS) {
        const unsigned char *row = raw + i / PIECES * RAW_ROW;
        const int c = i % PIECES * 8;
        pack<elem, 8> x;
        if (c < NARROW) {
            float y[8];
            unpack(*reinterpret_cast<const pack<kv_elem, 8> *>(row + c), y);
            const float scale = raw_scale(row, c);
#pragma unroll
            for (int j = 0; j < 8; j++)
                y[j] *= scale;
            x = pack_floats<elem>(y);
        } else {
            x = *reinterpret_cast<const pack<elem, 8> *>(row + ROPE + (c - NARROW) * 2);
        }
        *reinterpret_cast<pack<elem, 8> *>(tile + i / PIECES * ROW + c * 2) = x;
    }
}

/* ---- one tile ---------------------------------------------------------------------------------
 */

/* Of the rows lane / 4 and lane / 4 + 8 of the team; l is a lane's part. */
struct rows_state {
    float m[2], l[2];
    float o[OWN / 8][4];
};

/* The products of all columns in every warp of a team. */
void products(shared_memory &s, const unsigned char *k, float (&x)[NT][4]) {
    const int first = (int)threadIdx.x / 32 % TEAM * TURN;
#pragma unroll
    for (int n = 0; n < NT; n++)
        x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
    multiply(s.q, k, smaller(first, STEPS), smaller(first + TURN, STEPS), x);
    join_products(s.parts, x);
}

/* Products to logits to weights, and the state to the new maximum. */
void soften(uint32_t there, float scale, rows_state &r, float (&x)[NT][4]) {
    const int key = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = r.m[i];
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int e = 2 * i; e < 2 * i + 2; e++) {
                const bool is = there >> (key + n * 8 + e % 2) & 1;
                x[n][e] = is ? x[n][e] * scale : -INFINITE;
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

void use_tile(const unsigned char *tile, uint32_t there, float scale, rows_state &r,
              shared_memory &s) {
    float x[NT][4];
    products(s, tile, x);
    soften(there, scale, r, x);
    add_values(r.o, x, tile);
}

/* The next tile is on its way while one is at work. */
void run_item(const params &p, const item &w, float scale, rows_state &r, shared_memory &s) {
    find_tile(p, w, w.begin, 0, s);
    find_tile(p, w, w.begin + KEYS, 1, s);
    __syncthreads();
    if (w.begin < w.end)
        load_tile(p, 0, s);
    commit_copies();
    int index = 0;
#pragma unroll 1
    for (int32_t key = w.begin; key < w.end; key += KEYS, index++) {
        wait_copies<0>();
        __syncthreads(); /* the tile is there; all are done with the one before */
        if (key + KEYS < w.end)
            load_tile(p, index + 1, s);
        commit_copies();
        find_tile(p, w, key + 2 * KEYS, index + 2, s);
        const unsigned char *tile = s.stage[index % 2];
        if constexpr (RAW) {
            widen_tile(tile, s.tile[0]);
            tile = s.tile[0];
            __syncthreads();
        }
        use_tile(tile, s.there[index % 4], scale, r, s);
    }
}

/* The next tile is widened, and the one behind it on its way, while one is at work. */
void run_ahead(const params &p, const item &w, float scale, rows_state &r, shared_memory &s) {
    find_tile(p, w, w.begin, 0, s);
    find_tile(p, w, w.begin + KEYS, 1, s);
    __syncthreads();
    if (w.begin < w.end)
        load_tile(p, 0, s);
    commit_copies();
    if (w.begin + KEYS < w.end)
        load_tile(p, 1, s);
    commit_copies();
    wait_copies<1>();
    __syncthreads(); /* the first tile is there; all have looked up where it lies */
    find_tile(p, w, w.begin + 2 * KEYS, 2, s);
    if (w.begin < w.end)
        widen_tile(s.stage[0], s.tile[0]);
    /* Warps of both kinds share a scheduler, which has warps w and w + 4. */
    const bool before = (int)threadIdx.x / 32 < WARPS / 2;
    int index = 0;
#pragma unroll 1
    for (int32_t key = w.begin; key < w.end; key += KEYS, index++) {
        const int next = (index + 1) % 2;
        const bool more = key + KEYS < w.end;
        wait_copies<0>();
        __syncthreads(); /* raw t+1 is there, tile t is widened; all are done with tile t-1 */
        if (key + 2 * KEYS < w.end)
            load_tile(p, index + 2, s);
        commit_copies();
        find_tile(p, w, key + 3 * KEYS, index + 3, s);
        if (before && more)
            widen_tile(s.stage[next], s.tile[next]);
        use_tile(s.tile[index % 2], s.there[index % 4], scale, r, s);
        if (!before && more)
            widen_tile(s.stage[next], s.tile[next]);
    }
}

/* ---- results ----------------------------------------------------------------------------------
 */

void write_item(const params &p, const item &w, rows_state &r) {
    const int lane = threadIdx.x % 32, part = (int)threadIdx.x / 32 % TEAM;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = team_row() + lane / 4 + 8 * i;
        const float l = lanes_sum<4>(r.l[i]);
        if (row >= w.heads)
            continue;
        const float factor = end_row(p, w, row, r.m[i], l, part == 0 && lane % 4 == 0);
#pragma unroll
        for (int n = 0; n < OWN / 8; n++)
            put_columns(p, w, row, part * OWN + n * 8 + lane % 4 * 2, factor,
                        {r.o[n][2 * i], r.o[n][2 * i + 1]});
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_sparse_mla(const __grid_constant__ bolide__sparse_mla_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    wait_for_previous_kernel();
    release_next_kernel();
    const item w = item_of(p, blockIdx.x);
    rows_state r;
    r.m[0] = r.m[1] = -INFINITE;
    r.l[0] = r.l[1] = 0;
#pragma unroll
    for (int n = 0; n < OWN / 8; n++)
        r.o[n][0] = r.o[n][1] = r.o[n][2] = r.o[n][3] = 0;
    const float scale = number_of(p.bmm1_tensor, p.bmm1) * LOG2E;
    load_queries(p, w, s);
    if constexpr (AHEAD)
        run_ahead(p, w, scale, r, s);
    else
        run_item(p, w, scale, r, s);
    write_item(p, w, r);
}
