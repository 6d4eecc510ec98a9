// SPDX-License-Identifier: Apache-2.0
//
// The place of an item among rows times columns. A division of 64 bits costs as much as the rest of
// a short row, and registers besides, so kernels have an instance for counts that 32 bits hold
// (SPEC_WIDE 0) and one for the rest.

#ifndef BOLIDE_CUDA_DEVICE_WALK_CUH
#define BOLIDE_CUDA_DEVICE_WALK_CUH

#include "core/rows_internal.h"
#include "cuda/device/base.cuh"

#if !defined(SPEC_WIDE)
#error "WIDE: 1 where a count of items does not fit in 32 bits"
#endif
constexpr bool WIDE = SPEC_WIDE;

struct place {
    int64_t row;
    uint32_t column;
};

__forceinline__ int64_t quotient(int64_t a, int64_t b) {
    if constexpr (WIDE)
        return a / b;
    else
        return (uint32_t)a / (uint32_t)b;
}

/* Of an item in rows of so many columns. */
__forceinline__ place place_of(int64_t columns, int64_t item) {
    const int64_t row = quotient(item, columns);
    return {row, (uint32_t)(item - row * columns)};
}

/* Element offset of row r of a tensor with h heads a token. */
__forceinline__ int64_t row_offset(const bolide__rows &t, int64_t r, int64_t h) {
    if (h == 1)
        return r * t.n;
    const int64_t n = quotient(r, h);
    return n * t.n + (r - n * h) * t.h;
}

#endif
