// SPDX-License-Identifier: Apache-2.0
//
// Builds one spec. Its description, a few readable lines, is what is hashed: sources, options,
// definitions and target, and nothing of paths or times, so that a copied cache hits.

#include "cuda/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/env.h"
#include "cuda/nvrtc.h"
#include "cuda/source.h"

enum { DESCRIPTION_BYTES = 4096, OPTION_BYTES = 96, MAX_OPTIONS = BOLIDE__SPEC_KEYS + 8 };

/* Counts up when code compiled by an older library must not be used any more. */
enum { CACHE_ABI = 1 };

/* Every function without an execution space is a device function, so that an inline function in a
 * family's internal header needs no decoration. The assembler's -v lines are read on success too:
 * they tell registers, spills and wgmma that was serialised. */
static const char *const fixed_options[] = {"--std=c++17", "--device-as-default-execution-space",
                                            "--ptxas-options=-v"};
enum { FIXED_OPTIONS = sizeof fixed_options / sizeof fixed_options[0] };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The wanted target, or what comes nearest among those that the compiler knows: a lower minor of
 * the same major as a cubin, else the highest lower architecture as PTX. */
static int usable_target(const bolide__nvrtc *nvrtc, bolide__target want, bolide__target *out) {
    int below = 0, minor = 0;
    for (int i = 0; i < nvrtc->arch_count; i++) {
        const int arch = nvrtc->archs[i];
        if (arch == want.arch) {
            *out = want;
            return 1;
        }
        if (arch < want.arch && arch > below)
            below = arch;
        if (arch < want.arch && arch / 10 == want.arch / 10 && arch > minor)
            minor = arch;
    }
    if (!below)
        return 0;
    *out = minor && !want.ptx ? (bolide__target){.arch = minor}
                              : (bolide__target){.arch = below, .ptx = 1};
    return 1;
}

/* The description, without the compiler's version. */
static void describe(const bolide__spec *s, const bolide__source_set *set, const char *target,
                     char text[DESCRIPTION_BYTES]) {
    char hash[33];
    bolide__hash_text(set->hash, hash);
    int n = snprintf(text, DESCRIPTION_BYTES,
                     "bolide kernel, format %d\nsource %s\nfunction %s\ntarget %s\nsources %s\n",
                     CACHE_ABI, set->name, s->function, target, hash);
    if (s->user_source) {
        bolide__hash_text(bolide__hash_of(s->user_source, strlen(s->user_source)), hash);
        n += snprintf(text + n, (size_t)(DESCRIPTION_BYTES - n), "variant %s\n", hash);
    }
    for (int i = 0; i < FIXED_OPTIONS; i++)
        n += snprintf(text + n, (size_t)(DESCRIPTION_BYTES - n), "option %s\n", fixed_options[i]);
    for (int32_t i = 0; i < s->count && n < DESCRIPTION_BYTES; i++)
        n += snprintf(text + n, (size_t)(DESCRIPTION_BYTES - n), "%s = %lld\n", s->key[i],
                      (long long)s->value[i]);
}

/* The number before a word in a line, as in "2000 bytes stack frame"; 0 if the word is not there.
 */
static int32_t number_before(const char *line, const char *end, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = line; at + n <= end; at++) {
        if (strncmp(at, word, n) != 0)
            continue;
        while (at > line && at[-1] == ' ')
            at--;
        while (at > line && at[-1] >= '0' && at[-1] <= '9')
            at--;
        return (int32_t)strtol(at, NULL, 10);
    }
    return 0;
}

/* Reads the assembler's lines about one function. */
static bolide__resources read_resources(const char *log, const char *function) {
    bolide__resources r = {0};
    char head[160];
    snprintf(head, sizeof head, "entry function '%s'", function);
    const char *at = strstr(log, head);
    const char *next = at ? strstr(at + 1, "Compiling entry function") : NULL;
    const char *stop = next ? next : log + strlen(log);
    while (at && at < stop) {
        const char *end = strchr(at, '\n');
        if (!end)
            end = at + strlen(at);
        r.stack_bytes += number_before(at, end, "bytes stack frame");
        r.spill_bytes += number_before(at, end, "bytes spill stores") +
                         number_before(at, end, "bytes spill loads");
        r.shared_bytes += number_before(at, end, "bytes smem");
        r.registers += number_before(at, end, "registers");
        at = *end ? end + 1 : NULL;
    }
    for (const char *c = log; (c = strstr(c, "C75")) != NULL; c++)
        r.serialized |= c[3] >= '0' && c[3] <= '9' && c[4] >= '0' && c[4] <= '9';
    return r;
}

/* First the first error of the log, then what was compiled, then the rest of the log. */
static bolide_status fail_compile(const char *entry, const bolide__spec *s,
                                  const bolide__source_set *set, const char *target,
                                  const bolide__nvrtc *nvrtc, const char *log) {
    char spec[BOLIDE__SPEC_TEXT];
    const char *first = strstr(log, "error");
    const char *line = first;
    while (line && line > log && line[-1] != '\n')
        line--;
    const int length = line ? (int)strcspn(line, "\n") : 0;
    const char *hint = s->user_source ? "the custom variant may be at fault"
                       : bolide__environment()->kernel_dir
                           ? "the sources come from BOLIDE_KERNEL_DIR"
                           : "please report this with the text below";
    return bolide__fail(BOLIDE_COMPILE_FAILED, entry,
                        "%s does not compile: %.*s; %s\n  spec %s\n  target %s, nvrtc %d.%d\n%s",
                        set->name, length, line ? line : "", hint, bolide__spec_text(s, spec),
                        target, nvrtc->major, nvrtc->minor, log);
}

static bolide_status compile(const char *entry, const bolide__spec *s,
                             const bolide__source_set *set, bolide__target target,
                             const bolide__nvrtc *nvrtc, bolide__binary *out) {
    char target_text[BOLIDE__TARGET_TEXT];
    char options[MAX_OPTIONS][OPTION_BYTES];
    const char *list[MAX_OPTIONS];
    int count = 0;
    bolide__target_text(target, target_text);
    snprintf(options[count++], OPTION_BYTES, "--gpu-architecture=%s", target_text);
    for (int i = 0; i < FIXED_OPTIONS; i++)
        snprintf(options[count++], OPTION_BYTES, "%s", fixed_options[i]);
    for (int32_t i = 0; i < s->count; i++)
        snprintf(options[count++], OPTION_BYTES, "-DSPEC_%s=%lld%s", s->key[i],
                 (long long)s->value[i],
                 s->value[i] > INT32_MAX || s->value[i] < -INT32_MAX ? "ll" : "");
    for (int i = 0; i < count; i++)
        list[i] = options[i];
    /* A custom variant is one more header, which the kernel includes where it wants it. */
    const char *names[BOLIDE__MAX_HEADERS + 1], *texts[BOLIDE__MAX_HEADERS + 1];
    int headers = set->header_count;
    memcpy((void *)names, (const void *)set->header_names, (size_t)headers * sizeof names[0]);
    memcpy((void *)texts, (const void *)set->header_texts, (size_t)headers * sizeof texts[0]);
    if (s->user_source) {
        names[headers] = "variant.cuh";
        texts[headers++] = s->user_source;
    }
    const bolide__nvrtc_input in = {.name = set->name,
                                    .text = set->text,
                                    .header_count = headers,
                                    .header_names = names,
                                    .header_texts = texts,
                                    .option_count = count,
                                    .options = list,
                                    .ptx = target.ptx};
    bolide__nvrtc_output result;
    bolide_status status = bolide__nvrtc_compile(entry, &in, &result);
    if (status == BOLIDE_COMPILE_FAILED && result.log)
        status = fail_compile(entry, s, set, target_text, nvrtc, result.log);
    if (status == BOLIDE_OK)
        *out = (bolide__binary){.code = result.code,
                                .bytes = result.bytes,
                                .resources = read_resources(result.log, s->function),
                                .major = nvrtc->major,
                                .minor = nvrtc->minor};
    free(result.log);
    return status;
}

static void log_built(const bolide__spec *s, const bolide__build_info *info,
                      const bolide__binary *b) {
    if (!bolide__log_on(BOLIDE__LOG_COMPILE))
        return;
    char spec[BOLIDE__SPEC_TEXT];
    bolide__spec_text(s, spec);
    const bolide__resources *r = &b->resources;
    if (info->origin == BOLIDE__FROM_DISK)
        bolide__log(BOLIDE__LOG_COMPILE, "%s: %s: on disk, %zu bytes, %.1f ms", spec, info->target,
                    b->bytes, 1e3 * info->seconds);
    else
        bolide__log(BOLIDE__LOG_COMPILE,
                    "%s: %s: nvrtc %d.%d, %.0f ms, %d registers, %d B stack, %d B spilled, %d B "
                    "static shared%s",
                    spec, info->target, b->major, b->minor, 1e3 * info->seconds, r->registers,
                    r->stack_bytes, r->spill_bytes, r->shared_bytes,
                    r->serialized ? ", wgmma serialised" : "");
}

static void fill_key(const bolide__spec *s, const char *target, const char *description,
                     const bolide__nvrtc *nvrtc, bolide__cache_key *key) {
    const char *name = strncmp(s->function, "bolide_", 7) == 0 ? s->function + 7 : s->function;
    snprintf(key->target, sizeof key->target, "%s", target);
    snprintf(key->function, sizeof key->function, "%s", name);
    key->hash = bolide__hash_of(description, strlen(description));
    key->major = nvrtc ? nvrtc->major : 0;
    key->minor = nvrtc ? nvrtc->minor : 0;
}

static void keep(const bolide__cache_key *key, const bolide__binary *b, char *description) {
    const bolide__resources *r = &b->resources;
    const size_t used = strlen(description);
    snprintf(description + used, DESCRIPTION_BYTES - used,
             "compiled by nvrtc %d.%d\n%d registers, %d bytes of stack, %d spilled, %d of static "
             "shared memory%s\n",
             b->major, b->minor, r->registers, r->stack_bytes, r->spill_bytes, r->shared_bytes,
             r->serialized ? ", wgmma serialised" : "");
    bolide__cache_write(bolide__cache_dir(), key, b, description);
}

bolide_status bolide__build(const char *entry, bolide__target want, const bolide__spec *s,
                            uint32_t flags, bolide__binary *out, bolide__build_info *info) {
    const double start = now();
    bolide__build_info own;
    if (!info)
        info = &own;
    *out = (bolide__binary){0};
    const bolide__source_set *set = NULL;
    BOLIDE_TRY(bolide__source_find(entry, s->source, &set));
    const bolide__nvrtc *nvrtc = bolide__nvrtc_try();
    bolide__target target = want;
    if (nvrtc && !usable_target(nvrtc, want, &target))
        return bolide__fail(BOLIDE_UNSUPPORTED, entry, "nvrtc %d.%d compiles for nothing below %s",
                            nvrtc->major, nvrtc->minor, bolide__target_text(want, info->target));
    bolide__target_text(target, info->target);
    char description[DESCRIPTION_BYTES];
    describe(s, set, info->target, description);
    bolide__cache_key key;
    fill_key(s, info->target, description, nvrtc, &key);
    bolide__hash_text(key.hash, info->hash);
    info->origin = BOLIDE__FROM_DISK;
    int found =
        !(flags & BOLIDE__BUILD_FRESH) && bolide__cache_read(bolide__cache_dir(), &key, out);
    if (!found && (flags & BOLIDE__BUILD_DISK_ONLY))
        return BOLIDE_NOT_WARM;
    if (!found) {
        info->origin = BOLIDE__COMPILED;
        BOLIDE_TRY(bolide__nvrtc_open(entry, &nvrtc));
        BOLIDE_TRY(compile(entry, s, set, target, nvrtc, out));
        keep(&key, out, description);
    }
    info->seconds = now() - start;
    log_built(s, info, out);
    return BOLIDE_OK;
}
