// SPDX-License-Identifier: Apache-2.0
//
// The one function that says how far a result may be from the reference.

#ifndef BOLIDE_TOOLS_COMPARE_H
#define BOLIDE_TOOLS_COMPARE_H

#include <stdint.h>

/* dtype of the output, length of the longest sum behind an element, the exact value, the output's
 * root mean square, and what a reference allows beside (ref_op.slack). */
double driver_tolerance(int64_t dtype, int64_t reduction, double want, double rms, double slack);

#endif
