// SPDX-License-Identifier: Apache-2.0
//
// Copies of contiguous bytes by the copy engine (9.0 and up): one thread asks for any multiple of 16
// bytes at an address that is one. What comes into shared memory arrives on a barrier; what goes out
// belongs to a group of the thread that asked.

#ifndef BOLIDE_CUDA_DEVICE_BULK_CUH
#define BOLIDE_CUDA_DEVICE_BULK_CUH

#include "cuda/device/mbarrier.cuh"

__forceinline__ void bulk_load(void *to, const void *from, uint32_t bytes, barrier &arrival) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
                 "[%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(&arrival))
                 : "memory");
}

__forceinline__ void bulk_store(void *to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

/* Closes this thread's group of stores and waits until they have read shared memory. */
__forceinline__ void bulk_stores_read() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Asks for bytes to be in L2; like prefetch of load.cuh it reads nothing. */
__forceinline__ void bulk_prefetch(const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

#endif
