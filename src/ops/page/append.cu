// SPDX-License-Identifier: Apache-2.0
//
// Appending tokens to pages on the GPU: a thread moves PER vectors of one token, of K or of V; of
// many tokens first all K, then all V. The values are on their way while the chain of look-ups
// (request, range, page) is walked once for all of them, so bytes are the limit and not its
// latency.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/walk.cuh"
#include "ops/page/page_internal.h"

#if !defined(SPEC_FROM) || !defined(SPEC_TO) || !defined(SPEC_VEC) || !defined(SPEC_PER) ||        \
    !defined(SPEC_FEW)
#error "FROM TO: dtypes; VEC: elements a load; PER: loads a thread; FEW: tokens"
#endif
constexpr int64_t FROM = SPEC_FROM; /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int64_t TO = SPEC_TO;     /* FROM or fp8 */
constexpr int VEC = SPEC_VEC;       /* 1, 2, 4, 8, 16 */
constexpr int PER = SPEC_PER;       /* 1, 2 */
constexpr bool FEW = SPEC_FEW;      /* tokens: the time to the first byte counts */
constexpr bool EARLY = SPEC_FEW == 2;
constexpr int THREADS = 256;

using from_elem = element<FROM>::type;
using to_elem = element<TO>::type;
using from_vec = pack<from_elem, VEC>;

void put(to_elem *to, const from_vec &v) {
    if constexpr (FROM == TO) {
        store_to<!FEW>(to, v);
    } else {
        float x[VEC];
        unpack(v, x);
        store(to, pack_floats<to_elem>(x));
    }
}

/* bolide__page_of in 32 bits, which is what positions and lengths have. */
int64_t page_of(const bolide__page_table &t, int32_t r, int32_t position, uint32_t *slot) {
    if (r < 0 || r >= t.b || position < 0)
        return -1;
    const int64_t first = t.indptr[r], count = t.indptr[r + 1] - first;
    const int64_t length = count > 0 ? (count - 1) * t.page_size + t.last_page_len[r] : 0;
    const uint32_t size = (uint32_t)t.page_size;
    const int64_t at = first + (uint32_t)position / size;
    if (position >= length || at < 0 || at >= t.index_count)
        return -1;
    *slot = (uint32_t)position % size;
    const int64_t page = t.indices[at];
    return page >= 0 && page < t.pages ? page : -1;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_append(const __grid_constant__ bolide__append_params p) {
    release_next_kernel();
    const uint32_t key_vecs = (uint32_t)(p.h * p.side[0].d / VEC);
    const uint32_t all_vecs = key_vecs + (uint32_t)(p.h * p.side[1].d / VEC);
    const int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    place at = place_of(p.threads, item);
    at.column += blockIdx.y * key_vecs;
    const int64_t token = at.row;
    const uint32_t threads = (uint32_t)p.threads;
    const from_elem *from[PER];
    int64_t to[PER]; /* from a page's slot */
#pragma unroll
    for (int k = 0; k < PER; k++) {
        uint32_t i = at.column + k * threads;
        const bool key = i < key_vecs;
        const bolide__append_side &s = p.side[key ? 0 : 1];
        i -= key ? 0 : key_vecs;
        const uint32_t row = (uint32_t)s.d / VEC, h = i / row, c = (i - h * row) * VEC;
        from[k] =
            static_cast<const from_elem *>(s.source) + token * s.source_n + h * s.source_h + c;
        to[k] = h * s.cache_head + c;
    }
    const bool there = token < p.nnz;
    if (EARLY && there) {
        prefetch(p.batch_indices + token);
        prefetch(p.positions + token);
#pragma unroll
        for (int k = 0; k < PER; k++) {
            if (at.column + k * threads < all_vecs)
                prefetch(from[k]);
        }
    }
    wait_for_previous_kernel();
    from_vec v[PER];
#pragma unroll
    for (int k = 0; k < PER; k++) {
        if (there && at.column + k * threads < all_vecs)
            v[k] = load_once<from_vec>(from[k]);
    }
    if (!there)
        return;
    uint32_t slot;
    const int64_t page = page_of(p.table, p.batch_indices[token], p.positions[token], &slot);
    if (page < 0)
        return;
#pragma unroll
    for (int k = 0; k < PER; k++) {
        const uint32_t i = at.column + k * threads;
        const bolide__append_side &s = p.side[i < key_vecs ? 0 : 1];
        if (i < all_vecs)
            put(static_cast<to_elem *>(s.cache) + page * s.cache_page + slot * s.cache_slot + to[k],
                v[k]);
    }
}
