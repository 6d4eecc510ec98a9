// SPDX-License-Identifier: Apache-2.0
//
// Parallel loops over OpenMP. The pieces of a loop follow from the problem alone and are handed out
// by one atomic counter, so the number of workers changes nothing but the time.
//
// Fork is the hard part: an OpenMP runtime keeps its pool of threads with the thread that opened
// the first team, fork copies that bookkeeping but not the threads, and the next team waits for
// them forever. Whoever opened the team (we, or a framework that shares the runtime) cannot be
// told. So after a fork the surviving thread never opens a team again; a helper thread, whose
// bookkeeping is fresh, opens its teams for it. Threads started later in the child are fresh too.

#include "cpu/cpu.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/context.h"
#include "cpu/cpu_limit.h"

enum { MAX_THREADS = 1024 };

typedef struct loop {
    bolide__loop_body body;
    void *arg;
    int64_t n, grain, pieces;
    int threads;
    _Atomic int64_t next; /* the piece to hand out */
} loop;

/* Set while this thread runs pieces: a loop inside a body runs here. */
static _Thread_local int inside;
/* Set in the thread that came out of a fork as the only one. */
static _Thread_local int forked;

/* ---- the number of threads ---------------------------------------------------------------- */

static pthread_once_t limit_once = PTHREAD_ONCE_INIT;
static int process_limit;

static void find_limit(void) {
    const int affinity = bolide__affinity_cpus();
    const int quota = bolide__cgroup_cpus("");
    const int runtime = omp_get_max_threads(); /* OMP_NUM_THREADS, or what the program has set */
    int limit = affinity < runtime ? affinity : runtime;
    if (quota > 0 && quota < limit)
        limit = quota;
    process_limit = limit < 1 ? 1 : limit > MAX_THREADS ? MAX_THREADS : limit;
}

/* The default is found once: scratch is sized by this number, which must not grow in between. */
int bolide__cpu_threads(const bolide_context *ctx) {
    if (ctx && ctx->threads > 0)
        return ctx->threads > MAX_THREADS ? MAX_THREADS : (int)ctx->threads;
    pthread_once(&limit_once, find_limit);
    return process_limit;
}

/* A team is as large as the runtime's own by now, if that is less: a framework that shares its
 * threads may have set their number since, and teams of two sizes in turn would end threads and
 * start new ones at each call. */
static int team_size(const bolide_context *ctx) {
    const int most = bolide__cpu_threads(ctx);
    const int now = ctx && ctx->threads > 0 ? most : omp_get_max_threads();
    return now < most ? now : most;
}

/* ---- running ------------------------------------------------------------------------------ */

static void run_piece(const loop *l, int64_t piece, int worker) {
    const int64_t begin = piece * l->grain;
    const int64_t end = l->n - begin > l->grain ? begin + l->grain : l->n;
    l->body(l->arg, begin, end, worker);
}

static void run_here(const loop *l) {
    const int outer = inside;
    inside = 1;
    for (int64_t piece = 0; piece < l->pieces; piece++)
        run_piece(l, piece, 0);
    inside = outer;
}

static void run_worker(loop *l, int worker) {
    inside = 1;
    for (;;) {
        const int64_t piece = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed);
        if (piece >= l->pieces)
            break;
        run_piece(l, piece, worker);
    }
    inside = 0;
}

/* All threads, also where there are fewer pieces: the runtime of gcc ends the threads that a
 * smaller team leaves out and starts new ones for the next larger team. */
static void run_team(loop *l) {
#pragma omp parallel num_threads(l->threads)
    run_worker(l, omp_get_thread_num());
}

/* ---- the helper of a forked thread -------------------------------------------------------- */

/* One exists at most, since one thread comes out of a fork. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    loop *job; /* NULL: none, or done */
    int alive;
} helper = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};

static void *helper_main(void *unused) {
    (void)unused;
    pthread_mutex_lock(&helper.lock);
    for (;;) {
        while (!helper.job)
            pthread_cond_wait(&helper.changed, &helper.lock);
        loop *job = helper.job;
        pthread_mutex_unlock(&helper.lock);
        run_team(job);
        pthread_mutex_lock(&helper.lock);
        helper.job = NULL;
        pthread_cond_broadcast(&helper.changed);
    }
    return NULL;
}

/* 0 if no thread could be started. */
static int run_helped(loop *l) {
    pthread_mutex_lock(&helper.lock);
    if (!helper.alive) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, helper_main, NULL) != 0) {
            pthread_mutex_unlock(&helper.lock);
            return 0;
        }
        pthread_detach(thread);
        helper.alive = 1;
    }
    helper.job = l;
    pthread_cond_broadcast(&helper.changed);
    while (helper.job)
        pthread_cond_wait(&helper.changed, &helper.lock);
    pthread_mutex_unlock(&helper.lock);
    return 1;
}

static void after_fork_in_child(void) {
    static const pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t fresh_changed = PTHREAD_COND_INITIALIZER;
    forked = 1;
    helper.lock = fresh_lock;
    helper.changed = fresh_changed;
    helper.job = NULL;
    helper.alive = 0;
}

/* At load, so that no fork of the process goes unseen; without memory for the handler the library
 * works as any OpenMP program does. */
__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* ---- the entry ---------------------------------------------------------------------------- */

void bolide__parallel_for(const bolide_context *ctx, int64_t n, int64_t grain,
                          bolide__loop_body body, void *arg) {
    if (n <= 0)
        return;
    loop l = {.body = body, .arg = arg, .n = n, .grain = grain < 1 ? 1 : grain};
    l.pieces = (n - 1) / l.grain + 1;
    l.threads = team_size(ctx);
    if (l.threads == 1 || l.pieces == 1 || inside || omp_in_parallel())
        run_here(&l);
    else if (!forked)
        run_team(&l);
    else if (!run_helped(&l))
        run_here(&l);
}
