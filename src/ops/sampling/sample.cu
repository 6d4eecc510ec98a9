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

/* What a draw needs: the least value that is kept, and the sums of what is kept. */
struct drawing {
    float least;
    place sums;
    uint64_t own;
};

__forceinline__ void put_sample(const params &p, int64_t out, int64_t id, bool valid) {
    put_id(p.samples, p.id_dtype, out, id);
    if (p.valid)
        p.valid[out] = valid;
}

__forceinline__ drawing sum_up(context &c, float least, mass_unit u, bool listed) {
    uint64_t own;
    if (SELECT && listed) {
        const place sums = tally_listed(c.room, c.state, 1, own,
                                        [&](float x) { return x >= least ? mass_of(x, u) : 0; });
        return {least, sums, own};
    }
    own = sum_row(c.row, least, u);
    return {least, add_up(c.board, own), own};
}

/* Top-k and top-p. After top-k the probabilities that it keeps are listed as a rule, and the rest
 * is a matter of them alone. */
__forceinline__ drawing filter_row(context &c, const params &p, int k, float top_p, mass_unit u) {
    const bool counted = k > 0, joint = p.filter == BOLIDE__FILTER_JOINT;
    float least = LOGITS ? -INFINITE : LEAST_PROB;
    double mass = power_of_two(42 - u.exponent); /* of a whole row of probabilities */
    bool listed = false, summed = false, more = top_p < 1.0f;
    row_stats s = c.stats;
    drawing d = {};
    uint64_t above;
    if (counted) {
        least = select<false>(c.row, c.room, c.state, s, u, (uint64_t)k,
                              LOGITS ? -LARGEST : LEAST_PROB, false, listed, above);
        listed = PROBS && listed && above == 0;
    }
    if constexpr (LOGITS) {
        uint64_t own, all;
        weigh_row(c.row, c.stats.max, 1.0f, least, u, own, all);
        d = {LEAST_PROB, add_up(c.board, own), own};
        mass = (double)(joint && more ? add_up(c.board, all).total : d.sums.total);
        summed = true;
        least = LEAST_PROB;
        s = {1.0f, 0.0f, 0.0f};
    }
    for (bool ready = counted || LOGITS;; ready = true) {
        if (ready || !more) {
            if (!summed)
                d = sum_up(c, least, u, listed);
            if (!more)
                return d;
            if (counted && !joint)
                mass = (double)d.sums.total;
            if (share_of(top_p, mass) > d.sums.total)
                return d;
            s.total = (float)((double)d.sums.total * power_of_two(u.exponent - 42));
        }
        more = summed = false;
        const uint64_t want = share_of(top_p, mass);
        if (listed) {
            uint32_t key;
            if (find_listed<true>(c.room, c.state, least, s.max, 0, want, u, key))
                least = value_of(key);
        } else {
            least = select<true>(c.row, c.room, c.state, s, u, want, least,
                                 counted && k <= FEW_KEPT, listed, above);
        }
    }
}

/* Without a filter: masses in steps that suit a row whose largest is near 1 are added up as the row
 * is read; only another row is read twice. */
__forceinline__ drawing stream_row(context &c, const params &p, mass_unit &u) {
    mass_sum sum;
    float max = 0.0f;
    u = unit_of(1.0f, (int)p.v);
    walk_memory<4, true>(c.row, [&](const float(&x)[4], int) {
        sum.add4(x, u);
        max = fmaxf(max, fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])));
    });
    sum.carry();
    const uint64_t own = warp_total(sum.total);
    const joined j =
        c.board.meet({own, float_bits(lanes_max<32>(max))}, {0, 0}, [](two_words x, two_words y) {
            return two_words{x.a + y.a, larger(x.b, y.b)};
        });
    c.stats.max = lower(j.all.b);
    if (c.stats.max < 2.0f && c.stats.max >= 0x1p-20f)
        return {LEAST_PROB, {j.before.a, j.all.a}, own};
    u = unit_of(c.stats.max, (int)p.v);
    return sum_up(c, LEAST_PROB, u, false);
}

/* Draws for output row `out`; the cluster acts as one. */
__forceinline__ void sample(context &c, const params &p, int64_t out) {
    const int64_t from = p.indices ? id_at(p.indices, p.indices_dtype, out) : out;
    const bool first = cluster_rank<CLUSTER>() == 0 && threadIdx.x == 0;
    const bool stream = !SELECT && !CACHED && p.filter == BOLIDE__FILTER_NONE;
    /* 0: no limit. */
    const int64_t top_k = SELECT ? row_int(p.top_k, out) : 0;
    const int k = top_k > 0 && top_k < p.v ? (int)top_k : 0;
    const bool outside = from < 0 || from >= p.n;
    const float top_p = p.filter == BOLIDE__FILTER_NONE ? 1.0f : row_float(p.top_p, out);
    drawing d = {};
    mass_unit u = {};
    c.row = open_row(static_cast<const input_t *>(p.input) + (outside ? 0 : from * p.input_n),
                     nullptr, outside ? 0 : p.v, c.row.cache);
    if (stream)
        d = stream_row(c, p, u);
    else
        c.stats = read_row(c.row, c.board, k > 16 * PARTS);
    if (c.stats.max == NONE) {
        if (first)
            put_sample(p, out, 0, false);
        return;
    }
    if (SELECT && top_p <= 0.0f) {
        const int id = first_of_row(c.row, c.board, c.stats.max);
        if (first)
            put_sample(p, out, id, true);
        return;
    }
    if (!stream) {
        u = unit_of(LOGITS ? 1.0f : c.stats.max, (int)p.v);
        if constexpr (SELECT) {
            d = filter_row(c, p, k, top_p, u);
        } else {
            const float share = p.filter == BOLIDE__FILTER_MIN_P && top_p > 0.0f ? top_p : 0.0f;
            d = sum_up(c, fmaxf(fminf(share, 1.0f) * c.stats.max, LEAST_PROB), u, false);
        }
    }
    draw(c.row, d.sums, d.least, u, d.own, uniform53(p.seed, p.offset, out, 0),
         [&](int id) { put_sample(p, out, id, true); });
}

extern "C" __global__ void __launch_bounds__(THREADS, CLUSTER > 1 && CLUSTER < 16 ? 2 : 1)
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
    c.board.wait();
}
