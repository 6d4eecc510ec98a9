// SPDX-License-Identifier: Apache-2.0
//
// Joining attention states on the GPU. LANES neighbours of a warp have a row: they agree on the
// weights of its states, then each takes VEC columns at a time. With two states a row its values
// are asked for before the weights are known; bytes are the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/walk.cuh"
#include "ops/cascade/cascade_internal.h"

#if !defined(SPEC_DT) || !defined(SPEC_VEC) || !defined(SPEC_LANES) || !defined(SPEC_ONE) ||       \
    !defined(SPEC_TWO) || !defined(SPEC_FEW)
#error "DT: dtype bit; VEC LANES ONE: the layout; TWO: two states a row; FEW rows"
#endif
constexpr int64_t DT = SPEC_DT;
constexpr int VEC = SPEC_VEC;     /* columns a load: 1, 2, 4, 8 */
constexpr int LANES = SPEC_LANES; /* of a row: a power of two up to 32 */
constexpr bool ONE = SPEC_ONE;    /* VEC * LANES columns are the whole row */
constexpr bool TWO = SPEC_TWO;
constexpr bool FEW = SPEC_FEW; /* rows: the time to the first byte counts */
constexpr int THREADS = 128;
constexpr int GROUPS = THREADS / LANES;

using elem = element<DT>::type;
using vec = pack<elem, VEC>;

/* Rows and heads, in no more bits than they need. */
template <bool W> struct index_of { using type = uint32_t; };
template <> struct index_of<true> { using type = int64_t; };
using index_t = index_of<WIDE>::type;

/* Where a row lies. */
struct row_place {
    index_t n, h;
    bool there;
};

row_place row_of(const bolide__merge_params &p, int64_t row) {
    const bool there = row < p.rows;
    const int64_t r = there ? row : 0, n = quotient(r, p.h);
    return {(index_t)n, (index_t)(r - n * p.h), there && (!p.mask || p.mask[n * p.mask_n])};
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

/* Columns of one row from those of its states. */
vec merged(const vec &v_a, const vec &v_b, float w_a, float w_b) {
    float y[VEC] = {};
    add(y, v_a, w_a);
    add(y, v_b, w_b);
    return pack_floats<elem>(y);
}

/* Asks for the states of a row ahead of time; a row that a mask leaves out, too. */
void prefetch_states(const bolide__merge_params &p, int64_t row, int lane) {
    if (row >= p.rows || lane * VEC >= p.d)
        return;
    const int64_t n = quotient(row, p.h), h = row - n * p.h;
    prefetch(static_cast<const elem *>(p.v) + n * p.v_n + h * p.v_h + lane * VEC);
    prefetch(static_cast<const elem *>(p.v_b) + n * p.v_b_n + h * p.v_b_h + lane * VEC);
    prefetch(p.s + n * p.s_n + h * p.s_h);
    prefetch(p.s_b + n * p.s_b_n + h * p.s_b_h);
}

/* A row's values are asked for before its weights are known. */
void two_states(const bolide__merge_params &p, int64_t row, int lane) {
    const row_place at = row_of(p, row);
    const elem *a = static_cast<const elem *>(p.v) + at.n * p.v_n + at.h * p.v_h + lane * VEC;
    const elem *b = static_cast<const elem *>(p.v_b) + at.n * p.v_b_n + at.h * p.v_b_h + lane * VEC;
    const int columns = at.there ? (int)p.d - lane * VEC : 0;
    float s_a = 0, s_b = 0;
    vec v_a = {}, v_b = {};
    if (at.there) {
        s_a = p.s[at.n * p.s_n + at.h * p.s_h];
        s_b = p.s_b[at.n * p.s_b_n + at.h * p.s_b_h];
    }
    if (columns > 0) {
        v_a = load<vec>(a);
        v_b = load<vec>(b);
    }
    /* s_merged may be s: all lanes have read it before one writes. */
    __syncwarp();
    const float top = s_a > s_b ? s_a : s_b;
    float w_a = weight_of(s_a, top), w_b = weight_of(s_b, top);
    const float sum = w_a + w_b, inverse = sum == 0 ? 0.0f : 1.0f / sum;
    w_a *= inverse;
    w_b *= inverse;
    elem *out = out_of(p, at) + lane * VEC;
    if (columns > 0)
        store_to<!FEW>(out, merged(v_a, v_b, w_a, w_b));
    if constexpr (!ONE) {
        for (int c = LANES * VEC; c < columns; c += LANES * VEC)
            store_to<!FEW>(out + c, merged(load<vec>(a + c), load<vec>(b + c), w_a, w_b));
    }
    if (lane == 0 && at.there)
        write_sum(p, at, top, sum);
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
            add(y, load_once<vec>(x.v + i * p.v_i + c), weight_of(x.s[i * p.s_i], top) * inverse);
        store(out_of(p, at) + c, pack_floats<elem>(y));
    }
}

extern "C" __global__ void
__launch_bounds__(THREADS, TWO &&ONE &&VEC * sizeof(elem) == 16 ? RESIDENT_THREADS / THREADS : 1)
    bolide_merge(const __grid_constant__ bolide__merge_params p) {
    release_next_kernel();
    const int lane = threadIdx.x % LANES;
    const int64_t first = (int64_t)blockIdx.x * GROUPS + threadIdx.x / LANES;
    if constexpr (TWO && FEW)
        prefetch_states(p, first, lane);
    wait_for_previous_kernel();
    if constexpr (TWO)
        two_states(p, first, lane);
    else
        any_states(p, first, lane);
}
