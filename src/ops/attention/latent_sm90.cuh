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

/* Keeps a row's weights below 2^SLACK: its base is raised only when logits exceed it by more. */
constexpr float SLACK = 8.0f;

/* The hardware's barriers. */
enum named { WEIGHTS = 1, BOTH = 3, OWN_GROUP = 4 };

/* First block of part `part` of tile w. */
constexpr int first_block(int w, int part) {
    return (part == 0 ? w : 1 - w) * HALF;
}

/* A thread has two rows of the 64, and of their sums the warpgroup's columns. */
struct rows_state {
    float m[2], l[2]; /* base; this thread's part of the sum of the weights of its own tiles */
};

int32_t row_of(int i) {
    return (int32_t)(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4) + 8 * i;
}

void leave(barrier &b) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(b);
}

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

/* Key of element i, apart from the tile's first and the thread's column. */
constexpr int key_of(int i) {
    return i / 4 * 8 + i % 2;
}

/* The largest logits of this thread's rows. */
void tops(const float (&x)[KEYS / 2], float (&top)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = x[2 * i];
#pragma unroll
        for (int e = 0; e < KEYS / 2; e++) {
            if (e / 2 % 2 == i)
                top[i] = fmaxf(top[i], x[e]);
        }
        top[i] = lanes_max<4>(top[i]);
    }
}

/* Goes over to other bases: what was summed so far is multiplied. */
void change_base(rows_state &r, const float (&base)[2], float (&o)[OWN / 2]) {
    if (!__any_sync(0xffffffffu, base[0] != r.m[0] || base[1] != r.m[1]))
        return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float weight = base[i] == -INFINITE ? 1.0f : exp2_fast(r.m[i] - base[i]);
        r.l[i] *= weight;
        r.m[i] = base[i];
#pragma unroll
        for (int e = 0; e < OWN / 2; e++) {
            if (e / 2 % 2 == i)
                o[e] *= weight;
        }
    }
}

/* Logits to weights at a base that is chosen here, packed; leaves both in shared memory. */
template <int W>
void soften(shared_memory &s, const rows_state &r, float (&x)[KEYS / 2], float (&base)[2],
            float (&sum)[2], uint32_t (&weights)[KEYS / 4]) {
    float top[2], zero[2];
    tops(x, top);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        base[i] = top[i] > r.m[i] + SLACK ? top[i] : r.m[i];
        zero[i] = base[i] == -INFINITE ? 0.0f : base[i];
        sum[i] = 0;
    }
#pragma unroll
    for (int e = 0; e < KEYS / 2; e++) {
        x[e] = exp2_fast(x[e] - zero[e / 2 % 2]);
        sum[e / 2 % 2] += x[e];
    }
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        weights[i] = floats_to_halves<half>(x[2 * i], x[2 * i + 1]);
    /* Word i: row 8 * (i % 2) of the two, columns 8 * (i / 2) and the thread's. A row's pieces of
     * 16 bytes are exchanged by its number; the compiler must not keep all addresses in registers.
     */
    uint32_t at =
        shared_address(s.tail[W]) + row_of(0) * 128 + (row_of(0) & 7) * 16 + threadIdx.x % 4 * 4;
    asm volatile("" : "+r"(at));
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"((at ^ i / 2 * 16) + i % 2 * 1024),
                     "r"(weights[i])
                     : "memory");
    if (threadIdx.x % 4 == 0) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            s.base[W][row_of(i)] = base[i];
    }
    /* Ordinary stores, read by wgmma of the other warpgroup behind a barrier. */
    fence_async_shared();
}

/* O += P V, the weights in registers. */
void add_own(float (&o)[OWN / 2], const uint32_t (&weights)[KEYS / 4], uint32_t v) {
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
        wgmma<half>(o, weights + 4 * i, descriptor_at(v, i * 2048));
}

/* The same, the weights in shared memory. */
void add_other(float (&o)[OWN / 2], uint32_t weights, uint32_t v) {
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
        wgmma_deep<half>(o, descriptor_at(weights, i * 32), descriptor_at(v, i * 2048));
}

/* The descriptor of a warpgroup's half of the values of a tile. */
uint32_t values_of(shared_memory &s, int group, int tile) {
    return uniform_half(column_descriptor(shared_address(s.k[tile][group * HALF]), BLOCK));
}

/* Bases of the other warpgroup's tile. */
template <int W> void read_base(const shared_memory &s, float (&base)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++)
        base[i] = s.base[1 - W][row_of(i)];
}

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
void own_tile_0(const C &c, int32_t tile, uint32_t phase, shared_memory &s, rows_state &r,
                float (&o)[OWN / 2]) {
    float x[KEYS / 2], base[2], sum[2];
    uint32_t weights[KEYS / 4];
    ask_logits<0>(s, phase, tile > 0, s.empty[1][1], x, o);
    finish_logits<0>(c, s, tile, x);
    soften<0>(s, r, x, base, sum, weights);
    named_arrive(WEIGHTS, 256);
    change_base(r, base, o);
    r.l[0] += sum[0];
    r.l[1] += sum[1];
    const uint32_t v = values_of(s, 0, 0);
    wgmma_fence();
    add_own(o, weights, v);
    wgmma_commit();
    wgmma_wait<0>(o);
    pin(weights);
    leave(s.empty[0][0]);
}

/* Asks for the values of the other warpgroup's tile to be added. */
template <int W>
void add_other_tile(shared_memory &s, uint32_t phase, rows_state &r, float (&o)[OWN / 2]) {
    float base[2];
    named_sync(WEIGHTS + 1 - W, 256);
    read_base<W>(s, base);
    change_base(r, base, o);
    wait_full(s.full[1 - W][1], phase);
    const uint32_t v = values_of(s, W, 1 - W);
    const uint32_t weights = uniform_half(row_descriptor(shared_address(s.tail[1 - W])));
    wgmma_fence();
    add_other(o, weights, v);
    wgmma_commit();
}

/* Tile 1 of a pair by warpgroup 1; meanwhile the values of tile 0 are added. */
template <class C>
void both_tiles_1(const C &c, int32_t tile, uint32_t phase, shared_memory &s, rows_state &r,
                  float (&o)[OWN / 2]) {
    float x[KEYS / 2], base[2], sum[2];
    uint32_t weights[KEYS / 4];
    ask_logits<1>(s, phase, tile > 1, s.empty[1][0], x, o);
    add_other_tile<1>(s, phase, r, o);
    finish_logits<1>(c, s, tile, x);
    soften<1>(s, r, x, base, sum, weights);
    named_arrive(WEIGHTS + 1, 256);
    wgmma_wait<0>(o);
    leave(s.empty[0][1]);
    change_base(r, base, o);
    r.l[0] += sum[0];
    r.l[1] += sum[1];
    const uint32_t v = values_of(s, 1, 1);
    wgmma_fence();
    add_own(o, weights, v);
    wgmma_commit();
}

/* Tiles [0, count), in the warpgroup's turn. The phase of a tile's barriers is that of its pair. */
template <int W, class C>
void run_tiles(const C &c, int32_t count, shared_memory &s, rows_state &r, float (&o)[OWN / 2]) {
    int32_t tile = W;
    if constexpr (W == 0) {
#pragma unroll 1
        for (; tile + 1 < count; tile += 2) {
            own_tile_0(c, tile, tile / 2 & 1, s, r, o);
            add_other_tile<0>(s, tile / 2 & 1, r, o);
        }
        if (tile < count)
            own_tile_0(c, tile, tile / 2 & 1, s, r, o);
    } else {
#pragma unroll 1
        for (; tile < count; tile += 2)
            both_tiles_1(c, tile, tile / 2 & 1, s, r, o);
        if (tile == count) {
            wgmma_wait<0>(o);
            add_other_tile<1>(s, (tile - 1) / 2 & 1, r, o);
        }
    }
    wgmma_wait<0>(o);
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
