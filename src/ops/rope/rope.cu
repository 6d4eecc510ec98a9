// SPDX-License-Identifier: Apache-2.0
//
// Turning q and k on the GPU. A block has TOKENS tokens: their cosines and sines are made once, in
// shared memory, and serve all heads. A thread then takes VEC channels of a head and the VEC that
// they turn with, so every element is read and written once; that traffic is the limit. Channels
// behind rotary_dim are copied in the same loop.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "ops/rope/rope_internal.h"

#if !defined(SPEC_DT) || !defined(SPEC_VEC) || !defined(SPEC_TOKENS) || !defined(SPEC_INTERLEAVE)
#error "DT: dtype bit, VEC: elements a load, TOKENS: of a block, INTERLEAVE: 0 or 1"
#endif
constexpr int64_t DT = SPEC_DT;     /* F16, BF16, F32 */
constexpr int VEC = SPEC_VEC;       /* 1, 2, 4, 8 */
constexpr int TOKENS = SPEC_TOKENS; /* 1, 4 */
constexpr bool INTERLEAVE = SPEC_INTERLEAVE;
constexpr int THREADS = 256;
static_assert(DT == F16 || DT == BF16 || DT == F32, "a float type");
static_assert(VEC >= 1 && VEC <= 8 && TOKENS <= 4, "a vector and few tokens");

using elem = element<DT>::type;
using vec = pack<elem, VEC>;

struct angles {
    float cosine[TOKENS][BOLIDE__ROPE_MAX_PAIRS];
    float sine[TOKENS][BOLIDE__ROPE_MAX_PAIRS];
    int turns[TOKENS]; /* 0: the token is copied */
};

/* Position of a token; false if it has none. */
bool position_of(const bolide__rope_params &p, int64_t token, int64_t *position) {
    if (p.pos_ids) {
        *position = p.pos_is_i64 ? static_cast<const int64_t *>(p.pos_ids)[token]
                                 : static_cast<const int32_t *>(p.pos_ids)[token];
        return true;
    }
    if (p.b == 0 || token < p.indptr[0] || token >= p.indptr[p.b])
        return false;
    int64_t low = 0, high = p.b;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (p.indptr[middle] <= token)
            low = middle;
        else
            high = middle;
    }
    *position = p.offsets[low] + token - p.indptr[low];
    return true;
}

/* The angle is reduced in double, so far positions keep their phase. */
void turn_of(double angle, float *sine, float *cosine) {
    const double turns = rint(angle * 0.15915494309189533577);
    const double rest =
        fma(-turns, 2.4492935982947064e-16, fma(-turns, 6.2831853071795864769, angle));
    sincosf((float)rest, sine, cosine);
}

void make_angles(const bolide__rope_params &p, int64_t first, angles &a) {
    const int pairs = (int)(p.rotary_dim / 2);
    for (int i = threadIdx.x; i < TOKENS * pairs; i += THREADS) {
        const int t = i / pairs, pair = i % pairs;
        const int64_t token = first + t;
        int64_t position = 0;
        bool turns = token < p.n && position_of(p, token, &position);
        if (p.cos_sin_cache) {
            turns = turns && position >= 0 && position < p.max_pos;
            if (turns) {
                const float *row = p.cos_sin_cache + position * p.cache_stride;
                a.cosine[t][pair] = row[pair];
                a.sine[t][pair] = row[pairs + pair];
            }
        } else if (turns) {
            turn_of((double)position * p.freq[pair], &a.sine[t][pair], &a.cosine[t][pair]);
        }
        if (pair == 0)
            a.turns[t] = turns;
    }
}

/* Channels [c, c + VEC) and, in halves, those rotary_dim/2 behind them. */
void turn_halves(const elem *in, elem *out, const float *cosine, const float *sine, int c,
                 int pairs) {
    float x[VEC], y[VEC];
    unpack(load_stream<vec>(in + c), x);
    unpack(load_stream<vec>(in + pairs + c), y);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        const float a = x[i], b = y[i];
        x[i] = a * cosine[c + i] - b * sine[c + i];
        y[i] = b * cosine[c + i] + a * sine[c + i];
    }
    store(out + c, pack_floats<elem>(x));
    store(out + pairs + c, pack_floats<elem>(y));
}

void turn_pairs(const elem *in, elem *out, const float *cosine, const float *sine, int c) {
    if constexpr (VEC >= 2) {
        float x[VEC];
        unpack(load_stream<vec>(in + c), x);
#pragma unroll
        for (int i = 0; i < VEC; i += 2) {
            const float a = x[i], b = x[i + 1], cs = cosine[(c + i) / 2], sn = sine[(c + i) / 2];
            x[i] = a * cs - b * sn;
            x[i + 1] = b * cs + a * sn;
        }
        store(out + c, pack_floats<elem>(x));
    } else {
        const float a = to_float(in[2 * c]), b = to_float(in[2 * c + 1]);
        out[2 * c] = from_float<elem>(a * cosine[c] - b * sine[c]);
        out[2 * c + 1] = from_float<elem>(b * cosine[c] + a * sine[c]);
    }
}

/* Work items of a head: its turned vectors, then its copied ones. */
void one_item(const bolide__rope_params &p, const angles &a, int64_t first, int t, int head,
              int item, int turned) {
    const int64_t token = first + t;
    const bool query = head < p.side[0].h;
    const bolide__rope_side &s = p.side[query ? 0 : 1];
    const int64_t h = query ? head : head - p.side[0].h;
    const elem *in = static_cast<const elem *>(s.in) + token * s.in_n + h * s.in_h;
    elem *out = static_cast<elem *>(s.out) + token * s.out_n + h * s.out_h;
    if (item < turned && a.turns[t]) {
        if constexpr (INTERLEAVE)
            turn_pairs(in, out, a.cosine[t], a.sine[t], item * VEC);
        else
            turn_halves(in, out, a.cosine[t], a.sine[t], item * VEC, (int)p.rotary_dim / 2);
        return;
    }
    if (in == out)
        return;
    /* A turned item covers two vectors in halves (and with single elements in pairs). */
    constexpr bool DOUBLE = !INTERLEAVE || VEC == 1;
    const int other = INTERLEAVE ? 1 : (int)p.rotary_dim / 2;
    const int c = item >= turned ? (int)p.rotary_dim + (item - turned) * VEC
                                 : item * VEC * (INTERLEAVE && VEC == 1 ? 2 : 1);
    store(out + c, load_stream<vec>(in + c));
    if (DOUBLE && item < turned)
        store(out + c + other, load_stream<vec>(in + c + other));
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_rope(const __grid_constant__ bolide__rope_params p) {
    __shared__ angles a;
    const int64_t first = (int64_t)blockIdx.x * TOKENS;
    make_angles(p, first, a);
    __syncthreads();
    const int heads = (int)(p.side[0].h + p.side[1].h);
    const int turned = (int)p.rotary_dim / (INTERLEAVE && VEC > 1 ? VEC : 2 * VEC);
    const int items = turned + (int)(p.d - p.rotary_dim) / VEC;
    const int tokens = (int)smaller<int64_t>(TOKENS, p.n - first);
    for (int i = blockIdx.y * THREADS + threadIdx.x; i < tokens * heads * items;
         i += THREADS * gridDim.y) {
        const int row = i / items;
        one_item(p, a, first, row / heads, row % heads, i % items, turned);
    }
}
