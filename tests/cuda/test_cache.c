// SPDX-License-Identifier: Apache-2.0
//
// The cache on disk: torn and foreign files, copies, code that does not load, listing, clearing.

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/context.h"
#include "cuda/cache.h"
#include "support.h"

static bolide_stream const stream = (bolide_stream)0x1230;
static char found[1024];
static int64_t sound, unsound, left_over;

static void visit(void *arg, const bolide__cache_file *file) {
    (void)arg;
    sound += file->sound;
    unsound += !file->sound && !file->left_over;
    left_over += file->left_over;
    if (!file->left_over)
        snprintf(found, sizeof found, "%s", file->path);
}

static int64_t walk(const char *dir) {
    sound = unsound = left_over = 0;
    return bolide__cache_walk(dir, visit, NULL);
}

static char *read_all(const char *path, size_t *bytes) {
    FILE *in = fopen(path, "rb");
    char *data = malloc(1 << 16);
    *bytes = in && data ? fread(data, 1, 1 << 16, in) : 0;
    if (in)
        fclose(in);
    return data;
}

static void write_all(const char *path, const char *data, size_t bytes) {
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(data, 1, bytes, out) != bytes || fclose(out) != 0) {
        perror(path);
        exit(1);
    }
}

/* A new process as far as kernels in memory go. */
static int compiled_by_call(int kind) {
    bolide_context *ctx = open_context(0);
    const int before = compiler->compiled;
    check(call_kind(ctx, kind, stream) == BOLIDE_OK, "a call succeeds whatever the cache holds");
    bolide_context_destroy(ctx);
    return compiler->compiled - before;
}

static void test_hit_and_copy(void) {
    const char *dir = fresh_cache();
    check(compiled_by_call(0) == 1 && compiled_by_call(0) == 0, "the second process finds it");
    check(walk(dir) == 1 && sound == 1, "one sound file");
    check(strstr(found, "/sm_90a/rmsnorm-") != NULL && strstr(found, "-13.0.cubin") != NULL,
          "folder and name tell target, function and compiler");
    char spec[1100];
    size_t bytes = 0;
    snprintf(spec, sizeof spec, "%.*s.spec", (int)strlen(found) - 6, found);
    char *text = read_all(spec, &bytes);
    text[bytes < 65535 ? bytes : 65535] = '\0';
    check(strstr(text, "source ops/norm/rmsnorm.cu") && strstr(text, "INPUT = 8") &&
              strstr(text, "compiled by nvrtc 13.0"),
          "the description can be read");
    free(text);

    /* Another machine: another folder, other times. */
    char *code = read_all(found, &bytes);
    char name[256], path[1300];
    snprintf(name, sizeof name, "%s", strrchr(found, '/') + 1);
    const char *copy = fresh_cache();
    check(compiled_by_call(0) == 1, "an empty folder");
    walk(copy);
    check(strcmp(strrchr(found, '/') + 1, name) == 0, "names do not depend on the folder");
    unlink(found);
    snprintf(path, sizeof path, "%s/sm_90a/%s", copy, name);
    write_all(path, code, bytes);
    check(compiled_by_call(0) == 0, "a copied file hits");
    free(code);
    remove_folder(dir);
    remove_folder(copy);
}

static void test_torn(void) {
    const char *dir = fresh_cache();
    compiled_by_call(0);
    walk(dir);
    char path[1024];
    snprintf(path, sizeof path, "%s", found);
    size_t bytes = 0;
    char *good = read_all(path, &bytes);
    char *bad = malloc(bytes + 10);
    for (size_t cut = 0; cut < bytes; cut += cut < bytes - 100 ? 37 : 7) {
        write_all(path, good, cut);
        check(compiled_by_call(0) == 1, "a torn file is compiled again");
    }
    for (size_t at = 0; at < bytes; at += at < bytes - 100 ? 23 : 1) {
        memcpy(bad, good, bytes);
        bad[at] = (char)(bad[at] ^ (1 << (at % 8)));
        write_all(path, bad, bytes);
        check(compiled_by_call(0) == 1, "a changed byte is found");
    }
    memcpy(bad, good, bytes);
    memset(bad + bytes, 0, 10);
    write_all(path, bad, bytes + 10);
    check(compiled_by_call(0) == 1, "a file with more behind it");
    check(compiled_by_call(0) == 0 && walk(dir) == 1 && sound == 1, "each time it is made good");
    free(bad);

    /* The sound file of another kernel under this name. */
    compiled_by_call(1);
    check(walk(dir) == 2 && sound == 2, "two kernels");
    char other[1024];
    snprintf(other, sizeof other, "%s", found);
    const int same = strcmp(other, path) == 0;
    if (!same)
        write_all(other, good, bytes);
    check(compiled_by_call(same ? 0 : 1) == (same ? 0 : 1), "a foreign file is a miss");
    free(good);

    /* A folder or a link to nowhere in the file's place. */
    unlink(path);
    mkdir(path, 0755);
    check(compiled_by_call(0) == 1, "a folder in the file's place");
    rmdir(path);
    check(symlink("/nowhere/at/all", path) == 0 && compiled_by_call(0) == 1, "a dangling link");
    remove_folder(dir);
}

static void test_unloadable(void) {
    const char *dir = fresh_cache();
    compiled_by_call(0);
    driver->refuse_images = 1;
    check(compiled_by_call(0) == 1, "code from disk that does not load is compiled again");
    driver->refuse_images = 2;
    bolide_context *ctx = open_context(0);
    check(call_kind(ctx, 0, stream) == BOLIDE_DEVICE_FAULT, "new code that does not load");
    check_message("loading the compiled kernel", "the message says where");
    driver->refuse_images = 0;
    check(call_kind(ctx, 0, stream) == BOLIDE_OK, "and the next time");
    bolide_context_destroy(ctx);
    remove_folder(dir);
}

static void test_failed_compile(void) {
    const char *dir = fresh_cache();
    bolide_context *ctx = open_context(0);
    compiler->fail = 1;
    check(call_kind(ctx, 0, stream) == BOLIDE_COMPILE_FAILED, "a failing compilation");
    compiler->fail = 0;
    check(walk(dir) == 0, "leaves nothing in the cache");
    check(call_kind(ctx, 0, stream) == BOLIDE_OK && walk(dir) == 1, "the next one does");
    bolide_context_destroy(ctx);
    remove_folder(dir);
}

static void test_walk_and_clear(void) {
    const char *dir = fresh_cache();
    for (int kind = 0; kind < 5; kind++)
        compiled_by_call(kind);
    bolide_context *ctx = open_context(1);
    check(call_kind(ctx, 0, stream) == BOLIDE_OK, "another target");
    bolide_context_destroy(ctx);
    check(walk(dir) == 6 && sound == 6, "six files in two folders");
    write_all(found, "torn", 4);
    char path[1200];
    snprintf(path, sizeof path, "%s/sm_90a/.rmsnorm-%032d-13.0.cubin.1-1.tmp", dir, 7);
    write_all(path, "half", 4);
    snprintf(path, sizeof path, "%s/sm_90a/notes.txt", dir);
    write_all(path, "mine", 4);
    snprintf(path, sizeof path, "%s/photos", dir);
    mkdir(path, 0755);
    check(walk(dir) == 7 && sound == 5 && unsound == 1 && left_over == 1,
          "a torn one and one that a dead process left");
    int64_t removed = 0;
    check(bolide__cache_clear(dir, &removed) == 0 && removed == 7, "all of ours go");
    struct stat st;
    snprintf(path, sizeof path, "%s/sm_90a/notes.txt", dir);
    check(stat(path, &st) == 0, "what is not ours stays");
    snprintf(path, sizeof path, "%s/photos", dir);
    check(stat(path, &st) == 0, "and folders, too");
    snprintf(path, sizeof path, "%s/sm_80", dir);
    check(stat(path, &st) != 0, "an empty folder of ours goes");
    check(walk(dir) == 0 && bolide__cache_walk("/nowhere/at/all", visit, NULL) == 0, "none left");
    remove_folder(dir);
}

int main(void) {
    start("13");
    test_hit_and_copy();
    test_torn();
    test_unloadable();
    test_failed_compile();
    test_walk_and_clear();
    return finish();
}
