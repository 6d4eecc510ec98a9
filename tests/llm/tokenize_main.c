// SPDX-License-Identifier: Apache-2.0
//
// Encodes texts for check_tokenizer.py: reads records (a little-endian u32 length and that many
// bytes) from standard input, and prints the ids of each on a line.
//
//     llm-tokenize MODEL.gguf < records
#include <stdio.h>
#include <stdlib.h>

#include "../../examples/llm/tokenizer.h"

// 1: a record, 0: the end, -1: a broken record.
static int read_record(text_list *text, llm_error *error) {
    unsigned char head[4];
    size_t n = fread(head, 1, 4, stdin);
    if (n != 4) {
        return n == 0 ? 0 : -1;
    }
    size_t length = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    char buffer[4096];
    text->count = 0;
    while (length > 0) {
        size_t part = length < sizeof buffer ? length : sizeof buffer;
        if (fread(buffer, 1, part, stdin) != part || !text_list_add(text, buffer, part, error)) {
            return -1;
        }
        length -= part;
    }
    return 1;
}

static bool encode_records(const tokenizer *t, llm_error *error) {
    text_list text = {.count = 0};
    token_list ids = {.count = 0};
    bool ok = true;
    int status = 1;
    while (ok && (status = read_record(&text, error)) > 0) {
        ids.count = 0;
        ok = tokenizer_encode(t, text.bytes, text.count, &ids, NULL, error);
        for (size_t i = 0; ok && i < ids.count; i++) {
            printf(i == 0 ? "%d" : " %d", ids.ids[i]);
        }
        putchar('\n');
    }
    if (ok && status < 0) {
        ok = llm_fail(error, "standard input: a record is cut short");
    }
    text_list_free(&text);
    token_list_free(&ids);
    return ok;
}

int main(int argc, char **argv) {
    llm_error error;
    gguf_file file;
    if (argc != 2) {
        fputs("usage: llm-tokenize MODEL.gguf < records\n", stderr);
        return 2;
    }
    if (!gguf_open(&file, argv[1], &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    tokenizer *t = tokenizer_create(&file, &error);
    bool ok = t != NULL && encode_records(t, &error);
    if (!ok) {
        fprintf(stderr, "%s: %s\n", argv[1], error.text);
    }
    tokenizer_destroy(t);
    gguf_close(&file);
    return !ok;
}
