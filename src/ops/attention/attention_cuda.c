// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend of the attention operators: what the portable kernel (attention.cu) takes, its
// specialisation, its shared memory, and the launch of the kernel and of the merge behind it.

#include "core/context.h"
#include "cuda/cuda.h"
#include "ops/attention/attention_internal.h"

enum { KEYS = 64, WARPS = 4, MAX_HEAD_DIM = 256, MAX_STAGES = 4, MIN_STAGES = 2 };

/* The bits of the kernel's FLAGS. */
enum { PAGED = 1, MASKED = 2, CAPPED = 4, ALIBI = 8, WIDE = 16 };

static bolide_status check_supported(const bolide__call *call, const bolide__attention_params *p) {
    const int64_t fp8 = BOLIDE_F8_E4M3FN | BOLIDE_F8_E5M2;
    if (!(p->q_dtype & (BOLIDE_F16 | BOLIDE_BF16 | fp8)))
        return BOLIDE_FAIL_UNSUPPORTED(call, "q", "dtype",
                                       "f16, bf16 or fp8 on the GPU (f32 runs on the CPU)", "%s",
                                       bolide_dtype_name(p->q_dtype));
    if (!(p->kv_dtype & fp8) && p->kv_dtype != p->q_dtype)
        return BOLIDE_FAIL_UNSUPPORTED(
            call, "k_cache", "dtype",
            bolide__text("%s or fp8 on the GPU", bolide_dtype_name(p->q_dtype)), "%s",
            bolide_dtype_name(p->kv_dtype));
    if (p->d_qk > MAX_HEAD_DIM || p->d_vo > MAX_HEAD_DIM)
        return BOLIDE_FAIL_UNSUPPORTED(call, "q", "head size", "at most 256 on the GPU", "%lld",
                                       (long long)(p->d_qk > p->d_vo ? p->d_qk : p->d_vo));
    if (p->flags & BOLIDE__ATTN_ROPE)
        return BOLIDE_FAIL_UNSUPPORTED(call, "plan", "pos_encoding_mode",
                                       "NONE or ALIBI on the GPU (rotate q and k ahead)",
                                       "ROPE_LLAMA");
    if (p->flags & BOLIDE__ATTN_ITEMS)
        return BOLIDE_FAIL_UNSUPPORTED(call, "prefix_len_ptr", "pointer",
                                       "NULL on the GPU (multi-item scoring runs on the CPU)",
                                       "given");
    return BOLIDE_OK;
}

/* ---- shared memory, the arithmetic of the kernel's structs ------------------------------------
 */

static int64_t padded(int64_t d) {
    return (d + 15) / 16 * 16;
}

static int64_t odd_pieces(int64_t bytes) {
    return ((bytes + 15) / 16 | 1) * 16;
}

static int64_t stage_bytes(const bolide__attention_params *p) {
    const int64_t size = p->kv_dtype & (BOLIDE_F16 | BOLIDE_BF16) ? 2 : 1;
    return KEYS * (odd_pieces(padded(p->d_qk) * size) + odd_pieces(padded(p->d_vo) * size));
}

static int64_t shared_bytes(const bolide__attention_params *p, int64_t stages) {
    return p->tile_rows * odd_pieces(padded(p->d_qk) * 2) + stages * stage_bytes(p) +
           (stages + 1) * KEYS * 2 * (int64_t)sizeof(int64_t);
}

/* Most stages with which two blocks share a multiprocessor, or else one block fits. */
static int64_t choose_stages(const bolide__call *call, const bolide__attention_params *p) {
    const bolide__cuda_limits *limits = bolide__cuda_limits_of(call->ctx);
    const int64_t reserved = 1024; /* of each block, by the driver */
    const int64_t joined = WARPS * 16 * (padded(p->d_vo) + 4 + 2) * (int64_t)sizeof(float);
    for (int64_t blocks = 2; blocks >= 1; blocks--) {
        for (int64_t stages = MAX_STAGES; stages >= MIN_STAGES; stages--) {
            const int64_t bytes = shared_bytes(p, stages);
            if (p->tile_rows == 16 && stages * stage_bytes(p) < joined)
                continue;
            if (bytes <= limits->shared_optin && blocks * (bytes + reserved) <= limits->shared_sm)
                return stages;
        }
    }
    return 0;
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

static int64_t flags_of(const bolide__attention_params *p, int64_t q_len) {
    const int64_t mask = BOLIDE__ATTN_MASK_BYTES | BOLIDE__ATTN_MASK_BITS;
    /* One token sees all keys of its item, which the schedule has cut to what is visible. */
    const bool causal = p->flags & BOLIDE__ATTN_CAUSAL && q_len != 1;
    const bool window = p->window_left >= 0 && q_len != 1;
    return (p->indices ? PAGED : 0) | (causal || window || p->flags & mask ? MASKED : 0) |
           (p->soft_cap > 0 ? CAPPED : 0) | (p->flags & BOLIDE__ATTN_ALIBI ? ALIBI : 0) |
           (is_wide(p) ? WIDE : 0);
}

bolide_status bolide__attention_cuda_run(const bolide__call *call,
                                         const bolide__attention_plan *plan,
                                         const bolide__attention_params *p) {
    BOLIDE_TRY(check_supported(call, p));
    const int64_t stages = choose_stages(call, p);
    if (stages == 0)
        return BOLIDE_FAIL_UNSUPPORTED(
            call, "q", "head size",
            bolide__text("one whose tiles fit %d bytes of shared memory",
                         (int)bolide__cuda_limits_of(call->ctx)->shared_optin),
            "%lld, which needs %lld", (long long)p->d_qk, (long long)shared_bytes(p, MIN_STAGES));
    bolide__spec s = BOLIDE_SPEC("attention/attention.cu", "bolide_attention");
    bolide__spec_add(&s, "QT", p->q_dtype);  /* 4 values */
    bolide__spec_add(&s, "KT", p->kv_dtype); /* 4 values, 3 for a q */
    bolide__spec_add(&s, "OT", p->o_dtype);  /* 5 values */
    bolide__spec_add(&s, "D_QK", p->d_qk);   /* as models have them */
    bolide__spec_add(&s, "D_VO", p->d_vo);
    bolide__spec_add(&s, "ROWS", p->tile_rows); /* 16, 64 */
    bolide__spec_add(&s, "STAGES", stages);     /* 2, 3, 4: follows from the others and the chip */
    bolide__spec_add(&s, "FLAGS", flags_of(p, plan->frozen.q_len));
    bolide__grid g = {.x = p->workers,
                      .y = p->h_kv,
                      .block = 32 * WARPS,
                      .shared = (int32_t)shared_bytes(p, stages)};
    BOLIDE_TRY(bolide__cuda_launch(call, &s, &g, p, sizeof *p));
    s.function = "bolide_attention_merge";
    g.x = plan->frozen.max_merges;
    g.shared = 0;
    return bolide__cuda_launch(call, &s, &g, p, sizeof *p);
}
