// SPDX-License-Identifier: Apache-2.0
//
// Counts allocations: the linker sends every call of malloc and its relatives in the program,
// the library's among them, through the functions below (--wrap). Calls inside shared libraries,
// such as the OpenMP runtime, are not ours and are not counted.

#include "alloc_count.h"

#include <stdatomic.h>
#include <stdlib.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);

static atomic_llong calls;

int64_t alloc_count(void) {
    return atomic_load(&calls);
}

void *__wrap_malloc(size_t bytes) {
    atomic_fetch_add(&calls, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    atomic_fetch_add(&calls, 1);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    atomic_fetch_add(&calls, 1);
    return __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    atomic_fetch_add(&calls, 1);
    return __real_aligned_alloc(alignment, bytes);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    atomic_fetch_add(&calls, 1);
    return __real_posix_memalign(memory, alignment, bytes);
}
