// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair encoding of one piece.  The symbols form a doubly linked list; a heap holds every
// neighbouring pair that has a merge, lowest rank first and leftmost first among equals.  A merge
// changes two neighbourhoods, so at most 3 n pairs are ever pushed and the cost is n log n.  Pairs
// that a merge has outdated stay in the heap and are recognised when they come up.
#include "tokenizer_internal.h"

#include <stdlib.h>

typedef struct {
    int32_t id; // -1: merged into its left neighbour
    uint32_t previous;
    uint32_t next;
} symbol;

#define NONE UINT32_MAX // no neighbour

typedef struct {
    int32_t rank;
    uint32_t at; // the left symbol
    uint64_t pair;
    int32_t result;
} candidate;

typedef struct {
    const tokenizer *t;
    bpe_scratch *scratch;
    symbol *symbols;
    candidate *heap;
    size_t n_heap;
    llm_error *error;
} state;

static const bpe_merge *find_merge(const tokenizer *t, uint64_t pair) {
    size_t first = 0, count = t->n_merges;
    while (count > 0) {
        size_t half = count / 2;
        bool after = t->merges[first + half].pair < pair;
        first = after ? first + half + 1 : first;
        count = after ? count - half - 1 : half;
    }
    return first < t->n_merges && t->merges[first].pair == pair ? &t->merges[first] : NULL;
}

static bool before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static bool push(state *s, candidate c) {
    void *heap = s->scratch->heap;
    bool ok = llm_grow(&heap, s->n_heap, 1, &s->scratch->heap_capacity, sizeof c, s->error);
    s->scratch->heap = heap;
    s->heap = heap;
    if (!ok) {
        return false;
    }
    size_t i = s->n_heap++;
    while (i > 0 && before(&c, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = c;
    return true;
}

static candidate pop(state *s) {
    candidate top = s->heap[0];
    candidate last = s->heap[--s->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->n_heap) {
            break;
        }
        if (child + 1 < s->n_heap && before(&s->heap[child + 1], &s->heap[child])) {
            child++;
        }
        if (!before(&s->heap[child], &last)) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

// Pushes the pair that begins at symbol `at`, if it has a merge.
static bool consider(state *s, uint32_t at) {
    if (at == NONE || s->symbols[at].next == NONE) {
        return true;
    }
    uint64_t pair = bpe_pair(s->symbols[at].id, s->symbols[s->symbols[at].next].id);
    const bpe_merge *merge = find_merge(s->t, pair);
    return merge == NULL || push(s, (candidate){merge->rank, at, pair, merge->result});
}

// Whether the candidate still describes the text.  Another pair with the same result at the same
// place counts too, as it does in the package that sets the standard.
static bool current(const state *s, const candidate *c) {
    const symbol *left = &s->symbols[c->at];
    if (left->id < 0 || left->next == NONE) {
        return false;
    }
    uint64_t pair = bpe_pair(left->id, s->symbols[left->next].id);
    if (pair == c->pair) {
        return true;
    }
    const bpe_merge *merge = find_merge(s->t, pair);
    return merge != NULL && merge->result == c->result;
}

static bool merge_all(state *s, uint32_t n) {
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (!consider(s, i)) {
            return false;
        }
    }
    while (s->n_heap > 0) {
        candidate c = pop(s);
        if (!current(s, &c)) {
            continue;
        }
        symbol *left = &s->symbols[c.at];
        symbol *right = &s->symbols[left->next];
        left->id = c.result;
        left->next = right->next;
        right->id = -1;
        if (left->next != NONE) {
            s->symbols[left->next].previous = c.at;
        }
        if (!consider(s, left->previous) || !consider(s, c.at)) {
            return false;
        }
    }
    return true;
}

bool bpe_encode(const tokenizer *t, bpe_scratch *scratch, const char *piece, size_t size,
                token_list *ids, llm_error *error) {
    if (size >= UINT32_MAX) {
        return llm_fail(error, "text: length of one word: expected less than %u bytes; got %zu",
                        UINT32_MAX, size);
    }
    if (!llm_grow(&scratch->symbols, 0, size, &scratch->symbol_capacity, sizeof(symbol), error)) {
        return false;
    }
    state s = {t, scratch, scratch->symbols, scratch->heap, 0, error};
    uint32_t n = 0;
    for (size_t i = 0; i < size; i++) {
        int32_t id = t->of_byte[(unsigned char)piece[i]];
        if (id >= 0) {
            s.symbols[n] = (symbol){id, n == 0 ? NONE : n - 1, n + 1};
            n++;
        }
    }
    if (n == 0) {
        return true;
    }
    s.symbols[n - 1].next = NONE;
    if (!merge_all(&s, n)) {
        return false;
    }
    // The first symbol is never merged into a left neighbour, so the list begins there.
    for (uint32_t i = 0; i != NONE; i = s.symbols[i].next) {
        if (!token_list_add(ids, s.symbols[i].id, error)) {
            return false;
        }
    }
    return true;
}

void bpe_scratch_free(bpe_scratch *scratch) {
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (bpe_scratch){.symbols = NULL};
}
