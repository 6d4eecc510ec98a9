// SPDX-License-Identifier: Apache-2.0
//
// Rows in the registers of attention_sm90.cu: which keys they see, weights, the last step and the
// output. A thread has two rows of its warpgroup's 64. Included by that file only, behind its
// constants and its shared memory.

#ifndef BOLIDE_OPS_ATTENTION_SM90_ROWS_CUH
#define BOLIDE_OPS_ATTENTION_SM90_ROWS_CUH

enum named { ORDER = 1, OWN = ORDER + GROUPS }; /* numbers of barriers, one a warpgroup */

constexpr float NO_BASE = -1.2676506e30f; /* −2^100: beside it any logit is too large */

struct rows_state {
    float m[2];                  /* base of the weights, in powers of two */
    float l[2];                  /* this thread's part of the sum of weights */
    float scale[2];              /* of the products; with a cap the logits come to units of it */
    int32_t low[2], high[2];     /* keys that the row sees */
    int32_t open_low, open_high; /* keys that every row of the warpgroup sees */
};

/* Row of the tile of a thread's i-th. */
int32_t row_of(int group, int i) {
    return group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * i;
}

/* Where rows of q are boxes, the group is a power of two. */
int32_t token_of(const bolide__attention_params &p, const work &w, int32_t row) {
    const uint32_t at = (uint32_t)(w.row + row), group = (uint32_t)p.group;
    return (int32_t)(Q_BOX ? at >> (__ffs((int)group) - 1) : at / group);
}

int32_t head_of(const bolide__attention_params &p, const item &it, int32_t row) {
    const uint32_t at = (uint32_t)(it.w.row + row), group = (uint32_t)p.group;
    return it.head * (int32_t)group + (int32_t)(Q_BOX ? at & (group - 1) : at % group);
}

float scale_of(const bolide__attention_scale &s, int64_t head) {
    return s.tensor ? s.tensor[head * s.step] : (float)s.number;
}

/* Whether no row of the warpgroup sees the second half of an item's first tile. */
bool sees_half(const bolide__attention_params &p, const item &it, int group) {
    if constexpr (!HALVES)
        return false;
    const int32_t end = high_of(p, it.w, token_of(p, it.w, group * 64 + 63));
    return of_warp(end - it.last * KEYS <= KEYS / 2);
}

void begin_rows(const params &a, const item &it, int group, rows_state &r) {
    const bolide__attention_params &p = a.p;
    float common = 0;
    if (!a.plain)
        common = (float)p.sm_scale * scale_of(p.k_scale, it.head) *
                 (CAPPED ? 1.0f / (float)p.soft_cap : LOG2E);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = row_of(group, i), token = token_of(p, it.w, row);
        r.m[i] = NO_BASE;
        r.l[i] = 0;
        r.scale[i] = a.plain ? a.in : common * scale_of(p.q_scale, head_of(p, it, row));
        /* A scale of 0 would turn a masked key's infinity into NaN. */
        if constexpr (!CAPPED && !SIGNED)
            r.scale[i] = fmaxf(r.scale[i], 1e-36f);
        r.low[i] = low_of(p, it.w, token);
        r.high[i] = high_of(p, it.w, token);
    }
    r.open_high = high_of(p, it.w, token_of(p, it.w, group * 64));
    r.open_low = low_of(p, it.w, token_of(p, it.w, group * 64 + 63));
}

/* Where the rows of a tile are not one box, each warpgroup copies its own. Rows behind the last of
 * the request are zeros. */
void load_own_queries(const bolide__attention_params &p, const item &it,
                      unsigned char (&q)[Q_BLOCKS][Q_BLOCK], int group) {
    const int32_t rows = it.w.q_len * (int32_t)p.group - it.w.row;
    const int thread = threadIdx.x % 128;
#pragma unroll 4
    for (int i = thread; i < 64 * Q_BLOCKS * 8; i += 128) {
        const int32_t row = group * 64 + i / (Q_BLOCKS * 8);
        const int piece = i % (Q_BLOCKS * 8), column = piece * (16 / SIZE);
        uint4 x = {};
        if (row < rows && column < D_QK)
            x = *reinterpret_cast<const uint4 *>(static_cast<const half *>(p.q) +
                                                 ((int64_t)it.w.q_start + token_of(p, it.w, row)) *
                                                     p.q_n +
                                                 head_of(p, it, row) * p.q_h + column);
        *reinterpret_cast<uint4 *>(q[piece / 8] + row * 128 + ((piece ^ row) & 7) * 16) = x;
    }
    /* Ordinary stores, read by wgmma of all four warps. */
    fence_async_shared();
    named_sync(OWN + group, 128);
}

/* ---- weights ----------------------------------------------------------------------------------
 */

/* Key of element i, apart from the tile's first and the thread's column. */
constexpr int key_of(int i) {
    return i / 4 * 8 + i % 2;
}

/* Products become logits whose order is that of |scale| times them. */
template <int TO = KEYS / 2>
void bend(const bolide__attention_params &p, const rows_state &r, float (&x)[KEYS / 2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if constexpr (CAPPED) {
#pragma unroll
            for (int e = 0; e < TO; e++) {
                if (e / 2 % 2 == i)
                    x[e] = tanh_exact(x[e] * r.scale[i]) * ((float)p.soft_cap * LOG2E);
            }
        } else if (SIGNED && r.scale[i] < 0) {
#pragma unroll
            for (int e = 0; e < TO; e++) {
                if (e / 2 % 2 == i)
                    x[e] = -x[e];
            }
        }
    }
}

/* Bit j stands for a thread's j-th logit of a row, whose key is j / 2 * 8 + j % 2: those of keys
 * before `end`. */
uint32_t bits_before(int32_t end) {
    const int32_t count = end / 8 * 2 + smaller(end % 8, 2);
    return end <= 0 ? 0 : count >= 32 ? 0xffffffffu : (1u << count) - 1;
}

/* Elements [FROM, TO), whose first key stands at `first`. By bits there are a third fewer
 * instructions; the kernels that wait for their products are slower with it by 1 %. */
template <int FROM, int TO> void mask(const rows_state &r, int32_t first, float (&x)[KEYS / 2]) {
    const int32_t own = first - key_of(FROM) + (int32_t)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if constexpr (MASKS_BY_BITS) {
            const uint32_t seen = bits_before(r.high[i] - own) & ~bits_before(r.low[i] - own);
#pragma unroll
            for (int e = FROM; e < TO; e++) {
                if (e / 2 % 2 == i && !(seen >> (e / 4 * 2 + e % 2) & 1))
                    x[e] = -INFINITE;
            }
        } else {
            const int32_t low = r.low[i] - own, high = r.high[i] - own;
#pragma unroll
            for (int e = FROM; e < TO; e++) {
                if (e / 2 % 2 == i && (key_of(e) < low || key_of(e) >= high))
                    x[e] = -INFINITE;
            }
        }
    }
}

/* Products become logits, those of keys that a row does not see the least; of elements up to TO. */
template <int TO>
void prepare(const bolide__attention_params &p, const rows_state &r, int32_t first,
             float (&x)[KEYS / 2]) {
    bend<TO>(p, r, x);
    if (first < r.open_low || first + 2 * TO > r.open_high)
        mask<0, TO>(r, first, x);
}

/* The boxes from element FROM on. */
template <int FROM>
void mask_boxes(const rows_state &r, const int32_t *columns, float (&x)[KEYS / 2]) {
    const int32_t first = of_warp(*columns);
    if (first < r.open_low || first + BOX > r.open_high)
        mask<FROM, FROM + BOX / 2>(r, first, x);
    if constexpr (FROM + BOX / 2 < KEYS / 2)
        mask_boxes<FROM + BOX / 2>(r, columns + 1, x);
}

/* The same where each box has a place of its own. */
void prepare(const bolide__attention_params &p, const rows_state &r, const int32_t *columns,
             float (&x)[KEYS / 2]) {
    bend(p, r, x);
    if constexpr (BOX % 8 == 0)
        mask_boxes<0>(r, columns, x);
}

/* Largest logit of a row in a tile, in powers of two. */
template <int TO = KEYS / 2> float largest(const float (&x)[KEYS / 2], int i, float scale) {
    float top[2] = {x[2 * i], x[2 * i + 1]};
#pragma unroll
    for (int e = 4; e < TO; e += 4) {
        top[0] = fmaxf(top[0], x[e + 2 * i]);
        top[1] = fmaxf(top[1], x[e + 2 * i + 1]);
    }
    return lanes_max<4>(fmaxf(top[0], top[1])) * scale;
}

/* What logits are multiplied by once their order is right. */
float size_of(const rows_state &r, int i) {
    return CAPPED ? 1.0f : SIGNED ? fmaxf(fabsf(r.scale[i]), 1e-36f) : r.scale[i];
}

/* Four weights, whose products the next instruction takes: pairs of 16 bits, or fours of 8, whose
 * keys are 8 apart by twos; the values lie in the same order. */
void pack_weights(uint32_t (&to)[WORDS], int e, const float (&w)[8]) {
    if constexpr (SIZE == 2) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[e / 2 + i] = floats_to_halves<out_elem>(w[2 * i], w[2 * i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++)
            to[e / 4 + i] = floats_to_e4m3x2(w[2 * i], w[2 * i + 1]) |
                            (uint32_t)floats_to_e4m3x2(w[2 * i + 4], w[2 * i + 5]) << 16;
    }
}

/* Weights at the bases that rows have, as the next product takes them, and this thread's sums. From
 * element TO on they are 0. */
template <int TO = KEYS / 2>
void weigh(const rows_state &r, const float (&x)[KEYS / 2], uint32_t (&to)[WORDS],
           float (&sum)[2]) {
    const float scale[2] = {size_of(r, 0), size_of(r, 1)};
    float part[2][2] = {};
#pragma unroll
    for (int e = 0; e < TO; e += 8) {
        float w[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            w[i] = exp2_fast(fmaf(x[e + i], scale[i / 2 % 2], -r.m[i / 2 % 2]));
            part[i / 2 % 2][i % 2] += w[i];
        }
        pack_weights(to, e, w);
    }
#pragma unroll
    for (int i = TO * WORDS / (KEYS / 2); i < WORDS; i++)
        to[i] = 0;
    sum[0] = part[0][0] + part[0][1];
    sum[1] = part[1][0] + part[1][1];
}

/* The products of an item's first tile: each row's base is its largest logit. */
template <int TO>
void soften_first(rows_state &r, const float (&x)[KEYS / 2], uint32_t (&to)[WORDS]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float most = largest<TO>(x, i, size_of(r, i));
        r.m[i] = most == -INFINITE ? NO_BASE : most - BELOW;
    }
    weigh<TO>(r, x, to, r.l);
}

void soften_first(rows_state &r, const float (&x)[KEYS / 2], uint32_t (&to)[WORDS], bool half) {
    if (HALVES && half)
        soften_first<KEYS / 4>(r, x, to);
    else
        soften_first<KEYS / 2>(r, x, to);
}

/* Of a later tile, whose products `prepare` has seen. Weights are taken at the bases that rows
 * have; where their sum tells that one may be too large, or there was no key before, the row gets a
 * new base, and what it has summed so far is brought to it. Each row decides on its own, so that
 * its bits do not depend on its neighbours. */
void soften(rows_state &r, const float (&x)[KEYS / 2], uint32_t (&to)[WORDS], float (&o)[DV / 2]) {
    float sum[2];
    weigh(r, x, to, sum);
    const bool over[2] = {!(sum[0] <= MOST), !(sum[1] <= MOST)};
    if (__any_sync(0xffffffffu, over[0] | over[1])) {
        float weight[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t lanes = __ballot_sync(0xffffffffu, over[i]);
            const float most = largest(x, i, size_of(r, i));
            const bool raised = lanes >> (threadIdx.x & 28) & 15;
            const float m = !raised || most == -INFINITE ? r.m[i] : most - BELOW;
            weight[i] = exp2_fast(r.m[i] - m);
            r.l[i] *= weight[i];
            r.m[i] = m;
        }
#pragma unroll
        for (int e = 0; e < DV / 2; e++)
            o[e] *= weight[e / 2 % 2];
        weigh(r, x, to, sum);
    }
    r.l[0] += sum[0];
    r.l[1] += sum[1];
}

/* ---- the end of an item -----------------------------------------------------------------------
 */

/* Division, sink, scales, lse: what a thread's rows of sums are multiplied by. One without a key is
 * 0. */
void settle(const params &a, const item &it, int group, const rows_state &r, float (&factor)[2]) {
    const bolide__attention_params &p = a.p;
    float l[2] = {lanes_sum<4>(r.l[0]), lanes_sum<4>(r.l[1])};
    if (a.plain) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            factor[i] = l[i] == 0 ? 0.0f : rcp_fast(l[i]) * a.out_scale;
        return;
    }
    const int32_t rows = it.w.q_len * (int32_t)p.group - it.w.row;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = row_of(group, i);
        const int32_t token = token_of(p, it.w, row), head = head_of(p, it, row);
        float m = r.m[i], weight = 1;
        if (p.sinks && row < rows) {
            const float sink = p.sinks[head * p.sink_h] * LOG2E;
            const float top = fmaxf(m, sink);
            weight = exp2_fast(m - top);
            l[i] = l[i] * weight + exp2_fast(sink - top);
            m = top;
        }
        if (p.lse && row < rows && threadIdx.x % 4 == 0) {
            const float lse = m + log2f(l[i]);
            p.lse[((int64_t)it.w.q_start + token) * p.lse_n + head * p.lse_h] =
                p.flags & BOLIDE__ATTN_LSE_BASE_E ? lse * LN2 : lse;
        }
        factor[i] = l[i] == 0 ? 0.0f
                              : weight * rcp_fast(l[i]) * scale_of(p.v_scale, it.head) *
                                    rcp_fast(scale_of(p.o_scale, 0));
    }
}

/* Eight columns of a row. */
void write_words(out_elem *out, bool wide, const uint32_t (&w)[4]) {
    if (wide) {
        store(out, words<16>{w[0], w[1], w[2], w[3]});
        return;
    }
#pragma unroll
    for (int c = 0; c < 8; c++)
        out[c] = out_elem{(uint16_t)(w[c / 2] >> c % 2 * 16)};
}

/* A thread's pieces of 16 bytes of a row: piece j begins at column 32 * j + 8 * (lane % 4). All are
 * made before the first is stored: the exchanges of one hide behind those of the others. */
void write_pieces(out_elem *out, int i, float factor, bool there, bool wide,
                  const float (&o)[DV / 2]) {
    uint32_t w[DV / 32][4];
#pragma unroll
    for (int j = 0; j < DV / 32; j++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int e = 16 * j + 4 * c + 2 * i;
            w[j][c] = floats_to_halves<out_elem>(o[e] * factor, o[e + 1] * factor);
        }
        exchange_words(w[j]);
    }
    const int columns = there ? D_VO - 8 * (int)(threadIdx.x % 4) : 0;
#pragma unroll
    for (int j = 0; j < DV / 32; j++) {
        if (32 * j < columns)
            write_words(out + 8 * (threadIdx.x % 4) + 32 * j, wide, w[j]);
    }
}

/* A row where a thread's columns are fours of 16, as turned values have them. */
void write_fours(out_elem *out, int i, float factor, bool there, bool wide,
                 const float (&o)[DV / 2]) {
    if (!there)
        return;
    out += 4 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < DV / 16; j++) {
        const int e = 8 * j + 2 * i;
        const uint32_t w[2] = {floats_to_halves<out_elem>(o[e] * factor, o[e + 4] * factor),
                               floats_to_halves<out_elem>(o[e + 1] * factor, o[e + 5] * factor)};
        if (wide) {
            store(out + 16 * j, words<8>{w[0], w[1]});
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++)
                out[16 * j + c] = out_elem{(uint16_t)(w[c / 2] >> c % 2 * 16)};
        }
    }
}

/* A warp's 16 rows by the copy engine; they are all there. */
void store_rows(const params &a, const item &it, int group, const float (&factor)[2],
                const float (&o)[DV / 2]) {
    constexpr int ROW = 128 / sizeof(out_elem); /* columns of a block */
    const int lane = threadIdx.x % 32, first = group * 64 + threadIdx.x % 128 / 32 * 16;
    /* Matrix m of four: rows from 8 (m % 2) on, columns from 8 (m / 2) on. */
    const uint32_t to = shared_address(dynamic) + (first + lane % 16) * 128;
    const uint32_t piece = (lane / 16 ^ lane % 8) * 16;
    if (lane == 0)
        await_sources(); /* of the rows before */
    __syncwarp();
#pragma unroll
    for (int j = 0; j < DV / 16; j++) {
        uint32_t w[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const int e = 8 * j + 4 * (m / 2) + 2 * (m % 2);
            w[m] = floats_to_halves<out_elem>(o[e] * factor[m % 2], o[e + 1] * factor[m % 2]);
        }
        store_matrices(to + j / 4 * Q_BLOCK + (piece ^ j % 4 * 32), w);
    }
    /* Ordinary stores, read by the copy engine. */
    fence_async_shared();
    __syncwarp();
    if (lane == 0) {
        const int32_t token = it.w.o_start + token_of(a.p, it.w, first);
#pragma unroll
        for (int b = 0; b < V_BLOCKS; b++)
            store_box(a.out, dynamic + b * Q_BLOCK + first * 128, ROW * b, 0, it.head, token);
        commit_stores();
    }
    __syncwarp();
}

/* Rows of out. The copy engine would write behind a request's last row, so where there are fewer
 * than the warpgroup's 64 each thread writes its own. */
void write_rows(const params &a, const item &it, int group, const rows_state &r,
                const float (&o)[DV / 2]) {
    const bolide__attention_params &p = a.p;
    const int32_t rows = it.w.q_len * (int32_t)p.group - it.w.row;
    float factor[2];
    settle(a, it, group, r, factor);
    if constexpr (STORES) {
        if (a.stores && of_warp(rows) >= group * 64 + 64) {
            store_rows(a, it, group, factor, o);
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = row_of(group, i);
        out_elem *out = static_cast<out_elem *>(p.out) +
                        ((int64_t)it.w.o_start + token_of(p, it.w, row)) * p.out_n +
                        head_of(p, it, row) * p.out_h;
        if constexpr (SIZE == 2)
            write_pieces(out, i, factor[i], row < rows, a.wide, o);
        else
            write_fours(out, i, factor[i], row < rows, a.wide, o);
    }
}

/* ---- tiles in several pieces -------------------------------------------------------------------
 *
 * What a thread has of a piece lies in the piece's slot in fours, so that a warp's are 512 bytes.
 * A warp counts its rows of a piece in; the one that is the last for these rows of the tile joins
 * them, in the order of the keys, and none waits for another.
 */

constexpr int divisor_of(int n, int most) {
    return n % most == 0 ? most : divisor_of(n, most - 1);
}

constexpr int FOURS = D_VO / 8;                      /* of a thread's sums */
constexpr int FOURS_AT_ONCE = divisor_of(FOURS, 16); /* that come together */

int64_t slot_row_of(const bolide__attention_params &p, const item &it, int32_t slot, int group) {
    return ((int64_t)slot * p.h_kv + it.head) * ROWS + group * 64;
}

float *fours_of(const bolide__attention_params &p, int64_t slot_row) {
    return p.partial_o + slot_row * D_VO + threadIdx.x % 128 * 4;
}

void leave_piece(const bolide__attention_params &p, const item &it, int group, const rows_state &r,
                 const float (&o)[DV / 2]) {
    const int64_t slot_row = slot_row_of(p, it, it.w.slot, group);
    float *to = fours_of(p, slot_row);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float l = lanes_sum<4>(r.l[i]);
        if (threadIdx.x % 4 == 0)
            store(p.partial_ml + 2 * (slot_row + row_of(0, i)), pack<float, 2>{r.m[i], l});
    }
#pragma unroll
    for (int j = 0; j < FOURS; j++)
        store(to + j * 512, pack<float, 4>{o[4 * j], o[4 * j + 1], o[4 * j + 2], o[4 * j + 3]});
}

/* Counts this warp's rows of a piece in; whether those of all others are there. */
bool is_last_piece(const bolide__attention_params &p, const item &it, int group) {
    int32_t before = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        const int32_t warp = group * 4 + (int32_t)threadIdx.x % 128 / 32;
        int32_t *arrived = p.arrivals + ((int64_t)it.w.merge * p.h_kv + it.head) * WARPS + warp;
        /* Behind what the warp has written, before what it reads then. */
        asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(arrived)
                     : "memory");
        if (before == it.w.merge_count - 1)
            *arrived = 0; /* for the next run */
    }
    return __shfl_sync(0xffffffffu, before, 0) == it.w.merge_count - 1;
}

/* A thread's part of a piece: of two rows, and of some of their columns. */
struct piece {
    pack<float, 2> ml[2];
    pack<float, 4> sums[FOURS_AT_ONCE];
};

piece read_piece(const bolide__attention_params &p, int64_t slot_row, int first) {
    piece x;
#pragma unroll
    for (int i = 0; i < 2; i++)
        x.ml[i] = load_written<pack<float, 2>>(p.partial_ml + 2 * (slot_row + row_of(0, i)));
#pragma unroll
    for (int j = 0; j < FOURS_AT_ONCE; j++)
        x.sums[j] = load_written<pack<float, 4>>(fours_of(p, slot_row) + (first + j) * 512);
    return x;
}

/* Adds the pieces up, each brought to the largest base so far. */
void join_pieces(const bolide__attention_params &p, const item &it, int group, rows_state &r,
                 float (&o)[DV / 2]) {
    const int64_t step = p.h_kv * ROWS;
#pragma unroll
    for (int first = 0; first < FOURS; first += FOURS_AT_ONCE) {
        int64_t slot_row = slot_row_of(p, it, it.w.merge_slot, group);

#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.m[i] = NO_BASE;
            r.l[i] = 0;
        }
#pragma unroll
        for (int e = 4 * first; e < 4 * (first + FOURS_AT_ONCE); e++)
            o[e] = 0;
#pragma unroll 1
        for (int32_t left = it.w.merge_count; left > 0; left--) {
            const piece now = read_piece(p, slot_row, first);
            slot_row += step;
            float old[2], own[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float m = fmaxf(r.m[i], now.ml[i].at[0]);
                old[i] = exp2_fast(r.m[i] - m);
                own[i] = exp2_fast(now.ml[i].at[0] - m);
                r.m[i] = m;
                r.l[i] = fmaf(r.l[i], old[i], now.ml[i].at[1] * own[i]);
            }
#pragma unroll
            for (int j = 0; j < FOURS_AT_ONCE; j++) {
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    float &sum = o[4 * (first + j) + c];
                    sum = fmaf(sum, old[c / 2], now.sums[j].at[c] * own[c / 2]);
                }
            }
        }
    }
    /* All four lanes of a row have its sum. */
#pragma unroll
    for (int i = 0; i < 2; i++)
        r.l[i] *= 0.25f;
}

/* The end of an item: of a whole tile, or of a piece. */
void end_rows(const params &a, const item &it, int group, rows_state &r, float (&o)[DV / 2]) {
    const bolide__attention_params &p = a.p;
    if (CUT && of_warp(it.w.slot) >= 0) {
        leave_piece(p, it, group, r, o);
        if (!is_last_piece(p, it, group))
            return;
        join_pieces(p, it, group, r, o);
    }
    write_rows(a, it, group, r, o);
}

#endif
