// SPDX-License-Identifier: Apache-2.0
//
// Parallel loops: pieces are the same for any number of workers, nested and concurrent callers
// work, and a process that forked, from whichever thread and however often, still computes, with
// more than one thread.

#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/context.h"
#include "cpu_test.h"

static bolide_context context_of(int64_t threads) {
    return (bolide_context){.device = {BOLIDE_CPU, 0}, .threads = threads};
}

/* ---- pieces ------------------------------------------------------------------------------- */

enum { MOST = 4096 };

typedef struct record {
    int64_t n, grain;
    int threads;
    atomic_int seen[MOST]; /* how often each item was visited */
    atomic_int bad;
    atomic_int calls;
} record;

static void visit(void *arg, int64_t begin, int64_t end, int worker) {
    record *r = arg;
    const int64_t want = begin + r->grain < r->n ? begin + r->grain : r->n;
    if (begin % r->grain != 0 || end != want || worker < 0 || worker >= r->threads)
        atomic_fetch_add(&r->bad, 1);
    atomic_fetch_add(&r->calls, 1);
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&r->seen[i], 1);
}

static void test_pieces(void) {
    static const int64_t sizes[] = {0, 1, 2, 7, 64, 1000, 4096};
    static const int64_t grains[] = {1, 3, 64, 5000};
    static record r;
    for (int threads = 1; threads <= 9; threads += 4) {
        const bolide_context ctx = context_of(threads);
        expect(bolide__cpu_threads(&ctx) == threads, "the context's %d threads", threads);
        for (int i = 0; i < 7; i++) {
            for (int g = 0; g < 4; g++) {
                memset(&r, 0, sizeof r);
                r.n = sizes[i];
                r.grain = grains[g];
                r.threads = threads;
                bolide__parallel_for(&ctx, r.n, r.grain, visit, &r);
                int ok = r.bad == 0 && r.calls == (r.n + r.grain - 1) / r.grain;
                for (int64_t k = 0; k < MOST; k++)
                    ok &= r.seen[k] == (k < r.n);
                expect(ok, "%d threads, n %d, grain %d", threads, (int)r.n, (int)r.grain);
            }
        }
    }
    const bolide_context ctx = context_of(2);
    memset(&r, 0, sizeof r);
    r.n = 5;
    r.grain = 1;
    r.threads = 2;
    bolide__parallel_for(&ctx, 5, 0, visit, &r);
    expect(r.bad == 0 && r.calls == 5, "a grain of 0 is 1");
    bolide__parallel_for(&ctx, -3, 1, visit, &r);
    expect(r.calls == 5, "a negative count does nothing");
    memset(&r, 0, sizeof r);
    r.n = 100;
    r.grain = 10;
    r.threads = bolide__cpu_threads(NULL);
    bolide__parallel_for(NULL, 100, 10, visit, &r);
    expect(r.bad == 0 && r.calls == 10 && r.threads >= 1, "no context");
    const bolide_context many = context_of((int64_t)1 << 40);
    expect(bolide__cpu_threads(&many) == 1024, "a limit past all reason is cut");
}

/* ---- a number of threads that is set later ------------------------------------------------ */

static void work_long(void *arg, int64_t begin, int64_t end, int worker) {
    (void)begin;
    (void)end;
    if (worker != 0)
        atomic_fetch_add((atomic_int *)arg, 1);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Pieces are so long that every thread of the team gets some. */
static void test_later_number(void) {
    atomic_int others = 0;
    const int before = omp_get_max_threads();
    const bolide_context two = context_of(2);
    bolide__parallel_for(NULL, 40, 1, work_long, &others);
    expect(others > 0 || bolide__cpu_threads(NULL) == 1, "a team works");
    omp_set_num_threads(1);
    others = 0;
    bolide__parallel_for(NULL, 40, 1, work_long, &others);
    expect(others == 0, "a number that the program sets later counts");
    bolide__parallel_for(&two, 40, 1, work_long, &others);
    expect(others > 0, "the context's own number stands");
    omp_set_num_threads(before + 7);
    expect(bolide__cpu_threads(NULL) <= before, "scratch is not for more threads than before");
    omp_set_num_threads(before);
}

/* ---- nested and concurrent callers -------------------------------------------------------- */

typedef struct sum {
    _Atomic int64_t total;
    atomic_int nested_worker;
} sum;

static void add_items(void *arg, int64_t begin, int64_t end, int worker) {
    sum *s = arg;
    if (worker != 0)
        atomic_store(&s->nested_worker, worker);
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&s->total, i);
}

static void add_nested(void *arg, int64_t begin, int64_t end, int worker) {
    const bolide_context ctx = context_of(4);
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        bolide__parallel_for(&ctx, 100, 7, add_items, arg);
}

static void test_nested(void) {
    static sum s;
    const bolide_context ctx = context_of(4);
    memset(&s, 0, sizeof s);
    bolide__parallel_for(&ctx, 50, 3, add_nested, &s);
    expect(s.total == 50 * 4950, "nested loops visit every item");
    expect(s.nested_worker == 0, "nested loops run on one worker");
    memset(&s, 0, sizeof s);
#pragma omp parallel num_threads(3)
    bolide__parallel_for(&ctx, 100, 7, add_items, &s);
    expect(s.total % 4950 == 0 && s.total > 0 && s.nested_worker == 0,
           "a loop in the caller's own parallel region runs there");
}

static void *call_often(void *arg) {
    sum s;
    const bolide_context ctx = context_of(3);
    (void)arg;
    for (int i = 0; i < 50; i++) {
        memset(&s, 0, sizeof s);
        bolide__parallel_for(&ctx, 200, 9, add_items, &s);
        if (s.total != 19900)
            return "wrong sum";
    }
    return NULL;
}

static int call_from_threads(int count) {
    pthread_t threads[8];
    int ok = 1, started = 0;
    for (; started < count; started++)
        if (pthread_create(&threads[started], NULL, call_often, NULL) != 0)
            break;
    for (int i = 0; i < started; i++) {
        void *result;
        pthread_join(threads[i], &result);
        ok &= result == NULL;
    }
    return ok && started == count;
}

/* ---- fork --------------------------------------------------------------------------------- */

typedef struct meeting {
    atomic_int present;
    atomic_int together;
} meeting;

/* Two pieces that wait for each other, for 5 seconds at most: they meet only on two threads. */
static void meet(void *arg, int64_t begin, int64_t end, int worker) {
    meeting *m = arg;
    (void)begin, (void)end, (void)worker;
    atomic_fetch_add(&m->present, 1);
    for (int i = 0; i < 5000 && atomic_load(&m->present) < 2; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (atomic_load(&m->present) >= 2)
        atomic_store(&m->together, 1);
}

static int threads_meet(void) {
    static meeting m;
    const bolide_context ctx = context_of(2);
    memset(&m, 0, sizeof m);
    bolide__parallel_for(&ctx, 2, 1, meet, &m);
    return m.together;
}

static int wait_for(pid_t child) {
    int status = 0;
    for (int i = 0; i < 30000; i++) {
        const pid_t got = waitpid(child, &status, WNOHANG);
        if (got == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
        if (got < 0 && errno != EINTR)
            return 98;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 97;
}

/* What a child checks; the number says what failed. */
static int child_checks(int depth) {
    if (call_often(NULL) != NULL)
        return 1;
    if (!threads_meet())
        return 2;
    if (!call_from_threads(3))
        return 3;
    if (depth > 0) {
        const pid_t child = fork();
        if (child == 0)
            _exit(child_checks(depth - 1));
        if (wait_for(child) != 0)
            return 10 + depth;
        if (call_often(NULL) != NULL)
            return 4;
    }
    return 0;
}

static int fork_and_check(void) {
    const pid_t child = fork();
    if (child == 0)
        _exit(child_checks(1));
    return wait_for(child);
}

static void *fork_in_thread(void *arg) {
    *(int *)arg = call_often(NULL) != NULL ? 96 : fork_and_check();
    return NULL;
}

static void test_fork(void) {
    int code = 95;
    pthread_t thread;
    expect(call_often(NULL) == NULL && threads_meet(), "two threads before the fork");
    code = fork_and_check();
    expect(code == 0, "after a fork from the first thread: %d", code);
    if (pthread_create(&thread, NULL, fork_in_thread, &code) == 0)
        pthread_join(thread, NULL);
    expect(code == 0, "after a fork from another thread: %d", code);
    expect(call_often(NULL) == NULL && threads_meet(), "the parent goes on");
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#endif

/* Why forking is not tested here; NULL: it is. */
static const char *no_fork(void) {
#if defined(THREAD_SANITIZER)
    return "fork: the thread sanitizer starts no thread after it";
#elif defined(__aarch64__)
    return "fork on aarch64: qemu-user, which runs these tests, cannot start threads after it";
#else
    return NULL;
#endif
}

void test_parallel(void) {
    test_pieces();
    test_later_number();
    test_nested();
    expect(call_from_threads(8), "eight callers at once");
    if (no_fork())
        skip(no_fork());
    else
        test_fork();
}
