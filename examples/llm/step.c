// SPDX-License-Identifier: Apache-2.0
//
// A step of the engine: which rows it has, the lists that say where their keys lie, and whether it
// is computed call by call or by a graph.
//
// On a GPU a decode step is a graph of some hundred kernels.  What changes from step to step lies
// in memory that the graph only points to: the lists, the plan of attention and the embedded
// tokens, which are copied there before the graph is launched.  So one graph serves all lengths;
// its batch is a power of two, and rows that no request has see no key and are appended nowhere.
// The first step of a batch size is run call by call, so that all kernels are compiled and all
// memory is there; the second one is captured.

#include <string.h>

#include "engine_internal.h"

// ---- rows -------------------------------------------------------------------------------------

// Chunks end at multiples of LLM_CHUNK of the prompt's position, whatever else runs.
static size_t next_chunk(const llm_request *r) {
    const size_t left = r->tokens.count - r->done;
    const size_t room = LLM_CHUNK - r->done % LLM_CHUNK;
    return left < room ? left : room;
}

static bool has_logits(const llm_request *r) {
    return r->done + r->chunk == r->tokens.count && r->max_new > 0;
}

static bool take_rows(llm_engine *e, llm_error *error) {
    llm_step *s = &e->step;
    *s = (llm_step){.decode = true, .batch = e->n_requests};
    for (int64_t r = 0; r < e->n_requests; r++) {
        llm_request *request = &e->requests[r];
        request->chunk = next_chunk(request);
        if (!llm_take_pages(e, request, request->done + request->chunk, error))
            return false;
        s->rows += (int64_t)request->chunk;
        s->decode = s->decode && request->chunk == 1 && has_logits(request);
    }
    if (llm_on_gpu(&e->device) && s->decode) {
        while (s->batch & (s->batch - 1))
            s->batch += s->batch & -s->batch;
        s->rows = s->batch;
    }
    s->entries = e->pages + e->settings.max_requests * e->shared.n_pages;
    return true;
}

// ---- lists ------------------------------------------------------------------------------------

static llm_lists lists_at(int32_t *memory, const llm_step *s) {
    llm_lists l = {.positions = memory};
    l.batch_indices = l.positions + s->rows;
    l.kv_indptr = l.batch_indices + s->rows;
    l.last_page_len = l.kv_indptr + s->batch + 1;
    l.kv_indices = l.last_page_len + s->batch;
    return l;
}

static bool room_for_lists(llm_engine *e, llm_error *error) {
    llm_step *s = &e->step;
    const int64_t count = 2 * s->rows + 2 * s->batch + 1 + s->entries;
    int32_t *host = llm_need_host(e, &e->lists_host, count, sizeof(int32_t), error);
    if (!host || !llm_need_host(e, &e->ids, s->rows, sizeof(int32_t), error) ||
        !llm_need_host(e, &e->qo_indptr, s->batch + 1, sizeof(int32_t), error))
        return false;
    int32_t *device = host;
    if (llm_on_gpu(&e->device))
        device = llm_need(e, &e->lists, count, sizeof(int32_t), error);
    s->host = lists_at(host, s);
    s->device = lists_at(device, s);
    return device != NULL;
}

// Rows that only fill the batch: one of a request without keys each.
static void fill_up(const llm_engine *e, int32_t *ids, int32_t *qo) {
    const llm_lists *l = &e->step.host;
    for (int64_t r = e->n_requests; r < e->step.batch; r++) {
        ids[r] = l->positions[r] = l->last_page_len[r] = 0;
        l->batch_indices[r] = -1;
        qo[r + 1] = qo[r] + 1;
        l->kv_indptr[r + 1] = l->kv_indptr[r];
    }
}

static void fill_lists(llm_engine *e) {
    int32_t *ids = e->ids.data, *qo = e->qo_indptr.data;
    const llm_lists *l = &e->step.host;
    int64_t row = 0, entry = 0;
    qo[0] = l->kv_indptr[0] = 0;
    for (int64_t r = 0; r < e->n_requests; r++) {
        const llm_request *request = &e->requests[r];
        for (size_t i = 0; i < request->chunk; i++, row++) {
            ids[row] = request->tokens.ids[request->done + i];
            l->positions[row] = (int32_t)(request->done + i);
            l->batch_indices[row] = (int32_t)r;
        }
        memcpy(l->kv_indices + entry, request->pages, (size_t)request->n_pages * sizeof(int32_t));
        entry += request->n_pages;
        qo[r + 1] = (int32_t)row;
        l->kv_indptr[r + 1] = (int32_t)entry;
        const int64_t length = (int64_t)(request->done + request->chunk);
        l->last_page_len[r] = (int32_t)(length - (request->n_pages - 1) * e->settings.page_size);
    }
    fill_up(e, ids, qo);
}

// Which row of the logits each request gets.
static void number_logits(llm_engine *e) {
    llm_step *s = &e->step;
    for (int64_t r = 0; r < e->n_requests; r++) {
        llm_request *request = &e->requests[r];
        request->logits_row = -1;
        if (!has_logits(request))
            continue;
        s->logits_rows += e->settings.all_logits ? (int64_t)request->chunk : 1;
        request->logits_row = s->logits_rows - 1;
    }
    if (s->decode)
        s->logits_rows = s->batch;
}

// Rows of the embedding, from the file: a step has few of them.
static bool embed(llm_engine *e, llm_error *error) {
    const int64_t d = e->model->d, rows = e->step.rows;
    const int32_t *ids = e->ids.data;
    float *to = e->x.data;
    if (llm_on_gpu(&e->device))
        to = llm_need_host(e, &e->embedded, rows * d, sizeof(float), error);
    for (int64_t i = 0; to && i < rows; i++)
        llm_weight_row(&e->model->embedding, ids[i], to + i * d);
    return to &&
           llm_device_put(&e->device, e->x.data, to, (size_t)(rows * d) * sizeof(float), error);
}

static bool send_lists(llm_engine *e, llm_error *error) {
    const llm_step *s = &e->step;
    const int32_t *end = s->host.kv_indices + s->host.kv_indptr[s->batch];
    return llm_device_put(&e->device, s->device.positions, s->host.positions,
                          (size_t)(end - s->host.positions) * sizeof *end, error);
}

// ---- graphs -----------------------------------------------------------------------------------

static bool compute(llm_engine *e, llm_error *error) {
    return llm_forward(e, error) && (e->step.logits_rows == 0 || llm_most_likely(e, error));
}

static bool capture(llm_engine *e, llm_replay *replay, llm_error *error) {
    llm_error other;
    if (!llm_graph_begin(&e->device, error))
        return false;
    const bool ok = compute(e, error);
    replay->graph = llm_graph_end(&e->device, ok ? error : &other);
    e->captured += replay->graph != NULL;
    return ok && replay->graph;
}

static llm_replay *replay_of(llm_engine *e) {
    int64_t which = 0;
    while (((int64_t)1 << which) < e->step.batch)
        which++;
    const bool fits = e->step.decode && llm_on_gpu(&e->device) && !e->settings.eager;
    return fits && which < LLM_GRAPHS ? &e->replays[which] : NULL;
}

static bool run(llm_engine *e, llm_error *error) {
    llm_replay *replay = replay_of(e);
    if (!replay)
        return compute(e, error);
    if (replay->warm_at != e->generation) {
        llm_graph_free(&e->device, replay->graph);
        replay->graph = NULL;
        const bool ok = compute(e, error);
        replay->warm_at = ok ? e->generation : -1;
        return ok;
    }
    if (!replay->graph && !capture(e, replay, error))
        return false;
    e->replayed++;
    return llm_graph_launch(&e->device, replay->graph, error);
}

void llm_free_replays(llm_engine *e) {
    for (int64_t i = 0; i < LLM_GRAPHS; i++) {
        llm_graph_free(&e->device, e->replays[i].graph);
        e->replays[i].graph = NULL;
    }
}

bool llm_run_step(llm_engine *e, llm_error *error) {
    if (!llm_device_enter(&e->device, error) || !take_rows(e, error) || !room_for_lists(e, error))
        return false;
    fill_lists(e);
    number_logits(e);
    if (!llm_make_room(e, error) || !llm_plan(e, error) || !embed(e, error) ||
        !send_lists(e, error) || !run(e, error))
        return false;
    e->rows_run += (int64_t)((int32_t *)e->qo_indptr.data)[e->n_requests];
    return true;
}
