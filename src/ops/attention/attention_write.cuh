// SPDX-License-Identifier: Apache-2.0
//
// The end of an item of attention.cu: rows are finished and written, or left in a slot for the
// merge; warps that share rows join their parts first. Included by attention.cu only, behind its
// constants and its shared memory.

#ifndef BOLIDE_OPS_ATTENTION_WRITE_CUH
#define BOLIDE_OPS_ATTENTION_WRITE_CUH

/* Each warp has its own rows. */
void write_own_rows(const params &p, const work &w, int32_t rows, const rows_state &r) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int32_t row = row_of(mt, i);
            const float l = lanes_sum<4>(r.l[mt][i]);
            if (row >= rows)
                continue;
            if (w.slot < 0) {
                const place to = finish(p, w, row, r.m[mt][i], l, lane % 4 == 0);
#pragma unroll
                for (int j = 0; j < DV / 8; j++) {
                    const float2_t x = pair_of(r, mt, i, j);
                    if (DV == D_VO || column_of(j) < D_VO)
                        put_out(to, column_of(j), {x.x, x.y});
                }
            } else {
                const int64_t at = slot_row_of(p, w.slot, row);
                if (lane % 4 == 0)
                    put_slot_ml(p, at, r.m[mt][i], l);
#pragma unroll
                for (int j = 0; j < DV / 8; j++) {
                    const float2_t x = pair_of(r, mt, i, j);
                    if (DV == D_VO || column_of(j) < D_VO)
                        put_slot(p, at, column_of(j), x.x, x.y);
                }
            }
        }
    }
}

using handover = float[WARPS][16][HAND + 4];

/* Where columns and rows are few enough, the other half of the columns lies in the rows that are
 * not there, and one round is enough. */
constexpr bool FOLDS = SHARED_ROWS && HAND < DV && 2 * HAND >= DV;

/* The warp's sums of the rows that are there, for HAND columns from `first` on; folded, for all. */
void hand_over(const rows_state &r, int32_t rows, int first, bool folded, handover &h) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (lane / 4 + 8 * i >= rows)
            continue;
#pragma unroll
        for (int j = 0; j < DV / 8; j++) {
            const int column = column_of(j) - first;
            const float2_t x = pair_of(r, 0, i, j);
            if (column >= 0 && column < HAND)
                *reinterpret_cast<float2 *>(&h[warp][lane / 4 + 8 * i][column]) = {x.x, x.y};
            else if (FOLDS && folded && i == 0)
                *reinterpret_cast<float2 *>(&h[warp][lane / 4 + 8][column - HAND]) = {x.x, x.y};
        }
    }
}

/* The warps have parts of the same rows: joined through the stage just used, four columns a
 * thread. */
void write_shared_rows(const params &p, const work &w, int32_t rows, const rows_state &r,
                       unsigned char *stage, shared_memory &s) {
    handover &h = *reinterpret_cast<handover *>(stage);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float l = lanes_sum<4>(r.l[0][i]);
        if (lane % 4 == 0) {
            s.warp_ml[warp][lane / 4 + 8 * i][0] = r.m[0][i];
            s.warp_ml[warp][lane / 4 + 8 * i][1] = l;
        }
    }
    const bool folded = FOLDS && rows <= 8;
    const int32_t parts = (folded ? DV : HAND) / 4;
#pragma unroll
    for (int first = 0; first < DV; first += HAND) {
        if (first > 0 && folded)
            break;
        __syncthreads(); /* all are done with the stage */
        hand_over(r, rows, first, folded, h);
        __syncthreads();
#pragma unroll 1
        for (int32_t at = threadIdx.x; at < rows * parts; at += THREADS) {
            const int32_t row = at / parts;
            const int c = at % parts * 4;
            const int32_t from = c < HAND ? row : row + 8; /* of the handover */
            if (first + c >= D_VO)
                continue;
            float m = -INFINITE, l = 0, x[4] = {};
#pragma unroll
            for (int i = 0; i < WARPS; i++)
                m = fmaxf(m, s.warp_ml[i][row][0]);
#pragma unroll
            for (int i = 0; i < WARPS; i++) {
                const float own = s.warp_ml[i][row][0];
                const float weight = own == -INFINITE ? 0.0f : exp2_fast(own - m);
                const float4 part =
                    *reinterpret_cast<const float4 *>(&h[i][from][c < HAND ? c : c - HAND]);
                l += s.warp_ml[i][row][1] * weight;
                x[0] = fmaf(part.x, weight, x[0]);
                x[1] = fmaf(part.y, weight, x[1]);
                x[2] = fmaf(part.z, weight, x[2]);
                x[3] = fmaf(part.w, weight, x[3]);
            }
            if (w.slot < 0) {
                put_out(finish(p, w, row, m, l, first + c == 0), first + c, x);
                continue;
            }
            const int64_t slot_row = slot_row_of(p, w.slot, row);
            if (first + c == 0)
                put_slot_ml(p, slot_row, m, l);
            store(p.partial_o + slot_row * D_VO + first + c,
                  pack<float, 4>{x[0], x[1], x[2], x[3]});
        }
    }
    if constexpr (DQ != D_QK || DV != D_VO) {
        __syncthreads();
        clear_padding(stage);
    }
}

void write_item(const params &p, const work &w, int32_t rows, const rows_state &r,
                unsigned char *stage, shared_memory &s) {
    if constexpr (SHARED_ROWS)
        write_shared_rows(p, w, rows, r, stage, s);
    else
        write_own_rows(p, w, rows, r);
    if (w.slot >= 0 && !(p.flags & BOLIDE__ATTN_APART))
        arrive(p, w, rows, s.is_last);
}

#endif
