// SPDX-License-Identifier: Apache-2.0
//
// Launches layernorm.cu for every operator of the layer norm family. What the parameters have
// decides what the kernel does.

#include "cuda/cuda.h"
#include "ops/norm/norm_internal.h"

/* More chunks do not fit in the registers of a block, as floats. */
enum { MOST_CHUNKS = 2048 };

static uint64_t alignment_of(const bolide__layernorm_params *p) {
    const bolide__rows *const rows[] = {&p->input, &p->residual,     &p->gate, &p->scale,
                                        &p->shift, &p->residual_out, &p->out};
    const float *const shared[] = {p->gamma, p->beta, p->gate_bias, p->scale_bias, p->shift_bias};
    uint64_t bits = (uint64_t)p->d;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        bits |= bolide__norm_alignment(rows[i]);
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        bits |= (uintptr_t)shared[i] / sizeof(float);
    return bits;
}

/* Two chunks a thread, where a row has more than a warp: x is kept in floats, and up to four
 * tensors are on their way to it. */
static bolide__norm_layout layout_of(int64_t chunks) {
    if (chunks <= 128)
        return bolide__norm_layout_of(chunks);
    if (chunks > MOST_CHUNKS)
        return (bolide__norm_layout){.threads = 512, .per = 0, .rows = 1};
    const int32_t per = chunks <= 1024 ? 2 : 4;
    return (bolide__norm_layout){
        .threads = (int32_t)((chunks + 32 * per - 1) / (32 * per)) * 32, .per = per, .rows = 1};
}

bolide_status bolide__layernorm_launch(const bolide__call *call,
                                       const bolide__layernorm_params *p) {
    const int64_t chunk = 16 / p->input.bytes, chunks = (p->d + chunk - 1) / chunk;
    const bolide__norm_layout l = layout_of(chunks);
    const uint64_t bits = alignment_of(p) | (uint64_t)chunk;
    const int64_t flags = (p->residual_out.data ? BOLIDE__LAYERNORM_FUSED : 0) |
                          (p->residual.data ? BOLIDE__LAYERNORM_RESIDUAL : 0) |
                          (p->gate.data ? BOLIDE__LAYERNORM_GATE : 0) |
                          (p->scale.data ? BOLIDE__LAYERNORM_MODULATED : 0) |
                          (p->gate_bias ? BOLIDE__LAYERNORM_GATE_BIAS : 0) |
                          (p->scale_bias ? BOLIDE__LAYERNORM_SCALE_BIAS : 0) |
                          (p->shift_bias ? BOLIDE__LAYERNORM_SHIFT_BIAS : 0);
    /* Of many rows a thread has parts of two, which share the loads of gamma and beta; their sums
     * are what they are alone. */
    const int64_t many = 16 * (int64_t)bolide__cuda_limits_of(call->ctx)->sm_count;
    const int64_t sets = flags == 0 && l.per == 2 && l.rows == 1 && p->rows >= many ? 2 : 1;
    bolide__spec s = BOLIDE_SPEC("norm/layernorm.cu", "bolide_layernorm");
    bolide__spec_add(&s, "INPUT", p->input.dtype); /* 3 values */
    bolide__spec_add(&s, "OUT", p->out.dtype);     /* INPUT or 2 values */
    bolide__spec_add(&s, "FLAGS", flags);          /* an operator, and its biases: 15 values */
    bolide__spec_add(&s, "VEC", (int64_t)(bits & -bits)); /* 4 values for 16-bit types */
    bolide__spec_add(&s, "THREADS", l.threads); /* 8, 16, and multiples of 32 up to 1024 */
    bolide__spec_add(&s, "PER", l.per);         /* follows from d, as ROWS does */
    bolide__spec_add(&s, "WIDE", bolide__is_wide(p->rows));
    bolide__spec_add(&s, "ROWS", l.rows);
    bolide__spec_add(&s, "SETS", sets); /* 2 values with PER 2 */
    const int64_t a_block = (int64_t)l.rows * sets;
    const bolide__grid g = {
        .x = (p->rows + a_block - 1) / a_block, .block = l.threads * l.rows, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}
