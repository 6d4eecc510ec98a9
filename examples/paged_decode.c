// SPDX-License-Identifier: Apache-2.0
//
// One decode step of two requests over a paged cache: ask for sizes, plan once for the lengths,
// then run (an engine runs once a layer with one plan). The caller owns all memory.

#include <bolide/bolide.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 2, PAGES = 4, PAGE = 16, H_Q = 8, H_KV = 2, D = 64 };

static float q[B][H_Q][D], out[B][H_Q][D], lse[B][H_Q];
static float k_cache[PAGES][PAGE][H_KV][D], v_cache[PAGES][PAGE][H_KV][D];

static bolide_tensor view(void *data, int64_t dtype, int32_t ndim, int64_t *shape) {
    return (bolide_tensor){data, {BOLIDE_CPU, 0}, ndim, bolide_dtype_of(dtype), shape, NULL, 0};
}

static void require(bolide_status status) {
    if (status == BOLIDE_OK)
        return;
    fprintf(stderr, "%s\n", bolide_last_error()->message);
    exit(1);
}

int main(void) {
    /* The first request has 40 keys in pages 2, 0 and 3, the second 5 keys in page 1. */
    int32_t indptr[B + 1] = {0, 3, 4}, last_page_len[B] = {8, 5}, indices[] = {2, 0, 3, 1};
    for (int i = 0; i < B * H_Q * D; i++)
        (&q[0][0][0])[i] = sinf((float)i);
    for (int i = 0; i < PAGES * PAGE * H_KV * D; i++) {
        (&k_cache[0][0][0][0])[i] = cosf((float)i);
        (&v_cache[0][0][0][0])[i] = (float)(i / (PAGE * H_KV * D)); /* the number of the page */
    }
    bolide_tensor t_indptr = view(indptr, BOLIDE_I32, 1, (int64_t[]){B + 1});
    bolide_tensor t_last = view(last_page_len, BOLIDE_I32, 1, (int64_t[]){B});
    bolide_tensor t_indices = view(indices, BOLIDE_I32, 1, (int64_t[]){4});
    bolide_tensor t_q = view(q, BOLIDE_F32, 3, (int64_t[]){B, H_Q, D});
    bolide_tensor t_out = view(out, BOLIDE_F32, 3, (int64_t[]){B, H_Q, D});
    bolide_tensor t_lse = view(lse, BOLIDE_F32, 2, (int64_t[]){B, H_Q});
    bolide_tensor t_k = view(k_cache, BOLIDE_F32, 4, (int64_t[]){PAGES, PAGE, H_KV, D});
    bolide_tensor t_v = view(v_cache, BOLIDE_F32, 4, (int64_t[]){PAGES, PAGE, H_KV, D});

    bolide_batch_decode_plan_args p;
    require(bolide_args_init("batch_decode_plan", &p, sizeof p));
    p.indptr = &t_indptr, p.last_page_len = &t_last;
    p.num_qo_heads = H_Q, p.num_kv_heads = H_KV, p.head_dim = D, p.page_size = PAGE;
    p.q_data_type = BOLIDE_F32;

    bolide_sizes sizes;
    require(bolide_batch_decode_workspace(NULL, &p, &sizes));
    const size_t a = (size_t)sizes.device_bytes, b = (size_t)sizes.device_int_bytes;
    bolide_workspace workspace = {malloc(a + 1),
                                  sizes.device_bytes,
                                  malloc(b + 1),
                                  sizes.device_int_bytes,
                                  malloc((size_t)sizes.pinned_bytes + 1),
                                  sizes.pinned_bytes};
    bolide_plan *plan = malloc((size_t)sizes.plan_bytes);
    if (!workspace.device || !workspace.device_int || !workspace.pinned || !plan)
        return 1;
    plan->size = sizes.plan_bytes;
    p.workspace = &workspace, p.plan = plan;
    require(bolide_batch_decode_plan(NULL, &p, NULL));

    bolide_batch_decode_run_args r;
    require(bolide_args_init("batch_decode_run", &r, sizeof r));
    r.q = &t_q, r.k_cache = &t_k, r.v_cache = &t_v, r.indices = &t_indices;
    r.out = &t_out, r.lse = &t_lse, r.workspace = &workspace, r.plan = plan;
    require(bolide_batch_decode_run(NULL, &r, NULL));

    printf("request 0, head 0: %f, lse %f\n", out[0][0][0], lse[0][0]);
    printf("request 1, head 0: %f, lse %f\n", out[1][0][0], lse[1][0]);
    free(workspace.device), free(workspace.device_int), free(workspace.pinned), free(plan);
    /* Every key of the second request lies in page 1, so its weighted mean is 1. */
    return fabsf(out[1][0][0] - 1) < 1e-5f && out[0][0][0] > 0 && out[0][0][0] < 3 ? 0 : 1;
}
