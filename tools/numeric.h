// SPDX-License-Identifier: Apache-2.0
//
// Element access for the driver: any dtype to double or int64_t and back, written apart from the
// library so that a fault in one shows against the other; and the random numbers.

#ifndef BOLIDE_TOOLS_NUMERIC_H
#define BOLIDE_TOOLS_NUMERIC_H

#include <bolide/core.h>

/* The floating dtypes, the integers with bool, and the dtypes of fewer than 8 bits. */
int numeric_is_float(int64_t dtype);
int numeric_bits(int64_t dtype);
/* Bytes that `elems` elements in a row occupy; 4-bit elements lie two a byte. */
int64_t numeric_bytes(int64_t dtype, int64_t elems);

/* Element `index` of an array; index counts elements, also for 4-bit dtypes. */
double numeric_load(int64_t dtype, const void *data, int64_t index);
void numeric_store(int64_t dtype, void *data, int64_t index, double value);
int64_t numeric_load_int(int64_t dtype, const void *data, int64_t index);
void numeric_store_int(int64_t dtype, void *data, int64_t index, int64_t value);
/* The bits of an element, in the low bits. */
uint64_t numeric_load_bits(int64_t dtype, const void *data, int64_t index);
void numeric_store_bits(int64_t dtype, void *data, int64_t index, uint64_t bits);

/* Rounded once to nearest even, as numeric_store does, and back. Overflow: infinity, or NaN for a
 * dtype without infinities. */
double numeric_round(double value, int64_t dtype);
/* Distance of neighbours relative to a value (2^-10 for f16) and the smallest positive number. */
double numeric_ulp(int64_t dtype);
double numeric_smallest(int64_t dtype);

/* A hash of three numbers with all bits mixed, and values drawn from such hashes. */
uint64_t numeric_mix(uint64_t seed, uint64_t stream, uint64_t index);
double numeric_uniform(uint64_t bits);
double numeric_normal(uint64_t bits);

#endif
