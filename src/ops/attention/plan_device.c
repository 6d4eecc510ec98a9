// SPDX-License-Identifier: Apache-2.0
//
// A plan whose lengths stay on the GPU: one kernel (attention_plan.cu) writes the live part from
// them, so that nothing is copied back, nothing waits, and a capture may hold the plan. What the
// host cannot know without the lengths, the declared maxima say.

#include "cuda/cuda.h"
#include "ops/attention/attention_internal.h"

static bool given(int64_t x) {
    return x != BOLIDE_NO_INT;
}

static bolide_status refuse(const bolide__call *call, const char *name, const char *expected,
                            const char *got) {
    return BOLIDE_FAIL_ARG(call, name, "value", bolide__text("%s with plan_on_device", expected),
                           "%s", got);
}

/* Lengths and options that the kernel can plan for. */
bolide_status bolide__attention_check_on_device(const bolide__call *call,
                                                const bolide__attention_problem *pr) {
    if (!pr->on_device)
        return BOLIDE_OK;
    if (pr->use_custom_mask)
        return refuse(call, "use_custom_mask", "0", "1");
    if (pr->disable_split_kv)
        return refuse(call, "disable_split_kv", "0", "1");
    if (given(pr->fixed_split_size) && pr->fixed_split_size > 0)
        return refuse(call, "fixed_split_size", "none",
                      bolide__text("%lld", (long long)pr->fixed_split_size));
    if (pr->last_page_len)
        return refuse(call, pr->name.last_page_len, "NULL", "a tensor");
    if (pr->qo_indptr && !given(pr->max_rows))
        return refuse(call, pr->name.max_rows, "a bound", "none");
    return BOLIDE_OK;
}

static bolide_status on_device(const bolide__call *call, const char *name, const bolide_tensor *t,
                               const int32_t **out) {
    *out = t ? bolide__data(t) : NULL;
    if (!t || t->device.type == BOLIDE_CUDA)
        return BOLIDE_OK;
    return BOLIDE_FAIL_ARG(call, name, "device", "the GPU with plan_on_device", "the host");
}

static bolide_status lengths_of(const bolide__call *call, const bolide__attention_problem *pr,
                                bolide__attention_planner *p) {
    BOLIDE_TRY(on_device(call, pr->name.qo_indptr, pr->qo_indptr, &p->qo));
    BOLIDE_TRY(on_device(call, pr->name.kv_indptr, pr->kv_indptr, &p->kv));
    BOLIDE_TRY(on_device(call, pr->name.kv_len, pr->kv_len, &p->kv_len));
    BOLIDE_TRY(on_device(call, "seq_lens_q", pr->q_len, &p->q_len));
    BOLIDE_TRY(on_device(call, "v_indptr", pr->v_indptr, &p->v));
    return on_device(call, "o_indptr", pr->o_indptr, &p->o);
}

bolide_status bolide__attention_plan_on_device(const bolide__call *call,
                                               const bolide__attention_problem *pr,
                                               const struct bolide__attention_frozen *f,
                                               const bolide__schedule_rules *rules) {
    char *live = pr->workspace->device_int;
    bolide__attention_planner p = {
        .counts = (bolide__schedule_counts *)live,
        .arrivals = (int32_t *)(live + f->arrivals_at),
        .heads = (bolide__attention_head *)(live + f->heads_at),
        .works = (bolide__attention_work *)(live + f->works_at),
        .tile_start = (int32_t *)(live + f->tile_start_at),
        .tiles = (bolide__attention_tile *)(live + f->tiles_at),
        .place = (int64_t *)(live + f->place_at),
        .cuts = (bolide__attention_cut *)(live + f->cuts_at),
        .batch = pr->batch,
        .group = rules->group,
        .tile_rows = rules->tile_rows,
        .workers = rules->workers,
        .h_kv = f->h_kv,
        .max_tiles = f->max_items - f->workers,
        .max_merges = f->max_merges,
        .q_len_per_req = pr->q_len_per_req,
        .max_kv_len = given(pr->max_kv_len) ? pr->max_kv_len : INT32_MAX,
        .causal = rules->causal,
        .window_left = rules->window_left,
        .tile_cost = rules->tile_cost,
        .min_chunk = rules->min_chunk,
        .granule = rules->granule,
        .least_busy = rules->least_busy,
        .merged_apart = f->merged_apart,
    };
    BOLIDE_TRY(lengths_of(call, pr, &p));
    const bolide__spec s = BOLIDE_SPEC("attention/attention_plan.cu", "bolide_attention_plan");
    BOLIDE_TRY(bolide__cuda_launch(call, &s, &(bolide__grid){.x = 1, .block = 1024}, &p, sizeof p));
    bolide__attention_plan *plan = (bolide__attention_plan *)pr->plan;
    const int64_t rows = pr->q_len_per_req ? pr->batch * pr->q_len_per_req : pr->max_rows;
    plan->frozen = *f;
    /* How many rows of out there are o_indptr alone knows. */
    plan->now = (struct bolide__attention_now){
        .batch = pr->batch, .rows = rows, .out_rows = pr->o_indptr ? BOLIDE_NO_INT : rows};
    plan->head.magic = pr->magic;
    return BOLIDE_OK;
}
