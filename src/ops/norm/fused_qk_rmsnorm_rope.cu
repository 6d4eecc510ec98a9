// SPDX-License-Identifier: Apache-2.0
//
// Norm and rotation of q and k on the GPU. A block has q, k or v of a token: it sums the squares of
// all heads, makes the cosines and sines of the token in shared memory meanwhile, and reads the
// channels a second time, from cache, to normalise, turn and store them. Bytes are the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/walk.cuh"
#include "ops/norm/norm_internal.h"

#if !defined(SPEC_DT) || !defined(SPEC_OUT) || !defined(SPEC_VEC) || !defined(SPEC_INTERLEAVE)
#error "DT OUT: dtype bits; VEC: elements a load; INTERLEAVE: 0 or 1"
#endif
constexpr int64_t DT = SPEC_DT;
constexpr int64_t OUT = SPEC_OUT; /* DT or F8_E4M3FN */
constexpr int VEC = SPEC_VEC;     /* 1, 2, 4, 8 */
constexpr bool INTERLEAVE = SPEC_INTERLEAVE;
constexpr int THREADS = 256;

using elem = element<DT>::type;
using out_t = element<OUT>::type;
using vec = pack<elem, VEC>;

/* Vectors of an item, with its partner or with the neighbours in itself, and pairs that it turns.
 */
constexpr int PARTS = INTERLEAVE && VEC > 1 ? 1 : 2;
constexpr int PAIRS = PARTS * VEC / 2;

/* Of the block's token, times the factor of the result. */
struct angles {
    float cosine[BOLIDE__QK_ROPE_MAX_PAIRS];
    float sine[BOLIDE__QK_ROPE_MAX_PAIRS];
};

/* The angle is reduced to half a turn in double, so that far frames keep their phase. */
void make_angles(const bolide__qk_rope_params &p, int64_t token, float factor, angles &a) {
    const int64_t line = quotient(token, p.ppw), frame = quotient(line, p.pph);
    const int64_t width = token - line * p.ppw, height = line - frame * p.pph;
    for (int j = threadIdx.x; j < p.d / 2; j += THREADS) {
        const int64_t position = j < p.frame_pairs                    ? frame
                                 : j < p.frame_pairs + p.height_pairs ? height
                                                                      : width;
        const double half_turns = (double)position * p.freq[j] * 0.31830988618379067154;
        const float rest = (float)(half_turns - 2.0 * rint(half_turns * 0.5));
        float sine, cosine;
        sincospif(rest, &sine, &cosine);
        a.cosine[j] = cosine * factor;
        a.sine[j] = sine * factor;
    }
}

/* 1 / rms of the heads, or 1. */
float inverse_rms(const bolide__qk_rope_params &p, const elem *row, int64_t width, float *scratch) {
    float sum = 0;
    for (int64_t i = (int64_t)threadIdx.x * VEC; i < width; i += THREADS * VEC) {
        float x[VEC];
        unpack(load<vec>(row + i), x);
#pragma unroll
        for (int k = 0; k < VEC; k++)
            sum = fmaf(x[k], x[k], sum);
    }
    sum = group_sum<THREADS>(sum, scratch);
    return 1.0f / sqrtf(sum / (float)width + p.eps);
}

/* Where an item lies in a head, and its first pair. */
struct item_place {
    int c, other, pair;
};

item_place item_at(const bolide__qk_rope_params &p, int item) {
    return {INTERLEAVE ? item * VEC * PARTS : item * VEC, INTERLEAVE ? 1 : (int)p.d / 2,
            item * PAIRS};
}

void read_item(const elem *from, const item_place &at, float (&x)[PARTS][VEC]) {
    unpack(load<vec>(from + at.c), x[0]);
    if constexpr (PARTS == 2)
        unpack(load<vec>(from + at.c + at.other), x[PARTS - 1]);
}

void turn(float (&x)[PARTS][VEC], const angles &a, int pair) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float &first = PARTS == 2 ? x[0][i] : x[0][2 * i];
        float &second = PARTS == 2 ? x[PARTS - 1][i] : x[0][(2 * i + 1) % VEC];
        const float before = first, c = a.cosine[pair + i], s = a.sine[pair + i];
        first = before * c - second * s;
        second = second * c + before * s;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_qk_rmsnorm_rope(const __grid_constant__ bolide__qk_rope_params p) {
    __shared__ angles a;
    __shared__ float scratch[THREADS / 32];
    release_next_kernel();
    const bolide__qk_rope_side &side = p.side[blockIdx.y];
    const int64_t b = quotient(blockIdx.x, p.s), token = blockIdx.x - b * p.s;
    const int64_t width = side.heads * p.d;
    const elem *row = static_cast<const elem *>(p.qkv) + b * p.qkv_b + token * p.qkv_s + side.first;
    const elem *weight = static_cast<const elem *>(side.weight);
    out_t *out = static_cast<out_t *>(side.out) + b * side.out_b + token * side.out_s;
    wait_for_previous_kernel();

    /* v has no weight: it is neither normalised nor turned. */
    float scale = side.factor;
    if (weight) {
        make_angles(p, token, side.factor, a);
        scale = p.normalise ? inverse_rms(p, row, width, scratch) : 1.0f;
        __syncthreads();
    }
    const int items = (int)p.d / (PARTS * VEC);
    for (int i = threadIdx.x; i < side.heads * items; i += THREADS) {
        const int head = i / items;
        const item_place at = item_at(p, i - head * items);
        float x[PARTS][VEC];
        read_item(row + head * p.d, at, x);
#pragma unroll
        for (int k = 0; k < PARTS * VEC; k++)
            x[k / VEC][k % VEC] *= scale;
        if (weight) {
            if (p.normalise) {
                float w[PARTS][VEC];
                read_item(weight + head * p.d, at, w);
#pragma unroll
                for (int k = 0; k < PARTS * VEC; k++)
                    x[k / VEC][k % VEC] *= w[k / VEC][k % VEC];
            }
            turn(x, a, at.pair);
        }
        out_t *to = out + head * side.out_h + at.c;
        store(to, pack_floats<out_t>(x[0]));
        if constexpr (PARTS == 2)
            store(to + at.other, pack_floats<out_t>(x[PARTS - 1]));
    }
}
