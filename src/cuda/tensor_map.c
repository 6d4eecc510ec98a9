// SPDX-License-Identifier: Apache-2.0
//
// Encodes tensor maps through the driver. It is arithmetic on the host: nothing is allocated or
// asked of the device, so it may happen while a stream is being captured.

#include "core/context.h"
#include "core/env.h"
#include "cuda/cuda.h"
#include "cuda/device.h"

enum {
    TYPE_U8 = 0,
    TYPE_F16 = 6,
    TYPE_BF16 = 9,
    SWIZZLE_128 = 3,
    PROMOTE_128 = 2,
    PROMOTE_256 = 3,
    MAX_RANK = 5
};

bool bolide__cuda_has_wgmma(const bolide_context *ctx) {
    const bolide__target target = ctx->cuda->target;
    return target.arch == 90 && target.suffix == 'a' && !target.ptx;
}

/* The driver's limits on strides; a dimension of one element is never stepped along. */
static bool fill_strides(const bolide__tensor_box *b, uint64_t *strides) {
    const int64_t size = bolide__dtype_bytes(b->dtype);
    int64_t bytes = b->shape[0] * size;
    for (int i = 1; i < b->rank; i++) {
        bytes = b->shape[i] > 1 ? b->stride[i] * size : (bytes + 15) / 16 * 16;
        if (bytes % 16 != 0 || bytes <= 0 || bytes >= (int64_t)1 << 40)
            return false;
        strides[i - 1] = (uint64_t)bytes;
    }
    return true;
}

/* The driver's name of a type; 8 bits of any kind are bytes to it. */
static int type_of(int64_t dtype) {
    if (bolide__dtype_bytes(dtype) == 1)
        return TYPE_U8;
    return dtype == BOLIDE_BF16 ? TYPE_BF16 : TYPE_F16;
}

/* With the context current, which the driver wants. */
static CUresult encode(const bolide__driver *driver, const bolide__tensor_box *b,
                       bolide__tensor_map *map) {
    uint64_t dims[MAX_RANK], strides[MAX_RANK];
    uint32_t box[MAX_RANK], steps[MAX_RANK];
    if ((uintptr_t)b->data % 16 != 0 || !fill_strides(b, strides))
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < b->rank; i++) {
        if (b->shape[i] < 1 || b->shape[i] > UINT32_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        dims[i] = (uint64_t)b->shape[i];
        box[i] = (uint32_t)b->box[i];
        steps[i] = 1;
    }
    return driver ? driver->cuTensorMapEncodeTiled(map, type_of(b->dtype), (uint32_t)b->rank,
                                                   (void *)(uintptr_t)b->data, dims, strides, box,
                                                   steps, 0, SWIZZLE_128,
                                                   b->lines ? PROMOTE_128 : PROMOTE_256, 0)
                  : CUDA_SUCCESS;
}

bolide_status bolide__cuda_tensor_maps(const bolide__call *call, int count,
                                       const bolide__tensor_box *boxes,
                                       bolide__tensor_map *const *maps, bool *encoded) {
    const struct bolide__cuda_device *device = call->ctx->cuda;
    const bolide__driver *driver = device->driver;
    *encoded = !driver || driver->cuTensorMapEncodeTiled;
    bolide__scope scope;
    if (driver)
        BOLIDE_TRY(bolide__scope_enter(call->entry_name, device, &scope));
    for (int i = 0; i < count && *encoded; i++) {
        const CUresult r = encode(driver, &boxes[i], maps[i]);
        *encoded = r == CUDA_SUCCESS;
        if (!*encoded && bolide__log_on(BOLIDE__LOG_DISPATCH))
            bolide__log(BOLIDE__LOG_DISPATCH, "%s: tensor %d has no map for the copy engine (%d)",
                        call->entry_name, i, r);
    }
    if (driver)
        bolide__scope_leave(&scope);
    return BOLIDE_OK;
}
