// SPDX-License-Identifier: Apache-2.0
//
// What a context holds. A CPU context is settings only; a CUDA context adds the device's state,
// owned by src/cuda.

#ifndef BOLIDE_CORE_CONTEXT_H
#define BOLIDE_CORE_CONTEXT_H

#include <bolide/core.h>

struct bolide_context {
    bolide_device device;
    int64_t batch_invariant;
    int64_t threads;
    struct bolide__cuda_device *cuda; /* NULL for a CPU context */
};

#endif
