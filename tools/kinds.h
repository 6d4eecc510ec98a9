// SPDX-License-Identifier: Apache-2.0
//
// Words for the kinds of rows.

#ifndef BOLIDE_TOOLS_KINDS_H
#define BOLIDE_TOOLS_KINDS_H

#include <bolide/core.h>

/* "in", "number or tensor" … */
const char *kind_name(bolide_kind kind);

#endif
