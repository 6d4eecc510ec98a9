// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of latents on Hopper do with 64 rows between products: two warpgroups compute,
// each has half of the columns of the values. Tile w of a pair has its weights from warpgroup w, in
// that one's registers and in shared memory for the other. Included behind the constants KEYS,
// HALF, BLOCK and OWN, the types `half` and `out_elem`, and a `shared_memory` that has k, tail and
// base.

#ifndef BOLIDE_OPS_ATTENTION_LATENT_SM90_ROWS_CUH
#define BOLIDE_OPS_ATTENTION_LATENT_SM90_ROWS_CUH

/* Keeps a row's weights below 2^SLACK: its base is raised only when logits exceed it by more. */
constexpr float SLACK = 8.0f;

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

/* Goes over to the base of warpgroup W's own tile, and asks for that tile's values to be added. */
template <int W>
void add_own_tile(shared_memory &s, rows_state &r, const float (&base)[2], const float (&sum)[2],
                  const uint32_t (&weights)[KEYS / 4], float (&o)[OWN / 2]) {
    change_base(r, base, o);
    r.l[0] += sum[0];
    r.l[1] += sum[1];
    const uint32_t v = values_of(s, W, W);
    wgmma_fence();
    add_own(o, weights, v);
    wgmma_commit();
}

/* Bases of the other warpgroup's tile. */
template <int W> void read_base(const shared_memory &s, float (&base)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++)
        base[i] = s.base[1 - W][row_of(i)];
}

/* Row i of a thread's two, from its warpgroup's first column on, where 16 bytes may be written at
 * once. A row without a key is 0 whatever its sums are. */
void write_row(out_elem *to, int i, bool is, float factor, const float (&o)[OWN / 2]) {
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < OWN / 32; j++) {
        pack<float, 2> x[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int e = 16 * j + 4 * c + 2 * i;
            x[c] = {factor == 0 ? 0.0f : o[e] * factor, factor == 0 ? 0.0f : o[e + 1] * factor};
        }
        if constexpr (sizeof(out_elem) == 2) {
            uint32_t y[4];
#pragma unroll
            for (int c = 0; c < 4; c++)
                y[c] = floats_to_halves<out_elem>(x[c].at[0], x[c].at[1]);
            exchange_words(y);
            if (is)
                store(to + 32 * j + 8 * lane, words<16>{y[0], y[1], y[2], y[3]});
        } else if (is) {
#pragma unroll
            for (int c = 0; c < 4; c++)
                store(to + 32 * j + 8 * c + 2 * lane, pack_floats<out_elem>(x[c].at));
        }
    }
}

#endif
