// SPDX-License-Identifier: Apache-2.0
//
// Speculative sampling of a chain of drafts. Every warp makes all tests for itself, one lane a
// draft; then the cluster reads one row of the target and, after a rejection, one of the draft, and
// draws the emitted token. That traffic is the limit.

#include "ops/sampling/row_draw.cuh"

using params = bolide__speculative_params;

static_assert(RESIDUAL && INPUT == F32, "target minus draft, both f32");

/* Whether draft i of request b passes its own test, as the CPU computes it. */
__forceinline__ bool accepts(const params &p, int64_t b, int64_t i, int64_t id) {
    if (id < 0 || id >= p.v)
        return false;
    const double draft = (double)clean(p.draft[b * p.draft_b + i * p.draft_n + id]);
    const double target = (double)clean(p.target[b * p.target_b + i * p.target_n + id]);
    const double u = (double)uniform53(p.seed, p.offset, b, (uint32_t)i) * 0x1p-53;
    return __dmul_rn(u, draft) < target;
}

/* Makes the tests, writes the accepted ids and -1 behind the emitted one, and gives the number of
 * accepted ones before the first rejection. */
__forceinline__ int64_t test_drafts(const params &p, int64_t b, bool write) {
    int64_t emitted = 0, accepted = 0;
    bool open = true; /* nothing rejected so far */
    for (int64_t first = 0; first < p.n; first += 32) {
        const int64_t i = first + lane_of_warp();
        const int64_t id = i < p.n ? id_at(p.ids, p.id_dtype, b * p.ids_b + i) : -1;
        const bool ok = i < p.n && accepts(p, b, i, id);
        const uint32_t lanes = __ballot_sync(0xffffffffu, ok);
        accepted += __popc(lanes);
        if (open) {
            const int run = lanes == 0xffffffffu ? 32 : __ffs(~lanes) - 1;
            emitted += run;
            open = run == 32;
        }
        if (write && i < p.n && i != emitted)
            put_id(p.out, p.out_dtype, b * p.out_b + i, i < emitted ? id : -1);
    }
    if (write && lane_of_warp() == 0) {
        if (emitted < p.n)
            put_id(p.out, p.out_dtype, b * p.out_b + p.n, -1);
        if (p.accepted)
            p.accepted[b] += (int32_t)accepted;
        if (p.emitted)
            p.emitted[b] += (int32_t)emitted;
    }
    return emitted;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    bolide_speculative(const __grid_constant__ params p) {
    extern __shared__ __align__(16) float cache[];
    __shared__ boards shown;
    exchange board;
    board.open(&shown);
    begin_kernel();
    const int64_t b = blockIdx.x / CLUSTER;
    const bool leader = cluster_rank<CLUSTER>() == 0 && warp_of_block() == 0;
    const int64_t accepted = test_drafts(p, b, leader);
    const uint64_t uniform = uniform53(p.seed, p.offset, b, (uint32_t)p.n);
    const float *target = p.target + b * p.target_b + accepted * p.target_n;
    const float *draft = accepted < p.n ? p.draft + b * p.draft_b + accepted * p.draft_n : nullptr;
    auto emit = [&](int64_t id) { put_id(p.out, p.out_dtype, b * p.out_b + accepted, id); };
    bool drawn = false;
    /* Once with the draft subtracted and, if nothing is left, once without. */
    for (int turn = draft ? 0 : 1; turn < 2 && !drawn; turn++) {
        row_view r = open_row(target, turn == 0 ? draft : nullptr, p.v, cache);
        const float least = bits_float(1);
        const mass_unit u = unit_of(read_row(r, board), (int)p.v);
        const uint64_t own = sum_row(r, least, u);
        const place sums = add_up(board, own);
        draw(r, board, sums, least, u, own, uniform, emit);
        drawn = sums.total > 0;
    }
    if (!drawn && leader && lane_of_warp() == 0)
        emit(0);
    board.wait();
}
