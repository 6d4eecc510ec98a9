// SPDX-License-Identifier: Apache-2.0
//
// Contexts: settings of a device, and for CUDA the device's state.

#include "core/context.h"

#include <stdlib.h>

#include "core/error.h"

bolide_status bolide_context_create(bolide_device_type type, int32_t index, bolide_context **out) {
    static const char name[] = "context_create";
    if (!out)
        return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, name, "out", "pointer", "not NULL",
                                "NULL");
    *out = NULL;
    if (type != BOLIDE_CPU && type != BOLIDE_CUDA)
        return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, name, "type", "device type",
                                "BOLIDE_CPU or BOLIDE_CUDA", "%d", (int)type);
    if (index < 0 || (type == BOLIDE_CPU && index != 0))
        return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, name, "index", "device index",
                                type == BOLIDE_CPU ? "0" : "0 or more", "%d", (int)index);
    bolide_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return bolide__fail(BOLIDE_OUT_OF_MEMORY, name, "no memory for a context");
    ctx->device = (bolide_device){.type = type, .index = index};
    if (type == BOLIDE_CUDA) {
        const bolide_status s = bolide__cuda_device_open(index, &ctx->cuda);
        if (s != BOLIDE_OK) {
            free(ctx);
            return s;
        }
    }
    *out = ctx;
    return BOLIDE_OK;
}

void bolide_context_destroy(bolide_context *ctx) {
    if (!ctx)
        return;
    if (ctx->cuda)
        bolide__cuda_device_close(ctx->cuda);
    free(ctx);
}

bolide_status bolide_context_set(bolide_context *ctx, bolide_setting setting, int64_t value) {
    static const char name[] = "context_set";
    if (!ctx)
        return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, name, "ctx", "pointer", "not NULL",
                                "NULL");
    switch (setting) {
    case BOLIDE_BATCH_INVARIANT:
        if (value != 0 && value != 1)
            return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, name, "BOLIDE_BATCH_INVARIANT",
                                    "value", "0 or 1", "%lld", (long long)value);
        ctx->batch_invariant = value;
        return BOLIDE_OK;
    case BOLIDE_THREADS:
        if (value < 0 || value > 4096)
            return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, name, "BOLIDE_THREADS", "value",
                                    "0 to 4096", "%lld", (long long)value);
        ctx->threads = value;
        return BOLIDE_OK;
    }
    return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, name, "setting", "value", "a bolide_setting",
                            "%d", (int)setting);
}

int64_t bolide_context_get(const bolide_context *ctx, bolide_setting setting) {
    if (!ctx)
        return 0;
    switch (setting) {
    case BOLIDE_BATCH_INVARIANT:
        return ctx->batch_invariant;
    case BOLIDE_THREADS:
        return ctx->threads;
    }
    return 0;
}
