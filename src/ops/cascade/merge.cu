// SPDX-License-Identifier: Apache-2.0
//
// Joining attention states on the GPU. LANES neighbours of a warp have a row: they agree on the
// weights of its states, then each takes VEC columns at a time. With two states a row everything
// that ROWS rows need is asked for before the first weight is known, since a state's values do not
// depend on it; bytes are the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/walk.cuh"
#include "ops/cascade/cascade_internal.h"

#if !defined(SPEC_DT) || !defined(SPEC_VEC) || !defined(SPEC_LANES) || !defined(SPEC_TWO)
#error "DT: dtype bit; VEC LANES: the layout; TWO: 1 for two states a row"
#endif
constexpr int64_t DT = SPEC_DT;
constexpr int VEC = SPEC_VEC;     /* columns a load: 1, 2, 4, 8 */
constexpr int LANES = SPEC_LANES; /* of a row: a power of two up to 32 */
constexpr int ROWS = 1;           /* of a group of lanes; two and four were slower */
constexpr bool TWO = SPEC_TWO;
constexpr int THREADS = 128;
constexpr int GROUPS = THREADS / LANES;

using elem = element<DT>::type;
using vec = pack<elem, VEC>;

/* Where a row lies. */
struct row_place {
    int64_t n, h;
    bool there;
};

row_place row_of(const bolide__merge_params &p, int64_t row) {
    const bool there = row < p.rows;
    const int64_t n = quotient(there ? row : 0, p.h);
    return {n, (there ? row : 0) - n * p.h, there && (!p.mask || p.mask[n * p.mask_n])};
}

elem *out_of(const bolide__merge_params &p, const row_place &at) {
    return static_cast<elem *>(p.v_merged) + at.n * p.out_n + at.h * p.out_h;
}

/* 2^(s - top); a state of no keys counts nothing, whatever its values are. */
float weight_of(float s, float top) {
    return s == -INFINITE ? 0.0f : exp2_fast(s - top);
}

void write_sum(const bolide__merge_params &p, const row_place &at, float top, float sum) {
    p.s_merged[at.n * p.s_out_n + at.h * p.s_out_h] = sum == 0 ? -INFINITE : top + log2f(sum);
}

/* ---- two states ------------------------------------------------------------------------------ */

void add(float (&sum)[VEC], const vec &v, float weight) {
    float x[VEC];
    unpack(v, x);
#pragma unroll
    for (int i = 0; i < VEC; i++)
        sum[i] = weight == 0 ? sum[i] : fmaf(weight, x[i], sum[i]);
}

void two_states(const bolide__merge_params &p, int64_t first, int lane) {
    const int chunks = (int)(p.d / VEC);
    row_place at[ROWS];
    const elem *a[ROWS], *b[ROWS];
    float s_a[ROWS], s_b[ROWS];
    vec v_a[ROWS], v_b[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        at[r] = row_of(p, first + r * GROUPS);
        a[r] = static_cast<const elem *>(p.v) + at[r].n * p.v_n + at[r].h * p.v_h;
        b[r] = static_cast<const elem *>(p.v_b) + at[r].n * p.v_b_n + at[r].h * p.v_b_h;
        if (at[r].there) {
            s_a[r] = p.s[at[r].n * p.s_n + at[r].h * p.s_h];
            s_b[r] = p.s_b[at[r].n * p.s_b_n + at[r].h * p.s_b_h];
            if (lane < chunks) {
                v_a[r] = load_stream<vec>(a[r] + lane * VEC);
                v_b[r] = load_stream<vec>(b[r] + lane * VEC);
            }
        }
    }
    /* s_merged may be s: all lanes have read it before one writes. */
    __syncwarp();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (!at[r].there)
            continue;
        const float top = s_a[r] > s_b[r] ? s_a[r] : s_b[r];
        const float w_a = weight_of(s_a[r], top), w_b = weight_of(s_b[r], top);
        const float sum = w_a + w_b, inverse = sum == 0 ? 0.0f : 1.0f / sum;
        elem *out = out_of(p, at[r]);
        if (lane == 0)
            write_sum(p, at[r], top, sum);
        for (int c = lane; c < chunks; c += LANES) {
            if (c != lane) {
                v_a[r] = load_stream<vec>(a[r] + c * VEC);
                v_b[r] = load_stream<vec>(b[r] + c * VEC);
            }
            float y[VEC] = {};
            add(y, v_a[r], w_a * inverse);
            add(y, v_b[r], w_b * inverse);
            store(out + c * VEC, pack_floats<elem>(y));
        }
    }
}

/* ---- any number ------------------------------------------------------------------------------ */

/* The states of a row. */
struct states {
    const elem *v;
    const float *s;
    int64_t count;
};

states states_of(const bolide__merge_params &p, const row_place &at) {
    const int64_t first = p.indptr ? p.indptr[at.n] : 0;
    const int64_t count = p.indptr ? p.indptr[at.n + 1] - first : p.states;
    const int64_t n = p.indptr ? 0 : at.n;
    return {static_cast<const elem *>(p.v) + n * p.v_n + first * p.v_i + at.h * p.v_h,
            p.s + n * p.s_n + first * p.s_i + at.h * p.s_h, at.there ? count : 0};
}

/* All lanes of a warp call, with a row or without. */
void any_states(const bolide__merge_params &p, int64_t row, int lane) {
    const row_place at = row_of(p, row);
    const states x = states_of(p, at);
    float top = -INFINITE, sum = 0;
    for (int64_t i = lane; i < x.count; i += LANES)
        top = fmaxf(top, x.s[i * p.s_i]);
    top = lanes_max<LANES>(top);
    for (int64_t i = lane; i < x.count; i += LANES)
        sum += weight_of(x.s[i * p.s_i], top);
    sum = lanes_sum<LANES>(sum);
    if (!at.there)
        return;
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    if (lane == 0)
        write_sum(p, at, top, sum);
    for (int64_t c = (int64_t)lane * VEC; c < p.d; c += LANES * VEC) {
        float y[VEC] = {};
#pragma unroll 4
        for (int64_t i = 0; i < x.count; i++)
            add(y, load_stream<vec>(x.v + i * p.v_i + c), weight_of(x.s[i * p.s_i], top) * inverse);
        store(out_of(p, at) + c, pack_floats<elem>(y));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bolide_merge(const __grid_constant__ bolide__merge_params p) {
    release_next_kernel();
    const int lane = threadIdx.x % LANES;
    const int64_t first = (int64_t)blockIdx.x * (GROUPS * ROWS) + threadIdx.x / LANES;
    wait_for_previous_kernel();
    if constexpr (TWO)
        two_states(p, first, lane);
    else
        any_states(p, first, lane);
}
