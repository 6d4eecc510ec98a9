// SPDX-License-Identifier: Apache-2.0
//
// The command line tool: one subcommand a file, cmd_<name>.c.

#include <stdio.h>
#include <string.h>

#include "command.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *synopsis;
    const char *doc;
} commands[] = {
    {"ops", command_ops, "ops [--json]", "list the operators"},
    {"describe", command_describe, "describe OP",
     "arguments of an operator, and keys of its problems"},
    {"check", command_check,
     "check PROBLEM... [--json] [--backend cpu|cuda] [--isa NAME|all] [--seed N] [--threads N]",
     "compare with the float64 reference; exit 1 on a mismatch"},
    {"bench", command_bench,
     "bench PROBLEM... [--json] [--backend cpu|cuda] [--isa NAME] [--threads N] [--seconds S]",
     "time, bytes, operations, share of what the machine reads or multiplies meanwhile: medians,\n"
     "      on the CPU of sweeps over as many bytes and as many multiply-adds, in turn with the "
     "runs"},
    {"coverage", command_coverage, "coverage [--json]",
     "what becomes of each parameter of FlashInfer's interface"},
    {"doctor", command_doctor, "doctor [--json]", "what of this machine Bolide can use"},
    {"compile", command_compile, "compile PROBLEM... [--arch sm_90a|compute_80|...] [--threads N]",
     "compile the GPU kernels of problems into the cache; a GPU is needed only without --arch"},
    {"cache", command_cache, "cache list|verify|clear",
     "show, check or empty the cache of compiled kernels"},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void help(FILE *to) {
    (void)fprintf(to, "usage: bolide COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; i++)
        (void)fprintf(to, "  %s\n      %s\n", commands[i].synopsis, commands[i].doc);
    (void)fprintf(to, "\nA problem is an operator with keys, lists stand for the cross product:\n"
                      "  bolide check rmsnorm n=1,7 d=4096 input=f16,bf16 out=input\n"
                      "A problem \"-\" reads problems from standard input, one a line.\n");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 2, argv + 2);
    if (!strcmp(argv[1], "version") || !strcmp(argv[1], "--version")) {
        puts(bolide_version());
        return 0;
    }
    if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        help(stdout);
        return 0;
    }
    (void)fprintf(stderr, "bolide: there is no command %s; see `bolide help`\n", argv[1]);
    return 2;
}
