// SPDX-License-Identifier: Apache-2.0
//
// Text that arrives in pieces (tokenizer.h): tokens may end within a character, and a terminal
// should only ever see whole ones.  At most three bytes are held back.
#include <string.h>

#include "tokenizer.h"
#include "unicode.h"

static bool replace(text_list *out, llm_error *error) {
    return text_list_add(out, UTF8_REPLACEMENT, UTF8_REPLACEMENT_SIZE, error);
}

bool text_stream_put(text_stream *stream, gguf_string bytes, text_list *out, llm_error *error) {
    bool ok = true;
    for (size_t i = 0; ok && i < bytes.length; i++) {
        stream->held[stream->n_held++] = bytes.data[i];
        // Adding one byte can spoil what is held, and the byte itself may then begin anew.
        for (bool again = true; again && ok && stream->n_held > 0;) {
            uint32_t code;
            size_t length;
            utf8_status status = utf8_read(stream->held, stream->n_held, &code, &length);
            again = status != UTF8_INCOMPLETE;
            if (again) {
                ok = status == UTF8_VALID ? text_list_add(out, stream->held, length, error)
                                          : replace(out, error);
                stream->n_held -= length;
                memmove(stream->held, stream->held + length, stream->n_held);
            }
        }
    }
    return ok;
}

bool text_stream_end(text_stream *stream, text_list *out, llm_error *error) {
    bool held = stream->n_held > 0;
    stream->n_held = 0;
    return !held || replace(out, error);
}
