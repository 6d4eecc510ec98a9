// SPDX-License-Identifier: Apache-2.0
//
// One sample a row from probabilities or logits under a filter (sampling_internal.h has the
// definition). Memory is read once as a rule: that traffic is the limit for many rows, and the
// barriers of a cluster for one.

#include "ops/sampling/row_draw.cuh"
#include "ops/sampling/row_select.cuh"
#include "ops/sampling/row_short.cuh"

#if !defined(SPEC_FILTERS)
#error "FILTERS: sum of 1 for top-k, 2 for top-p, 4 for min-p"
#endif
constexpr bool TOP_K = SPEC_FILTERS & 1, TOP_P = SPEC_FILTERS & 2, MIN_P = SPEC_FILTERS & 4;
constexpr bool SELECT = TOP_K || TOP_P || MIN_P;
/* Of one row what top-k keeps may be listed in one block. */
constexpr bool SHORT = LONE && TOP_K;
static_assert(!CACHED && (PROBS || (LOGITS && SELECT)), "logits come with a filter");

using params = bolide__sample_params;

/* Numbers of a row that wait in shared memory while others need the registers. */
struct filters {
    uint64_t mass; /* what top-p is a share of */
    mass_unit unit;
    float top_p;
    int k; /* 0: no limit */
};

struct context {
    weighing *weights; /* of what is kept, and of all */
    filters *saved;
    row_view row;
    exchange board;
    select_room *room;
    select_state *state;
    short_state *list;
    gathered found;
    bool again; /* the memory has been used */
};

/* What a draw needs: the least value that is kept, and the sums of what is kept. */
struct drawing {
    float least;
    place sums;
    uint64_t own;
};

/* A sample is written by one thread of the cluster. */
__forceinline__ void put_alone(const params &p, int64_t out, int64_t id, bool valid) {
    if (blockIdx.x % CLUSTER == 0 && threadIdx.x == 0)
        put_sample(p, out, id, valid);
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

/* From now on logits are read as masses. */
__forceinline__ void weigh(context &c, float keep) {
    __syncthreads();
    if (threadIdx.x == 0) {
        c.weights[0] = {keep, c.found.max, 1.0f};
        c.weights[1] = {-INFINITE, c.found.max, 1.0f};
    }
    __syncthreads();
    c.row.weights = c.weights;
    c.row.weighed = true;
}

/* The same, and those that are listed are masses. */
__forceinline__ void weigh_all(context &c, float keep, bool listed) {
    weigh(c, keep);
    if (listed)
        each_listed(c.room, c.state, [&](float &x, int) { x = weight_of(c.weights[0], x); });
    __syncthreads();
}

/* The mass of the row, whatever is kept. */
__forceinline__ uint64_t whole_mass(context &c, mass_unit u) {
    row_view all = c.row;
    all.weights = &c.weights[1];
    return add_up(c.board, sum_row(all, 0.0f, u)).total;
}

/* Keeps f and the next goal for all threads; one of them writes. */
__forceinline__ void save(context &c, const filters &f, const goal &q) {
    __syncthreads();
    if (threadIdx.x == 0) {
        c.state->next = q;
        *c.saved = f;
    }
    __syncthreads();
}

/* How a row begins: with top-k if there is one. top-p is a share of a whole row of probabilities,
 * or of the sum of a row of logits. */
__forceinline__ void first_filter(context &c, const params &p, int k, float top_p) {
    filters f = {};
    goal q = {};
    f.k = k;
    f.top_p = top_p;
    f.unit = unit_of(1.0f, (int)p.v);
    f.mass = 1ull << (42 - f.unit.exponent);
    q.counted = TOP_K && k > 0;
    q.floor = LOGITS && q.counted ? -LARGEST : LEAST_PROB;
    q.total = 1.0f;
    if (LOGITS && !q.counted) {
        f.mass = whole_mass(c, f.unit);
        q.total = (float)((double)f.mass * power_of_two(f.unit.exponent - 42));
    }
    q.unit = q.counted ? unit_of_counts() : f.unit;
    q.again = c.again;
    q.want = q.counted ? (uint64_t)k : share_of(top_p, (double)f.mass);
    save(c, f, q);
}

/* Top-k, then top-p of what it keeps, or one of them. What top-k keeps is listed as a rule, and the
 * rest is a matter of that alone. */
__forceinline__ drawing filter_row(context &c, const params &p, int k, float top_p, mass_unit &u) {
    if (k == 0 && (LOGITS || top_p >= 1.0f)) {
        u = unit_of(LOGITS ? 1.0f : c.found.max, (int)p.v);
        if (LOGITS)
            weigh(c, -INFINITE);
        if (top_p >= 1.0f)
            return sum_up(c, LEAST_PROB, u, false);
    }
    first_filter(c, p, k, top_p);
#pragma unroll 1
    for (int turn = 0;; turn++) {
        float least = select(c.row, c.board, c.room, c.state, c.found);
        if (c.found.max == NONE)
            return {};
        filters f = *c.saved;
        goal q = c.state->next;
        if (PROBS && !suits(f.unit, c.found.max)) {
            /* The row is not one of probabilities: its masses need another unit. */
            f.unit = unit_of(c.found.max, (int)p.v);
            f.mass = 1ull << larger(42 - f.unit.exponent, 0);
            if (!q.counted && turn == 0) {
                q.unit = f.unit;
                q.again = true;
                q.want = share_of(f.top_p, (double)f.mass);
                save(c, f, q);
                continue;
            }
        }
        const bool listed = c.found.listed && (!q.counted || c.found.whole);
        if (LOGITS && q.counted) {
            weigh_all(c, least, listed);
            least = LEAST_PROB;
            c.found.max = 1.0f;
        }
        u = f.unit;
        const drawing d = sum_up(c, least, u, listed);
        if (!q.counted || !TOP_P || !(f.top_p < 1.0f))
            return d;
        if (p.filter != BOLIDE__FILTER_JOINT)
            f.mass = d.sums.total;
        else if (LOGITS)
            f.mass = whole_mass(c, u);
        const float total = (float)((double)d.sums.total * power_of_two(u.exponent - 42));
        q = {share_of(f.top_p, (double)f.mass),
             least,
             u,
             false,
             total,
             f.k <= FEW_KEPT,
             listed,
             true,
             f.k};
        if (q.want > d.sums.total)
            return d;
        save(c, f, q);
    }
}

/* What is at least a share of the row's largest, of which a sample tells where it may begin. */
__forceinline__ drawing filter_min(context &c, const params &p, float min_p, mass_unit &u) {
    float max = NONE;
    batch<LOOK> look;
    const int groups = groups_of(c.row);
    read_look(c.row, groups, look);
    begin_ring(c.row, c.room);
#pragma unroll
    for (int n = 0; n < LOOK; n++) {
        float x[4];
        look.unpack<true>(c.row, n, x);
        max = fmaxf(max, fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])));
    }
    if (threadIdx.x == 0)
        c.state->largest = 0;
    max = join_max(c.board, warp_max(max));
    const span range = {fmaxf(min_p * max, LEAST_PROB), NAN_VALUE};
    bystander nobody;
    share_gathered(
        c.room, c.state,
        gather(c.row, c.room, c.state, range, goal{}, min_p, nobody, look, LONE && groups <= LOOK),
        c.found);
    u = unit_of(c.found.max, (int)p.v);
    return sum_up(c, fmaxf(min_p * c.found.max, LEAST_PROB), u, c.found.listed);
}

/* Masses in steps that suit a row whose largest is near 1 are added up as the row is read; only
 * another row is read twice. */
__forceinline__ drawing stream_row(context &c, const params &p, mass_unit &u) {
    mass_sum sum;
    float max = 0.0f;
    u = unit_of(1.0f, (int)p.v);
    walk_memory<SOLO ? 8 : 4>(
        c.row,
        [&](const float(&x)[4], int) {
            sum.add4(x, u);
            max = fmaxf(max, fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])));
        },
        [&] { sum.carry_in_time(); });
    sum.carry();
    const uint64_t own = warp_total(sum.total);
    const joined j =
        c.board.meet({own, float_bits(warp_max(max))}, {0, 0}, [](two_words x, two_words y) {
            return two_words{x.a + y.a, larger(x.b, y.b)};
        });
    c.found.max = lower(j.all.b);
    if (c.found.max == NONE || suits(u, c.found.max))
        return {LEAST_PROB, {j.before.a, j.all.a}, own};
    u = unit_of(c.found.max, (int)p.v);
    return sum_up(c, LEAST_PROB, u, false);
}

/* Draws for output row `out`; the cluster acts as one. */
__forceinline__ void sample(context &c, const params &p, int64_t out) {
    const int64_t from = p.indices ? id_at(p.indices, p.indices_dtype, out) : out;
    bool outside = from < 0 || from >= p.n;
    drawing d = {};
    mass_unit u = {};
    c.row = open_row(static_cast<const input_t *>(p.input) + (outside ? 0 : from * p.input_n),
                     nullptr, outside ? 0 : p.v, nullptr);
    c.found.max = NONE;
    if constexpr (SELECT) {
        const float share = row_float(p.top_p, out), top_p = is_nan(share) ? 1.0f : share;
        const int64_t top_k = TOP_K ? row_int(p.top_k, out) : 0;
        /* 0: no limit. */
        const int k = top_k > 0 && top_k < p.v ? (int)top_k : 0;
        /* What needs the largest value first. */
        if (!MIN_P && !outside && (top_p <= 0.0f || (k == 0 && (LOGITS || top_p >= 1.0f)))) {
            c.found.max = read_row(c.row, c.board);
            outside = c.found.max == NONE;
        }
        if constexpr (SHORT) {
            const bool of_kept = p.filter != BOLIDE__FILTER_JOINT, summed = TOP_P && top_p < 1.0f;
            if (!outside && top_p > 0.0f && k > 0 && k <= BOLIDE__ROW_FEW &&
                groups_of(c.row) <= LOOK && !(LOGITS && summed && !of_kept)) {
                if (draw_short(
                        c.row, c.board, c.room, c.state, c.list, {k, summed, of_kept, top_p},
                        [&] { return uniform53(p.seed, p.offset, out, 0); },
                        [&](int id) { put_sample(p, out, id, true); }))
                    return;
                c.again = true;
            }
        }
        if (MIN_P && !outside) {
            d = filter_min(c, p, share > 0.0f ? fminf(share, 1.0f) : 0.0f, u);
        } else if (top_p <= 0.0f && !outside) {
            put_alone(p, out, first_of_row(c.row, c.board, c.found.max), true);
            return;
        } else if (!outside) {
            d = filter_row(c, p, k, fminf(top_p, 1.0f), u);
        }
    } else {
        d = stream_row(c, p, u);
    }
    if (c.found.max == NONE) {
        put_alone(p, out, 0, false);
        return;
    }
    draw(c.row, c.board, d.sums, d.least, u, d.own, uniform53(p.seed, p.offset, out, 0),
         [&](int id) { put_sample(p, out, id, true); });
}

extern "C" __global__ void __launch_bounds__(THREADS, SOLO || (SELECT && (SMALL || LONE)) ? 1 : 2)
    bolide_sample(const __grid_constant__ params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ boards shown;
    __shared__ select_state state;
    context c = {};
    __shared__ filters saved;
    __shared__ weighing weights[2];
    c.weights = weights;
    c.saved = &saved;
    c.room = reinterpret_cast<select_room *>(memory);
    c.state = &state;
    if constexpr (SELECT)
        open_state(&state);
    if constexpr (SHORT) {
        __shared__ short_state list;
        open_short(&list);
        c.list = &list;
    }
    c.board.open(&shown);
    const int64_t out = blockIdx.x / CLUSTER;
    begin_kernel();
    sample(c, p, out);
    c.board.wait();
}
