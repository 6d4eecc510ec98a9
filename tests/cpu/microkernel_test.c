// SPDX-License-Identifier: Apache-2.0
//
// The micro-kernels of every entry that the machine has, against sums in double: all edges of the
// tile, all dtypes, both orders of B, split k; nothing outside the panel or C is written; the bits
// do not depend on the other rows, nor on the set among those with FMA.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/microkernel_internal.h"
#include "cpu_test.h"

enum { K_MOST = 200, SIDE_MOST = 40, GUARD = 64 };

static float a_values[SIDE_MOST][K_MOST], b_values[SIDE_MOST][K_MOST];
static uint8_t a_raw[SIDE_MOST * K_MOST * 4], b_raw[SIDE_MOST * K_MOST * 4];
static const void *a_rows[SIDE_MOST], *b_rows[K_MOST];
static uint8_t a_panel[SIDE_MOST * 256 * 4 + GUARD], b_panel[SIDE_MOST * 256 * 4 + GUARD];
static uint32_t tile_hash;
static bolide__isa current;

/* Values that every dtype of the list holds exactly, so one reference serves all. */
static float small_value(void) {
    return (float)((int)(random_u32() % 31u) - 15) * 0.125f;
}

static uint32_t narrow(float x, int64_t dtype) {
    const uint32_t u = bits_of(x), sign = u >> 31, magnitude = u & 0x7FFFFFFFu;
    const int32_t exponent = (int32_t)(magnitude >> 23) - 127;
    const uint32_t fraction = magnitude & 0x7FFFFFu;
    if (dtype == BOLIDE_BF16)
        return u >> 16;
    if (magnitude == 0)
        return 0;
    if (dtype == BOLIDE_F16)
        return sign << 15 | (uint32_t)(exponent + 15) << 10 | fraction >> 13;
    if (dtype == BOLIDE_F8_E4M3FN)
        return sign << 7 | (uint32_t)(exponent + 7) << 3 | fraction >> 20;
    return sign << 7 | (uint32_t)(exponent + 15) << 2 | fraction >> 21;
}

static int bytes_of(int64_t dtype) {
    return dtype == BOLIDE_F32 ? 4 : dtype == BOLIDE_F16 || dtype == BOLIDE_BF16 ? 2 : 1;
}

static void put_value(uint8_t *p, float x, int64_t dtype) {
    const uint32_t code = dtype == BOLIDE_F32 ? bits_of(x) : narrow(x, dtype);
    memcpy(p, &code, (size_t)bytes_of(dtype));
}

/* e5m2 has two bits of fraction only. */
static float value_for(int64_t dtype) {
    const float x = small_value();
    return dtype == BOLIDE_F8_E5M2 ? (float)((int)x) * 0.25f : x;
}

/* Rows of A with k contiguous; of B likewise, or with n contiguous if k_major. */
static void make_operands(int m, int n, int k, int64_t dtype, int k_major) {
    const int bytes = bytes_of(dtype);
    for (int i = 0; i < m; i++) {
        a_rows[i] = a_raw + (size_t)i * K_MOST * 4;
        for (int p = 0; p < k; p++) {
            a_values[i][p] = value_for(dtype);
            put_value(a_raw + (size_t)i * K_MOST * 4 + p * bytes, a_values[i][p], dtype);
        }
    }
    for (int j = 0; j < n; j++) {
        for (int p = 0; p < k; p++) {
            const size_t at = k_major ? (size_t)p * SIDE_MOST * 4 + (size_t)(j * bytes)
                                      : (size_t)j * K_MOST * 4 + (size_t)(p * bytes);
            b_values[j][p] = value_for(dtype);
            put_value(b_raw + at, b_values[j][p], dtype);
        }
    }
    for (int r = 0; r < (k_major ? k : n); r++)
        b_rows[r] = b_raw + (size_t)r * (k_major ? SIDE_MOST : K_MOST) * 4;
}

static double product(int i, int j, int k) {
    double sum = 0;
    for (int p = 0; p < k; p++)
        sum += (double)a_values[i][p] * (double)b_values[j][p];
    return sum;
}

static int guard_whole(const uint8_t *panel, int64_t bytes) {
    for (int i = 0; i < GUARD; i++)
        if (panel[bytes + i] != 0xA5)
            return 0;
    return 1;
}

/* One tile, k in one piece or two. The sums are exact in f32, so equality is asked for. */
static int tile_ok(const bolide__gemm_kernel *g, int m, int n, int k, int64_t dtype, int k_major,
                   int split) {
    enum { LDC = SIDE_MOST + 3 };
    float c[SIDE_MOST * LDC];
    const int first = split ? k / 2 / g->k_group * g->k_group : k;
    int ok = 1;
    make_operands(m, n, k, dtype, k_major);
    for (int i = 0; i < SIDE_MOST * LDC; i++)
        c[i] = 1e30f;
    for (int from = 0; from < k; from = from < first ? first : k) {
        const int count = from < first ? first - from : k - from;
        const void *ar[SIDE_MOST], *br[K_MOST];
        const int64_t pa = bolide__panel_bytes(g, g->mr, count);
        const int64_t pb = bolide__panel_bytes(g, g->nr, count);
        memset(a_panel, 0xA5, sizeof a_panel);
        memset(b_panel, 0xA5, sizeof b_panel);
        for (int i = 0; i < m; i++)
            ar[i] = (const uint8_t *)a_rows[i] + from * bytes_of(dtype);
        for (int r = 0; r < (k_major ? count : n); r++)
            br[r] =
                k_major ? b_rows[from + r] : (const uint8_t *)b_rows[r] + from * bytes_of(dtype);
        g->pack_a(a_panel, ar, dtype, m, count);
        (k_major ? g->pack_b : g->pack_bt)(b_panel, br, dtype, n, count);
        ok &= guard_whole(a_panel, pa) && guard_whole(b_panel, pb);
        g->run(count, a_panel, b_panel, c, LDC, m, n, from > 0);
    }
    for (int i = 0; i < SIDE_MOST; i++)
        for (int j = 0; j < LDC; j++) {
            const int inside = i < m && j < n;
            ok &= c[i * LDC + j] == (inside ? (float)product(i, j, k) : 1e30f);
        }
    return ok;
}

static const int64_t dtypes[] = {BOLIDE_F32, BOLIDE_F16, BOLIDE_BF16, BOLIDE_F8_E4M3FN,
                                 BOLIDE_F8_E5M2};

static void test_tile(const bolide__gemm_kernel *g) {
    for (int d = 0; d < 5; d++) {
        int bad = 0, cases = 0;
        for (int m = 1; m <= g->mr; m++) {
            for (int n = 1; n <= g->nr; n += m % 5 + 1) {
                const int k = 1 + (int)(random_u32() % (unsigned)(K_MOST - 1));
                bad += !tile_ok(g, m, n, k, dtypes[d], cases % 2, cases % 3 == 0);
                cases++;
            }
        }
        for (int k = 1; k <= 70; k++)
            bad += !tile_ok(g, g->mr, g->nr, k, dtypes[d], k % 2, 0);
        expect(bad == 0, "%s %s tile, dtype %d: %d of %d cases", bolide__isa_name(current), g->name,
               d, bad, cases + 70);
    }
}

/* Rounding values: the order of the additions shows. */
static uint32_t hash_of(const float *x, int n, uint32_t h) {
    for (int i = 0; i < n; i++)
        h = (h ^ bits_of(x[i])) * 0x01000193u;
    return h;
}

static void fill_rounding(float *x, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((int32_t)(seed >> 33) - (1 << 30)) * 0x1p-30f;
    }
}

static void test_tile_bits(const bolide__gemm_kernel *g) {
    enum { M = 5, N = 11, K = 200 };
    static float a[M][K], b[N][K];
    float c[M * N], alone[N];
    const void *ar[M], *br[N];
    fill_rounding(&a[0][0], M * K, 1);
    fill_rounding(&b[0][0], N * K, 2);
    for (int i = 0; i < M; i++)
        ar[i] = a[i];
    for (int j = 0; j < N; j++)
        br[j] = b[j];
    /* Tiles may have fewer rows than M. */
    for (int i = 0; i < M; i += g->mr) {
        const int rows = M - i < g->mr ? M - i : g->mr;
        g->pack_a(a_panel, ar + i, BOLIDE_F32, rows, K);
        g->pack_bt(b_panel, br, BOLIDE_F32, N, K);
        g->run(K, a_panel, b_panel, c + i * N, N, rows, N, 0);
    }
    g->pack_a(a_panel, ar + 3, BOLIDE_F32, 1, K);
    g->run(K, a_panel, b_panel, alone, N, 1, N, 0);
    expect(memcmp(alone, c + 3 * N, sizeof alone) == 0, "%s %s: a row alone has other bits",
           bolide__isa_name(current), g->name);
    const uint32_t hash = hash_of(c, M * N, 1);
    if (current == BOLIDE__AVX2)
        tile_hash = hash;
    if (current > BOLIDE__AVX2 && !g->unit)
        expect(hash == tile_hash, "%s %s tile: other bits than avx2", bolide__isa_name(current),
               g->name);
}

/* ---- AMX without AMX ---------------------------------------------------------------------- */

#if defined(__x86_64__)

static float bf16_at(const uint8_t *panel, int64_t at) {
    return float_of((uint32_t)panel[2 * at] << 16 | (uint32_t)panel[2 * at + 1] << 24);
}

/* The product that the tile instructions make of the panels, slab by slab. */
static void amx_model(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int m, int n,
                      int accumulate) {
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            float sum = accumulate ? c[i * ldc + j] : 0.0f;
            for (int64_t p = 0; p < (k + 31) / 32 * 32; p++) {
                const int64_t slab = p / 32 * 1024, in = p % 32;
                sum += bf16_at(a, slab + i * 32 + in) *
                       bf16_at(b, slab + j / 16 * 512 + in / 2 * 32 + j % 16 * 2 + in % 2);
            }
            c[i * ldc + j] = sum;
        }
    }
}

/* On a chip without tiles at least the packing can be tested. */
static void test_amx_packing(void) {
    bolide__gemm_kernel g = bolide__gemm_amx_entry_avx512;
    g.run = amx_model;
    test_tile(&g);
}

#else

static void test_amx_packing(void) {
}

#endif

static void test_all(bolide__isa isa) {
    current = isa;
    for (int e = 0; bolide__gemm_entry(e); e++) {
        test_tile(bolide__gemm_entry(e));
        test_tile_bits(bolide__gemm_entry(e));
    }
    if (isa == BOLIDE__AVX512)
        test_amx_packing();
    expect(bolide__gemm_bf16(0) == bolide__gemm_f32(), "%s: no unit where none is allowed",
           bolide__isa_name(isa));
}

void test_microkernel(void) {
    on_each_isa(test_all);
}
