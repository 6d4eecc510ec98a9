// SPDX-License-Identifier: Apache-2.0
//
// Walking over the items of rows times columns (core/rows_internal.h): one division to find where a
// thread begins, in 32 bits where they suffice, and additions from there.

#ifndef BOLIDE_CUDA_DEVICE_WALK_CUH
#define BOLIDE_CUDA_DEVICE_WALK_CUH

#include "core/rows_internal.h"
#include "cuda/device/base.cuh"

struct place {
    int64_t row;
    uint32_t column;
};

/* a / b, where a 64-bit division would cost as much as the rest of a short row. A kernel that lacks
 * registers for both has an instance for counts that 32 bits hold and one for the rest. */
__forceinline__ int64_t quotient(int64_t a, int64_t b) {
#if defined(SPEC_WIDE)
    if constexpr (SPEC_WIDE)
        return a / b;
    else
        return (uint32_t)a / (uint32_t)b;
#else
    return (uint64_t)(a | b) >> 32 == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
#endif
}

__forceinline__ place place_of(const bolide__walk &w, int64_t item) {
    const int64_t row = quotient(item, w.columns);
    return {row, (uint32_t)(item - row * w.columns)};
}

/* One step on. */
__forceinline__ void advance(const bolide__walk &w, place &at) {
    at.row += w.step_rows;
    at.column += (uint32_t)w.step_columns;
    if (at.column >= (uint32_t)w.columns) {
        at.column -= (uint32_t)w.columns;
        at.row++;
    }
}

/* Element offset of row r of a tensor with h heads a token. */
__forceinline__ int64_t row_offset(const bolide__rows &t, int64_t r, int64_t h) {
    if (h == 1)
        return r * t.n;
    const int64_t n = quotient(r, h);
    return n * t.n + (r - n * h) * t.h;
}

#endif
