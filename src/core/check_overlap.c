// SPDX-License-Identifier: Apache-2.0
//
// Which tensors of a call may share memory: an output may be exactly the input that its row names.
// Any other overlap is refused where it is certain: the same first byte, or two dense ranges that
// meet. Strided views of one buffer (q and k of a fused projection) interleave without sharing an
// element, so they pass.

#include "core/check_parts.h"
#include "core/check_text.h"

static const bolide_param *rows_of(const bolide__call *call) {
    return call->phase == BOLIDE_PLAN ? call->op->plan.rows : call->op->run.rows;
}

static bool is_written(const bolide_param *r) {
    return r->kind == BOLIDE_KIND_OUT || r->kind == BOLIDE_KIND_INOUT;
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

/* Two ranges that meet; other may come before or after out in the rows. */
static bolide_status check_pair(const bolide__call *call, const bolide__seen *out,
                                const bolide__seen *other) {
    const bolide_param *r = &rows_of(call)[out->row], *o = &rows_of(call)[other->row];
    const bool seen_before = other < out && is_written(o);
    const bool alias = call->program->rows[out->row].alias_row == other->row;
    if (seen_before || (alias && same_view(out->t, other->t)))
        return BOLIDE_OK;
    if (out->low != other->low &&
        !(bolide__is_contiguous(out->t) && bolide__is_contiguous(other->t)))
        return BOLIDE_OK;
    const uintptr_t high = other->high < out->high ? other->high : out->high;
    const uintptr_t low = other->low > out->low ? other->low : out->low;
    return BOLIDE_FAIL_ARG(call, r->name, "memory", bolide__text("no overlap with %s", o->name),
                           "%llu bytes shared", (unsigned long long)(high - low));
}

bolide_status bolide__check_overlaps(const bolide__call *call, const bolide__seen *all, int count) {
    const bolide_param *rows = rows_of(call);
    for (const bolide__seen *out = all, *end = all + count; out < end; out++) {
        if (!is_written(&rows[out->row]) || out->low == out->high)
            continue;
        for (const bolide__seen *o = all; o < end; o++)
            if (o->low < out->high && out->low < o->high && o != out && o->low != o->high)
                BOLIDE_TRY(check_pair(call, out, o));
    }
    return BOLIDE_OK;
}
