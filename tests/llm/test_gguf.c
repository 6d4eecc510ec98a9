// SPDX-License-Identifier: Apache-2.0
//
// The GGUF reader: every kind of value and tensor is read back, and no file, however cut or bent,
// does more than fail with one sentence.  Files are built in memory; truncations are copied into
// buffers of their exact size, so that the address sanitizer sees a read past the end.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../examples/llm/gguf.h"
#include "gguf_builder.h"
#include "harness.h"

static bool open_copy(gguf_file *file, const gguf_builder *b, void **copy, llm_error *error) {
    *copy = malloc(b->size != 0 ? b->size : 1);
    if (*copy == NULL) {
        exit(1);
    }
    memcpy(*copy, b->bytes, b->size);
    return gguf_open_memory(file, *copy, b->size, error);
}

// The file in `b` must be refused with a sentence that contains `part`.
static void expect_refusal(gguf_builder *b, const char *part) {
    gguf_file file;
    llm_error error = {"(no message)"};
    void *copy;
    bool opened = open_copy(&file, b, &copy, &error);
    CHECK_MSG(!opened, "a file was accepted that should fail with '%s'", part);
    CHECK_MSG(strstr(error.text, part) != NULL, "expected '%s' in '%s'", part, error.text);
    CHECK(strchr(error.text, '\n') == NULL);
    if (opened) {
        gguf_close(&file);
    }
    free(copy);
    build_free(b);
}

static void reads_every_scalar(void) {
    gguf_builder b = {.size = 0};
    build_sample(&b);
    gguf_file file;
    llm_error error;
    CHECK_MSG(gguf_open_memory(&file, b.bytes, b.size, &error), "%s", error.text);
    uint64_t u = 0;
    double f = 0;
    bool flag = false;
    gguf_string s = {NULL, 0};
    CHECK(gguf_get_uint(&file, "v.uint8", &u, &error) && u == 200);
    CHECK(gguf_get_uint(&file, "v.uint16", &u, &error) && u == 0x1234);
    CHECK(gguf_get_uint(&file, "v.uint32", &u, &error) && u == 4000000000u);
    CHECK(gguf_get_uint(&file, "v.uint64", &u, &error) && u == 1ull << 40);
    CHECK(!gguf_get_uint(&file, "v.int8", &u, &error) && strstr(error.text, "got -2") != NULL);
    CHECK(!gguf_get_uint(&file, "v.int16", &u, &error) && strstr(error.text, "got -1") != NULL);
    CHECK(!gguf_get_uint(&file, "v.int32", &u, &error) && strstr(error.text, "got -7") != NULL);
    CHECK(!gguf_get_uint(&file, "v.int64", &u, &error) && strstr(error.text, "got -9") != NULL);
    CHECK(gguf_get_float(&file, "v.float32", &f, &error) && f == 1.5);
    CHECK(gguf_get_float(&file, "v.float64", &f, &error) && f == 2.5);
    CHECK(gguf_get_bool(&file, "v.bool", &flag, &error) && flag);
    CHECK(gguf_get_string(&file, "v.string", &s, &error) && gguf_string_is(s, "text"));
    CHECK(!gguf_get_uint(&file, "v.none", &u, &error) && strstr(error.text, "missing") != NULL);
    CHECK(!gguf_get_uint(&file, "v.bool", &u, &error) && strstr(error.text, "got bool") != NULL);
    CHECK(!gguf_get_string(&file, "v.uint8", &s, &error));
    CHECK(!gguf_get_float(&file, "v.uint8", &f, &error));
    CHECK(!gguf_get_bool(&file, "a.int32", &flag, &error));
    gguf_close(&file);
    build_free(&b);
}

static void walks_arrays(void) {
    gguf_builder b = {.size = 0};
    build_sample(&b);
    gguf_file file;
    llm_error error;
    const gguf_value *array;
    CHECK_MSG(gguf_open_memory(&file, b.bytes, b.size, &error), "%s", error.text);
    CHECK(gguf_get_array(&file, "a.int32", GGUF_INT32, &array, &error) && array->count == 3);
    gguf_cursor cursor = gguf_begin(array);
    int64_t number;
    for (int i = -1; i < 2; i++) {
        CHECK(gguf_next_int(&cursor, &number) && number == i);
    }
    CHECK(!gguf_next_int(&cursor, &number));
    CHECK(!gguf_get_array(&file, "a.int32", GGUF_STRING, &array, &error));
    CHECK(gguf_get_array(&file, "a.empty", GGUF_STRING, &array, &error) && array->count == 0);
    CHECK(gguf_get_array(&file, "a.nested", GGUF_ARRAY, &array, &error) && array->count == 2);
    cursor = gguf_begin(array);
    gguf_value inner;
    gguf_string s;
    double f;
    CHECK(gguf_next_array(&cursor, &inner) && inner.element == GGUF_STRING && inner.count == 2);
    gguf_cursor deep = gguf_begin(&inner);
    CHECK(!gguf_next_int(&deep, &number));
    CHECK(gguf_next_string(&deep, &s) && gguf_string_is(s, "x"));
    CHECK(gguf_next_string(&deep, &s) && gguf_string_is(s, "yz"));
    CHECK(!gguf_next_string(&deep, &s));
    CHECK(gguf_next_array(&cursor, &inner) && inner.element == GGUF_FLOAT32);
    deep = gguf_begin(&inner);
    CHECK(gguf_next_float(&deep, &f) && f == 0.25);
    CHECK(!gguf_next_array(&cursor, &inner));
    gguf_close(&file);
    build_free(&b);
}

static void finds_tensors(void) {
    static const struct {
        const char *name;
        gguf_type type;
        uint64_t dims[2], offset;
        size_t bytes;
    } wanted[] = {
        {"t.f32", GGUF_F32, {3, 1}, 0, 12},      {"t.f16", GGUF_F16, {5, 2}, 64, 20},
        {"t.bf16", GGUF_BF16, {4, 1}, 128, 8},   {"t.q4_0", GGUF_Q4_0, {64, 1}, 192, 36},
        {"t.q4_1", GGUF_Q4_1, {32, 2}, 256, 40}, {"t.q8_0", GGUF_Q8_0, {32, 3}, 320, 102},
    };
    gguf_builder b = {.size = 0};
    build_sample(&b);
    gguf_file file;
    llm_error error;
    CHECK_MSG(gguf_open_memory(&file, b.bytes, b.size, &error), "%s", error.text);
    CHECK(file.n_tensors == 6 && file.alignment == 64);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const gguf_tensor *t = gguf_find_tensor(&file, wanted[i].name);
        CHECK_MSG(t != NULL, "%s is missing", wanted[i].name);
        if (t != NULL) {
            CHECK(t->type == wanted[i].type && t->bytes == wanted[i].bytes);
            CHECK(t->dims[0] == wanted[i].dims[0] && t->dims[1] == wanted[i].dims[1]);
            CHECK(t->dims[2] == 1 && t->dims[3] == 1);
            CHECK(t->data[0] == (unsigned char)wanted[i].offset);
        }
    }
    CHECK(gguf_find_tensor(&file, "t.f3") == NULL);
    gguf_close(&file);
    build_free(&b);
}

// Every prefix of the sample must be refused: its last tensor ends with the file.
static void refuses_every_truncation(void) {
    gguf_builder b = {.size = 0};
    build_sample(&b);
    size_t whole = b.size;
    for (b.size = 0; b.size < whole; b.size++) {
        gguf_file file;
        llm_error error = {""};
        void *copy;
        bool opened = open_copy(&file, &b, &copy, &error);
        CHECK_MSG(!opened && error.text[0] != '\0', "accepted at %zu of %zu bytes", b.size, whole);
        if (opened) {
            gguf_close(&file);
        }
        free(copy);
    }
    build_free(&b);
}

static void refuses_lying_numbers(void) {
    gguf_builder b = {.size = 0};
    build_head(&b, 0, UINT64_MAX);
    expect_refusal(&b, "truncated");
    build_head(&b, UINT64_MAX, 0);
    expect_refusal(&b, "truncated");
    build_head(&b, 0, 1);
    build_u64(&b, UINT64_MAX - 4); // a key so long that adding to it wraps
    build_bytes(&b, "abcdefgh", 8);
    expect_refusal(&b, "truncated");
    build_head(&b, 0, 1);
    build_key(&b, "k", GGUF_ARRAY);
    build_u32(&b, GGUF_UINT64);
    build_u64(&b, (UINT64_MAX / 8) + 2); // times eight is small again
    build_u64(&b, 0);
    expect_refusal(&b, "values of 8 bytes");
    build_head(&b, 0, 1);
    build_key(&b, "k", GGUF_ARRAY);
    build_u32(&b, GGUF_STRING);
    build_u64(&b, 1ull << 60);
    expect_refusal(&b, "truncated");
    build_head(&b, 1, 0);
    build_tensor(&b, "t", 1ull << 40, 1ull << 40, GGUF_F32, 0);
    expect_refusal(&b, "dimension 1");
    build_head(&b, 1, 0);
    build_tensor(&b, "t", INT64_MAX, 0, GGUF_F32, 0);
    expect_refusal(&b, "size");
    build_head(&b, 1, 0);
    build_tensor(&b, "t", 8, 0, GGUF_F32, UINT64_MAX - 31);
    build_pad(&b, 32);
    build_bytes(&b, (char[32]){0}, 32);
    expect_refusal(&b, "tensor data ends");
}

static void refuses_wrong_values(void) {
    gguf_builder b = {.size = 0};
    build_bytes(&b, "GGML\3\0\0\0", 8);
    expect_refusal(&b, "not a GGUF file");
    build_bytes(&b, "GGUF\2\0\0\0", 8);
    expect_refusal(&b, "expected 3; got 2");
    build_bytes(&b, "GGUF\0\0\0\3", 8);
    expect_refusal(&b, "big-endian");
    build_head(&b, 0, 1);
    build_key(&b, "k", 13);
    expect_refusal(&b, "kind: expected 0 to 12; got 13");
    build_head(&b, 0, 1);
    build_key(&b, "", GGUF_UINT8);
    expect_refusal(&b, "metadata key: length");
    build_head(&b, 0, 1);
    build_key(&b, "k\x1b[2J", GGUF_BOOL);
    build_u8(&b, 2);
    expect_refusal(&b, "'k?[2J': bool: expected 0 or 1; got 2");
    build_head(&b, 0, 2);
    build_key_u32(&b, "k", 1);
    build_key_u32(&b, "k", 2);
    expect_refusal(&b, "'k' occurs twice");
    build_head(&b, 0, 1);
    build_key_u32(&b, "general.alignment", 48);
    expect_refusal(&b, "power of two");
    build_head(&b, 0, 1);
    build_key_u32(&b, "general.alignment", 0);
    expect_refusal(&b, "power of two");
    build_head(&b, 0, 1);
    build_key(&b, "k", GGUF_ARRAY);
    for (int i = 0; i < 1000; i++) {
        build_u32(&b, GGUF_ARRAY);
        build_u64(&b, 1);
    }
    expect_refusal(&b, "nested arrays");
}

static void refuses_wrong_tensors(void) {
    gguf_builder b = {.size = 0};
    build_head(&b, 1, 0);
    build_tensor(&b, "t", 32, 0, 12, 0);
    expect_refusal(&b, "type: expected F32");
    build_head(&b, 1, 0);
    build_tensor(&b, "t", 0, 0, GGUF_F32, 0);
    expect_refusal(&b, "dimension 0: expected 1 to");
    build_head(&b, 1, 0);
    build_tensor(&b, "t", 33, 0, GGUF_Q4_1, 0);
    expect_refusal(&b, "multiple of 32; got 33");
    build_head(&b, 1, 0);
    build_tensor(&b, "t", 2, 0, GGUF_F32, 8);
    build_pad(&b, 32);
    build_bytes(&b, (char[32]){0}, 32);
    expect_refusal(&b, "offset: expected a multiple of 32; got 8");
    build_head(&b, 2, 0);
    build_tensor(&b, "t", 2, 0, GGUF_F32, 0);
    build_tensor(&b, "t", 2, 0, GGUF_F32, 32);
    expect_refusal(&b, "tensor 't' occurs twice");
    build_head(&b, 1, 0);
    build_tensor(&b, "", 2, 0, GGUF_F32, 0);
    expect_refusal(&b, "tensor name: length");
    build_head(&b, 1, 0);
    build_string(&b, "t");
    build_u32(&b, 5);
    expect_refusal(&b, "dimensions: expected 1 to 4; got 5");
}

static void names_the_path(void) {
    gguf_file file;
    llm_error error;
    CHECK(!gguf_open(&file, "/nonexistent/x.gguf", &error));
    CHECK(strstr(error.text, "/nonexistent/x.gguf: cannot be opened") != NULL);
    gguf_close(&file);
    CHECK(!gguf_open(&file, "/", &error) && strstr(error.text, "not a regular file") != NULL);
    gguf_close(&file);
    char path[] = "/tmp/bolide-gguf-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK(!gguf_open(&file, path, &error) && strstr(error.text, "is empty") != NULL);
    gguf_builder b = {.size = 0};
    build_sample(&b);
    CHECK(write(fd, b.bytes, b.size) == (ssize_t)b.size);
    CHECK_MSG(gguf_open(&file, path, &error), "%s", error.text);
    CHECK(file.n_tensors == 6);
    gguf_close(&file);
    CHECK(ftruncate(fd, (off_t)b.size - 1) == 0);
    CHECK(!gguf_open(&file, path, &error) && strstr(error.text, path) != NULL);
    close(fd);
    unlink(path);
    build_free(&b);
}

static void opens_the_model(void) {
    const char *path = llm_model_path();
    gguf_file file;
    llm_error error;
    if (path == NULL) {
        return;
    }
    CHECK_MSG(gguf_open(&file, path, &error), "%s", error.text);
    size_t counts[GGUF_BF16 + 1] = {0};
    for (size_t i = 0; i < file.n_tensors; i++) {
        counts[file.tensors[i].type]++;
    }
    CHECK(counts[GGUF_F32] == 61 && counts[GGUF_Q4_1] == 210 && counts[GGUF_Q8_0] == 1);
    gguf_close(&file);
}

int main(int argc, char **argv) {
    static const llm_test tests[] = {
        LLM_TEST(reads_every_scalar),    LLM_TEST(walks_arrays),
        LLM_TEST(finds_tensors),         LLM_TEST(refuses_every_truncation),
        LLM_TEST(refuses_lying_numbers), LLM_TEST(refuses_wrong_values),
        LLM_TEST(refuses_wrong_tensors), LLM_TEST(names_the_path),
        LLM_TEST(opens_the_model),
    };
    return llm_run_tests(tests, sizeof tests / sizeof tests[0], argc, argv);
}
