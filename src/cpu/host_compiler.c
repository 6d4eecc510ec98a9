// SPDX-License-Identifier: Apache-2.0
//
// See the header. Text, library and log lie in a folder of their own below /tmp, which is gone when
// the library is loaded. The compiler is started without a shell. Contraction is off, as in the
// rest of the CPU code, so that the bits do not depend on the compiler's choice.

#include "cpu/host_compiler.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/env.h"
#include "core/error.h"

enum { PATH_BYTES = 64, LOG_BYTES = 2048 };

typedef struct entry {
    const char *text; /* interned */
    void *library;
    struct entry *next;
} entry;

typedef struct folder {
    char path[PATH_BYTES], source[PATH_BYTES], library[PATH_BYTES], log[PATH_BYTES];
} folder;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *entries;

static int make_folder(folder *f) {
    strcpy(f->path, "/tmp/bolide-XXXXXX");
    if (!mkdtemp(f->path))
        return 0;
    snprintf(f->source, PATH_BYTES, "%s/variant.c", f->path);
    snprintf(f->library, PATH_BYTES, "%s/variant.so", f->path);
    snprintf(f->log, PATH_BYTES, "%s/log", f->path);
    return 1;
}

static void remove_folder(const folder *f) {
    (void)unlink(f->source);
    (void)unlink(f->library);
    (void)unlink(f->log);
    (void)rmdir(f->path);
}

static int write_text(const char *path, const char *text) {
    FILE *out = fopen(path, "w");
    if (!out)
        return 0;
    const int bad = fputs(text, out) < 0;
    return !(fclose(out) || bad);
}

static void read_log(const char *path, char log[LOG_BYTES]) {
    FILE *in = fopen(path, "r");
    const size_t n = in ? fread(log, 1, LOG_BYTES - 1, in) : 0;
    log[n] = '\0';
    if (in)
        (void)fclose(in);
}

/* The exit status, or -1 with errno where the compiler could not be started. */
static int spawn(const folder *f) {
    char *const arguments[] = {"cc",
                               "-std=c11",
                               "-O2",
                               "-fPIC",
                               "-shared",
                               "-w",
                               "-ffp-contract=off",
                               "-fno-math-errno",
                               "-o",
                               (char *)f->library,
                               (char *)f->source,
                               "-lm",
                               NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = 0;
    if (posix_spawn_file_actions_init(&actions))
        return -1;
    int bad = ENOMEM;
    if (!posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) &&
        !posix_spawn_file_actions_addopen(&actions, 1, f->log, O_WRONLY | O_CREAT, 0600) &&
        !posix_spawn_file_actions_adddup2(&actions, 1, 2))
        bad = posix_spawnp(&child, "cc", &actions, NULL, arguments, bolide__process_environment());
    (void)posix_spawn_file_actions_destroy(&actions);
    if (bad) {
        errno = bad;
        return -1;
    }
    while (waitpid(child, &status, 0) < 0) {
        /* A process that ignores its children has no status; the library's file tells. */
        if (errno != EINTR)
            return access(f->library, R_OK) != 0;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static bolide_status load(const char *name, const folder *f, void **library) {
    *library = dlopen(f->library, RTLD_NOW | RTLD_LOCAL);
    if (*library)
        return BOLIDE_OK;
    return bolide__fail_arg(BOLIDE_UNSUPPORTED, name, "variant", "library",
                            "a compiler `cc` whose code this process can load", "%s", dlerror());
}

static bolide_status compile(const char *name, const char *text, void **library) {
    folder f;
    char log[LOG_BYTES];
    if (!make_folder(&f))
        return bolide__fail_arg(BOLIDE_UNSUPPORTED, name, "variant", "folder",
                                "one below /tmp that can be written", "%s", strerror(errno));
    const int failed = write_text(f.source, text) ? spawn(&f) : -1;
    bolide_status status = BOLIDE_OK;
    if (failed < 0) {
        status = bolide__fail_arg(BOLIDE_UNSUPPORTED, name, "variant", "compiler",
                                  "a C compiler `cc` in PATH, which variants need on the CPU", "%s",
                                  strerror(errno));
    } else if (failed) {
        read_log(f.log, log);
        const char *first = strstr(log, "error");
        const int length = first ? (int)strcspn(first, "\n") : 0;
        status = bolide__fail(BOLIDE_COMPILE_FAILED, name, "variant: it does not compile: %.*s\n%s",
                              length, first ? first : "", log);
    } else {
        status = load(name, &f, library);
    }
    remove_folder(&f);
    return status;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bolide_status add(const char *name, const char *text, void **library) {
    const double begin = now();
    BOLIDE_TRY(compile(name, text, library));
    if (bolide__log_on(BOLIDE__LOG_COMPILE))
        bolide__log(BOLIDE__LOG_COMPILE, "%s: a variant for the CPU: cc, %.0f ms", name,
                    1e3 * (now() - begin));
    entry *e = malloc(sizeof *e);
    if (!e) {
        (void)dlclose(*library);
        return bolide__fail(BOLIDE_OUT_OF_MEMORY, name, "no memory for a variant");
    }
    *e = (entry){.text = text, .library = *library, .next = entries};
    entries = e;
    return BOLIDE_OK;
}

bolide_status bolide__host_library(const char *name, const char *text, void **library) {
    bolide_status status = BOLIDE_OK;
    pthread_mutex_lock(&lock);
    const entry *e = entries;
    while (e && e->text != text)
        e = e->next;
    if (e)
        *library = e->library;
    else
        status = add(name, text, library);
    pthread_mutex_unlock(&lock);
    return status;
}
