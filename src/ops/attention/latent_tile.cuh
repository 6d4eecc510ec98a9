// SPDX-License-Identifier: Apache-2.0
//
// Products of a tile of latents that lies in shared memory once and serves as keys and as values.
// Two warps share 16 rows of queries: each multiplies half of the columns of q and k, they hand
// their products to each other, and each multiplies the weights with half of the columns of the
// values. Included behind the constants of a kernel: elem, NT tiles of 8 keys, ROW bytes of a row,
// OWN columns of the values of a warp.

#ifndef BOLIDE_OPS_ATTENTION_LATENT_TILE_CUH
#define BOLIDE_OPS_ATTENTION_LATENT_TILE_CUH

/* First of the 16 rows of a warp. */
int pair_row() {
    return (int)threadIdx.x / 64 * 16;
}

/* The two warps of a pair have their own barrier. */
void meet_pair() {
    asm volatile("bar.sync %0, 64;" ::"r"((int)threadIdx.x / 64 + 1) : "memory");
}

/* x += products of the steps [from, to) of 16 columns. */
void multiply(const unsigned char *q, const unsigned char *k, int from, int to, float (&x)[NT][4]) {
    const int lane = threadIdx.x % 32;
    const unsigned char *a_row = q + (pair_row() + lane % 16) * ROW + lane / 16 * 16;
    const unsigned char *b_row = k + (lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2 * 16;
#pragma unroll 3
    for (int step = from; step < to; step++) {
        uint32_t a[4];
        load_matrices<false>(a, a_row + step * 32);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t b[4];
            load_matrices<false>(b, b_row + n * 8 * ROW + step * 32);
            mma_16x8x16<elem>(x[n], a, b[0], b[1]);
            mma_16x8x16<elem>(x[n + 1], a, b[2], b[3]);
        }
    }
}

/* o += weights times the values of the warp's columns. */
void add_values(float (&o)[OWN / 8][4], const float (&x)[NT][4], const unsigned char *v) {
    const int lane = threadIdx.x % 32, column = (int)threadIdx.x / 32 % 2 * OWN;
    const unsigned char *own = v + (lane % 16) * ROW + (column + lane / 16 * 8) * 2;
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = floats_to_halves<elem>(x[n + i / 2][i % 2 * 2], x[n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int d = 0; d < OWN; d += 16) {
            uint32_t b[4];
            load_matrices<true>(b, own + n * 8 * ROW + d * 2);
            mma_16x8x16<elem>(o[d / 8], a, b[0], b[1]);
            mma_16x8x16<elem>(o[d / 8 + 1], a, b[2], b[3]);
        }
    }
}

#endif
