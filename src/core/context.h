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

/* Opens the driver and the device for a new context, and closes it: implemented in src/cuda,
 * declared here because includes flow from core to the backends only. */
bolide_status bolide__cuda_device_open(int32_t index, struct bolide__cuda_device **out);
void bolide__cuda_device_close(struct bolide__cuda_device *device);

#endif
