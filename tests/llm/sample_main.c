// SPDX-License-Identifier: Apache-2.0
//
// Writes a llama model of random weights to a file: llm-sample FILE [real], a small one or one with
// the sizes of a real one, for timing.
#include <stdio.h>
#include <string.h>

#include "../../examples/llm/gguf.h"
#include "gguf_builder.h"

int main(int argc, char **argv) {
    gguf_builder b = {.size = 0};
    const bool real = argc == 3 && strcmp(argv[2], "real") == 0;
    FILE *out = argc == 2 || real ? fopen(argv[1], "wb") : NULL;
    if (out == NULL) {
        fputs("usage: llm-sample FILE [real]\n", stderr);
        return 2;
    }
    const build_llama_sizes sizes = {2, 64, 96, 4, 2, GGUF_Q4_0, 1, 0, 0};
    const build_llama_sizes of_smollm2 = {30, 576, 1536, 9, 3, GGUF_Q4_1, 1, 0, 49152};
    build_llama(&b, real ? &of_smollm2 : &sizes);
    int failed = fwrite(b.bytes, 1, b.size, out) != b.size;
    failed |= fclose(out);
    build_free(&b);
    return failed != 0;
}
