// SPDX-License-Identifier: Apache-2.0
//
// What a selection looks for, its shared memory, and its first step: the guess. Some vectors of
// each lane go into 1,024 bins by their leading bits, and from the counts follows a narrow range
// that holds the value that is looked for but for bad luck.

#ifndef BOLIDE_OPS_SAMPLING_ROW_GUESS_CUH
#define BOLIDE_OPS_SAMPLING_ROW_GUESS_CUH

#include "ops/sampling/row_ring.cuh"

static_assert(LOGITS || !CACHED, "a selection reads memory again where it must");

constexpr bool SMALL = ARCH < 80;
/* Columns are set aside beside values, which then stay until they are written, on chips that have
 * more than 100 KB of shared memory. */
constexpr bool INDEXED = RANKED && (ARCH == 80 || (ARCH >= 90 && ARCH < 120));
constexpr int BINS = BOLIDE__ROW_BINS, GUESS_BINS = 1024, GUESS_WORDS = GUESS_BINS / 2;
/* Else each lane keeps a list of its own, in the order in which it reads. A row of one block leaves
 * them where they are. */
constexpr bool IN_PLACE = !INDEXED && CLUSTER == 1;
constexpr int OWN_POOL = 448;                    /* of a warp, with columns */
constexpr bool LARGE = ARCH >= 90 && ARCH < 120; /* 227 KB of shared memory a block */
/* Few rows have a multiprocessor for each block, with twice the registers. */
constexpr bool LONE = CLUSTER == BOLIDE__ROW_BLOCKS;
#if defined(SPEC_FILTERS)
constexpr bool BY_SHARE = SPEC_FILTERS & 4;
#else
constexpr bool BY_SHARE = false;
#endif
/* A row of one block or two is read through a ring in shared memory, but where min-p is all there
 * is to a block that has a multiprocessor. */
constexpr bool RINGED = LARGE && CLUSTER <= 2 && (PROBS || SCORES) && !(SOLO && BY_SHARE);
constexpr int LANE_POOL = SMALL              ? 20
                          : CLUSTER > 1      ? 24
                          : ARCH == 80       ? 28
                          : RINGED && !SOLO  ? 37
                          : LARGE && !RANKED ? 43
                                             : 32;
constexpr int POOL = IN_PLACE ? THREADS * LANE_POOL : 8192, SLOTS = POOL / CLUSTER;
constexpr int OVERFULL = 1 << 16; /* a count of what has no room */
/* Up to so many values over a guess, nothing is taken for certain. */
constexpr int ROOMY = SMALL ? 2048 : 4096;
/* Vectors that a lane looks at for a guess. */
constexpr int SAMPLE = LONE ? (PROBS ? 4 : 2) : SOLO ? 4 : LOGITS ? 1 : 4;
/* Vectors that a lane takes at a time as a row is read. */
constexpr int GATHER = LONE               ? 4
                       : SOLO             ? (RANKED || RINGED ? 4 : 8)
                       : LOGITS || RANKED ? 2
                       : PROBS || RINGED  ? 3
                                          : 4;
using gather_ring = row_ring<SOLO ? 3 : 1, GATHER>;
constexpr int RING_VECTORS = RINGED ? gather_ring::VECTORS : 1;
/* What is read for a guess. Where that is all there is, it is kept until it is looked at again. */
constexpr int LOOK = LONE ? GATHER : SAMPLE, LOOK_STEP = LOOK / SAMPLE;
static_assert(!LONE || LOOK == GATHER, "one batch");
/* Up to so many values in a row, or kept so far, everything is set aside. */
constexpr int FEW = 3840, FEW_KEPT = 2048;
/* Up to so many values are looked for among the largest of each warp, or of each lane. */
constexpr int OF_WARPS = BOLIDE__ROW_FEW, OF_LANES = 4096;
constexpr float LEAST_PROB = __builtin_bit_cast(float, 1u);
constexpr float NAN_VALUE = __builtin_bit_cast(float, 0x7fc00000);
static_assert(BINS == 4 * THREADS && GUESS_WORDS == THREADS, "bins a thread");

/* 64-bit sums, in two words that carry. */
struct fine_bins {
    uint32_t low[BINS], high[BINS];
};

/* Blocks of a row tell each other what they find by stores that their receiver waits for. Of many
 * blocks each adds up a part of the bins for all. */
constexpr bool MAILED = CLUSTER > 1, PARTED = CLUSTER >= 8;
constexpr int PART_WORDS = PARTED ? GUESS_WORDS / CLUSTER : 4;

/* Counts of a sample: of this block, and of all as they push them, two in a word. */
template <bool PARTS> struct bins_of_all;

template <> struct alignas(16) bins_of_all<false> {
    uint32_t own[GUESS_BINS], all[CLUSTER > 1 ? CLUSTER : 1][CLUSTER > 1 ? GUESS_WORDS : 4];
};

/* The bins that this block adds up, and the sums of all, of two bins each. */
template <> struct alignas(16) bins_of_all<true> {
    uint32_t own[GUESS_BINS], part[CLUSTER][PART_WORDS];
    uint64_t sum[GUESS_WORDS];
};

using coarse_bins = bins_of_all<PARTED>;

/* Whether the ring keeps what came last, through a descent. */
constexpr bool HOLDS = RINGED && (SOLO || !IN_PLACE);
constexpr int BEFORE_RING =
    IN_PLACE ? (HOLDS ? sizeof(fine_bins) : sizeof(coarse_bins)) / sizeof(raw_t) : 0;

/* Shared memory of a selection. Members of unions have names, for NVRTC 12.4 finds no members of a
 * struct without one. */
enum room_kind { ROOM_IN_PLACE, ROOM_POOLED, ROOM_INDEXED };

template <room_kind KIND> struct select_memory;

template <> struct alignas(16) select_memory<ROOM_IN_PLACE> {
    union {
        fine_bins fine;
        coarse_bins coarse;
        raw_t ring[BEFORE_RING + RING_VECTORS]; /* vectors on their way, behind what is used then */
    };
    float own[WARPS][LANE_POOL][32]; /* what each lane has set aside */
    uint8_t listed[THREADS];         /* how many they are */
};

template <> struct alignas(16) select_memory<ROOM_POOLED> {
    union {
        fine_bins fine;
        coarse_bins coarse;
        float own[WARPS][LANE_POOL][32];
    };
    float pool[CLUSTER][SLOTS]; /* what all have set aside, pushed by each */
    raw_t ring[RING_VECTORS];   /* vectors on their way */
};

template <> struct alignas(16) select_memory<ROOM_INDEXED> {
    union {
        coarse_bins coarse;
        float own[WARPS][OWN_POOL]; /* what each warp has set aside */
    };
    int column[WARPS][OWN_POOL];
    float pool[CLUSTER][SLOTS];
    fine_bins fine;
};

using select_room = select_memory<INDEXED ? ROOM_INDEXED : IN_PLACE ? ROOM_IN_PLACE : ROOM_POOLED>;
static_assert(sizeof(select_room) <= (SMALL            ? BOLIDE__ROW_ROOM_SMALL
                                      : RINGED && SOLO ? BOLIDE__ROW_ROOM_INDEXED + BOLIDE__ROW_RING
                                      : INDEXED || RINGED || (LARGE && IN_PLACE)
                                          ? BOLIDE__ROW_ROOM_INDEXED
                                      : ARCH == 80 ? BOLIDE__ROW_ROOM_80
                                                   : BOLIDE__ROW_ROOM),
              "what the host asks for");

template <class R> __forceinline__ raw_t *ring_of(R *room) {
    if constexpr (RINGED)
        return room->ring + BEFORE_RING;
    return nullptr;
}

/* Asks for the first vectors that a pass over the row will take. */
template <class R> __forceinline__ void begin_ring(const row_view &r, R *room) {
    if constexpr (RINGED) {
        gather_ring ring;
        ring.open(ring_of(room));
        ring.fill(r);
    }
}

template <class R> __forceinline__ int *columns_of(R *room, int warp) {
    if constexpr (INDEXED)
        return room->column[warp];
    return nullptr;
}

/* ---- what is looked for ------------------------------------------------------------------- */

/* The largest t such that the values >= t, none below floor, are at least `want` or have that mass;
 * floor if there is none. A count is a mass, too: that of values of 1 in a unit of 1. */
struct goal {
    uint64_t want;
    float floor;
    mass_unit unit;
    bool counted;
    float total; /* of the row, about; for a mass */
    bool few;    /* little is above floor, as it seems */
    bool listed; /* the pool has all values from floor up */
    bool again;  /* there was a selection before, in the same memory */
    int kept;    /* values of the list from floor up, but for equal ones; if it is one */
};

/* So few values are compared each with all. */
constexpr int REST = THREADS / 4;

struct select_state {
    goal next;
    /* Weight above the range; values in the pool below the row's largest; pushed by each. */
    two_words head[CLUSTER];
    two_words tally[WARPS];
    uint64_t part[WARPS], above;
    float mass_part[WARPS], max_part[WARPS];
    int bin, low_bin, top_bin;
    uint32_t largest; /* the bits of what the block has seen of min-p's bound */
    /* The last values of a descent, and the largest key that may be the result. */
    uint64_t rest_weight[REST];
    uint32_t rest_key[REST], best;
    int rest_count;
    /* Of each warp: the weight above the range, its values in this block's part of the pool. */
    uint64_t own_above[WARPS];
    int count[WARPS], first[WARPS];
    /* Bins, their sums, and what is set aside have come; the phases each warp knows for itself. */
    barrier bins_come, sums_come, found_come;
    uint32_t bins_phase[WARPS], found_phase[WARPS];
    float warp_best[LONE ? PARTS : 1]; /* the largest value of each warp of the row */
};

/* Ahead of the first barrier of the cluster. */
__forceinline__ void open_state(select_state *state) {
    if constexpr (MAILED) {
        if (threadIdx.x < WARPS)
            state->bins_phase[threadIdx.x] = state->found_phase[threadIdx.x] = 0;
        if (threadIdx.x == 0) {
            barrier_init(state->bins_come, 1);
            barrier_init(state->sums_come, 1);
            barrier_init(state->found_come, CLUSTER);
            fence_barrier_init();
        }
        __syncthreads();
    }
}

/* The phase that this warp waits for; the next time it is the other one. */
__forceinline__ uint32_t next_phase(uint32_t *phases) {
    const uint32_t phase = phases[warp_of_block()];
    __syncwarp();
    if (lane_of_warp() == 0)
        phases[warp_of_block()] = phase ^ 1;
    __syncwarp();
    return phase;
}

__forceinline__ mass_unit unit_of_counts() {
    return {42, 0x1p-22f};
}

/* What a selection finds beside its result. */
struct gathered {
    int count;   /* of the pool, if it is listed */
    float max;   /* of the row */
    bool listed; /* the pool and the heads account for all values from the range up */
    bool whole;  /* nothing lies above the range */
    bool passed; /* the row has been gathered from */
};

/* ---- guess -------------------------------------------------------------------------------- */

/* Values that are set aside: from low up, below top or all if that is NaN. What is not below top
 * lies above. */
struct span {
    float low, top;
};

/* Bins by the leading bits, 32 to a power of two: from 2^-32 to 1 where values are not negative,
 * else from 2^-4 to 2^12 to both sides. */
constexpr int POSITIVE_FIRST = (127 - 32) * 32, SIGNED_FIRST = (127 - 4) * 32;

__forceinline__ int bin_of(float x, bool positive) {
    const int b = (int)((float_bits(x) & 0x7fffffffu) >> 18);
    if (positive)
        return smaller(larger(b - POSITIVE_FIRST, 0), GUESS_BINS - 1);
    const int m = smaller(larger(b - SIGNED_FIRST, 0), GUESS_BINS / 2 - 1);
    return (int)float_bits(x) < 0 ? GUESS_BINS / 2 - 1 - m : GUESS_BINS / 2 + m;
}

/* Where a bin begins; NaN for the lowest one of signed values. */
__forceinline__ float edge_of(int bin, bool positive) {
    if (positive)
        return bin == 0 ? 0.0f : bits_float((uint32_t)(bin + POSITIVE_FIRST) << 18);
    const int m = bin - GUESS_BINS / 2;
    if (m >= 0)
        return m == 0 ? 0.0f : bits_float((uint32_t)(m + SIGNED_FIRST) << 18);
    return bin == 0 ? NAN_VALUE : -bits_float((uint32_t)(SIGNED_FIRST - m) << 18);
}

/* The middle of a bin of values that are not negative. */
__forceinline__ float middle_of(int bin) {
    return bits_float(((uint32_t)(bin + POSITIVE_FIRST) << 18) + (1u << 17));
}

/* Groups of 32 vectors that a warp has. */
__forceinline__ int groups_of(const row_view &r) {
    return (shares_of(r.end).stretch + 31) / 32;
}

__forceinline__ void read_look(const row_view &r, int groups, batch<LOOK> &look) {
    look.read(r, [&](int n) { return r.first + 32 * (groups > LOOK ? n * groups / LOOK : n); });
}

/* Fills the bins of this block and gives the share of the elements in them, 1 to so many. L1 keeps
 * what is read, which is all there is of a row that is spread over many blocks. */
__forceinline__ float take_sample(const row_view &r, select_room *room, bool positive, float floor,
                                  batch<LOOK> &look) {
    const int groups = groups_of(r);
    read_look(r, groups, look);
    begin_ring(r, room);
    room->coarse.own[threadIdx.x] = room->coarse.own[threadIdx.x + THREADS] = 0;
    __syncthreads();
#pragma unroll
    for (int n = 0; n < LOOK; n++) {
        float x[4];
        if (n % LOOK_STEP != 0 && groups > SAMPLE)
            continue;
        look.unpack<true>(r, n, x);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int b = bin_of(x[i], positive);
            /* The bin of the least probabilities would be on one address what most wait for. */
            if (x[i] >= floor && b > 0)
                atomicAdd(&room->coarse.own[b], 1u);
        }
    }
    __syncthreads();
    return groups > SAMPLE ? (float)groups / SAMPLE : 1.0f;
}

/* Eight counts, two in a word. */
__forceinline__ two_words pack_counts(const uint32_t *counts) {
    const uint4 a = reinterpret_cast<const uint4 *>(counts)[0];
    const uint4 b = reinterpret_cast<const uint4 *>(counts)[1];
    return {(uint64_t)(a.z | a.w << 16) << 32 | (a.x | a.y << 16),
            (uint64_t)(b.z | b.w << 16) << 32 | (b.x | b.y << 16)};
}

/* Each block adds up a part of the bins of all, and sends the sums to all. */
template <class B> __forceinline__ void share_parts(B *bins, select_state *state, uint32_t phase) {
    constexpr int SENDERS = GUESS_WORDS / 4, PEERS = CLUSTER * PART_WORDS / SENDERS;
    const int rank = cluster_rank<CLUSTER>(), thread = (int)threadIdx.x;
    if (thread < SENDERS) {
        const int to = 4 * thread / PART_WORDS, at = 4 * thread % PART_WORDS;
        send_peer(reinterpret_cast<two_words *>(&bins->part[rank][at]), to,
                  pack_counts(&bins->own[8 * thread]), state->bins_come);
        wait_peers(state->bins_come, phase);
        const int word = thread % PART_WORDS;
        uint32_t low = 0, high = 0;
#pragma unroll
        for (int from = 0; from < CLUSTER; from++) {
            const uint32_t x = bins->part[from][word];
            low += x & 0xffff;
            high += x >> 16;
        }
#pragma unroll
        for (int i = 0; i < PEERS; i++)
            send_peer(&bins->sum[PART_WORDS * rank + word], thread / PART_WORDS * PEERS + i,
                      (uint64_t)high << 32 | low, state->sums_come);
    }
    wait_peers(state->sums_come, phase);
}

/* Pushes this block's bins to all; those who wait see the bins of all. */
template <class B> __forceinline__ void mail_bins(B *bins, select_state *state) {
    const uint32_t phase = next_phase(state->bins_phase);
    if (threadIdx.x == 0) {
        barrier_expect(state->bins_come, (PARTED ? 1 : CLUSTER) * GUESS_WORDS * sizeof(uint32_t));
        if (PARTED)
            barrier_expect(state->sums_come, GUESS_WORDS * sizeof(uint64_t));
    }
    if constexpr (PARTED) {
        share_parts(bins, state, phase);
    } else {
        constexpr int VECTORS = GUESS_WORDS / 4, PEERS = THREADS / VECTORS;
        const int at = 4 * ((int)threadIdx.x % VECTORS), rank = cluster_rank<CLUSTER>();
        const two_words own = pack_counts(&bins->own[2 * at]);
#pragma unroll
        for (int peer = (int)threadIdx.x / VECTORS; peer < CLUSTER; peer += PEERS)
            send_peer(reinterpret_cast<two_words *>(&bins->all[rank][at]), peer, own,
                      state->bins_come);
        wait_peers(state->bins_come, phase);
    }
}

/* Counts of two neighbouring bins, of all blocks. */
template <class B> __forceinline__ void read_counts(const B &bins, int word, uint32_t (&count)[2]) {
    if constexpr (PARTED) {
        count[0] = (uint32_t)bins.sum[word];
        count[1] = (uint32_t)(bins.sum[word] >> 32);
    } else if constexpr (CLUSTER == 1) {
        const uint2 x = reinterpret_cast<const uint2 *>(bins.own)[word];
        count[0] = x.x;
        count[1] = x.y;
    } else {
        count[0] = count[1] = 0;
#pragma unroll
        for (int from = 0; from < CLUSTER; from++) {
            const uint32_t x = bins.all[from][word];
            count[0] += x & 0xffff;
            count[1] += x >> 16;
        }
    }
}

/* Which bins hold the target: state->low_bin, -1 for all, and top_bin, from which on all lies
 * above; GUESS_BINS if the sample cannot tell, or need not as all of it has room. target: a count,
 * or the mass that lies below. */
__forceinline__ void judge_sample(const select_room *room, select_state *state, float share,
                                  float target, bool counted) {
    /* Counts add up from the top, masses from the bottom. Where values lie in their bin is not
     * known: the variance of that as a part of their squares. */
    constexpr float WITHIN = 2e-4f, DEVIATIONS = LARGE && IN_PLACE && !SOLO ? 3.25f : 3.0f;
    const int at = counted ? THREADS - 1 - (int)threadIdx.x : (int)threadIdx.x;
    uint32_t count[2];
    float weight[2], own = 0.0f;
    read_counts(room->coarse, at, count);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        weight[i] = (float)count[i] * (counted ? 1.0f : middle_of(2 * at + i));
        own += weight[i];
    }
    const float upto = warp_prefix(own);
    if (lane_of_warp() == 31)
        state->mass_part[warp_of_block()] = upto;
    if (threadIdx.x == 0) {
        state->low_bin = -1;
        state->top_bin = GUESS_BINS;
    }
    __syncthreads();
    const int lane = lane_of_warp();
    int low = -1, top = GUESS_BINS;
    float sum = warp_total(lane < warp_of_block() ? state->mass_part[lane % WARPS] : 0.0f);
    sum += upto - own;
    const float wanted = target / share;
    const float excess = share == 1.0f ? 0.0f : 3.0f * sqrtf(wanted) + 4.0f;
    const bool roomy = (wanted + excess) * share <= ROOMY;
    if (counted) {
#pragma unroll
        for (int i = 1; i >= 0; i--) {
            sum += weight[i];
            low = sum >= wanted + excess ? larger(low, 2 * at + i) : low;
            top = !roomy && sum < wanted - excess ? 2 * at + i : top;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            /* The mass below is what a sample knows well: no single value there is large. */
            const float edge = edge_of(2 * at + i, true), below = share * sum;
            const float spread = DEVIATIONS * sqrtf((share - 1.0f + WITHIN) * edge * below);
            const float slack = spread + 0.003f * below;
            low = below + slack <= target ? 2 * at + i : low;
            top = below - slack > target ? smaller(top, 2 * at + i) : top;
            sum += weight[i];
        }
    }
    /* One atomic a warp: all on one address would wait for each other. */
    low = (int)warp_max((uint32_t)(low + 1)) - 1;
    top = GUESS_BINS - (int)warp_max((uint32_t)(GUESS_BINS - top));
    if (lane == 0) {
        atomicMax(&state->low_bin, low);
        atomicMin(&state->top_bin, top);
    }
    __syncthreads();
}

/* A bound that so many values reach for certain, and few more: the largest of each warp, or of each
 * lane, are values, too, and so many of those reach it. The row is all looked at. */
template <class R>
__forceinline__ span guess_largest(const row_view &r, exchange &e, R *room, select_state *state,
                                   const goal &q, batch<LOOK> &look) {
    read_look(r, groups_of(r), look);
    const bool of_warps = q.want <= OF_WARPS;
    const int thread = (int)threadIdx.x;
    uint32_t *bins = of_warps ? reinterpret_cast<uint32_t *>(room->coarse.sum) : room->coarse.own;
    bins[thread] = bins[thread + THREADS] = 0;
    __syncthreads();
    float max = NONE;
#pragma unroll
    for (int n = 0; n < LOOK; n++) {
        float x[4];
        look.template unpack<true>(r, n, x);
        max = fmaxf(fmaxf(max, fmaxf(x[0], x[1])), fmaxf(x[2], x[3]));
    }
    if (of_warps) {
        const uint32_t phase = next_phase(state->bins_phase);
        max = warp_max(max);
        if (thread == 0) {
            barrier_expect(state->bins_come, PARTS * sizeof(float));
            barrier_expect(state->sums_come, 0);
        }
        e.wait();
        if (lane_of_warp() < CLUSTER)
            send_peer(&state->warp_best[cluster_rank<CLUSTER>() * WARPS + warp_of_block()],
                      lane_of_warp(), max, state->bins_come);
        wait_peers(state->bins_come, phase);
        max = thread < PARTS ? state->warp_best[thread % PARTS] : NONE;
    }
    const int bin = bin_of(max, PROBS);
    if (max >= q.floor && bin > 0)
        atomicAdd(&bins[bin], 1u);
    __syncthreads();
    if (!of_warps) {
        e.wait();
        mail_bins(&room->coarse, state);
    }
    judge_sample(room, state, 1.0f, (float)q.want, true);
    const int low = state->low_bin;
    return {low < 0 ? q.floor : fmaxf(edge_of(low, PROBS), q.floor), NAN_VALUE};
}

/* Peers may not have begun when the sample is taken. */
template <class S>
__forceinline__ span guess(const row_view &r, exchange &e, select_room *room, select_state *state,
                           const goal &q, S &beside, batch<LOOK> &look) {
    const bool positive = PROBS || !q.counted;
    const float share = take_sample(r, room, positive, q.floor, look);
    beside.guess(r, q);
    e.wait();
    if constexpr (MAILED)
        mail_bins(&room->coarse, state);
    const double weight = (double)q.want * power_of_two(q.unit.exponent - 42);
    judge_sample(room, state, share, q.counted ? (float)weight : q.total - (float)weight,
                 q.counted);
    const int low = state->low_bin, top = state->top_bin;
    return {low < 0 ? q.floor : fmaxf(edge_of(low, positive), q.floor),
            top == GUESS_BINS ? NAN_VALUE : edge_of(top, positive)};
}

#endif
