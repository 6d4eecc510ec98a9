// SPDX-License-Identifier: Apache-2.0
//
// One block of the llama architecture, for each token x at position p:
//
//     a = rmsnorm(x, attn_norm);  q, k, v = Wq a, Wk a, Wv a
//     q, k turned by RoPE in pairs (2 i, 2 i + 1): the order in which a GGUF file of this
//     architecture stores the rows of Wq and Wk
//     x += Wo (softmax(q k^T / sqrt(d)) v)          query head h reads kv head h / (h_q / h_kv)
//     f = rmsnorm(x, ffn_norm);   x += Wdown (silu(Wgate f) * (Wup f))
//
// and at the end logits = Wout rmsnorm(x, output_norm), Wout being the embedding where the file has
// no output.weight.  All tokens of a call go through a block together, so that a row of weights is
// turned into doubles once for all of them; that is the only thing done for speed.
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference_file.h"

typedef struct {
    reference_tensor attn_norm, q, k, v, o, ffn_norm, gate, up, down;
    double *keys, *values; // [max_tokens, h_kv * d]
} block;

struct reference {
    reference_file file;
    size_t n_blocks, width, hidden, h_q, h_kv, d, rotated, vocab;
    double rope_base, eps;
    reference_tensor embedding, output_norm, output;
    block *blocks;
    size_t max_tokens, n_tokens;
    double *row; // scratch for one row of weights
};

// ---- arithmetic ----------------------------------------------------------------------------

static double dot(const double *a, const double *b, size_t n) {
    double part[4] = {0};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (size_t j = 0; j < 4; j++) {
            part[j] += a[i + j] * b[i + j];
        }
    }
    for (; i < n; i++) {
        part[0] += a[i] * b[i];
    }
    return part[0] + part[1] + (part[2] + part[3]);
}

// out[token][row] (+)= weights[row] . in[token]
static void multiply(reference *r, const reference_tensor *weights, const double *in, size_t n,
                     bool add, double *out) {
    size_t columns = weights->columns, rows = weights->rows;
    for (size_t i = 0; i < rows; i++) {
        reference_file_row(weights, i, r->row);
        for (size_t token = 0; token < n; token++) {
            double value = dot(r->row, in + token * columns, columns);
            out[token * rows + i] = add ? out[token * rows + i] + value : value;
        }
    }
}

static void rmsnorm(reference *r, const reference_tensor *weight, const double *in, size_t n,
                    double *out) {
    size_t width = r->width;
    reference_file_row(weight, 0, r->row);
    for (size_t token = 0; token < n; token++) {
        const double *x = in + token * width;
        double scale = 1 / sqrt(dot(x, x, width) / (double)width + r->eps);
        for (size_t i = 0; i < width; i++) {
            out[token * width + i] = x[i] * scale * r->row[i];
        }
    }
}

static void rope(const reference *r, double *x, size_t heads, size_t n) {
    for (size_t token = 0; token < n; token++) {
        double position = (double)(r->n_tokens + token);
        for (size_t head = 0; head < heads; head++) {
            double *v = x + (token * heads + head) * r->d;
            for (size_t i = 0; i + 1 < r->rotated; i += 2) {
                double angle = position * pow(r->rope_base, -(double)i / (double)r->rotated);
                double c = cos(angle), s = sin(angle), a = v[i], b = v[i + 1];
                v[i] = a * c - b * s;
                v[i + 1] = a * s + b * c;
            }
        }
    }
}

// One query head against `length` keys; `weights` is scratch for as many.
static void attend_head(const reference *r, const block *b, const double *q, size_t kv_head,
                        size_t length, double *weights, double *out) {
    size_t stride = r->h_kv * r->d;
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < length; i++) {
        weights[i] = dot(q, b->keys + i * stride + kv_head * r->d, r->d) / sqrt((double)r->d);
        top = fmax(top, weights[i]);
    }
    for (size_t i = 0; i < length; i++) {
        weights[i] = exp(weights[i] - top);
        sum += weights[i];
    }
    for (size_t j = 0; j < r->d; j++) {
        out[j] = 0;
    }
    for (size_t i = 0; i < length; i++) {
        for (size_t j = 0; j < r->d; j++) {
            out[j] += weights[i] / sum * b->values[i * stride + kv_head * r->d + j];
        }
    }
}

typedef struct {
    double *x;       // [n, width]
    double *normed;  // [n, width]
    double *q;       // [n, h_q * d]
    double *mixed;   // [n, h_q * d]
    double *gate;    // [n, hidden]
    double *up;      // [n, hidden]
    double *weights; // [max_tokens]
} activations;

static void run_block(reference *r, block *b, activations *a, size_t n) {
    size_t kv_width = r->h_kv * r->d;
    double *keys = b->keys + r->n_tokens * kv_width;
    double *values = b->values + r->n_tokens * kv_width;
    rmsnorm(r, &b->attn_norm, a->x, n, a->normed);
    multiply(r, &b->q, a->normed, n, false, a->q);
    multiply(r, &b->k, a->normed, n, false, keys);
    multiply(r, &b->v, a->normed, n, false, values);
    rope(r, a->q, r->h_q, n);
    rope(r, keys, r->h_kv, n);
    for (size_t token = 0; token < n; token++) {
        for (size_t head = 0; head < r->h_q; head++) {
            size_t at = (token * r->h_q + head) * r->d;
            attend_head(r, b, a->q + at, head / (r->h_q / r->h_kv), r->n_tokens + token + 1,
                        a->weights, a->mixed + at);
        }
    }
    multiply(r, &b->o, a->mixed, n, true, a->x);
    rmsnorm(r, &b->ffn_norm, a->x, n, a->normed);
    multiply(r, &b->gate, a->normed, n, false, a->gate);
    multiply(r, &b->up, a->normed, n, false, a->up);
    for (size_t i = 0; i < n * r->hidden; i++) {
        a->gate[i] = a->gate[i] / (1 + exp(-a->gate[i])) * a->up[i];
    }
    multiply(r, &b->down, a->gate, n, true, a->x);
}

// ---- the public calls ----------------------------------------------------------------------

size_t reference_vocab(const reference *r) {
    return r->vocab;
}

void reference_reset(reference *r) {
    r->n_tokens = 0;
}

static bool allocate(const reference *r, activations *a, size_t n) {
    size_t q_width = r->h_q * r->d;
    a->x = calloc(n * r->width, sizeof(double));
    a->normed = calloc(n * r->width, sizeof(double));
    a->q = calloc(n * q_width, sizeof(double));
    a->mixed = calloc(n * q_width, sizeof(double));
    a->gate = calloc(n * r->hidden, sizeof(double));
    a->up = calloc(n * r->hidden, sizeof(double));
    a->weights = calloc(r->max_tokens, sizeof(double));
    return a->x != NULL && a->normed != NULL && a->q != NULL && a->mixed != NULL &&
           a->gate != NULL && a->up != NULL && a->weights != NULL;
}

static void release(activations *a) {
    free(a->x);
    free(a->normed);
    free(a->q);
    free(a->mixed);
    free(a->gate);
    free(a->up);
    free(a->weights);
}

bool reference_forward(reference *r, const int32_t *tokens, size_t n, size_t wanted, double *logits,
                       llm_error *error) {
    activations a = {.x = NULL};
    bool ok = n > 0 && n <= r->max_tokens - r->n_tokens && wanted <= n;
    for (size_t i = 0; ok && i < n; i++) {
        ok = tokens[i] >= 0 && (size_t)tokens[i] < r->vocab;
    }
    if (!ok) {
        return llm_fail(error, "reference: the tokens do not fit");
    }
    if (allocate(r, &a, n)) {
        for (size_t i = 0; i < n; i++) {
            reference_file_row(&r->embedding, (size_t)tokens[i], a.x + i * r->width);
        }
        for (size_t i = 0; i < r->n_blocks; i++) {
            run_block(r, &r->blocks[i], &a, n);
        }
        r->n_tokens += n;
        if (logits != NULL) {
            rmsnorm(r, &r->output_norm, a.x + (n - wanted) * r->width, wanted, a.normed);
            multiply(r, &r->output, a.normed, wanted, false, logits);
        }
    } else {
        ok = llm_fail(error, "reference: out of memory");
    }
    release(&a);
    return ok;
}

// ---- loading -------------------------------------------------------------------------------

static double number(const reference *r, const char *key, bool *ok, llm_error *error) {
    double value = 0;
    if (*ok && !reference_file_number(&r->file, key, &value)) {
        *ok = llm_fail(error, "reference: %s is missing", key);
    }
    return value;
}

// A tensor that must have this shape.
static reference_tensor tensor(const reference *r, const char *name, size_t columns, size_t rows,
                               bool *ok, llm_error *error) {
    reference_tensor t = {.data = NULL};
    if (*ok && (!reference_file_tensor(&r->file, name, &t) || t.columns != columns ||
                (rows != 0 && t.rows != rows))) {
        *ok = llm_fail(error, "reference: tensor %s is missing or has another shape", name);
    }
    return t;
}

// A tensor of one block.
static reference_tensor part(const reference *r, size_t index, const char *name, size_t columns,
                             size_t rows, bool *ok, llm_error *error) {
    char full[64];
    snprintf(full, sizeof full, "blk.%zu.%s.weight", index, name);
    return tensor(r, full, columns, rows, ok, error);
}

static bool load_block(reference *r, size_t index, llm_error *error) {
    block *b = &r->blocks[index];
    size_t kv = r->h_kv * r->d, q = r->h_q * r->d;
    bool ok = true;
    b->attn_norm = part(r, index, "attn_norm", r->width, 1, &ok, error);
    b->q = part(r, index, "attn_q", r->width, q, &ok, error);
    b->k = part(r, index, "attn_k", r->width, kv, &ok, error);
    b->v = part(r, index, "attn_v", r->width, kv, &ok, error);
    b->o = part(r, index, "attn_output", q, r->width, &ok, error);
    b->ffn_norm = part(r, index, "ffn_norm", r->width, 1, &ok, error);
    b->gate = part(r, index, "ffn_gate", r->width, r->hidden, &ok, error);
    b->up = part(r, index, "ffn_up", r->width, r->hidden, &ok, error);
    b->down = part(r, index, "ffn_down", r->hidden, r->width, &ok, error);
    b->keys = calloc(r->max_tokens * kv, sizeof(double));
    b->values = calloc(r->max_tokens * kv, sizeof(double));
    return ok && ((b->keys != NULL && b->values != NULL) || llm_fail(error, "out of memory"));
}

static bool load(reference *r, llm_error *error) {
    bool ok = true;
    r->n_blocks = (size_t)number(r, "llama.block_count", &ok, error);
    r->width = (size_t)number(r, "llama.embedding_length", &ok, error);
    r->hidden = (size_t)number(r, "llama.feed_forward_length", &ok, error);
    r->h_q = (size_t)number(r, "llama.attention.head_count", &ok, error);
    r->h_kv = (size_t)number(r, "llama.attention.head_count_kv", &ok, error);
    r->rotated = (size_t)number(r, "llama.rope.dimension_count", &ok, error);
    r->rope_base = number(r, "llama.rope.freq_base", &ok, error);
    r->eps = number(r, "llama.attention.layer_norm_rms_epsilon", &ok, error);
    r->embedding = tensor(r, "token_embd.weight", r->width, 0, &ok, error);
    r->output_norm = tensor(r, "output_norm.weight", r->width, 1, &ok, error);
    if (!ok) {
        return false;
    }
    r->d = r->width / r->h_q;
    r->vocab = r->embedding.rows;
    if (!reference_file_tensor(&r->file, "output.weight", &r->output)) {
        r->output = r->embedding;
    }
    r->blocks = calloc(r->n_blocks, sizeof *r->blocks);
    r->row = calloc(r->width > r->hidden ? r->width : r->hidden, sizeof(double));
    if (r->blocks == NULL || r->row == NULL) {
        return llm_fail(error, "out of memory");
    }
    for (size_t i = 0; ok && i < r->n_blocks; i++) {
        ok = load_block(r, i, error);
    }
    return ok;
}

reference *reference_create(const unsigned char *bytes, size_t max_tokens, llm_error *error) {
    reference *r = calloc(1, sizeof *r);
    if (r == NULL) {
        llm_fail(error, "out of memory");
        return NULL;
    }
    reference_file_open(&r->file, bytes);
    r->max_tokens = max_tokens;
    if (!load(r, error)) {
        reference_destroy(r);
        return NULL;
    }
    return r;
}

void reference_destroy(reference *r) {
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; r->blocks != NULL && i < r->n_blocks; i++) {
        free(r->blocks[i].keys);
        free(r->blocks[i].values);
    }
    free(r->blocks);
    free(r->row);
    free(r);
}
