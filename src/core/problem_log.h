// SPDX-License-Identifier: Apache-2.0
//
// A call as a problem string, the language that `bolide check` and `bolide bench` read.

#ifndef BOLIDE_CORE_PROBLEM_LOG_H
#define BOLIDE_CORE_PROBLEM_LOG_H

#include "core/op.h"

/* Writes "rmsnorm n=7 d=64 input=bf16 eps=1e-5" and returns the length that was needed. Scalars at
 * their default and dtypes that follow another row are left out. */
int bolide__problem_text(const bolide__call *call, char *to, size_t bytes);

/* The same as one line of the log. */
void bolide__log_call(const bolide__call *call);

#endif
