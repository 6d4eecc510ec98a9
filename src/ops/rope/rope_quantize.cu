// SPDX-License-Identifier: Apache-2.0
//
// Turning and quantising q, k and v on the GPU. A block has TOKENS tokens: their cosines and sines
// are copied to shared memory and their places in the cache are looked up once, for all heads. A
// thread then takes VEC channels of a head and the VEC that they turn with; every element is read
// once and written once as a byte, and that traffic is the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "ops/rope/rope_quantize_internal.h"

#if !defined(SPEC_DT) || !defined(SPEC_TO) || !defined(SPEC_VEC) || !defined(SPEC_TOKENS) ||       \
    !defined(SPEC_INTERLEAVE)
#error "DT, TO: dtypes, VEC: elements a load, TOKENS: of a block, INTERLEAVE: 0 or 1"
#endif
constexpr int64_t DT = SPEC_DT;     /* F16, BF16, F32 */
constexpr int64_t TO = SPEC_TO;     /* F8_E4M3FN, F8_E5M2 */
constexpr int VEC = SPEC_VEC;       /* 1, 2, 4, 8 */
constexpr int TOKENS = SPEC_TOKENS; /* 1, 4 */
constexpr bool INTERLEAVE = SPEC_INTERLEAVE;
constexpr int THREADS = 256;
/* Channels that an item of a turning part covers: with single elements, and in halves, two loads.
 */
constexpr int TURNED = INTERLEAVE && VEC > 1 ? VEC : 2 * VEC;
static_assert(DT == F16 || DT == BF16 || DT == F32, "a float type");
static_assert(TO == F8_E4M3FN || TO == F8_E5M2, "an 8-bit float type");
static_assert(VEC >= 1 && VEC <= 8 && TOKENS <= 4, "a vector and few tokens");

using from_elem = element<DT>::type;
using to_elem = element<TO>::type;
using from_vec = pack<from_elem, VEC>;

/* 8 KB with four tokens. */
struct token_data {
    float cosine[TOKENS][BOLIDE__ROPE_MAX_PAIRS];
    float sine[TOKENS][BOLIDE__ROPE_MAX_PAIRS];
    int64_t page[TOKENS]; /* -1: not in the cache */
    int64_t slot[TOKENS];
    int turns[TOKENS]; /* 0: the token is not turned */
};

void find_tokens(const bolide__rope_quantize_params &p, int64_t first, token_data &s) {
    const int pairs = (int)(p.rotary_dim / 2);
    for (int i = threadIdx.x; i < TOKENS * pairs; i += THREADS) {
        const int t = i / pairs, pair = i % pairs;
        const int64_t token = first + t;
        int64_t position = -1;
        if (token < p.n)
            position = p.pos_is_i64 ? static_cast<const int64_t *>(p.pos_ids)[token]
                                    : static_cast<const int32_t *>(p.pos_ids)[token];
        const bool turns = position >= 0 && position < p.max_pos;
        if (turns) {
            const float *row = p.cos_sin_cache + position * p.cache_stride;
            s.cosine[t][pair] = row[pair];
            s.sine[t][pair] = row[pairs + pair];
        }
        if (pair == 0)
            s.turns[t] = turns;
    }
    const int t = threadIdx.x;
    if (t < TOKENS) {
        int64_t slot = 0, page = -1;
        if (p.positions && first + t < p.n)
            page = bolide__page_of(&p.table, p.batch_indices[first + t], p.positions[first + t],
                                   &slot);
        s.page[t] = page;
        s.slot[t] = slot;
    }
}

void put(to_elem *to, float (&x)[VEC], float scale) {
#pragma unroll
    for (int i = 0; i < VEC; i++)
        x[i] *= scale;
    store(to, pack_floats<to_elem>(x));
}

void copy(const from_elem *in, to_elem *out, float scale) {
    float x[VEC];
    unpack(load_stream<from_vec>(in), x);
    put(out, x, scale);
}

/* Channels [c, c + VEC) and those rotary_dim/2 behind them. */
void turn_halves(const from_elem *in, to_elem *out, const float *cosine, const float *sine, int c,
                 int pairs, float scale) {
    float x[VEC], y[VEC];
    unpack(load_stream<from_vec>(in + c), x);
    unpack(load_stream<from_vec>(in + pairs + c), y);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        const float a = x[i], b = y[i];
        x[i] = a * cosine[c + i] - b * sine[c + i];
        y[i] = b * cosine[c + i] + a * sine[c + i];
    }
    put(out + c, x, scale);
    put(out + pairs + c, y, scale);
}

/* Pairs that stand in one vector; c is the first channel, or with single elements the pair. */
void turn_pairs(const from_elem *in, to_elem *out, const float *cosine, const float *sine, int c,
                float scale) {
    if constexpr (VEC >= 2) {
        float x[VEC];
        unpack(load_stream<from_vec>(in + c), x);
#pragma unroll
        for (int i = 0; i < VEC; i += 2) {
            const float a = x[i], b = x[i + 1], cs = cosine[(c + i) / 2], sn = sine[(c + i) / 2];
            x[i] = a * cs - b * sn;
            x[i + 1] = b * cs + a * sn;
        }
        put(out + c, x, scale);
    } else {
        const float a = to_float(in[2 * c]), b = to_float(in[2 * c + 1]);
        out[2 * c] = from_float<to_elem>((a * cosine[c] - b * sine[c]) * scale);
        out[2 * c + 1] = from_float<to_elem>((b * cosine[c] + a * sine[c]) * scale);
    }
}

/* Items of a head of a part. */
int items_of(const bolide__rope_part &s) {
    return (int)s.d / (s.turns ? TURNED : VEC);
}

void one_item(const bolide__rope_quantize_params &p, const token_data &s,
              const bolide__rope_part &part, int64_t first, int t, int head, int item) {
    if (part.is_paged && s.page[t] < 0)
        return;
    const from_elem *in =
        static_cast<const from_elem *>(part.in) + (first + t) * part.in_n + head * part.in_h;
    const int64_t row = part.is_paged ? s.page[t] * part.out_n + s.slot[t] * part.out_slot
                                      : (first + t) * part.out_n;
    to_elem *out = static_cast<to_elem *>(part.out) + row + head * part.out_h;
    if (!part.turns) {
        copy(in + item * VEC, out + item * VEC, part.scale);
    } else if (!s.turns[t]) {
        constexpr bool SPREAD = !INTERLEAVE; /* the two loads of an item are half a head apart */
        const int c = SPREAD ? item * VEC : item * TURNED;
        copy(in + c, out + c, part.scale);
        if constexpr (TURNED == 2 * VEC) {
            const int other = c + (SPREAD ? (int)p.rotary_dim / 2 : VEC);
            copy(in + other, out + other, part.scale);
        }
    } else if constexpr (INTERLEAVE) {
        turn_pairs(in, out, s.cosine[t], s.sine[t], item * VEC, part.scale);
    } else {
        turn_halves(in, out, s.cosine[t], s.sine[t], item * VEC, (int)p.rotary_dim / 2, part.scale);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_rope_quantize(const __grid_constant__ bolide__rope_quantize_params p) {
    __shared__ token_data s;
    const int64_t first = (int64_t)blockIdx.x * TOKENS;
    find_tokens(p, first, s);
    __syncthreads();
    int total = 0;
    for (int i = 0; i < (int)p.parts; i++)
        total += (int)p.part[i].h * items_of(p.part[i]);
    const int tokens = (int)smaller<int64_t>(TOKENS, p.n - first);
    for (int i = blockIdx.y * THREADS + threadIdx.x; i < tokens * total; i += THREADS * gridDim.y) {
        int item = i % total, part = 0;
        for (int count; item >= (count = (int)p.part[part].h * items_of(p.part[part])); part++)
            item -= count;
        const int items = items_of(p.part[part]);
        one_item(p, s, p.part[part], first, i / total, item / items, item % items);
    }
}
