// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding (Su et al., arXiv:2104.09864). The pair i of a head turns by the angle
// position * freq(i), 0 <= i < rotary_dim / 2:
//
//     freq(i) = rope_theta^(-2 i / rotary_dim) / rope_scale
//
// and for the Llama 3.1 operators, with s = clamp((old_context_len * f / (2 pi) - low_freq_factor)
// / (high_freq_factor - low_freq_factor), 0, 1) and f = rope_theta^(-2 i / rotary_dim):
//
//     freq(i) = (1 - s) * f / rope_scale + s * f
//
// Pairs are (i, i + rotary_dim/2), or (2i, 2i + 1) with interleave. The other head_dim - rotary_dim
// channels are copied. Angles are reduced in float64, so they match float64 at any position that
// an int32 or int64 holds up to 2^31. Arithmetic is f32, rounded once at the store.
//
// q and k are [n, heads, d], f16, bf16 or f32, the last dimension contiguous; each output has shape
// and dtype of its input and may be the input itself (FlashInfer's *_inplace forms).

#ifndef BOLIDE_ROPE_H
#define BOLIDE_ROPE_H

#include <bolide/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ragged: token t of request r has position offsets[r] + t - indptr[r]. Tokens behind indptr[b]
 * are copied unchanged. */
typedef struct bolide_apply_rope_args {
    bolide_args_head head;
    const bolide_tensor *q;          /* [n, h_q, d] */
    const bolide_tensor *k;          /* [n, h_kv, d]: dtype of q */
    const bolide_tensor *indptr;     /* [b+1]: i32 */
    const bolide_tensor *offsets;    /* [b]: i32, position of each request's first token */
    const bolide_tensor *q_rope_out; /* [n, h_q, d] */
    const bolide_tensor *k_rope_out; /* [n, h_kv, d] */
    int64_t rotary_dim;              /* even, at most d; default d */
    int64_t interleave;              /* default 0 */
    double rope_scale;               /* default 1 */
    double rope_theta;               /* default 10000 */
} bolide_apply_rope_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_apply_rope(const bolide_context *ctx,
                                                           const bolide_apply_rope_args *args,
                                                           bolide_stream stream);

/* One position a token, in any order. */
typedef struct bolide_apply_rope_pos_ids_args {
    bolide_args_head head;
    const bolide_tensor *q;          /* [n, h_q, d] */
    const bolide_tensor *k;          /* [n, h_kv, d]: dtype of q */
    const bolide_tensor *pos_ids;    /* [n]: i32 or i64 */
    const bolide_tensor *q_rope_out; /* [n, h_q, d] */
    const bolide_tensor *k_rope_out; /* [n, h_kv, d] */
    int64_t rotary_dim;              /* even, at most d; default d */
    int64_t interleave;              /* default 0 */
    double rope_scale;               /* default 1 */
    double rope_theta;               /* default 10000 */
} bolide_apply_rope_pos_ids_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_apply_rope_pos_ids(
    const bolide_context *ctx, const bolide_apply_rope_pos_ids_args *args, bolide_stream stream);

/* The Llama 3.1 frequencies with ragged positions. */
typedef struct bolide_apply_llama31_rope_args {
    bolide_args_head head;
    const bolide_tensor *q;          /* [n, h_q, d] */
    const bolide_tensor *k;          /* [n, h_kv, d]: dtype of q */
    const bolide_tensor *indptr;     /* [b+1]: i32 */
    const bolide_tensor *offsets;    /* [b]: i32 */
    const bolide_tensor *q_rope_out; /* [n, h_q, d] */
    const bolide_tensor *k_rope_out; /* [n, h_kv, d] */
    int64_t rotary_dim;              /* even, at most d; default d */
    int64_t interleave;              /* default 0 */
    double rope_scale;               /* default 8 */
    double rope_theta;               /* default 500000 */
    double low_freq_factor;          /* default 1 */
    double high_freq_factor;         /* default 4; above low_freq_factor */
    int64_t old_context_len;         /* default 8192 */
} bolide_apply_llama31_rope_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_apply_llama31_rope(
    const bolide_context *ctx, const bolide_apply_llama31_rope_args *args, bolide_stream stream);

/* The Llama 3.1 frequencies with one position a token. */
typedef struct bolide_apply_llama31_rope_pos_ids_args {
    bolide_args_head head;
    const bolide_tensor *q;          /* [n, h_q, d] */
    const bolide_tensor *k;          /* [n, h_kv, d]: dtype of q */
    const bolide_tensor *pos_ids;    /* [n]: i32 or i64 */
    const bolide_tensor *q_rope_out; /* [n, h_q, d] */
    const bolide_tensor *k_rope_out; /* [n, h_kv, d] */
    int64_t rotary_dim;              /* even, at most d; default d */
    int64_t interleave;              /* default 0 */
    double rope_scale;               /* default 8 */
    double rope_theta;               /* default 500000 */
    double low_freq_factor;          /* default 1 */
    double high_freq_factor;         /* default 4; above low_freq_factor */
    int64_t old_context_len;         /* default 8192 */
} bolide_apply_llama31_rope_pos_ids_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_apply_llama31_rope_pos_ids(
    const bolide_context *ctx, const bolide_apply_llama31_rope_pos_ids_args *args,
    bolide_stream stream);

/* Cosines and sines from a table: row p of cos_sin_cache holds the cosines of rotary_dim/2 pairs
 * and then their sines. A position outside the table copies the token unchanged. */
typedef struct bolide_apply_rope_with_cos_sin_cache_args {
    bolide_args_head head;
    const bolide_tensor *positions;     /* [n]: i32 or i64 */
    const bolide_tensor *query;         /* [n, h_q, d] */
    const bolide_tensor *key;           /* [n, h_kv, d]: dtype of query */
    const bolide_tensor *cos_sin_cache; /* [max_pos, rotary_dim]: f32 */
    const bolide_tensor *query_out;     /* [n, h_q, d] */
    const bolide_tensor *key_out;       /* [n, h_kv, d] */
    int64_t is_neox;                    /* 1 (default): halves; 0: interleaved pairs */
} bolide_apply_rope_with_cos_sin_cache_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_apply_rope_with_cos_sin_cache(
    const bolide_context *ctx, const bolide_apply_rope_with_cos_sin_cache_args *args,
    bolide_stream stream);

/* Turns q_rope and k_rope by a table as above, multiplies all parts of q by quant_scale_q and all
 * parts of k by quant_scale_kv, and rounds once to fp8: to nearest even, clamped to the format's
 * finite range; NaN stays NaN. The nope parts are not turned. Either may be absent, together with
 * its output. Keys have heads (MHA, GQA), or, as in MLA, one row a token that all heads share. A
 * position outside the table leaves a token unturned. The dtype of the outputs is FlashInfer's
 * quantize_dtype. */
typedef struct bolide_rope_quantize_fp8_args {
    bolide_args_head head;
    const bolide_tensor *q_rope;        /* [n, h_q, d_rope]: f16, bf16, f32; d_rope even */
    const bolide_tensor *k_rope;        /* [n, h_kv, d_rope] or [n, d_rope]: dtype of q_rope */
    const bolide_tensor *q_nope;        /* [n, h_q, d_nope]: dtype of q_rope; optional */
    const bolide_tensor *k_nope;        /* [n, h_kv, d_nope] or [n, d_nope]; optional */
    const bolide_tensor *cos_sin_cache; /* [max_pos, d_rope]: f32, cosines, then sines */
    const bolide_tensor *pos_ids;       /* [n]: i32 or i64 */
    const bolide_tensor *q_rope_out;    /* shape of q_rope: f8_e4m3fn or f8_e5m2 */
    const bolide_tensor *k_rope_out;    /* shape of k_rope: dtype of q_rope_out */
    const bolide_tensor *q_nope_out;    /* shape of q_nope; given exactly when q_nope is */
    const bolide_tensor *k_nope_out;    /* shape of k_nope; given exactly when k_nope is */
    int64_t is_neox;                    /* 1 (default): halves; 0: interleaved pairs */
    double quant_scale_q;               /* default 1; finite */
    double quant_scale_kv;              /* default 1; finite */
} bolide_rope_quantize_fp8_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_rope_quantize_fp8(
    const bolide_context *ctx, const bolide_rope_quantize_fp8_args *args, bolide_stream stream);

/* rope_quantize_fp8 for MLA: keys without heads, every part given. */
typedef struct bolide_mla_rope_quantize_fp8_args {
    bolide_args_head head;
    const bolide_tensor *q_rope;        /* [n, h_q, d_rope]: f16, bf16, f32; d_rope even */
    const bolide_tensor *k_rope;        /* [n, d_rope]: dtype of q_rope */
    const bolide_tensor *q_nope;        /* [n, h_q, d_nope]: dtype of q_rope */
    const bolide_tensor *k_nope;        /* [n, d_nope]: dtype of q_rope */
    const bolide_tensor *cos_sin_cache; /* [max_pos, d_rope]: f32, cosines, then sines */
    const bolide_tensor *pos_ids;       /* [n]: i32 or i64 */
    const bolide_tensor *q_rope_out;    /* shape of q_rope: f8_e4m3fn or f8_e5m2 */
    const bolide_tensor *k_rope_out;    /* shape of k_rope: dtype of q_rope_out */
    const bolide_tensor *q_nope_out;    /* shape of q_nope: dtype of q_rope_out */
    const bolide_tensor *k_nope_out;    /* shape of k_nope: dtype of q_rope_out */
    int64_t is_neox;                    /* 1 (default): halves; 0: interleaved pairs */
    double quant_scale_q;               /* default 1; finite */
    double quant_scale_kv;              /* default 1; finite */
} bolide_mla_rope_quantize_fp8_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_mla_rope_quantize_fp8(
    const bolide_context *ctx, const bolide_mla_rope_quantize_fp8_args *args, bolide_stream stream);

/* rope_quantize_fp8 with keys and values that go straight into an fp8 cache, as token positions[i]
 * of request batch_indices[i] (page.h says how caches and page tables are laid out). MHA and GQA:
 * keys have heads, v is given, and a key of k_cache holds its turned channels and then the others.
 * MLA: keys have no heads, v is absent, k_nope goes to ckv_cache and k_rope to kpe_cache. v is
 * multiplied by quant_scale_kv as keys are. Skipped, with nothing written to the cache: a request
 * outside 0 … b-1, a position behind the request's pages, a page outside the pool; q is written all
 * the same. Two tokens must not name the same slot. */
typedef struct bolide_rope_quantize_fp8_append_paged_kv_cache_args {
    bolide_args_head head;
    const bolide_tensor *q_rope;        /* [n, h_q, d_rope]: f16, bf16, f32; d_rope even */
    const bolide_tensor *k_rope;        /* [n, h_kv, d_rope] or [n, d_rope]: dtype of q_rope */
    const bolide_tensor *q_nope;        /* [n, h_q, d_nope]: dtype of q_rope; optional */
    const bolide_tensor *k_nope;        /* [n, h_kv, d_nope] or [n, d_nope]; optional with heads */
    const bolide_tensor *v;             /* [n, h_kv, d_vo]: dtype of q_rope; absent for MLA */
    const bolide_tensor *cos_sin_cache; /* [max_pos, d_rope]: f32, cosines, then sines */
    const bolide_tensor *pos_ids;       /* [n]: i32 or i64 */
    const bolide_tensor *k_cache;       /* NHD [p, page_size, h_kv, d_rope + d_nope], or HND */
    const bolide_tensor *v_cache;       /* the same with d_vo */
    const bolide_tensor *ckv_cache;     /* MLA: [p, page_size, d_nope] */
    const bolide_tensor *kpe_cache;     /* MLA: [p, page_size, d_rope] */
    const bolide_tensor *kv_indices;    /* [any]: i32 */
    const bolide_tensor *kv_indptr;     /* [b+1]: i32 */
    const bolide_tensor *batch_indices; /* [n]: i32 */
    const bolide_tensor *positions;     /* [n]: i32 */
    const bolide_tensor *q_rope_out;    /* shape of q_rope: dtype of the caches */
    const bolide_tensor *q_nope_out;    /* shape of q_nope; given exactly when q_nope is */
    int64_t is_neox;                    /* 1 (default): halves; 0: interleaved pairs */
    double quant_scale_q;               /* default 1; finite */
    double quant_scale_kv;              /* default 1; finite */
    int64_t page_size;                  /* optional; if given, that of the caches */
    int64_t kv_layout;                  /* 0 NHD (default), 1 HND; MLA has no heads to order */
} bolide_rope_quantize_fp8_append_paged_kv_cache_args;

BOLIDE_API BOLIDE_MUST_USE bolide_status bolide_rope_quantize_fp8_append_paged_kv_cache(
    const bolide_context *ctx, const bolide_rope_quantize_fp8_append_paged_kv_cache_args *args,
    bolide_stream stream);

#ifdef __cplusplus
}
#endif

#endif
