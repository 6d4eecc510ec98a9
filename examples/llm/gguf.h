// SPDX-License-Identifier: Apache-2.0
//
// Reader for GGUF version 3 model files (little endian).
//
// A file is mapped, walked once and checked completely: every count, length and offset is compared
// with the bytes that are left before it is used, in arithmetic that cannot overflow.  Nothing is
// allocated from a count alone.  After gguf_open succeeds, every string, array and tensor that the
// functions below hand out lies inside the mapping.
//
// All pointers point into the mapping and live until gguf_close.
//
//     gguf_file file;
//     llm_error error;
//     if (!gguf_open(&file, "model.gguf", &error)) { fprintf(stderr, "%s\n", error.text); ... }
//     uint64_t layers;
//     if (!gguf_get_uint(&file, "llama.block_count", &layers, &error)) ...
//     const gguf_tensor *t = gguf_find_tensor(&file, "token_embd.weight");
//     gguf_close(&file);
#ifndef BOLIDE_LLM_GGUF_H
#define BOLIDE_LLM_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

// Kinds of metadata values, numbered as in the file.
typedef enum {
    GGUF_UINT8 = 0,
    GGUF_INT8 = 1,
    GGUF_UINT16 = 2,
    GGUF_INT16 = 3,
    GGUF_UINT32 = 4,
    GGUF_INT32 = 5,
    GGUF_FLOAT32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_UINT64 = 10,
    GGUF_INT64 = 11,
    GGUF_FLOAT64 = 12,
} gguf_kind;

// Element types of tensors that are accepted, numbered as in the file.
typedef enum {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q4_1 = 3,
    GGUF_Q8_0 = 8,
    GGUF_BF16 = 30,
} gguf_type;

// A string in the file: length and bytes, without a closing zero.
typedef struct {
    const char *data;
    size_t length;
} gguf_string;

// One metadata entry.  `data` points to the value; for an array, to its first element.
typedef struct {
    gguf_string key;
    gguf_kind kind;
    gguf_kind element; // of an array
    uint64_t count;    // of an array; 1 otherwise
    const unsigned char *data;
    size_t bytes; // from data to the end of the value
} gguf_value;

enum { GGUF_MAX_DIMS = 4 };

// One tensor.  dims[0] runs fastest; dims beyond n_dims are 1.
typedef struct {
    gguf_string name;
    gguf_type type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
    uint64_t offset; // from the start of the tensor data
    size_t bytes;
    const unsigned char *data;
} gguf_tensor;

typedef struct {
    const unsigned char *bytes;
    size_t size;
    bool mapped; // bytes came from gguf_open and gguf_close unmaps them
    uint64_t alignment;
    size_t n_values;
    gguf_value *values; // sorted by key
    size_t n_tensors;
    gguf_tensor *tensors; // sorted by name
} gguf_file;

// Maps and checks a file.  The sentence in `error` begins with the path.
bool gguf_open(gguf_file *file, const char *path, llm_error *error);

// The same for bytes that the caller keeps alive.  Tensor data is aligned as in the file only if
// `bytes` itself is aligned.
bool gguf_open_memory(gguf_file *file, const void *bytes, size_t size, llm_error *error);

// Accepts a file whose opening failed.
void gguf_close(gguf_file *file);

// NULL where there is none.
const gguf_value *gguf_find(const gguf_file *file, const char *key);
const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name);

// Value of a key of any integer kind that is not negative; of float32 or float64; of bool; of
// string.  A missing key and a key of another kind are errors.
bool gguf_get_uint(const gguf_file *file, const char *key, uint64_t *out, llm_error *error);
bool gguf_get_float(const gguf_file *file, const char *key, double *out, llm_error *error);
bool gguf_get_bool(const gguf_file *file, const char *key, bool *out, llm_error *error);
bool gguf_get_string(const gguf_file *file, const char *key, gguf_string *out, llm_error *error);

// An array of the given element kind.
bool gguf_get_array(const gguf_file *file, const char *key, gguf_kind element,
                    const gguf_value **out, llm_error *error);

// Walks the elements of an array in order.  Each call returns the next element and steps over it,
// or false at the end or where the elements are of another kind.
typedef struct {
    const gguf_value *array;
    uint64_t index;
    const unsigned char *at;
} gguf_cursor;

gguf_cursor gguf_begin(const gguf_value *array);
bool gguf_next_string(gguf_cursor *cursor, gguf_string *out);
bool gguf_next_int(gguf_cursor *cursor, int64_t *out); // integers and bools; uint64 wraps
bool gguf_next_float(gguf_cursor *cursor, double *out);
bool gguf_next_array(gguf_cursor *cursor, gguf_value *out); // its key is empty

bool gguf_string_is(gguf_string string, const char *text);

// Order by bytes: negative, zero or positive.
int gguf_compare_strings(gguf_string a, gguf_string b);

// Printable names, and the shape of a block: `elements` values in `bytes` bytes.
const char *gguf_kind_name(gguf_kind kind);
const char *gguf_type_name(gguf_type type);
void gguf_type_block(gguf_type type, size_t *elements, size_t *bytes);

#endif
