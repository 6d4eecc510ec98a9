// SPDX-License-Identifier: Apache-2.0
//
// What the matrix products share: the parameter structs that fronts fill and kernels take, and the
// sizes of GGUF blocks.

#ifndef BOLIDE_OPS_GEMM_INTERNAL_H
#define BOLIDE_OPS_GEMM_INTERNAL_H

#include <bolide/gemm.h>

#ifndef __CUDACC_RTC__
#include "cpu/cpu.h"
#include "cpu/microkernel.h"
#include <stdint.h>
#endif

/* Where results go: out[i, j] = sum + bias[j], rounded once. */
typedef struct bolide__gemm_out {
    void *data;       /* [m, n] */
    const void *bias; /* [n]; NULL: none */
    int64_t row;      /* stride of m in elements; n is contiguous */
    int64_t dtype, bias_dtype;
} bolide__gemm_out;

/* Products with f32 operands: activations [m, k] that lie as f32 rows, padded with zeros to a
 * multiple of 32, and weights in any format that become f32 on the way. */
typedef struct bolide__dot_params {
    const void *input; /* [m, k] */
    float *widened;    /* [m, depth]: input as f32; NULL: input is used as it lies */
    const float *a;    /* [m, depth]: widened or input */
    const uint8_t *weight;
    int64_t input_row, input_dtype;
    int64_t a_row;              /* stride of a in elements */
    int64_t depth;              /* k padded to a multiple of 32 */
    int64_t weight_n, weight_k; /* strides in bytes; weight_k counts where gathered is set */
    int64_t gathered;           /* 1: the numbers of a row do not lie side by side */
    int64_t format;             /* bolide_weight_format */
    int64_t m, n, k;
    int64_t m_pieces; /* chunks of BOLIDE__DOT_ROWS rows of m */
    bolide__gemm_out out;
} bolide__dot_params;

enum {
    BOLIDE__DOT_ROWS = 36, /* of m in a piece: a multiple of every tile's height */
    BOLIDE__DOT_COLS = 8,  /* of n in a piece */
    BOLIDE__DOT_FEW = 4    /* up to so many rows of m, weights are not unpacked to memory */
};

/* Products of activations in one plane of bytes, or in two for 16 bits, with blocks. kb = k / 32.
 */
typedef struct bolide__int8_params {
    const void *input; /* [m, k] */
    int8_t *q;         /* [planes, m, k]: input / scale, by quantize_rows like the next three */
    int64_t planes;    /* 1: q; 2: high, low with q = 255 high + low */
    int64_t plane;     /* m * k */
    float *scale;      /* [m, kb] */
    float *sum;        /* [m, kb]: scale * (sum of q) */
    int32_t *offset;   /* [m, kb]: (sum of q) * taken_off */
    const uint8_t *weight;
    int64_t input_row, input_dtype;
    int64_t weight_n; /* stride in bytes */
    int64_t format;
    int64_t m, n, kb;
    int64_t m_pieces;  /* chunks of BOLIDE__INT8_ROWS rows of m */
    int64_t taken_off; /* from each weight as it is multiplied: 8 for q4_0 */
    int vnni;          /* the chip has it: q8_0 is multiplied as w + 128 */
    bolide__gemm_out out;
} bolide__int8_params;

enum { BOLIDE__INT8_ROWS = 128, BOLIDE__INT8_COLS = 16 };

#ifndef __CUDACC_RTC__
/* Products of dense operands, both regrouped into the panels of a micro-kernel. k is cut into
 * slices of `slice` numbers; a holds, slice by slice, the panels of all tiles of mr rows of m. */
typedef struct bolide__tile_params {
    const bolide__gemm_kernel *kernel;
    const void *input;  /* [m, k] */
    char *a;            /* panels of at most BOLIDE__TILE_CHUNK rows of input */
    const void *weight; /* [k, n], one of its strides 1 */
    int64_t input_row;  /* strides in elements */
    int64_t weight_n, weight_k;
    int64_t dtype; /* of both operands */
    int64_t m, n, k, slice;
    int64_t first, rows; /* the rows of m at hand */
    int64_t m_pieces;    /* groups of BOLIDE__TILE_ROWS rows in them */
    int64_t columns;     /* of a piece: a multiple of nr */
    bolide__gemm_out out;
} bolide__tile_params;

enum {
    BOLIDE__TILE_CHUNK = 768,      /* rows of m that are packed at a time: bounds the workspace */
    BOLIDE__TILE_ROWS = 192,       /* rows of m in a piece: a multiple of every mr */
    BOLIDE__TILE_COLS = 64,        /* columns of a piece: a multiple of every nr */
    BOLIDE__TILE_PANEL = 32 << 10, /* bytes of a slice of a panel of b: it stays in L1 */
    BOLIDE__TILE_FAR = 1 << 20 /* bytes of a that are too many to pass by with every panel of b */
};
#endif

/* Bytes of a block of 32 numbers. */
static inline int64_t bolide__weight_block_bytes(int64_t format) {
    switch (format) {
    case BOLIDE_WEIGHT_Q4_0:
        return 18;
    case BOLIDE_WEIGHT_Q4_1:
        return 20;
    case BOLIDE_WEIGHT_Q8_0:
        return 34;
    case BOLIDE_WEIGHT_F32:
        return 128;
    default:
        return 64;
    }
}

#ifndef __CUDACC_RTC__

static inline int64_t bolide__gemm_depth(int64_t k) {
    return (k + 31) / 32 * 32;
}
/* 1 if f32 activations can be read where they lie. */
static inline int bolide__gemm_in_place(int64_t input_dtype, int64_t k) {
    return input_dtype == BOLIDE_F32 && k % 32 == 0;
}
/* Strips of a weight in a piece where each weight is used once: enough bytes that reading ahead
 * pays, few enough that pieces are even. */
static inline int64_t bolide__gemm_grain(int64_t strips, int64_t strip_bytes) {
    const int64_t fair = strips * strip_bytes / 32;
    const int64_t bytes = fair < (16 << 10) ? 16 << 10 : fair > (128 << 10) ? 128 << 10 : fair;
    return strip_bytes >= bytes ? 1 : bytes / (strip_bytes ? strip_bytes : 1);
}
bolide__gemm_out bolide__gemm_results(const bolide_tensor *out, const bolide_tensor *bias);
/* Runs both kernels below. The caller fills everything but a, a_row, depth and m_pieces. */
void bolide__gemm_dot(const bolide_context *ctx, bolide__dot_params *p);

/* Bytes of workspace for the panels of a, and the product itself. The caller of the second fills
 * everything but slice, first, rows and m_pieces. */
int64_t bolide__gemm_tile_bytes(const bolide__gemm_kernel *kernel, int64_t m, int64_t k);
void bolide__gemm_tile(const bolide_context *ctx, bolide__tile_params *p);

/* arg is a bolide__tile_params; items are columns of nr times groups of rows. */
BOLIDE_CPU_KERNEL(tile_pieces, (void *arg, int64_t begin, int64_t end, int worker));
/* arg is a bolide__dot_params; items are rows of m, then pieces of n times pieces of m. */
BOLIDE_CPU_KERNEL(widen_rows, (void *arg, int64_t begin, int64_t end, int worker));
BOLIDE_CPU_KERNEL(dot_pieces, (void *arg, int64_t begin, int64_t end, int worker));
/* arg is a bolide__int8_params; likewise. */
BOLIDE_CPU_KERNEL(quantize_rows, (void *arg, int64_t begin, int64_t end, int worker));
BOLIDE_CPU_KERNEL(int8_pieces, (void *arg, int64_t begin, int64_t end, int worker));
#endif

#endif
