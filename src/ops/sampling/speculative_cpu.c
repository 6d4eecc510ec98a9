// SPDX-License-Identifier: Apache-2.0
//
// Speculative sampling of a chain of drafts. Tests look at one probability a draft; the emitted
// token reads one row of the target and, after a rejection, one of the draft.

#include "ops/sampling/select.h"

typedef bolide__speculative_params params;

typedef struct request {
    const float *draft, *target; /* [n, v], [n+1, v] */
    uint64_t seed, offset, row;
} request;

/* A probability as the draw sees it. */
static double scrub(float x) {
    return !(x > 0.0f) ? 0.0 : x > FLT_MAX ? (double)FLT_MAX : (double)x;
}

static bool accepts(const params *p, const request *q, int64_t i, int64_t id) {
    if (id < 0 || id >= p->v)
        return false;
    const double draft = scrub(q->draft[i * p->draft_n + id]);
    const double target = scrub(q->target[i * p->target_n + id]);
    return uniform53(q->seed, q->offset, q->row, (uint64_t)i) * draft < target;
}

/* The token behind `count` accepted drafts. */
static int64_t emit(const params *p, const request *q, int64_t count) {
    const double u = uniform53(q->seed, q->offset, q->row, (uint64_t)p->n);
    select_row r = {
        .data = q->target + count * p->target_n, .dtype = BOLIDE_F32, .v = p->v, .kind = ROW_PROBS};
    bool valid = false;
    int64_t id = 0;
    if (count < p->n) {
        r.kind = ROW_RESIDUAL;
        r.minus = q->draft + count * p->draft_n;
        id = select_draw(&r, FLT_TRUE_MIN, u, &valid);
        r.kind = ROW_PROBS;
    }
    return valid ? id : select_draw(&r, FLT_TRUE_MIN, u, &valid);
}

static void run_request(const params *p, int64_t b) {
    const request q = {p->draft + b * p->draft_b, p->target + b * p->target_b,
                       (uint64_t)bolide__row_int(&p->seed, b),
                       (uint64_t)bolide__row_int(&p->offset, b), (uint64_t)b};
    int64_t emitted = 0, accepted = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const int64_t id = bolide__id_at(p->ids, p->id_dtype, b * p->ids_b + i);
        const bool ok = accepts(p, &q, i, id);
        accepted += ok;
        if (ok && emitted == i)
            emitted++;
        bolide__id_put(p->out, p->out_dtype, b * p->out_b + i, emitted > i ? id : -1);
    }
    for (int64_t i = emitted; i <= p->n; i++)
        bolide__id_put(p->out, p->out_dtype, b * p->out_b + i, i == emitted ? emit(p, &q, i) : -1);
    if (p->accepted)
        p->accepted[b] += (int32_t)accepted;
    if (p->emitted)
        p->emitted[b] += (int32_t)emitted;
}

void BOLIDE_ISA(speculative_rows)(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t b = begin; b < end; b++)
        run_request(arg, b);
}
