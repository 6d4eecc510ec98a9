// SPDX-License-Identifier: Apache-2.0
//
// What the messages of the door say of a tensor: its shape, what a row expects, dtypes, devices.
// Each lies in the thread's own buffers (bolide__text) and is made only when a check has failed.

#include "core/check_text.h"

#include <stdio.h>

#include "core/error.h"

const char *bolide__shape_text(const bolide_tensor *t) {
    char buffer[200];
    int n = 0;
    for (int32_t i = 0; i < t->ndim && n < 160; i++)
        n += snprintf(buffer + n, sizeof buffer - (size_t)n, "%s%lld", i ? ", " : "",
                      (long long)t->shape[i]);
    return bolide__text("[%.*s]", n, buffer);
}

/* A form with the values bound so far: "[32, d]". */
const char *bolide__form_text(const bolide__call *call, const bolide__form *f) {
    const bolide__program *p = call->program;
    char buffer[220] = "";
    int n = 0;
    for (int i = 0; i < f->ndim && n < 170; i++) {
        const bolide__word *w = &p->words[f->first + i];
        const int64_t v = w->kind == BOLIDE__CONST  ? w->value
                          : w->kind == BOLIDE__NAME ? call->dims[w->slot]
                          : w->kind == BOLIDE__EXPR ? bolide__eval(p, call->dims, w->code)
                                                    : INT64_MIN;
        const char *sep = i ? ", " : "";
        if (v != INT64_MIN)
            n += snprintf(buffer + n, sizeof buffer - (size_t)n, "%s%lld", sep, (long long)v);
        else if (w->kind == BOLIDE__NAME)
            n += snprintf(buffer + n, sizeof buffer - (size_t)n, "%s%.*s", sep,
                          (int)p->names[w->slot].length, p->names[w->slot].text);
        else
            n += snprintf(buffer + n, sizeof buffer - (size_t)n, "%s_", sep);
    }
    return bolide__text("[%.*s]", n, buffer);
}

const char *bolide__dtypes_text(int64_t set) {
    char buffer[240];
    int n = 0, left = __builtin_popcountll((unsigned long long)set);
    for (int bit = 0; bit < 63 && n < 200; bit++) {
        if (!(set >> bit & 1))
            continue;
        left--;
        n += snprintf(buffer + n, sizeof buffer - (size_t)n, "%s%s",
                      bolide_dtype_name((int64_t)1 << bit),
                      left > 1    ? ", "
                      : left == 1 ? " or "
                                  : "");
    }
    return bolide__text("%.*s", n, buffer);
}

const char *bolide__device_text(bolide_device d) {
    if (d.type == BOLIDE_CPU)
        return "cpu";
    const char *kind = d.type == BOLIDE_CUDA           ? "cuda"
                       : d.type == BOLIDE_CUDA_HOST    ? "cuda_host"
                       : d.type == BOLIDE_CUDA_MANAGED ? "cuda_managed"
                                                       : "device type";
    return bolide__text("%s%s%d", kind, kind[0] == 'c' ? ":" : " ",
                        kind[0] == 'c' ? d.index : d.type);
}
