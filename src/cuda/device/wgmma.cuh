// SPDX-License-Identifier: Apache-2.0
//
// Products of a warpgroup (9.0a only): 64 rows of A by N columns of B, 16 deep, in f32 sums that
// stay in registers. B, and A unless it is in registers, lie in shared memory and are named by a
// descriptor. The instructions run behind the issuing warps' backs:
//
//     wgmma_fence();              registers written so far are seen by what follows
//     wgmma(...); wgmma(...);     in order
//     wgmma_commit();             one group
//     wgmma_wait<0>(sums);        at most 0 groups still run: the sums may be read
//
// Thread t of the 128 holds, as element i, row 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2) and
// column 8 * (i / 4) + 2 * (t % 4) + i % 2. So the elements of 16 columns, in pairs of 16 bits, are
// just the registers that A takes for 16 of its columns.
//
// All tiles have rows of 128 bytes with their 16-byte pieces exchanged by the row's number modulo
// 8, as the copy engine lays them out, and start at multiples of 1024 bytes.

#ifndef BOLIDE_CUDA_DEVICE_WGMMA_CUH
#define BOLIDE_CUDA_DEVICE_WGMMA_CUH

#include "cuda/device/mbarrier.cuh"

/* ---- descriptors ------------------------------------------------------------------------------
 */

/* Bits 0 to 13: address / 16; 16 to 29: leading offset / 16; 32 to 45: stride offset / 16; 62, 63:
 * 1 for the exchange over 128 bytes. The stride offset leads from 8 rows to the next 8. */
__forceinline__ uint64_t tile_descriptor(uint32_t address, uint32_t leading_bytes) {
    constexpr uint32_t high = 1024 / 16 | 1u << 30;
    return (uint64_t)high << 32 | (leading_bytes / 16) << 16 | address / 16;
}

/* Rows of the operand are rows of memory, 64 of the 16 deep columns each; the leading offset is not
 * looked at. 16 columns further are 32 bytes. */
__forceinline__ uint64_t row_descriptor(uint32_t address) {
    return tile_descriptor(address, 16);
}

/* Rows of memory go along the depth, 16 of them are 2048 bytes; each holds 64 columns of the
 * result, and the next 64 begin `block_bytes` further. */
__forceinline__ uint64_t column_descriptor(uint32_t address, uint32_t block_bytes) {
    return tile_descriptor(address, block_bytes);
}

/* A number that is the same in all lanes, so that the compiler knows it. */
__forceinline__ int32_t of_warp(int32_t x) {
    return __shfl_sync(0xffffffffu, x, 0);
}

/* The low half of a descriptor, which is all that differs between tiles, as a number that the
 * compiler knows to be the same in all lanes: it then stays in a register of the warp, and products
 * further along cost one addition. Otherwise each of them waits for four moves. */
__forceinline__ uint32_t uniform_half(uint64_t descriptor) {
    return __shfl_sync(0xffffffffu, (uint32_t)descriptor, 0);
}

/* The descriptor of what lies some bytes behind. STRIDE: bytes from 8 rows to the next. */
template <int STRIDE = 1024> __forceinline__ uint64_t descriptor_at(uint32_t low, uint32_t bytes) {
    constexpr uint32_t high = STRIDE / 16 | 1u << 30;
    return (uint64_t)high << 32 | (low + bytes / 16);
}

/* ---- order ------------------------------------------------------------------------------------
 */

__forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Keeps the compiler from reading or writing these registers across this place. */
template <class T, int COUNT> __forceinline__ void pin(T (&x)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if constexpr (same_type<T, float>)
            asm volatile("" : "+f"(x[i])::"memory");
        else
            asm volatile("" : "+r"(x[i])::"memory");
    }
}

/* Waits until at most PENDING groups run; `sums` are those of a group that is over then. */
template <int PENDING, int COUNT> __forceinline__ void wgmma_wait(float (&sums)[COUNT]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    pin(sums);
}

/* Four lanes have words 0 to 3 of four neighbours of 16 bytes; each gets the words of one. */
__forceinline__ void exchange_words(uint32_t (&w)[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t x = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? x : w[i];
        w[i + 1] = odd ? w[i + 1] : x;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t x = __shfl_xor_sync(0xffffffffu, high ? w[i] : w[i + 2], 2);
        w[i] = high ? x : w[i];
        w[i + 2] = high ? w[i + 2] : x;
    }
}

/* ---- products ---------------------------------------------------------------------------------
 */

/* The operands of the instructions, eight sums at a time. */
// clang-format off
#define BOLIDE__R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define BOLIDE__R1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define BOLIDE__R2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define BOLIDE__R3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define BOLIDE__R4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define BOLIDE__R5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define BOLIDE__R6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define BOLIDE__R7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define BOLIDE__R8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define BOLIDE__R9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define BOLIDE__R10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define BOLIDE__R11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define BOLIDE__R12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define BOLIDE__R13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define BOLIDE__R14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define BOLIDE__R15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define BOLIDE__R_8 BOLIDE__R0
#define BOLIDE__R_32 \
    BOLIDE__R0 ", " BOLIDE__R1 ", " BOLIDE__R2 ", " BOLIDE__R3
#define BOLIDE__R_40 \
    BOLIDE__R0 ", " BOLIDE__R1 ", " BOLIDE__R2 ", " BOLIDE__R3 ", " BOLIDE__R4
#define BOLIDE__R_64 \
    BOLIDE__R0 ", " BOLIDE__R1 ", " BOLIDE__R2 ", " BOLIDE__R3 ", " BOLIDE__R4 \
    ", " BOLIDE__R5 ", " BOLIDE__R6 ", " BOLIDE__R7
#define BOLIDE__R_128 \
    BOLIDE__R0 ", " BOLIDE__R1 ", " BOLIDE__R2 ", " BOLIDE__R3 ", " BOLIDE__R4 \
    ", " BOLIDE__R5 ", " BOLIDE__R6 ", " BOLIDE__R7 ", " BOLIDE__R8 ", " BOLIDE__R9 \
    ", " BOLIDE__R10 ", " BOLIDE__R11 ", " BOLIDE__R12 ", " BOLIDE__R13 ", " BOLIDE__R14 \
    ", " BOLIDE__R15
#define BOLIDE__F8(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
    "+f"(d[i + 6]), "+f"(d[i + 7])
#define BOLIDE__F_8(d) BOLIDE__F8(d, 0)
#define BOLIDE__F_32(d) \
    BOLIDE__F8(d, 0), BOLIDE__F8(d, 8), BOLIDE__F8(d, 16), BOLIDE__F8(d, 24)
#define BOLIDE__F_40(d) BOLIDE__F_32(d), BOLIDE__F8(d, 32)
#define BOLIDE__F_64(d) \
    BOLIDE__F_40(d), BOLIDE__F8(d, 40), BOLIDE__F8(d, 48), BOLIDE__F8(d, 56)
#define BOLIDE__F_128(d) \
    BOLIDE__F_64(d), BOLIDE__F8(d, 64), BOLIDE__F8(d, 72), BOLIDE__F8(d, 80), \
    BOLIDE__F8(d, 88), BOLIDE__F8(d, 96), BOLIDE__F8(d, 104), BOLIDE__F8(d, 112), \
    BOLIDE__F8(d, 120)

/* d += A B, or d = A B if `add` is 0. A in shared memory, rows along memory; B the same. */
#define BOLIDE__WGMMA_SS(n, count, type, a_at, b_at, add_at) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" add_at ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                 " {" BOLIDE__R_##count "}, %" a_at ", %" b_at ", p, 1, 1, 0, 0;\n}" \
                 : BOLIDE__F_##count(d) : "l"(a), "l"(b), "r"(add))

/* d += A B. A in shared memory, rows along memory; B with its rows along the depth. */
#define BOLIDE__WGMMA_SD(n, count, type, a_at, b_at) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                 " {" BOLIDE__R_##count "}, %" a_at ", %" b_at ", 1, 1, 1, 0, 1;" \
                 : BOLIDE__F_##count(d) : "l"(a), "l"(b))

/* d += A B. Both in shared memory, A with its rows along the depth, 64 of its columns. */
#define BOLIDE__WGMMA_DS(n, count, type, a_at, b_at) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                 " {" BOLIDE__R_##count "}, %" a_at ", %" b_at ", 1, 1, 1, 1, 0;" \
                 : BOLIDE__F_##count(d) : "l"(a), "l"(b))

/* A in registers, B with its rows along the depth. */
#define BOLIDE__WGMMA_RS(n, count, type, a0, a1, a2, a3, b_at) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                 " {" BOLIDE__R_##count "}, {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b_at \
                 ", 1, 1, 1, 1;" \
                 : BOLIDE__F_##count(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#define BOLIDE__WGMMA_SHARED(n, count, p0, p1, p2) \
    template <class T> \
    __forceinline__ void wgmma(float (&d)[count], uint64_t a, uint64_t b, int add) { \
        if constexpr (same_type<T, bf16>) \
            BOLIDE__WGMMA_SS(n, count, "bf16", p0, p1, p2); \
        else \
            BOLIDE__WGMMA_SS(n, count, "f16", p0, p1, p2); \
    }

#define BOLIDE__WGMMA(n, count, p0, p1, p2, p3, p4) \
    BOLIDE__WGMMA_SHARED(n, count, p0, p1, p2) \
    template <class T> \
    __forceinline__ void wgmma_deep(float (&d)[count], uint64_t a, uint64_t b) { \
        if constexpr (same_type<T, bf16>) \
            BOLIDE__WGMMA_SD(n, count, "bf16", p0, p1); \
        else \
            BOLIDE__WGMMA_SD(n, count, "f16", p0, p1); \
    } \
    template <class T> \
    __forceinline__ void wgmma(float (&d)[count], const uint32_t *a, uint64_t b) { \
        if constexpr (same_type<T, bf16>) \
            BOLIDE__WGMMA_RS(n, count, "bf16", p0, p1, p2, p3, p4); \
        else \
            BOLIDE__WGMMA_RS(n, count, "f16", p0, p1, p2, p3, p4); \
    }

/* The same of e4m3: 32 deep, both operands with their rows along memory. */
#define BOLIDE__WGMMA_8(n, count, p0, p1, p2, p3, p4, p5) \
    __forceinline__ void wgmma_e4m3(float (&d)[count], uint64_t a, uint64_t b, int add) { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" p2 ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3" \
                     " {" BOLIDE__R_##count "}, %" p0 ", %" p1 ", p, 1, 1;\n}" \
                     : BOLIDE__F_##count(d) : "l"(a), "l"(b), "r"(add)); \
    } \
    __forceinline__ void wgmma_e4m3(float (&d)[count], const uint32_t *a, uint64_t b, int add) { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" p5 ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3" \
                     " {" BOLIDE__R_##count "}, {%" p0 ", %" p1 ", %" p2 ", %" p3 "}, %" p4 \
                     ", p, 1, 1;\n}" \
                     : BOLIDE__F_##count(d) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)); \
    }

BOLIDE__WGMMA_8(128, 64, "64", "65", "66", "67", "68", "69")
template <class T> __forceinline__ void wgmma_turned(float (&d)[8], uint64_t a, uint64_t b) {
    if constexpr (same_type<T, bf16>)
        BOLIDE__WGMMA_DS(16, 8, "bf16", "8", "9");
    else
        BOLIDE__WGMMA_DS(16, 8, "f16", "8", "9");
}

BOLIDE__WGMMA(16, 8, "8", "9", "10", "11", "12")
BOLIDE__WGMMA(64, 32, "32", "33", "34", "35", "36")
BOLIDE__WGMMA(80, 40, "40", "41", "42", "43", "44")
BOLIDE__WGMMA(128, 64, "64", "65", "66", "67", "68")
BOLIDE__WGMMA(256, 128, "128", "129", "130", "131", "132")
// clang-format on

#endif
