// SPDX-License-Identifier: Apache-2.0
//
// Runs the float64 reference from a command line.
//
//     llm-reference MODEL.gguf chat "PROMPT" N       answers greedily with at most N tokens
//     llm-reference MODEL.gguf logits FILE ID...     writes the logits of every position
//
// FILE gets two little-endian u64, tokens and vocabulary, and then as many rows of float64.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/llm/chat.h"
#include "reference.h"

static int32_t best(const double *logits, size_t n) {
    size_t top = 0;
    for (size_t i = 1; i < n; i++) {
        top = logits[i] > logits[top] ? i : top;
    }
    return (int32_t)top;
}

static bool print_piece(const tokenizer *t, int32_t id, text_stream *stream, llm_error *error) {
    text_list out = {.count = 0};
    bool ok = text_stream_put(stream, tokenizer_piece(t, id), &out, error);
    fwrite(out.bytes, 1, out.count, stdout);
    fflush(stdout);
    text_list_free(&out);
    return ok;
}

static bool generate(const tokenizer *t, reference *r, const token_list *prompt, size_t limit,
                     double *logits, llm_error *error) {
    text_stream stream = {.n_held = 0};
    bool ok = reference_forward(r, prompt->ids, prompt->count, 1, logits, error);
    for (size_t i = 0; ok && i < limit; i++) {
        int32_t id = best(logits, reference_vocab(r));
        if (chat_ends(t, id)) {
            break;
        }
        ok = print_piece(t, id, &stream, error) && reference_forward(r, &id, 1, 1, logits, error);
    }
    putchar('\n');
    return ok;
}

static bool chat(const gguf_file *file, const char *prompt, size_t limit, llm_error *error) {
    chat_message message = {"user", prompt, strlen(prompt)};
    token_list ids = {.count = 0};
    reference *r = NULL;
    double *logits = NULL;
    tokenizer *t = tokenizer_create(file, error);
    bool ok = t != NULL && chat_encode(t, &message, 1, true, &ids, NULL, error);
    if (ok) {
        r = reference_create(file->bytes, ids.count + limit, error);
        ok = r != NULL;
    }
    if (ok) {
        logits = malloc(reference_vocab(r) * sizeof *logits);
        ok = logits != NULL && generate(t, r, &ids, limit, logits, error);
    }
    free(logits);
    reference_destroy(r);
    token_list_free(&ids);
    tokenizer_destroy(t);
    return ok;
}

static bool write_logits(const char *path, const double *logits, size_t n, size_t vocab,
                         llm_error *error) {
    uint64_t head[2] = {n, vocab};
    FILE *out = fopen(path, "wb");
    bool ok = out != NULL && fwrite(head, sizeof head, 1, out) == 1 &&
              fwrite(logits, sizeof *logits * vocab, n, out) == n;
    ok = out != NULL && fclose(out) == 0 && ok;
    return ok || llm_fail(error, "%s: cannot be written", path);
}

static bool logits(const gguf_file *file, const char *path, char **words, size_t n,
                   llm_error *error) {
    reference *r = reference_create(file->bytes, n, error);
    int32_t *ids = calloc(n, sizeof *ids);
    double *rows = r != NULL ? malloc(n * reference_vocab(r) * sizeof *rows) : NULL;
    bool ok = ids != NULL && rows != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ids[i] = (int32_t)strtol(words[i], NULL, 10);
    }
    ok = ok && reference_forward(r, ids, n, n, rows, error) &&
         write_logits(path, rows, n, reference_vocab(r), error);
    free(rows);
    free(ids);
    reference_destroy(r);
    return ok;
}

int main(int argc, char **argv) {
    llm_error error = {"out of memory"};
    gguf_file file;
    bool is_chat = argc == 5 && strcmp(argv[2], "chat") == 0;
    bool is_logits = argc > 4 && strcmp(argv[2], "logits") == 0;
    if (!is_chat && !is_logits) {
        fputs("usage: llm-reference MODEL.gguf chat PROMPT N\n"
              "       llm-reference MODEL.gguf logits FILE ID...\n",
              stderr);
        return 2;
    }
    bool ok = gguf_open(&file, argv[1], &error);
    if (ok) {
        ok = is_chat ? chat(&file, argv[3], strtoul(argv[4], NULL, 10), &error)
                     : logits(&file, argv[3], argv + 4, (size_t)(argc - 4), &error);
        gguf_close(&file);
    }
    if (!ok) {
        fprintf(stderr, "%s\n", error.text);
    }
    return !ok;
}
