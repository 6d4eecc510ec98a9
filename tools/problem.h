// SPDX-License-Identifier: Apache-2.0
//
// Problem strings, the one language of tests, check, bench and logs:
//
//     rmsnorm n=1,7,64 d=64,100 input=f16,bf16 input.pad=8 out=input eps=1e-5
//
// A word with a comma is a list, and a string with lists stands for the cross product of all of
// them, the last key running fastest. This file knows the grammar only; what a key means is
// decided where a problem is realised (tools/realise.c), which also lists the keys.

#ifndef BOLIDE_TOOLS_PROBLEM_H
#define BOLIDE_TOOLS_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

enum {
    PROBLEM_KEYS = 64,          /* keys of one string */
    PROBLEM_NAME = 64,          /* bytes of an operator's or a key's name, with the zero */
    PROBLEM_VALUE = 256,        /* bytes of one value */
    PROBLEM_LIST = 1024,        /* bytes of a list of values */
    PROBLEM_TEXT = 4096,        /* bytes of a canonical string */
    PROBLEM_ERROR = 256,        /* bytes of an error sentence */
    PROBLEM_CASES = 1000 * 1000 /* problems that one string may stand for */
};

typedef struct problem_key {
    char name[PROBLEM_NAME];
    char value[PROBLEM_VALUE];
} problem_key;

/* One problem: an operator and a single value a key. */
typedef struct problem {
    char op[PROBLEM_NAME];
    int32_t count;
    problem_key key[PROBLEM_KEYS];
} problem;

/* A parsed string before its lists are expanded. */
typedef struct problem_set {
    char op[PROBLEM_NAME];
    int32_t count;
    int64_t total; /* problems it stands for */
    struct {
        char name[PROBLEM_NAME];
        char values[PROBLEM_LIST]; /* with commas */
        int32_t options;           /* how many */
    } key[PROBLEM_KEYS];
} problem_set;

/* 0, or -1 with a sentence in error (PROBLEM_ERROR bytes). Any bytes are fine as text. */
int problem_parse(const char *text, problem_set *set, char *error);
/* The problem with the given index in 0 … total-1. */
void problem_at(const problem_set *set, int64_t index, problem *out);
/* problem_parse and problem_at for a string that must stand for exactly one problem. */
int problem_parse_one(const char *text, problem *out, char *error);

/* The value of a key; NULL if the problem does not have it. */
const char *problem_get(const problem *p, const char *name);
/* Adds a key or changes its value. 0, or -1 when the problem is full or a text is too long. */
int problem_put(problem *p, const char *name, const char *value);
/* Writes the canonical string: one blank between words. Returns text. */
char *problem_format(const problem *p, char *text, size_t bytes);

/* The whole text as a number; 0 when it is none. */
int problem_int(const char *text, int64_t *value);
int problem_double(const char *text, double *value);
/* "3:5:7" into at most `limit` numbers; how many, or -1 when it is no such list. */
int64_t problem_ints(const char *text, int64_t *values, int64_t limit);

#endif
