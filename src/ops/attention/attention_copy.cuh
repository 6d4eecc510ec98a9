// SPDX-License-Identifier: Apache-2.0
//
// The tiles of keys and values of attention.cu on their way into shared memory. Rows that lie one
// behind the other in memory (LINEAR) are found from the first. For others a place each is looked
// up: the page while the tile before is computed, what follows from it behind that. A tile's copies
// are asked for in one go, or some at a time between other work (tile_copies). Included by
// attention.cu only, behind its constants and its shared memory.

#ifndef BOLIDE_OPS_ATTENTION_COPY_CUH
#define BOLIDE_OPS_ATTENTION_COPY_CUH

/* ---- the tiles of a worker --------------------------------------------------------------------
 */

/* A tile: which item of the worker, and its first key. An item without keys has one tile. */
struct cursor {
    int32_t item, key;
};

void advance(const params &p, shared_memory &s, cursor &c) {
    if (c.item >= s.count)
        return;
    c.key += KEYS;
    if (c.key < s.works[c.item % WINDOW].kv_end)
        return;
    c.item++;
    c.key = c.item < s.count ? s.works[c.item % WINDOW].kv_begin : 0;
    if (threadIdx.x < 5 && c.item + LEAD < s.count)
        fetch_work(p, c.item + LEAD, threadIdx.x, &s.works[(c.item + LEAD) % WINDOW]);
}

/* Keys of a tile, and what follows them; none behind the last item. */
int32_t keys_left(const shared_memory &s, const cursor &c) {
    return c.item < s.count ? s.works[c.item % WINDOW].kv_end - c.key : 0;
}

/* ---- places -----------------------------------------------------------------------------------
 */

/* How the copies of 16 bytes of one side of a tile, KEYS rows of D elements, are shared out. */
template <int D> struct share {
    static constexpr int WHOLE = larger(D * KV_BYTES / 16, 1);
    static constexpr int COPIES = (KEYS * WHOLE + THREADS - 1) / THREADS; /* of a thread */
    /* Where a round of all threads is whole rows, a thread's piece stays the same, */
    static constexpr bool EVEN = WIDE && THREADS % WHOLE == 0 && KEYS * WHOLE % THREADS == 0;
    static constexpr int STEP = EVEN ? THREADS / WHOLE : 1; /* from a thread's row to its next */
    /* and the places of a thread's rows lie next to each other. */
    static constexpr bool ADJACENT = EVEN && COPIES % 2 == 0;
    static int entry(int row) {
        return ADJACENT ? row % STEP * COPIES + row / STEP : row;
    }
};

/* Whether half of the threads look up places of keys and the others those of values. */
constexpr bool HALVES = THREADS >= 2 * KEYS;

/* This thread's key of a tile. */
int32_t own_key() {
    return HALVES ? (int32_t)threadIdx.x % KEYS : (int32_t)threadIdx.x;
}

bool has_key(const shared_memory &s, const cursor &c) {
    return c.item < s.count && own_key() < KEYS;
}

/* Page of this thread's key of a tile; −1 if it has none. */
int32_t look_up_own(const params &p, const shared_memory &s, const cursor &c) {
    return has_key(s, c) ? look_up(p, s.works[c.item % WINDOW], c.key + own_key()) : -1;
}

/* Bytes from the key head's first row to the row of a key, 0 for no key. */
int64_t place_of_key(const params &p, const work &w, bool values, int32_t key, int32_t page) {
    if (page < 0)
        return 0;
    int64_t row = key;
    if (V_PAGES && values)
        page = p.v_indices[w.request * p.v_table_row + entry_of(p, key)];
    if constexpr (PAGED)
        row = p.page_shift >= 0 ? (uint32_t)key & ((1u << p.page_shift) - 1)
                                : (uint32_t)key % (uint32_t)p.page_size;
    else
        row += values ? w.v_start : w.kv_start;
    return (page * (values ? p.v_page : p.k_page) + row * (values ? p.v_n : p.k_n)) * KV_BYTES;
}

void store_location(const params &p, shared_memory &s, const cursor &c, int slot, int32_t page) {
    const work &w = s.works[c.item % WINDOW];
    const int32_t own = own_key();
    const bool values = (int32_t)threadIdx.x >= KEYS;
    if (threadIdx.x == 0)
        s.keys[slot] = keys_left(s, c);
    if (threadIdx.x >= (HALVES ? 2 * KEYS : KEYS))
        return;
    if (PLACED && !values)
        s.columns[slot][own] = column_of_matrix(p, c.key + own, page);
    if (!values)
        s.k_at[slot][share<D_QK>::entry(own)] = place_of_key(p, w, false, c.key + own, page);
    if (values == HALVES)
        s.v_at[slot][share<D_VO>::entry(own)] = place_of_key(p, w, true, c.key + own, page);
}

/* ---- copies -----------------------------------------------------------------------------------
 */

/* Where the rows of a tile come from: the first row or, with places, what they are counted from;
 * bytes from row to row. */
struct tile_source {
    const char *k, *v;
    int64_t k_step, v_step;
    int32_t count; /* rows that are there */
};

tile_source source_of(const params &p, const shared_memory &s, const cursor &c, int slot) {
    tile_source from;
    from.k = static_cast<const char *>(p.k) + blockIdx.y * p.k_h * KV_BYTES;
    from.v = static_cast<const char *>(p.v) + blockIdx.y * p.v_h * KV_BYTES;
    from.k_step = p.k_n * KV_BYTES;
    from.v_step = p.v_n * KV_BYTES;
    if constexpr (LINEAR) {
        const work &w = s.works[c.item % WINDOW];
        from.count = keys_left(s, c);
        if (from.count > 0) {
            from.k += (w.kv_start + c.key) * from.k_step;
            from.v += (w.v_start + c.key) * from.v_step;
        }
    } else {
        from.count = s.keys[slot];
    }
    return from;
}

template <int D, int PIECES> int place_of_copy(int row, int piece, int j) {
    using own = share<D>;
    if constexpr (own::EVEN && own::STEP % 8 == 0)
        return spot<PIECES>(row, piece) + j * own::STEP * row_bytes<PIECES>();
    return spot<PIECES>(row + j * own::STEP, piece);
}

void copy_piece(unsigned char *to, uint32_t to_at, int place, const char *from, int bytes) {
    if constexpr (SHARED_ROWS)
        copy_16_once(to_at + place, from, bytes);
    else
        copy_16(to + place, from, bytes);
}

/* One side of a tile, of whose rows the first `count` are there, or all. A copy keeps loads from
 * shared memory behind it, so that the places of several rows are read before the first of their
 * copies: one by one, each would wait for its own. Places are bytes, so that a copy costs a sum and
 * little more. */
template <int D, int PIECES, bool ALL>
void copy_pieces(unsigned char *to, uint32_t to_at, const char *from, int64_t step,
                 const int64_t *at, int32_t count) {
    using own = share<D>;
    constexpr int WHOLE = own::WHOLE;
    const int row = threadIdx.x / WHOLE, piece = threadIdx.x % WHOLE;
    if constexpr (LINEAR && own::EVEN) {
        from += row * step + piece * 16;
#pragma unroll
        for (int j = 0; j < own::COPIES; j++)
            copy_piece(to, to_at, place_of_copy<D, PIECES>(row, piece, j),
                       from + j * (own::STEP * step), ALL || row + j * own::STEP < count ? 16 : 0);
    } else if constexpr (own::ADJACENT) {
        constexpr int AT_ONCE = smaller(own::COPIES, 8);
        from += piece * 16;
        at += row * own::COPIES;
#pragma unroll
        for (int first = 0; first < own::COPIES; first += AT_ONCE) {
            pack<int64_t, 2> where[AT_ONCE / 2];
#pragma unroll
            for (int j = 0; j < AT_ONCE / 2; j++)
                where[j] = load<pack<int64_t, 2>>(at + first + 2 * j);
#pragma unroll
            for (int j = first; j < first + AT_ONCE; j++)
                copy_piece(to, to_at, place_of_copy<D, PIECES>(row, piece, j),
                           from + where[(j - first) / 2].at[j % 2],
                           ALL || row + j * own::STEP < count ? 16 : 0);
        }
    } else {
#pragma unroll 2
        for (int i = threadIdx.x; i < KEYS * WHOLE; i += THREADS) {
            const int r = i / WHOLE, c = i % WHOLE;
            copy_piece(to, to_at, spot<PIECES>(r, c), from + (LINEAR ? r * step : at[r]) + c * 16,
                       ALL || r < count ? 16 : 0);
        }
    }
}

template <int D, int PIECES>
void copy_rows(unsigned char *to, uint32_t to_at, const char *from, int64_t step, const int64_t *at,
               int32_t count) {
    if constexpr (WIDE) {
        if (count >= KEYS)
            copy_pieces<D, PIECES, true>(to, to_at, from, step, at, count);
        else
            copy_pieces<D, PIECES, false>(to, to_at, from, step, at, count);
    } else {
#pragma unroll 4
        for (int j = 0; j < KEYS * D / THREADS; j++) {
            const int i = j * THREADS + threadIdx.x;
            const int row = i / D, d = i % D;
            constexpr int IN_PIECE = 16 / KV_BYTES;
            kv_elem x = {};
            if (row < count)
                x = reinterpret_cast<const kv_elem *>(from + at[row])[d];
            unsigned char *piece = to + spot<PIECES>(row, d / IN_PIECE);
            reinterpret_cast<kv_elem *>(piece)[d % IN_PIECE] = x;
        }
    }
}

/* Asks for a tile: that of the cursor or, with places, the one whose places were stored for this
 * stage. */
void load_tile(const params &p, shared_memory &s, const cursor &c, int stage) {
    unsigned char *to = s.stage[stage];
    const uint32_t at = SHARED_ROWS ? s.stage_at[stage] : 0;
    const tile_source from = source_of(p, s, c, stage);
    copy_rows<D_QK, K_PIECES>(to, at, from.k, from.k_step, s.k_at[stage], from.count);
    copy_rows<D_VO, V_PIECES>(to + KEYS * K_ROW, at + KEYS * K_ROW, from.v, from.v_step,
                              s.v_at[stage], from.count);
    commit_copies();
}

/* ---- while the previous kernel ends -----------------------------------------------------------
 */

/* Whether pages are looked up then. The list of pages may be that kernel's work: what is read is a
 * guess, kept within the cache and past the first cache of the multiprocessor, and the pages are
 * looked up once more behind the first copies. A plan is never that kernel's work. */
constexpr bool EARLY = SHARED_ROWS && PAGED && !V_PAGES && ARCH >= 90;

int32_t look_up_past_cache(const params &p, const shared_memory &s, const cursor &c) {
    const work &w = s.works[c.item % WINDOW];
    int32_t page = -1;
    if (has_key(s, c) && c.key + own_key() < w.kv_end)
        asm volatile("ld.global.cg.s32 %0, [%1];"
                     : "=r"(page)
                     : "l"(page_entry(p, w, c.key + own_key()))
                     : "memory");
    return page;
}

int32_t guess_own(const params &p, const shared_memory &s, const cursor &c) {
    const int32_t page = look_up_past_cache(p, s, c);
    return page < 0 || page < p.pages ? larger(page, -1) : 0;
}

/* The rows of a thread's key, to L2. */
void prefetch_own(const params &p, const shared_memory &s, const cursor &c, int32_t page) {
    const work &w = s.works[c.item % WINDOW];
    const bool values = (int32_t)threadIdx.x >= KEYS;
    if (page < 0 || threadIdx.x >= (HALVES ? 2 * KEYS : KEYS))
        return;
    if (!values) {
        const char *k = static_cast<const char *>(p.k) + blockIdx.y * p.k_h * KV_BYTES +
                        place_of_key(p, w, false, c.key + own_key(), page);
#pragma unroll
        for (int i = 0; i < D_QK * KV_BYTES; i += 128)
            prefetch(k + i);
    }
    if (values == HALVES) {
        const char *v = static_cast<const char *>(p.v) + blockIdx.y * p.v_h * KV_BYTES +
                        place_of_key(p, w, true, c.key + own_key(), page);
#pragma unroll
        for (int i = 0; i < D_VO * KV_BYTES; i += 128)
            prefetch(v + i);
    }
}

/* Whether some thread's page is another than it guessed; then the places are those looked up. */
bool correct_guess(const params &p, shared_memory &s, const cursor (&at)[STAGES],
                   const int32_t (&guess)[STAGES]) {
    int32_t page[STAGES];
    bool wrong = false;
#pragma unroll
    for (int i = 0; i < STAGES; i++) {
        page[i] = look_up_past_cache(p, s, at[i]);
        wrong = wrong || page[i] != guess[i];
    }
    if (!__syncthreads_or(wrong))
        return false;
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < STAGES; i++)
        store_location(p, s, at[i], i, page[i]);
    __syncthreads();
    return true;
}

/* ---- copies between other work ----------------------------------------------------------------
 */

/* Whether the copies of a tile go between the steps of the one before. */
constexpr bool BETWEEN = !SHARED_ROWS && share<D_QK>::EVEN && share<D_VO>::EVEN &&
                         (LINEAR || (share<D_QK>::ADJACENT && share<D_VO>::ADJACENT));

/* A thread's copies, in the order of keys and then values. */
struct tile_copies {
    static constexpr int K = share<D_QK>::COPIES, ALL = K + share<D_VO>::COPIES;
    static constexpr int STEPS = MT * NT, OF_STEP = (ALL + STEPS - 1) / STEPS;
    unsigned char *to;
    const char *k, *v; /* of the thread's first rows and pieces */
    int64_t k_step, v_step;
    const int64_t *k_at, *v_at;
    int32_t count;
    pack<int64_t, 2> places; /* of the next two copies */

    pack<int64_t, 2> places_of(int i) const {
        return load<pack<int64_t, 2>>(i < K ? k_at + i : v_at + i - K);
    }

    void begin(const params &p, shared_memory &s, const cursor &c, int stage) {
        const tile_source from = source_of(p, s, c, stage);
        const int k_row = threadIdx.x / share<D_QK>::WHOLE,
                  v_row = threadIdx.x / share<D_VO>::WHOLE;
        to = s.stage[stage];
        count = from.count;
        k = from.k + threadIdx.x % share<D_QK>::WHOLE * 16;
        v = from.v + threadIdx.x % share<D_VO>::WHOLE * 16;
        if constexpr (LINEAR) {
            k += k_row * from.k_step;
            v += v_row * from.v_step;
            k_step = from.k_step * share<D_QK>::STEP;
            v_step = from.v_step * share<D_VO>::STEP;
        } else {
            k_at = s.k_at[stage] + k_row * share<D_QK>::COPIES;
            v_at = s.v_at[stage] + v_row * share<D_VO>::COPIES;
            places = places_of(0);
        }
    }

    template <int D, int PIECES>
    void copy(unsigned char *side, const char *from, int64_t step, int64_t place, int j) const {
        const int row = threadIdx.x / share<D>::WHOLE, piece = threadIdx.x % share<D>::WHOLE;
        copy_16(side + place_of_copy<D, PIECES>(row, piece, j), from + (LINEAR ? j * step : place),
                row + j * share<D>::STEP < count ? 16 : 0);
    }

    void some(int step) {
#pragma unroll
        for (int i = 0; i < OF_STEP; i++) {
            const int j = step * OF_STEP + i;
            if (j >= ALL)
                break;
            const int64_t place = LINEAR ? 0 : places.at[j % 2];
            if (!LINEAR && j % 2 == 1 && j + 1 < ALL)
                places = places_of(j + 1);
            if (j < K)
                copy<D_QK, K_PIECES>(to, k, k_step, place, j);
            else
                copy<D_VO, V_PIECES>(to + KEYS * K_ROW, v, v_step, place, j - K);
        }
        if (step == STEPS - 1)
            commit_copies();
    }
};

/* Columns between the head size and whole products are zero. */
template <int D, int PIECES> void clear_columns(unsigned char *rows) {
    constexpr int IN_PIECE = 16 / KV_BYTES;
    if constexpr (D % 16 != 0) {
        for (int i = threadIdx.x; i < KEYS * 8; i += THREADS) {
            const int row = i / 8, d = D + i % 8;
            unsigned char *piece = rows + spot<PIECES>(row, d / IN_PIECE);
            reinterpret_cast<kv_elem *>(piece)[d % IN_PIECE] = {};
        }
    }
}

void clear_padding(unsigned char *stage) {
    clear_columns<D_QK, K_PIECES>(stage);
    clear_columns<D_VO, V_PIECES>(stage + KEYS * K_ROW);
}

#endif
