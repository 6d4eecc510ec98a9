// SPDX-License-Identifier: Apache-2.0
//
// The warpgroup of sparse_mla_sm90.cu that loads: 16 rows of each tile a warp, in halves, as the
// warpgroups that compute give them back. A lane of the first 16 knows where one row lies, and asks
// what the lists say of its row of the next pair of tiles while this one is on its way. Included by
// that file only, behind its constants and its shared memory.

#ifndef BOLIDE_OPS_ATTENTION_SPARSE_MLA_SM90_LOAD_CUH
#define BOLIDE_OPS_ATTENTION_SPARSE_MLA_SM90_LOAD_CUH

/* Blocks of e4m3 of a packed row, and where 64 columns of 16 bits begin in it. */
constexpr int NARROW = !RAW ? 0 : FORMAT == FP8_656 ? 8 : 7;
constexpr int ROPE = FORMAT == FP8_656 ? BOLIDE__MLA_656_ROPE : BOLIDE__MLA_584_ROPE;

/* Whether a part holds the block of a packed row that is 16 bits already. */
constexpr bool has_halves(int w, int part) {
    return FORMAT == FP8_656 ? part == 1 && TAILS : first_block(w, part) + HALF > NARROW;
}

/* All threads arrive when their copies are there, and the warps when they have stored. */
constexpr uint32_t full_arrivals(int w, int part) {
    return (!RAW || has_halves(w, part) ? 128 : 0) + (RAW || part == 0 ? 4 : 0);
}

/* A lane's row of a tile. */
struct asked {
    int32_t key, entry;
};

asked ask(const params &p, const item &w, int32_t tile) {
    const int32_t key =
        w.begin + tile * KEYS + (int32_t)threadIdx.x % 128 / 32 * 16 + (int32_t)threadIdx.x % 32;
    if (threadIdx.x % 32 >= 16 || key >= w.end)
        return {-1, -1};
    return {key, entry_of_any(p, w.token, w.first, key)};
}

location find(const params &p, const item &w, const asked &a) {
    return a.key < 0 ? location{nullptr, nullptr} : locate_entry(p, w.first, a.key, a.entry);
}

const char *row_of_lane(const char *row, int lane) {
    const uint64_t bits = reinterpret_cast<uint64_t>(row);
    const uint32_t low = __shfl_sync(0xffffffffu, (uint32_t)bits, lane);
    const uint32_t high = __shfl_sync(0xffffffffu, (uint32_t)(bits >> 32), lane);
    return reinterpret_cast<const char *>((uint64_t)high << 32 | low);
}

/* Which rows of a tile there are. Its place is free once part 0 is. */
template <int W> void put_there(shared_memory &s, uint32_t there) {
    if (threadIdx.x % 32 == 0) {
        s.there[W][threadIdx.x % 128 / 32] = (uint16_t)there;
        barrier_arrive(s.full[W][0]);
    }
}

/* Q of an item, once the products with that of the item before are there. */
void load_queries(const params &p, const item &w, int32_t count, course &at, shared_memory &s) {
    if (FEW || count <= 0)
        return;
    barrier_wait(s.empty_q, at.of(2));
    at.turn(2);
    copy_queries<128>(p, w, (int)threadIdx.x % 128, s);
    barrier_arrive_copied(s.full_q);
}

/* ---- rows of 16 bits ---------------------------------------------------------------------------
 */

template <int W, int PART>
void copy_part(shared_memory &s, const char *const (&from)[4], const uint32_t (&bytes)[4],
               uint32_t to) {
    constexpr int FIRST = first_block(W, PART);
#pragma unroll
    for (int g = 0; g < 4; g++) {
        /* Rows 4 apart differ in the highest bit of what pieces are exchanged by. */
        const uint32_t at = (g % 2 ? to ^ 64 : to) + g * 512;
#pragma unroll
        for (int b = FIRST; b < FIRST + HALF; b++)
            copy_16_at(at + (W * BLOCKS + b) * BLOCK, from[g] + b * 128, bytes[g]);
        if (PART == 1 && TAILS)
            copy_16_at(at + (2 * BLOCKS + W) * BLOCK, from[g] + D_VO * 2, bytes[g]);
    }
    barrier_arrive_copied(s.full[W][PART]);
}

template <int W>
void copy_tile(const params &p, shared_memory &s, const char *row, uint32_t phase, uint32_t to) {
    const int lane = threadIdx.x % 32;
    const uint32_t there = __ballot_sync(0xffffffffu, row != nullptr);
    const char *from[4];
    uint32_t bytes[4];
#pragma unroll
    for (int g = 0; g < 4; g++) {
        from[g] = row_of_lane(row, 4 * g + lane / 8);
        bytes[g] = from[g] ? 16 : 0;
        from[g] = (from[g] ? from[g] : static_cast<const char *>(p.list[0].cache)) + lane % 8 * 16;
    }
    barrier_wait(s.empty[W][0], phase);
    put_there<W>(s, there);
    copy_part<W, 0>(s, from, bytes, to);
    barrier_wait(s.empty[W][1], phase);
    copy_part<W, 1>(s, from, bytes, to);
}

void copy_tiles(const params &p, shared_memory &s) {
    const int row = (int)threadIdx.x % 128 / 8 % 4, warp = (int)threadIdx.x % 128 / 32;
    uint32_t to =
        shared_address(s.k) + warp * 2048 + row * 128 + (((int)threadIdx.x ^ row) & 7) * 16;
    /* NVRTC 13.0 writes an illegal instruction where it knows a part that is the same for all. */
    asm volatile("" : "+r"(to));
    const uint32_t items = items_of(p);
    course at = {7};
#pragma unroll 1
    for (uint32_t i = blockIdx.x; i < items; i += gridDim.x) {
        const item w = item_of(p, i);
        const int32_t count = tiles_of(w);
        asked next[2] = {ask(p, w, 0), ask(p, w, 1)};
        load_queries(p, w, count, at, s);
#pragma unroll 1
        for (int32_t tile = 0; tile < count; tile += 2) {
            const location rows[2] = {find(p, w, next[0]), find(p, w, next[1])};
            next[0] = ask(p, w, tile + 2);
            next[1] = ask(p, w, tile + 3);
            copy_tile<0>(p, s, rows[0].row, at.of(0), to);
            at.turn(0);
            if (tile + 1 < count) {
                copy_tile<1>(p, s, rows[1].row, at.of(1), to);
                at.turn(1);
            }
        }
    }
}

/* ---- packed rows -------------------------------------------------------------------------------
 */

/* Notes in slot SLOT where this warp's rows of a tile lie, and has their scales copied. Lines of
 * the rows are asked into the L2, where they are when they are loaded. */
template <int SLOT>
void find_packed(const params &p, const item &w, const asked &a, shared_memory &s) {
    const int lane = threadIdx.x % 32, row = (int)threadIdx.x % 128 / 32 * 16 + lane;
    const location at = find(p, w, a);
    if (lane < 16) {
        s.row[SLOT][row] = at.row;
        const char *any = static_cast<const char *>(p.list[0].cache);
        if constexpr (FORMAT == FP8_656)
            copy_16(s.scales[SLOT][row], at.row ? at.row + BOLIDE__MLA_656_SCALES : any,
                    at.row ? 16 : 0);
        else
            copy_8(s.scales[SLOT][row], at.row ? at.scales : any, at.row ? 8 : 0);
    }
    commit_copies();
    __syncwarp();
}

/* This thread's number, which the compiler does not know: it would keep each address that follows
 * from it in a register of its own. */
int hidden_thread() {
    int thread = (int)threadIdx.x % 128;
    asm volatile("" : "+r"(thread));
    return thread;
}

/* Eight lanes have 64 columns of two rows, four each; which block of a part they have is lane / 8.
 */
int row_of_load(int thread, int i) {
    return thread / 32 * 16 + thread / 4 % 2 + 2 * i;
}

constexpr int LOADS = 8; /* of 16 bytes, for a part */

/* Columns of e4m3 of a part from a row, to registers. */
template <int W, int PART> uint4 load_piece(const char *row, int thread) {
    constexpr int FIRST = first_block(W, PART);
    const int lane = thread % 32;
    if (row && FIRST + lane / 8 < NARROW)
        return load_once<uint4>(row + FIRST * 64 + lane / 8 * 64 + lane % 4 * 16);
    return {0, 0, 0, 0};
}

/* The scale of a lane's columns. */
template <int W, int PART, int SLOT> float scale_of(const shared_memory &s, int thread, int i) {
    constexpr int FIRST = first_block(W, PART);
    const int block = FIRST + thread % 32 / 8;
    const uint32_t *scales = s.scales[SLOT][row_of_load(thread, i)];
    if constexpr (FORMAT == FP8_656)
        return bits_float(scales[block / 2]);
    else
        return to_float(e8m0{reinterpret_cast<const uint8_t *>(scales)[block]});
}

/* 8 columns of e4m3 to bf16. */
uint4 widen(uint32_t low, uint32_t high, float scale) {
    const float2_t a = e4m3x2_to_floats((uint16_t)low), b = e4m3x2_to_floats(low >> 16);
    const float2_t c = e4m3x2_to_floats((uint16_t)high), d = e4m3x2_to_floats(high >> 16);
    return {floats_to_bf16x2(a.x * scale, a.y * scale), floats_to_bf16x2(b.x * scale, b.y * scale),
            floats_to_bf16x2(c.x * scale, c.y * scale), floats_to_bf16x2(d.x * scale, d.y * scale)};
}

/* The 64 columns of this warp's rows that have 16 bits already. */
template <int W, int PART, int SLOT>
void copy_halves(const params &p, shared_memory &s, int thread) {
    unsigned char *to = FORMAT == FP8_656 ? s.tail[W] : s.k[W][BLOCKS - 1];
    const int lane = thread % 32, warp = thread / 32;
#pragma unroll
    for (int g = 0; g < 4; g++) {
        const int own = warp * 16 + 4 * g + lane / 8;
        const char *from = s.row[SLOT][own];
        copy_16(to + own * 128 + ((lane ^ own) & 7) * 16,
                (from ? from : static_cast<const char *>(p.list[0].cache)) + ROPE + lane % 8 * 16,
                from ? 16 : 0);
    }
    barrier_arrive_copied(s.full[W][PART]);
}

/* Registers to a part of the tile in slot SLOT, while they are loaded for the part <NEXT_W,
 * NEXT_PART> of the one in NEXT. Rows that are not there are zeros: so are their scales. */
template <int W, int PART, int SLOT, int NEXT_W, int NEXT_PART, int NEXT>
void widen_part(const params &p, shared_memory &s, uint4 (&x)[LOADS], uint32_t phase) {
    constexpr int FIRST = first_block(W, PART);
    const int thread = hidden_thread(), lane = thread % 32, warp = thread / 32;
    if constexpr (PART == 0) {
        wait_copies<1>(); /* the scales of the tile, behind which a group was closed */
        __syncwarp();
    }
    barrier_wait(s.empty[W][PART], phase);
    if constexpr (has_halves(W, PART))
        copy_halves<W, PART, SLOT>(p, s, thread);
    if constexpr (PART == 1)
        commit_copies();
    const uint32_t to = shared_address(s.k[W][FIRST + lane / 8]) + warp * 2048 +
                        (lane / 4 % 2) * 128 + ((lane % 4 * 2) ^ (lane / 4 % 2)) * 16;
    const bool mine = FIRST + lane / 8 < NARROW;
    /* What the next turn needs is read before the stores, which it could not pass. */
    const char *row = s.row[NEXT][row_of_load(thread, 0)];
    float scale = scale_of<W, PART, SLOT>(s, thread, 0);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const uint4 old = x[i];
        const float own = scale;
        x[i] = load_piece<NEXT_W, NEXT_PART>(row, thread);
        if (i + 1 < LOADS) {
            row = s.row[NEXT][row_of_load(thread, i + 1)];
            scale = scale_of<W, PART, SLOT>(s, thread, i + 1);
        }
        const uint32_t at = (to ^ (2 * i & 7) * 16) + i * 256;
        if (mine) {
            store_shared(at, widen(old.x, old.y, own));
            store_shared(at ^ 16, widen(old.z, old.w, own));
        }
    }
    /* These are ordinary stores, read by wgmma: wait_full has the fence. One here would wait for
     * what is being loaded, too. */
    if constexpr (PART == 0) {
        const bool is = s.row[SLOT][warp * 16 + lane % 16] != nullptr;
        const uint32_t there = __ballot_sync(0xffffffffu, is);
        if (lane == 0)
            s.there[W][warp] = (uint16_t)there;
    }
    leave(s.full[W][PART]);
}

void widen_tiles(const params &p, const item &w, course &at, shared_memory &s) {
    const int32_t count = tiles_of(w);
    asked next[2] = {ask(p, w, 0), ask(p, w, 1)};
    load_queries(p, w, count, at, s);
    find_packed<0>(p, w, next[0], s);
    find_packed<1>(p, w, next[1], s);
    uint4 x[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        x[i] = load_piece<0, 0>(s.row[0][row_of_load(hidden_thread(), i)], hidden_thread());
#pragma unroll 1
    for (int32_t tile = 0; tile < count; tile += 2) {
        next[0] = ask(p, w, tile + 2);
        next[1] = ask(p, w, tile + 3);
        widen_part<0, 0, 0, 0, 1, 0>(p, s, x, at.of(0));
        widen_part<0, 1, 0, 1, 0, 1>(p, s, x, at.of(0));
        at.turn(0);
        __syncwarp(); /* all have read where the rows lie */
        find_packed<0>(p, w, next[0], s);
        if (tile + 1 < count) {
            widen_part<1, 0, 1, 1, 1, 1>(p, s, x, at.of(1));
            widen_part<1, 1, 1, 0, 0, 0>(p, s, x, at.of(1));
            at.turn(1);
        }
        __syncwarp();
        find_packed<1>(p, w, next[1], s);
    }
    __syncwarp(); /* the same, before the next item */
}

/* A tile of a warpgroup that has every second one, from one slot, while its next is loaded, whose
 * rows are noted in the other. */
template <int W, int SLOT, int NEXT>
void widen_own(const params &p, const item &w, int32_t tile, asked &next, uint4 (&x)[2][LOADS],
               shared_memory &s) {
    const uint32_t phase = tile / 2 + 1 & 1;
    __syncwarp(); /* all have read where the rows of the tile before lie */
    find_packed<NEXT>(p, w, next, s);
    next = ask(p, w, tile + 4);
    widen_part<W, 0, SLOT, W, 0, NEXT>(p, s, x[0], phase);
    widen_part<W, 1, SLOT, W, 1, NEXT>(p, s, x[1], phase);
}

template <int W>
void widen_second(const params &p, const item &w, int32_t count, shared_memory &s) {
    constexpr int A = 2 * W, B = 2 * W + 1;
    find_packed<A>(p, w, ask(p, w, W), s);
    asked next = ask(p, w, W + 2);
    uint4 x[2][LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int thread = hidden_thread();
        const char *row = s.row[A][row_of_load(thread, i)];
        x[0][i] = load_piece<W, 0>(row, thread);
        x[1][i] = load_piece<W, 1>(row, thread);
    }
#pragma unroll 1
    for (int32_t tile = W; tile < count; tile += 4) {
        widen_own<W, A, B>(p, w, tile, next, x, s);
        if (tile + 2 < count)
            widen_own<W, B, A>(p, w, tile + 2, next, x, s);
    }
}

/* By a warpgroup; where there are two of them, W is its number. */
template <int W> void load_all(const params &p, shared_memory &s) {
    if constexpr (LOADERS == 2) {
        const item w = item_of(p, blockIdx.x);
        widen_second<W>(p, w, tiles_of(w), s);
    } else if constexpr (RAW) {
        const uint32_t items = items_of(p);
        course at = {7};
#pragma unroll 1
        for (uint32_t i = blockIdx.x; i < items; i += gridDim.x)
            widen_tiles(p, item_of(p, i), at, s);
    } else {
        copy_tiles(p, s);
    }
}

#endif
