// SPDX-License-Identifier: Apache-2.0
//
// What the files of the checks share: the whole of them (check.c), one quick pass over the usual
// call (check_usual.c), and overlaps of memory (check_overlap.c).

#ifndef BOLIDE_CORE_CHECK_PARTS_H
#define BOLIDE_CORE_CHECK_PARTS_H

#include <string.h>

#include "core/op.h"

/* Fields of an args struct, at the offset that a row gives. */
static inline int64_t bolide__read_i64(const char *p) {
    int64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline double bolide__read_f64(const char *p) {
    double v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline const void *bolide__read_pointer(const char *p) {
    const void *v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* A tensor that is present, and the bytes that it reaches. */
typedef struct bolide__seen {
    const bolide_tensor *t;
    uintptr_t low, high; /* lowest and one past the highest byte; equal: none */
    int row;
    int written; /* whether the row is an output */
} bolide__seen;

/* Forgets every name, then takes those that the plan holds. */
static inline void bolide__begin_dims(bolide__call *call, const void *plan) {
    const int count = call->program->name_count, known = plan ? call->program->plan_count : 0;
    const bolide__plan_dim *d = call->op->plan_dims;
    int64_t *dims = call->dims;
    for (int i = known & ~3; i < count; i += 4) /* a multiple of 4 has room */
        dims[i] = dims[i + 1] = dims[i + 2] = dims[i + 3] = INT64_MIN;
    for (int i = 0; i < known; i++)
        dims[i] = bolide__read_i64((const char *)plan + d[i].offset);
}

/* All rows in their order, with the message of the first that does not hold. */
bolide_status bolide__check_every_row(bolide__call *call, const void *plan, int sizes_only);

/* The number of tensors, which it lists in all, if every row of the call certainly holds, with the
 * names bound as the full checks bind them; -1 if it holds no such view, right or wrong. Overlaps
 * are not looked at. */
int bolide__check_usual(bolide__call *call, const void *plan, bolide__seen *all);

/* No output shares memory with another tensor but where its row says so. */
bolide_status bolide__check_overlaps(const bolide__call *call, const bolide__seen *all, int count);

#endif
