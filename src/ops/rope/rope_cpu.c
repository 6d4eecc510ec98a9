// SPDX-License-Identifier: Apache-2.0
//
// Turning q and k on the CPU. The cosines and sines of a token are laid out once for the pairing in
// use and serve all its heads. Both members of a pair are loaded before either is stored, so a
// head may be turned in place.

#include <stdbool.h>

#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/rope/rope_internal.h"

/* Factors of one token. Halves: cosine and sine of pair i at [i], or in the order of
 * bf16_load_pair. Interleaved: channel c is x[c] * cosine[c] + x[c ^ 1] * sine[c], the sign of the
 * first member's sine folded in. */
typedef struct turn {
    float cosine[2 * BOLIDE__ROPE_MAX_PAIRS];
    float sine[2 * BOLIDE__ROPE_MAX_PAIRS];
} turn;

/* Position of a token; false if it has none. */
static bool position_of(const bolide__rope_params *p, int64_t token, int64_t *position) {
    if (p->pos_ids) {
        *position = p->pos_is_i64 ? ((const int64_t *)p->pos_ids)[token]
                                  : ((const int32_t *)p->pos_ids)[token];
        return true;
    }
    if (p->b == 0 || token < p->indptr[0] || token >= p->indptr[p->b])
        return false;
    int64_t low = 0, high = p->b; /* the request has indptr[low] <= token < indptr[high] */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (p->indptr[middle] <= token)
            low = middle;
        else
            high = middle;
    }
    *position = p->offsets[low] + token - p->indptr[low];
    return true;
}

static void spread_pairs(turn *t, int64_t pairs) {
    for (int64_t i = pairs - 1; i >= 0; i--) {
        const float c = t->cosine[i], s = t->sine[i];
        t->cosine[2 * i] = t->cosine[2 * i + 1] = c;
        t->sine[2 * i] = -s;
        t->sine[2 * i + 1] = s;
    }
}

/* Whether halves of bf16 are taken 32 pairs at a time. */
static bool is_split(const bolide__rope_params *p) {
    return p->dtype == BOLIDE_BF16 && !p->interleave && p->rotary_dim % 64 == 0;
}

/* Of 32 values those with an even place, then the others. */
static void split_order(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i += 32) {
        float old[32];
        memcpy(old, x + i, sizeof old);
        for (int64_t k = 0; k < 16; k++) {
            x[i + k] = old[2 * k];
            x[i + 16 + k] = old[2 * k + 1];
        }
    }
}

/* False if the position lies outside the table. */
static bool find_turn(const bolide__rope_params *p, int64_t position, turn *t) {
    const int64_t pairs = p->rotary_dim / 2;
    if (p->cos_sin_cache) {
        if (position < 0 || position >= p->max_pos)
            return false;
        const float *row = p->cos_sin_cache + position * p->cache_stride;
        memcpy(t->cosine, row, (size_t)pairs * sizeof *row);
        memcpy(t->sine, row + pairs, (size_t)pairs * sizeof *row);
    } else {
        for (int64_t i = 0; i < pairs; i += BOLIDE_LANES) {
            f32x16 s, c;
            f64_sincos(f64_mul(f64_set((double)position), f64_load_n(p->freq + i, pairs - i)), &s,
                       &c);
            f32_store_n(t->cosine + i, c, pairs - i);
            f32_store_n(t->sine + i, s, pairs - i);
        }
    }
    if (p->interleave)
        spread_pairs(t, pairs);
    if (is_split(p)) {
        split_order(t->cosine, pairs);
        split_order(t->sine, pairs);
    }
    return true;
}

BOLIDE_INLINE void turn_halves(const char *in, char *out, const turn *t, int64_t pairs,
                               int64_t dtype) {
    const int64_t bytes = bolide__dtype_bytes(dtype);
    for (int64_t i = 0; i < pairs; i += BOLIDE_LANES) {
        const int64_t left = pairs - i;
        const f32x16 c = f32_load_n(t->cosine + i, left), s = f32_load_n(t->sine + i, left);
        const f32x16 a = load16_n(in + i * bytes, dtype, left);
        const f32x16 b = load16_n(in + (pairs + i) * bytes, dtype, left);
        store16_n(out + i * bytes, dtype, f32_sub(f32_mul(a, c), f32_mul(b, s)), left);
        store16_n(out + (pairs + i) * bytes, dtype, f32_add(f32_mul(b, c), f32_mul(a, s)), left);
    }
}

/* The same of bf16 with factors in split order. What lies `ahead` bytes further is fetched; with
 * stream the result goes past the caches. */
BOLIDE_INLINE void turn_split(const char *in, char *out, const turn *t, int64_t pairs,
                              int64_t ahead, bool stream) {
    for (int64_t i = 0; i < pairs; i += 2 * BOLIDE_LANES) {
        f32x16 a[2], b[2], low[2], high[2];
        bf16_load_pair(in + 2 * i, a);
        bf16_load_pair(in + 2 * (pairs + i), b);
        __builtin_prefetch((const void *)((uintptr_t)(in + 2 * i) + (uintptr_t)ahead));
        __builtin_prefetch((const void *)((uintptr_t)(in + 2 * (pairs + i)) + (uintptr_t)ahead));
        BOLIDE_UNROLL
        for (int k = 0; k < 2; k++) {
            const f32x16 c = f32_load(t->cosine + i + k * BOLIDE_LANES);
            const f32x16 s = f32_load(t->sine + i + k * BOLIDE_LANES);
            low[k] = f32_sub(f32_mul(a[k], c), f32_mul(b[k], s));
            high[k] = f32_add(f32_mul(b[k], c), f32_mul(a[k], s));
        }
        if (stream) {
            bf16_stream_pair(out + 2 * i, low);
            bf16_stream_pair(out + 2 * (pairs + i), high);
        } else {
            bf16_store_pair(out + 2 * i, low);
            bf16_store_pair(out + 2 * (pairs + i), high);
        }
    }
}

BOLIDE_INLINE void turn_interleaved(const char *in, char *out, const turn *t, int64_t channels,
                                    int64_t dtype) {
    const int64_t bytes = bolide__dtype_bytes(dtype);
    for (int64_t i = 0; i < channels; i += BOLIDE_LANES) {
        const int64_t left = channels - i;
        const f32x16 c = f32_load_n(t->cosine + i, left), s = f32_load_n(t->sine + i, left);
        const f32x16 x = load16_n(in + i * bytes, dtype, left);
        const f32x16 y = f32_add(f32_mul(x, c), f32_mul(f32_swap_pairs(x), s));
        store16_n(out + i * bytes, dtype, y, left);
    }
}

BOLIDE_INLINE void turn_side(const bolide__rope_params *p, const bolide__rope_side *s,
                             int64_t token, const turn *t, int64_t dtype, bool last) {
    const int64_t bytes = bolide__dtype_bytes(dtype);
    const char *in = (const char *)s->in + token * s->in_n * bytes;
    char *out = (char *)s->out + token * s->out_n * bytes;
    const int64_t turned = t ? p->rotary_dim : 0;
    const int64_t ahead = last ? 0 : s->in_n * bytes;
    const bool split = dtype == BOLIDE_BF16 && is_split(p);
    const bool large = p->n * (p->side[0].h + p->side[1].h) * p->d * bytes >= BOLIDE_STREAM_BYTES;
    for (int64_t h = 0; h < s->h; h++) {
        if (t && p->interleave)
            turn_interleaved(in, out, t, p->rotary_dim, dtype);
        else if (t && split)
            turn_split(in, out, t, p->rotary_dim / 2, ahead,
                       large && in != out && (uintptr_t)out % 64 == 0);
        else if (t)
            turn_halves(in, out, t, p->rotary_dim / 2, dtype);
        if (in != out && turned < p->d)
            memcpy(out + turned * bytes, in + turned * bytes, (size_t)((p->d - turned) * bytes));
        in += s->in_h * bytes;
        out += s->out_h * bytes;
    }
}

BOLIDE_INLINE void turn_tokens(const bolide__rope_params *p, int64_t begin, int64_t end,
                               int64_t dtype) {
    for (int64_t i = begin; i < end; i++) {
        turn t;
        int64_t position;
        const bool turns = position_of(p, i, &position) && find_turn(p, position, &t);
        for (int side = 0; side < 2; side++)
            turn_side(p, &p->side[side], i, turns ? &t : NULL, dtype, i + 1 == end);
    }
    simd_stream_end();
}

void BOLIDE_ISA(rope_tokens)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__rope_params *p = arg;
    (void)worker;
    if (p->dtype == BOLIDE_BF16)
        turn_tokens(p, begin, end, BOLIDE_BF16);
    else if (p->dtype == BOLIDE_F16)
        turn_tokens(p, begin, end, BOLIDE_F16);
    else
        turn_tokens(p, begin, end, BOLIDE_F32);
}
