// SPDX-License-Identifier: Apache-2.0
//
// The 128 bytes by which the copy engine of a GPU from 9.0 on knows a tensor: address, sizes,
// strides, and the box that one copy takes. The host encodes them (tensor_map.c); kernels get them
// as part of their by-value parameters.

#ifndef BOLIDE_CUDA_TENSOR_MAP_INTERNAL_H
#define BOLIDE_CUDA_TENSOR_MAP_INTERNAL_H

typedef struct __attribute__((aligned(64))) bolide__tensor_map {
    unsigned char bytes[128];
} bolide__tensor_map;

#endif
