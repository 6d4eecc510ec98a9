// SPDX-License-Identifier: Apache-2.0
//
// The micro-kernels of every entry that the machine has, against sums in double: all edges of the
// tile, all dtypes, both orders of B, split k; nothing outside the panel or C is written; the bits
// do not depend on the other rows, nor on the set among those with FMA.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/microkernel.h"
#include "cpu_test.h"

enum { K_MOST = 200, SIDE_MOST = 40, GUARD = 64 };

static float a_values[SIDE_MOST][K_MOST], b_values[SIDE_MOST][K_MOST];
static uint8_t a_raw[SIDE_MOST * K_MOST * 4], b_raw[SIDE_MOST * K_MOST * 4];
static const void *a_rows[SIDE_MOST], *b_rows[K_MOST];
static uint8_t a_panel[SIDE_MOST * 256 * 4 + GUARD], b_panel[SIDE_MOST * 256 * 4 + GUARD];
static uint32_t dot_hash, tile_hash, quant_hash;
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

/* ---- dot ---------------------------------------------------------------------------------- */

static int dot_ok(int m, int n, int k, int64_t dtype) {
    enum { LDC = SIDE_MOST };
    const float *ar[SIDE_MOST];
    float c[SIDE_MOST * LDC];
    int ok = 1;
    make_operands(m, n, k, dtype, 0);
    for (int i = 0; i < m; i++)
        ar[i] = a_values[i];
    for (int i = 0; i < SIDE_MOST * LDC; i++)
        c[i] = 1e30f;
    bolide__dot()(ar, m, b_rows, dtype, n, k, c, LDC);
    for (int i = 0; i < SIDE_MOST; i++)
        for (int j = 0; j < LDC; j++)
            ok &= c[i * LDC + j] == (i < m && j < n ? (float)product(i, j, k) : 1e30f);
    float wide[K_MOST + 1];
    wide[k] = 1e30f;
    bolide__widen()(wide, b_rows[0], dtype, k);
    return ok && memcmp(wide, b_values[0], (size_t)k * 4) == 0 && wide[k] == 1e30f;
}

static void test_dot(void) {
    for (int d = 0; d < 5; d++) {
        int bad = 0;
        for (int m = 1; m <= 9; m++)
            for (int n = 1; n <= 9; n++)
                bad += !dot_ok(m, n, 1 + (int)(random_u32() % (unsigned)(K_MOST - 1)), dtypes[d]);
        expect(bad == 0, "%s dot, dtype %d: %d cases", bolide__isa_name(current), d, bad);
    }
    static float a[7][K_MOST], b[6][K_MOST];
    float c[42], alone[6];
    const float *ar[7];
    const void *br[6];
    fill_rounding(&a[0][0], 7 * K_MOST, 3);
    fill_rounding(&b[0][0], 6 * K_MOST, 4);
    for (int i = 0; i < 7; i++)
        ar[i] = a[i];
    for (int j = 0; j < 6; j++)
        br[j] = b[j];
    bolide__dot()(ar, 7, br, BOLIDE_F32, 6, K_MOST - 3, c, 6);
    for (int i = 0; i < 7; i++) {
        bolide__dot()(ar + i, 1, br, BOLIDE_F32, 6, K_MOST - 3, alone, 6);
        expect(memcmp(alone, c + 6 * i, sizeof alone) == 0, "%s dot: row %d alone has other bits",
               bolide__isa_name(current), i);
    }
    const uint32_t hash = hash_of(c, 42, 1);
    if (current == BOLIDE__AVX2)
        dot_hash = hash;
    if (current > BOLIDE__AVX2)
        expect(hash == dot_hash, "%s dot: other bits than avx2", bolide__isa_name(current));
}

/* ---- quant -------------------------------------------------------------------------------- */

enum { BLOCKS = 5, ROWS = 9, COLUMNS = 37, QK = BLOCKS * BOLIDE__BLOCK };

static uint8_t weights[COLUMNS][BLOCKS * 34];
static double exact[COLUMNS][QK];

static double f16_value(uint32_t h) {
    const double magnitude = (h & 0x7C00u)
                                 ? ldexp((double)((h & 0x3FFu) | 0x400u), (int)(h >> 10 & 31u) - 25)
                                 : ldexp((double)(h & 0x3FFu), -24);
    return h >> 15 ? -magnitude : magnitude;
}

/* Random blocks, extreme bytes among them, with their values in double. */
static void make_weights(bolide__block_format format) {
    const int64_t bytes = bolide__block_bytes(format);
    uint64_t s = 99 + (uint64_t)format;
    for (int j = 0; j < COLUMNS; j++) {
        for (int64_t i = 0; i < BLOCKS * bytes; i++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            weights[j][i] = (uint8_t)(s >> 56);
            if (j == 1)
                weights[j][i] = s >> 40 & 1 ? 0x80 : 0x7F;
        }
        for (int p = 0; p < BLOCKS; p++) {
            uint8_t *w = weights[j] + p * bytes;
            w[1] = (uint8_t)((w[1] & 0x83) | 0x20); /* about 2^-7 */
            if (format == BOLIDE__Q4_1)
                w[3] = (uint8_t)((w[3] & 0x83) | 0x28);
            const double d = f16_value((uint32_t)w[0] | (uint32_t)w[1] << 8);
            const double m = f16_value((uint32_t)w[2] | (uint32_t)w[3] << 8);
            for (int e = 0; e < 32; e++) {
                const uint8_t *q = w + (format == BOLIDE__Q4_1 ? 4 : 2);
                const int nibble = e < 16 ? q[e] & 15 : q[e - 16] >> 4;
                exact[j][32 * p + e] = format == BOLIDE__Q8_0   ? d * (int8_t)q[e]
                                       : format == BOLIDE__Q4_0 ? d * (nibble - 8)
                                                                : d * nibble + m;
            }
        }
    }
}

typedef struct activations {
    float x[ROWS][QK];
    int8_t q[ROWS][QK];
    float scale[ROWS][BLOCKS];
    int32_t sum[ROWS][BLOCKS];
    bolide__q8_row rows[ROWS];
} activations;

static void make_activations(const bolide__quant_kernel *k, activations *a) {
    int bad = 0;
    fill_rounding(&a->x[0][0], ROWS * QK, 5);
    for (int e = 0; e < 32; e++) {
        a->x[2][e] = 0.0f;
        a->x[3][e] = 1e-42f;
        a->x[4][e] = e % 2 ? 3.0f : -3.0f;
    }
    for (int i = 0; i < ROWS; i++) {
        k->quantize(a->x[i], BOLIDE_F32, BLOCKS, a->q[i], a->scale[i], a->sum[i]);
        a->rows[i] = (bolide__q8_row){a->q[i], a->scale[i], a->sum[i]};
        for (int p = 0; p < BLOCKS; p++) {
            int32_t sum = 0;
            for (int e = 32 * p; e < 32 * p + 32; e++) {
                const double back = (double)a->scale[i][p] * a->q[i][e];
                bad += fabs(back - (double)a->x[i][e]) > 0.501 * (double)a->scale[i][p] + 2e-42;
                sum += a->q[i][e];
            }
            bad += sum != a->sum[i][p];
        }
    }
    expect(bad == 0, "%s %s quantize: %d wrong", bolide__isa_name(current), k->name, bad);
}

static double int8_product(const activations *a, int i, int j, double *size) {
    double sum = 0;
    *size = 0;
    for (int e = 0; e < QK; e++) {
        const double term = (double)a->scale[i][e / 32] * a->q[i][e] * exact[j][e];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void test_int8(const bolide__quant_kernel *k, const activations *a,
                      bolide__block_format format, const void *const *b) {
    static uint8_t panel[BLOCKS * 1280 + GUARD];
    float c[ROWS * COLUMNS], row[COLUMNS + 1];
    int bad = 0, differs = 0;
    memset(c, 0x7F, sizeof c);
    for (int j = 0; j < COLUMNS; j += k->nr) {
        const int n = COLUMNS - j < k->nr ? COLUMNS - j : k->nr;
        memset(panel, 0xA5, sizeof panel);
        k->pack(panel, b + j, format, n, BLOCKS);
        bad += !guard_whole(panel, BLOCKS * k->panel_block_bytes);
        for (int i = 0; i < ROWS; i += k->mr) {
            const int m = ROWS - i < k->mr ? ROWS - i : k->mr;
            k->run(a->rows + i, panel, format, BLOCKS, c + i * COLUMNS + j, COLUMNS, m, n);
        }
    }
    for (int i = 0; i < ROWS; i++) {
        row[COLUMNS] = 1e30f;
        k->row(&a->rows[i], b, format, COLUMNS, BLOCKS, row);
        differs += memcmp(row, c + i * COLUMNS, COLUMNS * 4) != 0 || row[COLUMNS] != 1e30f;
        for (int j = 0; j < COLUMNS; j++) {
            double size;
            const double want = int8_product(a, i, j, &size);
            bad += !(fabs((double)c[i * COLUMNS + j] - want) <= 2e-6 * size + 1e-40);
        }
    }
    expect(bad == 0, "%s %s format %d: %d wrong", bolide__isa_name(current), k->name, format, bad);
    expect(differs == 0, "%s %s format %d: row and tile differ in %d rows",
           bolide__isa_name(current), k->name, format, differs);
    quant_hash = hash_of(c, ROWS * COLUMNS, quant_hash);
}

static void test_block_dot(const bolide__quant_kernel *k, const activations *a,
                           bolide__block_format format, const void *const *b) {
    static float wide[COLUMNS][QK];
    const float *ar[ROWS];
    const void *wr[COLUMNS];
    float c[ROWS * COLUMNS], same[ROWS * COLUMNS], alone[COLUMNS];
    int bad = 0;
    for (int i = 0; i < ROWS; i++)
        ar[i] = a->x[i];
    for (int j = 0; j < COLUMNS; j++) {
        wr[j] = wide[j];
        k->dequantize(b[j], format, BLOCKS, wide[j]);
        for (int e = 0; e < QK; e++)
            bad += fabs((double)wide[j][e] - exact[j][e]) > 1.2e-7 * fabs(exact[j][e]);
    }
    expect(bad == 0, "%s %s dequantize %d: %d wrong", bolide__isa_name(current), k->name, format,
           bad);
    k->dot(ar, ROWS, b, format, COLUMNS, BLOCKS, c, COLUMNS);
    bolide__dot()(ar, ROWS, wr, BOLIDE_F32, COLUMNS, QK, same, COLUMNS);
    k->dot(ar + 5, 1, b, format, COLUMNS, BLOCKS, alone, COLUMNS);
    expect(memcmp(c, same, sizeof c) == 0, "%s %s block dot %d: not the bits of dot",
           bolide__isa_name(current), k->name, format);
    expect(memcmp(alone, c + 5 * COLUMNS, sizeof alone) == 0,
           "%s %s block dot %d: a row alone has other bits", bolide__isa_name(current), k->name,
           format);
    quant_hash = hash_of(c, ROWS * COLUMNS, quant_hash);
}

static void test_quant(const bolide__quant_kernel *k) {
    static activations a;
    static uint32_t avx2_hash;
    const void *b[COLUMNS];
    make_activations(k, &a);
    quant_hash = 1;
    for (int f = 0; f < 3; f++) {
        const bolide__block_format format = (bolide__block_format)f;
        make_weights(format);
        for (int j = 0; j < COLUMNS; j++)
            b[j] = weights[j];
        test_int8(k, &a, format, b);
        test_block_dot(k, &a, format, b);
    }
    if (current == BOLIDE__AVX2)
        avx2_hash = quant_hash;
    if (current > BOLIDE__AVX2)
        expect(quant_hash == avx2_hash, "%s %s: other bits than avx2", bolide__isa_name(current),
               k->name);
    float bad_row[32] = {0};
    int8_t q[32];
    float scale;
    int32_t sum;
    bad_row[7] = NAN;
    k->quantize(bad_row, BOLIDE_F32, 1, q, &scale, &sum);
    expect(isnan(scale), "%s %s: NaN makes its block NaN", bolide__isa_name(current), k->name);
}

static void test_all(bolide__isa isa) {
    current = isa;
    for (int e = 0; bolide__gemm_entry(e); e++) {
        test_tile(bolide__gemm_entry(e));
        test_tile_bits(bolide__gemm_entry(e));
    }
    test_dot();
    for (int e = 0; bolide__quant_entry(e); e++)
        test_quant(bolide__quant_entry(e));
    expect(bolide__gemm_bf16(0) == bolide__gemm_f32(), "%s: no unit where none is allowed",
           bolide__isa_name(isa));
}

void test_microkernel(void) {
    on_each_isa(test_all);
}
