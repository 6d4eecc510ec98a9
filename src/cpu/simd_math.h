// SPDX-License-Identifier: Apache-2.0
//
// Elementary functions on 16 lanes: reduce the argument, evaluate a minimax polynomial fitted for
// this library, put the pieces together. Only primitives of simd.h are used, so avx2, emu512 and
// avx512 agree to the bit. Errors below are the largest found by tests/cpu over the range, in units
// in the last place of the f32 result (with fused FMA; baseline up to 1 more). Included by simd.h
// only.
//
//     f32_exp2, f32_exp     1.5   correct limits: 0, denormals, infinity, NaN
//     f32_exp_neg           2     x <= 0 only, results below 2^-125 are 0; for softmax
//     f32_exp2_neg          2
//     f32_log, f32_log2     2     denormals too; log(0) = -inf, log(x < 0) = NaN
//     f32_sincos            2     |x| <= 2^30, near the zeros 1e-7 absolute; beyond that the
//                                 accuracy fades; NaN for infinities
//     f64_sincos                  of angles in double: 1e-7 absolute, |angle| <= 2^30
//     f32_tanh              2
//     f32_sigmoid           3
//     f32_erf               2     f32_erfc: 5, relative, as far as exp(-x^2) is normal
//     f32_silu              3
//     f32_gelu              6     relative, also in the far negative tail
//     f32_gelu_tanh         2     for x >= 0; below, 3 more for each unit of |u|

#ifndef BOLIDE_CPU_SIMD_MATH_H
#define BOLIDE_CPU_SIMD_MATH_H

/* c[0] + c[1] x + ... + c[n-1] x^(n-1), n a constant. */
BOLIDE_INLINE f32x16 f32_poly(f32x16 x, const float *c, int n) {
    f32x16 r = f32_set(c[n - 1]);
    BOLIDE_UNROLL
    for (int i = n - 2; i >= 0; i--)
        r = f32_fma(r, x, f32_set(c[i]));
    return r;
}

/* 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits. */
#define SIMD_ROUNDER 12582912.0f
/* The same with the bias of an exponent on top: shifted by 23, those bits are 2^n. */
#define SIMD_EXPONENT (SIMD_ROUNDER + 127.0f)

/* p * 2^n for p in [0.5, 2) and n in [-160, 130]: in two steps, of which at most the second
 * rounds. */
BOLIDE_INLINE f32x16 simd_scale(f32x16 p, i32x16 n) {
    const i32x16 half = i32_sar(n, 1);
    const i32x16 rest = i32_sub(n, half);
    const i32x16 one = i32_set(127);
    p = f32_mul(p, i32_as_f32(i32_shl(i32_add(half, one), 23)));
    return f32_mul(p, i32_as_f32(i32_shl(i32_add(rest, one), 23)));
}

/* 2^f for |f| <= 0.5, relative error 2^-25.9. */
BOLIDE_INLINE f32x16 simd_exp2_part(f32x16 f) {
    static const float c[] = {1.0f,           0.693147182f,   0.240226477f,   0.0555033237f,
                              0.00961843785f, 0.00133988739f, 0.000153533489f};
    return f32_poly(f, c, 7);
}
/* e^r for |r| <= ln(2)/2, relative error 2^-28. */
BOLIDE_INLINE f32x16 simd_exp_part(f32x16 r) {
    static const float c[] = {0.49999994f, 0.166665211f, 0.041668389f, 0.00836871006f,
                              0.00138146174f};
    const f32x16 q = f32_fma(f32_poly(r, c, 5), f32_mul(r, r), r);
    return f32_add(q, f32_set(1.0f));
}

BOLIDE_INLINE f32x16 f32_exp2(f32x16 x) {
    x = f32_clamp(x, -152.0f, 129.0f);
    const f32x16 t = f32_add(x, f32_set(SIMD_ROUNDER));
    const f32x16 f = f32_sub(x, f32_sub(t, f32_set(SIMD_ROUNDER)));
    const i32x16 n = i32_sub(f32_bits(t), f32_bits(f32_set(SIMD_ROUNDER)));
    return simd_scale(simd_exp2_part(f), n);
}

/* n = round(x / ln 2) stays in the low bits of *t; the rest is x - n ln 2, whose high part of
 * ln 2 has 9 bits, so that the product is exact without a fused operation too. */
BOLIDE_INLINE f32x16 simd_exp_reduce(f32x16 x, float rounder, f32x16 *t) {
    *t = f32_fma(x, f32_set(1.44269504f), f32_set(rounder));
    const f32x16 n = f32_sub(*t, f32_set(rounder));
    const f32x16 r = f32_fnma(n, f32_set(0.693359375f), x);
    return f32_fnma(n, f32_set(-2.12194440e-4f), r);
}

BOLIDE_INLINE f32x16 f32_exp(f32x16 x) {
    f32x16 t;
    x = f32_clamp(x, -105.0f, 89.0f);
    const f32x16 r = simd_exp_reduce(x, SIMD_ROUNDER, &t);
    const i32x16 n = i32_sub(f32_bits(t), f32_bits(f32_set(SIMD_ROUNDER)));
    return simd_scale(simd_exp_part(r), n);
}

/* The result is a normal number or what the selection makes 0, so one product scales it. A product
 * keeps NaN, whatever bits it has; adding to the exponent in place would not. */
BOLIDE_INLINE f32x16 f32_exp2_neg(f32x16 x) {
    const mask16 gone = f32_lt(x, f32_set(-125.0f));
    const f32x16 t = f32_add(x, f32_set(SIMD_EXPONENT));
    const f32x16 f = f32_sub(x, f32_sub(t, f32_set(SIMD_EXPONENT)));
    const f32x16 scale = i32_as_f32(i32_shl(f32_bits(t), 23));
    return f32_select(gone, f32_zero(), f32_mul(simd_exp2_part(f), scale));
}
BOLIDE_INLINE f32x16 f32_exp_neg(f32x16 x) {
    f32x16 t;
    const mask16 gone = f32_lt(x, f32_set(-86.6f));
    const f32x16 r = simd_exp_reduce(x, SIMD_EXPONENT, &t);
    const f32x16 scale = i32_as_f32(i32_shl(f32_bits(t), 23));
    return f32_select(gone, f32_zero(), f32_mul(simd_exp_part(r), scale));
}

/* e^x for |x| <= 87, where the result is a normal number; NaN may give anything. */
BOLIDE_INLINE f32x16 simd_exp_normal(f32x16 x) {
    f32x16 t;
    const f32x16 r = simd_exp_reduce(x, SIMD_ROUNDER, &t);
    return i32_as_f32(i32_add(f32_bits(simd_exp_part(r)), i32_shl(f32_bits(t), 23)));
}

/* x = m 2^e with m in [sqrt(1/2), sqrt(2)); gives log(m) and e. x positive and finite. */
BOLIDE_INLINE f32x16 simd_log_part(f32x16 x, f32x16 *e) {
    static const float c[] = {0.333333313f, -0.250008196f, 0.200012267f, -0.166233584f,
                              0.142017603f, -0.13160181f,  0.127615646f, -0.0763448626f};
    const mask16 tiny = f32_lt(x, f32_set(1.17549435e-38f));
    x = f32_select(tiny, f32_mul(x, f32_set(8388608.0f)), x);
    /* 0x3F3504F3 is sqrt(1/2): subtracting it leaves e in the exponent field. */
    const i32x16 u = i32_sub(f32_bits(x), i32_set(0x3F3504F3));
    const i32x16 exponent = i32_sar(u, 23);
    *e = f32_sub(i32_to_f32(exponent), f32_keep(tiny, f32_set(23.0f)));
    const f32x16 m = i32_as_f32(i32_sub(f32_bits(x), i32_shl(exponent, 23)));
    const f32x16 f = f32_sub(m, f32_set(1.0f));
    const f32x16 s = f32_mul(f, f);
    const f32x16 q = f32_mul(f32_mul(s, f), f32_poly(f, c, 8));
    return f32_add(f, f32_fma(s, f32_set(-0.5f), q));
}
/* Puts the limits in: 0, infinity, negative, NaN. */
BOLIDE_INLINE f32x16 simd_log_limits(f32x16 x, f32x16 r) {
    r = f32_select(f32_eq(x, f32_set(INFINITY)), x, r);
    r = f32_select(f32_eq(x, f32_zero()), f32_set(-INFINITY), r);
    return f32_select(f32_ge(x, f32_zero()), r, f32_set(NAN));
}
BOLIDE_INLINE f32x16 f32_log(f32x16 x) {
    f32x16 e;
    const f32x16 l = simd_log_part(x, &e);
    const f32x16 r = f32_fma(e, f32_set(-2.12194440e-4f), l);
    return simd_log_limits(x, f32_fma(e, f32_set(0.693359375f), r));
}
BOLIDE_INLINE f32x16 f32_log2(f32x16 x) {
    f32x16 e;
    const f32x16 l = simd_log_part(x, &e);
    return simd_log_limits(x, f32_fma(l, f32_set(1.44269504f), e));
}

/* ---- sine and cosine ---------------------------------------------------------------------- */

/* From r in [-pi/4, pi/4] and the number q of quarter turns. */
BOLIDE_INLINE void simd_sincos_part(f32x16 r, i32x16 q, f32x16 *sine, f32x16 *cosine) {
    static const float sc[] = {-0.166666552f, 0.00833215844f, -0.00019514958f};
    static const float cc[] = {0.0416666456f, -0.0013887313f, 2.44327839e-05f};
    const f32x16 z = f32_mul(r, r);
    const f32x16 s = f32_fma(f32_mul(f32_poly(z, sc, 3), z), r, r);
    const f32x16 c =
        f32_fma(f32_mul(z, z), f32_poly(z, cc, 3), f32_fma(z, f32_set(-0.5f), f32_set(1.0f)));
    const mask16 swap = i32_eq(i32_and(q, i32_set(1)), i32_set(1));
    const i32x16 sign_s = i32_shl(i32_and(q, i32_set(2)), 30);
    const i32x16 sign_c = i32_shl(i32_and(i32_add(q, i32_set(1)), i32_set(2)), 30);
    *sine = i32_as_f32(i32_xor(f32_bits(f32_select(swap, c, s)), sign_s));
    *cosine = i32_as_f32(i32_xor(f32_bits(f32_select(swap, s, c)), sign_c));
}

/* Sine and cosine of 16 angles in double. The angle is reduced in double before anything is
 * rounded to f32, so rotary positions up to 2^20 and far beyond keep their phase:
 * f64_sincos(f64_mul(f64_set(position), f64_load(frequencies)), &s, &c). */
BOLIDE_INLINE void f64_sincos(f64x16 angle, f32x16 *sine, f32x16 *cosine) {
    /* 1.5 * 2^52 rounds to an integer as SIMD_ROUNDER does in f32. pi/2 is split after 33 bits:
     * its product with a q below 2^20 is exact, and beyond that off by 2^-53 of the angle. */
    const f64x16 rounder = f64_set(6755399441055744.0);
    const f64x16 t = f64_add(f64_mul(angle, f64_set(0.63661977236758134308)), rounder);
    const f64x16 q = f64_sub(t, rounder);
    const f64x16 high = f64_sub(angle, f64_mul(q, f64_set(1.57079632673412561417)));
    const f64x16 r = f64_sub(high, f64_mul(q, f64_set(6.07710050650619224932e-11)));
    simd_sincos_part(f64_to_f32(r), f64_low_bits(t), sine, cosine);
}
BOLIDE_INLINE void f32_sincos(f32x16 x, f32x16 *sine, f32x16 *cosine) {
    f64_sincos(f32_to_f64(x), sine, cosine);
}
BOLIDE_INLINE f32x16 f32_sin(f32x16 x) {
    f32x16 s, c;
    f32_sincos(x, &s, &c);
    return s;
}
BOLIDE_INLINE f32x16 f32_cos(f32x16 x) {
    f32x16 s, c;
    f32_sincos(x, &s, &c);
    return c;
}

/* ---- sigmoid, tanh, erf, activations ------------------------------------------------------ */

BOLIDE_INLINE f32x16 f32_sigmoid(f32x16 x) {
    const f32x16 one = f32_set(1.0f);
    return f32_div(one, f32_add(one, f32_exp(f32_neg(x))));
}
/* x / (1 + e^-x); -inf would become -inf / inf. */
/* x sigmoid(u) = x / (1 + e^-u), 0 for u below -87. */
BOLIDE_INLINE f32x16 simd_gate(f32x16 x, f32x16 u) {
    const f32x16 e = simd_exp_normal(f32_neg(f32_clamp(u, -87.0f, 87.0f)));
    const f32x16 r = f32_div(x, f32_add(f32_set(1.0f), e));
    return f32_select(f32_lt(u, f32_set(-87.0f)), f32_set(-0.0f), r);
}
BOLIDE_INLINE f32x16 f32_silu(f32x16 x) {
    return simd_gate(x, x);
}

BOLIDE_INLINE f32x16 f32_tanh(f32x16 x) {
    static const float c[] = {-0.333332807f, 0.133314356f, -0.0537391156f, 0.0206370428f,
                              -0.0057026092f};
    const f32x16 a = f32_abs(x);
    const f32x16 z = f32_mul(x, x);
    const f32x16 small = f32_fma(f32_mul(f32_poly(z, c, 5), z), x, x);
    const f32x16 one = f32_set(1.0f);
    const f32x16 e = f32_exp(f32_add(a, a));
    const f32x16 large = f32_sub(one, f32_div(f32_set(2.0f), f32_add(e, one)));
    return f32_select(f32_lt(a, f32_set(0.625f)), small, f32_copysign(large, x));
}

/* erfc(a) for a >= 0.9: exp(-a^2) t P(t) with t = 1 / (1 + a/2). The square comes as p q, where
 * what its rounding loses is put back through the fused product. */
BOLIDE_INLINE f32x16 simd_erfc_tail(f32x16 a, f32x16 p, f32x16 q) {
    static const float c[] = {0.282083482f,  0.282404482f,   0.243200719f,
                              0.200169727f,  -0.0123789599f, 0.238336682f,
                              -0.426864058f, 0.236794949f,   -0.0436006486f};
    const f32x16 one = f32_set(1.0f);
    const f32x16 t = f32_div(one, f32_fma(a, f32_set(0.5f), one));
    const f32x16 s = f32_mul(p, q);
    const f32x16 lost = f32_fnma(p, q, s);
    const f32x16 e = f32_exp(f32_neg(s));
    return f32_mul(f32_mul(t, f32_poly(t, c, 9)), f32_fma(e, lost, e));
}
/* erf(x) for |x| < 0.9. */
BOLIDE_INLINE f32x16 simd_erf_middle(f32x16 x) {
    static const float c[] = {0.128379167f,   -0.376126349f,   0.112837151f,   -0.0268605091f,
                              0.00520385895f, -0.00081756385f, 8.51310178e-05f};
    return f32_fma(f32_poly(f32_mul(x, x), c, 7), x, x);
}
BOLIDE_INLINE f32x16 f32_erf(f32x16 x) {
    const f32x16 a = f32_min(f32_set(10.5f), f32_abs(x));
    const f32x16 tail = f32_copysign(f32_sub(f32_set(1.0f), simd_erfc_tail(a, a, a)), x);
    return f32_select(f32_lt(a, f32_set(0.9f)), simd_erf_middle(x), tail);
}
/* erfc(x), whose square is p q; |x| at most 10.5. */
BOLIDE_INLINE f32x16 simd_erfc(f32x16 x, f32x16 p, f32x16 q) {
    const f32x16 a = f32_abs(x);
    const f32x16 tail = simd_erfc_tail(a, p, q);
    const f32x16 side = f32_select(f32_lt(x, f32_zero()), f32_sub(f32_set(2.0f), tail), tail);
    return f32_select(f32_lt(a, f32_set(0.9f)), f32_sub(f32_set(1.0f), simd_erf_middle(x)), side);
}
BOLIDE_INLINE f32x16 f32_erfc(f32x16 x) {
    x = f32_clamp(x, -10.5f, 10.5f);
    return simd_erfc(x, x, x);
}
/* x Phi(x) = x/2 erfc(-x / sqrt(2)), so that the negative tail keeps its relative accuracy, 0 below
 * -13. One polynomial serves all x, with a = |x| / sqrt(2) and t as in simd_erfc_tail; the square
 * under the exponent is x times x/2, exact but for one rounding. */
BOLIDE_INLINE f32x16 f32_gelu(f32x16 x) {
    static const float c[] = {0.282058954f,  0.282971799f, 0.237639681f,  0.230449304f,
                              -0.113070734f, 0.449673533f, -0.705129504f, 0.455881983f,
                              -0.134949476f, 0.0144744767f};
    const f32x16 one = f32_set(1.0f);
    const f32x16 h = f32_clamp(x, -13.1f, 13.1f), half = f32_mul(h, f32_set(0.5f));
    const f32x16 a_half = f32_abs(f32_mul(h, f32_set(0.353553391f)));
    const f32x16 t = f32_div(one, f32_add(a_half, one));
    const f32x16 s = f32_mul(h, half);
    const f32x16 lost = f32_fnma(h, half, s);
    const f32x16 e = simd_exp_normal(f32_neg(s));
    const f32x16 tail = f32_mul(f32_mul(t, f32_poly(t, c, 10)), f32_fma(e, lost, e));
    const f32x16 erfc = f32_select(f32_lt(x, f32_zero()), tail, f32_sub(f32_set(2.0f), tail));
    const f32x16 r = f32_mul(f32_mul(x, f32_set(0.5f)), erfc);
    return f32_select(f32_lt(x, f32_set(-13.0f)), f32_set(-0.0f), r);
}
/* x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
BOLIDE_INLINE f32x16 f32_gelu_tanh(f32x16 x) {
    const f32x16 cubic = f32_fma(f32_mul(x, x), f32_set(0.044715f), f32_set(1.0f));
    return simd_gate(x, f32_mul(f32_mul(x, f32_set(1.59576912f)), cubic));
}

#endif
