// SPDX-License-Identifier: Apache-2.0
//
// See the header. There are few such texts (those of custom variants), so a list under a mutex
// serves; a text that is there already is found without being joined.

#include "core/intern.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct node {
    struct node *next;
    uint64_t hash;
    char text[];
} node;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static node *nodes;

static int is_joined(const char *text, const char *const *parts, int count) {
    for (int i = 0; i < count; i++) {
        const size_t n = strlen(parts[i]);
        if (strncmp(text, parts[i], n) != 0)
            return 0;
        text += n;
    }
    return *text == '\0';
}

static node *join(const char *const *parts, int count, size_t bytes, uint64_t hash) {
    node *n = malloc(sizeof *n + bytes + 1);
    if (!n)
        return NULL;
    char *at = n->text;
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(parts[i]);
        memcpy(at, parts[i], length);
        at += length;
    }
    *at = '\0';
    n->hash = hash;
    n->next = nodes;
    nodes = n;
    return n;
}

const char *bolide__intern(const char *const *parts, int count) {
    uint64_t hash = 0xcbf29ce484222325u;
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        for (const char *c = parts[i]; *c; c++, bytes++)
            hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    }
    pthread_mutex_lock(&lock);
    node *n = nodes;
    while (n && (n->hash != hash || !is_joined(n->text, parts, count)))
        n = n->next;
    if (!n)
        n = join(parts, count, bytes, hash);
    pthread_mutex_unlock(&lock);
    return n ? n->text : NULL;
}
