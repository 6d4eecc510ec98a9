// SPDX-License-Identifier: Apache-2.0
//
// Specs and targets: comparing, hashing, printing, parsing.

#include "cuda/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bolide__spec_add(bolide__spec *s, const char *key, int64_t value) {
    /* A key too many is still counted, and the launch refuses the spec. */
    if (s->count < BOLIDE__SPEC_KEYS) {
        s->key[s->count] = key;
        s->value[s->count] = value;
    }
    s->count++;
}

const char *bolide__spec_text(const bolide__spec *s, char text[BOLIDE__SPEC_TEXT]) {
    int used = snprintf(text, BOLIDE__SPEC_TEXT, "%s %s", s->source, s->function);
    for (int32_t i = 0; i < s->count && used < BOLIDE__SPEC_TEXT; i++)
        used += snprintf(text + used, (size_t)(BOLIDE__SPEC_TEXT - used), " %s=%lld", s->key[i],
                         (long long)s->value[i]);
    if (s->user_source && used < BOLIDE__SPEC_TEXT)
        snprintf(text + used, (size_t)(BOLIDE__SPEC_TEXT - used), " with a custom variant");
    return text;
}

static int same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

int bolide__spec_same(const bolide__spec *a, const bolide__spec *b) {
    if (a->count != b->count || !same_text(a->source, b->source) ||
        !same_text(a->function, b->function) || !same_text(a->user_source, b->user_source))
        return 0;
    for (int32_t i = 0; i < a->count; i++) {
        if (a->value[i] != b->value[i] || !same_text(a->key[i], b->key[i]))
            return 0;
    }
    return 1;
}

int bolide__spec_identical(const bolide__spec *a, const bolide__spec *b) {
    const size_t n = (size_t)a->count;
    /* The custom text may be freed and its address used again, so its content is compared. */
    return a->count == b->count && a->source == b->source && a->function == b->function &&
           memcmp(a->value, b->value, n * sizeof a->value[0]) == 0 &&
           memcmp((const void *)a->key, (const void *)b->key, n * sizeof a->key[0]) == 0 &&
           same_text(a->user_source, b->user_source);
}

uint64_t bolide__spec_hash(const bolide__spec *s) {
    uint64_t h = (uint64_t)(uintptr_t)s->function ^ ((uint64_t)s->count << 56);
    for (int32_t i = 0; i < s->count; i++)
        h = (h ^ (uint64_t)s->value[i]) * 0x9e3779b97f4a7c15u + (h >> 29);
    return h ^ (h >> 32);
}

/* Chips whose code this library knows how to ask for, ascending. From 9.0 on the suffix opens the
 * instructions of one chip (wgmma, TMA forms); code with it runs on that chip alone. */
static const struct chip {
    bolide__cuda_limits limits;
    char suffix;
} chips[] = {
    {{.arch = 75, .sm_count = 40, .shared_optin = 65536, .shared_sm = 65536, .l2_bytes = 4 << 20},
     0},
    {{.arch = 80,
      .sm_count = 108,
      .shared_optin = 166912,
      .shared_sm = 167936,
      .l2_bytes = 40 << 20},
     0},
    {{.arch = 86, .sm_count = 84, .shared_optin = 101376, .shared_sm = 102400, .l2_bytes = 6 << 20},
     0},
    {{.arch = 89,
      .sm_count = 142,
      .shared_optin = 101376,
      .shared_sm = 102400,
      .l2_bytes = 96 << 20},
     0},
    {{.arch = 90,
      .sm_count = 132,
      .shared_optin = 232448,
      .shared_sm = 233472,
      .l2_bytes = 50 << 20},
     'a'},
    {{.arch = 100,
      .sm_count = 148,
      .shared_optin = 232448,
      .shared_sm = 233472,
      .l2_bytes = 126 << 20},
     'a'},
    {{.arch = 103,
      .sm_count = 148,
      .shared_optin = 232448,
      .shared_sm = 233472,
      .l2_bytes = 126 << 20},
     'a'},
    {{.arch = 120,
      .sm_count = 170,
      .shared_optin = 101376,
      .shared_sm = 102400,
      .l2_bytes = 96 << 20},
     'a'},
};

enum { CHIPS = sizeof chips / sizeof chips[0] };

/* The last known chip that is not above arch; NULL if there is none. */
static const struct chip *chip_of(int32_t arch) {
    const struct chip *found = NULL;
    for (int i = 0; i < CHIPS; i++) {
        if (chips[i].limits.arch <= arch)
            found = &chips[i];
    }
    return found;
}

int bolide__target_of(int32_t arch, bolide__target *out) {
    const struct chip *chip = chip_of(arch);
    if (!chip)
        return 0;
    const int exact = chip->limits.arch == arch;
    /* A chip runs cubins of lower minors of its own major, and PTX of every lower one. */
    *out = (bolide__target){.arch = chip->limits.arch,
                            .suffix = (char)(exact ? chip->suffix : 0),
                            .ptx = chip->limits.arch / 10 != arch / 10};
    return 1;
}

void bolide__target_limits(bolide__target target, bolide__cuda_limits *limits) {
    const struct chip *chip = chip_of(target.arch);
    *limits = chip ? chip->limits : chips[0].limits;
    limits->arch = target.arch;
}

int bolide__target_parse(const char *text, bolide__target *out) {
    bolide__target t = {0};
    if (strncmp(text, "compute_", 8) == 0) {
        t.ptx = 1;
        text += 8;
    } else if (strncmp(text, "sm_", 3) == 0) {
        text += 3;
    }
    char *end = NULL;
    long number = strtol(text, &end, 10);
    if (end == text || text[0] < '0' || text[0] > '9' || number > 1000)
        return 0;
    if (*end == '.' && end[1] >= '0' && end[1] <= '9') {
        number = number * 10 + (end[1] - '0');
        end += 2;
        /* A capability such as 9.0 means that chip with all it has. */
        const struct chip *chip = chip_of((int32_t)number);
        if (chip && chip->limits.arch == number && !t.ptx)
            t.suffix = chip->suffix;
    } else if (*end == 'a') {
        t.suffix = 'a';
        end++;
    }
    t.arch = (int32_t)number;
    if (*end || t.arch < 75 || (t.ptx && t.suffix))
        return 0;
    *out = t;
    return 1;
}

const char *bolide__target_text(bolide__target t, char text[BOLIDE__TARGET_TEXT]) {
    snprintf(text, BOLIDE__TARGET_TEXT, "%s_%d%s", t.ptx ? "compute" : "sm", t.arch,
             t.suffix ? "a" : "");
    return text;
}
