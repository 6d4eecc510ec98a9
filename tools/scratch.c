// SPDX-License-Identifier: Apache-2.0
//
// Workspace and plan memory of a case. On a CUDA device the device parts live there, with the same
// guards, and are read back to be checked.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "scratch.h"

static const char *const part_names[] = {"workspace.device", "workspace.device_int",
                                         "workspace.pinned"};

static int64_t part_bytes(const driver_scratch *s, int part) {
    const int64_t bytes[] = {s->sizes.device_bytes, s->sizes.device_int_bytes,
                             s->sizes.pinned_bytes};
    return bytes[part];
}

/* Address of a part, on the device where it lives there; NULL if it is empty. */
static void *part_address(const driver_scratch *s, int part) {
    if (part_bytes(s, part) == 0)
        return NULL;
    if (part < 2 && s->mirror[part])
        return (void *)(uintptr_t)(s->mirror[part] + BUFFER_GUARD);
    return s->part[part];
}

static int make_part(driver_scratch *s, device *d, int part) {
    const int64_t bytes = part_bytes(s, part);
    /* Staging must be pinned on a device, where a guarded plain buffer will not do; the guards
     * then lie in the same pinned allocation. */
    if (d && part == 2) {
        unsigned char *base = device_pinned(d, buffer_total(bytes));
        if (!base)
            return -1;
        buffer_pattern(base, buffer_total(bytes));
        s->part[2] = base + BUFFER_GUARD;
    } else {
        s->part[part] = buffer_make(bytes);
    }
    if (!s->part[part])
        return -1;
    memset(s->part[part], 0x5a, (size_t)bytes);
    if (!d || part == 2)
        return 0;
    s->mirror[part] = device_alloc(d, buffer_total(bytes));
    return s->mirror[part]
               ? device_put(d, s->mirror[part], buffer_begin(s->part[part]), buffer_total(bytes))
               : -1;
}

static void point(driver_case *c, const bolide_param *row, bolide_phase phase,
                  const driver_scratch *s) {
    const void *address = NULL;
    const int64_t total = s->sizes.device_bytes + s->sizes.device_int_bytes + s->sizes.pinned_bytes;
    if (row->kind == BOLIDE_KIND_WORKSPACE && total)
        address = &s->workspace;
    else if (row->kind == BOLIDE_KIND_PLAN)
        address = s->plan;
    if (row->kind == BOLIDE_KIND_WORKSPACE || row->kind == BOLIDE_KIND_PLAN)
        case_put(c, phase, row->offset, &address);
}

int scratch_make(driver_case *c, const bolide_context *ctx, device *d, driver_scratch *s,
                 bolide_status *status) {
    memset(s, 0, sizeof *s);
    const bolide_phase first = c->args[BOLIDE_PLAN].entry ? BOLIDE_PLAN : BOLIDE_RUN;
    *status = bolide_op_workspace(c->op, ctx, c->args[first].bytes, &s->sizes);
    if (*status != BOLIDE_OK)
        return -1;
    for (int part = 0; part < 3; part++)
        if (make_part(s, d, part))
            return case_fail(c, "%s: out of memory for the workspace", c->op->name);
    s->plan = buffer_make(s->sizes.plan_bytes);
    if (!s->plan)
        return case_fail(c, "%s: out of memory for the plan", c->op->name);
    memset(s->plan, 0x5a, (size_t)s->sizes.plan_bytes);
    if (s->sizes.plan_bytes >= (int64_t)sizeof(bolide_plan))
        ((bolide_plan *)(void *)s->plan)->size = s->sizes.plan_bytes;
    s->workspace = (bolide_workspace){.device = part_address(s, 0),
                                      .device_bytes = s->sizes.device_bytes,
                                      .device_int = part_address(s, 1),
                                      .device_int_bytes = s->sizes.device_int_bytes,
                                      .pinned = part_address(s, 2),
                                      .pinned_bytes = s->sizes.pinned_bytes};
    for (int phase = 0; phase < 2; phase++) {
        const bolide__entry *e = c->args[phase].entry;
        for (int32_t i = 0; e && i < e->row_count; i++)
            point(c, &e->rows[i], (bolide_phase)phase, s);
    }
    return 0;
}

void scratch_free(driver_scratch *s, device *d) {
    for (int part = 0; part < 3; part++) {
        if (d && part == 2 && s->part[part])
            device_pinned_free(d, buffer_begin(s->part[part]));
        else
            buffer_free(s->part[part]);
        if (part < 2 && s->mirror[part])
            device_free(d, s->mirror[part]);
    }
    buffer_free(s->plan);
}

void scratch_soil(driver_scratch *s, device *d) {
    memset(s->part[0], 0xc3, (size_t)s->sizes.device_bytes);
    if (d)
        (void)device_put(d, s->mirror[0], buffer_begin(s->part[0]),
                         buffer_total(s->sizes.device_bytes));
}

int scratch_intact(driver_scratch *s, device *d, char *why, size_t bytes) {
    for (int part = 0; part < 3; part++) {
        const int64_t n = part_bytes(s, part);
        if (d && part < 2 &&
            device_get(d, buffer_begin(s->part[part]), s->mirror[part], buffer_total(n))) {
            (void)snprintf(why, bytes, "%s: cannot be read back", part_names[part]);
            return -1;
        }
        if (!buffer_intact(s->part[part], n)) {
            (void)snprintf(why, bytes, "%s: written outside its %lld bytes", part_names[part],
                           (long long)n);
            return -1;
        }
    }
    if (buffer_intact(s->plan, s->sizes.plan_bytes))
        return 0;
    (void)snprintf(why, bytes, "plan: written outside its %lld bytes",
                   (long long)s->sizes.plan_bytes);
    return -1;
}
