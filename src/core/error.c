// SPDX-License-Identifier: Apache-2.0
//
// Status texts and the per-thread error. Every message of the library is put together here, so the
// form is the same everywhere.

#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/env.h"

enum { PART_BYTES = 256, MESSAGE_BYTES = 8192, ROTATING = 4 };

typedef struct error_state {
    bolide_error error;
    char op[PART_BYTES], arg[PART_BYTES], what[PART_BYTES];
    char expected[PART_BYTES], actual[PART_BYTES];
    char message[MESSAGE_BYTES];
} error_state;

static _Thread_local error_state state;
static _Thread_local char texts[ROTATING][PART_BYTES];
static _Thread_local int next_text;

static const char *const status_names[] = {
#define BOLIDE_STATUS_NAME(name, text) #name,
    BOLIDE_STATUS_LIST(BOLIDE_STATUS_NAME)
#undef BOLIDE_STATUS_NAME
};

static const char *const status_texts[] = {
#define BOLIDE_STATUS_TEXT(name, text) text,
    BOLIDE_STATUS_LIST(BOLIDE_STATUS_TEXT)
#undef BOLIDE_STATUS_TEXT
};

enum { STATUS_COUNT = sizeof status_names / sizeof status_names[0] };

const char *bolide_version(void) {
    return "0.1.0";
}

const char *bolide_status_name(bolide_status status) {
    return (unsigned)status < STATUS_COUNT ? status_names[status] : "?";
}

const char *bolide_status_text(bolide_status status) {
    return (unsigned)status < STATUS_COUNT ? status_texts[status] : "?";
}

static void publish(bolide_status status) {
    state.error = (bolide_error){.status = status,
                                 .op = state.op,
                                 .arg = state.arg,
                                 .what = state.what,
                                 .expected = state.expected,
                                 .actual = state.actual,
                                 .message = state.message};
    bolide__log(BOLIDE__LOG_ERROR, "%s", state.message);
}

const bolide_error *bolide_last_error(void) {
    if (!state.error.message)
        publish(BOLIDE_OK);
    return &state.error;
}

static void copy(char *to, const char *from) {
    snprintf(to, PART_BYTES, "%s", from ? from : "");
}

bolide_status bolide__fail_arg(bolide_status status, const char *entry, const char *arg,
                               const char *what, const char *expected, const char *got_format,
                               ...) {
    char got[PART_BYTES];
    va_list list;
    va_start(list, got_format);
    vsnprintf(got, sizeof got, got_format, list);
    va_end(list);
    copy(state.op, entry);
    copy(state.arg, arg);
    copy(state.what, what);
    copy(state.expected, expected);
    copy(state.actual, got);
    snprintf(state.message, MESSAGE_BYTES, "%s: %s: %s: expected %s; got %s", state.op, state.arg,
             state.what, state.expected, state.actual);
    publish(status);
    return status;
}

bolide_status bolide__fail(bolide_status status, const char *op, const char *format, ...) {
    copy(state.op, op);
    state.arg[0] = state.what[0] = state.expected[0] = state.actual[0] = '\0';
    int used = op ? snprintf(state.message, MESSAGE_BYTES, "%s: ", state.op) : 0;
    va_list list;
    va_start(list, format);
    vsnprintf(state.message + used, (size_t)(MESSAGE_BYTES - used), format, list);
    va_end(list);
    publish(status);
    return status;
}

const char *bolide__text(const char *format, ...) {
    char *to = texts[next_text];
    next_text = (next_text + 1) % ROTATING;
    va_list list;
    va_start(list, format);
    vsnprintf(to, PART_BYTES, format, list);
    va_end(list);
    return to;
}
