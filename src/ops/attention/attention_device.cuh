// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of attention.cu and attention_float.cu share: the list of items a block works
// off, which keys a row sees, the last step of a row, slots, and the merge. Included by those two
// only, behind their constants.
//
// A tile in several pieces is merged by the block that is the last to finish one of them: each
// counts itself in, none waits. The sums are taken in the order of the slots whoever that is.

#ifndef BOLIDE_OPS_ATTENTION_DEVICE_CUH
#define BOLIDE_OPS_ATTENTION_DEVICE_CUH

using params = bolide__attention_params;
using work = bolide__attention_work;
static_assert(sizeof(work) == 80, "five pieces of 16 bytes");
/* Positions are places in a matrix, see fold_q. */
constexpr bool PLACED = FLAGS & 4096;

/* ---- items ------------------------------------------------------------------------------------
 */

/* Place of the k-th item of this block's worker in the rule's order: back and forth. */
int32_t dealt(int32_t k) {
    const int32_t round = k * (int32_t)gridDim.x;
    return round + (k % 2 ? (int32_t)gridDim.x - 1 - (int32_t)blockIdx.x : (int32_t)blockIdx.x);
}

int32_t work_count(const params &p) {
    if constexpr (!RULED)
        return p.heads[blockIdx.x].count;
    const int32_t items = p.rule.tiles * p.rule.pieces;
    const int32_t rounds = items / (int32_t)gridDim.x;
    return rounds + (dealt(rounds) < items);
}

/* The item that the rule puts in a place. Pieces that would be empty stay: they count as a slot. */
work ruled_work(const params &p, int32_t at) {
    const bolide__attention_request &r = p.rule.request;
    const uint32_t pieces = (uint32_t)p.rule.pieces, group = (uint32_t)p.group;
    const int32_t t = p.rule.tiles - 1 - (int32_t)((uint32_t)at / pieces);
    const int32_t piece = (int32_t)((uint32_t)at % pieces), row = t * (int32_t)p.tile_rows;
    const int32_t shift = r.kv_len - r.q_len;
    const int32_t last =
        smaller(r.q_len - 1, (int32_t)(((uint32_t)row + (uint32_t)p.tile_rows - 1) / group));
    int32_t low = 0, high = r.kv_len;
    if (p.flags & BOLIDE__ATTN_CAUSAL)
        high = smaller(high, shift + last + 1);
    if (p.window_left >= 0)
        low = (int32_t)larger(shift + (int32_t)((uint32_t)row / group) - p.window_left, (int64_t)0);
    /* Whole tiles of keys in each piece. */
    const uint32_t keys = (uint32_t)larger(high - low, 0);
    const int32_t chunk = (int32_t)(((keys + pieces - 1) / pieces + 63) / 64 * 64);
    low = (int32_t)smaller((uint32_t)low + (uint32_t)piece * (uint32_t)chunk, 0x7fffffffu);
    high = (int32_t)smaller((int64_t)high, (int64_t)low + chunk);
    if (low >= high)
        low = high = 0;
    work w = {};
    w.q_start = r.q_start;
    w.o_start = r.o_start;
    w.q_len = r.q_len;
    w.kv_len = r.kv_len;
    w.row = row;
    w.kv_begin = low;
    w.kv_end = high;
    w.slot = p.rule.pieces > 1 ? t * p.rule.pieces + piece : -1;
    w.merge = p.rule.pieces > 1 ? t : -1;
    w.merge_slot = t * p.rule.pieces;
    w.merge_count = p.rule.pieces;
    return w;
}

/* Piece `part` (0 to 4) of the k-th item into shared memory, by copies that the caller awaits. The
 * first item lies beside the worker's count, so that a block has both in one step. */
void fetch_work(const params &p, int32_t k, int part, work *to) {
    if constexpr (!RULED) {
        const bolide__attention_head &head = p.heads[blockIdx.x];
        const work *from = k == 0 ? &head.first : p.works + head.begin + k;
        copy_16(reinterpret_cast<char *>(to) + part * 16,
                reinterpret_cast<const char *>(from) + part * 16, 16);
    } else if (part == 0) {
        *to = ruled_work(p, dealt(k));
    }
}

int32_t packed_rows(const params &p, const work &w, int32_t most) {
    return smaller(w.q_len * (int32_t)p.group - w.row, most);
}

int32_t query_token(const params &p, const work &w, int32_t row) {
    return (int32_t)((uint32_t)(w.row + row) / (uint32_t)p.group);
}

int32_t query_head(const params &p, const work &w, int32_t row) {
    return (int32_t)(blockIdx.y * (uint32_t)p.group + (uint32_t)(w.row + row) % (uint32_t)p.group);
}

/* What a variant is told of a packed row, and of a key. */
bolide__variant_at place_of(const params &p, const work &w, int32_t row, int32_t key) {
    bolide__variant_at at = {};
    at.request = w.request;
    at.q_len = w.q_len;
    at.kv_len = w.kv_len;
    at.query = query_token(p, w, row);
    at.position = w.kv_len - w.q_len + at.query;
    at.head = query_head(p, w, row);
    at.kv_head = (int32_t)blockIdx.y;
    at.key = key;
    return at;
}

/* ---- scales and positions ---------------------------------------------------------------------
 */

float scale_of(const bolide__attention_scale &s, int64_t head) {
    return s.tensor ? s.tensor[head * s.step] : (float)s.number;
}

/* What the products of a row are multiplied by; with a cap the logits come to units of it. */
float logit_scale(const params &p, int32_t head, float key_scale) {
    return (float)p.sm_scale * key_scale * scale_of(p.q_scale, head) *
           (CAPPED ? 1.0f / (float)p.soft_cap : LOG2E);
}

float logit_scale(const params &p, int32_t head) {
    return logit_scale(p, head, scale_of(p.k_scale, blockIdx.y));
}

/* Where a token stands among the keys. */
int32_t position_of(const params &p, const work &w, int32_t token) {
    return token +
           (PLACED ? (int32_t)(w.q_start % p.fold_q + p.fold_kv - p.fold_q) : w.kv_len - w.q_len);
}

/* Where a key of a page stands, with PLACED. */
int32_t column_of_matrix(const params &p, int32_t key, int32_t page) {
    return (int32_t)((page * p.page_size + key % p.page_size) % p.fold_kv);
}

float alibi_slope(int64_t head, int64_t heads) {
    int64_t n = 1;
    while (2 * n <= heads)
        n *= 2;
    const float steps = head < n ? 8.0f * (float)(head + 1) / (float)n
                                 : 4.0f * (float)(2 * (head - n) + 1) / (float)n;
    return exp2f(-steps) * LOG2E;
}

/* Of a packed row. In a matrix that lies in several parts, the heads of all of them count one after
 * the other. */
float slope_of(const params &p, const work &w, int32_t row) {
    const int64_t part = PLACED ? w.q_start / p.fold_q : 0;
    const int64_t parts = PLACED ? p.q_rows / p.fold_q : 1;
    return alibi_slope(part * p.h_q + query_head(p, w, row), parts * p.h_q);
}

/* Keys [low, high) that a token sees by length, causal order, window and chunk; with PLACED by
 * their columns, the length apart. */
struct sight {
    int32_t low, high;
};

/* First key of the chunk of a position. */
int32_t chunk_start(const params &p, int32_t position) {
    return p.chunk > position ? 0 : position / (int32_t)p.chunk * (int32_t)p.chunk;
}

sight sight_of(const params &p, const work &w, int32_t token) {
    sight s = {0, PLACED && MASKED ? 0x7fffffff : w.kv_end};
    if constexpr (MASKED) {
        const int32_t position = position_of(p, w, token);
        if (p.flags & BOLIDE__ATTN_CAUSAL)
            s.high = smaller(s.high, position + 1);
        if (p.window_left >= 0)
            s.low = (int32_t)larger(position - p.window_left, (int64_t)0);
        if (CHUNKED && position > 0)
            s.low = larger(s.low, chunk_start(p, position));
    }
    return s;
}

/* Whether a token that sees so much sees a key, which stands in a column. */
bool in_sight(const work &w, const sight &seen, int32_t key, int32_t column) {
    const int32_t at = PLACED && MASKED ? column : key;
    return at >= seen.low && at < seen.high && (!PLACED || key < w.kv_end);
}

/* Whether a token's bits over the query tokens of its request show a key. */
bool in_draft(const params &p, const work &w, int32_t token, int32_t key) {
    const int32_t bit = key - (w.kv_len - w.q_len);
    if (bit < 0)
        return true;
    const uint8_t *row = p.draft + ((int64_t)w.q_start + token) * p.draft_row;
    return bit / 8 < p.draft_bytes && row[bit / 8] >> bit % 8 & 1;
}

/* Custom masks, drafts and multi-item scoring, for a key that lies in the token's sight. */
bool in_mask(const params &p, const work &w, int32_t token, int32_t key) {
    if (token >= w.q_len || (p.flags & BOLIDE__ATTN_DRAFT && !in_draft(p, w, token, key)))
        return false;
    const int64_t at = (int64_t)token * w.kv_len + key;
    if (p.flags & BOLIDE__ATTN_MASK_BYTES)
        return p.mask[w.mask_elem + at] != 0;
    if (p.flags & BOLIDE__ATTN_MASK_BITS)
        return p.mask[w.mask_byte + at / 8] >> at % 8 & 1;
    if (p.flags & BOLIDE__ATTN_ITEMS) {
        const int64_t prefix = p.prefix_len[w.request];
        const int64_t position = (int64_t)w.kv_len - w.q_len + token;
        if (position < prefix || key < prefix)
            return true;
        const int64_t i = position - prefix;
        return key >
               position - (i < p.token_pos_len ? p.token_pos[w.request * p.token_pos_len + i] : 0);
    }
    return true;
}

/* Whether every row sees every key of [first, first + KEYS). */
bool open_tile(const params &p, const work &w, int32_t first, int32_t rows) {
    const int32_t shift = w.kv_len - w.q_len;
    bool open = first + KEYS <= w.kv_end && !(PLACED && MASKED);
    if constexpr (SPECIAL) {
        constexpr int64_t OTHERS =
            BOLIDE__ATTN_MASK_BYTES | BOLIDE__ATTN_MASK_BITS | BOLIDE__ATTN_ITEMS;
        open = open && first + KEYS <= shift && !(p.flags & OTHERS); /* drafts show these */
    }
    if constexpr (MASKED) {
        const int32_t last = shift + query_token(p, w, rows - 1);
        if (p.flags & BOLIDE__ATTN_CAUSAL)
            open = open && first + KEYS <= shift + query_token(p, w, 0) + 1;
        if (p.window_left >= 0)
            open = open && first >= last - p.window_left;
        if constexpr (CHUNKED)
            open = open && (last <= 0 || first >= chunk_start(p, last));
    }
    return open;
}

/* Whether multi-item scoring hides [first, first + KEYS) from all rows: keys behind the prefix and
 * before the longest item that could reach the first row. */
bool hidden_tile(const params &p, const work &w, int32_t first) {
    if constexpr (SPECIAL) {
        if (p.flags & BOLIDE__ATTN_ITEMS && p.max_item_len) {
            const int64_t prefix = p.prefix_len[w.request];
            const int64_t position = (int64_t)w.kv_len - w.q_len + query_token(p, w, 0);
            return position >= prefix && first >= prefix &&
                   first + KEYS - 1 <= position - p.max_item_len[w.request];
        }
    }
    return false;
}

/* ---- where keys lie ---------------------------------------------------------------------------
 */

/* Entry of a key in its request's list of pages. */
uint32_t entry_of(const params &p, int32_t key) {
    return p.page_shift >= 0 ? (uint32_t)key >> p.page_shift
                             : (uint32_t)key / (uint32_t)p.page_size;
}

/* Where the list of pages has a key. */
const int32_t *page_entry(const params &p, const work &w, int32_t key) {
    const int64_t list = p.table_row ? w.request * p.table_row : (int64_t)w.kv_start;
    return p.indices + list + entry_of(p, key);
}

/* Page of a key; 0 without pages, −1 for a key behind the item's. */
int32_t look_up(const params &p, const work &w, int32_t key) {
    if (key >= w.kv_end)
        return -1;
    return PAGED ? *page_entry(p, w, key) : 0;
}

struct location {
    int64_t k, v; /* first elements of the rows; 0 for no key */
};

location locate(const params &p, const work &w, int32_t key, int32_t page) {
    if (page < 0)
        return {0, 0};
    int64_t row = key, v_page = page;
    if constexpr (V_PAGES)
        v_page = p.v_indices[w.request * p.v_table_row + entry_of(p, key)];
    if constexpr (PAGED)
        row = p.page_shift >= 0 ? (uint32_t)key & ((1u << p.page_shift) - 1)
                                : (uint32_t)key % (uint32_t)p.page_size;
    return {page * p.k_page + ((PAGED ? 0 : w.kv_start) + row) * p.k_n + blockIdx.y * p.k_h,
            v_page * p.v_page + ((PAGED ? 0 : w.v_start) + row) * p.v_n + blockIdx.y * p.v_h};
}

/* ---- the end of a row -------------------------------------------------------------------------
 */

struct place {
    out_elem *out; /* row of the output */
    float factor;  /* of sums of p v */
    /* with a variant, which comes between the factor and this one */
    float last;
    bolide__variant_at at;
    const bolide__variant_extra *extra;
};

/* The last step of a row: sink, division, scales; where it goes. The lse is written by the caller
 * that is `first` of its row. */
place finish(const params &p, const work &w, int32_t row, float m, float l, bool first) {
    const int32_t head = query_head(p, w, row), token = query_token(p, w, row);
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
    if constexpr (!bolide__variant_softmax)
        l = l > 0 ? 1.0f : 0.0f;
    const float lse = m + log2f(l);
    if (first && p.lse)
        p.lse[((int64_t)w.q_start + token) * p.lse_n + head * p.lse_h] =
            p.flags & BOLIDE__ATTN_LSE_BASE_E ? lse * LN2 : lse;
    place to;
    /* Where there is a key or a sink, the largest of them alone makes l at least 1. */
    to.factor =
        l == 0 ? 0.0f
               : weight * rcp_fast(l) * (scale_of(p.v_scale, blockIdx.y) / scale_of(p.o_scale, 0));
    if constexpr (VARIANT) {
        to.factor = l == 0 ? 0.0f : weight / l * scale_of(p.v_scale, blockIdx.y);
        to.last = 1.0f / scale_of(p.o_scale, 0);
        to.at = place_of(p, w, row, 0);
        to.extra = p.extra;
    }
    to.out =
        static_cast<out_elem *>(p.out) + ((int64_t)w.o_start + token) * p.out_n + head * p.out_h;
    return to;
}

/* An element of the output through the variant. */
float finished(const place &to, int32_t column, float x) {
    if constexpr (VARIANT) {
        bolide__variant_at at = to.at;
        at.dim = column;
        return bolide__variant_output(x, &at, to.extra) * to.last;
    }
    return x;
}

/* N neighbours of a row of the output. A row without a key is 0 whatever its sums are. */
template <int N> void put_out(const place &to, int32_t column, const float (&x)[N]) {
    float y[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        y[i] = to.factor == 0 ? 0.0f : finished(to, column + i, x[i] * to.factor);
    const pack<out_elem, N> value = pack_floats<out_elem>(y);
    out_elem *at = to.out + column;
    if (reinterpret_cast<uintptr_t>(at) % sizeof value == 0) {
        store(at, value);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            at[i] = value.at[i];
    }
}

/* ---- slots ------------------------------------------------------------------------------------
 */

int64_t slot_row_of(const params &p, int32_t slot, int32_t row) {
    return (slot * p.h_kv + blockIdx.y) * p.tile_rows + row;
}

void put_slot(const params &p, int64_t slot_row, int32_t column, float x, float y) {
    store(p.partial_o + slot_row * D_VO + column, pack<float, 2>{x, y});
}

void put_slot_ml(const params &p, int64_t slot_row, float m, float l) {
    store(p.partial_ml + 2 * slot_row, pack<float, 2>{m, l});
}

/* Slots of most tiles of a large batch: more are not asked for then. */
constexpr int FEW_SLOTS = 4;

/* What a thread of a merge has of a row: four columns. */
struct merged {
    float m, l, sum[4];
};

/* Adds slots in their order, of which `left` are there. */
template <int AT_ONCE>
void add_slots(const pack<float, 2> (&own)[AT_ONCE], const pack<float, 4> (&part)[AT_ONCE],
               int32_t left, merged &x) {
    float top = x.m;
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        top = fmaxf(top, own[k].at[0]);
    const float base = top == -INFINITE ? 0.0f : top, old = exp2_fast(x.m - base);
    x.m = top;
    x.l *= old;
#pragma unroll
    for (int c = 0; c < 4; c++)
        x.sum[c] *= old;
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        if (k >= left || own[k].at[0] == -INFINITE)
            continue;
        const float weight = exp2_fast(own[k].at[0] - base);
        x.l = fmaf(own[k].at[1], weight, x.l);
#pragma unroll
        for (int c = 0; c < 4; c++)
            x.sum[c] = fmaf(part[k].at[c], weight, x.sum[c]);
    }
}

/* Joins the slots of a tile. Sums and what they are weighted by are asked for together, those of
 * MERGED_ROWS rows at once, so that a round costs one step to memory. */
template <int AT_ONCE> void merge_tile(const params &p, const work &w, int32_t rows) {
    constexpr int PARTS = D_VO / 4;
    const int64_t step = p.h_kv * p.tile_rows; /* rows from slot to slot */
    const int32_t count = rows * PARTS;
#pragma unroll 1
    for (int32_t i = threadIdx.x; i < count; i += THREADS * MERGED_ROWS) {
        merged x[MERGED_ROWS];
#pragma unroll
        for (int r = 0; r < MERGED_ROWS; r++)
            x[r] = {-INFINITE, 0, {}};
#pragma unroll 1
        for (int32_t j = 0; j < w.merge_count; j += AT_ONCE) {
            pack<float, 2> own[MERGED_ROWS][AT_ONCE];
            pack<float, 4> part[MERGED_ROWS][AT_ONCE];
#pragma unroll
            for (int r = 0; r < MERGED_ROWS; r++) {
                const int32_t at = smaller(i + r * THREADS, count - 1);
                const int64_t first = slot_row_of(p, w.merge_slot, at / PARTS);
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++) {
                    const int64_t row = first + smaller(j + k, w.merge_count - 1) * step;
                    own[r][k] = load_written<pack<float, 2>>(p.partial_ml + 2 * row);
                    part[r][k] =
                        load_written<pack<float, 4>>(p.partial_o + row * D_VO + at % PARTS * 4);
                }
            }
#pragma unroll
            for (int r = 0; r < MERGED_ROWS; r++)
                add_slots(own[r], part[r], w.merge_count - j, x[r]);
        }
#pragma unroll
        for (int r = 0; r < MERGED_ROWS; r++) {
            const int32_t at = i + r * THREADS, column = at % PARTS * 4;
            if (at < count)
                put_out(finish(p, w, at / PARTS, x[r].m, x[r].l, column == 0), column, x[r].sum);
        }
    }
}

/* Adds 1 behind what the block has written and before what it reads then; what was there. */
int32_t count_in(int32_t *arrived) {
    int32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(arrived)
                 : "memory");
    return before;
}

/* Counts this block in for a tile of several pieces; the last one merges. Called by all threads
 * once their parts of the slot are written. */
void arrive(const params &p, const work &w, int32_t rows, int32_t &is_last) {
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t *arrived = p.arrivals + w.merge * p.h_kv + blockIdx.y;
        is_last = count_in(arrived) == w.merge_count - 1;
        if (is_last)
            *arrived = 0; /* for the next run */
    }
    __syncthreads();
    if (!is_last)
        return;
    if (MERGED_AT_ONCE > FEW_SLOTS && w.merge_count <= FEW_SLOTS)
        merge_tile<FEW_SLOTS>(p, w, rows);
    else
        merge_tile<MERGED_AT_ONCE>(p, w, rows);
}

#endif
