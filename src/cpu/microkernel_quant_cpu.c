// SPDX-License-Identifier: Apache-2.0
//
// Products with weights in GGUF blocks of 32 (cpu/microkernel.h): activations to int8, int8
// products of one row and of tiles, f32 products, weights to f32.
//
// int8: an output is one chain over blocks, sum += dot * (d * scale), where dot is the exact
// integer product of a block, so every kernel gives the same bits, whichever way it adds within
// the block. A tile keeps 16 rows of weights in its lanes:
//
//     panel, a block:  [8 groups of 4 k][16 rows][4] bytes | d[16] | m[16]      640 bytes
//
// Four-bit products of 8 groups fit into 16 bits (8 * 2 * 15 * 127), so they are widened once a
// block. The rows' nibbles and signs need byte instructions that simd.h has no other use for.

#include "cpu/microkernel_internal.h"
#include "cpu/microkernel_quant.h"
#include "cpu/simd.h"

/* ---- activations -------------------------------------------------------------------------- */

BOLIDE_INLINE void quantize_block(f32x16 x, f32x16 y, int8_t *q, float *scale, int32_t *sum) {
    const float most = f32_hmax(f32_max_nan(f32_abs(x), f32_abs(y)));
    const f32x16 inverse = f32_set(most > 0.0f ? 127.0f / most : 0.0f);
    /* An infinite block has inverse 0 and NaN among its products; any q will do, since its scale
     * makes the result infinite or NaN. A tiny one has an infinite inverse: held below 127. */
    const i32x16 a = f32_to_bounded(f32_mul(x, inverse), -127.0f, 127.0f);
    const i32x16 b = f32_to_bounded(f32_mul(y, inverse), -127.0f, 127.0f);
    u8_store(q, a);
    u8_store(q + BOLIDE_LANES, b);
    *scale = most / 127.0f;
    *sum = i32_sum(i32_add(a, b));
}

BOLIDE_INLINE void quantize_row(const void *x, int64_t dtype, int64_t blocks, int8_t *q,
                                float *scale, int32_t *sum) {
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t at = i * BOLIDE__BLOCK;
        quantize_block(load16(dtype_at(x, dtype, at), dtype),
                       load16(dtype_at(x, dtype, at + BOLIDE_LANES), dtype), q + at, scale + i,
                       sum + i);
    }
}

static void quantize(const void *x, int64_t dtype, int64_t blocks, int8_t *q, float *scale,
                     int32_t *sum) {
#define QUANTIZE(d) quantize_row(x, d, blocks, q, scale, sum)
    BOLIDE__EACH_DTYPE(dtype, QUANTIZE);
}

/* ---- f32 products ------------------------------------------------------------------------- */

/* The two halves of a block as f32. */
BOLIDE_INLINE void load_block(const uint8_t *p, bolide__block_format format, f32x16 *lo,
                              f32x16 *hi) {
    const f32x16 d = f32_set(block_f16(p));
    if (format == BOLIDE__Q8_0) {
        *lo = f32_mul(d, i32_to_f32(i8_load(p + 2)));
        *hi = f32_mul(d, i32_to_f32(i8_load(p + 2 + BOLIDE_LANES)));
        return;
    }
    const i32x16 q = u8_load(p + (format == BOLIDE__Q4_1 ? 4 : 2));
    const f32x16 a = i32_to_f32(i32_and(q, i32_set(15))), b = i32_to_f32(i32_shr(q, 4));
    if (format == BOLIDE__Q4_1) {
        const f32x16 m = f32_set(block_f16(p + 2));
        *lo = f32_fma(d, a, m);
        *hi = f32_fma(d, b, m);
    } else {
        *lo = f32_mul(d, f32_sub(a, f32_set(8.0f)));
        *hi = f32_mul(d, f32_sub(b, f32_set(8.0f)));
    }
}

BOLIDE_INLINE void dequantize_row(const uint8_t *b, bolide__block_format format, int64_t blocks,
                                  float *out) {
    for (int64_t i = 0; i < blocks; i++, out += BOLIDE__BLOCK) {
        f32x16 lo, hi;
        load_block(b + i * bolide__block_bytes(format), format, &lo, &hi);
        f32_store(out, lo);
        f32_store(out + BOLIDE_LANES, hi);
    }
}

static void dequantize(const void *b, bolide__block_format format, int64_t blocks, float *out) {
#define DEQUANTIZE(f) dequantize_row((const uint8_t *)b, f, blocks, out)
    EACH_FORMAT(format, DEQUANTIZE);
}

/* As in microkernel_dot_cpu.c, with fewer rows of B where the conversion needs registers. */
enum { MT = 4, NT = 4 };
BOLIDE_INLINE int columns_for(int mt) {
    return mt == 1 ? NT : BOLIDE_SIMD_512 ? 2 : 1;
}

BOLIDE_INLINE void dot_tile(int mt, int nt, const float *const *a, const void *const *b,
                            bolide__block_format format, int64_t blocks, float *c, int64_t ldc) {
    const int64_t bytes = bolide__block_bytes(format);
    f32x16 sum[MT][NT];
    BOLIDE_UNROLL
    for (int i = 0; i < mt; i++) {
        BOLIDE_UNROLL
        for (int j = 0; j < nt; j++)
            sum[i][j] = f32_zero();
    }
    for (int64_t p = 0; p < blocks; p++) {
        BOLIDE_UNROLL
        for (int j = 0; j < nt; j++) {
            f32x16 lo, hi;
            load_block((const uint8_t *)b[j] + p * bytes, format, &lo, &hi);
            BOLIDE_UNROLL
            for (int i = 0; i < mt; i++) {
                const float *x = a[i] + p * BOLIDE__BLOCK;
                sum[i][j] = f32_fma(f32_load(x), lo, sum[i][j]);
                sum[i][j] = f32_fma(f32_load(x + BOLIDE_LANES), hi, sum[i][j]);
            }
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
                             bolide__block_format format, int64_t blocks, float *c, int64_t ldc) {
    const int nt = columns_for(mt) < count ? columns_for(mt) : count;
    for (int j = 0; j < count; j += nt)
        dot_tile(mt, nt, a, b + j, format, blocks, c + j, ldc);
}
BOLIDE_INLINE void dot_strips(int count, const float *const *a, int m, const void *const *b,
                              bolide__block_format format, int64_t blocks, float *c, int64_t ldc) {
    int i = 0;
    for (; i + MT <= m; i += MT)
        dot_strip(MT, count, a + i, b, format, blocks, c + i * ldc, ldc);
    for (; i + 2 <= m; i += 2)
        dot_strip(2, count, a + i, b, format, blocks, c + i * ldc, ldc);
    if (i < m)
        dot_strip(1, count, a + i, b, format, blocks, c + i * ldc, ldc);
}
BOLIDE_INLINE void dot_any(const float *const *a, int m, const void *const *b,
                           bolide__block_format format, int n, int64_t blocks, float *c,
                           int64_t ldc) {
    int j = 0;
    for (; j + NT <= n; j += NT)
        dot_strips(NT, a, m, b + j, format, blocks, c + j, ldc);
    for (; j < n; j++)
        dot_strips(1, a, m, b + j, format, blocks, c + j, ldc);
}

static void dot(const float *const *a, int m, const void *const *b, bolide__block_format format,
                int n, int64_t blocks, float *c, int64_t ldc) {
#define DOT(f) dot_any(a, m, b, f, n, blocks, c, ldc)
    EACH_FORMAT(format, DOT);
}

/* ---- int8 products ------------------------------------------------------------------------ */

enum { NR = 16, GROUPS = 8, PANEL_BLOCK = 640 };

/* What to take off the integer product, in units of the activations' sum. */
BOLIDE_INLINE int32_t offset_of(bolide__block_format format) {
    return format == BOLIDE__Q4_0 ? 8 : 0;
}

/* Bytes of 16 rows' block: gather a dword of each row, which is a transpose of 16 x 8. */
BOLIDE_INLINE void pack_rows(uint8_t *panel, const void *const *b, bolide__block_format format,
                             int n, int64_t blocks) {
    const int64_t bytes = bolide__block_bytes(format);
    for (int64_t p = 0; p < blocks; p++, panel += PANEL_BLOCK) {
        float d[NR] = {0}, m[NR] = {0};
        memset(panel, 0, PANEL_BLOCK);
        for (int j = 0; j < n; j++) {
            const uint8_t *from = (const uint8_t *)b[j] + p * bytes;
            uint8_t q[BOLIDE__BLOCK];
            block_bytes_of(from, format, q);
            for (int g = 0; g < GROUPS; g++)
                memcpy(panel + (g * NR + j) * 4, q + 4 * g, 4);
            d[j] = block_f16(from);
            m[j] = format == BOLIDE__Q4_1 ? block_f16(from + 2) : 0.0f;
        }
        memcpy(panel + 512, d, sizeof d);
        memcpy(panel + 576, m, sizeof m);
    }
}

static void pack(void *panel, const void *const *b, bolide__block_format format, int n,
                 int64_t blocks) {
#define PACK(f) pack_rows((uint8_t *)panel, b, f, n, blocks)
    EACH_FORMAT(format, PACK);
}

/* One block's contribution to 16 sums. */
BOLIDE_INLINE f32x16 add_block(f32x16 sum, i32x16 product, bolide__block_format format, f32x16 d,
                               f32x16 m, float scale, int32_t total) {
    const i32x16 exact = i32_sub(product, i32_set(offset_of(format) * total));
    sum = f32_fma(i32_to_f32(exact), f32_mul(d, f32_set(scale)), sum);
    if (format == BOLIDE__Q4_1)
        sum = f32_fma(m, f32_set(scale * (float)total), sum);
    return sum;
}

#if defined(BOLIDE_ISA_BASELINE)

enum { MR = 1 };
#define ROW_LIST(X) X(1)

/* Four signed or unsigned products a lane, from bytes in memory. */
static i32x16 panel_product(const uint8_t *panel, const int8_t *a, bolide__block_format format) {
    int32_t t[NR] = {0};
    for (int g = 0; g < GROUPS; g++)
        for (int j = 0; j < NR; j++)
            for (int e = 0; e < 4; e++) {
                const uint8_t w = panel[(g * NR + j) * 4 + e];
                t[j] += (format == BOLIDE__Q8_0 ? (int8_t)w : (int32_t)w) * a[4 * g + e];
            }
    return i32_load(t);
}

BOLIDE_INLINE void panel_products(int rows, const uint8_t *panel, const int8_t *const *a,
                                  bolide__block_format format, i32x16 *product) {
    for (int i = 0; i < rows; i++)
        product[i] = panel_product(panel, a[i], format);
}

#else

enum { MR = 4 };
#define ROW_LIST(X) X(1) X(2) X(3) X(4)

BOLIDE_INLINE __m256i spread4(const int8_t *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}
BOLIDE_INLINE i32x16 join(__m256i lo, __m256i hi) {
#if defined(BOLIDE_ISA_AVX512)
    return (i32x16){_mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1)};
#else
    return (i32x16){lo, hi};
#endif
}

/* Products of a block: 16 bits hold all 8 groups of 4-bit weights; those of 8 bits take their sign
 * over to the activations and are widened at once. */
BOLIDE_INLINE void panel_products(int rows, const uint8_t *panel, const int8_t *const *a,
                                  bolide__block_format format, i32x16 *product) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[MR][2];
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_si256();
    BOLIDE_UNROLL
    for (int g = 0; g < GROUPS; g++) {
        const __m256i w0 = _mm256_loadu_si256((const __m256i *)(const void *)(panel + 64 * g));
        const __m256i w1 = _mm256_loadu_si256((const __m256i *)(const void *)(panel + 64 * g + 32));
        BOLIDE_UNROLL
        for (int i = 0; i < rows; i++) {
            const __m256i x = spread4(a[i] + 4 * g);
            if (format == BOLIDE__Q8_0) {
                const __m256i p0 =
                    _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(x, w0));
                const __m256i p1 =
                    _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(x, w1));
                sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(p0, ones));
                sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(p1, ones));
            } else {
                sum[i][0] = _mm256_add_epi16(sum[i][0], _mm256_maddubs_epi16(w0, x));
                sum[i][1] = _mm256_add_epi16(sum[i][1], _mm256_maddubs_epi16(w1, x));
            }
        }
    }
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++)
        product[i] = format == BOLIDE__Q8_0 ? join(sum[i][0], sum[i][1])
                                            : join(_mm256_madd_epi16(sum[i][0], ones),
                                                   _mm256_madd_epi16(sum[i][1], ones));
}

#endif

BOLIDE_INLINE void tile(int rows, const bolide__q8_row *a, const uint8_t *panel,
                        bolide__block_format format, int64_t blocks, float *c, int64_t ldc, int n) {
    f32x16 sum[MR];
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++)
        sum[i] = f32_zero();
    for (int64_t p = 0; p < blocks; p++, panel += PANEL_BLOCK) {
        const int8_t *q[MR];
        i32x16 product[MR];
        const f32x16 d = f32_load((const float *)(const void *)(panel + 512));
        const f32x16 m = f32_load((const float *)(const void *)(panel + 576));
        BOLIDE_UNROLL
        for (int i = 0; i < rows; i++)
            q[i] = a[i].q + p * BOLIDE__BLOCK;
        panel_products(rows, panel, q, format, product);
        BOLIDE_UNROLL
        for (int i = 0; i < rows; i++)
            sum[i] = add_block(sum[i], product[i], format, d, m, a[i].scale[p], a[i].sum[p]);
    }
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++)
        f32_store_n(c + i * ldc, sum[i], n);
}

static void run(const bolide__q8_row *a, const void *panel, bolide__block_format format,
                int64_t blocks, float *c, int64_t ldc, int m, int n) {
#define TILE_CASE(rows)                                                                            \
    case rows:                                                                                     \
        EACH_FORMAT(format, TILE_##rows);                                                          \
        break;
#define TILE_1(f) tile(1, a, (const uint8_t *)panel, f, blocks, c, ldc, n)
#define TILE_2(f) tile(2, a, (const uint8_t *)panel, f, blocks, c, ldc, n)
#define TILE_3(f) tile(3, a, (const uint8_t *)panel, f, blocks, c, ldc, n)
#define TILE_4(f) tile(4, a, (const uint8_t *)panel, f, blocks, c, ldc, n)
    switch (m) { ROW_LIST(TILE_CASE) }
}

/* ---- one row ------------------------------------------------------------------------------ */

#if defined(BOLIDE_ISA_BASELINE)

/* The panel of one block at a time. */
BOLIDE_INLINE void row_products(const bolide__q8_row *a, const void *const *b,
                                bolide__block_format format, int n, int64_t blocks, float *c) {
    const int64_t bytes = bolide__block_bytes(format);
    for (int at = 0; at < n; at += NR) {
        const int count = n - at < NR ? n - at : NR;
        f32x16 sum = f32_zero();
        for (int64_t p = 0; p < blocks; p++) {
            uint8_t panel[PANEL_BLOCK];
            const void *rows[NR];
            float d[NR], m[NR];
            for (int j = 0; j < count; j++)
                rows[j] = (const uint8_t *)b[at + j] + p * bytes;
            pack_rows(panel, rows, format, count, 1);
            memcpy(d, panel + 512, sizeof d);
            memcpy(m, panel + 576, sizeof m);
            const i32x16 product = panel_product(panel, a->q + p * BOLIDE__BLOCK, format);
            sum = add_block(sum, product, format, f32_load(d), f32_load(m), a->scale[p], a->sum[p]);
        }
        f32_store_n(c + at, sum, count);
    }
}

#else

/* The 32 products of a row's block as 8 sums of 4. */
BOLIDE_INLINE __m256i block_product(const uint8_t *p, bolide__block_format format, __m256i x) {
    const __m256i ones = _mm256_set1_epi16(1);
    if (format == BOLIDE__Q8_0) {
        const __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(p + 2));
        return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)),
                                 ones);
    }
    const void *from = p + (format == BOLIDE__Q4_1 ? 4 : 2);
    const __m128i q = _mm_loadu_si128((const __m128i *)from);
    const __m256i w =
        _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(q, 4), q), _mm256_set1_epi8(15));
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones);
}

/* Eight vectors of 8 to the vector of their sums. */
BOLIDE_INLINE __m256i sum_each(const __m256i t[8]) {
    const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(t[0], t[1]), //
                                        _mm256_hadd_epi32(t[2], t[3]));
    const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(t[4], t[5]), //
                                        _mm256_hadd_epi32(t[6], t[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

BOLIDE_INLINE __m256 eight_f16(const uint8_t *const *rows, int64_t at) {
    uint16_t h[8];
    BOLIDE_UNROLL
    for (int j = 0; j < 8; j++)
        memcpy(&h[j], rows[j] + at, 2);
    return _mm256_cvtph_ps(_mm_setr_epi16((short)h[0], (short)h[1], (short)h[2], (short)h[3],
                                          (short)h[4], (short)h[5], (short)h[6], (short)h[7]));
}

/* Eight rows of weights a step; behind the last row the first stands in. */
BOLIDE_INLINE void row_products(const bolide__q8_row *a, const void *const *b,
                                bolide__block_format format, int n, int64_t blocks, float *c) {
    const int64_t bytes = bolide__block_bytes(format);
    for (int at = 0; at < n; at += 8) {
        const int count = n - at < 8 ? n - at : 8;
        const uint8_t *rows[8];
        __m256 sum = _mm256_setzero_ps();
        for (int j = 0; j < 8; j++)
            rows[j] = (const uint8_t *)b[at + (j < count ? j : 0)];
        for (int64_t p = 0; p < blocks; p++) {
            const __m256i x =
                _mm256_loadu_si256((const __m256i *)(const void *)(a->q + p * BOLIDE__BLOCK));
            const float scale = a->scale[p];
            const int32_t total = a->sum[p];
            __m256i t[8];
            BOLIDE_UNROLL
            for (int j = 0; j < 8; j++)
                t[j] = block_product(rows[j] + p * bytes, format, x);
            const __m256i exact =
                _mm256_sub_epi32(sum_each(t), _mm256_set1_epi32(offset_of(format) * total));
            const __m256 d = _mm256_mul_ps(eight_f16(rows, p * bytes), _mm256_set1_ps(scale));
            sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), d, sum);
            if (format == BOLIDE__Q4_1)
                sum = _mm256_fmadd_ps(eight_f16(rows, p * bytes + 2),
                                      _mm256_set1_ps(scale * (float)total), sum);
        }
        float out[8];
        _mm256_storeu_ps(out, sum);
        memcpy(c + at, out, (size_t)count * sizeof(float));
    }
}

#endif

static void row(const bolide__q8_row *a, const void *const *b, bolide__block_format format, int n,
                int64_t blocks, float *c) {
#define ROW(f) row_products(a, b, f, n, blocks, c)
    EACH_FORMAT(format, ROW);
}

const bolide__quant_kernel BOLIDE_ISA(quant_entry) = {
    .name = "int8",
    .mr = MR,
    .nr = NR,
    .quantize = quantize,
    .row = row,
    .panel_block_bytes = PANEL_BLOCK,
    .pack = pack,
    .run = run,
    .dot = dot,
    .dequantize = dequantize,
};
