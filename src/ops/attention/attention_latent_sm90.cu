// SPDX-License-Identifier: Apache-2.0
//
// Multi-head latent attention on Hopper: copies by the copy engine, products by wgmma, over the
// items of a plan with tiles of 64 packed rows. Tiles of 64 latents lie in shared memory once and
// serve as keys and as values.
//
// The sums of 64 rows by 512 columns do not fit one warpgroup: two of them hold half of the columns
// each. Tiles come in pairs; warpgroup w computes the weights of tile w of a pair, multiplies them
// from its registers with its half of that tile's values, and leaves them in shared memory for the
// other, which multiplies them with the other half. The weights of tile 1 have the base of tile 0
// or a higher one, so both warpgroups add tile 0, then tile 1, at the same bases:
//
//     warpgroup 0   |QK 0     | soften |P0 V0 left |        |P1 V1 left |QK 0' ...
//     warpgroup 1        |QK 1     |          |P0 V0 right| soften |P1 V1 right|
//
// A third warpgroup loads. Half a tile is free as soon as its values are added. The weights take
// the place of the rotary part of their tile's keys. docs/kernels/attention-hopper.md

#include "cuda/device/base.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/mbarrier.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/wgmma.cuh"
#include "ops/attention/attention_sm90.h"

#if !defined(SPEC_T) || !defined(SPEC_OT) || !defined(SPEC_D_CKV) || !defined(SPEC_D_KPE) ||       \
    !defined(SPEC_BOX) || !defined(SPEC_FLAGS)
#error "T, OT: dtypes; D_CKV, D_KPE: sizes; BOX: keys of a copy; FLAGS"
#endif
constexpr int64_t T = SPEC_T;      /* F16, BF16: of q and the caches */
constexpr int64_t OT = SPEC_OT;    /* F16, BF16, F32, F8_E4M3FN, F8_E5M2 */
constexpr int D_VO = SPEC_D_CKV;   /* 256, 512 */
constexpr int D_TAIL = SPEC_D_KPE; /* 0, 64 */
constexpr int BOX = SPEC_BOX;      /* 8, 16, 32, 64; 1: rows one by one */
constexpr int FLAGS = SPEC_FLAGS;
constexpr bool PAGED = true;
constexpr bool MASKED = FLAGS & 2; /* causal or window */
constexpr bool CAPPED = FLAGS & 4;
constexpr bool SPECIAL = FLAGS & 32; /* custom mask */
constexpr bool RULED = false, VARIANT = false, CHUNKED = false, V_PAGES = false;
constexpr bool GATHER = BOX == 1;
static_assert((D_VO == 256 || D_VO == 512) && (D_TAIL == 0 || D_TAIL == 64), "head sizes");

using half = element<T>::type;
using q_elem = half;
using kv_elem = half;
using out_elem = element<OT>::type;

constexpr int ROWS = BOLIDE__LATENT90_ROWS, KEYS = BOLIDE__LATENT90_KEYS;
constexpr int THREADS = 256;      /* that compute */
constexpr int BLOCKS = D_VO / 64; /* blocks of 64 columns of a tile of latents */
constexpr int HALF = BLOCKS / 2;  /* of them, one warpgroup's values */
constexpr int TAILS = D_TAIL / 64;
constexpr int BLOCK = 64 * 128;         /* bytes of a block of 64 rows */
constexpr int OWN = D_VO / 2;           /* columns of a warpgroup's sums */
constexpr int LOADERS = GATHER ? 4 : 1; /* warps */
constexpr int FULL_ARRIVALS = GATHER ? 32 * LOADERS : 1;
constexpr int FULLS = GATHER ? 2 : BLOCKS + TAILS; /* barriers of what comes of a tile */
constexpr int LAST_VALUES = GATHER ? 1 : BLOCKS - 1;
constexpr int MERGED_AT_ONCE = 4, MERGED_ROWS = 1; /* nothing is joined here */

#include "ops/attention/attention_plain.cuh"

#include "ops/attention/attention_device.cuh"

using latent_params = bolide__attention_latent90_params;

/* The hardware's barriers. */
enum named { WEIGHTS = 1, OWN_GROUP = 3, BOTH = 5 };

/* Part 0 of tile w of a pair is half w of its columns, part 1 the other half and the rotary part.
 * Parts are given back as a whole; they come block by block, or row by row as a whole. */
struct shared_memory {
    alignas(1024) unsigned char q[BLOCKS + TAILS][BLOCK];
    alignas(1024) unsigned char k[2][BLOCKS][BLOCK];
    alignas(1024) unsigned char tail[2][BLOCK]; /* of keys, then weights */
    float base[2][ROWS];                        /* that tile w's weights have */
    float sum[2][ROWS];
    /* What is asked for once a tile, for each warpgroup: keys that a row sees, and keys that all
     * do; what a row's products are multiplied by. */
    int32_t low[2][ROWS], high[2][ROWS];
    float scale[2][ROWS];
    int32_t open[2][4][2]; /* by warp */
    barrier full_q, empty_q;
    barrier full[2][FULLS], empty[2][2];
};

extern __shared__ __align__(1024) unsigned char dynamic[];

#include "ops/attention/latent_sm90_rows.cuh"

/* The j-th block of tile w in the order in which they come. */
constexpr int block_of(int w, int j) {
    return first_block(w, j / HALF) + j % HALF;
}

/* The k-th item of this block, where it lies: nothing of it has to stay in registers. */
const work &work_of(const params &p, int32_t k) {
    const bolide__attention_head &head = p.heads[blockIdx.x];
    return k == 0 ? head.first : p.works[head.begin + k];
}

/* Tiles [first, last] of keys of an item; last < first: none. */
struct tiles {
    int32_t first, last;
};

tiles tiles_of(const work &w) {
    return {w.kv_begin / KEYS, w.kv_begin < w.kv_end ? (w.kv_end - 1) / KEYS : -1};
}

/* The block's first row of an item, of which it has a share; rows of the item up to the share's
 * end. */
int32_t share_row() {
    return (int32_t)blockIdx.z * ROWS;
}

int32_t share_end(const params &p, const work &w) {
    return packed_rows(p, w, share_row() + ROWS);
}

/* What a warpgroup carries from pair to pair: phases of Q and of both tiles. */
struct course {
    uint32_t phases; /* bit w: tile w of a pair; bit 2: Q */

    __forceinline__ uint32_t of(int i) const {
        return phases >> i & 1;
    }
    __forceinline__ void turn(int i) {
        phases ^= 1u << i;
    }
};

#include "ops/attention/attention_latent_sm90_load.cuh"

/* ---- a warpgroup that computes -----------------------------------------------------------------
 */

template <int W> void begin_rows(const params &p, const work &w, shared_memory &s, rows_state &r) {
    const float common = scale_of(p.k_scale, 0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = row_of(i), in_item = share_row() + row;
        const sight seen = sight_of(p, w, query_token(p, w, in_item));
        r.m[i] = -INFINITE;
        r.l[i] = 0;
        if (threadIdx.x % 4 == 0) {
            s.scale[W][row] = logit_scale(p, query_head(p, w, in_item), common);
            s.low[W][row] = larger(seen.low, w.kv_begin);
            s.high[W][row] = seen.high;
        }
    }
    int32_t(&open)[2] = s.open[W][threadIdx.x % 128 / 32];
    if (threadIdx.x % 32 == 0) {
        open[0] = larger(sight_of(p, w, query_token(p, w, share_end(p, w) - 1)).low, w.kv_begin);
        open[1] = sight_of(p, w, query_token(p, w, share_row())).high;
    }
    __syncwarp(); /* all of it is read by the warp that has written it */
}

void wait_full(barrier &full, uint32_t phase) {
    barrier_wait(full, phase);
    /* What single threads have copied is not yet seen by wgmma, which reads through another path:
     * the fence lets it. */
    if constexpr (GATHER)
        fence_async_shared();
}

/* Rows behind the last key are whatever memory holds, and 0 times NaN is NaN: they become zeros. By
 * the warpgroup whose tile it is, before its products. */
template <int W> void clear_tail(shared_memory &s, int keys) {
    for (int at = keys * 8 + (int)threadIdx.x % 128; at < KEYS * 8; at += 128) {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            *reinterpret_cast<uint4 *>(s.k[W][b] + at * 16) = {};
    }
    /* Ordinary stores, read by wgmma of both warpgroups: the fence lets it see them; the other one
     * meets this one before it reads. */
    fence_async_shared();
    named_sync(OWN_GROUP + W, 128);
}

/* x = or += Q K^T of what barrier i of a tile stands for. */
template <int W>
void multiply_part(int i, float (&x)[KEYS / 2], uint32_t q, uint32_t k, uint32_t tail) {
    constexpr int EACH = GATHER ? HALF : 1;
#pragma unroll
    for (int j = i * EACH; j < (i + 1) * EACH && j < BLOCKS; j++) {
        const int at = block_of(W, j) * BLOCK;
#pragma unroll
        for (int e = 0; e < 4; e++)
            wgmma<half>(x, descriptor_at(q, at + e * 32), descriptor_at(k, at + e * 32), j + e > 0);
    }
    if (TAILS && i == FULLS - 1) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            wgmma<half>(x, descriptor_at(q, BLOCKS * BLOCK + e * 32), descriptor_at(tail, e * 32),
                        1);
    }
}

template <int W>
void mask(const params &p, const work &w, const shared_memory &s, int32_t first,
          float (&x)[KEYS / 2]) {
    const int32_t own = first + (int32_t)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = row_of(i), low = s.low[W][row] - own, high = s.high[W][row] - own;
#pragma unroll
        for (int e = 0; e < KEYS / 2; e++) {
            if (e / 2 % 2 != i)
                continue;
            bool visible = key_of(e) >= low && key_of(e) < high;
            if constexpr (SPECIAL)
                visible =
                    visible && in_mask(p, w, query_token(p, w, share_row() + row), own + key_of(e));
            if (!visible)
                x[e] = -INFINITE;
        }
    }
}

/* Products to logits, in powers of two. */
template <int W> void bend(const params &p, const shared_memory &s, float (&x)[KEYS / 2]) {
    const float scale[2] = {s.scale[W][row_of(0)], s.scale[W][row_of(1)]};
#pragma unroll
    for (int e = 0; e < KEYS / 2; e++) {
        x[e] *= scale[e / 2 % 2];
        if constexpr (CAPPED)
            x[e] = tanh_exact(x[e]) * ((float)p.soft_cap * LOG2E);
    }
}

/* Logits of a tile that lies there, in x. */
template <int W>
void finish_logits(const params &p, const work &w, const shared_memory &s, int32_t tile,
                   float (&x)[KEYS / 2]) {
    const int32_t first = tile * KEYS;
    const int32_t(&open)[2] = s.open[W][threadIdx.x % 128 / 32];
    bend<W>(p, s, x);
    if (SPECIAL || first < open[0] || first + KEYS > open[1])
        mask<W>(p, w, s, first, x);
}

/* Products of a tile, as its blocks of columns come. The values added before are there first; if
 * there were any, `freed`, half of a tile for which the loader waits, is given back. */
template <int W>
void ask_logits(const work &w, int32_t tile, bool is_end, shared_memory &s, const course &c,
                bool adding, barrier &freed, float (&x)[KEYS / 2], float (&o)[OWN / 2]) {
    wgmma_wait<0>(o);
    if (adding)
        leave(freed);
    const uint32_t q = uniform_half(row_descriptor(shared_address(s.q)));
    const uint32_t k = uniform_half(row_descriptor(shared_address(s.k[W])));
    const uint32_t tail = uniform_half(row_descriptor(shared_address(s.tail[W])));
    if (!GATHER && is_end) {
#pragma unroll
        for (int i = 0; i < FULLS; i++)
            wait_full(s.full[W][i], c.of(W));
        clear_tail<W>(s, w.kv_end - tile * KEYS);
    }
#pragma unroll
    for (int i = 0; i < FULLS; i++) {
        wait_full(s.full[W][i], c.of(W));
        wgmma_fence(); /* so the compiler wants it behind a loop */
        multiply_part<W>(i, x, q, k, tail);
    }
    wgmma_commit();
    wgmma_wait<0>(x);
}

/* Ends a pair, if there was one, with which no other begins. */
template <int W> void end_pair(shared_memory &s, bool adding, float (&o)[OWN / 2]) {
    wgmma_wait<0>(o);
    if (adding)
        leave(s.empty[1][1 - W]);
}

/* Asks for the values of the other warpgroup's tile to be added. */
template <int W>
void add_other_tile(shared_memory &s, course &c, rows_state &r, float (&o)[OWN / 2]) {
    float base[2];
    named_sync(WEIGHTS + 1 - W, THREADS);
    read_base<W>(s, base);
    change_base(r, base, o);
    wait_full(s.full[1 - W][LAST_VALUES], c.of(1 - W));
    const uint32_t v = values_of(s, W, 1 - W);
    const uint32_t weights = uniform_half(row_descriptor(shared_address(s.tail[1 - W])));
    wgmma_fence();
    add_other(o, weights, v);
    wgmma_commit();
    c.turn(1 - W);
}

/* What warpgroup W does for a pair of tiles, the first of which is `tile`: the weights of its own,
 * and its half of the values of tile 0, then of tile 1. The values added last are given back by the
 * next pair. */
template <int W, bool TWO>
void run_pair(const params &p, const work &w, const tiles &t, int32_t tile, shared_memory &s,
              course &c, rows_state &r, float (&o)[OWN / 2]) {
    constexpr bool HAS_OWN = TWO || W == 0, HAS_OTHER = TWO || W == 1;
    float x[KEYS / 2], base[2], sum[2];
    uint32_t weights[KEYS / 4];
    const bool adding = tile > t.first;
    if constexpr (HAS_OWN)
        ask_logits<W>(w, tile + W, tile + W == t.last, s, c, adding, s.empty[1][1 - W], x, o);
    else
        end_pair<W>(s, adding, o);
    if (tile + 1 >= t.last)
        leave(s.empty_q);
    if constexpr (HAS_OTHER && W == 1)
        add_other_tile<W>(s, c, r, o);
    if constexpr (HAS_OWN) {
        finish_logits<W>(p, w, s, tile + W, x);
        soften<W>(s, r, x, base, sum, weights);
        named_arrive(WEIGHTS + W, THREADS);
    }
    if constexpr (HAS_OTHER && W == 1) {
        wgmma_wait<0>(o);
        leave(s.empty[0][1]);
    }
    if constexpr (HAS_OWN) {
        add_own_tile<W>(s, r, base, sum, weights, o);
        c.turn(W);
    }
    if constexpr (W == 0) {
        wgmma_wait<0>(o);
        pin(weights);
        leave(s.empty[0][0]);
        if constexpr (HAS_OTHER)
            add_other_tile<W>(s, c, r, o);
    }
}

template <int W>
void run_item(const params &p, const work &w, const tiles &t, shared_memory &s, course &c,
              rows_state &r, float (&o)[OWN / 2]) {
    int32_t tile = t.first;
#pragma unroll 1
    for (; tile < t.last; tile += 2)
        run_pair<W, true>(p, w, t, tile, s, c, r, o);
    if (tile == t.last)
        run_pair<W, false>(p, w, t, tile, s, c, r, o);
    else
        end_pair<W>(s, true, o);
}

/* ---- the end of an item ------------------------------------------------------------------------
 */

/* The sums of weights of both warpgroups; they are at the same bases. */
template <int W> void join_sums(shared_memory &s, const rows_state &r, float (&l)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        l[i] = lanes_sum<4>(r.l[i]);
        if (threadIdx.x % 4 == 0)
            s.sum[W][row_of(i)] = l[i];
    }
    named_sync(BOTH, THREADS);
#pragma unroll
    for (int i = 0; i < 2; i++)
        l[i] = s.sum[0][row_of(i)] + s.sum[1][row_of(i)];
}

template <int W>
void write_item(const params &p, const work &w, const rows_state &r, const float (&o)[OWN / 2],
                shared_memory &s) {
    const int32_t end = share_end(p, w);
    float l[2];
    join_sums<W>(s, r, l);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = share_row() + row_of(i);
        const bool is = row < end, first = is && W == 0 && threadIdx.x % 4 == 0;
        if (w.slot < 0) {
            const place to = finish(p, w, is ? row : end - 1, r.m[i], l[i], first);
            write_row(to.out + W * OWN, i, is, to.factor, o);
        } else if (is) {
            const int64_t at = slot_row_of(p, w.slot, row);
            if (first)
                put_slot_ml(p, at, r.m[i], l[i]);
#pragma unroll
            for (int j = 0; j < OWN / 8; j++)
                put_slot(p, at, W * OWN + j * 8 + (int)threadIdx.x % 4 * 2, o[4 * j + 2 * i],
                         o[4 * j + 2 * i + 1]);
        }
    }
    named_sync(BOTH, THREADS); /* before the sums are written again */
}

template <int W> void compute(const params &p, shared_memory &s) {
    course c = {};
#pragma unroll 1
    for (int32_t k = 0; k < work_count(p); k++) {
        const work &w = work_of(p, k);
        const tiles t = tiles_of(w);
        if (share_end(p, w) <= share_row())
            continue;
        rows_state r;
        float o[OWN / 2];
        begin_rows<W>(p, w, s, r);
#pragma unroll
        for (int i = 0; i < OWN / 2; i++)
            o[i] = 0;
        if (t.first <= t.last) {
            barrier_wait(s.full_q, c.of(2));
            c.turn(2);
            run_item<W>(p, w, t, s, c, r, o);
        }
        write_item<W>(p, w, r, o, s);
    }
}

extern "C" __global__ void __launch_bounds__(BOLIDE__SM90_THREADS, 1)
    bolide_attention_latent_sm90(const __grid_constant__ bolide__attention_latent90_params a) {
    shared_memory &s = *reinterpret_cast<shared_memory *>(dynamic);
    if (threadIdx.x == 0) {
        prefetch_map(a.q);
        prefetch_map(a.ckv);
        barrier_init(s.full_q, 1);
        barrier_init(s.empty_q, 8);
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < FULLS; j++)
                barrier_init(s.full[i][j], FULL_ARRIVALS);
            for (int j = 0; j < 2; j++)
                barrier_init(s.empty[i][j], 4);
        }
        fence_barrier_init();
    }
    /* Neither read nor waited for, so that it does no harm if it is not written yet. */
    if (threadIdx.x == 32)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.p.heads + blockIdx.x));
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();
    const int group = (int)threadIdx.x / 128;
    if (group == 2) {
        give_registers<56>();
        if ((int)threadIdx.x / 32 % 4 < LOADERS)
            load_all(a, s);
    } else if (group == 0) {
        take_registers<224>();
        compute<0>(a.p, s);
    } else {
        take_registers<224>();
        compute<1>(a.p, s);
    }
}
