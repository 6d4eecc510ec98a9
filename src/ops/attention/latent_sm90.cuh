// SPDX-License-Identifier: Apache-2.0
//
// Two warpgroups that compute attention of 64 rows over tiles of 64 latents by wgmma. A tile lies
// in shared memory once and serves as keys and as values. The sums of 64 rows by 512 columns do not
// fit one warpgroup: each holds half of the columns. Tiles come in pairs; warpgroup w computes the
// weights of tile w of a pair, multiplies them from its registers with its half of that tile's
// values, and leaves them in shared memory for the other, which multiplies them with the other
// half. The weights of tile 1 have the base of tile 0 or a higher one, so both warpgroups add tile
// 0, then tile 1, at the same bases:
//
//     warpgroup 0   |QK 0     | soften |P0 V0 left |        |P1 V1 left |QK 0' ...
//     warpgroup 1        |QK 1     |          |P0 V0 right| soften |P1 V1 right|
//
// Half a tile is free as soon as its values are added. The weights take the place of the rotary
// part of their tile's keys. Included behind the constants D_VO and TAILS (blocks of 64 columns
// behind the values), the type `half`, and a function
//
//     template <int W> void finish_logits(const context &, const shared_memory &, int32_t tile,
//                                         float (&x)[KEYS / 2]);
//
// that makes logits in powers of two of a tile's products.

#ifndef BOLIDE_OPS_ATTENTION_LATENT_SM90_CUH
#define BOLIDE_OPS_ATTENTION_LATENT_SM90_CUH

/* The hardware's barriers. */
enum named { WEIGHTS = 1, BOTH = 3, OWN_GROUP = 4 };

#include "ops/attention/latent_sm90_rows.cuh"

/* What single threads have copied is not yet seen by wgmma, which reads through another path: the
 * fence lets it. */
void wait_full(barrier &full, uint32_t phase) {
    barrier_wait(full, phase);
    fence_async_shared();
}

/* x = or += Q K^T of some blocks of columns. */
template <int FROM, int COUNT, bool FIRST>
void multiply(float (&x)[KEYS / 2], uint32_t q, uint32_t k) {
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++) {
        const int at = (FROM + i / 4) * BLOCK + i % 4 * 32;
        wgmma<half>(x, descriptor_at(q, at), descriptor_at(k, at), !FIRST || i > 0);
    }
}

template <int W, int PART>
void multiply_part(float (&x)[KEYS / 2], uint32_t q, uint32_t k, uint32_t tail) {
    multiply<first_block(W, PART), HALF, PART == 0>(x, q, k);
    if constexpr (PART == 1 && TAILS) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            wgmma<half>(x, descriptor_at(q, BLOCKS * BLOCK + i * 32), descriptor_at(tail, i * 32),
                        1);
    }
}

/* Phases of the barriers of both places of tiles, and of Q, as one who waits for them counts. */
struct course {
    uint32_t phases; /* bit w: of tiles in place w; bit 2: of Q */

    __forceinline__ uint32_t of(int i) const {
        return phases >> i & 1;
    }
    __forceinline__ void turn(int i) {
        phases ^= 1u << i;
    }
};

/* Products of a tile. The values added before are there first; if there were any, `freed`, half of
 * a tile for which the loader waits, is given back. */
template <int W>
void ask_logits(shared_memory &s, uint32_t phase, bool adding, barrier &freed, float (&x)[KEYS / 2],
                float (&o)[OWN / 2]) {
    wgmma_wait<0>(o);
    if (adding)
        leave(freed);
    const uint32_t q = uniform_half(row_descriptor(shared_address(s.q)));
    const uint32_t k = uniform_half(row_descriptor(shared_address(s.k[W])));
    const uint32_t tail = uniform_half(row_descriptor(shared_address(s.tail[W])));
    wait_full(s.full[W][0], phase);
    wgmma_fence();
    multiply_part<W, 0>(x, q, k, tail);
    wait_full(s.full[W][1], phase);
    wgmma_fence(); /* so the compiler wants it behind a loop */
    multiply_part<W, 1>(x, q, k, tail);
    wgmma_commit();
    wgmma_wait<0>(x);
}

/* Tile 0 of a pair by warpgroup 0: its weights, and its values with them. */
template <class C>
void own_tile_0(const C &c, int32_t tile, int32_t count, shared_memory &s, course &at,
                rows_state &r, float (&o)[OWN / 2]) {
    float x[KEYS / 2], base[2], sum[2];
    uint32_t weights[KEYS / 4];
    ask_logits<0>(s, at.of(0), tile > 0, s.empty[1][1], x, o);
    at.turn(0);
    if (tile + 2 >= count)
        leave(s.empty_q);
    finish_logits<0>(c, s, tile, x);
    soften<0>(s, r, x, base, sum, weights);
    named_arrive(WEIGHTS, 256);
    add_own_tile<0>(s, r, base, sum, weights, o);
    wgmma_wait<0>(o);
    pin(weights);
    leave(s.empty[0][0]);
}

/* Asks for the values of the other warpgroup's tile to be added. */
template <int W>
void add_other_tile(shared_memory &s, course &at, rows_state &r, float (&o)[OWN / 2]) {
    float base[2];
    named_sync(WEIGHTS + 1 - W, 256);
    read_base<W>(s, base);
    change_base(r, base, o);
    wait_full(s.full[1 - W][1], at.of(1 - W));
    at.turn(1 - W);
    const uint32_t v = values_of(s, W, 1 - W);
    const uint32_t weights = uniform_half(row_descriptor(shared_address(s.tail[1 - W])));
    wgmma_fence();
    add_other(o, weights, v);
    wgmma_commit();
}

/* Tile 1 of a pair by warpgroup 1; meanwhile the values of tile 0 are added. */
template <class C>
void both_tiles_1(const C &c, int32_t tile, int32_t count, shared_memory &s, course &at,
                  rows_state &r, float (&o)[OWN / 2]) {
    float x[KEYS / 2], base[2], sum[2];
    uint32_t weights[KEYS / 4];
    ask_logits<1>(s, at.of(1), tile > 1, s.empty[1][0], x, o);
    at.turn(1);
    if (tile + 2 >= count)
        leave(s.empty_q);
    add_other_tile<1>(s, at, r, o);
    finish_logits<1>(c, s, tile, x);
    soften<1>(s, r, x, base, sum, weights);
    named_arrive(WEIGHTS + 1, 256);
    wgmma_wait<0>(o);
    leave(s.empty[0][1]);
    add_own_tile<1>(s, r, base, sum, weights, o);
}

/* Tiles [0, count), at least one, in the warpgroup's turn. All of them, and Q, are given back. */
template <int W, class C>
void run_tiles(const C &c, int32_t count, shared_memory &s, course &at, rows_state &r,
               float (&o)[OWN / 2]) {
    int32_t tile = W;
    if constexpr (W == 0) {
#pragma unroll 1
        for (; tile + 1 < count; tile += 2) {
            own_tile_0(c, tile, count, s, at, r, o);
            add_other_tile<0>(s, at, r, o);
        }
        if (tile < count)
            own_tile_0(c, tile, count, s, at, r, o);
    } else {
        if (count == 1)
            leave(s.empty_q);
#pragma unroll 1
        for (; tile < count; tile += 2)
            both_tiles_1(c, tile, count, s, at, r, o);
        if (tile == count) {
            wgmma_wait<0>(o);
            if (tile > 1)
                leave(s.empty[1][0]);
            add_other_tile<1>(s, at, r, o);
        }
    }
    wgmma_wait<0>(o);
    if constexpr (W == 0) {
        if (tile == count)
            leave(s.empty[1][1]);
    } else {
        leave(s.empty[tile == count ? 0 : 1][tile == count ? 1 : 0]);
    }
}

/* The sums of weights of both warpgroups; they are at the same bases. */
template <int W> void join_sums(shared_memory &s, const rows_state &r, float (&l)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        l[i] = lanes_sum<4>(r.l[i]);
        if (threadIdx.x % 4 == 0)
            s.sum[W][row_of(i)] = l[i];
    }
    named_sync(BOTH, 256);
#pragma unroll
    for (int i = 0; i < 2; i++)
        l[i] = s.sum[0][row_of(i)] + s.sum[1][row_of(i)];
}

#endif
