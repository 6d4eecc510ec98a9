// SPDX-License-Identifier: Apache-2.0
//
// Small readers of bolide_tensor: data with its byte offset, strides that may be absent.

#ifndef BOLIDE_CORE_TENSOR_H
#define BOLIDE_CORE_TENSOR_H

#include <bolide/core.h>
#include <stdbool.h>

/* By integers: the checks ask this of tensors whose data may still be NULL. */
static inline void *bolide__data(const bolide_tensor *t) {
    return (void *)((uintptr_t)t->data + (uintptr_t)t->byte_offset);
}

/* Stride of dimension i in elements, computed from the shape when strides are NULL. */
static inline int64_t bolide__stride(const bolide_tensor *t, int32_t i) {
    if (t->strides)
        return t->strides[i];
    int64_t s = 1;
    for (int32_t k = t->ndim - 1; k > i; k--)
        s *= t->shape[k];
    return s;
}

static inline int64_t bolide__numel(const bolide_tensor *t) {
    int64_t n = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

/* Bit of a tensor's dtype (BOLIDE_F16 …). */
static inline int64_t bolide__bit(const bolide_tensor *t) {
    return bolide_dtype_bit(t->dtype);
}

/* Bytes of an element; 4-bit types count as one byte for two. */
static inline int64_t bolide__elem_bytes(const bolide_tensor *t) {
    return (t->dtype.bits + 7) / 8;
}

/* Bytes of an element of a dtype bit; 4-bit types count as one byte for two. */
static inline int64_t bolide__dtype_bytes(int64_t bit) {
    const int64_t eight = BOLIDE_F64 | BOLIDE_U64 | BOLIDE_I64;
    const int64_t four = BOLIDE_F32 | BOLIDE_U32 | BOLIDE_I32;
    const int64_t two = BOLIDE_F16 | BOLIDE_BF16 | BOLIDE_U16 | BOLIDE_I16;
    return bit & eight ? 8 : bit & four ? 4 : bit & two ? 2 : 1;
}

bool bolide__is_contiguous(const bolide_tensor *t);
/* Whether two steps along different dimensions of a tensor with elements lead to one place: then an
 * output would hold whatever is written last. */
bool bolide__meets_itself(const bolide_tensor *t);

#endif
