// SPDX-License-Identifier: Apache-2.0
//
// GGUF version 3, as it lies in the file (little endian):
//
//     magic "GGUF" | u32 version | u64 tensor count | u64 metadata count
//     metadata count x { string key | u32 kind | value }
//     tensor count   x { string name | u32 n_dims | u64 dims[n_dims] | u32 type | u64 offset }
//     padding to general.alignment | tensor data
//
// A string is a u64 length and its bytes; an array is a u32 element kind, a u64 count and the
// elements.  The walk holds one cursor, and `take` is the only place where it moves: it compares
// with what is left, so no sum of file-supplied numbers is ever formed before it is known to fit.
// The tables grow as entries are read, so their size is bounded by the file and not by its counts.
#include "gguf.h"
#include "gguf_internal.h"
#include "list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_KEY = 65535,    // the format's limit for a key
    MAX_NAME = 64,      // the format's limit for a tensor name
    MAX_NESTING = 4,    // arrays within arrays; bounds the recursion
    SHOWN = 64,         // characters of a name that a message repeats
    MAX_ALIGN = 1 << 20 // larger padding serves nobody
};

typedef struct {
    const char *name;
    size_t bytes; // 0: of varying size
} kind_row;

static const kind_row kinds[] = {
    [GGUF_UINT8] = {"uint8", 1},     [GGUF_INT8] = {"int8", 1},     [GGUF_UINT16] = {"uint16", 2},
    [GGUF_INT16] = {"int16", 2},     [GGUF_UINT32] = {"uint32", 4}, [GGUF_INT32] = {"int32", 4},
    [GGUF_FLOAT32] = {"float32", 4}, [GGUF_BOOL] = {"bool", 1},     [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0},     [GGUF_UINT64] = {"uint64", 8}, [GGUF_INT64] = {"int64", 8},
    [GGUF_FLOAT64] = {"float64", 8},
};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct {
    gguf_type type;
    const char *name;
    size_t elements; // in a block
    size_t bytes;    // of a block
} type_row;

static const type_row types[] = {
    {GGUF_F32, "F32", 1, 4},     {GGUF_F16, "F16", 1, 2},     {GGUF_BF16, "BF16", 1, 2},
    {GGUF_Q4_0, "Q4_0", 32, 18}, {GGUF_Q4_1, "Q4_1", 32, 20}, {GGUF_Q8_0, "Q8_0", 32, 34},
};

static const type_row *find_type(uint32_t type) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if ((uint32_t)types[i].type == type) {
            return &types[i];
        }
    }
    return NULL;
}

const char *gguf_kind_name(gguf_kind kind) {
    return (unsigned)kind < N_KINDS ? kinds[kind].name : "unknown";
}

size_t gguf_kind_bytes(gguf_kind kind) {
    return (unsigned)kind < N_KINDS ? kinds[kind].bytes : 0;
}

const char *gguf_type_name(gguf_type type) {
    const type_row *row = find_type((uint32_t)type);
    return row != NULL ? row->name : "unknown";
}

void gguf_type_block(gguf_type type, size_t *elements, size_t *bytes) {
    const type_row *row = find_type((uint32_t)type);
    *elements = row != NULL ? row->elements : 0;
    *bytes = row != NULL ? row->bytes : 0;
}

static int shown(gguf_string string) {
    return string.length < SHOWN ? (int)string.length : SHOWN;
}

// ---- the cursor ----------------------------------------------------------------------------

static size_t left(const gguf_reader *r) {
    return (size_t)(r->end - r->at);
}

// The next n bytes, or NULL with the error set.
static const unsigned char *take(gguf_reader *r, uint64_t n, const char *what) {
    if (n > left(r)) {
        llm_fail(r->error, "the file is truncated or damaged: %s needs %llu bytes and %zu are left",
                 what, (unsigned long long)n, left(r));
        return NULL;
    }
    const unsigned char *at = r->at;
    r->at += n;
    return at;
}

uint64_t gguf_load(const unsigned char *at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

static bool take_u32(gguf_reader *r, uint32_t *out, const char *what) {
    const unsigned char *at = take(r, 4, what);
    if (at == NULL) {
        return false;
    }
    *out = (uint32_t)gguf_load(at, 4);
    return true;
}

static bool take_u64(gguf_reader *r, uint64_t *out, const char *what) {
    const unsigned char *at = take(r, 8, what);
    if (at == NULL) {
        return false;
    }
    *out = gguf_load(at, 8);
    return true;
}

static bool take_string(gguf_reader *r, gguf_string *out, const char *what) {
    uint64_t length;
    if (!take_u64(r, &length, what)) {
        return false;
    }
    out->data = (const char *)take(r, length, what);
    out->length = (size_t)length;
    return out->data != NULL;
}

// ---- metadata ------------------------------------------------------------------------------

static bool take_kind(gguf_reader *r, gguf_kind *out, gguf_string key) {
    uint32_t kind;
    if (!take_u32(r, &kind, "the kind of a metadata value")) {
        return false;
    }
    if (kind >= N_KINDS) {
        return llm_fail(r->error, "metadata '%.*s': kind: expected 0 to %d; got %u", shown(key),
                        key.data, N_KINDS - 1, kind);
    }
    *out = (gguf_kind)kind;
    return true;
}

static bool check_bools(gguf_reader *r, const unsigned char *at, uint64_t n, gguf_string key) {
    for (uint64_t i = 0; i < n; i++) {
        if (at[i] > 1) {
            return llm_fail(r->error, "metadata '%.*s': bool: expected 0 or 1; got %u", shown(key),
                            key.data, at[i]);
        }
    }
    return true;
}

// Steps over n values of one kind.  Each step consumes at least one byte of the file, or n is 0.
static bool skip_values(gguf_reader *r, gguf_kind kind, uint64_t n, gguf_string key, int depth) {
    size_t bytes = gguf_kind_bytes(kind);
    if (bytes != 0) {
        if (n > left(r) / bytes) {
            return llm_fail(r->error,
                            "the file is truncated or damaged: metadata '%.*s' has %llu values of "
                            "%zu bytes and %zu bytes are left",
                            shown(key), key.data, (unsigned long long)n, bytes, left(r));
        }
        const unsigned char *at = take(r, n * bytes, "metadata");
        return at != NULL && (kind != GGUF_BOOL || check_bools(r, at, n, key));
    }
    for (uint64_t i = 0; i < n; i++) {
        gguf_string string;
        gguf_value nested = {.key = key};
        if (kind == GGUF_STRING ? !take_string(r, &string, "a metadata string")
                                : !gguf_skip_array(r, &nested, depth + 1)) {
            return false;
        }
    }
    return true;
}

static bool note_size(const gguf_reader *r, gguf_value *value) {
    value->bytes = (size_t)(r->at - value->data);
    return true;
}

bool gguf_skip_array(gguf_reader *r, gguf_value *value, int depth) {
    if (depth > MAX_NESTING) {
        return llm_fail(r->error, "metadata '%.*s': nested arrays: expected at most %d; got more",
                        shown(value->key), value->key.data, MAX_NESTING);
    }
    if (!take_kind(r, &value->element, value->key) ||
        !take_u64(r, &value->count, "the length of a metadata array")) {
        return false;
    }
    value->data = r->at;
    return skip_values(r, value->element, value->count, value->key, depth) && note_size(r, value);
}

static bool take_value(gguf_reader *r, gguf_value *value) {
    memset(value, 0, sizeof *value);
    if (!take_string(r, &value->key, "a metadata key")) {
        return false;
    }
    if (value->key.length == 0 || value->key.length > MAX_KEY) {
        return llm_fail(r->error, "metadata key: length: expected 1 to %d; got %zu", MAX_KEY,
                        value->key.length);
    }
    if (!take_kind(r, &value->kind, value->key)) {
        return false;
    }
    if (value->kind == GGUF_ARRAY) {
        return gguf_skip_array(r, value, 1);
    }
    value->element = value->kind;
    value->count = 1;
    value->data = r->at;
    return skip_values(r, value->kind, 1, value->key, 1) && note_size(r, value);
}

// ---- tables --------------------------------------------------------------------------------

int gguf_compare_strings(gguf_string a, gguf_string b) {
    size_t n = a.length < b.length ? a.length : b.length;
    int order = n == 0 ? 0 : memcmp(a.data, b.data, n);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

// Keys and names are the first members, so one comparison serves both tables.
int gguf_compare_entries(const void *a, const void *b) {
    return gguf_compare_strings(*(const gguf_string *)a, *(const gguf_string *)b);
}

static bool sort_unique(void *table, size_t count, size_t entry, const char *what,
                        llm_error *error) {
    if (table == NULL || count == 0) {
        return true;
    }
    qsort(table, count, entry, gguf_compare_entries);
    for (size_t i = 1; i < count; i++) {
        const char *previous = (const char *)table + (i - 1) * entry;
        if (gguf_compare_entries(previous, previous + entry) == 0) {
            gguf_string name = *(const gguf_string *)(const void *)previous;
            return llm_fail(error, "%s '%.*s' occurs twice", what, shown(name), name.data);
        }
    }
    return true;
}

static bool read_values(gguf_file *file, gguf_reader *r, uint64_t count) {
    size_t capacity = 0;
    void *table = NULL;
    bool ok = true;
    for (uint64_t i = 0; ok && i < count; i++) {
        ok = llm_grow(&table, file->n_values, 1, &capacity, sizeof *file->values, r->error);
        file->values = table;
        ok = ok && take_value(r, &file->values[file->n_values]);
        file->n_values += ok;
    }
    return ok && sort_unique(table, file->n_values, sizeof *file->values, "metadata", r->error);
}

// ---- tensors -------------------------------------------------------------------------------

// Fills in the size of the tensor from its dimensions and type.
static bool measure(gguf_tensor *t, uint32_t type, llm_error *error) {
    const type_row *row = find_type(type);
    int n = shown(t->name);
    if (row == NULL) {
        return llm_fail(error,
                        "tensor '%.*s': type: expected F32, F16, BF16, Q4_0, Q4_1 or Q8_0; got "
                        "number %u",
                        n, t->name.data, type);
    }
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] == 0 || t->dims[i] > (uint64_t)INT64_MAX / elements) {
            return llm_fail(error, "tensor '%.*s': dimension %u: expected 1 to %llu; got %llu", n,
                            t->name.data, i, (unsigned long long)((uint64_t)INT64_MAX / elements),
                            (unsigned long long)t->dims[i]);
        }
        elements *= t->dims[i];
    }
    if (t->dims[0] % row->elements != 0) {
        return llm_fail(error, "tensor '%.*s': dimension 0: expected a multiple of %zu; got %llu",
                        n, t->name.data, row->elements, (unsigned long long)t->dims[0]);
    }
    uint64_t blocks = elements / row->elements;
    if (blocks > SIZE_MAX / row->bytes) {
        return llm_fail(error, "tensor '%.*s': size: expected at most %zu bytes; got more", n,
                        t->name.data, (size_t)SIZE_MAX);
    }
    t->type = row->type;
    t->bytes = (size_t)blocks * row->bytes;
    return true;
}

static bool take_tensor(gguf_reader *r, gguf_tensor *t) {
    uint32_t type;
    memset(t, 0, sizeof *t);
    if (!take_string(r, &t->name, "the name of a tensor")) {
        return false;
    }
    if (t->name.length == 0 || t->name.length > MAX_NAME) {
        return llm_fail(r->error, "tensor name: length: expected 1 to %d; got %zu", MAX_NAME,
                        t->name.length);
    }
    if (!take_u32(r, &t->n_dims, "the shape of a tensor")) {
        return false;
    }
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS) {
        return llm_fail(r->error, "tensor '%.*s': dimensions: expected 1 to %d; got %u",
                        shown(t->name), t->name.data, GGUF_MAX_DIMS, t->n_dims);
    }
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims && !take_u64(r, &t->dims[i], "the shape of a tensor")) {
            return false;
        }
    }
    return take_u32(r, &type, "the type of a tensor") &&
           take_u64(r, &t->offset, "the offset of a tensor") && measure(t, type, r->error);
}

static bool read_tensors(gguf_file *file, gguf_reader *r, uint64_t count) {
    size_t capacity = 0;
    void *table = NULL;
    bool ok = true;
    for (uint64_t i = 0; ok && i < count; i++) {
        ok = llm_grow(&table, file->n_tensors, 1, &capacity, sizeof *file->tensors, r->error);
        file->tensors = table;
        ok = ok && take_tensor(r, &file->tensors[file->n_tensors]);
        file->n_tensors += ok;
    }
    return ok && sort_unique(table, file->n_tensors, sizeof *file->tensors, "tensor", r->error);
}

static bool read_alignment(gguf_file *file, llm_error *error) {
    file->alignment = 32;
    if (gguf_find(file, "general.alignment") == NULL) {
        return true;
    }
    if (!gguf_get_uint(file, "general.alignment", &file->alignment, error)) {
        return false;
    }
    uint64_t a = file->alignment;
    if (a < 8 || a > MAX_ALIGN || (a & (a - 1)) != 0) {
        return llm_fail(error, "general.alignment: expected a power of two from 8 to %d; got %llu",
                        MAX_ALIGN, (unsigned long long)a);
    }
    return true;
}

// Points each tensor at its data, which begins after the header at the next aligned byte.
static bool place_tensors(gguf_file *file, gguf_reader *r) {
    size_t header = file->size - left(r);
    size_t padding = (size_t)((file->alignment - header % file->alignment) % file->alignment);
    if (file->n_tensors == 0) {
        return true;
    }
    if (take(r, padding, "the padding before the tensor data") == NULL) {
        return false;
    }
    for (size_t i = 0; i < file->n_tensors; i++) {
        gguf_tensor *t = &file->tensors[i];
        if (t->offset % file->alignment != 0) {
            return llm_fail(r->error,
                            "tensor '%.*s': offset: expected a multiple of %llu; got %llu",
                            shown(t->name), t->name.data, (unsigned long long)file->alignment,
                            (unsigned long long)t->offset);
        }
        if (t->offset > left(r) || t->bytes > left(r) - (size_t)t->offset) {
            return llm_fail(r->error,
                            "the file is truncated or damaged: tensor '%.*s' has %zu bytes at "
                            "offset %llu and the tensor data ends at %zu",
                            shown(t->name), t->name.data, t->bytes, (unsigned long long)t->offset,
                            left(r));
        }
        t->data = r->at + t->offset;
    }
    return true;
}

// ---- opening and closing -------------------------------------------------------------------

static bool parse(gguf_file *file, llm_error *error) {
    gguf_reader r = {file->bytes, file->bytes + file->size, error};
    uint32_t version;
    uint64_t n_tensors, n_values;
    const unsigned char *magic = take(&r, 4, "the magic number");
    if (magic == NULL) {
        return false;
    }
    if (memcmp(magic, "GGUF", 4) != 0) {
        return llm_fail(error,
                        "not a GGUF file: the first four bytes: expected GGUF; got "
                        "%02x %02x %02x %02x",
                        magic[0], magic[1], magic[2], magic[3]);
    }
    if (!take_u32(&r, &version, "the version")) {
        return false;
    }
    if (version != 3) {
        return llm_fail(error, "GGUF version: expected 3; got %u%s", version,
                        version == 0x03000000u ? " (a big-endian file)" : "");
    }
    return take_u64(&r, &n_tensors, "the number of tensors") &&
           take_u64(&r, &n_values, "the number of metadata entries") &&
           read_values(file, &r, n_values) && read_alignment(file, error) &&
           read_tensors(file, &r, n_tensors) && place_tensors(file, &r);
}

bool gguf_open_memory(gguf_file *file, const void *bytes, size_t size, llm_error *error) {
    *file = (gguf_file){.bytes = size != 0 ? bytes : (const void *)"", .size = size};
    if (parse(file, error)) {
        return true;
    }
    gguf_close(file);
    return false;
}

// Maps a regular file; false with a sentence that does not yet name the path.
static bool map_file(gguf_file *file, int fd, llm_error *error) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return llm_fail(error, "cannot be examined: %s", strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return llm_fail(error, "not a regular file");
    }
    if (info.st_size == 0) {
        return llm_fail(error, "the file is empty");
    }
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        return llm_fail(error, "cannot be mapped: %s", strerror(errno));
    }
    *file = (gguf_file){.bytes = map, .size = (size_t)info.st_size, .mapped = true};
    return true;
}

bool gguf_open(gguf_file *file, const char *path, llm_error *error) {
    llm_error inner;
    *file = (gguf_file){.size = 0};
    // O_NONBLOCK: opening a pipe that nobody writes to must not hang.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return llm_fail(error, "%s: cannot be opened: %s", path, strerror(errno));
    }
    bool ok = map_file(file, fd, &inner);
    close(fd);
    if (ok && parse(file, &inner)) {
        return true;
    }
    gguf_close(file);
    return llm_fail(error, "%s: %s", path, inner.text);
}

void gguf_close(gguf_file *file) {
    free(file->values);
    free(file->tensors);
    if (file->mapped) {
        // The mapping was made by this file and is not const to its owner.
        munmap((void *)(uintptr_t)file->bytes, file->size);
    }
    *file = (gguf_file){.size = 0};
}
