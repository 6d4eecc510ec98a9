// SPDX-License-Identifier: Apache-2.0
//
// What the sampling operators must do over many draws: the frequencies of the filtered distribution
// (chi-square with fixed seeds), a seed for each row, no influence of neighbours or threads, and
// the same bits on every instruction set with fused operations.

#include <bolide/bolide.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"

/* An emulated processor would take an hour for as many draws as the machine's own. */
#if defined(BOLIDE_EMULATED)
enum { DRAWS = 4000 };
#else
enum { DRAWS = 40000 };
#endif

enum { V = 40, WIDE = 50000, ROWS = 8 };

static int passed, failed, skipped;

static void check(int ok, const char *what) {
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED: %s (last error: %s)\n", what, bolide_last_error()->message);
}

static bolide_tensor tensor(void *data, int64_t dtype, int32_t ndim, int64_t *shape) {
    return (bolide_tensor){.data = data,
                           .device = {BOLIDE_CPU, 0},
                           .ndim = ndim,
                           .dtype = bolide_dtype_of(dtype),
                           .shape = shape};
}

static uint64_t state = 88172645463325252u;

static double uniform(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

static void random_probs(float *p, int64_t n, double peak) {
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        const double z = sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
        p[i] = (float)exp(peak * z);
        total += (double)p[i];
    }
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)((double)p[i] / total);
}

/* Whether counts follow the weights: chi-square within five deviations of its mean, and nothing
 * where the weight is 0. */
static int follows(const int64_t *count, const double *weight, int64_t n) {
    double total = 0, drawn = 0, chi = 0;
    int freedom = -1;
    for (int64_t i = 0; i < n; i++) {
        total += weight[i];
        drawn += (double)count[i];
    }
    for (int64_t i = 0; i < n; i++) {
        const double want = drawn * weight[i] / total;
        if (weight[i] == 0 && count[i] != 0)
            return 0;
        if (want == 0)
            continue;
        chi += ((double)count[i] - want) * ((double)count[i] - want) / want;
        freedom++;
    }
    return chi < freedom + 5 * sqrt(2.0 * freedom) + 5;
}

/* ---- one row, many draws ------------------------------------------------------------------ */

typedef struct filter {
    const char *op;
    double top_p, min_p;
    int64_t top_k;
    const char *order;
} filter;

/* The filter on sorted values, straight from its definition. */
static void weights_of(const float *p, const filter *f, double *weight) {
    double sum_above[V], kept = 0, most = 0;
    int64_t rank[V];
    for (int i = 0; i < V; i++) {
        sum_above[i] = 0;
        rank[i] = 0;
        most = fmax(most, (double)p[i]);
        for (int j = 0; j < V; j++) {
            rank[i] += p[j] > p[i];
            sum_above[i] += p[j] > p[i] ? (double)p[j] : 0;
        }
    }
    const int64_t k = f->top_k > 0 ? f->top_k : V;
    for (int i = 0; i < V; i++)
        kept += rank[i] < k ? (double)p[i] : 0;
    const double scale = f->order && !strcmp(f->order, "joint") ? 1 : kept;
    const double top_p = f->top_p > 0 ? f->top_p : 2;
    for (int i = 0; i < V; i++)
        weight[i] = rank[i] < k && sum_above[i] < top_p * scale && (double)p[i] >= f->min_p * most
                        ? (double)p[i]
                        : 0;
}

/* Sets the fields that all sampling structs have, by name through the table of rows. */
static void *field(const char *op, void *args, const char *name, int second) {
    const bolide_op *o = bolide_op_find(op);
    const bolide_param *r;
    for (int64_t i = 0; (r = bolide_op_param(o, BOLIDE_RUN, i)) != NULL; i++)
        if (!strcmp(r->name, name))
            return (char *)args + (second ? r->offset2 : r->offset);
    return NULL;
}

static void put_tensor(const char *op, void *args, const char *name, const bolide_tensor *t) {
    void *at = field(op, args, name, 0);
    if (at)
        memcpy(at, &t, sizeof t);
}

static void put_number(const char *op, void *args, const char *name, const void *value,
                       int second) {
    void *at = field(op, args, name, second);
    if (at)
        memcpy(at, value, 8);
}

static int draw_many(const filter *f, const float *p, int64_t seed, int64_t *count) {
    static float row[V];
    static int32_t map[DRAWS], ids[DRAWS];
    const int logits = strstr(f->op, "logits") != NULL;
    for (int i = 0; i < V; i++)
        row[i] = logits ? (float)log((double)p[i]) : p[i];
    int64_t one[] = {1, V}, many[] = {DRAWS};
    const bolide_tensor in = tensor(row, BOLIDE_F32, 2, one);
    const bolide_tensor indices = tensor(map, BOLIDE_I32, 1, many);
    const bolide_tensor samples = tensor(ids, BOLIDE_I32, 1, many);
    _Alignas(8) char args[512];
    const bolide_op *op = bolide_op_find(f->op);
    if (bolide_args_init(f->op, args, bolide_op_args_size(op, BOLIDE_RUN)) != BOLIDE_OK)
        return 0;
    const int64_t joint = f->order && !strcmp(f->order, "joint");
    put_tensor(f->op, args, logits ? "logits" : "probs", &in);
    put_tensor(f->op, args, "indices", &indices);
    put_tensor(f->op, args, "samples", &samples);
    put_number(f->op, args, "seed", &seed, 1);
    put_number(f->op, args, "top_p", &f->top_p, 1);
    put_number(f->op, args, "min_p", &f->min_p, 1);
    put_number(f->op, args, "top_k", &f->top_k, 1);
    put_number(f->op, args, "filter_apply_order", &joint, 0);
    if (bolide_op_call(op, BOLIDE_RUN, NULL, args, NULL) != BOLIDE_OK)
        return 0;
    for (int i = 0; i < DRAWS; i++)
        count[ids[i]]++;
    return 1;
}

static void test_frequencies(void) {
    static const filter filters[] = {
        {.op = "sampling_from_probs"},
        {.op = "sampling_from_logits"},
        {.op = "top_p_sampling_from_probs", .top_p = 0.8},
        {.op = "top_k_sampling_from_probs", .top_k = 7},
        {.op = "min_p_sampling_from_probs", .min_p = 0.2},
        {.op = "top_k_top_p_sampling_from_probs", .top_k = 20, .top_p = 0.7},
        {.op = "top_k_top_p_sampling_from_probs", .top_k = 20, .top_p = 0.7, .order = "joint"},
        {.op = "top_k_top_p_sampling_from_logits", .top_k = 20, .top_p = 0.7},
        {.op = "top_k_top_p_sampling_from_logits", .top_k = 20, .top_p = 0.7, .order = "joint"},
    };
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        for (int64_t seed = 1; seed <= 3; seed++) {
            float p[V];
            double weight[V];
            int64_t count[V] = {0};
            random_probs(p, V, 1.3);
            weights_of(p, &filters[i], weight);
            check(draw_many(&filters[i], p, seed, count) && follows(count, weight, V),
                  filters[i].op);
        }
    }
}

/* ---- speculative sampling ----------------------------------------------------------------- */

enum { DRAFTS = 2, SMALL = 8 };

static float draft_p[DRAWS][DRAFTS][SMALL], target_p[DRAWS][DRAFTS + 1][SMALL];
static int32_t draft_ids[DRAWS][DRAFTS], out_ids[DRAWS][DRAFTS + 1];

static int32_t pick(const float *p) {
    double u = uniform(), sum = 0;
    for (int32_t i = 0; i < SMALL; i++) {
        sum += (double)p[i];
        if (u < sum)
            return i;
    }
    return SMALL - 1;
}

static int speculate(int64_t seed) {
    int64_t ds[] = {DRAWS, DRAFTS, SMALL}, ts[] = {DRAWS, DRAFTS + 1, SMALL};
    int64_t is[] = {DRAWS, DRAFTS}, os[] = {DRAWS, DRAFTS + 1};
    const bolide_tensor d = tensor(draft_p, BOLIDE_F32, 3, ds);
    const bolide_tensor t = tensor(target_p, BOLIDE_F32, 3, ts);
    const bolide_tensor i = tensor(draft_ids, BOLIDE_I32, 2, is);
    const bolide_tensor o = tensor(out_ids, BOLIDE_I32, 2, os);
    bolide_chain_speculative_sampling_args a;
    if (bolide_args_init("chain_speculative_sampling", &a, sizeof a) != BOLIDE_OK)
        return 0;
    a.draft_probs = &d;
    a.draft_token_ids = &i;
    a.target_probs = &t;
    a.output_token_ids = &o;
    a.seed = seed;
    return bolide_chain_speculative_sampling(NULL, &a, NULL) == BOLIDE_OK;
}

/* Whatever the draft is, each token that comes out follows the target at its place. */
static void test_speculative(void) {
    float q[DRAFTS + 1][SMALL], p[DRAFTS][SMALL];
    int64_t count[DRAFTS + 1][SMALL] = {{0}};
    double weight[SMALL];
    for (int i = 0; i <= DRAFTS; i++)
        random_probs(q[i], SMALL, 1);
    for (int i = 0; i < DRAFTS; i++)
        random_probs(p[i], SMALL, 1);
    for (int r = 0; r < DRAWS; r++) {
        memcpy(draft_p[r], p, sizeof p);
        memcpy(target_p[r], q, sizeof q);
        for (int i = 0; i < DRAFTS; i++)
            draft_ids[r][i] = pick(p[i]);
    }
    check(speculate(17), "speculative sampling runs");
    for (int r = 0; r < DRAWS; r++)
        for (int i = 0; i <= DRAFTS && out_ids[r][i] >= 0; i++)
            count[i][out_ids[r][i]]++;
    for (int i = 0; i <= DRAFTS; i++) {
        for (int k = 0; k < SMALL; k++)
            weight[k] = (double)q[i][k];
        check(follows(count[i], weight, SMALL), "speculative sampling follows the target");
    }
}

/* ---- seeds, neighbours, threads ----------------------------------------------------------- */

static float wide[ROWS * WIDE];

typedef struct run {
    const bolide_context *ctx;
    int64_t rows, seed, offset;
    int64_t *seeds; /* NULL: seed */
    int64_t seeds_count;
} run;

static int draw_rows(const run *r, int32_t *ids) {
    int64_t shape[] = {r->rows, WIDE}, n[] = {r->rows}, count[] = {r->seeds_count};
    const bolide_tensor in = tensor(wide, BOLIDE_F32, 2, shape);
    const bolide_tensor out = tensor(ids, BOLIDE_I32, 1, n);
    const bolide_tensor seeds = tensor(r->seeds, BOLIDE_I64, 1, count);
    bolide_top_p_sampling_from_probs_args a;
    if (bolide_args_init("top_p_sampling_from_probs", &a, sizeof a) != BOLIDE_OK)
        return 0;
    a.probs = &in;
    a.top_p = 0.95;
    a.samples = &out;
    a.offset = r->offset;
    if (r->seeds)
        a.seed_tensor = &seeds;
    else
        a.seed = r->seed;
    return bolide_top_p_sampling_from_probs(r->ctx, &a, NULL) == BOLIDE_OK;
}

static void test_seeds(void) {
    int64_t seeds[] = {1111, 2222, 3333, 4444}, one[] = {2222};
    int32_t each[ROWS], same[ROWS], number[ROWS], other[ROWS];
    random_probs(wide, WIDE, 1);
    for (int r = 1; r < ROWS; r++)
        memcpy(wide + r * WIDE, wide, sizeof(float) * WIDE);
    check(draw_rows(&(run){.rows = 4, .seeds = seeds, .seeds_count = 4}, each), "four seeds");
    check(draw_rows(&(run){.rows = 4, .seeds = one, .seeds_count = 1}, same), "one seed for all");
    check(draw_rows(&(run){.rows = 4, .seed = 2222}, number), "a number as the seed");
    check(!memcmp(same, number, 4 * sizeof *same), "a tensor of one and a number agree");
    check(each[1] == number[1] && each[0] != number[0] && each[2] != number[2] &&
              each[3] != number[3],
          "each row uses its own seed");
    check(number[0] != number[1] && number[1] != number[2], "rows draw different numbers");
    check(draw_rows(&(run){.rows = 4, .seed = 2222, .offset = 1}, other), "another offset");
    check(memcmp(other, number, sizeof *other) != 0 && other[1] != number[1],
          "another offset draws anew");
}

static void test_neighbours(void) {
    int32_t all[ROWS], few[ROWS], single[ROWS];
    for (int r = 0; r < ROWS; r++)
        random_probs(wide + r * WIDE, WIDE, 0.3 * r);
    bolide_context *ctx;
    check(bolide_context_create(BOLIDE_CPU, 0, &ctx) == BOLIDE_OK, "a context");
    check(bolide_context_set(ctx, BOLIDE_THREADS, 1) == BOLIDE_OK, "one thread");
    check(draw_rows(&(run){.rows = ROWS, .seed = 5}, all) &&
              draw_rows(&(run){.rows = 3, .seed = 5}, few) &&
              draw_rows(&(run){.ctx = ctx, .rows = ROWS, .seed = 5}, single),
          "draws");
    check(!memcmp(all, few, 3 * sizeof *all), "a row does not depend on those behind it");
    check(!memcmp(all, single, sizeof all), "one thread and many agree");
    bolide_context_destroy(ctx);
}

/* ---- instruction sets --------------------------------------------------------------------- */

typedef struct bits {
    float softmax[ROWS * WIDE], renorm[ROWS * WIDE];
    int32_t ids[ROWS];
} bits;

static int all_outputs(bits *b) {
    int64_t shape[] = {ROWS, WIDE};
    const bolide_tensor in = tensor(wide, BOLIDE_F32, 2, shape);
    const bolide_tensor soft = tensor(b->softmax, BOLIDE_F32, 2, shape);
    const bolide_tensor renorm = tensor(b->renorm, BOLIDE_F32, 2, shape);
    bolide_softmax_args s;
    bolide_top_p_renorm_probs_args p;
    if (bolide_args_init("softmax", &s, sizeof s) != BOLIDE_OK ||
        bolide_args_init("top_p_renorm_probs", &p, sizeof p) != BOLIDE_OK)
        return 0;
    s.logits = &in;
    s.out = &soft;
    s.temperature = 0.001;
    p.probs = &in;
    p.out = &renorm;
    p.top_p = 0.7;
    return bolide_softmax(NULL, &s, NULL) == BOLIDE_OK &&
           bolide_top_p_renorm_probs(NULL, &p, NULL) == BOLIDE_OK &&
           draw_rows(&(run){.rows = ROWS, .seed = 99}, b->ids);
}

static void test_instruction_sets(void) {
    static bits first, next;
    static const bolide__isa isas[] = {BOLIDE__EMU512, BOLIDE__AVX512};
    if (!bolide__cpu_force_isa(BOLIDE__AVX2)) {
        printf("skipped: same bits on instruction sets: this machine has no AVX2\n");
        skipped++;
        return;
    }
    check(all_outputs(&first), "outputs with AVX2");
    for (int i = 0; i < 2; i++) {
        if (!bolide__cpu_force_isa(isas[i])) {
            printf("skipped: same bits with %s: this machine does not have it\n",
                   bolide__isa_name(isas[i]));
            skipped++;
            continue;
        }
        check(all_outputs(&next) && !memcmp(&first, &next, sizeof first),
              "AVX2 and wider sets give the same bits");
    }
}

int main(void) {
    test_frequencies();
    test_speculative();
    test_seeds();
    test_neighbours();
    test_instruction_sets();
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
