// SPDX-License-Identifier: Apache-2.0
//
// Plans on a device that is not there: what they wait for, and that a slot of the staging memory is
// left alone until the copy out of it has arrived. "Device" memory is the host's.

#include <stdlib.h>
#include <string.h>

#include "support.h"

static bolide_stream const stream = (bolide_stream)0x1230;

enum { BATCH = 64 };

typedef struct planned {
    bolide_context *ctx;
    int32_t indptr[BATCH + 1], last[BATCH];
    int64_t ends, batch; /* the tensors' lengths */
    bolide_tensor t_indptr, t_last;
    bolide_workspace w;
    bolide_batch_decode_plan_args a;
} planned;

static bolide_tensor list(void *data, int64_t *length) {
    return (bolide_tensor){.data = data,
                           .device = {BOLIDE_CPU, 0},
                           .ndim = 1,
                           .dtype = bolide_dtype_of(BOLIDE_I32),
                           .shape = length};
}

/* Requests of 3 pages and a few keys; `type` is where their lengths lie. 0 if there is no memory.
 */
static int set_up(planned *p, int64_t batch, bolide_device_type type) {
    bolide_sizes sizes;
    memset(p, 0, sizeof *p);
    p->ctx = open_context(0);
    p->batch = batch;
    p->ends = batch + 1;
    for (int32_t i = 0; i < batch; i++) {
        p->indptr[i + 1] = 3 * (i + 1);
        p->last[i] = 1 + i % 16;
    }
    p->t_indptr = list(p->indptr, &p->ends);
    p->t_last = list(p->last, &p->batch);
    p->t_indptr.device.type = p->t_last.device.type = type;
    check(bolide_args_init("batch_decode_plan", &p->a, sizeof p->a) == BOLIDE_OK, "defaults");
    p->a.indptr = &p->t_indptr;
    p->a.last_page_len = &p->t_last;
    p->a.num_qo_heads = p->a.num_kv_heads = 1;
    p->a.head_dim = 64;
    p->a.page_size = 16;
    check(bolide_batch_decode_workspace(p->ctx, &p->a, &sizes) == BOLIDE_OK, "sizes of a plan");
    p->w = (bolide_workspace){.device = calloc(1, (size_t)sizes.device_bytes + 1),
                              .device_bytes = sizes.device_bytes,
                              .device_int = calloc(1, (size_t)sizes.device_int_bytes + 1),
                              .device_int_bytes = sizes.device_int_bytes,
                              .pinned = malloc((size_t)sizes.pinned_bytes + 1),
                              .pinned_bytes = sizes.pinned_bytes};
    p->a.plan = calloc(1, (size_t)sizes.plan_bytes);
    if (!p->a.plan || !p->w.device || !p->w.device_int || !p->w.pinned)
        return 0;
    memset(p->w.pinned, 0x5a, (size_t)sizes.pinned_bytes); /* whatever was there */
    p->a.plan->size = sizes.plan_bytes;
    p->a.workspace = &p->w;
    return 1;
}

static void drop(planned *p) {
    free(p->w.device);
    free(p->w.device_int);
    free(p->w.pinned);
    free(p->a.plan);
    bolide_context_destroy(p->ctx);
    check(driver->retained == 0 && driver->depth == 0 && driver->modules == 0, "all is given back");
}

static void test_staging(void) {
    planned p;
    if (set_up(&p, 2, BOLIDE_CPU)) {
        for (int i = 0; i < 5; i++)
            check(bolide_batch_decode_plan(p.ctx, &p.a, stream) == BOLIDE_OK,
                  "slots that are free");
        driver->late_copies = 1;
        check(bolide_batch_decode_plan(p.ctx, &p.a, stream) == BOLIDE_OK &&
                  bolide_batch_decode_plan(p.ctx, &p.a, stream) == BOLIDE_OK,
              "two plans while nothing arrives");
        check(bolide_batch_decode_plan(p.ctx, &p.a, stream) == BOLIDE_BUSY &&
                  bolide_batch_decode_plan(p.ctx, &p.a, stream) == BOLIDE_BUSY,
              "a third one is refused");
        check_message("wait for the stream", "the message tells what to do");
        driver->late_copies = 0;
        memset(p.w.pinned, 0, 2 * sizeof(int64_t)); /* the copies arrive */
        check(bolide_batch_decode_plan(p.ctx, &p.a, stream) == BOLIDE_OK, "then it is made");
    }
    drop(&p);
}

/* Driver calls and waits of one plan. */
static void count_plan(planned *p, int *calls, int *waits) {
    const int calls_before = driver->calls, waits_before = driver->waits;
    check(bolide_batch_decode_plan(p->ctx, &p->a, stream) == BOLIDE_OK, "a plan is made");
    *calls = driver->calls - calls_before;
    *waits = driver->waits - waits_before;
}

/* Lengths on the host: no wait. On the device: one. Neither grows with the batch. */
static void test_waits(void) {
    static const bolide_device_type types[] = {BOLIDE_CPU, BOLIDE_CUDA};
    for (int on_device = 0; on_device < 2; on_device++) {
        int calls[2] = {0}, waits[2] = {0};
        for (int large = 0; large < 2; large++) {
            planned p;
            if (set_up(&p, large ? BATCH : 2, types[on_device])) {
                count_plan(&p, &calls[large], &waits[large]);
                count_plan(&p, &calls[large], &waits[large]);
            }
            drop(&p);
        }
        check(waits[0] == on_device && waits[1] == on_device,
              on_device ? "lengths on the device cost one wait" : "lengths on the host cost none");
        check(calls[0] == calls[1], "a plan calls the driver as often for any batch");
    }
}

int main(void) {
    start("13");
    const char *dir = fresh_cache();
    test_staging();
    test_waits();
    remove_folder(dir);
    return finish();
}
