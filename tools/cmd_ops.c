// SPDX-License-Identifier: Apache-2.0
//
// `bolide ops`: the operators, a line each; with --json all that the table knows, an object a line.

#include <math.h>
#include <stdio.h>

#include "command.h"
#include "json.h"
#include "kinds.h"

static void print_dtypes(json *j, int64_t set) {
    json_open(j, "dtypes", '[');
    for (int bit = 0; bit < 63; bit++)
        if (set >> bit & 1)
            json_string(j, NULL, bolide_dtype_name((int64_t)1 << bit));
    json_close(j, ']');
}

static void print_default(json *j, const bolide_param *p) {
    switch (p->kind) {
    case BOLIDE_KIND_F64:
    case BOLIDE_KIND_F64_OR_TENSOR:
        json_double(j, "default", p->f64, 0);
        break;
    case BOLIDE_KIND_I64:
    case BOLIDE_KIND_BOOL:
    case BOLIDE_KIND_ENUM:
    case BOLIDE_KIND_I64_OR_TENSOR:
        if (p->i64 == BOLIDE_NO_INT)
            json_null(j, "default");
        else
            json_int(j, "default", p->i64);
        break;
    case BOLIDE_KIND_DTYPE:
        if (p->i64 == BOLIDE_NO_INT)
            json_null(j, "default");
        else
            json_string(j, "default", bolide_dtype_name(p->i64));
        break;
    default:
        break;
    }
}

static void print_param(json *j, const bolide_param *p) {
    json_open(j, NULL, '{');
    json_string(j, "name", p->name);
    json_string(j, "kind", kind_name(p->kind));
    json_bool(j, "optional", (p->flags & BOLIDE_OPTIONAL) != 0);
    if (p->dims)
        json_string(j, "dims", p->dims);
    if (p->dtypes)
        print_dtypes(j, p->dtypes);
    if (p->like)
        json_string(j, "like", p->like);
    if (p->alias)
        json_string(j, "alias", p->alias);
    if (p->choices)
        json_string(j, "choices", p->choices);
    print_default(j, p);
    json_string(j, "doc", p->doc);
    json_close(j, '}');
}

static void print_phase(json *j, const bolide_op *op, bolide_phase phase, const char *key) {
    json_open(j, key, '[');
    const bolide_param *p;
    for (int64_t i = 0; (p = bolide_op_param(op, phase, i)); i++)
        print_param(j, p);
    json_close(j, ']');
}

static void print_json(const bolide_op *op) {
    json j = {.file = stdout};
    json_open(&j, NULL, '{');
    json_string(&j, "name", bolide_op_name(op));
    json_string(&j, "family", bolide_op_family(op));
    json_string(&j, "doc", bolide_op_doc(op));
    json_bool(&j, "planned", bolide_op_planned(op));
    json_bool(&j, "cpu", bolide_op_supports(op, BOLIDE_CPU));
    json_bool(&j, "cuda", bolide_op_supports(op, BOLIDE_CUDA));
    print_phase(&j, op, BOLIDE_RUN, "run");
    if (bolide_op_planned(op))
        print_phase(&j, op, BOLIDE_PLAN, "plan");
    json_close(&j, '}');
    json_end(&j);
}

int command_ops(int argc, char **argv) {
    command c;
    if (command_read(&c, "ops", OPTION_JSON, argc, argv))
        return 2;
    if (c.word_count) {
        (void)fprintf(stderr, "bolide ops: expected no %s; see `bolide describe`\n", c.word[0]);
        return 2;
    }
    for (int64_t i = 0; i < bolide_op_count(); i++) {
        const bolide_op *op = bolide_op_at(i);
        if (c.json)
            print_json(op);
        else
            printf("%-12s %-42s %-4s %-5s %s\n", bolide_op_family(op), bolide_op_name(op),
                   bolide_op_supports(op, BOLIDE_CPU) ? "cpu" : "",
                   bolide_op_supports(op, BOLIDE_CUDA) ? "cuda" : "", bolide_op_doc(op));
    }
    return 0;
}
