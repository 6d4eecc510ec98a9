// SPDX-License-Identifier: Apache-2.0
//
// How a warp of attention_stream.cu asks the copy engine for its next units: where they lie, and in
// which order they come. Included by that file only, behind its constants and its shared memory.

#ifndef BOLIDE_OPS_ATTENTION_STREAM_LOAD_CUH
#define BOLIDE_OPS_ATTENTION_STREAM_LOAD_CUH

/* ---- asking for units -------------------------------------------------------------------------
 */

/* What a warp asks for next. Pages of 32 of its units lie in the lanes, a unit each. */
struct loader {
    int32_t item, key, end; /* of the worker; the unit's first key; behind the item's last */
    int32_t at;             /* lane that has the unit's pages */
    int64_t list;           /* the request's first entry in the list of pages */
    int32_t page[BOXES];
    int32_t then_key, then_end; /* the same of the item behind it */
    int64_t then_list;
    int32_t then_page[BOXES];
    bool looked; /* these are there */
};

int lane_of() {
    return threadIdx.x % 32;
}

int warp_of() {
    return threadIdx.x / 32;
}

int64_t list_of(const stream_params &a, const work &w) {
    return a.first.table_row ? w.request * a.first.table_row : (int64_t)w.kv_start;
}

/* Past the first cache; what is behind the item's end is not read. */
void look_up_pages(const stream_params &a, int64_t list, int32_t first, int32_t end,
                   int32_t (&page)[BOXES]) {
#pragma unroll
    for (int b = 0; b < BOXES; b++) {
        const int32_t key = first + lane_of() * STEP + b * BOX;
        page[b] = -1;
        if (key < end)
            asm volatile("ld.global.cg.s32 %0, [%1];"
                         : "=r"(page[b])
                         : "l"(a.first.indices + list + (key >> a.first.page_shift))
                         : "memory");
    }
}

/* Where the item behind the loader's lies, if there is one. */
void find_then(const stream_params &a, int32_t begin, int32_t count, loader &x) {
    if (ALONE)
        return;
    x.looked = false;
    x.then_key = x.then_end = 0;
    x.then_list = 0;
    if (x.item + 1 >= count)
        return;
    const work &w = a.p.works[begin + x.item + 1];
    x.then_key = w.kv_begin + warp_of() * KEYS;
    x.then_end = w.kv_end;
    x.then_list = list_of(a, w);
}

void look_ahead(const stream_params &a, loader &x) {
    if (!ALONE && !x.looked)
        look_up_pages(a, x.then_list, x.then_key, x.then_end, x.then_page);
    x.looked = true;
}

/* Pages are of 16 keys, or twice as many, and so on. */
int32_t row_in_page(const stream_params &a, int32_t key) {
    return key & a.first.page_mask;
}

/* One lane asks for the boxes of a unit that have keys. */
void copy_unit(const stream_params &a, int32_t key, int32_t end, const int32_t (&page)[BOXES],
               unsigned char *to, barrier &full) {
    const int boxes = smaller((end - key + BOX - 1) / BOX, BOXES);
    const uint64_t policy = stream_policy();
    barrier_expect(full, 2 * BOX_BYTES * boxes);
#pragma unroll
    for (int b = 0; b < BOXES; b++) {
        const int32_t row = row_in_page(a, key + b * BOX);
        if (b >= boxes)
            break;
        copy_box(to + b * BOX_BYTES, a.k, full, 0, row, 0, (int32_t)blockIdx.y, page[b], policy);
        copy_box(to + UNIT_K + b * BOX_BYTES, a.v, full, 0, row, 0, (int32_t)blockIdx.y, page[b],
                 policy);
    }
}

/* Asks for the warp's next unit, if there is one; whether there was. All lanes call it. */
bool ask_unit(const stream_params &a, int32_t begin, int32_t count, loader &x, shared_memory &s,
              int slot) {
    while (x.key >= x.end) {
        if (ALONE || x.item + 1 >= count)
            return false;
        look_ahead(a, x);
        x.item++;
        x.key = x.then_key;
        x.end = x.then_end;
        x.list = x.then_list;
        x.at = 0;
#pragma unroll
        for (int b = 0; b < BOXES; b++)
            x.page[b] = x.then_page[b];
        find_then(a, begin, count, x);
    }
    if (x.at == 32) {
        look_up_pages(a, x.list, x.key, x.end, x.page);
        x.at = 0;
    }
    int32_t page[BOXES];
#pragma unroll
    for (int b = 0; b < BOXES; b++)
        page[b] = __shfl_sync(0xffffffffu, x.page[b], x.at);
    if (lane_of() == 0)
        copy_unit(a, x.key, x.end, page, s.ring[warp_of()][slot], s.full[warp_of()][slot]);
    x.key += STEP;
    if (++x.at == SLOTS + 1)
        look_ahead(a, x);
    return true;
}

/* The first units; how many. Those of the first item are asked for by the lanes that have their
 * pages. */
int fill(const stream_params &a, int32_t begin, int32_t count, loader &x, shared_memory &s) {
    const int32_t key = x.key + lane_of() * STEP;
    if (lane_of() < SLOTS && key < x.end)
        copy_unit(a, key, x.end, x.page, s.ring[warp_of()][lane_of()],
                  s.full[warp_of()][lane_of()]);
    __syncwarp();
    find_then(a, begin, count, x);
    int filled = larger(smaller((x.end - x.key + STEP - 1) / STEP, SLOTS), 0);
    x.key += filled * STEP;
    x.at = filled;
    if (!ALONE && filled < SLOTS) {
#pragma unroll 1
        while (filled < SLOTS && ask_unit(a, begin, count, x, s, filled))
            filled++;
    }
    return filled;
}

/* Whether some page of the first item is another than was guessed; then x is to ask once more. */
bool is_wrong(const stream_params &a, const loader &guess, loader &x) {
    int32_t page[BOXES];
    bool other = false;
    look_up_pages(a, guess.list, guess.key, guess.end, page);
#pragma unroll
    for (int b = 0; b < BOXES; b++)
        other = other || page[b] != guess.page[b];
    if (!__any_sync(0xffffffffu, other))
        return false;
    x = guess;
#pragma unroll
    for (int b = 0; b < BOXES; b++)
        x.page[b] = page[b];
    return true;
}

/* To L2, while the kernel ahead ends: the warp's first unit. */
void prefetch_unit(const stream_params &a, const loader &x) {
    if (lane_of() != 0 || x.key >= x.end)
        return;
#pragma unroll
    for (int b = 0; b < BOXES; b++) {
        if (x.key + b * BOX >= x.end)
            break;
        const int32_t row = row_in_page(a, x.key + b * BOX);
        prefetch_box(a.k, 0, row, 0, (int32_t)blockIdx.y, x.page[b]);
        prefetch_box(a.v, 0, row, 0, (int32_t)blockIdx.y, x.page[b]);
    }
}

#endif
