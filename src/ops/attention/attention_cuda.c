// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend of the attention operators: which of the two kernels computes a problem
// (attention.cu on tensor cores, attention_float.cu), its tiles, its shared memory, its
// specialisation and its launch. The merge of tiles in several pieces is part of the kernels, but
// for latents (attention_latent_merge.cu).

#include "core/context.h"
#include "cuda/cuda.h"
#include "ops/attention/attention_sm90.h"
#include "ops/attention/attention_stream.h"

typedef struct bolide__attention_frozen frozen_part;

enum {
    MAX_HEAD_DIM = 256, /* of the tensor-core kernel */
    MAX_STAGES = 4,
    MIN_STAGES = 2,
    WINDOW = 16,     /* items at hand, as the kernel has it */
    RESERVED = 1024, /* bytes of each block, by the driver */
    FLOAT_ROWS = 16
};

/* The bits of the kernels' FLAGS. */
enum {
    PAGED = 1,
    MASKED = 2,
    CAPPED = 4,
    ALIBI = 8,
    WIDE = 16,
    SPECIAL = 32,
    ROPE = 64,
    RULED = 128,
    VARIANT = 256,
    V_PAGES = 512,
    CHUNKED = 1024,
    SCALED = 2048,
    PLACED = 4096,
    BESIDE = 8192
};

/* ---- shared memory, the arithmetic of the kernels' structs ------------------------------------
 */

static int64_t padded(int64_t d) {
    return (d + 15) / 16 * 16;
}

/* A row of whole 16-byte pieces: a multiple of 8 of them, or an odd number. */
static int64_t row_bytes(int64_t bytes) {
    const int64_t pieces = bytes / 16;
    return (pieces % 8 == 0 ? pieces : pieces | 1) * 16;
}

static int64_t warps_of(int64_t rows, int64_t keys) {
    return rows == 16 && keys < 64 ? keys / 16 : rows > 128 ? rows / 32 : 4;
}

static int64_t stage_bytes(const frozen_part *f, int64_t rows, int64_t keys) {
    const int64_t size = bolide__dtype_bytes(f->kv_dtype);
    const int64_t own =
        keys * (row_bytes(padded(f->d_qk) * size) + row_bytes(padded(f->d_vo) * size));
    const int64_t handover = rows == 16 ? warps_of(rows, keys) * 16 * 20 * 4 : 0;
    return own > handover ? own : handover;
}

static int64_t shared_bytes(const frozen_part *f, int64_t rows, int64_t keys, int64_t stages) {
    const int64_t columns = f->flags & BOLIDE__ATTN_PLACED ? stages * keys * 4 : 0;
    const int64_t places = stages * (keys * 16 + 4) + stages * 4 + columns;
    const int64_t works = WINDOW * (int64_t)sizeof(bolide__attention_work);
    const int64_t sums = warps_of(rows, keys) * 16 * 8 + rows * 16 + 16;
    return rows * row_bytes(padded(f->d_qk) * 2) + stages * stage_bytes(f, rows, keys) + places +
           works + sums;
}

/* attention_float.cu: q, a chunk of 64 by 65, weights, places, the item, rotations, sums. */
static int64_t float_shared_bytes(const frozen_part *f) {
    return f->d_qk * 16 * 4 + 64 * 65 * 4 + 64 * 16 * 4 + 64 * 32 +
           (int64_t)sizeof(bolide__attention_work) + (f->d_qk / 2 + 1) * 8 + 32;
}

/* Warps of a block, of which two or four share 16 rows. */
static int64_t latent_warps(const frozen_part *f, int64_t rows) {
    return rows == 16 && f->d_vo % 64 == 0 ? 4 : rows / 8;
}

/* attention_latent.cu: q, two stages of keys, the tile that those of 8 bits become, products handed
 * over, the item, places. */
static int64_t latent_shared_bytes(const frozen_part *f, int64_t rows, int64_t keys) {
    const int64_t row = f->d_qk * 2 + 16;
    const bool narrow = bolide__dtype_bytes(f->kv_dtype) == 1;
    const int64_t stages = narrow ? 2 * (f->d_qk + 16) + row : 2 * row;
    return rows * row + keys * stages + latent_warps(f, rows) * keys / 2 * 128 +
           (int64_t)sizeof(bolide__attention_work) + keys * (narrow ? 48 : 32) + 48;
}

/* ---- the choice of a kernel -------------------------------------------------------------------
 */

static bool needs_float(const frozen_part *f) {
    const int64_t fp8 = BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2;
    return !(f->q_dtype & (BOLIDE_F16 | BOLIDE_BF16 | fp8)) ||
           (!(f->kv_dtype & fp8) && f->kv_dtype != f->q_dtype) || f->d_qk > MAX_HEAD_DIM ||
           f->d_vo > MAX_HEAD_DIM ||
           f->flags & (BOLIDE__ATTN_ROPE | BOLIDE__ATTN_TAIL | BOLIDE__ATTN_VARIANT) ||
           (bolide__attention_may_scale_rows(f->flags, f->kv_dtype) &&
            f->d_vo % BOLIDE__ATTN_SCALED == 0);
}

/* Whether attention_latent.cu computes it. */
static bool is_latent(const frozen_part *f, const bolide__cuda_limits *limits) {
    const int64_t halves = BOLIDE_F16 | BOLIDE_BF16, fp8 = BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2;
    const bool types = f->kv_dtype & fp8 ? f->q_dtype & (halves | fp8)
                                         : f->q_dtype & halves && f->kv_dtype == f->q_dtype;
    return f->flags & BOLIDE__ATTN_LATENT && types && f->d_vo % 32 == 0 && f->d_vo <= 512 &&
           f->d_tail % 16 == 0 && limits->arch >= 80;
}

/* The type of its products. Elements of 8 bits fit f16 as they are; with scales of their own they
 * may be larger. */
static int64_t latent_type(const bolide__attention_params *p) {
    if (p->q_dtype & (BOLIDE_F16 | BOLIDE_BF16))
        return p->q_dtype;
    return p->row_scales ? BOLIDE_BF16 : BOLIDE_F16;
}

/* Rows and keys of a tile of latents, and how many blocks share a multiprocessor; 0: none fits. */
static int64_t choose_latent(const bolide__cuda_limits *limits, frozen_part *f, int64_t rows) {
    for (int64_t keys = 32; keys >= 16; keys /= 2) {
        for (int64_t tile = rows <= 16 ? 16 : rows <= 32 ? 32 : 64; tile >= 16; tile /= 2) {
            const int64_t bytes = latent_shared_bytes(f, tile, keys);
            if (bytes > limits->shared_optin || (keys == 32 && tile < 64 && rows > tile))
                continue;
            const int64_t blocks = limits->shared_sm / (bytes + RESERVED);
            f->tile_rows = tile;
            f->keys = keys;
            return blocks < 1 ? 1 : blocks > 4 ? 4 : blocks;
        }
    }
    return 0;
}

/* Keys and stages of a tile with which so many blocks share a multiprocessor. */
static bool fit(const bolide__cuda_limits *limits, frozen_part *f, int64_t rows, int64_t keys,
                int64_t most_stages, int64_t blocks) {
    for (int64_t stages = most_stages; stages >= MIN_STAGES; stages--) {
        const int64_t bytes = shared_bytes(f, rows, keys, stages);
        if (bytes <= limits->shared_optin && blocks * (bytes + RESERVED) <= limits->shared_sm) {
            f->tile_rows = rows;
            f->keys = keys;
            f->stages = stages;
            return true;
        }
    }
    return false;
}

/* Large tiles with two resident blocks are best; a chip with little shared memory takes what
 * fits. */
static int64_t choose_tile(const bolide__cuda_limits *limits, frozen_part *f, int64_t rows) {
    static const struct {
        int64_t keys, blocks;
    } wishes[] = {{128, 3}, {128, 2}, {64, 3}, {64, 2}, {32, 2}, {64, 1}, {32, 1}, {16, 1}};
    /* A tile of few rows waits for memory and needs copies in flight; one of many does not. */
    const int64_t stages = rows == 16 ? MAX_STAGES : MIN_STAGES;
    /* 128 keys of 8 bits are as many bytes as 64 of 16. */
    const bool twice = rows == 16 && bolide__dtype_bytes(f->kv_dtype) == 1;
    /* Two blocks do not hide how long a tile of few rows takes; three have few enough sums. */
    const bool thrice = rows == 16 && f->d_vo <= 128;
    const size_t first = twice ? (thrice ? 0 : 1) : thrice ? 2 : 3;
    for (size_t i = first; i < sizeof wishes / sizeof wishes[0]; i++) {
        if (fit(limits, f, rows, wishes[i].keys, stages, wishes[i].blocks))
            return wishes[i].blocks;
    }
    return 0;
}

/* As many blocks as are resident share the key heads. */
static void choose_workers(const bolide__cuda_limits *limits, frozen_part *f, int64_t blocks) {
    const int64_t resident = blocks * limits->sm_count;
    f->workers = resident > f->h_kv ? resident / f->h_kv : 1;
}

bool bolide__attention_cuda_rows(const bolide__call *call, frozen_part *f, int64_t rows) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    if (f->tile_rows == rows)
        return true;
    const int64_t blocks = choose_tile(limits, f, rows);
    if (blocks)
        choose_workers(limits, f, blocks);
    return blocks > 0;
}

/* attention_few.cu: keys, values and queries, or what warps hand over; what blocks send; the item.
 */
static int64_t few_shared_bytes(const frozen_part *f) {
    const int64_t in = (f->few_warps * 16 * (f->d_qk + f->d_vo) + 16 * f->d_qk) * 2;
    const int64_t hand = f->few_warps * 16 * (f->d_vo + 4) * 4;
    return (in > hand ? in : hand) + 16 * (f->d_vo / 4) * 32 +
           (int64_t)sizeof(bolide__attention_work) + f->few_warps * 16 * 8 + 16 * 12 + 128;
}

/* Blocks of 8 warps, two of which fit a multiprocessor, or of 16, with 16 keys a warp: as many in a
 * cluster as there is room for, if that is enough for the longest request. Half of the chip holds
 * clusters of any size at one block a multiprocessor; all of it would not. */
void bolide__attention_few_choose(const bolide__call *call, frozen_part *f, int64_t batch,
                                  int64_t kv_len) {
    enum { MOST_BLOCKS = 16 };
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int64_t known = BOLIDE_F16 | BOLIDE_BF16, requests = batch * f->h_kv;
    f->few = 0;
    if (limits->arch < 90 || !f->stages || f->tile_rows != 16 || f->on_device || f->q_len < 1 ||
        f->q_len * (f->h_q / f->h_kv) > 16 || !f->paged || f->use_custom_mask ||
        f->flags & BOLIDE__ATTN_PLACED || !(f->q_dtype & known) || f->kv_dtype != f->q_dtype ||
        (f->d_qk != 64 && f->d_qk != 128) || (f->d_vo != 64 && f->d_vo != 128) || batch < 1)
        return;
    for (f->few_warps = 8; f->few_warps <= 16; f->few_warps *= 2) {
        const int64_t room = limits->sm_count * 8 / f->few_warps;
        int64_t blocks = 1;
        while (2 * blocks <= MOST_BLOCKS && 2 * blocks * requests <= room)
            blocks *= 2;
        if (blocks * requests <= room && kv_len <= blocks * f->few_warps * 16 &&
            few_shared_bytes(f) <= limits->shared_optin) {
            f->few = blocks;
            return;
        }
    }
}

/* How pieces of few rows are joined, and into how many few requests are cut: a second launch is
 * faster for one request whose pieces have many rows; else a block joins them and reads 17 at once.
 * Three blocks share a multiprocessor. */
static void choose_merge(frozen_part *f, int64_t rows, int64_t batch) {
    enum { MERGE_ROWS = 384, MERGE_PIECES = 17 };
    f->merged_apart = batch == 1 && rows * f->workers >= MERGE_ROWS;
    f->least_busy = f->workers / 3;
    if (!f->merged_apart && f->least_busy > MERGE_PIECES)
        f->least_busy = MERGE_PIECES;
}

void bolide__attention_cuda_choose(const bolide__call *call, frozen_part *f, int64_t rows,
                                   int64_t batch) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    int64_t blocks = 0;
    f->unit_heads = 1;
    f->keys = f->stages = f->latent90 = f->merged_apart = 0;
    if (is_latent(f, limits)) {
        if (bolide__dtype_bytes(f->kv_dtype) == 2)
            bolide__attention_latent90_choose(call, f, rows);
        blocks = choose_latent(limits, f, f->latent90 ? BOLIDE__LATENT90_ROWS : rows);
        f->merged_apart = blocks > 0;
    } else if (!needs_float(f)) {
        /* 128 rows hold their sums in registers up to a head size of 128, and then leave no room
         * for the conversion of 8-bit operands. */
        const bool narrow = bolide__dtype_bytes(f->kv_dtype) == 1;
        const int64_t most = f->d_vo <= 128 && !narrow && limits->arch >= 80 ? 128 : 64;
        blocks = choose_tile(limits, f, rows <= 16 ? 16 : rows <= 64 ? 64 : most);
    }
    if (!blocks) {
        f->keys = f->stages = 0;
        f->tile_rows = FLOAT_ROWS;
        blocks = 2;
    }
    if (f->latent90) {
        f->tile_rows *= f->latent90;
        f->workers = limits->sm_count > f->latent90 ? limits->sm_count / f->latent90 : 1;
    } else {
        choose_workers(limits, f, blocks);
    }
    if (f->stages && f->tile_rows <= 16)
        choose_merge(f, rows, batch);
}

/* Decode, and latents of which few blocks share an item, do not feel a few workers less; where cuts
 * then fall between requests of one length, less is joined and merged. */
void bolide__attention_cuda_rules(const frozen_part *f, const bolide__attention_request *requests,
                                  int64_t batch, bolide__schedule_rules *rules) {
    const int32_t workers = rules->workers;
    const bool decode = rules->tile_rows <= 16 || f->latent90 > 0;
    if (f->sm90) {
        bolide__attention_sm90_split(f, requests, batch, rules);
    } else if (decode && rules->split == BOLIDE__SPLIT_BALANCED && batch > 0) {
        for (int32_t w = workers; w > workers - workers / 16; w--) {
            if (batch % w == 0 || w % batch == 0) {
                rules->workers = w;
                return;
            }
        }
    }
}

/* ---- the specialisation -----------------------------------------------------------------------
 */

/* Whether every row of K and V can be copied in pieces of 16 bytes. */
static bool is_wide(const bolide__attention_params *p) {
    const int64_t size = bolide__dtype_bytes(p->kv_dtype);
    const int64_t strides =
        p->k_page | p->k_n | p->k_h | p->v_page | p->v_n | p->v_h | p->d_qk | p->d_vo;
    return (((uintptr_t)p->k | (uintptr_t)p->v | (uint64_t)(strides * size)) & 15) == 0;
}

/* Whether every row of q can be loaded eight elements at a time. */
static bool is_q_wide(const bolide__attention_params *p) {
    const int64_t size = bolide__dtype_bytes(p->q_dtype);
    return (((uintptr_t)p->q | (uint64_t)((p->q_n | p->q_h) * size)) & (uint64_t)(8 * size - 1)) ==
           0;
}

static int64_t flags_of(const bolide__attention_params *p, int64_t q_len) {
    const int64_t special =
        BOLIDE__ATTN_MASK_BYTES | BOLIDE__ATTN_MASK_BITS | BOLIDE__ATTN_ITEMS | BOLIDE__ATTN_DRAFT;
    /* One token sees all keys of its item, which the schedule has cut to what is visible. */
    const bool causal = p->flags & BOLIDE__ATTN_CAUSAL && q_len != 1;
    const bool window = p->window_left >= 0 && q_len != 1;
    const bool chunk = p->chunk > 0 && q_len != 1;
    return (p->indices ? PAGED : 0) | (causal || window || chunk ? MASKED : 0) |
           (chunk ? CHUNKED : 0) | (p->v_indices ? V_PAGES : 0) | (p->soft_cap > 0 ? CAPPED : 0) |
           (p->flags & BOLIDE__ATTN_ALIBI ? ALIBI : 0) | (p->flags & special ? SPECIAL : 0) |
           (p->rule.tiles ? RULED : 0) | (p->flags & BOLIDE__ATTN_PLACED ? PLACED : 0);
}

static void add_types(bolide__spec *s, const bolide__attention_params *p) {
    bolide__spec_add(s, "QT", p->q_dtype);  /* 5 values */
    bolide__spec_add(s, "KT", p->kv_dtype); /* 5 values */
    bolide__spec_add(s, "OT", p->o_dtype);  /* 5 values */
    bolide__spec_add(s, "D_QK", p->d_qk);   /* as models have them */
    bolide__spec_add(s, "D_VO", p->d_vo);
}

static bolide_status run_float(const bolide__call *call, const frozen_part *f,
                               const bolide__attention_params *p, bolide__grid *g) {
    bolide__spec s = BOLIDE_SPEC("attention/attention_float.cu", "bolide_attention_float");
    add_types(&s, p);
    bolide__spec_add(&s, "D_TAIL", p->d_tail); /* 0, 64 */
    bolide__spec_add(&s, "FLAGS",
                     flags_of(p, f->q_len) | (p->flags & BOLIDE__ATTN_ROPE ? ROPE : 0) |
                         (p->variant ? VARIANT : 0) | (p->row_scales ? SCALED : 0));
    s.user_source = p->variant_text;
    g->block = 128;
    g->shared = (int32_t)float_shared_bytes(f);
    return bolide__cuda_launch(call, &s, g, p, sizeof *p);
}

/* Where the sums of 128 rows fill the registers, 64 keys go with the plain form only. */
static bool is_crowded(const frozen_part *f, const bolide__attention_params *p, int64_t flags) {
    return f->tile_rows == 128 && f->keys == 64 &&
           ((p->d_qk != 128 && p->d_qk != 64) || (p->d_vo != 128 && p->d_vo != 64) ||
            (flags & PAGED && !(flags & MASKED)) ||
            flags & (CAPPED | ALIBI | SPECIAL | RULED | PLACED) || !(flags & WIDE));
}

/* Joins pieces: a column of blocks for each tile that the schedule may have cut. How many it has
 * cut only the plan's live part says. */
static bolide_status run_merge(const bolide__call *call, const frozen_part *f,
                               const bolide__attention_params *p) {
    enum { BLOCKS = 2048, THREADS = 512 };
    bolide__spec s =
        BOLIDE_SPEC("attention/attention_latent_merge.cu", "bolide_attention_latent_merge");
    if (!f->max_merges)
        return BOLIDE_OK;
    bolide__spec_add(&s, "OT", p->o_dtype);  /* 5 values */
    bolide__spec_add(&s, "D_VO", p->d_vo);   /* multiples of 8 up to 512 */
    const int64_t own = f->q_len * p->group; /* rows of a request; 0: they differ */
    const int64_t tiles = f->max_batch * ((own + f->tile_rows - 1) / f->tile_rows);
    const int64_t merges = own && tiles < f->max_merges ? tiles : f->max_merges;
    const int64_t most = own && own < f->tile_rows ? own : f->tile_rows;
    const int64_t wanted = BLOCKS / (merges * f->h_kv);
    const bolide__grid g = {.x = merges,
                            .y = f->h_kv,
                            .z = wanted > most ? most
                                 : wanted < 1  ? 1
                                               : wanted,
                            .block = THREADS,
                            .dependent = BOLIDE__BEHIND_OWN};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

/* Whether attention_few.cu can take a run of its plan, and takes it. */
static bolide_status run_few(const bolide__call *call, const frozen_part *f,
                             const bolide__attention_params *p, int64_t flags, bool *served) {
    *served = f->few && flags & PAGED && flags & WIDE && p->flags & BOLIDE__ATTN_Q_WIDE &&
              !(flags & (SPECIAL | V_PAGES | PLACED));
    if (!*served)
        return BOLIDE_OK;
    bolide__spec s = BOLIDE_SPEC("attention/attention_few.cu", "bolide_attention_few");
    bolide__spec_add(&s, "T", p->q_dtype);       /* f16, bf16 */
    bolide__spec_add(&s, "OT", p->o_dtype);      /* 5 values */
    bolide__spec_add(&s, "D_QK", p->d_qk);       /* 64, 128 */
    bolide__spec_add(&s, "D_VO", p->d_vo);       /* the same */
    bolide__spec_add(&s, "WARPS", f->few_warps); /* 8, 16 */
    bolide__spec_add(&s, "CLUSTER", f->few);     /* 1 to 16 */
    bolide__spec_add(&s, "FLAGS", flags);
    const bolide__grid g = {.x = f->max_batch * f->few,
                            .y = f->h_kv,
                            .block = (int32_t)(32 * f->few_warps),
                            .shared = (int32_t)few_shared_bytes(f),
                            .cluster = (int32_t)f->few,
                            .dependent = 1};
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}

static bolide_status run_tensor(const bolide__call *call, const frozen_part *f,
                                bolide__attention_params *p, bolide__grid *g) {
    const int64_t flags = flags_of(p, f->q_len) | (is_wide(p) ? WIDE : 0) |
                          (f->part == BOLIDE__PART_FEW ? BESIDE : 0);
    const int64_t keys = is_crowded(f, p, flags) ? 32 : f->keys;
    bolide__spec s = BOLIDE_SPEC("attention/attention.cu", "bolide_attention");
    add_types(&s, p);
    bolide__spec_add(&s, "ROWS", f->tile_rows); /* 16, 64, 128 */
    bolide__spec_add(&s, "KEYS", keys);         /* 16 to 128: follow from the others, the chip */
    bolide__spec_add(&s, "STAGES", f->stages);  /* 2, 3, 4: the same */
    bolide__spec_add(&s, "FLAGS", flags);
    const bool apart = f->merged_apart && !f->ruled;
    p->flags |= (is_q_wide(p) ? BOLIDE__ATTN_Q_WIDE : 0) | (apart ? BOLIDE__ATTN_APART : 0);
    bool served = false;
    BOLIDE_TRY(bolide__attention_stream_run(call, f, p, flags, &served));
    if (!served && (f->stream <= 1 || f->stream_slots == 1))
        BOLIDE_TRY(run_few(call, f, p, flags, &served));
    if (served)
        return BOLIDE_OK;
    g->block = (int32_t)(32 * warps_of(f->tile_rows, keys));
    g->shared = (int32_t)shared_bytes(f, f->tile_rows, keys, f->stages);
    BOLIDE_TRY(bolide__cuda_launch(call, &s, g, p, sizeof *p));
    return apart ? run_merge(call, f, p) : BOLIDE_OK;
}

/* Whether every row of the caches can be copied in pieces of 16 bytes. */
static bool is_latent_wide(const bolide__attention_params *p) {
    const int64_t strides = p->k_page | p->k_n | p->k_tail_page | p->k_tail_n;
    const int64_t bytes = strides * bolide__dtype_bytes(p->kv_dtype);
    return (((uintptr_t)p->k | (uintptr_t)p->k_tail | (uint64_t)bytes) & 15) == 0;
}

static bool is_latent_q_wide(const bolide__attention_params *p) {
    const int64_t strides = p->q_n | p->q_h | p->q_tail_n | p->q_tail_h;
    return (((uintptr_t)p->q | (uintptr_t)p->q_tail | (uint64_t)(strides * 2)) & 15) == 0;
}

static bolide_status run_latent(const bolide__call *call, const frozen_part *f,
                                bolide__attention_params *p, bolide__grid *g) {
    const int64_t flags = flags_of(p, f->q_len) & (MASKED | CAPPED | SPECIAL);
    bool served = false;
    if (f->latent90)
        BOLIDE_TRY(bolide__attention_latent90_run(call, f, p, flags, &served));
    if (served)
        return run_merge(call, f, p);
    const int64_t shares = f->latent90 ? f->latent90 : 1, rows = f->tile_rows / shares;
    bolide__spec s = BOLIDE_SPEC("attention/attention_latent.cu", "bolide_attention_latent");
    bolide__spec_add(&s, "T", latent_type(p)); /* f16, bf16 */
    bolide__spec_add(&s, "QT", p->q_dtype);    /* that, two of 8 bits */
    bolide__spec_add(&s, "KT", p->kv_dtype);   /* the same */
    bolide__spec_add(&s, "OT", p->o_dtype);    /* 5 values */
    bolide__spec_add(&s, "D_CKV", p->d_vo);    /* 512, 256 */
    bolide__spec_add(&s, "D_KPE", p->d_tail);  /* 64, 0 */
    bolide__spec_add(&s, "ROWS", rows);        /* 16, 32, 64 */
    bolide__spec_add(&s, "KEYS", f->keys);     /* 32, 16: the chip */
    bolide__spec_add(&s, "FLAGS",
                     flags | (is_latent_wide(p) ? WIDE : 0) | (p->row_scales ? SCALED : 0));
    p->flags |= is_latent_q_wide(p) ? BOLIDE__ATTN_Q_WIDE : 0;
    g->z = shares;
    g->block = (int32_t)(latent_warps(f, rows) * 32);
    g->shared = (int32_t)latent_shared_bytes(f, rows, f->keys);
    BOLIDE_TRY(bolide__cuda_launch(call, &s, g, p, sizeof *p));
    return run_merge(call, f, p);
}

static int64_t page_shift_of(int64_t page_size) {
    const bool power = page_size > 0 && (page_size & (page_size - 1)) == 0;
    return power ? __builtin_ctzll((unsigned long long)page_size) : -1;
}

static bool may_be_signed(const bolide__attention_params *p) {
    return p->q_scale.tensor || p->k_scale.tensor ||
           p->sm_scale * p->q_scale.number * p->k_scale.number < 0;
}

bolide_status bolide__attention_cuda_run(const bolide__call *call,
                                         const bolide__attention_plan *plan,
                                         bolide__attention_params *p) {
    const frozen_part *f = &plan->frozen;
    const int64_t items = f->rule_tiles * f->rule_pieces;
    p->flags |= f->part == BOLIDE__PART_MANY ? BOLIDE__ATTN_SHARED : 0;
    if (f->sm90 && !(p->flags & BOLIDE__ATTN_DRAFT) && !p->v_indices) {
        bool served = false;
        BOLIDE_TRY(bolide__attention_sm90_run(call, f, p, &served));
        if (served)
            return BOLIDE_OK;
    }
    BOLIDE_TRY(bolide__attention_variant_text(call, p->variant, p));
    p->page_shift = page_shift_of(p->page_size);
    p->flags |= may_be_signed(p) ? BOLIDE__ATTN_SIGNED : 0;
    /* A plan on the device has just written what a block reads first. */
    bolide__grid g = {.x = f->workers, .y = f->h_kv, .dependent = !f->on_device};
    if (f->part == BOLIDE__PART_FEW)
        g.dependent = BOLIDE__BEHIND_OWN;
    if (f->ruled) {
        g.x = items < f->workers ? items : f->workers;
        /* Behind a memset there is no kernel to depend on. */
        g.dependent = f->rule_pieces <= 1;
        if (f->rule_pieces > 1)
            BOLIDE_TRY(bolide__cuda_clear(call, p->arrivals,
                                          f->rule_tiles * f->h_kv * (int64_t)sizeof(int32_t)));
    }
    if (!f->keys)
        return run_float(call, f, p, &g);
    return f->stages ? run_tensor(call, f, p, &g) : run_latent(call, f, p, &g);
}
