// SPDX-License-Identifier: Apache-2.0
//
// The compile gate: the kernels that the cases of all families need, compiled for every target,
// without a GPU.

#ifndef BOLIDE_TESTS_OPS_GATE_H
#define BOLIDE_TESTS_OPS_GATE_H

#include "problem.h"

/* Calls visit with every problem of every table whose text has the filter in it (NULL: all). */
void op_test_each(const char *filter, void (*visit)(void *user, const problem *p), void *user);

/* targets: names separated by commas, or "all". full 0: the first spec of each kernel, 1: all.
 * Prints a line for each failure and the line of counts; returns the exit status. */
int gate_run(const char *targets, int full, const char *filter);

#endif
