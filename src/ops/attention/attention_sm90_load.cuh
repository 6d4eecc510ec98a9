// SPDX-License-Identifier: Apache-2.0
//
// The warpgroup of attention_sm90.cu that loads: a thread deals out items through a ring in shared
// memory, and one warp asks for the copies of Q, keys and values, or all four make them. Included
// by that file only, behind its constants and its shared memory.

#ifndef BOLIDE_OPS_ATTENTION_SM90_LOAD_CUH
#define BOLIDE_OPS_ATTENTION_SM90_LOAD_CUH

/* ---- items ------------------------------------------------------------------------------------
 */

/* The k-th item of this block where nobody counts: back and forth. */
int32_t dealt(int32_t k) {
    const int32_t round = k * (int32_t)gridDim.x;
    return round + (k % 2 ? (int32_t)gridDim.x - 1 - (int32_t)blockIdx.x : (int32_t)blockIdx.x);
}

/* Heads whose keys and values should be in the L2 at one time. If those of one head do not fit,
 * all heads run side by side. */
int32_t section_heads(const params &a, int32_t kv_len) {
    const int64_t one = (int64_t)kv_len * (D_QK + D_VO) * SIZE;
    int32_t heads = (int32_t)a.p.h_kv;
    while (heads > 1 && heads % 2 == 0 && heads * one > a.section_bytes)
        heads /= 2;
    return one > a.section_bytes ? (int32_t)a.p.h_kv : heads;
}

/* Number `index` of a request's tiles × heads as a tile and a head: section by section, in each
 * tile by tile. */
struct spot {
    int32_t tile, head;
};

spot spot_of(const params &a, int32_t index, int32_t tiles, int32_t kv_len) {
    const int32_t heads = section_heads(a, kv_len);
    const int32_t section = index / (tiles * heads), rest = index % (tiles * heads);
    return {rest / heads, section * heads + rest % heads};
}

/* A piece of the t-th longest tile of a single request; cuts lie between tiles of keys. Empty ones
 * stay, since they count as a slot. */
work ruled_work(const bolide__attention_params &p, int32_t index) {
    const bolide__attention_request &r = p.rule.request;
    const int32_t pieces = CUT ? p.rule.pieces : 1, t = index / pieces, piece = index % pieces;
    const int64_t row = (int64_t)(p.rule.tiles - 1 - t) * ROWS;
    const int64_t shift = (int64_t)r.kv_len - r.q_len;
    const int64_t end = smaller((int64_t)r.q_len - 1, (row + ROWS - 1) / p.group);
    int64_t low = 0, high = r.kv_len;
    if (p.flags & BOLIDE__ATTN_CAUSAL)
        high = smaller(high, shift + end + 1);
    if (p.window_left >= 0)
        low = larger(low, shift + row / p.group - p.window_left);
    if (CUT && pieces > 1) {
        const int32_t start = (int32_t)low / KEYS;
        const int32_t tiles = larger(((int32_t)high + KEYS - 1) / KEYS - start, 0);
        const int32_t own = (tiles + pieces - 1) / pieces, first = start + piece * own;
        low = larger(low, (int64_t)first * KEYS);
        high = smaller(high, ((int64_t)first + own) * KEYS);
    }
    work w = {};
    w.q_start = r.q_start;
    w.o_start = r.o_start;
    w.q_len = r.q_len;
    w.kv_len = r.kv_len;
    w.row = (int32_t)row;
    w.kv_begin = low < high ? (int32_t)low : 0;
    w.kv_end = low < high ? (int32_t)high : 0;
    w.slot = CUT && pieces > 1 ? index : -1;
    w.merge = t;
    w.merge_slot = t * pieces;
    w.merge_count = pieces;
    return w;
}

void fetch_item(const params &a, int32_t index, item &it) {
    const bolide__attention_params &p = a.p;
    if (p.rule.tiles) {
        const spot at = spot_of(a, index, p.rule.tiles * p.rule.pieces, p.rule.request.kv_len);
        it.w = ruled_work(p, at.tile);
        it.head = at.head;
    } else {
        /* Items that share keys lie together; any of them tells where they begin. */
        const work *any = p.works + index / (int32_t)p.h_kv;
        const int32_t begin = any->list_begin, tiles = any->list_count;
        const spot at = spot_of(a, index - begin * (int32_t)p.h_kv, tiles, any->kv_len);
        it.w = p.works[begin + at.tile];
        it.head = at.head;
    }
    it.first = it.w.kv_begin / KEYS;
    it.last = (it.w.kv_end + KEYS - 1) / KEYS - 1;
    it.tail = it.w.kv_end - it.last * KEYS;
}

/* ---- places in a matrix -----------------------------------------------------------------------
 *
 * With PLACED a key's position is its column, and a list of blocks says little about which of them
 * a row sees. Tiles that no row of an item sees are neither copied nor computed: who deals counts
 * those that are seen, and who loads finds them again.
 */

constexpr int32_t NO_COLUMN = BOLIDE__SM90_NO_COLUMN;

int32_t position_of(const bolide__attention_params &p, const work &w, int32_t token) {
    if constexpr (PLACED)
        return token + (int32_t)(w.q_start % p.fold_q + p.fold_kv - p.fold_q);
    return w.kv_len - w.q_len + token;
}

int32_t low_of(const bolide__attention_params &p, const work &w, int32_t token) {
    const int32_t position = position_of(p, w, token);
    return p.window_left < 0 ? 0 : (int32_t)larger(position - p.window_left, (int64_t)0);
}

int32_t high_of(const bolide__attention_params &p, const work &w, int32_t token) {
    const int32_t end = PLACED ? NO_COLUMN : w.kv_end;
    return p.flags & BOLIDE__ATTN_CAUSAL ? smaller(end, position_of(p, w, token) + 1) : end;
}

/* Columns [low, high) that some row of an item sees. */
struct sight {
    int32_t low, high;
};

sight sight_of(const bolide__attention_params &p, const work &w) {
    const uint32_t first = (uint32_t)w.row, group = (uint32_t)p.group;
    const int32_t last = smaller(w.q_len - 1, (int32_t)((first + ROWS - 1) / group));
    return {low_of(p, w, (int32_t)(first / group)), high_of(p, w, last)};
}

int32_t page_of(const bolide__attention_params &p, const work &w, int32_t key) {
    const int64_t list = p.table_row ? w.request * p.table_row : (int64_t)w.kv_start;
    return p.indices[list + (uint32_t)key / (uint32_t)p.page_size];
}

/* Where a key of a page stands. */
int32_t column_of(const bolide__attention_params &p, int32_t page, int32_t key) {
    return (int32_t)((page * p.page_size + (uint32_t)key % (uint32_t)p.page_size) % p.fold_kv);
}

bool is_seen(const sight &s, int32_t column) {
    return column < s.high && column + BOX > s.low;
}

/* By a whole warp: tiles of an item that some row sees, and how many keys the first to come has. */
void count_seen(const bolide__attention_params &p, item &it) {
    const sight s = sight_of(p, it.w);
    int32_t count = 0, tail = KEYS;
    for (int32_t n = it.last - (int32_t)threadIdx.x % 32; __any_sync(0xffffffffu, n >= it.first);
         n -= 32) {
        bool seen = false;
        for (int32_t key = n * KEYS; n >= it.first && key < smaller(it.w.kv_end, (n + 1) * KEYS);
             key += BOX)
            seen |= is_seen(s, column_of(p, page_of(p, it.w, key), key));
        count += __popc(__ballot_sync(0xffffffffu, seen));
        if (n == it.last && seen)
            tail = it.tail;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        it.seen = count;
        it.tail = tail;
    }
}

/* ---- dealing ----------------------------------------------------------------------------------
 */

/* Where another kernel has the rest of the multiprocessors, the plan says how many. */
int32_t blocks_at_work(const params &a) {
    return a.p.flags & BOLIDE__ATTN_SHARED ? a.tickets[2] : (int32_t)gridDim.x;
}

/* What the thread that deals knows. */
struct dealer {
    ring_place<SLOTS> at;
    int32_t index, count; /* the next item, and how many were dealt; index −1: the end was */
};

dealer begin_dealing() {
    return {{0, 1}, (int32_t)blockIdx.x, 0};
}

/* Puts the next item into the ring, or the end. With PLACED by a whole warp, of which lane 0 does
 * what is done once. */
void deal_item(const params &a, shared_memory &s, dealer &d) {
    const bolide__attention_params &p = a.p;
    const bool deals = !PLACED || threadIdx.x % 32 == 0;
    if (d.index < 0)
        return;
    const int32_t items =
        (p.rule.tiles ? p.rule.tiles * p.rule.pieces : p.counts->items) * (int32_t)p.h_kv;
    barrier_wait(s.empty_item[d.at.stage], d.at.phase);
    item &it = s.items[d.at.stage];
    const bool more = d.index < items;
    if (deals && more)
        fetch_item(a, d.index, it);
    else if (deals)
        it.head = -1;
    if constexpr (PLACED) {
        __syncwarp();
        if (more)
            count_seen(p, it);
    }
    if (deals)
        barrier_arrive(s.full_item[d.at.stage]);
    d.at.advance();
    d.count++;
    if (more) {
        int32_t next = dealt(d.count);
        if (a.tickets && deals)
            next = blocks_at_work(a) + atomicAdd(a.tickets, 1);
        d.index = PLACED ? of_warp(next) : next;
        return;
    }
    d.index = -1;
    /* The last block has seen all others take their last ticket. */
    if (deals && a.tickets && atomicAdd(a.tickets + 1, 1) == blocks_at_work(a) - 1) {
        a.tickets[0] = 0;
        a.tickets[1] = 0;
    }
}

/* By one thread that does nothing else, or by a warp. */
void deal_all(const params &a, shared_memory &s) {
    dealer d = begin_dealing();
    while (d.index >= 0)
        deal_item(a, s, d);
}

/* ---- copies -----------------------------------------------------------------------------------
 */

constexpr int BOXES = KEYS / BOX; /* of a tile; lane i asks for the i-th */

/* Page of this lane's box of a tile; −1: it has no key. */
int32_t look_up(const bolide__attention_params &p, const work &w, int32_t tile) {
    const int32_t lane = threadIdx.x % 32, key = tile * KEYS + lane * BOX;
    if (lane >= BOXES || key >= w.kv_end)
        return -1;
    if constexpr (PAGED) {
        const int64_t list = p.table_row ? w.request * p.table_row : (int64_t)w.kv_start;
        return p.indices[list + (uint32_t)key / (uint32_t)p.page_size];
    }
    return 0;
}

/* One side of a tile, to be called by the whole warp. head_columns: from a head to the next, where
 * copies are wide. */
template <int BLOCKS>
void copy_tile(unsigned char (&to)[BLOCKS][BLOCK], const bolide__tensor_map &map, barrier &full,
               barrier &empty, uint32_t phase, const bolide__attention_params &p, const item &it,
               int32_t start, int64_t head_columns, int32_t tile, int32_t page, uint64_t policy) {
    const int32_t lane = threadIdx.x % 32, key = tile * KEYS + lane * BOX;
    barrier_wait(empty, phase);
    const int boxes = __popc(__ballot_sync(0xffffffffu, page >= 0));
    if (lane == 0)
        barrier_expect(full, (uint32_t)(boxes * BLOCKS * BOX * 128));
    __syncwarp();
    if (page < 0)
        return;
    if constexpr (WIDE) {
        copy_box(to[0] + lane * BOX * BLOCKS * 128, map, full, 0, 0,
                 it.head * (int32_t)(head_columns / COLUMNS), 0, page, policy);
    } else {
        const int32_t row = PAGED ? (int32_t)((uint32_t)key % (uint32_t)p.page_size) : start + key;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            copy_box(to[b] + lane * BOX * 128, map, full, COLUMNS * b, row, it.head, page, policy);
    }
}

/* Each warpgroup's by themselves: the one that ends an item first need not wait for the other. */
void copy_queries(const params &a, shared_memory &s, const item &it,
                  const ring_place<Q_STAGES> &at) {
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        barrier &full = s.full_q[at.stage][group];
        barrier_wait(s.empty_q[at.stage][group], at.phase);
        if (threadIdx.x % 32 == 0) {
            barrier_expect(full, Q_BLOCKS * 64 * 128);
            const int32_t token = it.w.q_start + (it.w.row + group * 64) / (int32_t)a.p.group;
            const uint64_t policy = stream_policy();
#pragma unroll
            for (int b = 0; b < Q_BLOCKS; b++)
                copy_box(s.q[at.stage][b] + group * 64 * 128, a.q, full, COLUMNS * b, 0, it.head,
                         token, policy);
        }
        __syncwarp();
    }
}

/* ---- rows one by one --------------------------------------------------------------------------
 *
 * Where pages do not make boxes, four warps copy 16 bytes a lane. Eight lanes share the 128 bytes
 * that a row has in a block, so that a warp copies four rows at a time and the four warps 16: then
 * all of a lane's copies lie at constant distances in shared memory, and those of a row in the
 * cache. Which page a row lies on is asked for by one lane a row, two tiles ahead, and nothing is
 * computed from the answer before it is needed; then that lane finds where the row begins, and the
 * others only ask it.
 */

constexpr int STEP_ROWS = 16; /* of the four warps */
constexpr int ROW_STEPS = KEYS / STEP_ROWS;
static_assert(KEYS % STEP_ROWS == 0 && ROW_STEPS <= 8, "a lane a row of a warp");

/* A lane's row of a tile: of step lane / 4, the lane % 4-th of the warp. */
struct asked_row {
    int32_t page, in_page; /* page −1: no key */
};

bool asks() {
    return threadIdx.x % 32 / 4 < ROW_STEPS;
}

asked_row ask(const bolide__attention_params &p, const work &w, int32_t tile) {
    const int64_t list = p.table_row ? w.request * p.table_row : (int64_t)w.kv_start;
    const uint32_t size = (uint32_t)p.page_size;
    const int32_t lane = threadIdx.x % 32;
    const uint32_t key =
        (uint32_t)(tile * KEYS + lane / 4 * STEP_ROWS + (int32_t)threadIdx.x / 32 * 4 + lane % 4);
    asked_row r = {-1, 0};
    if (asks() && (int32_t)key < w.kv_end) {
        r.page = p.indices[list + key / size];
        r.in_page = (int32_t)(key % size);
    }
    return r;
}

/* An address that another lane has. */
uint64_t row_from(uint64_t own, int lane) {
    const uint32_t low = __shfl_sync(0xffffffffu, (uint32_t)own, lane);
    const uint32_t high = __shfl_sync(0xffffffffu, (uint32_t)(own >> 32), lane);
    return (uint64_t)high << 32 | low;
}

/* Rows of one side of a tile, to be shared by the warp's lanes. WHOLE: they all have keys, and no
 * columns are missing; otherwise `any` is an address that can be read. */
template <bool WHOLE, int BLOCKS, int D>
void gather_rows(unsigned char *to, uint64_t own, const half *any) {
    const int lane = threadIdx.x % 32, piece = lane % 8;
    const int first = (int)threadIdx.x / 32 * 4 + lane / 8;
    unsigned char *at = to + first * 128 + ((piece ^ first) & 7) * 16;
    uint64_t from[ROW_STEPS];
#pragma unroll
    for (int i = 0; i < ROW_STEPS; i++)
        from[i] = row_from(own, 4 * i + lane / 8);
#pragma unroll
    for (int i = 0; i < ROW_STEPS; i++) {
        const half *row = reinterpret_cast<const half *>(from[i]) + piece * 8;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const bool here = WHOLE || (from[i] && b * 64 + piece * 8 < D);
            copy_16(at + i * STEP_ROWS * 128 + b * BLOCK, here ? row + b * 64 : any, here ? 16 : 0);
        }
    }
}

/* One side of a tile; rows without a key become zeros. */
template <int BLOCKS, int D>
void gather_tile(unsigned char (&to)[BLOCKS][BLOCK], const half *from, int64_t page_step,
                 int64_t row_step, barrier &full, barrier &empty, uint32_t phase,
                 const asked_row &asked) {
    const uint64_t own =
        asked.page < 0
            ? 0
            : reinterpret_cast<uint64_t>(from + asked.page * page_step + asked.in_page * row_step);
    barrier_wait(empty, phase);
    if (D == BLOCKS * 64 && __all_sync(0xffffffffu, own || !asks()))
        gather_rows<true, BLOCKS, D>(to[0], own, from);
    else
        gather_rows<false, BLOCKS, D>(to[0], own, from);
    barrier_arrive_copied(full);
}

/* ---- the order --------------------------------------------------------------------------------
 */

/* What a warp that loads has in hand of a tile. */
struct located {
    int32_t page;
    asked_row row;
};

located locate(const params &a, const item &it, int32_t tile) {
    located l = {-1};
    if (tile < it.first)
        return l;
    if constexpr (GATHER)
        l.row = ask(a.p, it.w, tile);
    else
        l.page = look_up(a.p, it.w, tile);
    return l;
}

void copy_keys(const params &a, shared_memory &s, const item &it, int32_t tile, const located &l,
               ring_place<STAGES> &at, uint64_t policy) {
    barrier &full = s.full_k[at.stage], &empty = s.empty_k[at.stage];
    if constexpr (GATHER)
        gather_tile<Q_BLOCKS, D_QK>(s.k[at.stage],
                                    static_cast<const half *>(a.p.k) + it.head * a.p.k_h,
                                    a.p.k_page, a.p.k_n, full, empty, at.phase, l.row);
    else
        copy_tile(s.k[at.stage], a.k, full, empty, at.phase, a.p, it, it.w.kv_start, a.p.k_h, tile,
                  l.page, policy);
    at.advance();
}

void copy_values(const params &a, shared_memory &s, const item &it, int32_t tile, const located &l,
                 ring_place<STAGES> &at, uint64_t policy) {
    barrier &full = s.full_v[at.stage], &empty = s.empty_v[at.stage];
    if constexpr (GATHER)
        gather_tile<V_BLOCKS, D_VO>(s.v[at.stage],
                                    static_cast<const half *>(a.p.v) + it.head * a.p.v_h,
                                    a.p.v_page, a.p.v_n, full, empty, at.phase, l.row);
    else
        copy_tile(s.v[at.stage], a.v, full, empty, at.phase, a.p, it, it.w.v_start, a.p.v_h, tile,
                  l.page, policy);
    at.advance();
}

/* Like load_all, of the tiles that are seen. The page of a tile is asked for a tile ahead. */
void load_seen(const params &a, shared_memory &s) {
    const bolide__attention_params &p = a.p;
    const uint64_t policy = keep_policy();
    const int32_t lane = threadIdx.x % 32;
    ring_place<SLOTS> ip = {0, 0};
    ring_place<STAGES> kp = {0, 1}, vp = {0, 1};
    ring_place<Q_STAGES> qp = {0, 1};
    for (;; ip.advance()) {
        barrier_wait(s.full_item[ip.stage], ip.phase);
        const item &it = s.items[ip.stage];
        if (it.head < 0)
            break;
        const sight seen = sight_of(p, it.w);
        located before, next = locate(a, it, it.last);
        int32_t left = it.seen, pending = -1; /* a tile whose values are to be copied */
#pragma unroll 1
        for (int32_t n = it.last; left > 0; n--) {
            const located now = next;
            next = locate(a, it, n - 1);
            const int32_t column =
                now.page < 0 ? NO_COLUMN : column_of(p, now.page, n * KEYS + lane * BOX);
            if (!__any_sync(0xffffffffu, is_seen(seen, column)))
                continue;
            barrier_wait(s.empty_k[kp.stage], kp.phase);
            if (lane < BOXES)
                s.columns[kp.stage][lane] = column;
            copy_keys(a, s, it, n, now, kp, policy);
            if (Q_BOX && left == it.seen) {
                copy_queries(a, s, it, qp);
                qp.advance();
            }
            if (pending >= 0)
                copy_values(a, s, it, pending, before, vp, policy);
            pending = n;
            before = now;
            left--;
        }
        if (pending >= 0)
            copy_values(a, s, it, pending, before, vp, policy);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(s.empty_item[ip.stage]);
    }
}

/* In the order in which tiles are needed: K of one, then V of the one before. Where all four warps
 * load, the first thread also deals, one item ahead. With SPLIT a warp has one of both sides. */
template <bool LOADS_KEYS, bool LOADS_VALUES> void load_all(const params &a, shared_memory &s) {
    const uint64_t policy = keep_policy();
    dealer d = begin_dealing();
    if (LOADER_DEALS && threadIdx.x == 0)
        deal_item(a, s, d);
    ring_place<SLOTS> ip = {0, 0};
    ring_place<STAGES> kp = {0, 1}, vp = {0, 1};
    ring_place<Q_STAGES> qp = {0, 1};
    for (;; ip.advance()) {
        if (LOADER_DEALS && threadIdx.x == 0)
            deal_item(a, s, d);
        __syncwarp();
        barrier_wait(s.full_item[ip.stage], ip.phase);
        const item &it = s.items[ip.stage];
        if (it.head < 0)
            break;
        if (it.first <= it.last) {
            located now = locate(a, it, it.last);
            if (LOADS_KEYS)
                copy_keys(a, s, it, it.last, now, kp, policy);
            if constexpr (Q_BOX && LOADS_KEYS) {
                if (threadIdx.x / 32 == 0)
                    copy_queries(a, s, it, qp);
                qp.advance();
            }
            located next = locate(a, it, it.last - 1);
#pragma unroll 1
            for (int32_t n = it.last; n >= it.first; n--) {
                const located after = locate(a, it, n - 2);
                if (LOADS_KEYS && n > it.first)
                    copy_keys(a, s, it, n - 1, next, kp, policy);
                if (LOADS_VALUES)
                    copy_values(a, s, it, n, now, vp, policy);
                now = next;
                next = after;
            }
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(s.empty_item[ip.stage]);
    }
}

#endif
