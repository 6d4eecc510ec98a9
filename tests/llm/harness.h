// SPDX-License-Identifier: Apache-2.0
//
// A harness of a few lines for the language-model tests: a test is a function, a failed CHECK
// prints where and what and lets the test go on, and a test that cannot run says why.  Each
// program ends with "N passed, N failed, N skipped" and exits 1 if anything failed.
#ifndef BOLIDE_TESTS_LLM_HARNESS_H
#define BOLIDE_TESTS_LLM_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Sanitizers and machines without vector kernels, which are emulated as a rule, take the real model
// ten to a hundred times as long: tests then run the same checks on fewer tokens.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define LLM_SLOW 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__x86_64__)
#define LLM_SLOW 1
#endif
#if defined(__x86_64__)
#define LLM_EMULATED 0
#else
#define LLM_EMULATED 1
#endif
#if !defined(LLM_SLOW)
#define LLM_SLOW 0
#endif

typedef struct {
    const char *name;
    void (*run)(void);
} llm_test;

#define LLM_TEST(function)                                                                         \
    { #function, function }

// Notes a failure of the running test.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void llm_check_failed(const char *file, int line, const char *format, ...);

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            llm_check_failed(__FILE__, __LINE__, "%s", #condition);                                \
        }                                                                                          \
    } while (0)

// The same with a message that shows the values.
#define CHECK_MSG(condition, ...)                                                                  \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            llm_check_failed(__FILE__, __LINE__, __VA_ARGS__);                                     \
        }                                                                                          \
    } while (0)

// Marks the running test as skipped; the test returns afterwards.
void llm_skip(const char *reason);

// Runs all tests, or those whose name contains argv[1]; returns the exit status.
int llm_run_tests(const llm_test *tests, size_t count, int argc, char **argv);

// The model file that the tests may use: $BOLIDE_LLM_MODEL, else the file in the cache where the
// fetching script puts it.  NULL, with the running test marked as skipped, where there is none.
const char *llm_model_path(void);

// Small random generator with a stated seed: the same numbers on every machine.
typedef struct {
    uint64_t state;
} llm_random;

uint64_t llm_random_next(llm_random *random);
uint64_t llm_random_below(llm_random *random, uint64_t n);

#endif
