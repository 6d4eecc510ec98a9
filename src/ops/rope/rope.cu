// SPDX-License-Identifier: Apache-2.0
//
// Turning q and k on the GPU. A thread takes VEC channels of a head, and the VEC that they turn
// with, in HEADS heads of one token, all of them on their way before the angles are known. Cosines
// and sines come from the table, each thread's own into registers, or are made in shared memory
// once for the TOKENS tokens of a block. Every element is read and written once; that traffic is
// the limit. Channels behind rotary_dim are copied in the same way.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/walk.cuh"
#include "ops/rope/rope_internal.h"

#if !defined(SPEC_DT) || !defined(SPEC_VEC) || !defined(SPEC_HEADS) || !defined(SPEC_TOKENS) ||    \
    !defined(SPEC_INTERLEAVE) || !defined(SPEC_FEW)
#error "DT: dtype bit; VEC: elements a load; HEADS: of a thread; TOKENS: of a block, 0: a table"
#endif
constexpr int64_t DT = SPEC_DT;   /* F16, BF16, F32 */
constexpr int VEC = SPEC_VEC;     /* 1, 2, 4, 8 */
constexpr int HEADS = SPEC_HEADS; /* 1, 4, 5 */
constexpr bool FEW = SPEC_FEW;    /* tokens: the time to the first byte counts */
constexpr bool EARLY = SPEC_FEW == 2;
constexpr int TOKENS = SPEC_TOKENS; /* 1, 4; 0: the angles are read from the table */
constexpr bool INTERLEAVE = SPEC_INTERLEAVE;
constexpr bool TABLE = TOKENS == 0;
constexpr int THREADS = !TABLE ? BOLIDE__ROPE_THREADS
                        : FEW  ? BOLIDE__ROPE_FEW_THREADS
                               : BOLIDE__ROPE_TABLE_THREADS;
static_assert(DT == F16 || DT == BF16 || DT == F32, "a float type");
static_assert(VEC >= 1 && VEC <= 8 && TOKENS <= 4, "a vector and few tokens");

using elem = element<DT>::type;
using vec = pack<elem, VEC>;

/* 40 registers are enough for one head of 16-bit numbers. */
constexpr int RESIDENT = TABLE && HEADS == 1 && DT != F32 ? RESIDENT_THREADS * 3 / 4 / THREADS : 1;

/* Vectors of an item: with its partner, or with the neighbours in itself. */
constexpr int PARTS = INTERLEAVE && VEC > 1 ? 1 : 2;
/* Pairs that an item turns. */
constexpr int PAIRS = PARTS * VEC / 2;

/* Of the tokens of a block. */
struct angles {
    float cosine[larger(TOKENS, 1)][TABLE ? 1 : BOLIDE__ROPE_MAX_PAIRS];
    float sine[larger(TOKENS, 1)][TABLE ? 1 : BOLIDE__ROPE_MAX_PAIRS];
    int turns[larger(TOKENS, 1)]; /* 0: the token is copied */
};

/* Position of a token; false if it has none. */
bool position_of(const bolide__rope_params &p, int64_t token, int64_t *position) {
    if (p.pos_ids) {
        *position = p.pos_is_i64 ? static_cast<const int64_t *>(p.pos_ids)[token]
                                 : static_cast<const int32_t *>(p.pos_ids)[token];
        return true;
    }
    if (p.b == 0 || token < p.indptr[0] || token >= p.indptr[p.b])
        return false;
    int64_t low = 0, high = p.b;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (p.indptr[middle] <= token)
            low = middle;
        else
            high = middle;
    }
    *position = p.offsets[low] + token - p.indptr[low];
    return true;
}

/* The angle is reduced to an eighth of a turn in double, so far positions keep their phase; the
 * polynomials are those of Cephes (Moshier), good to an ulp there. */
void turn_of(double angle, float *sine, float *cosine) {
    const double quarters = rint(angle * 0.63661977236758134308);
    const float x =
        (float)fma(-quarters, 6.123233995736766e-17, fma(-quarters, 1.5707963267948965580, angle));
    const float square = x * x;
    const float s =
        fmaf(x * square,
             fmaf(square, fmaf(square, -1.9515295891e-4f, 8.3321608736e-3f), -1.6666654611e-1f), x);
    const float c = fmaf(square * square,
                         fmaf(square, fmaf(square, 2.443315711809948e-5f, -1.388731625493765e-3f),
                              4.166664568298827e-2f),
                         fmaf(square, -0.5f, 1.0f));
    const uint32_t quarter = (uint32_t)(int64_t)quarters;
    const float along = quarter & 1 ? c : s, across = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -along : along;
    *cosine = (quarter + 1) & 2 ? -across : across;
}

void make_angles(const bolide__rope_params &p, const double *freq, int64_t first, angles &a) {
    const int pairs = (int)(p.rotary_dim / 2);
    for (int i = threadIdx.x; i < TOKENS * pairs; i += THREADS) {
        const int t = i / pairs, pair = i - t * pairs;
        const int64_t token = first + t;
        int64_t position = 0;
        const bool turns = token < p.n && position_of(p, token, &position);
        if (turns)
            turn_of((double)position * freq[pair], &a.sine[t][pair], &a.cosine[t][pair]);
        if (pair == 0)
            a.turns[t] = turns;
    }
}

/* Channels of an item and the offset of its second vector. */
struct channels {
    int c, other;
    int pair; /* first of its pairs */
    bool turned;
};

channels channels_of(const bolide__rope_params &p, int item) {
    const int half = (int)p.rotary_dim / 2, turned = half / PAIRS;
    const int c = INTERLEAVE ? item * VEC * PARTS : item * VEC;
    if (item < turned)
        return {c, INTERLEAVE ? 1 : half, item * PAIRS, true};
    return {(int)p.rotary_dim + (item - turned) * VEC, 0, 0, false};
}

/* A head of a token, counting on from those of q to those of k. */
template <bool OUT> void *head_of(const bolide__rope_params &p, int64_t token, int head) {
    const bool query = head < p.side[0].h;
    const bolide__rope_side &s = p.side[query ? 0 : 1];
    const int64_t h = query ? head : head - p.side[0].h;
    if constexpr (OUT)
        return static_cast<elem *>(s.out) + token * s.out_n + h * s.out_h;
    else
        return const_cast<elem *>(static_cast<const elem *>(s.in)) + token * s.in_n + h * s.in_h;
}

/* The angles of an item's pairs; false: the token is copied. */
bool read_angles(const bolide__rope_params &p, int64_t token, int pair, float (&cosine)[PAIRS],
                 float (&sine)[PAIRS]) {
    int64_t position = 0;
    if (!position_of(p, token, &position) || position < 0 || position >= p.max_pos)
        return false;
    const float *row = p.cos_sin_cache + position * p.cache_stride;
    const float *next = row + p.rotary_dim / 2;
    if (p.cache_vectors) {
        constexpr int STEP = PAIRS % 4 == 0 ? 4 : 1;
#pragma unroll
        for (int i = 0; i < PAIRS; i += STEP) {
            const pack<float, STEP> c = load<pack<float, STEP>>(row + pair + i);
            const pack<float, STEP> s = load<pack<float, STEP>>(next + pair + i);
#pragma unroll
            for (int j = 0; j < STEP; j++) {
                cosine[i + j] = c.at[j];
                sine[i + j] = s.at[j];
            }
        }
        return true;
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        cosine[i] = row[pair + i];
        sine[i] = next[pair + i];
    }
    return true;
}

/* x are the vectors of an item. */
void turn(vec (&x)[PARTS], const float (&cosine)[PAIRS], const float (&sine)[PAIRS]) {
    float a[PARTS][VEC];
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        unpack(x[i], a[i]);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float &first = PARTS == 2 ? a[0][i] : a[0][2 * i];
        float &second = PARTS == 2 ? a[PARTS - 1][i] : a[0][(2 * i + 1) % VEC];
        const float before = first;
        first = before * cosine[i] - second * sine[i];
        second = second * cosine[i] + before * sine[i];
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        x[i] = pack_floats<elem>(a[i]);
}

/* The parameters with a table, and without. */
template <bool> struct given_to_kernel { using type = bolide__rope_made_params; };
template <> struct given_to_kernel<true> { using type = bolide__rope_params; };

const bolide__rope_params &rope_of(const bolide__rope_params &given) {
    return given;
}

const bolide__rope_params &rope_of(const bolide__rope_made_params &given) {
    return given.rope;
}

/* Of the threads of all tokens; with few tokens and a table a token has its row of blocks. */
place place_of_thread(const bolide__rope_params &p) {
    if constexpr (TABLE && FEW)
        return {blockIdx.y, blockIdx.x * THREADS + threadIdx.x};
    return place_of(p.threads, (int64_t)(TABLE ? blockIdx.x : blockIdx.y) * THREADS + threadIdx.x);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    bolide_rope(const __grid_constant__ given_to_kernel<TABLE>::type given) {
    __shared__ angles a;
    release_next_kernel();
    const bolide__rope_params &p = rope_of(given);
    /* Blocks of shared angles have TOKENS tokens, each spread over the blocks of y. */
    const int64_t first = TABLE ? 0 : (int64_t)blockIdx.x * TOKENS;
    const int64_t tokens = TABLE ? p.n : smaller<int64_t>(TOKENS, p.n - first);
    const place at = place_of_thread(p);
    const bool there = at.row < tokens && at.column < p.threads;
    const uint32_t items = (uint32_t)p.items, group = at.column / items;
    const int groups = (int)((uint32_t)p.threads / items);
    const int heads = there ? (int)(p.side[0].h + p.side[1].h) : 0;
    const channels c = channels_of(p, (int)(at.column - group * items));
    const int64_t token = first + at.row;
    if constexpr (EARLY) {
        if (p.pos_ids && there)
            prefetch(static_cast<const char *>(p.pos_ids) + token * (p.pos_is_i64 ? 8 : 4));
#pragma unroll
        for (int k = 0; k < HEADS; k++) {
            const int head = (int)group + k * groups;
            if (head < heads)
                prefetch(static_cast<const elem *>(head_of<false>(p, token, head)) + c.c);
        }
    }
    wait_for_previous_kernel();
    vec x[HEADS][PARTS];
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        const int head = (int)group + k * groups;
        if (head < heads) {
            const elem *in = static_cast<const elem *>(head_of<false>(p, token, head)) + c.c;
            x[k][0] = load_once<vec>(in);
            if (PARTS == 2 && c.turned)
                x[k][PARTS - 1] = load_once<vec>(in + c.other);
        }
    }
    float cosine[PAIRS], sine[PAIRS];
    bool turns = c.turned && there;
    if constexpr (TABLE) {
        turns = turns && read_angles(p, token, c.pair, cosine, sine);
    } else {
        make_angles(p, given.freq, first, a);
        __syncthreads();
        turns = turns && a.turns[at.row];
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            cosine[i] = turns ? a.cosine[at.row][c.pair + i] : 1.0f;
            sine[i] = turns ? a.sine[at.row][c.pair + i] : 0.0f;
        }
    }
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        const int head = (int)group + k * groups;
        if (head < heads) {
            elem *out = static_cast<elem *>(head_of<true>(p, token, head)) + c.c;
            if (turns)
                turn(x[k], cosine, sine);
            store_to<!FEW>(out, x[k][0]);
            if (PARTS == 2 && c.turned)
                store_to<!FEW>(out + c.other, x[k][PARTS - 1]);
        }
    }
}
