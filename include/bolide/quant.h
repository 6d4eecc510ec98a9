// SPDX-License-Identifier: Apache-2.0
//
// Packing of values into fewer bits.

#ifndef BOLIDE_QUANT_H
#define BOLIDE_QUANT_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which bit of a byte the first of eight values becomes: 128, as in numpy.packbits, or 1, as the
 * masks of attention have it. */
typedef enum bolide_bitorder { BOLIDE_BITORDER_BIG, BOLIDE_BITORDER_LITTLE } bolide_bitorder;

/* out[i] = the eight values x[8i] ... x[8i + 7], a bit each: 1 where the value is not 0. The last
 * byte is filled up with zeros. */
typedef struct bolide_packbits_args {
    bolide_args_head head;
    const bolide_tensor *x;   /* [n]: bool, u8; contiguous */
    int64_t bitorder;         /* bolide_bitorder; default big */
    const bolide_tensor *out; /* [ceil(n/8)]: u8 */
} bolide_packbits_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_packbits(const bolide_context *ctx,
                                                         const bolide_packbits_args *args,
                                                         bolide_stream stream);

/* packbits of b segments of x, each into whole bytes of its own. Segment i is x[indptr[i]] ...
 * x[indptr[i + 1] - 1], and its bytes begin at out[out_indptr[i]]:
 *
 *     out_indptr[0] = 0;  out_indptr[i + 1] = out_indptr[i] + ceil((indptr[i + 1] - indptr[i]) / 8)
 *
 * out must have room for out_indptr[b] bytes, of which ceil(n/8) + b are always enough; bytes
 * behind them are left as they are. indptr must not decrease and must lie in 0 ... n: on the CPU
 * that and the room are checked; on the device they are the caller's promise. */
typedef struct bolide_segment_packbits_args {
    bolide_args_head head;
    const bolide_tensor *x;          /* [n]: bool, u8; contiguous */
    const bolide_tensor *indptr;     /* [b + 1]: i32, i64 */
    int64_t bitorder;                /* bolide_bitorder; default big */
    const bolide_tensor *out;        /* [m]: u8 */
    const bolide_tensor *out_indptr; /* [b + 1]: dtype of indptr */
} bolide_segment_packbits_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_segment_packbits(
    const bolide_context *ctx, const bolide_segment_packbits_args *args, bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
