// SPDX-License-Identifier: Apache-2.0
//
// Controls of the two stand-ins for NVIDIA's libraries that tests load: a driver that runs on host
// memory and records launches, and a compiler whose code is a note of what it was asked for.

#ifndef BOLIDE_TESTS_CUDA_FAKE_H
#define BOLIDE_TESTS_CUDA_FAKE_H

#include <stdatomic.h>
#include <stdint.h>

enum { FAKE_DEVICES = 4, FAKE_PARAMS = 4096 };

typedef struct fake_driver {
    int version; /* of CUDA: 13000 */
    int devices; /* how many */
    int arch[FAKE_DEVICES];
    int capturing; /* what cuStreamIsCapturing says */
    int fail_at;   /* this call from now on fails, 1: the next; 0: none */
    int fail_code;
    const char *fail_name; /* every call of this name fails; NULL: none */
    int refuse_images;     /* cuModuleLoadData refuses the next so many */
    int late_copies;       /* copies to the host do not arrive */

    _Atomic int calls;
    _Atomic int launches;
    _Atomic int retained; /* primary contexts, less those released */
    _Atomic int modules;  /* loaded, less those unloaded */
    _Atomic int depth;    /* contexts pushed, less those popped */
    _Atomic int broken;   /* calls that would have invalidated a capture */
    _Atomic int waits;
    _Atomic int held; /* memory, streams and graphs, less those given back */
    _Atomic int graph_launches;
    uint32_t used_devices; /* a bit for each whose context was retained at any time */

    unsigned grid[3], block, shared, cluster;
    int dependent;
    void *stream;
    void *context; /* current at the last launch */
    char params[FAKE_PARAMS];
    int params_bytes; /* what cuFuncGetParamInfo tells */
    char function[128];
} fake_driver;

typedef struct fake_nvrtc {
    _Atomic int compiled;
    int fail;         /* 1: source errors */
    int milliseconds; /* how long a compilation takes */
    int shared_bytes; /* static shared memory in the assembler's lines */
} fake_nvrtc;

#endif
