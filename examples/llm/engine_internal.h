// SPDX-License-Identifier: Apache-2.0
//
// What the engine's parts share: pages and requests (engine.c), a step's lists and its graph
// (step.c), the forward pass (forward.c), drawing tokens (draw.c).
#ifndef BOLIDE_LLM_ENGINE_INTERNAL_H
#define BOLIDE_LLM_ENGINE_INTERNAL_H

#include <bolide/bolide.h>

#include "device.h"
#include "engine.h"

enum {
    LLM_CHUNK = 256, // tokens of a prompt in one step
    LLM_GRAPHS = 12  // batches of 1, 2, 4 … 2048 rows
};

typedef struct {
    int64_t number;
    token_list tokens; // prompt and what was drawn
    size_t prompt;     // tokens of it
    size_t done;       // tokens in the cache
    size_t chunk;      // tokens of this step
    int64_t max_new;
    llm_sampler sampler;
    int32_t *pages; // capacity: those of max_tokens
    int64_t n_pages;
    int64_t logits_row; // in the last step's logits; -1: none
} llm_request;

// Memory that grows and is kept.
typedef struct {
    void *data;
    size_t bytes;
} llm_buffer;

// What a step hands to the operators, one list behind the other in this order.
typedef struct {
    int32_t *positions;     // [rows]
    int32_t *batch_indices; // [rows]; -1: a row that only fills the batch
    int32_t *kv_indptr;     // [batch + 1]
    int32_t *last_page_len; // [batch]
    int32_t *kv_indices;    // [entries]
} llm_lists;

// The step at hand: rows of all requests, one behind the other.
typedef struct {
    int64_t rows, batch, entries; // entries: room for page numbers
    bool decode;                  // one row a request, each with logits: a graph can repeat it
    llm_lists host, device;       // the same memory on the CPU
    int64_t logits_rows;
    bool fetched; // the logits are in logits_host
} llm_step;

// A decode step of one batch size as a graph.  It holds addresses, so it serves as long as no
// buffer has moved.
typedef struct {
    llm_graph *graph;
    int64_t warm_at; // the generation in which a step of this size ran; -1: none yet
} llm_replay;

struct llm_engine {
    const llm_model *model;
    llm_settings settings;
    llm_device device;
    const unsigned char *weights; // the model's file where the device reads it
    int64_t kv_dtype;

    // One pool of pages for each layer; a page has the same number in all of them.
    int64_t pages;
    unsigned char *k, *v; // [layers, pages, page_size, h_kv, head_dim]
    int32_t *references;  // [pages]
    int32_t *free_pages;
    int64_t n_free;

    llm_request shared; // its pages are the beginning that requests share
    llm_request *requests;
    int64_t n_requests, next_number;

    llm_step step;
    int64_t rows_run; // of all steps
    llm_replay replays[LLM_GRAPHS];
    int64_t generation; // counts the moves of buffers of the device
    int64_t captured, replayed;

    // Memory of the device, then of the host.
    llm_buffer lists, x, normed, qkv, attention, ffn, gated, last, logits, probs;
    llm_buffer scratch, plan_live, best, draws;
    llm_buffer ids, qo_indptr, lists_host, embedded, plan, plan_staging, tokens, logits_host;
};

// Memory for count elements on the device or on the host, or NULL with a sentence.
void *llm_need(llm_engine *e, llm_buffer *b, int64_t count, size_t elem_bytes, llm_error *error);
void *llm_need_host(llm_engine *e, llm_buffer *b, int64_t count, size_t elem_bytes,
                    llm_error *error);

// Where the device reads what lies at p in the model's file.
static inline const void *llm_weight_at(const llm_engine *e, const void *p) {
    return e->weights + ((const unsigned char *)p - e->model->file.bytes);
}

// Pages for `tokens` tokens of a request in all.
bool llm_take_pages(llm_engine *e, llm_request *r, size_t tokens, llm_error *error);

// Runs the next chunk of every request through the model: logits of those that end their chunk
// with the last token they have, and the most likely token of each row of the logits.  The caller
// waits for the device before the next step, which writes the memory that this one copies from.
bool llm_run_step(llm_engine *e, llm_error *error);
void llm_free_replays(llm_engine *e);

// The plan of attention, made for each step outside its graph.
bool llm_plan(llm_engine *e, llm_error *error);
// Memory for the step.
bool llm_make_room(llm_engine *e, llm_error *error);
// Everything from the embedded tokens to the logits, which a graph may hold.
bool llm_forward(llm_engine *e, llm_error *error);

// The most likely token of each row of the logits; a graph may hold it.
bool llm_most_likely(llm_engine *e, llm_error *error);
// One token a row of the logits, on the host.
bool llm_draw(llm_engine *e, int32_t *tokens, llm_error *error);

#endif
