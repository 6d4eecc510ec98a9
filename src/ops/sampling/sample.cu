// SPDX-License-Identifier: Apache-2.0
//
// One sample a row from probabilities or logits under a filter (sampling_internal.h has the
// definition). The blocks of a cluster hold the row (row_view.cuh), so memory is read once; that
// traffic is the limit for many rows, and the barriers of a cluster for one.

#include "ops/sampling/row_draw.cuh"
#include "ops/sampling/row_select.cuh"

#if !defined(SPEC_SELECT)
#error "SELECT: 1 for filters by count and by mass, 0 for none and min-p"
#endif
constexpr bool SELECT = SPEC_SELECT;
static_assert(PROBS || (LOGITS && SELECT), "logits come with filters by count and by mass");

using params = bolide__sample_params;

struct context {
    row_view row;
    exchange board;
    select_room *room;
    select_state *state;
    row_stats stats;
};

__forceinline__ void put_sample(const params &p, int64_t out, int64_t id, bool valid) {
    put_id(p.samples, p.id_dtype, out, id);
    if (p.valid)
        p.valid[out] = valid;
}

/* The least probability that top-k and top-p keep. */
__forceinline__ float least_prob(context &c, const params &p, int64_t k, float top_p, mass_unit u) {
    float least = LEAST_PROB;
    row_stats s = c.stats;
    double mass = power_of_two(42 - u.exponent);
    const bool counted = k > 0 && k < p.v;
    if (counted) {
        least = select<false>(c.row, c.board, c.room, c.state, s, u, (uint64_t)k, least, false);
        if (!(top_p < 1.0f))
            return least;
        const uint64_t kept = add_up(c.board, sum_row(c.row, least, u)).total;
        if (p.filter == BOLIDE__FILTER_FIRST)
            mass = (double)kept;
        if (share_of(top_p, mass) > kept)
            return least;
        s.total = (float)((double)kept * power_of_two(u.exponent - 42));
    }
    if (!(top_p < 1.0f))
        return least;
    return select<true>(c.row, c.board, c.room, c.state, s, u, share_of(top_p, mass), least,
                        counted && k <= FEW_KEPT);
}

/* Makes masses of the logits that top-k keeps, and gives the least that top-p keeps of them. */
__forceinline__ float least_logit(context &c, const params &p, int64_t k, float top_p,
                                  mass_unit u) {
    float least = -INFINITE;
    const bool counted = k > 0 && k < p.v;
    if (counted)
        least = select<false>(c.row, c.board, c.room, c.state, c.stats, u, (uint64_t)k, -LARGEST,
                              false);
    uint64_t kept, all;
    weigh_row(c.row, c.stats.max, 1.0f, least, u, kept, all);
    if (!(top_p < 1.0f))
        return LEAST_PROB;
    const place sum = add_up(c.board, kept);
    const uint64_t every =
        p.filter == BOLIDE__FILTER_JOINT ? add_up(c.board, all).total : sum.total;
    const uint64_t want = share_of(top_p, (double)every);
    if (want > sum.total)
        return LEAST_PROB;
    const row_stats s = {1.0f, (float)((double)sum.total * power_of_two(u.exponent - 42)), 0.0f};
    return select<true>(c.row, c.board, c.room, c.state, s, u, want, LEAST_PROB,
                        counted && k <= FEW_KEPT);
}

__forceinline__ float least_kept(context &c, const params &p, int64_t out, float top_p,
                                 mass_unit u) {
    if constexpr (LOGITS)
        return least_logit(c, p, row_int(p.top_k, out), top_p, u);
    else if constexpr (SELECT)
        return least_prob(c, p, row_int(p.top_k, out), top_p, u);
    else if (p.filter == BOLIDE__FILTER_MIN_P)
        return fmaxf(top_p > 0.0f ? fminf(top_p, 1.0f) * c.stats.max : 0.0f, LEAST_PROB);
    else
        return LEAST_PROB;
}

/* Draws for output row `out`; the cluster acts as one. */
__forceinline__ void sample(context &c, const params &p, int64_t out) {
    const int64_t from = p.indices ? id_at(p.indices, p.indices_dtype, out) : out;
    const bool first = cluster_rank<CLUSTER>() == 0 && threadIdx.x == 0;
    if (from < 0 || from >= p.n) {
        if (first)
            put_sample(p, out, 0, false);
        return;
    }
    const int64_t k = SELECT ? row_int(p.top_k, out) : 0;
    c.row = open_row(static_cast<const input_t *>(p.input) + from * p.input_n, nullptr, p.v,
                     c.row.cache);
    c.stats = read_row(c.row, c.board, k > 16 * PARTS);
    if (c.stats.max == NONE) {
        if (first)
            put_sample(p, out, 0, false);
        return;
    }
    const float top_p = p.filter == BOLIDE__FILTER_NONE ? 1.0f : row_float(p.top_p, out);
    if (SELECT && top_p <= 0.0f) {
        const int id = first_of_row(c.row, c.board, c.stats.max);
        if (first)
            put_sample(p, out, id, true);
        return;
    }
    const mass_unit u = unit_of(LOGITS ? 1.0f : c.stats.max, (int)p.v);
    const float least = least_kept(c, p, out, top_p, u);
    const bool drawn =
        draw(c.row, c.board, least, u, sum_row(c.row, least, u),
             uniform53(p.seed, p.offset, out, 0), [&](int id) { put_sample(p, out, id, true); });
    if (!drawn && first)
        put_sample(p, out, 0, false);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    bolide_sample(const __grid_constant__ params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ boards shown;
    __shared__ select_state state;
    context c = {};
    c.room = reinterpret_cast<select_room *>(memory);
    c.row.cache = reinterpret_cast<float *>(memory + (SELECT ? sizeof(select_room) : 0));
    c.state = &state;
    c.board.open(&shown);
    sample(c, p, blockIdx.x / CLUSTER);
    c.board.close();
}
