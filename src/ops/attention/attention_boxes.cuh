// SPDX-License-Identifier: Apache-2.0
//
// The tiles of attention.cu by the copy engine: boxes of the rows of a page by 128 bytes, whose
// 16-byte pieces it exchanges as `spot` does. A thread has the page of one box of the next tile; a
// warp asks for the boxes that its lanes have, and a stage's barrier counts their bytes. What lies
// behind the last key comes along with the rest of its page, and is cleared from the values where
// that may be no number. Included by attention.cu only, behind attention_copy.cuh.

#ifndef BOLIDE_OPS_ATTENTION_BOXES_CUH
#define BOLIDE_OPS_ATTENTION_BOXES_CUH

constexpr int K_BOXES = K_PIECES / 8, V_BOXES = V_PIECES / 8; /* side by side in a row */
constexpr int SIDE = BOLIDE__BOX_ROW_BYTES * KEYS; /* bytes of a tile's boxes, one each */

int box_rows(const params &p) {
    return (int)smaller(p.page_size, (int64_t)BOLIDE__BOX_ROWS);
}

/* First key of this thread's box in a tile. */
int32_t box_key(const params &p) {
    return ((int32_t)threadIdx.x % 32 * WARPS + (int32_t)threadIdx.x / 32) * box_rows(p);
}

/* Page of this thread's box of a tile, −1 if it has none; past the first cache of the
 * multiprocessor, see EARLY. */
int32_t look_up_box(const params &p, const shared_memory &s, const cursor &c) {
    const int32_t own = box_key(p);
    int32_t page = -1;
    if (c.item < s.count && own < KEYS) {
        const work &w = s.works[c.item % WINDOW];
        if (c.key + own < w.kv_end)
            asm volatile("ld.global.cg.s32 %0, [%1];"
                         : "=r"(page)
                         : "l"(page_entry(p, w, c.key + own))
                         : "memory");
    }
    return page;
}

int32_t guess_box(const params &p, const shared_memory &s, const cursor &c) {
    const int32_t page = look_up_box(p, s, c);
    return page < 0 || page < p.pages ? larger(page, -1) : 0;
}

/* Calls f(bytes behind a stage's first box, map, column, row, page) for all boxes of a tile that
 * the warp's lanes have, by lane 0. */
template <class F>
void each_box(const bolide__attention_boxed &a, const cursor &c, int32_t page, const F &f) {
    constexpr int COLUMNS = BOLIDE__BOX_ROW_BYTES / KV_BYTES;
    for (uint32_t left = __ballot_sync(0xffffffffu, page >= 0); left; left &= left - 1) {
        const int from = __ffs(left) - 1;
        const int32_t at = __shfl_sync(0xffffffffu, page, from);
        const int32_t key = __shfl_sync(0xffffffffu, box_key(a.p), from);
        const int32_t row = (c.key + key) & (int32_t)(a.p.page_size - 1);
        if (threadIdx.x % 32 != 0)
            continue;
#pragma unroll
        for (int i = 0; i < K_BOXES; i++)
            f(key * BOLIDE__BOX_ROW_BYTES + i * SIDE, a.k, i * COLUMNS, row, at);
#pragma unroll
        for (int i = 0; i < V_BOXES; i++)
            f(key * BOLIDE__BOX_ROW_BYTES + (K_BOXES + i) * SIDE, a.v, i * COLUMNS, row, at);
    }
}

/* Asks for a tile whose boxes lie on these pages. */
void load_boxes(const bolide__attention_boxed &a, shared_memory &s, const cursor &c, int stage,
                int32_t page) {
    const uint64_t policy = stream_policy();
    const uint32_t boxes = (uint32_t)__popc(__ballot_sync(0xffffffffu, page >= 0));
    if (threadIdx.x % 32 == 0)
        barrier_expect(s.full[stage], boxes * (uint32_t)box_rows(a.p) * BOLIDE__BOX_ROW_BYTES *
                                          (K_BOXES + V_BOXES));
    each_box(a, c, page,
             [&](int to, const bolide__tensor_map &map, int32_t column, int32_t row, int32_t at) {
                 copy_box(s.stage[stage] + to, map, s.full[stage], column, row, (int32_t)blockIdx.y,
                          at, policy);
             });
}

/* To L2. */
void prefetch_boxes(const bolide__attention_boxed &a, const cursor &c, int32_t page) {
    each_box(
        a, c, page,
        [](int, const bolide__tensor_map &map, int32_t column, int32_t row, int32_t at) {
            asm volatile(
                "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(
                    &map),
                "r"(column), "r"(row), "r"((int32_t)blockIdx.y), "r"(at)
                : "memory");
        });
}

/* Values behind the last key of a tile that is there become 0, ahead of a barrier of the block. The
 * fence: the copy engine writes there next. */
void clear_values(unsigned char *v, int32_t count) {
    if (count >= KEYS)
        return;
    const int32_t first = larger(count, 0) * BOLIDE__BOX_ROW_BYTES;
    for (int32_t at = first + (int32_t)threadIdx.x * 16; at < SIDE; at += THREADS * 16) {
#pragma unroll
        for (int i = 0; i < V_BOXES; i++)
            *reinterpret_cast<uint4 *>(v + i * SIDE + at) = {};
    }
    fence_async_shared();
}

/* Waits for the tile in a stage. */
void wait_boxes(shared_memory &s, int stage, uint32_t &phases) {
    barrier_wait(s.full[stage], phases >> stage & 1);
    phases ^= 1u << stage;
}

/* The pages of the first tiles, looked up before the previous kernel has ended; ahead is the last
 * of them then. */
void find_boxes(const bolide__attention_boxed &a, shared_memory &s, cursor &ahead,
                beginning &first) {
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        first.at[i] = ahead;
        first.page[i] = guess_box(a.p, s, ahead);
        if (i < STAGES - 1)
            advance(a.p, s, ahead);
    }
#pragma unroll
    for (int i = 0; i < STAGES; i++)
        prefetch_boxes(a, first.at[i], first.page[i]);
}

/* Asks for all but the last of the first tiles, and once more for those whose pages were guessed
 * wrongly. */
void load_first_boxes(const bolide__attention_boxed &a, shared_memory &s, beginning &first,
                      uint32_t &phases) {
    bool wrong = false;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        load_boxes(a, s, first.at[i], i, first.page[i]);
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        const int32_t page = look_up_box(a.p, s, first.at[i]);
        wrong = wrong || page != first.page[i];
        first.page[i] = page;
    }
    if (!__syncthreads_or(wrong))
        return;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        wait_boxes(s, i, phases);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        load_boxes(a, s, first.at[i], i, first.page[i]);
}

#endif
