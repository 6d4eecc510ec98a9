// SPDX-License-Identifier: Apache-2.0
//
// Which keys of a block each row sees, as 64 bits a row: length, causal order, window, custom mask
// and multi-item scoring in one word, so that the kernel skips what is empty and masks nothing
// where a block is open.

#ifndef BOLIDE_OPS_ATTENTION_MASK_H
#define BOLIDE_OPS_ATTENTION_MASK_H

#include "ops/attention/attention_dot.h"
#include "ops/attention/attention_internal.h"

typedef enum block_view { VIEW_NONE, VIEW_SOME, VIEW_OPEN } block_view;

/* The packed rows [row, row + rows) of a request at hand. */
typedef struct tile_place {
    const bolide__attention_params *p;
    const bolide__attention_request *request;
    int64_t request_index;
    int64_t row, rows;
    int64_t group;
    int64_t shift; /* query token t stands at position shift + t: kv_len - q_len */
    /* of the block at hand, where keys have positions of their own: each key's, the least and the
     * largest; NULL: a key's position is its place in the list */
    const int32_t *key_at;
    int32_t least, most;
} tile_place;

/* The lowest n bits, n of any sign and size. */
BOLIDE_INLINE uint64_t low_bits(int64_t n) {
    return n <= 0 ? 0 : n >= BLOCK ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

/* Bits [start, start + n) of a bit string, n up to 64; no byte behind them is read. */
static uint64_t read_bits(const uint8_t *bytes, int64_t start, int n) {
    const int64_t first = start / 8, last = (start + n - 1) / 8;
    uint64_t low = 0, high = 0;
    for (int64_t i = first; i <= last && i < first + 8; i++)
        low |= (uint64_t)bytes[i] << (8 * (i - first));
    if (last == first + 8)
        high = bytes[last];
    const int skip = (int)(start % 8);
    return skip ? low >> skip | high << (64 - skip) : low;
}

/* The same of a string of bytes, 0 or not. */
static uint64_t read_bools(const uint8_t *bytes, int n) {
    uint64_t bits = 0;
    for (int j = 0; j < n; j += 16) {
        const i32x16 x = u8_load_n(bytes + j, n - j);
        bits |= (uint64_t)mask_bits(mask_not(i32_eq(x, i32_zero()))) << j;
    }
    return bits;
}

static uint64_t custom_bits(const tile_place *t, int64_t token, int64_t key, int n) {
    const bolide__attention_params *p = t->p;
    const int64_t at = token * t->request->kv_len + key;
    if (p->flags & BOLIDE__ATTN_MASK_BITS)
        return read_bits(p->mask + t->request->mask_byte, at, n);
    return read_bools(p->mask + t->request->mask_elem + at, n);
}

/* Multi-item scoring: the prefix, and the tokens of the own item since its delimiter. */
static uint64_t item_bits(const tile_place *t, int64_t position, int64_t key) {
    const bolide__attention_params *p = t->p;
    const int64_t prefix = p->prefix_len[t->request_index];
    if (position < prefix)
        return ~(uint64_t)0;
    const int64_t index = position - prefix;
    const int64_t place =
        index < p->token_pos_len ? p->token_pos[t->request_index * p->token_pos_len + index] : 0;
    return low_bits(prefix - key) | ~low_bits(position - place + 1 - key);
}

/* Keys of the block whose own position is between two. */
static uint64_t placed_bits(const tile_place *t, int64_t first, int64_t last) {
    const i32x16 low = i32_set(first < INT32_MIN ? INT32_MIN : (int32_t)first);
    const i32x16 high = i32_set(last < INT32_MIN ? INT32_MIN : (int32_t)last);
    uint64_t bits = 0;
    for (int j = 0; j < BLOCK; j += 16) {
        const i32x16 at = i32_load(t->key_at + j);
        const mask16 seen = mask_and(i32_ge(at, low), i32_le(at, high));
        bits |= (uint64_t)mask_bits(seen) << j;
    }
    return bits;
}

/* Keys before the request's query tokens, and those of these whose bit is set. */
static uint64_t draft_bits(const tile_place *t, int64_t token, int64_t key, int n) {
    const bolide__attention_params *p = t->p;
    const uint8_t *row = p->draft + (t->request->q_start + token) * p->draft_row;
    const int64_t before = t->shift - key; /* bit of token 0 in the word */
    if (before >= n)
        return ~(uint64_t)0;
    const int64_t first = before < 0 ? -before : 0, left = 8 * p->draft_bytes - first;
    const int64_t want = n - (before < 0 ? 0 : before), have = left < want ? left : want;
    const uint64_t bits = have > 0 ? read_bits(row, first, (int)have) & low_bits(have) : 0;
    return before <= 0 ? bits : low_bits(before) | bits << before;
}

static uint64_t token_bits(const tile_place *t, int64_t token, int64_t key, int n) {
    const bolide__attention_params *p = t->p;
    const int64_t position = t->shift + token;
    const bool causal = p->flags & BOLIDE__ATTN_CAUSAL, window = p->window_left >= 0;
    uint64_t bits = low_bits(n);
    if (t->key_at)
        bits &= placed_bits(t, window ? position - p->window_left : INT32_MIN,
                            causal ? position : INT32_MAX);
    if (causal && !t->key_at)
        bits &= low_bits(position + 1 - key);
    if (window && !t->key_at)
        bits &= ~low_bits(position - p->window_left - key);
    if (p->chunk && position > 0)
        bits &= ~low_bits(position / p->chunk * p->chunk - key);
    if (bits && p->flags & BOLIDE__ATTN_DRAFT)
        bits &= draft_bits(t, token, key, n);
    if (bits && p->flags & (BOLIDE__ATTN_MASK_BYTES | BOLIDE__ATTN_MASK_BITS))
        bits &= custom_bits(t, token, key, n);
    if (bits && p->flags & BOLIDE__ATTN_ITEMS)
        bits &= item_bits(t, position, key);
    return bits;
}

/* Whether multi-item scoring hides keys [key, key + n) from every token from `first` on: they lie
 * behind the prefix and before the longest item that could reach the first token. */
static bool beyond_items(const tile_place *t, int64_t first, int64_t key, int n) {
    const bolide__attention_params *p = t->p;
    if (!(p->flags & BOLIDE__ATTN_ITEMS) || !p->max_item_len)
        return false;
    const int64_t prefix = p->prefix_len[t->request_index], position = t->shift + first;
    return position >= prefix && key >= prefix &&
           key + n - 1 <= position - p->max_item_len[t->request_index];
}

/* Fills visible[] of each row for keys [key, key + n), unless all of them see all or none. */
static block_view look(const tile_place *t, int64_t key, int n, uint64_t *visible) {
    const bolide__attention_params *p = t->p;
    const int64_t first = t->row / t->group, last = (t->row + t->rows - 1) / t->group;
    const int64_t special = BOLIDE__ATTN_MASK_BYTES | BOLIDE__ATTN_MASK_BITS | BOLIDE__ATTN_ITEMS;
    const int64_t least = t->key_at ? t->least : key, most = t->key_at ? t->most : key + n - 1;
    const bool causal_open = !(p->flags & BOLIDE__ATTN_CAUSAL) || most <= t->shift + first;
    const bool window_open = p->window_left < 0 || least >= t->shift + last - p->window_left;
    const bool chunk_open =
        !p->chunk || t->shift + last < p->chunk || key >= (t->shift + last) / p->chunk * p->chunk;
    const bool draft_open = !(p->flags & BOLIDE__ATTN_DRAFT) || key + n <= t->shift;
    if (causal_open && window_open && chunk_open && draft_open && !(p->flags & special))
        return VIEW_OPEN;
    if (beyond_items(t, first, key, n))
        return VIEW_NONE;
    uint64_t any = 0, all = low_bits(n);
    for (int64_t token = first; token <= last; token++) {
        const uint64_t bits = token_bits(t, token, key, n);
        const int64_t from = token * t->group - t->row;
        for (int64_t r = from < 0 ? 0 : from; r < t->rows && r < from + t->group; r++)
            visible[r] = bits;
        any |= bits;
        all &= bits;
    }
    return any == 0 ? VIEW_NONE : all == low_bits(n) ? VIEW_OPEN : VIEW_SOME;
}

#endif
