// SPDX-License-Identifier: Apache-2.0
//
// What the engine's three parts share: pages and requests (engine.c), the forward pass (forward.c),
// drawing tokens (draw.c).
#ifndef BOLIDE_LLM_ENGINE_INTERNAL_H
#define BOLIDE_LLM_ENGINE_INTERNAL_H

#include <bolide/bolide.h>

#include "engine.h"

enum { LLM_CHUNK = 256 }; // tokens of a prompt in one step

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

struct llm_engine {
    const llm_model *model;
    llm_settings settings;
    bolide_context *ctx;
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

    // The step at hand: rows of all requests, one behind the other.
    int64_t rows;
    int64_t rows_run; // of all steps
    llm_buffer ids, positions, batch_indices, qo_indptr, kv_indptr, kv_indices, last_page_len;
    llm_buffer x, normed, qkv, attention, ffn, gated, last, logits, probs;
    llm_buffer scratch, plan, plan_live, draws;
    int64_t logits_rows;
};

// Memory for count elements, or NULL with a sentence.
void *llm_need(llm_buffer *b, int64_t count, size_t elem_bytes, llm_error *error);

// Runs e->rows tokens through the model; logits of the requests that end their chunk with the last
// token they have.
bool llm_forward(llm_engine *e, llm_error *error);

// One token a row of the logits.
bool llm_draw(llm_engine *e, int32_t *tokens, llm_error *error);

#endif
