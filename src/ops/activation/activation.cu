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
    !defined(SPEC_SCALED) || !defined(SPEC_VEC) || !defined(SPEC_THREADS)
#error "INPUT OUT: dtype bits; FUNCTION; SCALED: 0 or 1; VEC THREADS: the layout"
#endif
constexpr int64_t INPUT = SPEC_INPUT;
constexpr int64_t OUT = SPEC_OUT;
constexpr int FUNCTION = SPEC_FUNCTION;
constexpr bool SCALED = SPEC_SCALED;
constexpr int VEC = SPEC_VEC;         /* outputs an item: 1, 2, 4, 8, 16 */
constexpr int THREADS = SPEC_THREADS; /* of a block: 64, 256 */
constexpr int PER = 1;                /* items a thread; two and four were slower */

using input_t = element<INPUT>::type;
using out_t = element<OUT>::type;
using input_vec = pack<input_t, VEC>;
constexpr bool EXACT = OUT == F32;

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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bolide_activation(const __grid_constant__ bolide__activation_params p) {
    release_next_kernel();
    const int64_t first = (int64_t)blockIdx.x * (THREADS * PER) + threadIdx.x;
    place at = place_of(p.walk, first);
    const input_t *from[PER];
    out_t *to[PER];
#pragma unroll
    for (int k = 0; k < PER; k++) {
        const int64_t c = (int64_t)at.column * VEC;
        from[k] = static_cast<const input_t *>(p.input.data) + row_offset(p.input, at.row, p.h) + c;
        to[k] = static_cast<out_t *>(p.out.data) + row_offset(p.out, at.row, p.h) + c;
        advance(p.walk, at);
    }
    wait_for_previous_kernel();
    input_vec gate[PER], up[PER];
#pragma unroll
    for (int k = 0; k < PER; k++) {
        if (first + k * THREADS < p.walk.items) {
            gate[k] = load_stream<input_vec>(from[k]);
            up[k] = load_stream<input_vec>(from[k] + p.d);
        }
    }
    const factors f = read_factors(p);
#pragma unroll
    for (int k = 0; k < PER; k++) {
        if (first + k * THREADS < p.walk.items)
            store(to[k], combine(gate[k], up[k], f));
    }
}
