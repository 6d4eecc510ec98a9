// SPDX-License-Identifier: Apache-2.0
//
// The last step of the products on the GPU: bias, rounding, store.

#ifndef BOLIDE_OPS_GEMM_STORE_CUH
#define BOLIDE_OPS_GEMM_STORE_CUH

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"

/* Element `column` of the bias as a float; 0 where there is none. */
template <int64_t BIAS> __forceinline__ float bias_of(const void *bias, int64_t column) {
    if constexpr (BIAS == 0)
        return 0.0f;
    else
        return to_float(static_cast<const typename element<BIAS>::type *>(bias)[column]);
}

/* One element of a row; without a bias nothing is added, so that -0 stays. */
template <int64_t BIAS, class T>
__forceinline__ void store_sum(T *row, int64_t column, float sum, const void *bias) {
    row[column] = from_float<T>(BIAS ? sum + bias_of<BIAS>(bias, column) : sum);
}

#endif
