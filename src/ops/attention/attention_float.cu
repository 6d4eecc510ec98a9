// SPDX-License-Identifier: Apache-2.0
//
// Attention in float32 arithmetic, for what the tensor cores of attention.cu do not take: float32
// queries or caches, a 16-bit cache of another type than the queries, head sizes above 256, rotary
// positions inside the kernel, tiles that are too large for the chip, and custom variants. The
// items and everything around them are the same.
//
// A warp has four of the tile's 16 rows; a lane takes two of 64 keys for the logits and every 32nd
// column for the sums. Keys and values pass through shared memory as float32, CHUNK columns at a
// time. Multiply-adds are the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/attention_internal.h"

#if !defined(SPEC_QT) || !defined(SPEC_KT) || !defined(SPEC_OT) || !defined(SPEC_D_QK) ||          \
    !defined(SPEC_D_VO) || !defined(SPEC_D_TAIL) || !defined(SPEC_FLAGS)
#error "QT, KT, OT: dtypes; D_QK, D_VO, D_TAIL: head sizes; FLAGS"
#endif
constexpr int64_t QT = SPEC_QT; /* F32, F16, BF16, F8_E4M3FN, F8_E5M2 */
constexpr int64_t KT = SPEC_KT;
constexpr int64_t OT = SPEC_OT;
constexpr int D_QK = SPEC_D_QK; /* multiples of 8 up to 576 */
constexpr int D_VO = SPEC_D_VO;
constexpr int D_TAIL = SPEC_D_TAIL; /* columns of D_QK in tensors of their own */
constexpr int D_OWN = D_QK - D_TAIL;
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = FLAGS & 1;
constexpr bool MASKED = FLAGS & 2; /* causal, window or chunks */
constexpr bool CAPPED = FLAGS & 4;
constexpr bool ALIBI = FLAGS & 8;
constexpr bool SPECIAL = FLAGS & 32; /* custom mask, draft or multi-item scoring */
constexpr bool ROPE = FLAGS & 64;
constexpr bool RULED = FLAGS & 128; /* the schedule is a rule */
constexpr bool VARIANT = FLAGS & 256;
constexpr bool V_PAGES = FLAGS & 512; /* values lie on pages of their own */
constexpr bool CHUNKED = FLAGS & 1024;
constexpr bool SCALED = FLAGS & 2048; /* row_scales */
static_assert(D_QK % 8 == 0 && D_VO % 8 == 0 && D_QK <= 576 && D_VO <= 576, "head sizes");

using q_elem = element<QT>::type;
using kv_elem = element<KT>::type;
using out_elem = element<OT>::type;

constexpr int ROWS = 16, KEYS = 64, CHUNK = 64, WARPS = 4, OWN = ROWS / WARPS;
constexpr int THREADS = 32 * WARPS;
constexpr int MERGED_AT_ONCE = 4, MERGED_ROWS = 1;
constexpr int HALF = D_QK / 2;
constexpr int COLUMNS = (D_VO + CHUNK - 1) / CHUNK * 2; /* of a lane */
constexpr int Q_CHUNKS = ROPE ? (HALF + CHUNK / 2 - 1) / (CHUNK / 2) : (D_QK + CHUNK - 1) / CHUNK;

#if SPEC_FLAGS & 256
#include "variant.cuh"
#else
#include "ops/attention/attention_plain.cuh"
#endif
#include "ops/attention/attention_device.cuh"

#ifdef BOLIDE__VARIANT_STATE /* a struct in CUDA C++ that changes the maximum and sum of a row */
constexpr bool RESTATED = true;
#else
constexpr bool RESTATED = false;
void bolide__variant_state(const bolide__variant_at *, const bolide__variant_extra *, int, float &,
                           float &, float &) {
}
#endif

struct shared_memory {
    float q[D_QK][ROWS];
    float side[KEYS][CHUNK + 1]; /* of K or V */
    float weights[KEYS][ROWS];
    int64_t k_at[KEYS], v_at[KEYS], tail_at[D_TAIL ? KEYS : 1];
    const float *scales[SCALED ? KEYS : 1]; /* of a latent's parts */
    int32_t columns[PLACED ? KEYS : 1];     /* where keys stand */
    alignas(16) work item;
    double turns[ROPE ? HALF : 1]; /* of each pair of columns, a position */
    int32_t keys;                  /* of the tile */
    int32_t is_last;
};

extern __shared__ __align__(16) unsigned char dynamic[];

/* ---- rotary positions -------------------------------------------------------------------------
 */

void fill_turns(const params &p, shared_memory &s) {
    if constexpr (ROPE) {
        for (int i = threadIdx.x; i < HALF; i += THREADS)
            s.turns[i] = pow(p.rope_theta, -2.0 * i / D_QK) / p.rope_scale / 6.283185307179586477;
    }
}

/* Columns i and i + HALF at a position. */
float2_t rotate(const shared_memory &s, float x, float y, int i, int32_t position) {
    const double turns = s.turns[i] * position;
    float sine, cosine;
    sincospif(2.0f * (float)(turns - rint(turns)), &sine, &cosine);
    return {x * cosine - y * sine, y * cosine + x * sine};
}

/* ---- loading ----------------------------------------------------------------------------------
 */

float query(const params &p, const work &w, int32_t rows, int32_t row, int d) {
    if (row >= rows)
        return 0;
    const int64_t n = (int64_t)w.q_start + query_token(p, w, row), h = query_head(p, w, row);
    if constexpr (D_TAIL > 0) {
        /* Both parts come in their own scale, so that the products need none. */
        if (d >= D_OWN)
            return to_float(static_cast<const q_elem *>(
                       p.q_tail)[n * p.q_tail_n + h * p.q_tail_h + d - D_OWN]) *
                   logit_scale(p, (int32_t)h, scale_of(p.tail_scale, 0));
        return to_float(static_cast<const q_elem *>(p.q)[n * p.q_n + h * p.q_h + d]) *
               logit_scale(p, (int32_t)h, scale_of(p.k_scale, 0));
    }
    const float x = to_float(static_cast<const q_elem *>(p.q)[n * p.q_n + h * p.q_h + d]);
    if constexpr (VARIANT) {
        bolide__variant_at here = place_of(p, w, row, 0);
        here.dim = d;
        return bolide__variant_query(x, &here, p.extra);
    }
    return x;
}

/* Column d of a key or a value, at `from`. */
float key_at(const params &p, const work &w, const kv_elem *from, int32_t key, int d) {
    const float x = to_float(*from);
    if constexpr (VARIANT) {
        bolide__variant_at here = place_of(p, w, 0, key);
        here.dim = d;
        return bolide__variant_key(x, &here, p.extra);
    }
    return x;
}

float value_at(const params &p, const work &w, const kv_elem *from, int32_t key, int d) {
    const float x = to_float(*from);
    if constexpr (VARIANT) {
        bolide__variant_at here = place_of(p, w, 0, key);
        here.dim = d;
        return bolide__variant_value(x, &here, p.extra);
    }
    return x;
}

void load_queries(const params &p, const work &w, int32_t rows, shared_memory &s) {
    constexpr int COUNT = ROPE ? HALF : D_QK;
    for (int i = threadIdx.x; i < ROWS * COUNT; i += THREADS) {
        const int row = i / COUNT, d = i % COUNT;
        if constexpr (ROPE) {
            const int32_t position = position_of(p, w, query_token(p, w, row));
            const float2_t x =
                rotate(s, query(p, w, rows, row, d), query(p, w, rows, row, d + HALF), d, position);
            s.q[d][row] = x.x;
            s.q[d + HALF][row] = x.y;
        } else {
            s.q[d][row] = query(p, w, rows, row, d);
        }
    }
}

/* Column of the head that stands in column c of a chunk of keys; with rotary positions a chunk has
 * both columns of each pair. */
constexpr int head_column(int chunk, int c) {
    constexpr int PAIRS = CHUNK / 2;
    return ROPE ? chunk * PAIRS + c % PAIRS + c / PAIRS * HALF : chunk * CHUNK + c;
}

constexpr bool in_head(int chunk, int c) {
    return ROPE ? chunk * (CHUNK / 2) + c % (CHUNK / 2) < HALF : chunk * CHUNK + c < D_QK;
}

/* Scale of column d of a key's latent. */
float part_scale(const shared_memory &s, int key, int d) {
    if constexpr (SCALED)
        return s.scales[key][d / BOLIDE__ATTN_SCALED];
    return 1;
}

void load_keys(const params &p, shared_memory &s, int chunk, int32_t first) {
    const kv_elem *k = static_cast<const kv_elem *>(p.k);
    constexpr int COUNT = ROPE ? CHUNK / 2 : CHUNK;
    for (int i = threadIdx.x; i < KEYS * COUNT; i += THREADS) {
        const int key = i / COUNT, c = i % COUNT;
        const int64_t at = s.k_at[key];
        const bool there = key < s.keys && in_head(chunk, c);
        const int d = head_column(chunk, c);
        if constexpr (D_TAIL > 0) {
            if (there && d >= D_OWN) {
                s.side[key][c] =
                    to_float(static_cast<const kv_elem *>(p.k_tail)[s.tail_at[key] + d - D_OWN]);
                continue;
            }
        }
        if constexpr (ROPE) {
            float2_t x = {};
            if (there)
                x = rotate(s, key_at(p, s.item, k + at + d, first + key, d),
                           key_at(p, s.item, k + at + d + HALF, first + key, d + HALF), d,
                           PLACED ? s.columns[key] : first + key);
            s.side[key][c] = x.x;
            s.side[key][c + COUNT] = x.y;
        } else {
            s.side[key][c] =
                there ? key_at(p, s.item, k + at + d, first + key, d) * part_scale(s, key, d)
                      : 0.0f;
        }
    }
}

void load_values(const params &p, shared_memory &s, int chunk, int32_t first) {
    const kv_elem *v = static_cast<const kv_elem *>(p.v);
    for (int i = threadIdx.x; i < KEYS * CHUNK; i += THREADS) {
        const int key = i / CHUNK, d = chunk * CHUNK + i % CHUNK;
        const int64_t at = s.v_at[key];
        s.side[key][i % CHUNK] =
            key < s.keys && d < D_VO
                ? value_at(p, s.item, v + at + d, first + key, d) * part_scale(s, key, d)
                : 0.0f;
    }
}

/* ---- one tile ---------------------------------------------------------------------------------
 */

/* A warp's rows; l is a lane's part. */
struct rows_state {
    float m[OWN], l[OWN], scale[OWN];
    float o[OWN][COLUMNS];
};

void add_products(const shared_memory &s, int chunk, float (&x)[OWN][2]) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * OWN;
#pragma unroll 8
    for (int c = 0; c < CHUNK; c++) {
        if (!in_head(chunk, c))
            continue;
        const float4 q = *reinterpret_cast<const float4 *>(&s.q[head_column(chunk, c)][row]);
        const float k[2] = {s.side[lane][c], s.side[lane + 32][c]};
#pragma unroll
        for (int j = 0; j < 2; j++) {
            x[0][j] = fmaf(q.x, k[j], x[0][j]);
            x[1][j] = fmaf(q.y, k[j], x[1][j]);
            x[2][j] = fmaf(q.z, k[j], x[2][j]);
            x[3][j] = fmaf(q.w, k[j], x[3][j]);
        }
    }
}

/* A logit, in base 2, through the variant; whether its mask shows the key. What no row sees is not
 * asked for: the variant's arrays may end there. */
bool change(const params &p, const work &w, int32_t row, int32_t key, bool visible, float &y) {
    if (!visible)
        return false;
    const bolide__variant_at at = place_of(p, w, row, key);
    y = bolide__variant_logits(y * LN2, &at, p.extra) * (bolide__variant_softmax ? LOG2E : 1.0f);
    return bolide__variant_mask(&at, p.extra);
}

/* Without a softmax: logits are weights, -inf is none, and l says whether there is a key. */
void take_weights(const float (&x)[2], int row, float &m, float &l, shared_memory &s) {
    const int lane = threadIdx.x % 32;
    m = 0;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        l = x[j] == -INFINITE ? l : 1.0f;
        s.weights[lane + 32 * j][row] = x[j] == -INFINITE ? 0.0f : x[j];
    }
}

/* Logits to weights in shared memory; the warp's sums so far come to the new maximum. */
void soften(const params &p, const work &w, int32_t first, rows_state &r, float (&x)[OWN][2],
            shared_memory &s) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int row = threadIdx.x / 32 * OWN + i;
        const int32_t token = query_token(p, w, row);
        const sight seen = sight_of(p, w, token);
        const float slope = ALIBI ? slope_of(p, w, row) : 0.0f;
        float top = r.m[i];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int32_t key = first + lane + 32 * j;
            const int32_t column = PLACED ? s.columns[lane + 32 * j] : key;
            float y = x[i][j] * r.scale[i];
            if constexpr (CAPPED)
                y = tanh_exact(y) * ((float)p.soft_cap * LOG2E);
            if constexpr (ALIBI)
                y += slope * (float)(column - position_of(p, w, token));
            bool visible = in_sight(w, seen, key, column);
            if constexpr (SPECIAL)
                visible = visible && in_mask(p, w, token, key);
            if constexpr (VARIANT)
                visible = change(p, w, row, key, visible && token < w.q_len, y);
            x[i][j] = visible ? y : -INFINITE;
            top = fmaxf(top, x[i][j]);
        }
        if constexpr (!bolide__variant_softmax) {
            take_weights(x[i], row, r.m[i], r.l[i], s);
            continue;
        }
        top = lanes_max<32>(top);
        const float base = top == -INFINITE ? 0.0f : top;
        const float weight = exp2f(r.m[i] - base);
        r.m[i] = top;
        r.l[i] *= weight;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            r.o[i][c] *= weight;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float y = exp2f(x[i][j] - base);
            r.l[i] += y;
            s.weights[lane + 32 * j][row] = y;
        }
    }
    __syncwarp();
}

/* A weight of 0 does not meet its value, which may be an infinity. */
void add_values(const shared_memory &s, int chunk, rows_state &r) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * OWN;
#pragma unroll 8
    for (int key = 0; key < KEYS; key++) {
        const float4 y = *reinterpret_cast<const float4 *>(&s.weights[key][row]);
        const float weight[OWN] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float v = s.side[key][lane + 32 * j];
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                float &o = r.o[i][2 * chunk + j];
                o = weight[i] == 0 ? o : fmaf(weight[i], v, o);
            }
        }
    }
}

void run_tile(const params &p, const work &w, int32_t first, rows_state &r, shared_memory &s) {
    if (threadIdx.x < KEYS) {
        const int32_t key = first + (int32_t)threadIdx.x;
        const int32_t page = look_up(p, w, key);
        const location at = locate(p, w, key, page);
        s.k_at[threadIdx.x] = at.k;
        s.v_at[threadIdx.x] = at.v;
        if constexpr (PLACED)
            s.columns[threadIdx.x] = column_of_matrix(p, key, page);
        if constexpr (D_TAIL > 0)
            s.tail_at[threadIdx.x] =
                page * p.k_tail_page + (uint32_t)key % (uint32_t)p.page_size * p.k_tail_n;
        if constexpr (SCALED)
            s.scales[threadIdx.x] = p.row_scales + page * p.row_scales_page +
                                    (uint32_t)key % (uint32_t)p.page_size * p.row_scales_n;
        if (threadIdx.x == 0)
            s.keys = w.kv_end - first;
    }
    float x[OWN][2] = {};
    for (int chunk = 0; chunk < Q_CHUNKS; chunk++) {
        __syncthreads(); /* places are there, all are done with the chunk before */
        load_keys(p, s, chunk, first);
        __syncthreads();
        add_products(s, chunk, x);
    }
    soften(p, w, first, r, x, s);
#pragma unroll
    for (int chunk = 0; chunk < COLUMNS / 2; chunk++) {
        __syncthreads();
        load_values(p, s, chunk, first);
        __syncthreads();
        add_values(s, chunk, r);
    }
    __syncthreads();
}

/* The variant's last word on a row of a piece, of which the first is number 0. */
void restate(const params &p, const work &w, int32_t row, rows_state &r, int i, float &l) {
    const bolide__variant_at here = place_of(p, w, row, 0);
    /* Without a visible key far below all, so that a difference of two such maxima is 0. */
    float m = fmaxf(r.m[i], -1e30f), scale = 1;
    bolide__variant_state(&here, p.extra, w.slot < 0 ? 0 : w.slot - w.merge_slot, m, l, scale);
    r.m[i] = l == 0 ? -INFINITE : m;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        r.o[i][c] *= scale;
}

void write_item(const params &p, const work &w, int32_t rows, rows_state &r, shared_memory &s) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int32_t row = threadIdx.x / 32 * OWN + i;
        float l = lanes_sum<32>(r.l[i]);
        if (row >= rows)
            continue;
        if constexpr (RESTATED)
            restate(p, w, row, r, i, l);
        const int64_t at = slot_row_of(p, w.slot, row);
        place to = {};
        if (w.slot < 0)
            to = finish(p, w, row, r.m[i], l, lane == 0);
        else if (lane == 0)
            put_slot_ml(p, at, r.m[i], l);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int column = c * 32 + lane;
            if (column >= D_VO)
                continue;
            if (w.slot < 0)
                put_out(to, column, {r.o[i][c]});
            else
                p.partial_o[at * D_VO + column] = r.o[i][c];
        }
    }
    if (w.slot >= 0)
        arrive(p, w, rows, s.is_last);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    bolide_attention_float(const __grid_constant__ bolide__attention_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    wait_for_previous_kernel();
    release_next_kernel();
    const int32_t count = work_count(p);
    fill_turns(p, s);
    for (int32_t k = 0; k < count; k++) {
        __syncthreads(); /* all are done with the item before */
        if (threadIdx.x < 5)
            fetch_work(p, k, threadIdx.x, &s.item);
        commit_copies();
        wait_copies<0>();
        __syncthreads();
        const work &w = s.item;
        const int32_t rows = packed_rows(p, w, ROWS);
        rows_state r;
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int32_t head = query_head(p, w, threadIdx.x / 32 * OWN + i);
            r.scale[i] = D_TAIL > 0 ? 1.0f : logit_scale(p, head);
            r.m[i] = -INFINITE;
            r.l[i] = 0;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                r.o[i][c] = 0;
        }
        load_queries(p, w, rows, s);
        for (int32_t key = w.kv_begin; key < w.kv_end; key += KEYS) {
            if (!hidden_tile(p, w, key))
                run_tile(p, w, key, r, s);
        }
        write_item(p, w, rows, r, s);
    }
}
