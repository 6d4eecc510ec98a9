// SPDX-License-Identifier: Apache-2.0
//
// Launches the dense products. Over columns that lie side by side in k, few rows go to mm_few.cu,
// which reads b at the speed of memory, and more of them on Hopper to mm_sm90.cu; everything else
// goes to mm_tile.cu. A batch-invariant context takes mm_tile.cu always, as the others add up in
// other orders. None needs a workspace.

#include "core/context.h"
#include "cuda/cuda.h"
#include "ops/gemm/gemm_device.h"
#include "ops/gemm/gemm_internal.h"

/* mm_few.cu reads all of a for every 16 columns. Beside the copy engine it wins with so few rows
 * and no more bytes of b than its blocks take at one go. */
enum {
    FEW_ROWS = 16,
    FEW_ROWS_WGMMA = 4,
    FEW_BYTES_WGMMA = 48 << 20,
    MOST_BATCH = 65535,
    STAGES = 4
};

/* What the memory of the operands and the result allows. */
typedef struct access {
    int fast_a, fast_b, by_n, pairs, pieces;
} access;

static int64_t batch_stride(const bolide_tensor *t) {
    return t->ndim == 3 && t->shape[0] > 1 ? bolide__stride(t, 0) : 0;
}

static bolide__mm_params params_of(const bolide_tensor *a, const bolide_tensor *b,
                                   const bolide_tensor *bias, const bolide_tensor *out) {
    const int32_t row = a->ndim - 2, col = row + 1;
    return (bolide__mm_params){
        .a = bolide__data(a),
        .b = bolide__data(b),
        .bias = bias ? bolide__data(bias) : NULL,
        .out = bolide__data(out),
        .m = a->shape[row],
        .n = b->shape[col],
        .k = a->shape[col],
        .a_batch = batch_stride(a),
        .a_row = bolide__stride(a, row),
        .b_batch = batch_stride(b),
        .b_k = bolide__stride(b, row),
        .b_n = bolide__stride(b, col),
        .out_batch = batch_stride(out),
        .out_row = bolide__stride(out, row),
    };
}

/* 1 if rows of 16-bit numbers with these strides and this length are made of aligned 16 bytes. */
static int in_pieces(const void *data, int64_t batch, int64_t row, int64_t length) {
    return (uintptr_t)data % 16 == 0 && (batch | row | length) % 8 == 0;
}

static access access_of(const bolide__mm_params *p, int64_t out_bytes) {
    access x = {.fast_a = in_pieces(p->a, p->a_batch, p->a_row, p->k)};
    x.fast_b = p->b_k == 1 && in_pieces(p->b, p->b_batch, p->b_n, p->k);
    x.by_n = !x.fast_b && p->b_n == 1 && in_pieces(p->b, p->b_batch, p->b_k, p->n);
    x.fast_b |= x.by_n;
    x.pairs = (uintptr_t)p->out % (uintptr_t)(2 * out_bytes) == 0 &&
              (p->out_batch | p->out_row | p->n) % 2 == 0;
    x.pieces = in_pieces(p->out, p->out_batch, p->out_row, p->n);
    return x;
}

static void add_dtypes(bolide__spec *s, const bolide_tensor *a, const bolide_tensor *bias,
                       const bolide_tensor *out) {
    bolide__spec_add(s, "DT", bolide__bit(a));                 /* 2 values */
    bolide__spec_add(s, "OUT", bolide__bit(out));              /* 3 values */
    bolide__spec_add(s, "BIAS", bias ? bolide__bit(bias) : 0); /* 4 values */
}

static bolide_status launch_few(const bolide__call *call, const bolide__spec *dtypes,
                                const bolide__mm_params *p, int64_t batch) {
    bolide__spec s = *dtypes;
    s.source = "gemm/mm_few.cu";
    s.function = "bolide_mm_few";
    bolide__spec_add(&s, "HALVES", p->m > 8 ? 2 : 1);
    const bolide__grid g = {.x = (p->n + 15) / 16, .y = batch, .block = 256, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

/* Large tiles where they fill the chip. */
static bolide_status launch_tiles(const bolide__call *call, const bolide__spec *dtypes, access x,
                                  bolide__mm_params *p, int64_t batch) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int64_t large = ((p->m + 127) / 128) * ((p->n + 127) / 128) * batch;
    const int32_t tile = large >= limits->sm_count && limits->arch >= 80 ? 128 : 64;
    bolide__spec s = *dtypes;
    s.source = "gemm/mm_tile.cu";
    s.function = "bolide_mm_tile";
    bolide__spec_add(&s, "FAST_A", x.fast_a);
    bolide__spec_add(&s, "FAST_B", x.fast_b);
    bolide__spec_add(&s, "BY_N", x.by_n);
    bolide__spec_add(&s, "PAIRS", x.pairs);
    bolide__spec_add(&s, "BM", tile); /* 2 values, as BN */
    bolide__spec_add(&s, "BN", tile);
    p->tiles_m = (p->m + tile - 1) / tile;
    const bolide__grid g = {.x = p->tiles_m * ((p->n + tile - 1) / tile),
                            .y = batch,
                            .block = tile * 2,
                            .shared = STAGES * 2 * tile * 64,
                            .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

/* ---- Hopper ------------------------------------------------------------------------------------
 */

/* A tile, the blocks that share its slices of k, and the number of tiles. */
typedef struct plan {
    int32_t rows, columns, cluster;
    int64_t tiles_m, tiles_n, tiles;
} plan;

static plan tiled(const bolide__mm_params *p, int64_t batch, int32_t rows, int32_t columns) {
    plan t = {.rows = rows, .columns = columns, .cluster = 1};
    t.tiles_m = (p->m + rows - 1) / rows;
    t.tiles_n = (p->n + columns - 1) / columns;
    t.tiles = t.tiles_m * t.tiles_n * batch;
    return t;
}

/* Tiles of the width with the least time: one of w columns takes as long as w and half its rows,
 * and the chip makes sm_count of them at a time. Two blocks share a tile if there is room for both
 * and each has enough slices to fill its ring. Clusters of four were slower: a part of the chip
 * holds 16 or 18 blocks, so that some of 32 clusters had to wait. */
static plan plan_of(const bolide__mm_params *p, int64_t batch, int64_t sm_count) {
    enum { FEWEST_SLICES = 4, WIDTHS = 5 };
    static const int32_t widths[WIDTHS] = {64, 112, 128, 224, 256};
    const int64_t slices = (p->k + BOLIDE__MM_SM90_BK - 1) / BOLIDE__MM_SM90_BK;
    const int32_t rows = p->m <= 64 ? 64 : 128;
    plan best = {.rows = 0};
    int64_t least = 0;
    for (int i = 0; i < (rows == 64 ? 3 : WIDTHS); i++) {
        const plan t = tiled(p, batch, rows, widths[i]);
        const int64_t time = (t.tiles + sm_count - 1) / sm_count * (widths[i] + rows / 2);
        if (!best.rows || time < least) {
            best = t;
            least = time;
        }
    }
    if (2 * best.tiles <= sm_count && slices >= 2 * FEWEST_SLICES)
        best.cluster = 2;
    return best;
}

/* [batch, rows, k] in boxes of so many rows; a batch stride of 0 is one matrix for all. */
static bolide__tensor_box box_of(const void *data, int64_t dtype, int64_t batch, int64_t rows,
                                 int64_t k, int64_t batch_stride, int64_t row, int32_t box_rows) {
    return (bolide__tensor_box){.data = data,
                                .dtype = dtype,
                                .rank = 4,
                                .box = {BOLIDE__MM_SM90_BK, box_rows, 1, 1},
                                .shape = {k, rows, batch_stride ? batch : 1, 1},
                                .stride = {1, row, batch_stride, 0}};
}

/* *fits is false if the copy engine cannot take the operands. */
static bolide_status fill_sm90(const bolide__call *call, const bolide__mm_params *p, int64_t dtype,
                               int64_t batch, const plan *t, bolide__mm_sm90_params *q,
                               bool *fits) {
    *q = (bolide__mm_sm90_params){
        .mm = *p,
        .tiles = (int32_t)t->tiles,
        .tiles_n = (int32_t)t->tiles_n,
        .slices = (int32_t)((p->k + BOLIDE__MM_SM90_BK - 1) / BOLIDE__MM_SM90_BK),
        .step_a = p->a_batch != 0,
        .step_b = p->b_batch != 0,
        .b_once = t->tiles_m == 1 && (batch == 1 || p->b_batch != 0),
    };
    const int32_t a_rows = p->m < t->rows ? (int32_t)(p->m + 7) / 8 * 8 : t->rows;
    q->a_bytes = a_rows * BOLIDE__MM_SM90_BK * 2;
    q->mm.tiles_m = t->tiles_m;
    *fits = t->tiles * t->cluster <= INT32_MAX && p->m <= INT32_MAX / 2 && p->n <= INT32_MAX / 2 &&
            p->k <= INT32_MAX / 2;
    if (!*fits)
        return BOLIDE_OK;
    const bolide__tensor_box boxes[] = {
        box_of(p->a, dtype, batch, p->m, p->k, p->a_batch, p->a_row, a_rows),
        box_of(p->b, dtype, batch, p->n, p->k, p->b_batch, p->b_n, t->columns),
    };
    return bolide__cuda_tensor_maps(call, 2, boxes, (bolide__tensor_map *const[]){&q->a, &q->b},
                                    fits);
}

static bolide_status launch_sm90(const bolide__call *call, const bolide__spec *dtypes,
                                 const plan *t, int pieces, const bolide__mm_sm90_params *q) {
    const int64_t blocks = t->tiles * t->cluster;
    const int64_t most = bolide__cuda_limits_of(call->ctx)->sm_count;
    bolide__spec s = *dtypes;
    s.source = "gemm/mm_sm90.cu";
    s.function = "bolide_mm_sm90";
    bolide__spec_add(&s, "BM", t->rows);         /* 2 values */
    bolide__spec_add(&s, "BN", t->columns);      /* 3 values, 5 with BM 128 */
    bolide__spec_add(&s, "CLUSTER", t->cluster); /* 2 values with BN 64 */
    bolide__spec_add(&s, "PIECES", pieces);
    const bolide__grid g = {.x = t->cluster > 1 || blocks < most ? blocks : most,
                            .block = BOLIDE__MM_SM90_THREADS,
                            .shared = BOLIDE__MM_SM90_BYTES + BOLIDE__MM_SM90_BARRIERS,
                            .cluster = t->cluster,
                            .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, q, sizeof *q);
}

/* ---- the choice --------------------------------------------------------------------------------
 */

bolide_status bolide__mm_cuda(const bolide__call *call, const bolide_tensor *a,
                              const bolide_tensor *b, const bolide_tensor *bias,
                              const bolide_tensor *out) {
    bolide__mm_params p = params_of(a, b, bias, out);
    const access x = access_of(&p, bolide__elem_bytes(out));
    const int wgmma = bolide__cuda_has_wgmma(call->ctx);
    const int64_t batches = a->ndim == 3 ? a->shape[0] : 1;
    const int few =
        x.fast_a && x.fast_b && !x.by_n && p.k > 0 && !call->ctx->batch_invariant &&
        (wgmma ? p.m <= FEW_ROWS_WGMMA &&
                     2.0 * (double)batches * (double)p.n * (double)p.k <= FEW_BYTES_WGMMA
               : p.m <= FEW_ROWS);
    bolide__spec s = BOLIDE_SPEC(NULL, NULL);
    add_dtypes(&s, a, bias, out);
    if (!few && x.fast_a && x.fast_b && !x.by_n && p.m > 0 && p.n > 0 && p.k > 0 && batches > 0 &&
        !call->ctx->batch_invariant && wgmma) {
        const plan t = plan_of(&p, batches, bolide__cuda_limits_of(call->ctx)->sm_count);
        bolide__mm_sm90_params q;
        bool fits = false;
        BOLIDE_TRY(fill_sm90(call, &p, bolide__bit(a), batches, &t, &q, &fits));
        if (fits)
            return launch_sm90(call, &s, &t, x.pieces, &q);
    }
    for (int64_t batch = batches; batch > 0; batch -= MOST_BATCH) {
        const int64_t count = batch < MOST_BATCH ? batch : MOST_BATCH;
        BOLIDE_TRY(few ? launch_few(call, &s, &p, count) : launch_tiles(call, &s, x, &p, count));
        p.a = (const char *)p.a + count * p.a_batch * 2;
        p.b = (const char *)p.b + count * p.b_batch * 2;
        p.out = (char *)p.out + count * p.out_batch * bolide__elem_bytes(out);
    }
    return BOLIDE_OK;
}
