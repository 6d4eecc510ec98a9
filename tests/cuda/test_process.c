// SPDX-License-Identifier: Apache-2.0
//
// What one process cannot test: other environments, many processes on one cold cache, warnings on
// standard error. The program runs itself with a word that says what to do.

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/context.h"
#include "cuda/cache.h"
#include "cuda/compile.h"
#include "support.h"

static bolide_stream const stream = (bolide_stream)0x1230;
static char program[1024];
/* Runs programs of another processor; "" where the kernel runs them. */
static char emulator[] = EMULATOR;

/* ---- children ------------------------------------------------------------------------------- */

/* Prints how many of the kernels 0 … count-1 were compiled, and what failed. */
static int child_calls(int count, const char *nvrtc) {
    start(nvrtc);
    if (compiler)
        compiler->milliseconds = 2;
    bolide_context *ctx = NULL;
    if (bolide_context_create(BOLIDE_CUDA, 0, &ctx) != BOLIDE_OK)
        return printf("open: %s\n", bolide_last_error()->message);
    for (int kind = 0; kind < count; kind++) {
        if (call_kind(ctx, kind, stream) != BOLIDE_OK)
            printf("call: %s\n", bolide_last_error()->message);
    }
    bolide_context_destroy(ctx);
    printf("compiled %d\n", compiler ? compiler->compiled : 0);
    return 0;
}

/* Whether a kernel behind another call's, and one behind its own call's, may begin early. */
static int child_overlap(void) {
    start("13");
    bolide_context *ctx = NULL;
    if (bolide_context_create(BOLIDE_CUDA, 0, &ctx) != BOLIDE_OK)
        return printf("open: %s\n", bolide_last_error()->message);
    const bolide__call call = {
        .op = bolide_op_find("rmsnorm"), .ctx = ctx, .stream = stream, .entry_name = "toy"};
    const bolide__spec s = BOLIDE_SPEC("norm/rmsnorm.cu", "bolide_rmsnorm");
    const int32_t params[2] = {0};
    driver->params_bytes = sizeof params;
    fputs("overlaps ", stdout);
    for (int32_t behind = 1; behind <= BOLIDE__BEHIND_OWN; behind++) {
        const bolide__grid g = {.x = 1, .block = 32, .dependent = behind};
        if (bolide__cuda_launch(&call, &s, &g, params, sizeof params) != BOLIDE_OK)
            printf("call: %s\n", bolide_last_error()->message);
        printf("%d", driver->dependent);
    }
    bolide_context_destroy(ctx);
    putchar('\n');
    return 0;
}

static void print_line(void *arg, const char *text) {
    (void)arg;
    puts(text);
}

static int child_doctor(int version) {
    start("13");
    driver->version = version;
    unsetenv("BOLIDE_NVRTC");
    bolide__cuda_doctor(print_line, NULL);
    return 0;
}

static int child_no_driver(void) {
    bolide_context *ctx = NULL;
    const bolide_status s = bolide_context_create(BOLIDE_CUDA, 0, &ctx);
    printf("%s: %s\n", bolide_status_name(s), bolide_last_error()->message);
    bolide_context_destroy(ctx);
    return 0;
}

static int run_child(int argc, char **argv) {
    const char *what = argv[1];
    if (strcmp(what, "calls") == 0 && argc == 4)
        return child_calls(atoi(argv[2]), argv[3]);
    if (strcmp(what, "full") == 0) {
        /* Writes fail as on a full disk. */
        const struct rlimit none = {0, 0};
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &none) != 0)
            return 1;
        return child_calls(4, "13");
    }
    if (strcmp(what, "overlap") == 0)
        return child_overlap();
    if (strcmp(what, "doctor") == 0 && argc == 3)
        return child_doctor(atoi(argv[2]));
    if (strcmp(what, "old-driver") == 0) {
        start("13");
        driver->version = 11080;
        return child_no_driver();
    }
    if (strcmp(what, "no-init") == 0) {
        start("13");
        driver->fail_name = "cuInit";
        driver->fail_code = 100;
        return child_no_driver();
    }
    return 1;
}

/* ---- parent --------------------------------------------------------------------------------- */

/* Runs this program with words; output and errors together. Pipes hold 64 KiB, which is enough. */
static FILE *begin(const char *const *words) {
    int ends[2];
    if (pipe(ends) != 0)
        return NULL;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        char *argv[9] = {emulator, program};
        for (int i = 0; words[i] && i < 6; i++)
            argv[i + 2] = strdup(words[i]);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execvp(emulator[0] ? emulator : program, emulator[0] ? argv : argv + 1);
        _exit(127);
    }
    close(ends[1]);
    return fdopen(ends[0], "r");
}

static const char *end(FILE *pipe) {
    static char text[1 << 16];
    size_t n = pipe ? fread(text, 1, sizeof text - 1, pipe) : 0;
    text[n] = '\0';
    if (pipe)
        fclose(pipe);
    wait(NULL);
    return text;
}

static const char *run(const char *a, const char *b, const char *c) {
    const char *const words[] = {a, b, c, NULL};
    return end(begin(words));
}

static int count_of(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)) != NULL; text++)
        n++;
    return n;
}

static void check_has(const char *text, const char *word, const char *what) {
    const int ok = strstr(text, word) != NULL;
    check(ok, what);
    if (!ok)
        printf("    wanted \"%s\" in:\n%s\n", word, text);
}

static int64_t torn;

static void note_unsound(void *arg, const bolide__cache_file *file) {
    (void)arg;
    torn += !file->sound;
}

static void test_many_processes(void) {
    enum { PROCESSES = 8 };
    const char *dir = make_folder();
    char inner[256];
    snprintf(inner, sizeof inner, "%s/not/yet/there", dir);
    setenv("BOLIDE_CACHE_DIR", inner, 1);
    FILE *pipes[PROCESSES];
    static const char *const words[] = {"calls", "6", "13", NULL};
    for (int i = 0; i < PROCESSES; i++)
        pipes[i] = begin(words);
    for (int i = 0; i < PROCESSES; i++) {
        const char *text = end(pipes[i]);
        check(strstr(text, "compiled ") != NULL && !strstr(text, "call:") &&
                  !strstr(text, "warning"),
              "each of many processes on a cold cache succeeds");
    }
    torn = 0;
    check(bolide__cache_walk(inner, note_unsound, NULL) == 6 && torn == 0,
          "six sound files, nothing left over");
    check_has(run("calls", "6", "13"), "compiled 0", "the next process compiles nothing");
    setenv("BOLIDE_LOG", "error,call,dispatch,compile,time", 1);
    check_has(run("calls", "6", "13"), "compiled 0", "a log changes nothing of what is compiled");
    unsetenv("BOLIDE_LOG");
    char other[300];
    snprintf(other, sizeof other, "%s/libnvrtc.so.13", dir);
    check(symlink(FAKES "/fake_nvrtc13.so", other) == 0, "link");
    check_has(run("calls", "6", other), "compiled 0", "the same compiler by another path hits");
    check_has(run("calls", "6", "12"), "compiled 6", "another version of the compiler does");
    check_has(run("calls", "6", "/nowhere/libnvrtc.so"), "compiled 0",
              "without a compiler what is there is used");
    const char *text = run("calls", "7", "/nowhere/libnvrtc.so");
    check(count_of(text, "call:") == 1, "what is not there is refused");
    check_has(text, "NVRTC 12 or 13 is missing; set BOLIDE_NVRTC", "the message says what to do");
    check_has(text, "/nowhere/libnvrtc.so: not loaded", "and what was looked at");
    setenv("BOLIDE_KERNEL_DIR", ".", 1);
    check_has(run("calls", "6", "13"), "compiled 6", "sources from a checkout have their comments");
    check_has(run("calls", "6", "13"), "compiled 0", "and hit the next time");
    setenv("BOLIDE_KERNEL_DIR", "/nowhere", 1);
    check_has(run("calls", "1", "13"), "below BOLIDE_KERNEL_DIR, which is /nowhere",
              "a folder without sources is told");
    unsetenv("BOLIDE_KERNEL_DIR");
    remove_folder(dir);
}

static void test_no_folder(void) {
    const char *dir = make_folder();
    char path[256];
    snprintf(path, sizeof path, "%s/file", dir);
    FILE *f = fopen(path, "w");
    if (f)
        fclose(f);
    snprintf(path, sizeof path, "%s/file/cache", dir);
    setenv("BOLIDE_CACHE_DIR", path, 1);
    const char *text = run("calls", "4", "13");
    check_has(text, "compiled 4", "a folder that cannot be made: kernels stay in memory");
    check(count_of(text, "warning") == 1 && !strstr(text, "call:"), "with one warning");
    check_has(text, "set BOLIDE_CACHE_DIR", "that says what to do");

    snprintf(path, sizeof path, "%s/cache", dir);
    setenv("BOLIDE_CACHE_DIR", path, 1);
    text = run("full", NULL, NULL);
    check_has(text, "compiled 4", "a full disk: kernels stay in memory");
    check(count_of(text, "warning") == 1 && !strstr(text, "call:"), "with one warning");
    torn = 0;
    check(bolide__cache_walk(path, note_unsound, NULL) == 0, "and nothing half written");

    static char far[1200];
    memset(far, 'x', sizeof far - 1);
    setenv("BOLIDE_CACHE_DIR", far, 1);
    check(count_of(run("calls", "1", "13"), "BOLIDE_CACHE_DIR: expected fewer than 1024 bytes") ==
              1,
          "a value that is too long is told once");

    unsetenv("BOLIDE_CACHE_DIR");
    setenv("HOME", dir, 1);
    unsetenv("XDG_CACHE_HOME");
    check_has(run("calls", "1", "13"), "compiled 1", "the user's cache folder");
    snprintf(path, sizeof path, "%s/.cache/bolide", dir);
    check(bolide__cache_walk(path, note_unsound, NULL) == 1, "is below HOME");
    unsetenv("HOME");
    text = run("calls", "2", "13");
    check(count_of(text, "warning") == 1 && strstr(text, "compiled 2"), "no HOME: one warning");
    setenv("HOME", dir, 1);
    if (geteuid() == 0) {
        skip("a read-only folder: the superuser may write everywhere");
    } else {
        setenv("BOLIDE_CACHE_DIR", dir, 1);
        chmod(dir, 0555);
        text = run("calls", "2", "13");
        check(count_of(text, "warning") == 1 && strstr(text, "compiled 2"), "a read-only folder");
        chmod(dir, 0755);
    }
    remove_folder(dir);
}

/* A Python environment with both versions. */
static void test_search(void) {
    const char *dir = make_folder();
    char path[512];
    static const char *const below[] = {"/lib",
                                        "/lib/python3.9",
                                        "/lib/python3.9/site-packages",
                                        "/lib/python3.9/site-packages/nvidia",
                                        "/lib/python3.9/site-packages/nvidia/cu13",
                                        "/lib/python3.9/site-packages/nvidia/cu13/lib",
                                        "/lib/python3.9/site-packages/nvidia/cuda_nvrtc",
                                        "/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib"};
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        snprintf(path, sizeof path, "%s%s", dir, below[i]);
        mkdir(path, 0755);
    }
    snprintf(path, sizeof path, "%s%s/libnvrtc.so.13", dir, below[5]);
    check(symlink(FAKES "/fake_nvrtc13.so", path) == 0, "link");
    snprintf(path, sizeof path, "%s%s/libnvrtc.so.12", dir, below[7]);
    check(symlink(FAKES "/fake_nvrtc12.so", path) == 0, "link");
    setenv("VIRTUAL_ENV", dir, 1);
    setenv("CUDA_HOME", "/nowhere/cuda", 1);
    const char *text = run("doctor", "12080", NULL);
    check_has(text, "driver: libcuda for CUDA 12.8", "doctor tells the driver");
    check_has(text, "device 0: Fake 90, compute capability 9.0, 1024 MiB, kernels for sm_90a",
              "and the devices");
    check_has(text, "looked at libnvrtc.so.12: ", "the loader's path is looked at");
    check_has(text, "looked at /nowhere/cuda/lib64/libnvrtc.so.1[23]: not there",
              "then the toolkit");
    /* The machine may have a real compiler of version 12, which then is the one that is used. */
    if (strstr(text, dir) == NULL) {
        skip("the Python environment: this machine has a compiler before it");
    } else {
        check_has(text,
                  "cu13/lib/libnvrtc.so.13: passed over: version 13.0 is newer than the "
                  "driver, which supports CUDA 12",
                  "a newer major is passed over");
        check_has(text, "cuda_nvrtc/lib/libnvrtc.so.12: used: version 12.9",
                  "the older one serves");
    }
    unsetenv("VIRTUAL_ENV");
    unsetenv("CUDA_HOME");
    check_has(run("calls", "1", FAKES "/fake_nvrtc11.so"),
              "passed over: version 11.8 is older than 12.0", "too old a compiler");
    check_has(run("calls", "1", FAKES "/fake_cuda.so"), "passed over: it lacks nvrtc",
              "another library in its place");
    remove_folder(dir);
}

static void test_overlap(void) {
    const char *dir = make_folder();
    setenv("BOLIDE_CACHE_DIR", dir, 1);
    check_has(run("overlap", NULL, NULL), "overlaps 11", "kernels may begin early");
    setenv("BOLIDE_OVERLAP", "0", 1);
    check_has(run("overlap", NULL, NULL), "overlaps 01", "those behind another call's do not");
    setenv("BOLIDE_OVERLAP", "no", 1);
    const char *text = run("overlap", NULL, NULL);
    check_has(text, "BOLIDE_OVERLAP: expected 0 or 1; got no, ignored", "another value is told");
    check_has(text, "overlaps 11", "and ignored");
    unsetenv("BOLIDE_OVERLAP");
    unsetenv("BOLIDE_CACHE_DIR");
    remove_folder(dir);
}

static void test_no_driver(void) {
    check_has(run("old-driver", NULL, NULL),
              "NO_DEVICE: context_create: the CUDA driver is too old", "an old driver");
    check_has(run("no-init", NULL, NULL),
              "NO_DEVICE: context_create: the CUDA driver does not start",
              "a driver that does not start");
}

int main(int argc, char **argv) {
    if (argc > 1)
        return run_child(argc, argv);
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return 1;
    test_overlap();
    test_many_processes();
    test_no_folder();
    test_search();
    test_no_driver();
    return finish();
}
