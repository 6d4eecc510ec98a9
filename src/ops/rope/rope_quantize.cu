// SPDX-License-Identifier: Apache-2.0
//
// Turning and quantising q, k and v on the GPU. A thread takes two vectors of VEC channels that lie
// half a head apart, whether they turn or not, so both loads are under way at once, and with them
// the angles, which the other heads of the token find in L1, and the look-up of the page. Of many
// tokens it takes PER behind one another, whose places are counted once. Every element is read once
// and written once as a byte; that traffic is the limit.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/walk.cuh"
#include "ops/rope/rope_quantize_internal.h"

#if !defined(SPEC_DT) || !defined(SPEC_TO) || !defined(SPEC_VEC) || !defined(SPEC_INTERLEAVE) ||   \
    !defined(SPEC_PAGED) || !defined(SPEC_FEW)
#error "DT TO: dtype bits; VEC: elements a load; INTERLEAVE PAGED FEW: 0 or 1"
#endif
constexpr int64_t DT = SPEC_DT; /* F16, BF16, F32 */
constexpr int64_t TO = SPEC_TO; /* F8_E4M3FN, F8_E5M2 */
constexpr int VEC = SPEC_VEC;   /* 1, 2, 4, 8 */
constexpr bool INTERLEAVE = SPEC_INTERLEAVE;
constexpr bool PAGED = SPEC_PAGED; /* some parts go into pages */
constexpr bool FEW = SPEC_FEW;     /* tokens: the time to the first byte counts */
constexpr int THREADS = 256;
static_assert(DT == F16 || DT == BF16 || DT == F32, "a float type");
static_assert(TO == F8_E4M3FN || TO == F8_E5M2, "an 8-bit float type");
static_assert(VEC >= 1 && VEC <= 8, "a vector");

using from_elem = element<DT>::type;
using to_elem = element<TO>::type;
using from_vec = pack<from_elem, VEC>;

/* Neighbours in a vector turn with each other; single elements and halves with the other vector. */
constexpr bool WITHIN = INTERLEAVE && VEC > 1;
constexpr int PER = FEW ? 1 : 2; /* tokens of a thread */
/* 48 registers do for 16-bit numbers, 64 for those of two tokens. */
constexpr int RESIDENT = DT == F32 ? 1 : RESIDENT_THREADS * (PER == 2 ? 4 : 5) / 8 / THREADS;
/* Pairs that are turned at a time: their angles take registers. */
constexpr int STEP = WITHIN ? VEC / 2 : smaller(VEC, 4);

/* STEP cosines or sines. */
void read_run(const bolide__rope_quantize_params &p, const float *row, float (&to)[STEP]) {
    if (STEP == 4 && p.cache_vectors) {
        const pack<float, STEP> v = load<pack<float, STEP>>(row);
#pragma unroll
        for (int i = 0; i < STEP; i++)
            to[i] = v.at[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < STEP; i++)
        to[i] = row[i];
}

void turn(float &a, float &b, float cosine, float sine) {
    const float before = a;
    a = before * cosine - b * sine;
    b = b * cosine + before * sine;
}

/* Turns an item whose vectors begin at channels c and c + other, the second if it is there. */
void turn_item(const bolide__rope_quantize_params &p, int64_t token, int c, int other, bool two,
               float (&x)[2][VEC]) {
    const int64_t position = p.pos_is_i64 ? static_cast<const int64_t *>(p.pos_ids)[token]
                                          : static_cast<const int32_t *>(p.pos_ids)[token];
    if (position < 0 || position >= p.max_pos)
        return;
    const int half = (int)p.rotary_dim / 2;
    const float *row = p.cos_sin_cache + position * p.cache_stride + (INTERLEAVE ? c / 2 : c);
#pragma unroll
    for (int first = 0; first < VEC; first += STEP) {
        const int vector = first / STEP; /* of pairs within */
        const float *at = row + (WITHIN ? vector * (other / 2) : first);
        if (WITHIN && vector == 1 && !two)
            return;
        float cosine[STEP], sine[STEP];
        read_run(p, at, cosine);
        read_run(p, at + half, sine);
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            if constexpr (WITHIN)
                turn(x[vector][2 * i], x[vector][2 * i + 1], cosine[i], sine[i]);
            else
                turn(x[0][first + i], x[1][first + i], cosine[i], sine[i]);
        }
    }
}

void put(to_elem *to, float (&x)[VEC], float scale) {
#pragma unroll
    for (int i = 0; i < VEC; i++)
        x[i] *= scale;
    store_to<!FEW>(to, pack_floats<to_elem>(x));
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    bolide_rope_quantize(const __grid_constant__ bolide__rope_quantize_params p) {
    release_next_kernel();
    const int64_t all = p.part[p.parts - 1].end;
    const place at = place_of(all, (int64_t)blockIdx.x * THREADS + threadIdx.x);
    const int64_t first = at.row * PER;
    const bool there = first < p.n;
    int number = 0, before = 0;
    while ((int)at.column >= (int)p.part[number].end)
        before = (int)p.part[number++].end;
    const bolide__rope_part &part = p.part[number];
    const uint32_t items = (uint32_t)part.items, item = at.column - (uint32_t)before;
    const uint32_t head = item / items, index = item - head * items;
    /* The vectors begin at c and c + other; a head of an odd number of them has one item of one. */
    const bool apart = !(INTERLEAVE && VEC == 1 && part.turns);
    const int c = (int)index * (apart ? VEC : 2), other = apart ? (int)items * VEC : 1;
    const bool two = c + other < (int)part.d;
    const from_elem *in =
        static_cast<const from_elem *>(part.in) + first * part.in_n + head * part.in_h + c;
    if (FEW && there) {
        prefetch(in);
        if (two)
            prefetch(in + other);
    }
    wait_for_previous_kernel();
    if (!there)
        return;
    from_vec v[PER][2] = {};
#pragma unroll
    for (int k = 0; k < PER; k++) {
        if (k > 0 && first + k >= p.n)
            break;
        v[k][0] = load_once<from_vec>(in + k * part.in_n);
        if (two)
            v[k][1] = load_once<from_vec>(in + k * part.in_n + other);
    }
#pragma unroll
    for (int k = 0; k < PER; k++) {
        const int64_t token = first + k;
        if (k > 0 && token >= p.n)
            return;
        int64_t row = token * part.out_n;
        if (PAGED && part.is_paged) {
            int64_t slot = 0;
            const int64_t page =
                bolide__page_of(&p.table, p.batch_indices[token], p.positions[token], &slot);
            if (page < 0)
                continue;
            row = page * part.out_n + slot * part.out_slot;
        }
        float x[2][VEC];
        unpack(v[k][0], x[0]);
        unpack(v[k][1], x[1]);
        if (part.turns)
            turn_item(p, token, c, other, two, x);
        to_elem *out = static_cast<to_elem *>(part.out) + row + head * part.out_h + c;
        put(out, x[0], part.scale);
        if (two)
            put(out + other, x[1], part.scale);
    }
}
