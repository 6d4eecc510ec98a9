// SPDX-License-Identifier: Apache-2.0
//
// packbits on the CPU: sixteen values are compared with zero at once, and the mask is two bytes of
// the result.

#include "cpu/simd.h"
#include "ops/quant/quant_internal.h"

/* The bits of each of two bytes in opposite order. */
static uint32_t reversed(uint32_t bits) {
    bits = (bits & 0x5555u) << 1 | (bits >> 1 & 0x5555u);
    bits = (bits & 0x3333u) << 2 | (bits >> 2 & 0x3333u);
    return (bits & 0x0F0Fu) << 4 | (bits >> 4 & 0x0F0Fu);
}

/* Packs n values into ceil(n/8) bytes. */
static void pack(const uint8_t *x, int64_t n, uint8_t *out, int little) {
    for (int64_t i = 0; i < n; i += 16) {
        const i32x16 v = i + 16 <= n ? u8_load(x + i) : u8_load_n(x + i, n - i);
        const uint32_t zero = mask_bits(i32_eq(v, i32_zero()));
        const uint32_t bits = little ? ~zero : reversed(~zero & 0xFFFFu);
        out[i / 8] = (uint8_t)bits;
        if (n - i > 8)
            out[i / 8 + 1] = (uint8_t)(bits >> 8);
    }
}

static int64_t index_at(const bolide__packbits_params *p, const void *t, int64_t i) {
    return p->index64 ? ((const int64_t *)t)[i] : ((const int32_t *)t)[i];
}

/* The segment that byte lies in: the last with out_indptr <= byte. */
static int64_t find_segment(const bolide__packbits_params *p, int64_t byte) {
    int64_t low = 0, high = p->b;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (index_at(p, p->out_indptr, middle) <= byte)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void BOLIDE_ISA(packbits_bytes)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__packbits_params *p = arg;
    (void)worker;
    if (!p->indptr) {
        const int64_t first = 8 * begin, stop = 8 * end < p->n ? 8 * end : p->n;
        pack(p->x + first, stop - first, p->out + begin, p->little);
        return;
    }
    for (int64_t s = find_segment(p, begin); begin < end; s++) {
        const int64_t first_byte = index_at(p, p->out_indptr, s);
        const int64_t stop_byte = index_at(p, p->out_indptr, s + 1);
        const int64_t stop_here = stop_byte < end ? stop_byte : end;
        const int64_t first = index_at(p, p->indptr, s) + 8 * (begin - first_byte);
        const int64_t left = index_at(p, p->indptr, s + 1) - first;
        const int64_t room = 8 * (stop_here - begin);
        pack(p->x + first, left < room ? left : room, p->out + begin, p->little);
        begin = stop_here;
    }
}
