// SPDX-License-Identifier: Apache-2.0
//
// The probes of simd_probe.h, compiled once an instruction set like a kernel.

#include "simd_probe.h"

#include "cpu/simd_dot.h"

static f32x16 truth(mask16 m) {
    return i32_as_f32(i32_select(m, i32_set(1), i32_set(0)));
}

static i32x16 mul_part(i32x16 a, i32x16 b, int high) {
    i32x16 hi, lo;
    u32_mul_wide(a, b, &hi, &lo);
    return high ? hi : lo;
}

#define PROBE_FUNCTION(name, expression)                                                           \
    static void probe_##name(const float *pa, const float *pb, const float *pc, float *out,        \
                             int64_t n) {                                                          \
        for (int64_t at = 0; at < n; at += BOLIDE_LANES) {                                         \
            const f32x16 a = f32_load(pa + at), b = f32_load(pb + at), c = f32_load(pc + at);      \
            const i32x16 i = f32_bits(a), j = f32_bits(b);                                         \
            (void)c, (void)i, (void)j;                                                             \
            f32_store(out + at, expression);                                                       \
        }                                                                                          \
    }
PROBES(PROBE_FUNCTION)

void BOLIDE_ISA(probe)(int id, const float *pa, const float *pb, const float *pc, float *out,
                       int64_t n) {
    static void (*const functions[])(const float *, const float *, const float *, float *,
                                     int64_t) = {
#define PROBE_POINTER(name, expression) probe_##name,
        PROBES(PROBE_POINTER)};
    functions[id](pa, pb, pc, out, n);
}

static f32x16 load_any(const void *p, int64_t dtype, int64_t n, int whole) {
    switch (dtype) {
#define LOAD_CASE(d)                                                                               \
    case d:                                                                                        \
        return whole ? load16(p, d) : load16_n(p, d, n)
        LOAD_CASE(BOLIDE_F16);
        LOAD_CASE(BOLIDE_BF16);
        LOAD_CASE(BOLIDE_F8_E4M3FN);
        LOAD_CASE(BOLIDE_F8_E5M2);
        LOAD_CASE(BOLIDE_I8);
        LOAD_CASE(BOLIDE_U8);
        LOAD_CASE(BOLIDE_I32);
    default:
        return whole ? load16(p, BOLIDE_F32) : load16_n(p, BOLIDE_F32, n);
    }
}

static void store_any(void *p, int64_t dtype, f32x16 v, int64_t n, int whole) {
    switch (dtype) {
#define STORE_CASE(d)                                                                              \
    case d:                                                                                        \
        if (whole)                                                                                 \
            store16(p, d, v);                                                                      \
        else                                                                                       \
            store16_n(p, d, v, n);                                                                 \
        break
        STORE_CASE(BOLIDE_F16);
        STORE_CASE(BOLIDE_BF16);
        STORE_CASE(BOLIDE_F8_E4M3FN);
        STORE_CASE(BOLIDE_F8_E5M2);
        STORE_CASE(BOLIDE_I8);
        STORE_CASE(BOLIDE_U8);
        STORE_CASE(BOLIDE_I32);
        STORE_CASE(BOLIDE_F32);
    default:
        break;
    }
}

void BOLIDE_ISA(probe_convert)(const void *in, int64_t from, void *out, int64_t to, int64_t n,
                               int64_t piece) {
    for (int64_t at = 0; at < n; at += piece) {
        const int64_t count = n - at < piece ? n - at : piece;
        const f32x16 v = load_any(dtype_at(in, from, at), from, count, count == BOLIDE_LANES);
        store_any(dtype_at_mut(out, to, at), to, v, count, count == BOLIDE_LANES);
    }
}

static void probe_masks(uint32_t bits, float *out) {
    const mask16 a = mask_of_bits(bits & 0xFFFFu), b = mask_of_bits(bits >> 16);
    out[0] = (float)mask_bits(mask_and(a, b));
    out[1] = (float)mask_bits(mask_or(a, b));
    out[2] = (float)mask_bits(mask_not(a));
    out[3] = (float)mask_any(a);
    out[4] = (float)mask_all(a);
    out[5] = (float)mask_count(a);
    out[6] = (float)mask_first_lane(a);
}

static void probe_gathers(int which, const float *in, float *out, uint32_t bits) {
    const i32x16 at = i32_and(i32_mul(i32_iota(), i32_set(7)), i32_set(15));
    const mask16 m = mask_of_bits(bits);
    if (which == SHAPE_GATHER)
        f32_store(out, f32_gather(in, at));
    else
        f32_store(out, f32_gather_mask(m, in, i32_select(m, at, i32_set(0x3FFFFFF0))));
}

static void probe_dot(int which, const float *in, float *out) {
    f32x16 r[16];
    f32_folded folded[16];
    if (which == SHAPE_SPLIT) {
        f32_store(out, bf16_load_split(in));
        return;
    }
    for (int i = 0; i < 16; i++) {
        r[i] = f32_load(in + 16 * i);
        folded[i] = f32_fold(r[i]);
    }
    f32_store(out, f32_sum16(folded));
    for (int i = 0; i < 16; i++)
        out[16 + i] = f32_sum(r[i]);
}

void BOLIDE_ISA(probe_shapes)(int which, const float *in, float *out, uint32_t bits) {
    const mask16 m = mask_of_bits(bits & 0xFFFFu);
    f32x16 r[16], x, y;
    switch (which) {
    case SHAPE_TRANSPOSE:
        for (int i = 0; i < 16; i++)
            r[i] = f32_load(in + 16 * i);
        f32_transpose16(r);
        for (int i = 0; i < 16; i++)
            f32_store(out + 16 * i, r[i]);
        break;
    case SHAPE_SUM16:
    case SHAPE_SPLIT:
        probe_dot(which, in, out);
        break;
    case SHAPE_DEINTERLEAVE:
    case SHAPE_INTERLEAVE:
        if (which == SHAPE_INTERLEAVE)
            f32_interleave(f32_load(in), f32_load(in + 16), &x, &y);
        else
            f32_deinterleave(f32_load(in), f32_load(in + 16), &x, &y);
        f32_store(out, x);
        f32_store(out + 16, y);
        break;
    case SHAPE_COMPRESS:
        out[31] = (float)f32_compress_store(out, m, f32_load(in));
        break;
    case SHAPE_COMPRESS_I32:
        out[31] = (float)i32_compress_store((int32_t *)(void *)out, m, f32_bits(f32_load(in)));
        break;
    case SHAPE_GATHER:
    case SHAPE_GATHER_MASK:
        probe_gathers(which, in, out, bits);
        break;
    case SHAPE_MASKS:
        probe_masks(bits, out);
        break;
    case SHAPE_RANGE:
        out[0] = (float)mask_bits(mask_range((int8_t)(bits & 0xFFu), (int8_t)(bits >> 8)));
        break;
    case SHAPE_LOAD_MASK:
        f32_store(out, f32_load_mask(m, in));
        f32_store(out + 16, i32_as_f32(i32_load_mask(m, (const int32_t *)(const void *)in)));
        break;
    case SHAPE_STORE_MASK:
        f32_store_mask(out, m, f32_load(in));
        i32_store_mask((int32_t *)(void *)(out + 16), m, f32_bits(f32_load(in)));
        break;
    case SHAPE_LOAD_F64: {
        double d[16];
        for (int i = 0; i < 16; i++)
            d[i] = in[i];
        f32_store(out, f64_to_f32(f64_load_n(d, bits)));
        break;
    }
    default:
        break;
    }
}

void BOLIDE_ISA(probe_philox)(uint64_t seed, uint64_t row, uint64_t block, uint32_t *out) {
    i32x16 words[4];
    philox16(seed, row, block, words);
    for (int w = 0; w < 4; w++)
        i32_store((int32_t *)out + 16 * w, words[w]);
    for (int i = 0; i < 16; i++)
        for (int w = 0; w < 4; w++)
            out[64 + 16 * w + i] = philox_draw(seed, row, 4 * (block + (uint64_t)i) + (uint64_t)w);
}

void BOLIDE_ISA(probe_angles)(double position, const double *frequency, float *sine,
                              float *cosine) {
    f32x16 s, c;
    f64_sincos(f64_mul(f64_set(position), f64_load(frequency)), &s, &c);
    f32_store(sine, s);
    f32_store(cosine, c);
}
