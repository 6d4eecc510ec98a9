// SPDX-License-Identifier: Apache-2.0
//
// One sample a row from probabilities or logits under a filter: find the least value that is kept,
// sum what is kept tile by tile, draw. The row is read once from memory; later passes find it in
// cache.

#include "ops/sampling/select.h"

typedef bolide__sample_params params;

/* Index of the row of input that output row i samples from; -1 if indices points outside. */
static int64_t source_row(const params *p, int64_t i) {
    const int64_t row = p->indices ? bolide__id_at(p->indices, p->indices_dtype, i) : i;
    return row >= 0 && row < p->n ? row : -1;
}

static int64_t greedy(const select_row *r, bool *valid) {
    const float max = r->kind == ROW_LOGITS ? r->max : select_max(r);
    *valid = max > (r->kind == ROW_LOGITS ? -INFINITY : 0.0f);
    return *valid ? select_first(r, max) : 0;
}

static float least_kept(const params *p, const select_row *r, int64_t i, float top_p) {
    if (p->filter == BOLIDE__FILTER_NONE)
        return select_all(r);
    if (p->filter == BOLIDE__FILTER_MIN_P) {
        const float share = top_p > 1.0f ? 1.0f : top_p; /* the largest itself always stays */
        const float least = share > 0.0f ? share * select_max(r) : 0.0f;
        return least > FLT_TRUE_MIN ? least : FLT_TRUE_MIN;
    }
    selector s;
    return select_by_mass(&s, r, bolide__row_int(&p->top_k, i), top_p,
                          p->filter == BOLIDE__FILTER_JOINT);
}

static int64_t sample(const params *p, int64_t i, bool *valid) {
    const int64_t row = source_row(p, i);
    *valid = false;
    if (row < 0)
        return 0;
    select_row r = {.data = dtype_at(p->input, p->dtype, row * p->input_n),
                    .dtype = p->dtype,
                    .v = p->v,
                    .kind = p->logits ? ROW_LOGITS : ROW_PROBS,
                    .total = 1.0};
    if (p->logits) {
        r.max = select_max(&r);
        if (r.max == -INFINITY)
            return 0;
    }
    const bool filtered = p->filter != BOLIDE__FILTER_NONE;
    const float top_p = filtered ? bolide__row_float(&p->top_p, i) : 1.0f;
    if (filtered && p->filter != BOLIDE__FILTER_MIN_P && top_p <= 0.0f)
        return greedy(&r, valid);
    const double u = uniform53((uint64_t)bolide__row_int(&p->seed, i),
                               (uint64_t)bolide__row_int(&p->offset, i), (uint64_t)i, 0);
    return select_draw(&r, least_kept(p, &r, i, top_p), u, valid);
}

void BOLIDE_ISA(sample_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    const params *p = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        bool valid;
        bolide__id_put(p->samples, p->id_dtype, i, sample(p, i, &valid));
        if (p->valid)
            p->valid[i] = valid;
    }
}
