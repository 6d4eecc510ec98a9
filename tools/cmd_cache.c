// SPDX-License-Identifier: Apache-2.0
//
// `bolide cache list|verify|clear`: the folder of compiled kernels.

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "cuda/cache.h"

typedef struct totals {
    int64_t bytes, torn, left_over;
} totals;

static void add(totals *t, const bolide__cache_file *file) {
    t->bytes += file->bytes;
    t->torn += !file->sound && !file->left_over;
    t->left_over += file->left_over;
}

static void list(void *user, const bolide__cache_file *file) {
    add(user, file);
    printf("%-10s %8lld  %s%s\n", file->target, (long long)file->bytes, file->name,
           file->left_over ? "  (left by a process that died)"
           : file->sound   ? ""
                           : "  (torn or foreign)");
}

static void verify(void *user, const bolide__cache_file *file) {
    add(user, file);
    if (!file->sound)
        printf("%s: %s\n", file->path,
               file->left_over ? "left by a process that died" : "torn or foreign");
}

int command_cache(int argc, char **argv) {
    command c;
    if (command_read(&c, "cache", 0, argc, argv))
        return 2;
    const char *what = c.word_count == 1 ? c.word[0] : "";
    const char *dir = bolide__cache_dir();
    if (!dir) {
        (void)fprintf(stderr, "bolide cache: there is none: set BOLIDE_CACHE_DIR or HOME\n");
        return 1;
    }
    if (!strcmp(what, "list") || !strcmp(what, "verify")) {
        totals t = {0};
        const int64_t files = bolide__cache_walk(dir, what[0] == 'l' ? list : verify, &t);
        printf("%s: %lld files, %lld KiB, %lld torn or foreign, %lld left over\n", dir,
               (long long)files, (long long)(t.bytes >> 10), (long long)t.torn,
               (long long)t.left_over);
        return what[0] == 'v' && t.torn > 0;
    }
    if (!strcmp(what, "clear")) {
        int64_t removed = 0;
        const int64_t failed = bolide__cache_clear(dir, &removed);
        printf("%s: %lld files removed\n", dir, (long long)removed);
        if (failed)
            (void)fprintf(stderr, "bolide cache: %lld files could not be removed\n",
                          (long long)failed);
        return failed > 0;
    }
    (void)fprintf(stderr, "bolide cache: expected list, verify or clear\n");
    return 2;
}
