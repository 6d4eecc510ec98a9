// SPDX-License-Identifier: Apache-2.0
//
// Memory and values of a realised problem. Random values are drawn from a table of 65,536 encoded
// samples, so a gigabyte of cache costs seconds. Logical copies for the references are decoded
// only when asked for.

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "case.h"
#include "numeric.h"

/* ---- elements ----------------------------------------------------------------------------- */

static int is_contiguous(const driver_tensor *t) {
    int64_t step = 1;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != step)
            return 0;
        step *= t->shape[i];
    }
    return 1;
}

int64_t case_place(const driver_tensor *t, int64_t index) {
    int64_t place = t->offset;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        place += index % t->shape[i] * t->strides[i];
        index /= t->shape[i];
    }
    return place;
}

/* The same as an iterator: next(&w) yields the places of elements 0, 1, 2 … */
typedef struct walk {
    const driver_tensor *t;
    int contiguous;
    int64_t index;
} walk;

static walk walk_begin(const driver_tensor *t) {
    return (walk){.t = t, .contiguous = is_contiguous(t), .index = 0};
}

static int64_t walk_next(walk *w) {
    const int64_t i = w->index++;
    return w->contiguous ? w->t->offset + i : case_place(w->t, i);
}

unsigned char *case_host(const driver_case *c, const driver_tensor *t) {
    return t->alias >= 0 ? c->tensor[t->alias].host : t->host;
}

/* ---- logical copies ----------------------------------------------------------------------- */

/* 1 if references see the tensor as f64. That is what its row takes, also where a problem gives
 * another dtype: the operator refuses it later, the reference that fills it counts on it now. */
static int is_float(const driver_case *c, const driver_tensor *t) {
    const bolide_param *row = t->row;
    for (int depth = 0; row && row->like && depth < 8; depth++)
        row = case_any_row(c, row->like, NULL);
    int floats = 0, others = 0;
    for (int64_t set = row ? row->dtypes : 0; set; set &= set - 1)
        *(numeric_is_float(set & -set) ? &floats : &others) = 1;
    return floats == others ? numeric_is_float(t->dtype) : floats;
}

static int make_logical(const driver_case *c, const driver_tensor *t, ref_tensor *to) {
    to->name = t->name;
    to->dtype = t->dtype;
    to->ndim = t->ndim;
    to->elems = t->elems;
    memcpy(to->shape, t->shape, sizeof to->shape);
    if (t->own_rank) {
        to->ndim = t->own_rank;
        to->elems = t->room;
        memcpy(to->shape, t->own_shape, sizeof to->shape);
    }
    const int64_t room = t->room > t->elems ? t->room : t->elems;
    void *memory = calloc((size_t)(room ? room : 1), 8);
    if (is_float(c, t))
        to->f64 = memory;
    else
        to->i64 = memory;
    return memory ? 0 : -1;
}

int case_decode(const driver_case *c, const driver_tensor *from, ref_tensor *to) {
    const unsigned char *data = case_host(c, from);
    if (make_logical(c, from, to))
        return -1;
    if (numeric_is_float(from->dtype) != (to->f64 != NULL))
        return 0;
    walk w = walk_begin(from);
    for (int64_t i = 0; i < from->elems; i++) {
        if (to->f64)
            to->f64[i] = numeric_load(from->dtype, data, walk_next(&w));
        else
            to->i64[i] = numeric_load_int(from->dtype, data, walk_next(&w));
    }
    return 0;
}

void case_drop(ref_tensor *t) {
    free(t->f64);
    free(t->i64);
    t->f64 = NULL;
    t->i64 = NULL;
}

static void encode(const driver_case *c, const driver_tensor *t, const ref_tensor *from) {
    unsigned char *data = case_host(c, t);
    if (numeric_is_float(t->dtype) != (from->f64 != NULL))
        return;
    walk w = walk_begin(t);
    for (int64_t i = 0; i < t->elems; i++) {
        const int64_t place = walk_next(&w);
        if (from->f64)
            numeric_store(t->dtype, data, place, from->f64[i]);
        else
            numeric_store_int(t->dtype, data, place, from->i64[i]);
    }
}

/* ---- random values ------------------------------------------------------------------------ */

enum { SAMPLES = 65536 };

/* N(0,1) where the dtype holds it; a scale (number-or-tensor) is near 1 and positive. */
static double sample(const driver_tensor *t, uint64_t bits) {
    if (t->dtype == BOLIDE_F8_E8M0)
        return ldexp(1, (int)(bits % 7) - 3);
    if (case_is_or_tensor(t->row->kind))
        return 0.5 + numeric_uniform(bits);
    return numeric_normal(bits) * (t->dtype == BOLIDE_F4_E2M1 ? 2 : 1);
}

/* Edge values for .values=mix and its relatives. */
static double special(const char *kind, uint64_t bits, int64_t dtype) {
    const double normal = numeric_normal(bits);
    const uint64_t die = numeric_mix(bits, 1, 2) % 64;
    const double sign = bits & 1 ? -1 : 1;
    const double smallest = numeric_smallest(dtype);
    if (!strcmp(kind, "nan"))
        return die == 0 ? NAN : normal;
    if (!strcmp(kind, "inf"))
        return die == 0 ? sign * INFINITY : normal;
    if (!strcmp(kind, "large"))
        return dtype == BOLIDE_F8_E4M3FN ? normal * 64 : normal * 4096;
    if (!strcmp(kind, "tiny"))
        return normal * 4 * smallest;
    if (!strcmp(kind, "mix"))
        return die == 0   ? NAN
               : die == 1 ? sign * INFINITY
               : die == 2 ? sign * 0.0
               : die == 3 ? sign * smallest
                          : normal;
    return NAN;
}

/* One element of a tensor whose .values property names a kind; 0 if the kind is unknown. */
static int named_value(const driver_tensor *t, const char *kind, uint64_t bits, double *value) {
    static const char *const specials = "nan inf large tiny mix";
    if (!strcmp(kind, "zero"))
        *value = 0;
    else if (!strcmp(kind, "one"))
        *value = 1;
    else if (!strcmp(kind, "uniform"))
        *value = numeric_is_float(t->dtype) ? numeric_uniform(bits) : (double)(bits & 1);
    else if (!strcmp(kind, "normal"))
        *value = sample(t, bits);
    else if (case_choice(specials, kind, strlen(kind)) >= 0 && numeric_is_float(t->dtype))
        *value = special(kind, bits, t->dtype);
    else
        return 0;
    return 1;
}

/* Codes to draw from; NULL when memory is short or the kind of values is unknown. */
static uint64_t *make_samples(driver_case *c, const driver_tensor *t, uint64_t seed) {
    const char *kind = case_property(c, t->name, "values");
    uint64_t *codes = calloc(SAMPLES, sizeof *codes);
    for (uint64_t i = 0; codes && i < SAMPLES; i++) {
        double value = 0;
        const uint64_t bits = numeric_mix(seed, 7, i);
        if (kind && !named_value(t, kind, bits, &value)) {
            case_fail(c, "%s: %s.values: %.40s is unknown or not for this dtype", c->op->name,
                      t->name, kind);
            free(codes);
            return NULL;
        }
        if (numeric_is_float(t->dtype))
            numeric_store(t->dtype, &codes[i], 0, kind ? value : sample(t, bits));
        else if (kind)
            numeric_store_int(t->dtype, &codes[i], 0, (int64_t)value);
        else if (t->dtype == BOLIDE_BOOL)
            codes[i] = bits & 1;
        else if (t->dtype == BOLIDE_U8 || t->dtype == BOLIDE_I8)
            codes[i] = bits & 255;
        /* Wider integers are lengths and indices: zero, until fill writes them. */
    }
    return codes;
}

static int randomize(driver_case *c, driver_tensor *t, uint64_t stream) {
    if (c->dry && numeric_is_float(t->dtype))
        return 0;
    const uint64_t seed = numeric_mix(c->seed, stream, 0);
    uint64_t *codes = make_samples(c, t, seed);
    if (!codes)
        return case_fail(c, "%s: out of memory", c->op->name);
    unsigned char *data = case_host(c, t);
    walk w = walk_begin(t);
    uint64_t bits = 0;
    for (int64_t i = 0; i < t->elems; i++) {
        bits = i % 4 ? bits >> 16 : numeric_mix(seed, 8, (uint64_t)i);
        numeric_store_bits(t->dtype, data, walk_next(&w), codes[bits & 0xffff]);
    }
    free(codes);
    return 0;
}

int64_t driver_memory_limit;

/* ---- the whole case ------------------------------------------------------------------------- */

static int allocate(driver_case *c) {
    const double physical = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const double limit = driver_memory_limit ? (double)driver_memory_limit : 0.75 * physical;
    double total = 0;
    for (int32_t i = 0; i < c->tensor_count; i++)
        if (c->tensor[i].present && c->tensor[i].alias < 0)
            total += (double)c->tensor[i].bytes;
    if (total > limit && !c->dry)
        return case_fail(c, "%s: the tensors need %.3f GB; at most %.3f GB are taken", c->op->name,
                         total * 1e-9, limit * 1e-9);
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        if (!t->present || t->alias >= 0)
            continue;
        t->host = c->dry ? buffer_untouched(t->bytes) : buffer_make(t->bytes);
        if (!t->host)
            return case_fail(c, "%s: out of memory for %s", c->op->name, t->name);
    }
    return 0;
}

/* A tensor of the run takes the values of the plan's tensor of that name. */
static int copy_twins(driver_case *c) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        driver_tensor *twin =
            t->phase == BOLIDE_RUN ? driver_tensor_of(c, BOLIDE_PLAN, t->name) : NULL;
        if (!t->present || !twin || twin->row->kind == BOLIDE_KIND_OUT)
            continue;
        driver_tensor *from = t->edited ? t : twin, *to = t->edited ? twin : t;
        ref_tensor logical = {0};
        if (from->elems != to->elems ||
            numeric_is_float(from->dtype) != numeric_is_float(to->dtype))
            return case_fail(c, "%s: %s: plan and run give it different shapes or dtypes",
                             c->op->name, t->name);
        if (case_decode(c, from, &logical))
            return case_fail(c, "%s: out of memory", c->op->name);
        encode(c, to, &logical);
        case_drop(&logical);
    }
    return 0;
}

/* 1 if a key takes away what the operator needs: it is refused, and a reference could not fill it.
 */
static int lacks_input(const driver_case *c) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        const driver_tensor *t = &c->tensor[i];
        if (!t->present && !(t->row->flags & BOLIDE_OPTIONAL) &&
            (t->row->kind == BOLIDE_KIND_IN || t->row->kind == BOLIDE_KIND_INOUT))
            return 1;
    }
    return 0;
}

int case_fill(driver_case *c) {
    if (allocate(c))
        return -1;
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        if (t->present && t->alias < 0 && t->row->kind != BOLIDE_KIND_OUT &&
            randomize(c, t, (uint64_t)i + 1))
            return -1;
    }
    if (c->ref && c->ref->fill && !lacks_input(c)) {
        c->filling = 1;
        c->ref->fill(c);
        c->filling = 0;
    }
    if (c->error[0])
        return -1;
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        if (t->present && t->edited)
            encode(c, t, &t->in);
        case_drop(&t->in); /* decoded again, rounded, when a reference asks */
    }
    return copy_twins(c);
}

void case_poison(driver_case *c, int byte) {
    const uint64_t code = (uint64_t)byte * UINT64_C(0x0101010101010101);
    for (int32_t i = 0; i < c->tensor_count; i++) {
        const driver_tensor *t = &c->tensor[i];
        if (!t->present || t->row->kind != BOLIDE_KIND_OUT || t->alias >= 0)
            continue;
        walk w = walk_begin(t);
        for (int64_t k = 0; k < t->elems; k++)
            numeric_store_bits(t->dtype, t->host, walk_next(&w),
                               numeric_bits(t->dtype) == 4 ? code & 15 : code);
    }
}

/* ---- args --------------------------------------------------------------------------------- */

static void bind_list(driver_case *c, driver_tensor *t) {
    driver_args *a = &c->args[t->phase];
    const bolide_tensor **slots = &a->list[t - c->tensor];
    *slots = &t->view;
    if (t->list == 0) {
        case_put(c, t->phase, t->row->offset, &slots);
    }
    const int64_t count = t->list + 1;
    case_put(c, t->phase, t->row->offset2, &count);
}

void case_bind(driver_case *c) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        const driver_tensor *owner = t->alias >= 0 ? &c->tensor[t->alias] : t;
        const bolide_tensor *view = t->present ? &t->view : NULL;
        t->view = (bolide_tensor){.data = owner->device ? (void *)(uintptr_t)owner->device
                                                        : (void *)owner->host,
                                  .device = {.type = owner->device ? BOLIDE_CUDA : BOLIDE_CPU},
                                  .ndim = t->ndim,
                                  .dtype = bolide_dtype_of(t->dtype),
                                  .shape = t->shape,
                                  .strides = t->strides,
                                  .byte_offset = (uint64_t)numeric_bytes(t->dtype, t->offset)};
        if (t->list >= 0)
            bind_list(c, t);
        else
            case_put(c, t->phase, t->row->offset, &view);
    }
}
