// SPDX-License-Identifier: Apache-2.0
//
// Reading GGUF blocks, for the micro-kernels that do: the f16 at the head, the bytes, and the
// switch from a format at run time to one that is a constant.

#ifndef BOLIDE_CPU_MICROKERNEL_QUANT_H
#define BOLIDE_CPU_MICROKERNEL_QUANT_H

#include "cpu/microkernel.h"
#include "cpu/simd.h"

/* do_it(f) with the constant f equal to format. */
#define EACH_FORMAT(format, do_it)                                                                 \
    switch (format) {                                                                              \
    case BOLIDE__Q4_0:                                                                             \
        do_it(BOLIDE__Q4_0);                                                                       \
        break;                                                                                     \
    case BOLIDE__Q4_1:                                                                             \
        do_it(BOLIDE__Q4_1);                                                                       \
        break;                                                                                     \
    case BOLIDE__Q8_0:                                                                             \
        do_it(BOLIDE__Q8_0);                                                                       \
        break;                                                                                     \
    }

BOLIDE_INLINE float block_f16(const uint8_t *p) {
#if BOLIDE_SIMD_HAS_F16
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
#else
    return f32_lane(f16_load_n(p, 1), 0);
#endif
}

/* The 32 elements of a block in order, a byte each: 0 to 15, or signed. */
BOLIDE_INLINE void block_bytes_of(const uint8_t *p, bolide__block_format format,
                                  uint8_t q[BOLIDE__BLOCK]) {
    if (format == BOLIDE__Q8_0) {
        memcpy(q, p + 2, BOLIDE__BLOCK);
        return;
    }
    /* Two words of 8 bytes: no byte's low half reaches the one below after the mask. */
    uint64_t packed[2], spread[4];
    memcpy(packed, p + (format == BOLIDE__Q4_1 ? 4 : 2), sizeof packed);
    for (int i = 0; i < 2; i++) {
        spread[i] = packed[i] & 0x0F0F0F0F0F0F0F0Fu;
        spread[i + 2] = packed[i] >> 4 & 0x0F0F0F0F0F0F0F0Fu;
    }
    memcpy(q, spread, BOLIDE__BLOCK);
}

#endif
