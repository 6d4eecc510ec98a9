// SPDX-License-Identifier: Apache-2.0
//
// The warpgroup of attention_latent_sm90.cu that loads: Q of an item, then its tiles of latents in
// halves, as the warpgroups that compute give them back. Included by that file only, behind its
// constants and its shared memory.

#ifndef BOLIDE_OPS_ATTENTION_LATENT_SM90_LOAD_CUH
#define BOLIDE_OPS_ATTENTION_LATENT_SM90_LOAD_CUH

/* ---- loading ----------------------------------------------------------------------------------
 */

constexpr int BOXES = KEYS / BOX; /* of a tile; lane i asks for the i-th */

/* Page and first row of what a lane loads of a tile: a box, or one of the warp's 16 rows. */
struct asked {
    int32_t page, row; /* page −1: no key */
};

asked ask(const params &p, const work &w, int32_t tile, int32_t last) {
    const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const bool mine = lane < (GATHER ? 16 : BOXES) && tile <= last;
    const int32_t key = tile * KEYS + (GATHER ? warp * 16 + lane : lane * BOX);
    const int32_t page = mine ? look_up(p, w, key) : -1;
    return {page, page < 0 ? 0 : (int32_t)((uint32_t)key % (uint32_t)p.page_size)};
}

/* A part of a tile by boxes; called by one warp. */
template <int W, int PART>
void copy_part(const latent_params &a, shared_memory &s, const asked &at, uint64_t policy) {
    constexpr int COUNT = HALF + (PART == 1 ? TAILS : 0);
    const int32_t lane = threadIdx.x % 32;
    const int boxes = __popc(__ballot_sync(0xffffffffu, at.page >= 0));
    if (lane < COUNT)
        barrier_expect(s.full[W][PART * HALF + lane], (uint32_t)(boxes * BOX * 128));
    __syncwarp();
    if (at.page < 0)
        return;
#pragma unroll
    for (int j = PART * HALF; j < PART * HALF + HALF; j++) {
        const int b = block_of(W, j);
        copy_box(s.k[W][b] + lane * BOX * 128, a.ckv, s.full[W][j], 64 * b, at.row, 0, at.page,
                 policy);
    }
    if (PART == 1 && TAILS)
        copy_box(s.tail[W] + lane * BOX * 128, a.kpe, s.full[W][FULLS - 1], 0, at.row, 0, at.page,
                 policy);
}

/* 16 bytes of a row into a block. */
void copy_piece(unsigned char *block, int row, int piece, const half *from, bool there) {
    copy_16(block + row * 128 + ((piece ^ row) & 7) * 16, from, there ? 16 : 0);
}

/* The same row by row; called by four warps, each for 16 rows. Rows without a key become zeros. */
template <int W, int PART>
void gather_part(const latent_params &a, shared_memory &s, const asked &at) {
    constexpr int FIRST = first_block(W, PART), PIECES = HALF * 8, ROW_LANES = PIECES;
    static_assert(PIECES == 32 || PIECES == 16, "one row or two at a time");
    const params &p = a.p;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const half *ckv = static_cast<const half *>(p.k), *kpe = static_cast<const half *>(p.k_tail);
    const int piece = lane % ROW_LANES;
#pragma unroll 4
    for (int i = 0; i < 16; i += 32 / ROW_LANES) {
        const int own = i + lane / ROW_LANES;
        const int32_t page = __shfl_sync(0xffffffffu, at.page, own);
        const int32_t row = __shfl_sync(0xffffffffu, at.row, own);
        const half *from = page < 0 ? ckv : ckv + page * p.k_page + row * p.k_n;
        copy_piece(s.k[W][FIRST + piece / 8], warp * 16 + own, piece % 8,
                   from + FIRST * 64 + piece * 8, page >= 0);
    }
    if constexpr (PART == 1 && TAILS) {
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
            const int own = i + lane / 8;
            const int32_t page = __shfl_sync(0xffffffffu, at.page, own);
            const int32_t row = __shfl_sync(0xffffffffu, at.row, own);
            const half *from = page < 0 ? kpe : kpe + page * p.k_tail_page + row * p.k_tail_n;
            copy_piece(s.tail[W], warp * 16 + own, lane % 8, from + lane % 8 * 8, page >= 0);
        }
    }
    barrier_arrive_copied(s.full[W][PART]);
}

template <int W, int PART>
void load_part(const latent_params &a, shared_memory &s, const asked &at, uint32_t phase,
               uint64_t policy) {
    barrier_wait(s.empty[W][PART], phase);
    if constexpr (GATHER)
        gather_part<W, PART>(a, s, at);
    else
        copy_part<W, PART>(a, s, at, policy);
}

void load_queries(const latent_params &a, shared_memory &s, const work &w, uint32_t phase) {
    barrier_wait(s.empty_q, phase);
    if (threadIdx.x % 128 == 0) {
        const int32_t row = w.q_start * (int32_t)a.p.group + w.row + share_row();
        const uint64_t policy = keep_policy();
        barrier_expect(s.full_q, (BLOCKS + TAILS) * BLOCK);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            copy_box(s.q[b], a.q, s.full_q, 64 * b, row, 0, 0, policy);
        if (TAILS)
            copy_box(s.q[BLOCKS], a.q_tail, s.full_q, 0, row, 0, 0, policy);
    }
    __syncwarp();
}

void load_all(const latent_params &a, shared_memory &s) {
    const uint64_t policy = a.stream ? stream_policy() : keep_policy();
    course c = {7};
#pragma unroll 1
    for (int32_t k = 0; k < work_count(a.p); k++) {
        const work &w = work_of(a.p, k);
        const tiles t = tiles_of(w);
        if (t.last < t.first || share_end(a.p, w) <= share_row())
            continue;
        asked at[2] = {ask(a.p, w, t.first, t.last), ask(a.p, w, t.first + 1, t.last)};
        if (threadIdx.x / 32 % 4 == 0)
            load_queries(a, s, w, c.of(2));
        c.turn(2);
#pragma unroll 1
        for (int32_t tile = t.first; tile <= t.last; tile += 2) {
            const asked next[2] = {ask(a.p, w, tile + 2, t.last), ask(a.p, w, tile + 3, t.last)};
            load_part<0, 0>(a, s, at[0], c.of(0), policy);
            load_part<0, 1>(a, s, at[0], c.of(0), policy);
            c.turn(0);
            if (tile < t.last) {
                load_part<1, 0>(a, s, at[1], c.of(1), policy);
                load_part<1, 1>(a, s, at[1], c.of(1), policy);
                c.turn(1);
            }
            at[0] = next[0];
            at[1] = next[1];
        }
    }
}

#endif
