// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes the cache's files. See the header for the layout of the folder.
//
//     offset  bytes  trailer, little endian as every GPU host is
//          0      8  "BOLIDE\1\n"
//          8      8  bytes of code before the trailer
//         16     16  hash of the key
//         32     16  checksum of the code and of the rest of the trailer
//         48     20  resources
//         68      8  compiler's major and minor
//         76     20  zeros

#include "cuda/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/env.h"

enum { PATH_BYTES = 1400, MAX_CODE = 1 << 28 };

typedef struct trailer {
    char magic[8];
    uint64_t bytes;
    bolide__hash128 key;
    bolide__hash128 checksum;
    bolide__resources resources;
    int32_t major, minor;
    char zeros[20];
} trailer;

_Static_assert(sizeof(trailer) == 96, "the trailer is part of the file format");

static const char magic[8] = {'B', 'O', 'L', 'I', 'D', 'E', 1, '\n'};

static const char *used_dir;
static atomic_flag warned = ATOMIC_FLAG_INIT;
static _Atomic uint32_t temporary_count;

void bolide__cache_use(const char *dir) {
    used_dir = dir;
}

const char *bolide__cache_dir(void) {
    const bolide__env *env = bolide__environment();
    return used_dir ? used_dir : env->cache_dir ? env->cache_dir : env->home_cache;
}

/* Shown whatever BOLIDE_LOG says: each new process will compile again, and only the user can
 * change that. */
static void warn_once(const char *path, const char *why) {
    if (!atomic_flag_test_and_set(&warned))
        fprintf(stderr,
                "bolide: warning: compiled kernels are kept in memory only: %s: %s; set "
                "BOLIDE_CACHE_DIR to a folder that can be written\n",
                path, why);
}

static bolide__hash128 checksum_of(const char *code, const trailer *t) {
    bolide__hash128 h = bolide__hash_of(code, (size_t)t->bytes);
    bolide__hash_add(&h, &t->key, sizeof t->key);
    bolide__hash_add(&h, &t->resources, sizeof *t - offsetof(trailer, resources));
    return bolide__hash_end(h);
}

/* The whole file in memory, or NULL. */
static char *read_file(const char *path, size_t *bytes) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct stat st;
    char *data = NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= MAX_CODE)
        data = malloc((size_t)st.st_size);
    size_t got = 0;
    while (data && got < (size_t)st.st_size) {
        const ssize_t n = read(fd, data + got, (size_t)st.st_size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            free(data);
            data = NULL;
            break;
        }
        got += (size_t)n;
    }
    close(fd);
    *bytes = got;
    return data;
}

/* Checks a file's trailer; key NULL: any. */
static char *read_sound(const char *path, const bolide__hash128 *key, trailer *t) {
    size_t bytes = 0;
    char *data = read_file(path, &bytes);
    if (!data)
        return NULL;
    int sound = 0;
    if (bytes > sizeof *t) {
        memcpy(t, data + bytes - sizeof *t, sizeof *t);
        const bolide__hash128 want = t->checksum;
        sound = memcmp(t->magic, magic, sizeof magic) == 0 && t->bytes == bytes - sizeof *t &&
                (!key || (t->key.a == key->a && t->key.b == key->b));
        if (sound) {
            const bolide__hash128 got = checksum_of(data, t);
            sound = got.a == want.a && got.b == want.b;
        }
    }
    if (!sound) {
        free(data);
        return NULL;
    }
    return data;
}

static int stem_of(const bolide__cache_key *key, char *stem, size_t bytes) {
    char hash[33];
    bolide__hash_text(key->hash, hash);
    return snprintf(stem, bytes, "%s-%s-", key->function, hash);
}

/* The newest version of the compiler for which the folder holds this hash. */
static int find_any(const char *folder, const char *stem, int32_t *major, int32_t *minor) {
    DIR *dir = opendir(folder);
    if (!dir)
        return 0;
    int found = 0;
    *major = *minor = 0;
    const size_t n = strlen(stem);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        int a = 0, b = 0, end = 0;
        if (strncmp(e->d_name, stem, n) == 0 &&
            sscanf(e->d_name + n, "%d.%d.cubin%n", &a, &b, &end) == 2 && end > 0 &&
            e->d_name[n + (size_t)end] == '\0' && (a > *major || (a == *major && b >= *minor))) {
            *major = a;
            *minor = b;
            found = 1;
        }
    }
    closedir(dir);
    return found;
}

int bolide__cache_read(const char *dir, const bolide__cache_key *key, bolide__binary *out) {
    char folder[PATH_BYTES], path[PATH_BYTES + 256], stem[160];
    if (!dir || snprintf(folder, sizeof folder, "%s/%s", dir, key->target) >= (int)sizeof folder)
        return 0;
    stem_of(key, stem, sizeof stem);
    int32_t major = key->major, minor = key->minor;
    if (!major && !find_any(folder, stem, &major, &minor))
        return 0;
    snprintf(path, sizeof path, "%s/%s%d.%d.cubin", folder, stem, major, minor);
    trailer t;
    char *data = read_sound(path, &key->hash, &t);
    if (!data)
        return 0;
    /* Code is followed by the trailer; PTX ends with its own NUL before it. */
    *out = (bolide__binary){.code = data,
                            .bytes = (size_t)t.bytes,
                            .resources = t.resources,
                            .major = t.major,
                            .minor = t.minor};
    return 1;
}

/* Makes a folder and those above it; an existing one is fine. */
static int make_folders(const char *path) {
    char part[PATH_BYTES];
    const size_t n = strlen(path);
    if (n >= sizeof part)
        return 0;
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        const char kept = part[i];
        part[i] = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST && errno != EISDIR && kept == '\0')
            return 0;
        part[i] = kept;
    }
    return 1;
}

static int write_all(int fd, const void *data, size_t bytes) {
    const char *p = (const char *)data;
    while (bytes > 0) {
        const ssize_t n = write(fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        p += n;
        bytes -= (size_t)n;
    }
    return 1;
}

/* Two pieces into a file that appears whole or not at all. */
static int write_file(const char *folder, const char *name, const void *first, size_t first_bytes,
                      const void *second, size_t second_bytes) {
    char aside[PATH_BYTES + 256], path[PATH_BYTES + 256];
    snprintf(aside, sizeof aside, "%s/.%s.%ld-%u.tmp", folder, name, (long)getpid(),
             atomic_fetch_add(&temporary_count, 1));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return 0;
    int ok =
        write_all(fd, first, first_bytes) && write_all(fd, second, second_bytes) && fsync(fd) == 0;
    int why = errno;
    if (close(fd) != 0 && ok) {
        ok = 0;
        why = errno;
    }
    if (ok && rename(aside, path) != 0) {
        ok = 0;
        why = errno;
    }
    if (!ok)
        unlink(aside);
    errno = why;
    return ok;
}

void bolide__cache_write(const char *dir, const bolide__cache_key *key, const bolide__binary *b,
                         const char *description) {
    if (!dir) {
        warn_once("no folder", "neither BOLIDE_CACHE_DIR, XDG_CACHE_HOME nor HOME is set");
        return;
    }
    char folder[PATH_BYTES], stem[160], name[224];
    if (snprintf(folder, sizeof folder, "%s/%s", dir, key->target) >= (int)sizeof folder) {
        warn_once(dir, "the path is too long");
        return;
    }
    trailer t = {.bytes = b->bytes,
                 .key = key->hash,
                 .resources = b->resources,
                 .major = b->major,
                 .minor = b->minor};
    memcpy(t.magic, magic, sizeof magic);
    t.checksum = checksum_of(b->code, &t);
    stem_of(key, stem, sizeof stem);
    errno = 0;
    int ok = make_folders(folder);
    if (ok) {
        snprintf(name, sizeof name, "%s%d.%d.cubin", stem, b->major, b->minor);
        ok = write_file(folder, name, b->code, b->bytes, &t, sizeof t);
    }
    if (ok) {
        snprintf(name, sizeof name, "%s%d.%d.spec", stem, b->major, b->minor);
        ok = write_file(folder, name, description, strlen(description), NULL, 0);
    }
    if (!ok)
        warn_once(folder, strerror(errno));
}

/* ---- walking ------------------------------------------------------------------------------ */

static int has_end(const char *name, const char *end) {
    const size_t n = strlen(name), e = strlen(end);
    return n > e && strcmp(name + n - e, end) == 0;
}

/* function-<32 hexadecimal digits>-<version> before the ending. */
static int is_ours(const char *name) {
    const char *dash = name;
    for (const char *at = name; (at = strchr(at, '-')) != NULL; at++) {
        if (strspn(at + 1, "0123456789abcdef") == 32 && at[33] == '-')
            dash = at;
    }
    return dash != name;
}

static int is_target(const char *name) {
    bolide__target t;
    return (strncmp(name, "sm_", 3) == 0 || strncmp(name, "compute_", 8) == 0) &&
           bolide__target_parse(name, &t);
}

static int keep_all(const struct dirent *e) {
    return e->d_name[0] != '\0';
}

typedef void (*visitor)(void *arg, const bolide__cache_file *file);

static int64_t walk_folder(const char *folder, const char *target, visitor visit, void *arg) {
    struct dirent **entries = NULL;
    const int n = scandir(folder, &entries, keep_all, alphasort);
    int64_t count = 0;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        const int temporary = name[0] == '.' && has_end(name, ".tmp");
        if ((temporary || has_end(name, ".cubin")) && is_ours(name)) {
            char path[PATH_BYTES + 256], stem[256];
            snprintf(path, sizeof path, "%s/%s", folder, name);
            snprintf(stem, sizeof stem, "%.*s", (int)strlen(name) - (temporary ? 0 : 6), name);
            trailer t;
            struct stat st;
            char *data = temporary ? NULL : read_sound(path, NULL, &t);
            const bolide__cache_file file = {.path = path,
                                             .target = target,
                                             .name = stem,
                                             .bytes = stat(path, &st) == 0 ? st.st_size : 0,
                                             .sound = data != NULL,
                                             .left_over = temporary};
            free(data);
            visit(arg, &file);
            count++;
        }
        free(entries[i]);
    }
    free(entries);
    return count;
}

int64_t bolide__cache_walk(const char *dir, visitor visit, void *arg) {
    struct dirent **entries = NULL;
    const int n = dir ? scandir(dir, &entries, keep_all, alphasort) : 0;
    int64_t count = 0;
    for (int i = 0; i < n; i++) {
        char folder[PATH_BYTES];
        if (is_target(entries[i]->d_name) &&
            snprintf(folder, sizeof folder, "%s/%s", dir, entries[i]->d_name) < (int)sizeof folder)
            count += walk_folder(folder, entries[i]->d_name, visit, arg);
        free(entries[i]);
    }
    free(entries);
    return count;
}

typedef struct clearing {
    int64_t removed, failed;
} clearing;

static void remove_one(void *arg, const bolide__cache_file *file) {
    clearing *c = (clearing *)arg;
    if (unlink(file->path) == 0)
        c->removed++;
    else
        c->failed++;
    if (!file->left_over) {
        char spec[PATH_BYTES + 256];
        snprintf(spec, sizeof spec, "%.*s.spec", (int)strlen(file->path) - 6, file->path);
        if (unlink(spec) != 0 && errno != ENOENT)
            c->failed++;
    }
}

int64_t bolide__cache_clear(const char *dir, int64_t *removed) {
    clearing c = {0};
    bolide__cache_walk(dir, remove_one, &c);
    struct dirent **entries = NULL;
    const int n = dir ? scandir(dir, &entries, keep_all, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        char folder[PATH_BYTES];
        /* A folder that still holds something is somebody else's matter. */
        if (is_target(entries[i]->d_name) &&
            snprintf(folder, sizeof folder, "%s/%s", dir, entries[i]->d_name) < (int)sizeof folder)
            (void)rmdir(folder);
        free(entries[i]);
    }
    free(entries);
    *removed = c.removed;
    return c.failed;
}
