// SPDX-License-Identifier: Apache-2.0
//
// See list.h.  Doubling keeps the cost of adding n items linear in n.
#include "list.h"

#include <stdlib.h>
#include <string.h>

bool llm_grow(void **items, size_t count, size_t extra, size_t *capacity, size_t item_bytes,
              llm_error *error) {
    if (extra <= *capacity - count) {
        return true;
    }
    size_t most = SIZE_MAX / 2 / item_bytes;
    if (count > most || extra > most - count) {
        return llm_fail(error, "out of memory: a list of more than %zu items was wanted", most);
    }
    size_t wanted = 2 * *capacity > count + extra ? 2 * *capacity : count + extra;
    wanted = wanted < 64 ? 64 : wanted > most ? most : wanted;
    void *moved = realloc(*items, wanted * item_bytes);
    if (moved == NULL) {
        return llm_fail(error, "out of memory: %zu bytes were wanted", wanted * item_bytes);
    }
    *items = moved;
    *capacity = wanted;
    return true;
}

bool token_list_add(token_list *list, int32_t id, llm_error *error) {
    void *ids = list->ids;
    bool ok = llm_grow(&ids, list->count, 1, &list->capacity, sizeof id, error);
    list->ids = ids;
    if (ok) {
        list->ids[list->count++] = id;
    }
    return ok;
}

void token_list_free(token_list *list) {
    free(list->ids);
    *list = (token_list){.count = 0};
}

bool text_list_add(text_list *list, const char *bytes, size_t count, llm_error *error) {
    void *grown = list->bytes;
    bool ok = llm_grow(&grown, list->count, count, &list->capacity, 1, error);
    list->bytes = grown;
    if (ok && count != 0) {
        memcpy(list->bytes + list->count, bytes, count);
        list->count += count;
    }
    return ok;
}

void text_list_free(text_list *list) {
    free(list->bytes);
    *list = (text_list){.count = 0};
}
