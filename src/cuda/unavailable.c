// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the CUDA backend until its runtime lands: a CUDA context is refused by name.

#include "core/context.h"
#include "core/error.h"

bolide_status bolide__cuda_device_open(int32_t index, struct bolide__cuda_device **out) {
    (void)index;
    *out = NULL;
    return bolide__fail(BOLIDE_NO_DEVICE, "context_create", "this build has no CUDA backend");
}

void bolide__cuda_device_close(struct bolide__cuda_device *device) {
    (void)device;
}
