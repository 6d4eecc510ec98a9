// SPDX-License-Identifier: Apache-2.0
//
// Products of a tile of latents that lies in shared memory once and serves as keys and as values.
// The TEAM warps that share 16 rows of queries each multiply a part of the columns of q and k, hand
// their products to each other, and each multiply the weights with a part of the columns of the
// values. Included behind the constants of a kernel: elem, TEAM, WARPS, NT tiles of 8 keys, ROW
// bytes of a row, OWN columns of the values of a warp.

#ifndef BOLIDE_OPS_ATTENTION_LATENT_TILE_CUH
#define BOLIDE_OPS_ATTENTION_LATENT_TILE_CUH

/* First of the 16 rows of a warp. */
int team_row() {
    return (int)threadIdx.x / (32 * TEAM) * 16;
}

/* The warps of a team have their own barrier. */
void meet_team() {
    asm volatile("bar.sync %0, %1;" ::"r"((int)threadIdx.x / (32 * TEAM) + 1), "n"(32 * TEAM)
                 : "memory");
}

/* Products of a part of the columns in each warp become those of all columns, with the same bits in
 * all warps of the team. What was handed over for the tile before has been read: the block has met
 * since. */
void join_products(float (&parts)[WARPS][NT * 4][32], float (&x)[NT][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            parts[warp][n * 4 + e][lane] = x[n][e];
    }
    meet_team();
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int at = n * 4 + e;
            if constexpr (TEAM == 2) {
                x[n][e] += parts[warp ^ 1][at][lane];
            } else {
                const int first = warp / TEAM * TEAM;
                x[n][e] = (parts[first][at][lane] + parts[first + 1][at][lane]) +
                          (parts[first + 2][at][lane] + parts[first + 3][at][lane]);
            }
        }
    }
}

/* x += products of the steps [from, to) of 16 columns. */
void multiply(const unsigned char *q, const unsigned char *k, int from, int to, float (&x)[NT][4]) {
    const int lane = threadIdx.x % 32;
    const unsigned char *a_row = q + (team_row() + lane % 16) * ROW + lane / 16 * 16;
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
    const int lane = threadIdx.x % 32, column = (int)threadIdx.x / 32 % TEAM * OWN;
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
