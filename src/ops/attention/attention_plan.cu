// SPDX-License-Identifier: Apache-2.0
//
// A plan made on the GPU, from lengths that lie there: the balanced schedule of schedule.h by one
// block, so that nothing is copied back and a graph may hold the plan beside the run. Tiles are
// laid on the tape by a sum over all before them; where each worker's stretch ends is then looked
// up, and with the number of cuts before each tile every item knows its place. The time is that of
// some passes over a few thousand numbers, about as long as a launch.

#include "cuda/device/base.cuh"
#include "ops/attention/attention_internal.h"

constexpr int THREADS = 1024;
constexpr int WARPS = THREADS / 32;

using planner = bolide__attention_planner;
using tile = bolide__attention_tile;
using cut = bolide__attention_cut;
using work = bolide__attention_work;

int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct scan_memory {
    int64_t warp[WARPS];
    int64_t carry;
};

/* Of all threads before this one and of those in earlier rounds; *total is that of all so far. All
 * threads call, a round for each THREADS numbers. */
int64_t sum_before(int64_t x, scan_memory &s, int64_t *total) {
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32;
    int64_t upto = x;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int64_t other = __shfl_up_sync(0xffffffffu, (long long)upto, step);
        upto += lane >= step ? other : 0;
    }
    if (lane == 31)
        s.warp[own] = upto;
    __syncthreads();
    int64_t before = s.carry, all = s.carry;
    for (int w = 0; w < WARPS; w++) {
        before += w < own ? s.warp[w] : 0;
        all += s.warp[w];
    }
    __syncthreads(); /* every thread has read the carry and the warps' sums */
    if (threadIdx.x == 0)
        s.carry = all;
    *total = all;
    return before + upto - x;
}

void begin_sum(scan_memory &s) {
    __syncthreads();
    if (threadIdx.x == 0)
        s.carry = 0;
    __syncthreads();
}

/* The last of n numbers that do not fall, from the first on, that is at most x. */
template <typename T> int64_t last_at_most(const T *numbers, int64_t n, int64_t x) {
    int64_t low = 0, high = n;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (numbers[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- requests and tiles ---------------------------------------------------------------------- */

struct lengths {
    int32_t q_start, o_start, q_len, kv_len, kv_start, v_start;
};

lengths lengths_of(const planner &p, int64_t r) {
    lengths l = {};
    int64_t q_len = p.q_len_per_req, kv_len = 0;
    l.q_start = (int32_t)(p.qo ? p.qo[r] : r * q_len);
    if (p.qo)
        q_len = p.q_len ? p.q_len[r] : p.qo[r + 1] - p.qo[r];
    l.o_start = p.o ? p.o[r] : l.q_start;
    l.kv_start = p.kv ? p.kv[r] : 0;
    l.v_start = p.v ? p.v[r] : l.kv_start;
    kv_len = p.kv_len ? p.kv_len[r] : p.kv[r + 1] - p.kv[r];
    l.q_len = (int32_t)larger(q_len, 0);
    l.kv_len = (int32_t)larger(smaller(kv_len, p.max_kv_len), 0);
    return l;
}

/* Where each request's tiles begin; returns how many there are. */
int64_t count_tiles(const planner &p, scan_memory &s) {
    int64_t all = 0;
    begin_sum(s);
    for (int64_t first = 0; first < p.batch; first += THREADS) {
        const int64_t r = first + threadIdx.x;
        const int64_t rows = r < p.batch ? lengths_of(p, r).q_len * p.group : 0;
        const int64_t start = sum_before((rows + p.tile_rows - 1) / p.tile_rows, s, &all);
        if (r < p.batch)
            p.tile_start[r] = (int32_t)smaller(start, p.max_tiles);
    }
    __syncthreads();
    return smaller(all, p.max_tiles);
}

/* Keys that some row of a tile may see, as bolide__schedule_range. */
tile tile_at(const planner &p, int64_t t) {
    const int64_t r = last_at_most(p.tile_start, p.batch, t);
    const lengths l = lengths_of(p, r);
    const int64_t row = (t - p.tile_start[r]) * p.tile_rows, shift = l.kv_len - l.q_len;
    const int64_t last = smaller(l.q_len - 1, (row + p.tile_rows - 1) / p.group);
    const int64_t high = p.causal ? smaller(l.kv_len, shift + last + 1) : l.kv_len;
    const int64_t low = p.window_left >= 0 ? larger(shift + row / p.group - p.window_left, 0) : 0;
    const bool empty = low >= high;
    return {(int32_t)r, (int32_t)row, empty ? 0 : (int32_t)low, empty ? 0 : (int32_t)high};
}

/* Tiles and their places on the tape; returns its length. */
int64_t lay_tape(const planner &p, int64_t tiles, scan_memory &s) {
    int64_t all = 0;
    begin_sum(s);
    for (int64_t first = 0; first < tiles; first += THREADS) {
        const int64_t t = first + threadIdx.x;
        tile it = {};
        if (t < tiles)
            it = tile_at(p, t);
        const int64_t cost = larger(it.kv_end - it.kv_begin, 1) + p.tile_cost;
        const int64_t at = sum_before(t < tiles ? cost : 0, s, &all);
        if (t < tiles) {
            p.tiles[t] = it;
            p.place[t] = at;
        }
    }
    __syncthreads();
    return all;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* Where stretch k begins: within a tile, or at the beginning of one. */
cut cut_at(const planner &p, int64_t tiles, int64_t at) {
    const int64_t t = last_at_most(p.place, tiles, at), least = larger(p.min_chunk / 8, 1);
    const tile it = p.tiles[t];
    int64_t key = it.kv_begin + larger(at - p.place[t] - p.tile_cost, 0);
    key = (key + p.granule / 2) / p.granule * p.granule;
    cut c = {};
    c.tile = (int32_t)t;
    c.key = (int32_t)smaller(key, it.kv_end);
    c.inside = key - it.kv_begin >= least && it.kv_end - key >= least;
    c.behind = !c.inside && key - it.kv_begin >= it.kv_end - key && it.kv_end > it.kv_begin;
    return c;
}

bool is_first_inside(const planner &p, int64_t k) {
    int64_t j = k - 1;
    while (j > 0 && p.cuts[j].tile == p.cuts[k].tile && !p.cuts[j].inside)
        j--;
    return p.cuts[k].inside && (j <= 0 || p.cuts[j].tile != p.cuts[k].tile);
}

/* Cuts 1 … stretches-1 with how many lie before each, and how many tiles are divided before it. */
void make_cuts(const planner &p, int64_t tiles, int64_t tape, int64_t stretches, scan_memory &s) {
    int64_t all = 0;
    for (int64_t k = 1 + threadIdx.x; k < stretches; k += THREADS)
        p.cuts[k] = cut_at(p, tiles, tape / stretches * k + tape % stretches * k / stretches);
    begin_sum(s);
    for (int64_t first = 1; first <= stretches; first += THREADS) {
        const int64_t k = first + threadIdx.x;
        const bool there = k < stretches;
        const int64_t inside = there ? p.cuts[k].inside : 0;
        const int64_t divides = there ? is_first_inside(p, k) : 0;
        /* Both counts in one number: cuts in the low half. */
        const int64_t before = sum_before(inside + (divides << 32), s, &all);
        if (k <= stretches) {
            p.cuts[k].cuts_before = (int32_t)(before & 0x7fffffff);
            p.cuts[k].divided_before = (int32_t)(before >> 32);
        }
    }
    __syncthreads();
}

/* The first cut, from 1 on, in a tile from t on; stretches if there is none. */
int64_t first_cut(const planner &p, int64_t stretches, int64_t t) {
    int64_t low = 1, high = stretches;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (p.cuts[middle].tile < t)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first cut from k on that divides tile t; stretches if there is none. */
int64_t next_inside(const planner &p, int64_t stretches, int64_t k, int64_t t) {
    while (k < stretches && p.cuts[k].tile == t && !p.cuts[k].inside)
        k++;
    return k < stretches && p.cuts[k].tile == t ? k : stretches;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Item of tile t from key `begin` on, up to cut `next` or the end; k0 is the first cut of the tile
 * or behind it. */
void put_work(const planner &p, int64_t stretches, int64_t t, int64_t k0, int32_t begin,
              int64_t next, int64_t index) {
    const tile it = p.tiles[t];
    const lengths l = lengths_of(p, it.request);
    const int64_t first = next_inside(p, stretches, k0, t);
    work w = {};
    w.q_start = l.q_start;
    w.o_start = l.o_start;
    w.q_len = l.q_len;
    w.kv_len = l.kv_len;
    w.kv_start = l.kv_start;
    w.v_start = l.v_start;
    w.request = it.request;
    w.row = it.row;
    w.kv_begin = begin;
    w.kv_end = next < stretches ? p.cuts[next].key : it.kv_end;
    w.slot = w.merge = -1;
    if (first < stretches) {
        const int32_t base = p.cuts[first].cuts_before + p.cuts[first].divided_before;
        const int64_t behind = first_cut(p, stretches, t + 1);
        w.merge = p.cuts[first].divided_before;
        w.merge_slot = base;
        w.merge_count = p.cuts[behind].cuts_before - p.cuts[first].cuts_before + 1;
        w.slot = base + (int32_t)(index - t) - p.cuts[first].cuts_before;
        if (p.merged_apart && w.slot == w.merge_slot)
            p.arrivals[w.merge] = (int32_t)index;
    }
    p.works[index] = w;
}

void put_works(const planner &p, int64_t tiles, int64_t stretches) {
    for (int64_t t = threadIdx.x; t < tiles; t += THREADS) {
        const int64_t k = first_cut(p, stretches, t);
        put_work(p, stretches, t, k, p.tiles[t].kv_begin, next_inside(p, stretches, k, t),
                 t + p.cuts[k].cuts_before);
    }
    for (int64_t k = 1 + threadIdx.x; k < stretches; k += THREADS) {
        const int64_t t = p.cuts[k].tile;
        if (p.cuts[k].inside)
            put_work(p, stretches, t, first_cut(p, stretches, t), p.cuts[k].key,
                     next_inside(p, stretches, k + 1, t), t + p.cuts[k].cuts_before + 1);
    }
    __syncthreads();
}

/* The first item of a worker. */
int64_t start_of(const planner &p, int64_t items, int64_t stretches, int64_t worker) {
    if (worker == 0)
        return 0;
    if (worker >= stretches)
        return items;
    const cut c = p.cuts[worker];
    return c.tile + c.cuts_before + (c.inside || c.behind);
}

extern "C" __global__ void __launch_bounds__(THREADS) bolide_attention_plan(const planner p) {
    __shared__ scan_memory s;
    const int64_t tiles = count_tiles(p, s);
    const int64_t tape = lay_tape(p, tiles, s), half = larger(p.min_chunk / 2, 1);
    const int64_t most = larger((tape + half - 1) / half, smaller(p.least_busy, tape / p.granule));
    const int64_t stretches = larger(1, smaller(p.workers, most));
    make_cuts(p, tiles, tape, stretches, s);
    const int64_t cuts = p.cuts[stretches].cuts_before, divided = p.cuts[stretches].divided_before;
    const int64_t items = tiles + cuts;
    put_works(p, tiles, stretches);
    for (int64_t w = threadIdx.x; w < p.workers; w += THREADS) {
        const int64_t begin = start_of(p, items, stretches, w);
        const int64_t end = start_of(p, items, stretches, w + 1);
        bolide__attention_head head = {};
        head.begin = (int32_t)begin;
        head.count = (int32_t)(end - begin);
        if (end > begin)
            head.first = p.works[begin];
        p.heads[w] = head;
    }
    if (!p.merged_apart) {
        for (int64_t i = threadIdx.x; i < p.max_merges * p.h_kv; i += THREADS)
            p.arrivals[i] = 0;
    }
    if (threadIdx.x == 0)
        *p.counts = {(int32_t)items, (int32_t)divided, (int32_t)(cuts + divided), (int32_t)p.batch};
}
