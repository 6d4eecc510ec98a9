// SPDX-License-Identifier: Apache-2.0
//
// Launches rmsnorm.cu for every operator of the RMS family: chooses how a row is spread over
// threads, and how many blocks walk over the rows.

#include "cuda/cuda.h"
#include "ops/norm/norm_internal.h"

/* Up to 128 chunks a row stays within a warp, whose sum needs no barrier; beyond, two chunks a
 * thread leave few threads idle and few registers taken. */
bolide__norm_layout bolide__norm_layout_of(int64_t chunks) {
    if (chunks <= 32) {
        const int32_t threads = chunks <= 8 ? 8 : chunks <= 16 ? 16 : 32;
        return (bolide__norm_layout){threads, 1, 128 / threads};
    }
    if (chunks <= 128)
        return (bolide__norm_layout){32, chunks <= 64 ? 2 : 4, 4};
    if (chunks > 4096)
        return (bolide__norm_layout){1024, 0, 1};
    const int32_t per = chunks <= 1024 ? 2 : 4;
    return (bolide__norm_layout){(int32_t)((chunks + 32 * per - 1) / (32 * per)) * 32, per, 1};
}

/* Blocks that a multiprocessor holds at once; the kernel is compiled to fit (its launch bounds),
 * for a block that had to wait would begin when the others end. The threads follow from the
 * registers that a thread needs for the present row, the next one and the weight. Rows of 512
 * values and more then keep 32 KB or more on their way, as the memory's latency asks for. */
static int64_t resident_blocks(const bolide__norm_layout *l, int residual, int32_t arch) {
    const int32_t most = arch < 80 ? 1024 : arch == 80 || (arch >= 90 && arch < 110) ? 2048 : 1536;
    int32_t threads = residual      ? (l->per == 1   ? 768
                                       : l->per == 2 ? 640
                                                     : 512)
                      : l->per == 4 ? 640
                      : l->rows > 1 ? 1152
                                    : 1024;
    if (threads > most)
        threads = most;
    const int32_t block = l->threads * l->rows;
    return block < threads ? threads / block : 1;
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

bolide_status bolide__rmsnorm_launch(const bolide__call *call, const bolide__rmsnorm_params *p,
                                     int64_t flags) {
    const int64_t weight_bytes = p->weight_dtype == BOLIDE_F32 ? 4 : 2;
    const int64_t chunk = 16 / widest(p, weight_bytes);
    const int64_t chunks = (p->d + chunk - 1) / chunk;
    const bolide__norm_layout l = bolide__norm_layout_of(chunks);
    const uint64_t bits = bolide__norm_alignment(&p->input) | bolide__norm_alignment(&p->residual) |
                          bolide__norm_alignment(&p->out) | bolide__norm_alignment(&p->normed) |
                          (uintptr_t)p->weight / (uint64_t)weight_bytes | (uint64_t)p->d |
                          (uint64_t)chunk;
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int64_t resident = resident_blocks(&l, p->residual.data != NULL, limits->arch);
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
    bolide__spec_add(&s, "RESIDENT", resident);
    /* Each block has the same number of rows, but for the last. */
    const int32_t block = l.threads * l.rows;
    const int64_t blocks = (p->rows + l.rows - 1) / l.rows;
    const int64_t at_once = resident * limits->sm_count;
    const int64_t turns = (blocks + at_once - 1) / at_once;
    const bolide__grid g = {.x = (blocks + turns - 1) / turns, .block = block};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}
