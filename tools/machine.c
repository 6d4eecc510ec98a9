// SPDX-License-Identifier: Apache-2.0
//
// Asks the system for names.

#include "machine.h"

#include <stdio.h>
#include <string.h>

#include "core/context.h"

#ifndef BOLIDE_SOURCE_DIR
#error "the build passes the folder of the checkout"
#endif

static void cpu_name(char *text, size_t bytes) {
    char line[512];
    (void)snprintf(text, bytes, "cpu");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        value += strspn(value, ": \t");
        (void)snprintf(text, bytes, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (f)
        (void)fclose(f);
}

void machine_name(const bolide_context *ctx, char *text, size_t bytes) {
    if (ctx && ctx->device.type == BOLIDE_CUDA)
        (void)snprintf(text, bytes, "%s", machine_cuda_name(ctx));
    else
        cpu_name(text, bytes);
}

/* First line that a command prints; empty if it fails. */
static void first_line(const char *command, char *text, size_t bytes) {
    text[0] = 0;
    FILE *f = popen(command, "r"); /* NOLINT(cert-env33-c): a fixed command */
    if (!f)
        return;
    if (!fgets(text, (int)bytes, f))
        text[0] = 0;
    text[strcspn(text, "\n")] = 0;
    if (pclose(f) != 0)
        text[0] = 0;
}

void machine_commit(char *text, size_t bytes) {
    char hash[24], change[64];
    first_line("git -C '" BOLIDE_SOURCE_DIR "' rev-parse --short=10 HEAD 2>/dev/null", hash,
               sizeof hash);
    first_line("git -C '" BOLIDE_SOURCE_DIR
               "' status --porcelain --untracked-files=no -- . ':!bench/results' ':!*.md' "
               "2>/dev/null | head -1",
               change, sizeof change);
    (void)snprintf(text, bytes, "%s%s", hash[0] ? hash : "unknown",
                   hash[0] && change[0] ? "+" : "");
}
