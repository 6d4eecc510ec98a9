// SPDX-License-Identifier: Apache-2.0
//
// Appending tokens to pages on the CPU: a copy of bytes where the cache has the dtype of what is
// appended, a conversion to fewer bits where it does not. The page lookup is once a token and side,
// so the copies are what counts.

#include <stdbool.h>

#include "core/tensor.h"
#include "cpu/simd.h"
#include "ops/page/page_internal.h"

BOLIDE_INLINE void convert_row(char *to, const char *from, int64_t d, int64_t to_dtype,
                               int64_t from_dtype) {
    const int64_t step = bolide__dtype_bytes(from_dtype), to_step = bolide__dtype_bytes(to_dtype);
    for (int64_t i = 0; i < d; i += BOLIDE_LANES)
        store16_n(to + i * to_step, to_dtype, load16_n(from + i * step, from_dtype, d - i), d - i);
}

/* Both dtypes as constants, so that the loop holds one conversion. */
static void convert(char *to, const char *from, int64_t d, int64_t to_dtype, int64_t from_dtype) {
    if (from_dtype == BOLIDE_F32 && to_dtype == BOLIDE_F16)
        convert_row(to, from, d, BOLIDE_F16, BOLIDE_F32);
    else if (from_dtype == BOLIDE_F32 && to_dtype == BOLIDE_BF16)
        convert_row(to, from, d, BOLIDE_BF16, BOLIDE_F32);
    else if (from_dtype == BOLIDE_F32 && to_dtype == BOLIDE_F8_E4M3FN)
        convert_row(to, from, d, BOLIDE_F8_E4M3FN, BOLIDE_F32);
    else if (from_dtype == BOLIDE_F32)
        convert_row(to, from, d, BOLIDE_F8_E5M2, BOLIDE_F32);
    else if (from_dtype == BOLIDE_F16 && to_dtype == BOLIDE_F8_E4M3FN)
        convert_row(to, from, d, BOLIDE_F8_E4M3FN, BOLIDE_F16);
    else if (from_dtype == BOLIDE_F16)
        convert_row(to, from, d, BOLIDE_F8_E5M2, BOLIDE_F16);
    else if (to_dtype == BOLIDE_F8_E4M3FN)
        convert_row(to, from, d, BOLIDE_F8_E4M3FN, BOLIDE_BF16);
    else
        convert_row(to, from, d, BOLIDE_F8_E5M2, BOLIDE_BF16);
}

static void append_side(const bolide__append_params *p, const bolide__append_side *s, int64_t token,
                        int64_t page, int64_t slot) {
    const int64_t from_bytes = bolide__dtype_bytes(p->source_dtype);
    const int64_t to_bytes = bolide__dtype_bytes(p->cache_dtype);
    const char *from = (const char *)s->source + token * s->source_n * from_bytes;
    char *to = (char *)s->cache + (page * s->cache_page + slot * s->cache_slot) * to_bytes;
    for (int64_t h = 0; h < p->h; h++) {
        if (p->source_dtype == p->cache_dtype)
            memcpy(to, from, (size_t)(s->d * to_bytes));
        else
            convert(to, from, s->d, p->cache_dtype, p->source_dtype);
        from += s->source_h * from_bytes;
        to += s->cache_head * to_bytes;
    }
}

void BOLIDE_ISA(append_tokens)(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide__append_params *p = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t slot;
        const int64_t page =
            bolide__page_of(&p->table, p->batch_indices[i], p->positions[i], &slot);
        for (int side = 0; page >= 0 && side < 2; side++) {
            if (p->side[side].source)
                append_side(p, &p->side[side], i, page, slot);
        }
    }
}
