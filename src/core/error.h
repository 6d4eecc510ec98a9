// SPDX-License-Identifier: Apache-2.0
//
// Making and forwarding errors. A message has one form,
//     op: arg: what: expected …; got …
// and is kept per thread in fixed buffers, so that failing allocates nothing.

#ifndef BOLIDE_CORE_ERROR_H
#define BOLIDE_CORE_ERROR_H

#include <bolide/core.h>

struct bolide__call;

#define BOLIDE_TRY(expr)                                                                           \
    do {                                                                                           \
        const bolide_status bolide__s = (expr);                                                    \
        if (bolide__s != BOLIDE_OK)                                                                \
            return bolide__s;                                                                      \
    } while (0)

/* Records the error of an argument and returns status. expected and got are printf formats that
 * share one argument list: BOLIDE_FAIL_ARG(call, "head_dim", "value", "a multiple of 8", "%ld",
 * (long)d) has no argument in expected. For both with arguments, format them ahead with
 * bolide__text. */
bolide_status bolide__fail_arg(bolide_status status, const char *entry, const char *arg,
                               const char *what, const char *expected, const char *got_format, ...)
    __attribute__((format(printf, 6, 7)));

#define BOLIDE_FAIL_ARG(call, arg, what, expected, ...)                                            \
    bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, (call)->entry_name, arg, what, expected, __VA_ARGS__)
/* The combination is understood and not supported; expected says what would be. */
#define BOLIDE_FAIL_UNSUPPORTED(call, arg, what, expected, ...)                                    \
    bolide__fail_arg(BOLIDE_UNSUPPORTED, (call)->entry_name, arg, what, expected, __VA_ARGS__)

/* An error that is not about one argument: "op: message". op may be NULL. */
bolide_status bolide__fail(bolide_status status, const char *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* printf into one of four rotating per-thread buffers of 256 bytes, for the texts above. */
const char *bolide__text(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
