// SPDX-License-Identifier: Apache-2.0
//
// Joins what the pieces of a token's keys left in their slots, in the order of the pieces: a block
// has a token and a head, a thread four columns. Every warp works out the weights for itself. Sums
// come by way of shared memory, since the compiler would load two of them at a time.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/sparse_mla.h"

#if !defined(SPEC_OT) || !defined(SPEC_D_VO)
#error "OT: dtype of the result; D_VO: its size"
#endif
constexpr int64_t OT = SPEC_OT; /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_VO = SPEC_D_VO; /* a multiple of 32 up to 512 */
constexpr int FORMAT = 0;       /* of keys, of which there are none here */
static_assert(D_VO % 32 == 0 && D_VO <= 512, "head size");

using out_elem = element<OT>::type;

#include "ops/attention/sparse_mla.cuh"

constexpr int THREADS = 128, AT_ONCE = 16, MOST_PIECES = 64;

/* Of the pieces lane and lane + 32: the weight of their sums, and of their sum of weights. */
struct weights {
    float at[2];
    float m, l; /* of all pieces */
};

weights weigh(const params &p, int64_t slot) {
    constexpr int EACH = MOST_PIECES / 32;
    const int lane = threadIdx.x % 32;
    pack<float, 2> own[EACH]; /* largest logit, sum of weights */
    weights w;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        own[i] = {-INFINITE, 0.0f};
        if (lane + 32 * i < p.pieces)
            own[i] = load<pack<float, 2>>(p.partial_ml + 2 * (slot + (lane + 32 * i) * p.h_q));
    }
    w.m = lanes_max<32>(fmaxf(own[0].at[0], own[1].at[0]));
    const float base = w.m == -INFINITE ? 0.0f : w.m;
    float l = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        w.at[i] = own[i].at[1] == 0 ? 0.0f : exp2_fast(own[i].at[0] - base);
        l += own[i].at[1] * w.at[i];
    }
    w.l = lanes_sum<32>(l);
    return w;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_sparse_mla_merge(const __grid_constant__ bolide__sparse_mla_params p) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int32_t token = (int32_t)(blockIdx.x / (uint32_t)p.h_q);
    const int32_t head = (int32_t)(blockIdx.x % (uint32_t)p.h_q), pieces = (int32_t)p.pieces;
    const int64_t slot = (int64_t)token * p.pieces * p.h_q + head;
    const int column = threadIdx.x * 4;
    const weights w = weigh(p, slot);
    const float *from = p.partial_o + slot * D_VO + (column < D_VO ? column : 0);
    __shared__ pack<float, 4> part[AT_ONCE][THREADS];
    float sum[4] = {};
#pragma unroll 1
    for (int32_t first = 0; first < pieces; first += AT_ONCE) {
        const int32_t count = smaller(pieces - first, AT_ONCE);
#pragma unroll 4
        for (int32_t j = 0; j < count; j++)
            copy_16(&part[j][threadIdx.x], from + (first + j) * p.h_q * D_VO, 16);
        commit_copies();
        wait_copies<0>();
#pragma unroll 4
        for (int32_t j = 0; j < count; j++) {
            const int32_t piece = first + j;
            const float weight =
                __shfl_sync(0xffffffffu, piece < 32 ? w.at[0] : w.at[1], piece % 32);
            if (weight == 0)
                continue; /* no key, and nothing but that was written */
            const pack<float, 4> x = part[j][threadIdx.x];
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[i] = fmaf(x.at[i], weight, sum[i]);
        }
    }
    const float factor = finish(p, token, head, w.m, w.l, threadIdx.x == 0);
    if (column < D_VO)
        put_out(p, token, head, column, factor, sum);
}
