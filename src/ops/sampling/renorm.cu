// SPDX-License-Identifier: Apache-2.0
//
// Operators that write a row for each row: softmax, renormalised probabilities, masked logits. The
// blocks of a cluster hold the row (row_view.cuh), so memory sees one read and one write; that
// traffic is the limit.

#include "ops/sampling/row_draw.cuh"
#include "ops/sampling/row_select.cuh"

using params = bolide__renorm_params;

constexpr int64_t OUT = LOGITS ? F32 : INPUT;
using out_t = element<OUT>::type;

/* Writes vector j of the row that begins `lead` elements after `out`. */
__forceinline__ void put_vector(const row_view &r, out_t *out, bool aligned, int j,
                                const float (&y)[4]) {
    const int at = 4 * j;
    if (j >= r.last)
        return;
    const pack<out_t, 4> values = pack_floats<out_t>(y);
    if (aligned && at >= r.lead && at + 4 <= r.end) {
        store_stream(out + at, values);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i >= r.lead && at + i < r.end)
                out[at + i] = values.at[i];
    }
}

__forceinline__ out_t *out_of(const row_view &r, const params &p, int64_t row) {
    return static_cast<out_t *>(p.out) + row * p.out_n - r.lead;
}

__forceinline__ bool aligned_out(const out_t *out) {
    return (uintptr_t)out % sizeof(pack<out_t, 4>) == 0;
}

/* Writes f(x, index) for all elements of this warp; f gives the same for all that counts for
 * nothing. Each is read by the thread that writes it, so the output may be the input. */
template <class F>
__forceinline__ void write_row(const row_view &r, const params &p, int64_t row, F f) {
    out_t *out = out_of(r, p, row);
    const bool aligned = aligned_out(out);
    auto put = [&](const float(&x)[4], int j) {
        float y[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[i] = f(x[i], 4 * j + i - r.lead);
        put_vector(r, out, aligned, j, y);
    };
    if constexpr (CACHED)
        walk(r, put);
    else
        walk_memory<4, !LOGITS>(r, put);
}

/* The same through the ring, what was read last first: of that L2 has most. */
template <class F>
__forceinline__ void write_again(const row_view &r, select_room *room, const params &p, int64_t row,
                                 bool selected, F f) {
    if constexpr (RINGED) {
        out_t *out = out_of(r, p, row);
        const bool aligned = aligned_out(out);
        walk_back<true>(r, ring_of(room), HOLDS && selected, gather_ring{},
                        [&](const float(&x)[4], int j) {
                            float y[4];
#pragma unroll
                            for (int i = 0; i < 4; i++)
                                y[i] = f(x[i]);
                            put_vector(r, out, aligned, j, y);
                        });
    } else {
        write_row(r, p, row, [&](float x, int) { return f(x); });
    }
}

/* ---- blanks ------------------------------------------------------------------------------- */

/* Where little is kept, all is written as if nothing were while the row is read, so that reading
 * and writing go on together, and vectors that have something to keep are written again. */
struct blank_memory {
    out_t *out; /* as put_vector takes it; NULL where the row is to be read and written again */
    bool aligned, on[WARPS];
    int early[WARPS]; /* what of a warp's vectors has been written while a guess was made */
    /* Of each thread, which of its vectors may be kept, by a number that is taken modulo 64. */
    uint64_t seen[THREADS];
};

struct blanks {
    blank_memory *shared;

    /* Of a stretch so much is written while a guess is made, and so much behind the last load:
     * memory has nothing else to do then. */
    static constexpr int EARLY = 4, LATE = 8, BATCH = 32 * GATHER;

    __forceinline__ static bool few(const row_view &r, const goal &q) {
        return q.counted && (float)q.want <= (float)(r.end - r.lead) / 64;
    }

    __forceinline__ void guess(const row_view &r, const goal &q) {
        if (!RINGED || !shared->out || !few(r, q))
            return;
        const int early = r.first + (r.last - r.first) / EARLY / BATCH * BATCH;
#pragma unroll 1
        for (int begin = r.first; begin < early; begin += BATCH)
            blank(r, begin);
        if (lane_of_warp() == 0)
            shared->early[warp_of_block()] = early;
        __syncwarp();
    }

    __forceinline__ int late(const row_view &r) const {
        const int size = r.last - r.first;
        return !RINGED ? r.last : r.first + (size - size / LATE) / BATCH * BATCH;
    }

    /* Of a mass no more values are kept than the least of them fits in, and far fewer as a rule. */
    __forceinline__ void open(const row_view &r, span s, const goal &q) {
        const float v = (float)(r.end - r.lead);
        const bool little = q.counted ? few(r, q) : q.total <= s.low * v / 16;
        const bool on = shared->out && little;
        shared->seen[threadIdx.x] = 0;
        shared->on[warp_of_block()] = on;
        __syncwarp();
    }

    __forceinline__ void go(const row_view &r, int begin) {
        const int warp = warp_of_block();
        if (shared->on[warp] && begin >= shared->early[warp] && begin < late(r))
            blank(r, begin);
    }

    __forceinline__ void close(const row_view &r) {
        if (!shared->on[warp_of_block()])
            return;
#pragma unroll 1
        for (int begin = late(r); begin < r.last; begin += BATCH)
            blank(r, begin);
    }

    /* Writes a batch as if nothing of it were kept. */
    __forceinline__ void blank(const row_view &r, int begin) {
        const float y[4] = {NONE, NONE, NONE, NONE};
        const int last = begin + 32 * GATHER, lane = lane_of_warp();
        out_t *out = shared->out;
        if (shared->aligned && 4 * begin >= r.lead && last <= r.last && 4 * last <= r.end) {
#pragma unroll
            for (int n = 0; n < GATHER; n++)
                store_stream(out + 4 * (int64_t)(begin + 32 * n + lane), pack_floats<out_t>(y));
            return;
        }
#pragma unroll 1
        for (int n = 0; n < GATHER; n++)
            put_vector(r, out, shared->aligned, begin + 32 * n + lane, y);
    }

    __forceinline__ void see(const row_view &r, int group, bool kept) {
        if (kept && shared->on[warp_of_block()])
            shared->seen[threadIdx.x] |= 1ull << ((group - r.first) / 32 % 64);
    }
};

/* Writes f(x) for what may be kept, if all else has been written; else for the whole row. */
template <class F>
__forceinline__ void write_kept(const row_view &r, select_room *room, const params &p, int64_t row,
                                const blanks &b, const gathered &g, F f) {
    if (!g.listed || !b.shared->on[warp_of_block()]) {
        write_again(r, room, p, row, g.passed, f);
        return;
    }
    for (uint64_t left = b.shared->seen[threadIdx.x]; left != 0; left &= left - 1) {
        for (int j = r.first + 32 * (__ffsll((long long)left) - 1) + lane_of_warp(); j < r.last;
             j += 32 * 64) {
            const raw_t raw = read_raw(r, r.base, j);
            float y[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                y[i] = f(clean(to_float(raw.at[i])));
            put_vector(r, b.shared->out, b.shared->aligned, j, y);
        }
    }
}

/* Zeros, and a 1 at the first of the largest values, if there is one. */
__forceinline__ void write_one_hot(const row_view &r, exchange &e, const params &p, int64_t row,
                                   float max) {
    const int hot = max == NONE ? -1 : first_of_row(r, e, max);
    write_row(r, p, row, [&](float, int i) { return i == hot ? 1.0f : 0.0f; });
}

/* Makes masses of the logits in the cache and gives this warp's sum. */
__forceinline__ uint64_t weigh_cache(const row_view &r, float max, float slope, mass_unit u) {
    mass_sum sum;
    walk(
        r,
        [&](const float(&x)[4], int j) {
            float y[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                y[i] = softened(x[i], max, slope);
            sum.add4(y, u);
            keep_vector(r, j, y);
        },
        [&] { sum.carry_in_time(); });
    sum.carry();
    return warp_total(sum.total);
}

__forceinline__ void softmax(row_view &r, exchange &e, const params &p, int64_t row) {
    float t = row_float(p.limit, row);
    if (!p.limit.data && is_nan(t))
        t = 1.0f;
    const float max = read_row(r, e);
    if (max == NONE || !(t > 0.0f)) {
        write_one_hot(r, e, p, row, max);
        return;
    }
    const mass_unit u = unit_of(1.0f, r.end - r.lead);
    /* -inf times 0 would be NaN, and so would 0 times infinity. */
    const weighing w = {-INFINITE, max, fmaxf(fminf(1.0f / t, LARGEST), bits_float(1))};
    uint64_t own;
    if constexpr (CACHED) {
        own = weigh_cache(r, max, slope_of(t), u);
    } else {
        r.weights = &w;
        r.weighed = true;
        own = sum_row(r, 0.0f, u);
    }
    r.weighed = true;
    const double sum = (double)add_up(e, own).total * power_of_two(u.exponent - 42);
    const float scale = (float)(1.0 / sum);
    write_row(r, p, row, [&](float x, int) { return x * scale; });
}

/* A row that is read once, and again as it is written. */
struct filtered {
    row_view row;
    exchange board;
    select_room *room;
    select_state *state;
    blanks beside;
};

__forceinline__ void renorm(filtered &f, const params &p, int64_t row) {
    const bool by_count = p.kind == BOLIDE__RENORM_TOP_K;
    const int64_t k = by_count ? row_int(p.limit, row) : 0;
    const float top_p = by_count ? 1.0f : row_float(p.limit, row);
    const bool counted = k > 0 && k < p.v, summed = top_p < 1.0f;
    mass_unit u = unit_of(1.0f, f.row.end - f.row.lead);
    gathered g = {};
    float least = LEAST_PROB;
    /* Again if the row is not of probabilities, so that its masses need another unit. */
#pragma unroll 1
    for (int turn = 0; turn < 2; turn++) {
        aim(f.state,
            {counted ? (uint64_t)k : share_of(top_p, power_of_two(42 - u.exponent)), LEAST_PROB,
             counted ? unit_of_counts() : u, counted, 1.0f, false, false, turn > 0});
        if (counted || (summed && top_p > 0.0f))
            least = select(f.row, f.board, f.room, f.state, g, f.beside);
        else
            g.max = read_row(f.row, f.board);
        if (g.max == NONE || suits(u, g.max))
            break;
        u = unit_of(g.max, f.row.end - f.row.lead);
        if (counted || !summed)
            break;
    }
    /* Nothing is kept beside the first of the largest values, if there is one. */
    if (g.max == NONE || top_p <= 0.0f) {
        write_one_hot(f.row, f.board, p, row, g.max);
        return;
    }
    uint64_t sum, own;
    if (g.listed && (!counted || g.whole))
        sum = tally_listed(f.room, f.state, 1, own, [&](float x) {
                  return x >= least ? mass_of(x, u) : 0;
              }).total;
    else
        sum = add_up(f.board, sum_row(f.row, least, u)).total;
    const float scale = (float)(0x1p22 / (double)sum);
    write_kept(f.row, f.room, p, row, f.beside, g,
               [&](float x) { return x >= least ? x * u.scale * scale : 0.0f; });
}

/* Values that stay are stored as they came, bit for bit: widening and back changes nothing. */
__forceinline__ void mask(filtered &f, const params &p, int64_t row) {
    const int64_t k = row_int(p.limit, row);
    gathered g = {};
    float least = -INFINITE;
    aim(f.state, {(uint64_t)k, -LARGEST, unit_of_counts(), true});
    if (k > 0 && k < p.v)
        least = select(f.row, f.board, f.room, f.state, g, f.beside);
    write_kept(f.row, f.room, p, row, f.beside, g,
               [&](float x) { return x >= least ? x : -INFINITE; });
}

/* Three blocks a multiprocessor have more loads and stores under way than two. */
extern "C" __global__ void __launch_bounds__(THREADS, !LOGITS && (LONE || SOLO) ? 1
                                                      : CACHED && INPUT == F32  ? 3
                                                                                : 2)
    bolide_renorm(const __grid_constant__ params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ boards shown;
    const int64_t row = blockIdx.x / CLUSTER;
    const input_t *input = static_cast<const input_t *>(p.input) + row * p.input_n;
    if constexpr (LOGITS) {
        exchange board;
        board.open(&shown);
        begin_kernel();
        row_view r = open_row(input, nullptr, p.v, reinterpret_cast<float *>(memory));
        softmax(r, board, p, row);
        board.wait();
    } else {
        __shared__ select_state state;
        __shared__ blank_memory blank;
        filtered f = {};
        open_state(&state);
        f.board.open(&shown);
        begin_kernel();
        f.row = open_row(input, nullptr, p.v, nullptr);
        f.room = reinterpret_cast<select_room *>(memory);
        f.state = &state;
        f.beside.shared = &blank;
        if (threadIdx.x == 0) {
            out_t *out = out_of(f.row, p, row);
            blank.out = p.out == p.input ? nullptr : out;
            blank.aligned = aligned_out(out);
        }
        if (threadIdx.x < WARPS) {
            blank.on[threadIdx.x] = false;
            blank.early[threadIdx.x] = 0;
        }
        if constexpr (SCORES)
            mask(f, p, row);
        else
            renorm(f, p, row);
        f.board.wait();
    }
}
