// SPDX-License-Identifier: Apache-2.0
//
// Joins what the pieces of latents' items have left in their slots, behind attention_latent.cu and
// attention_latent_sm90.cu. A unit is 128 columns of a row, and a thread has four of them. Where a
// tile has many units for its blocks, each warp takes one; where it has few, a team of warps shares
// the pieces of one and joins what they have in shared memory. What limits it is the way to memory,
// so that a warp asks for eight slots at a time.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/attention_internal.h"

#if !defined(SPEC_OT) || !defined(SPEC_D_VO)
#error "OT: dtype of the result; D_VO: its size"
#endif
constexpr int64_t OT = SPEC_OT; /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_VO = SPEC_D_VO; /* multiples of 32 up to 512 */
constexpr int THREADS = 512, KEYS = 1;
constexpr bool PAGED = true, MASKED = false, CAPPED = false, SPECIAL = false, RULED = false;
constexpr bool VARIANT = false, CHUNKED = false, V_PAGES = false;
constexpr int MERGED_AT_ONCE = 8, MERGED_ROWS = 1;
static_assert(D_VO % 32 == 0 && D_VO <= 512, "head size");

using q_elem = float;
using kv_elem = float;
using out_elem = element<OT>::type;

#include "ops/attention/attention_plain.cuh"

#include "ops/attention/attention_device.cuh"

constexpr int WARPS = THREADS / 32, COLUMNS = 4 * 32, PARTS = (D_VO + COLUMNS - 1) / COLUMNS;

/* Pieces first, first + step … of four columns of a row. */
merged add_pieces(const params &p, const work &w, int32_t row, int32_t column, int32_t first,
                  int32_t step) {
    const int64_t at = slot_row_of(p, w.merge_slot, row);
    merged x = {-INFINITE, 0, {}};
#pragma unroll 1
    for (int32_t j = first; j < w.merge_count; j += MERGED_AT_ONCE * step) {
        pack<float, 2> own[MERGED_AT_ONCE];
        pack<float, 4> part[MERGED_AT_ONCE];
#pragma unroll
        for (int k = 0; k < MERGED_AT_ONCE; k++) {
            const int64_t from = at + smaller(j + k * step, w.merge_count - 1) * p.tile_rows;
            own[k] = load_written<pack<float, 2>>(p.partial_ml + 2 * from);
            part[k] = load_written<pack<float, 4>>(p.partial_o + from * D_VO + column);
        }
        add_slots(own, part, (w.merge_count - j + step - 1) / step, x);
    }
    return x;
}

/* Warps of a team: so many that the blocks of a tile are done in one round. */
int team_size(int32_t units) {
    int team = WARPS;
    while (team > 1 && (int64_t)gridDim.z * (WARPS / team) < units)
        team /= 2;
    return team;
}

/* What the warps of a team have becomes one; called by its first warp, in the order of the warps.
 */
merged join(const merged (&warps)[WARPS][32], int first, int team, int lane) {
    merged x = {-INFINITE, 0, {}};
    for (int t = first; t < first + team; t++)
        x.m = fmaxf(x.m, warps[t][lane].m);
    const float base = x.m == -INFINITE ? 0.0f : x.m;
    for (int t = first; t < first + team; t++) {
        const merged y = warps[t][lane];
        const float weight = exp2_fast(y.m - base);
        x.l = fmaf(y.l, weight, x.l);
#pragma unroll
        for (int c = 0; c < 4; c++)
            x.sum[c] = fmaf(y.sum[c], weight, x.sum[c]);
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_attention_latent_merge(const __grid_constant__ bolide__attention_params p) {
    __shared__ merged warps[WARPS][32];
    wait_for_previous_kernel();
    release_next_kernel();
    if ((int32_t)blockIdx.x >= p.counts->merges)
        return;
    const work &w = p.works[p.arrivals[blockIdx.x]];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int32_t units = packed_rows(p, w, (int32_t)p.tile_rows) * PARTS;
    const int team = team_size(units), own = warp % team, each = WARPS / team;
    for (int32_t first = (int32_t)blockIdx.z * each; first < units;
         first += (int32_t)gridDim.z * each) {
        const int32_t unit = first + warp / team, row = unit / PARTS;
        const int32_t column = unit % PARTS * COLUMNS + lane * 4;
        const bool mine = unit < units && column < D_VO;
        merged x = {-INFINITE, 0, {}};
        if (mine)
            x = add_pieces(p, w, row, column, own, team);
        if (team > 1) {
            __syncthreads(); /* what was left for the units before has been read */
            warps[warp][lane] = x;
            __syncthreads();
            if (own == 0)
                x = join(warps, warp, team, lane);
        }
        if (mine && own == 0)
            put_out(finish(p, w, row, x.m, x.l, column == 0), column, x.sum);
    }
}
