// SPDX-License-Identifier: Apache-2.0
//
// Cases of the norm family.

#include "ops_test.h"

static const char *const rmsnorm_cases[] = {
    "rmsnorm n=1,7,64 d=1,8,64,100,1023,3584,4096 input=f16,bf16,f32",
    "rmsnorm n=5 h=1,3 d=64,80 input=f16,bf16,f32",
    "rmsnorm n=0 d=64", /* nothing to do is fine */
    "rmsnorm n=3 h=0 d=64",
    "rmsnorm n=4 d=0",
    "rmsnorm n=3 d=128,130 input=bf16,f32 input.pad=8 out=input", /* padded rows, in place */
    "rmsnorm n=9 h=4 d=96 input=f16 input.pad=5 out.pad=3 weight.offset=1 out.offset=2",
    "rmsnorm n=9 h=4 d=96 input.order=1:0:2 out.order=1:0:2",
    "rmsnorm n=6 d=72 input.stride0=0", /* one row read many times */
    "rmsnorm n=40 d=300 input=f16,bf16,f32 input.values=nan,inf,mix,zero,tiny",
    "rmsnorm n=40 d=300 weight.values=mix",
    "rmsnorm n=3 d=8192,16384 eps=0,1e-5,0.5",
    "rmsnorm n=270 d=4096,4100 input=bf16 out.offset=0,32", /* past the caches where it can */
    "rmsnorm n=1 d=64 out=weight expect=invalid_argument:out",
    "rmsnorm n=2 d=64 eps=nan expect=invalid_argument:eps",
};
BOLIDE_TEST(rmsnorm, rmsnorm_cases);

static const char *const gemma_rmsnorm_cases[] = {
    "gemma_rmsnorm n=1,7 d=1,64,100,3584 input=f16,bf16,f32",
    "gemma_rmsnorm n=5 h=3 d=80 input=f16,f32 input.pad=8 out=input",
    "gemma_rmsnorm n=0 d=64",
    "gemma_rmsnorm n=20 d=300 input=bf16 input.values=mix weight.values=zero,mix",
    "gemma_rmsnorm n=2 d=16384 input=bf16 eps=1e-5",
};
BOLIDE_TEST(gemma_rmsnorm, gemma_rmsnorm_cases);

static const char *const rmsnorm_quant_cases[] = {
    "rmsnorm_quant n=1,7 d=1,64,100,3584 input=f16,bf16,f32 out=f8_e4m3fn,f8_e5m2",
    "rmsnorm_quant n=5 h=3 d=80 input=f16,bf16,f32 scale=0.5,0.001,3000,tensor",
    "rmsnorm_quant n=5 d=70 input.pad=3 out.pad=5 out.offset=1 out=f8_e5m2 scale=1e-5",
    "rmsnorm_quant n=0,3 d=0,64 scale=tensor",
    "rmsnorm_quant n=20 d=300 input=bf16 input.values=nan,inf,mix,zero out=f8_e4m3fn,f8_e5m2",
    "rmsnorm_quant n=20 d=300 input=f32 weight.values=mix out=f8_e4m3fn,f8_e5m2",
    "rmsnorm_quant n=2 d=16384 input=f16",
    "rmsnorm_quant n=5 d=70 scale=tensor scale.shape=scalar",
    "rmsnorm_quant scale=nan,0 expect=invalid_argument:scale",
};
BOLIDE_TEST(rmsnorm_quant, rmsnorm_quant_cases);

static const char *const fused_rmsnorm_silu_cases[] = {
    "fused_rmsnorm_silu n=1,7 d=1,64,100,1024 input=f16,bf16,f32 out=f16,bf16,f32,f8_e4m3fn",
    "fused_rmsnorm_silu n=5 h=2 d=80 input=bf16 input.pad=8 out=input",
    "fused_rmsnorm_silu n=0,3 d=0,64",
    "fused_rmsnorm_silu n=20 d=300 input=f32,bf16 input.values=nan,inf,mix,zero",
    "fused_rmsnorm_silu n=20 d=300 input=bf16 weight.values=mix,large out=bf16,f8_e4m3fn",
    "fused_rmsnorm_silu out=f8_e5m2 expect=invalid_argument:out",
};
BOLIDE_TEST(fused_rmsnorm_silu, fused_rmsnorm_silu_cases);

static const char *const rms_norm_cases[] = {
    "rms_norm n=3 d=1,64,100 x=f16,bf16,f32,f8_e4m3fn,f8_e5m2 weight=f16,bf16,f32 "
    "out=f16,bf16,f32,f8_e4m3fn,f8_e5m2",
    "rms_norm n=3 h=2 d=64 x=bf16,f8_e4m3fn in_scale=0.01,tensor out_scale=0.5,100,tensor "
    "out=f16,f8_e4m3fn",
    "rms_norm n=4 d=70 x=f16 out=x x.pad=3 weight=f32 out_scale=3e38", /* held at 65504 */
    "rms_norm n=4 d=70 x=bf16,f32 weight=bf16 out=bf16,f32 out_scale=3e38 weight.values=large",
    "rms_norm n=3 d=64 x=bf16,f32 weight=f32 out_scale=100 out=f8_e5m2,f16 weight.values=mix",
    "rms_norm n=4 d=70 in_scale=tensor out_scale=tensor in_scale.shape=scalar "
    "out_scale.shape=scalar",
    "rms_norm n=0,3 d=0,64",
    "rms_norm n=2 d=16384 x=f8_e4m3fn in_scale=4 out=bf16",
    "rms_norm eps=nan expect=invalid_argument:eps",
};
BOLIDE_TEST(rms_norm, rms_norm_cases);

static const char *const fused_add_rmsnorm_cases[] = {
    "fused_add_rmsnorm n=1,7 d=1,64,100,3584 input=f16,bf16,f32",
    "fused_add_rmsnorm n=5 h=3 d=80 input=f16,bf16,f32 input.pad=8 residual.pad=3",
    "fused_add_rmsnorm n=5 h=3 d=80 input.order=1:0:2 input.offset=1",
    "fused_add_rmsnorm n=0,3 d=0,64",
    "fused_add_rmsnorm n=20 d=300 input=bf16,f32 input.values=nan,inf,mix,zero",
    "fused_add_rmsnorm n=20 d=300 input=f16 residual.values=mix,tiny weight.values=mix",
    "fused_add_rmsnorm n=2 d=16384 input=bf16 eps=1e-5",
    "fused_add_rmsnorm residual=input expect=invalid_argument",
};
BOLIDE_TEST(fused_add_rmsnorm, fused_add_rmsnorm_cases);

static const char *const gemma_fused_add_rmsnorm_cases[] = {
    "gemma_fused_add_rmsnorm n=1,7 d=1,64,100,3584 input=f16,bf16,f32",
    "gemma_fused_add_rmsnorm n=5 h=3 d=80 input=bf16 input.pad=8",
    "gemma_fused_add_rmsnorm n=0 d=64",
    "gemma_fused_add_rmsnorm n=20 d=300 input=bf16 input.values=mix weight.values=zero",
};
BOLIDE_TEST(gemma_fused_add_rmsnorm, gemma_fused_add_rmsnorm_cases);

static const char *const fused_add_rmsnorm_quant_cases[] = {
    "fused_add_rmsnorm_quant n=1,7 d=1,64,100,3584 input=f16,bf16,f32 out=f8_e4m3fn,f8_e5m2",
    "fused_add_rmsnorm_quant n=5 h=3 d=80 input=f16,f32 scale=0.5,0.001,tensor input.pad=8",
    "fused_add_rmsnorm_quant n=0,3 d=0,64",
    "fused_add_rmsnorm_quant n=20 d=300 input=bf16 input.values=nan,inf,mix,zero",
    "fused_add_rmsnorm_quant n=2 d=16384 input=f16",
    "fused_add_rmsnorm_quant n=5 d=70 scale=tensor scale.shape=scalar",
    "fused_add_rmsnorm_quant scale=nan,0,-0 expect=invalid_argument:scale",
};
BOLIDE_TEST(fused_add_rmsnorm_quant, fused_add_rmsnorm_quant_cases);

static const char *const fused_add_rmsnorm_fp8_block_quant_cases[] = {
    "fused_add_rmsnorm_fp8_block_quant n=1,4,7 d=128,384,4096 input=f16,bf16,f32",
    "fused_add_rmsnorm_fp8_block_quant n=6 d=256 input=bf16 input.pad=8 normed_out=input",
    "fused_add_rmsnorm_fp8_block_quant n=6 d=256 out.pad=3 residual.pad=5 block_scale.order=1:0",
    "fused_add_rmsnorm_fp8_block_quant n=0,3 d=0,256",
    "fused_add_rmsnorm_fp8_block_quant n=9 d=256 input=bf16,f32 input.values=nan,inf,mix,zero",
    "fused_add_rmsnorm_fp8_block_quant n=9 d=256 input=f32 weight.values=mix,zero,tiny",
    "fused_add_rmsnorm_fp8_block_quant n=2 d=16384 input=f16",
    "fused_add_rmsnorm_fp8_block_quant d=192 expect=invalid_argument:input",
};
BOLIDE_TEST(fused_add_rmsnorm_fp8_block_quant, fused_add_rmsnorm_fp8_block_quant_cases);

static const char *const rms_norm_add_residual_cases[] = {
    "rms_norm_add_residual n=3 d=1,64,100 x=f16,bf16,f32,f8_e4m3fn,f8_e5m2 residual=f16,bf16,f32 "
    "x_out=f16,f32,f8_e4m3fn",
    "rms_norm_add_residual n=3 h=2 d=64 x=bf16,f8_e4m3fn weight=f32 x_in_scale=0.01,tensor "
    "x_out_scale=0.5,100,tensor x_out=bf16,f8_e5m2",
    "rms_norm_add_residual n=4 d=70 x=f16 x_out=x residual=f16 x.pad=3 x_out_scale=3e38",
    "rms_norm_add_residual n=2 d=70 x_in_scale=tensor x_out_scale=tensor x_in_scale.shape=scalar "
    "x_out_scale.shape=scalar",
    "rms_norm_add_residual n=0,3 d=0,64",
    "rms_norm_add_residual n=3 d=64 x=bf16 residual.values=mix x_out=f8_e4m3fn",
};
BOLIDE_TEST(rms_norm_add_residual, rms_norm_add_residual_cases);

/* ---- layer norms ---------------------------------------------------------------------------- */

static const char *const layernorm_cases[] = {
    "layernorm n=1,7,64 d=1,8,64,100,1023,4096 input=f16,bf16,f32",
    "layernorm n=5 h=1,3 d=64,80 input=f16,bf16,f32",
    "layernorm n=0,3 d=0,64",
    "layernorm n=3 d=128,130 input=bf16,f32 input.pad=8 out=input",
    "layernorm n=9 h=4 d=96 input=f16 input.pad=5 out.pad=3 gemma.offset=1 out.offset=2",
    "layernorm n=9 h=4 d=96 input.order=1:0:2 out.order=1:0:2",
    "layernorm n=20 d=300 input=f16,bf16,f32 input.values=nan,inf,mix,zero,tiny",
    "layernorm n=20 d=300 gemma.values=mix beta.values=mix",
    "layernorm n=3 d=8192,16384 eps=0,1e-5,0.5",
    "layernorm n=2113 d=1040,1048 input=bf16", /* two rows a thread on the GPU */
    "layernorm eps=nan expect=invalid_argument:eps",
    "layernorm gemma=f16 expect=invalid_argument:gemma",
};
BOLIDE_TEST(layernorm, layernorm_cases);

static const char *const layernorm_quant_cases[] = {
    "layernorm_quant n=1,7 d=1,64,100,3584 input=f16,bf16,f32 out=f8_e4m3fn,f8_e5m2",
    "layernorm_quant n=5 h=3 d=80 input=f16,f32 scale=0.5,0.001,tensor input.pad=8 out.pad=3",
    "layernorm_quant n=0,3 d=0,64",
    "layernorm_quant n=20 d=300 input=bf16 input.values=nan,inf,mix,zero out=f8_e4m3fn,f8_e5m2",
    "layernorm_quant n=2 d=16384 input=f16",
    "layernorm_quant n=5 d=70 scale=tensor scale.shape=scalar",
    "layernorm_quant scale=nan,0,-0 expect=invalid_argument:scale",
};
BOLIDE_TEST(layernorm_quant, layernorm_quant_cases);

static const char *const gamma_beta_cases[] = {
    "fused_dit_gate_residual_layernorm_gamma_beta d=1,64,100,3072 input=f16,bf16,f32",
    "fused_dit_gate_residual_layernorm_gamma_beta input=bf16 d=80 gate_bias=given "
    "gate_bias.form=0,1 input_global_scaling_factor=0.5,tensor",
    /* gate as one of six parts of [b, s, 6, d] */
    "fused_dit_gate_residual_layernorm_gamma_beta input=bf16 d=64 gate.stride=384 gate.offset=128",
    "fused_dit_gate_residual_layernorm_gamma_beta d=70 residual_out=residual norm_out=input",
    "fused_dit_gate_residual_layernorm_gamma_beta b=0,2 s=0,3 d=0,64",
    "fused_dit_gate_residual_layernorm_gamma_beta d=200 input=bf16 gate.values=mix",
    "fused_dit_gate_residual_layernorm_gamma_beta d=200 input=f32 residual.values=mix,nan,inf",
    "fused_dit_gate_residual_layernorm_gamma_beta d=16384 input=f16 epsilon=1e-3",
};
BOLIDE_TEST(fused_dit_gate_residual_layernorm_gamma_beta, gamma_beta_cases);

static const char *const gate_scale_shift_cases[] = {
    "fused_dit_gate_residual_layernorm_scale_shift d=1,64,100,3072 input=f16,bf16,f32",
    "fused_dit_gate_residual_layernorm_scale_shift input=bf16 d=80 gate_bias=given,none "
    "scale_bias=given,none shift_bias=given,none",
    "fused_dit_gate_residual_layernorm_scale_shift input=f16 d=80 scale_bias=given "
    "shift_bias=given scale_bias.form=1 shift_bias.form=1 scale.pad=3 shift.order=1:0:2",
    "fused_dit_gate_residual_layernorm_scale_shift input=f32 d=72 gate_bias=given scale_bias=given "
    "shift_bias=given gate_bias.form=1 scale_bias.form=0,1 shift_bias.form=0,1",
    "fused_dit_gate_residual_layernorm_scale_shift d=70 residual_out=residual norm_out=input "
    "input_global_scaling_factor=2,tensor",
    "fused_dit_gate_residual_layernorm_scale_shift b=0,2 s=0,3 d=0,64",
    "fused_dit_gate_residual_layernorm_scale_shift d=200 input=bf16 scale.values=mix",
};
BOLIDE_TEST(fused_dit_gate_residual_layernorm_scale_shift, gate_scale_shift_cases);

static const char *const scale_shift_cases[] = {
    "fused_dit_residual_layernorm_scale_shift d=1,64,100,3072 input=f16,bf16,f32 "
    "residual=given,none",
    "fused_dit_residual_layernorm_scale_shift input=bf16 d=80 residual=given scale_bias=given,none "
    "shift_bias=given,none input_global_scaling_factor=0.5,tensor",
    "fused_dit_residual_layernorm_scale_shift d=70 residual=given residual_out=residual "
    "norm_out=input",
    "fused_dit_residual_layernorm_scale_shift input=f32 d=72 scale_bias=given shift_bias=given "
    "scale_bias.form=1,0 input_global_scaling_factor=tensor "
    "input_global_scaling_factor.shape=scalar",
    "fused_dit_residual_layernorm_scale_shift b=0,2 s=0,3 d=0,64",
    "fused_dit_residual_layernorm_scale_shift d=200 input=bf16,f32 shift.values=mix",
};
BOLIDE_TEST(fused_dit_residual_layernorm_scale_shift, scale_shift_cases);

/* ---- norm and rotation ---------------------------------------------------------------------- */

static const char *const fused_qk_rmsnorm_rope_cases[] = {
    "fused_qk_rmsnorm_rope qkv=f16,bf16,f32 interleave=0,1 output_fp8=0,1",
    "fused_qk_rmsnorm_rope qkv=bf16,f32 head_dim=128 num_frame_channels=44 num_height_channels=42 "
    "num_width_channels=42 num_heads_q=4 num_heads_k=1 num_heads_v=3 interleave=0,1 ppf=5 pph=4",
    "fused_qk_rmsnorm_rope qkv=f32 head_dim=256 num_frame_channels=86 num_height_channels=0 "
    "num_width_channels=170 interleave=0,1 b=1 ppf=1000 pph=1 ppw=2 num_heads_q=1 num_heads_k=1",
    "fused_qk_rmsnorm_rope qkv=f16,f32 head_dim=10 num_frame_channels=4 num_height_channels=4 "
    "num_width_channels=2 interleave=0,1",
    "fused_qk_rmsnorm_rope qkv=f32 is_qk_norm=0,1 attention_factor=1,0.5 factor=1,4 low=1 high=6",
    "fused_qk_rmsnorm_rope qkv=f32 factor=0.5 low=3 high=3 base=500 eps=0.1",
    "fused_qk_rmsnorm_rope qkv=bf16 output_fp8=1 output_quant_scale=200 v_quant_scale=0.5,1000",
    "fused_qk_rmsnorm_rope qkv=bf16 qkv.pad=8 q_out.pad=3 k_out.order=0:2:1:3 v_out.pad=1",
    "fused_qk_rmsnorm_rope qkv=bf16 num_heads_q=0,1 num_heads_k=0,1 num_heads_v=0,1",
    "fused_qk_rmsnorm_rope b=0,1 ppf=0,1 pph=0,1",
    "fused_qk_rmsnorm_rope qkv=bf16,f32 qkv.values=nan,inf,mix,zero output_fp8=0,1",
    "fused_qk_rmsnorm_rope output_quant_scale=2 expect=invalid_argument:output_quant_scale",
    "fused_qk_rmsnorm_rope v_quant_scale=2 expect=invalid_argument:v_quant_scale",
    "fused_qk_rmsnorm_rope num_width_channels=22 expect=invalid_argument:num_width_channels",
    "fused_qk_rmsnorm_rope num_frame_channels=23 num_height_channels=21 "
    "expect=invalid_argument:num_frame_channels",
    "fused_qk_rmsnorm_rope head_dim=258 expect=unsupported:head_dim",
    "fused_qk_rmsnorm_rope factor=0 expect=invalid_argument:factor",
    "fused_qk_rmsnorm_rope base=-1 expect=invalid_argument:base",
    "fused_qk_rmsnorm_rope qkv=f16 q_out=bf16 expect=invalid_argument:q_out",
};
BOLIDE_TEST(fused_qk_rmsnorm_rope, fused_qk_rmsnorm_rope_cases);
