// SPDX-License-Identifier: Apache-2.0
//
// Random numbers and tensor views of the attention properties; `state` seeds the numbers.

#ifndef BOLIDE_TESTS_PROP_ATTENTION_H
#define BOLIDE_TESTS_PROP_ATTENTION_H

#include <bolide/bolide.h>

#include <math.h>

static uint64_t state;

static int64_t between(int64_t low, int64_t high) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return low + (int64_t)(state % (uint64_t)(high - low + 1));
}

static float normal(void) {
    const double u = (double)between(1, 1 << 30) / (1 << 30);
    return (float)(sqrt(-2 * log(u)) *
                   cos(6.283185307179586 * (double)between(0, 1 << 30) / (1 << 30)));
}

static bolide_tensor tensor(void *data, int64_t dtype, int32_t ndim, int64_t *shape) {
    return (bolide_tensor){.data = data,
                           .device = {BOLIDE_CPU, 0},
                           .ndim = ndim,
                           .dtype = bolide_dtype_of(dtype),
                           .shape = shape};
}

#endif
