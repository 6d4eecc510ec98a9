// SPDX-License-Identifier: Apache-2.0
//
// The Gumbel-max trick: noise for each logit from its own random word, and the largest sum wins.
// Ten rounds of Philox cost sixty instructions, so they serve eight elements: a half of a word has
// what shows that an element cannot win, for noise is at most -log(v), and the least v and the
// largest logit of the eight show it for all of them together. The few that may win are listed, and
// at the end all threads share them out: they get the other half of their words from another block,
// and their noise.

#include "ops/sampling/row_draw.cuh"

using params = bolide__sample_params;

static_assert(LOGITS && !CACHED, "logits are read once");

/* Vectors of a lane that share a block of random words, 32 apart; pairs that it loads at a time. */
constexpr int PAIR = 2, PAIRS = 2, LOADS = PAIR * PAIRS;

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

/* The counter's high words and the key of each round are the same for a whole row. */
struct generator {
    uint32_t row, offset_low, offset_high, key[20];

    __forceinline__ void open(uint64_t seed, uint64_t offset, int64_t out) {
        row = (uint32_t)out;
        offset_low = (uint32_t)offset;
        offset_high = (uint32_t)(offset >> 32);
#pragma unroll
        for (int i = 0; i < 10; i++) {
            key[2 * i] = (uint32_t)seed + (uint32_t)i * 0x9e3779b9u;
            key[2 * i + 1] = (uint32_t)(seed >> 32) + (uint32_t)i * 0xbb67ae85u;
        }
    }

    /* Philox of counter n, as in math.cuh. */
    __forceinline__ random4 words(uint32_t n) const {
        random4 c = {n, row, offset_low, offset_high};
#pragma unroll
        for (int i = 0; i < 10; i++) {
            const uint64_t a = (uint64_t)0xd2511f53u * c.x;
            const uint64_t b = (uint64_t)0xcd9e8d57u * c.z;
            c = {(uint32_t)(b >> 32) ^ c.y ^ key[2 * i], (uint32_t)b,
                 (uint32_t)(a >> 32) ^ c.w ^ key[2 * i + 1], (uint32_t)a};
        }
        return c;
    }
};

/* The least of the upper halves of words, and of the lower ones, in the same places. */
__forceinline__ uint32_t least_halves(random4 w) {
    if constexpr (ARCH >= 90) {
        uint32_t x, y, least;
        asm("min.u16x2 %0, %1, %2;" : "=r"(x) : "r"(w.x), "r"(w.y));
        asm("min.u16x2 %0, %1, %2;" : "=r"(y) : "r"(w.z), "r"(w.w));
        asm("min.u16x2 %0, %1, %2;" : "=r"(least) : "r"(x), "r"(y));
        return least;
    } else {
        const uint32_t upper = smaller(smaller(w.x, w.y), smaller(w.z, w.w));
        const uint32_t lower =
            smaller(smaller(w.x & 0xffff, w.y & 0xffff), smaller(w.z & 0xffff, w.w & 0xffff));
        return (upper & 0xffff0000u) | lower;
    }
}

/* Four neighbours with their words; all lanes of the warp call. shared: the best score in this
 * block, by key_of. */
__forceinline__ void offer(contest &c, uint32_t *shared, const float (&x)[4], int first,
                           const uint32_t (&word)[4]) {
    /* Of those that may win, the fast noise leaves one or two. */
    float near[4], lead = c.leader;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        near[i] = x[i] + noise_near(unit_of_word(word[i]));
        lead = fmaxf(lead, near[i]);
    }
    lead = lanes_max<32>(lead);
    lead -= 2e-3f + 2e-6f * fabsf(lead);
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        const float y = i == 0 ? near[0] : i == 1 ? near[1] : i == 2 ? near[2] : near[3];
        if (y >= lead) {
            const float logit = i == 0 ? x[0] : i == 1 ? x[1] : i == 2 ? x[2] : x[3];
            const uint32_t bits = i == 0 ? word[0] : i == 1 ? word[1] : i == 2 ? word[2] : word[3];
            const float score = logit + noise_of(unit_of_word(bits));
            c.id = score > c.score ? first + i : c.id;
            c.score = fmaxf(score, c.score);
        }
    }
    c.leader = fmaxf(c.leader, lanes_max<32>(c.score));
    if (lane_of_warp() == 0)
        atomicMax(shared, key_of(c.leader));
}

/* Pairs of vectors that may win, for all threads of the block to share out at the end: looked into
 * at once, each would hold up its whole warp. Where a block has a row, others go on meanwhile. */
constexpr bool LISTED = CLUSTER > 1;
constexpr int WAITING = LISTED ? 256 : 1;

struct waiting_room {
    raw_t pair[WAITING][PAIR];
    int first[WAITING]; /* vector */
    int count;          /* more than there is room for if some were looked into at once */
    uint32_t best_key;  /* of the best score that the block knows of */
};

/* The block of random words of vector j and of that 32 behind it. */
__forceinline__ uint32_t block_of(int j) {
    return (uint32_t)(j / 64 * 32 + j % 64);
}

/* Lists the pairs of those lanes. Whether there was room for all. */
__forceinline__ bool put_off(waiting_room *room, const raw_t (&raw)[PAIR], int j, uint32_t lanes) {
    const int lane = lane_of_warp(), own = __popc(lanes & ((1u << lane) - 1));
    int at = 0;
    if (lane == 0)
        at = atomicAdd(&room->count, __popc(lanes));
    at = __shfl_sync(0xffffffffu, at, 0);
    if ((lanes >> lane & 1) && at + own < WAITING) {
        room->pair[at + own][0] = raw[0];
        room->pair[at + own][1] = raw[1];
        room->first[at + own] = j;
    }
    return at + __popc(lanes) <= WAITING;
}

/* Vector j of each lane and that 32 behind it, which share a block of random words; of the second
 * block elements use the same halves as of the first. */
__forceinline__ void offer_pair(contest &c, waiting_room *room, const raw_t (&raw)[PAIR],
                                bool (&there)[PAIR], int j, const generator &g, float slack) {
    const uint32_t n = block_of(j);
    const random4 w = g.words(n);
    float largest = -INFINITE;
#pragma unroll
    for (int h = 0; h < PAIR; h++) {
        /* NaN counts for nothing. */
        const float a = fmaxf(to_float(raw[h].at[0]), to_float(raw[h].at[1]));
        const float b = fmaxf(to_float(raw[h].at[2]), to_float(raw[h].at[3]));
        largest = there[h] ? fmaxf(largest, fmaxf(a, b)) : largest;
    }
    /* Noise is at most -log(v): who wins has v <= exp(x - leader), here with some room. */
    const uint32_t least = least_halves(w);
    const uint32_t half = smaller(least >> 16, least & 0xffffu);
    const float v = fmaf(bits_float(half | 0x4b000000u), 0x1p-16f, -0x1p7f);
    const float bound = exp2_fast(fmaf(largest - c.leader, LOG2E, slack));
    const uint32_t winners = __ballot_sync(0xffffffffu, !(v > bound));
    if (winners == 0 || (LISTED && put_off(room, raw, j, winners)))
        return;
#pragma unroll 1
    for (int h = 0; h < PAIR; h++) {
        /* Computed anew: nothing of it is kept in registers while noise is. */
        uint32_t block = n;
        asm volatile("" : "+r"(block));
        const random4 w = g.words(block), l = g.words(block | 1u << 31);
        const uint32_t upper[4] = {w.x, w.y, w.z, w.w}, lower[4] = {l.x, l.y, l.z, l.w};
        float x[4];
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float y = to_float(h == 0 ? raw[0].at[i] : raw[1].at[i]);
            x[i] = (h == 0 ? there[0] : there[1]) ? clean(y) : NONE;
            word[i] = h == 0 ? (upper[i] & 0xffff0000u) | lower[i] >> 16
                             : upper[i] << 16 | (lower[i] & 0xffffu);
        }
        offer(c, &room->best_key, x, 4 * j + 128 * h, word);
    }
}

/* The lowest id of the best score among all: the largest of these numbers. */
__forceinline__ uint64_t rank_of(const contest &c) {
    return (uint64_t)key_of(c.score) << 32 | (uint32_t)~c.id;
}

__forceinline__ void read_pairs(const row_view &r, bool aligned, int begin, batch<LOADS> &b) {
    if (aligned) {
        b.read(r, [&](int n) { return begin + 32 * n; });
    } else {
#pragma unroll
        for (int n = 0; n < LOADS; n++)
            b.raw[n] = read_unaligned(r, r.base, begin + 32 * n + lane_of_warp());
    }
}

/* What this lane's first pair scores at least: its words without their lower halves. With that
 * most of what is read can be told from the winner at once. */
__forceinline__ float prime(const row_view &r, const batch<LOADS> &b, const generator &g) {
    const int j = r.first + lane_of_warp();
    const random4 w = g.words(block_of(j));
    const uint32_t word[4] = {w.x, w.y, w.z, w.w};
    float best = -INFINITE;
#pragma unroll
    for (int h = 0; h < (LISTED ? PAIR : 1); h++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float v = unit_of_word((h == 0 ? word[i] : word[i] << 16) | 0xffffu);
            const float least = clean(to_float(b.raw[h].at[i])) + noise_near(v);
            best = j + 32 * h < r.last ? fmaxf(best, least) : best;
        }
    }
    return best - (2e-3f + 2e-6f * fabsf(best));
}

/* Vectors begin at the row here, for neighbours share a block of random words. */
__forceinline__ void compete(contest &c, waiting_room *room, const row_view &r, bool aligned,
                             const generator &g, batch<LOADS> &b) {
    for (int begin = r.first; begin < r.last; begin += 32 * LOADS) {
        /* What others have found spares work, and the result does not depend on it. */
        c.leader = fmaxf(c.leader, value_of(*static_cast<volatile uint32_t *>(&room->best_key)));
        const float slack = fmaf(fabsf(c.leader), 3e-6f, 0.01f);
#pragma unroll
        for (int n = 0; n < LOADS; n += PAIR) {
            const int j = begin + 32 * n + lane_of_warp();
            const raw_t raw[PAIR] = {b.raw[n], b.raw[n + 1]};
            bool there[PAIR] = {j < r.last, j + 32 < r.last};
            offer_pair(c, room, raw, there, j, g, slack);
        }
        const int next = begin + 32 * LOADS;
        if (next < r.last)
            read_pairs(r, aligned, next, b);
    }
}

/* The listed pairs, an element for each thread. */
__forceinline__ void settle(contest &c, const waiting_room *room, const row_view &r,
                            const generator &g) {
    constexpr int EACH = 4 * PAIR;
    __syncthreads();
    const int count = EACH * smaller(room->count, WAITING);
    for (int at = (int)threadIdx.x; at < count; at += THREADS) {
        const int j = room->first[at / EACH], h = at / 4 % PAIR, i = at % 4;
        const uint32_t n = block_of(j);
        const random4 w = g.words(n), l = g.words(n | 1u << 31);
        const uint32_t upper = i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
        const uint32_t lower = i == 0 ? l.x : i == 1 ? l.y : i == 2 ? l.z : l.w;
        const uint32_t word =
            h == 0 ? (upper & 0xffff0000u) | lower >> 16 : upper << 16 | (lower & 0xffffu);
        const float x = clean(to_float(room->pair[at / EACH][h].at[i]));
        const float score =
            (4 * (j + 32 * h) < r.end ? x : -INFINITE) + noise_of(unit_of_word(word));
        const int id = 4 * (j + 32 * h) + i;
        const bool better = score > c.score || (score == c.score && id < c.id);
        c.id = better ? id : c.id;
        c.score = better ? score : c.score;
    }
}

/* The stretch of this warp: whole groups of 64 vectors, whose halves share their random words. */
__forceinline__ void share_groups(row_view &r, int64_t v) {
    const int vectors = (int)ceil_div(v, 4), groups = (vectors + 63) / 64;
    const int warp = cluster_rank<CLUSTER>() * WARPS + warp_of_block();
    const int a_warp = (groups + PARTS - 1) / PARTS;
    r.first = smaller(64 * a_warp * warp, vectors);
    r.last = smaller(r.first + 64 * a_warp, vectors);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    bolide_gumbel(const __grid_constant__ params p) {
    __shared__ boards shown;
    __shared__ __align__(16) waiting_room room;
    exchange board;
    board.open(&shown);
    const int64_t out = blockIdx.x / CLUSTER;
    begin_kernel();
    const int64_t from = p.indices ? id_at(p.indices, p.indices_dtype, out) : out;
    const bool outside = from < 0 || from >= p.n;
    const input_t *row = static_cast<const input_t *>(p.input) + (outside ? 0 : from * p.input_n);
    if (threadIdx.x == 0) {
        room.best_key = key_of(-INFINITE);
        room.count = 0;
    }
    __syncthreads();
    contest c;
    if (!outside) {
        row_view r = open_row(nullptr, nullptr, p.v, nullptr);
        r.base = row;
        share_groups(r, p.v);
        generator g;
        g.open((uint64_t)row_int(p.seed, out), (uint64_t)row_int(p.offset, out), out);
        const bool aligned = (uintptr_t)row % sizeof(raw_t) == 0;
        batch<LOADS> b;
        read_pairs(r, aligned, r.first, b);
        const float least = lanes_max<32>(prime(r, b, g));
        if (lane_of_warp() == 0)
            atomicMax(&room.best_key, key_of(least));
        __syncthreads();
        compete(c, &room, r, aligned, g, b);
        if constexpr (LISTED)
            settle(c, &room, r, g);
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
