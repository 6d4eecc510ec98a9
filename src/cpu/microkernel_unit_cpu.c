// SPDX-License-Identifier: Apache-2.0
//
// Tiles on units beside AVX-512: BF16 dot products (vdpbf16ps, two products a lane) and AMX
// (16 x 16 sums, 32 products each, an instruction). Operands are held as bf16, sums as f32, and
// denormals count as zero, so results are of another class than the f32 tile's. The code exists in
// the AVX-512 build only and runs where bolide__cpu_features says so; each function carries the
// target that it needs, and the intrinsics of a unit have no place in simd.h, which every kernel
// includes.

#include "cpu/microkernel_internal.h"
#include "cpu/simd.h"

#if defined(BOLIDE_ISA_AVX512)

#define BF16_TARGET __attribute__((target("avx512bf16")))
#define AMX_TARGET __attribute__((target("amx-tile,amx-bf16,avx512bf16")))

/* ---- pairs -------------------------------------------------------------------------------- */

/* Elements p to p + 31 of a row as 16 pairs of bf16, the even one low; left counts from p on. */
BOLIDE_INLINE i32x16 load_pairs(const void *row, int64_t dtype, int64_t p, int64_t left) {
    const void *from = dtype_at(row, dtype, p);
    if (dtype == BOLIDE_BF16) {
        if (left >= 32)
            return i32_load((const int32_t *)from);
        return (i32x16){_mm512_maskz_loadu_epi16((__mmask32)((1u << left) - 1u), from)};
    }
    const i32x16 low = f32_to_bf16(left >= 16 ? load16(from, dtype) : load16_n(from, dtype, left));
    const void *second = left > 16 ? dtype_at(from, dtype, 16) : from;
    const i32x16 high =
        f32_to_bf16(left >= 32 ? load16(second, dtype) : load16_n(second, dtype, left - 16));
    /* Through registers: a load that spans two stores would wait for both. */
    return (i32x16){_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(low.v)),
                                       _mm512_cvtepi32_epi16(high.v), 1)};
}

/* Sixteen rows from element p on, transposed: vector s holds pair s of every row. */
BOLIDE_INLINE void load_pair_columns(f32x16 r[16], const void *const *rows, int64_t dtype,
                                     int count, int64_t p, int64_t left) {
    for (int i = 0; i < BOLIDE_LANES; i++)
        r[i] = i < count ? i32_as_f32(load_pairs(rows[i], dtype, p, left)) : f32_zero();
    f32_transpose16(r);
}

/* Row p and row p + 1 of B as pairs; the second may be missing. */
BOLIDE_INLINE i32x16 load_row_pair(const void *const *rows, int64_t dtype, int64_t p, int64_t k,
                                   int at, int n) {
    const int offset = n > at ? at : 0;
    if (dtype == BOLIDE_BF16) {
        const i32x16 even = u16_load_n(dtype_at(rows[p], dtype, offset), n - at);
        if (p + 1 == k)
            return even;
        return i32_or(even, i32_shl(u16_load_n(dtype_at(rows[p + 1], dtype, offset), n - at), 16));
    }
    i32x16 r = f32_to_bf16(load16_n(dtype_at(rows[p], dtype, offset), dtype, n - at));
    if (p + 1 < k) {
        const void *odd = dtype_at(rows[p + 1], dtype, offset);
        r = i32_or(r, i32_shl(f32_to_bf16(load16_n(odd, dtype, n - at)), 16));
    }
    return r;
}

/* ---- BF16 dot products: 12 x 32, panels [k / 2][width][2] ---------------------------------- */

enum { BF_MR = 12, BF_NR = 32 };

BOLIDE_INLINE void bf16_pack_columns(int32_t *panel, int stride, int width, const void *const *rows,
                                     int64_t dtype, int count, int64_t k) {
    const int64_t pairs = (k + 1) / 2;
    for (int64_t p = 0; p < pairs; p += BOLIDE_LANES) {
        f32x16 r[BOLIDE_LANES];
        const int64_t steps = pairs - p < BOLIDE_LANES ? pairs - p : BOLIDE_LANES;
        load_pair_columns(r, rows, dtype, count, 2 * p, k - 2 * p);
        for (int64_t s = 0; s < steps; s++) {
            /* A store of 16 lanes may run into the next row, which is written after. */
            const int lanes = p + s + 1 < pairs ? BOLIDE_LANES : width;
            i32_store_n(panel + (p + s) * stride, f32_bits(r[s]), lanes);
        }
    }
}

static void bf16_pack_a(void *panel, const void *const *rows, int64_t dtype, int m, int64_t k) {
#define BF16_PACK_A(d) bf16_pack_columns((int32_t *)panel, BF_MR, BF_MR, rows, d, m, k)
    BOLIDE__EACH_DTYPE(dtype, BF16_PACK_A);
}
static void bf16_pack_bt(void *panel, const void *const *rows, int64_t dtype, int n, int64_t k) {
    for (int at = 0; at < BF_NR; at += BOLIDE_LANES) {
        int32_t *to = (int32_t *)panel + at;
        const int count = n < at ? 0 : n - at;
        const void *const *from = rows + (n < at ? 0 : at);
#define BF16_PACK_BT(d) bf16_pack_columns(to, BF_NR, BOLIDE_LANES, from, d, count, k)
        BOLIDE__EACH_DTYPE(dtype, BF16_PACK_BT);
    }
}
static void bf16_pack_b(void *panel, const void *const *rows, int64_t dtype, int n, int64_t k) {
    int32_t *to = (int32_t *)panel;
    for (int64_t p = 0; p < k; p += 2, to += BF_NR) {
        for (int at = 0; at < BF_NR; at += BOLIDE_LANES) {
#define BF16_PACK_B(d) i32_store(to + at, load_row_pair(rows, d, p, k, at, n))
            BOLIDE__EACH_DTYPE(dtype, BF16_PACK_B);
        }
    }
}

BF16_TARGET BOLIDE_INLINE void bf16_tile(int rows, int64_t k, const int32_t *a, const int32_t *b,
                                         float *c, int64_t ldc, int n, int accumulate) {
    f32x16 sum[BF_MR][2];
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++) {
        sum[i][0] = accumulate ? f32_load_n(c + i * ldc, n) : f32_zero();
        sum[i][1] = accumulate ? f32_load_n(c + i * ldc + 16, n - 16) : f32_zero();
    }
    for (int64_t p = 0; p < k; p += 2) {
        const __m512bh b0 = (__m512bh)i32_load(b).v, b1 = (__m512bh)i32_load(b + 16).v;
        BOLIDE_UNROLL
        for (int i = 0; i < rows; i++) {
            const __m512bh x = (__m512bh)i32_set(a[i]).v;
            sum[i][0].v = _mm512_dpbf16_ps(sum[i][0].v, x, b0);
            sum[i][1].v = _mm512_dpbf16_ps(sum[i][1].v, x, b1);
        }
        a += BF_MR;
        b += BF_NR;
    }
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++) {
        f32_store_n(c + i * ldc, sum[i][0], n);
        f32_store_n(c + i * ldc + 16, sum[i][1], n - 16);
    }
}

#define ROW_LIST(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define BF16_INSTANCE(rows)                                                                        \
    BF16_TARGET static void bf16_tile_##rows(int64_t k, const int32_t *a, const int32_t *b,        \
                                             float *c, int64_t ldc, int n, int accumulate) {       \
        bf16_tile(rows, k, a, b, c, ldc, n, accumulate);                                           \
    }
ROW_LIST(BF16_INSTANCE)

static void bf16_run(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int m, int n,
                     int accumulate) {
    static void (*const tiles[])(int64_t, const int32_t *, const int32_t *, float *, int64_t, int,
                                 int) = {
#define BF16_POINTER(rows) bf16_tile_##rows,
        ROW_LIST(BF16_POINTER)};
    tiles[m - 1](k, a, b, c, ldc, n, accumulate);
}

const bolide__gemm_kernel bolide__gemm_bf16_entry_avx512 = {
    .name = "bf16 dot",
    .mr = BF_MR,
    .nr = BF_NR,
    .k_group = 2,
    .elem_bytes = 2,
    .unit = 1,
    .pack_a = bf16_pack_a,
    .pack_bt = bf16_pack_bt,
    .pack_b = bf16_pack_b,
    .run = bf16_run,
};

/* ---- AMX: 32 x 32 as 2 x 2 tiles, slabs of 32 in k ----------------------------------------- */

/* A slab of A is [32 rows][32 k]; of B, two tiles of [16 pairs of k][16 columns][2]. Both are
 * 2,048 bytes in rows of 64 bytes, which is what a tile register takes. */
enum { AMX_SIDE = 32, AMX_SLAB = 32, AMX_TILE_INTS = 256, AMX_SLAB_INTS = 2 * AMX_TILE_INTS };

BOLIDE_INLINE void amx_pack_a_slabs(int32_t *panel, const void *const *rows, int64_t dtype, int m,
                                    int64_t k) {
    for (int64_t p = 0; p < k; p += AMX_SLAB)
        for (int i = 0; i < AMX_SIDE; i++, panel += BOLIDE_LANES)
            i32_store(panel, i < m ? load_pairs(rows[i], dtype, p, k - p) : i32_zero());
}
/* f32 through the chip's conversion: it is what attention rounds its weights with, row by row. */
AMX_TARGET static void amx_pack_a_f32(int32_t *panel, const void *const *rows, int m, int64_t k) {
    for (int64_t p = 0; p < k; p += AMX_SLAB) {
        for (int i = 0; i < AMX_SIDE; i++, panel += BOLIDE_LANES) {
            if (i >= m) {
                i32_store(panel, i32_zero());
                continue;
            }
            const float *x = (const float *)rows[i] + p;
            const f32x16 low = f32_load_n(x, k - p);
            const f32x16 high = k - p > 16 ? f32_load_n(x + 16, k - p - 16) : f32_zero();
            i32_store(panel, (i32x16){(__m512i)_mm512_cvtne2ps_pbh(high.v, low.v)});
        }
    }
}
static void amx_pack_a(void *panel, const void *const *rows, int64_t dtype, int m, int64_t k) {
    if (dtype == BOLIDE_F32) {
        amx_pack_a_f32(panel, rows, m, k);
        return;
    }
#define AMX_PACK_A(d) amx_pack_a_slabs((int32_t *)panel, rows, d, m, k)
    BOLIDE__EACH_DTYPE(dtype, AMX_PACK_A);
}
BOLIDE_INLINE void amx_pack_bt_slabs(int32_t *panel, const void *const *rows, int64_t dtype, int n,
                                     int64_t k) {
    for (int64_t p = 0; p < k; p += AMX_SLAB) {
        for (int at = 0; at < AMX_SIDE; at += BOLIDE_LANES) {
            f32x16 r[BOLIDE_LANES];
            load_pair_columns(r, rows + (n < at ? 0 : at), dtype, n < at ? 0 : n - at, p, k - p);
            for (int s = 0; s < BOLIDE_LANES; s++, panel += BOLIDE_LANES)
                i32_store(panel, f32_bits(r[s]));
        }
    }
}
static void amx_pack_bt(void *panel, const void *const *rows, int64_t dtype, int n, int64_t k) {
#define AMX_PACK_BT(d) amx_pack_bt_slabs((int32_t *)panel, rows, d, n, k)
    BOLIDE__EACH_DTYPE(dtype, AMX_PACK_BT);
}
static void amx_pack_b(void *panel, const void *const *rows, int64_t dtype, int n, int64_t k) {
    int32_t *to = (int32_t *)panel;
    for (int64_t slab = 0; slab < k; slab += AMX_SLAB) {
        for (int at = 0; at < AMX_SIDE; at += BOLIDE_LANES) {
            for (int64_t p = slab; p < slab + AMX_SLAB; p += 2, to += BOLIDE_LANES) {
#define AMX_PACK_B(d) i32_store(to, p < k ? load_row_pair(rows, d, p, k, at, n) : i32_zero())
                BOLIDE__EACH_DTYPE(dtype, AMX_PACK_B);
            }
        }
    }
}

/* Every register is 16 rows of 64 bytes. */
typedef struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_config;

static const amx_config amx_full = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* Registers 0 to 3 are the sums (row of tiles, column of tiles), 4 and 5 are A, 6 and 7 are B. */
AMX_TARGET static void amx_full_tile(int64_t k, const int32_t *a, const int32_t *b, float *c,
                                     int64_t ldc, int accumulate) {
    const int64_t bytes = ldc * 4;
    _tile_loadconfig(&amx_full);
    if (accumulate) {
        _tile_loadd(0, c, bytes);
        _tile_loadd(1, c + 16, bytes);
        _tile_loadd(2, c + 16 * ldc, bytes);
        _tile_loadd(3, c + 16 * ldc + 16, bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t p = 0; p < k; p += AMX_SLAB) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + AMX_TILE_INTS, 64);
        _tile_loadd(5, a + AMX_TILE_INTS, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += AMX_SLAB_INTS;
        b += AMX_SLAB_INTS;
    }
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + 16, bytes);
    _tile_stored(2, c + 16 * ldc, bytes);
    _tile_stored(3, c + 16 * ldc + 16, bytes);
    _tile_release();
}

/* Sixteen rows at most: half the work. */
AMX_TARGET static void amx_half_tile(int64_t k, const int32_t *a, const int32_t *b, float *c,
                                     int64_t ldc, int accumulate) {
    const int64_t bytes = ldc * 4;
    _tile_loadconfig(&amx_full);
    if (accumulate) {
        _tile_loadd(0, c, bytes);
        _tile_loadd(1, c + 16, bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
    for (int64_t p = 0; p < k; p += AMX_SLAB) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + AMX_TILE_INTS, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        a += AMX_SLAB_INTS;
        b += AMX_SLAB_INTS;
    }
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + 16, bytes);
    _tile_release();
}

static void amx_tile(int64_t k, const int32_t *a, const int32_t *b, float *c, int64_t ldc, int m,
                     int accumulate) {
    if (m > 16)
        amx_full_tile(k, a, b, c, ldc, accumulate);
    else
        amx_half_tile(k, a, b, c, ldc, accumulate);
}

/* Tiles that are not whole are computed in a copy. */
static void amx_run(int64_t k, const void *a, const void *b, float *c, int64_t ldc, int m, int n,
                    int accumulate) {
    float t[AMX_SIDE * AMX_SIDE];
    if ((m == AMX_SIDE || m == 16) && n == AMX_SIDE) {
        amx_tile(k, a, b, c, ldc, m, accumulate);
        return;
    }
    for (int i = 0; accumulate && i < AMX_SIDE; i++)
        for (int v = 0; v < AMX_SIDE; v += BOLIDE_LANES)
            f32_store(t + i * AMX_SIDE + v,
                      i < m && n > v ? f32_load_n(c + i * ldc + v, n - v) : f32_zero());
    amx_tile(k, a, b, t, AMX_SIDE, m, accumulate);
    for (int i = 0; i < m; i++)
        for (int v = 0; v < n; v += BOLIDE_LANES)
            f32_store_n(c + i * ldc + v, f32_load(t + i * AMX_SIDE + v), n - v);
}

const bolide__gemm_kernel bolide__gemm_amx_entry_avx512 = {
    .name = "amx bf16",
    .mr = AMX_SIDE,
    .nr = AMX_SIDE,
    .k_group = AMX_SLAB,
    .elem_bytes = 2,
    .unit = 1,
    .pack_a = amx_pack_a,
    .pack_bt = amx_pack_bt,
    .pack_b = amx_pack_b,
    .run = amx_run,
};

#endif
