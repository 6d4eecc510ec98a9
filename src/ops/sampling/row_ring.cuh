// SPDX-License-Identifier: Apache-2.0
//
// The vectors of a warp's stretch on their way through shared memory. Loads into registers are
// waited for where they are used, all of them by the same counter, so that a warp either waits or
// computes; copies into shared memory have groups of their own, and the next ones are under way
// while these are worked on. Each thread reads what it has asked for itself: there is nothing to
// wait for but its own copies.

#ifndef BOLIDE_OPS_SAMPLING_ROW_RING_CUH
#define BOLIDE_OPS_SAMPLING_ROW_RING_CUH

#include "cuda/device/mma.cuh"
#include "ops/sampling/row_view.cuh"

/* SLOTS batches of N vectors a thread. */
template <int SLOTS, int N> struct row_ring {
    static constexpr int BATCH = N, VECTORS = SLOTS * N * THREADS;
    raw_t *own; /* the first place of this thread; they are THREADS apart */
    int slot;   /* of the next batch */

    __forceinline__ void open(raw_t *memory) {
        own = memory + threadIdx.x;
        slot = 0;
    }

    __forceinline__ static void copy(raw_t *to, const input_t *from) {
        if constexpr (sizeof(raw_t) == 16)
            copy_16(to, from, 16);
        else
            copy_8(to, from, 8);
    }

    /* Asks for the batch from vector `begin` on, if there is one, into a slot that has been read.
     */
    __forceinline__ void ask(const row_view &r, int begin, int to_slot, bool aligned = true) const {
        const int lane = lane_of_warp(), last = begin + 32 * N;
        raw_t *to = own + to_slot * N * THREADS;
        if (begin < r.first || begin >= r.last) {
        } else if (aligned && 4 * begin >= r.lead && last <= r.last && 4 * last <= r.end) {
#pragma unroll
            for (int n = 0; n < N; n++)
                copy(to + n * THREADS, r.base + 4 * (int64_t)(begin + 32 * n + lane));
        } else {
#pragma unroll 1
            for (int n = 0; n < N; n++) {
                const int j = begin + 32 * n + lane;
                raw_t raw;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    raw.at[i] = from_float<input_t>(NONE);
                if (j < r.last)
                    raw = aligned ? read_raw(r, r.base, j) : read_unaligned(r, r.base, j);
                to[n * THREADS] = raw;
            }
        }
        commit_copies();
    }

    /* The first batches. */
    __forceinline__ void fill(const row_view &r, bool aligned = true) const {
#pragma unroll 1
        for (int i = 0; i < SLOTS; i++)
            ask(r, r.first + 32 * N * i, i, aligned);
    }

    /* The last ones, of which that from `begin` on is the very last. */
    __forceinline__ void fill_back(const row_view &r, int begin) const {
#pragma unroll 1
        for (int i = 0; i < SLOTS; i++)
            ask(r, begin - 32 * N * i, (slot + SLOTS - i) % SLOTS);
    }

    /* The next batch, once it has come. */
    __forceinline__ void take(raw_t (&raw)[N]) const {
        wait_copies<SLOTS - 1>();
#pragma unroll
        for (int n = 0; n < N; n++)
            raw[n] = own[(slot * N + n) * THREADS];
    }

    /* To take the last batches again, backwards: the row has so many, and they are still here. */
    __forceinline__ void reopen(int batches) {
        slot = (batches - 1) % SLOTS;
    }

    /* Once the batch from `begin` on is in registers: asks for what will be in its place. */
    template <int STEP = 1>
    __forceinline__ void next(const row_view &r, int begin, bool aligned = true) {
        ask(r, begin + STEP * 32 * N * SLOTS, slot, aligned);
        if constexpr (STEP > 0)
            slot = slot + 1 == SLOTS ? 0 : slot + 1;
        else
            slot = slot == 0 ? SLOTS - 1 : slot - 1;
    }
};

/* Passes all vectors of this warp to f(x, j), the last ones first, of which the ring still has what
 * came last if it `holds`. */
template <bool ABOVE, class R, class F>
__forceinline__ void walk_back(const row_view &row, raw_t *memory, bool holds, R ring, F f) {
    constexpr int N = R::BATCH;
    constexpr int BATCH = 32 * N;
    const row_view r = here(row);
    const int batches = (r.last - r.first + BATCH - 1) / BATCH;
    int begin = r.first + BATCH * (batches - 1);
    ring.open(memory);
    ring.reopen(batches);
    if (!holds)
        ring.fill_back(r, begin);
#pragma unroll 1
    for (int i = 0; i < batches; i++, begin -= BATCH) {
        batch<N> now;
        float x[N][4];
        ring.take(now.raw);
#pragma unroll
        for (int n = 0; n < N; n++)
            now.template unpack<ABOVE>(r, n, x[n]);
        ring.template next<-1>(r, begin);
#pragma unroll
        for (int n = 0; n < N; n++)
            f(x[n], begin + 32 * n + lane_of_warp());
    }
}

#endif
