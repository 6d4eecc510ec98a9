// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the CUDA backend until its runtime lands: a CUDA context is refused by name.

#include "core/context.h"
#include "core/error.h"
#include "cuda/cuda.h"

bolide_status bolide__cuda_device_open(int32_t index, struct bolide__cuda_device **out) {
    (void)index;
    *out = NULL;
    return bolide__fail(BOLIDE_NO_DEVICE, "context_create", "this build has no CUDA backend");
}

void bolide__cuda_device_close(struct bolide__cuda_device *device) {
    (void)device;
}

/* Without a context none of the following is ever called. */

static bolide_status unavailable(const bolide__call *call) {
    return bolide__fail(BOLIDE_NO_DEVICE, call->entry_name, "this build has no CUDA backend");
}

const bolide__cuda_limits *bolide__cuda_limits_of(const bolide_context *ctx) {
    static const bolide__cuda_limits none = {0};
    (void)ctx;
    return &none;
}

bolide_status bolide__cuda_copy_to_device(const bolide__call *call, void *device, const void *host,
                                          int64_t bytes) {
    (void)device, (void)host, (void)bytes;
    return unavailable(call);
}

bolide_status bolide__cuda_copy_to_host(const bolide__call *call, void *host, const void *device,
                                        int64_t bytes) {
    (void)device, (void)host, (void)bytes;
    return unavailable(call);
}

bolide_status bolide__cuda_wait(const bolide__call *call) {
    return unavailable(call);
}
