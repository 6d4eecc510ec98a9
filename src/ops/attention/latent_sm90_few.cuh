// SPDX-License-Identifier: Apache-2.0
//
// Two warpgroups that compute attention of up to 16 rows over tiles of 64 latents by wgmma, turned:
// keys, and then columns of the values, are the 64 rows of a product and the 16 rows its columns,
// so that nothing is multiplied for rows that are not there. Warpgroup w has every second tile and
// sums of its own, which are joined at the end.
//
//     logits [64 keys, 16]  =  K [64, d_qk]  Q^T         weights, turned, to shared memory
//     sums [d_vo, 16]      +=  V^T [d_vo, 64]  P         in blocks of 64 columns
//
// What limits it is that both operands are read from shared memory, 2 KB and 512 bytes a product.
// Included behind the constants of sparse_mla_sm90.cu.

#ifndef BOLIDE_OPS_ATTENTION_LATENT_SM90_FEW_CUH
#define BOLIDE_OPS_ATTENTION_LATENT_SM90_FEW_CUH

/* A thread's sums: rows 64 b + 16 * (its warp) + lane / 4 + 8 * (i / 2 % 2) of the columns, heads
 * 8 * (i / 4) + 2 * (lane % 4) + i % 2. Of these four heads m is the base, and l this thread's part
 * of the sum of the weights. */
struct few_state {
    float m[4], l[4];
    float o[BLOCKS][8];
};

/* Which of a thread's four heads element i belongs to. */
constexpr int head_of(int i) {
    return i / 4 * 2 + i % 2;
}

template <int W, int PART> void ask_few(shared_memory &s, uint32_t phase, float (&x)[8]) {
    constexpr int FIRST = first_block(W, PART);
    const uint32_t q = uniform_half(row_descriptor(shared_address(s.q)));
    const uint32_t k = uniform_half(row_descriptor(shared_address(s.k[W])));
    wait_full(s.full[W][PART], phase);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4 * HALF; i++) {
        const int b = FIRST + i / 4, at = i % 4 * 32;
        wgmma<half>(x, descriptor_at(k, b * BLOCK + at), descriptor_at(q, b * Q_BLOCK + at),
                    PART == 1 || i > 0);
    }
    if constexpr (PART == 1 && TAILS) {
        const uint32_t tail = uniform_half(row_descriptor(shared_address(s.tail[W])));
#pragma unroll
        for (int i = 0; i < 4; i++)
            wgmma<half>(x, descriptor_at(tail, i * 32), descriptor_at(q, BLOCKS * Q_BLOCK + i * 32),
                        1);
    }
}

/* The largest logit of each of a thread's heads, over the tile: over the lanes of a warp, then over
 * the warps. */
template <int W> void tops_few(shared_memory &s, const float (&x)[8], float (&top)[4]) {
    const int lane = threadIdx.x % 32, warp = (int)threadIdx.x % 128 / 32;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int e = j / 2 * 4 + j % 2;
        top[j] = fmaxf(x[e], x[e + 2]);
#pragma unroll
        for (int step = 4; step < 32; step *= 2)
            top[j] = fmaxf(top[j], __shfl_xor_sync(0xffffffffu, top[j], step));
    }
    if (lane < 4)
        *reinterpret_cast<float4 *>(s.top[W][warp][lane]) = {top[0], top[1], top[2], top[3]};
    named_sync(OWN_GROUP + W, 128);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 other = *reinterpret_cast<const float4 *>(s.top[W][i][lane % 4]);
        top[0] = fmaxf(top[0], other.x);
        top[1] = fmaxf(top[1], other.y);
        top[2] = fmaxf(top[2], other.z);
        top[3] = fmaxf(top[3], other.w);
    }
}

/* Logits to weights, which go to shared memory with a row a head, and the sums to a new base. */
template <int W> void soften_few(shared_memory &s, few_state &r, float (&x)[8]) {
    float top[4], zero[4];
    bool moved = false;
    tops_few<W>(s, x, top);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float base = top[j] > r.m[j] + SLACK ? top[j] : r.m[j];
        top[j] = base == r.m[j] ? 1.0f : exp2_fast(r.m[j] - base);
        moved |= base != r.m[j];
        r.m[j] = base;
        zero[j] = base == -INFINITE ? 0.0f : base;
    }
    if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.l[j] *= top[j];
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
#pragma unroll
            for (int e = 0; e < 8; e++)
                r.o[b][e] *= top[head_of(e)];
        }
    }
#pragma unroll
    for (int e = 0; e < 8; e++) {
        x[e] = exp2_fast(x[e] - zero[head_of(e)]);
        r.l[head_of(e)] += x[e];
    }
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        words[i] = floats_to_halves<half>(x[2 * i], x[2 * i + 1]);
    /* Matrices: 8 keys, the next 8, and the same of the upper 8 heads. */
    const int lane = threadIdx.x % 32, warp = (int)threadIdx.x % 128 / 32;
    const int head = lane / 16 * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
    store_turned_matrices(
        shared_address(s.q[BLOCKS + TAILS + W]) + head * 128 + ((piece ^ head) & 7) * 16, words);
    /* Ordinary stores, read by wgmma of all four warps behind the barrier. */
    fence_async_shared();
    named_sync(OWN_GROUP + W, 128);
}

/* Adds the values of a part of the tile. */
template <int W, int PART> void add_few(shared_memory &s, few_state &r) {
    constexpr int FIRST = first_block(W, PART);
    const uint32_t v = uniform_half(column_descriptor(shared_address(s.k[W][FIRST]), BLOCK));
    const uint32_t weights = uniform_half(row_descriptor(shared_address(s.q[BLOCKS + TAILS + W])));
#pragma unroll
    for (int b = 0; b < HALF; b++) {
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
            wgmma_turned<half>(r.o[FIRST + b], descriptor_at(v, b * BLOCK + i * 2048),
                               descriptor_at(weights, i * 32));
    }
    wgmma_commit();
}

/* The products of part PART are there; PENDING groups behind it may still run. */
template <int W, int PART, int PENDING> void end_few(shared_memory &s, few_state &r) {
    constexpr int FIRST = first_block(W, PART);
#pragma unroll
    for (int b = 0; b < HALF; b++)
        wgmma_wait<PENDING>(r.o[FIRST + b]);
    leave(s.empty[W][PART]);
}

template <int W, class C> void run_few(const C &c, int32_t count, shared_memory &s, few_state &r) {
#pragma unroll 1
    for (int32_t tile = W; tile < count; tile += 2) {
        const uint32_t phase = tile / 2 & 1;
        float x[8];
        ask_few<W, 0>(s, phase, x);
        ask_few<W, 1>(s, phase, x);
        wgmma_commit();
        wgmma_wait<0>(x);
        finish_logits_few<W>(c, s, x);
        soften_few<W>(s, r, x);
        wgmma_fence();
        add_few<W, 0>(s, r);
        add_few<W, 1>(s, r);
        end_few<W, 0, 1>(s, r);
        end_few<W, 1, 0>(s, r);
    }
}

/* Sums and bases to shared memory, in the place of the warpgroup's tiles. A row of sums is longer
 * by four words, so that the lanes of a store meet every bank once. */
constexpr int SUMS_ROW = D_VO + 4;

template <int W> void leave_few(shared_memory &s, const few_state &r) {
    const int lane = threadIdx.x % 32, warp = (int)threadIdx.x % 128 / 32;
    float *sums = reinterpret_cast<float *>(s.k[W][0]);
    float l[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        l[j] = r.l[j];
#pragma unroll
        for (int step = 4; step < 32; step *= 2)
            l[j] += __shfl_xor_sync(0xffffffffu, l[j], step);
        const int head = j / 2 * 8 + lane % 4 * 2 + j % 2;
        if (lane < 4) {
            s.parts[W][warp][head] = l[j];
            s.base[W][head] = r.m[j];
        }
    }
    named_sync(OWN_GROUP + W, 128); /* all products of the warpgroup are there */
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int head = e / 4 * 8 + lane % 4 * 2 + e % 2;
            sums[head * SUMS_ROW + b * 64 + warp * 16 + lane / 4 + e / 2 % 2 * 8] = r.o[b][e];
        }
    }
    named_sync(BOTH, COMPUTING);
}

/* Joins the sums of both, four columns a thread at a time. */
void write_few(const params &p, const item &w, const shared_memory &s) {
    constexpr int A_ROW = D_VO / 4;
#pragma unroll 1
    for (int i = threadIdx.x; i < w.heads * A_ROW; i += COMPUTING) {
        const int head = i / A_ROW, column = i % A_ROW * 4;
        const float m[2] = {s.base[0][head], s.base[1][head]}, top = fmaxf(m[0], m[1]);
        float l = 0, sum[4] = {};
#pragma unroll
        for (int g = 0; g < 2; g++) {
            const float weight = m[g] == -INFINITE ? 0.0f : exp2_fast(m[g] - top);
            l += weight * ((s.parts[g][0][head] + s.parts[g][1][head]) +
                           (s.parts[g][2][head] + s.parts[g][3][head]));
            const float4 own = *reinterpret_cast<const float4 *>(
                reinterpret_cast<const float *>(s.k[g][0]) + head * SUMS_ROW + column);
            sum[0] = fmaf(own.x, weight, sum[0]);
            sum[1] = fmaf(own.y, weight, sum[1]);
            sum[2] = fmaf(own.z, weight, sum[2]);
            sum[3] = fmaf(own.w, weight, sum[3]);
        }
        put_columns(p, w, head, column, end_row(p, w, head, top, l, column == 0), sum);
    }
}

#endif
