// SPDX-License-Identifier: Apache-2.0
//
// Products of f32 activations with weights that become f32 on the way. An output element is a sum
// over 16 lanes: lane l is the chain over k = l, l + 16, l + 32, …, and the lanes meet in one fixed
// tree. So its bits depend on its row and column alone: not on m, threads or instruction set.
//
// Up to 4 rows of activations meet weights that are unpacked in registers, each read once: the
// limit is memory. More rows share 8 rows of the weight that were unpacked into L1, one chunk of k
// at a time, and a tile of both is held in registers: the limit is the multiplier.
//
//      a   [36 rows][chunk]   in L2, one tile of rows in L1     lanes along k in both, so that
//      w   [ 8 rows][chunk]   in L1                             neither has to be transposed
//      acc [36][8][16 lanes]  in L2, once in and out a chunk

#include "core/tensor.h"
#include "cpu/simd_block.h"
#include "ops/gemm/gemm_store.h"

enum {
#if defined(BOLIDE_ISA_AVX512)
    TILE_ROWS = 6, /* 24 sums and 5 operands in 32 registers */
    TILE_COLS = 4,
#else
    TILE_ROWS = 3, /* 12 sums and 4 operands in 16 registers, two a vector of 16 lanes */
    TILE_COLS = 2,
#endif
    COLS = BOLIDE__DOT_COLS,
    CHUNK = 768 /* of k: 8 rows of f32 take 24 KB of L1 */
};

/* ---- activations to f32 ------------------------------------------------------------------- */

BOLIDE_INLINE void widen_row(const bolide__dot_params *p, int64_t row, int64_t dtype) {
    const void *x = dtype_at(p->input, dtype, row * p->input_row);
    float *to = p->widened + row * p->depth;
    for (int64_t k = 0; k < p->depth; k += 16)
        f32_store(to + k, load16_n(dtype_at(x, dtype, k < p->k ? k : 0), dtype, p->k - k));
}

void BOLIDE_ISA(widen_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__dot_params *p = arg;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        if (p->input_dtype == BOLIDE_F32)
            widen_row(p, row, BOLIDE_F32);
        else if (p->input_dtype == BOLIDE_F16)
            widen_row(p, row, BOLIDE_F16);
        else
            widen_row(p, row, BOLIDE_BF16);
    }
}

/* ---- weights to f32 ----------------------------------------------------------------------- */

BOLIDE_INLINE int64_t dense_dtype(int64_t format) {
    return format == BOLIDE_WEIGHT_F16    ? BOLIDE_F16
           : format == BOLIDE_WEIGHT_BF16 ? BOLIDE_BF16
                                          : BOLIDE_F32;
}

/* Numbers k … k + 31 of a row, zeros behind the last. q * d is exact in f32, so adding min rounds
 * once whether or not the instruction set fuses. */
BOLIDE_INLINE void widen_weights(const uint8_t *row, int64_t k, int64_t count, int64_t format,
                                 f32x16 to[2]) {
    const uint8_t *block = row + k / BLOCK_SIZE * bolide__weight_block_bytes(format);
    if (format == BOLIDE_WEIGHT_Q4_0 || format == BOLIDE_WEIGHT_Q4_1) {
        const bool has_min = format == BOLIDE_WEIGHT_Q4_1;
        const f32x16 d = f16_broadcast(block);
        i32x16 q[2];
        nibbles_widen(block + (has_min ? 4 : 2), &q[0], &q[1]);
        for (int i = 0; i < 2; i++)
            to[i] = has_min ? f32_fma(i32_to_f32(q[i]), d, f16_broadcast(block + 2))
                            : f32_mul(i32_to_f32(i32_sub(q[i], i32_set(8))), d);
    } else if (format == BOLIDE_WEIGHT_Q8_0) {
        const f32x16 d = f16_broadcast(block);
        for (int i = 0; i < 2; i++)
            to[i] = f32_mul(i32_to_f32(i8_load(block + 2 + 16 * i)), d);
    } else {
        const int64_t dtype = dense_dtype(format);
        for (int i = 0; i < 2; i++)
            to[i] = count >= BLOCK_SIZE
                        ? load16(dtype_at(block, dtype, 16 * i), dtype)
                        : load16_n(dtype_at(block, dtype, count > 16 * i ? 16 * i : 0), dtype,
                                   count - 16 * i);
    }
}

/* ---- few rows of activations -------------------------------------------------------------- */

/* `cols` rows of the weight from col + at on, with `rows` rows of activations. */
BOLIDE_INLINE void few_tile(const bolide__dot_params *p, int64_t col, int at, int rows, int cols,
                            int64_t format, float (*to)[COLS]) {
    f32x16 acc[BOLIDE__DOT_FEW][4];
    const uint8_t *w[4];
    BOLIDE_UNROLL
    for (int j = 0; j < cols; j++) {
        const int64_t n = col + at + j;
        w[j] = p->weight + (n < p->n ? n : p->n - 1) * p->weight_n;
        BOLIDE_UNROLL
        for (int i = 0; i < rows; i++)
            acc[i][j] = f32_zero();
    }
    const uint8_t *here = p->weight + (col + at) * p->weight_n;
    const int64_t bytes = bolide__weight_block_bytes(format);
    for (int64_t k = 0; k < p->depth; k += BLOCK_SIZE) {
        gemm_fetch_ahead(here + k / BLOCK_SIZE * bytes * cols, bytes * cols);
        BOLIDE_UNROLL
        for (int j = 0; j < cols; j++) {
            f32x16 v[2];
            widen_weights(w[j], k, p->k - k, format, v);
            BOLIDE_UNROLL
            for (int i = 0; i < rows; i++) {
                const float *a = p->a + i * p->a_row + k;
                acc[i][j] = f32_fma(f32_load(a), v[0], acc[i][j]);
                acc[i][j] = f32_fma(f32_load(a + 16), v[1], acc[i][j]);
            }
        }
    }
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++) {
        BOLIDE_UNROLL
        for (int j = 0; j < cols; j++)
            to[i][at + j] = f32_sum(acc[i][j]);
    }
}

BOLIDE_INLINE void few_rows(const bolide__dot_params *p, int64_t col, int64_t format) {
    float to[BOLIDE__DOT_FEW][COLS];
    const int cols = p->m == 1 ? 4 : p->m == 2 ? 2 : 1;
    for (int at = 0; at < COLS; at += cols) {
        if (p->m == 1)
            few_tile(p, col, at, 1, 4, format, to);
        else if (p->m == 2)
            few_tile(p, col, at, 2, 2, format, to);
        else if (p->m == 3)
            few_tile(p, col, at, 3, 1, format, to);
        else
            few_tile(p, col, at, 4, 1, format, to);
    }
    const int64_t count = p->n - col < COLS ? p->n - col : COLS;
    for (int64_t i = 0; i < p->m; i++)
        gemm_store(&p->out, i, col, count, f32_load_n(to[i], COLS));
}

/* ---- many rows of activations ------------------------------------------------------------- */

typedef struct tiles {
    _Alignas(64) float w[COLS][CHUNK];
    float acc[BOLIDE__DOT_ROWS][COLS][BOLIDE_LANES];
} tiles;

/* Sums [row + i][col + j] take `depth` numbers of k; a is row `row` of the chunk. */
BOLIDE_INLINE void dot_tile(const float *a, int64_t a_row, tiles *t, int64_t row, int col,
                            int64_t depth, int rows) {
    f32x16 s[TILE_ROWS][TILE_COLS];
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++) {
        BOLIDE_UNROLL
        for (int j = 0; j < TILE_COLS; j++)
            s[i][j] = f32_load(t->acc[row + i][col + j]);
    }
    for (int64_t k = 0; k < depth; k += BOLIDE_LANES) {
        f32x16 v[TILE_COLS];
        BOLIDE_UNROLL
        for (int j = 0; j < TILE_COLS; j++)
            v[j] = f32_load(t->w[col + j] + k);
        BOLIDE_UNROLL
        for (int i = 0; i < rows; i++) {
            const f32x16 x = f32_load(a + i * a_row + k);
            BOLIDE_UNROLL
            for (int j = 0; j < TILE_COLS; j++)
                s[i][j] = f32_fma(x, v[j], s[i][j]);
        }
    }
    BOLIDE_UNROLL
    for (int i = 0; i < rows; i++) {
        BOLIDE_UNROLL
        for (int j = 0; j < TILE_COLS; j++)
            f32_store(t->acc[row + i][col + j], s[i][j]);
    }
}

/* Dense weights whose numbers do not lie side by side. */
static void gather_weights(const bolide__dot_params *p, int64_t col, int64_t k, float *to) {
    const uint8_t *w = p->weight + col * p->weight_n;
    for (int64_t i = 0; i < BLOCK_SIZE; i++) {
        const uint8_t *at = w + (k + i < p->k ? k + i : 0) * p->weight_k;
        const int64_t dtype = dense_dtype(p->format);
        const f32x16 v = dtype == BOLIDE_F32   ? f32_load_n((const float *)(const void *)at, 1)
                         : dtype == BOLIDE_F16 ? f16_load_n(at, 1)
                                               : bf16_load_n(at, 1);
        to[i] = k + i < p->k ? f32_lane(v, 0) : 0.0f;
    }
}

BOLIDE_INLINE void unpack(const bolide__dot_params *p, int64_t col, int64_t k, int64_t depth,
                          int64_t format, tiles *t) {
    for (int j = 0; j < COLS; j++) {
        const int64_t n = col + j < p->n ? col + j : p->n - 1;
        for (int64_t i = 0; i < depth; i += BLOCK_SIZE) {
            f32x16 v[2];
            if (p->gathered) {
                gather_weights(p, n, k + i, t->w[j] + i);
                continue;
            }
            widen_weights(p->weight + n * p->weight_n, k + i, p->k - k - i, format, v);
            f32_store(t->w[j] + i, v[0]);
            f32_store(t->w[j] + i + 16, v[1]);
        }
    }
}

BOLIDE_INLINE void multiply(const float *a, int64_t a_row, int64_t count, int64_t depth, tiles *t) {
    int64_t i = 0;
    for (; i + TILE_ROWS <= count; i += TILE_ROWS)
        for (int j = 0; j < COLS; j += TILE_COLS)
            dot_tile(a + i * a_row, a_row, t, i, j, depth, TILE_ROWS);
    for (; i < count; i++)
        for (int j = 0; j < COLS; j += TILE_COLS)
            dot_tile(a + i * a_row, a_row, t, i, j, depth, 1);
}

BOLIDE_INLINE void many_rows(const bolide__dot_params *p, int64_t col, int64_t first, int64_t count,
                             int64_t format) {
    tiles t;
    memset(t.acc, 0, (size_t)count * sizeof t.acc[0]);
    const int64_t chunks = (p->depth + CHUNK - 1) / CHUNK;
    const int64_t even = chunks ? (p->depth / BLOCK_SIZE + chunks - 1) / chunks * BLOCK_SIZE : 0;
    for (int64_t k = 0; k < p->depth; k += even) {
        const int64_t depth = p->depth - k < even ? p->depth - k : even;
        unpack(p, col, k, depth, format, &t);
        multiply(p->a + first * p->a_row + k, p->a_row, count, depth, &t);
    }
    for (int64_t i = 0; i < count; i++) {
        float to[COLS];
        for (int j = 0; j < COLS; j++)
            to[j] = f32_sum(f32_load(t.acc[i][j]));
        gemm_store(&p->out, first + i, col, p->n - col < COLS ? p->n - col : COLS,
                   f32_load_n(to, COLS));
    }
}

/* ---- pieces ------------------------------------------------------------------------------- */

BOLIDE_INLINE void piece(const bolide__dot_params *p, int64_t item, int64_t format) {
    const int64_t col = item / p->m_pieces * COLS;
    const int64_t first = item % p->m_pieces * BOLIDE__DOT_ROWS;
    const int64_t left = p->m - first;
    if (p->m <= BOLIDE__DOT_FEW && !p->gathered)
        few_rows(p, col, format);
    else
        many_rows(p, col, first, left < BOLIDE__DOT_ROWS ? left : BOLIDE__DOT_ROWS, format);
}

void BOLIDE_ISA(dot_pieces)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__dot_params *p = arg;
    (void)worker;
    for (int64_t item = begin; item < end; item++) {
        switch (p->format) {
        case BOLIDE_WEIGHT_F32:
            piece(p, item, BOLIDE_WEIGHT_F32);
            break;
        case BOLIDE_WEIGHT_F16:
            piece(p, item, BOLIDE_WEIGHT_F16);
            break;
        case BOLIDE_WEIGHT_BF16:
            piece(p, item, BOLIDE_WEIGHT_BF16);
            break;
        case BOLIDE_WEIGHT_Q4_0:
            piece(p, item, BOLIDE_WEIGHT_Q4_0);
            break;
        case BOLIDE_WEIGHT_Q4_1:
            piece(p, item, BOLIDE_WEIGHT_Q4_1);
            break;
        default:
            piece(p, item, BOLIDE_WEIGHT_Q8_0);
            break;
        }
    }
}
