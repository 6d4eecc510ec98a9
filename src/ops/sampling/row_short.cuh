// SPDX-License-Identifier: Apache-2.0
//
// A draw under top-k of few, for a row over the most blocks there may be: the first block draws
// from a list (row_list.cuh), and the others only learn that it does. Nothing is read again.

#ifndef BOLIDE_OPS_SAMPLING_ROW_SHORT_CUH
#define BOLIDE_OPS_SAMPLING_ROW_SHORT_CUH

#include "ops/sampling/row_list.cuh"
#include "ops/sampling/row_select.cuh"

struct short_state {
    list_room list;
    barrier verdict_come;
    uint64_t verdict; /* 1 from the first block: it draws */
};

/* Ahead of the first barrier of the cluster. */
__forceinline__ void open_short(short_state *s) {
    if (threadIdx.x == 0) {
        open_list(&s->list);
        barrier_init(s->verdict_come, 1);
        fence_barrier_init();
        barrier_expect(s->verdict_come, sizeof s->verdict);
    }
    __syncthreads();
}

/* Draws as f says, or gives false: then the row is for others. Every block of the cluster calls. */
template <class R, class U, class F>
__forceinline__ bool draw_short(const row_view &r, exchange &e, R *room, select_state *state,
                                short_state *s, const list_filter &f, U uniform, F done) {
    goal q = {};
    q.want = (uint64_t)f.k;
    q.floor = LOGITS ? -LARGEST : LEAST_PROB;
    q.counted = true;
    batch<LOOK> look;
    const span range = guess_largest(r, e, room, state, q, look);
    list_sender sender = {&s->list, 0, 0};
#pragma unroll
    for (int n = 0; n < LOOK; n++) {
        float x[4];
        look.template unpack<true>(r, n, x);
        sender.send(x, range.low, 4 * (r.first + 32 * n + lane_of_warp()) - r.lead);
    }
    sender.close();
    bool drawn = false;
    if (cluster_rank<CLUSTER>() == 0) {
        const uint64_t number = uniform();
        const int count = take_list(&s->list, 0);
        drawn = count > 0;
        if (threadIdx.x < CLUSTER)
            send_peer(&s->verdict, (int)threadIdx.x, (uint64_t)drawn, s->verdict_come);
        if (drawn)
            draw_list(&s->list, count, r.end - r.lead, f, number, done);
    }
    wait_peers(s->verdict_come, 0);
    return s->verdict != 0;
}

#endif
