// SPDX-License-Identifier: Apache-2.0
//
// Attention of many rows of e4m3 on Hopper, like attention_sm90.cu with products of 8 bits. Both
// operands of such a product must have their rows along memory, so values are turned on the way:
// three warps of the warpgroup that loads read a tile of keys by columns and write columns by keys,
// in the order in which the registers of the weights have the keys; none is exchanged later.
//
//     warp 0        K n-1, V n-1 asked for      K n-2, V n-2 ...
//     warps 1 to 3  V n turned                  V n-1 turned
//     warpgroups    |QK n-1|PV n|  soften n-1 ...
//
// Weights have 8 bits, too: a row's base lies below its largest logit, so that weights use what the
// format can hold. The tensor cores sum 8-bit products in fewer bits than f32; the sums of each
// tile are added in f32. Exponentials are the limit. docs/kernels/attention-hopper.md

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mbarrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/wgmma.cuh"
#include "ops/attention/attention_sm90.h"

#if !defined(SPEC_OT) || !defined(SPEC_BOX) || !defined(SPEC_FLAGS)
#error "OT: dtype of out; BOX: keys of a copy; FLAGS"
#endif
constexpr int64_t OT = SPEC_OT; /* F16, BF16 */
constexpr int BOX = SPEC_BOX;   /* 8, 16, 32, 64, 128 */
constexpr int FLAGS = SPEC_FLAGS;
constexpr int D_QK = BOLIDE__FP8_SM90_D, D_VO = D_QK, KEYS = BOLIDE__FP8_SM90_KEYS;
constexpr bool PAGED = FLAGS & BOLIDE__SM90_PAGED;
constexpr bool CAPPED = FLAGS & BOLIDE__SM90_CAPPED;
constexpr bool Q_BOX = FLAGS & BOLIDE__SM90_Q_BOX;
constexpr bool SIGNED = FLAGS & BOLIDE__SM90_SIGNED;
constexpr bool CUT = FLAGS & BOLIDE__SM90_PIECES;
constexpr bool GATHER = false, WIDE = false, PLACED = false, STORES = false;
constexpr bool HALVES = true, FOUND_AHEAD = false;
static_assert(KEYS == 128 && D_QK == 128, "blocks of 128 bytes, turned to the same");

using half = e4m3;
using out_elem = element<OT>::type;
constexpr int SIZE = 1;
constexpr int COLUMNS = 128; /* of a block */
constexpr int ROWS = BOLIDE__SM90_ROWS;
constexpr int STAGES = BOLIDE__FP8_SM90_STAGES;
constexpr int V_STAGES = BOLIDE__FP8_SM90_TURNED; /* turned tiles */
constexpr int GROUPS = ROWS / 64;
constexpr int DV = D_VO;
constexpr int Q_BLOCKS = 1, V_BLOCKS = 1;
constexpr int STEPS = D_QK / 32;   /* products of 32 deep in a logit */
constexpr int V_STEPS = KEYS / 32; /* and in a tile's sums */
constexpr int WORDS = KEYS / 8;    /* of a thread's weights */
constexpr int BLOCK = KEYS * 128;
constexpr int Q_BLOCK = ROWS * 128;
constexpr int Q_STAGES = 2;
/* Products with values that a warpgroup asks for before the other one's turn; -1: no turns. */
constexpr int HAND = 4;
constexpr int SLOTS = BOLIDE__SM90_SLOTS;
/* A base is raised when a thread's weights of a tile add up to more than e4m3 has, to where they
 * begin at 2^3: those of equal keys then just do. Small ones keep 12 powers of two below. */
constexpr float MOST = 448.0f, BELOW = 3.0f;
constexpr int WARPS = 4 * GROUPS;
constexpr int GATHERERS = 1, TURNERS = 3; /* warps */
constexpr bool LOADER_DEALS = true, MASKS_BY_BITS = true;
static_assert(KEYS <= 128, "a bit for each logit of a row");

using params = bolide__attention_sm90_params;
using work = bolide__attention_work;

using item = bolide__sm90_item;

struct shared_memory {
    alignas(1024) unsigned char q[Q_STAGES][Q_BLOCKS][Q_BLOCK];
    alignas(1024) unsigned char k[STAGES][Q_BLOCKS][BLOCK];
    alignas(1024) unsigned char v[STAGES][V_BLOCKS][BLOCK];
    alignas(1024) unsigned char turned[V_STAGES][BLOCK];
    alignas(16) item items[SLOTS];
    barrier full_q[Q_STAGES][GROUPS], empty_q[Q_STAGES][GROUPS];
    barrier full_k[STAGES], empty_k[STAGES];
    barrier full_v[STAGES], empty_v[STAGES];
    barrier full_t[V_STAGES], empty_t[V_STAGES];
    barrier full_item[SLOTS], empty_item[SLOTS];
    int32_t columns[STAGES][1]; /* for PLACED only */
};

extern __shared__ __align__(1024) unsigned char dynamic[];

#include "ops/attention/attention_sm90_load.cuh"
#include "ops/attention/attention_sm90_rows.cuh"

/* ---- turning values ----------------------------------------------------------------------------
 *
 * A matrix of 8 keys by 16 bytes, read transposed as 16-bit elements, gives a lane the columns 2 *
 * q and 2 * q + 1 (q = lane / 4) of keys 2 * c and 2 * c + 1 (c = lane % 4). From two such matrices
 * the bytes of one column make a word of keys 2c, 2c + 1, 8 + 2c, 8 + 2c + 1: just what a lane has
 * of 16 neighbouring logits. Row n of the turned tile is column n / 16 * 16 + 2 * (n % 8) + n / 8 %
 * 2, so that eight rows written together meet every bank once, and a lane's sums are four
 * neighbours.
 */

uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t which) {
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(which));
    return r;
}

/* Bytes of a word that have keys before `end`; its first key is 2c. */
uint32_t bytes_before(int end) {
    const int own = end - (int)threadIdx.x % 4 * 2;
    return (own > 0 ? 0xffu : 0) | (own > 1 ? 0xff00u : 0) | (own > 8 ? 0xff0000u : 0) |
           (own > 9 ? 0xff000000u : 0);
}

/* Where a lane of a warp that turns reads and writes, behind the beginning of a tile. The warp has
 * every third block of 16 columns. All of it is found once: found again for each piece, a tile took
 * longer than everything else. */
constexpr int PARTS = KEYS / 32, PIECES = D_VO / 16, ROUNDS = (PIECES + TURNERS - 1) / TURNERS;

struct turner {
    uint32_t from[ROUNDS], to[PARTS];
};

turner begin_turning() {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 1;
    const uint32_t row = warp * 16 + lane / 16 * 8 + lane % 8;
    turner t;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++)
        t.from[i] = lane * 128 + ((warp + i * TURNERS) ^ lane) % 8 * 16;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        t.to[i] = row * 128 + ((2 * i + lane / 8 % 2) ^ row) % 8 * 16;
    return t;
}

/* By TURNERS warps; WHOLE: the tile has all its keys, otherwise those behind `keys` become zeros.
 */
template <bool WHOLE>
void turn_tile(const unsigned char *from, uint32_t to, const turner &t, int keys) {
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        if (PIECES % TURNERS != 0 && i == ROUNDS - 1 && threadIdx.x / 32 > PIECES % TURNERS)
            break;
        uint32_t r[PARTS][4];
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            load_matrices<true>(r[part], from + t.from[i] + part * 4096);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            uint32_t w[4] = {
                bytes_of(r[part][0], r[part][1], 0x6420), bytes_of(r[part][2], r[part][3], 0x6420),
                bytes_of(r[part][0], r[part][1], 0x7531), bytes_of(r[part][2], r[part][3], 0x7531)};
            if constexpr (!WHOLE) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    w[j] &= bytes_before(keys - part * 32 - j % 2 * 16);
            }
            store_matrices(to + t.to[part] + i * TURNERS * 2048, w);
        }
    }
}

void turn_all(shared_memory &s) {
    const turner t = begin_turning();
    ring_place<SLOTS> ip = {0, 0};
    ring_place<STAGES> vp = {0, 0};
    ring_place<V_STAGES> tp = {0, 1};
    const bool first_lane = threadIdx.x % 32 == 0;
    for (;; ip.advance()) {
        barrier_wait(s.full_item[ip.stage], ip.phase);
        const item &it = s.items[ip.stage];
        if (it.head < 0)
            break;
#pragma unroll 1
        for (int32_t n = it.last; n >= it.first; n--) {
            barrier_wait(s.full_v[vp.stage], vp.phase);
            barrier_wait(s.empty_t[tp.stage], tp.phase);
            const int keys = it.w.kv_end - n * KEYS;
            const uint32_t to = shared_address(s.turned[tp.stage]);
            if (keys >= KEYS)
                turn_tile<true>(s.v[vp.stage][0], to, t, keys);
            else
                turn_tile<false>(s.v[vp.stage][0], to, t, keys);
            /* Ordinary stores, read by wgmma behind the barrier; and what was read may be
             * overwritten by a copy behind the other. */
            fence_async_shared();
            __syncwarp();
            if (first_lane) {
                barrier_arrive(s.full_t[tp.stage]);
                barrier_arrive(s.empty_v[vp.stage]);
            }
            vp.advance();
            tp.advance();
        }
        __syncwarp();
        if (first_lane)
            barrier_arrive(s.empty_item[ip.stage]);
    }
}

/* ---- the products ------------------------------------------------------------------------------
 */

/* S = Q K^T of the warpgroup's rows with a tile's keys. */
void multiply_keys(float (&x)[KEYS / 2], uint32_t q, uint32_t k) {
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        wgmma_e4m3(x, descriptor_at(q, i * 32), descriptor_at(k, i * 32), i > 0);
}

/* Sums of a tile = P V, steps [FROM, TO) of 32 keys. */
template <int FROM, int TO>
void add_values(float (&part)[DV / 2], const uint32_t (&weights)[WORDS], uint32_t v) {
#pragma unroll
    for (int i = FROM; i < TO; i++)
        wgmma_e4m3(part, weights + 4 * i, descriptor_at(v, i * 32), i > 0);
}

barrier (&full_values(shared_memory &s))[V_STAGES] {
    return s.full_t;
}

barrier (&empty_values(shared_memory &s))[V_STAGES] {
    return s.empty_t;
}

uint32_t own_values(shared_memory &s, int stage) {
    return uniform_half(row_descriptor(shared_address(s.turned[stage])));
}

/* Turned tiles have zeros behind the last key. */
void clear_tail(shared_memory &s, int stage, int keys, int group) {
}

#include "ops/attention/attention_sm90_turn.cuh"

/* ---- a warpgroup that computes -----------------------------------------------------------------
 */

void add(float (&o)[DV / 2], const float (&part)[DV / 2]) {
#pragma unroll
    for (int i = 0; i < DV / 2; i++)
        o[i] += part[i];
}

void compute(const params &a, shared_memory &s, int group) {
    stream c = {group};
    rows_state r;
    float x[KEYS / 2], o[DV / 2], part[DV / 2];
    uint32_t weights[WORDS];
    if (HAND >= 0 && c.group == GROUPS - 1)
        named_arrive(ORDER, 256); /* the first turn is warpgroup 0's */
#pragma unroll 1
    for (;;) {
        const tiles t = await_item(s, c.items);
        if (t.head < 0)
            break;
        clear_sums(o);
        if (t.first > t.last) {
            begin_rows(a, own_item(s, c), c.group, r);
        } else {
            begin_stream(a, s, c, t, r, x, weights);
#pragma unroll 1
            for (int n = t.last - 1; n >= t.first; n--) {
                turn(a, s, c, n * KEYS, n == t.first, r, x, part, weights);
                add(o, part);
                soften(r, x, weights, o);
            }
            add_last_values(s, c, part, weights);
            add(o, part);
        }
        end_rows(a, own_item(s, c), c.group, r, o);
        leave_item(s, c);
    }
}

extern "C" __global__ void __launch_bounds__(BOLIDE__SM90_THREADS_OF(ROWS), 1)
    bolide_attention_sm90_fp8(const __grid_constant__ bolide__attention_sm90_params a) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    if (threadIdx.x == 0) {
        prefetch_map(a.q);
        prefetch_map(a.k);
        prefetch_map(a.v);
        begin_barriers(s, 1, TURNERS, GATHERERS + TURNERS);
        for (int i = 0; i < V_STAGES; i++) {
            barrier_init(s.full_t[i], TURNERS);
            barrier_init(s.empty_t[i], WARPS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    const int warpgroup = of_warp(threadIdx.x / 128);
    if (warpgroup == 0) {
        give_registers<40>();
        if (threadIdx.x < 32)
            load_all<true, true>(a, s);
        else
            turn_all(s);
    } else {
        take_registers<232>();
        compute(a, s, warpgroup - 1);
    }
}
