// SPDX-License-Identifier: Apache-2.0
//
// Finds a kernel's files. Sets are made at the first use of a kernel and kept in a list: there are
// a few dozen, and each is asked for only when a spec is not yet in memory.

#include "cuda/source.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/env.h"
#include "core/error.h"

enum { PATH_BYTES = 1280, NAME_BYTES = 160 };

typedef struct set_node {
    bolide__source_set set;
    char path[NAME_BYTES]; /* as the spec has it */
    char name[NAME_BYTES]; /* below src */
    struct set_node *next;
} set_node;

/* A file of a checkout, kept because sets point into it. */
typedef struct file_node {
    char name[NAME_BYTES];
    char *text;
    struct file_node *next;
} file_node;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static set_node *sets;
static file_node *files;

static const char *read_checkout(const char *name) {
    for (file_node *f = files; f; f = f->next) {
        if (strcmp(f->name, name) == 0)
            return f->text;
    }
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/src/%s", bolide__environment()->kernel_dir, name);
    FILE *in = n < (int)sizeof path ? fopen(path, "rb") : NULL;
    if (!in)
        return NULL;
    char *text = NULL;
    long bytes = -1;
    if (fseek(in, 0, SEEK_END) == 0 && (bytes = ftell(in)) >= 0 && fseek(in, 0, SEEK_SET) == 0)
        text = malloc((size_t)bytes + 1);
    file_node *node = text ? malloc(sizeof *node) : NULL;
    if (node && fread(text, 1, (size_t)bytes, in) == (size_t)bytes) {
        text[bytes] = '\0';
        snprintf(node->name, sizeof node->name, "%s", name);
        node->text = text;
        node->next = files;
        files = node;
    } else {
        free(node);
        free(text);
        text = NULL;
    }
    fclose(in);
    return text;
}

static int ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), e = strlen(end);
    return n >= e && strcmp(name + n - e, end) == 0;
}

/* The text of a file below src; NULL if there is none. A checkout has more files than the library
 * embeds (cmake/embed.cmake); taking the same ones gives the same hash for the same text. */
static const char *find_text(const char *name) {
    if (bolide__environment()->kernel_dir) {
        const int device = ends_with(name, ".cu") || ends_with(name, ".cuh") ||
                           (strncmp(name, "ops/", 4) == 0 && ends_with(name, ".h")) ||
                           ends_with(name, "_internal.h");
        return device ? read_checkout(name) : NULL;
    }
    for (int i = 0; i < bolide__embedded_count; i++) {
        if (strcmp(bolide__embedded_sources[i].name, name) == 0)
            return bolide__embedded_sources[i].text;
    }
    return NULL;
}

static int add_header(bolide__source_set *set, const char *name, size_t length) {
    for (int i = 0; i < set->header_count; i++) {
        if (strlen(set->header_names[i]) == length &&
            strncmp(set->header_names[i], name, length) == 0)
            return 1;
    }
    char copy[NAME_BYTES];
    if (length >= sizeof copy)
        return 1;
    memcpy(copy, name, length);
    copy[length] = '\0';
    /* A host header behind an #ifndef has no text here, and the compiler never asks for it. */
    const char *text = find_text(copy);
    if (!text)
        return 1;
    if (set->header_count == BOLIDE__MAX_HEADERS)
        return 0;
    char *kept = strdup(copy);
    if (!kept)
        return 0;
    set->header_names[set->header_count] = kept;
    set->header_texts[set->header_count++] = text;
    return 1;
}

/* Adds every #include "name" of a text. */
static int scan(bolide__source_set *set, const char *text) {
    static const char word[] = "#include \"";
    for (const char *at = text; (at = strstr(at, word)) != NULL;) {
        at += sizeof word - 1;
        const size_t length = strcspn(at, "\"\n");
        if (at[length] == '"' && !add_header(set, at, length))
            return 0;
    }
    return 1;
}

static int fill(bolide__source_set *set, const char *name, const char *text) {
    set->name = name;
    set->text = text;
    int ok = scan(set, text);
    for (int i = 0; ok && i < set->header_count; i++)
        ok = scan(set, set->header_texts[i]);
    set->hash = bolide__hash_of(name, strlen(name));
    bolide__hash_add(&set->hash, text, strlen(text));
    for (int i = 0; i < set->header_count; i++) {
        bolide__hash_add(&set->hash, set->header_names[i], strlen(set->header_names[i]));
        bolide__hash_add(&set->hash, set->header_texts[i], strlen(set->header_texts[i]));
    }
    set->hash = bolide__hash_end(set->hash);
    return ok;
}

static void free_set(set_node *node) {
    for (int i = 0; i < node->set.header_count; i++)
        free((char *)node->set.header_names[i]);
    free(node);
}

static bolide_status make_set(const char *entry, const char *path, set_node **out) {
    char name[NAME_BYTES];
    const char *text = NULL;
    static const char *const roots[] = {"ops", "cuda"};
    for (int i = 0; i < 2 && !text; i++) {
        if (snprintf(name, sizeof name, "%s/%s", roots[i], path) < (int)sizeof name)
            text = find_text(name);
    }
    const char *dir = bolide__environment()->kernel_dir;
    if (!text)
        return bolide__fail(dir ? BOLIDE_COMPILE_FAILED : BOLIDE_INTERNAL, entry,
                            "no kernel source src/ops/%s or src/cuda/%s %s%s", path, path,
                            dir ? "below BOLIDE_KERNEL_DIR, which is " : "in the library",
                            dir ? dir : "");
    set_node *node = calloc(1, sizeof *node);
    if (!node)
        return bolide__fail(BOLIDE_OUT_OF_MEMORY, entry, "no memory for the sources of %s", path);
    snprintf(node->path, sizeof node->path, "%s", path);
    snprintf(node->name, sizeof node->name, "%s", name);
    if (!fill(&node->set, node->name, text)) {
        free_set(node);
        return bolide__fail(BOLIDE_INTERNAL, entry,
                            "no memory, or more than %d files, for the sources of %s",
                            BOLIDE__MAX_HEADERS, path);
    }
    *out = node;
    return BOLIDE_OK;
}

bolide_status bolide__source_find(const char *entry, const char *path,
                                  const bolide__source_set **out) {
    bolide_status status = BOLIDE_OK;
    pthread_mutex_lock(&lock);
    set_node *node = sets;
    while (node && strcmp(node->path, path) != 0)
        node = node->next;
    if (!node) {
        status = make_set(entry, path, &node);
        if (node) {
            node->next = sets;
            sets = node;
        }
    }
    if (node)
        *out = &node->set;
    pthread_mutex_unlock(&lock);
    return status;
}
