// SPDX-License-Identifier: Apache-2.0
//
// How a family says what is tested: for each operator a list of problem strings, which the driver
// (tools/driver.h, where the keys are listed) runs on every backend and instruction set against
// the reference in tests/ref/.
//
//     static const char *const rmsnorm_cases[] = {
//         "rmsnorm n=1,7,64 d=64,100 input=f16,bf16,f32",
//         "rmsnorm n=3 d=128 input.pad=8 out=input",
//         "rmsnorm d=64 eps=nan expect=invalid_argument:eps",
//     };
//     BOLIDE_TEST(rmsnorm, rmsnorm_cases);
//
// Negative tests of every row, strided views, sharing where rows allow it, and that rows cover the
// args structs are derived (negative.c, optional.c, views.c).
// What no problem string can say is a function:
//
//     static void merge_is_associative(unit *u) {
//         UNIT_EXPECT(u, a == b, "expected %d; got %d", a, b);
//     }
//     BOLIDE_UNIT(merge_is_associative);

#ifndef BOLIDE_TESTS_OPS_TEST_H
#define BOLIDE_TESTS_OPS_TEST_H

#include "driver.h"

typedef struct unit unit;

typedef struct op_test {
    const char *name;
    const char *const *cases; /* NULL for a unit */
    int64_t count;
    void (*run)(unit *u);
    int gpu; /* cases for kernels of the GPU alone */
    struct op_test *next;
} op_test;

/* The runner's list; filled before main. */
void op_test_add(op_test *test);

#define BOLIDE_TEST_ENTRY(id, ...)                                                                 \
    __attribute__((constructor)) static void add_##id(void) {                                      \
        static op_test test = {.name = #id, __VA_ARGS__};                                          \
        op_test_add(&test);                                                                        \
    }                                                                                              \
    _Static_assert(1, "a semicolon follows")

#define BOLIDE_TEST(op, array)                                                                     \
    BOLIDE_TEST_ENTRY(op, .cases = (array), .count = sizeof(array) / sizeof(array)[0])
/* Problems that are large enough for a kernel of the GPU, which the CPU has in a smaller form. */
#define BOLIDE_TEST_GPU(id, array)                                                                 \
    BOLIDE_TEST_ENTRY(id, .cases = (array), .count = sizeof(array) / sizeof(array)[0], .gpu = 1)
#define BOLIDE_UNIT(function) BOLIDE_TEST_ENTRY(function, .run = (function))

/* A unit counts as one test: passed unless an expectation failed, skipped if it said so. */
void unit_fail(unit *u, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void unit_skip(unit *u, const char *reason);
/* A number that changes from run to run and is printed with a failure; --seed fixes it. */
uint64_t unit_seed(const unit *u);

#define UNIT_EXPECT(u, condition, ...)                                                             \
    do {                                                                                           \
        if (!(condition))                                                                          \
            unit_fail(u, __FILE__, __LINE__, __VA_ARGS__);                                         \
    } while (0)

/* Tests derived from the rows of every operator, one call an operator: negative.c; and from its
 * default case, of tensors that it leaves out, optional.c, and of views that rows allow, views.c.
 */
void op_test_derived(unit *u, const bolide_op *op);
void op_test_optional(unit *u, const driver_case *usual);
void op_test_views(unit *u, const driver_case *c);

#endif
