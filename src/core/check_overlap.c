// SPDX-License-Identifier: Apache-2.0
//
// Which tensors of a call may share memory: an output may be exactly the input that its row names.
// Any other shared byte is refused. Strided views of one buffer (q and k of a fused projection)
// interleave without sharing one, so they pass: two views are compared stride by stride, from the
// widest one down, which for views of one buffer takes a few steps. Should layouts be so strange
// that it takes many, they pass unseen.

#include "core/check_parts.h"
#include "core/check_text.h"

static const bolide_param *rows_of(const bolide__call *call) {
    return call->phase == BOLIDE_PLAN ? call->op->plan.rows : call->op->run.rows;
}

static bool same_view(const bolide_tensor *a, const bolide_tensor *b) {
    if (bolide__data(a) != bolide__data(b) || a->ndim != b->ndim ||
        bolide__elem_bytes(a) != bolide__elem_bytes(b))
        return false;
    for (int32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] != b->shape[i] ||
            (a->shape[i] != 1 && bolide__stride(a, i) != bolide__stride(b, i)))
            return false;
    }
    return true;
}

/* ---- whether two views share a byte -------------------------------------------------------- */

/* What a view reaches: runs of bytes at sums of steps. */
typedef struct axis {
    int64_t stride, size; /* bytes, more than 1 step */
} axis;

typedef struct reach {
    axis at[BOLIDE__MAX_NDIM]; /* the widest stride first */
    int count;
    int64_t run; /* bytes of a run */
} reach;

enum { MOST_STEPS = 1000 };

static void add_axis(reach *r, axis a) {
    int i = r->count++;
    for (; i > 0 && r->at[i - 1].stride < a.stride; i--)
        r->at[i] = r->at[i - 1];
    r->at[i] = a;
}

static reach reach_of(const bolide_tensor *t) {
    const int64_t bytes = bolide__elem_bytes(t);
    reach r = {.run = bytes};
    for (int32_t i = 0; i < t->ndim; i++) {
        const int64_t stride = bolide__stride(t, i) * bytes;
        if (t->shape[i] > 1 && stride != 0)
            add_axis(&r, (axis){stride < 0 ? -stride : stride, t->shape[i]});
    }
    while (r.count > 0 && r.at[r.count - 1].stride <= r.run) { /* runs that touch are one */
        const axis inner = r.at[--r.count];
        r.run += inner.stride * (inner.size - 1);
    }
    return r;
}

/* Bytes from the first to the last of a view without its first axes. */
static int64_t extent(const reach *r, int from) {
    int64_t bytes = r->run;
    for (int i = from; i < r->count; i++)
        bytes += r->at[i].stride * (r->at[i].size - 1);
    return bytes;
}

/* Whether a, without its first axes, shares a byte with b, which begins `apart` bytes behind it. */
static bool meets(const reach *a, int a_from, const reach *b, int b_from, int64_t apart,
                  int *steps) {
    if (--*steps < 0 || apart >= extent(a, a_from) || apart + extent(b, b_from) <= 0)
        return false;
    const int64_t wide_a = a_from < a->count ? a->at[a_from].stride : 0;
    const int64_t wide_b = b_from < b->count ? b->at[b_from].stride : 0;
    const int64_t stride = wide_a > wide_b ? wide_a : wide_b;
    if (stride == 0)
        return true;
    const int a_rest = a_from + (wide_a == stride), b_rest = b_from + (wide_b == stride);
    /* b's part k steps further than a's; only those whose ranges meet. */
    const int64_t before = wide_a == stride ? a->at[a_from].size - 1 : 0;
    const int64_t behind = wide_b == stride ? b->at[b_from].size - 1 : 0;
    int64_t low = (-apart - extent(b, b_rest)) / stride,
            high = (extent(a, a_rest) - apart) / stride;
    low = low - 1 < -before ? -before : low - 1;
    high = high + 1 > behind ? behind : high + 1;
    for (int64_t k = low; k <= high; k++)
        if (meets(a, a_rest, b, b_rest, apart + k * stride, steps))
            return true;
    return false;
}

static bool share_a_byte(const bolide__seen *a, const bolide__seen *b) {
    int steps = MOST_STEPS;
    const reach ra = reach_of(a->t), rb = reach_of(b->t);
    return meets(&ra, 0, &rb, 0, (int64_t)(b->low - a->low), &steps);
}

/* ---- all pairs ------------------------------------------------------------------------------ */

/* Two ranges that meet; other may come before or after out in the rows. */
static __attribute__((noinline)) bolide_status
check_pair(const bolide__call *call, const bolide__seen *out, const bolide__seen *other) {
    const bolide_param *r = &rows_of(call)[out->row], *o = &rows_of(call)[other->row];
    const bool seen_before = other < out && other->written;
    const bool alias = call->program->rows[out->row].alias_row == other->row;
    if (seen_before || (alias && same_view(out->t, other->t)))
        return BOLIDE_OK;
    if (!share_a_byte(out, other))
        return BOLIDE_OK;
    const uintptr_t high = other->high < out->high ? other->high : out->high;
    const uintptr_t low = other->low > out->low ? other->low : out->low;
    return BOLIDE_FAIL_ARG(call, r->name, "memory", bolide__text("no overlap with %s", o->name),
                           "ranges that share %llu bytes", (unsigned long long)(high - low));
}

bolide_status bolide__check_overlaps(const bolide__call *call, const bolide__seen *all, int count) {
    for (const bolide__seen *out = all, *end = all + count; out < end; out++) {
        const uintptr_t low = out->low, high = out->high;
        if (!out->written || low == high)
            continue;
        for (const bolide__seen *o = all; o < end; o++)
            if (o->low < high && low < o->high && o != out && o->low != o->high)
                BOLIDE_TRY(check_pair(call, out, o));
    }
    return BOLIDE_OK;
}
