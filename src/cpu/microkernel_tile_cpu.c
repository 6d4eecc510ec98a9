// SPDX-License-Identifier: Apache-2.0
//
// The f32 tile and its packing (cpu/microkernel.h). mr x nr accumulators stay in registers while k
// runs; each step loads nr elements of the B panel once and spreads mr elements of the A panel, so
// that the FMA units are the limit. Each number of rows has its own instance, so a last tile of few
// rows costs what it computes. 12 x 32 fills the 32 registers of AVX-512 (24 sums, 2 of B, 1 of A),
// 6 x 16 the 16 of AVX2 (12, 2, 1).

#include "cpu/microkernel_internal.h"
#include "cpu/simd.h"

#if BOLIDE_SIMD_512
enum { MR = 12, NV = 2 };
#define ROW_LIST(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#elif defined(BOLIDE_ISA_AVX2)
enum { MR = 6, NV = 1 };
#define ROW_LIST(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
/* Four registers a vector of 16: two rows take 8 of 16. */
enum { MR = 2, NV = 1 };
#define ROW_LIST(X) X(1) X(2)
#endif
enum { NR = NV * BOLIDE_LANES };

/* ---- the tile ----------------------------------------------------------------------------- */

BOLIDE_INLINE void tile(int rows, int64_t k, const float *a, const float *b, float *c, int64_t ldc,
                        int n, int accumulate) {
    f32x16 sum[MR][NV];
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++) {
        BOLIDE_UNROLL
        for (int v = 0; v < NV; v++)
            sum[i][v] = accumulate
                            ? f32_load_n(c + i * ldc + v * BOLIDE_LANES, n - v * BOLIDE_LANES)
                            : f32_zero();
    }
    for (int64_t p = 0; p < k; p++) {
        f32x16 column[NV];
        BOLIDE_UNROLL
        for (int v = 0; v < NV; v++)
            column[v] = f32_load(b + v * BOLIDE_LANES);
        BOLIDE_UNROLL
        for (int i = 0; i < rows; i++) {
            const f32x16 x = f32_set(a[i]);
            BOLIDE_UNROLL
            for (int v = 0; v < NV; v++)
                sum[i][v] = f32_fma(x, column[v], sum[i][v]);
        }
        a += MR;
        b += NR;
    }
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++) {
        BOLIDE_UNROLL
        for (int v = 0; v < NV; v++)
            f32_store_n(c + i * ldc + v * BOLIDE_LANES, sum[i][v], n - v * BOLIDE_LANES);
    }
}

#define TILE_INSTANCE(rows)                                                                        \
    static void tile_##rows(int64_t k, const float *a, const float *b, float *c, int64_t ldc,      \
                            int n, int accumulate) {                                               \
        tile(rows, k, a, b, c, ldc, n, accumulate);                                                \
    }
ROW_LIST(TILE_INSTANCE)

static void run(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int m, int n,
                int accumulate) {
    static void (*const tiles[])(int64_t, const float *, const float *, float *, int64_t, int,
                                 int) = {
#define TILE_POINTER(rows) tile_##rows,
        ROW_LIST(TILE_POINTER)};
    tiles[m - 1](k, a, b, c, ldc, n, accumulate);
}

/* ---- packing ------------------------------------------------------------------------------ */

/* Sixteen rows of up to 16 elements from p on, as 16 columns; missing rows and elements are 0. */
BOLIDE_INLINE void load_columns(f32x16 r[16], const void *const *rows, int64_t dtype, int count,
                                int64_t p, int64_t left) {
    for (int i = 0; i < BOLIDE_LANES; i++) {
        if (i >= count)
            r[i] = f32_zero();
        else if (left >= BOLIDE_LANES)
            r[i] = load16(dtype_at(rows[i], dtype, p), dtype);
        else
            r[i] = load16_n(dtype_at(rows[i], dtype, p), dtype, left);
    }
    f32_transpose16(r);
}

/* Row `p` of a panel with k rows of `stride`. Stores of 16 lanes run into the next rows, which are
 * written after; at the end of the panel they are cut. */
BOLIDE_INLINE void store_column(float *panel, int stride, int width, int64_t p, int64_t k,
                                f32x16 r) {
    float *to = panel + p * stride;
    const int64_t room = (k - p) * stride;
    if (width == BOLIDE_LANES || room >= BOLIDE_LANES)
        f32_store(to, r);
    else
        f32_store_n(to, r, room);
}

/* Writes `width` columns into a panel. Two bf16 travel as one word, which halves the transposing.
 */
BOLIDE_INLINE void pack_columns(float *panel, int stride, int width, const void *const *rows,
                                int64_t dtype, int count, int64_t k) {
    f32x16 r[BOLIDE_LANES];
    int64_t p = 0;
    for (; dtype == BOLIDE_BF16 && p + 2 * BOLIDE_LANES <= k; p += 2 * BOLIDE_LANES) {
        for (int i = 0; i < BOLIDE_LANES; i++)
            r[i] = i < count ? i32_as_f32(i32_load(dtype_at(rows[i], dtype, p))) : f32_zero();
        f32_transpose16(r);
        for (int s = 0; s < BOLIDE_LANES; s++) {
            const i32x16 word = f32_bits(r[s]);
            const i32x16 odd = i32_and(word, i32_set((int32_t)0xFFFF0000));
            store_column(panel, stride, width, p + 2 * s, k, i32_as_f32(i32_shl(word, 16)));
            store_column(panel, stride, width, p + 2 * s + 1, k, i32_as_f32(odd));
        }
    }
    for (; p < k; p += BOLIDE_LANES) {
        const int64_t steps = k - p < BOLIDE_LANES ? k - p : BOLIDE_LANES;
        load_columns(r, rows, dtype, count, p, k - p);
        for (int64_t s = 0; s < steps; s++)
            store_column(panel, stride, width, p + s, k, r[s]);
    }
}

BOLIDE_INLINE void pack_rows(float *panel, const void *const *rows, int64_t dtype, int n,
                             int64_t k) {
    for (int64_t p = 0; p < k; p++) {
        for (int v = 0; v < NV; v++) {
            const int at = v * BOLIDE_LANES;
            const void *from = dtype_at(rows[p], dtype, n > at ? at : 0);
            f32_store(panel + p * NR + at,
                      n - at >= BOLIDE_LANES ? load16(from, dtype) : load16_n(from, dtype, n - at));
        }
    }
}

static void pack_a(void *panel, const void *const *rows, int64_t dtype, int m, int64_t k) {
#define PACK_A(d) pack_columns(panel, MR, MR, rows, d, m, k)
    BOLIDE__EACH_DTYPE(dtype, PACK_A);
}
static void pack_bt(void *panel, const void *const *rows, int64_t dtype, int n, int64_t k) {
    for (int at = 0; at < NR; at += BOLIDE_LANES) {
        float *to = (float *)panel + at;
        const int count = n < at ? 0 : n - at;
        const void *const *from = rows + (n < at ? 0 : at);
#define PACK_BT(d) pack_columns(to, NR, BOLIDE_LANES, from, d, count, k)
        BOLIDE__EACH_DTYPE(dtype, PACK_BT);
    }
}
static void pack_b(void *panel, const void *const *rows, int64_t dtype, int n, int64_t k) {
#define PACK_B(d) pack_rows(panel, rows, d, n, k)
    BOLIDE__EACH_DTYPE(dtype, PACK_B);
}

const bolide__gemm_kernel BOLIDE_ISA(gemm_f32_entry) = {
    .name = "f32",
    .mr = MR,
    .nr = NR,
    .k_group = 1,
    .elem_bytes = 4,
    .pack_a = pack_a,
    .pack_bt = pack_bt,
    .pack_b = pack_b,
    .run = run,
};
