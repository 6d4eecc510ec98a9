// SPDX-License-Identifier: Apache-2.0
//
// The warp-level matrix product m16n8k16 on f16 and bf16 with f32 sums, loads of its operands from
// shared memory, and asynchronous copies into it. Below 8.0 the product is made of shuffles and
// float arithmetic and copies are plain, so one kernel text serves every chip.
//
// Operand layout, for lane l: g = l / 4 is a row of A and C and a column of B, t = l % 4. A holds
// (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), each with its right neighbour; B holds
// (2t, g), (2t + 8, g), each with the one below; C holds (g, 2t), (g, 2t + 1), (g + 8, 2t),
// (g + 8, 2t + 1).

#ifndef BOLIDE_CUDA_DEVICE_MMA_CUH
#define BOLIDE_CUDA_DEVICE_MMA_CUH

#include "cuda/device/base.cuh"

template <class T> constexpr bool is_bf16 = false;
template <> constexpr bool is_bf16<bf16> = true;

template <class T> __forceinline__ float2_t halves_to_floats(uint32_t x);
template <> __forceinline__ float2_t halves_to_floats<bf16>(uint32_t x) {
    return bf16x2_to_floats(x);
}
template <> __forceinline__ float2_t halves_to_floats<f16>(uint32_t x) {
    return f16x2_to_floats(x);
}

template <class T> __forceinline__ uint32_t floats_to_halves(float x, float y);
template <> __forceinline__ uint32_t floats_to_halves<bf16>(float x, float y) {
    return floats_to_bf16x2(x, y);
}
template <> __forceinline__ uint32_t floats_to_halves<f16>(float x, float y) {
    return floats_to_f16x2(x, y);
}

/* c += a * b. T is f16 or bf16. */
template <class T>
__forceinline__ void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (ARCH >= 80) {
        if constexpr (is_bf16<T>)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
        else
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        /* Element (row, k) of A lies with lane row * 4 + k % 8 / 2, (k, column) of B with lane
         * column * 4 + k % 8 / 2. */
        const int lane = threadIdx.x % 32, row = lane & 28, column = lane % 4 * 8;
#pragma unroll
        for (int k = 0; k < 16; k += 2) {
            const int at = k % 8 / 2, high = k / 8;
            const float2_t top =
                halves_to_floats<T>(__shfl_sync(0xffffffffu, a[2 * high], row | at));
            const float2_t bottom =
                halves_to_floats<T>(__shfl_sync(0xffffffffu, a[2 * high + 1], row | at));
            const uint32_t b = high ? b1 : b0;
            const float2_t left = halves_to_floats<T>(__shfl_sync(0xffffffffu, b, column | at));
            const float2_t right =
                halves_to_floats<T>(__shfl_sync(0xffffffffu, b, (column + 4) | at));
            c[0] = fmaf(top.y, left.y, fmaf(top.x, left.x, c[0]));
            c[1] = fmaf(top.y, right.y, fmaf(top.x, right.x, c[1]));
            c[2] = fmaf(bottom.y, left.y, fmaf(bottom.x, left.x, c[2]));
            c[3] = fmaf(bottom.y, right.y, fmaf(bottom.x, right.x, c[3]));
        }
    }
}

__forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
 * With turned, each matrix arrives transposed. */
template <bool TURNED> __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row) {
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row))
                     : "memory");
}

/* The same of two matrices; lanes 0 to 15 give addresses. */
template <bool TURNED> __forceinline__ void load_two_matrices(uint32_t (&r)[2], const void *row) {
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(shared_address(row))
                     : "memory");
}

/* The way back: lane l has words l % 4 of rows l / 4 and gives the address of row l % 8 of matrix
 * l / 8. 9.0 and up. */
__forceinline__ void store_matrices(uint32_t row, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* The same, each matrix turned: the rows that lanes give addresses of are its columns. */
__forceinline__ void store_turned_matrices(uint32_t row, const uint32_t (&r)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

/* 16 bytes from global to shared memory; with `bytes` 0 they become zeros and nothing is read. Done
 * when wait_copies says so. */
__forceinline__ void copy_16(void *to, const void *from, int bytes) {
    if constexpr (ARCH >= 80) {
        asm volatile(
            "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
            "l"(from), "r"(bytes)
            : "memory");
    } else {
        const uint4 zero = {0, 0, 0, 0};
        *static_cast<uint4 *>(to) = bytes ? *static_cast<const uint4 *>(from) : zero;
    }
}

/* The same to a shared address. */
__forceinline__ void copy_16_at(uint32_t to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
}

/* 8 bytes. */
__forceinline__ void copy_8(void *to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}

__forceinline__ void store_shared(uint32_t to, const uint4 &x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z),
                 "r"(x.w)
                 : "memory");
}

/* The same of data that is not read again and leaves the L2 first, to a shared address. NVRTC 13.0
 * writes an illegal instruction where that address has a part that is the same for all threads and
 * that the compiler knows as such: it must come from memory. */
__forceinline__ void copy_16_once(uint32_t to, const void *from, int bytes) {
    if constexpr (ARCH >= 80) {
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile(
            "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
            "l"(from), "r"(bytes), "l"(policy)
            : "memory");
    } else {
        const uint4 zero = {0, 0, 0, 0};
        const uint4 x = bytes ? *static_cast<const uint4 *>(from) : zero;
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y),
                     "r"(x.z), "r"(x.w)
                     : "memory");
    }
}

/* Closes a group of copies. */
__forceinline__ void commit_copies() {
    if constexpr (ARCH >= 80)
        asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most PENDING groups of this thread are under way. */
template <int PENDING> __forceinline__ void wait_copies() {
    if constexpr (ARCH >= 80)
        asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#endif
