// SPDX-License-Identifier: Apache-2.0
//
// bolide-llm: answers a prompt with a language model from a GGUF file, on the CPU or on a GPU.

#include <bolide/bolide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "chat.h"
#include "engine.h"

typedef struct {
    const char *model, *prompt, *prompt_file, *system;
    int64_t parallel, max_tokens, threads, page_size;
    int64_t gpu; // -1: the CPU
    bool exact, kv_f32, raw;
    int64_t compute; // llm_compute; -1: not given
    llm_sampler sampler;
} options;

static const char usage[] =
    "usage: bolide-llm --model FILE.gguf [--prompt TEXT | --prompt-file FILE] [--system TEXT]\n"
    "         [--parallel N] [--max-tokens N] [--temperature T] [--top-k K] [--top-p P]\n"
    "         [--min-p P] [--seed N] [--threads N] [--page-size N] [--kv-dtype f16|f32]\n"
    "         [--device cpu|cuda|cuda:N] [--compute int16|int8|f32] [--exact] [--raw]\n"
    "  --prompt-file a file of one prompt, or of several with a line --- between them\n"
    "  --parallel N  runs N requests together; fewer prompts are taken again, with the next seeds\n"
    "  --device cuda computes on a GPU, the first one or the one with that number\n"
    "  --compute     what weights in blocks are multiplied with: activations rounded to 16 bits,\n"
    "                which is the default, or to 8 bits, as others do, or f32\n"
    "  --exact       f32 products and an f32 cache instead of int16 products and f16\n"
    "  --raw         continues the text as it is, without the chat template\n";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- arguments --------------------------------------------------------------------------------

static bool number(const char *name, const char *text, double low, double high, double *out,
                   llm_error *error) {
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= low) || !(*out <= high))
        return llm_fail(error, "%s: expected a number from %g to %g; got %s", name, low, high,
                        text);
    return true;
}

static bool integer(const char *name, const char *text, double low, double high, int64_t *out,
                    llm_error *error) {
    double x;
    if (!number(name, text, low, high, &x, error))
        return false;
    *out = (int64_t)x;
    return (double)*out == x || llm_fail(error, "%s: expected a whole number; got %s", name, text);
}

static bool take_device(const char *value, int64_t *gpu, llm_error *error) {
    *gpu = strcmp(value, "cpu") ? 0 : -1;
    if (!strncmp(value, "cuda:", 5))
        return integer("--device", value + 5, 0, 1023, gpu, error);
    return *gpu < 0 || !strcmp(value, "cuda") ||
           llm_fail(error, "--device: expected cpu, cuda or cuda:N; got %s", value);
}

static bool take_compute(const char *value, int64_t *compute, llm_error *error) {
    static const char *const names[] = {
        [LLM_INT16] = "int16", [LLM_INT8] = "int8", [LLM_F32] = "f32"};
    for (*compute = LLM_F32; *compute >= 0; --*compute)
        if (!strcmp(value, names[*compute]))
            return true;
    return llm_fail(error, "--compute: expected int16, int8 or f32; got %s", value);
}

static bool take_option(options *o, const char *name, const char *value, llm_error *error) {
    int64_t seed;
    if (!strcmp(name, "--model"))
        o->model = value;
    else if (!strcmp(name, "--prompt"))
        o->prompt = value;
    else if (!strcmp(name, "--prompt-file"))
        o->prompt_file = value;
    else if (!strcmp(name, "--system"))
        o->system = value;
    else if (!strcmp(name, "--parallel"))
        return integer(name, value, 1, 1024, &o->parallel, error);
    else if (!strcmp(name, "--max-tokens"))
        return integer(name, value, 1, 1 << 20, &o->max_tokens, error);
    else if (!strcmp(name, "--compute"))
        return take_compute(value, &o->compute, error);
    else if (!strcmp(name, "--device"))
        return take_device(value, &o->gpu, error);
    else if (!strcmp(name, "--threads"))
        return integer(name, value, 0, 4096, &o->threads, error);
    else if (!strcmp(name, "--page-size"))
        return integer(name, value, 1, 4096, &o->page_size, error);
    else if (!strcmp(name, "--temperature"))
        return number(name, value, 0, 100, &o->sampler.temperature, error);
    else if (!strcmp(name, "--top-k"))
        return integer(name, value, 0, 1 << 30, &o->sampler.top_k, error);
    else if (!strcmp(name, "--top-p"))
        return number(name, value, 0, 1, &o->sampler.top_p, error);
    else if (!strcmp(name, "--min-p"))
        return number(name, value, 0, 1, &o->sampler.min_p, error);
    else if (!strcmp(name, "--seed") && integer(name, value, 0, 9e15, &seed, error))
        o->sampler.seed = (uint64_t)seed;
    else if (!strcmp(name, "--kv-dtype") && (!strcmp(value, "f16") || !strcmp(value, "f32")))
        o->kv_f32 = !strcmp(value, "f32");
    else if (!strcmp(name, "--kv-dtype"))
        return llm_fail(error, "--kv-dtype: expected f16 or f32; got %s", value);
    else
        return !strcmp(name, "--seed") ? false : llm_fail(error, "%s: no such option", name);
    return true;
}

static bool take_options(options *o, int argc, char **argv, llm_error *error) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--exact")) {
            o->exact = true;
        } else if (!strcmp(argv[i], "--raw")) {
            o->raw = true;
        } else if (i + 1 == argc) {
            return llm_fail(error, "%s: expected a value behind it", argv[i]);
        } else {
            if (!take_option(o, argv[i], argv[i + 1], error))
                return false;
            i++;
        }
    }
    if (o->exact && o->compute >= 0 && o->compute != LLM_F32)
        return llm_fail(error, "--compute: expected f32 with --exact; got int16 or int8");
    return o->model || llm_fail(error, "--model: expected a GGUF file; got none");
}

static bool read_prompt(const options *o, text_list *out, llm_error *error) {
    if (!o->prompt_file)
        return text_list_add(out, o->prompt, strlen(o->prompt), error);
    FILE *f = fopen(o->prompt_file, "rb");
    if (!f)
        return llm_fail(error, "%s: cannot be opened", o->prompt_file);
    char buffer[4096];
    bool ok = true;
    for (size_t n; ok && (n = fread(buffer, 1, sizeof buffer, f)) > 0;)
        ok = text_list_add(out, buffer, n, error);
    ok = ok && (!ferror(f) || llm_fail(error, "%s: cannot be read", o->prompt_file));
    fclose(f);
    return ok;
}

// ---- prompts ----------------------------------------------------------------------------------

typedef struct {
    token_list *ids; // of each prompt
    size_t count, capacity;
    size_t longest;
} prompt_list;

static void free_prompts(prompt_list *p) {
    for (size_t i = 0; i < p->count; i++)
        token_list_free(&p->ids[i]);
    free(p->ids);
}

static bool encode(const options *o, const tokenizer *t, const char *text, size_t size,
                   token_list *ids, llm_error *error) {
    size_t replaced = 0;
    const chat_message messages[] = {
        {"system", o->system, o->system ? strlen(o->system) : 0},
        {"user", text, size},
    };
    const int first = o->system ? 0 : 1;
    const bool ok =
        o->raw ? tokenizer_encode(t, text, size, ids, &replaced, error)
               : chat_encode(t, messages + first, (size_t)(2 - first), true, ids, &replaced, error);
    if (replaced > 0)
        fprintf(stderr, "bolide-llm: %zu ill-formed pieces of UTF-8 were read as U+FFFD\n",
                replaced);
    return ok;
}

static bool add_prompt(const options *o, const llm_model *model, const tokenizer *t,
                       const char *text, size_t size, prompt_list *p, llm_error *error) {
    void *items = p->ids;
    const bool room = llm_grow(&items, p->count, 1, &p->capacity, sizeof *p->ids, error);
    p->ids = items;
    if (!room)
        return false;
    token_list *ids = &p->ids[p->count++];
    *ids = (token_list){0};
    if (!encode(o, t, text, size, ids, error))
        return false;
    if (ids->count > p->longest)
        p->longest = ids->count;
    return model->context == 0 || ids->count < (size_t)model->context ||
           llm_fail(error, "the prompt has %zu tokens and the model reads %lld at most", ids->count,
                    (long long)model->context);
}

// A line of three dashes in a prompt file ends a prompt.
static bool encode_prompts(const options *o, const llm_model *model, const tokenizer *t,
                           const text_list *text, prompt_list *p, llm_error *error) {
    static const char line[] = "\n---\n";
    const size_t width = sizeof line - 1;
    size_t begin = 0;
    for (size_t at = 0; o->prompt_file && at + width <= text->count; at++) {
        if (memcmp(text->bytes + at, line, width) != 0)
            continue;
        if (!add_prompt(o, model, t, text->bytes + begin, at - begin, p, error))
            return false;
        begin = at + width;
        at = begin - 1;
    }
    return add_prompt(o, model, t, text->count ? text->bytes + begin : "", text->count - begin, p,
                      error);
}

// ---- generation -------------------------------------------------------------------------------

typedef struct {
    const tokenizer *tokenizer;
    text_stream *stream; // of each request
    text_list *answer;   // of each request
    bool live;           // one request: print as it comes
    const llm_engine *engine;
    int64_t requests;
    int64_t base; // the number of the first
    int64_t drawn;
    int64_t read; // tokens that the model had read when the first was drawn
    double first; // when that was
    llm_error error;
} session;

static bool on_token(void *arg, int64_t request, int32_t token) {
    session *s = arg;
    if (s->drawn++ == 0) {
        s->first = now();
        s->read = llm_engine_rows(s->engine);
    }
    if (chat_ends(s->tokenizer, token))
        return false;
    text_list *answer = &s->answer[request - s->base];
    const size_t before = answer->count;
    if (!text_stream_put(&s->stream[request - s->base], tokenizer_piece(s->tokenizer, token),
                         answer, &s->error))
        return false;
    if (s->live) {
        fwrite(answer->bytes + before, 1, answer->count - before, stdout);
        fflush(stdout);
    }
    return true;
}

// The system message with what the template puts around it: what all requests begin with.
static bool share_system(llm_engine *e, const tokenizer *t, const options *o, llm_error *error) {
    const char *text = o->system ? o->system : chat_default_system;
    const chat_message message = {"system", text, strlen(text)};
    token_list ids = {0};
    const bool ok = o->raw || (chat_encode(t, &message, 1, false, &ids, NULL, error) &&
                               llm_engine_share(e, ids.ids, ids.count, error));
    token_list_free(&ids);
    return ok;
}

static void report(const session *s, double begin, double end) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    const double reading = s->first - begin, writing = end - s->first;
    const int64_t later = s->drawn - s->requests; // without the first of each request
    fprintf(stderr,
            "prompt %lld tokens, %.1f tokens/s; generated %lld tokens, %.1f tokens/s; peak memory "
            "%.0f MB\n",
            (long long)s->read, (double)s->read / reading, (long long)s->drawn,
            writing > 0 && later > 0 ? (double)later / writing : 0.0, (double)r.ru_maxrss / 1024);
}

// Requests join as others leave, --parallel at a time.
static bool generate(const options *o, llm_engine *e, session *s, const prompt_list *prompts,
                     int64_t max_new, llm_error *error) {
    int64_t joined = 0;
    for (bool busy = true; busy || joined < s->requests;) {
        while (joined < s->requests && llm_engine_active(e) < o->parallel) {
            const token_list *ids = &prompts->ids[(size_t)joined % prompts->count];
            llm_sampler sampler = o->sampler;
            sampler.seed += (uint64_t)joined;
            const int64_t request =
                llm_engine_add(e, ids->ids, ids->count, max_new, &sampler, error);
            if (request < 0)
                return false;
            s->base = joined++ == 0 ? request : s->base;
        }
        if (!llm_engine_step(e, on_token, s, &busy, error))
            return false;
    }
    return true;
}

// Ends the answers, where half a character may be held back, and prints what is not printed yet.
static bool print_answers(session *s) {
    for (int64_t i = 0; i < s->requests; i++) {
        text_list *answer = &s->answer[i];
        const size_t printed = s->live ? answer->count : 0;
        if (!text_stream_end(&s->stream[i], answer, &s->error))
            return false;
        if (!s->live)
            printf("[%lld] ", (long long)i);
        if (answer->count > printed)
            fwrite(answer->bytes + printed, 1, answer->count - printed, stdout);
        putchar('\n');
    }
    return fflush(stdout) == 0 || llm_fail(&s->error, "standard output cannot be written");
}

static bool run_engine(const options *o, const llm_model *model, const tokenizer *t,
                       const prompt_list *prompts, session *s, llm_error *error) {
    int64_t max_new = o->max_tokens;
    if (model->context > 0 && model->context - (int64_t)prompts->longest < max_new)
        max_new = model->context - (int64_t)prompts->longest;
    const llm_settings settings = {
        .page_size = o->page_size,
        .max_tokens = ((int64_t)prompts->longest + max_new) * (o->parallel + 1),
        .max_requests = o->parallel,
        .threads = o->threads,
        .gpu = o->gpu >= 0,
        .gpu_index = o->gpu,
        .compute = o->compute < 0 ? LLM_INT16 : (llm_compute)o->compute,
        .exact = o->exact,
        .kv_f32 = o->kv_f32,
    };
    llm_engine *e = llm_engine_create(model, &settings, error);
    s->engine = e;
    const double begin = now();
    const bool ok = e && share_system(e, t, o, error) && generate(o, e, s, prompts, max_new, error);
    const double end = now();
    if (ok) {
        print_answers(s);
        report(s, begin, end);
    }
    llm_engine_destroy(e);
    return ok;
}

static bool answer(const options *o, const llm_model *model, const tokenizer *t,
                   const text_list *text, llm_error *error) {
    prompt_list prompts = {0};
    session s = {.tokenizer = t};
    bool ok = encode_prompts(o, model, t, text, &prompts, error);
    s.requests = (int64_t)prompts.count > o->parallel ? (int64_t)prompts.count : o->parallel;
    s.live = s.requests == 1;
    const size_t slots = (size_t)s.requests;
    s.stream = calloc(slots, sizeof *s.stream);
    s.answer = calloc(slots, sizeof *s.answer);
    ok = ok && ((s.stream && s.answer) || llm_fail(error, "no memory for %zu answers", slots));
    ok = ok && run_engine(o, model, t, &prompts, &s, error);
    for (size_t i = 0; s.answer && i < slots; i++)
        text_list_free(&s.answer[i]);
    free(s.answer);
    free(s.stream);
    free_prompts(&prompts);
    return ok;
}

// Brings the file into memory, so that a slow disk is seen here and not as a slow first token.
static void load(const gguf_file *file, const char *path) {
    enum { PAGE = 4096 };
    const bool show = isatty(STDERR_FILENO);
    const size_t part = file->size / 100 + 1;
    volatile unsigned char seen = 0;
    for (size_t at = 0; at < file->size; at += PAGE) {
        if (show && at / part != (at - PAGE) / part)
            fprintf(stderr, "\rbolide-llm: loading %s, %zu %%", path, at / part);
        seen = file->bytes[at];
    }
    (void)seen;
    fprintf(stderr, "%sbolide-llm: loaded %s, %zu MB\n", show ? "\r" : "", path,
            file->size / 1000000);
}

static bool run(const options *o, llm_error *error) {
    llm_model model;
    text_list prompt = {0};
    if (!llm_model_open(&model, o->model, error))
        return false;
    load(&model.file, o->model);
    tokenizer *t = tokenizer_create(&model.file, error);
    const bool ok = t && read_prompt(o, &prompt, error) && answer(o, &model, t, &prompt, error);
    text_list_free(&prompt);
    tokenizer_destroy(t);
    llm_model_close(&model);
    return ok;
}

int main(int argc, char **argv) {
    options o = {.prompt = "What is a bolide?",
                 .parallel = 1,
                 .max_tokens = 256,
                 .page_size = 16,
                 .gpu = -1,
                 .compute = -1,
                 .sampler = {.top_p = 1}};
    llm_error error = {""};
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        fputs(usage, stdout);
        return 0;
    }
    if (!take_options(&o, argc, argv, &error) || !run(&o, &error)) {
        fprintf(stderr, "bolide-llm: %s\n", error.text);
        return 1;
    }
    return 0;
}
