// SPDX-License-Identifier: Apache-2.0
//
// Cases of the gemm family, and what no problem string can say: a row of the result has the same
// bits alone and in a batch, with any number of threads, and on avx2, emu512 and avx512 alike; and
// 8-bit arithmetic is as near to the exact product as its rounding allows.

#include <bolide/gemm.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops_test.h"

static const char *const mm_block_quant_cases[] = {
    "mm_block_quant m=1,2,3,4,5 n=1,15,16,17,100 k=32,96 format=q4_0,q4_1,q8_0 "
    "compute=f32,int8,int16",
    "mm_block_quant m=1,7,130 n=33 k=576 format=q4_0,q4_1,q8_0 compute=f32,int8,int16",
    "mm_block_quant m=1,2,3,4,5,37,75 n=1,9,20 k=1,31,32,65 format=f32,f16,bf16",
    "mm_block_quant m=1,9 n=40 k=1536,800 format=q4_1,q8_0,bf16",
    "mm_block_quant m=1,6 n=40 k=1536 format=q4_0,q4_1,q8_0 compute=int8,int16",
    "mm_block_quant m=1,3,6 input=f32,f16,bf16 out=f32,f16,bf16 format=q4_1 compute=f32,int8,int16",
    "mm_block_quant m=1,6 bias=f32,f16,bf16 format=q4_0,f16",
    "mm_block_quant m=1,6 n=35 bias=f32,f16,bf16 format=q8_0 compute=int8",
    "mm_block_quant m=0,2 n=0,3 k=0,32 format=q4_1,q8_0 compute=f32,int8,int16",
    "mm_block_quant m=2 n=3 k=0 bias=f32 format=q4_1,f32",
    "mm_block_quant m=2 n=3 k=0 bias=f32 format=q4_0 compute=int8",
    "mm_block_quant m=1,5 input.pad=3 weight.pad=7 weight.offset=1 out.pad=2 format=f32,q4_1",
    "mm_block_quant m=1,5 input=f16 input.pad=5 weight.pad=1 weight.offset=3 format=q8_0",
    "mm_block_quant m=1,5 input=bf16 input.pad=5 weight.pad=9 out.pad=9 format=q8_0 compute=int8",
    "mm_block_quant m=1,5 input.stride0=0 format=q4_1 compute=f32,int8,int16",
    "mm_block_quant m=1,40 k=256 input.values=nan,inf,mix,zero,tiny format=q4_1 "
    "compute=f32,int8,int16",
    "mm_block_quant m=1,6,40 n=40 scale=zero,inf,nan format=q4_0,q4_1,q8_0 compute=f32,int8,int16",
    "mm_block_quant m=33,150 n=70 k=32,96,320 format=q4_0,q4_1,q8_0 input=f32,bf16 "
    "compute=int8,int16",
    "mm_block_quant m=40 n=20 k=96 bias=f32,bf16 out=f16 format=q4_1 compute=int16 weight.offset=1",
    "mm_block_quant k=40 format=q4_1 expect=invalid_argument:input",
    "mm_block_quant k=64 row_bytes=41 format=q4_1 expect=invalid_argument:weight",
    "mm_block_quant format=f16 compute=int8,int16 expect=invalid_argument:compute",
};
BOLIDE_TEST(mm_block_quant, mm_block_quant_cases);

static const char *const mm_bf16_cases[] = {
    "mm_bf16 m=1,2,3,4,5,37 n=1,7,8,9,50 k=1,15,64,100 a=f16,bf16",
    "mm_bf16 m=1,5,80 n=70 k=1000,1600 a=f16,bf16 out_dtype=f32",
    /* One element errs by 2.6 sqrt(k) units where products are added one after the other. */
    "mm_bf16 m=80 n=70 k=1000 a=f16 out_dtype=f32 seed=8311499652912046849",
    "mm_bf16 m=1,6 a=f16,bf16 out_dtype=f16,bf16,f32 bias=f16,bf16,f32",
    "mm_bf16 m=1,6,40 n=30 k=33,64 a=f16,bf16 b.order=0:1", /* row-major */
    "mm_bf16 m=2,6 n=30 k=33,64 b.order=0:1,1:0 b.pad=5 a.pad=3 out.pad=1",
    "mm_bf16 m=9,20 n=40 k=1100 b.order=0:1,1:0 a=f16,bf16",
    "mm_bf16 m=800 n=33 k=70 b.order=0:1,1:0 out_dtype=f32", /* more rows than are packed at once */
    "mm_bf16 m=230 n=1100,2000 k=1200 b.order=0:1,1:0 a=bf16", /* pieces of several panels */
    "mm_bf16 m=2,6 b.stride0=2 b.stride1=131",                 /* neither dimension is contiguous */
    "mm_bf16 m=2,6 a.stride0=0",
    "mm_bf16 m=0,2 n=0,3 k=0,4",
    "mm_bf16 m=2,7 n=3 k=0 bias=f32",
    "mm_bf16 m=1,6 n=40 k=96 a.values=nan,inf,mix,zero,tiny,large a=f16,bf16 out_dtype=f32",
    "mm_bf16 m=1,6 n=40 k=96 b.values=mix a=bf16",
    "mm_bf16 m=17,64,65,130 n=33,136,520 k=72,1024 a=bf16", /* tiles, shared by blocks of a GPU */
    "mm_bf16 m=130 n=264 k=1032 a=f16 out_dtype=f16 bias=f32",
    "mm_bf16 m=30,200 n=50 k=136 a=bf16 out_dtype=f32 out.pad=3 a.pad=8 b.pad=8",
    "mm_bf16 m=3000 n=2100 k=200 a=bf16", /* several waves of tiles */
    /* A GPU has tiles of several widths, so that few of its multiprocessors are idle. */
    "mm_bf16 m=9,130 n=8504,14900 k=72 a=bf16",
    "mm_bf16 m=12,70 n=8505 k=72 a=f16 out_dtype=f16,f32 bias=bf16",
    "mm_bf16 m=100 n=40 k=1024 a.values=nan,inf,mix,zero,tiny,large a=f16,bf16 out_dtype=f32",
    "mm_bf16 m=2 a=f32 expect=invalid_argument:a",
};
BOLIDE_TEST(mm_bf16, mm_bf16_cases);

static const char *const bmm_bf16_cases[] = {
    "bmm_bf16 b=1,3 m=1,5,40 n=1,17,50 k=1,64,100 A=f16,bf16",
    "bmm_bf16 m=1,6 A=f16,bf16 out_dtype=f16,bf16,f32",
    "bmm_bf16 m=2,6 n=30 k=33 B.order=0:1:2,1:0:2,2:1:0 A.order=1:0:2 out.order=1:0:2",
    "bmm_bf16 m=2,6 A.stride0=0 B.stride0=0",
    "bmm_bf16 b=3 m=20,130 n=140 k=136,1024 A=bf16",
    "bmm_bf16 b=3 m=20 n=144 k=136 A.stride0=0,2720 B.stride0=0,19584",
    "bmm_bf16 b=0,2 m=0,2 n=0,3 k=0,4",
    "bmm_bf16 m=6 k=96 A.values=nan,inf,mix",
};
BOLIDE_TEST(bmm_bf16, bmm_bf16_cases);

/* ---- bits --------------------------------------------------------------------------------- */

enum { ROWS = 37, COLS = 45, DEPTH = 1216 }; /* 38 blocks: no multiple of a chunk */

/* One product of random operands; out is made by the caller. */
typedef struct operands {
    bolide_context *ctx;
    float *x;        /* [ROWS, DEPTH] */
    uint16_t *half;  /* the same, bf16 */
    uint8_t *weight; /* [COLS, DEPTH]: any format; bf16 for mm_bf16 */
    void *scratch;   /* of SCRATCH bytes */
} operands;

enum { SCRATCH = 4 << 20 };

static operands make_operands(const unit *u) {
    operands o = {.x = malloc(ROWS * DEPTH * sizeof *o.x),
                  .half = malloc(ROWS * DEPTH * sizeof *o.half),
                  .weight = malloc(COLS * DEPTH * 4),
                  .scratch = aligned_alloc(256, SCRATCH)};
    if (bolide_context_create(BOLIDE_CPU, 0, &o.ctx) != BOLIDE_OK)
        o.ctx = NULL;
    uint64_t state = unit_seed(u) | 1;
    for (int i = 0; o.x && o.half && i < ROWS * DEPTH; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        o.x[i] = (float)((double)(int64_t)state / 0x1p63);
        uint32_t bits;
        memcpy(&bits, &o.x[i], sizeof bits);
        o.half[i] = (uint16_t)(bits >> 16);
    }
    return o;
}

static void free_operands(operands *o) {
    bolide_context_destroy(o->ctx);
    free(o->x);
    free(o->half);
    free(o->weight);
    free(o->scratch);
}

/* Any bytes whose f16 and bf16 numbers are finite and small. */
static void fill_weight(operands *o, uint64_t seed) {
    for (int64_t i = 0; i < (int64_t)COLS * DEPTH * 4; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        o->weight[i] = (uint8_t)(seed >> 40 & (i % 2 ? 0x3F : 0xFF));
    }
}

static bolide_tensor matrix(void *data, int64_t dtype, int64_t *shape, int64_t *strides) {
    return (bolide_tensor){.data = data,
                           .device = {.type = BOLIDE_CPU},
                           .ndim = 2,
                           .dtype = bolide_dtype_of(dtype),
                           .shape = shape,
                           .strides = strides};
}

/* Rows [first, first + m) by mm_block_quant. */
static bolide_status quant_product(const operands *o, int64_t format, int64_t compute,
                                   int64_t first, int64_t m, float *out) {
    static const int64_t bytes[] = {128, 64, 64, 18, 20, 34};
    int64_t in_shape[] = {m, DEPTH}, w_shape[] = {COLS, DEPTH / 32 * bytes[format]};
    int64_t out_shape[] = {m, COLS};
    const bolide_tensor x = matrix(o->x + first * DEPTH, BOLIDE_F32, in_shape, NULL);
    const bolide_tensor w = matrix(o->weight, BOLIDE_U8, w_shape, NULL);
    const bolide_tensor y = matrix(out, BOLIDE_F32, out_shape, NULL);
    const bolide_workspace space = {.device = o->scratch, .device_bytes = SCRATCH};
    bolide_mm_block_quant_args a;
    const bolide_status s = bolide_args_init("mm_block_quant", &a, sizeof a);
    a.input = &x;
    a.weight = &w;
    a.out = &y;
    a.format = format;
    a.compute = compute;
    a.workspace = &space;
    return s ? s : bolide_mm_block_quant(o->ctx, &a, NULL);
}

/* The same by mm_bf16; row_major takes the weight's memory as [k, n]. */
static bolide_status dense_product(const operands *o, int64_t row_major, int64_t unused,
                                   int64_t first, int64_t m, float *out) {
    int64_t in_shape[] = {m, DEPTH}, w_shape[] = {DEPTH, COLS}, out_shape[] = {m, COLS};
    int64_t strides[] = {row_major ? COLS : 1, row_major ? 1 : DEPTH};
    (void)unused;
    const bolide_tensor x = matrix(o->half + first * DEPTH, BOLIDE_BF16, in_shape, NULL);
    const bolide_tensor w = matrix(o->weight, BOLIDE_BF16, w_shape, strides);
    const bolide_tensor y = matrix(out, BOLIDE_F32, out_shape, NULL);
    const bolide_workspace space = {.device = o->scratch, .device_bytes = SCRATCH};
    bolide_mm_bf16_args a;
    const bolide_status s = bolide_args_init("mm_bf16", &a, sizeof a);
    a.a = &x;
    a.b = &w;
    a.out_dtype = BOLIDE_F32;
    a.out = &y;
    a.workspace = &space;
    return s ? s : bolide_mm_bf16(o->ctx, &a, NULL);
}

typedef bolide_status product_fn(const operands *o, int64_t format, int64_t compute, int64_t first,
                                 int64_t m, float *out);

/* All rows at once on one thread against batches of several sizes on two, on each of the sets that
 * share their bits. */
static void check_bits(unit *u, const char *what, product_fn *product, int64_t format,
                       int64_t compute) {
    static const int batches[] = {1, 2, 3, 4, 5, 16, ROWS};
    const bolide__isa before = bolide__cpu_isa();
    operands o = make_operands(u);
    float *want = malloc(sizeof(float) * ROWS * COLS), *got = malloc(sizeof(float) * ROWS * COLS);
    const int ready = o.ctx && o.x && o.half && o.weight && o.scratch && want && got;
    UNIT_EXPECT(u, ready, "out of memory");
    int first_set = 1;
    for (int isa = BOLIDE__AVX2; ready && isa <= BOLIDE__AVX512; isa++) {
        if (!bolide__cpu_force_isa((bolide__isa)isa))
            continue;
        fill_weight(&o, unit_seed(u));
        int bad = bolide_context_set(o.ctx, BOLIDE_BATCH_INVARIANT, 1) != BOLIDE_OK;
        bad |= bolide_context_set(o.ctx, BOLIDE_THREADS, 1) != BOLIDE_OK;
        bad |= first_set && product(&o, format, compute, 0, ROWS, want) != BOLIDE_OK;
        first_set = 0;
        bad |= bolide_context_set(o.ctx, BOLIDE_THREADS, 2) != BOLIDE_OK;
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
            for (int64_t row = 0; row < ROWS; row += batches[i]) {
                const int64_t m = ROWS - row < batches[i] ? ROWS - row : batches[i];
                bad |= product(&o, format, compute, row, m, got + row * COLS) != BOLIDE_OK;
            }
            UNIT_EXPECT(u, !bad, "%s: %s", what, bolide_last_error()->message);
            UNIT_EXPECT(u, !memcmp(want, got, sizeof(float) * ROWS * COLS),
                        "%s: other bits in batches of %d on %s", what, batches[i],
                        bolide__isa_name((bolide__isa)isa));
        }
    }
    (void)bolide__cpu_force_isa(before);
    free(want);
    free(got);
    free_operands(&o);
}

static void mm_block_quant_bits(unit *u) {
    check_bits(u, "q4_0 f32", quant_product, BOLIDE_WEIGHT_Q4_0, 0);
    check_bits(u, "q4_1 f32", quant_product, BOLIDE_WEIGHT_Q4_1, 0);
    check_bits(u, "q8_0 f32", quant_product, BOLIDE_WEIGHT_Q8_0, 0);
    check_bits(u, "bf16 f32", quant_product, BOLIDE_WEIGHT_BF16, 0);
    check_bits(u, "q4_0 int8", quant_product, BOLIDE_WEIGHT_Q4_0, 1);
    check_bits(u, "q4_1 int8", quant_product, BOLIDE_WEIGHT_Q4_1, 1);
    check_bits(u, "q8_0 int8", quant_product, BOLIDE_WEIGHT_Q8_0, 1);
    check_bits(u, "q4_0 int16", quant_product, BOLIDE_WEIGHT_Q4_0, 2);
    check_bits(u, "q4_1 int16", quant_product, BOLIDE_WEIGHT_Q4_1, 2);
    check_bits(u, "q8_0 int16", quant_product, BOLIDE_WEIGHT_Q8_0, 2);
}
BOLIDE_UNIT(mm_block_quant_bits);

static void mm_bf16_bits(unit *u) {
    check_bits(u, "column-major", dense_product, 0, 0);
    check_bits(u, "row-major", dense_product, 1, 0);
}
BOLIDE_UNIT(mm_bf16_bits);

/* Rounding moves an activation by at most half a step of its block, so a product by at most half a
 * step times the sum of |w|. */
static void int8_is_near(unit *u) {
    operands o = make_operands(u);
    float *exact = malloc(sizeof(float) * ROWS * COLS), *near = malloc(sizeof(float) * ROWS * COLS);
    const int ready = o.ctx && o.x && o.half && o.weight && o.scratch && exact && near;
    UNIT_EXPECT(u, ready, "out of memory");
    for (int64_t format = BOLIDE_WEIGHT_Q4_0; ready && format <= BOLIDE_WEIGHT_Q8_0; format++) {
        fill_weight(&o, unit_seed(u));
        const int bad = quant_product(&o, format, 0, 0, ROWS, exact) != BOLIDE_OK ||
                        quant_product(&o, format, 1, 0, ROWS, near) != BOLIDE_OK;
        UNIT_EXPECT(u, !bad, "%s", bolide_last_error()->message);
        double error = 0, size = 0;
        for (int i = 0; !bad && i < ROWS * COLS; i++) {
            error += pow((double)near[i] - (double)exact[i], 2);
            size += pow((double)exact[i], 2);
        }
        /* A step is 1/127 of the largest of 32 uniform numbers, so an error has 1/127/sqrt(12) of
         * it in the mean square and an activation 1/sqrt(3): a ratio of 1/254. */
        UNIT_EXPECT(u, error <= size * pow(2.0 / 254, 2) && error > 0,
                    "format %d: relative error %.3g", (int)format, sqrt(error / size));
    }
    free(exact);
    free(near);
    free_operands(&o);
}
BOLIDE_UNIT(int8_is_near);
