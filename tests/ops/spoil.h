// SPDX-License-Identifier: Apache-2.0
//
// A valid call with one field spoilt, shared by negative.c (numbers, handles, the struct itself)
// and spoil.c (tensors).

#ifndef BOLIDE_TESTS_SPOIL_H
#define BOLIDE_TESTS_SPOIL_H

#include "buffer.h"
#include "ops_test.h"
#include "scratch.h"

typedef struct spoil {
    unit *u;
    driver_case *c;
    driver_scratch *scratch;
    bolide_phase phase;
} spoil;

/* Calls, and expects this status, an error that names the argument, and no byte written. */
void spoil_expect(spoil *s, bolide_status status, const char *arg, const char *what);
/* 1 if an error about `arg` may name `named`: the argument itself, or after "a|b" one of those. */
int spoil_names(const spoil *s, const char *arg, const char *named);
/* Everything that can be wrong with one tensor. */
void spoil_tensor(spoil *s, const bolide_param *row);

#endif
