// SPDX-License-Identifier: Apache-2.0
//
// See the header.

#include "support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/context.h"
#include "cuda/cache.h"
#include "cuda/driver.h"

fake_driver *driver;
fake_nvrtc *compiler;
static int passed, failed, skipped;

void check(int ok, const char *what) {
    if (ok) {
        passed++;
        return;
    }
    failed++;
    printf("FAILED: %s (last error: %s)\n", what, bolide_last_error()->message);
}

void check_message(const char *text, const char *what) {
    check(strstr(bolide_last_error()->message, text) != NULL, what);
}

void skip(const char *why) {
    skipped++;
    printf("skipped: %s\n", why);
}

int finish(void) {
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}

static void *control(const char *path, const char *name) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found && strcmp(name, "fake") == 0) {
        printf("FAILED: %s: %s\n0 passed, 1 failed, 0 skipped\n", path, dlerror());
        exit(1);
    }
    return found;
}

void start(const char *nvrtc) {
    static char path[1024];
    if (strlen(nvrtc) == 2)
        snprintf(path, sizeof path, "%s/fake_nvrtc%s.so", FAKES, nvrtc);
    else
        snprintf(path, sizeof path, "%s", nvrtc);
    setenv("BOLIDE_NVRTC", path, 1);
    compiler = control(path, "fake_compiler");
    driver = control(FAKES "/fake_cuda.so", "fake");
    bolide__driver_override(FAKES "/fake_cuda.so");
}

const char *make_folder(void) {
    static char folders[64][64];
    static int next;
    char *path = folders[next++ % 64];
    snprintf(path, 64, "/tmp/bolide-test-XXXXXX");
    if (!mkdtemp(path)) {
        perror("mkdtemp");
        exit(1);
    }
    return path;
}

void remove_folder(const char *path) {
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char inner[1024];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        if (unlink(inner) != 0)
            remove_folder(inner);
    }
    closedir(dir);
    rmdir(path);
}

const char *fresh_cache(void) {
    const char *dir = make_folder();
    bolide__cache_use(dir);
    return dir;
}

bolide_status call_kind(const bolide_context *ctx, int kind, bolide_stream stream) {
    static const int64_t lengths[KINDS / 3] = {64, 128, 256, 512, 1024, 2048, 4096, 8192};
    static const int64_t dtypes[] = {BOLIDE_BF16, BOLIDE_F16, BOLIDE_F32};
    static _Alignas(16) char memory[3][3 * 8192 * 4];
    int64_t d = lengths[kind % (KINDS / 3)];
    int64_t shape[2] = {3, d};
    const bolide_device device = {BOLIDE_CUDA, ctx->device.index};
    const bolide_dtype dtype = bolide_dtype_of(dtypes[kind / (KINDS / 3)]);
    bolide_tensor x = {memory[0], device, 2, dtype, shape, NULL, 0};
    bolide_tensor w = {memory[1], device, 1, dtype, &d, NULL, 0};
    bolide_tensor y = {memory[2], device, 2, dtype, shape, NULL, 0};
    bolide_rmsnorm_args a;
    bolide_status s = bolide_args_init("rmsnorm", &a, sizeof a);
    if (s != BOLIDE_OK)
        return s;
    a.input = &x;
    a.weight = &w;
    a.out = &y;
    return bolide_rmsnorm(ctx, &a, stream);
}

bolide_context *open_context(int32_t index) {
    bolide_context *ctx = NULL;
    check(bolide_context_create(BOLIDE_CUDA, index, &ctx) == BOLIDE_OK, "a context opens");
    return ctx;
}
