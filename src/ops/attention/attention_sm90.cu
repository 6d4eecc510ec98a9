// SPDX-License-Identifier: Apache-2.0
//
// Attention of many rows on Hopper: copies by the copy engine, products by wgmma. One block a
// multiprocessor works off items, each a tile of 128 packed rows of one key head, the longest
// first. Of its three warpgroups one loads: a thread deals out items, a warp asks for the copies.
// The other two have 64 rows each. They take turns, so that one computes weights while the products
// of the other run; and each asks for the logits of the next tile of keys before the values of the
// last one are added, so that its own products run on meanwhile.
//
//     warpgroup 0   |QK n-1|PV n|  soften n-1       |QK n-2|PV n-1| ...
//     warpgroup 1                |QK n-1|PV n|  soften n-1       |QK n-2|PV n-1|
//
// Keys are taken from the last tile to the first, so that those that need a mask come at the start.
// Products are the limit. docs/kernels/attention-hopper.md says what was tried.

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mbarrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/wgmma.cuh"
#include "ops/attention/attention_sm90.h"

#if !defined(SPEC_T) || !defined(SPEC_D_QK) || !defined(SPEC_D_VO) || !defined(SPEC_KEYS) ||       \
    !defined(SPEC_BOX) || !defined(SPEC_FLAGS)
#error "T: dtype; D_QK, D_VO: sizes; KEYS: of a tile; BOX: keys of a copy; FLAGS"
#endif
constexpr int64_t T = SPEC_T;   /* F16, BF16 */
constexpr int D_QK = SPEC_D_QK; /* multiples of 8 up to 256 */
constexpr int D_VO = SPEC_D_VO;
constexpr int KEYS = SPEC_KEYS; /* 80, 128 */
constexpr int BOX = SPEC_BOX;   /* 8, 16, 32, 64, KEYS; 1: rows one by one */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = FLAGS & BOLIDE__SM90_PAGED;
constexpr bool CAPPED = FLAGS & BOLIDE__SM90_CAPPED;
constexpr bool Q_BOX = FLAGS & BOLIDE__SM90_Q_BOX;
constexpr bool SIGNED = FLAGS & BOLIDE__SM90_SIGNED;
static_assert(D_QK % 8 == 0 && D_VO % 8 == 0 && D_QK <= 256 && D_VO <= 256, "head sizes");
constexpr bool GATHER = BOX == 1;
static_assert(KEYS % 16 == 0 && KEYS % BOX == 0 && (BOX % 8 == 0 || GATHER), "keys of a tile");

using half = element<T>::type;
using out_elem = half;
constexpr int SIZE = 2;             /* bytes of an element */
constexpr int COLUMNS = 128 / SIZE; /* of a block */

constexpr int ROWS = BOLIDE__SM90_ROWS;
constexpr int STAGES = BOLIDE__SM90_STAGES;
constexpr int GROUPS = 2;                                     /* warpgroups that compute */
constexpr int DV = D_VO <= 64 ? 64 : D_VO <= 128 ? 128 : 256; /* columns of the sums */
constexpr int Q_BLOCKS = (D_QK + 63) / 64; /* blocks of 64 columns, 128 bytes a row */
constexpr int V_BLOCKS = DV / 64;
constexpr int STEPS = (D_QK + 15) / 16; /* products of 16 deep in a logit */
constexpr int BLOCK = KEYS * 128;       /* bytes of a block of keys or values */
constexpr int Q_BLOCK = ROWS * 128;
constexpr int Q_STAGES = BOLIDE__SM90_Q_STAGES(Q_BLOCKS, V_BLOCKS, KEYS);
/* Products with values that a warpgroup asks for before the other one's turn: 0 to KEYS / 16; −1:
 * there are no turns. */
constexpr int HAND = 8;
constexpr int SLOTS = 4; /* items between the thread that deals and those who work on them */
/* A row's maximum is raised only when logits exceed it by this many powers of two: sums stay far
 * from overflow, and are almost never rescaled. */
constexpr float SLACK = 8.0f;
constexpr float BELOW = 0.0f; /* how far below the largest logit a raised base is */
constexpr int WARPS = 4 * GROUPS;
constexpr bool STREAMED = DV <= 128;      /* the state of two items fits the registers */
constexpr int GATHERERS = GATHER ? 4 : 1; /* warps that load */
constexpr bool LOADER_DEALS = GATHER;
constexpr int FULL_ARRIVALS = GATHER ? 32 * GATHERERS : 1;

using params = bolide__attention_sm90_params;
using work = bolide__attention_work;

enum named { ORDER = 1, OWN = ORDER + GROUPS }; /* numbers of barriers, one a warpgroup */

struct item {
    work w;
    int32_t head;        /* of keys; −1: there are no more */
    int32_t first, last; /* tiles of keys, last < first: none */
    int32_t unused;
};

struct shared_memory {
    alignas(1024) unsigned char q[Q_STAGES][Q_BLOCKS][Q_BLOCK];
    alignas(1024) unsigned char k[STAGES][Q_BLOCKS][BLOCK];
    alignas(1024) unsigned char v[STAGES][V_BLOCKS][BLOCK];
    alignas(16) item items[SLOTS];
    barrier full_q[Q_STAGES], empty_q[Q_STAGES];
    barrier full_k[STAGES], empty_k[STAGES];
    barrier full_v[STAGES], empty_v[STAGES];
    barrier full_item[SLOTS], empty_item[SLOTS];
};

extern __shared__ __align__(1024) unsigned char dynamic[];

#include "ops/attention/attention_sm90_load.cuh"
#include "ops/attention/attention_sm90_rows.cuh"

/* ---- the products ------------------------------------------------------------------------------
 */

/* S = Q K^T of the warpgroup's rows with a tile's keys. */
void multiply_keys(float (&x)[KEYS / 2], uint32_t q, uint32_t k) {
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        wgmma<half>(x, descriptor_at(q, i / 4 * Q_BLOCK + i % 4 * 32),
                    descriptor_at(k, i / 4 * BLOCK + i % 4 * 32), i > 0);
}

/* O += P V, steps [FROM, TO) of 16 keys. */
template <int FROM, int TO>
void add_values(float (&o)[DV / 2], const uint32_t (&weights)[KEYS / 4], uint32_t v) {
#pragma unroll
    for (int i = FROM; i < TO; i++)
        wgmma<half>(o, weights + 4 * i, descriptor_at(v, i * 2048));
}

/* Values behind the last key are whatever memory holds, and 0 times NaN is NaN: they become zeros.
 * Each warpgroup does so before its own products; both write the same. */
void clear_tail(unsigned char (&v)[V_BLOCKS][BLOCK], int keys, int group) {
    const int thread = threadIdx.x % 128;
#pragma unroll
    for (int b = 0; b < V_BLOCKS; b++) {
        for (int at = keys * 128 + thread * 16; at < BLOCK; at += 128 * 16)
            *reinterpret_cast<uint4 *>(v[b] + at) = {};
    }
    /* Ordinary stores, read by wgmma: without the fence it may still see what was there. And the
     * copy that fills this stage next must not be overtaken by them. */
    fence_async_shared();
    named_sync(OWN + group, 128);
}

/* Waits for a side of a tile. What single threads have copied is not yet seen by wgmma, which reads
 * through another path: the fence lets it. */
void wait_full(barrier &full, uint32_t phase) {
    barrier_wait(full, phase);
    if constexpr (GATHER)
        fence_async_shared();
}

/* ---- a warpgroup that computes -----------------------------------------------------------------
 */

void leave(barrier &b) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(b);
}

/* What a warpgroup carries from tile to tile. */
struct stream {
    int group;
    ring_place<STAGES> k, v;
    ring_place<Q_STAGES> q;
    ring_place<SLOTS> items;
    int tail; /* keys of the tile whose values come next, if it is the last of its item */
};

const item &next_item(shared_memory &s, stream &c) {
    const item &it = s.items[c.items.stage];
    barrier_wait(s.full_item[c.items.stage], c.items.phase);
    return it;
}

void leave_item(shared_memory &s, stream &c) {
    leave(s.empty_item[c.items.stage]);
    c.items.advance();
}

/* Low halves of the descriptors of the tiles whose turn it is. */
uint32_t own_queries(shared_memory &s, const stream &c) {
    return uniform_half(row_descriptor(shared_address(s.q[c.q.stage]) + c.group * 64 * 128));
}

uint32_t own_keys(shared_memory &s, const stream &c) {
    return uniform_half(row_descriptor(shared_address(s.k[c.k.stage])));
}

uint32_t own_values(shared_memory &s, const stream &c) {
    return uniform_half(column_descriptor(shared_address(s.v[c.v.stage]), BLOCK));
}

/* Waits for the queries of an item, or copies them. */
void begin_queries(const params &a, shared_memory &s, stream &c, const item &it) {
    if constexpr (Q_BOX)
        barrier_wait(s.full_q[c.q.stage], c.q.phase);
    else
        load_own_queries(a.p, it, s.q[c.q.stage], c.group);
}

/* The products of a tile are there: its keys may be overwritten, and behind an item's last Q. */
void leave_keys(shared_memory &s, stream &c, bool is_last) {
    leave(s.empty_k[c.k.stage]);
    c.k.advance();
    if (is_last) {
        leave(s.empty_q[c.q.stage]);
        c.q.advance();
    }
}

/* The first tile of a stream of items: no values wait to be added. */
void begin_stream(const params &a, shared_memory &s, stream &c, const item &it, rows_state &r,
                  float (&x)[KEYS / 2], uint32_t (&weights)[KEYS / 4]) {
    begin_rows(a.p, it, c.group, r);
    begin_queries(a, s, c, it);
    wait_full(s.full_k[c.k.stage], c.k.phase);
    const uint32_t q = own_queries(s, c), k = own_keys(s, c);
    wgmma_fence();
    multiply_keys(x, q, k);
    wgmma_commit();
    wgmma_wait<0>(x);
    leave_keys(s, c, it.first == it.last);
    soften(a.p, r, it.last * KEYS, x);
    pack_weights(weights, x);
    c.tail = it.w.kv_end - it.last * KEYS;
}

/* Waits for both sides of a turn, asking for them together. */
void await_tiles(shared_memory &s, stream &c) {
    barrier &k = s.full_k[c.k.stage], &v = s.full_v[c.v.stage];
    if (!(barrier_is_over(k, c.k.phase) & barrier_is_over(v, c.v.phase))) {
        barrier_wait(k, c.k.phase);
        barrier_wait(v, c.v.phase);
    }
    if constexpr (GATHER)
        fence_async_shared();
}

void clear_last_tail(shared_memory &s, stream &c) {
    if (!GATHER && c.tail < KEYS)
        clear_tail(s.v[c.v.stage], c.tail, c.group);
    c.tail = KEYS;
}

void leave_values(shared_memory &s, stream &c) {
    leave(s.empty_v[c.v.stage]);
    c.v.advance();
}

/* The tensor cores pass from one warpgroup to the other. */
void take_turn(const stream &c) {
    if constexpr (HAND >= 0)
        named_sync(ORDER + c.group, 256);
}

void pass_turn(const stream &c) {
    if constexpr (HAND >= 0)
        named_arrive(ORDER + (c.group + 1) % GROUPS, 256);
}

/* Asks for the products of the tile of keys from `first` on, the last of its item or not, has the
 * values of the tile before added meanwhile, and comes back with the weights of the former in x.
 * All that products wait for is there before the first is asked for: a warpgroup whose turn it is
 * keeps the tensor cores busy. */
void turn(const params &a, shared_memory &s, stream &c, int first, bool is_last, rows_state &r,
          float (&x)[KEYS / 2], float (&o)[DV / 2], uint32_t (&weights)[KEYS / 4]) {
    constexpr int PASS = HAND < 0 ? 0 : smaller(HAND, KEYS / 16);
    const uint32_t v = own_values(s, c), q = own_queries(s, c), k = own_keys(s, c);
    await_tiles(s, c);
    clear_last_tail(s, c);
    take_turn(c);
    wgmma_fence();
    multiply_keys(x, q, k);
    wgmma_commit();
    add_values<0, PASS>(o, weights, v);
    pass_turn(c);
    add_values<PASS, KEYS / 16>(o, weights, v);
    wgmma_commit();
    wgmma_wait<1>(x);
    leave_keys(s, c, is_last);
    soften(a.p, r, first, x);
    wgmma_wait<0>(o);
    pin(weights);
    leave_values(s, c);
}

/* The values of a stream's last tile. */
void add_last_values(shared_memory &s, stream &c, float (&o)[DV / 2],
                     const uint32_t (&weights)[KEYS / 4]) {
    const uint32_t v = own_values(s, c);
    wait_full(s.full_v[c.v.stage], c.v.phase);
    clear_last_tail(s, c);
    wgmma_fence();
    add_values<0, KEYS / 16>(o, weights, v);
    wgmma_commit();
    wgmma_wait<0>(o);
    leave_values(s, c);
}

void clear_sums(float (&o)[DV / 2]) {
#pragma unroll
    for (int i = 0; i < DV / 2; i++)
        o[i] = 0;
}

bool is_empty(const item &it) {
    return it.last < it.first;
}

/* Items with keys follow each other without a gap: the products of the next one's first tile run
 * while the last values of this one are added and its rows are written. */
void compute(const params &a, shared_memory &s) {
    stream c = {(int)threadIdx.x / 128 - 1};
    rows_state r;
    float x[KEYS / 2], o[DV / 2];
    uint32_t weights[KEYS / 4];
    if (HAND >= 0 && c.group == 1)
        named_arrive(ORDER, 256); /* the first turn is warpgroup 0's */
#pragma unroll 1
    for (;;) {
        const item *it = &next_item(s, c);
        if (it->head < 0)
            break;
        clear_sums(o);
        if (is_empty(*it)) {
            begin_rows(a.p, *it, c.group, r);
            write_rows(a.p, *it, c.group, r, o);
            leave_item(s, c);
            continue;
        }
        begin_stream(a, s, c, *it, r, x, weights);
#pragma unroll 1
        for (;;) {
            const int last = it->first;
#pragma unroll 1
            for (int n = it->last - 1; n >= last; n--) {
                turn(a, s, c, n * KEYS, n == last, r, x, o, weights);
                rescale(r, o);
                pack_weights(weights, x);
            }
            ring_place<SLOTS> after = c.items;
            after.advance();
            barrier_wait(s.full_item[after.stage], after.phase);
            const item *then = &s.items[after.stage];
            if (!STREAMED || then->head < 0 || is_empty(*then))
                break;
            rows_state begun;
            begin_rows(a.p, *then, c.group, begun);
            begin_queries(a, s, c, *then);
            turn(a, s, c, then->last * KEYS, then->first == then->last, begun, x, o, weights);
            pack_weights(weights, x);
            c.tail = then->w.kv_end - then->last * KEYS;
            write_rows(a.p, *it, c.group, r, o);
            leave_item(s, c);
            clear_sums(o);
            r = begun;
            it = then;
        }
        add_last_values(s, c, o, weights);
        write_rows(a.p, *it, c.group, r, o);
        leave_item(s, c);
    }
}

extern "C" __global__ void __launch_bounds__(BOLIDE__SM90_THREADS, 1)
    bolide_attention_sm90(const __grid_constant__ bolide__attention_sm90_params a) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    if (threadIdx.x == 0) {
        prefetch_map(a.q);
        prefetch_map(a.k);
        prefetch_map(a.v);
        for (int i = 0; i < Q_STAGES; i++) {
            barrier_init(s.full_q[i], 1);
            barrier_init(s.empty_q[i], WARPS);
        }
        for (int i = 0; i < STAGES; i++) {
            barrier_init(s.full_k[i], FULL_ARRIVALS);
            barrier_init(s.full_v[i], FULL_ARRIVALS);
            barrier_init(s.empty_k[i], WARPS);
            barrier_init(s.empty_v[i], WARPS);
        }
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(s.full_item[i], 1);
            barrier_init(s.empty_item[i], WARPS + GATHERERS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        give_registers<GATHER ? 72 : 40>();
        if (threadIdx.x / 32 < GATHERERS)
            load_all(a, s);
        else if (threadIdx.x == 96)
            deal_all(a, s);
    } else {
        take_registers<GATHER ? 216 : 232>();
        compute(a, s);
    }
}
