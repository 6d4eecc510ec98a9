// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target without libFuzzer, as a short test: fuzz_NAME SECONDS [seed=N] [FILE...]. The
// files are run first; then, until the time is over, inputs that are random or made of earlier
// ones. The seed is printed, so that a failure can be repeated.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fuzz.h"

enum { MAX_BYTES = 1024, KEPT = 64 };

typedef struct fuzzer {
    uint64_t state;
    uint8_t kept[KEPT][MAX_BYTES]; /* inputs to begin from */
    size_t bytes[KEPT];
    size_t count, files; /* kept in all, and of these the files, which stay */
    long long runs;
} fuzzer;

static uint64_t next(fuzzer *f) {
    f->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = f->state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void keep(fuzzer *f, const uint8_t *data, size_t bytes) {
    if (f->files == KEPT)
        return;
    const size_t slot = f->count < KEPT ? f->count++ : f->files + next(f) % (KEPT - f->files);
    memcpy(f->kept[slot], data, bytes);
    f->bytes[slot] = bytes;
}

/* A byte of any kind, or one that the input has already, so that text stays text. */
static uint8_t pick(fuzzer *f, const uint8_t *data, size_t bytes) {
    return bytes && next(f) % 4 ? data[next(f) % bytes] : (uint8_t)next(f);
}

/* Changes, inserts and removes a few bytes. */
static size_t mutate(fuzzer *f, uint8_t *data, size_t bytes) {
    for (uint64_t k = 0, n = 1 + next(f) % 4; k < n; k++) {
        const size_t at = bytes ? next(f) % bytes : 0;
        switch (next(f) % 3) {
        case 0:
            if (bytes)
                data[at] = pick(f, data, bytes);
            break;
        case 1:
            if (bytes < MAX_BYTES) {
                const uint8_t byte = pick(f, data, bytes);
                memmove(data + at + 1, data + at, bytes - at);
                data[at] = byte;
                bytes++;
            }
            break;
        default:
            if (bytes) {
                memmove(data + at, data + at + 1, bytes - at - 1);
                bytes--;
            }
            break;
        }
    }
    return bytes;
}

static void run_one(fuzzer *f) {
    uint8_t data[MAX_BYTES];
    size_t bytes = next(f) % 200;
    if (f->count && next(f) % 4) {
        /* What grew of the files soon has no sense left, so half begin from a file again. */
        const size_t from = next(f) % (f->files && next(f) % 2 ? f->files : f->count);
        bytes = f->bytes[from];
        memcpy(data, f->kept[from], bytes);
        bytes = mutate(f, data, bytes);
    } else {
        for (size_t i = 0; i < bytes; i++)
            data[i] = (uint8_t)next(f);
    }
    (void)LLVMFuzzerTestOneInput(data, bytes);
    f->runs++;
    if (next(f) % 8 == 0)
        keep(f, data, bytes);
}

static int run_file(fuzzer *f, const char *path) {
    uint8_t data[MAX_BYTES];
    FILE *file = fopen(path, "rb");
    if (!file) {
        (void)fprintf(stderr, "%s cannot be read\n", path);
        return -1;
    }
    const size_t bytes = fread(data, 1, sizeof data, file);
    (void)fclose(file);
    (void)LLVMFuzzerTestOneInput(data, bytes);
    keep(f, data, bytes);
    f->files = f->count;
    f->runs++;
    return 0;
}

int main(int argc, char **argv) {
    static fuzzer f;
    const int seeded = argc > 2 && !strncmp(argv[2], "seed=", 5);
    const double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
    f.state = seeded ? strtoull(argv[2] + 5, NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)f.state);
    (void)fflush(stdout);
    for (int i = 2 + seeded; i < argc; i++)
        if (run_file(&f, argv[i]))
            return 1;
    const clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    while (clock() < end)
        run_one(&f);
    printf("%lld inputs\n1 passed, 0 failed, 0 skipped\n", f.runs);
    return 0;
}
