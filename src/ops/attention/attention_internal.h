// SPDX-License-Identifier: Apache-2.0
//
// What the attention operators share: the parameter struct that CPU and device kernels take, the
// plan, and the steps from an operator's arguments to either.
//
// The live part of a plan lies in workspace.device_int, at offsets that the frozen part holds:
//
//     | counts | worker_start | requests | items | merges |
//
// For CUDA the items come with their requests, and the last four stay behind in the staging slot:
//
//     | counts | free | tickets | arrivals | heads | works ||
//     | worker_start | requests | items | merges | order |
//
// The scratch of a run lies in workspace.device:
//
//     | partial_o: slots x h_kv x tile_rows x d_vo f32 | partial_ml: slots x h_kv x tile_rows x 2 |
//     | rope frequencies: d_qk/2 f64 | lanes: scratch of each lane |         (these two CPU only)

#ifndef BOLIDE_OPS_ATTENTION_INTERNAL_H
#define BOLIDE_OPS_ATTENTION_INTERNAL_H

#include "ops/attention/schedule.h"

enum {
    BOLIDE__ATTN_HEAD_DIM = 576,  /* largest head size */
    BOLIDE__ATTN_TILE_ROWS = 256, /* largest tile of the CPU kernel */
    BOLIDE__ATTN_DOT_ROWS = 8,    /* rows up to which reading in place is faster than packing */
    BOLIDE__ATTN_SCALED = 128     /* elements of a scale in row_scales */
};

/* Bits of bolide__attention_params.flags. */
enum {
    BOLIDE__ATTN_CAUSAL = 1,
    BOLIDE__ATTN_MASK_BYTES = 2, /* custom mask of a byte an element */
    BOLIDE__ATTN_MASK_BITS = 4,  /* custom mask of a bit an element */
    BOLIDE__ATTN_ROPE = 8,
    BOLIDE__ATTN_ALIBI = 16,
    BOLIDE__ATTN_LSE_BASE_E = 32,
    BOLIDE__ATTN_ITEMS = 64,   /* multi-item scoring */
    BOLIDE__ATTN_Q_WIDE = 128, /* CUDA: rows of q allow loads of 8 elements */
    BOLIDE__ATTN_SIGNED = 256, /* CUDA: what logits are scaled by may be below 0 */
    BOLIDE__ATTN_TAIL = 512,   /* the last d_tail columns of q and k are tensors of their own */
    BOLIDE__ATTN_VARIANT = 1024,
    BOLIDE__ATTN_LATENT = 2048,  /* values are the first d_vo columns of the keys, of one head */
    BOLIDE__ATTN_DRAFT = 4096,   /* bits over a request's query tokens say which are seen */
    BOLIDE__ATTN_SHARED = 32768, /* CUDA: another kernel works on a part of the batch beside */
    BOLIDE__ATTN_APART = 16384,  /* CUDA: pieces are joined by a kernel of its own */
    BOLIDE__ATTN_PLACED = 8192   /* positions are places in a matrix, see fold_q */
};

/* What the texts of a custom variant see of the element at hand, by these names. */
#define BOLIDE__VARIANT_AT_LIST(X)                                                                 \
    X(request)                                                                                     \
    X(q_len)                                                                                       \
    X(kv_len)                                                                                      \
    X(query)                                                                                       \
    X(position)                                                                                    \
    X(head)                                                                                        \
    X(kv_head)                                                                                     \
    X(key)                                                                                         \
    X(dim)

typedef struct bolide__variant_at {
#define BOLIDE__VARIANT_AT_FIELD(name) int32_t name;
    BOLIDE__VARIANT_AT_LIST(BOLIDE__VARIANT_AT_FIELD)
#undef BOLIDE__VARIANT_AT_FIELD
} bolide__variant_at;

/* A parameter of a variant: a number, or the address of an array. */
typedef struct bolide__variant_extra {
    double number;
    const void *data;
} bolide__variant_extra;

enum { BOLIDE__VARIANT_PARAMS = 8 };

/* An item of the schedule with all that a block of threads must know of its request; 80 bytes, so
 * that it is copied in five pieces of 16. */
typedef struct bolide__attention_work {
    int64_t mask_elem, mask_byte; /* of the request, see bolide__attention_request */
    int32_t q_start, o_start, q_len, kv_len;
    int32_t kv_start, v_start;
    int32_t row, kv_begin;
    int32_t kv_end, slot; /* slot -1: the item is the whole tile and writes the output */
    int32_t request;
    int32_t merge; /* which tile of those that are in several pieces; -1: in one */
    int32_t merge_slot, merge_count;
    int32_t list_begin, list_count; /* in a list for sm_90: the items that share keys with this one
                                       and lie beside it */
} bolide__attention_work;

/* What a worker begins with; 96 bytes. */
typedef struct bolide__attention_head {
    bolide__attention_work first; /* its first item, if it has one */
    int32_t begin, count;         /* its items among the works */
    int32_t unused[2];
} bolide__attention_head;

/* The schedule of a single request by a rule instead of a list: `tiles` tiles in `pieces` pieces
 * each. Tiles are dealt to the workers longest first, back and forth. */
typedef struct bolide__attention_rule {
    bolide__attention_request request;
    int32_t tiles, pieces;
} bolide__attention_rule;

/* What a plan on the GPU works with, see attention_plan.cu: a tile, and where the stretch of a
 * worker begins. */
typedef struct bolide__attention_tile {
    int32_t request, row, kv_begin, kv_end;
} bolide__attention_tile;

typedef struct bolide__attention_cut {
    int32_t tile, key;      /* the key at which the tile is cut */
    int32_t inside, behind; /* a cut; else the stretch begins at the tile or behind it */
    int32_t cuts_before, divided_before; /* cuts, and tiles that are divided, before this one */
} bolide__attention_cut;

/* Lengths as in bolide__attention_problem, NULL where they are not given. */
typedef struct bolide__attention_planner {
    const int32_t *qo, *kv, *v, *o; /* [batch + 1] */
    const int32_t *kv_len, *q_len;  /* [batch] */
    bolide__schedule_counts *counts;
    int32_t *arrivals;             /* [max_merges, h_kv] */
    bolide__attention_head *heads; /* [workers] */
    bolide__attention_work *works; /* [max_tiles + workers] */
    int32_t *tile_start;           /* [batch]: first tile of a request */
    bolide__attention_tile *tiles; /* [max_tiles] */
    int64_t *place;                /* [max_tiles]: where a tile begins on the tape */
    bolide__attention_cut *cuts;   /* [workers + 1] */
    int64_t batch, group, tile_rows, workers, h_kv, max_tiles, max_merges;
    int64_t q_len_per_req, max_kv_len;
    int64_t causal, window_left, tile_cost, min_chunk, granule, least_busy;
    int64_t merged_apart; /* as of the frozen part */
} bolide__attention_planner;

/* A number, or a device array of one value or one a head. */
typedef struct bolide__attention_scale {
    const float *tensor; /* [1] or [heads]; NULL: the number */
    int64_t step;        /* elements between heads; 0 for one value */
    double number;
} bolide__attention_scale;

/* Strides are in elements; the last dimension of every tensor is contiguous. Head h of q reads key
 * head h / group; packed row r of a request is token r / group with query head kv_head * group +
 * r % group. Key j of a request lies on page entry j / page_size of its list, row j % page_size;
 * without pages (indices NULL) in row kv_start + j of k, v_start + j of v. */
typedef struct bolide__attention_params {
    const void *q;          /* [rows, h_q, d_qk] */
    const void *k;          /* [pages, page_size, h_kv, d_qk] in some order, or [n, h_kv, d_qk] */
    const void *v;          /* the same with d_vo */
    void *out;              /* [rows, h_q, d_vo] */
    float *lse;             /* [rows, h_q]; NULL: not wanted */
    const int32_t *indices; /* page ids; NULL: no pages */
    const uint8_t *mask;    /* custom mask, see flags */
    const float *sinks;     /* [h_q], natural logits; NULL: none */
    const uint32_t *prefix_len;   /* [requests]: keys of the prefix that all items share */
    const uint16_t *token_pos;    /* [requests, token_pos_len]: place in the item, 0 a delimiter */
    const uint16_t *max_item_len; /* [requests]: no token_pos is larger; NULL: unknown */
    int64_t token_pos_len;
    const void *q_tail;       /* [rows, h_q, d_tail] with ATTN_TAIL; q then has the other columns */
    const void *k_tail;       /* [pages, page_size, d_tail] for all heads; k likewise */
    const uint8_t *draft;     /* with ATTN_DRAFT: [rows] of draft_bytes, bits of query tokens */
    const int32_t *v_indices; /* page ids of values; NULL: those of keys */
    const float *row_scales;  /* [pages, page_size, d_vo / ATTN_SCALED] of latents of 8 bits */

    int64_t q_n, q_h;
    int64_t k_page, k_n, k_h;
    int64_t v_page, v_n, v_h;
    int64_t q_tail_n, q_tail_h, k_tail_page, k_tail_n;
    int64_t out_n, out_h;
    int64_t lse_n, lse_h;
    int64_t sink_h;
    int64_t q_rows;        /* of the tensors' shapes: rows of q */
    int64_t pages, k_rows; /* pages, and rows of one; without pages 1 and all rows */
    int64_t v_rows;
    int64_t table_row;   /* entries of a request in a block table: request r's list starts at
                            r * table_row; 0: at its kv_start */
    int64_t v_table_row; /* the same of v_indices */
    int64_t draft_row, draft_bytes;        /* bytes between rows, of a row that hold bits */
    int64_t row_scales_page, row_scales_n; /* elements */

    /* the plan's live part and the run's scratch */
    const bolide__schedule_counts *counts;
    const int32_t *worker_start;
    const bolide__attention_request *requests;
    const bolide__attention_item *items;
    const bolide__attention_merge *merges;
    const bolide__attention_head *heads; /* CUDA: [workers] */
    const bolide__attention_work *works; /* CUDA: the items with their requests */
    int32_t *arrivals; /* CUDA: [merges, h_kv] pieces done, 0 between runs; of plans whose pieces
                          are joined by a kernel of its own the first item of each merge */
    bolide__attention_rule rule; /* CUDA: takes the place of the lists if tiles > 0 */
    float *partial_o;            /* [slots, h_kv, tile_rows, d_vo]: sums of p v, not divided */
    float *partial_ml;           /* [slots, h_kv, tile_rows, 2]: largest logit (base 2), sum of p */

    int64_t h_q, h_kv, group, d_qk, d_vo, page_size;
    int64_t d_tail;     /* of d_qk; 0 without ATTN_TAIL */
    int64_t page_shift; /* CUDA: page_size is 1 << page_shift; −1: of no number */
    int64_t tile_rows;
    int64_t workers;                    /* stretches of the schedule */
    int64_t q_dtype, kv_dtype, o_dtype; /* BOLIDE_F16 … */
    int64_t flags;
    int64_t window_left; /* −1: no limit */
    int64_t chunk;       /* of chunked attention; 0: off */
    double sm_scale;
    double soft_cap; /* 0: off */
    double rope_scale, rope_theta;
    bolide__attention_scale q_scale;    /* a query head */
    bolide__attention_scale k_scale;    /* a key head */
    bolide__attention_scale tail_scale; /* of k_tail, one value */
    bolide__attention_scale v_scale;
    bolide__attention_scale o_scale; /* one value */
    bolide__variant_extra extra[BOLIDE__VARIANT_PARAMS];

    /* host only */
    int64_t list_count; /* entries of indices, from the first to the last */
    const struct bolide_variant *variant;
    const char *variant_text; /* what a kernel includes as "variant.cuh"; NULL: no variant */

    /* CPU only */
    unsigned char *lanes; /* lane_count x lane_bytes */
    int64_t lane_count, lane_bytes;
    int64_t unit_heads; /* key heads that one unit of work takes together; divides h_kv */
    int64_t *next_unit; /* counter that the lanes share */
    const struct bolide__gemm_kernel *units;   /* for many rows of bf16; NULL: f32 */
    const double *rope_frequency;              /* [d_qk / 2]: rope_theta^(-2i/d_qk) / rope_scale */
    const struct bolide__variant_hooks *hooks; /* of a variant; NULL: none */
    /* With ATTN_PLACED row x of q is row x % fold_q of a matrix, entry y of the cache (page id *
     * page_size + row in the page) its column y % fold_kv, and these are the positions, aligned at
     * the bottom right. */
    int64_t fold_q, fold_kv;
} bolide__attention_params;

#ifndef __CUDACC_RTC__

#include "core/op.h"
#include "cpu/cpu.h"

/* What plan made and run needs. frozen is a function of the declared maxima, heads, sizes, dtypes,
 * options and the context only. */
typedef struct bolide__attention_plan {
    bolide_plan head;
    struct bolide__attention_frozen {
        int64_t h_q, h_kv, d_qk, d_vo, d_tail, page_size, kv_layout;
        int64_t q_dtype, kv_dtype, o_dtype;
        int64_t flags, window_left, chunk, use_custom_mask, use_indptr, paged;
        double sm_scale, soft_cap, rope_scale, rope_theta;
        int64_t fold_q, fold_kv; /* rows and columns of a matrix of blocks; 0: none */
        int64_t tile_rows, workers, unit_heads;
        int64_t keys, stages; /* CUDA: of a block's tiles; keys 0: the float32 kernel; stages 0:
                                 that of latents */
        int64_t sm90;         /* CUDA: the list is for attention_sm90.cu: blocks that a key head has
                                 to itself, at least 1 */
        int64_t sm90_cuts;    /* CUDA: and its tiles may be few enough to be cut */
        int64_t latent90; /* CUDA: blocks of attention_latent_sm90.cu that share an item; 0: it is
                         for attention_latent.cu alone */
        int64_t few; /* CUDA: blocks of attention_few.cu that share a request; 0: it takes none */
        int64_t few_warps; /* of such a block */
        int64_t stream;    /* CUDA: attention_stream.cu takes its runs: blocks that share a request;
                              1: items are of workers */
        int64_t stream_slots;                   /* units of a warp on their way */
        int64_t merged_apart;                   /* CUDA: pieces are joined by a kernel of its own */
        int64_t least_busy;                     /* CUDA: of the schedule's rules */
        int64_t ruled, rule_tiles, rule_pieces; /* CUDA: a single request that needs no lists */
        int64_t part;                           /* CUDA: of the requests */
        int64_t q_len;                          /* tokens of every request; 0: they differ */
        int64_t max_rows;                       /* tokens */
        int64_t max_batch, max_items, max_merges, max_slots;
        int64_t worker_start_at, requests_at, items_at, merges_at; /* in device_int */
        int64_t free_at, arrivals_at, heads_at, works_at;          /* CUDA: in device_int */
        int64_t on_device; /* CUDA: lengths were not seen by the host */
        int64_t tile_start_at, tiles_at, place_at, cuts_at; /* on_device: in device_int */
        int64_t tickets_at, order_at; /* sm90: in device_int; in a staging slot */
        int64_t live_bytes; /* of all that is carved for device_int; CUDA: in a staging slot */
        int64_t partial_o_at, partial_ml_at, frequency_at, lanes_at; /* in device */
        int64_t lane_count, lane_bytes;
        int64_t device_bytes, device_int_bytes, pinned_bytes;
        int64_t device_type;
    } frozen;
    struct bolide__attention_now {
        int64_t batch, rows, out_rows, kv_rows, v_rows; /* what run's tensors must have */
        int64_t mask_elems, mask_bytes, index_count, staging_slot;
        int64_t most_rows; /* of one request */
    } now;
} bolide__attention_plan;

/* The texts of a variant as functions of the CPU; NULL: there is no such text. x has n elements:
 * neighbouring keys for logits, neighbouring columns for the others. */
typedef void bolide__variant_row(float *x, int n, const bolide__variant_at *at,
                                 const bolide__variant_extra *extra);
typedef struct bolide__variant_hooks {
    bolide__variant_row *logits, *query, *key, *value, *output;
    /* Bit j: whether key at->key + j is seen, n up to 64. */
    uint64_t (*mask)(int n, const bolide__variant_at *at, const bolide__variant_extra *extra);
    bool no_softmax;
} bolide__variant_hooks;

/* Parts of a batch that two kernels compute at the same time: requests of more packed rows than
 * attention.cu takes at once, and the others. */
enum { BOLIDE__PART_MANY = 1, BOLIDE__PART_FEW = 2 };

/* The plan arguments of every operator in one form. The arrays are i32, on the host or the device.
 */
typedef struct bolide__attention_problem {
    int64_t h_q, h_kv, d_qk, d_vo, page_size, kv_layout; /* page_size 0: no pages */
    int64_t d_tail;                     /* columns of d_qk that lie in tensors of their own */
    int64_t latent;                     /* 1: values are the other columns of the keys */
    int64_t q_dtype, kv_dtype, o_dtype; /* BOLIDE_NO_INT: not given */
    int64_t pos_encoding_mode, causal, use_custom_mask, window_left;
    int64_t chunk; /* of chunked attention; 0: off */
    double logits_soft_cap, sm_scale, rope_scale, rope_theta;
    int64_t fixed_split_size, disable_split_kv;
    int64_t q_len_per_req;                   /* decode; 0: qo_indptr says */
    int64_t max_batch, max_rows, max_kv_len; /* BOLIDE_NO_INT: not declared */
    int64_t max_q_len;                       /* bound of one request; BOLIDE_NO_INT: none */
    int64_t batch;
    int64_t on_device;       /* 1: CUDA plans from lengths that stay on the device */
    int64_t part;            /* of the requests; 0: all */
    int64_t single;          /* 1: one request that is planned and run in the same call */
    int64_t fold_q, fold_kv; /* rows and columns of a matrix of blocks; 0: none */
    int64_t placed;          /* 1: positions are places in that matrix */

    const bolide_tensor *qo_indptr;           /* [b+1] */
    const bolide_tensor *kv_indptr;           /* [b+1] pages, or keys without pages */
    const bolide_tensor *last_page_len;       /* [b] */
    const bolide_tensor *kv_len;              /* [b] keys of each request; NULL: kv_indptr says */
    const bolide_tensor *q_len;               /* [b] rows of each request; NULL: qo_indptr says */
    const bolide_tensor *v_indptr, *o_indptr; /* [b+1] rows of v, of out; NULL: like k, like q */
    struct {
        const char *qo_indptr, *kv_indptr, *last_page_len, *kv_len; /* the operator's names */
        const char *d_qk, *d_vo, *h_q, *h_kv, *max_rows;
    } name;

    const struct bolide_variant *variant;
    const bolide_workspace *workspace;
    bolide_plan *plan;
    int64_t magic;
} bolide__attention_problem;

bolide_status bolide__attention_check_page_size(const bolide__call *call, int64_t page_size);
/* What rows cannot say of plan arguments: heads divide, sizes, combinations. */
bolide_status bolide__attention_check_plan(const bolide__call *call,
                                           const bolide__attention_problem *pr);
bolide_status bolide__attention_sizes(const bolide__call *call, const bolide__attention_problem *pr,
                                      bolide_sizes *sizes);
bolide_status bolide__attention_make_plan(const bolide__call *call,
                                          const bolide__attention_problem *pr);
/* Of a plan whose lengths stay on the GPU. */
bolide_status bolide__attention_check_on_device(const bolide__call *call,
                                                const bolide__attention_problem *pr);
bolide_status bolide__attention_plan_on_device(const bolide__call *call,
                                               const bolide__attention_problem *pr,
                                               const struct bolide__attention_frozen *f,
                                               const bolide__schedule_rules *rules);
/* Whether two kernels take a part of the requests each, with a plan each. */
bool bolide__attention_has_parts(const bolide__call *call, const bolide__attention_problem *pr);
/* The live part's works and heads, from what the schedule has left there. */
void bolide__attention_write_works(const struct bolide__attention_frozen *f,
                                   const bolide__schedule_counts *counts, int32_t blocks,
                                   char *live);
/* Leaves the requests of the plan's part with rows and the workers that are to be busy; how many
 * blocks of the kernel for many rows are. */
int32_t bolide__attention_take_part(const bolide__call *call,
                                    const struct bolide__attention_frozen *f,
                                    bolide__attention_request *requests, int32_t batch,
                                    bolide__schedule_rules *rules);
/* For a single request on CUDA: a plan that is a rule, without lists and without a copy. */
bolide_status bolide__attention_make_rule(const bolide__call *call,
                                          const bolide__attention_problem *pr);

/* An item in one piece with its request, as kernels for CUDA read it. */
bolide__attention_work bolide__attention_work_of(const bolide__attention_request *request,
                                                 const bolide__attention_item *item);

/* Reads and checks the lengths; staging is pinned memory for those that come from the device. */
bolide_status bolide__attention_requests(const bolide__call *call,
                                         const bolide__attention_problem *pr, int32_t *staging,
                                         struct bolide__attention_now *now,
                                         bolide__attention_request *requests);

/* The names that a run's rows take from the plan; for bolide_op.plan_dims. */
extern const bolide__plan_dim bolide__attention_plan_dims[];

/* The run arguments of every operator in one form. */
typedef struct bolide__attention_run_args {
    const bolide_tensor *q, *k, *v, *indices, *block_tables;
    const bolide_tensor *q_tail, *k_tail; /* or NULL */
    const bolide_tensor *custom_mask, *packed_custom_mask, *sinks;
    const bolide_tensor *draft_mask, *v_block_tables;
    double q_scale, k_scale, v_scale, o_scale;
    const bolide_tensor *q_scale_tensor, *k_scale_tensor, *v_scale_tensor, *o_scale_tensor;
    double tail_scale;
    const bolide_tensor *tail_scale_tensor;
    const bolide_tensor *row_scales; /* of k, a latent of 8 bits; or NULL */
    const bolide_tensor *prefix_len, *token_pos, *max_item_len;
    int64_t token_pos_len;
    int64_t lse_base_e;
    const double *soft_cap; /* of this run; NULL or NaN there: the plan's */
    const bolide_tensor *out, *lse;
    const struct bolide_variant *variant;
    const bolide_workspace *workspace;
    const bolide_plan *plan;
    const char *indices_name;
} bolide__attention_run_args;

/* A scale's tensor: NULL, one element or one a head. */
bolide_status bolide__attention_check_scale(const bolide__call *call, const char *name,
                                            const bolide_tensor *t, int64_t heads);
/* Masks against each other, and scales. */
bolide_status bolide__attention_check_args(const bolide__call *call,
                                           const bolide__attention_run_args *a, int64_t h_q,
                                           int64_t h_kv);
/* Those and what the plan says. */
bolide_status bolide__attention_check_run(const bolide__call *call,
                                          const bolide__attention_run_args *a);
bolide__attention_params bolide__attention_fill(const bolide__attention_run_args *a);
bolide_status bolide__attention_cpu_run(const bolide__call *call, bolide__attention_params *p);
bolide_status bolide__attention_cuda_run(const bolide__call *call,
                                         const bolide__attention_plan *plan,
                                         bolide__attention_params *p);
/* A run of a planned operator, on the backend of its context. */
bolide_status bolide__attention_run(const bolide__call *call, const bolide__attention_run_args *a);

/* Whether a variant is whole: size, texts, parameters. NULL is. */
bolide_status bolide__attention_check_variant(const bolide__call *call,
                                              const struct bolide_variant *variant);
/* Its text for the GPU and its parameters into p; for the CPU its functions into hooks and p. */
bolide_status bolide__attention_variant_text(const bolide__call *call,
                                             const struct bolide_variant *variant,
                                             bolide__attention_params *p);
bolide_status bolide__attention_variant_hooks(const bolide__call *call,
                                              const struct bolide_variant *variant,
                                              bolide__attention_params *p,
                                              bolide__variant_hooks *hooks);

/* Kernel, tile and workers for CUDA: tile_rows, workers, keys and stages of the frozen part. rows
 * is the usual number of packed rows of a request. */
void bolide__attention_cuda_choose(const bolide__call *call, struct bolide__attention_frozen *f,
                                   int64_t rows, int64_t batch);

/* What the lengths of a batch change of the schedule's rules. */
void bolide__attention_cuda_rules(const struct bolide__attention_frozen *f,
                                  const bolide__attention_request *requests, int64_t batch,
                                  bolide__schedule_rules *rules);

/* Behind that: whether attention_few.cu has the plan's runs. No request has more than kv_len keys.
 * Nothing of the layout depends on it. */
void bolide__attention_few_choose(const bolide__call *call, struct bolide__attention_frozen *f,
                                  int64_t batch, int64_t kv_len);

/* Behind both: whether attention_stream.cu has the plan's runs, with how many workers. kv_len: the
 * longest request that the plan allows, 0 where it does not say; balanced: it may cut anywhere. */
void bolide__attention_stream_choose(const bolide__call *call, struct bolide__attention_frozen *f,
                                     int64_t batch, int64_t kv_len, bool balanced);

/* Gives a plan for attention.cu tiles of so many rows; false if none fit, and nothing changes. */
bool bolide__attention_cuda_rows(const bolide__call *call, struct bolide__attention_frozen *f,
                                 int64_t rows);

/* Rows of scores in a CPU lane's scratch: of all heads for few rows, else of one. */
static inline int64_t bolide__attention_score_rows(int64_t unit_heads, int64_t tile_rows) {
    const int64_t few = tile_rows < BOLIDE__ATTN_DOT_ROWS ? tile_rows : BOLIDE__ATTN_DOT_ROWS;
    return unit_heads * few > tile_rows ? unit_heads * few : tile_rows;
}
/* Whether a run may have scales of parts of a row: then the CPU's kernel has room for rows in f32.
 */
static inline bool bolide__attention_may_scale_rows(int64_t flags, int64_t kv_dtype) {
    return flags & BOLIDE__ATTN_LATENT && kv_dtype & (BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2);
}
/* Bytes of scratch that one CPU lane needs. */
int64_t bolide__attention_lane_bytes(const struct bolide__attention_frozen *f);

/* arg is a bolide__attention_params; items are lanes. */
BOLIDE_CPU_KERNEL(attention_lane, (void *arg, int64_t begin, int64_t end, int worker));
/* Items are pairs of an entry of the merge list and a key head, head fastest. */
BOLIDE_CPU_KERNEL(attention_merge, (void *arg, int64_t begin, int64_t end, int worker));

#endif

#endif
