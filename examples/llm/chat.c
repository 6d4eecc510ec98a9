// SPDX-License-Identifier: Apache-2.0
//
// See chat.h.  Role and text are encoded as one string, because the template joins them before the
// tokenizer sees them: a text that begins with a line feed merges with the one after the role.
#include "chat.h"

#include <string.h>

const char chat_default_system[] =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

typedef struct {
    const tokenizer *t;
    int32_t start, end;
    token_list *ids;
    size_t replaced;
    llm_error *error;
} writer;

static bool put_text(writer *w, const char *text, size_t size) {
    size_t replaced;
    bool ok = tokenizer_encode(w->t, text, size, w->ids, &replaced, w->error);
    w->replaced += replaced;
    return ok;
}

// <|im_start|>ROLE\nTEXT
static bool open_message(writer *w, const chat_message *m) {
    text_list joined = {.count = 0};
    bool ok = token_list_add(w->ids, w->start, w->error) &&
              text_list_add(&joined, m->role, strlen(m->role), w->error) &&
              text_list_add(&joined, "\n", 1, w->error) &&
              text_list_add(&joined, m->text, m->size, w->error) &&
              put_text(w, joined.bytes, joined.count);
    text_list_free(&joined);
    return ok;
}

static bool put_message(writer *w, const chat_message *m) {
    bool known = strcmp(m->role, "system") == 0 || strcmp(m->role, "user") == 0 ||
                 strcmp(m->role, "assistant") == 0;
    if (!known) {
        return llm_fail(w->error, "chat: role: expected system, user or assistant; got %s",
                        m->role);
    }
    return open_message(w, m) && token_list_add(w->ids, w->end, w->error) && put_text(w, "\n", 1);
}

bool chat_encode(const tokenizer *t, const chat_message *messages, size_t count, bool answer,
                 token_list *ids, size_t *replaced, llm_error *error) {
    writer w = {.t = t, .ids = ids, .error = error};
    w.start = tokenizer_find_control(t, "<|im_start|>");
    w.end = tokenizer_find_control(t, "<|im_end|>");
    if (w.start < 0 || w.end < 0) {
        return llm_fail(error, "chat: expected the control tokens <|im_start|> and <|im_end|> in "
                               "the vocabulary; got none: this is no ChatML model");
    }
    bool ok = tokenizer_bos(t) < 0 || token_list_add(ids, tokenizer_bos(t), error);
    if (count > 0 && strcmp(messages[0].role, "system") != 0) {
        chat_message system = {"system", chat_default_system, strlen(chat_default_system)};
        ok = ok && put_message(&w, &system);
    }
    for (size_t i = 0; ok && i < count; i++) {
        ok = put_message(&w, &messages[i]);
    }
    if (ok && answer) {
        chat_message assistant = {"assistant", "", 0};
        ok = open_message(&w, &assistant);
    }
    if (replaced != NULL) {
        *replaced = w.replaced;
    }
    return ok;
}

bool chat_ends(const tokenizer *t, int32_t id) {
    return id == tokenizer_eos(t) ||
           (tokenizer_is_control(t, id) && gguf_string_is(tokenizer_piece(t, id), "<|im_end|>"));
}
