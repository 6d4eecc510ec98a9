// SPDX-License-Identifier: Apache-2.0
//
// Matrix products: dense 16-bit operands, and activations times weights that stay in the blocks of
// a GGUF file. Products are accumulated in f32 and rounded once to the output's dtype. A product
// with k = 0 is the bias, or 0 without one. Operands with more than one row need scratch memory;
// bolide_op_workspace says how much.
//
// Same bits: an output element has the same bits for any number of threads. With the context's
// batch_invariant setting its bits do not depend on m either; mm_block_quant has this property
// always.

#ifndef BOLIDE_GEMM_H
#define BOLIDE_GEMM_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out = a b (+ bias). b is passed as FlashInfer passes it, column-major: [k, n] with strides (1,
 * k), the transposed view of a weight [n, k]; any other strides are honoured, too. */
typedef struct bolide_mm_bf16_args {
    bolide_args_head head;
    const bolide_tensor *a;            /* [m, k]: f16 or bf16 */
    const bolide_tensor *b;            /* [k, n]: dtype of a */
    const bolide_tensor *bias;         /* [n]: f16, bf16 or f32; optional */
    int64_t out_dtype;                 /* bf16 (default), f16 or f32 */
    const bolide_tensor *out;          /* [m, n]: out_dtype */
    const bolide_workspace *workspace; /* device_bytes; see bolide_op_workspace */
} bolide_mm_bf16_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_mm_bf16(const bolide_context *ctx,
                                                        const bolide_mm_bf16_args *args,
                                                        bolide_stream stream);

/* out[i] = A[i] B[i] for each i of a batch. */
typedef struct bolide_bmm_bf16_args {
    bolide_args_head head;
    const bolide_tensor *A;            /* [b, m, k]: f16 or bf16 */
    const bolide_tensor *B;            /* [b, k, n]: dtype of A, column-major as above */
    int64_t out_dtype;                 /* bf16 (default), f16 or f32 */
    const bolide_tensor *out;          /* [b, m, n]: out_dtype */
    const bolide_workspace *workspace; /* device_bytes; see bolide_op_workspace */
} bolide_bmm_bf16_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_bmm_bf16(const bolide_context *ctx,
                                                         const bolide_bmm_bf16_args *args,
                                                         bolide_stream stream);

/* How the rows of a weight are stored: the tensor types of GGUF. A row of k numbers is
 *
 *     f32 f16 bf16   k little-endian numbers
 *     q4_0           k/32 blocks of 18 bytes: f16 d, 16 bytes q;      number = d (q - 8)
 *     q4_1           k/32 blocks of 20 bytes: f16 d, f16 m, 16 bytes; number = d q + m
 *     q8_0           k/32 blocks of 34 bytes: f16 d, 32 signed bytes; number = d q
 *
 * In a 4-bit block byte i holds number i in its low half and number i + 16 in its high half. k is
 * a multiple of 32 for the blocks. Rows need no alignment. */
typedef enum bolide_weight_format {
    BOLIDE_WEIGHT_F32,
    BOLIDE_WEIGHT_F16,
    BOLIDE_WEIGHT_BF16,
    BOLIDE_WEIGHT_Q4_0,
    BOLIDE_WEIGHT_Q4_1,
    BOLIDE_WEIGHT_Q8_0
} bolide_weight_format;

/* out = input weight^T (+ bias). compute:
 *
 *     f32   weights become f32 in registers; nothing is rounded but f32 sums
 *     int8  each 32 activations of a row are rounded to 8 bits first: scale = max|x| / 127,
 *           q = round(x / scale). Products are exact integers, combined in f32. A block that has
 *           NaN or an infinity makes its row of out NaN; one below 2^-110 counts as 0. For the
 *           block formats only.
 *     int16 the same with scale = max|x| / 32512: 256 times as fine at about twice the arithmetic,
 *           which costs little where memory is the limit, as with few rows. */
typedef struct bolide_mm_block_quant_args {
    bolide_args_head head;
    const bolide_tensor *input;        /* [m, k]: f32, f16, bf16 */
    const bolide_tensor *weight;       /* [n, bytes of a row]: u8 */
    const bolide_tensor *bias;         /* [n]: f16, bf16 or f32; optional */
    const bolide_tensor *out;          /* [m, n]: f32, f16, bf16 */
    int64_t format;                    /* bolide_weight_format; no default */
    int64_t compute;                   /* 0 f32 (default), 1 int8, 2 int16 */
    const bolide_workspace *workspace; /* device_bytes; see bolide_op_workspace */
} bolide_mm_block_quant_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_mm_block_quant(
    const bolide_context *ctx, const bolide_mm_block_quant_args *args, bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
