// SPDX-License-Identifier: Apache-2.0
//
// References of the gemm family. A row is a row of the output; for batches, of all of them. GGUF
// blocks are written number by number into the weight's bytes and read back from there.
//
// Key of mm_block_quant: scale=inf, nan or zero gives that value to one block's d.

#include "ref.h"

#include <math.h>
#include <string.h>

enum { F32, F16, BF16, Q4_0, Q4_1, Q8_0 };

/* ---- numbers in bytes ----------------------------------------------------------------------- */

static double decode_f16(int64_t bits) {
    const int64_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double sign = bits >> 15 & 1 ? -1 : 1;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp((double)(1024 + fraction), (int)exponent - 25)
                            : ldexp((double)fraction, -24));
}

static double decode_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static int64_t two_bytes(const int64_t *b) {
    return b[0] | b[1] << 8;
}

/* The bits of a value that f16 holds exactly, by search over the 32,768 magnitudes' exponents. */
static int64_t encode_f16(double value) {
    if (isnan(value))
        return 0x7e00;
    const int64_t sign = signbit(value) ? 0x8000 : 0;
    const double a = fabs(value);
    if (isinf(a))
        return sign | 0x7c00;
    if (a < ldexp(1, -14))
        return sign | (int64_t)ldexp(a, 24);
    int exponent;
    const double fraction = frexp(a, &exponent);
    return sign | (int64_t)(exponent + 14) << 10 | ((int64_t)ldexp(fraction, 11) & 1023);
}

static void put(ref_tensor *w, int64_t at, uint64_t bits, int bytes) {
    for (int i = 0; i < bytes; i++)
        w->i64[at + i] = (int64_t)(bits >> (8 * i) & 255);
}

static int64_t block_bytes(int64_t format) {
    static const int64_t bytes[] = {128, 64, 64, 18, 20, 34};
    return bytes[format];
}

/* ---- weights in blocks ---------------------------------------------------------------------- */

static void quant_dims(ref_call *c) {
    const int64_t k = ref_has_dim(c, "k") ? ref_dim(c, "k") : 64;
    ref_set_dim(c, "row_bytes", k * block_bytes(ref_i64(c, "format")) / 32);
}

static void fill_dense(ref_call *c, ref_tensor *w, int64_t format) {
    const int64_t bytes = format == F32 ? 4 : 2;
    for (int64_t i = 0; (i + 1) * bytes <= w->elems; i++) {
        const double value = ref_normal(c, 5, (uint64_t)i);
        if (format == F32) {
            const float f = (float)value;
            uint32_t bits;
            memcpy(&bits, &f, sizeof bits);
            put(w, 4 * i, bits, 4);
        } else if (format == F16) {
            put(w, 2 * i, (uint64_t)encode_f16(ref_round(value, BOLIDE_F16)), 2);
        } else {
            const float f = (float)ref_round(value, BOLIDE_BF16);
            uint32_t bits;
            memcpy(&bits, &f, sizeof bits);
            put(w, 2 * i, bits >> 16, 2);
        }
    }
}

/* Any bytes are numbers; d and m get sizes as in a model. */
static void fill_blocks(ref_call *c, ref_tensor *w, int64_t format) {
    const int64_t size = block_bytes(format);
    const char *scale = ref_key_text(c, "scale");
    for (int64_t i = 0; i < w->elems; i++)
        w->i64[i] = ref_between(c, 6, (uint64_t)i, 0, 255);
    for (int64_t b = 0; (b + 1) * size <= w->elems; b++) {
        const uint64_t at = (uint64_t)b;
        const double d = 0.01 + 0.02 * ref_uniform(c, 7, at);
        put(w, b * size, (uint64_t)encode_f16(ref_round(at & 1 ? -d : d, BOLIDE_F16)), 2);
        const double m = ref_round(0.1 * ref_normal(c, 8, at), BOLIDE_F16);
        if (format == Q4_1)
            put(w, b * size + 2, (uint64_t)encode_f16(m), 2);
    }
    if (scale && w->elems)
        put(w, 0,
            (uint64_t)encode_f16(!strcmp(scale, "inf")   ? INFINITY
                                 : !strcmp(scale, "nan") ? NAN
                                                         : 0),
            2);
}

static void quant_fill(ref_call *c) {
    ref_tensor *w = ref_values(c, "weight");
    const int64_t format = ref_i64(c, "format");
    if (format <= BF16)
        fill_dense(c, w, format);
    else
        fill_blocks(c, w, format);
}

/* The integer of number i of a block, and d and m. */
static int64_t number_of(const int64_t *block, int64_t format, int64_t i, double *d, double *m) {
    *d = decode_f16(two_bytes(block));
    *m = format == Q4_1 ? decode_f16(two_bytes(block + 2)) : 0;
    if (format == Q8_0)
        return block[2 + i] >= 128 ? block[2 + i] - 256 : block[2 + i];
    const int64_t byte = block[(format == Q4_1 ? 4 : 2) + i % 16];
    return (i < 16 ? byte & 15 : byte >> 4) - (format == Q4_0 ? 8 : 0);
}

static double weight_at(const ref_call *c, int64_t row, int64_t k) {
    const ref_tensor *w = ref_in(c, "weight");
    const int64_t format = ref_i64(c, "format");
    const int64_t *b = w->i64 + row * w->shape[1];
    if (format == F32)
        return decode_f32((uint32_t)(two_bytes(b + 4 * k) | two_bytes(b + 4 * k + 2) << 16));
    if (format == F16)
        return decode_f16(two_bytes(b + 2 * k));
    if (format == BF16)
        return decode_f32((uint32_t)two_bytes(b + 2 * k) << 16);
    double d, m;
    const int64_t q = number_of(b + k / 32 * block_bytes(format), format, k % 32, &d, &m);
    /* As f32 holds it: an infinite d times 0 is NaN, as it is in the library. */
    return (double)(float)((double)q * d + m);
}

static double bias_at(const ref_call *c, int64_t col) {
    const ref_tensor *bias = ref_in(c, "bias");
    return bias ? bias->f64[col] : 0;
}

/* The rounding of 32 activations, step by step in float32 as the header defines it. */
static float quantize(const double *x, float largest, int64_t *q) {
    float max = 0;
    int finite = 1;
    for (int i = 0; i < 32; i++) {
        finite &= isfinite(x[i]) != 0;
        max = fmaxf(max, fabsf((float)x[i]));
    }
    const int usable = finite && max >= ldexpf(1, -110);
    for (int i = 0; i < 32; i++)
        q[i] = usable ? (int64_t)nearbyintf((float)x[i] * (largest / max)) : 0;
    return usable ? max / largest : finite ? 0.0f : NAN;
}

static double rounded_product(const ref_call *c, const double *x, float largest, int64_t k,
                              int64_t col) {
    const ref_tensor *w = ref_in(c, "weight");
    const int64_t format = ref_i64(c, "format");
    const int64_t *b = w->i64 + col * w->shape[1];
    double sum = 0;
    for (int64_t block = 0; block < k / 32; block++) {
        int64_t q[32], dot = 0, total = 0;
        double d, m;
        const double scale = (double)quantize(x + 32 * block, largest, q);
        for (int64_t i = 0; i < 32; i++) {
            dot += number_of(b + block * block_bytes(format), format, i, &d, &m) * q[i];
            total += q[i];
        }
        sum += (double)dot * (d * scale);
        if (format == Q4_1)
            sum += m * (scale * (double)total);
    }
    return sum;
}

static void mm_block_quant_ref(const ref_call *c, int64_t row) {
    const ref_tensor *x = ref_in(c, "input");
    ref_tensor *y = ref_out(c, "out");
    const int64_t k = x->shape[1], n = y->shape[1];
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        if (ref_is(c, "compute", "int8"))
            sum = rounded_product(c, x->f64 + row * k, 127, k, j);
        else if (ref_is(c, "compute", "int16"))
            sum = rounded_product(c, x->f64 + row * k, 32512, k, j);
        else
            for (int64_t i = 0; i < k; i++)
                sum += x->f64[row * k + i] * weight_at(c, j, i);
        y->f64[row * n + j] = sum + bias_at(c, j);
    }
}

static int64_t quant_rows(const ref_call *c) {
    return ref_dim(c, "m");
}

static double product_flops(const ref_call *c) {
    return 2.0 * (double)ref_dim(c, "m") * (double)ref_dim(c, "n") * (double)ref_dim(c, "k");
}

const ref_op ref_mm_block_quant = {.name = "mm_block_quant",
                                   .defaults = "m=3 n=20 k=64 format=q4_1",
                                   .keys = "scale",
                                   .dims = quant_dims,
                                   .fill = quant_fill,
                                   .rows = quant_rows,
                                   .ref = mm_block_quant_ref,
                                   .flops = product_flops};

/* ---- dense operands ------------------------------------------------------------------------- */

static void product_row(const ref_call *c, const ref_tensor *a, const ref_tensor *b, int64_t row) {
    ref_tensor *y = ref_out(c, "out");
    const int64_t m = a->shape[a->ndim - 2], k = a->shape[a->ndim - 1], n = b->shape[b->ndim - 1];
    const double *x = a->f64 + row * k, *w = b->f64 + row / m * k * n;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = 0; i < k; i++)
            sum += x[i] * w[i * n + j];
        y->f64[row * n + j] = sum;
    }
}

static void mm_bf16_ref(const ref_call *c, int64_t row) {
    const ref_tensor *b = ref_in(c, "b"), *bias = ref_in(c, "bias");
    const int64_t n = b->shape[1];
    product_row(c, ref_in(c, "a"), b, row);
    for (int64_t j = 0; bias && j < n; j++)
        ref_out(c, "out")->f64[row * n + j] += bias->f64[j];
}

static void bmm_bf16_ref(const ref_call *c, int64_t row) {
    product_row(c, ref_in(c, "A"), ref_in(c, "B"), row);
}

static int64_t bmm_rows(const ref_call *c) {
    return ref_dim(c, "b") * ref_dim(c, "m");
}

static double bmm_flops(const ref_call *c) {
    return (double)ref_dim(c, "b") * product_flops(c);
}

/* A GPU's tensor cores cut off what lies far below the largest of 16 products and the sum so far,
 * so their sums drift: seen were 1.8e-6 of the result's size with 96 products. They judge the size
 * of an f16 below the least normal one by the exponent of that one, up to ten bits too large: seen
 * were 9e-6. */
static double product_slack(const ref_call *c) {
    if (!ref_on_cuda(c))
        return 0;
    const ref_tensor *a = ref_in(c, ref_in(c, "a") ? "a" : "A");
    const int64_t count = ref_dim(c, "m") * ref_dim(c, "k");
    double largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fabs(a->f64[i]) > largest ? fabs(a->f64[i]) : largest;
    const double coarse = a->dtype == BOLIDE_F16 && largest < ldexp(1, -14) ? ldexp(1, -14) : 0;
    return ldexp(16 + (double)ref_dim(c, "k") / 8, -24) + coarse;
}

const ref_op ref_mm_bf16 = {.name = "mm_bf16",
                            .defaults = "m=3 n=20 k=64 a=bf16 b.order=1:0",
                            .rows = quant_rows,
                            .ref = mm_bf16_ref,
                            .slack = product_slack,
                            .flops = product_flops};

const ref_op ref_bmm_bf16 = {.name = "bmm_bf16",
                             .defaults = "b=2 m=3 n=20 k=64 A=bf16 B.order=0:2:1",
                             .rows = bmm_rows,
                             .ref = bmm_bf16_ref,
                             .slack = product_slack,
                             .flops = bmm_flops};
