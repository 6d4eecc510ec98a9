// SPDX-License-Identifier: Apache-2.0
//
// Opens libcuda and fills the table of its functions. Opening happens under a mutex once per
// process; afterwards the table is read without a lock.

#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"

enum { WHY_BYTES = 512, OLDEST_VERSION = 12000 };

/* The loader's own search first; then the folders of WSL and NixOS, which are often not in it. */
static const char *const places[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
                                     "/run/opengl-driver/lib/libcuda.so.1"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int state; /* 0 not tried, 1 open, 2 failed */
static bolide__driver driver;
static char failure[WHY_BYTES];
static const char *override;

void bolide__driver_override(const char *path) {
    override = path;
}

static void *open_library(void) {
    if (override) {
        void *library = dlopen(override, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            snprintf(failure, sizeof failure, "the CUDA driver is missing: %s", dlerror());
        return library;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        void *library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    snprintf(failure, sizeof failure,
             "the CUDA driver is missing: looked for libcuda.so.1 in the loader's path, "
             "/usr/lib/wsl/lib and /run/opengl-driver/lib");
    return NULL;
}

static int fill_table(void *library) {
    static const struct {
        const char *name;
        size_t offset;
        int required;
    } symbols[] = {
#define BOLIDE__DRIVER_SYMBOL(required, name, params)                                              \
    {#name, offsetof(bolide__driver, name), required},
        BOLIDE__DRIVER_LIST(BOLIDE__DRIVER_SYMBOL)
#undef BOLIDE__DRIVER_SYMBOL
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address && symbols[i].required) {
            snprintf(failure, sizeof failure,
                     "the CUDA driver is too old: it lacks %s; a driver for CUDA 12.0 or newer is "
                     "needed",
                     symbols[i].name);
            return 0;
        }
        memcpy((char *)&driver + symbols[i].offset, &address, sizeof address);
    }
    return 1;
}

static int initialise(void) {
    char text[WHY_BYTES / 2];
    CUresult r = driver.cuInit(0);
    if (r != CUDA_SUCCESS) {
        snprintf(failure, sizeof failure, "the CUDA driver does not start: cuInit: %s",
                 bolide__driver_text(&driver, r, text, sizeof text));
        return 0;
    }
    r = driver.cuDriverGetVersion(&driver.version);
    if (r != CUDA_SUCCESS) {
        snprintf(failure, sizeof failure, "cuDriverGetVersion: %s",
                 bolide__driver_text(&driver, r, text, sizeof text));
        return 0;
    }
    if (driver.version < OLDEST_VERSION) {
        snprintf(failure, sizeof failure,
                 "the CUDA driver is too old: it supports CUDA %d.%d; 12.0 or newer is needed",
                 driver.version / 1000, driver.version % 1000 / 10);
        return 0;
    }
    return 1;
}

const bolide__driver *bolide__driver_try(const char **why) {
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == 0) {
        pthread_mutex_lock(&lock);
        now = atomic_load_explicit(&state, memory_order_relaxed);
        if (now == 0) {
            /* The handle is kept for the life of the process: the driver cannot be unloaded. */
            void *library = open_library();
            now = library && fill_table(library) && initialise() ? 1 : 2;
            atomic_store_explicit(&state, now, memory_order_release);
        }
        pthread_mutex_unlock(&lock);
    }
    if (now == 1)
        return &driver;
    if (why)
        *why = failure;
    return NULL;
}

bolide_status bolide__driver_open(const char *entry, const bolide__driver **out) {
    const char *why = NULL;
    *out = bolide__driver_try(&why);
    return *out ? BOLIDE_OK : bolide__fail(BOLIDE_NO_DEVICE, entry, "%s", why);
}

const char *bolide__driver_text(const bolide__driver *d, CUresult result, char *text,
                                size_t bytes) {
    const char *name = NULL;
    const char *words = NULL;
    if (d->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    if (d->cuGetErrorString(result, &words) != CUDA_SUCCESS || !words)
        words = "the driver gives no text";
    snprintf(text, bytes, "%s (%s, %d)", words, name, result);
    return text;
}

bolide_status bolide__driver_status(CUresult result) {
    switch (result) {
    case CUDA_SUCCESS:
        return BOLIDE_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return BOLIDE_OUT_OF_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
        return BOLIDE_NO_DEVICE;
    default:
        return BOLIDE_DEVICE_FAULT;
    }
}

bolide_status bolide__driver_fail(const bolide__driver *d, const char *entry, const char *what,
                                  CUresult result) {
    char text[WHY_BYTES / 2];
    return bolide__fail(bolide__driver_status(result), entry, "%s: %s", what,
                        bolide__driver_text(d, result, text, sizeof text));
}
