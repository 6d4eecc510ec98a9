// SPDX-License-Identifier: Apache-2.0
//
// Scores and weighted values for many rows. A block of keys is packed into panels of 16 keys,
// panel[d][16], a block of values into panels of 16 columns, panel[key][16], both f32; a
// micro-kernel holds a strip of rows times one or two panels in registers and does nothing but
// fused multiply-adds. Each sum runs in the order of its index, whatever the strip, so the bits do
// not depend on the instruction set.

#ifndef BOLIDE_OPS_ATTENTION_TILE_H
#define BOLIDE_OPS_ATTENTION_TILE_H

#include "ops/attention/attention_dot.h"

/* The micro-kernel table: rows of a full strip and panels that it spans. */
#if BOLIDE_SIMD_512
enum { STRIP_ROWS = 12, STRIP_PANELS = 2 };
#else
enum { STRIP_ROWS = 6, STRIP_PANELS = 1 };
#endif

/* ---- packing ------------------------------------------------------------------------------ */

/* Keys [0, n) to panels of 16 keys; the lanes behind n are 0. panels: [BLOCK / 16][d][16]. */
BOLIDE_INLINE void pack_keys(int64_t dtype, const char *const *k, int n, int64_t d, float *panels) {
    for (int first = 0; first < n; first += 16) {
        float *panel = panels + first * d;
        for (int64_t c = 0; c < d; c += 16) {
            f32x16 t[16];
            const int64_t width = d - c;
            BOLIDE_UNROLL
            for (int j = 0; j < 16; j++) {
                t[j] = f32_zero();
                if (first + j < n) {
                    const void *p = dtype_at(k[first + j], dtype, c);
                    t[j] = width >= 16 ? load16(p, dtype) : load16_n(p, dtype, width);
                }
            }
            f32_transpose16(t);
            BOLIDE_UNROLL
            for (int i = 0; i < 16; i++) {
                if (i < width)
                    f32_store(panel + (c + i) * 16, t[i]);
            }
        }
    }
}

/* Values to panels of 16 columns: [ceil(d / 16)][BLOCK][16]; columns behind d are 0. */
BOLIDE_INLINE void pack_values(int64_t dtype, const char *const *v, int n, int64_t d,
                               float *panels) {
    for (int j = 0; j < n; j++) {
        int64_t c = 0;
        for (; c + 16 <= d; c += 16)
            f32_store(panels + c * BLOCK + j * 16, load16(dtype_at(v[j], dtype, c), dtype));
        if (c < d)
            f32_store(panels + c * BLOCK + j * 16,
                      load16_n(dtype_at(v[j], dtype, c), dtype, d - c));
    }
}

typedef void pack_fn(const char *const *rows, int n, int64_t d, float *panels);

#define PACK_INSTANCES(name, dtype)                                                                \
    static void pack_keys_##name(const char *const *k, int n, int64_t d, float *panels) {          \
        pack_keys(dtype, k, n, d, panels);                                                         \
    }                                                                                              \
    static void pack_values_##name(const char *const *v, int n, int64_t d, float *panels) {        \
        pack_values(dtype, v, n, d, panels);                                                       \
    }
PACK_INSTANCES(f32, BOLIDE_F32)
PACK_INSTANCES(f16, BOLIDE_F16)
PACK_INSTANCES(bf16, BOLIDE_BF16)
PACK_INSTANCES(e4m3, BOLIDE_F8_E4M3FN)
PACK_INSTANCES(e5m2, BOLIDE_F8_E5M2)
#undef PACK_INSTANCES

static pack_fn *key_packer(int64_t dtype) {
    return dtype == BOLIDE_F16         ? pack_keys_f16
           : dtype == BOLIDE_BF16      ? pack_keys_bf16
           : dtype == BOLIDE_F8_E4M3FN ? pack_keys_e4m3
           : dtype == BOLIDE_F8_E5M2   ? pack_keys_e5m2
                                       : pack_keys_f32;
}

static pack_fn *value_packer(int64_t dtype) {
    return dtype == BOLIDE_F16         ? pack_values_f16
           : dtype == BOLIDE_BF16      ? pack_values_bf16
           : dtype == BOLIDE_F8_E4M3FN ? pack_values_e4m3
           : dtype == BOLIDE_F8_E5M2   ? pack_values_e5m2
                                       : pack_values_f32;
}

/* ---- micro-kernels ------------------------------------------------------------------------ */

/* scores[m * BLOCK + 16 i + lane] = q[m] . key, for the panels at `panel`; q is [d][rows]. */
BOLIDE_INLINE void strip_scores(int rows, int panels, const float *q, const float *panel, int64_t d,
                                float *scores) {
    f32x16 sum[STRIP_ROWS * STRIP_PANELS];
    BOLIDE_UNROLL
    for (int i = 0; i < rows * panels; i++)
        sum[i] = f32_zero();
    for (int64_t c = 0; c < d; c++) {
        f32x16 b[STRIP_PANELS];
        BOLIDE_UNROLL
        for (int i = 0; i < panels; i++)
            b[i] = f32_load(panel + (i * d + c) * 16);
        BOLIDE_UNROLL
        for (int m = 0; m < rows; m++) {
            const f32x16 a = f32_set(q[c * rows + m]);
            BOLIDE_UNROLL
            for (int i = 0; i < panels; i++)
                sum[m * panels + i] = f32_fma(a, b[i], sum[m * panels + i]);
        }
    }
    BOLIDE_UNROLL
    for (int m = 0; m < rows; m++) {
        BOLIDE_UNROLL
        for (int i = 0; i < panels; i++)
            f32_store(scores + m * BLOCK + 16 * i, sum[m * panels + i]);
    }
}

/* o[m] = o[m] * alpha[m] + sum over j in [first, end) of weights[m * BLOCK + j] * v[j]. */
BOLIDE_INLINE void strip_values(int rows, int panels, const float *weights, const float *alpha,
                                const float *panel, int first, int end, float *o,
                                int64_t o_stride) {
    f32x16 sum[STRIP_ROWS * STRIP_PANELS];
    BOLIDE_UNROLL
    for (int m = 0; m < rows; m++) {
        BOLIDE_UNROLL
        for (int i = 0; i < panels; i++)
            sum[m * panels + i] = f32_mul(f32_load(o + m * o_stride + 16 * i), f32_set(alpha[m]));
    }
    for (int j = first; j < end; j++) {
        f32x16 b[STRIP_PANELS];
        BOLIDE_UNROLL
        for (int i = 0; i < panels; i++)
            b[i] = f32_load(panel + (i * BLOCK + j) * 16);
        BOLIDE_UNROLL
        for (int m = 0; m < rows; m++) {
            const f32x16 a = f32_set(weights[m * BLOCK + j]);
            BOLIDE_UNROLL
            for (int i = 0; i < panels; i++)
                sum[m * panels + i] = f32_fma(a, b[i], sum[m * panels + i]);
        }
    }
    BOLIDE_UNROLL
    for (int m = 0; m < rows; m++) {
        BOLIDE_UNROLL
        for (int i = 0; i < panels; i++)
            f32_store(o + m * o_stride + 16 * i, sum[m * panels + i]);
    }
}

/* ---- strips ------------------------------------------------------------------------------- */

/* A strip of a tile: its rows, and the keys [first, end) that hold all it sees. */
typedef struct strip {
    int row, rows;
    int first, end;
} strip;

/* Rows of the next strip when `left` rows are left: the full strip, else the largest of 1, 2, 4, 8
 * that fits. */
BOLIDE_INLINE int strip_rows(int64_t left) {
    if (left >= STRIP_ROWS)
        return STRIP_ROWS;
    return STRIP_ROWS > 8 && left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* Calls F with the row count as a constant. */
#if BOLIDE_SIMD_512
#define FOR_STRIP(rows, F)                                                                         \
    switch (rows) {                                                                                \
    case STRIP_ROWS:                                                                               \
        F(STRIP_ROWS);                                                                             \
        break;                                                                                     \
    case 8:                                                                                        \
        F(8);                                                                                      \
        break;                                                                                     \
    case 4:                                                                                        \
        F(4);                                                                                      \
        break;                                                                                     \
    case 2:                                                                                        \
        F(2);                                                                                      \
        break;                                                                                     \
    default:                                                                                       \
        F(1);                                                                                      \
        break;                                                                                     \
    }
#else
#define FOR_STRIP(rows, F)                                                                         \
    switch (rows) {                                                                                \
    case STRIP_ROWS:                                                                               \
        F(STRIP_ROWS);                                                                             \
        break;                                                                                     \
    case 4:                                                                                        \
        F(4);                                                                                      \
        break;                                                                                     \
    case 2:                                                                                        \
        F(2);                                                                                      \
        break;                                                                                     \
    default:                                                                                       \
        F(1);                                                                                      \
        break;                                                                                     \
    }
#endif

/* A strip of queries, row by row, to [d][rows]. */
static void pack_queries(int rows, const float *q, int64_t q_stride, int64_t d, float *to) {
    for (int m = 0; m < rows; m++) {
        for (int64_t c = 0; c < d; c++)
            to[c * rows + m] = q[m * q_stride + c];
    }
}

/* Scores of all strips. A panel stays in the first cache while the rows pass by it. */
static void tile_scores(const strip *strips, int count, const float *q, const float *panels, int n,
                        int64_t d, float *scores) {
    for (int key = 0; key < n; key += 16 * STRIP_PANELS) {
        const float *panel = panels + key * d;
        const int wide = key + 16 < n ? STRIP_PANELS : 1;
        for (int i = 0; i < count; i++) {
            const strip *t = &strips[i];
            const float *rows = q + t->row * d;
            float *to = scores + t->row * BLOCK + key;
            if (t->end <= key || t->first >= key + 16 * wide)
                continue;
            if (wide == 1) {
#define NARROW(m) strip_scores(m, 1, rows, panel, d, to)
                FOR_STRIP(t->rows, NARROW)
#undef NARROW
            } else {
#define WIDE(m) strip_scores(m, STRIP_PANELS, rows, panel, d, to)
                FOR_STRIP(t->rows, WIDE)
#undef WIDE
            }
        }
    }
}

/* Weighted values of all strips, a panel of columns at a time. */
static void tile_values(const strip *strips, int count, const float *weights, const float *alpha,
                        const float *panels, int64_t d, float *o, int64_t o_stride) {
    for (int64_t c = 0; c < d; c += 16 * STRIP_PANELS) {
        const float *panel = panels + c * BLOCK;
        const int wide = c + 16 < d ? STRIP_PANELS : 1;
        for (int i = 0; i < count; i++) {
            const strip *t = &strips[i];
            const float *w = weights + t->row * BLOCK, *a = alpha + t->row;
            float *to = o + t->row * o_stride + c;
            if (wide == 1) {
#define NARROW(m) strip_values(m, 1, w, a, panel, t->first, t->end, to, o_stride)
                FOR_STRIP(t->rows, NARROW)
#undef NARROW
            } else {
#define WIDE(m) strip_values(m, STRIP_PANELS, w, a, panel, t->first, t->end, to, o_stride)
                FOR_STRIP(t->rows, WIDE)
#undef WIDE
            }
        }
    }
}
#undef FOR_STRIP

#endif
