// SPDX-License-Identifier: Apache-2.0
//
// Dense products of 16-bit operands on Hopper: copies by the copy engine, products by wgmma. A
// block makes tiles of BM x BN from slices of 64 of k that pass through a ring of stages in shared
// memory. One of its three warpgroups asks for the copies, and is ahead of the others by the whole
// ring, also from one tile to the next; the other two have half a tile each: 64 of 128 rows, or
// half the columns of 64 rows.
//
//     a   BM rows of 64 k, 128 bytes each, as the copy engine lays them out; of fewer than BM rows
//         in all those that there are, as rows past the end cost it more than others, and what is
//         multiplied in their place is not stored
//     b   BN rows of 64 k, likewise
//
// Where there are too few tiles for the chip, CLUSTER blocks share the slices of one tile. Each
// leaves its sums in its own shared memory, and adds up its share of the rows over all blocks in
// their order, so that the bits do not depend on who is first. The multiplier is the limit for many
// rows, memory for few. docs/kernels/gemm.md says more.

#include "cuda/device/base.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/mbarrier.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/wgmma.cuh"
#include "ops/gemm/gemm_device.h"
#include "ops/gemm/gemm_store.cuh"
#include "ops/gemm/gemm_wgmma.cuh"

#if !defined(SPEC_DT) || !defined(SPEC_OUT) || !defined(SPEC_BIAS) || !defined(SPEC_BM) ||         \
    !defined(SPEC_BN) || !defined(SPEC_CLUSTER) || !defined(SPEC_PIECES)
#error "DT OUT BIAS: dtype bits; BM BN: the tile; CLUSTER: blocks a tile; PIECES: out by 16 bytes"
#endif
constexpr int64_t DT = SPEC_DT;        /* F16, BF16 */
constexpr int64_t OUT = SPEC_OUT;      /* F16, BF16, F32 */
constexpr int64_t BIAS = SPEC_BIAS;    /* the same; 0: none */
constexpr int BM = SPEC_BM;            /* 64, 128 */
constexpr int BN = SPEC_BN;            /* 64, 112, 128; with 128 rows 224, 256 */
constexpr int CLUSTER = SPEC_CLUSTER;  /* 1, 2 */
constexpr bool PIECES = SPEC_PIECES;   /* rows of out can be stored 16 bytes at a time */
constexpr int BK = BOLIDE__MM_SM90_BK; /* 128 bytes */
constexpr int COMPUTERS = 256, THREADS = BOLIDE__MM_SM90_THREADS;
constexpr int STAGE_A = BM * 128, STAGE_B = BN * 128;
constexpr int STAGES = BOLIDE__MM_SM90_BYTES / (STAGE_A + STAGE_B); /* 4 to 12 */
constexpr int COLUMNS = BM == 64 ? BN / 2 : BN;                     /* of a warpgroup */
constexpr int SUMS = COLUMNS / 2;
constexpr int GROUP = 16; /* rows of tiles that are worked on side by side */

using elem = element<DT>::type;
using out_t = element<OUT>::type;
using half_t = element<OUT == F32 ? F16 : OUT>::type; /* of store_pieces */
using params = bolide__mm_sm90_params;

struct ring {
    alignas(1024) uint8_t a[STAGES][STAGE_A];
    alignas(1024) uint8_t b[STAGES][STAGE_B];
};
/* Takes the place of the ring; rows are shifted by 8 banks against the one before. */
struct partial_sums {
    float row[BM][BN + 8];
};
struct shared_memory {
    union {
        ring stages;
        partial_sums sums;
    };
    barrier full[STAGES], empty[STAGES];
};
static_assert(sizeof(shared_memory) <= BOLIDE__MM_SM90_BYTES + BOLIDE__MM_SM90_BARRIERS,
              "as much as the host asks for");

extern __shared__ __align__(1024) uint8_t dynamic[];

/* Where a tile lies; tiles below each other are neighbours, GROUP of them at a time, so that those
 * that are made at the same time have rows and columns in common. */
struct tile {
    int batch, m, n; /* its first row and column */
};

tile tile_of(const params &p, int number) {
    if (p.tiles == p.tiles_n)
        return {0, 0, number * BN};
    const int tiles_m = (int)p.mm.tiles_m, of_batch = tiles_m * p.tiles_n;
    const int batch = number / of_batch, at = number - batch * of_batch;
    const int group = at / (GROUP * p.tiles_n), first = group * GROUP;
    const int rows = smaller(GROUP, tiles_m - first), within = at - group * GROUP * p.tiles_n;
    const int column = within / rows;
    return {batch, (first + within - column * rows) * BM, column * BN};
}

/* The slices of k that this block takes. */
struct range {
    int begin, end;
};

range slices_of(const params &p) {
    const int rank = cluster_rank<CLUSTER>();
    return {(int)((int64_t)p.slices * rank / CLUSTER),
            (int)((int64_t)p.slices * (rank + 1) / CLUSTER)};
}

void load_slice(const params &p, shared_memory &s, const tile &t, int slice, int stage) {
    const uint64_t keep = keep_policy(), of_b = p.b_once ? stream_policy() : keep;
    barrier &full = s.full[stage];
    barrier_expect(full, p.a_bytes + STAGE_B);
    copy_box(s.stages.b[stage], p.b, full, slice * BK, t.n, t.batch * p.step_b, 0, of_b);
    copy_box(s.stages.a[stage], p.a, full, slice * BK, t.m, t.batch * p.step_a, 0, keep);
}

/* The first slices of the first tile, for which all stages are empty. */
void load_first(const params &p, shared_memory &s) {
    const range k = slices_of(p);
    const tile t = tile_of(p, blockIdx.x / CLUSTER);
#pragma unroll 1
    for (int i = 0; i < STAGES && k.begin + i < k.end; i++)
        load_slice(p, s, t, k.begin + i, i);
}

/* The others. */
void load_tiles(const params &p, shared_memory &s) {
    const range k = slices_of(p);
    const int count = k.end - k.begin;
    int first = smaller(STAGES, count);
    ring_place<STAGES> at = {first % STAGES, first < STAGES};
    for (int i = blockIdx.x / CLUSTER; i < p.tiles; i += gridDim.x / CLUSTER) {
        const tile t = tile_of(p, i);
#pragma unroll 1
        for (int slice = k.begin + first; slice < k.end; slice++, at.advance()) {
            barrier_wait(s.empty[at.stage], at.phase);
            load_slice(p, s, t, slice, at.stage);
        }
        first = 0;
    }
}

/* Waits until at most PENDING groups run, without a claim on their sums. */
template <int PENDING> void wait_groups() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

void leave(barrier &b) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(b);
}

/* The sums of a tile. One group of products runs while the next is asked for; a stage is free when
 * the group behind it has begun. */
void multiply(shared_memory &s, range k, int row, int column, ring_place<STAGES> &at,
              float (&sum)[SUMS]) {
    int before = 0;
#pragma unroll 1
    for (int slice = k.begin; slice < k.end; slice++, at.advance()) {
        barrier_wait(s.full[at.stage], at.phase);
        const uint32_t a = shared_address(s.stages.a[at.stage]) + row * 128;
        const uint32_t b = shared_address(s.stages.b[at.stage]) + column * 128;
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < BK / 16; i++)
            wgmma<elem>(sum, row_descriptor(a + i * 32), row_descriptor(b + i * 32),
                        slice > k.begin || i > 0);
        wgmma_commit();
        if (slice > k.begin) {
            wait_groups<1>();
            leave(s.empty[before]);
        }
        before = at.stage;
    }
    wgmma_wait<0>(sum);
    leave(s.empty[before]);
}

/* ---- results ----------------------------------------------------------------------------------
 */

/* Word i of lane t goes to lane i of the four as its word t. */
void turn_quad(uint32_t (&w)[4]) {
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & step)
                continue;
            const bool high = lane & step;
            const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? w[i] : w[i + step], step);
            w[i] = high ? got : w[i];
            w[i + step] = high ? w[i + step] : got;
        }
    }
}

/* Four columns of eight of a row are spread over four lanes; each lane stores one of the eights. */
void store_pieces(const params &p, out_t *row, bool there, int column, const float (&sum)[SUMS],
                  int first) {
    const int lane = threadIdx.x % 4;
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = column + i * 8 + lane * 2;
        float x = sum[first + i * 4], y = sum[first + i * 4 + 1];
        if (BIAS != 0 && at < p.mm.n) {
            x += bias_of<BIAS>(p.mm.bias, at);
            y += bias_of<BIAS>(p.mm.bias, at + 1);
        }
        w[i] = floats_to_halves<half_t>(x, y);
    }
    turn_quad(w);
    const int to = column + lane * 8;
    if (there && to < p.mm.n)
        store(row + to, words<16>{w[0], w[1], w[2], w[3]});
}

void store_pairs(const params &p, out_t *row, bool there, int column, const float (&sum)[SUMS],
                 int first) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = column + i * 8 + threadIdx.x % 4 * 2;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (there && at + j < p.mm.n)
                store_sum<BIAS>(row, at + j, sum[first + i * 4 + j], p.mm.bias);
        }
    }
}

/* The same of eight columns. */
void store_eight(const params &p, out_t *row, bool there, int column, const float (&sum)[SUMS],
                 int first) {
    const int at = column + threadIdx.x % 4 * 2;
    if (!there || at >= p.mm.n)
        return;
    if constexpr (PIECES && OUT != F32) {
        float x = sum[first], y = sum[first + 1];
        if constexpr (BIAS != 0) {
            x += bias_of<BIAS>(p.mm.bias, at);
            y += bias_of<BIAS>(p.mm.bias, at + 1);
        }
        store(row + at, words<4>{floats_to_halves<half_t>(x, y)});
    } else {
        store_sum<BIAS>(row, at, sum[first], p.mm.bias);
        if (at + 1 < p.mm.n)
            store_sum<BIAS>(row, at + 1, sum[first + 1], p.mm.bias);
    }
}

/* Element i of thread t lies in row 16 (t / 32) + t % 32 / 4 + 8 (i / 2 % 2), column 8 (i / 4) +
 * 2 (t % 4) + i % 2. */
void store_tile(const params &p, const tile &t, int row, int column, const float (&sum)[SUMS]) {
    const int thread = threadIdx.x % 128;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t r = t.m + row + thread / 32 * 16 + thread % 32 / 4 + half * 8;
        out_t *to = static_cast<out_t *>(p.mm.out) + t.batch * p.mm.out_batch + r * p.mm.out_row;
#pragma unroll
        for (int i = 0; i < COLUMNS / 32; i++) {
            if constexpr (PIECES && OUT != F32)
                store_pieces(p, to, r < p.mm.m, t.n + column + i * 32, sum, i * 16 + half * 2);
            else
                store_pairs(p, to, r < p.mm.m, t.n + column + i * 32, sum, i * 16 + half * 2);
        }
#pragma unroll
        for (int i = COLUMNS / 32 * 4; i < COLUMNS / 8; i++)
            store_eight(p, to, r < p.mm.m, t.n + column + i * 8, sum, i * 4 + half * 2);
    }
}

void keep_sums(shared_memory &s, int row, int column, const float (&sum)[SUMS]) {
    const int thread = threadIdx.x % 128;
    const int r = row + thread / 32 * 16 + thread % 32 / 4, c = column + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < SUMS; i += 2)
        *reinterpret_cast<float2 *>(&s.sums.row[r + i / 2 % 2 * 8][c + i / 4 * 8]) =
            float2{sum[i], sum[i + 1]};
}

/* Adds up this block's share of the rows, four columns at a time. */
void add_sums(const params &p, shared_memory &s, const tile &t) {
    constexpr int ROWS = BM / CLUSTER;
    const int first = cluster_rank<CLUSTER>() * ROWS;
    out_t *out = static_cast<out_t *>(p.mm.out) + t.batch * p.mm.out_batch;
    for (int i = threadIdx.x - 128; i < ROWS * (BN / 4); i += COMPUTERS) {
        const int row = first + i / (BN / 4), column = i % (BN / 4) * 4;
        pack<float, 4> sum = {};
#pragma unroll
        for (int rank = 0; rank < CLUSTER; rank++) {
            const two_words *at = reinterpret_cast<const two_words *>(&s.sums.row[row][column]);
            const pack<float, 4> other = bits_as<pack<float, 4>>(load_peer<CLUSTER>(at, rank));
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum.at[j] = rank == 0 ? other.at[j] : sum.at[j] + other.at[j];
        }
        const int64_t r = t.m + row, c = t.n + column;
        if (r >= p.mm.m || c >= p.mm.n)
            continue;
        out_t *to = out + r * p.mm.out_row;
        if constexpr (PIECES) {
            if constexpr (BIAS != 0) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum.at[j] += bias_of<BIAS>(p.mm.bias, c + j);
            }
            store(to + c, pack_floats<out_t>(sum.at));
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (c + j < p.mm.n)
                    store_sum<BIAS>(to, c + j, sum.at[j], p.mm.bias);
            }
        }
    }
}

void compute_tiles(const params &p, shared_memory &s) {
    const range k = slices_of(p);
    const int group = threadIdx.x / 128 - 1;
    const int row = BM == 64 ? 0 : group * 64, column = BM == 64 ? group * COLUMNS : 0;
    ring_place<STAGES> at = {0, 0};
#pragma unroll 1
    for (int i = blockIdx.x / CLUSTER; i < p.tiles; i += gridDim.x / CLUSTER) {
        float sum[SUMS];
        multiply(s, k, row, column, at, sum);
        if constexpr (CLUSTER == 1) {
            store_tile(p, tile_of(p, i), row, column, sum);
        } else {
            /* Nobody reads the ring any more. */
            named_sync(1, COMPUTERS);
            keep_sums(s, row, column, sum);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bolide_mm_sm90(const __grid_constant__ bolide__mm_sm90_params p) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    release_next_kernel();
    if (threadIdx.x == 0) {
        prefetch_map(p.a);
        prefetch_map(p.b);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(s.full[i], 1);
            barrier_init(s.empty[i], COMPUTERS / 32);
        }
        fence_barrier_init();
        /* Memory is the limit, and the others are not needed for this. */
        wait_for_previous_kernel();
        load_first(p, s);
    }
    __syncthreads();
    wait_for_previous_kernel();
    if (threadIdx.x < 128) {
        give_registers<24>();
        if (threadIdx.x == 0)
            load_tiles(p, s);
        __syncwarp();
        if constexpr (CLUSTER > 1) {
            cluster_sync<CLUSTER>();
            cluster_sync<CLUSTER>();
        }
    } else {
        take_registers<240>();
        compute_tiles(p, s);
        if constexpr (CLUSTER > 1) {
            /* One tile a cluster. A block must not leave while another reads its sums. */
            cluster_sync<CLUSTER>();
            add_sums(p, s, tile_of(p, blockIdx.x / CLUSTER));
            cluster_sync<CLUSTER>();
        }
    }
}
