// SPDX-License-Identifier: Apache-2.0
//
// Opening, launching, capturing, failing: the runtime on the stand-in driver.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <bolide/bolide.h>

#include "core/context.h"
#include "core/op.h"
#include "cuda/compile.h"
#include "cuda/device.h"
#include "support.h"

/* 1 under a sanitizer, and on aarch64, which qemu-user stands in for: times mean nothing there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__aarch64__)
#define SLOW 1
#elif defined(__has_feature)
#define SLOW (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SLOW 0
#endif

extern const bolide_op bolide_op_rmsnorm;
static bolide_stream const stream = (bolide_stream)0x1230;

/* Nothing is left over when all contexts are gone. */
static void check_balance(const char *what) {
    check(driver->retained == 0 && driver->modules == 0 && driver->depth == 0, what);
}

static bolide__call toy_call(const bolide_context *ctx) {
    return (bolide__call){
        .op = &bolide_op_rmsnorm, .ctx = ctx, .stream = stream, .entry_name = "toy"};
}

static bolide__spec toy_spec(int64_t value) {
    bolide__spec s = BOLIDE_SPEC("norm/rmsnorm.cu", "bolide_rmsnorm");
    bolide__spec_add(&s, "VALUE", value);
    return s;
}

static void test_open(void) {
    bolide_context *ctx = NULL;
    check(bolide_context_create(BOLIDE_CUDA, 9, &ctx) == BOLIDE_NO_DEVICE && !ctx,
          "a device that is not there");
    check_message("expected 0 to 1; got 9", "the message tells the devices");
    driver->devices = 4;
    check(bolide_context_create(BOLIDE_CUDA, 3, &ctx) == BOLIDE_UNSUPPORTED && !ctx, "an old chip");
    check_message("7.5 or higher", "the message tells what is needed");
    driver->devices = 2;
    check(driver->used_devices == 0, "a refused device is not touched");
    bolide_context *a = open_context(1);
    bolide_context *b = open_context(1);
    check(a->cuda == b->cuda, "contexts of a device share it");
    check(bolide__cuda_limits_of(a)->arch == 80 && bolide__cuda_limits_of(a)->sm_count == 4 &&
              bolide__cuda_limits_of(a)->shared_optin == 166912,
          "numbers of the device");
    check(driver->used_devices == 2, "only the device that was asked for is touched");
    bolide_context_destroy(a);
    check(driver->retained == 1, "the second context keeps the device");
    bolide_context_destroy(b);
    check_balance("closing gives all back");
}

static void test_launch(void) {
    const char *dir = fresh_cache();
    bolide_context *ctx = open_context(0);
    struct {
        int64_t a, b;
    } params = {17, 42};
    driver->params_bytes = sizeof params;
    const bolide__call call = toy_call(ctx);
    const bolide__spec s = toy_spec(1);
    bolide__grid g = {
        .x = 70000, .y = 3, .block = 96, .shared = 50000, .cluster = 2, .dependent = 1};
    const int compiled = compiler->compiled;
    check(bolide__cuda_launch(&call, &s, &g, &params, sizeof params) == BOLIDE_OK, "cold launch");
    check(compiler->compiled == compiled + 1, "compiled once");
    check(memcmp(driver->params, &params, sizeof params) == 0, "parameters arrive");
    check(driver->grid[0] == 70000 && driver->grid[1] == 3 && driver->grid[2] == 1 &&
              driver->block == 96 && driver->shared == 50000 && driver->stream == stream,
          "grid, block, shared memory and stream arrive");
    check(driver->cluster == 2 && driver->dependent == 1, "attributes arrive");
    check(driver->context == ctx->cuda->context && driver->depth == 0,
          "the device's context is current for the launch alone");
    check(strcmp(driver->function, "bolide_rmsnorm") == 0, "the function of the spec");

    const int calls = driver->calls;
    check(bolide__cuda_launch(&call, &s, &g, &params, sizeof params) == BOLIDE_OK, "warm launch");
    check(compiler->compiled == compiled + 1, "nothing is compiled again");
    check(driver->calls - calls <= 4, "a warm launch asks the driver for nothing else");
    const bolide__spec other = toy_spec(1);
    check(bolide__kernel_find(ctx->cuda, &other) != NULL, "an equal spec finds the same kernel");

    g.x = 0;
    const int launches = driver->launches;
    check(bolide__cuda_launch(&call, &s, &g, &params, sizeof params) == BOLIDE_OK &&
              driver->launches == launches,
          "an empty grid launches nothing");
    bolide_context_destroy(ctx);
    check_balance("closing unloads");
    remove_folder(dir);
}

static void test_refusals(void) {
    const char *dir = fresh_cache();
    bolide_context *ctx = open_context(0);
    char params[64] = {0};
    driver->params_bytes = sizeof params;
    const bolide__call call = toy_call(ctx);
    const bolide__spec s = toy_spec(2);
    const struct {
        bolide__grid grid;
        size_t bytes;
        const char *text;
    } cases[] = {
        {{.x = 1, .block = 32, .shared = 232449}, 64, "232448"},
        {{.x = 1, .block = 1025}, 64, "1 to 1024"},
        {{.x = 1, .block = 0}, 64, "0 threads"},
        {{.x = 1, .y = 65536, .block = 32}, 64, "65536"},
        {{.x = (int64_t)1 << 31, .block = 32}, 64, "2147483648"},
        {{.x = 1, .block = 32}, 63, "the host passes 63"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int launches = driver->launches;
        check(bolide__cuda_launch(&call, &s, &cases[i].grid, params, cases[i].bytes) != BOLIDE_OK &&
                  driver->launches == launches,
              "an impossible launch is refused");
        check_message(cases[i].text, "the message has the number");
    }
    bolide__spec many = toy_spec(0);
    for (int i = 0; i < BOLIDE__SPEC_KEYS; i++)
        bolide__spec_add(&many, "MORE", i);
    const bolide__grid g = {.x = 1, .block = 32};
    check(bolide__cuda_launch(&call, &many, &g, params, 64) == BOLIDE_INTERNAL, "too many keys");
    bolide__spec none = BOLIDE_SPEC("norm/nowhere.cu", "bolide_nowhere");
    check(bolide__cuda_launch(&call, &none, &g, params, 64) == BOLIDE_INTERNAL, "no such source");
    check_message("norm/nowhere.cu", "the message names the source");
    compiler->fail = 1;
    const bolide__spec broken = toy_spec(3);
    check(bolide__cuda_launch(&call, &broken, &g, params, 64) == BOLIDE_COMPILE_FAILED,
          "a source with an error");
    check_message("does not compile: ops/norm/rmsnorm.cu(7): error: a fake mistake",
                  "the first error comes first");
    check_message("VALUE=3", "the message has the spec");
    compiler->fail = 0;
    check(bolide__cuda_launch(&call, &broken, &g, params, 64) == BOLIDE_OK,
          "a failure is not kept");
    driver->params_bytes = 0;
    bolide_context_destroy(ctx);
    remove_folder(dir);
}

static void test_devices(void) {
    const char *dir = fresh_cache();
    bolide_context *a = open_context(0), *b = open_context(1);
    /* The user has device 0 current while he calls on device 1. */
    const bolide__driver *d = a->cuda->driver;
    check(d->cuCtxPushCurrent_v2(a->cuda->context) == CUDA_SUCCESS, "push");
    const int compiled = compiler->compiled;
    char params[8] = {0};
    const bolide__spec s = toy_spec(4);
    const bolide__grid g = {.x = 1, .block = 32};
    const bolide__call call_a = toy_call(a), call_b = toy_call(b);
    driver->params_bytes = sizeof params;
    check(bolide__cuda_launch(&call_b, &s, &g, params, sizeof params) == BOLIDE_OK &&
              driver->context == b->cuda->context,
          "a launch runs on the device of its context");
    CUcontext current = NULL;
    check(d->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == a->cuda->context,
          "the current device is restored");
    check(bolide__cuda_launch(&call_a, &s, &g, params, sizeof params) == BOLIDE_OK &&
              driver->context == a->cuda->context,
          "and the other device, too");
    check(compiler->compiled == compiled + 2, "each architecture has its own code");
    check(d->cuCtxPopCurrent_v2(&current) == CUDA_SUCCESS, "pop");
    driver->params_bytes = 0;
    bolide_context_destroy(a);
    bolide_context_destroy(b);
    check_balance("two devices close");
    remove_folder(dir);
}

static void test_capture(void) {
    const char *dir = fresh_cache();
    bolide_context *ctx = open_context(0);
    driver->broken = 0;
    driver->capturing = 1;
    const int compiled = compiler->compiled, launches = driver->launches;
    check(call_kind(ctx, 0, stream) == BOLIDE_NOT_WARM, "a cold kernel in a capture");
    check_message("bolide compile \"rmsnorm n=3 d=64", "the message has the line that warms it");
    check(call_kind(ctx, 0, NULL) == BOLIDE_NOT_WARM, "also on the legacy default stream");
    check(compiler->compiled == compiled && driver->launches == launches && driver->broken == 0,
          "nothing happened, the capture is valid");
    driver->capturing = 0;
    check(call_kind(ctx, 0, stream) == BOLIDE_OK, "warming");
    driver->capturing = 1;
    check(call_kind(ctx, 0, stream) == BOLIDE_OK && driver->launches == launches + 2,
          "a warm kernel in a capture");
    check(driver->broken == 0, "the capture is still valid");

    /* Warm on disk only, as after `bolide compile`. */
    bolide_context_destroy(ctx);
    ctx = open_context(0);
    check(call_kind(ctx, 0, stream) == BOLIDE_OK && driver->broken == 0,
          "a kernel on disk loads in a capture without harm");
    bolide__call call = toy_call(ctx);
    check(bolide__cuda_capturing(&call) == 1, "capturing is seen");
    const int waits = driver->waits;
    check(bolide__cuda_wait(&call) == BOLIDE_UNSUPPORTED && driver->waits == waits &&
              driver->broken == 0,
          "a wait in a capture is refused");
    driver->capturing = 0;
    check(bolide__cuda_capturing(&call) == 0 && bolide__cuda_wait(&call) == BOLIDE_OK &&
              driver->waits == waits + 1,
          "a wait outside is done");
    char from[8] = "abcdefg", to[8] = "";
    check(bolide__cuda_copy_to_device(&call, to, from, 8) == BOLIDE_OK && strcmp(to, from) == 0,
          "a copy to the device");
    memset(from, 0, sizeof from);
    check(bolide__cuda_copy_to_host(&call, from, to, 8) == BOLIDE_OK && strcmp(to, from) == 0,
          "a copy to the host");
    bolide_context_destroy(ctx);
    check_balance("after captures");
    remove_folder(dir);
}

static void test_fault(void) {
    const char *dir = fresh_cache();
    bolide_context *ctx = open_context(0);
    check(call_kind(ctx, 1, stream) == BOLIDE_OK, "a launch");
    bolide__call call = toy_call(ctx);
    call.entry_name = "later";
    driver->fail_name = "cuStreamSynchronize";
    driver->fail_code = CUDA_ERROR_ILLEGAL_ADDRESS;
    check(bolide__cuda_wait(&call) == BOLIDE_DEVICE_FAULT, "a fault");
    driver->fail_name = NULL;
    check_message("later: cuStreamSynchronize", "the message has the call that met it");
    check_message("an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)",
                  "the driver's words");
    check_message("last launched: rmsnorm n=3 d=128", "the problem that was launched last");
    check_message("norm/rmsnorm.cu bolide_rmsnorm INPUT=8", "and its spec");
    bolide_context_destroy(ctx);
    remove_folder(dir);
}

/* Everything that a user does, with the nth driver call failing. */
static int scenario(void) {
    bolide_context *ctx = NULL;
    bolide_status s = bolide_context_create(BOLIDE_CUDA, 1, &ctx);
    if (s != BOLIDE_OK)
        return s;
    char from[8] = "", to[8];
    s = call_kind(ctx, 2, stream);
    if (s == BOLIDE_OK)
        s = call_kind(ctx, 2, stream);
    const bolide__call call = toy_call(ctx);
    if (s == BOLIDE_OK)
        s = bolide__cuda_copy_to_device(&call, to, from, 8);
    if (s == BOLIDE_OK)
        s = bolide__cuda_copy_to_host(&call, to, from, 8);
    if (s == BOLIDE_OK)
        s = bolide__cuda_wait(&call);
    bolide_context_destroy(ctx);
    return s;
}

static void test_failures(void) {
    static const int codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ILLEGAL_ADDRESS, 999};
    const char *dir = fresh_cache();
    int injected = 0, refused = 0;
    for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++) {
        for (int n = 1; n < 200; n++) {
            driver->fail_at = n;
            driver->fail_code = codes[c];
            const int status = scenario();
            const int reached = driver->fail_at <= 0;
            driver->fail_at = 0;
            if (!reached)
                break;
            injected++;
            refused += status != BOLIDE_OK;
            if (status == BOLIDE_OUT_OF_MEMORY || status == BOLIDE_DEVICE_FAULT)
                check(bolide_last_error()->message[0] != '\0', "a failure has a message");
            else
                check(status == BOLIDE_OK, "a failure has the right status");
            check(driver->retained == 0 && driver->modules == 0 && driver->depth == 0,
                  "nothing is lost after a failure");
        }
    }
    check(injected > 60 && refused > injected / 2, "failures were injected and seen");
    check(scenario() == BOLIDE_OK, "and afterwards all is well");
    remove_folder(dir);
}

/* ---- threads ------------------------------------------------------------------------------- */

typedef struct worker {
    const bolide_context *ctx;
    int first;
    int failed;
} worker;

static void *launch_all(void *arg) {
    worker *w = arg;
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 8; i++)
            w->failed += call_kind(w->ctx, (w->first + i) % 8, stream) != BOLIDE_OK;
    }
    return NULL;
}

static void test_threads(void) {
    enum { THREADS = 8 };
    const char *dir = fresh_cache();
    bolide_context *ctx = open_context(0);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    compiler->milliseconds = 5;
    const int compiled = compiler->compiled, launches = driver->launches;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.ctx = ctx, .first = i};
        check(pthread_create(&threads[i], NULL, launch_all, &workers[i]) == 0, "a thread");
    }
    int failures = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        failures += workers[i].failed;
    }
    compiler->milliseconds = 0;
    check(failures == 0, "all launches of all threads succeed");
    check(compiler->compiled - compiled == 8, "each kernel is compiled once");
    check(driver->launches - launches == 3 * 8 * THREADS, "every launch arrives");
    bolide_context_destroy(ctx);
    check_balance("after threads");
    remove_folder(dir);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double least(double a, double b) {
    return a < b ? a : b;
}

static void test_lookup_cost(void) {
    const char *dir = fresh_cache();
    bolide_context *ctx = open_context(0);
    const bolide__call call = toy_call(ctx);
    const bolide__grid g = {.x = 1, .block = 32};
    char params[8] = {0};
    static const char *const keys[] = {"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L"};
    bolide__spec s[1000];
    for (int i = 0; i < 1000; i++) {
        s[i] = toy_spec(i % 100);
        for (int k = 0; k < 12; k++)
            bolide__spec_add(&s[i], keys[k], k * k);
        check(bolide__cuda_launch(&call, &s[i], &g, params, 8) == BOLIDE_OK, "a launch");
    }
    double best = 1, hash_only = 1;
    uint64_t hashes = 0;
    int missed = 0;
    for (int turn = 0; turn < 50; turn++) {
        double t = seconds();
        for (int i = 0; i < 1000; i++)
            missed += bolide__kernel_find(ctx->cuda, &s[i]) == NULL;
        best = least(best, (seconds() - t) / 1000);
        t = seconds();
        for (int i = 0; i < 1000; i++)
            hashes ^= bolide__spec_hash(&s[i]);
        hash_only = least(hash_only, (seconds() - t) / 1000);
    }
    printf("lookup of a spec with 13 keys among 100: %.0f ns, its hash %.0f ns (%x)\n", 1e9 * best,
           1e9 * hash_only, (unsigned)hashes & 15);
    check(missed == 0, "every spec is found");
    /* Against the machine, since it may be slow or busy: a search by name would take far longer. */
    check(SLOW || best < least(1e-6, 10 * hash_only), "a lookup costs little more than the hash");
    bolide_context_destroy(ctx);
    remove_folder(dir);
}

/* ---- ahead of time -------------------------------------------------------------------------- */

static bool count_reports(void *arg, const bolide__compile_report *r) {
    int *counts = arg;
    counts[0]++;
    counts[1] += r->status != BOLIDE_OK;
    counts[2] += r->origin == BOLIDE__FROM_DISK;
    check(r->done == counts[0] && r->total >= r->done, "progress counts up");
    check(r->status != BOLIDE_OK ||
              (r->resources.registers == 33 && r->resources.stack_bytes == 16 &&
               r->resources.spill_bytes == 12),
          "the assembler's lines are read");
    return counts[3] == 0 || r->done < counts[3];
}

static void test_ahead(void) {
    const char *dir = fresh_cache();
    bolide_context *ctx = NULL;
    check(bolide__cuda_context_dry("sm_2", &ctx) == BOLIDE_INVALID_ARGUMENT && !ctx, "no target");
    check(bolide__cuda_context_dry("sm_90a", &ctx) == BOLIDE_OK, "a dry context");
    check(bolide__cuda_limits_of(ctx)->arch == 90 && bolide__cuda_limits_of(ctx)->sm_count == 132,
          "it has numbers");
    const int launches = driver->launches, compiled = compiler->compiled;
    for (int kind = 0; kind < KINDS; kind++)
        check(call_kind(ctx, kind % 6, NULL) == BOLIDE_OK, "a dry call");
    check(bolide__cuda_noted(ctx) == 6 && compiler->compiled == compiled, "specs are noted once");
    int counts[4] = {0};
    check(bolide__cuda_compile_noted(ctx, 3, count_reports, counts) == BOLIDE_OK, "compiled");
    check(counts[0] == 6 && counts[1] == 0 && counts[2] == 0, "each reported");
    memset(counts, 0, sizeof counts);
    check(bolide__cuda_compile_noted(ctx, 0, count_reports, counts) == BOLIDE_OK &&
              counts[2] == 6 && compiler->compiled == compiled + 6,
          "the second time all come from disk");
    check(driver->launches == launches, "nothing was launched");
    memset(counts, 0, sizeof counts);
    counts[3] = 4;
    check(bolide__cuda_compile_noted(ctx, 1, count_reports, counts) == BOLIDE_OK && counts[0] == 4,
          "it stops where it is told to");
    bolide__cuda_keep_shard(ctx, 1, 4);
    check(bolide__cuda_noted(ctx) == 2, "the second and the sixth of six");
    bolide_context_destroy(ctx);

    bolide_context *real = open_context(0);
    check(call_kind(real, 3, stream) == BOLIDE_OK && compiler->compiled == compiled + 6,
          "the device finds what was compiled ahead");
    bolide_context_destroy(real);

    /* Errors: of the compiler, and too much shared memory for the target. */
    check(bolide__cuda_context_dry("compute_75", &ctx) == BOLIDE_OK, "another target");
    const bolide__call call = toy_call(ctx);
    const bolide__spec s = toy_spec(77);
    const bolide__grid g = {.x = 1, .block = 32, .shared = 60000};
    check(bolide__cuda_launch(&call, &s, &g, NULL, 0) == BOLIDE_OK, "noted");
    compiler->shared_bytes = 10000;
    check(bolide__cuda_compile_noted(ctx, 1, NULL, NULL) == BOLIDE_UNSUPPORTED, "too much shared");
    check_message("needs 70000 bytes of shared memory a block; compute_75 has 65536", "says so");
    compiler->shared_bytes = 0;
    bolide_context_destroy(ctx);
    check(bolide__cuda_context_dry("sm_80", &ctx) == BOLIDE_OK, "a third");
    check(call_kind(ctx, 0, NULL) == BOLIDE_OK, "noted");
    compiler->fail = 1;
    memset(counts, 0, sizeof counts);
    check(bolide__cuda_compile_noted(ctx, 2, count_reports, counts) == BOLIDE_COMPILE_FAILED &&
              counts[1] == 1,
          "a failure is reported");
    compiler->fail = 0;
    bolide_context_destroy(ctx);
    remove_folder(dir);
}

static void test_pretend(void) {
    const char *dir = fresh_cache();
    bolide_context *ctx = NULL, *plain = open_context(0);
    check(bolide__cuda_context_as(0, "compute_75", &ctx) == BOLIDE_OK, "a device as another chip");
    check(ctx->cuda != plain->cuda && bolide__cuda_limits_of(ctx)->arch == 75 &&
              bolide__cuda_limits_of(ctx)->shared_optin == 65536 &&
              bolide__cuda_limits_of(ctx)->sm_count == 4,
          "its limits are those of the chip");
    const bolide__call call = toy_call(ctx);
    const bolide__spec s = toy_spec(5);
    bolide__grid g = {.x = 1, .block = 32, .shared = 65537, .dependent = 1};
    char params[8] = {0};
    driver->params_bytes = sizeof params;
    check(bolide__cuda_launch(&call, &s, &g, params, 8) == BOLIDE_UNSUPPORTED, "its limit holds");
    g.shared = 65536;
    check(bolide__cuda_launch(&call, &s, &g, params, 8) == BOLIDE_OK && driver->dependent == 0,
          "a chip without dependent launches gets none");
    driver->params_bytes = 0;
    bolide_context_destroy(ctx);
    bolide_context_destroy(plain);
    check_balance("after pretending");
    remove_folder(dir);
}

static void test_targets(void) {
    static const struct {
        const char *text, *name;
    } good[] = {{"sm_90a", "sm_90a"},
                {"90a", "sm_90a"},
                {"9.0", "sm_90a"},
                {"8.0", "sm_80"},
                {"compute_80", "compute_80"},
                {"sm_120a", "sm_120a"},
                {"12.0", "sm_120a"},
                {"10.3", "sm_103a"},
                {"75", "sm_75"}};
    static const char *const bad[] = {"",       "sm_",
                                      "sm_70",  "hopper",
                                      "sm_90b", "compute_90a",
                                      "9.0x",   "-90",
                                      "sm_ 90", "999999999999999999999"};
    char text[BOLIDE__TARGET_TEXT];
    bolide__target t;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        check(bolide__target_parse(good[i].text, &t) &&
                  strcmp(bolide__target_text(t, text), good[i].name) == 0,
              good[i].text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check(!bolide__target_parse(bad[i], &t), bad[i]);
    static const struct {
        int arch;
        const char *name;
    } chips[] = {{75, "sm_75"},       {80, "sm_80"},        {86, "sm_86"},    {87, "sm_86"},
                 {89, "sm_89"},       {90, "sm_90a"},       {100, "sm_100a"}, {103, "sm_103a"},
                 {107, "sm_103"},     {110, "compute_103"}, {120, "sm_120a"}, {121, "sm_120"},
                 {130, "compute_120"}};
    for (size_t i = 0; i < sizeof chips / sizeof chips[0]; i++)
        check(bolide__target_of(chips[i].arch, &t) &&
                  strcmp(bolide__target_text(t, text), chips[i].name) == 0,
              chips[i].name);
    check(!bolide__target_of(72, &t), "older than 7.5");
}

int main(void) {
    start("13");
    test_open();
    test_launch();
    test_refusals();
    test_devices();
    test_capture();
    test_fault();
    test_failures();
    test_threads();
    test_lookup_cost();
    test_ahead();
    test_pretend();
    test_targets();
    return finish();
}
