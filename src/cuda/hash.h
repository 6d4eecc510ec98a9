// SPDX-License-Identifier: Apache-2.0
//
// A 128-bit hash for cache keys and checksums. Two 64-bit lanes take eight bytes a step by
// multiply and rotate and feed each other, so one changed bit reaches both. It guards against
// accident (another spec, a torn file), not against an attacker: whoever can write into the cache
// can put a kernel there anyway. A ready-made hash would do as well; this one needs no dependency.

#ifndef BOLIDE_CUDA_HASH_H
#define BOLIDE_CUDA_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct bolide__hash128 {
    uint64_t a, b;
} bolide__hash128;

static inline uint64_t bolide__rotate(uint64_t x, int n) {
    return (x << n) | (x >> (64 - n));
}

static inline void bolide__hash_word(bolide__hash128 *h, uint64_t word) {
    h->a = bolide__rotate(h->a ^ (word * 0x9e3779b97f4a7c15u), 31) * 0xbf58476d1ce4e5b9u + h->b;
    h->b = bolide__rotate(h->b ^ (word * 0x94d049bb133111ebu), 29) * 0xd6e8feb86659fd93u + h->a;
}

/* Adds bytes and their number; the order of calls counts. Bytes are taken as little endian. */
static inline void bolide__hash_add(bolide__hash128 *h, const void *data, size_t bytes) {
    const unsigned char *p = (const unsigned char *)data;
    bolide__hash_word(h, (uint64_t)bytes);
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word = 0;
        for (size_t k = 0; k < 8; k++)
            word |= (uint64_t)p[i + k] << (8 * k);
        bolide__hash_word(h, word);
    }
    uint64_t tail = 0;
    for (size_t k = 0; i + k < bytes; k++)
        tail |= (uint64_t)p[i + k] << (8 * k);
    if (i < bytes)
        bolide__hash_word(h, tail);
}

/* Mixes the lanes so that every input bit touches every output bit. */
static inline bolide__hash128 bolide__hash_end(bolide__hash128 h) {
    for (int i = 0; i < 3; i++)
        bolide__hash_word(&h, 0x2545f4914f6cdd1du + (uint64_t)i);
    h.a ^= h.a >> 32;
    h.b ^= h.b >> 32;
    return h;
}

static inline bolide__hash128 bolide__hash_of(const void *data, size_t bytes) {
    bolide__hash128 h = {0x243f6a8885a308d3u, 0x13198a2e03707344u};
    bolide__hash_add(&h, data, bytes);
    return bolide__hash_end(h);
}

/* 32 hexadecimal digits and a NUL. */
static inline void bolide__hash_text(bolide__hash128 h, char text[33]) {
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)h.a, (unsigned long long)h.b);
}

#endif
