// SPDX-License-Identifier: Apache-2.0
//
// Every function of cpu/simd.h behind one door an instruction set: probe number, input lanes,
// output lanes. Integers and masks travel as bit patterns; a mask gives 1 or 0 a lane.

#ifndef TESTS_SIMD_PROBE_H
#define TESTS_SIMD_PROBE_H

#include "cpu/cpu.h"

/* name, expression over the f32 lanes a b c or their bits i j k. */
#define PROBES(X)                                                                                  \
    X(ADD, f32_add(a, b))                                                                          \
    X(SUB, f32_sub(a, b))                                                                          \
    X(MUL, f32_mul(a, b))                                                                          \
    X(DIV, f32_div(a, b))                                                                          \
    X(SQRT, f32_sqrt(a))                                                                           \
    X(RSQRT, f32_rsqrt(a))                                                                         \
    X(FMA, f32_fma(a, b, c))                                                                       \
    X(FNMA, f32_fnma(a, b, c))                                                                     \
    X(MIN, f32_min(a, b))                                                                          \
    X(MAX, f32_max(a, b))                                                                          \
    X(MIN_NAN, f32_min_nan(a, b))                                                                  \
    X(MAX_NAN, f32_max_nan(a, b))                                                                  \
    X(CLAMP, f32_clamp(a, -2.0f, 3.0f))                                                            \
    X(ABS, f32_abs(a))                                                                             \
    X(NEG, f32_neg(a))                                                                             \
    X(COPYSIGN, f32_copysign(a, b))                                                                \
    X(ROUND, f32_round(a))                                                                         \
    X(FLOOR, f32_floor(a))                                                                         \
    X(LT, truth(f32_lt(a, b)))                                                                     \
    X(LE, truth(f32_le(a, b)))                                                                     \
    X(GT, truth(f32_gt(a, b)))                                                                     \
    X(GE, truth(f32_ge(a, b)))                                                                     \
    X(EQ, truth(f32_eq(a, b)))                                                                     \
    X(ISNAN, truth(f32_isnan(a)))                                                                  \
    X(SELECT, f32_select(f32_lt(a, b), a, c))                                                      \
    X(TO_I32, i32_as_f32(f32_to_i32(a)))                                                           \
    X(TO_I32_ROUND, i32_as_f32(f32_to_i32_round(a)))                                               \
    X(FROM_I32, i32_to_f32(i))                                                                     \
    X(SUM, f32_set(f32_sum(a)))                                                                    \
    X(HMAX, f32_set(f32_hmax(a)))                                                                  \
    X(HMIN, f32_set(f32_hmin(a)))                                                                  \
    X(SCAN, f32_scan(a))                                                                           \
    X(SHIFT1, f32_shift_up(a, 1))                                                                  \
    X(SHIFT2, f32_shift_up(a, 2))                                                                  \
    X(SHIFT4, f32_shift_up(a, 4))                                                                  \
    X(SHIFT8, f32_shift_up(a, 8))                                                                  \
    X(SWAP_PAIRS, f32_swap_pairs(a))                                                               \
    X(DUP_EVEN, f32_dup_even(a))                                                                   \
    X(DUP_ODD, f32_dup_odd(a))                                                                     \
    X(IADD, i32_as_f32(i32_add(i, j)))                                                             \
    X(ISUB, i32_as_f32(i32_sub(i, j)))                                                             \
    X(IMUL, i32_as_f32(i32_mul(i, j)))                                                             \
    X(IAND, i32_as_f32(i32_and(i, j)))                                                             \
    X(IOR, i32_as_f32(i32_or(i, j)))                                                               \
    X(IXOR, i32_as_f32(i32_xor(i, j)))                                                             \
    X(SHL7, i32_as_f32(i32_shl(i, 7)))                                                             \
    X(SHR7, i32_as_f32(i32_shr(i, 7)))                                                             \
    X(SAR7, i32_as_f32(i32_sar(i, 7)))                                                             \
    X(IMIN, i32_as_f32(i32_min(i, j)))                                                             \
    X(IMAX, i32_as_f32(i32_max(i, j)))                                                             \
    X(IEQ, truth(i32_eq(i, j)))                                                                    \
    X(IGT, truth(i32_gt(i, j)))                                                                    \
    X(IGE, truth(i32_ge(i, j)))                                                                    \
    X(ILE, truth(i32_le(i, j)))                                                                    \
    X(UGT, truth(u32_gt(i, j)))                                                                    \
    X(ISUM, i32_as_f32(i32_set(i32_sum(i))))                                                       \
    X(IHMAX, i32_as_f32(i32_set(i32_hmax(i))))                                                     \
    X(IHMIN, i32_as_f32(i32_set(i32_hmin(i))))                                                     \
    X(UMULHI, i32_as_f32(mul_part(i, j, 1)))                                                       \
    X(UMULLO, i32_as_f32(mul_part(i, j, 0)))                                                       \
    X(TO_BF16, i32_as_f32(f32_to_bf16(a)))                                                         \
    X(TO_E4M3, i32_as_f32(f32_to_e4m3(a)))                                                         \
    X(TO_E5M2, i32_as_f32(f32_to_e5m2(a)))                                                         \
    X(UNIT, philox_unit16(i))                                                                      \
    X(EXP, f32_exp(a))                                                                             \
    X(EXP2, f32_exp2(a))                                                                           \
    X(EXP_NEG, f32_exp_neg(a))                                                                     \
    X(EXP2_NEG, f32_exp2_neg(a))                                                                   \
    X(LOG, f32_log(a))                                                                             \
    X(LOG2, f32_log2(a))                                                                           \
    X(SIN, f32_sin(a))                                                                             \
    X(COS, f32_cos(a))                                                                             \
    X(TANH, f32_tanh(a))                                                                           \
    X(SIGMOID, f32_sigmoid(a))                                                                     \
    X(ERF, f32_erf(a))                                                                             \
    X(ERFC, f32_erfc(a))                                                                           \
    X(SILU, f32_silu(a))                                                                           \
    X(GELU, f32_gelu(a))                                                                           \
    X(GELU_TANH, f32_gelu_tanh(a))

enum probe_id {
#define PROBE_ID(name, expression) PROBE_##name,
    PROBES(PROBE_ID)
#undef PROBE_ID
        PROBE_COUNT
};

/* n is a multiple of 16. */
BOLIDE_CPU_KERNEL(probe, (int id, const float *pa, const float *pb, const float *pc, float *out,
                          int64_t n));
/* load16_n of dtype `from`, store16_n of dtype `to`, in pieces of at most `piece` elements; piece
 * 16 uses load16 and store16. */
BOLIDE_CPU_KERNEL(probe_convert,
                  (const void *in, int64_t from, void *out, int64_t to, int64_t n, int64_t piece));
/* The functions with results of another form, one number each; see simd_test.c. */
BOLIDE_CPU_KERNEL(probe_shapes, (int which, const float *in, float *out, uint32_t bits));
/* Draws of philox16 for 16 blocks. */
BOLIDE_CPU_KERNEL(probe_philox, (uint64_t seed, uint64_t row, uint64_t block, uint32_t *out));
/* f64_sincos of position * frequency. */
BOLIDE_CPU_KERNEL(probe_angles,
                  (double position, const double *frequency, float *sine, float *cosine));

enum probe_shape {
    SHAPE_TRANSPOSE,    /* 256 -> 256 */
    SHAPE_SUM16,        /* 256 -> 16: f32_sum16, then 16 of f32_sum */
    SHAPE_SPLIT,        /* 16 bf16 in 8 floats -> 16: bf16_load_split */
    SHAPE_DEINTERLEAVE, /* 32 -> 32: evens, odds */
    SHAPE_INTERLEAVE,   /* 32 -> 32 */
    SHAPE_COMPRESS,     /* 16, bits -> count elements; then the count in out[31] */
    SHAPE_COMPRESS_I32, /* the same through integers */
    SHAPE_GATHER,       /* in[(7 i) % 16] */
    SHAPE_GATHER_MASK,  /* the lanes in bits; the others index far outside */
    SHAPE_MASKS,        /* bits & 0xFFFF, bits >> 16 -> and, or, not, any, all, count, first lane */
    SHAPE_RANGE,        /* mask_range(bits & 0xFF, bits >> 8) as a number */
    SHAPE_LOAD_MASK,    /* f32 and i32 masked load: 16 + 16 */
    SHAPE_STORE_MASK,   /* f32 and i32 masked store over what out holds: 16 + 16 */
    SHAPE_LOAD_F64,     /* f64_load_n(bits) of the 16 doubles that in holds as floats */
    SHAPE_COUNT
};

#endif
