// SPDX-License-Identifier: Apache-2.0
//
// The same bits on every instruction set with fused operations and for every number of threads.
// Problems are realised by the driver with one seed; the bytes of all outputs are compared. Large
// enough for several pieces of work each, small enough to take no time.

#include <stdio.h>
#include <string.h>

#include "case.h"
#include "driver.h"
#include "scratch.h"

static const char *const problems[] = {
    "rmsnorm n=37 d=1000 input=f16,bf16,f32",
    "gemma_rmsnorm n=37 d=1000 input=f16,bf16,f32",
    "rmsnorm_quant n=37 d=1000 input=f16,bf16,f32 out=f8_e4m3fn,f8_e5m2",
    "fused_rmsnorm_silu n=37 d=1000 input=f16,bf16,f32 out=f16,bf16,f32,f8_e4m3fn",
    "rms_norm n=37 d=1000 x=f16,f8_e4m3fn,f8_e5m2 weight=bf16 out=f32 in_scale=0.3",
    "fused_add_rmsnorm n=37 d=1000 input=f16,bf16,f32",
    "gemma_fused_add_rmsnorm n=37 d=1000 input=f16,bf16,f32",
    "fused_add_rmsnorm_quant n=37 d=1000 input=f16,bf16,f32 out=f8_e4m3fn,f8_e5m2",
    "fused_add_rmsnorm_fp8_block_quant n=37 d=1024 input=f16,bf16,f32",
    "rms_norm_add_residual n=37 d=1000 x=bf16,f8_e4m3fn residual=f32 x_out=f16 x_in_scale=0.3",
    "fused_qk_rmsnorm_rope ppf=4 pph=3 ppw=5 qkv=f16,bf16,f32 interleave=0,1 num_heads_q=8",
    "layernorm n=37 d=1000 input=f16,bf16,f32",
    "layernorm_quant n=37 d=1000 input=f16,bf16,f32 out=f8_e4m3fn,f8_e5m2",
    "fused_dit_gate_residual_layernorm_gamma_beta b=3 s=9 d=1000 input=f16,bf16,f32",
    "fused_dit_gate_residual_layernorm_scale_shift b=3 s=9 d=1000 input=f16,bf16,f32",
    "fused_dit_residual_layernorm_scale_shift b=3 s=9 d=1000 input=f16,bf16,f32",
    "silu_and_mul n=3 d=9001 input=f16,bf16,f32",
    "gelu_and_mul n=3 d=9001 input=f16,bf16,f32",
    "gelu_tanh_and_mul n=3 d=9001 input=f16,bf16,f32",
    "silu_and_mul_scaled n=3 d=9001 x=f16,f8_e5m2 out=bf16,f8_e4m3fn o_scale=3",
    "packbits n=100001 x=bool bitorder=big,little",
    "segment_packbits len=40000:3:70001:1 x=bool",
    "apply_rope len=17:0:20 d=100 rotary_dim=34 q=f16,bf16,f32 interleave=0,1",
    "apply_llama31_rope_pos_ids n=37 q=f16,bf16,f32 pos=131072",
    "apply_rope_with_cos_sin_cache n=37 query=f16,bf16,f32 is_neox=0,1",
    "rope_quantize_fp8 n=37 q_rope=f16,bf16,f32 q_rope_out=f8_e4m3fn,f8_e5m2 is_neox=0,1",
    "rope_quantize_fp8_append_paged_kv_cache b=5 q_rope=bf16 kv_layout=NHD,HND",
    "append_paged_kv_cache b=9 append_key=f32 k_cache=f16,bf16,f8_e4m3fn,f8_e5m2",
    "append_paged_mla_kv_cache b=9 append_ckv=f32 append_kpe=f32 ckv_cache=f16 kpe_cache=f16",
    "single_decode_with_kv_cache q=f32,f16 k=f8_e4m3fn v=f8_e4m3fn out=f32 len=3000 lse=given",
    "batch_decode x=f32 len=9:3000:0:70 lse=given window_left=-1,50",
    "batch_decode x=f32 kv_data_type=f8_e4m3fn,f16 len=9:3000:0:70 lse=given",
    "batch_decode x=f32 pos_encoding_mode=ROPE_LLAMA,ALIBI len=9:300 logits_soft_cap=3",
    "batch_prefill_paged x=f32 len=90:300 causal=1 sinks=given lse=given",
    "batch_prefill_ragged x=f32 len=90:300 causal=0,1 lse=given",
    "batch_attention len=900:33:1:600 q_len=1:33:1:1 x=f32 causal=1 lse=given",
    "merge_state n=37 d=100 x=f16,bf16,f32",
    "merge_states n=37 k=5 d=100 x=f32",
    "variable_length_merge_states n=37 d=100 x=f32",
    "softmax v=5000 n=9 logits=f16,bf16,f32",
    "top_p_renorm_probs v=5000 n=9 probs=f16,bf16,f32",
    "top_k_renorm_probs v=5000 n=9 top_k=50",
    "top_k_mask_logits v=5000 n=9 top_k=50 logits=f16,bf16,f32",
    "sampling_from_probs v=5000 n=9",
    "sampling_from_logits v=5000 n=9 logits=bf16,f32",
    "top_p_sampling_from_probs v=128256 n=3 top_p=0.9",
    "top_k_top_p_sampling_from_logits v=5000 n=9 filter_apply_order=top_k_first,joint",
    "min_p_sampling_from_probs v=5000 n=9 min_p=0.02",
    "chain_speculative_sampling b=9 n=4 v=3000",
    "top_k n=9 v=40000 k=300 sorted=1 input=f16,bf16,f32",
    "top_k_page_table_transform n=9 b=9 v=3000 pages=3000 k=64",
    "top_k_ragged_transform n=9 v=3000 k=64",
    "mm_block_quant m=1,7 n=100 k=576 format=q4_0,q4_1,q8_0 compute=f32",
};

enum { SEED = 1234 };
static const int64_t threads[] = {1, 3};

static int passed, failed;

static uint64_t hash(const driver_case *c) {
    uint64_t h = 14695981039346656037u;
    for (int32_t i = 0; i < c->tensor_count; i++) {
        const driver_tensor *t = &c->tensor[i];
        const unsigned char *bytes = t->present ? case_host(c, t) : NULL;
        for (int64_t k = 0; bytes && case_is_written(t) && k < t->bytes; k++)
            h = (h ^ bytes[k]) * 1099511628211u;
    }
    return h;
}

static void check_case(driver_case *c, bolide_context *ctx, const char *text) {
    uint64_t first = 0;
    int runs = 0;
    for (int isa = BOLIDE__AVX2; isa <= BOLIDE__AVX512; isa++) {
        if (!bolide__cpu_force_isa((bolide__isa)isa))
            continue;
        for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
            const char *where = bolide__isa_name((bolide__isa)isa);
            case_restore(c);
            if (bolide_context_set(ctx, BOLIDE_THREADS, threads[i]) != BOLIDE_OK ||
                (bolide_op_planned(c->op) &&
                 bolide_op_call(c->op, BOLIDE_PLAN, ctx, c->args[BOLIDE_PLAN].bytes, NULL) !=
                     BOLIDE_OK) ||
                bolide_op_call(c->op, BOLIDE_RUN, ctx, c->args[BOLIDE_RUN].bytes, NULL) !=
                    BOLIDE_OK) {
                printf("FAILED: %s: %s: %s\n", text, where, bolide_last_error()->message);
                failed++;
                return;
            }
            const uint64_t h = hash(c);
            first = runs++ == 0 ? h : first;
            if (h != first) {
                printf("FAILED: %s: %s with %lld threads gives other bits\n", text, where,
                       (long long)threads[i]);
                failed++;
                return;
            }
        }
    }
    passed++;
}

static void check_problem(const problem *p, bolide_context *ctx) {
    char text[PROBLEM_TEXT], error[DRIVER_ERROR];
    problem_format(p, text, sizeof text);
    driver_case *c = driver_case_make(p, SEED, error);
    if (c) {
        driver_scratch s;
        bolide_status status;
        case_poison(c, 0xA5);
        if (case_snapshot(c) == 0 && scratch_make(c, ctx, NULL, &s, &status) == 0) {
            check_case(c, ctx, text);
            scratch_free(&s, NULL);
        } else {
            printf("FAILED: %s: %s\n", text, c->error);
            failed++;
        }
        driver_case_free(c);
    } else {
        printf("FAILED: %s: %s\n", text, error);
        failed++;
    }
}

int main(void) {
    bolide_context *ctx;
    if (!bolide__cpu_force_isa(BOLIDE__AVX2)) {
        puts("0 passed, 0 failed, 1 skipped: this machine has no AVX2");
        return 0;
    }
    if (bolide_context_create(BOLIDE_CPU, 0, &ctx) != BOLIDE_OK)
        return 1;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        problem_set set;
        char error[PROBLEM_ERROR];
        if (problem_parse(problems[i], &set, error)) {
            printf("FAILED: %s\n", error);
            failed++;
            continue;
        }
        for (int64_t k = 0; k < set.total; k++) {
            problem p;
            problem_at(&set, k, &p);
            check_problem(&p, ctx);
        }
    }
    bolide_context_destroy(ctx);
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed != 0;
}
