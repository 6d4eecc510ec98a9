// SPDX-License-Identifier: Apache-2.0
//
// The operator table, walked as a binding walks it: every operator and row has a name and a line of
// prose, a known family, offsets inside the struct, and defaults that the row's own rules accept.

#include <stdio.h>
#include <string.h>

#include <bolide/bolide.h>

static int passed, failed;

static void expect(int condition, const char *op, const char *row, const char *what) {
    passed += condition != 0;
    failed += condition == 0;
    if (!condition)
        printf("FAILED: %s: %s: %s\n", op, row, what);
}

static int is_family(const char *name) {
    static const char *const families[] = {
        "activation", "attention", "cascade", "comm",  "gemm", "linear",   "mla",
        "moe",        "norm",      "page",    "quant", "rope", "sampling",
    };
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i], name) == 0)
            return 1;
    return 0;
}

/* One line that goes on where another text stops: no full stop, no line break. */
static int is_prose(const char *text) {
    const size_t n = text ? strlen(text) : 0;
    return n > 0 && text[n - 1] != '.' && !strchr(text, '\n') && text[0] != ' ';
}

static int64_t choice_count(const char *names) {
    int64_t count = names && *names;
    for (const char *c = names; c && *c; c++)
        count += *c == ' ';
    return count;
}

static void check_row(const char *op, const bolide_param *row, size_t args_size) {
    expect(is_prose(row->doc), op, row->name, "its prose is missing, or ends with a full stop");
    expect(row->offset >= sizeof(bolide_args_head) && row->offset % 8 == 0 &&
               row->offset + 8 <= args_size,
           op, row->name, "its field lies outside the struct");
    switch (row->kind) {
    case BOLIDE_KIND_IN:
    case BOLIDE_KIND_OUT:
    case BOLIDE_KIND_INOUT:
    case BOLIDE_KIND_TENSOR_LIST:
        expect(row->dims && *row->dims, op, row->name, "it has no dimensions");
        expect(row->dtypes != 0 || row->like, op, row->name, "it has no dtypes");
        break;
    case BOLIDE_KIND_BOOL:
        expect(row->i64 == 0 || row->i64 == 1 || row->flags & BOLIDE_OPTIONAL, op, row->name,
               "its default is neither 0 nor 1");
        break;
    case BOLIDE_KIND_ENUM:
        expect((row->i64 >= 0 && row->i64 < choice_count(row->choices)) ||
                   row->i64 == BOLIDE_NO_INT,
               op, row->name, "its default is none of its choices");
        break;
    default:
        break;
    }
}

static void check_op(const bolide_op *op) {
    const char *name = bolide_op_name(op);
    expect(bolide_op_find(name) == op, name, "name", "it does not find itself by name");
    expect(is_family(bolide_op_family(op)), name, bolide_op_family(op), "not a known family");
    expect(is_prose(bolide_op_doc(op)), name, "doc",
           "its prose is missing or ends with a full stop");
    expect(bolide_op_supports(op, BOLIDE_CPU) || bolide_op_supports(op, BOLIDE_CUDA), name,
           "backend", "it runs nowhere");
    for (int phase = BOLIDE_RUN; phase <= BOLIDE_PLAN; phase++) {
        const size_t size = bolide_op_args_size(op, (bolide_phase)phase);
        expect((size != 0) == (phase == BOLIDE_RUN || bolide_op_planned(op)), name, "phase",
               "its phases do not agree");
        for (int64_t i = 0; bolide_op_param(op, (bolide_phase)phase, i); i++)
            check_row(name, bolide_op_param(op, (bolide_phase)phase, i), size);
    }
}

int main(void) {
    for (int64_t i = 0; i < bolide_op_count(); i++)
        check_op(bolide_op_at(i));
    expect(bolide_op_count() > 0, "table", "count", "it is empty");
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
