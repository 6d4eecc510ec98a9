// SPDX-License-Identifier: Apache-2.0
//
// The compile gate: the kernels that the cases of all families need, compiled for every target,
// without a GPU.

#ifndef BOLIDE_TESTS_OPS_GATE_H
#define BOLIDE_TESTS_OPS_GATE_H

#include "problem.h"

/* Calls visit with every problem of every table whose text has the filter in it (NULL: all). */
void op_test_each(const char *filter, void (*visit)(void *user, const problem *p), void *user);

typedef struct gate_options {
    const char *targets;   /* names separated by commas, or "all" */
    const char *filter;    /* NULL: all cases */
    int full;              /* 0: the first spec of each kernel, 1: all */
    int64_t shard, shards; /* of the specs of each target, this part of so many */
    int64_t seconds;       /* 0: no limit; else targets share them, and what is left is skipped */
} gate_options;

/* Prints a line for each failure and the line of counts; returns the exit status. */
int gate_run(const gate_options *options);

#endif
