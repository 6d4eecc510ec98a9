// SPDX-License-Identifier: Apache-2.0
//
// The k largest of a window of each row: select the k-th by radix (select_cpu.c), then collect what
// is larger and as many equal ones as are missing, in one pass in the order of the columns.

#include "ops/sampling/select.h"

typedef bolide__topk_params params;

/* One row on its way out. */
typedef struct output {
    const params *p;
    int64_t row, start, count; /* count: slots filled */
    const int32_t *pages;      /* of its request; NULL: it has none */
    int64_t first_page, offset;
} output;

/* ---- writing ------------------------------------------------------------------------------ */

static int64_t mapped(const output *o, int64_t index) {
    const params *p = o->p;
    if (p->form != BOLIDE__TOPK_PAGED)
        return index + o->offset;
    const int64_t page = o->first_page + index / p->page_size;
    if (!o->pages || page < 0 || page >= p->pages || o->pages[page] < 0)
        return -1;
    return o->pages[page] * p->page_size + index % p->page_size;
}

static void put_value(const output *o, int64_t slot, const void *value) {
    const int64_t bytes = dtype_bytes(o->p->dtype);
    memcpy((char *)o->p->values + (o->row * o->p->values_n + slot) * bytes, value, (size_t)bytes);
}

static void put(output *o, int64_t index) {
    const params *p = o->p;
    const int64_t slot = o->count++;
    bolide__id_put(p->indices, p->indices_dtype, o->row * p->indices_n + slot, mapped(o, index));
    if (p->raw_indices)
        p->raw_indices[o->row * p->raw_indices_n + slot] = (int32_t)index;
    if (p->values)
        put_value(o, slot, dtype_at(p->input, p->dtype, o->row * p->input_n + o->start + index));
}

static void put_nothing(output *o) {
    static const uint32_t f32 = 0xFF800000u;
    static const uint16_t f16 = 0xFC00, bf16 = 0xFF80;
    const params *p = o->p;
    while (o->count < p->k) {
        const int64_t slot = o->count++;
        bolide__id_put(p->indices, p->indices_dtype, o->row * p->indices_n + slot, -1);
        if (p->raw_indices)
            p->raw_indices[o->row * p->raw_indices_n + slot] = -1;
        if (p->values)
            put_value(o, slot,
                      p->dtype == BOLIDE_F32   ? (const void *)&f32
                      : p->dtype == BOLIDE_F16 ? (const void *)&f16
                                               : (const void *)&bf16);
    }
}

/* ---- collecting --------------------------------------------------------------------------- */

/* What a row takes: values > least, and of those equal to it numbers [skip, skip + take). NaN is
 * equal to NaN here. */
typedef struct choice {
    float least;
    int64_t skip, take;
} choice;

static void put_bits(output *o, choice *c, int64_t first, uint32_t over, uint32_t equal) {
    for (uint32_t left = over | equal; left; left &= left - 1) {
        const int j = __builtin_ctz(left);
        if (over >> j & 1) {
            put(o, first + j);
        } else if (c->skip > 0) {
            c->skip--;
        } else if (c->take > 0) {
            c->take--;
            put(o, first + j);
        }
    }
}

static void collect(output *o, const select_row *r, choice c) {
    float x[TILE];
    const bool nan = isnan(c.least);
    const f32x16 least = f32_set(c.least);
    for (int64_t begin = 0; begin < r->v; begin += TILE) {
        const int64_t n = r->v - begin < TILE ? r->v - begin : TILE;
        if (o->count == o->p->k)
            return;
        select_tile(r, begin, n, x);
        for (int64_t i = 0; i < n; i += BOLIDE_LANES) {
            const f32x16 a = f32_load(x + i);
            const mask16 empty = f32_isnan(a), inside = mask_first(n - i);
            const mask16 over = mask_and(nan ? mask_not(empty) : f32_gt(a, least), inside);
            const mask16 equal = mask_and(nan ? empty : f32_eq(a, least), inside);
            if (mask_any(mask_or(over, equal)))
                put_bits(o, &c, begin + i, mask_bits(over), mask_bits(equal));
        }
    }
}

/* The least of k guessed columns: with k different ones the k-th largest is no less. */
static float guessed_floor(const params *p, const select_row *r, int64_t request) {
    float least = INFINITY, x[BOLIDE_LANES];
    for (int64_t i = 0; p->pre_idx && i < p->k; i++) {
        const int64_t at = (int64_t)p->pre_idx[request * p->pre_idx_n + i] + 1;
        if (at < 0 || at >= r->v)
            return -INFINITY;
        select_tile(r, at, 1, x);
        if (isnan(x[0]))
            return -INFINITY;
        least = x[0] < least ? x[0] : least;
    }
    return p->pre_idx ? least : -INFINITY;
}

static choice choose(const params *p, const select_row *r, int64_t request) {
    selector s;
    int64_t above, ties;
    const float floor = guessed_floor(p, r, request);
    float least = select_by_count(&s, r, p->k, floor, &above, &ties);
    if (above + ties < p->k && floor > -INFINITY)
        least = select_by_count(&s, r, p->k, -INFINITY, &above, &ties);
    if (above + ties < p->k) { /* too few numbers: all of them, then NaN */
        least = NAN;
        above += ties;
        ties = r->v - above;
    }
    if (above + ties == p->k) /* all that is kept; least may lie below the smallest of them */
        return (choice){least, 0, p->k};
    const int64_t take = p->k - above;
    return (choice){least, p->tie_break == BOLIDE__TIE_LARGE ? ties - take : 0, take};
}

/* ---- order -------------------------------------------------------------------------------- */

/* A number that grows as the slot should come later: by falling value, then by index. */
static uint64_t rank_of(const output *o, int64_t slot) {
    const params *p = o->p;
    const char *at =
        (const char *)p->values + (o->row * p->values_n + slot) * dtype_bytes(p->dtype);
    uint32_t bits, key;
    uint16_t half;
    memcpy(&half, at, sizeof half);
    bits = (uint32_t)half << 16; /* 16-bit floats are ordered by sign and magnitude, too */
    if (p->dtype == BOLIDE_F32)
        memcpy(&bits, at, sizeof bits);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t infinity = p->dtype == BOLIDE_F16 ? 0x7C000000u : 0x7F800000u;
    key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    key = magnitude == 0 ? 0x80000000u : magnitude > infinity ? 0 : key;
    const uint32_t id =
        (uint32_t)bolide__id_at(p->indices, p->indices_dtype, o->row * p->indices_n + slot);
    return (uint64_t)~key << 32 | (p->tie_break == BOLIDE__TIE_LARGE ? ~id : id);
}

static void swap(const output *o, int64_t a, int64_t b) {
    const params *p = o->p;
    const int64_t bytes = dtype_bytes(p->dtype), first = o->row * p->indices_n;
    const int64_t id = bolide__id_at(p->indices, p->indices_dtype, first + a);
    bolide__id_put(p->indices, p->indices_dtype, first + a,
                   bolide__id_at(p->indices, p->indices_dtype, first + b));
    bolide__id_put(p->indices, p->indices_dtype, first + b, id);
    char value[4], *row = (char *)p->values + o->row * p->values_n * bytes;
    memcpy(value, row + a * bytes, (size_t)bytes);
    memcpy(row + a * bytes, row + b * bytes, (size_t)bytes);
    memcpy(row + b * bytes, value, (size_t)bytes);
}

static void sift(const output *o, int64_t from, int64_t n) {
    for (;;) {
        int64_t child = 2 * from + 1;
        if (child >= n)
            return;
        if (child + 1 < n && rank_of(o, child + 1) > rank_of(o, child))
            child++;
        if (rank_of(o, child) <= rank_of(o, from))
            return;
        swap(o, from, child);
        from = child;
    }
}

/* Heap sort where the row lies: it needs no memory, and every rank is different. */
static void sort_in_place(const output *o) {
    const int64_t n = o->count;
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift(o, i, n);
    for (int64_t i = n - 1; i > 0; i--) {
        swap(o, 0, i);
        sift(o, 0, i);
    }
}

typedef struct slot {
    uint64_t rank;
    uint32_t value;
} slot;

/* One step of a stable radix sort by the byte of the rank that begins at bit. */
static void sort_byte(slot *from, slot *to, int64_t n, int bit) {
    int32_t first[256] = {0};
    for (int64_t i = 0; i < n; i++)
        first[from[i].rank >> bit & 255]++;
    for (int32_t i = 0, sum = 0; i < 256; i++) {
        const int32_t count = first[i];
        first[i] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++)
        to[first[from[i].rank >> bit & 255]++] = from[i];
}

/* Columns come in ascending order, so four bytes of the value decide, after a reversal where the
 * highest index goes first. */
static void sort_slots(const output *o) {
    enum { ROOM = 2048 };
    const params *p = o->p;
    const int64_t n = o->count, bytes = dtype_bytes(p->dtype);
    slot a[ROOM], b[ROOM];
    if (n > ROOM) {
        sort_in_place(o);
        return;
    }
    const bool large = p->tie_break == BOLIDE__TIE_LARGE;
    char *values = (char *)p->values + o->row * p->values_n * bytes;
    for (int64_t i = 0; i < n; i++) {
        const int64_t from = large ? n - 1 - i : i;
        a[i] = (slot){.rank = rank_of(o, from), .value = 0};
        memcpy(&a[i].value, values + from * bytes, (size_t)bytes);
    }
    for (int bit = 32; bit < 64; bit += 16) {
        sort_byte(a, b, n, bit);
        sort_byte(b, a, n, bit + 8);
    }
    for (int64_t i = 0; i < n; i++) {
        const uint32_t id = large ? ~(uint32_t)a[i].rank : (uint32_t)a[i].rank;
        bolide__id_put(p->indices, p->indices_dtype, o->row * p->indices_n + i, id);
        memcpy(values + i * bytes, &a[i].value, (size_t)bytes);
    }
}

/* ---- rows --------------------------------------------------------------------------------- */

static int64_t floor_div(int64_t a, int64_t b) {
    return a >= 0 ? a / b : -1;
}

static int64_t clamped(int64_t x, int64_t most) {
    return x < 0 ? 0 : x > most ? most : x;
}

static output open_output(const params *p, int64_t i) {
    const int64_t start = clamped(p->row_starts ? p->row_starts[i] : 0, p->v);
    output o = {.p = p, .row = i, .start = start};
    if (p->form == BOLIDE__TOPK_RAGGED)
        o.offset = p->offsets[i];
    const int64_t request = p->row_to_batch ? p->row_to_batch[i] : i;
    if (p->form == BOLIDE__TOPK_PAGED && request >= 0 && request < p->requests)
        o.pages = p->page_table + request * p->page_table_n;
    const int32_t *first = p->page_table_row_starts ? p->page_table_row_starts : p->row_starts;
    o.first_page = first ? first[i] : 0;
    return o;
}

static void run_row(const params *p, int64_t i) {
    output o = open_output(p, i);
    const int64_t request = i / p->next_n, t = i % p->next_n;
    const int64_t length =
        p->lengths ? floor_div(p->lengths[request] - p->next_n + t + 1, p->compress_ratio) : p->v;
    const select_row r = {.data = dtype_at(p->input, p->dtype, i * p->input_n + o.start),
                          .dtype = p->dtype,
                          .v = clamped(length, p->v - o.start),
                          .kind = ROW_SCORES};
    if (r.v > p->k)
        collect(&o, &r, choose(p, &r, request));
    while (o.count < p->k && o.count < r.v)
        put(&o, o.count);
    put_nothing(&o);
    if (p->sorted)
        sort_slots(&o);
}

void BOLIDE_ISA(topk_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const params *p = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        run_row(p, i);
}
