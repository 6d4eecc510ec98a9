// SPDX-License-Identifier: Apache-2.0
//
// Joins what the pieces of items have left in their slots, behind attention_latent.cu,
// attention_latent_sm90.cu and, where few requests are in many pieces, attention.cu. A thread has
// four columns of a row. Where a tile has few pieces, the teams of a block take a row each; where
// it has many, they share the pieces of one row and join what they have in shared memory. What
// limits it is the way to memory: a team asks for eight slots at a time, and there are as many
// blocks as there are rows.

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
constexpr int D_VO = SPEC_D_VO; /* multiples of 8 up to 512 */
constexpr int THREADS = 512, KEYS = 1, FLAGS = 0;
constexpr bool PAGED = true, MASKED = false, CAPPED = false, SPECIAL = false, RULED = false;
constexpr bool VARIANT = false, CHUNKED = false, V_PAGES = false;
constexpr int MERGED_AT_ONCE = 8, MERGED_ROWS = 1;
static_assert(D_VO % 8 == 0 && D_VO <= 512, "head size");

using q_elem = float;
using kv_elem = float;
using out_elem = element<OT>::type;

#include "ops/attention/attention_plain.cuh"

#include "ops/attention/attention_device.cuh"

constexpr int PARTS = D_VO / 4, TEAMS = smaller(THREADS / PARTS, 16);
constexpr int MANY = 8; /* pieces from which on the teams share a row */

/* Pieces first, first + step … of a row. */
merged add_pieces(const params &p, const work &w, int32_t row, int32_t column, int32_t first,
                  int32_t step) {
    const int64_t at = slot_row_of(p, w.merge_slot, row), slot = p.h_kv * p.tile_rows;
    merged x = {-INFINITE, 0, {}};
#pragma unroll 1
    for (int32_t j = first; j < w.merge_count; j += MERGED_AT_ONCE * step) {
        pack<float, 2> own[MERGED_AT_ONCE];
        pack<float, 4> part[MERGED_AT_ONCE];
#pragma unroll
        for (int k = 0; k < MERGED_AT_ONCE; k++) {
            const int64_t from = at + smaller(j + k * step, w.merge_count - 1) * slot;
            own[k] = load_written<pack<float, 2>>(p.partial_ml + 2 * from);
            part[k] = load_written<pack<float, 4>>(p.partial_o + from * D_VO + column);
        }
        add_slots(own, part, (w.merge_count - j + step - 1) / step, x);
    }
    return x;
}

/* What the teams have of a row becomes one; called by the first team, in the order of the teams. */
merged join(const merged (&teams)[TEAMS][PARTS], int part) {
    merged x = teams[0][part];
#pragma unroll
    for (int t = 1; t < TEAMS; t++) {
        const merged &y = teams[t][part];
        const float top = fmaxf(x.m, y.m), base = top == -INFINITE ? 0.0f : top;
        const float a = exp2_fast(x.m - base), b = exp2_fast(y.m - base);
        x.m = top;
        x.l = x.l * a + y.l * b;
#pragma unroll
        for (int c = 0; c < 4; c++)
            x.sum[c] = x.sum[c] * a + y.sum[c] * b;
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_attention_latent_merge(const __grid_constant__ bolide__attention_params p) {
    __shared__ merged teams[TEAMS][PARTS];
    /* The plan's part was there before the kernel ahead of this one. */
    const bool there = (int32_t)blockIdx.x < p.counts->merges;
    const work w = p.works[there ? p.arrivals[blockIdx.x] : 0];
    wait_for_previous_kernel();
    release_next_kernel();
    if (!there)
        return;
    const int team = (int)threadIdx.x / PARTS, part = (int)threadIdx.x % PARTS, column = part * 4;
    const int32_t rows = packed_rows(p, w, (int32_t)p.tile_rows);
    const bool shared = w.merge_count >= MANY;
    const int32_t each = shared ? 1 : TEAMS;
    for (int32_t first = (int32_t)blockIdx.z * each; first < rows;
         first += (int32_t)gridDim.z * each) {
        const int32_t row = first + (shared ? 0 : team);
        merged x = {-INFINITE, 0, {}};
        if (team < TEAMS && row < rows)
            x = add_pieces(p, w, row, column, shared ? team : 0, shared ? TEAMS : 1);
        if (shared) {
            __syncthreads(); /* what was left for the row before has been read */
            if (team < TEAMS)
                teams[team][part] = x;
            __syncthreads();
            if (team == 0)
                x = join(teams, part);
        }
        if (team < each && row < rows)
            put_out(finish(p, w, row, x.m, x.l, column == 0), column, x.sum);
    }
}
