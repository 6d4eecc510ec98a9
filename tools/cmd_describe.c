// SPDX-License-Identifier: Apache-2.0
//
// `bolide describe OP`: the rows of an operator for people, and the keys of its problems.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "dims.h"
#include "kinds.h"
#include "ref.h"

const char *kind_name(bolide_kind kind) {
    switch (kind) {
    case BOLIDE_KIND_IN:
        return "in";
    case BOLIDE_KIND_OUT:
        return "out";
    case BOLIDE_KIND_INOUT:
        return "in and out";
    case BOLIDE_KIND_F64:
        return "number";
    case BOLIDE_KIND_I64:
        return "integer";
    case BOLIDE_KIND_BOOL:
        return "bool";
    case BOLIDE_KIND_ENUM:
        return "choice";
    case BOLIDE_KIND_DTYPE:
        return "dtype";
    case BOLIDE_KIND_F64_OR_TENSOR:
        return "number or tensor";
    case BOLIDE_KIND_I64_OR_TENSOR:
        return "integer or tensor";
    case BOLIDE_KIND_TENSOR_LIST:
        return "tensors";
    case BOLIDE_KIND_INT_TUPLE:
        return "integers";
    case BOLIDE_KIND_WORKSPACE:
        return "workspace";
    case BOLIDE_KIND_PLAN:
        return "plan";
    case BOLIDE_KIND_VARIANT:
        return "variant";
    case BOLIDE_KIND_COMM:
        return "communicator";
    }
    return "?";
}

static void print_type(const bolide_param *p) {
    const char *separator = " ";
    for (int bit = 0; bit < 63; bit++) {
        if (p->dtypes >> bit & 1) {
            printf("%s%s", separator, bolide_dtype_name((int64_t)1 << bit));
            separator = "|";
        }
    }
    if (p->like)
        printf(" dtype of %s", p->like);
    if (p->alias)
        printf(", may be %s", p->alias);
    if (p->choices)
        printf(" %s", p->choices);
}

static void print_default(const bolide_param *p) {
    const int real = p->kind == BOLIDE_KIND_F64 || p->kind == BOLIDE_KIND_F64_OR_TENSOR;
    const int integer = p->kind == BOLIDE_KIND_I64 || p->kind == BOLIDE_KIND_BOOL ||
                        p->kind == BOLIDE_KIND_ENUM || p->kind == BOLIDE_KIND_DTYPE ||
                        p->kind == BOLIDE_KIND_I64_OR_TENSOR;
    if (real && !isnan(p->f64))
        printf(", default %g", p->f64);
    else if (p->kind == BOLIDE_KIND_ENUM && p->i64 >= 0) {
        const char *choice = p->choices;
        for (int64_t i = 0; i < p->i64 && *choice; i++) {
            choice += strcspn(choice, " ");
            choice += *choice == ' ';
        }
        printf(", default %.*s", (int)strcspn(choice, " "), choice);
    } else if (p->kind == BOLIDE_KIND_DTYPE && p->i64 != BOLIDE_NO_INT)
        printf(", default %s", bolide_dtype_name(p->i64));
    else if (integer && p->i64 != BOLIDE_NO_INT)
        printf(", default %lld", (long long)p->i64);
    if (p->flags & BOLIDE_OPTIONAL)
        printf(", optional");
}

static void print_phase(const bolide_op *op, bolide_phase phase, const char *title) {
    const bolide_param *p;
    printf("\n%s\n", title);
    for (int64_t i = 0; (p = bolide_op_param(op, phase, i)); i++) {
        printf("  %-20s %s", p->name, kind_name(p->kind));
        if (p->dims)
            printf(" [%s]", p->dims);
        print_type(p);
        print_default(p);
        printf("\n  %-20s %s\n", "", p->doc);
    }
}

int command_describe(int argc, char **argv) {
    command c;
    if (command_read(&c, "describe", 0, argc, argv))
        return 2;
    if (c.word_count != 1) {
        (void)fprintf(stderr, "bolide describe: expected one operator; see `bolide ops`\n");
        return 2;
    }
    const bolide_op *op = bolide_op_find(c.word[0]);
    if (!op) {
        (void)fprintf(stderr, "bolide describe: there is no operator %s; see `bolide ops`\n",
                      c.word[0]);
        return 1;
    }
    const int planned = bolide_op_planned(op);
    printf("%s (%s)\n%s\n", bolide_op_name(op), bolide_op_family(op), bolide_op_doc(op));
    if (planned)
        print_phase(op, BOLIDE_PLAN, "Arguments of the plan");
    print_phase(op, BOLIDE_RUN, planned ? "Arguments of the run" : "Arguments");
    const ref_op *ref = ref_find(bolide_op_name(op));
    printf("\nKeys of a problem: dimension names, arguments by name, TENSOR=DTYPE, OUT=TENSOR,\n"
           "TENSOR.pad, .offset, .strideN, .order, .shape, .form, .dtype, .on, .count, .values, x, "
           "seed, expect");
    if (ref && ref->keys)
        printf(",\nand %s", ref->keys);
    printf("\nDefault problem: %s %s\n", bolide_op_name(op),
           ref && ref->defaults ? ref->defaults : "");
    return 0;
}
