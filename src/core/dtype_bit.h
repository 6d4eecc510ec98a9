// SPDX-License-Identifier: Apache-2.0
//
// bolide_dtype_bit without a call: the door asks it of every tensor, so it is no search either.

#ifndef BOLIDE_CORE_DTYPE_BIT_H
#define BOLIDE_CORE_DTYPE_BIT_H

#include <bolide/core.h>

/* One more than the bit, by code and by 4, 8, 16, 32 or 64 bits; 0: there is none. */
extern const uint8_t bolide__bit_by_code[18][5];

static inline int64_t bolide__quick_dtype_bit(bolide_dtype d) {
    if (d.lanes != 1 || d.code > 17 || d.bits < 4 || d.bits > 64 || (d.bits & (d.bits - 1)) != 0)
        return 0;
    const int index = bolide__bit_by_code[d.code][__builtin_ctz(d.bits) - 2];
    return index ? (int64_t)1 << (index - 1) : 0;
}

#endif
