// SPDX-License-Identifier: Apache-2.0
//
// The selection engine: radix select on order-preserving keys, by count or by mass, then sums and
// the draw over what is kept.
//
// A pass puts a range of keys into 4,096 bins and sums what lies over the range with vectors; the
// bin in which the target is reached is the next range. To put an element into a bin costs as much
// as reading ten, so a sample guesses a narrow range for the first pass, the one that reads memory;
// a wrong guess is noticed and costs a second pass over all keys. For probabilities a bin packs a
// count in its upper 22 bits and the sum of the lower key bits below, from which the exact mass of
// the bin follows. Values of the bin that decides are set aside if they fit, else the row is read
// again.

#include "cpu/simd_compress.h"
#include "ops/sampling/select.h"

/* ---- tiles -------------------------------------------------------------------------------- */

BOLIDE_INLINE f32x16 clean16(const select_row *r, f32x16 x) {
    switch (r->kind) {
    case ROW_LOGITS:
        return f32_add(f32_min(f32_max(x, f32_set(-INFINITY)), f32_set(FLT_MAX)), f32_zero());
    case ROW_SCORES:
        return f32_select(f32_isnan(x), i32_as_f32(i32_set(-1)), f32_add(x, f32_zero()));
    default:
        return f32_min(f32_max(x, f32_zero()), f32_set(FLT_MAX));
    }
}

/* x is scrubbed before the difference, so that a NaN in one row is a 0 there and no more. */
BOLIDE_INLINE f32x16 residual16(const select_row *r, f32x16 q, f32x16 p) {
    return f32_max(f32_sub(clean16(r, q), clean16(r, p)), f32_zero());
}

BOLIDE_INLINE void fill_tile(const select_row *r, int64_t dtype, int64_t begin, int64_t n,
                             float *x) {
    int64_t i = 0;
    for (; i + BOLIDE_LANES <= n; i += BOLIDE_LANES)
        f32_store(x + i, clean16(r, load16(dtype_at(r->data, dtype, begin + i), dtype)));
    if (i == n)
        return;
    const f32x16 last = f32_set(r->kind == ROW_LOGITS   ? -INFINITY
                                : r->kind == ROW_SCORES ? NAN
                                                        : 0.0f);
    const f32x16 tail = load16_n(dtype_at(r->data, dtype, begin + i), dtype, n - i);
    f32_store(x + i, clean16(r, f32_select(mask_first(n - i), tail, last)));
}

static void fill_residual(const select_row *r, int64_t begin, int64_t n, float *x) {
    const float *q = (const float *)r->data + begin, *p = r->minus + begin;
    for (int64_t i = 0; i < n; i += BOLIDE_LANES)
        f32_store(x + i, residual16(r, f32_load_n(q + i, n - i), f32_load_n(p + i, n - i)));
}

void select_tile(const select_row *r, int64_t begin, int64_t n, float *x) {
    if (r->kind == ROW_RESIDUAL)
        fill_residual(r, begin, n, x);
    else if (r->dtype == BOLIDE_F32)
        fill_tile(r, BOLIDE_F32, begin, n, x);
    else if (r->dtype == BOLIDE_F16)
        fill_tile(r, BOLIDE_F16, begin, n, x);
    else
        fill_tile(r, BOLIDE_BF16, begin, n, x);
}

BOLIDE_INLINE int64_t tile_length(const select_row *r, int64_t begin) {
    return r->v - begin < TILE ? r->v - begin : TILE;
}

/* A tile for passes that compare every value before they use it: f32 rows are read where they lie,
 * NaN fails each comparison, and what is used goes through capped16. */
BOLIDE_INLINE const float *view_tile(const select_row *r, int64_t begin, int64_t n, float *x) {
    if (r->dtype == BOLIDE_F32 && n == TILE && r->kind != ROW_RESIDUAL)
        return (const float *)r->data + begin;
    select_tile(r, begin, n, x);
    return x;
}

/* Infinity becomes the largest finite number where the kind of the row says so; NaN stays. */
BOLIDE_INLINE f32x16 capped16(const select_row *r, const float *x) {
    return f32_min(f32_set(r->kind == ROW_SCORES ? INFINITY : FLT_MAX), f32_load(x));
}

float select_max(const select_row *r) {
    float buffer[TILE];
    f32x16 best = f32_set(r->kind == ROW_PROBS ? 0.0f : -INFINITY);
    for (int64_t begin = 0; begin < r->v; begin += TILE) {
        const int64_t n = tile_length(r, begin);
        const float *x = view_tile(r, begin, n, buffer);
        for (int64_t i = 0; i < n; i += BOLIDE_LANES)
            best = f32_max(capped16(r, x + i), best);
    }
    return f32_hmax(best);
}

int64_t select_first(const select_row *r, float least) {
    float x[TILE];
    for (int64_t begin = 0; begin < r->v; begin += TILE) {
        const int64_t n = tile_length(r, begin);
        select_tile(r, begin, n, x);
        for (int64_t i = 0; i < n; i += BOLIDE_LANES) {
            const mask16 m = mask_and(f32_ge(f32_load(x + i), f32_set(least)), mask_first(n - i));
            if (mask_any(m))
                return begin + i + mask_first_lane(m);
        }
    }
    return r->v;
}

/* ---- one pass over a range of keys -------------------------------------------------------- */

/* What a bin holds. */
typedef enum bin_kind {
    BIN_COUNT,
    BIN_PACKED, /* count << 42 | sum of the key bits below the bin's; probabilities only */
    BIN_EXP     /* sum of masses in steps of 2^-40; logits only */
} bin_kind;

enum { PACK = 42, LARGEST_SHIFT = 20, KEY_MINUS_INF = 0x007FFFFF };
#define KEY_PLUS_INF 0xFF800000u

/* Keys first … last in bins of 2^shift keys, the first of which begins at base. */
typedef struct key_range {
    uint32_t first, last, base;
    int shift;
} key_range;

typedef struct tally {
    double count, mass;
} tally;

/* Bins are aligned to their size, so none reaches over a power of two of values, within which
 * values are linear in keys. */
static key_range range_of(uint32_t first, uint32_t last) {
    key_range k = {.first = first, .last = last, .shift = 0};
    while (((last >> k.shift) - (first >> k.shift)) >= BINS)
        k.shift++;
    k.base = first >> k.shift << k.shift;
    return k;
}

BOLIDE_INLINE void put(selector *s, int copy, const key_range *k, bin_kind kind, int j) {
    const uint32_t at = (uint32_t)s->key[j] - k->base;
    s->bins[copy][at >> k->shift] += kind == BIN_COUNT ? 1
                                     : kind == BIN_PACKED
                                         ? (uint64_t)1 << PACK | (at & ((1u << k->shift) - 1))
                                         : (uint64_t)(int64_t)(s->mass[j] * 0x1p40f);
}

/* Sixteen values into the bins; two copies take turns, so that equal neighbours do not wait for
 * each other. */
BOLIDE_INLINE void put16(selector *s, const select_row *r, const key_range *k, bin_kind kind,
                         f32x16 x, uint32_t wanted) {
    i32_store(s->key, key16(x));
    if (kind == BIN_EXP)
        f32_store(s->mass, mass16(r, x));
    if (wanted == 0xFFFFu) {
        for (int j = 0; j < BOLIDE_LANES; j++)
            put(s, j & 1, k, kind, j);
        return;
    }
    for (uint32_t left = wanted; left; left &= left - 1)
        put(s, 0, k, kind, __builtin_ctz(left));
}

BOLIDE_INLINE void pass(selector *s, const select_row *r, const key_range *k, bin_kind kind) {
    const f32x16 first = f32_set(key_value(k->first)), last = f32_set(key_value(k->last));
    for (int64_t begin = 0; begin < r->v; begin += TILE) {
        const int64_t n = tile_length(r, begin);
        select_tile(r, begin, n, s->x);
        for (int64_t i = 0; i < n; i += BOLIDE_LANES) {
            const f32x16 x = f32_load(s->x + i);
            const mask16 in = mask_and(f32_ge(x, first), f32_le(x, last));
            const uint32_t wanted = mask_bits(mask_and(in, mask_first(n - i)));
            if (wanted)
                put16(s, r, k, kind, x, wanted);
        }
    }
}

/* Fills bins[0] with the keys of the range. */
static void run_pass(selector *s, const select_row *r, const key_range *k, bin_kind kind) {
    memset(s->bins, 0, sizeof s->bins);
    if (kind == BIN_COUNT)
        pass(s, r, k, BIN_COUNT);
    else if (kind == BIN_PACKED)
        pass(s, r, k, BIN_PACKED);
    else
        pass(s, r, k, BIN_EXP);
    for (int i = 0; i < BINS; i++)
        s->bins[0][i] += s->bins[1][i];
}

/* ---- where the target is reached ---------------------------------------------------------- */

/* What one bin holds. */
static tally read_bin(const selector *s, const key_range *k, bin_kind kind, int i) {
    const uint64_t bin = s->bins[0][i];
    if (kind == BIN_COUNT)
        return (tally){(double)bin, 0};
    if (kind == BIN_EXP)
        return (tally){0, (double)bin * 0x1p-40};
    const uint32_t base = k->base + ((uint32_t)i << k->shift);
    const double first = (double)key_value(base), step = (double)key_value(base + 1) - first;
    const double count = (double)(bin >> PACK);
    return (tally){count, count * first + (double)(bin & (((uint64_t)1 << PACK) - 1)) * step};
}

/* A target in counts or in mass. */
typedef struct target {
    double value;
    bool mass;
} target;

/* The bin in which the tally from the top, begun with *above, reaches the target: *above becomes
 * what lies over that bin, *in what it holds. -1 with all in *above if it is never reached. */
static int walk(const selector *s, const key_range *k, bin_kind kind, target t, tally *above,
                tally *in) {
    for (int i = BINS - 1; i >= 0; i--) {
        if (!s->bins[0][i])
            continue;
        *in = read_bin(s, k, kind, i);
        const tally sum = {above->count + in->count, above->mass + in->mass};
        if ((t.mass ? sum.mass : sum.count) >= t.value)
            return i;
        *above = sum;
    }
    *in = (tally){0, 0};
    return -1;
}

/* The lowest bin that holds anything: where rounding has kept a sum from its target. */
static int lowest(const selector *s, const key_range *k, bin_kind kind, tally *above, tally *in) {
    int i = 0;
    while (i < BINS - 1 && !s->bins[0][i])
        i++;
    *in = read_bin(s, k, kind, i);
    above->count -= in->count;
    above->mass -= in->mass;
    return i;
}

/* Sets aside the values of the range in the pool, which may be where r lies, and gives how many,
 * or -1 if they do not fit. *above gets the tally of what lies over the range. */
BOLIDE_INLINE int64_t gather(selector *s, const select_row *r, const key_range *k, bin_kind kind,
                             tally *above) {
    const f32x16 first = f32_set(key_value(k->first)), last = f32_set(key_value(k->last));
    f64x16 mass = f64_set(0.0);
    int64_t over_count = 0, count = 0;
    for (int64_t begin = 0; begin < r->v; begin += TILE) {
        const int64_t n = tile_length(r, begin);
        if (count + n > POOL)
            return -1;
        const float *tile = view_tile(r, begin, n, s->x);
        for (int64_t i = 0; i < n; i += BOLIDE_LANES) {
            const f32x16 x = capped16(r, tile + i);
            const mask16 over = f32_gt(x, last), in = mask_and(f32_ge(x, first), mask_not(over));
            over_count += mask_count(over);
            if (kind == BIN_PACKED)
                mass = f64_add(mass, f32_to_f64(f32_keep(over, x)));
            else if (kind == BIN_EXP && mask_any(over))
                mass = f64_add(mass, f32_to_f64(f32_keep(over, mass16(r, x))));
            /* Counts look for few values, mass for so many that a branch would be guessed wrong. */
            if (kind != BIN_COUNT || mask_any(in))
                count += f32_compress_loose(s->pool + count, mask_and(in, mask_first(n - i)), x);
        }
    }
    *above = (tally){(double)over_count, sum16(mass)};
    return count;
}

static int64_t run_gather(selector *s, const select_row *r, const key_range *k, bin_kind kind,
                          tally *above) {
    return kind == BIN_COUNT    ? gather(s, r, k, BIN_COUNT, above)
           : kind == BIN_PACKED ? gather(s, r, k, BIN_PACKED, above)
                                : gather(s, r, k, BIN_EXP, above);
}

/* Makes r what lies in the range, if the pool holds it. */
static bool set_aside(selector *s, select_row *r, const key_range *k, bin_kind kind, tally *above) {
    const int64_t count = run_gather(s, r, k, kind, above);
    if (count < 0)
        return false;
    r->data = s->pool;
    r->dtype = BOLIDE_F32;
    r->v = count;
    return true;
}

/* From the bin i of a pass over the range k down to a key that keeps what reaches the target. */
static uint32_t descend(selector *s, select_row r, key_range k, bin_kind kind, target t, int i,
                        tally *above, tally *in) {
    for (;;) {
        const uint32_t base = k.base + ((uint32_t)i << k.shift);
        const uint32_t end = base + (((uint32_t)1 << k.shift) - 1);
        const uint32_t first =
            base > k.first ? base : k.first; /* the range may begin inside a bin */
        if (k.shift == 0 || (kind != BIN_EXP && in->count == 1))
            return first;
        k = range_of(first, end < k.last ? end : k.last);
        tally over;
        set_aside(s, &r, &k, BIN_COUNT, &over);
        run_pass(s, &r, &k, kind);
        i = walk(s, &k, kind, t, above, in);
        if (i < 0)
            i = lowest(s, &k, kind, above, in);
    }
}

/* The key of the target; 0 if it is never reached, with the whole tally in *above. What it keeps
 * is *above + *in. The range is a guess and is checked; floor is the least value that counts. */
static uint32_t find(selector *s, const select_row *row, bin_kind kind, target t, key_range k,
                     float floor, tally *above, tally *in) {
    select_row r = *row;
    *in = (tally){0, 0};
    if (set_aside(s, &r, &k, kind, above) && (t.mass ? above->mass : above->count) < t.value) {
        run_pass(s, &r, &k, kind);
        const int i = walk(s, &k, kind, t, above, in);
        if (i >= 0)
            return descend(s, r, k, kind, t, i, above, in);
        if (k.first <= value_key(floor))
            return 0;
    }
    r = *row;
    k = range_of(value_key(floor), KEY_PLUS_INF);
    *above = (tally){0, 0};
    run_pass(s, &r, &k, kind);
    const int i = walk(s, &k, kind, t, above, in);
    return i < 0 ? 0 : descend(s, r, k, kind, t, i, above, in);
}

/* ---- a guess from a sample ---------------------------------------------------------------- */

/* Copies SAMPLE values to the pool, in groups of 16 spread evenly over the row, and gives the range
 * of their keys. */
static key_range take_sample(selector *s, const select_row *r, float floor) {
    const int64_t stride = r->v / (SAMPLE / BOLIDE_LANES) / BOLIDE_LANES * BOLIDE_LANES;
    f32x16 low = f32_set(INFINITY), high = f32_set(floor);
    for (int64_t i = 0; i < SAMPLE / BOLIDE_LANES; i++) {
        float *x = s->pool + i * BOLIDE_LANES;
        select_tile(r, i * stride, BOLIDE_LANES, x);
        const f32x16 a = f32_load(x);
        low = f32_select(f32_ge(a, f32_set(floor)), f32_min(a, low), low);
        high = f32_max(a, high);
    }
    const float least = -f32_hmax(f32_neg(low)), most = f32_hmax(high);
    return range_of(value_key(least < most ? least : most), value_key(most));
}

/* First and last key between which the target lies, judged by the sample; all keys from floor on
 * for a row too short for that. */
static key_range guess(selector *s, const select_row *r, bin_kind kind, target t, float floor) {
    const key_range all = range_of(value_key(floor), KEY_PLUS_INF);
    if (r->v < 8 * SAMPLE)
        return all;
    const key_range k = take_sample(s, r, floor);
    const select_row sample = {
        .data = s->pool, .dtype = BOLIDE_F32, .v = SAMPLE, .kind = r->kind, .max = r->max};
    const double share = (double)SAMPLE / (double)r->v;
    tally total = {0, 0}, in;
    run_pass(s, &sample, &k, kind);
    walk(s, &k, kind, (target){INFINITY, t.mass}, &total, &in);
    double low = t.value * share, high = low, slack = 3 * sqrt(low) + 3;
    if (t.mass) {
        /* A sample misses the few that hold much of the mass: what it lacks lies at the top. For
         * logits the total is known to be 1 / share of the sample's only on average, too. */
        const double lacking = r->total * share - total.mass;
        const double scaled = total.mass * t.value / r->total;
        high = low - lacking < scaled ? low - lacking : scaled;
        low = low - lacking > scaled ? low - lacking : scaled;
        slack = 0.015 * total.mass;
    }
    uint32_t first = all.first, last = all.last;
    tally above = {0, 0};
    int i = walk(s, &k, kind, (target){low + slack, t.mass}, &above, &in);
    if (i >= 0)
        first = k.base + ((uint32_t)i << k.shift);
    above = (tally){0, 0};
    i = walk(s, &k, kind, (target){high - slack, t.mass}, &above, &in);
    if (i >= 0 && high > slack)
        last = k.base + ((uint32_t)i << k.shift) + (((uint32_t)1 << k.shift) - 1);
    first = first < all.first ? all.first : first;
    return range_of(first, last < all.last ? last : all.last);
}

/* ---- the two selections ------------------------------------------------------------------- */

float select_by_count(selector *s, const select_row *r, int64_t k, float floor, int64_t *above,
                      int64_t *ties) {
    tally over, in;
    const target t = {(double)k, false};
    const key_range k_range = floor > -INFINITY ? range_of(value_key(floor), KEY_PLUS_INF)
                                                : guess(s, r, BIN_COUNT, t, floor);
    const uint32_t key = find(s, r, BIN_COUNT, t, k_range, floor, &over, &in);
    *above = (int64_t)over.count;
    *ties = (int64_t)in.count;
    return key ? key_value(key) : floor;
}

/* Probabilities: one reading gives count and mass. */
static float least_prob(selector *s, const select_row *r, int64_t k, float p, bool joint) {
    float least = FLT_TRUE_MIN;
    double want = (double)p;
    tally above, in;
    if (k > 0 && k < r->v) {
        const target t = {(double)k, false};
        const uint32_t key =
            find(s, r, BIN_PACKED, t, guess(s, r, BIN_PACKED, t, least), least, &above, &in);
        least = key ? key_value(key) : least;
        want *= joint ? 1.0 : above.mass + in.mass;
    }
    if (!(p < 1.0f))
        return least;
    const target t = {want, true};
    const key_range range = least > FLT_TRUE_MIN ? range_of(value_key(least), KEY_PLUS_INF)
                                                 : guess(s, r, BIN_PACKED, t, least);
    const uint32_t key = find(s, r, BIN_PACKED, t, range, least, &above, &in);
    return key ? key_value(key) : least;
}

static float least_logit(selector *s, const select_row *row, int64_t k, float p, bool joint) {
    select_row r = *row;
    int64_t count, ties;
    tally above, in;
    float least = -INFINITY;
    if (k > 0 && k < r.v)
        least = select_by_count(s, &r, k, least, &count, &ties);
    if (!(p < 1.0f))
        return least;
    r.total = select_sum(&r, joint ? -INFINITY : least, NULL);
    const target t = {(double)p * r.total, true};
    const key_range range = least > -INFINITY ? range_of(value_key(least), KEY_PLUS_INF)
                                              : guess(s, &r, BIN_EXP, t, least);
    const uint32_t key = find(s, &r, BIN_EXP, t, range, least, &above, &in);
    return key ? key_value(key) : least;
}

float select_by_mass(selector *s, const select_row *r, int64_t k, float p, bool joint) {
    if (!(k > 0 && k < r->v) && !(p < 1.0f))
        return select_all(r);
    return r->kind == ROW_LOGITS ? least_logit(s, r, k, p, joint) : least_prob(s, r, k, p, joint);
}

/* ---- sums and the draw -------------------------------------------------------------------- */

/* Kept masses of a tile by lane, then over the lanes in one fixed tree. */
static double tile_sum(const select_row *r, const float *x, int64_t n, float least) {
    f64x16 sum = f64_set(0.0);
    for (int64_t i = 0; i < n; i += BOLIDE_LANES) {
        const f32x16 a = capped16(r, x + i);
        const mask16 m = f32_ge(a, f32_set(least));
        sum = f64_add(sum, f32_to_f64(f32_keep(m, mass16(r, a))));
    }
    return sum16(sum);
}

double select_sum(const select_row *r, float least, double *tile) {
    float buffer[TILE];
    double sum = 0;
    for (int64_t begin = 0; begin < r->v; begin += TILE) {
        const int64_t n = tile_length(r, begin);
        const float *x = view_tile(r, begin, n, buffer);
        const double t = tile_sum(r, x, n, least);
        sum += t;
        if (tile)
            tile[begin / TILE] = t;
    }
    return sum;
}

/* The first element of the tile at which the kept masses exceed rest; should rounding keep them
 * from it, the last that has mass. */
static int64_t draw_in_tile(const select_row *r, int64_t begin, float least, double rest) {
    float x[TILE], mass[TILE];
    const int64_t n = tile_length(r, begin);
    int64_t found = 0;
    double sum = 0;
    select_tile(r, begin, n, x);
    for (int64_t i = 0; i < n; i += BOLIDE_LANES) {
        const f32x16 a = f32_load(x + i);
        f32_store(mass + i, f32_keep(f32_ge(a, f32_set(least)), mass16(r, a)));
    }
    for (int64_t i = 0; i < n && sum <= rest; i++) {
        sum += (double)mass[i];
        found = mass[i] > 0.0f ? i : found;
    }
    return begin + found;
}

int64_t select_draw(const select_row *r, float least, double u, bool *valid) {
    double tile[TILES];
    const double goal = u * select_sum(r, least, tile);
    const int64_t tiles = (r->v + TILE - 1) / TILE;
    int64_t found = -1;
    double sum = 0, below = 0;
    for (int64_t i = 0; i < tiles && sum <= goal; i++) {
        if (tile[i] > 0) {
            found = i;
            below = sum;
        }
        sum += tile[i];
    }
    *valid = found >= 0;
    return *valid ? draw_in_tile(r, found * TILE, least, goal - below) : 0;
}
