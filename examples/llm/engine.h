// SPDX-License-Identifier: Apache-2.0
//
// Continuous batching over a paged key/value cache.  Requests join and leave between steps; a step
// runs one chunk of every request that is under way: the next part of its prompt, or the token that
// was drawn last.  Pages are counted references: the whole pages of a prompt that many requests
// begin with (llm_engine_share) are stored once.
//
// What a request computes depends on its own tokens only.  Attention and sampling run in batch-
// invariant mode, products are computed row by row in the same order for any batch, and prompts are
// cut into chunks by position; so its tokens are the same alone and in any batch, for any number of
// threads.
#ifndef BOLIDE_LLM_ENGINE_H
#define BOLIDE_LLM_ENGINE_H

#include "list.h"
#include "model.h"

// What weights in blocks are multiplied with: activations rounded to 16 or to 8 bits, or f32.
typedef enum { LLM_INT16, LLM_INT8, LLM_F32 } llm_compute;

typedef struct {
    int64_t page_size;    // tokens of a page
    int64_t max_tokens;   // tokens that the cache holds, over all requests
    int64_t max_requests; // under way at once
    int64_t threads;      // 0: what the library chooses
    llm_compute compute;  // int16 unless another one is asked for
    bool kv_f32;          // a cache of f32, not f16
    bool exact;           // LLM_F32 and kv_f32, whatever they are
    bool gpu;             // computes on CUDA device gpu_index instead of the CPU
    int64_t gpu_index;
    bool eager;      // no graphs; for tests
    bool all_logits; // of each row that a step runs, not of each request's last one; for tests
} llm_settings;

// How the next token is drawn.  temperature 0 takes the most likely one; top_k 0, top_p 1 and
// min_p 0 filter nothing.
typedef struct {
    double temperature, top_p, min_p;
    int64_t top_k;
    uint64_t seed;
} llm_sampler;

typedef struct llm_engine llm_engine;

llm_engine *llm_engine_create(const llm_model *model, const llm_settings *settings,
                              llm_error *error);
void llm_engine_destroy(llm_engine *e);

// Runs the beginning that later requests share and keeps its whole pages, in multiples of 16
// tokens. Called once, before the first request.
bool llm_engine_share(llm_engine *e, const int32_t *tokens, size_t count, llm_error *error);

// A new request; its number, or -1.  At most max_new tokens are drawn after the prompt.
int64_t llm_engine_add(llm_engine *e, const int32_t *tokens, size_t count, int64_t max_new,
                       const llm_sampler *sampler, llm_error *error);

// Called for each token that a step draws.  Returns false to end the request.
typedef bool (*llm_on_token)(void *arg, int64_t request, int32_t token);

// One step of all requests.  *busy is false when there are none.
bool llm_engine_step(llm_engine *e, llm_on_token on_token, void *arg, bool *busy, llm_error *error);

// Logits [vocab] of the request's last token of the last step; for tests.  NULL if it had none.
// With all_logits, those of its tokens before lie in front of them, each [vocab].
const float *llm_engine_logits(llm_engine *e, int64_t request);

// Requests under way.
int64_t llm_engine_active(const llm_engine *e);

// Tokens that went through the model so far.
int64_t llm_engine_rows(const llm_engine *e);

// Decode steps captured as a graph so far, and steps that a graph ran; 0 on the CPU.
void llm_engine_graphs(const llm_engine *e, int64_t *captured, int64_t *replayed);

// Pages in use, and all.
void llm_engine_pages(const llm_engine *e, int64_t *used, int64_t *all);

#endif
