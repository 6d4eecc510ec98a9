// SPDX-License-Identifier: Apache-2.0
//
// Loading the tokenizer's tables and cutting text into the pieces that BPE works on.
//
// The file writes every byte of a token as one printable character (the byte-level alphabet of
// GPT-2): printable ASCII and Latin-1 stand for themselves, the other bytes for U+0100 and up in
// order.  Tokens are translated back to bytes here, once.
//
// Names are looked up by binary search in a sorted index and not by hashing: a hostile file can
// make any fixed hash collide, and this runs only while loading.
#include "tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "unicode.h"

enum { TYPE_CONTROL = 3, ALPHABET = 256 + 68 };

// ---- the byte-level alphabet ---------------------------------------------------------------

static bool stands_for_itself(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// byte_of[code] is the byte that the character stands for, or -1.
static void make_alphabet(int byte_of[ALPHABET], uint32_t code_of[256]) {
    uint32_t next = 256;
    for (int i = 0; i < ALPHABET; i++) {
        byte_of[i] = -1;
    }
    for (int byte = 0; byte < 256; byte++) {
        code_of[byte] = stands_for_itself(byte) ? (uint32_t)byte : next++;
        byte_of[code_of[byte]] = byte;
    }
}

// Appends the bytes of one token at `out`, which has room for text.length; returns how many.  A
// token with any other character stands for its own text.
static size_t translate(const int byte_of[ALPHABET], gguf_string text, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < text.length;) {
        uint32_t code;
        size_t length;
        utf8_status status = utf8_read(text.data + i, text.length - i, &code, &length);
        if (status != UTF8_VALID || code >= ALPHABET || byte_of[code] < 0) {
            memcpy(out, text.data, text.length);
            return text.length;
        }
        out[n++] = (char)byte_of[code];
        i += length;
    }
    return n;
}

// ---- looking up tokens by name -------------------------------------------------------------

typedef struct {
    gguf_string name;
    int32_t id;
} name_entry;

typedef struct {
    name_entry *entries; // sorted by name
    size_t count;
} name_index;

static int compare_names(const void *a, const void *b) {
    const name_entry *x = a, *y = b;
    return gguf_compare_strings(x->name, y->name);
}

static int32_t find_name(const name_index *index, const char *data, size_t length) {
    name_entry wanted = {{data, length}, 0};
    const name_entry *found = NULL;
    if (index->entries != NULL) {
        found = bsearch(&wanted, index->entries, index->count, sizeof wanted, compare_names);
    }
    return found != NULL ? found->id : -1;
}

static bool check_distinct(const name_index *index, llm_error *error) {
    for (size_t i = 1; i < index->count; i++) {
        const name_entry *entry = &index->entries[i];
        if (compare_names(entry - 1, entry) == 0) {
            return llm_fail(error,
                            "tokenizer.ggml.tokens: expected distinct tokens; got %d and %d "
                            "alike",
                            (entry - 1)->id, entry->id);
        }
    }
    return true;
}

// ---- loading -------------------------------------------------------------------------------

static bool expect_string(const gguf_file *file, const char *key, const char *expected,
                          llm_error *error) {
    gguf_string value;
    if (!gguf_get_string(file, key, &value, error)) {
        return false;
    }
    if (!gguf_string_is(value, expected)) {
        return llm_fail(error, "metadata '%s': expected %s; got %.*s", key, expected,
                        value.length < 64 ? (int)value.length : 64, value.data);
    }
    return true;
}

static bool out_of_memory(llm_error *error) {
    return llm_fail(error, "out of memory for the tokenizer's tables");
}

// Translates all tokens and fills the index of their names.
static bool load_tokens(tokenizer *t, const gguf_file *file, name_index *index, llm_error *error) {
    const gguf_value *tokens;
    int byte_of[ALPHABET];
    uint32_t code_of[256];
    if (!gguf_get_array(file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, error)) {
        return false;
    }
    if (tokens->count == 0 || tokens->count > INT32_MAX) {
        return llm_fail(error, "tokenizer.ggml.tokens: count: expected 1 to %d; got %llu",
                        INT32_MAX, (unsigned long long)tokens->count);
    }
    // The count has been read through, so memory for it is bounded by the size of the file.
    size_t n = (size_t)tokens->count;
    t->n_tokens = (int32_t)n;
    t->offsets = malloc((n + 1) * sizeof *t->offsets);
    t->bytes = malloc(tokens->bytes);
    t->control = calloc(n, sizeof *t->control);
    index->entries = malloc(n * sizeof *index->entries);
    if (t->offsets == NULL || t->bytes == NULL || t->control == NULL || index->entries == NULL) {
        return out_of_memory(error);
    }
    make_alphabet(byte_of, code_of);
    gguf_cursor cursor = gguf_begin(tokens);
    gguf_string name;
    t->offsets[0] = 0;
    for (size_t i = 0; i < n && gguf_next_string(&cursor, &name); i++) {
        t->offsets[i + 1] = t->offsets[i] + translate(byte_of, name, t->bytes + t->offsets[i]);
        index->entries[index->count++] = (name_entry){name, (int32_t)i};
    }
    qsort(index->entries, n, sizeof *index->entries, compare_names);
    return check_distinct(index, error);
}

static bool load_types(tokenizer *t, const gguf_file *file, llm_error *error) {
    const gguf_value *types = gguf_find(file, "tokenizer.ggml.token_type");
    if (types == NULL || types->kind != GGUF_ARRAY || types->count != (uint64_t)t->n_tokens) {
        return llm_fail(error,
                        "tokenizer.ggml.token_type: expected an array of %d integers; got "
                        "%s of %llu",
                        t->n_tokens, types == NULL ? "none" : gguf_kind_name(types->kind),
                        types == NULL ? 0 : (unsigned long long)types->count);
    }
    gguf_cursor cursor = gguf_begin(types);
    for (int32_t i = 0; i < t->n_tokens; i++) {
        int64_t type;
        if (!gguf_next_int(&cursor, &type)) {
            return llm_fail(error, "tokenizer.ggml.token_type: expected integers; got %s",
                            gguf_kind_name(types->element));
        }
        t->control[i] = type == TYPE_CONTROL;
    }
    return true;
}

static void load_bytes(tokenizer *t, const name_index *index) {
    int byte_of[ALPHABET];
    uint32_t code_of[256];
    make_alphabet(byte_of, code_of);
    for (int byte = 0; byte < 256; byte++) {
        char name[3];
        int32_t id = find_name(index, name, utf8_write(name, code_of[byte]));
        t->of_byte[byte] = id >= 0 && !t->control[id] ? id : -1;
    }
}

static int compare_merges(const void *a, const void *b) {
    const bpe_merge *x = a, *y = b;
    if (x->pair != y->pair) {
        return x->pair < y->pair ? -1 : 1;
    }
    return (x->rank > y->rank) - (x->rank < y->rank);
}

// One line "left right" of the merges.
static bool read_merge(const name_index *index, gguf_string line, int32_t rank, text_list *joined,
                       bpe_merge *merge, llm_error *error) {
    const char *space = line.length != 0 ? memchr(line.data, ' ', line.length) : NULL;
    size_t left = space != NULL ? (size_t)(space - line.data) : 0;
    int shown = line.length < 64 ? (int)line.length : 64;
    if (left == 0 || left + 1 == line.length) {
        return llm_fail(error, "tokenizer.ggml.merges: merge %d: expected two tokens; got '%.*s'",
                        rank, shown, line.data);
    }
    int32_t first = find_name(index, line.data, left);
    int32_t second = find_name(index, space + 1, line.length - left - 1);
    joined->count = 0;
    if (!text_list_add(joined, line.data, left, error) ||
        !text_list_add(joined, space + 1, line.length - left - 1, error)) {
        return false;
    }
    int32_t result = find_name(index, joined->bytes, joined->count);
    if (first < 0 || second < 0 || result < 0) {
        return llm_fail(error,
                        "tokenizer.ggml.merges: merge %d: expected tokens of the vocabulary; got "
                        "'%.*s'",
                        rank, shown, line.data);
    }
    *merge = (bpe_merge){bpe_pair(first, second), rank, result};
    return true;
}

// Drops all but the last of equal pairs, as filling a dictionary would.
static void drop_repeated(tokenizer *t) {
    size_t kept = 0;
    for (size_t i = 0; i < t->n_merges; i++) {
        if (i + 1 == t->n_merges || t->merges[i].pair != t->merges[i + 1].pair) {
            t->merges[kept++] = t->merges[i];
        }
    }
    t->n_merges = kept;
}

static bool load_merges(tokenizer *t, const gguf_file *file, const name_index *index,
                        llm_error *error) {
    const gguf_value *lines;
    if (!gguf_get_array(file, "tokenizer.ggml.merges", GGUF_STRING, &lines, error)) {
        return false;
    }
    if (lines->count > INT32_MAX) {
        return llm_fail(error, "tokenizer.ggml.merges: count: expected at most %d; got %llu",
                        INT32_MAX, (unsigned long long)lines->count);
    }
    t->merges = malloc(((size_t)lines->count + 1) * sizeof *t->merges);
    if (t->merges == NULL || t->control == NULL) {
        return out_of_memory(error);
    }
    gguf_cursor cursor = gguf_begin(lines);
    gguf_string line;
    text_list joined = {.count = 0};
    bool ok = true;
    for (int32_t rank = 0; ok && gguf_next_string(&cursor, &line); rank++) {
        bpe_merge merge = {0, 0, 0};
        ok = read_merge(index, line, rank, &joined, &merge, error);
        // Without this, text could be spelled so that it becomes a control token.
        if (ok && !t->control[merge.result]) {
            t->merges[t->n_merges++] = merge;
        }
    }
    text_list_free(&joined);
    qsort(t->merges, t->n_merges, sizeof *t->merges, compare_merges);
    drop_repeated(t);
    return ok;
}

static bool load_id(const tokenizer *t, const gguf_file *file, const char *key, int32_t *id,
                    llm_error *error) {
    uint64_t number;
    if (!gguf_get_uint(file, key, &number, error)) {
        return false;
    }
    if (number >= (uint64_t)t->n_tokens) {
        return llm_fail(error, "metadata '%s': expected less than %d; got %llu", key, t->n_tokens,
                        (unsigned long long)number);
    }
    *id = (int32_t)number;
    return true;
}

// The end of a text, and the token that begins one where the file wants it.
static bool load_ends(tokenizer *t, const gguf_file *file, llm_error *error) {
    bool add = false;
    if (!load_id(t, file, "tokenizer.ggml.eos_token_id", &t->eos, error)) {
        return false;
    }
    if (gguf_find(file, "tokenizer.ggml.add_bos_token") != NULL &&
        !gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &add, error)) {
        return false;
    }
    return !add || load_id(t, file, "tokenizer.ggml.bos_token_id", &t->bos, error);
}

// A blank before the text is something this pre-tokenizer never adds.
static bool refuse_prefix(const gguf_file *file, llm_error *error) {
    bool add = false;
    const char *key = "tokenizer.ggml.add_space_prefix";
    if (gguf_find(file, key) != NULL && !gguf_get_bool(file, key, &add, error)) {
        return false;
    }
    return !add || llm_fail(error, "metadata '%s': expected false; got true", key);
}

tokenizer *tokenizer_create(const gguf_file *file, llm_error *error) {
    name_index index = {NULL, 0};
    tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        out_of_memory(error);
        return NULL;
    }
    t->eos = t->bos = -1;
    bool ok = expect_string(file, "tokenizer.ggml.model", "gpt2", error) &&
              expect_string(file, "tokenizer.ggml.pre", "smollm", error) &&
              refuse_prefix(file, error) && load_tokens(t, file, &index, error) &&
              load_types(t, file, error) && load_merges(t, file, &index, error) &&
              load_ends(t, file, error);
    if (ok) {
        load_bytes(t, &index);
    }
    free(index.entries);
    if (!ok) {
        tokenizer_destroy(t);
        return NULL;
    }
    return t;
}

void tokenizer_destroy(tokenizer *t) {
    if (t != NULL) {
        free(t->offsets);
        free(t->bytes);
        free(t->control);
        free(t->merges);
        free(t);
    }
}

// ---- cutting text into pieces --------------------------------------------------------------

// A character of valid text, with its class; the end of the text is a class of its own.
typedef struct {
    unicode_class class;
    uint32_t code;
    size_t length; // 0 at the end of the text
} glyph;

static glyph look(const char *text, size_t size, size_t at) {
    glyph g = {CLASS_OTHER, 0, 0};
    if (at < size) {
        utf8_read(text + at, size - at, &g.code, &g.length);
        g.class = unicode_classify(g.code);
    }
    return g;
}

// Where the run of characters of that class ends.
static size_t run_end(const char *text, size_t size, size_t at, unicode_class class) {
    for (;;) {
        glyph g = look(text, size, at);
        if (g.length == 0 || g.class != class) {
            return at;
        }
        at += g.length;
    }
}

// Length of 's 't 're 've 'm 'll 'd at this place, or 0.
static size_t contraction(const char *at, size_t size) {
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; size > 1 && at[0] == '\'' && i < sizeof endings / sizeof endings[0]; i++) {
        size_t n = strlen(endings[i]);
        if (n < size && memcmp(at + 1, endings[i], n) == 0) {
            return n + 1;
        }
    }
    return 0;
}

// Blanks: all of them at the end of the text or before a digit; else the last is left for the word
// that follows, unless it is the only one.
static size_t blanks_end(const char *text, size_t size, size_t at) {
    size_t last = at, end = at;
    for (;;) {
        glyph g = look(text, size, end);
        if (g.length == 0 || g.class == CLASS_NUMERIC) {
            return end;
        }
        if (g.class != CLASS_SPACE) {
            return last > at ? last : end;
        }
        last = end;
        end += g.length;
    }
}

// End of the piece that begins at `at` in valid text.  Numeric characters stand alone; what lies
// between them is cut by the expression of GPT-2:
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
static size_t piece_end(const char *text, size_t size, size_t at) {
    glyph g = look(text, size, at);
    size_t short_form = contraction(text + at, size - at);
    if (g.class == CLASS_NUMERIC) {
        return at + g.length;
    }
    if (short_form != 0) {
        return at + short_form;
    }
    size_t word = at;
    if (g.code == ' ') {
        word = at + 1;
        g = look(text, size, word);
    }
    if (g.length != 0 && (g.class == CLASS_LETTER || g.class == CLASS_OTHER)) {
        return run_end(text, size, word, g.class);
    }
    return blanks_end(text, size, at);
}

// ---- encoding ------------------------------------------------------------------------------

// Copies the text with every ill-formed piece replaced.  Returns the number of such pieces; if
// `out` is NULL, only counts.  False in *ok where memory ran out.
static size_t replace_ill_formed(const char *text, size_t size, text_list *out, bool *ok,
                                 llm_error *error) {
    size_t replaced = 0;
    for (size_t i = 0; i < size && *ok;) {
        uint32_t code;
        size_t length;
        bool valid = utf8_read(text + i, size - i, &code, &length) == UTF8_VALID;
        replaced += !valid;
        if (out != NULL) {
            *ok = valid ? text_list_add(out, text + i, length, error)
                        : text_list_add(out, UTF8_REPLACEMENT, UTF8_REPLACEMENT_SIZE, error);
        }
        i += length;
    }
    return replaced;
}

static bool encode_valid(const tokenizer *t, const char *text, size_t size, token_list *ids,
                         llm_error *error) {
    bpe_scratch scratch = {.symbols = NULL};
    bool ok = true;
    for (size_t at = 0; ok && at < size;) {
        size_t end = piece_end(text, size, at);
        ok = bpe_encode(t, &scratch, text + at, end - at, ids, error);
        at = end;
    }
    bpe_scratch_free(&scratch);
    return ok;
}

bool tokenizer_encode(const tokenizer *t, const char *text, size_t size, token_list *ids,
                      size_t *replaced, llm_error *error) {
    bool ok = true;
    size_t ill_formed = replace_ill_formed(text, size, NULL, &ok, error);
    if (replaced != NULL) {
        *replaced = ill_formed;
    }
    if (ill_formed == 0) {
        return encode_valid(t, text, size, ids, error);
    }
    text_list clean = {.count = 0};
    replace_ill_formed(text, size, &clean, &ok, error);
    ok = ok && encode_valid(t, clean.bytes, clean.count, ids, error);
    text_list_free(&clean);
    return ok;
}

// ---- the vocabulary ------------------------------------------------------------------------

int32_t tokenizer_count(const tokenizer *t) {
    return t->n_tokens;
}

gguf_string tokenizer_piece(const tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->n_tokens) {
        return (gguf_string){"", 0};
    }
    return (gguf_string){t->bytes + t->offsets[id], t->offsets[id + 1] - t->offsets[id]};
}

bool tokenizer_is_control(const tokenizer *t, int32_t id) {
    return id >= 0 && id < t->n_tokens && t->control[id];
}

int32_t tokenizer_find_control(const tokenizer *t, const char *name) {
    for (int32_t id = 0; id < t->n_tokens; id++) {
        if (t->control[id] && gguf_string_is(tokenizer_piece(t, id), name)) {
            return id;
        }
    }
    return -1;
}

int32_t tokenizer_eos(const tokenizer *t) {
    return t->eos;
}

int32_t tokenizer_bos(const tokenizer *t) {
    return t->bos;
}
