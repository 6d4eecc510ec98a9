// SPDX-License-Identifier: Apache-2.0
//
// The Gumbel-max trick: noise for each logit from its own random word, and the largest sum wins.
// Arithmetic is the limit: ten rounds of Philox for four elements and two logarithms each. On the
// GPU most elements need only the upper half of their word, so two share the word of a block.

#include "ops/sampling/select.h"

/* -log(-log1p(-v)) for v in (0, 1 - 2^-24]. log1p goes through the log of the rounded 1 - v and
 * what the rounding lost, so that small v, the large noise, keep their relative precision. */
BOLIDE_INLINE f32x16 noise16(i32x16 word) {
    const f32x16 one = f32_set(1.0f);
    const f32x16 v = f32_min(philox_unit16(word), f32_set(0x1.fffffep-1f));
    const f32x16 w = f32_sub(one, v);
    const f32x16 lost = f32_sub(f32_sub(one, w), v);
    return f32_neg(f32_log(f32_neg(f32_add(f32_log(w), f32_div(lost, w)))));
}

/* The words of 64 elements in their order. */
BOLIDE_INLINE void words64(uint64_t seed, uint64_t offset, uint64_t block, i32x16 word[4]) {
    i32x16 w[4];
    f32x16 even[2], odd[2], out[4];
    philox16(seed, offset, block, w);
    f32_interleave(i32_as_f32(w[0]), i32_as_f32(w[2]), &even[0], &even[1]);
    f32_interleave(i32_as_f32(w[1]), i32_as_f32(w[3]), &odd[0], &odd[1]);
    f32_interleave(even[0], odd[0], &out[0], &out[1]);
    f32_interleave(even[1], odd[1], &out[2], &out[3]);
    for (int i = 0; i < 4; i++)
        word[i] = f32_bits(out[i]);
}

typedef struct best {
    f32x16 score;
    i32x16 index;
} best;

/* Sixteen more elements; an equal score does not displace an earlier one of the lane. */
BOLIDE_INLINE void offer16(best *b, f32x16 score, int64_t first) {
    const mask16 m = f32_gt(score, b->score);
    b->score = f32_select(m, score, b->score);
    b->index = i32_select(m, i32_add(i32_set((int32_t)first), i32_iota()), b->index);
}

/* The upper halves of two words, one above the other, or the lower ones. */
BOLIDE_INLINE i32x16 halves(i32x16 upper, i32x16 lower, int second) {
    return second ? i32_or(i32_shl(upper, 16), i32_and(lower, i32_set(0xffff)))
                  : i32_or(i32_and(upper, i32_set((int32_t)0xffff0000)), i32_shr(lower, 16));
}

/* Elements of a tile in groups of 256, whose halves share their words: those behind the row are
 * -inf and never win. */
static void offer_tile(best *b, const float *x, int64_t begin, int64_t n, uint64_t seed,
                       uint64_t offset, uint64_t row) {
    enum { HALF = 128, VECTORS = HALF / BOLIDE_LANES };
    for (int64_t i = 0; i < n; i += 2 * HALF) {
        const uint64_t block = row << 32 | (uint64_t)(begin + i) / 8;
        i32x16 upper[VECTORS], lower[VECTORS];
        for (int q = 0; q < 2; q++) {
            words64(seed, offset, block + 16 * (uint64_t)q, upper + 4 * q);
            words64(seed, offset, (block + 16 * (uint64_t)q) | 1u << 31, lower + 4 * q);
        }
        for (int j = 0; j < 2 * VECTORS && i + j * BOLIDE_LANES < n; j++) {
            const int64_t at = i + j * BOLIDE_LANES;
            const i32x16 word = halves(upper[j % VECTORS], lower[j % VECTORS], j >= VECTORS);
            offer16(b, f32_add(f32_load(x + at), noise16(word)), begin + at);
        }
    }
}

static int64_t winner(const best *b) {
    const float top = f32_hmax(b->score);
    const mask16 m = f32_eq(b->score, f32_set(top));
    return i32_hmin(i32_select(m, b->index, i32_set(INT32_MAX)));
}

void BOLIDE_ISA(gumbel_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__sample_params *p = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = p->indices ? bolide__id_at(p->indices, p->indices_dtype, i) : i;
        best b = {f32_set(-INFINITY), i32_zero()};
        float x[TILE];
        const bool inside = row >= 0 && row < p->n;
        const select_row r = {.data = dtype_at(p->input, p->dtype, inside ? row * p->input_n : 0),
                              .dtype = p->dtype,
                              .v = inside ? p->v : 0,
                              .kind = ROW_LOGITS};
        const uint64_t seed = (uint64_t)bolide__row_int(&p->seed, i);
        const uint64_t offset = (uint64_t)bolide__row_int(&p->offset, i);
        for (int64_t at = 0; at < r.v; at += TILE) {
            const int64_t n = r.v - at < TILE ? r.v - at : TILE;
            select_tile(&r, at, n, x);
            offer_tile(&b, x, at, n, seed, offset, (uint64_t)i);
        }
        bolide__id_put(p->samples, p->id_dtype, i, winner(&b));
    }
}
