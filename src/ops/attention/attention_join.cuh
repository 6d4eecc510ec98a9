// SPDX-License-Identifier: Apache-2.0
//
// What the warps of a block have of the same few rows, and then the blocks of a cluster, joined for
// attention_few.cu and attention_stream.cu. Included behind attention_tile.cuh.

#ifndef BOLIDE_OPS_ATTENTION_JOIN_CUH
#define BOLIDE_OPS_ATTENTION_JOIN_CUH

constexpr int FOURS = D_VO / 4; /* of a row of the result, a thread each */

/* What a block has, or sends, of four columns of a row. */
struct alignas(16) portion {
    float sum[4];
    float m, l, unused[2];
};

/* The warp's maxima and sums of its rows to `ml`, their results to `spot(row, column)`. */
template <class Spot>
void leave_rows(int32_t rows, const rows_state &r, float (&ml)[ROWS][2], const Spot &spot) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = lane / 4 + 8 * i;
        const float l = lanes_sum<4>(r.l[0][i]);
        if (lane % 4 == 0) {
            ml[row][0] = r.m[0][i];
            ml[row][1] = l;
        }
        if (row >= rows)
            continue;
#pragma unroll
        for (int j = 0; j < DV / 8; j++) {
            const float2_t x = pair_of(r, 0, i, j);
            *static_cast<float2 *>(spot(row, column_of(j))) = {x.x, x.y};
        }
    }
}

/* Four columns of a row over all warps, of which `count` have keys: what warp i has of them lies at
 * `part(i)`. */
template <class Part>
portion join_warps(const float (&ml)[WARPS][ROWS][2], int32_t count, int row, const Part &part) {
    portion x = {{}, -INFINITE, 0, {}};
#pragma unroll 8
    for (int i = 0; i < count; i++)
        x.m = fmaxf(x.m, ml[i][row][0]);
#pragma unroll 4
    for (int i = 0; i < count; i++) {
        const float own = ml[i][row][0];
        const float weight = own == -INFINITE ? 0.0f : exp2_fast(own - x.m);
        const float4 four = *static_cast<const float4 *>(part(i));
        x.l = fmaf(ml[i][row][1], weight, x.l);
        x.sum[0] = fmaf(four.x, weight, x.sum[0]);
        x.sum[1] = fmaf(four.y, weight, x.sum[1]);
        x.sum[2] = fmaf(four.z, weight, x.sum[2]);
        x.sum[3] = fmaf(four.w, weight, x.sum[3]);
    }
    return x;
}

/* Of each row's fours, counted over all rows, a block of the cluster has `each`: sends the one at
 * `at` to whose it is. */
template <class Memory>
__forceinline__ void send_portion(Memory &s, int own, int32_t each, int32_t at, const portion &x) {
    const auto *from = reinterpret_cast<const two_words *>(&x);
    auto *to = reinterpret_cast<two_words *>(&s.got[own * each + at % each]);
    store_peer<CLUSTER>(to, at / each, from[0]);
    store_peer<CLUSTER>(to + 1, at / each, from[1]);
}

/* Writes this block's fours, once all have sent what they have of them. */
template <class Memory>
__forceinline__ void put_portions(const params &p, const work &w, const Memory &s, int own,
                                  int32_t each) {
    cluster_sync<CLUSTER>();
    if ((int32_t)threadIdx.x >= each)
        return;
    portion got[CLUSTER], x = {{}, -INFINITE, 0, {}};
#pragma unroll
    for (int i = 0; i < CLUSTER; i++) {
        got[i] = s.got[i * each + threadIdx.x];
        x.m = fmaxf(x.m, got[i].m);
    }
#pragma unroll
    for (int i = 0; i < CLUSTER; i++) {
        const float weight = got[i].m == -INFINITE ? 0.0f : exp2_fast(got[i].m - x.m);
        x.l = fmaf(got[i].l, weight, x.l);
#pragma unroll
        for (int c = 0; c < 4; c++)
            x.sum[c] = fmaf(got[i].sum[c], weight, x.sum[c]);
    }
    const int32_t at = own * each + (int32_t)threadIdx.x, column = at % FOURS * 4;
    put_out(finish(p, w, at / FOURS, x.m, x.l, column == 0), column, x.sum);
}

#endif
