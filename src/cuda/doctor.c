// SPDX-License-Identifier: Apache-2.0
//
// What `bolide doctor` says about the GPU side: the driver, its devices, each place where the
// compiler was looked for, and the cache.

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/env.h"
#include "cuda/compile.h"
#include "cuda/driver.h"
#include "cuda/nvrtc.h"

enum { LINE_BYTES = 1536 };

typedef struct output {
    void (*line)(void *arg, const char *text);
    void *arg;
} output;

__attribute__((format(printf, 2, 3))) static void say(const output *o, const char *format, ...) {
    char text[LINE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    o->line(o->arg, text);
}

static void say_device(const output *o, const bolide__driver *d, int index) {
    CUdevice device = 0;
    char name[128] = "";
    int major = 0, minor = 0;
    size_t memory = 0;
    if (d->cuDeviceGet(&device, index) != CUDA_SUCCESS ||
        d->cuDeviceGetName(name, (int)sizeof name, device) != CUDA_SUCCESS ||
        d->cuDeviceTotalMem_v2(&memory, device) != CUDA_SUCCESS ||
        d->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
            CUDA_SUCCESS ||
        d->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
            CUDA_SUCCESS) {
        say(o, "device %d: the driver does not tell its numbers", index);
        return;
    }
    bolide__target target;
    char text[BOLIDE__TARGET_TEXT];
    if (bolide__target_of(major * 10 + minor, &target))
        say(o, "device %d: %s, compute capability %d.%d, %zu MiB, kernels for %s", index, name,
            major, minor, memory >> 20, bolide__target_text(target, text));
    else
        say(o, "device %d: %s, compute capability %d.%d: too old, 7.5 is needed", index, name,
            major, minor);
}

static void say_driver(const output *o) {
    const char *why = NULL;
    const bolide__driver *d = bolide__driver_try(&why);
    if (!d) {
        say(o, "driver: %s", why);
        return;
    }
    say(o, "driver: libcuda for CUDA %d.%d", d->version / 1000, d->version % 1000 / 10);
    int count = 0;
    if (d->cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0)
        say(o, "devices: none");
    for (int i = 0; i < count; i++)
        say_device(o, d, i);
}

static void say_compiler(const output *o) {
    const bolide__nvrtc *n = bolide__nvrtc_try();
    if (n)
        say(o, "nvrtc: %d.%d at %s", n->major, n->minor, n->path);
    else
        say(o, "nvrtc: missing; set BOLIDE_NVRTC, or install the Python package "
               "nvidia-cuda-nvrtc");
    for (int i = 0; bolide__nvrtc_seen(i); i++)
        say(o, "  looked at %s: %s", bolide__nvrtc_seen(i)->path, bolide__nvrtc_seen(i)->verdict);
}

static void count_bytes(void *arg, const bolide__cache_file *file) {
    *(int64_t *)arg += file->bytes;
}

static void say_cache(const output *o) {
    const char *dir = bolide__cache_dir();
    if (!dir) {
        say(o, "cache: in memory only; set BOLIDE_CACHE_DIR or HOME");
        return;
    }
    int64_t bytes = 0;
    const int64_t files = bolide__cache_walk(dir, count_bytes, &bytes);
    const char *state = access(dir, F_OK) != 0   ? "made at first use"
                        : access(dir, W_OK) != 0 ? "read only: new kernels stay in memory"
                                                 : "writable";
    say(o, "cache: %s, %s, %lld files, %lld KiB", dir, state, (long long)files,
        (long long)(bytes >> 10));
    if (bolide__environment()->kernel_dir)
        say(o, "kernels: read from %s", bolide__environment()->kernel_dir);
}

void bolide__cuda_doctor(void (*line)(void *arg, const char *text), void *arg) {
    const output o = {.line = line, .arg = arg};
    say_driver(&o);
    say_compiler(&o);
    say_cache(&o);
}
