// SPDX-License-Identifier: Apache-2.0
//
// Cases of the rope family.

#include "ops_test.h"

static const char *const apply_rope_pos_ids_cases[] = {
    "apply_rope_pos_ids n=0,1,7 h_q=1,4 h_kv=1,2 d=64,80,128 q=f16,bf16,f32 pos_ids=i32,i64 "
    "interleave=0,1",
    "apply_rope_pos_ids d=256 rotary_dim=64 from=700 pos=2355 q=f16,f32 interleave=0,1",
    "apply_rope_pos_ids d=100 rotary_dim=2,34,100 q=bf16 interleave=0,1",
    "apply_rope_pos_ids q=f32 d=128 from=131000 pos=1048576 rope_theta=10000,5e5 pos_ids=i32,i64",
    "apply_rope_pos_ids q=f16 rope_scale=4 rope_theta=1e6",
    "apply_rope_pos_ids q=bf16 q_rope_out=q k_rope_out=k rotary_dim=32 interleave=0,1",
    "apply_rope_pos_ids q=bf16 q_rope_out=q k_rope_out=k q.pad=16 k.pad=8 n=6",
    "apply_rope_pos_ids q=f16 q.pad=5 q_rope_out.pad=3 k.order=1:0:2 n=6",
    "apply_rope_pos_ids q=f32 q.values=nan,inf,mix",
    "apply_rope_pos_ids h_kv=0 q=f32",
    "apply_rope_pos_ids n=300 h_q=32 h_kv=8 d=128 q=bf16",
    "apply_rope_pos_ids rotary_dim=3 expect=invalid_argument:rotary_dim",
    "apply_rope_pos_ids rotary_dim=66 expect=invalid_argument:rotary_dim",
    "apply_rope_pos_ids rope_theta=0 expect=invalid_argument:rope_theta",
    "apply_rope_pos_ids rope_scale=-1 expect=invalid_argument:rope_scale",
};
BOLIDE_TEST(apply_rope_pos_ids, apply_rope_pos_ids_cases);

static const char *const apply_rope_cases[] = {
    "apply_rope len=1,5:0:3,0:0:7:1:90 spare=0,4 q=f16,bf16,f32 interleave=0,1",
    "apply_rope len=3:4 q=bf16 q_rope_out=q k_rope_out=k spare=3",
    "apply_rope len=3:4 q=f32 pos=1048576 rotary_dim=32",
    "apply_rope len=none spare=3 q=f16",
};
BOLIDE_TEST(apply_rope, apply_rope_cases);

static const char *const apply_llama31_rope_pos_ids_cases[] = {
    "apply_llama31_rope_pos_ids n=9 d=64,128 q=f16,bf16,f32 pos=131072 interleave=0,1",
    "apply_llama31_rope_pos_ids q=f32 rope_scale=32 low_freq_factor=0.5 high_freq_factor=2 "
    "old_context_len=1000 rotary_dim=48",
    "apply_llama31_rope_pos_ids high_freq_factor=1 expect=invalid_argument:high_freq_factor",
    "apply_llama31_rope_pos_ids old_context_len=0 expect=invalid_argument:old_context_len",
};
BOLIDE_TEST(apply_llama31_rope_pos_ids, apply_llama31_rope_pos_ids_cases);

static const char *const apply_llama31_rope_cases[] = {
    "apply_llama31_rope len=2:0:9 spare=0,2 q=f16,bf16,f32 pos=131072",
    "apply_llama31_rope len=4 q=f16 q_rope_out=q k_rope_out=k interleave=1",
};
BOLIDE_TEST(apply_llama31_rope, apply_llama31_rope_cases);

static const char *const apply_rope_with_cos_sin_cache_cases[] = {
    "apply_rope_with_cos_sin_cache n=0,1,50 query=f16,bf16,f32 positions=i32,i64 is_neox=0,1",
    "apply_rope_with_cos_sin_cache d=256 rotary_dim=64,2,100 query=bf16 is_neox=0,1",
    "apply_rope_with_cos_sin_cache query=f16 query_out=query key_out=key cos_sin_cache.pad=8",
    "apply_rope_with_cos_sin_cache max_pos=0 query=f16",
    "apply_rope_with_cos_sin_cache rotary_dim=66 expect=invalid_argument:cos_sin_cache",
    "apply_rope_with_cos_sin_cache query=f16 key=f32 expect=invalid_argument:key",
};
BOLIDE_TEST(apply_rope_with_cos_sin_cache, apply_rope_with_cos_sin_cache_cases);
