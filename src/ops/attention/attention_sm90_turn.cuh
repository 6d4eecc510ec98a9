// SPDX-License-Identifier: Apache-2.0
//
// The order of a warpgroup that computes, for attention_sm90.cu and attention_sm90_fp8.cu: what it
// waits for, what it leaves, and the turn in which it asks for a tile's products. Included by these
// files only, behind their constants, their shared memory and their products.

#ifndef BOLIDE_OPS_ATTENTION_SM90_TURN_CUH
#define BOLIDE_OPS_ATTENTION_SM90_TURN_CUH

void leave(barrier &b) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(b);
}

/* What a warpgroup carries from tile to tile. */
struct stream {
    int group;
    ring_place<STAGES> k;
    ring_place<V_STAGES> v;
    ring_place<Q_STAGES> q;
    ring_place<SLOTS> items;
    int tail;      /* keys of the tile whose values come next, if it is the last of its item */
    bool is_there; /* both sides of the next turn, as far as is known */
};

/* An item's tiles, as numbers that the compiler knows to be the same in all lanes. */
struct tiles {
    int32_t head, first, last;
};

tiles await_item(shared_memory &s, ring_place<SLOTS> at) {
    barrier_wait(s.full_item[at.stage], at.phase);
    const item &it = s.items[at.stage];
    if constexpr (PLACED)
        return {of_warp(it.head), 0, of_warp(it.seen) - 1};
    return {of_warp(it.head), of_warp(it.first), of_warp(it.last)};
}

/* The one that is worked on. */
const item &own_item(const shared_memory &s, const stream &c) {
    return s.items[c.items.stage];
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

/* Waits for the queries of an item, or copies them. */
void begin_queries(const params &a, shared_memory &s, stream &c, const item &it) {
    if constexpr (Q_BOX)
        barrier_wait(s.full_q[c.q.stage][c.group], c.q.phase);
    else
        load_own_queries(a.p, it, s.q[c.q.stage], c.group);
}

/* The barrier on which a warp gives keys back, for the lane that arrives; 0 for the others. Found
 * ahead of a turn, nothing of it lies between the turn and the first product. */
uint32_t own_freed(shared_memory &s, const stream &c) {
    return threadIdx.x % 32 == 0 ? shared_address(&s.empty_k[c.k.stage]) : 0;
}

/* The products of a tile are there: its keys may be overwritten, and behind an item's last Q. */
void leave_keys(shared_memory &s, stream &c, bool is_last, uint32_t freed) {
    if constexpr (FOUND_AHEAD) {
        __syncwarp();
        barrier_arrive_if(freed);
    } else {
        leave(s.empty_k[c.k.stage]);
    }
    c.k.advance();
    if (is_last) {
        leave(s.empty_q[c.q.stage][c.group]);
        c.q.advance();
    }
}

void leave_values(shared_memory &s, stream &c) {
    leave(empty_values(s)[c.v.stage]);
    c.v.advance();
}

/* What single threads have copied is not yet seen by wgmma, which reads through another path: the
 * fence lets it. */
void see_copied() {
    if constexpr (GATHER)
        fence_async_shared();
}

/* Waits for both sides of a turn, unless they were seen to be there. */
void await_tiles(shared_memory &s, stream &c) {
    if (!c.is_there) {
        barrier_wait(s.full_k[c.k.stage], c.k.phase);
        barrier_wait(full_values(s)[c.v.stage], c.v.phase);
    }
    see_copied();
}

/* Looks ahead whether both sides of the next turn are there. */
void look_ahead(shared_memory &s, stream &c) {
    c.is_there = barrier_was_over(s.full_k[c.k.stage], c.k.phase) &
                 barrier_was_over(full_values(s)[c.v.stage], c.v.phase);
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

/* Behind the products of a tile of keys, from key `first` on: gives the keys back and masks. Where
 * keys stand is told by the stage. */
void finish_logits(const params &a, shared_memory &s, stream &c, int first, bool is_last,
                   const rows_state &r, float (&x)[KEYS / 2], bool half, uint32_t freed) {
    if constexpr (PLACED)
        prepare(a.p, r, s.columns[c.k.stage], x);
    leave_keys(s, c, is_last, freed);
    if constexpr (!PLACED) {
        if (HALVES && half)
            prepare<KEYS / 4>(a.p, r, first, x);
        else
            prepare<KEYS / 2>(a.p, r, first, x);
    }
}

/* The first tile of a stream of items: no values wait to be added. */
void begin_stream(const params &a, shared_memory &s, stream &c, const tiles &t, rows_state &r,
                  float (&x)[KEYS / 2], uint32_t (&weights)[WORDS]) {
    begin_rows(a, own_item(s, c), c.group, r);
    begin_queries(a, s, c, own_item(s, c));
    barrier_wait(s.full_k[c.k.stage], c.k.phase);
    see_copied();
    const uint32_t q = own_queries(s, c), k = own_keys(s, c);
    wgmma_fence();
    multiply_keys(x, q, k);
    wgmma_commit();
    wgmma_wait<0>(x);
    const bool half = sees_half(a.p, own_item(s, c), c.group);
    finish_logits(a, s, c, t.last * KEYS, t.first == t.last, r, x, half, own_freed(s, c));
    soften_first(r, x, weights, half);
    c.tail = own_item(s, c).tail;
    look_ahead(s, c);
}

/* Asks for the products of a tile of keys, the last of its item or not, and has the values of the
 * tile before added meanwhile; comes back with the logits of the former in x, from key `first` on.
 * All that products wait for is there before the first is asked for: a warpgroup whose turn it is
 * keeps the tensor cores busy. The registers of weights are free behind the wait for the values. */
void turn(const params &a, shared_memory &s, stream &c, int first, bool is_last,
          const rows_state &r, float (&x)[KEYS / 2], float (&sums)[DV / 2],
          uint32_t (&weights)[WORDS], bool half = false) {
    constexpr int PASS = HAND < 0 ? 0 : smaller(HAND, V_STEPS);
    const uint32_t v = own_values(s, c.v.stage), q = own_queries(s, c), k = own_keys(s, c);
    uint32_t freed = own_freed(s, c);
    if constexpr (FOUND_AHEAD)
        asm volatile("" : "+r"(freed));
    await_tiles(s, c);
    if (c.tail < KEYS)
        clear_tail(s, c.v.stage, c.tail, c.group);
    c.tail = KEYS;
    take_turn(c);
    wgmma_fence();
    multiply_keys(x, q, k);
    wgmma_commit();
    add_values<0, PASS>(sums, weights, v);
    pass_turn(c);
    add_values<PASS, V_STEPS>(sums, weights, v);
    wgmma_commit();
    wgmma_wait<1>(x);
    finish_logits(a, s, c, first, is_last, r, x, half, freed);
    wgmma_wait<0>(sums);
    pin(weights);
    leave_values(s, c);
    look_ahead(s, c);
}

/* The values of a stream's last tile. */
void add_last_values(shared_memory &s, stream &c, float (&sums)[DV / 2],
                     const uint32_t (&weights)[WORDS]) {
    const uint32_t v = own_values(s, c.v.stage);
    barrier_wait(full_values(s)[c.v.stage], c.v.phase);
    see_copied();
    if (c.tail < KEYS)
        clear_tail(s, c.v.stage, c.tail, c.group);
    wgmma_fence();
    add_values<0, V_STEPS>(sums, weights, v);
    wgmma_commit();
    wgmma_wait<0>(sums);
    leave_values(s, c);
}

void clear_sums(float (&o)[DV / 2]) {
#pragma unroll
    for (int i = 0; i < DV / 2; i++)
        o[i] = 0;
}

/* ---- the kernel's beginning --------------------------------------------------------------------
 */

/* Barriers that both kernels have. VALUE_ARRIVALS: of those who read V as it was copied. */
void begin_barriers(shared_memory &s, int full_arrivals, int value_arrivals, int item_arrivals) {
    for (int i = 0; i < Q_STAGES; i++) {
        for (int group = 0; group < GROUPS; group++) {
            barrier_init(s.full_q[i][group], 1);
            barrier_init(s.empty_q[i][group], 4);
        }
    }
    for (int i = 0; i < STAGES; i++) {
        barrier_init(s.full_k[i], full_arrivals);
        barrier_init(s.full_v[i], full_arrivals);
        barrier_init(s.empty_k[i], WARPS);
        barrier_init(s.empty_v[i], value_arrivals);
    }
    for (int i = 0; i < SLOTS; i++) {
        barrier_init(s.full_item[i], 1);
        barrier_init(s.empty_item[i], WARPS + item_arrivals);
    }
}

#endif
