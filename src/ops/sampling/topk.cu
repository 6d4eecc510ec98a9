// SPDX-License-Identifier: Apache-2.0
//
// The k largest of a window of each row: select the k-th value (row_select.cuh), count what is
// larger or equal to it warp by warp, and write both in the order of the columns, of the equal ones
// as many as are missing. As a rule they are all set aside by then, and memory is read once.
// Sorting, where it is asked for, is bitonic: in shared memory up to 4,096 values, beyond in the
// output itself.

#include "ops/sampling/row_draw.cuh"
#include "ops/sampling/row_select.cuh"

#if !defined(SPEC_FORM) || !defined(SPEC_SORTED)
#error "FORM: bolide__topk_form; SORTED: 1 for descending values"
#endif
constexpr int FORM = SPEC_FORM;
constexpr bool SORTED = SPEC_SORTED;
static_assert(RANKED && (!SORTED || FORM == BOLIDE__TOPK_PLAIN), "only plain results are sorted");

using params = bolide__topk_params;

/* One row on its way out. */
struct output {
    const input_t *input; /* of the window */
    int64_t row;
    int length;
    int64_t offset; /* RAGGED */
};

/* ---- writing ------------------------------------------------------------------------------ */

__forceinline__ int64_t mapped(const params &p, const output &o, int64_t index) {
    if constexpr (FORM != BOLIDE__TOPK_PAGED)
        return index + o.offset;
    const int shift = __ffsll((long long)p.page_size) - 1;
    const int64_t request = p.row_to_batch ? p.row_to_batch[o.row] : o.row;
    const int32_t *first = p.page_table_row_starts ? p.page_table_row_starts : p.row_starts;
    const int64_t page = (first ? first[o.row] : 0) + (index >> shift);
    if (request < 0 || request >= p.requests || page < 0 || page >= p.pages)
        return -1;
    const int64_t base = p.page_table[request * p.page_table_n + page];
    return base < 0 ? -1 : (base << shift) + (index & (p.page_size - 1));
}

/* index -1: there is nothing for this slot. */
__forceinline__ void put_slot(const params &p, const output &o, int64_t slot, int64_t index) {
    put_id(p.indices, p.indices_dtype, o.row * p.indices_n + slot,
           index < 0 ? -1 : mapped(p, o, index));
    if constexpr (FORM == BOLIDE__TOPK_PAGED) {
        if (p.raw_indices)
            p.raw_indices[o.row * p.raw_indices_n + slot] = (int32_t)index;
    }
    if constexpr (FORM == BOLIDE__TOPK_PLAIN) {
        if (p.values)
            static_cast<input_t *>(p.values)[o.row * p.values_n + slot] =
                index < 0 ? from_float<input_t>(-INFINITE) : o.input[index];
    }
}

/* ---- collecting --------------------------------------------------------------------------- */

/* What is taken: values > least and, of those equal to it, numbers [skip, skip + take). With least
 * NaN everything is larger but NaN, and that is equal. */
struct choice {
    float least;
    uint32_t skip, take;
};

struct two_flags {
    bool over, equal;
};

__forceinline__ two_flags compare(const row_view &r, float least, float x, int at) {
    const bool inside = at >= r.lead && at < smaller(r.end, 4 * r.last);
    if (is_nan(least))
        return {inside && !is_nan(x), inside && is_nan(x)};
    return {inside && x > least, inside && x == least};
}

/* This warp's values over least and equal to it, in the upper and the lower half. */
__forceinline__ uint64_t count_row(const row_view &r, float least) {
    uint32_t over = 0, equal = 0;
    walk_memory<2>(r, [&](const float(&x)[4], int j) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const two_flags f = compare(r, least, x[i], 4 * j + i);
            over += f.over;
            equal += f.equal;
        }
    });
    return (uint64_t)warp_total(over) << 32 | warp_total(equal);
}

/* Writes what the choice takes of this warp, before which come so many values (as count_row). */
__forceinline__ void collect(const row_view &r, const params &p, const output &o, choice c,
                             uint64_t before) {
    uint32_t over_before = (uint32_t)(before >> 32), equal_before = (uint32_t)before;
    walk_memory<1>(r, [&](const float(&x)[4], int j) {
        uint32_t overs = 0, equals = 0; /* a bit each */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const two_flags f = compare(r, c.least, x[i], 4 * j + i);
            overs |= (uint32_t)f.over << i;
            equals |= (uint32_t)f.equal << i;
        }
        if (!__any_sync(0xffffffffu, (overs | equals) != 0))
            return;
        const uint32_t own = __popc(overs) + (__popc(equals) << 16), upto = warp_prefix(own);
        uint32_t over = over_before + (upto - own & 0xffff);
        uint32_t equal = equal_before + (upto - own >> 16);
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            const bool is_over = overs >> i & 1, is_equal = equals >> i & 1;
            const uint32_t taken = equal > c.skip ? smaller(equal - c.skip, c.take) : 0;
            if (is_over || (is_equal && equal >= c.skip && taken < c.take))
                put_slot(p, o, over + taken, 4 * j + i - r.lead);
            over += is_over;
            equal += is_equal;
        }
        const uint32_t all = __shfl_sync(0xffffffffu, upto, 31);
        over_before += all & 0xffff;
        equal_before += all >> 16;
    });
}

/* The least of k guessed columns: with k different ones the k-th largest is no less. */
__forceinline__ float guessed_floor(const params &p, const output &o, exchange &e,
                                    int64_t request) {
    float least = INFINITE;
    for (int64_t i = threadIdx.x; i < p.k; i += THREADS) {
        const int64_t at = (int64_t)p.pre_idx[request * p.pre_idx_n + i] + 1;
        const float x = at < 0 || at >= o.length ? -INFINITE : to_float(o.input[at]);
        least = is_nan(x) ? -INFINITE : fminf(least, x);
    }
    least = -lanes_max<32>(-least);
    return lower(
        e.meet({float_bits(least), 0}, {float_bits(INFINITE), 0}, [](two_words x, two_words y) {
             return two_words{float_bits(fminf(lower(x.a), lower(y.a))), 0};
         }).all.a);
}

/* The same from what this warp has set aside, if that is all that is taken, and by column. */
template <class R>
__forceinline__ void collect_listed(R *room, const select_state *state, const params &p,
                                    const output &o, choice c, uint64_t before) {
    const int lane = lane_of_warp(), warp = warp_of_block();
    const uint32_t earlier = (1u << lane) - 1;
    const int *columns = columns_of(room, warp);
    uint32_t over = (uint32_t)(before >> 32), equal = (uint32_t)before;
    for (int begin = 0; begin < state->count[warp]; begin += 32) {
        const bool inside = begin + lane < state->count[warp];
        const float x = inside ? room->own[warp][begin + lane] : NAN_VALUE;
        const uint32_t overs = __ballot_sync(0xffffffffu, x > c.least);
        const uint32_t equals = __ballot_sync(0xffffffffu, x == c.least);
        const uint32_t rank = equal + __popc(equals & earlier);
        const uint32_t taken = rank > c.skip ? smaller(rank - c.skip, c.take) : 0;
        if (x > c.least || (x == c.least && rank >= c.skip && taken < c.take))
            put_slot(p, o, over + __popc(overs & earlier) + taken, columns[begin + lane]);
        over += __popc(overs);
        equal += __popc(equals);
    }
}

/* For a window of more than k columns. */
__forceinline__ void take_largest(row_view &r, exchange &e, select_room *room, select_state *state,
                                  const params &p, const output &o, int64_t request) {
    float floor = -INFINITE;
    if (p.pre_idx)
        floor = guessed_floor(p, o, e, request);
    float least = 0;
    place sum = {};
    gathered g = {};
    bool listed = false;
    /* Guessed columns may name one twice; then there are too few above them. Too few numbers: all
     * of them, then NaN. */
#pragma unroll 1
    for (int turn = floor > -INFINITE ? 0 : 1; turn < 3; turn++) {
        least = NAN_VALUE;
        listed = false;
        if (turn < 2) {
            aim(state, {(uint64_t)p.k, turn == 0 ? floor : -INFINITE, unit_of_counts(), true, 0.0f,
                        turn == 0, false, turn == 1 && floor > -INFINITE});
            least = select(r, e, room, state, g);
            listed = g.listed;
        }
        uint64_t own;
        if (listed)
            sum = tally_listed(room, state, 1ull << 32, own, [&](float x) {
                return x > least ? 1ull << 32 : (uint64_t)(x == least);
            });
        else
            sum = add_up(e, count_row(r, least));
        if ((sum.total >> 32) + (sum.total & 0xffffffffu) >= (uint64_t)p.k)
            break;
    }
    choice c = {least, 0, (uint32_t)p.k - (uint32_t)(sum.total >> 32)};
    if (p.tie_break == BOLIDE__TIE_LARGE)
        c.skip = (uint32_t)sum.total - c.take;
    if constexpr (INDEXED) {
        if (listed && g.whole) {
            collect_listed(room, state, p, o, c, sum.before);
            return;
        }
    }
    collect(r, p, o, c, sum.before);
}

/* ---- sorting ------------------------------------------------------------------------------ */

/* A number that grows as the slot should come later: by falling value, then by index. */
__forceinline__ uint64_t rank_of(const params &p, float x, uint32_t id) {
    const uint32_t key = is_nan(x) ? 0 : key_of(x);
    return (uint64_t)~key << 32 | (p.tie_break == BOLIDE__TIE_LARGE ? ~id : id);
}

/* Bitonic: step(i, j) puts the smaller of two in the first place. In each round the first step
 * mirrors, so all compare the same way, and places behind the last need not exist. */
template <class S, class B>
__forceinline__ void sort_bitonic(int64_t n, int64_t thread, int64_t threads, S step, B barrier) {
    for (int64_t size = 2; size < 2 * n; size *= 2) {
        for (int64_t half = size / 2; half > 0; half /= 2) {
            const int64_t mirror = half == size / 2 ? 2 * half - 1 : half;
            for (int64_t t = thread;; t += threads) {
                const int64_t i = t / half * half * 2 + t % half;
                if (i >= n)
                    break;
                const int64_t j = half == size / 2 ? i ^ mirror : i + half;
                if (j < n)
                    step(i, j);
            }
            barrier();
        }
    }
}

__forceinline__ void sort_row(const params &p, const output &o, select_room *room) {
    constexpr int64_t ROOM = sizeof(select_room) / sizeof(uint64_t);
    input_t *values = static_cast<input_t *>(p.values) + o.row * p.values_n;
    const int64_t first = o.row * p.indices_n;
    if (p.k > ROOM) {
        sort_bitonic(
            p.k, (int64_t)cluster_rank<CLUSTER>() * THREADS + threadIdx.x,
            (int64_t)CLUSTER * THREADS,
            [&](int64_t i, int64_t j) {
                const int64_t a = id_at(p.indices, p.indices_dtype, first + i);
                const int64_t b = id_at(p.indices, p.indices_dtype, first + j);
                const input_t x = values[i], y = values[j];
                if (rank_of(p, to_float(x), (uint32_t)a) > rank_of(p, to_float(y), (uint32_t)b)) {
                    put_id(p.indices, p.indices_dtype, first + i, b);
                    put_id(p.indices, p.indices_dtype, first + j, a);
                    values[i] = y;
                    values[j] = x;
                }
            },
            [] { cluster_sync<CLUSTER>(); });
        return;
    }
    if (cluster_rank<CLUSTER>() != 0)
        return;
    uint64_t *rank = reinterpret_cast<uint64_t *>(room);
    for (int64_t i = threadIdx.x; i < p.k; i += THREADS)
        rank[i] =
            rank_of(p, to_float(values[i]), (uint32_t)id_at(p.indices, p.indices_dtype, first + i));
    __syncthreads();
    sort_bitonic(
        p.k, threadIdx.x, THREADS,
        [&](int64_t i, int64_t j) {
            const uint64_t a = rank[i], b = rank[j];
            rank[i] = smaller(a, b);
            rank[j] = larger(a, b);
        },
        [] { __syncthreads(); });
    for (int64_t i = threadIdx.x; i < p.k; i += THREADS) {
        const uint32_t low = (uint32_t)rank[i];
        put_slot(p, o, i, (int64_t)(p.tie_break == BOLIDE__TIE_LARGE ? ~low : low));
    }
}

/* ---- rows --------------------------------------------------------------------------------- */

__forceinline__ int64_t clamped(int64_t x, int64_t most) {
    return x < 0 ? 0 : x > most ? most : x;
}

__forceinline__ output open_output(const params &p, int64_t row, int64_t request) {
    output o = {};
    const int64_t start = clamped(p.row_starts ? p.row_starts[row] : 0, p.v);
    int64_t length = p.v;
    if (p.lengths) {
        const int64_t tokens = p.lengths[request] - p.next_n + row % p.next_n + 1;
        length = tokens < 0 ? 0 : p.compress_ratio == 1 ? tokens : tokens / p.compress_ratio;
    }
    o.input = static_cast<const input_t *>(p.input) + row * p.input_n + start;
    o.row = row;
    o.length = (int)clamped(length, p.v - start);
    if constexpr (FORM == BOLIDE__TOPK_RAGGED)
        o.offset = p.offsets[row];
    return o;
}

/* With sorting two blocks a multiprocessor would spill. */
extern "C" __global__ void __launch_bounds__(THREADS, SMALL || SORTED || LONE || SOLO ? 1 : 2)
    bolide_topk(const __grid_constant__ params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ boards shown;
    __shared__ select_state state;
    select_room *room = reinterpret_cast<select_room *>(memory);
    exchange board;
    open_state(&state);
    board.open(&shown);
    const int64_t row = blockIdx.x / CLUSTER;
    begin_kernel();
    const int64_t request = p.next_n == 1 ? row : row / p.next_n;
    const output o = open_output(p, row, request);
    if (o.length > p.k) {
        row_view r = open_row(o.input, nullptr, o.length, nullptr);
        take_largest(r, board, room, &state, p, o, request);
    } else {
        for (int64_t i = cluster_rank<CLUSTER>() * THREADS + threadIdx.x; i < p.k;
             i += CLUSTER * THREADS)
            put_slot(p, o, i, i < o.length ? i : -1);
    }
    board.wait();
    if constexpr (SORTED) {
        cluster_sync<CLUSTER>();
        sort_row(p, o, room);
    }
}
