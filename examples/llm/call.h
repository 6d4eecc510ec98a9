// SPDX-License-Identifier: Apache-2.0
//
// Small helpers to call Bolide: a tensor with its shape in one value, and status to sentence.
#ifndef BOLIDE_LLM_CALL_H
#define BOLIDE_LLM_CALL_H

#include <bolide/bolide.h>

#include "error.h"

// A view; pass &v.t.  The pointers inside are set by view_ready, after the last copy.
typedef struct {
    bolide_tensor t;
    int64_t shape[4], strides[4];
} view;

static inline const bolide_tensor *view_ready(view *v) {
    v->t.shape = v->shape;
    v->t.strides = v->strides;
    return &v->t;
}

static const bolide_device on_host = {BOLIDE_CPU, 0};

// Rows of `columns` elements that lie `stride` apart.
static inline view view_2d(bolide_device at, const void *data, int64_t dtype, int64_t rows,
                           int64_t columns, int64_t stride) {
    return (view){.t = {.data = (void *)(uintptr_t)data,
                        .device = at,
                        .ndim = 2,
                        .dtype = bolide_dtype_of(dtype)},
                  .shape = {rows, columns},
                  .strides = {stride, 1}};
}

static inline view view_1d(bolide_device at, const void *data, int64_t dtype, int64_t count) {
    view v = view_2d(at, data, dtype, count, 1, 1);
    v.t.ndim = 1;
    return v;
}

// [rows, heads, d] with rows `stride` apart.
static inline view view_heads(bolide_device at, const void *data, int64_t dtype, int64_t rows,
                              int64_t heads, int64_t d, int64_t stride) {
    view v = view_2d(at, data, dtype, rows, heads, stride);
    v.t.ndim = 3;
    v.shape[2] = d;
    v.strides[1] = d;
    v.strides[2] = 1;
    return v;
}

// Contiguous [a, b, c, d].
static inline view view_4d(bolide_device at, const void *data, int64_t dtype, int64_t a, int64_t b,
                           int64_t c, int64_t d) {
    view v = view_2d(at, data, dtype, a, b, b * c * d);
    v.t.ndim = 4;
    v.shape[2] = c;
    v.shape[3] = d;
    v.strides[1] = c * d;
    v.strides[2] = d;
    v.strides[3] = 1;
    return v;
}

static inline bool llm_ok(bolide_status status, llm_error *error) {
    return status == BOLIDE_OK || llm_fail(error, "%s", bolide_last_error()->message);
}

#endif
