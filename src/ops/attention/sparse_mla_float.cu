// SPDX-License-Identifier: Apache-2.0
//
// sparse_mla in float32, for what the tensor cores do not take: f32, 16-bit types that differ, odd
// sizes, old chips. A block has a token and 16 of its heads. For 64 keys at a time it multiplies
// queries with chunks of 64 columns of the keys, softens a head with eight threads, and adds the
// weighted values, each thread to columns of its own, which it reads where they lie.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "ops/attention/sparse_mla.h"

#if !defined(SPEC_QT) || !defined(SPEC_KT) || !defined(SPEC_OT) || !defined(SPEC_FORMAT) ||        \
    !defined(SPEC_D_QK) || !defined(SPEC_D_VO)
#error "QT, KT, OT: dtypes; FORMAT: of the caches; D_QK, D_VO: sizes"
#endif
constexpr int64_t QT = SPEC_QT, OT = SPEC_OT; /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int64_t KT = SPEC_KT;               /* those, or U8 with a packed format */
constexpr int FORMAT = SPEC_FORMAT;           /* bolide_mla_kv_format */
constexpr int D_QK = SPEC_D_QK;               /* multiples of 8 up to 576 */
constexpr int D_VO = SPEC_D_VO;
static_assert(D_QK % 8 == 0 && D_QK <= 576 && D_VO % 8 == 0 && D_VO <= D_QK, "head sizes");

using q_elem = element<QT>::type;
using kv_elem = element<KT == U8 ? F8_E4M3FN : KT>::type; /* of what bytes hold */
using out_elem = element<OT>::type;

#include "ops/attention/sparse_mla.cuh"

constexpr int THREADS = 128, HEADS = 16, KEYS = 64, CHUNK = 64;
constexpr int OWN = (D_VO + THREADS - 1) / THREADS; /* columns of a thread */

struct shared_memory {
    float q[D_QK][HEADS];
    float keys[KEYS][CHUNK + 1];
    float p[KEYS][HEADS]; /* logits, then weights */
    location at[KEYS];
    float alpha[HEADS], m[HEADS], l[HEADS];
};

extern __shared__ __align__(16) unsigned char dynamic[];

/* ---- reading ----------------------------------------------------------------------------------
 */

/* Element c of a key. */
float key_element(const location &at, int c) {
    if constexpr (FORMAT == PLAIN) {
        return to_float(reinterpret_cast<const kv_elem *>(at.row)[c]);
    } else if constexpr (FORMAT == FP8_656) {
        constexpr int LATENT = BOLIDE__MLA_656_SCALES;
        if (c >= LATENT)
            return to_float(
                reinterpret_cast<const bf16 *>(at.row + BOLIDE__MLA_656_ROPE)[c - LATENT]);
        const float *scales = reinterpret_cast<const float *>(at.row + LATENT);
        return to_float(reinterpret_cast<const e4m3 *>(at.row)[c]) *
               scales[c / BOLIDE__MLA_656_TILE];
    } else {
        constexpr int LATENT = BOLIDE__MLA_584_ROPE;
        if (c >= LATENT)
            return to_float(reinterpret_cast<const bf16 *>(at.row + LATENT)[c - LATENT]);
        return to_float(reinterpret_cast<const e4m3 *>(at.row)[c]) *
               to_float(reinterpret_cast<const e8m0 *>(at.scales)[c / BOLIDE__MLA_584_TILE]);
    }
}

void load_queries(const params &p, int32_t token, int32_t first_head, shared_memory &s) {
    const q_elem *q = static_cast<const q_elem *>(p.q) + token * p.q_n;
    for (int i = threadIdx.x; i < D_QK * HEADS; i += THREADS) {
        const int head = i / D_QK, c = i % D_QK;
        s.q[c][head] =
            first_head + head < p.h_q ? to_float(q[(first_head + head) * p.q_h + c]) : 0.0f;
    }
}

/* A chunk of columns of all keys; what is not there is 0. */
void load_chunk(int first, shared_memory &s) {
    for (int i = threadIdx.x; i < KEYS * CHUNK; i += THREADS) {
        const int key = i / CHUNK, c = i % CHUNK;
        s.keys[key][c] =
            s.at[key].row && first + c < D_QK ? key_element(s.at[key], first + c) : 0.0f;
    }
}

/* ---- a tile of keys ---------------------------------------------------------------------------
 */

/* Thread t has key t % 64 and eight heads. */
void multiply(float scale, shared_memory &s) {
    const int key = threadIdx.x % KEYS, head = (int)threadIdx.x / KEYS * 8;
    float sum[8] = {};
#pragma unroll 1
    for (int first = 0; first < D_QK; first += CHUNK) {
        __syncthreads(); /* the places are there; all are done with the chunk before */
        load_chunk(first, s);
        __syncthreads();
        const int end = smaller(CHUNK, D_QK - first);
#pragma unroll 4
        for (int c = 0; c < end; c++) {
            const float k = s.keys[key][c];
#pragma unroll
            for (int h = 0; h < 8; h++)
                sum[h] = fmaf(k, s.q[first + c][head + h], sum[h]);
        }
    }
    const bool there = s.at[key].row != nullptr;
#pragma unroll
    for (int h = 0; h < 8; h++)
        s.p[key][head + h] = there ? sum[h] * scale : -INFINITE;
    __syncthreads();
}

/* Eight neighbouring threads have a head. */
void soften(shared_memory &s) {
    const int head = threadIdx.x / 8, part = threadIdx.x % 8;
    const float old = s.m[head];
    float top = old, sum = 0;
    for (int key = part; key < KEYS; key += 8)
        top = fmaxf(top, s.p[key][head]);
#pragma unroll
    for (int step = 4; step > 0; step /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    const float base = top == -INFINITE ? 0.0f : top;
    for (int key = part; key < KEYS; key += 8) {
        const float weight = exp2_fast(s.p[key][head] - base);
        s.p[key][head] = weight;
        sum += weight;
    }
#pragma unroll
    for (int step = 4; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    __syncwarp(); /* all of the head have read its maximum so far */
    if (part == 0) {
        const float alpha = exp2_fast(old - base);
        s.alpha[head] = alpha;
        s.l[head] = s.l[head] * alpha + sum;
        s.m[head] = top;
    }
    __syncthreads();
}

void add_values(const shared_memory &s, float (&o)[OWN][HEADS]) {
#pragma unroll
    for (int i = 0; i < OWN; i++) {
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            o[i][h] *= s.alpha[h];
    }
#pragma unroll 2
    for (int key = 0; key < KEYS; key++) {
        const location at = s.at[key];
        if (!at.row)
            continue;
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int c = (int)threadIdx.x + i * THREADS;
            const float v = c < D_VO ? key_element(at, c) : 0.0f;
#pragma unroll
            for (int h = 0; h < HEADS; h++)
                o[i][h] = fmaf(s.p[key][h], v, o[i][h]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_sparse_mla_float(const __grid_constant__ bolide__sparse_mla_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    wait_for_previous_kernel();
    release_next_kernel();
    const int32_t token = (int32_t)(blockIdx.x / (uint32_t)p.tiles);
    const int32_t first_head = (int32_t)(blockIdx.x % (uint32_t)p.tiles) * HEADS;
    const int32_t first = count_of(p, 0, token), total = first + count_of(p, 1, token);
    const float scale = number_of(p.bmm1_tensor, p.bmm1) * LOG2E;
    float o[OWN][HEADS] = {};
    load_queries(p, token, first_head, s);
    if (threadIdx.x < HEADS) {
        s.m[threadIdx.x] = -INFINITE;
        s.l[threadIdx.x] = 0;
    }
#pragma unroll 1
    for (int32_t key = 0; key < total; key += KEYS) {
        __syncthreads(); /* all are done with the places of the tile before */
        if (threadIdx.x < KEYS)
            s.at[threadIdx.x] = key + (int32_t)threadIdx.x < total
                                    ? locate_any(p, token, first, key + (int32_t)threadIdx.x)
                                    : location{nullptr, nullptr};
        multiply(scale, s);
        soften(s);
        add_values(s, o);
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        const int32_t head = first_head + h;
        if (head >= p.h_q)
            continue;
        const float factor = finish(p, token, head, s.m[h], s.l[h], threadIdx.x == 0);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int c = (int)threadIdx.x + i * THREADS;
            if (c < D_VO)
                put_out(p, token, head, c, factor, {o[i][h]});
        }
    }
}
