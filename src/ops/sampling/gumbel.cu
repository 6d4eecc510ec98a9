// SPDX-License-Identifier: Apache-2.0
//
// The Gumbel-max trick: noise for each logit from its own random word, and the largest sum wins.
// Arithmetic is the limit, ten rounds of Philox for four elements, so the noise is computed for few
// of them: it is at most -log(v), which costs one instruction, and most elements cannot win even
// with that.

#include "ops/sampling/row_draw.cuh"

using params = bolide__sample_params;

static_assert(LOGITS && !CACHED, "logits are read once");

constexpr int AHEAD = 2; /* vectors that a lane loads at a time */

/* The best of a lane, and of its warp. */
struct contest {
    float score = -INFINITE, leader = -INFINITE;
    int id = 0;
};

/* -log(-log1p(-v)), the relative precision kept where v is small and the noise large. */
__forceinline__ float noise_of(float v) {
    return -logf(-log1pf(-v));
}

/* The same within 1e-3. */
__forceinline__ float noise_near(float v) {
    const float small = v * fmaf(v, fmaf(v, 0.33333333f, 0.5f), 1.0f);
    const float t = v < 0.0625f ? small : -LN2 * log2_fast(1.0f - v);
    return -LN2 * log2_fast(t);
}

__forceinline__ float unit_of_word(uint32_t word) {
    return fminf(fmaf((float)word, 0x1p-32f, 0x1p-33f), 0x1.fffffep-1f);
}

/* Four neighbours; all lanes of the warp call. */
__forceinline__ void offer(contest &c, const float (&x)[4], int first, random4 w) {
    const uint32_t word[4] = {w.x, w.y, w.z, w.w};
    /* What the bound and the rounding of a sum may be off. */
    const float least = c.leader - (1e-4f + 1e-6f * fabsf(c.leader));
    bool may[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        may[i] = fmaf(-LN2, log2_fast(unit_of_word(word[i])), x[i]) >= least;
    if (!__any_sync(0xffffffffu, may[0] || may[1] || may[2] || may[3]))
        return;
    /* Of those that may win, the fast noise leaves one or two. */
    float near[4], lead = c.leader;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        near[i] = may[i] ? x[i] + noise_near(unit_of_word(word[i])) : -INFINITE;
        lead = fmaxf(lead, near[i]);
    }
    lead = lanes_max<32>(lead);
    lead -= 2e-3f + 2e-6f * fabsf(lead);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (may[i] && near[i] >= lead) {
            const float score = x[i] + noise_of(unit_of_word(word[i]));
            c.id = score > c.score ? first + i : c.id;
            c.score = fmaxf(score, c.score);
        }
    }
    c.leader = lanes_max<32>(c.score);
}

/* The lowest id of the best score among all: the largest of these numbers. */
__forceinline__ uint64_t rank_of(const contest &c) {
    return (uint64_t)key_of(c.score) << 32 | (uint32_t)~c.id;
}

/* Vectors begin at the row here, for four elements share a block of random words. */
__forceinline__ void compete(contest &c, const row_view &r, bool aligned, uint64_t seed,
                             uint64_t offset, int64_t out) {
    for (int begin = r.first; begin < r.last; begin += 32 * AHEAD) {
        raw_t raw[AHEAD];
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            const int j = begin + 32 * n + lane_of_warp();
            raw[n] = aligned ? read_raw(r, r.base, j) : read_unaligned(r, r.base, j);
        }
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            const int j = begin + 32 * n + lane_of_warp();
            float x[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = j < r.last ? clean(to_float(raw[n].at[i])) : NONE;
            offer(c, x, 4 * j, philox(seed, (uint64_t)out << 32 | (uint32_t)j, offset));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    bolide_gumbel(const __grid_constant__ params p) {
    __shared__ boards shown;
    const int64_t out = blockIdx.x / CLUSTER;
    const int64_t from = p.indices ? id_at(p.indices, p.indices_dtype, out) : out;
    const bool outside = from < 0 || from >= p.n;
    const input_t *row = static_cast<const input_t *>(p.input) + (outside ? 0 : from * p.input_n);
    exchange board;
    board.open(&shown);
    contest c;
    if (!outside) {
        row_view r = open_row(nullptr, nullptr, p.v, nullptr);
        r.base = row;
        compete(c, r, (uintptr_t)row % sizeof(raw_t) == 0, (uint64_t)row_int(p.seed, out),
                (uint64_t)row_int(p.offset, out), out);
    }
    uint64_t best = rank_of(c);
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        best = larger(best, (uint64_t)__shfl_xor_sync(0xffffffffu, best, step));
    best = board
               .meet({best, 0}, {0, 0},
                     [](two_words x, two_words y) {
                         return two_words{larger(x.a, y.a), 0};
                     })
               .all.a;
    if (cluster_rank<CLUSTER>() == 0 && threadIdx.x == 0)
        put_id(p.samples, p.id_dtype, out, (int64_t)(uint32_t)~best);
    board.wait();
}
