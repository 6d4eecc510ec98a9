// SPDX-License-Identifier: Apache-2.0
//
// Formats one error sentence.  Anything that is not printable ASCII becomes a question mark: names
// and strings in messages come from model files that nobody has checked.
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

bool llm_fail(llm_error *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    for (char *c = error->text; *c != '\0'; c++) {
        if (*c < 0x20 || *c > 0x7e) {
            *c = '?';
        }
    }
    return false;
}
