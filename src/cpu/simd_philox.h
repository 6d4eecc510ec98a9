// SPDX-License-Identifier: Apache-2.0
//
// Philox 4x32-10, the counter-based generator that the GPU kernels use too: the numbers of a row
// follow from (seed, row, offset) alone. The 128-bit counter is (offset / 4, subsequence), the key
// is the seed, and word i of a block is the draw number 4 * block + i. Included by simd.h only.

#ifndef BOLIDE_CPU_SIMD_PHILOX_H
#define BOLIDE_CPU_SIMD_PHILOX_H

/* One block of four words. */
BOLIDE_INLINE void philox(uint64_t seed, uint64_t subsequence, uint64_t block, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)subsequence, c3 = (uint32_t)(subsequence >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Draw number `offset` of a subsequence, alone. */
BOLIDE_INLINE uint32_t philox_draw(uint64_t seed, uint64_t subsequence, uint64_t offset) {
    uint32_t out[4];
    philox(seed, subsequence, offset / 4, out);
    return out[offset % 4];
}

/* Four words of the 16 blocks `block` + lane: out[w] lane i is word w of block + i. */
BOLIDE_INLINE void philox16(uint64_t seed, uint64_t subsequence, uint64_t block, i32x16 out[4]) {
    const i32x16 base = i32_set((int32_t)(uint32_t)block);
    i32x16 c0 = i32_add(base, i32_iota());
    const i32x16 carry = i32_select(u32_gt(base, c0), i32_set(1), i32_set(0));
    i32x16 c1 = i32_add(i32_set((int32_t)(uint32_t)(block >> 32)), carry);
    i32x16 c2 = i32_set((int32_t)(uint32_t)subsequence);
    i32x16 c3 = i32_set((int32_t)(uint32_t)(subsequence >> 32));
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        i32x16 ah, al, bh, bl;
        u32_mul_wide(c0, i32_set((int32_t)0xD2511F53u), &ah, &al);
        u32_mul_wide(c2, i32_set((int32_t)0xCD9E8D57u), &bh, &bl);
        c0 = i32_xor(i32_xor(bh, c1), i32_set((int32_t)k0));
        c2 = i32_xor(i32_xor(ah, c3), i32_set((int32_t)k1));
        c1 = bl;
        c3 = al;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* In (0, 1]: x 2^-32 + 2^-33, rounded to f32 once a step, as the GPU's generator does. */
BOLIDE_INLINE float philox_unit(uint32_t x) {
    return (float)x * 0x1p-32f + 0x1p-33f;
}
BOLIDE_INLINE f32x16 philox_unit16(i32x16 x) {
    /* Unsigned to f32, rounded once: halves above 2^31 with the last bit kept sticky. */
    const i32x16 halved = i32_or(i32_shr(x, 1), i32_and(x, i32_set(1)));
    const f32x16 big = i32_to_f32(halved);
    const f32x16 f = f32_select(i32_lt(x, i32_set(0)), f32_add(big, big), i32_to_f32(x));
    return f32_add(f32_mul(f, f32_set(0x1p-32f)), f32_set(0x1p-33f));
}

#endif
