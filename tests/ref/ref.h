// SPDX-License-Identifier: Apache-2.0
//
// The float64 references, one for each operator: plain loops that anyone can check by eye. A
// reference sees logical, contiguous copies of every input, whatever the dtype, strides or device
// of the tensor that the library sees, and writes one row of the outputs at a time:
//
//     static void scale_ref(const ref_call *c, int64_t row) {
//         const ref_tensor *x = ref_in(c, "input");
//         ref_tensor *y = ref_out(c, "out");
//         for (int64_t i = 0; i < x->shape[1]; i++)
//             y->f64[row * x->shape[1] + i] = 2 * x->f64[row * x->shape[1] + i];
//     }
//     static int64_t scale_rows(const ref_call *c) { return ref_in(c, "input")->shape[0]; }
//     const ref_op ref_scale = {.name = "scale", .defaults = "n=4 d=64",
//                               .rows = scale_rows, .ref = scale_ref};
//
// and its name goes into ref_list.h. Outputs: every element that the reference writes must be
// equal within the tolerance; every element that no row writes must be left as it was, unless the
// reference marks it with ref_any. An in-out tensor is in ref_in as it was before the call.

#ifndef BOLIDE_TESTS_REF_H
#define BOLIDE_TESTS_REF_H

#include <bolide/core.h>

enum { REF_RANK = 8 };

/* A logical tensor: contiguous, f64 for floating dtypes, i64 for integers and bool. The other
 * pointer is NULL. */
typedef struct ref_tensor {
    const char *name;
    int64_t dtype; /* bit of the tensor that the library sees */
    int32_t ndim;
    int64_t shape[REF_RANK];
    int64_t elems;
    double *f64;
    int64_t *i64;
} ref_tensor;

/* A realised problem: shapes, values and numbers of one call. */
typedef struct ref_call ref_call;

typedef enum ref_verdict { REF_DEFAULT, REF_PASS, REF_FAIL } ref_verdict;

typedef struct ref_op {
    const char *name;     /* of the operator */
    const char *defaults; /* keys of a problem that gives none: "n=4 d=64" */
    const char *keys;     /* free keys that dims and fill read, separated by blanks */

    /* Before shapes are known: binds dimension names, sets shapes and numbers, gives optional
     * tensors, all from keys. NULL: the problem's keys say all. */
    void (*dims)(ref_call *c);
    /* After random values have been made: writes those that have a structure (page tables,
     * offsets, probabilities) through ref_values. NULL: random values do. */
    void (*fill)(ref_call *c);

    int64_t (*rows)(const ref_call *c);
    void (*ref)(const ref_call *c, int64_t row);

    /* Length of the longest sum behind an output element; NULL: the last dimension of the first
     * floating input. */
    int64_t (*reduction)(const ref_call *c);
    /* Error that is allowed beside the rounding of the output and of float32 sums, relative to
     * the output's root mean square; NULL: 0. Whoever sets it says why. */
    double (*slack)(const ref_call *c);
    /* Judges one output on its own terms (ties, order, samples); ref_got is what the library
     * wrote. On REF_FAIL, why holds the reason. NULL: element by element. */
    ref_verdict (*compare)(const ref_call *c, const char *output, char *why, size_t bytes);

    /* What a call moves and computes, for bench and for deciding how many rows to check. NULL:
     * every tensor once, no operations. */
    double (*bytes)(const ref_call *c);
    double (*flops)(const ref_call *c);
} ref_op;

/* By operator name; NULL if there is none. */
const ref_op *ref_find(const char *op);

/* ---- reading the call ---------------------------------------------------------------------- */

/* An input or in-out tensor as it was before the call, of the run or else of the plan; NULL if it
 * is absent. For a number-or-tensor the tensor, NULL if a number was given. Members of a list are
 * called "name[0]". */
const ref_tensor *ref_in(const ref_call *c, const char *name);
/* What the reference is to write; NULL if it is absent. */
ref_tensor *ref_out(const ref_call *c, const char *name);
/* What the library wrote; for compare. NULL if it is absent. */
const ref_tensor *ref_got(const ref_call *c, const char *name);

/* Numbers of the run or else of the plan: double; integer, bool (0, 1), enum (index), dtype
 * (bit). Absent: NaN, BOLIDE_NO_INT. The name must be that of a row. */
double ref_f64(const ref_call *c, const char *name);
int64_t ref_i64(const ref_call *c, const char *name);
/* 1 if the enum row has the choice of that name. */
int ref_is(const ref_call *c, const char *name, const char *choice);
/* A number-or-tensor: element `index` of its tensor (a tensor of one element serves all), or its
 * number, or `absent`. */
double ref_number(const ref_call *c, const char *name, int64_t index, double absent);
/* An integer tuple; NULL with count 0 if it is absent. */
const int64_t *ref_tuple(const ref_call *c, const char *name, int64_t *count);

/* 1 if the call runs on a GPU: for slack, where a kernel rounds on the way. */
int ref_on_cuda(const ref_call *c);

/* The value of a dimension name; it must be bound. ref_has_dim: 1 if it is. */
int64_t ref_dim(const ref_call *c, const char *name);
int ref_has_dim(const ref_call *c, const char *name);

/* Free keys of the problem. The list is "3:5:7", or "none"; its count is 0 when the key is not
 * given. */
int64_t ref_key(const ref_call *c, const char *key, int64_t absent);
double ref_key_f64(const ref_call *c, const char *key, double absent);
const char *ref_key_text(const ref_call *c, const char *key);
int64_t ref_key_list(const ref_call *c, const char *key, int64_t *values, int64_t limit);
/* The same of numbers that count something: below `least`, or 0 in a list, they are refused. */
int64_t ref_count(const ref_call *c, const char *key, int64_t absent, int64_t least);
int64_t ref_count_list(const ref_call *c, const char *key, int64_t *values, int64_t limit);

/* ---- for dims and fill ----------------------------------------------------------------------- */

/* Says what is wrong with the keys; the problem is then refused with this sentence. */
void ref_refuse(ref_call *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* In dims. A key of the problem wins over each of these, ref_fix_dim apart: it is for dimensions
 * that follow from other keys, and refuses a key that says otherwise, so that fill can rely on
 * them. */
void ref_set_dim(ref_call *c, const char *name, int64_t value);
void ref_fix_dim(ref_call *c, const char *name, int64_t value);
void ref_set_shape(ref_call *c, const char *tensor, int32_t ndim, const int64_t *shape);
void ref_set_i64(ref_call *c, const char *row, int64_t value);
void ref_set_f64(ref_call *c, const char *row, double value);
void ref_set_dtype(ref_call *c, const char *tensor, int64_t dtype);
void ref_set_count(ref_call *c, const char *list, int64_t count);
/* Passes an optional tensor, or the tensor of a number-or-tensor, that the problem's keys do not
 * mention. */
void ref_give(ref_call *c, const char *tensor);
/* 1 if the tensor is passed, also in dims (from keys and ref_give so far). */
int ref_given(const ref_call *c, const char *tensor);

/* In fill: the logical values of an input or in-out tensor, for reading and writing; they are
 * rounded to the tensor's dtype afterwards. Of a tensor that plan and run both have, write either:
 * they get the same values. NULL if it is absent. */
ref_tensor *ref_values(ref_call *c, const char *name);

/* Random numbers that depend on the problem's seed, a stream of the caller's choice and an index
 * only, so dims and fill can draw the same ones again. */
uint64_t ref_random(const ref_call *c, uint64_t stream, uint64_t index);
double ref_uniform(const ref_call *c, uint64_t stream, uint64_t index); /* [0, 1) */
double ref_normal(const ref_call *c, uint64_t stream, uint64_t index);
/* An integer in low … high, both included. */
int64_t ref_between(const ref_call *c, uint64_t stream, uint64_t index, int64_t low, int64_t high);

/* Zeroed memory of the call for what dims computes and fill and ref read again: the first call
 * makes it, later ones return it. */
void *ref_state(const ref_call *c, size_t bytes);

/* ---- for ref and compare ------------------------------------------------------------------- */

/* Marks output elements that may hold anything after the call. */
void ref_any(ref_tensor *t, int64_t index);
/* 1 if the element was neither written nor marked by the reference. */
int ref_unset(const ref_tensor *t, int64_t index);
/* 1 if it was marked. */
int ref_is_any(const ref_tensor *t, int64_t index);
/* A double rounded once to a dtype and back, for operators that round in between. */
double ref_round(double value, int64_t dtype);
/* What a result is in a dtype of 8 bits: held in its finite range, infinities too, NaN as it is,
 * which is how the conversions of GPUs saturate. Other dtypes leave it alone. */
double ref_held(double value, int64_t dtype);

#endif
