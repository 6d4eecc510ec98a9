// SPDX-License-Identifier: Apache-2.0
//
// A draw under top-k of few. The few values that may be kept come to one block of
// the cluster with their columns, where each is compared with all: that says which are kept, by
// count and by mass, and as they lie in the order of the columns their running sum says which is
// drawn. Rows whose largest values crowd in the stretch of one warp are for others.

#ifndef BOLIDE_OPS_SAMPLING_ROW_LIST_CUH
#define BOLIDE_OPS_SAMPLING_ROW_LIST_CUH

#include "ops/sampling/row_draw.cuh"

/* Places of a warp, values in all, and how many of them are looked for at most. */
constexpr int A_WARP = 16, LISTED = THREADS / 2;

struct list_room {
    uint64_t place[PARTS][A_WARP]; /* column and value, sent by each warp */
    int count[PARTS];
    barrier come; /* each warp announces what it sends */
    uint64_t mass[LISTED], part[WARPS];
    uint32_t key[LISTED];
    int column[LISTED];
};

/* What is kept, and from what. */
struct list_filter {
    int k;
    bool summed, of_kept; /* top-p, and whether of what top-k keeps */
    float top_p;
};

/* By one thread, ahead of the fence and the first barrier of the cluster. */
__forceinline__ void open_list(list_room *list) {
    barrier_init(list->come, PARTS);
}

/* What this warp sends, as it goes. */
struct list_sender {
    list_room *list;
    int to, count;

    /* A vector of each lane, what of it is from `low` up; in the order of the columns. */
    __forceinline__ void send(const float (&x)[4], float low, int column) {
        uint32_t mask = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            mask |= (uint32_t)(x[i] >= low) << i;
        if (!__any_sync(0xffffffffu, mask != 0))
            return;
        const int upto = warp_prefix(__popc(mask));
        int slot = count + upto - __popc(mask);
        uint64_t *places = list->place[cluster_rank<CLUSTER>() * WARPS + warp_of_block()];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (mask >> i & 1) {
                if (slot < A_WARP)
                    send_peer(places + slot, to,
                              (uint64_t)(uint32_t)(column + i) << 32 | float_bits(x[i]),
                              list->come);
                slot++;
            }
        }
        count += __shfl_sync(0xffffffffu, upto, 31);
    }

    __forceinline__ void close() {
        if (lane_of_warp() == 0) {
            const int part = cluster_rank<CLUSTER>() * WARPS + warp_of_block();
            announce_peer(list->come, to,
                          (uint32_t)(sizeof(int) + sizeof(uint64_t) * smaller(count, A_WARP)));
            send_peer(reinterpret_cast<float *>(&list->count[part]), to,
                      bits_float((uint32_t)count), list->come);
        }
    }
};

/* The sum of what threads have before this one, and of all. */
__forceinline__ place sum_before(list_room *list, uint64_t mine) {
    const int lane = lane_of_warp(), warp = warp_of_block();
    const uint64_t upto = warp_prefix(mine);
    if (lane == 31)
        list->part[warp] = upto;
    __syncthreads();
    const uint64_t part = lane < WARPS ? list->part[lane] : 0;
    const place p = {warp_total(lane < warp ? part : 0) + upto - mine, warp_total(part)};
    __syncthreads();
    return p;
}

/* Waits for the list and gives the number of its values, 0 if there are too many. */
__forceinline__ int take_list(list_room *list, uint32_t phase) {
    const int thread = (int)threadIdx.x;
    wait_peers(list->come, phase);
    const int own = thread < PARTS ? list->count[thread % PARTS] : 0;
    const place p = sum_before(list, (uint64_t)own | (uint64_t)(own > A_WARP) << 32);
    const int count = p.total > LISTED ? 0 : (int)p.total;
    if (count > 0) {
#pragma unroll 1
        for (int i = 0; i < own; i++) {
            const uint64_t x = list->place[thread % PARTS][i];
            list->key[(int)p.before + i] = (uint32_t)x;
            list->column[(int)p.before + i] = (int)(x >> 32);
        }
    }
    __syncthreads();
    return count;
}

/* The largest of the list. */
__forceinline__ float list_max(const list_room *list, int count) {
    float best = NONE;
#pragma unroll 1
    for (int i = lane_of_warp(); i < count; i += 32)
        best = fmaxf(best, bits_float(list->key[i]));
    return warp_max(best);
}

/* What a thread knows of its value, one of two threads each. */
struct listed_value {
    bool kept;
    uint64_t mass, above; /* its own, and what is larger */
    mass_unit unit;
};

/* Compares each with all. */
__forceinline__ listed_value rank_list(list_room *list, int count, int k, int64_t v) {
    const int thread = (int)threadIdx.x, at = thread / 2;
    const float max = list_max(list, count);
    mass_unit u = unit_of(1.0f, (int)v);
    if (PROBS && !suits(u, max))
        u = unit_of(max, (int)v);
    const weighing w = {-INFINITE, max, 1.0f};
    __syncthreads();
    if (thread < count) {
        const float x = bits_float(list->key[thread]);
        list->mass[thread] = mass_of(LOGITS ? weight_of(w, x) : x, u);
        list->key[thread] = key_of(x);
    }
    __syncthreads();
    /* How many are larger, above their mass. */
    uint64_t over = 0;
    if (16 * warp_of_block() < count) {
        const uint32_t own = list->key[smaller(at, count - 1)];
#pragma unroll 4
        for (int i = thread % 2; i < count; i += 2)
            over += list->key[i] > own ? list->mass[i] + (1ull << 54) : 0;
        over += __shfl_xor_sync(0xffffffffu, over, 1);
    }
    const bool here = thread % 2 == 0 && at < count;
    return {here && (int)(over >> 54) < k, here ? list->mass[at] : 0, over & (1ull << 54) - 1, u};
}

/* By the block that has the list: done(column) is called by one thread. */
template <class F>
__forceinline__ void draw_list(list_room *list, int count, int64_t v, const list_filter &f,
                               uint64_t uniform, F done) {
    listed_value x = rank_list(list, count, f.k, v);
    place p = sum_before(list, x.kept ? x.mass : 0);
    if (f.summed) {
        const double whole =
            f.of_kept ? (double)p.total : (double)(1ull << larger(42 - x.unit.exponent, 0));
        x.kept = x.kept && x.above < share_of(f.top_p, whole);
        p = sum_before(list, x.kept ? x.mass : 0);
    }
    const uint64_t goal = __umul64hi(uniform << 11, p.total);
    if (x.kept && p.before <= goal && p.before + x.mass > goal)
        done(list->column[threadIdx.x / 2]);
}

#endif
