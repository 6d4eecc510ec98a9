// SPDX-License-Identifier: Apache-2.0
//
// wgmma of 16-bit operands in shared memory for the widths of tiles that only the dense products
// have: 32, 56, 112 and 224 columns. cuda/device/wgmma.cuh has the others.

#ifndef BOLIDE_OPS_GEMM_GEMM_WGMMA_CUH
#define BOLIDE_OPS_GEMM_GEMM_WGMMA_CUH

#include "cuda/device/wgmma.cuh"

// clang-format off
#define BOLIDE__R_16 BOLIDE__R0 ", " BOLIDE__R1
#define BOLIDE__R_28 BOLIDE__R0 ", " BOLIDE__R1 ", " BOLIDE__R2 ", %24, %25, %26, %27"
#define BOLIDE__R_56 \
    BOLIDE__R_40 ", " BOLIDE__R5 ", " BOLIDE__R6
#define BOLIDE__R_112 \
    BOLIDE__R_64 ", " BOLIDE__R8 ", " BOLIDE__R9 ", " BOLIDE__R10 ", " BOLIDE__R11 \
    ", " BOLIDE__R12 ", " BOLIDE__R13
#define BOLIDE__F_16(d) BOLIDE__F8(d, 0), BOLIDE__F8(d, 8)
#define BOLIDE__F_28(d) \
    BOLIDE__F_16(d), BOLIDE__F8(d, 16), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define BOLIDE__F_56(d) BOLIDE__F_40(d), BOLIDE__F8(d, 40), BOLIDE__F8(d, 48)
#define BOLIDE__F_112(d) \
    BOLIDE__F_64(d), BOLIDE__F8(d, 64), BOLIDE__F8(d, 72), BOLIDE__F8(d, 80), \
    BOLIDE__F8(d, 88), BOLIDE__F8(d, 96), BOLIDE__F8(d, 104)

BOLIDE__WGMMA_SHARED(32, 16, "16", "17", "18")
BOLIDE__WGMMA_SHARED(56, 28, "28", "29", "30")
BOLIDE__WGMMA_SHARED(112, 56, "56", "57", "58")
BOLIDE__WGMMA_SHARED(224, 112, "112", "113", "114")
// clang-format on

#endif
