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
static_assert(D_QK % 8 == 0 && D_VO % 8 == 0 && D_QK <= 256 && D_VO <= 256, "head sizes");
constexpr bool GATHER = BOX == 1;
static_assert(KEYS % 16 == 0 && KEYS % BOX == 0 && (BOX % 8 == 0 || GATHER), "keys of a tile");

using half = element<T>::type;

constexpr int ROWS = BOLIDE__SM90_ROWS;
constexpr int STAGES = BOLIDE__SM90_STAGES;
constexpr int GROUPS = 2;                                     /* warpgroups that compute */
constexpr int DV = D_VO <= 64 ? 64 : D_VO <= 128 ? 128 : 256; /* columns of the sums */
constexpr int Q_BLOCKS = (D_QK + 63) / 64; /* blocks of 64 columns, 128 bytes a row */
constexpr int V_BLOCKS = DV / 64;
constexpr int STEPS = (D_QK + 15) / 16; /* products of 16 deep in a logit */
constexpr int BLOCK = KEYS * 128;       /* bytes of a block of keys or values */
constexpr int Q_BLOCK = ROWS * 128;
constexpr int SLOTS = 4; /* items between the thread that deals and those who work on them */
/* A row's maximum is raised only when logits exceed it by this many powers of two: sums stay far
 * from overflow, and are almost never rescaled. */
constexpr float SLACK = 8.0f;
constexpr int WARPS = 4 * GROUPS;
constexpr int GATHERERS = GATHER ? 3 : 1; /* warps that load; the last of the four deals items */
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
    alignas(1024) unsigned char q[Q_BLOCKS][Q_BLOCK];
    alignas(1024) unsigned char k[STAGES][Q_BLOCKS][BLOCK];
    alignas(1024) unsigned char v[STAGES][V_BLOCKS][BLOCK];
    alignas(16) item items[SLOTS];
    barrier full_q, empty_q;
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
        wgmma<half>(x, row_descriptor(q + i / 4 * Q_BLOCK + i % 4 * 32),
                    row_descriptor(k + i / 4 * BLOCK + i % 4 * 32), i > 0);
}

/* O += P V. */
void add_values(float (&o)[DV / 2], const uint32_t (&weights)[KEYS / 4], uint32_t v) {
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
        wgmma<half>(o, weights + 4 * i, column_descriptor(v + i * 2048, BLOCK));
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

/* The assembler likes to move the exponentials behind a wait for products that they do not need.
 * What depends on all of them cannot move across a branch on it, which is never taken. */
void compute_now(const rows_state &r, float (&x)[KEYS / 2]) {
    pin(x);
    if (__any_sync(0xffffffffu, r.l[0] < 0 || r.l[1] < 0))
        __trap();
}

/* The tiles of an item; the sums come back undivided. */
void compute_item(const params &a, shared_memory &s, const item &it, int group, rows_state &r,
                  float (&o)[DV / 2], uint32_t &q_phase, ring_place<STAGES> &kp,
                  ring_place<STAGES> &vp) {
    const int first = it.first, last = it.last;
    const int tail = it.w.kv_end - last * KEYS; /* keys of the last tile that are there */
    const uint32_t q = shared_address(s.q) + group * 64 * 128;
    float x[KEYS / 2];
    uint32_t weights[KEYS / 4];
    if constexpr (Q_BOX) {
        barrier_wait(s.full_q, q_phase);
        q_phase ^= 1;
    } else {
        load_own_queries(a.p, it, s.q, group);
    }
    wait_full(s.full_k[kp.stage], kp.phase);
    wgmma_fence();
    multiply_keys(x, q, shared_address(s.k[kp.stage]));
    wgmma_commit();
    wgmma_wait<0>(x);
    leave(s.empty_k[kp.stage]);
    kp.advance();
    if (first == last)
        leave(s.empty_q);
    soften(a.p, it, r, last * KEYS, x);
    pack_weights(weights, x);
#pragma unroll 1
    for (int n = last - 1; n >= first; n--) {
        wait_full(s.full_k[kp.stage], kp.phase);
        named_sync(ORDER + group, 256);
        wgmma_fence();
        multiply_keys(x, q, shared_address(s.k[kp.stage]));
        wgmma_commit();
        wait_full(s.full_v[vp.stage], vp.phase);
        if (n == last - 1 && !GATHER && tail < KEYS)
            clear_tail(s.v[vp.stage], tail, group);
        wgmma_fence();
        add_values(o, weights, shared_address(s.v[vp.stage]));
        wgmma_commit();
        named_arrive(ORDER + (group + 1) % GROUPS, 256);
        wgmma_wait<1>(x);
        leave(s.empty_k[kp.stage]);
        kp.advance();
        if (n == first)
            leave(s.empty_q);
        soften(a.p, it, r, n * KEYS, x);
        compute_now(r, x);
        wgmma_wait<0>(o);
        pin(weights);
        leave(s.empty_v[vp.stage]);
        vp.advance();
        rescale(r, o);
        pack_weights(weights, x);
    }
    wait_full(s.full_v[vp.stage], vp.phase);
    if (first == last && !GATHER && tail < KEYS)
        clear_tail(s.v[vp.stage], tail, group);
    wgmma_fence();
    add_values(o, weights, shared_address(s.v[vp.stage]));
    wgmma_commit();
    wgmma_wait<0>(o);
    leave(s.empty_v[vp.stage]);
    vp.advance();
}

void compute(const params &a, shared_memory &s) {
    const int group = threadIdx.x / 128 - 1;
    uint32_t q_phase = 0;
    ring_place<STAGES> kp = {0, 0}, vp = {0, 0};
    ring_place<SLOTS> ip = {0, 0};
    if (group == 1)
        named_arrive(ORDER, 256); /* the first turn is warpgroup 0's */
#pragma unroll 1
    for (;; ip.advance()) {
        barrier_wait(s.full_item[ip.stage], ip.phase);
        const item &it = s.items[ip.stage];
        if (it.head < 0)
            break;
        rows_state r;
        float o[DV / 2];
#pragma unroll
        for (int i = 0; i < DV / 2; i++)
            o[i] = 0;
        begin_rows(a.p, it, group, r);
        if (it.first <= it.last)
            compute_item(a, s, it, group, r, o, q_phase, kp, vp);
        write_rows(a.p, it, group, r, o);
        leave(s.empty_item[ip.stage]);
    }
}

extern "C" __global__ void __launch_bounds__(BOLIDE__SM90_THREADS, 1)
    bolide_attention_sm90(const __grid_constant__ bolide__attention_sm90_params a) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    if (threadIdx.x == 0) {
        prefetch_map(a.q);
        prefetch_map(a.k);
        prefetch_map(a.v);
        barrier_init(s.full_q, 1);
        barrier_init(s.empty_q, WARPS);
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
            deal_items(a, s);
    } else {
        take_registers<GATHER ? 216 : 232>();
        compute(a, s);
    }
}
