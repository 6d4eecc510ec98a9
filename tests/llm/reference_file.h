// SPDX-License-Identifier: Apache-2.0
//
// A GGUF reader of its own for the reference, so that a mistake in the engine's reader cannot hide
// in both.  It believes what the file says and is for files that are known to be sound.
#ifndef BOLIDE_TESTS_LLM_REFERENCE_FILE_H
#define BOLIDE_TESTS_LLM_REFERENCE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const unsigned char *bytes;
    uint64_t n_values, n_tensors;
    size_t infos;   // where the heads of the tensors begin
    size_t tensors; // where their data begins
} reference_file;

// A matrix: `rows` rows of `columns` numbers, in the format with this number in the file.
typedef struct {
    uint32_t type;
    size_t columns, rows;
    const unsigned char *data;
} reference_tensor;

// The bytes must outlive the file.
void reference_file_open(reference_file *f, const unsigned char *bytes);

// A number of any kind; false where there is no such key.
bool reference_file_number(const reference_file *f, const char *key, double *out);
bool reference_file_tensor(const reference_file *f, const char *name, reference_tensor *out);

// Row `index` as doubles.
void reference_file_row(const reference_tensor *t, size_t index, double *out);

#endif
