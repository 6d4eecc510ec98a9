// SPDX-License-Identifier: Apache-2.0
//
// From the length arrays of a plan to one checked record a request. Arrays on the host are read
// where they lie; those on the device are copied back, all with one wait.

#include "ops/attention/attention_internal.h"

#include "cuda/cuda.h"

typedef struct bolide__attention_now now_part;

static bool given(int64_t x) {
    return x != BOLIDE_NO_INT;
}

typedef struct lengths {
    const int32_t *qo, *kv, *last, *len, *q_len, *v, *o;
} lengths;

/* Host values of an array; one that lies on the device is copied into *staging. */
static bolide_status fetch(const bolide__call *call, const bolide_tensor *t, int32_t **staging,
                           const int32_t **out, bool *wait) {
    *out = NULL;
    if (!t)
        return BOLIDE_OK;
    if (t->device.type != BOLIDE_CUDA) {
        *out = bolide__data(t);
        return BOLIDE_OK;
    }
    *out = *staging;
    *wait = true;
    BOLIDE_TRY(bolide__cuda_copy_to_host(call, *staging, bolide__data(t),
                                         t->shape[0] * (int64_t)sizeof(int32_t)));
    *staging += t->shape[0];
    return BOLIDE_OK;
}

static bolide_status fetch_all(const bolide__call *call, const bolide__attention_problem *pr,
                               int32_t *staging, lengths *l) {
    bool wait = false;
    BOLIDE_TRY(fetch(call, pr->qo_indptr, &staging, &l->qo, &wait));
    BOLIDE_TRY(fetch(call, pr->kv_indptr, &staging, &l->kv, &wait));
    BOLIDE_TRY(fetch(call, pr->last_page_len, &staging, &l->last, &wait));
    BOLIDE_TRY(fetch(call, pr->kv_len, &staging, &l->len, &wait));
    BOLIDE_TRY(fetch(call, pr->q_len, &staging, &l->q_len, &wait));
    BOLIDE_TRY(fetch(call, pr->v_indptr, &staging, &l->v, &wait));
    BOLIDE_TRY(fetch(call, pr->o_indptr, &staging, &l->o, &wait));
    return wait ? bolide__cuda_wait(call) : BOLIDE_OK;
}

static bolide_status bad_length(const bolide__call *call, const char *name, const char *expected,
                                int64_t r, int64_t value) {
    return BOLIDE_FAIL_ARG(call, name, "value", expected, "%lld at element %lld", (long long)value,
                           (long long)r);
}

/* An indptr that begins below 0, or falls behind element r. */
static bolide_status bad_indptr(const bolide__call *call, const char *name, const int32_t *indptr,
                                int64_t r) {
    if (indptr[r] < 0)
        return bad_length(call, name, "at least 0", r, indptr[r]);
    return bad_length(call, name, "values that do not fall", r + 1, indptr[r + 1]);
}

/* What element r of an indptr leaves for request r; below 0 where it falls. */
static int64_t room(const int32_t *indptr, int64_t r) {
    return indptr[r] < 0 ? -1 : (int64_t)indptr[r + 1] - indptr[r];
}

static bolide_status query_length(const bolide__call *call, const bolide__attention_problem *pr,
                                  const lengths *l, int64_t r, int64_t *q_len) {
    *q_len = pr->q_len_per_req;
    if (!l->qo)
        return BOLIDE_OK;
    const int64_t rows = room(l->qo, r);
    if (rows < 0)
        return bad_indptr(call, pr->name.qo_indptr, l->qo, r);
    if (rows > INT32_MAX / pr->h_q)
        return bad_length(call, pr->name.qo_indptr, "fewer than 2^31 rows of heads a request",
                          r + 1, l->qo[r + 1]);
    *q_len = l->q_len ? l->q_len[r] : rows;
    if (*q_len < 0 || *q_len > rows)
        return bad_length(call, "seq_lens_q", "0 to the rows of the request", r, *q_len);
    if (given(pr->max_q_len) && *q_len > pr->max_q_len)
        return BOLIDE_FAIL_ARG(call, "max_token_per_sequence", "value",
                               bolide__text("at least %lld, the rows of request %lld",
                                            (long long)*q_len, (long long)r),
                               "%lld", (long long)pr->max_q_len);
    return BOLIDE_OK;
}

/* Keys of request r: what is said, within what its pages or rows hold. */
static bolide_status key_length(const bolide__call *call, const bolide__attention_problem *pr,
                                const lengths *l, int64_t r, int64_t *kv_len) {
    const int64_t entries = l->kv ? room(l->kv, r) : 0;
    const int64_t size = pr->page_size ? pr->page_size : 1;
    if (entries < 0)
        return bad_indptr(call, pr->name.kv_indptr, l->kv, r);
    *kv_len = entries * size;
    if (l->len) {
        *kv_len = l->len[r];
        if (*kv_len < 0 || (l->kv && *kv_len > entries * size))
            return bad_length(call, pr->name.kv_len, "0 to what the indptr leaves", r, *kv_len);
    } else if (l->last && entries > 0) {
        if (l->last[r] < 1 || l->last[r] > size)
            return bad_length(call, pr->name.last_page_len, "1 to page_size", r, l->last[r]);
        *kv_len += l->last[r] - size;
    }
    if (*kv_len > INT32_MAX)
        return bad_length(call, pr->name.kv_indptr, "at most 2147483647 keys a request", r,
                          *kv_len);
    if (given(pr->max_kv_len) && *kv_len > pr->max_kv_len)
        return BOLIDE_FAIL_ARG(call, "max_sequence_kv", "value",
                               bolide__text("at least %lld, the keys of request %lld",
                                            (long long)*kv_len, (long long)r),
                               "%lld", (long long)pr->max_kv_len);
    return BOLIDE_OK;
}

/* First row of a request in a packed tensor whose indptr leaves it at least `length` rows. */
static bolide_status packed_start(const bolide__call *call, const char *name, const int32_t *indptr,
                                  int64_t r, int64_t length, int32_t *start) {
    if (room(indptr, r) < length)
        return bad_length(call, name, "values that leave room for each request", r, indptr[r]);
    *start = indptr[r];
    return BOLIDE_OK;
}

static bolide_status one_request(const bolide__call *call, const bolide__attention_problem *pr,
                                 const lengths *l, int64_t r, now_part *now,
                                 bolide__attention_request *out) {
    int64_t q_len = 0, kv_len = 0;
    BOLIDE_TRY(query_length(call, pr, l, r, &q_len));
    BOLIDE_TRY(key_length(call, pr, l, r, &kv_len));
    const int32_t q_start = l->qo ? l->qo[r] : (int32_t)(r * q_len);
    const int32_t kv_start = l->kv ? l->kv[r] : 0;
    *out = (bolide__attention_request){.mask_elem = now->mask_elems,
                                       .mask_byte = now->mask_bytes,
                                       .q_start = q_start,
                                       .o_start = q_start,
                                       .q_len = (int32_t)q_len,
                                       .kv_len = (int32_t)kv_len,
                                       .kv_start = kv_start,
                                       .v_start = kv_start};
    if (l->v)
        BOLIDE_TRY(packed_start(call, "v_indptr", l->v, r, kv_len, &out->v_start));
    if (l->o)
        BOLIDE_TRY(packed_start(call, "o_indptr", l->o, r, q_len, &out->o_start));
    now->most_rows = q_len > now->most_rows ? q_len : now->most_rows;
    now->mask_elems += q_len * kv_len;
    now->mask_bytes += (q_len * kv_len + 7) / 8;
    return BOLIDE_OK;
}

bolide_status bolide__attention_requests(const bolide__call *call,
                                         const bolide__attention_problem *pr, int32_t *staging,
                                         struct bolide__attention_now *now,
                                         bolide__attention_request *requests) {
    const int64_t b = pr->batch;
    lengths l;
    BOLIDE_TRY(fetch_all(call, pr, staging, &l));
    *now = (now_part){.batch = b};
    for (int64_t r = 0; r < b; r++)
        BOLIDE_TRY(one_request(call, pr, &l, r, now, &requests[r]));
    now->rows = l.qo ? (l.qo[b] > 0 ? l.qo[b] : 0) : b * pr->q_len_per_req;
    now->out_rows = l.o ? l.o[b] : now->rows;
    if (!pr->page_size) {
        now->kv_rows = l.kv[b];
        now->v_rows = l.v ? l.v[b] : l.kv[b];
    } else {
        now->index_count = l.kv ? l.kv[b] : 0;
    }
    if (given(pr->max_rows) && now->rows > pr->max_rows)
        return BOLIDE_FAIL_ARG(call, pr->name.max_rows, "value",
                               bolide__text("at least %lld rows", (long long)now->rows), "%lld",
                               (long long)pr->max_rows);
    return BOLIDE_OK;
}
