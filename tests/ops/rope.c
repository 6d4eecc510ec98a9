// SPDX-License-Identifier: Apache-2.0
//
// Cases of the rope family.

#include "ops_test.h"

static const char *const apply_rope_pos_ids_cases[] = {
    "apply_rope_pos_ids n=0,1,7 h_q=1,4 h_kv=1,2 d=64,80,128 q=f16,bf16,f32 pos_ids=i32,i64 "
    "interleave=0,1",
    "apply_rope_pos_ids d=256 rotary_dim=64 from=700 pos=2355 q=f16,f32 interleave=0,1",
    "apply_rope_pos_ids d=100 rotary_dim=2,34,100 q=bf16 interleave=0,1",
    "apply_rope_pos_ids n=210 h_q=32 h_kv=8 d=128 rotary_dim=64,96,128 q=bf16", /* large */
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
    "apply_rope_with_cos_sin_cache n=900 h_q=32 h_kv=8 d=128 rotary_dim=64 query=bf16 is_neox=0,1",
    "apply_rope_with_cos_sin_cache query=f16 query_out=query key_out=key cos_sin_cache.pad=8",
    "apply_rope_with_cos_sin_cache max_pos=0 query=f16",
    "apply_rope_with_cos_sin_cache rotary_dim=66 expect=invalid_argument:cos_sin_cache",
    "apply_rope_with_cos_sin_cache query=f16 key=f32 expect=invalid_argument:key",
};
BOLIDE_TEST(apply_rope_with_cos_sin_cache, apply_rope_with_cos_sin_cache_cases);

static const char *const rope_quantize_fp8_cases[] = {
    "rope_quantize_fp8 n=0,1,7 q_rope=f16,bf16,f32 q_rope_out=f8_e4m3fn,f8_e5m2 is_neox=0,1",
    "rope_quantize_fp8 d_rope=2,34,128,512 d_nope=1,16,100 q_rope=bf16 is_neox=0,1 pos_ids=i32,i64",
    "rope_quantize_fp8 quant_scale_q=0.25 quant_scale_kv=-3 q_rope=bf16,f32",
    "rope_quantize_fp8 quant_scale_q=1e5 quant_scale_kv=1e-3 q_rope=f16 "
    "q_rope_out=f8_e4m3fn,f8_e5m2",
    "rope_quantize_fp8 q_nope=none q_nope_out=none k_nope=none k_nope_out=none q_rope=bf16",
    "rope_quantize_fp8 k_nope=none k_nope_out=none q_rope=f16 is_neox=0",
    "rope_quantize_fp8 k_rope.form=1 k_nope.form=1 k_rope_out.form=1 k_nope_out.form=1 q_rope=bf16",
    "rope_quantize_fp8 q_rope=bf16 q_rope.pad=16 k_nope.pad=3 q_rope_out.pad=5 k_rope_out.pad=8 "
    "cos_sin_cache.pad=4 n=6",
    "rope_quantize_fp8 q_rope=f32 q_rope.values=mix,inf,nan k_nope.values=mix,inf,nan "
    "q_rope_out=f8_e4m3fn,f8_e5m2",
    "rope_quantize_fp8 n=70 h_q=8 h_kv=2 d_rope=128 q_rope=bf16 max_pos=4096",
    "rope_quantize_fp8 max_pos=0 q_rope=f16",
    "rope_quantize_fp8 d_rope=3 expect=invalid_argument:q_rope",
    "rope_quantize_fp8 k_nope.form=1 k_nope_out.form=1 expect=invalid_argument:k_nope",
    "rope_quantize_fp8 q_nope=none expect=invalid_argument:q_nope_out",
    "rope_quantize_fp8 k_nope_out=none expect=invalid_argument:k_nope_out",
    "rope_quantize_fp8 quant_scale_q=inf expect=invalid_argument:quant_scale_q",
    "rope_quantize_fp8 quant_scale_kv=nan expect=invalid_argument:quant_scale_kv",
    "rope_quantize_fp8 q_rope=f16 q_nope=bf16 expect=invalid_argument:q_nope",
};
BOLIDE_TEST(rope_quantize_fp8, rope_quantize_fp8_cases);

static const char *const mla_rope_quantize_fp8_cases[] = {
    "mla_rope_quantize_fp8 n=0,1,7 q_rope=f16,bf16,f32 q_rope_out=f8_e4m3fn,f8_e5m2 is_neox=0,1",
    "mla_rope_quantize_fp8 h_q=1,128 n=3 q_rope=bf16 quant_scale_q=0.5 quant_scale_kv=2",
    "mla_rope_quantize_fp8 d_rope=6 d_nope=5 q_rope=bf16 pos_ids=i64",
    "mla_rope_quantize_fp8 d_rope=514 expect=invalid_argument:q_rope",
    "mla_rope_quantize_fp8 quant_scale_kv=inf expect=invalid_argument:quant_scale_kv",
};
BOLIDE_TEST(mla_rope_quantize_fp8, mla_rope_quantize_fp8_cases);

/* Shapes of a model with d_rope=128 and no other channels, of one with partial rotation, of MLA. */
#define APPEND "rope_quantize_fp8_append_paged_kv_cache "
#define NO_NOPE "q_nope=none q_nope_out=none k_nope=none "
static const char *const rope_quantize_fp8_append_paged_kv_cache_cases[] = {
    APPEND "page=1,3,16 kv_layout=NHD,HND q_rope=f16,bf16,f32 is_neox=0,1",
    APPEND "k_cache=f8_e5m2 v_cache=f8_e5m2 q_rope_out=f8_e5m2 kv_layout=NHD,HND q_rope=bf16",
    APPEND "h_q=8 h_kv=1,2,8 d_rope=128 d_vo=128 " NO_NOPE "q_rope=bf16 kv_layout=NHD,HND",
    APPEND "d_rope=32 d_nope=96 d_vo=128 q_rope=f16 quant_scale_q=0.5 quant_scale_kv=4 pos_ids=i64",
    APPEND "d_rope=6 d_nope=5 d_vo=3 q_rope=f32 is_neox=0,1 page=5",
    APPEND "mla=1 page=1,3,64 q_rope=f16,bf16,f32 is_neox=0,1",
    APPEND "mla=1 d_nope=512 q_rope=bf16 ckv_cache=f8_e5m2 kpe_cache=f8_e5m2 q_rope_out=f8_e5m2",
    APPEND "mla=1 q_rope=bf16 kv_layout=HND ckv_cache.pad=64 kpe_cache.pad=8 k_rope.pad=4",
    APPEND "q_rope=bf16 k_cache.pad=5 v_cache.pad=8 v.pad=3 q_rope_out.pad=7 kv_layout=NHD,HND",
    APPEND "len=8:4:0:16 page=4 spare=0 q_rope=f16",
    APPEND "page=1 spare=200000 d_rope=8 d_nope=8 d_vo=8 h_kv=1 h_q=1 q_rope=f16",
    APPEND "b=0 q_rope=f16",
    APPEND "len=0:0 q_rope=f16",
    APPEND "stated=0 q_rope=bf16",
    APPEND "b=20 max=40 page=16 h_kv=4 h_q=16 d_rope=128 d_vo=128 " NO_NOPE "q_rope=bf16",
    APPEND "q_rope=f32 q_rope.values=mix,inf,nan v.values=mix,inf,nan",
    APPEND "page_size=5 page=4 k_cache.shape=4:4:2:128 expect=invalid_argument:k_cache",
    APPEND "v=none expect=invalid_argument:v",
    APPEND "v_cache=none expect=invalid_argument:v_cache",
    APPEND "k_cache=f8_e5m2 expect=invalid_argument:k_cache",
    APPEND "mla=1 k_nope=none expect=invalid_argument:k_nope",
    APPEND "mla=1 kpe_cache=none expect=invalid_argument:kpe_cache",
    APPEND "d_qk=100 expect=invalid_argument:k_cache",
    APPEND "d_rope=5 expect=invalid_argument:q_rope",
    APPEND "quant_scale_q=nan expect=invalid_argument:quant_scale_q",
};
BOLIDE_TEST(rope_quantize_fp8_append_paged_kv_cache, rope_quantize_fp8_append_paged_kv_cache_cases);
