// SPDX-License-Identifier: Apache-2.0
//
// A text of C, compiled by the system's compiler into a library of this process.

#ifndef BOLIDE_CPU_HOST_COMPILER_H
#define BOLIDE_CPU_HOST_COMPILER_H

#include <bolide/core.h>

/* The library of an interned text (core/intern.h), for dlsym; compiled at the first call and kept.
 * Without a compiler the status is BOLIDE_UNSUPPORTED and the message names `cc`; a text that does
 * not compile gives BOLIDE_COMPILE_FAILED with the compiler's words. */
bolide_status bolide__host_library(const char *entry, const char *text, void **library);

#endif
