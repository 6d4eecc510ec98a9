// SPDX-License-Identifier: Apache-2.0
//
// Products of few rows (cpu/microkernel.h): B is read as it lies, once, and converted in registers;
// its bandwidth is the limit. A sum is 16 chains over k that f32_sum adds at the end, so it does
// not depend on how many rows of A or B share the loads.

#include "cpu/microkernel_internal.h"
#include "cpu/simd.h"

/* Rows of A and of B that share their loads: four of A at most, and as many of B as leave the sums
 * in registers. B is taken four rows at a time, which stay in the first cache for all rows of A. */
enum { MT = 4, NT = 4 };
BOLIDE_INLINE int columns_for(int mt) {
    return BOLIDE_SIMD_512 || mt == 1 ? NT : mt == 2 ? 2 : 1;
}

BOLIDE_INLINE void dot_tile(int mt, int nt, const float *const *a, const void *const *b,
                            int64_t dtype, int64_t k, float *c, int64_t ldc) {
    f32x16 sum[MT][NT];
    BOLIDE_UNROLL
    for (int i = 0; i < mt; i++) {
        BOLIDE_UNROLL
        for (int j = 0; j < nt; j++)
            sum[i][j] = f32_zero();
    }
    int64_t p = 0;
    for (; p + BOLIDE_LANES <= k; p += BOLIDE_LANES) {
        f32x16 w[NT];
        BOLIDE_UNROLL
        for (int j = 0; j < nt; j++)
            w[j] = load16(dtype_at(b[j], dtype, p), dtype);
        BOLIDE_UNROLL
        for (int i = 0; i < mt; i++) {
            const f32x16 x = f32_load(a[i] + p);
            BOLIDE_UNROLL
            for (int j = 0; j < nt; j++)
                sum[i][j] = f32_fma(x, w[j], sum[i][j]);
        }
    }
    if (p < k) {
        BOLIDE_UNROLL
        for (int i = 0; i < mt; i++) {
            const f32x16 x = f32_load_n(a[i] + p, k - p);
            BOLIDE_UNROLL
            for (int j = 0; j < nt; j++)
                sum[i][j] = f32_fma(x, load16_n(dtype_at(b[j], dtype, p), dtype, k - p), sum[i][j]);
        }
    }
    BOLIDE_UNROLL
    for (int i = 0; i < mt; i++) {
        BOLIDE_UNROLL
        for (int j = 0; j < nt; j++)
            c[i * ldc + j] = f32_sum(sum[i][j]);
    }
}

/* mt rows of A against count rows of B, both constants. */
BOLIDE_INLINE void dot_strip(int mt, int count, const float *const *a, const void *const *b,
                             int64_t dtype, int64_t k, float *c, int64_t ldc) {
    const int nt = columns_for(mt) < count ? columns_for(mt) : count;
    for (int j = 0; j < count; j += nt)
        dot_tile(mt, nt, a, b + j, dtype, k, c + j, ldc);
}
BOLIDE_INLINE void dot_strips(int count, const float *const *a, int m, const void *const *b,
                              int64_t dtype, int64_t k, float *c, int64_t ldc) {
    int i = 0;
    for (; i + MT <= m; i += MT)
        dot_strip(MT, count, a + i, b, dtype, k, c + i * ldc, ldc);
    if (m - i == 3)
        dot_strip(3, count, a + i, b, dtype, k, c + i * ldc, ldc);
    else if (m - i == 2)
        dot_strip(2, count, a + i, b, dtype, k, c + i * ldc, ldc);
    else if (m - i == 1)
        dot_strip(1, count, a + i, b, dtype, k, c + i * ldc, ldc);
}
BOLIDE_INLINE void dot_any(const float *const *a, int m, const void *const *b, int64_t dtype, int n,
                           int64_t k, float *c, int64_t ldc) {
    int j = 0;
    for (; j + NT <= n; j += NT)
        dot_strips(NT, a, m, b + j, dtype, k, c + j, ldc);
    for (; j < n; j++)
        dot_strips(1, a, m, b + j, dtype, k, c + j, ldc);
}

void BOLIDE_ISA(dot_rows)(const float *const *a, int m, const void *const *b, int64_t dtype, int n,
                          int64_t k, float *c, int64_t ldc) {
#define DOT(d) dot_any(a, m, b, d, n, k, c, ldc)
    BOLIDE__EACH_DTYPE(dtype, DOT);
}

BOLIDE_INLINE void widen_any(float *out, const void *x, int64_t dtype, int64_t n) {
    int64_t i = 0;
    for (; i + BOLIDE_LANES <= n; i += BOLIDE_LANES)
        f32_store(out + i, load16(dtype_at(x, dtype, i), dtype));
    if (i < n)
        f32_store_n(out + i, load16_n(dtype_at(x, dtype, i), dtype, n - i), n - i);
}

void BOLIDE_ISA(widen_row)(float *out, const void *x, int64_t dtype, int64_t n) {
#define WIDEN(d) widen_any(out, x, d, n)
    BOLIDE__EACH_DTYPE(dtype, WIDEN);
}
