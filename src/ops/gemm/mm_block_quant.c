// SPDX-License-Identifier: Apache-2.0
//
// Front of mm_block_quant. Two kernels serve it: products in f32 (mm_dot_cpu.c), for every format,
// and products of 8-bit or 16-bit integers (mm_int8_cpu.c) for the block formats. The workspace
// holds the activations in the form that the kernel reads:
//
//     f32    [m, pad(k, 32)] f32; nothing if f32 rows of a multiple of 32 can be read in place
//     int8   q [m, k] i8 · scale [m, k/32] f32 · sum [m, k/32] f32 · offset [m, k/32] i32
//     int16  the same with two planes of q

#include <bolide/gemm.h>

#include "core/context.h"
#include "core/op.h"
#include "core/workspace.h"
#include "cuda/cuda.h"
#include "ops/gemm/gemm_device.h"
#include "ops/gemm/gemm_internal.h"

#define FLOATS (BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_F32)

#define A bolide_mm_block_quant_args
static const bolide_param block_quant_rows[] = {
    BOLIDE_IN(A, input, "m k", FLOATS, "activations"),
    BOLIDE_IN(A, weight, "n row_bytes", BOLIDE_U8, "rows of the weight as GGUF stores them"),
    BOLIDE_IN(A, bias, "n", FLOATS, "added to each row", .flags = BOLIDE_OPTIONAL),
    BOLIDE_OUT(A, out, "m n", FLOATS, "input times the transposed weight"),
    BOLIDE_ENUM_ROW(A, format, "f32 f16 bf16 q4_0 q4_1 q8_0", BOLIDE_NO_INT,
                    "how the weight is stored"),
    BOLIDE_ENUM_ROW(A, compute, "f32 int8 int16", 0, "arithmetic of the products"),
    BOLIDE_WORKSPACE_ROW(A, workspace, "scratch for the activations", .flags = BOLIDE_OPTIONAL),
};
#undef A

enum { COMPUTE_F32, COMPUTE_INT8, COMPUTE_INT16 };

static bool is_dense(int64_t format) {
    return format <= BOLIDE_WEIGHT_BF16;
}

static bolide_status block_quant_check(const bolide__call *call) {
    const bolide_mm_block_quant_args *a = call->args;
    const int64_t k = a->input->shape[1];
    static const char *const names[] = {"f32", "f16", "bf16", "q4_0", "q4_1", "q8_0"};
    const char *format = names[a->format];
    if (!is_dense(a->format) && k % 32 != 0)
        return BOLIDE_FAIL_ARG(call, "input", "shape",
                               bolide__text("a multiple of 32 columns for %s", format), "%lld",
                               (long long)k);
    const int64_t bytes = k * bolide__weight_block_bytes(a->format) / 32;
    if (a->weight->shape[1] != bytes)
        return BOLIDE_FAIL_ARG(call, "weight", "shape",
                               bolide__text("rows of %lld bytes for %lld numbers as %s",
                                            (long long)bytes, (long long)k, format),
                               "%lld", (long long)a->weight->shape[1]);
    if (is_dense(a->format) && a->compute != COMPUTE_F32)
        return BOLIDE_FAIL_ARG(call, "compute", "value",
                               bolide__text("f32 for a weight stored as %s", format), "%s",
                               a->compute == COMPUTE_INT8 ? "int8" : "int16");
    return BOLIDE_OK;
}

/* ---- f32 ---------------------------------------------------------------------------------- */

static float *carve_f32(bolide__carver *c, const bolide_tensor *input) {
    const int64_t k = input->shape[1];
    if (bolide__gemm_in_place(bolide__bit(input), k))
        return NULL;
    return bolide__carve(c, input->shape[0], bolide__gemm_depth(k) * (int64_t)sizeof(float));
}

static bolide_status run_f32(const bolide__call *call, bolide__carver *c) {
    const bolide_mm_block_quant_args *a = call->args;
    bolide__dot_params p = {
        .input = bolide__data(a->input),
        .widened = carve_f32(c, a->input),
        .weight = bolide__data(a->weight),
        .input_row = bolide__stride(a->input, 0),
        .input_dtype = bolide__bit(a->input),
        .weight_n = bolide__stride(a->weight, 0),
        .format = a->format,
        .m = a->input->shape[0],
        .n = a->weight->shape[0],
        .k = a->input->shape[1],
        .out = bolide__gemm_results(a->out, a->bias),
    };
    bolide__gemm_dot(call->ctx, &p);
    return BOLIDE_OK;
}

/* ---- int8 --------------------------------------------------------------------------------- */

static void carve_int8(bolide__carver *c, bolide__int8_params *p) {
    p->plane = p->m * p->kb * 32;
    p->q = bolide__carve(c, p->planes, p->plane);
    p->scale = bolide__carve(c, p->m, p->kb * (int64_t)sizeof *p->scale);
    p->sum = bolide__carve(c, p->m, p->kb * (int64_t)sizeof *p->sum);
    p->offset = bolide__carve(c, p->m, p->kb * (int64_t)sizeof *p->offset);
}

static int64_t planes_of(const bolide_mm_block_quant_args *a) {
    return a->compute == COMPUTE_INT16 ? 2 : 1;
}

static bolide_status run_int8(const bolide__call *call, bolide__carver *c) {
    const bolide_mm_block_quant_args *a = call->args;
    bolide__int8_params p = {
        .input = bolide__data(a->input),
        .weight = bolide__data(a->weight),
        .input_row = bolide__stride(a->input, 0),
        .input_dtype = bolide__bit(a->input),
        .weight_n = bolide__stride(a->weight, 0),
        .format = a->format,
        .m = a->input->shape[0],
        .n = a->weight->shape[0],
        .kb = a->input->shape[1] / 32,
        .planes = planes_of(a),
        .vnni = bolide__cpu_isa() == BOLIDE__AVX512 && bolide__cpu_features_get()->avx512_vnni,
        .out = bolide__gemm_results(a->out, a->bias),
    };
    p.taken_off = a->format == BOLIDE_WEIGHT_Q4_0             ? 8
                  : a->format == BOLIDE_WEIGHT_Q8_0 && p.vnni ? 128
                                                              : 0;
    carve_int8(c, &p);
    bolide__parallel_for(call->ctx, p.m, bolide__row_grain(p.kb * 32),
                         BOLIDE_CPU_PICK(quantize_rows), &p);
    p.m_pieces = (p.m + BOLIDE__INT8_ROWS - 1) / BOLIDE__INT8_ROWS;
    const int64_t panels = (p.n + BOLIDE__INT8_COLS - 1) / BOLIDE__INT8_COLS;
    const int64_t strip = p.kb * bolide__weight_block_bytes(p.format) * BOLIDE__INT8_COLS;
    const int64_t grain = p.m == 1 ? bolide__gemm_grain(panels, strip) : 1;
    bolide__parallel_for(call->ctx, panels * p.m_pieces, grain, BOLIDE_CPU_PICK(int8_pieces), &p);
    return BOLIDE_OK;
}

/* ---- CUDA --------------------------------------------------------------------------------- */

/* Bytes of a load of weights, up to 4. Blocks of 18 and 34 bytes are read by whole words where rows
 * have an even number of them. */
static int64_t load_bytes(const bolide__blocks_params *p, int64_t format) {
    const int64_t block = bolide__weight_block_bytes(format);
    const int64_t whole = is_dense(format) ? block : p->k / 32 * block;
    const uint64_t bits = 4 | (uintptr_t)p->weight | (uint64_t)p->weight_n | (uint64_t)whole;
    return (int64_t)(bits & -bits);
}

static void add_types(bolide__spec *s, const bolide_mm_block_quant_args *a,
                      const bolide__blocks_params *p) {
    bolide__spec_add(s, "FORMAT", a->format);                                    /* 6 values */
    bolide__spec_add(s, "PLANES", a->compute == COMPUTE_F32 ? 0 : planes_of(a)); /* 3 values */
    bolide__spec_add(s, "IN", bolide__bit(a->input)); /* 3 values, as OUT */
    bolide__spec_add(s, "OUT", bolide__bit(a->out));
    bolide__spec_add(s, "BIAS", a->bias ? bolide__bit(a->bias) : 0); /* 4 values */
    bolide__spec_add(s, "ALIGN", load_bytes(p, a->format));
}

/* Tensor cores add up in another order than mm_block_quant.cu, so where a row may be alone another
 * time its bits would be others. */
static int suits_tiles(const bolide__call *call, const bolide__blocks_params *p) {
    enum { FEWEST_ROWS = 32 };
    const bolide_mm_block_quant_args *a = call->args;
    return a->compute != COMPUTE_F32 && p->m >= FEWEST_ROWS && p->k > 0 &&
           !call->ctx->batch_invariant && bolide__cuda_limits_of(call->ctx)->arch >= 80;
}

static bolide_status launch_tiles(const bolide__call *call, bolide__blocks_params *p) {
    bolide__spec s = BOLIDE_SPEC("gemm/mm_block_tile.cu", "bolide_mm_block_tile");
    add_types(&s, call->args, p);
    p->tiles_m = (p->m + BOLIDE__BLOCK_TILE_M - 1) / BOLIDE__BLOCK_TILE_M;
    const int64_t across = (p->n + BOLIDE__BLOCK_TILE_N - 1) / BOLIDE__BLOCK_TILE_N;
    const bolide__grid g = {
        .x = p->tiles_m * across, .block = BOLIDE__BLOCK_TILE_THREADS, .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

/* The kernels prepare the activations themselves, so there is no workspace. */
static bolide_status block_quant_cuda(const bolide__call *call) {
    enum { ENOUGH_ROWS = 2048, CHUNK = 1024 };
    const bolide_mm_block_quant_args *a = call->args;
    bolide__blocks_params p = {
        .input = bolide__data(a->input),
        .weight = bolide__data(a->weight),
        .bias = a->bias ? bolide__data(a->bias) : NULL,
        .out = bolide__data(a->out),
        .m = a->input->shape[0],
        .n = a->weight->shape[0],
        .k = a->input->shape[1],
        .input_row = bolide__stride(a->input, 0),
        .out_row = bolide__stride(a->out, 0),
        .weight_n = bolide__stride(a->weight, 0),
    };
    if (suits_tiles(call, &p))
        return launch_tiles(call, &p);
    const int64_t tile_m = p.m == 1 ? 1 : p.m <= 4 ? 4 : 8;
    const int64_t tile_n = p.m > 1 ? 4 : p.n >= ENOUGH_ROWS ? 2 : 1;
    const int64_t warps = p.m == 1 ? 8 : 4;
    bolide__spec s = BOLIDE_SPEC("gemm/mm_block_quant.cu", "bolide_mm_blocks");
    add_types(&s, a, &p);
    bolide__spec_add(&s, "TM", tile_m); /* 3 values */
    bolide__spec_add(&s, "TN", tile_n); /* 2 values with TM 1 */
    bolide__spec_add(&s, "CHUNKS", p.m == 1 && p.k > CHUNK ? 4 : 1);
    p.tiles_m = (p.m + tile_m - 1) / tile_m;
    const int64_t columns = warps * tile_n;
    const bolide__grid g = {.x = p.tiles_m * ((p.n + columns - 1) / columns),
                            .block = (int32_t)warps * 32,
                            .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, &p, sizeof p);
}

/* ---- the operator ------------------------------------------------------------------------- */

static bolide_status block_quant_workspace(const bolide__call *call, bolide_sizes *sizes) {
    const bolide_mm_block_quant_args *a = call->args;
    const int64_t m = a->input->shape[0], k = a->input->shape[1];
    bolide__carver c = bolide__carve_begin(NULL, 0);
    bolide__int8_params p = {.m = m, .kb = k / 32, .planes = planes_of(a)};
    if (m == 0 || k == 0 || a->weight->shape[0] == 0 || call->ctx->device.type != BOLIDE_CPU)
        return BOLIDE_OK;
    if (a->compute == COMPUTE_F32)
        (void)carve_f32(&c, a->input);
    else
        carve_int8(&c, &p);
    sizes->device_bytes = c.used;
    return BOLIDE_OK;
}

static bolide_status block_quant_cpu(const bolide__call *call) {
    const bolide_mm_block_quant_args *a = call->args;
    static const bolide_workspace none = {0};
    const bolide_workspace *w = a->workspace ? a->workspace : &none;
    bolide__carver c = bolide__carve_begin(w->device, w->device_bytes);
    return a->compute == COMPUTE_F32 ? run_f32(call, &c) : run_int8(call, &c);
}

const bolide_op bolide_op_mm_block_quant = {
    .name = "mm_block_quant",
    .family = "gemm",
    .doc = "out = input times the transposed weight (+ bias), the weight in GGUF blocks",
    .run = BOLIDE_ENTRY(bolide_mm_block_quant_args, block_quant_rows),
    .check = block_quant_check,
    .workspace = block_quant_workspace,
    .cpu = block_quant_cpu,
    .cuda = block_quant_cuda,
};

bolide_status bolide_mm_block_quant(const bolide_context *ctx,
                                    const bolide_mm_block_quant_args *args, bolide_stream stream) {
    return bolide_run(&bolide_op_mm_block_quant, BOLIDE_RUN, ctx, args, stream);
}
