// SPDX-License-Identifier: Apache-2.0
//
// Appending many tokens to pages from 9.0 on, where a token's heads lie side by side in the source
// and in the cache: the copy engine takes whole rows through shared memory, so that a warp has tens
// of kilobytes on their way without a register for them. A lane has a token's row of K or of V. It
// looks up the page while the row is under way.
//
//     shared memory: TOKENS rows of K · TOKENS rows of V

#include "cuda/device/base.cuh"
#include "cuda/device/bulk.cuh"
#include "cuda/device/load.cuh"
#include "ops/page/page_internal.h"

#if !defined(SPEC_TOKENS)
#error "TOKENS: of a block"
#endif
constexpr int TOKENS = SPEC_TOKENS; /* 1, 2, 4, 8, 16 */
static_assert(TOKENS >= 1 && TOKENS <= 16, "two rows a token for 32 lanes");

extern __shared__ __align__(128) uint8_t rows[];

extern "C" __global__ void __launch_bounds__(32)
    bolide_append_rows(const __grid_constant__ bolide__append_params p) {
    __shared__ barrier arrival;
    release_next_kernel();
    const int lane = threadIdx.x, number = lane % TOKENS, side = lane / TOKENS;
    const int64_t first = (int64_t)blockIdx.x * TOKENS, token = first + number;
    const bool there = side < 2 && token < p.nnz;
    const bolide__append_side &s = p.side[side == 1];
    const uint32_t bytes = (uint32_t)p.row_bytes[side == 1], key_bytes = (uint32_t)p.row_bytes[0];
    const int64_t elem = p.elem_bytes;
    const uint8_t *from = static_cast<const uint8_t *>(s.source) + token * s.source_n * elem;
    uint8_t *room = rows + (side == 1 ? TOKENS * key_bytes : 0) + number * bytes;
    if (lane == 0) {
        barrier_init(arrival, 1);
        fence_barrier_init();
    }
    if (there && bytes && begins_early())
        bulk_prefetch(from, bytes);
    wait_for_previous_kernel();
    if (lane == 0)
        barrier_expect(arrival, (uint32_t)smaller<int64_t>(TOKENS, p.nnz - first) *
                                    (key_bytes + (uint32_t)p.row_bytes[1]));
    __syncwarp();
    if (there && bytes)
        bulk_load(room, from, bytes, arrival);
    int64_t page = -1, slot = 0;
    if (there)
        page = bolide__page_of(&p.table, p.batch_indices[token], p.positions[token], &slot);
    barrier_wait(arrival, 0);
    if (page >= 0 && bytes) {
        uint8_t *cache = static_cast<uint8_t *>(s.cache);
        bulk_store(cache + (page * s.cache_page + slot * s.cache_slot) * elem, room, bytes);
        bulk_stores_read();
    }
}
