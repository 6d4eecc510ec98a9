// SPDX-License-Identifier: Apache-2.0
//
// Dot products of small integers in blocks of 32: what the quantised matrix products need beside
// simd.h. A block of a weight is 32 numbers, either 4-bit (16 bytes: number i in the low half of
// byte i, number i + 16 in its high half; 0 to 15) or signed bytes; its partner is 32 signed bytes
// in -127 … 127. Sums are exact, so every instruction set gives the same integers and the caller is
// free to choose lanes. Sixteen weight rows make the 16 lanes of a result:
//
//     block_dot_rows    from rows as they lie in memory, for one partner: a matrix-vector product
//     block_interleave  writes the panel of 16 rows that
//     panel_dot         multiplies with several partners: a matrix-matrix product
//
// A partner of two planes of bytes stands for the integers 255 high + low, 16 bits in effect.
//
// A panel holds groups of 4 neighbouring numbers: [8 groups][16 rows][4 bytes]. Rows as they lie
// are taken 16 bytes at a time, one row in each 128 bits of a register; four such registers hold
// 4 partial sums of each row, which a transposing tree adds up, every row in its lane.
//
// On AVX2 the products of 4-bit numbers (at most 15 * 127 * 2 a pair, eight pairs deep 30480) are
// summed in 16 bits; signed bytes take |w| times sign(w) x, at most 128 * 127 * 2 a pair, widened
// at once. VNNI multiplies unsigned by signed bytes into 32 bits; signed weights go in as w + 128
// and the caller takes 128 times the partner's sum off again.

#ifndef BOLIDE_CPU_SIMD_BLOCK_H
#define BOLIDE_CPU_SIMD_BLOCK_H

#include "cpu/simd.h"

enum { BLOCK_SIZE = 32, PANEL_ROWS = 16, PANEL_GROUPS = 8, PANEL_BYTES = 512 };

/* The two kinds of block. */
enum { BLOCK_NIBBLES, BLOCK_SIGNED };

/* Sixteen rows of a weight: row i begins at base[i / 4] + i % 4 * step. */
typedef struct block_rows {
    const uint8_t *base[4];
    int64_t step;
} block_rows;

BOLIDE_INLINE const uint8_t *block_row(const block_rows *r, int i) {
    return r->base[i / 4] + i % 4 * r->step;
}

/* ---- f16 in integer lanes ----------------------------------------------------------------- */

/* The low 16 bits of each lane as f16. */
BOLIDE_INLINE f32x16 f16_of_lanes(i32x16 bits) {
#if defined(BOLIDE_ISA_AVX512)
    return (f32x16){_mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits.v))};
#elif BOLIDE_SIMD_HAS_F16
    return simd_f16_to_f32(simd_narrow16(bits));
#else
    return simd_f16_bits_to_f32(i32_and(bits, i32_set(0xFFFF)));
#endif
}
/* One f16 in every lane. */
BOLIDE_INLINE f32x16 f16_broadcast(const void *p) {
    int16_t bits;
    memcpy(&bits, p, sizeof bits);
#if defined(BOLIDE_ISA_AVX512)
    return (f32x16){_mm512_cvtph_ps(_mm256_set1_epi16(bits))};
#elif BOLIDE_SIMD_HAS_F16
    const __m256 v = _mm256_cvtph_ps(_mm_set1_epi16(bits));
    return (f32x16){v, v};
#else
    return simd_f16_bits_to_f32(i32_set((uint16_t)bits));
#endif
}
/* The 32 numbers of a 4-bit block in order, one a lane. */
BOLIDE_INLINE void nibbles_widen(const void *p, i32x16 *first, i32x16 *second) {
    const i32x16 bytes = u8_load(p);
    *first = i32_and(bytes, i32_set(15));
    *second = i32_shr(bytes, 4);
}

#if defined(BOLIDE_ISA_AVX2) || defined(BOLIDE_ISA_EMU512) || defined(BOLIDE_ISA_AVX512)

/* ---- AVX2: two halves of 8 rows ----------------------------------------------------------- */

/* Four bytes of four rows. Loads of single words and shuffles: a vector load of what scalar stores
 * have just written would wait for them. */
BOLIDE_INLINE __m128i block_heads4(const block_rows *r, int first, int64_t offset) {
    int32_t t[4];
    BOLIDE_UNROLL
    for (int i = 0; i < 4; i++)
        memcpy(&t[i], block_row(r, first + i) + offset, sizeof t[i]);
    const __m128i a = _mm_unpacklo_epi32(_mm_cvtsi32_si128(t[0]), _mm_cvtsi32_si128(t[1]));
    const __m128i b = _mm_unpacklo_epi32(_mm_cvtsi32_si128(t[2]), _mm_cvtsi32_si128(t[3]));
    return _mm_unpacklo_epi64(a, b);
}

BOLIDE_INLINE __m256i block_bytes(const uint8_t *p, int kind) {
    if (kind == BLOCK_SIGNED)
        return _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m256i twice =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i halves = _mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    return _mm256_and_si256(halves, _mm256_set1_epi8(15));
}
/* Eight sums of four products. */
BOLIDE_INLINE __m256i block_products(__m256i w, __m256i x, int kind) {
    const __m256i pairs = kind == BLOCK_SIGNED
                              ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                              : _mm256_maddubs_epi16(w, x);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
BOLIDE_INLINE i32x16 block_join(__m256i lo, __m256i hi) {
#if defined(BOLIDE_ISA_AVX512)
    return (i32x16){_mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1)};
#else
    return (i32x16){lo, hi};
#endif
}
/* Four bytes at the offset in each row. */
BOLIDE_INLINE i32x16 block_heads(const block_rows *r, int64_t offset) {
    return block_join(_mm256_set_m128i(block_heads4(r, 4, offset), block_heads4(r, 0, offset)),
                      _mm256_set_m128i(block_heads4(r, 12, offset), block_heads4(r, 8, offset)));
}
/* The same 16 bytes of rows 4 i + j, i = 2 half and 2 half + 1. */
BOLIDE_INLINE __m256i block_pair(const block_rows *r, int half, int j, int64_t offset) {
    const __m128i *lo = (const void *)(r->base[2 * half] + j * r->step + offset);
    const __m128i *hi = (const void *)(r->base[2 * half + 1] + j * r->step + offset);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(lo)), _mm_loadu_si128(hi),
                                   1);
}
/* The block of two rows as two registers of bytes, each to be multiplied with half a partner. */
BOLIDE_INLINE void block_pair_split(const block_rows *r, int half, int j, int64_t offset, int kind,
                                    __m256i to[2]) {
    const __m256i v = block_pair(r, half, j, offset), low = _mm256_set1_epi8(15);
    to[0] = kind == BLOCK_SIGNED ? v : _mm256_and_si256(v, low);
    to[1] = kind == BLOCK_SIGNED ? block_pair(r, half, j, offset + 16)
                                 : _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
}
BOLIDE_INLINE __m256i block_partner16(const int8_t *x) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)x));
}
/* `times` the products with one plane of the partner, four sums in each 128 bits. */
BOLIDE_INLINE __m256i block_plane(const __m256i w[2], const __m256i x[2], int times, int kind) {
    const __m256i factor = _mm256_set1_epi16((int16_t)times);
    if (kind == BLOCK_NIBBLES)
        return _mm256_madd_epi16(
            _mm256_add_epi16(_mm256_maddubs_epi16(w[0], x[0]), _mm256_maddubs_epi16(w[1], x[1])),
            factor);
    const __m256i a = _mm256_maddubs_epi16(_mm256_abs_epi8(w[0]), _mm256_sign_epi8(x[0], w[0]));
    const __m256i b = _mm256_maddubs_epi16(_mm256_abs_epi8(w[1]), _mm256_sign_epi8(x[1], w[1]));
    return _mm256_add_epi32(_mm256_madd_epi16(a, factor), _mm256_madd_epi16(b, factor));
}
/* Lane j of each 128 bits: the sum of the four lanes of v[j]. */
BOLIDE_INLINE __m256i block_sums(const __m256i v[4]) {
    const __m256i a =
        _mm256_add_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    const __m256i b =
        _mm256_add_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
/* x is two halves of one plane, then of the second. */
BOLIDE_INLINE __m256i block_dot_rows8(const block_rows *r, int half, int64_t offset,
                                      const __m256i x[4], int planes, int kind) {
    __m256i sum[4];
    BOLIDE_UNROLL
    for (int j = 0; j < 4; j++) {
        __m256i w[2];
        block_pair_split(r, half, j, offset, kind, w);
        sum[j] = block_plane(w, x, planes == 2 ? 255 : 1, kind);
        if (planes == 2)
            sum[j] = _mm256_add_epi32(sum[j], block_plane(w, x + 2, 1, kind));
    }
    return block_sums(sum);
}

#if defined(BOLIDE_ISA_AVX512)
/* Assembly, because the set is compiled without VNNI, which not every chip with AVX-512 has. */
BOLIDE_INLINE __m512i block_dpbusd(__m512i sum, __m512i w, __m512i x) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
}
BOLIDE_INLINE __m512i block_quad(const block_rows *r, int j, int64_t offset) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(block_pair(r, 0, j, offset)),
                              block_pair(r, 1, j, offset), 1);
}
BOLIDE_INLINE __m512i block_partner64(const int8_t *x) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)x));
}
BOLIDE_INLINE __m512i block_sums_wide(const __m512i v[4]) {
    const __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
BOLIDE_INLINE i32x16 block_dot_rows_vnni(const block_rows *r, int64_t offset, const int8_t *x,
                                         int64_t plane, int planes, int kind) {
    const __m512i high[2] = {block_partner64(x), block_partner64(x + 16)};
    const __m512i low[2] = {block_partner64(x + plane), block_partner64(x + plane + 16)};
    const __m512i nibble = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(-128);
    __m512i sum[4];
    BOLIDE_UNROLL
    for (int j = 0; j < 4; j++) {
        const __m512i v = block_quad(r, j, offset);
        const __m512i w0 =
            kind == BLOCK_SIGNED ? _mm512_xor_si512(v, sign) : _mm512_and_si512(v, nibble);
        const __m512i w1 = kind == BLOCK_SIGNED
                               ? _mm512_xor_si512(block_quad(r, j, offset + 16), sign)
                               : _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
        sum[j] = block_dpbusd(block_dpbusd(_mm512_setzero_si512(), w0, high[0]), w1, high[1]);
        if (planes == 2) {
            const __m512i times255 = _mm512_sub_epi32(_mm512_slli_epi32(sum[j], 8), sum[j]);
            sum[j] = block_dpbusd(block_dpbusd(times255, w0, low[0]), w1, low[1]);
        }
    }
    return (i32x16){block_sums_wide(sum)};
}
#endif

/* Lane i: the product of the block at the offset in row i with the partner x, whose second plane,
 * if it has one, lies `plane` bytes behind. planes, kind and vnni are constants; with vnni signed
 * weights count as w + 128. */
BOLIDE_INLINE i32x16 block_dot_rows(const block_rows *r, int64_t offset, const int8_t *x,
                                    int64_t plane, int planes, int kind, int vnni) {
#if defined(BOLIDE_ISA_AVX512)
    if (vnni)
        return block_dot_rows_vnni(r, offset, x, plane, planes, kind);
#endif
    (void)vnni;
    const __m256i partner[4] = {block_partner16(x), block_partner16(x + 16),
                                block_partner16(x + plane), block_partner16(x + plane + 16)};
    const __m256i lo = block_dot_rows8(r, 0, offset, partner, planes, kind);
    return block_join(lo, block_dot_rows8(r, 1, offset, partner, planes, kind));
}

/* r[i] lane j and r[j] lane i of 8 registers of 8 lanes of 32 bits change places. */
BOLIDE_INLINE void block_transpose8(__m256i r[8]) {
    __m256i a[8], b[8];
    BOLIDE_UNROLL
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    BOLIDE_UNROLL
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    BOLIDE_UNROLL
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}
BOLIDE_INLINE void block_interleave(uint8_t *panel, const block_rows *r, int64_t offset, int kind,
                                    int vnni) {
    for (int half = 0; half < 2; half++) {
        __m256i v[8];
        BOLIDE_UNROLL
        for (int i = 0; i < 8; i++) {
            v[i] = block_bytes(block_row(r, 8 * half + i) + offset, kind);
            if (vnni && kind == BLOCK_SIGNED)
                v[i] = _mm256_xor_si256(v[i], _mm256_set1_epi8(-128));
        }
        block_transpose8(v);
        BOLIDE_UNROLL
        for (int i = 0; i < 8; i++)
            _mm256_storeu_si256((__m256i *)(void *)(panel + 64 * i + 32 * half), v[i]);
    }
}

BOLIDE_INLINE __m256i block_partner(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}
BOLIDE_INLINE __m256i panel_load(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
/* One half of 8 rows. The kind decides how wide the sums over the groups are. */
BOLIDE_INLINE void panel_dot8(const uint8_t *panel, const int8_t *const *x, int64_t offset,
                              int count, int kind, __m256i *sum) {
    BOLIDE_UNROLL
    for (int i = 0; i < count; i++)
        sum[i] = _mm256_setzero_si256();
    BOLIDE_UNROLL
    for (int g = 0; g < PANEL_GROUPS; g++) {
        const __m256i w = panel_load(panel + 64 * g);
        BOLIDE_UNROLL
        for (int i = 0; i < count; i++) {
            const __m256i partner = block_partner(x[i] + offset + 4 * g);
            sum[i] = kind == BLOCK_SIGNED
                         ? _mm256_add_epi32(sum[i], block_products(w, partner, kind))
                         : _mm256_add_epi16(sum[i], _mm256_maddubs_epi16(w, partner));
        }
    }
    BOLIDE_UNROLL
    for (int i = 0; i < count; i++)
        if (kind == BLOCK_NIBBLES)
            sum[i] = _mm256_madd_epi16(sum[i], _mm256_set1_epi16(1));
}

#if defined(BOLIDE_ISA_AVX512)
BOLIDE_INLINE void panel_dot_vnni(const uint8_t *panel, const int8_t *const *x, int64_t offset,
                                  int count, i32x16 *sum) {
    BOLIDE_UNROLL
    for (int i = 0; i < count; i++)
        sum[i] = i32_zero();
    BOLIDE_UNROLL
    for (int g = 0; g < PANEL_GROUPS; g++) {
        const __m512i w = _mm512_loadu_si512(panel + 64 * g);
        BOLIDE_UNROLL
        for (int i = 0; i < count; i++) {
            int32_t four;
            memcpy(&four, x[i] + offset + 4 * g, sizeof four);
            sum[i].v = block_dpbusd(sum[i].v, w, _mm512_set1_epi32(four));
        }
    }
}
#endif

/* sum[i], lane j: the product of row j of the panel's block with the block at x[i] + offset, for
 * i < count (a constant, at most 4). vnni, a constant, must be that of block_interleave. */
BOLIDE_INLINE void panel_dot(const uint8_t *panel, const int8_t *const *x, int64_t offset,
                             int count, int kind, int vnni, i32x16 *sum) {
#if defined(BOLIDE_ISA_AVX512)
    if (vnni) {
        panel_dot_vnni(panel, x, offset, count, sum);
        return;
    }
#endif
    (void)vnni;
    __m256i lo[4], hi[4];
    panel_dot8(panel, x, offset, count, kind, lo);
    panel_dot8(panel + 32, x, offset, count, kind, hi);
    BOLIDE_UNROLL
    for (int i = 0; i < count; i++)
        sum[i] = block_join(lo[i], hi[i]);
}

#else

/* ---- portable ----------------------------------------------------------------------------- */

BOLIDE_INLINE i32x16 block_heads(const block_rows *rows, int64_t offset) {
    int32_t t[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++)
        memcpy(&t[r], block_row(rows, r) + offset, sizeof t[r]);
    return i32_load(t);
}
BOLIDE_INLINE int32_t block_number(const uint8_t *p, int kind, int i) {
    if (kind == BLOCK_SIGNED)
        return (int8_t)p[i];
    return i < 16 ? p[i] & 15 : p[i - 16] >> 4;
}
BOLIDE_INLINE i32x16 block_dot_rows(const block_rows *rows, int64_t offset, const int8_t *x,
                                    int64_t plane, int planes, int kind, int vnni) {
    int32_t t[PANEL_ROWS];
    (void)vnni;
    for (int r = 0; r < PANEL_ROWS; r++) {
        t[r] = 0;
        for (int i = 0; i < BLOCK_SIZE; i++) {
            const int32_t partner = planes == 2 ? 255 * x[i] + x[plane + i] : x[i];
            t[r] += block_number(block_row(rows, r) + offset, kind, i) * partner;
        }
    }
    return i32_load(t);
}
BOLIDE_INLINE void block_interleave(uint8_t *panel, const block_rows *rows, int64_t offset,
                                    int kind, int vnni) {
    (void)vnni;
    for (int r = 0; r < PANEL_ROWS; r++)
        for (int i = 0; i < BLOCK_SIZE; i++)
            panel[64 * (i / 4) + 4 * r + i % 4] =
                (uint8_t)block_number(block_row(rows, r) + offset, kind, i);
}
BOLIDE_INLINE void panel_dot(const uint8_t *panel, const int8_t *const *x, int64_t offset,
                             int count, int kind, int vnni, i32x16 *sum) {
    (void)vnni;
    for (int m = 0; m < count; m++) {
        int32_t t[PANEL_ROWS] = {0};
        for (int g = 0; g < PANEL_GROUPS; g++)
            for (int r = 0; r < PANEL_ROWS; r++)
                for (int i = 0; i < 4; i++) {
                    const uint8_t w = panel[64 * g + 4 * r + i];
                    t[r] += (kind == BLOCK_SIGNED ? (int8_t)w : w) * x[m][offset + 4 * g + i];
                }
        sum[m] = i32_load(t);
    }
}

#endif

#endif
