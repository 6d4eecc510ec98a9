// SPDX-License-Identifier: Apache-2.0
//
// Times one problem: many instances of it, together four times as large as the last cache, called
// in turn, so that no call finds its data in a cache. On the CPU each sample is followed by a sweep
// over as many bytes or by as many multiply-adds: what else the machine does takes from all three.

#ifndef BOLIDE_TOOLS_BENCH_H
#define BOLIDE_TOOLS_BENCH_H

#include "cpu/roofline.h"
#include "driver.h"
#include "roofline.h"

typedef struct bench_result {
    double us;      /* median of the samples */
    double us_min;  /* the fastest */
    double spread;  /* from the 10th to the 90th percentile, relative to the median */
    double bytes;   /* that a call has to move */
    double flops;   /* that a call has to do; 0: unknown */
    int64_t calls;  /* that were timed */
    int32_t copies; /* instances of the problem in turn */
    roofline limit; /* medians, on the CPU of sweeps and chains in turn with the samples */
} bench_result;

typedef struct bench_options {
    const bolide_context *ctx;
    double seconds;          /* to spend on the samples */
    int64_t cache;           /* bytes of the last cache */
    bolide__roofline *meter; /* on the CPU */
    roofline device_limit;   /* on a CUDA device, measured before */
} bench_options;

/* A problem with its instances; it can be measured again and again. */
typedef struct bench bench;

/* NULL, with a sentence in error (DRIVER_ERROR bytes). The options are kept. */
bench *bench_open(const problem *p, const bench_options *options, char *error);

/* 0, or -1 with a sentence in error. */
int bench_measure(bench *b, bench_result *result, char *error);

void bench_close(bench *b); /* NULL: nothing */

/* The ceiling that binds: its name, and its time for the call in microseconds. */
const char *bench_ceiling(const bench_result *result, double *us);

#endif
