// SPDX-License-Identifier: Apache-2.0
//
// Bytes as a file of the cache of kernels: a sound file is cut, lengthened and spoilt in places
// that the bytes choose, or replaced by them. Reading it is a miss, unless it is again the very
// file that was written; the walk over the folder agrees.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/cache.h"
#include "fuzz.h"

enum { CODE_BYTES = 300, FILE_BYTES = 4096, PATH_BYTES = 256 };

static const bolide__cache_key key = {
    .target = "sm_90a", .function = "fuzz", .hash = {1, 2}, .major = 13};
static char folder[] = "/tmp/bolide-fuzz-XXXXXX", path[PATH_BYTES];
static uint8_t sound[FILE_BYTES];
static size_t sound_bytes;

static void expect(int condition, const char *what) {
    if (!condition) {
        (void)fprintf(stderr, "fuzz_cache: %s\n", what);
        abort();
    }
}

static void remove_folder(void) {
    int64_t removed;
    (void)bolide__cache_clear(folder, &removed);
    (void)rmdir(folder);
}

static void keep_path(void *arg, const bolide__cache_file *file) {
    *(int *)arg = file->sound;
    (void)snprintf(path, sizeof path, "%s", file->path);
}

/* The file that every input begins from. */
static void write_sound(void) {
    char code[CODE_BYTES];
    int is_sound = 0;
    for (int i = 0; i < CODE_BYTES; i++)
        code[i] = (char)(7 * i);
    expect(mkdtemp(folder) != NULL, "there is no folder");
    (void)atexit(remove_folder);
    const bolide__binary b = {.code = code, .bytes = sizeof code, .major = key.major};
    bolide__cache_write(folder, &key, &b, "");
    (void)bolide__cache_walk(folder, keep_path, &is_sound);
    expect(is_sound, "what was written is not sound");
    FILE *f = fopen(path, "rb");
    expect(f != NULL, "what was written cannot be read");
    sound_bytes = fread(sound, 1, sizeof sound, f);
    (void)fclose(f);
}

/* The first byte says whether the rest are the file, or three each a change of the sound one: the
 * length from here on, or a byte somewhere. */
static size_t make_file(const uint8_t *data, size_t size, uint8_t *file) {
    if (size > 0 && data[0] % 4 == 0) {
        const size_t bytes = size - 1 < FILE_BYTES ? size - 1 : FILE_BYTES;
        memcpy(file, data + 1, bytes);
        return bytes;
    }
    size_t bytes = sound_bytes;
    memset(file, 0, FILE_BYTES);
    memcpy(file, sound, sound_bytes);
    for (size_t i = 1; i + 3 <= size; i += 3) {
        const size_t at = (size_t)data[i] << 8 | data[i + 1];
        if (data[i + 2] == 0)
            bytes = at % FILE_BYTES;
        else
            file[at % FILE_BYTES] ^= data[i + 2];
    }
    return bytes;
}

/* In place: a file system may wait for its disk when a file is emptied and written anew. */
static void write_file(const uint8_t *file, size_t bytes) {
    FILE *f = fopen(path, "r+b");
    expect(f && fwrite(file, 1, bytes, f) == bytes && fflush(f) == 0 &&
               ftruncate(fileno(f), (off_t)bytes) == 0 && fclose(f) == 0,
           "the file is not written");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t file[FILE_BYTES];
    if (sound_bytes == 0)
        write_sound();
    const size_t bytes = make_file(data, size, file);
    const int same = bytes == sound_bytes && memcmp(file, sound, bytes) == 0;
    write_file(file, bytes);
    bolide__binary b = {.code = NULL};
    const int hit = bolide__cache_read(folder, &key, &b);
    expect(hit == same, same ? "the sound file is a miss" : "a spoilt file is a hit");
    expect(!hit || (b.bytes == CODE_BYTES && memcmp(b.code, sound, b.bytes) == 0), "other code");
    free(b.code);
    int is_sound = same;
    (void)bolide__cache_walk(folder, keep_path, &is_sound);
    expect(is_sound == same, "the walk says otherwise");
    return 0;
}
