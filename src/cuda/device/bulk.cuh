// SPDX-License-Identifier: Apache-2.0
//
// Requests for contiguous bytes to the copy engine (9.0 and up): one thread asks for any multiple
// of 16 bytes at an address that is one.

#ifndef BOLIDE_CUDA_DEVICE_BULK_CUH
#define BOLIDE_CUDA_DEVICE_BULK_CUH

#include "cuda/device/base.cuh"

/* Asks for bytes to be in L2; like prefetch of load.cuh it reads nothing and so may come before
 * wait_for_previous_kernel. */
__forceinline__ void bulk_prefetch(const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

#endif
