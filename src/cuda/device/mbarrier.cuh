// SPDX-License-Identifier: Apache-2.0
//
// Barriers in shared memory that asynchronous copies can arrive on (9.0 and up), the rings of
// stages that producers and consumers pass back and forth with them, and the fences that such code
// needs. A stage has two barriers: `full`, on which the copies arrive, and `empty`, on which its
// readers do. A barrier's phase is one bit: a wait for phase f returns once phase f is over, so a
// consumer starts with 0 and a producer, for whom all stages are empty, with 1.

#ifndef BOLIDE_CUDA_DEVICE_MBARRIER_CUH
#define BOLIDE_CUDA_DEVICE_MBARRIER_CUH

#include "cuda/device/base.cuh"
#include "cuda/device/mma.cuh" /* shared_address */

using barrier = uint64_t;

/* By one thread, ahead of the fence below and a barrier of the block. */
__forceinline__ void barrier_init(barrier &b, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&b)), "r"(arrivals)
                 : "memory");
}

/* Makes initialised barriers visible to the copy engine, which reads them through another path than
 * this thread wrote them: without it a first copy may meet a barrier that is not one yet. */
__forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__forceinline__ void barrier_arrive(barrier &b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&b)) : "memory");
}

/* Arrives at a barrier's address in shared memory, but not at 0. */
__forceinline__ void barrier_arrive_if(uint32_t address) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %0, 0;\n"
                 "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n"
                 "}" ::"r"(address)
                 : "memory");
}

/* Arrives once all copies by cp.async that this thread has asked for are there; the barrier counts
 * every such thread. */
__forceinline__ void barrier_arrive_copied(barrier &b) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&b))
                 : "memory");
}

/* Arrives and announces the bytes that copies will bring; zeros that fill up count as well. */
__forceinline__ void barrier_expect(barrier &b, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&b)),
                 "r"(bytes)
                 : "memory");
}

__forceinline__ bool barrier_is_over(barrier &b, uint32_t phase) {
    uint32_t over;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(over)
                 : "r"(shared_address(&b)), "r"(phase)
                 : "memory");
    return over;
}

/* The same without waiting a while. */
__forceinline__ bool barrier_was_over(barrier &b, uint32_t phase) {
    uint32_t over;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(over)
                 : "r"(shared_address(&b)), "r"(phase)
                 : "memory");
    return over;
}

__forceinline__ void barrier_wait(barrier &b, uint32_t phase) {
    while (!barrier_is_over(b, phase)) {
    }
}

/* A place in a ring of STAGES, and the phase of its barriers in this round. */
template <int STAGES> struct ring_place {
    int stage;
    uint32_t phase;

    __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/* What this thread has written to shared memory by ordinary stores will be seen by wgmma and by
 * copies that are issued behind the next barrier. */
__forceinline__ void fence_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The hardware's barriers 1 to 15, for parts of a block; `threads` counts both kinds of callers. */
__forceinline__ void named_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Registers of each thread of a warpgroup from here on; all its warps call it. */
template <int COUNT> __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif
