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

#if !defined(SPEC_T) || !defined(SPEC_D_QK) || !defined(SPEC_D_VO) || !defined(SPEC_ROWS) ||       \
    !defined(SPEC_KEYS) || !defined(SPEC_BOX) || !defined(SPEC_FLAGS)
#error "T: dtype; D_QK, D_VO: sizes; ROWS, KEYS: of a tile; BOX: keys of a copy; FLAGS"
#endif
constexpr int64_t T = SPEC_T;   /* F16, BF16 */
constexpr int D_QK = SPEC_D_QK; /* multiples of 8 up to 256 */
constexpr int D_VO = SPEC_D_VO;
constexpr int ROWS = SPEC_ROWS; /* 128, 192 */
constexpr int KEYS = SPEC_KEYS; /* 80, 128 */
constexpr int BOX = SPEC_BOX;   /* 8, 16, 32, 64, KEYS; 1: rows one by one */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = FLAGS & BOLIDE__SM90_PAGED;
constexpr bool CAPPED = FLAGS & BOLIDE__SM90_CAPPED;
constexpr bool Q_BOX = FLAGS & BOLIDE__SM90_Q_BOX;
constexpr bool SIGNED = FLAGS & BOLIDE__SM90_SIGNED;
constexpr bool WIDE = FLAGS & BOLIDE__SM90_WIDE;
constexpr bool PLACED = FLAGS & BOLIDE__SM90_PLACED;
constexpr bool CUT = FLAGS & BOLIDE__SM90_PIECES;
static_assert(D_QK % 8 == 0 && D_VO % 8 == 0 && D_QK <= 256 && D_VO <= 256, "head sizes");
constexpr bool GATHER = BOX == 1;
constexpr bool TALL = ROWS == BOLIDE__SM90_TALL_ROWS;
static_assert(ROWS == BOLIDE__SM90_ROWS || (TALL && D_QK <= 64 && D_VO <= 64 && !GATHER), "rows");
static_assert(KEYS % 16 == 0 && KEYS % BOX == 0 && (BOX % 8 == 0 || GATHER), "keys of a tile");
static_assert(!PLACED || (PAGED && !GATHER), "a box lies in one place");

using half = element<T>::type;
using out_elem = half;
constexpr int SIZE = 2;             /* bytes of an element */
constexpr int COLUMNS = 128 / SIZE; /* of a block */

constexpr int STAGES = BOLIDE__SM90_STAGES, V_STAGES = STAGES;
constexpr int GROUPS = ROWS / 64;                             /* warpgroups that compute */
constexpr int DV = D_VO <= 64 ? 64 : D_VO <= 128 ? 128 : 256; /* columns of the sums */
static_assert(!WIDE || (D_QK % 64 == 0 && D_VO == DV && !GATHER && BOX < KEYS), "whole rows");
constexpr int Q_BLOCKS = (D_QK + 63) / 64; /* blocks of 64 columns, 128 bytes a row */
constexpr int V_BLOCKS = DV / 64;
constexpr int STEPS = (D_QK + 15) / 16; /* products of 16 deep in a logit */
constexpr int V_STEPS = KEYS / 16;      /* and in a tile's sums */
constexpr int WORDS = KEYS / 4;         /* of a thread's weights */
constexpr int BLOCK = KEYS * 128;       /* bytes of a block of keys or values */
constexpr int Q_BLOCK = ROWS * 128;
/* Of keys and values: bytes from 8 rows to the next, and from a block of columns to the next. Wide
 * copies leave 8 rows of each block beside each other. */
constexpr int K_GROUP = WIDE ? 1024 * Q_BLOCKS : 1024, K_BLOCK = WIDE ? 1024 : BLOCK;
constexpr int V_GROUP = WIDE ? 1024 * V_BLOCKS : 1024, V_BLOCK = WIDE ? 1024 : BLOCK;
constexpr int Q_STAGES = BOLIDE__SM90_Q_STAGES(ROWS, Q_BLOCKS, V_BLOCKS, KEYS);
/* Products with values that a warpgroup asks for before the other one's turn: 0 to KEYS / 16; −1:
 * there are no turns. */
constexpr int HAND = 8;
constexpr int SLOTS = BOLIDE__SM90_SLOTS;
/* A row's base is raised when a thread's weights of a tile add up to more; f16 has 65504. */
constexpr float MOST = 4096.0f;
constexpr float BELOW = 0.0f; /* how far below the largest logit a new base is */
constexpr int WARPS = 4 * GROUPS;
constexpr bool MASKS_BY_BITS = TALL;
constexpr bool STREAMED = DV <= 128; /* the state of two items fits the registers */
/* Where boxes are small there are many to ask for: values have a warp of their own. */
constexpr bool SPLIT = BOX < KEYS && !GATHER && !PLACED;
constexpr int GATHERERS = GATHER ? 4 : SPLIT ? 2 : 1; /* warps that load */
constexpr bool LOADER_DEALS = GATHER;
constexpr int FULL_ARRIVALS = GATHER ? 32 * GATHERERS : 1;
/* An item's first tile whose second half no row of a warpgroup sees costs half of the weights. Not
 * beside a row of three blocks, where it was slower. */
constexpr bool HALVES = KEYS == 128 && D_QK <= 128 && !PLACED;
constexpr bool FOUND_AHEAD = !GATHER; /* barriers on which a turn arrives */
constexpr bool STORES = BOLIDE__SM90_STORES(ROWS, Q_BLOCKS, V_BLOCKS, KEYS, D_VO);

using params = bolide__attention_sm90_params;
using work = bolide__attention_work;

using item = bolide__sm90_item;

struct shared_memory {
    alignas(1024) unsigned char q[Q_STAGES][Q_BLOCKS][Q_BLOCK];
    alignas(1024) unsigned char k[STAGES][Q_BLOCKS][BLOCK];
    alignas(1024) unsigned char v[STAGES][V_BLOCKS][BLOCK];
    alignas(16) item items[SLOTS];
    barrier full_q[Q_STAGES][GROUPS], empty_q[Q_STAGES][GROUPS];
    barrier full_k[STAGES], empty_k[STAGES];
    barrier full_v[STAGES], empty_v[STAGES];
    barrier full_item[SLOTS], empty_item[SLOTS];
    int32_t columns[STAGES][PLACED ? KEYS / BOX : 1]; /* of the first key of each box */
};

/* With STORES rows of out lie before the rest, on their way to memory. */
constexpr int OUT_BYTES = STORES ? V_BLOCKS * Q_BLOCK : 0;
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
                    descriptor_at<K_GROUP>(k, i / 4 * K_BLOCK + i % 4 * 32), i > 0);
}

/* O += P V, steps [FROM, TO) of 16 keys. */
template <int FROM, int TO>
void add_values(float (&o)[DV / 2], const uint32_t (&weights)[WORDS], uint32_t v) {
#pragma unroll
    for (int i = FROM; i < TO; i++)
        wgmma<half>(o, weights + 4 * i, descriptor_at<V_GROUP>(v, 2 * i * V_GROUP));
}

barrier (&full_values(shared_memory &s))[V_STAGES] {
    return s.full_v;
}

barrier (&empty_values(shared_memory &s))[V_STAGES] {
    return s.empty_v;
}

uint32_t own_values(shared_memory &s, int stage) {
    return uniform_half(column_descriptor(shared_address(s.v[stage]), V_BLOCK));
}

/* Values behind the last key are whatever memory holds, and 0 times NaN is NaN: they become zeros.
 * Each warpgroup does so before its own products; both write the same. Rows that are copied one by
 * one come with zeros. */
void clear_tail(shared_memory &s, int stage, int keys, int group) {
    if constexpr (GATHER)
        return;
    constexpr uint32_t PIECES = V_BLOCKS * 8; /* of 16 bytes in a row */
    unsigned char *v = s.v[stage][0];
#pragma unroll 1
    for (uint32_t i = keys * PIECES + threadIdx.x % 128; i < KEYS * PIECES; i += 128) {
        const uint32_t row = i / PIECES, piece = i % PIECES;
        *reinterpret_cast<uint4 *>(v + row / 8 * V_GROUP + row % 8 * 128 + piece / 8 * V_BLOCK +
                                   piece % 8 * 16) = {};
    }
    /* Ordinary stores, read by wgmma: without the fence it may still see what was there. And the
     * copy that fills this stage next must not be overtaken by them. */
    fence_async_shared();
    named_sync(OWN + group, 128);
}

#include "ops/attention/attention_sm90_turn.cuh"

/* ---- a warpgroup that computes -----------------------------------------------------------------
 *
 * Items with keys follow each other without a gap: the products of the next one's first tile run
 * while the last values of this one are added and its rows are written.
 */

void compute(const params &a, shared_memory &s, int group) {
    stream c = {group};
    rows_state r;
    float x[KEYS / 2], o[DV / 2];
    uint32_t weights[WORDS];
    if (HAND >= 0 && c.group == GROUPS - 1)
        named_arrive(ORDER, 256); /* the first turn is warpgroup 0's */
#pragma unroll 1
    for (;;) {
        tiles t = await_item(s, c.items);
        if (t.head < 0)
            break;
        clear_sums(o);
        const bool empty = t.last < t.first;
        if (empty)
            begin_rows(a, own_item(s, c), c.group, r);
        else
            begin_stream(a, s, c, t, r, x, weights);
#pragma unroll 1
        while (!empty) {
#pragma unroll 1
            for (int n = t.last - 1; n >= t.first; n--) {
                turn(a, s, c, n * KEYS, n == t.first, r, x, o, weights);
                soften(r, x, weights, o);
            }
            const bool whole = !CUT || of_warp(own_item(s, c).w.slot) < 0;
            ring_place<SLOTS> after = c.items;
            after.advance();
            t = await_item(s, after);
            if (!STREAMED || !whole || t.head < 0 || t.last < t.first)
                break;
            rows_state begun;
            begin_rows(a, s.items[after.stage], c.group, begun);
            begin_queries(a, s, c, s.items[after.stage]);
            const bool half = sees_half(a.p, s.items[after.stage], c.group);
            turn(a, s, c, t.last * KEYS, t.first == t.last, begun, x, o, weights, half);
            write_rows(a, own_item(s, c), c.group, r, o);
            leave_item(s, c);
            clear_sums(o);
            r = begun;
            soften_first(r, x, weights, half);
            c.tail = own_item(s, c).tail;
        }
        if (!empty)
            add_last_values(s, c, o, weights);
        end_rows(a, own_item(s, c), c.group, r, o);
        leave_item(s, c);
    }
    if (STORES && threadIdx.x % 32 == 0)
        await_stores();
}

extern "C" __global__ void __launch_bounds__(BOLIDE__SM90_THREADS_OF(ROWS), 1)
    bolide_attention_sm90(const __grid_constant__ bolide__attention_sm90_params a) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic + OUT_BYTES);
    if (a.p.flags & BOLIDE__ATTN_SHARED) {
        release_next_kernel(); /* which works beside this one */
        if ((int32_t)blockIdx.x >= blocks_at_work(a))
            return;
    }
    if (threadIdx.x == 0) {
        prefetch_map(a.q);
        prefetch_map(a.k);
        prefetch_map(a.v);
        begin_barriers(s, FULL_ARRIVALS, WARPS, GATHERERS);
        fence_barrier_init();
    }
    __syncthreads();
    const int warpgroup = of_warp(threadIdx.x / 128);
    if (warpgroup == 0) {
        give_registers<TALL ? 32 : GATHER ? 72 : 40>();
        if (PLACED && threadIdx.x / 32 == 0)
            load_seen(a, s);
        else if (SPLIT && threadIdx.x / 32 == 1)
            load_all<false, true>(a, s);
        else if (threadIdx.x / 32 < GATHERERS)
            load_all<true, !SPLIT>(a, s);
        else if (threadIdx.x == 96 || (PLACED && threadIdx.x > 96))
            deal_all(a, s);
    } else {
        take_registers<TALL ? 160 : GATHER ? 216 : 232>();
        compute(a, s, warpgroup - 1);
    }
}
