// SPDX-License-Identifier: Apache-2.0
//
// Gated activations on the GPU. A thread takes VEC outputs and is gone: as many small blocks as the
// chip holds keep reads and writes mixed, where more work a thread was slower
// (docs/kernels/activation.md). Every element is read and written once and nothing is shared
// between threads, so bytes are the limit; the exponential and the reciprocal of an output take a
// third of that time.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/walk.cuh"
#include "ops/activation/activation_internal.h"

#if !defined(SPEC_INPUT) || !defined(SPEC_OUT) || !defined(SPEC_FUNCTION) ||                       \
    !defined(SPEC_SCALED) || !defined(SPEC_VEC) || !defined(SPEC_THREADS) || !defined(SPEC_FEW)
#error "INPUT OUT: dtype bits; FUNCTION; SCALED: 0 or 1; VEC THREADS FEW: the layout"
#endif
constexpr int64_t INPUT = SPEC_INPUT;
constexpr int64_t OUT = SPEC_OUT;
constexpr int FUNCTION = SPEC_FUNCTION;
constexpr bool SCALED = SPEC_SCALED;
constexpr int VEC = SPEC_VEC;         /* outputs an item: 1, 2, 4, 8, 16 */
constexpr int THREADS = SPEC_THREADS; /* of a block: 64, 256 */
constexpr bool FEW = SPEC_FEW;        /* items: the time to the first byte counts */

using input_t = element<INPUT>::type;
using out_t = element<OUT>::type;
using input_vec = pack<input_t, VEC>;
constexpr bool EXACT = OUT == F32;
/* 32 registers do for silu in 16 bits. */
constexpr int RESIDENT = FUNCTION == BOLIDE__SILU && INPUT & (F16 | BF16) && INPUT == OUT && !SCALED
                             ? RESIDENT_THREADS / THREADS
                             : 1;

/* x times the sigmoid of z. With 2^-|z| in the place of 2^-z nothing overflows. */
float times_sigmoid(float x, float z) {
    const float turns = fabsf(z) * LOG2E;
    float e = exp2_fast(-turns);
    /* What rounding the product has taken; not where it is infinite. */
    if constexpr (EXACT)
        e = e > 0 ? fmaf(e, fmaf(fabsf(z), LOG2E, -turns) * -LN2, e) : e;
    const float sigmoid = (z < 0 ? e : 1.0f) * (EXACT ? 1.0f / (1.0f + e) : rcp_fast(1.0f + e));
    return x == -INFINITE ? -0.0f : x * sigmoid;
}

float activate(float x) {
    if constexpr (FUNCTION == BOLIDE__SILU)
        return times_sigmoid(x, x);
    /* The argument of tanh, doubled; (1 + tanh u) / 2 is the sigmoid of 2u. */
    if constexpr (FUNCTION == BOLIDE__GELU_TANH)
        return times_sigmoid(x, 1.5957691216057308f * fmaf(0.044715f * x * x, x, x));
    /* 1 + erf would cancel where x is negative. */
    return x == -INFINITE ? -0.0f : 0.5f * x * erfcf(-0.70710678118654752f * x);
}

/* Factors of the scaled form. */
struct factors {
    float x, o, limit;
};

factors read_factors(const bolide__activation_params &p) {
    factors f = {1.0f, 1.0f, INFINITE};
    if constexpr (SCALED) {
        f.x = p.x_scale.tensor ? *p.x_scale.tensor : p.x_scale.number;
        f.o = p.o_scale.tensor ? *p.o_scale.tensor : p.o_scale.number;
        if (p.out_bounded)
            f.limit = OUT == F16 ? 65504.0f : OUT == BF16 ? 0x1.fep127f : 0x1.fffffep127f;
    }
    return f;
}

pack<out_t, VEC> combine(const input_vec &gates, const input_vec &ups, const factors &f) {
    float x[VEC], up[VEC];
    unpack(gates, x);
    unpack(ups, up);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        if constexpr (SCALED) {
            const float y = activate(x[i] * f.x) * (up[i] * f.x) * f.o;
            x[i] = is_nan(y) ? y : fminf(fmaxf(y, -f.limit), f.limit);
        } else {
            x[i] = activate(x[i]) * up[i];
        }
    }
    return pack_floats<out_t>(x);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    bolide_activation(const __grid_constant__ bolide__activation_params p) {
    release_next_kernel();
    const int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const place at = place_of(p.columns, item);
    const int64_t c = (int64_t)at.column * VEC;
    const input_t *from =
        static_cast<const input_t *>(p.input.data) + row_offset(p.input, at.row, p.h) + c;
    const bool there = at.row < p.rows;
    if (FEW && there) {
        prefetch(from);
        prefetch(from + p.d);
    }
    wait_for_previous_kernel();
    if (!there)
        return;
    const input_vec gate = load_stream<input_vec>(from), up = load_stream<input_vec>(from + p.d);
    const factors f = read_factors(p);
    out_t *to = static_cast<out_t *>(p.out.data) + row_offset(p.out, at.row, p.h) + c;
    store_to<!FEW>(to, combine(gate, up, f));
}
