// SPDX-License-Identifier: Apache-2.0
//
// Writes a small llama model of random weights to a file: llm-sample FILE
#include <stdio.h>

#include "../../examples/llm/gguf.h"
#include "gguf_builder.h"

int main(int argc, char **argv) {
    gguf_builder b = {.size = 0};
    FILE *out = argc == 2 ? fopen(argv[1], "wb") : NULL;
    if (out == NULL) {
        fputs("usage: llm-sample FILE\n", stderr);
        return 2;
    }
    build_llama(&b, &(build_llama_sizes){2, 64, 96, 4, 2, GGUF_Q4_0, 1, 0});
    int failed = fwrite(b.bytes, 1, b.size, out) != b.size;
    failed |= fclose(out);
    build_free(&b);
    return failed != 0;
}
