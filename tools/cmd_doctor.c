// SPDX-License-Identifier: Apache-2.0
//
// `bolide doctor`: what of this machine Bolide uses, what it found and did not find, and the
// environment variables that change it.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "core/env.h"
#include "cpu/cpu.h"
#include "cpu/cpu_limit.h"
#include "cuda/compile.h"
#include "json.h"
#include "machine.h"

typedef struct report {
    int as_json;
    json j;
} report;

static void say(report *r, const char *name, const char *value) {
    if (r->as_json)
        json_string(&r->j, name, value);
    else
        printf("%-20s %s\n", name, value);
}

static void say_number(report *r, const char *name, int64_t value) {
    if (r->as_json)
        json_int(&r->j, name, value);
    else
        printf("%-20s %lld\n", name, (long long)value);
}

static const char *yes(int value) {
    return value ? "yes" : "no";
}

/* Every set that the machine has; the one in force is put back. */
static void say_sets(report *r) {
    char text[128] = "";
    const bolide__isa in_force = bolide__cpu_isa();
    for (int isa = BOLIDE__BASELINE; isa <= BOLIDE__AVX512; isa++) {
        const size_t used = strlen(text);
        if (bolide__cpu_force_isa((bolide__isa)isa))
            (void)snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "",
                           bolide__isa_name((bolide__isa)isa));
    }
    (void)bolide__cpu_force_isa(in_force);
    say(r, "isa", bolide__isa_name(in_force));
    say(r, "isas", text);
}

static void say_cpu(report *r) {
    char name[128];
    const bolide__cpu_features *f = bolide__cpu_features_get();
    machine_name(NULL, name, sizeof name);
    say(r, "cpu", name);
    say_sets(r);
    say(r, "avx512_bf16", yes(f->avx512_bf16));
    say(r, "avx512_vnni", yes(f->avx512_vnni));
    say(r, "avx512_fp16", yes(f->avx512_fp16));
    say(r, "amx_bf16",
        f->amx_refused ? "the chip has it, the system refused it" : yes(f->amx_bf16));
    say(r, "amx_int8",
        f->amx_refused ? "the chip has it, the system refused it" : yes(f->amx_int8));
    say_number(r, "last_cache_bytes", roofline_cache());
    say_number(r, "threads", bolide__cpu_threads(NULL));
    say_number(r, "affinity_cpus", bolide__affinity_cpus());
    if (bolide__cgroup_cpus(""))
        say_number(r, "cgroup_cpus", bolide__cgroup_cpus(""));
    else
        say(r, "cgroup_cpus", "no quota");
}

static void say_cuda_line(void *arg, const char *text) {
    report *r = arg;
    if (r->as_json)
        json_string(&r->j, NULL, text);
    else
        printf("%-20s %s\n", "cuda", text);
}

static void say_cuda(report *r) {
    if (r->as_json)
        json_open(&r->j, "cuda", '[');
    bolide__cuda_doctor(say_cuda_line, r);
    if (r->as_json)
        json_close(&r->j, ']');
}

static void say_environment(report *r) {
    static const char *const names[] = {"BOLIDE_LOG",        "BOLIDE_ISA",   "BOLIDE_CACHE_DIR",
                                        "BOLIDE_KERNEL_DIR", "BOLIDE_NVRTC", "BOLIDE_OVERLAP",
                                        "XDG_CACHE_HOME",    "CUDA_HOME",    "VIRTUAL_ENV",
                                        "OMP_NUM_THREADS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        say(r, names[i], value ? value : "not set");
    }
}

int command_doctor(int argc, char **argv) {
    command c;
    if (command_read(&c, "doctor", OPTION_JSON, argc, argv))
        return 2;
    if (c.word_count) {
        (void)fprintf(stderr, "bolide doctor: expected no %s\n", c.word[0]);
        return 2;
    }
    report r = {.as_json = c.json, .j = {.file = stdout}};
    if (r.as_json)
        json_open(&r.j, NULL, '{');
    say(&r, "version", bolide_version());
    say_number(&r, "operators", bolide_op_count());
    say_cpu(&r);
    say_cuda(&r);
    say_environment(&r);
    if (r.as_json) {
        json_close(&r.j, '}');
        json_end(&r.j);
    }
    return 0;
}
