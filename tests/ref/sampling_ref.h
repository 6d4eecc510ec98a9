// SPDX-License-Identifier: Apache-2.0
//
// What the references of the sampling family share: random numbers, a row as a filtered
// distribution, and rows and limits that visit the edges.

#ifndef BOLIDE_TESTS_SAMPLING_REF_H
#define BOLIDE_TESTS_SAMPLING_REF_H

#include "ref.h"

/* Philox 4x32-10 of a key and a counter. */
void ref_philox(uint64_t seed, const uint32_t counter[4], uint32_t word[4]);
/* The block of draw n of an output row, and its first 53 bits as a number in [0, 1). */
void ref_words(const ref_call *c, int64_t row, uint32_t n, uint32_t word[4]);
double ref_unit(const ref_call *c, int64_t row, uint32_t n);

typedef struct ref_filter {
    double p, min_p;
    int64_t k;
    int joint;
} ref_filter;

typedef struct ref_dist {
    int64_t v;
    double *x, *m;   /* values and masses */
    double *sorted;  /* values, the largest first */
    double least;    /* values from here on are kept */
    double kept;     /* their mass */
    double target;   /* of top-p; infinity without */
    double by_count; /* least value of top-k, if counted */
    int counted, greedy;
} ref_dist;

ref_dist ref_dist_of(const double *values, int64_t v, int logits, ref_filter f);
void ref_dist_free(ref_dist *d);
int64_t ref_dist_draw(const ref_dist *d, double u);
/* 1 if id is right within 1e-5 of a boundary. */
int ref_dist_near(const ref_dist *d, int64_t id, double u);
double ref_mass_above(const ref_dist *d, double x);
double ref_mass_from(const ref_dist *d, double x);

ref_verdict ref_judge_ids(const ref_call *c, const char *output,
                          int (*near)(const ref_call *c, int64_t row, int64_t id), int64_t v,
                          char *why, size_t bytes);

void ref_fill_row(const ref_call *c, double *x, int64_t row, int64_t v, int logits);
void ref_fill_limits(ref_call *c, int64_t v);

#endif
