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

/* Writes f(x, index) for all elements of this warp. Each is read by the thread that writes it, so
 * the output may be the input. */
template <class F>
__forceinline__ void write_row(const row_view &r, const params &p, int64_t row, F f) {
    out_t *out = static_cast<out_t *>(p.out) + row * p.out_n - r.lead;
    const bool aligned = (uintptr_t)out % sizeof(pack<out_t, 4>) == 0;
    walk(r, [&](const float(&x)[4], int j) {
        const int at = 4 * j;
        float y[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[i] = f(x[i], at + i - r.lead);
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
    });
}

/* Zeros, and a 1 at the first of the largest values, if there is one. */
__forceinline__ void write_one_hot(const row_view &r, exchange &e, const params &p, int64_t row,
                                   float max) {
    const int hot = max == NONE ? -1 : first_of_row(r, e, max);
    write_row(r, p, row, [&](float, int i) { return i == hot ? 1.0f : 0.0f; });
}

__forceinline__ void softmax(row_view &r, exchange &e, const params &p, int64_t row) {
    float t = row_float(p.limit, row);
    if (!p.limit.data && is_nan(t))
        t = 1.0f;
    t = t > LARGEST ? LARGEST : t; /* -inf divided by infinity would be NaN */
    const row_stats s = read_row(r, e, false);
    if (s.max == NONE || !(t > 0.0f)) {
        write_one_hot(r, e, p, row, s.max);
        return;
    }
    const mass_unit u = unit_of(1.0f, r.end - r.lead);
    uint64_t kept, all;
    weigh_row(r, s.max, t, NONE, u, kept, all);
    const double sum = (double)add_up(e, kept).total * power_of_two(u.exponent - 42);
    const float scale = (float)(1.0 / sum);
    write_row(r, p, row, [&](float x, int) { return x * scale; });
}

__forceinline__ void renorm(row_view &r, exchange &e, const params &p, int64_t row,
                            select_room *room, select_state *state) {
    const bool by_count = p.kind == BOLIDE__RENORM_TOP_K;
    const int64_t k = by_count ? row_int(p.limit, row) : 0;
    const float top_p = by_count ? 1.0f : row_float(p.limit, row);
    const row_stats s = read_row(r, e, false);
    if (s.max == NONE || top_p <= 0.0f) {
        write_one_hot(r, e, p, row, s.max);
        return;
    }
    const mass_unit u = unit_of(s.max, r.end - r.lead);
    float least = LEAST_PROB;
    bool listed = false;
    uint64_t above = 0;
    if (k > 0 && k < p.v)
        least = select<false>(r, room, state, s, u, (uint64_t)k, LEAST_PROB, false, listed, above);
    else if (top_p < 1.0f)
        least = select<true>(r, room, state, s, u, share_of(top_p, power_of_two(42 - u.exponent)),
                             LEAST_PROB, false, listed, above);
    uint64_t sum, own;
    if (listed && (!by_count || above == 0))
        sum = tally_listed(room, state, 1, own, [&](float x) {
                  return x >= least ? mass_of(x, u) : 0;
              }).total;
    else
        sum = add_up(e, sum_row(r, least, u)).total;
    const float scale = (float)(0x1p22 / (double)sum);
    write_row(r, p, row, [&](float x, int) { return x >= least ? x * u.scale * scale : 0.0f; });
}

/* Values that stay are stored as they came, bit for bit: widening and back changes nothing. */
__forceinline__ void mask(row_view &r, exchange &e, const params &p, int64_t row, select_room *room,
                          select_state *state) {
    const int64_t k = row_int(p.limit, row);
    const row_stats s = read_row(r, e, k > 16 * PARTS);
    const mass_unit u = {};
    bool listed;
    uint64_t above;
    float least = -INFINITE;
    if (k > 0 && k < p.v)
        least = select<false>(r, room, state, s, u, (uint64_t)k, -LARGEST, false, listed, above);
    write_row(r, p, row, [&](float x, int) { return x >= least ? x : -INFINITE; });
}

extern "C" __global__ void __launch_bounds__(THREADS, CLUSTER < 16 ? 2 : 1)
    bolide_renorm(const __grid_constant__ params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ boards shown;
    const int64_t row = blockIdx.x / CLUSTER;
    const input_t *input = static_cast<const input_t *>(p.input) + row * p.input_n;
    exchange board;
    board.open(&shown);
    if constexpr (LOGITS) {
        row_view r = open_row(input, nullptr, p.v, reinterpret_cast<float *>(memory));
        softmax(r, board, p, row);
    } else {
        __shared__ select_state state;
        select_room *room = reinterpret_cast<select_room *>(memory);
        row_view r = open_row(input, nullptr, p.v, reinterpret_cast<float *>(room + 1));
        if constexpr (SCORES)
            mask(r, board, p, row, room, &state);
        else
            renorm(r, board, p, row, room, &state);
    }
    board.wait();
}
