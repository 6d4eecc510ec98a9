// SPDX-License-Identifier: Apache-2.0
//
// Requests, pages and steps.  The forward pass is in forward.c, drawing tokens in draw.c.

#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "engine_internal.h"

void *llm_need(llm_buffer *b, int64_t count, size_t elem_bytes, llm_error *error) {
    const size_t bytes = ((size_t)count * elem_bytes + 255) / 256 * 256 + 256;
    if (b->bytes < bytes) {
        free(b->data);
        const size_t room = bytes + bytes / 2;
        b->data = aligned_alloc(256, (room + 255) / 256 * 256);
        b->bytes = b->data ? (room + 255) / 256 * 256 : 0;
    }
    if (!b->data)
        llm_fail(error, "no memory for %zu bytes of a step", bytes);
    return b->data;
}

// ---- creation ---------------------------------------------------------------------------------

static bool make_pool(llm_engine *e, llm_error *error) {
    const llm_model *m = e->model;
    const int64_t size = e->settings.page_size;
    /* Each request may leave its last page partly empty. */
    e->pages = (e->settings.max_tokens + size - 1) / size + e->settings.max_requests + 1;
    const size_t bytes = (size_t)(m->n_layers * e->pages * size * m->h_kv * m->head_dim) *
                         (e->kv_dtype == BOLIDE_F32 ? 4 : 2);
    e->k = calloc(bytes, 1);
    e->v = calloc(bytes, 1);
    e->references = calloc((size_t)e->pages, sizeof *e->references);
    e->free_pages = calloc((size_t)e->pages, sizeof *e->free_pages);
    if (!e->k || !e->v || !e->references || !e->free_pages)
        return llm_fail(error, "no memory for a cache of %zu bytes", 2 * bytes);
    for (int64_t i = 0; i < e->pages; i++)
        e->free_pages[i] = (int32_t)(e->pages - 1 - i);
    e->n_free = e->pages;
    return true;
}

llm_engine *llm_engine_create(const llm_model *model, const llm_settings *settings,
                              llm_error *error) {
    llm_engine *e = calloc(1, sizeof *e);
    if (!e) {
        llm_fail(error, "no memory for the engine");
        return NULL;
    }
    e->model = model;
    e->settings = *settings;
    e->kv_dtype = settings->exact || settings->kv_f32 ? BOLIDE_F32 : BOLIDE_F16;
    bool ok = settings->page_size >= 1 && settings->max_tokens >= 1 && settings->max_requests >= 1;
    if (!ok)
        llm_fail(error, "page size, tokens and requests must be at least 1");
    ok = ok && llm_ok(bolide_context_create(BOLIDE_CPU, 0, &e->ctx), error) &&
         llm_ok(bolide_context_set(e->ctx, BOLIDE_BATCH_INVARIANT, 1), error) &&
         llm_ok(bolide_context_set(e->ctx, BOLIDE_THREADS, settings->threads), error) &&
         make_pool(e, error);
    if (ok) {
        e->requests = calloc((size_t)settings->max_requests, sizeof *e->requests);
        ok = e->requests ||
             llm_fail(error, "no memory for %lld requests", (long long)settings->max_requests);
    }
    if (!ok) {
        llm_engine_destroy(e);
        return NULL;
    }
    return e;
}

static void free_request(llm_request *r) {
    token_list_free(&r->tokens);
    free(r->pages);
    *r = (llm_request){.number = -1};
}

void llm_engine_destroy(llm_engine *e) {
    if (!e)
        return;
    for (int64_t i = 0; i < e->n_requests; i++)
        free_request(&e->requests[i]);
    free_request(&e->shared);
    llm_buffer *buffers[] = {&e->ids,       &e->positions,  &e->batch_indices, &e->qo_indptr,
                             &e->kv_indptr, &e->kv_indices, &e->last_page_len, &e->x,
                             &e->normed,    &e->qkv,        &e->attention,     &e->ffn,
                             &e->gated,     &e->last,       &e->logits,        &e->probs,
                             &e->scratch,   &e->plan,       &e->plan_live,     &e->draws};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        free(buffers[i]->data);
    free(e->requests);
    free(e->k);
    free(e->v);
    free(e->references);
    free(e->free_pages);
    bolide_context_destroy(e->ctx);
    free(e);
}

// ---- pages ------------------------------------------------------------------------------------

static void drop_pages(llm_engine *e, llm_request *r) {
    for (int64_t i = 0; i < r->n_pages; i++) {
        const int32_t page = r->pages[i];
        if (--e->references[page] == 0)
            e->free_pages[e->n_free++] = page;
    }
    r->n_pages = 0;
}

// Pages for `tokens` tokens of a request in all.
static bool take_pages(llm_engine *e, llm_request *r, size_t tokens, llm_error *error) {
    const int64_t size = e->settings.page_size;
    const int64_t need = ((int64_t)tokens + size - 1) / size;
    if (need - r->n_pages > e->n_free)
        return llm_fail(error, "the cache is full: %lld pages of %lld tokens are in use",
                        (long long)e->pages, (long long)size);
    while (r->n_pages < need) {
        const int32_t page = e->free_pages[--e->n_free];
        e->references[page] = 1;
        r->pages[r->n_pages++] = page;
    }
    return true;
}

int64_t llm_engine_active(const llm_engine *e) {
    return e->n_requests;
}

int64_t llm_engine_rows(const llm_engine *e) {
    return e->rows_run;
}

void llm_engine_pages(const llm_engine *e, int64_t *used, int64_t *all) {
    *used = e->pages - e->n_free;
    *all = e->pages;
}

// ---- requests ---------------------------------------------------------------------------------

static bool begin_request(llm_engine *e, llm_request *r, const int32_t *tokens, size_t count,
                          llm_error *error) {
    *r = (llm_request){.number = e->next_number++, .prompt = count, .logits_row = -1};
    r->pages = calloc((size_t)e->pages, sizeof *r->pages);
    if (!r->pages)
        return llm_fail(error, "no memory for a request");
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= e->model->vocab)
            return llm_fail(error, "token %zu: expected an id below %lld; got %d", i,
                            (long long)e->model->vocab, (int)tokens[i]);
        if (!token_list_add(&r->tokens, tokens[i], error))
            return false;
    }
    return true;
}

// Whole pages of the shared beginning that the prompt begins with.  One token at least is left to
// run, for its logits.
static void take_shared(llm_engine *e, llm_request *r) {
    const size_t done = e->shared.done;
    if (done == 0 || r->tokens.count <= done ||
        memcmp(r->tokens.ids, e->shared.tokens.ids, done * sizeof *r->tokens.ids) != 0)
        return;
    for (int64_t i = 0; i < e->shared.n_pages; i++) {
        r->pages[i] = e->shared.pages[i];
        e->references[r->pages[i]]++;
    }
    r->n_pages = e->shared.n_pages;
    r->done = done;
}

int64_t llm_engine_add(llm_engine *e, const int32_t *tokens, size_t count, int64_t max_new,
                       const llm_sampler *sampler, llm_error *error) {
    if (e->n_requests == e->settings.max_requests || count == 0) {
        llm_fail(error, count == 0 ? "a request needs at least one token"
                                   : "all requests that the engine has room for are under way");
        return -1;
    }
    llm_request *r = &e->requests[e->n_requests];
    if (!begin_request(e, r, tokens, count, error)) {
        free_request(r);
        return -1;
    }
    r->max_new = max_new;
    r->sampler = *sampler;
    take_shared(e, r);
    e->n_requests++;
    return r->number;
}

static void end_request(llm_engine *e, int64_t index) {
    drop_pages(e, &e->requests[index]);
    free_request(&e->requests[index]);
    for (int64_t i = index; i + 1 < e->n_requests; i++)
        e->requests[i] = e->requests[i + 1];
    e->n_requests--;
    e->requests[e->n_requests] = (llm_request){.number = -1};
}

// ---- steps ------------------------------------------------------------------------------------

// Chunks end at multiples of LLM_CHUNK of the prompt's position, whatever else runs.
static size_t next_chunk(const llm_request *r) {
    const size_t left = r->tokens.count - r->done;
    const size_t room = LLM_CHUNK - r->done % LLM_CHUNK;
    return left < room ? left : room;
}

static bool room_for_lists(llm_engine *e, int64_t entries, llm_error *error) {
    return llm_need(&e->ids, e->rows, sizeof(int32_t), error) &&
           llm_need(&e->positions, e->rows, sizeof(int32_t), error) &&
           llm_need(&e->batch_indices, e->rows, sizeof(int32_t), error) &&
           llm_need(&e->qo_indptr, e->n_requests + 1, sizeof(int32_t), error) &&
           llm_need(&e->kv_indptr, e->n_requests + 1, sizeof(int32_t), error) &&
           llm_need(&e->last_page_len, e->n_requests, sizeof(int32_t), error) &&
           llm_need(&e->kv_indices, entries, sizeof(int32_t), error);
}

static bool prepare(llm_engine *e, llm_error *error) {
    int64_t entries = 0, row = 0, entry = 0;
    e->rows = 0;
    for (int64_t r = 0; r < e->n_requests; r++) {
        llm_request *request = &e->requests[r];
        request->chunk = next_chunk(request);
        if (!take_pages(e, request, request->done + request->chunk, error))
            return false;
        e->rows += (int64_t)request->chunk;
        entries += request->n_pages;
    }
    if (!room_for_lists(e, entries, error))
        return false;
    int32_t *qo = e->qo_indptr.data, *kv = e->kv_indptr.data, *last = e->last_page_len.data;
    int32_t *ids = e->ids.data, *positions = e->positions.data, *batch = e->batch_indices.data;
    qo[0] = kv[0] = 0;
    for (int64_t r = 0; r < e->n_requests; r++) {
        const llm_request *request = &e->requests[r];
        for (size_t i = 0; i < request->chunk; i++, row++) {
            ids[row] = request->tokens.ids[request->done + i];
            positions[row] = (int32_t)(request->done + i);
            batch[row] = (int32_t)r;
        }
        memcpy((int32_t *)e->kv_indices.data + entry, request->pages,
               (size_t)request->n_pages * sizeof(int32_t));
        entry += request->n_pages;
        qo[r + 1] = (int32_t)row;
        kv[r + 1] = (int32_t)entry;
        const int64_t length = (int64_t)(request->done + request->chunk);
        last[r] = (int32_t)(length - (request->n_pages - 1) * e->settings.page_size);
    }
    return true;
}

// Hands out what was drawn and ends requests; from the last to the first, as ends move the others.
static bool hand_out(llm_engine *e, const int32_t *tokens, llm_on_token on_token, void *arg,
                     llm_error *error) {
    for (int64_t r = e->n_requests - 1; r >= 0; r--) {
        llm_request *request = &e->requests[r];
        request->done += request->chunk;
        if (request->logits_row < 0) {
            if (request->max_new == 0 && request->done == request->tokens.count)
                end_request(e, r);
            continue;
        }
        const int32_t token = tokens[request->logits_row];
        if (!token_list_add(&request->tokens, token, error))
            return false;
        const bool more = on_token(arg, request->number, token);
        const bool full = (int64_t)(request->tokens.count - request->prompt) >= request->max_new;
        if (!more || full)
            end_request(e, r);
    }
    return true;
}

bool llm_engine_step(llm_engine *e, llm_on_token on_token, void *arg, bool *busy,
                     llm_error *error) {
    *busy = e->n_requests > 0;
    if (!*busy)
        return true;
    int32_t *tokens = llm_need(&e->draws, e->n_requests, sizeof *tokens, error);
    if (!tokens || !prepare(e, error) || !llm_forward(e, error) || !llm_draw(e, tokens, error) ||
        !hand_out(e, tokens, on_token, arg, error))
        return false;
    *busy = e->n_requests > 0;
    return true;
}

const float *llm_engine_logits(const llm_engine *e, int64_t request) {
    for (int64_t r = 0; r < e->n_requests; r++) {
        if (e->requests[r].number == request && e->requests[r].logits_row >= 0)
            return (const float *)e->logits.data + e->requests[r].logits_row * e->model->vocab;
    }
    return NULL;
}

// ---- the shared beginning ---------------------------------------------------------------------

static int64_t common_multiple(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y != 0) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

bool llm_engine_share(llm_engine *e, const int32_t *tokens, size_t count, llm_error *error) {
    const size_t unit = (size_t)common_multiple(16, e->settings.page_size);
    const size_t whole = count / unit * unit;
    if (e->n_requests > 0 || e->shared.done > 0)
        return llm_fail(error, "the shared beginning comes once, before the first request");
    if (whole == 0)
        return true;
    const llm_sampler greedy = {.top_p = 1};
    bool busy = llm_engine_add(e, tokens, whole, 0, &greedy, error) >= 0;
    if (!busy)
        return false;
    while (e->requests[0].done < whole) {
        llm_request *r = &e->requests[0];
        if (!prepare(e, error) || !llm_forward(e, error))
            return false;
        r->done += r->chunk;
    }
    /* The request hands its pages over. */
    e->shared = e->requests[0];
    e->requests[0] = (llm_request){.number = -1};
    e->n_requests = 0;
    return true;
}
