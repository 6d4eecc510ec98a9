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

typedef struct {
    const gguf_tensor *attn_norm, *q, *k, *v, *o, *ffn_norm, *gate, *up, *down;
    double *keys, *values; // [max_tokens, h_kv * d]
} block;

struct reference {
    const gguf_file *file;
    size_t n_blocks, width, hidden, h_q, h_kv, d, rotated, vocab;
    double rope_base, eps;
    const gguf_tensor *embedding, *output_norm, *output;
    block *blocks;
    size_t max_tokens, n_tokens;
    double *row; // scratch for one row of weights
};

// ---- weights -------------------------------------------------------------------------------

static double half(const unsigned char *at) {
    unsigned raw = at[0] | (unsigned)at[1] << 8;
    unsigned exponent = raw >> 10 & 31, fraction = raw & 1023;
    double value = exponent == 0    ? ldexp(fraction, -24)
                   : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                    : ldexp(1024 + fraction, (int)exponent - 25);
    return raw & 0x8000 ? -value : value;
}

static double single(uint32_t raw) {
    float value;
    memcpy(&value, &raw, sizeof value);
    return value;
}

// A block of 32 four-bit weights: the low halves of the bytes come first, then the high halves.
static void four_bit(const unsigned char *packed, double scale, double offset, double *out) {
    for (int i = 0; i < 16; i++) {
        out[i] = scale * (packed[i] & 15) + offset;
        out[i + 16] = scale * (packed[i] >> 4) + offset;
    }
}

// Row `index` of a matrix as doubles.
static void read_row(const gguf_tensor *t, size_t index, double *out) {
    size_t n = (size_t)t->dims[0], elements, bytes;
    gguf_type_block(t->type, &elements, &bytes);
    const unsigned char *at = t->data + index * (n / elements) * bytes;
    for (size_t i = 0; i < n; i += elements, at += bytes) {
        switch (t->type) {
        case GGUF_F32:
            out[i] = single(at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                            (uint32_t)at[3] << 24);
            break;
        case GGUF_F16:
            out[i] = half(at);
            break;
        case GGUF_BF16:
            out[i] = single((uint32_t)at[0] << 16 | (uint32_t)at[1] << 24);
            break;
        case GGUF_Q4_0:
            four_bit(at + 2, half(at), -8 * half(at), out + i);
            break;
        case GGUF_Q4_1:
            four_bit(at + 4, half(at), half(at + 2), out + i);
            break;
        case GGUF_Q8_0:
            for (size_t j = 0; j < 32; j++) {
                out[i + j] = half(at) * (signed char)at[2 + j];
            }
            break;
        }
    }
}

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
static void multiply(reference *r, const gguf_tensor *weights, const double *in, size_t n, bool add,
                     double *out) {
    size_t columns = (size_t)weights->dims[0], rows = (size_t)weights->dims[1];
    for (size_t i = 0; i < rows; i++) {
        read_row(weights, i, r->row);
        for (size_t token = 0; token < n; token++) {
            double value = dot(r->row, in + token * columns, columns);
            out[token * rows + i] = add ? out[token * rows + i] + value : value;
        }
    }
}

static void rmsnorm(reference *r, const gguf_tensor *weight, const double *in, size_t n,
                    double *out) {
    size_t width = r->width;
    read_row(weight, 0, r->row);
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
    rmsnorm(r, b->attn_norm, a->x, n, a->normed);
    multiply(r, b->q, a->normed, n, false, a->q);
    multiply(r, b->k, a->normed, n, false, keys);
    multiply(r, b->v, a->normed, n, false, values);
    rope(r, a->q, r->h_q, n);
    rope(r, keys, r->h_kv, n);
    for (size_t token = 0; token < n; token++) {
        for (size_t head = 0; head < r->h_q; head++) {
            size_t at = (token * r->h_q + head) * r->d;
            attend_head(r, b, a->q + at, head / (r->h_q / r->h_kv), r->n_tokens + token + 1,
                        a->weights, a->mixed + at);
        }
    }
    multiply(r, b->o, a->mixed, n, true, a->x);
    rmsnorm(r, b->ffn_norm, a->x, n, a->normed);
    multiply(r, b->gate, a->normed, n, false, a->gate);
    multiply(r, b->up, a->normed, n, false, a->up);
    for (size_t i = 0; i < n * r->hidden; i++) {
        a->gate[i] = a->gate[i] / (1 + exp(-a->gate[i])) * a->up[i];
    }
    multiply(r, b->down, a->gate, n, true, a->x);
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
            read_row(r->embedding, (size_t)tokens[i], a.x + i * r->width);
        }
        for (size_t i = 0; i < r->n_blocks; i++) {
            run_block(r, &r->blocks[i], &a, n);
        }
        r->n_tokens += n;
        if (logits != NULL) {
            rmsnorm(r, r->output_norm, a.x + (n - wanted) * r->width, wanted, a.normed);
            multiply(r, r->output, a.normed, wanted, false, logits);
        }
    } else {
        ok = llm_fail(error, "reference: out of memory");
    }
    release(&a);
    return ok;
}

// ---- loading -------------------------------------------------------------------------------

static size_t number(const gguf_file *file, const char *key, bool *ok, llm_error *error) {
    uint64_t value = 0;
    *ok = *ok && gguf_get_uint(file, key, &value, error);
    return (size_t)value;
}

// A tensor that must have this shape.
static const gguf_tensor *tensor(const gguf_file *file, const char *name, size_t columns,
                                 size_t rows, bool *ok, llm_error *error) {
    const gguf_tensor *t = *ok ? gguf_find_tensor(file, name) : NULL;
    if (*ok && (t == NULL || t->dims[0] != columns || t->dims[1] != rows)) {
        *ok = llm_fail(error, "reference: tensor %s is missing or has another shape", name);
    }
    return t;
}

// A tensor of one block.
static const gguf_tensor *part(const reference *r, size_t index, const char *name, size_t columns,
                               size_t rows, bool *ok, llm_error *error) {
    char full[64];
    snprintf(full, sizeof full, "blk.%zu.%s.weight", index, name);
    return tensor(r->file, full, columns, rows, ok, error);
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
    const gguf_file *f = r->file;
    bool ok = true;
    r->n_blocks = number(f, "llama.block_count", &ok, error);
    r->width = number(f, "llama.embedding_length", &ok, error);
    r->hidden = number(f, "llama.feed_forward_length", &ok, error);
    r->h_q = number(f, "llama.attention.head_count", &ok, error);
    r->h_kv = number(f, "llama.attention.head_count_kv", &ok, error);
    r->rotated = number(f, "llama.rope.dimension_count", &ok, error);
    ok = ok && gguf_get_float(f, "llama.rope.freq_base", &r->rope_base, error) &&
         gguf_get_float(f, "llama.attention.layer_norm_rms_epsilon", &r->eps, error);
    if (!ok) {
        return false;
    }
    r->d = r->width / r->h_q;
    const gguf_tensor *embedding = gguf_find_tensor(f, "token_embd.weight");
    r->vocab = embedding != NULL ? (size_t)embedding->dims[1] : 0;
    r->embedding = tensor(f, "token_embd.weight", r->width, r->vocab, &ok, error);
    r->output_norm = tensor(f, "output_norm.weight", r->width, 1, &ok, error);
    r->output = gguf_find_tensor(f, "output.weight");
    r->output = r->output != NULL ? r->output : r->embedding;
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

reference *reference_create(const gguf_file *file, size_t max_tokens, llm_error *error) {
    reference *r = calloc(1, sizeof *r);
    if (r == NULL) {
        llm_fail(error, "out of memory");
        return NULL;
    }
    r->file = file;
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
