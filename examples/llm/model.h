// SPDX-License-Identifier: Apache-2.0
//
// A llama model as its GGUF file has it: sizes, and where each weight lies.  Weights stay in the
// mapped file, quantised; only their shapes are checked here.
#ifndef BOLIDE_LLM_MODEL_H
#define BOLIDE_LLM_MODEL_H

#include "error.h"
#include "gguf.h"

// Rows of a matrix in the file's format: out[rows] = weight [rows, columns] times in[columns].
typedef struct {
    const unsigned char *data;
    int64_t rows, columns, row_bytes;
    int64_t format; // bolide_weight_format
} llm_weight;

typedef struct {
    const float *attention_norm, *ffn_norm; // [d]
    llm_weight q, k, v, o;
    llm_weight gate, up, down;
} llm_layer;

typedef struct {
    gguf_file file;
    int64_t n_layers, d, h_q, h_kv, head_dim, d_ff, vocab;
    int64_t context; // tokens that the model was made for; 0: the file does not say
    double eps, rope_theta;
    llm_weight embedding; // [vocab, d]
    llm_weight output;    // [vocab, d]; the embedding where the file has none
    const float *output_norm;
    llm_layer *layers;
} llm_model;

// On failure the sentence names the file and what is wrong with it, and nothing is left open.
bool llm_model_open(llm_model *m, const char *path, llm_error *error);
// The same for a file that is open; the model takes it over, also on failure.
bool llm_model_of(llm_model *m, gguf_file file, llm_error *error);
void llm_model_close(llm_model *m);

// Row `index` of a weight as floats.
void llm_weight_row(const llm_weight *w, int64_t index, float *out);

#endif
