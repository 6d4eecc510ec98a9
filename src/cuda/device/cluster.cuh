// SPDX-License-Identifier: Apache-2.0
//
// Blocks that work on one thing together: thread-block clusters where the chip has them (9.0 and
// up), and with CLUSTER = 1 the same functions for a single block. A block may read and write the
// shared memory of its peers between two cluster barriers; none may leave while a peer still does.

#ifndef BOLIDE_CUDA_DEVICE_CLUSTER_CUH
#define BOLIDE_CUDA_DEVICE_CLUSTER_CUH

#include "cuda/device/base.cuh"
#include "cuda/device/mbarrier.cuh"

/* Number of this block in its cluster. */
template <int CLUSTER> __forceinline__ int cluster_rank() {
    if constexpr (CLUSTER > 1) {
        uint32_t rank;
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        return (int)rank;
    } else {
        return 0;
    }
}

/* The two halves of a barrier, for work between them; nothing for a single block. */
template <int CLUSTER> __forceinline__ void cluster_arrive() {
    if constexpr (CLUSTER > 1)
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

template <int CLUSTER> __forceinline__ void cluster_wait() {
    if constexpr (CLUSTER > 1)
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* All threads of the cluster arrive, and what they wrote before is seen by all behind it. */
template <int CLUSTER> __forceinline__ void cluster_sync() {
    if constexpr (CLUSTER > 1) {
        cluster_arrive<CLUSTER>();
        cluster_wait<CLUSTER>();
    } else {
        __syncthreads();
    }
}

/* Where `p`, an address in this block's shared memory, lies in that of a peer. */
__forceinline__ uint32_t peer_address(const void *p, int rank) {
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(at)
        : "r"((uint32_t)__cvta_generic_to_shared(p)), "r"(rank));
    return at;
}

struct alignas(16) two_words {
    uint64_t a, b;
};

/* 16 bytes of a peer's shared memory, aligned to 16. */
template <int CLUSTER> __forceinline__ two_words load_peer(const two_words *p, int rank) {
    if constexpr (CLUSTER > 1) {
        two_words w;
        asm volatile("ld.shared::cluster.v2.u64 {%0, %1}, [%2];"
                     : "=l"(w.a), "=l"(w.b)
                     : "r"(peer_address(p, rank))
                     : "memory");
        return w;
    } else {
        return *p;
    }
}

/* Pushing is far cheaper than fetching: nobody waits for a store. */
template <int CLUSTER> __forceinline__ void store_peer(two_words *p, int rank, two_words w) {
    if constexpr (CLUSTER > 1)
        asm volatile("st.shared::cluster.v2.u64 [%0], {%1, %2};" ::"r"(peer_address(p, rank)),
                     "l"(w.a), "l"(w.b)
                     : "memory");
    else
        *p = w;
}

/* Stores that tell a barrier of the peer how many bytes have come. Who waits for these needs no
 * barrier of the cluster, which would take the way there and back. */
__forceinline__ void send_peer(two_words *p, int rank, two_words w, barrier &b) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 [%0], {%1, %2}, [%3];" ::"r"(
            peer_address(p, rank)),
        "l"(w.a), "l"(w.b), "r"(peer_address(&b, rank))
        : "memory");
}

__forceinline__ void send_peer(uint64_t *p, int rank, uint64_t x, barrier &b) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                     peer_address(p, rank)),
                 "l"(x), "r"(peer_address(&b, rank))
                 : "memory");
}

__forceinline__ void send_peer(float *p, int rank, float x, barrier &b) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     peer_address(p, rank)),
                 "r"(float_bits(x)), "r"(peer_address(&b, rank))
                 : "memory");
}

/* Arrives at a peer's barrier and says how many bytes come from here. */
__forceinline__ void announce_peer(barrier &b, int rank, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                     peer_address(&b, rank)),
                 "r"(bytes)
                 : "memory");
}

/* Waits for what peers send, and sees it. */
__forceinline__ void wait_peers(barrier &b, uint32_t phase) {
    uint32_t over = 0;
    while (!over)
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(over)
                     : "r"(shared_address(&b)), "r"(phase)
                     : "memory");
}

#endif
