// SPDX-License-Identifier: Apache-2.0
//
// Vectors of elements in registers, and loads and stores of them in one instruction of 1 to 16
// bytes. The caller knows the alignment; a pack has that of its size. Hints: `stream` for what is
// read or written once and should leave the caches to others.

#ifndef BOLIDE_CUDA_DEVICE_LOAD_CUH
#define BOLIDE_CUDA_DEVICE_LOAD_CUH

#include "cuda/device/base.cuh"

template <class T, int N> struct alignas(sizeof(T) * N) pack { T at[N]; };

/* A pack seen as machine words. */
template <int BYTES> struct words;
template <> struct words<16> { uint32_t a, b, c, d; };
template <> struct words<8> { uint32_t a, b; };
template <> struct words<4> { uint32_t a; };
template <> struct words<2> { uint16_t a; };
template <> struct words<1> { uint8_t a; };

template <class To, class From> __forceinline__ To bits_as(const From &from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits in another type");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* Through the caches as usual: data that is read again soon, such as weights. */
template <class P> __forceinline__ P load(const void *address) {
    return *static_cast<const P *>(address);
}

/* What another block has written in this launch: past the first cache. */
template <class P> __forceinline__ P load_written(const float *address) {
    words<sizeof(P)> w;
    if constexpr (sizeof(P) == 16)
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.a), "=r"(w.b), "=r"(w.c), "=r"(w.d)
                     : "l"(address)
                     : "memory");
    else
        asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];"
                     : "=r"(w.a), "=r"(w.b)
                     : "l"(address)
                     : "memory");
    return bits_as<P>(w);
}

/* To global memory, in one instruction: left to itself the compiler may write a pack element by
 * element, which L2 pays for with as many requests. */
template <class P> __forceinline__ void store(void *address, const P &value) {
    if constexpr (sizeof(P) == 16) {
        const words<16> w = bits_as<words<16>>(value);
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(w.a), "r"(w.b),
                     "r"(w.c), "r"(w.d)
                     : "memory");
    } else if constexpr (sizeof(P) == 8) {
        const words<8> w = bits_as<words<8>>(value);
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(w.a), "r"(w.b)
                     : "memory");
    } else if constexpr (sizeof(P) == 4) {
        const words<4> w = bits_as<words<4>>(value);
        asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(w.a) : "memory");
    } else {
        *static_cast<P *>(address) = value;
    }
}

/* Read once: not kept in L1, and L2 fetches whole 256 bytes where the chip can be told so. */
template <class P> __forceinline__ P load_stream(const void *address) {
    if constexpr (sizeof(P) == 16) {
        words<16> w;
        if constexpr (ARCH >= 80)
            asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w.a), "=r"(w.b), "=r"(w.c), "=r"(w.d)
                         : "l"(address));
        else
            asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w.a), "=r"(w.b), "=r"(w.c), "=r"(w.d)
                         : "l"(address));
        return bits_as<P>(w);
    } else if constexpr (sizeof(P) == 8) {
        words<8> w;
        asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                     : "=r"(w.a), "=r"(w.b)
                     : "l"(address));
        return bits_as<P>(w);
    } else if constexpr (sizeof(P) == 4) {
        words<4> w;
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(w.a) : "l"(address));
        return bits_as<P>(w);
    } else {
        return load<P>(address);
    }
}

/* Read once, and L2 fetches no more than is asked for: faster where as much is written as read
 * (docs/kernels/norm.md). */
template <class P> __forceinline__ P load_once(const void *address) {
    if constexpr (sizeof(P) == 16) {
        words<16> w;
        asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.a), "=r"(w.b), "=r"(w.c), "=r"(w.d)
                     : "l"(address));
        return bits_as<P>(w);
    } else {
        return load_stream<P>(address);
    }
}

/* Written once and not read again soon. */
template <class P> __forceinline__ void store_stream(void *address, const P &value) {
    if constexpr (sizeof(P) == 16) {
        const words<16> w = bits_as<words<16>>(value);
        asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(w.a),
                     "r"(w.b), "r"(w.c), "r"(w.d)
                     : "memory");
    } else if constexpr (sizeof(P) == 8) {
        const words<8> w = bits_as<words<8>>(value);
        asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(w.a), "r"(w.b)
                     : "memory");
    } else if constexpr (sizeof(P) == 4) {
        const words<4> w = bits_as<words<4>>(value);
        asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(address), "r"(w.a) : "memory");
    } else {
        store<P>(address, value);
    }
}

template <bool STREAM, class P> __forceinline__ void store_to(void *address, const P &value) {
    if constexpr (STREAM)
        store_stream(address, value);
    else
        store(address, value);
}

/* Asks for the line of an address, so that it is in L2 when it is needed. It reads nothing and so
 * may come before wait_for_previous_kernel. */
__forceinline__ void prefetch(const void *address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/* Makes the compiler forget where a value comes from. Floats that were unpacked from it earlier are
 * then unpacked again instead of being kept, which takes twice the registers. */
template <class P> __forceinline__ void forget_origin(P &value) {
    if constexpr (sizeof(P) % 4 == 0) {
        struct {
            uint32_t at[sizeof(P) / 4];
        } w;
        memcpy(&w, &value, sizeof w);
#pragma unroll
        for (int i = 0; i < (int)(sizeof(P) / 4); i++)
            asm volatile("" : "+r"(w.at[i]));
        memcpy(&value, &w, sizeof w);
    }
}

/* A pack as floats and back; 16-bit types convert in pairs where the chip has the instruction. */
template <class T, int N> __forceinline__ void unpack(const pack<T, N> &from, float (&to)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = to_float(from.at[i]);
}

template <int N> __forceinline__ void unpack(const pack<e4m3, N> &from, float (&to)[N]) {
    if constexpr (N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const float2_t f =
                e4m3x2_to_floats((uint16_t)(from.at[i].bits | (uint32_t)from.at[i + 1].bits << 8));
            to[i] = f.x;
            to[i + 1] = f.y;
        }
    } else {
        for (int i = 0; i < N; i++)
            to[i] = to_float(from.at[i]);
    }
}

/* Two neighbours at once. */
template <class T> __forceinline__ pack<T, 2> pair(float x, float y) {
    return {from_float<T>(x), from_float<T>(y)};
}

template <> __forceinline__ pack<bf16, 2> pair<bf16>(float x, float y) {
    return bits_as<pack<bf16, 2>>(floats_to_bf16x2(x, y));
}

template <> __forceinline__ pack<f16, 2> pair<f16>(float x, float y) {
    return bits_as<pack<f16, 2>>(floats_to_f16x2(x, y));
}

template <> __forceinline__ pack<e4m3, 2> pair<e4m3>(float x, float y) {
    return bits_as<pack<e4m3, 2>>(floats_to_e4m3x2(x, y));
}

template <> __forceinline__ pack<e5m2, 2> pair<e5m2>(float x, float y) {
    return bits_as<pack<e5m2, 2>>(floats_to_e5m2x2(x, y));
}

template <class T, int N> __forceinline__ pack<T, N> pack_floats(const float (&from)[N]) {
    pack<T, N> to;
    if constexpr (N == 1) {
        to.at[0] = from_float<T>(from[0]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const pack<T, 2> two = pair<T>(from[i], from[i + 1]);
            to.at[i] = two.at[0];
            to.at[i + 1] = two.at[1];
        }
    }
    return to;
}

#endif
