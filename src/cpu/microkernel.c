// SPDX-License-Identifier: Apache-2.0
//
// Picks the micro-kernels for the instruction set in force and the units of the chip. The choice is
// a table, never a measurement, so that two runs on one machine agree.

#include "cpu/microkernel.h"

#include <stddef.h>

#include "core/context.h"
#include "cpu/microkernel_internal.h"

#if defined(__x86_64__)
#define PICK(name)                                                                                 \
    (bolide__cpu_isa() == BOLIDE__AVX512   ? &bolide__##name##_avx512                              \
     : bolide__cpu_isa() == BOLIDE__EMU512 ? &bolide__##name##_emu512                              \
     : bolide__cpu_isa() == BOLIDE__AVX2   ? &bolide__##name##_avx2                                \
                                           : &bolide__##name##_baseline)
#else
#define PICK(name) (&bolide__##name##_baseline)
#endif

const bolide__gemm_kernel *bolide__gemm_f32(void) {
    return PICK(gemm_f32_entry);
}

bolide__dot_fn *bolide__dot(void) {
    return PICK(dot_rows);
}

bolide__widen_fn *bolide__widen(void) {
    return PICK(widen_row);
}

int bolide__units_allowed(const bolide_context *ctx) {
    return !ctx || !ctx->batch_invariant;
}

#if defined(__x86_64__)

static int units(void) {
    return bolide__cpu_isa() == BOLIDE__AVX512;
}

const bolide__gemm_kernel *bolide__gemm_bf16(int units_allowed) {
    const bolide__cpu_features *f = bolide__cpu_features_get();
    if (units_allowed && units()) {
        if (f->amx_bf16)
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
        units() && f->amx_bf16 ? &bolide__gemm_amx_entry_avx512 : NULL,
    };
    for (int i = 0; i < 3; i++)
        if (entries[i] && index-- == 0)
            return entries[i];
    return NULL;
}

const bolide__quant_kernel *bolide__quant(void) {
    if (units() && bolide__cpu_features_get()->avx512_vnni)
        return &bolide__quant_vnni_entry_avx512;
    return PICK(quant_entry);
}

const bolide__quant_kernel *bolide__quant_entry(int index) {
    if (index == 0)
        return PICK(quant_entry);
    return index == 1 && bolide__quant() != PICK(quant_entry) ? bolide__quant() : NULL;
}

#else

const bolide__gemm_kernel *bolide__gemm_bf16(int units_allowed) {
    (void)units_allowed;
    return bolide__gemm_f32();
}

const bolide__gemm_kernel *bolide__gemm_entry(int index) {
    return index == 0 ? bolide__gemm_f32() : NULL;
}

const bolide__quant_kernel *bolide__quant(void) {
    return PICK(quant_entry);
}

const bolide__quant_kernel *bolide__quant_entry(int index) {
    return index == 0 ? bolide__quant() : NULL;
}

#endif
