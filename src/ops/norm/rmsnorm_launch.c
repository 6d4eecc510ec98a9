// SPDX-License-Identifier: Apache-2.0
//
// Launches rmsnorm.cu for every operator of the RMS family: chooses how a row is spread over
// threads, and how many blocks walk over the rows.

#include "cuda/cuda.h"
#include "ops/norm/norm_internal.h"

/* How a row of at most so many chunks is spread: threads a row, chunks a thread, rows a block. It
 * depends on the row alone, so that a row has the same bits in every batch. */
static const struct layout {
    int32_t chunks, threads, per, rows;
} layouts[] = {
    {8, 8, 1, 16},     {16, 16, 1, 8},     {32, 32, 1, 4},          {64, 32, 2, 4},
    {128, 32, 4, 4},   {256, 128, 2, 1},   {512, 256, 2, 1},        {1024, 256, 4, 1},
    {2048, 512, 4, 1}, {4096, 1024, 4, 1}, {INT32_MAX, 1024, 0, 1},
};

/* Threads of a multiprocessor that are busy at once; with one row loaded ahead they have more bytes
 * on their way than the memory's latency needs. */
enum { RESIDENT_THREADS = 1536 };

/* A tensor's address and strides in units of its element: the lowest set bit bounds a load. Strides
 * count even where there is one row. */
static uint64_t alignment(const bolide__rows *t) {
    if (!t->data)
        return 0;
    return (uint64_t)(uintptr_t)t->data / (uint64_t)t->bytes | (uint64_t)t->n | (uint64_t)t->h;
}

static int64_t widest(const bolide__rmsnorm_params *p, int64_t weight_bytes) {
    int64_t bytes = p->input.bytes > weight_bytes ? p->input.bytes : weight_bytes;
    bytes = p->out.bytes > bytes ? p->out.bytes : bytes;
    return p->residual.data && p->residual.bytes > bytes ? p->residual.bytes : bytes;
}

bolide_status bolide__rmsnorm_launch(const bolide__call *call, const bolide__rmsnorm_params *p,
                                     int64_t flags) {
    const int64_t weight_bytes = p->weight_dtype == BOLIDE_F32 ? 4 : 2;
    const int64_t chunk = 16 / widest(p, weight_bytes);
    const int64_t chunks = (p->d + chunk - 1) / chunk;
    const struct layout *l = layouts;
    while (chunks > l->chunks && l->chunks != INT32_MAX)
        l++;
    const uint64_t bits = alignment(&p->input) | alignment(&p->residual) | alignment(&p->out) |
                          alignment(&p->normed) | (uintptr_t)p->weight / (uint64_t)weight_bytes |
                          (uint64_t)p->d | (uint64_t)chunk;
    bolide__spec s = BOLIDE_SPEC("norm/rmsnorm.cu", "bolide_rmsnorm");
    bolide__spec_add(&s, "INPUT", p->input.dtype); /* rmsnorm has one dtype in all four: 3 values */
    bolide__spec_add(&s, "RESIDUAL", p->residual.dtype);
    bolide__spec_add(&s, "WEIGHT", p->weight_dtype);
    bolide__spec_add(&s, "OUT", p->out.dtype);
    bolide__spec_add(&s, "FLAGS", flags);
    bolide__spec_add(&s, "VEC", (int64_t)(bits & -bits)); /* 4 values for 16-bit types */
    bolide__spec_add(&s, "THREADS", l->threads);          /* 11 together with PER and ROWS */
    bolide__spec_add(&s, "PER", l->per);
    bolide__spec_add(&s, "ROWS", l->rows);
    /* Each block has the same number of rows, but for the last. */
    const int32_t block = l->threads * l->rows;
    const int64_t blocks = (p->rows + l->rows - 1) / l->rows;
    const int64_t resident = bolide__cuda_limits_of(call->ctx)->sm_count *
                             (int64_t)(block < RESIDENT_THREADS ? RESIDENT_THREADS / block : 1);
    const int64_t turns = (blocks + resident - 1) / resident;
    const bolide__grid g = {.x = (blocks + turns - 1) / turns, .block = block};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}
