// SPDX-License-Identifier: Apache-2.0
//
// Texts of shapes, dtypes and devices for the messages of core/check.c.

#ifndef BOLIDE_CORE_CHECK_TEXT_H
#define BOLIDE_CORE_CHECK_TEXT_H

#include "core/op.h"

/* "[2, 64]" */
const char *bolide__shape_text(const bolide_tensor *t);
/* A form with the values bound so far: "[32, d]". */
const char *bolide__form_text(const bolide__call *call, const bolide__form *f);
/* "f16, bf16 or f32" */
const char *bolide__dtypes_text(int64_t set);
/* "cuda:0" */
const char *bolide__device_text(bolide_device d);

#endif
