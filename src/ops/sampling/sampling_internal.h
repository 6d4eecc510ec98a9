// SPDX-License-Identifier: Apache-2.0
//
// What the sampling and top-k kernels share, and the definition that CPU and GPU both compute.
//
// Keys. A value x has the key  k(x) = b ^ (b >> 31 ? 0xFFFFFFFF : 0x80000000)  of its f32 bits b,
// so that unsigned order of keys is the order of values. Before that -0 becomes +0, and what is no
// ordinary value is replaced:
//     probabilities   NaN and negative: 0; +inf: the largest finite number
//     logits          NaN: -inf; +inf: the largest finite number
//     top-k scores    NaN: key 0, below -inf
//
// Mass. The mass of a probability is the probability; that of a logit is exp(x - max) in f32 with
// max the row's largest. -inf and 0 have no mass and are never drawn.
//
// Filters keep an upper set {k(x) >= t}, all ties at t included. The threshold t is exact and found
// by radix select on the key (select_cpu.c says how), without rejection:
//     top-k    the largest t with count{k >= t} >= k                 (k <= 0, k >= v: all)
//     top-p    the largest t with mass{k >= t} >= p                  (p >= 1 or NaN: all)
//     min-p    x >= f32(min_p) * max, the product rounded to f32      (min_p <= 0 or NaN: all)
//     p <= 0   the lowest index among the largest values, alone
// top_k_first asks for p * mass{k >= t_k}, joint and plain top-p for p of the row as it is (for
// logits: p of the mass of all). Both filters together keep {k >= max(t_k, t_p)}. p and min_p are
// rounded to f32 first, whether they come as numbers or in tensors.
//
// Sums. Masses of probabilities are summed exactly or in f64; those of logits in steps of 2^-40
// for the threshold and in f64 for the draw. For the draw and for renormalising, a row is cut into
// tiles of 1,024; lane l of 16 sums the kept masses of elements l, l+16, … of a tile, the lanes are
// added as l and l+8, +4, +2, +1, and tiles are added in order. Another order changes a result only
// within 1e-12 of a boundary. The GPU sums masses as integers, in steps of 2^-41 for rows of
// probabilities, else of 2^-42 of the power of two above the row's largest, so there no order
// matters.
//
// Draw. One uniform u of 53 bits a row: the sample is the first index i with
// kept mass of 0…i > u * kept mass of the row. A row without mass gives id 0 and valid = false.
//
// Random numbers. Philox 4x32-10, key (seed low, seed high), counter (n, row, offset low, offset
// high), where row is that of the output and n says which draw:
//     one draw a row        n = 0:      u = (w0 2^32 + w1) >> 11, times 2^-53
//     speculative           n = i for the test of draft i, n = number of drafts for the emission
//     sampling_from_logits  element i has word i % 4 of n = (i / 256) 32 + (i / 4) % 32 and of
//                           n + 2^31: of both the upper halves if (i / 128) % 2 is 0, else the
//                           lower ones, make the upper and the lower half of w. In f32,
//                           v = min(f32(w) 2^-32 + 2^-33, 1 - 2^-24), noise = -log(-log1p(-v));
//                           the sample is the lowest index of the largest logit + noise

#ifndef BOLIDE_OPS_SAMPLING_INTERNAL_H
#define BOLIDE_OPS_SAMPLING_INTERNAL_H

#ifndef __CUDACC_RTC__
#include "core/op.h"
#include "cpu/cpu.h"
#include <stdint.h>
#endif

enum {
    BOLIDE__SAMPLE_TILE = 1024,
    /* Counts have 22 bits beside the masses that are summed in one word, see select_cpu.c. */
    BOLIDE__SAMPLE_VOCAB = (1 << 22) - 1
};

/* Of the GPU kernels. */
enum {
    BOLIDE__ROW_THREADS = 512, /* of a block */
    BOLIDE__ROW_BLOCKS = 16,   /* the most blocks of a row */
    BOLIDE__ROW_BINS = 2048,   /* of a radix step */
    BOLIDE__ROW_FEW = 128,     /* so many values are listed in one block */
    BOLIDE__ROW_GROUPS = 16,   /* vectors of a lane where a row is kept in registers */
    /* Bytes of shared memory of a selection: on chips before 8.0, on 8.0 and on others, and on
     * large ones where columns are set aside beside values. */
    BOLIDE__ROW_ROOM_SMALL = 57856,
    BOLIDE__ROW_ROOM_80 = 74240,
    BOLIDE__ROW_ROOM = 82432,
    BOLIDE__ROW_ROOM_INDEXED = 106496,
    /* Of vectors on their way, on large chips, where a multiprocessor has one block, or where
     * shared memory is for them alone. */
    BOLIDE__ROW_RING = 98304
};

/* What a GPU kernel takes the values of a row for. */
typedef enum bolide__row_kind {
    BOLIDE__ROW_PROBS,
    BOLIDE__ROW_LOGITS,
    BOLIDE__ROW_SCORES, /* to be masked: NaN is -inf */
    BOLIDE__ROW_RANKED, /* for top-k: NaN stays, below -inf */
    BOLIDE__ROW_RESIDUAL
} bolide__row_kind;

/* A number or a tensor of numbers, one a row or one for all. */
typedef struct bolide__per_row {
    const void *data; /* [1] or [b]; NULL: the number */
    int64_t dtype;    /* F32, I32, I64, U64 */
    int64_t step;     /* 0: one for all */
    double number;
    int64_t integer;
} bolide__per_row;

typedef enum bolide__sample_filter {
    BOLIDE__FILTER_NONE,
    BOLIDE__FILTER_MIN_P,
    BOLIDE__FILTER_FIRST, /* top-k, then top-p of what is left */
    BOLIDE__FILTER_JOINT  /* top-k and top-p of the row as it is */
} bolide__sample_filter;

/* Sampling from probabilities or logits with one draw a row. */
typedef struct bolide__sample_params {
    const void *input; /* [n, v] */
    int64_t input_n;   /* stride */
    int64_t dtype;     /* of input */
    int64_t n, v, b;
    const void *indices; /* [b]; NULL: row i samples from row i */
    int64_t id_dtype;    /* of indices and samples: I32 or I64 */
    int64_t indices_dtype;
    void *samples;                              /* [b] */
    uint8_t *valid;                             /* [b] or NULL */
    int64_t logits;                             /* 1: input holds logits */
    int64_t filter;                             /* bolide__sample_filter */
    bolide__per_row top_k, top_p, seed, offset; /* top_p: min_p for that filter */
} bolide__sample_params;

typedef enum bolide__renorm_kind {
    BOLIDE__RENORM_TOP_P,
    BOLIDE__RENORM_TOP_K,
    BOLIDE__MASK_TOP_K,
    BOLIDE__SOFTMAX
} bolide__renorm_kind;

/* Operators that write a row for each row. */
typedef struct bolide__renorm_params {
    const void *input;      /* [n, v] */
    void *out;              /* [n, v] */
    int64_t input_n, out_n; /* strides */
    int64_t dtype, out_dtype;
    int64_t n, v;
    int64_t kind;          /* bolide__renorm_kind */
    bolide__per_row limit; /* p, k or temperature; temperature absent: data NULL, number NaN */
} bolide__renorm_params;

typedef struct bolide__speculative_params {
    const float *draft;  /* [b, n, v] */
    const float *target; /* [b, n+1, v] */
    const void *ids;     /* [b, n] */
    void *out;           /* [b, n+1] */
    int32_t *accepted;   /* [b] or NULL, added to */
    int32_t *emitted;    /* [b] or NULL, added to */
    int64_t b, n, v;
    int64_t draft_b, draft_n, target_b, target_n, ids_b, out_b; /* strides */
    int64_t id_dtype, out_dtype;
    bolide__per_row seed, offset;
} bolide__speculative_params;

typedef enum bolide__topk_form {
    BOLIDE__TOPK_PLAIN, /* indices as they are, values beside them */
    BOLIDE__TOPK_PAGED, /* through a page table */
    BOLIDE__TOPK_RAGGED /* plus the row's offset */
} bolide__topk_form;

enum { BOLIDE__TIE_LARGE = 2 }; /* bolide_topk_tie_break; the others take the lowest indices */

/* Top-k of a window of each row. Windows are clamped to the row; slots behind the last candidate
 * get index -1 and value -inf. */
typedef struct bolide__topk_params {
    const void *input; /* [n, v] */
    int64_t input_n;   /* stride */
    int64_t dtype;
    int64_t n, v, k;
    void *indices; /* [n, k] or NULL */
    int64_t indices_n, indices_dtype;
    void *values; /* [n, k] of dtype, or NULL */
    int64_t values_n;
    int64_t sorted, tie_break, form;
    const int32_t *lengths;    /* [n], or [n / next_n] with next_n set; NULL: v */
    const int32_t *row_starts; /* [n] or NULL */
    int64_t next_n, compress_ratio;
    const int32_t *pre_idx; /* [n / next_n, k] or NULL: a guess of the largest */
    int64_t pre_idx_n;
    const int32_t *page_table; /* [requests, pages] */
    int64_t page_table_n, requests, pages, page_size;
    const int32_t *row_to_batch;          /* [n] or NULL */
    const int32_t *page_table_row_starts; /* [n] or NULL */
    int32_t *raw_indices;                 /* [n, k] or NULL */
    int64_t raw_indices_n;
    const int32_t *offsets; /* [n], for RAGGED */
} bolide__topk_params;

#ifndef __CUDACC_RTC__

bolide_status bolide__sample_launch(const bolide__call *call, const bolide__sample_params *p);
bolide_status bolide__gumbel_launch(const bolide__call *call, const bolide__sample_params *p);
bolide_status bolide__renorm_launch(const bolide__call *call, const bolide__renorm_params *p);
bolide_status bolide__topk_launch(const bolide__call *call, const bolide__topk_params *p);
bolide_status bolide__speculative_launch(const bolide__call *call,
                                         const bolide__speculative_params *p);

/* arg is the parameter struct; items are rows. */
BOLIDE_CPU_KERNEL(sample_rows, (void *arg, int64_t begin, int64_t end, int worker));
BOLIDE_CPU_KERNEL(gumbel_rows, (void *arg, int64_t begin, int64_t end, int worker));
BOLIDE_CPU_KERNEL(renorm_rows, (void *arg, int64_t begin, int64_t end, int worker));
BOLIDE_CPU_KERNEL(softmax_rows, (void *arg, int64_t begin, int64_t end, int worker));
BOLIDE_CPU_KERNEL(speculative_rows, (void *arg, int64_t begin, int64_t end, int worker));
BOLIDE_CPU_KERNEL(topk_rows, (void *arg, int64_t begin, int64_t end, int worker));

static inline bolide__per_row bolide__per_row_of(const bolide_tensor *t, double number,
                                                 int64_t integer) {
    return (bolide__per_row){.data = t ? bolide__data(t) : NULL,
                             .dtype = t ? bolide__bit(t) : 0,
                             .step = t && t->shape[0] > 1,
                             .number = number,
                             .integer = integer};
}

static inline float bolide__row_float(const bolide__per_row *p, int64_t row) {
    return p->data ? ((const float *)p->data)[row * p->step] : (float)p->number;
}

static inline int64_t bolide__row_int(const bolide__per_row *p, int64_t row) {
    if (!p->data)
        return p->integer;
    return p->dtype == BOLIDE_I32 ? ((const int32_t *)p->data)[row * p->step]
                                  : ((const int64_t *)p->data)[row * p->step];
}

/* An id of a tensor of I32 or I64. */
static inline int64_t bolide__id_at(const void *ids, int64_t dtype, int64_t i) {
    return dtype == BOLIDE_I32 ? ((const int32_t *)ids)[i] : ((const int64_t *)ids)[i];
}

static inline void bolide__id_put(void *ids, int64_t dtype, int64_t i, int64_t id) {
    if (dtype == BOLIDE_I32)
        ((int32_t *)ids)[i] = (int32_t)id;
    else
        ((int64_t *)ids)[i] = id;
}

#endif
#endif
