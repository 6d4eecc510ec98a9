// SPDX-License-Identifier: Apache-2.0
//
// OpenMP for the library inside a wheel, which must not need a runtime that a machine may lack nor
// bring a second one beside a framework's. gcc makes of a parallel region one call of
// GOMP_parallel, and the library asks three questions besides; these four names are defined here.
// They go to the runtime that the process has loaded, else to one that the system has, else to the
// small pool below. Which one is settled at the first call. A build outside of wheels links OpenMP
// as usual and leaves this file out.

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void region(void *data);

/* The name that gcc calls. */
void parallel(region *body, void *data, unsigned threads, unsigned flags) __asm__("GOMP_parallel");
int omp_get_max_threads(void);
int omp_get_thread_num(void);
int omp_in_parallel(void);

typedef struct runtime {
    void (*parallel)(region *body, void *data, unsigned threads, unsigned flags);
    int (*max_threads)(void);
    int (*thread_num)(void);
    int (*in_parallel)(void);
} runtime;

enum { MAX_WORKERS = 1023 };

/* ---- the pool of this library's own ------------------------------------------------------------
 *
 * A region is offered to as many waiting workers as it asks for. It ends when the caller has
 * returned from the body and no worker is in it any more; those that have not come by then do not
 * enter. That is right because a loop's pieces are handed out by a counter, never by the number of
 * a worker. A second region at the same time runs on its caller alone. */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    region *body;
    void *data;
    unsigned workers; /* threads that exist */
    unsigned wanted;  /* workers that may still enter */
    unsigned entered, running;
    int busy;
} pool = {PTHREAD_MUTEX_INITIALIZER,
          PTHREAD_COND_INITIALIZER,
          PTHREAD_COND_INITIALIZER,
          NULL,
          NULL,
          0,
          0,
          0,
          0,
          0};

static _Thread_local int own_number, own_inside;

static void enter(region *body, void *data, int number) {
    const int outer_number = own_number, outer_inside = own_inside;
    own_number = number;
    own_inside = 1;
    body(data);
    own_number = outer_number;
    own_inside = outer_inside;
}

static void *work(void *unused) {
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.wanted == 0)
            pthread_cond_wait(&pool.begin, &pool.lock);
        pool.wanted--;
        pool.running++;
        const int number = (int)++pool.entered;
        region *const body = pool.body;
        void *const data = pool.data;
        pthread_mutex_unlock(&pool.lock);
        enter(body, data, number);
        pthread_mutex_lock(&pool.lock);
        if (--pool.running == 0)
            pthread_cond_signal(&pool.end);
    }
    return NULL;
}

/* More workers, with the lock held; fewer where the system gives no more. */
static void grow(unsigned workers) {
    pthread_attr_t detached;
    if (workers > MAX_WORKERS)
        workers = MAX_WORKERS;
    if (pool.workers >= workers || pthread_attr_init(&detached) != 0)
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (pthread_t thread; pool.workers < workers; pool.workers++)
        if (pthread_create(&thread, &detached, work, NULL) != 0)
            break;
    pthread_attr_destroy(&detached);
}

static void own_parallel(region *body, void *data, unsigned threads, unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&pool.lock);
    const int alone = pool.busy || threads < 2;
    if (!alone) {
        grow(threads - 1);
        pool.busy = 1;
        pool.body = body;
        pool.data = data;
        pool.entered = 0;
        pool.wanted = threads - 1 < pool.workers ? threads - 1 : pool.workers;
        pthread_cond_broadcast(&pool.begin);
    }
    pthread_mutex_unlock(&pool.lock);
    enter(body, data, 0);
    if (alone)
        return;
    pthread_mutex_lock(&pool.lock);
    pool.wanted = 0;
    while (pool.running > 0)
        pthread_cond_wait(&pool.end, &pool.lock);
    pool.busy = 0;
    pthread_mutex_unlock(&pool.lock);
}

static int own_max_threads(void) {
    const char *text = getenv("OMP_NUM_THREADS");
    const long asked = text ? strtol(text, NULL, 10) : 0;
    const long here = asked > 0 ? asked : sysconf(_SC_NPROCESSORS_ONLN);
    return here < 1 ? 1 : here > MAX_WORKERS + 1 ? MAX_WORKERS + 1 : (int)here;
}

static int own_thread_num(void) {
    return own_number;
}

static int own_in_parallel(void) {
    return own_inside;
}

/* No worker lives on in a child. */
static void forget_workers(void) {
    static const pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;
    pool.lock = fresh_lock;
    pool.begin = pool.end = fresh;
    pool.workers = pool.wanted = pool.entered = pool.running = 0;
    pool.busy = 0;
}

/* ---- finding a runtime ---------------------------------------------------------------------- */

static runtime found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A function's address in a pointer to a function, which ISO C does not convert. */
static int look_up(void *library, const char *name, void *place) {
    void *const address = dlsym(library, name);
    memcpy(place, &address, sizeof address);
    return address != NULL;
}

static int take(void *library) {
    runtime r;
    if (!library)
        return 0;
    if (!look_up(library, "GOMP_parallel", &r.parallel) ||
        !look_up(library, "omp_get_max_threads", &r.max_threads) ||
        !look_up(library, "omp_get_thread_num", &r.thread_num) ||
        !look_up(library, "omp_in_parallel", &r.in_parallel)) {
        dlclose(library);
        return 0;
    }
    found = r;
    return 1;
}

/* Frameworks bring libgomp under names like libgomp-a34b3233.so.1. */
static int name_of_runtime(struct dl_phdr_info *info, size_t size, void *out) {
    (void)size;
    const char *const slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    const char *const base = slash ? slash + 1 : "";
    if (strncmp(base, "libgomp", 7) != 0 && strncmp(base, "libomp.", 7) != 0 &&
        strncmp(base, "libiomp5", 8) != 0)
        return 0;
    snprintf(out, 4096, "%s", info->dlpi_name);
    return 1;
}

static void find(void) {
    char path[4096];
    if (dl_iterate_phdr(name_of_runtime, path) && take(dlopen(path, RTLD_NOW | RTLD_NOLOAD)))
        return;
    if (take(dlopen("libgomp.so.1", RTLD_NOW)))
        return;
    found = (runtime){own_parallel, own_max_threads, own_thread_num, own_in_parallel};
    (void)pthread_atfork(NULL, NULL, forget_workers);
}

static const runtime *here(void) {
    pthread_once(&once, find);
    return &found;
}

void parallel(region *body, void *data, unsigned threads, unsigned flags) {
    here()->parallel(body, data, threads, flags);
}

int omp_get_max_threads(void) {
    return here()->max_threads();
}

int omp_get_thread_num(void) {
    return here()->thread_num();
}

int omp_in_parallel(void) {
    return here()->in_parallel();
}
