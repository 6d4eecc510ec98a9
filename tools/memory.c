// SPDX-License-Identifier: Apache-2.0
//
// Snapshots of all buffers before a call, and the proof that a call wrote nothing but elements of
// its outputs: no guard, no gap between strided rows, no input.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "case.h"
#include "numeric.h"

static int owns(const driver_tensor *t) {
    return t->present && t->alias < 0;
}

int case_snapshot(driver_case *c) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        if (!owns(t))
            continue;
        const size_t total = (size_t)buffer_total(t->bytes);
        if (!t->before)
            t->before = malloc(total);
        if (!t->before)
            return case_fail(c, "%s: out of memory", c->op->name);
        memcpy(t->before, buffer_begin(t->host), total);
    }
    return 0;
}

void case_restore(driver_case *c) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        driver_tensor *t = &c->tensor[i];
        if (owns(t))
            memcpy(buffer_begin(t->host), t->before, (size_t)buffer_total(t->bytes));
    }
}

int case_is_written(const driver_tensor *t) {
    return t->present && (t->row->kind == BOLIDE_KIND_OUT || t->row->kind == BOLIDE_KIND_INOUT);
}

uint64_t case_bits(const driver_tensor *t, const unsigned char *data, int64_t index) {
    return numeric_load_bits(t->dtype, data, case_place(t, index));
}

const unsigned char *case_before(const driver_case *c, const driver_tensor *t) {
    return (t->alias >= 0 ? &c->tensor[t->alias] : t)->before + BUFFER_GUARD;
}

/* Puts the old bits of the elements of one view into a copy of its buffer. */
static void undo(const driver_tensor *view, const driver_tensor *owner, unsigned char *copy) {
    const unsigned char *before = owner->before + BUFFER_GUARD;
    for (int64_t i = 0; i < view->elems; i++) {
        const int64_t place = case_place(view, i);
        numeric_store_bits(view->dtype, copy + BUFFER_GUARD, place,
                           numeric_load_bits(view->dtype, before, place));
    }
}

static int differs(const driver_tensor *t, const unsigned char *copy, char *why, size_t bytes) {
    const int64_t total = buffer_total(t->bytes);
    if (!memcmp(copy, t->before, (size_t)total))
        return 0;
    int64_t at = 0;
    while (copy[at] == t->before[at])
        at++;
    at -= BUFFER_GUARD;
    (void)snprintf(why, bytes, "%s: byte %lld was written; it is %s", t->name, (long long)at,
                   at < 0               ? "before the tensor"
                   : at >= t->bytes     ? "behind the tensor"
                   : case_is_written(t) ? "in a gap between rows"
                                        : "in an input");
    return -1;
}

int case_untouched(const driver_case *c, char *why, size_t bytes) {
    for (int32_t i = 0; i < c->tensor_count; i++) {
        const driver_tensor *t = &c->tensor[i];
        if (!owns(t))
            continue;
        const size_t total = (size_t)buffer_total(t->bytes);
        unsigned char *copy = malloc(total);
        if (!copy) {
            (void)snprintf(why, bytes, "out of memory");
            return -1;
        }
        memcpy(copy, buffer_begin(t->host), total);
        for (int32_t k = 0; k < c->tensor_count; k++)
            if (case_is_written(&c->tensor[k]) && (k == i || c->tensor[k].alias == i))
                undo(&c->tensor[k], t, copy);
        const int bad = differs(t, copy, why, bytes);
        free(copy);
        if (bad)
            return -1;
    }
    return 0;
}
