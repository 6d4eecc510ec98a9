// SPDX-License-Identifier: Apache-2.0
//
// Custom variants of attention: what a variant must be, and its texts as source. The same functions
// are made of them for both backends: the kernel includes them as "variant.cuh", and the CPU kernel
// calls them row by row, through a few loops that are compiled with them.

#include <bolide/attention.h>
#include <dlfcn.h>
#include <string.h>

#include "core/context.h"
#include "core/intern.h"
#include "cpu/host_compiler.h"
#include "ops/attention/attention_internal.h"

enum { HOOKS = 6, NAMES = 9, MAX_PARTS = 1024, NAME_BYTES = 64 };

/* Names of a place, as bits. */
enum {
    EVERYWHERE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 6, /* request q_len kv_len kv_head */
    OF_QUERY = 1 << 3 | 1 << 4 | 1 << 5,            /* query position head */
    OF_KEY = 1 << 7,
    OF_COLUMN = 1 << 8
};

static const char *const at_names[NAMES] = {
#define BOLIDE__VARIANT_AT_NAME(name) #name,
    BOLIDE__VARIANT_AT_LIST(BOLIDE__VARIANT_AT_NAME)
#undef BOLIDE__VARIANT_AT_NAME
};

static const struct {
    const char *name;
    size_t offset; /* in bolide_variant */
    int names;
} texts[HOOKS] = {
    {"logits", offsetof(bolide_variant, logits), EVERYWHERE | OF_QUERY | OF_KEY},
    {"mask", offsetof(bolide_variant, mask), EVERYWHERE | OF_QUERY | OF_KEY},
    {"query", offsetof(bolide_variant, query), EVERYWHERE | OF_QUERY | OF_COLUMN},
    {"key", offsetof(bolide_variant, key), EVERYWHERE | OF_KEY | OF_COLUMN},
    {"value", offsetof(bolide_variant, value), EVERYWHERE | OF_KEY | OF_COLUMN},
    {"output", offsetof(bolide_variant, output), EVERYWHERE | OF_QUERY | OF_COLUMN},
};

static const char *text_of(const bolide_variant *v, int hook) {
    const char *text;
    memcpy(&text, (const char *)v + texts[hook].offset, sizeof text);
    return text;
}

/* ---- checks ------------------------------------------------------------------------------- */

static bool is_name(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    if (!name || !*name || strlen(name) >= NAME_BYTES || !strchr(letters, *name))
        return false;
    for (const char *c = name; *c; c++) {
        if (!strchr(letters, *c) && (*c < '0' || *c > '9'))
            return false;
    }
    return strncmp(name, "bolide", 6) != 0;
}

static bool is_taken(const bolide_variant *v, int64_t index) {
    const char *name = v->params[index].name;
    for (int i = 0; i < NAMES; i++) {
        if (!strcmp(name, at_names[i]))
            return true;
    }
    for (int64_t i = 0; i < index; i++) {
        if (!strcmp(name, v->params[i].name))
            return true;
    }
    return !strcmp(name, "x") || !strcmp(name, "at") || !strcmp(name, "extra");
}

static bool is_reachable(const bolide__call *call, const bolide_tensor *t) {
    if (call->ctx->device.type != BOLIDE_CUDA)
        return t->device.type != BOLIDE_CUDA;
    return t->device.type == BOLIDE_CUDA ? t->device.index == call->ctx->device.index
                                         : t->device.type != BOLIDE_CPU;
}

static bolide_status check_param(const bolide__call *call, const bolide_variant *v, int64_t i) {
    const bolide_variant_param *p = &v->params[i];
    const char *what = bolide__text("params[%lld]", (long long)i);
    if (!is_name(p->name) || is_taken(v, i))
        return BOLIDE_FAIL_ARG(call, "variant", what,
                               "a name of C that is not taken and does not begin with bolide",
                               "%.64s", p->name ? p->name : "NULL");
    const bolide_tensor *t = p->tensor;
    if (!t)
        return BOLIDE_OK;
    if (!(bolide__bit(t) & (BOLIDE_F32 | BOLIDE_I32 | BOLIDE_U8)))
        return BOLIDE_FAIL_ARG(call, "variant", p->name, "f32, i32 or u8", "%s",
                               bolide_dtype_name(bolide__bit(t)));
    if (!bolide__is_contiguous(t))
        return BOLIDE_FAIL_ARG(call, "variant", p->name, "a contiguous tensor", "strides");
    if (!t->data || !is_reachable(call, t))
        return BOLIDE_FAIL_ARG(call, "variant", p->name, "memory that the context reaches", "%s",
                               t->data ? "another device" : "NULL");
    return BOLIDE_OK;
}

bolide_status bolide__attention_check_variant(const bolide__call *call, const bolide_variant *v) {
    if (!v)
        return BOLIDE_OK;
    if (v->size != (int64_t)sizeof *v)
        return BOLIDE_FAIL_ARG(call, "variant", "size",
                               bolide__text("%lld, that of bolide_variant", (long long)sizeof *v),
                               "%lld", (long long)v->size);
    if (v->no_softmax != 0 && v->no_softmax != 1)
        return BOLIDE_FAIL_ARG(call, "variant", "no_softmax", "0 or 1", "%lld",
                               (long long)v->no_softmax);
    if (v->param_count < 0 || v->param_count > BOLIDE__VARIANT_PARAMS ||
        (v->param_count > 0 && !v->params))
        return BOLIDE_FAIL_ARG(call, "variant", "param_count",
                               bolide__text("0 to %d, and params", BOLIDE__VARIANT_PARAMS), "%lld",
                               (long long)v->param_count);
    for (int64_t i = 0; i < v->param_count; i++)
        BOLIDE_TRY(check_param(call, v, i));
    if (v->declarations && call->ctx->device.type != BOLIDE_CUDA)
        return bolide__fail_arg(BOLIDE_UNSUPPORTED, call->entry_name, "variant", "declarations",
                                "NULL on the CPU, C++ is for the GPU", "a text");
    return BOLIDE_OK;
}

/* ---- source ------------------------------------------------------------------------------- */

typedef struct source {
    const char *part[MAX_PARTS];
    int count;
} source;

static void put(source *s, const char *part) {
    s->part[s->count++] = part;
}

/* The parameters under their names: const TYPE NAME = (TYPE)extra[DIGIT].data */
static void put_params(source *s, const bolide_variant *v) {
    static const char *const digit[BOLIDE__VARIANT_PARAMS] = {"0", "1", "2", "3",
                                                              "4", "5", "6", "7"};
    for (int64_t i = 0; i < v->param_count; i++) {
        const bolide_variant_param *p = &v->params[i];
        const int64_t bit = p->tensor ? bolide__bit(p->tensor) : 0;
        const char *type = !bit                ? "float "
                           : bit == BOLIDE_F32 ? "float *"
                           : bit == BOLIDE_I32 ? "int32_t *"
                                               : "uint8_t *";
        put(s, "const ");
        put(s, type);
        put(s, p->name);
        put(s, bit ? " = (const " : " = (");
        put(s, type);
        put(s, ")extra[");
        put(s, digit[i]);
        put(s, bit ? "].data; (void)" : "].number; (void)");
        put(s, p->name);
        put(s, ";\n");
    }
}

/* A text as a function; one that is absent, or that ends without a return, changes nothing. */
static void put_hook(source *s, const bolide_variant *v, int hook) {
    const bool mask = !strcmp(texts[hook].name, "mask");
    put(s, mask ? "static inline int bolide__variant_" : "static inline float bolide__variant_");
    put(s, texts[hook].name);
    put(s, mask ? "(" : "(float x, ");
    put(s, "const bolide__variant_at *at, const bolide__variant_extra *extra) {\n"
           "(void)at; (void)extra;\n");
    if (text_of(v, hook)) {
        for (int i = 0; i < NAMES; i++) {
            if (!(texts[hook].names >> i & 1))
                continue;
            put(s, "const int ");
            put(s, at_names[i]);
            put(s, " = at->");
            put(s, at_names[i]);
            put(s, "; (void)");
            put(s, at_names[i]);
            put(s, ";\n");
        }
        put_params(s, v);
        put(s, "#line 1 \"");
        put(s, texts[hook].name);
        put(s, "\"\n");
        put(s, text_of(v, hook));
    }
    put(s, mask ? "\nreturn 1;\n}\n" : "\nreturn x;\n}\n");
}

static void put_hooks(source *s, const bolide_variant *v) {
    put(s, v->no_softmax ? "enum { bolide__variant_softmax = 0 };\n"
                         : "enum { bolide__variant_softmax = 1 };\n");
    if (v->declarations) {
        put(s, "#line 1 \"declarations\"\n");
        put(s, v->declarations);
        put(s, "\n");
    }
    for (int i = 0; i < HOOKS; i++)
        put_hook(s, v, i);
}

static const char *intern(const source *s) {
    return bolide__intern(s->part, s->count);
}

static void fill_extra(const bolide_variant *v, bolide__attention_params *p) {
    for (int64_t i = 0; i < v->param_count; i++) {
        const bolide_tensor *t = v->params[i].tensor;
        p->extra[i] = (bolide__variant_extra){.number = v->params[i].number,
                                              .data = t ? bolide__data(t) : NULL};
    }
}

bolide_status bolide__attention_variant_text(const bolide__call *call, const bolide_variant *v,
                                             bolide__attention_params *p) {
    source s = {.count = 0};
    if (!v)
        return BOLIDE_OK;
    put_hooks(&s, v);
    p->variant_text = intern(&s);
    fill_extra(v, p);
    return p->variant_text
               ? BOLIDE_OK
               : bolide__fail(BOLIDE_OUT_OF_MEMORY, call->entry_name, "no memory for a variant");
}

/* ---- functions of the CPU ----------------------------------------------------------------- */

#define BOLIDE__VARIANT_AT_TEXT(name) "int32_t " #name ";\n"
static const char head[] =
    "#include <math.h>\n#include <stdint.h>\n"
    "typedef struct {\n" BOLIDE__VARIANT_AT_LIST(
        BOLIDE__VARIANT_AT_TEXT) "} bolide__variant_at;\n"
                                 "typedef struct { double number; const void *data; } "
                                 "bolide__variant_extra;\n";
#undef BOLIDE__VARIANT_AT_TEXT

/* The loops: elements of x are neighbours in `step`. */
#define ROW(hook, step)                                                                            \
    "void bolide_" hook "(float *x, int n, const bolide__variant_at *at,\n"                        \
    "                     const bolide__variant_extra *extra) {\n"                                 \
    "    bolide__variant_at a = *at;\n"                                                            \
    "    for (int j = 0; j < n; j++) {\n"                                                          \
    "        a." step " = at->" step " + j;\n"                                                     \
    "        x[j] = bolide__variant_" hook "(x[j], &a, extra);\n"                                  \
    "    }\n"                                                                                      \
    "}\n"
static const char tail[] = "#line 1 \"rows\"\n" ROW("logits", "key") ROW("query", "dim")
    ROW("key", "dim") ROW("value", "dim") ROW(
        "output", "dim") "uint64_t bolide_mask(int n, const bolide__variant_at *at,\n"
                         "                     const bolide__variant_extra *extra) {\n"
                         "    bolide__variant_at a = *at;\n"
                         "    uint64_t bits = 0;\n"
                         "    for (int j = 0; j < n; j++) {\n"
                         "        a.key = at->key + j;\n"
                         "        bits |= (uint64_t)(bolide__variant_mask(&a, extra) != 0) << j;\n"
                         "    }\n"
                         "    return bits;\n"
                         "}\n";
#undef ROW

static bolide__variant_row *row_of(const bolide_variant *v, int hook, void *library,
                                   const char *symbol) {
    bolide__variant_row *function = NULL;
    if (text_of(v, hook)) {
        void *address = dlsym(library, symbol);
        memcpy(&function, &address, sizeof function);
    }
    return function;
}

bolide_status bolide__attention_variant_hooks(const bolide__call *call, const bolide_variant *v,
                                              bolide__attention_params *p,
                                              bolide__variant_hooks *hooks) {
    source s = {.count = 0};
    void *library;
    put(&s, head);
    put_hooks(&s, v);
    put(&s, tail);
    const char *text = intern(&s);
    if (!text)
        return bolide__fail(BOLIDE_OUT_OF_MEMORY, call->entry_name, "no memory for a variant");
    BOLIDE_TRY(bolide__host_library(call->entry_name, text, &library));
    *hooks = (bolide__variant_hooks){
        .logits = row_of(v, 0, library, "bolide_logits"),
        .query = row_of(v, 2, library, "bolide_query"),
        .key = row_of(v, 3, library, "bolide_key"),
        .value = row_of(v, 4, library, "bolide_value"),
        .output = row_of(v, 5, library, "bolide_output"),
        .no_softmax = v->no_softmax,
    };
    void *mask = v->mask ? dlsym(library, "bolide_mask") : NULL;
    memcpy(&hooks->mask, &mask, sizeof hooks->mask);
    fill_extra(v, p);
    p->hooks = hooks;
    return BOLIDE_OK;
}
