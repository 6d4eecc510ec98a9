// SPDX-License-Identifier: Apache-2.0
//
// Finds the weights of a llama model in its file and checks that they fit together.

#include "model.h"

#include <bolide/bolide.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    gguf_type type;
    int64_t format, elements, bytes; // of a block
} formats[] = {
    {GGUF_F32, BOLIDE_WEIGHT_F32, 1, 4},     {GGUF_F16, BOLIDE_WEIGHT_F16, 1, 2},
    {GGUF_BF16, BOLIDE_WEIGHT_BF16, 1, 2},   {GGUF_Q4_0, BOLIDE_WEIGHT_Q4_0, 32, 18},
    {GGUF_Q4_1, BOLIDE_WEIGHT_Q4_1, 32, 20}, {GGUF_Q8_0, BOLIDE_WEIGHT_Q8_0, 32, 34},
};

// A matrix of the given shape; rows 0 takes what the file has.
static bool take_weight(const gguf_file *file, const char *name, int64_t rows, int64_t columns,
                        llm_weight *out, llm_error *error) {
    const gguf_tensor *t = gguf_find_tensor(file, name);
    if (!t)
        return llm_fail(error, "the model has no tensor %s", name);
    const int64_t have = (int64_t)t->dims[1];
    if (t->n_dims != 2 || t->dims[0] != (uint64_t)columns || (rows != 0 && have != rows))
        return llm_fail(error, "tensor %s: expected shape [%lld, %lld]; got [%lld, %lld]", name,
                        (long long)columns, (long long)rows, (long long)t->dims[0],
                        (long long)have);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (formats[i].type != t->type)
            continue;
        if (columns % formats[i].elements != 0)
            return llm_fail(error, "tensor %s: expected rows of whole blocks of %lld; got %lld",
                            name, (long long)formats[i].elements, (long long)columns);
        *out = (llm_weight){.data = t->data,
                            .rows = have,
                            .columns = columns,
                            .row_bytes = columns / formats[i].elements * formats[i].bytes,
                            .format = formats[i].format};
        return true;
    }
    return llm_fail(error, "tensor %s: type %s is not supported", name, gguf_type_name(t->type));
}

static bool take_vector(const gguf_file *file, const char *name, int64_t size, const float **out,
                        llm_error *error) {
    const gguf_tensor *t = gguf_find_tensor(file, name);
    if (!t)
        return llm_fail(error, "the model has no tensor %s", name);
    if (t->type != GGUF_F32 || t->n_dims != 1 || t->dims[0] != (uint64_t)size)
        return llm_fail(error, "tensor %s: expected %lld values of f32", name, (long long)size);
    *out = (const float *)(const void *)t->data;
    return true;
}

static bool take_layer(llm_model *m, int64_t index, llm_error *error) {
    llm_layer *l = &m->layers[index];
    const int64_t q = m->h_q * m->head_dim, kv = m->h_kv * m->head_dim;
    const struct {
        const char *name;
        int64_t rows, columns;
        llm_weight *out;
    } weights[] = {
        {"attn_q", q, m->d, &l->q},
        {"attn_k", kv, m->d, &l->k},
        {"attn_v", kv, m->d, &l->v},
        {"attn_output", m->d, q, &l->o},
        {"ffn_gate", m->d_ff, m->d, &l->gate},
        {"ffn_up", m->d_ff, m->d, &l->up},
        {"ffn_down", m->d, m->d_ff, &l->down},
    };
    char name[64];
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        snprintf(name, sizeof name, "blk.%lld.%s.weight", (long long)index, weights[i].name);
        if (!take_weight(&m->file, name, weights[i].rows, weights[i].columns, weights[i].out,
                         error))
            return false;
    }
    snprintf(name, sizeof name, "blk.%lld.attn_norm.weight", (long long)index);
    if (!take_vector(&m->file, name, m->d, &l->attention_norm, error))
        return false;
    snprintf(name, sizeof name, "blk.%lld.ffn_norm.weight", (long long)index);
    return take_vector(&m->file, name, m->d, &l->ffn_norm, error);
}

// A count between 1 and `limit`.
static bool take_count(const gguf_file *file, const char *key, int64_t limit, int64_t *out,
                       llm_error *error) {
    uint64_t value;
    if (!gguf_get_uint(file, key, &value, error))
        return false;
    if (value < 1 || value > (uint64_t)limit)
        return llm_fail(error, "%s: expected 1 to %lld; got %llu", key, (long long)limit,
                        (unsigned long long)value);
    *out = (int64_t)value;
    return true;
}

static bool take_rope(llm_model *m, llm_error *error) {
    const gguf_file *file = &m->file;
    int64_t rope_dim = m->head_dim;
    m->rope_theta = 10000;
    if (gguf_find(file, "llama.rope.freq_base") &&
        !gguf_get_float(file, "llama.rope.freq_base", &m->rope_theta, error))
        return false;
    if (!(m->rope_theta > 0) || !isfinite(m->rope_theta))
        return llm_fail(error, "llama.rope.freq_base: expected a number above 0; got %g",
                        m->rope_theta);
    if (gguf_find(file, "llama.rope.dimension_count") &&
        !take_count(file, "llama.rope.dimension_count", 1 << 16, &rope_dim, error))
        return false;
    if (rope_dim != m->head_dim)
        return llm_fail(error, "llama.rope.dimension_count: expected the head size, %lld; got %lld",
                        (long long)m->head_dim, (long long)rope_dim);
    gguf_string scaling;
    if (gguf_find(file, "llama.rope.scaling.type")) {
        if (!gguf_get_string(file, "llama.rope.scaling.type", &scaling, error))
            return false;
        if (!gguf_string_is(scaling, "none"))
            return llm_fail(error, "llama.rope.scaling.type: expected none; got %.*s",
                            (int)(scaling.length < 40 ? scaling.length : 40), scaling.data);
    }
    return true;
}

static bool take_sizes(llm_model *m, llm_error *error) {
    const gguf_file *file = &m->file;
    gguf_string architecture;
    if (!gguf_get_string(file, "general.architecture", &architecture, error))
        return false;
    if (!gguf_string_is(architecture, "llama"))
        return llm_fail(error, "general.architecture: expected llama; got %.*s",
                        (int)(architecture.length < 40 ? architecture.length : 40),
                        architecture.data);
    if (gguf_find(file, "llama.context_length") &&
        !take_count(file, "llama.context_length", 1 << 30, &m->context, error))
        return false;
    if (!take_count(file, "llama.block_count", 1024, &m->n_layers, error) ||
        !take_count(file, "llama.embedding_length", 1 << 17, &m->d, error) ||
        !take_count(file, "llama.feed_forward_length", 1 << 20, &m->d_ff, error) ||
        !take_count(file, "llama.attention.head_count", 1 << 12, &m->h_q, error) ||
        !gguf_get_float(file, "llama.attention.layer_norm_rms_epsilon", &m->eps, error))
        return false;
    m->h_kv = m->h_q;
    if (gguf_find(file, "llama.attention.head_count_kv") &&
        !take_count(file, "llama.attention.head_count_kv", 1 << 12, &m->h_kv, error))
        return false;
    if (m->d % m->h_q != 0 || m->h_q % m->h_kv != 0 || m->d / m->h_q % 8 != 0)
        return llm_fail(error,
                        "%lld query heads and %lld key heads do not divide a width of %lld into "
                        "heads of a multiple of 8",
                        (long long)m->h_q, (long long)m->h_kv, (long long)m->d);
    m->head_dim = m->d / m->h_q;
    return take_rope(m, error);
}

bool llm_model_of(llm_model *m, gguf_file file, llm_error *error) {
    *m = (llm_model){.file = file};
    bool ok = take_sizes(m, error) &&
              take_weight(&m->file, "token_embd.weight", 0, m->d, &m->embedding, error) &&
              take_vector(&m->file, "output_norm.weight", m->d, &m->output_norm, error);
    m->vocab = m->embedding.rows;
    m->output = m->embedding;
    if (ok && gguf_find_tensor(&m->file, "output.weight"))
        ok = take_weight(&m->file, "output.weight", m->vocab, m->d, &m->output, error);
    if (ok) {
        m->layers = calloc((size_t)m->n_layers, sizeof *m->layers);
        ok = m->layers != NULL ||
             llm_fail(error, "no memory for %lld layers", (long long)m->n_layers);
    }
    for (int64_t i = 0; ok && i < m->n_layers; i++)
        ok = take_layer(m, i, error);
    if (!ok)
        llm_model_close(m);
    return ok;
}

bool llm_model_open(llm_model *m, const char *path, llm_error *error) {
    gguf_file file;
    llm_error why;
    *m = (llm_model){.n_layers = 0};
    if (!gguf_open(&file, path, error))
        return false;
    return llm_model_of(m, file, &why) || llm_fail(error, "%s: %s", path, why.text);
}

void llm_model_close(llm_model *m) {
    free(m->layers);
    gguf_close(&m->file);
    *m = (llm_model){.n_layers = 0};
}

// ---- rows -------------------------------------------------------------------------------------

static float half_to_float(const unsigned char *p) {
    const uint16_t h = (uint16_t)(p[0] | p[1] << 8);
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float magnitude = exponent == 0    ? ldexpf((float)fraction, -24)
                            : exponent == 31 ? (fraction ? NAN : INFINITY)
                                             : ldexpf((float)(fraction + 1024), exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

static float word_to_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void block_row(const llm_weight *w, const unsigned char *p, float *out) {
    for (int64_t i = 0; i < w->columns; i += 32) {
        const float d = half_to_float(p);
        const int has_least = w->format == BOLIDE_WEIGHT_Q4_1;
        const float least = has_least ? half_to_float(p + 2) : -8 * d;
        const unsigned char *q = p + (has_least ? 4 : 2);
        for (int64_t k = 0; k < 32; k++) {
            if (w->format == BOLIDE_WEIGHT_Q8_0)
                out[i + k] = d * (float)(signed char)q[k];
            else
                out[i + k] = d * (float)(k < 16 ? q[k] & 15 : q[k - 16] >> 4) + least;
        }
        p = q + (w->format == BOLIDE_WEIGHT_Q8_0 ? 32 : 16);
    }
}

void llm_weight_row(const llm_weight *w, int64_t index, float *out) {
    const unsigned char *p = w->data + index * w->row_bytes;
    switch (w->format) {
    case BOLIDE_WEIGHT_F32:
        memcpy(out, p, (size_t)w->row_bytes);
        break;
    case BOLIDE_WEIGHT_F16:
        for (int64_t i = 0; i < w->columns; i++)
            out[i] = half_to_float(p + 2 * i);
        break;
    case BOLIDE_WEIGHT_BF16:
        for (int64_t i = 0; i < w->columns; i++)
            out[i] = word_to_float((uint32_t)p[2 * i] << 16 | (uint32_t)p[2 * i + 1] << 24);
        break;
    default:
        block_row(w, p, out);
        break;
    }
}
