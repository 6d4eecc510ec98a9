// SPDX-License-Identifier: Apache-2.0
//
// Copies of boxes of a tensor into shared memory by the copy engine (9.0 and up). The tensor is
// described by a map that the host has encoded (tensor_map_internal.h); one thread asks, and the
// bytes arrive on a barrier. What lies outside the tensor comes as zeros.

#ifndef BOLIDE_CUDA_DEVICE_TMA_CUH
#define BOLIDE_CUDA_DEVICE_TMA_CUH

#include "cuda/device/mbarrier.cuh"
#include "cuda/tensor_map_internal.h"

/* The map is read through a cache of its own, which this fills ahead of the first copy. */
__forceinline__ void prefetch_map(const bolide__tensor_map &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/* What the L2 should do with lines that a copy has fetched. */
__forceinline__ uint64_t keep_policy() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__forceinline__ uint64_t stream_policy() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* The box at (c0, c1, c2, c3), the fastest dimension first. */
__forceinline__ void copy_box(void *to, const bolide__tensor_map &map, barrier &arrival, int32_t c0,
                              int32_t c1, int32_t c2, int32_t c3, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(&arrival)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy)
        : "memory");
}

/* The same of five dimensions. */
__forceinline__ void copy_box(void *to, const bolide__tensor_map &map, barrier &arrival, int32_t c0,
                              int32_t c1, int32_t c2, int32_t c3, int32_t c4, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(&arrival)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
        "l"(policy)
        : "memory");
}

/* The way back: a box in shared memory goes to (c0, c1, c2, c3); what lies outside the tensor is
 * dropped. One thread asks, behind fence_async_shared() of all who wrote the box, and commits. */
__forceinline__ void store_box(const bolide__tensor_map &map, const void *from, int32_t c0,
                               int32_t c1, int32_t c2, int32_t c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
            &map),
        "r"(shared_address(from)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

__forceinline__ void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until all boxes that this thread has committed have been read; until they are written. */
__forceinline__ void await_sources() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__forceinline__ void await_stores() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Asks for the box to be in the L2. It reads nothing and so may come before
 * wait_for_previous_kernel. */
__forceinline__ void prefetch_box(const bolide__tensor_map &map, int32_t c0, int32_t c1, int32_t c2,
                                  int32_t c3, int32_t c4) {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map),
        "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}

#endif
