// SPDX-License-Identifier: Apache-2.0
//
// Gated activations on the CPU: 16 gates and 16 values at a time, each read and written once. The
// functions are those of simd.h, so every instruction set with a fused multiply-add gives the same
// bits.

#include <float.h>

#include "cpu/simd.h"
#include "ops/activation/activation_internal.h"

typedef enum function { SILU, GELU, GELU_TANH } function;

/* What an instance works on. Constants after inlining, so what is absent costs nothing. */
typedef struct form {
    function f;
    int64_t input, out; /* dtypes */
    int scaled;
} form;

/* A row and the factors of the scaled form. */
typedef struct row {
    const void *input;
    void *out;
    f32x16 x_scale, o_scale;
    float limit;
} row;

BOLIDE_INLINE f32x16 apply(function f, f32x16 x) {
    return f == SILU ? f32_silu(x) : f == GELU ? f32_gelu(x) : f32_gelu_tanh(x);
}

/* Outputs i ... i+15 of a row of d, of which left exist. */
BOLIDE_INLINE void lanes(form f, const row *r, int64_t d, int64_t i, int64_t left) {
    f32x16 gate = lanes_load(r->input, f.input, i, left);
    f32x16 up = lanes_load(r->input, f.input, d + i, left);
    if (f.scaled) {
        gate = f32_mul(gate, r->x_scale);
        up = f32_mul(up, r->x_scale);
    }
    f32x16 y = f32_mul(apply(f.f, gate), up);
    if (f.scaled)
        y = f32_clamp(f32_mul(y, r->o_scale), -r->limit, r->limit);
    lanes_store(r->out, f.out, i, left, y);
}

/* The same for outputs i ... i+31 where both tensors are bf16. */
BOLIDE_INLINE void lanes_pair(form f, const row *r, int64_t d, int64_t i) {
    f32x16 gate[2], up[2];
    bf16_load_pair(dtype_at(r->input, BOLIDE_BF16, i), gate);
    bf16_load_pair(dtype_at(r->input, BOLIDE_BF16, d + i), up);
    BOLIDE_UNROLL
    for (int k = 0; k < 2; k++)
        gate[k] = f32_mul(apply(f.f, gate[k]), up[k]);
    bf16_store_pair(dtype_at_mut(r->out, BOLIDE_BF16, i), gate);
}

BOLIDE_INLINE void pieces(const bolide__activation_params *p, int64_t begin, int64_t end, form f,
                          row r) {
    const int paired = f.input == BOLIDE_BF16 && f.out == BOLIDE_BF16 && !f.scaled;
    for (int64_t k = begin; k < end; k++) {
        int64_t i = k % p->pieces * BOLIDE__ACTIVATION_PIECE;
        const int64_t stop =
            p->d - i < BOLIDE__ACTIVATION_PIECE ? p->d : i + BOLIDE__ACTIVATION_PIECE;
        r.input = bolide__row_at(&p->input, k / p->pieces, p->h);
        r.out = bolide__row_at(&p->out, k / p->pieces, p->h);
        for (; paired && i + 32 <= stop; i += 32)
            lanes_pair(f, &r, p->d, i);
        for (; i + 16 <= stop; i += 16)
            lanes(f, &r, p->d, i, 16);
        if (i < stop)
            lanes(f, &r, p->d, i, stop - i);
    }
}

/* Where the conversions of the narrow dtypes are calls anyway, one instance does for both. */
BOLIDE_INLINE void by_dtype(void *arg, int64_t begin, int64_t end, function f) {
    const bolide__activation_params *p = arg;
    const int64_t t = p->input.dtype;
    const row r = {.input = NULL};
    if (t == BOLIDE_F32)
        pieces(p, begin, end, (form){f, BOLIDE_F32, BOLIDE_F32, 0}, r);
    else if (!BOLIDE_SIMD_HAS_F16)
        pieces(p, begin, end, (form){f, t, t, 0}, r);
    else if (t == BOLIDE_F16)
        pieces(p, begin, end, (form){f, BOLIDE_F16, BOLIDE_F16, 0}, r);
    else
        pieces(p, begin, end, (form){f, BOLIDE_BF16, BOLIDE_BF16, 0}, r);
}

void BOLIDE_ISA(silu_and_mul_pieces)(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    by_dtype(arg, begin, end, SILU);
}

void BOLIDE_ISA(gelu_and_mul_pieces)(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    by_dtype(arg, begin, end, GELU);
}

void BOLIDE_ISA(gelu_tanh_and_mul_pieces)(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    by_dtype(arg, begin, end, GELU_TANH);
}

/* The largest finite number of out's dtype where the result is bounded. */
static float limit_of(const bolide__activation_params *p) {
    if (!p->out_bounded)
        return INFINITY;
    return p->out.dtype == BOLIDE_F16    ? 65504.0f
           : p->out.dtype == BOLIDE_BF16 ? 0x1.FEp127f
                                         : FLT_MAX;
}

/* An instance for the dtypes that models use; others choose their conversions as they go. */
void BOLIDE_ISA(silu_and_mul_scaled_pieces)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__activation_params *p = arg;
    const int64_t in = p->input.dtype, out = p->out.dtype;
    const row r = {.x_scale = f32_set(bolide__scalar_read(p->x_scale)),
                   .o_scale = f32_set(bolide__scalar_read(p->o_scale)),
                   .limit = limit_of(p)};
    (void)worker;
    if (BOLIDE_SIMD_HAS_F16 && in == BOLIDE_BF16 && out == BOLIDE_F8_E4M3FN)
        pieces(p, begin, end, (form){SILU, BOLIDE_BF16, BOLIDE_F8_E4M3FN, 1}, r);
    else
        pieces(p, begin, end, (form){SILU, in, out, 1}, r);
}
