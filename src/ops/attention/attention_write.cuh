// SPDX-License-Identifier: Apache-2.0
//
// The end of an item of attention.cu: rows are finished and written, or left in a slot for the
// merge; warps that share rows join their parts first. Included by attention.cu only, behind its
// constants and its rows_state.

#ifndef BOLIDE_OPS_ATTENTION_WRITE_CUH
#define BOLIDE_OPS_ATTENTION_WRITE_CUH

/* The last step of a row: sink, division, scales. Gives what sums of p v are multiplied by, and
 * the row's logarithm. */
float finish_row(const bolide__attention_params &p, int64_t head, float m, float l, float *lse) {
    float weight = 1;
    if (p.sinks) {
        const float sink = p.sinks[head * p.sink_h] * LOG2E;
        const float top = fmaxf(m, sink);
        if (top != -INFINITE) {
            weight = exp2_fast(m - top);
            l = l * weight + exp2_fast(sink - top);
            m = top;
        }
    }
    const float value = m + log2f(l);
    *lse = p.flags & BOLIDE__ATTN_LSE_BASE_E ? value * LN2 : value;
    if (l == 0)
        return 0;
    return weight / l * (scale_of(p.v_scale, head / p.group) / scale_of(p.o_scale, 0));
}

struct place {
    out_elem *out; /* row of the output */
    float factor;
};

/* Where row `row` of the tile goes, and its lse written by the caller that is `first` of its row.
 */
place finish(const bolide__attention_params &p, const tile &t, int32_t row, float m, float l,
             bool first) {
    const int64_t head = query_head(p, t, row), token = query_token(p, t, row);
    float lse;
    place to;
    to.factor = finish_row(p, head, m, l, &lse);
    to.out =
        static_cast<out_elem *>(p.out) + (t.request->o_start + token) * p.out_n + head * p.out_h;
    if (first && p.lse)
        p.lse[(t.request->q_start + token) * p.lse_n + head * p.lse_h] = lse;
    return to;
}

/* Two neighbours of a row, divided or, in a slot, as they are. */
void put(const bolide__attention_params &p, const place &to, int64_t slot_row, int32_t column,
         float x, float y) {
    if (column >= D_VO)
        return;
    if (slot_row >= 0) {
        float *o = p.partial_o + slot_row * D_VO + column;
        o[0] = x;
        o[1] = y;
    } else {
        to.out[column] = from_float<out_elem>(to.factor == 0 ? 0.0f : x * to.factor);
        to.out[column + 1] = from_float<out_elem>(to.factor == 0 ? 0.0f : y * to.factor);
    }
}

int64_t slot_row_of(const bolide__attention_params &p, const tile &t, int32_t slot, int32_t row) {
    return slot < 0 ? -1 : (slot * p.h_kv + t.head) * p.tile_rows + row;
}

void write_partial_ml(const bolide__attention_params &p, int64_t slot_row, float m, float l) {
    p.partial_ml[2 * slot_row] = m;
    p.partial_ml[2 * slot_row + 1] = l;
}

/* Each warp has its own rows. */
void write_own_rows(const bolide__attention_params &p, const tile &t, int32_t slot,
                    const rows_state &r) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = threadIdx.x / 32 * 16 + lane / 4 + 8 * i;
        if (row >= t.rows)
            continue;
        const int64_t at = slot_row_of(p, t, slot, row);
        place to = {};
        if (at < 0)
            to = finish(p, t, row, r.m[i], r.l[i], lane % 4 == 0);
        else if (lane % 4 == 0)
            write_partial_ml(p, at, r.m[i], r.l[i]);
#pragma unroll
        for (int n = 0; n < DV / 8; n++)
            put(p, to, at, n * 8 + lane % 4 * 2, r.o[n][2 * i], r.o[n][2 * i + 1]);
    }
}

/* The four warps have parts of the same rows: joined through shared memory, 8 threads a row. */
void write_shared_rows(const bolide__attention_params &p, const tile &t, int32_t slot,
                       const rows_state &r, handover &h) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = lane / 4 + 8 * i;
        if (lane % 4 == 0) {
            h.m[warp][row] = r.m[i];
            h.l[warp][row] = r.l[i];
        }
#pragma unroll
        for (int n = 0; n < DV / 8; n++) {
            h.o[warp][row][n * 8 + lane % 4 * 2] = r.o[n][2 * i];
            h.o[warp][row][n * 8 + lane % 4 * 2 + 1] = r.o[n][2 * i + 1];
        }
    }
    __syncthreads();
    const int32_t row = threadIdx.x / 8, first = threadIdx.x % 8;
    if (row < t.rows) {
        float m = -INFINITE, l = 0, weight[WARPS];
        for (int w = 0; w < WARPS; w++)
            m = fmaxf(m, h.m[w][row]);
        for (int w = 0; w < WARPS; w++) {
            weight[w] = h.m[w][row] == -INFINITE ? 0.0f : exp2_fast(h.m[w][row] - m);
            l += h.l[w][row] * weight[w];
        }
        const int64_t at = slot_row_of(p, t, slot, row);
        place to = {};
        if (at < 0)
            to = finish(p, t, row, m, l, first == 0);
        else if (first == 0)
            write_partial_ml(p, at, m, l);
        for (int c = first * 2; c < D_VO; c += 16) {
            float x = 0, y = 0;
            for (int w = 0; w < WARPS; w++) {
                x += h.o[w][row][c] * weight[w];
                y += h.o[w][row][c + 1] * weight[w];
            }
            put(p, to, at, c, x, y);
        }
    }
}

#endif
