// SPDX-License-Identifier: Apache-2.0
//
// Picks the tile for the instruction set in force and the units of the chip. The choice is
// a table, never a measurement, so that two runs on one machine agree.

#include "cpu/microkernel.h"

#include <stddef.h>

#include "core/context.h"
#include "cpu/microkernel_internal.h"

int bolide__units_allowed(const bolide_context *ctx) {
    return !ctx || !ctx->batch_invariant;
}

#if defined(__x86_64__)

const bolide__gemm_kernel *bolide__gemm_f32(void) {
    switch (bolide__cpu_isa()) {
    case BOLIDE__AVX512:
        return &bolide__gemm_f32_entry_avx512;
    case BOLIDE__EMU512:
        return &bolide__gemm_f32_entry_emu512;
    case BOLIDE__AVX2:
        return &bolide__gemm_f32_entry_avx2;
    default:
        return &bolide__gemm_f32_entry_baseline;
    }
}

static int units(void) {
    return bolide__cpu_isa() == BOLIDE__AVX512;
}

const bolide__gemm_kernel *bolide__gemm_bf16(int units_allowed) {
    const bolide__cpu_features *f = bolide__cpu_features_get();
    if (units_allowed && units()) {
        if (f->amx_bf16 && f->avx512_bf16)
            return &bolide__gemm_amx_entry_avx512;
        if (f->avx512_bf16 && f->fast_bf16_dot)
            return &bolide__gemm_bf16_entry_avx512;
    }
    return bolide__gemm_f32();
}

const bolide__gemm_kernel *bolide__gemm_entry(int index) {
    const bolide__cpu_features *f = bolide__cpu_features_get();
    const bolide__gemm_kernel *const entries[] = {
        bolide__gemm_f32(),
        units() && f->avx512_bf16 ? &bolide__gemm_bf16_entry_avx512 : NULL,
        units() && f->amx_bf16 && f->avx512_bf16 ? &bolide__gemm_amx_entry_avx512 : NULL,
    };
    for (int i = 0; i < 3; i++)
        if (entries[i] && index-- == 0)
            return entries[i];
    return NULL;
}

#else

const bolide__gemm_kernel *bolide__gemm_f32(void) {
    return &bolide__gemm_f32_entry_baseline;
}

const bolide__gemm_kernel *bolide__gemm_bf16(int units_allowed) {
    (void)units_allowed;
    return bolide__gemm_f32();
}

const bolide__gemm_kernel *bolide__gemm_entry(int index) {
    return index == 0 ? bolide__gemm_f32() : NULL;
}

#endif
