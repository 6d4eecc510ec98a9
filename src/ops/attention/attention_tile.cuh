// SPDX-License-Identifier: Apache-2.0
//
// One tile of attention.cu in a warp's registers: operands from shared memory, logits, weights,
// sums. Included by attention.cu only, behind its constants.
//
// Rows of 128 bytes and multiples of it are laid out with their 16-byte pieces exchanged by the
// row's number, others take an odd number of pieces: either way 8 rows meet all banks. Rows that
// the copy engine brings lie in blocks of 128 bytes of BLOCK_ROWS rows.
//
// 8-bit keys and values come through the same matrix loads as 16-bit ones, two to an element. A
// thread then holds columns 4t to 4t + 3 where a product wants 2t, 2t + 1, 2t + 8 and 2t + 9. For
// keys the columns of Q are exchanged to match; for values the columns of the sums are, which
// column_of() undoes.

#ifndef BOLIDE_OPS_ATTENTION_TILE_CUH
#define BOLIDE_OPS_ATTENTION_TILE_CUH

/* ---- rows of shared memory --------------------------------------------------------------------
 */

template <int PIECES> constexpr int row_bytes() {
    return (PIECES % 8 == 0 ? PIECES : PIECES | 1) * 16;
}

/* From a row to the next, and from 8 pieces of it to the next 8, which in blocks are apart. */
template <int PIECES> constexpr int row_step() {
    return BLOCK_ROWS ? 128 : row_bytes<PIECES>();
}
constexpr int BLOCK_STEP = BLOCK_ROWS ? 128 * BLOCK_ROWS : 128;

/* Byte of a 16-byte piece of a row. */
template <int PIECES> int spot(int row, int piece) {
    if constexpr (BLOCK_ROWS)
        return piece / 8 * BLOCK_STEP + row * 128 + (piece % 8 ^ (row & 7)) * 16;
    else
        return row * row_bytes<PIECES>() + (PIECES % 8 == 0 ? piece ^ (row & 7) : piece) * 16;
}

/* ---- whose rows and keys ------------------------------------------------------------------------
 */

/* First key of the warp in a tile. */
int own_keys() {
    return SHARED_ROWS && !OWN_TILES ? threadIdx.x / 32 * (8 * NT) : 0;
}

int first_row() {
    return SHARED_ROWS ? 0 : threadIdx.x / 32 * (16 * MT);
}

/* Row of the tile of a thread's i-th of the mt-th 16. */
int row_of(int mt, int i) {
    return first_row() + mt * 16 + threadIdx.x % 32 / 4 + 8 * i;
}

/* ---- operands ---------------------------------------------------------------------------------
 */

/* Where a lane's part of matrix loads lies, from one to the next: each takes two pieces of 16 rows.
 * Pieces that are exchanged by the row's number come back to the same places after four loads,
 * others follow each other. The compiler is not told how the places came about: it would work out
 * each of them anew instead of keeping them. */
template <int PIECES> struct walk {
    static constexpr int PLACES = PIECES % 8 == 0 ? 4 : 1;
    uint32_t at[PLACES]; /* shared addresses */
};

template <int PIECES> walk<PIECES> walk_from(const unsigned char *rows, int row, int piece) {
    walk<PIECES> w;
#pragma unroll
    for (int i = 0; i < walk<PIECES>::PLACES; i++) {
        w.at[i] = shared_address(rows + spot<PIECES>(row, piece + 2 * i));
        asm volatile("" : "+r"(w.at[i]));
    }
    return w;
}

/* The load at two times `step` pieces, for rows that lie `rows` further, a multiple of 8. Without
 * `both` the second piece is not there: half of the matrices. */
template <bool TURNED, int PIECES>
void load_along(uint32_t (&r)[4], const walk<PIECES> &w, int rows, int step, bool both = true) {
    constexpr int PLACES = walk<PIECES>::PLACES;
    const uint32_t at = w.at[step % PLACES] + rows * row_step<PIECES>() +
                        step / PLACES * (PLACES == 4 ? BLOCK_STEP : 32);
    if (both && TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
    else if (both)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at)
                     : "memory");
    else if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(at)
                     : "memory");
}

/* Two 8-bit values as two 16-bit ones. */
template <class T> uint32_t to_halves(uint32_t two) {
    const uint32_t f16s = same_type<T, e4m3> ? e4m3x2_to_f16x2((uint16_t)two)
                                             : (two & 0xff) << 8 | (two & 0xff00) << 16;
    if constexpr (same_type<half, f16>) {
        return f16s;
    } else {
        const float2_t x = f16x2_to_floats(f16s);
        return floats_to_halves<half>(x.x, x.y);
    }
}

/* Four 8-bit values as two words of two. */
template <class T> void four_to_halves(uint32_t &low, uint32_t &high, uint32_t four) {
    if constexpr (same_type<T, e4m3> && same_type<half, f16> && ARCH >= 89) {
        asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, l;\n\t"
            "cvt.rn.f16x2.e4m3x2 %1, h;\n\t}"
            : "=r"(low), "=r"(high)
            : "r"(four));
    } else {
        low = to_halves<T>(four & 0xffff);
        high = to_halves<T>(four >> 16);
    }
}

/* Columns of 16 keys that a load brings, and how many loads a row takes; the last of them may bring
 * half. */
constexpr int LOAD_COLUMNS = KV_BYTES == 2 ? 16 : 32;
constexpr int PARTS = LOAD_COLUMNS / 16;
constexpr int K_LOADS = (DQ + LOAD_COLUMNS - 1) / LOAD_COLUMNS;
constexpr int V_LOADS = (DV + LOAD_COLUMNS - 1) / LOAD_COLUMNS;

/* How many times 16 columns of a row of D the load at `step` brings. */
template <int D> constexpr int parts_of(int step) {
    return smaller(PARTS, D / 16 - step * PARTS);
}

/* A load of Q brings 16 columns. */
walk<Q_PIECES> q_walk(const unsigned char *q) {
    return walk_from<Q_PIECES>(q, first_row() + threadIdx.x % 16, threadIdx.x % 32 / 16);
}

walk<K_PIECES> k_walk(const unsigned char *k, int key) {
    const int lane = threadIdx.x % 32;
    return KV_BYTES == 2 ? walk_from<K_PIECES>(k, key + lane % 8 + lane / 16 * 8, lane / 8 % 2)
                         : walk_from<K_PIECES>(k, key + lane % 16, lane / 16);
}

walk<V_PIECES> v_walk(const unsigned char *v, int key) {
    return walk_from<V_PIECES>(v, key + threadIdx.x % 16, threadIdx.x % 32 / 16);
}

/* The operands of Q that go with the load of K at `step`. */
void q_operands(uint32_t (&a)[PARTS][MT][4], const walk<Q_PIECES> &q_at, int step) {
#pragma unroll
    for (int part = 0; part < parts_of<DQ>(step); part++) {
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
            load_along<false>(a[part][mt], q_at, mt * 16, step * PARTS + part);
    }
}

/* Of what a load brought, 16 keys by 16 columns of K: b[0], b[1] of the first 8 keys, b[2], b[3] of
 * the others. */
void k_operand(uint32_t (&b)[4], const uint32_t (&raw)[4], int part) {
#pragma unroll
    for (int i = 0; i < (KV_BYTES == 2 ? 4 : 2); i++) {
        if constexpr (KV_BYTES == 2)
            b[i] = raw[i];
        else
            four_to_halves<kv_elem>(b[2 * i], b[2 * i + 1], raw[2 * part + i]);
    }
}

/* The same of V: b[0], b[1] of the first 8 columns, b[2], b[3] of the others; of 8-bit values the
 * even and the odd columns. */
void v_operand(uint32_t (&b)[4], const uint32_t (&raw)[4], int part) {
#pragma unroll
    for (int i = 0; i < (KV_BYTES == 2 ? 4 : 2); i++) {
        if constexpr (KV_BYTES == 2)
            b[i] = raw[i];
        else /* two keys of two columns each: the two of a column next to each other */
            four_to_halves<kv_elem>(b[i], b[i + 2], __byte_perm(raw[2 * part + i], 0, 0x3120));
    }
}

/* ---- one tile ---------------------------------------------------------------------------------
 */

/* What a thread knows of its rows: g and g + 8 of each 16 of its warp. */
struct rows_state {
    float m[MT][2]; /* largest logit, base 2 */
    float l[MT][2]; /* this thread's part of the sum of weights */
    float o[MT][DV / 8][4];
};

/* The j-th pair of neighbouring columns that a thread has of row i, and where it begins. */
int column_of(int j) {
    const int t = threadIdx.x % 4;
    return KV_BYTES == 2 ? j * 8 + t * 2 : j / 2 * 16 + t * 4 + j % 2 * 2;
}

float2_t pair_of(const rows_state &r, int mt, int i, int j) {
    if constexpr (KV_BYTES == 2)
        return {r.o[mt][j][2 * i], r.o[mt][j][2 * i + 1]};
    else
        return {r.o[mt][j / 2 * 2][2 * i + j % 2], r.o[mt][j / 2 * 2 + 1][2 * i + j % 2]};
}

/* A row of Q that is FITTED comes to f16 by the power of two that brings its largest element, of
 * which `top` has the bits without the sign, to 2^14 or above; the scale of its logits makes up for
 * it. What falls below f16's normal numbers then is 2^28 times smaller than that element. */
int fit_exponent(uint32_t top) {
    return 14 + 127 - smaller(larger((int)(top >> 7), 27), 254);
}

float fit(uint32_t top) {
    return bits_float((uint32_t)(127 + fit_exponent(top)) << 23);
}

float unfit(uint32_t top) {
    return FITTED ? bits_float((uint32_t)(127 - fit_exponent(top)) << 23) : 1.0f;
}

/* What is the same for all tiles of an item, one a row in shared memory. */
struct row_facts {
    float scale; /* of the products */
    sight seen;
};

/* The facts are read behind a barrier. */
void begin_rows(const params &p, const work &w, rows_state &r, row_facts (&facts)[ROWS],
                const uint32_t (&tops)[ROWS]) {
    if (threadIdx.x < ROWS) {
        const int32_t row = threadIdx.x;
        facts[row] = {logit_scale(p, query_head(p, w, row)) * unfit(tops[row]),
                      sight_of(p, w, query_token(p, w, row))};
    }
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.m[mt][i] = -INFINITE;
            r.l[mt][i] = 0;
        }
#pragma unroll
        for (int n = 0; n < DV / 8; n++)
            r.o[mt][n][0] = r.o[mt][n][1] = r.o[mt][n][2] = r.o[mt][n][3] = 0;
    }
}

/* Products of the warp's rows with its keys. Operands are asked for one load ahead: a product that
 * waits for its own leaves the tensor cores idle. */
void products(const unsigned char *q, const unsigned char *k, float (&x)[MT][NT][4]) {
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
#pragma unroll
        for (int n = 0; n < NT; n++)
            x[mt][n][0] = x[mt][n][1] = x[mt][n][2] = x[mt][n][3] = 0;
    }
    constexpr int PAIRS = NT / 2, TURNS = K_LOADS * PAIRS;
    const walk<Q_PIECES> q_at = q_walk(q);
    const walk<K_PIECES> k_at = k_walk(k, own_keys());
    uint32_t a[2][PARTS][MT][4], raw[2][4];
    q_operands(a[0], q_at, 0);
    load_along<false>(raw[0], k_at, 0, 0, parts_of<DQ>(0) == PARTS);
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        const int step = i / PAIRS, n = i % PAIRS * 2, then = i + 1;
        if (then < TURNS)
            load_along<false>(raw[then % 2], k_at, then % PAIRS * 16, then / PAIRS,
                              parts_of<DQ>(then / PAIRS) == PARTS);
        if (n == 0 && step + 1 < K_LOADS)
            q_operands(a[(step + 1) % 2], q_at, step + 1);
#pragma unroll
        for (int part = 0; part < parts_of<DQ>(step); part++) {
            uint32_t b[4];
            k_operand(b, raw[i % 2], part);
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                mma_16x8x16<half>(x[mt][n], a[step % 2][part][mt], b[0], b[1]);
                mma_16x8x16<half>(x[mt][n + 1], a[step % 2][part][mt], b[2], b[3]);
            }
        }
    }
}

/* Where a row's scale is below 0 its products change their sign, so that with |scale| the largest
 * product has the largest logit. */
void turn_signs(const row_facts (&facts)[ROWS], float (&x)[MT][NT][4]) {
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (facts[row_of(mt, i)].scale >= 0)
                continue;
#pragma unroll
            for (int n = 0; n < NT; n++) {
                x[mt][n][2 * i] = -x[mt][n][2 * i];
                x[mt][n][2 * i + 1] = -x[mt][n][2 * i + 1];
            }
        }
    }
}

/* |scale| of a row; 0 itself would turn a masked key's infinity into NaN. */
float size_of(const row_facts (&facts)[ROWS], int row) {
    return fmaxf(fabsf(facts[row].scale), 1e-36f);
}

/* Cap and bias: products become logits in base 2. columns: of the keys from `first` on, with
 * PLACED. */
void bend(const params &p, const work &w, int32_t first, const int32_t *columns,
          const row_facts (&facts)[ROWS], float (&x)[MT][NT][4]) {
    const int32_t key = first + (int32_t)threadIdx.x % 4 * 2;
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = row_of(mt, i);
            const float scale = size_of(facts, row);
            const float slope = ALIBI ? slope_of(p, w, row) : 0.0f;
            const int32_t position = position_of(p, w, query_token(p, w, row));
#pragma unroll
            for (int n = 0; n < NT; n++) {
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    float y = x[mt][n][e] * scale;
                    if constexpr (CAPPED)
                        y = tanh_exact(y) * ((float)p.soft_cap * LOG2E);
                    const int32_t at = key + n * 8 + e % 2;
                    if constexpr (ALIBI)
                        y += slope * (float)((PLACED ? columns[at - first] : at) - position);
                    x[mt][n][e] = y;
                }
            }
        }
    }
}

/* Keys that a row does not see get −infinity. */
void mask(const params &p, const work &w, int32_t first, const int32_t *columns,
          const row_facts (&facts)[ROWS], float (&x)[MT][NT][4]) {
    const int32_t key = first + (int32_t)threadIdx.x % 4 * 2;
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const sight seen = facts[row_of(mt, i)].seen;
            const int32_t token = SPECIAL ? query_token(p, w, row_of(mt, i)) : 0;
#pragma unroll
            for (int n = 0; n < NT; n++) {
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    const int32_t at = key + n * 8 + e % 2;
                    bool visible = in_sight(w, seen, at, PLACED ? columns[at - first] : at);
                    if constexpr (SPECIAL)
                        visible = visible && in_mask(p, w, token, at);
                    if (!visible)
                        x[mt][n][e] = -INFINITE;
                }
            }
        }
    }
}

/* Turns logits into weights and brings the state to the new maximum. Calls ask(i) for each i below
 * MT * NT, in between. */
template <class F>
void soften(rows_state &r, const row_facts (&facts)[ROWS], float (&x)[MT][NT][4], const F &ask) {
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
        float top[2], base[2], weight[2], scale[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            scale[i] = BENT ? 1.0f : size_of(facts, row_of(mt, i));
            top[i] = -INFINITE;
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            ask(mt * NT + n);
            top[0] = fmaxf(top[0], fmaxf(x[mt][n][0], x[mt][n][1]));
            top[1] = fmaxf(top[1], fmaxf(x[mt][n][2], x[mt][n][3]));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 1));
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 2));
            top[i] = fmaxf(r.m[mt][i], top[i] * scale[i]);
            base[i] = top[i] == -INFINITE ? 0.0f : top[i];
            weight[i] = exp2_fast(r.m[mt][i] - base[i]);
        }
        /* Most tiles do not raise the maximum. */
        if (__any_sync(0xffffffffu, top[0] != r.m[mt][0] || top[1] != r.m[mt][1])) {
            r.l[mt][0] *= weight[0];
            r.l[mt][1] *= weight[1];
            r.m[mt][0] = top[0];
            r.m[mt][1] = top[1];
#pragma unroll
            for (int n = 0; n < DV / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    r.o[mt][n][e] *= weight[e / 2];
            }
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                x[mt][n][e] = exp2_fast(fmaf(x[mt][n][e], scale[e / 2], -base[e / 2]));
                r.l[mt][e / 2] += x[mt][n][e];
            }
        }
    }
}

void add_values(rows_state &r, const float (&x)[MT][NT][4], const unsigned char *v) {
    constexpr int TURNS = NT / 2 * V_LOADS;
    const walk<V_PIECES> v_at = v_walk(v, own_keys());
    uint32_t a[MT][4], raw[2][4];
    load_along<true>(raw[0], v_at, 0, 0, parts_of<DV>(0) == PARTS);
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        const int n = i / V_LOADS * 2, step = i % V_LOADS, then = i + 1;
        if (then < TURNS)
            load_along<true>(raw[then % 2], v_at, then / V_LOADS * 16, then % V_LOADS,
                             parts_of<DV>(then % V_LOADS) == PARTS);
#pragma unroll
        for (int j = 0; j < (step == 0 ? 4 * MT : 0); j++)
            a[j / 4][j % 4] = floats_to_halves<half>(x[j / 4][n + j % 4 / 2][j % 2 * 2],
                                                     x[j / 4][n + j % 4 / 2][j % 2 * 2 + 1]);
#pragma unroll
        for (int part = 0; part < parts_of<DV>(step); part++) {
            const int o = (step * PARTS + part) * 2;
            uint32_t b[4];
            v_operand(b, raw[i % 2], part);
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                mma_16x8x16<half>(r.o[mt][o], a[mt], b[0], b[1]);
                mma_16x8x16<half>(r.o[mt][o + 1], a[mt], b[2], b[3]);
            }
        }
    }
}

/* All of it for the tile of keys from `first` on. */
template <class F>
void compute_tile(const params &p, const work &w, int32_t rows, int32_t first,
                  const row_facts (&facts)[ROWS], rows_state &r, const unsigned char *q,
                  const unsigned char *k, const unsigned char *v, const int32_t *columns,
                  const F &ask) {
    float x[MT][NT][4];
    products(q, k, x);
    if (p.flags & BOLIDE__ATTN_SIGNED)
        turn_signs(facts, x);
    const int32_t own = first + own_keys();
    columns += own_keys();
    if constexpr (BENT)
        bend(p, w, own, columns, facts, x);
    if (!open_tile(p, w, first, rows))
        mask(p, w, own, columns, facts, x);
    soften(r, facts, x, ask);
    add_values(r, x, v);
}

#endif
