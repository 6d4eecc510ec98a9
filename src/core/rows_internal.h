// SPDX-License-Identifier: Apache-2.0
//
// Vectors of the last dimension of a tensor [n, d] or [n, h, d], for kernels that take them one at
// a time, on the host and on the device. Row r is token r / h and head r % h, so any strides of the
// first two dimensions are followed; the last dimension is contiguous.

#ifndef BOLIDE_CORE_ROWS_INTERNAL_H
#define BOLIDE_CORE_ROWS_INTERNAL_H

#ifndef __CUDACC_RTC__
#include "core/tensor.h"
#endif

typedef struct bolide__rows {
    void *data;    /* NULL: the tensor is absent */
    int64_t n, h;  /* strides of token and head, in elements */
    int64_t dtype; /* bit */
    int64_t bytes; /* of an element */
} bolide__rows;

/* A number, or one f32 that is read when the kernel runs. */
typedef struct bolide__scalar {
    const float *tensor; /* NULL: the number */
    float number;
} bolide__scalar;

#ifndef __CUDACC_RTC__
/* 1 if indices below count, and a block beyond, need more than 32 bits: the WIDE of device kernels.
 */
static inline int bolide__is_wide(int64_t count) {
    return count > 0x7fffffff;
}

/* 1 if a kernel that reads and writes so many bytes is over almost as soon as it begins: it had
 * better ask for its inputs early, and its outputs will still be in L2 when they are read. Measured
 * on an H200, where 16 MB take 4 us. */
static inline int bolide__is_few(int64_t bytes) {
    return bytes <= 16 << 20;
}

static inline bolide__rows bolide__rows_of(const bolide_tensor *t) {
    if (!t)
        return (bolide__rows){.data = NULL};
    return (bolide__rows){.data = bolide__data(t),
                          .n = bolide__stride(t, 0),
                          .h = t->ndim == 3 ? bolide__stride(t, 1) : 0,
                          .dtype = bolide__bit(t),
                          .bytes = bolide__elem_bytes(t)};
}

/* Heads of a token: the h that goes with every tensor of the call. */
static inline int64_t bolide__rows_heads(const bolide_tensor *t) {
    return t->ndim == 3 ? t->shape[1] : 1;
}

/* First element of row r. */
static inline void *bolide__row_at(const bolide__rows *t, int64_t r, int64_t h) {
    return (char *)t->data + (r / h * t->n + r % h * t->h) * t->bytes;
}

/* The two fields of a number-or-tensor row; where both are absent, the number is otherwise. */
static inline bolide__scalar bolide__scalar_of(double number, const bolide_tensor *t,
                                               float otherwise) {
    return (bolide__scalar){.tensor = t ? (const float *)bolide__data(t) : NULL,
                            .number = number == number ? (float)number : otherwise};
}
static inline float bolide__scalar_read(bolide__scalar s) {
    return s.tensor ? *s.tensor : s.number;
}
#endif

#endif
