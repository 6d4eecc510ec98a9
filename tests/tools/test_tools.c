// SPDX-License-Identifier: Apache-2.0
//
// Tests of what the other tests stand on: problem strings, element formats, dimension strings, and
// that the driver notices results, guards, gaps and inputs that are wrong.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "case.h"
#include "dims.h"
#include "json.h"
#include "numeric.h"

static int passed, failed;

#define EXPECT(condition) expect(condition, #condition, __LINE__)

static void expect(int condition, const char *text, int line) {
    passed += condition != 0;
    failed += condition == 0;
    if (!condition)
        printf("FAILED: test_tools.c:%d: %s\n", line, text);
}

/* ---- problem strings ---------------------------------------------------------------------- */

static int is_refused(const char *text, const char *reason) {
    static problem_set set;
    char error[PROBLEM_ERROR] = "";
    return problem_parse(text, &set, error) == -1 && strstr(error, reason) != NULL;
}

static void test_problem(void) {
    static problem_set set;
    static problem p;
    char error[PROBLEM_ERROR], text[PROBLEM_TEXT];
    EXPECT(problem_parse("  rmsnorm\tn=1,7 d=64,100,9 out=input ", &set, error) == 0);
    EXPECT(set.total == 6);
    problem_at(&set, 0, &p);
    EXPECT(!strcmp(problem_format(&p, text, sizeof text), "rmsnorm n=1 d=64 out=input"));
    problem_at(&set, 4, &p);
    EXPECT(!strcmp(problem_format(&p, text, sizeof text), "rmsnorm n=7 d=100 out=input"));
    EXPECT(problem_put(&p, "eps", "1e-5") == 0 && !strcmp(problem_get(&p, "eps"), "1e-5"));
    EXPECT(problem_get(&p, "ep") == NULL);
    EXPECT(is_refused("", "empty"));
    EXPECT(is_refused("a n", "key=value"));
    EXPECT(is_refused("a n=", "no value"));
    EXPECT(is_refused("a n=1,,2", "empty value"));
    EXPECT(is_refused("a n=1 n=2", "twice"));
    EXPECT(is_refused("a n=\xff", "character"));
    EXPECT(is_refused("=", "operator"));
    EXPECT(is_refused("a b=1,2,3,4,5,6,7,8,9,0 c=1,2,3,4,5,6,7,8,9,0 d=1,2,3,4,5,6,7,8,9,0 "
                      "e=1,2,3,4,5,6,7,8,9,0 f=1,2,3,4,5,6,7,8,9,0 g=1,2,3,4,5,6,7,8,9,0 h=1,2",
                      "more than"));
    EXPECT(problem_parse_one("a n=1,2", &p, error) == -1);
    int64_t v[4];
    EXPECT(problem_ints("3:-5:7", v, 4) == 3 && v[0] == 3 && v[1] == -5 && v[2] == 7);
    EXPECT(problem_ints("1:2:3:4:5", v, 4) == -1 && problem_ints("1::2", v, 4) == -1);
    EXPECT(!problem_int("12a", v) && !problem_int("", v) &&
           !problem_int("99999999999999999999", v));
    double d;
    EXPECT(problem_double("nan", &d) && isnan(d) && problem_double("1e-5", &d) && d == 1e-5);
    EXPECT(!problem_double("f16", &d) && !problem_double("", &d));
}

/* ---- element formats ---------------------------------------------------------------------- */

/* Every code is what its value encodes to, NaN apart. */
static int round_trips(int64_t dtype) {
    for (uint64_t code = 0; code < UINT64_C(1) << numeric_bits(dtype); code++) {
        uint64_t again = 0;
        const double value = numeric_load(dtype, &code, 0);
        numeric_store(dtype, &again, 0, value);
        if (isnan(value) ? !isnan(numeric_load(dtype, &again, 0)) : again != code)
            return 0;
    }
    return 1;
}

/* Halfway between neighbours goes to the even code, a little above to the upper one. */
static int rounds_to_even(int64_t dtype, uint64_t codes) {
    for (uint64_t code = 0; code + 1 < codes; code++) {
        const uint64_t above = code + 1;
        const double low = numeric_load(dtype, &code, 0), high = numeric_load(dtype, &above, 0);
        const double middle = (low + high) / 2;
        if (!isfinite(low) || !isfinite(high))
            break;
        if (numeric_round(middle, dtype) != (code % 2 ? high : low) ||
            numeric_round(middle + (high - low) / 64, dtype) != high ||
            numeric_round(-middle, dtype) != -(code % 2 ? high : low))
            return 0;
    }
    return 1;
}

static void test_numeric(void) {
    static const int64_t small[] = {BOLIDE_F16,     BOLIDE_BF16,    BOLIDE_F8_E4M3FN,
                                    BOLIDE_F8_E5M2, BOLIDE_F8_E8M0, BOLIDE_F4_E2M1};
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        EXPECT(round_trips(small[i]));
    EXPECT(rounds_to_even(BOLIDE_F16, 0x7c00) && rounds_to_even(BOLIDE_BF16, 0x7f80));
    EXPECT(rounds_to_even(BOLIDE_F8_E4M3FN, 0x7f) && rounds_to_even(BOLIDE_F8_E5M2, 0x7c));
    EXPECT(rounds_to_even(BOLIDE_F4_E2M1, 8));
    EXPECT(numeric_round(65504, BOLIDE_F16) == 65504 && isinf(numeric_round(65520, BOLIDE_F16)));
    EXPECT(numeric_round(65519.9, BOLIDE_F16) == 65504);
    EXPECT(numeric_round(448, BOLIDE_F8_E4M3FN) == 448);
    EXPECT(isnan(numeric_round(1000, BOLIDE_F8_E4M3FN)));
    EXPECT(numeric_round(6, BOLIDE_F4_E2M1) == 6 && numeric_round(100, BOLIDE_F4_E2M1) == 6);
    EXPECT(numeric_round(0x1p-25, BOLIDE_F16) == 0 && numeric_smallest(BOLIDE_F16) == 0x1p-24);
    EXPECT(numeric_smallest(BOLIDE_F8_E4M3FN) == 0x1p-9 && numeric_ulp(BOLIDE_BF16) == 0x1p-7);
    EXPECT(signbit(numeric_round(-0.0, BOLIDE_BF16)) != 0);
    unsigned char pair[2] = {0, 0};
    numeric_store(BOLIDE_F4_E2M1, pair, 1, 1);
    numeric_store(BOLIDE_F4_E2M1, pair, 2, -0.5);
    EXPECT(pair[0] == 0x20 && pair[1] == 0x09 && numeric_load(BOLIDE_F4_E2M1, pair, 2) == -0.5);
    const int8_t bytes[] = {-1, 5};
    EXPECT(numeric_load_int(BOLIDE_I8, bytes, 0) == -1 &&
           numeric_load_int(BOLIDE_U8, bytes, 0) == 255);
}

/* ---- dimension strings -------------------------------------------------------------------- */

static int64_t lookup(const void *user, const char *name, int32_t length) {
    (void)user;
    return length == 1 && *name == 'k'             ? 300
           : length == 2 && !memcmp(name, "mm", 2) ? 7
                                                   : INT64_MIN;
}

static int64_t value_of(const char *word) {
    return dims_value(word, (int32_t)strlen(word), lookup, NULL);
}

static void count_names(void *user, const char *name, int32_t length) {
    (void)name;
    *(int *)user += length;
}

static void test_dims(void) {
    EXPECT(value_of("k") == 300 && value_of("mm+1") == 8 && value_of("k/2") == 150);
    EXPECT(value_of("ceil(k/128)") == 3 && value_of("pad(mm,4)") == 8);
    EXPECT(value_of("pad(mm,128)*pad(ceil(k/16),4)") == 128 * 20);
    EXPECT(value_of("2*(k-mm)") == 586 && value_of("n") == INT64_MIN && value_of("_") == INT64_MIN);
    EXPECT(value_of("k/0") == INT64_MIN);
    dims_row row;
    dims_parse("n d | n h d", &row);
    EXPECT(row.count == 2 && row.form[0].ndim == 2 && row.form[1].ndim == 3 && !row.selector[0]);
    dims_parse("kv_layout=NHD: p s h d; HND: p h s d", &row);
    EXPECT(row.count == 2 && !strcmp(row.selector, "kv_layout"));
    EXPECT(!strcmp(row.form[1].choice, "HND") && row.form[1].ndim == 4);
    int letters = 0;
    dims_names("n ceil(mm/128) | _ 3 pad(k,4)", count_names, &letters);
    EXPECT(letters == 4);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void test_json(void) {
    char *text = NULL;
    size_t bytes;
    json j = {.file = open_memstream(&text, &bytes)};
    json_open(&j, NULL, '{');
    json_string(&j, "a", "q\"\\\n\x01\xc3\xa9\xff");
    json_double(&j, "b", 0.1, 0);
    json_double(&j, "c", NAN, 6);
    json_open(&j, "d", '[');
    json_int(&j, NULL, -1);
    json_bool(&j, NULL, 1);
    json_close(&j, ']');
    json_null(&j, "e");
    json_close(&j, '}');
    json_end(&j);
    (void)fclose(j.file);
    EXPECT(!strcmp(text, "{\"a\": \"q\\\"\\\\\\n\\u0001\xc3\xa9\\ufffd\", \"b\": 0.1, \"c\": null, "
                         "\"d\": [-1, true], \"e\": null}\n"));
    free(text);
}

/* ---- the driver --------------------------------------------------------------------------- */

static driver_case *run_rmsnorm(const char *keys) {
    static problem p;
    char text[256], error[DRIVER_ERROR];
    (void)snprintf(text, sizeof text, "rmsnorm n=5 d=64 %s", keys);
    if (problem_parse_one(text, &p, error))
        return NULL;
    driver_case *c = driver_case_make(&p, 1, error);
    if (!c)
        return NULL;
    case_poison(c, 0xff);
    EXPECT(case_snapshot(c) == 0);
    EXPECT(bolide_op_call(c->op, BOLIDE_RUN, NULL, c->args[BOLIDE_RUN].bytes, NULL) == BOLIDE_OK);
    return c;
}

/* Whether the judgement is as expected after the bits of one output element were changed. */
static int judges(const char *keys, uint64_t flip, int wanted) {
    static driver_report report;
    driver_case *c = run_rmsnorm(keys);
    if (!c)
        return 0;
    const driver_tensor *out = driver_tensor_of(c, BOLIDE_RUN, "out");
    const int64_t place = case_place(out, 77);
    const uint64_t bits = numeric_load_bits(out->dtype, case_host(c, out), place);
    numeric_store_bits(out->dtype, case_host(c, out), place, bits ^ flip);
    report = (driver_report){.verdict = DRIVER_PASS};
    const int verdict = case_compare(c, &report);
    driver_case_free(c);
    return verdict == wanted && (wanted == 0 || strstr(report.text, "out[1, 13]") != NULL);
}

/* Whether a byte that was changed at this offset of a tensor's memory is noticed. */
static int notices(const char *keys, const char *tensor, int64_t offset, const char *reason) {
    char why[256] = "";
    driver_case *c = run_rmsnorm(keys);
    if (!c)
        return 0;
    EXPECT(case_untouched(c, why, sizeof why) == 0);
    const driver_tensor *t = driver_tensor_of(c, BOLIDE_RUN, tensor);
    t->host[offset < 0 ? t->bytes - 1 - offset : offset] ^= 1;
    const int found = case_untouched(c, why, sizeof why) == -1 && strstr(why, reason) != NULL;
    driver_case_free(c);
    return found;
}

/* Problems of an operator that give one tensor a dtype of another kind or another shape than its
 * row has are made or refused with a sentence: whoever fills the tensors counts on both. */
static int64_t survives_others(const bolide_op *op) {
    static const char *const others[] = {".dtype=f32", ".dtype=i32",    ".dtype=u8",
                                         ".shape=3",   ".shape=scalar", ".shape=1:1:1:1:1:1",
                                         "=none"};
    static problem p;
    int64_t problems = 0;
    for (int phase = 0; phase < 2; phase++) {
        const bolide_param *row;
        for (int64_t i = 0; (row = bolide_op_param(op, (bolide_phase)phase, i)); i++) {
            for (int k = 0; case_is_tensor(row->kind) && k < 7; k++) {
                char text[256], error[DRIVER_ERROR] = "";
                (void)snprintf(text, sizeof text, "%s %s%s", bolide_op_name(op), row->name,
                               others[k]);
                EXPECT(problem_parse_one(text, &p, error) == 0);
                driver_case *c = driver_case_make_dry(&p, error);
                EXPECT(c || error[0]);
                driver_case_free(c);
                problems++;
            }
        }
    }
    return problems;
}

static int refuses(const char *text, const char *reason) {
    static problem p;
    char error[DRIVER_ERROR] = "";
    driver_case *c = problem_parse_one(text, &p, error) ? NULL : driver_case_make(&p, 1, error);
    driver_case_free(c);
    return !c && strstr(error, reason) != NULL;
}

static void test_driver(void) {
    EXPECT(judges("input=f32", 0, 0) && judges("input=f16", 0, 0) && judges("input=bf16", 0, 0));
    EXPECT(judges("input=f32", 1 << 8, -1) && judges("input=f16", 1 << 3, -1));
    EXPECT(judges("input=bf16", 1 << 2, -1) && judges("input=bf16", 1 << 15, -1));
    EXPECT(judges("input=f16", 0x7c00, -1) && judges("input=f16 out=input", 1 << 3, -1));
    EXPECT(notices("input=f16", "out", -1, "behind the tensor"));
    EXPECT(notices("input=f16", "weight", 3, "in an input"));
    EXPECT(notices("input=f16 out.pad=4", "out", 64 * 2 + 1, "in a gap"));
    EXPECT(refuses("rmsnorm q=3", "unknown key q"));
    EXPECT(refuses("rmsnorm input.stride0=1099511627777", ""));
    EXPECT(refuses("rmsnorm n=99999999999 d=99999", ""));
    EXPECT(refuses("no_such_operator", "no operator"));
    EXPECT(refuses("rmsnorm x=i8", "x: expected a dtype that input takes; got i8"));
    EXPECT(refuses("mm_bf16 x=f32", "a dtype that a takes"));
    EXPECT(refuses("batch_decode x=u8", "a dtype that q_data_type takes"));
    EXPECT(refuses("get_seq_lens x=f16", "a floating input"));
    EXPECT(refuses("batch_decode draft_mask.dtype=u7", "draft_mask.dtype: expected a dtype"));
    int64_t problems = 0;
    for (int64_t i = 0; i < bolide_op_count(); i++)
        problems += survives_others(bolide_op_at(i));
    EXPECT(problems > 2000);
}

int main(void) {
    test_problem();
    test_numeric();
    test_dims();
    test_json();
    test_driver();
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
