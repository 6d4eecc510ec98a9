// SPDX-License-Identifier: Apache-2.0
//
// Where NVRTC may be: the path in BOLIDE_NVRTC, the loader's path, the toolkit, a Python
// environment's nvidia folder. Every candidate is kept with its verdict, so that `bolide doctor`
// and the error message can say exactly what was looked at.

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/env.h"
#include "core/error.h"
#include "cuda/driver.h"
#include "cuda/nvrtc.h"

enum { PATH_BYTES = 1024 };

static bolide__nvrtc_place seen[BOLIDE__NVRTC_SEEN];
static int seen_count;

const bolide__nvrtc_place *bolide__nvrtc_seen(int index) {
    return index >= 0 && index < seen_count ? &seen[index] : NULL;
}

static int was_seen(const char *path) {
    for (int i = 0; i < seen_count; i++) {
        if (strcmp(seen[i].path, path) == 0)
            return 1;
    }
    return 0;
}

static int try_path(const char *path, int driver_major) {
    if (strlen(path) >= PATH_BYTES || was_seen(path) || seen_count == BOLIDE__NVRTC_SEEN)
        return 0;
    bolide__nvrtc_place *place = &seen[seen_count++];
    snprintf(place->path, sizeof place->path, "%s", path);
    return bolide__nvrtc_load(path, driver_major, place->verdict, sizeof place->verdict);
}

/* Matches of a pattern, version 13 before 12, and of equal ones the last first: newer toolkits sort
 * behind older ones. A pattern without a match is kept as well, so that a user sees that the place
 * was looked at. */
static int try_pattern(const char *pattern, int driver_major) {
    glob_t found;
    int used = 0;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (char version = '3'; version >= '2'; version--) {
            for (size_t i = found.gl_pathc; i-- > 0 && !used;) {
                const char *path = found.gl_pathv[i];
                if (path[strlen(path) - 1] == version)
                    used = try_path(path, driver_major);
            }
        }
        globfree(&found);
    } else if (!was_seen(pattern) && seen_count < BOLIDE__NVRTC_SEEN) {
        bolide__nvrtc_place *place = &seen[seen_count++];
        snprintf(place->path, sizeof place->path, "%s", pattern);
        snprintf(place->verdict, sizeof place->verdict, "not there");
    }
    return used;
}

static int try_below(const char *root, const char *rest, int driver_major) {
    char pattern[PATH_BYTES];
    const int n = snprintf(pattern, sizeof pattern, "%s%s", root, rest);
    return n < (int)sizeof pattern && try_pattern(pattern, driver_major);
}

static int try_toolkits(int driver_major) {
    const char *home = bolide__environment()->cuda_home;
    if (home && (try_below(home, "/lib64/libnvrtc.so.1[23]", driver_major) ||
                 try_below(home, "/targets/*/lib/libnvrtc.so.1[23]", driver_major)))
        return 1;
    return try_pattern("/usr/local/cuda/lib64/libnvrtc.so.1[23]", driver_major) ||
           try_pattern("/usr/local/cuda-1[23]*/lib64/libnvrtc.so.1[23]", driver_major) ||
           try_pattern("/opt/cuda/lib64/libnvrtc.so.1[23]", driver_major);
}

static int try_prefix(const char *prefix, int driver_major) {
    return try_below(prefix, "/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1[23]",
                     driver_major);
}

/* Cuts `levels` names off the end of a path; 0 if there are not that many. */
static int cut(char *path, int levels) {
    for (; levels > 0; levels--) {
        char *slash = strrchr(path, '/');
        if (!slash || slash == path)
            return 0;
        *slash = '\0';
    }
    return 1;
}

static int try_python(int driver_major) {
    const bolide__env *env = bolide__environment();
    if (env->virtual_env && try_prefix(env->virtual_env, driver_major))
        return 1;
    /* libbolide.so inside site-packages/bolide/… has the packages' folder above it. */
    Dl_info self;
    char path[PATH_BYTES];
    if (dladdr((const void *)seen, &self) && self.dli_fname &&
        strlen(self.dli_fname) < sizeof path) {
        strcpy(path, self.dli_fname);
        char *packages = strstr(path, "-packages/");
        if (packages) {
            packages[strlen("-packages")] = '\0';
            if (try_below(path, "/nvidia/*/lib/libnvrtc.so.1[23]", driver_major))
                return 1;
        }
    }
    /* <prefix>/bin/python3 is the running program when Bolide is used from Python. */
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n > 0) {
        path[n] = '\0';
        if (strstr(path, "/bin/python") && cut(path, 2) && try_prefix(path, driver_major))
            return 1;
    }
    return try_prefix("/usr", driver_major) || try_prefix("/usr/local", driver_major) ||
           try_pattern("/usr/local/lib/python3*/dist-packages/nvidia/*/lib/libnvrtc.so.1[23]",
                       driver_major) ||
           try_pattern("/usr/lib/python3/dist-packages/nvidia/*/lib/libnvrtc.so.1[23]",
                       driver_major);
}

int bolide__nvrtc_search(void) {
    const bolide__driver *driver = bolide__driver_try(NULL);
    const int major = driver ? driver->version / 1000 : 0;
    const char *own = bolide__environment()->nvrtc;
    /* A path that the user gives is the only candidate: falling back would hide his mistake. */
    if (own)
        return try_path(own, major);
    return try_path("libnvrtc.so.13", major) || try_path("libnvrtc.so.12", major) ||
           try_path("libnvrtc.so", major) || try_toolkits(major) || try_python(major);
}
