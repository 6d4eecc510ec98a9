// SPDX-License-Identifier: Apache-2.0
//
// Compiles rows at first use, and walks the table for reflection. The grammar of a dimension
// string is at bolide_param in core.h; the compiled form in table.h.

#include "core/table.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/op.h"

static pthread_mutex_t compile_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- parsing ------------------------------------------------------------------------------ */

typedef struct parser {
    const bolide_op *op;
    bolide__program *p;
    const char *at; /* next character */
} parser;

/* The table is part of the library, so a mistake in it is found by the first test that runs. */
static void broken(const parser *ps, const char *why) {
    fprintf(stderr, "bolide: internal: table of %s: %s at \"%s\"\n", ps->p->entry_name, why,
            ps->at ? ps->at : "");
    abort();
}

int bolide__slot(const bolide__program *p, const char *text, int32_t length) {
    for (int i = 0; i < p->name_count; i++) {
        if (p->names[i].length == length && memcmp(p->names[i].text, text, (size_t)length) == 0)
            return i;
    }
    return -1;
}

static int add_name(parser *ps, const char *text, int32_t length) {
    const int found = bolide__slot(ps->p, text, length);
    if (found >= 0)
        return found;
    if (ps->p->name_count == BOLIDE__MAX_NAMES)
        broken(ps, "too many names");
    ps->p->names[ps->p->name_count].text = text;
    ps->p->names[ps->p->name_count].length = length;
    return ps->p->name_count++;
}

static int is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static int32_t name_length(const char *s) {
    int32_t n = 0;
    while (is_name_char(s[n]))
        n++;
    return n;
}

static void emit(parser *ps, uint8_t op, int slot, int64_t value) {
    if (ps->p->code_count == BOLIDE__MAX_CODE)
        broken(ps, "too much code");
    ps->p->code[ps->p->code_count++] =
        (bolide__instr){.op = op, .slot = (uint8_t)slot, .value = (int32_t)value};
}

static void expect(parser *ps, char c) {
    if (*ps->at != c)
        broken(ps, "unexpected character");
    ps->at++;
}

static void parse_sum(parser *ps);

/* number | name | ceil(a/b) | pad(a,b) | (sum) */
static void parse_atom(parser *ps) {
    if (*ps->at == '(') {
        ps->at++;
        parse_sum(ps);
        expect(ps, ')');
    } else if (strncmp(ps->at, "ceil(", 5) == 0) {
        ps->at += 5;
        parse_sum(ps);
        expect(ps, ')');
        bolide__instr *last = &ps->p->code[ps->p->code_count - 1];
        if (last->op != '/')
            broken(ps, "ceil needs a division");
        last->op = 'c';
    } else if (strncmp(ps->at, "pad(", 4) == 0) {
        ps->at += 4;
        parse_sum(ps);
        expect(ps, ',');
        parse_sum(ps);
        expect(ps, ')');
        emit(ps, 'p', 0, 0);
    } else if (*ps->at >= '0' && *ps->at <= '9') {
        char *end;
        emit(ps, 'k', 0, strtol(ps->at, &end, 10));
        ps->at = end;
    } else {
        const int32_t n = name_length(ps->at);
        if (n == 0)
            broken(ps, "expected a name");
        emit(ps, 'n', add_name(ps, ps->at, n), 0);
        ps->at += n;
    }
}

static void parse_product(parser *ps) {
    parse_atom(ps);
    while (*ps->at == '*' || *ps->at == '/') {
        const uint8_t op = (uint8_t)*ps->at++;
        parse_atom(ps);
        emit(ps, op, 0, 0);
    }
}

static void parse_sum(parser *ps) {
    parse_product(ps);
    while (*ps->at == '+' || *ps->at == '-') {
        const uint8_t op = (uint8_t)*ps->at++;
        parse_product(ps);
        emit(ps, op, 0, 0);
    }
}

static bolide__word parse_word(parser *ps) {
    const char *start = ps->at;
    const int32_t n = name_length(start);
    const char after = start[n];
    const int whole = after == ' ' || after == '\0' || after == '|' || after == ';';
    if (whole && n == 1 && *start == '_') {
        ps->at += n;
        return (bolide__word){.kind = BOLIDE__ANY};
    }
    if (whole && n > 0 && *start >= '0' && *start <= '9') {
        ps->at += n;
        return (bolide__word){.kind = BOLIDE__CONST, .value = strtol(start, NULL, 10)};
    }
    if (whole && n > 0) {
        ps->at += n;
        return (bolide__word){.kind = BOLIDE__NAME, .slot = (uint8_t)add_name(ps, start, n)};
    }
    const int32_t code = ps->p->code_count;
    parse_sum(ps);
    emit(ps, 0, 0, 0);
    return (bolide__word){.kind = BOLIDE__EXPR, .code = (uint16_t)code};
}

static void skip_blanks(parser *ps) {
    while (*ps->at == ' ')
        ps->at++;
}

static void parse_form(parser *ps, bolide__row *row, int choice) {
    bolide__program *p = ps->p;
    if (p->form_count == BOLIDE__MAX_FORMS)
        broken(ps, "too many forms");
    bolide__form *form = &p->forms[p->form_count++];
    *form = (bolide__form){.first = (uint16_t)p->word_count, .choice = (int8_t)choice};
    for (skip_blanks(ps); *ps->at && *ps->at != '|' && *ps->at != ';'; skip_blanks(ps)) {
        if (p->word_count == BOLIDE__MAX_WORDS || form->ndim == BOLIDE__MAX_NDIM)
            broken(ps, "too many words");
        const bolide__word w = parse_word(ps);
        row->has_expr |= w.kind == BOLIDE__EXPR;
        p->words[p->word_count++] = w;
        form->ndim++;
    }
    row->form_count++;
    for (const bolide__form *f = &p->forms[row->first_form]; f < form; f++)
        row->same_rank |= choice < 0 && f->ndim == form->ndim;
}

/* The enum row of that name in either phase: a run chooses by what its plan holds. */
static const char *choices_of(const parser *ps, const char *name, int32_t length) {
    const bolide__entry *entries[] = {&ps->op->run, &ps->op->plan};
    for (int e = 0; e < 2; e++) {
        for (int i = 0; i < entries[e]->row_count; i++) {
            const bolide_param *r = &entries[e]->rows[i];
            if (r->kind == BOLIDE_KIND_ENUM && (int32_t)strlen(r->name) == length &&
                strncmp(r->name, name, (size_t)length) == 0)
                return r->choices;
        }
    }
    return NULL;
}

static int choice_index(const char *choices, const char *name, int32_t length) {
    for (int i = 0; choices && *choices; i++) {
        const size_t n = strcspn(choices, " ");
        if ((int32_t)n == length && strncmp(choices, name, n) == 0)
            return i;
        choices += n + (choices[n] == ' ');
    }
    return -1;
}

static void parse_dims(parser *ps, bolide__row *row, const char *dims) {
    ps->at = dims;
    const char *equals = strchr(dims, '=');
    row->first_form = (uint8_t)ps->p->form_count;
    if (!equals) {
        for (;;) {
            parse_form(ps, row, -1);
            if (*ps->at != '|')
                break;
            ps->at++;
        }
        return;
    }
    const int32_t length = (int32_t)(equals - dims);
    const char *choices = choices_of(ps, dims, length);
    row->choice_slot = (int8_t)add_name(ps, dims, length);
    ps->at = equals + 1;
    for (;;) {
        const int32_t n = name_length(ps->at);
        const int choice = choice_index(choices, ps->at, n);
        if (choice < 0)
            broken(ps, "unknown choice");
        ps->at += n;
        expect(ps, ':');
        parse_form(ps, row, choice);
        if (*ps->at != ';')
            break;
        ps->at++;
        skip_blanks(ps);
    }
}

/* ---- compiling a phase -------------------------------------------------------------------- */

static int row_index(const bolide__entry *e, const char *name) {
    for (int i = 0; name && i < e->row_count; i++) {
        if (strcmp(e->rows[i].name, name) == 0)
            return i;
    }
    return -1;
}

static void write_default(unsigned char *image, const bolide_param *r) {
    switch (r->kind) {
    case BOLIDE_KIND_F64:
        memcpy(image + r->offset, &r->f64, sizeof r->f64);
        break;
    case BOLIDE_KIND_F64_OR_TENSOR:
        memcpy(image + r->offset2, &r->f64, sizeof r->f64);
        break;
    case BOLIDE_KIND_I64:
    case BOLIDE_KIND_BOOL:
    case BOLIDE_KIND_ENUM:
    case BOLIDE_KIND_DTYPE:
        memcpy(image + r->offset, &r->i64, sizeof r->i64);
        break;
    case BOLIDE_KIND_I64_OR_TENSOR:
        memcpy(image + r->offset2, &r->i64, sizeof r->i64);
        break;
    default:
        break; /* pointers and counts are zero */
    }
}

static int count_words(const char *text) {
    int count = 1;
    for (; *text; text++)
        count += *text == ' ';
    return count;
}

/* Whether a form has a number in it, as "d | 1 d" has: such a rank says nothing of another row's.
 */
static int has_constant(const bolide__program *p, const bolide__row *row) {
    for (int i = 0; i < row->form_count; i++) {
        const bolide__form *f = &p->forms[row->first_form + i];
        for (int k = 0; k < f->ndim; k++)
            if (p->words[f->first + k].kind == BOLIDE__CONST)
                return 1;
    }
    return 0;
}

/* Enters a row into the lists that calls walk over. */
static void list_row(bolide__program *p, const bolide_param *r, int i) {
    if (bolide__is_tensor_kind(r->kind)) {
        p->tensors[p->tensor_count++] = (bolide__tensor_row){
            .offset = (uint16_t)r->offset,
            .row = (uint8_t)i,
            .may_lack = r->kind <= BOLIDE_KIND_INOUT && r->flags & BOLIDE_OPTIONAL,
            .or_number = r->kind > BOLIDE_KIND_INOUT,
        };
    } else if (r->kind != BOLIDE_KIND_F64 ||
               !(r->flags & BOLIDE_OPTIONAL)) { /* those always hold */
        p->scalars[p->scalar_count++] = (uint8_t)i;
    }
    if (r->kind == BOLIDE_KIND_OUT || r->kind == BOLIDE_KIND_INOUT)
        p->outputs[p->output_count++] = (uint16_t)r->offset;
}

static void compile_row(parser *ps, const bolide__entry *e, int i) {
    const bolide_param *r = &e->rows[i];
    bolide__row *row = &ps->p->rows[i];
    *row = (bolide__row){.choice_slot = -1, .own_slot = -1};
    ps->at = r->name;
    if (r->kind == BOLIDE_KIND_I64 || r->kind == BOLIDE_KIND_ENUM)
        row->own_slot = (int8_t)add_name(ps, r->name, (int32_t)strlen(r->name));
    if (r->dims)
        parse_dims(ps, row, r->dims);
    row->like_row = (int16_t)row_index(e, r->like);
    row->like_slot = -1;
    if (r->like && row->like_row < 0)
        row->like_slot = (int16_t)bolide__slot(ps->p, r->like, (int32_t)strlen(r->like));
    if (r->like && row->like_row < 0 && row->like_slot < 0)
        broken(ps, "like names no row");
    row->alias_row = (int16_t)row_index(e, r->alias);
    if (r->alias && row->alias_row < 0)
        broken(ps, "alias names no row");
    row->twin_row = -1;
    ps->p->list_count += r->kind == BOLIDE_KIND_TENSOR_LIST;
    ps->p->expressions += row->has_expr;
    row->usual = bolide_dtype_of(r->dtypes & -r->dtypes);
    list_row(ps->p, r, i);
    row->choices = (uint8_t)(r->kind == BOLIDE_KIND_ENUM ? count_words(r->choices) : 0);
    if (r->kind == BOLIDE_KIND_PLAN)
        ps->p->plan_row = i;
    if (r->kind == BOLIDE_KIND_WORKSPACE)
        ps->p->workspace_row = i;
    const int plain =
        r->kind == BOLIDE_KIND_IN || r->kind == BOLIDE_KIND_OUT || r->kind == BOLIDE_KIND_INOUT;
    for (int k = i - 1; k >= 0 && plain && row->form_count > 1 && !has_constant(ps->p, row); k--) {
        if (e->rows[k].dims && strcmp(e->rows[k].dims, r->dims) == 0)
            row->twin_row = (int16_t)k;
    }
    write_default(ps->p->defaults, r);
}

/* Whether a name stands in a dimension string of any row. */
static int is_dimension(const bolide__program *p, int slot) {
    for (int i = 0; i < p->word_count; i++)
        if (p->words[i].kind == BOLIDE__NAME && p->words[i].slot == slot)
            return 1;
    for (int i = 0; i < p->code_count; i++)
        if (p->code[i].op == 'n' && p->code[i].slot == slot)
            return 1;
    return 0;
}

static uint32_t fnv1a(const char *s) {
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static void compile(const bolide_op *op, bolide_phase phase, bolide__program *p) {
    const bolide__entry *e = phase == BOLIDE_PLAN ? &op->plan : &op->run;
    parser ps = {.op = op, .p = p, .at = op->name};
    const char *suffix = !op->plan.args_size ? "" : phase == BOLIDE_PLAN ? "_plan" : "_run";
    snprintf(p->entry_name, sizeof p->entry_name, "%s%s", op->name, suffix);
    if (e->row_count > BOLIDE__MAX_ROWS || e->args_size > BOLIDE__MAX_ARGS_BYTES)
        broken(&ps, "too many rows or bytes");
    /* Names that a run takes from the plan come first, so that their slot is their index. */
    for (const bolide__plan_dim *d = op->plan_dims; phase == BOLIDE_RUN && d && d->name; d++)
        add_name(&ps, d->name, (int32_t)strlen(d->name));
    p->plan_count = p->name_count;
    p->plan_row = p->workspace_row = -1;
    p->tag = fnv1a(p->entry_name) ^ 1u; /* the 1 is the version of the ABI */
    for (int i = 0; i < e->row_count; i++)
        compile_row(&ps, e, i);
    for (int i = 0; i < e->row_count; i++)
        p->rows[i].is_size =
            e->rows[i].kind == BOLIDE_KIND_I64 && is_dimension(p, p->rows[i].own_slot);
    const bolide_args_head head = {.size = e->args_size, .tag = p->tag};
    memcpy(p->defaults, &head, sizeof head);
}

/* A function of its own, or each call would save the registers that this one needs. */
static __attribute__((noinline)) void compile_once(const bolide_op *op, bolide_phase phase,
                                                   bolide__program *p) {
    pthread_mutex_lock(&compile_lock);
    if (!atomic_load_explicit(&p->ready, memory_order_relaxed)) {
        compile(op, phase, p);
        atomic_store_explicit(&p->ready, 1, memory_order_release);
    }
    pthread_mutex_unlock(&compile_lock);
}

const bolide__program *bolide__program_of(const bolide_op *op, bolide_phase phase) {
    const bolide__entry *e = phase == BOLIDE_PLAN ? &op->plan : &op->run;
    if (e->args_size == 0)
        return NULL;
    if (!atomic_load_explicit(&e->program->ready, memory_order_acquire))
        compile_once(op, phase, e->program);
    return e->program;
}

/* 0 where the result is undefined or does not fit. */
static int apply(uint8_t op, int64_t a, int64_t b, int64_t *out) {
    int64_t up;
    switch (op) {
    case '+':
        return !__builtin_add_overflow(a, b, out);
    case '-':
        return !__builtin_sub_overflow(a, b, out);
    case '*':
        return !__builtin_mul_overflow(a, b, out);
    default:
        if (b <= 0 || __builtin_add_overflow(a, b - 1, &up))
            return 0;
        *out = op == '/' ? a / b : up / b;
        return op != 'p' || !__builtin_mul_overflow(up / b, b, out);
    }
}

int64_t bolide__eval(const bolide__program *p, const int64_t *dims, int32_t code) {
    int64_t stack[16];
    int top = 0;
    for (const bolide__instr *i = &p->code[code]; i->op; i++) {
        if (i->op == 'k' || i->op == 'n') {
            stack[top++] = i->op == 'k' ? i->value : dims[i->slot];
            if (stack[top - 1] == INT64_MIN)
                return INT64_MIN;
            continue;
        }
        const int64_t b = stack[--top];
        if (!apply(i->op, stack[top - 1], b, &stack[top - 1]))
            return -1;
    }
    return stack[0];
}

int bolide__solve(const bolide__program *p, int64_t *dims, const bolide__word *w, int64_t value) {
    if (w->kind == BOLIDE__NAME && dims[w->slot] == INT64_MIN)
        dims[w->slot] = value;
    if (w->kind != BOLIDE__EXPR)
        return 1;
    const bolide__instr *i = &p->code[w->code];
    if (i[0].op != 'n' || i[1].op != 'k' || i[3].op != 0 || dims[i[0].slot] != INT64_MIN)
        return 1;
    const int64_t k = i[1].value;
    const int64_t x = i[2].op == '+'                              ? value - k
                      : i[2].op == '-'                            ? value + k
                      : i[2].op == '*' && k > 0 && value % k == 0 ? value / k
                                                                  : -1;
    if (x >= 0)
        dims[i[0].slot] = x;
    return x >= 0 || (i[2].op != '+' && i[2].op != '-' && i[2].op != '*');
}

/* ---- reflection --------------------------------------------------------------------------- */

int64_t bolide_op_count(void) {
    return bolide__op_count;
}

const bolide_op *bolide_op_at(int64_t index) {
    return index >= 0 && index < bolide__op_count ? bolide__ops[index] : NULL;
}

const bolide_op *bolide_op_find(const char *name) {
    for (int64_t i = 0; name && i < bolide__op_count; i++) {
        if (strcmp(bolide__ops[i]->name, name) == 0)
            return bolide__ops[i];
    }
    return NULL;
}

const char *bolide_op_name(const bolide_op *op) {
    return op->name;
}

const char *bolide_op_family(const bolide_op *op) {
    return op->family;
}

const char *bolide_op_doc(const bolide_op *op) {
    return op->doc;
}

int bolide_op_planned(const bolide_op *op) {
    return op->plan.args_size != 0;
}

int bolide_op_supports(const bolide_op *op, bolide_device_type type) {
    return type == BOLIDE_CPU ? op->cpu != NULL : type == BOLIDE_CUDA ? op->cuda != NULL : 0;
}

size_t bolide_op_args_size(const bolide_op *op, bolide_phase phase) {
    return phase == BOLIDE_PLAN ? op->plan.args_size : op->run.args_size;
}

const bolide_param *bolide_op_param(const bolide_op *op, bolide_phase phase, int64_t index) {
    const bolide__entry *e = phase == BOLIDE_PLAN ? &op->plan : &op->run;
    return index >= 0 && index < e->row_count ? &e->rows[index] : NULL;
}

bolide_status bolide_args_init(const char *entry, void *args, size_t size) {
    static const char name[] = "args_init";
    if (!entry || !args)
        return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, name, entry ? "args" : "entry", "pointer",
                                "not NULL", "NULL");
    for (int64_t i = 0; i < bolide__op_count; i++) {
        const bolide_op *op = bolide__ops[i];
        const size_t n = strlen(op->name);
        if (strncmp(op->name, entry, n) != 0)
            continue;
        for (int phase = BOLIDE_RUN; phase <= BOLIDE_PLAN; phase++) {
            const bolide__program *p = bolide__program_of(op, (bolide_phase)phase);
            if (!p || strcmp(p->entry_name, entry) != 0)
                continue;
            const size_t full = bolide_op_args_size(op, (bolide_phase)phase);
            if (size < sizeof(bolide_args_head) || size > full || size % 8 != 0)
                return bolide__fail_arg(BOLIDE_INVALID_ARGUMENT, name, entry, "size",
                                        bolide__text("a multiple of 8 from 8 to %zu bytes", full),
                                        "%zu", size);
            memcpy(args, p->defaults, size);
            ((bolide_args_head *)args)->size = (uint32_t)size;
            return BOLIDE_OK;
        }
    }
    return bolide__fail_arg(BOLIDE_NOT_FOUND, name, "entry", "name",
                            "an operator, with _plan or _run if it is planned", "%.100s", entry);
}
