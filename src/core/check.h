// SPDX-License-Identifier: Apache-2.0
//
// The checks that rows imply, and the inference of an output's shape from the same rows.

#ifndef BOLIDE_CORE_CHECK_H
#define BOLIDE_CORE_CHECK_H

#include "core/op.h"

/* Fills call->dims and looks at every row. plan is the plan that a run names, NULL else. With
 * sizes_only the data pointers may be NULL and outputs may be absent (workspace queries). */
bolide_status bolide__check_rows(bolide__call *call, const void *plan, int sizes_only);

/* Binds names from whatever tensors are present, without any complaint but about a bad rank. */
void bolide__bind_loosely(bolide__call *call, const void *plan);

/* The form of a row for a tensor: the one that the choosing enum names, else the first with as many
 * dimensions whose numbers and bound names agree, else one with as many dimensions. NULL: none. */
const bolide__form *bolide__row_form(const bolide__call *call, int row, const bolide_tensor *t);

#endif
