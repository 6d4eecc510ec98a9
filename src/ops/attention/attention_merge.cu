// SPDX-License-Identifier: Apache-2.0
//
// The merge behind attention.cu where tiles of few rows are in many pieces: every block that had a
// piece of a tile joins a part of its rows and columns. One block that joins all of them, as the
// other kernels do, is slower than a second launch. A lane reads a slot, so that all of a part are
// on their way at once; latency is the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "ops/attention/attention_internal.h"

#if !defined(SPEC_OT) || !defined(SPEC_D_VO)
#error "OT: dtype of out; D_VO: head size"
#endif
constexpr int64_t OT = SPEC_OT; /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_VO = SPEC_D_VO; /* multiples of 8 */
static_assert(D_VO % 8 == 0, "head size");
using out_elem = element<OT>::type;

constexpr int THREADS = 128, WARPS = THREADS / 32, COLUMNS = 8, KEYS = 64, FLAGS = 0;
constexpr int MERGED_AT_ONCE = 1, MERGED_ROWS = 1;
constexpr bool PAGED = false, MASKED = false, CAPPED = false, SPECIAL = false, RULED = false,
               CHUNKED = false, V_PAGES = false, VARIANT = false;
#include "ops/attention/attention_plain.cuh"

#include "ops/attention/attention_device.cuh"

/* Columns [column, column + COLUMNS) of a row, by a warp. */
void join(const params &p, const work &w, int32_t row, int32_t column) {
    const int lane = threadIdx.x % 32;
    const int64_t first = slot_row_of(p, w.merge_slot, row), step = p.h_kv * p.tile_rows;
    float m = -INFINITE, l = 0, sum[COLUMNS] = {};
#pragma unroll 2
    for (int32_t j = lane; j < w.merge_count; j += 32) {
        const int64_t at = first + j * step;
        const float *from = p.partial_o + at * D_VO + column;
        const pack<float, 2> own = load_written<pack<float, 2>>(p.partial_ml + 2 * at);
        const pack<float, 4> low = load_written<pack<float, 4>>(from);
        const pack<float, 4> high = load_written<pack<float, 4>>(from + 4);
        if (own.at[0] == -INFINITE)
            continue;
        const float top = fmaxf(m, own.at[0]);
        const float old = exp2_fast(m - top), weight = exp2_fast(own.at[0] - top);
        m = top;
        l = fmaf(l, old, own.at[1] * weight);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            sum[c] = fmaf(sum[c], old, low.at[c] * weight);
            sum[c + 4] = fmaf(sum[c + 4], old, high.at[c] * weight);
        }
    }
    const float top = lanes_max<32>(m), weight = m == -INFINITE ? 0.0f : exp2_fast(m - top);
    l = lanes_sum<32>(l * weight);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        sum[c] = lanes_sum<32>(sum[c] * weight);
    if (lane == 0)
        put_out(finish(p, w, row, top, l, column == 0), column, sum);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_attention_merge(const __grid_constant__ bolide__attention_params p) {
    constexpr int GROUPS = D_VO / COLUMNS;
    const bolide__attention_head &head = p.heads[blockIdx.x]; /* of the plan, and long there */
    const int32_t count = head.count;
    wait_for_previous_kernel();
    release_next_kernel();
    for (int32_t k = 0; k < count; k++) {
        const work &w = k == 0 ? head.first : p.works[head.begin + k];
        if (w.slot < 0)
            continue;
        const int32_t parts = packed_rows(p, w, (int32_t)p.tile_rows) * GROUPS;
        const int32_t piece = w.slot - w.merge_slot;
        const int32_t end = (int32_t)((int64_t)parts * (piece + 1) / w.merge_count);
        for (int32_t i = (int32_t)((int64_t)parts * piece / w.merge_count) + threadIdx.x / 32;
             i < end; i += WARPS)
            join(p, w, i / GROUPS, i % GROUPS * COLUMNS);
    }
}
