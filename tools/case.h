// SPDX-License-Identifier: Apache-2.0
//
// What the parts of the driver share: a problem is realised by realise.c (keys, numbers, shapes),
// values.c (memory and values) and call.c (what references see), and run by run.c.

#ifndef BOLIDE_TOOLS_CASE_H
#define BOLIDE_TOOLS_CASE_H

#include "driver.h"

/* Records the first error of a case; always -1. */
int case_fail(driver_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- keys.c: rows, keys and numbers --------------------------------------------------------- */

int case_is_tensor(bolide_kind kind);
int case_is_or_tensor(bolide_kind kind);
/* The row of that name in a phase, or in either (the run first); NULL if there is none. */
const bolide_param *case_row(const driver_case *c, bolide_phase phase, const char *name);
const bolide_param *case_any_row(const driver_case *c, const char *name, bolide_phase *phase);
/* The key `name.suffix`; NULL if it is not given. */
const char *case_property(const driver_case *c, const char *name, const char *suffix);
/* Offset of the number of a row: that of the field, or of the number beside a tensor. */
uint32_t case_number_offset(const bolide_param *row);
int64_t case_get_i64(const driver_case *c, bolide_phase phase, uint32_t offset);
double case_get_f64(const driver_case *c, bolide_phase phase, uint32_t offset);
void case_put(driver_case *c, bolide_phase phase, uint32_t offset, const void *value);
/* Index of a name in a list separated by blanks; -1 if it is not there. */
int64_t case_choice(const char *choices, const char *name, size_t length);
/* Sets or finds a dimension. */
void case_set_dim(driver_case *c, const char *name, int64_t value);
int64_t case_find_dim(const driver_case *c, const char *name, int32_t length);
/* Refuses keys that mean nothing; reads numbers and dimensions into the case. */
int case_read_keys(driver_case *c);

/* ---- shape.c: presence, dtype, shape and strides ----------------------------------------------
 */

/* 1 if a key gives a property of that tensor: "seed.dtype". */
int case_has_property(const driver_case *c, const char *name);
int case_add_tensors(driver_case *c);
int case_add_list(driver_case *c, bolide_phase phase, const bolide_param *row, int64_t count);
int case_resolve_tensors(driver_case *c);

/* ---- values.c: memory and values --------------------------------------------------------------
 */

/* Element of the tensor's memory, counted from the data pointer, that holds a logical element. */
int64_t case_place(const driver_tensor *t, int64_t index);
/* The host memory behind a tensor: its own or its alias's. */
unsigned char *case_host(const driver_case *c, const driver_tensor *t);
/* Decodes into t, which is made on the way. */
int case_decode(const driver_case *c, const driver_tensor *from, ref_tensor *to);
void case_drop(ref_tensor *t);
int case_fill(driver_case *c);
/* Points the args to the tensors. */
void case_bind(driver_case *c);
/* Fills output elements with a byte, keeping the gaps. */
void case_poison(driver_case *c, int byte);

/* ---- memory.c: guards, snapshots, untouched bytes -----------------------------------------------
 */

/* Remembers every buffer as it is now. */
int case_snapshot(driver_case *c);
/* Puts every buffer back to the snapshot. */
void case_restore(driver_case *c);
/* 0 if nothing but elements of outputs has changed since the snapshot; else -1 with the reason. */
int case_untouched(const driver_case *c, char *why, size_t bytes);
/* 1 if the operator may write this tensor. */
int case_is_written(const driver_tensor *t);
/* Bits of a logical element in a buffer of the tensor (the data, behind the front guard). */
uint64_t case_bits(const driver_tensor *t, const unsigned char *data, int64_t index);
/* What was in the buffer before the call. */
const unsigned char *case_before(const driver_case *c, const driver_tensor *t);

/* ---- compare.c ----------------------------------------------------------------------------------
 */

/* Runs the reference and judges every output; 0, or -1 with the reason in the report. */
int case_compare(driver_case *c, driver_report *report);

#endif
