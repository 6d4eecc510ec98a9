// SPDX-License-Identifier: Apache-2.0
//
// What the subcommands of the tool share: options, and reading problems from the command line.

#ifndef BOLIDE_TOOLS_COMMAND_H
#define BOLIDE_TOOLS_COMMAND_H

#include <bolide/core.h>

#include "problem.h"

/* Options that several subcommands take; the others keep their defaults. */
typedef struct command {
    const char *name; /* of the subcommand */
    int json;
    bolide_device_type device;
    const char *isa;
    const char *arch;
    int64_t threads; /* 0: the default */
    int64_t seed;    /* -1: a fresh one */
    double seconds;  /* of bench, a problem */
    int word_count;  /* what is no option */
    char **word;
} command;

/* Set of the options that a subcommand takes. */
enum command_option {
    OPTION_JSON = 1,
    OPTION_BACKEND = 2,
    OPTION_ISA = 4,
    OPTION_THREADS = 8,
    OPTION_SEED = 16,
    OPTION_SECONDS = 32,
    OPTION_ARCH = 64
};

/* 0, or -1 after a sentence on standard error. */
int command_read(command *c, const char *name, unsigned options, int argc, char **argv);

/* Joins words that belong together: each problem begins with a word without "=". Calls each for
 * every problem that the words stand for, in order; stops and returns what it returned if that is
 * not 0. -1 after a sentence on standard error if the words are no problems. Words "-" stand for
 * problems on standard input, one a line. */
int command_problems(const command *c, int (*each)(void *user, const problem *p), void *user);

/* Forces the instruction set that --isa names; 0, or -1 after a sentence on standard error. */
int command_isa(const command *c);

/* The subcommands: exit status 0, 1 for a failure of what was asked, 2 for a wrong call. */
int command_ops(int argc, char **argv);
int command_describe(int argc, char **argv);
int command_check(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_cache(int argc, char **argv);
int command_compile(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_coverage(int argc, char **argv);

#endif
