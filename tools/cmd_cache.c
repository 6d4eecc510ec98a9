// SPDX-License-Identifier: Apache-2.0
//
// `bolide cache list|verify|clear`: the compiled kernels on disk.

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "cuda/cache.h"

typedef struct listing {
    int quiet; /* only what is not sound */
    int64_t files, bytes, unsound;
} listing;

static void visit(void *arg, const bolide__cache_file *f) {
    listing *l = arg;
    const char *state = f->left_over ? "left over" : f->sound ? "" : "not sound";
    l->files++;
    l->bytes += f->bytes;
    l->unsound += !f->sound || f->left_over;
    if (!l->quiet || *state)
        printf("%-12s %-64s %9lld  %s\n", f->target, f->name, (long long)f->bytes, state);
}

int command_cache(int argc, char **argv) {
    command c;
    if (command_read(&c, "cache", 0, argc, argv))
        return 2;
    const char *what = c.word_count == 1 ? c.word[0] : "";
    const int clear = !strcmp(what, "clear"), verify = !strcmp(what, "verify");
    if (!clear && !verify && strcmp(what, "list") != 0) {
        (void)fprintf(stderr, "bolide cache: expected list, verify or clear\n");
        return 2;
    }
    const char *dir = bolide__cache_dir();
    if (!dir) {
        printf("no cache on disk: neither BOLIDE_CACHE_DIR nor HOME is set\n");
        return 0;
    }
    if (clear) {
        int64_t removed = 0;
        const int64_t left = bolide__cache_clear(dir, &removed);
        printf("%s: %lld files removed\n", dir, (long long)removed);
        if (left)
            (void)fprintf(stderr, "bolide cache: %lld could not be removed\n", (long long)left);
        return left != 0;
    }
    listing l = {.quiet = verify};
    (void)bolide__cache_walk(dir, visit, &l);
    printf("%s: %lld files, %lld KiB, %lld not sound\n", dir, (long long)l.files,
           (long long)(l.bytes >> 10), (long long)l.unsound);
    return verify && l.unsound;
}
