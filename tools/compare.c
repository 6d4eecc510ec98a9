// SPDX-License-Identifier: Apache-2.0
//
// The judgement: what the library wrote against the float64 reference. Element by element within a
// tolerance that follows from the dtype and the length of the longest sum, and as a whole tensor by
// 1 − 2⟨a,b⟩/(⟨a,a⟩+⟨b,b⟩), which finds a structural error that each element could hide.

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "case.h"
#include "compare.h"
#include "numeric.h"

/* Rows are sampled above this many operations: the edges and 256 others. */
static const double every_row_flops = 2e9;
enum { SAMPLED_ROWS = 256, EDGE_ROWS = 2 };

/* A float32 sum of n terms errs like sqrt(n), relative to the size of the terms, for which the
 * output's root mean square stands, though not below the normal numbers. One after the other, a
 * thousand products of normal numbers err by 0.4 sqrt(n) units on the mean; one sum in 4 million by
 * more than 2.2, and each further half makes that 40 times rarer. So an element may be off by 4,
 * which no run of the tests sees by chance, and the mean of a tensor by 2. */
static double sum_error(int64_t reduction, double deviations) {
    return (8 + deviations * sqrt((double)(reduction > 0 ? reduction : 1))) * ldexp(1, -24);
}

/* Beside the sums one unit in the last place of the result, since a float32 value beside a rounding
 * boundary may fall to either side, and the smallest number of the dtype. */
static double tolerance_of(int64_t dtype, double sums, double want, double rms, double slack) {
    const double size = fmax(fabs(want), rms);
    return numeric_ulp(dtype) * fabs(want) + slack * size + sums * fmax(size, FLT_MIN) +
           numeric_smallest(dtype);
}

double driver_tolerance(int64_t dtype, int64_t reduction, double want, double rms, double slack) {
    return tolerance_of(dtype, sum_error(reduction, 4), want, rms, slack);
}

/* Bound of the whole-tensor measure. With a relative error of e in each element it is e^2/2; half
 * an ulp at most comes from rounding, or half the smallest number. */
static double measure_bound(int64_t dtype, int64_t reduction, double slack, double rms) {
    const double sums = sum_error(reduction, 2);
    const double e =
        tolerance_of(dtype, sums, 1, 1, slack) + tolerance_of(dtype, sums, 0, 0, 0) / rms;
    return e * e;
}

static int64_t default_reduction(const driver_case *c) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        const driver_tensor *t = &c->tensor[i];
        if (t->present && t->phase == BOLIDE_RUN && t->row->kind == BOLIDE_KIND_IN &&
            numeric_is_float(t->dtype) && t->ndim > 0)
            return t->shape[t->ndim - 1];
    }
    return 1;
}

/* ---- one output --------------------------------------------------------------------------- */

typedef struct judge {
    driver_case *c;
    const driver_tensor *t;
    const ref_tensor *want, *got;
    const unsigned char *before;
    int sampled; /* some rows were not computed, so unset elements say nothing */
    int64_t reduction;
    double rms, slack;
    driver_report *report;
} judge;

static int fail_at(const judge *j, int64_t index, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "out[3, 17]: " and the reason; always -1. */
static int fail_at(const judge *j, int64_t index, const char *format, ...) {
    int64_t at[REF_RANK];
    for (int32_t i = j->t->ndim - 1; i >= 0; i--) {
        at[i] = index % j->t->shape[i];
        index /= j->t->shape[i];
    }
    char *text = j->report->text;
    size_t used = (size_t)snprintf(text, DRIVER_ERROR, "%s[", j->t->name);
    for (int32_t i = 0; i < j->t->ndim; i++)
        used += (size_t)snprintf(text + used, DRIVER_ERROR - used, "%s%lld", i ? ", " : "",
                                 (long long)at[i]);
    used += (size_t)snprintf(text + used, DRIVER_ERROR - used, "]: ");
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text + used, DRIVER_ERROR - used, format, list);
    va_end(list);
    return -1;
}

static int fail_value(const judge *j, int64_t index, double tolerance) {
    return fail_at(j, index, "expected %.9g; got %.9g (tolerance %.3g)", j->want->f64[index],
                   j->got->f64[index], tolerance);
}

/* Of the elements that are not 0: rows that saw nothing would make the terms of others look small.
 */
static double root_mean_square(const ref_tensor *t) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < t->elems; i++) {
        if (isfinite(t->f64[i]) && t->f64[i] != 0) {
            sum += t->f64[i] * t->f64[i];
            count++;
        }
    }
    return count ? sqrt(sum / (double)count) : 0;
}

static int judge_float(judge *j, int64_t i) {
    const double want = j->want->f64[i], got = j->got->f64[i];
    const double tolerance = driver_tolerance(j->t->dtype, j->reduction, want, j->rms, j->slack);
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : fail_value(j, i, 0);
    if (want == got)
        return 0;
    if (isinf(want))
        return fail_value(j, i, 0);
    /* Near the largest number either neighbour of the boundary to infinity is right. */
    const double outward = numeric_round(want + copysign(tolerance, want), j->t->dtype);
    if (isinf(got))
        return outward == got ? 0 : fail_value(j, i, tolerance);
    const double error = fabs(got - want) / tolerance;
    if (error > j->report->worst)
        j->report->worst = error;
    return error <= 1 ? 0 : fail_value(j, i, tolerance);
}

static int judge_unset(judge *j, int64_t i) {
    if (j->sampled)
        return 0;
    if (case_bits(j->t, case_host(j->c, j->t), i) == case_bits(j->t, j->before, i))
        return 0;
    return fail_at(j, i, "was written; it should be left alone");
}

/* The measure 1 - 2ab / (aa + bb) over finite elements that the reference wrote, from differences:
 * from its three sums it would carry their rounding, which many equal elements make as large as the
 * bound of float32. */
static int judge_whole(judge *j) {
    double aa = 0, bb = 0, apart = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < j->want->elems; i++) {
        const double a = j->want->f64[i], b = j->got->f64[i];
        if (!isfinite(a) || !isfinite(b))
            continue;
        aa += a * a;
        bb += b * b;
        apart += (a - b) * (a - b);
        count++;
    }
    if (count < 32 || aa == 0)
        return 0;
    const double measure = apart / (aa + bb);
    const double bound = measure_bound(j->t->dtype, j->reduction, j->slack, j->rms) + 1e-14;
    if (measure <= bound)
        return 0;
    (void)snprintf(j->report->text, sizeof j->report->text,
                   "%s: the whole tensor differs: measure %.3g; at most %.3g", j->t->name, measure,
                   bound);
    return -1;
}

static int judge_elements(judge *j) {
    if (j->want->f64)
        j->rms = root_mean_square(j->want);
    for (int64_t i = 0; i < j->want->elems; i++) {
        int bad;
        if (ref_is_any(j->want, i))
            continue;
        if (ref_unset(j->want, i))
            bad = judge_unset(j, i);
        else if (j->want->f64)
            bad = judge_float(j, i);
        else
            bad = j->want->i64[i] == j->got->i64[i]
                      ? 0
                      : fail_at(j, i, "expected %lld; got %lld", (long long)j->want->i64[i],
                                (long long)j->got->i64[i]);
        if (bad)
            return -1;
        j->report->compared++;
    }
    return j->want->f64 ? judge_whole(j) : 0;
}

static int judge_output(judge *j) {
    const ref_op *ref = j->c->ref;
    if (ref->compare) {
        char why[DRIVER_ERROR / 2] = "";
        switch (ref->compare(j->c, j->t->name, why, sizeof why)) {
        case REF_PASS:
            j->report->compared += j->t->elems;
            return 0;
        case REF_FAIL:
            (void)snprintf(j->report->text, sizeof j->report->text, "%s: %s", j->t->name, why);
            return -1;
        default:
            break;
        }
    }
    j->want = ref_out(j->c, j->t->name);
    j->got = ref_got(j->c, j->t->name);
    j->before = case_before(j->c, j->t);
    return judge_elements(j);
}

/* ---- all outputs -------------------------------------------------------------------------- */

/* 1 if only some rows were computed. */
static int run_reference(driver_case *c) {
    const ref_op *ref = c->ref;
    const int64_t rows = ref->rows(c);
    const double flops = ref->flops ? ref->flops(c) : 0;
    if (flops <= every_row_flops || rows <= SAMPLED_ROWS + 2 * EDGE_ROWS) {
        for (int64_t row = 0; row < rows; row++)
            ref->ref(c, row);
        return 0;
    }
    for (int64_t row = 0; row < EDGE_ROWS; row++) {
        ref->ref(c, row);
        ref->ref(c, rows - 1 - row);
    }
    for (uint64_t i = 0; i < SAMPLED_ROWS; i++)
        ref->ref(c, (int64_t)(numeric_mix(c->seed, 9, i) % (uint64_t)rows));
    return 1;
}

int case_compare(driver_case *c, driver_report *report) {
    const int sampled = run_reference(c);
    for (int32_t i = 0; i < c->tensor_count; i++) {
        if (!case_is_written(&c->tensor[i]) || c->tensor[i].phase != BOLIDE_RUN)
            continue;
        judge j = {.c = c, .t = &c->tensor[i], .sampled = sampled, .report = report};
        j.reduction = c->ref->reduction ? c->ref->reduction(c) : default_reduction(c);
        j.slack = c->ref->slack ? c->ref->slack(c) : 0;
        if (judge_output(&j))
            return -1;
    }
    if (c->error[0]) {
        (void)snprintf(report->text, sizeof report->text, "%s", c->error);
        return -1;
    }
    return 0;
}
