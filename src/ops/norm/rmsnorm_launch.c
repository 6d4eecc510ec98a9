// SPDX-License-Identifier: Apache-2.0
//
// Launches rmsnorm.cu for every operator of the RMS family: chooses how a row is spread over
// threads.

#include "cuda/cuda.h"
#include "ops/norm/norm_internal.h"

/* Up to 128 chunks a row stays within a warp, whose sum needs no barrier; beyond, four chunks a
 * thread keep as much on its way as registers allow. */
bolide__norm_layout bolide__norm_layout_of(int64_t chunks) {
    if (chunks <= 32) {
        const int32_t threads = chunks <= 8 ? 8 : chunks <= 16 ? 16 : 32;
        return (bolide__norm_layout){threads, 1, 128 / threads};
    }
    if (chunks <= 128)
        return (bolide__norm_layout){32, chunks <= 64 ? 2 : 4, 4};
    if (chunks > 4096)
        return (bolide__norm_layout){1024, 0, 1};
    return (bolide__norm_layout){(int32_t)((chunks + 127) / 128) * 32, 4, 1};
}

/* Few rows take as many threads as a block has; sliced_sum sees to it that they give the same bits.
 */
static bolide__norm_layout layout_of(int64_t chunks, int few) {
    if (few && chunks > 128 && chunks <= 1024)
        return (bolide__norm_layout){(int32_t)((chunks + 31) / 32) * 32, 1, 1};
    return bolide__norm_layout_of(chunks);
}

/* Strides count even where there is one row. */
uint64_t bolide__norm_alignment(const bolide__rows *t) {
    if (!t->data)
        return 0;
    return (uint64_t)(uintptr_t)t->data / (uint64_t)t->bytes | (uint64_t)t->n | (uint64_t)t->h;
}

static int64_t widest(const bolide__rmsnorm_params *p, int64_t weight_bytes) {
    int64_t bytes = p->input.bytes > weight_bytes ? p->input.bytes : weight_bytes;
    bytes = p->out.bytes > bytes ? p->out.bytes : bytes;
    return p->residual.data && p->residual.bytes > bytes ? p->residual.bytes : bytes;
}

static int is_flat(const bolide__rows *t, int64_t h) {
    return !t->data || t->n == h * t->h;
}

/* Heads that lie behind one another are rows like others; `normed` has none. */
static void flatten(bolide__rmsnorm_params *p) {
    if (p->h == 1 || p->normed.data || !is_flat(&p->input, p->h) || !is_flat(&p->out, p->h) ||
        !is_flat(&p->residual, p->h))
        return;
    p->input.n = p->input.h;
    p->out.n = p->out.h;
    p->residual.n = p->residual.h;
    p->h = 1;
}

bolide_status bolide__rmsnorm_launch(const bolide__call *call, const bolide__rmsnorm_params *given,
                                     int64_t flags) {
    bolide__rmsnorm_params flat = *given;
    const bolide__rmsnorm_params *p = &flat;
    flatten(&flat);
    const int64_t weight_bytes = p->weight_dtype == BOLIDE_F32 ? 4 : 2;
    const int64_t chunk = 16 / widest(p, weight_bytes);
    const int64_t chunks = (p->d + chunk - 1) / chunk;
    const int64_t bytes = p->rows * p->d * (p->input.bytes + p->out.bytes);
    const int few = p->h == 1 ? bolide__cuda_few(bytes) : 0;
    const bolide__norm_layout l = layout_of(chunks, few);
    const uint64_t bits = bolide__norm_alignment(&p->input) | bolide__norm_alignment(&p->residual) |
                          bolide__norm_alignment(&p->out) | bolide__norm_alignment(&p->normed) |
                          (uintptr_t)p->weight / (uint64_t)weight_bytes | (uint64_t)p->d |
                          (uint64_t)chunk;
    bolide__spec s = BOLIDE_SPEC("norm/rmsnorm.cu", "bolide_rmsnorm");
    bolide__spec_add(&s, "INPUT", p->input.dtype); /* rmsnorm has one dtype in all four: 3 values */
    bolide__spec_add(&s, "RESIDUAL", p->residual.dtype);
    bolide__spec_add(&s, "WEIGHT", p->weight_dtype);
    bolide__spec_add(&s, "OUT", p->out.dtype);
    bolide__spec_add(&s, "FLAGS", flags);
    bolide__spec_add(&s, "VEC", (int64_t)(bits & -bits)); /* 4 values for 16-bit types */
    bolide__spec_add(&s, "THREADS", l.threads); /* 8, 16, and multiples of 32 up to 1024 */
    bolide__spec_add(&s, "PER", l.per);         /* follows from d, as ROWS does */
    bolide__spec_add(&s, "ROWS", l.rows);
    bolide__spec_add(&s, "FEW", few); /* 3 values */
    bolide__spec_add(&s, "WIDE", bolide__is_wide(p->rows));
    const bolide__grid g = {
        .x = (p->rows + l.rows - 1) / l.rows, .block = l.threads * l.rows, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}
