// SPDX-License-Identifier: Apache-2.0
//
// Looking things up in an open GGUF file: typed access to metadata, walking arrays.  The tables
// are sorted, so a look-up is a binary search.  The whole file was checked when it was opened, so
// the values need no further bounds here; what is checked is that a key exists and has the kind
// that the caller asks for.
#include "gguf.h"
#include "gguf_internal.h"

#include <stdlib.h>
#include <string.h>

// ---- looking up ----------------------------------------------------------------------------

static const void *lookup(const void *table, size_t count, size_t entry, const char *name) {
    gguf_string wanted = {name, strlen(name)};
    return count == 0 ? NULL : bsearch(&wanted, table, count, entry, gguf_compare_entries);
}

const gguf_value *gguf_find(const gguf_file *file, const char *key) {
    return lookup(file->values, file->n_values, sizeof *file->values, key);
}

const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name) {
    return lookup(file->tensors, file->n_tensors, sizeof *file->tensors, name);
}

static bool load_int(const unsigned char *at, gguf_kind kind, int64_t *out) {
    size_t bytes = gguf_kind_bytes(kind);
    uint64_t raw = bytes != 0 ? gguf_load(at, bytes) : 0;
    switch (kind) {
    case GGUF_UINT8:
    case GGUF_UINT16:
    case GGUF_UINT32:
    case GGUF_UINT64:
    case GGUF_BOOL:
        *out = (int64_t)raw;
        return true;
    case GGUF_INT8:
        *out = (int64_t)(raw ^ 0x80) - 0x80;
        return true;
    case GGUF_INT16:
        *out = (int64_t)(raw ^ 0x8000) - 0x8000;
        return true;
    case GGUF_INT32:
        *out = (int64_t)(raw ^ 0x80000000u) - 0x80000000ll;
        return true;
    case GGUF_INT64:
        *out = (int64_t)raw;
        return true;
    default:
        return false;
    }
}

static bool load_float(const unsigned char *at, gguf_kind kind, double *out) {
    if (kind == GGUF_FLOAT32) {
        uint32_t raw = (uint32_t)gguf_load(at, 4);
        float value;
        memcpy(&value, &raw, sizeof value);
        *out = value;
        return true;
    }
    if (kind == GGUF_FLOAT64) {
        uint64_t raw = gguf_load(at, 8);
        memcpy(out, &raw, sizeof *out);
        return true;
    }
    return false;
}

// The entry, or NULL with an error where it is missing.
static const gguf_value *require(const gguf_file *file, const char *key, llm_error *error) {
    const gguf_value *value = gguf_find(file, key);
    if (value == NULL) {
        llm_fail(error, "metadata '%s' is missing", key);
    }
    return value;
}

static bool wrong_kind(const gguf_value *value, const char *key, const char *expected,
                       llm_error *error) {
    return llm_fail(error, "metadata '%s': kind: expected %s; got %s", key, expected,
                    gguf_kind_name(value->kind));
}

bool gguf_get_uint(const gguf_file *file, const char *key, uint64_t *out, llm_error *error) {
    const gguf_value *value = require(file, key, error);
    int64_t number;
    if (value == NULL) {
        return false;
    }
    if (value->kind == GGUF_BOOL || !load_int(value->data, value->kind, &number)) {
        return wrong_kind(value, key, "an integer", error);
    }
    if (number < 0 && value->kind != GGUF_UINT64) {
        return llm_fail(error, "metadata '%s': expected 0 or more; got %lld", key,
                        (long long)number);
    }
    *out = (uint64_t)number;
    return true;
}

bool gguf_get_float(const gguf_file *file, const char *key, double *out, llm_error *error) {
    const gguf_value *value = require(file, key, error);
    if (value == NULL) {
        return false;
    }
    return load_float(value->data, value->kind, out) || wrong_kind(value, key, "a float", error);
}

bool gguf_get_bool(const gguf_file *file, const char *key, bool *out, llm_error *error) {
    const gguf_value *value = require(file, key, error);
    if (value == NULL) {
        return false;
    }
    if (value->kind != GGUF_BOOL) {
        return wrong_kind(value, key, "bool", error);
    }
    *out = value->data[0] != 0;
    return true;
}

bool gguf_get_string(const gguf_file *file, const char *key, gguf_string *out, llm_error *error) {
    const gguf_value *value = require(file, key, error);
    if (value == NULL) {
        return false;
    }
    if (value->kind != GGUF_STRING) {
        return wrong_kind(value, key, "string", error);
    }
    *out = (gguf_string){(const char *)value->data + 8, (size_t)gguf_load(value->data, 8)};
    return true;
}

bool gguf_get_array(const gguf_file *file, const char *key, gguf_kind element,
                    const gguf_value **out, llm_error *error) {
    const gguf_value *value = require(file, key, error);
    if (value == NULL) {
        return false;
    }
    if (value->kind != GGUF_ARRAY || value->element != element) {
        return llm_fail(error, "metadata '%s': expected an array of %s; got %s of %s", key,
                        gguf_kind_name(element), gguf_kind_name(value->kind),
                        gguf_kind_name(value->element));
    }
    *out = value;
    return true;
}

// ---- walking arrays ------------------------------------------------------------------------
// The whole file was checked when it was opened, so these need no bounds of their own.

gguf_cursor gguf_begin(const gguf_value *array) {
    return (gguf_cursor){array, 0, array->data};
}

static bool more(const gguf_cursor *cursor) {
    return cursor->array->kind == GGUF_ARRAY && cursor->index < cursor->array->count;
}

bool gguf_next_string(gguf_cursor *cursor, gguf_string *out) {
    if (!more(cursor) || cursor->array->element != GGUF_STRING) {
        return false;
    }
    *out = (gguf_string){(const char *)cursor->at + 8, (size_t)gguf_load(cursor->at, 8)};
    cursor->at += 8 + out->length;
    cursor->index++;
    return true;
}

bool gguf_next_int(gguf_cursor *cursor, int64_t *out) {
    if (!more(cursor) || !load_int(cursor->at, cursor->array->element, out)) {
        return false;
    }
    cursor->at += gguf_kind_bytes(cursor->array->element);
    cursor->index++;
    return true;
}

bool gguf_next_float(gguf_cursor *cursor, double *out) {
    if (!more(cursor) || !load_float(cursor->at, cursor->array->element, out)) {
        return false;
    }
    cursor->at += gguf_kind_bytes(cursor->array->element);
    cursor->index++;
    return true;
}

bool gguf_next_array(gguf_cursor *cursor, gguf_value *out) {
    if (!more(cursor) || cursor->array->element != GGUF_ARRAY) {
        return false;
    }
    llm_error unused;
    gguf_reader r = {cursor->at, cursor->array->data + cursor->array->bytes, &unused};
    *out = (gguf_value){.kind = GGUF_ARRAY};
    if (!gguf_skip_array(&r, out, 1)) {
        return false;
    }
    cursor->at = r.at;
    cursor->index++;
    return true;
}

bool gguf_string_is(gguf_string string, const char *text) {
    return string.length == strlen(text) && memcmp(string.data, text, string.length) == 0;
}
