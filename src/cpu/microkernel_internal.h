// SPDX-License-Identifier: Apache-2.0
//
// What the files of the micro-kernels share: the names of the entries of each instruction set, and
// the switch from a dtype at run time to one that is a constant.

#ifndef BOLIDE_CPU_MICROKERNEL_INTERNAL_H
#define BOLIDE_CPU_MICROKERNEL_INTERNAL_H

#include "cpu/microkernel.h"

/* do_it(d) with the constant d equal to dtype. */
#define BOLIDE__EACH_DTYPE(dtype, do_it)                                                           \
    switch (dtype) {                                                                               \
    case BOLIDE_F16:                                                                               \
        do_it(BOLIDE_F16);                                                                         \
        break;                                                                                     \
    case BOLIDE_BF16:                                                                              \
        do_it(BOLIDE_BF16);                                                                        \
        break;                                                                                     \
    case BOLIDE_F8_E4M3FN:                                                                         \
        do_it(BOLIDE_F8_E4M3FN);                                                                   \
        break;                                                                                     \
    case BOLIDE_F8_E5M2:                                                                           \
        do_it(BOLIDE_F8_E5M2);                                                                     \
        break;                                                                                     \
    default:                                                                                       \
        do_it(BOLIDE_F32);                                                                         \
        break;                                                                                     \
    }

extern const bolide__gemm_kernel bolide__gemm_f32_entry_baseline;
#if defined(__x86_64__)
extern const bolide__gemm_kernel bolide__gemm_f32_entry_avx2;
extern const bolide__gemm_kernel bolide__gemm_f32_entry_emu512;
extern const bolide__gemm_kernel bolide__gemm_f32_entry_avx512;
/* Units beside the base set, compiled with AVX-512 only. */
extern const bolide__gemm_kernel bolide__gemm_bf16_entry_avx512;
extern const bolide__gemm_kernel bolide__gemm_amx_entry_avx512;
#endif

#endif
