// SPDX-License-Identifier: Apache-2.0
//
// The int8 tile on AVX-512 VNNI (vpdpbusd: four products of an unsigned and a signed byte a lane,
// added to 32 bits). Weights are the unsigned side, so signed ones are stored with 128 added and
// the sum starts at -128 times the activations' sum. All of it is exact, so the bits are those of
// microkernel_quant_cpu.c, which also serves what is not a tile. The code exists in the AVX-512
// build only; the intrinsics of a unit have no place in simd.h, which every kernel includes.
//
//     panel, a block:  [8 groups of 4 k][32 rows][4] bytes | d[32] | m[32]      1,280 bytes

#include "cpu/microkernel_internal.h"
#include "cpu/microkernel_quant.h"
#include "cpu/simd.h"

#if defined(BOLIDE_ISA_AVX512)

#define VNNI_TARGET __attribute__((target("avx512vnni")))

enum { MR = 6, NR = 32, GROUPS = 8, SCALES = 1024, MINIMA = 1152, PANEL_BLOCK = 1280 };

BOLIDE_INLINE void vnni_pack_rows(uint8_t *panel, const void *const *b, bolide__block_format format,
                                  int n, int64_t blocks) {
    const int64_t bytes = bolide__block_bytes(format);
    const uint32_t flip = format == BOLIDE__Q8_0 ? 0x80808080u : 0u;
    for (int64_t p = 0; p < blocks; p++, panel += PANEL_BLOCK) {
        float d[NR] = {0}, m[NR] = {0};
        memset(panel, 0, SCALES);
        for (int j = 0; j < n; j++) {
            const uint8_t *from = (const uint8_t *)b[j] + p * bytes;
            uint32_t q[GROUPS];
            block_bytes_of(from, format, (uint8_t *)q);
            for (int g = 0; g < GROUPS; g++) {
                const uint32_t word = q[g] ^ flip;
                memcpy(panel + (g * NR + j) * 4, &word, 4);
            }
            d[j] = block_f16(from);
            m[j] = format == BOLIDE__Q4_1 ? block_f16(from + 2) : 0.0f;
        }
        memcpy(panel + SCALES, d, sizeof d);
        memcpy(panel + MINIMA, m, sizeof m);
    }
}

static void vnni_pack(void *panel, const void *const *b, bolide__block_format format, int n,
                      int64_t blocks) {
#define VNNI_PACK(f) vnni_pack_rows((uint8_t *)panel, b, f, n, blocks)
    EACH_FORMAT(format, VNNI_PACK);
}

BOLIDE_INLINE int32_t vnni_offset(bolide__block_format format) {
    return format == BOLIDE__Q4_0 ? 8 : format == BOLIDE__Q8_0 ? 128 : 0;
}

VNNI_TARGET BOLIDE_INLINE void vnni_products(int rows, const uint8_t *panel,
                                             const bolide__q8_row *a, int64_t p,
                                             bolide__block_format format, i32x16 product[MR][2]) {
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++)
        product[i][0] = product[i][1] = i32_set(-vnni_offset(format) * a[i].sum[p]);
    BOLIDE_UNROLL
    for (int g = 0; g < GROUPS; g++) {
        const __m512i w0 = _mm512_loadu_si512(panel + 128 * g);
        const __m512i w1 = _mm512_loadu_si512(panel + 128 * g + 64);
        BOLIDE_UNROLL
        for (int i = 0; i < rows; i++) {
            int32_t four;
            memcpy(&four, a[i].q + p * BOLIDE__BLOCK + 4 * g, 4);
            const __m512i x = _mm512_set1_epi32(four);
            product[i][0].v = _mm512_dpbusd_epi32(product[i][0].v, w0, x);
            product[i][1].v = _mm512_dpbusd_epi32(product[i][1].v, w1, x);
        }
    }
}

VNNI_TARGET BOLIDE_INLINE void vnni_tile(int rows, const bolide__q8_row *a, const uint8_t *panel,
                                         bolide__block_format format, int64_t blocks, float *c,
                                         int64_t ldc, int n) {
    f32x16 sum[MR][2];
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = f32_zero();
    for (int64_t p = 0; p < blocks; p++, panel += PANEL_BLOCK) {
        i32x16 product[MR][2];
        f32x16 d[2], m[2];
        for (int v = 0; v < 2; v++) {
            d[v] = f32_load((const float *)(const void *)(panel + SCALES) + 16 * v);
            m[v] = f32_load((const float *)(const void *)(panel + MINIMA) + 16 * v);
        }
        vnni_products(rows, panel, a, p, format, product);
        BOLIDE_UNROLL
        for (int i = 0; i < rows; i++) {
            const f32x16 scale = f32_set(a[i].scale[p]);
            const f32x16 shift = f32_set(a[i].scale[p] * (float)a[i].sum[p]);
            for (int v = 0; v < 2; v++) {
                sum[i][v] = f32_fma(i32_to_f32(product[i][v]), f32_mul(d[v], scale), sum[i][v]);
                if (format == BOLIDE__Q4_1)
                    sum[i][v] = f32_fma(m[v], shift, sum[i][v]);
            }
        }
    }
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++) {
        f32_store_n(c + i * ldc, sum[i][0], n);
        f32_store_n(c + i * ldc + 16, sum[i][1], n - 16);
    }
}

#define VNNI_INSTANCE(rows)                                                                        \
    VNNI_TARGET static void vnni_tile_##rows(const bolide__q8_row *a, const uint8_t *panel,        \
                                             bolide__block_format format, int64_t blocks,          \
                                             float *c, int64_t ldc, int n) {                       \
        EACH_FORMAT(format, VNNI_TILE_##rows);                                                     \
    }
#define VNNI_TILE_1(f) vnni_tile(1, a, panel, f, blocks, c, ldc, n)
#define VNNI_TILE_2(f) vnni_tile(2, a, panel, f, blocks, c, ldc, n)
#define VNNI_TILE_3(f) vnni_tile(3, a, panel, f, blocks, c, ldc, n)
#define VNNI_TILE_4(f) vnni_tile(4, a, panel, f, blocks, c, ldc, n)
#define VNNI_TILE_5(f) vnni_tile(5, a, panel, f, blocks, c, ldc, n)
#define VNNI_TILE_6(f) vnni_tile(6, a, panel, f, blocks, c, ldc, n)
VNNI_INSTANCE(1)
VNNI_INSTANCE(2)
VNNI_INSTANCE(3)
VNNI_INSTANCE(4)
VNNI_INSTANCE(5)
VNNI_INSTANCE(6)

static void vnni_run(const bolide__q8_row *a, const void *panel, bolide__block_format format,
                     int64_t blocks, float *c, int64_t ldc, int m, int n) {
    static void (*const tiles[])(const bolide__q8_row *, const uint8_t *, bolide__block_format,
                                 int64_t, float *, int64_t, int) = {
        vnni_tile_1, vnni_tile_2, vnni_tile_3, vnni_tile_4, vnni_tile_5, vnni_tile_6};
    tiles[m - 1](a, (const uint8_t *)panel, format, blocks, c, ldc, n);
}

/* What VNNI does not change is taken from the entry of the set. */
static void vnni_quantize(const void *x, int64_t dtype, int64_t blocks, int8_t *q, float *scale,
                          int32_t *sum) {
    bolide__quant_entry_avx512.quantize(x, dtype, blocks, q, scale, sum);
}
static void vnni_row(const bolide__q8_row *a, const void *const *b, bolide__block_format format,
                     int n, int64_t blocks, float *c) {
    bolide__quant_entry_avx512.row(a, b, format, n, blocks, c);
}
static void vnni_dot(const float *const *a, int m, const void *const *b,
                     bolide__block_format format, int n, int64_t blocks, float *c, int64_t ldc) {
    bolide__quant_entry_avx512.dot(a, m, b, format, n, blocks, c, ldc);
}
static void vnni_dequantize(const void *b, bolide__block_format format, int64_t blocks,
                            float *out) {
    bolide__quant_entry_avx512.dequantize(b, format, blocks, out);
}

const bolide__quant_kernel bolide__quant_vnni_entry_avx512 = {
    .name = "int8 vnni",
    .mr = MR,
    .nr = NR,
    .quantize = vnni_quantize,
    .row = vnni_row,
    .panel_block_bytes = PANEL_BLOCK,
    .pack = vnni_pack,
    .run = vnni_run,
    .dot = vnni_dot,
    .dequantize = vnni_dequantize,
};

#endif
