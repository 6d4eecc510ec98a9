// SPDX-License-Identifier: Apache-2.0
//
// The rows of one phase in compiled form. Dimension strings are parsed once per process into the
// arrays below; a call then only walks indices. Names (of dimensions, of integer and enum rows and
// of values that a run takes from its plan) share one table of slots.

#ifndef BOLIDE_CORE_TABLE_H
#define BOLIDE_CORE_TABLE_H

#include <stdatomic.h>

#include <bolide/core.h>

enum {
    BOLIDE__MAX_NAMES = 32,
    BOLIDE__MAX_ROWS = 56,
    BOLIDE__MAX_FORMS = 128,
    BOLIDE__MAX_WORDS = 320,
    BOLIDE__MAX_CODE = 256,
    BOLIDE__MAX_ARGS_BYTES = 1024,
    BOLIDE__MAX_NDIM = 8
};

/* One word of a dimension string. */
typedef struct bolide__word {
    uint8_t kind;  /* bolide__word_kind */
    uint8_t slot;  /* NAME; or the name of an EXPR that can be solved for it */
    uint16_t code; /* EXPR: start in the postfix code */
    int64_t value; /* CONST */
} bolide__word;

enum bolide__word_kind { BOLIDE__ANY, BOLIDE__CONST, BOLIDE__NAME, BOLIDE__EXPR };

/* One accepted shape: words [first, first + ndim). choice is the enum value it belongs to, −1
 * where the number of dimensions chooses. */
typedef struct bolide__form {
    uint16_t first;
    int8_t ndim;
    int8_t choice;
} bolide__form;

typedef struct bolide__row {
    uint8_t first_form, form_count;
    int8_t choice_slot; /* slot of the enum that chooses the form; −1: none */
    int8_t own_slot;    /* slot that an integer or enum row binds; −1: none */
    int16_t like_row;   /* row whose dtype this one takes; −1: none */
    int16_t like_slot;  /* or slot of a dtype held by the plan; −1: none */
    int16_t alias_row;  /* input row whose memory it may share; −1: none */
    int16_t twin_row; /* earlier row with the same several forms: both take the same; −1: none */
    uint8_t has_expr;
    uint8_t same_rank;  /* two forms have as many dimensions, and no enum chooses */
    uint8_t choices;    /* values of an enum row */
    uint8_t is_size;    /* an integer row that some row has as a dimension */
    bolide_dtype usual; /* one that the row takes, if it names any itself */
} bolide__row;

/* A row that has one tensor, or may have, as calls walk over them. */
typedef struct bolide__tensor_row {
    uint16_t offset; /* of the tensor in the args */
    uint8_t row;
    uint8_t may_lack : 1;  /* without the tensor there is nothing to look at */
    uint8_t or_number : 1; /* it takes a number instead */
} bolide__tensor_row;

/* Postfix code of expressions. */
typedef struct bolide__instr {
    uint8_t op; /* 0 end, 'k' constant, 'n' name, '+', '-', '*', '/', 'c' ceil-divide, 'p' pad up */
    uint8_t slot;
    int32_t value;
} bolide__instr;

typedef struct bolide__program {
    _Atomic int ready;
    uint32_t tag;
    int32_t name_count;
    int32_t form_count, word_count, code_count;
    int32_t list_count;  /* rows that are lists of tensors */
    int32_t expressions; /* rows with one among their dimensions */
    int32_t tensor_count, scalar_count, output_count;
    int32_t plan_count;              /* the first names, which a run takes from its plan */
    int32_t plan_row, workspace_row; /* -1: none */
    char entry_name[64];
    struct {
        const char *text;
        int32_t length;
    } names[BOLIDE__MAX_NAMES];
    bolide__tensor_row tensors[BOLIDE__MAX_ROWS];
    uint16_t outputs[BOLIDE__MAX_ROWS]; /* where in the args the tensors lie that are written */
    uint8_t scalars[BOLIDE__MAX_ROWS];  /* rows that have no tensor */
    bolide__row rows[BOLIDE__MAX_ROWS];
    bolide__form forms[BOLIDE__MAX_FORMS];
    bolide__word words[BOLIDE__MAX_WORDS];
    bolide__instr code[BOLIDE__MAX_CODE];
    _Alignas(8) unsigned char defaults[BOLIDE__MAX_ARGS_BYTES];
} bolide__program;

/* Whether a row of this kind has one tensor, or may have. */
static inline int bolide__is_tensor_kind(bolide_kind k) {
    const unsigned tensors = 1u << BOLIDE_KIND_IN | 1u << BOLIDE_KIND_OUT |
                             1u << BOLIDE_KIND_INOUT | 1u << BOLIDE_KIND_F64_OR_TENSOR |
                             1u << BOLIDE_KIND_I64_OR_TENSOR;
    return (int)(tensors >> k & 1);
}

/* The compiled rows of a phase; compiles at the first call, safe from many threads. NULL if the
 * operator lacks the phase. A malformed dimension string is a fault of ours and aborts. */
const bolide__program *bolide__program_of(const bolide_op *op, bolide_phase phase);

/* Slot of a name of the given length; −1: unknown. */
int bolide__slot(const bolide__program *p, const char *text, int32_t length);

/* Value of the expression at code with the names bound so far: INT64_MIN if one is unbound, −1 if
 * it overflows or divides by zero, which no dimension equals. */
int64_t bolide__eval(const bolide__program *p, const int64_t *dims, int32_t code);

/* Binds the one name of a word "name", "name+k", "name-k" or "name*k" so that the word has the
 * given value, if the name is unbound. 0 if no name of at least 0 gives that value. */
int bolide__solve(const bolide__program *p, int64_t *dims, const bolide__word *w, int64_t value);

#endif
