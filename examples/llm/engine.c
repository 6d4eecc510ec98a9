// SPDX-License-Identifier: Apache-2.0
//
// Requests and pages.  What a step does is in step.c, the forward pass in forward.c, drawing tokens
// in draw.c.

#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "engine_internal.h"

static void *need(llm_engine *e, llm_buffer *b, llm_memory kind, int64_t count, size_t elem_bytes,
                  llm_error *error) {
    const size_t bytes = (size_t)count * elem_bytes + 256;
    if (b->bytes < bytes) {
        llm_device_free(&e->device, kind, b->data);
        b->bytes = (bytes + bytes / 2 + 255) / 256 * 256;
        b->data = llm_device_alloc(&e->device, kind, b->bytes, error);
        if (!b->data)
            b->bytes = 0;
        e->generation += kind == LLM_MEMORY_DEVICE;
    }
    return b->data;
}

void *llm_need(llm_engine *e, llm_buffer *b, int64_t count, size_t elem_bytes, llm_error *error) {
    return need(e, b, LLM_MEMORY_DEVICE, count, elem_bytes, error);
}

void *llm_need_host(llm_engine *e, llm_buffer *b, int64_t count, size_t elem_bytes,
                    llm_error *error) {
    return need(e, b, LLM_MEMORY_HOST, count, elem_bytes, error);
}

// ---- creation ---------------------------------------------------------------------------------

static bool make_pool(llm_engine *e, llm_error *error) {
    const llm_model *m = e->model;
    const int64_t size = e->settings.page_size;
    /* Each request may leave its last page partly empty. */
    e->pages = (e->settings.max_tokens + size - 1) / size + e->settings.max_requests + 1;
    const size_t bytes = (size_t)(m->n_layers * e->pages * size * m->h_kv * m->head_dim) *
                         (e->kv_dtype == BOLIDE_F32 ? 4 : 2);
    e->k = llm_device_alloc(&e->device, LLM_MEMORY_DEVICE, bytes, error);
    e->v = llm_device_alloc(&e->device, LLM_MEMORY_DEVICE, bytes, error);
    if (!e->k || !e->v)
        return false;
    e->references = calloc((size_t)e->pages, sizeof *e->references);
    e->free_pages = calloc((size_t)e->pages, sizeof *e->free_pages);
    if (!e->references || !e->free_pages)
        return llm_fail(error, "no memory for %lld pages", (long long)e->pages);
    for (int64_t i = 0; i < e->pages; i++)
        e->free_pages[i] = (int32_t)(e->pages - 1 - i);
    e->n_free = e->pages;
    return true;
}

// The file's bytes go to the GPU once, as they are.
static bool place_weights(llm_engine *e, llm_error *error) {
    const gguf_file *file = &e->model->file;
    e->weights = file->bytes;
    if (!llm_on_gpu(&e->device))
        return true;
    void *copy = llm_device_alloc(&e->device, LLM_MEMORY_DEVICE, file->size, error);
    e->weights = copy;
    return copy && llm_device_put(&e->device, copy, file->bytes, file->size, error) &&
           llm_device_wait(&e->device, error);
}

static bool open_engine(llm_engine *e, llm_error *error) {
    const llm_settings *s = &e->settings;
    if (s->page_size < 1 || s->max_tokens < 1 || s->max_requests < 1)
        return llm_fail(error, "page size, tokens and requests must be at least 1");
    if (!llm_device_open(&e->device, s->gpu ? s->gpu_index : -1, error) ||
        !llm_ok(bolide_context_set(e->device.ctx, BOLIDE_BATCH_INVARIANT, 1), error) ||
        !llm_ok(bolide_context_set(e->device.ctx, BOLIDE_THREADS, s->threads), error) ||
        !place_weights(e, error) || !make_pool(e, error))
        return false;
    e->requests = calloc((size_t)s->max_requests, sizeof *e->requests);
    return e->requests ||
           llm_fail(error, "no memory for %lld requests", (long long)s->max_requests);
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
    for (int64_t i = 0; i < LLM_GRAPHS; i++)
        e->replays[i].warm_at = -1;
    if (!open_engine(e, error)) {
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

static void free_memory(llm_engine *e) {
    llm_error ignored;
    llm_buffer *device[] = {&e->lists, &e->x,       &e->normed, &e->qkv,      &e->attention,
                            &e->ffn,   &e->gated,   &e->last,   &e->logits,   &e->probs,
                            &e->best,  &e->scratch, &e->draws,  &e->plan_live};
    llm_buffer *host[] = {&e->ids,  &e->qo_indptr,    &e->lists_host, &e->embedded,
                          &e->plan, &e->plan_staging, &e->tokens,     &e->logits_host};
    (void)llm_device_enter(&e->device, &ignored);
    (void)llm_device_wait(&e->device, &ignored);
    llm_free_replays(e);
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        llm_device_free(&e->device, LLM_MEMORY_DEVICE, device[i]->data);
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
        llm_device_free(&e->device, LLM_MEMORY_HOST, host[i]->data);
    llm_device_free(&e->device, LLM_MEMORY_DEVICE, e->k);
    llm_device_free(&e->device, LLM_MEMORY_DEVICE, e->v);
    if (llm_on_gpu(&e->device))
        llm_device_free(&e->device, LLM_MEMORY_DEVICE, (void *)(uintptr_t)e->weights);
}

void llm_engine_destroy(llm_engine *e) {
    if (!e)
        return;
    for (int64_t i = 0; i < e->n_requests; i++)
        free_request(&e->requests[i]);
    free_request(&e->shared);
    free(e->requests);
    free(e->references);
    free(e->free_pages);
    free_memory(e);
    llm_device_close(&e->device);
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

bool llm_take_pages(llm_engine *e, llm_request *r, size_t tokens, llm_error *error) {
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
    if (!llm_run_step(e, error))
        return false;
    int32_t *tokens = llm_need_host(e, &e->tokens, e->step.logits_rows, sizeof *tokens, error);
    if (!tokens || !llm_draw(e, tokens, error) || !hand_out(e, tokens, on_token, arg, error))
        return false;
    *busy = e->n_requests > 0;
    return true;
}

// The logits on the host, brought there at the first question about them.
static const float *logits_on_host(llm_engine *e) {
    llm_error ignored;
    const int64_t count = e->step.logits_rows * e->model->vocab;
    if (!llm_on_gpu(&e->device))
        return e->logits.data;
    float *host = llm_need_host(e, &e->logits_host, count, sizeof *host, &ignored);
    if (host && !e->step.fetched)
        e->step.fetched = llm_device_get(&e->device, host, e->logits.data,
                                         (size_t)count * sizeof *host, &ignored) &&
                          llm_device_wait(&e->device, &ignored);
    return e->step.fetched ? host : NULL;
}

const float *llm_engine_logits(llm_engine *e, int64_t request) {
    for (int64_t r = 0; r < e->n_requests; r++) {
        if (e->requests[r].number == request && e->requests[r].logits_row >= 0) {
            const float *logits = logits_on_host(e);
            return logits ? logits + e->requests[r].logits_row * e->model->vocab : NULL;
        }
    }
    return NULL;
}

void llm_engine_graphs(const llm_engine *e, int64_t *captured, int64_t *replayed) {
    *captured = e->captured;
    *replayed = e->replayed;
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
        if (!llm_run_step(e, error) || !llm_device_wait(&e->device, error))
            return false;
        r->done += r->chunk;
    }
    /* The request hands its pages over. */
    e->shared = e->requests[0];
    e->requests[0] = (llm_request){.number = -1};
    e->n_requests = 0;
    return true;
}
